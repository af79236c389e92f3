//! Those who follow a ref of a repository: what each was told of it, and when it has to be woken.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use gix::ObjectId;
use parking_lot::Mutex;
use tokio::time::Instant;

use super::GitError;
use super::check::Target;
use super::looks::Look;
use super::refs::Listed;
use crate::order::Seq;

/// How much time is between two wakes of the same one, so that a busy repository does not keep thousands busy.
const MIN_TIME_BETWEEN_WAKES: Duration = Duration::from_secs(10);

/// Tells that a ref has moved, and when to look at it.
#[derive(Clone)]
pub struct Wake(pub Arc<dyn Fn(Duration) + Send + Sync>);

impl fmt::Debug for Wake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Wake")
    }
}

/// The commit and the name of a ref.
type Known = (ObjectId, String);

/// What somebody was told of a ref.
#[derive(Default, PartialEq, Eq)]
enum Told {
    /// Nothing yet.
    #[default]
    Nothing,
    /// An error.
    Error,
    /// That it does not exist.
    Missing,
    Commit(Known),
}

/// Somebody who follows a target in a repository.
pub(super) struct Follower {
    /// Whose remote it is of.
    pub owner: String,
    pub target: Target,
    /// What it was told last, and when that look ended.
    told: Mutex<(Told, Seq)>,
    /// When it was woken last, or will be, and for which commit, unless it was told something since.
    woken: Mutex<Option<(Instant, Option<Known>)>>,
    /// How many questions of it are open.
    asking: AtomicUsize,
    pub wake: Option<Wake>,
}

impl Follower {
    pub fn new(owner: String, target: Target, wake: Option<Wake>) -> Self {
        let (told, woken) = (Mutex::new((Told::Nothing, Seq::next())), Mutex::default());
        Self { owner, target, told, woken, asking: AtomicUsize::new(0), wake }
    }

    /// Notes what it is told by a look that ended then.
    pub fn tell(&self, listed: &Result<Listed, GitError>, ended: Seq) {
        let told = match listed {
            Ok(Listed { found, name }) => Told::Commit((found.commit, name.clone())),
            Err(GitError::RefNotFound { .. } | GitError::EmptyRepository) => Told::Missing,
            Err(_) => Told::Error,
        };
        *self.told.lock() = (told, ended);
        if let Some((_, of)) = &mut *self.woken.lock() {
            *of = None;
        }
    }

    /// When the look ended that told it something, or else when it began to follow.
    pub fn told_at(&self) -> Seq {
        self.told.lock().1
    }

    pub fn is_asking(&self) -> bool {
        self.asking.load(Ordering::SeqCst) > 0
    }

    /// Whether it was told that its target does not exist.
    pub fn is_missing(&self) -> bool {
        self.told.lock().0 == Told::Missing
    }

    /// It has a question until the guard is dropped.
    pub fn asks(&self) -> Asking<'_> {
        self.asking.fetch_add(1, Ordering::SeqCst);
        Asking(self)
    }

    /// When it has to be woken because a look shows something else than it was told: after this time at the earliest.
    pub fn is_behind(&self, look: &Look, after: Duration) -> Option<Duration> {
        if self.is_asking() {
            return None;
        }
        let listed = look.of(&self.target)?.ok()?;
        let known = (listed.found.commit, listed.name);
        match &self.told.lock().0 {
            // It asks by itself.
            Told::Nothing => return None,
            Told::Commit(told) if *told == known => return None,
            Told::Commit(_) | Told::Error | Told::Missing => {}
        }
        let (now, mut woken) = (Instant::now(), self.woken.lock());
        let mut at = now + after;
        if let Some((last, of)) = &*woken {
            if of.as_ref() == Some(&known) {
                return None;
            }
            let lies_ahead = *last > now;
            at = if lies_ahead { *last } else { at.max(*last + MIN_TIME_BETWEEN_WAKES) };
        }
        *woken = Some((at, Some(known)));
        Some(at.saturating_duration_since(now))
    }
}

pub(super) struct Asking<'a>(&'a Follower);

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        self.0.asking.fetch_sub(1, Ordering::SeqCst);
    }
}
