//! Whom the operator dials for a GitSync, and that a refusal tells nothing of what listens there: O11.
#![allow(clippy::expect_used, clippy::panic, clippy::disallowed_types, clippy::disallowed_methods)]

use crate::support;

use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, UdpSocket};

use convoke::api::git_sync::GitSyncStatus;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use serde_json::{Value, json};
use support::git_http::GitServer;
use support::team::{ARGS, SOON, Team, model, ready};
use support::{Cluster, free_port};

const ACCOUNT: &str = "convoke-sync";

/// The address of this machine in a network that is not the internet, if it has one.
fn internal_address() -> Option<IpAddr> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).ok()?;
    // Sends nothing: it asks for the route.
    socket.connect((Ipv4Addr::new(10, 255, 255, 254), 9)).ok()?;
    let IpAddr::V4(ip) = socket.local_addr().ok()?.ip() else { return None };
    let shared = ip.octets()[0] == 100 && (64..128).contains(&ip.octets()[1]);
    (ip.is_private() || ip.is_documentation() || shared).then_some(ip.into())
}

fn listen(ip: IpAddr) -> TcpListener {
    let listener = TcpListener::bind((ip, 0)).expect("bind");
    listener.set_nonblocking(true).expect("nonblocking");
    listener
}

fn was_dialled(listener: &TcpListener) -> bool {
    match listener.accept() {
        Ok(_) => true,
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::WouldBlock);
            false
        }
    }
}

/// All that a status says of a repository that cannot be read, without times.
fn said(status: &GitSyncStatus) -> impl PartialEq + std::fmt::Debug + use<> {
    let conditions = status.conditions.iter();
    let conditions: Vec<_> = conditions
        .map(|Condition { type_, status, reason, message, .. }| {
            (type_.clone(), status.clone(), reason.clone(), message.clone())
        })
        .collect();
    (conditions, status.problems.clone(), status.objects.clone(), status.history.len())
}

#[tokio::test(flavor = "multi_thread")]
async fn v10_open_closed_and_git_ports_of_addresses_that_are_not_allowed_look_alike() {
    let cluster = Cluster::exclusive().await;
    let mut operator = cluster.operator(&["--leader-elect=false"]).await;
    operator.ready(SOON).await;
    let internal = internal_address();
    let team = Team::new(&cluster, "inside", &[("a.yaml", &model("a"))]).await;
    cluster.grant_sync(&team.namespace, &operator);
    for ip in [internal, Some(Ipv4Addr::LOCALHOST.into())].into_iter().flatten() {
        let open = listen(ip);
        // Not taken: the first of the tests' ports that is free on loopback.
        let closed = SocketAddr::new(ip, free_port());
        let here =
            |what: &str| format!("{what}-{}", if ip.is_loopback() { "loopback" } else { "inside" });
        let open_at = open.local_addr().expect("address");
        let mut seen = Vec::new();
        for (name, address) in [("open", open_at), ("closed", closed)] {
            let url = format!("https://{address}/team.git");
            team.create_sync_named(&here(name), json!({"url": url, "serviceAccountName": ACCOUNT}))
                .await;
            let sync = team.wait_ready_of(&here(name), "False").await;
            let ready = ready(&sync);
            assert_eq!(ready.reason, "AddressRefused", "{}", ready.message);
            let flag = if ip.is_loopback() { "--allow-insecure-git" } else { "--allow-addresses" };
            assert!(ready.message.contains(&ip.to_string()), "{}", ready.message);
            assert!(ready.message.contains(flag), "{}", ready.message);
            seen.push(said(sync.status.as_ref().expect("a status")));
        }
        assert_eq!(seen[0], seen[1]);
        assert!(!was_dialled(&open), "it was dialled");
    }

    // What the operator is told to allow is dialled, and nothing else is needed.
    let Some(ip) = internal else { return };
    operator.kill9();
    let range = format!("--allow-addresses=192.168.0.0/24,{ip}");
    let operator =
        cluster.operator(&["--allow-insecure-git", "--leader-elect=false", &range]).await;
    operator.ready(SOON).await;
    let other = Team::new(&cluster, "allowed", &[("a.yaml", &model("a"))]).await;
    cluster.grant_sync(&other.namespace, &operator);
    let server = GitServer::start_on(ip, other.repo.bare());
    let extra = json!({"url": server.url("team.git"), "serviceAccountName": ACCOUNT});
    other.create_sync(extra).await;
    other.wait_ready("True").await;
    assert_eq!(other.models().await, ["a"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn v10_the_api_server_is_not_dialled_for_git() {
    let cluster = Cluster::exclusive().await;
    let operator = cluster.operator(ARGS).await;
    operator.ready(SOON).await;
    let team = Team::new(&cluster, "api", &[("a.yaml", &model("a"))]).await;
    let config = std::fs::read(cluster.admin_kubeconfig()).expect("kubeconfig");
    let config: Value = serde_json::from_slice(&config).expect("JSON");
    let server = config["clusters"][0]["cluster"]["server"].as_str().expect("a server");
    let server: SocketAddr = server.trim_start_matches("https://").parse().expect("an address");
    let (host, port) = (server.ip().to_string(), server.port());
    for (name, host, message) in [
        ("address", &*host, format!("{host} may not be dialled: the API server is there")),
        ("name", "localhost", "localhost has no address that may be dialled".to_owned()),
    ] {
        let url = format!("https://{host}:{port}/version");
        team.create_sync_named(name, json!({"url": url})).await;
        let ready = ready(&team.wait_ready_of(name, "False").await);
        assert_eq!(ready.reason, "AddressRefused", "{}", ready.message);
        assert!(ready.message.contains(&message), "{}", ready.message);
        assert!(ready.message.contains("--allow-addresses"), "{}", ready.message);
    }
    // Its neighbours on the same address are as before.
    team.create_sync(json!({})).await;
    team.wait_ready("True").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn g1_a_url_or_ref_that_cannot_be_is_refused_in_words() {
    let cluster = support::cluster().await;
    let team = Team::new(cluster, "words", &[]).await;
    let good = "https://git.example.com/team/agents.git";
    let url = |url: &str| json!({"url": url});
    let reference = |reference: Value| json!({"url": good, "ref": reference});
    let scp =
        "url must begin with https:// or ssh://; the form user@host:path is ssh://user@host/path";
    for (spec, words) in [
        (url("git@git.example.com:team/agents.git"), scp),
        (url("git.example.com/team/agents"), scp),
        (url("file:///srv/a.git"), scp),
        (url("https://"), scp),
        (
            url("https://jane:x@git.example.com/a.git"),
            "url must hold no user name, password or token",
        ),
        (url("ssh://git:x@git.example.com/a.git"), "no password: name a Secret in secretRef"),
        (url("https://git.example.com/a b.git"), "printable ASCII characters only"),
        (
            reference(json!({"commit": "0123abc"})),
            "commit must be a full id, 40 or 64 lower-case hex digits",
        ),
        (
            reference(json!({"name": "main"})),
            "name must be the full name of a ref, such as refs/heads/main",
        ),
        (reference(json!({"branch": "refs/heads/main"})), "branch is the name without refs/heads/"),
        (reference(json!({"tag": "refs/tags/v1"})), "tag is the name without refs/tags/"),
        (reference(json!({"branch": "-x"})), "branch must have letters, digits and"),
    ] {
        let refused = team.try_sync(spec.clone()).await.expect_err(words);
        assert!(refused.contains(words), "{spec}: {refused}");
    }
    for spec in [
        url("ssh://git.example.com/~jane/a.git"),
        url("ssh://git_1@git.example.com:2222/a@b.git"),
        url("https://git.example.com:8443/team/a@b.git"),
        reference(json!({"name": "refs/pull/420/head"})),
        reference(json!({"commit": "0123456789012345678901234567890123456789"})),
        reference(json!({"branch": "feature/#1+x"})),
    ] {
        team.try_sync(spec.clone()).await.unwrap_or_else(|refused| panic!("{spec}: {refused}"));
    }
}
