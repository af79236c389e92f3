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

/// Bytes of the largest request. It holds only ids and prefixes of refs.
pub(super) const MAX_REQUEST_BYTES: usize = 1024 * 1024;

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
        Self { runtime, bounds, silence, answer_bytes, too_large, fault, complaint }
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
        if received > self.answer_bytes { Err(self.fail(self.too_large.clone())) } else { Ok(()) }
    }

    /// Waits for the network: until the deadline, until the server has sent nothing for too long, or until the attempt is
    /// abandoned.
    pub fn wait<T, E: Into<GitError>>(
        &self,
        work: impl Future<Output = Result<T, E>>,
    ) -> io::Result<T> {
        let mut stop = self.bounds.stop.clone();
        let Bounds { deadline, what, .. } = self.bounds;
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
            Err(None) => Err(self.fail(self.bounds.timed_out())),
        }
    }
}
