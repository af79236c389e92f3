//! Status conditions: times move only when the status of a condition changes.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

/// The generation that conditions are about, and the time at which they are set.
#[derive(Debug, Clone, Copy)]
pub struct Observed {
    /// `metadata.generation` of the object.
    pub generation: i64,
    /// The present time.
    pub now: Timestamp,
}

impl Observed {
    /// Sets one condition. `Ready` comes first, the rest is sorted by type.
    pub fn set(
        self,
        conditions: &mut Vec<Condition>,
        type_: &str,
        status: &str,
        reason: &str,
        message: &str,
    ) {
        let since = conditions
            .iter()
            .find(|c| c.type_ == type_ && c.status == status)
            .map(|c| c.last_transition_time.clone());
        let condition = Condition {
            type_: type_.to_owned(),
            status: status.to_owned(),
            // The API requires a reason.
            reason: if reason.is_empty() { "Unknown".to_owned() } else { reason.to_owned() },
            message: message.to_owned(),
            observed_generation: Some(self.generation),
            last_transition_time: since.unwrap_or(Time(self.now)),
        };
        match conditions.iter_mut().find(|c| c.type_ == type_) {
            Some(have) => *have = condition,
            None => conditions.push(condition),
        }
        conditions
            .sort_by(|a, b| (a.type_ != "Ready", &a.type_).cmp(&(b.type_ != "Ready", &b.type_)));
    }
}

/// Removes one condition.
pub fn remove(conditions: &mut Vec<Condition>, type_: &str) {
    conditions.retain(|c| c.type_ != type_);
}

/// Whether a condition has the status `True`.
#[must_use]
pub fn is_true(conditions: &[Condition], type_: &str) -> bool {
    conditions.iter().any(|c| c.type_ == type_ && c.status == "True")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_moves_only_with_the_status() {
        let at = |s| Timestamp::from_second(s).expect("time");
        let mut conditions = Vec::new();
        Observed { generation: 1, now: at(10) }.set(
            &mut conditions,
            "Available",
            "False",
            "A",
            "a",
        );
        Observed { generation: 1, now: at(10) }.set(&mut conditions, "Ready", "False", "A", "a");
        Observed { generation: 2, now: at(20) }.set(&mut conditions, "Ready", "False", "B", "b");
        assert_eq!(conditions[0].type_, "Ready");
        assert_eq!(conditions[0].last_transition_time.0, at(10));
        assert_eq!(conditions[0].reason, "B");
        Observed { generation: 2, now: at(30) }.set(&mut conditions, "Ready", "True", "C", "");
        assert_eq!(conditions[0].last_transition_time.0, at(30));
        remove(&mut conditions, "Ready");
        assert!(!is_true(&conditions, "Ready"));
        assert_eq!(conditions.len(), 1);
    }
}
