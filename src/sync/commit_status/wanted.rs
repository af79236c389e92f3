//! (pure) The commit status that a GitSync's own status means.
#![deny(clippy::disallowed_types, clippy::disallowed_methods)]

use jiff::Timestamp;

use crate::api::GitSync;
use crate::api::git_sync::{GitSyncStatus, Severity};
use crate::forge::{CommitStatus, State};
use crate::sync::reasons::EngineReason;
use convoke_core::git::Revision;

/// What a forge is to be told of the newest commit of a GitSync, and since when that is so. `None` while nothing certain is known of it: it
/// is being applied, or its repository cannot be read.
#[must_use]
pub fn wanted(sync: &GitSync) -> Option<(CommitStatus, Timestamp)> {
    let status = sync.status.as_ref()?;
    if sync.spec.suspend || status.observed_generation != sync.metadata.generation {
        return None;
    }
    let attempted = status.last_attempted_revision.as_deref()?;
    let commit = Revision::parse(attempted)?.commit;
    let ready = status.conditions.iter().find(|condition| condition.type_ == "Ready")?;
    // The reasons of a source say nothing of a commit.
    let reason = EngineReason::parse(&ready.reason)?;
    let (state, description) = match reason {
        EngineReason::Succeeded if status.last_applied_revision.as_deref() == Some(attempted) => {
            (State::Success, applied(status))
        }
        EngineReason::PruneHeld => {
            let count = status.pending_prune.as_ref().map_or(0, |pending| pending.count);
            (State::Pending, format!("{} for an approval", waiting(count)))
        }
        EngineReason::ProblemsFound => (State::Failure, problems(status)),
        EngineReason::ApplyFailed | EngineReason::Forbidden | EngineReason::PruneFailed => {
            (State::Failure, format!("{reason}: see the status of the GitSync"))
        }
        _ => return None,
    };
    let namespace = sync.metadata.namespace.as_deref().unwrap_or_default();
    let name = sync.metadata.name.as_deref().unwrap_or_default();
    let context = format!("convoke/{namespace}/{name}");
    let told = status.history.first().map(|entry| entry.time.0);
    let since =
        told.map_or(ready.last_transition_time.0, |told| told.max(ready.last_transition_time.0));
    Some((CommitStatus { commit, state, context, description }, since))
}

fn waiting(count: i64) -> String {
    if count == 1 { "1 delete waits".into() } else { format!("{count} deletes wait") }
}

fn applied(status: &GitSyncStatus) -> String {
    match status.objects.as_ref().map(|objects| objects.total) {
        Some(1) => "applied: 1 object".into(),
        Some(total) => format!("applied: {total} objects"),
        None => "applied".into(),
    }
}

/// The number of problems, and the place of the first one. Its message may name objects of the cluster, so it stays there.
fn problems(status: &GitSyncStatus) -> String {
    let count = status.problem_count.unwrap_or_default();
    let count = if count == 1 { "1 problem".to_owned() } else { format!("{count} problems") };
    let first = status.problems.iter().find(|problem| problem.severity == Severity::Error);
    let Some((problem, path)) = first.and_then(|first| Some((first, first.path.as_deref()?)))
    else {
        return count;
    };
    let number =
        |number: Option<i64>| number.map(|number| format!(":{number}")).unwrap_or_default();
    let place = format!("{path}{}{}", number(problem.line), number(problem.column));
    format!("{count}, the first in {place} ({})", problem.code)
}

#[cfg(test)]
#[path = "../tests/commit_status.rs"]
mod tests;
