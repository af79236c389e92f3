//! `Ready` says nothing that is not so: not while a plan takes long or hangs, and not while the cluster cannot be watched.
#![allow(clippy::expect_used, clippy::panic, clippy::disallowed_types, clippy::disallowed_methods)]

use crate::support;

use std::collections::BTreeSet;
use std::net::TcpListener;
use std::time::Duration;

use crate::support::engine::operate;
use convoke::api::{GitSync, Kind};
use kube::api::{DeleteParams, ListParams};
use serde_json::json;
use support::cluster::operator_user;
use support::gate::gated;
use support::team::{ARGS, SOON, Team, condition, model, model_at, ready};
use support::{Cluster, eventually};

const NEW: &str = "https://new.example.com/v1";
const AGENT: &str = "apiVersion: convoke.dev/v1alpha1\nkind: Agent\nmetadata:\n  name: helper\nspec:\n  modelAPI: a\n  model: small\n";

/// The GitSync, once it is so.
async fn until(
    team: &Team<'_>,
    within: Duration,
    what: &str,
    is: impl Fn(&GitSync) -> bool,
) -> GitSync {
    eventually(within, what, || async {
        let sync = team.get().await;
        if is(&sync) { Ok(sync) } else { Err(sync.status) }
    })
    .await
}

/// An admission webhook that swallows what it is sent: each write takes ten seconds and fails.
#[tokio::test(flavor = "multi_thread")]
async fn g18_a_webhook_that_never_answers_is_told_while_the_plan_runs_and_when_its_minute_is_over()
{
    let cluster = Cluster::exclusive().await;
    let operator = cluster.operator(ARGS).await;
    operator.ready(SOON).await;
    let team =
        Team::new(&cluster, "hole", &[("a.yaml", &model("a")), ("b.yaml", &model("b"))]).await;
    team.create_sync(json!({"prune": {"maxDeletions": "50%"}})).await;
    let before = team.wait_ready("True").await.status.expect("a status");

    let hole = TcpListener::bind("127.0.0.1:0").expect("bind");
    let url = format!("https://{}/", hole.local_addr().expect("address"));
    cluster.apply(&json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": "hole"},
        "webhooks": [{
            "name": "hole.example.com", "clientConfig": {"url": url}, "timeoutSeconds": 10,
            "failurePolicy": "Fail", "sideEffects": "None", "admissionReviewVersions": ["v1"],
            "rules": [{"apiGroups": ["convoke.dev"], "apiVersions": ["*"], "operations": ["CREATE"], "resources": ["modelapis"]}],
        }],
    }));
    let files: Vec<_> =
        (0..500).map(|n| (format!("m/{n}.yaml"), model(&format!("m{n:03}")))).collect();
    let files: Vec<_> = files.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
    let head = team.repo.change("many, and one less", &files, &["b.yaml"]);
    team.annotate(&[(convoke::api::keys::REQUESTED_AT, &head)]).await;

    let sync =
        until(&team, SOON, "it says that it is at it", |sync| ready(sync).reason == "Progressing")
            .await;
    let said = ready(&sync);
    assert_eq!(said.status, "Unknown");
    assert!(said.message.ends_with(": writing or deleting 501 object(s)"), "{}", said.message);
    let status = sync.status.as_ref().expect("a status");
    assert_ne!(status.last_handled_reconcile_at.as_deref(), Some(head.as_str()), "not yet");

    let sync =
        until(&team, 3 * SOON, "what failed is told", |sync| ready(sync).status == "False").await;
    let (said, status) = (ready(&sync), sync.status.as_ref().expect("a status"));
    assert_eq!(said.reason, "ApplyFailed");
    assert!(
        said.message.contains(" more not tried yet; trying again; first: m/"),
        "{}",
        said.message
    );
    assert!(said.message.contains("hole.example.com"), "{}", said.message);
    let failed = status.objects.as_ref().expect("counts").failed;
    assert!((150..500).contains(&failed), "{failed}");
    assert_eq!(status.last_applied_revision, before.last_applied_revision);
    assert!(status.last_attempted_revision.as_ref().is_some_and(|r| r.ends_with(&head)));
    assert_eq!(team.models().await, ["a", "b"], "nothing is deleted");

    cluster.kubectl(&["delete", "validatingwebhookconfiguration", "hole"]);
    let sync = until(&team, 3 * SOON, "it is applied", |sync| ready(sync).status == "True").await;
    let applied = sync.status.as_ref().and_then(|status| status.last_applied_revision.clone());
    assert!(applied.is_some_and(|revision| revision.ends_with(&head)));
    let models: BTreeSet<_> = team.models().await.into_iter().collect();
    assert_eq!((models.len(), models.contains("b")), (501, false));
}

#[tokio::test(flavor = "multi_thread")]
async fn g18_a_kind_that_cannot_be_watched_any_more_is_named_and_nothing_is_called_ready() {
    let cluster = Cluster::exclusive().await;
    let namespace = cluster.namespace("watcher").await;
    let kubeconfig = cluster.operator_kubeconfig(&namespace).await;
    cluster.bind_single_tenant(&namespace);
    let (through, gate) = gated(&kubeconfig);
    let user = operator_user(&namespace);
    let data = tempfile::tempdir().expect("temporary folder");
    let _running = operate(&cluster.client_of(&through).await, data.path());

    let team = Team::new(&cluster, "blind", &[("a.yaml", &model("a")), ("h.yaml", AGENT)]).await;
    team.create_sync(json!({})).await;
    let first = team.wait_ready("True").await;
    let agents = team.api(Kind::Agent);
    let helper = || async { agents.get_opt("helper").await.expect("get") };
    let back = |why: &'static str| {
        eventually(SOON, why, || async {
            helper().await.filter(|o| o.metadata.deletion_timestamp.is_none())
        })
    };
    let gone = || async { agents.delete("helper", &DeleteParams::default()).await.map(drop) };

    // A connection that ends is no news.
    gate.cut();
    gate.mend();
    gone().await.expect("delete");
    back("the watch goes on").await;
    let sync = team.get().await;
    let conditions = |sync: &GitSync| sync.status.as_ref().expect("a status").conditions.clone();
    assert_eq!(conditions(&sync), conditions(&first));

    // The right to list and watch agents is taken away, and the running watch ends.
    let agents_too = json!(["agents", "modelapis", "mcpservers", "agentbuilds"]);
    let without = json!(["modelapis", "mcpservers", "agentbuilds"]);
    let rights = |old: &serde_json::Value, new: &serde_json::Value| {
        let path = "/rules/1/resources";
        let patch = json!([
            {"op": "test", "path": path, "value": old},
            {"op": "replace", "path": path, "value": new},
        ]);
        let patch = patch.to_string();
        cluster.kubectl(&["patch", "clusterrole", "convoke", "--type=json", "-p", &patch]);
    };
    rights(&agents_too, &without);
    let operator = cluster.client_of(&kubeconfig).await;
    let seen: kube::Api<convoke::api::Agent> = kube::Api::all(operator);
    eventually(SOON, "the right is gone", || async {
        seen.list(&ListParams::default()).await.err().map(drop)
    })
    .await;
    gate.cut();
    gate.mend();
    let sync = until(&team, SOON, "it is told", |sync| ready(sync).status == "False").await;
    let (said, watch) = (ready(&sync), condition(&sync, "DriftWatch").expect("DriftWatch"));
    assert_eq!(
        (said.reason.as_str(), watch.reason.as_str()),
        ("KindsNotWatched", "KindsNotWatched")
    );
    assert_eq!(watch.status, "False");
    for message in [&said.message, &watch.message] {
        assert!(message.contains(" Agent since 20"), "{message}");
        assert!(message.contains("cannot list resource \"agents\""), "{message}");
        assert!(
            message.contains("; hint: is all of deploy/crds.yaml and deploy/rbac.yaml"),
            "{message}"
        );
        assert!(!message.contains("ModelAPI since"), "{message}");
    }

    // It is so: what is deleted by hand stays away. What Git says is written all the same, and not called applied whole.
    gone().await.expect("delete");
    let sync = team.push(&[("a.yaml", Some(&model_at("a", NEW)))]).await;
    let url =
        team.api(Kind::ModelAPI).get("a").await.expect("a").data["spec"]["external"]["url"].clone();
    assert_eq!((url, helper().await), (json!(NEW), None));
    assert_eq!(ready(&sync).reason, "KindsNotWatched");
    let revision =
        |sync: &GitSync| sync.status.as_ref().expect("a status").last_applied_revision.clone();
    assert_eq!(revision(&sync), revision(&first));

    // While it goes on so, nothing is written.
    let tried = |mark, times| {
        let (cluster, user) = (&cluster, &user);
        eventually(SOON, "it is tried again", move || async move {
            let tries = cluster.requests_by(user, mark);
            let tries = tries.iter().filter(|r| r.resource == "agents" && r.verb == "list").count();
            if tries >= times { Ok(()) } else { Err(tries) }
        })
    };
    // The event of the push comes after its status.
    tried(cluster.audit_mark(), 1).await;
    let mark = cluster.audit_mark();
    tried(mark, 3).await;
    let writes = cluster.writes_by(&user, mark);
    assert!(writes.is_empty(), "{writes:?}");

    rights(&without, &agents_too);
    back("what was not seen is undone").await;
    let sync = until(&team, SOON, "it heals by itself", |sync| ready(sync).status == "True").await;
    assert!(condition(&sync, "DriftWatch").is_none());
    assert_ne!(revision(&sync), revision(&first));
}

/// What the operator has seen is undone: watches that go on from there hear nothing.
#[tokio::test(flavor = "multi_thread")]
async fn g14_after_an_api_server_was_restored_from_a_backup_everything_is_as_git_says() {
    let cluster = Cluster::start().await;
    let operator = cluster.operator(ARGS).await;
    operator.ready(SOON).await;
    let team =
        Team::new(&cluster, "restored", &[("a.yaml", &model("a")), ("z.yaml", &model("z"))]).await;
    team.create_sync(json!({})).await;
    team.wait_ready("True").await;
    cluster.save();

    let files: Vec<_> =
        (0..400).map(|n| (format!("m/{n}.yaml"), model(&format!("m{n:03}")))).collect();
    let (a, mut new) = (model_at("a", NEW), Vec::new());
    new.extend(files.iter().map(|(path, text)| (path.as_str(), text.as_str())));
    new.push(("a.yaml", &a));
    let head = team.repo.change("many, and one less", &new, &["z.yaml"]);
    let sync = team.request().await;
    assert_eq!(ready(&sync).status, "True");
    let before = team.objects(Kind::ModelAPI).await;
    assert_eq!(before.len(), 401);

    cluster.restore();
    eventually(SOON, "all is as Git says", || async {
        let now = team.objects(Kind::ModelAPI).await;
        let anew = now.iter().filter(|(name, uid)| before.get(*name) != Some(uid)).count();
        // What the backup does not have was made anew, and `a` is the same object.
        if now.keys().eq(before.keys()) && anew == 400 { Ok(()) } else { Err((now.len(), anew)) }
    })
    .await;
    let url =
        team.api(Kind::ModelAPI).get("a").await.expect("a").data["spec"]["external"]["url"].clone();
    assert_eq!(url, json!(NEW));
    let applied = |sync: &GitSync| {
        let revision = sync.status.as_ref().and_then(|s| s.last_applied_revision.clone());
        ready(sync).status == "True" && revision.is_some_and(|revision| revision.ends_with(&head))
    };
    until(&team, SOON, "it is told", applied).await;
}
