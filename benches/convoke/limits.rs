//! What the machine can do, measured before the operator starts: the same objects, written by the least client.

use crate::limit::Call;
use crate::options::{Controllers, Options};
use crate::report::{Goal, Report};
use crate::repository::Fleet;
use crate::stage::{Outcome, Stage, millis, timed};

/// Milliseconds for what P1, P3 and P4 do.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// All agents created.
    pub create: f64,
    /// All agents changed.
    pub change: f64,
    /// One agent in ten deleted.
    pub delete: f64,
}

/// How many agents P4 prunes.
pub fn pruned(size: usize) -> usize {
    (size / 10).max(1)
}

/// Measures the limit in a namespace of its own, and empties that. What others do on the machine can only make it
/// slower: the best of some tries is closest to what the machine can do. Large fleets are tried once: a short
/// disturbance is small against them.
pub async fn limits(stage: &Stage<'_>) -> Outcome<Limits> {
    let namespace = stage.cluster.namespace("limit").await;
    let mut best = once(stage, &namespace).await?;
    for _ in 1..if stage.fleet.size <= 1000 { 3 } else { 1 } {
        let next = once(stage, &namespace).await?;
        best = Limits {
            create: best.create.min(next.create),
            change: best.change.min(next.change),
            delete: best.delete.min(next.delete),
        };
    }
    Ok(best)
}

async fn once(stage: &Stage<'_>, namespace: &str) -> Outcome<Limits> {
    let (fleet, workers) = (stage.fleet, stage.workers);
    let calls = |revision, create| {
        let manifest = |index| fleet.manifest(index, revision, namespace);
        (0..fleet.size)
            .map(|index| Call::apply(namespace, manifest(index), create))
            .collect::<Vec<_>>()
    };
    let deletes = |range: std::ops::Range<usize>| {
        range.map(|index| Call::delete(namespace, &Fleet::name(index))).collect::<Vec<_>>()
    };
    stage.api.quiet(None).await?;
    let create = millis(stage.limit.run(calls(1, true), workers).await?);
    if stage.controllers == Controllers::All {
        let statuses = (0..fleet.size).map(|index| Call::status(namespace, &Fleet::name(index)));
        stage.limit.run(statuses.collect(), workers).await?;
    }
    stage.api.quiet(None).await?;
    let change = millis(stage.limit.run(calls(2, false), workers).await?);
    let kept = fleet.size - pruned(fleet.size);
    let delete = millis(stage.limit.run(deletes(kept..fleet.size), workers).await?);
    stage.limit.run(deletes(0..kept), workers).await?;
    Ok(Limits { create, change, delete })
}

/// The same agents by `kubectl apply --server-side --prune`, for comparison.
pub async fn kubectl(stage: &Stage<'_>, limits: Limits, report: &mut Report) -> Outcome<()> {
    let namespace = stage.cluster.namespace("kubectl").await;
    let folder = stage.dir().join("kubectl");
    std::fs::create_dir(&folder).map_err(|error| error.to_string())?;
    for index in 0..stage.fleet.size {
        let file = folder.join(format!("{}.yaml", Fleet::name(index)));
        std::fs::write(file, stage.fleet.document(index, 1)).map_err(|error| error.to_string())?;
    }
    stage.api.quiet(None).await?;
    let took = timed(
        stage
            .cluster
            .kubectl_command()
            .env("KUBECTL_APPLYSET", "true")
            .args(["apply", "--server-side", "--prune", "--applyset=bench", "-n", &namespace, "-f"])
            .arg(&folder),
    )?;
    let key = stage.key(Options::creation(stage.fleet.size), "kubectl apply --server-side --prune");
    report.add(key, "ms", millis(took), Some(limits.create)).goal = Goal::Nothing;
    let delete = (0..stage.fleet.size).map(|i| Call::delete(&namespace, &Fleet::name(i)));
    stage.limit.run(delete.collect(), stage.workers).await?;
    Ok(())
}

/// Whether kubectl is compared on this stage: once, as it is slow.
pub fn compares_kubectl(stage: &Stage<'_>) -> bool {
    stage.first && stage.controllers == Controllers::None && stage.fleet.size <= 1000
}
