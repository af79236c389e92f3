//! What an agent says of itself.

use std::sync::Arc;

use convoke_core::cluster::account::OperatorAccount;
use serde_json::{Value, json};

use super::*;
use crate::api::agent::CardStatus;
use crate::cluster::readiness::{Health, Observed};
use crate::controllers::children::NamesTaken;
use crate::controllers::discovery::card::CardRead;
use crate::controllers::discovery::failure::Failure;
use crate::controllers::discovery::{Found, Told};
use crate::controllers::inputs::decide::Decision;
use crate::controllers::inputs::references::{Reference, References, Source};
use crate::controllers::inputs::report::{Followed, WatchState, WatchStates};
use crate::controllers::workload::outcome::{Outcome, WriteFailure};
use crate::controllers::workload::validate::{Invalid, SpecProblem};

fn agent(spec: Value) -> Agent {
    let object = json!({"apiVersion": "convoke.dev/v1alpha1", "kind": "Agent", "spec": spec,
        "metadata": {"name": "a", "namespace": "team", "uid": "u1", "generation": 4}});
    serde_json::from_value(object).expect("agent")
}

fn minimal() -> Agent {
    agent(json!({"modelAPI": {"name": "m"}}))
}

fn resolved() -> Resolved {
    Resolved { model: Some("gpt".into()), image: Some("agent:1".into()), ..Resolved::default() }
}

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(seconds).expect("time")
}

fn of(agent: &Agent, resolved: &Resolved, applied: &Applied) -> AgentStatus {
    status(agent, resolved, applied, &Defaults::for_tests(), at(10))
}

/// Nothing is known of a Deployment.
fn nothing() -> Applied {
    Applied::for_tests()
}

fn available() -> Applied {
    let observed = Observed {
        wanted: 1,
        replicas: 1,
        ready: 1,
        updated: 1,
        unavailable: 0,
        health: Health::Available,
        trouble: None,
    };
    Applied { observed: Some(observed), ..nothing() }
}

fn shown<'a>(status: &'a AgentStatus, type_: &str) -> Option<(&'a str, &'a str)> {
    let condition = status.conditions.iter().find(|c| c.type_ == type_)?;
    Some((condition.status.as_str(), condition.reason.as_str()))
}

#[test]
fn a8_a_running_agent_is_ready() {
    let status = of(&minimal(), &resolved(), &available());
    assert_eq!((status.phase, status.observed_generation), (Some(Phase::Ready), Some(4)));
    assert_eq!(status.message.as_deref(), Some("1 of 1 replicas available"));
    assert_eq!(status.selector.as_deref(), Some("convoke.dev/kind=agent,convoke.dev/name=a"));
    let types: Vec<_> = status.conditions.iter().map(|c| c.type_.as_str()).collect();
    let expected = [
        "Ready",
        "Available",
        "DependenciesReady",
        "ImageResolved",
        "PeersResolved",
        "Progressing",
    ];
    assert_eq!(types, expected);
}

#[test]
fn a8_times_move_only_with_the_status_of_a_condition() {
    let mut agent = minimal();
    agent.status = Some(of(&agent, &resolved(), &available()));
    let later = status(&agent, &resolved(), &available(), &Defaults::for_tests(), at(99));
    assert_eq!(agent.status.as_ref(), Some(&later), "no write when nothing changed");
    let lost = Resolved { waiting_for: vec!["ModelAPI m (missing)".into()], ..resolved() };
    let later = status(&agent, &lost, &available(), &Defaults::for_tests(), at(99));
    let time = |type_: &str| {
        later.conditions.iter().find(|c| c.type_ == type_).map(|c| c.last_transition_time.0)
    };
    assert_eq!((time("Ready"), time("DependenciesReady")), (Some(at(10)), Some(at(99))));
}

#[test]
fn a8_the_endpoint_is_told_while_a_service_of_its_own_is_there() {
    let of = |spec: Value, has_service: bool| {
        of(&agent(spec), &resolved(), &Applied { has_service, ..available() }).endpoint
    };
    let open = json!({"modelAPI": {"name": "m"}});
    let shut = json!({"modelAPI": {"name": "m"}, "agentNetwork": {"expose": false}});
    let url = "http://agent-a.team.svc.cluster.local:8000";
    assert_eq!(of(open.clone(), true).as_deref(), Some(url));
    assert_eq!(of(open, false), None, "somebody else has the name");
    assert_eq!(of(shut, true), None, "it is about to go");
}

#[test]
fn a3_a_later_loss_is_told_and_the_agent_stays_ready() {
    let lost = Resolved { waiting_for: vec!["ModelAPI m (missing)".into()], ..resolved() };
    let status = of(&minimal(), &lost, &available());
    assert_eq!(status.phase, Some(Phase::Ready));
    assert_eq!(shown(&status, "DependenciesReady"), Some(("False", "NotReady")));
}

#[test]
fn a3_waiting_names_what_is_missing() {
    let waiting_for = vec!["ModelAPI m (not ready)".into(), "MCPServer s (missing)".into()];
    let status = of(&minimal(), &Resolved { waiting_for, ..resolved() }, &nothing());
    assert_eq!(status.phase, Some(Phase::Waiting));
    let expected = "Waiting for ModelAPI m (not ready), MCPServer s (missing)";
    assert_eq!(status.message.as_deref(), Some(expected));
}

#[test]
fn a8_an_invalid_spec_and_a_failed_write_hide_no_pods() {
    let problem = SpecProblem::ReservedEnv { field: "env", name: "AGENT_NAME".into() };
    let outcome = Outcome::Invalid(Invalid(vec![problem]));
    let invalid = Applied { outcome, ..available() };
    assert!(available().is_as_wanted() && !invalid.is_as_wanted());
    let status = of(&minimal(), &resolved(), &invalid);
    assert_eq!(status.phase, Some(Phase::Failed));
    assert_eq!(shown(&status, "Ready"), Some(("False", "InvalidSpec")));
    assert_eq!(shown(&status, "Available").map(|c| c.0), Some("True"));
    assert_eq!(status.ready_replicas, Some(1));
    for (lasting, phase) in [(true, Phase::Failed), (false, Phase::Pending)] {
        let outcome = Outcome::Failed(WriteFailure { message: "no".into(), lasting });
        let status = of(&minimal(), &resolved(), &Applied { outcome, ..available() });
        assert_eq!(
            (status.phase, shown(&status, "Available").map(|c| c.0)),
            (Some(phase), Some("True"))
        );
    }
}

#[test]
fn a11_what_a_namesake_left_is_no_conflict() {
    let text = "Service agent-a is left from an earlier Agent a: waiting until it is deleted";
    let taken = NamesTaken { leftovers: vec![text.into()], ..NamesTaken::default() };
    let applied = Applied { outcome: Outcome::NamesTaken(taken), ..nothing() };
    let status = of(&minimal(), &resolved(), &applied);
    assert_eq!((status.phase, status.message.as_deref()), (Some(Phase::Pending), Some(text)));
    assert_eq!(shown(&status, "Ready"), Some(("False", "Replacing")));
    assert_eq!(shown(&status, "Conflict"), None);
}

#[test]
fn a8_a_failed_rollout_says_why_and_that_old_pods_serve() {
    let mut applied = available();
    let observed = applied.observed.as_mut().expect("observed");
    observed.updated = 0;
    observed.health = Health::Failed("ProgressDeadlineExceeded".into(), "timed out".into());
    let status = of(&minimal(), &resolved(), &applied);
    assert_eq!(status.phase, Some(Phase::Failed));
    assert_eq!(status.message.as_deref(), Some("ProgressDeadlineExceeded: timed out"));
    assert_eq!(shown(&status, "Available").map(|c| c.0), Some("True"));
}

#[test]
fn a8_a_suspended_agent_is_stopped_even_before_it_ever_ran() {
    let agent = agent(json!({"modelAPI": {"name": "m"}, "suspend": true}));
    let waiting = Resolved { waiting_for: vec!["ModelAPI m (missing)".into()], ..resolved() };
    assert_eq!(of(&agent, &waiting, &nothing()).phase, Some(Phase::Stopped));
}

#[test]
fn m3_m4_a_model_that_is_not_reachable_is_told_while_it_is_so() {
    let why = ("KeyRefused".to_owned(), "its provider does not take the key".to_owned());
    let mut agent = minimal();
    agent.status =
        Some(of(&agent, &Resolved { unreachable: Some(why), ..resolved() }, &available()));
    let told = agent
        .status
        .as_ref()
        .and_then(|status| status.conditions.iter().find(|c| c.type_ == "ModelReachable"));
    let told = told.map(|c| (c.status.as_str(), c.reason.as_str(), c.message.as_str()));
    let text = "ModelAPI m: its provider does not take the key";
    assert_eq!(told, Some(("False", "KeyRefused", text)));
    let message = agent.status.as_ref().and_then(|status| status.message.clone());
    assert!(message.is_some_and(|message| message.ends_with(&format!("; {text}"))));
    let now = of(&agent, &resolved(), &available());
    assert!(now.message.is_some_and(|message| !message.contains(';')));
    assert_eq!(shown(&of(&agent, &resolved(), &available()), "ModelReachable"), None);
}

#[test]
fn m4_a_model_that_is_not_served_is_told_while_it_is_so() {
    let with = |models: &[&str], model: Option<&str>| {
        let models = models.iter().map(|m| (*m).to_owned()).collect();
        let resolved = Resolved { models, model: model.map(str::to_owned), ..resolved() };
        let mut agent = minimal();
        agent.status = Some(of(
            &agent,
            &Resolved { models: vec!["x".into()], ..self::resolved() },
            &available(),
        ));
        shown(&of(&agent, &resolved, &available()), "ModelServed").map(|c| c.0.to_owned())
    };
    for served in [&["gpt"][..], &["*"], &["a", "gpt"], &[]] {
        assert_eq!(with(served, Some("gpt")), None, "{served:?}");
    }
    assert_eq!(with(&["openai/*"], Some("openai/gpt")), None);
    assert_eq!(with(&["gpt"], None), None, "only the pod knows its model");
    for (served, model) in [(&["gpt-5"][..], "gpt"), (&["openai/*"], "other/gpt")] {
        assert_eq!(with(served, Some(model)).as_deref(), Some("False"), "{served:?}");
    }
}

#[test]
fn a13_what_may_not_be_read_holds_a_spec_back_and_is_not_called_ready() {
    let secret = Reference { source: Source::Secret, name: "keys".into() };
    let decision = Decision { unlabelled: vec![secret], ..Decision::default() };
    let watching = &WatchState::Watching;
    let watches = WatchStates { config_maps: watching, secrets: watching };
    let followed = || {
        Followed::of(
            &References::default(),
            &decision,
            watches,
            "team",
            &OperatorAccount::new("ops"),
        )
    };
    let held = Applied { inputs: followed().holding(), ..nothing() };
    let first = of(&minimal(), &resolved(), &held);
    assert_eq!(first.phase, Some(Phase::Waiting));
    assert_eq!(shown(&first, "Ready"), Some(("False", "WaitingForInputs")));
    assert_eq!(shown(&first, "InputsFollowed"), Some(("False", "NotAllowed")));
    assert!(first.message.is_some_and(|text| text.starts_with("Secret keys: not labelled")));
    let runs = Applied { inputs: followed().holding(), ..available() };
    assert!(!runs.is_as_wanted(), "its pods say nothing of this spec");
    let later = of(&minimal(), &resolved(), &runs);
    assert_eq!(later.phase, Some(Phase::Waiting), "what runs is of an earlier spec");
    assert_eq!(shown(&later, "Available").map(|c| c.0), Some("True"));
    assert_eq!(shown(&later, "InputsFollowed"), Some(("False", "NotAllowed")));
}

#[test]
fn a10_an_agent_whose_build_has_no_image_is_not_ready_though_pods_of_before_run() {
    let agent = agent(json!({"modelAPI": {"name": "m"}, "buildRef": {"name": "b"}}));
    let waits = Resolved { image: None, waiting_for_build: Some("b".into()), ..resolved() };
    let runs = Applied { is_held: true, image: Some("i:1".into()), ..available() };
    assert!(!runs.is_as_wanted(), "its pods say nothing of this spec");
    let status = of(&agent, &waits, &runs);
    assert_eq!(status.phase, Some(Phase::Waiting));
    assert_eq!(shown(&status, "Ready"), Some(("False", "WaitingForBuild")));
    assert_eq!(shown(&status, "Progressing"), Some(("False", "WaitingForBuild")));
    assert_eq!(shown(&status, "Available").map(|c| c.0), Some("True"));
    assert_eq!(status.image.as_deref(), Some("i:1"), "what runs");
    let text = "Waiting for AgentBuild b, which has no image; the pods of the earlier spec stay";
    assert_eq!(status.message.as_deref(), Some(text));
    let first = of(&agent, &waits, &nothing());
    assert_eq!(first.message.as_deref(), Some("Waiting for AgentBuild b"));
    let text = "there is no AgentBuild b in this namespace";
    let missing = Resolved { missing_build: Some(text.into()), ..waits.clone() };
    let status = of(&agent, &missing, &nothing());
    assert_eq!(status.message, Some(format!("Waiting: {text}")));
    assert_eq!(shown(&status, "ImageResolved"), Some(("False", "BuildMissing")));
    // What runs was made by this build: it goes on.
    let lost = Resolved { waiting_for_build: Some("b".into()), ..resolved() };
    let status = of(&agent, &lost, &available());
    assert_eq!(status.phase, Some(Phase::Ready));
    assert_eq!(shown(&status, "ImageResolved"), Some(("False", "WaitingForBuild")));
}

#[test]
fn a8_pods_that_remember_apart_are_told_only_while_there_are_several() {
    let told = |agent: &Agent| {
        let status = of(agent, &resolved(), &available());
        let found = status.conditions.iter().find(|c| c.type_ == "SessionsShared").cloned();
        (status, found.map(|c| (c.status, c.reason, c.message)))
    };
    let mut several = agent(json!({"modelAPI": {"name": "m"}, "replicas": 3}));
    let (status, found) = told(&several);
    let (state, reason, message) = found.expect("condition");
    assert_eq!((state.as_str(), reason.as_str()), ("False", "LocalMemory"));
    assert!(message.starts_with("each of 3 pods") && message.contains("Redis"), "{message}");
    assert_eq!(status.phase, Some(Phase::Ready), "they answer all the same");
    // It goes with its cause.
    several.status = Some(status);
    several.spec.replicas = Some(1);
    assert_eq!(told(&several).1, None);
    let redis = json!({"type": "Redis", "redis": {"urlFrom": {"secretKeyRef": {"name": "r", "key": "url"}}}});
    for memory in [json!({"enabled": false}), redis] {
        let spec = json!({"modelAPI": {"name": "m"}, "replicas": 3, "config": {"memory": memory}});
        assert_eq!(told(&agent(spec)).1, None);
    }
}

#[test]
fn t5_tools_that_are_not_there_are_told_only_while_they_are_missing() {
    let missing = vec![("s".to_owned(), vec!["drop".to_owned(), "find".to_owned()])];
    let lacks = Resolved { missing_tools: missing, ..resolved() };
    let mut agent = minimal();
    let status = of(&agent, &lacks, &available());
    assert_eq!(shown(&status, "ToolsAvailable"), Some(("False", "MissingTools")));
    let told = status.conditions.iter().find(|c| c.type_ == "ToolsAvailable").expect("told");
    assert_eq!(told.message, "MCPServer s does not have drop, find");
    assert_eq!(status.phase, Some(Phase::Ready), "it answers all the same");
    agent.status = Some(status);
    assert_eq!(shown(&of(&agent, &resolved(), &available()), "ToolsAvailable"), None);
    let not_listed = vec![("t".to_owned(), "NotMcp".to_owned())];
    let status = of(&agent, &Resolved { not_listed, ..lacks }, &available());
    assert_eq!(shown(&status, "ToolsAvailable"), Some(("False", "NotListed")));
    let told = status.conditions.iter().find(|c| c.type_ == "ToolsAvailable").expect("told");
    let text = "MCPServer t does not list its tools (NotMcp); MCPServer s does not have drop, find";
    assert_eq!(told.message, text);
}

#[test]
fn a9_what_only_the_image_can_keep_is_told_until_the_card_says_what_is_loaded() {
    let read = |found: CardRead| {
        let told = Told { found: Found::Card(found), revision: "4/7c9f".into(), generation: 4 };
        let image = Some("own:1".to_owned());
        Resolved { told: Some(Arc::new(told)), image, ..resolved() }
    };
    let silent = CardStatus { name: "a".into(), hash: "0a".into(), ..CardStatus::default() };
    let loaded = CardStatus { config_hash: Some("0b".into()), ..silent.clone() };
    let (silent, loaded) = (CardRead::Card(Box::new(silent)), CardRead::Card(Box::new(loaded)));
    let servers = json!([{"name": "s", "tools": ["x"], "requireApproval": ["x"]}]);
    let spec = |image: &str| {
        let config = json!({"reload": "Hot"});
        agent(
            json!({"modelAPI": {"name": "m"}, "image": image, "config": config, "mcpServers": servers}),
        )
    };
    let told = |agent: &Agent, resolved: &Resolved| {
        let status = of(agent, resolved, &available());
        let found = status.conditions.iter().find(|c| c.type_ == "ConfigurationKept").cloned();
        found.map(|c| (c.status, c.reason, c.message))
    };
    let own = spec("own:1");
    let failures =
        [Failure::Invalid("it is not JSON".into()), Failure::TooLarge(9), Failure::TooSlow(10)];
    let failures = failures.map(CardRead::Failed);
    for found in [silent.clone(), CardRead::NoCard].into_iter().chain(failures) {
        let (state, reason, message) = told(&own, &read(found)).expect("condition");
        assert_eq!((state.as_str(), reason.as_str()), ("Unknown", "NotTold"));
        let says = "tools, requireApproval, reload: Hot: only the image can do this, and nothing shows that own:1 does";
        assert!(message.starts_with(says), "{message}");
    }
    assert_eq!(told(&own, &read(loaded.clone())), None, "an image on Convoke's own");
    // After it had loaded one, it answers no more.
    let mut before = own.clone();
    before.status = Some(of(&own, &read(loaded), &available()));
    let later = told(&before, &read(CardRead::Failed(Failure::Invalid("it is not JSON".into()))));
    assert_eq!(later.expect("condition").1, "NotTold");
    assert_eq!(told(&own, &Resolved { told: None, ..read(silent.clone()) }), None, "not asked yet");
    let ours = Resolved { image: resolved().image, ..read(silent.clone()) };
    assert_eq!(told(&spec("agent:1"), &ours), None, "Convoke's own");
    assert_eq!(told(&minimal(), &read(silent)), None, "nothing is left to it");
}

#[test]
fn a9_what_the_card_says_is_told_and_stays_without_another_answer() {
    let card = CardStatus { name: "a".into(), hash: "0a".into(), ..CardStatus::default() };
    let found = Found::Card(CardRead::Card(Box::new(card.clone())));
    let told = Told { found, revision: "4/7c9f".into(), generation: 4 };
    let says = Resolved { told: Some(Arc::new(told)), ..resolved() };
    let mut agent = minimal();
    let status = of(&agent, &says, &available());
    assert_eq!(
        (status.card.as_ref(), shown(&status, "CardRead")),
        (Some(&card), Some(("True", "Read")))
    );
    agent.status = Some(status.clone());
    assert_eq!(of(&agent, &resolved(), &available()), status, "nothing is written");
}

#[test]
fn a9_without_a_ready_pod_nobody_confirms_the_card_that_is_shown() {
    let card = CardStatus { name: "a".into(), hash: "0a".into(), ..CardStatus::default() };
    let found = Found::Card(CardRead::Card(Box::new(card.clone())));
    let told = Arc::new(Told { found, revision: "4/7c9f".into(), generation: 4 });
    let says = Resolved { told: Some(told), ..resolved() };
    let unknown = Some(("Unknown", "NoReadyPod"));
    assert_eq!(shown(&of(&minimal(), &says, &nothing()), "CardRead"), None, "nothing was read yet");

    let mut agent = minimal();
    agent.status = Some(of(&agent, &says, &available()));
    let mut none_ready = available();
    none_ready.observed.as_mut().expect("observed").ready = 0;
    for applied in [&nothing(), &none_ready] {
        let down = of(&agent, &resolved(), applied);
        assert_eq!((shown(&down, "CardRead"), down.card.as_ref()), (unknown, Some(&card)));
        // What was said before its pod went confirms nothing either.
        assert_eq!(of(&agent, &says, applied), down);
    }
    agent.status = Some(of(&agent, &resolved(), &nothing()));
    assert_eq!(shown(&of(&agent, &says, &available()), "CardRead"), Some(("True", "Read")));
}
