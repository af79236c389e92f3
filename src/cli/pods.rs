//! The pods of an Agent, a ModelAPI or an MCPServer. They are found by who controls them, because everybody who may create a pod
//! may give it any labels.

use std::collections::BTreeMap;

use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::Api;
use kube::api::{DynamicObject, ListParams};
use serde::de::DeserializeOwned;

use super::connection::Connection;
use super::{CLUSTER, FOUND, Failure, USAGE};
use crate::api::{GROUP, Kind};
use crate::cluster::client::{CallError, call};
use crate::cluster::meta::selector;
use crate::cluster::ssa::api_of_kind;
use convoke_core::text::{is_dns_label, printable, quote};

/// Pods of one object.
pub(super) const MAX_PODS: u32 = 500;
/// The Role of `deploy/team.yaml` that gives people the rights that these commands need.
const ROLE: &str = "convoke-ask";

/// An object that has pods.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Workload {
    pub(super) kind: Kind,
    pub(super) name: String,
}

impl Workload {
    /// The kinds that have pods, by the words that name them.
    const KINDS: [(&'static str, Kind); 6] = [
        ("agent", Kind::Agent),
        ("agents", Kind::Agent),
        ("modelapi", Kind::ModelAPI),
        ("modelapis", Kind::ModelAPI),
        ("mcpserver", Kind::MCPServer),
        ("mcpservers", Kind::MCPServer),
    ];

    /// Reads `agent/NAME`. Without a kind it is `default`, if there is one.
    pub(super) fn parse(text: &str, default: Option<Kind>) -> Result<Self, Failure> {
        let wrong = |why: String| Failure::new(USAGE, format!("{}: {why}", quote(text)));
        let (kind, name) = match (text.split_once('/'), default) {
            (Some((kind, name)), _) => {
                let word = kind.to_ascii_lowercase();
                let found = Self::KINDS.into_iter().find(|(known, _)| *known == word);
                let found = found.ok_or_else(|| {
                    let failure = wrong("there are no pods of this kind".into());
                    match super::builds::name_of(text) {
                        Some(Ok(name)) => failure.hint(format!(
                            "of a build there is its log: convoke logs build/{name}; and convoke trace build/{name}"
                        )),
                        _ => failure.hint("name an agent, a modelapi or an mcpserver: agent/NAME"),
                    }
                })?;
                (found.1, name)
            }
            (None, Some(kind)) => (kind, text),
            (None, None) => {
                return Err(wrong("the kind is missing".into())
                    .hint("name it: agent/NAME, modelapi/NAME or mcpserver/NAME"));
            }
        };
        // The names of our kinds may have dots.
        if !name.split('.').all(is_dns_label) {
            return Err(wrong("this is no name".into()));
        }
        Ok(Self { kind, name: name.to_owned() })
    }
}

/// Reads the pods of one object. It remembers who controls what, because neither uids nor owners change.
pub(super) struct Pods<'a> {
    connection: &'a Connection,
    workload: &'a Workload,
    /// The uid of the object.
    uid: String,
    /// Phase and message of the object's status.
    says: String,
    replica_sets: BTreeMap<String, Option<ObjectMeta>>,
    deployments: BTreeMap<String, Option<ObjectMeta>>,
}

impl<'a> Pods<'a> {
    /// Looks at the object.
    pub(super) async fn of(
        connection: &'a Connection,
        workload: &'a Workload,
    ) -> Result<Self, Failure> {
        let (namespace, Workload { kind, name }) = (&connection.namespace, workload);
        let api = api_of_kind(&connection.client, namespace, *kind);
        let object = call(api.get(name)).await.map_err(|error| {
            if error.is_gone() {
                Failure::new(CLUSTER, format!("there is no {kind} {name} in {namespace}"))
                    .hint("name its namespace with -n")
            } else {
                refused(connection, "get", kind.plural(), &error)
            }
        })?;
        Ok(Self::of_object(connection, workload, &object))
    }

    /// The same of an object that was read already.
    pub(super) fn of_object(
        connection: &'a Connection,
        workload: &'a Workload,
        object: &DynamicObject,
    ) -> Self {
        let says = says(object);
        let uid = object.metadata.uid.clone().unwrap_or_default();
        let (replica_sets, deployments) = (BTreeMap::new(), BTreeMap::new());
        Self { connection, workload, uid, says, replica_sets, deployments }
    }

    /// The ReplicaSet of a pod that was listed.
    pub(super) fn replica_set(&self, pod: &Pod) -> Option<&ObjectMeta> {
        let owner = controller(&pod.metadata, "apps", "ReplicaSet")?;
        self.replica_sets.get(&owner.uid)?.as_ref()
    }

    /// The pods that the object controls, by name.
    pub(super) async fn list(&mut self) -> Result<Vec<Pod>, Failure> {
        let Workload { kind, name } = self.workload;
        let api: Api<Pod> =
            Api::namespaced(self.connection.client.clone(), &self.connection.namespace);
        let labels: Vec<_> =
            selector(*kind, name).iter().map(|(key, value)| format!("{key}={value}")).collect();
        let params = ListParams::default().labels(&labels.join(",")).limit(MAX_PODS);
        let list = call(api.list(&params))
            .await
            .map_err(|error| refused(self.connection, "list", "pods", &error))?;
        if list.metadata.continue_.is_some_and(|token| !token.is_empty()) {
            let message = format!("more than {MAX_PODS} pods have the labels of {kind} {name}");
            return Err(Failure::new(CLUSTER, message));
        }
        let mut owned = Vec::new();
        for pod in list.items {
            if self.owns(&pod.metadata).await? {
                owned.push(pod);
            }
        }
        owned.sort_by(|one, other| one.metadata.name.cmp(&other.metadata.name));
        Ok(owned)
    }

    /// Whether the object controls the Deployment that controls the ReplicaSet that controls the pod.
    async fn owns(&mut self, pod: &ObjectMeta) -> Result<bool, Failure> {
        let connection = self.connection;
        let Some(owner) = controller(pod, "apps", "ReplicaSet") else { return Ok(false) };
        let set = known::<ReplicaSet>(connection, &mut self.replica_sets, owner, "replicasets");
        let Some(set) = set.await? else { return Ok(false) };
        let Some(owner) = controller(&set, "apps", "Deployment") else { return Ok(false) };
        let deployment =
            known::<Deployment>(connection, &mut self.deployments, owner, "deployments");
        let Some(deployment) = deployment.await? else { return Ok(false) };
        let owner = controller(&deployment, GROUP, self.workload.kind.as_str());
        Ok(owner.is_some_and(|owner| owner.uid == self.uid && !self.uid.is_empty()))
    }

    /// The failure when no pod can be used.
    pub(super) fn none(&self, what: &str) -> Failure {
        let Workload { kind, name } = self.workload;
        let namespace = &self.connection.namespace;
        let says = if self.says.is_empty() { String::new() } else { format!(": {}", self.says) };
        let resource = kind.as_str().to_lowercase();
        Failure::new(FOUND, format!("{kind} {name} in {namespace} has no {what}{says}"))
            .hint(format!("see why: kubectl -n {namespace} describe {resource} {name}"))
    }
}

/// Phase and message of an object's status, in one line.
fn says(object: &DynamicObject) -> String {
    let text = |key: &str| object.data["status"][key].as_str().unwrap_or_default();
    let all = [text("phase"), text("message")];
    let all = all.into_iter().filter(|text| !text.is_empty()).map(printable);
    all.collect::<Vec<_>>().join(": ")
}

/// The owner that controls an object, if it is of this group and kind.
pub(super) fn controller<'a>(
    meta: &'a ObjectMeta,
    group: &str,
    kind: &str,
) -> Option<&'a OwnerReference> {
    let owner = meta.owner_references.iter().flatten().find(|one| one.controller == Some(true))?;
    let of_group = owner.api_version.split_once('/').is_some_and(|(found, _)| found == group);
    (of_group && owner.kind == kind).then_some(owner)
}

/// The metadata of the object that a reference names, if it is the one with the uid of the reference.
async fn known<K>(
    connection: &Connection,
    seen: &mut BTreeMap<String, Option<ObjectMeta>>,
    owner: &OwnerReference,
    plural: &str,
) -> Result<Option<ObjectMeta>, Failure>
where
    K: kube::Resource<Scope = k8s_openapi::NamespaceResourceScope, DynamicType = ()>
        + Clone
        + DeserializeOwned
        + std::fmt::Debug,
{
    if let Some(found) = seen.get(&owner.uid) {
        return Ok(found.clone());
    }
    let api: Api<K> = Api::namespaced(connection.client.clone(), &connection.namespace);
    let found = match call(api.get_metadata(&owner.name)).await {
        Ok(object) => Some(object.metadata),
        Err(error) if error.is_not_found() => None,
        Err(error) => return Err(refused(connection, "get", plural, &error)),
    };
    let found = found.filter(|meta| meta.uid.as_ref() == Some(&owner.uid));
    seen.insert(owner.uid.clone(), found.clone());
    Ok(found)
}

/// The failure of a call that reads pods or what controls them.
pub(super) fn refused(
    connection: &Connection,
    verb: &str,
    plural: &str,
    error: &CallError,
) -> Failure {
    let namespace = &connection.namespace;
    if error.is_forbidden() {
        let failure =
            Failure::new(CLUSTER, format!("cannot {verb} {plural} in {namespace}: {error}"));
        let lacks = Some(format!("{verb} {plural}"));
        Failure { lacks, ..failure.hint(who_gives_rights(namespace)) }
    } else {
        connection.failure(verb, plural, error)
    }
}

/// Who gives the rights that these commands need.
pub(super) fn who_gives_rights(namespace: &str) -> String {
    format!(
        "the Role {ROLE} of deploy/team.yaml gives this right; whoever runs the namespace binds it: kubectl -n {namespace} create rolebinding {ROLE} --role={ROLE} --user=<you>"
    )
}

/// Whether a pod takes requests.
pub(super) fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.iter().filter_map(|status| status.conditions.as_ref()).flatten();
    let mut ready = conditions.filter(|condition| condition.type_ == "Ready");
    pod.metadata.deletion_timestamp.is_none() && ready.any(|ready| ready.status == "True")
}

#[cfg(test)]
#[path = "tests/pods.rs"]
pub(super) mod tests;
