//! (pure) Why nothing was dialled, or what went wrong after.
#![deny(clippy::disallowed_types, clippy::disallowed_methods)]

use super::policy::AddressClass;
use convoke_core::text::printable;

/// Longer texts from outside are cut.
const TEXT: usize = 300;

/// Why one address may not be dialled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// Addresses of this class are not allowed.
    Class(AddressClass),
    /// The API server is there.
    ApiServer,
}

/// Nothing was dialled, because nothing may be.
///
/// Of a name it says neither to what addresses it leads nor whether it exists: whoever may write a URL would learn the names
/// and addresses of a network that they cannot see. Of an address it says what anybody can see in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NotAllowed {
    host: String,
    /// `None` for a name.
    refusal: Option<Refusal>,
}

impl NotAllowed {
    /// For a host that was judged as it is written.
    #[must_use]
    pub fn new(host: &str, refusal: Refusal) -> Self {
        Self { host: shown(host), refusal: Some(refusal) }
    }

    /// For a name that leads to no address that may be dialled, or to none.
    #[must_use]
    pub fn name(host: &str) -> Self {
        Self { host: shown(host), refusal: None }
    }

    /// Whether only another host, or another flag of the operator, can help: names may change their meaning.
    #[must_use]
    pub const fn is_lasting(&self) -> bool {
        self.refusal.is_some()
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

/// What can go wrong with a connection. Texts from outside are printable and short.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NetError {
    /// Nothing was dialled.
    #[error(transparent)]
    NotAllowed(#[from] NotAllowed),
    /// The extra certificate authorities are none.
    #[error("the extra certificate authorities are refused: {reason}")]
    InvalidRoots {
        /// Why.
        reason: String,
    },
    /// The server's certificate proves nothing to us, so nothing was asked.
    #[error("the server's certificate is not trusted: {why}")]
    CertificateNotTrusted {
        /// What is wrong with it.
        why: String,
    },
    /// No connection, or it broke.
    #[error("the connection failed: {detail}")]
    Failed {
        /// What happened.
        detail: String,
    },
}

impl NetError {
    /// A failure that is described by a text from outside.
    pub(super) fn failed(detail: &str) -> Self {
        Self::Failed { detail: shown(detail) }
    }
}

/// A text from outside, fit for a status.
pub(super) fn shown(text: &str) -> String {
    printable(text).chars().take(TEXT).collect::<String>().trim_end().to_owned()
}
