//! The children that an object of ours may have, and the one way to bring them where they should be.
//!
//! This is below both `inputs`, which adds an annotation to the Deployment, and `workload`, which applies the children.

use std::sync::Arc;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Service};

use crate::api::Kind;
use crate::cluster::children::secrets::OwnSecret;
use crate::cluster::children::{Brought, Child, ChildKind, ChildStores, ChildWriter, Wrote};
use crate::cluster::client::CallError;
use crate::cluster::store::{Entry, Key, Store};

/// What is to become of one child.
#[derive(Debug, Clone, PartialEq)]
pub enum Wanted<K> {
    /// The child is to be like this.
    Bring(K),
    /// The child is neither made nor touched.
    Keep,
    /// The child is not to be there.
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

/// The Secret with keys that Convoke makes for the pods of an object.
#[derive(Debug, Clone, PartialEq)]
pub enum Keys {
    /// The pods need none.
    None,
    /// It stays as it is. This is its name, if the pods read it.
    Keep(Option<String>),
    /// It is to be like this.
    Bring(Box<OwnSecret>),
    /// Nobody can make it now.
    Unknown {
        /// Its name.
        secret: String,
        /// Why.
        why: String,
    },
}

impl Keys {
    /// The name of the Secret that the pods read.
    #[must_use]
    pub fn secret(&self) -> Option<&str> {
        match self {
            Self::None => None,
            Self::Keep(name) => name.as_deref(),
            Self::Bring(secret) => Some(secret.name()),
            Self::Unknown { secret, .. } => Some(secret),
        }
    }
}

/// All children of one object, in the order in which they are written.
#[derive(Debug, Clone, PartialEq)]
pub struct Children {
    /// The keys. They are there before the pods that read them.
    pub keys: Keys,
    /// The list of agents that a model proxy reads. It is changed in place.
    pub agents: Wanted<ConfigMap>,
    /// The configuration. It is there before the pods that mount it.
    pub config_map: Wanted<ConfigMap>,
    /// The Service. It is there before the pods: an address may be used before anything answers.
    pub service: Wanted<Service>,
    /// The Deployment. It comes last, because it starts pods.
    pub deployment: Wanted<Deployment>,
}

impl Children {
    /// All children stay as they are.
    #[must_use]
    pub const fn kept() -> Self {
        Self {
            keys: Keys::Keep(None),
            config_map: Wanted::Keep,
            agents: Wanted::Keep,
            service: Wanted::Keep,
            deployment: Wanted::Keep,
        }
    }

    /// There are to be no children.
    #[must_use]
    pub const fn removed() -> Self {
        Self {
            keys: Keys::None,
            config_map: Wanted::Remove,
            agents: Wanted::Remove,
            service: Wanted::Remove,
            deployment: Wanted::Remove,
        }
    }

    /// Holds the Deployment: none is made, and none is changed. `runs` says whether there is one.
    pub fn hold(&mut self, runs: bool) {
        // The ConfigMap stays, too, so that no newer one replaces the one that running pods have mounted.
        (self.deployment, self.config_map) = (Wanted::Keep, Wanted::Keep);
        if runs && matches!(self.service, Wanted::Bring(_)) {
            // It leads to pods of the earlier spec, which may listen on another port.
            self.service = Wanted::Keep;
        }
    }
}

/// The object that children belong to.
#[derive(Debug)]
pub struct Owner<'a> {
    /// Its kind.
    pub kind: Kind,
    /// Its namespace and name.
    pub key: &'a Key,
    /// Its UID.
    pub uid: &'a str,
    /// Namespace and name of its Deployment and its Service.
    pub child: Key,
}

impl Owner<'_> {
    /// The Deployment as it is, if it is there and belongs to this owner.
    #[must_use]
    pub fn live_deployment(&self, stores: &ChildStores) -> Option<Deployment> {
        live_deployment(stores, self.uid, &self.child)
    }
}

/// The Deployment of that name as it is, if it is there and belongs to the owner with this UID.
#[must_use]
pub fn live_deployment(stores: &ChildStores, owner_uid: &str, key: &Key) -> Option<Deployment> {
    let entry = stores.deployments.get(key)?;
    (entry.value.owner_uid() == Some(owner_uid)).then(|| entry.value.object())?
}

/// Children whose names other objects have. Each text names the child and the other object, for people.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NamesTaken {
    /// The other object is a stranger's.
    pub conflicts: Vec<String>,
    /// The other object is left from an earlier owner of the same name, and is about to go.
    pub leftovers: Vec<String>,
}

impl NamesTaken {
    /// Takes over other names that are taken.
    pub fn extend(&mut self, other: Self) {
        let Self { conflicts, leftovers } = other;
        self.conflicts.extend(conflicts);
        self.leftovers.extend(leftovers);
    }

    /// Whether no name is taken.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.conflicts.is_empty() && self.leftovers.is_empty()
    }

    /// Takes note of what became of one child. Gives the child back if it is the owner's.
    fn note<K>(&mut self, brought: Option<Brought<K>>) -> Option<(Arc<Entry<Child<K>>>, Wrote)> {
        match brought? {
            Brought::Ours(child, wrote) => return Some((child, wrote)),
            Brought::Conflict(who) => self.conflicts.push(who),
            Brought::Leftover(which) => self.leftovers.push(which),
        }
        None
    }
}

/// What became of all children.
#[derive(Debug)]
pub struct BroughtChildren {
    /// The names that other objects have.
    pub taken: NamesTaken,
    /// The Deployment, if it is there and belongs to the owner.
    pub deployment: Option<Deployment>,
    /// What was written of the Deployment.
    pub wrote: Wrote,
}

/// Brings all children where they should be, but for the keys, which are brought before. The Deployment stays as it is while
/// another object has the name of a child before it.
///
/// `judged` is the Deployment as it was when it was decided what is to become of the children. `None` is returned when it has gone
/// since: what runs is not held, but pods that are made anew may have to be.
///
/// # Errors
/// The first write that fails.
pub async fn bring(
    writer: &ChildWriter,
    stores: &ChildStores,
    owner: &Owner<'_>,
    children: &Children,
    judged: Option<&Deployment>,
) -> Result<Option<BroughtChildren>, CallError> {
    // Destructured whole: a new child that is not brought here does not compile.
    let Children { keys: _, config_map, agents, service, deployment } = children;
    let ChildStores { deployments, services, config_maps } = stores;
    let mut taken = NamesTaken::default();
    // What fails after it does not keep a key good that is to end.
    if let Wanted::Bring(list) = agents {
        taken.note(Some(writer.bring(config_maps, owner.uid, list).await?));
    }
    taken.note(bring_one(writer, config_maps, owner, config_map).await?);
    taken.note(bring_one(writer, services, owner, service).await?);
    if !taken.is_empty() {
        // What runs goes on, and the status says how it is.
        let deployment = owner.live_deployment(stores);
        return Ok(Some(BroughtChildren { taken, deployment, wrote: Wrote::Nothing }));
    }
    if judged.is_some() && owner.live_deployment(stores).is_none() {
        return Ok(None);
    }
    let brought = taken.note(bring_one(writer, deployments, owner, deployment).await?);
    let (deployment, wrote) = match brought {
        Some((live, wrote)) => (live.value.object(), wrote),
        None => (None, Wrote::Nothing),
    };
    Ok(Some(BroughtChildren { taken, deployment, wrote }))
}

/// Brings one child where it should be. `None` when there is none afterwards.
async fn bring_one<K: ChildKind>(
    writer: &ChildWriter,
    store: &Store<Child<K>>,
    owner: &Owner<'_>,
    wanted: &Wanted<K>,
) -> Result<Option<Brought<K>>, CallError> {
    match wanted {
        Wanted::Bring(child) => writer.bring(store, owner.uid, child).await.map(Some),
        Wanted::Keep => {
            let live = store.get(&owner.child);
            let live = live.filter(|entry| entry.value.owner_uid() == Some(owner.uid));
            Ok(live.map(|live| Brought::Ours(live, Wrote::Nothing)))
        }
        Wanted::Remove => {
            writer.remove(store, owner.uid, &owner.child).await?;
            Ok(None)
        }
    }
}

#[cfg(test)]
#[path = "tests/children.rs"]
mod tests;
