//! AgentBuild on a real API server with Tekton's real definitions. Tekton's controller is not here: the tests write what
//! it would write into the status of a run.
#![allow(clippy::expect_used, clippy::panic, clippy::disallowed_types, clippy::disallowed_methods)]

mod append;
mod attest;
mod base_image;
mod blocked;
mod crash_points;
mod credentials;
mod elsewhere;
mod fixed_tag;
mod forged;
mod hundred;
mod left;
mod lingering;
mod modes;
mod owner;
mod pipeline;
mod planned;
mod profiles;
mod rendered;
mod renewed;
mod repository;
mod reuse;
mod rolled_back;
pub(crate) mod team;
mod versions;

#[path = "../support/registry.rs"]
mod registry;
#[path = "../support/tokens.rs"]
mod tokens;
use crate::support;

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use convoke::api::agent_build::{AgentBuildStatus, BuildPhase, BuildResult};
use convoke::api::{AgentBuild, GitSync, keys};
use convoke::cluster::live::{Managed, Stores};
use convoke::cluster::reflector;
use convoke::cluster::store::Key;
use convoke::controllers::Shared;
use convoke::controllers::agent_build::profile::BuildProfile;
use convoke::controllers::agent_build::{self, Limits, Settings};
use convoke::git::Repositories;
use convoke::net::{Dialler, Policy};
use convoke::runtime::write_priority::WritePriority;
use convoke::sync::concurrency::ConcurrencyLimits;
use convoke::sync::newest::Shares;
use convoke::sync::published::build_sources::{Absence, BuildSources, CommitBuilds, SourceAt};
use convoke_core::cluster::account::OperatorAccount;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{
    Api, ApiResource, DeleteParams, DynamicObject, GroupVersionKind, ListParams, Patch,
    PatchParams, PostParams,
};
use kube::{Client, ResourceExt};
use serde_json::{Value, json};
use support::cluster::operator_user;
use support::{AuditMark, Cluster, eventually};
use team::*;
use tokio::task::JoinSet;

#[tokio::test]
async fn b1_b8_builds_wait_for_tekton_and_each_key_runs_once() {
    let cluster = Cluster::exclusive().await;
    install_templates(&cluster);
    let team = Team::new(&cluster).await;
    team.apply_build("reviewer", &json!({}));
    let mut controller = team.start();

    // Nothing is known of the source yet.
    let pending = team.until("reviewer", "the source is pending", |s| s.phase.is_some()).await;
    assert_eq!(condition(&pending, "Ready"), Some(("False", "SourcePending")));

    // B8: no Tekton, but the key is shown.
    team.commit(&controller, "reviewer", '1', Some('a'));
    let waiting = team.until("reviewer", "the key is shown", |s| s.build_key.is_some()).await;
    assert_eq!(waiting.phase, Some(BuildPhase::Pending));
    assert_eq!(condition(&waiting, "BuilderAvailable"), Some(("False", "TektonNotInstalled")));

    // It heals by itself when Tekton appears.
    install_tekton(&cluster);
    let building =
        team.until("reviewer", "it builds", |s| s.phase == Some(BuildPhase::Building)).await;
    assert_eq!(condition(&building, "BuilderAvailable"), Some(("True", "TektonInstalled")));
    assert_eq!(building.build_key, waiting.build_key);
    let runs = team.runs().await;
    assert_eq!(runs.len(), 1);
    let first = building.pipeline_run.clone().expect("a run");
    assert_eq!(runs[0].name_any(), first);
    assert_eq!(runs[0].annotations()["convoke.dev/commit"], "1".repeat(40));
    // The whole of it went through Tekton's schema; its embedded TaskSpecs are not pruned.
    assert!(
        runs[0].data["spec"]["pipelineSpec"]["tasks"][0]["taskSpec"]["steps"][0]["script"]
            .is_string()
    );

    team.end(&first, true).await;
    let built =
        team.until("reviewer", "it is built", |s| s.phase == Some(BuildPhase::Succeeded)).await;
    let image = format!("{}@sha256:{}", team.repository(), "a".repeat(64));
    assert_eq!(built.built_image.as_ref(), Some(&image));
    assert_eq!(built.last_built_commit, Some("1".repeat(40)));
    assert_eq!(condition(&built, "Ready"), Some(("True", "Built")));

    // A crash: the controller starts again, and a commit that touches other files comes in.
    controller = team.start();
    team.commit(&controller, "reviewer", '2', Some('a'));
    // Then one that touches the source: the one before it was handled by then, or is part of this.
    team.commit(&controller, "reviewer", '3', Some('b'));
    let second = team
        .until("reviewer", "the next key builds", |s| s.phase == Some(BuildPhase::Building))
        .await;
    assert_eq!(second.built_image.as_ref(), Some(&image), "the last good image stays");
    let second_run = second.pipeline_run.clone().expect("a run");
    assert_ne!(second_run, first);
    team.end(&second_run, false).await;
    let failed = team.until("reviewer", "it failed", |s| s.phase == Some(BuildPhase::Failed)).await;
    assert_eq!(failed.built_image.as_ref(), Some(&image));

    // A revert reuses.
    team.commit(&controller, "reviewer", '4', Some('a'));
    let reverted =
        team.until("reviewer", "a revert reuses", |s| s.phase == Some(BuildPhase::Succeeded)).await;
    assert_eq!(reverted.build_key, built.build_key);
    let mut names: Vec<_> = team.runs().await.iter().map(ResourceExt::name_any).collect();
    names.sort();
    let mut want = vec![first, second_run];
    want.sort();
    assert_eq!(names, want, "one run a key");

    // Tekton goes: only its condition changes, and the next key waits.
    remove_tekton(&cluster).await;
    let gone = team
        .until("reviewer", "Tekton is gone", |s| {
            condition(s, "BuilderAvailable") == Some(("False", "TektonNotInstalled"))
        })
        .await;
    assert_eq!((gone.phase, gone.built_image), (Some(BuildPhase::Succeeded), Some(image)));
    team.commit(&controller, "reviewer", '5', Some('c'));
    team.until("reviewer", "the next key waits", |s| s.phase == Some(BuildPhase::Pending)).await;
    tekton_is_gone(&cluster).await;
    install_tekton(&cluster);
    team.until("reviewer", "it builds again", |s| s.phase == Some(BuildPhase::Building)).await;
}

#[tokio::test]
async fn b6_what_is_being_built_ends_although_no_commit_holds_it_any_more() {
    let cluster = Cluster::exclusive().await;
    install_templates(&cluster);
    install_tekton(&cluster);
    let team = Team::new(&cluster).await;
    team.apply_build("reviewer", &json!({}));
    let controller = team.start();
    team.commit(&controller, "reviewer", '1', Some('a'));
    let building =
        team.until("reviewer", "it builds", |s| s.phase == Some(BuildPhase::Building)).await;
    // Its delete is held.
    let sync = Key::new(team.namespace.as_str(), "team");
    let (url, absence) = ("https://git.example.com/team.git", Absence::Proven);
    let commit = CommitBuilds { uid: SYNC, url, builds: &[], absence };
    controller.sources.publish(&sync, commit, Vec::new);
    team.end(&building.pipeline_run.expect("a run"), true).await;
    let built =
        team.until("reviewer", "it is built", |s| s.phase == Some(BuildPhase::Succeeded)).await;
    assert!(built.built_image.is_some());
}

#[tokio::test]
async fn b1_a_definition_that_is_not_applied_yet_is_not_called_built() {
    let cluster = Cluster::exclusive().await;
    install_templates(&cluster);
    install_tekton(&cluster);
    let team = Team::new(&cluster).await;
    team.apply_build("reviewer", &json!({}));
    let controller = team.start();
    let says = async |reason: &str| {
        let is = |s: &AgentBuildStatus| condition(s, "Ready").is_some_and(|(_, r)| r == reason);
        team.until("reviewer", reason, is).await
    };
    team.commit(&controller, "reviewer", '1', Some('a'));
    let building = says("Building").await;
    team.end(&building.pipeline_run.expect("a run"), true).await;
    let built = says("Built").await;

    // A commit wants something that is not applied.
    let api: Api<AgentBuild> = Api::namespaced(team.client.clone(), &team.namespace);
    team.commit_of(&controller, "reviewer", '2', Some('a'), Some("new".into()));
    let late = says("NotApplied").await;
    assert_eq!((&late.built_image, &late.build_key), (&built.built_image, &built.build_key));
    assert!(built.built_image.is_some());
    let change = async |patch: Value| {
        let patch = Patch::Merge(&patch);
        api.patch("reviewer", &PatchParams::default(), &patch).await.expect("changed");
    };
    change(json!({"metadata": {"annotations": {keys::APPLIED: "new"}}})).await;
    says("Built").await;
    assert_eq!(team.runs().await.len(), 1, "nothing else was built");
}

#[tokio::test]
async fn b1_a_crash_between_create_and_status_makes_no_second_run() {
    let cluster = Cluster::exclusive().await;
    install_templates(&cluster);
    install_tekton(&cluster);
    let team = Team::new(&cluster).await;
    team.apply_build("reviewer", &json!({}));
    let controller = team.start();
    team.commit(&controller, "reviewer", '1', Some('a'));
    let building =
        team.until("reviewer", "it builds", |s| s.phase == Some(BuildPhase::Building)).await;
    drop(controller);

    // As if the status had never been written.
    let api: Api<AgentBuild> = Api::namespaced(team.client.clone(), &team.namespace);
    let nothing = json!({"status": null});
    api.patch_status("reviewer", &PatchParams::default(), &Patch::Merge(&nothing))
        .await
        .expect("removed");
    assert_eq!(team.status("reviewer").await, AgentBuildStatus::default());
    let uid = team.runs().await[0].uid();
    let controller = team.start();
    team.commit(&controller, "reviewer", '1', Some('a'));
    let again =
        team.until("reviewer", "it is found", |s| s.phase == Some(BuildPhase::Building)).await;
    assert_eq!(again.pipeline_run, building.pipeline_run);
    let runs = team.runs().await;
    assert_eq!((runs.len(), runs[0].uid()), (1, uid));
    team.end(&building.pipeline_run.expect("a run"), true).await;
    team.until("reviewer", "it is built", |s| s.phase == Some(BuildPhase::Succeeded)).await;

    // A new key costs one run and two statuses: it waits for its turn, it is built. A commit that touches other files, and a restart, cost nothing.
    drop(controller);
    let since = cluster.audit_mark();
    let controller = team.start();
    team.commit(&controller, "reviewer", '2', Some('a'));
    team.apply_build("barrier", &json!({}));
    team.until("barrier", "the controller works", |s| s.phase.is_some()).await;
    team.commit(&controller, "reviewer", '3', Some('b'));
    team.until("reviewer", "it builds", |s| s.last_attempted_commit == Some("3".repeat(40))).await;
    let status = "patch agentbuilds/status";
    let want = [status, status, status, "patch pipelineruns/"];
    assert_eq!(team.writes(since), want, "status of the barrier, then those of the new key");
}

#[tokio::test]
async fn b3_b4_what_is_missing_or_wrong_is_named_and_heals() {
    let cluster = Cluster::exclusive().await;
    install_tekton(&cluster);
    install_templates(&cluster);
    let team = Team::new(&cluster).await;
    let controller = team.start();

    team.apply_build("no-template", &json!({"mode": "mine"}));
    team.commit(&controller, "no-template", '1', Some('a'));
    let missing = team
        .until("no-template", "it is named", |s| {
            s.phase.is_some()
                && s.conditions.len() > 1
                && condition(s, "Ready") != Some(("False", "SourcePending"))
        })
        .await;
    assert_eq!(condition(&missing, "Ready"), Some(("False", "TemplateNotFound")));
    let message = missing.message.expect("a message");
    assert_eq!(
        message,
        format!("no ConfigMap pipeline-template-mine in {} or convoke-system", team.namespace)
    );

    // B5: an own reason.
    team.apply_build("no-folder", &json!({}));
    team.commit(&controller, "no-folder", '1', None);
    let missing =
        team.until("no-folder", "it is named", |s| s.phase == Some(BuildPhase::Failed)).await;
    assert_eq!(condition(&missing, "Ready"), Some(("False", "SubfolderMissing")));
    team.commit(&controller, "no-folder", '2', Some('a'));
    team.until("no-folder", "it heals", |s| s.phase == Some(BuildPhase::Building)).await;

    // The namespace's own step wins over the operator's, and passes the same allow-list.
    let config_map = |name: &str, key: &str, value: String| {
        json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {key: value},
            "metadata": {"name": name, "namespace": team.namespace, "labels": {"convoke.dev/step": "true"}}})
    };
    let template = json!({"name": "own", "steps": [{"name": "build", "configMap": "own-step"}]});
    cluster.apply(&config_map("pipeline-template-own", "template.json", template.to_string()));
    let step = json!({"params": [{"name": "build-args", "type": "array"}], "results": [{"name": "digest"}],
        "volumes": [{"name": "node", "hostPath": {"path": "/"}}], "steps": [{"name": "x", "image": "y", "script": "true"}]});
    cluster.apply(&config_map("own-step", "task-spec.yaml", step.to_string()));
    team.apply_build("own", &json!({"mode": "own"}));
    team.commit(&controller, "own", '1', Some('a'));
    let refused = team
        .until("own", "it is refused", |s| {
            condition(s, "Ready") == Some(("False", "PodNotAllowed"))
        })
        .await;
    assert!(refused.message.expect("a message").contains("volumes[0].hostPath"));

    // B1: nothing is built without the trigger.
    team.apply_build("by-hand", &json!({"trigger": {"onCommit": false}}));
    team.commit(&controller, "by-hand", '1', Some('a'));
    team.until("by-hand", "it says so", |s| condition(s, "Ready") == Some(("False", "TriggerOff")))
        .await;
    let runs = team.runs().await;
    assert_eq!(runs.len(), 1, "only of no-folder: {runs:?}");
}

#[tokio::test]
async fn b7_a_run_that_is_deleted_while_it_goes_on_is_made_again_under_another_name() {
    let cluster = Cluster::exclusive().await;
    install_templates(&cluster);
    install_tekton(&cluster);
    let team = Team::new(&cluster).await;
    team.apply_build("reviewer", &json!({}));
    let controller = team.start();
    team.commit(&controller, "reviewer", '1', Some('a'));
    let building =
        team.until("reviewer", "it builds", |s| s.phase == Some(BuildPhase::Building)).await;
    let (name, before) = (building.pipeline_run.expect("a run"), team.runs().await.remove(0));
    let since = cluster.audit_mark();
    team.runs_api().delete(&name, &DeleteParams::default()).await.expect("deleted");
    let again = eventually(3 * SOON, "it is made again", || async {
        let runs = team.runs().await;
        let is_new = runs.len() == 1 && runs[0].uid() != before.uid();
        if is_new { Ok(runs[0].clone()) } else { Err(runs) }
    })
    .await;
    // What the first one has left, as a TaskRun, has names made from its name.
    let second = again.name_any();
    assert_ne!(second, name);
    let mut annotations = again.annotations().clone();
    annotations.insert("convoke.dev/attempt".into(), "1".into());
    assert_eq!(&annotations, before.annotations(), "the same key and commit");
    let is_second = |s: &AgentBuildStatus| s.pipeline_run.as_deref() == Some(second.as_str());
    let building = team.until("reviewer", "it builds", is_second).await;
    assert_eq!((building.attempt, building.failure), (Some(2), None));
    team.end(&second, true).await;
    let built =
        team.until("reviewer", "it is built", |s| s.phase == Some(BuildPhase::Succeeded)).await;
    assert_eq!(built.history.len(), 1, "{:?}", built.history);
    let made = team.writes(since).into_iter().filter(|write| write == "patch pipelineruns/");
    assert_eq!(made.count(), 1, "exactly one");
    drop(controller);
}

#[tokio::test]
async fn b7_builds_take_turns_in_the_order_in_which_they_came_also_after_a_restart() {
    let cluster = Cluster::exclusive().await;
    install_tekton(&cluster);
    install_templates(&cluster);
    let team = Team::new(&cluster).await;
    let limits = Limits { total: 3, namespace: 2 };
    let mut controller = team.start_with(limits);
    let names: Vec<_> = (0..6).map(|n| format!("build-{n}")).collect();
    team.commit_all(&controller, &names, '1', Some('a'), None);
    for name in &names {
        team.apply_build(name, &json!({}));
        let waits = |s: &AgentBuildStatus| s.queued_at.is_some() || s.pipeline_run.is_some();
        team.until(name, "it is in the queue", waits).await;
    }
    let mut ended = 0;
    loop {
        let going: Vec<_> = team.runs().await.into_iter().filter(is_running).collect();
        assert!(going.len() <= limits.namespace, "{} at once", going.len());
        if going.is_empty() {
            break;
        }
        // In the order in which they came.
        let mut builds: Vec<_> =
            going.iter().map(|run| run.labels()["convoke.dev/name"].clone()).collect();
        builds.sort();
        assert_eq!(builds, names[ended..names.len().min(ended + 2)]);
        if ended == 2 {
            // Those who wait, wait on.
            drop(controller);
            controller = team.start_with(limits);
            team.commit_all(&controller, &names, '1', Some('a'), None);
        }
        let oldest = going.iter().min_by_key(|run| run.labels()["convoke.dev/name"].clone());
        team.end(&oldest.expect("a run").name_any(), true).await;
        let name = &names[ended];
        team.until(name, "it is built", |s| s.phase == Some(BuildPhase::Succeeded)).await;
        ended += 1;
        if let Some(next) = names.get(ended + 1) {
            team.until(next, "the next one runs", |s| s.phase == Some(BuildPhase::Building)).await;
        }
    }
    assert_eq!(ended, names.len());
}

/// Whether Tekton has not told the end of a run.
fn is_running(run: &DynamicObject) -> bool {
    run.data["status"]["conditions"][0]["status"].is_null()
}

#[tokio::test]
async fn b7_a_newer_key_stops_a_young_run_and_waits_for_its_end() {
    let cluster = Cluster::exclusive().await;
    install_tekton(&cluster);
    install_templates(&cluster);
    let team = Team::new(&cluster).await;
    let controller = team.start();
    team.apply_build("reviewer", &json!({}));
    team.commit(&controller, "reviewer", '1', Some('a'));
    let first = team
        .until("reviewer", "it builds", |s| s.phase == Some(BuildPhase::Building))
        .await
        .pipeline_run
        .expect("a run");
    team.commit(&controller, "reviewer", '2', Some('b'));
    let waiting = team
        .until("reviewer", "the newer one waits", |s| {
            condition(s, "Ready") == Some(("False", "Queued"))
        })
        .await;
    assert_eq!((waiting.phase, waiting.pipeline_run), (Some(BuildPhase::Superseded), None));
    let run = team.runs_api().get(&first).await.expect("the run");
    assert_eq!(run.data["spec"]["status"], "Cancelled");
    assert_eq!(team.runs().await.len(), 1, "one at a time");
    let cancelled = json!({"status": {"conditions": [
        {"type": "Succeeded", "status": "False", "reason": "Cancelled", "message": "it was cancelled"},
    ]}});
    let patch = Patch::Merge(&cancelled);
    team.runs_api().patch_status(&first, &PatchParams::default(), &patch).await.expect("its end");
    let second = team
        .until("reviewer", "the newer one builds", |s| s.phase == Some(BuildPhase::Building))
        .await;
    let stopped = &second.history[0];
    assert_eq!(
        (stopped.result, stopped.commit.clone()),
        (BuildResult::Superseded, Some("1".repeat(40)))
    );
    let newer = stopped.superseded_by.as_ref().expect("for what");
    assert_eq!(Some(&newer.key), second.build_key.as_ref());
    assert_eq!(newer.commit, Some("2".repeat(40)));
    // The next one has to wait: never twice in a row.
    team.commit(&controller, "reviewer", '3', Some('c'));
    team.until("reviewer", "the newest one waits", |s| {
        condition(s, "Ready") == Some(("False", "Queued"))
    })
    .await;
    let name = second.pipeline_run.expect("a run");
    let run = team.runs_api().get(&name).await.expect("the run");
    assert!(run.data["spec"]["status"].is_null(), "it goes on");
    team.end(&name, true).await;
    let third = team
        .until("reviewer", "the newest one builds", |s| {
            s.last_attempted_commit == Some("3".repeat(40))
        })
        .await;
    assert_eq!(third.last_built_commit, Some("2".repeat(40)), "there is nothing newer yet");
    assert_ne!(third.built_key, third.build_key);
    assert_eq!(third.history[0].result, BuildResult::Succeeded);
    // A revert to it takes its image at once.
    team.end(&third.pipeline_run.expect("a run"), false).await;
    team.commit(&controller, "reviewer", '4', Some('b'));
    let reverted =
        team.until("reviewer", "a revert", |s| s.phase == Some(BuildPhase::Succeeded)).await;
    assert_eq!(reverted.last_built_commit, Some("2".repeat(40)));
}

#[tokio::test]
async fn b4_a_spec_that_cannot_be_built_is_told_once_and_takes_no_turn() {
    let cluster = Cluster::exclusive().await;
    install_tekton(&cluster);
    install_templates(&cluster);
    let team = Team::new(&cluster).await;
    let controller = team.start_with(Limits { total: 1, namespace: 1 });
    let names = ["wrong".to_owned(), "barrier".to_owned()];
    team.commit_all(&controller, &names, '1', Some('a'), None);
    let output = json!({"output": {"image": team.image(), "tag": "{foo}"}});
    team.apply_build("wrong", &output);
    let wrong = team
        .until("wrong", "it is told", |s| condition(s, "Ready") == Some(("False", "InvalidTag")))
        .await;
    assert_eq!((wrong.phase, &wrong.queued_at), (Some(BuildPhase::Failed), &None));
    let since = cluster.audit_mark();
    // It is looked at again, and then the barrier is.
    team.commit_all(&controller, &names, '2', Some('a'), None);
    team.apply_build("barrier", &json!({}));
    team.until("barrier", "it builds", |s| s.phase == Some(BuildPhase::Building)).await;
    assert_eq!(team.status("wrong").await, wrong);
    let status = "patch agentbuilds/status";
    assert_eq!(team.writes(since), [status, status, "patch pipelineruns/"], "of the barrier");
}
