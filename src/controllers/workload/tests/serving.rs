use super::*;
use crate::cluster::readiness::{Health, Observed};
use crate::controllers::children::NamesTaken;
use crate::controllers::inputs::decide::Decision;
use crate::controllers::inputs::references::{Reference, References, Source};
use crate::controllers::inputs::report::{Followed, WatchState, WatchStates};
use crate::controllers::workload::outcome::{Outcome, WriteFailure};
use convoke_core::cluster::account::OperatorAccount;

fn judged(serving: &Serving, applied: &Applied) -> (Phase, String, String) {
    let mut list = Vec::new();
    let (phase, message) = judge(&mut list, serving, applied, 3, Timestamp::UNIX_EPOCH);
    let shown: Vec<_> =
        list.iter().map(|c| format!("{}={}({})", c.type_, c.status, c.reason)).collect();
    (phase, message, shown.join(" "))
}

fn rolling() -> Observed {
    Observed { wanted: 1, replicas: 2, ready: 1, updated: 0, ..Observed::default() }
}

#[test]
fn m4_old_pods_serve_while_new_ones_come() {
    let applied = Applied { observed: Some(rolling()), ..Applied::for_tests() };
    let conditions = "Ready=False(RollingOut) Available=True(MinimumReplicasAvailable) Progressing=True(RollingOut)";
    let expected = (Phase::Pending, "0 of 1 replicas updated".to_owned(), conditions.to_owned());
    assert_eq!(judged(&Serving::default(), &applied), expected);
}

#[test]
fn a_write_that_may_work_later_is_no_lasting_failure_and_hides_no_pods() {
    for (lasting, phase) in [(true, Phase::Failed), (false, Phase::Pending)] {
        let outcome = Outcome::Failed(WriteFailure { message: "no answer".into(), lasting });
        let applied = Applied { outcome, observed: Some(rolling()), ..Applied::for_tests() };
        let (judged_phase, message, conditions) = judged(&Serving::default(), &applied);
        assert_eq!((judged_phase, message.as_str()), (phase, "no answer"));
        assert!(conditions.contains("Available=True"), "{conditions}");
    }
}

#[test]
fn m3_t6_what_runs_elsewhere_has_no_conditions_about_pods() {
    let serving = Serving { place: Place::Elsewhere, ..Serving::default() };
    let (phase, _, conditions) = judged(&serving, &Applied::for_tests());
    assert_eq!((phase, conditions.as_str()), (Phase::Ready, "Ready=True(External)"));
}

#[test]
fn a11_a_name_that_is_taken_is_a_conflict_only_while_it_is() {
    let mut list = Vec::new();
    let conflicts = vec!["Service x".into()];
    let outcome = Outcome::NamesTaken(NamesTaken { conflicts, ..NamesTaken::default() });
    let applied = Applied { outcome, ..Applied::for_tests() };
    let (serving, now) = (Serving::default(), Timestamp::UNIX_EPOCH);
    assert_eq!(judge(&mut list, &serving, &applied, 1, now).0, Phase::Failed);
    assert!(conditions::is_true(&list, "Conflict"));
    let done = Observed { wanted: 1, updated: 1, health: Health::Available, ..rolling() };
    let applied = Applied { observed: Some(done), ..Applied::for_tests() };
    assert_eq!(judge(&mut list, &serving, &applied, 1, now).0, Phase::Ready);
    assert!(list.iter().all(|c| c.type_ != "Conflict"));
}

#[test]
fn a11_what_a_namesake_left_is_no_conflict() {
    let leftovers = vec!["Service x".into()];
    let outcome = Outcome::NamesTaken(NamesTaken { leftovers, ..NamesTaken::default() });
    let applied = Applied { outcome, ..Applied::for_tests() };
    let (phase, message, conditions) = judged(&Serving::default(), &applied);
    assert_eq!((phase, message.as_str()), (Phase::Pending, "Service x"));
    assert!(conditions.contains("Ready=False(Replacing)"), "{conditions}");
    assert!(!conditions.contains("Conflict"), "{conditions}");
}

#[test]
fn a13_what_is_missing_holds_first_pods() {
    let secret = Reference { source: Source::Secret, name: "keys".into() };
    let decision = Decision { missing: vec![secret], ..Decision::default() };
    let watching = &WatchState::Watching;
    let watches = WatchStates { config_maps: watching, secrets: watching };
    let followed = Followed::of(
        &References::default(),
        &decision,
        watches,
        "team",
        &OperatorAccount::new("ops"),
    );
    let applied = Applied { inputs: followed.holding(), ..Applied::for_tests() };
    let (phase, message, conditions) = judged(&Serving::default(), &applied);
    assert_eq!(phase, Phase::Waiting);
    assert!(message.starts_with("Secret keys: missing"), "{message}");
    assert!(conditions.contains("Ready=False(WaitingForInputs)"), "{conditions}");
    assert!(conditions.contains("InputsFollowed=False(Missing)"), "{conditions}");
}

#[test]
fn a10_what_waits_for_a_build_is_not_ready_though_pods_of_before_run() {
    let serving =
        Serving { waiting_for_build: Some("b".into()), is_held: true, ..Serving::default() };
    let done = Observed { wanted: 1, updated: 1, health: Health::Available, ..rolling() };
    let applied = Applied { observed: Some(done), is_held: true, ..Applied::for_tests() };
    let (phase, message, conditions) = judged(&serving, &applied);
    assert_eq!(phase, Phase::Waiting);
    assert!(message.starts_with("Waiting for AgentBuild b, which has no image"), "{message}");
    let expected = "Ready=False(WaitingForBuild) Available=True(MinimumReplicasAvailable) Progressing=False(WaitingForBuild)";
    assert_eq!(conditions, expected);
    let text = "there is no AgentBuild b in this namespace";
    let missing = Serving { missing_build: Some(text.into()), ..serving.clone() };
    let (_, message, _) = judged(&missing, &applied);
    assert_eq!(message, format!("Waiting: {text}; the pods of the earlier spec stay"));
    let lost = Serving { is_held: false, ..serving };
    let applied = Applied { is_held: false, ..applied };
    assert_eq!(judged(&lost, &applied).0, Phase::Ready, "the same build has lost its image");
}
