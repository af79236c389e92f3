//! The list of a proxy's agents.

use std::collections::BTreeSet;

use jiff::Timestamp;
use kube::core::DeserializeGuard;
use serde_json::Value;

use super::*;
use crate::api::keys;
use crate::cluster::live::Ours;
use crate::cluster::reflector;

fn listed(name: &str, issued: i64) -> Listed {
    Listed { name: name.into(), uid: format!("u-{name}"), issued }
}

fn put<K: Ours>(store: &Arc<Store<Managed<K>>>, object: Value) {
    let object = serde_json::from_value::<DeserializeGuard<K>>(object).expect("object");
    let (key, entry) = reflector::entry::<Managed<K>>(object);
    store.applied(key, entry);
}

struct World {
    stores: Stores,
    children: ChildStores,
    version: u64,
}

impl World {
    fn new() -> Self {
        Self { stores: Stores::new(), children: ChildStores::new(), version: 0 }
    }

    fn next(&mut self) -> String {
        self.version += 1;
        self.version.to_string()
    }

    fn agent(&mut self, name: &str, uid: &str, api: &str) {
        let version = self.next();
        put::<Agent>(
            &self.stores.agents,
            json!({"apiVersion": "convoke.dev/v1alpha1", "kind": "Agent", "spec": {"modelAPI": {"name": api}},
                "metadata": {"name": name, "namespace": "team", "uid": uid, "resourceVersion": version}}),
        );
    }

    fn deployment(&mut self, name: &str, owner: &str, issued: Value) {
        self.marked(name, owner, json!({keys::KEY_ISSUED: issued}));
    }

    fn marked(&mut self, name: &str, owner: &str, annotations: Value) {
        let version = self.next();
        let object = json!({"metadata": {"name": format!("agent-{name}"), "namespace": "team", "uid": format!("d-{owner}"),
            "resourceVersion": version, "annotations": annotations,
            "ownerReferences": [{"apiVersion": "convoke.dev/v1alpha1", "kind": "Agent", "name": name, "uid": owner, "controller": true}]}});
        let object: Deployment = serde_json::from_value(object).expect("a Deployment");
        let (key, entry) = reflector::entry::<Child<Deployment>>(object);
        self.children.deployments.applied(key, entry);
    }

    fn names(&self, api: &str) -> Vec<String> {
        let mut all = agents_of(&Key::new("team", api), &self.stores, &self.children);
        all.sort();
        all.into_iter().map(|one| format!("{} {} {}", one.name, one.uid, one.issued)).collect()
    }
}

#[tokio::test]
async fn m5_the_list_names_the_agents_of_a_proxy_that_have_a_key() {
    let mut world = World::new();
    world.agent("b", "ub", "m");
    world.agent("a", "ua", "m");
    world.agent("other", "uo", "n");
    world.agent("waits", "uw", "m");
    world.deployment("a", "ua", "100".into());
    world.deployment("b", "ub", "200".into());
    world.deployment("other", "uo", "300".into());
    assert_eq!(world.names("m"), ["a ua 100", "b ub 200"]);
    assert_eq!(world.names("n"), ["other uo 300"]);
    // One that was made anew has no key yet: the Deployment is the earlier one's.
    world.agent("a", "ua2", "m");
    assert_eq!(world.names("m"), ["b ub 200"]);
    for odd in ["", "0", "-5", "x", "1e3", "1000000000000"] {
        world.deployment("b", "ub", odd.into());
        assert!(world.names("m").is_empty(), "{odd:?}");
    }
}

#[tokio::test]
async fn m5_the_list_follows_the_key_that_a_deployment_has() {
    let mut world = World::new();
    let mark = |proxy: &str| json!({keys::KEY_ISSUED: "100", keys::KEY_PROXY: proxy});
    world.agent("a", "ua", "m");
    world.marked("a", "ua", mark("m"));
    assert_eq!(world.names("m"), ["a ua 100"], "once");
    // The spec names another one, but the Deployment is held.
    world.agent("a", "ua", "n");
    assert_eq!(world.names("m"), ["a ua 100"]);
    assert!(world.names("n").is_empty());
    let queue = Queue::new();
    listen(&world.stores, &world.children, &queue);
    world.marked("a", "ua", mark("n"));
    assert_eq!(queue.len(), 2, "news for both");
    assert!(world.names("m").is_empty());
    assert_eq!(world.names("n"), ["a ua 100"]);
    // While its pods are being replaced, the proxy that it has left takes the earlier key.
    let both = json!({keys::KEY_ISSUED: "200", keys::KEY_PROXY: "n", keys::KEY_BEFORE: "m.100"});
    world.marked("a", "ua", both);
    assert_eq!(
        (world.names("m"), world.names("n")),
        (vec!["a ua 100".into()], vec!["a ua 200".into()])
    );
    let queue = Queue::new();
    listen(&world.stores, &world.children, &queue);
    world.marked("a", "ua", json!({keys::KEY_BEFORE: "m.100"}));
    assert_eq!(queue.len(), 2, "news for both");
    assert_eq!((world.names("m"), world.names("n").len()), (vec!["a ua 100".into()], 0));
    let queue = Queue::new();
    listen(&world.stores, &world.children, &queue);
    world.marked("a", "ua", json!({}));
    assert_eq!(queue.len(), 1, "news for the one that it has left");
    assert!(world.names("m").is_empty());
    world.marked("a", "ua", mark("n"));
    // Nobody gets on the list by a Deployment of another owner.
    world.agent("b", "ub", "n");
    world.marked("b", "ua", mark("n"));
    assert_eq!(world.names("n"), ["a ua 100"]);
}

#[tokio::test]
async fn m5_an_agent_that_is_being_deleted_leaves_the_list() {
    let mut world = World::new();
    world.agent("a", "ua", "m");
    world.deployment("a", "ua", "100".into());
    assert_eq!(world.names("m"), ["a ua 100"]);
    let queue = Queue::new();
    listen(&world.stores, &world.children, &queue);
    let version = world.next();
    put::<Agent>(
        &world.stores.agents,
        json!({"apiVersion": "convoke.dev/v1alpha1", "kind": "Agent", "spec": {"modelAPI": {"name": "m"}},
            "metadata": {"name": "a", "namespace": "team", "uid": "ua", "resourceVersion": version,
                "deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["example.com/wait"]}}),
    );
    assert_eq!(queue.len(), 1, "it wakes its proxy");
    assert!(world.names("m").is_empty());
}

#[test]
fn m5_the_list_is_sorted_and_is_what_the_proxy_reads() {
    let AgentList::Text(text, 2) = AgentList::of("team", vec![listed("b", 2), listed("a", 1)])
    else {
        panic!("a list of two");
    };
    let expected = json!({"namespace": "team", "agents": [
        {"name": "a", "uid": "u-a", "issued": 1}, {"name": "b", "uid": "u-b", "issued": 2}]});
    assert_eq!(serde_json::from_str::<Value>(&text).expect("JSON"), expected);
    assert_eq!(
        AgentList::of("team", vec![listed("a", 1), listed("b", 2)]),
        AgentList::Text(text, 2)
    );
}

#[test]
fn m5_a_list_that_is_too_long_keeps_the_oldest_keys_and_is_told() {
    let many = |count: usize| {
        (0..count).map(|n| listed(&format!("{n:0>63}"), 1_800_000_000)).collect::<Vec<_>>()
    };
    let told = |list: &AgentList, before: &mut Vec<Condition>| {
        list.tell(before, conditions::Observed { generation: 1, now: Timestamp::UNIX_EPOCH });
        before.iter().map(|c| format!("{}={} {}", c.type_, c.status, c.reason)).collect::<Vec<_>>()
    };
    let names = |list: &AgentList| {
        let text = list.text().expect("a list").0;
        assert!(text.len() <= MAX_BYTES);
        let list: Value = serde_json::from_str(text).expect("JSON");
        let names = list["agents"].as_array().expect("agents").iter();
        names.map(|one| one["name"].as_str().expect("a name").to_owned()).collect::<Vec<_>>()
    };
    let short = AgentList::of("team", many(5000));
    let mut agents = many(10_000);
    // Its name sorts last.
    agents.push(listed("z-old", 1));
    let long = AgentList::of("team", agents.clone());
    let AgentList::TooLong { listed: held, all: 10_001, .. } = &long else { panic!("too long") };
    let (on, first) = (names(&long), agents[0].name.clone());
    assert!(on.len() == *held && *held > 5000 && on.is_sorted());
    assert!(on.contains(&first) && on.contains(&"z-old".to_owned()));
    // One that is gone leaves it, and newer ones push nobody out.
    agents.remove(0);
    agents.extend((0..5).map(|n| listed(&format!("a-new-{n}"), 1_900_000_000)));
    let next = names(&AgentList::of("team", agents));
    let next: BTreeSet<_> = next.into_iter().collect();
    assert!(!next.contains(&first) && on[1..].iter().all(|name| next.contains(name)));
    assert!(next.iter().all(|name| !name.starts_with("a-new-")));
    let mut conditions = Vec::new();
    assert_eq!(told(&long, &mut conditions), ["AgentsListed=False TooManyAgents"]);
    assert!(conditions[0].message.starts_with("10001 agents do not fit"));
    assert!(conditions[0].message.contains(&format!("it has the {held} whose keys")));
    assert_eq!(told(&AgentList::Keep, &mut conditions).len(), 1, "nothing new is known");
    assert!(told(&short, &mut conditions).is_empty());
}

#[tokio::test]
async fn m5_a_list_is_not_changed_again_at_once() {
    let (pauses, key, start) = (Pauses::default(), Key::new("team", "m"), Instant::now());
    let list = |count: i64| AgentList::of("team", (0..count).map(|n| listed("a", n)).collect());
    assert_eq!(pauses.hold(&key, &list(1), start), None, "the first one");
    let soon = start + Duration::from_millis(500);
    let left = pauses.hold(&key, &list(2), soon).expect("a pause");
    assert!(left + Duration::from_millis(500) > DEBOUNCE_TIME);
    assert_eq!(pauses.hold(&key, &list(1), soon), None, "as it is");
    assert_eq!(pauses.hold(&Key::new("team", "n"), &list(2), soon), None, "another one");
    let later = start + 2 * DEBOUNCE_TIME;
    assert_eq!(pauses.hold(&key, &list(9), later), None, "all that came meanwhile, at once");
    assert!(
        pauses.hold(&key, &list(3000), later + DEBOUNCE_TIME).is_some(),
        "a long one waits longer"
    );
    assert_eq!(pauses.hold(&key, &AgentList::Keep, later), None);
    pauses.forget(&key);
    assert!(!pauses.0.lock().contains_key(&key));
}

#[tokio::test(start_paused = true)]
async fn m5_agents_that_come_together_wake_their_proxy_once() {
    let mut world = World::new();
    let queue = Queue::new();
    listen(&world.stores, &world.children, &queue);
    for n in 0..100 {
        let (name, uid) = (format!("a{n}"), format!("u{n}"));
        world.agent(&name, &uid, "m");
        world.deployment(&name, &uid, "100".into());
    }
    assert_eq!(queue.len(), 1);
    let before = Instant::now();
    let key = queue.next().await;
    assert_eq!(key, Key::new("team", "m"));
    assert!(before.elapsed() >= DEBOUNCE_TIME, "a moment later");
    queue.done(&key);
    // Neither a new version of the Deployment nor of the agent is news.
    world.deployment("a1", "u1", "100".into());
    world.agent("a1", "u1", "m");
    assert!(queue.is_empty());
    // One that moves is news for both.
    world.agent("a1", "u1", "n");
    assert_eq!(queue.len(), 2);
}
