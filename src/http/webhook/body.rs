//! Reads a body within limits of its own and of all bodies together.

use std::sync::Arc;
use std::time::Duration;

use http_body_util::BodyExt;
use hyper::body::Incoming;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::hooks::Outcome;

/// Bytes of one body.
pub const MOST_BODY_BYTES: usize = 1024 * 1024;
/// KiB of all bodies that are in memory.
const MOST_KIB: usize = 32 * 1024;
/// How long a body may take. Its headers had as long.
pub const BODY_DEADLINE: Duration = Duration::from_secs(5);

/// Bytes that are read of a body that is refused, and for how long.
const MOST_DISCARDED_BYTES: usize = 8 * MOST_BODY_BYTES;
const DISCARD_DEADLINE: Duration = Duration::from_secs(1);

/// The memory for bodies.
#[derive(Clone)]
pub struct Memory(Arc<Semaphore>);

impl Default for Memory {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(MOST_KIB)))
    }
}

/// A body as it came: packed bodies are not unpacked.
#[derive(Default)]
pub struct Body {
    pub bytes: Vec<u8>,
    /// The memory that it holds.
    held: Vec<OwnedSemaphorePermit>,
}

impl Body {
    /// Takes more memory, if the body needs more than it holds.
    fn grow(&mut self, memory: &Memory, more: usize) -> Result<(), Outcome> {
        let size = self.bytes.len() + more;
        if size > MOST_BODY_BYTES {
            return Err(Outcome::TooLarge);
        }
        let held: usize = self.held.iter().map(OwnedSemaphorePermit::num_permits).sum();
        // By powers of two: a body takes few permits, however small its parts are.
        let wanted = size.div_ceil(1024).next_power_of_two();
        if let Ok(missing @ 1..) = u32::try_from(wanted.saturating_sub(held)) {
            let permit = memory.0.clone().try_acquire_many_owned(missing);
            self.held.push(permit.map_err(|_| Outcome::Busy)?);
            self.bytes.reserve_exact(wanted * 1024 - self.bytes.len());
        }
        Ok(())
    }
}

/// Reads a whole body.
///
/// # Errors
/// When it is too large, which shows before the rest of it is read, when it does not come in time, or breaks off, and when too many other
/// bodies are in memory.
pub async fn read(mut incoming: Incoming, memory: &Memory) -> Result<Body, Outcome> {
    let whole = tokio::time::timeout(BODY_DEADLINE, whole(&mut incoming, memory)).await;
    let whole = whole.unwrap_or(Err(Outcome::TooSlow));
    if matches!(whole, Err(Outcome::TooLarge | Outcome::Busy)) {
        // Who is still sending when the connection ends gets no answer, but a broken connection.
        let _ = tokio::time::timeout(DISCARD_DEADLINE, discard(&mut incoming)).await;
    }
    whole
}

async fn whole(incoming: &mut Incoming, memory: &Memory) -> Result<Body, Outcome> {
    let stated = hyper::body::Body::size_hint(incoming).lower();
    if usize::try_from(stated).unwrap_or(usize::MAX) > MOST_BODY_BYTES {
        return Err(Outcome::TooLarge);
    }
    let mut body = Body::default();
    while let Some(frame) = incoming.frame().await {
        if let Ok(data) = frame.map_err(|_| Outcome::TooSlow)?.into_data() {
            body.grow(memory, data.len())?;
            body.bytes.extend_from_slice(&data);
        }
    }
    Ok(body)
}

/// Reads some more of a body that is refused, and keeps nothing of it.
async fn discard(incoming: &mut Incoming) {
    let mut discarded = 0;
    while let Some(Ok(frame)) = incoming.frame().await {
        discarded += frame.data_ref().map_or(0, bytes::Bytes::len);
        if discarded > MOST_DISCARDED_BYTES {
            return;
        }
    }
}
