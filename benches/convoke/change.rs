//! P2, P5 and P7: one changed file, or none.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::limit::Call;
use crate::report::{Goal, Report};
use crate::repository::Fleet;
use crate::stage::{Outcome, Running, Stage, millis, timed};
use crate::support::{AuditMark, AuditRecord};
use crate::whole::stages;

/// One-file changes in one run.
pub const CHANGES: usize = 3;

/// P2 and P7: time and CPU time of a one-file change, several times.
pub async fn one_file(run: &mut Running<'_>, report: &mut Report) -> Outcome<()> {
    let floor = Floor::new(&run.stage).await?;
    for number in 0..CHANGES {
        // The controllers work for the floor's agent, too.
        run.quiet().await?;
        // Different folders.
        let index = (number * 997 + 13) % run.stage.fleet.size;
        let revision = 100 + number;
        let file = (run.stage.fleet.path(index), run.stage.fleet.document(index, revision));
        let (mark, idle_ms) = (run.operator.cpu(), run.idle_ms);
        let began = std::time::Instant::now();
        let (ms, sync) = run.push("one agent", &[file], &[]).await?;
        let until_ready = run.operator.cpu_ms_since(&mark);
        run.quiet().await?;
        let all = run.operator.cpu_ms_since(&mark) - idle_ms * began.elapsed().as_secs_f64();
        let floor = floor.measure(&run.stage, index, revision).await?;
        if run.stage.options.wants(&["P2"]) {
            let key = run.stage.key("P2", "one changed file");
            let row = report.add(key, "ms", ms, Some(floor));
            row.goal = Goal::Ratio(1.5);
            stages(row, &sync);
        }
        if run.stage.options.wants(&["P7"]) {
            let row = report.add(run.stage.key("P7", "CPU until applied"), "ms", until_ready, None);
            row.goal = Goal::Value(20.0);
            report.add(run.stage.key("P7", "CPU until all is quiet"), "ms", all.max(0.0), None);
        }
    }
    Ok(())
}

/// What reading a commit needs at least: ask the remote, fetch what is new.
pub struct Reading {
    clone: PathBuf,
}

impl Reading {
    /// A shallow clone of what is there now.
    pub fn new(stage: &Stage<'_>, name: &str) -> Outcome<Self> {
        let clone = stage.dir().join(name);
        timed(git().args(["init", "-q", "--bare"]).arg(&clone))?;
        let reading = Self { clone };
        timed(&mut reading.fetch(&stage.url))?;
        Ok(reading)
    }

    /// Asks and fetches.
    pub fn measure(&self, stage: &Stage<'_>) -> Outcome<Duration> {
        let mut ask = git_in(&self.clone);
        let asked = timed(ask.args(["ls-remote", "-q", &stage.url, "refs/heads/main"]))?;
        Ok(asked + timed(&mut self.fetch(&stage.url))?)
    }

    fn fetch(&self, url: &str) -> Command {
        let mut command = git_in(&self.clone);
        command.args([
            "fetch",
            "-q",
            "--no-tags",
            "--depth",
            "1",
            url,
            "+main:refs/remotes/origin/main",
        ]);
        command
    }
}

/// What a one-file change needs: reading it, and applying one object.
pub struct Floor {
    reading: Reading,
    namespace: String,
}

impl Floor {
    /// A clone, and an agent in a namespace of its own.
    pub async fn new(stage: &Stage<'_>) -> Outcome<Self> {
        let reading = Reading::new(stage, "floor.git")?;
        let namespace = stage.cluster.namespace("floor").await;
        let call = Call::apply(&namespace, stage.fleet.manifest(0, 1, &namespace), true);
        stage.limit.run(vec![call], 1).await?;
        Ok(Self { reading, namespace })
    }

    /// The change that the operator has just synced, done by hand. Milliseconds.
    pub async fn measure(&self, stage: &Stage<'_>, index: usize, revision: usize) -> Outcome<f64> {
        let read = self.reading.measure(stage)?;
        let mut manifest = stage.fleet.manifest(index, revision, &self.namespace);
        manifest["metadata"]["name"] = Fleet::name(0).into();
        let call = Call::apply(&self.namespace, manifest, false);
        let applied = stage.limit.run(vec![call], 1).await?;
        Ok(millis(read + applied))
    }
}

fn git_in(folder: &Path) -> Command {
    let mut command = git();
    command.arg("-C").arg(folder);
    command
}

/// git, without anybody's configuration and without work on the side.
fn git() -> Command {
    let mut command = Command::new("git");
    command
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env_remove("GIT_DIR")
        .args(["-c", "gc.auto=0", "-c", "maintenance.auto=false"]);
    command
}

/// P5: what is asked of the API server when nothing changed: the same commit, and one that changes no definition.
pub async fn nothing(run: &mut Running<'_>, report: &mut Report) -> Outcome<()> {
    let mark = run.stage.cluster.audit_mark();
    let (_, request) = run.wake().await?;
    run.wait(|sync| {
        sync.status.as_ref().and_then(|status| status.last_handled_reconcile_at.as_ref())
            == Some(&request)
    })
    .await?;
    run.quiet().await?;
    count(run, "same commit", mark, report);

    let mark = run.stage.cluster.audit_mark();
    let file = ("README.md".to_owned(), "Our agents.\n".to_owned());
    run.push("read me", &[file], &[]).await?;
    run.quiet().await?;
    count(run, "commit without definitions", mark, report);
    Ok(())
}

/// Adds the operator's requests since then, without watches (they are counted when they end).
fn count(run: &Running<'_>, what: &str, mark: AuditMark, report: &mut Report) {
    let requests = run.stage.cluster.requests_by(run.stage.user(), mark);
    let requests = requests.iter().filter(|request| request.verb != "watch");
    let (own, objects): (Vec<_>, Vec<_>) = requests
        .partition(|request| ["gitsyncs", "leases", "events"].contains(&request.resource.as_str()));
    let mut kinds = BTreeMap::<_, usize>::new();
    for AuditRecord { verb, resource, subresource, .. } in &objects {
        *kinds
            .entry(format!("{verb} {resource} {subresource}").trim_end().to_owned())
            .or_default() += 1;
    }
    if !kinds.is_empty() {
        let (agents, controllers) = (run.stage.fleet.size, run.stage.controllers.as_str());
        report.note(format!(
            "P5 {what}, {agents} agents, controllers {controllers}: requests for objects: {kinds:?}"
        ));
    }
    // Thousands at most.
    #[allow(clippy::cast_precision_loss)]
    let (own, objects) = (own.len() as f64, objects.len() as f64);
    report
        .add(run.stage.key("P5", &format!("{what}: requests for objects")), "", objects, None)
        .goal = Goal::Value(0.0);
    report.add(run.stage.key("P5", &format!("{what}: GitSync, events")), "", own, None);
}
