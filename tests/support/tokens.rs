//! A token service of a registry, as the specification of distribution has it: it signs tokens that a real registry takes.
#![allow(dead_code, reason = "every test crate uses its own part")]
#![allow(clippy::expect_used, clippy::panic, clippy::disallowed_types)]

use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex};

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair};
use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::Response;
use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use serde_json::{Value, json};

/// What the registry is called there, and who signs.
pub const SERVICE: &str = "registry.test";
/// Seconds that a registry takes a token after its end.
const LEEWAY: i64 = 60;

/// What was asked: service and scopes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Asked {
    pub service: String,
    pub scopes: Vec<String>,
    /// Whether it had the right password.
    pub is_known: bool,
}

struct Inner {
    key: EcdsaKeyPair,
    certificate: String,
    authorization: String,
    asked: Mutex<Vec<Asked>>,
    may_push: AtomicBool,
    lifetime: AtomicI64,
}

/// The service. Ends when dropped.
pub struct TokenService {
    inner: Arc<Inner>,
    pem: String,
    realm: String,
    task: tokio::task::JoinHandle<()>,
}

impl TokenService {
    /// A service that knows this user. Its tokens are for what is asked, and live an hour.
    pub async fn start(user: &str, password: &str) -> Self {
        let key = rcgen::KeyPair::generate().expect("a key");
        let params = rcgen::CertificateParams::new(vec!["tokens.test".into()]).expect("names");
        let certificate = params.self_signed(&key).expect("a certificate");
        let signer =
            EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &key.serialize_der());
        let inner = Arc::new(Inner {
            key: signer.expect("the same key"),
            certificate: STANDARD.encode(certificate.der()),
            authorization: format!("Basic {}", STANDARD.encode(format!("{user}:{password}"))),
            asked: Mutex::default(),
            may_push: AtomicBool::new(true),
            lifetime: AtomicI64::new(3600),
        });
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let realm = format!("http://{}/token", listener.local_addr().expect("an address"));
        let app = Router::new().fallback(answer).with_state(inner.clone());
        let task = tokio::spawn(async move {
            axum::serve(listener, app).await.expect("a server");
        });
        Self { inner, pem: certificate.pem(), realm, task }
    }

    /// Its URL, and the certificate of its key in PEM: what a registry needs.
    pub fn for_registry(&self) -> (&str, &str) {
        (&self.realm, &self.pem)
    }

    /// What was asked so far.
    pub fn asked(&self) -> Vec<Asked> {
        self.inner.asked.lock().expect("the list").clone()
    }

    /// Whether the user may push.
    pub fn let_push(&self, may: bool) {
        self.inner.may_push.store(may, Ordering::Relaxed);
    }

    /// How long the registry takes the tokens, in seconds.
    pub fn let_live(&self, seconds: i64) {
        self.inner.lifetime.store(seconds, Ordering::Relaxed);
    }
}

impl Drop for TokenService {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn answer(State(inner): State<Arc<Inner>>, request: Request) -> Response {
    let url = reqwest::Url::parse(&format!("http://tokens.test{}", request.uri())).expect("a URL");
    let all = |name: &str| {
        let found = url.query_pairs().filter(|(key, _)| key == name);
        found.map(|(_, value)| value.into_owned()).collect::<Vec<_>>()
    };
    let given = request.headers().get("authorization").and_then(|value| value.to_str().ok());
    let asked = Asked {
        service: all("service").concat(),
        scopes: all("scope"),
        is_known: given == Some(inner.authorization.as_str()),
    };
    let number = {
        let mut list = inner.asked.lock().expect("the list");
        list.push(asked.clone());
        list.len()
    };
    let (status, body) = if asked.is_known {
        (200_u16, json!({"token": inner.token(number, &asked), "expires_in": 60}))
    } else {
        (401, json!({"errors": [{"code": "UNAUTHORIZED", "message": "no such user"}]}))
    };
    let response = Response::builder().status(status).header("content-type", "application/json");
    response.body(Body::from(body.to_string())).expect("an answer")
}

impl Inner {
    fn token(&self, number: usize, asked: &Asked) -> String {
        let access: Vec<_> = asked.scopes.iter().filter_map(|scope| self.access(scope)).collect();
        let now = jiff::Timestamp::now().as_second();
        let ends = now + self.lifetime.load(Ordering::Relaxed) - LEEWAY;
        let header = json!({"typ": "JWT", "alg": "ES256", "x5c": [self.certificate]});
        let claims = json!({
            "iss": SERVICE, "aud": asked.service, "sub": "user", "jti": number.to_string(),
            "nbf": now - 2 * LEEWAY, "iat": now, "exp": ends, "access": access,
        });
        let part = |part: &Value| URL_SAFE_NO_PAD.encode(part.to_string());
        let signed = format!("{}.{}", part(&header), part(&claims));
        let signature = self.key.sign(&SystemRandom::new(), signed.as_bytes()).expect("signed");
        format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature.as_ref()))
    }

    /// What a scope gives: `repository:team/app:pull,push`.
    fn access(&self, scope: &str) -> Option<Value> {
        let [kind, name, actions]: [&str; 3] =
            scope.split(':').collect::<Vec<_>>().try_into().ok()?;
        let may = |action: &&str| *action != "push" || self.may_push.load(Ordering::Relaxed);
        let actions: Vec<_> = actions.split(',').filter(may).collect();
        Some(json!({"type": kind, "name": name, "actions": actions}))
    }
}
