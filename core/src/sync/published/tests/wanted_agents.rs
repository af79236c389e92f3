use std::sync::Mutex;

use super::*;
use crate::api::ObjectId;
use crate::sync::properties::definition;
use crate::test_rng::TestRng;

#[test]
fn a3_wanted_agents_are_known_by_namespace_and_changes_are_told() {
    let (wanted, heard) = (WantedAgents::new(), Arc::new(Mutex::new(Vec::new())));
    let sink = heard.clone();
    wanted.notify(move |key| sink.lock().expect("lock").push(key.name.clone()));
    let told = || std::mem::take(&mut *heard.lock().expect("lock"));
    let sync = Key::new("team", "main");
    assert!(!wanted.knows(&sync));
    wanted.set(&sync, ["a", "b"].into_iter());
    assert!(wanted.knows(&sync) && wanted.has("team", "a") && !wanted.has("other", "a"));
    assert_eq!(told(), ["a", "b"]);
    wanted.set(&sync, ["b", "c"].into_iter());
    assert_eq!(told(), ["a", "c"]);
    wanted.forget(&sync);
    assert_eq!(told(), ["b", "c"]);
    assert!(!wanted.knows(&sync) && !wanted.has("team", "b"));
}

#[test]
fn a3_agents_that_are_told_by_what_differs_are_those_that_are_told_anew() {
    for seed in 0..300 {
        let (mut dice, wanted) = (TestRng::new(seed), WantedAgents::new());
        let heard = Arc::new(Mutex::new(BTreeSet::new()));
        let sink = heard.clone();
        wanted.notify(move |agent| {
            let _ = sink.lock().expect("lock").insert(agent.name.clone());
        });
        let syncs = ["main", "other"].map(|name| Key::new("team", name));
        let mut told: [Option<DesiredSet>; 2] = [None, None];
        for step in 0..30 {
            let at = dice.roll(2);
            let before = wanted_names(told[at].as_ref());
            if dice.one_in(8) {
                // The GitSync is deleted, or its operator restarts: nothing was published before.
                wanted.forget(&syncs[at]);
                told[at] = None;
            } else {
                let mut desired = told[at].clone().unwrap_or_default();
                for _ in 0..dice.roll(4) {
                    let kind = if dice.one_in(4) { Kind::ModelAPI } else { Kind::Agent };
                    let id = ObjectId::new(kind, dice.of(&["a", "b", "c", "d"]));
                    if dice.one_in(3) {
                        desired.remove(&id);
                    } else {
                        let mut one = (*definition(&id, dice.roll(3))).clone();
                        one.offers.exposed = kind == Kind::Agent && !dice.one_in(3);
                        desired.insert(id, Desired::new(Arc::new(one)));
                    }
                }
                publish_agents(&wanted, &syncs[at], told[at].as_ref(), &desired);
                told[at] = Some(desired);
            }
            let anew = WantedAgents::new();
            for (sync, desired) in syncs.iter().zip(&told) {
                assert_eq!(wanted.knows(sync), desired.is_some(), "seed {seed}, step {step}");
                if let Some(desired) = desired {
                    publish_agents(&anew, sync, None, desired);
                }
            }
            for name in ["a", "b", "c", "d"] {
                let (is, should) = (wanted.has("team", name), anew.has("team", name));
                assert_eq!(is, should, "seed {seed}, step {step}: {name}");
            }
            let changed =
                before.symmetric_difference(&wanted_names(told[at].as_ref())).cloned().collect();
            let heard = std::mem::take(&mut *heard.lock().expect("lock"));
            assert_eq!(heard, changed, "seed {seed}, step {step}");
        }
    }
}

/// The agents of a commit that can be called.
fn wanted_names(desired: Option<&DesiredSet>) -> BTreeSet<String> {
    let all = desired.into_iter().flat_map(DesiredSet::iter);
    let agents = all.filter(|(id, want)| id.kind == Kind::Agent && want.definition.offers.exposed);
    agents.map(|(id, _)| id.name.clone()).collect()
}
