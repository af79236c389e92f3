//! (pure) The conditions `SecretsWatched`, `InputsFollowed` and `KeysWritten`: what people learn of the Secrets and ConfigMaps that
//! pods read.
#![deny(clippy::disallowed_types, clippy::disallowed_methods)]

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

use super::decide::Decision;
use super::references::{Reference, References, Source};
use crate::api::keys;
use crate::cluster::client::CallError;
use crate::cluster::conditions;
use convoke_core::cluster::account::OperatorAccount;

/// Objects that a message names. The others are only counted.
const MAX_NAMED_OBJECTS: usize = 8;
/// What becomes of a spec that is held back, and of its pods.
const STAYS: &str = "until then no other spec is rolled out, and pods of the one before go on";

/// The state of a watch of Secrets or ConfigMaps.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum WatchState {
    /// The first list is not complete yet.
    #[default]
    Starting,
    /// The first list failed for a reason that may pass.
    Failing,
    /// Every change is seen.
    Watching,
    /// The right to watch is missing.
    Forbidden,
    /// There is no key for digests, for this reason.
    NoKey(String),
}

/// The watches that show what the pods of one object read.
#[derive(Debug, Clone, Copy)]
pub struct WatchStates<'a> {
    /// The watch of ConfigMaps.
    pub config_maps: &'a WatchState,
    /// The watch of the Secrets of the namespace.
    pub secrets: &'a WatchState,
}

impl WatchState {
    const fn is_settled(&self) -> bool {
        !matches!(self, Self::Starting | Self::Failing)
    }
}

/// A change of a condition.
#[derive(Debug, Clone, PartialEq, Eq)]
enum ConditionChange {
    /// None: nothing new is known.
    Keep,
    /// The condition does not apply, and is removed.
    Remove,
    /// The condition gets this status, reason and message.
    Set(&'static str, &'static str, String),
}

impl ConditionChange {
    fn message(&self) -> Option<&str> {
        match self {
            Self::Set(_, _, message) => Some(message),
            Self::Keep | Self::Remove => None,
        }
    }
}

/// The changes of the conditions `SecretsWatched`, `InputsFollowed` and `KeysWritten`, and whether the Deployment is held.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Followed {
    secrets_watched: ConditionChange,
    inputs: ConditionChange,
    keys: ConditionChange,
    /// Whether the Deployment is neither made nor changed because of what its pods read.
    held: bool,
}

impl Followed {
    /// Nothing was checked: the conditions stay as they are.
    #[must_use]
    pub const fn unchanged() -> Self {
        Self {
            secrets_watched: ConditionChange::Keep,
            inputs: ConditionChange::Keep,
            keys: ConditionChange::Keep,
            held: false,
        }
    }

    /// There are no pods, or they read nothing: the conditions of what they read are removed.
    #[must_use]
    pub const fn nothing() -> Self {
        Self {
            secrets_watched: ConditionChange::Remove,
            inputs: ConditionChange::Remove,
            keys: ConditionChange::Keep,
            held: false,
        }
    }

    /// The pods have the keys that Convoke makes for them, or need none: `KeysWritten` is removed.
    #[must_use]
    pub fn with_keys(self) -> Self {
        Self { keys: ConditionChange::Remove, ..self }
    }

    /// The operator may not write the keys of the pods into a Secret of `namespace`.
    #[must_use]
    pub fn without_right_to_keys(self, namespace: &str, operator: &OperatorAccount) -> Self {
        let command = grant_command("convoke-keys", namespace, operator);
        let text = format!(
            "the operator may not write the Secret with the keys of these pods; {STAYS}; to allow it: {command}"
        );
        Self { keys: ConditionChange::Set("False", "Forbidden", text), ..self }
    }

    /// There is no key of the operator's from which the keys of the pods could be made, for this reason.
    #[must_use]
    pub fn without_operator_key(self, why: &str) -> Self {
        let text = format!("the keys of these pods cannot be made: {why}; {STAYS}");
        Self { keys: ConditionChange::Set("False", "NoKey", text), ..self }
    }

    /// The Secret with the keys of the pods could not be read. The pods run as they should.
    #[must_use]
    pub fn with_unconfirmed_keys(self, error: &CallError) -> Self {
        let text = format!(
            "the Secret with the keys of these pods cannot be read: {error}; it is tried again"
        );
        Self { keys: ConditionChange::Set("Unknown", "NotConfirmed", text), ..self }
    }

    /// Whether the pods lack keys, or may lack them. No event tells when that ends.
    #[must_use]
    pub const fn lacks_keys(&self) -> bool {
        matches!(self.keys, ConditionChange::Set(..))
    }

    /// Holds the Deployment: it is neither made nor changed because of what its pods read.
    #[must_use]
    pub fn holding(self) -> Self {
        Self { held: true, ..self }
    }

    /// Why the Deployment is held, if it is.
    #[must_use]
    pub fn held(&self) -> Option<&str> {
        if !self.held {
            return None;
        }
        [&self.keys, &self.inputs].into_iter().find_map(ConditionChange::message)
    }

    /// The conditions of an object in `namespace` whose pods read `references`. `operator` is the operator's own account.
    #[must_use]
    pub fn of(
        references: &References,
        decision: &Decision,
        watches: WatchStates<'_>,
        namespace: &str,
        operator: &OperatorAccount,
    ) -> Self {
        let secrets_watched = if references.any(Source::Secret) {
            secrets_watched(watches.secrets, namespace, operator)
        } else {
            ConditionChange::Remove
        };
        let inputs = inputs_followed(references, decision, watches, namespace, operator);
        Self { secrets_watched, inputs, keys: ConditionChange::Keep, held: false }
    }

    /// Changes the conditions of a status.
    pub fn set_conditions(&self, list: &mut Vec<Condition>, generation: i64, now: Timestamp) {
        let Self { secrets_watched, inputs, keys, held: _ } = self;
        let all = [
            ("SecretsWatched", secrets_watched),
            ("InputsFollowed", inputs),
            ("KeysWritten", keys),
        ];
        for (type_, change) in all {
            match change {
                ConditionChange::Keep => {}
                ConditionChange::Remove => conditions::remove(list, type_),
                ConditionChange::Set(status, reason, message) => {
                    conditions::Observed { generation, now }
                        .set(list, type_, status, reason, message);
                }
            }
        }
    }
}

/// The condition `SecretsWatched` of an object whose pods read a Secret.
fn secrets_watched(
    watch: &WatchState,
    namespace: &str,
    operator: &OperatorAccount,
) -> ConditionChange {
    match watch {
        WatchState::Starting | WatchState::Failing => ConditionChange::Keep,
        WatchState::Watching => ConditionChange::Set("True", "Watching", String::new()),
        WatchState::NoKey(why) => ConditionChange::Set("False", "NoKey", no_key(why)),
        WatchState::Forbidden => {
            let command = grant_command("convoke-secrets", namespace, operator);
            let text = format!(
                "changes of Secrets are not seen, and replace no pods; to allow it: {command}"
            );
            ConditionChange::Set("False", "Forbidden", text)
        }
    }
}

/// The condition `InputsFollowed`. When there are several reasons, the first one counts.
fn inputs_followed(
    references: &References,
    decision: &Decision,
    watches: WatchStates<'_>,
    namespace: &str,
    operator: &OperatorAccount,
) -> ConditionChange {
    let reads_maps = references.any(Source::ConfigMap);
    let reads_secrets = references.any(Source::Secret);
    match watches.config_maps {
        _ if decision.refuses() => {
            let (reason, text) = refused(decision, namespace, operator);
            ConditionChange::Set("False", reason, text)
        }
        WatchState::NoKey(why) if reads_maps => ConditionChange::Set("False", "NoKey", no_key(why)),
        WatchState::Forbidden if reads_maps => {
            let text = "the operator may not watch ConfigMaps: apply deploy/rbac.yaml";
            ConditionChange::Set("False", "Forbidden", text.to_owned())
        }
        _ if !decision.over_budget.is_empty() => {
            let text = over_budget(&decision.over_budget, namespace);
            ConditionChange::Set("False", "BudgetExceeded", text)
        }
        WatchState::Starting | WatchState::Failing if reads_maps => ConditionChange::Keep,
        _ if reads_secrets && !watches.secrets.is_settled() => ConditionChange::Keep,
        _ => ConditionChange::Remove,
    }
}

/// The message when there is no key for digests.
fn no_key(why: &str) -> String {
    format!("changes of ConfigMaps and Secrets replace no pods: {why}")
}

/// The command that gives the operator this ClusterRole in a namespace.
fn grant_command(role: &str, namespace: &str, operator: &OperatorAccount) -> String {
    let flag = operator.flag();
    format!("kubectl -n {namespace} create rolebinding {role} --clusterrole={role} {flag}")
}

/// The names of some objects.
fn named(all: &[Reference]) -> String {
    let names: Vec<_> = all.iter().take(MAX_NAMED_OBJECTS).map(Reference::to_string).collect();
    match all.len().saturating_sub(MAX_NAMED_OBJECTS) {
        0 => names.join(", "),
        more => format!("{} and {more} more", names.join(", ")),
    }
}

/// The message about objects that are not watched because the namespace is over its budget.
fn over_budget(objects: &[Reference], namespace: &str) -> String {
    format!(
        "{}: not followed, so changes replace no pods: what is labelled {}={} in namespace {namespace} has more keys than the operator follows (--inputs-max-keys); take the label from what no agent reads",
        named(objects),
        keys::AGENTS,
        keys::ALLOW
    )
}

/// Some objects as arguments for kubectl.
fn arguments<'a>(all: impl Iterator<Item = &'a Reference>) -> String {
    let object = |r: &Reference| format!("{}/{}", r.source.as_str().to_lowercase(), r.name);
    all.take(MAX_NAMED_OBJECTS).map(object).collect::<Vec<_>>().join(" ")
}

/// Reason and message about objects that pods may not read or that are missing: which ones, what follows, and what to do.
fn refused(
    decision: &Decision,
    namespace: &str,
    operator: &OperatorAccount,
) -> (&'static str, String) {
    let Decision {
        components: _,
        unlabelled,
        unseen,
        missing,
        missing_or_unlabelled,
        over_budget: _,
    } = decision;
    let label = format!("{}={}", keys::AGENTS, keys::ALLOW);
    let mut parts = Vec::new();
    if !missing.is_empty() {
        let names = named(missing);
        parts.push(format!("{names}: missing"));
    }
    if !missing_or_unlabelled.is_empty() {
        let which = arguments(missing_or_unlabelled.iter());
        let names = named(missing_or_unlabelled);
        parts.push(format!(
            "{names}: missing, or not labelled {label} (kubectl -n {namespace} get {which} shows which)"
        ));
    }
    if !unlabelled.is_empty() {
        parts.push(format!("{}: not labelled {label}", named(unlabelled)));
    }
    if !unseen.is_empty() {
        parts.push(format!(
            "{}: may not be seen, and under a name that Convoke uses only what is seen to be labelled {label} is read",
            named(unseen)
        ));
    }
    parts.push(STAYS.to_owned());
    let command = |objects| format!("kubectl -n {namespace} label {objects} {label} --overwrite");
    let are_labelled = unlabelled.is_empty() && missing_or_unlabelled.is_empty();
    if !are_labelled {
        let objects = arguments(unlabelled.iter().chain(missing_or_unlabelled));
        parts.push(format!("to label: {}", command(objects)));
    } else if !missing.is_empty() {
        let objects = arguments(missing.iter());
        parts.push(format!("create what is missing, then: {}", command(objects)));
    }
    if !unseen.is_empty() {
        let command = grant_command("convoke-secrets", namespace, operator);
        parts.push(format!("to let the operator see it: {command}"));
    }
    let reason = match (are_labelled, unseen.is_empty()) {
        (false, _) => "NotAllowed",
        (true, false) => "Forbidden",
        (true, true) => "Missing",
    };
    (reason, parts.join("; "))
}

#[cfg(test)]
#[path = "tests/report.rs"]
mod tests;
