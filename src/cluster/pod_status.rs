//! (pure) The fields of a pod that say whether it runs, and where. Only these are parsed.
#![deny(clippy::disallowed_types, clippy::disallowed_methods)]

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde::Deserialize;
use serde::de::IgnoredAny;

/// The fields of a pod that say whether it runs, and where.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Pod {
    pub(super) metadata: Meta,
    pub(super) spec: Spec,
    pub(super) status: Status,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Meta {
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) uid: String,
    pub(super) resource_version: String,
    pub(super) deletion_timestamp: Option<IgnoredAny>,
    pub(super) labels: Labels,
    pub(super) owner_references: Option<Vec<Owner>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Labels {
    #[serde(rename = "convoke.dev/kind")]
    pub(super) kind: String,
    #[serde(rename = "convoke.dev/name")]
    pub(super) name: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Owner {
    pub(super) kind: String,
    pub(super) name: String,
    pub(super) uid: String,
    pub(super) controller: Option<bool>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Spec {
    pub(super) node_name: Option<String>,
    pub(super) host_network: bool,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Status {
    pub(super) phase: String,
    #[serde(rename = "podIP")]
    pub(super) pod_ip: Option<String>,
    #[serde(rename = "hostIP")]
    pub(super) host_ip: Option<String>,
    pub(super) conditions: Option<Vec<Condition>>,
    pub(super) init_container_statuses: Option<Vec<Container>>,
    pub(super) container_statuses: Option<Vec<Container>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Condition {
    #[serde(rename = "type")]
    pub(super) type_: String,
    pub(super) status: String,
    pub(super) reason: Option<String>,
    pub(super) message: Option<String>,
    pub(super) last_transition_time: Option<Time>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Container {
    pub(super) name: String,
    pub(super) image: String,
    pub(super) ready: bool,
    pub(super) state: State,
    pub(super) last_state: State,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct State {
    pub(super) waiting: Option<Waiting>,
    pub(super) running: Option<Running>,
    pub(super) terminated: Option<Terminated>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Waiting {
    pub(super) reason: Option<String>,
    pub(super) message: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Running {
    pub(super) started_at: Option<Time>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Terminated {
    pub(super) exit_code: i64,
    pub(super) reason: Option<String>,
    pub(super) message: Option<String>,
}
