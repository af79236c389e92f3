//! Drives one pass against a server of a test, on a clock that stands still while nothing waits.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use jiff::Timestamp;

use crate::sync::io::effect::{Effect, Replied, Request};
use crate::sync::io::{Coroutine, Io, Now, Step};

/// When a test begins.
#[allow(clippy::disallowed_methods)] // a point to count from
pub fn start() -> Now {
    Now { instant: Instant::now(), time: Timestamp::UNIX_EPOCH }
}

/// What a pass waits with that begins then.
pub fn io(start: Now) -> Io {
    Io::new(start, 0, 1)
}

/// Gives what becomes of each request, and after which time, to the pass, until it is over. There are as many slots as there are
/// requests. Returns how long it took, too.
///
/// # Panics
/// When the pass waits for nothing.
pub fn drive<T>(
    mut pass: Coroutine<'_, T>,
    start: Now,
    mut serve: impl FnMut(Request) -> (Duration, Replied),
) -> (T, Duration) {
    let mut now = start;
    let mut replies: BTreeMap<(Instant, u64), Replied> = BTreeMap::new();
    loop {
        match pass.next(now, true) {
            Step::Do(Effect::Request(number, request)) => {
                let (after, reply) = serve(request);
                replies.insert((now.instant + after, number), reply);
            }
            Step::Do(_) => {}
            Step::Over(over) => return (over, now.instant.duration_since(start.instant)),
            Step::Wait { until, .. } => {
                let next = replies.first_key_value().map(|((at, _), _)| *at);
                now.instant = next.into_iter().chain(until).min().expect("it waits for something");
                if next == Some(now.instant) {
                    let ((_, number), reply) = replies.pop_first().expect("a reply");
                    pass.reply(number, reply);
                }
            }
        }
    }
}
