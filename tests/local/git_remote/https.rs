//! Git over https, with certificates of an authority of our own: G1.

use std::collections::BTreeMap;
use std::sync::Arc;

use convoke::git::Remote;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::RootCertStore;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use tokio::net::{TcpListener, TcpStream};

use super::*;

/// Signs certificates that no machine trusts by itself.
pub(super) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
    der: CertificateDer<'static>,
}

impl Authority {
    pub(super) fn new() -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let certificate = params.self_signed(&key).unwrap();
        let (pem, der) = (certificate.pem(), certificate.der().clone());
        Self { issuer: Issuer::new(params, key), pem, der }
    }

    /// Its certificate, in PEM.
    pub(super) fn pem(&self) -> &str {
        &self.pem
    }

    /// A certificate for a client, and its key, in PEM.
    pub(super) fn client(&self) -> (String, String) {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec!["client".to_owned()]).unwrap();
        (params.signed_by(&key, &self.issuer).unwrap().pem(), key.serialize_pem())
    }

    /// Takes clients whose certificates it has signed.
    pub(super) fn verifier(&self) -> Arc<dyn ClientCertVerifier> {
        let mut trusted = RootCertStore::empty();
        trusted.add(self.der.clone()).unwrap();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        WebPkiClientVerifier::builder_with_provider(trusted.into(), provider).build().unwrap()
    }

    pub(super) fn sign(
        &self,
        host: &str,
        change: impl FnOnce(&mut CertificateParams),
    ) -> (CertificateDer<'static>, PrivateKeyDer<'static>) {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(vec![host.to_owned()]).unwrap();
        change(&mut params);
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        let key = PrivatePkcs8KeyDer::from(key.serialize_der());
        (certificate.der().clone(), key.into())
    }
}

/// Takes TLS off in front of a plain server. Ends when dropped.
pub(super) struct Front {
    port: u16,
    task: tokio::task::JoinHandle<()>,
}

impl Front {
    pub(super) async fn start(
        world: &World,
        certificate: (CertificateDer<'static>, PrivateKeyDer<'static>),
        protocol: &str,
    ) -> Self {
        Self::start_for(WebPkiClientVerifier::no_client_auth(), world, certificate, protocol).await
    }

    /// The same for clients with a certificate.
    pub(super) async fn start_for(
        clients: Arc<dyn ClientCertVerifier>,
        world: &World,
        (certificate, key): (CertificateDer<'static>, PrivateKeyDer<'static>),
        protocol: &str,
    ) -> Self {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let mut config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_client_cert_verifier(clients)
            .with_single_cert(vec![certificate], key)
            .unwrap();
        config.alpn_protocols = vec![protocol.into()];
        let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(config));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let url = world.server.url("");
        let plain = url.trim_start_matches("http://").trim_end_matches('/').to_owned();
        let task = tokio::spawn(async move {
            let mut connections = tokio::task::JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let (acceptor, plain) = (acceptor.clone(), plain.clone());
                connections.spawn(async move {
                    let Ok(mut outside) = acceptor.accept(stream).await else { return };
                    let mut inside = TcpStream::connect(plain).await.unwrap();
                    let _ = tokio::io::copy_bidirectional(&mut outside, &mut inside).await;
                });
            }
        });
        Self { port, task }
    }

    /// The URL of the repository.
    pub(super) fn url(&self, host: &str) -> String {
        format!("https://{host}:{}/team.git", self.port)
    }

    fn remote(&self, world: &World, host: &str, roots: Option<&str>) -> Remote {
        world.remote_with(|options| {
            options.url = self.url(host);
            options.credentials =
                roots.map(|pem| Credentials::trusting(pem.as_bytes().to_vec())).unwrap_or_default();
        })
    }
}

impl Drop for Front {
    fn drop(&mut self) {
        self.task.abort();
    }
}

#[tokio::test]
async fn g1_https_with_an_authority_of_ones_own() {
    let authority = Authority::new();
    // Like a file that somebody put together: a comment, and more than one authority.
    let bundle = format!("# ours\n{}\n{}", Authority::new().pem, authority.pem);
    for protocol in ["http/1.1", "h2"] {
        let world = World::new().await;
        world.repo.change("main").file("big.bin", noise(300_000)).commit("big");
        for host in ["localhost", "127.0.0.1"] {
            let front = Front::start(&world, authority.sign(host, |_| ()), protocol).await;
            let remote = front.remote(&world, host, Some(&bundle));
            for round in 0..3 {
                let text = format!("a: {protocol} {host} {round}");
                world.repo.commit("main", &[("a.yaml", &text)]);
                world.server.forget();
                let snapshot = sync(&remote, "").await.unwrap();
                assert_eq!(content(&snapshot, "a.yaml"), text);
                assert!(
                    world.server.requests().iter().all(|asked| asked.http2 == (protocol == "h2"))
                );
            }
        }
    }
}

#[tokio::test]
async fn g1_https_with_a_certificate_that_proves_nothing_asks_nothing() {
    let (ours, other) = (Authority::new(), Authority::new());
    let world = World::new().await;
    world.repo.commit("main", &[("a.yaml", "a: 1")]);
    let honest = Front::start(&world, ours.sign("localhost", |_| ()), "http/1.1").await;
    let expired =
        |params: &mut CertificateParams| params.not_after = rcgen::date_time_ymd(2020, 1, 1);
    let expired = Front::start(&world, ours.sign("localhost", expired), "http/1.1").await;
    for (front, host, roots, why) in [
        (&honest, "localhost", None, "no authority known here signed it"),
        (&honest, "localhost", Some(&*other.pem), "no authority known here signed it"),
        (&honest, "127.0.0.1", Some(&*ours.pem), "it is for another host"),
        (&expired, "localhost", Some(&*ours.pem), "it has expired"),
    ] {
        let error = front.remote(&world, host, roots).resolve().await.unwrap_err();
        assert_eq!(error, GitError::CertificateNotTrusted { why: why.into() });
        assert_eq!(error.reason(), "CertificateNotTrusted");
        assert!(!error.is_terminal(), "it is mended on the server or on the machine");
    }
    assert!(world.server.requests().is_empty());
    assert_eq!(
        paths(&sync(&honest.remote(&world, "localhost", Some(&ours.pem)), "").await.unwrap()),
        ["a.yaml"]
    );
}

#[tokio::test]
async fn g2_a_client_certificate_logs_in_and_another_one_does_not() {
    let (authority, clients) = (Authority::new(), Authority::new());
    let world = World::new().await;
    world.repo.commit("main", &[("a.yaml", "a: 1")]);
    let certificate = authority.sign("localhost", |_| ());
    let front = Front::start_for(clients.verifier(), &world, certificate, "http/1.1").await;
    let asked = |signed_by: Option<&Authority>| {
        let mut data = BTreeMap::from([("ca.crt".to_owned(), authority.pem.clone().into_bytes())]);
        if let Some(signed_by) = signed_by {
            let (certificate, key) = signed_by.client();
            data.insert("tls.crt".into(), certificate.into_bytes());
            data.insert("tls.key".into(), key.into_bytes());
        }
        let remote = world.remote_with(|options| {
            options.url = format!("https://localhost:{}/team.git", front.port);
            options.credentials = Credentials::of(&data, "https://h/a").unwrap();
        });
        async move { remote.resolve().await }
    };
    asked(Some(&clients)).await.unwrap();
    assert!(!world.server.requests().is_empty());
    world.server.forget();
    for signed_by in [None, Some(&authority)] {
        let error = asked(signed_by).await.unwrap_err();
        assert_eq!(error.reason(), "ConnectionFailed", "{error}");
    }
    assert!(world.server.requests().is_empty());
}
