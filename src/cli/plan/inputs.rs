//! Notes about Secrets and ConfigMaps that definitions name and pods may not read. Their data is not read.

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

/// Objects that one plan asks the API server for.
const MAX_OBJECTS: usize = 500;

/// Definitions that one note names.
const MAX_NAMED_PLACES: usize = 5;

/// The definitions that name an object, and whether any pod needs the object.
#[derive(Debug, Default, PartialEq)]
struct Named {
    places: Vec<String>,
    required: bool,
}

impl Named {
    /// The definitions, as far as one note names them.
    fn shown(&self) -> String {
        let shown = self.places.iter().take(MAX_NAMED_PLACES).cloned().collect::<Vec<_>>();
        match self.places.len().saturating_sub(MAX_NAMED_PLACES) {
            0 => shown.join(", "),
            more => format!("{} and {more} more", shown.join(", ")),
        }
    }
}

/// The notes about the Secrets and ConfigMaps that these definitions name. About a kind that may not be read there is one.
pub async fn notes(args: &ConnectionArgs, catalog: &Catalog) -> Result<Vec<String>, Failure> {
    let all = named(catalog);
    let mut notes = Vec::new();
    if all.is_empty() {
        return Ok(notes);
    }
    let connection = Connection::open(args).await?;
    let mut unreadable = BTreeSet::new();
    for (reference, named) in all.iter().take(MAX_OBJECTS) {
        if unreadable.contains(&reference.source) {
            continue;
        }
        match metadata(&connection, reference).await {
            Ok(found) => {
                notes.extend(note(reference, named, found.as_ref(), &connection.namespace));
            }
            Err(error) => {
                let source = reference.source;
                unreadable.insert(source);
                notes.push(format!(
                    "{source}s are named, and cannot be read here, so whether pods may read them is not known: {error}",
                    source = source.as_str()
                ));
            }
        }
    }
    if let Some(more) = all.len().checked_sub(MAX_OBJECTS).filter(|more| *more > 0) {
        notes.push(format!("{more} more Secrets and ConfigMaps are named, and were not looked at"));
    }
    Ok(notes)
}

/// The metadata of an object, if it exists.
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

/// The note about an object, if there is anything to say.
fn note(
    reference: &Reference,
    named: &Named,
    found: Option<&ObjectMeta>,
    namespace: &str,
) -> Option<String> {
    let (place, required) = (named.shown(), named.required);
    let (kind, name) = (reference.source.as_str().to_lowercase(), &reference.name);
    let label = format!("{}={}", keys::AGENTS, keys::ALLOW);
    let Some(metadata) = found else {
        let note = format!(
            "{reference}, which {place} names, does not exist in {namespace}; create it, then: kubectl -n {namespace} label {kind}/{name} {label}"
        );
        return required.then_some(note);
    };
    let value = metadata.labels.as_ref().and_then(|labels| labels.get(keys::AGENTS));
    if value.is_some_and(|value| value == keys::ALLOW) {
        return None;
    }
    Some(format!(
        "{reference}, which {place} names, is not labelled {label}, so pods may not read it, and the API server refuses what begins to name it; to label: kubectl -n {namespace} label {kind}/{name} {label} --overwrite"
    ))
}

/// The objects that definitions name.
fn named(catalog: &Catalog) -> BTreeMap<Reference, Named> {
    let mut all = BTreeMap::<_, Named>::new();
    for definition in catalog.definitions.values() {
        for (reference, required) in references(&definition.canonical_spec.json()) {
            let place = format!("{}:{}", definition.path, definition.line);
            let named = all.entry(reference).or_default();
            named.required |= required;
            if named.places.last() != Some(&place) {
                named.places.push(place);
            }
        }
    }
    all
}

/// The objects that a spec names, and whether pods need each of them.
fn references(value: &Value) -> Vec<(Reference, bool)> {
    match value {
        Value::Object(map) => {
            map.iter().flat_map(|(key, value)| references_of_field(key, value)).collect()
        }
        Value::Array(list) => list.iter().flat_map(references).collect(),
        _ => Vec::new(),
    }
}

fn references_of_field(key: &str, value: &Value) -> Vec<(Reference, bool)> {
    let source = match key {
        "secretKeyRef" | "providerSecretRef" => Some(Source::Secret),
        "configMapKeyRef" => Some(Source::ConfigMap),
        _ => None,
    };
    let (Some(source), Some(name)) = (source, value["name"].as_str()) else {
        return references(value);
    };
    let required = value["optional"] != Value::Bool(true);
    vec![(Reference { source, name: name.to_owned() }, required)]
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
            "providerSecretRef": key("three"),
            "config": {"env": [{"name": "A", "valueFrom": {"configMapKeyRef": key("two")}}]},
            "env": [{"name": "B", "valueFrom": {"secretKeyRef": maybe}}, {"name": "C", "value": "secretKeyRef"}],
        });
        let found = references(&spec);
        let mut shown: Vec<_> =
            found.iter().map(|(reference, required)| format!("{reference} {required}")).collect();
        shown.sort();
        let expected =
            ["ConfigMap two true", "Secret maybe false", "Secret one true", "Secret three true"];
        assert_eq!(shown, expected);
    }

    #[test]
    fn a13_a_note_names_several_definitions_and_counts_the_rest() {
        let named = |count: usize| {
            let places = (1..=count).map(|line| format!("a.yaml:{line}")).collect();
            Named { places, required: true }.shown()
        };
        assert_eq!(named(2), "a.yaml:1, a.yaml:2");
        assert!(named(7).ends_with("a.yaml:5 and 2 more"), "{}", named(7));
    }

    #[test]
    fn a13_a_missing_object_is_not_to_be_labelled_and_an_allowed_one_is_not_told() {
        let reference = Reference { source: Source::Secret, name: "keys".into() };
        let note_of = |required, labels: Option<Value>| {
            let named = Named { places: vec!["a.yaml:1".into()], required };
            let metadata = labels
                .map(|labels| serde_json::from_value(json!({"labels": labels})).expect("metadata"));
            note(&reference, &named, metadata.as_ref(), "team").unwrap_or_default()
        };
        assert!(note_of(true, None).ends_with(
            "create it, then: kubectl -n team label secret/keys convoke.dev/agents=allow"
        ));
        assert_eq!(note_of(false, None), "", "pods do without");
        assert_eq!(note_of(true, Some(json!({"convoke.dev/agents": "allow"}))), "");
        let command =
            "to label: kubectl -n team label secret/keys convoke.dev/agents=allow --overwrite";
        for required in [true, false] {
            assert!(note_of(required, Some(json!({}))).ends_with(command));
        }
    }
}
