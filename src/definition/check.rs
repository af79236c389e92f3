//! A document's spec against the schema of its kind: every error at once, each at its place.

use std::collections::{BTreeSet, HashSet};

use serde_json::{Number, Value};

use crate::api::common::DNS_LABEL;

use super::diagnostic::{Code, Sink, clip, did_you_mean};
use super::node::{Data, Entry, Field, Node, Position};
use super::schema::{ListKind, Schema, Type};

/// Longest list of names that a hint spells out.
const SHORT_LIST: usize = 12;

/// Checks a node that was normalised before (shorthands resolved, nulls of nullable fields dropped).
pub(super) fn check(schema: &Schema, node: &Node, field: &Field<'_>, sink: &mut Sink<'_>) {
    match (&node.data, schema.kind) {
        (_, Type::Any) | (Data::Unknown, _) | (Data::Bool(_), Type::Boolean) => {}
        (Data::Null, _) => {
            let hint = Some("give it a value, or remove the field".to_owned());
            sink.error(node.at, Code::NullValue, format!("`{field}` has no value"), hint);
        }
        (Data::Map(entries), Type::Object) => check_object(schema, node, entries, field, sink),
        (Data::List(items), Type::Array) => check_list(schema, node, items, field, sink),
        (Data::String(text), Type::String | Type::IntOrString) => {
            check_string(schema, node.at, text, field, sink);
        }
        (Data::Number(number), Type::Integer | Type::IntOrString) if !number.is_f64() => {
            check_number(schema, node.at, number, field, sink);
        }
        (Data::Number(number), Type::Number) => check_number(schema, node.at, number, field, sink),
        _ => wrong_type(schema, node, field, sink),
    }
}

fn wrong_type(schema: &Schema, node: &Node, field: &Field<'_>, sink: &mut Sink<'_>) {
    let wanted = match schema.kind {
        Type::Object if schema.is_name_reference() => "a name or an object with a name",
        Type::Object => "an object",
        Type::Array => "a list",
        Type::String => "a string",
        Type::Integer => "an integer",
        Type::Number => "a number",
        Type::Boolean => "a boolean",
        Type::IntOrString => "an integer or a string",
        Type::Any => "anything",
    };
    let hint = match (&node.data, schema.kind) {
        (Data::Number(_) | Data::Bool(_), Type::String) | (Data::Number(_), Type::IntOrString) => {
            Some("put the value in quotes")
        }
        (Data::String(_), Type::Boolean) => {
            Some("only true and false are booleans, without quotes")
        }
        (Data::String(text), Type::Integer | Type::Number)
            if text.trim().parse::<f64>().is_ok() =>
        {
            Some("write the number without quotes")
        }
        (Data::Number(_), Type::Integer) => {
            Some("write a whole number without fraction or exponent")
        }
        (_, Type::Array) => Some("start each item with \"- \""),
        _ => None,
    };
    let message = format!("`{field}` must be {wanted}, not {}", node.type_name());
    sink.error(node.at, Code::WrongType, message, hint.map(str::to_owned));
}

fn check_object(
    schema: &Schema,
    node: &Node,
    entries: &[Entry],
    field: &Field<'_>,
    sink: &mut Sink<'_>,
) {
    check_size(
        entries.len(),
        schema.min_properties,
        schema.max_properties,
        "entries",
        node.at,
        field,
        sink,
    );
    let mut given = BTreeSet::new();
    for entry in entries {
        given.insert(entry.key.as_str());
        let child = Field::Key(field, &entry.key);
        match schema.properties.get(&entry.key).or(schema.additional.as_deref()) {
            Some(schema) => check(schema, &entry.value, &child, sink),
            None => unknown_field(schema, entry, field, sink),
        }
    }
    for name in schema.required.iter().filter(|name| !given.contains(name.as_str())) {
        let child = Field::Key(field, name);
        sink.error(node.at, Code::MissingField, format!("`{child}` is missing"), None);
    }
}

fn unknown_field(schema: &Schema, entry: &Entry, field: &Field<'_>, sink: &mut Sink<'_>) {
    let names = || {
        let files = schema.files.iter().map(|(name, _)| *name);
        schema.properties.keys().map(String::as_str).chain(files)
    };
    let hint = did_you_mean(&entry.key, names()).or_else(|| match names().count() {
        0 => Some("this object has no fields".to_owned()),
        count if count <= SHORT_LIST => Some(format!("its fields are {}", join(names()))),
        _ => None,
    });
    let message = match field {
        Field::Root => format!("unknown field `{}`", clip(&entry.key)),
        _ => format!("unknown field `{}` in `{field}`", clip(&entry.key)),
    };
    sink.error(entry.key_at, Code::UnknownField, message, hint);
}

fn check_list(
    schema: &Schema,
    node: &Node,
    items: &[Node],
    field: &Field<'_>,
    sink: &mut Sink<'_>,
) {
    check_size(items.len(), schema.min_items, schema.max_items, "items", node.at, field, sink);
    if let Some(of) = &schema.items {
        for (index, item) in items.iter().enumerate() {
            check(of, item, &Field::Index(field, index), sink);
        }
    }
    match &schema.list {
        ListKind::Atomic => {}
        ListKind::Set => {
            let mut seen = HashSet::new();
            for item in items {
                if !seen.insert(item.to_value().to_string()) {
                    sink.error(
                        item.at,
                        Code::DuplicateItem,
                        format!("an item of `{field}` is given twice"),
                        None,
                    );
                }
            }
        }
        ListKind::Map(keys) => check_list_map(keys, items, field, sink),
    }
}

fn check_list_map(keys: &[String], items: &[Node], field: &Field<'_>, sink: &mut Sink<'_>) {
    let mut seen = HashSet::new();
    for item in items {
        let values: Vec<_> = keys.iter().map(|key| item.get(key)).collect();
        let [Some(first), ..] = values[..] else { continue };
        let id = values.iter().map(|value| value.map_or(Value::Null, Node::to_value).to_string());
        if !first.is_unknown() && !seen.insert(id.collect::<Vec<_>>()) {
            let name = first.as_str().map(clip).unwrap_or_default();
            let message = format!("`{field}` has two items with {} `{name}`", keys.join(" and "));
            sink.error(
                first.at,
                Code::DuplicateItem,
                message,
                Some("remove one of the two".to_owned()),
            );
        }
    }
}

fn check_string(schema: &Schema, at: Position, text: &str, field: &Field<'_>, sink: &mut Sink<'_>) {
    if !schema.allowed.is_empty() {
        let allowed = || schema.allowed.iter().filter_map(Value::as_str);
        if !allowed().any(|value| value == text) {
            let message =
                format!("`{field}` must be one of {}, not `{}`", join(allowed()), clip(text));
            sink.error(at, Code::NotAllowed, message, did_you_mean(text, allowed()));
        }
        return;
    }
    // One complaint a value: a string of the wrong length mostly has the wrong form as well.
    let length = text.chars().count();
    if !check_size(length, schema.min_length, schema.max_length, "characters", at, field, sink) {
        return;
    }
    // The value itself is never quoted: a URL may hold a password.
    if let Some(pattern) = schema.pattern.as_ref().filter(|pattern| !pattern.is_match(text)) {
        let message = if pattern.as_str() == DNS_LABEL {
            format!("`{field}` must be a DNS label: lower-case letters, digits and '-'")
        } else {
            format!("`{field}` does not match {}", pattern.as_str())
        };
        sink.error(at, Code::WrongForm, message, form_hint(text).map(str::to_owned));
    }
}

/// The usual reasons why a string has the wrong form.
fn form_hint(text: &str) -> Option<&'static str> {
    if text.trim() != text {
        Some("remove the white space around it")
    } else if text.contains("://") && text.contains('@') {
        Some("a URL must not hold a user or password")
    } else {
        None
    }
}

fn check_number(
    schema: &Schema,
    at: Position,
    number: &Number,
    field: &Field<'_>,
    sink: &mut Sink<'_>,
) {
    if let Some((low, high)) = schema.integer_bounds
        && !number.as_i64().is_some_and(|value| (low..=high).contains(&value))
    {
        sink.error(
            at,
            Code::OutOfRange,
            format!("`{field}` must be between {low} and {high}"),
            None,
        );
        return;
    }
    let value = number.as_f64().unwrap_or(f64::NAN);
    let below = schema.minimum.is_some_and(|minimum| value < minimum);
    let above = schema.maximum.is_some_and(|maximum| value > maximum);
    if below || above {
        let bounds = match (schema.minimum, schema.maximum) {
            (Some(low), Some(high)) => format!("between {low} and {high}"),
            (Some(low), None) => format!("at least {low}"),
            (None, Some(high)) => format!("at most {high}"),
            (None, None) => return,
        };
        sink.error(at, Code::OutOfRange, format!("`{field}` must be {bounds}, not {number}"), None);
    }
}

fn check_size(
    size: usize,
    min: Option<u64>,
    max: Option<u64>,
    unit: &str,
    at: Position,
    field: &Field<'_>,
    sink: &mut Sink<'_>,
) -> bool {
    let size = size as u64;
    let message = match (min, max) {
        (Some(min), _) if size < min && size == 0 => format!("`{field}` must not be empty"),
        (Some(min), _) if size < min => {
            format!("`{field}` must have at least {min} {unit}, not {size}")
        }
        (_, Some(max)) if size > max => {
            format!("`{field}` must have at most {max} {unit}, not {size}")
        }
        _ => return true,
    };
    sink.error(at, Code::WrongSize, message, None);
    false
}

fn join<'a>(names: impl Iterator<Item = &'a str>) -> String {
    names.collect::<Vec<_>>().join(", ")
}
