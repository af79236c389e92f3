//! Over TLS, with a certificate of an authority that the system does not know.

use std::sync::Arc;

use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::aws_lc_rs::default_provider;
use tokio_rustls::rustls::pki_types::PrivateKeyDer;

use super::*;

/// Ends TLS before the server of `world`; gives the URL of its repository, and the authority (PEM).
async fn tls_before(world: &World, host: &str) -> (String, Vec<u8>) {
    let authority_key = rcgen::KeyPair::generate().unwrap();
    let mut authority = rcgen::CertificateParams::new(Vec::new()).unwrap();
    authority.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let authority_pem = authority.self_signed(&authority_key).unwrap().pem();
    let issuer = rcgen::Issuer::new(authority, authority_key);
    let key = rcgen::KeyPair::generate().unwrap();
    let names = vec![host.to_owned()];
    let leaf = rcgen::CertificateParams::new(names).unwrap().signed_by(&key, &issuer).unwrap();
    let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
    let config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![leaf.der().clone()], key)
        .unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let plain = world.server.url("team.git");
    let server: u16 = plain.split([':', '/']).nth(4).unwrap().parse().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                let Ok(mut near) = acceptor.accept(stream).await else { return };
                let mut far = TcpStream::connect(("127.0.0.1", server)).await.unwrap();
                let _ = tokio::io::copy_bidirectional(&mut near, &mut far).await;
            });
        }
    });
    (format!("https://localhost:{port}/team.git"), authority_pem.into_bytes())
}

#[tokio::test(flavor = "multi_thread")]
async fn g1_https_with_an_authority_that_is_trusted_and_not_without() {
    let world = World::new().await;
    world.repo.change("main").file("a.yaml", "kind: Agent").commit("first");
    let (url, roots) = tls_before(&world, "localhost").await;

    let trusting = world.remote_with(|options| {
        options.url.clone_from(&url);
        options.roots = Some(roots.clone());
    });
    let snapshot = sync(&trusting, "").await.unwrap();
    assert_eq!(paths(&snapshot), ["a.yaml"]);

    let asked = world.server.requests().len();
    let wary = world.remote_with(|options| options.url.clone_from(&url));
    let error = wary.resolve().await.unwrap_err();
    assert_eq!(error.reason(), "ConnectionFailed");
    assert!(error.to_string().contains("certificate"), "{error}");
    assert_eq!(world.server.requests().len(), asked, "nothing was asked over it");
}

#[tokio::test(flavor = "multi_thread")]
async fn g1_https_with_a_certificate_of_another_host_is_refused() {
    let world = World::new().await;
    world.repo.change("main").file("a.yaml", "kind: Agent").commit("first");
    let (url, roots) = tls_before(&world, "git.example.com").await;
    let remote = world.remote_with(|options| {
        options.url = url;
        options.roots = Some(roots);
    });
    let error = remote.resolve().await.unwrap_err();
    assert_eq!(error.reason(), "ConnectionFailed");
    assert!(world.server.requests().is_empty());
}
