//! Objects that may be in a file that cannot be read: kept at their last good state.

use std::collections::BTreeSet;

use super::{FailurePolicy, Inputs, Plan, change, is_drift, is_equal};
use crate::api::ObjectId;
use crate::cluster::live::Live;
use crate::sync::commit::desired::Desired;
use crate::sync::live_namespace::is_paused;

/// PlanMemory an object of ours that is quarantined by its last good definition: what was changed by hand is brought back.
pub(super) fn keep(
    plan: &mut Plan,
    id: &ObjectId,
    want: &Desired,
    live: &Live,
    inputs: &Inputs<'_>,
) {
    if is_paused(live) || is_equal(want, live, inputs.settled, id) {
        return;
    }
    let drifted = is_drift(id, want, live, inputs);
    // A later definition may have been applied before this operator started.
    if drifted || is_certain(want) {
        change(plan, id, live, inputs, (false, drifted));
    }
}

/// PlanMemory an object that is kept and does not exist: what was there and may be in a file that cannot be read is made again.
pub(super) fn revive(
    plan: &mut Plan,
    id: &ObjectId,
    want: &Desired,
    inputs: &Inputs<'_>,
    strangers: impl FnOnce() -> bool,
) {
    let atomic = inputs.failure_policy == FailurePolicy::Atomic;
    let was_there = match inputs.board.was_applied(id, want) {
        Some(true) => true,
        // It is known, and another definition of it was applied last.
        Some(false) => is_certain(want) && !atomic,
        None => false,
    };
    if !was_there || inputs.others.wanted_by(id).is_some() {
        return;
    }
    if let Some(file) = broken_file(id, None, inputs, strangers) {
        plan.quarantined.push((id.clone(), file));
        plan.create.push(id.clone());
    }
}

fn is_certain(want: &Desired) -> bool {
    want.kept.as_ref().is_some_and(|kept| kept.certain)
}

/// Whether there is a broken file of which no object is known to come. Any object whose own file is no longer there
/// may have been renamed into it and broken in the same commit.
pub(super) fn has_strangers(inputs: &Inputs<'_>) -> bool {
    let mut strangers: BTreeSet<&str> = inputs.broken_paths.iter().map(String::as_str).collect();
    for path in inputs.last_paths.values() {
        strangers.remove(path.as_str());
    }
    if !strangers.is_empty() {
        // What is wanted comes from where it is wanted, whatever its annotation says of its last change.
        let elsewhere = |id: &&ObjectId| {
            inputs.desired.contains_key(*id) || inputs.last_paths.contains_key(*id)
        };
        for id in inputs.board.ours().filter(|id| !elsewhere(id)) {
            if let Some(path) = inputs.live.get(id).as_ref().and_then(|l| l.facts().source_path()) {
                strangers.remove(path);
            }
        }
    }
    !strangers.is_empty()
}

/// Whether an object that is not wanted may come from a broken file, and from which if that is known.
#[allow(clippy::option_option)] // said in the line above
pub(super) fn broken_file(
    id: &ObjectId,
    live: Option<&Live>,
    inputs: &Inputs<'_>,
    strangers: impl FnOnce() -> bool,
) -> Option<Option<String>> {
    let Inputs { broken, broken_paths, paths, last_paths, .. } = inputs;
    if let Some(file) = broken.get(id) {
        return Some(Some(file.clone()));
    }
    if broken_paths.is_empty() {
        return inputs.lost.then_some(None);
    }
    let last = last_paths.get(id).map(String::as_str);
    let source = live.and_then(|live| live.facts().source_path());
    for path in [last, source].into_iter().flatten() {
        if broken_paths.contains(path) {
            return Some(Some(path.to_owned()));
        }
    }
    let gone = last.or(source).is_none_or(|path| !paths.contains(path));
    (inputs.lost || (gone && strangers())).then_some(None)
}
