//! What must hold of each plan, judged by the truth: what the files mean, whose an object is, what a person was shown
//! and said yes to. It shares no code with what it judges but the hash that an apply leaves on an object.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::cluster::{Object, stored};
use super::kept::agrees;
use super::repository::{Health, Tree};
use super::world::{Sync, World};
use crate::api::git_sync::{DriftPolicy, FailurePolicy};
use crate::api::{ObjectId, keys};
use crate::dice::Dice;
use crate::sync::plan::{Held, Plan, Victim};

type Shown = (String, BTreeSet<(ObjectId, String)>);

/// What people were shown and said.
#[derive(Default)]
pub struct Ledger {
    /// Each digest that was ever shown: for which input, and for which objects.
    shown: BTreeMap<String, Shown>,
    /// The digests that a person has answered with.
    said: BTreeSet<String>,
    /// What each GitSync gives away now.
    pub given: [BTreeSet<ObjectId>; 2],
    /// What was shown as held for being too much: for which input, and the uids of the objects.
    braked: [BTreeSet<(String, String)>; 2],
}

impl Ledger {
    pub fn show(&mut self, input_key: &str, held: &Held) {
        let set = held.victims.iter().map(|v| (v.id.clone(), v.uid.clone())).collect();
        let shown: Shown = (input_key.to_owned(), set);
        let known = self.shown.entry(held.digest.clone()).or_insert_with(|| shown.clone());
        let part = known.0 == shown.0 && known.1.is_superset(&shown.1);
        assert!(part, "one digest for two plans");
    }

    pub fn approve(&mut self, digest: Option<&str>) {
        self.said
            .extend(digest.filter(|digest| self.shown.contains_key(*digest)).map(str::to_owned));
    }

    pub fn any(&self, dice: &mut Dice) -> Option<String> {
        let all: Vec<_> = self.shown.keys().collect();
        (!all.is_empty()).then(|| all[dice.roll(all.len())].clone())
    }

    /// Whether a person has said yes to the end of just this object for just this input.
    fn covers(&self, input_key: &str, id: &ObjectId, uid: &str) -> bool {
        self.said
            .iter()
            .filter_map(|digest| self.shown.get(digest))
            .any(|(input, set)| input == input_key && set.contains(&(id.clone(), uid.to_owned())))
    }
}

/// What the files of a folder say of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Said {
    /// That it is wanted so.
    Wanted(usize),
    /// Nothing that counts, but its name is legible somewhere.
    Legible,
    /// Nothing that anybody can read; a broken file hides it.
    Hidden,
    /// Nothing.
    Nothing,
}

pub fn said(tree: &Tree, folder: &str, id: &ObjectId) -> Said {
    let healths = tree.below(folder).filter(|(_, f)| f.objects.contains_key(id));
    let healths: Vec<_> = healths.map(|(_, f)| (f.health, f.objects[id])).collect();
    let count = |health| healths.iter().filter(|(h, _)| *h == health).count();
    match (count(Health::Good), count(Health::Named), count(Health::Unknown)) {
        (1, 0, _) => {
            let good = healths.iter().find(|(health, _)| *health == Health::Good);
            Said::Wanted(good.expect("one").1)
        }
        (0, 0, 0) => Said::Nothing,
        (0, 0, _) => Said::Hidden,
        _ => Said::Legible,
    }
}

fn has_errors(tree: &Tree, folder: &str) -> bool {
    let mut seen = BTreeSet::new();
    let files: Vec<_> = tree.below(folder).map(|(_, file)| file).collect();
    files.iter().all(|file| file.objects.is_empty())
        || files.iter().any(|file| {
            file.health != Health::Good || !file.objects.keys().all(|id| seen.insert(id.clone()))
        })
}

/// The whole text of a mark: nothing else makes an object a GitSync's.
fn mark(uid: &str, namespace: &str, name: &str, id: &ObjectId) -> String {
    format!("{uid}/{namespace}/{name}/{}/team/{}", id.kind, id.name)
}

/// Whose a live object is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Whose {
    Mine,
    /// A GitSync's of my name that is no more.
    Predecessors,
    /// The other GitSync's.
    Siblings,
    /// A living GitSync's of another namespace.
    Aliens,
    Nobodys,
}

impl World {
    pub fn whose(&self, at: usize, id: &ObjectId, object: &Object) -> Whose {
        let of = |sync: &Sync| mark(&sync.reference.uid, "team", &sync.reference.name, id);
        let Some(found) = object.mark() else { return Whose::Nobodys };
        let (me, other) = (&self.syncs[at], &self.syncs[1 - at]);
        let (_, tail) = found.split_once('/').unwrap_or_default();
        if found == of(me) {
            Whose::Mine
        } else if tail == of(me).split_once('/').expect("a mark").1 {
            Whose::Predecessors
        } else if found == of(other) {
            Whose::Siblings
        } else if found == mark("uid-9", "far", "else", id) {
            Whose::Aliens
        } else {
            Whose::Nobodys
        }
    }

    pub fn ours(&self, at: usize) -> impl Iterator<Item = (&ObjectId, &Object)> {
        self.cluster.objects.iter().filter(move |(id, o)| self.whose(at, id, o) == Whose::Mine)
    }

    /// Whether a GitSync may write over a live object.
    fn may_take(&self, at: usize, id: &ObjectId, object: &Object) -> bool {
        match self.whose(at, id, object) {
            Whose::Mine | Whose::Predecessors => true,
            Whose::Siblings => self.ledger.given[1 - at].contains(id),
            Whose::Aliens => false,
            Whose::Nobodys => object.has(keys::ADOPT_BY, &self.syncs[at].reference.name),
        }
    }

    /// Judges a plan as it was made, and what is left of it once the other GitSync was heard.
    pub fn judge(&self, at: usize, raw: &Plan, made: &Plan) {
        let sync = &self.syncs[at];
        let tree = &self.trees[sync.head];
        let errors = has_errors(tree, sync.folder);
        let marked = self.ours(at).count();
        assert_eq!(raw.marked, marked, "objects with our mark");
        let candidates: BTreeSet<_> = tree
            .below(sync.folder)
            .flat_map(|(_, file)| file.objects.keys())
            .chain(self.cluster.objects.keys())
            .collect();
        let mut equal = 0;
        for id in candidates {
            match said(tree, sync.folder, id) {
                Said::Wanted(content) => {
                    equal += usize::from(self.judge_wanted(at, raw, id, content));
                }
                said => self.judge_unwanted(at, raw, id, said, errors),
            }
        }
        let rivals = raw.conflicts.iter().filter(|c| raw.given.iter().any(|(id, _)| *id == c.id));
        assert!(raw.unchanged >= equal && raw.unchanged <= equal + rivals.count(), "unchanged");
        let kept = |id: &ObjectId| raw.quarantined.iter().any(|(other, _)| other == id);
        for id in raw.create.iter().chain(raw.update.iter().map(|update| &update.id)) {
            let wanted = matches!(said(tree, sync.folder, id), Said::Wanted(_));
            assert!(wanted || kept(id), "{id} is written, and nothing wants it");
        }
        if sync.failure_policy == FailurePolicy::Atomic && (errors || !raw.conflicts.is_empty()) {
            assert!(
                made.create.iter().all(kept) && made.update.iter().all(|u| u.drifted),
                "all or nothing"
            );
        }
        self.judge_brake(at, raw, errors, marked);
        self.judge_gifts(at, made, errors);
        for victim in &made.prune {
            self.judge_delete(at, victim);
        }
    }

    /// Whether a wanted object is as it should be; a plan leaves those alone and brings all others, if it may.
    fn judge_wanted(&self, at: usize, raw: &Plan, id: &ObjectId, content: usize) -> bool {
        let sync = &self.syncs[at];
        let created = raw.create.contains(id);
        let update = raw.update.iter().find(|update| update.id == *id);
        let conflict = raw.conflicts.iter().any(|conflict| conflict.id == *id);
        let waiting = raw.waiting.contains(id);
        let given = raw.given.iter().any(|(given, _)| given == id);
        let gone = raw.prune.iter().chain(raw.held.iter().flat_map(|held| &held.victims));
        assert!(gone.clone().all(|victim| victim.id != *id), "{id} is wanted and would be deleted");
        let atomic = sync.failure_policy == FailurePolicy::Atomic;
        assert!(atomic || !waiting, "{id} waits for nothing");
        let Some(object) = self.cluster.objects.get(id) else {
            assert!(created != waiting, "{id} does not exist");
            return false;
        };
        assert!(!created, "{id} exists");
        let whose = self.whose(at, id, object);
        if !self.may_take(at, id, object) {
            assert!(conflict && update.is_none() && !waiting, "{id} is not ours: {whose:?}");
            return false;
        }
        if whose == Whose::Siblings && conflict {
            // It is being given, but the giver has to be heard again first.
            return false;
        }
        assert!(!conflict || given, "{id} is ours to take");
        if object.facts.deleting || object.is_paused() {
            let bucket = if object.facts.deleting { &raw.terminating } else { &raw.paused };
            assert!(
                update.is_none() && !waiting && bucket.contains(id),
                "{id} is to be left alone"
            );
            return false;
        }
        let want = &sync.loaded.as_ref().expect("loaded").desired[id];
        let equal = whose == Whose::Mine && agrees(object, id, content, &want.applied);
        // What is known of it counts, and what it says only when nothing is known.
        let drifted = whose == Whose::Mine
            && match sync.applied.get(id) {
                Some(known) => *known == want.applied,
                None => object.has(keys::APPLIED, &want.applied),
            };
        let known = sync.settled.get(id).is_some_and(|settled| settled.applied == want.applied);
        if equal && object.spec != content && !known {
            // It is written once more before it is known that writing changes nothing.
            return update.is_none() && !given && !raw.drifted.contains(id);
        }
        if equal {
            assert!(update.is_none() && !waiting, "{id} is as it should be");
            return true;
        }
        if drifted && sync.drift == DriftPolicy::Report {
            assert!(raw.drifted.contains(id) && update.is_none(), "{id} is only reported");
        } else if let Some(update) = update {
            assert_eq!((&update.uid, update.version), (&object.uid, object.version));
            assert_eq!((update.adopted, update.drifted), (whose != Whose::Mine, drifted), "{id}");
        } else {
            assert!(given || (waiting && !drifted), "{id} differs and is left so");
        }
        false
    }

    fn judge_unwanted(&self, at: usize, raw: &Plan, id: &ObjectId, said: Said, errors: bool) {
        self.judge_kept(at, raw, id);
        let Some(object) = self.cluster.objects.get(id) else { return };
        let sync = &self.syncs[at];
        let mut gone = raw.prune.iter().chain(raw.held.iter().flat_map(|held| &held.victims));
        let victim = gone.find(|victim| victim.id == *id);
        let quarantined = raw.quarantined.iter().any(|(other, _)| other == id);
        let whose = self.whose(at, id, object);
        assert_eq!(raw.orphans.contains(id), whose == Whose::Predecessors, "{id}: {whose:?}");
        if whose != Whose::Mine || object.facts.deleting {
            assert!(victim.is_none() && !quarantined, "{id} is {whose:?}");
            return;
        }
        if let Some(victim) = victim {
            assert_eq!((&victim.uid, victim.version), (&object.uid, object.version));
        }
        let kept = object.is_paused() || object.has(keys::PRUNE, keys::DISABLED);
        assert!(!kept || victim.is_none(), "{id} says that it stays");
        match said {
            Said::Legible => assert!(quarantined, "{id} is in a broken file"),
            Said::Hidden => {
                let tree = &self.trees[sync.head];
                let (path, _) = tree.file_of(sync.folder, id).expect("hidden");
                // In the file where it was, or in one that has just appeared while its own is gone.
                let last = sync.remembered.get(id).map(|last| &last.path);
                let moved = last.is_some_and(|last| !tree.files.contains_key(last))
                    && sync.remembered.values().all(|known| known.path != *path);
                if last == Some(path) || moved {
                    assert!(quarantined, "{id} is hidden in {path}, was in {last:?}");
                }
            }
            _ => {}
        }
        assert!(errors || !quarantined, "{id} is quarantined by a good commit");
        let lost = sync.loaded.as_ref().is_some_and(|loaded| loaded.lost);
        assert!(!lost || quarantined, "{id} may have been wanted anywhere");
        let other = &self.syncs[1 - at];
        let theirs =
            other.loaded.as_ref().map(|_| self::said(&self.trees[other.head], other.folder, id));
        // An absence from a commit with errors proves nothing: what was wanted before still counts.
        let before = other.loaded.is_some() && other.remembered.contains_key(id);
        let theirs = before || matches!(theirs, Some(Said::Wanted(_) | Said::Legible));
        if theirs {
            let given = raw.given.iter().any(|(given, _)| given == id);
            assert!(victim.is_none(), "{id} is wanted by the other GitSync");
            assert_eq!(given, !errors && !quarantined && !object.is_paused(), "{id} is given");
        } else if !kept && !quarantined && sync.prune.enabled {
            assert!(victim.is_some(), "{id} is left over");
        }
    }

    /// What goes without an approval is proven and little; what an approval releases is what it was given for.
    fn judge_brake(&self, at: usize, raw: &Plan, errors: bool, marked: usize) {
        let sync = &self.syncs[at];
        let input_key = sync.input_key().expect("loaded");
        let covered = |v: &&Victim| self.ledger.covers(&input_key, &v.id, &v.uid);
        let goes: BTreeSet<_> = raw.prune.iter().filter(|v| !covered(v)).collect();
        for victim in &goes {
            let braked = self.ledger.braked[at].contains(&(input_key.clone(), victim.uid.clone()));
            assert!(!braked, "{} was held, and nobody has approved it", victim.id);
        }
        let free = goes.len();
        let held = raw.held.iter().flat_map(|held| &held.victims).count();
        let limit = match &sync.prune.max_deletions {
            IntOrString::Int(count) => usize::try_from(*count).expect("small"),
            IntOrString::String(text) => {
                let percent: usize = text.trim_end_matches('%').parse().expect("a percentage");
                if percent == 0 { 0 } else { (marked * percent / 100).max(1) }
            }
        };
        assert!(sync.prune.enabled || raw.prune.len() + held == 0, "pruning is off");
        assert!(free == 0 || !errors, "{free} deletes of a commit with errors");
        assert!(free == 0 || raw.conflicts.is_empty(), "{free} deletes beside a conflict");
        assert!(free <= limit, "{free} deletes, and {limit} are allowed");
        assert!(free == 0 || raw.prune.len() < marked, "everything would go");
        let (short, all) =
            (|uid: &str| uid.replace('-', "")[..12].to_owned(), &self.cluster.objects);
        if let Some(released) = &raw.released {
            assert_eq!(released.input_key, input_key, "an approval of another plan");
            let known: BTreeSet<_> = self.ledger.shown.values().flat_map(|(_, set)| set).collect();
            for uid in &released.uids {
                let approved = known.iter().any(|(id, full)| {
                    short(full) == *uid && self.ledger.covers(&input_key, id, full)
                });
                assert!(approved, "{uid} was never approved");
            }
        }
        // Whoever says yes to all that is held gets just that.
        let (_, wanted) = match sync.approval.as_ref().and_then(|said| self.ledger.shown.get(said))
        {
            Some(shown) if shown.0 == input_key => shown,
            _ => return,
        };
        let now: BTreeSet<_> = raw
            .prune
            .iter()
            .chain(raw.held.iter().flat_map(|held| &held.victims))
            .map(|v| (v.id.clone(), all[&v.id].uid.clone()))
            .collect();
        assert!(now != *wanted || held == 0, "approved, and still held");
    }

    /// Remembers what is shown as held for being too much: it stays held until it is approved, or another commit or spec
    /// comes.
    pub fn note_brake(&mut self, at: usize, made: &Plan) {
        let sync = &self.syncs[at];
        let input_key = sync.input_key().expect("loaded");
        let errors = has_errors(&self.trees[sync.head], sync.folder);
        let Some(held) = made.held.as_ref().filter(|_| !errors && made.conflicts.is_empty()) else {
            return;
        };
        let most = match &sync.prune.max_deletions {
            IntOrString::Int(count) => usize::try_from(*count).expect("small"),
            IntOrString::String(text) => {
                let percent: usize = text.trim_end_matches('%').parse().expect("a percentage");
                if percent == 0 { 0 } else { (made.marked * percent / 100).max(1) }
            }
        };
        if held.victims.len() > most {
            let uids = held.victims.iter().map(|victim| (input_key.clone(), victim.uid.clone()));
            self.ledger.braked[at].extend(uids);
        }
    }

    /// What is given away is ours, and the other one wants it: because this one does not, or because that one is older.
    fn judge_gifts(&self, at: usize, made: &Plan, errors: bool) {
        let (sync, other) = (&self.syncs[at], &self.syncs[1 - at]);
        for (id, to) in &made.given {
            assert_eq!(*to, other.reference.name);
            assert_eq!(self.whose(at, id, &self.cluster.objects[id]), Whose::Mine, "{id}");
            assert!(made.update.iter().all(|update| update.id != *id), "{id} is written and given");
            let theirs = said(&self.trees[other.head], other.folder, id);
            let before = other.remembered.contains_key(id);
            assert!(
                before || matches!(theirs, Said::Wanted(_) | Said::Legible),
                "{id}: {theirs:?}"
            );
            match said(&self.trees[sync.head], sync.folder, id) {
                Said::Nothing => assert!(!errors, "{id} is given by a commit with errors"),
                Said::Wanted(_) => assert!(other.created < sync.created, "{id} is the older one's"),
                said => panic!("{id} is {said:?}, and given"),
            }
        }
        for (id, _) in &made.contested {
            assert!(sync.created < other.created, "{id} is contested by the younger one");
        }
    }

    /// What the other GitSync wants is known as of after this commit was found.
    fn judge_delete(&self, at: usize, victim: &Victim) {
        let (sync, other) = (&self.syncs[at], &self.syncs[1 - at]);
        assert!(!sync.failed, "the remote could not be read");
        let asked = sync.polled.is_some_and(|at| at > sync.edited);
        assert!(asked, "{} goes, and nobody has asked the remote since the edit", victim.id);
        // An approval releases what is listed, although another GitSync cannot tell whether it wants it.
        let input_key = sync.input_key().expect("loaded");
        if self.ledger.covers(&input_key, &victim.id, &victim.uid)
            && (other.failed || other.loaded.is_none())
        {
            return;
        }
        let found = sync.loaded.as_ref().expect("loaded").found.max(sync.edited).max(sync.said);
        assert!(other.loaded.is_some(), "{} goes, and nobody has asked the other one", victim.id);
        if !other.suspended {
            let heard = !other.failed && other.polled.is_some_and(|polled| polled > found);
            assert!(heard, "{} goes, and the other one was not heard", victim.id);
        }
        if self.ledger.covers(&input_key, &victim.id, &victim.uid) {
            return;
        }
        let theirs = self.trees[other.head].below(other.folder);
        let hidden = theirs.filter(|(_, file)| file.health == Health::Unknown).count();
        assert_eq!(hidden, 0, "{} goes, and the other one cannot read all of its files", victim.id);
    }

    /// Once nobody interferes, everything is where it belongs.
    pub fn check_end(&self) {
        let plan = |at: usize| self.syncs[at].last.as_ref().expect("planned");
        let waits = |at: usize, id: &ObjectId| plan(at).waiting.contains(id);
        for at in 0..2 {
            // All or nothing: the other one may not take anything while something else is in its way.
            let taken = plan(at).given.iter().all(|(id, _)| waits(1 - at, id));
            assert!(plan(at).is_settled() && plan(at).held.is_none() && taken, "{:#?}", plan(at));
        }
        let tree = &self.trees[self.head];
        for id in tree.files.values().flat_map(|file| file.objects.keys()) {
            let wants: Vec<usize> =
                (0..2).filter(|at| tree.means(self.syncs[*at].folder, id)).collect();
            let oldest = wants.iter().min_by_key(|at| self.syncs[**at].created);
            let winner = *oldest.expect("somebody wants it");
            let conflict = |at: usize| plan(at).conflicts.iter().any(|c| c.id == *id);
            let object = self.cluster.objects.get(id);
            if object.is_some_and(|object| self.whose(winner, id, object) == Whose::Mine) {
                let (object, sync) = (object.expect("there"), &self.syncs[winner]);
                let content = tree.content(sync.folder, id).expect("wanted");
                assert!(waits(winner, id) || object.spec == stored(id, content), "{id}");
                assert!(!conflict(winner), "{id} is where it belongs");
                assert!(wants.iter().all(|at| *at == winner || conflict(*at)), "{id} is contested");
            } else if object.is_some() {
                let stuck = |at: &usize| conflict(*at) || waits(*at, id);
                assert!(wants.iter().all(stuck), "{id} is a conflict for all: {wants:?}");
            } else {
                assert!(wants.iter().all(|at| waits(*at, id)), "{id} is missing");
            }
        }
        for (id, object) in &self.cluster.objects {
            for at in 0..2 {
                let stray = self.whose(at, id, object) == Whose::Mine
                    && !tree.means(self.syncs[at].folder, id);
                assert!(!stray || waits(1 - at, id), "{id} is left over");
            }
        }
    }
}
