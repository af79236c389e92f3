//! Rewrites a GitSync status that another writer, for instance a killed predecessor's late request, overwrote.
//!
//! A writer that goes on overwriting it is answered less and less often, so that two writers do not overload the API server.

use parking_lot::{Mutex, MutexGuard};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::api::git_sync::GitSyncStatus;
use crate::cluster::store::Key;
use crate::next::delay;
use crate::sync::plan::brake::narrowed;
use crate::sync::status::events::{AnnouncedState, StateChange};

/// After this long without a rewrite, the next one is made at once.
const REWRITE_BACKOFF_RESET: Duration = Duration::from_secs(10 * 60);

struct Written {
    /// UID of the GitSync.
    uid: String,
    /// The status that was written last.
    sent: GitSyncStatus,
    /// The status that the API server shows, as far as is known: before the reply the one that was written over, after it
    /// the one in the reply.
    shown: Option<GitSyncStatus>,
    /// How often another writer's status was rewritten.
    rewrites: u32,
    /// When it was rewritten last, and when it may be rewritten next.
    last_rewrite: Option<(Instant, Instant)>,
    /// What events have announced of the status, or what it said before this operator started.
    announced: AnnouncedState,
}

/// The status that this operator wrote last for each GitSync.
#[derive(Default)]
pub struct LastWritten(Mutex<BTreeMap<Key, Written>>);

impl LastWritten {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<Key, Written>> {
        self.0.lock()
    }

    /// Notes that `sent` is about to be written over `shown`, or that the API server shows it already. Another writer's
    /// status stays foreign until the reply: the request may fail.
    pub fn wrote(&self, key: &Key, uid: &str, sent: &GitSyncStatus, shown: Option<&GitSyncStatus>) {
        let mut all = self.lock();
        if let Some(written) = all.get_mut(key).filter(|written| written.uid == uid) {
            let is_foreign = written.is_foreign(shown);
            // Most of the time it is the same status again.
            if written.sent != *sent {
                written.sent = sent.clone();
            }
            if !is_foreign && written.shown.as_ref() != shown {
                written.shown = shown.cloned();
            }
        } else {
            // What the status said when this operator started makes no event.
            let announced = AnnouncedState::of(shown);
            let (uid, sent, shown) = (uid.to_owned(), sent.clone(), shown.cloned());
            all.insert(
                key.clone(),
                Written { uid, sent, shown, rewrites: 0, last_rewrite: None, announced },
            );
        }
    }

    /// Notes the status in the reply of the API server.
    pub fn replied(&self, key: &Key, uid: &str, shown: Option<GitSyncStatus>) {
        if let Some(written) = self.lock().get_mut(key).filter(|written| written.uid == uid) {
            written.shown = shown;
        }
    }

    /// The change to this status that needs an event. It counts as announced from then on.
    pub(crate) fn announce(
        &self,
        key: &Key,
        uid: &str,
        status: &GitSyncStatus,
    ) -> Option<StateChange> {
        let mut all = self.lock();
        let written = all.get_mut(key).filter(|written| written.uid == uid)?;
        written.announced.change_to(AnnouncedState::of(Some(status)))
    }

    /// If the live status is another writer's: how long to wait before it is rewritten.
    #[must_use]
    pub fn wait_before_rewrite(
        &self,
        key: &Key,
        uid: &str,
        live: Option<&GitSyncStatus>,
        now: Instant,
    ) -> Option<Duration> {
        let all = self.lock();
        let written =
            all.get(key).filter(|written| written.uid == uid && written.is_foreign(live))?;
        Some(
            written
                .last_rewrite
                .map_or(Duration::ZERO, |(_, next)| next.saturating_duration_since(now)),
        )
    }

    /// If the live status is another writer's and may be rewritten now: the status to write over it.
    #[must_use]
    pub fn rewrite(
        &self,
        key: &Key,
        uid: &str,
        live: Option<&GitSyncStatus>,
        now: Instant,
    ) -> Option<GitSyncStatus> {
        let mut all = self.lock();
        let written =
            all.get_mut(key).filter(|written| written.uid == uid && written.is_foreign(live))?;
        if let Some((last, next)) = written.last_rewrite {
            if now < next {
                return None;
            }
            if now.duration_since(last) > REWRITE_BACKOFF_RESET {
                written.rewrites = 0;
            }
        }
        written.last_rewrite = Some((now, now + delay(written.rewrites)));
        written.rewrites = written.rewrites.saturating_add(1);
        Some(written.over(live))
    }

    /// If the live status is another writer's: the status that counts instead.
    #[must_use]
    pub fn own(&self, key: &Key, uid: &str, live: Option<&GitSyncStatus>) -> Option<GitSyncStatus> {
        let all = self.lock();
        let written =
            all.get(key).filter(|written| written.uid == uid && written.is_foreign(live))?;
        Some(written.over(live))
    }

    /// The GitSyncs that have an entry, for tests.
    #[cfg(test)]
    pub fn names(&self) -> Vec<String> {
        self.lock().keys().map(|key| key.name.clone()).collect()
    }

    /// Forgets a GitSync that is gone.
    pub fn forget(&self, key: &Key) {
        self.lock().remove(key);
    }
}

impl Written {
    /// Whether another writer has written this status.
    fn is_foreign(&self, live: Option<&GitSyncStatus>) -> bool {
        live != Some(&self.sent) && live != self.shown.as_ref()
    }

    /// The status to write over another writer's.
    fn over(&self, live: Option<&GitSyncStatus>) -> GitSyncStatus {
        let mut status = self.sent.clone();
        let held = status.pending_prune.as_ref();
        let shown = live.and_then(|live| live.pending_prune.as_ref());
        if let Some(narrowed) = held.and_then(|held| narrowed(held, shown)) {
            status.pending_prune = Some(narrowed);
        }
        // A killed operator may have counted fewer objects: the prune brake counts from the smaller number.
        if let (Some(ours), Some(live)) = (status.prune_base, live.and_then(|live| live.prune_base))
        {
            status.prune_base = Some(ours.min(live.max(0)));
        }
        status
    }
}

#[cfg(test)]
#[path = "tests/last_written.rs"]
mod tests;
