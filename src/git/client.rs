//! The HTTP client of one remote: whom it dials, whose certificates it trusts, and what its failures mean.
//!
//! Addresses are checked when a name is resolved for a connection. No redirect is followed, no proxy or netrc is read from
//! the environment.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use rustls::CertificateError;

use super::GitError;
use super::address::{self, Verdict};
use super::error::printable;

const CONNECT: Duration = Duration::from_secs(10);
const IDLE: Duration = Duration::from_secs(90);

/// Builds the client of one remote, which trusts the machine's authorities and the ones in `extra` (PEM).
pub(super) fn build(
    allow_insecure: bool,
    extra: Option<&[u8]>,
) -> Result<reqwest::Client, GitError> {
    let roots = extra.map_or(Ok(Vec::new()), authorities)?;
    let own = !roots.is_empty();
    reqwest::Client::builder()
        .tls_certs_merge(roots)
        .user_agent(concat!("git/convoke-", env!("CARGO_PKG_VERSION")))
        .redirect(reqwest::redirect::Policy::none())
        .no_proxy()
        .referer(false)
        .https_only(!allow_insecure)
        .connect_timeout(CONNECT)
        .pool_idle_timeout(IDLE)
        .pool_max_idle_per_host(1)
        .dns_resolver(Arc::new(Resolver { allow_insecure }))
        .build()
        .map_err(|error| match innermost(&error).to_string() {
            reason if own => GitError::InvalidRoots { reason: printable(&reason) },
            // Its words for an image or a machine without them.
            reason if reason.contains("No CA certificates") => GitError::ConnectionFailed {
                detail: "there are no CA certificates where Convoke runs: install the package ca-certificates, \
                         or name a file of them in SSL_CERT_FILE"
                    .into(),
            },
            reason => GitError::ConnectionFailed { detail: printable(&reason) },
        })
}

fn authorities(pem: &[u8]) -> Result<Vec<reqwest::Certificate>, GitError> {
    let refused = |reason: &str| GitError::InvalidRoots { reason: reason.to_owned() };
    let found = reqwest::Certificate::from_pem_bundle(pem)
        .map_err(|_| refused("they cannot be decoded"))?;
    if found.is_empty() { Err(refused("there is no certificate in them")) } else { Ok(found) }
}

/// Checks addresses where they are used, so that a name can't change its meaning between check and connect.
struct Resolver {
    allow_insecure: bool,
}

/// All addresses of a host are refused.
#[derive(Debug, thiserror::Error)]
#[error("{host}: {why}")]
struct Refused {
    host: String,
    why: String,
}

impl Resolve for Resolver {
    fn resolve(&self, name: Name) -> Resolving {
        let allow_insecure = self.allow_insecure;
        Box::pin(async move {
            let host = name.as_str().to_owned();
            let mut why = None;
            let allowed: Vec<SocketAddr> = tokio::net::lookup_host((host.as_str(), 0))
                .await?
                .filter(|addr| match address::verdict(addr.ip()) {
                    Verdict::Allowed => true,
                    Verdict::Loopback => {
                        why = Some("loopback");
                        allow_insecure
                    }
                    Verdict::Refused(kind) => {
                        why = Some(kind);
                        false
                    }
                })
                .collect();
            if allowed.is_empty() {
                let why = why.unwrap_or("it has none").to_owned();
                return Err(Refused { host, why }.into());
            }
            Ok(Box::new(allowed.into_iter()) as Addrs)
        })
    }
}

/// What a failed request means.
pub(super) fn classify(error: &reqwest::Error) -> GitError {
    for cause in causes(error) {
        if let Some(Refused { host, why }) = cause.downcast_ref() {
            return GitError::AddressRefused { host: printable(host), why: why.clone() };
        }
        if let Some(rustls::Error::InvalidCertificate(problem)) = cause.downcast_ref() {
            return GitError::CertificateNotTrusted { why: certificate(problem) };
        }
    }
    GitError::ConnectionFailed { detail: describe(error) }
}

fn certificate(problem: &CertificateError) -> String {
    match problem {
        // The latter when an authority of the same name did.
        CertificateError::UnknownIssuer | CertificateError::BadSignature => {
            "no authority known here signed it".into()
        }
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            "it has expired".into()
        }
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            "it is not valid yet".into()
        }
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            "it is for another host".into()
        }
        other => printable(&other.to_string()),
    }
}

/// What led to an error, outermost first.
fn causes(error: &reqwest::Error) -> impl Iterator<Item = &(dyn std::error::Error + 'static)> {
    std::iter::successors(std::error::Error::source(error), |cause| {
        // An I/O error that wraps another names that one's source as its own, and so leaves it out.
        let wrapped = cause.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        match wrapped {
            Some(wrapped) => Some(wrapped),
            None => cause.source(),
        }
    })
}

/// The innermost cause: the outer ones repeat the URL.
fn innermost(error: &reqwest::Error) -> &dyn std::error::Error {
    causes(error).last().map_or(error as &dyn std::error::Error, |cause| cause)
}

fn describe(error: &reqwest::Error) -> String {
    let kind = if error.is_connect() {
        "cannot connect"
    } else if error.is_body() || error.is_decode() {
        "the answer ended early"
    } else {
        "no usable answer"
    };
    printable(&format!("{kind}: {}", innermost(error)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn v12_addresses_are_judged_when_a_name_is_resolved() {
        let resolve = |allow_insecure| {
            Resolver { allow_insecure }.resolve("localhost".parse().expect("a name"))
        };
        let Err(error) = resolve(false).await else { panic!("loopback was handed out") };
        assert_eq!(error.to_string(), "localhost: loopback");
        let mut allowed = resolve(true).await.expect("allowed");
        assert!(allowed.all(|address| address.ip().is_loopback()));
    }

    #[test]
    fn g1_extra_authorities_must_be_certificates() {
        let garbage = "-----BEGIN CERTIFICATE-----\naGVsbG8=\n-----END CERTIFICATE-----\n";
        for pem in
            ["", "hello", "-----BEGIN CERTIFICATE-----\n!\n-----END CERTIFICATE-----\n", garbage]
        {
            let error = build(false, Some(pem.as_bytes())).expect_err(pem);
            assert_eq!(error.reason(), "InvalidRoots", "{pem}: {error}");
            assert!(error.is_terminal());
        }
        assert!(build(false, None).is_ok());
    }
}
