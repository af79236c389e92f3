//! What an agent refers to, looked up in the live stores.

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::desired::{child_name, server_variable};
use crate::api::common::EnvVar;
use crate::api::model_api::ModelMode;
use crate::api::{Agent, Kind};
use crate::cluster::children::ChildStores;
use crate::cluster::live::Stores;
use crate::cluster::store::Key;
use crate::controllers::defaults::Defaults;
use crate::controllers::wanted_agents::WantedAgents;
use crate::controllers::workload::{image_of, unescaped};
use crate::controllers::{mcp_server, model_api};

/// The model that an agent uses when nobody names one.
const FALLBACK_MODEL: &str = "smollm2:135m";

/// What was found. All lists are sorted by name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Resolved {
    /// Where the ModelAPI is reached, as far as it is known.
    pub model_url: Option<String>,
    /// Name of the model; `None` when only the pod knows it, from a Secret or ConfigMap.
    pub model: Option<String>,
    /// The models that the ModelAPI serves; empty when it does not say.
    pub models: Vec<String>,
    /// Tool servers: name, and where they are reached, as far as it is known.
    pub mcp_servers: Vec<(String, Option<String>)>,
    /// Peers: name, and whether there is an exposed agent of that name.
    pub peers: Vec<(String, bool)>,
    /// Peers that the pods are told of: those that are there, or about to be.
    pub wired: Vec<String>,
    /// Whether a peer is among them only until it is known what is wanted. No event tells when that is.
    pub presumed: bool,
    /// Peers that the pods of the live Deployment are told of; `None` without a Deployment.
    pub wired_now: Option<Vec<String>>,
    /// What is not there or not ready, for people: `ModelAPI gpt (missing)`.
    pub waiting_for: Vec<String>,
    /// The image to run, once it is known.
    pub image: Option<String>,
    /// The build that the image waits for.
    pub waiting_for_build: Option<String>,
    /// Whether the Deployment exists already.
    pub deployment_exists: bool,
    /// Whether something is there that will have an address, or a conflict, in a moment.
    pub undecided: bool,
}

impl Resolved {
    /// Whether a first Deployment may be made.
    #[must_use]
    pub fn may_start(&self, agent: &Agent) -> bool {
        let waits = agent.spec.wait_for_dependencies || self.undecided;
        self.waiting_for.is_empty() || !waits
    }
}

/// What the pods of a Deployment are told in one literal variable.
fn told(live: &Deployment, name: &str) -> Option<String> {
    let pod = live.spec.as_ref()?.template.spec.as_ref()?;
    let var = pod.containers.first()?.env.as_ref()?.iter().find(|var| var.name == name)?;
    var.value.as_deref().map(unescaped)
}

/// How a list of variables names the model.
enum Named {
    Literal(String),
    /// Only the pod knows it.
    Reference,
}

fn named(vars: &[EnvVar]) -> Option<Named> {
    let var = vars.iter().find(|var| var.name == "MODEL_NAME")?;
    if var.value_from.is_some() {
        return Some(Named::Reference);
    }
    var.value.clone().filter(|value| !value.is_empty()).map(Named::Literal)
}

/// Whether the address of something is that of its own pods.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Address {
    /// It leads to its own Service, or out of the cluster.
    Own,
    /// Its controller has not seen it yet: it may get its Service in a moment.
    Undecided,
    /// Its Service is missing, or is somebody else's.
    Lost,
}

/// What `address` asks of an object: its metadata, the generation that its controller has seen, whether it runs
/// elsewhere, and the name of its Service.
struct Asked<'a> {
    meta: &'a ObjectMeta,
    seen: Option<i64>,
    elsewhere: bool,
    service: String,
}

fn address(children: &ChildStores, asked: Asked<'_>) -> Address {
    let Asked { meta, seen, elsewhere, service } = asked;
    let key = Key::new(meta.namespace.clone().unwrap_or_default(), service);
    if elsewhere || children.has_service(meta.uid.as_deref().unwrap_or_default(), &key) {
        Address::Own
    } else if seen < meta.generation {
        Address::Undecided
    } else {
        Address::Lost
    }
}

/// Looks everything up.
///
/// Addresses and models follow from the specs of what is referred to, so they are known before anything is ready. But an
/// address is told to no pod while its Service is not that of its owner: who answers there may be anybody.
/// While something that was there is away, its address stays what the pods were told: a loss replaces no pods (A3).
#[must_use]
pub fn resolve(
    agent: &Agent,
    stores: &Stores,
    children: &ChildStores,
    wanted: &WantedAgents,
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
    let live = children.deployments.get(&Key::new(&namespace, child_name(&name)));
    let live = live.filter(|entry| entry.value.owner_uid() == agent.metadata.uid.as_deref());
    resolved.deployment_exists = live.is_some();
    let live = live.and_then(|entry| entry.value.object());
    let told = |name: &str| told(live.as_ref()?, name);

    let entry = stores.model_apis.get(&Key::new(&namespace, &spec.model_api.name));
    let api = entry.as_ref().and_then(|entry| entry.value.object());
    let at = api.as_ref().map(|api| {
        let asked = Asked {
            meta: &api.metadata,
            seen: api.status.as_ref().and_then(|status| status.observed_generation),
            elsewhere: api.spec.mode == ModelMode::External,
            service: model_api::desired::child_name(&spec.model_api.name),
        };
        address(children, asked)
    });
    let own = at == Some(Address::Own);
    resolved.undecided |= at == Some(Address::Undecided);
    let ready = entry.as_ref().map(|entry| own && entry.value.is_ready());
    resolved.waiting_for.extend(state(Kind::ModelAPI, &spec.model_api.name, ready));
    resolved.model_url = match &api {
        Some(api) if own => model_api::desired::endpoint(api, defaults),
        _ => told("MODEL_API_URL"),
    };
    resolved.models = api.as_ref().map(|api| model_api::desired::models(api)).unwrap_or_default();
    let in_config = spec.config.as_ref().and_then(|config| named(&config.env));
    resolved.model = match (named(&spec.env), spec.model.clone(), in_config) {
        (Some(Named::Literal(model)), _, _)
        | (None, Some(model), _)
        | (None, None, Some(Named::Literal(model))) => Some(model),
        (Some(Named::Reference), _, _) | (None, None, Some(Named::Reference)) => None,
        (None, None, None) => {
            let only = match resolved.models.as_slice() {
                [one] if !one.contains('*') => Some(one.clone()),
                _ => None,
            };
            // As with its address.
            let before = if own { None } else { told("MODEL_NAME") };
            Some(before.or(only).unwrap_or_else(|| FALLBACK_MODEL.to_owned()))
        }
    };

    let mut servers: Vec<_> = spec.mcp_servers.iter().map(|server| server.name.clone()).collect();
    servers.sort();
    for server in servers {
        let entry = stores.mcp_servers.get(&Key::new(&namespace, &server));
        let object = entry.as_ref().and_then(|entry| entry.value.object());
        let at = object.as_ref().map(|object| {
            let asked = Asked {
                meta: &object.metadata,
                seen: object.status.as_ref().and_then(|status| status.observed_generation),
                elsewhere: object.spec.remote.is_some(),
                service: mcp_server::desired::child_name(&server),
            };
            address(children, asked)
        });
        let own = at == Some(Address::Own);
        resolved.undecided |= at == Some(Address::Undecided);
        let ready = entry.as_ref().map(|entry| own && entry.value.is_ready());
        resolved.waiting_for.extend(state(Kind::MCPServer, &server, ready));
        let url = match &object {
            Some(object) if own => Some(mcp_server::desired::endpoint(object, defaults)),
            _ => told(&server_variable(&server)),
        };
        resolved.mcp_servers.push((server, url));
    }

    let mut peers =
        spec.agent_network.as_ref().map(|network| network.access.clone()).unwrap_or_default();
    peers.sort();
    resolved.wired_now = resolved.deployment_exists.then(|| {
        let names = told("PEER_AGENTS").unwrap_or_default();
        names.split(',').filter(|name| !name.is_empty()).map(str::to_owned).collect()
    });
    // Right after a start it is not known yet what is wanted: then what the pods were told stands.
    let unknown = stores.git_syncs.list(&namespace).iter().any(|(sync, entry)| {
        let active = entry.value.object().is_some_and(|sync| !sync.spec.suspend);
        active && !wanted.knows(sync)
    });
    for peer in peers {
        let entry = stores.agents.get(&Key::new(&namespace, &peer));
        let there = entry.is_some_and(|entry| {
            entry
                .value
                .object()
                .is_some_and(|a| a.spec.agent_network.as_ref().is_none_or(|network| network.expose))
        });
        let before = || resolved.wired_now.as_ref().is_some_and(|names| names.contains(&peer));
        let known = there || wanted.has(&namespace, &peer);
        let presumed = !known && unknown && before();
        if known || presumed {
            resolved.wired.push(peer.clone());
        }
        resolved.presumed |= presumed;
        resolved.peers.push((peer, there));
    }

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
            built.or_else(|| image_of(live.as_ref()?))
        }
    };
    resolved
}

#[cfg(test)]
#[path = "resolve_tests.rs"]
mod tests;
