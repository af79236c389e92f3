//! Deletes that nobody has approved, or that nothing proves, do not happen: whatever shrinks a list, whoever else may want an
//! object, and whatever cannot be seen at the moment.

use std::collections::BTreeMap;

use crate::support::engine::{Intercepted, InterceptedEngine, operate};
use crate::support::gate::gated;
use crate::support::team::{ARGS, SOON, Team, condition, model, ready, shared_operator};
use crate::support::{Cluster, cluster, eventually};
use convoke::api::{GitSync, Kind, Mark, keys};
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::{Value, json};

/// A team with these files, whose GitSyncs `one` and `two` read the folders a and b; both Ready.
async fn two<'a>(cluster: &'a Cluster, prefix: &str, files: &[&str], extra: Value) -> Team<'a> {
    let files: Vec<_> =
        files.iter().map(|path| (format!("{path}.yaml"), model(&path[2..]))).collect();
    let files: Vec<_> = files.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
    let team = Team::new(cluster, prefix, &files).await;
    for (name, path) in [("one", "a"), ("two", "b")] {
        let mut spec = extra.clone();
        spec["path"] = json!(path);
        team.create_sync_named(name, spec).await;
    }
    for name in ["one", "two"] {
        team.wait_ready_of(name, "True").await;
    }
    team
}

async fn annotate(team: &Team<'_>, name: &str, key: &str, value: &str) {
    let patch = json!({"metadata": {"annotations": {key: value}}});
    let api = team.api(Kind::ModelAPI);
    api.patch(name, &PatchParams::default(), &Patch::Merge(&patch)).await.expect("annotate");
}

async fn approve(team: &Team<'_>, sync: &str, digest: &str) {
    let patch = json!({"metadata": {"annotations": {keys::APPROVE_PRUNE: digest}}});
    let params = PatchParams::default();
    team.syncs.patch(sync, &params, &Patch::Merge(&patch)).await.expect("approve");
}

/// The GitSync, once this many of its deletes are held.
async fn held(team: &Team<'_>, sync: &str, count: i64) -> GitSync {
    eventually(SOON, &format!("{count} deletes of {sync} are held"), || async {
        let sync = team.syncs.get(sync).await.expect("a GitSync");
        let pending = sync.status.as_ref().and_then(|status| status.pending_prune.as_ref());
        if pending.is_some_and(|p| p.count == count) { Ok(sync) } else { Err(sync.status) }
    })
    .await
}

fn digest(sync: &GitSync) -> String {
    let pending = sync.status.as_ref().and_then(|status| status.pending_prune.as_ref());
    pending.expect("held deletes").digest.clone()
}

/// The GitSync that an object is marked with.
async fn owner(team: &Team<'_>, name: &str) -> Option<String> {
    let live = team.api(Kind::ModelAPI).get_opt(name).await.expect("get")?;
    Some(Mark::parse(&live.metadata.annotations?[keys::OWNER])?.sync_name)
}

async fn wait_for_owner(team: &Team<'_>, name: &str, sync: &str) {
    eventually(SOON, &format!("{name} belongs to {sync}"), || async {
        let owner = owner(team, name).await;
        if owner.as_deref() == Some(sync) { Ok(()) } else { Err(owner) }
    })
    .await;
}

/// Waits until something has become of the model `p`, which has to be that `two` has it: the same object as `before`.
async fn p_is_handed_over(team: &Team<'_>, before: &BTreeMap<String, String>) {
    eventually(SOON, "p belongs to two, or is deleted", || async {
        let now = team.objects(Kind::ModelAPI).await;
        let two = owner(team, "p").await.as_deref() == Some("two");
        if two || now != *before { Ok(()) } else { Err(now) }
    })
    .await;
    assert_eq!(team.objects(Kind::ModelAPI).await, *before, "handed over in place");
}

#[tokio::test(flavor = "multi_thread")]
async fn g12_what_is_held_stays_held_whatever_shrinks_the_list_and_over_a_restart() {
    let cluster = Cluster::exclusive().await;
    let mut operator = cluster.operator(ARGS).await;
    let names = ["a", "b", "c", "d", "w", "x", "y", "z"];
    let files = names.map(|name| (format!("{name}.yaml"), model(name)));
    let files: Vec<_> = files.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
    let team = Team::new(&cluster, "latch", &files).await;
    team.create_sync(json!({"prune": {"maxDeletions": 3}})).await;
    team.wait_ready("True").await;
    let less = ["w", "x", "y", "z"].map(|name| format!("{name}.yaml"));
    let less: Vec<_> = less.iter().map(|path| (path.as_str(), None)).collect();
    let sync = team.push(&less).await;
    assert_eq!(ready(&sync).reason, "PruneHeld");
    let shown = digest(&held(&team, "main", 4).await);

    // Three could go without an approval, had they been alone from the start.
    annotate(&team, "w", keys::PRUNE, keys::DISABLED).await;
    held(&team, "main", 3).await;
    annotate(&team, "x", keys::RECONCILE, keys::DISABLED).await;
    held(&team, "main", 2).await;
    let api = team.api(Kind::ModelAPI);
    api.delete("y", &DeleteParams::default()).await.expect("delete");
    let sync = held(&team, "main", 1).await;
    assert_eq!((ready(&sync).reason, digest(&sync)), ("PruneHeld".to_owned(), shown.clone()));

    operator.kill9();
    operator.restart();
    operator.ready(SOON).await;
    // Another look, too.
    let sync = team.request().await;
    assert_eq!((ready(&sync).reason, digest(&sync)), ("PruneHeld".to_owned(), shown.clone()));
    // For a moment none is left.
    annotate(&team, "z", keys::PRUNE, keys::DISABLED).await;
    let sync = held(&team, "main", 0).await;
    assert_eq!((ready(&sync).status.as_str(), condition(&sync, "PruneHeld")), ("True", None));
    operator.kill9();
    operator.restart();
    operator.ready(SOON).await;
    annotate(&team, "z", keys::PRUNE, "no").await;
    let again = digest(&held(&team, "main", 1).await);
    assert_ne!(again, shown, "it was not among what was shown any more");
    assert_eq!(team.models().await, ["a", "b", "c", "d", "w", "x", "z"]);

    approve(&team, "main", &again).await;
    let sync = team.wait_ready("True").await;
    assert_eq!(team.models().await, ["a", "b", "c", "d", "w", "x"]);
    // It was not shown with w and x any more: nobody has approved them.
    let pending = sync.status.and_then(|status| status.pending_prune).expect("w and x stay held");
    assert_eq!((pending.count, pending.digest.as_str(), pending.held_before.len()), (0, "", 2));
    annotate(&team, "w", keys::PRUNE, "no").await;
    held(&team, "main", 1).await;
    assert_eq!(team.models().await, ["a", "b", "c", "d", "w", "x"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn g12_an_approval_that_a_commit_has_overtaken_never_counts_again() {
    let cluster = cluster().await;
    shared_operator(cluster).await;
    let files = ["a", "b", "x", "y"].map(|name| (format!("{name}.yaml"), model(name)));
    let files: Vec<_> = files.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
    let team = Team::new(cluster, "overtaken", &files).await;
    team.create_sync(json!({"prune": {"maxDeletions": 0}})).await;
    team.wait_ready("True").await;
    let whole = team.repo.head();
    team.push(&[("x.yaml", None), ("y.yaml", None)]).await;
    let less = team.repo.head();
    let shown = digest(&held(&team, "main", 2).await);

    // Somebody approves it, and somebody else has taken it back.
    team.repo.set_branch("main", &whole);
    approve(&team, "main", &shown).await;
    let sync = team.wait_ready("True").await;
    let status = sync.status.expect("a status");
    assert_eq!((status.last_handled_approval.as_ref(), status.pending_prune), (Some(&shown), None));
    assert_eq!(team.models().await, ["a", "b", "x", "y"]);

    // The branch goes back to what was approved then.
    team.repo.set_branch("main", &less);
    team.request().await;
    let again = digest(&held(&team, "main", 2).await);
    assert_ne!(again, shown);
    team.request().await;
    assert_eq!(team.models().await, ["a", "b", "x", "y"], "nobody has approved that now");
    approve(&team, "main", &again).await;
    team.wait_ready("True").await;
    assert_eq!(team.models().await, ["a", "b"]);
}

const MARKER: &str = "<<<<<<< HEAD\n=======\n>>>>>>> other\n";

#[tokio::test(flavor = "multi_thread")]
async fn g22_an_object_that_may_be_in_a_broken_file_of_another_sync_is_not_deleted() {
    let cluster = cluster().await;
    shared_operator(cluster).await;
    let files = ["a/p", "a/q", "a/r", "a/s", "b/x", "b/y"];
    let team = two(cluster, "marker", &files, json!({})).await;
    let before = team.objects(Kind::ModelAPI).await;
    let broken = format!("{MARKER}{}", model("p"));
    team.repo.change("git mv a/p.yaml b/p.yaml", &[("b/p.yaml", &broken)], &["a/p.yaml"]);
    team.request_of("one").await;
    let sync = held(&team, "one", 1).await;
    let said = ready(&sync);
    assert_eq!((said.status.as_str(), said.reason.as_str()), ("False", "PruneWaiting"));
    assert!(said.message.contains("GitSync two cannot read b/p.yaml"), "{}", said.message);
    assert!(condition(&sync, "Reconciling").is_some(), "it goes on by itself once it can");
    assert_eq!(team.objects(Kind::ModelAPI).await, before);

    // The end of the GitSync waits as well, and says what lets go.
    let file = team.repo.change("mend", &[("b/p.yaml", &model("p"))], &[]);
    team.request_of("two").await;
    wait_for_owner(&team, "p", "two").await;
    let sync = team.wait_ready_of("one", "True").await;
    let status = sync.status.expect("a status");
    assert_eq!(status.pending_prune, None, "{file}");
    assert_eq!(team.objects(Kind::ModelAPI).await, before, "handed over in place");
}

#[tokio::test(flavor = "multi_thread")]
async fn g22_a_sync_that_is_broken_for_ever_holds_nobody_up_for_ever() {
    let cluster = cluster().await;
    shared_operator(cluster).await;
    let files = ["a/p", "a/q", "a/r", "a/s", "b/x", "b/y", "b/z"];
    let team = two(cluster, "broken", &files, json!({"prune": {"maxDeletions": 2}})).await;
    // `two` wanted x until its file broke; `one` has never wanted it, but what it lets go now is p.
    team.repo.change("break x, remove p", &[("b/x.yaml", MARKER)], &["a/p.yaml"]);
    team.request_of("two").await;
    team.request_of("one").await;
    let sync = held(&team, "one", 1).await;
    assert_eq!(ready(&sync).reason, "PruneWaiting");
    let pending = sync.status.as_ref().and_then(|status| status.pending_prune.as_ref());
    assert_eq!(pending.expect("held deletes").unread, ["GitSync two: b/x.yaml"]);
    approve(&team, "one", &digest(&sync)).await;
    eventually(SOON, "p is deleted", || async {
        (!team.models().await.contains(&"p".to_owned())).then_some(())
    })
    .await;
    let sync = team.wait_ready_of("one", "True").await;
    assert_eq!(sync.status.expect("a status").pending_prune, None);
    assert_eq!(team.models().await, ["q", "r", "s", "x", "y", "z"]);

    // At the end of a GitSync the same file is in the way; the objects may be let go of.
    let patch = json!({"spec": {"deletionPolicy": "Delete"}});
    let params = PatchParams::default();
    team.syncs.patch("one", &params, &Patch::Merge(&patch)).await.expect("patch");
    eventually(SOON, "the finalizer", || async {
        team.syncs.get("one").await.expect("one").metadata.finalizers
    })
    .await;
    team.syncs.delete("one", &DeleteParams::default()).await.expect("delete");
    let sync = eventually(SOON, "it says why it waits", || async {
        let sync = team.syncs.get("one").await.expect("one");
        if ready(&sync).message.contains("cannot read") { Ok(sync) } else { Err(sync.status) }
    })
    .await;
    let message = ready(&sync).message;
    assert!(message.contains("GitSync two cannot read b/x.yaml"), "{message}");
    assert!(message.contains(r#"'{"spec":{"deletionPolicy":"Orphan"}}'"#), "{message}");
    let patch = json!({"spec": {"deletionPolicy": "Orphan"}});
    team.syncs.patch("one", &params, &Patch::Merge(&patch)).await.expect("patch");
    eventually(SOON, "it is gone", || async {
        team.syncs.get_opt("one").await.expect("get").is_none().then_some(())
    })
    .await;
    assert_eq!(team.models().await, ["q", "r", "s", "x", "y", "z"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn g22_after_an_approval_the_others_are_asked_anew_and_held_deletes_ask_nobody() {
    let cluster = cluster().await;
    shared_operator(cluster).await;
    let files = ["a/p", "a/q", "a/r", "a/s", "b/x", "b/y"];
    let team = two(cluster, "anew", &files, json!({"prune": {"maxDeletions": 0}})).await;
    let before = team.objects(Kind::ModelAPI).await;
    team.repo.change("remove p", &[], &["a/p.yaml"]);
    team.request_of("one").await;
    team.request_of("two").await;
    let shown = digest(&held(&team, "one", 1).await);

    // Both have looked, and nobody tells them of the next commit. Held deletes make nobody look either, whatever happens.
    let commit = team.repo.change("p moves", &[("b/p.yaml", &model("p"))], &[]);
    let attempted = async |name: &str| {
        let status = team.syncs.get(name).await.expect(name).status.expect("a status");
        status.last_attempted_revision.expect("a revision")
    };
    let (api, drift) = (team.api(Kind::ModelAPI), "https://drift.example.com/v1");
    let patch = json!({"spec": {"external": {"url": drift}}});
    api.patch("q", &PatchParams::default(), &Patch::Merge(&patch)).await.expect("edit");
    eventually(SOON, "a plan has undone it", || async {
        let url = api.get("q").await.expect("q").data["spec"]["external"]["url"].clone();
        if url == drift { Err(url) } else { Ok(()) }
    })
    .await;
    assert!(!attempted("two").await.ends_with(&commit), "nobody has asked it");

    approve(&team, "one", &shown).await;
    p_is_handed_over(&team, &before).await;
    assert!(attempted("two").await.ends_with(&commit));
}

#[tokio::test(flavor = "multi_thread")]
async fn g22_what_another_sync_finds_while_an_approval_is_remembered_is_not_deleted() {
    let cluster = Cluster::exclusive().await;
    let engine = InterceptedEngine::start(&cluster).await;
    let slow = &engine.requests;
    let files = ["a/p", "a/q", "a/r", "a/s", "b/x", "b/y"];
    let team = two(&cluster, "between", &files, json!({"prune": {"maxDeletions": 0}})).await;
    let before = team.objects(Kind::ModelAPI).await;
    team.repo.change("remove p", &[], &["a/p.yaml"]);
    team.request_of("two").await;
    team.request_of("one").await;
    let shown = digest(&held(&team, "one", 1).await);

    slow.hold("PATCH", "/gitsyncs/one/status");
    approve(&team, "one", &shown).await;
    slow.holds(SOON).await;
    let commit = team.repo.change("p moves", &[("b/p.yaml", &model("p"))], &[]);
    team.request_of("two").await;
    let status = team.syncs.get("two").await.expect("two").status.expect("a status");
    assert!(status.last_attempted_revision.expect("a revision").ends_with(&commit));
    slow.release();
    p_is_handed_over(&team, &before).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn g22_nothing_is_deleted_while_a_kind_cannot_be_watched() {
    let cluster = Cluster::exclusive().await;
    let namespace = cluster.namespace("operator").await;
    let kubeconfig = cluster.operator_kubeconfig(&namespace).await;
    cluster.bind_single_tenant(&namespace);
    let (through, gate) = gated(&kubeconfig);
    let some = Intercepted::new(cluster.client_of(&through).await);
    let data = tempfile::tempdir().expect("temporary folder");
    let _running = operate(&some.client(), data.path());
    let names = ["a", "b", "c", "d", "p"];
    let files = names.map(|name| (format!("a/{name}.yaml"), model(name)));
    let files: Vec<_> = files.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
    let team = Team::new(&cluster, "unseen", &files).await;
    let spec = json!({"path": "a", "interval": "1s", "prune": {"maxDeletions": 2}});
    team.create_sync_named("one", spec).await;
    team.wait_ready_of("one", "True").await;
    let before = team.objects(Kind::ModelAPI).await;

    // From now on no GitSync that is made is seen.
    some.refuse("GET", "/gitsyncs?");
    gate.cut();
    gate.mend();
    some.refused(SOON).await;
    team.create_sync_named("two", json!({"path": "b"})).await;
    team.repo.change("p moves", &[("b/p.yaml", &model("p"))], &["a/p.yaml"]);
    let sync = held(&team, "one", 1).await;
    let said = ready(&sync);
    assert_eq!(said.reason, "PruneWaiting");
    assert!(said.message.contains("does not show GitSync since 20"), "{}", said.message);
    assert_eq!(team.objects(Kind::ModelAPI).await, before);

    some.release();
    wait_for_owner(&team, "p", "two").await;
    team.wait_ready_of("one", "True").await;
    assert_eq!(team.objects(Kind::ModelAPI).await, before, "handed over in place");

    // The same of the objects themselves: somebody may protect one, and it is not seen.
    some.refuse("GET", "/modelapis?");
    gate.cut();
    gate.mend();
    some.refused(SOON).await;
    team.repo.change("remove d", &[], &["a/d.yaml"]);
    held(&team, "one", 1).await;
    // Until their watches begin again, other kinds are not shown either.
    eventually(SOON, "it waits for that kind", || async {
        let said = ready(&team.syncs.get("one").await.expect("one"));
        let waits = said.reason == "PruneWaiting";
        let that = said.message.contains("does not show ModelAPI since 20");
        if waits && that { Ok(()) } else { Err(said) }
    })
    .await;
    assert_eq!(team.objects(Kind::ModelAPI).await, before);

    some.release();
    team.wait_ready_of("one", "True").await;
    assert_eq!(team.models().await, ["a", "b", "c", "p"]);
}
