//! What people and the operator do: commits, edits by hand, approvals; looks at remotes, plans, writes, crashes.

use std::collections::BTreeMap;
use std::sync::Arc;

use kube::core::DeserializeGuard;
use serde_json::json;

use super::cluster::{Cluster, stored};
use super::look::Last;
use super::oracle::Ledger;
use super::repository::{Definitions, FOLDERS, Tree};
use crate::api::git_sync::{ApprovedPrune, DriftPolicy, FailurePolicy, PendingPrune, Prune};
use crate::api::{GitSync, ObjectId, keys};
use crate::cluster::live::Managed;
use crate::cluster::store::{Key, Store};
use crate::cluster::view;
use crate::dice::Dice;
use crate::sync::board::Board;
use crate::sync::carry::consult;
use crate::sync::desired::{SyncRef, changes};
use crate::sync::loaded::Loaded;
use crate::sync::order::Seq;
use crate::sync::plan::{Held, Inputs, Plan, Settled, Settling, brake, plan};
use crate::sync::references::References;
use crate::sync::siblings::Siblings;

const NAMESPACE: &str = "team";
/// Rounds in which everything must come to rest once nobody interferes.
const ROUNDS: usize = 12;

/// A GitSync: what its object says, and what the operator keeps of it.
pub struct Sync {
    pub reference: SyncRef,
    pub folder: &'static str,
    /// When it was made, in seconds.
    pub created: i64,
    pub suspended: bool,
    pub prune: Prune,
    pub drift: DriftPolicy,
    pub failure_policy: FailurePolicy,
    pub approval: Option<String>,
    pub approved: Option<ApprovedPrune>,
    /// What a person was shown last.
    pub pending: Option<PendingPrune>,
    /// How many objects there were when no delete was due.
    pub base: Option<usize>,
    /// The commit that was applied whole last.
    pub whole: Option<usize>,
    /// When a person edited it last, or approved something.
    pub edited: Seq,
    /// The same for approvals.
    pub said: Seq,
    // From here on: memory.
    pub loaded: Option<Arc<Loaded>>,
    /// Number of the commit that was read last.
    pub head: usize,
    pub failed: bool,
    pub polled: Option<Seq>,
    /// For which generation.
    pub answered: i64,
    pub view: Option<(Board, References, Arc<Loaded>)>,
    pub settled: Settled,
    /// For the oracle: how each object was last wanted, as far as the operator can know.
    pub remembered: BTreeMap<ObjectId, Last>,
    /// For the oracle: what each object was last seen to agree with, by [`Desired::applied`].
    pub applied: BTreeMap<ObjectId, String>,
    /// The last plan, as it was made.
    pub last: Option<Plan>,
}

impl Sync {
    pub fn key(&self) -> Key {
        Key::new(&*self.reference.namespace, &*self.reference.name)
    }

    pub fn input_key(&self) -> Option<String> {
        let generation = self.reference.generation;
        self.loaded.as_ref().map(|loaded| format!("{} {generation}", loaded.input_key))
    }

    pub fn object(&self, version: u64) -> GitSync {
        let SyncRef { uid, namespace, name, generation } = &self.reference;
        let created = jiff::Timestamp::from_second(self.created).expect("a time").to_string();
        let object = json!({
            "apiVersion": "convoke.dev/v1alpha1", "kind": "GitSync",
            "metadata": {"name": name, "namespace": namespace, "uid": uid, "generation": generation,
                "creationTimestamp": created, "resourceVersion": version.to_string()},
            "spec": {"url": "https://git.example", "path": self.folder, "suspend": self.suspended},
        });
        serde_json::from_value(object).expect("a GitSync")
    }

    pub fn forget(&mut self) {
        (self.loaded, self.polled, self.view, self.failed) = (None, None, None, false);
        self.answered = 0;
        self.settled.clear();
        self.remembered.clear();
        self.applied.clear();
    }
}

/// See the module.
pub struct World {
    pub dice: Dice,
    pub log: Vec<String>,
    /// All commits there ever were.
    pub trees: Vec<Tree>,
    /// The newest.
    pub head: usize,
    pub cluster: Cluster,
    pub syncs: [Sync; 2],
    pub ledger: Ledger,
    pub store: Arc<Store<Managed<GitSync>>>,
    pub siblings: Siblings,
    pub definitions: Definitions,
    pub versions: u64,
}

impl World {
    pub fn new(dice: Dice) -> Self {
        let sync = |(name, folder, created): (&str, &'static str, i64)| Sync {
            reference: SyncRef {
                uid: format!("uid-of-{name}"),
                namespace: NAMESPACE.into(),
                name: name.into(),
                generation: 1,
            },
            folder,
            created,
            suspended: false,
            prune: Prune::default(),
            drift: DriftPolicy::default(),
            failure_policy: FailurePolicy::default(),
            approval: None,
            approved: None,
            pending: None,
            base: None,
            whole: None,
            edited: Seq::default(),
            said: Seq::default(),
            answered: 0,
            loaded: None,
            head: 0,
            failed: false,
            polled: None,
            view: None,
            settled: Settled::new(),
            remembered: BTreeMap::new(),
            applied: BTreeMap::new(),
            last: None,
        };
        let syncs = [("main", FOLDERS[0], 100), ("other", FOLDERS[1], 200)].map(sync);
        let mut first = Tree::default();
        first.keep_company();
        let mut world = Self {
            dice,
            log: Vec::new(),
            trees: vec![first],
            head: 0,
            cluster: Cluster::default(),
            syncs,
            ledger: Ledger::default(),
            store: Store::new("GitSync"),
            siblings: Siblings::default(),
            definitions: Definitions::default(),
            versions: 0,
        };
        world.show(0);
        world.show(1);
        // One of another namespace, whose marks are to be respected.
        let alien = json!({
            "apiVersion": "convoke.dev/v1alpha1", "kind": "GitSync",
            "metadata": {"name": "else", "namespace": "far", "uid": "uid-9", "resourceVersion": "1"},
            "spec": {"url": "https://git.example"},
        });
        let alien = serde_json::from_value(alien).expect("a GitSync");
        let (key, entry) = view::entry::<Managed<GitSync>>(DeserializeGuard(Ok(alien)));
        world.store.applied(key, entry);
        world
    }

    /// The watch shows a GitSync.
    pub fn show(&mut self, at: usize) {
        self.versions += 1;
        let object = self.syncs[at].object(self.versions);
        let (key, entry) = view::entry::<Managed<GitSync>>(DeserializeGuard(Ok(object)));
        self.store.applied(key, entry);
    }

    /// The spec of a GitSync is another one.
    pub fn edited(&mut self, at: usize) {
        let sync = &mut self.syncs[at];
        (sync.reference.generation, sync.edited) = (sync.reference.generation + 1, Seq::next());
        self.show(at);
    }

    pub fn tree(&self) -> Tree {
        self.trees[self.head].clone()
    }

    pub fn commit(&mut self, tree: Tree) {
        self.trees.push(tree);
        self.head = self.trees.len() - 1;
    }

    /// The operator dies, and another one starts.
    pub fn restart(&mut self) {
        self.siblings = Siblings::default();
        self.ledger.given = Default::default();
        self.syncs.iter_mut().for_each(Sync::forget);
    }

    /// What a plan looks at, brought up to date as the engine does.
    fn view(&mut self, at: usize, loaded: &Arc<Loaded>) -> (Board, References) {
        let (live, sync) = (self.cluster.live(), &mut self.syncs[at]);
        let (reference, desired, settled) = (&sync.reference, &loaded.measure, &sync.settled);
        let touched = std::mem::take(&mut self.cluster.touched[at]);
        let exists = |id: &ObjectId| live.contains_key(id);
        let fresh = Board::new(reference, desired, &live, settled);
        let mut naive = References::default();
        naive.check_all(&loaded.catalog, &exists);
        let Some((mut board, mut references, before)) = sync.view.take() else {
            return (fresh, naive);
        };
        let differing = changes(&before.measure, desired);
        for id in touched.iter().chain(differing.iter().map(|(id, _)| id)) {
            board.look(id, reference, desired, &live, settled);
        }
        let differing = changes(&before.desired, &loaded.desired);
        references.update((&before.catalog, &loaded.catalog), &differing, touched.iter(), &exists);
        assert_eq!(board.of_now(), fresh.of_now(), "the board has lost a change");
        let problems = |references: &References| references.problems().cloned().collect::<Vec<_>>();
        assert_eq!(problems(&references), problems(&naive), "a reference was not looked at again");
        (board, references)
    }

    /// Plans, has the plan judged, and carries out as many of its writes as the dice say: the rest is lost in a crash.
    pub fn sync(&mut self, at: usize, crash: bool) {
        let Some(loaded) = self.syncs[at].loaded.clone().filter(|_| !self.syncs[at].suspended)
        else {
            return;
        };
        let (mut board, references) = self.view(at, &loaded);
        self.note_applied(at);
        let live = self.cluster.live();
        let sync = &self.syncs[at];
        let input_key = sync.input_key().expect("loaded");
        let since = loaded.found.max(sync.edited).max(sync.said);
        let others = self.siblings.view(&sync.key(), since, std::time::Instant::now(), &self.store);
        let unproven = others.unproven();
        let inputs = Inputs {
            sync: &sync.reference,
            latch_key: &input_key,
            desired: &loaded.measure,
            live: &live,
            board: &board,
            has_errors: loaded.catalog.has_errors(),
            broken: &loaded.catalog.broken,
            broken_paths: &loaded.catalog.broken_paths,
            paths: &loaded.catalog.paths,
            last_paths: &loaded.last_paths,
            lost: loaded.lost,
            prune: &sync.prune,
            drift: sync.drift,
            failure_policy: sync.failure_policy,
            approval: sync.approval.as_deref(),
            approved: sync.approved.as_ref(),
            pending: sync.pending.as_ref(),
            unproven: &unproven,
            prune_base: sync.base,
            others: &others,
            settled: &sync.settled,
        };
        let mut made = plan(&inputs);
        assert_eq!(made, plan(&inputs), "the same inputs give the same plan");
        let raw = made.clone();
        let digest = |held: &Option<Held>| held.as_ref().map(|held| held.digest.clone());
        let shown = sync.pending.as_ref().map(|pending| pending.digest.clone());
        let latched = brake::is_shown(sync.pending.as_ref(), &input_key);
        let asked = consult(&others, &mut made, sync.pending.as_ref(), &input_key);
        let heard = asked.is_empty();
        let pending = brake::pending(sync.pending.as_ref(), &made, &input_key, &unproven);
        let shows =
            digest(&raw.held).filter(|digest| heard || latched || shown.as_ref() == Some(digest));
        assert_eq!(digest(&made.held), shows, "what is held is shown once it is known, and stays");
        let unanswered = sync.answered != sync.reference.generation;
        let unproven = sync.failed || unanswered || !asked.is_empty();
        if unproven {
            made.prune.clear();
            made.given.clear();
        }
        self.judge(at, &raw, &made);
        let _takers = self.siblings.give(&self.syncs[at].key(), &made.given);
        self.ledger.given[at] = made.given.iter().map(|(id, _)| id.clone()).collect();

        if made.released.is_some() {
            self.syncs[at].approved.clone_from(&made.released);
        }
        let writes = made.create.len() + made.update.len() + made.prune.len();
        let left = if crash { self.dice.roll(writes + 1) } else { writes };
        for id in self.carry_out(at, &loaded, &made, left) {
            board.wrote(&id, &loaded.measure[&id]);
        }
        let errors = loaded.catalog.has_errors();
        let (live, sync) = (self.cluster.live(), &mut self.syncs[at]);
        // A write that changed nothing touches nothing, but teaches what is settled.
        for id in made.create.iter().chain(made.update.iter().map(|update| &update.id)) {
            board.look(id, &sync.reference, &loaded.measure, &live, &sync.settled);
        }
        self.note_applied(at);
        let sync = &mut self.syncs[at];
        let total = board.counts().values().map(|count| count.total).sum();
        let there = brake::left(&sync.reference, &loaded.measure, &live, &board);
        sync.view = Some((board, references, loaded));
        sync.last = Some(raw.clone());
        if left == writes {
            // The status is written last.
            let done = if made.terminating.is_empty() { made.prune.len() } else { 0 };
            if raw.due <= done {
                sync.base = Some(total);
            } else {
                sync.base = sync.base.or(Some(raw.marked));
            }
            let remains =
                |approved: &ApprovedPrune| approved.uids.iter().any(|u| there.contains(u));
            sync.approved = made.released.clone().filter(remains);
            let whole = !unproven && made.held.is_none() && raw.given.is_empty();
            if whole && made.terminating.is_empty() && raw.conflicts.is_empty() && !errors {
                sync.whole = Some(sync.head);
            }
            sync.pending = pending;
            if let Some(held) = &made.held {
                self.ledger.show(&input_key, held);
            }
            self.note_brake(at, &made);
        } else if self.dice.roll(2) == 0 {
            self.restart();
        }
    }

    /// Gives what was written.
    fn carry_out(
        &mut self,
        at: usize,
        loaded: &Loaded,
        made: &Plan,
        mut left: usize,
    ) -> Vec<ObjectId> {
        let mut written = Vec::new();
        let sync = &mut self.syncs[at];
        let updates = made.update.iter().map(|update| &update.id);
        for id in made.create.iter().chain(updates) {
            if left == 0 {
                return written;
            }
            left -= 1;
            written.push(id.clone());
            let want = &loaded.measure[id];
            let manifest = want.manifest(&sync.reference, &loaded.revision.commit);
            let strings = |field: &str| -> BTreeMap<String, String> {
                serde_json::from_value(manifest["metadata"][field].clone()).unwrap_or_default()
            };
            let (mut labels, mut annotations) = match self.cluster.objects.get(id) {
                Some(object) => (object.labels.clone(), object.annotations.clone()),
                None => Default::default(),
            };
            labels.remove("odd");
            annotations.remove("odd");
            labels.extend(strings("labels"));
            annotations.extend(strings("annotations"));
            let Last { content, head, .. } = sync.remembered[id];
            let commit = format!("{head:040x}");
            assert_eq!(annotations.get(keys::COMMIT), Some(&commit), "{id} comes from there");
            let (version, hash) = self.cluster.put(id, stored(id, content), (labels, annotations));
            if hash == want.spec_hash {
                sync.settled.remove(id);
            } else {
                let (applied, spec_hash) = (want.applied.clone(), Some(hash));
                sync.settled.insert(id.clone(), Settling { applied, spec_hash, version });
            }
        }
        if !made.terminating.is_empty() {
            return written;
        }
        for victim in made.prune.iter().take(left) {
            self.cluster.delete(&victim.id);
        }
        written
    }

    /// Everybody lets go, nothing is broken any more, and nothing is forbidden.
    pub fn calm(&mut self) {
        self.log.push("calm".into());
        for id in self.cluster.objects.keys().cloned().collect::<Vec<_>>() {
            self.cluster.annotate(&id, keys::RECONCILE, None);
            self.cluster.annotate(&id, keys::PRUNE, None);
            self.cluster.hold(&id, false);
        }
        let mut tree = self.tree();
        tree.mend();
        self.commit(tree);
        for at in 0..2 {
            let sync = &mut self.syncs[at];
            (sync.suspended, sync.prune.enabled, sync.drift) =
                (false, true, DriftPolicy::default());
            self.edited(at);
        }
    }

    /// Goes on until nothing is written any more; whatever is held is approved.
    pub fn settle(&mut self) {
        let (mut before, mut idle) = (u64::MAX, 0);
        for round in 0..ROUNDS {
            self.log.push(format!("round {round}"));
            for at in [0, 1] {
                self.poll(at, false);
            }
            for at in [0, 1, 0] {
                let sync = &mut self.syncs[at];
                if let Some(pending) = &sync.pending {
                    (sync.approval, sync.said) = (Some(pending.digest.clone()), Seq::next());
                    self.ledger.approve(sync.approval.as_deref());
                    // Who approves is heard, and the other one is asked again.
                    self.poll(1 - at, false);
                }
                self.sync(at, false);
            }
            // What one gives is taken a round later.
            let rests = before == self.cluster.clock;
            idle = if rests { idle + 1 } else { 0 };
            let empty = |pending: &PendingPrune| pending.count == 0;
            if idle == 2 && self.syncs.iter().all(|s| s.pending.as_ref().is_none_or(empty)) {
                return;
            }
            before = self.cluster.clock;
        }
        let plans: Vec<_> = self.syncs.iter().map(|sync| &sync.last).collect();
        panic!("no rest: {plans:#?}");
    }
}
