//! What the engine says: statuses, and events of what was changed by hand.

use std::time::Duration;

use jiff::Timestamp;
use tokio::sync::Notify;

use super::drift::Drift;
use super::engine::{Engine, EngineError, Subject};
use super::plan::Plan;
use super::source::Loaded;
use super::state::State;
use super::status::{PROGRESSING, Report, Verdict, status};
use crate::api::git_sync::GitSyncStatus;
use crate::api::{GitSync, ObjectId};
use crate::cluster::live::Managed;
use crate::cluster::ssa;

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
        let Subject { key, entry, sync, .. } = subject;
        let newest = self.stores.git_syncs.get(key).filter(|newest| newest.uid == entry.uid);
        let newest = newest.and_then(|newest| newest.value.object());
        let sync = newest.as_ref().unwrap_or(sync);
        let new = make(sync.status.as_ref());
        let (namespace, name, uid) = (&key.namespace, &key.name, &entry.uid);
        self.spoken.say(key, uid, new.clone(), sync.status.clone());
        if sync.status.as_ref() == Some(&new) {
            return Ok(());
        }
        match ssa::apply_status::<GitSync>(&self.client, namespace, name, uid, &new).await {
            Ok(object) => {
                if let Ok(object) = serde_json::to_value(&object).and_then(serde_json::from_value) {
                    let (key, entry) = crate::cluster::reflector::entry::<Managed<GitSync>>(object);
                    let shown = entry.value.object().and_then(|object| object.status.clone());
                    self.spoken.shown(&key, uid, shown);
                    self.stores.git_syncs.wrote(key, entry);
                }
                Ok(())
            }
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
        let wrong = state.waiting || state.source_error.is_some();
        if wrong || ready.is_some_and(|ready| ready.status != "True") {
            return None;
        }
        let count = plan.create.len() + plan.update.len() + plan.prune.len();
        let message = format!("{}: writing or deleting {count} object(s)", loaded.revision);
        let mut said = unready(PROGRESSING, &message, false);
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
        let over = Notify::new();
        let work = async {
            let done = work.await;
            over.notify_one();
            done
        };
        let tell = async {
            let Some(slow) = slow else { return };
            if tokio::time::timeout(SLOW, over.notified()).await.is_ok() {
                return;
            }
            if let Err(error) = self.tell(subject, slow).await {
                tracing::debug!(object = %subject.key, %error, "cannot say that it takes long");
            }
        };
        tokio::join!(work, tell).0
    }

    /// Says what was changed by hand and is undone.
    pub(super) async fn tell_drift(&self, sync: &GitSync, drifts: &[(ObjectId, Drift)]) {
        let Some((first, drift)) = drifts.first() else { return };
        for (id, drift) in drifts {
            tracing::info!(namespace = sync.metadata.namespace, %id, %drift, "undone");
        }
        let mut note = format!("{first}: {drift}; undone");
        if drifts.len() > 1 {
            note = format!("{note}; so were {} more", drifts.len() - 1);
        }
        self.events.tell(sync, true, "DriftCorrected", &note).await;
    }
}

/// Not Ready, for this reason.
pub(super) fn unready(reason: &str, message: &str, stalled: bool) -> Verdict {
    Verdict {
        reason: reason.into(),
        message: message.into(),
        ready: false,
        stalled,
        reconciling: false,
    }
}

/// Now, in whole seconds: what Kubernetes keeps of a time.
pub(super) fn now() -> Timestamp {
    let now = Timestamp::now();
    Timestamp::from_second(now.as_second()).unwrap_or(now)
}

/// What a sync did, in a word for the history.
pub(super) fn outcome_word(verdict: &Verdict, plan: &Plan, failed: bool) -> &'static str {
    if verdict.ready {
        "Applied"
    } else if failed {
        "Failed"
    } else if plan.held.is_some() && matches!(&*verdict.reason, "PruneHeld" | "PruneWaiting") {
        "Held"
    } else if verdict.reason == PROGRESSING {
        PROGRESSING
    } else {
        "Partial"
    }
}
