//! Several GitSyncs in one namespace: what moves from one to another is handed over in place.
#![allow(clippy::expect_used, clippy::panic, clippy::disallowed_types, clippy::disallowed_methods)]

use crate::support;

use convoke::api::{GitSync, Kind, Mark, keys};
use kube::api::{Patch, PatchParams};
use serde_json::json;
use support::team::{
    AGENT, ARGS, SOON, Team, condition, model, model_at, places, ready, shared_operator,
};
use support::{Cluster, cluster, eventually};

/// A namespace with the GitSyncs `one` (folder a) and `two` (folder b) of one repository, both Ready.
async fn two(prefix: &str) -> Team<'static> {
    let cluster = cluster().await;
    shared_operator(cluster).await;
    let files: Vec<_> = ["a/p", "a/q", "a/r", "a/s", "b/x", "b/y", "b/z"]
        .iter()
        .map(|path| (format!("{path}.yaml"), model(&path[2..])))
        .collect();
    let files: Vec<_> = files.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
    let team = Team::new(cluster, prefix, &files).await;
    for (name, path) in [("one", "a"), ("two", "b")] {
        team.create_sync_named(name, json!({"path": path})).await;
    }
    for name in ["one", "two"] {
        team.wait_ready_of(name, "True").await;
    }
    team
}

/// Of `one` and `two` the older one, and the younger one.
async fn by_age(team: &Team<'_>) -> (&'static str, &'static str) {
    let mut syncs = Vec::new();
    for name in ["one", "two"] {
        let meta = team.syncs.get(name).await.expect(name).metadata;
        syncs.push((meta.creation_timestamp.map(|t| t.0), meta.uid, name));
    }
    syncs.sort();
    (syncs[0].2, syncs[1].2)
}

fn folder(sync: &str) -> &'static str {
    if sync == "one" { "a" } else { "b" }
}

/// The GitSync that an object is marked with.
async fn owner(team: &Team<'_>, name: &str) -> String {
    let live = team.api(Kind::ModelAPI).get(name).await.expect(name);
    let annotations = live.metadata.annotations.expect("annotations");
    Mark::parse(&annotations[keys::OWNER]).expect("a mark").sync_name
}

/// A team with four models in the folder `a` and one in `b`.
async fn two_folders<'a>(cluster: &'a Cluster, name: &str) -> Team<'a> {
    let files: Vec<_> = ["a/p", "a/q", "a/r", "a/s", "b/x"]
        .iter()
        .map(|path| (format!("{path}.yaml"), model(&path[2..])))
        .collect();
    let files: Vec<_> = files.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
    Team::new(cluster, name, &files).await
}

async fn suspend_two(team: &Team<'_>, on: bool) {
    let patch = json!({"spec": {"suspend": on}});
    let params = PatchParams::default();
    team.syncs.patch("two", &params, &Patch::Merge(&patch)).await.expect("patch");
}

/// The GitSync `one`, once it says that its deletes wait.
async fn waiting_prune(team: &Team<'_>) -> GitSync {
    eventually(SOON, "the delete waits", || async {
        let sync = team.syncs.get("one").await.expect("one");
        if ready(&sync).reason == "PruneWaiting" { Ok(sync) } else { Err(sync.status) }
    })
    .await
}

async fn wait_for_owner(team: &Team<'_>, name: &str, sync: &str) {
    eventually(SOON, &format!("{name} belongs to {sync}"), || async {
        let owner = owner(team, name).await;
        if owner == sync { Ok(()) } else { Err(owner) }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn g22_a_file_that_moves_to_another_sync_is_handed_over_in_place() {
    let team = two("handover").await;
    let before = team.objects(Kind::ModelAPI).await;
    let mark = team.cluster.audit_mark();

    // The one that loses it looks first.
    team.repo.change("move p", &[("b/p.yaml", &model("p"))], &["a/p.yaml"]);
    team.request_of("one").await;
    wait_for_owner(&team, "p", "two").await;
    for name in ["one", "two"] {
        team.wait_ready_of(name, "True").await;
    }

    // The one that gets it looks first.
    team.repo.change("move q", &[("b/q.yaml", &model("q"))], &["a/q.yaml"]);
    team.request_of("two").await;
    wait_for_owner(&team, "q", "two").await;
    for name in ["one", "two"] {
        let sync = team.wait_ready_of(name, "True").await;
        assert_eq!(sync.status.expect("status").problems, []);
    }

    assert_eq!(team.objects(Kind::ModelAPI).await, before, "the same objects, with the same uids");
    assert_eq!(team.writes(mark), ["patch modelapis/p", "patch modelapis/q"]);

    // What nobody wants any more still goes.
    team.repo.change("remove r", &[], &["a/r.yaml"]);
    team.request_of("one").await;
    eventually(SOON, "r is deleted", || async {
        (!team.models().await.contains(&"r".to_owned())).then_some(())
    })
    .await;
    team.wait_ready_of("one", "True").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn g22_nothing_is_handed_over_or_deleted_on_an_unproven_absence() {
    let team = two("unproven").await;
    let before = team.objects(Kind::ModelAPI).await;
    // Moved, and the folder that it left is broken: its absence is not proven there.
    let broken = "kind: [unclosed";
    team.repo.change(
        "move p, break q",
        &[("b/p.yaml", &model("p")), ("a/q.yaml", broken)],
        &["a/p.yaml"],
    );
    team.request_of("one").await;
    team.request_of("two").await;
    let sync = team.wait_ready_of("two", "False").await;
    assert_eq!(places(&sync.status.expect("status").problems), ["b/p.yaml:1:1 CVK0901"]);
    assert_eq!(owner(&team, "p").await, "one");
    assert_eq!(team.objects(Kind::ModelAPI).await, before);

    // Mended: handed over.
    team.repo.change("mend q", &[("a/q.yaml", &model("q"))], &[]);
    team.request_of("one").await;
    wait_for_owner(&team, "p", "two").await;
    team.wait_ready_of("two", "True").await;
    assert_eq!(team.objects(Kind::ModelAPI).await, before);
}

#[tokio::test(flavor = "multi_thread")]
async fn g22_deletes_wait_for_a_sync_that_cannot_be_read() {
    let team = two("waits").await;
    let set = |branch: &'static str| async move { json!({"spec": {"ref": {"branch": branch}}}) };
    let params = PatchParams::default();
    let lost = set("lost").await;
    team.syncs.patch("two", &params, &Patch::Merge(&lost)).await.expect("patch");
    let sync = team.wait_ready_of("two", "False").await;
    assert_eq!(ready(&sync).reason, "RefNotFound");

    team.repo.change("remove p", &[], &["a/p.yaml"]);
    team.request_of("one").await;
    let sync = waiting_prune(&team).await;
    assert!(ready(&sync).message.contains("GitSync two"), "{:?}", ready(&sync));
    assert!(condition(&sync, "Reconciling").is_some());
    assert!(team.models().await.contains(&"p".to_owned()));

    let back = set("main").await;
    team.syncs.patch("two", &params, &Patch::Merge(&back)).await.expect("patch");
    team.wait_ready_of("one", "True").await;
    assert!(!team.models().await.contains(&"p".to_owned()));
}

#[tokio::test(flavor = "multi_thread")]
async fn g22_two_that_want_one_object_both_say_so_and_the_older_has_it() {
    let team = two("rivals").await;
    let (older, younger) = by_age(&team).await;
    let before = team.objects(Kind::ModelAPI).await;

    // The older one begins to want what the younger one has: it gets it in place.
    let wanted = if younger == "one" { "p" } else { "x" };
    assert_eq!(owner(&team, wanted).await, younger);
    let copy = format!("{}/{wanted}.yaml", folder(older));
    team.repo.change("want it twice", &[(&copy, &model(wanted))], &[]);
    team.request_of(older).await;
    team.request_of(younger).await;
    wait_for_owner(&team, wanted, older).await;
    let problems = async |sync: &str| {
        let status = team.syncs.get(sync).await.expect(sync).status.unwrap_or_default();
        places(&status.problems)
    };
    let (warned, refused) =
        (format!("{copy}:1:1 CVK0906"), format!("{}/{wanted}.yaml:1:1 CVK0901", folder(younger)));
    eventually(SOON, "both say so", || async {
        let told = (problems(older).await, problems(younger).await);
        if told == (vec![warned.clone()], vec![refused.clone()]) { Ok(()) } else { Err(told) }
    })
    .await;
    team.wait_ready_of(older, "True").await;
    team.wait_ready_of(younger, "False").await;

    // The older one wants it no more: it goes back in place, and nobody complains.
    team.repo.change("want it once", &[], &[&copy]);
    team.request_of(older).await;
    team.request_of(younger).await;
    wait_for_owner(&team, wanted, younger).await;
    for name in ["one", "two"] {
        team.wait_ready_of(name, "True").await;
        assert!(problems(name).await.is_empty());
    }
    assert_eq!(team.objects(Kind::ModelAPI).await, before, "the same objects all the time");
}

#[tokio::test(flavor = "multi_thread")]
async fn g10_atomic_applies_nothing_while_an_older_sync_has_something_of_it() {
    let team = two("rivals-atomic").await;
    let (older, younger) = by_age(&team).await;
    let atomic = json!({"spec": {"failurePolicy": "Atomic"}});
    let params = PatchParams::default();
    team.syncs.patch(younger, &params, &Patch::Merge(&atomic)).await.expect("patch");
    let (wanted, other) = if younger == "one" { ("p", "q") } else { ("x", "y") };
    let (copy, changed) =
        (format!("{}/{wanted}.yaml", folder(older)), format!("{}/{other}.yaml", folder(younger)));
    // Nobody takes it while it is paused: the live object stays the younger one's.
    let pause = |value: &str| json!({"metadata": {"annotations": {keys::RECONCILE: value}}});
    let models = team.api(Kind::ModelAPI);
    models.patch(wanted, &params, &Patch::Merge(&pause(keys::DISABLED))).await.expect("pause");
    team.repo.change("want it twice", &[(&copy, &model(wanted))], &[]);
    team.request_of(older).await;
    let version = async || {
        let live = models.get(other).await.expect(other);
        (live.metadata.generation, live.data["spec"]["external"]["url"].clone())
    };
    let before = version().await;

    let url = "https://changed.example";
    team.repo.change("change another", &[(&changed, &model_at(other, url))], &[]);
    team.request_of(younger).await;
    // The older one is asked once more before.
    let refused = format!("{}/{wanted}.yaml:1:1 CVK0901", folder(younger));
    eventually(SOON, "it is a conflict", || async {
        let status = team.syncs.get(younger).await.expect(younger).status.unwrap_or_default();
        let told = places(&status.problems);
        if told == [refused.clone()] { Ok(()) } else { Err(told) }
    })
    .await;
    assert_eq!(version().await, before, "all of the commit, or nothing");
    assert_eq!(owner(&team, wanted).await, younger);
    models.patch(wanted, &params, &Patch::Merge(&pause("no"))).await.expect("go on");
    wait_for_owner(&team, wanted, older).await;
    assert_eq!(version().await, before, "still not all of it");

    // The older one wants it no more.
    team.repo.change("want it once", &[], &[&copy]);
    team.request_of(older).await;
    team.request_of(younger).await;
    team.wait_ready_of(younger, "True").await;
    assert_eq!(version().await.1, json!(url));
}

#[tokio::test(flavor = "multi_thread")]
async fn g22_after_a_start_deletes_wait_for_a_suspended_sync_that_nobody_has_read() {
    let cluster = Cluster::exclusive().await;
    let mut operator = cluster.operator(ARGS).await;
    let team = two_folders(&cluster, "asleep").await;
    for (name, path) in [("one", "a"), ("two", "b")] {
        team.create_sync_named(name, json!({"path": path})).await;
        team.wait_ready_of(name, "True").await;
    }
    suspend_two(&team, true).await;
    team.repo.change("move p", &[("b/p.yaml", &model("p"))], &["a/p.yaml"]);
    operator.kill9();
    operator.restart();
    waiting_prune(&team).await;
    assert_eq!(team.models().await, ["p", "q", "r", "s", "x"]);
    let before = team.objects(Kind::ModelAPI).await;
    suspend_two(&team, false).await;
    wait_for_owner(&team, "p", "two").await;
    team.wait_ready_of("one", "True").await;
    assert_eq!(team.objects(Kind::ModelAPI).await, before, "handed over in place");
}

#[tokio::test(flavor = "multi_thread")]
async fn g22_what_moves_to_a_suspended_sync_waits_until_it_is_resumed() {
    let team = two("resumed").await;
    let before = team.objects(Kind::ModelAPI).await;
    suspend_two(&team, true).await;
    team.repo.change("move p", &[("b/p.yaml", &model("p"))], &["a/p.yaml"]);
    team.request_of("one").await;
    let sync = waiting_prune(&team).await;
    assert!(ready(&sync).message.contains("GitSync two is suspended"), "{:?}", ready(&sync));
    let pending = sync.status.and_then(|status| status.pending_prune).expect("held deletes");
    assert_eq!(
        (pending.unread, pending.requires_approval),
        (vec!["GitSync two".to_owned()], false)
    );
    assert_eq!(team.objects(Kind::ModelAPI).await, before);
    suspend_two(&team, false).await;
    wait_for_owner(&team, "p", "two").await;
    for name in ["one", "two"] {
        team.wait_ready_of(name, "True").await;
    }
    assert_eq!(team.objects(Kind::ModelAPI).await, before, "handed over in place");
}

#[tokio::test(flavor = "multi_thread")]
async fn g12_a_held_prune_stays_shown_after_a_start_while_another_sync_is_asked() {
    let cluster = Cluster::exclusive().await;
    let mut operator = cluster.operator(ARGS).await;
    let team = two_folders(&cluster, "shown").await;
    let (gate, far) = team.gate();
    team.create_sync_named("one", json!({"path": "a"})).await;
    team.create_sync_named("two", json!({"path": "b", "url": far, "timeout": "10m"})).await;
    for name in ["one", "two"] {
        team.wait_ready_of(name, "True").await;
    }
    let status = async || team.syncs.get("one").await.expect("one").status.expect("a status");
    let history = async || {
        let history = status().await.history.into_iter();
        history.map(|e| (e.outcome, e.created, e.updated, e.pruned)).collect::<Vec<_>>()
    };
    let entry =
        |outcome: &str, created, updated, pruned| (outcome.to_owned(), created, updated, pruned);
    let first = entry("Applied", 4, 0, 0);

    // While the other one is asked, what waits for its answer is not told yet; the rest is done.
    gate.hold();
    let elsewhere = model_at("q", "https://elsewhere.example.com/v1");
    team.repo.change("two less", &[("a/q.yaml", &elsewhere)], &["a/p.yaml", "a/r.yaml"]);
    team.request_of("one").await;
    eventually(SOON, "q is changed", || async {
        let is = history().await;
        let should = [entry("Progressing", 0, 1, 0), first.clone()];
        if is == should { Ok(()) } else { Err(is) }
    })
    .await;
    // That they are too many is remembered, and nothing is shown that could be approved.
    let pending = status().await.pending_prune.expect("what is too much stays held");
    assert_eq!((pending.count, pending.digest.as_str(), pending.objects.len()), (0, "", 0));
    assert!(pending.requires_approval);
    gate.release();
    let wait = async |should: &[(String, i64, i64, i64)]| {
        eventually(SOON, "the history says so", || async {
            let (is, sync) = (history().await, team.syncs.get("one").await.expect("one"));
            let held = ready(&sync).reason == "PruneHeld";
            if held && is == should { Ok(sync) } else { Err((is, sync.status)) }
        })
        .await
    };
    let told = wait(&[entry("Held", 0, 1, 0), first.clone()]).await.status.expect("a status");
    assert_eq!(told.pending_prune.as_ref().map(|pending| pending.count), Some(2));

    // Another operator, which can ask nobody: it says the same, and writes a status when it has done something.
    gate.hold();
    operator.kill9();
    let mark = team.cluster.audit_mark();
    operator.restart();
    operator.ready(SOON).await;
    let patch = json!({"spec": {"external": {"url": "https://drift.example.com"}}});
    let api = team.api(Kind::ModelAPI);
    api.patch("q", &PatchParams::default(), &Patch::Merge(&patch)).await.expect("edit");
    let drift = entry("Held", 0, 1, 0);
    let sync = wait(&[drift.clone(), entry("Held", 0, 1, 0), first.clone()]).await;
    let again = sync.status.clone().expect("a status");
    assert_eq!((&again.pending_prune, &again.conditions), (&told.pending_prune, &told.conditions));
    let writes = team.cluster.writes_by(AGENT, mark).into_iter();
    let statuses = writes.filter(|r| r.resource == "gitsyncs" && r.name == "one");
    assert_eq!(statuses.count(), 1, "of what was undone, and nothing else");

    // Once it has answered nothing is different, and an approval does what it says.
    gate.release();
    let digest = again.pending_prune.expect("held").digest;
    let patch = json!({"metadata": {"annotations": {keys::APPROVE_PRUNE: digest}}});
    team.syncs.patch("one", &PatchParams::default(), &Patch::Merge(&patch)).await.expect("approve");
    let sync = team.wait_ready_of("one", "True").await;
    assert_eq!(team.models().await, ["q", "s", "x"]);
    assert_eq!(sync.status.expect("a status").pending_prune, None);
    let is = history().await;
    assert_eq!(is[..3], [entry("Applied", 0, 0, 2), drift, entry("Held", 0, 1, 0)]);
}
