//! Starts the controllers: one queue each, fed by the changes that concern it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Service;
use kube::Client;
use tokio::task::JoinSet;

use super::ControllerSet;
use super::agent::Agents;
use super::context::Context;
use super::defaults::Defaults;
use super::events::Teller;
use super::inputs::Inputs;
use super::mcp_server::McpServers;
use super::model_api::ModelApis;
use super::pods::Pods;
use super::queue::Queue;
use super::runtime;
use super::turns::Turns;
use super::wanted_agents::WantedAgents;
use crate::api::{Agent, Kind, ObjectId, keys};
use crate::cluster::child_watch;
use crate::cluster::children::{Child, ChildKind, ChildStores, ChildWriter};
use crate::cluster::live::{Facts, Managed, Ours, Stores};
use crate::cluster::store::{Change, Entry, Key, Store};

/// Objects of one kind that are worked on at once; of one namespace half as many.
const CONCURRENCY: usize = 32;
/// What is changed by hand in an object from Git is most likely undone at once: its pods wait for that.
const SECOND_THOUGHT: Duration = Duration::from_secs(1);

/// What the operator's options say about controllers.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Which of them run.
    pub set: ControllerSet,
    /// What specs leave open.
    pub defaults: Defaults,
    /// Holds the key for digests of what pods read.
    pub operator_namespace: String,
    /// Labelled ConfigMaps and their keys, and the same of Secrets, that are followed in each namespace.
    pub inputs_max_keys: usize,
}

/// What controllers watch besides our own kinds.
pub struct Watched {
    children: ChildStores,
    pods: Arc<Pods>,
}

impl Watched {
    /// Kinds of which nothing is known yet.
    #[must_use]
    pub fn pending(&self) -> Vec<&'static str> {
        let pods = self.pods.is_pending().then_some("Pod");
        self.children.pending().into_iter().chain(pods).collect()
    }
}

/// Starts controllers as tasks; gives what they watch, for readiness. The engine fills `wanted`, and comes first
/// in `turns`.
pub fn start<E: Send + 'static>(
    tasks: &mut JoinSet<Result<(), E>>,
    client: &Client,
    stores: &Stores,
    settings: Settings,
    wanted: Arc<WantedAgents>,
    turns: &Arc<Turns>,
) -> Option<Watched> {
    let Settings { set, defaults, operator_namespace, inputs_max_keys } = settings;
    if !(set.has(Kind::Agent) || set.has(Kind::ModelAPI) || set.has(Kind::MCPServer)) {
        return None;
    }
    let children = ChildStores::new();
    let inputs = Inputs::new(client.clone(), operator_namespace, inputs_max_keys);
    let pods = Pods::new();
    let mut queues = BTreeMap::new();
    let context = Arc::new(Context {
        client: client.clone(),
        stores: stores.clone(),
        children: children.clone(),
        writer: ChildWriter::new(client.clone()),
        defaults,
        pods: pods.clone(),
        inputs: inputs.clone(),
        wanted: wanted.clone(),
        events: Teller::new(client.clone()),
    });

    if set.has(Kind::ModelAPI) {
        let queue = Queue::behind(turns);
        queues.insert(Kind::ModelAPI, queue.clone());
        own(&stores.model_apis, &queue);
        from_children(&children, Kind::ModelAPI, &queue);
        let reconciler = Arc::new(ModelApis(context.clone()));
        spawn(tasks, async move { runtime::run(reconciler, queue, CONCURRENCY).await });
    }
    if set.has(Kind::MCPServer) {
        let queue = Queue::behind(turns);
        queues.insert(Kind::MCPServer, queue.clone());
        own(&stores.mcp_servers, &queue);
        from_children(&children, Kind::MCPServer, &queue);
        wake(&stores.agent_builds, Kind::AgentBuild, &stores.mcp_servers, &queue);
        let reconciler = Arc::new(McpServers(context.clone()));
        spawn(tasks, async move { runtime::run(reconciler, queue, CONCURRENCY).await });
    }
    if set.has(Kind::Agent) {
        let queue = Queue::behind(turns);
        queues.insert(Kind::Agent, queue.clone());
        own(&stores.agents, &queue);
        from_children(&children, Kind::Agent, &queue);
        wake(&stores.model_apis, Kind::ModelAPI, &stores.agents, &queue);
        wake(&stores.mcp_servers, Kind::MCPServer, &stores.agents, &queue);
        wake(&stores.agent_builds, Kind::AgentBuild, &stores.agents, &queue);
        from_addresses(&children, &stores.agents, &queue);
        let (sink, agents) = (queue.clone(), stores.agents.clone());
        stores.agents.on_change(move |change| {
            // Peers care only whether an agent is there and exposed.
            let exposed = |agent: &Agent| {
                agent.spec.agent_network.as_ref().is_none_or(|network| network.expose)
            };
            let there = |entry: Option<&Arc<Entry<Managed<Agent>>>>| {
                entry.is_some_and(|entry| entry.value.object().is_some_and(|agent| exposed(&agent)))
            };
            let hash = |entry: Option<&Arc<_>>| {
                entry.and_then(|entry: &Arc<Entry<Managed<Agent>>>| entry.value.facts.spec_hash)
            };
            if hash(change.old) != hash(change.new) && there(change.old) != there(change.new) {
                dependents(&agents, Kind::Agent, change.key, &sink);
            }
        });
        let (sink, agents) = (queue.clone(), stores.agents.clone());
        wanted.notify(move |peer| dependents(&agents, Kind::Agent, peer, &sink));
        let reconciler = Arc::new(Agents::new(context));
        spawn(tasks, async move { runtime::run(reconciler, queue, CONCURRENCY).await });
    }

    pods.notify(queues.clone());
    spawn(tasks, pods.clone().run(client.clone()));
    inputs.notify(queues);
    spawn(tasks, inputs.run());
    // Children are watched by our label. The stores of our own kinds are watched by the caller.
    spawn(tasks, child_watch::run(client.clone(), children.deployments.clone()));
    spawn(tasks, child_watch::run(client.clone(), children.services.clone()));
    spawn(tasks, child_watch::run(client.clone(), children.config_maps.clone()));
    Some(Watched { children, pods })
}

fn spawn<E: Send + 'static>(
    tasks: &mut JoinSet<Result<(), E>>,
    work: impl Future<Output = ()> + Send + 'static,
) {
    tasks.spawn(async move {
        work.await;
        Ok(())
    });
}

/// Whether a change is more than the echo of our own status: another generation, other annotations, coming, going,
/// or another status that others may wait for.
fn matters<K: Ours>(change: &Change<'_, Managed<K>>) -> bool {
    match (change.old, change.new) {
        (Some(old), Some(new)) => {
            old.uid != new.uid
                || old.value.facts.spec_hash != new.value.facts.spec_hash
                || old.value.facts.ready != new.value.facts.ready
                || old.value.facts.deleting != new.value.facts.deleting
                || status(&old.value) != status(&new.value)
        }
        _ => true,
    }
}

/// The status without what changes all the time.
fn status<K: Ours>(object: &Managed<K>) -> Option<serde_json::Value> {
    let mut status = serde_json::to_value(object.object()?.as_ref()).ok()?.get("status")?.clone();
    if let Some(map) = status.as_object_mut() {
        map.retain(|key, _| matches!(key.as_str(), "endpoint" | "models" | "builtImage"));
    }
    Some(status)
}

/// An object's own changes. The echo of our own status write changes nothing, and is cheap.
pub(super) fn own<K: Ours>(store: &Arc<Store<Managed<K>>>, queue: &Arc<Queue>) {
    let sink = queue.clone();
    store.on_change(move |change| match (change.old, change.new) {
        (Some(old), Some(new)) if old.uid == new.uid => {
            let (old, new) = (&old.value.facts, &new.value.facts);
            if by_hand(old, new) {
                sink.hold(change.key.clone(), SECOND_THOUGHT);
            } else if !old.same_input(new) {
                sink.add(change.key.clone());
            }
        }
        _ => sink.add(change.key.clone()),
    });
}

/// Whether somebody else changed the spec of an object that comes from Git: a sync says what it applied.
fn by_hand(old: &Facts, new: &Facts) -> bool {
    let applied = new.annotations.get(keys::APPLIED);
    applied.is_some()
        && applied == old.annotations.get(keys::APPLIED)
        && old.spec_hash != new.spec_hash
}

/// Changes of children wake their owner.
fn from_children(children: &ChildStores, kind: Kind, queue: &Arc<Queue>) {
    fn one<K: ChildKind>(store: &Store<Child<K>>, kind: Kind, queue: &Arc<Queue>) {
        let sink = queue.clone();
        store.on_change(move |change| {
            let owner = |child: &Arc<Entry<Child<K>>>| {
                let ours = child.value.owner_kind() == Some(kind.as_str());
                child.value.owner_name().filter(|_| ours).map(str::to_owned)
            };
            // Who loses a child is told, too: to another owner, or to none.
            let (old, new) = (change.old.and_then(owner), change.new.and_then(owner));
            let lost = old.filter(|old| Some(old) != new.as_ref());
            for owner in lost.into_iter().chain(new) {
                sink.add(Key::new(&change.key.namespace, owner));
            }
        });
    }
    one(&children.deployments, kind, queue);
    one(&children.services, kind, queue);
    one(&children.config_maps, kind, queue);
}

/// The Service of a model or tool server that comes, goes or changes hands wakes those who are told its address.
fn from_addresses(children: &ChildStores, agents: &Arc<Store<Managed<Agent>>>, queue: &Arc<Queue>) {
    let (sink, agents) = (queue.clone(), agents.clone());
    children.services.on_change(move |change| {
        let uid = |child: Option<&Arc<Entry<Child<Service>>>>| {
            child.and_then(|child| child.value.owner_uid().map(str::to_owned))
        };
        if uid(change.old) == uid(change.new) {
            return;
        }
        for child in change.old.into_iter().chain(change.new) {
            let kind = [Kind::ModelAPI, Kind::MCPServer]
                .into_iter()
                .find(|kind| child.value.owner_kind() == Some(kind.as_str()));
            if let (Some(kind), Some(owner)) = (kind, child.value.owner_name()) {
                dependents(&agents, kind, &Key::new(&change.key.namespace, owner), &sink);
            }
        }
    });
}

/// Changes of something wake those who name it.
fn wake<K: Ours, D: Ours>(
    store: &Store<Managed<K>>,
    kind: Kind,
    dependent: &Arc<Store<Managed<D>>>,
    queue: &Arc<Queue>,
) {
    let (sink, dependent) = (queue.clone(), dependent.clone());
    store.on_change(move |change| {
        if matters(change) {
            dependents(&dependent, kind, change.key, &sink);
        }
    });
}

/// Puts those who name an object on the queue.
fn dependents<D: Ours>(store: &Store<Managed<D>>, kind: Kind, of: &Key, queue: &Queue) {
    for (key, _) in store.found(&of.namespace, &ObjectId::new(kind, &*of.name).to_string()) {
        queue.add(key);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::cluster::reflector;

    #[tokio::test]
    async fn a11_who_loses_a_child_is_woken() {
        let (children, queue) = (ChildStores::new(), Queue::new());
        from_children(&children, Kind::ModelAPI, &queue);
        let put = |version: u8, owners: &[(&str, &str)]| {
            let owner = |(kind, name): &(&str, &str)| json!({"apiVersion": "convoke.dev/v1alpha1", "kind": kind, "name": name, "uid": name, "controller": true});
            let owners: Vec<_> = owners.iter().map(owner).collect();
            let service = json!({"metadata": {"name": "s", "namespace": "team", "uid": "u",
                "resourceVersion": version.to_string(), "ownerReferences": owners}});
            let service = serde_json::from_value(service).expect("a Service");
            let (key, entry) = reflector::entry::<Child<Service>>(service);
            children.services.applied(key, entry);
        };
        let woken = async |name: &str| {
            assert!(!queue.is_empty(), "{name} is not woken");
            let key = queue.next().await;
            queue.done(&key);
            assert_eq!(key, Key::new("team", name));
        };
        put(1, &[("ModelAPI", "a")]);
        woken("a").await;
        put(2, &[("ModelAPI", "b")]);
        woken("a").await;
        woken("b").await;
        put(3, &[]);
        woken("b").await;
        put(4, &[("MCPServer", "c")]);
        assert!(queue.is_empty(), "it is none of this controller's");
    }
}
