//! Requests to pods. They go to an address that Kubernetes reports of a pod, never to a URL that somebody chose.
//!
//! The address policy is for URLs. It does not know pods: their addresses are private on most clusters, and public on some. So
//! whoever asks has to know that the pod belongs to an object of ours; see `src/controllers/pods.rs`, which alone uses this.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use reqwest::header::{HOST, HeaderValue};
use reqwest::{Request, Response};

use super::address::{AddressClass, canonical};
use super::error::{NetError, NotAllowed, Refusal};

/// How long it may take to make a connection. Pods are near.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Sends requests to pods, over plain HTTP. No redirect is followed, and no proxy is read from the environment.
pub struct PodClient {
    http: reqwest::Client,
    allows_loopback: bool,
}

impl PodClient {
    /// A client with this value of the header `User-Agent`. No connection outlives its request: there are many pods, and each
    /// is asked rarely.
    ///
    /// # Errors
    /// When there is no TLS library. No certificates are loaded.
    pub fn new(user_agent: &str) -> Result<Self, NetError> {
        let http = reqwest::Client::builder()
            .tls_certs_only(std::iter::empty::<reqwest::Certificate>())
            .user_agent(user_agent)
            .redirect(reqwest::redirect::Policy::none())
            .no_proxy()
            .referer(false)
            .http1_only()
            .connect_timeout(CONNECT_TIMEOUT)
            .pool_max_idle_per_host(0)
            .build()?;
        Ok(Self { http, allows_loopback: false })
    }

    /// A client for servers of tests.
    #[cfg(test)]
    #[must_use]
    pub fn on_loopback(self) -> Self {
        Self { allows_loopback: true, ..self }
    }

    /// Sends a request to this address. The URL of the request says which path is asked for and what the pod is called: host and
    /// port become the header `Host`, and are not dialled. Only the connection has a deadline here.
    ///
    /// # Errors
    /// The reason why there is no answer.
    pub async fn execute(
        &self,
        to: SocketAddr,
        mut request: Request,
    ) -> Result<Response, NetError> {
        let ip = canonical(to.ip());
        self.check(ip)?;
        let called = request.url();
        if called.scheme() != "http" {
            return Err(NetError::failed("pods are asked over http"));
        }
        let host = called.host_str().unwrap_or_default();
        let host = match called.port() {
            Some(port) => format!("{host}:{port}"),
            None => host.to_owned(),
        };
        let host = HeaderValue::from_str(&host)
            .map_err(|_| NetError::failed("the host of the URL is no header"))?;
        request.headers_mut().insert(HOST, host);
        let url = request.url_mut();
        let is_set = url.set_ip_host(ip).is_ok() && url.set_port(Some(to.port())).is_ok();
        if !is_set {
            return Err(NetError::failed("the URL has no host"));
        }
        self.http.execute(request).await.map_err(NetError::from)
    }

    /// No pod has an address that leads to this machine or is reserved.
    fn check(&self, ip: IpAddr) -> Result<(), NotAllowed> {
        match AddressClass::of(ip) {
            AddressClass::Loopback if self.allows_loopback => Ok(()),
            class @ (AddressClass::Loopback | AddressClass::Never(_)) => {
                Err(NotAllowed::new(&ip.to_string(), Refusal::Class(class)))
            }
            AddressClass::Public | AddressClass::Private | AddressClass::Internal => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use axum::Router;
    use axum::response::Redirect;
    use axum::routing::get;
    use reqwest::{Method, Url};

    use super::*;

    fn request(url: &str) -> Request {
        Request::new(Method::GET, Url::parse(url).expect("a URL"))
    }

    async fn serve(routes: Router) -> SocketAddr {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        tokio::spawn(async move { axum::serve(listener, routes).await });
        address
    }

    #[tokio::test]
    async fn o11_a_pod_is_asked_at_its_address_under_the_name_of_its_service() {
        let says = get(|headers: http::HeaderMap| async move {
            headers[http::header::HOST].to_str().expect("text").to_owned()
        });
        let there = serve(Router::new().route("/card", says)).await;
        let client = PodClient::new("test/1").expect("a client").on_loopback();
        let url = "http://agent-a.team.svc.cluster.local:8000/card";
        let answer = client.execute(there, request(url)).await.expect("an answer");
        let said = answer.text().await.expect("a text");
        assert_eq!(said, "agent-a.team.svc.cluster.local:8000");
    }

    #[tokio::test]
    async fn o11_a_pod_leads_nowhere_else() {
        let away = get(|| async { Redirect::temporary("http://10.0.0.1:8000/") });
        let there = serve(Router::new().route("/", away)).await;
        let client = PodClient::new("test/1").expect("a client").on_loopback();
        let answer = client.execute(there, request("http://a.team:8000/")).await;
        assert_eq!(answer.expect("an answer").status(), 307);
        let error = client.execute(there, request("https://a.team/")).await.expect_err("TLS");
        assert!(error.to_string().contains("over http"), "{error}");
    }

    #[tokio::test]
    async fn o11_this_machine_and_metadata_services_are_no_pods() {
        let client = PodClient::new("test/1").expect("a client");
        for never in ["127.0.0.1:8000", "[::1]:8000", "169.254.169.254:80", "[::ffff:127.0.0.1]:80"]
        {
            let to = never.parse().expect("an address");
            let error = client.execute(to, request("http://a.team:8000/")).await;
            assert!(matches!(error, Err(NetError::NotAllowed(_))), "{never}");
        }
    }
}
