//! Pods read only what is labelled: the controllers make none that read something else, and the shipped policies refuse
//! definitions that name it.

use convoke::api::Kind;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Service;
use kube::Api;
use kube::api::{DeleteParams, DynamicObject, Patch, PatchParams};
use serde_json::{Value, json};

use super::support::team::{SOON, Team, places, shared_operator};
use super::support::{cluster, eventually};
use super::{ALLOWED, PROXY, agent, env, generation, inputs, reads, team};

/// The command at the end of a message, as arguments of kubectl.
fn command(message: &str) -> Vec<&str> {
    let (_, command) = message.rsplit_once("kubectl ").unwrap_or_else(|| panic!("{message}"));
    command.split(' ').collect()
}

fn message(condition: &Value) -> &str {
    condition["message"].as_str().unwrap_or_default()
}

impl Team<'_> {
    /// Waits until this is the reason why an agent's Deployment is neither made nor changed.
    async fn refused(&self, agent: &str, reason: &str) -> Value {
        self.condition(Kind::Agent, agent, "InputsFollowed", |c| c["reason"] == reason).await
    }

    async fn live(&self, name: &str) -> Option<Deployment> {
        self.deployments().get_opt(name).await.expect("get")
    }

    /// Writes an object of ours by hand.
    async fn write(
        &self,
        kind: Kind,
        name: &str,
        spec: Value,
        params: &PatchParams,
    ) -> Result<DynamicObject, kube::Error> {
        let object = json!({"apiVersion": "convoke.dev/v1alpha1", "kind": kind.as_str(), "metadata": {"name": name}, "spec": spec});
        self.api(kind).patch(name, params, &Patch::Apply(&object)).await
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a13_a_config_map_without_the_label_is_not_used_and_named_until_it_is_labelled() {
    let cluster = cluster().await;
    shared_operator(cluster).await;
    let one = reads("one", "configMap", "plain", "k");
    let team = team(cluster, "unlabelled", &[("one.yaml", one.clone())]).await;
    team.sync_with(json!({})).await;
    // What does not exist is to be created before it is labelled.
    let told = team.refused("one", "Missing").await;
    assert!(message(&told).starts_with("ConfigMap plain: missing; "), "{told}");
    assert!(message(&told).contains("create what is missing, then: kubectl"), "{told}");
    team.condition(Kind::Agent, "one", "Ready", |c| c["reason"] == "WaitingForInputs").await;
    assert_eq!(
        team.api(Kind::Agent).get("one").await.expect("get").data["status"]["phase"],
        "Waiting"
    );

    // No watch shows what has another label: the agent is looked at because it is touched.
    team.put_map("plain", &[(ALLOWED.0, "no")], json!({"k": "1"})).await;
    let touch = json!({"metadata": {"annotations": {"example.com/touched": "yes"}}});
    let api = team.api(Kind::Agent);
    api.patch("one", &PatchParams::default(), &Patch::Merge(&touch)).await.expect("touch");
    let told = team.refused("one", "NotAllowed").await;
    let label = format!(
        "kubectl -n {} label configmap/plain convoke.dev/agents=allow --overwrite",
        team.namespace
    );
    assert!(message(&told).ends_with(&label), "{told}");
    assert!(team.live("agent-one").await.is_none());

    // The command helps.
    cluster.kubectl(&command(message(&told)));
    let first = team.deployment("agent-one").await;
    assert!(inputs(&first).is_some() && generation(&first) == 1);
    team.condition(Kind::Agent, "one", "InputsFollowed", Value::is_null).await;

    // Without the label what runs stays as it is, whatever the ConfigMap holds and Git wants.
    cluster.kubectl(&["-n", &team.namespace, "label", "configmap/plain", "convoke.dev/agents-"]);
    team.refused("one", "NotAllowed").await;
    team.put_map("plain", &[], json!({"k": "2"})).await;
    let other = one.replace("spec:\n", "spec:\n  model: other\n");
    team.condition(Kind::Agent, "one", "Ready", |c| c["reason"] != "WaitingForInputs").await;
    team.push(&[("one.yaml", Some(&other))]).await;
    // A spec that is not rolled out is not called ready.
    team.condition(Kind::Agent, "one", "Ready", |c| c["reason"] == "WaitingForInputs").await;
    let now = team.deployment("agent-one").await;
    assert_eq!((generation(&now), inputs(&now)), (1, inputs(&first)));
    // It can be stopped all the same.
    let stopped = other.replace("spec:\n", "spec:\n  suspend: true\n");
    team.push(&[("one.yaml", Some(&stopped))]).await;
    eventually(SOON, "it is scaled to zero", || async {
        let now = team.deployment("agent-one").await;
        let replicas = now.spec.as_ref().and_then(|spec| spec.replicas);
        if replicas == Some(0) { Ok(()) } else { Err(replicas) }
    })
    .await;
    team.push(&[("one.yaml", Some(&other))]).await;
    team.refused("one", "NotAllowed").await;

    cluster.kubectl(&command(&label));
    team.condition(Kind::Agent, "one", "InputsFollowed", Value::is_null).await;
    eventually(SOON, "it runs as Git wants", || async {
        let now = team.deployment("agent-one").await;
        let replicas = now.spec.as_ref().and_then(|spec| spec.replicas);
        let read = inputs(&now);
        if replicas == Some(1) && read != inputs(&first) { Ok(()) } else { Err(read) }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a13_pods_that_run_keep_their_service_while_another_spec_is_held() {
    let cluster = cluster().await;
    let operator = shared_operator(cluster).await;
    let api = |spec: &str| {
        let head =
            "apiVersion: convoke.dev/v1alpha1\nkind: ModelAPI\nmetadata:\n  name: large\nspec:\n";
        format!("{head}{spec}{}", env("configMap", "plain", "k"))
    };
    let proxy = api("  mode: Proxy\n  proxy:\n    models: [a]\n");
    let hosted = api("  mode: Hosted\n  hosted:\n    model: b\n");
    let team = team(cluster, "held", &[("large.yaml", proxy)]).await;
    cluster.grant_keys(&team.namespace, &[operator]);
    team.put_map("plain", &[ALLOWED], json!({"k": "1"})).await;
    team.sync_with(json!({})).await;
    let first = team.deployment("modelapi-large").await;
    let services: Api<Service> = Api::namespaced(team.client.clone(), &team.namespace);
    let ports = || async {
        let service = services.get("modelapi-large").await.expect("get");
        service.spec.and_then(|spec| spec.ports).expect("ports")
    };
    let before = ports().await;
    cluster.kubectl(&["-n", &team.namespace, "label", "configmap/plain", "convoke.dev/agents-"]);
    let condition = |type_: &'static str, reason: &'static str| {
        team.condition(Kind::ModelAPI, "large", type_, move |c| c["reason"] == reason)
    };
    condition("InputsFollowed", "NotAllowed").await;

    // Nothing is held as long as nothing is to change: what somebody deletes is made again.
    services.delete("modelapi-large", &DeleteParams::default()).await.expect("delete");
    eventually(SOON, "the Service is made again", || async {
        let service = services.get_opt("modelapi-large").await.expect("get");
        if service.is_some_and(|service| service.metadata.deletion_timestamp.is_none()) {
            Ok(())
        } else {
            Err(())
        }
    })
    .await;

    team.push(&[("large.yaml", Some(&hosted))]).await;
    condition("Ready", "WaitingForInputs").await;
    assert_eq!(ports().await, before);
    assert_eq!(generation(&team.deployment("modelapi-large").await), generation(&first));
    team.put_map("plain", &[ALLOWED], json!({"k": "2"})).await;
    let rolled = team.rolled(&first).await;
    assert!(generation(&rolled) > generation(&first));
    assert_ne!(ports().await, before);
}

#[tokio::test(flavor = "multi_thread")]
async fn a13_a_deployment_whose_secret_loses_the_label_stays_and_is_not_made_anew() {
    let cluster = cluster().await;
    let operator = shared_operator(cluster).await;
    let files = [
        ("one.yaml", reads("one", "secret", "keys", "k")),
        (
            "maybe.yaml",
            agent("maybe", &(env("secret", "none", "k") + "          optional: true\n")),
        ),
    ];
    let team = team(cluster, "label", &files).await;
    cluster.grant_secrets(&team.namespace, &[operator]);
    team.put_secret("keys", &[ALLOWED], json!({"k": "canary-1"})).await;
    team.sync_with(json!({})).await;
    let first = team.deployment("agent-one").await;
    team.condition(Kind::Agent, "one", "SecretsWatched", |c| c["status"] == "True").await;
    // What pods can do without, and is missing, holds none.
    team.deployment("agent-maybe").await;
    team.condition(Kind::Agent, "maybe", "InputsFollowed", Value::is_null).await;

    team.put_secret("keys", &[], json!({"k": "canary-2"})).await;
    let told = team.refused("one", "NotAllowed").await;
    assert!(!told.to_string().contains("canary"), "{told}");
    team.quiet().await;
    let now = team.deployment("agent-one").await;
    assert_eq!(now.metadata.uid, first.metadata.uid);
    assert_eq!((generation(&now), inputs(&now)), (generation(&first), inputs(&first)));

    team.deployments().delete("agent-one", &DeleteParams::default()).await.expect("delete");
    team.condition(Kind::Agent, "one", "Ready", |c| c["reason"] == "WaitingForInputs").await;
    team.quiet().await;
    assert!(team.live("agent-one").await.is_none());
    cluster.kubectl(&command(message(&told)));
    assert!(inputs(&team.deployment("agent-one").await).is_some());
    team.condition(Kind::Agent, "one", "InputsFollowed", Value::is_null).await;
}

/// Policies are compiled a moment after they are made: waits until a dry run is refused.
async fn in_force(team: &Team<'_>, spec: &Value) {
    let params = PatchParams::apply("tester").force().dry_run();
    eventually(SOON, "the policy is in force", || async {
        match team.write(Kind::Agent, "tried", spec.clone(), &params).await {
            Err(kube::Error::Api(status)) if status.message.contains("is not labelled") => Ok(()),
            other => Err(other.map(drop)),
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a13_a_definition_that_names_what_is_not_labelled_is_refused_with_the_command() {
    let cluster = cluster().await;
    let team = team(cluster, "policy", &[]).await;
    team.put_secret("plain", &[], json!({"k": "1"})).await;
    team.put_map("plain", &[], json!({"k": "1"})).await;
    let params = PatchParams::apply("tester").force();
    let var = |field: &str, name: &str| json!({"name": format!("V_{}", name.to_uppercase()), "valueFrom": {field: {"name": name, "key": "k"}}});
    let secret = |name: &str| var("secretKeyRef", name);
    let with = |env: &[Value]| json!({"modelAPI": {"name": "gpt"}, "env": env});
    for field in ["secretKeyRef", "configMapKeyRef"] {
        in_force(&team, &with(&[var(field, "plain")])).await;
    }
    let refused = |kind: Kind, spec: Value| {
        let (team, params) = (&team, &params);
        async move {
            let what = spec.to_string();
            match team.write(kind, "new", spec, params).await {
                Err(kube::Error::Api(status)) => {
                    assert_eq!(status.code, 403, "{status:?}");
                    status.message.clone()
                }
                other => panic!("not refused: {what}: {other:?}"),
            }
        }
    };
    let from = |field: &str| json!({field: {"name": "plain", "key": "k"}});
    let config = json!({"modelAPI": {"name": "gpt"}, "config": {"env": [secret("plain")]}});
    let headers = json!({"url": "https://x.example/mcp", "headersFrom": [{"name": "X", "secretKeyRef": {"name": "plain", "key": "k"}}]});
    let redis = json!({"type": "Redis", "redis": {"urlFrom": from("secretKeyRef")}});
    let specs = [
        (Kind::Agent, with(&[secret("fine"), secret("plain")])),
        (Kind::Agent, config),
        (Kind::MCPServer, json!({"image": "i", "env": [secret("plain")]})),
        (
            Kind::ModelAPI,
            json!({"mode": "Hosted", "hosted": {"model": "m"}, "env": [secret("plain")]}),
        ),
        (
            Kind::ModelAPI,
            json!({"mode": "Proxy", "proxy": {"models": ["openai/*"], "apiKeyFrom": from("secretKeyRef")}}),
        ),
        (Kind::ModelAPI, json!({"mode": "Proxy", "proxy": {"configYaml": from("secretKeyRef")}})),
        (Kind::ModelAPI, json!({"mode": "External", "external": headers})),
        (Kind::MCPServer, json!({"remote": headers})),
        (
            Kind::Agent,
            json!({"modelAPI": {"name": "gpt"}, "providerSecretRef": {"name": "plain", "key": "k"}}),
        ),
        (Kind::Agent, json!({"modelAPI": {"name": "gpt"}, "config": {"memory": redis}})),
    ];
    let label = format!(
        "kubectl -n {} label secret/plain convoke.dev/agents=allow --overwrite",
        team.namespace
    );
    for (kind, spec) in specs {
        let said = refused(kind, spec).await;
        assert!(
            said.ends_with(&format!(
                "Secret plain is not labelled convoke.dev/agents=allow; to allow it: {label}"
            )),
            "{said}"
        );
    }
    for field in ["apiKeyFrom", "configYaml"] {
        let named = json!({"models": ["a"], field: from("configMapKeyRef")});
        let named = json!({"mode": "Proxy", "proxy": named});
        let said = refused(Kind::ModelAPI, named).await;
        assert!(said.contains("ConfigMap plain is not labelled"), "{said}");
    }

    // One that came before its Secret can still be edited, and names no other that way.
    let old = with(&[secret("later")]);
    team.write(Kind::Agent, "old", old.clone(), &params).await.expect("its Secret may come later");
    team.put_secret("later", &[], json!({"k": "1"})).await;
    in_force(&team, &old).await;
    let agents = team.api(Kind::Agent);
    let edit =
        Patch::Merge(json!({"spec": {"model": "other"}, "metadata": {"labels": {"a": "b"}}}));
    agents.patch("old", &PatchParams::default(), &edit).await.expect("nothing new is named");
    let more =
        team.write(Kind::Agent, "old", with(&[secret("later"), secret("plain")]), &params).await;
    assert!(more.is_err_and(|error| error.to_string().contains("Secret plain is not labelled")));

    // The command helps.
    cluster.kubectl(&command(&label));
    eventually(SOON, "it is allowed", || async {
        team.write(Kind::Agent, "new", with(&[secret("plain")]), &params).await.map(drop)
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a13_a_sync_says_where_a_definition_names_what_is_not_labelled_and_how_to_allow_it() {
    let cluster = cluster().await;
    let operator = shared_operator(cluster).await;
    let team = team(cluster, "told", &[("proxy.yaml", PROXY.to_owned())]).await;
    cluster.grant_keys(&team.namespace, &[operator]);
    team.put_secret("keys", &[], json!({"k": "canary"})).await;
    let var = json!({"name": "V", "valueFrom": {"secretKeyRef": {"name": "keys", "key": "k"}}});
    in_force(&team, &json!({"modelAPI": {"name": "gpt"}, "env": [var]})).await;
    let sync = team.sync_with(json!({})).await;
    let problems = sync.status.expect("status").problems;
    assert_eq!(places(&problems), ["proxy.yaml:1:1 CVK0902"]);
    let said = &problems[0].message;
    assert!(said.contains("Secret keys is not labelled") && !said.contains("canary"), "{said}");
    let label = format!(
        "kubectl -n {} label secret/keys convoke.dev/agents=allow --overwrite",
        team.namespace
    );
    assert!(said.contains(&label), "{said}");

    cluster.kubectl(&command(&label));
    eventually(SOON, "it is written when it is asked for", || async {
        team.request().await;
        let problems = team.status().await.problems;
        if problems.is_empty() { Ok(()) } else { Err(problems) }
    })
    .await;
    team.deployment("modelapi-proxy").await;
}
