//! The differences between two specs of one kind, in the words of agents: model, prompt, tools, Secrets.
//!
//! Two specs are equal exactly when there are no differences. Values that may be secret are not shown: literal environment
//! variables, build arguments and parameters of builds, fields whose names end like `…_KEY`, and the query of a URL.

use std::collections::{BTreeMap, BTreeSet};

use imara_diff::{Algorithm, Diff, InternedInput};
use serde::Serialize;
use serde_json::{Map, Value};

use crate::api::Kind;
use crate::text::printable;

/// Longest value that is shown, in characters. Of longer texts only the numbers of changed lines are shown.
const MAX_SHOWN_CHARS: usize = 60;
/// Ends of names whose values are never shown, in upper case.
const SECRET_ENDS: &[&str] =
    &["KEY", "TOKEN", "PASSWORD", "PASSWD", "PASSPHRASE", "SECRET", "CREDENTIAL", "CREDENTIALS"];
/// Fields that hold literal values by name.
const LITERALS: &[&str] = &["env", "buildArgs", "parameters"];

/// One difference.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Change {
    /// The field, such as `config.instructions` or `sidecars[web].image`. Empty: the whole spec.
    pub field: String,
    /// A common name of the field. Empty: it has none.
    #[serde(skip)]
    pub label: &'static str,
    /// The change of the field.
    #[serde(flatten)]
    pub what: What,
}

/// The change of a field.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "type")]
pub enum What {
    /// Another value. `None`: there was or is none.
    Value {
        /// Before, shortened.
        old: Option<Value>,
        /// After, shortened.
        new: Option<Value>,
    },
    /// Another value, which may be secret and is not shown.
    Hidden {
        /// Whether there was one before.
        was: bool,
        /// Whether there is one now.
        is: bool,
    },
    /// Other lines in a text.
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
    /// Other items in a list of names, or of objects with names.
    Names {
        /// Names that are new.
        added: Vec<String>,
        /// Names that are gone.
        removed: Vec<String>,
        /// Names of objects that differ.
        changed: Vec<String>,
        /// Whether the remaining ones are in another order.
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

/// The differences between two specs, in the order of their fields. References to Secrets come last.
#[must_use]
pub fn changes(kind: Kind, old: &Value, new: &Value) -> Vec<Change> {
    let mut walk = Walk { kind, out: Vec::new() };
    walk.field("", Shown::Yes, Some(old), Some(new));
    let Walk { mut out, .. } = walk;
    let (before, after) = (secrets(old), secrets(new));
    out.extend(after.difference(&before).map(|name| Change::new_secret_reference(name)));
    out.extend(before.difference(&after).map(|name| Change::lost_secret_reference(name)));
    out
}

impl Change {
    /// The spec names a Secret that it did not name.
    #[must_use]
    pub fn new_secret_reference(name: &str) -> Self {
        Self::of_spec(What::SecretReference { name: name.to_owned(), new: true })
    }

    /// The spec no longer names a Secret.
    fn lost_secret_reference(name: &str) -> Self {
        Self::of_spec(What::SecretReference { name: name.to_owned(), new: false })
    }

    fn of_spec(what: What) -> Self {
        Self { field: String::new(), label: "", what }
    }
}

/// The difference between two maps of labels or annotations: only their names are shown.
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

/// The names of the Secrets that a spec refers to.
#[must_use]
pub fn secrets(spec: &Value) -> BTreeSet<String> {
    match spec {
        Value::Object(map) => map.iter().flat_map(|(key, value)| secrets_of(key, value)).collect(),
        Value::Array(list) => list.iter().flat_map(secrets).collect(),
        _ => BTreeSet::new(),
    }
}

/// The names of the Secrets that one field refers to.
fn secrets_of(key: &str, value: &Value) -> BTreeSet<String> {
    let key = key.to_ascii_lowercase();
    match value.get("name").and_then(Value::as_str) {
        Some(name) if key.ends_with("secretkeyref") || key.ends_with("secretref") => {
            BTreeSet::from([name.to_owned()])
        }
        _ => secrets(value),
    }
}

/// Whether the values of a field are shown.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Shown {
    Yes,
    /// They may be secret: the name of the field, or of one above it, says so.
    No,
}

impl Shown {
    /// The same, or [`Self::No`] if `secret` is true.
    fn unless(self, secret: bool) -> Self {
        if secret { Self::No } else { self }
    }
}

struct Walk {
    kind: Kind,
    out: Vec<Change>,
}

impl Walk {
    fn add(&mut self, field: &str, what: What) {
        let label = label(self.kind, field);
        self.out.push(Change { field: field.to_owned(), label, what });
    }

    /// Compares one field.
    fn field(&mut self, field: &str, shown: Shown, old: Option<&Value>, new: Option<&Value>) {
        if old == new {
            return;
        }
        if let (Some(old), Some(new)) = (reference(field, old), reference(field, new))
            && old != new
        {
            let value = |text: Option<String>| text.map(|text| shortened(&Value::from(text)));
            return self.add(field, What::Value { old: value(old), new: value(new) });
        }
        match (old, new) {
            (None | Some(Value::Object(_)), None | Some(Value::Object(_))) => {
                let nothing = Map::new();
                let map = |value: Option<&'_ Value>| value.and_then(Value::as_object).cloned();
                let (a, b) = (map(old), map(new));
                let (a, b) = (a.as_ref().unwrap_or(&nothing), b.as_ref().unwrap_or(&nothing));
                if a.is_empty() && b.is_empty() {
                    return self.leaf(field, shown, old, new);
                }
                if LITERALS.contains(&last(field))
                    && let Some(what) = keys(a, b)
                {
                    return self.add(field, what);
                }
                for key in a.keys().chain(b.keys()).collect::<BTreeSet<_>>() {
                    let below =
                        if field.is_empty() { key.clone() } else { format!("{field}.{key}") };
                    let shown = shown.unless(may_be_secret(key));
                    self.field(&below, shown, a.get(key), b.get(key));
                }
            }
            (None | Some(Value::Array(_)), None | Some(Value::Array(_))) => {
                let list = |value: Option<&Value>| {
                    value.and_then(Value::as_array).cloned().unwrap_or_default()
                };
                let (a, b) = (list(old), list(new));
                if a.is_empty() && b.is_empty() {
                    self.leaf(field, shown, old, new);
                } else {
                    self.list(field, shown, &a, &b);
                }
            }
            _ => self.leaf(field, shown, old, new),
        }
    }

    fn list(&mut self, field: &str, shown: Shown, old: &[Value], new: &[Value]) {
        let literal = LITERALS.contains(&last(field));
        let (Some(a), Some(b)) = (by_name(old), by_name(new)) else {
            for index in 0..old.len().max(new.len()) {
                let below = format!("{field}[{index}]");
                self.field(&below, shown.unless(literal), old.get(index), new.get(index));
            }
            return;
        };
        if shown == Shown::No {
            return self.add(field, What::Hidden { was: !old.is_empty(), is: !new.is_empty() });
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
            self.add(field, What::Names { added, removed, changed, reordered });
        }
        if !literal {
            for name in differ {
                let below = format!("{field}[{}]", without_secrets(&name));
                let (old, new) = (before.get(name.as_str()), after.get(name.as_str()));
                self.field(&below, shown, old.copied(), new.copied());
            }
        }
    }

    fn leaf(&mut self, field: &str, shown: Shown, old: Option<&Value>, new: Option<&Value>) {
        let hidden = What::Hidden { was: old.is_some(), is: new.is_some() };
        if shown == Shown::No {
            return self.add(field, hidden);
        }
        let text = |value: Option<&Value>| {
            value.and_then(Value::as_str).is_some_and(|text| {
                text.contains('\n') || text.chars().nth(MAX_SHOWN_CHARS).is_some()
            })
        };
        let plain = |value: Option<&Value>| value.is_none_or(Value::is_string);
        if (text(old) || text(new)) && plain(old) && plain(new) {
            let content = |value: Option<&Value>| {
                value.and_then(Value::as_str).unwrap_or_default().to_owned()
            };
            let (a, b) = (content(old), content(new));
            let diff =
                Diff::compute(Algorithm::Histogram, &InternedInput::new(a.as_str(), b.as_str()));
            return self.add(
                field,
                What::Text {
                    was: old.is_some(),
                    is: new.is_some(),
                    added: diff.count_additions(),
                    removed: diff.count_removals(),
                },
            );
        }
        let (old, new) = (old.map(shortened), new.map(shortened));
        // Different values that look the same when shortened: they differ in the part that is not shown.
        let same = old == new;
        self.add(field, if same { hidden } else { What::Value { old, new } });
    }
}

/// The items of a list with their names. `None` when one has no name, or two have the same.
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

/// A reference to a key of a Secret or ConfigMap as one value: `Secret openai[api-key]`. The outer `None`: the field is no
/// such reference, or has other fields as well. The inner `None`: the field is not there.
#[allow(clippy::option_option, reason = "the two have a meaning of their own")]
fn reference(field: &str, value: Option<&Value>) -> Option<Option<String>> {
    let kind = match last(field) {
        "secretKeyRef" | "providerSecretRef" => "Secret",
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
    // Fields with these names hold names of Secrets and of their keys.
    if name.ends_with("Ref") || name.ends_with("From") {
        return false;
    }
    let name = name.to_ascii_uppercase();
    SECRET_ENDS.iter().any(|end| name.ends_with(end))
}

/// A value as it may be shown: short, printable, and without the user and the query of a URL.
fn shortened(value: &Value) -> Value {
    match value {
        Value::String(text) => Value::String(short(&without_secrets(text))),
        Value::Array(list) => Value::from(if list.is_empty() { "[]" } else { "[…]" }),
        Value::Object(map) => Value::from(if map.is_empty() { "{}" } else { "{…}" }),
        plain => plain.clone(),
    }
}

/// At most [`MAX_SHOWN_CHARS`] printable characters.
pub(super) fn short(text: &str) -> String {
    let text = printable(text);
    if text.chars().nth(MAX_SHOWN_CHARS).is_some() {
        text.chars().take(MAX_SHOWN_CHARS - 1).chain(['…']).collect()
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

/// The common name of a field. Empty: it has none.
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

#[cfg(test)]
#[path = "tests/difference.rs"]
mod tests;
