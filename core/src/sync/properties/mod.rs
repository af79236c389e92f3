//! What holds for any sequence of commits, edits by hand, crashes, approvals, hand-overs and lost remotes: a small Git,
//! a small API server, two GitSyncs that share a namespace, and the real planner, board, references and siblings between
//! them. A case that fails says its seed and its steps; `case(seed)` runs it again.
//!
//! [`repository`] is Git, [`cluster`] the API server, [`world`] what people and the operator do ([`steps`], [`look`]), [`oracle`] and
//! [`kept`] what must hold of each plan. The oracle knows the truth (what a broken file hides, what a person was shown) and uses nothing
//! of what it judges.
#![allow(clippy::disallowed_methods)] // a point to count from

mod cluster;
mod kept;
mod look;
mod oracle;
pub mod repository;
mod steps;
mod world;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use self::repository::{Definitions, FOLDERS, NAMES, Tree, id};
use self::world::World;
use crate::api::{ObjectId, keys};
use crate::definition::Definition;
use crate::dice::Dice;

const CASES: u64 = 3000;
const STEPS: usize = 40;

/// A definition, for tests beside these.
pub fn definition(id: &ObjectId, content: usize) -> Arc<Definition> {
    Definitions::default().get(id, "f.yaml", content)
}

fn case(seed: u64) {
    let mut world = World::new(Dice::new(seed));
    let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        for _ in 0..STEPS {
            world.step();
        }
        world.calm();
        world.settle();
        world.check_end();
    }));
    assert!(outcome.is_ok(), "seed {seed}: {}", world.log.join("\n  "));
}

#[test]
fn g12_no_sequence_deletes_without_proof_and_every_one_converges() {
    // Beside each other: all of them take a while.
    let cases = |first: u64| move || (first..CASES).step_by(2).for_each(case);
    let threads = [0, 1].map(|first| std::thread::spawn(cases(first)));
    let ended = threads.map(|thread| thread.join().is_ok());
    assert_eq!(ended, [true, true], "see above");
}

/// All names, over both folders and all files, as the dice fall.
fn spread(dice: &mut Dice) -> Tree {
    let mut tree = Tree::default();
    for name in NAMES {
        let (folder, file, content) = (dice.of(&FOLDERS), dice.roll(3), dice.roll(3));
        tree.put(&format!("{folder}f{file}.yaml"), id(name), content);
    }
    tree.keep_company();
    tree
}

#[test]
fn g8_g22_there_and_back_leaves_the_same_objects() {
    for seed in 0..300 {
        let mut dice = Dice::new(seed);
        let (here, there) = (spread(&mut dice), spread(&mut dice));
        let mut world = World::new(dice);
        // What moves from one GitSync to another is handed over in place: by identity, and never deleted.
        let ids = |world: &World| -> BTreeMap<_, _> {
            world
                .cluster
                .objects
                .iter()
                .map(|(id, o)| (id.clone(), (o.uid.clone(), o.spec)))
                .collect()
        };
        world.commit(here.clone());
        world.settle();
        let before = ids(&world);
        world.commit(there);
        world.settle();
        let uids: BTreeSet<_> = before.values().map(|(uid, _)| uid).collect();
        assert!(ids(&world).values().all(|(uid, _)| uids.contains(uid)), "seed {seed}");
        world.commit(here);
        world.settle();
        assert_eq!(ids(&world), before, "seed {seed}");
        world.check_end();
    }
}

#[test]
fn g8_a_commit_that_only_moves_definitions_writes_nothing() {
    for seed in 0..300 {
        let mut dice = Dice::new(seed);
        let tree = spread(&mut dice);
        let mut moved = Tree::default();
        for (path, file) in &tree.files {
            for (id, content) in &file.objects {
                let folder = if path.starts_with(FOLDERS[0]) { FOLDERS[0] } else { FOLDERS[1] };
                let other = format!("{folder}g{}.yaml", dice.roll(3));
                moved.put(&other, id.clone(), *content);
            }
        }
        let mut world = World::new(dice);
        world.commit(tree);
        world.settle();
        let writes = world.cluster.clock;
        world.commit(moved);
        world.settle();
        assert_eq!(world.cluster.clock, writes, "seed {seed}: {}", world.log.join("\n  "));
        // Not even after a restart, when nothing of it is remembered.
        world.restart();
        world.settle();
        assert_eq!(world.cluster.clock, writes, "seed {seed}: {}", world.log.join("\n  "));
    }
}

#[test]
fn g14_an_object_that_is_left_alone_is_left_alone_whatever_else_happens() {
    for seed in 0..300 {
        let mut world = World::new(Dice::new(seed));
        let tree = spread(&mut world.dice);
        world.commit(tree);
        world.settle();
        let kept = id(NAMES[world.dice.roll(NAMES.len())]);
        world.cluster.annotate(&kept, keys::RECONCILE, Some(keys::DISABLED));
        let before = world.cluster.objects[&kept].version;
        for _ in 0..STEPS {
            // Whatever happens in Git, and to the operator; nobody touches the cluster by hand.
            if world.dice.roll(2) == 0 {
                world.step_in_git();
            } else {
                world.step_of_operator();
            }
            assert_eq!(
                world.cluster.objects[&kept].version,
                before,
                "seed {seed}: {}",
                world.log.join("\n  ")
            );
        }
    }
}
