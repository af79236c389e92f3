//! What the engine says: statuses, and events of what was changed by hand.

use std::sync::Arc;
use std::time::Duration;

use futures::future::{Either, select};

use super::drift::Drift;
use super::engine::{Engine, EngineError, Subject};
use super::loaded::Loaded;
use super::machine::effect::{Call, Effect, Event, Reply};
use super::plan::Plan;
use super::state::State;
use super::status::{Report, status};
use super::verdict::Verdict;
use super::words::{Came, Reason, Said};
use crate::api::git_sync::GitSyncStatus;
use crate::api::{GitSync, ObjectId};
use crate::cluster::live::Managed;

/// How long writes may go on before the status says that they do: until then it says what was true before them.
const SLOW: Duration = Duration::from_secs(10);

impl Engine {
    /// Writes what a report says over the newest status.
    pub(super) async fn tell(
        &self,
        subject: &Subject<'_>,
        mut report: Report<'_>,
    ) -> Result<(), EngineError> {
        report.silent = self.stores.silent();
        self.write_status(subject, |old| status(old, report)).await
    }

    /// Writes a status over the newest one.
    pub(super) async fn write_status(
        &self,
        subject: &Subject<'_>,
        make: impl FnOnce(Option<&GitSyncStatus>) -> GitSyncStatus,
    ) -> Result<(), EngineError> {
        let Subject { io, key, entry, sync, .. } = subject;
        let newest = self.stores.git_syncs.get(key).filter(|newest| newest.uid == entry.uid);
        let newest = newest.and_then(|newest| newest.value.object());
        let sync = newest.as_ref().unwrap_or(sync);
        let uid = &entry.uid;
        // What a killed operator says late is not built on.
        let own = self.spoken.own(key, uid, sync.status.as_ref());
        let new = make(own.as_ref().or(sync.status.as_ref()));
        self.spoken.say(key, uid, &new, sync.status.as_ref());
        if sync.status.as_ref() == Some(&new) {
            return Ok(());
        }
        let (name, status) = (key.name.clone(), Box::new(new));
        match io.ask(None, Call::Status { name, uid: uid.clone(), status }).await {
            Ok(Reply::Object(object)) => {
                let (key, entry) = Managed::<GitSync>::answered(*object);
                let shown = entry.value.object().and_then(|object| object.status.clone());
                self.spoken.shown(&key, uid, shown);
                self.stores.git_syncs.wrote(key, entry);
                Ok(())
            }
            Ok(_) => Ok(()),
            // Nobody is left to tell.
            Err(error) if error.is_gone() => {
                self.stores.git_syncs.deleted(key, uid);
                Ok(())
            }
            Err(error) => Err(EngineError::Status(error)),
        }
    }

    /// What to say of a plan that takes long, while the status says that all is well.
    pub(super) fn slow_report(
        state: &State,
        subject: &Subject<'_>,
        loaded: &Loaded,
        plan: &Plan,
    ) -> Option<Report<'static>> {
        let mut conditions = subject.status().into_iter().flat_map(|status| &status.conditions);
        let ready = conditions.find(|condition| condition.type_ == "Ready");
        let wrong = state.waits.waiting || state.remote.source_error.is_some();
        if wrong || ready.is_some_and(|ready| ready.status != "True") {
            return None;
        }
        let count = plan.create.len() + plan.update.len() + plan.prune.len();
        let message = format!("{}: writing or deleting {count} object(s)", loaded.revision);
        let mut said = unready(Said::Progressing, &message, false);
        said.reconciling = true;
        // A request is handled at the end.
        Some(Report { handled: None, ..subject.blank(said, state) })
    }

    /// Does this work, and says that it is at it if it takes long.
    pub(super) async fn telling<T>(
        &self,
        subject: &Subject<'_>,
        slow: Option<Report<'_>>,
        work: impl Future<Output = T>,
    ) -> T {
        let work = std::pin::pin!(work);
        let Some(slow) = slow else { return work.await };
        let long = subject.io.sleep_until(subject.io.now() + SLOW);
        let work = match select(work, std::pin::pin!(long)).await {
            Either::Left((done, _)) => return done,
            Either::Right(((), work)) => work,
        };
        let tell = async {
            if let Err(error) = self.tell(subject, slow).await {
                tracing::debug!(object = %subject.key, %error, "cannot say that it takes long");
            }
        };
        futures::future::join(work, tell).await.0
    }

    /// Says what was changed by hand and is undone.
    #[allow(clippy::unused_self)] // as all that tells
    pub(super) fn tell_drift(&self, subject: &Subject<'_>, drifts: &[(ObjectId, Drift)]) {
        let sync = subject.sync;
        let Some((first, drift)) = drifts.first() else { return };
        for (id, drift) in drifts {
            tracing::info!(namespace = sync.metadata.namespace, %id, %drift, "undone");
        }
        let mut note = format!("{first}: {drift}; undone");
        if drifts.len() > 1 {
            note = format!("{note}; so were {} more", drifts.len() - 1);
        }
        let (about, reason) = (Arc::clone(sync), "DriftCorrected".to_owned());
        subject.io.tell(Effect::Event(Box::new(Event { about, good: true, reason, note })));
    }
}

/// Not Ready, for this reason.
pub(super) fn unready(reason: impl Into<Reason>, message: &str, stalled: bool) -> Verdict {
    Verdict {
        reason: reason.into(),
        message: message.into(),
        ready: false,
        stalled,
        reconciling: false,
    }
}

/// What a sync did, in a word for the history.
pub(super) fn outcome_word(verdict: &Verdict, plan: &Plan, failed: bool) -> Came {
    if verdict.ready {
        Came::Applied
    } else if failed {
        Came::Failed
    } else if plan.held.is_some()
        && (verdict.reason.is(Said::PruneHeld) || verdict.reason.is(Said::PruneWaiting))
    {
        Came::Held
    } else if verdict.reason.is(Said::Progressing) || verdict.reason.is(Said::Terminating) {
        Came::Progressing
    } else {
        Came::Partial
    }
}
