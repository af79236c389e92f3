//! What becomes of the objects when their GitSync is deleted. The operator runs with the shipped rights and acts as the
//! ServiceAccount of each namespace.
#![allow(clippy::expect_used, clippy::panic, clippy::disallowed_types, clippy::disallowed_methods)]

use crate::support;

use std::path::{Path, PathBuf};

use convoke::api::{Kind, keys};
use kube::api::{Api, DeleteParams, Patch, PatchParams};
use serde_json::{Value, json};
use support::team::{AGENT, ARGS, SOON, TENANTS, Team, model, model_at, ready, tenants};
use support::{AuditMark, Cluster, eventually};

const ACCOUNT: &str = "convoke-sync";

const AGENT_A: &str = "apiVersion: convoke.dev/v1alpha1\nkind: Agent\nmetadata:\n  name: a\nspec:\n  modelAPI: m\n  model: gpt-4o\n";

/// A namespace whose GitSync `main` takes its objects (ModelAPIs m, n and Agent a) along.
async fn team(prefix: &str) -> Team<'static> {
    let (cluster, operator) = tenants().await;
    let files = [("m.yaml", model("m")), ("n.yaml", model("n")), ("a.yaml", AGENT_A.to_owned())];
    let files: Vec<_> = files.iter().map(|(path, text)| (*path, text.as_str())).collect();
    let team = Team::new(cluster, prefix, &files).await;
    cluster.grant_sync(&team.namespace, operator);
    team.create_sync(json!({"serviceAccountName": ACCOUNT, "deletionPolicy": "Delete"})).await;
    team.wait_ready("True").await;
    team
}

async fn finalizers(team: &Team<'_>) -> Vec<String> {
    team.get().await.metadata.finalizers.unwrap_or_default()
}

async fn delete(team: &Team<'_>, name: &str) {
    team.syncs.delete(name, &DeleteParams::default()).await.expect("delete the GitSync");
}

async fn gone(team: &Team<'_>, name: &str) {
    eventually(SOON, "the GitSync is gone", || async {
        match team.syncs.get_opt(name).await.expect("get") {
            None => Ok(()),
            Some(sync) => Err(sync.status),
        }
    })
    .await;
}

async fn patch(team: &Team<'_>, spec: Value) {
    let spec = json!({"spec": spec});
    team.syncs.patch("main", &PatchParams::default(), &Patch::Merge(&spec)).await.expect("patch");
}

/// Deletes of objects from Git that worked, in order.
fn deletes(team: &Team<'_>, since: AuditMark) -> Vec<String> {
    let records = team.cluster.writes_by(AGENT, since).into_iter();
    records
        .filter(|r| r.verb == "delete" && r.namespace == team.namespace && r.code < 300)
        .filter(|r| Kind::ALL.iter().any(|kind| kind.plural() == r.resource))
        .map(|r| {
            let account = format!("system:serviceaccount:{}:{ACCOUNT}", team.namespace);
            assert_eq!(r.impersonated.as_deref(), Some(account.as_str()), "{r:?}");
            format!("{}/{}", r.resource, r.name)
        })
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn g15_objects_stay_by_default_and_nothing_holds_the_sync() {
    let (cluster, operator) = tenants().await;
    let team = Team::new(cluster, "orphan", &[("m.yaml", &model("m"))]).await;
    cluster.grant_sync(&team.namespace, operator);
    let spec = json!({"serviceAccountName": ACCOUNT});
    team.create_sync(spec.clone()).await;
    team.wait_ready("True").await;
    assert_eq!(finalizers(&team).await, Vec::<String>::new());
    let before = team.objects(Kind::ModelAPI).await;
    delete(&team, "main").await;
    gone(&team, "main").await;
    // Made anew, it adopts them.
    team.create_sync(spec).await;
    team.wait_ready("True").await;
    assert_eq!(team.objects(Kind::ModelAPI).await, before);
}

#[tokio::test(flavor = "multi_thread")]
async fn g15_delete_takes_exactly_its_own_objects_along_in_reverse_as_the_account() {
    let team = team("along").await;
    assert_eq!(finalizers(&team).await, [keys::FINALIZER]);
    // One that somebody protects, one of somebody else, and a copy with its mark.
    let api = team.api(Kind::ModelAPI);
    let protect = json!({"metadata": {"annotations": {keys::PRUNE: "disabled"}}});
    let params = PatchParams::default();
    api.patch("n", &params, &Patch::Merge(&protect)).await.expect("protect");
    let mark = api.get("m").await.expect("m").metadata.annotations.expect("annotations");
    for (name, annotations) in
        [("foreign", json!({})), ("copy", json!({keys::OWNER: mark[keys::OWNER]}))]
    {
        team.cluster.apply(&json!({
            "apiVersion": "convoke.dev/v1alpha1", "kind": "ModelAPI",
            "metadata": {"name": name, "namespace": team.namespace, "annotations": annotations},
            "spec": {"mode": "External", "external": {"url": "https://models.example.com/v1"}},
        }));
    }
    let since = team.cluster.audit_mark();
    delete(&team, "main").await;
    gone(&team, "main").await;
    assert_eq!(team.models().await, ["copy", "foreign", "n"]);
    assert_eq!(deletes(&team, since), ["agents/a", "modelapis/m"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn g15_a_suspended_sync_lets_its_objects_stay() {
    let team = team("suspended").await;
    patch(&team, json!({"suspend": true})).await;
    eventually(SOON, "the finalizer is taken away", || async {
        let found = finalizers(&team).await;
        if found.is_empty() { Ok(()) } else { Err(found) }
    })
    .await;
    delete(&team, "main").await;
    gone(&team, "main").await;
    assert_eq!(team.models().await, ["m", "n"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn g15_the_finalizer_is_there_only_while_there_are_objects() {
    let team = team("while").await;
    assert_eq!(finalizers(&team).await, [keys::FINALIZER]);
    // All definitions go, and that is approved.
    team.push(&[("m.yaml", None), ("n.yaml", None), ("a.yaml", None), ("x.txt", Some("x"))]).await;
    let sync = team.wait_ready("False").await;
    let pending = sync.status.expect("status").pending_prune.expect("held");
    team.annotate(&[(keys::APPROVE_PRUNE, &pending.digest)]).await;
    eventually(SOON, "all is deleted and the finalizer is gone", || async {
        let found = (team.models().await, finalizers(&team).await);
        if found == (Vec::new(), Vec::new()) { Ok(()) } else { Err(found) }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn g15_a_sync_that_could_never_write_is_not_held() {
    let (cluster, _) = tenants().await;
    let team = Team::new(cluster, "never", &[("m.yaml", &model("m"))]).await;
    team.create_sync(json!({"serviceAccountName": ACCOUNT, "deletionPolicy": "Delete"})).await;
    let sync = team.wait_ready("False").await;
    assert_eq!(ready(&sync).reason, "ImpersonationForbidden");
    assert_eq!(finalizers(&team).await, Vec::<String>::new());
    delete(&team, "main").await;
    gone(&team, "main").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn g15_a_vanished_account_blocks_nothing() {
    let team = team("noaccount").await;
    team.cluster.kubectl(&["-n", &team.namespace, "delete", "serviceaccount", ACCOUNT]);
    delete(&team, "main").await;
    gone(&team, "main").await;
    assert_eq!(team.models().await, ["m", "n"]);
    let events = team.cluster.kubectl(&["-n", &team.namespace, "get", "events", "-o", "json"]);
    assert!(events.contains("its ServiceAccount is gone, so 3 object(s) stay"), "{events}");
}

#[tokio::test(flavor = "multi_thread")]
async fn g15_a_namespace_that_goes_is_not_held_up() {
    let team = team("namespace").await;
    let namespaces: Api<k8s_openapi::api::core::v1::Namespace> = Api::all(team.client.clone());
    namespaces.delete(&team.namespace, &DeleteParams::default()).await.expect("delete");
    eventually(SOON, "the namespace is gone", || async {
        match namespaces.get_opt(&team.namespace).await.expect("get") {
            None => Ok(()),
            Some(namespace) => Err(namespace.status),
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn g15_a_missing_right_is_told_and_the_policy_may_still_be_changed() {
    let team = team("noright").await;
    team.cluster.apply(&json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role",
        "metadata": {"name": ACCOUNT, "namespace": team.namespace},
        "rules": [{"apiGroups": ["convoke.dev"], "resources": ["agents", "modelapis"], "verbs": ["get", "create", "patch"]}],
    }));
    // Rights are seen a moment later by the API server itself.
    let account = format!("--as=system:serviceaccount:{}:{ACCOUNT}", team.namespace);
    eventually(SOON, "the right is gone", || async {
        let mut command = team.cluster.kubectl_command();
        command.args([
            "auth",
            "can-i",
            "delete",
            "agents.convoke.dev",
            "-n",
            &team.namespace,
            &account,
        ]);
        (!command.output().expect("kubectl").status.success()).then_some(())
    })
    .await;
    delete(&team, "main").await;
    let sync = eventually(SOON, "it says what is missing", || async {
        let sync = team.get().await;
        if ready(&sync).reason == "Forbidden" { Ok(sync) } else { Err(sync.status) }
    })
    .await;
    assert!(ready(&sync).message.contains("\"deletionPolicy\":\"Orphan\""), "{:?}", ready(&sync));
    let problems = sync.status.expect("status").problems;
    assert_eq!(problems.iter().map(|p| p.code.as_str()).collect::<Vec<_>>(), ["CVK0905"; 3]);
    patch(&team, json!({"deletionPolicy": "Orphan"})).await;
    gone(&team, "main").await;
    assert_eq!(team.models().await, ["m", "n"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn g15_what_another_sync_wants_is_handed_over_before_the_end() {
    let (cluster, operator) = tenants().await;
    let files = [("a/m.yaml", model("m")), ("a/n.yaml", model("n")), ("b/x.yaml", model("x"))];
    let files: Vec<_> = files.iter().map(|(path, text)| (*path, text.as_str())).collect();
    let team = Team::new(cluster, "handover", &files).await;
    cluster.grant_sync(&team.namespace, operator);
    for (name, path) in [("one", "a"), ("two", "b")] {
        let spec = json!({"path": path, "serviceAccountName": ACCOUNT, "deletionPolicy": "Delete"});
        team.create_sync_named(name, spec).await;
    }
    for name in ["one", "two"] {
        team.wait_ready_of(name, "True").await;
    }
    let before = team.objects(Kind::ModelAPI).await;
    // Nobody has looked at this commit when the one is deleted.
    team.repo.change("move m", &[("b/m.yaml", &model("m"))], &["a/m.yaml"]);
    let since = cluster.audit_mark();
    delete(&team, "one").await;
    gone(&team, "one").await;
    let after = team.objects(Kind::ModelAPI).await;
    assert_eq!(after.keys().collect::<Vec<_>>(), ["m", "x"]);
    assert_eq!(after["m"], before["m"], "the same object");
    assert_eq!(deletes(&team, since), ["modelapis/n"]);
    team.wait_ready_of("two", "True").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn g15_what_finalizers_of_others_keep_is_waited_for_and_named() {
    let team = team("keepers").await;
    let api = team.api(Kind::ModelAPI);
    let hold = |names: Value| json!({"metadata": {"finalizers": names}});
    let patch = |names: Value| Patch::Merge(hold(names));
    api.patch("m", &PatchParams::default(), &patch(json!(["example.com/hold"])))
        .await
        .expect("hold");
    delete(&team, "main").await;
    let message = eventually(SOON, "it says what it waits for", || async {
        let said = ready(&team.get().await);
        if said.message.contains("example.com/hold") { Ok(said.message) } else { Err(said) }
    })
    .await;
    assert!(message.contains("1 object(s); first: ModelAPI/m (example.com/hold)"), "{message}");
    assert_eq!(team.models().await, ["m"]);
    assert_eq!(finalizers(&team).await, [keys::FINALIZER]);
    // A watch tells of the end; the wait itself is longer than this test may take.
    api.patch("m", &PatchParams::default(), &patch(json!([]))).await.expect("let go");
    gone(&team, "main").await;
    assert_eq!(team.models().await, Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn g15_an_end_that_was_killed_in_the_middle_is_finished() {
    let cluster = Cluster::exclusive().await;
    let mut operator = cluster.operator(TENANTS).await;
    let names: Vec<_> = (0..150).map(|n| format!("m{n:03}")).collect();
    let files: Vec<_> = names.iter().map(|name| (format!("{name}.yaml"), model(name))).collect();
    let files: Vec<_> = files.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
    let team = Team::new(&cluster, "killed", &files).await;
    cluster.grant_sync(&team.namespace, &operator);
    team.create_sync(json!({"serviceAccountName": ACCOUNT, "deletionPolicy": "Delete"})).await;
    team.wait_ready("True").await;
    let since = cluster.audit_mark();
    delete(&team, "main").await;
    eventually(SOON, "the first delete", || async {
        (!deletes(&team, since).is_empty()).then_some(())
    })
    .await;
    operator.kill9();
    let left = team.models().await.len();
    assert!(left > 0, "it was killed too late to tell");
    assert!(team.get().await.metadata.deletion_timestamp.is_some());
    operator.restart();
    gone(&team, "main").await;
    assert_eq!(team.models().await, Vec::<String>::new());
    // In reverse, each once. The one that was under way when it was killed may be on the record as cut off.
    let mut deleted = deletes(&team, since);
    assert_eq!(deleted[0], "modelapis/m149");
    deleted.sort();
    deleted.dedup();
    assert!((149..=150).contains(&deleted.len()), "{}", deleted.len());
    println!("{left} objects were left when it was killed");
}

/// The stores of fetched objects in a data folder.
fn stores(data: &Path) -> Vec<PathBuf> {
    let all = std::fs::read_dir(data.join("repositories")).into_iter().flatten();
    all.flatten().map(|entry| entry.path()).filter(|path| path.is_dir()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn g15_what_was_fetched_is_removed_with_the_last_git_sync_that_uses_it() {
    let cluster = Cluster::exclusive().await;
    let data = tempfile::tempdir().expect("a folder");
    let argument = format!("--data-dir={}", data.path().display());
    let args: Vec<_> = ARGS.iter().copied().chain([argument.as_str()]).collect();
    // What earlier versions made for each GitSync goes. What else is in that folder is nobody's business.
    let old = data.path().join("0a1b2c3d-0000-4000-8000-000000000000");
    let strange = data.path().join("0a1b2c3d-0000-4000-8000-0123456789ab");
    std::fs::create_dir_all(old.join("sha1-1/pack")).expect("a folder");
    std::fs::create_dir(data.path().join("mine")).expect("a folder");
    std::os::unix::fs::symlink(data.path().join("mine"), &strange).expect("link");
    let operator = cluster.operator(&args).await;
    operator.ready(SOON).await;
    let (m, n) = (model("m"), model("n"));
    let files = [("a/m.yaml", m.as_str()), ("b/n.yaml", n.as_str())];
    let team = Team::new(&cluster, "stores", &files).await;
    for (name, path) in [("one", "a"), ("other", "b")] {
        team.create_sync_named(name, json!({"path": path})).await;
        team.wait_ready_of(name, "True").await;
    }
    let shared = stores(data.path());
    assert_eq!(shared.len(), 1, "both read the same repository: {shared:?}");
    assert!(!old.exists() && strange.is_symlink() && data.path().join("mine").is_dir());

    delete(&team, "one").await;
    gone(&team, "one").await;
    team.request_of("other").await;
    team.repo.commit("another place", &[("b/n.yaml", &model_at("n", "https://other.example.com"))]);
    team.request_of("other").await;
    assert_eq!(stores(data.path()), shared, "the other one still uses it");

    delete(&team, "other").await;
    gone(&team, "other").await;
    eventually(SOON, "what was fetched is removed", || async {
        match stores(data.path()) {
            left if left.is_empty() => Ok(()),
            left => Err(format!("{left:?}")),
        }
    })
    .await;
    assert_eq!(team.models().await, ["m", "n"], "the objects stay");
}
