//! The dialler resolves names itself, checks each address when a connection is made, and connects to the checked address.
//!
//! No redirect is followed, and no proxy or netrc is read from the environment. A client belongs to one origin, because an
//! address is checked together with its port: the API server is one port of its machine.

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
use tokio::net::TcpStream;

use super::address::canonical;
use super::error::{NetError, NotAllowed, shown};
use super::policy::{Endpoint, Policy};
use super::proxy::ProxyServer;

/// How long it may take to make a connection, with the resolution of the name.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// How long an idle connection is kept.
const MAX_IDLE_TIME: Duration = Duration::from_secs(90);

/// Makes connections that the policy allows. A clone is cheap.
#[derive(Clone)]
pub struct Dialler(Arc<Inner>);

struct Inner {
    policy: Policy,
    resolver: Box<dyn Resolver>,
    /// The clients in use that trust only the machine's authorities, by origin. They are shared, because each takes half a
    /// mebibyte for the authorities and its connections.
    shared: Mutex<HashMap<Origin, Weak<reqwest::Client>>>,
}

/// Scheme, host and port, and user agent.
type Origin = (String, Endpoint, String);

impl fmt::Debug for Dialler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Dialler").field(&self.0.policy).finish()
    }
}

/// A resolver of names.
trait Resolver: Send + Sync {
    fn addresses<'a>(&'a self, host: &'a str) -> BoxFuture<'a, io::Result<Vec<IpAddr>>>;
}

/// The system's resolver.
struct SystemResolver;

impl Resolver for SystemResolver {
    fn addresses<'a>(&'a self, host: &'a str) -> BoxFuture<'a, io::Result<Vec<IpAddr>>> {
        Box::pin(async move {
            let found = tokio::net::lookup_host((host, 0)).await?;
            Ok(found.map(|address| address.ip()).collect())
        })
    }
}

/// The options of a client.
#[derive(Debug, Clone, Copy)]
pub struct ClientOptions<'a> {
    /// The value of the header `User-Agent`.
    pub user_agent: &'a str,
    /// Certificates, in PEM, of authorities that are trusted besides the machine's.
    pub roots: Option<&'a [u8]>,
    /// A client certificate and its key, in PEM.
    pub identity: Option<&'a [u8]>,
    /// A proxy that makes the connections.
    pub proxy: Option<&'a ProxyServer>,
}

impl Dialler {
    /// A dialler with this policy and the system's resolver.
    #[must_use]
    pub fn new(policy: Policy) -> Self {
        Self::with_resolver(policy, Box::new(SystemResolver))
    }

    /// A dialler with this resolver.
    fn with_resolver(policy: Policy, resolver: Box<dyn Resolver>) -> Self {
        Self(Arc::new(Inner { policy, resolver, shared: Mutex::default() }))
    }

    /// Whether `http://` is allowed.
    #[must_use]
    pub fn allows_plain_http(&self) -> bool {
        self.0.policy.insecure
    }

    /// A client for URLs with the same origin as this one. No connection is made, and no name is resolved.
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
        let identity = options.identity.map(identity).transpose()?;
        let has_identity = identity.is_some();
        let own = !roots.is_empty() || has_identity || options.proxy.is_some();
        let origin = (url.scheme().to_owned(), to, options.user_agent.to_owned());
        if let Some(http) = self.shared().get(&origin).and_then(Weak::upgrade).filter(|_| !own) {
            return Ok(Client { http, origin: url.clone(), proxied: false });
        }
        // The addresses of a host behind a proxy are the proxy's business. Here the proxy is dialled.
        let mut dialled = port;
        // A proxy that reads along may close a connection after each answer, just when it is used again.
        let is_read_along = options.proxy.is_some() && url.scheme() == "http";
        let mut builder = reqwest::Client::builder().no_proxy();
        if let Some(proxy) = options.proxy {
            let endpoint = proxy.endpoint();
            self.0.policy.host(&endpoint)?;
            dialled = endpoint.port;
            let for_client = proxy.for_client();
            builder = builder.proxy(for_client.map_err(|_| NetError::failed("the proxy is none"))?);
        }
        if let Some(identity) = identity {
            builder = builder.identity(identity);
        }
        let http = builder
            .tls_certs_merge(roots)
            .user_agent(options.user_agent)
            .redirect(reqwest::redirect::Policy::none())
            .referer(false)
            .https_only(url.scheme() == "https")
            .connect_timeout(CONNECT_TIMEOUT)
            .pool_idle_timeout(MAX_IDLE_TIME)
            .pool_max_idle_per_host(usize::from(!is_read_along))
            .dns_resolver(Arc::new(CheckedResolver { dialler: self.clone(), port: dialled }))
            .build()
            .map_err(|error| match innermost(&error).to_string() {
                // Roots were read before. A key and a certificate that are no pair show only now.
                reason if has_identity => NetError::InvalidIdentity { reason: shown(&reason) },
                reason if own => NetError::InvalidRoots { reason: shown(&reason) },
                // reqwest's message when the image or machine has none.
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
        Ok(Client { http, origin: url.clone(), proxied: options.proxy.is_some() })
    }

    /// Checks a host without resolving it.
    ///
    /// # Errors
    /// [`NotAllowed`] when the host is an address that may not be dialled.
    pub fn check_host(&self, to: &Endpoint) -> Result<(), NotAllowed> {
        self.0.policy.host(to)
    }

    /// Connects, for protocols other than HTTP. The addresses of a name are tried one after the other.
    ///
    /// # Errors
    /// The reason why there is no connection.
    pub async fn connect(&self, to: &Endpoint) -> Result<TcpStream, NetError> {
        self.check_host(to)?;
        let connected = tokio::time::timeout(CONNECT_TIMEOUT, async {
            let addresses = match to.address() {
                Some(address) => vec![address],
                None => self.resolve(to).await?,
            };
            let each = CONNECT_TIMEOUT / u32::try_from(addresses.len()).unwrap_or(1).max(1);
            let mut last = NetError::failed("cannot connect");
            for address in addresses {
                match tokio::time::timeout(each, TcpStream::connect(address)).await {
                    Ok(Ok(stream)) => {
                        // What is sent is small, and each part is waited for.
                        let _ = stream.set_nodelay(true);
                        return Ok(stream);
                    }
                    Ok(Err(error)) if error.kind() == io::ErrorKind::ConnectionRefused => {
                        let detail = shown(&format!("cannot connect: {error}"));
                        last = NetError::ConnectionRefused { detail };
                    }
                    Ok(Err(error)) => last = NetError::failed(&format!("cannot connect: {error}")),
                    Err(_) => last = NetError::failed("cannot connect: nobody answers"),
                }
            }
            Err(last)
        });
        connected.await.unwrap_or_else(|_| Err(NetError::failed("cannot connect: nobody answers")))
    }

    fn shared(&self) -> MutexGuard<'_, HashMap<Origin, Weak<reqwest::Client>>> {
        self.0.shared.lock()
    }

    /// The addresses of a name that may be dialled.
    async fn resolve(&self, to: &Endpoint) -> Result<Vec<SocketAddr>, NetError> {
        let Inner { policy, resolver, .. } = &*self.0;
        let found = match resolver.addresses(&to.host).await {
            Ok(found) => found,
            Err(error) if is_temporary(&error) => {
                return Err(NetError::failed("the name servers do not answer for the host"));
            }
            // The error is the same as for a name that leads to an address that may not be dialled.
            Err(error) => {
                tracing::info!(host = to.host, %error, "the host has no address");
                Vec::new()
            }
        };
        let found: Vec<_> = found.into_iter().map(|ip| SocketAddr::new(ip, to.port)).collect();
        let api_servers = self.api_servers(to, &found).await;
        let is_allowed = |address: &SocketAddr| match policy.address(*address, &api_servers) {
            Ok(()) => true,
            Err(refusal) => {
                tracing::info!(host = to.host, %address, ?refusal, "the address is not dialled");
                false
            }
        };
        let allowed: Vec<_> = found.into_iter().filter(is_allowed).collect();
        if allowed.is_empty() { Err(NotAllowed::name(&to.host).into()) } else { Ok(allowed) }
    }

    /// The current addresses of the API server, as far as they have the port of `to`. `found` are the addresses of the host of
    /// `to`.
    async fn api_servers(&self, to: &Endpoint, found: &[SocketAddr]) -> Vec<SocketAddr> {
        let Inner { policy, resolver, .. } = &*self.0;
        let mut addresses = policy.known_api_servers();
        let same_port = policy.api_servers.iter().filter(|server| server.port == to.port);
        for server in same_port.filter(|server| server.address().is_none()) {
            let ips = if server == to {
                found.iter().map(SocketAddr::ip).collect()
            } else {
                // A name that cannot be resolved here cannot be dialled from here either.
                resolver.addresses(&server.host).await.unwrap_or_default()
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
    /// Whether a proxy makes the connections.
    proxied: bool,
}

impl Client {
    /// Sends a request. Only the connection has a deadline here; the caller sets one for the rest.
    ///
    /// # Errors
    /// The reason why there is no answer. A request to another origin is not sent.
    pub async fn execute(&self, request: Request) -> Result<Response, NetError> {
        if request.url().origin() != self.origin.origin() {
            return Err(NetError::failed("the request is for another server"));
        }
        self.http.execute(request).await.map_err(|error| {
            let is_connect = error.is_connect();
            match NetError::from(error) {
                NetError::ConnectionRefused { detail } | NetError::Failed { detail }
                    if self.proxied && is_connect =>
                {
                    NetError::Failed { detail: format!("through the proxy: {detail}") }
                }
                other => other,
            }
        })
    }
}

/// The resolver of a client. A host that is an address is not resolved: it is checked when the client is made.
struct CheckedResolver {
    dialler: Dialler,
    port: u16,
}

impl Resolve for CheckedResolver {
    fn resolve(&self, name: Name) -> Resolving {
        let (dialler, to) = (self.dialler.clone(), Endpoint::new(name.as_str(), self.port));
        Box::pin(async move {
            let addresses = dialler.resolve(&to).await?;
            Ok(Box::new(addresses.into_iter()) as Addrs)
        })
    }
}

/// Whether the name servers do not answer, so that nothing is known about the name.
fn is_temporary(error: &io::Error) -> bool {
    // Only the text says so: "Temporary failure in name resolution" (glibc), "Try again" (musl).
    let text = error.to_string();
    error.raw_os_error().is_some()
        || ["emporary failure", "ry again"].iter().any(|words| text.contains(words))
}

/// Parses certificates of authorities.
fn authorities(pem: &[u8]) -> Result<Vec<reqwest::Certificate>, NetError> {
    let refused = |reason: &str| NetError::InvalidRoots { reason: reason.to_owned() };
    let found = reqwest::Certificate::from_pem_bundle(pem)
        .map_err(|_| refused("they cannot be decoded"))?;
    if found.is_empty() { Err(refused("there is no certificate in them")) } else { Ok(found) }
}

/// Parses a client certificate and its key.
fn identity(pem: &[u8]) -> Result<reqwest::Identity, NetError> {
    reqwest::Identity::from_pem(pem).map_err(|error| {
        // Its texts are fixed: they quote nothing.
        NetError::InvalidIdentity { reason: shown(&innermost(&error).to_string()) }
    })
}

/// The error of a failed request.
impl From<reqwest::Error> for NetError {
    fn from(error: reqwest::Error) -> Self {
        let mut is_refused = false;
        for cause in causes(&error) {
            let io = cause.downcast_ref::<io::Error>();
            is_refused |= io.is_some_and(|io| io.kind() == io::ErrorKind::ConnectionRefused);
            if let Some(known) = cause.downcast_ref::<Self>() {
                return known.clone();
            }
            if let Some(rustls::Error::InvalidCertificate(problem)) = cause.downcast_ref() {
                return Self::CertificateNotTrusted { why: certificate_problem(problem) };
            }
        }
        let kind = if error.is_connect() {
            "cannot connect"
        } else if error.is_body() || error.is_decode() {
            "the answer ended early"
        } else {
            "no usable answer"
        };
        let inner = innermost(&error).to_string();
        // The client's words for a proxy that does not answer CONNECT with 200.
        let inner = if inner.starts_with("tunnel error") {
            "the proxy refuses: it wants other credentials, or does not allow this host"
        } else {
            &inner
        };
        let detail = shown(&format!("{kind}: {inner}"));
        if is_refused { Self::ConnectionRefused { detail } } else { Self::Failed { detail } }
    }
}

/// What is wrong with a certificate, for people.
fn certificate_problem(problem: &CertificateError) -> String {
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
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            "it is for another host".into()
        }
        other => shown(&other.to_string()),
    }
}

/// The causes of an error, the outermost first.
fn causes(error: &reqwest::Error) -> impl Iterator<Item = &(dyn std::error::Error + 'static)> {
    std::iter::successors(std::error::Error::source(error), |cause| {
        // An I/O error that wraps another error skips it: its source is the source of the wrapped one.
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
