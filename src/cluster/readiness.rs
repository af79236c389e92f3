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
mod tests {
    use serde_json::json;

    use super::*;

    fn health(status: serde_json::Value) -> Health {
        let deployment = json!({"metadata": {"generation": 2}, "spec": {"replicas": 2, "selector": {}, "template": {}}, "status": status});
        observe(&serde_json::from_value(deployment).expect("deployment")).health
    }

    #[test]
    fn a8_health_follows_the_newest_revision() {
        let full = json!({"observedGeneration": 2, "replicas": 2, "updatedReplicas": 2, "readyReplicas": 2, "availableReplicas": 2});
        assert_eq!(health(full.clone()), Health::Available);
        for (field, value) in [
            ("observedGeneration", 1),
            ("updatedReplicas", 1),
            ("availableReplicas", 1),
            ("replicas", 3),
        ] {
            let mut status = full.clone();
            status[field] = json!(value);
            assert_eq!(health(status), Health::Progressing, "{field}");
        }
        assert_eq!(health(json!({})), Health::Progressing);
        let mut failed = full;
        failed["conditions"] = json!([{"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": "quota"}]);
        assert_eq!(health(failed), Health::Failed("FailedCreate".into(), "quota".into()));
    }

    #[test]
    fn a8_a_deadline_that_passed_is_a_failure_of_this_generation_only() {
        let mut status = json!({"observedGeneration": 2, "replicas": 2, "updatedReplicas": 1, "availableReplicas": 1,
            "conditions": [{"type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded", "message": "late"}]});
        let failed = Health::Failed("ProgressDeadlineExceeded".into(), "late".into());
        assert_eq!(health(status.clone()), failed);
        status["observedGeneration"] = json!(1);
        assert_eq!(health(status), Health::Progressing);
    }

    #[test]
    fn a8_a_replica_set_that_is_refused_is_a_failure_though_its_controller_has_seen_nothing() {
        let mut status = json!({"observedGeneration": 1, "replicas": 2, "updatedReplicas": 2, "availableReplicas": 2,
            "conditions": [{"type": "Progressing", "status": "False", "reason": UNMADE, "message": "quota"}]});
        let of = |status: &serde_json::Value| {
            let deployment = json!({"metadata": {"generation": 2}, "spec": {"replicas": 2, "selector": {}, "template": {}}, "status": status});
            observe(&serde_json::from_value(deployment).expect("deployment"))
        };
        let failed = Health::Failed(UNMADE.into(), "quota".into());
        let seen = of(&status);
        assert_eq!((&seen.health, seen.updated, seen.is_available()), (&failed, 0, true));
        assert_eq!(seen.progress(), "0 of 2 replicas updated");
        // The first revision.
        let conditions = json!({"conditions": status["conditions"]});
        let first = of(&conditions);
        assert_eq!((first.health, first.unavailable), (failed.clone(), 2));
        // Scaled meanwhile: the generation is seen, and there is still no ReplicaSet.
        status["observedGeneration"] = json!(2);
        status["updatedReplicas"] = json!(0);
        assert_eq!(of(&status).health, failed);
        // Back to a revision that has one.
        status["updatedReplicas"] = json!(2);
        assert_eq!(of(&status).health, Health::Available);
    }

    #[test]
    fn a8_old_pods_that_serve_are_available_while_new_ones_come() {
        let rolling =
            Observed { wanted: 2, replicas: 3, ready: 2, updated: 1, ..Observed::default() };
        assert!(rolling.is_available());
        assert_eq!(rolling.progress(), "1 of 2 replicas updated");
        let last = Observed { updated: 2, ..rolling };
        let text = "2 of 2 replicas updated, 1 of earlier revisions left";
        assert_eq!((last.is_available(), last.progress().as_str()), (true, text));
        let starting = Observed { wanted: 2, updated: 2, unavailable: 1, ..Observed::default() };
        assert!(!starting.is_available());
        assert_eq!(starting.progress(), "1 of 2 replicas available");
        assert!(!Observed::default().is_available());
    }
}
