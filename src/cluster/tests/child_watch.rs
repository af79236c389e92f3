use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::ConfigMap;
use serde_json::{Value, json};

use super::super::children::ChildStores;
use super::super::fake::Fake;
use super::*;

fn owned_by(version: &str, kind: &str, controller: bool) -> Value {
    json!({"apiVersion": version, "kind": kind, "name": "a", "uid": "a", "controller": controller})
}

/// An object with the label of children and this owner.
fn child(namespace: &str, name: &str, owner: Value) -> Value {
    json!({"metadata": {"namespace": namespace, "name": name,
        "labels": {keys::OWNER_KIND: "agent"}, "ownerReferences": [owner]}})
}

fn ours() -> Value {
    owned_by("convoke.dev/v1alpha1", "Agent", true)
}

#[tokio::test(start_paused = true)]
async fn a13_a_label_alone_makes_nobody_keep_a_config_map() {
    let (fake, store) = (Fake::default(), ChildStores::new().config_maps);
    fake.put(child("team", "agent-a-1", ours()));
    let others = [
        owned_by("apps/v1", "Agent", true),
        owned_by("v1", "Agent", true),
        owned_by("convoke.dev.example.com/v1", "Agent", true),
        owned_by("convoke.dev/v1alpha1", "GitSync", true),
        owned_by("convoke.dev/v1alpha1", "Agent", false),
        json!({"apiVersion": "convoke.dev/v1alpha1", "kind": "Agent", "name": "a".repeat(100_000), "uid": "a", "controller": true}),
    ];
    for (number, owner) in others.iter().enumerate() {
        fake.put(child("team", &format!("agent-a-9{number}"), owner.clone()));
    }
    let watching = tokio::spawn(run::<ConfigMap>(fake.client(), store.clone()));
    store.wait_ready().await;
    assert_eq!(store.names("team"), ["agent-a-1"]);
    // Nor later; and what is given away is ours no more.
    tokio::time::sleep(std::time::Duration::from_secs(1)).await;
    for name in ["agent-a-1", "agent-a-2"] {
        fake.put(child("team", name, others[0].clone()));
    }
    fake.put(child("team", "agent-a-3", ours()));
    tokio::time::sleep(std::time::Duration::from_secs(1)).await;
    assert_eq!(store.names("team"), ["agent-a-3"]);
    watching.abort();
}

#[tokio::test(start_paused = true)]
async fn a13_children_with_forged_owners_take_the_share_of_their_namespace_and_no_more() {
    let (fake, store) = (Fake::default(), ChildStores::new().deployments);
    // Text that LZ4 cannot make shorter.
    let noise = |seed: u32| -> String {
        let mut state = seed;
        let mut next = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            format!("{state:08x}")
        };
        (0..500).map(|_| next()).collect()
    };
    let deployment = |namespace: &str, name: &str, seed: u32| {
        let mut object = child(namespace, name, ours());
        object["spec"] =
            json!({"selector": {}, "template": {"metadata": {"annotations": {"a": noise(seed)}}}});
        object
    };
    for number in 0..20 {
        fake.put(deployment("greedy", &format!("d{number:02}"), number));
    }
    fake.put(deployment("team", "agent-a", 99));
    let watching = tokio::spawn(run_within::<Deployment>(10, 12_000, fake.client(), store.clone()));
    store.wait_ready().await;
    let seen = || {
        let all = store.list("greedy");
        let whole = all.iter().filter(|(_, entry)| entry.value.object().is_some()).count();
        let bytes: usize = all.iter().map(|(_, entry)| entry.value.bytes()).sum();
        assert!(bytes <= 12_000, "{bytes}");
        (all.len(), whole)
    };
    let some = |(all, whole): (usize, usize)| all == 10 && (2..10).contains(&whole);
    assert!(some(seen()), "{:?}", seen());
    let live = |namespace: &str, name: &str| store.get(&Key::new(namespace, name));
    let ours = live("team", "agent-a").expect("another namespace");
    assert!(ours.value.object().is_some());
    // What changes finds no more room than there is, and what goes makes room.
    tokio::time::sleep(std::time::Duration::from_secs(1)).await;
    for number in 0..20 {
        fake.put(deployment("greedy", &format!("d{number:02}"), 100 + number));
    }
    tokio::time::sleep(std::time::Duration::from_secs(1)).await;
    assert!(some(seen()), "{:?}", seen());
    for number in 0..10 {
        fake.delete("greedy", &format!("d{number:02}"));
    }
    fake.put(deployment("greedy", "d19", 7));
    tokio::time::sleep(std::time::Duration::from_secs(1)).await;
    let entry = live("greedy", "d19").expect("there is room");
    assert!(entry.value.object().is_some());
    watching.abort();
}
