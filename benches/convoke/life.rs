//! P9, P10 and P11: edits by hand, a restart, and a quiet hour.

use std::time::{Duration, Instant};

use convoke::api::Agent;
use futures::StreamExt;
use kube::api::{Api, Patch, PatchParams};
use kube::runtime::watcher::Event;
use kube::runtime::{WatchStreamExt, watcher};
use serde_json::json;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::report::{Goal, Report};
use crate::repository::Fleet;
use crate::stage::{Outcome, Running, millis};
use crate::whole::{memory, stages};

/// Edits that P9 makes, each of another agent.
const EDITS: usize = 100;
/// P9 ends early when reverting is slow.
const EDITING: Duration = Duration::from_secs(180);

/// P9: somebody edits an agent; how long until it is as Git says again? Measured from before the edit is sent.
pub async fn drift(run: &mut Running<'_>, report: &mut Report) -> Outcome<()> {
    let agents: Api<Agent> = Api::namespaced(run.stage.client.clone(), &run.stage.namespace);
    let (_watch, mut seen) = follow(agents.clone());
    let (began, params) = (Instant::now(), PatchParams::default());
    let mut done = 0;
    for number in 0..EDITS.min(run.stage.fleet.size) {
        if began.elapsed() > EDITING {
            break;
        }
        let index = number * run.stage.fleet.size / EDITS.min(run.stage.fleet.size);
        let name = Fleet::name(index);
        let patch = json!({"spec": {"description": "edited by hand"}});
        let edited = Instant::now();
        let edit = agents.patch(&name, &params, &Patch::Merge(&patch)).await;
        let edit = edit.map_err(|error| format!("edit {name}: {error}"))?;
        let edit = version(&edit);
        let reverted = loop {
            let next = tokio::time::timeout(run.stage.patience(), seen.recv()).await;
            let Ok(Some((at, agent))) = next else {
                return Err(format!("{name} was not reverted"));
            };
            let good =
                agent.spec.description.as_deref() == Some(Fleet::description(index).as_str());
            if good && version(&agent) > edit && agent.metadata.name.as_deref() == Some(&name) {
                break at;
            }
        };
        let ms = millis(reverted - edited);
        for (what, shown, goal) in [
            ("edit to reverted, median", 0.5, Goal::Nothing),
            ("edit to reverted, p99", 0.99, Goal::Value(200.0)),
        ] {
            let row = report.add(run.stage.key("P9", what), "ms", ms, None);
            (row.shown, row.goal) = (shown, goal);
        }
        done += 1;
    }
    if done < EDITS {
        let agents = run.stage.fleet.size;
        report.note(format!("P9 with {agents} agents: {done} edits instead of {EDITS}"));
    }
    run.quiet().await
}

fn version(agent: &Agent) -> u64 {
    agent.metadata.resource_version.as_deref().and_then(|v| v.parse().ok()).unwrap_or(0)
}

/// Every state of every agent, with the moment at which it was seen, until the set is dropped.
fn follow(agents: Api<Agent>) -> (JoinSet<()>, mpsc::Receiver<(Instant, Agent)>) {
    let (tell, hear) = mpsc::channel(10_000);
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        let events = watcher(agents, watcher::Config::default()).default_backoff();
        let mut events = std::pin::pin!(events);
        while let Some(event) = events.next().await {
            if let Ok(Event::Apply(agent)) = event
                && tell.send((Instant::now(), agent)).await.is_err()
            {
                return;
            }
        }
    });
    (tasks, hear)
}

/// P10: the operator is killed and started again. Ready is `/readyz`; settled is when a sync that was asked for
/// meanwhile is handled. The status that says so is the one write that is expected.
pub async fn restart(run: &mut Running<'_>, report: &mut Report) -> Outcome<()> {
    // What earlier steps changed last is not left to do after the start.
    run.quiet().await?;
    run.operator.kill();
    let (mark, from) = (run.stage.cluster.audit_mark(), run.stage.api.audit_end());
    let (_, request) = run.wake().await?;
    run.stage.api.quiet(None).await?;
    let began = Instant::now();
    run.operator.spawn()?;
    let ready = run.operator.ready(run.stage.patience()).await?;
    let (handled, sync) = run
        .wait(|sync| {
            let status = sync.status.as_ref();
            status.and_then(|status| status.last_handled_reconcile_at.as_ref()) == Some(&request)
        })
        .await?;
    run.quiet().await?;
    let writes = run.stage.cluster.writes_by(run.stage.user(), mark);
    let expected =
        writes.iter().position(|w| w.resource == "gitsyncs" && w.subresource == "status");
    let lists = run.stage.api.lists_by(run.stage.user(), from)?;
    // The best of three: nobody else should be on the machine meanwhile.
    let mut listed = Duration::MAX;
    for _ in 0..3 {
        listed = listed.min(run.stage.limit.read_all(&lists).await?);
    }
    let listed = Some(millis(listed));
    let row =
        report.add(run.stage.key("P10", "restart to ready"), "ms", millis(ready - began), listed);
    row.goal = Goal::Ratio(1.3);
    let row = report.add(
        run.stage.key("P10", "restart to settled"),
        "ms",
        millis(handled - began),
        listed,
    );
    stages(row, &sync);
    let mut others = writes;
    expected.map(|place| others.remove(place));
    for write in others.iter().take(5) {
        report.note(format!("P10, a write after the restart: {write:?}"));
    }
    // Thousands at most.
    #[allow(clippy::cast_precision_loss)]
    let unexpected = others.len() as f64;
    report.add(run.stage.key("P10", "restart: writes"), "", unexpected, None).goal =
        Goal::Value(0.0);
    if run.stage.options.wants(&["P6"]) {
        memory(run, "peak after a restart", report)?;
    }
    Ok(())
}

/// P11: nothing happens for a while.
pub async fn idle(run: &mut Running<'_>, report: &mut Report) -> Outcome<()> {
    let (mark, length) = (run.stage.cluster.audit_mark(), run.stage.options.idle);
    let before = run.operator.cpu_total_ms()?;
    tokio::time::sleep(length).await;
    let cpu = run.operator.cpu_total_ms()? - before;
    let mut writes = run.stage.cluster.writes_by(run.stage.user(), mark);
    writes.retain(|write| write.resource != "leases");
    let seconds = length.as_secs();
    // Thousands at most.
    #[allow(clippy::cast_precision_loss)]
    let writes = writes.len() as f64;
    let key = |what: &str| run.stage.key("P11", &format!("idle for {seconds} s: {what}"));
    report.add(key("writes"), "", writes, None).goal = Goal::Value(0.0);
    let share = cpu / millis(length) * 100.0;
    report.add(key("share of a core"), "%", share, None).goal = Goal::Value(1.0);
    Ok(())
}
