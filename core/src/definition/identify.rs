//! Which object a document is: apiVersion, kind, metadata. Everything that may not come from Git is refused.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::diagnostic::{code, nearest, quote};
use super::document::escape;
use super::nul;
use super::schema::Finding;
use crate::api::{API_VERSION, GROUP, Kind, ObjectId, keys};

/// What a document is.
#[derive(Debug, PartialEq)]
pub enum Identity {
    /// Another project's object: left alone.
    Foreign,
    /// One of ours, as far as it could be read, with everything that is wrong with its head.
    Ours {
        /// Kind and name, when both could be read.
        id: Option<ObjectId>,
        /// Labels.
        labels: BTreeMap<String, String>,
        /// Annotations.
        annotations: BTreeMap<String, String>,
        /// What is wrong.
        findings: Vec<Finding>,
    },
}

/// Fields of `metadata` that belong to the API server or to us.
const REFUSED: &[&str] = &[
    "ownerReferences",
    "finalizers",
    "uid",
    "resourceVersion",
    "generation",
    "generateName",
    "managedFields",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "selfLink",
];

/// Bytes of all annotations: the API server takes 256 KiB, our own among them.
const MOST_ANNOTATIONS: usize = 240 << 10;

/// Identifies a document. `namespace` is the one that the sync writes into, when it is known.
pub fn identify(document: &Value, namespace: Option<&str>) -> Identity {
    let mut findings = Vec::new();
    let mut say =
        |pointer: &str, on_key: bool, code: &'static str, message: String, hint: Option<String>| {
            findings.push(Finding { pointer: pointer.to_owned(), on_key, code, message, hint });
        };
    let ours = |id, findings| Identity::Ours {
        id,
        labels: BTreeMap::new(),
        annotations: BTreeMap::new(),
        findings,
    };

    let Some(map) = document.as_object() else {
        let hint = Some("a definition begins with apiVersion, kind, metadata and spec".to_owned());
        say("", false, code::NOT_AN_OBJECT, "this document is no object".into(), hint);
        return ours(None, findings);
    };
    let api_version = map.get("apiVersion").and_then(Value::as_str);
    let kind_name = map.get("kind").and_then(Value::as_str);
    match api_version {
        None => {
            let hint = Some(format!(
                "add apiVersion: {API_VERSION}; files that are no definitions belong outside of this folder"
            ));
            let (at, message) = missing(map, "apiVersion");
            say(at, false, code::NOT_AN_OBJECT, message, hint);
        }
        Some(API_VERSION) => {}
        Some(other) => {
            let (group, version) = other.split_once('/').unwrap_or(("", other));
            if map.get("items").is_some_and(Value::is_array)
                && kind_name.is_none_or(|kind| kind.to_lowercase().trim().ends_with("list"))
                || other == "v1" && kind_name.is_some_and(|kind| kind.ends_with("List"))
            {
                let hint = Some("write one document an object".to_owned());
                say(
                    "/kind",
                    false,
                    code::KIND,
                    "a List is not accepted: objects in it would have no place".into(),
                    hint,
                );
                return ours(None, findings);
            }
            if group == GROUP {
                let message = format!("version {} of {GROUP} does not exist", quote(version));
                say(
                    "/apiVersion",
                    false,
                    code::API_VERSION,
                    message,
                    Some(format!("use {API_VERSION}")),
                );
            } else if distance(group, GROUP) <= 2
                || distance(other, API_VERSION) <= 4
                || other.to_lowercase().contains(GROUP)
            {
                let message = format!("{} is almost {API_VERSION}", quote(other));
                say(
                    "/apiVersion",
                    false,
                    code::API_VERSION,
                    message,
                    Some(format!("did you mean {API_VERSION}?")),
                );
            } else {
                let Some(kind_name) = kind_name else {
                    // Not to be told apart from one of ours that lost its kind.
                    let (at, message) = missing(map, "kind");
                    say(at, false, code::NOT_AN_OBJECT, message, Some("add the kind".into()));
                    return ours(None, findings);
                };
                // The core group has no kind like ours; other groups may have, and are left alone.
                if !(group.is_empty() && Kind::parse(kind_name).is_some()) {
                    return Identity::Foreign;
                }
                let message = format!("{kind_name} of {} is almost ours", quote(other));
                say(
                    "/apiVersion",
                    false,
                    code::API_VERSION,
                    message,
                    Some(format!("did you mean {API_VERSION}?")),
                );
            }
        }
    }

    let kind = match kind_name {
        None => {
            let hint = Some(format!("kinds: {}", names()));
            let (at, message) = missing(map, "kind");
            say(at, false, code::NOT_AN_OBJECT, message, hint);
            None
        }
        Some(name) => {
            let kind = Kind::parse(name);
            if kind.is_none() {
                let (message, hint) = match name {
                    "GitSync" => (
                        "a GitSync cannot be synced from Git".to_owned(),
                        "create it with kubectl: it decides what this repository may do".to_owned(),
                    ),
                    name if name.ends_with("List") => (
                        "a List is not accepted: objects in it would have no place".to_owned(),
                        "write one document an object".to_owned(),
                    ),
                    name => {
                        let near = nearest(name, Kind::ALL.iter().map(|k| k.as_str()));
                        let hint = near.map_or_else(
                            || format!("kinds: {}", names()),
                            |near| format!("did you mean {near}?"),
                        );
                        (format!("kind {} does not exist in {API_VERSION}", quote(name)), hint)
                    }
                };
                say("/kind", false, code::KIND, message, Some(hint));
            }
            kind
        }
    };

    for key in map
        .keys()
        .filter(|key| !matches!(key.as_str(), "apiVersion" | "kind" | "metadata" | "spec"))
    {
        let (message, hint) = if key == "status" {
            (
                "status may not come from Git".to_owned(),
                "remove it: the cluster writes it".to_owned(),
            )
        } else {
            let near = nearest(key, ["apiVersion", "kind", "metadata", "spec"].into_iter());
            let hint = near
                .map_or("fields here: apiVersion, kind, metadata, spec".to_owned(), |near| {
                    format!("did you mean {near}?")
                });
            (format!("unknown field {}", quote(key)), hint)
        };
        say(&format!("/{}", escape(key)), true, code::UNKNOWN_FIELD, message, Some(hint));
    }

    let mut name = None;
    let mut labels = BTreeMap::new();
    let mut annotations = BTreeMap::new();
    match map.get("metadata") {
        Some(Value::Object(metadata)) => {
            for (key, value) in metadata {
                let pointer = format!("/metadata/{}", escape(key));
                match key.as_str() {
                    "name" => match value.as_str() {
                        Some(text) if is_dns_label(text) => name = Some(text.to_owned()),
                        _ => {
                            let hint = Some("use lower-case letters, digits and '-', at most 63, beginning and ending with a letter or digit".to_owned());
                            let shown =
                                value.as_str().map_or_else(|| quote(&value.to_string()), quote);
                            say(
                                &pointer,
                                false,
                                code::NAME,
                                format!("{shown} is no valid name"),
                                hint,
                            );
                        }
                    },
                    "namespace" => {
                        if namespace.is_some_and(|own| value.as_str() != Some(own)) {
                            let hint = Some(
                                "leave the namespace out: a GitSync writes into its own".to_owned(),
                            );
                            say(
                                &pointer,
                                false,
                                code::METADATA,
                                "objects go into the namespace of their GitSync".into(),
                                hint,
                            );
                        }
                    }
                    "labels" | "annotations" => {
                        let into = if key == "labels" { &mut labels } else { &mut annotations };
                        strings(value, &pointer, key == "annotations", into, &mut say);
                    }
                    key if REFUSED.contains(&key) => {
                        say(
                            &pointer,
                            true,
                            code::METADATA,
                            format!("{key} may not come from Git"),
                            Some("remove it".into()),
                        );
                    }
                    key => {
                        let near = nearest(key, ["name", "labels", "annotations"].into_iter());
                        let hint = near
                            .map_or("fields here: name, labels, annotations".to_owned(), |near| {
                                format!("did you mean {near}?")
                            });
                        say(
                            &pointer,
                            true,
                            code::UNKNOWN_FIELD,
                            format!("unknown field {}", quote(key)),
                            Some(hint),
                        );
                    }
                }
            }
            if !metadata.contains_key("name") {
                say("/metadata", true, code::NAME, "metadata.name is missing".into(), None);
            }
        }
        _ => say("", false, code::NAME, "metadata.name is missing".into(), None),
    }
    if kind.is_some() && !map.get("spec").is_some_and(Value::is_object) {
        say(
            if map.contains_key("spec") { "/spec" } else { "" },
            false,
            code::MISSING_FIELD,
            "spec is missing or no object".into(),
            None,
        );
    }
    let size: usize = annotations.iter().map(|(key, value)| key.len() + value.len()).sum();
    if size > MOST_ANNOTATIONS {
        let message =
            format!("the annotations have {size} bytes in all, more than {MOST_ANNOTATIONS}");
        say("/metadata/annotations", true, code::METADATA, message, None);
    }
    let id = kind.zip(name).map(|(kind, name)| ObjectId::new(kind, name));
    Identity::Ours { id, labels, annotations, findings }
}

/// The edits between two texts, in any case; those of very different length are not compared.
fn distance(text: &str, ours: &str) -> usize {
    let difference = text.chars().count().abs_diff(ours.chars().count());
    if difference > 4 {
        return difference;
    }
    strsim::damerau_levenshtein(&text.to_lowercase(), ours)
}

/// Place and message of a head field that is not there, or is no text.
fn missing(map: &Map<String, Value>, field: &'static str) -> (&'static str, String) {
    match (map.contains_key(field), field) {
        (false, _) => ("", format!("{field} is missing")),
        (true, "kind") => ("/kind", "kind must be a text".to_owned()),
        (true, _) => ("/apiVersion", format!("{field} must be a text")),
    }
}

fn strings(
    value: &Value,
    pointer: &str,
    annotations: bool,
    into: &mut BTreeMap<String, String>,
    say: &mut impl FnMut(&str, bool, &'static str, String, Option<String>),
) {
    let Some(map) = value.as_object() else {
        if !value.is_null() {
            say(pointer, false, code::TYPE, "this must be an object of texts".into(), None);
        }
        return;
    };
    for (key, value) in map {
        let at = format!("{pointer}/{}", escape(key));
        let domain = key.split('/').next().unwrap_or_default();
        let reserved =
            key.contains('/') && (domain == GROUP || domain.ends_with(&format!(".{GROUP}")));
        let allowed = annotations && keys::FROM_GIT.contains(&key.as_str());
        if allowed && value.as_str() != Some("disabled") {
            let hint = Some("write disabled, or leave the annotation out".to_owned());
            say(&at, false, code::METADATA, format!("{key} has one value: disabled"), hint);
            continue;
        }
        if reserved && !allowed {
            let hint = allowed_hint(annotations);
            say(
                &at,
                true,
                code::METADATA,
                format!("{} belongs to Convoke and may not come from Git", quote(key)),
                hint,
            );
            continue;
        }
        if is_of_kubernetes(domain) && key.contains('/') {
            let message = format!("{} belongs to Kubernetes and may not come from Git", quote(key));
            let hint = "remove it, or use app.kubernetes.io/ or a domain of your own".to_owned();
            say(&at, true, code::METADATA, message, Some(hint));
            continue;
        }
        if !is_qualified_name(key) {
            let hint = "use [domain/]name: at most 63 letters, digits, '-', '_' and '.'".to_owned();
            let message = format!("{} is no valid key", quote(key));
            say(&at, true, code::METADATA, message, Some(hint));
            continue;
        }
        match value {
            Value::String(text) if !(annotations || text.is_empty() || is_name_part(text)) => {
                let hint = "use at most 63 letters, digits, '-', '_' and '.'".to_owned();
                let message = format!("{} is no valid value of a label", quote(text));
                say(&at, false, code::METADATA, message, Some(hint));
            }
            Value::String(text) if text.contains('\0') => {
                say(&at, false, code::VALUE, nul::MESSAGE.to_owned(), Some(nul::HINT.to_owned()));
            }
            Value::String(text) => {
                into.insert(key.clone(), text.clone());
            }
            _ => say(
                &at,
                false,
                code::TYPE,
                format!("{} must be a text", quote(key)),
                Some("quote it".into()),
            ),
        }
    }
}

fn allowed_hint(annotations: bool) -> Option<String> {
    annotations.then(|| format!("annotations that may: {}", keys::FROM_GIT.join(", ")))
}

/// Domains whose labels and annotations mean something to Kubernetes. `app.kubernetes.io` is there for everybody.
fn is_of_kubernetes(domain: &str) -> bool {
    let is = |own: &str| domain == own || domain.ends_with(&format!(".{own}"));
    domain != "app.kubernetes.io" && (is("kubernetes.io") || is("k8s.io"))
}

fn names() -> String {
    Kind::ALL.map(Kind::as_str).join(", ")
}

/// Key of a label or annotation: `name` or `domain/name`, as Kubernetes checks it.
fn is_qualified_name(key: &str) -> bool {
    match key.split_once('/') {
        None => is_name_part(key),
        Some((domain, name)) => {
            domain.len() <= 253 && domain.split('.').all(is_dns_label) && is_name_part(name)
        }
    }
}

/// At most 63 letters, digits, `-`, `_` and `.`, with a letter or digit at both ends.
fn is_name_part(text: &str) -> bool {
    let bytes = text.as_bytes();
    text.len() <= 63
        && bytes.iter().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'))
        && bytes.first().is_some_and(u8::is_ascii_alphanumeric)
        && bytes.last().is_some_and(u8::is_ascii_alphanumeric)
}

/// RFC 1123 label.
fn is_dns_label(text: &str) -> bool {
    let inner = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    (1..=63).contains(&text.len())
        && text.bytes().all(inner)
        && !text.starts_with('-')
        && !text.ends_with('-')
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// What is wrong with an object that has this label or annotation.
    fn findings(field: &str, key: &str) -> Vec<(String, &'static str)> {
        let value = if key == keys::PRUNE { "disabled" } else { "x" };
        let object = json!({
            "apiVersion": API_VERSION, "kind": "ModelAPI", "spec": {},
            "metadata": {"name": "m", field: {key: value}},
        });
        let Identity::Ours { labels, annotations, findings, .. } = identify(&object, None) else {
            panic!("it is ours: {object}");
        };
        let taken = labels.contains_key(key) || annotations.contains_key(key);
        assert_eq!(taken, findings.is_empty(), "{key}");
        assert!(findings.iter().all(|finding| finding.on_key), "{key}");
        findings.into_iter().map(|finding| (finding.message, finding.code)).collect()
    }

    #[test]
    fn g7_labels_and_annotations_of_ours_and_of_kubernetes_may_not_come_from_git() {
        for (key, whose) in [
            ("convoke.dev/kind", "Convoke"),
            ("convoke.dev/anything", "Convoke"),
            ("a.convoke.dev/x", "Convoke"),
            ("a.b.convoke.dev/x", "Convoke"),
            ("kubernetes.io/x", "Kubernetes"),
            ("k8s.io/x", "Kubernetes"),
            ("kubectl.kubernetes.io/restartedAt", "Kubernetes"),
            ("a.b.k8s.io/x", "Kubernetes"),
            ("team.app.kubernetes.io/x", "Kubernetes"),
        ] {
            for field in ["labels", "annotations"] {
                let found = findings(field, key);
                let message =
                    format!("{} belongs to {whose} and may not come from Git", quote(key));
                assert_eq!(found, [(message, code::METADATA)], "{field}");
            }
        }
        for key in [
            "app.kubernetes.io/name",
            "team",
            "k8s.io",
            "convoke.dev",
            "notkubernetes.io/x",
            "notconvoke.dev/x",
            "example.com/k8s.io",
        ] {
            for field in ["labels", "annotations"] {
                assert_eq!(findings(field, key), [], "{field}: {key}");
            }
        }
        assert_eq!(findings("annotations", keys::PRUNE), []);
        assert_eq!(findings("labels", keys::PRUNE).len(), 1, "as a label it means nothing");
    }
}
