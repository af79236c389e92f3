//! (pure) Which addresses may be dialled.
//!
//! Every address has a class. Addresses of the public internet may be dialled. Addresses inside a network may be dialled only
//! if a flag of the operator allows them, and some addresses never. An IPv6 address that stands for an IPv4 address is checked
//! as that one.
#![deny(clippy::disallowed_types, clippy::disallowed_methods)]

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

use ipnet::IpNet;

use super::address::AddressClass::{self, Internal, Loopback, Never, Private, Public};
use super::address::canonical;
use super::error::{NotAllowed, Refusal};

/// A range of private or internal addresses that may be dialled: `10.20.0.0/16`, or one address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AddressRange(IpNet);

impl AddressRange {
    fn contains(self, ip: IpAddr) -> bool {
        self.0.contains(&ip)
    }

    /// Whether the range is only this address.
    fn is_just(self, ip: IpAddr) -> bool {
        self.0.prefix_len() == self.0.max_prefix_len() && self.0.addr() == ip
    }
}

impl FromStr for AddressRange {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let range = match text.parse::<IpAddr>() {
            Ok(ip) => IpNet::from(ip),
            Err(_) => text
                .parse::<IpNet>()
                .map_err(|_| "it must be an address or a range like 10.20.0.0/16".to_owned())?,
        };
        if range != range.trunc() {
            return Err(format!("the address has bits behind the prefix: write {}", range.trunc()));
        }
        if range.addr().is_ipv6() && canonical(range.addr()).is_ipv4() {
            return Err("it stands for IPv4 addresses: write those".into());
        }
        match AddressClass::of_range(&range) {
            Some(Loopback) => Err("loopback addresses take --allow-insecure-git".into()),
            Some(Never(kind)) => Err(format!("it is {kind}, and never dialled")),
            _ => Ok(Self(range)),
        }
    }
}

/// The host and the port of a URL.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Endpoint {
    /// An address or a name, in lower case, without brackets and without a final dot.
    pub host: String,
    /// The port.
    pub port: u16,
}

impl Endpoint {
    /// An endpoint from a host in any spelling.
    #[must_use]
    pub fn new(host: &str, port: u16) -> Self {
        let bare = host.trim_start_matches('[').trim_end_matches(']').trim_end_matches('.');
        Self { host: bare.to_ascii_lowercase(), port }
    }

    /// The address, if the host is one.
    #[must_use]
    pub fn address(&self) -> Option<SocketAddr> {
        let ip = self.host.parse().ok()?;
        Some(SocketAddr::new(canonical(ip), self.port))
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host, port } = self;
        if host.contains(':') { write!(f, "[{host}]:{port}") } else { write!(f, "{host}:{port}") }
    }
}

/// The operator's flags about addresses. By default only public addresses may be dialled.
#[derive(Debug, Clone, Default)]
pub struct Policy {
    /// `--allow-insecure-git`: allows loopback addresses and `http://`.
    pub insecure: bool,
    /// `--single-tenant`: allows the private addresses of RFC 1918.
    pub single_tenant: bool,
    /// `--allow-addresses`: allows these ranges.
    pub ranges: Vec<AddressRange>,
    /// Whether errors tell which names exist, and where they lead: not if others than who runs this see them.
    pub explains: bool,
    /// The API server. It may be dialled only if a range is exactly its address.
    pub api_servers: Vec<Endpoint>,
    /// Endpoints that whoever runs this has named: these may be loopback, private and internal addresses.
    pub trusted: Vec<Endpoint>,
}

impl Policy {
    /// Checks the host of a URL without resolving it.
    ///
    /// # Errors
    /// [`NotAllowed`] for an address that may not be dialled, and for `localhost` if loopback addresses may not be.
    pub fn host(&self, endpoint: &Endpoint) -> Result<(), NotAllowed> {
        let Endpoint { host, port } = endpoint;
        let checked = match host.parse() {
            Ok(ip) => {
                self.address_of(endpoint, SocketAddr::new(ip, *port), &self.known_api_servers())
            }
            // RFC 6761: these names are always loopback.
            Err(_) if *host == "localhost" || host.ends_with(".localhost") => {
                if self.insecure || self.trusted.contains(endpoint) {
                    Ok(())
                } else {
                    Err(Refusal::Class(Loopback))
                }
            }
            Err(_) => Ok(()),
        };
        checked.map_err(|refusal| NotAllowed::new(host, refusal))
    }

    /// The addresses of the API server that are known without resolving a name.
    #[must_use]
    pub fn known_api_servers(&self) -> Vec<SocketAddr> {
        self.api_servers.iter().filter_map(Endpoint::address).collect()
    }

    /// Checks one address. `api_servers` are the addresses of the API server, each made [canonical].
    ///
    /// # Errors
    /// The reason why it may not be dialled.
    pub fn address(&self, to: SocketAddr, api_servers: &[SocketAddr]) -> Result<(), Refusal> {
        self.check(to, api_servers, false)
    }

    /// The same for an address of this endpoint.
    ///
    /// # Errors
    /// The reason why it may not be dialled.
    pub fn address_of(
        &self,
        endpoint: &Endpoint,
        to: SocketAddr,
        api_servers: &[SocketAddr],
    ) -> Result<(), Refusal> {
        self.check(to, api_servers, self.trusted.contains(endpoint))
    }

    fn check(
        &self,
        to: SocketAddr,
        api_servers: &[SocketAddr],
        is_trusted: bool,
    ) -> Result<(), Refusal> {
        let ip = canonical(to.ip());
        let class = AddressClass::of(ip);
        let listed = || self.ranges.iter().any(|range| range.contains(ip));
        let allowed = match class {
            Public => true,
            Private => is_trusted || self.single_tenant || listed(),
            Internal => is_trusted || listed(),
            Loopback => is_trusted || self.insecure,
            Never(_) => false,
        };
        if !allowed {
            return Err(Refusal::Class(class));
        }
        if api_servers.contains(&SocketAddr::new(ip, to.port()))
            && !self.ranges.iter().any(|range| range.is_just(ip))
        {
            return Err(Refusal::ApiServer);
        }
        Ok(())
    }
}

#[cfg(test)]
#[path = "tests/policy.rs"]
mod tests;
