//! Events of the controllers: one for each change that a person may wait for.
//!
//! The last status says what was told before, so neither a settled object nor a start of the operator tells an event. No reconcile
//! waits for an event. The number of events on their way is limited, and so is the number of those that wait.

use std::sync::Arc;

use k8s_openapi::api::core::v1::ObjectReference;
use kube::Client;
use tokio::sync::Semaphore;

use super::children::Owner;
use super::reason::Reason;
use crate::api::agent::AgentStatus;
use crate::api::agent_build::{AgentBuildStatus, BuildPhase};
use crate::api::common::{Condition, Phase};
use crate::api::mcp_server::MCPServerStatus;
use crate::api::model_api::ModelAPIStatus;
use crate::cluster::children::Wrote;
use crate::cluster::events::{EventType, Events};
use crate::cluster::live::Ours;
use crate::cluster::store::Key;
use crate::cluster::writes::Writes;

/// Events on their way to the API server at once; of one namespace half as many. They are few, so that writes of objects go
/// first.
const EVENTS_IN_FLIGHT: usize = 8;
/// Events that may wait, of about a KiB each. Further ones are not told.
const MAX_WAITING_EVENTS: usize = 4096;
/// Bytes of a note that are kept while it waits. The note that is told is shorter.
const MAX_NOTE_BYTES: usize = 2000;

/// A status from which events are made.
pub trait Standing {
    /// The conditions of the object.
    fn conditions(&self) -> &[Condition];
    /// Whether the object needs a change to go on.
    fn has_failed(&self) -> bool;
}

macro_rules! standing {
    ($($status:ident: $phase:ident),*) => {$(
        impl Standing for $status {
            fn conditions(&self) -> &[Condition] {
                &self.conditions
            }
            fn has_failed(&self) -> bool {
                self.phase == Some($phase::Failed)
            }
        }
    )*};
}
standing!(
    AgentStatus: Phase,
    ModelAPIStatus: Phase,
    MCPServerStatus: Phase,
    AgentBuildStatus: BuildPhase
);

fn ready(status: &impl Standing) -> Option<&Condition> {
    status.conditions().iter().find(|condition| condition.type_ == "Ready")
}

fn is_true(condition: &Condition) -> bool {
    condition.status == "True"
}

/// Whether a condition says only that it is not known what Git wants. When it is known, what was built before is no news.
fn is_unknown_source(condition: &Condition) -> bool {
    Reason::parse(&condition.reason).is_some_and(Reason::is_unknown_source)
}

/// The condition `Ready` of a new status, if it tells a failure or the end of one, and the old status did not.
fn news<'a, S: Standing>(old: Option<&S>, new: &'a S) -> Option<&'a Condition> {
    let (before, now) = (old.and_then(ready), ready(new)?);
    if before.is_some_and(|b| (&b.status, &b.reason) == (&now.status, &now.reason)) {
        return None;
    }
    let tells = if is_true(now) {
        // An object that is ready with its first status was never anything else.
        before.is_some_and(|b| !is_true(b) && !is_unknown_source(b))
    } else {
        new.has_failed() || Reason::parse(&now.reason).is_none_or(Reason::needs_somebody)
    };
    tells.then_some(now)
}

/// The object that an event is about.
fn reference<K: Ours>(key: &Key, uid: &str) -> ObjectReference {
    ObjectReference {
        api_version: Some(K::api_version(&()).into_owned()),
        kind: Some(K::kind(&()).into_owned()),
        namespace: Some(key.namespace.clone()),
        name: Some(key.name.clone()),
        uid: Some(uid.to_owned()),
        ..ObjectReference::default()
    }
}

/// The teller of events.
pub struct Teller {
    events: Events,
    slots: Arc<Writes>,
    places: Arc<Semaphore>,
}

impl Teller {
    /// Events through this client.
    #[must_use]
    pub fn new(client: Client) -> Arc<Self> {
        let (slots, places) =
            (Writes::with(EVENTS_IN_FLIGHT), Arc::new(Semaphore::new(MAX_WAITING_EVENTS)));
        Arc::new(Self { events: Events::new(client), slots, places })
    }

    /// Tells what a new status says, if that is news.
    pub fn status<K: Ours, S: Standing>(
        self: &Arc<Self>,
        key: &Key,
        uid: &str,
        old: Option<&S>,
        new: &S,
    ) {
        if let Some(ready) = news(old, new) {
            let type_ = EventType::normal_if(is_true(ready));
            self.tell(reference::<K>(key, uid), type_, &ready.reason, &ready.message);
        }
    }

    /// Tells a change of a Deployment that replaces its pods.
    pub fn rollout<K: Ours>(self: &Arc<Self>, owner: &Owner<'_>, wrote: Wrote) {
        // A new Deployment is told once it is available: Kubernetes tells of its pods itself.
        if wrote == Wrote::Pods {
            let deployment = &owner.child.name;
            let note = format!("Deployment {deployment} is changed, and replaces its pods");
            let about = reference::<K>(owner.key, owner.uid);
            self.tell(about, EventType::Normal, Reason::RollingOut.as_str(), &note);
        }
    }

    fn tell(self: &Arc<Self>, about: ObjectReference, type_: EventType, reason: &str, note: &str) {
        let Ok(place) = self.places.clone().try_acquire_owned() else {
            tracing::debug!(reason, "too many events wait: this one is not told");
            return;
        };
        let (teller, reason, mut note) = (self.clone(), reason.to_owned(), note.to_owned());
        note.truncate(note.floor_char_boundary(MAX_NOTE_BYTES));
        tokio::spawn(async move {
            let namespace = about.namespace.clone().unwrap_or_default();
            let slot = teller.slots.slot(&namespace).await;
            // Only now does it need the memory of a request.
            Box::pin(teller.events.publish(&about, type_, &reason, &note)).await;
            drop((slot, place));
        });
    }
}

#[cfg(test)]
#[path = "tests/events.rs"]
mod tests;
