//! The limit: the least client that writes the same objects. What it needs is what the API server needs.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use kube::config::{KubeConfigOptions, Kubeconfig};
use reqwest::Method;
use serde_json::{Value, json};

use crate::repository::Fleet;
use crate::stage::Outcome;

/// How long one request may take.
const DEADLINE: Duration = Duration::from_secs(30);
/// Objects of one try at finding the plateau.
const TRY: usize = 600;
/// More workers must add at least that much, or the plateau is reached.
const GAIN: f64 = 1.05;
/// Never more workers than that.
const MOST: usize = 128;
/// Workers where the plateau is not looked for (P8 and P14): beyond every plateau that was found on quiet machines.
pub const WORKERS: usize = 48;

/// One request, ready to be sent.
pub struct Call {
    method: Method,
    path: String,
    content_type: &'static str,
    body: Vec<u8>,
}

impl Call {
    /// A server-side apply of an agent, as Convoke sends it. `create`: it must not exist yet.
    pub fn apply(namespace: &str, manifest: Value, create: bool) -> Self {
        Self::apply_to(&agents(namespace), "convoke-sync", manifest, create)
    }

    /// The same of any object, in the collection at that path, by that field manager.
    pub fn apply_to(collection: &str, manager: &str, mut manifest: Value, create: bool) -> Self {
        if create {
            manifest["metadata"]["resourceVersion"] = "1".into();
        }
        let name = manifest["metadata"]["name"].as_str().unwrap_or_default();
        Self {
            method: Method::PATCH,
            path: format!(
                "{collection}/{name}?&fieldManager={manager}&force=true&fieldValidation=Strict"
            ),
            content_type: "application/apply-patch+yaml",
            body: manifest.to_string().into_bytes(),
        }
    }

    /// A status as the controllers write it: an apply has to look at it, too, to keep it.
    pub fn status(namespace: &str, name: &str) -> Self {
        let condition = |kind: &str, status: &str, reason: &str| {
            json!({
                "type": kind, "status": status, "reason": reason, "observedGeneration": 1,
                "message": "0 of 1 replicas available", "lastTransitionTime": "2026-01-01T00:00:00Z",
            })
        };
        let status = json!({
            "phase": "Pending", "observedGeneration": 1, "message": "0 of 1 replicas available",
            "conditions": [
                condition("Ready", "False", "RollingOut"),
                condition("Available", "False", "ReplicasUnavailable"),
                condition("DependenciesReady", "True", "AllReady"),
                condition("ImageResolved", "True", "Resolved"),
                condition("PeersResolved", "True", "AllFound"),
                condition("Progressing", "True", "RollingOut"),
            ],
            "endpoint": format!("http://agent-{name}.{namespace}.svc.cluster.local:8000"),
            "image": "registry.example.com/agents/base:1.0", "model": "gpt-0",
            "linkedResources": {"modelAPI": "models"},
            "replicas": 1, "readyReplicas": 0, "updatedReplicas": 1, "unavailableReplicas": 1,
            "selector": format!("convoke.dev/kind=agent,convoke.dev/name={name}"),
            "source": {
                "commit": "0".repeat(40), "line": 1, "path": format!("000/{name}.yaml"), "sync": "main",
            },
        });
        let body = json!({
            "apiVersion": "convoke.dev/v1alpha1", "kind": "Agent",
            "metadata": {"name": name, "namespace": namespace}, "status": status,
        });
        Self {
            method: Method::PATCH,
            path: format!(
                "{}/{name}/status?&fieldManager=convoke-status&force=true",
                agents(namespace)
            ),
            content_type: "application/apply-patch+yaml",
            body: body.to_string().into_bytes(),
        }
    }

    /// A delete of an agent.
    pub fn delete(namespace: &str, name: &str) -> Self {
        Self::delete_from(&agents(namespace), name)
    }

    /// A delete of any object, in the collection at that path.
    pub fn delete_from(collection: &str, name: &str) -> Self {
        Self {
            method: Method::DELETE,
            path: format!("{collection}/{name}"),
            content_type: "application/json",
            body: br#"{"propagationPolicy":"Background"}"#.to_vec(),
        }
    }
}

fn agents(namespace: &str) -> String {
    format!("/apis/convoke.dev/v1alpha1/namespaces/{namespace}/agents")
}

/// The client. It sends bytes that were made before, over one HTTP/2 connection, and does not look into replies.
#[derive(Clone)]
pub struct Limit {
    http: reqwest::Client,
    server: String,
    token: String,
}

impl Limit {
    /// A client with the rights of a kubeconfig with a token in it.
    pub async fn new(kubeconfig: &Path) -> Outcome<Self> {
        let text = std::fs::read(kubeconfig).map_err(|e| e.to_string())?;
        let json: Value = serde_json::from_slice(&text).map_err(|e| e.to_string())?;
        let token = json["users"][0]["user"]["token"].as_str().ok_or("no token")?.to_owned();
        let config = Kubeconfig::read_from(kubeconfig).map_err(|e| e.to_string())?;
        let config = kube::Config::from_custom_kubeconfig(config, &KubeConfigOptions::default())
            .await
            .map_err(|e| e.to_string())?;
        let authorities = config.root_cert.unwrap_or_default();
        let authorities: Result<Vec<_>, _> =
            authorities.iter().map(|der| reqwest::Certificate::from_der(der)).collect();
        let http = reqwest::Client::builder()
            .user_agent("convoke-bench-limit")
            .no_proxy()
            .timeout(DEADLINE)
            .tls_certs_only(authorities.map_err(|e| e.to_string())?)
            .build()
            .map_err(|e| e.to_string())?;
        let server = config.cluster_url.to_string().trim_end_matches('/').to_owned();
        Ok(Self { http, server, token })
    }

    async fn send(&self, call: &Call) -> Outcome<()> {
        let reply = self
            .http
            .request(call.method.clone(), format!("{}{}", self.server, call.path))
            .bearer_auth(&self.token)
            .header("content-type", call.content_type)
            .header("accept", "application/json")
            .body(call.body.clone())
            .send()
            .await
            .map_err(|e| format!("{}: {e}", call.path))?;
        let status = reply.status();
        let body = reply.bytes().await.map_err(|e| format!("{}: {e}", call.path))?;
        if status.is_success() {
            return Ok(());
        }
        Err(format!("{} {}: {status}: {}", call.method, call.path, String::from_utf8_lossy(&body)))
    }

    /// Sends all of them with so many workers; says how long that took.
    pub async fn run(&self, calls: Vec<Call>, workers: usize) -> Outcome<Duration> {
        let calls = Arc::new(calls);
        let next = Arc::new(AtomicUsize::new(0));
        let began = Instant::now();
        let mut tasks = tokio::task::JoinSet::new();
        for _ in 0..workers {
            let (limit, calls, next) = (self.clone(), calls.clone(), next.clone());
            tasks.spawn(async move {
                while let Some(call) = calls.get(next.fetch_add(1, Ordering::Relaxed)) {
                    limit.send(call).await?;
                }
                Ok::<_, String>(())
            });
        }
        while let Some(ended) = tasks.join_next().await {
            ended.map_err(|e| e.to_string())??;
        }
        Ok(began.elapsed())
    }

    /// Reads a path to its end; says how long that took and how many bytes came.
    pub async fn read(&self, path: &str) -> Outcome<usize> {
        let reply = self
            .http
            .get(format!("{}{path}", self.server))
            .bearer_auth(&self.token)
            .header("accept", "application/json")
            .send()
            .await
            .map_err(|e| format!("{path}: {e}"))?;
        let reply = reply.error_for_status().map_err(|e| format!("{path}: {e}"))?;
        Ok(reply.bytes().await.map_err(|e| format!("{path}: {e}"))?.len())
    }

    /// Reads several paths at once; says how long that took.
    pub async fn read_all(&self, paths: &[String]) -> Outcome<Duration> {
        let began = Instant::now();
        futures::future::try_join_all(paths.iter().map(|path| self.read(path))).await?;
        Ok(began.elapsed())
    }

    /// Finds the number of workers at which the plateau begins: doubles them until two doublings in a row add less
    /// than 5%. Says the tries as (workers, creates a second), too.
    pub async fn plateau(
        &self,
        fleet: Fleet,
        namespace: &str,
    ) -> Outcome<(usize, Vec<(usize, f64)>)> {
        let few = fleet.size.min(TRY);
        // The first writes of a kind are slow.
        self.try_workers(fleet, namespace, few, 8).await?;
        let (mut best, mut tries, mut in_vain) = ((1, 0.0), Vec::new(), 0);
        let mut workers = 1;
        while workers <= MOST && in_vain < 2 {
            let rate = self.try_workers(fleet, namespace, few, workers).await?;
            tries.push((workers, rate));
            in_vain = if rate > best.1 * GAIN { 0 } else { in_vain + 1 };
            if rate > best.1 {
                best = (workers, rate);
            }
            workers *= 2;
        }
        Ok((best.0, tries))
    }

    async fn try_workers(
        &self,
        fleet: Fleet,
        namespace: &str,
        few: usize,
        workers: usize,
    ) -> Outcome<f64> {
        let creates =
            (0..few).map(|i| Call::apply(namespace, fleet.manifest(i, 1, namespace), true));
        let took = self.run(creates.collect(), workers).await?;
        let deletes = (0..few).map(|i| Call::delete(namespace, &Fleet::name(i))).collect();
        self.run(deletes, 16).await?;
        // Some hundreds.
        #[allow(clippy::cast_precision_loss)]
        Ok(few as f64 / took.as_secs_f64())
    }
}
