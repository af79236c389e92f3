//! A server that does what GitHub documents for `POST /app/installations/ID/access_tokens`.
#![allow(dead_code, reason = "every test crate uses its own part")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::disallowed_types,
    clippy::disallowed_methods
)]

use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Arc, Mutex};

use aws_lc_rs::encoding::{AsDer, Pkcs8V1Der};
use aws_lc_rs::rsa::{KeyPair, KeySize};
use aws_lc_rs::signature::{KeyPair as _, RSA_PKCS1_2048_8192_SHA256, UnparsedPublicKey};
use axum::extract::{Path as UrlPath, State};
use axum::http::{HeaderMap, StatusCode};
use axum::routing::post;
use axum::{Json, Router};
use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use serde_json::{Value, json};

/// The API.
pub struct GitHub {
    /// What `githubAppBaseURL` is.
    pub url: String,
    /// How many tokens were given.
    pub given: Arc<Mutex<usize>>,
    task: tokio::task::JoinHandle<()>,
}

#[derive(Clone)]
struct Known {
    public: Vec<u8>,
    given: Arc<Mutex<usize>>,
    /// How long tokens are valid, in seconds.
    lifetime: i64,
}

/// The claims of a JSON Web Token, if the key of the App has signed it.
fn claims(headers: &HeaderMap, public: &[u8]) -> Option<Value> {
    let bearer = headers.get("authorization")?.to_str().ok()?.strip_prefix("Bearer ")?;
    let (signed, signature) = bearer.rsplit_once('.')?;
    let signature = URL_SAFE_NO_PAD.decode(signature).ok()?;
    let key = UnparsedPublicKey::new(&RSA_PKCS1_2048_8192_SHA256, public);
    key.verify(signed.as_bytes(), &signature).ok()?;
    let (header, claims) = signed.split_once('.')?;
    let part = |text: &str| -> Option<Value> {
        serde_json::from_slice(&URL_SAFE_NO_PAD.decode(text).ok()?).ok()
    };
    (part(header)?["alg"] == "RS256").then(|| part(claims))?
}

async fn answer(
    State(known): State<Known>,
    UrlPath(installation): UrlPath<String>,
    headers: HeaderMap,
) -> (StatusCode, Json<Value>) {
    let refused = |status, message: &str| (status, Json(json!({"message": message})));
    let Some(claims) = claims(&headers, &known.public) else {
        return refused(StatusCode::UNAUTHORIZED, "A JSON web token could not be decoded");
    };
    let now = jiff::Timestamp::now().as_second();
    let (issued, expires) = (claims["iat"].as_i64().unwrap(), claims["exp"].as_i64().unwrap());
    if claims["iss"] != "1234" || issued > now || expires <= now || expires - issued > 600 {
        return refused(
            StatusCode::UNAUTHORIZED,
            "'Expiration time' claim ('exp') is too far in the future",
        );
    }
    if headers.get("user-agent").is_none() || headers["accept"] != "application/vnd.github+json" {
        return refused(StatusCode::FORBIDDEN, "Request forbidden by administrative rules.");
    }
    if installation != "77" {
        return refused(StatusCode::NOT_FOUND, "Not Found");
    }
    let mut given = known.given.lock().unwrap();
    *given += 1;
    let ends = jiff::Timestamp::from_second(now + known.lifetime).unwrap();
    let body = json!({"token": format!("ghs_canary{given}"), "expires_at": ends.to_string(), "permissions": {}});
    (StatusCode::CREATED, Json(body))
}

impl GitHub {
    /// The API for the App 1234 with this key and its installation 77. Its tokens are valid for some seconds.
    pub async fn start(key: &KeyPair, lifetime: i64) -> Self {
        Self::start_on(Ipv4Addr::LOCALHOST.into(), key, lifetime).await
    }

    /// The same on another address of this machine.
    pub async fn start_on(address: IpAddr, key: &KeyPair, lifetime: i64) -> Self {
        let given = Arc::default();
        let public = key.public_key().as_ref().to_vec();
        let known = Known { public, given: Arc::clone(&given), lifetime };
        let routes =
            Router::new().route("/api/v3/app/installations/{id}/access_tokens", post(answer));
        let listener = tokio::net::TcpListener::bind((address, 0)).await.unwrap();
        let url = format!("http://{}/api/v3", listener.local_addr().unwrap());
        let task = tokio::spawn(async move {
            axum::serve(listener, routes.with_state(known)).await.unwrap();
        });
        Self { url, given, task }
    }
}

impl Drop for GitHub {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// A key, and the same in PEM.
pub fn key() -> (KeyPair, String) {
    let key = KeyPair::generate(KeySize::Rsa2048).unwrap();
    let der = AsDer::<Pkcs8V1Der<'_>>::as_der(&key).unwrap();
    let body = STANDARD.encode(der.as_ref());
    let lines: Vec<_> =
        body.as_bytes().chunks(64).map(|line| std::str::from_utf8(line).unwrap()).collect();
    (key, format!("-----BEGIN PRIVATE KEY-----\n{}\n-----END PRIVATE KEY-----\n", lines.join("\n")))
}
