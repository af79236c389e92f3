//! Which Secrets the operator may write (`deploy/policies.yaml`), and names that somebody else has.

use convoke::api::Kind;
use k8s_openapi::api::core::v1::Secret;
use kube::Client;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use super::support::cluster::operator_user;
use super::support::team::SOON;
use super::support::{Cluster, eventually};
use super::{Proxied, granted};

const POLICIES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/deploy/policies.yaml");
const SHIPPED: &str = "system:serviceaccount:convoke-system:convoke";

/// The shipped policies for an operator in another namespace, as who installs it there changes them.
pub fn policies_for(namespace: &str) -> String {
    let policies = std::fs::read_to_string(POLICIES).expect("policies");
    assert_eq!(policies.matches(SHIPPED).count(), 1);
    policies.replace(SHIPPED, &operator_user(namespace))
}

/// A Secret with this name, controlled by an object of this kind and name. Without that object it is soon deleted.
fn secret(name: &str, owner: (&str, &str)) -> Secret {
    controlled(name, owner, "u")
}

/// The same, by the object with this UID.
fn controlled(name: &str, (kind, of): (&str, &str), uid: &str) -> Secret {
    let owner = json!({"apiVersion": "convoke.dev/v1alpha1", "kind": kind, "name": of, "uid": uid, "controller": true});
    let object = json!({"apiVersion": "v1", "kind": "Secret", "type": "Opaque",
        "metadata": {"name": name, "ownerReferences": [owner]}, "stringData": {"key": "k"}});
    serde_json::from_value(object).expect("a Secret")
}

/// What an account may do with Secrets of a namespace.
struct Account(Api<Secret>);

impl Account {
    async fn create(&self, secret: &Secret) -> Result<(), String> {
        let dry = PostParams { dry_run: true, ..PostParams::default() };
        self.0.create(&dry, secret).await.map(drop).map_err(|error| error.to_string())
    }

    async fn patch(&self, name: &str, patch: Value) -> Result<(), String> {
        let dry = PatchParams { dry_run: true, ..PatchParams::default() };
        let patched = self.0.patch(name, &dry, &Patch::Merge(patch)).await;
        patched.map(drop).map_err(|error| error.to_string())
    }

    async fn delete(&self, name: &str) -> Result<(), String> {
        let dry = DeleteParams { dry_run: true, ..DeleteParams::default() };
        self.0.delete(name, &dry).await.map(drop).map_err(|error| error.to_string())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn m5_the_operator_may_write_its_own_secrets_and_no_others() {
    let cluster = Cluster::exclusive().await;
    let home = cluster.namespace("operator").await;
    let kubeconfig = cluster.operator_kubeconfig(&home).await;
    let namespace = cluster.namespace("team").await;
    let binding = ["create", "rolebinding", "convoke-keys", "--clusterrole=convoke-keys"];
    let account = format!("--serviceaccount={home}:convoke");
    let here = ["-n", namespace.as_str()];
    cluster.kubectl(&[&here[..], &binding[..], &[account.as_str()][..]].concat());
    cluster.apply_text(&policies_for(&home));

    let of = |client: Client| Account(Api::namespaced(client, &namespace));
    let operator = of(cluster.client_of(&kubeconfig).await);
    let admin = of(cluster.client().await);
    let refused = "the operator writes only Secrets that are controlled by";
    let own = secret("agent-a-model-key", ("Agent", "a"));
    let foreign = secret("database", ("Agent", "a"));
    eventually(SOON, "the policy is in force", || async {
        match operator.create(&foreign).await {
            Err(error) if error.contains(refused) => Ok(()),
            other => Err(other),
        }
    })
    .await;

    assert_eq!(operator.create(&own).await, Ok(()));
    assert_eq!(operator.create(&secret("modelapi-m-keys", ("ModelAPI", "m"))).await, Ok(()));
    assert_eq!(admin.create(&foreign).await, Ok(()), "it is about the operator alone");
    let mut unowned = own.clone();
    unowned.metadata.owner_references = None;
    let mut uncontrolled = own.clone();
    uncontrolled.metadata.owner_references.as_mut().expect("owners")[0].controller = None;
    let mut typed = own.clone();
    typed.type_ = Some("example.com/odd".into());
    for other in [
        secret("agent-b-model-key", ("Agent", "a")),
        secret("agent-a-model-key", ("ModelAPI", "a")),
        secret("modelapi-a-keys", ("Agent", "a")),
        unowned,
        uncontrolled,
        typed,
    ] {
        let said = operator.create(&other).await.expect_err("refused");
        assert!(said.contains(refused), "{other:?}: {said}");
    }
    // Those of a build are made once.
    let mut of_build = controlled("b-1-0123-git-auth", ("PipelineRun", "b-1"), "u");
    let owner = &mut of_build.metadata.owner_references.as_mut().expect("owners")[0];
    owner.api_version = "tekton.dev/v1".into();
    assert_eq!(operator.create(&of_build).await, Ok(()));
    let mut elsewhere = of_build.clone();
    elsewhere.metadata.name = Some("database".into());
    let mut not_tekton = of_build.clone();
    let owner = &mut not_tekton.metadata.owner_references.as_mut().expect("owners")[0];
    owner.api_version = "convoke.dev/v1alpha1".into();
    for other in [elsewhere, not_tekton] {
        let said = operator.create(&other).await.expect_err("refused");
        assert!(said.contains(refused), "{other:?}: {said}");
    }
    let mut labelled = own.clone();
    labelled.metadata.labels = Some([("convoke.dev/agents".into(), "allow".into())].into());
    let said = operator.create(&labelled).await.expect_err("refused");
    assert!(said.contains("gives no Secret the label"), "{said}");

    // What is there: its own one may be changed and deleted, somebody else's not, also not by giving it an owner.
    let agent = json!({"apiVersion": "convoke.dev/v1alpha1", "kind": "Agent", "metadata": {"name": "a", "namespace": namespace}, "spec": {"modelAPI": {"name": "m"}}});
    cluster.apply(&agent);
    let get = ["get", "agents.convoke.dev", "a", "-o", "jsonpath={.metadata.uid}"];
    let uid = cluster.kubectl(&[&here[..], &get[..]].concat());
    for name in ["agent-a-model-key", "agent-c-model-key", "database"] {
        let made = controlled(name, ("Agent", "a"), &uid);
        admin.0.create(&PostParams::default(), &made).await.expect("create");
    }
    let change = json!({"stringData": {"key": "new"}});
    assert_eq!(operator.patch("agent-a-model-key", change.clone()).await, Ok(()));
    assert_eq!(operator.delete("agent-a-model-key").await, Ok(()));
    let take = serde_json::to_value(secret("x", ("Agent", "c")).metadata).expect("JSON");
    let take = json!({"metadata": {"ownerReferences": take["ownerReferences"]}});
    for attempt in [
        operator.patch("agent-c-model-key", take).await,
        operator.patch("database", change).await,
        operator.delete("database").await,
        operator.delete("agent-c-model-key").await,
    ] {
        assert!(attempt.expect_err("refused").contains(refused));
    }
    let label = json!({"metadata": {"labels": {"convoke.dev/agents": "allow"}}});
    let said = operator.patch("agent-a-model-key", label.clone()).await.expect_err("refused");
    assert!(said.contains("gives no Secret the label"), "{said}");
    assert_eq!(admin.patch("agent-a-model-key", label).await, Ok(()), "people may");
}

impl Proxied<'_> {
    /// A Secret of somebody else.
    async fn put_foreign(&self, name: &str) -> Secret {
        let secret = json!({"metadata": {"name": name}, "stringData": {"key": "theirs"}});
        let secret = serde_json::from_value(secret).expect("a Secret");
        self.secrets().create(&PostParams::default(), &secret).await.expect("create")
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn m5_a11_a_secret_of_somebody_else_is_left_alone_and_told() {
    let (team, _) = granted("foreign-key", &[]).await;
    team.listed(&[]).await;
    let before = team.put_foreign("agent-one-model-key").await;
    team.push(&[("one.yaml", Some(&super::agent("one", "")))]).await;
    let told = team.condition(Kind::Agent, "one", "Conflict", |c| c["status"] == "True").await;
    assert_eq!(told["message"], "Secret agent-one-model-key exists and is not ours");
    assert!(team.deployments().get_opt("agent-one").await.expect("get").is_none());
    let after = team.secret("agent-one-model-key").await;
    assert_eq!(after.metadata.resource_version, before.metadata.resource_version);

    // It goes on when the name is free.
    team.secrets().delete("agent-one-model-key", &DeleteParams::default()).await.expect("delete");
    eventually(2 * SOON, "the agent goes on", || async {
        team.deployments().get_opt("agent-one").await.expect("get")
    })
    .await;
    team.listed(&["one"]).await;
}
