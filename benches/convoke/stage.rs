//! Where one run happens: a fresh control plane, a repository, the operator and a GitSync between them.

use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use convoke::api::{GitSync, keys};
use futures::StreamExt;
use kube::Client;
use kube::api::{Api, Patch, PatchParams};
use kube::runtime::watcher::Event;
use kube::runtime::{WatchStreamExt, watcher};
use serde_json::json;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::api_server::ApiServer;
use crate::limit::Limit;
use crate::options::{Controllers, Options};
use crate::process::Operator;
use crate::report::Key;
use crate::repository::Fleet;
use crate::support::Cluster;
use crate::support::cluster::operator_user;
use crate::support::git_http::{GitServer, Repo};

/// What a step gives, or why it could not be measured.
pub type Outcome<T> = Result<T, String>;

/// Name of the GitSync.
const SYNC: &str = "main";

/// A control plane with a limit client and a served repository; the operator is started by [`Stage::begin`].
pub struct Stage<'a> {
    /// What the user asked for.
    pub options: &'a Options,
    /// Which controllers the operator runs.
    pub controllers: Controllers,
    /// The agents.
    pub fleet: Fleet,
    /// Whether it is the first run of this size: what takes long is measured only then.
    pub first: bool,
    /// The control plane.
    pub cluster: Cluster,
    /// Eyes on its API server.
    pub api: ApiServer,
    /// A client with all rights.
    pub client: Client,
    /// The limit, with the operator's rights.
    pub limit: Limit,
    /// Workers at its plateau.
    pub workers: usize,
    /// The repository.
    pub repo: Repo,
    /// Its URL.
    pub url: String,
    /// Where the agents are synced to.
    pub namespace: String,
    kubeconfig: PathBuf,
    user: String,
    requests: u32,
    // Not used any more once they run; they end with the stage.
    dir: tempfile::TempDir,
    _server: GitServer,
}

/// A stage on which the operator runs.
pub struct Running<'a> {
    /// Where.
    pub stage: Stage<'a>,
    /// The operator.
    pub operator: Operator,
    /// What the GitSync says.
    syncs: watch::Receiver<Option<(Instant, GitSync)>>,
    /// Ends the watch with the run: its server is gone then.
    _watch: JoinSet<()>,
    /// Milliseconds of CPU a second that the operator took while it last had nothing to do.
    pub idle_ms: f64,
}

impl<'a> Stage<'a> {
    /// Starts a control plane, makes and serves the repository with nothing but the model in it.
    pub async fn start(
        options: &'a Options,
        fleet: Fleet,
        controllers: Controllers,
    ) -> Outcome<Self> {
        let cluster = Cluster::start().await;
        let client = cluster.client().await;
        let home = cluster.namespace("convoke").await;
        let namespace = cluster.namespace("team").await;
        let kubeconfig = cluster.operator_kubeconfig(&home).await;
        cluster.bind_single_tenant(&home);
        // The files of tests are in a folder beside the log.
        let audit = cluster.dir().with_file_name("audit.log");
        let api = ApiServer::new(client.clone(), audit, options.quiet);
        let limit = Limit::new(&kubeconfig).await?;
        let dir = tempfile::tempdir().map_err(|error| error.to_string())?;
        let bare = dir.path().join("team.git");
        let repo = Repo::init(&bare);
        repo.commit("the model", &[Fleet::model()]);
        let server = GitServer::start(&bare);
        let url = server.url("team.git");
        Ok(Self {
            options,
            controllers,
            fleet,
            first: true,
            cluster,
            api,
            client,
            limit,
            workers: 16,
            repo,
            url,
            namespace,
            kubeconfig,
            user: operator_user(&home),
            requests: 0,
            dir,
            _server: server,
        })
    }

    /// The key of a row about this stage.
    pub fn key(&self, id: &'static str, what: &str) -> Key {
        Key { id, what: what.to_owned(), objects: self.fleet.size, controllers: self.controllers }
    }

    /// Writes and deletes files of the repository, and pushes; gives the commit.
    pub fn commit(&self, message: &str, write: &[(String, String)], delete: &[String]) -> String {
        let write: Vec<_> =
            write.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
        let delete: Vec<_> = delete.iter().map(String::as_str).collect();
        self.repo.change(message, &write, &delete)
    }

    /// A folder for files of the run.
    pub fn dir(&self) -> &std::path::Path {
        self.dir.path()
    }

    /// The operator's name in the audit log.
    pub fn user(&self) -> &str {
        &self.user
    }

    /// How long one change may take; a slow engine is measured too.
    pub fn patience(&self) -> Duration {
        Duration::from_millis(120_000 + 60 * self.fleet.size as u64)
    }

    /// Starts the operator, with these arguments besides the usual ones, and waits until it is ready.
    pub async fn operator(&self, more: &[&str]) -> Outcome<Operator> {
        self.api.quiet(None).await?;
        let controllers = format!("--controllers={}", self.controllers.as_str());
        // An operator takes 10,000 files of a repository unless it is told otherwise.
        let files = format!("--git-max-files={}", self.fleet.size + 10_000);
        let flags = ["--allow-insecure-git", "--single-tenant", "--leader-elect=false"];
        let args = [&flags[..], &[controllers.as_str(), files.as_str()], more].concat();
        let operator = Operator::start(&binary(), &self.kubeconfig, self.dir(), &args)?;
        operator.ready(Duration::from_secs(30)).await?;
        Ok(operator)
    }

    /// Starts the operator, creates the GitSync, and waits until its first commit (the model alone) is applied and
    /// everything is quiet.
    pub async fn begin(self) -> Outcome<Running<'a>> {
        let operator = self.operator(&[]).await?;
        let syncs: Api<GitSync> = Api::namespaced(self.client.clone(), &self.namespace);
        let object = json!({
            "apiVersion": "convoke.dev/v1alpha1", "kind": "GitSync", "metadata": {"name": SYNC},
            // It looks at the remote when it is asked to, and at no other time.
            "spec": {"url": self.url, "interval": "24h"},
        });
        syncs
            .patch(SYNC, &PatchParams::apply("bench").force(), &Patch::Apply(&object))
            .await
            .map_err(|error| format!("GitSync: {error}"))?;
        let commit = self.repo.head();
        let (watch, syncs) = follow(syncs);
        let mut running = Running { syncs, _watch: watch, operator, stage: self, idle_ms: 0.0 };
        running.wait(|sync| applied(sync) == Some(commit.as_str())).await?;
        running.quiet().await?;
        Ok(running)
    }
}

impl Running<'_> {
    /// Waits until nothing is written and the operator rests.
    pub async fn quiet(&mut self) -> Outcome<()> {
        self.idle_ms = self.stage.api.quiet(Some(&self.operator)).await?;
        Ok(())
    }

    /// Waits until the GitSync is so; says when it was told, and the GitSync.
    pub async fn wait(&mut self, good: impl Fn(&GitSync) -> bool) -> Outcome<(Instant, GitSync)> {
        let patience = self.stage.patience();
        let good =
            |sync: &Option<(Instant, GitSync)>| sync.as_ref().is_some_and(|(_, sync)| good(sync));
        let found = tokio::time::timeout(patience, self.syncs.wait_for(good)).await;
        let found = found.map(|found| found.map(|sync| sync.clone()));
        match found {
            Ok(Ok(sync)) => return sync.ok_or_else(|| "no GitSync".to_owned()),
            Ok(Err(_)) => return Err("the watch of the GitSync ended".into()),
            Err(_) => self.operator.check()?,
        }
        let last =
            self.syncs.borrow().clone().and_then(|(_, sync)| sync.status).unwrap_or_default();
        let last = json!({
            "conditions": last.conditions,
            "lastAttempted": last.last_attempted_revision,
            "lastApplied": last.last_applied_revision,
            "problems": last.problem_count,
        });
        Err(format!("not within {patience:?}; last seen: {last}"))
    }

    /// Asks for a sync; says when that was, and the request.
    pub async fn wake(&mut self) -> Outcome<(Instant, String)> {
        self.stage.requests += 1;
        let request = format!("request-{}", self.stage.requests);
        let patch = json!({"metadata": {"annotations": {keys::REQUESTED_AT: request}}});
        let syncs: Api<GitSync> = Api::namespaced(self.stage.client.clone(), &self.stage.namespace);
        let began = Instant::now();
        syncs
            .patch(SYNC, &PatchParams::default(), &Patch::Merge(&patch))
            .await
            .map_err(|error| format!("ask for a sync: {error}"))?;
        Ok((began, request))
    }

    /// Pushes, asks for a sync, and waits until the commit is applied; says how many milliseconds that took from the
    /// end of the push, and the GitSync.
    pub async fn push(
        &mut self,
        message: &str,
        write: &[(String, String)],
        delete: &[String],
    ) -> Outcome<(f64, GitSync)> {
        let commit = self.stage.commit(message, write, delete);
        let (began, _) = self.wake().await?;
        let (ended, sync) = self.wait(|sync| applied(sync) == Some(commit.as_str())).await?;
        Ok((millis(ended - began), sync))
    }
}

/// The commit that is applied, if the GitSync says so.
pub fn applied(sync: &GitSync) -> Option<&str> {
    let status = sync.status.as_ref()?;
    let ready = status.conditions.iter().any(|c| c.type_ == "Ready" && c.status == "True");
    let (_, commit) = status.last_applied_revision.as_ref()?.rsplit_once(':')?;
    ready.then_some(commit)
}

/// Milliseconds with their fractions.
pub fn millis(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1000.0
}

/// The shipped binary.
fn binary() -> PathBuf {
    std::env::var_os("CONVOKE_BINARY")
        .map_or_else(|| env!("CARGO_BIN_EXE_convoke").into(), PathBuf::from)
}

/// Runs a program to its end; says how long that took.
pub fn timed(command: &mut Command) -> Outcome<Duration> {
    let began = Instant::now();
    let output = command.output().map_err(|error| format!("{command:?}: {error}"))?;
    let took = began.elapsed();
    if output.status.success() {
        return Ok(took);
    }
    Err(format!("{command:?}: {}: {}", output.status, String::from_utf8_lossy(&output.stderr)))
}

/// Follows the GitSync by a watch, with the moment at which each state was seen, until the set is dropped.
fn follow(syncs: Api<GitSync>) -> (JoinSet<()>, watch::Receiver<Option<(Instant, GitSync)>>) {
    let (tell, hear) = watch::channel(None);
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        let events = watcher(syncs, watcher::Config::default()).default_backoff();
        let mut events = std::pin::pin!(events);
        while let Some(event) = events.next().await {
            if let Ok(Event::Apply(sync) | Event::InitApply(sync)) = event {
                tell.send_replace(Some((Instant::now(), sync)));
            }
        }
    });
    (tasks, hear)
}
