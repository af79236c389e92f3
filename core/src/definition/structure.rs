//! Compares the structure of a spec with a schema: types, required and unknown fields, allowed values.

use std::collections::{BTreeSet, HashMap};

use regex::Regex;
use serde_json::{Number, Value};

use super::diagnostic::code;
use super::finding::Finding;
use super::places::escape;
use crate::api::common::DURATION;
use crate::text::{nearest, quote};

/// Most structural errors of one document that are reported.
const MAX_FINDINGS: usize = 100;

/// The structural errors of a spec. `patterns` are the compiled patterns of the schema.
pub(super) fn structural_findings(
    schema: &Value,
    patterns: &HashMap<String, Regex>,
    spec: &Value,
) -> Vec<Finding> {
    let mut walk = Walk { patterns, findings: Vec::new() };
    walk.value(schema, spec, "/spec");
    walk.findings
}

struct Walk<'a> {
    patterns: &'a HashMap<String, Regex>,
    findings: Vec<Finding>,
}

/// The last part of a JSON pointer.
fn field_of(pointer: &str) -> &str {
    pointer.rsplit('/').next().unwrap_or_default()
}

impl Walk<'_> {
    fn is_full(&self) -> bool {
        self.findings.len() >= MAX_FINDINGS
    }

    fn value(&mut self, schema: &Value, value: &Value, at: &str) {
        if self.is_full() {
            return;
        }
        if let Some(finding) =
            type_error(schema, value, at).or_else(|| enum_error(schema, value, at))
        {
            self.findings.push(finding);
            return;
        }
        if schema["x-kubernetes-int-or-string"] == true {
            return;
        }
        match value {
            Value::String(text) => {
                let finding = self.text_error(schema, text, at);
                self.findings.extend(finding);
            }
            Value::Number(number) => self.findings.extend(range_error(schema, number, at)),
            Value::Array(items) => self.list(schema, items, at),
            Value::Object(_) => self.object(schema, value, at),
            Value::Null | Value::Bool(_) => {}
        }
    }

    fn text_error(&self, schema: &Value, text: &str, at: &str) -> Option<Finding> {
        let field = field_of(at);
        let length = text.chars().count() as u64;
        if schema["minLength"].as_u64().is_some_and(|least| length < least) {
            let message = if length == 0 {
                format!("{field} is empty")
            } else {
                format!("{field} is too short")
            };
            return Some(Finding::on_value(at, code::VALUE, message));
        }
        if let Some(most) = schema["maxLength"].as_u64().filter(|most| length > *most) {
            let message = format!("{field} has {length} characters, more than {most}");
            return Some(Finding::on_value(at, code::VALUE, message));
        }
        let pattern = schema["pattern"].as_str()?;
        if self.patterns.get(pattern)?.is_match(text) {
            return None;
        }
        // The value is not quoted: a URL may hold a password.
        let message = format!("this is not a valid {field}");
        let finding = Finding::on_value(at, code::VALUE, message);
        Some(finding.hint(format!("it must match {pattern}")))
    }

    fn list(&mut self, schema: &Value, items: &[Value], at: &str) {
        let field = field_of(at);
        if let Some(most) = schema["maxItems"].as_u64().filter(|most| items.len() as u64 > *most) {
            let message = format!("{field} has {} items, more than {most}", items.len());
            self.findings.push(Finding::on_value(at, code::VALUE, message));
        }
        if let Some(least) =
            schema["minItems"].as_u64().filter(|least| (items.len() as u64) < *least)
        {
            let message = format!("{field} needs at least {least} items");
            self.findings.push(Finding::on_value(at, code::VALUE, message));
        }
        let mut seen = BTreeSet::new();
        for (index, item) in items.iter().enumerate() {
            if let Some(identity) = identity(schema, item)
                && !seen.insert(identity.clone())
            {
                let shown = quote(&identity.replace('"', ""));
                let message = format!("{shown} is in {field} twice");
                let pointer = format!("{at}/{index}");
                self.findings.push(Finding::on_value(pointer, code::VALUE, message));
            }
            if seen.len() + MAX_FINDINGS <= index {
                break;
            }
        }
        for (index, item) in items.iter().enumerate() {
            self.value(&schema["items"], item, &format!("{at}/{index}"));
        }
    }

    fn object(&mut self, schema: &Value, value: &Value, at: &str) {
        let Some(map) = value.as_object() else { return };
        let properties = schema["properties"].as_object();
        let additional = &schema["additionalProperties"];
        if let Some(most) = schema["maxProperties"].as_u64().filter(|most| map.len() as u64 > *most)
        {
            let message = format!("{} entries, more than {most}", map.len());
            self.findings.push(Finding::on_value(at, code::VALUE, message));
        }
        // A required field that is there under a wrong name is one mistake, not two.
        let mut meant: BTreeSet<&str> = BTreeSet::new();
        for (key, item) in map {
            if self.is_full() {
                return;
            }
            let pointer = format!("{at}/{}", escape(key));
            if let Some(schema) = properties.and_then(|p| p.get(key)) {
                self.value(schema, item, &pointer);
            } else if additional.is_object() {
                self.value(additional, item, &pointer);
            } else if additional != true && schema["x-kubernetes-preserve-unknown-fields"] != true {
                let names: Vec<&str> =
                    properties.map(|p| p.keys().map(String::as_str).collect()).unwrap_or_default();
                let near = nearest(key, names.iter().copied());
                meant.extend(near);
                let hint = match near {
                    Some(near) => format!("did you mean {near}?"),
                    None if names.is_empty() => "it takes no fields: write {}".to_owned(),
                    None => format!("fields here: {}", names.join(", ")),
                };
                let message = format!("unknown field {}", quote(key));
                let finding = Finding::on_key(pointer, code::UNKNOWN_FIELD, message);
                self.findings.push(finding.hint(hint));
            }
        }
        for required in
            schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str)
        {
            if !map.contains_key(required) && !meant.contains(required) {
                let message = format!("required field {required} is missing");
                self.findings.push(Finding::on_key(at, code::MISSING_FIELD, message));
            }
        }
    }
}

/// A value that has not the type of its schema.
fn type_error(schema: &Value, value: &Value, at: &str) -> Option<Finding> {
    let field = field_of(at);
    if value.is_null() {
        // Also where the schema allows null: CEL's has() counts it as there, and the typed object as missing.
        let finding = Finding::on_value(at, code::TYPE, format!("{field} has no value"));
        let hint = "give it a value ({} for an empty object), or leave the field out";
        return Some(finding.hint(hint));
    }
    if schema["x-kubernetes-int-or-string"] == true {
        let fits = value.is_string() || value.is_i64();
        let message = format!("{field} must be an integer or a text, not {}", type_of(value));
        return (!fits).then(|| Finding::on_value(at, code::TYPE, message));
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
    if fits {
        return None;
    }
    let message = format!("{field} must be {}, not {}", article(wanted), type_of(value));
    let hint = match (wanted, value) {
        ("string", Value::Number(number)) if schema["pattern"] == DURATION => {
            let finding = Finding::on_value(at, code::TYPE, message);
            return Some(
                finding.hint(format!("a duration has a unit (ms, s, m, h): write {number}m")),
            );
        }
        ("string", Value::Number(_) | Value::Bool(_)) => Some("quote it"),
        ("boolean" | "integer" | "number", Value::String(text))
            if text.starts_with("${") && text.ends_with('}') =>
        {
            Some(
                "a variable needs spec.variables in the GitSync (offline: --var NAME=VALUE), and no quotes",
            )
        }
        ("boolean", Value::String(text))
            if matches!(text.to_lowercase().as_str(), "yes" | "no" | "on" | "off") =>
        {
            Some("write true or false")
        }
        ("array", _) => Some("write a list: one line '- …' an item"),
        _ => None,
    };
    let finding = Finding::on_value(at, code::TYPE, message);
    Some(Finding { hint: hint.map(str::to_owned), ..finding })
}

/// A value that is none of those that its schema allows.
fn enum_error(schema: &Value, value: &Value, at: &str) -> Option<Finding> {
    if schema["x-kubernetes-int-or-string"] == true {
        return None;
    }
    let allowed = schema["enum"].as_array()?;
    if allowed.contains(value) {
        return None;
    }
    let names: Vec<_> = allowed.iter().filter_map(Value::as_str).collect();
    let text = value.as_str().unwrap_or_default();
    let hint = match nearest(text, names.iter().copied()) {
        Some(near) => format!("did you mean {near}?"),
        None => format!("use one of {}", names.join(", ")),
    };
    let message = format!("{} is no value of {}", quote(text), field_of(at));
    Some(Finding::on_value(at, code::VALUE, message).hint(hint))
}

/// A number that is out of the range of its schema.
fn range_error(schema: &Value, number: &Number, at: &str) -> Option<Finding> {
    let number = number.as_f64().unwrap_or_default();
    let is_int32 = schema["format"] == "int32";
    let minimum = schema["minimum"].as_f64().or(is_int32.then_some(f64::from(i32::MIN)));
    let maximum = schema["maximum"].as_f64().or(is_int32.then_some(f64::from(i32::MAX)));
    let too_small = minimum.is_some_and(|minimum| number < minimum);
    if !too_small && maximum.is_none_or(|maximum| number <= maximum) {
        return None;
    }
    let range = match (minimum, maximum) {
        (Some(a), Some(b)) => format!("from {a} to {b}"),
        (Some(a), None) => format!("at least {a}"),
        (None, Some(b)) => format!("at most {b}"),
        (None, None) => String::new(),
    };
    let message = format!("{} must be {range}, not {number}", field_of(at));
    Some(Finding::on_value(at, code::VALUE, message))
}

/// What no other item of a list may have: the item itself in a set, its keys in a map.
fn identity(schema: &Value, item: &Value) -> Option<String> {
    match schema["x-kubernetes-list-type"].as_str()? {
        "set" => Some(item.to_string()),
        "map" => {
            let keys = schema["x-kubernetes-list-map-keys"].as_array()?;
            Some(keys.iter().filter_map(Value::as_str).map(|key| item[key].to_string()).collect())
        }
        _ => None,
    }
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
