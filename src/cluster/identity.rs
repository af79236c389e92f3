//! Impersonation: a client that acts as a ServiceAccount.

use std::sync::Arc;

pub use convoke_core::cluster::account::Account;
pub use convoke_core::text::is_dns_label;
use http::{HeaderName, HeaderValue, Request};
use kube::Client;
use kube::client::Body;

/// The header that names the user whose rights a request has.
const IMPERSONATE_USER: HeaderName = HeaderName::from_static("impersonate-user");

/// A client whose requests have the rights of this account and no others. It uses the connections of `client`, and costs one
/// small task while it lives.
///
/// Its requests name only the user: the API server adds the groups of a ServiceAccount by itself. To name groups, the operator
/// would need the right to impersonate groups, which no Role of a namespace can give.
#[must_use]
pub fn acting_as(account: &Account, client: &Client) -> Client {
    // Namespace and name are DNS labels, so this cannot fail. If it did, no request would be sent.
    let user = Arc::new(HeaderValue::from_str(&account.user()).ok());
    let inner = client.clone();
    let service = tower::service_fn(move |mut request: Request<Body>| {
        let (inner, user) = (inner.clone(), user.clone());
        async move {
            let Some(user) = user.as_ref() else {
                return Err(kube::Error::Service("not the name of a ServiceAccount".into()));
            };
            request.headers_mut().insert(IMPERSONATE_USER, user.clone());
            inner.send(request).await
        }
    });
    Client::new(service, account.namespace.clone())
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use http::Response;

    use super::*;

    #[tokio::test]
    async fn g16_every_request_names_exactly_the_account() {
        let seen = Arc::new(Mutex::new(Vec::new()));
        let sink = seen.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            sink.lock().expect("lock").push(request.headers().clone());
            async { Ok::<_, std::convert::Infallible>(Response::new(Body::empty())) }
        });
        let client = Client::new(service, "default");
        let account = Account::new("team", "sync").expect("an account");
        let acting = acting_as(&account, &client);
        // The header replaces one that the request already has.
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
