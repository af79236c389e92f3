//! (pure) When a build is reconciled again without an event.
#![deny(clippy::disallowed_types, clippy::disallowed_methods)]

use std::time::Duration;

use k8s_openapi::jiff::Timestamp;

use super::decide::{Decision, Wait};
use super::failure::may_be_of_credentials;
use super::run::Run;
use super::status::{Finding, KeyFinding};
use crate::runtime::worker::Next;

/// The time after which a build is reconciled again that waits for something that no watch shows.
const UNWATCHED_RECHECK: Duration = Duration::from_secs(60);
/// The same for a build whose pod does not run yet.
const HELD_UP_RECHECK: Duration = Duration::from_secs(10);

/// When to reconcile a build again.
#[must_use]
pub fn next(finding: &Finding<'_>, now: Timestamp) -> Next {
    let usual = usual(finding, now);
    let Finding::Key(KeyFinding { unattested, .. }) = finding else { return usual };
    sooner(usual, unattested.again)
}

/// The same, and not later than after this time.
#[must_use]
pub fn sooner(usual: Next, again: Option<Duration>) -> Next {
    match (usual, again) {
        (Next::After(usual), Some(again)) => Next::After(usual.min(again)),
        (Next::Settled | Next::Forget, Some(again)) => Next::After(again),
        (usual, _) => usual,
    }
}

/// The same, whatever waits to be attested.
fn usual(finding: &Finding<'_>, now: Timestamp) -> Next {
    match finding {
        // Neither ConfigMaps nor the runs of strangers are watched, and another build may have given up its turn without a word.
        Finding::Broken(_)
        | Finding::Refused(..)
        | Finding::Key(KeyFinding {
            decision: Decision::Conflict(_) | Decision::Leftover(_) | Decision::Wait(Wait::Turn),
            ..
        }) => Next::After(UNWATCHED_RECHECK),
        Finding::Key(KeyFinding { decision: Decision::Wait(Wait::Retry(at)), .. }) => {
            let left = at.duration_since(now);
            Next::After(left.try_into().unwrap_or_default())
        }
        // Pods are not watched.
        Finding::Key(KeyFinding { decision: Decision::Wait(Wait::Pod(pod)), .. }) => {
            Next::After(pod.again())
        }
        // What is told must not be told for long when it is over.
        Finding::Key(KeyFinding { held_up: Some(_), .. }) => Next::After(HELD_UP_RECHECK),
        // Nobody watches the Secrets of a build.
        Finding::Key(KeyFinding {
            decision: Decision::Show(run), failure: Some(failure), ..
        }) if run.credentials.is_some() && may_be_of_credentials(failure) => {
            Next::After(UNWATCHED_RECHECK)
        }
        // No event tells that Tekton stays silent, and none what a pod waits for.
        Finding::Key(KeyFinding { decision, .. })
            if decision.waits_for().is_some_and(Run::is_running) =>
        {
            Next::After(UNWATCHED_RECHECK)
        }
        Finding::SourcePending
        | Finding::NotInGit
        | Finding::NotApplied
        | Finding::NotPolled
        | Finding::Unreadable(_)
        | Finding::Key(_) => Next::Settled,
    }
}
