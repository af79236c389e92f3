//! The real binary, run as an operator: started, killed, started again.

use std::cell::Cell;
use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Once;
use std::time::Duration;

use super::pod::{self, Pod, Pods};
use super::{eventually, free_port};

/// Runs "$@", says its pid, and kills it when standard input ends: however the test ends, the operator ends too.
/// SIGINT is left to the test process, whose end is noticed anyway.
const WATCHDOG: &str =
    r#"trap '' INT; "$@" >&2 & echo $!; while read -r _; do :; done; kill -9 $! 2>/dev/null; wait"#;

/// A running (or killed) operator. It ends when this is dropped, and with the test process however that ends.
///
/// It watches all namespaces: two operators of one cluster share the work and double the writes. A test that
/// counts writes or kills its operator starts its own [`super::Cluster`].
#[derive(Debug)]
pub struct Operator {
    /// Where its ServiceAccount is; empty when it runs on a kubeconfig of the test's own.
    pub namespace: String,
    place: Place,
    args: Vec<String>,
    log: PathBuf,
    health: u16,
    metrics: u16,
    running: Option<Running>,
}

thread_local! {
    /// The shared operator of the test that runs in this thread.
    static SHARED: Cell<Option<Shared>> = const { Cell::new(None) };
}

struct Shared {
    log: PathBuf,
    /// Its namespace and name, if it is one.
    pod: Option<(Pods, String, String)>,
}

impl Shared {
    fn print(&self) {
        if let Some((pods, namespace, name)) = &self.pod {
            let _ = std::fs::write(&self.log, pods.log(namespace, name));
        }
        print_end(&self.log);
    }
}

/// Where it runs.
#[derive(Debug)]
enum Place {
    /// As a process beside the test, with this kubeconfig.
    Beside(PathBuf),
    /// As a pod in its namespace; this many were started.
    Inside(Pods, usize),
}

#[derive(Debug)]
enum Running {
    Process { watchdog: Child, pid: u32 },
    Pod(Pod),
}

impl Running {
    const fn pid(&self) -> u32 {
        match self {
            Self::Process { pid, .. } => *pid,
            Self::Pod(pod) => pod.pid,
        }
    }
}

impl Operator {
    /// Starts `convoke operator ARGS` on that kubeconfig. Addresses for health and metrics are added; `dir` gets the
    /// log, which is printed when the test fails. Doesn't wait: see [`Self::ready`].
    pub fn start(kubeconfig: &Path, dir: &Path, args: &[&str]) -> Self {
        let (health, metrics) = (free_port(), free_port());
        let mut operator = Self {
            namespace: String::new(),
            place: Place::Beside(kubeconfig.to_owned()),
            args: args.iter().map(|&arg| arg.to_owned()).collect(),
            log: dir.join(format!("operator-{health}.log")),
            health,
            metrics,
            running: None,
        };
        operator.spawn();
        operator
    }

    /// The same as a pod of that namespace, which runs when this returns.
    pub fn start_inside(pods: Pods, namespace: &str, dir: &Path, args: &[&str]) -> Self {
        let mut operator = Self {
            namespace: namespace.to_owned(),
            place: Place::Inside(pods, 0),
            args: args.iter().map(|&arg| arg.to_owned()).collect(),
            log: dir.join(format!("operator-{namespace}.log")),
            health: 8081,
            metrics: 8080,
            running: None,
        };
        operator.spawn();
        operator
    }

    fn spawn(&mut self) {
        let kubeconfig = match &mut self.place {
            Place::Beside(kubeconfig) => kubeconfig,
            Place::Inside(pods, count) => {
                *count += 1;
                let pod = pods.start(&self.namespace, format!("operator-{count}"), &self.args);
                self.running = Some(Running::Pod(pod));
                return;
            }
        };
        let log: File =
            OpenOptions::new().create(true).append(true).open(&self.log).expect("operator's log");
        let mut watchdog = Command::new("sh")
            .args(["-c", WATCHDOG, "watchdog", env!("CARGO_BIN_EXE_convoke"), "operator"])
            .args(&self.args)
            .arg(format!("--health-addr=127.0.0.1:{}", self.health))
            .arg(format!("--metrics-addr=127.0.0.1:{}", self.metrics))
            .env("KUBECONFIG", kubeconfig)
            // What it keeps outlives it when it is killed.
            .env("TMPDIR", self.log.parent().expect("a folder"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()
            .expect("start sh");
        let mut line = String::new();
        let stdout = watchdog.stdout.take().expect("piped");
        BufReader::new(stdout).read_line(&mut line).expect("the operator's pid");
        let pid = line.trim().parse().unwrap_or_else(|_| panic!("no pid but {line:?}"));
        self.running = Some(Running::Process { watchdog, pid });
    }

    /// The operator's process id.
    ///
    /// # Panics
    /// When it was killed.
    pub fn pid(&self) -> u32 {
        self.running.as_ref().expect("the operator was killed").pid()
    }

    /// Whether the process lives.
    pub fn is_alive(&self) -> bool {
        self.running.as_ref().is_some_and(|running| is_alive(running.pid()))
    }

    /// SIGKILL: no graceful end, nothing released. Returns when the process is gone.
    pub fn kill9(&mut self) {
        match (self.running.take(), &self.place) {
            (Some(Running::Process { mut watchdog, .. }), _) => {
                drop(watchdog.stdin.take());
                watchdog.wait().expect("the watchdog's end");
            }
            (Some(Running::Pod(pod)), Place::Inside(pods, _)) => {
                let log = pods.kill9(&self.namespace, &pod);
                let mut file = OpenOptions::new().create(true).append(true).open(&self.log);
                file.as_mut().expect("operator's log").write_all(log.as_bytes()).expect("its log");
            }
            _ => {}
        }
    }

    /// SIGTERM, as Kubernetes stops a pod. Panics when the operator does not end within `deadline`.
    pub async fn terminate(&mut self, deadline: Duration) {
        let pid = self.pid();
        super::run(Command::new("kill").args(["-TERM", &pid.to_string()]));
        eventually(deadline, "the operator ends after SIGTERM", || async {
            (!is_alive(pid)).then_some(())
        })
        .await;
        self.kill9();
    }

    /// Kills it if it runs and starts it again with the same arguments; the log goes on.
    pub fn restart(&mut self) {
        self.kill9();
        self.spawn();
    }

    /// Waits until `/readyz` answers 200.
    pub async fn ready(&self, deadline: Duration) {
        eventually(deadline, "the operator is ready", || async {
            assert!(self.is_alive(), "the operator ended by itself");
            match self.readyz() {
                Ok((200, _)) => Ok(()),
                other => Err(other),
            }
        })
        .await;
    }

    /// What `/readyz` says: the status, and why.
    pub fn readyz(&self) -> std::io::Result<(u16, String)> {
        self.get(self.health, "/readyz")
    }

    fn get(&self, port: u16, path: &str) -> std::io::Result<(u16, String)> {
        match &self.running {
            Some(Running::Pod(pod)) => Ok(parts(&pod::get(pod.pid, port, path)?)),
            _ => http_get(port, path),
        }
    }

    /// The status and the text of another path there.
    pub fn health(&self, path: &str) -> (u16, String) {
        self.get(self.health, path).expect("an answer")
    }

    /// The text of `/metrics`.
    pub fn metrics(&self) -> String {
        match self.get(self.metrics, "/metrics") {
            Ok((200, text)) => text,
            other => panic!("no metrics: {other:?}"),
        }
    }

    /// For an operator in a `static`, which is never dropped: a panic of this thread, which is this test, prints the end of
    /// its log.
    pub fn print_log_on_panic(&self) {
        static HOOK: Once = Once::new();
        HOOK.call_once(|| {
            let earlier = std::panic::take_hook();
            std::panic::set_hook(Box::new(move |info| {
                earlier(info);
                SHARED.take().iter().for_each(Shared::print);
            }));
        });
        let pod = match (&self.place, &self.running) {
            (Place::Inside(pods, _), Some(Running::Pod(pod))) => {
                Some((pods.clone(), self.namespace.clone(), pod.name.clone()))
            }
            _ => None,
        };
        SHARED.set(Some(Shared { log: self.log.clone(), pod }));
    }

    /// Everything it logged so far, over all its starts.
    pub fn log(&self) -> String {
        let mut log =
            String::from_utf8_lossy(&std::fs::read(&self.log).unwrap_or_default()).into_owned();
        if let (Some(Running::Pod(pod)), Place::Inside(pods, _)) = (&self.running, &self.place) {
            log += &pods.log(&self.namespace, &pod.name);
        }
        log
    }
}

impl Drop for Operator {
    fn drop(&mut self) {
        self.kill9();
        if std::thread::panicking() {
            print_end(&self.log);
        }
    }
}

fn print_end(log: &Path) {
    let text = String::from_utf8_lossy(&std::fs::read(log).unwrap_or_default()).into_owned();
    let lines: Vec<_> = text.lines().collect();
    eprintln!("--- the end of {} ---", log.display());
    for line in &lines[lines.len().saturating_sub(60)..] {
        eprintln!("{line}");
    }
}

/// Whether a process exists and is no zombie.
pub fn is_alive(pid: u32) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| {
        stat.rsplit(") ").next().is_some_and(|rest| !rest.starts_with(['Z', 'X']))
    })
}

/// GET from loopback: status and body. Blocks for at most some seconds.
pub fn http_get(port: u16, path: &str) -> std::io::Result<(u16, String)> {
    let timeout = Duration::from_secs(3);
    let mut stream = TcpStream::connect_timeout(&([127, 0, 0, 1], port).into(), timeout)?;
    stream.set_read_timeout(Some(timeout))?;
    stream.write_all(format!("GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n").as_bytes())?;
    let mut reply = String::new();
    stream.read_to_string(&mut reply)?;
    Ok(parts(&reply))
}

/// Status and body of a reply.
fn parts(reply: &str) -> (u16, String) {
    let (head, body) = reply.split_once("\r\n\r\n").unwrap_or((reply, ""));
    let code = head.split(' ').nth(1).and_then(|code| code.parse().ok()).unwrap_or(0);
    (code, body.to_owned())
}
