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
