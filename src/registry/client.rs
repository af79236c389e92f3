//! Asks a registry: makes requests, signs in when the registry asks for it, and tries again what may pass by itself.
//!
//! Credentials go to the registry of the image and to its token service ([`auth::token_service`]), and nowhere else: a client of
//! [`crate::net`] sends to one origin only, and no redirect is followed but for a blob that is pulled, without credentials.

use std::time::Duration;

use reqwest::header::{
    AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE,
};
use reqwest::{Method, Request, Response, StatusCode, Url};
use tokio::time::Instant;

use super::auth::{self, Challenge, Credentials, Login};
use super::error::{RegistryError, shown, told};
use super::image::Image;
use crate::net::{Client, ClientOptions, Dialler, NetError};

/// How long a request may take that sends no blob.
pub(super) const TIMEOUT: Duration = Duration::from_secs(60);
/// Bytes of the largest answer. Registries repeat no blob here.
const MAX_ANSWER: usize = 1 << 20;
/// The pauses between tries.
const PAUSES: [Duration; 3] =
    [Duration::from_secs(1), Duration::from_secs(2), Duration::from_secs(4)];
/// The longest pause that a registry may ask for.
const MAX_PAUSE: u64 = 60;
/// What the client calls itself.
const AGENT: &str = concat!("convoke/", env!("CARGO_PKG_VERSION"));

/// How a registry is used.
#[derive(Debug, Clone)]
pub struct Options {
    /// Whether it is asked over plain HTTP.
    pub plain_http: bool,
    /// What the client signs in with.
    pub credentials: Credentials,
    /// How long all requests together may take.
    pub total: Duration,
}

/// The client of one image in its registry.
#[derive(Debug)]
pub struct Registry {
    dialler: Dialler,
    image: Image,
    api: Url,
    login: Login,
    roots: Option<Vec<u8>>,
    client: Client,
    /// The value of `Authorization` that the registry takes.
    authorization: Option<HeaderValue>,
    /// What a token is asked for. Only the first one is needed.
    scopes: Vec<String>,
    ends: Instant,
}

/// An answer.
#[derive(Debug)]
pub(super) struct Answer {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: Vec<u8>,
}

impl Registry {
    /// A client for an image. No connection is made.
    ///
    /// # Errors
    /// [`RegistryError::NotUsed`] for an address that may not be dialled, [`RegistryError::Credentials`] for authorities that are none.
    pub fn new(dialler: Dialler, image: Image, options: Options) -> Result<Self, RegistryError> {
        let Options { plain_http, credentials: Credentials { login, roots }, total } = options;
        let what = format!("cannot use {image}");
        let Some(api) = image.api(plain_http) else {
            return Err(RegistryError::NotUsed { what, why: "the registry's host is none".into() });
        };
        let client =
            connect(&dialler, &api, roots.as_deref()).map_err(|error| failed(&what, error))?;
        let ends = Instant::now() + total;
        let scopes = vec![format!("repository:{}:pull,push", image.name())];
        let authorization = None;
        Ok(Self { dialler, image, api, login, roots, client, authorization, scopes, ends })
    }

    /// The same for an image that is only pulled.
    #[must_use]
    pub fn read_only(mut self) -> Self {
        self.scopes = vec![format!("repository:{}:pull", self.image.name())];
        self
    }

    /// Whether another image is in the same registry, asked in the same way.
    pub(super) fn is_at(&self, other: &Self) -> bool {
        self.api == other.api
    }

    /// Whether it is asked over plain HTTP.
    pub(super) fn is_plain_http(&self) -> bool {
        self.api.scheme() == "http"
    }

    /// Blobs of another image of the registry are mounted, too.
    pub(super) fn mounts_from(&mut self, image: &Image) {
        self.scopes.push(format!("repository:{}:pull", image.name()));
    }

    /// The image.
    #[must_use]
    pub const fn image(&self) -> &Image {
        &self.image
    }

    /// A URL of the image: `blobs/…`, `manifests/…`.
    pub(super) fn url(&self, path: &str) -> Result<Url, RegistryError> {
        self.api.join(&format!("{}/{path}", self.image.name())).map_err(|_| {
            RegistryError::NotUsed {
                what: format!("cannot use {}", self.image),
                why: "the name makes no URL".into(),
            }
        })
    }

    /// A URL that the registry has given. It must be on the registry: credentials go there.
    pub(super) fn given(&self, what: &str, from: &Url, text: &str) -> Result<Url, RegistryError> {
        let not_used = |why: String| RegistryError::NotUsed { what: what.to_owned(), why };
        let mut url = from
            .join(text)
            .map_err(|_| not_used("the registry names a place that is no URL".into()))?;
        // What takes off TLS in front of a registry may have told it nothing of it.
        let is_here = (url.host(), url.port()) == (self.api.host(), self.api.port());
        if is_here && self.api.scheme() == "https" {
            let _ = url.set_scheme("https");
        }
        if url.origin() != self.api.origin() {
            let place = shown(&url.origin().ascii_serialization());
            return Err(not_used(format!(
                "the registry sends the client on to {place}, and nothing is sent there"
            )));
        }
        Ok(url)
    }

    /// Sends a request, with what the registry took last. If it asks for credentials, the client signs in and sends it again.
    pub(super) async fn send(
        &mut self,
        what: &str,
        make: impl Fn() -> Request,
    ) -> Result<Answer, RegistryError> {
        let answer = self.execute(what, make()).await?;
        if answer.status != StatusCode::UNAUTHORIZED {
            return Ok(answer);
        }
        let before = self.authorization.take();
        self.authorization = self.sign_in(what, &answer).await?;
        // The same again would get the same answer.
        if self.authorization.is_none() || self.authorization == before {
            return Ok(answer);
        }
        self.execute(what, make()).await
    }

    /// The same, without reading the body of a good answer. Redirects are good ones.
    pub(super) async fn open(
        &mut self,
        what: &str,
        make: impl Fn() -> Request,
    ) -> Result<Response, RegistryError> {
        let response = self.start(what, make()).await?;
        let response = if response.status() == StatusCode::UNAUTHORIZED {
            let asked = self.within(what, TIMEOUT, answer(response)).await?;
            let before = self.authorization.take();
            self.authorization = self.sign_in(what, &asked).await?;
            if self.authorization.is_none() || self.authorization == before {
                return Err(self.refused(what, &asked));
            }
            self.start(what, make()).await?
        } else {
            response
        };
        let status = response.status();
        if status.is_success() || status.is_redirection() {
            return Ok(response);
        }
        let answer = self.within(what, TIMEOUT, answer(response)).await?;
        Err(self.refused(what, &answer))
    }

    /// Sends a request once, and waits for the headers of the answer.
    async fn start(&self, what: &str, request: Request) -> Result<Response, RegistryError> {
        let client = self.client.clone();
        let request = self.authorized(request);
        self.within(what, TIMEOUT, async move { client.execute(request).await }).await
    }

    /// Sends a request without credentials to another place, to which the registry has sent the client on.
    pub(super) async fn elsewhere(
        &self,
        what: &str,
        request: Request,
    ) -> Result<Response, RegistryError> {
        let client = connect(&self.dialler, request.url(), self.roots.as_deref())
            .map_err(|error| failed(what, error))?;
        self.within(what, TIMEOUT, async move { client.execute(request).await }).await
    }

    /// Sends a request once.
    async fn execute(&self, what: &str, request: Request) -> Result<Answer, RegistryError> {
        let client = self.client.clone();
        let request = self.authorized(request);
        self.within(what, TIMEOUT, async move { answer(client.execute(request).await?).await })
            .await
    }

    /// The client and a request with what the registry took last, for a blob.
    pub(super) fn prepared(&self, request: Request) -> (Client, Request) {
        (self.client.clone(), self.authorized(request))
    }

    fn authorized(&self, mut request: Request) -> Request {
        if let Some(value) = &self.authorization {
            request.headers_mut().insert(AUTHORIZATION, value.clone());
        }
        request
    }

    /// Waits for something, and not longer than all may take together.
    pub(super) async fn within<T>(
        &self,
        what: &str,
        limit: Duration,
        work: impl Future<Output = Result<T, NetError>>,
    ) -> Result<T, RegistryError> {
        let ends = Instant::now().checked_add(limit).map_or(self.ends, |ends| ends.min(self.ends));
        match tokio::time::timeout_at(ends, work).await {
            Ok(done) => done.map_err(|error| failed(what, error)),
            Err(_) => Err(unreachable(what, "the time is over before it has answered")),
        }
    }

    /// What the registry wants in `Authorization`. `None` when there is nothing to sign in with.
    async fn sign_in(
        &mut self,
        what: &str,
        asked: &Answer,
    ) -> Result<Option<HeaderValue>, RegistryError> {
        let values = asked.headers.get_all(WWW_AUTHENTICATE).iter();
        let (realm, service) = match auth::challenge(values.filter_map(|value| value.to_str().ok()))
        {
            Some(Challenge::Bearer { realm, service }) => (realm, service),
            Some(Challenge::Basic) => return Ok(self.login.basic()),
            None => return Ok(None),
        };
        let not_used = |why: String| RegistryError::NotUsed { what: what.to_owned(), why };
        let url = auth::token_service(&self.api, &realm).map_err(not_used)?;
        let place = shown(&url.origin().ascii_serialization());
        let what = format!("{what}: cannot get a token from {place}");
        let client = connect(&self.dialler, &url, self.roots.as_deref())
            .map_err(|error| failed(&what, error))?;
        let answer = loop {
            let request = self.question(url.clone(), service.as_deref());
            let answer = self
                .within(&what, TIMEOUT, async { answer(client.execute(request).await?).await })
                .await?;
            // It may refuse all for what is not needed.
            if !answer.status.is_client_error() || self.scopes.len() < 2 {
                break answer;
            }
            self.scopes.truncate(1);
        };
        if !answer.status.is_success() {
            return Err(self.refused(&what, &answer));
        }
        let not_used =
            || RegistryError::NotUsed { what, why: "there is none in its answer".into() };
        auth::token(&answer.body).map(Some).ok_or_else(not_used)
    }

    /// What a token service is asked.
    fn question(&self, mut url: Url, service: Option<&str>) -> Request {
        let service = service.into_iter().map(|service| ("service", service));
        if let Login::IdentityToken(token) = &self.login {
            let mut form = Url::clone(&self.api);
            let scopes = self.scopes.join(" ");
            let about = service.chain([("scope", scopes.as_str())]);
            form.query_pairs_mut().clear().extend_pairs(about).extend_pairs([
                ("grant_type", "refresh_token"),
                ("client_id", "convoke"),
                ("refresh_token", token),
            ]);
            let mut request = Request::new(Method::POST, url);
            let form_type = HeaderValue::from_static("application/x-www-form-urlencoded");
            request.headers_mut().insert(CONTENT_TYPE, form_type);
            *request.body_mut() = form.query().map(|form| form.to_owned().into());
            return request;
        }
        let scopes = self.scopes.iter().map(|scope| ("scope", scope.as_str()));
        url.query_pairs_mut().extend_pairs(service.chain(scopes));
        let mut request = Request::new(Method::GET, url);
        if let Some(value) = self.login.basic() {
            request.headers_mut().insert(AUTHORIZATION, value);
        }
        request
    }

    /// The error that an answer means, which is not the wanted one.
    pub(super) fn refused(&self, what: &str, answer: &Answer) -> RegistryError {
        let Answer { status, headers, body } = answer;
        let is_text = headers
            .get(CONTENT_TYPE)
            .is_some_and(|value| value.as_bytes().starts_with(b"text/plain"));
        // A server may repeat what it was sent.
        let token =
            self.authorization.as_ref().and_then(|value| value.to_str().ok()?.split(' ').nth(1));
        let hide = |text: String| auth::hidden(self.login.hidden(text), token.unwrap_or_default());
        let mut said = told(body, is_text, hide);
        let code = status.as_u16();
        if *status == StatusCode::TOO_MANY_REQUESTS || status.is_server_error() {
            let after =
                headers.get(RETRY_AFTER).and_then(|value| value.to_str().ok()?.parse().ok());
            let why = format!("the server answers HTTP {code}{said}");
            return RegistryError::Unreachable { what: what.to_owned(), why, after };
        }
        if status.is_redirection() {
            let to = headers.get(reqwest::header::LOCATION).and_then(|value| value.to_str().ok());
            let to = to.and_then(|text| self.api.join(text).ok());
            let to =
                to.map_or_else(|| "elsewhere".into(), |url| url.origin().ascii_serialization());
            said.push_str(&format!(
                " and sends the client to {}, which it does not follow",
                shown(&to)
            ));
        }
        if *status == StatusCode::UNAUTHORIZED {
            said.push_str(match self.login {
                Login::Anonymous => " (it asks for credentials, and there are none for it)",
                _ => " (it does not take these credentials)",
            });
        }
        RegistryError::Refused { what: what.to_owned(), status: code, said }
    }

    /// Whether something that has failed is tried again. Waits until then.
    pub(super) async fn again(&self, tried: &mut usize, error: &RegistryError) -> bool {
        let RegistryError::Unreachable { after, .. } = error else { return false };
        let Some(pause) = PAUSES.get(*tried) else { return false };
        *tried += 1;
        let pause = (*pause).max(Duration::from_secs(after.unwrap_or(0).min(MAX_PAUSE)));
        if Instant::now() + pause >= self.ends {
            return false;
        }
        tokio::time::sleep(pause).await;
        true
    }
}

/// A client for the origin of a URL.
fn connect(dialler: &Dialler, url: &Url, roots: Option<&[u8]>) -> Result<Client, NetError> {
    dialler.client(url, ClientOptions { user_agent: AGENT, roots, identity: None, proxy: None })
}

/// All of an answer.
pub(super) async fn answer(mut response: Response) -> Result<Answer, NetError> {
    let mut body = Vec::new();
    while let Some(piece) = response.chunk().await? {
        let room = MAX_ANSWER - body.len();
        body.extend_from_slice(&piece[..piece.len().min(room)]);
        if piece.len() > room {
            break;
        }
    }
    Ok(Answer { status: response.status(), headers: response.headers().clone(), body })
}

/// The error for a registry that may answer later.
pub(super) fn unreachable(what: &str, why: impl Into<String>) -> RegistryError {
    RegistryError::Unreachable { what: what.to_owned(), why: why.into(), after: None }
}

/// The error for a connection that failed.
pub(super) fn failed(what: &str, error: NetError) -> RegistryError {
    let (what, why) = (what.to_owned(), error.to_string());
    match error {
        NetError::InvalidRoots { reason } => {
            RegistryError::Credentials { why: format!("ca.crt: {reason}") }
        }
        // As rustls says that the other side speaks no TLS.
        NetError::Failed { .. } if why.contains("InvalidContentType") => {
            let hint = "does it speak plain http? output.insecure: true is for that";
            RegistryError::NoTls { what, why: format!("{why} ({hint})") }
        }
        NetError::CertificateNotTrusted { .. } => RegistryError::NoTls { what, why },
        NetError::Failed { .. }
        | NetError::ConnectionRefused { .. }
        | NetError::ProxyFailed { .. } => unreachable(&what, why),
        NetError::NotAllowed(_)
        | NetError::InvalidIdentity { .. }
        | NetError::ClientCertificateRefused { .. } => RegistryError::NotUsed { what, why },
    }
}
