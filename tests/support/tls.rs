//! TLS in front of a plain server, with certificates of an authority of our own.
#![allow(dead_code, reason = "every test crate uses its own part")]
#![allow(clippy::unwrap_used, clippy::disallowed_types)]

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex};

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use rustls::RootCertStore;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use tokio::net::{TcpListener, TcpStream};

/// Signs certificates that no machine trusts by itself.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
    der: CertificateDer<'static>,
}

impl Authority {
    pub fn new() -> Self {
        Self::named("authority")
    }

    pub fn named(name: &str) -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let certificate = params.self_signed(&key).unwrap();
        let (pem, der) = (certificate.pem(), certificate.der().clone());
        Self { issuer: Issuer::new(params, key), pem, der }
    }

    /// Its certificate, in PEM.
    pub fn pem(&self) -> &str {
        &self.pem
    }

    /// A certificate for a client, and its key, in PEM.
    pub fn client(&self) -> (String, String) {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec!["client".to_owned()]).unwrap();
        (params.signed_by(&key, &self.issuer).unwrap().pem(), key.serialize_pem())
    }

    /// Takes clients whose certificates it has signed.
    pub fn verifier(&self) -> Arc<dyn ClientCertVerifier> {
        let mut trusted = RootCertStore::empty();
        trusted.add(self.der.clone()).unwrap();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        WebPkiClientVerifier::builder_with_provider(trusted.into(), provider).build().unwrap()
    }

    pub fn sign(
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

/// A certificate of a server that signs itself and says that it is an authority, as `openssl req -x509` makes it: in PEM, and for a [`Front`].
pub fn self_signed(host: &str) -> (String, (CertificateDer<'static>, PrivateKeyDer<'static>)) {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(vec![host.to_owned()]).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let certificate = params.self_signed(&key).unwrap();
    let key = PrivatePkcs8KeyDer::from(key.serialize_der());
    (certificate.pem(), (certificate.der().clone(), key.into()))
}

/// Takes TLS off in front of a plain server. Ends when dropped.
pub struct Front {
    /// The addresses of those who have connected.
    peers: Arc<Mutex<BTreeSet<IpAddr>>>,
    address: SocketAddr,
    task: tokio::task::JoinHandle<()>,
}

impl Front {
    pub async fn start(
        plain: SocketAddr,
        certificate: (CertificateDer<'static>, PrivateKeyDer<'static>),
        protocol: &str,
    ) -> Self {
        Self::start_for(WebPkiClientVerifier::no_client_auth(), plain, certificate, protocol).await
    }

    /// The same for clients with a certificate.
    pub async fn start_for(
        clients: Arc<dyn ClientCertVerifier>,
        plain: SocketAddr,
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
        let listener = TcpListener::bind((plain.ip(), 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let peers: Arc<Mutex<BTreeSet<IpAddr>>> = Arc::default();
        let seen = peers.clone();
        let task = tokio::spawn(async move {
            let mut connections = tokio::task::JoinSet::new();
            while let Ok((stream, from)) = listener.accept().await {
                seen.lock().unwrap().insert(from.ip());
                let acceptor = acceptor.clone();
                connections.spawn(async move {
                    let Ok(mut outside) = acceptor.accept(stream).await else { return };
                    let mut inside = TcpStream::connect(plain).await.unwrap();
                    let _ = tokio::io::copy_bidirectional(&mut outside, &mut inside).await;
                });
            }
        });
        Self { peers, address, task }
    }

    /// The addresses of those who have connected.
    pub fn peers(&self) -> BTreeSet<IpAddr> {
        self.peers.lock().unwrap().clone()
    }

    pub fn origin(&self, host: &str) -> String {
        format!("https://{host}:{}", self.address.port())
    }

    /// The URL of the repository.
    pub fn url(&self, host: &str) -> String {
        format!("https://{host}:{}/team.git", self.address.port())
    }
}

impl Drop for Front {
    fn drop(&mut self) {
        self.task.abort();
    }
}
