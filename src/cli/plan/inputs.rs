//! The Secrets and ConfigMaps that definitions name: which of them pods may not read. Their data is not asked for.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::api::{Api, ObjectMeta};
use serde_json::Value;

use crate::api::keys;
use crate::cli::Failure;
use crate::cli::connection::{Connection, ConnectionArgs};
use crate::cluster::client::{CallError, call};
use crate::controllers::inputs::references::{Reference, Source};
use crate::definition::Catalog;

/// Objects that one plan asks for.
const MOST: usize = 500;

/// Where an object is named first, and whether some pod needs it.
#[derive(Debug, PartialEq)]
struct Named {
    place: String,
    required: bool,
}

/// What is to be said of the Secrets and ConfigMaps that these definitions name. Nothing is said of a kind that may not
/// be read.
pub async fn notes(args: &ConnectionArgs, catalog: &Catalog) -> Result<Vec<String>, Failure> {
    let all = named(catalog);
    let mut notes = Vec::new();
    if all.is_empty() {
        return Ok(notes);
    }
    let connection = Connection::open(args).await?;
    let mut unreadable = BTreeSet::new();
    for (reference, named) in all.iter().take(MOST) {
        if unreadable.contains(&reference.source) {
            continue;
        }
        match metadata(&connection, reference).await {
            Ok(found) => {
                notes.extend(note(reference, named, found.as_ref(), &connection.namespace));
            }
            Err(_) => {
                unreadable.insert(reference.source);
            }
        }
    }
    if let Some(more) = all.len().checked_sub(MOST).filter(|more| *more > 0) {
        notes.push(format!("{more} more Secrets and ConfigMaps are named, and were not looked at"));
    }
    Ok(notes)
}

async fn metadata(
    connection: &Connection,
    reference: &Reference,
) -> Result<Option<ObjectMeta>, CallError> {
    if !reference.is_possible() {
        return Ok(None);
    }
    let Connection { client, namespace } = connection;
    let name = reference.name.as_str();
    match reference.source {
        Source::ConfigMap => {
            let api: Api<ConfigMap> = Api::namespaced(client.clone(), namespace);
            Ok(call(api.get_metadata_opt(name)).await?.map(|found| found.metadata))
        }
        Source::Secret => {
            let api: Api<Secret> = Api::namespaced(client.clone(), namespace);
            Ok(call(api.get_metadata_opt(name)).await?.map(|found| found.metadata))
        }
    }
}

fn note(
    reference: &Reference,
    named: &Named,
    found: Option<&ObjectMeta>,
    namespace: &str,
) -> Option<String> {
    let Named { place, required } = named;
    let label = format!("{}={}", keys::AGENTS, keys::ALLOW);
    let Some(metadata) = found else {
        let note = format!(
            "{reference}, which {place} names, does not exist in {namespace}: to be created with the label {label}"
        );
        return required.then_some(note);
    };
    let value = metadata.labels.as_ref().and_then(|labels| labels.get(keys::AGENTS));
    if value.is_some_and(|value| value == keys::ALLOW) {
        return None;
    }
    let (kind, name) = (reference.source.as_str().to_lowercase(), &reference.name);
    Some(format!(
        "{reference}, which {place} names, is not labelled {label}, so pods may not read it; to label: kubectl -n {namespace} label {kind}/{name} {label}"
    ))
}

fn named(catalog: &Catalog) -> BTreeMap<Reference, Named> {
    let mut all = BTreeMap::<_, Named>::new();
    for definition in catalog.definitions.values() {
        let mut found = Vec::new();
        collect(&definition.canonical_spec.json(), &mut found);
        for (reference, required) in found {
            let place = || format!("{}:{}", definition.path, definition.line);
            let named =
                all.entry(reference).or_insert_with(|| Named { place: place(), required: false });
            named.required |= required;
        }
    }
    all
}

/// What a spec names, and whether pods need it.
fn collect(value: &Value, found: &mut Vec<(Reference, bool)>) {
    match value {
        Value::Object(map) => {
            for (key, value) in map {
                let source = match key.as_str() {
                    "secretKeyRef" => Some(Source::Secret),
                    "configMapKeyRef" => Some(Source::ConfigMap),
                    _ => None,
                };
                if let (Some(source), Some(name)) = (source, value["name"].as_str()) {
                    let required = value["optional"] != Value::Bool(true);
                    found.push((Reference { source, name: name.to_owned() }, required));
                } else {
                    collect(value, found);
                }
            }
        }
        Value::Array(list) => list.iter().for_each(|value| collect(value, found)),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a13_every_object_that_a_spec_names_is_found() {
        let key = |name: &str| json!({"name": name, "key": "k"});
        let maybe = json!({"name": "maybe", "key": "k", "optional": true});
        let spec = json!({
            "proxy": {"apiKeyFrom": {"secretKeyRef": key("one")}},
            "config": {"env": [{"name": "A", "valueFrom": {"configMapKeyRef": key("two")}}]},
            "env": [{"name": "B", "valueFrom": {"secretKeyRef": maybe}}, {"name": "C", "value": "secretKeyRef"}],
        });
        let mut found = Vec::new();
        collect(&spec, &mut found);
        let mut shown: Vec<_> =
            found.iter().map(|(reference, required)| format!("{reference} {required}")).collect();
        shown.sort();
        assert_eq!(shown, ["ConfigMap two true", "Secret maybe false", "Secret one true"]);
    }

    #[test]
    fn a13_a_missing_object_is_not_to_be_labelled_and_an_allowed_one_is_not_told() {
        let reference = Reference { source: Source::Secret, name: "keys".into() };
        let told = |required, labels: Option<Value>| {
            let named = Named { place: "a.yaml:1".into(), required };
            let metadata = labels
                .map(|labels| serde_json::from_value(json!({"labels": labels})).expect("metadata"));
            note(&reference, &named, metadata.as_ref(), "team").unwrap_or_default()
        };
        assert!(
            told(true, None).ends_with("to be created with the label convoke.dev/agents=allow")
        );
        assert_eq!(told(false, None), "", "pods do without");
        assert_eq!(told(true, Some(json!({"convoke.dev/agents": "allow"}))), "");
        let command = "to label: kubectl -n team label secret/keys convoke.dev/agents=allow";
        for required in [true, false] {
            assert!(told(required, Some(json!({}))).ends_with(command));
        }
    }
}
