use kube::core::DeserializeGuard;
use serde_json::{Value, json};

use super::*;
use crate::cluster::fake::Fake;

/// The GitSync `team/main`, whose variables come from this ConfigMap.
fn sync(syncs: &Store<Managed<GitSync>>, version: u64, from: Option<&str>) {
    let from: Vec<_> = from.iter().map(|name| json!({"configMapRef": {"name": name}})).collect();
    let object = json!({
        "apiVersion": "convoke.dev/v1alpha1", "kind": "GitSync",
        "metadata": {"name": "main", "namespace": "team", "uid": "m", "generation": version,
            "resourceVersion": version.to_string()},
        "spec": {"url": "https://git.example", "variables": {"from": from}},
    });
    let object = serde_json::from_value(object).expect("a GitSync");
    let (key, entry) = reflector::entry::<Managed<GitSync>>(DeserializeGuard(Ok(object)));
    syncs.applied(key, entry);
}

fn map(name: &str, value: &str) -> Value {
    json!({"metadata": {"namespace": "team", "name": name}, "data": {"k": value}})
}

async fn heard(queue: &Queue, changed: &Changed) -> bool {
    let next = tokio::time::timeout(std::time::Duration::from_secs(60), queue.next()).await;
    let Ok(key) = next else { return false };
    queue.done(&key);
    assert_eq!(key, Key::new("team", "main"));
    assert!(changed.take(&key));
    true
}

#[tokio::test(start_paused = true)]
async fn g21_the_end_of_a_config_map_is_heard_that_was_named_after_it_was_there() {
    let (fake, queue) = (Fake::default(), Queue::new());
    let (syncs, changed) = (Store::new("GitSync"), Arc::<Changed>::default());
    syncs.list_begins();
    syncs.list_done();
    for name in ["a", "b", "c", "other"] {
        fake.put(map(name, "1"));
    }
    let follows = follow(fake.client(), syncs.clone(), changed.clone(), queue.clone());
    let following = tokio::spawn(follows);
    sync(&syncs, 1, None);
    assert!(!heard(&queue, &changed).await, "it names none");
    for (version, name) in [(2, "a"), (3, "b"), (4, "c")] {
        sync(&syncs, version, Some(name));
        assert!(!heard(&queue, &changed).await, "its own change is told elsewhere");
        match name {
            "a" => fake.delete("team", "a"),
            "b" => fake.put(map("b", "2")),
            // While the watch is down.
            _ => {
                fake.lose("team", "c");
                fake.expire();
            }
        }
        assert!(heard(&queue, &changed).await, "{name}");
        assert!(!heard(&queue, &changed).await, "{name}: once");
        fake.delete("team", "other");
        fake.put(map("other", "2"));
        assert!(!heard(&queue, &changed).await, "nobody uses it");
    }
    following.abort();
}
