//! The one writer of the statuses of GitSyncs.

use std::time::Duration;

use futures::future::{Either, select};

use crate::api::GitSync;
use crate::api::git_sync::GitSyncStatus;
use crate::cluster::live::{Managed, Stores};
use crate::cluster::store::Key;
use crate::sync::commit::loaded::Loaded;
use crate::sync::io::EngineError;
use crate::sync::io::Io;
use crate::sync::io::effect::{Call, Effect, Event, Reply};
use crate::sync::plan::Plan;
use crate::sync::poll::remote::Remote;
use crate::sync::reasons::{EngineReason, unready};
use crate::sync::status::build::status;
use crate::sync::status::events::{event_of_change, of_sync};
use crate::sync::status::last_written::LastWritten;
use crate::sync::status::report::Report;
use crate::sync::subject::Subject;

/// How long writes may go on before the status says so. Until then it says what was true before them.
const SLOW_WRITES_AFTER: Duration = Duration::from_secs(10);

/// The one writer of the statuses of a namespace.
#[derive(Clone, Copy)]
pub(crate) struct StatusWriter<'a> {
    pub stores: &'a Stores,
    pub last_written: &'a LastWritten,
}

impl StatusWriter<'_> {
    /// Sends an event if this status, which the API server shows now, has changed. `done` is the event of a sync: it is sent
    /// instead, because its note says the same.
    pub(crate) fn announce(
        &self,
        io: &Io,
        (key, uid): (&Key, &str),
        status: &GitSyncStatus,
        done: Option<Event>,
    ) {
        let change = self.last_written.announce(key, uid, status);
        let event = done.or_else(|| event_of_change(change?, of_sync(key, uid), status));
        if let Some(event) = event {
            io.emit(Effect::Event(Box::new(event)));
        }
    }

    /// Writes a report into the newest status. An event announces it, if it changes `Ready` or `Suspended`.
    pub(crate) async fn report(
        &self,
        subject: &Subject<'_>,
        report: Report<'_>,
    ) -> Result<(), EngineError> {
        self.report_sync(subject, report, None).await
    }

    /// Writes a report into the newest status, and sends the event of the sync that it reports.
    pub(crate) async fn report_sync(
        &self,
        subject: &Subject<'_>,
        mut report: Report<'_>,
        done: Option<Event>,
    ) -> Result<(), EngineError> {
        report.silent = self.stores.silent();
        // No event before the status is written: if that fails, the next reconcile reports the same.
        let written = self.write(subject, |old| status(old, report)).await?;
        if let Some(written) = written {
            self.announce(subject.io, (subject.key, &subject.entry.uid), &written, done);
        }
        Ok(())
    }

    /// Makes a status from the newest one and writes it. Returns the written status; `None` when the GitSync is gone.
    pub(crate) async fn write(
        &self,
        subject: &Subject<'_>,
        make: impl FnOnce(Option<&GitSyncStatus>) -> GitSyncStatus,
    ) -> Result<Option<GitSyncStatus>, EngineError> {
        let Subject { io, key, entry, sync, .. } = subject;
        let newest = self.stores.git_syncs.get(key).filter(|newest| newest.uid == entry.uid);
        let newest = newest.and_then(|newest| newest.value.object());
        let sync = newest.as_ref().unwrap_or(sync);
        let uid = &entry.uid;
        // A status that a killed operator wrote late is not built on.
        let own = self.last_written.own(key, uid, sync.status.as_ref());
        let new = make(own.as_ref().or(sync.status.as_ref()));
        if sync.status.as_ref() == Some(&new) {
            self.last_written.wrote(key, uid, &new, Some(&new));
            return Ok(Some(new));
        }
        self.send(io, (key, uid), new, sync.status.as_ref()).await
    }

    /// Writes a status over the one that is `shown`. Returns the written status; `None` when the GitSync is gone. No other
    /// function writes a status.
    pub(crate) async fn send(
        &self,
        io: &Io,
        (key, uid): (&Key, &str),
        new: GitSyncStatus,
        shown: Option<&GitSyncStatus>,
    ) -> Result<Option<GitSyncStatus>, EngineError> {
        self.last_written.wrote(key, uid, &new, shown);
        let (name, status) = (key.name.clone(), Box::new(new.clone()));
        let mut call = Call::Status { name, uid: uid.to_owned(), status };
        loop {
            let clears = matches!(call, Call::ClearStatus { .. });
            match io.ask(None, call).await {
                Ok(Reply::Object(object)) => {
                    let (key, entry) = Managed::<GitSync>::answered(*object);
                    let shown = entry.value.object().and_then(|object| object.status.clone());
                    let fields = left_by_others(&new, shown.as_ref());
                    let (name, version) = (key.name.clone(), entry.version);
                    // If the GitSync does not parse, its status is not known either.
                    if entry.value.object().is_some() {
                        self.last_written.replied(&key, uid, shown);
                    }
                    self.stores.git_syncs.wrote(key, entry);
                    if fields.is_empty() || clears {
                        return Ok(Some(new));
                    }
                    call = Call::ClearStatus { name, version, fields };
                }
                Ok(_) => return Ok(Some(new)),
                // There is no status to write any more.
                Err(error) if error.is_gone() => {
                    self.stores.git_syncs.deleted(key, uid);
                    return Ok(None);
                }
                Err(error) => return Err(EngineError::Status(error)),
            }
        }
    }

    /// The report that writes take long; `None` if the status says already that the GitSync is not Ready.
    pub(crate) fn slow_report(
        remote: &Remote,
        subject: &Subject<'_>,
        loaded: &Loaded,
        plan: &Plan,
    ) -> Option<Report<'static>> {
        let mut conditions = subject.status().into_iter().flat_map(|status| &status.conditions);
        let ready = conditions.find(|condition| condition.type_ == "Ready");
        let wrong = remote.source_error.is_some();
        if wrong || ready.is_some_and(|ready| ready.status != "True") {
            return None;
        }
        let count = plan.create.len() + plan.update.len() + plan.prune.len();
        let message = format!("{}: writing or deleting {count} object(s)", loaded.revision);
        let mut verdict = unready(EngineReason::Progressing, &message);
        verdict.reconciling = true;
        // A request (`requestedAt`) counts as handled once the writes are done.
        Some(Report { handled: None, ..Report::blank(subject, verdict, remote) })
    }

    /// Runs `work`, and writes the report `slow` if it takes long.
    pub(crate) async fn report_if_slow<T>(
        &self,
        subject: &Subject<'_>,
        slow: Option<Report<'_>>,
        work: impl Future<Output = T>,
    ) -> T {
        let work = std::pin::pin!(work);
        let Some(slow) = slow else { return work.await };
        let long = subject.io.sleep_until(subject.io.now() + SLOW_WRITES_AFTER);
        let work = match select(work, std::pin::pin!(long)).await {
            Either::Left((done, _)) => return done,
            Either::Right(((), work)) => work,
        };
        let report = async {
            if let Err(error) = self.report(subject, slow).await {
                tracing::debug!(object = %subject.key, %error, "cannot say that it takes long");
            }
        };
        futures::future::join(work, report).await.0
    }
}

/// The fields about deletes that the API server still shows although the written status does not have them: a server-side
/// apply leaves fields that other writers set. (pure)
fn left_by_others(written: &GitSyncStatus, shown: Option<&GitSyncStatus>) -> Vec<&'static str> {
    let Some(shown) = shown else { return Vec::new() };
    let approved = shown.approved_prune.is_some() && written.approved_prune.is_none();
    let pending = shown.pending_prune.is_some() && written.pending_prune.is_none();
    [("approvedPrune", approved), ("pendingPrune", pending)]
        .into_iter()
        .filter_map(|(field, is_left)| is_left.then_some(field))
        .collect()
}
