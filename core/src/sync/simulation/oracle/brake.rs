//! The brake: what is too much waits until exactly that is approved.

use std::collections::BTreeSet;
use std::rc::Rc;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::files::{Said, has_errors, mark_of, said};
use super::{Counts, Oracle, SYNCS, key};
use crate::api::git_sync::GitSyncStatus;
use crate::api::{GitSync, Kind, ObjectId, keys};
use crate::cluster::live::Live;
use crate::cluster::store::Key;
use crate::sync::properties::repository::Tree;
use crate::sync::simulation::NAMESPACE;
use crate::sync::simulation::operator::Operator;

/// What the stores have shown at one moment.
pub type Shown = Rc<Vec<(ObjectId, Live)>>;

/// What a reconcile of a GitSync may have seen at one moment.
pub struct Moment {
    /// What decides about it: changes of the stores, polls that have ended, and the commit that was found.
    of: (u64, u64, Option<usize>),
    shown: Shown,
    /// The GitSync as it was shown.
    sync: Arc<GitSync>,
    /// The commits that were found of the other GitSyncs, and the objects that were read of them.
    others: Rc<BTreeSet<(usize, ObjectId)>>,
    /// Whether all that this one depends on is there.
    pub released: bool,
}

/// What is to be deleted at one moment.
struct Due {
    /// What the newest commit does not want and nothing protects: uids.
    due: Vec<String>,
    /// Objects with our mark.
    marked: usize,
    /// Those of them that the commit does not want and that are on their way already.
    going: usize,
    /// Of how many objects a percentage is.
    base: usize,
    /// How many may go without an approval.
    most: usize,
    /// Whether the commit has errors, or nothing was read.
    errors: bool,
}

/// How many of so many objects may go without an approval.
fn allowed(most: &IntOrString, of: usize) -> usize {
    match most {
        IntOrString::Int(count) => usize::try_from(*count).expect("small"),
        IntOrString::String(percent) => {
            let percent: usize = percent.trim_end_matches('%').parse().expect("a percentage");
            // Rounded down, but at least one; nothing of nothing.
            if percent == 0 { 0 } else { (of * percent / 100).max(1) }
        }
    }
}

impl Moment {
    /// For what an approval has to be given.
    fn key(&self) -> String {
        let generation = self.sync.metadata.generation.unwrap_or_default();
        key(self.of.2, &self.sync.spec.path, generation)
    }

    fn due(&self, name: &str, trees: &[Tree]) -> Due {
        let (uid, spec) = (self.sync.metadata.uid.as_deref().unwrap_or_default(), &self.sync.spec);
        let tree = self.of.2.and_then(|found| trees.get(found));
        let place = SYNCS.iter().position(|(sync, _, _)| *sync == name).unwrap_or_default();
        let (mut due, mut marked, mut going) = (Vec::new(), 0, 0);
        for (id, live) in self.shown.iter() {
            let facts = live.facts();
            let says = |key: &str| facts.annotations.get(key);
            if says(keys::OWNER) != Some(&*mark_of(uid, name, id)) {
                continue;
            }
            marked += 1;
            if tree.is_none_or(|tree| said(tree, &spec.path, id) != Said::Nothing) {
                continue;
            }
            if facts.deleting {
                going += 1;
                continue;
            }
            let disabled = |key| says(key) == Some(keys::DISABLED);
            // What another one may want is not deleted, but handed over.
            let wanted = self.others.iter().any(|(whose, other)| *whose != place && other == id);
            if !disabled(keys::RECONCILE) && !disabled(keys::PRUNE) && !wanted {
                due.push(live.uid().to_owned());
            }
        }
        let base = self.sync.status.as_ref().and_then(|status| status.prune_base);
        let base = base.and_then(|base| usize::try_from(base).ok());
        let base = base.map_or(marked, |base| base.min(marked));
        let most = allowed(&spec.prune.max_deletions, base);
        let errors = tree.is_none_or(|tree| has_errors(tree, &spec.path));
        Due { due, marked, going, base, most, errors }
    }
}

impl Oracle {
    /// A reconcile goes on: what it may have seen by now.
    pub fn moment(&mut self, name: &str, operator: &Operator, trees: &[Tree]) {
        let found = self.looked.get(name).and_then(|looked| looked.found).map(|(head, _)| head);
        let of = (operator.changes(), self.news, found);
        let Some(pass) = self.passes.get(name) else { return };
        if pass.moments.last().is_some_and(|last| last.of == of) {
            return;
        }
        let Some(sync) = operator.sync(name) else { return };
        let shown = match &self.shown_last {
            Some((changes, shown)) if *changes == of.0 => shown.clone(),
            _ => Rc::new(all_shown(operator)),
        };
        self.shown_last = Some((of.0, shown.clone()));
        let others = match &self.others_last {
            Some((news, others)) if *news == of.1 => others.clone(),
            _ => Rc::new(self.may_be_wanted(trees)),
        };
        self.others_last = Some((of.1, others.clone()));
        let released = sync.spec.depends_on.is_empty() || self.is_released(name, found, operator);
        if let (true, Some(found)) = (released, found) {
            self.released.insert((sync.metadata.uid.clone().unwrap_or_default(), found));
        }
        if let Some(pass) = self.passes.get_mut(name) {
            pass.moments.push(Moment { of, shown, sync, others, released });
        }
    }

    /// What any GitSync may want, as far as this operator knows: by the place of the GitSync.
    fn may_be_wanted(&self, trees: &[Tree]) -> BTreeSet<(usize, ObjectId)> {
        let mut all = BTreeSet::new();
        for (at, (name, _, _)) in SYNCS.iter().enumerate() {
            let Some(looked) = self.looked.get(*name) else { continue };
            let tree = looked.found.and_then(|(head, _)| trees.get(head));
            // While there are errors, nothing proves that what was wanted earlier is not wanted any more.
            let broken = tree.is_some_and(|tree| has_errors(tree, &looked.folder));
            let earlier = self.earlier.get(*name).filter(|_| broken);
            let earlier = earlier.and_then(|earlier| trees.get(*earlier));
            let trees = tree.into_iter().chain(earlier);
            let files = trees.flat_map(|tree| tree.below(&looked.folder));
            all.extend(files.flat_map(|(_, file)| file.objects.keys()).map(|id| (at, id.clone())));
        }
        let place = |name: &String| SYNCS.iter().position(|(sync, _, _)| sync == name);
        for (name, id) in self.files.keys() {
            all.extend(place(name).map(|at| (at, id.clone())));
        }
        all
    }

    /// An object goes that nobody has approved: then it was not too much, at the moment when that was decided.
    pub(super) fn brakes(
        &self,
        name: &str,
        (id, uid): (&ObjectId, &str),
        trees: &[Tree],
        counts: &mut Counts,
    ) {
        let Some(pass) = self.passes.get(name) else { panic!("{name} deletes without a pass") };
        let (mut fits, mut why) = (false, String::new());
        for moment in &pass.moments {
            let of = moment.sync.metadata.uid.as_deref().unwrap_or_default();
            let Due { due, going, base, most, errors, .. } = moment.due(name, trees);
            let key = moment.key();
            let approved = |uid: &String| self.covering((name, of), &key, uid).next().is_some();
            let open = due.iter().filter(|uid| !approved(uid)).count();
            let all = due.len() + going >= base;
            fits |= open <= most && !all && !errors;
            why = format!("{open} of {base}, allowed are {most}, all {all}, errors {errors}");
        }
        assert!(fits, "{name} deletes {id} ({uid}), too much at once and not approved: {why}");
        *counts.entry("few enough to go at once").or_default() += 1;
    }

    /// `status.pruneBase` grows only when nothing is to be deleted any more: else what a commit creates would let through what it
    /// deletes.
    pub(super) fn base_grows(
        &self,
        name: &str,
        before: Option<i64>,
        status: &GitSyncStatus,
        trees: &[Tree],
    ) {
        let after = status.prune_base;
        let (Some(before), Some(after), Some(pass)) = (before, after, self.passes.get(name)) else {
            return;
        };
        // While the newest commit waits, the one before is the measure. Whether it may wait is looked at elsewhere.
        let ready = status.conditions.iter().find(|c| c.type_ == "Ready");
        let waits = ready.is_some_and(|ready| ready.reason.starts_with("Dependency"));
        if after <= before || waits || !pass.moments.iter().all(|moment| moment.released) {
            return;
        }
        let nothing_due = |moment: &Moment| {
            let due = moment.due(name, trees);
            due.errors || due.due.iter().all(|uid| pass.deleted.contains(uid))
        };
        assert!(
            pass.moments.iter().any(nothing_due),
            "{name}: pruneBase {before} becomes {after} while something is to be deleted"
        );
    }

    /// What is held as too much really is.
    pub(super) fn holds(&self, name: &str, trees: &[Tree], counts: &mut Counts) {
        let Some(last) = self.passes.get(name).and_then(|pass| pass.moments.last()) else { return };
        let Due { due, marked, going, base, most, .. } = last.due(name, trees);
        if marked > 0 && due.len() + going >= base {
            *counts.entry("all were to go, and wait").or_default() += 1;
        } else if due.len() > most {
            *counts.entry("more than may go at once, and wait").or_default() += 1;
        }
    }
}

fn all_shown(operator: &Operator) -> Vec<(ObjectId, Live)> {
    let mut all = Vec::new();
    for kind in [Kind::ModelAPI, Kind::Agent] {
        let store = operator.stores.managed(kind);
        for name in store.names(NAMESPACE) {
            let live = store.live(&Key::new(NAMESPACE, &*name));
            all.extend(live.map(|live| (ObjectId::new(kind, name), live)));
        }
    }
    all
}
