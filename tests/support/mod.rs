//! The harness: a real API server for tests, the real operator binary, and waiting with a deadline.
//!
//! Each test binary, and the benchmark, uses its own part of it, so unused code is no finding here.
#![allow(dead_code, unused_imports, clippy::pedantic)]

mod actor;
pub mod audit;
pub mod build_story;
mod build_watch;
pub mod cluster;
pub mod engine;
mod exclusive;
pub mod forge;
pub mod gate;
pub mod git_http;
pub mod gitea;
pub mod github;
pub mod http_proxy;
pub mod operator;
pub mod pod;
pub mod points;
pub mod portrait;
pub mod proxy;
pub mod signing;
pub mod sshd;
pub mod stage;
pub mod story;
pub mod team;
pub mod tls;

use std::fmt::Debug;
use std::future::Future;
use std::net::TcpListener;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, Instant};

pub use audit::{AuditMark, AuditRecord};
pub use cluster::{Cluster, cluster};
pub use operator::Operator;

/// What one try of [`eventually`] found: `Option` (nothing to say) or `Result` (the last `Err` is shown).
pub trait Found<T> {
    /// The value, or what was seen instead of it.
    fn found(self) -> Result<T, String>;
}

impl<T> Found<T> for Option<T> {
    fn found(self) -> Result<T, String> {
        self.ok_or_else(|| "nothing".to_owned())
    }
}

impl<T, E: Debug> Found<T> for Result<T, E> {
    fn found(self) -> Result<T, String> {
        self.map_err(|seen| format!("{seen:#?}"))
    }
}

/// Tries every 50 ms until there is a value. Panics after `deadline` with `what` and what was seen last.
///
/// A try that itself hangs counts against the deadline too.
pub async fn eventually<T, F, R>(
    deadline: Duration,
    what: &str,
    mut attempt: impl FnMut() -> F,
) -> T
where
    F: Future<Output = R>,
    R: Found<T>,
{
    let began = Instant::now();
    let mut last = "no try ended".to_owned();
    loop {
        let left = deadline.saturating_sub(began.elapsed());
        match tokio::time::timeout(left, attempt()).await.map(Found::found) {
            Ok(Ok(value)) => return value,
            Ok(Err(seen)) => last = seen,
            Err(_) => {}
        }
        assert!(began.elapsed() < deadline, "not within {deadline:?}: {what}\nlast seen: {last}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// A free loopback port, never the same one twice in a process, outside the range of outgoing connections.
pub fn free_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    // Test processes that run side by side start at different places.
    let start = u16::try_from(std::process::id() % 10_000).unwrap_or(0);
    for _ in 0..10_000 {
        let port = 10_000 + (start + NEXT.fetch_add(1, Ordering::Relaxed)) % 10_000;
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
    panic!("no free port between 10000 and 20000");
}

/// Runs a program to its end and gives its standard output; panics with both outputs when it fails.
pub fn run(command: &mut std::process::Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("cannot run {command:?}: {error}"));
    let (out, err) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{command:?} failed ({}):\n{out}{err}", output.status);
    out.into_owned()
}
