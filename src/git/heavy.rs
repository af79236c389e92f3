//! Work that needs much memory is done one at a time, for whichever repository.

use std::time::Duration;

use parking_lot::{Condvar, Mutex};

/// How often whoever waits looks whether to give up.
const LOOK: Duration = Duration::from_millis(100);

static BUSY: Mutex<bool> = Mutex::new(false);
static FREE: Condvar = Condvar::new();

/// The permit. It is given back when it is dropped.
pub(super) struct Permit(());

impl Permit {
    /// Waits for it. `None` when it is time to give up.
    pub fn wait(give_up: impl Fn() -> bool) -> Option<Self> {
        let mut busy = BUSY.lock();
        while *busy {
            if give_up() {
                return None;
            }
            FREE.wait_for(&mut busy, LOOK);
        }
        *busy = true;
        Some(Self(()))
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        *BUSY.lock() = false;
        FREE.notify_one();
    }
}
