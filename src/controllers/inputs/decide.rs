//! (pure) From what pods read and what is known of it to their annotation and to what people are told.
#![deny(clippy::disallowed_types, clippy::disallowed_methods)]

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

use super::digest::Components;
use super::references::{Reference, References, Source};
use crate::api::keys;
use crate::cluster::conditions;

/// Objects that a message names; the rest is counted.
const NAMED: usize = 8;

/// What is known of one object that pods read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Found {
    /// Nothing: it is not watched (yet), or may not be.
    Unknown,
    /// It is not among the labelled ones: missing, or without the label. Which of the two is not known.
    Absent,
    /// It is there, without the label.
    Unlabelled,
    /// It is missing, and no pod starts without it.
    Missing,
    /// It is not among those that are followed, and its namespace holds more than that.
    Beyond,
    /// It is missing, and pods start without it.
    Gone,
    /// The digest of what is read of it.
    Holds(String),
}

/// How an object's pods get their annotation.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Decision {
    /// What the pods are to say of what they read.
    pub components: Components,
    /// Objects that lack the label.
    pub unlabelled: Vec<Reference>,
    /// Objects that are missing, and no pod starts without them.
    pub missing: Vec<Reference>,
    /// Objects that are missing or lack the label: which of the two is not known.
    pub absent: Vec<Reference>,
    /// Objects that are not followed because their namespace holds too much.
    pub beyond: Vec<Reference>,
}

impl Decision {
    /// Whether an object is read that pods may not read, or that they cannot start without.
    #[must_use]
    pub fn refuses(&self) -> bool {
        let Self { components: _, unlabelled, missing, absent, beyond: _ } = self;
        !(unlabelled.is_empty() && missing.is_empty() && absent.is_empty())
    }

    /// Whether the answer may change without a watch telling: only labelled objects are watched.
    #[must_use]
    pub fn is_to_be_asked_again(&self) -> bool {
        !(self.missing.is_empty() && self.absent.is_empty())
    }
}

/// Decides on the annotation. `live` is what the pods say now.
///
/// What is not known stays as the pods say: not knowing replaces no pods. The same for an object that is away and that
/// pods need: new ones could not start, and if it comes back unchanged nothing has changed. An object that pods can
/// do without is left out when it is gone.
#[must_use]
pub fn decide(
    references: &References,
    live: &Components,
    found: impl Fn(&Reference) -> Found,
) -> Decision {
    let mut decision = Decision::default();
    for (reference, _) in references.iter() {
        let found = found(reference);
        match found {
            Found::Absent => decision.absent.push(reference.clone()),
            Found::Unlabelled => decision.unlabelled.push(reference.clone()),
            Found::Missing => decision.missing.push(reference.clone()),
            Found::Beyond => decision.beyond.push(reference.clone()),
            Found::Unknown | Found::Gone | Found::Holds(_) => {}
        }
        let component = match found {
            Found::Holds(digest) => Some(digest),
            Found::Gone => None,
            Found::Unknown | Found::Absent | Found::Unlabelled | Found::Missing | Found::Beyond => {
                live.0.get(reference).cloned()
            }
        };
        if let Some(component) = component {
            decision.components.0.insert(reference.clone(), component);
        }
    }
    decision
}

/// How well the objects of one kind are followed in one namespace.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum State {
    /// It is not known yet.
    #[default]
    Starting,
    /// The first list failed for a reason that passes.
    Failing,
    /// Every change is seen.
    Watching,
    /// The right is missing.
    Forbidden {
        /// Whom the API server refused, as it says.
        user: Option<String>,
    },
    /// There is no key for digests: why.
    NoKey(String),
}

impl State {
    /// The state after the API server refused a list or a watch, from what it said.
    #[must_use]
    pub fn forbidden(said: &str) -> Self {
        let user = said.split_once("User \"").and_then(|(_, rest)| rest.split_once('"'));
        let user = user.map(|(user, _)| user.to_owned());
        // It goes into a command that people run.
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, ':' | '-' | '.' | '_' | '@');
        Self::Forbidden { user: user.filter(|user| !user.is_empty() && user.chars().all(plain)) }
    }

    const fn is_settled(&self) -> bool {
        !matches!(self, Self::Starting | Self::Failing)
    }
}

/// What becomes of a condition.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Say {
    /// As it is: nothing new is known.
    Keep,
    /// It does not apply.
    Remove,
    /// Status, reason, message.
    Set(&'static str, &'static str, String),
}

/// What people are told: the conditions `SecretsWatched` and `InputsFollowed`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Followed {
    secrets_watched: Say,
    inputs: Say,
    /// Whether no pods are made or changed because of what they read.
    held: bool,
}

impl Followed {
    /// Nothing was looked at: what was told stands.
    #[must_use]
    pub const fn unchanged() -> Self {
        Self { secrets_watched: Say::Keep, inputs: Say::Keep, held: false }
    }

    /// Pods that read nothing, or no pods.
    #[must_use]
    pub const fn nothing() -> Self {
        Self { secrets_watched: Say::Remove, inputs: Say::Remove, held: false }
    }

    /// The same of an object whose Deployment is neither made nor changed because of what its pods read.
    #[must_use]
    pub fn holding(self) -> Self {
        Self { held: true, ..self }
    }

    /// Why the Deployment is neither made nor changed, if it is what pods read.
    #[must_use]
    pub fn held(&self) -> Option<&str> {
        match &self.inputs {
            Say::Set(_, _, message) if self.held => Some(message),
            _ => None,
        }
    }

    /// What is told of pods that read `references` in `namespace`; `operator` is the operator's own namespace.
    #[must_use]
    pub fn of(
        references: &References,
        decision: &Decision,
        config_maps: &State,
        secrets: &State,
        namespace: &str,
        operator: &str,
    ) -> Self {
        let (reads_maps, reads_secrets) =
            (references.any(Source::ConfigMap), references.any(Source::Secret));
        let secrets_watched = if reads_secrets {
            match secrets {
                State::Starting | State::Failing => Say::Keep,
                State::Watching => Say::Set("True", "Watching", String::new()),
                State::NoKey(why) => Say::Set("False", "NoKey", no_key(why)),
                State::Forbidden { user } => {
                    let command = grant(namespace, user.as_deref(), operator);
                    let text = format!(
                        "changes of Secrets are not seen, and replace no pods; to allow it: {command}"
                    );
                    Say::Set("False", "Forbidden", text)
                }
            }
        } else {
            Say::Remove
        };
        let inputs = match config_maps {
            _ if decision.refuses() => {
                let (reason, text) = refused(decision, namespace);
                Say::Set("False", reason, text)
            }
            State::NoKey(why) if reads_maps => Say::Set("False", "NoKey", no_key(why)),
            State::Forbidden { .. } if reads_maps => {
                let text = "the operator may not watch ConfigMaps: apply deploy/rbac.yaml";
                Say::Set("False", "Forbidden", text.to_owned())
            }
            _ if !decision.beyond.is_empty() => {
                let text = too_much(&decision.beyond, namespace);
                Say::Set("False", "BudgetExceeded", text)
            }
            State::Starting | State::Failing if reads_maps => Say::Keep,
            _ if reads_secrets && !secrets.is_settled() => Say::Keep,
            _ => Say::Remove,
        };
        Self { secrets_watched, inputs, held: false }
    }

    /// Brings the conditions where they should be.
    pub fn tell(&self, list: &mut Vec<Condition>, generation: i64, now: Timestamp) {
        let Self { secrets_watched, inputs, held: _ } = self;
        for (type_, say) in [("SecretsWatched", secrets_watched), ("InputsFollowed", inputs)] {
            match say {
                Say::Keep => {}
                Say::Remove => conditions::remove(list, type_),
                Say::Set(status, reason, message) => {
                    conditions::set(list, type_, status, reason, message, generation, now);
                }
            }
        }
    }
}

fn no_key(why: &str) -> String {
    format!("changes of ConfigMaps and Secrets replace no pods: {why}")
}

/// The command that lets the operator watch the Secrets of a namespace.
fn grant(namespace: &str, user: Option<&str>, operator: &str) -> String {
    let account = user.and_then(|user| user.strip_prefix("system:serviceaccount:"));
    let subject = match (account, user) {
        (Some(account), _) => format!("--serviceaccount={account}"),
        (None, Some(user)) => format!("--user={user}"),
        (None, None) => format!("--serviceaccount={operator}:convoke"),
    };
    format!(
        "kubectl -n {namespace} create rolebinding convoke-secrets --clusterrole=convoke-secrets {subject}"
    )
}

/// Some objects, by name.
fn named(all: &[Reference]) -> String {
    let names: Vec<_> = all.iter().take(NAMED).map(Reference::to_string).collect();
    match all.len().saturating_sub(NAMED) {
        0 => names.join(", "),
        more => format!("{} and {more} more", names.join(", ")),
    }
}

/// What is not followed because there is too much of it.
fn too_much(beyond: &[Reference], namespace: &str) -> String {
    format!(
        "{}: not followed, so changes replace no pods: what is labelled {}={} in namespace {namespace} has more keys than the operator follows (--inputs-max-keys); take the label from what no agent reads",
        named(beyond),
        keys::AGENTS,
        keys::ALLOW
    )
}

/// Some objects as arguments of kubectl.
fn arguments<'a>(all: impl Iterator<Item = &'a Reference>) -> String {
    let object = |r: &Reference| format!("{}/{}", r.source.as_str().to_lowercase(), r.name);
    all.take(NAMED).map(object).collect::<Vec<_>>().join(" ")
}

/// Reason and message: what pods may not read or is missing, what follows from that, and what to do.
fn refused(decision: &Decision, namespace: &str) -> (&'static str, String) {
    let Decision { components: _, unlabelled, missing, absent, beyond: _ } = decision;
    let label = format!("{}={}", keys::AGENTS, keys::ALLOW);
    let mut parts = Vec::new();
    if !missing.is_empty() {
        let names = named(missing);
        parts.push(format!("{names}: missing; to be created with the label {label}"));
    }
    if !absent.is_empty() {
        let (names, which) = (named(absent), arguments(absent.iter()));
        parts.push(format!(
            "{names}: missing, or not labelled {label} (kubectl -n {namespace} get {which} shows which)"
        ));
    }
    if !unlabelled.is_empty() {
        parts.push(format!("{}: not labelled {label}", named(unlabelled)));
    }
    parts.push("until then no new pods are made, and those that run stay as they are".to_owned());
    if unlabelled.is_empty() && absent.is_empty() {
        return ("Missing", parts.join("; "));
    }
    let objects = arguments(unlabelled.iter().chain(absent));
    parts.push(format!("to label: kubectl -n {namespace} label {objects} {label}"));
    ("NotAllowed", parts.join("; "))
}

#[cfg(test)]
#[path = "tests/decide.rs"]
mod tests;
