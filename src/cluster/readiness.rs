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
    let failure = condition("ReplicaFailure").filter(|c| c.status == "True").or_else(|| {
        condition("Progressing").filter(|c| c.reason.as_deref() == Some("ProgressDeadlineExceeded"))
    });
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    let health = match failure {
        Some(condition) if fresh => {
            Health::Failed(text(&condition.reason), text(&condition.message))
        }
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
