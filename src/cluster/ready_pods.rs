//! (pure) The pods that are kept, and those among them that can be asked something: the ready ones.
#![deny(clippy::disallowed_types, clippy::disallowed_methods)]

use std::net::IpAddr;
use std::sync::Arc;

use k8s_openapi::api::apps::v1::Deployment;

use super::pod_status::{Labels, Owner, Spec, Status};
use super::pods::{FailingPod, belongs_to_newest, term};
use super::store::{Entry, Key};
use crate::net::AddressClass;
use crate::packed::Texts;

/// A pod that is kept. The others start, end, or belong to no Deployment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SeenPod {
    /// It does not run as it should.
    Failing(FailingPod),
    /// It is ready.
    Ready(ReadyPod),
}

impl SeenPod {
    /// Kind (in lower case) and name of the object whose pod it is.
    #[must_use]
    pub fn owner(&self) -> (&str, &str) {
        match self {
            Self::Failing(pod) => (pod.owner_kind(), pod.owner_name()),
            Self::Ready(pod) => (pod.owner_kind(), pod.owner_name()),
        }
    }

    /// The index terms of the pod: its owner.
    #[must_use]
    pub fn terms(&self) -> Vec<String> {
        let (kind, name) = self.owner();
        vec![term(kind, name)]
    }

    /// The pod if it does not run as it should.
    #[must_use]
    pub const fn failing(&self) -> Option<&FailingPod> {
        match self {
            Self::Failing(pod) => Some(pod),
            Self::Ready(_) => None,
        }
    }

    /// Keeps an earlier message that says more; see [`FailingPod::after`].
    #[must_use]
    pub fn after(self, before: &Self) -> Self {
        match (self, before) {
            (Self::Failing(pod), Self::Failing(before)) => Self::Failing(pod.after(before)),
            (pod, _) => pod,
        }
    }
}

/// A pod that is ready and has an address of its own. A pod takes some hundred bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadyPod {
    /// Its address.
    pub ip: IpAddr,
    /// Texts at the places [`OWNER_KIND`] to [`SET_UID`].
    about: Texts,
}

/// Places in [`ReadyPod::about`]: the labels that name the object, name and UID of the ReplicaSet.
const OWNER_KIND: usize = 0;
const OWNER_NAME: usize = 1;
const SET: usize = 2;
const SET_UID: usize = 3;

impl ReadyPod {
    fn about(&self, place: usize) -> &str {
        self.about.get(place).unwrap_or_default()
    }

    /// The kind of the object whose pod it claims to be, in lower case.
    #[must_use]
    pub fn owner_kind(&self) -> &str {
        self.about(OWNER_KIND)
    }

    /// The name of that object.
    #[must_use]
    pub fn owner_name(&self) -> &str {
        self.about(OWNER_NAME)
    }

    /// The name of the ReplicaSet that it claims as its controller.
    #[must_use]
    pub fn set(&self) -> &str {
        self.about(SET)
    }

    /// The UID of that ReplicaSet.
    #[must_use]
    pub fn set_uid(&self) -> &str {
        self.about(SET_UID)
    }
}

/// What is kept of a pod if it is ready. A pod on the network of its host is not: its address leads to whatever runs there.
pub(super) fn ready(
    labels: &Labels,
    set: &Owner,
    spec: &Spec,
    status: &Status,
) -> Option<ReadyPod> {
    let conditions = status.conditions.as_deref().unwrap_or_default();
    let is_ready = conditions.iter().any(|c| c.type_ == "Ready" && c.status == "True");
    let has_own_network = !spec.host_network && status.pod_ip != status.host_ip;
    if !is_ready || status.phase != "Running" || !has_own_network {
        return None;
    }
    let ip: IpAddr = status.pod_ip.as_deref()?.parse().ok()?;
    if matches!(AddressClass::of(ip), AddressClass::Loopback | AddressClass::Never(_)) {
        return None;
    }
    let about = Texts::of([labels.kind.as_str(), &labels.name, &set.name, &set.uid]);
    Some(ReadyPod { ip, about })
}

/// The ready pod of a Deployment's newest revision that is asked: the one with the UID `before` if it is still there, else the
/// first by name. `seen` are pods of the Deployment's owner. With `set_uid`, only pods of the ReplicaSet with this UID count.
#[must_use]
pub fn chosen(
    deployment: &Deployment,
    seen: &[(Key, Arc<Entry<SeenPod>>)],
    before: Option<&str>,
    set_uid: Option<&str>,
) -> Option<(Key, String, ReadyPod)> {
    let is_of_set = |pod: &ReadyPod| set_uid.is_none_or(|uid| pod.set_uid() == uid);
    let ours = seen.iter().filter_map(|(key, entry)| match &entry.value {
        SeenPod::Ready(pod) if belongs_to_newest(deployment, pod.set()) && is_of_set(pod) => {
            Some((key, &entry.uid, pod))
        }
        SeenPod::Ready(_) | SeenPod::Failing(_) => None,
    });
    let (key, uid, pod) =
        ours.min_by_key(|(key, uid, _)| (before != Some(uid.as_str()), &key.name))?;
    Some((key.clone(), uid.clone(), pod.clone()))
}

#[cfg(test)]
#[path = "tests/ready_pods.rs"]
mod tests;
