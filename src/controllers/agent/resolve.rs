//! What an agent refers to, looked up in the live stores.

use crate::api::{Agent, Kind};
use crate::cluster::children::ChildStores;
use crate::cluster::live::Stores;
use crate::cluster::store::Key;
use crate::controllers::defaults::Defaults;

/// The model that an agent uses when nobody names one.
const FALLBACK_MODEL: &str = "smollm2:135m";

/// What was found. All lists are sorted by name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Resolved {
    /// Where the ModelAPI is reached, once it says so.
    pub model_url: Option<String>,
    /// Name of the model.
    pub model: String,
    /// The models that the ModelAPI serves; empty when it does not say.
    pub models: Vec<String>,
    /// Tool servers: name, and where they are reached once they say so.
    pub mcp_servers: Vec<(String, Option<String>)>,
    /// Peers: name, and whether there is an exposed agent of that name.
    pub peers: Vec<(String, bool)>,
    /// What is not there or not ready, for people: `ModelAPI gpt (missing)`.
    pub waiting_for: Vec<String>,
    /// The image to run, once it is known.
    pub image: Option<String>,
    /// The build that the image waits for.
    pub waiting_for_build: Option<String>,
    /// Whether the Deployment exists already.
    pub deployment_exists: bool,
}

impl Resolved {
    /// Whether a first Deployment may be made.
    #[must_use]
    pub fn may_start(&self, agent: &Agent) -> bool {
        self.waiting_for.is_empty() || !agent.spec.wait_for_dependencies
    }
}

/// Looks everything up.
#[must_use]
pub fn resolve(
    agent: &Agent,
    stores: &Stores,
    children: &ChildStores,
    defaults: &Defaults,
) -> Resolved {
    let namespace = agent.metadata.namespace.clone().unwrap_or_default();
    let name = agent.metadata.name.clone().unwrap_or_default();
    let spec = &agent.spec;
    let mut resolved = Resolved::default();
    let state = |kind: Kind, name: &str, ready: Option<bool>| match ready {
        None => Some(format!("{kind} {name} (missing)")),
        Some(false) => Some(format!("{kind} {name} (not ready)")),
        Some(true) => None,
    };

    let model_api = stores.model_apis.get(&Key::new(&namespace, &spec.model_api.name));
    let ready = model_api.as_ref().map(|entry| entry.value.is_ready());
    resolved.waiting_for.extend(state(Kind::ModelAPI, &spec.model_api.name, ready));
    let status = model_api
        .as_ref()
        .and_then(|entry| entry.value.object()?.status.clone())
        .unwrap_or_default();
    resolved.model_url = status.endpoint;
    resolved.models = status.models;
    let from_env = spec.config.as_ref().and_then(|config| {
        config.env.iter().find(|var| var.name == "MODEL_NAME").and_then(|var| var.value.clone())
    });
    let only = match resolved.models.as_slice() {
        [one] if !one.contains('*') => Some(one.clone()),
        _ => None,
    };
    resolved.model =
        spec.model.clone().or(from_env).or(only).unwrap_or_else(|| FALLBACK_MODEL.to_owned());

    let mut servers: Vec<_> = spec.mcp_servers.iter().map(|server| server.name.clone()).collect();
    servers.sort();
    for server in servers {
        let entry = stores.mcp_servers.get(&Key::new(&namespace, &server));
        let ready = entry.as_ref().map(|entry| entry.value.is_ready());
        resolved.waiting_for.extend(state(Kind::MCPServer, &server, ready));
        let url = entry.and_then(|entry| entry.value.object()?.status.clone()?.endpoint);
        resolved.mcp_servers.push((server, url));
    }

    let mut peers =
        spec.agent_network.as_ref().map(|network| network.access.clone()).unwrap_or_default();
    peers.sort();
    for peer in peers {
        let entry = stores.agents.get(&Key::new(&namespace, &peer));
        let there = entry.is_some_and(|entry| {
            entry
                .value
                .object()
                .is_some_and(|a| a.spec.agent_network.as_ref().is_none_or(|network| network.expose))
        });
        resolved.peers.push((peer, there));
    }

    let live = children.deployments.get(&Key::new(&namespace, super::desired::child_name(&name)));
    let live = live.filter(|entry| entry.value.owner_uid() == agent.metadata.uid.as_deref());
    resolved.deployment_exists = live.is_some();
    resolved.image = match (&spec.image, &spec.build_ref) {
        (Some(image), _) => Some(image.clone()),
        (None, None) => Some(defaults.agent_image.clone()),
        (None, Some(build)) => {
            let entry = stores.agent_builds.get(&Key::new(&namespace, &build.name));
            let built = entry.and_then(|entry| entry.value.object()?.status.clone()?.built_image);
            if built.is_none() {
                resolved.waiting_for_build = Some(build.name.clone());
            }
            // A build that has lost its image does not stop what runs.
            built.or_else(|| {
                let spec = live.as_ref()?.value.object.spec.as_ref()?.template.spec.as_ref()?;
                spec.containers.first()?.image.clone()
            })
        }
    };
    resolved
}
