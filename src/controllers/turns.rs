//! Whose turn it is: what comes from Git is written before what follows from it.
//!
//! Both write to one API server. Without an order, the children of a commit's first agents delay its last agents, and
//! with them the answer to "is my commit applied?". So controllers wait while a plan is carried out; in a long one they
//! go on slowly, because what they do may be what somebody waits for.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

/// Controllers wait for this long at most before they go on beside a sync.
const PATIENCE: Duration = Duration::from_secs(10);
/// Beside a sync each controller begins one object in this time.
const STEP: Duration = Duration::from_millis(250);

/// Which syncs write: how many, and since when there has been one.
#[derive(Debug, Clone, Copy)]
struct Writing {
    syncs: usize,
    since: Instant,
}

/// See the module.
#[derive(Debug)]
pub struct Turns(watch::Sender<Writing>);

impl Turns {
    /// Nobody writes.
    #[must_use]
    pub fn new() -> Arc<Self> {
        Arc::new(Self(watch::Sender::new(Writing { syncs: 0, since: Instant::now() })))
    }

    /// A sync writes until the answer is dropped. Syncs never wait.
    #[must_use]
    pub fn sync(self: &Arc<Self>) -> Turn {
        self.0.send_modify(|writing| {
            if writing.syncs == 0 {
                writing.since = Instant::now();
            }
            writing.syncs += 1;
        });
        Turn(self.clone())
    }

    /// Waits for the turn of a controller that began its last object at `last`.
    pub async fn controller(&self, last: Option<Instant>) {
        let mut writing = self.0.subscribe();
        loop {
            let Writing { syncs, since } = *writing.borrow_and_update();
            if syncs == 0 {
                return;
            }
            let due = last.map_or(since + PATIENCE, |last| (last + STEP).max(since + PATIENCE));
            tokio::select! {
                () = tokio::time::sleep_until(due) => return,
                changed = writing.changed() => if changed.is_err() { return },
            }
        }
    }
}

/// The turn of one sync.
#[derive(Debug)]
pub struct Turn(Arc<Turns>);

impl Drop for Turn {
    fn drop(&mut self) {
        self.0.0.send_modify(|writing| writing.syncs = writing.syncs.saturating_sub(1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn c15_a_controller_waits_for_all_syncs_and_not_for_ever() {
        let turns = Turns::new();
        let began = Instant::now();
        turns.controller(None).await;
        assert_eq!(began.elapsed(), Duration::ZERO, "nobody writes");

        let (first, second) = (turns.sync(), turns.sync());
        let waiting = tokio::spawn({
            let turns = turns.clone();
            async move { turns.controller(None).await }
        });
        tokio::time::sleep(Duration::from_secs(1)).await;
        drop(first);
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert!(!waiting.is_finished(), "the second one still writes");
        drop(second);
        waiting.await.expect("the turn comes");
        assert_eq!(began.elapsed(), Duration::from_secs(2));
    }

    #[tokio::test(start_paused = true)]
    async fn c15_beside_a_long_sync_a_controller_goes_on_slowly() {
        let turns = Turns::new();
        let (_sync, began) = (turns.sync(), Instant::now());
        let mut last = None;
        for _ in 0..5 {
            turns.controller(last).await;
            last = Some(Instant::now());
        }
        assert_eq!(began.elapsed(), PATIENCE + 4 * STEP);
    }
}
