#![allow(clippy::disallowed_methods)] // some time

use std::sync::Arc;
use std::time::Instant;

use kube::core::DeserializeGuard;
use serde_json::json;

use super::*;
use crate::api::{GitSync, Kind, ObjectId};
use crate::cluster::live::{Managed, Stores};
use crate::cluster::store::Store;
use crate::cluster::view;
use crate::order::Seq;
use crate::sync::apply::impersonation::Rules;
use crate::sync::io::drive::{io, start};
use crate::sync::io::effect::Effect;
use crate::sync::io::{Coroutine, Limit, Step};
use crate::sync::peers::hand_over::{Announced, Peers};
use crate::sync::plan::{Cause, Conflict, Held, Victim};
use crate::sync::reconcile::engine::Engine;

/// The GitSyncs `main` and `other`.
fn two(store: &Store<Managed<GitSync>>) {
    for name in ["main", "other"] {
        let object = json!({
            "apiVersion": "convoke.dev/v1alpha1", "kind": "GitSync",
            "metadata": {"name": name, "namespace": "team", "uid": name, "generation": 1,
                "creationTimestamp": "2026-01-01T00:00:00Z", "resourceVersion": "1"},
            "spec": {"url": "https://git.example"},
        });
        let object = serde_json::from_value(object).expect("a GitSync");
        let (key, entry) = view::entry::<Managed<GitSync>>(DeserializeGuard(Ok(object)));
        store.applied(key, entry);
    }
}

/// Who is asked about a plan with these held and released deletes beside the GitSync `other`, which has `told` this.
fn consulted(told: Option<bool>, made: &mut Plan, shown: Option<&str>) -> Vec<String> {
    let pending = shown.map(|digest| PendingPrune {
        digest: digest.to_owned(),
        // One that joins is shown at once where something needs an approval already.
        requires_approval: digest == "d2",
        input_key: "k".into(),
        ..PendingPrune::default()
    });
    let store = Store::<Managed<GitSync>>::new("GitSync");
    two(&store);
    let peers = Peers::default();
    if let Some(failed) = told {
        let polled = Seq::next();
        let told = Announced { uid: "other".into(), generation: 1, polled, loaded: None, failed };
        let _nobody = peers.announce(&Key::new("team", "other"), told);
    }
    let others = peers.view(&Key::new("team", "main"), Seq::default(), Instant::now(), &store);
    assert_eq!(others.unread().is_some(), told == Some(true));
    consult(&others, made, pending.as_ref(), "k")
}

fn victim(name: &str) -> Victim {
    Victim { id: ObjectId::new(Kind::Agent, name), uid: "u".into(), version: 1 }
}

fn holding() -> Plan {
    let (digest, reason, victims) = ("d1".into(), "too many".into(), vec![victim("a")]);
    Plan {
        held: Some(Held { digest, cause: Cause::Brake, reason, command: String::new(), victims }),
        ..Plan::default()
    }
}

#[test]
fn g12_what_is_held_and_shown_stays_shown_and_asks_nobody() {
    for told in [None, Some(true), Some(false)] {
        let mut made = holding();
        for shown in ["d1", "d2"] {
            assert_eq!(consulted(told, &mut made, Some(shown)), Vec::<String>::new());
            assert_eq!(made, holding());
        }
    }
    for shown in [Some("d0"), None] {
        let mut made = holding();
        assert_eq!(consulted(None, &mut made, shown), ["other"]);
        assert_eq!(made.held, None, "the other one may want some");
        for told in [true, false] {
            let mut made = holding();
            assert_eq!(consulted(Some(told), &mut made, shown), Vec::<String>::new());
            assert_eq!(made, holding());
        }
    }
}

#[test]
fn g22_what_else_is_undecided_is_asked_beside_what_is_held() {
    let id = ObjectId::new(Kind::Agent, "b");
    let conflict = |peer: Option<&str>| Conflict {
        id: id.clone(),
        owner: "somebody".into(),
        peer: peer.map(str::to_owned),
    };
    let released = Plan { prune: vec![victim("b")], ..holding() };
    let given = Plan { given: vec![(id.clone(), "other".into())], ..holding() };
    let contested = Plan { conflicts: vec![conflict(Some("other"))], ..holding() };
    for mut made in [released, given, contested] {
        assert_eq!(consulted(None, &mut made, Some("d1")), ["other"]);
        assert_eq!((made.held, made.conflicts), (holding().held, vec![]));
    }
    // What is nobody's of this namespace is a conflict whatever the others want.
    let mut made = Plan { conflicts: vec![conflict(None)], ..holding() };
    assert_eq!(consulted(None, &mut made, Some("d1")), Vec::<String>::new());
    assert_eq!(made.conflicts.len(), 1);
}

#[test]
fn g22_a_look_that_ends_before_somebody_waits_for_it_is_not_missed() {
    let rules = Rules {
        single_tenant: true,
        default_service_account: None,
        operator: crate::cluster::account::OperatorAccount::new("convoke-system"),
    };
    let engine = Engine::new("team", Stores::new(), rules, Arc::default(), Arc::default());
    two(&engine.stores.git_syncs);
    let (main, other) = (Key::new("team", "main"), Key::new("team", "other"));
    let tells = |failed| {
        let polled = Seq::next();
        let told = Announced { uid: "other".into(), generation: 1, polled, loaded: None, failed };
        engine.peers.announce_unreconciled(&other, told);
    };
    for meanwhile in [false, true] {
        tells(true);
        let (start, since) = (start(), Seq::default());
        let others = engine.peers.view(&main, since, start.instant, &engine.stores.git_syncs);
        assert_eq!(others.unreadable().count(), 1);
        if meanwhile {
            // It can be read again, at the same commit.
            tells(false);
        }
        let (io, made) = (io(start), holding());
        let work = async { engine.peers.ask_before(&io, &others, &[], &made) };
        let step = Coroutine::new(io.clone(), work).next(start, Limit::Free);
        let woken = matches!(step, Step::Do(Effect::Wake(name, _)) if name == "main");
        assert_eq!(woken, meanwhile);
    }
}
