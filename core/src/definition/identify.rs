//! Reads and checks everything of a document but its spec: apiVersion, kind, metadata. Refuses what may not come from Git.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::diagnostic::code;
use super::finding::Finding;
use super::nul;
use super::places::escape;
use crate::api::{API_VERSION, GROUP, Kind, ObjectId, keys};
use crate::text::{is_dns_label, nearest, quote};

/// Which object a document is.
#[derive(Debug, PartialEq)]
pub enum Identity {
    /// An object of another project. It is left alone.
    Foreign,
    /// An object of our API group, as far as it could be read, and what is wrong with everything but its spec.
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

impl Identity {
    /// An object of which nothing could be read.
    fn unknown(findings: Vec<Finding>) -> Self {
        let (labels, annotations) = (BTreeMap::new(), BTreeMap::new());
        Self::Ours { id: None, labels, annotations, findings }
    }
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

/// Most bytes of all annotations of an object. The API server takes 256 KiB, with the annotations that we add.
const MAX_ANNOTATION_BYTES: usize = 240 << 10;
/// Fields of a document.
const FIELDS: [&str; 4] = ["apiVersion", "kind", "metadata", "spec"];
/// Fields of `metadata` that may come from Git.
const METADATA_FIELDS: [&str; 3] = ["name", "labels", "annotations"];
/// The message for a List.
const LIST: &str = "a List is not accepted: objects in it would have no place";

/// Identifies a document. `namespace` is the namespace of the GitSync, when it is known.
pub fn identify(document: &Value, namespace: Option<&str>) -> Identity {
    let Some(map) = document.as_object() else {
        let finding = Finding::on_value("", code::NOT_AN_OBJECT, "this document is no object");
        let hint = "a definition begins with apiVersion, kind, metadata and spec";
        return Identity::unknown(vec![finding.hint(hint)]);
    };
    let mut head = Head { map, findings: Vec::new() };
    match head.api_version() {
        Group::Ours => {}
        Group::Foreign => return Identity::Foreign,
        Group::Unknown => return Identity::unknown(head.findings),
    }
    let kind = head.kind();
    head.unknown_fields();
    let Metadata { name, labels, annotations } = head.metadata(namespace);
    if kind.is_some() && !map.get("spec").is_some_and(Value::is_object) {
        let pointer = if map.contains_key("spec") { "/spec" } else { "" };
        let message = "spec is missing or no object";
        head.findings.push(Finding::on_value(pointer, code::MISSING_FIELD, message));
    }
    let size: usize = annotations.iter().map(|(key, value)| key.len() + value.len()).sum();
    if size > MAX_ANNOTATION_BYTES {
        let message =
            format!("the annotations have {size} bytes in all, more than {MAX_ANNOTATION_BYTES}");
        let pointer = "/metadata/annotations";
        head.findings.push(Finding::on_key(pointer, code::METADATA, message));
    }
    let id = kind.zip(name).map(|(kind, name)| ObjectId::new(kind, name));
    Identity::Ours { id, labels, annotations, findings: head.findings }
}

/// The API group of a document.
enum Group {
    /// Our group, or meant to be ours.
    Ours,
    /// Another group.
    Foreign,
    /// Not known, so it may be ours.
    Unknown,
}

/// What of `metadata` may come from Git.
#[derive(Default)]
struct Metadata {
    name: Option<String>,
    labels: BTreeMap<String, String>,
    annotations: BTreeMap<String, String>,
}

/// A map of names and texts in `metadata`.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Texts {
    Labels,
    Annotations,
}

/// A document without its spec, and what is wrong with it.
struct Head<'a> {
    map: &'a Map<String, Value>,
    findings: Vec<Finding>,
}

impl<'a> Head<'a> {
    /// A field of the document, if it is a text.
    fn text(&self, field: &str) -> Option<&'a str> {
        self.map.get(field).and_then(Value::as_str)
    }

    /// Checks `apiVersion`, and tells our API group from others.
    fn api_version(&mut self) -> Group {
        let Some(api_version) = self.text("apiVersion") else {
            let hint = format!(
                "add apiVersion: {API_VERSION}; files that are no definitions belong outside of this folder"
            );
            let (pointer, message) = missing(self.map, "apiVersion");
            let finding = Finding::on_value(pointer, code::NOT_AN_OBJECT, message);
            self.findings.push(finding.hint(hint));
            return Group::Ours;
        };
        if api_version == API_VERSION {
            return Group::Ours;
        }
        if self.is_list(api_version) {
            let finding = Finding::on_value("/kind", code::KIND, LIST);
            self.findings.push(finding.hint("write one document an object"));
            return Group::Unknown;
        }
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let (message, hint) = if group == GROUP {
            let message = format!("version {} of {GROUP} does not exist", quote(version));
            (message, format!("use {API_VERSION}"))
        } else if distance(group, GROUP) <= 2
            || distance(api_version, API_VERSION) <= 4
            || api_version.to_lowercase().contains(GROUP)
        {
            let message = format!("{} is almost {API_VERSION}", quote(api_version));
            (message, format!("did you mean {API_VERSION}?"))
        } else {
            let Some(kind) = self.text("kind") else {
                // It could be one of our objects that lost its kind.
                let (pointer, message) = missing(self.map, "kind");
                let finding = Finding::on_value(pointer, code::NOT_AN_OBJECT, message);
                self.findings.push(finding.hint("add the kind"));
                return Group::Unknown;
            };
            // The core group has no kind like ours. Other groups may have some.
            if !group.is_empty() || Kind::parse(kind).is_none() {
                return Group::Foreign;
            }
            let message = format!("{kind} of {} is almost ours", quote(api_version));
            (message, format!("did you mean {API_VERSION}?"))
        };
        let finding = Finding::on_value("/apiVersion", code::API_VERSION, message);
        self.findings.push(finding.hint(hint));
        Group::Ours
    }

    /// Whether a document with this `apiVersion`, which is not ours, is a List.
    fn is_list(&self, api_version: &str) -> bool {
        let kind = self.text("kind");
        self.map.get("items").is_some_and(Value::is_array)
            && kind.is_none_or(|kind| kind.to_lowercase().trim().ends_with("list"))
            || api_version == "v1" && kind.is_some_and(|kind| kind.ends_with("List"))
    }

    fn kind(&mut self) -> Option<Kind> {
        let Some(name) = self.text("kind") else {
            let (pointer, message) = missing(self.map, "kind");
            let finding = Finding::on_value(pointer, code::NOT_AN_OBJECT, message);
            self.findings.push(finding.hint(format!("kinds: {}", names())));
            return None;
        };
        let kind = Kind::parse(name);
        if kind.is_none() {
            let (message, hint) = match name {
                "GitSync" => (
                    "a GitSync cannot be synced from Git".to_owned(),
                    "create it with kubectl: it decides what this repository may do".to_owned(),
                ),
                name if name.ends_with("List") => {
                    (LIST.to_owned(), "write one document an object".to_owned())
                }
                name => {
                    let hint = match nearest(name, Kind::ALL.iter().map(|k| k.as_str())) {
                        Some(near) => format!("did you mean {near}?"),
                        None => format!("kinds: {}", names()),
                    };
                    (format!("kind {} does not exist in {API_VERSION}", quote(name)), hint)
                }
            };
            self.findings.push(Finding::on_value("/kind", code::KIND, message).hint(hint));
        }
        kind
    }

    fn unknown_fields(&mut self) {
        for key in self.map.keys().filter(|key| !FIELDS.contains(&key.as_str())) {
            let pointer = format!("/{}", escape(key));
            self.findings.push(if key == "status" {
                let message = "status may not come from Git";
                let finding = Finding::on_key(pointer, code::UNKNOWN_FIELD, message);
                finding.hint("remove it: the cluster writes it")
            } else {
                unknown_field(pointer, key, &FIELDS)
            });
        }
    }

    fn metadata(&mut self, namespace: Option<&str>) -> Metadata {
        let mut read = Metadata::default();
        let Some(Value::Object(metadata)) = self.map.get("metadata") else {
            let finding = Finding::on_value("", code::NAME, "metadata.name is missing");
            self.findings.push(finding);
            return read;
        };
        for (key, value) in metadata {
            let pointer = format!("/metadata/{}", escape(key));
            match key.as_str() {
                "name" => read.name = self.name(value, &pointer),
                "namespace" => {
                    if namespace.is_some_and(|own| value.as_str() != Some(own)) {
                        let message = "objects go into the namespace of their GitSync";
                        let finding = Finding::on_value(pointer, code::METADATA, message);
                        let hint = "leave the namespace out: a GitSync writes into its own";
                        self.findings.push(finding.hint(hint));
                    }
                }
                "labels" => read.labels = self.texts(value, &pointer, Texts::Labels),
                "annotations" => {
                    read.annotations = self.texts(value, &pointer, Texts::Annotations);
                }
                key if REFUSED.contains(&key) => {
                    let message = format!("{key} may not come from Git");
                    let finding = Finding::on_key(pointer, code::METADATA, message);
                    self.findings.push(finding.hint("remove it"));
                }
                key => self.findings.push(unknown_field(pointer, key, &METADATA_FIELDS)),
            }
        }
        if !metadata.contains_key("name") {
            let finding = Finding::on_key("/metadata", code::NAME, "metadata.name is missing");
            self.findings.push(finding);
        }
        read
    }

    fn name(&mut self, value: &Value, pointer: &str) -> Option<String> {
        let text = value.as_str();
        if let Some(name) = text.filter(|text| is_dns_label(text)) {
            return Some(name.to_owned());
        }
        let shown = text.map_or_else(|| quote(&value.to_string()), quote);
        let finding = Finding::on_value(pointer, code::NAME, format!("{shown} is no valid name"));
        let hint = "use lower-case letters, digits and '-', at most 63, beginning and ending with a letter or digit";
        self.findings.push(finding.hint(hint));
        None
    }

    /// The valid labels or annotations.
    fn texts(&mut self, value: &Value, pointer: &str, texts: Texts) -> BTreeMap<String, String> {
        let mut valid = BTreeMap::new();
        let Some(map) = value.as_object() else {
            if !value.is_null() {
                let message = "this must be an object of texts";
                self.findings.push(Finding::on_value(pointer, code::TYPE, message));
            }
            return valid;
        };
        for (key, value) in map {
            let pointer = format!("{pointer}/{}", escape(key));
            let finding = key_error(key, value, &pointer, texts)
                .or_else(|| value_error(key, value, &pointer, texts));
            match (finding, value) {
                (Some(finding), _) => self.findings.push(finding),
                (None, Value::String(text)) => {
                    valid.insert(key.clone(), text.clone());
                }
                (None, _) => {}
            }
        }
        valid
    }
}

fn unknown_field(pointer: String, key: &str, fields: &[&'static str]) -> Finding {
    let hint = match nearest(key, fields.iter().copied()) {
        Some(near) => format!("did you mean {near}?"),
        None => format!("fields here: {}", fields.join(", ")),
    };
    Finding::on_key(pointer, code::UNKNOWN_FIELD, format!("unknown field {}", quote(key)))
        .hint(hint)
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

/// Why a label or annotation with this key may not come from Git.
fn key_error(key: &str, value: &Value, pointer: &str, texts: Texts) -> Option<Finding> {
    let domain = key.split('/').next().unwrap_or_default();
    let reserved = key.contains('/') && (domain == GROUP || domain.ends_with(&format!(".{GROUP}")));
    let annotations = texts == Texts::Annotations;
    if annotations && keys::FROM_GIT.contains(&key) {
        if value.as_str() == Some("disabled") {
            return None;
        }
        let message = format!("{key} has one value: disabled");
        let finding = Finding::on_value(pointer, code::METADATA, message);
        return Some(finding.hint("write disabled, or leave the annotation out"));
    }
    if reserved {
        let message = format!("{} belongs to Convoke and may not come from Git", quote(key));
        let finding = Finding::on_key(pointer, code::METADATA, message);
        let hint =
            annotations.then(|| format!("annotations that may: {}", keys::FROM_GIT.join(", ")));
        return Some(Finding { hint, ..finding });
    }
    if is_of_kubernetes(domain) && key.contains('/') {
        let message = format!("{} belongs to Kubernetes and may not come from Git", quote(key));
        let finding = Finding::on_key(pointer, code::METADATA, message);
        let hint = "remove it, or use app.kubernetes.io/ or a domain of your own";
        return Some(finding.hint(hint));
    }
    if !is_qualified_name(key) {
        let message = format!("{} is no valid key", quote(key));
        let finding = Finding::on_key(pointer, code::METADATA, message);
        let hint = "use [domain/]name: at most 63 letters, digits, '-', '_' and '.'";
        return Some(finding.hint(hint));
    }
    None
}

/// Why this is no value of a label or annotation.
fn value_error(key: &str, value: &Value, pointer: &str, texts: Texts) -> Option<Finding> {
    match value {
        Value::String(text)
            if texts == Texts::Labels && !text.is_empty() && !is_name_part(text) =>
        {
            let message = format!("{} is no valid value of a label", quote(text));
            let finding = Finding::on_value(pointer, code::METADATA, message);
            Some(finding.hint("use at most 63 letters, digits, '-', '_' and '.'"))
        }
        Value::String(text) if text.contains('\0') => {
            Some(Finding::on_value(pointer, code::VALUE, nul::MESSAGE).hint(nul::HINT))
        }
        Value::String(_) => None,
        _ => {
            let message = format!("{} must be a text", quote(key));
            Some(Finding::on_value(pointer, code::TYPE, message).hint("quote it"))
        }
    }
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

#[cfg(test)]
#[path = "tests/identify.rs"]
mod tests;
