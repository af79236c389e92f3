//! What differs between two specs of one kind, in the words of agents: model, prompt, tools, Secrets.
//!
//! Two specs are equal exactly when nothing is told. What may be secret is told without its value: literal environment
//! variables and build arguments, fields whose names end like `…_KEY`, and whatever follows the `?` of a URL.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use imara_diff::{Algorithm, Diff, InternedInput};
use serde::Serialize;
use serde_json::{Map, Value};

use crate::api::Kind;
use crate::text::printable;

/// Longest value that is shown, in characters; longer texts are told by their lines.
const MOST_CHARS: usize = 60;
/// Names that one line lists; the JSON form has them all.
const MOST_NAMES: usize = 10;
/// Ends of names whose values are never shown, in upper case.
const SECRET_ENDS: &[&str] =
    &["KEY", "TOKEN", "PASSWORD", "PASSWD", "PASSPHRASE", "SECRET", "CREDENTIAL", "CREDENTIALS"];
/// Fields that hold literal values by name.
const LITERALS: &[&str] = &["env", "buildArgs"];

/// One difference.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Change {
    /// The field, like `config.instructions` or `sidecars[web].image`; empty for what concerns the whole spec.
    pub field: String,
    /// How people call the field.
    #[serde(skip)]
    pub label: &'static str,
    /// What became of it.
    #[serde(flatten)]
    pub what: What,
}

/// What became of a field.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "type")]
pub enum What {
    /// One value instead of another. `None`: there was or is none.
    Value {
        /// Before, shortened.
        old: Option<Value>,
        /// After, shortened.
        new: Option<Value>,
    },
    /// A value that may be secret.
    Hidden {
        /// Whether there was one before.
        was: bool,
        /// Whether there is one now.
        is: bool,
    },
    /// Lines of a text.
    Text {
        /// Whether there was one before.
        was: bool,
        /// Whether there is one now.
        is: bool,
        /// Lines that are new.
        added: u32,
        /// Lines that are gone.
        removed: u32,
    },
    /// A list of names, or of things with names.
    Names {
        /// Names that are new.
        added: Vec<String>,
        /// Names that are gone.
        removed: Vec<String>,
        /// Names of things that differ.
        changed: Vec<String>,
        /// Whether those that stayed stand in another order.
        reordered: bool,
    },
    /// The spec names a Secret that it did not name, or no longer names one.
    SecretReference {
        /// Name of the Secret.
        name: String,
        /// Whether it is new.
        new: bool,
    },
}

/// What differs between two specs, in the order of their fields; references to Secrets last.
#[must_use]
pub fn changes(kind: Kind, old: &Value, new: &Value) -> Vec<Change> {
    let mut walk = Walk { kind, out: Vec::new() };
    walk.field("", false, Some(old), Some(new));
    let Walk { mut out, .. } = walk;
    let (before, after) = (secrets(old), secrets(new));
    out.extend(after.difference(&before).map(|name| Change::secret_reference(name, true)));
    out.extend(before.difference(&after).map(|name| Change::secret_reference(name, false)));
    out
}

impl Change {
    /// The spec names that Secret newly, or no longer.
    #[must_use]
    pub fn secret_reference(name: &str, new: bool) -> Self {
        let what = What::SecretReference { name: name.to_owned(), new };
        Self { field: String::new(), label: "", what }
    }
}

/// Names of labels or annotations that differ.
#[must_use]
pub fn metadata_change(
    field: &'static str,
    old: &BTreeMap<String, String>,
    new: &BTreeMap<String, String>,
) -> Option<Change> {
    let map = |map: &BTreeMap<String, String>| {
        map.iter().map(|(key, value)| (key.clone(), Value::from(value.as_str()))).collect()
    };
    let what = keys(&map(old), &map(new))?;
    Some(Change { field: field.into(), label: field, what })
}

/// The Secrets that a spec names.
#[must_use]
pub fn secrets(spec: &Value) -> BTreeSet<String> {
    fn collect(value: &Value, names: &mut BTreeSet<String>) {
        match value {
            Value::Object(map) => {
                for (key, value) in map {
                    let key = key.to_ascii_lowercase();
                    if let Some(name) = value.get("name").and_then(Value::as_str)
                        && (key.ends_with("secretkeyref") || key.ends_with("secretref"))
                    {
                        names.insert(name.to_owned());
                    } else {
                        collect(value, names);
                    }
                }
            }
            Value::Array(list) => list.iter().for_each(|value| collect(value, names)),
            _ => {}
        }
    }
    let mut names = BTreeSet::new();
    collect(spec, &mut names);
    names
}

struct Walk {
    kind: Kind,
    out: Vec<Change>,
}

impl Walk {
    fn told(&mut self, field: &str, what: What) {
        let label = label(self.kind, field);
        self.out.push(Change { field: field.to_owned(), label, what });
    }

    /// One field; `secret` when the name of a field above it says so.
    fn field(&mut self, field: &str, secret: bool, old: Option<&Value>, new: Option<&Value>) {
        if old == new {
            return;
        }
        if let (Some(old), Some(new)) = (reference(field, old), reference(field, new))
            && old != new
        {
            let value = |text: Option<String>| text.map(|text| shown(&Value::from(text)));
            return self.told(field, What::Value { old: value(old), new: value(new) });
        }
        match (old, new) {
            (None | Some(Value::Object(_)), None | Some(Value::Object(_))) => {
                let nothing = Map::new();
                let map = |value: Option<&'_ Value>| value.and_then(Value::as_object).cloned();
                let (a, b) = (map(old), map(new));
                let (a, b) = (a.as_ref().unwrap_or(&nothing), b.as_ref().unwrap_or(&nothing));
                if a.is_empty() && b.is_empty() {
                    return self.leaf(field, secret, old, new);
                }
                if LITERALS.contains(&last(field))
                    && let Some(what) = keys(a, b)
                {
                    return self.told(field, what);
                }
                for key in a.keys().chain(b.keys()).collect::<BTreeSet<_>>() {
                    let below =
                        if field.is_empty() { key.clone() } else { format!("{field}.{key}") };
                    self.field(&below, secret || may_be_secret(key), a.get(key), b.get(key));
                }
            }
            (None | Some(Value::Array(_)), None | Some(Value::Array(_))) => {
                let list = |value: Option<&Value>| {
                    value.and_then(Value::as_array).cloned().unwrap_or_default()
                };
                let (a, b) = (list(old), list(new));
                if a.is_empty() && b.is_empty() {
                    self.leaf(field, secret, old, new);
                } else {
                    self.list(field, secret, &a, &b);
                }
            }
            _ => self.leaf(field, secret, old, new),
        }
    }

    fn list(&mut self, field: &str, secret: bool, old: &[Value], new: &[Value]) {
        let literal = LITERALS.contains(&last(field));
        let (Some(a), Some(b)) = (by_name(old), by_name(new)) else {
            for index in 0..old.len().max(new.len()) {
                let below = format!("{field}[{index}]");
                self.field(&below, secret || literal, old.get(index), new.get(index));
            }
            return;
        };
        if secret {
            return self.told(field, What::Hidden { was: !old.is_empty(), is: !new.is_empty() });
        }
        let only = |some: &[(&str, &Value)], others: &[(&str, &Value)]| -> Vec<String> {
            let others: BTreeSet<_> = others.iter().map(|(name, _)| *name).collect();
            some.iter()
                .filter(|(name, _)| !others.contains(name))
                .map(|(name, _)| without_secrets(name))
                .collect()
        };
        let (added, removed) = (only(&b, &a), only(&a, &b));
        let before: BTreeMap<_, _> = a.iter().copied().collect();
        let after: BTreeMap<_, _> = b.iter().copied().collect();
        let stayed = |list: &[(&str, &Value)]| -> Vec<String> {
            list.iter()
                .filter(|(name, _)| before.contains_key(name) && after.contains_key(name))
                .map(|(name, _)| (*name).to_owned())
                .collect()
        };
        let (order, new_order) = (stayed(&a), stayed(&b));
        let reordered = order != new_order;
        let differ: Vec<_> = order
            .into_iter()
            .filter(|name| before.get(name.as_str()) != after.get(name.as_str()))
            .collect();
        let changed = if literal { differ.clone() } else { Vec::new() };
        if !added.is_empty() || !removed.is_empty() || !changed.is_empty() || reordered {
            self.told(field, What::Names { added, removed, changed, reordered });
        }
        if !literal {
            for name in differ {
                let below = format!("{field}[{}]", without_secrets(&name));
                let (old, new) = (before.get(name.as_str()), after.get(name.as_str()));
                self.field(&below, secret, old.copied(), new.copied());
            }
        }
    }

    fn leaf(&mut self, field: &str, secret: bool, old: Option<&Value>, new: Option<&Value>) {
        let hidden = What::Hidden { was: old.is_some(), is: new.is_some() };
        if secret {
            return self.told(field, hidden);
        }
        let text = |value: Option<&Value>| {
            value
                .and_then(Value::as_str)
                .is_some_and(|text| text.contains('\n') || text.chars().nth(MOST_CHARS).is_some())
        };
        let plain = |value: Option<&Value>| value.is_none_or(Value::is_string);
        if (text(old) || text(new)) && plain(old) && plain(new) {
            let content = |value: Option<&Value>| {
                value.and_then(Value::as_str).unwrap_or_default().to_owned()
            };
            let (a, b) = (content(old), content(new));
            let diff =
                Diff::compute(Algorithm::Histogram, &InternedInput::new(a.as_str(), b.as_str()));
            return self.told(
                field,
                What::Text {
                    was: old.is_some(),
                    is: new.is_some(),
                    added: diff.count_additions(),
                    removed: diff.count_removals(),
                },
            );
        }
        let (old, new) = (old.map(shown), new.map(shown));
        // What differs is exactly what is not shown.
        let same = old == new;
        self.told(field, if same { hidden } else { What::Value { old, new } });
    }
}

/// Things by their names, when each has one and no two have the same.
fn by_name(list: &[Value]) -> Option<Vec<(&str, &Value)>> {
    let named: Vec<_> = list
        .iter()
        .map(|item| Some((item.as_str().or_else(|| item.get("name")?.as_str())?, item)))
        .collect::<Option<_>>()?;
    let unique: BTreeSet<_> = named.iter().map(|(name, _)| *name).collect();
    (unique.len() == named.len()).then_some(named)
}

/// The keys of two maps that differ, without their values. `None` when the maps are equal.
fn keys(old: &Map<String, Value>, new: &Map<String, Value>) -> Option<What> {
    let only = |some: &Map<String, Value>, others: &Map<String, Value>| -> Vec<String> {
        some.keys().filter(|key| !others.contains_key(*key)).cloned().collect()
    };
    let changed = old.iter().filter(|(key, value)| new.get(*key).is_some_and(|v| v != *value));
    (old != new).then(|| What::Names {
        added: only(new, old),
        removed: only(old, new),
        changed: changed.map(|(key, _)| key.clone()).collect(),
        reordered: false,
    })
}

/// A reference to a key of a Secret or ConfigMap, written as one value: `Secret openai[api-key]`. The outer `None`:
/// the field is none, or holds more than that.
#[allow(clippy::option_option)] // said in the line above
fn reference(field: &str, value: Option<&Value>) -> Option<Option<String>> {
    let kind = match last(field) {
        "secretKeyRef" => "Secret",
        "configMapKeyRef" => "ConfigMap",
        _ => return None,
    };
    let Some(value) = value else { return Some(None) };
    let map = value.as_object()?;
    let (name, key) = (map.get("name")?.as_str()?, map.get("key")?.as_str()?);
    let optional = match map.get("optional") {
        None => "",
        Some(Value::Bool(true)) => " (optional)",
        Some(_) => " (not optional)",
    };
    (map.len() == 2 || (map.len() == 3 && !optional.is_empty()))
        .then(|| Some(format!("{kind} {name}[{key}]{optional}")))
}

/// The last name of a path.
fn last(field: &str) -> &str {
    field.rsplit('.').next().unwrap_or(field)
}

fn may_be_secret(name: &str) -> bool {
    // These hold names of Secrets and of their keys.
    if name.ends_with("Ref") || name.ends_with("From") {
        return false;
    }
    let name = name.to_ascii_uppercase();
    SECRET_ENDS.iter().any(|end| name.ends_with(end))
}

/// A value as it may be shown: short, printable, and without what a URL may carry in secret.
fn shown(value: &Value) -> Value {
    match value {
        Value::String(text) => Value::String(short(&without_secrets(text))),
        Value::Array(list) => Value::from(if list.is_empty() { "[]" } else { "[…]" }),
        Value::Object(map) => Value::from(if map.is_empty() { "{}" } else { "{…}" }),
        plain => plain.clone(),
    }
}

/// At most [`MOST_CHARS`] characters, none of which moves a cursor.
fn short(text: &str) -> String {
    let text = printable(text);
    if text.chars().nth(MOST_CHARS).is_some() {
        text.chars().take(MOST_CHARS - 1).chain(['…']).collect()
    } else {
        text
    }
}

/// A URL without its user and its query; any other text as it is.
fn without_secrets(text: &str) -> String {
    let Some((scheme, rest)) = text.split_once("://") else { return text.to_owned() };
    let (rest, query) = match rest.split_once('?') {
        Some((rest, _)) => (rest, "?…"),
        None => (rest, ""),
    };
    let end = rest.find('/').unwrap_or(rest.len());
    let rest = match rest[..end].rfind('@') {
        Some(at) => format!("…{}", &rest[at..]),
        None => rest.to_owned(),
    };
    format!("{scheme}://{rest}{query}")
}

/// How people call a field.
fn label(kind: Kind, field: &str) -> &'static str {
    match (kind, field) {
        (Kind::Agent, "config.instructions") => "prompt",
        (Kind::Agent, "mcpServers") => "tools",
        (Kind::Agent, "agentNetwork.access") => "peers",
        (Kind::Agent, "modelAPI.name") => "modelAPI",
        (Kind::Agent | Kind::MCPServer, "buildRef.name") => "buildRef",
        (Kind::ModelAPI, "proxy.models") => "models",
        (Kind::ModelAPI, "proxy.provider") => "provider",
        (Kind::ModelAPI, "hosted.model") => "model",
        (Kind::ModelAPI, "external.url") | (Kind::MCPServer, "remote.url") => "url",
        (Kind::MCPServer, "toolsString") => "tools code",
        (Kind::MCPServer, "package.name") => "package",
        (Kind::MCPServer, "package.version") => "version",
        _ => "",
    }
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let field = short(&self.field);
        let label = match (self.label, self.field.as_str()) {
            ("", "") => "spec",
            ("", _) => field.as_str(),
            (label, _) => label,
        };
        match &self.what {
            What::Value { old: Some(old), new: Some(new) } => {
                write!(f, "{label} {} → {}", plain(old), plain(new))
            }
            What::Value { old: None, new: Some(new) } => {
                write!(f, "{label} set to {}", plain(new))
            }
            What::Value { old: Some(old), new: None } => {
                write!(f, "{label} removed (was {})", plain(old))
            }
            What::Value { old: None, new: None } => write!(f, "{label} changed"),
            What::Hidden { was, is } => {
                let verb = verb(*was, *is);
                write!(f, "{label} {verb} (value not shown)")
            }
            What::Text { was, is, added, removed } => {
                let lines = added + removed;
                let lines = format!("{lines} line{}", if lines == 1 { "" } else { "s" });
                match (was, is) {
                    (true, true) => write!(f, "{label}: {lines} changed (+{added} −{removed})"),
                    (was, is) => write!(f, "{label} {} ({lines})", verb(*was, *is)),
                }
            }
            What::Names { added, removed, changed, reordered } => {
                names(f, label, added, removed, changed, *reordered)
            }
            What::SecretReference { name, new: true } => {
                write!(f, "new Secret reference {}", short(name))
            }
            What::SecretReference { name, new: false } => {
                write!(f, "no more Secret reference {}", short(name))
            }
        }
    }
}

fn verb(was: bool, is: bool) -> &'static str {
    match (was, is) {
        (false, true) => "set",
        (true, false) => "removed",
        _ => "changed",
    }
}

/// A text without quotes, anything else as JSON.
fn plain(value: &Value) -> String {
    match value {
        Value::String(text) if text.is_empty() => "\"\"".into(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

fn names(
    f: &mut fmt::Formatter<'_>,
    label: &str,
    added: &[String],
    removed: &[String],
    changed: &[String],
    reordered: bool,
) -> fmt::Result {
    let parts = [('+', "added", added), ('−', "removed", removed), ('~', "changed", changed)];
    let parts: Vec<_> = parts.into_iter().filter(|(_, _, names)| !names.is_empty()).collect();
    f.write_str(label)?;
    if let [(sign, _, [only])] = parts.as_slice() {
        write!(f, " {sign}{}", short(only))?;
    } else if !parts.is_empty() {
        let mut lists = Vec::new();
        for (sign, word, names) in parts {
            write!(f, " {sign}{}", names.len())?;
            let listed: Vec<_> = names.iter().take(MOST_NAMES).map(|name| short(name)).collect();
            let more = match names.len().saturating_sub(MOST_NAMES) {
                0 => String::new(),
                more => format!(" and {more} more"),
            };
            lists.push(format!("{word}: {}{more}", listed.join(", ")));
        }
        write!(f, " ({})", lists.join("; "))?;
    }
    if reordered { f.write_str(" in another order") } else { Ok(()) }
}

#[cfg(test)]
#[path = "tests/difference.rs"]
mod tests;
