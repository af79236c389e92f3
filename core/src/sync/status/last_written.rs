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
mod tests {
    use super::*;

    fn status(revision: &str) -> GitSyncStatus {
        GitSyncStatus { last_applied_revision: Some(revision.into()), ..GitSyncStatus::default() }
    }

    #[test]
    #[allow(clippy::disallowed_methods)] // a point to count from
    fn g18_what_somebody_else_writes_is_answered_once_and_what_we_wrote_is_not() {
        let (spoken, key, now) = (LastWritten::default(), Key::new("team", "main"), Instant::now());
        let (a, b, late) = (status("a"), status("b"), status("late"));
        let wait = |live: Option<&GitSyncStatus>| spoken.wait(&key, "u", live, now);
        assert_eq!(wait(Some(&late)), None, "nothing was said yet");
        // On its way, and whether or not it arrives.
        spoken.say(&key, "u", &b, Some(&a));
        assert_eq!((wait(Some(&a)), wait(Some(&b))), (None, None));
        // The server leaves out what it does not know.
        let shown = status("b, as the server has it");
        spoken.shown(&key, "u", Some(shown.clone()));
        assert_eq!((wait(Some(&b)), wait(Some(&shown))), (None, None));
        for foreign in [Some(&late), Some(&a), None] {
            assert_eq!(wait(foreign), Some(Duration::ZERO));
        }
        assert_eq!(spoken.wait(&key, "another", Some(&late), now), None);
        assert_eq!(spoken.answer(&key, "u", Some(&shown), now), None);
        assert_eq!(spoken.answer(&key, "u", Some(&late), now), Some(b.clone()));
        assert_eq!(spoken.answer(&key, "u", Some(&late), now), None, "once");
        // Of the two numbers that say how much may be deleted, the smaller one is kept.
        let of = |prune_base| GitSyncStatus { prune_base, ..status("b") };
        for (ours, theirs, kept) in
            [(8, Some(6), 6), (6, Some(8), 6), (6, None, 6), (6, Some(-1), 0)]
        {
            let spoken = LastWritten::default();
            spoken.say(&key, "u", &of(Some(ours)), Some(&a));
            assert_eq!(spoken.own(&key, "u", Some(&of(theirs))), Some(of(Some(kept))));
            let answer = spoken.answer(&key, "u", Some(&of(theirs)), now);
            assert_eq!(answer, Some(of(Some(kept))));
            assert_eq!(spoken.own(&key, "u", Some(&of(Some(ours)))), None, "it is ours");
        }
        // What could not be written over it yet is written once more.
        spoken.say(&key, "u", &b, Some(&late));
        assert!(wait(Some(&late)) > Some(Duration::ZERO));
        // What the server makes of it is accepted.
        spoken.shown(&key, "u", Some(late.clone()));
        assert_eq!(wait(Some(&late)), None);
        spoken.forget(&key);
        assert_eq!(wait(Some(&a)), None);
    }

    #[test]
    #[allow(clippy::disallowed_methods)] // a point to count from
    fn g18_whoever_goes_on_writing_is_answered_less_and_less_often() {
        let (spoken, key, start) =
            (LastWritten::default(), Key::new("team", "main"), Instant::now());
        let (ours, theirs) = (status("ours"), status("theirs"));
        let answers = |from: Instant, seconds: u64| {
            let mut answers = 0;
            for millis in (0..seconds * 1000).step_by(50) {
                let now = from + Duration::from_millis(millis);
                let wait = spoken.wait(&key, "u", Some(&theirs), now).expect("foreign");
                if let Some(answer) = spoken.answer(&key, "u", Some(&theirs), now) {
                    assert_eq!((wait, answer), (Duration::ZERO, ours.clone()));
                    spoken.say(&key, "u", &ours, Some(&theirs));
                    spoken.shown(&key, "u", Some(ours.clone()));
                    answers += 1;
                } else {
                    assert!(wait > Duration::ZERO);
                }
            }
            answers
        };
        spoken.say(&key, "u", &ours, Some(&ours));
        let hour = answers(start, 3600);
        assert!((10..80).contains(&hour), "{hour} in an hour");
        // Quiet for long, and it is answered at once again.
        let later = start + Duration::from_secs(3600) + QUIET * 2;
        assert!((2..5).contains(&answers(later, 2)));
    }
}
