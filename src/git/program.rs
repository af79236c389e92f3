//! (pure) The credentials for a Git server, as files for the program `git`: for the pods of builds, which clone with it.
#![deny(clippy::disallowed_types, clippy::disallowed_methods)]

use std::collections::BTreeMap;

use russh::keys::ssh_key::LineEnding;

use super::credentials::{Credentials, NoCredentials, origin};
use crate::cluster::hidden::Hidden;

/// The configuration: `GIT_CONFIG_GLOBAL`. It is always there.
pub const CONFIG: &str = "gitconfig";
/// Certificates of authorities that are trusted besides those of the system.
const AUTHORITIES: &str = "ca.crt";
/// A client certificate and its key, in one file.
const CLIENT: &str = "client.pem";
/// A private key of ssh, without a passphrase.
const IDENTITY: &str = "identity";
/// The keys of ssh servers.
const KNOWN_HOSTS: &str = "known_hosts";

/// Files by name.
pub type Files = BTreeMap<&'static str, Hidden<String>>;

impl Credentials {
    /// The files with which `git` connects as these credentials do. They are for the origin of this URL: `git` sends them to no other.
    ///
    /// # Errors
    /// When a value cannot be written into such a file.
    pub fn files(&self, url: &str) -> Result<Files, NoCredentials> {
        let mut files = Files::from([(CONFIG, Hidden::new(self.config(url)?))]);
        for (name, pem) in [(AUTHORITIES, &self.roots), (CLIENT, &self.identity)] {
            if let Some(pem) = pem {
                let text = String::from_utf8(pem.clone()).map_err(|_| {
                    NoCredentials::new(format!("{name} is no text"), "certificates are in PEM")
                })?;
                files.insert(name, Hidden::new(text));
            }
        }
        if let Some(ssh) = &self.ssh {
            let key = ssh.key.to_openssh(LineEnding::LF).map_err(|_| {
                NoCredentials::new("identity cannot be written", "use a key of ssh-keygen")
            })?;
            files.insert(IDENTITY, Hidden::new(key.as_str().to_owned()));
            files.insert(KNOWN_HOSTS, Hidden::new(ssh.known_hosts.text()));
        }
        Ok(files)
    }

    fn config(&self, url: &str) -> Result<String, NoCredentials> {
        // A redirect could take the header to another server.
        let mut config = "[http]\n\tfollowRedirects = false\n".to_owned();
        if let Some(proxy) = &self.proxy {
            config += &format!("\tproxy = {}\n", quoted(&proxy.with_user())?);
        }
        if let Some(value) = &self.authorization {
            let origin = origin(url).ok_or_else(|| NoCredentials {
                problem: "the URL of the repository has no host".to_owned(),
                hint: None,
            })?;
            let value = String::from_utf8_lossy(value.as_bytes());
            let header = quoted(&format!("Authorization: {value}"))?;
            config += &format!("[http {}]\n\textraHeader = {header}\n", quoted(&origin)?);
        }
        Ok(config)
    }
}

/// A value as a configuration of Git can hold it.
fn quoted(value: &str) -> Result<String, NoCredentials> {
    if value.contains(['\n', '\r', '\0']) {
        return Err(NoCredentials { problem: "a value has a line break".to_owned(), hint: None });
    }
    Ok(format!("\"{}\"", value.replace('\\', "\\\\").replace('"', "\\\"")))
}

#[cfg(test)]
#[path = "tests/program.rs"]
mod tests;
