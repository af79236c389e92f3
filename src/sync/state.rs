//! What the engine keeps of a GitSync between two reconciles. All of it can be made anew.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::task::JoinHandle;

use super::board::Board;
use super::fights::Fights;
use super::plan::Settled;
use super::problems::Refused;
use super::references::References;
use super::source::{Loaded, Source};
use super::source_error::SourceError;
use crate::api::git_sync::Stages;
use crate::cluster::identity::Account;
use crate::git::Revision;

/// Why the newest commit could not be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceFailure {
    /// The condition's reason.
    pub reason: &'static str,
    /// Error and hint, for people.
    pub message: String,
    /// Whether only a change of the spec helps.
    pub terminal: bool,
}

impl From<SourceError> for SourceFailure {
    fn from(error: SourceError) -> Self {
        let message = match error.hint() {
            Some(hint) => format!("{error}; hint: {hint}"),
            None => error.to_string(),
        };
        Self { reason: error.reason(), message, terminal: error.is_terminal() }
    }
}

/// Why and for what the remote is looked at.
#[derive(Debug, Clone)]
pub struct Question {
    /// What started it.
    pub trigger: &'static str,
    /// Generation of the spec.
    pub generation: i64,
    /// Value of `requestedAt`.
    pub request: Option<String>,
    /// When it began.
    pub began: Instant,
}

/// What a look at the remote found.
pub struct Answer {
    /// What was asked.
    pub question: Question,
    /// Newest commit that was tried.
    pub attempted: Option<Revision>,
    /// Timings.
    pub stages: Stages,
    /// Whether something new was read.
    pub changed: bool,
    /// Why not.
    pub failure: Option<SourceFailure>,
    /// The newest commit that was read whole, if it answers this spec.
    pub loaded: Option<Arc<Loaded>>,
    /// The commit that was applied before, if it had to be recalled beside that.
    pub recalled: Option<Arc<Loaded>>,
}

/// A look at the remote that runs beside the reconciles: a slow remote never delays the undoing of drift.
struct Poll {
    question: Question,
    answer: Arc<Mutex<Option<Answer>>>,
    task: JoinHandle<()>,
}

impl Drop for Poll {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// What is kept up to date between plans, object by object.
pub struct View {
    /// Which objects a plan has to look at.
    pub board: Board,
    /// References to nothing.
    pub references: References,
    /// The commit that both were made for.
    pub loaded: Arc<Loaded>,
}

/// See the module.
pub struct State {
    /// UID of the GitSync: one of the same name made anew starts from nothing.
    pub uid: String,
    /// Reads the repository; locked while it does.
    pub source: Arc<tokio::sync::Mutex<Source>>,
    poll: Option<Poll>,
    /// The newest commit that was read whole.
    pub loaded: Option<Arc<Loaded>>,
    /// When the remote is asked next; `None` before the first time.
    pub next_poll: Option<Instant>,
    /// Generation that the source was last asked for.
    pub generation: i64,
    /// Value of `requestedAt` that was last acted on.
    pub request: Option<String>,
    /// Why the newest commit could not be read.
    pub source_error: Option<SourceFailure>,
    /// Newest commit that was tried.
    pub attempted: Option<Revision>,
    /// Writes that changed nothing.
    pub settled: Settled,
    /// Plans with failed writes, in a row.
    pub attempts: u32,
    /// What a plan has to look at, and the commit that it was made for; `None` before the first plan.
    pub view: Option<View>,
    /// Content that the server refused: not sent again until it changes, or somebody asks.
    pub refused: Refused,
    /// Objects that somebody changes again and again.
    pub fights: Fights,
    /// When content that was refused for a missing right is sent again.
    pub denied_until: Option<Instant>,
    /// As whom the last plan was written, if that was no trouble.
    pub account: Option<Account>,
    /// The newest commit that did not have to wait for other GitSyncs.
    pub released: Option<Arc<Loaded>>,
    /// For which generation of the spec it did not.
    pub released_for: i64,
    /// What an operator that ran before this one has applied, while nothing is released.
    pub recalled: Option<Arc<Loaded>>,
    /// Whether the newest commit waits for other GitSyncs.
    pub waiting: bool,
    /// Since when the GitSync is known to be deleted.
    pub ended: Option<Instant>,
    /// Since when nothing but what others keep is left of it.
    pub parting: Option<Instant>,
    /// How many objects were deleted because of that.
    pub parted: usize,
    /// What started the work that is being done.
    pub trigger: &'static str,
    /// Timings of the last commit that was read.
    pub stages: Stages,
    /// When the work that is being done began.
    pub started: Option<Instant>,
}

impl State {
    /// Nothing known yet.
    pub fn new(uid: &str, source: Source) -> Self {
        Self {
            uid: uid.to_owned(),
            source: Arc::new(tokio::sync::Mutex::new(source)),
            poll: None,
            loaded: None,
            next_poll: None,
            generation: 0,
            request: None,
            source_error: None,
            attempted: None,
            settled: Settled::new(),
            attempts: 0,
            view: None,
            refused: Refused::new(),
            fights: Fights::default(),
            denied_until: None,
            account: None,
            released: None,
            recalled: None,
            released_for: 0,
            waiting: false,
            ended: None,
            parting: None,
            parted: 0,
            trigger: "Start",
            stages: Stages::default(),
            started: None,
        }
    }

    /// Why the remote is to be looked at now, if it is.
    pub fn due(
        &self,
        generation: i64,
        request: Option<&str>,
        asked: Option<&'static str>,
    ) -> Option<&'static str> {
        let Some(next) = self.next_poll else { return Some("Start") };
        if self.generation != generation {
            Some("Spec")
        } else if request.is_some() && self.request.as_deref() != request {
            Some("Request")
        } else if asked.is_some() {
            asked
        } else if next <= Instant::now() {
            Some(if self.source_error.is_some() { "Retry" } else { "Interval" })
        } else {
            None
        }
    }

    /// Whether a look has found something new that is not taken in yet: for asking while a plan is carried out.
    pub fn has_news(&self) -> impl Fn() -> bool + Send + Sync + use<> {
        let answer = self.poll.as_ref().map(|poll| poll.answer.clone());
        move || {
            answer.as_ref().is_some_and(|answer| {
                let answer = answer.lock().unwrap_or_else(PoisonError::into_inner);
                answer.as_ref().is_some_and(|answer| answer.changed || answer.failure.is_some())
            })
        }
    }

    /// The look that is under way.
    pub fn polling(&self) -> Option<&Question> {
        self.poll.as_ref().map(|poll| &poll.question)
    }

    /// Starts a look at the remote; `done` is called when its answer is there.
    pub fn poll(
        &mut self,
        question: Question,
        look: impl Future<Output = Answer> + Send + 'static,
        done: impl FnOnce() + Send + 'static,
    ) {
        let answer = Arc::new(Mutex::new(None));
        let slot = answer.clone();
        let task = tokio::spawn(async move {
            let found = look.await;
            *slot.lock().unwrap_or_else(PoisonError::into_inner) = Some(found);
            done();
        });
        self.poll = Some(Poll { question, answer, task });
    }

    /// The answer of the look that was under way, once it is there.
    pub fn take_answer(&mut self) -> Option<Answer> {
        let poll = self.poll.as_ref()?;
        let answer = poll.answer.lock().unwrap_or_else(PoisonError::into_inner).take();
        // A look that ended without an answer panicked: it is begun again when it is due.
        if answer.is_some() || poll.task.is_finished() {
            self.poll = None;
        }
        answer
    }

    /// Gives up the look that is under way; the next one begins as soon as it may.
    pub fn stop_looking(&mut self) {
        (self.poll, self.next_poll) = (None, None);
    }

    /// Time until the remote is asked next.
    pub fn until_poll(&self) -> Duration {
        if self.poll.is_some() {
            // Its answer wakes.
            return Duration::from_secs(10);
        }
        let now = Instant::now();
        self.next_poll.map_or(Duration::from_secs(1), |due| due.saturating_duration_since(now))
    }
}
