use super::*;
use crate::api::agent_build::{BuildRecord, BuildResult};
use crate::api::common::Condition;
use crate::controllers::agent_build::decide::Found;
use crate::controllers::agent_build::key::BuildKey;
use crate::controllers::agent_build::signing::Unattested;
use crate::controllers::agent_build::turns::Limits;

const REPOSITORY: &str = "registry:5000/team/reviewer";
const IMAGE: &str = "registry:5000/team/reviewer@sha256:aa";

fn key(digit: char) -> BuildKey {
    BuildKey::parse(&digit.to_string().repeat(64)).expect("a key")
}

fn run(name: &str, of: char, created: i64, outcome: RunOutcome) -> Run {
    Run {
        name: name.into(),
        key: Some(key(of).to_string()),
        created: Some(Timestamp::from_second(created).expect("a time")),
        image: Some(REPOSITORY.into()),
        tag: Some("latest".into()),
        ..Run::sample(outcome)
    }
}

fn built() -> RunOutcome {
    RunOutcome::Built { digest: "sha256:aa".into() }
}

/// What is wanted of the tag of the key 1, with its image in the status.
fn asks(
    decision: Decision<'_>,
    runs: &[&Run],
    change: fn(&mut AgentBuildStatus),
) -> Option<(Wanted, bool)> {
    asks_since(decision, runs, change, false)
}

/// The same; `is_changed` says whether the spec is another one than before.
fn asks_since(
    decision: Decision<'_>,
    runs: &[&Run],
    change: fn(&mut AgentBuildStatus),
    is_changed: bool,
) -> Option<(Wanted, bool)> {
    let (key, unattested) = (key('1'), Unattested::default());
    let about = KeyFinding {
        key: &key,
        home: "team",
        name: "reviewer",
        parameters: None,
        repository: REPOSITORY,
        decision,
        failure: None,
        steps: &[],
        held_up: None,
        unattested: &unattested,
        rebuild: None,
        limits: Limits { total: 10, namespace: 4 },
    };
    let mut new = AgentBuildStatus {
        built_key: Some(key.to_string()),
        built_image: Some(IMAGE.into()),
        ..AgentBuildStatus::default()
    };
    change(&mut new);
    wanted(&about, &new, ("uid", "latest"), runs, is_changed)
}

fn record() -> BuildRecord {
    BuildRecord {
        pipeline_run: None,
        key: key('1').to_string(),
        result: BuildResult::Succeeded,
        commit: None,
        tree: None,
        superseded_by: None,
        image: Some(IMAGE.into()),
        base_digest: None,
        sbom_digest: None,
        started_at: None,
        seconds: None,
    }
}

#[test]
fn b1_a_tag_is_fixed_without_the_commit_in_it() {
    assert_eq!(fixed("latest"), Some("latest"));
    for tag in ["{short}", "v1-{commit}", "{short}-x"] {
        assert_eq!(fixed(tag), None, "{tag}");
    }
}

#[test]
fn b1_an_image_that_was_not_built_last_gets_the_tag() {
    let (record, found) = (record(), Found { image: IMAGE.into(), commit: "c".into() });
    let newer = run("newer", '2', 20, built());
    let wanted = |after: Option<&str>, is_likely| {
        let (uid, tag, after) = ("uid".into(), "latest".into(), after.map(Into::into));
        Some((Wanted { uid, tag, image: IMAGE.into(), after }, is_likely))
    };
    for decision in [Decision::Reuse(&record), Decision::Found(&found)] {
        assert_eq!(asks(decision, &[], |_| {}), wanted(None, true));
        assert_eq!(asks(decision, &[&newer], |_| {}), wanted(Some("newer"), true));
    }
    // Its own run is there, and another one may have pushed the tag, also one that failed then. An older one may have got it by a revert.
    let (own, old) = (run("own", '1', 10, built()), run("old", '3', 5, built()));
    let failed = RunOutcome::Failed { reason: "Failed".into(), message: "no".into() };
    let late = run("late", '2', 30, failed);
    assert_eq!(asks(Decision::Show(&own), &[&own], |_| {}), None, "there was no other image");
    assert_eq!(asks(Decision::Show(&own), &[&own, &old], |_| {}), wanted(Some("old"), false));
    assert_eq!(
        asks(Decision::Show(&own), &[&own, &old, &late, &newer], |_| {}),
        wanted(Some("late"), true)
    );
    // Its own run is gone: what it has pushed is not known.
    assert_eq!(asks(Decision::Keep, &[], |_| {}), wanted(None, false));
    assert_eq!(asks(Decision::Keep, &[&old], |_| {}), wanted(Some("old"), false));
    // What was told is looked at until it is over.
    let told = |new: &mut AgentBuildStatus| {
        let observed = Observed { generation: 1, now: Timestamp::UNIX_EPOCH };
        observed.set(&mut new.conditions, STALE, "True", STALE, "why");
        let all: &[Condition] = &new.conditions;
        assert_eq!(all.len(), 1);
    };
    assert_eq!(asks(Decision::Keep, &[], told), wanted(None, true));
}

#[test]
fn b1_a_tag_is_left_alone_that_says_nothing_of_the_image() {
    let record = record();
    let reuse = Decision::Reuse(&record);
    // The image of the status is not that of the key.
    assert_eq!(asks(reuse, &[], |new| new.built_key = Some("other".into())), None);
    // The spec asks for another place by now.
    assert_eq!(asks(reuse, &[], |new| new.built_image = Some("other/x@sha256:aa".into())), None);
    assert_eq!(asks(reuse, &[], |new| new.built_image = None), None);
    // It is built.
    let going = run("own", '1', 10, RunOutcome::Running);
    let newer = run("newer", '2', 20, built());
    assert_eq!(asks(Decision::Show(&going), &[&going, &newer], |_| {}), None);
    assert_eq!(asks(Decision::Create(1), &[&newer], |_| {}), None);
    // Runs of another build and of another image push nothing that counts.
    let own = Run { tag: Some("latest".into()), ..run("own", '1', 10, built()) };
    let others = [
        Run { owner_uid: Some("other".into()), ..newer.clone() },
        Run { image: Some("registry:5000/team/other".into()), ..newer.clone() },
        Run { key: Some(key('1').to_string()), ..newer.clone() },
    ];
    let others: Vec<_> = others.iter().collect();
    assert_eq!(asks(Decision::Show(&own), &others, |_| {}), None);
}

#[tokio::test(start_paused = true)]
async fn b1_a_tag_is_asked_for_once_and_after_a_failure_again() {
    let (tags, build) = (FixedTags::default(), Key::new("team", "reviewer"));
    let record = record();
    let (one, _) = asks(Decision::Reuse(&record), &[], |_| {}).expect("wanted");
    assert!(tags.known(&build, &one).is_none());
    tags.note(&build, one.clone(), Done::Failed(Some("why".into()), Instant::now() + PAUSE));
    assert!(matches!(tags.known(&build, &one), Some(Done::Failed(Some(why), _)) if why == "why"));
    tokio::time::advance(PAUSE).await;
    assert!(tags.known(&build, &one).is_none());
    tags.note(&build, one.clone(), Done::Named);
    tokio::time::advance(PAUSE * 100).await;
    assert!(matches!(tags.known(&build, &one), Some(Done::Named)));
    let later = Wanted { after: Some("newer".into()), ..one.clone() };
    assert!(tags.known(&build, &later).is_none(), "a run has pushed since");
    let other = Wanted { image: "other".into(), ..one.clone() };
    let anew = Wanted { uid: "anew".into(), ..other.clone() };
    assert!(tags.has_other(&build, &other), "it had another image");
    assert!(!tags.has_other(&build, &one) && !tags.has_other(&build, &anew));
    tags.forget(&build);
    assert!(tags.known(&build, &one).is_none());
}

#[test]
fn b1_another_tag_gets_the_image_that_is_there() {
    let wanted =
        Wanted { uid: "uid".into(), tag: "latest".into(), image: IMAGE.into(), after: None };
    // Its run has pushed another one.
    let pushed = |tag: &str| Run { tag: Some(tag.into()), ..run("own", '1', 10, built()) };
    let (same, other) = (pushed("latest"), pushed("v1"));
    assert_eq!(asks(Decision::Show(&same), &[&same], |_| {}), None);
    assert_eq!(asks(Decision::Show(&other), &[&other], |_| {}), Some((wanted.clone(), false)));
    let changed = asks_since(Decision::Show(&other), &[&other], |_| {}, true);
    assert_eq!(changed, Some((wanted.clone(), true)));
    assert_eq!(asks_since(Decision::Keep, &[], |_| {}, true), Some((wanted.clone(), true)));
    // Between two builds with this tag it was another one, which a newer build has pushed.
    let between = Run { tag: Some("v1".into()), ..run("between", '2', 20, built()) };
    let after = Some("between".into());
    let asked = asks(Decision::Show(&same), &[&same, &between], |_| {});
    assert_eq!(asked, Some((Wanted { after, ..wanted }, false)));
}
