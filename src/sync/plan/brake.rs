//! (pure) The brake: whether deletes go now, or wait for an approval.
#![deny(clippy::disallowed_types, clippy::disallowed_methods)]

use std::collections::HashSet;

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use sha2::{Digest, Sha256};

use super::{Held, Inputs, Plan, Victim};
use crate::api::git_sync::ApprovedPrune;
use crate::sync::desired::{SyncRef, hex};

/// Objects that one approval releases: each is remembered in the status, which must stay small.
pub const MOST_APPROVED: usize = 8000;

/// Decides whether the victims go now or wait.
pub(super) fn hold(plan: &mut Plan, mut victims: Vec<Victim>, inputs: &Inputs<'_>) {
    // Deletes run in reverse apply order: first what refers, then what is referred to.
    victims.sort_by(|a, b| b.id.cmp(&a.id));
    // Else the objects that a commit creates would raise, by the next plan, what it may delete.
    let base = inputs.prune_base.map_or(plan.marked, |base| base.min(plan.marked));
    let everything = victims.len() >= base;
    // An approval that is being carried out covers the objects that it was given for, and nothing that came later.
    let approved = inputs.approved.filter(|a| a.input_key == inputs.input_key);
    let uids: HashSet<&str> = approved.iter().flat_map(|a| &a.uids).map(String::as_str).collect();
    let (released, mut rest): (Vec<_>, Vec<_>) =
        victims.into_iter().partition(|v| uids.contains(short(&v.uid).as_str()));
    if let Some(approved) = approved.filter(|_| !released.is_empty()) {
        plan.released = Some(approved.clone());
        plan.prune = released;
    }
    if rest.is_empty() {
        return;
    }
    let count = rest.len();
    let limit = limit(&inputs.prune.max_deletions, base);
    let reason = if inputs.has_errors || !plan.conflicts.is_empty() {
        Some(
            "the commit has errors, so nothing proves that these objects are really gone"
                .to_owned(),
        )
    } else if everything {
        Some(format!("all {base} objects of this sync would be deleted"))
    } else if count > limit {
        Some(format!("{count} of {base} objects would be deleted, more than the allowed {limit}"))
    } else {
        None
    };
    let Some(reason) = reason else {
        plan.prune.extend(rest);
        plan.prune.sort_by(|a, b| b.id.cmp(&a.id));
        return;
    };
    let digest = digest(inputs.sync, inputs.input_key, &rest);
    // What is too much for one approval is held again, with a digest of its own.
    if rest.len() > MOST_APPROVED && inputs.approval == Some(digest.as_str()) {
        let later = rest.split_off(MOST_APPROVED);
        plan.held = Some(Held {
            digest: self::digest(inputs.sync, inputs.input_key, &later),
            reason: format!("one approval releases {MOST_APPROVED} deletes, these come next"),
            victims: later,
        });
    }
    if inputs.approval == Some(digest.as_str()) {
        let mut uids = plan.released.take().map(|earlier| earlier.uids).unwrap_or_default();
        uids.extend(rest.iter().map(|v| short(&v.uid)));
        let input_key = inputs.input_key.to_owned();
        plan.released = Some(ApprovedPrune { digest, input_key, uids });
        plan.prune.extend(rest);
        plan.prune.sort_by(|a, b| b.id.cmp(&a.id));
    } else {
        plan.held = Some(Held { digest, reason, victims: rest });
    }
}

/// The part of a uid that is remembered of an approved object: 48 random bits, so that ten thousand fit a status.
pub(super) fn short(uid: &str) -> String {
    uid.chars().filter(|c| *c != '-').take(12).collect()
}

/// How many deletes of so many objects pass without an approval.
pub(super) fn limit(max: &IntOrString, base: usize) -> usize {
    match max {
        IntOrString::Int(count) => usize::try_from(*count).unwrap_or(0),
        IntOrString::String(text) => {
            match text.strip_suffix('%').and_then(|n| n.parse::<usize>().ok()) {
                Some(0) | None => 0,
                Some(percent) => (base.saturating_mul(percent) / 100).max(1),
            }
        }
    }
}

/// Names a set of deletes: sync, generation, input, and each object with its uid.
fn digest(sync: &SyncRef, input_key: &str, victims: &[Victim]) -> String {
    let mut hash = Sha256::new();
    hash.update(format!("{}\n{}\n{input_key}\n", sync.uid, sync.generation));
    let mut sorted: Vec<_> = victims.iter().collect();
    sorted.sort();
    for victim in sorted {
        hash.update(format!("{} {}\n", victim.id, victim.uid));
    }
    hex(&hash.finalize()[..8])
}
