//! The limits of one attempt, and what went wrong in its conversation with the server.
//!
//! gix runs the protocol on a blocking thread. Every wait for the network goes through [`Wire::wait`], which ends at the deadline and when
//! the attempt is abandoned. So no thread hangs on a silent server. An answer has a limit in bytes. Nothing is tried again.

use parking_lot::Mutex;
use std::future::Future;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

use super::GitError;
use super::error::printable;
use super::heavy::{LISTS, Permit};

/// Bytes of the largest request. It holds only ids and prefixes of refs.
pub(super) const MAX_REQUEST_BYTES: usize = 1024 * 1024;

/// A list of refs with more bytes is long. Two of them are read at the same time: in memory each takes five times as much.
const LONG_LIST: u64 = 1 << 20;
/// How long the rest of a long list may take.
const MAX_LONG_LIST: Duration = Duration::from_secs(30);

/// The limits of one attempt, and the channel that stops it. A clone is cheap.
#[derive(Clone)]
pub(super) struct Bounds {
    /// When the attempt ends.
    pub deadline: Instant,
    /// The whole time of the attempt, for messages.
    pub timeout: Duration,
    /// Turns true, or closes, when the attempt is abandoned.
    pub stop: watch::Receiver<bool>,
    /// What is being done, for messages.
    pub what: &'static str,
}

impl Bounds {
    /// The error for an attempt that has taken too long.
    pub fn timed_out(&self) -> GitError {
        GitError::Timeout { what: self.what, after: self.timeout }
    }
}

/// One conversation with a server. Clones share its errors.
#[derive(Clone)]
pub(super) struct Wire {
    pub runtime: tokio::runtime::Handle,
    pub bounds: Bounds,
    /// How long the server may send nothing. With `None`, until the deadline.
    silence: Option<Duration>,
    /// Bytes of the largest answer, and the error for a larger one.
    answer_bytes: u64,
    too_large: GitError,
    /// The first error of this conversation. gix's own errors keep less of it.
    fault: Arc<Mutex<Option<GitError>>>,
    /// What the server said instead of an answer. gix ignores it in answers of protocol version 0.
    complaint: Arc<Mutex<Option<String>>>,
    /// For lists of refs: the permit for a long one, and until when it may take.
    long: Option<Arc<Mutex<Option<(Permit, Instant)>>>>,
}

impl Wire {
    /// Must be called on a thread of the runtime. A blocking one will do.
    pub fn new(
        bounds: Bounds,
        silence: Option<Duration>,
        answer_bytes: u64,
        too_large: GitError,
    ) -> Self {
        let runtime = tokio::runtime::Handle::current();
        let (fault, complaint) = Default::default();
        let long = None;
        Self { runtime, bounds, silence, answer_bytes, too_large, fault, complaint, long }
    }

    /// The same for a list of refs. All of it is kept in memory until the last clone is dropped.
    pub fn of_list(self) -> Self {
        Self { long: Some(Arc::default()), ..self }
    }

    /// The first error of this conversation, if any.
    pub fn fault(&self) -> Option<GitError> {
        self.fault.lock().clone()
    }

    /// What the server said instead of an answer, if anything.
    pub fn complaint(&self) -> Option<String> {
        self.complaint.lock().clone()
    }

    /// Keeps what the server says.
    pub fn note_complaint(&self, text: &str) {
        *self.complaint.lock() = Some(printable(text));
    }

    /// Keeps the error line if an answer begins with one: a packet line with its length in hex, `ERR` and a text.
    pub fn note_error_line(&self, first: &[u8]) {
        let Some((_, line)) = first.split_at_checked(4) else { return };
        if let Some(text) = line.strip_prefix(b"ERR ") {
            self.note_complaint(&String::from_utf8_lossy(text));
        }
    }

    /// Keeps the error, unless there was one before.
    pub fn fail(&self, error: GitError) -> io::Error {
        let mut fault = self.fault.lock();
        let shown = fault.get_or_insert(error).clone();
        io::Error::other(shown)
    }

    /// Fails if an answer is larger than allowed.
    pub fn check_bytes(&self, received: u64) -> io::Result<()> {
        if received > self.answer_bytes {
            return Err(self.fail(self.too_large.clone()));
        }
        let Some(long) = self.long.as_ref().filter(|_| received > LONG_LIST) else { return Ok(()) };
        let Bounds { deadline, stop, .. } = &self.bounds;
        let is_over = || Instant::now() >= *deadline || *stop.borrow();
        let mut long = long.lock();
        if long.is_none() {
            let permit = LISTS.enter(is_over);
            *long = permit.map(|permit| (permit, Instant::now() + MAX_LONG_LIST));
        }
        let in_time = long.as_ref().is_some_and(|(_, until)| Instant::now() < *until);
        drop(long);
        if in_time { Ok(()) } else { Err(self.fail(self.timed_out())) }
    }

    /// The error for an answer that has taken too long.
    fn timed_out(&self) -> GitError {
        let Bounds { deadline, what, .. } = self.bounds;
        let is_long = self.end() < deadline;
        if is_long {
            GitError::Timeout { what, after: MAX_LONG_LIST }
        } else {
            self.bounds.timed_out()
        }
    }

    /// When this answer has to be there, at the latest.
    fn end(&self) -> Instant {
        let long =
            self.long.as_ref().and_then(|long| long.lock().as_ref().map(|(_, until)| *until));
        long.unwrap_or(self.bounds.deadline).min(self.bounds.deadline)
    }

    /// Waits for the network: until the deadline, until the server has sent nothing for too long, or until the attempt is
    /// abandoned.
    pub fn wait<T, E: Into<GitError>>(
        &self,
        work: impl Future<Output = Result<T, E>>,
    ) -> io::Result<T> {
        let mut stop = self.bounds.stop.clone();
        let (deadline, what) = (self.end(), self.bounds.what);
        let silent =
            self.silence.and_then(|after| Some((Instant::now().checked_add(after)?, after)));
        let silent = silent.filter(|(end, _)| *end < deadline);
        let end = silent.map_or(deadline, |(end, _)| end);
        let done = self.runtime.block_on(async move {
            tokio::select! {
                biased;
                _ = stop.wait_for(|stopped| *stopped) => Err(None),
                done = tokio::time::timeout_at(end, work) => done.map_err(|_| silent),
            }
        });
        match done {
            Ok(Ok(value)) => Ok(value),
            Ok(Err(error)) => Err(self.fail(error.into())),
            Err(Some((_, after))) => Err(self.fail(GitError::Silent { what, after })),
            Err(None) => Err(self.fail(self.timed_out())),
        }
    }
}
