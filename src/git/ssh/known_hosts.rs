//! (pure) The keys of servers, from `known_hosts` of a Secret. Its format is OpenSSH's.
#![deny(clippy::disallowed_types, clippy::disallowed_methods)]

use aws_lc_rs::hmac;
use russh::keys::ssh_key::known_hosts::{Entry, HostPatterns, KnownHosts as Lines, Marker};
use russh::keys::{Algorithm, EcdsaCurve, HashAlg, PublicKey};

use crate::git::NoCredentials;
use crate::net::Endpoint;

/// The port of ssh. Host names have no port in `known_hosts` if it is this one.
pub(in crate::git) const PORT: u16 = 22;
/// The kinds of host keys that are supported, the preferred one first.
const ALGORITHMS: [Algorithm; 6] = [
    Algorithm::Ed25519,
    Algorithm::Ecdsa { curve: EcdsaCurve::NistP256 },
    Algorithm::Ecdsa { curve: EcdsaCurve::NistP384 },
    Algorithm::Ecdsa { curve: EcdsaCurve::NistP521 },
    Algorithm::Rsa { hash: Some(HashAlg::Sha512) },
    Algorithm::Rsa { hash: Some(HashAlg::Sha256) },
];

/// The lines of a `known_hosts`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::git) struct KnownHosts(Vec<Entry>);

impl KnownHosts {
    /// Reads a `known_hosts`.
    ///
    /// # Errors
    /// When a line is none of such a file, and when there is no key in it.
    pub fn parse(text: &str) -> Result<Self, NoCredentials> {
        let mut entries = Vec::new();
        for (at, line) in text.lines().enumerate() {
            for entry in Lines::new(line) {
                entries.push(entry.map_err(|_| {
                    let problem = format!("line {} of known_hosts cannot be read", at + 1);
                    NoCredentials::new(problem, "each is as ssh-keyscan prints it")
                })?);
            }
        }
        if entries.is_empty() {
            return Err(NoCredentials::new("known_hosts has no key", "see ssh-keyscan"));
        }
        Ok(Self(entries))
    }

    /// The lines again, without comments.
    pub fn text(&self) -> String {
        self.0.iter().map(|entry| entry.to_string() + "\n").collect()
    }

    /// The keys of one server.
    pub fn of(&self, server: &Endpoint) -> HostKeys {
        let name = listed_name(server);
        let mut keys = HostKeys::default();
        for entry in self.0.iter().filter(|entry| is_for(entry.host_patterns(), &name)) {
            match entry.marker() {
                None => keys.trusted.push(entry.public_key().clone()),
                Some(Marker::Revoked) => keys.revoked.push(entry.public_key().clone()),
                // Certificates of hosts are not supported.
                Some(Marker::CertAuthority) => {}
            }
        }
        keys
    }
}

/// The name of a server in `known_hosts`.
pub(in crate::git) fn listed_name(server: &Endpoint) -> String {
    let Endpoint { host, port } = server;
    if *port == PORT { host.clone() } else { format!("[{host}]:{port}") }
}

fn is_for(patterns: &HostPatterns, name: &str) -> bool {
    match patterns {
        HostPatterns::Patterns(patterns) => {
            let fits =
                |pattern: &str| matches(pattern.to_ascii_lowercase().as_bytes(), name.as_bytes());
            let (refused, taken): (Vec<_>, Vec<_>) =
                patterns.iter().partition(|pattern| pattern.starts_with('!'));
            taken.iter().any(|pattern| fits(pattern))
                && !refused.iter().any(|pattern| fits(&pattern[1..]))
        }
        HostPatterns::HashedName { salt, hash } => {
            let key = hmac::Key::new(hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY, salt);
            hmac::sign(&key, name.as_bytes()).as_ref() == hash
        }
    }
}

/// Whether a text fits a pattern with `*` and `?`.
fn matches(pattern: &[u8], text: &[u8]) -> bool {
    let (mut at, mut place) = (0, 0);
    // Where the last star is, and what it has taken so far.
    let mut star: Option<(usize, usize)> = None;
    while place < text.len() {
        match pattern.get(at) {
            Some(b'*') => {
                star = Some((at, place));
                at += 1;
            }
            Some(one) if *one == b'?' || *one == text[place] => {
                at += 1;
                place += 1;
            }
            _ => match star {
                Some((stood, taken)) => {
                    star = Some((stood, taken + 1));
                    (at, place) = (stood + 1, taken + 1);
                }
                None => return false,
            },
        }
    }
    pattern[at..].iter().all(|one| *one == b'*')
}

/// What is known of one server's keys.
#[derive(Debug, Clone, Default)]
pub(in crate::git) struct HostKeys {
    trusted: Vec<PublicKey>,
    revoked: Vec<PublicKey>,
}

/// Why the key of a server is not trusted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HostKeyProblem {
    /// There is no key of this server in `known_hosts`.
    Unknown,
    /// `known_hosts` has other keys of this server.
    Other,
    /// `known_hosts` says that nobody may trust this key any more.
    Revoked,
}

impl HostKeys {
    /// The kinds of keys that the server may show. A server that has several is asked for one that is known.
    pub fn algorithms(&self) -> Vec<Algorithm> {
        let is_known = |one: &Algorithm| {
            self.trusted.iter().any(|key| match (key.algorithm(), one) {
                (Algorithm::Rsa { .. }, Algorithm::Rsa { .. }) => true,
                (known, one) => known == *one,
            })
        };
        let known: Vec<_> = ALGORITHMS.iter().filter(|one| is_known(one)).cloned().collect();
        if known.is_empty() { ALGORITHMS.to_vec() } else { known }
    }

    /// Checks the key that a server shows.
    ///
    /// # Errors
    /// Why it is not trusted.
    pub fn check(&self, shown: &PublicKey) -> Result<(), HostKeyProblem> {
        let has = |keys: &[PublicKey]| keys.iter().any(|key| key.key_data() == shown.key_data());
        if has(&self.revoked) {
            Err(HostKeyProblem::Revoked)
        } else if has(&self.trusted) {
            Ok(())
        } else if self.trusted.is_empty() {
            Err(HostKeyProblem::Unknown)
        } else {
            Err(HostKeyProblem::Other)
        }
    }
}

#[cfg(test)]
#[path = "tests/known_hosts.rs"]
mod tests;
