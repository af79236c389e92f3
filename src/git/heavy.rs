//! Work that needs much memory is done one at a time, or two, for whichever repository.

use std::time::Duration;

use parking_lot::{Condvar, Mutex};

/// How often whoever waits looks whether to give up.
const LOOK: Duration = Duration::from_millis(100);

/// What needs much memory: packs, and single objects that take much; and lists of refs.
pub(super) static PACKS: Gate = Gate::new(1);
pub(super) static LISTS: Gate = Gate::new(2);

/// How many may do something at the same time.
pub(super) struct Gate {
    most: usize,
    inside: Mutex<usize>,
    free: Condvar,
}

impl Gate {
    const fn new(most: usize) -> Self {
        Self { most, inside: Mutex::new(0), free: Condvar::new() }
    }

    /// Waits for a permit. `None` when it is time to give up.
    pub fn enter(&'static self, give_up: impl Fn() -> bool) -> Option<Permit> {
        let mut inside = self.inside.lock();
        while *inside >= self.most {
            if give_up() {
                return None;
            }
            self.free.wait_for(&mut inside, LOOK);
        }
        *inside += 1;
        Some(Permit(self))
    }
}

/// The permit. It is given back when it is dropped.
pub(super) struct Permit(&'static Gate);

impl Drop for Permit {
    fn drop(&mut self) {
        *self.0.inside.lock() -= 1;
        self.0.free.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c9_so_many_are_inside_and_the_next_one_waits_until_one_leaves_or_gives_up() {
        static GATE: Gate = Gate::new(2);
        let (one, _two) = (GATE.enter(|| false), GATE.enter(|| false));
        assert!(one.is_some() && GATE.enter(|| true).is_none());
        let waits = std::thread::spawn(|| GATE.enter(|| false).is_some());
        drop(one);
        assert!(waits.join().is_ok_and(|entered| entered));
    }
}
