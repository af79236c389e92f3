//! (pure) The status that ModelAPI and MCPServer share: pods that serve, or an address that somebody else serves.
#![deny(clippy::disallowed_types, clippy::disallowed_methods)]

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

use super::children::Failure;
use super::inputs::decide::Followed;
use super::verdict::{of_pods, progressing};
use crate::api::common::Phase;
use crate::cluster::conditions;
use crate::cluster::readiness::Observed;

/// What came of the writes.
#[derive(Debug, Default)]
pub struct Outcome {
    /// Names that somebody else has.
    pub conflicts: Vec<String>,
    /// Names that are still those of an earlier owner's children.
    pub leftovers: Vec<String>,
    /// Why a write failed.
    pub failure: Option<Failure>,
    /// The Deployment, if there is one.
    pub observed: Option<Observed>,
    /// Whether its Service is there, and its own.
    pub service: bool,
    /// Whether it runs no pods at all.
    pub elsewhere: bool,
    /// The build that its image waits for.
    pub waiting_for_build: Option<String>,
    /// What to tell of the ConfigMaps and Secrets that the pods read; `None` leaves it as it was.
    pub followed: Option<Followed>,
}

impl Outcome {
    /// Whether its address leads to it, and not to somebody else's Service or to nobody.
    #[must_use]
    pub const fn is_reached(&self) -> bool {
        self.elsewhere || self.service
    }
}

/// Sets the conditions; gives phase and one sentence.
pub fn judge(
    list: &mut Vec<Condition>,
    outcome: &Outcome,
    generation: i64,
    now: Timestamp,
) -> (Phase, String) {
    let (phase, reason, message) = verdict(outcome);
    let mut set = |type_: &str, good: bool, reason: &str, message: &str| {
        let state = if good { "True" } else { "False" };
        conditions::set(list, type_, state, reason, message, generation, now);
    };
    set("Ready", phase == Phase::Ready, reason, &message);
    if outcome.elsewhere {
        conditions::remove(list, "Available");
        conditions::remove(list, "Progressing");
    } else {
        let available = outcome.observed.as_ref().is_some_and(Observed::is_available);
        set(
            "Available",
            available,
            if available { "MinimumReplicasAvailable" } else { "ReplicasUnavailable" },
            "",
        );
        let (moving, reason) = progressing(outcome.observed.as_ref());
        set("Progressing", moving, reason, "");
    }
    if outcome.conflicts.is_empty() {
        conditions::remove(list, "Conflict");
    } else {
        conditions::set(
            list,
            "Conflict",
            "True",
            "NameTaken",
            &outcome.conflicts.join("; "),
            generation,
            now,
        );
    }
    if let Some(followed) = &outcome.followed {
        followed.tell(list, generation, now);
    }
    (phase, message)
}

fn verdict(outcome: &Outcome) -> (Phase, &'static str, String) {
    if !outcome.conflicts.is_empty() {
        return (Phase::Failed, "Conflict", outcome.conflicts.join("; "));
    }
    if !outcome.leftovers.is_empty() {
        return (Phase::Pending, "Replacing", outcome.leftovers.join("; "));
    }
    if let Some(Failure { message, lasting }) = &outcome.failure {
        let phase = if *lasting { Phase::Failed } else { Phase::Pending };
        return (phase, "ApplyFailed", message.clone());
    }
    if outcome.elsewhere {
        return (
            Phase::Ready,
            "External",
            "Served elsewhere; not checked whether it answers".into(),
        );
    }
    let Some(observed) = &outcome.observed else {
        if let Some(why) = outcome.followed.as_ref().and_then(Followed::held) {
            return (Phase::Waiting, "WaitingForInputs", why.to_owned());
        }
        let build = outcome.waiting_for_build.as_deref().unwrap_or_default();
        return (Phase::Waiting, "WaitingForBuild", format!("Waiting for AgentBuild {build}"));
    };
    of_pods(observed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::readiness::Health;
    use crate::controllers::inputs::decide::{Decision, State};
    use crate::controllers::inputs::references::{Reference, References, Source};

    fn judged(outcome: &Outcome) -> (Phase, String, String) {
        let mut list = Vec::new();
        let (phase, message) = judge(&mut list, outcome, 3, Timestamp::UNIX_EPOCH);
        let shown: Vec<_> =
            list.iter().map(|c| format!("{}={}({})", c.type_, c.status, c.reason)).collect();
        (phase, message, shown.join(" "))
    }

    fn rolling() -> Observed {
        Observed { wanted: 1, replicas: 2, ready: 1, updated: 0, ..Observed::default() }
    }

    #[test]
    fn m4_old_pods_serve_while_new_ones_come() {
        let outcome = Outcome { observed: Some(rolling()), ..Outcome::default() };
        let conditions = "Ready=False(RollingOut) Available=True(MinimumReplicasAvailable) Progressing=True(RollingOut)";
        let expected =
            (Phase::Pending, "0 of 1 replicas updated".to_owned(), conditions.to_owned());
        assert_eq!(judged(&outcome), expected);
    }

    #[test]
    fn a_write_that_may_work_later_is_no_lasting_failure_and_hides_no_pods() {
        for (lasting, phase) in [(true, Phase::Failed), (false, Phase::Pending)] {
            let failure = Some(Failure { message: "no answer".into(), lasting });
            let outcome = Outcome { failure, observed: Some(rolling()), ..Outcome::default() };
            let (judged_phase, message, conditions) = judged(&outcome);
            assert_eq!((judged_phase, message.as_str()), (phase, "no answer"));
            assert!(conditions.contains("Available=True"), "{conditions}");
        }
    }

    #[test]
    fn m3_t6_what_runs_elsewhere_has_no_conditions_about_pods() {
        let outcome = Outcome { elsewhere: true, ..Outcome::default() };
        let (phase, _, conditions) = judged(&outcome);
        assert_eq!((phase, conditions.as_str()), (Phase::Ready, "Ready=True(External)"));
    }

    #[test]
    fn a11_a_name_that_is_taken_is_a_conflict_only_while_it_is() {
        let mut list = Vec::new();
        let outcome = Outcome { conflicts: vec!["Service x".into()], ..Outcome::default() };
        assert_eq!(judge(&mut list, &outcome, 1, Timestamp::UNIX_EPOCH).0, Phase::Failed);
        assert!(conditions::is_true(&list, "Conflict"));
        let done = Observed { wanted: 1, updated: 1, health: Health::Available, ..rolling() };
        let outcome = Outcome { observed: Some(done), ..Outcome::default() };
        assert_eq!(judge(&mut list, &outcome, 1, Timestamp::UNIX_EPOCH).0, Phase::Ready);
        assert!(list.iter().all(|c| c.type_ != "Conflict"));
    }

    #[test]
    fn a13_what_is_missing_holds_first_pods() {
        let secret = Reference { source: Source::Secret, name: "keys".into() };
        let decision = Decision { missing: vec![secret], ..Decision::default() };
        let watching = &State::Watching;
        let followed =
            Followed::of(&References::default(), &decision, watching, watching, "team", "ops");
        let outcome = Outcome { followed: Some(followed.holding()), ..Outcome::default() };
        let (phase, message, conditions) = judged(&outcome);
        assert_eq!(phase, Phase::Waiting);
        assert!(message.starts_with("Secret keys: missing"), "{message}");
        assert!(conditions.contains("Ready=False(WaitingForInputs)"), "{conditions}");
        assert!(conditions.contains("InputsFollowed=False(Missing)"), "{conditions}");
    }

    #[test]
    fn a11_what_a_namesake_left_is_no_conflict() {
        let outcome = Outcome { leftovers: vec!["Service x".into()], ..Outcome::default() };
        let (phase, message, conditions) = judged(&outcome);
        assert_eq!((phase, message.as_str()), (Phase::Pending, "Service x"));
        assert!(conditions.contains("Ready=False(Replacing)"), "{conditions}");
        assert!(!conditions.contains("Conflict"), "{conditions}");
    }
}
