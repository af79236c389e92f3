//! TLS as a client: which certificates of servers are trusted, and which one is shown to them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{ResolvesClientCert, WebPkiServerVerifier, verify_server_name};
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::sign::CertifiedKey;
use rustls::{
    AlertDescription, CertificateError, ClientConfig, DigitallySignedStruct, Error, OtherError,
    RootCertStore, SignatureScheme,
};

use sha2::{Digest, Sha256};

use super::error::{NetError, shown};

/// Names of a certificate that are shown.
const MAX_NAMES: usize = 3;
/// The protocols above TLS, the preferred one first.
const ALPN: [&[u8]; 2] = [b"h2", b"http/1.1"];

/// TLS that trusts the authorities of the machine and those of `roots`, in PEM. `identity` is a client certificate and its key, in PEM.
/// The flag becomes true when a server asks for a client certificate.
///
/// # Errors
/// [`NetError::InvalidRoots`], [`NetError::InvalidIdentity`], and [`NetError::Failed`] when the machine has no authorities.
pub(super) fn config(
    roots: Option<&[u8]>,
    identity: Option<&[u8]>,
) -> Result<(ClientConfig, Arc<AtomicBool>), NetError> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let failed = |error: Error| NetError::failed(&error.to_string());
    let verifier = Verifier::new(roots, &provider)?;
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(failed)?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier));
    let key = identity.map(certified).transpose()?.map(Arc::new);
    let asked = Arc::new(AtomicBool::new(false));
    let identity = Arc::new(Identity { key, asked: asked.clone() });
    let mut config = builder.with_client_cert_resolver(identity);
    config.alpn_protocols = ALPN.map(<[u8]>::to_vec).to_vec();
    Ok((config, asked))
}

/// The client certificate, if there is one.
#[derive(Debug)]
struct Identity {
    key: Option<Arc<CertifiedKey>>,
    /// Whether a server has asked for it.
    asked: Arc<AtomicBool>,
}

impl ResolvesClientCert for Identity {
    fn resolve(&self, _: &[&[u8]], _: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        self.asked.store(true, Ordering::Relaxed);
        self.key.clone()
    }

    fn has_certs(&self) -> bool {
        self.key.is_some()
    }
}

/// Checks authorities, in PEM, and a client certificate with its key, in PEM, before anything is connected with them.
///
/// # Errors
/// [`NetError::InvalidRoots`], [`NetError::InvalidIdentity`].
pub fn check(roots: Option<&[u8]>, identity: Option<&[u8]>) -> Result<(), NetError> {
    if let Some(pem) = roots {
        store(pem)?;
    }
    if let Some(pem) = identity {
        certified(pem)?;
    }
    Ok(())
}

/// The certificates in a text, and a store of them.
fn store(pem: &[u8]) -> Result<(Vec<CertificateDer<'static>>, RootCertStore), NetError> {
    let refused = |reason: &str| NetError::InvalidRoots { reason: shown(reason) };
    let given = certificates(pem).ok_or_else(|| refused("it cannot be decoded"))?;
    if given.is_empty() {
        return Err(refused("there is no certificate in it"));
    }
    let mut store = RootCertStore::empty();
    for certificate in &given {
        store.add(certificate.clone()).map_err(|error| refused(&error.to_string()))?;
    }
    Ok((given, store))
}

/// A client certificate with those of its authorities, and its key.
fn certified(pem: &[u8]) -> Result<CertifiedKey, NetError> {
    let refused = |reason: &str| NetError::InvalidIdentity { reason: shown(reason) };
    let certificates = certificates(pem).ok_or_else(|| refused("it is no PEM"))?;
    if certificates.is_empty() {
        return Err(refused("there is no certificate in it"));
    }
    // What the parser says could quote the key.
    let key = PrivateKeyDer::from_pem_slice(pem)
        .map_err(|_| refused("there is no private key without a password in it"))?;
    CertifiedKey::from_der(certificates, key, &aws_lc_rs::default_provider())
        .map_err(|error| refused(&error.to_string()))
}

/// The certificates in a text. `None`: one of them is no PEM.
fn certificates(pem: &[u8]) -> Option<Vec<CertificateDer<'static>>> {
    CertificateDer::pem_slice_iter(pem).collect::<Result<_, _>>().ok()
}

/// Verifies certificates of servers.
///
/// A certificate that is itself among `roots` is trusted for the names in it, also when it calls itself that of an authority: most tools make
/// self-signed certificates like that, and other clients take them. webpki alone refuses them. Everything else is left to the verifier that
/// the HTTP client has by itself.
#[derive(Debug)]
struct Verifier {
    all: rustls_platform_verifier::Verifier,
    /// Digests of the certificates of `roots`.
    given: Vec<[u8; 32]>,
    provider: Arc<CryptoProvider>,
}

impl Verifier {
    fn new(roots: Option<&[u8]>, provider: &Arc<CryptoProvider>) -> Result<Self, NetError> {
        let refused = |reason: &str| NetError::InvalidRoots { reason: shown(reason) };
        let Some(pem) = roots else {
            let all = rustls_platform_verifier::Verifier::new(provider.clone());
            let all = all.map_err(no_authorities)?;
            return Ok(Self { all, given: Vec::new(), provider: provider.clone() });
        };
        let (certificates, _) = store(pem)?;
        let given = certificates.iter().map(|one| Sha256::digest(one).into()).collect();
        let all = rustls_platform_verifier::Verifier::new_with_extra_roots(
            certificates,
            provider.clone(),
        );
        let all = all.map_err(|error| refused(&error.to_string()))?;
        Ok(Self { all, given, provider: provider.clone() })
    }

    /// Whether a certificate of a server is itself among those that were given, says that it is one of an authority, and is good but for that:
    /// now, and for this name.
    fn is_given(
        &self,
        end_entity: &CertificateDer<'_>,
        server_name: &ServerName<'_>,
        now: UnixTime,
    ) -> Result<bool, Error> {
        if !self.given.contains(&Sha256::digest(end_entity).into()) {
            return Ok(false);
        }
        let mut alone = RootCertStore::empty();
        alone.add(end_entity.clone().into_owned())?;
        let verifier =
            WebPkiServerVerifier::builder_with_provider(alone.into(), self.provider.clone())
                .build()
                .map_err(|error| Error::General(error.to_string()))?;
        // webpki looks at the time before it sees that.
        match verifier.verify_server_cert(end_entity, &[], server_name, &[], now) {
            Err(Error::InvalidCertificate(problem)) if is_of_authority(&problem) => {
                verify_server_name(&ParsedCertificate::try_from(end_entity)?, server_name)?;
                Ok(true)
            }
            _ => Ok(false),
        }
    }
}

/// The error when the machine or the image has no authorities.
fn no_authorities(error: Error) -> NetError {
    let said = error.to_string();
    if said.contains("No CA certificates") {
        return NetError::failed(
            "there are no CA certificates where Convoke runs: install the package ca-certificates, \
             or name a file of them in SSL_CERT_FILE",
        );
    }
    NetError::failed(&said)
}

/// Whether the only thing that was found wrong with a server's certificate is that it is one of an authority. Its time was looked at before
/// that.
pub(super) fn is_of_authority(problem: &CertificateError) -> bool {
    matches!(problem, CertificateError::Other(OtherError(other))
        if other.downcast_ref() == Some(&webpki::Error::CaUsedAsEndEntity))
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        if self.is_given(end_entity, server_name, now)? {
            return Ok(ServerCertVerified::assertion());
        }
        self.all.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.all.verify_tls12_signature(message, cert, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.all.verify_tls13_signature(message, cert, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.all.supported_verify_schemes()
    }
}

/// What is wrong with a server's certificate, for people.
pub(super) fn certificate_problem(problem: &CertificateError) -> String {
    match problem {
        // `BadSignature` when another authority of the same name has signed it.
        CertificateError::UnknownIssuer | CertificateError::BadSignature => {
            "no authority known here signed it".into()
        }
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            "it has expired".into()
        }
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            "it is not valid yet".into()
        }
        CertificateError::NotValidForNameContext { presented, .. } if presented.is_empty() => {
            "it names no host: it has no subjectAltName".into()
        }
        CertificateError::NotValidForNameContext { presented, .. } => {
            // As `DnsName("git.example")`.
            let bare = |name: &'_ String| {
                let inside = name.split_once('(').map_or(name.as_str(), |(_, inside)| inside);
                inside.trim_end_matches(')').trim_matches('"').to_owned()
            };
            let names = presented.iter().take(MAX_NAMES).map(bare);
            shown(&format!("it is for another host: {}", names.collect::<Vec<_>>().join(", ")))
        }
        CertificateError::NotValidForName => "it is for another host".into(),
        problem if is_of_authority(problem) => {
            "it is self-signed, or that of an authority, and not known here".into()
        }
        other => shown(&other.to_string()),
    }
}

/// What a server says with an alert about the client's certificate. The alert is in the text of the error: HTTP/2 keeps no more of it.
pub(super) fn client_certificate_problem(error: &str) -> Option<&'static str> {
    const ALERTS: [AlertDescription; 8] = [
        AlertDescription::CertificateRequired,
        AlertDescription::UnknownCA,
        AlertDescription::CertificateExpired,
        AlertDescription::CertificateRevoked,
        AlertDescription::BadCertificate,
        AlertDescription::CertificateUnknown,
        AlertDescription::UnsupportedCertificate,
        AlertDescription::AccessDenied,
    ];
    let said =
        |alert: &&AlertDescription| error.ends_with(&Error::AlertReceived(**alert).to_string());
    Some(match ALERTS.iter().find(said)? {
        AlertDescription::CertificateRequired => "the server wants a client certificate",
        AlertDescription::UnknownCA => {
            "the server does not know the authority of the client certificate"
        }
        AlertDescription::CertificateExpired => {
            "the server says that the client certificate has expired"
        }
        AlertDescription::CertificateRevoked => {
            "the server says that the client certificate is revoked"
        }
        _ => "the server refuses the client certificate",
    })
}

#[cfg(test)]
#[path = "tests/tls.rs"]
mod tests;
