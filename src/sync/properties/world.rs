//! What people and the operator do: commits, edits by hand, approvals; looks at remotes, plans, writes, crashes.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::core::DeserializeGuard;
use serde_json::json;

use super::cluster::{Cluster, stored};
use super::oracle::Ledger;
use super::repository::{Definitions, FOLDERS, File, Health, NAMES, Tree, id};
use crate::api::git_sync::{ApprovedPrune, DriftPolicy, FailurePolicy, Prune};
use crate::api::{GitSync, ObjectId, keys};
use crate::cluster::live::Managed;
use crate::cluster::reflector;
use crate::cluster::store::{Key, Store};
use crate::dice::Dice;
use crate::sync::board::Board;
use crate::sync::carry::consult;
use crate::sync::desired::{SyncRef, changes};
use crate::sync::plan::{Held, Inputs, Plan, Settled, Settling, plan};
use crate::sync::references::References;
use crate::sync::siblings::{Siblings, Told};
use crate::sync::source::Loaded;

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
    pub pending: Option<Held>,
    // From here on: memory.
    pub loaded: Option<Arc<Loaded>>,
    /// Number of the commit that was read last.
    pub head: usize,
    pub failed: bool,
    pub polled: Option<Instant>,
    view: Option<(Board, References, Arc<Loaded>)>,
    pub settled: Settled,
    /// For the oracle: where each object was last wanted, as far as the operator can know.
    pub remembered: BTreeMap<ObjectId, String>,
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

    fn object(&self, version: u64) -> GitSync {
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

    fn forget(&mut self) {
        (self.loaded, self.polled, self.view, self.failed) = (None, None, None, false);
        self.settled.clear();
        self.remembered.clear();
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
    store: Arc<Store<Managed<GitSync>>>,
    siblings: Siblings,
    definitions: Definitions,
    versions: u64,
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
            loaded: None,
            head: 0,
            failed: false,
            polled: None,
            view: None,
            settled: Settled::new(),
            remembered: BTreeMap::new(),
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
        let (key, entry) = reflector::entry::<Managed<GitSync>>(DeserializeGuard(Ok(alien)));
        world.store.applied(key, entry);
        world
    }

    /// The watch shows a GitSync.
    fn show(&mut self, at: usize) {
        self.versions += 1;
        let object = self.syncs[at].object(self.versions);
        let (key, entry) = reflector::entry::<Managed<GitSync>>(DeserializeGuard(Ok(object)));
        self.store.applied(key, entry);
    }

    fn tree(&self) -> Tree {
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

    /// A look at a remote.
    fn poll(&mut self, at: usize, fails: bool) {
        let sync = &mut self.syncs[at];
        if sync.suspended {
            return;
        }
        let polled = Instant::now();
        sync.polled = Some(polled);
        sync.failed = fails;
        if !fails && (sync.loaded.is_none() || sync.head != self.head) {
            let catalog = self.definitions.catalog(&self.trees[self.head], sync.folder);
            let (spec, commit) = (sync.object(0).spec, format!("{:040x}", self.head));
            let loaded = Loaded::of(&spec, &commit, catalog, sync.loaded.as_deref());
            if !loaded.catalog.has_errors() {
                sync.remembered.clear();
            }
            let paths =
                loaded.desired.iter().map(|(id, w)| (id.clone(), w.definition.path.clone()));
            sync.remembered.extend(paths);
            sync.loaded = Some(Arc::new(loaded));
            sync.head = self.head;
        }
        let told = Told {
            uid: sync.reference.uid.clone(),
            generation: sync.reference.generation,
            polled,
            loaded: sync.loaded.clone(),
            failed: fails,
        };
        // Everybody plans at random here: nobody has to be woken.
        let _woken = self.siblings.tell(&sync.key(), told);
    }

    /// What a plan looks at, brought up to date as the engine does.
    fn view(&mut self, at: usize, loaded: &Arc<Loaded>) -> (Board, References) {
        let (live, sync) = (self.cluster.live(), &mut self.syncs[at]);
        let (reference, desired, settled) = (&sync.reference, &loaded.desired, &sync.settled);
        let touched = std::mem::take(&mut self.cluster.touched[at]);
        let exists = |id: &ObjectId| live.contains_key(id);
        let fresh = Board::new(reference, desired, &live, settled);
        let mut naive = References::default();
        naive.check_all(&loaded.catalog, &exists);
        let Some((mut board, mut references, before)) = sync.view.take() else {
            return (fresh, naive);
        };
        let differing = changes(&before.desired, desired);
        for id in touched.iter().chain(differing.iter().map(|(id, _)| id)) {
            board.look(id, reference, desired, &live, settled);
        }
        references.update((&before.catalog, &loaded.catalog), &differing, touched.iter(), &exists);
        assert_eq!(board, fresh, "the board has lost a change");
        let problems = |references: &References| references.problems().cloned().collect::<Vec<_>>();
        assert_eq!(problems(&references), problems(&naive), "a reference was not looked at again");
        (board, references)
    }

    /// Plans, has the plan judged, and carries out as many of its writes as the dice say: the rest is lost in a crash.
    fn sync(&mut self, at: usize, crash: bool) {
        let Some(loaded) = self.syncs[at].loaded.clone().filter(|_| !self.syncs[at].suspended)
        else {
            return;
        };
        let (mut board, references) = self.view(at, &loaded);
        let live = self.cluster.live();
        let sync = &self.syncs[at];
        let input_key = sync.input_key().expect("loaded");
        let others = self.siblings.view(&sync.key(), loaded.found, &self.store);
        let inputs = Inputs {
            sync: &sync.reference,
            input_key: &input_key,
            desired: &loaded.desired,
            live: &live,
            board: &board,
            has_errors: loaded.catalog.has_errors(),
            broken: &loaded.catalog.broken,
            broken_paths: &loaded.catalog.broken_paths,
            paths: &loaded.catalog.paths,
            last_paths: &loaded.last_paths,
            prune: &sync.prune,
            drift: sync.drift,
            failure_policy: sync.failure_policy,
            approval: sync.approval.as_deref(),
            approved: sync.approved.as_ref(),
            others: &others,
            settled: &sync.settled,
        };
        let mut made = plan(&inputs);
        assert_eq!(made, plan(&inputs), "the same inputs give the same plan");
        let raw = made.clone();
        let digest = |held: &Option<Held>| held.as_ref().map(|held| held.digest.clone());
        let shown = digest(&sync.pending);
        let carried = consult(&others, &mut made, shown.as_deref()).unwrap_or_default();
        let heard = carried.asked.is_empty() && carried.unknown.is_none();
        let shows = digest(&raw.held).filter(|digest| heard || shown.as_ref() == Some(digest));
        assert_eq!(digest(&made.held), shows, "what is held is shown once it is known, and stays");
        let unproven = sync.failed || !carried.asked.is_empty() || carried.unknown.is_some();
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
        self.carry_out(at, &loaded, &made, left);
        let (live, sync) = (self.cluster.live(), &mut self.syncs[at]);
        // A write that changed nothing touches nothing, but teaches what is settled.
        for id in made.create.iter().chain(made.update.iter().map(|update| &update.id)) {
            board.look(id, &sync.reference, &loaded.desired, &live, &sync.settled);
        }
        sync.view = Some((board, references, loaded));
        sync.last = Some(raw.clone());
        if left == writes {
            // The status is written last.
            let postponed = unproven && !raw.prune.is_empty();
            let unfinished = postponed || !made.terminating.is_empty();
            sync.approved = made.released.clone().filter(|_| unfinished);
            sync.pending = made.held.clone();
            if let Some(held) = &made.held {
                self.ledger.show(&input_key, held);
            }
        } else if self.dice.roll(2) == 0 {
            self.restart();
        }
    }

    fn carry_out(&mut self, at: usize, loaded: &Loaded, made: &Plan, mut left: usize) {
        let sync = &mut self.syncs[at];
        let updates = made.update.iter().map(|update| &update.id);
        for id in made.create.iter().chain(updates) {
            if left == 0 {
                return;
            }
            left -= 1;
            let want = &loaded.desired[id];
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
            let content = self.trees[sync.head].content(sync.folder, id).expect("wanted");
            let (version, hash) = self.cluster.put(id, stored(id, content), (labels, annotations));
            if hash == want.spec_hash {
                sync.settled.remove(id);
            } else {
                let (applied, spec_hash) = (want.applied.clone(), Some(hash));
                sync.settled.insert(id.clone(), Settling { applied, spec_hash, version });
            }
        }
        if !made.terminating.is_empty() {
            return;
        }
        for victim in made.prune.iter().take(left) {
            self.cluster.delete(&victim.id);
        }
    }

    /// Something happens.
    pub fn step(&mut self) {
        match self.dice.roll(10) {
            0..=3 => self.step_in_git(),
            4 | 5 => self.step_by_hand(),
            6 => self.step_of_user(),
            _ => self.step_of_operator(),
        }
    }

    pub fn step_in_git(&mut self) {
        let (folder, number, what) =
            (self.dice.of(&FOLDERS), self.dice.roll(4), self.dice.roll(16));
        let name = self.dice.of(&NAMES);
        let path = format!("{folder}f{}.yaml", self.dice.roll(3));
        let new = format!("{folder}n{}.yaml", self.dice.roll(6));
        let other = self.dice.of(&FOLDERS);
        self.log.push(format!("git {what}: {name} {number} {path} {new} {other}"));
        let (id, mut tree) = (id(name), self.tree());
        let of = |tree: &Tree| tree.file_of(folder, &id).map(|(path, _)| path.clone());
        match what {
            0..=2 => {
                let path = of(&tree).unwrap_or(path);
                tree.put(&path, id, number);
            }
            // Said twice, perhaps.
            3 => tree.put(&path, id, number),
            4 | 5 => tree.remove(&id),
            // Moved to another file, here or over there.
            6 | 7 => {
                let content = tree.content(folder, &id);
                if let Some(content) = content {
                    tree.remove(&id);
                    let path = if number == 0 { new } else { path };
                    tree.put(&path.replace(folder, other), id, content);
                }
            }
            // A file is renamed, and may be broken at the same time.
            8 | 9 => {
                let file = of(&tree).and_then(|path| tree.files.remove(&path));
                if let Some(file) = file.filter(|_| !tree.files.contains_key(&new)) {
                    let health = [Health::Unknown, Health::Named, file.health, file.health][number];
                    tree.files.insert(new, File { health, ..file });
                }
            }
            10 | 11 => {
                let health = if number % 2 == 0 { Health::Unknown } else { Health::Named };
                let path = of(&tree).unwrap_or(path);
                tree.files.entry(path).or_default().health = health;
            }
            12 | 13 => tree.mend(),
            14 => tree.files.retain(|path, _| number > 0 || !path.starts_with(folder)),
            // An earlier state: as a new commit, or by force.
            _ => {
                let earlier = self.dice.roll(self.trees.len());
                if number < 2 {
                    self.head = earlier;
                    return;
                }
                tree = self.trees[earlier].clone();
            }
        }
        if tree != self.trees[self.head] {
            self.commit(tree);
        }
    }

    /// Somebody has `kubectl`.
    fn step_by_hand(&mut self) {
        let (number, what) = (self.dice.roll(4), self.dice.roll(13));
        let (one, two) = (id(self.dice.of(&NAMES)), id(self.dice.of(&NAMES)));
        self.log.push(format!("by hand {what}: {one} {two} {number}"));
        let object = self.cluster.objects.get(&one).cloned();
        match (what, object) {
            (0 | 1, Some(o)) => {
                self.cluster.put(&one, 90 + number, (o.labels, o.annotations));
            }
            (2, Some(o)) => drop(self.cluster.put(&one, o.spec, (BTreeMap::new(), o.annotations))),
            (3, _) => self.cluster.delete(&one),
            (4, _) => {
                self.cluster.hold(&one, true);
                self.cluster.delete(&one);
            }
            (5, _) => self.cluster.hold(&one, number == 0),
            // Copied, mark and all; or made by somebody.
            (6, _) => {
                let copied = self.cluster.objects.get(&two).map(|o| o.annotations.clone());
                self.cluster.make(&one, number, copied.unwrap_or_default());
            }
            // Made by another GitSync: of a namespace far away, that lives or not; or of an earlier one.
            (7, _) => {
                let whose =
                    ["uid-9/far/else", "uid-8/far/gone", "uid-0/team/main", "uid-0/team/lost"];
                let mark = format!("{}/{}/team/{}", whose[number], one.kind, one.name);
                let annotations = BTreeMap::from([(keys::OWNER.to_owned(), mark)]);
                self.cluster.make(&one, number, annotations);
            }
            (8, _) => {
                let whom = [None, Some("main"), Some("other"), Some("nobody")][number];
                self.cluster.annotate(&one, keys::ADOPT_BY, whom);
            }
            (9, _) => {
                let key = [keys::OWNER, keys::APPLIED, keys::SOURCE, "odd"][number];
                self.cluster.annotate(&one, key, None);
            }
            (_, _) => {
                let value = (number > 0).then_some(keys::DISABLED);
                let key = if what == 10 { keys::RECONCILE } else { keys::PRUNE };
                self.cluster.annotate(&one, key, value);
            }
        }
    }

    /// Somebody edits a GitSync.
    fn step_of_user(&mut self) {
        let (at, number, what) = (self.dice.roll(2), self.dice.roll(4), self.dice.roll(10));
        self.log.push(format!("user {what}: sync {at} {number}"));
        let shown = self.ledger.any(&mut self.dice);
        let sync = &mut self.syncs[at];
        match what {
            0..=3 => {
                sync.approval = sync.pending.as_ref().map(|held| held.digest.clone());
                self.ledger.approve(sync.approval.as_deref());
                return;
            }
            // An old digest, or none that ever was.
            4 => {
                sync.approval = Some(shown.filter(|_| number > 0).unwrap_or("nonsense".into()));
                self.ledger.approve(sync.approval.as_deref());
                return;
            }
            5 => {
                let most = ["30%", "0%", "100%", "60%"][number].to_owned();
                sync.prune.max_deletions =
                    if number == 0 { IntOrString::Int(2) } else { IntOrString::String(most) };
            }
            6 => {
                let report = number == 0;
                sync.drift = if report { DriftPolicy::Report } else { DriftPolicy::default() };
                sync.prune.enabled = number != 1;
            }
            7 => {
                let atomic = number % 2 == 0;
                sync.failure_policy =
                    if atomic { FailurePolicy::Atomic } else { FailurePolicy::default() };
            }
            8 => sync.suspended = number == 0,
            // Deleted without its objects, and made anew.
            _ if number == 0 => {
                let (key, old) = (sync.key(), sync.reference.uid.clone());
                sync.forget();
                sync.reference.uid = format!("{old}+");
                (sync.created, sync.approval, sync.approved) =
                    (300 + self.versions.cast_signed(), None, None);
                (sync.pending, sync.last) = (None, None);
                self.store.removed(&key, &old);
                let _woken = self.siblings.forget(&key);
                self.ledger.given[at].clear();
            }
            _ => {}
        }
        self.syncs[at].reference.generation += 1;
        self.show(at);
    }

    pub fn step_of_operator(&mut self) {
        let (at, what) = (self.dice.roll(2), self.dice.roll(16));
        self.log.push(format!("operator {what}: sync {at}"));
        match what {
            0 => self.restart(),
            1 | 2 => self.poll(at, true),
            3..=7 => self.poll(at, false),
            8 | 9 => self.sync(at, true),
            _ => self.sync(at, false),
        }
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
            sync.reference.generation += 1;
            self.show(at);
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
                if let Some(held) = sync.pending.take() {
                    sync.approval = Some(held.digest);
                    self.ledger.approve(sync.approval.as_deref());
                }
                self.sync(at, false);
            }
            // What one gives is taken a round later.
            let rests = before == self.cluster.clock;
            idle = if rests { idle + 1 } else { 0 };
            if idle == 2 && self.syncs.iter().all(|sync| sync.pending.is_none()) {
                return;
            }
            before = self.cluster.clock;
        }
        let plans: Vec<_> = self.syncs.iter().map(|sync| &sync.last).collect();
        panic!("no rest: {plans:#?}");
    }
}
