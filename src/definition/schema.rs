//! The schemas of our kinds, compiled once from the very CRDs that the API server gets.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use kube::core::cel::{CompiledSchema, compile_schema};
use regex::Regex;
use serde_json::Value;

use crate::api::{self, Kind};

/// What a value must be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Type {
    Object,
    Array,
    String,
    Integer,
    Number,
    Boolean,
    IntOrString,
    /// Anything (preserved unknown fields).
    Any,
}

/// How the items of a list are told apart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ListKind {
    Atomic,
    Set,
    /// By these fields of each item.
    Map(Vec<String>),
}

/// A structural schema: one node of `openAPIV3Schema`.
#[derive(Debug)]
pub(super) struct Schema {
    pub kind: Type,
    pub nullable: bool,
    pub default: Option<Value>,
    pub allowed: Vec<Value>,
    pub pattern: Option<Regex>,
    pub minimum: Option<f64>,
    pub maximum: Option<f64>,
    /// Bounds of `format: int32` and `int64`.
    pub integer_bounds: Option<(i64, i64)>,
    pub min_length: Option<u64>,
    pub max_length: Option<u64>,
    pub min_items: Option<u64>,
    pub max_items: Option<u64>,
    pub min_properties: Option<u64>,
    pub max_properties: Option<u64>,
    pub properties: BTreeMap<String, Schema>,
    pub required: Vec<String>,
    pub additional: Option<Box<Schema>>,
    pub items: Option<Box<Schema>>,
    pub list: ListKind,
    /// Fields that a repository may give as a file: (`instructionsFile`, `instructions`).
    pub files: Vec<(&'static str, &'static str)>,
}

/// The schema of one kind.
#[derive(Debug)]
pub(super) struct KindSchema {
    /// Of `spec`.
    pub spec: Schema,
    /// The rules of the whole object.
    pub rules: CompiledSchema,
}

/// All kinds, in the order of [`Kind::ALL`].
pub(super) struct Schemas {
    kinds: BTreeMap<Kind, KindSchema>,
    /// Keywords or patterns that this code does not understand. Always empty: a test holds it.
    pub unsupported: Vec<String>,
}

static SCHEMAS: LazyLock<Schemas> = LazyLock::new(Schemas::compile);

/// The fields that a repository may give as a file: kind, place in the spec, name in Git, plain name.
const FILE_FIELDS: &[(Kind, &[&str], &str, &str)] = &[
    (Kind::Agent, &["config"], "instructionsFile", "instructions"),
    (Kind::MCPServer, &[], "toolsStringFile", "toolsString"),
];

impl Schemas {
    /// The schemas of this build's CRDs.
    pub fn get() -> &'static Self {
        &SCHEMAS
    }

    pub fn kind(&self, kind: Kind) -> Option<&KindSchema> {
        self.kinds.get(&kind)
    }

    fn compile() -> Self {
        let mut schemas = Self { kinds: BTreeMap::new(), unsupported: Vec::new() };
        for crd in api::crds() {
            let Some(kind) = Kind::parse(&crd.spec.names.kind) else { continue };
            let root = crd
                .spec
                .versions
                .iter()
                .find(|version| version.name == api::VERSION)
                .and_then(|version| version.schema.as_ref())
                .and_then(|schema| schema.open_api_v3_schema.as_ref())
                .and_then(|props| serde_json::to_value(props).ok());
            let Some(root) = root else {
                schemas.unsupported.push(format!("{kind} has no schema"));
                continue;
            };
            let rules = compile_schema(&root);
            schemas
                .unsupported
                .extend(rules.compilation_errors().iter().map(|error| format!("{kind}: {error}")));
            let mut spec = Schema::compile(&root["properties"]["spec"], &mut schemas.unsupported);
            for (_, place, from, to) in FILE_FIELDS.iter().filter(|(of, ..)| *of == kind) {
                match place.iter().try_fold(&mut spec, |node, key| node.properties.get_mut(*key)) {
                    Some(node) if node.properties.contains_key(*to) => node.files.push((from, to)),
                    _ => schemas.unsupported.push(format!("{kind} has no field {to}")),
                }
            }
            schemas.kinds.insert(kind, KindSchema { spec, rules });
        }
        schemas
    }
}

impl Schema {
    fn compile(value: &Value, unsupported: &mut Vec<String>) -> Self {
        let number = |key: &str| value.get(key).and_then(Value::as_f64);
        let size = |key: &str| value.get(key).and_then(Value::as_u64);
        let flag = |key: &str| value.get(key).and_then(Value::as_bool).unwrap_or(false);
        let strings = |key: &str| -> Vec<String> {
            let items = value.get(key).and_then(Value::as_array);
            items.into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
        };
        for key in value.as_object().into_iter().flatten().map(|(key, _)| key) {
            if !KNOWN_KEYWORDS.contains(&key.as_str()) {
                unsupported.push(format!("keyword {key}"));
            }
        }
        let kind = match value.get("type").and_then(Value::as_str) {
            Some("object") => Type::Object,
            Some("array") => Type::Array,
            Some("string") => Type::String,
            Some("integer") => Type::Integer,
            Some("number") => Type::Number,
            Some("boolean") => Type::Boolean,
            None if flag("x-kubernetes-int-or-string") => Type::IntOrString,
            None if flag("x-kubernetes-preserve-unknown-fields") => Type::Any,
            other => {
                unsupported.push(format!("type {other:?}"));
                Type::Any
            }
        };
        let pattern = value.get("pattern").and_then(Value::as_str).and_then(|pattern| {
            Regex::new(pattern)
                .inspect_err(|error| unsupported.push(format!("pattern {pattern}: {error}")))
                .ok()
        });
        let integer_bounds = match (kind, value.get("format").and_then(Value::as_str)) {
            // IntOrString holds an int32 (k8s.io/apimachinery/pkg/util/intstr).
            (Type::IntOrString, _) | (Type::Integer, Some("int32")) => {
                Some((i32::MIN.into(), i32::MAX.into()))
            }
            (Type::Integer, _) => Some((i64::MIN, i64::MAX)),
            (_, None) => None,
            (_, Some(format)) => {
                unsupported.push(format!("format {format}"));
                None
            }
        };
        let properties = value.get("properties").and_then(Value::as_object);
        let properties = properties
            .into_iter()
            .flatten()
            .map(|(name, schema)| (name.clone(), Self::compile(schema, unsupported)))
            .collect();
        let additional = match value.get("additionalProperties") {
            Some(schema @ Value::Object(_)) => Some(Box::new(Self::compile(schema, unsupported))),
            Some(_) => {
                unsupported.push("additionalProperties without a schema".into());
                None
            }
            None => None,
        };
        let list = match value.get("x-kubernetes-list-type").and_then(Value::as_str) {
            Some("map") => ListKind::Map(strings("x-kubernetes-list-map-keys")),
            Some("set") => ListKind::Set,
            _ => ListKind::Atomic,
        };
        Self {
            kind,
            nullable: flag("nullable"),
            default: value.get("default").cloned(),
            allowed: value.get("enum").and_then(Value::as_array).cloned().unwrap_or_default(),
            pattern,
            minimum: number("minimum"),
            maximum: number("maximum"),
            integer_bounds,
            min_length: size("minLength"),
            max_length: size("maxLength"),
            min_items: size("minItems"),
            max_items: size("maxItems"),
            min_properties: size("minProperties"),
            max_properties: size("maxProperties"),
            properties,
            required: strings("required"),
            additional,
            items: value.get("items").map(|schema| Box::new(Self::compile(schema, unsupported))),
            list,
            files: Vec::new(),
        }
    }

    /// Whether a plain string may stand for `{name: <string>}`.
    pub fn is_name_reference(&self) -> bool {
        self.kind == Type::Object
            && self.properties.len() == 1
            && self.properties.contains_key("name")
            && self.required == ["name"]
    }

    /// Fills in defaults as the API server does: a missing field gets its default, and then that
    /// default's own missing fields get theirs.
    pub fn fill_defaults(&self, value: &mut Value) {
        match value {
            Value::Object(fields) => {
                for (name, schema) in &self.properties {
                    if let Some(default) =
                        schema.default.as_ref().filter(|_| !fields.contains_key(name))
                    {
                        fields.insert(name.clone(), default.clone());
                    }
                }
                for (name, field) in fields {
                    if let Some(schema) = self.properties.get(name).or(self.additional.as_deref()) {
                        schema.fill_defaults(field);
                    }
                }
            }
            Value::Array(items) => {
                if let Some(schema) = &self.items {
                    for item in items {
                        schema.fill_defaults(item);
                    }
                }
            }
            _ => {}
        }
    }
}

/// The keywords that the walker obeys, or that say nothing about values.
const KNOWN_KEYWORDS: &[&str] = &[
    "additionalProperties",
    "default",
    "description",
    "enum",
    "format",
    "items",
    "maxItems",
    "maxLength",
    "maxProperties",
    "maximum",
    "minItems",
    "minLength",
    "minProperties",
    "minimum",
    "nullable",
    "pattern",
    "properties",
    "required",
    "title",
    "type",
    "x-kubernetes-int-or-string",
    "x-kubernetes-list-map-keys",
    "x-kubernetes-list-type",
    "x-kubernetes-preserve-unknown-fields",
    "x-kubernetes-validations",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn g10_every_keyword_and_rule_of_our_schemas_is_understood() {
        let schemas = Schemas::get();
        assert_eq!(schemas.unsupported, Vec::<String>::new());
        for kind in Kind::ALL {
            assert!(schemas.kind(kind).is_some(), "{kind}");
        }
    }

    #[test]
    fn defaults_reach_into_defaults() {
        let mut unsupported = Vec::new();
        let schema = Schema::compile(
            &serde_json::json!({"type": "object", "properties": {"a": {"type": "object", "default": {"x": 1},
                "properties": {"x": {"type": "integer"}, "y": {"type": "integer", "default": 2}}}}}),
            &mut unsupported,
        );
        let mut value = serde_json::json!({});
        schema.fill_defaults(&mut value);
        assert_eq!(value, serde_json::json!({"a": {"x": 1, "y": 2}}));
        assert!(unsupported.is_empty());
    }
}
