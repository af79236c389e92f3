//! Secrets with keys that Convoke makes for pods. No watch shows them, and nothing lists them.
//!
//! A Secret is written when the hash in its metadata is not the wanted one, or when somebody else has changed its data: the
//! metadata says who wrote which field. The data itself is never read.
//!
//! A pod reads some values only when it starts. So a Secret is looked at again when a pod became ready since it was seen: whatever
//! that pod has read was in it before.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::Api;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::writer::{ChildWriter, conflict_message, leftover_message};
use crate::api::keys;
use crate::cluster::client::{CallError, call};
use crate::cluster::hidden::Hidden;
use crate::cluster::reflector::identity;
use crate::cluster::ssa::{self, Deleted, Mode};
use crate::cluster::store::Key;

/// How long a Secret is taken to be as it was seen. Together with the time between two reconciles of an object at rest this is how
/// long a change by hand may stay.
const SEEN_FOR: Duration = Duration::from_secs(60);
/// How long no other Secret of a namespace is asked for after one was refused: all are refused for the same reason.
const REFUSED_FOR: Duration = Duration::from_secs(5);

/// A Secret as it is wanted.
#[derive(Debug, Clone, PartialEq)]
pub struct OwnSecret {
    /// Namespace, name, our labels, and the owner reference.
    pub meta: ObjectMeta,
    /// The values by key.
    pub data: BTreeMap<&'static str, Hidden<String>>,
    /// A keyed hash of all that is wanted. It stands in the metadata.
    pub hash: String,
    /// A keyed digest of the values alone. It stands in its metadata, and in that of the pods that read them.
    pub digest: String,
    /// Whether pods were given these values before. Then a Secret with others is not written, but told as [`Secured::Differs`].
    pub given: bool,
}

impl OwnSecret {
    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        self.meta.name.as_deref().unwrap_or_default()
    }

    /// What is sent to the API server.
    fn manifest(&self) -> Value {
        let mut meta = self.meta.clone();
        let annotations = meta.annotations.get_or_insert_default();
        annotations.insert(keys::CHILD_HASH.to_owned(), self.hash.clone());
        annotations.insert(keys::KEY_DIGEST.to_owned(), self.digest.clone());
        let bytes = |value: &Hidden<String>| ByteString(value.get().clone().into_bytes());
        let data: BTreeMap<_, _> =
            self.data.iter().map(|(name, value)| (*name, bytes(value))).collect();
        json!({"apiVersion": "v1", "kind": "Secret", "type": "Opaque", "metadata": meta, "data": data})
    }
}

/// What became of a Secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Secured {
    /// It is as wanted.
    Ours,
    /// It has other values than its pods were given, so that some may have read those. Nothing was written.
    Differs,
    /// The right to read and write Secrets of the namespace is missing.
    Forbidden,
    /// Another Secret has the name. The text says whose it is.
    Conflict(String),
    /// The Secret of an earlier owner of the same name is about to go. The text says which one.
    Leftover(String),
}

/// What is remembered of Secrets.
#[derive(Default)]
pub(super) struct Secrets {
    /// Each Secret that was as wanted.
    known: Mutex<HashMap<Key, Seen>>,
    /// When a Secret of a namespace was refused.
    refused: Mutex<HashMap<String, Instant>>,
}

/// How a Secret was when it was as wanted.
struct Seen {
    hash: String,
    /// `resourceVersion` of the pod that had become ready last, or 0.
    newest_pod: u64,
    /// When that was; `None` once it is in doubt.
    at: Option<Instant>,
}

impl Secrets {
    fn is_settled(&self, key: &Key, hash: &str, newest_pod: u64, now: Instant) -> bool {
        let known = self.known.lock();
        known.get(key).is_some_and(|seen| {
            seen.hash == hash
                && newest_pod <= seen.newest_pod
                && seen.at.is_some_and(|at| now.saturating_duration_since(at) < SEEN_FOR)
        })
    }

    fn doubt(&self, key: &Key) {
        if let Some(seen) = self.known.lock().get_mut(key) {
            seen.at = None;
        }
    }

    fn is_refused(&self, namespace: &str, now: Instant) -> bool {
        let refused = self.refused.lock();
        let since = refused.get(namespace);
        since.is_some_and(|since| now.saturating_duration_since(*since) < REFUSED_FOR)
    }

    /// Remembers a refusal, and forgets those that are long over.
    fn refuse(&self, namespace: &str, now: Instant) {
        let mut refused = self.refused.lock();
        refused.retain(|_, since| now.saturating_duration_since(*since) < REFUSED_FOR);
        refused.insert(namespace.to_owned(), now);
    }
}

impl ChildWriter {
    /// Creates or changes a Secret so that it is as wanted. Sends nothing if it was so a moment ago. One of an earlier owner of
    /// the same name is deleted first: changed in place, it would go with that owner.
    ///
    /// `newest_pod` is the `resourceVersion` of the pod that became ready last, among those that read it; 0 if there is none.
    ///
    /// # Errors
    /// The call's error. A missing right is none.
    pub async fn bring_secret(
        &self,
        secret: &OwnSecret,
        newest_pod: u64,
    ) -> Result<Secured, CallError> {
        let key = Key::of(&secret.meta);
        if self.secrets.is_settled(&key, &secret.hash, newest_pod, Instant::now()) {
            return Ok(Secured::Ours);
        }
        if self.secrets.is_refused(&key.namespace, Instant::now()) {
            return Ok(Secured::Forbidden);
        }
        match self.write_secret(&key, secret).await {
            Ok(Secured::Ours) => {
                let (hash, at) = (secret.hash.clone(), Some(Instant::now()));
                self.secrets.known.lock().insert(key, Seen { hash, newest_pod, at });
                Ok(Secured::Ours)
            }
            Err(error) if error.is_missing_right() => {
                self.secrets.refuse(&key.namespace, Instant::now());
                Ok(Secured::Forbidden)
            }
            other => other,
        }
    }

    /// Deletes a Secret that was wanted since the operator started, if it belongs to this owner. Of a Secret from before that
    /// nothing is known; it goes with its owner.
    ///
    /// # Errors
    /// The call's error. A missing right is none.
    pub async fn remove_secret(&self, owner_uid: &str, key: &Key) -> Result<(), CallError> {
        if !self.secrets.known.lock().contains_key(key) {
            return Ok(());
        }
        let removed = async {
            let live = self.secret_metadata(key).await?;
            let own = |meta: &ObjectMeta| controller(meta).is_some_and(|own| own.uid == owner_uid);
            match live.filter(own) {
                Some(live) => self.delete_secret(key, &live).await.map(drop),
                None => Ok(()),
            }
        };
        match removed.await {
            Err(error) if !error.is_missing_right() => Err(error),
            _ => {
                self.forget_secret(key);
                Ok(())
            }
        }
    }

    /// Lets the next [`bring_secret`](Self::bring_secret) look at a Secret again: its pods say that something that they read is missing.
    pub fn doubt_secret(&self, key: &Key) {
        self.secrets.doubt(key);
    }

    /// Forgets a Secret whose owner is gone.
    pub fn forget_secret(&self, key: &Key) {
        self.secrets.known.lock().remove(key);
    }

    async fn write_secret(&self, key: &Key, secret: &OwnSecret) -> Result<Secured, CallError> {
        let mode = match self.secret_metadata(key).await? {
            None => Mode::Create,
            Some(live) => match Relation::of(&live, &secret.meta) {
                Relation::Own if is_as_wanted(&live, secret) => return Ok(Secured::Ours),
                Relation::Own if secret.given && has_other_values(&live, secret) => {
                    return Ok(Secured::Differs);
                }
                Relation::Own => {
                    Mode::Update { uid: live.uid.clone().unwrap_or_default(), version: None }
                }
                Relation::Left(owner) => {
                    if self.delete_secret(key, &live).await? != Deleted::Gone {
                        return Ok(Secured::Leftover(leftover_message("Secret", key, &owner)));
                    }
                    Mode::Create
                }
                Relation::Foreign(owner) => {
                    let message = conflict_message("Secret", key, owner.as_deref());
                    return Ok(Secured::Conflict(message));
                }
            },
        };
        let api = ssa::api_of::<Secret>(&self.client, &key.namespace);
        match ssa::apply(&api, ssa::CONTROLLER_MANAGER, secret.manifest(), &mode).await {
            Ok(_) => Ok(Secured::Ours),
            Err(error) if error.is_conflict() && mode == Mode::Create => {
                Ok(Secured::Conflict(conflict_message("Secret", key, None)))
            }
            Err(error) => Err(error),
        }
    }

    /// The metadata of a Secret, if it exists.
    async fn secret_metadata(&self, key: &Key) -> Result<Option<ObjectMeta>, CallError> {
        let api: Api<Secret> = Api::namespaced(self.client.clone(), &key.namespace);
        Ok(call(api.get_metadata_opt(&key.name)).await?.map(|found| found.metadata))
    }

    async fn delete_secret(&self, key: &Key, live: &ObjectMeta) -> Result<Deleted, CallError> {
        let (_, uid, version) = identity(live);
        let api = ssa::api_of::<Secret>(&self.client, &key.namespace);
        ssa::delete(&api, &key.name, &uid, version).await
    }
}

/// Whose a Secret is.
#[derive(Debug, PartialEq)]
enum Relation {
    /// The wanted owner's.
    Own,
    /// An earlier owner's of the same kind and name. That one is gone, and we have written the Secret.
    Left(OwnerReference),
    /// Somebody else's: the name of its owner, if it has one.
    Foreign(Option<String>),
}

impl Relation {
    fn of(live: &ObjectMeta, wanted: &ObjectMeta) -> Self {
        match (controller(live), controller(wanted)) {
            (Some(live), Some(wanted)) if live.uid == wanted.uid => Self::Own,
            (Some(owner), Some(wanted))
                if owner.kind == wanted.kind && owner.name == wanted.name && is_applied(live) =>
            {
                Self::Left(owner.clone())
            }
            (owner, _) => Self::Foreign(owner.map(|owner| owner.name.clone())),
        }
    }
}

/// The owner that controls an object.
fn controller(meta: &ObjectMeta) -> Option<&OwnerReference> {
    meta.owner_references.iter().flatten().find(|owner| owner.controller == Some(true))
}

/// The fields that our last apply of the object still owns.
fn applied_fields(meta: &ObjectMeta) -> Option<&Value> {
    let ours = meta.managed_fields.iter().flatten().find(|entry| {
        entry.manager.as_deref() == Some(ssa::CONTROLLER_MANAGER)
            && entry.operation.as_deref() == Some("Apply")
            && entry.subresource.as_deref().unwrap_or_default().is_empty()
    });
    Some(&ours?.fields_v1.as_ref()?.0)
}

fn is_applied(meta: &ObjectMeta) -> bool {
    applied_fields(meta).is_some()
}

/// Whether a Secret has the wanted hash, and nobody else has changed its values since.
fn is_as_wanted(live: &ObjectMeta, wanted: &OwnSecret) -> bool {
    annotation(live, keys::CHILD_HASH) == Some(&wanted.hash) && is_written_by_us(live, wanted)
}

/// Whether a Secret has, or may have, other values than the wanted ones.
fn has_other_values(live: &ObjectMeta, wanted: &OwnSecret) -> bool {
    let digest = annotation(live, keys::KEY_DIGEST);
    digest.is_some_and(|digest| *digest != wanted.digest) || !is_written_by_us(live, wanted)
}

/// Whether all values of a Secret are as we have written them last.
fn is_written_by_us(live: &ObjectMeta, wanted: &OwnSecret) -> bool {
    let fields = applied_fields(live).map(|fields| &fields["f:data"]);
    let owned = |name: &str| fields.is_some_and(|data| data.get(format!("f:{name}")).is_some());
    wanted.data.keys().all(|name| owned(name))
}

fn annotation<'a>(meta: &'a ObjectMeta, name: &str) -> Option<&'a String> {
    meta.annotations.as_ref()?.get(name)
}

#[cfg(test)]
#[path = "tests/secrets.rs"]
mod tests;
