//! What the engine says in statuses.

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
use crate::sync::status::events::{of_sync, turned};
use crate::sync::status::last_written::LastWritten;
use crate::sync::status::{Report, status};
use crate::sync::subject::Subject;

/// How long writes may go on before the status says that they do: until then it says what was true before them.
const SLOW: Duration = Duration::from_secs(10);

/// The one writer of the statuses of a namespace.
#[derive(Clone, Copy)]
pub(crate) struct StatusWriter<'a> {
    pub stores: &'a Stores,
    pub last_written: &'a LastWritten,
}

impl StatusWriter<'_> {
    /// Tells what a status that stands there now says otherwise than before. `news` of what was done say it, too.
    pub(crate) fn announce(
        &self,
        io: &Io,
        (key, uid): (&Key, &str),
        status: &GitSyncStatus,
        news: Option<Event>,
    ) {
        let turn = self.last_written.turn(key, uid, status);
        let event = news.or_else(|| turned(turn?, of_sync(key, uid), status));
        if let Some(event) = event {
            io.emit(Effect::Event(Box::new(event)));
        }
    }

    /// Writes what a report says over the newest status. An event tells of it, if it is news.
    pub(crate) async fn report(
        &self,
        subject: &Subject<'_>,
        report: Report<'_>,
    ) -> Result<(), EngineError> {
        self.write_report(subject, report, None).await
    }

    /// The same with the event of what was done, which says what the status says.
    pub(crate) async fn write_report(
        &self,
        subject: &Subject<'_>,
        mut report: Report<'_>,
        news: Option<Event>,
    ) -> Result<(), EngineError> {
        report.silent = self.stores.silent();
        // Until it is written nothing is told: the next pass says it, too.
        let said = self.write(subject, |old| status(old, report)).await?;
        if let Some(said) = said {
            self.announce(subject.io, (subject.key, &subject.entry.uid), &said, news);
        }
        Ok(())
    }

    /// Writes a status over the newest one. Gives what stands there now; `None` when the GitSync is gone.
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
        // What a killed operator says late is not built on.
        let own = self.last_written.own(key, uid, sync.status.as_ref());
        let new = make(own.as_ref().or(sync.status.as_ref()));
        if sync.status.as_ref() == Some(&new) {
            self.last_written.say(key, uid, &new, Some(&new));
            return Ok(Some(new));
        }
        self.send(io, (key, uid), new, sync.status.as_ref()).await
    }

    /// Writes a status over the one that is `shown`, and gives it back; `None` when the GitSync is gone. Nobody else does.
    pub(crate) async fn send(
        &self,
        io: &Io,
        (key, uid): (&Key, &str),
        new: GitSyncStatus,
        shown: Option<&GitSyncStatus>,
    ) -> Result<Option<GitSyncStatus>, EngineError> {
        self.last_written.say(key, uid, &new, shown);
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
                    // Of one that does not parse nobody sees what its status says.
                    if entry.value.object().is_some() {
                        self.last_written.shown(&key, uid, shown);
                    }
                    self.stores.git_syncs.wrote(key, entry);
                    if fields.is_empty() || clears {
                        return Ok(Some(new));
                    }
                    call = Call::ClearStatus { name, version, fields };
                }
                Ok(_) => return Ok(Some(new)),
                // Nobody is left to tell.
                Err(error) if error.is_gone() => {
                    self.stores.git_syncs.deleted(key, uid);
                    return Ok(None);
                }
                Err(error) => return Err(EngineError::Status(error)),
            }
        }
    }

    /// What to say of a plan that takes long, while the status says that all is well.
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
        let mut said = unready(EngineReason::Progressing, &message);
        said.reconciling = true;
        // A request is handled at the end.
        Some(Report { handled: None, ..Report::blank(subject, said, remote) })
    }

    /// Does this work, and says that it is at it if it takes long.
    pub(crate) async fn beside<T>(
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
            if let Err(error) = self.report(subject, slow).await {
                tracing::debug!(object = %subject.key, %error, "cannot say that it takes long");
            }
        };
        futures::future::join(work, tell).await.0
    }
}

/// What decides about deletes and is still shown, although the status that was written says nothing of it: a server-side apply leaves
/// what others have written. (pure)
fn left_by_others(said: &GitSyncStatus, shown: Option<&GitSyncStatus>) -> Vec<&'static str> {
    let Some(shown) = shown else { return Vec::new() };
    let approved = shown.approved_prune.is_some() && said.approved_prune.is_none();
    let pending = shown.pending_prune.is_some() && said.pending_prune.is_none();
    [("approvedPrune", approved), ("pendingPrune", pending)]
        .into_iter()
        .filter_map(|(field, is_left)| is_left.then_some(field))
        .collect()
}
