//! Serves `/healthz`, `/readyz` with reasons, and `/metrics`.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::http::StatusCode;
use axum::routing::get;
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;

/// Returns the reasons why the operator is not ready; none when it is.
pub type Readiness = Arc<dyn Fn() -> Vec<String> + Send + Sync>;

fn health_routes(readiness: Readiness) -> Router {
    Router::new().route("/healthz", get(|| async { "ok" })).route(
        "/readyz",
        get(move || {
            let reasons = readiness();
            async move {
                if reasons.is_empty() {
                    (StatusCode::OK, "ok".to_owned())
                } else {
                    (StatusCode::SERVICE_UNAVAILABLE, reasons.join("\n"))
                }
            }
        }),
    )
}

fn metric_routes(registry: Arc<Registry>) -> Router {
    Router::new().route(
        "/metrics",
        get(move || {
            let mut text = String::new();
            let encoded = encode(&mut text, &registry);
            async move {
                match encoded {
                    Ok(()) => (StatusCode::OK, text),
                    Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()),
                }
            }
        }),
    )
}

async fn serve(address: SocketAddr, routes: Router) -> std::io::Result<()> {
    let listener = tokio::net::TcpListener::bind(address).await?;
    axum::serve(listener, routes).await
}

/// Serves health and readiness until the process ends.
///
/// # Errors
/// When the address cannot be bound.
pub async fn serve_health(address: SocketAddr, readiness: Readiness) -> std::io::Result<()> {
    serve(address, health_routes(readiness)).await
}

/// Serves metrics until the process ends.
///
/// # Errors
/// When the address cannot be bound.
pub async fn serve_metrics(address: SocketAddr, registry: Arc<Registry>) -> std::io::Result<()> {
    serve(address, metric_routes(registry)).await
}
