//! A push wakes its GitSync by a webhook: the real operator, real repositories, deliveries over HTTP.
#![allow(clippy::expect_used, clippy::panic, clippy::disallowed_types, clippy::disallowed_methods)]

use crate::support;

#[path = "../support/git_faults.rs"]
#[allow(clippy::pedantic, clippy::unwrap_used)]
pub mod git_faults;

use std::collections::BTreeMap;
use std::net::TcpListener;
use std::sync::Arc;
use std::time::{Duration, Instant};

use aws_lc_rs::hmac;
use convoke::api::Kind;
use convoke::api::git_sync::GitSyncStatus;
use convoke::cluster::live::{Managed, Stores};
use convoke::cluster::reflector;
use convoke::git::Repositories;
use convoke::http::webhook::hooks::Outcome;
use convoke::runtime::queue::Queue;
use convoke::sync::webhooks::{self, Webhooks};
use convoke_core::cluster::account::OperatorAccount;
use git_faults::{GitServer, Step};
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Api, Patch, PatchParams};
use serde_json::{Value, json};
use support::cluster::cluster_for;
use support::team::{ARGS, SOON, Team, condition, model, model_at, ready};
use support::{Cluster, Operator, eventually, free_port};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::OnceCell;
use tokio::task::JoinSet;

const PROVIDERS: [&str; 4] = ["GitHub", "GitLab", "Gitea", "GenericHMAC"];
const PUSH: &str = r#"{"ref": "refs/heads/main", "after": "0000", "commits": []}"#;

/// The operator that these tests share, its control plane, and the port of its webhooks.
pub(super) async fn served() -> (&'static Cluster, &'static Operator, u16) {
    static OPERATOR: OnceCell<(Operator, u16)> = OnceCell::const_new();
    let cluster = cluster_for("webhooks").await;
    let started = async || {
        let port = free_port();
        let webhooks = format!("--webhook-addr=127.0.0.1:{port}");
        let operator = cluster.operator(&[ARGS, &[&webhooks]].concat()).await;
        operator.ready(SOON).await;
        (operator, port)
    };
    let (operator, port) = OPERATOR.get_or_init(started).await;
    operator.print_log_on_panic();
    (cluster, operator, *port)
}

fn hex(token: &str, body: &str) -> String {
    let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, token.as_bytes()), body.as_bytes());
    tag.as_ref().iter().fold(String::new(), |text, byte| text + &format!("{byte:02x}"))
}

/// The headers of a delivery of a provider.
fn headers(provider: &str, token: &str, body: &str, id: &str) -> String {
    let hex = hex(token, body);
    match provider {
        "GitHub" => format!(
            "X-GitHub-Event: push\r\nX-GitHub-Delivery: {id}\r\nX-Hub-Signature-256: sha256={hex}\r\nX-Hub-Signature: sha1=00\r\n"
        ),
        "GitLab" => format!(
            "X-Gitlab-Event: Push Hook\r\nX-Gitlab-Event-UUID: {id}\r\nX-Gitlab-Token: {token}\r\n"
        ),
        "Gitea" => {
            format!("X-Gitea-Event: push\r\nX-Gitea-Delivery: {id}\r\nX-Gitea-Signature: {hex}\r\n")
        }
        _ => format!("Idempotency-Key: {id}\r\nX-Signature: sha256={hex}\r\n"),
    }
}

fn request(path: &str, headers: &str, body: &str) -> String {
    let length = body.len();
    format!("POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\n{headers}\r\n{body}")
}

/// Sends bytes over a connection, and gives status, headers without the date, and body.
async fn send_over(stream: &mut TcpStream, bytes: &[u8]) -> (u16, String) {
    let _ = stream.write_all(bytes).await;
    let mut all = Vec::new();
    let read = async {
        let mut buffer = [0; 1024];
        while let Ok(count @ 1..) = stream.read(&mut buffer).await {
            all.extend_from_slice(&buffer[..count]);
            let text = String::from_utf8_lossy(&all);
            let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
            if length.is_some_and(|length| length.parse() == Ok(body.len())) {
                return;
            }
        }
    };
    let _ = tokio::time::timeout(SOON, read).await;
    let text = String::from_utf8_lossy(&all).into_owned();
    let status = text.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
    let lines = text.lines().filter(|line| !line.starts_with("date: "));
    (status, lines.collect::<Vec<_>>().join("\n"))
}

async fn send(port: u16, bytes: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).await.expect("connect");
    send_over(&mut stream, bytes.as_bytes()).await
}

/// The status of the answer to a delivery.
async fn deliver(port: u16, path: &str, headers: &str, body: &str) -> u16 {
    send(port, &request(path, headers, body)).await.0
}

impl Team<'_> {
    async fn put_token(&self, token: &str) {
        let object = json!({"apiVersion": "v1", "kind": "Secret",
            "metadata": {"name": "hook"}, "stringData": {"token": token}});
        let secrets: Api<Secret> = Api::namespaced(self.client.clone(), &self.namespace);
        let params = PatchParams::apply("tester").force();
        secrets.patch("hook", &params, &Patch::Apply(&object)).await.expect("Secret");
    }

    /// Lets the operator read this Secret, and no other.
    pub(super) fn grant_secret(&self, name: &str, operator: &Operator) {
        let (namespace, role) = (&self.namespace, format!("convoke-git-{name}"));
        let secret = format!("--resource-name={name}");
        let create = ["create", "role", &role, "--verb=get", "--resource=secrets", &secret];
        self.cluster.kubectl(&[&["-n", namespace], &create[..]].concat());
        let account = format!("--serviceaccount={}:convoke", operator.namespace);
        let binding = format!("--role={role}");
        let binding = ["create", "rolebinding", &role, &binding, &account];
        self.cluster.kubectl(&[&["-n", namespace], &binding[..]].concat());
    }

    /// Waits until the condition `WebhookReady` has this reason, and gives its message.
    async fn webhook_ready(&self, reason: &str) -> String {
        eventually(SOON, reason, || async {
            let sync = self.get().await;
            let found = condition(&sync, "WebhookReady").filter(|found| found.reason == reason);
            found.map(|found| found.message).ok_or(sync.status)
        })
        .await
    }

    /// A GitSync with a webhook of that provider and the token `canary-one`, which listens. Gives its path.
    async fn with_webhook(&self, operator: &Operator, provider: &str, mut extra: Value) -> String {
        self.put_token("canary-one").await;
        self.grant_secret("hook", operator);
        extra["webhook"] = json!({"provider": provider, "secretRef": {"name": "hook"}});
        self.create_sync(extra).await;
        self.wait_ready("True").await;
        self.webhook_ready("Listening").await;
        self.path().await
    }

    /// The path of the webhook.
    async fn path(&self) -> String {
        self.status().await.webhook_path.expect("the path of the webhook")
    }

    /// Waits until that commit is applied.
    pub(super) async fn applied(&self, commit: &str) -> GitSyncStatus {
        eventually(SOON, "the newest commit is applied", || async {
            let status = self.status().await;
            let revision = status.last_applied_revision.clone().unwrap_or_default();
            if revision.ends_with(commit) { Ok(status) } else { Err(status) }
        })
        .await
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn g5_a_push_is_synced_when_its_delivery_comes_from_each_provider() {
    let (cluster, operator, port) = served().await;
    for provider in PROVIDERS {
        let team = Team::new(cluster, "push", &[("m.yaml", &model("a"))]).await;
        let path = team.with_webhook(operator, provider, json!({})).await;
        let commit = team.repo.commit("second", &[("n.yaml", &model("b"))]);
        let other = r#"{"ref": "refs/heads/other"}"#;
        let sent = deliver(port, &path, &headers(provider, "canary-one", other, "0"), other).await;
        assert_eq!(sent, 200, "another branch");
        let began = Instant::now();
        let sent = deliver(port, &path, &headers(provider, "canary-one", PUSH, "1"), PUSH).await;
        assert_eq!(sent, 202);
        let status = team.applied(&commit).await;
        println!("{provider}: applied {} ms after the delivery", began.elapsed().as_millis());
        assert_eq!(status.history[0].trigger, "Webhook");
        assert_eq!(team.models().await, ["a", "b"]);
    }
    let metrics = operator.metrics();
    for provider in PROVIDERS {
        for outcome in ["woken", "other_ref"] {
            let line = format!("provider=\"{provider}\",outcome=\"{outcome}\"");
            assert!(metrics.contains(&line), "{metrics}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn g5_one_webhook_is_enough_for_all_refs_of_a_repository() {
    let (cluster, operator, port) = served().await;
    let files = [("main/m.yaml", &*model("a")), ("next/n.yaml", &model("b"))];
    let team = Team::new(cluster, "refs", &files).await;
    team.repo.set_branch("next", &team.repo.head());
    let next = json!({"path": "next", "ref": {"branch": "next"}});
    team.create_sync_named("next", next).await;
    let path = team.with_webhook(operator, "GitHub", json!({"path": "main"})).await;
    eventually(SOON, "both are applied", || async {
        let models = team.models().await;
        if models == ["a", "b"] { Ok(()) } else { Err(models) }
    })
    .await;
    let commit = team.repo.commit("second", &[("next/o.yaml", &model("c"))]);
    team.repo.set_branch("next", &commit);
    let pushed = r#"{"ref": "refs/heads/next"}"#;
    let sent = deliver(port, &path, &headers("GitHub", "canary-one", pushed, "0"), pushed).await;
    assert_eq!(sent, 200, "the sender is told nothing of others");
    eventually(SOON, "the GitSync without a webhook is applied", || async {
        let models = team.models().await;
        if models == ["a", "b", "c"] { Ok(()) } else { Err(models) }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn g5_what_is_missing_is_told_with_the_commands_and_a_new_token_is_taken_over() {
    let (cluster, operator, port) = served().await;
    let team = Team::new(cluster, "hook", &[("m.yaml", &model("a"))]).await;
    let webhook = json!({"provider": "GitHub", "secretRef": {"name": "hook"}});
    team.create_sync(json!({"webhook": webhook})).await;
    let told = team.webhook_ready("CredentialsForbidden").await;
    let (_, commands) = told.split_once("; hint: kubectl ").unwrap_or_else(|| panic!("{told}"));
    for command in commands.split("; kubectl ") {
        cluster.kubectl(&command.split(' ').collect::<Vec<_>>());
    }
    assert_eq!(ready(&team.wait_ready("True").await).reason, "Succeeded", "it is polled anyway");
    team.request().await;
    let told = team.webhook_ready("CredentialsMissing").await;
    assert!(told.contains("create secret generic hook --from-literal=token="), "{told}");
    let path = team.path().await;
    let sent = async |token: &str, id: &str| {
        deliver(port, &path, &headers("GitHub", token, PUSH, id), PUSH).await
    };
    // An empty token would be everybody's.
    team.put_token("").await;
    team.request().await;
    let told = team.webhook_ready("CredentialsInvalid").await;
    assert!(told.contains("token is empty"), "{told}");
    assert_eq!(sent("", "1").await, 401);
    team.put_token("canary-one").await;
    team.request().await;
    team.webhook_ready("Listening").await;
    assert_eq!(sent("canary-one", "2").await, 202);
    assert_eq!(sent("canary-two", "3").await, 401);

    // Another token: the first delivery with it is refused, and its push is seen all the same.
    team.put_token("canary-two").await;
    // The poll that the delivery before has started is over.
    tokio::time::sleep(Duration::from_secs(2)).await;
    let commit = team.repo.commit("second", &[("n.yaml", &model("b"))]);
    assert_eq!(sent("canary-two", "4").await, 401);
    team.applied(&commit).await;
    assert_eq!(sent("canary-two", "5").await, 202);
    assert_eq!(sent("canary-one", "6").await, 401, "the old one");

    // Suspended, it is woken by nothing; without spec.webhook there is none.
    let patch = async |spec: Value| {
        let patch = Patch::Merge(json!({"spec": spec}));
        team.syncs.patch("main", &PatchParams::default(), &patch).await.expect("patch");
    };
    patch(json!({"suspend": true})).await;
    eventually(SOON, "the GitSync is suspended", || async {
        if sent("canary-two", "7").await == 200 { Ok(()) } else { Err("not yet") }
    })
    .await;
    patch(json!({"suspend": false, "webhook": null})).await;
    eventually(SOON, "nothing is said of a webhook", || async {
        let sync = team.get().await;
        let path = sync.status.as_ref().and_then(|status| status.webhook_path.clone());
        let gone = path.is_none() && condition(&sync, "WebhookReady").is_none();
        if gone { Ok(()) } else { Err(sync.status) }
    })
    .await;
    assert_eq!(sent("canary-two", "8").await, 401);

    // No value of it is anywhere.
    let kinds = "gitsyncs,agents,modelapis,configmaps,deployments,events";
    let mut all = cluster.kubectl(&["-n", &team.namespace, "get", kinds, "-o", "yaml"]);
    assert!(all.contains("kind: GitSync"));
    all += &operator.log();
    all += &operator.metrics();
    for canary in ["canary-one", "canary-two"] {
        assert!(!all.contains(canary), "{canary}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn g5_v62_a_burst_of_a_thousand_deliveries_is_at_most_two_fetches_and_replays_are_none() {
    let (cluster, operator, port) = served().await;
    let team = Team::new(cluster, "burst", &[]).await;
    let root = tempfile::tempdir().expect("temporary folder");
    let repo = git_faults::Repo::init(root.path(), "team.git");
    repo.commit("main", &[("m.yaml", &model("a"))]);
    let server = GitServer::start(root.path()).await;
    let path = team.with_webhook(operator, "GitHub", json!({"url": server.url("team.git")})).await;
    // The commits of a working day, at once.
    repo.commit("main", &[("m.yaml", &model_at("a", "https://one.example/v1"))]);
    server.forget();
    let began = Instant::now();
    let burst = (0..20).map(|sender| {
        let path = path.clone();
        tokio::spawn(async move {
            let mut stream = TcpStream::connect(("127.0.0.1", port)).await.expect("connect");
            let mut taken = Vec::new();
            for number in 0..50 {
                let id = format!("{sender}-{number}");
                let sent = request(&path, &headers("GitHub", "canary-one", PUSH, &id), PUSH);
                let began = Instant::now();
                let (status, answer) = send_over(&mut stream, sent.as_bytes()).await;
                assert_eq!(status, 202, "{answer}");
                taken.push(began.elapsed());
            }
            taken
        })
    });
    let burst: Vec<_> = burst.collect();
    let newest = repo.commit("main", &[("n.yaml", &model("b"))]);
    let mut taken = Vec::new();
    for sender in burst {
        taken.extend(sender.await.expect("a sender"));
    }
    taken.sort();
    println!(
        "1,000 deliveries in {} ms: p50 {} us, p99 {} us",
        began.elapsed().as_millis(),
        taken[500].as_micros(),
        taken[990].as_micros()
    );
    // What was pushed in the middle is told last, as a forge would.
    let last = headers("GitHub", "canary-one", PUSH, "last");
    assert_eq!(deliver(port, &path, &last, PUSH).await, 202);
    let status = team.applied(&newest).await;
    assert_eq!(status.history[0].trigger, "Webhook");
    tokio::time::sleep(Duration::from_secs(3)).await;
    let count = |step: Step| server.steps().iter().filter(|seen| **seen == step).count();
    println!("{} fetches, {} looks at the refs", count(Step::Fetch), count(Step::LsRefs));
    assert!((1..=2).contains(&count(Step::Fetch)), "{:?}", server.steps());
    assert!(count(Step::LsRefs) <= 4, "{:?}", server.steps());

    // The last one again and again wakes nothing.
    tokio::time::sleep(Duration::from_secs(5)).await;
    server.forget();
    let mut stream = TcpStream::connect(("127.0.0.1", port)).await.expect("connect");
    let again = request(&path, &last, PUSH);
    for _ in 0..1000 {
        assert_eq!(send_over(&mut stream, again.as_bytes()).await.0, 200);
    }
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert!(server.steps().is_empty(), "{:?}", server.steps());
}

#[tokio::test(flavor = "multi_thread")]
async fn v57_v59_v60_v63_v64_what_is_not_right_is_refused_and_no_url_is_dialled() {
    let (cluster, operator, port) = served().await;
    let team = Team::new(cluster, "bad", &[("m.yaml", &model("a"))]).await;
    let path = team.with_webhook(operator, "GitHub", json!({})).await;
    let right = |body: &str| headers("GitHub", "canary-one", body, "1");
    // One answer for a wrong signature, none, one of SHA-1, an empty key, and a path that is nobody's; whatever the body.
    let mut answers = BTreeMap::new();
    let unknown = "/hook/00000000000000000000000000000000";
    let sha1 = "X-Hub-Signature: sha1=b84d5a4d3ac1ba5ff5ba1cd9ee3d8e0f9a0b1b0e\r\n".to_owned();
    for (path, headers, body) in [
        (&*path, headers("GitHub", "wrong", PUSH, "1"), PUSH),
        (&path, headers("GitHub", "", PUSH, "1"), PUSH),
        (&path, headers("GitHub", "wrong", "{", "1"), "{"),
        (&path, String::new(), PUSH),
        (&path, sha1, PUSH),
        (&path, headers("GitLab", "canary-one", PUSH, "1"), PUSH),
        (unknown, right(PUSH), PUSH),
        (unknown, String::new(), "{"),
        ("/", right(PUSH), PUSH),
    ] {
        let (status, answer) = send(port, &request(path, &headers, body)).await;
        assert_eq!(status, 401, "{answer}");
        *answers.entry(answer).or_insert(0) += 1;
    }
    assert_eq!(answers.len(), 1, "{answers:#?}");

    // Signed, and no JSON object.
    for body in ["", "{", "[]", "7", "null", "payload=%7B%7D", r#"{"ref": 7}"#, &PUSH[..20]] {
        assert_eq!(deliver(port, &path, &right(body), body).await, 400, "{body:?}");
    }
    let deep = format!("{{\"a\": {}", "[".repeat(100_000));
    assert_eq!(deliver(port, &path, &right(&deep), &deep).await, 400);
    // More than 1 MiB, signed or not, at a path or at none.
    let large = format!("{{\"a\": \"{}\"}}", "a".repeat(1 << 20));
    for (path, headers) in
        [(&*path, right(&large)), (&path, String::new()), (unknown, String::new())]
    {
        assert_eq!(deliver(port, path, &headers, &large).await, 413);
    }
    // A packed body is not unpacked.
    let packed = format!("Content-Encoding: gzip\r\n{}", right("packed"));
    assert_eq!(deliver(port, &path, &packed, "packed").await, 400);

    // URLs of a server that would see who comes.
    let trap = TcpListener::bind("127.0.0.1:0").expect("bind");
    trap.set_nonblocking(true).expect("non-blocking");
    let url = format!("http://{}/x.git", trap.local_addr().expect("address"));
    let body = json!({
        "ref": "refs/heads/main", "compare": url, "clone_url": url, "url": url,
        "repository": {"url": url, "clone_url": url, "git_http_url": url, "ssh_url": url, "hooks_url": url},
        "head_commit": {"url": url}, "project": {"http_url": url, "git_ssh_url": url},
    });
    let commit = team.repo.commit("second", &[("n.yaml", &model("b"))]);
    let body = body.to_string();
    assert_eq!(
        deliver(port, &path, &headers("GitHub", "canary-one", &body, "9"), &body).await,
        202
    );
    team.applied(&commit).await;
    assert_eq!(team.objects(Kind::ModelAPI).await.len(), 2);
    assert!(trap.accept().is_err(), "nobody came");
    let log = operator.log();
    assert!(!log.contains(&url) && !log.contains("panicked"), "{log}");
}

#[tokio::test(flavor = "multi_thread")]
async fn v61_an_operator_with_three_hundred_idle_connections_answers_others() {
    let (cluster, operator, port) = served().await;
    let team = Team::new(cluster, "idle", &[("m.yaml", &model("a"))]).await;
    let path = team.with_webhook(operator, "Gitea", json!({})).await;
    let mut idle = Vec::new();
    for number in 0..300 {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).await.expect("connect");
        let some: &[u8] = if number % 2 == 0 { b"POST / HTTP/1.1\r\n" } else { b"" };
        let _ = stream.write_all(some).await;
        idle.push(stream);
    }
    for number in 0..20 {
        let headers = headers("Gitea", "canary-one", PUSH, &number.to_string());
        assert_eq!(deliver(port, &path, &headers, PUSH).await, 202);
    }
    // All of them end by themselves.
    for stream in &mut idle {
        let mut rest = Vec::new();
        let end = tokio::time::timeout(SOON, stream.read_to_end(&mut rest)).await;
        assert!(end.is_ok(), "a connection stays open");
    }
    assert!(operator.is_alive());
}

/// A replica that does not lead, with the shipped rights: what it is told, the leader hears.
#[tokio::test(flavor = "multi_thread")]
async fn g5_a_replica_that_does_not_lead_tells_the_leader() {
    let (cluster, operator, _) = served().await;
    let team = Team::new(cluster, "replica", &[("m.yaml", &model("a"))]).await;
    let path = team.with_webhook(operator, "GitHub", json!({})).await;
    let kubeconfig = cluster.user_kubeconfig(&operator.namespace, "convoke").await;
    let client = cluster.client_of(&kubeconfig).await;
    let stores = Stores::silent_after(SOON);
    let data = tempfile::tempdir().expect("a folder");
    let repositories = Repositories::new(data.path().to_owned(), u64::MAX).expect("stores");
    let parts = webhooks::Parts {
        client: client.clone(),
        repositories,
        operator: OperatorAccount::new("convoke-system"),
        queue: Queue::new(),
        leads: Arc::new(|| false),
        served: true,
    };
    let replica = Webhooks::new(parts, &stores.git_syncs);
    let mut tasks = JoinSet::new();
    tasks.spawn(reflector::run::<Managed<_>>(Api::all(client), stores.git_syncs.clone(), None));
    tasks.spawn(replica.clone().follow_secrets());
    let commit = team.repo.commit("second", &[("n.yaml", &model("b"))]);
    let signature = format!("sha256={}", hex("canary-one", PUSH));
    let headers = [("x-hub-signature-256", signature)];
    let headers =
        headers.map(|(name, value)| (name.parse().expect("name"), value.parse().expect("value")));
    let headers = headers.into_iter().collect();
    // It reads the token by itself: it polls nothing.
    eventually(SOON, "a delivery is taken", || async {
        let outcome = replica.hooks().expect("hooks").receive(&path, &headers, PUSH.as_bytes());
        if outcome == Outcome::Woken { Ok(()) } else { Err(outcome) }
    })
    .await;
    let status = team.applied(&commit).await;
    assert_eq!(status.history[0].trigger, "Request");
    assert!(status.last_handled_reconcile_at.is_some());
}
