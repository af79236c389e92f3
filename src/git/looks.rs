//! One list of refs for all who follow the same repository.
//!
//! Whoever needs to know what the server says now takes part in a look that begins later: while one look runs, the next one gathers those
//! who come meanwhile. So a burst of a thousand questions is two looks. Whoever is content with a recent answer takes the last one.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::Instant;

use super::GitError;
use super::check::Target;
use super::refs::{Answers, Listed};
use crate::order::Seq;

/// How long a look is waited for before another one begins beside it. It may hang.
const PATIENCE: Duration = Duration::from_secs(5);
/// How many looks of one repository may run at the same time. One that has run for longer than this does not count: it hangs, and whoever has
/// begun it may have patience for an hour.
const MAX_RUNNING: usize = 3;
const MAX_PATIENCE: Duration = Duration::from_secs(30);
/// How often whoever waits for one of them looks for another way.
const NEXT_TRY: Duration = Duration::from_secs(1);

/// What the server said of each target, or why it said nothing.
pub(super) type Said = Result<Answers, GitError>;

/// What the server said at one moment.
pub(super) struct Look {
    /// When it began, in the order of events.
    pub began: Seq,
    /// When its answer was there.
    pub ended: Seq,
    /// The same as a time.
    pub at: Instant,
    said: Said,
}

impl Look {
    /// What it says of a target; `None` if that was not asked for.
    pub fn of(&self, target: &Target) -> Option<Result<Listed, GitError>> {
        match &self.said {
            Ok(answers) => answers.get(target).cloned(),
            Err(error) => Some(Err(error.clone())),
        }
    }

    /// Why the server said nothing.
    pub fn failure(&self) -> Option<&GitError> {
        self.said.as_ref().err()
    }

    /// Whether it says only that somebody's patience is over.
    const fn is_over_time(&self) -> bool {
        matches!(self.said, Err(GitError::Timeout { .. } | GitError::Busy))
    }
}

/// What somebody wants to know.
pub(super) struct Wish<'a> {
    /// What is followed.
    pub target: &'a Target,
    /// How old a look may be that began before the question. With `None` it must begin later.
    pub max_age: Option<Duration>,
    /// When the look ended that was the last answer. Of two looks at the same time nobody knows which one is newer, so an answer that is taken
    /// must have begun later, or be the same.
    pub told: Seq,
    /// How long the answer may take.
    pub timeout: Duration,
}

/// The looks at one repository.
#[derive(Default)]
pub(super) struct Looks(Mutex<State>);

#[derive(Default)]
struct State {
    /// The newest one that has ended.
    last: Option<Arc<Look>>,
    running: Vec<Running>,
}

struct Running {
    began: Seq,
    since: Instant,
    /// Closes when it ends.
    end: watch::Receiver<()>,
}

/// What to do next.
enum Step<'a> {
    Take(Arc<Look>),
    Wait(watch::Receiver<()>, Instant),
    Lead(Lead<'a>),
}

/// A look that runs. Dropping it makes room for another one.
struct Lead<'a> {
    looks: &'a Looks,
    began: Seq,
    at: Instant,
    _end: watch::Sender<()>,
}

impl Drop for Lead<'_> {
    fn drop(&mut self) {
        self.looks.0.lock().running.retain(|one| one.began != self.began);
    }
}

impl Looks {
    /// The answer to a wish, and whether `ask` was used for it, which asks the server within a time.
    ///
    /// # Errors
    /// [`GitError::Timeout`] when no look ends in time. A look that failed is no error here.
    pub async fn get<F: Future<Output = Said>>(
        &self,
        wish: Wish<'_>,
        mut ask: impl FnMut(Duration) -> F,
    ) -> Result<(Arc<Look>, bool), GitError> {
        let (asked, deadline) = (Seq::next(), Instant::now() + wish.timeout);
        loop {
            match self.step(&wish, asked) {
                Step::Take(look) => return Ok((look, false)),
                Step::Lead(lead) => {
                    let time = deadline.saturating_duration_since(Instant::now());
                    let said = ask(time).await;
                    return Ok((self.end(&lead, said), true));
                }
                Step::Wait(mut end, until) => {
                    // An error says that it has ended.
                    let _ = tokio::time::timeout_at(until.min(deadline), end.changed()).await;
                }
            }
            if Instant::now() >= deadline {
                let what = "asking the server for the ref";
                return Err(GitError::Timeout { what, after: wish.timeout });
            }
        }
    }

    /// The newest answer.
    pub fn newest(&self) -> Option<Arc<Look>> {
        self.0.lock().last.clone()
    }

    fn step(&self, wish: &Wish<'_>, asked: Seq) -> Step<'_> {
        let mut state = self.0.lock();
        let is_good = |look: &&Arc<Look>| {
            let is_new = look.began > asked;
            let is_recent = wish.max_age.is_some_and(|most| look.at.elapsed() < most);
            let goes_on = look.began > wish.told || look.ended == wish.told;
            (is_new || (is_recent && goes_on)) && look.of(wish.target).is_some()
        };
        if let Some(look) = state.last.as_ref().filter(is_good) {
            return Step::Take(Arc::clone(look));
        }
        let runs = |one: &&Running| one.since.elapsed() < MAX_PATIENCE;
        let may_lead = state.running.iter().filter(runs).count() < MAX_RUNNING;
        if let Some(newest) = state.running.last() {
            let until = newest.since + PATIENCE;
            if !may_lead {
                // Any of them may end.
                return Step::Wait(newest.end.clone(), Instant::now() + NEXT_TRY);
            }
            if Instant::now() < until {
                return Step::Wait(newest.end.clone(), until);
            }
        }
        let (began, at) = (Seq::next(), Instant::now());
        let (sender, end) = watch::channel(());
        state.running.push(Running { began, since: at, end });
        Step::Lead(Lead { looks: self, began, at, _end: sender })
    }

    fn end(&self, lead: &Lead<'_>, said: Said) -> Arc<Look> {
        let (began, at, ended) = (lead.began, lead.at, Seq::next());
        let look = Arc::new(Look { began, ended, at, said });
        let mut state = self.0.lock();
        let is_newest = state.last.as_ref().is_none_or(|last| last.began < began);
        // That somebody's time is over says nothing to those who want a recent answer.
        if is_newest && !look.is_over_time() {
            state.last = Some(Arc::clone(&look));
        }
        look
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic)]
#[path = "tests/looks.rs"]
mod tests;
