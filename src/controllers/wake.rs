//! Which changes in the stores put objects on the queue of their controller.

use std::sync::Arc;
use std::time::Duration;

use crate::api::{Kind, ObjectId, keys};
use crate::cluster::children::{Child, ChildKind, ChildStores};
use crate::cluster::live::{Facts, Managed, Ours};
use crate::cluster::store::{Change, Entry, Key, Store};
use crate::controllers::discovery::tools::TOOLS_DISCOVERED;
use crate::runtime::queue::Queue;

/// The time in which a change by hand in an object from Git is most likely undone, on a busy machine as well. Its pods wait for
/// that.
const MANUAL_CHANGE_DELAY: Duration = Duration::from_secs(3);

/// Changes of objects wake themselves. The echo of a status that Convoke wrote wakes nothing.
pub fn on_own_changes<K: Ours>(store: &Arc<Store<Managed<K>>>, queue: &Arc<Queue>) {
    let sink = queue.clone();
    store.on_change(move |change| match (change.old, change.new) {
        (Some(old), Some(new)) if old.uid == new.uid => {
            let (old, new) = (&old.value.facts, &new.value.facts);
            if by_hand(old, new) {
                sink.hold(change.key.clone(), MANUAL_CHANGE_DELAY);
            } else if !old.same_input(new) {
                sink.add(change.key.clone());
            }
        }
        _ => sink.add(change.key.clone()),
    });
}

/// Whether somebody else than a sync changed the spec of an object from Git, and a sync may undo that. A sync says what it
/// applied. It leaves paused objects alone.
fn by_hand(old: &Facts, new: &Facts) -> bool {
    let applied = new.annotations.get(keys::APPLIED);
    let is_paused = new.annotations.get(keys::RECONCILE) == Some(keys::DISABLED);
    applied.is_some()
        && !is_paused
        && applied == old.annotations.get(keys::APPLIED)
        && old.spec_hash != new.spec_hash
}

/// Changes of children wake their owner, if it is of this kind.
pub fn on_child_changes(children: &ChildStores, kind: Kind, queue: &Arc<Queue>) {
    fn one<K: ChildKind>(store: &Store<Child<K>>, kind: Kind, queue: &Arc<Queue>) {
        let sink = queue.clone();
        store.on_change(move |change| {
            let owner = |child: &Arc<Entry<Child<K>>>| {
                let ours = child.value.owner_kind() == Some(kind.as_str());
                child.value.owner_name().filter(|_| ours).map(str::to_owned)
            };
            // An owner that loses a child to another owner, or to none, is woken as well.
            let (old, new) = (change.old.and_then(owner), change.new.and_then(owner));
            let lost = old.filter(|old| Some(old) != new.as_ref());
            for owner in lost.into_iter().chain(new) {
                sink.add(Key::new(&change.key.namespace, owner));
            }
        });
    }
    one(&children.deployments, kind, queue);
    one(&children.services, kind, queue);
    one(&children.config_maps, kind, queue);
}

/// Changes of objects of one kind wake the objects that refer to them.
pub fn wake_dependents<K: Ours, D: Ours>(
    store: &Store<Managed<K>>,
    kind: Kind,
    dependents: &Arc<Store<Managed<D>>>,
    queue: &Arc<Queue>,
) {
    let (sink, dependents) = (queue.clone(), dependents.clone());
    store.on_change(move |change| {
        if concerns_dependents(change) {
            add_dependents(&dependents, kind, change.key, &sink);
        }
    });
}

/// Puts the objects that refer to an object on the queue.
pub fn add_dependents<D: Ours>(store: &Store<Managed<D>>, kind: Kind, of: &Key, queue: &Queue) {
    for (key, _) in store.found(&of.namespace, &ObjectId::new(kind, &*of.name).to_string()) {
        queue.add(key);
    }
}

/// Whether objects that refer to this one have to look at it again: it came or went, it has another spec, it became ready or
/// unready, or its status tells something else that they read.
fn concerns_dependents<K: Ours>(change: &Change<'_, Managed<K>>) -> bool {
    match (change.old, change.new) {
        (Some(old), Some(new)) => {
            old.uid != new.uid
                || old.value.facts.spec_hash != new.value.facts.spec_hash
                || old.value.facts.ready != new.value.facts.ready
                || old.value.facts.deleting != new.value.facts.deleting
                || told_status(&old.value) != told_status(&new.value)
        }
        _ => true,
    }
}

/// The fields of a status that dependents read.
fn told_status<K: Ours>(object: &Managed<K>) -> Option<serde_json::Value> {
    let object = object.object()?;
    let mut status = serde_json::to_value(object.as_ref()).ok()?.get("status")?.clone();
    if let Some(map) = status.as_object_mut() {
        let read = ["endpoint", "models", "builtImage", "tools", "toolCount", "toolsRevision"];
        map.retain(|key, _| read.contains(&key.as_str()));
        let discovered = object.conditions().iter().find(|one| one.type_ == TOOLS_DISCOVERED);
        let discovered = discovered.map(|one| format!("{}/{}", one.status, one.reason));
        map.insert("toolsDiscovered".to_owned(), discovered.into());
    }
    Some(status)
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Service;
    use kube::core::DeserializeGuard;
    use serde_json::{Value, json};

    use super::*;
    use crate::api::mcp_server::MCPServer;
    use crate::cluster::live::Stores;
    use crate::cluster::reflector;

    fn put<K: Ours>(store: &Arc<Store<Managed<K>>>, object: Value) {
        let object = serde_json::from_value::<DeserializeGuard<K>>(object).expect("object");
        let (key, entry) = reflector::entry::<Managed<K>>(object);
        store.wrote(key, entry);
    }

    #[tokio::test]
    async fn t5_agents_are_woken_when_tools_are_confirmed_or_not_any_more() {
        let (stores, queue) = (Stores::new(), Queue::new());
        let object = |kind: &str, name: &str, version: u8, spec: Value| {
            let meta = json!({"name": name, "namespace": "team", "uid": name, "resourceVersion": version.to_string()});
            json!({"apiVersion": "convoke.dev/v1alpha1", "kind": kind, "metadata": meta, "spec": spec})
        };
        let server = |version: u8, discovered: &str| {
            let mut server = object("MCPServer", "s", version, json!({"image": "tools:1"}));
            let condition = json!({"type": TOOLS_DISCOVERED, "status": discovered, "reason": "Some",
                "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"});
            server["status"] = json!({"conditions": [condition]});
            put(&stores.mcp_servers, server);
        };
        let spec = json!({"modelAPI": {"name": "m"}, "mcpServers": [{"name": "s"}]});
        put(&stores.agents, object("Agent", "a", 1, spec));
        server(1, "True");
        wake_dependents(&stores.mcp_servers, Kind::MCPServer, &stores.agents, &queue);
        server(2, "True");
        assert!(queue.is_empty(), "no news");
        server(3, "False");
        assert_eq!(queue.next().await, Key::new("team", "a"));
    }

    #[test]
    fn g14_only_a_change_by_hand_that_will_be_undone_is_waited_for() {
        let facts = |image: &str, applied: Option<&str>, reconcile: &str| {
            let mut annotations = json!({keys::RECONCILE: reconcile});
            if let Some(applied) = applied {
                annotations[keys::APPLIED] = json!(applied);
            }
            let meta = json!({"name": "s", "namespace": "team", "uid": "u", "resourceVersion": "1", "annotations": annotations});
            let server = json!({"apiVersion": "convoke.dev/v1alpha1", "kind": "MCPServer", "metadata": meta, "spec": {"image": image}});
            let server =
                serde_json::from_value::<DeserializeGuard<MCPServer>>(server).expect("object");
            reflector::entry::<Managed<MCPServer>>(server).1.value.facts.clone()
        };
        let (enabled, before) = ("enabled", facts("a", Some("1"), "enabled"));
        assert!(by_hand(&before, &facts("b", Some("1"), enabled)));
        assert!(!by_hand(&before, &facts("b", Some("2"), enabled)), "a sync changed it");
        assert!(!by_hand(&before, &facts("a", Some("1"), enabled)), "its spec is the same");
        assert!(!by_hand(&before, &facts("b", Some("1"), keys::DISABLED)), "it is paused");
        assert!(!by_hand(&facts("a", None, enabled), &facts("b", None, enabled)), "not from Git");
    }

    #[tokio::test]
    async fn a11_who_loses_a_child_is_woken() {
        let (children, queue) = (ChildStores::new(), Queue::new());
        on_child_changes(&children, Kind::ModelAPI, &queue);
        let put = |version: u8, owners: &[(&str, &str)]| {
            let owner = |(kind, name): &(&str, &str)| json!({"apiVersion": "convoke.dev/v1alpha1", "kind": kind, "name": name, "uid": name, "controller": true});
            let owners: Vec<_> = owners.iter().map(owner).collect();
            let service = json!({"metadata": {"name": "s", "namespace": "team", "uid": "u",
                "resourceVersion": version.to_string(), "ownerReferences": owners}});
            let service = serde_json::from_value(service).expect("a Service");
            let (key, entry) = reflector::entry::<Child<Service>>(service);
            children.services.applied(key, entry);
        };
        let woken = async |name: &str| {
            assert!(!queue.is_empty(), "{name} is not woken");
            let key = queue.next().await;
            queue.done(&key);
            assert_eq!(key, Key::new("team", name));
        };
        put(1, &[("ModelAPI", "a")]);
        woken("a").await;
        put(2, &[("ModelAPI", "b")]);
        woken("a").await;
        woken("b").await;
        put(3, &[]);
        woken("b").await;
        put(4, &[("MCPServer", "c")]);
        assert!(queue.is_empty(), "it is none of this controller's");
    }
}
