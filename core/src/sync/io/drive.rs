//! (tests) Drives one coroutine against a server of a test. The clock stands still while the coroutine runs.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use jiff::Timestamp;

use crate::sync::io::effect::{Effect, Replied, Request};
use crate::sync::io::{Coroutine, Io, Limit, Now, Step};

/// The time at which a test begins.
#[allow(clippy::disallowed_methods)] // a point to count from
pub fn start() -> Now {
    Now { instant: Instant::now(), time: Timestamp::UNIX_EPOCH }
}

/// The input and output of a coroutine that begins at this time.
pub fn io(start: Now) -> Io {
    Io::new(start, 0, 1)
}

/// Runs a coroutine to its end, without a concurrency limit. `serve` answers each request: after which delay, and with which
/// reply. Returns the result and how long it took.
///
/// # Panics
/// When the coroutine waits for no reply and no time.
pub fn drive<T>(
    mut coroutine: Coroutine<'_, T>,
    start: Now,
    mut serve: impl FnMut(Request) -> (Duration, Replied),
) -> (T, Duration) {
    let mut now = start;
    let mut replies: BTreeMap<(Instant, u64), Replied> = BTreeMap::new();
    loop {
        match coroutine.next(now, Limit::Free) {
            Step::Do(Effect::Request(number, request)) => {
                let (after, reply) = serve(request);
                replies.insert((now.instant + after, number), reply);
            }
            Step::Do(_) => {}
            Step::Over(result) => return (result, now.instant.duration_since(start.instant)),
            Step::Wait { until, .. } => {
                let next = replies.first_key_value().map(|((at, _), _)| *at);
                now.instant = next.into_iter().chain(until).min().expect("it waits for something");
                if next == Some(now.instant) {
                    let ((_, number), reply) = replies.pop_first().expect("a reply");
                    coroutine.reply(number, reply);
                }
            }
        }
    }
}
