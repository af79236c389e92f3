//! Without the right to write keys, and without a key of the operator's to make them from.

use convoke::api::Kind;
use serde_json::{Value, json};

use super::support::team::{SOON, TENANTS, shared_operator};
use super::support::{Cluster, cluster, eventually};
use super::{ARGS, digest, generation, team};

/// The command at the end of a message, without its `kubectl`.
fn command(told: &Value) -> Vec<String> {
    let message = told["message"].as_str().unwrap_or_default();
    let (_, command) =
        message.rsplit_once(": kubectl ").unwrap_or_else(|| panic!("no command: {told}"));
    command.split(' ').map(str::to_owned).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn m5_without_the_right_no_proxy_runs_until_the_told_command_is_run() {
    let cluster = cluster().await;
    shared_operator(cluster).await;
    let team = team(cluster, "rightless", &["one"]).await;
    team.sync_with(json!({})).await;
    let forbidden = |c: &Value| c["status"] == "False" && c["reason"] == "Forbidden";
    let told = team.condition(Kind::ModelAPI, "gpt", "KeysWritten", forbidden).await;
    team.condition(Kind::Agent, "one", "KeysWritten", forbidden).await;
    let waits = |c: &Value| c["reason"] == "WaitingForInputs" && c["message"] == told["message"];
    team.condition(Kind::ModelAPI, "gpt", "Ready", waits).await;
    team.at_rest().await;
    for name in ["modelapi-gpt", "agent-one"] {
        let deployment = team.deployments().get_opt(name).await.expect("get");
        assert!(deployment.is_none(), "never an open proxy, nor one without keys: {name}");
    }

    let command = command(&told);
    cluster.kubectl(&command.iter().map(String::as_str).collect::<Vec<_>>());
    // No event tells of a new right: it is looked for every half a minute.
    for name in ["modelapi-gpt", "agent-one"] {
        eventually(2 * SOON, &format!("{name} is made"), || async {
            team.deployments().get_opt(name).await.expect("get")
        })
        .await;
    }
    for (kind, name) in [(Kind::ModelAPI, "gpt"), (Kind::Agent, "one")] {
        team.condition(kind, name, "KeysWritten", Value::is_null).await;
    }
    team.listed(&["one"]).await;

    // Without the right once more: what runs as it should goes on, and what is new is held.
    let before = team.deployment("modelapi-gpt").await;
    cluster.kubectl(&["-n", &team.namespace, "delete", "rolebinding", "convoke-keys"]);
    team.push(&[("two.yaml", Some(&super::agent("two", "")))]).await;
    team.condition(Kind::Agent, "two", "KeysWritten", forbidden).await;
    assert!(team.deployments().get_opt("agent-two").await.expect("get").is_none());
    assert_eq!(generation(&team.deployment("modelapi-gpt").await), generation(&before));
}

#[tokio::test(flavor = "multi_thread")]
async fn m5_without_a_key_of_the_operators_no_proxy_runs_and_it_begins_when_there_is_one() {
    let cluster = Cluster::exclusive().await;
    let args: Vec<_> = ARGS.iter().copied().chain(["--operator-namespace=elsewhere"]).collect();
    let operator = cluster.operator(&args).await;
    let team = team(&cluster, "keyless", &["one"]).await;
    cluster.grant_keys(&team.namespace, &[&operator]);
    team.sync_with(json!({})).await;
    let keyless = |c: &Value| c["status"] == "False" && c["reason"] == "NoKey";
    team.condition(Kind::ModelAPI, "gpt", "KeysWritten", keyless).await;
    team.condition(Kind::Agent, "one", "KeysWritten", keyless).await;
    assert!(team.deployments().get_opt("modelapi-gpt").await.expect("get").is_none());

    cluster.let_keep_key("elsewhere", &operator);
    for name in ["modelapi-gpt", "agent-one"] {
        assert!(digest(&team.deployment(name).await).is_some(), "{name}");
    }
    team.listed(&["one"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn m5_g16_the_shipped_example_of_a_namespace_gives_the_right() {
    let cluster = Cluster::exclusive().await;
    let mut operator = cluster.operator(TENANTS).await;
    operator.ready(SOON).await;
    let team = team(&cluster, "example", &["one"]).await;
    cluster.grant_sync(&team.namespace, &operator);
    team.create_sync(json!({"serviceAccountName": "convoke-sync"})).await;
    team.deployment("modelapi-gpt").await;
    team.listed(&["one"]).await;

    // It is taken away: what runs goes on, and an agent that is suspended stops.
    let before = team.deployment("agent-one").await;
    cluster.kubectl(&["-n", &team.namespace, "delete", "rolebinding", "convoke-keys"]);
    operator.kill9();
    operator.restart();
    let forbidden = |c: &Value| c["status"] == "False" && c["reason"] == "Forbidden";
    team.condition(Kind::Agent, "one", "KeysWritten", forbidden).await;
    let now = team.deployment("agent-one").await;
    assert_eq!(generation(&now), generation(&before));
    team.push(&[("one.yaml", Some(&super::agent("one", "  suspend: true\n")))]).await;
    eventually(SOON, "it has no pods", || async {
        let spec = team.deployment("agent-one").await.spec.unwrap_or_default();
        if spec.replicas == Some(0) { Ok(()) } else { Err(spec.replicas) }
    })
    .await;
}
