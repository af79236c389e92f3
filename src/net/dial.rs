//! The dialler: resolves names itself, judges each address when a connection is made, and connects to what was judged.
//!
//! No redirect is followed, no proxy or netrc is read from the environment. A client belongs to one origin: what a name is
//! judged for (the API server has a port) and what is asked cannot differ.

use parking_lot::{Mutex, MutexGuard};
use std::collections::HashMap;
use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures::future::BoxFuture;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::{Request, Response, Url};
use rustls::CertificateError;

use super::error::{NetError, NotAllowed, shown};
use super::policy::{Endpoint, Policy, canonical};

/// How long a connection may take, resolving the name included.
const CONNECT: Duration = Duration::from_secs(10);
const IDLE: Duration = Duration::from_secs(90);

/// Opens connections to what the policy allows. Cheap to clone.
#[derive(Clone)]
pub struct Dialler(Arc<Inner>);

struct Inner {
    policy: Policy,
    names: Box<dyn Lookup>,
    /// The clients that are in use and trust only whom the machine trusts, by origin: each holds the machine's authorities and
    /// connections of its own, half a mebibyte.
    shared: Mutex<HashMap<Origin, Weak<reqwest::Client>>>,
}

/// Scheme, host and port, and what the client calls itself.
type Origin = (String, Endpoint, String);

impl fmt::Debug for Dialler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Dialler").field(&self.0.policy).finish()
    }
}

/// Where names are looked up.
trait Lookup: Send + Sync {
    fn addresses<'a>(&'a self, host: &'a str) -> BoxFuture<'a, io::Result<Vec<IpAddr>>>;
}

/// The system's resolver.
struct System;

impl Lookup for System {
    fn addresses<'a>(&'a self, host: &'a str) -> BoxFuture<'a, io::Result<Vec<IpAddr>>> {
        Box::pin(async move {
            let found = tokio::net::lookup_host((host, 0)).await?;
            Ok(found.map(|address| address.ip()).collect())
        })
    }
}

/// What a client is made of beside its origin.
#[derive(Debug, Clone, Copy)]
pub struct ClientOptions<'a> {
    /// What it calls itself.
    pub user_agent: &'a str,
    /// Certificates (PEM) of authorities that are trusted beside the machine's.
    pub roots: Option<&'a [u8]>,
}

impl Dialler {
    /// A dialler with this policy and the system's resolver.
    #[must_use]
    pub fn new(policy: Policy) -> Self {
        Self::asking(policy, Box::new(System))
    }

    fn asking(policy: Policy, names: Box<dyn Lookup>) -> Self {
        Self(Arc::new(Inner { policy, names, shared: Mutex::default() }))
    }

    /// Whether `http://` may be used.
    #[must_use]
    pub fn allows_plain_http(&self) -> bool {
        self.0.policy.insecure
    }

    /// A client for what is below the origin of this URL. Dials nothing and resolves nothing.
    ///
    /// # Errors
    /// [`NetError::NotAllowed`] when the host is an address that may not be dialled, [`NetError::InvalidRoots`], and
    /// [`NetError::Failed`] when the machine has no certificate authorities or the URL no host.
    pub fn client(&self, url: &Url, options: ClientOptions<'_>) -> Result<Client, NetError> {
        let (Some(host), Some(port)) = (url.host_str(), url.port_or_known_default()) else {
            return Err(NetError::failed("the URL has no host or no port"));
        };
        let to = Endpoint::new(host, port);
        self.0.policy.host(&to)?;
        let roots = options.roots.map_or(Ok(Vec::new()), authorities)?;
        let own = !roots.is_empty();
        let origin = (url.scheme().to_owned(), to, options.user_agent.to_owned());
        if let Some(http) = self.shared().get(&origin).and_then(Weak::upgrade).filter(|_| !own) {
            return Ok(Client { http, origin: url.clone() });
        }
        let http = reqwest::Client::builder()
            .tls_certs_merge(roots)
            .user_agent(options.user_agent)
            .redirect(reqwest::redirect::Policy::none())
            .no_proxy()
            .referer(false)
            .https_only(url.scheme() == "https")
            .connect_timeout(CONNECT)
            .pool_idle_timeout(IDLE)
            .pool_max_idle_per_host(1)
            .dns_resolver(Arc::new(Judged { dialler: self.clone(), port }))
            .build()
            .map_err(|error| match innermost(&error).to_string() {
                reason if own => NetError::InvalidRoots { reason: shown(&reason) },
                // Its words for an image or a machine without them.
                reason if reason.contains("No CA certificates") => NetError::failed(
                    "there are no CA certificates where Convoke runs: install the package ca-certificates, \
                     or name a file of them in SSL_CERT_FILE",
                ),
                reason => NetError::failed(&reason),
            })?;
        let http = Arc::new(http);
        if !own {
            let mut shared = self.shared();
            shared.retain(|_, client| client.strong_count() > 0);
            shared.insert(origin, Arc::downgrade(&http));
        }
        Ok(Client { http, origin: url.clone() })
    }

    fn shared(&self) -> MutexGuard<'_, HashMap<Origin, Weak<reqwest::Client>>> {
        self.0.shared.lock()
    }

    /// The addresses of a name that may be dialled.
    async fn resolve(&self, to: &Endpoint) -> Result<Vec<SocketAddr>, NetError> {
        let Inner { policy, names, .. } = &*self.0;
        let found = match names.addresses(&to.host).await {
            Ok(found) => found,
            Err(error) if is_temporary(&error) => {
                return Err(NetError::failed("the name servers do not answer for the host"));
            }
            // A name that does not exist is told like one that leads to what may not be dialled.
            Err(error) => {
                tracing::info!(host = to.host, %error, "the host has no address");
                Vec::new()
            }
        };
        let found: Vec<_> = found.into_iter().map(|ip| SocketAddr::new(ip, to.port)).collect();
        let api_servers = self.api_servers(to, &found).await;
        let judge = |address: &SocketAddr| match policy.address(*address, &api_servers) {
            Ok(()) => true,
            Err(refusal) => {
                tracing::info!(host = to.host, %address, ?refusal, "the address is not dialled");
                false
            }
        };
        let allowed: Vec<_> = found.into_iter().filter(judge).collect();
        if allowed.is_empty() { Err(NotAllowed::name(&to.host).into()) } else { Ok(allowed) }
    }

    /// Where the API server is now, of what can be reached at the port that is about to be dialled; `found` are the
    /// addresses of the host.
    async fn api_servers(&self, to: &Endpoint, found: &[SocketAddr]) -> Vec<SocketAddr> {
        let Inner { policy, names, .. } = &*self.0;
        let mut addresses = policy.known_api_servers();
        let same_port = policy.api_servers.iter().filter(|server| server.port == to.port);
        for server in same_port.filter(|server| server.address().is_none()) {
            let ips = if server == to {
                found.iter().map(SocketAddr::ip).collect()
            } else {
                // A name that only a proxy can resolve leads nowhere from here.
                names.addresses(&server.host).await.unwrap_or_default()
            };
            let ips = ips.into_iter().map(canonical);
            addresses.extend(ips.map(|ip| SocketAddr::new(ip, server.port)));
        }
        addresses
    }
}

/// A client of one origin.
#[derive(Debug, Clone)]
pub struct Client {
    http: Arc<reqwest::Client>,
    origin: Url,
}

impl Client {
    /// Sends a request. It has no deadline of its own but for the connection.
    ///
    /// # Errors
    /// Whatever keeps an answer from coming; a request to another origin is not sent.
    pub async fn execute(&self, request: Request) -> Result<Response, NetError> {
        if request.url().origin() != self.origin.origin() {
            return Err(NetError::failed("the request is for another server"));
        }
        self.http.execute(request).await.map_err(NetError::from)
    }
}

/// The resolver of a client. Addresses in place of a name never come here: they are judged when the client is made.
struct Judged {
    dialler: Dialler,
    port: u16,
}

impl Resolve for Judged {
    fn resolve(&self, name: Name) -> Resolving {
        let (dialler, to) = (self.dialler.clone(), Endpoint::new(name.as_str(), self.port));
        Box::pin(async move {
            let addresses = dialler.resolve(&to).await?;
            Ok(Box::new(addresses.into_iter()) as Addrs)
        })
    }
}

/// Whether the name servers could not be asked, so that nothing is known about the name.
fn is_temporary(error: &io::Error) -> bool {
    // The system's words are all there is: "Temporary failure in name resolution" (glibc), "Try again" (musl).
    let text = error.to_string();
    error.raw_os_error().is_some()
        || ["emporary failure", "ry again"].iter().any(|words| text.contains(words))
}

fn authorities(pem: &[u8]) -> Result<Vec<reqwest::Certificate>, NetError> {
    let refused = |reason: &str| NetError::InvalidRoots { reason: reason.to_owned() };
    let found = reqwest::Certificate::from_pem_bundle(pem)
        .map_err(|_| refused("they cannot be decoded"))?;
    if found.is_empty() { Err(refused("there is no certificate in them")) } else { Ok(found) }
}

/// What a failed request means.
impl From<reqwest::Error> for NetError {
    fn from(error: reqwest::Error) -> Self {
        for cause in causes(&error) {
            if let Some(known) = cause.downcast_ref::<Self>() {
                return known.clone();
            }
            if let Some(rustls::Error::InvalidCertificate(problem)) = cause.downcast_ref() {
                return Self::CertificateNotTrusted { why: certificate(problem) };
            }
        }
        let kind = if error.is_connect() {
            "cannot connect"
        } else if error.is_body() || error.is_decode() {
            "the answer ended early"
        } else {
            "no usable answer"
        };
        Self::failed(&format!("{kind}: {}", innermost(&error)))
    }
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
        other => shown(&other.to_string()),
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

#[cfg(test)]
#[path = "tests/dial.rs"]
mod tests;
