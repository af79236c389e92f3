//! Plans against a server that takes a given time for each answer.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::json;

use super::*;
use crate::api::{Kind, ObjectId};
use crate::cluster::call_error::CallError;
use crate::cluster::live::Stores;
use crate::cluster::write::Deleted;
use crate::sync::commit::desired::{Desired, SyncRef};
use crate::sync::io::Coroutine;
use crate::sync::io::drive::{drive, io, start};
use crate::sync::io::effect::{Call, Replied, Reply};
use crate::sync::plan::Victim;
use crate::sync::properties::definition;

const OBJECTS: usize = 600;

/// How long each write takes, in seconds, and how it ends.
#[derive(Clone, Copy)]
struct Server {
    seconds: u64,
    code: u16,
}

/// What the server was asked: `dry-run`, `patch` or `delete`, and the object's name.
type Asked = Vec<(&'static str, String)>;

impl Server {
    fn answer(self, call: Call, asked: &mut Asked) -> Replied {
        let (what, id, manifest) = match call {
            Call::Rehearse { id, manifest, .. } => ("dry-run", id, manifest),
            Call::Apply { id, manifest, .. } => ("patch", id, manifest),
            Call::Delete { id, .. } => ("delete", id, json!(null)),
            other => panic!("{other:?}"),
        };
        asked.push((what, id.name.clone()));
        if self.code != 200 {
            let said = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
                "code": self.code, "reason": "InternalError",
                "message": "failed calling webhook: context deadline exceeded"});
            return Err(CallError::Refused(serde_json::from_value(said).expect("a status")));
        }
        match what {
            "delete" => Ok(Reply::Deleted(Deleted::Gone)),
            "dry-run" => Ok(Reply::Done),
            _ => {
                let mut object = manifest;
                object["metadata"]["uid"] = json!(id.name);
                object["metadata"]["namespace"] = json!("team");
                object["metadata"]["resourceVersion"] = json!("7");
                Ok(Reply::Object(serde_json::from_value(object).expect("an object")))
            }
        }
    }
}

/// A commit that takes several plans; each creates the objects that are not created yet.
struct Story {
    wanted: Vec<ObjectId>,
    desired: DesiredSet,
    made: BTreeSet<String>,
    resume: Resume,
    atomic: bool,
}

impl Story {
    /// Half of the objects are models, half agents.
    fn new(atomic: bool) -> Self {
        let kind = |n: usize| if n < OBJECTS / 2 { Kind::ModelAPI } else { Kind::Agent };
        let wanted: Vec<_> =
            (0..OBJECTS).map(|n| ObjectId::new(kind(n), format!("o{n:03}"))).collect();
        let desired: BTreeMap<_, _> =
            wanted.iter().map(|id| (id.clone(), Desired::new(definition(id, 1)))).collect();
        let desired = desired.into_iter().collect();
        let (made, resume) = (BTreeSet::new(), Resume::default());
        Self { wanted, desired, made, resume, atomic }
    }

    /// One plan: what it came to, what it asked the server, and how many seconds it took.
    fn piece(&mut self, server: Server) -> (Outcome, Asked, u64) {
        let create = self.wanted.iter().filter(|id| !self.made.contains(&id.name)).cloned();
        let gone = ObjectId::new(Kind::MCPServer, "gone");
        let plan = Plan {
            create: create.collect(),
            prune: vec![Victim { id: gone, uid: "u".into(), version: 1 }],
            ..Plan::default()
        };
        let (stores, start, mut asked) = (Stores::new(), start(), Asked::new());
        let sync = SyncRef {
            uid: "s".into(),
            namespace: "team".into(),
            name: "main".into(),
            generation: 1,
        };
        let io = io(start);
        let writer = Writer {
            io: &io,
            account: None,
            stores: &stores,
            sync: &sync,
            commit: "c",
            atomic: self.atomic,
            is_current: &|| true,
            is_absence_proven: &|| true,
            is_handed_over: &|_, _| true,
            deadline: io.now() + MAX_APPLY_TIME,
        };
        let mut settled = Settled::new();
        let work = apply(&writer, &self.desired, &plan, &mut settled, &mut self.resume);
        let seconds = Duration::from_secs(server.seconds);
        let (outcome, took) = drive(Coroutine::new(io.clone(), work), start, |request| {
            (seconds, server.answer(request.call, &mut asked))
        });
        if server.code == 200 {
            let made = asked.iter().filter(|(what, _)| *what == "patch");
            self.made.extend(made.map(|(_, name)| name.clone()));
        }
        (outcome, asked, took.as_secs())
    }
}

fn names(asked: &[(&'static str, String)], what: &str) -> BTreeSet<String> {
    asked.iter().filter(|(how, _)| *how == what).map(|(_, name)| name.clone()).collect()
}

#[test]
fn g18_writes_that_fail_slowly_end_in_time_and_the_next_plan_goes_on_with_the_rest() {
    let mut story = Story::new(false);
    let mut tried: BTreeMap<String, usize> = BTreeMap::new();
    for piece in 0..6 {
        let (outcome, asked, seconds) = story.piece(Server { seconds: 10, code: 500 });
        assert!(seconds <= MAX_APPLY_TIME.as_secs() + 20, "{seconds} s");
        assert_eq!(outcome.failures.len() + outcome.unstarted, OBJECTS, "piece {piece}");
        assert!(outcome.unstarted >= OBJECTS / 3, "{} left", outcome.unstarted);
        assert!(names(&asked, "delete").is_empty() && outcome.pruned == 0, "nothing is deleted");
        // Whatever was left had been tried later than all that was tried now: models that fail keep no agent away.
        let now = names(&asked, "patch");
        let last = |id: &ObjectId| tried.get(&id.name).copied();
        let (begun, left): (Vec<_>, Vec<_>) =
            story.wanted.iter().partition(|id| now.contains(&id.name));
        assert!(begun.iter().map(|id| last(id)).max() <= left.iter().map(|id| last(id)).min());
        tried.extend(now.into_iter().map(|name| (name, piece)));
    }
    assert_eq!(tried.len(), OBJECTS);
    // It heals: all is written, what was deleted goes, and nothing of it is remembered.
    let (outcome, asked, _) = story.piece(Server { seconds: 0, code: 200 });
    assert_eq!((outcome.created, outcome.pruned, outcome.unstarted), (OBJECTS, 1, 0));
    assert_eq!(names(&asked, "delete"), BTreeSet::from(["gone".to_owned()]));
    let first: Vec<_> = Kind::ALL.into_iter().collect();
    assert!(
        story.resume.together(&ObjectId::new(first[0], "o000"), &ObjectId::new(first[0], "new"))
    );
}

#[test]
fn g18_a_plan_that_makes_progress_is_one_piece_for_a_minute_and_loses_nothing_after_that() {
    let mut story = Story::new(false);
    let (outcome, asked, seconds) = story.piece(Server { seconds: 2, code: 200 });
    assert_eq!((outcome.created, outcome.pruned, outcome.unstarted), (OBJECTS, 1, 0));
    // Seven times 48 of each kind, and a delete.
    assert_eq!(seconds, 30);
    assert_eq!(asked.last().map(|(what, _)| *what), Some("delete"), "deletes come last");

    let (mut story, mut all, mut pieces) = (Story::new(false), Vec::new(), Vec::new());
    loop {
        let (outcome, asked, seconds) = story.piece(Server { seconds: 10, code: 200 });
        assert!(seconds <= MAX_APPLY_TIME.as_secs() + 20 && outcome.failures.is_empty());
        all.extend(asked);
        pieces.push(outcome.created);
        if outcome.unstarted == 0 {
            assert_eq!(outcome.pruned, 1);
            break;
        }
        assert_eq!(
            outcome.created + outcome.unstarted,
            OBJECTS - pieces[..pieces.len() - 1].iter().sum::<usize>()
        );
        assert!(names(&all, "delete").is_empty(), "deletes wait for the last write");
    }
    assert_eq!(all.len(), OBJECTS + 1, "{pieces:?}: nothing is written twice");
    assert!((3..=4).contains(&pieces.len()), "{pieces:?}");
}

fn cut_short() -> Outcome {
    Outcome { unstarted: 1, ..Outcome::default() }
}

#[test]
fn g10_a_long_rehearsal_goes_on_where_it_ended_and_nothing_is_written_before_its_end() {
    let mut story = Story::new(true);
    let mut all = Vec::new();
    for _ in 0..2 {
        let (outcome, asked, _) = story.piece(Server { seconds: 10, code: 200 });
        assert!(outcome.rehearsed && outcome.unstarted > 0 && outcome.created == 0);
        assert!(names(&asked, "patch").is_empty() && names(&asked, "delete").is_empty());
        all.extend(asked);
    }
    let mut left = OBJECTS;
    while left > 0 {
        let (outcome, asked, _) = story.piece(Server { seconds: 5, code: 200 });
        assert!(outcome.created > 0, "it goes on");
        left = outcome.unstarted;
        all.extend(asked);
    }
    assert_eq!(all.iter().filter(|(what, _)| *what == "dry-run").count(), OBJECTS);
    assert_eq!(names(&all, "patch").len(), OBJECTS);

    // What the server would have accepted when somebody gave a plan up, or long ago, or for another commit, is asked again.
    let now = io(start()).now();
    let long_ago = now.checked_sub(Duration::from_secs(600)).expect("a moment");
    let given_up = |_: &mut Story| {};
    let earlier = |story: &mut Story| story.resume.end(&cut_short(), "c", long_ago);
    let other = |story: &mut Story| story.resume.end(&cut_short(), "d", now);
    for last in [&given_up as &dyn Fn(&mut Story), &earlier, &other] {
        let mut story = Story::new(true);
        for id in &story.wanted {
            story.resume.accept(id.clone(), story.desired[id].applied.clone());
        }
        last(&mut story);
        let (outcome, asked, _) = story.piece(Server { seconds: 0, code: 200 });
        assert_eq!((names(&asked, "dry-run").len(), outcome.created), (OBJECTS, OBJECTS));
    }

    // What would be refused keeps the rest from being asked for ever, and all from being written.
    let mut story = Story::new(true);
    let (outcome, asked, seconds) = story.piece(Server { seconds: 10, code: 500 });
    assert!(outcome.rehearsed && outcome.unstarted > 0 && seconds <= MAX_APPLY_TIME.as_secs() + 20);
    assert_eq!((outcome.failures.len(), names(&asked, "patch").len()), (asked.len(), 0));
}
