//! (pure) When something is asked: at once when there is something new to ask, hourly, and sooner after a failure. Times are
//! durations since the start of the operator.
#![deny(clippy::disallowed_types, clippy::disallowed_methods)]

use std::time::Duration;

/// How often what has answered is asked again, when there are few objects.
const USUAL_PERIOD: Duration = Duration::from_secs(3600);
/// The time that each object adds to a round of all of them, when there are many. Asking one takes two requests or more, so this
/// leaves room for what is new.
const TIME_FOR_ONE: Duration = Duration::from_secs(1);
/// The shortest time over which the first round after a start is spread.
const MIN_SPREAD: Duration = Duration::from_secs(60);
/// The pause after the first failure.
const FIRST_BACKOFF: Duration = Duration::from_secs(2);
/// The longest pause after a failure.
const MAX_BACKOFF: Duration = Duration::from_secs(300);
/// The shortest time between two questions to the same object: pods that come and go are not asked each time.
const MIN_PAUSE: Duration = Duration::from_secs(5);

/// How often each of so many objects is asked.
#[must_use]
pub fn period(objects: usize) -> Duration {
    round(objects).max(USUAL_PERIOD)
}

/// When an object is asked for the first time after a start, if its status says already what it said before. `share`, from 0 to
/// 255, is its place in the round.
#[must_use]
pub fn first_turn(objects: usize, share: u8) -> Duration {
    round(objects).max(MIN_SPREAD).mul_f64(f64::from(share) / 256.0)
}

fn round(objects: usize) -> Duration {
    TIME_FOR_ONE.saturating_mul(u32::try_from(objects).unwrap_or(u32::MAX))
}

/// The pause after so many failures in a row.
fn backoff(failures: u32) -> Duration {
    FIRST_BACKOFF.saturating_mul(1 << failures.saturating_sub(1).min(16)).min(MAX_BACKOFF)
}

/// What to do with an object now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Ask.
    Ask,
    /// Nothing, for this long.
    Wait(Duration),
}

/// How far asking one object is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Progress {
    /// Who was asked last: a pod, by its UID, or the address.
    asked: Option<String>,
    /// Whether the same is to be asked again as if it were new, or now if nobody was asked yet.
    is_stale: bool,
    /// When that was.
    last: Option<Duration>,
    /// When the same is asked again, or, before the first question, when that is.
    due: Duration,
    /// Failures of the same in a row. The pause follows from them.
    failures: u32,
    /// Failures in a row, whoever was asked.
    all_failures: u32,
}

impl Progress {
    /// Nothing was asked yet. The first question is at this time.
    #[must_use]
    pub fn starting(due: Duration) -> Self {
        Self { due, ..Self::default() }
    }

    /// What to do at `now` when `whom` is the one to ask.
    #[must_use]
    pub fn step(&self, whom: &str, now: Duration) -> Step {
        let is_news = self.is_stale || self.asked.as_deref() != Some(whom);
        let due = match self.last {
            Some(last) if is_news => last + MIN_PAUSE,
            None if self.is_stale => Duration::ZERO,
            _ => self.due,
        };
        match due.checked_sub(now) {
            Some(wait) if !wait.is_zero() => Step::Wait(wait),
            _ => Step::Ask,
        }
    }

    /// This one is not ready any more. If it was asked last, and is ready again, that is news.
    pub fn lost(&mut self, whom: &str) {
        self.is_stale |= self.asked.as_deref() == Some(whom);
    }

    /// A pod has become ready. If nobody was asked since the start, what the status tells is of another one.
    pub fn ready(&mut self) {
        self.is_stale |= self.last.is_none();
    }

    /// The status tells nothing of what was found: whoever is there is asked at once.
    pub fn untold(&mut self) {
        self.is_stale = true;
    }

    /// Whether the failure is the first one in a row: most pass at once, and are not told. Pods that take turns in failing count
    /// together.
    #[must_use]
    pub const fn is_first_failure(&self) -> bool {
        self.all_failures == 1
    }

    /// `whom` was asked. `again` is when it is asked again if all is well; after a failure it is asked sooner. Gives the time until
    /// then. `vary` changes a time a little, so that not all are asked together.
    pub fn asked(
        &mut self,
        whom: &str,
        failed: bool,
        (now, again): (Duration, Duration),
        vary: impl Fn(Duration) -> Duration,
    ) -> Duration {
        let is_another = self.asked.as_deref() != Some(whom);
        self.failures = match (failed, is_another) {
            (false, _) => 0,
            (true, true) => 1,
            (true, false) => self.failures.saturating_add(1),
        };
        self.all_failures = if failed { self.all_failures.saturating_add(1) } else { 0 };
        let pause = vary(if failed { backoff(self.failures) } else { again });
        self.asked = Some(whom.to_owned());
        self.is_stale = false;
        self.last = Some(now);
        self.due = now + pause;
        pause
    }
}

#[cfg(test)]
#[path = "tests/schedule.rs"]
mod tests;
