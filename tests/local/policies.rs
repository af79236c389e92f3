//! The shipped policies (`deploy/policies.yaml`) and the schemas of our kinds agree: each field that names a Secret or a
//! ConfigMap is one that the policies compare.
#![allow(clippy::expect_used, clippy::panic, clippy::disallowed_types, clippy::disallowed_methods)]

use convoke::api::crds;
use serde_json::Value;

const POLICIES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/deploy/policies.yaml");

/// The paths of all fields that name an object whose label counts: `spec.env[].valueFrom.secretKeyRef`.
fn references(schema: &Value, path: &str, found: &mut Vec<String>) {
    for (field, below) in schema["properties"].as_object().into_iter().flatten() {
        let path = format!("{path}.{field}");
        if ["secretKeyRef", "configMapKeyRef", "providerSecretRef"].contains(&field.as_str()) {
            found.push(path);
        } else {
            references(below, &path, found);
        }
    }
    if schema["items"].is_object() {
        references(&schema["items"], &format!("{path}[]"), found);
    }
}

/// What an expression that compares the name in this field has in it.
fn parts(path: &str) -> Vec<String> {
    match path.split_once("[]") {
        None => vec![format!("{path}.name == params.metadata.name")],
        Some((list, below)) => {
            vec![format!("{list}.exists("), format!("{below}.name == params.metadata.name")]
        }
    }
}

#[test]
fn a13_the_policies_compare_every_field_that_names_a_secret_or_a_config_map() {
    let policies = std::fs::read_to_string(POLICIES).expect("policies");
    let mut found = Vec::new();
    for crd in crds()
        .into_iter()
        .filter(|crd| ["Agent", "ModelAPI", "MCPServer"].contains(&crd.spec.names.kind.as_str()))
    {
        let version = crd.spec.versions.into_iter().next().expect("version");
        let schema = serde_json::to_value(version.schema).expect("JSON");
        references(&schema["openAPIV3Schema"]["properties"]["spec"], "spec", &mut found);
    }
    for known in ["spec.env[].valueFrom.secretKeyRef", "spec.proxy.apiKeyFrom.configMapKeyRef"] {
        assert!(found.contains(&known.to_owned()), "{known} is not among {found:?}");
    }
    for path in found {
        for part in parts(&path) {
            assert!(policies.contains(&part), "{POLICIES} does not compare {path}: {part}");
        }
    }
}
