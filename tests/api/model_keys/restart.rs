//! Keys of models across a restart of the operator, and with another key of its own (M5).

use super::*;

#[tokio::test(flavor = "multi_thread")]
async fn m5_a_restart_writes_nothing_and_another_key_of_the_operator_changes_all_once() {
    let cluster = Cluster::exclusive().await;
    let mut operator = cluster.operator(ARGS).await;
    // Under the policy that limits what it writes.
    cluster.apply_text(&policy::policies_for(&operator.namespace));
    let team = team(&cluster, "again", &["one", "two"]).await;
    cluster.grant_keys(&team.namespace, &[&operator]);
    team.sync_with(json!({})).await;
    team.listed(&["one", "two"]).await;
    team.deployment("modelapi-gpt").await;
    team.at_rest().await;
    let mark = cluster.audit_mark();
    operator.restart();
    operator.ready(SOON).await;
    eventually(SOON, "it has looked at the Secrets", || async {
        let mut asked = cluster.requests_by(AGENT, mark);
        asked.retain(|r| {
            r.resource == "secrets" && r.namespace == team.namespace && r.verb == "get"
        });
        (asked.len() >= 3).then_some(())
    })
    .await;
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!(cluster.writes_by(AGENT, mark), []);

    let names = ["agent-one", "agent-two", "modelapi-gpt"];
    let mut before = Vec::new();
    for name in names {
        before.push(team.deployment(name).await);
    }
    let (key, issued) = (team.key("one").await, team.listed(&["one", "two"]).await);
    operator.kill9();
    cluster.kubectl(&["-n", "convoke-system", "delete", "secret", "convoke-hmac"]);
    operator.restart();
    for before in &before {
        let name = before.metadata.name.as_deref().unwrap_or_default();
        eventually(SOON, &format!("{name} reads other keys"), || async {
            let now = digest(&team.deployment(name).await);
            if now == digest(before) { Err(now) } else { Ok(()) }
        })
        .await;
    }
    team.at_rest().await;
    for before in &before {
        let now = team.deployment(before.metadata.name.as_deref().unwrap_or_default()).await;
        assert_eq!(generation(&now), generation(before).map(|number| number + 1), "once");
    }
    assert_ne!(team.key("one").await, key);
    let now = team.listed(&["one", "two"]).await;
    for name in ["one", "two"] {
        let [before, after] = [&issued, &now].map(|list| list[name]["issued"].as_i64());
        assert!(after > before, "new keys are good before the list has them: {now:?}");
    }
}
