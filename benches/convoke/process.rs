//! The shipped binary as a process, and what the kernel says about it.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::numbers;
use crate::stage::Outcome;
use crate::support::free_port;
use crate::support::operator::{http_get, is_alive};

/// Runs "$@", says its pid, and kills it when standard input ends: however the benchmark ends, the operator ends too.
const WATCHDOG: &str =
    r#"trap '' INT; "$@" >&2 & echo $!; while read -r _; do :; done; kill -9 $! 2>/dev/null; wait"#;

/// What the image tells the C library about memory: what is measured is what ships.
fn image_memory_settings() -> impl Iterator<Item = (&'static str, &'static str)> {
    let lines = include_str!("../../Dockerfile").lines();
    lines
        .filter_map(|line| line.strip_prefix("ENV ")?.split_once('='))
        .filter(|(name, _)| name.starts_with("MALLOC_"))
}

/// The clock ticks of `/proc/<pid>/stat` are hundredths of a second on every Linux of today.
const MS_PER_TICK: f64 = 10.0;

/// CPU time by thread, in nanoseconds.
pub type CpuMark = BTreeMap<u32, u64>;

/// An operator that can be killed and started again.
pub struct Operator {
    binary: PathBuf,
    kubeconfig: PathBuf,
    args: Vec<String>,
    log: PathBuf,
    health: u16,
    running: Option<(Child, u32)>,
}

impl Operator {
    /// Starts `binary operator ARGS`; waits for nothing.
    pub fn start(binary: &Path, kubeconfig: &Path, dir: &Path, args: &[&str]) -> Outcome<Self> {
        let (health, metrics) = (free_port(), free_port());
        let mut all: Vec<_> = args.iter().map(|&arg| arg.to_owned()).collect();
        all.push(format!("--health-addr=127.0.0.1:{health}"));
        all.push(format!("--metrics-addr=127.0.0.1:{metrics}"));
        let mut operator = Self {
            binary: binary.to_owned(),
            kubeconfig: kubeconfig.to_owned(),
            args: all,
            log: dir.join("operator.log"),
            health,
            running: None,
        };
        operator.spawn()?;
        Ok(operator)
    }

    /// Starts it again, with the same arguments.
    pub fn spawn(&mut self) -> Outcome<()> {
        self.kill();
        let log: File = OpenOptions::new()
            .create(true)
            .append(true)
            .open(&self.log)
            .map_err(|error| format!("{}: {error}", self.log.display()))?;
        let mut watchdog = Command::new("sh")
            .args(["-c", WATCHDOG, "watchdog"])
            .arg(&self.binary)
            .arg("operator")
            .args(&self.args)
            .envs(image_memory_settings())
            .env("KUBECONFIG", &self.kubeconfig)
            // What it keeps outlives it when it is killed.
            .env("TMPDIR", self.log.parent().unwrap_or(Path::new("/tmp")))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()
            .map_err(|error| format!("sh: {error}"))?;
        let mut line = String::new();
        let stdout = watchdog.stdout.take().ok_or("no pipe")?;
        BufReader::new(stdout).read_line(&mut line).map_err(|error| error.to_string())?;
        let pid = line.trim().parse().map_err(|_| format!("no pid but {line:?}"))?;
        self.running = Some((watchdog, pid));
        Ok(())
    }

    /// SIGKILL; returns when it is gone.
    pub fn kill(&mut self) {
        if let Some((mut watchdog, _)) = self.running.take() {
            drop(watchdog.stdin.take());
            let _ = watchdog.wait();
        }
    }

    fn pid(&self) -> u32 {
        self.running.as_ref().map_or(0, |(_, pid)| *pid)
    }

    /// Asks `/readyz` every millisecond until it answers 200; says when that was.
    pub async fn ready(&self, deadline: Duration) -> Outcome<Instant> {
        let began = Instant::now();
        loop {
            if matches!(http_get(self.health, "/readyz"), Ok((200, _))) {
                return Ok(Instant::now());
            }
            self.check()?;
            if began.elapsed() > deadline {
                return Err(format!("the operator is not ready after {deadline:?}"));
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    /// Fails with the end of its log when it died.
    pub fn check(&self) -> Outcome<()> {
        if is_alive(self.pid()) {
            return Ok(());
        }
        let log = std::fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<_> = log.lines().collect();
        Err(format!(
            "the operator ended; the end of its log:\n{}",
            lines[lines.len().saturating_sub(20)..].join("\n")
        ))
    }

    /// The most memory that it ever had resident, in MiB.
    pub fn peak_mib(&self) -> Outcome<f64> {
        let (path, text) = self.status()?;
        numbers::peak_mib(&text).ok_or(format!("{path}: no VmHWM"))
    }

    /// The memory that it has resident now, in MiB.
    pub fn resident_mib(&self) -> Outcome<f64> {
        let (path, text) = self.status()?;
        numbers::resident_mib(&text).ok_or(format!("{path}: no VmRSS"))
    }

    fn status(&self) -> Outcome<(String, String)> {
        let path = format!("/proc/{}/status", self.pid());
        let text = std::fs::read_to_string(&path).map_err(|error| format!("{path}: {error}"))?;
        Ok((path, text))
    }

    /// The CPU time of each of its threads, now.
    pub fn cpu(&self) -> CpuMark {
        let Ok(tasks) = std::fs::read_dir(format!("/proc/{}/task", self.pid())) else {
            return CpuMark::new();
        };
        let one = |task: std::fs::DirEntry| {
            let text = std::fs::read_to_string(task.path().join("schedstat")).ok()?;
            Some((task.file_name().to_str()?.parse().ok()?, numbers::thread_nanos(&text)?))
        };
        tasks.flatten().filter_map(one).collect()
    }

    /// CPU time since then in milliseconds, exact to the nanosecond. Threads that ended since are missed: a pool's
    /// threads end after ten idle seconds, so look again before that.
    pub fn cpu_ms_since(&self, mark: &CpuMark) -> f64 {
        let nanos: u64 = self
            .cpu()
            .iter()
            .map(|(thread, now)| now.saturating_sub(mark.get(thread).copied().unwrap_or(0)))
            .sum();
        Duration::from_nanos(nanos).as_secs_f64() * 1000.0
    }

    /// CPU time since its start in milliseconds, ended threads included, in steps of 10.
    pub fn cpu_total_ms(&self) -> Outcome<f64> {
        let path = format!("/proc/{}/stat", self.pid());
        let text = std::fs::read_to_string(&path).map_err(|error| format!("{path}: {error}"))?;
        let ticks = numbers::process_ticks(&text).ok_or(format!("{path}: no times"))?;
        // Far below 2^52.
        #[allow(clippy::cast_precision_loss)]
        Ok(ticks as f64 * MS_PER_TICK)
    }
}

impl Drop for Operator {
    fn drop(&mut self) {
        self.kill();
    }
}
