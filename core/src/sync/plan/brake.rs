//! The brake: whether deletes go now, or wait for an approval.

use std::collections::{BTreeSet, HashSet};

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use sha2::{Digest, Sha256};

use super::{Cause, Held, Inputs, Plan, Unproven, Victim};
use crate::api::git_sync::{ApprovedPrune, PendingPrune};
use crate::api::keys;
use crate::cluster::live::Live;
use crate::sync::commit::desired::{DesiredSet, SyncRef};
use crate::sync::live_namespace::{Namespace, is_paused, mark};
use crate::sync::plan::approvals::{outdated, words};
use crate::sync::plan::work_index::WorkIndex;
use crate::text::hex;

/// Objects that one approval releases: each is remembered in the status, which must stay small.
pub const MOST_APPROVED: usize = 8000;
/// Objects that are listed by name.
const MOST_LISTED: usize = 100;
/// What is said of deletes whose approval is taken back, until they are planned again.
pub const TAKEN_BACK: &str = "the approval of deletes was taken back: they wait for another one, and are listed with a digest as soon as \
     the commit is read and compared again";
/// Those that could not be read and are named in a sentence; all of them are in `status.pendingPrune.unread`.
const MOST_NAMED: usize = 5;

/// Decides whether the victims go now or wait.
pub(super) fn hold(plan: &mut Plan, mut victims: Vec<Victim>, inputs: &Inputs<'_>) {
    // Deletes run in reverse apply order: first what refers, then what is referred to.
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
        // No more than these are released by one approval, and remembered.
        fewer
            && rest.iter().take(MOST_APPROVED).all(named)
            && covers(&shown.unread, inputs.unproven)
    });
    let (digest, unread) = if let Some(shown) = shown {
        // Some of those that were shown are left, and no other has joined.
        (shown.digest.clone(), shown.unread.clone())
    } else {
        let unread = unread(before, inputs.unproven);
        (digest(inputs, &rest, &unread, before), unread)
    };
    let others = unread.iter().filter(|name| !inputs.unproven.unread.contains(name));
    let others: Vec<_> = others.map(String::as_str).take(MOST_NAMED).collect();
    if !others.is_empty() {
        // Whoever says yes is to know in spite of whom.
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

/// What an approval makes of the victims.
struct Released {
    /// Those that it was given for.
    gone: Vec<Victim>,
    /// To be remembered until what it was given for is gone, whether or not it counts now.
    approved: Option<ApprovedPrune>,
    /// All others.
    rest: Vec<Victim>,
    /// Whether some of them were approved, too, and are too many for one approval.
    cut: bool,
}

/// Whether somebody who said yes in spite of these knew all that cannot be read now.
fn covers(unread: &[String], unproven: &Unproven) -> bool {
    all_known(&unproven.unread, unread)
}

/// Who is known not to be read at all is known not to read one of its files.
fn all_known(unread: &[String], known: &[String]) -> bool {
    unread.iter().all(|name| {
        let whole = name.split_once(": ").map(|(whole, _)| whole);
        known.iter().any(|known| known == name || Some(known.as_str()) == whole)
    })
}

/// What cannot be read, and what could not while these deletes were held: those who fail in turn make no digest after the other. Of many,
/// the GitSyncs and not their files.
fn unread(before: Option<&PendingPrune>, unproven: &Unproven) -> Vec<String> {
    let before = before.iter().flat_map(|before| &before.unread);
    let mut all: BTreeSet<_> = before.chain(&unproven.unread).cloned().collect();
    if all.len() > MOST_LISTED {
        let whole =
            |name: String| name.split_once(": ").map(|(whole, _)| whole.to_owned()).unwrap_or(name);
        all = all.into_iter().map(whole).collect();
    }
    all.into_iter().collect()
}

/// The parts of the uids of all objects of this sync that are there, not wanted and not being deleted: what was said of others
/// is of no use any more.
#[must_use]
pub fn left(
    sync: &SyncRef,
    desired: &DesiredSet,
    live: &dyn Namespace,
    board: &WorkIndex,
) -> BTreeSet<String> {
    unwanted(sync, desired, live, board).map(|live| short(live.uid())).collect()
}

/// The objects of this sync that are there, not wanted and not being deleted.
fn unwanted(
    sync: &SyncRef,
    desired: &DesiredSet,
    live: &dyn Namespace,
    board: &WorkIndex,
) -> impl Iterator<Item = Live> {
    let unwanted = board.open().filter(|id| desired.get(id).is_none_or(|want| want.kept.is_some()));
    unwanted.filter_map(|id| {
        let live = live.get(id).filter(|live| !live.facts().deleting)?;
        let ours = mark(&live, id, sync).is_some_and(|mark| mark.sync_uid == sync.uid);
        ours.then_some(live)
    })
}

/// Whether something that was approved is still to be deleted: not what is protected or paused.
#[must_use]
pub fn is_due(
    approved: &ApprovedPrune,
    sync: &SyncRef,
    desired: &DesiredSet,
    live: &dyn Namespace,
    board: &WorkIndex,
) -> bool {
    let named = uids(&approved.uids);
    unwanted(sync, desired, live, board).any(|live| {
        let protected = live.facts().annotations.get(keys::PRUNE) == Some(keys::DISABLED);
        named.contains(short(live.uid()).as_str()) && !protected && !is_paused(&live)
    })
}

/// Whether all of these were approved.
#[must_use]
pub fn names_all(approved: &ApprovedPrune, victims: &[Victim]) -> bool {
    let uids = uids(&approved.uids);
    victims.iter().all(|victim| uids.contains(short(&victim.uid).as_str()))
}

/// Takes out the victims that somebody has approved: earlier, or by the digest that the annotation says now. That counts only for
/// what is shown with it, and only once: what was approved is remembered, and an approval that fits nothing never will.
fn release(victims: Vec<Victim>, left: &BTreeSet<String>, inputs: &Inputs<'_>) -> Released {
    let remembered = inputs.approved.filter(|approved| {
        approved.input_key == inputs.latch_key && approved.uids.iter().any(|uid| left.contains(uid))
    });
    // It counts while all that cannot be read was known when it was given.
    let earlier = remembered.filter(|earlier| covers(&earlier.unread, inputs.unproven));
    let said = inputs.approval.filter(|said| Some(*said) != inputs.handled);
    // A digest that was shown stands for its objects, whichever of them remain.
    let shown = shown(inputs).filter(|shown| {
        said == Some(shown.digest.as_str()) && covers(&shown.unread, inputs.unproven)
    });
    let known = uids(earlier.iter().flat_map(|earlier| &earlier.uids));
    let named = uids(shown.iter().flat_map(|shown| &shown.uids));
    let (mut gone, rest): (Vec<_>, Vec<_>) = victims.into_iter().partition(|victim| {
        let uid = short(&victim.uid);
        known.contains(uid.as_str()) || named.contains(uid.as_str())
    });
    // What is too much for one approval is held again, with a digest of its own.
    let cut = !rest.is_empty() && named.len() == MOST_APPROVED;
    gone.sort_by(|a, b| b.id.cmp(&a.id));
    let all: Vec<_> = gone.iter().map(|victim| short(&victim.uid)).collect();
    let is_new = |uid: &str| named.contains(uid) || !known.contains(uid);
    let Some(shown) = shown.filter(|_| all.iter().any(|uid| is_new(uid))) else {
        return Released { gone, approved: remembered.cloned(), rest, cut };
    };
    // Those that the digest was shown with may be asked once more meanwhile, and be heard of again only then.
    let unread = shown.unread.clone();
    // What was approved before stays so, but not in spite of others.
    let before = remembered.filter(|before| all_known(&unread, &before.unread));
    let before = before.map(|before| before.uids.as_slice()).unwrap_or_default();
    let stays = |uid: &&String| is_new(uid) || before.contains(*uid);
    // Those that are gone need none.
    let others = before.iter().filter(|uid| !all.contains(*uid) && left.contains(*uid));
    let approved = ApprovedPrune {
        digest: shown.digest.clone(),
        input_key: inputs.latch_key.to_owned(),
        uids: all.iter().filter(stays).chain(others).take(MOST_APPROVED).cloned().collect(),
        unread,
    };
    Released { gone, approved: Some(approved), rest, cut }
}

/// Why so many victims wait, if they do.
fn why(plan: &Plan, count: usize, inputs: &Inputs<'_>) -> Option<(Cause, String)> {
    // Else the objects that a commit creates would raise, by the next plan, what it may delete.
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
    // What is too much as well stays held when the rest is mended.
    let cause = match (&braked, &errors, &unread) {
        (Some(_), _, _) => Cause::Brake,
        (None, Some(_), _) => Cause::Errors,
        (None, None, Some(_)) => Cause::Unproven,
        (None, None, None) => return None,
    };
    let all: Vec<_> = [braked, errors, unread].into_iter().flatten().collect();
    Some((cause, all.join("; also, ")))
}

/// Whether this was held for that commit and spec. What an older version has written does not say for what: then it counts
/// until it is written anew.
fn is_for(pending: &PendingPrune, latch_key: &str) -> bool {
    pending.input_key == latch_key || pending.input_key.is_empty()
}

/// What is shown, if it was held for these inputs.
fn shown<'a>(inputs: &Inputs<'a>) -> Option<&'a PendingPrune> {
    inputs.pending.filter(|p| is_for(p, inputs.latch_key) && !p.digest.is_empty())
}

/// Whether something is held for this commit and spec that nobody has approved.
#[must_use]
pub fn is_latched(pending: Option<&PendingPrune>, latch_key: &str) -> bool {
    pending.is_some_and(|pending| {
        let legacy = pending.input_key.is_empty();
        is_for(pending, latch_key) && (pending.requires_approval || legacy)
    })
}

/// The same, and somebody could have approved it.
#[must_use]
pub fn is_shown(pending: Option<&PendingPrune>, latch_key: &str) -> bool {
    is_latched(pending, latch_key) && pending.is_some_and(|pending| !pending.digest.is_empty())
}

fn uids<'a>(all: impl IntoIterator<Item = &'a String>) -> HashSet<&'a str> {
    all.into_iter().map(String::as_str).collect()
}

/// What is to be shown and remembered after this plan, when `before` is what was shown until then.
///
/// What needs an approval needs it as long as commit and spec are the same, also when nothing of it is left for a while:
/// protected objects may be let go again.
#[must_use]
pub fn pending(
    before: Option<&PendingPrune>,
    plan: &Plan,
    latch_key: &str,
    unproven: &Unproven,
) -> Option<PendingPrune> {
    let before = before.filter(|before| is_for(before, latch_key));
    // All that was ever held, without what somebody has approved.
    let released = plan.released.as_ref();
    let approved = uids(released.iter().flat_map(|released| &released.uids));
    let digest = released.map(|released| released.digest.as_str());
    // What a digest named and was not shown any more when somebody said yes to it is not approved.
    let open = before.iter().flat_map(|before| &before.uids);
    let open = open.chain(before.iter().flat_map(|before| &before.held_before));
    let open = open.filter(|uid| !approved.contains(uid.as_str()) && plan.left.contains(*uid));
    let mut open: Vec<_> = open.cloned().collect();
    let Some(held) = &plan.held else {
        if let Some(unheard) = plan.unheard.as_ref().filter(|held| held.cause == Cause::Brake) {
            // Whoever is asked may want some of them: so they are not shown yet, but they stay held.
            let known: HashSet<_> = open.iter().cloned().collect();
            let new = unheard.victims.iter().map(|victim| short(&victim.uid));
            open.extend(new.filter(|uid| !known.contains(uid)));
            open.truncate(MOST_APPROVED);
            return Some(PendingPrune {
                reason: unheard.reason.clone(),
                input_key: latch_key.to_owned(),
                requires_approval: true,
                held_before: open,
                ..PendingPrune::default()
            });
        }
        let before = before.filter(|before| before.requires_approval && !open.is_empty())?;
        let reason = format!(
            "nothing is left to delete of what was held: {} object(s) of it are kept for now, and wait for an approval once \
             nothing else keeps them",
            open.len()
        );
        // What comes back makes a digest of its own. One that somebody has approved stands for nothing any more.
        let digest = if Some(before.digest.as_str()) == digest { "" } else { &before.digest };
        return Some(PendingPrune {
            count: 0,
            objects: Vec::new(),
            digest: digest.to_owned(),
            reason,
            uids: Vec::new(),
            held_before: open,
            ..before.clone()
        });
    };
    let same = before.filter(|before| before.digest == held.digest && !before.uids.is_empty());
    // What is not shown any more is not approved with the rest, also when it comes back.
    let named: Vec<_> = held.victims.iter().take(MOST_APPROVED).map(|v| short(&v.uid)).collect();
    let requires_approval = held.cause == Cause::Brake;
    let known = uids(&named);
    let mut held_before: Vec<_> =
        open.into_iter().filter(|uid| requires_approval && !known.contains(uid.as_str())).collect();
    held_before.truncate(MOST_APPROVED);
    let unread = match same {
        Some(same) => same.unread.clone(),
        None => unread(before.filter(|before| !before.digest.is_empty()), unproven),
    };
    Some(PendingPrune {
        digest: held.digest.clone(),
        count: i64::try_from(held.victims.len()).unwrap_or(i64::MAX),
        objects: held.victims.iter().take(MOST_LISTED).map(|v| v.id.to_string()).collect(),
        reason: held.reason.clone(),
        input_key: latch_key.to_owned(),
        requires_approval,
        held_before,
        unread,
        uids: named,
    })
}

/// What is held when an approval is taken back: all that is left of what it was given for needs another one, also what is protected
/// or hidden just now. A digest that was acted on before (`handled`) would never count again: what it names gets another one.
#[must_use]
pub fn taken_back(
    pending: Option<&PendingPrune>,
    approved: &ApprovedPrune,
    handled: Option<&str>,
) -> PendingPrune {
    let mut held = pending.cloned().unwrap_or_default();
    if !is_for(&held, &approved.input_key) {
        // The approval was of another commit or spec, and counts for nothing of this one.
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

/// What is held, when its status shows fewer objects with the same digest: a killed operator knew of fewer, and has said so late. Then
/// the digest stands for those alone, and all of them make another one.
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

/// The approval that a GitSync carries, once it was acted on: that what it approves is remembered, or that it fits nothing that is
/// `pending`. Then it counts for nothing that is held later. At most 64 characters of it, which are more than any digest has.
#[must_use]
pub fn acted_on(
    approval: Option<&str>,
    plan: &Plan,
    pending: Option<&PendingPrune>,
) -> Option<String> {
    let given = |said: &str| plan.released.as_ref().is_some_and(|released| released.digest == said);
    let open = |said: &str| pending.is_some_and(|pending| pending.digest == said);
    let done = approval.filter(|said| given(said) || !open(said))?;
    Some(done.chars().take(64).collect())
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

/// Names a set of deletes: sync, generation, input, what cannot be read, and each object with its uid. The same set makes another
/// one when some was shown in between, for whatever commit, or when an approval of it was acted on.
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
