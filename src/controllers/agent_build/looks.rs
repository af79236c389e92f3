//! When it is looked whether an AgentBuild has runs left in a namespace that a finalizer names. Whoever may write AgentBuilds may write such
//! finalizers, as many as they want: so one namespace is looked at in a while. All of it is in memory: a restart begins anew.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::cluster::store::Key;

/// The least time between two looks for one AgentBuild.
const PAUSE: Duration = Duration::from_secs(10);

/// The looks of all AgentBuilds.
#[derive(Debug, Default)]
pub struct Looks(Mutex<HashMap<Key, Look>>);

#[derive(Debug, Default)]
struct Look {
    /// When the next one may be.
    next: Option<Instant>,
    /// The namespace of the last one.
    last: String,
    /// Why others came to nothing, by namespace.
    failed: BTreeMap<String, String>,
}

impl Looks {
    /// Which of these namespaces is to be looked at, one after the other. The error is how long to wait.
    pub fn turn<'a>(&self, build: &Key, all: &[&'a str]) -> Result<Option<&'a str>, Duration> {
        let (now, mut looks) = (Instant::now(), self.0.lock());
        if all.is_empty() {
            looks.remove(build);
            return Ok(None);
        }
        let look = looks.entry(build.clone()).or_default();
        look.failed.retain(|at, _| all.contains(&at.as_str()));
        if let Some(left) = look.next.and_then(|next| next.checked_duration_since(now))
            && !left.is_zero()
        {
            return Err(left);
        }
        let after = all.iter().filter(|at| ***at > *look.last).min();
        let chosen = after.or_else(|| all.iter().min()).copied();
        look.next = Some(now + PAUSE);
        look.last = chosen.unwrap_or_default().to_owned();
        Ok(chosen)
    }

    /// Notes what came of a look: why it came to nothing, if it did.
    pub fn note(&self, build: &Key, at: &str, why: Option<String>) {
        let mut looks = self.0.lock();
        let Some(look) = looks.get_mut(build) else { return };
        match why {
            Some(why) => look.failed.insert(at.to_owned(), why),
            None => look.failed.remove(at),
        };
    }

    /// Why the last look at a namespace came to nothing, if there is such a one.
    pub fn failed(&self, build: &Key) -> Option<String> {
        self.0.lock().get(build)?.failed.values().next().cloned()
    }

    /// Forgets an AgentBuild that is gone.
    pub fn forget(&self, build: &Key) {
        self.0.lock().remove(build);
    }
}

#[cfg(test)]
#[path = "tests/looks.rs"]
mod tests;
