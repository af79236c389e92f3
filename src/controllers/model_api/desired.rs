//! (pure) Step "desired" of a ModelAPI: the children that run LiteLLM or Ollama, or none.
#![deny(clippy::disallowed_types, clippy::disallowed_methods)]

use std::collections::BTreeMap;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{
    ConfigMap, ConfigMapVolumeSource, Container, EnvVar, KeyToPath,
    PersistentVolumeClaimVolumeSource, SecretVolumeSource, Volume,
};
use serde_json::json;

use super::Resolved;
use super::list;
use crate::api::common::HeaderFrom;
use crate::api::model_api::{ConfigYaml, HostedSpec, ModelMode, ProxySpec, RESERVED_ENV};
use crate::api::{Kind, ModelAPI};
use crate::cluster::meta;
use crate::controllers::children::{Children, Keys, Wanted};
use crate::controllers::defaults::Defaults;
use crate::controllers::key_marks::KeyMarks;
use crate::controllers::names::{AGENTS_VOLUME, KEYS_VOLUME, agents_map, proxy_secret};
use crate::controllers::workload::pod_template::{
    DeploymentParts, HttpProbes, config_volume, container, deployment, literal,
    merge_unreserved_env, mount, port, resources, scratch, service, source,
};

/// The port of LiteLLM.
const PROXY_PORT: i32 = 8000;
/// The port where the model proxy tells its metrics, and whether it reaches its provider. Its Service does not have it: what is
/// told there is not for agents.
pub const METRICS_PORT: u16 = 9000;
/// The port of Ollama.
const HOSTED_PORT: i32 = 11434;
/// Seconds that a start of LiteLLM may take. It loads much code, and a tenth of a processor is all that it is sure to get.
const PROXY_STARTUP_SECONDS: i32 = 300;
/// Seconds that a start of Ollama may take. The model is pulled before.
const HOSTED_STARTUP_SECONDS: i32 = 120;
/// LiteLLM's configuration file.
const CONFIG_FILE: &str = "config.yaml";
/// Where the proxy reads its keys, and the list of its agents.
const KEYS_FOLDER: &str = "/etc/convoke/proxy";
const AGENTS_FOLDER: &str = "/etc/convoke/agents";
/// The files with keys are for the user and the group of the pods.
const KEYS_MODE: i32 = 0o440;

/// The script of the container that pulls the model `$1`. It starts an Ollama server, pulls, and ends the server. Under `sh -e` a
/// failed pull fails the script; the exit code of the server does not.
const PULL_SCRIPT: &str = r#"ollama serve & server=$!
until ollama list >/dev/null 2>&1; do kill -0 "$server" || exit 1; sleep 0.2; done
ollama pull "$1"
kill "$server"
wait "$server" || true"#;

/// Name of Deployment, Service and ConfigMap.
#[must_use]
pub fn child_name(name: &str) -> String {
    meta::child_name("modelapi", name, 0)
}

/// The address at which agents reach it.
#[must_use]
pub fn endpoint(api: &ModelAPI, defaults: &Defaults) -> Option<String> {
    let name = child_name(api.metadata.name.as_deref().unwrap_or_default());
    let namespace = api.metadata.namespace.as_deref().unwrap_or_default();
    let host = format!("http://{name}.{namespace}.svc.{}", defaults.cluster_domain);
    match api.spec.mode {
        ModelMode::Proxy => Some(format!("{host}:{PROXY_PORT}")),
        ModelMode::Hosted => Some(format!("{host}:{HOSTED_PORT}")),
        ModelMode::External => api.spec.external.as_ref().map(|external| external.url.clone()),
    }
}

/// The headers that agents send with each request.
#[must_use]
pub fn headers(api: &ModelAPI) -> &[HeaderFrom] {
    api.spec.external.as_ref().map(|external| external.headers_from.as_slice()).unwrap_or_default()
}

/// The models that it serves; empty when it does not say. A configuration of its own is not read.
#[must_use]
pub fn models(api: &ModelAPI) -> Vec<String> {
    match (&api.spec.proxy, &api.spec.hosted) {
        (Some(ProxySpec { models, config_yaml: None, .. }), _) if models.is_empty() => {
            vec!["*".into()]
        }
        (Some(proxy), _) => proxy.models.clone(),
        (None, Some(hosted)) => vec![hosted.model.clone()],
        (None, None) => Vec::new(),
    }
}

/// All children of a ModelAPI.
#[must_use]
pub fn children(api: &ModelAPI, resolved: &Resolved, defaults: &Defaults) -> Children {
    let name = api.metadata.name.clone().unwrap_or_default();
    let meta = || meta::child_meta(api, Kind::ModelAPI, child_name(&name));
    let serve =
        |number| Wanted::Bring(service(meta(), Kind::ModelAPI, &name, &[("http", number, number)]));
    match (api.spec.mode, &api.spec.proxy, &api.spec.hosted) {
        (ModelMode::Proxy, Some(proxy), _) => {
            let config = config_map(api, &name, proxy);
            let run = deployment(proxy_parts(api, proxy, config.as_ref(), defaults));
            let (keys, run) = with_keys(api, resolved, run);
            let list = resolved.agents.text().map(|(text, _)| list::config_map(api, text));
            let agents = list.map_or(Wanted::Keep, Wanted::Bring);
            Children {
                keys,
                config_map: config.map_or(Wanted::Remove, Wanted::Bring),
                agents,
                service: serve(PROXY_PORT),
                deployment: Wanted::Bring(run),
            }
        }
        (ModelMode::Hosted, _, Some(hosted)) => {
            let run = deployment(hosted_parts(api, hosted, defaults));
            let (service, deployment) = (serve(HOSTED_PORT), Wanted::Bring(run));
            Children { service, deployment, ..Children::removed() }
        }
        _ => Children::removed(),
    }
}

/// The Secret of a proxy, and its Deployment with the mark of the keys.
fn with_keys(api: &ModelAPI, resolved: &Resolved, run: Deployment) -> (Keys, Deployment) {
    match &resolved.keys {
        Some(Ok(keys)) => {
            let secret = keys.secret(api);
            let marks = KeyMarks { digest: secret.digest.clone(), issued: None, proxy: None };
            let run = marks.put(run);
            (Keys::Bring(Box::new(secret)), run)
        }
        Some(Err(why)) => {
            let secret = proxy_secret(api.metadata.name.as_deref().unwrap_or_default());
            (Keys::Unknown { secret, why: why.clone() }, run)
        }
        None => (Keys::None, run),
    }
}

/// LiteLLM's configuration. `None`: pods read it from an object that is not the ModelAPI's.
fn config_map(api: &ModelAPI, name: &str, proxy: &ProxySpec) -> Option<ConfigMap> {
    let text = match &proxy.config_yaml {
        None => generated_config(proxy),
        Some(config) => config.inline.clone()?,
    };
    let data = BTreeMap::from([(CONFIG_FILE.to_owned(), text)]);
    let hash = meta::hex8(&crate::cluster::live::hash_json(&json!(data)));
    let child = format!("{}-{hash}", meta::child_name("modelapi", name, 9));
    Some(meta::with_hash(ConfigMap {
        metadata: meta::child_meta(api, Kind::ModelAPI, child),
        data: Some(data),
        immutable: Some(true),
        ..ConfigMap::default()
    }))
}

/// The configuration that Convoke writes. JSON is YAML, and a serializer quotes what must be quoted.
fn generated_config(proxy: &ProxySpec) -> String {
    let all = ["*".to_owned()];
    let models = if proxy.models.is_empty() { &all[..] } else { &proxy.models[..] };
    let list: Vec<_> = models
        .iter()
        .map(|model| {
            let full = match &proxy.provider {
                Some(provider) if !model.starts_with(&format!("{provider}/")) => {
                    format!("{provider}/{model}")
                }
                _ => model.clone(),
            };
            let mut parameters = json!({"model": full});
            if proxy.api_base.is_some() {
                parameters["api_base"] = json!("os.environ/PROXY_API_BASE");
            }
            if proxy.api_key_from.is_some() {
                parameters["api_key"] = json!("os.environ/PROXY_API_KEY");
            }
            json!({"model_name": model, "litellm_params": parameters})
        })
        .collect();
    let config = json!({"model_list": list, "litellm_settings": {"drop_params": true}});
    format!("{config:#}\n")
}

/// The volume with LiteLLM's configuration: the ConfigMap `own`, or one key of another object.
fn config_files(proxy: &ProxySpec, own: Option<&ConfigMap>) -> Volume {
    let name = "config";
    let file = |key: &str| {
        Some(vec![KeyToPath { key: key.to_owned(), path: CONFIG_FILE.into(), mode: None }])
    };
    match &proxy.config_yaml {
        Some(ConfigYaml { config_map_key_ref: Some(r), .. }) => Volume {
            name: name.into(),
            config_map: Some(ConfigMapVolumeSource {
                name: r.name.clone(),
                items: file(&r.key),
                optional: r.optional,
                ..ConfigMapVolumeSource::default()
            }),
            ..Volume::default()
        },
        Some(ConfigYaml { secret_key_ref: Some(r), .. }) => Volume {
            name: name.into(),
            secret: Some(SecretVolumeSource {
                secret_name: Some(r.name.clone()),
                items: file(&r.key),
                optional: r.optional,
                ..SecretVolumeSource::default()
            }),
            ..Volume::default()
        },
        _ => config_volume(
            name,
            own.and_then(|own| own.metadata.name.as_deref()).unwrap_or_default(),
        ),
    }
}

fn proxy_parts(
    api: &ModelAPI,
    proxy: &ProxySpec,
    config: Option<&ConfigMap>,
    defaults: &Defaults,
) -> DeploymentParts {
    let mut env = vec![literal("LITELLM_LOG", "INFO"), literal("HOME", "/tmp")];
    if let Some(base) = &proxy.api_base {
        env.push(literal("PROXY_API_BASE", base));
    }
    if let Some(key) = &proxy.api_key_from {
        env.push(EnvVar {
            name: "PROXY_API_KEY".into(),
            value_from: Some(source(key)),
            ..EnvVar::default()
        });
    }
    let limits =
        resources(api.spec.resources.as_ref(), &[("cpu", "100m", "1"), ("memory", "512Mi", "1Gi")]);
    let image = api.spec.image.as_ref().unwrap_or(&defaults.proxy_image);
    let env = merge_unreserved_env(env, &api.spec.env, RESERVED_ENV);
    let mut main = container("modelapi", image, env, limits);
    main.args = Some(
        ["--config", "/etc/litellm/config.yaml", "--port", "8000"].map(str::to_owned).to_vec(),
    );
    main.ports = Some(vec![port("http", PROXY_PORT), port("metrics", METRICS_PORT.into())]);
    // Plain /health would call every provider.
    let probes = HttpProbes {
        port: PROXY_PORT,
        alive: "/health/liveliness",
        ready: "/health/readiness",
        startup_seconds: PROXY_STARTUP_SECONDS,
        over: None,
    };
    probes.watch(&mut main);
    if let Some(mounts) = &mut main.volume_mounts {
        mounts.push(mount("config", "/etc/litellm", true));
        // Whole folders: a file that is mounted alone never changes.
        mounts.push(mount(KEYS_VOLUME, KEYS_FOLDER, true));
        mounts.push(mount(AGENTS_VOLUME, AGENTS_FOLDER, true));
    }
    let name = api.metadata.name.as_deref().unwrap_or_default();
    let keys = Volume {
        name: KEYS_VOLUME.into(),
        secret: Some(SecretVolumeSource {
            secret_name: Some(proxy_secret(name)),
            default_mode: Some(KEYS_MODE),
            ..SecretVolumeSource::default()
        }),
        ..Volume::default()
    };
    let agents = config_volume(AGENTS_VOLUME, &agents_map(name));
    parts(api, Vec::new(), main, vec![config_files(proxy, config), keys, agents])
}

fn hosted_parts(api: &ModelAPI, hosted: &HostedSpec, defaults: &Defaults) -> DeploymentParts {
    let env = vec![
        literal("OLLAMA_HOST", format!("0.0.0.0:{HOSTED_PORT}")),
        literal("OLLAMA_MODELS", "/models"),
        literal("HOME", "/tmp"),
    ];
    let env = merge_unreserved_env(env, &api.spec.env, RESERVED_ENV);
    let limits =
        resources(api.spec.resources.as_ref(), &[("cpu", "500m", "2"), ("memory", "2Gi", "4Gi")]);
    let image = api.spec.image.as_ref().unwrap_or(&defaults.hosted_image);
    let with_models = |mut container: Container| {
        if let Some(mounts) = &mut container.volume_mounts {
            mounts.push(mount("models", "/models", false));
        }
        container
    };
    let mut pull = with_models(container("pull", image, env.clone(), limits.clone()));
    // The model is an argument of the script, never a part of it.
    pull.command = Some(
        ["/bin/sh", "-ec", PULL_SCRIPT, "pull", hosted.model.as_str()].map(str::to_owned).to_vec(),
    );
    let mut main = with_models(container("modelapi", image, env, limits));
    main.ports = Some(vec![port("http", HOSTED_PORT)]);
    let probes = HttpProbes {
        port: HOSTED_PORT,
        alive: "/",
        ready: "/",
        startup_seconds: HOSTED_STARTUP_SECONDS,
        over: None,
    };
    probes.watch(&mut main);
    let claim = hosted.storage.as_ref().and_then(|storage| storage.claim_name.clone());
    let volume = match claim {
        Some(claim_name) => Volume {
            name: "models".into(),
            persistent_volume_claim: Some(PersistentVolumeClaimVolumeSource {
                claim_name,
                read_only: None,
            }),
            ..Volume::default()
        },
        None => scratch("models"),
    };
    parts(api, vec![pull], main, vec![volume])
}

fn parts(
    api: &ModelAPI,
    init: Vec<Container>,
    main: Container,
    volumes: Vec<Volume>,
) -> DeploymentParts {
    let name = api.metadata.name.as_deref().unwrap_or_default();
    DeploymentParts {
        meta: meta::child_meta(api, Kind::ModelAPI, child_name(name)),
        kind: Kind::ModelAPI,
        name: name.to_owned(),
        replicas: api.spec.replicas.unwrap_or(1),
        init,
        container: main,
        volumes,
    }
}

#[cfg(test)]
#[path = "tests/desired.rs"]
mod tests;
