//! The Kubernetes client: configuration, user agent, and the deadline around every call.

use std::future::Future;
use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

use http::{HeaderName, HeaderValue};
use hyper_rustls::{FixedServerNameResolver, HttpsConnectorBuilder};
use hyper_timeout::TimeoutConnector;
use hyper_util::client::legacy::Client as HyperClient;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use kube::client::{Body, ConfigExt};
use kube::config::KubeConfigOptions;
use kube::{Client, Config};
use tower::ServiceBuilder;

use crate::net::Endpoint;

/// How long one API call may take before it counts as failed. kube sets no read timeout of its own.
pub const CALL_DEADLINE: Duration = Duration::from_secs(20);

/// A connection that is silent for this long is asked whether it lives. Load balancers drop connections without a word.
const PING: Duration = Duration::from_secs(15);
/// It is given up when it does not answer that within this time; calls and watches on it fail then, and are tried again.
const PONG: Duration = Duration::from_secs(10);

/// What went wrong with one API call.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// The server answered with an error, or could not be reached.
    #[error(transparent)]
    Api(#[from] Box<kube::Error>),
    /// No answer in time. The write may have happened.
    #[error("no answer from the API server within {} s", .0.as_secs())]
    Deadline(Duration),
}

impl CallError {
    fn status(&self) -> Option<&kube::core::Status> {
        match self {
            Self::Api(error) => match error.as_ref() {
                kube::Error::Api(status) => Some(status),
                _ => None,
            },
            Self::Deadline(_) => None,
        }
    }

    /// What the server said, or what happened instead of an answer.
    #[must_use]
    pub fn words(&self) -> String {
        self.status().map_or_else(|| self.to_string(), |s| s.message.clone())
    }

    /// The object (or its kind) is not there.
    #[must_use]
    pub fn is_not_found(&self) -> bool {
        self.status().is_some_and(|s| s.code == 404)
    }

    /// This object is not there. Unlike [`Self::is_not_found`] it is not true when the server does not know the
    /// kind at this moment: then nothing is known about the object.
    #[must_use]
    pub fn is_gone(&self) -> bool {
        self.status().is_some_and(|s| {
            s.code == 404 && s.details.as_ref().is_some_and(|details| !details.name.is_empty())
        })
    }

    /// The object changed or exists already.
    #[must_use]
    pub fn is_conflict(&self) -> bool {
        self.status().is_some_and(|s| s.code == 409)
    }

    /// The conflict is about something else that the write needs: the count of a quota that many writes change at once.
    #[must_use]
    pub fn is_about_a_quota(&self) -> bool {
        let details = self.status().and_then(|s| s.details.as_ref());
        details.is_some_and(|details| details.kind.starts_with("resourcequota"))
    }

    /// The server refused the content: another try with the same content is of no use.
    #[must_use]
    pub fn is_invalid(&self) -> bool {
        self.status().is_some_and(|s| {
            matches!(s.code, 400 | 422) || (s.code == 500 && s.message.contains("typed patch"))
        })
    }

    /// The object of that name is another one than the `metadata.uid` that was sent.
    #[must_use]
    pub fn is_replaced(&self) -> bool {
        self.status().is_some_and(|s| {
            let causes = s.details.iter().flat_map(|details| &details.causes);
            matches!(s.code, 409 | 422)
                && causes.into_iter().any(|cause| cause.field == "metadata.uid")
        })
    }

    /// An admission webhook or policy refused the content.
    #[must_use]
    pub fn is_denied(&self) -> bool {
        self.status().is_some_and(|s| {
            matches!(s.code, 400..=499)
                && (s.message.contains("denied the request")
                    || s.message.contains("denied request:"))
        })
    }

    /// The operator lacks the right.
    #[must_use]
    pub fn is_forbidden(&self) -> bool {
        self.refusal().is_some()
    }

    /// What the server says when the operator lacks the right.
    #[must_use]
    pub fn refusal(&self) -> Option<&str> {
        self.status().filter(|s| s.code == 403).map(|s| s.message.as_str())
    }

    /// What was asked for is too old: a watch must begin with a list again.
    #[must_use]
    pub fn is_expired(&self) -> bool {
        self.status().is_some_and(|s| s.code == 410)
    }
}

impl From<kube::Error> for CallError {
    fn from(error: kube::Error) -> Self {
        Self::Api(Box::new(error))
    }
}

/// Puts the deadline around one API call.
///
/// # Errors
/// The call's own error, or [`CallError::Deadline`].
pub async fn call<T>(future: impl Future<Output = Result<T, kube::Error>>) -> Result<T, CallError> {
    call_within(CALL_DEADLINE, future).await
}

/// The same with another deadline.
///
/// # Errors
/// Those of [`call`].
pub async fn call_within<T>(
    deadline: Duration,
    future: impl Future<Output = Result<T, kube::Error>>,
) -> Result<T, CallError> {
    match tokio::time::timeout(deadline, future).await {
        Ok(result) => result.map_err(CallError::from),
        Err(_) => Err(CallError::Deadline(deadline)),
    }
}

/// `duration` ±10%, so that many objects do not wake at once.
#[must_use]
pub fn jitter(duration: Duration) -> Duration {
    // A fresh RandomState is seeded by the system: enough for spreading load.
    let thousandths = u32::try_from(RandomState::new().hash_one(0u8) % 201).unwrap_or(100);
    duration.mul_f64(0.9 + f64::from(thousandths) / 1000.0)
}

/// A client from `$KUBECONFIG` or the pod's ServiceAccount, and where the API server is: nobody else should dial that.
///
/// kube's own retry (15 times, any verb) is off: every caller has a deadline and a backoff per object. Writes have a share
/// for each namespace.
///
/// # Errors
/// When no configuration is found or it cannot be used.
pub async fn connect() -> Result<(Client, Vec<Endpoint>), kube::Error> {
    let config = Config::infer().await.map_err(kube::Error::InferConfig)?;
    // kube would put these over the ServiceAccount that a GitSync is written as.
    let auth = &config.auth_info;
    if auth.impersonate.is_some() || auth.impersonate_groups.is_some() {
        let words =
            "a kubeconfig that acts as somebody else (`as`, `as-groups`) cannot run the operator";
        return Err(kube::Error::Service(words.into()));
    }
    let service = std::env::var("KUBERNETES_SERVICE_HOST").ok();
    let port = std::env::var("KUBERNETES_SERVICE_PORT").ok().and_then(|port| port.parse().ok());
    let servers = endpoint_of(&config.cluster_url).into_iter();
    let servers = servers.chain(service.zip(port).map(|(host, port)| Endpoint::new(&host, port)));
    let servers = servers.collect();
    Ok((client_of(config)?, servers))
}

/// Host and port of a URL.
fn endpoint_of(url: &http::Uri) -> Option<Endpoint> {
    let usual = if url.scheme_str() == Some("http") { 80 } else { 443 };
    Some(Endpoint::new(url.host()?, url.port_u16().unwrap_or(usual)))
}

/// A client for a person: with a context of the kubeconfig when one is named, and with whatever rights it gives.
///
/// # Errors
/// Those of [`connect`], and when there is no such context.
pub async fn connect_to(context: Option<&str>) -> Result<Client, kube::Error> {
    let config = match context {
        Some(context) => {
            let context = Some(context.to_owned());
            let options = KubeConfigOptions { context, ..KubeConfigOptions::default() };
            Config::from_kubeconfig(&options).await.map_err(kube::Error::InferKubeconfig)?
        }
        None => Config::infer().await.map_err(kube::Error::InferConfig)?,
    };
    client_of(config)
}

/// A client of this configuration: over HTTP/2 where the server speaks it.
///
/// # Errors
/// When the configuration cannot be used.
pub fn client_of(mut config: Config) -> Result<Client, kube::Error> {
    config.default_retry = false;
    let agent = concat!("convoke/", env!("CARGO_PKG_VERSION"));
    config.headers.push((HeaderName::from_static("user-agent"), HeaderValue::from_static(agent)));
    // Proxies and whatever else kube may learn stay kube's.
    if config.proxy_url.is_some() {
        return Client::try_from(config);
    }
    // One HTTP/2 connection instead of one of HTTP/1.1 for each call in flight (docs/decisions/0010).
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    let tls = HttpsConnectorBuilder::new().with_tls_config(config.rustls_client_config()?);
    let tls = match &config.tls_server_name {
        Some(name) => {
            let name = name.clone().try_into().map_err(|_| {
                kube::Error::Service(format!("tls-server-name: {name:?} is no host name").into())
            })?;
            tls.https_or_http().with_server_name_resolver(FixedServerNameResolver::new(name))
        }
        None => tls.https_or_http(),
    }
    .enable_all_versions()
    .wrap_connector(tcp);
    let mut connector = TimeoutConnector::new(tls);
    connector.set_connect_timeout(config.connect_timeout);
    let http: HyperClient<_, Body> = HyperClient::builder(TokioExecutor::new())
        .timer(TokioTimer::new())
        .http2_keep_alive_interval(PING)
        .http2_keep_alive_timeout(PONG)
        .http2_keep_alive_while_idle(true)
        .build(connector);
    let service = ServiceBuilder::new()
        .layer(config.base_uri_layer())
        .option_layer(config.auth_layer()?)
        .layer(config.extra_headers_layer()?)
        .map_err(tower::BoxError::from)
        .service(http);
    Ok(Client::new(service, config.default_namespace))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_404_of_an_object_is_not_that_of_a_kind() {
        let error = |status: serde_json::Value| {
            let status: kube::core::Status = serde_json::from_value(status).expect("a status");
            CallError::from(kube::Error::Api(Box::new(status)))
        };
        let object = error(serde_json::json!({
            "status": "Failure", "code": 404, "reason": "NotFound",
            "message": "agents.convoke.dev \"a\" not found",
            "details": {"name": "a", "group": "convoke.dev", "kind": "agents"},
        }));
        assert!(object.is_not_found() && object.is_gone());
        // While a CRD is not served, every object of it is a 404 that says nothing about the object.
        let kind = error(serde_json::json!({
            "status": "Failure", "code": 404, "reason": "NotFound",
            "message": "the server could not find the requested resource", "details": {},
        }));
        assert!(kind.is_not_found() && !kind.is_gone());
    }

    #[test]
    fn o11_the_api_server_is_where_its_url_says() {
        for (url, host, port) in [
            ("https://10.96.0.1", "10.96.0.1", 443),
            ("https://127.0.0.1:6443/", "127.0.0.1", 6443),
            ("https://[fd00::1]:6443", "fd00::1", 6443),
            ("https://API.example.com./k8s", "api.example.com", 443),
            ("http://localhost/", "localhost", 80),
        ] {
            let found = endpoint_of(&url.parse().expect(url));
            assert_eq!(found, Some(Endpoint { host: host.into(), port }), "{url}");
        }
    }

    #[test]
    fn only_a_403_counts_as_a_missing_right_and_only_a_410_as_expired() {
        let error = |code: u16| {
            let status = serde_json::json!({"code": code, "message": "m", "status": "Failure", "reason": "r"});
            let status: kube::core::Status = serde_json::from_value(status).expect("a status");
            CallError::from(kube::Error::Api(Box::new(status)))
        };
        assert_eq!(error(403).refusal(), Some("m"));
        assert_eq!(
            (error(404).refusal(), CallError::Deadline(CALL_DEADLINE).refusal()),
            (None, None)
        );
        assert!(error(410).is_expired() && !error(404).is_expired());
    }
}
