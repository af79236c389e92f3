//! The operator is killed at many moments; it must end where an undisturbed one ends, without a wrong delete.
//! A control plane of its own: nobody else's operator works here.
#![allow(clippy::expect_used, clippy::panic, clippy::disallowed_types, clippy::disallowed_methods)]

use crate::support;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use convoke::api::{Kind, keys};
use serde_json::json;
use support::team::{AGENT, ARGS, SOON, Team, model, model_at, ready};
use support::{AuditMark, Cluster, eventually};

/// How long it may take until all is at rest after many kills.
const END: Duration = Duration::from_secs(150);

/// A small generator of numbers: the same moments in every run.
struct Moments(u64);

impl Moments {
    fn next(&mut self, below: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % below
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn c1_killed_at_many_moments_it_converges_without_a_wrong_delete() {
    let cluster = Cluster::exclusive().await;
    let mut operator = cluster.operator(ARGS).await;
    let mut wanted: BTreeMap<String, String> =
        (0..12).map(|n| (format!("m{n}"), model(&format!("m{n}")))).collect();
    let files: Vec<_> =
        wanted.iter().map(|(name, text)| (format!("{name}.yaml"), text.clone())).collect();
    let files: Vec<_> = files.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
    let team = Team::new(&cluster, "crash", &files).await;
    team.create_sync(json!({"interval": "1s", "prune": {"maxDeletions": "50%"}})).await;
    team.wait_ready("True").await;
    let first = team.objects(Kind::ModelAPI).await;

    let mut moments = Moments(7);
    let mut removed = BTreeSet::new();
    for round in 0..12_u32 {
        // One new, one changed, and every third round one less.
        let new = format!("new{round}");
        wanted.insert(new.clone(), model(&new));
        let changed = format!("m{}", round % 6);
        wanted.insert(
            changed.clone(),
            model_at(&changed, &format!("https://round{round}.example.com/v1")),
        );
        let mut write = [
            (format!("{new}.yaml"), model(&new)),
            (format!("{changed}.yaml"), wanted[&changed].clone()),
        ];
        let mut delete = Vec::new();
        if round % 3 == 2 {
            let gone = format!("m{}", 6 + round / 3);
            wanted.remove(&gone);
            delete.push(format!("{gone}.yaml"));
            removed.insert(gone);
        }
        write.sort();
        let write: Vec<_> = write.iter().map(|(p, t)| (p.as_str(), t.as_str())).collect();
        let delete: Vec<_> = delete.iter().map(String::as_str).collect();
        team.repo.change(&format!("round {round}"), &write, &delete);
        team.annotate(&[(keys::REQUESTED_AT, &format!("round-{round}"))]).await;
        tokio::time::sleep(Duration::from_millis(moments.next(250))).await;
        operator.kill9();
        if moments.next(3) == 0 {
            // Killed again while it starts.
            operator.restart();
            tokio::time::sleep(Duration::from_millis(moments.next(400))).await;
        }
        operator.restart();
    }

    let revision = format!("main@sha1:{}", team.repo.head());
    eventually(END, "the newest commit is applied", || async {
        let status = team.status().await;
        if status.last_applied_revision.as_deref() == Some(&revision) {
            Ok(())
        } else {
            Err(status)
        }
    })
    .await;
    let last = team.objects(Kind::ModelAPI).await;
    assert_eq!(last.keys().collect::<Vec<_>>(), wanted.keys().collect::<Vec<_>>());
    for (name, uid) in &first {
        if wanted.contains_key(name) {
            assert_eq!(last.get(name), Some(uid), "{name} was never gone");
        }
    }
    let deletes: Vec<_> = cluster
        .writes_by(AGENT, AuditMark::START)
        .into_iter()
        .filter(|r| r.verb == "delete" && r.resource == "modelapis")
        .collect();
    let asked: BTreeSet<_> = deletes.iter().map(|r| r.name.clone()).collect();
    let mut done: Vec<_> = deletes.iter().filter(|r| r.code < 300).map(|r| &r.name).collect();
    done.sort();
    assert!(done.is_sorted_by(|a, b| a < b), "each was deleted once: {deletes:#?}");
    // A kill can cut off the answer of a delete that the API server carries out. It is then on the record as failed.
    assert_eq!(asked, removed, "exactly what left the repository was deleted: {deletes:#?}");

    // The statuses of what was applied last come after it.
    eventually(END, "every object is told to be ready", || async {
        let objects = team.status().await.objects;
        let settled = objects.as_ref().is_some_and(|all| all.ready == all.total);
        if settled { Ok(()) } else { Err(objects) }
    })
    .await;
    // A restart of a settled system writes nothing but what a first look must say, and here that is nothing.
    let mark = cluster.audit_mark();
    operator.restart();
    operator.ready(SOON).await;
    tokio::time::sleep(Duration::from_secs(3)).await;
    let writes = cluster.writes_by(AGENT, mark);
    assert_eq!(
        writes.iter().filter(|r| r.resource == "modelapis").collect::<Vec<_>>(),
        Vec::<&_>::new()
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn c1_g12_an_approved_prune_is_finished_after_a_kill_and_nothing_else_goes() {
    let cluster = Cluster::exclusive().await;
    let mut operator = cluster.operator(ARGS).await;
    let names: Vec<_> = (0..30).map(|n| format!("m{n:02}")).collect();
    let files: Vec<_> = names.iter().map(|name| (format!("{name}.yaml"), model(name))).collect();
    let files: Vec<_> = files.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
    let team = Team::new(&cluster, "approved", &files).await;
    team.sync_with(json!({})).await;
    team.wait_ready("True").await;
    let delete: Vec<_> = names[..20].iter().map(|name| format!("{name}.yaml")).collect();
    team.repo.change("less", &[], &delete.iter().map(String::as_str).collect::<Vec<_>>());
    let sync = team.request().await;
    assert_eq!(ready(&sync).reason, "PruneHeld");
    let digest = sync.status.expect("status").pending_prune.expect("pending").digest;
    let mark = cluster.audit_mark();
    team.annotate(&[(keys::APPROVE_PRUNE, &digest)]).await;
    // Killed as soon as the first delete is on the record.
    eventually(SOON, "the first delete", || async {
        cluster.writes_by(AGENT, mark).iter().any(|r| r.verb == "delete").then_some(())
    })
    .await;
    operator.kill9();
    let left = team.models().await.len();
    operator.restart();
    let sync = team.wait_ready("True").await;
    assert_eq!(team.models().await, names[20..]);
    assert_eq!(sync.status.expect("status").approved_prune, None);
    println!("{left} objects were left when it was killed");
}

#[tokio::test(flavor = "multi_thread")]
async fn b1_after_a_start_a_build_that_is_no_longer_in_git_does_not_wait_for_a_commit() {
    let cluster = Cluster::exclusive().await;
    let mut operator = cluster.operator(ARGS).await;
    // Without a registry it is never built, and has no key.
    let build = "apiVersion: convoke.dev/v1alpha1\nkind: AgentBuild\nmetadata:\n  name: b\nspec:\n  source:\n    gitSync: {}\n    subfolder: image\n  output:\n    image: ${NS}/b\n";
    let files = [("a.yaml", &*model("a")), ("b.yaml", build), ("image/Dockerfile", "FROM scratch")];
    let team = Team::new(&cluster, "unbuilt", &files).await;
    team.sync_with(
        json!({"prune": {"maxDeletions": 0}, "variables": {"inline": {"NS": team.namespace}}}),
    )
    .await;
    let says = async |reason: &str, message: &str| {
        eventually(SOON, &format!("the build says {reason}"), || async {
            let status =
                team.api(Kind::AgentBuild).get("b").await.expect("b").data["status"].clone();
            let conditions = status["conditions"].as_array().into_iter().flatten();
            let ready = conditions.clone().find(|condition| condition["type"] == "Ready");
            let said = ready.is_some_and(|ready| ready["reason"] == reason);
            let told = status["message"].as_str().is_some_and(|text| text.contains(message));
            if said && told { Ok(()) } else { Err(status) }
        })
        .await;
    };
    says("RegistryMissing", "spec.output.registry").await;
    let sync = team.push(&[("b.yaml", None)]).await;
    assert_eq!(ready(&sync).reason, "PruneHeld");
    operator.restart();
    says("NotInGit", "not in the newest commit of GitSync main").await;

    // Back in Git it is what it was.
    team.push(&[("b.yaml", Some(build))]).await;
    says("RegistryMissing", "spec.output.registry").await;
}
