//! What every reconcile needs: client, stores, defaults, and the steps that all kinds share.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::Deployment;
use kube::Client;
use serde::Serialize;

use super::children::{Children, Wanted};
use super::defaults::Defaults;
use super::events::{Standing, Teller};
use super::inputs::Inputs;
use super::pods::Pods;
use super::runtime::Next;
use super::stale::{kept, stale};
use super::wanted_agents::WantedAgents;
use crate::api::Kind;
use crate::cluster::children::{ChildStores, ChildWriter};
use crate::cluster::client::CallError;
use crate::cluster::live::{Managed, Ours, Stores};
use crate::cluster::readiness::{Observed, observe};
use crate::cluster::ssa;
use crate::cluster::store::{Key, Store};

/// Why a reconcile has to be tried again.
#[derive(Debug, thiserror::Error)]
pub enum ReconcileError {
    /// A child could not be written.
    #[error("cannot write a child: {0}")]
    Write(#[source] CallError),
    /// The status could not be written.
    #[error("cannot write the status: {0}")]
    Status(#[source] CallError),
}

/// See the module.
pub struct Context {
    /// Client with the operator's rights.
    pub client: Client,
    /// Our own kinds.
    pub stores: Stores,
    /// Children.
    pub children: ChildStores,
    /// Writes of children.
    pub writer: Arc<ChildWriter>,
    /// What specs leave open.
    pub defaults: Defaults,
    /// Pods in trouble.
    pub pods: Arc<Pods>,
    /// What pods read besides children.
    pub inputs: Arc<Inputs>,
    /// The agents that the newest commits want.
    pub wanted: Arc<WantedAgents>,
    /// Events.
    pub events: Arc<Teller>,
}

impl Context {
    /// Waits until every store that a reconcile reads has a first complete list: an empty cache is no absence.
    pub async fn wait_ready(&self) {
        self.stores.wait_ready().await;
        self.children.wait_ready().await;
        self.pods.settled().await;
    }

    /// What a Deployment of this object is doing, and what is wrong with its pods.
    #[must_use]
    pub fn observe(&self, kind: Kind, key: &Key, deployment: &Deployment) -> Observed {
        Observed { trouble: self.pods.trouble(kind, key, deployment), ..observe(deployment) }
    }

    /// The live object and its uid; `None` when it is gone, going, or does not parse.
    pub fn object<K: Ours>(
        &self,
        store: &Store<Managed<K>>,
        key: &Key,
    ) -> Option<(String, Arc<K>)> {
        let entry = store.get(key)?;
        if let Some(error) = entry.value.parse_error() {
            tracing::warn!(kind = store.kind, object = %key, %error, "this object does not parse");
        }
        let object = entry.value.object()?;
        object.meta().deletion_timestamp.is_none().then(|| (entry.uid.clone(), object))
    }

    /// Now, in whole seconds: what Kubernetes keeps of a time.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        let now = Timestamp::now();
        Timestamp::from_second(now.as_second()).unwrap_or(now)
    }

    /// A little later, for what no watch tells.
    #[must_use]
    pub fn look_again(&self) -> Next {
        Next::After(super::runtime::jitter(Duration::from_secs(30)))
    }

    /// Writes a status if it differs, and tells what of it is news.
    ///
    /// # Errors
    /// The write's error; an object that is gone is none.
    pub async fn write_status<K: Ours, S: Serialize + PartialEq + Standing>(
        &self,
        store: &Store<Managed<K>>,
        key: &Key,
        uid: &str,
        old: Option<&S>,
        new: &S,
    ) -> Result<(), ReconcileError> {
        if old == Some(new) {
            return Ok(());
        }
        match ssa::apply_status::<K>(&self.client, &key.namespace, &key.name, uid, new).await {
            Ok(object) => {
                if let Ok(object) = serde_json::to_value(&object).and_then(serde_json::from_value) {
                    let (key, entry) = crate::cluster::reflector::entry::<Managed<K>>(object);
                    store.wrote(key, entry);
                }
                self.events.status::<K, S>(key, uid, old, new);
                Ok(())
            }
            Err(error) if error.is_gone() => {
                store.deleted(key, uid);
                Ok(())
            }
            // Made anew meanwhile: the watch brings the new one.
            Err(error) if error.is_conflict() => Ok(()),
            Err(error) => Err(ReconcileError::Status(error)),
        }
    }

    /// Removes configurations of earlier revisions, as far as no pods may still need them.
    ///
    /// # Errors
    /// The delete's error.
    pub async fn remove_stale_config(
        &self,
        kind: Kind,
        key: &Key,
        uid: &str,
        children: &Children,
        observed: Option<&Observed>,
    ) -> Result<(), ReconcileError> {
        let current = match &children.config_map {
            Wanted::Bring(map) => map.metadata.name.as_deref(),
            Wanted::Remove => None,
            Wanted::Keep => return Ok(()),
        };
        let kind = kind.as_str().to_lowercase();
        let ours = self.children.config_maps.found(&key.namespace, uid).into_iter().filter(
            |(_, entry)| {
                entry.value.owner_uid() == Some(uid)
                    && entry.value.kind_label() == Some(kind.as_str())
            },
        );
        let existing = ours.map(|(key, entry)| (key.name, entry.value.created)).collect();
        for name in stale(existing, current, kept(current.is_some(), observed)) {
            let key = Key::new(&key.namespace, name);
            self.writer
                .remove(&self.children.config_maps, uid, &key)
                .await
                .map_err(ReconcileError::Write)?;
        }
        Ok(())
    }
}
