//! What happens at the API server: its own metrics, and its audit log by user.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use kube::Client;
use serde_json::Value;

use crate::numbers;
use crate::process::Operator;
use crate::stage::Outcome;

/// How long it may take until nothing is written any more: with all controllers 10,000 agents need half an hour.
const DEADLINE: Duration = Duration::from_secs(5400);
/// How often it is looked at.
const LOOK: Duration = Duration::from_secs(1);
/// A busy operator is not quiet, even when it writes nothing: more than that share of a core.
const BUSY: f64 = 0.1;

/// Eyes on one API server.
pub struct ApiServer {
    client: Client,
    audit: PathBuf,
    quiet: Duration,
}

impl ApiServer {
    /// With a client of all rights, the audit log, and how long quiet must last.
    pub fn new(client: Client, audit: PathBuf, quiet: Duration) -> Self {
        Self { client, audit, quiet }
    }

    /// Lasting writes since its start, and writes that it works on now, from its metrics.
    async fn writes(&self) -> Outcome<(f64, f64)> {
        let request = http::Request::get("/metrics").body(Vec::new()).map_err(|e| e.to_string())?;
        let text = self.client.request_text(request).await.map_err(|e| format!("/metrics: {e}"))?;
        Ok((numbers::writes(&text), numbers::writes_in_flight(&text)))
    }

    /// Waits until nothing was written for the wanted time, and the operator did nothing either. Says how many
    /// milliseconds of CPU the operator takes a second while it has nothing to do.
    pub async fn quiet(&self, operator: Option<&Operator>) -> Outcome<f64> {
        let began = Instant::now();
        let (mut last, _) = self.writes().await?;
        let mut since = Instant::now();
        let mut idle_ms = 0.0;
        while since.elapsed() < self.quiet {
            let (mark, looked) = (operator.map(Operator::cpu), Instant::now());
            tokio::time::sleep(LOOK).await;
            let mut busy_ms = 0.0;
            if let (Some(operator), Some(mark)) = (operator, &mark) {
                operator.check()?;
                busy_ms = operator.cpu_ms_since(mark);
            }
            let (now, in_flight) = self.writes().await?;
            let changed = (now - last).abs() > 0.5 || in_flight > 0.5;
            if changed || busy_ms > looked.elapsed().as_secs_f64() * 1000.0 * BUSY {
                since = Instant::now();
                idle_ms = 0.0;
            } else {
                idle_ms += busy_ms;
            }
            last = now;
            if began.elapsed() > DEADLINE {
                return Err(format!("something is still going on after {DEADLINE:?}"));
            }
        }
        Ok(idle_ms / since.elapsed().as_secs_f64())
    }

    /// What a user listed since that place in the audit log: paths with their selectors, without pages.
    pub fn lists_by(&self, user: &str, from: u64) -> Outcome<Vec<String>> {
        let text = std::fs::read(&self.audit).map_err(|e| format!("audit log: {e}"))?;
        let text =
            String::from_utf8_lossy(&text[usize::try_from(from).unwrap_or(0).min(text.len())..])
                .into_owned();
        let mut paths = BTreeSet::new();
        for line in text.lines() {
            let Ok(event) = serde_json::from_str::<Value>(line) else { continue };
            let is = |pointer: &str, text: &str| {
                event.pointer(pointer).and_then(Value::as_str) == Some(text)
            };
            // A watch may begin with a list of its own.
            let initial = |uri: &str| uri.contains("sendInitialEvents=true");
            let Some(uri) = event["requestURI"].as_str() else { continue };
            if is("/user/username", user)
                && !is("/stage", "RequestReceived")
                && event.pointer("/responseStatus/code").and_then(Value::as_u64).unwrap_or(200)
                    < 300
                && (is("/verb", "list") || (is("/verb", "watch") && initial(uri)))
            {
                paths.insert(without_pages(uri));
            }
        }
        Ok(paths.into_iter().collect())
    }

    /// The end of the audit log, now.
    pub fn audit_end(&self) -> u64 {
        std::fs::metadata(&self.audit).map_or(0, |meta| meta.len())
    }
}

/// A list's path with nothing but its label selector.
fn without_pages(uri: &str) -> String {
    let (path, query) = uri.split_once('?').unwrap_or((uri, ""));
    match query.split('&').find(|part| part.starts_with("labelSelector=")) {
        Some(selector) => format!("{path}?{selector}"),
        None => path.to_owned(),
    }
}
