//! An operator behind a [`Proxy`] that may kill it at one [`Point`]; then another one goes on.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use serde_json::Value;

use super::proxy::{Journal, Point, Proxy, Upstream};
use super::{Cluster, Operator};

/// How long a step may take: generous, because two cores are shared.
const SOON: Duration = Duration::from_secs(120);

/// What operators of several plays share: the control plane, the arguments and the account.
pub struct Theatre {
    pub cluster: &'static Cluster,
    /// The namespace with the account of all these operators.
    pub home: String,
    args: Vec<String>,
    kubeconfig: PathBuf,
    upstream: Upstream,
}

impl Theatre {
    /// Operators with these arguments, and with rights to write what comes from Git.
    pub async fn new(cluster: &'static Cluster, args: &[&str]) -> Arc<Self> {
        let home = cluster.namespace("convoke").await;
        let kubeconfig = cluster.operator_kubeconfig(&home).await;
        cluster.bind_single_tenant(&home);
        let text = Kubeconfig::read_from(cluster.admin_kubeconfig()).expect("kubeconfig");
        let options = KubeConfigOptions::default();
        let config = Config::from_custom_kubeconfig(text, &options).await.expect("kubeconfig");
        let upstream = Upstream::new(&config);
        let args = args.iter().map(|&arg| arg.to_owned()).collect();
        Arc::new(Self { cluster, home, args, kubeconfig, upstream })
    }

    async fn start(
        &self,
        namespace: &str,
        journal: &Arc<Journal>,
        point: Option<Point>,
    ) -> (Operator, Proxy) {
        let proxy = Proxy::start(&self.upstream, namespace, journal, point).await;
        let text = std::fs::read(&self.kubeconfig).expect("kubeconfig");
        let mut config: Value = serde_json::from_slice(&text).expect("JSON");
        config["clusters"][0]["cluster"] = serde_json::json!({"server": proxy.url()});
        let path = self.cluster.dir().join(format!("{namespace}.kubeconfig"));
        std::fs::write(&path, config.to_string()).expect("write the kubeconfig");
        // As in a pod that is restarted: what a killed process has left of its store is still there.
        let data = format!("--data-dir={}", self.cluster.dir().join(namespace).display());
        let args: Vec<_> = self.args.iter().map(String::as_str).chain([data.as_str()]).collect();
        (Operator::start(&path, &self.cluster.dir(), &args), proxy)
    }
}

/// See the module. It has a namespace of its own.
pub struct Actor {
    pub theatre: Arc<Theatre>,
    pub namespace: String,
    /// All rights.
    pub client: Client,
    pub journal: Arc<Journal>,
    running: (Operator, Proxy),
    /// In which step.
    pub killed: Option<&'static str>,
    step: &'static str,
    /// Holds a request of the operator that was killed.
    late: Option<Proxy>,
}

impl Actor {
    /// Starts in the first step.
    pub async fn start(
        theatre: &Arc<Theatre>,
        namespace: String,
        step: &'static str,
        point: Option<Point>,
    ) -> Self {
        let client = theatre.cluster.client().await;
        let journal = Arc::new(Journal::default());
        journal.begin(step);
        let running = theatre.start(&namespace, &journal, point).await;
        let theatre = theatre.clone();
        Self { theatre, namespace, client, journal, running, killed: None, step, late: None }
    }

    /// From now on writes belong to this step.
    pub fn begin(&mut self, step: &'static str) {
        self.journal.begin(step);
        self.step = step;
    }

    /// Whether a request of an operator that was killed is still held.
    pub const fn is_late(&self) -> bool {
        self.late.is_some()
    }

    /// Kills and starts again, if the point was reached.
    async fn mend(&mut self) {
        let (operator, proxy) = &mut self.running;
        if !proxy.is_frozen() {
            return;
        }
        operator.kill9();
        proxy.drained().await;
        self.killed = Some(self.step);
        let next = self.theatre.start(&self.namespace, &self.journal, None).await;
        let (_, proxy) = std::mem::replace(&mut self.running, next);
        self.late = Some(proxy).filter(Proxy::holds);
    }

    /// What a write has done is seen before its answer has passed: until then it is not known whether the point was reached.
    pub async fn answered(&mut self) {
        self.running.1.drained().await;
        self.mend().await;
    }

    /// Lets a late request go.
    pub async fn let_go(&mut self) {
        if let Some(late) = self.late.take() {
            late.let_go().await;
        }
    }

    /// The end of the operator's log.
    pub fn end_of_log(&self) -> String {
        let log = self.running.0.log();
        let lines: Vec<_> = log.lines().collect();
        lines[lines.len().saturating_sub(25)..].join("\n")
    }
}

/// A play with an actor.
pub trait Acts: Sized {
    /// The actor.
    fn actor(&mut self) -> &mut Actor;

    /// Waits until there is something to be seen, whoever is killed meanwhile.
    async fn until<T>(
        &mut self,
        what: &str,
        mut look: impl AsyncFnMut(&Self) -> Result<T, String>,
    ) -> Result<T, String> {
        let began = Instant::now();
        loop {
            self.actor().mend().await;
            match look(self).await {
                Ok(found) => return Ok(found),
                Err(seen) if began.elapsed() > SOON => {
                    return Err(format!("not within {SOON:?}: {what}\nlast seen: {seen}"));
                }
                Err(_) => tokio::time::sleep(Duration::from_millis(40)).await,
            }
        }
    }

    /// Waits until nothing is written any more.
    async fn settle(&mut self, rest: Duration) -> Result<(), String> {
        let (mut seen, mut since) = (0, Instant::now());
        let journal = self.actor().journal.clone();
        self.until("nothing is written any more", async |_| {
            let writes = journal.writes();
            if writes.len() != seen {
                (seen, since) = (writes.len(), Instant::now());
            }
            if since.elapsed() > rest { Ok(()) } else { Err(format!("{:?}", writes.last())) }
        })
        .await
    }
}
