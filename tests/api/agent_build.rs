//! AgentBuild on a real API server with Tekton's real definitions. Tekton's controller is not here: the tests write what
//! it would write into the status of a run.
#![allow(clippy::expect_used, clippy::panic, clippy::disallowed_types, clippy::disallowed_methods)]

mod credentials;
mod owner;
mod rendered;
use crate::support;

use std::collections::BTreeMap;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use convoke::api::agent_build::{AgentBuildStatus, BuildPhase, BuildResult};
use convoke::api::{AgentBuild, GitSync, keys};
use convoke::cluster::live::{Managed, Stores};
use convoke::cluster::reflector;
use convoke::cluster::store::Key;
use convoke::controllers::Shared;
use convoke::controllers::agent_build::{self, Limits, Settings};
use convoke::net::{Dialler, Policy};
use convoke::runtime::write_priority::WritePriority;
use convoke::sync::published::build_sources::{Absence, BuildSources, CommitBuilds, SourceAt};
use convoke_core::cluster::account::OperatorAccount;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{
    Api, ApiResource, DeleteParams, DynamicObject, GroupVersionKind, ListParams, Patch, PatchParams,
};
use kube::{Client, ResourceExt};
use serde_json::{Value, json};
use support::cluster::operator_user;
use support::{AuditMark, Cluster, eventually};
use tokio::task::JoinSet;

/// UID of GitSync `team`.
const SYNC: &str = "1b2c";
const URL: &str = "https://git.example.com/team.git";
const SOON: Duration = Duration::from_secs(60);
const ROOT: &str = env!("CARGO_MANIFEST_DIR");

/// The controller, as the operator starts it. Ends when it is dropped.
struct Controller {
    sources: Arc<BuildSources>,
    stores: Stores,
    _tasks: JoinSet<Result<(), String>>,
}

impl Controller {
    fn start(client: &Client, limits: Limits) -> Self {
        let mut tasks = JoinSet::new();
        let stores = Stores::new();
        let sources = BuildSources::new();
        let settings = Settings {
            internal_registry: Some("registry.test:5000".into()),
            operator_namespace: "convoke-system".into(),
            limits,
            operator: OperatorAccount::new("convoke-system"),
            dialler: Dialler::new(Policy::default()),
        };
        let priority = WritePriority::new();
        let shared = Shared { client, stores: &stores, write_priority: &priority };
        agent_build::start(&mut tasks, shared, settings, sources.clone());
        let (api, builds): (Api<_>, _) = (Api::all(client.clone()), stores.agent_builds.clone());
        tasks.spawn(async move {
            reflector::run::<Managed<AgentBuild>>(api, builds, None).await;
            Ok(())
        });
        Self { sources, stores, _tasks: tasks }
    }
}

struct Team<'c> {
    cluster: &'c Cluster,
    /// All rights.
    client: Client,
    /// The shipped rights of the operator.
    operator: Client,
    operator_user: String,
    namespace: String,
}

impl<'c> Team<'c> {
    async fn new(cluster: &'c Cluster) -> Self {
        let installed = cluster.namespace("convoke").await;
        let operator = cluster.client_of(&cluster.operator_kubeconfig(&installed).await).await;
        Self {
            cluster,
            client: cluster.client().await,
            operator,
            operator_user: operator_user(&installed),
            namespace: cluster.namespace("team").await,
        }
    }

    fn start(&self) -> Controller {
        self.start_with(Limits { total: 10, namespace: 10 })
    }

    /// The controller with other limits.
    fn start_with(&self, limits: Limits) -> Controller {
        Controller::start(&self.operator, limits)
    }

    /// Writes of the operator since then, as `verb resource/subresource`, sorted.
    fn writes(&self, since: AuditMark) -> Vec<String> {
        let records = self.cluster.writes_by(&self.operator_user, since);
        let mut writes: Vec<_> = records
            .iter()
            .map(|r| format!("{} {}/{}", r.verb, r.resource, r.subresource))
            .collect();
        writes.sort();
        writes
    }

    fn apply_build(&self, name: &str, spec: &Value) {
        let mut whole = json!({
            "source": {"gitSync": {}, "subfolder": "images/reviewer"},
            "output": {"image": "team/reviewer"}, "buildArgs": {"A": "1"},
        });
        for (key, value) in spec.as_object().expect("a map") {
            whole[key] = value.clone();
        }
        self.cluster.apply(&json!({
            "apiVersion": "convoke.dev/v1alpha1", "kind": "AgentBuild",
            "metadata": {"name": name, "namespace": self.namespace, "annotations": {keys::OWNER: self.mark(name)}},
            "spec": whole,
        }));
    }

    /// The mark of GitSync `team` on an AgentBuild.
    fn mark(&self, name: &str) -> String {
        let namespace = &self.namespace;
        format!("{SYNC}/{namespace}/team/AgentBuild/{namespace}/{name}")
    }

    /// What the engine says after a commit.
    fn commit(&self, controller: &Controller, name: &str, commit: char, tree: Option<char>) {
        self.commit_of(controller, name, commit, tree, None);
    }

    /// The same after one whose definition is to be applied first.
    fn commit_of(
        &self,
        controller: &Controller,
        name: &str,
        commit: char,
        tree: Option<char>,
        applied: Option<String>,
    ) {
        self.commit_all(controller, &[name.to_owned()], commit, tree, applied);
    }

    /// The same of several AgentBuilds.
    fn commit_all(
        &self,
        controller: &Controller,
        names: &[String],
        commit: char,
        tree: Option<char>,
        applied: Option<String>,
    ) {
        let id = |digit: char| digit.to_string().repeat(40);
        let url = URL;
        let stores = &controller.stores.git_syncs;
        if stores.get(&Key::new(self.namespace.as_str(), "team")).is_none() {
            self.follow(controller, &json!({}));
        }
        let source = SourceAt {
            sync: "team".into(),
            url: url.into(),
            commit: id(commit),
            subfolder_tree: tree.map(id),
            paths: BTreeMap::new(),
            applied,
        };
        let sync = Key::new(self.namespace.as_str(), "team");
        let builds: Vec<_> = names.iter().map(|name| (name.clone(), source.clone())).collect();
        // With errors: what was published for the other builds stays.
        let absence = Absence::Unproven;
        let commit = CommitBuilds { uid: SYNC, url, builds: &builds, absence };
        controller.sources.publish(&sync, commit, Vec::new);
    }

    /// The GitSync, with more in its spec, as the watch would bring it.
    fn follow(&self, controller: &Controller, spec: &Value) {
        let mut whole = json!({"url": URL});
        for (key, value) in spec.as_object().expect("a map") {
            whole[key] = value.clone();
        }
        let version = jiff::Timestamp::now().as_microsecond().to_string();
        let sync = json!({
            "apiVersion": "convoke.dev/v1alpha1", "kind": "GitSync",
            "metadata": {"name": "team", "namespace": self.namespace, "uid": SYNC, "resourceVersion": version}, "spec": whole,
        });
        let sync = serde_json::from_value(sync).expect("a GitSync");
        let (key, entry) = reflector::entry::<Managed<GitSync>>(sync);
        controller.stores.git_syncs.wrote(key, entry);
    }

    async fn status(&self, name: &str) -> AgentBuildStatus {
        let api: Api<AgentBuild> = Api::namespaced(self.client.clone(), &self.namespace);
        api.get(name).await.expect("an AgentBuild").status.unwrap_or_default()
    }

    async fn until(
        &self,
        name: &str,
        what: &str,
        is: impl Fn(&AgentBuildStatus) -> bool,
    ) -> AgentBuildStatus {
        eventually(3 * SOON, what, || async {
            let status = self.status(name).await;
            if is(&status) { Ok(status) } else { Err(status) }
        })
        .await
    }

    fn runs_api(&self) -> Api<DynamicObject> {
        let kind = GroupVersionKind::gvk("tekton.dev", "v1", "PipelineRun");
        let resource = ApiResource::from_gvk_with_plural(&kind, "pipelineruns");
        Api::namespaced_with(self.client.clone(), &self.namespace, &resource)
    }

    async fn runs(&self) -> Vec<DynamicObject> {
        self.runs_api().list(&ListParams::default()).await.expect("a list of runs").items
    }

    /// What Tekton's controller says at the end of a run.
    async fn end(&self, run: &str, succeeded: bool) {
        let (status, reason) = if succeeded { ("True", "Succeeded") } else { ("False", "Failed") };
        let results = if succeeded {
            json!([
                {"name": "IMAGE_URL", "value": "registry.test:5000/team/reviewer:t"},
                {"name": "IMAGE_DIGEST", "value": format!("sha256:{}", "a".repeat(64))},
            ])
        } else {
            json!([])
        };
        let patch = json!({"status": {
            "startTime": jiff::Timestamp::now().to_string(), "results": results,
            "conditions": [{"type": "Succeeded", "status": status, "reason": reason, "message": "Tasks Completed: 3"}],
        }});
        let api = self.runs_api();
        api.patch_status(run, &PatchParams::default(), &Patch::Merge(&patch))
            .await
            .expect("the run's end");
    }
}

fn condition<'a>(status: &'a AgentBuildStatus, type_: &str) -> Option<(&'a str, &'a str)> {
    let found = status.conditions.iter().find(|condition| condition.type_ == type_)?;
    Some((&found.status, &found.reason))
}

fn install_templates(cluster: &Cluster) {
    let namespace =
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "convoke-system"}});
    cluster.apply(&namespace);
    let folder = format!("{ROOT}/deploy/pipelines");
    for file in ["template-dev", "step-clone", "step-verify", "step-build", "step-push"] {
        let file = format!("{folder}/{file}.yaml");
        cluster.kubectl(&["apply", "--server-side", "-n", "convoke-system", "-f", &file]);
    }
}

fn tekton_definition() -> String {
    let folder = support::run(&mut Command::new(format!("{ROOT}/scripts/lib/tekton-crds")));
    format!("{}/300-pipelinerun.yaml", folder.trim())
}

fn install_tekton(cluster: &Cluster) {
    cluster.kubectl(&["apply", "--server-side", "-f", &tekton_definition()]);
}

async fn remove_tekton(cluster: &Cluster) {
    let api: Api<CustomResourceDefinition> = Api::all(cluster.client().await);
    api.delete("pipelineruns.tekton.dev", &DeleteParams::default()).await.expect("deleted");
}

/// Waits until the definition is gone. What is applied to one that is about to go, goes with it.
async fn tekton_is_gone(cluster: &Cluster) {
    let api: Api<CustomResourceDefinition> = Api::all(cluster.client().await);
    eventually(Duration::from_secs(180), "the definition is gone", async || {
        match api.get_opt("pipelineruns.tekton.dev").await.expect("an answer") {
            None => Ok(()),
            Some(left) => Err(left.metadata),
        }
    })
    .await;
}

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
    let image = format!("registry.test:5000/team/reviewer@sha256:{}", "a".repeat(64));
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
    team.until("reviewer", "the newer one waits", |s| {
        condition(s, "Ready") == Some(("False", "Queued"))
    })
    .await;
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
    assert_eq!(second.history[0].result, BuildResult::Superseded);
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
    let output = json!({"output": {"image": "team/reviewer", "tag": "{foo}"}});
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
