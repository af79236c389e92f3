//! Validates a spec with the schema of its CRD: shorthands, all structural errors at once, defaults, then CEL rules.
//!
//! The schemas are those of the generated CRDs, so the API server refuses the same specs.

use std::collections::HashMap;
use std::sync::LazyLock;

use kube_cel::{CompiledSchema, Validator, apply_defaults, compile_schema};
use regex::Regex;
use serde_json::{Value, json};

use super::diagnostic::code;
use super::finding::Finding;
use super::places::escape;
use super::structure::structural_findings;
use crate::api::{Agent, AgentBuild, Kind, MCPServer, ModelAPI, crds};

struct KindSchema {
    /// Schema of `spec`.
    spec: Value,
    /// The whole object's schema without `status`, for CEL.
    compiled: CompiledSchema,
    whole: Value,
}

/// The schemas of the kinds that may be synced.
pub struct Schemas {
    kinds: HashMap<Kind, KindSchema>,
    patterns: HashMap<String, Regex>,
    cel: Validator,
}

impl Default for Schemas {
    fn default() -> Self {
        Self::new()
    }
}

impl Schemas {
    /// The schemas of our CRDs, compiled once: this takes 20 ms.
    #[must_use]
    pub fn shared() -> &'static Self {
        static SHARED: LazyLock<Schemas> = LazyLock::new(Schemas::new);
        &SHARED
    }

    /// Compiles the schemas of our CRDs.
    #[must_use]
    pub fn new() -> Self {
        let mut kinds = HashMap::new();
        let mut patterns = HashMap::new();
        for crd in crds() {
            let Some(kind) = Kind::parse(&crd.spec.names.kind) else { continue };
            let schema =
                crd.spec.versions.into_iter().next().and_then(|v| v.schema?.open_api_v3_schema);
            let mut whole = serde_json::to_value(schema).unwrap_or_default();
            if let Some(properties) = whole["properties"].as_object_mut() {
                properties.remove("status");
                properties.insert(
                    "metadata".into(),
                    json!({"type": "object", "properties": {"name": {"type": "string"}}}),
                );
            }
            let spec = whole["properties"]["spec"].clone();
            collect_patterns(&spec, &mut patterns);
            let compiled = compile_schema(&whole);
            kinds.insert(kind, KindSchema { spec, compiled, whole });
        }
        Self { kinds, patterns, cel: Validator::new() }
    }

    /// Replaces the shorthands of the repository format by the plain form: a text by `{name: text}`.
    pub fn expand(&self, kind: Kind, spec: &mut Value) {
        if let Some(schema) = self.kinds.get(&kind) {
            expand(&schema.spec, spec);
        }
        // The name of a tool server says enough, though it takes other fields, too.
        if kind == Kind::Agent {
            let servers = spec.get_mut("mcpServers").and_then(Value::as_array_mut);
            for server in servers.into_iter().flatten() {
                if server.is_string() {
                    *server = json!({"name": server.take()});
                }
            }
        }
    }

    /// What is wrong with a spec in plain form. The CEL rules are checked only when the structure is right, as in the API
    /// server.
    #[must_use]
    pub fn check(&self, kind: Kind, name: &str, spec: &Value) -> Vec<Finding> {
        let Some(schema) = self.kinds.get(&kind) else { return Vec::new() };
        let mut findings = structural_findings(&schema.spec, &self.patterns, spec);
        if !findings.is_empty() {
            return findings;
        }
        let object = json!({"apiVersion": crate::api::API_VERSION, "kind": kind.as_str(), "metadata": {"name": name}, "spec": spec});
        let object = apply_defaults(&schema.whole, &object);
        if let Err(errors) = self.cel.validate_compiled(&schema.compiled, &object, None) {
            for error in errors.into_vec() {
                let pointer = pointer_of(&error.field_path);
                findings.push(Finding::on_value(pointer, code::RULE, error.message));
            }
        }
        findings
    }

    /// The spec with the schema's defaults, as the typed struct writes it: comparable with a live object.
    ///
    /// # Errors
    /// When a spec that passed [`Schemas::check`] does not fit the type after all.
    pub fn canonical(&self, kind: Kind, spec: &Value) -> Result<Value, String> {
        let Some(schema) = self.kinds.get(&kind) else {
            return Err(format!("no schema for {kind}"));
        };
        let full = apply_defaults(&schema.spec, spec);
        macro_rules! round_trip {
            ($type:ty) => {
                serde_json::from_value::<<$type as kube::core::object::HasSpec>::Spec>(full)
                    .and_then(serde_json::to_value)
                    .map_err(|error| error.to_string())
            };
        }
        match kind {
            Kind::Agent => round_trip!(Agent),
            Kind::AgentBuild => round_trip!(AgentBuild),
            Kind::MCPServer => round_trip!(MCPServer),
            Kind::ModelAPI => round_trip!(ModelAPI),
        }
    }
}

/// Compiles all patterns of a schema.
fn collect_patterns(schema: &Value, patterns: &mut HashMap<String, Regex>) {
    match schema {
        Value::Object(map) => {
            if let Some(Value::String(pattern)) = map.get("pattern") {
                // Our own patterns: a test compiles them all.
                if let Ok(regex) = Regex::new(pattern) {
                    patterns.insert(pattern.clone(), regex);
                }
            }
            map.values().for_each(|value| collect_patterns(value, patterns));
        }
        Value::Array(items) => items.iter().for_each(|value| collect_patterns(value, patterns)),
        _ => {}
    }
}

/// Replaces each text by an object `{name: text}` where the schema wants an object whose only field is `name`.
fn expand(schema: &Value, value: &mut Value) {
    let properties = schema["properties"].as_object();
    if let (Value::String(name), Some(properties)) = (&*value, properties)
        && properties.len() == 1
        && properties.contains_key("name")
    {
        *value = json!({"name": name});
        return;
    }
    match value {
        Value::Object(map) => {
            for (key, item) in map {
                if let Some(schema) = properties.and_then(|p| p.get(key)) {
                    expand(schema, item);
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| expand(&schema["items"], item)),
        _ => {}
    }
}

/// `spec.a[0].b` as `/spec/a/0/b`.
fn pointer_of(path: &str) -> String {
    let mut pointer = String::new();
    for part in path.split(['.', '[', ']']).filter(|part| !part.is_empty()) {
        pointer.push('/');
        pointer.push_str(&escape(part));
    }
    pointer
}

#[cfg(test)]
#[path = "tests/schema.rs"]
mod tests;
