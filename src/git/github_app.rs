//! Tokens of a GitHub App: a JSON Web Token that its key signs is exchanged for a token of one installation.

use std::fmt;
use std::time::Duration;

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::rsa::KeyPair;
use aws_lc_rs::signature::RSA_PKCS1_SHA256;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jiff::{SignedDuration, Timestamp};
use reqwest::header::{ACCEPT, AUTHORIZATION, HeaderValue};
use reqwest::{Method, Request, StatusCode, Url};
use rustls::pki_types::PrivateKeyDer;
use rustls::pki_types::pem::PemObject;
use serde::Deserialize;
use std::sync::Arc;

use super::error::printable;
use super::{Credentials, NoCredentials};
use crate::net::{Dialler, NetError};

/// GitHub's API, unless the Secret names another one.
const API: &str = "https://api.github.com";
/// How long a request may take.
const TIMEOUT: Duration = Duration::from_secs(15);
/// Bytes of the largest answer. GitHub's have about one kibibyte.
const MAX_ANSWER_BYTES: usize = 256 * 1024;
/// How long the JSON Web Token is valid. GitHub allows ten minutes.
const MAX_CLAIM: SignedDuration = SignedDuration::from_mins(9);
/// How far the clocks may differ.
const MAX_SKEW: SignedDuration = SignedDuration::from_mins(1);
/// How long before its end a token is replaced.
const MARGIN: SignedDuration = SignedDuration::from_mins(5);

/// An installation of a GitHub App, and the key of the App. Nothing prints the key.
#[derive(Clone)]
pub struct GitHubApp {
    id: String,
    installation: String,
    key: Arc<KeyPair>,
    /// The key as it was written, to compare.
    pem: Arc<[u8]>,
    api: Url,
}

impl PartialEq for GitHubApp {
    fn eq(&self, other: &Self) -> bool {
        let Self { id, installation, key: _, pem, api } = self;
        (id, installation, pem, api) == (&other.id, &other.installation, &other.pem, &other.api)
    }
}

impl Eq for GitHubApp {}

impl fmt::Debug for GitHubApp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("GitHubApp(not shown)")
    }
}

/// A token of an installation.
#[derive(Clone)]
pub struct AppToken {
    /// The token.
    pub(super) token: String,
    /// When it must be replaced.
    ends: Timestamp,
}

impl fmt::Debug for AppToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AppToken(not shown)")
    }
}

impl AppToken {
    /// The token itself.
    #[must_use]
    pub(crate) fn into_text(self) -> String {
        self.token
    }

    /// Whether it can be used for some minutes.
    #[must_use]
    pub fn is_fresh(&self) -> bool {
        Timestamp::now() < self.ends
    }
}

/// Why there is no token. The text is for people, and holds no secret.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NoToken {
    /// The API cannot be asked.
    #[error("the API of the GitHub App cannot be asked: {0}")]
    Unreachable(NetError),
    /// The API refuses.
    #[error("{host} gives the GitHub App no token (HTTP {status}){said}")]
    Refused {
        /// Whose API.
        host: String,
        /// The HTTP status.
        status: u16,
        /// What it says, after a colon.
        said: String,
    },
    /// The API answers something else.
    #[error("the API of the GitHub App answers with no token: {0}")]
    NotUnderstood(&'static str),
}

impl NoToken {
    /// What to do.
    #[must_use]
    pub const fn hint(&self) -> Option<&'static str> {
        match self {
            Self::Refused { status: 401, .. } => Some(
                "githubAppID or githubAppPrivateKey of the Secret is wrong, or the clock of the operator's node is",
            ),
            Self::Refused { status: 404, .. } => Some(
                "githubAppInstallationID is the number at the end of the page where the App is installed; its API is githubAppBaseURL",
            ),
            Self::Refused { status: 403, .. } => {
                Some("the installation may be suspended, or may not read contents of repositories")
            }
            _ => None,
        }
    }
}

/// What GitHub answers.
#[derive(Deserialize)]
struct Answer {
    token: String,
    expires_at: Timestamp,
}

/// What GitHub answers when it refuses.
#[derive(Default, Deserialize)]
struct Refusal {
    #[serde(default)]
    message: String,
}

impl GitHubApp {
    /// An installation of an App from the values of a Secret.
    ///
    /// # Errors
    /// When an id is no number, the key is no RSA key in PEM, or the base URL is none.
    pub fn new(
        id: &str,
        installation: &str,
        pem: &[u8],
        base_url: Option<&str>,
    ) -> Result<Self, NoCredentials> {
        for (key, value) in [("githubAppID", id), ("githubAppInstallationID", installation)] {
            let is_number = !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit());
            // An App has a client id, too, which GitHub takes as well.
            let is_client = key == "githubAppID"
                && value.starts_with("Iv")
                && value.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'.');
            if (!is_number && !is_client) || value.len() > 40 {
                let problem = format!("{key} is no number");
                return Err(NoCredentials::new(problem, "write it with quotes and no line break"));
            }
        }
        let key = key_of(pem).ok_or_else(|| {
            NoCredentials::new(
                "githubAppPrivateKey is no RSA key in PEM",
                "it is the file that GitHub's page of the App generates: --from-file=githubAppPrivateKey=FILE",
            )
        })?;
        let api = Url::parse(base_url.unwrap_or(API))
            .ok()
            .filter(|url| matches!(url.scheme(), "https" | "http") && url.host_str().is_some())
            .filter(|url| url.username().is_empty() && url.password().is_none())
            .filter(|url| (url.query(), url.fragment()) == (None, None))
            .ok_or_else(|| {
                NoCredentials::new(
                    "githubAppBaseURL is no URL of an API",
                    "for GitHub Enterprise Server it is https://HOST/api/v3",
                )
            })?;
        let (id, installation) = (id.to_owned(), installation.to_owned());
        Ok(Self { id, installation, key: Arc::new(key), pem: pem.into(), api })
    }

    /// Asks for a token, with the authorities, the client certificate and the proxy of these credentials.
    ///
    /// # Errors
    /// [`NoToken`].
    pub async fn token(
        &self,
        dialler: &Dialler,
        credentials: &Credentials,
    ) -> Result<AppToken, NoToken> {
        let path = format!("app/installations/{}/access_tokens", self.installation);
        let base = self.api.as_str().trim_end_matches('/');
        let url = Url::parse(&format!("{base}/{path}"))
            .map_err(|_| NoToken::NotUnderstood("its URL is none"))?;
        if url.scheme() == "http" && !dialler.allows_plain_http() {
            return Err(NoToken::NotUnderstood("plain http is not allowed"));
        }
        let asked = tokio::time::timeout(TIMEOUT, self.ask(url, dialler, credentials)).await;
        asked.unwrap_or(Err(NoToken::NotUnderstood("it takes too long")))
    }

    async fn ask(
        &self,
        url: Url,
        dialler: &Dialler,
        credentials: &Credentials,
    ) -> Result<AppToken, NoToken> {
        let user_agent = concat!("convoke/", env!("CARGO_PKG_VERSION"));
        let options = credentials.client_options(user_agent);
        let client = dialler.client(&url, options).map_err(NoToken::Unreachable)?;
        let host = url.host_str().unwrap_or_default().to_owned();
        let claim = self.claim(Timestamp::now()).ok_or(NoToken::NotUnderstood("the key fails"))?;
        let mut bearer = HeaderValue::try_from(format!("Bearer {claim}"))
            .map_err(|_| NoToken::NotUnderstood("the key fails"))?;
        bearer.set_sensitive(true);
        let mut request = Request::new(Method::POST, url);
        let headers = request.headers_mut();
        headers.insert(AUTHORIZATION, bearer);
        headers.insert(ACCEPT, HeaderValue::from_static("application/vnd.github+json"));
        headers.insert("x-github-api-version", HeaderValue::from_static("2022-11-28"));
        let mut response = client.execute(request).await.map_err(NoToken::Unreachable)?;
        let status = response.status();
        let mut body = Vec::new();
        while let Some(chunk) =
            response.chunk().await.map_err(|error| NoToken::Unreachable(error.into()))?
        {
            if body.len() + chunk.len() > MAX_ANSWER_BYTES {
                return Err(NoToken::NotUnderstood("its answer is too long"));
            }
            body.extend_from_slice(&chunk);
        }
        if status != StatusCode::CREATED {
            let refusal: Refusal = serde_json::from_slice(&body).unwrap_or_default();
            let said = printable(&refusal.message);
            let said = if said.is_empty() { said } else { format!(": {said}") };
            return Err(NoToken::Refused { host, status: status.as_u16(), said });
        }
        let Answer { token, expires_at } = serde_json::from_slice(&body)
            .map_err(|_| NoToken::NotUnderstood("its answer is no JSON with a token"))?;
        if token.is_empty() || !token.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(NoToken::NotUnderstood("its token has odd characters"));
        }
        Ok(AppToken { token, ends: expires_at.saturating_sub(MARGIN).unwrap_or(expires_at) })
    }

    /// The JSON Web Token (RFC 7519) that says who we are, signed with RS256.
    fn claim(&self, now: Timestamp) -> Option<String> {
        let issued = now.checked_sub(MAX_SKEW).ok()?.as_second();
        let expires = now.checked_add(MAX_CLAIM).ok()?.as_second();
        let header = URL_SAFE_NO_PAD.encode(br#"{"alg":"RS256","typ":"JWT"}"#);
        let claims = serde_json::json!({"iat": issued, "exp": expires, "iss": self.id});
        let signed = format!("{header}.{}", URL_SAFE_NO_PAD.encode(claims.to_string()));
        let mut signature = vec![0; self.key.public_modulus_len()];
        let random = SystemRandom::new();
        self.key.sign(&RSA_PKCS1_SHA256, &random, signed.as_bytes(), &mut signature).ok()?;
        Some(format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature)))
    }
}

/// An RSA key from PEM.
fn key_of(pem: &[u8]) -> Option<KeyPair> {
    match PrivateKeyDer::from_pem_slice(pem).ok()? {
        PrivateKeyDer::Pkcs1(der) => KeyPair::from_der(der.secret_pkcs1_der()).ok(),
        PrivateKeyDer::Pkcs8(der) => KeyPair::from_pkcs8(der.secret_pkcs8_der()).ok(),
        _ => None,
    }
}
