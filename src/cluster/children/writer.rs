//! The only code that writes Deployments, Services and ConfigMaps of our objects.

use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::Client;
use parking_lot::Mutex;

use super::secrets::Secrets;
use super::settled::Settled;
use super::{Child, ChildKind, Content, Wrote};
use crate::api::keys;
use crate::cluster::client::{CallError, failed};
use crate::cluster::reflector;
use crate::cluster::ssa::{self, Deleted, Mode};
use crate::cluster::store::{Entry, Key, Store};

/// The result of [`ChildWriter::bring`].
#[derive(Debug)]
pub enum Brought<K> {
    /// The child exists as wanted. The second value says what had to be written for that.
    Ours(Arc<Entry<Child<K>>>, Wrote),
    /// Another object has the name. The text says whose it is.
    Conflict(String),
    /// The child of an earlier owner of the same name still exists. The text says which one.
    Leftover(String),
}

/// Writes the children of one controller's objects.
pub struct ChildWriter {
    pub(super) client: Client,
    settled: Mutex<Settled>,
    pub(super) secrets: Secrets,
}

impl ChildWriter {
    /// A writer with this client.
    #[must_use]
    pub fn new(client: Client) -> Arc<Self> {
        Arc::new(Self { client, settled: Mutex::default(), secrets: Secrets::default() })
    }

    fn settled(&self) -> parking_lot::MutexGuard<'_, Settled> {
        self.settled.lock()
    }

    /// Creates or changes a child so that it is as wanted. Sends nothing if it already is. `desired` has a namespace, a name, our
    /// labels, the owner reference and the annotation [`keys::CHILD_HASH`].
    ///
    /// # Errors
    /// The call's error.
    pub async fn bring<K: ChildKind>(
        &self,
        store: &Store<Child<K>>,
        owner_uid: &str,
        desired: &K,
    ) -> Result<Brought<K>, CallError> {
        let key = Key::of(desired.meta());
        let hash =
            desired.meta().annotations.as_ref().and_then(|a| a.get(keys::CHILD_HASH)).cloned();
        let hash = hash.unwrap_or_default();
        let live = store.get(&key);
        let mode = match &live {
            None => Mode::Create,
            Some(live) if live.value.owner_uid() != Some(owner_uid) => {
                let mut owners = desired.meta().owner_references.iter().flatten();
                let owner = owners.find(|owner| owner.controller == Some(true));
                return Ok(match owner.filter(|owner| live.value.is_left_by_namesake(owner)) {
                    Some(owner) => Brought::Leftover(leftover_message(store.kind, &key, owner)),
                    None => Brought::Conflict(conflict_message(
                        store.kind,
                        &key,
                        live.value.owner_name(),
                    )),
                });
            }
            Some(live) => {
                let known = || {
                    self.settled().known.get(&(store.kind, key.clone()))
                        == Some(&(live.version, hash.clone()))
                };
                let lacks_content = matches!(live.value.content, Content::None);
                if live.value.is_like(desired, &hash) || (known() && !lacks_content) {
                    return Ok(Brought::Ours(live.clone(), Wrote::Nothing));
                }
                Mode::Update { uid: live.uid.clone(), version: None }
            }
        };
        let api = ssa::api_of::<K>(&self.client, &key.namespace);
        let mut object = serde_json::to_value(desired).unwrap_or_default();
        object["apiVersion"] = K::api_version(&()).into();
        object["kind"] = K::kind(&()).into();
        let reply = match ssa::apply(&api, ssa::CONTROLLER_MANAGER, object, &mode).await {
            Ok(reply) => reply,
            Err(error) if error.is_conflict() && mode == Mode::Create => {
                return Ok(Brought::Conflict(conflict_message(store.kind, &key, None)));
            }
            Err(error) => return Err(error),
        };
        let reply = serde_json::to_value(&reply).and_then(serde_json::from_value::<K>);
        let reply = reply.map_err(|error| failed(kube::Error::SerdeError(error)))?;
        let (_, entry) = reflector::entry::<Child<K>>(reply);
        let wrote = Wrote::of(live.as_deref(), &entry);
        if let Some(live) = live.filter(|live| live.version == entry.version) {
            let is_current = |key: &Key, version: u64| {
                store.get(key).is_some_and(|entry| entry.version == version)
            };
            self.settled().insert(store.kind, key.clone(), (entry.version, hash), is_current);
            if matches!(live.value.content, Content::None) {
                // The store keeps this child without content, so the caller gets the content of the reply.
                return Ok(Brought::Ours(Arc::new(entry), wrote));
            }
        } else {
            self.settled().known.remove(&(store.kind, key.clone()));
        }
        Ok(Brought::Ours(store.wrote(key, entry), wrote))
    }

    /// Deletes a child if it exists and belongs to this owner. Returns whether it was deleted.
    ///
    /// # Errors
    /// The call's error.
    pub async fn remove<K: ChildKind>(
        &self,
        store: &Store<Child<K>>,
        owner_uid: &str,
        key: &Key,
    ) -> Result<bool, CallError> {
        let Some(live) = store.get(key) else { return Ok(false) };
        if live.value.owner_uid() != Some(owner_uid) || live.value.deleting {
            return Ok(false);
        }
        let api = ssa::api_of::<K>(&self.client, &key.namespace);
        match ssa::delete(&api, &key.name, &live.uid, live.version).await? {
            Deleted::Gone => store.deleted(key, &live.uid),
            // The watch brings the newest version, which starts the next try.
            Deleted::Terminating(_) | Deleted::Changed => {}
        }
        Ok(true)
    }
}

/// The message about another object that has the name of a child.
pub(super) fn conflict_message(kind: &str, key: &Key, owner: Option<&str>) -> String {
    match owner {
        Some(owner) => format!("{kind} {} exists and belongs to {owner}", key.name),
        None => format!("{kind} {} exists and is not ours", key.name),
    }
}

/// The message about a child of an earlier owner.
pub(super) fn leftover_message(kind: &str, key: &Key, owner: &OwnerReference) -> String {
    let OwnerReference { kind: of, name, .. } = owner;
    format!("{kind} {} is left from an earlier {of} {name}: waiting until it is deleted", key.name)
}
