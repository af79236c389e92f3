//! Whether Tekton is there. Convoke follows the definition of PipelineRuns, and watches PipelineRuns only while it exists: a watch
//! of a kind that the API server lacks would fail for ever.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures::StreamExt;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind, ObjectMeta};
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{Config, Event, watcher};
use kube::{Client, Resource};
use serde::Deserialize;
use serde::de::IgnoredAny;
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::decide::Builder;
use super::owners::Owners;
use super::pipeline_run::OWNER_KIND;
use super::place::term;
use super::run::Run;
use super::turns::Turns;
use crate::api::keys;
use crate::cluster::reflector;
use crate::cluster::store::{Entry, Store};
use crate::runtime::queue::Queue;

/// The definition that says whether Tekton is there.
pub(super) const DEFINITION: &str = "pipelineruns.tekton.dev";
/// Load balancers drop quiet connections at 240 s; a watch ends before that by itself.
const WATCH_SECONDS: u32 = 200;

/// What is known about Tekton.
#[derive(Clone, Default)]
pub enum TektonState {
    /// Nothing yet.
    #[default]
    Unknown,
    /// The API server does not serve PipelineRuns.
    NotInstalled,
    /// The server serves PipelineRuns. The store holds all of Convoke's.
    Available(Arc<Store<Run>>),
}

impl TektonState {
    /// The state without the runs.
    #[must_use]
    pub const fn builder(&self) -> Builder {
        match self {
            Self::Unknown => Builder::Unknown,
            Self::NotInstalled => Builder::NotInstalled,
            Self::Available(_) => Builder::Available,
        }
    }

    /// The runs, when Tekton is there.
    #[must_use]
    pub const fn runs(&self) -> Option<&Arc<Store<Run>>> {
        match self {
            Self::Available(runs) => Some(runs),
            Self::Unknown | Self::NotInstalled => None,
        }
    }
}

/// Follows Tekton.
#[derive(Default)]
pub struct Tekton {
    state: watch::Sender<TektonState>,
    /// Whether a pod template may ask for a user namespace.
    user_namespaces: AtomicBool,
}

impl Tekton {
    /// What is known now.
    #[must_use]
    pub fn state(&self) -> TektonState {
        self.state.borrow().clone()
    }

    /// Whether Tekton gives a pod a user namespace when its template asks for one (`hostUsers`). Older ones leave that out without a word.
    #[must_use]
    pub fn knows_user_namespaces(&self) -> bool {
        self.user_namespaces.load(Ordering::Acquire)
    }

    /// Waits until something is known.
    pub async fn wait_known(&self) {
        // The sender lives as long as self, so this cannot fail.
        let _ =
            self.state.subscribe().wait_for(|state| !matches!(state, TektonState::Unknown)).await;
    }

    /// Follows Tekton for ever. Every change of a run puts its AgentBuild on the queue, and the end of one those whose turn it is then;
    /// `changed` is called when Tekton came or went.
    pub async fn follow(
        &self,
        client: Client,
        queue: Arc<Queue>,
        (turns, owners): (Arc<Turns>, Arc<Owners>),
        changed: impl Fn(),
    ) {
        let config =
            Config::default().fields(&format!("metadata.name={DEFINITION}")).timeout(WATCH_SECONDS);
        let definitions: Api<Definition> = Api::all(client.clone());
        let mut events = pin!(watcher(definitions, config).default_backoff());
        let mut listed = None;
        // Dropping it ends the watch of runs.
        let mut watching: Option<Watching> = None;
        loop {
            let event = tokio::select! {
                event = events.next() => event,
                () = ready(watching.as_ref()) => {
                    if let Some(watching) = &mut watching {
                        watching.ready = true;
                        tracing::info!("Tekton is there: builds can run");
                        self.state.send_replace(TektonState::Available(watching.store.clone()));
                        changed();
                        // Also those of AgentBuilds that are gone: no other event looks after them.
                        for key in owners.with_runs(&watching.store) {
                            queue.add(key);
                        }
                    }
                    continue;
                }
            };
            let serves = match event {
                Some(Ok(Event::Init)) => {
                    listed = None;
                    continue;
                }
                Some(Ok(Event::InitApply(definition))) => {
                    self.learn(&definition, &changed);
                    listed = Some(definition.serves_v1());
                    continue;
                }
                Some(Ok(Event::InitDone)) => listed.take().unwrap_or(false),
                Some(Ok(Event::Apply(definition))) => {
                    self.learn(&definition, &changed);
                    definition.serves_v1()
                }
                Some(Ok(Event::Delete(_))) => false,
                Some(Err(error)) => {
                    tracing::warn!(%error, "watch of Tekton's definition failed, trying again");
                    continue;
                }
                // A watcher never ends; if it did, the task's end is noticed by whoever holds it.
                None => return,
            };
            if serves {
                if watching.is_none() {
                    watching = Some(Watching::start(&client, &queue, &turns, &owners));
                }
            } else if watching.take().is_some() || matches!(self.state(), TektonState::Unknown) {
                tracing::info!("Tekton is not installed: builds wait");
                self.state.send_replace(TektonState::NotInstalled);
                changed();
            }
        }
    }
}

impl Tekton {
    fn learn(&self, definition: &Definition, changed: impl Fn()) {
        let knows = definition.knows_user_namespaces();
        if self.user_namespaces.swap(knows, Ordering::AcqRel) != knows {
            changed();
        }
    }
}

/// Waits until the list of runs is complete. It never ends once that was told, nor without a watch.
async fn ready(watching: Option<&Watching>) {
    match watching {
        Some(watching) if !watching.ready => watching.store.wait_ready().await,
        _ => std::future::pending().await,
    }
}

/// The watch of PipelineRuns.
struct Watching {
    store: Arc<Store<Run>>,
    ready: bool,
    _task: JoinSet<()>,
}

impl Watching {
    fn start(
        client: &Client,
        queue: &Arc<Queue>,
        turns: &Arc<Turns>,
        owners: &Arc<Owners>,
    ) -> Self {
        let owner = |run: &Run| term(run).into_iter().collect();
        let store = Store::<Run>::indexed("PipelineRun", owner);
        let (queue, turns, owners) = (queue.clone(), turns.clone(), owners.clone());
        // The store holds its listeners.
        let all = Arc::downgrade(&store);
        store.on_change(move |change| {
            for run in [change.old, change.new].into_iter().flatten() {
                if let Some(owner) = owners.counts_for(&run.value) {
                    queue.add(owner);
                }
            }
            let runs =
                |run: Option<&Arc<Entry<Run>>>| run.is_some_and(|run| run.value.is_running());
            let has_ended = runs(change.old) && !runs(change.new);
            if let Some(runs) = all.upgrade().filter(|_| has_ended) {
                turns.next(&runs).into_iter().for_each(|key| queue.add(key));
            }
        });
        let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource());
        let mut task = JoinSet::new();
        let target = store.clone();
        let labels = format!("{}={OWNER_KIND}", keys::OWNER_KIND);
        task.spawn(async move { reflector::run::<Run>(api, target, Some(&labels)).await });
        Self { store, ready: false, _task: task }
    }
}

/// Tekton's PipelineRun.
#[must_use]
pub fn resource() -> ApiResource {
    ApiResource::from_gvk_with_plural(
        &GroupVersionKind::gvk("tekton.dev", "v1", "PipelineRun"),
        "pipelineruns",
    )
}

/// The parts of a definition that are read. Its schema has hundreds of kilobytes.
#[derive(Debug, Clone, Deserialize, Resource)]
#[resource(inherit = "CustomResourceDefinition")]
struct Definition {
    metadata: ObjectMeta,
    #[serde(default)]
    spec: DefinitionSpec,
    #[serde(default)]
    status: DefinitionStatus,
}

#[derive(Debug, Clone, Default, Deserialize)]
struct DefinitionSpec {
    #[serde(default)]
    versions: Vec<DefinitionVersion>,
}

#[derive(Debug, Clone, Deserialize)]
struct DefinitionVersion {
    name: String,
    #[serde(default)]
    served: bool,
    #[serde(default)]
    schema: Schemas,
}

#[derive(Debug, Clone, Default, Deserialize)]
struct Schemas {
    #[serde(default, rename = "openAPIV3Schema")]
    schema: Schema,
}

/// The branch of a schema that leads to `spec.taskRunTemplate.podTemplate.hostUsers`.
#[derive(Debug, Clone, Default, Deserialize)]
struct Schema {
    #[serde(default)]
    properties: Properties,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Properties {
    spec: Option<Box<Schema>>,
    task_run_template: Option<Box<Schema>>,
    pod_template: Option<Box<Schema>>,
    host_users: Option<IgnoredAny>,
}

#[derive(Debug, Clone, Default, Deserialize)]
struct DefinitionStatus {
    #[serde(default)]
    conditions: Vec<DefinitionCondition>,
}

#[derive(Debug, Clone, Deserialize)]
struct DefinitionCondition {
    #[serde(rename = "type")]
    type_: String,
    status: String,
}

impl Definition {
    /// Whether the server serves v1 of it.
    fn serves_v1(&self) -> bool {
        let established =
            self.status.conditions.iter().any(|c| c.type_ == "Established" && c.status == "True");
        let v1 = self.spec.versions.iter().any(|version| version.name == "v1" && version.served);
        established && v1 && self.metadata.deletion_timestamp.is_none()
    }

    /// Whether v1 has `spec.taskRunTemplate.podTemplate.hostUsers`.
    fn knows_user_namespaces(&self) -> bool {
        self.spec.versions.iter().filter(|version| version.name == "v1").any(|version| {
            let spec = version.schema.schema.properties.spec.as_ref();
            let template = spec.and_then(|spec| spec.properties.task_run_template.as_ref());
            let pod = template.and_then(|template| template.properties.pod_template.as_ref());
            pod.is_some_and(|pod| pod.properties.host_users.is_some())
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn b8_only_an_established_v1_counts() {
        let serves = |established: &str, name: &str, served: bool| {
            let definition: Definition = serde_json::from_value(json!({
                "metadata": {"name": DEFINITION},
                "spec": {"group": "tekton.dev", "versions": [{"name": "v1beta1", "served": true}, {"name": name, "served": served, "schema": {}}]},
                "status": {"conditions": [{"type": "NamesAccepted", "status": "True"}, {"type": "Established", "status": established}]},
            }))
            .expect("a definition");
            definition.serves_v1()
        };
        assert!(serves("True", "v1", true));
        assert!(!serves("False", "v1", true));
        assert!(!serves("True", "v1", false));
        assert!(!serves("True", "v2", true));
    }

    #[test]
    fn b3_whether_a_pod_gets_a_user_namespace_is_seen_in_the_definition() {
        let knows = |version: &str, field: &str| {
            let pod = json!({"type": "object", "properties": {"hostNetwork": {"type": "boolean"}, field: {"type": "boolean"}}});
            let template = json!({"properties": {"serviceAccountName": {"type": "string"}, "podTemplate": pod}});
            let schema = json!({"properties": {"status": {}, "spec": {"properties": {"params": {}, "taskRunTemplate": template}}}});
            let definition: Definition = serde_json::from_value(json!({
                "metadata": {"name": DEFINITION},
                "spec": {"versions": [
                    {"name": "v1beta1", "served": true, "schema": {"openAPIV3Schema": {"x-kubernetes-preserve-unknown-fields": true}}},
                    {"name": version, "served": true, "schema": {"openAPIV3Schema": schema}},
                ]},
            }))
            .expect("a definition");
            definition.knows_user_namespaces()
        };
        assert!(knows("v1", "hostUsers"));
        assert!(!knows("v1", "hostUser"));
        assert!(!knows("v2", "hostUsers"));
    }
}
