//! (pure) Decides on the annotation of pods from what they read and what is known of it.
#![deny(clippy::disallowed_types, clippy::disallowed_methods)]

use super::digest::Components;
use super::references::{Reference, References};

/// What is known of one object that pods read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum InputState {
    /// Nothing: it is not watched yet, or may not be watched.
    Unknown,
    /// It is not among the labelled objects: it is missing or lacks the label, and it is not known which of the two.
    MissingOrUnlabelled,
    /// It exists, but lacks the label.
    Unlabelled,
    /// It may be read only when it is seen to have the label, and the operator may not see it.
    Unseen,
    /// It is missing, and no pod starts without it.
    Missing,
    /// It is missing, and pods start without it.
    OptionalMissing,
    /// It is not among the watched objects, and its namespace has more objects than the budget allows.
    OverBudget,
    /// It exists with the label. This is the digest of what pods read of it.
    Digest(String),
}

/// The annotation of an object's pods, and the objects that pods read but may not read or cannot have.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Decision {
    /// The digests for the annotation.
    pub components: Components,
    /// Objects that lack the label.
    pub unlabelled: Vec<Reference>,
    /// Objects that may be read only when they are seen to have the label, and that the operator may not see.
    pub unseen: Vec<Reference>,
    /// Objects that are missing, and no pod starts without them.
    pub missing: Vec<Reference>,
    /// Objects that are missing or lack the label, and it is not known which of the two.
    pub missing_or_unlabelled: Vec<Reference>,
    /// Objects that are not watched because their namespace is over its budget.
    pub over_budget: Vec<Reference>,
}

impl Decision {
    /// Whether pods read an object that they may not read, or that they cannot start without.
    #[must_use]
    pub fn refuses(&self) -> bool {
        let Self {
            components: _,
            unlabelled,
            unseen,
            missing,
            missing_or_unlabelled,
            over_budget: _,
        } = self;
        let refused = [unlabelled, unseen, missing, missing_or_unlabelled];
        refused.into_iter().any(|objects| !objects.is_empty())
    }

    /// Whether the decision may change without an event of a watch. Only labelled objects are watched.
    #[must_use]
    pub fn is_to_be_checked_again(&self) -> bool {
        // Also when it is there without the label: nothing tells when somebody deletes it.
        self.refuses()
    }
}

/// Decides on the annotation. `live` is the annotation that the pods have now, and `state_of` says what is known of an object.
///
/// The digest of an object of which nothing is known stays, so that missing knowledge replaces no pods. The same holds for an
/// object that is missing and that pods need: new pods could not start, and if the object comes back unchanged, nothing has
/// changed. The digest of an optional object is removed when the object is gone.
#[must_use]
pub fn decide(
    references: &References,
    live: &Components,
    state_of: impl Fn(&Reference) -> InputState,
) -> Decision {
    let mut decision = Decision::default();
    for (reference, _) in references.iter() {
        let state = state_of(reference);
        match state {
            InputState::MissingOrUnlabelled => {
                decision.missing_or_unlabelled.push(reference.clone());
            }
            InputState::Unlabelled => decision.unlabelled.push(reference.clone()),
            InputState::Unseen => decision.unseen.push(reference.clone()),
            InputState::Missing => decision.missing.push(reference.clone()),
            InputState::OverBudget => decision.over_budget.push(reference.clone()),
            InputState::Unknown | InputState::OptionalMissing | InputState::Digest(_) => {}
        }
        let component = match state {
            InputState::Digest(digest) => Some(digest),
            InputState::OptionalMissing => None,
            InputState::Unknown
            | InputState::MissingOrUnlabelled
            | InputState::Unlabelled
            | InputState::Unseen
            | InputState::Missing
            | InputState::OverBudget => live.0.get(reference).cloned(),
        };
        if let Some(component) = component {
            decision.components.0.insert(reference.clone(), component);
        }
    }
    decision
}

#[cfg(test)]
#[path = "tests/decide.rs"]
mod tests;
