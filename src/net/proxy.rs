//! (pure) An HTTP proxy, and who we are to it.
#![deny(clippy::disallowed_types, clippy::disallowed_methods)]

use std::fmt;

use reqwest::Url;
use sha2::{Digest, Sha256};

use super::policy::Endpoint;

/// An HTTP proxy. Nothing prints its password.
#[derive(Clone, PartialEq, Eq)]
pub struct ProxyServer {
    url: Url,
    user: Option<(String, String)>,
}

impl fmt::Debug for ProxyServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ProxyServer(not shown)")
    }
}

impl ProxyServer {
    /// A proxy from its address, `http://HOST:PORT` or `https://HOST:PORT`, and a user with a password.
    ///
    /// # Errors
    /// What is wrong with the address. Nothing of it is quoted: it may hold a password.
    pub fn new(address: &str, user: Option<(String, String)>) -> Result<Self, &'static str> {
        let url = Url::parse(address).map_err(|_| "it is no URL")?;
        if !matches!(url.scheme(), "http" | "https") {
            return Err("only http:// and https:// proxies are supported");
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err("it holds a user or a password: they have keys of their own");
        }
        let is_bare = matches!(url.path(), "" | "/")
            && (url.query(), url.fragment()) == (None, None)
            && url.host_str().is_some_and(|host| !host.is_empty());
        if is_bare {
            Ok(Self { url, user })
        } else {
            Err("it is more than a scheme, a host and a port")
        }
    }

    /// What is dialled.
    #[must_use]
    pub fn endpoint(&self) -> Endpoint {
        let host = self.url.host_str().unwrap_or_default();
        Endpoint::new(host, self.url.port_or_known_default().unwrap_or_default())
    }

    /// Whether it is asked without TLS.
    #[must_use]
    pub fn is_plain(&self) -> bool {
        self.url.scheme() == "http"
    }

    /// A digest of the address, the user and the password.
    pub(crate) fn digest(&self) -> [u8; 32] {
        let (user, password) = self.user.as_ref().map_or(("", ""), |(user, word)| (user, word));
        let mut all = Sha256::new();
        for part in [self.url.as_str(), user, password] {
            all.update((part.len() as u64).to_be_bytes());
            all.update(part);
        }
        all.finalize().into()
    }

    /// The address with the user and the password in it, for a file that nobody else reads.
    #[must_use]
    pub fn with_user(&self) -> String {
        let mut url = self.url.clone();
        if let Some((user, password)) = &self.user {
            // The two setters leave `%` as it is. They fail for URLs without a host only.
            let _ = url.set_username(&user.replace('%', "%25"));
            let _ = url.set_password(Some(&password.replace('%', "%25")));
        }
        url.into()
    }

    /// The same for the HTTP client.
    pub(super) fn for_client(&self) -> reqwest::Result<reqwest::Proxy> {
        let proxy = reqwest::Proxy::all(self.url.clone())?;
        Ok(match &self.user {
            Some((user, password)) => proxy.basic_auth(user, password),
            None => proxy,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn g2_addresses_of_proxies_are_bare_and_not_quoted() {
        for good in ["http://proxy:3128", "https://proxy.example.com", "http://10.0.0.1:8080/"] {
            assert!(ProxyServer::new(good, None).is_ok(), "{good}");
        }
        for bad in [
            "proxy:3128",
            "socks5://proxy:1080",
            "http://u:canary@proxy:3128",
            "http://proxy:3128/path",
            "http://proxy:3128?canary",
            "",
        ] {
            let why = ProxyServer::new(bad, None).expect_err(bad);
            assert!(!why.contains("canary"), "{why}");
        }
        let user = Some(("u%41".to_owned(), "p@:/%41\"".to_owned()));
        let proxy = ProxyServer::new("http://proxy:3128", user).expect("a proxy");
        assert_eq!(proxy.with_user(), "http://u%2541:p%40%3A%2F%2541%22@proxy:3128/");
        let user = Some(("u".to_owned(), "canary".to_owned()));
        let proxy = ProxyServer::new("http://Proxy:3128", user).expect("a proxy");
        assert!(!format!("{proxy:?}").contains("canary"));
        assert_eq!(proxy.endpoint(), Endpoint::new("proxy", 3128));
    }
}
