//! The engine against a server that refuses, people who interfere, and remotes that hang.
#![allow(clippy::expect_used, clippy::panic, clippy::disallowed_types, clippy::disallowed_methods)]

use crate::support;

use convoke::api::{Kind, keys};
use kube::ResourceExt;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use serde_json::{Value, json};
use support::team::{
    AGENT, SOON, Team, condition, model, model_at, places, ready, shared_operator,
};
use support::{cluster, eventually};

/// A team with a running operator and a finished first sync of these models.
async fn team(prefix: &str, models: &[&str], extra: Value) -> Team<'static> {
    let cluster = cluster().await;
    shared_operator(cluster).await;
    let files: Vec<_> = models.iter().map(|name| (format!("{name}.yaml"), model(name))).collect();
    let files: Vec<_> = files.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
    let team = Team::new(cluster, prefix, &files).await;
    team.create_sync(extra).await;
    team.wait_ready("True").await;
    team
}

/// A policy of the cluster that refuses writes to ModelAPIs of this team by a CEL rule.
struct Policy<'a> {
    team: &'a Team<'a>,
}

impl<'a> Policy<'a> {
    fn deny(team: &'a Team<'a>, operation: &str, rule: &str) -> Self {
        let name = &team.namespace;
        team.cluster.apply(&json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy",
            "metadata": {"name": name},
            "spec": {
                "failurePolicy": "Fail",
                "matchConstraints": {"resourceRules": [{
                    "apiGroups": ["convoke.dev"], "apiVersions": ["*"], "operations": [operation],
                    "resources": ["modelapis"],
                }]},
                "validations": [{"expression": rule, "message": "the house says no"}],
            },
        }));
        team.cluster.apply(&json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding",
            "metadata": {"name": name},
            "spec": {
                "policyName": name, "validationActions": ["Deny"],
                "matchResources": {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": name}}},
            },
        }));
        Self { team }
    }
}

impl Drop for Policy<'_> {
    fn drop(&mut self) {
        let name = &self.team.namespace;
        for kind in ["validatingadmissionpolicybinding", "validatingadmissionpolicy"] {
            self.team.cluster.kubectl(&["delete", kind, name]);
        }
    }
}

/// Policies are compiled a moment after they are made: waits until a dry run by the harness is refused.
async fn in_force(team: &Team<'_>, attempt: impl AsyncFn() -> bool) {
    eventually(SOON, &format!("the policy of {} is in force", team.namespace), || async {
        attempt().await.then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn g18_what_a_policy_refuses_is_a_problem_with_its_place_and_the_rest_is_applied() {
    let team = team("refused", &["a", "b", "c"], json!({})).await;
    let policy = Policy::deny(&team, "UPDATE", "!object.spec.external.url.contains('forbidden')");
    let api = team.api(Kind::ModelAPI);
    in_force(&team, async || {
        let patch = json!({"spec": {"external": {"url": "https://forbidden.example.com"}}});
        api.patch("a", &PatchParams::default().dry_run(), &Patch::Merge(&patch)).await.is_err()
    })
    .await;

    let (bad, good) = ("https://forbidden.example.com/v1", "https://good.example.com/v1");
    let sync = team
        .push(&[
            ("a.yaml", Some(&model_at("a", bad))),
            ("b.yaml", Some(&model_at("b", good))),
            ("c.yaml", None),
        ])
        .await;
    let status = sync.status.clone().expect("status");
    assert_eq!(places(&status.problems), ["a.yaml:1:1 CVK0902"]);
    assert!(status.problems[0].message.contains("the house says no"), "{:?}", status.problems);
    assert_eq!(ready(&sync).reason, "ProblemsFound");
    assert_eq!(status.objects.expect("objects").failed, 1);
    assert_eq!(api.get("b").await.expect("b").data["spec"]["external"]["url"], good);
    // Not every write succeeded, so nothing was deleted.
    assert_eq!(team.models().await, ["a", "b", "c"]);

    // It is not sent again and again; asking for a sync tries it once more.
    let mark = team.cluster.audit_mark();
    team.push(&[("b.yaml", Some(&model("b")))]).await;
    let tries = |mark| {
        let writes = team.cluster.writes_by(AGENT, mark);
        let ours = writes.iter().filter(|r| r.namespace == team.namespace && r.name == "a");
        // What is asked outside of the cluster is told when there is an answer.
        let ours = ours.filter(|r| r.subresource != "status");
        // One that met another write, such as a status, is made again, and says nothing of the policy.
        ours.filter(|r| r.code != 409).count()
    };
    assert_eq!(tries(mark), 1);

    drop(policy);
    eventually(SOON, "it heals when it is asked for", || async {
        team.request().await;
        let sync = team.get().await;
        if ready(&sync).status == "True" { Ok(()) } else { Err(sync.status) }
    })
    .await;
    assert_eq!(api.get("a").await.expect("a").data["spec"]["external"]["url"], bad);
    assert_eq!(team.models().await, ["a", "b"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn g12_a_delete_that_is_refused_is_told_and_tried_again() {
    let team = team("undeleted", &["a", "b", "c", "d"], json!({})).await;
    let policy = Policy::deny(&team, "DELETE", "oldObject.metadata.name != 'd'");
    let api = team.api(Kind::ModelAPI);
    in_force(&team, async || api.delete("d", &DeleteParams::default().dry_run()).await.is_err())
        .await;
    let sync = team.push(&[("d.yaml", None)]).await;
    let status = sync.status.clone().expect("status");
    assert_eq!(status.problems[0].code, "CVK0904", "{:?}", status.problems);
    assert!(status.problems[0].message.contains("the house says no"), "{:?}", status.problems);
    assert_eq!(ready(&sync).status, "False");
    assert!(condition(&sync, "Reconciling").is_some());
    drop(policy);
    team.wait_ready("True").await;
    assert_eq!(team.models().await, ["a", "b", "c"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn g14_a_field_that_was_added_by_hand_is_taken_away_and_a_scale_is_not() {
    let cluster = cluster().await;
    shared_operator(cluster).await;
    let agent = "apiVersion: convoke.dev/v1alpha1\nkind: Agent\nmetadata:\n  name: helper\nspec:\n  modelAPI: a\n  model: m\n";
    let team = Team::new(cluster, "added", &[("a.yaml", &model("a")), ("agent.yaml", agent)]).await;
    team.create_sync(json!({})).await;
    team.wait_ready("True").await;
    let api = team.api(Kind::Agent);
    let scale = json!({"spec": {"replicas": 3}});
    api.patch_scale("helper", &PatchParams::default(), &Patch::Merge(&scale)).await.expect("scale");
    // Git sets neither field, so an apply alone would leave both.
    let patch = json!({"spec": {"image": "evil.example.com/image:1", "description": "mine"}});
    api.patch("helper", &PatchParams::default(), &Patch::Merge(&patch)).await.expect("patch");
    let spec = eventually(SOON, "the fields are gone", || async {
        let spec = api.get("helper").await.expect("helper").data["spec"].clone();
        if spec.get("image").is_none() && spec.get("description").is_none() {
            Ok(spec)
        } else {
            Err(spec)
        }
    })
    .await;
    assert_eq!(spec["replicas"], 3, "kubectl scale stands where Git says nothing");
    team.wait_ready("True").await;
    // And that is the end of it.
    let mark = team.cluster.audit_mark();
    team.request().await;
    assert_eq!(team.writes(mark), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn g12_switching_pruning_off_stops_a_prune_that_is_under_way() {
    let names: Vec<_> = (0..400).map(|n| format!("m{n:03}")).collect();
    let models: Vec<_> = names.iter().map(String::as_str).collect();
    let team = team("stop", &models, json!({"prune": {"maxDeletions": "100%"}})).await;
    let mark = team.cluster.audit_mark();
    let delete: Vec<_> = names[1..].iter().map(|name| format!("{name}.yaml")).collect();
    team.repo.change("less", &[], &delete.iter().map(String::as_str).collect::<Vec<_>>());
    team.annotate(&[(keys::REQUESTED_AT, "less")]).await;
    // Those that met a change are on the record as conflicts, and are made again.
    let deletes = || {
        team.cluster
            .writes_by(AGENT, mark)
            .into_iter()
            .filter(|r| r.verb == "delete" && r.namespace == team.namespace && r.code < 300)
            .count()
    };
    eventually(SOON, "the first delete", || async { (deletes() > 0).then_some(()) }).await;
    let off = json!({"spec": {"prune": {"enabled": false}}});
    team.syncs.patch("main", &PatchParams::default(), &Patch::Merge(&off)).await.expect("off");
    // Ready stays true all the time; the new spec is acted on when its generation is told.
    eventually(SOON, "the new spec is acted on", || async {
        let sync = team.get().await;
        let seen = sync.status.as_ref().and_then(|status| status.observed_generation);
        if seen == sync.metadata.generation { Ok(()) } else { Err(seen) }
    })
    .await;
    team.wait_ready("True").await;
    let left = team.models().await.len();
    println!("{left} of 400 are left");
    assert!(left > 1, "the rest stayed");
    assert_eq!(deletes(), 400 - left);
    team.request().await;
    assert_eq!(team.models().await.len(), left);
}

#[tokio::test(flavor = "multi_thread")]
async fn g13_a_file_that_moved_before_it_broke_keeps_its_objects() {
    let team = team("movedbroken", &["a", "b", "c"], json!({})).await;
    team.push(&[("a.yaml", None), ("deep/a.yaml", Some(&model("a")))]).await;
    team.wait_ready("True").await;
    let sync = team.push(&[("deep/a.yaml", Some("kind: [unclosed"))]).await;
    let status = sync.status.expect("status");
    assert_eq!(status.pending_prune, None, "nothing to approve: it was not deleted");
    assert_eq!(status.quarantined[0].object, "ModelAPI/a");
    assert_eq!(status.quarantined[0].path.as_deref(), Some("deep/a.yaml"));
}

#[tokio::test(flavor = "multi_thread")]
async fn g14_a_remote_that_hangs_does_not_delay_the_undoing_of_drift() {
    let cluster = cluster().await;
    shared_operator(cluster).await;
    let team = Team::new(cluster, "hangs", &[("a.yaml", &model("a"))]).await;
    let (gate, url) = team.gate();
    team.create_sync(json!({"url": url, "timeout": "10m"})).await;
    team.wait_ready("True").await;

    gate.shut();
    team.annotate(&[(keys::REQUESTED_AT, "into the void")]).await;
    let api = team.api(Kind::ModelAPI);
    let patch = json!({"spec": {"external": {"url": "https://drift.example.com"}}});
    api.patch("a", &PatchParams::default(), &Patch::Merge(&patch)).await.expect("edit");
    eventually(SOON, "drift is undone", || async {
        let url = api.get("a").await.expect("a").data["spec"]["external"]["url"].clone();
        if url == "https://models.example.com/v1" { Ok(()) } else { Err(url) }
    })
    .await;
    assert_eq!(team.status().await.last_handled_reconcile_at, None, "the look is still under way");
}

#[tokio::test(flavor = "multi_thread")]
async fn g10_atomic_begins_nothing_that_the_api_server_would_refuse_in_part() {
    let team = team("atomicdry", &["a", "b", "c"], json!({"failurePolicy": "Atomic"})).await;
    let _policy = Policy::deny(&team, "UPDATE", "!object.spec.external.url.contains('forbidden')");
    let api = team.api(Kind::ModelAPI);
    let bad = "https://forbidden.example.com/v1";
    in_force(&team, async || {
        let patch = json!({"spec": {"external": {"url": bad}}});
        let params = PatchParams { dry_run: true, ..PatchParams::default() };
        api.patch("c", &params, &Patch::Merge(&patch)).await.is_err()
    })
    .await;
    let addresses = async || {
        let list = api.list(&kube::api::ListParams::default()).await.expect("list");
        let address = |o: &kube::api::DynamicObject| o.data["spec"]["external"]["url"].clone();
        list.items.iter().map(|o| (o.name_any(), address(o))).collect::<Vec<_>>()
    };
    let before = addresses().await;
    let (good, newer) = ("https://models.example.com/v1", "https://newer.example.com/v1");
    let sync = team
        .push(&[
            ("a.yaml", Some(&model_at("a", newer))),
            ("b.yaml", Some(&model_at("b", bad))),
            ("d.yaml", Some(&model("d"))),
        ])
        .await;
    assert_eq!(ready(&sync).status, "False");
    let problems = sync.status.expect("status").problems;
    assert_eq!(places(&problems), ["b.yaml:1:1 CVK0902"]);
    assert!(problems[0].message.contains("the house says no"), "{problems:?}");
    // Not at the next plan either, which undoes drift and leaves out what was refused.
    let drift = json!({"spec": {"external": {"url": "https://drift.example.com/v1"}}});
    api.patch("c", &PatchParams::default(), &Patch::Merge(&drift)).await.expect("edit");
    eventually(SOON, "drift is undone", || async {
        let now = addresses().await;
        if now == before { Ok(()) } else { Err(now) }
    })
    .await;

    let sync = team.push(&[("b.yaml", Some(&model_at("b", good)))]).await;
    assert_eq!(ready(&sync).status, "True");
    let after = addresses().await;
    assert_eq!((after.len(), &after[0].1, &after[1].1), (4, &json!(newer), &json!(good)));
}

#[tokio::test(flavor = "multi_thread")]
async fn g10_a_reference_to_what_the_same_commit_prunes_is_told_after_the_prune() {
    let team = team("dangling", &["a", "b", "c", "d"], json!({})).await;
    let agent = "apiVersion: convoke.dev/v1alpha1\nkind: Agent\nmetadata:\n  name: x\nspec:\n  modelAPI: d\n";
    team.push(&[("x.yaml", Some(agent))]).await;
    team.push(&[("d.yaml", None)]).await;
    eventually(SOON, "the missing model is told", || async {
        let told = places(&team.status().await.problems);
        if told == ["x.yaml:6:13 CVK0301"] { Ok(()) } else { Err(told) }
    })
    .await;
    assert_eq!(team.models().await, ["a", "b", "c"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn g12_after_a_change_of_the_spec_nothing_is_deleted_before_the_remote_was_asked() {
    let models = ["a", "b", "c", "d", "e", "f", "g"];
    let off = json!({"prune": {"enabled": false}, "interval": "1h"});
    let team = team("edited", &models, off).await;
    let less = team.push(&[("a.yaml", None), ("b.yaml", None)]).await;
    assert_eq!(ready(&less).status, "True");
    let before = uids(&team).await;
    assert_eq!(before.len(), 7, "pruning is off");

    // Nobody tells the operator that they are wanted again.
    let commit = team.repo.change("back", &[("a.yaml", &model("a")), ("b.yaml", &model("b"))], &[]);
    let on = json!({"spec": {"prune": {"enabled": true}}});
    team.syncs.patch("main", &PatchParams::default(), &Patch::Merge(&on)).await.expect("on");
    eventually(SOON, "the newest commit is applied", || async {
        let status = team.get().await.status.expect("status");
        let applied = status.last_applied_revision.clone().unwrap_or_default();
        if applied.ends_with(&commit) { Ok(()) } else { Err(status) }
    })
    .await;
    assert_eq!(uids(&team).await, before, "none was deleted and made anew");
}

#[tokio::test(flavor = "multi_thread")]
async fn g12_what_is_held_is_held_however_many_objects_the_commit_creates() {
    let models = ["a", "b", "c", "d", "e", "f", "x", "y", "z"];
    let team = team("renames", &models, json!({})).await;
    let new = ["u", "v", "w"].map(|name| (format!("{name}.yaml"), model(name)));
    let mut files: Vec<_> = new.iter().map(|(path, text)| (&**path, Some(&**text))).collect();
    files.extend([("x.yaml", None), ("y.yaml", None), ("z.yaml", None)]);
    let sync = team.push(&files).await;
    assert_eq!(ready(&sync).reason, "PruneHeld", "{:?}", sync.status);
    // Another commit, and another look: 3 of 12 would pass.
    team.push(&[("a.yaml", Some(&model_at("a", "https://new.example.com/v1")))]).await;
    team.request().await;
    let sync = team.get().await;
    assert_eq!(ready(&sync).reason, "PruneHeld");
    assert_eq!(team.models().await.len(), 12);
    let status = sync.status.expect("status");
    assert_eq!(status.prune_base, Some(9));
    let digest = status.pending_prune.expect("held").digest;
    team.annotate(&[(keys::APPROVE_PRUNE, &digest)]).await;
    team.wait_ready("True").await;
    assert_eq!(team.models().await, ["a", "b", "c", "d", "e", "f", "u", "v", "w"]);
    assert_eq!(team.get().await.status.expect("status").prune_base, Some(9));
}

/// The uid of each ModelAPI.
async fn uids(team: &Team<'_>) -> std::collections::BTreeMap<String, Option<String>> {
    let list = team.api(Kind::ModelAPI).list(&ListParams::default()).await.expect("models");
    list.items.into_iter().map(|object| (object.name_any(), object.metadata.uid)).collect()
}
