//! Git through an HTTP proxy (tinyproxy): G2, V12.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, TcpListener};

use convoke::net::ProxyServer;

use super::http_proxy::HttpProxy;
use super::tls::{Authority, Front};
use super::*;

fn proxy(address: &str, password: &str) -> ProxyServer {
    let data = [("address", address), ("username", "user"), ("password", password)];
    let data = data.map(|(key, value)| (key.to_owned(), value.as_bytes().to_vec()));
    Credentials::proxy_of(&BTreeMap::from(data)).unwrap()
}

fn through(credentials: Credentials, address: &str, password: &str) -> Credentials {
    credentials.with_proxy(proxy(address, password), "https://h/a").unwrap()
}

#[tokio::test]
async fn g2_a_proxy_makes_the_connections() {
    let Some(server) = HttpProxy::start() else { return };
    let (world, authority) = (World::new().await, Authority::new());
    world.repo.commit("main", &[("a.yaml", "a: 1")]);
    let front = Front::start(world.address(), authority.sign("localhost", |_| {}), "h2").await;
    let url = front.url("localhost");
    let trusting = Credentials::trusting(authority.pem().into());
    let secure = world.remote_with(|options| {
        options.url = url;
        options.credentials = through(trusting, &server.address(), "canary");
    });
    sync(&secure, "").await.unwrap();
    assert!(server.log().contains("CONNECT localhost:"), "{}", server.log());
    // Without TLS the proxy reads along.
    let plain = world.remote_with(|options| {
        options.credentials = through(Credentials::default(), &server.address(), "canary");
    });
    plain.resolve().await.unwrap();
    assert!(server.log().contains("/team.git/info/refs"), "{}", server.log());
}

#[tokio::test]
async fn g2_a_proxy_that_refuses_or_is_away_is_told() {
    let Some(server) = HttpProxy::start() else { return };
    let (world, authority) = (World::new().await, Authority::new());
    let front = Front::start(world.address(), authority.sign("localhost", |_| {}), "h2").await;
    let nobody = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap();
    for (address, password, said) in [
        (
            server.address(),
            "canary2",
            "the proxy failed: cannot connect: it does not connect to this host: it cannot, does not allow it, or wants other credentials",
        ),
        (
            format!("http://{nobody}"),
            "canary",
            "the proxy failed: cannot connect: Connection refused",
        ),
    ] {
        let remote = world.remote_with(|options| {
            options.url = front.url("localhost");
            options.credentials = through(Credentials::default(), &address, password);
        });
        let error = remote.resolve().await.unwrap_err();
        assert_eq!(error.reason(), "ProxyFailed", "{error}");
        assert!(error.to_string().contains(said), "{error}");
        assert!(!format!("{error:?} {remote:?}").contains("canary"), "{error:?}");
    }
    assert!(world.server.requests().is_empty());
}

#[tokio::test]
async fn g2_v10_a_proxy_at_an_address_that_may_not_be_dialled_is_refused() {
    let world = World::new().await;
    let refused = |address: &str| {
        let mut options = world.options(branch("main"));
        options.url = "https://git.example.com/a.git".into();
        options.credentials = through(Credentials::default(), address, "canary");
        options.dialler = Dialler::new(Policy::default());
        Remote::new(options).unwrap_err()
    };
    for address in ["http://127.0.0.1:3128", "http://169.254.169.254", "http://localhost:3128"] {
        let error = refused(address);
        assert_eq!(error.reason(), "ProxyFailed", "{address}");
        assert!(error.to_string().contains("may not be dialled"), "{error}");
        assert!(!error.is_terminal(), "the Secret may be mended");
    }
    let over_ssh = Credentials::default().with_proxy(proxy("http://p:1", "x"), "ssh://git@h/a");
    assert!(over_ssh.unwrap_err().problem.contains("proxies are for https"));
}
