//! The operator is killed before and after every write of a scenario of builds ([`support::build_story`]).
//!
//! The rule, for each of these points:
//!
//! - Each step ends in the same state as without a kill: statuses, PipelineRuns, Secrets.
//! - Tekton could begin with the same tries of the same keys, with each of them once, and with one at a time.
//! - Each PipelineRun is its AgentBuild's at all times, and has its Secrets when Tekton may begin with it.
//! - The end of the AgentBuilds leaves neither a PipelineRun nor a Secret.
//! - A kill makes at most [`MORE_RUNS`] more PipelineRuns, which Tekton never began with, and writes one status at most [`MORE_STATUSES`] times more.
//!
//! Without `CONVOKE_FULL` some points are drawn, as in `tests/api/crash_points.rs`.

use std::panic::AssertUnwindSafe;
use std::time::Instant;

use futures::{FutureExt, StreamExt, stream};

use super::*;
use support::build_story::{BuildPlayed, BuildStage, STEPS};
use support::cluster::cluster_for;
use support::points::{around, chosen, say};
use support::proxy::{Effect, Moment, Point, Write};
use support::team::ARGS;

/// Points that are tried without `CONVOKE_FULL`.
const DRAWN: usize = 4;
/// Operators that run side by side.
const LANES: usize = 2;
/// A run that was left pending is removed, and another one is made.
const MORE_RUNS: usize = 1;
/// The new operator says what it sees on its way to where the old one was.
const MORE_STATUSES: usize = 8;

#[tokio::test(flavor = "multi_thread")]
async fn c1_b7_killed_at_any_write_of_a_build_each_try_runs_once_and_all_ends_the_same() {
    let cluster = cluster_for("crash points of builds").await;
    install_tekton(cluster);
    install_templates(cluster);
    let args = [ARGS, &["--max-builds-per-namespace=1"]].concat();
    let stage = BuildStage::new(cluster, &args).await;
    let reference = stage.play(None, None).await.unwrap_or_else(|why| panic!("no kill: {why}"));
    let all = points(&reference.writes);
    let (points, how) = chosen(all.clone(), DRAWN);
    let (began, tried) = (Instant::now(), points.len());
    let outcomes: Vec<_> = stream::iter(points)
        .map(|point| {
            let (stage, reference) = (&stage, &reference);
            async move {
                let attempt = AssertUnwindSafe(attempt(stage, reference, point.clone()));
                let outcome = attempt.catch_unwind().await;
                let outcome = outcome.unwrap_or_else(|_| Err("a panic, see above".to_owned()));
                if let Err(why) = &outcome {
                    say(&format!("FAILED: {point}\n{why}\n"));
                }
                (point, outcome)
            }
        })
        .buffer_unordered(LANES)
        .collect()
        .await;
    let failed = outcomes.iter().filter(|(_, outcome)| outcome.is_err());
    let names: Vec<_> = failed.map(|(point, _)| point.to_string()).collect();
    let reached = outcomes.iter().filter(|(_, outcome)| *outcome == Ok(true)).count();
    say(&format!(
        "builds: {tried} of {} crash points ({how}) in {} s: killed at {reached}, {} failed",
        all.len(),
        began.elapsed().as_secs(),
        names.len(),
    ));
    assert!(
        names.is_empty(),
        "{how}; one of them again: CONVOKE_POINTS='{}' cargo test --test api agent_build::crash_points\n{}",
        names[0],
        names.join("\n")
    );
    assert!(reached * 2 >= tried, "most points must be reached, or nothing is tested");
}

/// Before and after every write of a build; and what is no status may come late. What is created in the last step but one may not: it would come when
/// its GitSync and its AgentBuild are gone. Kubernetes removes such a PipelineRun; such an AgentBuild is for the tests of GitSyncs.
fn points(writes: &[Write]) -> Vec<Point> {
    let of_builds = |write: &&Write| {
        let what = &write.target.what;
        ["agentbuilds/", "pipelineruns/", "secrets/"].iter().any(|kind| what.starts_with(kind))
    };
    let mut points = around(writes.iter().filter(of_builds), |what| !what.contains("/status/"));
    let is_created = |point: &Point| {
        let is_it = |write: &&Write| write.target == point.target && write.nth == point.nth;
        writes.iter().find(is_it).is_some_and(|write| write.effect == Effect::Created)
    };
    points.retain(|point| {
        point.moment != Moment::Late || point.target.step != "queue" || !is_created(point)
    });
    points
}

/// Plays with a kill at that point, and says whether it was reached.
async fn attempt(
    stage: &BuildStage,
    reference: &BuildPlayed,
    point: Point,
) -> Result<bool, String> {
    let played = stage.play(Some(point.clone()), Some(reference)).await?;
    let steps = &STEPS[..played.portraits.len()];
    if played.portraits.len() == STEPS.len() && played.begun != reference.begun {
        return Err(format!("began: {:?}\ninstead of: {:?}", played.begun, reference.begun));
    }
    if let Some(more) = played.begun.difference(&reference.begun).next() {
        return Err(format!("nobody wanted {more:?}"));
    }
    let count = |writes: &[Write], is: &dyn Fn(&Write) -> bool| {
        let known = |write: &&Write| steps.contains(&write.target.step.as_str());
        writes.iter().filter(known).filter(|write| is(write)).count()
    };
    let more = |is: &dyn Fn(&Write) -> bool| {
        count(&played.writes, is).saturating_sub(count(&reference.writes, is))
    };
    let made = |write: &Write| {
        write.effect == Effect::Created && write.target.what.starts_with("pipelineruns/")
    };
    let runs = more(&made);
    if runs > MORE_RUNS {
        return Err(format!("{runs} more PipelineRuns were made than without a kill"));
    }
    for build in ["b0", "b1", "b2"] {
        let what = format!("agentbuilds/status/{build}");
        let statuses = more(&|write: &Write| write.target.what == what);
        if statuses > MORE_STATUSES {
            return Err(format!("{what} was written {statuses} times more than without a kill"));
        }
    }
    let is_status = point.target.what.contains("/status/");
    if !played.killed && point.nth == 1 && !is_status {
        return Err("this write did not happen".to_owned());
    }
    Ok(played.killed)
}
