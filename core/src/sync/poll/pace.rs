//! How often webhooks make one GitSync poll: at once after a pause, and ever less often while deliveries keep coming.
//!
//! So a burst of deliveries means a poll at once and one after the burst, and a flood cannot poll a server that is failing all the time.

use std::time::{Duration, Instant};

/// The shortest time between two polls that webhooks start.
const LEAST_GAP: Duration = Duration::from_secs(1);
/// The longest one.
const MOST_GAP: Duration = Duration::from_secs(10);

/// The webhooks of one GitSync that wait for their poll.
#[derive(Debug, Default)]
pub struct Pace {
    /// Whether some delivery waits.
    waits: bool,
    /// When the last poll was started by webhooks, and the shortest time from then to the next.
    last: Option<(Instant, Duration)>,
}

impl Pace {
    /// A delivery has arrived. Returns whether it is the first that waits: the others share its poll.
    pub fn delivered(&mut self) -> bool {
        !std::mem::replace(&mut self.waits, true)
    }

    /// How long what has been delivered has to wait for its poll; `None` if nothing was. Zero: it is to be started now, and counts as
    /// started.
    pub fn take(&mut self, now: Instant) -> Option<Duration> {
        if !self.waits {
            return None;
        }
        let gap = match self.last {
            Some((at, gap)) => {
                let since = now.saturating_duration_since(at);
                if since < gap {
                    return Some(gap.saturating_sub(since));
                }
                // A pause of twice the time ends a burst.
                if since < gap * 2 { (gap * 2).min(MOST_GAP) } else { LEAST_GAP }
            }
            None => LEAST_GAP,
        };
        (self.waits, self.last) = (false, Some((now, gap)));
        Some(Duration::ZERO)
    }
}

#[cfg(test)]
#[path = "tests/pace.rs"]
mod tests;
