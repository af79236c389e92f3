//! MCPServers: an MCPServer runs a tool server, or names an address outside of the cluster.

pub mod desired;
mod package;
pub mod resolve;
pub mod status;

use std::sync::Arc;

use jiff::Timestamp;

use self::resolve::Resolved;
use super::children::Children;
use super::context::Context;
use super::defaults::Defaults;
use super::discovery::{Question, Topic};
use super::wake::wake_dependents;
use super::workload::Workload;
use super::workload::outcome::Applied;
use super::workload::rollout::Newest;
use crate::api::mcp_server::MCPServerStatus;
use crate::api::rollout::RolloutStatus;
use crate::api::{Kind, MCPServer};
use crate::cluster::live::{Managed, Stores};
use crate::cluster::store::{Key, Store};
use crate::runtime::queue::Queue;

/// The kind MCPServer.
pub struct McpServers;

impl Workload for McpServers {
    type Object = MCPServer;
    type Resolved = Resolved;
    type Status = MCPServerStatus;
    const KIND: Kind = Kind::MCPServer;

    fn store(stores: &Stores) -> &Arc<Store<Managed<MCPServer>>> {
        &stores.mcp_servers
    }

    fn child_name(name: &str) -> String {
        desired::child_name(name)
    }

    fn listen(context: &Context, queue: &Arc<Queue>) {
        let stores = &context.stores;
        wake_dependents(&stores.agent_builds, Kind::AgentBuild, &stores.mcp_servers, queue);
    }

    fn resolve(server: &MCPServer, context: &Context) -> Resolved {
        let (key, generation) = (Key::of(&server.metadata), server.metadata.generation);
        let told = context.discovery.told(Kind::MCPServer, &key, generation);
        let Context { stores, children, defaults, .. } = context;
        Resolved { told, ..resolve::resolve(server, stores, children, defaults) }
    }

    fn desired(server: &MCPServer, resolved: &Resolved, defaults: &Defaults) -> Children {
        desired::children(server, resolved, defaults)
    }

    fn newest(server: &MCPServer, resolved: &Resolved) -> Option<Newest> {
        let (spec, image) = (&server.spec, resolved.image.as_deref());
        let deadline = spec.progress_deadline.as_deref();
        spec.build_ref.as_ref()?;
        Some(Newest::of(&server.metadata, spec, image, deadline))
    }

    fn rollout(server: &MCPServer) -> Option<&RolloutStatus> {
        server.status.as_ref()?.rollout.as_ref()
    }

    fn current_status(server: &MCPServer) -> Option<&MCPServerStatus> {
        server.status.as_ref()
    }

    fn status(
        server: &MCPServer,
        resolved: &Resolved,
        applied: &Applied,
        defaults: &Defaults,
        now: Timestamp,
    ) -> MCPServerStatus {
        status::status(server, resolved, applied, defaults, now)
    }

    fn question(server: &MCPServer, _: &Children, defaults: &Defaults) -> Option<Question> {
        let name = server.metadata.name.as_deref().unwrap_or_default();
        let deployment = server.spec.remote.is_none().then(|| desired::child_name(name));
        Some(Question {
            topic: Topic::Tools,
            url: desired::endpoint(server, defaults),
            deployment,
            generation: server.metadata.generation.unwrap_or(0),
        })
    }
}
