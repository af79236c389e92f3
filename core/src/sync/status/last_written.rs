//! What this operator has last said in the status of each GitSync, so that it is said again when somebody else writes
//! over it: a request of an operator that was killed, for example, that the API server takes only when the next one has
//! long written its own.
//!
//! Whoever goes on writing is answered less and less often, so that two never fight.

use parking_lot::{Mutex, MutexGuard};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::api::git_sync::GitSyncStatus;
use crate::cluster::store::Key;
use crate::next::delay;
use crate::sync::plan::brake::narrowed;
use crate::sync::status::events::{Standing, Turn};

/// After this long without an answer the next one is given at once.
const QUIET: Duration = Duration::from_secs(10 * 60);

struct Written {
    /// UID of the GitSync.
    uid: String,
    /// What is to stand there.
    sent: GitSyncStatus,
    /// What stands there as far as is known: what was built on, and after the reply what the server made of it.
    shown: Option<GitSyncStatus>,
    /// How often somebody else was written over.
    answers: u32,
    /// When that was last, and until when it is not done again.
    last: Option<(Instant, Instant)>,
    /// What events have told of it, or stood there before.
    told: Standing,
}

/// See the module.
#[derive(Default)]
pub struct LastWritten(Mutex<BTreeMap<Key, Written>>);

impl LastWritten {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<Key, Written>> {
        self.0.lock()
    }

    /// A status is about to be written over `shown`, or stands there already. What somebody else has written stays foreign until it is
    /// written over: the request may fail.
    pub fn say(&self, key: &Key, uid: &str, sent: &GitSyncStatus, shown: Option<&GitSyncStatus>) {
        let mut all = self.lock();
        if let Some(said) = all.get_mut(key).filter(|said| said.uid == uid) {
            let is_foreign = said.is_foreign(shown);
            // Most of the time the same is said again.
            if said.sent != *sent {
                said.sent = sent.clone();
            }
            if !is_foreign && said.shown.as_ref() != shown {
                said.shown = shown.cloned();
            }
        } else {
            // What stood there when this operator came is no news.
            let told = Standing::of(shown);
            let (uid, sent, shown) = (uid.to_owned(), sent.clone(), shown.cloned());
            all.insert(key.clone(), Written { uid, sent, shown, answers: 0, last: None, told });
        }
    }

    /// What the server has made of what was said.
    pub fn shown(&self, key: &Key, uid: &str, shown: Option<GitSyncStatus>) {
        if let Some(said) = self.lock().get_mut(key).filter(|said| said.uid == uid) {
            said.shown = shown;
        }
    }

    /// What of a status that stands there now is to be told by an event. It counts as told from now on.
    pub(crate) fn turn(&self, key: &Key, uid: &str, status: &GitSyncStatus) -> Option<Turn> {
        let mut all = self.lock();
        let said = all.get_mut(key).filter(|said| said.uid == uid)?;
        said.told.turn(Standing::of(Some(status)))
    }

    /// If that live status is somebody else's: how long to wait before it is answered.
    #[must_use]
    pub fn wait(
        &self,
        key: &Key,
        uid: &str,
        live: Option<&GitSyncStatus>,
        now: Instant,
    ) -> Option<Duration> {
        let all = self.lock();
        let said = all.get(key).filter(|said| said.uid == uid && said.is_foreign(live))?;
        Some(said.last.map_or(Duration::ZERO, |(_, next)| next.saturating_duration_since(now)))
    }

    /// If that live status is somebody else's, and it is time: what to write over it.
    #[must_use]
    pub fn answer(
        &self,
        key: &Key,
        uid: &str,
        live: Option<&GitSyncStatus>,
        now: Instant,
    ) -> Option<GitSyncStatus> {
        let mut all = self.lock();
        let said = all.get_mut(key).filter(|said| said.uid == uid && said.is_foreign(live))?;
        if let Some((last, next)) = said.last {
            if now < next {
                return None;
            }
            if now.duration_since(last) > QUIET {
                said.answers = 0;
            }
        }
        said.last = Some((now, now + delay(said.answers)));
        said.answers = said.answers.saturating_add(1);
        Some(said.over(live))
    }

    /// If that live status is somebody else's: what counts instead, for what is said next.
    #[must_use]
    pub fn own(&self, key: &Key, uid: &str, live: Option<&GitSyncStatus>) -> Option<GitSyncStatus> {
        let all = self.lock();
        let said = all.get(key).filter(|said| said.uid == uid && said.is_foreign(live))?;
        Some(said.over(live))
    }

    /// Of whom it is known, for tests.
    #[cfg(test)]
    pub fn names(&self) -> Vec<String> {
        self.lock().keys().map(|key| key.name.clone()).collect()
    }

    /// The GitSync is gone.
    pub fn forget(&self, key: &Key) {
        self.lock().remove(key);
    }
}

impl Written {
    fn is_foreign(&self, live: Option<&GitSyncStatus>) -> bool {
        live != Some(&self.sent) && live != self.shown.as_ref()
    }

    /// What is to stand there instead of somebody else's status.
    fn over(&self, live: Option<&GitSyncStatus>) -> GitSyncStatus {
        let mut status = self.sent.clone();
        let held = status.pending_prune.as_ref();
        let shown = live.and_then(|live| live.pending_prune.as_ref());
        if let Some(narrowed) = held.and_then(|held| narrowed(held, shown)) {
            status.pending_prune = Some(narrowed);
        }
        // An operator that was killed knew of fewer objects, perhaps: how much may be deleted is of the smaller number.
        if let (Some(said), Some(live)) = (status.prune_base, live.and_then(|live| live.prune_base))
        {
            status.prune_base = Some(said.min(live.max(0)));
        }
        status
    }
}

#[cfg(test)]
#[path = "tests/last_written.rs"]
mod tests;
