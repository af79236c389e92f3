//! What holds for any sequence of commits, edits, crashes and approvals: a small Git, a small API server, and the real
//! planner between them. A case that fails says its seed; `case(seed)` runs it again.

use std::sync::Arc;

use serde_json::json;

use super::*;
use crate::api::Kind;
use crate::cluster::live::{Facts, LiveObject, hash_json};
use crate::definition::{Definition, Offers};
use crate::packed::{Family, Pairs};
use crate::sync::board::LiveSet;

const NAMES: [&str; 9] = ["a", "b", "c", "d", "e", "f", "g", "h", "i"];
const CASES: u64 = 3000;
const STEPS: usize = 40;

/// xorshift: the same seed gives the same case, everywhere.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % sides as u64).expect("small")
    }

    fn name(&mut self) -> &'static str {
        NAMES[self.roll(NAMES.len())]
    }
}

/// A live object as the API server keeps it.
#[derive(Debug, Clone)]
struct Object {
    uid: String,
    version: u64,
    spec: usize,
    annotations: BTreeMap<String, String>,
    facts: Facts,
}

impl LiveObject for Object {
    fn uid(&self) -> &str {
        &self.uid
    }
    fn version(&self) -> u64 {
        self.version
    }
    fn facts(&self) -> &Facts {
        &self.facts
    }
}

fn spec(n: usize) -> serde_json::Value {
    json!({"mode": "External", "external": {"url": format!("https://{n}.example")}})
}

fn id(name: &str) -> ObjectId {
    ObjectId::new(Kind::ModelAPI, name)
}

fn sync() -> SyncRef {
    let (uid, namespace, name) = ("uid-1".into(), "team".into(), "main".into());
    SyncRef { uid, namespace, name, generation: 1 }
}

struct Nobody;

impl Others for Nobody {
    fn exists(&self, _: &str, _: &str, _: &str) -> bool {
        false
    }
    fn wanted_by(&self, _: &ObjectId) -> Option<String> {
        None
    }
    fn gives(&self, _: &str, _: &ObjectId) -> bool {
        false
    }
}

/// One file a name: its content, or that it is broken.
type Tree = BTreeMap<&'static str, Option<usize>>;

#[derive(Default)]
struct World {
    git: Tree,
    before: Tree,
    commits: usize,
    cluster: BTreeMap<ObjectId, Object>,
    clock: u64,
    // What the operator keeps in memory.
    memory: Option<(Board, DesiredSet)>,
    settled: Settled,
    touched: BTreeSet<ObjectId>,
    // What the GitSync says.
    approval: Option<String>,
    approved: Option<ApprovedPrune>,
    pending: Option<String>,
    log: Vec<String>,
}

impl World {
    fn put(&mut self, id: &ObjectId, spec_number: usize, annotations: BTreeMap<String, String>) {
        self.clock += 1;
        let uid = match self.cluster.get(id) {
            Some(object) => object.uid.clone(),
            None => format!("{:032x}", self.clock.wrapping_mul(0x9e37_79b9_7f4a_7c15)),
        };
        let facts = Facts {
            annotations: Pairs::of(Some(&annotations)),
            spec_hash: Some(hash_json(&spec(spec_number))),
            ..Facts::default()
        };
        let object = Object { uid, version: self.clock, spec: spec_number, annotations, facts };
        self.cluster.insert(id.clone(), object);
        self.touched.insert(id.clone());
    }

    fn annotate(&mut self, id: &ObjectId, key: &str, value: Option<&str>) {
        let Some(object) = self.cluster.get(id) else { return };
        let (spec, mut annotations) = (object.spec, object.annotations.clone());
        match value {
            Some(value) => annotations.insert(key.into(), value.into()),
            None => annotations.remove(key),
        };
        self.put(id, spec, annotations);
    }

    fn commit(&mut self, tree: Tree) {
        self.before = std::mem::replace(&mut self.git, tree);
        self.commits += 1;
    }

    fn desired(&self) -> DesiredSet {
        let good = self.git.iter().filter_map(|(name, content)| Some((*name, (*content)?)));
        let want = |(name, n): (&str, usize)| {
            let definition = Definition {
                id: id(name),
                path: format!("{name}.yaml"),
                line: 1,
                column: 1,
                labels: BTreeMap::new(),
                annotations: BTreeMap::new(),
                spec: Family::new().pack(&spec(n)),
                canonical_spec: Family::new().pack(&spec(n)),
                offers: Offers::default(),
                references: Vec::new(),
            };
            (id(name), Desired::new(Arc::new(definition)))
        };
        good.map(want).collect()
    }

    fn live(&self) -> LiveSet {
        self.cluster.iter().map(|(id, o)| (id.clone(), Arc::new(o.clone()) as Live)).collect()
    }

    /// Plans, checks the plan, and carries out as many of its writes as the dice say: the rest is lost in a crash.
    fn sync(&mut self, dice: &mut Dice, crash: bool) -> Plan {
        let (desired, live, sync) = (self.desired(), self.live(), sync());
        let fresh = Board::new(&sync, &desired, &live, &self.settled);
        let board = match self.memory.take() {
            Some((mut board, before)) => {
                // What differs between the two commits, and what was touched: nothing else is looked at.
                let differs = |id: &&ObjectId| {
                    before.get(*id).map(|w| &w.applied) != desired.get(*id).map(|w| &w.applied)
                };
                let all: BTreeSet<_> = before.keys().chain(desired.keys()).collect();
                let changed: Vec<_> = all.into_iter().filter(differs).cloned().collect();
                for id in changed.iter().chain(&self.touched) {
                    board.look(id, &sync, &desired, &live, &self.settled);
                }
                assert_eq!(board, fresh, "the board has lost a change");
                board
            }
            None => fresh,
        };
        self.touched.clear();
        let broken: BTreeMap<_, _> = self
            .git
            .iter()
            .filter(|(_, content)| content.is_none())
            .map(|(name, _)| (id(name), format!("{name}.yaml")))
            .collect();
        let has_errors = !broken.is_empty() || self.git.is_empty();
        let input_key = format!("commit-{}", self.commits);
        let inputs = Inputs {
            sync: &sync,
            input_key: &input_key,
            desired: &desired,
            live: &live,
            board: &board,
            has_errors,
            broken: &broken,
            broken_paths: &BTreeSet::new(),
            paths: &BTreeSet::new(),
            last_paths: &BTreeMap::new(),
            prune: &Prune::default(),
            drift: DriftPolicy::default(),
            failure_policy: FailurePolicy::default(),
            approval: self.approval.as_deref(),
            approved: self.approved.as_ref(),
            others: &Nobody,
            settled: &self.settled,
        };
        let plan = super::plan(&inputs);
        assert_eq!(plan, super::plan(&inputs), "the same inputs give the same plan");
        self.check(&plan, &desired, &broken, has_errors);
        self.approved.clone_from(&plan.released);
        self.pending = plan.held.as_ref().map(|held| held.digest.clone());

        let commit = input_key.clone();
        let writes = plan.create.len() + plan.update.len() + plan.prune.len();
        let mut left = if crash { dice.roll(writes + 1) } else { writes };
        let updates = plan.update.iter().map(|update| &update.id);
        for id in plan.create.iter().chain(updates) {
            if left == 0 {
                break;
            }
            left -= 1;
            let want = &desired[id];
            let mut annotations =
                self.cluster.get(id).map(|o| o.annotations.clone()).unwrap_or_default();
            let manifest = want.manifest(&sync, &commit);
            let ours = manifest["metadata"]["annotations"].as_object().expect("annotations");
            let text = |value: &serde_json::Value| value.as_str().expect("text").to_owned();
            annotations.extend(ours.iter().map(|(key, value)| (key.clone(), text(value))));
            let number = self.git[id.name.as_str()].expect("wanted");
            self.put(id, number, annotations);
        }
        for victim in &plan.prune {
            if left == 0 {
                break;
            }
            left -= 1;
            let same = self
                .cluster
                .get(&victim.id)
                .is_some_and(|o| o.uid == victim.uid && o.version == victim.version);
            assert!(same, "nothing changed between plan and delete here");
            self.cluster.remove(&victim.id);
            self.touched.insert(victim.id.clone());
        }
        self.memory = Some((board, desired));
        if crash && dice.roll(2) == 0 {
            self.memory = None;
            self.settled.clear();
        }
        plan
    }

    /// No delete without proof, ever.
    fn check(
        &self,
        plan: &Plan,
        desired: &DesiredSet,
        broken: &BTreeMap<ObjectId, String>,
        has_errors: bool,
    ) {
        let released: HashSet<&str> =
            plan.released.iter().flat_map(|a| &a.uids).map(String::as_str).collect();
        for victim in &plan.prune {
            let object = &self.cluster[&victim.id];
            let has = |key: &str| object.annotations.get(key).map(String::as_str);
            assert!(!desired.contains_key(&victim.id), "wanted");
            assert!(!broken.contains_key(&victim.id), "its file is broken");
            let mark = sync().mark(&victim.id).to_string();
            assert_eq!(has(keys::OWNER), Some(mark.as_str()), "not ours");
            assert_ne!(has(keys::PRUNE), Some("disabled"));
            assert_ne!(has(keys::RECONCILE), Some("disabled"));
        }
        let free = plan.prune.iter().filter(|v| !released.contains(short(&v.uid).as_str())).count();
        let unproven = has_errors || !plan.conflicts.is_empty();
        assert!(free == 0 || !unproven, "{free} deletes of a commit with errors");
        assert!(free <= (plan.marked * 30 / 100).max(1), "{free} of {} deletes", plan.marked);
        assert!(free == 0 || free < plan.marked, "everything would go");
        for update in &plan.update {
            let object = &self.cluster[&update.id];
            assert_ne!(
                object.annotations.get(keys::RECONCILE).map(String::as_str),
                Some("disabled")
            );
        }
    }

    fn step(&mut self, dice: &mut Dice) {
        let (name, number, what) = (dice.name(), dice.roll(4), dice.roll(16));
        let (id, other) = (id(name), id(dice.name()));
        self.log.push(format!("{what} {name} {number} {}", other.name));
        let mut tree = self.git.clone();
        match what {
            0 | 1 => drop(tree.insert(name, Some(number))),
            2 | 3 => drop(tree.remove(name)),
            4 => drop(tree.insert(name, None)),
            5 => tree = self.before.clone(),
            6 => tree.clear(),
            7 => {
                let object = self.cluster.get(&id).map(|o| o.annotations.clone());
                if let Some(annotations) = object {
                    self.put(&id, 90 + number, annotations);
                }
            }
            8 => {
                self.cluster.remove(&id);
                self.touched.insert(id.clone());
            }
            // Copied, mark and all; or made by somebody.
            9 => {
                let annotations = self.cluster.get(&other).map(|o| o.annotations.clone());
                if !self.cluster.contains_key(&id) {
                    self.put(&id, number, annotations.unwrap_or_default());
                }
            }
            10 => {
                let value = (number > 0).then_some("disabled");
                let key = if number > 1 { keys::RECONCILE } else { keys::PRUNE };
                self.annotate(&id, key, value);
            }
            11 => self.approval = self.pending.clone(),
            12 => self.approval = Some("nonsense".into()),
            13 => drop(self.sync(dice, true)),
            _ => drop(self.sync(dice, false)),
        }
        if tree != self.git {
            self.commit(tree);
        }
    }
}

fn case(seed: u64) {
    let mut dice = Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let mut world = World::default();
    let log = |world: &World| format!("seed {seed}: {}", world.log.join(", "));
    let run = |world: &mut World, dice: &mut Dice| {
        for _ in 0..STEPS {
            world.step(dice);
        }
    };
    let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        run(&mut world, &mut dice);
        // Everybody lets go, the last commit is good, and what is held is approved: it converges.
        for id in world.cluster.keys().cloned().collect::<Vec<_>>() {
            world.annotate(&id, keys::RECONCILE, None);
            world.annotate(&id, keys::PRUNE, None);
        }
        let mut tree: Tree =
            world.git.iter().map(|(name, n)| (*name, Some(n.unwrap_or(7)))).collect();
        tree.insert("a", Some(1));
        world.commit(tree);
        let mut plan = Plan::default();
        for _ in 0..4 {
            plan = world.sync(&mut dice, false);
            world.approval.clone_from(&world.pending);
        }
        assert!(plan.is_settled(), "{plan:?}");
        let conflicts: BTreeSet<_> = plan.conflicts.iter().map(|conflict| &conflict.id).collect();
        if conflicts.is_empty() {
            assert!(plan.held.is_none(), "{plan:?}");
        }
        for (name, number) in &world.git {
            let live = world.cluster.get(&id(name)).map(|object| object.spec);
            assert!(live == *number || conflicts.contains(&id(name)), "{name}: {live:?}");
        }
    }));
    assert!(outcome.is_ok(), "{}", log(&world));
}

#[test]
fn g12_no_sequence_deletes_without_proof_and_every_one_converges() {
    for seed in 0..CASES {
        case(seed);
    }
}

#[test]
fn g8_there_and_back_leaves_the_same_objects_and_a_rename_writes_nothing() {
    for seed in 0..200 {
        let mut dice = Dice(seed * 2 + 1);
        let mut world = World::default();
        let tree: Tree = NAMES.iter().map(|name| (*name, Some(dice.roll(3)))).collect();
        world.commit(tree.clone());
        world.sync(&mut dice, false);
        let uids = |world: &World| -> Vec<_> {
            world.cluster.values().map(|object| (object.uid.clone(), object.spec)).collect()
        };
        let before = uids(&world);
        let changed: Tree = NAMES.iter().map(|name| (*name, Some(dice.roll(3)))).collect();
        world.commit(changed);
        world.sync(&mut dice, true);
        world.commit(tree);
        world.sync(&mut dice, false);
        assert_eq!(uids(&world), before);
        // A definition that moved has another path and the same hash.
        assert!(world.sync(&mut dice, false).is_settled());
    }
}
