//! Children (Deployment, Service, ConfigMap): their live stores and the only way to write them.
//!
//! They are watched by our label. An object without it, or with another owner, is never touched: a child whose
//! name somebody else has is a conflict (A11).

use std::collections::HashMap;
use std::fmt::Debug;
use std::sync::{Arc, Mutex, PoisonError};

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Service};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{Client, Resource};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::client::CallError;
use super::projection::covers;
use super::reflector::View;
use super::ssa::{self, Deleted, Mode};
use super::store::{Entry, Key, Store};
use crate::api::keys;

/// A kind of child.
pub trait ChildKind:
    Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Serialize + Send + Sync + 'static
{
}
impl ChildKind for Deployment {}
impl ChildKind for Service {}
impl ChildKind for ConfigMap {}

/// A child as its store keeps it.
#[derive(Debug)]
pub struct Child<K> {
    /// Metadata without managed fields.
    pub meta: ObjectMeta,
    /// Everything but metadata and status, as JSON.
    pub body: Value,
    /// The object, for its status.
    pub object: Arc<K>,
}

impl<K> Child<K> {
    /// UID of the controlling owner.
    #[must_use]
    pub fn owner_uid(&self) -> Option<&str> {
        let owners = self.meta.owner_references.as_deref().unwrap_or_default();
        owners.iter().find(|o| o.controller == Some(true)).map(|o| o.uid.as_str())
    }

    /// Name of the controlling owner.
    #[must_use]
    pub fn owner_name(&self) -> Option<&str> {
        let owners = self.meta.owner_references.as_deref().unwrap_or_default();
        owners.iter().find(|o| o.controller == Some(true)).map(|o| o.name.as_str())
    }

    /// Kind of the controlling owner.
    #[must_use]
    pub fn owner_kind(&self) -> Option<&str> {
        let owners = self.meta.owner_references.as_deref().unwrap_or_default();
        owners.iter().find(|o| o.controller == Some(true)).map(|o| o.kind.as_str())
    }
}

impl<K: ChildKind> View for Child<K> {
    type Object = K;

    fn of(mut object: K) -> Self {
        object.meta_mut().managed_fields = None;
        let meta = object.meta().clone();
        let body = body(&object);
        Self { meta, body, object: Arc::new(object) }
    }
}

/// Everything but identity, metadata and status.
fn body(object: &impl Serialize) -> Value {
    let mut body = serde_json::to_value(object).unwrap_or_default();
    if let Some(map) = body.as_object_mut() {
        for key in ["apiVersion", "kind", "metadata", "status"] {
            map.remove(key);
        }
    }
    body
}

/// Stores of children, shared by all controllers: one watch a kind.
#[derive(Clone)]
pub struct ChildStores {
    /// Deployments with our label.
    pub deployments: Arc<Store<Child<Deployment>>>,
    /// Services with our label.
    pub services: Arc<Store<Child<Service>>>,
    /// ConfigMaps with our label.
    pub config_maps: Arc<Store<Child<ConfigMap>>>,
}

impl ChildStores {
    /// Empty stores.
    #[must_use]
    pub fn new() -> Self {
        Self {
            deployments: Store::new("Deployment"),
            services: Store::new("Service"),
            config_maps: Store::new("ConfigMap"),
        }
    }

    /// Waits until every store has read a first complete list.
    pub async fn wait_ready(&self) {
        let Self { deployments, services, config_maps } = self;
        deployments.wait_ready().await;
        services.wait_ready().await;
        config_maps.wait_ready().await;
    }

    /// Kinds whose first list is not complete yet.
    #[must_use]
    pub fn pending(&self) -> Vec<&'static str> {
        let Self { deployments, services, config_maps } = self;
        let all = [
            (deployments.kind, deployments.is_ready()),
            (services.kind, services.is_ready()),
            (config_maps.kind, config_maps.is_ready()),
        ];
        all.into_iter().filter(|(_, ready)| !ready).map(|(kind, _)| kind).collect()
    }
}

impl Default for ChildStores {
    fn default() -> Self {
        Self::new()
    }
}

/// What came of bringing one child where it should be.
#[derive(Debug)]
pub enum Brought<K> {
    /// It is there, as wanted.
    Ours(Arc<Entry<Child<K>>>),
    /// Somebody else's object has the name: who, for people.
    Conflict(String),
}

/// Writes children of one controller.
pub struct ChildWriter {
    client: Client,
    /// Applies that changed nothing: object → version and hash at that time.
    settled: Mutex<HashMap<(&'static str, Key), (u64, String)>>,
}

impl ChildWriter {
    /// A writer with this client.
    #[must_use]
    pub fn new(client: Client) -> Arc<Self> {
        Arc::new(Self { client, settled: Mutex::default() })
    }

    fn settled(&self) -> std::sync::MutexGuard<'_, HashMap<(&'static str, Key), (u64, String)>> {
        self.settled.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Creates or changes one child, or finds it as wanted. `desired` carries namespace, name, our labels, the
    /// owner reference and the annotation [`keys::CHILD_HASH`].
    ///
    /// # Errors
    /// The write's error.
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
                return Ok(Brought::Conflict(stranger(store.kind, &key, live.value.owner_name())));
            }
            Some(live) => {
                let have =
                    live.value.meta.annotations.as_ref().and_then(|a| a.get(keys::CHILD_HASH));
                let equal = have == Some(&hash)
                    && labels_cover(
                        live.value.meta.labels.as_ref(),
                        desired.meta().labels.as_ref(),
                    )
                    && covers(&live.value.body, &body(desired));
                let known = self.settled().get(&(store.kind, key.clone()))
                    == Some(&(live.version, hash.clone()));
                if equal || known {
                    return Ok(Brought::Ours(live.clone()));
                }
                Mode::Update { uid: live.uid.clone() }
            }
        };
        let api = ssa::api_of::<K>(&self.client, &key.namespace);
        let mut object = serde_json::to_value(desired).unwrap_or_default();
        object["apiVersion"] = K::api_version(&()).into();
        object["kind"] = K::kind(&()).into();
        let reply = match ssa::apply(&api, ssa::CONTROLLER_MANAGER, object, &mode).await {
            Ok(reply) => reply,
            Err(error) if error.is_conflict() && mode == Mode::Create => {
                return Ok(Brought::Conflict(stranger(store.kind, &key, None)));
            }
            Err(error) => return Err(error),
        };
        let reply = serde_json::to_value(&reply).and_then(serde_json::from_value::<K>);
        let reply = reply.map_err(kube::Error::SerdeError)?;
        let (_, entry) = super::reflector::entry::<Child<K>>(reply);
        if live.is_some_and(|live| live.version == entry.version) {
            self.settled().insert((store.kind, key.clone()), (entry.version, hash));
        } else {
            self.settled().remove(&(store.kind, key.clone()));
        }
        Ok(Brought::Ours(store.wrote(key, entry)))
    }

    /// Deletes one child if it is there and belongs to this owner. Returns whether something was deleted.
    ///
    /// # Errors
    /// The delete's error.
    pub async fn remove<K: ChildKind>(
        &self,
        store: &Store<Child<K>>,
        owner_uid: &str,
        key: &Key,
    ) -> Result<bool, CallError> {
        let Some(live) = store.get(key) else { return Ok(false) };
        if live.value.owner_uid() != Some(owner_uid) || live.value.meta.deletion_timestamp.is_some()
        {
            return Ok(false);
        }
        let api = ssa::api_of::<K>(&self.client, &key.namespace);
        match ssa::delete(&api, &key.name, &live.uid, live.version).await? {
            Deleted::Gone => store.deleted(key, &live.uid),
            // The watch brings the newest state, and with it the next try.
            Deleted::Terminating | Deleted::Changed => {}
        }
        Ok(true)
    }
}

fn stranger(kind: &str, key: &Key, owner: Option<&str>) -> String {
    match owner {
        Some(owner) => format!("{kind} {} exists and belongs to {owner}", key.name),
        None => format!("{kind} {} exists and is not ours", key.name),
    }
}

fn labels_cover(
    have: Option<&std::collections::BTreeMap<String, String>>,
    want: Option<&std::collections::BTreeMap<String, String>>,
) -> bool {
    want.is_none_or(|want| want.iter().all(|(k, v)| have.and_then(|have| have.get(k)) == Some(v)))
}
