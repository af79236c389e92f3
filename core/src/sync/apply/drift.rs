//! What somebody changed by hand in an object, and who.

use std::fmt;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ManagedFieldsEntry;
use serde_json::Value;

use crate::cluster::write::SYNC_MANAGER;

/// Most fields that are named.
const MOST_FIELDS: usize = 8;

/// What differs from the last applied definition, and who made it so.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Drift {
    /// Paths of fields, as `spec.config.env[0].value`; never their values, which may be secret.
    pub fields: Vec<String>,
    /// Field managers, as `kubectl-edit`, newest first.
    pub managers: Vec<String>,
}

impl fmt::Display for Drift {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.fields.is_empty() {
            f.write_str("labels or annotations")?;
        } else {
            let shown = self.fields.iter().take(MOST_FIELDS).map(String::as_str);
            f.write_str(&shown.collect::<Vec<_>>().join(", "))?;
        }
        if let Some(more) = self.fields.len().checked_sub(MOST_FIELDS).filter(|more| *more > 0) {
            write!(f, " and {more} more")?;
        }
        match self.managers.as_slice() {
            [] => f.write_str(", changed by somebody"),
            managers => write!(f, ", changed by {}", managers.join(", ")),
        }
    }
}

/// Compares the spec that Git wants, with the schema's defaults, with a live one.
#[must_use]
pub fn drift(want: &Value, live: &Value, managed: &[ManagedFieldsEntry]) -> Drift {
    let mut fields = Vec::new();
    // Scaling is nobody's drift where Git sets no replicas.
    let scaled = want.get("replicas").is_none_or(Value::is_null);
    differ("spec", want, live, &mut fields);
    fields.retain(|field| !(scaled && field == "spec.replicas"));

    let mut others: Vec<_> = managed
        .iter()
        .filter(|entry| entry.subresource.as_deref().unwrap_or_default().is_empty())
        .filter_map(|entry| Some((entry.manager.as_deref()?, entry)))
        .filter(|(manager, _)| *manager != SYNC_MANAGER)
        .collect();
    others.sort_by_key(|(_, entry)| std::cmp::Reverse(entry.time.as_ref().map(|time| time.0)));
    let has = |entry: &ManagedFieldsEntry, field: &str| {
        entry.fields_v1.as_ref().is_some_and(|owned| owns(&owned.0, field))
    };
    let mut managers: Vec<String> = Vec::new();
    for (manager, entry) in &others {
        let guilty = fields.iter().any(|field| has(entry, field));
        if guilty && !managers.iter().any(|known| known == manager) {
            managers.push((*manager).to_owned());
        }
    }
    // A removed field belongs to nobody any more: the newest change is the best guess.
    if managers.is_empty() {
        managers.extend(others.first().map(|(manager, _)| (*manager).to_owned()));
    }
    Drift { fields, managers }
}

fn is_nothing(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Object(map) => map.values().all(is_nothing),
        Value::Array(list) => list.is_empty(),
        _ => false,
    }
}

fn differ(path: &str, want: &Value, live: &Value, found: &mut Vec<String>) {
    match (want, live) {
        (Value::Object(want), Value::Object(live)) => {
            let added = live.keys().filter(|key| !want.contains_key(*key));
            for key in want.keys().chain(added) {
                let side = |map: &serde_json::Map<String, Value>| map.get(key).cloned();
                let (want, live) = (side(want).unwrap_or_default(), side(live).unwrap_or_default());
                differ(&format!("{path}.{key}"), &want, &live, found);
            }
        }
        (Value::Array(want), Value::Array(live)) if want.len() == live.len() => {
            for (at, (want, live)) in want.iter().zip(live).enumerate() {
                differ(&format!("{path}[{at}]"), want, live, found);
            }
        }
        (want, live) if want == live || (is_nothing(want) && is_nothing(live)) => {}
        _ => found.push(path.to_owned()),
    }
}

/// Whether a set of managed fields holds a path. Elements of lists are keyed by content there: from the first list on
/// anything below it counts.
fn owns(fields: &Value, path: &str) -> bool {
    let mut at = fields;
    for part in path.split('.') {
        let (name, index) = match part.split_once('[') {
            Some((name, _)) => (name, true),
            None => (part, false),
        };
        match at.get(format!("f:{name}")) {
            Some(next) => at = next,
            // An object that is owned whole has no entries for its fields.
            None => return at.as_object().is_some_and(serde_json::Map::is_empty) && at != fields,
        }
        if index {
            return true;
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::{FieldsV1, Time};
    use serde_json::json;

    use super::*;

    fn entry(manager: &str, seconds: i64, fields: Value) -> ManagedFieldsEntry {
        ManagedFieldsEntry {
            manager: Some(manager.into()),
            time: jiff::Timestamp::from_second(seconds).ok().map(Time),
            fields_v1: Some(FieldsV1(fields)),
            ..ManagedFieldsEntry::default()
        }
    }

    #[test]
    fn g14_changed_added_and_removed_fields_are_named() {
        let want =
            json!({"model": "a", "config": {"env": [{"name": "X", "value": "1"}]}, "tools": ["t"]});
        let live = json!({"model": "b", "config": {"env": [{"name": "X", "value": "2"}], "extra": 1},
            "tools": ["t", "u"], "empty": {"list": []}, "replicas": 3});
        let found = drift(&want, &live, &[]);
        let fields = ["spec.config.env[0].value", "spec.config.extra", "spec.model", "spec.tools"];
        assert_eq!(found.fields, fields);
        assert!(drift(&want, &want, &[]).fields.is_empty());
        // Where Git sets replicas, they are Git's.
        let scaled = drift(&json!({"replicas": 1}), &json!({"replicas": 2}), &[]);
        assert_eq!(scaled.fields, ["spec.replicas"]);
    }

    #[test]
    fn g14_the_manager_of_the_field_is_named_or_else_the_newest() {
        let managed = [
            entry(SYNC_MANAGER, 9, json!({"f:spec": {"f:model": {}}})),
            entry("kubectl-scale", 8, json!({"f:spec": {"f:replicas": {}}})),
            entry("kubectl-edit", 5, json!({"f:spec": {"f:model": {}, "f:tools": {}}})),
        ];
        let edited = drift(&json!({"model": "a"}), &json!({"model": "b"}), &managed);
        assert_eq!(edited.to_string(), "spec.model, changed by kubectl-edit");
        let removed = drift(&json!({"image": "a"}), &json!({}), &managed);
        assert_eq!(removed.to_string(), "spec.image, changed by kubectl-scale");
        let listed = drift(&json!({"tools": ["a"]}), &json!({"tools": ["b"]}), &managed);
        assert_eq!(listed.managers, ["kubectl-edit"]);
        assert_eq!(
            drift(&json!({}), &json!({}), &[]).to_string(),
            "labels or annotations, changed by somebody"
        );
    }

    #[test]
    fn g14_many_fields_are_counted_and_values_are_never_told() {
        let live: serde_json::Map<_, _> =
            (0..20).map(|n| (format!("f{n:02}"), json!("hunter2"))).collect();
        let text = drift(&json!({}), &Value::Object(live), &[]).to_string();
        assert!(text.contains("spec.f07 and 12 more") && !text.contains("hunter2"), "{text}");
    }
}
