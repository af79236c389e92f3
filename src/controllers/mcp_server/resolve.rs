//! Step "resolve" of an MCPServer: the image that its AgentBuild made, looked up in the live stores.

use std::sync::Arc;

use super::desired::{child_name, image, running_image};
use crate::api::MCPServer;
use crate::cluster::children::ChildStores;
use crate::cluster::live::Stores;
use crate::cluster::store::Key;
use crate::controllers::children::live_deployment;
use crate::controllers::defaults::Defaults;
use crate::controllers::discovery::Told;
use crate::controllers::workload::serving::{Place, Serving};

/// What an MCPServer refers to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Resolved {
    /// The image that it runs or is to run, if it is known.
    pub image: Option<String>,
    /// Where it is served, and the AgentBuild that it waits for.
    pub serving: Serving,
    /// What it said when it was last asked, if the status may not tell it yet.
    pub told: Option<Arc<Told>>,
}

/// Looks up everything that an MCPServer refers to.
#[must_use]
pub fn resolve(
    server: &MCPServer,
    stores: &Stores,
    children: &ChildStores,
    defaults: &Defaults,
) -> Resolved {
    let namespace = server.metadata.namespace.as_deref().unwrap_or_default();
    let name = server.metadata.name.as_deref().unwrap_or_default();
    let uid = server.metadata.uid.as_deref().unwrap_or_default();
    let build = server.spec.build_ref.as_ref().map(|build| build.name.clone());
    let built = build.as_ref().and_then(|build| {
        let entry = stores.agent_builds.get(&Key::new(namespace, build))?;
        entry.value.object()?.status.clone()?.built_image
    });
    let waiting_for_build = build.filter(|_| built.is_none());
    // A build that has lost its image does not stop what runs.
    let built = built.or_else(|| {
        let live = live_deployment(children, uid, &Key::new(namespace, child_name(name)))?;
        running_image(&live)
    });
    let image = image(server, built.as_deref(), defaults);
    let place = if server.spec.remote.is_some() { Place::Elsewhere } else { Place::Pods };
    Resolved { image, serving: Serving { place, waiting_for_build }, told: None }
}
