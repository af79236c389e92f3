//! The children that every kind of ours may have, and the one way to bring them where they should be.

use std::sync::Arc;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Service};

use crate::cluster::children::{Brought, Child, ChildKind, ChildStores, ChildWriter, Wrote};
use crate::cluster::client::CallError;
use crate::cluster::store::{Entry, Key, Store};

/// What is to become of one child.
#[derive(Debug, Clone, PartialEq)]
pub enum Wanted<K> {
    /// It is to be like this.
    Bring(K),
    /// It is not to be made, and not to be touched.
    Keep,
    /// It is not to be there.
    Remove,
}

impl<K> Wanted<K> {
    /// The wanted child.
    pub const fn get(&self) -> Option<&K> {
        match self {
            Self::Bring(child) => Some(child),
            Self::Keep | Self::Remove => None,
        }
    }
}

/// All children of one object.
#[derive(Debug, Clone, PartialEq)]
pub struct Children {
    /// Configuration; before what mounts it.
    pub config_map: Wanted<ConfigMap>,
    /// Before the pods: an address may be used before somebody answers.
    pub service: Wanted<Service>,
    /// Last: it starts pods.
    pub deployment: Wanted<Deployment>,
}

impl Children {
    /// Everything stays as it is.
    #[must_use]
    pub const fn kept() -> Self {
        Self { config_map: Wanted::Keep, service: Wanted::Keep, deployment: Wanted::Keep }
    }
}

/// Why children could not be brought where they should be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// For people.
    pub message: String,
    /// Whether another try with the same content is of no use.
    pub lasting: bool,
}

impl From<&CallError> for Failure {
    fn from(error: &CallError) -> Self {
        Self { message: error.to_string(), lasting: error.is_invalid() || error.is_forbidden() }
    }
}

/// What came of it.
#[derive(Debug, Default)]
pub struct Applied {
    /// Names that somebody else has, for people.
    pub conflicts: Vec<String>,
    /// Names that are still those of an earlier owner's children, for people.
    pub leftovers: Vec<String>,
    /// The Deployment, if it is there and ours.
    pub deployment: Option<Deployment>,
    /// What was written of it.
    pub wrote: Wrote,
}

/// A Deployment as it is, if it is there and belongs to this owner.
#[must_use]
pub fn live_deployment(stores: &ChildStores, owner_uid: &str, key: &Key) -> Option<Deployment> {
    let entry = stores.deployments.get(key)?;
    (entry.value.owner_uid() == Some(owner_uid)).then(|| entry.value.object())?
}

/// Brings all children where they should be. `name` is the name of Service and Deployment.
///
/// # Errors
/// The first write that fails.
pub async fn apply(
    writer: &ChildWriter,
    stores: &ChildStores,
    owner_uid: &str,
    key: &Key,
    children: &Children,
) -> Result<Applied, CallError> {
    // Destructured whole: a new child that is not brought here does not compile.
    let Children { config_map, service, deployment } = children;
    let ChildStores { deployments, services, config_maps } = stores;
    let mut applied = Applied::default();
    one(writer, config_maps, owner_uid, key, config_map, &mut applied).await?;
    one(writer, services, owner_uid, key, service, &mut applied).await?;
    if applied.conflicts.is_empty() && applied.leftovers.is_empty() {
        let live = one(writer, deployments, owner_uid, key, deployment, &mut applied).await?;
        if let Some((live, wrote)) = live {
            applied.deployment = live.value.object();
            applied.wrote = wrote;
        }
    } else {
        // What runs goes on, and is told.
        applied.deployment = live_deployment(stores, owner_uid, key);
    }
    Ok(applied)
}

async fn one<K: ChildKind>(
    writer: &ChildWriter,
    store: &Store<Child<K>>,
    owner_uid: &str,
    key: &Key,
    wanted: &Wanted<K>,
    applied: &mut Applied,
) -> Result<Option<(Arc<Entry<Child<K>>>, Wrote)>, CallError> {
    match wanted {
        Wanted::Bring(child) => match writer.bring(store, owner_uid, child).await? {
            Brought::Ours(entry, wrote) => Ok(Some((entry, wrote))),
            Brought::Conflict(who) => {
                applied.conflicts.push(who);
                Ok(None)
            }
            Brought::Leftover(which) => {
                applied.leftovers.push(which);
                Ok(None)
            }
        },
        Wanted::Keep => {
            let live = store.get(key).filter(|entry| entry.value.owner_uid() == Some(owner_uid));
            Ok(live.map(|live| (live, Wrote::Nothing)))
        }
        Wanted::Remove => {
            writer.remove(store, owner_uid, key).await?;
            Ok(None)
        }
    }
}
