//! Step "resolve" of an Agent: what it refers to, looked up in the live stores.

use std::sync::Arc;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::EnvVar as PodVariable;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::desired::{child_name, replicas};
use super::environment::{
    MODEL_API, header_variable, headers_variable, server_prefix, server_variable,
};
use super::model_key::ModelKey;
use crate::api::agent::ToolServer;
use crate::api::common::{EnvVar, HeaderFrom, KeyRef};
use crate::api::model_api::ModelMode;
use crate::api::{Agent, Kind, MCPServer};
use crate::cluster::children::ChildStores;
use crate::cluster::live::Stores;
use crate::cluster::store::Key;
use crate::controllers::defaults::Defaults;
use crate::controllers::discovery::{Told, reachable, tools};
use crate::controllers::key_marks::KeyBefore;
use crate::controllers::workload::built_image::{BuiltImage, missing};
use crate::controllers::workload::pod_template::unescaped;
use crate::controllers::{mcp_server, model_api};
use convoke_core::sync::published::wanted_agents::WantedAgents;

/// The model of an agent when nothing names one.
const FALLBACK_MODEL: &str = "smollm2:135m";

/// What an agent refers to. All lists are sorted by name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Resolved {
    /// The address of the ModelAPI, if it is known, without `/v1` at its end.
    pub model_url: Option<String>,
    /// The headers of each request to the model.
    pub model_headers: Vec<HeaderFrom>,
    /// Name of the model; `None` when only the pod knows it, from a Secret or ConfigMap.
    pub model: Option<String>,
    /// The models that the ModelAPI serves; empty when it does not say.
    pub models: Vec<String>,
    /// Why the ModelAPI is known not to be reachable: reason and message.
    pub unreachable: Option<(String, String)>,
    /// Tool servers.
    pub mcp_servers: Vec<Server>,
    /// Peers: name, and whether there is an exposed agent of that name.
    pub peers: Vec<(String, bool)>,
    /// The peers that the pods are told of: those that are there or about to be.
    pub wired: Vec<String>,
    /// Whether one of `wired` is there only until it is known what is wanted. No event tells when that is.
    pub presumed: bool,
    /// The peers that the pods of the live Deployment are told of; `None` without a Deployment.
    pub wired_now: Option<Vec<String>>,
    /// What is missing or not ready, for people: `ModelAPI gpt (missing)`.
    pub waiting_for: Vec<String>,
    /// Whether the status tells `waiting_for`.
    pub dependencies: Dependencies,
    /// The image to run, if it is known.
    pub image: Option<String>,
    /// The AgentBuild that made it, if one did.
    pub image_build: Option<String>,
    /// The AgentBuild whose image is not there yet. Without an image, nothing is rolled out until it has one.
    pub waiting_for_build: Option<String>,
    /// That this AgentBuild is not there, for people.
    pub missing_build: Option<String>,
    /// Whether the Deployment exists already.
    pub deployment_exists: bool,
    /// Whether a dependency will have an address, or a conflict, in a moment.
    pub undecided: bool,
    /// The tools that it names and that their servers do not have: name of the server, and the tools.
    pub missing_tools: Vec<(String, Vec<String>)>,
    /// The servers that are known not to list their tools: name, and the reason.
    pub not_listed: Vec<(String, String)>,
    /// What its pods said when they were last asked, if the status may not tell it yet.
    pub told: Option<Arc<Told>>,
    /// The key by which it asks its model.
    pub model_key: ModelKey,
    /// The keys by which pods that are not replaced yet ask other models.
    pub keys_before: Vec<KeyBefore>,
}

/// A tool server.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Server {
    /// The name of the MCPServer.
    pub name: String,
    /// Its address, if it is known.
    pub url: Option<String>,
    /// The headers of each request to it.
    pub headers: Vec<HeaderFrom>,
}

/// Whether the state of the dependencies is told.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Dependencies {
    /// The status tells it.
    #[default]
    Settled,
    /// A dependency was lost a moment ago. That is told only if it lasts.
    JustLost,
}

impl Resolved {
    /// The AgentBuild without whose image nothing is rolled out.
    #[must_use]
    pub fn held_for_build(&self) -> Option<&str> {
        self.waiting_for_build.as_deref().filter(|_| self.image.is_none())
    }

    /// Whether a first Deployment may be made.
    #[must_use]
    pub fn may_start(&self, agent: &Agent) -> bool {
        let waits = agent.spec.wait_for_dependencies || self.undecided;
        self.waiting_for.is_empty() || !waits
    }
}

/// A variable in the pods of a Deployment.
fn variable_in<'a>(live: &'a Deployment, name: &str) -> Option<&'a PodVariable> {
    let pod = live.spec.as_ref()?.template.spec.as_ref()?;
    pod.containers.first()?.env.as_ref()?.iter().find(|var| var.name == name)
}

/// The key of a Secret that a variable has its value from.
fn secret_of(var: &PodVariable) -> Option<KeyRef> {
    let from = var.value_from.as_ref()?.secret_key_ref.as_ref()?;
    Some(KeyRef { name: from.name.clone(), key: from.key.clone(), optional: from.optional })
}

/// An address to which clients append `/v1/…`: without that ending, which the address of an External ModelAPI usually has.
fn base_url(url: &str) -> String {
    let url = url.trim_end_matches('/');
    match url.strip_suffix("/v1") {
        // A host may be called so, too.
        Some(base) if !base.ends_with(":/") => base.trim_end_matches('/').to_owned(),
        _ => url.to_owned(),
    }
}

/// How a list of variables names the model.
enum ModelName {
    /// By a value.
    Literal(String),
    /// By a reference: only the pod knows the value.
    Reference,
}

fn model_name(vars: &[EnvVar]) -> Option<ModelName> {
    let var = vars.iter().find(|var| var.name == "MODEL_NAME")?;
    if var.value_from.is_some() {
        return Some(ModelName::Reference);
    }
    var.value.clone().filter(|value| !value.is_empty()).map(ModelName::Literal)
}

/// Where the address of a dependency leads.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Address {
    /// To the dependency: its own Service, or out of the cluster.
    Own,
    /// Not known yet: its controller has not seen it, and may make its Service in a moment.
    Undecided,
    /// Nowhere, or to somebody else: its Service is missing, or is another object's.
    Lost,
}

/// A dependency, as far as its address is concerned.
struct Dependency<'a> {
    meta: &'a ObjectMeta,
    /// The generation that its controller has seen.
    seen: Option<i64>,
    /// Whether it runs outside of the cluster.
    external: bool,
    /// The name of its Service.
    service: String,
}

impl Dependency<'_> {
    fn address(self, children: &ChildStores) -> Address {
        let Self { meta, seen, external, service } = self;
        let key = Key::new(meta.namespace.clone().unwrap_or_default(), service);
        if external || children.has_service(meta.uid.as_deref().unwrap_or_default(), &key) {
            Address::Own
        } else if seen < meta.generation {
            Address::Undecided
        } else {
            Address::Lost
        }
    }
}

/// Looks up everything that an agent refers to.
///
/// Addresses and models follow from the specs of the dependencies, so they are known before a dependency is ready. But no pod is
/// told an address whose Service does not belong to the dependency: anybody may answer there. While a dependency that was there
/// is away, its address stays what the pods were told: a loss replaces no pods (A3).
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
    let live = children.deployments.get(&Key::new(&namespace, child_name(&name)));
    let live = live.filter(|entry| entry.value.owner_uid() == agent.metadata.uid.as_deref());
    let resolved = Resolved { deployment_exists: live.is_some(), ..Resolved::default() };
    let live = live.and_then(|entry| entry.value.object());
    let mut resolver =
        Resolver { agent, namespace, stores, children, wanted, defaults, live, resolved };
    resolver.model();
    resolver.mcp_servers();
    resolver.peers();
    resolver.image();
    resolver.resolved
}

/// The tools that an agent names and that a server does not have, in the order of the agent. Empty while it is not known which tools
/// the server has.
fn missing_tools(named: &ToolServer, server: &MCPServer) -> Vec<String> {
    let generation = server.metadata.generation.unwrap_or(0);
    let status = server.status.as_ref();
    let Some(known) = status.and_then(|status| tools::known(status, generation)) else {
        return Vec::new();
    };
    let is_known = |name: &str| known.iter().any(|tool| tool.name == name);
    let mut missing: Vec<String> = Vec::new();
    for name in named.tools.iter().chain(&named.require_approval) {
        if !is_known(name) && !missing.contains(name) {
            missing.push(name.clone());
        }
    }
    missing
}

/// Why a server is known not to list its tools.
fn not_listed(server: &MCPServer) -> Option<String> {
    let generation = server.metadata.generation.unwrap_or(0);
    tools::not_listed(server.status.as_ref()?, generation).map(str::to_owned)
}

/// What the lookups read, and what they have found so far.
struct Resolver<'a> {
    agent: &'a Agent,
    namespace: String,
    stores: &'a Stores,
    children: &'a ChildStores,
    wanted: &'a WantedAgents,
    defaults: &'a Defaults,
    /// The live Deployment, if it belongs to the agent.
    live: Option<Deployment>,
    resolved: Resolved,
}

impl Resolver<'_> {
    fn key(&self, name: &str) -> Key {
        Key::new(&self.namespace, name)
    }

    /// The value of a literal variable in the live pods.
    fn told(&self, variable: &str) -> Option<String> {
        variable_in(self.live.as_ref()?, variable)?.value.as_deref().map(unescaped)
    }

    /// The headers that the live pods are told of.
    fn told_headers(&self, prefix: &str) -> Vec<HeaderFrom> {
        let names = self.told(&headers_variable(prefix)).unwrap_or_default();
        let names = names.split(',').filter(|name| !name.is_empty()).enumerate();
        let header = |(number, name): (usize, &str)| {
            let var = variable_in(self.live.as_ref()?, &header_variable(prefix, number))?;
            Some(HeaderFrom { name: name.to_owned(), secret_key_ref: secret_of(var)? })
        };
        names.filter_map(header).collect()
    }

    /// Takes note of a dependency: of its address, and whether the agent waits for it. `ready` is `None` when it is missing.
    fn depends(&mut self, kind: Kind, name: &str, address: Option<Address>, ready: Option<bool>) {
        self.resolved.undecided |= address == Some(Address::Undecided);
        let state = match ready {
            None => "missing",
            Some(ready) if ready && address == Some(Address::Own) => return,
            Some(_) => "not ready",
        };
        self.resolved.waiting_for.push(format!("{kind} {name} ({state})"));
    }

    /// The ModelAPI and the name of the model.
    fn model(&mut self) {
        let spec = &self.agent.spec;
        let entry = self.stores.model_apis.get(&self.key(&spec.model_api.name));
        let api = entry.as_ref().and_then(|entry| entry.value.object());
        let address = api.as_ref().map(|api| {
            let dependency = Dependency {
                meta: &api.metadata,
                seen: api.status.as_ref().and_then(|status| status.observed_generation),
                external: api.spec.mode == ModelMode::External,
                service: model_api::desired::child_name(&spec.model_api.name),
            };
            dependency.address(self.children)
        });
        self.resolved.unreachable = api.as_ref().and_then(|api| {
            let generation = api.metadata.generation.unwrap_or(0);
            reachable::unreachable(api.status.as_ref()?, generation)
        });
        let ready = entry.as_ref().map(|entry| entry.value.is_ready());
        self.depends(Kind::ModelAPI, &spec.model_api.name, address, ready);
        let own = address == Some(Address::Own);
        let (url, headers) = match &api {
            Some(api) if own => {
                let headers = model_api::desired::headers(api).to_vec();
                (model_api::desired::endpoint(api, self.defaults), headers)
            }
            _ => (self.told("MODEL_API_URL"), self.told_headers(MODEL_API)),
        };
        self.resolved.model_url = url.as_deref().map(base_url);
        self.resolved.model_headers = headers;
        self.resolved.models =
            api.as_ref().map(|api| model_api::desired::models(api)).unwrap_or_default();
        let in_config = spec.config.as_ref().and_then(|config| model_name(&config.env));
        self.resolved.model = match (model_name(&spec.env), spec.model.clone(), in_config) {
            (Some(ModelName::Literal(model)), _, _)
            | (None, Some(model), _)
            | (None, None, Some(ModelName::Literal(model))) => Some(model),
            (Some(ModelName::Reference), _, _) | (None, None, Some(ModelName::Reference)) => None,
            (None, None, None) => {
                let only = match self.resolved.models.as_slice() {
                    [one] if !one.contains('*') => Some(one.clone()),
                    _ => None,
                };
                // While the ModelAPI is away, the model stays what the pods were told, like its address.
                let before = if own { None } else { self.told("MODEL_NAME") };
                Some(before.or(only).unwrap_or_else(|| FALLBACK_MODEL.to_owned()))
            }
        };
    }

    /// The tool servers.
    fn mcp_servers(&mut self) {
        let mut servers: Vec<_> = self.agent.spec.mcp_servers.iter().collect();
        servers.sort_by_key(|server| &server.name);
        for named in servers {
            let server = named.name.clone();
            let entry = self.stores.mcp_servers.get(&self.key(&server));
            let object = entry.as_ref().and_then(|entry| entry.value.object());
            let address = object.as_ref().map(|object| {
                let dependency = Dependency {
                    meta: &object.metadata,
                    seen: object.status.as_ref().and_then(|status| status.observed_generation),
                    external: object.spec.remote.is_some(),
                    service: mcp_server::desired::child_name(&server),
                };
                dependency.address(self.children)
            });
            let ready = entry.as_ref().map(|entry| entry.value.is_ready());
            self.depends(Kind::MCPServer, &server, address, ready);
            let (url, headers) = match &object {
                Some(object) if address == Some(Address::Own) => {
                    let headers = mcp_server::desired::headers(object).to_vec();
                    (Some(mcp_server::desired::endpoint(object, self.defaults)), headers)
                }
                _ => {
                    let headers = self.told_headers(&server_prefix(&server));
                    (self.told(&server_variable(&server)), headers)
                }
            };
            if let Some(reason) = object.as_ref().and_then(|object| not_listed(object)) {
                self.resolved.not_listed.push((server.clone(), reason));
            }
            let missing = object.as_ref().map(|object| missing_tools(named, object));
            if let Some(missing) = missing.filter(|missing| !missing.is_empty()) {
                self.resolved.missing_tools.push((server.clone(), missing));
            }
            self.resolved.mcp_servers.push(Server { name: server, url, headers });
        }
    }

    /// The peers.
    fn peers(&mut self) {
        let network = self.agent.spec.agent_network.as_ref();
        let mut peers = network.map(|network| network.access.clone()).unwrap_or_default();
        peers.sort();
        self.resolved.wired_now = self.resolved.deployment_exists.then(|| {
            let names = self.told("PEER_AGENTS").unwrap_or_default();
            names.split(',').filter(|name| !name.is_empty()).map(str::to_owned).collect()
        });
        // Right after a start it is not known yet what is wanted. Until then what the pods were told stands.
        let unknown = self.stores.git_syncs.list(&self.namespace).iter().any(|(sync, entry)| {
            let active = entry.value.object().is_some_and(|sync| !sync.spec.suspend);
            active && !self.wanted.knows(sync)
        });
        for peer in peers {
            let agent = self.stores.agents.get(&self.key(&peer));
            let there = agent.and_then(|entry| entry.value.object()).is_some_and(|agent| {
                agent.spec.agent_network.as_ref().is_none_or(|network| network.expose)
            });
            let wired_now = self.resolved.wired_now.as_ref();
            let known = there || self.wanted.has(&self.namespace, &peer);
            let presumed =
                !known && unknown && wired_now.is_some_and(|names| names.contains(&peer));
            if known || presumed {
                self.resolved.wired.push(peer.clone());
            }
            self.resolved.presumed |= presumed;
            self.resolved.peers.push((peer, there));
        }
    }

    /// The image.
    fn image(&mut self) {
        let spec = &self.agent.spec;
        let of = match (&spec.image, &spec.build_ref) {
            (Some(image), _) => BuiltImage { image: Some(image.clone()), ..BuiltImage::default() },
            (None, None) => {
                let image = Some(self.defaults.agent_image.clone());
                BuiltImage { image, ..BuiltImage::default() }
            }
            (None, Some(build)) => {
                let builds = &self.stores.agent_builds;
                let entry = builds.get(&self.key(&build.name));
                if entry.is_none() {
                    let text = missing(&build.name, &builds.names(&self.namespace));
                    self.resolved.missing_build = Some(text);
                }
                let built =
                    entry.and_then(|entry| entry.value.object()?.status.clone()?.built_image);
                BuiltImage::of(&build.name, built, self.live.as_ref(), replicas(spec) != 0)
            }
        };
        self.resolved.image = of.image;
        self.resolved.image_build = of.build;
        self.resolved.waiting_for_build = of.waiting_for;
    }
}

#[cfg(test)]
#[path = "tests/resolve.rs"]
mod tests;
