//! What controllers share: with the sync engine ([`Shared`]), and among the kinds that run pods ([`Context`]).

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::Deployment;
use kube::Client;

use super::defaults::Defaults;
use super::discovery::Discovery;
use super::events::Teller;
use super::inputs::Inputs;
use super::pods::Pods;
use crate::api::Kind;
use crate::cluster::children::{ChildStores, ChildWriter};
use crate::cluster::live::{Managed, Ours, Stores};
use crate::cluster::readiness::{Observed, observe};
use crate::cluster::store::{Key, Store};
use crate::runtime::worker::{Next, jitter};
use crate::runtime::write_priority::WritePriority;
use convoke_core::sync::published::wanted_agents::WantedAgents;

/// The time after which an object is reconciled again that waits for something that no watch shows.
const UNWATCHED_RECHECK: Duration = Duration::from_secs(30);

/// What controllers share with the sync engine.
#[derive(Clone, Copy)]
pub struct Shared<'a> {
    /// The client with the operator's rights.
    pub client: &'a Client,
    /// The stores of Convoke's own kinds. The caller watches into them.
    pub stores: &'a Stores,
    /// Controllers wait while a sync writes to their namespace.
    pub write_priority: &'a Arc<WritePriority>,
}

/// What all reconciles share.
pub struct Context {
    /// The client with the operator's rights.
    pub client: Client,
    /// The stores of Convoke's own kinds.
    pub stores: Stores,
    /// The stores of children.
    pub children: ChildStores,
    /// The writer of children.
    pub writer: Arc<ChildWriter>,
    /// What children look like when the spec does not say.
    pub defaults: Defaults,
    /// The pods that are kept.
    pub pods: Arc<Pods>,
    /// What pods and addresses say themselves.
    pub discovery: Arc<Discovery>,
    /// The ConfigMaps and Secrets that pods read.
    pub inputs: Arc<Inputs>,
    /// The agents that the newest commits want.
    pub wanted: Arc<WantedAgents>,
    /// The teller of events.
    pub events: Arc<Teller>,
}

impl Context {
    /// Waits until every store that a reconcile reads has a first complete list: an empty store does not prove that an object is
    /// missing. Waits also until it is known whether there is a key of the operator's: pods of before have keys made from it.
    pub async fn wait_ready(&self) {
        self.inputs.key_settled().await;
        self.stores.wait_ready().await;
        self.children.wait_ready().await;
        self.pods.settled().await;
    }

    /// What the Deployment of an object is doing, and what is wrong with its pods.
    #[must_use]
    pub fn observe(&self, kind: Kind, key: &Key, deployment: &Deployment) -> Observed {
        Observed { trouble: self.pods.trouble(kind, key, deployment), ..observe(deployment) }
    }

    /// The live object and its UID. `None` when it is gone, is being deleted, or does not parse.
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

    /// Now, in whole seconds: Kubernetes keeps no fractions.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        let now = Timestamp::now();
        Timestamp::from_second(now.as_second()).unwrap_or(now)
    }

    /// What to do next with an object that waits for something that no watch shows.
    #[must_use]
    pub fn look_again(&self) -> Next {
        Next::After(self.unwatched_recheck())
    }

    /// When to look again at what no watch shows.
    #[must_use]
    pub fn unwatched_recheck(&self) -> Duration {
        jitter(UNWATCHED_RECHECK)
    }
}
