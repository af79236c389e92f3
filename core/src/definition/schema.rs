//! A spec against its CRD's schema: shorthands, every structural error at once, defaults, then CEL rules.
//!
//! The schemas are the generated ones, so the API server and this walker refuse the same things.

use std::collections::{BTreeSet, HashMap};
use std::sync::LazyLock;

use kube_cel::{CompiledSchema, Validator, apply_defaults, compile_schema};
use regex::Regex;
use serde_json::{Value, json};

use super::diagnostic::{code, nearest, quote};
use super::document::escape;
use crate::api::{Agent, AgentBuild, Kind, MCPServer, ModelAPI, crds};

/// What is wrong at a JSON pointer (relative to the document).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// Where.
    pub pointer: String,
    /// Whether the key is meant, not the value.
    pub on_key: bool,
    /// Stable code.
    pub code: &'static str,
    /// What.
    pub message: String,
    /// What to do.
    pub hint: Option<String>,
}

/// More structural errors than this in one document help nobody.
const MOST_FINDINGS: usize = 100;

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
    /// The schemas of this program's CRDs. Compiling them takes 20 ms, so all readers share them.
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

    /// Turns the shorthands of the repository format into the plain form: a text for `{name: text}`.
    pub fn expand(&self, kind: Kind, spec: &mut Value) {
        if let Some(schema) = self.kinds.get(&kind) {
            expand(&schema.spec, spec);
        }
    }

    /// Everything that is wrong with a spec in plain form. Structural errors hide rules, as in the API server.
    #[must_use]
    pub fn check(&self, kind: Kind, name: &str, spec: &Value) -> Vec<Finding> {
        let Some(schema) = self.kinds.get(&kind) else { return Vec::new() };
        let mut findings = Vec::new();
        self.walk(&schema.spec, spec, "/spec", &mut findings);
        if !findings.is_empty() {
            return findings;
        }
        let object = json!({"apiVersion": crate::api::API_VERSION, "kind": kind.as_str(), "metadata": {"name": name}, "spec": spec});
        let object = apply_defaults(&schema.whole, &object);
        if let Err(errors) = self.cel.validate_compiled(&schema.compiled, &object, None) {
            for error in errors.into_vec() {
                findings.push(Finding {
                    pointer: pointer_of(&error.field_path),
                    on_key: false,
                    code: code::RULE,
                    message: error.message,
                    hint: None,
                });
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

    fn walk(&self, schema: &Value, value: &Value, at: &str, out: &mut Vec<Finding>) {
        if out.len() >= MOST_FINDINGS {
            return;
        }
        let mut say = |code: &'static str, message: String, hint: Option<String>| {
            out.push(Finding { pointer: at.to_owned(), on_key: false, code, message, hint });
        };
        let field = at.rsplit('/').next().unwrap_or_default();
        if value.is_null() {
            // Also where the schema allows null: CEL's has() counts it as there, and the typed object as missing.
            say(
                code::TYPE,
                format!("{field} has no value"),
                Some("give it a value ({} for an empty object), or leave the field out".into()),
            );
            return;
        }
        if schema["x-kubernetes-int-or-string"] == true {
            if !(value.is_string() || value.is_i64()) {
                say(
                    code::TYPE,
                    format!("{field} must be an integer or a text, not {}", type_of(value)),
                    None,
                );
            }
            return;
        }
        let wanted = schema["type"].as_str().unwrap_or_default();
        let fits = match wanted {
            "object" => value.is_object(),
            "array" => value.is_array(),
            "string" => value.is_string(),
            "boolean" => value.is_boolean(),
            "integer" => value.is_i64() || value.is_u64(),
            "number" => value.is_number(),
            _ => true,
        };
        if !fits {
            let hint = match (wanted, value) {
                ("string", Value::Number(_) | Value::Bool(_)) => Some("quote it".to_owned()),
                ("boolean" | "integer" | "number", Value::String(text))
                    if text.starts_with("${") && text.ends_with('}') =>
                {
                    Some("a variable needs spec.variables in the GitSync (offline: --var NAME=VALUE), and no quotes".to_owned())
                }
                ("boolean", Value::String(text))
                    if matches!(text.to_lowercase().as_str(), "yes" | "no" | "on" | "off") =>
                {
                    Some("write true or false".to_owned())
                }
                ("array", _) => Some("write a list: one line '- …' an item".to_owned()),
                _ => None,
            };
            say(
                code::TYPE,
                format!("{field} must be {}, not {}", article(wanted), type_of(value)),
                hint,
            );
            return;
        }
        if let Some(allowed) = schema["enum"].as_array()
            && !allowed.contains(value)
        {
            let names: Vec<_> = allowed.iter().filter_map(Value::as_str).collect();
            let text = value.as_str().unwrap_or_default();
            let hint = match nearest(text, names.iter().copied()) {
                Some(near) => format!("did you mean {near}?"),
                None => format!("use one of {}", names.join(", ")),
            };
            say(code::VALUE, format!("{} is no value of {field}", quote(text)), Some(hint));
            return;
        }
        match value {
            Value::String(text) => self.walk_text(schema, text, field, &mut say),
            Value::Number(number) => {
                let number = number.as_f64().unwrap_or_default();
                let minimum = schema["minimum"]
                    .as_f64()
                    .or((schema["format"] == "int32").then_some(f64::from(i32::MIN)));
                let maximum = schema["maximum"]
                    .as_f64()
                    .or((schema["format"] == "int32").then_some(f64::from(i32::MAX)));
                if minimum.is_some_and(|minimum| number < minimum)
                    || maximum.is_some_and(|maximum| number > maximum)
                {
                    let range = match (minimum, maximum) {
                        (Some(a), Some(b)) => format!("from {a} to {b}"),
                        (Some(a), None) => format!("at least {a}"),
                        (None, Some(b)) => format!("at most {b}"),
                        (None, None) => String::new(),
                    };
                    say(code::VALUE, format!("{field} must be {range}, not {number}"), None);
                }
            }
            Value::Array(items) => self.walk_list(schema, items, at, out),
            Value::Object(_) => self.walk_object(schema, value, at, out),
            Value::Null | Value::Bool(_) => {}
        }
    }

    fn walk_text(
        &self,
        schema: &Value,
        text: &str,
        field: &str,
        say: &mut impl FnMut(&'static str, String, Option<String>),
    ) {
        let length = text.chars().count() as u64;
        if schema["minLength"].as_u64().is_some_and(|least| length < least) {
            let message = if length == 0 {
                format!("{field} is empty")
            } else {
                format!("{field} is too short")
            };
            say(code::VALUE, message, None);
            return;
        }
        if let Some(most) = schema["maxLength"].as_u64().filter(|most| length > *most) {
            say(code::VALUE, format!("{field} has {length} characters, more than {most}"), None);
            return;
        }
        if let Some(pattern) = schema["pattern"].as_str()
            && self.patterns.get(pattern).is_some_and(|regex| !regex.is_match(text))
        {
            say(
                code::VALUE,
                // The value is not quoted: a URL may hold a password.
                format!("this is not a valid {field}"),
                Some(format!("it must match {pattern}")),
            );
        }
    }

    fn walk_list(&self, schema: &Value, items: &[Value], at: &str, out: &mut Vec<Finding>) {
        let field = at.rsplit('/').next().unwrap_or_default().to_owned();
        let mut say = |pointer: String, message: String| {
            out.push(Finding { pointer, on_key: false, code: code::VALUE, message, hint: None });
        };
        if let Some(most) = schema["maxItems"].as_u64().filter(|most| items.len() as u64 > *most) {
            say(at.to_owned(), format!("{field} has {} items, more than {most}", items.len()));
        }
        if let Some(least) =
            schema["minItems"].as_u64().filter(|least| (items.len() as u64) < *least)
        {
            say(at.to_owned(), format!("{field} needs at least {least} items"));
        }
        let mut seen = BTreeSet::new();
        for (index, item) in items.iter().enumerate() {
            let identity = match schema["x-kubernetes-list-type"].as_str() {
                Some("set") => Some(item.to_string()),
                Some("map") => {
                    let keys = schema["x-kubernetes-list-map-keys"].as_array();
                    keys.map(|keys| {
                        keys.iter()
                            .filter_map(Value::as_str)
                            .map(|key| item[key].to_string())
                            .collect()
                    })
                }
                _ => None,
            };
            if let Some(identity) = identity
                && !seen.insert(identity.clone())
            {
                let shown = quote(&identity.replace('"', ""));
                say(format!("{at}/{index}"), format!("{shown} is in {field} twice"));
            }
            if seen.len() + MOST_FINDINGS <= index {
                break;
            }
        }
        for (index, item) in items.iter().enumerate() {
            self.walk(&schema["items"], item, &format!("{at}/{index}"), out);
        }
    }

    fn walk_object(&self, schema: &Value, value: &Value, at: &str, out: &mut Vec<Finding>) {
        let Some(map) = value.as_object() else { return };
        let properties = schema["properties"].as_object();
        let additional = &schema["additionalProperties"];
        if let Some(most) = schema["maxProperties"].as_u64().filter(|most| map.len() as u64 > *most)
        {
            let message = format!("{} entries, more than {most}", map.len());
            out.push(Finding {
                pointer: at.to_owned(),
                on_key: false,
                code: code::VALUE,
                message,
                hint: None,
            });
        }
        // A required field that is there under a wrong name is one mistake, not two.
        let mut meant = BTreeSet::new();
        for (key, item) in map {
            if out.len() >= MOST_FINDINGS {
                return;
            }
            let pointer = format!("{at}/{}", escape(key));
            if let Some(schema) = properties.and_then(|p| p.get(key)) {
                self.walk(schema, item, &pointer, out);
            } else if additional.is_object() {
                self.walk(additional, item, &pointer, out);
            } else if additional != true && schema["x-kubernetes-preserve-unknown-fields"] != true {
                let names: Vec<&str> =
                    properties.map(|p| p.keys().map(String::as_str).collect()).unwrap_or_default();
                let hint = match nearest(key, names.iter().copied()) {
                    Some(near) => {
                        meant.insert(near);
                        Some(format!("did you mean {near}?"))
                    }
                    None if names.is_empty() => Some("it takes no fields: write {}".to_owned()),
                    None => Some(format!("fields here: {}", names.join(", "))),
                };
                let message = format!("unknown field {}", quote(key));
                out.push(Finding {
                    pointer,
                    on_key: true,
                    code: code::UNKNOWN_FIELD,
                    message,
                    hint,
                });
            }
        }
        for required in
            schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str)
        {
            if !map.contains_key(required) && !meant.contains(required) {
                let message = format!("required field {required} is missing");
                out.push(Finding {
                    pointer: at.to_owned(),
                    on_key: true,
                    code: code::MISSING_FIELD,
                    message,
                    hint: None,
                });
            }
        }
    }
}

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

/// A text where the schema wants an object whose only field is `name`.
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

fn type_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "nothing",
        Value::Bool(_) => "true or false",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

fn article(wanted: &str) -> &'static str {
    match wanted {
        "object" => "an object",
        "array" => "a list",
        "string" => "a text",
        "boolean" => "true or false",
        "integer" => "an integer",
        _ => "a number",
    }
}

#[cfg(test)]
#[path = "schema_tests.rs"]
mod tests;
