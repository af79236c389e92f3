//! Starts the controllers of Agents, ModelAPIs and MCPServers: one queue and one worker each.

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::task::JoinSet;

use super::ControllerSet;
use super::agent::Agents;
use super::context::{Context, Shared};
use super::defaults::Defaults;
use super::discovery::Discovery;
use super::events::Teller;
use super::inputs::Inputs;
use super::mcp_server::McpServers;
use super::model_api::ModelApis;
use super::pods::Pods;
use super::wake::{on_child_changes, on_own_changes};
use super::workload::{Controller, Workload};
use crate::api::Kind;
use crate::cluster::child_watch;
use crate::cluster::children::{ChildStores, ChildWriter};
use crate::net::Dialler;
use crate::runtime::queue::Queue;
use crate::runtime::worker;
use crate::runtime::write_priority::WritePriority;
use convoke_core::cluster::account::OperatorAccount;
use convoke_core::sync::published::wanted_agents::WantedAgents;

/// The objects of one kind that are reconciled at once; of one namespace half as many.
const CONCURRENT_RECONCILES: usize = 32;

/// What the operator's options say about controllers.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The controllers that run.
    pub set: ControllerSet,
    /// What children look like when the spec does not say.
    pub defaults: Defaults,
    /// The namespace that holds the key for digests of what pods read.
    pub operator_namespace: String,
    /// The operator's own account.
    pub operator: OperatorAccount,
    /// How many labelled ConfigMaps and their keys are followed in each namespace, and how many Secrets and keys of those.
    pub inputs_max_keys: usize,
    /// Connects to External ModelAPIs and remote MCPServers.
    pub dialler: Dialler,
}

/// What controllers watch besides Convoke's own kinds.
pub struct Watched {
    children: ChildStores,
    pods: Arc<Pods>,
}

impl Watched {
    /// The kinds whose first list is not complete yet.
    #[must_use]
    pub fn pending(&self) -> Vec<&'static str> {
        let pods = self.pods.is_pending().then_some("Pod");
        self.children.pending().into_iter().chain(pods).collect()
    }
}

/// Starts controllers as tasks. Gives what they watch, for readiness. The sync engine fills `wanted`.
pub fn start<E: Send + 'static>(
    tasks: &mut JoinSet<Result<(), E>>,
    shared: Shared<'_>,
    settings: Settings,
    wanted: Arc<WantedAgents>,
) -> Option<Watched> {
    let Settings { set, defaults, operator_namespace, operator, inputs_max_keys, dialler } =
        settings;
    if !(set.has(Kind::Agent) || set.has(Kind::ModelAPI) || set.has(Kind::MCPServer)) {
        return None;
    }
    let Shared { client, stores, write_priority } = shared;
    let children = ChildStores::new();
    let pods = Pods::new();
    let discovery =
        Discovery::new(client.clone(), stores.clone(), children.clone(), pods.clone(), dialler);
    let inputs = Inputs::new(client.clone(), operator_namespace, operator, inputs_max_keys);
    let context = Arc::new(Context {
        client: client.clone(),
        stores: stores.clone(),
        children: children.clone(),
        writer: ChildWriter::new(client.clone()),
        defaults,
        pods: pods.clone(),
        discovery: discovery.clone(),
        inputs: inputs.clone(),
        wanted,
        events: Teller::new(client.clone()),
    });

    let mut queues = BTreeMap::new();
    if set.has(Kind::ModelAPI) {
        queues.insert(
            Kind::ModelAPI,
            start_one(tasks, &context, ModelApis::default(), write_priority),
        );
    }
    if set.has(Kind::MCPServer) {
        queues.insert(Kind::MCPServer, start_one(tasks, &context, McpServers, write_priority));
    }
    if set.has(Kind::Agent) {
        let agents = Agents::default();
        queues.insert(Kind::Agent, start_one(tasks, &context, agents, write_priority));
    }

    pods.notify(queues.clone());
    spawn(tasks, pods.clone().run(client.clone()));
    discovery.notify(queues.clone());
    spawn(tasks, discovery.run());
    inputs.notify(queues);
    spawn(tasks, inputs.run());
    // Children are watched by our label. The stores of our own kinds are watched by the caller.
    spawn(tasks, child_watch::run(client.clone(), children.deployments.clone()));
    spawn(tasks, child_watch::run(client.clone(), children.services.clone()));
    spawn(tasks, child_watch::run(client.clone(), children.config_maps.clone()));
    Some(Watched { children, pods })
}

/// Starts the controller of one kind. Gives its queue.
fn start_one<W: Workload, E: Send + 'static>(
    tasks: &mut JoinSet<Result<(), E>>,
    context: &Arc<Context>,
    workload: W,
    write_priority: &Arc<WritePriority>,
) -> Arc<Queue> {
    let queue = Queue::behind_syncs(write_priority);
    on_own_changes(W::store(&context.stores), &queue);
    on_child_changes(&context.children, W::KIND, &queue);
    W::listen(context, &queue);
    let controller = Arc::new(Controller { context: context.clone(), workload });
    spawn(tasks, worker::run(controller, queue.clone(), CONCURRENT_RECONCILES));
    queue
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
