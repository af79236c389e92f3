//! Events of what controllers look after: one for each change that somebody may wait for.
//!
//! What was told before is what the last status says, so neither a settled object nor a start of the operator tells
//! anything. Nobody waits for an event: it is on its way while the work goes on, and there are only so many at once.

use std::sync::Arc;

use k8s_openapi::api::core::v1::ObjectReference;
use kube::Client;
use tokio::sync::Semaphore;

use crate::api::agent::AgentStatus;
use crate::api::agent_build::{AgentBuildStatus, BuildPhase};
use crate::api::common::{Condition, Phase};
use crate::api::mcp_server::MCPServerStatus;
use crate::api::model_api::ModelAPIStatus;
use crate::cluster::children::Wrote;
use crate::cluster::events::Events;
use crate::cluster::live::Ours;
use crate::cluster::store::Key;
use crate::cluster::writes::Writes;

/// Events on their way to the API server at once; of one namespace half as many. Few: what they tell of goes first.
const AT_ONCE: usize = 8;
/// Events that may wait for that: about a KiB each. What comes beside them is not told.
const MOST: usize = 4096;
/// Bytes of a note that are kept while it waits: more than are told.
const MOST_NOTE: usize = 2000;

/// Reasons of `Ready` that are no failure: it is on its way, waits for something else, or is not to run.
const QUIET: [&str; 13] = [
    "RollingOut",
    "Replacing",
    "WaitingForDependencies",
    "WaitingForBuild",
    "Suspended",
    "Stopped",
    "Creating",
    "Building",
    "TriggerOff",
    "BuilderUnavailable",
    "SourcePending",
    "NotInGit",
    "NotApplied",
];
/// The last of these say only that it is not known what Git wants. When it is, what was built before is no news.
const UNKNOWN: [&str; 3] = ["SourcePending", "NotInGit", "NotApplied"];

/// A status that says how its object stands.
pub trait Standing {
    /// The conditions.
    fn conditions(&self) -> &[Condition];
    /// Whether it cannot go on without a change.
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

/// The condition `Ready` of a new status, if it tells of a failure or of the end of one, and the old status did not.
fn news<'a, S: Standing>(old: Option<&S>, new: &'a S) -> Option<&'a Condition> {
    let (before, now) = (old.and_then(ready), ready(new)?);
    if before.is_some_and(|b| (&b.status, &b.reason) == (&now.status, &now.reason)) {
        return None;
    }
    let tells = if is_true(now) {
        // What is ready at once has never been anything else.
        before.is_some_and(|b| !is_true(b) && !UNKNOWN.contains(&b.reason.as_str()))
    } else {
        new.has_failed() || !QUIET.contains(&now.reason.as_str())
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

/// See the module.
pub struct Teller {
    events: Events,
    slots: Arc<Writes>,
    places: Arc<Semaphore>,
}

impl Teller {
    /// Events through this client.
    #[must_use]
    pub fn new(client: Client) -> Arc<Self> {
        let (slots, places) = (Writes::with(AT_ONCE), Arc::new(Semaphore::new(MOST)));
        Arc::new(Self { events: Events::new(client), slots, places })
    }

    /// Tells what a status that has just been written says, if that is news.
    pub fn status<K: Ours, S: Standing>(
        self: &Arc<Self>,
        key: &Key,
        uid: &str,
        old: Option<&S>,
        new: &S,
    ) {
        if let Some(ready) = news(old, new) {
            self.tell(reference::<K>(key, uid), is_true(ready), &ready.reason, &ready.message);
        }
    }

    /// Tells what was written of the Deployment of an object, if that replaces its pods.
    pub fn rollout<K: Ours>(
        self: &Arc<Self>,
        key: &Key,
        uid: &str,
        deployment: &Key,
        wrote: Wrote,
    ) {
        // One that is new is told once it is available: Kubernetes tells of its pods itself.
        if wrote == Wrote::Pods {
            let note = format!("Deployment {} is changed, and replaces its pods", deployment.name);
            self.tell(reference::<K>(key, uid), true, "RollingOut", &note);
        }
    }

    fn tell(self: &Arc<Self>, about: ObjectReference, good: bool, reason: &str, note: &str) {
        let Ok(place) = self.places.clone().try_acquire_owned() else {
            tracing::debug!(reason, "too many events wait: this one is not told");
            return;
        };
        let (teller, reason, mut note) = (self.clone(), reason.to_owned(), note.to_owned());
        note.truncate(note.floor_char_boundary(MOST_NOTE));
        tokio::spawn(async move {
            let namespace = about.namespace.clone().unwrap_or_default();
            let slot = teller.slots.slot(&namespace).await;
            // Only now does it need the memory of a request.
            Box::pin(teller.events.tell(&about, good, &reason, &note)).await;
            drop((slot, place));
        });
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::Mutex;
    use std::time::Duration;

    use http::{Request, Response};
    use jiff::Timestamp;
    use kube::client::Body;

    use super::*;
    use crate::api::Agent;
    use crate::cluster::conditions;

    /// The status of an agent with this phase, and this condition `Ready` if there is any.
    fn agent(phase: Phase, ready: Option<(&str, &str)>) -> AgentStatus {
        let mut status = AgentStatus { phase: Some(phase), ..AgentStatus::default() };
        if let Some((state, reason)) = ready {
            let (list, now) = (&mut status.conditions, Timestamp::UNIX_EPOCH);
            conditions::set(list, "Ready", state, reason, "why", 1, now);
        }
        status
    }

    #[test]
    fn a8_a_failure_and_its_end_are_news_and_nothing_else_is() {
        let rolling = || agent(Phase::Pending, Some(("False", "RollingOut")));
        let available = || agent(Phase::Ready, Some(("True", "Available")));
        let conflict = || agent(Phase::Failed, Some(("False", "Conflict")));
        let waiting = || agent(Phase::Waiting, Some(("False", "WaitingForDependencies")));
        let refused = || agent(Phase::Pending, Some(("False", "ApplyFailed")));
        let none = || agent(Phase::Pending, None);
        let cases = [
            (none(), rolling(), None),
            (none(), available(), None),
            (none(), conflict(), Some(false)),
            (rolling(), available(), Some(true)),
            (waiting(), rolling(), None),
            (rolling(), waiting(), None),
            (available(), rolling(), None),
            (available(), conflict(), Some(false)),
            (conflict(), rolling(), None),
            (conflict(), available(), Some(true)),
            (available(), agent(Phase::Ready, Some(("True", "External"))), None),
            // It may heal by itself, and has not.
            (rolling(), refused(), Some(false)),
            (refused(), conflict(), Some(false)),
            (refused(), available(), Some(true)),
            // Somebody else's word for a failure.
            (rolling(), agent(Phase::Failed, Some(("False", "Stopped"))), Some(false)),
            (agent(Phase::Pending, Some(("False", "NotApplied"))), available(), None),
        ];
        for (old, new, expected) in cases {
            assert_eq!(news(Some(&old), &new).map(is_true), expected, "{old:?} → {new:?}");
            assert_eq!(news(Some(&new), &new), None, "{new:?}");
        }
        assert_eq!(news(None, &conflict()).map(is_true), Some(false));
        assert_eq!(news(None, &available()), None);
    }

    #[test]
    fn a8_what_is_still_to_be_said_is_the_same_although_the_words_change() {
        let mut later = agent(Phase::Failed, Some(("False", "CrashLoopBackOff")));
        let old = later.clone();
        later.conditions[0].message = "0 of 2 replicas available".into();
        assert_eq!(news(Some(&old), &later), None);
    }

    #[tokio::test(start_paused = true)]
    async fn a8_events_that_nobody_takes_hold_nobody_up_and_are_not_kept() {
        let seen = Arc::new(Mutex::new(Vec::new()));
        let sink = seen.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let path = request.uri().path().to_owned();
            let hangs = path.contains("/hangs/");
            sink.lock().expect("lock").push(path);
            async move {
                if hangs {
                    std::future::pending::<()>().await;
                }
                Ok::<_, Infallible>(Response::new(Body::empty()))
            }
        });
        let teller = Teller::new(Client::new(service, "default"));
        let (old, new) = (
            agent(Phase::Ready, Some(("True", "Available"))),
            agent(Phase::Failed, Some(("False", "Conflict"))),
        );
        let tell = |namespace: &str, number: usize| {
            let (key, uid) = (Key::new(namespace, format!("a{number}")), format!("u{number}"));
            teller.status::<Agent, _>(&key, &uid, Some(&old), &new);
        };
        let asked = |namespace: &str| {
            let path = format!("/apis/events.k8s.io/v1/namespaces/{namespace}/events");
            seen.lock().expect("lock").iter().filter(|seen| **seen == path).count()
        };
        (0..MOST / 2).for_each(|number| tell("hangs", number));
        tell("calm", 0);
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!((asked("hangs"), asked("calm")), (AT_ONCE / 2, 1));
        // More than there is place for.
        (0..2 * MOST).for_each(|number| tell("hangs", number));
        assert_eq!(teller.places.available_permits(), 0);
        // Each is given up in its time, and then there is place again.
        tokio::time::sleep(Duration::from_secs(24 * 60 * 60)).await;
        assert_eq!((asked("hangs"), teller.places.available_permits()), (MOST, MOST));
    }
}
