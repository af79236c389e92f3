//! Manual changes of an object: which fields, by which field managers.

use std::fmt;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ManagedFieldsEntry;
use serde_json::Value;

use crate::cluster::write::SYNC_MANAGER;

/// The most fields that a message names.
const MAX_NAMED_FIELDS: usize = 8;

/// How an object differs from its last applied definition, and who has changed it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Drift {
    /// The paths of the changed fields, such as `spec.config.env[0].value`. Never the values, which may be secret.
    pub fields: Vec<String>,
    /// The field managers, such as `kubectl-edit`, newest change first.
    pub managers: Vec<String>,
}

impl fmt::Display for Drift {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.fields.is_empty() {
            f.write_str("labels or annotations")?;
        } else {
            let shown = self.fields.iter().take(MAX_NAMED_FIELDS).map(String::as_str);
            f.write_str(&shown.collect::<Vec<_>>().join(", "))?;
        }
        if let Some(more) = self.fields.len().checked_sub(MAX_NAMED_FIELDS).filter(|more| *more > 0)
        {
            write!(f, " and {more} more")?;
        }
        match self.managers.as_slice() {
            [] => f.write_str(", changed by somebody"),
            managers => write!(f, ", changed by {}", managers.join(", ")),
        }
    }
}

/// Compares a live spec with the one of Git. `want` includes the defaults of the schema.
#[must_use]
pub fn drift(want: &Value, live: &Value, managed: &[ManagedFieldsEntry]) -> Drift {
    let mut fields = differing_fields("spec", want, live);
    // Where Git sets no replicas, scaling is no drift.
    let scaled = want.get("replicas").is_none_or(Value::is_null);
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
    // A removed field has no manager any more. The manager of the newest change is the best guess.
    if managers.is_empty() {
        managers.extend(others.first().map(|(manager, _)| (*manager).to_owned()));
    }
    Drift { fields, managers }
}

/// Whether a value means the same as an absent one.
fn is_nothing(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Object(map) => map.values().all(is_nothing),
        Value::Array(list) => list.is_empty(),
        _ => false,
    }
}

/// The paths at which two values differ.
fn differing_fields(path: &str, want: &Value, live: &Value) -> Vec<String> {
    match (want, live) {
        (Value::Object(want), Value::Object(live)) => {
            let added = live.keys().filter(|key| !want.contains_key(*key));
            let keys = want.keys().chain(added);
            keys.flat_map(|key| {
                let side = |map: &serde_json::Map<String, Value>| map.get(key).cloned();
                let (want, live) = (side(want).unwrap_or_default(), side(live).unwrap_or_default());
                differing_fields(&format!("{path}.{key}"), &want, &live)
            })
            .collect()
        }
        (Value::Array(want), Value::Array(live)) if want.len() == live.len() => {
            let pairs = want.iter().zip(live).enumerate();
            pairs
                .flat_map(|(at, (want, live))| {
                    differing_fields(&format!("{path}[{at}]"), want, live)
                })
                .collect()
        }
        (want, live) if want == live || (is_nothing(want) && is_nothing(live)) => Vec::new(),
        _ => vec![path.to_owned()],
    }
}

/// Whether a set of managed fields contains a path. The set has list elements by content and not by index, so from the first
/// list on any field below counts.
fn owns(fields: &Value, path: &str) -> bool {
    let mut at = fields;
    for part in path.split('.') {
        let (name, index) = match part.split_once('[') {
            Some((name, _)) => (name, true),
            None => (part, false),
        };
        match at.get(format!("f:{name}")) {
            Some(next) => at = next,
            // A manager that owns an object as a whole has no entries for its fields.
            None => return at.as_object().is_some_and(serde_json::Map::is_empty) && at != fields,
        }
        if index {
            return true;
        }
    }
    true
}

#[cfg(test)]
#[path = "tests/drift.rs"]
mod tests;
