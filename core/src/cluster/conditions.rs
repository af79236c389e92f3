//! Status conditions: times move only when the status of a condition changes.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

/// Sets one condition. `Ready` comes first, the rest is sorted by type.
pub fn set(
    conditions: &mut Vec<Condition>,
    type_: &str,
    status: &str,
    reason: &str,
    message: &str,
    generation: i64,
    now: Timestamp,
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
        observed_generation: Some(generation),
        last_transition_time: since.unwrap_or(Time(now)),
    };
    match conditions.iter_mut().find(|c| c.type_ == type_) {
        Some(have) => *have = condition,
        None => conditions.push(condition),
    }
    conditions.sort_by(|a, b| (a.type_ != "Ready", &a.type_).cmp(&(b.type_ != "Ready", &b.type_)));
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
        set(&mut conditions, "Available", "False", "A", "a", 1, at(10));
        set(&mut conditions, "Ready", "False", "A", "a", 1, at(10));
        set(&mut conditions, "Ready", "False", "B", "b", 2, at(20));
        assert_eq!(conditions[0].type_, "Ready");
        assert_eq!(conditions[0].last_transition_time.0, at(10));
        assert_eq!(conditions[0].reason, "B");
        set(&mut conditions, "Ready", "True", "C", "", 2, at(30));
        assert_eq!(conditions[0].last_transition_time.0, at(30));
        remove(&mut conditions, "Ready");
        assert!(!is_true(&conditions, "Ready"));
        assert_eq!(conditions.len(), 1);
    }
}
