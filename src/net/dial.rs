//! The dialler resolves names itself, checks each address when a connection is made, and connects to the checked address.
//!
//! No redirect is followed, and no proxy or netrc is read from the environment. A client belongs to one origin, because an
//! address is checked together with its port: the API server is one port of its machine.

use parking_lot::{Mutex, MutexGuard};
use std::collections::HashMap;
use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures::future::BoxFuture;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::{Request, Response, Url};
use tokio::net::TcpStream;

use super::address::canonical;
use super::error::{NetError, NotAllowed, shown};
use super::policy::{Endpoint, Policy};
use super::proxy::ProxyServer;
use super::tls;

/// How long it may take to make a connection, with the resolution of the name.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// What to do about a proxy that makes no connection.
const PROXY_HINT: &str =
    "check the host in the URL, and address, username and password of the proxy";
/// How long an idle connection is kept.
const MAX_IDLE_TIME: Duration = Duration::from_secs(90);

/// Makes connections that the policy allows. A clone is cheap.
#[derive(Clone)]
pub struct Dialler(Arc<Inner>);

struct Inner {
    policy: Policy,
    resolver: Arc<dyn Resolver>,
    /// The clients in use that trust only the machine's authorities, by origin. They are shared, because each takes half a
    /// mebibyte for the authorities and its connections.
    shared: Mutex<HashMap<Origin, Weak<Http>>>,
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
        Self::with_resolver(policy, Arc::new(SystemResolver))
    }

    /// A dialler with this resolver.
    fn with_resolver(policy: Policy, resolver: Arc<dyn Resolver>) -> Self {
        Self(Arc::new(Inner { policy, resolver, shared: Mutex::default() }))
    }

    /// A dialler that also reaches these endpoints at loopback, private and internal addresses ([`Policy::trusted`]).
    #[must_use]
    pub fn trusting(&self, trusted: Vec<Endpoint>) -> Self {
        let policy = Policy { trusted, ..self.0.policy.clone() };
        Self::with_resolver(policy, self.0.resolver.clone())
    }

    /// Whether `http://` is allowed.
    #[must_use]
    pub fn allows_plain_http(&self) -> bool {
        self.0.policy.insecure
    }

    /// A client for URLs with the same origin as this one. No connection is made, and no name is resolved.
    ///
    /// # Errors
    /// [`NetError::NotAllowed`] when the host is an address that may not be dialled, [`NetError::InvalidRoots`],
    /// [`NetError::InvalidIdentity`], and [`NetError::Failed`] when the machine has no certificate authorities or the URL no host.
    pub fn client(&self, url: &Url, options: ClientOptions<'_>) -> Result<Client, NetError> {
        let (Some(host), Some(port)) = (url.host_str(), url.port_or_known_default()) else {
            return Err(NetError::failed("the URL has no host or no port"));
        };
        let to = Endpoint::new(host, port);
        self.0.policy.host(&to)?;
        let ClientOptions { roots, identity, proxy, .. } = options;
        let own = roots.is_some() || identity.is_some() || proxy.is_some();
        let origin = (url.scheme().to_owned(), to, options.user_agent.to_owned());
        if let Some(http) = self.shared().get(&origin).and_then(Weak::upgrade).filter(|_| !own) {
            return Ok(Client { http, origin: url.clone(), proxied: false });
        }
        // The addresses of a host behind a proxy are the proxy's business. Here the proxy is dialled.
        let mut dialled = port;
        // A proxy that reads along may close a connection after each answer, just when it is used again.
        let is_read_along = proxy.is_some() && url.scheme() == "http";
        let mut builder = reqwest::Client::builder().no_proxy();
        if let Some(proxy) = proxy {
            let endpoint = proxy.endpoint();
            self.0.policy.host(&endpoint).map_err(|refused| NetError::proxy_refused(&refused))?;
            dialled = endpoint.port;
            let for_client = proxy.for_client();
            builder = builder.proxy(for_client.map_err(|_| NetError::failed("the proxy is none"))?);
        }
        let (config, asked) = tls::config(roots, identity)?;
        let client = builder
            .tls_backend_preconfigured(config)
            .user_agent(options.user_agent)
            .redirect(reqwest::redirect::Policy::none())
            .referer(false)
            .https_only(url.scheme() == "https")
            .connect_timeout(CONNECT_TIMEOUT)
            .pool_idle_timeout(MAX_IDLE_TIME)
            .pool_max_idle_per_host(usize::from(!is_read_along))
            .dns_resolver(Arc::new(CheckedResolver { dialler: self.clone(), port: dialled }))
            .build()
            .map_err(|error| NetError::failed(&innermost(&error).to_string()))?;
        let http = Arc::new(Http { client, asked, answered: AtomicBool::new(false) });
        if !own {
            let mut shared = self.shared();
            shared.retain(|_, client| client.strong_count() > 0);
            shared.insert(origin, Arc::downgrade(&http));
        }
        Ok(Client { http, origin: url.clone(), proxied: proxy.is_some() })
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
        let silent = || NetError::failed(&format!("{to}: cannot connect: nobody answers"));
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
                        let detail = shown(&format!("{to}: cannot connect: {error}"));
                        last = NetError::ConnectionRefused { detail };
                    }
                    Ok(Err(error)) => {
                        last = NetError::failed(&format!("{to}: cannot connect: {error}"));
                    }
                    Err(_) => last = silent(),
                }
            }
            Err(last)
        });
        connected.await.unwrap_or_else(|_| Err(silent()))
    }

    fn shared(&self) -> MutexGuard<'_, HashMap<Origin, Weak<Http>>> {
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
            Err(error) if policy.explains => {
                let text = format!("the name {} cannot be resolved: {error}", to.host);
                return Err(NetError::failed(&text));
            }
            // The error is the same as for a name that leads to an address that may not be dialled.
            Err(error) => {
                tracing::info!(host = to.host, %error, "the host has no address");
                Vec::new()
            }
        };
        let found: Vec<_> = found.into_iter().map(|ip| SocketAddr::new(ip, to.port)).collect();
        let api_servers = self.api_servers(to, &found).await;
        let (mut allowed, mut refused) = (Vec::new(), NotAllowed::name(&to.host));
        for address in found {
            match policy.address_of(to, address, &api_servers) {
                Ok(()) => allowed.push(address),
                Err(refusal) => {
                    tracing::info!(host = to.host, %address, ?refusal, "the address is not dialled");
                    if policy.explains {
                        refused = NotAllowed::new(&to.host, refusal);
                    }
                }
            }
        }
        if allowed.is_empty() { Err(refused.into()) } else { Ok(allowed) }
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

/// The connections of a client.
#[derive(Debug)]
struct Http {
    client: reqwest::Client,
    /// Whether the server has asked for a client certificate.
    asked: Arc<AtomicBool>,
    /// Whether it has ever answered a request.
    answered: AtomicBool,
}

/// A client of one origin.
#[derive(Debug, Clone)]
pub struct Client {
    http: Arc<Http>,
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
        let sent = self.http.client.execute(request).await;
        if sent.is_ok() {
            self.http.answered.store(true, Ordering::Relaxed);
        }
        // A connection that breaks then is how most servers refuse a client certificate, or that there is none.
        let is_refused = self.asks_for_certificate() && !self.http.answered.load(Ordering::Relaxed);
        sent.map_err(|error| {
            let is_connect = error.is_connect();
            // TLS begins when the proxy has made the connection, as a rule.
            let is_tls = causes(&error).any(<dyn std::error::Error>::is::<rustls::Error>);
            match NetError::from(error) {
                NetError::ConnectionRefused { detail } | NetError::Failed { detail }
                    if self.proxied && is_connect && !is_tls =>
                {
                    NetError::ProxyFailed { detail, hint: PROXY_HINT }
                }
                NetError::Failed { .. } if is_refused => NetError::ClientCertificateRefused {
                    why: "the server asks for a client certificate, and breaks the connection",
                },
                // Only the proxy's name is resolved.
                NetError::NotAllowed(refused) if self.proxied => NetError::proxy_refused(&refused),
                NetError::ConnectionRefused { detail } if is_connect => {
                    NetError::ConnectionRefused { detail: self.at(&detail) }
                }
                NetError::Failed { detail } if is_connect => {
                    NetError::Failed { detail: self.at(&detail) }
                }
                other => other,
            }
        })
    }

    /// Whether the server has asked for a client certificate. It may do without.
    #[must_use]
    pub fn asks_for_certificate(&self) -> bool {
        self.http.asked.load(Ordering::Relaxed)
    }

    /// A text about a connection that was not made, with the server.
    fn at(&self, detail: &str) -> String {
        let host = self.origin.host_str().unwrap_or_default();
        let port = self.origin.port_or_known_default().unwrap_or_default();
        shown(&format!("{}: {detail}", Endpoint::new(host, port)))
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
                return Self::CertificateNotTrusted { why: tls::certificate_problem(problem) };
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
        if let Some(why) = tls::client_certificate_problem(&inner) {
            return Self::ClientCertificateRefused { why };
        }
        // The client's words for a proxy that does not answer CONNECT with 200.
        let inner = match inner.strip_prefix("tunnel error: ") {
            Some("proxy authorization required") => "it wants other credentials",
            Some("unsuccessful") => {
                "it does not connect to this host: it cannot, does not allow it, or wants other credentials"
            }
            _ => &inner,
        };
        let detail = shown(&format!("{kind}: {inner}"));
        if is_refused { Self::ConnectionRefused { detail } } else { Self::Failed { detail } }
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
