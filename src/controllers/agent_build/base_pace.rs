//! (pure) How often a tag of a base image is followed. One that names another image each time it is asked would start builds for ever: so the next
//! build waits for a while, and for twice as long each time, until the tag has been quiet.
//!
//! All of it is in memory: after a restart, the first image that is another one counts at once.
#![deny(clippy::disallowed_types, clippy::disallowed_methods)]

use k8s_openapi::jiff::{SignedDuration, Timestamp};

use crate::registry::Digest;

/// The pause after an image that is another one than before. Each further pause is twice as long.
const FIRST_PAUSE: SignedDuration = SignedDuration::from_hours(1);
/// How often the pause is doubled: then it has eight hours.
const MAX_DOUBLINGS: u32 = 3;

/// The pace of one tag.
#[derive(Debug, Default)]
pub struct Pace {
    /// The image that is built on.
    used: Option<Digest>,
    /// How often it has become another one, without a long time between.
    moves: u32,
    /// When it became that.
    moved: Option<Timestamp>,
}

/// What is built on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Followed {
    /// The image.
    pub digest: Digest,
    /// Until when the tag is not followed, if it names another image.
    pub until: Option<Timestamp>,
}

impl Followed {
    /// Why another image is built on than the tag names.
    #[must_use]
    pub fn why(&self) -> Option<String> {
        let until = self.until?;
        Some(format!(
            "the tag names another image once more, soon after the one before: builds for it begin after {until:.0}, and convoke rebuild does not wait"
        ))
    }
}

impl Pace {
    /// The image that is built on, if there is one.
    #[must_use]
    pub const fn used(&self) -> Option<&Digest> {
        self.used.as_ref()
    }

    /// Whether it still slows something down.
    #[must_use]
    pub fn counts(&self, now: Timestamp) -> bool {
        self.until(2).is_some_and(|quiet| quiet > now)
    }

    /// What to build on when the tag names this image. `before` is what the status says was built on, and counts after a restart. `at_once`:
    /// somebody asks for a build.
    pub fn follow(
        &mut self,
        named: &Digest,
        before: Option<Digest>,
        at_once: bool,
        now: Timestamp,
    ) -> Followed {
        let used = self.used.take().or(before).unwrap_or_else(|| named.clone());
        let until = self.until(1).filter(|until| *until > now && !at_once && used != *named);
        if until.is_none() && used != *named {
            let is_quiet = self.until(2).is_none_or(|quiet| quiet <= now);
            self.moves = if is_quiet { 1 } else { self.moves.saturating_add(1) };
            self.moved = Some(now);
        }
        let digest = if until.is_some() { used } else { named.clone() };
        self.used = Some(digest.clone());
        Followed { digest, until }
    }

    /// The time so many pauses after the last move. `None` if there was none.
    fn until(&self, pauses: i32) -> Option<Timestamp> {
        let doublings = self.moves.saturating_sub(1).min(MAX_DOUBLINGS);
        let pause = FIRST_PAUSE * 2i32.pow(doublings) * pauses;
        self.moved?.checked_add(pause).ok()
    }
}

#[cfg(test)]
#[path = "tests/base_pace.rs"]
mod tests;
