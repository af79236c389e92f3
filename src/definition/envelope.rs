//! Whose document it is, and its metadata: everything outside of `spec`.

use std::collections::BTreeMap;

use crate::api::{self, Kind, keys};

use super::diagnostic::{Code, Sink, clip, did_you_mean};
use super::node::{Entry, Node};

/// Whose document it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Claim {
    /// Another project's: left alone.
    Foreign,
    /// Ours, of that kind.
    Ours(Kind),
    /// Ours or not, it cannot be told or may not be synced; an error says why.
    Refused,
}

/// What the metadata says.
#[derive(Debug, Default)]
pub(super) struct Metadata {
    /// The name, when it is a valid one.
    pub name: Option<String>,
    pub labels: BTreeMap<String, String>,
    pub annotations: BTreeMap<String, String>,
}

const EXAMPLE: &str =
    "below the synced path every YAML and JSON document needs both; move other files elsewhere";

/// Tells whose document it is from `apiVersion` and `kind`.
pub(super) fn claim(root: &Node, sink: &mut Sink<'_>) -> Claim {
    let Some(_) = root.as_map() else {
        let message = format!(
            "the document must be an object with apiVersion and kind, not {}",
            root.type_name()
        );
        sink.error(root.at, Code::NotAnObject, message, Some(EXAMPLE.to_owned()));
        return Claim::Refused;
    };
    let mut read = |key: &str| {
        let Some(node) = root.get(key) else {
            let message = format!("`{key}` is missing");
            sink.error(root.at, Code::NoApiVersionOrKind, message, Some(EXAMPLE.to_owned()));
            return None;
        };
        let text = node.as_str().filter(|text| !text.is_empty());
        if text.is_none() && !node.is_unknown() {
            let message = format!("`{key}` must be a string that is not empty");
            sink.error(node.at, Code::NoApiVersionOrKind, message, None);
        }
        text.map(|text| (node.at, text))
    };
    let (api_version, kind) = (read("apiVersion"), read("kind"));
    let (Some((version_at, api_version)), Some((kind_at, kind))) = (api_version, kind) else {
        return Claim::Refused;
    };
    let group = api_version.split_once('/').map_or(api_version, |(group, _)| group);
    let ours = group == api::GROUP;
    if is_list(kind, api_version, ours, root) {
        let hint = Some("write each object as a document of its own, separated by ---".to_owned());
        sink.error(kind_at, Code::List, "lists of objects are not read", hint);
        return Claim::Refused;
    }
    if !ours {
        if near_miss(api_version, group, kind) {
            let message = format!(
                "apiVersion `{}` looks like {} but isn't",
                clip(api_version),
                api::API_VERSION
            );
            let hint = Some(format!("write apiVersion: {}", api::API_VERSION));
            sink.error(version_at, Code::NearMiss, message, hint);
            return Claim::Refused;
        }
        return Claim::Foreign;
    }
    if api_version != api::API_VERSION {
        let message = format!("unknown apiVersion `{}`", clip(api_version));
        let hint = Some(format!("this operator reads {}", api::API_VERSION));
        sink.error(version_at, Code::UnknownVersion, message, hint);
        return Claim::Refused;
    }
    if let Some(kind) = Kind::parse(kind) {
        return Claim::Ours(kind);
    }
    let kinds = Kind::ALL.map(Kind::as_str);
    if kind == "GitSync" {
        let hint = Some(format!("a repository may hold {}", kinds.join(", ")));
        sink.error(kind_at, Code::KindNotSynced, "a GitSync cannot come from a repository", hint);
    } else {
        let hint = did_you_mean(kind, kinds)
            .or_else(|| Some(format!("the kinds are {}", kinds.join(", "))));
        sink.error(kind_at, Code::UnknownKind, format!("unknown kind `{}`", clip(kind)), hint);
    }
    Claim::Refused
}

/// `v1/List`, any list of our group, and whatever `kubectl` would unpack.
fn is_list(kind: &str, api_version: &str, ours: bool, root: &Node) -> bool {
    (kind == "List" && api_version == "v1")
        || (kind.ends_with("List")
            && (ours || root.get("items").is_some_and(|items| items.as_list().is_some())))
}

/// Whether an apiVersion of another group was probably meant to be ours.
fn near_miss(api_version: &str, group: &str, kind: &str) -> bool {
    let near = |text: &str, wanted: &str| {
        text.len() <= 64 && strsim::damerau_levenshtein(&text.trim().to_lowercase(), wanted) <= 2
    };
    // A kind of ours in the core group is one of ours without its group.
    let core = !api_version.contains('/') && Kind::parse(kind).is_some();
    near(group, api::GROUP) || near(api_version, api::API_VERSION) || core
}

/// The name of a document of ours, when it can be read and is a valid one.
pub(super) fn name(root: &Node) -> Option<&str> {
    root.at_path(&["metadata", "name"])?.as_str().filter(|name| is_dns_label(name))
}

/// Checks everything outside of `spec`.
pub(super) fn metadata(root: &Node, namespace: Option<&str>, sink: &mut Sink<'_>) -> Metadata {
    let mut out = Metadata::default();
    for entry in root.as_map().unwrap_or_default() {
        match entry.key.as_str() {
            "apiVersion" | "kind" | "metadata" | "spec" => {}
            "status" => {
                let hint = Some("remove it: the operator writes the status".to_owned());
                sink.error(
                    entry.key_at,
                    Code::StatusInGit,
                    "a status cannot come from a repository",
                    hint,
                );
            }
            key => {
                let hint = did_you_mean(key, ["apiVersion", "kind", "metadata", "spec"]);
                sink.error(
                    entry.key_at,
                    Code::UnknownField,
                    format!("unknown field `{}`", clip(key)),
                    hint,
                );
            }
        }
    }
    let Some(metadata) = root.get("metadata") else {
        sink.error(root.at, Code::NoName, "`metadata.name` is missing", None);
        return out;
    };
    let Some(entries) = metadata.as_map() else {
        let message = format!("`metadata` must be an object, not {}", metadata.type_name());
        sink.error(metadata.at, Code::WrongType, message, None);
        return out;
    };
    if metadata.get("name").is_none() {
        sink.error(metadata.at, Code::NoName, "`metadata.name` is missing", None);
    }
    for entry in entries {
        match entry.key.as_str() {
            "name" => out.name = check_name(&entry.value, sink),
            "namespace" => check_namespace(&entry.value, namespace, sink),
            "labels" => out.labels = check_pairs("labels", &entry.value, sink),
            "annotations" => out.annotations = check_pairs("annotations", &entry.value, sink),
            _ => refuse_field(entry, sink),
        }
    }
    out
}

fn refuse_field(entry: &Entry, sink: &mut Sink<'_>) {
    const SET_BY_OTHERS: &[&str] = &[
        "creationTimestamp",
        "deletionGracePeriodSeconds",
        "deletionTimestamp",
        "finalizers",
        "generateName",
        "generation",
        "managedFields",
        "ownerReferences",
        "resourceVersion",
        "selfLink",
        "uid",
    ];
    let key = entry.key.as_str();
    if SET_BY_OTHERS.contains(&key) {
        let hint = if key == "generateName" { "give it a name" } else { "remove it" };
        let message = format!("`metadata.{key}` cannot come from a repository");
        sink.error(entry.key_at, Code::ServerField, message, Some(hint.to_owned()));
    } else {
        let names = ["name", "namespace", "labels", "annotations"];
        let hint = did_you_mean(key, names)
            .or_else(|| Some(format!("its fields are {}", names.join(", "))));
        let message = format!("unknown field `{}` in `metadata`", clip(key));
        sink.error(entry.key_at, Code::UnknownMetadata, message, hint);
    }
}

fn check_name(node: &Node, sink: &mut Sink<'_>) -> Option<String> {
    if node.is_unknown() {
        return None;
    }
    let Some(name) = node.as_str() else {
        let message = format!("`metadata.name` must be a string, not {}", node.type_name());
        sink.error(node.at, Code::NoName, message, Some("put the value in quotes".to_owned()));
        return None;
    };
    if is_dns_label(name) {
        return Some(name.to_owned());
    }
    let message = if name.is_empty() {
        "`metadata.name` must not be empty".to_owned()
    } else {
        format!("`{}` is no valid name", clip(name))
    };
    let hint =
        "at most 63 characters: lower-case letters, digits and '-', a letter or digit at both ends";
    sink.error(node.at, Code::BadName, message, Some(hint.to_owned()));
    None
}

fn check_namespace(node: &Node, namespace: Option<&str>, sink: &mut Sink<'_>) {
    if node.is_unknown() {
        return;
    }
    let Some(written) = node.as_str() else {
        let message = format!("`metadata.namespace` must be a string, not {}", node.type_name());
        sink.error(node.at, Code::WrongType, message, None);
        return;
    };
    if !is_dns_label(written) {
        let message = format!("`{}` is no valid namespace", clip(written));
        sink.error(node.at, Code::OtherNamespace, message, None);
    } else if let Some(namespace) = namespace.filter(|namespace| *namespace != written) {
        let message = format!(
            "namespace `{written}` is not `{namespace}`, the only one that this repository writes to"
        );
        sink.error(node.at, Code::OtherNamespace, message, Some("remove the namespace".to_owned()));
    }
}

/// DNS label (RFC 1123, section 2.1), lower-case.
pub(super) fn is_dns_label(text: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    (1..=63).contains(&text.len())
        && text.bytes().all(|byte| inner(byte) || byte == b'-')
        && text.bytes().next().is_some_and(inner)
        && text.bytes().last().is_some_and(inner)
}

/// Labels or annotations.
fn check_pairs(what: &str, node: &Node, sink: &mut Sink<'_>) -> BTreeMap<String, String> {
    /// Kubernetes refuses more (apimachinery `TotalAnnotationSizeLimitB`); our own need a little.
    const MAX_BYTES: usize = 248 * 1024;
    let mut out = BTreeMap::new();
    if node.is_null() || node.is_unknown() {
        return out;
    }
    let Some(entries) = node.as_map() else {
        let message = format!("`metadata.{what}` must be an object, not {}", node.type_name());
        sink.error(node.at, Code::WrongType, message, None);
        return out;
    };
    let mut bytes = 0_usize;
    for entry in entries {
        let key = clip(&entry.key);
        if !is_qualified_name(&entry.key) {
            let hint =
                "an optional DNS name and '/', then at most 63 letters, digits, '-', '_' and '.'";
            let message = format!("`{key}` is no valid key of {what}");
            sink.error(entry.key_at, Code::BadLabel, message, Some(hint.to_owned()));
            continue;
        }
        if is_reserved(&entry.key)
            && !(what == "annotations" && keys::FROM_GIT.contains(&entry.key.as_str()))
        {
            let message = format!("`{key}` cannot come from a repository");
            let hint = format!("keys under {}/ belong to the operator: remove it", api::GROUP);
            sink.error(entry.key_at, Code::ReservedKey, message, Some(hint));
            continue;
        }
        if entry.value.is_unknown() {
            continue;
        }
        let Some(value) = entry.value.as_str() else {
            let message = format!(
                "`metadata.{what}`: the value of `{key}` must be a string, not {}",
                entry.value.type_name()
            );
            sink.error(
                entry.value.at,
                Code::BadLabel,
                message,
                Some("put the value in quotes".to_owned()),
            );
            continue;
        };
        if what == "labels" && !is_label_value(value) {
            let hint =
                "at most 63 letters, digits, '-', '_' and '.', a letter or digit at both ends";
            let message = format!("the value of label `{key}` is not valid");
            sink.error(entry.value.at, Code::BadLabel, message, Some(hint.to_owned()));
            continue;
        }
        if entry.key == keys::PRUNE && value != "disabled" {
            // A typo here would delete what somebody wanted to keep.
            let message = format!("`{key}` knows only the value `disabled`");
            sink.error(
                entry.value.at,
                Code::BadLabel,
                message,
                Some("write disabled, or remove it".to_owned()),
            );
            continue;
        }
        bytes += entry.key.len() + value.len();
        out.insert(entry.key.clone(), value.to_owned());
    }
    if bytes > MAX_BYTES {
        let message = format!("`metadata.{what}` must have at most {MAX_BYTES} bytes, not {bytes}");
        sink.error(node.at, Code::BadLabel, message, None);
    }
    out
}

/// Whether a key of a label or annotation belongs to the operator.
fn is_reserved(key: &str) -> bool {
    let Some((prefix, _)) = key.split_once('/') else { return false };
    let prefix = prefix.to_ascii_lowercase();
    prefix == api::GROUP || prefix.strip_suffix(api::GROUP).is_some_and(|rest| rest.ends_with('.'))
}

/// A key of a label or annotation (Kubernetes `IsQualifiedName`).
fn is_qualified_name(key: &str) -> bool {
    let (prefix, name) = match key.split_once('/') {
        Some((prefix, name)) => (Some(prefix), name),
        None => (None, key),
    };
    !name.is_empty()
        && is_label_value(name)
        && prefix.is_none_or(|prefix| {
            (1..=253).contains(&prefix.len())
                && prefix.to_ascii_lowercase().split('.').all(|part| {
                    let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
                    part.bytes().all(|byte| inner(byte) || byte == b'-')
                        && part.bytes().next().is_some_and(inner)
                        && part.bytes().last().is_some_and(inner)
                })
        })
}

/// The value of a label (Kubernetes `IsValidLabelValue`).
fn is_label_value(value: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_alphanumeric();
    value.is_empty()
        || (value.len() <= 63
            && value.bytes().all(|byte| inner(byte) || matches!(byte, b'-' | b'_' | b'.'))
            && value.bytes().next().is_some_and(inner)
            && value.bytes().last().is_some_and(inner))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn v36_names_are_dns_labels() {
        for name in ["a", "a-1", "0", &"x".repeat(63)] {
            assert!(is_dns_label(name), "{name}");
        }
        for name in ["", "-a", "a-", "A", "a_b", "a.b", "ä", "a\u{200b}", "a ", &"x".repeat(64)] {
            assert!(!is_dns_label(name), "{name}");
        }
    }

    #[test]
    fn v35_our_keys_are_reserved() {
        for key in ["convoke.dev/owner", "Convoke.dev/x", "sub.convoke.dev/x"] {
            assert!(is_reserved(key), "{key}");
        }
        for key in ["convoke.dev", "example.com/convoke.dev", "myconvoke.dev/x"] {
            assert!(!is_reserved(key), "{key}");
        }
    }

    #[test]
    fn keys_and_values_follow_kubernetes() {
        for key in ["a", "A_b.c", "example.com/a", "a.b-c/x"] {
            assert!(is_qualified_name(key), "{key}");
        }
        for key in ["", "/a", "a/", "a/b/c", "-a", "a b", "ex_ample/a", "a..b/c", &"k".repeat(64)] {
            assert!(!is_qualified_name(key), "{key}");
        }
        assert!(is_label_value(""));
        assert!(!is_label_value("a/b"));
        assert!(!is_label_value(&"v".repeat(64)));
    }
}
