//! A proxy between one operator and the API server: plain HTTP on loopback to the operator, TLS to the server.
//!
//! It writes down every write, and it stops everything at one of them: at a [`Point`] it freezes, as a process that
//! is killed there would, and says so. What was under way to the server still gets there; no reply comes back.
//!
//! Lists and watches of all namespaces are narrowed to one, so that many operators share one control plane.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::body::Body;
use axum::extract::State;
use axum::http::header::{self, HeaderMap};
use axum::http::{HeaderValue, Method, Request, Response, StatusCode, Uri};
use kube::Config;
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::eventually;

/// Largest body of a write and of its reply.
const MOST_BYTES: usize = 16 << 20;
/// Kinds that are in no namespace.
const CLUSTER_WIDE: &[&str] = &["namespaces", "customresourcedefinitions"];
/// Writes that ask, vote or tell, and change nothing that the operator looks after.
const NOT_COUNTED: &[&str] = &["leases", "events"];

/// What is written: in which step of the scenario, how, and to what.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Target {
    /// The step of the scenario.
    pub step: String,
    /// `post`, `put`, `patch` or `delete`.
    pub verb: String,
    /// `resource[/subresource]/name`; a hash at the end of the name is cut off.
    pub what: String,
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {}", self.step, self.verb, self.what)
    }
}

/// On which side of a write the operator is killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Moment {
    /// The server never sees the request.
    Before,
    /// The server has answered, and the operator never sees the reply.
    After,
    /// As before it; but the request was on its way, and the server gets it when another operator has long done more.
    Late,
}

/// A moment beside one write. Named, not numbered: writes run side by side, so the tenth is another one each time.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Point {
    /// Which write.
    pub target: Target,
    /// Which of those with this target, from 1.
    pub nth: usize,
    /// On which side of it.
    pub moment: Moment,
}

impl fmt::Display for Point {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let moment = match self.moment {
            Moment::Before => "before",
            Moment::After => "after",
            Moment::Late => "late",
        };
        write!(f, "{} {} {moment}", self.target, self.nth)
    }
}

impl FromStr for Point {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let bad = || format!("no point: {text:?}; one is `STEP VERB WHAT NTH before|after|late`");
        let [step, verb, what, nth, moment] = text.split(' ').collect::<Vec<_>>()[..] else {
            return Err(bad());
        };
        let moment = match moment {
            "before" => Moment::Before,
            "after" => Moment::After,
            "late" => Moment::Late,
            _ => return Err(bad()),
        };
        let target = Target { step: step.into(), verb: verb.into(), what: what.into() };
        Ok(Self { target, nth: nth.parse().map_err(|_| bad())?, moment })
    }
}

/// What a write did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Effect {
    /// There was no such object before.
    Created,
    /// The object (or its status) says something else.
    Changed,
    /// It says what it said.
    Nothing,
    /// The object is gone or going.
    Deleted,
    /// The server refused it.
    Refused(u16),
}

/// A write that was answered.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Write {
    /// Which.
    pub target: Target,
    /// Which of those with this target, from 1.
    pub nth: usize,
    /// What it did.
    pub effect: Effect,
}

/// All writes of one namespace, over every start of its operator.
#[derive(Default)]
pub struct Journal {
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    step: String,
    asked: BTreeMap<Target, usize>,
    answered: Vec<Write>,
}

impl Journal {
    /// From now on writes belong to this step.
    pub fn begin(&self, step: &str) {
        self.inner.lock().expect("lock").step = step.to_owned();
    }

    /// Every write that was answered, in the order of the answers.
    pub fn writes(&self) -> Vec<Write> {
        self.inner.lock().expect("lock").answered.clone()
    }

    fn ask(&self, verb: &str, what: &str) -> (Target, usize) {
        let mut inner = self.inner.lock().expect("lock");
        let target = Target { step: inner.step.clone(), verb: verb.into(), what: what.into() };
        let nth = inner.asked.entry(target.clone()).or_default();
        *nth += 1;
        (target, *nth)
    }

    fn answer(&self, write: Write) {
        self.inner.lock().expect("lock").answered.push(write);
    }
}

/// The way to an API server: its address, and a client that trusts it.
#[derive(Clone)]
pub struct Upstream {
    server: String,
    client: reqwest::Client,
}

impl Upstream {
    /// The server of that configuration, without its identity: requests bring their own.
    pub fn new(config: &Config) -> Self {
        let roots = config.root_cert.iter().flatten();
        let roots = roots.map(|der| reqwest::Certificate::from_der(der).expect("a certificate"));
        let client = reqwest::Client::builder()
            .tls_certs_only(roots)
            .no_proxy()
            .http1_only()
            .redirect(reqwest::redirect::Policy::none())
            .build()
            .expect("client");
        Self { server: config.cluster_url.to_string().trim_end_matches('/').to_owned(), client }
    }
}

/// See the module. When it is dropped nothing more passes.
pub struct Proxy {
    port: u16,
    shared: Arc<Shared>,
    server: JoinHandle<()>,
}

struct Shared {
    upstream: Upstream,
    namespace: String,
    journal: Arc<Journal>,
    point: Option<Point>,
    frozen: watch::Sender<bool>,
    in_flight: AtomicUsize,
    /// The request of [`Moment::Late`].
    held: Mutex<Option<(Sent, Target, usize)>>,
}

impl Proxy {
    /// A proxy for an operator that sees only this namespace.
    pub async fn start(
        upstream: &Upstream,
        namespace: &str,
        journal: &Arc<Journal>,
        point: Option<Point>,
    ) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("bind");
        let port = listener.local_addr().expect("address").port();
        let shared = Arc::new(Shared {
            upstream: upstream.clone(),
            namespace: namespace.to_owned(),
            journal: journal.clone(),
            point,
            frozen: watch::Sender::new(false),
            in_flight: AtomicUsize::new(0),
            held: Mutex::new(None),
        });
        let app = axum::Router::new().fallback(pass).with_state(shared.clone());
        let server = tokio::spawn(async move {
            axum::serve(listener, app).await.expect("serve");
        });
        Self { port, shared, server }
    }

    /// Its address, as a kubeconfig names it.
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// Whether the point was reached: nothing passes any more.
    pub fn is_frozen(&self) -> bool {
        *self.shared.frozen.borrow()
    }

    /// Whether a request is held that comes late.
    pub fn holds(&self) -> bool {
        self.shared.held.lock().expect("lock").is_some()
    }

    /// Sends the request that was held.
    pub async fn let_go(&self) {
        let held = self.shared.held.lock().expect("lock").take();
        if let Some((sent, target, nth)) = held {
            self.shared.write(sent, target, nth, None).await;
        }
    }

    /// Waits until the server has answered every write that it was sent.
    pub async fn drained(&self) {
        eventually(Duration::from_secs(30), "the server answers the writes under way", || async {
            let left = self.shared.in_flight.load(Ordering::SeqCst);
            if left == 0 { Ok(()) } else { Err(left) }
        })
        .await;
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.shared.frozen.send_replace(true);
        self.server.abort();
    }
}

async fn pass(State(shared): State<Arc<Shared>>, request: Request<Body>) -> Response<Body> {
    let (parts, body) = request.into_parts();
    let body = axum::body::to_bytes(body, MOST_BYTES).await.expect("a request's body");
    let sent = Sent {
        uri: narrowed(&parts.method, &parts.uri, &shared.namespace),
        method: parts.method,
        headers: parts.headers,
        body: body.to_vec(),
    };
    let reply = match sent.counted(&shared.namespace) {
        Some((verb, what)) => {
            if *shared.frozen.borrow() {
                return std::future::pending().await;
            }
            let (target, nth) = shared.journal.ask(&verb, &what);
            let (write, moment) = (&shared.point, |point: &Point| point.moment);
            let here = write.as_ref().filter(|p| p.target == target && p.nth == nth).map(moment);
            if matches!(here, Some(Moment::Before | Moment::Late)) {
                if here == Some(Moment::Late) {
                    *shared.held.lock().expect("lock") = Some((sent, target, nth));
                }
                shared.frozen.send_replace(true);
                return std::future::pending().await;
            }
            // On its own: when the operator is killed the server still gets it, and it is still written down.
            shared.in_flight.fetch_add(1, Ordering::SeqCst);
            let work = shared.clone();
            let write = tokio::spawn(async move {
                let reply = work.write(sent, target, nth, here).await;
                work.in_flight.fetch_sub(1, Ordering::SeqCst);
                reply
            });
            write.await.unwrap_or_else(|_| refuse())
        }
        None if *shared.frozen.borrow() => return std::future::pending().await,
        None => match shared.send(&sent).await {
            Ok(reply) => {
                let (parts, body) = http::Response::from(reply).into_parts();
                Response::from_parts(parts, Body::new(body))
            }
            Err(_) => refuse(),
        },
    };
    if *shared.frozen.borrow() {
        return std::future::pending().await;
    }
    let mut reply = reply;
    without_hop_by_hop(reply.headers_mut());
    reply
}

impl Shared {
    /// One write: sends it, writes it down, and freezes afterwards if that is the point.
    async fn write(
        &self,
        sent: Sent,
        target: Target,
        nth: usize,
        here: Option<Moment>,
    ) -> Response<Body> {
        let before = if sent.method == Method::PATCH || sent.method == Method::PUT {
            self.content_before(&sent).await
        } else {
            None
        };
        let Ok(reply) = self.send(&sent).await else { return refuse() };
        let (code, headers) = (reply.status(), reply.headers().clone());
        let Ok(body) = reply.bytes().await else { return refuse() };
        let effect = if !code.is_success() {
            Effect::Refused(code.as_u16())
        } else if sent.method == Method::DELETE || is_over(&body) {
            Effect::Deleted
        } else if code == StatusCode::CREATED {
            Effect::Created
        } else if before.is_some() && before == content(&body, sent.is_of_status()) {
            Effect::Nothing
        } else {
            Effect::Changed
        };
        self.journal.answer(Write { target, nth, effect });
        if here == Some(Moment::After) && code.is_success() {
            self.frozen.send_replace(true);
        }
        let mut response = Response::new(Body::from(body));
        *response.status_mut() = code;
        *response.headers_mut() = headers;
        response
    }

    /// What the object that a write is about says right before it.
    async fn content_before(&self, sent: &Sent) -> Option<Value> {
        let path = sent.uri.split(['?']).next().unwrap_or_default();
        let path = path.trim_end_matches("/status");
        let mut headers = HeaderMap::new();
        if let Some(who) = sent.headers.get(header::AUTHORIZATION) {
            headers.insert(header::AUTHORIZATION, who.clone());
        }
        headers.insert(header::ACCEPT, HeaderValue::from_static("application/json"));
        let get = Sent { method: Method::GET, uri: path.to_owned(), headers, body: Vec::new() };
        let reply = self.send(&get).await.ok()?;
        content(&reply.bytes().await.ok()?, sent.is_of_status())
    }

    async fn send(&self, sent: &Sent) -> Result<reqwest::Response, reqwest::Error> {
        let mut headers = sent.headers.clone();
        without_hop_by_hop(&mut headers);
        let url = format!("{}{}", self.upstream.server, sent.uri);
        let request = self.upstream.client.request(sent.method.clone(), url).headers(headers);
        request.body(sent.body.clone()).send().await
    }
}

/// A request as it goes on to the server.
struct Sent {
    method: Method,
    /// Path and query.
    uri: String,
    headers: HeaderMap,
    body: Vec<u8>,
}

impl Sent {
    fn is_of_status(&self) -> bool {
        let path = self.uri.split('?').next().unwrap_or_default();
        path.ends_with("/status")
    }

    /// Verb and `resource[/subresource]/name`, if this is a write of the namespace that counts.
    fn counted(&self, namespace: &str) -> Option<(String, String)> {
        let (path, query) = self.uri.split_once('?').unwrap_or((&self.uri, ""));
        if self.method == Method::GET || query.contains("dryRun=All") {
            return None;
        }
        let (_, rest) = path.split_once(&format!("/namespaces/{namespace}/"))?;
        let mut parts = rest.split('/');
        let resource = parts.next().filter(|resource| !NOT_COUNTED.contains(resource))?;
        let name = match parts.next() {
            Some(name) => name.to_owned(),
            None => serde_json::from_slice::<Value>(&self.body)
                .ok()
                .and_then(|body| Some(body.pointer("/metadata/name")?.as_str()?.to_owned()))
                .unwrap_or_default(),
        };
        let sub = parts.next().map(|sub| format!("/{sub}")).unwrap_or_default();
        let name = without_nonce(unhashed(&name));
        Some((self.method.as_str().to_lowercase(), format!("{resource}{sub}/{name}")))
    }
}

/// A name of a run's Secret without its random part, which is 16 hex digits in its middle: that is another one each time.
fn without_nonce(name: &str) -> String {
    let is_nonce = |part: &&str| part.len() == 16 && part.bytes().all(|b| b.is_ascii_hexdigit());
    let parts: Vec<_> =
        name.split('-').map(|part| if is_nonce(&part) { "NONCE" } else { part }).collect();
    parts.join("-")
}

/// A name without the hash at its end: that is another one in each namespace.
pub fn unhashed(name: &str) -> &str {
    match name.rsplit_once('-') {
        Some((kept, hash))
            if hash.len() >= 8 && hash.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f')) =>
        {
            kept
        }
        _ => name,
    }
}

fn narrowed(method: &Method, uri: &Uri, namespace: &str) -> String {
    let whole = uri.path_and_query().map_or("/", |whole| whole.as_str());
    let parts: Vec<_> = uri.path().trim_matches('/').split('/').collect();
    let (root, resource) = match parts[..] {
        ["apis", group, version, resource] => (format!("/apis/{group}/{version}"), resource),
        ["api", version, resource] => (format!("/api/{version}"), resource),
        _ => return whole.to_owned(),
    };
    if method != Method::GET || CLUSTER_WIDE.contains(&resource) {
        return whole.to_owned();
    }
    let query = uri.query().map(|query| format!("?{query}")).unwrap_or_default();
    format!("{root}/namespaces/{namespace}/{resource}{query}")
}

fn without_hop_by_hop(headers: &mut HeaderMap) {
    for name in
        [header::HOST, header::CONNECTION, header::TRANSFER_ENCODING, header::CONTENT_LENGTH]
    {
        headers.remove(name);
    }
}

/// What an object says: its status, or everything else of it. No version: others write its other half meanwhile.
fn content(body: &[u8], of_status: bool) -> Option<Value> {
    let mut body: Value = serde_json::from_slice(body).ok()?;
    let status = body.as_object_mut()?.remove("status");
    if of_status {
        return Some(status.unwrap_or_default());
    }
    let meta = body.pointer_mut("/metadata")?.as_object_mut()?;
    meta.remove("resourceVersion");
    meta.remove("managedFields");
    Some(body)
}

/// Whether this object goes with this very write: the last finalizer was taken from what is being deleted.
fn is_over(body: &[u8]) -> bool {
    let body: Value = serde_json::from_slice(body).unwrap_or_default();
    let finalizers = body.pointer("/metadata/finalizers").and_then(Value::as_array);
    body.pointer("/metadata/deletionTimestamp").is_some() && finalizers.is_none_or(Vec::is_empty)
}

fn refuse() -> Response<Body> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::BAD_GATEWAY;
    response
}
