use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::json;

use super::super::again;
use super::super::decide::{Asked, Candidate, Trigger, decide};
use super::super::failure::failure;
use super::super::key::build_key;
use super::super::lingering::Lingering;
use super::super::place::Place;
use super::*;
use crate::runtime::worker::Next;
use convoke_core::sync::commit::source_at::SourceAt;

#[path = "status_commands.rs"]
mod commands;
#[path = "status_provenance.rs"]
mod provenance;
#[path = "status_queue.rs"]
mod queue;
#[path = "renewed.rs"]
mod renewed;
#[path = "superseded.rs"]
mod superseded;
#[path = "status_without_source.rs"]
mod without_source;

const NAME: &str = "reviewer";
const UID: &str = "uid";
const REPOSITORY: &str = "registry:5000/team/reviewer";

fn key(tree: &str) -> BuildKey {
    let spec = serde_json::from_value(
        json!({"source": {"gitSync": {}}, "output": {"image": "team/reviewer"}}),
    );
    let source = SourceAt {
        sync: "team".into(),
        url: "https://git.example.com/team.git".into(),
        commit: "c".repeat(40),
        subfolder_tree: Some(tree.into()),
        paths: BTreeMap::new(),
        dockerfile: None,
        base_images: BTreeMap::new(),
        applied: None,
    };
    build_key(&spec.expect("a spec"), &source, "registry:5000", "t", None).expect("a key")
}

fn run(key: &BuildKey, outcome: RunOutcome) -> Run {
    Run {
        name: format!("reviewer-{}-1", key.short()),
        owner_uid: Some(UID.into()),
        owner_name: Some(NAME.into()),
        key: Some(key.to_string()),
        commit: Some("c".repeat(40)),
        image: Some(REPOSITORY.into()),
        created: Some(at(0)),
        began: Some(at(0)),
        ..Run::sample(outcome)
    }
}

fn built() -> RunOutcome {
    RunOutcome::Built { digest: format!("sha256:{}", "a".repeat(64)) }
}

fn failed() -> RunOutcome {
    RunOutcome::Failed { reason: "BuildFailed".into(), message: "exit 30".into() }
}

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).expect("a time")
}

fn meta() -> ObjectMeta {
    ObjectMeta { generation: Some(3), ..ObjectMeta::default() }
}

/// Decides about a key of this build.
fn decided<'a>(
    old: &'a AgentBuildStatus,
    key: &'a BuildKey,
    run: Option<&'a Run>,
    on_commit: bool,
    builder: Builder,
) -> Decision<'a> {
    let trigger = if on_commit { Trigger::OnCommit } else { Trigger::Off };
    let failure = run.and_then(|run| failure(run, None)).map(|why| &*Box::leak(Box::new(why)));
    let candidate = Candidate {
        name: NAME,
        uid: UID,
        place: Box::leak(Box::new(Place::new(
            "team",
            crate::controllers::agent_build::needs::Level::Baseline,
            None,
        ))),
        key,
        runs: Vec::from_iter(run).leak(),
        failure,
        renewed: false,
        trigger,
        retry_limit: 2,
        asked: Asked::default(),
        builder,
        now: at(0),
    };
    decide(old, &candidate)
}

/// Nothing waits to be attested.
fn unattested() -> &'static Unattested {
    Box::leak(Box::default())
}

/// What was decided about a key.
fn about<'a>(
    key: &'a BuildKey,
    decision: Decision<'a>,
    failure: Option<&'a BuildFailure>,
) -> Finding<'a> {
    Finding::Key(KeyFinding {
        steps: &[],
        held_up: None,
        unattested: unattested(),
        key,
        home: "team",
        name: NAME,
        parameters: Some("p"),
        repository: REPOSITORY,
        decision,
        failure,
        rebuild: None,
        limits: Limits { total: 10, namespace: 4 },
    })
}

fn next(
    old: &AgentBuildStatus,
    key: &BuildKey,
    live: Option<&Run>,
    builder: Builder,
    now: i64,
) -> AgentBuildStatus {
    let decision = decided(old, key, live, true, builder);
    let failure = live.and_then(|run| failure(run, None));
    status(old, &meta(), &about(key, decision, failure.as_ref()), builder, at(now))
}

fn condition<'a>(status: &'a AgentBuildStatus, type_: &str) -> Option<(&'a str, &'a str)> {
    let found = status.conditions.iter().find(|condition| condition.type_ == type_)?;
    Some((&found.status, &found.reason))
}

#[test]
fn b1_a_new_key_creates_and_a_known_one_never_again() {
    let (one, two) = (key("1"), key("2"));
    let empty = AgentBuildStatus::default();
    assert_eq!(decided(&empty, &one, None, true, Builder::Available), Decision::Enqueue(1));
    let run_of_one = run(&one, built());
    assert_eq!(
        decided(&empty, &one, Some(&run_of_one), true, Builder::Available),
        Decision::Show(&run_of_one)
    );
    let done = next(&empty, &one, Some(&run_of_one), Builder::Available, 1);
    assert_eq!(
        decided(&done, &one, None, true, Builder::Available),
        Decision::Keep,
        "its run was cleaned up"
    );
    assert_eq!(decided(&done, &two, None, true, Builder::Available), Decision::Enqueue(1));
    let building = next(&done, &two, Some(&run(&two, RunOutcome::Running)), Builder::Available, 2);
    assert_eq!(
        decided(&building, &one, None, true, Builder::Available),
        Decision::Keep,
        "a revert"
    );
    assert_eq!(
        decided(&building, &two, None, true, Builder::Available),
        Decision::Enqueue(2),
        "its run was deleted"
    );
}

#[test]
fn b7_a_failed_key_is_not_tried_again_until_it_changes() {
    let one = key("1");
    let broken =
        next(&AgentBuildStatus::default(), &one, Some(&run(&one, failed())), Builder::Available, 1);
    assert_eq!(decided(&broken, &one, None, true, Builder::Available), Decision::Keep);
    assert_eq!(decided(&broken, &key("2"), None, true, Builder::Available), Decision::Enqueue(1));
    let kept = next(&broken, &one, None, Builder::Available, 9);
    assert_eq!(kept, broken, "settled: nothing to write");
    assert_eq!(condition(&kept, "Ready"), Some(("False", "BuildFailed")));
    assert_eq!(condition(&kept, "Stalled"), Some(("True", "BuildFailed")));
}

#[test]
fn b1_a_problem_is_no_failed_build() {
    let one = key("1");
    let broken =
        next(&AgentBuildStatus::default(), &one, Some(&run(&one, failed())), Builder::Available, 1);
    let found = Finding::Broken(BuildProblem {
        reason: "SubfolderMissing",
        message: "gone".into(),
        waiting: false,
    });
    let missing = status(&broken, &meta(), &found, Builder::Available, at(2));
    assert_eq!((missing.phase, &missing.build_key), (Some(BuildPhase::Failed), &None));
    assert_eq!(decided(&missing, &one, None, true, Builder::Available), Decision::Enqueue(1));
}

#[test]
fn b6_the_last_good_image_stays_while_a_newer_key_builds_or_fails() {
    let (one, two) = (key("1"), key("2"));
    let done =
        next(&AgentBuildStatus::default(), &one, Some(&run(&one, built())), Builder::Available, 1);
    let image = format!("{REPOSITORY}@sha256:{}", "a".repeat(64));
    assert_eq!(done.built_image.as_ref(), Some(&image));
    assert_eq!(done.base_digest, None);
    let (base_digest, sbom_digest) = (Some("sha256:b".into()), Some("sha256:s".into()));
    let based = Run { base_digest, sbom_digest, ..run(&two, built()) };
    let appended = next(&done, &two, Some(&based), Builder::Available, 2);
    assert_eq!(appended.base_digest.as_deref(), Some("sha256:b"));
    assert_eq!(appended.sbom_digest.as_deref(), Some("sha256:s"));
    // It belongs to the image, and goes with it.
    let again = next(&appended, &one, Some(&run(&one, built())), Builder::Available, 3);
    assert_eq!((again.base_digest, again.sbom_digest), (None, None));
    assert_eq!(
        (done.phase, condition(&done, "Ready")),
        (Some(BuildPhase::Succeeded), Some(("True", "Built")))
    );
    let building = next(&done, &two, Some(&run(&two, RunOutcome::Running)), Builder::Available, 2);
    assert_eq!(
        (building.phase, building.built_image.as_ref()),
        (Some(BuildPhase::Building), Some(&image))
    );
    assert_eq!(condition(&building, "Reconciling"), Some(("True", "Building")));
    let broken = next(&building, &two, Some(&run(&two, failed())), Builder::Available, 3);
    assert_eq!(
        (broken.phase, broken.built_image.as_ref()),
        (Some(BuildPhase::Failed), Some(&image))
    );
    assert_eq!(
        (broken.built_key.clone(), broken.build_key.clone()),
        (Some(one.to_string()), Some(two.to_string()))
    );
    assert_eq!(condition(&broken, "Reconciling"), None);
    let reverted = next(&broken, &one, None, Builder::Available, 4);
    assert_eq!(
        (reverted.phase, condition(&reverted, "Ready")),
        (Some(BuildPhase::Succeeded), Some(("True", "Built")))
    );
    assert_eq!((condition(&reverted, "Stalled"), &reverted.pipeline_run), (None, &None));
}

#[test]
fn b1_an_image_that_was_found_counts_as_built_and_as_found() {
    let (one, two) = (key("1"), key("2"));
    let image = format!("{REPOSITORY}@sha256:{}", "f".repeat(64));
    let found = Found { image: image.clone(), commit: "c".repeat(40) };
    let told = |old: &AgentBuildStatus, second| {
        status(
            old,
            &meta(),
            &about(&one, Decision::Found(&found), None),
            Builder::NotInstalled,
            at(second),
        )
    };
    let failed =
        next(&AgentBuildStatus::default(), &two, Some(&run(&two, failed())), Builder::Available, 1);
    for old in [AgentBuildStatus::default(), failed] {
        let new = told(&old, 5);
        assert_eq!(
            (new.phase, condition(&new, "Ready")),
            (Some(BuildPhase::Succeeded), Some(("True", "Built")))
        );
        assert_eq!(
            (&new.built_image, new.built_key.as_deref()),
            (&Some(image.clone()), Some(one.as_str()))
        );
        assert_eq!((new.build_key.as_deref(), &new.pipeline_run), (Some(one.as_str()), &None));
        assert_eq!(
            (condition(&new, "Stalled"), &new.last_built_commit),
            (None, &Some("c".repeat(40)))
        );
        assert!(new.message.as_deref().is_some_and(|said| said.starts_with("found ")), "{new:?}");
        // It stays so, also after a restart.
        assert_eq!(next(&new, &one, None, Builder::NotInstalled, 9), new);
        // Another key, and a revert: the record of what was found is as good as that of a build.
        let other = next(&new, &two, Some(&run(&two, built())), Builder::Available, 10);
        assert_eq!(
            decided(&other, &one, None, true, Builder::Available),
            Decision::Reuse(&other.history[0])
        );
        assert_eq!(
            next(&other, &one, None, Builder::Available, 11).built_image,
            Some(image.clone())
        );
    }
}

#[test]
fn b8_without_tekton_the_key_is_shown_and_it_heals() {
    let one = key("1");
    let waiting = next(&AgentBuildStatus::default(), &one, None, Builder::NotInstalled, 1);
    assert_eq!(
        (waiting.phase, waiting.build_key.as_deref()),
        (Some(BuildPhase::Pending), Some(one.as_str()))
    );
    assert_eq!(condition(&waiting, "BuilderAvailable"), Some(("False", "TektonNotInstalled")));
    assert_eq!(decided(&waiting, &one, None, true, Builder::Available), Decision::Enqueue(1));
    let done = next(&waiting, &one, Some(&run(&one, built())), Builder::Available, 2);
    let gone = next(&done, &one, None, Builder::NotInstalled, 3);
    assert_eq!(
        (gone.phase, condition(&gone, "Ready")),
        (Some(BuildPhase::Succeeded), Some(("True", "Built")))
    );
    assert_eq!(condition(&gone, "BuilderAvailable"), Some(("False", "TektonNotInstalled")));
}

#[test]
fn b8_a_silent_tekton_is_said_after_a_minute() {
    let one = key("1");
    let unseen = Run { started: false, ..run(&one, RunOutcome::Running) };
    let early = next(&AgentBuildStatus::default(), &one, Some(&unseen), Builder::Available, 59);
    assert_eq!(condition(&early, "BuilderAvailable"), Some(("True", "TektonInstalled")));
    let late = next(&early, &one, Some(&unseen), Builder::Available, 60);
    for type_ in ["BuilderAvailable", "Ready"] {
        assert_eq!(condition(&late, type_), Some(("False", "TektonNotResponding")));
    }
    assert_eq!(late.phase, Some(BuildPhase::Building));
    let stopping = Run { stopping: true, ..unseen };
    let stopping = next(&late, &one, Some(&stopping), Builder::Available, 61);
    let message = stopping.message.expect("a message");
    assert!(message.contains("which was cancelled: does its controller run?"), "{message}");
    // It counts the time of a run, too.
    let over = Run { deadline: Some(at(100)), ..run(&one, RunOutcome::Running) };
    let ready = |now| {
        let new = next(&late, &one, Some(&over), Builder::Available, now);
        condition(&new, "Ready").map(|(_, reason)| reason.to_owned())
    };
    assert_eq!(ready(159).as_deref(), Some("Building"));
    assert_eq!(ready(160).as_deref(), Some("TektonNotResponding"));
    let seen = next(&late, &one, Some(&run(&one, RunOutcome::Running)), Builder::Available, 61);
    assert_eq!(condition(&seen, "BuilderAvailable"), Some(("True", "TektonInstalled")));
}

#[test]
fn trigger_off_builds_nothing_and_says_so() {
    let one = key("1");
    let empty = AgentBuildStatus::default();
    let decision = decided(&empty, &one, None, false, Builder::Available);
    assert_eq!(decision, Decision::Wait(Wait::TriggerOff));
    let new = status(&empty, &meta(), &about(&one, decision, None), Builder::Available, at(1));
    assert_eq!(
        (new.phase, condition(&new, "Ready")),
        (Some(BuildPhase::Pending), Some(("False", "TriggerOff")))
    );
}

#[test]
fn b7_what_waits_for_a_pod_keeps_its_place_and_says_for_which() {
    let (one, tag, run) = (key("1"), "latest".into(), "reviewer-1".into());
    let (namespace, pod) = ("team".into(), "reviewer-1-pod".into());
    let pod = Lingering { run, namespace, pod, tag, is_late: false };
    let queued_at = Some(at(1).to_string());
    let old = AgentBuildStatus {
        build_key: Some(one.to_string()),
        queued_at: queued_at.clone(),
        ..AgentBuildStatus::default()
    };
    let waits = about(&one, Decision::Wait(Wait::Pod(&pod)), None);
    let new = status(&old, &meta(), &waits, Builder::Available, at(9));
    assert_eq!(condition(&new, "Ready"), Some(("False", "Queued")));
    assert_eq!((new.queued_at, new.message), (queued_at, Some(pod.message())));
}

#[test]
fn a_stranger_under_the_name_is_a_conflict() {
    let one = key("1");
    for stranger in [
        Run {
            owner_uid: Some("other".into()),
            owner_name: Some("other".into()),
            ..run(&one, built())
        },
        Run { owner_uid: Some("other".into()), key: None, ..run(&one, built()) },
        Run { owner_uid: None, ..run(&one, built()) },
        Run { key: Some(key("2").to_string()), ..run(&one, built()) },
    ] {
        let new = next(&AgentBuildStatus::default(), &one, Some(&stranger), Builder::Available, 1);
        assert_eq!(condition(&new, "Ready"), Some(("False", "Conflict")));
        assert_eq!(new.built_image, None);
    }
}

#[test]
fn b1_a_run_that_a_namesake_left_is_waited_for() {
    let one = key("1");
    let left = Run { owner_uid: Some("earlier".into()), ..run(&one, built()) };
    let empty = AgentBuildStatus::default();
    let waiting = next(&empty, &one, Some(&left), Builder::Available, 1);
    assert_eq!(
        (waiting.phase, condition(&waiting, "Ready")),
        (Some(BuildPhase::Pending), Some(("False", "Replacing")))
    );
    assert_eq!(condition(&waiting, "Stalled"), None, "it goes by itself");
    assert_eq!((&waiting.built_image, &waiting.pipeline_run), (&None, &None));
    let decide = |old, run, on_commit| decided(old, &one, run, on_commit, Builder::Available);
    assert_eq!(decide(&waiting, None, true), Decision::Enqueue(1), "its name is free");
    // It holds up nothing but a run.
    assert_eq!(decide(&empty, Some(&left), false), Decision::Wait(Wait::TriggerOff));
    let done = next(&empty, &one, Some(&run(&one, built())), Builder::Available, 1);
    assert_eq!(decide(&done, Some(&left), true), Decision::Keep);
}

#[test]
fn the_coordinate_comes_from_the_annotations() {
    let mut meta =
        ObjectMeta { namespace: Some("team".into()), name: Some("reviewer".into()), ..meta() };
    meta.annotations = Some(BTreeMap::from([
        (keys::OWNER.into(), "u/team/newsroom/AgentBuild/team/reviewer".into()),
        (keys::SOURCE.into(), "team/builds/reviewer.yaml:8".into()),
        (keys::COMMIT.into(), "abc".into()),
    ]));
    let new = status(
        &AgentBuildStatus::default(),
        &meta,
        &Finding::SourcePending,
        Builder::Available,
        at(2),
    );
    let want = Source {
        sync: "newsroom".into(),
        commit: "abc".into(),
        path: "team/builds/reviewer.yaml".into(),
        line: 8,
    };
    assert_eq!(new.source, Some(want));
    assert_eq!(new.message.as_deref(), Some("waiting for the newest commit of GitSync newsroom"));
    // That commit was read, and does not hold it.
    let new = status(&new, &meta, &Finding::NotInGit, Builder::Available, at(3));
    assert_eq!(condition(&new, "Ready"), Some(("False", "NotInGit")));
    let message = new.message.clone().expect("a message");
    assert!(message.starts_with("not in the newest commit of GitSync newsroom"), "{message}");
    // A copy has no coordinate: its mark names the original.
    meta.name = Some("copy".into());
    let new = status(&new, &meta, &Finding::SourcePending, Builder::Available, at(4));
    assert_eq!(new.source, None);
    assert!(new.message.is_some_and(|text| text.contains("only builds that come from Git")));
}

#[test]
fn b1_what_the_api_server_refuses_keeps_its_place_and_is_written_once() {
    let (one, empty) = (key("1"), AgentBuildStatus::default());
    let waiting = next(&empty, &one, None, Builder::Available, 1);
    let problem =
        BuildProblem { reason: "PipelineRunRefused", message: "no".into(), waiting: true };
    let found = Finding::Refused(&one, problem);
    let refused = status(&waiting, &meta(), &found, Builder::Available, at(2));
    assert_eq!(condition(&refused, "Ready"), Some(("False", "PipelineRunRefused")));
    assert_eq!((&refused.queued_at, &refused.build_key), (&waiting.queued_at, &waiting.build_key));
    let again = decided(&refused, &one, None, true, Builder::Available);
    assert_eq!(again, Decision::Create(1), "it is tried without a word in between");
    assert_eq!(status(&refused, &meta(), &found, Builder::Available, at(62)), refused);
    // The same for a stranger who has the name.
    let stranger = Run { owner_uid: None, ..run(&one, built()) };
    let taken = next(&waiting, &one, Some(&stranger), Builder::Available, 3);
    assert_eq!(condition(&taken, "Ready"), Some(("False", "Conflict")));
    assert_eq!(taken.queued_at, waiting.queued_at);
}

#[test]
fn b6_the_image_is_the_one_that_the_run_was_asked_for() {
    let one = key("1");
    let moved = Run { image: Some("registry:5000/team/earlier".into()), ..run(&one, built()) };
    let done = next(&AgentBuildStatus::default(), &one, Some(&moved), Builder::Available, 1);
    let image = done.built_image.expect("an image");
    assert!(image.starts_with("registry:5000/team/earlier@sha256:"), "{image}");
}
