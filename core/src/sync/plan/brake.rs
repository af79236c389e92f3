//! The prune brake: whether deletes run now, or are held until a user approves them.

use std::collections::{BTreeSet, HashSet};

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use sha2::{Digest, Sha256};

use crate::api::git_sync::{ApprovedPrune, PendingPrune};
use crate::api::keys;
use crate::cluster::live::Live;
use crate::sync::commit::desired::{DesiredSet, SyncRef};
use crate::sync::live_namespace::{Namespace, is_paused, mark};
use crate::sync::plan::actions::{Cause, Held, Plan, Victim};
use crate::sync::plan::approvals::{outdated, words};
use crate::sync::plan::inputs::{Inputs, Unproven};
use crate::sync::plan::work_index::WorkIndex;
use crate::text::hex;

/// The most objects that one approval releases. Each is remembered in the status, whose size is limited.
pub const MOST_APPROVED: usize = 8000;
/// The most objects that the status lists by name.
const MAX_LISTED_OBJECTS: usize = 100;
/// The reason of held deletes whose approval was taken back, until the next plan.
pub const TAKEN_BACK: &str = "the approval of deletes was taken back: they wait for another one, and are listed with a digest as soon as \
     the commit is read and compared again";
/// The most unread GitSyncs and kinds that a message names. `status.pendingPrune.unread` has all of them.
const MAX_NAMED_UNREAD: usize = 5;

/// Decides which deletes run now, and which are held.
pub(super) fn hold(plan: &mut Plan, mut victims: Vec<Victim>, inputs: &Inputs<'_>) {
    // Reverse apply order: an object is deleted before the objects that it refers to.
    victims.sort_by(|a, b| b.id.cmp(&a.id));
    let Released { gone, approved, mut rest, cut } = release(victims, &plan.left, inputs);
    plan.released = approved;
    plan.prune = gone;
    if rest.is_empty() {
        return;
    }
    let cut = || {
        let reason = format!("one approval releases {MOST_APPROVED} deletes, these come next");
        cut.then_some((Cause::Brake, reason))
    };
    let Some((cause, mut reason)) = why(plan, rest.len(), inputs).or_else(cut) else {
        plan.prune.append(&mut rest);
        plan.prune.sort_by(|a, b| b.id.cmp(&a.id));
        return;
    };
    let before = shown(inputs);
    let shown = before.filter(|shown| {
        let uids = uids(&shown.uids);
        let fewer = i64::try_from(rest.len()).is_ok_and(|count| count <= shown.count);
        let named = |victim: &Victim| uids.contains(short(&victim.uid).as_str());
        // One approval releases no more than these.
        fewer
            && rest.iter().take(MOST_APPROVED).all(named)
            && covers(&shown.unread, inputs.unproven)
    });
    let (digest, unread) = if let Some(shown) = shown {
        // All deletes are among the shown ones, so the digest stays.
        (shown.digest.clone(), shown.unread.clone())
    } else {
        let unread = unread(before, inputs.unproven);
        (digest(inputs, &rest, &unread, before), unread)
    };
    let others = unread.iter().filter(|name| !inputs.unproven.unread.contains(name));
    let others: Vec<_> = others.map(String::as_str).take(MAX_NAMED_UNREAD).collect();
    if !others.is_empty() {
        // Who approves has to know which GitSyncs and kinds cannot be read.
        let others = others.join(", ");
        reason.push_str(&format!("; an approval also counts while this cannot be read: {others}"));
    }
    if let Some(given) = outdated(inputs.approval, &digest, plan.released.as_ref()) {
        reason.push_str(&format!("; {}", words(given)));
    }
    let command = format!(
        "kubectl -n {} annotate gitsync {} --overwrite {}={digest}",
        inputs.sync.namespace,
        inputs.sync.name,
        keys::APPROVE_PRUNE
    );
    plan.held = Some(Held { digest, cause, reason, command, victims: rest });
}

/// The deletes, divided by approvals.
struct Released {
    /// Approved deletes.
    gone: Vec<Victim>,
    /// The approval that is remembered until its objects are gone, whether or not it counts now.
    approved: Option<ApprovedPrune>,
    /// Deletes that are not approved.
    rest: Vec<Victim>,
    /// Whether the approval reached [`MOST_APPROVED`], so that `rest` has objects which the digest stood for, too.
    cut: bool,
}

/// Whether an approval that was given while `unread` could not be read counts now.
fn covers(unread: &[String], unproven: &Unproven) -> bool {
    all_known(&unproven.unread, unread)
}

/// Whether all of `unread` are in `known`. A GitSync in `known` includes its files.
fn all_known(unread: &[String], known: &[String]) -> bool {
    unread.iter().all(|name| {
        let whole = name.split_once(": ").map(|(whole, _)| whole);
        known.iter().any(|known| known == name || Some(known.as_str()) == whole)
    })
}

/// All that cannot be read, or could not be read before while these deletes were held. So GitSyncs that fail in turn do not change
/// the digest each time. If there are many, GitSyncs are listed without their files.
fn unread(before: Option<&PendingPrune>, unproven: &Unproven) -> Vec<String> {
    let before = before.iter().flat_map(|before| &before.unread);
    let mut all: BTreeSet<_> = before.chain(&unproven.unread).cloned().collect();
    if all.len() > MAX_LISTED_OBJECTS {
        let whole =
            |name: String| name.split_once(": ").map(|(whole, _)| whole.to_owned()).unwrap_or(name);
        all = all.into_iter().map(whole).collect();
    }
    all.into_iter().collect()
}

/// The shortened uids of the objects of this GitSync that exist, are not wanted and are not being deleted. Approvals of other objects
/// are not needed any more.
#[must_use]
pub fn left(
    sync: &SyncRef,
    desired: &DesiredSet,
    live: &dyn Namespace,
    index: &WorkIndex,
) -> BTreeSet<String> {
    unwanted(sync, desired, live, index).map(|live| short(live.uid())).collect()
}

/// The objects of this GitSync that exist, are not wanted and are not being deleted.
fn unwanted(
    sync: &SyncRef,
    desired: &DesiredSet,
    live: &dyn Namespace,
    index: &WorkIndex,
) -> impl Iterator<Item = Live> {
    let unwanted = index.open().filter(|id| desired.get(id).is_none_or(|want| want.kept.is_some()));
    unwanted.filter_map(|id| {
        let live = live.get(id).filter(|live| !live.facts().deleting)?;
        let ours = mark(&live, id, sync).is_some_and(|mark| mark.sync_uid == sync.uid);
        ours.then_some(live)
    })
}

/// Whether an approved object is still to be deleted, and neither protected nor paused.
#[must_use]
pub fn is_due(
    approved: &ApprovedPrune,
    sync: &SyncRef,
    desired: &DesiredSet,
    live: &dyn Namespace,
    index: &WorkIndex,
) -> bool {
    let named = uids(&approved.uids);
    unwanted(sync, desired, live, index).any(|live| {
        let protected = live.facts().annotations.get(keys::PRUNE) == Some(keys::DISABLED);
        named.contains(short(live.uid()).as_str()) && !protected && !is_paused(&live)
    })
}

/// Whether an approval names all of these objects.
#[must_use]
pub fn names_all(approved: &ApprovedPrune, victims: &[Victim]) -> bool {
    let uids = uids(&approved.uids);
    victims.iter().all(|victim| uids.contains(short(&victim.uid).as_str()))
}

/// Separates the deletes that are approved: earlier, or by the digest in the annotation now.
///
/// A digest approves only the objects that the status shows with it, and counts only once. The approval is remembered. A digest
/// that fits nothing when it is seen first never counts later.
fn release(victims: Vec<Victim>, left: &BTreeSet<String>, inputs: &Inputs<'_>) -> Released {
    let remembered = inputs.approved.filter(|approved| {
        approved.input_key == inputs.latch_key && approved.uids.iter().any(|uid| left.contains(uid))
    });
    // It counts only while all that cannot be read was known when it was given.
    let earlier = remembered.filter(|earlier| covers(&earlier.unread, inputs.unproven));
    let given = inputs.approval.filter(|given| Some(*given) != inputs.handled);
    // A shown digest stands for the shown objects, even if some do not exist any more.
    let shown = shown(inputs).filter(|shown| {
        given == Some(shown.digest.as_str()) && covers(&shown.unread, inputs.unproven)
    });
    let known = uids(earlier.iter().flat_map(|earlier| &earlier.uids));
    let named = uids(shown.iter().flat_map(|shown| &shown.uids));
    let (mut gone, rest): (Vec<_>, Vec<_>) = victims.into_iter().partition(|victim| {
        let uid = short(&victim.uid);
        known.contains(uid.as_str()) || named.contains(uid.as_str())
    });
    // More objects than one approval may release are held again, with another digest.
    let cut = !rest.is_empty() && named.len() == MOST_APPROVED;
    gone.sort_by(|a, b| b.id.cmp(&a.id));
    let all: Vec<_> = gone.iter().map(|victim| short(&victim.uid)).collect();
    let is_new = |uid: &str| named.contains(uid) || !known.contains(uid);
    let Some(shown) = shown.filter(|_| all.iter().any(|uid| is_new(uid))) else {
        return Released { gone, approved: remembered.cloned(), rest, cut };
    };
    // The unread ones of the shown digest: they may be unread again later, for example after another poll.
    let unread = shown.unread.clone();
    // An earlier approval stays, unless the new digest was shown with unread ones that the earlier one did not know of.
    let before = remembered.filter(|before| all_known(&unread, &before.unread));
    let before = before.map(|before| before.uids.as_slice()).unwrap_or_default();
    let stays = |uid: &&String| is_new(uid) || before.contains(*uid);
    // Objects that do not exist any more need no approval.
    let others = before.iter().filter(|uid| !all.contains(*uid) && left.contains(*uid));
    let approved = ApprovedPrune {
        digest: shown.digest.clone(),
        input_key: inputs.latch_key.to_owned(),
        uids: all.iter().filter(stays).chain(others).take(MOST_APPROVED).cloned().collect(),
        unread,
    };
    Released { gone, approved: Some(approved), rest, cut }
}

/// Why deletes are held, if they are.
fn why(plan: &Plan, count: usize, inputs: &Inputs<'_>) -> Option<(Cause, String)> {
    // The smaller number: the objects that a commit creates must not raise the limit of the next plan.
    let base = inputs.prune_base.map_or(plan.marked, |base| base.min(plan.marked));
    let limit = limit(&inputs.prune.max_deletions, base);
    let braked = if plan.prune.len() + count + plan.going >= base {
        Some(format!("all {base} objects of this sync would be deleted"))
    } else if count > limit {
        Some(format!("{count} of {base} objects would be deleted, more than the allowed {limit}"))
    } else if is_latched(inputs.pending, inputs.latch_key) {
        Some(format!(
            "{count} deletes of this commit were held before, and nobody has approved them"
        ))
    } else {
        None
    };
    let errors = inputs.has_errors || !plan.conflicts.is_empty();
    let errors = errors.then(|| {
        "the commit has errors or conflicts, so nothing proves that these objects are really gone"
            .to_owned()
    });
    let unread = &inputs.unproven.reason;
    let unread = (!unread.is_empty()).then(|| unread.clone());
    // The brake comes first: deletes that are too many stay held when the other causes are gone.
    let cause = match (&braked, &errors, &unread) {
        (Some(_), _, _) => Cause::Brake,
        (None, Some(_), _) => Cause::Errors,
        (None, None, Some(_)) => Cause::Unproven,
        (None, None, None) => return None,
    };
    let all: Vec<_> = [braked, errors, unread].into_iter().flatten().collect();
    Some((cause, all.join("; also, ")))
}

/// Whether deletes are held for this commit and spec. Older versions have not written a key: their entry counts until it is written
/// again.
fn is_for(pending: &PendingPrune, latch_key: &str) -> bool {
    pending.input_key == latch_key || pending.input_key.is_empty()
}

/// The held deletes that the status shows, if they are for this commit and spec.
fn shown<'a>(inputs: &Inputs<'a>) -> Option<&'a PendingPrune> {
    inputs.pending.filter(|p| is_for(p, inputs.latch_key) && !p.digest.is_empty())
}

/// Whether deletes are held for this commit and spec that need an approval.
#[must_use]
pub fn is_latched(pending: Option<&PendingPrune>, latch_key: &str) -> bool {
    pending.is_some_and(|pending| {
        let legacy = pending.input_key.is_empty();
        is_for(pending, latch_key) && (pending.requires_approval || legacy)
    })
}

/// Whether deletes are held for this commit and spec that need an approval, and the status shows a digest to approve.
#[must_use]
pub fn is_shown(pending: Option<&PendingPrune>, latch_key: &str) -> bool {
    is_latched(pending, latch_key) && pending.is_some_and(|pending| !pending.digest.is_empty())
}

fn uids<'a>(all: impl IntoIterator<Item = &'a String>) -> HashSet<&'a str> {
    all.into_iter().map(String::as_str).collect()
}

/// The held deletes to show and remember after a plan. `before` are those that were shown until then.
///
/// Deletes that need an approval need it as long as commit and spec stay the same, even if none of them is due for a while:
/// objects that are protected now may be due later.
#[must_use]
pub fn pending(
    before: Option<&PendingPrune>,
    plan: &Plan,
    latch_key: &str,
    unproven: &Unproven,
) -> Option<PendingPrune> {
    let before = before.filter(|before| is_for(before, latch_key));
    let open = still_open(before, plan);
    if let Some(held) = &plan.held {
        let unread = match before {
            Some(same) if same.digest == held.digest && !same.uids.is_empty() => {
                same.unread.clone()
            }
            _ => unread(before.filter(|before| !before.digest.is_empty()), unproven),
        };
        return Some(pending_held(held, open, latch_key, unread));
    }
    match plan.unheard.as_ref().filter(|held| held.cause == Cause::Brake) {
        Some(unheard) => Some(pending_unheard(unheard, open, latch_key)),
        None => pending_later(before?, open, plan),
    }
}

/// The shortened uids of all objects whose deletes were held before and are neither approved nor done.
fn still_open(before: Option<&PendingPrune>, plan: &Plan) -> Vec<String> {
    let released = plan.released.as_ref();
    let approved = uids(released.iter().flat_map(|released| &released.uids));
    // An object that a digest named, but the status did not show any more at the approval, is not approved.
    let open = before.iter().flat_map(|before| &before.uids);
    let open = open.chain(before.iter().flat_map(|before| &before.held_before));
    let open = open.filter(|uid| !approved.contains(uid.as_str()) && plan.left.contains(*uid));
    open.cloned().collect()
}

/// The held deletes of a plan.
fn pending_held(
    held: &Held,
    open: Vec<String>,
    latch_key: &str,
    unread: Vec<String>,
) -> PendingPrune {
    // An object that is not shown is not approved with the others, even if its delete is due again later.
    let named: Vec<_> = held.victims.iter().take(MOST_APPROVED).map(|v| short(&v.uid)).collect();
    let requires_approval = held.cause == Cause::Brake;
    let known = uids(&named);
    let mut held_before: Vec<_> =
        open.into_iter().filter(|uid| requires_approval && !known.contains(uid.as_str())).collect();
    held_before.truncate(MOST_APPROVED);
    PendingPrune {
        digest: held.digest.clone(),
        count: i64::try_from(held.victims.len()).unwrap_or(i64::MAX),
        objects: held.victims.iter().take(MAX_LISTED_OBJECTS).map(|v| v.id.to_string()).collect(),
        reason: held.reason.clone(),
        input_key: latch_key.to_owned(),
        requires_approval,
        held_before,
        unread,
        uids: named,
    }
}

/// Deletes that are too many, while other GitSyncs are asked whether they want the objects: not shown yet, but held from now on.
fn pending_unheard(unheard: &Held, mut open: Vec<String>, latch_key: &str) -> PendingPrune {
    let known: HashSet<_> = open.iter().cloned().collect();
    let new = unheard.victims.iter().map(|victim| short(&victim.uid));
    open.extend(new.filter(|uid| !known.contains(uid)));
    open.truncate(MOST_APPROVED);
    PendingPrune {
        reason: unheard.reason.clone(),
        input_key: latch_key.to_owned(),
        requires_approval: true,
        held_before: open,
        ..PendingPrune::default()
    }
}

/// Deletes that needed an approval before, when none of them is due now.
fn pending_later(before: &PendingPrune, open: Vec<String>, plan: &Plan) -> Option<PendingPrune> {
    if !before.requires_approval || open.is_empty() {
        return None;
    }
    let reason = format!(
        "nothing is left to delete of what was held: {} object(s) of it are kept for now, and wait for an approval once \
         nothing else keeps them",
        open.len()
    );
    // Objects whose deletes are due again get another digest. An approved digest stands for nothing any more.
    let approved = plan.released.as_ref().map(|released| released.digest.as_str());
    let digest = if Some(before.digest.as_str()) == approved { "" } else { &before.digest };
    Some(PendingPrune {
        count: 0,
        objects: Vec::new(),
        digest: digest.to_owned(),
        reason,
        uids: Vec::new(),
        held_before: open,
        ..before.clone()
    })
}

/// The held deletes after an approval was taken back: all its objects that are left need another approval, even those that are
/// protected for now. A digest that was acted on before (`handled`) would never count again, so its objects get another one.
#[must_use]
pub fn taken_back(
    pending: Option<&PendingPrune>,
    approved: &ApprovedPrune,
    handled: Option<&str>,
) -> PendingPrune {
    let mut held = pending.cloned().unwrap_or_default();
    if !is_for(&held, &approved.input_key) {
        // The approval was for another commit or spec.
        return held;
    }
    if held.digest == approved.digest || Some(held.digest.as_str()) == handled {
        let named = std::mem::take(&mut held.uids);
        held = PendingPrune { held_before: held.held_before, ..PendingPrune::default() };
        held.held_before.extend(named);
    }
    let known: HashSet<_> = held.uids.iter().chain(&held.held_before).cloned().collect();
    let open = approved.uids.iter().filter(|uid| !known.contains(*uid));
    held.held_before.extend(open.cloned());
    held.held_before.truncate(MOST_APPROVED);
    if held.digest.is_empty() {
        TAKEN_BACK.clone_into(&mut held.reason);
    }
    PendingPrune { input_key: approved.input_key.clone(), requires_approval: true, ..held }
}

/// The held deletes, when the status shows fewer objects with the same digest: a late write of a killed operator, which knew of
/// fewer. Then the digest stands for the shown objects only, and the next plan makes another digest for all.
#[must_use]
pub fn narrowed(ours: &PendingPrune, live: Option<&PendingPrune>) -> Option<PendingPrune> {
    let live = live.filter(|live| live.digest == ours.digest && !live.digest.is_empty())?;
    let both = uids(&live.uids);
    let others: Vec<_> = ours.uids.iter().filter(|uid| !both.contains(uid.as_str())).collect();
    if others.is_empty() {
        return None;
    }
    let mut held_before: Vec<_> = ours.held_before.iter().chain(others).cloned().collect();
    held_before.truncate(MOST_APPROVED);
    let requires_approval = ours.requires_approval || live.requires_approval;
    Some(PendingPrune { requires_approval, held_before, ..live.clone() })
}

/// The approval of a GitSync, once it was acted on: either the approval is remembered, or it fits nothing that is `pending`. Then it
/// does not count for deletes that are held later. Cut to 64 characters, which are more than a digest has.
#[must_use]
pub fn acted_on(
    approval: Option<&str>,
    plan: &Plan,
    pending: Option<&PendingPrune>,
) -> Option<String> {
    let is_released =
        |given: &str| plan.released.as_ref().is_some_and(|released| released.digest == given);
    let is_open = |given: &str| pending.is_some_and(|pending| pending.digest == given);
    let done = approval.filter(|given| is_released(given) || !is_open(given))?;
    Some(done.chars().take(64).collect())
}

/// The part of a uid that is remembered of an approved object: 48 random bits, so that ten thousand fit into a status.
pub(super) fn short(uid: &str) -> String {
    uid.chars().filter(|c| *c != '-').take(12).collect()
}

/// How many deletes need no approval, of so many objects.
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

/// The digest of a set of deletes: of GitSync, generation, latch key, unread ones, and each object with its uid. The same set gets
/// another digest if another one was shown in between, for any commit, or if an approval of it was acted on.
fn digest(
    inputs: &Inputs<'_>,
    victims: &[Victim],
    unread: &[String],
    before: Option<&PendingPrune>,
) -> String {
    let Inputs { sync, latch_key, handled, last_digest, .. } = inputs;
    let mut hash = Sha256::new();
    hash.update(format!("{}\n{}\n{latch_key}\n", sync.uid, sync.generation));
    let before = before.map(|before| before.digest.as_str()).or(*last_digest);
    for earlier in [before, *handled].into_iter().flatten() {
        hash.update(format!("after {earlier}\n"));
    }
    for name in unread {
        hash.update(format!("without {name}\n"));
    }
    let mut sorted: Vec<_> = victims.iter().collect();
    sorted.sort();
    for victim in sorted {
        hash.update(format!("{} {}\n", victim.id, victim.uid));
    }
    hex(&hash.finalize()[..8])
}
