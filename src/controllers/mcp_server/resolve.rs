//! Step "resolve" of an MCPServer: the image that its AgentBuild made, looked up in the live stores.

use std::sync::Arc;

use super::desired::{child_name, image};
use crate::api::MCPServer;
use crate::cluster::children::ChildStores;
use crate::cluster::live::Stores;
use crate::cluster::store::Key;
use crate::controllers::children::live_deployment;
use crate::controllers::defaults::Defaults;
use crate::controllers::discovery::Told;
use crate::controllers::workload::built_image::{BuiltImage, missing};
use crate::controllers::workload::serving::{Place, Serving};

/// What an MCPServer refers to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Resolved {
    /// The image that it runs or is to run, if it is known.
    pub image: Option<String>,
    /// The AgentBuild that made it, if one did.
    pub image_build: Option<String>,
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
    let mut missing_build = None;
    let of = server.spec.build_ref.as_ref().map(|build| {
        let entry = stores.agent_builds.get(&Key::new(namespace, &build.name));
        if entry.is_none() {
            missing_build = Some(missing(&build.name, &stores.agent_builds.names(namespace)));
        }
        let built = entry.and_then(|entry| entry.value.object()?.status.clone()?.built_image);
        let live = live_deployment(children, uid, &Key::new(namespace, child_name(name)));
        let has_pods = server.spec.replicas != Some(0);
        BuiltImage::of(&build.name, built, live.as_ref(), has_pods)
    });
    let BuiltImage { image: built, build, waiting_for } = of.unwrap_or_default();
    let image = image(server, built.as_deref(), defaults);
    let place = if server.spec.remote.is_some() { Place::Elsewhere } else { Place::Pods };
    let is_held = waiting_for.is_some() && image.is_none();
    let serving = Serving { place, waiting_for_build: waiting_for, missing_build, is_held };
    Resolved { image, image_build: build, serving, told: None }
}
