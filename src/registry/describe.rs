//! (pure) What rules see of an image: its manifest and its configuration, and some of that in a form that is easy to ask about.
//!
//! Both come from whoever wrote the Dockerfile. Programs in Go read a name twice, and in any case of letters. What they could read in another way is
//! refused, so that no rule sees something else than what runs.
#![deny(clippy::disallowed_types, clippy::disallowed_methods)]

use std::fmt;

use serde::de::{DeserializeSeed, Error, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value, json};

use super::error::shown;
use super::manifest::Digest;
use convoke_core::text::quote;

/// Names of the configuration that are asked about, or that decide what runs.
const KNOWN: [&str; 12] = [
    "config",
    "history",
    "architecture",
    "os",
    "User",
    "Env",
    "Entrypoint",
    "Cmd",
    "ExposedPorts",
    "Labels",
    "Volumes",
    "WorkingDir",
];

/// The most ports of an image.
const MAX_PORTS: usize = 1000;

/// What is known of the build: texts by the names that rules use.
pub type Build<'a> = [(&'static str, &'a str)];

/// What rules see. `size` are the bytes of configuration and layers, as they are pushed.
///
/// # Errors
/// Why manifest or configuration could be read in more than one way.
pub fn describe(
    build: &Build<'_>,
    (digest, size): (&Digest, u64),
    manifest: &[u8],
    config: &[u8],
) -> Result<Value, String> {
    let manifest = parsed(manifest).map_err(|why| format!("the manifest: {why}"))?;
    let config = parsed(config).map_err(|why| format!("the configuration: {why}"))?;
    let invalid = |why: String| format!("the configuration: {why}");
    let run = match &config["config"] {
        Value::Null => &Map::new(),
        Value::Object(run) => run,
        _ => return Err(invalid("config is no object".into())),
    };
    let top = config.as_object().ok_or_else(|| invalid("it is no object".into()))?;
    for name in top.keys().chain(run.keys()) {
        let same = KNOWN.iter().find(|known| folded(known) == folded(name));
        if let Some(known) = same.filter(|known| **known != name.as_str()) {
            return Err(invalid(format!("it has {}, which some read as {known}", quote(name))));
        }
    }
    let text = |name: &str| match run.get(name) {
        None | Some(Value::Null) => Ok(String::new()),
        Some(Value::String(text)) => Ok(text.clone()),
        Some(_) => Err(invalid(format!("{name} is no text"))),
    };
    let history = list(&config, "history").map_err(invalid)?;
    let history = history.iter().map(|entry| match &entry["created_by"] {
        Value::Null => Ok(String::new()),
        Value::String(text) => Ok(text.clone()),
        _ => Err(invalid("an entry of history has a created_by that is no text".into())),
    });
    let build: Map<_, _> =
        build.iter().map(|(name, value)| ((*name).to_owned(), json!(value))).collect();
    Ok(json!({
        "build": build,
        "image": {
            "digest": digest.to_string(),
            "size": size,
            "user": text("User")?,
            "env": environment(run).map_err(invalid)?,
            "ports": ports(run).map_err(invalid)?,
            "labels": labels(run).map_err(invalid)?,
            "history": history.collect::<Result<Vec<_>, _>>()?,
            "config": config,
            "manifest": manifest,
        },
    }))
}

/// A name as Go's JSON compares it: two letters that are not of ASCII are taken for `s` and `k`.
fn folded(name: &str) -> String {
    let one = |letter| match letter {
        '\u{17f}' => 's',
        '\u{212a}' => 'k',
        letter => letter.to_ascii_lowercase(),
    };
    name.chars().map(one).collect()
}

/// What [`describe`] gives, as a JSON schema. With it, a rule that asks for a name that is not there does not compile.
#[must_use]
pub fn schema() -> Value {
    let text = || json!({"type": "string"});
    let object = |properties: Value| json!({"type": "object", "properties": properties});
    let list = |items: Value| json!({"type": "array", "items": items});
    object(json!({
        "build": object(json!({
            "image": text(), "strategy": text(), "repository": text(), "revision": text(),
            "subfolder": text(), "dockerfile": text(), "baseImage": text(),
        })),
        "image": object(json!({
            "digest": text(),
            "size": {"type": "integer"},
            "user": text(),
            "env": list(object(json!({"name": text(), "value": text()}))),
            "ports": list(object(json!({"port": {"type": "integer"}, "protocol": text()}))),
            "labels": {"type": "object", "additionalProperties": text()},
            "history": list(text()),
            "config": {},
            "manifest": {},
        })),
    }))
}

/// A list, which may be missing.
fn list<'a>(object: &'a Value, name: &str) -> Result<&'a [Value], String> {
    match &object[name] {
        Value::Null => Ok(&[]),
        Value::Array(list) => Ok(list),
        _ => Err(format!("{name} is no list")),
    }
}

/// The variables, in their order. One may be there twice.
fn environment(run: &Map<String, Value>) -> Result<Vec<Value>, String> {
    let variables = run.get("Env").filter(|env| !env.is_null());
    let Some(variables) = variables else { return Ok(Vec::new()) };
    let variables = variables.as_array().ok_or("Env is no list")?;
    let one = |variable: &Value| {
        let text = variable.as_str().ok_or("Env has something that is no text")?;
        let (name, value) = text.split_once('=').unwrap_or((text, ""));
        Ok(json!({"name": name, "value": value}))
    };
    variables.iter().map(one).collect()
}

/// The ports that the image says it listens on: `8080/tcp`, or `8080-8089/tcp` for some.
fn ports(run: &Map<String, Value>) -> Result<Vec<Value>, String> {
    let ports = run.get("ExposedPorts").filter(|ports| !ports.is_null());
    let Some(ports) = ports else { return Ok(Vec::new()) };
    let mut all = Vec::new();
    for name in ports.as_object().ok_or("ExposedPorts is no object")?.keys() {
        let (range, protocol) = name.split_once('/').unwrap_or((name, "tcp"));
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let number = |text: &str| text.parse::<u16>().ok().filter(|_| !text.starts_with('+'));
        let range = number(first).zip(number(last)).filter(|(first, last)| first <= last);
        let Some((first, last)) = range else {
            return Err(format!("ExposedPorts has {}, which is no port", quote(name)));
        };
        all.extend((first..=last).map(|port| json!({"port": port, "protocol": protocol})));
        if all.len() > MAX_PORTS {
            return Err(format!("ExposedPorts has more than {MAX_PORTS} ports"));
        }
    }
    Ok(all)
}

fn labels(run: &Map<String, Value>) -> Result<Value, String> {
    match run.get("Labels") {
        None | Some(Value::Null) => Ok(json!({})),
        Some(Value::Object(labels)) if labels.values().all(Value::is_string) => Ok(json!(labels)),
        Some(_) => Err("Labels is no object of texts".into()),
    }
}

/// Parses JSON in which no object has a name twice.
fn parsed(bytes: &[u8]) -> Result<Value, String> {
    let Once(value) = serde_json::from_slice(bytes).map_err(|error| shown(&error.to_string()))?;
    Ok(value)
}

/// A value in which no object has a name twice.
struct Once(Value);

impl<'de> Deserialize<'de> for Once {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Reading.deserialize(deserializer).map(Self)
    }
}

struct Reading;

impl<'de> DeserializeSeed<'de> for Reading {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Reading {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E: Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_string<E: Error>(self, value: String) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut all: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(one) = all.next_element_seed(Self)? {
            list.push(one);
        }
        Ok(list.into())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut all: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        while let Some(name) = all.next_key::<String>()? {
            let value = all.next_value_seed(Self)?;
            if map.contains_key(&name) {
                return Err(A::Error::custom(format!("{} is there twice", quote(&name))));
            }
            map.insert(name, value);
        }
        Ok(map.into())
    }
}

#[cfg(test)]
#[path = "tests/describe.rs"]
mod tests;
