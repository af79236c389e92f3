//! The outcome of a plan: what is counted and learned of each reply, and what keeps deletes from being started.

use std::sync::Arc;

use futures::future::FutureExt;

use super::*;
use crate::api::{Kind, keys};
use crate::sync::apply::resume::Resume;
use crate::sync::apply::writer::tests::{Server, failure, gone, id, object, same, with_writer};
use crate::sync::apply::{Writer, apply};
use crate::sync::commit::desired::{Desired, DesiredSet};
use crate::sync::plan::{Plan, Settled, Settling, Update};
use crate::sync::properties::definition;

/// What keeps a plan from going on.
#[derive(Clone, Copy, Default)]
struct Way {
    changed: bool,
    doubted: bool,
    late: bool,
    /// All or nothing.
    atomic: bool,
}

fn victims(names: &[&str]) -> Vec<Victim> {
    let victim = |name: &&str| Victim {
        id: ObjectId::new(Kind::ModelAPI, *name),
        uid: "u".into(),
        version: 7,
    };
    names.iter().map(victim).collect()
}

/// An update of the object, and these deletes.
fn update(drifted: bool, prune: &[&str]) -> Plan {
    let (uid, claim) = ("u".to_owned(), [None, None]);
    let one = Update { id: id(), uid, version: 7, adopted: false, claim, drifted };
    Plan { update: vec![one], prune: victims(prune), ..Plan::default() }
}

fn delete(names: &[&str]) -> Plan {
    Plan { prune: victims(names), ..Plan::default() }
}

/// The outcome of a plan over a store that has the object at version 7, and the settled objects after it.
fn carried(server: &Arc<Server>, plan: Plan, mut settled: Settled, way: Way) -> (Outcome, Settled) {
    let desired: DesiredSet = [(id(), Desired::new(definition(&id(), 2)))].into_iter().collect();
    with_writer(server, Some(object(7, 1, same)), &|| true, |writer| {
        async move {
            let (current, absent) = (move || !way.changed, move || !way.doubted);
            let deadline = if way.late { writer.io.now() } else { writer.deadline };
            let writer = Writer {
                is_current: &current,
                is_absence_proven: &absent,
                deadline,
                atomic: way.atomic,
                ..*writer
            };
            let mut resume = Resume::default();
            let outcome = apply(&writer, &desired, &plan, &mut settled, &mut resume).await;
            (outcome, settled)
        }
        .boxed()
    })
}

fn plain(server: &Arc<Server>, plan: Plan) -> Outcome {
    carried(server, plan, Settled::new(), Way::default()).0
}

#[test]
fn g11_a_write_that_changes_nothing_is_no_update_and_has_undone_nothing() {
    let changed = || object(8, 2, same);
    let server = Server::new(vec![(200, object(7, 1, same)), (200, changed())]);
    let outcome = plain(&server, update(true, &[]));
    assert_eq!(server.asked(), ["GET -/-", "PATCH u/7"], "first it is asked who it was");
    assert_eq!((outcome.updated, outcome.created, outcome.written), (1, 0, vec![id()]));
    assert_eq!(outcome.drifts.len(), 1);

    let server = Server::new(vec![(200, object(7, 1, same)), (200, object(7, 2, same))]);
    let outcome = plain(&server, update(true, &[]));
    assert_eq!((outcome.updated, outcome.written, outcome.drifts.len()), (0, vec![id()], 0));

    let server = Server::new(vec![(200, changed())]);
    let outcome = plain(&server, update(false, &[]));
    assert_eq!((outcome.updated, outcome.drifts.len()), (1, 0), "Git has changed it");

    let server = Server::new(vec![(200, changed())]);
    let outcome = plain(&server, Plan { create: vec![id()], ..Plan::default() });
    assert_eq!((outcome.created, outcome.updated, outcome.written), (1, 0, vec![id()]));
}

#[test]
fn g14_what_the_server_makes_of_an_object_is_learned_until_it_is_as_git_says() {
    // Neither the apply nor the replacement of the spec brings it there.
    let server = Server::new(vec![(200, object(8, 1, same)), (200, object(9, 1, same))]);
    let (outcome, settled) = carried(&server, update(false, &[]), Settled::new(), Way::default());
    assert_eq!(server.asked(), ["PATCH u/7", "PATCH -/8"]);
    assert_eq!((outcome.updated, outcome.written), (1, vec![id()]));
    let (want, live) = (Desired::new(definition(&id(), 2)), Desired::new(definition(&id(), 1)));
    let known = Settling { applied: want.applied, spec_hash: Some(live.spec_hash), version: 9 };
    assert_eq!(settled.get(&id()), Some(&known));

    let server = Server::new(vec![(200, object(10, 2, same))]);
    let (_, settled) = carried(&server, update(false, &[]), settled, Way::default());
    assert_eq!(settled, Settled::new());
}

#[test]
fn g12_deletes_are_counted_by_what_came_of_each() {
    let server = Server::new(vec![gone(), gone()]);
    let outcome = plain(&server, delete(&["a", "b"]));
    assert_eq!((outcome.pruned, outcome.skipped, outcome.unstarted), (2, 0, 0));
    assert!(!outcome.stopped && outcome.undeleted.is_empty());

    let other = |meta: &mut serde_json::Value| meta["uid"] = serde_json::json!("v");
    let server = Server::new(vec![failure(409), (200, object(8, 1, other))]);
    let outcome = plain(&server, delete(&["a"]));
    assert_eq!((outcome.pruned, outcome.skipped, outcome.unstarted), (0, 1, 0));

    let server = Server::new(vec![failure(500), failure(500)]);
    let outcome = plain(&server, delete(&["a", "b"]));
    assert_eq!((outcome.pruned, outcome.undeleted.len()), (0, 2));

    let server = Server::new(Vec::new());
    let late = Way { late: true, ..Way::default() };
    let (outcome, _) = carried(&server, delete(&["a", "b"]), Settled::new(), late);
    assert_eq!((outcome.unstarted, outcome.stopped), (2, false));
    for way in [Way { changed: true, ..Way::default() }, Way { doubted: true, ..Way::default() }] {
        let (outcome, _) = carried(&server, delete(&["a"]), Settled::new(), way);
        assert_eq!((outcome.pruned, outcome.unstarted, outcome.stopped), (0, 0, true));
    }
    assert_eq!(server.asked(), Vec::<String>::new());
}

#[test]
fn g12_nothing_is_deleted_beside_a_write_that_is_not_done() {
    let done = (200, object(8, 2, same));
    let server = Server::new(vec![done.clone(), gone()]);
    assert_eq!(plain(&server, update(false, &["b"])).pruned, 1);

    let server = Server::new(vec![failure(500), gone()]);
    let outcome = plain(&server, update(false, &["b"]));
    assert_eq!((outcome.failures.len(), outcome.pruned), (1, 0), "it could not be written");

    let paused = |meta: &mut serde_json::Value| {
        meta["annotations"][keys::RECONCILE] = serde_json::json!(keys::DISABLED);
    };
    let server = Server::new(vec![failure(409), (200, object(8, 1, paused)), gone()]);
    let outcome = plain(&server, update(false, &["b"]));
    assert_eq!((outcome.skipped, outcome.pruned), (1, 0), "it is paused by now");

    let server = Server::new(vec![done.clone(), gone()]);
    let going = Plan { terminating: vec![id()], ..update(false, &["b"]) };
    assert_eq!(plain(&server, going).pruned, 0, "the one of that name has to go first");

    for way in [Way { changed: true, ..Way::default() }, Way { late: true, ..Way::default() }] {
        let server = Server::new(vec![done.clone(), gone()]);
        let (outcome, _) = carried(&server, update(false, &["b"]), Settled::new(), way);
        assert_eq!((outcome.stopped, outcome.unstarted), (way.changed, usize::from(way.late)));
        assert_eq!((outcome.pruned, server.asked()), (0, Vec::<String>::new()));
    }
}

#[test]
fn g10_a_rehearsal_that_is_not_finished_says_why() {
    for way in [Way { changed: true, ..Way::default() }, Way { late: true, ..Way::default() }] {
        let (way, server) = (Way { atomic: true, ..way }, Server::new(Vec::new()));
        let (outcome, _) = carried(&server, update(false, &["b"]), Settled::new(), way);
        assert_eq!((outcome.stopped, outcome.unstarted, outcome.rehearsed), (way.changed, 1, true));
    }
    // Without anything to ask there is nothing to stop.
    let way = Way { atomic: true, changed: true, ..Way::default() };
    let server = Server::new(Vec::new());
    let (outcome, _) = carried(&server, Plan::default(), Settled::new(), way);
    assert_eq!((outcome.stopped, outcome.unstarted, outcome.rehearsed), (false, 0, false));
}

#[test]
fn g14_only_a_create_that_meets_an_object_is_a_conflict() {
    let error = |code: u16| {
        let (_, said) = failure(code);
        CallError::Refused(Box::new(serde_json::from_value(said).expect("a status")))
    };
    let update = Mode::Update { uid: "u".into(), version: Some(7) };
    assert_eq!(classify(&error(409), &Mode::Create, Kind::Agent, None), Failure::Conflict);
    for (code, mode) in [(500, Mode::Create), (409, update.clone()), (500, update)] {
        let failure = classify(&error(code), &mode, Kind::Agent, None);
        assert!(matches!(failure, Failure::Transient(_)), "{code}: {failure:?}");
    }
}
