//! P14: many GitSyncs of ten agents each, of one repository or of several, each with a folder of its own.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use aws_lc_rs::hmac;
use convoke::api::common::Condition;
use convoke::api::{GitSync, keys};
use futures::StreamExt;
use kube::api::{Api, ListParams, Patch, PatchParams};
use kube::runtime::watcher::Event;
use kube::runtime::{WatchStreamExt, watcher};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::change::{CHANGES, Floor};
use crate::limit::{Call, Limit, WORKERS};
use crate::numbers::most_mib_with_syncs;
use crate::options::{Controllers, Options};
use crate::process::Operator;
use crate::report::{Goal, Key, Report};
use crate::repositories::Repositories;
use crate::repository::Fleet;
use crate::stage::{Outcome, Stage, applied, millis};
use crate::support::free_port;
use crate::whole::{same_manifests, stages};

/// Agents of one GitSync.
const AGENTS: usize = 10;
/// Deliveries of P12, and the token that signs them.
const DELIVERIES: usize = 1000;
const TOKEN: &str = "0123456789abcdef0123456789abcdef";
/// GitSyncs of one namespace.
const IN_ONE: usize = 10;

/// One run on a control plane of its own.
pub async fn scenario(
    options: &Options,
    syncs: usize,
    controllers: Controllers,
    report: &mut Report,
    step: &dyn Fn(&str),
) -> Outcome<()> {
    let fleet = Fleet::in_folders_of(AGENTS, syncs * AGENTS, options);
    let stage = Stage::start(options, fleet, controllers).await?;
    step("the limit");
    let mut namespaces = Vec::new();
    for _ in 0..syncs.div_ceil(IN_ONE) {
        namespaces.push(stage.cluster.namespace("team").await);
    }
    let limit = create_limit(&stage, &namespaces).await?;
    step("the operator");
    let mut crowd = Crowd::start(stage, syncs, namespaces).await?;
    crowd.first_sync(limit, report).await?;
    step("until all is quiet");
    crowd.stage.api.quiet(None).await?;
    same_manifests(&crowd.stage, &crowd.namespaces[0]).await?;
    crowd.stage.api.quiet(None).await?;
    step("idle");
    crowd.idle(report).await?;
    crowd.sizes(report)?;
    step("webhooks");
    crowd.webhooks(report).await?;
    step("one file changed");
    crowd.changes(report).await
}

/// The limit of the first sync: all agents, each in its namespace. They are deleted again. Milliseconds.
async fn create_limit(stage: &Stage<'_>, namespaces: &[String]) -> Outcome<f64> {
    let of = |index: usize| namespaces[index / AGENTS / IN_ONE].as_str();
    let all = || 0..stage.fleet.size;
    let mut best = f64::MAX;
    // As other limits: one of many seconds is measured once.
    for _ in 0..if stage.fleet.size <= 1000 { 3 } else { 1 } {
        let create = |i| Call::apply(of(i), stage.fleet.manifest(i, 1, of(i)), true);
        stage.api.quiet(None).await?;
        best = best.min(millis(stage.limit.run(all().map(create).collect(), WORKERS).await?));
        let delete = |i| Call::delete(of(i), &Fleet::name(i));
        stage.limit.run(all().map(delete).collect(), WORKERS).await?;
    }
    Ok(best)
}

/// A stage with many GitSyncs, on which the operator runs.
struct Crowd<'a> {
    stage: Stage<'a>,
    operator: Operator,
    syncs: usize,
    namespaces: Vec<String>,
    /// Those that they follow, unless all follow that of the stage.
    repositories: Option<Repositories>,
    store: PathBuf,
    /// Where the operator listens for webhooks.
    webhooks: SocketAddr,
    said: watch::Receiver<Said>,
    /// Ends the watch with the run.
    _watch: JoinSet<()>,
}

/// What the GitSyncs say.
#[derive(Default)]
struct Said {
    /// The applied commit of each that is Ready, and when it was seen, by name. No two have the same.
    commits: HashMap<String, (String, Instant)>,
    /// How many there are of each commit.
    counts: HashMap<String, usize>,
}

impl Said {
    fn take(&mut self, sync: &GitSync) {
        let name = sync.metadata.name.clone().unwrap_or_default();
        let before = match applied(sync) {
            Some(commit) => self.commits.insert(name, (commit.to_owned(), Instant::now())),
            None => self.commits.remove(&name),
        };
        if let Some(count) = before.and_then(|(before, _)| self.counts.get_mut(&before)) {
            *count -= 1;
        }
        if let Some(commit) = applied(sync) {
            *self.counts.entry(commit.to_owned()).or_default() += 1;
        }
    }

    /// When all of so many had the commit, if they do.
    fn all(&self, syncs: usize, commit: &str) -> Option<Instant> {
        let all = self.counts.get(commit) == Some(&syncs);
        all.then(|| self.commits.values().map(|(_, at)| *at).max())?
    }

    /// When one had the commit, if it does.
    fn one(&self, name: &str, commit: &str) -> Option<Instant> {
        let (applied, at) = self.commits.get(name)?;
        (applied == commit).then_some(*at)
    }
}

impl<'a> Crowd<'a> {
    /// Puts the model into each namespace, and starts the operator with a store whose size can be told.
    async fn start(stage: Stage<'a>, syncs: usize, namespaces: Vec<String>) -> Outcome<Self> {
        let admin = Limit::new(&stage.cluster.admin_kubeconfig()).await?;
        let model = |namespace: &String| {
            let path = collection(namespace, "modelapis");
            Call::apply_to(&path, "bench", Fleet::model_manifest(), true)
        };
        admin.run(namespaces.iter().map(model).collect(), WORKERS).await?;
        let store = stage.dir().join("store");
        let webhooks = SocketAddr::from(([127, 0, 0, 1], free_port()));
        let argument = format!("--data-dir={}", store.display());
        let listen = format!("--webhook-addr={webhooks}");
        let operator = stage.operator(&[&argument, &listen]).await?;
        let (said, watch) = follow(Api::all(stage.client.clone()));
        let repositories = match stage.options.repositories {
            1 => None,
            count => Some(Repositories::new(count, stage.dir())?),
        };
        Ok(Self {
            stage,
            operator,
            syncs,
            namespaces,
            repositories,
            store,
            webhooks,
            said,
            _watch: watch,
        })
    }

    fn key(&self, what: &str) -> Key {
        let count = self.repositories.as_ref().map(Repositories::count);
        let of = count.map_or_else(String::new, |count| format!(" of {count} repositories"));
        self.stage.key("P14", &format!("{} GitSyncs{of}: {what}", self.syncs))
    }

    fn name(sync: usize) -> String {
        format!("sync-{sync:04}")
    }

    fn namespace(&self, sync: usize) -> &str {
        &self.namespaces[sync / IN_ONE]
    }

    /// All GitSyncs are new, and what they want is there already.
    async fn first_sync(&mut self, limit: f64, report: &mut Report) -> Outcome<()> {
        let fleet = self.stage.fleet;
        let commits = if let Some(repositories) = &mut self.repositories {
            repositories.fill(fleet, self.syncs, AGENTS)
        } else {
            let files: Vec<_> =
                (0..fleet.size).map(|i| (fleet.path(i), fleet.document(i, 1))).collect();
            vec![self.stage.commit("all agents", &files, &[])]
        };
        let admin = Limit::new(&self.stage.cluster.admin_kubeconfig()).await?;
        let create = |sync: usize| {
            let object = json!({
                "apiVersion": "convoke.dev/v1alpha1", "kind": "GitSync",
                "metadata": {"name": Self::name(sync)},
                "spec": {"url": self.url(sync), "path": Fleet::folder(sync), "interval": "1m"},
            });
            let path = collection(self.namespace(sync), "gitsyncs");
            Call::apply_to(&path, "bench", object, true)
        };
        let creates = (0..self.syncs).map(create).collect();
        self.stage.api.quiet(None).await?;
        let began = Instant::now();
        admin.run(creates, WORKERS).await?;
        let created = millis(began.elapsed());
        let mut ended = began;
        for (repository, commit) in commits.iter().enumerate() {
            ended = ended.max(self.all_have(repository, commit).await?);
        }
        let row = report.add(self.key("first sync"), "ms", millis(ended - began), Some(limit));
        row.goal = Goal::Ratio(3.0);
        row.parts.entry("creates of the GitSyncs").or_default().push(created);
        Ok(())
    }

    /// Nothing happens but that each GitSync asks its remote each minute.
    async fn idle(&self, report: &mut Report) -> Outcome<()> {
        let (mark, length) = (self.stage.cluster.audit_mark(), self.stage.options.idle * 2);
        let before = self.operator.cpu_total_ms()?;
        tokio::time::sleep(length).await;
        let cpu = self.operator.cpu_total_ms()? - before;
        let mut writes = self.stage.cluster.writes_by(self.stage.user(), mark);
        writes.retain(|write| write.resource != "leases");
        let key = |what: &str| self.key(&format!("idle for {} s: {what}", length.as_secs()));
        report.add(key("share of a core"), "%", cpu / millis(length) * 100.0, None).goal =
            Goal::Value(5.0);
        // Thousands at most.
        #[allow(clippy::cast_precision_loss)]
        let count = writes.len() as f64;
        report.add(key("writes"), "", count, None).goal = Goal::Value(0.0);
        for write in writes.iter().take(5) {
            report.note(format!("P14, a write while idle: {write:?}"));
        }
        Ok(())
    }

    /// Memory and disk, as they are now.
    fn sizes(&self, report: &mut Report) -> Outcome<()> {
        let all = self.stage.controllers == Controllers::All;
        let goal = most_mib_with_syncs(self.syncs, self.stage.fleet.size, all);
        let goal = goal.map_or(Goal::Nothing, Goal::Value);
        let (now, peak) = (self.operator.resident_mib()?, self.operator.peak_mib()?);
        report.add(self.key("memory at rest"), "MiB", now, None).goal = goal;
        report.add(self.key("memory, peak"), "MiB", peak, None).goal = goal;
        let bytes =
            disk_bytes(&self.store).map_err(|e| format!("{}: {e}", self.store.display()))?;
        // Far below 2^52.
        #[allow(clippy::cast_precision_loss)]
        let mib = bytes as f64 / f64::from(1 << 20);
        report.add(self.key("disk"), "MiB", mib, None);
        Ok(())
    }

    /// P12: the first GitSync gets a webhook, and many deliveries one after the other over one connection.
    async fn webhooks(&self, report: &mut Report) -> Outcome<()> {
        let (name, namespace) = (Self::name(0), self.namespace(0));
        let admin = Limit::new(&self.stage.cluster.admin_kubeconfig()).await?;
        let rbac = format!("/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}");
        let group = "rbac.authorization.k8s.io";
        let apply = |path: &str, object: Value| Call::apply_to(path, "bench", object, false);
        let calls = vec![
            apply(
                &format!("/api/v1/namespaces/{namespace}/secrets"),
                json!({
                "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "hook"}, "stringData": {"token": TOKEN}}),
            ),
            apply(
                &format!("{rbac}/roles"),
                json!({
                "apiVersion": format!("{group}/v1"), "kind": "Role", "metadata": {"name": "hook"},
                "rules": [{"apiGroups": [""], "resources": ["secrets"], "resourceNames": ["hook"], "verbs": ["get"]}]}),
            ),
            apply(
                &format!("{rbac}/rolebindings"),
                json!({
                "apiVersion": format!("{group}/v1"), "kind": "RoleBinding", "metadata": {"name": "hook"},
                "roleRef": {"apiGroup": group, "kind": "Role", "name": "hook"},
                "subjects": [{"apiGroup": group, "kind": "User", "name": self.stage.user()}]}),
            ),
        ];
        admin.run(calls, 1).await?;
        let hook = json!({"spec": {"webhook": {"provider": "GenericHMAC", "secretRef": {"name": "hook"}}}});
        let api = self.api(0);
        let patched = api.patch(&name, &PatchParams::default(), &Patch::Merge(&hook)).await;
        patched.map_err(|error| format!("{name}: {error}"))?;
        let deadline = Instant::now() + Duration::from_secs(60);
        let path = loop {
            let status = api.get(&name).await.map_err(|e| format!("{name}: {e}"))?.status;
            let is_ready = |condition: &Condition| {
                (condition.type_.as_str(), condition.status.as_str()) == ("WebhookReady", "True")
            };
            let status = status.filter(|status| status.conditions.iter().any(is_ready));
            if let Some(path) = status.and_then(|status| status.webhook_path) {
                break path;
            }
            if Instant::now() > deadline {
                return Err("the webhook is not ready".into());
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        };
        let (url, client) = (format!("http://{}{path}", self.webhooks), reqwest::Client::new());
        let key = hmac::Key::new(hmac::HMAC_SHA256, TOKEN.as_bytes());
        let body = r#"{"ref": "refs/heads/main", "after": "0000", "commits": []}"#;
        let tag = hmac::sign(&key, body.as_bytes());
        let signature =
            tag.as_ref().iter().fold("sha256=".to_owned(), |all, b| all + &format!("{b:02x}"));
        let mut row = None;
        for number in 0..DELIVERIES {
            let request = client
                .post(&url)
                .header("X-Signature", &signature)
                .header("Idempotency-Key", number.to_string())
                .body(body);
            let began = Instant::now();
            let answer = request.send().await.map_err(|error| format!("{url}: {error}"))?;
            let taken = millis(began.elapsed());
            if answer.status() != 202 {
                return Err(format!("{url}: {}", answer.status()));
            }
            let key = self.stage.key("P12", &format!("{} GitSyncs: a webhook, p99", self.syncs));
            row = Some(report.add(key, "ms", taken, None));
        }
        if let Some(row) = row {
            (row.shown, row.goal) = (0.99, Goal::Value(10.0));
        }
        self.stage.api.quiet(None).await.map(|_| ())
    }

    /// One file changes, several times, each of another GitSync; that one is told, the others find the commit at their
    /// interval.
    async fn changes(&mut self, report: &mut Report) -> Outcome<()> {
        let floor = Floor::new(&self.stage).await?;
        for number in 0..CHANGES {
            // The controllers work for the floor's agent, too.
            self.stage.api.quiet(None).await?;
            let (sync, revision) = ((number * 397 + 13) % self.syncs, 100 + number);
            let index = sync * AGENTS + 3;
            let fleet = self.stage.fleet;
            let file = (fleet.path(index), fleet.document(index, revision));
            let before = self.operator.cpu_total_ms()?;
            let commit = match &self.repositories {
                Some(repositories) => repositories.change(sync, file),
                None => self.stage.commit("one agent", &[file], &[]),
            };
            let began = self.wake(sync, number).await?;
            let name = Self::name(sync);
            let ms = millis(self.wait(|said| said.one(&name, &commit)).await? - began);
            let told = self.api(sync).get(&name).await.map_err(|e| format!("{name}: {e}"))?;
            let all = self.all_have(self.repository(sync), &commit).await?;
            self.stage.api.quiet(None).await?;
            let cpu = self.operator.cpu_total_ms()? - before;
            let floor = floor.measure(&self.stage, index, revision).await?;
            let row = report.add(self.key("one changed file"), "ms", ms, Some(floor));
            row.goal = Goal::Ratio(1.5);
            stages(row, &told);
            let key = self.key("one changed file: until all have its commit");
            report.add(key, "ms", millis(all - began), None);
            let key = self.key("one changed file: CPU until all have its commit and all is quiet");
            report.add(key, "ms", cpu, None);
        }
        Ok(())
    }

    fn api(&self, sync: usize) -> Api<GitSync> {
        Api::namespaced(self.stage.client.clone(), self.namespace(sync))
    }

    /// Asks for a sync of one; says when that was.
    async fn wake(&self, sync: usize, number: usize) -> Outcome<Instant> {
        let request = json!({keys::REQUESTED_AT: format!("request-{number}")});
        let patch = Patch::Merge(json!({"metadata": {"annotations": request}}));
        let began = Instant::now();
        self.api(sync)
            .patch(&Self::name(sync), &PatchParams::default(), &patch)
            .await
            .map_err(|error| format!("ask for a sync: {error}"))?;
        Ok(began)
    }

    /// The URL of the repository of a GitSync.
    fn url(&self, sync: usize) -> String {
        self.repositories.as_ref().map_or_else(|| self.stage.url.clone(), |all| all.url(sync))
    }

    /// The number of the repository of a GitSync.
    fn repository(&self, sync: usize) -> usize {
        self.repositories.as_ref().map_or(0, |all| all.of(sync))
    }

    /// Waits until all that follow a repository say that they have applied the commit; says when that was.
    async fn all_have(&mut self, repository: usize, commit: &str) -> Outcome<Instant> {
        let syncs = (0..self.syncs).filter(|sync| self.repository(*sync) == repository).count();
        self.wait(|said| said.all(syncs, commit)).await
    }

    /// Waits for that moment.
    async fn wait(&mut self, good: impl Fn(&Said) -> Option<Instant>) -> Outcome<Instant> {
        let patience = Duration::from_secs(600 + 3 * self.syncs as u64);
        let found = self.said.wait_for(|said| good(said).is_some());
        let found = tokio::time::timeout(patience, found).await;
        match found.map(|found| found.map(|said| good(&said))) {
            Ok(Ok(at)) => return at.ok_or_else(|| "no moment".to_owned()),
            Ok(Err(_)) => return Err("the watch of the GitSyncs ended".into()),
            Err(_) => self.operator.check()?,
        }
        let syncs = Api::<GitSync>::all(self.stage.client.clone());
        let all = syncs.list(&ListParams::default()).await.map_err(|e| e.to_string())?;
        let open = all.items.iter().filter(|sync| applied(sync).is_none());
        let conditions =
            open.clone().next().and_then(|sync| Some(&sync.status.as_ref()?.conditions));
        let (said, open) = (self.said.borrow(), open.count());
        let counts = &said.counts;
        Err(format!(
            "not within {patience:?}; GitSyncs by commit: {counts:?}; {open} are not Ready, one says {}",
            json!(conditions)
        ))
    }
}

fn collection(namespace: &str, plural: &str) -> String {
    format!("/apis/convoke.dev/v1alpha1/namespaces/{namespace}/{plural}")
}

/// Bytes on disk of all files in a folder. What goes meanwhile takes none.
fn disk_bytes(path: &Path) -> std::io::Result<u64> {
    let gone = |error: std::io::Error| match error.kind() {
        std::io::ErrorKind::NotFound => Ok(0),
        _ => Err(error),
    };
    let meta = match std::fs::symlink_metadata(path) {
        Ok(meta) => meta,
        Err(error) => return gone(error),
    };
    let mut bytes = meta.blocks() * 512;
    if meta.is_dir() {
        let entries = match std::fs::read_dir(path) {
            Ok(entries) => entries,
            Err(error) => return gone(error),
        };
        for entry in entries {
            bytes += disk_bytes(&entry?.path())?;
        }
    }
    Ok(bytes)
}

/// Follows all GitSyncs by a watch until the set is dropped.
fn follow(syncs: Api<GitSync>) -> (watch::Receiver<Said>, JoinSet<()>) {
    let (tell, hear) = watch::channel(Said::default());
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        let mut events =
            std::pin::pin!(watcher(syncs, watcher::Config::default()).default_backoff());
        while let Some(event) = events.next().await {
            if let Ok(Event::Apply(sync) | Event::InitApply(sync)) = event {
                tell.send_modify(|said| said.take(&sync));
            }
        }
    });
    (hear, tasks)
}
