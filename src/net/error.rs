//! (pure) The errors of connections.
#![deny(clippy::disallowed_types, clippy::disallowed_methods)]

use super::address::AddressClass;
use convoke_core::text::printable;

/// Characters of a foreign text that are kept.
const MAX_TEXT_CHARS: usize = 300;

/// Why one address may not be dialled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// Addresses of this class are not allowed.
    Class(AddressClass),
    /// The address is that of the API server.
    ApiServer,
}

/// A host that may not be dialled. No connection was made.
///
/// For a name, the error reveals neither its addresses nor whether it exists. Otherwise everybody who may write a URL could
/// explore a network that they cannot see. For an address, the error says only what the address itself shows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NotAllowed {
    host: String,
    /// `None` for a name.
    refusal: Option<Refusal>,
}

impl NotAllowed {
    /// The error for a host that is an address.
    #[must_use]
    pub fn new(host: &str, refusal: Refusal) -> Self {
        Self { host: shown(host), refusal: Some(refusal) }
    }

    /// The error for a name that has no address that may be dialled.
    #[must_use]
    pub fn name(host: &str) -> Self {
        Self { host: shown(host), refusal: None }
    }

    /// Whether only another host or another flag of the operator can help. A name may get another address.
    #[must_use]
    pub const fn is_lasting(&self) -> bool {
        self.refusal.is_some()
    }

    /// Whether a flag of the operator could allow it.
    #[must_use]
    pub const fn could_be_allowed(&self) -> bool {
        !matches!(self.refusal, Some(Refusal::Class(AddressClass::Public | AddressClass::Never(_))))
    }

    /// What to do.
    #[must_use]
    pub const fn hint(&self) -> &'static str {
        use AddressClass::{Internal, Loopback, Never, Private, Public};
        match self.refusal {
            None => {
                "check the spelling; for a host on a private network start the operator with --allow-addresses"
            }
            Some(Refusal::Class(Private)) => {
                "name its range in --allow-addresses of the operator, or use --single-tenant on a cluster of one team"
            }
            Some(Refusal::Class(Internal)) => "name its range in --allow-addresses of the operator",
            Some(Refusal::Class(Loopback)) => {
                "start the operator with --allow-insecure-git for tests"
            }
            Some(Refusal::Class(Public | Never(_))) => "such addresses are never dialled",
            Some(Refusal::ApiServer) => {
                "the cluster's API server is dialled only if --allow-addresses of the operator names just its address"
            }
        }
    }
}

impl std::fmt::Display for NotAllowed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        use AddressClass::{Internal, Loopback, Never, Private, Public};
        let Self { host, refusal } = self;
        match refusal {
            None => write!(f, "{host} has no address that may be dialled"),
            Some(Refusal::ApiServer) => {
                write!(f, "{host} may not be dialled: the API server is there")
            }
            Some(Refusal::Class(class)) => {
                let kind = match class {
                    Private => "private",
                    Internal => "not public",
                    Loopback => "loopback",
                    Public => "public",
                    Never(kind) => kind,
                };
                write!(f, "{host} may not be dialled: its address is {kind}")
            }
        }
    }
}

impl std::error::Error for NotAllowed {}

/// The error of a connection. Foreign texts are made printable, and cut.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NetError {
    /// The host may not be dialled.
    #[error(transparent)]
    NotAllowed(#[from] NotAllowed),
    /// The extra certificate authorities cannot be read.
    #[error("the extra certificate authorities are refused: {reason}")]
    InvalidRoots {
        /// Why.
        reason: String,
    },
    /// The server's certificate is not trusted, so nothing was sent.
    #[error("the server's certificate is not trusted: {why}")]
    CertificateNotTrusted {
        /// What is wrong with it.
        why: String,
    },
    /// The client certificate or its key cannot be used.
    #[error("the client certificate is refused: {reason}")]
    InvalidIdentity {
        /// Why.
        reason: String,
    },
    /// The server wants a client certificate, or refuses the one that it was shown.
    #[error("{why}")]
    ClientCertificateRefused {
        /// What it says.
        why: &'static str,
    },
    /// The proxy makes no connection.
    #[error("the connection through the proxy failed: {detail}")]
    ProxyFailed {
        /// What happened.
        detail: String,
        /// What to do.
        hint: &'static str,
    },
    /// The machine is there, and nothing listens at that port.
    #[error("the connection failed: {detail}")]
    ConnectionRefused {
        /// What happened.
        detail: String,
    },
    /// There is no connection, or it broke.
    #[error("the connection failed: {detail}")]
    Failed {
        /// What happened.
        detail: String,
    },
}

impl NetError {
    /// The error of a proxy that may not be dialled.
    pub(super) fn proxy_refused(refused: &NotAllowed) -> Self {
        Self::ProxyFailed { detail: refused.to_string(), hint: refused.hint() }
    }

    /// The error with a foreign text.
    pub(super) fn failed(detail: &str) -> Self {
        Self::Failed { detail: shown(detail) }
    }
}

/// Makes a foreign text fit for a status.
pub(super) fn shown(text: &str) -> String {
    printable(text).chars().take(MAX_TEXT_CHARS).collect::<String>().trim_end().to_owned()
}
