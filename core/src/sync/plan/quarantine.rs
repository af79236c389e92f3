//! Quarantine: objects that may be in a file which cannot be read are kept at their last good state.

use std::collections::BTreeSet;

use crate::api::ObjectId;
use crate::api::git_sync::FailurePolicy;
use crate::cluster::live::Live;
use crate::sync::commit::desired::Desired;
use crate::sync::live_namespace::is_paused;
use crate::sync::plan::actions::{Origin, Plan};
use crate::sync::plan::compare::is_equal;
use crate::sync::plan::inputs::Inputs;
use crate::sync::plan::owner::is_drift;

/// Plans a live object that is quarantined: a manual change is reverted to the last good definition.
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
    // Without certainty a later definition may have been applied before this operator started.
    if is_drift(id, want, live, inputs) {
        plan.change(id, live, inputs.drift, Origin::Drifted);
    } else if is_certain(want) {
        plan.change(id, live, inputs.drift, Origin::Changed);
    }
}

/// Plans a quarantined object that does not exist: if it existed before, it is created again.
pub(super) fn revive(
    plan: &mut Plan,
    id: &ObjectId,
    want: &Desired,
    inputs: &Inputs<'_>,
    strangers: impl FnOnce() -> bool,
) {
    let atomic = inputs.failure_policy == FailurePolicy::Atomic;
    let was_there = match inputs.index.was_applied(id, want) {
        Some(true) => true,
        // The object existed with another definition.
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

/// Whether no unknown commit may have changed the last good definition.
fn is_certain(want: &Desired) -> bool {
    want.kept.as_ref().is_some_and(|kept| kept.certain)
}

/// Whether there is a broken file that no known object comes from. If so, any object whose file was removed may have moved into
/// that file.
pub(super) fn has_strangers(inputs: &Inputs<'_>) -> bool {
    let mut strangers: BTreeSet<&str> = inputs.broken_paths.iter().map(String::as_str).collect();
    for path in inputs.last_paths.values() {
        strangers.remove(path.as_str());
    }
    if !strangers.is_empty() {
        // For these objects the current or last file is known, so the annotation of the live object does not count.
        let elsewhere = |id: &&ObjectId| {
            inputs.desired.contains_key(*id) || inputs.last_paths.contains_key(*id)
        };
        for id in inputs.index.ours().filter(|id| !elsewhere(id)) {
            if let Some(path) = inputs.live.get(id).as_ref().and_then(|l| l.facts().source_path()) {
                strangers.remove(path);
            }
        }
    }
    !strangers.is_empty()
}

/// The broken file that an object which is not wanted may be in. `None` if it is in none, `Some(None)` if the file is not known.
#[allow(clippy::option_option)] // the two levels are documented above
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
