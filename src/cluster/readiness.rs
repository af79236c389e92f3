//! (pure) The state of a Deployment's rollout, by the rules of kstatus.
#![deny(clippy::disallowed_types, clippy::disallowed_methods)]

use k8s_openapi::api::apps::v1::Deployment;

use super::pods::Trouble;

/// The state of a Deployment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Observed {
    /// Pods that are wanted.
    pub wanted: i32,
    /// Pods that exist.
    pub replicas: i32,
    /// Pods that pass their readiness probe.
    pub ready: i32,
    /// Pods of the newest revision.
    pub updated: i32,
    /// Pods that are missing.
    pub unavailable: i32,
    /// How the rollout is going.
    pub health: Health,
    /// What is wrong with its newest pods, if that is known.
    pub trouble: Option<Trouble>,
}

impl Observed {
    /// Whether as many pods as wanted are available, of whatever revision.
    #[must_use]
    pub const fn is_available(&self) -> bool {
        self.wanted > 0 && self.unavailable == 0
    }

    /// Whether no pods of an earlier revision run.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        self.health == Health::Available || self.wanted == 0
    }

    /// How far the rollout is, for people.
    #[must_use]
    pub fn progress(&self) -> String {
        let Self { wanted, replicas, updated, unavailable, .. } = self;
        if *unavailable == 0 && updated < wanted {
            return format!("{updated} of {wanted} replicas updated");
        }
        // A Deployment does not say of which revision its available pods are.
        if *unavailable == 0 && replicas > updated {
            let left = replicas - updated;
            return format!(
                "{updated} of {wanted} replicas updated, {left} of earlier revisions left"
            );
        }
        format!("{} of {wanted} replicas available", wanted - unavailable)
    }
}

/// How a rollout is going.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Health {
    /// It goes on, or waits for a node.
    #[default]
    Progressing,
    /// All pods of the newest revision are available.
    Available,
    /// It cannot go on: reason and message.
    Failed(String, String),
}

/// The reason of `Progressing` when the API server refuses the ReplicaSet of the newest revision. Then the Deployment's
/// controller stops: it does not even report that it has seen the revision, and its count of updated pods is of an earlier
/// revision (kubernetes/pkg/controller/deployment/sync.go, `getNewReplicaSet`).
pub const REPLICA_SET_REFUSED: &str = "ReplicaSetCreateError";

/// The reason of `Progressing` when a rollout has made no progress within its deadline.
pub const DEADLINE_EXCEEDED: &str = "ProgressDeadlineExceeded";

/// Reads the state of a Deployment. [`Observed::trouble`] stays empty: pods are read elsewhere.
#[must_use]
pub fn observe(deployment: &Deployment) -> Observed {
    let wanted = deployment.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1);
    let Some(status) = &deployment.status else {
        return Observed { wanted, unavailable: wanted, ..Observed::default() };
    };
    let number = |n: Option<i32>| n.unwrap_or(0);
    let is_current = status.observed_generation >= deployment.metadata.generation;
    let (replicas, ready, updated) =
        (number(status.replicas), number(status.ready_replicas), number(status.updated_replicas));
    let available = number(status.available_replicas);
    let condition = |type_: &str| {
        status.conditions.as_deref().unwrap_or_default().iter().find(|c| c.type_ == type_)
    };
    let stopped =
        |reason: &str| condition("Progressing").filter(|c| c.reason.as_deref() == Some(reason));
    // A revision with pods has its ReplicaSet. Then the reason is about another revision.
    let refused_set = stopped(REPLICA_SET_REFUSED).filter(|_| !is_current || updated == 0);
    let updated = if refused_set.is_some() { 0 } else { updated };
    let failed = || {
        let refused = condition("ReplicaFailure").filter(|c| c.status == "True");
        refused.or_else(|| stopped(DEADLINE_EXCEEDED)).filter(|_| is_current)
    };
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    let health = match refused_set.or_else(failed) {
        Some(condition) => Health::Failed(text(&condition.reason), text(&condition.message)),
        _ if is_current && updated >= wanted && available >= wanted && replicas <= updated => {
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
