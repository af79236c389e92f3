//! P1, P1b, P3, P4 and P6: many objects at once.

use convoke::api::GitSync;
use kube::api::Api;
use serde_json::Value;

use crate::change::Reading;
use crate::limit::Call;
use crate::limits::{Limits, pruned};
use crate::numbers::most_mib;
use crate::options::{Controllers, Options};
use crate::report::{Goal, Report, Row};
use crate::repository::Fleet;
use crate::stage::{Outcome, Running, Stage, millis};

/// P1 and P1b: all agents are new. Always done, as everything else needs them.
pub async fn create(
    run: &mut Running<'_>,
    limits: Option<Limits>,
    report: &mut Report,
) -> Outcome<()> {
    let fleet = run.stage.fleet;
    let files: Vec<_> = (0..fleet.size).map(|i| (fleet.path(i), fleet.document(i, 1))).collect();
    let (ms, sync) = run.push("all agents", &files, &[]).await?;
    if let Some(limits) = limits {
        let key = run.stage.key(Options::creation(fleet.size), "new agents");
        let row = report.add(key, "ms", ms, Some(limits.create));
        row.goal = Goal::Ratio(1.3);
        stages(row, &sync);
    }
    run.quiet().await
}

/// P6: the peak after the agents were created and their children settled.
pub fn memory(run: &Running<'_>, what: &str, report: &mut Report) -> Outcome<()> {
    let row = report.add(run.stage.key("P6", what), "MiB", run.operator.peak_mib()?, None);
    row.goal = match run.stage.controllers {
        Controllers::None => Goal::Nothing,
        Controllers::All => most_mib(run.stage.fleet.size).map_or(Goal::Nothing, Goal::Value),
    };
    Ok(())
}

/// P3: every file changes.
pub async fn change(run: &mut Running<'_>, limits: Limits, report: &mut Report) -> Outcome<()> {
    let fleet = run.stage.fleet;
    let files: Vec<_> = (0..fleet.size).map(|i| (fleet.path(i), fleet.document(i, 2))).collect();
    let mark = run.operator.cpu();
    let (ms, sync) = run.push("all changed", &files, &[]).await?;
    let used = run.operator.cpu_ms_since(&mark);
    report.note(format!(
        "P3: until all was applied the operator used {used:.0} ms of processor time"
    ));
    let row = report.add(run.stage.key("P3", "all changed"), "ms", ms, Some(limits.change));
    row.goal = Goal::Ratio(1.3);
    stages(row, &sync);
    run.quiet().await
}

/// P4: one file in ten leaves; that is below the brake, so nobody has to approve it. Its limit is reading the commit and
/// deleting; the deletes alone are shown beside it.
pub async fn prune(run: &mut Running<'_>, limits: Limits, report: &mut Report) -> Outcome<()> {
    let fleet = run.stage.fleet;
    let gone: Vec<_> =
        (fleet.size - pruned(fleet.size)..fleet.size).map(|i| fleet.path(i)).collect();
    let reading = Reading::new(&run.stage, "prune.git")?;
    let (ms, sync) = run.push("one in ten left", &[], &gone).await?;
    let read = millis(reading.measure(&run.stage)?);
    let key = run.stage.key("P4", "one in ten pruned");
    let row = report.add(key, "ms", ms, Some(read + limits.delete));
    row.goal = Goal::Ratio(1.5);
    stages(row, &sync);
    let alone = sync.status.and_then(|status| status.stages).map(|stages| stages.apply_ms);
    // Less than a day.
    #[allow(clippy::cast_precision_loss)]
    if let Some(alone) = alone.map(|ms| ms as f64) {
        let key = run.stage.key("P4", "one in ten pruned: the deletes alone");
        report.add(key, "ms", alone, Some(limits.delete)).goal = Goal::Ratio(1.5);
    }
    run.quiet().await
}

/// Where the time went, as the GitSync says it.
pub fn stages(row: &mut Row, sync: &GitSync) {
    let Some(stages) = sync.status.as_ref().and_then(|status| status.stages.as_ref()) else {
        return;
    };
    let parts = [
        ("1 resolve", stages.resolve_ms),
        ("2 fetch", stages.fetch_ms),
        ("3 load", stages.load_ms),
        ("4 plan", stages.plan_ms),
        ("5 apply", stages.apply_ms),
    ];
    for (name, ms) in parts {
        // Less than a day.
        #[allow(clippy::cast_precision_loss)]
        row.parts.entry(name).or_default().push(ms as f64);
    }
}

/// Makes sure that the limit writes what Convoke writes: one agent of each, compared on the server. Convoke's are in
/// that namespace. Controllers work for the limit's agent, too.
pub async fn same_manifests(stage: &Stage<'_>, ours: &str) -> Outcome<()> {
    let namespace = stage.cluster.namespace("same").await;
    let call = Call::apply(&namespace, stage.fleet.manifest(0, 1, &namespace), true);
    stage.limit.run(vec![call], 1).await?;
    let name = Fleet::name(0);
    let (theirs, ours) = (agent(stage, &namespace, &name).await?, agent(stage, ours, &name).await?);
    stage.limit.run(vec![Call::delete(&namespace, &name)], 1).await?;
    let keys = |object: &Value| {
        let map = object.pointer("/metadata/annotations").and_then(Value::as_object);
        map.map(|map| map.keys().cloned().collect::<Vec<_>>())
    };
    let labels = |object: &Value| object.pointer("/metadata/labels").cloned();
    if theirs["spec"] == ours["spec"]
        && keys(&theirs) == keys(&ours)
        && labels(&theirs) == labels(&ours)
    {
        return Ok(());
    }
    Err(format!("the limit would write other objects than Convoke:\n{theirs}\n{ours}"))
}

async fn agent(stage: &Stage<'_>, namespace: &str, name: &str) -> Outcome<Value> {
    let api: Api<convoke::api::Agent> = Api::namespaced(stage.client.clone(), namespace);
    let agent = api.get(name).await.map_err(|error| format!("agent {name}: {error}"))?;
    serde_json::to_value(agent).map_err(|error| error.to_string())
}
