//! What wakes Agents besides their own changes: their dependencies, the Services of those, and their peers.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Service;

use crate::api::{Agent, Kind};
use crate::cluster::children::{Child, ChildStores};
use crate::cluster::live::Managed;
use crate::cluster::store::{Entry, Key, Store};
use crate::controllers::context::Context;
use crate::controllers::wake::{add_dependents, wake_dependents};
use crate::runtime::queue::Queue;

/// Puts Agents on the queue when something changes that they refer to.
pub fn listen(context: &Context, queue: &Arc<Queue>) {
    let stores = &context.stores;
    wake_dependents(&stores.model_apis, Kind::ModelAPI, &stores.agents, queue);
    wake_dependents(&stores.mcp_servers, Kind::MCPServer, &stores.agents, queue);
    wake_dependents(&stores.agent_builds, Kind::AgentBuild, &stores.agents, queue);
    on_addresses(&context.children, &stores.agents, queue);
    on_peers(&stores.agents, queue);
    let (sink, agents) = (queue.clone(), stores.agents.clone());
    context.wanted.notify(move |peer| add_dependents(&agents, Kind::Agent, peer, &sink));
}

/// The Service of a ModelAPI or an MCPServer that comes, goes or changes hands wakes the Agents that are told its address.
fn on_addresses(children: &ChildStores, agents: &Arc<Store<Managed<Agent>>>, queue: &Arc<Queue>) {
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
                add_dependents(&agents, kind, &Key::new(&change.key.namespace, owner), &sink);
            }
        }
    });
}

/// An Agent wakes its peers only when it comes or goes, or when its exposure changes.
fn on_peers(agents: &Arc<Store<Managed<Agent>>>, queue: &Arc<Queue>) {
    let (sink, peers) = (queue.clone(), agents.clone());
    agents.on_change(move |change| {
        let exposed =
            |agent: &Agent| agent.spec.agent_network.as_ref().is_none_or(|network| network.expose);
        let there = |entry: Option<&Arc<Entry<Managed<Agent>>>>| {
            entry.is_some_and(|entry| entry.value.object().is_some_and(|agent| exposed(&agent)))
        };
        let hash = |entry: Option<&Arc<Entry<Managed<Agent>>>>| {
            entry.and_then(|entry| entry.value.facts.spec_hash)
        };
        if hash(change.old) != hash(change.new) && there(change.old) != there(change.new) {
            add_dependents(&peers, Kind::Agent, change.key, &sink);
        }
    });
}
