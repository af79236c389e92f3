//! Scenarios that are written out: nothing goes wrong in them, and what must not happen shows in what was written.

use std::collections::{BTreeMap, BTreeSet};

use super::campaign::quietly;
use super::server::{Name, text};
use super::{Sim, played, scenario};
use crate::api::{ObjectId, keys};
use crate::sync::properties::repository::{FOLDERS, NAMES, Tree, id};
use crate::test_rng::TestRng;

/// All names, over the folders and all files, as the dice fall.
fn spread(dice: &mut TestRng, folders: &[&str]) -> Tree {
    let mut tree = Tree::default();
    for name in NAMES {
        let (folder, file, content) = (dice.of(folders), dice.roll(3), dice.roll(3));
        tree.put(&format!("{folder}f{file}.yaml"), id(name), content);
    }
    tree.keep_company();
    tree
}

impl Sim {
    fn ids(&self) -> BTreeMap<ObjectId, (String, String)> {
        let of = |(id, object): (&ObjectId, &std::sync::Arc<serde_json::Value>)| {
            (id.clone(), (text(object, "/metadata/uid").to_owned(), object["spec"].to_string()))
        };
        self.server.objects().map(of).collect()
    }

    fn goes_to(&mut self, tree: Tree) {
        self.push(tree);
        self.rest();
    }

    /// How often something was written that is no status.
    fn written(&self) -> usize {
        let objects = |shown: &&super::server::Shown| matches!(shown.name, Name::Object(_));
        self.server.log.iter().filter(objects).count()
    }
}

/// Plays this with many seeds.
fn each(seeds: u64, work: impl Fn(&mut Sim, TestRng)) {
    quietly(|| {
        for seed in 0..seeds {
            let played = played(seed, true, |sim| work(sim, TestRng::new(seed)));
            if let Err(why) = played {
                return Err(format!("seed {seed}: {why}"));
            }
        }
        Ok(())
    })
    .unwrap_or_else(|why| panic!("{why}"));
}

#[test]
fn g8_g22_there_and_back_leaves_the_same_objects() {
    each(60, |sim, mut dice| {
        let folders = &FOLDERS[..sim.syncs.len()];
        let (here, there) = (spread(&mut dice, folders), spread(&mut dice, folders));
        // What moves from one GitSync to another is handed over in place: by identity, and never deleted.
        sim.goes_to(here.clone());
        let before = sim.ids();
        sim.goes_to(there);
        let uids: BTreeSet<_> = before.values().map(|(uid, _)| uid).collect();
        assert!(sim.ids().values().all(|(uid, _)| uids.contains(uid)), "something was made anew");
        sim.goes_to(here);
        assert_eq!(sim.ids(), before);
    });
}

#[test]
fn g8_a_commit_that_only_moves_definitions_writes_nothing() {
    each(60, |sim, mut dice| {
        let folders = &FOLDERS[..sim.syncs.len()];
        let tree = spread(&mut dice, folders);
        let mut moved = Tree::default();
        for (path, file) in &tree.files {
            for (id, content) in &file.objects {
                let folder = &path[..2];
                moved.put(&format!("{folder}g{}.yaml", dice.roll(3)), id.clone(), *content);
            }
        }
        sim.goes_to(tree);
        let written = sim.written();
        sim.goes_to(moved);
        assert_eq!(sim.written(), written);
        // Not even after a restart, when nothing of it is remembered.
        sim.crash();
        sim.rest();
        assert_eq!(sim.written(), written);
    });
}

#[test]
fn g14_an_object_that_is_left_alone_is_left_alone_whatever_else_happens() {
    each(60, |sim, mut dice| {
        let folders = &FOLDERS[..sim.syncs.len()];
        sim.goes_to(spread(&mut dice, folders));
        let kept = Name::Object(id(NAMES[dice.roll(NAMES.len())]));
        sim.annotate(&kept, keys::RECONCILE, Some(keys::DISABLED));
        let version = |sim: &Sim| {
            sim.server.get(&kept).map(|live| text(live, "/metadata/resourceVersion").to_owned())
        };
        let before = version(sim);
        for _ in 0..20 {
            // Whatever happens in Git, and to the operator; nobody touches the cluster by hand.
            match dice.roll(4) {
                0 | 1 => sim.in_git(),
                2 => sim.fault(),
                _ => {}
            }
            sim.run(60);
            assert_eq!(version(sim), before);
        }
    });
}

#[test]
fn g12_the_same_seed_gives_the_same_scenario() {
    let played = |seed: u64| {
        let of = |sim: Sim| (sim.log.unwrap_or_default(), sim.server.version, sim.counts);
        quietly(|| scenario(seed, &[], true)).map(of).ok()
    };
    for seed in 1..40 {
        let (one, two) = (played(seed), played(seed));
        assert!(one == two, "scenario {seed} goes on differently each time");
    }
}
