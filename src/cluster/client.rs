//! The Kubernetes client: its configuration, its user agent, and the deadline of every call.

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

pub use convoke_core::cluster::call_error::CallError;

use crate::net::Endpoint;

/// How long one API call may take before it counts as failed. kube sets no read timeout of its own.
pub const CALL_DEADLINE: Duration = Duration::from_secs(20);

/// After this long without traffic a connection is pinged. Load balancers drop quiet connections without closing them.
const PING_AFTER_SILENCE: Duration = Duration::from_secs(15);
/// A connection that does not answer a ping within this time is closed. Calls and watches on it fail, and are tried again.
const PING_TIMEOUT: Duration = Duration::from_secs(10);

/// The error of a call, from kube's own.
#[must_use]
pub fn failed(error: kube::Error) -> CallError {
    match error {
        kube::Error::Api(status) => CallError::Refused(status),
        kube::Error::SerdeError(error) => {
            CallError::Failed(format!("not the JSON that was expected: {error}"))
        }
        other => CallError::Failed(cause(&other)),
    }
}

/// The cause of an error in few words. Outer layers only add their own names, so the text is that of the outermost cause that
/// still contains the innermost one.
fn cause(error: &kube::Error) -> String {
    let outermost = std::error::Error::source(error);
    let causes = std::iter::successors(outermost, |cause| cause.source());
    let causes: Vec<String> = causes.map(ToString::to_string).collect();
    let Some(innermost) = causes.last() else { return error.to_string() };
    let text = causes.iter().find(|text| text.contains(innermost.as_str())).unwrap_or(innermost);
    without_doc_links(text)
}

/// Cuts off the link to its own documentation that rustls appends to errors.
fn without_doc_links(text: &str) -> String {
    text.split(": https://docs.rs/").next().unwrap_or(text).to_owned()
}

/// Awaits one API call, for [`CALL_DEADLINE`] at most.
///
/// # Errors
/// The call's own error, or [`CallError::Deadline`].
pub async fn call<T>(future: impl Future<Output = Result<T, kube::Error>>) -> Result<T, CallError> {
    call_within(CALL_DEADLINE, future).await
}

/// Awaits one API call with a deadline of its own.
///
/// # Errors
/// Those of [`call`].
pub async fn call_within<T>(
    deadline: Duration,
    future: impl Future<Output = Result<T, kube::Error>>,
) -> Result<T, CallError> {
    match tokio::time::timeout(deadline, future).await {
        Ok(result) => result.map_err(failed),
        Err(_) => Err(CallError::Deadline(deadline)),
    }
}

/// `duration` ±10%, so that many objects do not wake at the same time.
#[must_use]
pub fn jitter(duration: Duration) -> Duration {
    // The system seeds each RandomState differently, which is random enough to spread load.
    let thousandths = u32::try_from(RandomState::new().hash_one(0u8) % 201).unwrap_or(100);
    duration.mul_f64(0.9 + f64::from(thousandths) / 1000.0)
}

/// A client from `$KUBECONFIG` or the pod's ServiceAccount, and the endpoints of the API server. Connections to repositories must
/// not lead to these endpoints.
///
/// kube's own retry (15 times, any verb) is off, because every caller has a deadline and a backoff for each object.
///
/// # Errors
/// When there is no configuration, or it cannot be used.
pub async fn connect() -> Result<(Client, Vec<Endpoint>), kube::Error> {
    let config = Config::infer().await.map_err(kube::Error::InferConfig)?;
    // kube would replace the ServiceAccount that the writes of a GitSync use by these.
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

/// A client for a person, with the rights of a context of the kubeconfig: the named one, or the current one.
///
/// # Errors
/// Those of [`connect`], and when the context does not exist.
pub async fn connect_to(context: Option<&str>) -> Result<Client, kube::Error> {
    client_of(config_of(context).await?)
}

/// The same over HTTP/1.1 only: connections of HTTP/2 cannot become the WebSockets by which ports of pods are forwarded. kube's
/// own client speaks nothing else.
///
/// # Errors
/// Those of [`connect_to`].
pub async fn connect_for_upgrades(context: Option<&str>) -> Result<Client, kube::Error> {
    Client::try_from(prepared(config_of(context).await?))
}

/// The configuration of a context of the kubeconfig: the named one, or the current one.
async fn config_of(context: Option<&str>) -> Result<Config, kube::Error> {
    match context {
        Some(context) => {
            let context = Some(context.to_owned());
            let options = KubeConfigOptions { context, ..KubeConfigOptions::default() };
            Config::from_kubeconfig(&options).await.map_err(kube::Error::InferKubeconfig)
        }
        None => Config::infer().await.map_err(kube::Error::InferConfig),
    }
}

/// The configuration with what all clients have in common: no retries of kube's own, and our name.
fn prepared(mut config: Config) -> Config {
    config.default_retry = false;
    let agent = concat!("convoke/", env!("CARGO_PKG_VERSION"));
    config.headers.push((HeaderName::from_static("user-agent"), HeaderValue::from_static(agent)));
    config
}

/// A client of this configuration. It uses HTTP/2 if the server speaks it.
///
/// # Errors
/// When the configuration cannot be used.
pub fn client_of(config: Config) -> Result<Client, kube::Error> {
    let config = prepared(config);
    // Connections through a proxy are left to kube.
    if config.proxy_url.is_some() {
        return Client::try_from(config);
    }
    // One HTTP/2 connection takes the place of one HTTP/1.1 connection for each concurrent call (docs/decisions/0010).
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
        .http2_keep_alive_interval(PING_AFTER_SILENCE)
        .http2_keep_alive_timeout(PING_TIMEOUT)
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
    fn g18_what_a_library_says_of_its_own_documentation_is_left_out() {
        let said = "peer closed connection: https://docs.rs/rustls/latest/rustls/#unexpected-eof";
        assert_eq!(without_doc_links(said), "peer closed connection");
        assert_eq!(without_doc_links("see https://example.com"), "see https://example.com");
    }

    #[tokio::test]
    async fn a8_a_call_that_reaches_nobody_says_why() {
        // Nobody listens there any more.
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        drop(listener);
        let config = Config::new(format!("http://{address}").parse().expect("a URL"));
        let http: HyperClient<_, Body> =
            HyperClient::builder(TokioExecutor::new()).build(HttpConnector::new());
        let service = ServiceBuilder::new().layer(config.base_uri_layer()).service(http);
        let client = Client::new(service, "default");
        let error = call(client.apiserver_version()).await.expect_err("nobody is there");
        let words = error.words();
        assert!(words.starts_with("Connection refused"), "{words}");
    }

    #[test]
    fn a8_what_an_error_tells_of_its_cause_is_kept() {
        let missing = std::io::Error::new(std::io::ErrorKind::NotFound, "no such file");
        let auth = kube::client::AuthError::AuthExecStart(missing);
        let words = failed(kube::Error::Service(Box::new(auth))).words();
        assert_eq!(words, "unable to run auth exec: no such file");
        let plain = failed(kube::Error::Service("the API server sent no resourceVersion".into()));
        assert_eq!(plain.words(), "the API server sent no resourceVersion");
        let html = serde_json::from_str::<u8>("<html>").expect_err("no number");
        let words = failed(kube::Error::SerdeError(html)).words();
        assert_eq!(words, "not the JSON that was expected: expected value at line 1 column 1");
    }
}
