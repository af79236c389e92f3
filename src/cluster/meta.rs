//! (pure) The metadata of children: name, labels, owner, provenance and hash.
#![deny(clippy::disallowed_types, clippy::disallowed_methods)]

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta, OwnerReference};
use kube::Resource;
use serde::Serialize;
use serde_json::Value;
use sha2::{Digest, Sha256};

use super::live::hash_json;
use crate::api::common::Source;
use crate::api::{Kind, Mark, keys};

/// Characters of the longest name of a child. The name of a Service is a DNS label.
const MAX_NAME_CHARS: usize = 63;

/// `<prefix>-<name>`. A name that is too long is shortened and gets a hash. `reserve` characters stay free for a suffix.
#[must_use]
pub fn child_name(prefix: &str, name: &str, reserve: usize) -> String {
    let full = format!("{prefix}-{name}");
    let max = MAX_NAME_CHARS - reserve;
    if full.len() <= max {
        return full;
    }
    let hash = hex8(Sha256::digest(full.as_bytes()).as_slice());
    let kept: String = full.chars().take(max - 9).collect();
    format!("{}-{hash}", kept.trim_end_matches('-'))
}

/// The first eight hexadecimal digits of a hash.
#[must_use]
pub fn hex8(hash: &[u8]) -> String {
    hash.iter().take(4).fold(String::new(), |text, byte| format!("{text}{byte:02x}"))
}

/// The labels that select the pods of an object. They never change, because the selector of a Deployment is immutable.
#[must_use]
pub fn selector(kind: Kind, name: &str) -> BTreeMap<String, String> {
    BTreeMap::from([
        (keys::OWNER_KIND.to_owned(), kind.as_str().to_lowercase()),
        (keys::OWNER_NAME.to_owned(), name.to_owned()),
    ])
}

/// The same labels as a Kubernetes selector.
#[must_use]
pub fn label_selector(kind: Kind, name: &str) -> LabelSelector {
    LabelSelector { match_labels: Some(selector(kind, name)), ..LabelSelector::default() }
}

/// All labels of a child.
#[must_use]
pub fn labels(kind: Kind, name: &str) -> BTreeMap<String, String> {
    let mut labels = selector(kind, name);
    labels.insert("app.kubernetes.io/name".into(), name.to_owned());
    labels.insert("app.kubernetes.io/component".into(), kind.as_str().to_lowercase());
    labels.insert("app.kubernetes.io/managed-by".into(), "convoke".into());
    labels
}

/// Metadata of a child of `owner`: namespace, labels, controlling owner reference, provenance.
#[must_use]
pub fn child_meta<K: Resource<DynamicType = ()>>(
    owner: &K,
    kind: Kind,
    child: String,
) -> ObjectMeta {
    let meta = owner.meta();
    let name = meta.name.clone().unwrap_or_default();
    let annotations: BTreeMap<_, _> = [keys::COMMIT, keys::SOURCE]
        .into_iter()
        .filter_map(|key| Some((key.to_owned(), meta.annotations.as_ref()?.get(key)?.clone())))
        .collect();
    ObjectMeta {
        name: Some(child),
        namespace: meta.namespace.clone(),
        labels: Some(labels(kind, &name)),
        annotations: Some(annotations),
        owner_references: Some(vec![OwnerReference {
            api_version: K::api_version(&()).into_owned(),
            kind: K::kind(&()).into_owned(),
            name,
            uid: meta.uid.clone().unwrap_or_default(),
            controller: Some(true),
            block_owner_deletion: Some(true),
        }]),
        ..ObjectMeta::default()
    }
}

/// Sets the annotation with the hash of the whole object. The hash leaves out the provenance (commit and file), because a change
/// of it alone must cause no write.
#[must_use]
pub fn with_hash<K: Resource<DynamicType = ()> + Serialize>(mut child: K) -> K {
    let mut value = serde_json::to_value(&child).unwrap_or(Value::Null);
    if let Some(annotations) =
        value.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut)
    {
        annotations.remove(keys::COMMIT);
        annotations.remove(keys::SOURCE);
        annotations.remove(keys::CHILD_HASH);
    }
    let hash = hash_json(&value);
    let hash = format!("{}{}", hex8(&hash), hex8(&hash[4..]));
    child.annotations_mut().insert(keys::CHILD_HASH.into(), hash);
    child
}

trait Annotated {
    fn annotations_mut(&mut self) -> &mut BTreeMap<String, String>;
}

impl<K: Resource> Annotated for K {
    fn annotations_mut(&mut self) -> &mut BTreeMap<String, String> {
        self.meta_mut().annotations.get_or_insert_default()
    }
}

/// The file that an object comes from, as its annotations say.
#[must_use]
pub fn source(meta: &ObjectMeta) -> Option<Source> {
    let annotation = |key: &str| meta.annotations.as_ref()?.get(key).map(String::as_str);
    let (path, line) = annotation(keys::SOURCE)?.rsplit_once(':')?;
    Some(Source {
        sync: Mark::parse(annotation(keys::OWNER)?)?.sync_name,
        commit: annotation(keys::COMMIT)?.to_owned(),
        path: path.to_owned(),
        line: line.parse().ok()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a1_long_names_are_shortened_with_a_hash_and_stay_apart() {
        assert_eq!(child_name("agent", "a", 0), "agent-a");
        let long = "x".repeat(63);
        let (one, two) = (
            child_name("mcpserver", &long, 9),
            child_name("mcpserver", &format!("{}y", &long[1..]), 9),
        );
        assert!(one.len() <= 54 && two.len() <= 54);
        assert_ne!(one, two);
        assert_eq!(one, child_name("mcpserver", &long, 9));
    }
}
