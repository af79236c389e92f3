//! What a namespace holds, without what differs between two runs of the same scenario: times, uids, versions.

use std::collections::BTreeMap;

use kube::Client;
use kube::api::{Api, DynamicObject, ListParams};
use kube::core::{ApiResource, GroupVersionKind};
use serde_json::{Value, json};

use super::proxy::unhashed;

/// `Kind/name` → what the object says.
pub type Portrait = BTreeMap<String, Value>;

const KINDS: &[(&str, &str, &str, &str)] = &[
    ("convoke.dev", "v1alpha1", "GitSync", "gitsyncs"),
    ("convoke.dev", "v1alpha1", "ModelAPI", "modelapis"),
    ("convoke.dev", "v1alpha1", "MCPServer", "mcpservers"),
    ("convoke.dev", "v1alpha1", "AgentBuild", "agentbuilds"),
    ("convoke.dev", "v1alpha1", "Agent", "agents"),
    ("apps", "v1", "Deployment", "deployments"),
    ("", "v1", "Service", "services"),
    ("", "v1", "ConfigMap", "configmaps"),
];

/// All objects of our kinds and their children in a namespace.
pub async fn portrait(client: &Client, namespace: &str) -> Portrait {
    let mut objects = Vec::new();
    for (group, version, kind, plural) in KINDS {
        let gvk = GroupVersionKind::gvk(group, version, kind);
        let resource = ApiResource::from_gvk_with_plural(&gvk, plural);
        let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), namespace, &resource);
        let list = api.list(&ListParams::default()).await.expect("list");
        objects.extend(list.items.into_iter().map(|object| (*kind, object)));
    }
    // Every namespace has this one, and it is nobody's.
    objects.retain(|(_, object)| object.metadata.name.as_deref() != Some("kube-root-ca.crt"));
    let deployed: Vec<_> = objects
        .iter()
        .filter(|(kind, _)| *kind == "Deployment")
        .map(|(_, object)| object.data.to_string())
        .collect();
    objects.retain(|(kind, object)| {
        *kind != "ConfigMap" || !is_of_an_older_template(object, &deployed)
    });
    let names: Vec<_> = objects
        .iter()
        .map(|(kind, object)| {
            let uid = object.metadata.uid.clone().unwrap_or_default();
            let name = object.metadata.name.clone().unwrap_or_default();
            (uid, format!("{kind}/{}", unhashed(&name)), name)
        })
        .collect();
    let known = |text: &str| {
        let mut text = text.replace(namespace, "NAMESPACE");
        for (uid, object, name) in &names {
            text = text.replace(uid, &format!("uid of {object}"));
            if unhashed(name) != name {
                text = text.replace(name, &format!("{}-HASH", unhashed(name)));
                // Pods are told the hash alone, too.
                let hash = name.trim_start_matches(unhashed(name)).trim_start_matches('-');
                if text == hash {
                    text = "HASH".to_owned();
                }
            }
        }
        text
    };
    let mut portrait = Portrait::new();
    for ((kind, object), (_, title, _)) in objects.iter().zip(&names) {
        let mut value = features(kind, object);
        each_text(&mut value, &known);
        // Two with the same name but for the hash: the second is told apart by its place.
        let mut title = title.clone();
        while portrait.contains_key(&title) {
            title.push('+');
        }
        portrait.insert(title, value);
    }
    portrait
}

/// Whether a ConfigMap is kept for pods of an older template alone. How many templates there were on the way depends on the order in
/// which the changes of one commit arrived: the address of a model, say, before the prompt of an agent.
fn is_of_an_older_template(config_map: &DynamicObject, deployed: &[String]) -> bool {
    let name = config_map.metadata.name.as_deref().unwrap_or_default();
    unhashed(name) != name && !deployed.iter().any(|deployment| deployment.contains(name))
}

fn features(kind: &str, object: &DynamicObject) -> Value {
    let meta = &object.metadata;
    let mut annotations = meta.annotations.clone().unwrap_or_default();
    for key in [
        // Over the owner's uid, or keyed.
        convoke::api::keys::CHILD_HASH,
        convoke::api::keys::INPUTS,
        "deployment.kubernetes.io/revision",
        // What the tester asked for: a digest over uids.
        convoke::api::keys::APPROVE_PRUNE,
    ] {
        if let Some(value) = annotations.get_mut(key) {
            "some".clone_into(value);
        }
    }
    let owners: Vec<_> = meta
        .owner_references
        .iter()
        .flatten()
        .map(|owner| format!("{}/{}", owner.kind, owner.name))
        .collect();
    let mut data = object.data.clone();
    let keep_status = kind != "Deployment" && kind != "Service";
    if let Some(data) = data.as_object_mut() {
        if !keep_status {
            data.remove("status");
        }
        if let Some(spec) = data.get_mut("spec").and_then(Value::as_object_mut) {
            spec.remove("clusterIP");
            spec.remove("clusterIPs");
        }
        if let Some(template) = data
            .get_mut("spec")
            .and_then(|spec| spec.pointer_mut("/template/metadata/annotations"))
            .and_then(Value::as_object_mut)
        {
            template.insert(convoke::api::keys::INPUTS.into(), "some".into());
        }
        if let Some(status) = data.get_mut("status") {
            plain_status(status);
        }
    }
    // A change by hand reaches a Deployment or is undone before that.
    let generation = meta.generation.filter(|_| kind != "Deployment");
    json!({
        "labels": meta.labels, "annotations": annotations, "finalizers": meta.finalizers, "owners": owners,
        "deleting": meta.deletion_timestamp.is_some(), "generation": generation, "object": data,
    })
}

/// Without times. A crash may swallow an entry of the history or split one in two, so of those with the same outcome of
/// one commit one is kept. What two GitSyncs say of each other on the way to where they agree depends on who looks first.
fn plain_status(status: &mut Value) {
    let Some(map) = status.as_object_mut() else { return };
    map.remove("stages");
    // How many pods the controller-manager has made: nothing of ours, and nobody runs them here.
    map.remove("replicas");
    map.remove("updatedReplicas");
    // What is asked outside of the cluster is told when there is an answer, or none for the second time.
    if let Some(conditions) = map.get_mut("conditions").and_then(Value::as_array_mut) {
        conditions.retain(|c| c["type"] != "Reachable" && c["type"] != "ToolsDiscovered");
    }
    if let Some(history) = map.get_mut("history").and_then(Value::as_array_mut) {
        let mut newest = true;
        history.retain(|entry| std::mem::take(&mut newest) || entry["outcome"] != "Partial");
        for entry in history.iter_mut() {
            *entry = json!([entry["revision"], entry["outcome"], entry["subject"]]);
        }
        history.dedup();
        // A status holds ten, and how many were made on the way differs.
        history.truncate(3);
    }
    // Digests are over uids.
    for digest in ["lastHandledApproval", "lastPruneDigest"] {
        if let Some(digest) = map.get_mut(digest) {
            *digest = "some".into();
        }
    }
    for prune in ["pendingPrune", "approvedPrune"] {
        if let Some(digest) = map.get_mut(prune).and_then(|prune| prune.get_mut("digest")) {
            *digest = "some".into();
        }
        if let Some(uids) = map.get_mut(prune).and_then(|prune| prune.get_mut("uids")) {
            *uids = uids.as_array().map_or(0, Vec::len).into();
        }
    }
    for condition in map.get_mut("conditions").and_then(Value::as_array_mut).into_iter().flatten() {
        if let Some(condition) = condition.as_object_mut() {
            condition.remove("lastTransitionTime");
            // It names the digest to approve.
            if condition.get("message").is_some_and(|m| m.to_string().contains("approve-prune")) {
                condition.insert("message".into(), "how to approve".into());
            }
        }
    }
}

fn each_text(value: &mut Value, change: &dyn Fn(&str) -> String) {
    match value {
        Value::String(text) => *text = change(text),
        Value::Array(list) => list.iter_mut().for_each(|value| each_text(value, change)),
        Value::Object(map) => map.values_mut().for_each(|value| each_text(value, change)),
        _ => {}
    }
}

/// What differs, for people.
pub fn difference(is: &Portrait, should: &Portrait) -> Vec<String> {
    let mut lines = Vec::new();
    for name in is.keys().chain(should.keys()).collect::<std::collections::BTreeSet<_>>() {
        match (is.get(name), should.get(name)) {
            (Some(_), None) => lines.push(format!("{name} is there")),
            (None, Some(_)) => lines.push(format!("{name} is missing")),
            (Some(is), Some(should)) => differ(name, is, should, &mut lines),
            (None, None) => {}
        }
    }
    lines
}

fn differ(path: &str, is: &Value, should: &Value, lines: &mut Vec<String>) {
    match (is, should) {
        _ if is == should => {}
        (Value::Object(is), Value::Object(should)) => {
            for key in is.keys().chain(should.keys()).collect::<std::collections::BTreeSet<_>>() {
                let of = |map: &serde_json::Map<String, Value>| {
                    map.get(key).cloned().unwrap_or(Value::Null)
                };
                differ(&format!("{path}.{key}"), &of(is), &of(should), lines);
            }
        }
        _ => lines.push(format!("{path}: {is} instead of {should}")),
    }
}
