use serde_json::{Value, json};

use super::super::digest::MacKey;
use super::super::watched::WatchedConfigMap;
use super::*;
use crate::cluster::fake::Fake;
use crate::cluster::reflector::entry_of;

fn map(namespace: &str, name: &str, keys: usize) -> Value {
    let data: serde_json::Map<_, _> = (0..keys).map(|n| (format!("k{n}"), json!("v"))).collect();
    json!({"metadata": {"namespace": namespace, "name": name}, "data": data})
}

/// A watch of all ConfigMaps; whom it wakes.
fn watched(fake: &Fake, max_keys: usize) -> (Arc<InputWatch>, Arc<Mutex<Vec<String>>>) {
    let (watch, woken) =
        (InputWatch::new(Source::ConfigMap, max_keys), Arc::<Mutex<Vec<_>>>::default());
    let counted = watch.clone();
    watch.store.on_change(move |change| counted.changed(change));
    let (watching, sink) = (watch.clone(), woken.clone());
    let client = fake.client();
    let api = Api::<WatchedConfigMap>::all(client.clone());
    tokio::spawn(async move {
        let key = MacKey::new(&[7; 32]);
        let read = |text: &str| {
            let map = serde_json::from_str(text)?;
            Ok(entry_of(map, |map: WatchedConfigMap| map.digests(&key)))
        };
        let wake = |affected: Affected<'_>| {
            let text = match affected {
                Affected::All => "all".to_owned(),
                Affected::Namespace(namespace) => namespace.to_owned(),
                Affected::Readers(key) => key.to_string(),
            };
            sink.lock().push(text);
        };
        watching.run(&client, api, read, wake).await;
    });
    (watch, woken)
}

#[tokio::test(start_paused = true)]
async fn a13_room_is_used_and_only_its_namespace_is_listed_for_that_and_seldom() {
    let fake = Fake::default();
    for name in ["a", "b", "c"] {
        fake.put(map("team", name, 4));
    }
    fake.put(map("other", "x", 4));
    let (watch, woken) = watched(&fake, 10);
    let woken = || std::mem::take(&mut *woken.lock());
    let is_left = |name: &str| watch.budget().is_left_out(&Key::new("team", name));
    watch.store.wait_ready().await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(woken(), ["all"]);
    assert!(is_left("c") && !is_left("b") && !is_left("missing"));
    // One that was left out goes: nobody is over any more. It comes back, and one that was kept goes.
    fake.delete("team", "c");
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(!watch.budget().is_over("team"));
    assert_eq!(woken(), ["team/c"]);
    fake.put(map("team", "c", 4));
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(is_left("c") && watch.store.get(&Key::new("team", "c")).is_none());
    assert_eq!(woken(), ["team/c"]);
    fake.delete("team", "a");
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert!(!is_left("c") && watch.store.get(&Key::new("team", "c")).is_some());
    let lists = fake.lists();
    assert_eq!(lists.len(), 2, "{lists:?}");
    assert!(lists[1].contains("/namespaces/team/configmaps?"), "{lists:?}");

    // A namespace that stays over and changes all the time.
    fake.put(map("team", "d", 9));
    for number in 0..1800 {
        fake.put(map("team", "b", 3 + number % 2));
        tokio::time::sleep(Duration::from_secs(2)).await;
    }
    let lists = &fake.lists()[2..];
    assert!((10..=13).contains(&lists.len()), "{lists:?}");
    assert!(lists.iter().all(|list| list.contains("/namespaces/team/")), "{lists:?}");
}
