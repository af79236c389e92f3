//! With whose rights a request is made: the operator's own, or those of a ServiceAccount that it acts as.

use std::fmt;
use std::sync::Arc;

use http::{HeaderName, HeaderValue, Request};
use kube::Client;
use kube::client::Body;

/// Whom the API server shall take the request for.
const IMPERSONATE_USER: HeaderName = HeaderName::from_static("impersonate-user");

/// A ServiceAccount that the operator acts as.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Account {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    user: HeaderValue,
}

impl Account {
    /// `None` unless both are DNS labels: an empty name, or one that reaches beyond the namespace
    /// (`system:masters`, `a/b`), is nobody to act as.
    #[must_use]
    pub fn new(namespace: &str, name: &str) -> Option<Self> {
        let valid = is_dns_label(namespace) && is_dns_label(name);
        let user = format!("system:serviceaccount:{namespace}:{name}");
        let user = HeaderValue::from_str(&user).ok().filter(|_| valid)?;
        Some(Self { namespace: namespace.to_owned(), name: name.to_owned(), user })
    }

    /// A client whose requests are made with the rights of this account and no others, over the connections of
    /// `client`. Costs one small task while it lives.
    ///
    /// Only the user is named. The API server itself adds the groups of a ServiceAccount, and they cannot be
    /// others; to name groups, the operator would need a right on groups, which no Role of a namespace can give.
    #[must_use]
    pub fn client(&self, client: &Client) -> Client {
        let (inner, user) = (client.clone(), Arc::new(self.user.clone()));
        let service = tower::service_fn(move |mut request: Request<Body>| {
            request.headers_mut().insert(IMPERSONATE_USER, user.as_ref().clone());
            let inner = inner.clone();
            async move { inner.send(request).await }
        });
        Client::new(service, self.namespace.clone())
    }
}

impl fmt::Display for Account {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ServiceAccount {}/{}", self.namespace, self.name)
    }
}

/// A DNS label (RFC 1123).
#[must_use]
pub fn is_dns_label(text: &str) -> bool {
    let inside = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'-';
    (1..=63).contains(&text.len())
        && text.bytes().all(inside)
        && !text.starts_with('-')
        && !text.ends_with('-')
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use http::Response;

    use super::*;

    #[test]
    fn g16_only_a_name_inside_the_namespace_is_somebody() {
        assert!(Account::new("team", "sync").is_some());
        for name in ["", "system:masters", "a/b", "Sync", "-a", "a-", "a.b", "a:b", "a\nb"] {
            assert_eq!(Account::new("team", name), None, "{name:?}");
            assert_eq!(Account::new(name, "sync"), None, "{name:?}");
        }
        assert_eq!(Account::new("team", &"a".repeat(64)), None);
    }

    #[tokio::test]
    async fn g16_every_request_names_exactly_the_account() {
        let seen = Arc::new(Mutex::new(Vec::new()));
        let sink = seen.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            sink.lock().expect("lock").push(request.headers().clone());
            async { Ok::<_, std::convert::Infallible>(Response::new(Body::empty())) }
        });
        let client = Client::new(service, "default");
        let acting = Account::new("team", "sync").expect("an account").client(&client);
        // Whoever else the request names is not heard.
        let request = Request::get("/api").header("Impersonate-User", "admin").body(Body::empty());
        acting.send(request.expect("a request")).await.expect("sent");
        client
            .send(Request::get("/api").body(Body::empty()).expect("a request"))
            .await
            .expect("sent");
        let seen = seen.lock().expect("lock");
        let users: Vec<Vec<_>> = seen
            .iter()
            .map(|headers| headers.get_all("impersonate-user").iter().collect())
            .collect();
        assert_eq!(users, [vec!["system:serviceaccount:team:sync"], vec![]]);
    }
}
