//! What is asked when, and what becomes of it, on a server for tests.

use kube::core::DeserializeGuard;
use serde_json::{Value, json};

use super::server::{self, Server};
use super::*;
use crate::api::agent::AgentStatus;
use crate::api::{Agent, MCPServer};
use crate::cluster::fake::Fake;
use crate::cluster::reflector;
use crate::net::Policy;

struct World {
    discovery: Arc<Discovery>,
    stores: Stores,
    /// The queue of the controller of MCPServers.
    controller: Arc<Queue>,
    server: Server,
}

const UID: &str = "u-s";

fn key() -> Key {
    Key::new("team", "s")
}

impl World {
    /// An MCPServer `s` that is remote, and answers with this status and this tool.
    async fn new(answers: impl Fn() -> (u16, &'static str) + Send + Sync + 'static) -> Self {
        let server = Server::new(move |seen| {
            let (status, name) = answers();
            let result = json!({"tools": [{"name": name}], "_meta": {"io.modelcontextprotocol/serverInfo": {}}});
            server::json(status, &json!({"jsonrpc": "2.0", "id": seen.body["id"], "result": result}))
        })
        .await;
        let stores = Stores::new();
        let dialler = Dialler::new(Policy { insecure: true, ..Policy::default() });
        let client = Fake::default().client();
        let children = ChildStores::new();
        let discovery = Discovery::new(client, stores.clone(), children, Pods::new(), dialler);
        let controller = Queue::new();
        discovery.notify(BTreeMap::from([(Kind::MCPServer, controller.clone())]));
        let world = Self { discovery, stores, controller, server };
        world.put(1, 1, &json!({}));
        world
    }

    /// The MCPServer in this version and generation, with this status.
    fn put(&self, version: u64, generation: i64, status: &Value) {
        let object = json!({"apiVersion": "convoke.dev/v1alpha1", "kind": "MCPServer",
            "metadata": {"name": "s", "namespace": "team", "uid": UID, "generation": generation,
                "resourceVersion": version.to_string()},
            "spec": {"remote": {"url": self.server.url.as_str()}}, "status": status});
        let object = serde_json::from_value::<DeserializeGuard<MCPServer>>(object).expect("object");
        let (key, entry) = reflector::entry::<Managed<MCPServer>>(object);
        self.stores.mcp_servers.wrote(key, entry);
    }

    /// Its controller has reconciled it.
    fn follow(&self, generation: i64) {
        let url = self.server.url.to_string();
        let question = Question { topic: Topic::Tools, url, deployment: None, generation };
        self.discovery.follow(Kind::MCPServer, &key(), UID, Some(question));
    }

    /// It is its turn. Gives the seconds until the next one.
    async fn turn(&self) -> u64 {
        let next = self.discovery.clone().reconcile(id(Kind::MCPServer, &key())).await;
        match next.expect("infallible") {
            Next::After(pause) => pause.as_secs(),
            other => panic!("{other:?}"),
        }
    }

    fn told(&self, generation: i64) -> Option<Arc<Told>> {
        self.discovery.told(Kind::MCPServer, &key(), Some(generation))
    }

    /// The status that the controller would write.
    fn status(&self, told: &Told) -> Value {
        let server = object(&self.stores.mcp_servers, &key()).expect("the object");
        let mut status = server.status.clone().unwrap_or_default();
        told.tell_tools(&mut status, Timestamp::UNIX_EPOCH);
        serde_json::to_value(status).expect("a status")
    }
}

#[tokio::test]
async fn t5_what_is_found_wakes_the_controller_until_the_status_tells_it() {
    let world = World::new(|| (200, "a")).await;
    world.follow(1);
    let pause = world.turn().await;
    assert!((3240..=3960).contains(&pause), "an hour, more or less: {pause}");
    assert_eq!(world.controller.len(), 1);
    let told = world.told(1).expect("told");
    assert_eq!(told.revision, "1");
    assert_eq!(world.told(2), None, "of another generation");

    world.put(2, 1, &world.status(&told));
    world.follow(1);
    assert_eq!(world.told(1), None, "the status tells it");
    assert!(world.turn().await > 3000, "it is not asked again for that");
    assert_eq!(world.server.seen().len(), 1);

    // Another generation is asked at once, and found the same.
    world.put(3, 2, &world.status(&told));
    world.follow(2);
    world.turn().await;
    assert_eq!((world.server.seen().len(), world.told(2).is_some()), (2, true));
}

#[tokio::test]
async fn t5_what_the_status_tells_already_wakes_nobody_and_has_time_after_a_start() {
    let world = World::new(|| (200, "a")).await;
    world.follow(1);
    world.turn().await;
    let status = world.status(&world.told(1).expect("told"));

    let again = World::new(|| (200, "a")).await;
    again.put(2, 1, &status);
    again.follow(1);
    // One object has its turn within a minute; see the schedule.
    let first = again.turn().await;
    assert!((first < 60 && again.server.seen().is_empty()) || again.server.seen().len() == 1);
    again.discovery.subjects.lock().values_mut().for_each(|subject| {
        subject.progress = Progress::starting(Duration::ZERO);
    });
    again.turn().await;
    assert!(!again.server.seen().is_empty());
    assert!(again.controller.is_empty() && again.told(1).is_none(), "nothing to write");
}

#[tokio::test]
async fn t5_what_nobody_could_confirm_is_asked_at_once_after_a_start() {
    let world = World::new(|| (200, "a")).await;
    world.follow(1);
    world.turn().await;
    let mut status = world.status(&world.told(1).expect("told"));
    status["conditions"][0]["status"] = json!("Unknown");
    status["conditions"][0]["reason"] = json!(NO_READY_POD);

    let again = World::new(|| (200, "a")).await;
    again.put(2, 1, &status);
    again.follow(1);
    assert!(again.turn().await > 3000, "it was its turn");
    assert_eq!((again.server.seen().len(), again.told(1).is_some()), (1, true));
}

#[tokio::test]
async fn t5_a_first_failure_is_not_told_and_a_second_one_is() {
    let world = World::new(|| (500, "a")).await;
    world.follow(1);
    assert!(world.turn().await <= 2);
    assert!(world.controller.is_empty() && world.told(1).is_none());
    world.discovery.subjects.lock().values_mut().for_each(|subject| {
        let vary = |_| Duration::ZERO;
        subject.progress.asked("", true, (Duration::ZERO, Duration::ZERO), vary);
    });
    world.turn().await;
    assert_eq!((world.controller.len(), world.told(1).is_some()), (1, true));
}

#[tokio::test]
async fn t5_an_object_that_is_gone_is_asked_no_more() {
    let world = World::new(|| (200, "a")).await;
    world.follow(1);
    world.discovery.forget(Kind::MCPServer, &key());
    let next = world.discovery.clone().reconcile(id(Kind::MCPServer, &key())).await;
    assert_eq!(next.expect("infallible"), Next::Forget);
    assert!(world.discovery.subjects.lock().is_empty() && world.server.seen().is_empty());
}

#[tokio::test]
async fn a9_without_a_pod_nobody_is_asked() {
    let world = World::new(|| (200, "a")).await;
    let url = "http://mcpserver-s.team.svc.cluster.local:8000/mcp".to_owned();
    let deployment = Some("mcpserver-s".to_owned());
    let question = Question { topic: Topic::Tools, url, deployment, generation: 1 };
    world.discovery.follow(Kind::MCPServer, &key(), UID, Some(question));
    let next = world.discovery.clone().reconcile(id(Kind::MCPServer, &key())).await;
    assert_eq!(next.expect("infallible"), Next::Settled);
    assert!(world.controller.is_empty());
}

#[tokio::test]
async fn a9_o11_without_the_right_to_see_pods_it_is_told_that_nobody_can_be_asked() {
    let world = World::new(|| (200, "a")).await;
    let url = "http://mcpserver-s.team.svc.cluster.local:8000/mcp".to_owned();
    let deployment = Some("mcpserver-s".to_owned());
    let question = Question { topic: Topic::Tools, url, deployment, generation: 1 };
    world.discovery.pods.forbid();
    world.discovery.follow(Kind::MCPServer, &key(), UID, Some(question.clone()));
    assert!((30..=120).contains(&world.turn().await));
    let status = world.status(&world.told(1).expect("told"));
    let condition = &status["conditions"][0];
    assert_eq!(
        (&condition["status"], &condition["reason"]),
        (&json!("False"), &json!("NotAllowed"))
    );
    let text = condition["message"].as_str().expect("a message");
    assert_eq!(text, "the operator may not read pods: see pods in deploy/rbac.yaml");

    world.put(2, 1, &status);
    world.controller.done(&world.controller.next().await);
    world.discovery.follow(Kind::MCPServer, &key(), UID, Some(question));
    world.turn().await;
    assert!(world.told(1).is_none() && world.controller.is_empty(), "it is told once");
}

#[tokio::test]
async fn a9_a5_an_earlier_configuration_is_asked_for_again_until_the_newer_one_is_loaded() {
    let loaded = Arc::new(Mutex::new("aa"));
    let said = loaded.clone();
    let server = Server::new(move |_| {
        let extension = json!({"uri": "https://convoke.dev/a2a/configuration/v1", "params": {"hash": *said.lock()}});
        let capabilities = json!({"extensions": [extension]});
        let card = json!({"name": "a", "url": "http://a.team:8000", "capabilities": capabilities});
        server::json(200, &card)
    })
    .await;
    let stores = Stores::new();
    let dialler = Dialler::new(Policy { insecure: true, ..Policy::default() });
    let (client, children) = (Fake::default().client(), ChildStores::new());
    let discovery = Discovery::new(client, stores.clone(), children, Pods::new(), dialler);
    let object = json!({"apiVersion": "convoke.dev/v1alpha1", "kind": "Agent",
        "metadata": {"name": "a", "namespace": "team", "uid": UID, "generation": 2, "resourceVersion": "1"},
        "spec": {"modelAPI": {"name": "m"}}});
    let object = serde_json::from_value::<DeserializeGuard<Agent>>(object).expect("object");
    let (key, entry) = reflector::entry::<Managed<Agent>>(object);
    stores.agents.wrote(key.clone(), entry);
    let wanted = card::ConfigVersion { hash: "bb".into(), commit: None };
    let (topic, url) = (Topic::Card(Some(wanted)), server.url.to_string());
    let question = Question { topic, url, deployment: None, generation: 2 };
    discovery.follow(Kind::Agent, &key, UID, Some(question));
    let turn = async || match discovery.clone().reconcile(id(Kind::Agent, &key)).await {
        Ok(Next::After(pause)) => pause.as_secs(),
        other => panic!("{other:?}"),
    };
    // One more failure, whose pause is over.
    let later = || {
        discovery.subjects.lock().values_mut().for_each(|subject| {
            let vary = |_| Duration::ZERO;
            subject.progress.asked("", true, (Duration::ZERO, Duration::ZERO), vary);
        });
    };
    let status = || {
        let told = discovery.told(Kind::Agent, &key, Some(2))?;
        let mut status = AgentStatus::default();
        told.tell_card(&mut status, Timestamp::UNIX_EPOCH);
        let loaded = status.card.and_then(|card| card.config_hash);
        Some((status.conditions.remove(0).reason, loaded))
    };
    assert!(turn().await <= 2);
    assert_eq!(status(), None, "a kubelet takes a moment to bring a file");
    later();
    assert!(turn().await <= 8);
    assert_eq!(status(), Some(("OldConfiguration".to_owned(), Some("aa".to_owned()))));
    *loaded.lock() = "bb";
    later();
    assert!(turn().await > 3000, "it is settled");
    assert_eq!(status(), Some(("Read".to_owned(), Some("bb".to_owned()))));
}

#[tokio::test]
async fn t6_a_url_that_is_none_is_told_at_once() {
    let world = World::new(|| (200, "a")).await;
    let url = "http://[".to_owned();
    let question = Question { topic: Topic::Tools, url, deployment: None, generation: 1 };
    let follow = || world.discovery.follow(Kind::MCPServer, &key(), UID, Some(question.clone()));
    follow();
    assert_eq!(world.controller.len(), 1);
    let status = world.status(&world.told(1).expect("told"));
    let text = status["conditions"][0]["message"].as_str().expect("a message").to_owned();
    assert!(text.starts_with("its URL is not valid"), "{text}");
    world.put(2, 1, &status);
    world.controller.done(&world.controller.next().await);
    follow();
    assert!(world.told(1).is_none() && world.controller.is_empty(), "it is told once");
}
