//! (pure) The parts of a Deployment and a Service that all kinds share: metadata, probes, environment, resources, security.
//!
//! Pods are admitted under the Pod Security level `restricted`.
#![deny(clippy::disallowed_types, clippy::disallowed_methods)]

use std::collections::BTreeMap;

use k8s_openapi::api::apps::v1::{
    Deployment, DeploymentSpec, DeploymentStrategy, RollingUpdateDeployment,
};
use k8s_openapi::api::core::v1::{
    Capabilities, ConfigMapKeySelector, ConfigMapVolumeSource, Container, ContainerPort,
    EmptyDirVolumeSource, EnvVar, EnvVarSource, HTTPGetAction, Lifecycle, LifecycleHandler,
    PodSecurityContext, PodSpec, PodTemplateSpec, Probe, ResourceRequirements, SeccompProfile,
    SecretKeySelector, SecurityContext, Service, ServicePort, ServiceSpec, SleepAction,
    TCPSocketAction, Volume, VolumeMount,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use crate::api::common::{self, Resources};
use crate::api::{Kind, agent::HealthCheck};
use crate::cluster::meta;

/// User and group of all pods.
const USER: i64 = 1000;
/// Seconds between two liveness probes. They begin when the startup probe, each second, has passed once.
const LIVENESS_SECONDS: i32 = 10;
/// Seconds between two readiness probes.
const READINESS_SECONDS: i32 = 5;
/// Failures in a row that count.
const FAILURES: i32 = 3;
/// Seconds for which a pod that goes still serves. Until then each node has heard that the Service leads elsewhere; a server
/// that closes its port before refuses requests.
const SERVE_ON_SECONDS: i64 = 5;
/// Seconds that a program has to end in, from SIGTERM on: as many as Kubernetes gives by default.
const END_SECONDS: i64 = 30;

/// A variable whose value reaches the container as it is.
///
/// Kubernetes expands `$(NAME)` in values and makes one `$` of every two
/// (`k8s.io/kubernetes/third_party/forked/golang/expansion`); a prompt is no template.
#[must_use]
pub fn literal(name: &str, value: impl AsRef<str>) -> EnvVar {
    let value = value.as_ref().replace('$', "$$");
    EnvVar { name: name.to_owned(), value: Some(value), ..EnvVar::default() }
}

/// The value that the container sees, from the one that [`literal`] wrote.
#[must_use]
pub fn unescaped(value: &str) -> String {
    value.replace("$$", "$")
}

/// A variable of a spec. References to Secrets stay references: the pod reads them.
#[must_use]
pub fn variable(var: &common::EnvVar) -> EnvVar {
    let value_from = var.value_from.as_ref().map(source);
    let value =
        if value_from.is_some() { None } else { Some(var.value.clone().unwrap_or_default()) };
    EnvVar { name: var.name.clone(), value, value_from }
}

/// A variable whose value is in a Secret.
#[must_use]
pub fn from_secret(name: &str, key: &common::KeyRef) -> EnvVar {
    let source = common::EnvSource { secret_key_ref: Some(key.clone()), config_map_key_ref: None };
    EnvVar { name: name.to_owned(), value_from: Some(self::source(&source)), ..EnvVar::default() }
}

/// The source of a variable's value.
#[must_use]
pub fn source(from: &common::EnvSource) -> EnvVarSource {
    EnvVarSource {
        secret_key_ref: from.secret_key_ref.as_ref().map(|r| SecretKeySelector {
            name: r.name.clone(),
            key: r.key.clone(),
            optional: r.optional,
        }),
        config_map_key_ref: from.config_map_key_ref.as_ref().map(|r| ConfigMapKeySelector {
            name: r.name.clone(),
            key: r.key.clone(),
            optional: r.optional,
        }),
        ..EnvVarSource::default()
    }
}

/// Merges lists of variables. Later lists win over earlier ones. Each variable keeps the place of its first appearance.
#[must_use]
pub fn merge_env(generated: Vec<EnvVar>, overrides: &[&[common::EnvVar]]) -> Vec<EnvVar> {
    let mut merged = generated;
    for var in overrides.iter().copied().flatten() {
        let var = variable(var);
        match merged.iter_mut().find(|have| have.name == var.name) {
            Some(have) => *have = var,
            None => merged.push(var),
        }
    }
    merged
}

/// Merges as [`merge_env`] does, but a generated variable with a `reserved` name stays as it is. The CRD refuses such names in
/// a spec; an object may be older than that rule.
#[must_use]
pub fn merge_unreserved_env(
    generated: Vec<EnvVar>,
    given: &[common::EnvVar],
    reserved: &[&str],
) -> Vec<EnvVar> {
    let free: Vec<_> = given
        .iter()
        .filter(|var| {
            let name = var.name.as_str();
            !reserved.contains(&name) || generated.iter().all(|have| have.name != name)
        })
        .cloned()
        .collect();
    merge_env(generated, &[&free])
}

/// The compute resources of a spec. `defaults` are `(name, request, limit)`; each applies where the spec names neither request
/// nor limit of that resource.
#[must_use]
pub fn resources(
    given: Option<&Resources>,
    defaults: &[(&str, &str, &str)],
) -> ResourceRequirements {
    let quantity = |value: &IntOrString| {
        Quantity(match value {
            IntOrString::Int(number) => number.to_string(),
            IntOrString::String(text) => text.clone(),
        })
    };
    let read = |map: &BTreeMap<String, IntOrString>| {
        map.iter().map(|(k, v)| (k.clone(), quantity(v))).collect()
    };
    let mut requests: BTreeMap<String, Quantity> =
        given.map(|r| read(&r.requests)).unwrap_or_default();
    let mut limits: BTreeMap<String, Quantity> = given.map(|r| read(&r.limits)).unwrap_or_default();
    for (name, request, limit) in defaults {
        // A given limit below the default request must not make the pod invalid, nor the other way round.
        let (has_request, has_limit) = (requests.contains_key(*name), limits.contains_key(*name));
        if !has_request && !has_limit {
            requests.insert((*name).to_owned(), Quantity((*request).to_owned()));
            limits.insert((*name).to_owned(), Quantity((*limit).to_owned()));
        }
    }
    ResourceRequirements {
        requests: Some(requests),
        limits: Some(limits),
        ..ResourceRequirements::default()
    }
}

/// A container without rights: no root, no capabilities, a read-only root file system, and a scratch `/tmp`.
#[must_use]
pub fn container(
    name: &str,
    image: &str,
    env: Vec<EnvVar>,
    resources: ResourceRequirements,
) -> Container {
    Container {
        name: name.to_owned(),
        image: Some(image.to_owned()),
        image_pull_policy: Some("IfNotPresent".into()),
        env: Some(env),
        resources: Some(resources),
        security_context: Some(SecurityContext {
            allow_privilege_escalation: Some(false),
            read_only_root_filesystem: Some(true),
            run_as_non_root: Some(true),
            capabilities: Some(Capabilities {
                drop: Some(vec!["ALL".into()]),
                ..Capabilities::default()
            }),
            ..SecurityContext::default()
        }),
        volume_mounts: Some(vec![mount("tmp", "/tmp", false)]),
        ..Container::default()
    }
}

/// A mount of a volume.
#[must_use]
pub fn mount(name: &str, path: &str, read_only: bool) -> VolumeMount {
    VolumeMount {
        name: name.to_owned(),
        mount_path: path.to_owned(),
        read_only: read_only.then_some(true),
        ..VolumeMount::default()
    }
}

/// A volume with all files of a ConfigMap.
#[must_use]
pub fn config_volume(name: &str, config_map: &str) -> Volume {
    Volume {
        name: name.to_owned(),
        config_map: Some(ConfigMapVolumeSource {
            name: config_map.to_owned(),
            ..ConfigMapVolumeSource::default()
        }),
        ..Volume::default()
    }
}

/// An empty volume that goes with the pod.
#[must_use]
pub fn scratch(name: &str) -> Volume {
    Volume {
        name: name.to_owned(),
        empty_dir: Some(EmptyDirVolumeSource::default()),
        ..Volume::default()
    }
}

/// A port of a container.
#[must_use]
pub fn port(name: &str, number: i32) -> ContainerPort {
    ContainerPort {
        name: Some(name.to_owned()),
        container_port: number,
        protocol: Some("TCP".into()),
        ..ContainerPort::default()
    }
}

/// The probes of a container that serves HTTP.
pub struct HttpProbes<'a> {
    /// The port that is asked.
    pub port: i32,
    /// The path that says whether the process has started and is alive.
    pub alive: &'a str,
    /// The path that says whether it takes requests.
    pub ready: &'a str,
    /// Seconds that a start may take.
    pub startup_seconds: i32,
    /// The overrides of a spec.
    pub over: Option<&'a HealthCheck>,
}

impl HttpProbes<'_> {
    /// Gives them to a container.
    pub fn watch(&self, container: &mut Container) {
        let Self { port, alive, ready, startup_seconds, over } = self;
        let get = |path: &str, period: i32, failures: i32| Probe {
            http_get: Some(HTTPGetAction {
                path: Some(over.and_then(|h| h.path.clone()).unwrap_or_else(|| path.to_owned())),
                port: IntOrString::Int(*port),
                ..HTTPGetAction::default()
            }),
            period_seconds: Some(period),
            timeout_seconds: Some(over.and_then(|h| h.timeout_seconds).unwrap_or(5)),
            failure_threshold: Some(failures),
            ..Probe::default()
        };
        let every = |seconds| over.and_then(|h| h.interval_seconds).unwrap_or(seconds);
        let failures = over.and_then(|h| h.failure_threshold).unwrap_or(FAILURES);
        let budget = over.and_then(|h| h.startup_seconds).unwrap_or(*startup_seconds);
        container.startup_probe = Some(get(alive, 1, budget));
        container.liveness_probe = Some(get(alive, every(LIVENESS_SECONDS), failures));
        container.readiness_probe = Some(get(ready, every(READINESS_SECONDS), failures));
    }
}

/// Gives a container probes that only open a connection. `startup_seconds` is how long a start may take.
pub fn watch_port(container: &mut Container, port: i32, startup_seconds: i32) {
    let connect = |period: i32, failures: i32| Probe {
        tcp_socket: Some(TCPSocketAction {
            port: IntOrString::Int(port),
            ..TCPSocketAction::default()
        }),
        period_seconds: Some(period),
        timeout_seconds: Some(3),
        failure_threshold: Some(failures),
        ..Probe::default()
    };
    container.startup_probe = Some(connect(1, startup_seconds));
    container.liveness_probe = Some(connect(LIVENESS_SECONDS, FAILURES));
    container.readiness_probe = Some(connect(READINESS_SECONDS, FAILURES));
}

/// Lets a container serve on for a while when its pod goes. Kubernetes waits; nothing of the image is needed for it.
fn serve_on(container: &mut Container) {
    let sleep = SleepAction { seconds: SERVE_ON_SECONDS };
    let before = LifecycleHandler { sleep: Some(sleep), ..LifecycleHandler::default() };
    container.lifecycle = Some(Lifecycle { pre_stop: Some(before), ..Lifecycle::default() });
}

/// What a Deployment is made of.
pub struct DeploymentParts {
    /// Metadata of the Deployment.
    pub meta: ObjectMeta,
    /// Kind of the owner.
    pub kind: Kind,
    /// Name of the owner.
    pub name: String,
    /// How many pods are wanted.
    pub replicas: i32,
    /// Containers that run before the main one.
    pub init: Vec<Container>,
    /// The main container.
    pub container: Container,
    /// Volumes besides the scratch `/tmp`.
    pub volumes: Vec<Volume>,
}

/// The Deployment of these parts.
#[must_use]
pub fn deployment(parts: DeploymentParts) -> Deployment {
    let DeploymentParts { meta, kind, name, replicas, init, mut container, mut volumes } = parts;
    volumes.insert(0, scratch("tmp"));
    serve_on(&mut container);
    let pod = PodSpec {
        automount_service_account_token: Some(false),
        enable_service_links: Some(false),
        security_context: Some(PodSecurityContext {
            run_as_non_root: Some(true),
            run_as_user: Some(USER),
            run_as_group: Some(USER),
            fs_group: Some(USER),
            seccomp_profile: Some(SeccompProfile {
                type_: "RuntimeDefault".into(),
                ..SeccompProfile::default()
            }),
            ..PodSecurityContext::default()
        }),
        init_containers: (!init.is_empty()).then_some(init),
        containers: vec![container],
        termination_grace_period_seconds: Some(SERVE_ON_SECONDS + END_SECONDS),
        volumes: Some(volumes),
        ..PodSpec::default()
    };
    meta::with_hash(Deployment {
        metadata: meta,
        spec: Some(DeploymentSpec {
            replicas: Some(replicas),
            revision_history_limit: Some(3),
            progress_deadline_seconds: Some(600),
            // Set, so that a pause by hand is undone: a paused Deployment rolls out nothing.
            paused: Some(false),
            selector: meta::label_selector(kind, &name),
            strategy: Some(DeploymentStrategy {
                type_: Some("RollingUpdate".into()),
                rolling_update: Some(RollingUpdateDeployment {
                    max_surge: Some(IntOrString::Int(1)),
                    max_unavailable: Some(IntOrString::Int(0)),
                }),
            }),
            template: PodTemplateSpec {
                metadata: Some(ObjectMeta {
                    labels: Some(meta::labels(kind, &name)),
                    ..ObjectMeta::default()
                }),
                spec: Some(pod),
            },
            ..DeploymentSpec::default()
        }),
        status: None,
    })
}

/// The image that the pods of a Deployment run.
#[must_use]
pub fn image_of(deployment: &Deployment) -> Option<String> {
    let pod = deployment.spec.as_ref()?.template.spec.as_ref()?;
    pod.containers.first()?.image.clone()
}

/// A Service in front of the pods: `(name, port, target)`.
#[must_use]
pub fn service(
    metadata: ObjectMeta,
    kind: Kind,
    name: &str,
    ports: &[(&str, i32, i32)],
) -> Service {
    let ports = ports.iter().map(|(name, port, target)| ServicePort {
        name: Some((*name).to_owned()),
        port: *port,
        target_port: Some(IntOrString::Int(*target)),
        protocol: Some("TCP".into()),
        ..ServicePort::default()
    });
    meta::with_hash(Service {
        metadata,
        spec: Some(ServiceSpec {
            selector: Some(meta::selector(kind, name)),
            ports: Some(ports.collect()),
            type_: Some("ClusterIP".into()),
            ..ServiceSpec::default()
        }),
        status: None,
    })
}

/// A Service that leads each client to the same pod, as long as that pod is ready.
#[must_use]
pub fn sticky(mut service: Service) -> Service {
    if let Some(spec) = &mut service.spec {
        spec.session_affinity = Some("ClientIP".into());
    }
    meta::with_hash(service)
}

/// Fails when a pod would not be admitted under the Pod Security level `restricted`. For the tests of every kind.
#[cfg(test)]
pub fn assert_restricted(deployment: &Deployment) {
    let pod = deployment.spec.as_ref().and_then(|s| s.template.spec.as_ref()).expect("pod");
    let security = pod.security_context.as_ref().expect("pod security");
    assert_eq!(security.run_as_non_root, Some(true));
    assert_ne!(security.run_as_user, Some(0));
    assert_eq!(security.seccomp_profile.as_ref().map(|p| p.type_.as_str()), Some("RuntimeDefault"));
    assert_eq!(pod.automount_service_account_token, Some(false));
    assert!(pod.host_network.is_none() && pod.host_pid.is_none() && pod.host_ipc.is_none());
    for volume in pod.volumes.iter().flatten() {
        assert!(volume.host_path.is_none(), "{}", volume.name);
    }
    for container in pod.containers.iter().chain(pod.init_containers.iter().flatten()) {
        let security = container.security_context.as_ref().expect("container security");
        assert_eq!(security.allow_privilege_escalation, Some(false));
        assert_eq!(security.read_only_root_filesystem, Some(true));
        assert_eq!(security.privileged, None);
        let capabilities = security.capabilities.as_ref().expect("capabilities");
        assert_eq!(capabilities.drop.as_deref(), Some(&["ALL".to_owned()][..]));
        assert_eq!(capabilities.add, None);
        assert!(
            container
                .resources
                .as_ref()
                .is_some_and(|r| r.limits.as_ref().is_some_and(|l| !l.is_empty()))
        );
    }
}

#[cfg(test)]
#[path = "tests/pod_template.rs"]
mod tests;
