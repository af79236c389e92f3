//! (pure) What a Deployment is doing, by the rules of kstatus.
#![deny(clippy::disallowed_types, clippy::disallowed_methods)]

use k8s_openapi::api::apps::v1::Deployment;

use super::pods::Trouble;

/// A Deployment in numbers and one word.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Observed {
    /// Wanted pods.
    pub wanted: i32,
    /// Pods that exist.
    pub replicas: i32,
    /// Pods that pass their readiness probe.
    pub ready: i32,
    /// Pods of the newest revision.
    pub updated: i32,
    /// Pods that are missing.
    pub unavailable: i32,
    /// The word.
    pub health: Health,
    /// What is wrong with its newest pods, as far as that is known.
    pub trouble: Option<Trouble>,
}

impl Observed {
    /// Whether all wanted pods are available, be they of the newest revision or not.
    #[must_use]
    pub const fn is_available(&self) -> bool {
        self.wanted > 0 && self.unavailable == 0
    }

    /// How far it is, for people.
    #[must_use]
    pub fn progress(&self) -> String {
        let Self { wanted, replicas, updated, unavailable, .. } = self;
        if *unavailable == 0 && updated < wanted {
            return format!("{updated} of {wanted} replicas updated");
        }
        // Which of them are available, nobody says: the old ones may be the only ones.
        if *unavailable == 0 && replicas > updated {
            let left = replicas - updated;
            return format!(
                "{updated} of {wanted} replicas updated, {left} of earlier revisions left"
            );
        }
        format!("{} of {wanted} replicas available", wanted - unavailable)
    }
}

/// What a Deployment is doing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Health {
    /// On its way, or waiting for a node.
    #[default]
    Progressing,
    /// All pods of the newest revision are available.
    Available,
    /// It cannot go on: reason and message.
    Failed(String, String),
}

/// The reason of `Progressing` when the API server does not take the ReplicaSet of the newest revision. Its controller then
/// goes no further: it does not even say that it has seen the revision, and what it counts as updated is of an earlier
/// one (kubernetes/pkg/controller/deployment/sync.go, `getNewReplicaSet`).
pub const UNMADE: &str = "ReplicaSetCreateError";

/// Reads a Deployment. What its pods say is no part of it.
#[must_use]
pub fn observe(deployment: &Deployment) -> Observed {
    let wanted = deployment.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1);
    let Some(status) = &deployment.status else {
        return Observed { wanted, unavailable: wanted, ..Observed::default() };
    };
    let number = |n: Option<i32>| n.unwrap_or(0);
    let fresh = status.observed_generation >= deployment.metadata.generation;
    let (replicas, ready, updated) =
        (number(status.replicas), number(status.ready_replicas), number(status.updated_replicas));
    let available = number(status.available_replicas);
    let condition = |type_: &str| {
        status.conditions.as_deref().unwrap_or_default().iter().find(|c| c.type_ == type_)
    };
    let stopped =
        |reason: &str| condition("Progressing").filter(|c| c.reason.as_deref() == Some(reason));
    // A revision that has pods has its ReplicaSet: then this was said of another one.
    let unmade = stopped(UNMADE).filter(|_| !fresh || updated == 0);
    let updated = if unmade.is_some() { 0 } else { updated };
    let failed = || {
        let refused = condition("ReplicaFailure").filter(|c| c.status == "True");
        refused.or_else(|| stopped("ProgressDeadlineExceeded")).filter(|_| fresh)
    };
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    let health = match unmade.or_else(failed) {
        Some(condition) => Health::Failed(text(&condition.reason), text(&condition.message)),
        _ if fresh && updated >= wanted && available >= wanted && replicas <= updated => {
            Health::Available
        }
        _ => Health::Progressing,
    };
    let unavailable = (wanted - available).max(0);
    Observed { wanted, replicas, ready, updated, unavailable, health, trouble: None }
}

#[cfg(test)]
#[path = "tests/readiness.rs"]
mod tests;
