//! The operator is killed before and after every write of a scenario. Each time it must end where an undisturbed one
//! ends, with the same writes.
//!
//! Without `CONVOKE_FULL` some points are drawn, always the same ones; another `CONVOKE_SEED` draws others. `CONVOKE_POINTS=TEXT` tries
//! all points with that text in their name, and nothing else.
#![allow(clippy::expect_used, clippy::panic, clippy::disallowed_types, clippy::disallowed_methods)]

use crate::support;

use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;
use std::time::Instant;

use convoke::api::Kind;
use futures::{FutureExt, StreamExt, stream};
use support::cluster::cluster_for;
use support::points::{around, chosen, say};
use support::proxy::{Effect, Moment, Point, Target, Write};
use support::story::{Played, STEPS, Stage};
use support::team::ARGS;

/// Points that are tried without `CONVOKE_FULL`, in each of the two tests.
const DRAWN: usize = 5;
/// Operators that run side by side in each of the two tests.
const LANES: usize = 2;
/// Writes without effect that a kill may cost: what was begun is asked for once more, and what changed meanwhile is
/// refused before it is looked at again.
const MORE_IDLE: usize = 3;
/// The same while changes by hand are undone, killed or not: an apply and a replace, tried again while a controller writes
/// the object's status.
const MORE_RETRIES: usize = 12;
/// Writes of one status that a kill may cost: the new operator says what it sees on its way to where the old one was.
const MORE_STATUSES: usize = 8;

#[tokio::test(flavor = "multi_thread")]
async fn c1_killed_at_any_write_of_the_engine_it_ends_the_same_with_the_same_writes() {
    campaign("none").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn c1_killed_at_any_write_of_all_controllers_it_ends_the_same_with_the_same_writes() {
    campaign("all").await;
}

async fn campaign(controllers: &str) {
    let cluster = cluster_for("crash points").await;
    let mut args = ARGS.to_vec();
    let flag = format!("--controllers={controllers}");
    args.push(&flag);
    let stage = Stage::new(cluster, &args).await;
    let reference = stage.play(None, None).await.unwrap_or_else(|why| panic!("no kill: {why}"));
    let all = points(&reference.writes);
    let (points, how) = chosen(all.clone(), DRAWN);
    let (began, tried) = (Instant::now(), points.len());
    let outcomes: Vec<_> = stream::iter(points)
        .map(|point| {
            let (stage, reference) = (&stage, &reference);
            async move {
                let attempt = attempt(stage, reference, point.clone());
                let outcome = AssertUnwindSafe(attempt).catch_unwind().await;
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
    let of = |outcome: fn(&Outcome) -> bool| outcomes.iter().filter(|(_, o)| outcome(o)).count();
    let reached = of(|outcome| matches!(outcome, Ok(Some(_))));
    let costs = outcomes.iter().filter_map(|(_, outcome)| outcome.as_ref().ok()?.as_ref());
    let most = costs.fold(Cost::default(), |most, cost| Cost {
        idle: most.idle.max(cost.idle),
        statuses: most.statuses.max(cost.statuses),
    });
    say(&format!(
        "controllers {controllers}: {tried} of {} crash points ({how}) in {} s: killed at {reached}, {} failed; a kill cost at \
         most {} idle writes and {} of one status",
        all.len(),
        began.elapsed().as_secs(),
        of(Result::is_err),
        most.idle,
        most.statuses,
    ));
    let failed = outcomes.iter().filter(|(_, outcome)| outcome.is_err());
    let names: Vec<_> = failed.map(|(point, _)| point.to_string()).collect();
    assert!(
        names.is_empty(),
        "{how}; one of them again: CONVOKE_POINTS='{}' cargo test --test api crash_points\n{}",
        names[0],
        names.join("\n")
    );
    assert!(reached * 2 >= tried, "most points must be reached, or nothing is tested");
}

/// Before and after every write, and for most the request that comes late: another status that does stays until the object is looked at again.
fn points(writes: &[Write]) -> Vec<Point> {
    around(writes.iter(), |what| is_exact(what) || what.starts_with("gitsyncs/status/"))
}

/// What a kill cost, where it happened: what depends on who is faster may not happen again. Or what went wrong.
type Outcome = Result<Option<Cost>, String>;

/// Writes that an undisturbed play does not need.
#[derive(Debug, Default, PartialEq, Eq)]
struct Cost {
    /// Without effect, refused ones included.
    idle: usize,
    /// Of the status that was written most often more.
    statuses: usize,
}

/// Plays with a kill at that point.
async fn attempt(stage: &Stage, reference: &Played, point: Point) -> Outcome {
    let played = stage.play(Some(point.clone()), Some(reference)).await?;
    let cost = same_writes(reference, &played, point.moment)?;
    // The first try may have met a change, a status that a controller wrote at that moment for example: then the next one did it.
    let met_a_change = played.writes.iter().any(|write| {
        (&write.target, write.nth) == (&point.target, point.nth)
            && matches!(write.effect, Effect::Refused(409))
    });
    let must_happen = is_exact(&point.target.what) && !is_by_chance(&point.target);
    if !played.killed && point.nth == 1 && must_happen && !met_a_change {
        return Err("this write did not happen".to_owned());
    }
    Ok(played.killed.then_some(cost))
}

/// Whether every play does exactly the same to this: our own objects and what they consist of. Statuses tell of what is
/// seen on the way, and a Deployment may follow a change by hand before that is undone.
fn is_exact(what: &str) -> bool {
    !what.contains("/status/") && !what.starts_with("deployments/")
}

/// Whether a write depends on who is faster: a controller may see a change by hand before that is undone, or not. If it does, it makes a
/// ConfigMap for it.
fn is_by_chance(target: &Target) -> bool {
    target.step == "drift" && target.what.starts_with("configmaps/")
}

/// The rule:
///
/// - What was created, changed and deleted is the same in each step, object by object, each as often (statuses and
///   changes of Deployments left out, and ConfigMaps while changes by hand are undone).
/// - Nothing is deleted that the step's commit wants.
/// - Writes without any effect, refused ones included: at most [`MORE_IDLE`] more than without a kill, and in the step
///   `drift` [`MORE_RETRIES`].
/// - Statuses are written at most [`MORE_STATUSES`] times more, object by object.
fn same_writes(reference: &Played, played: &Played, moment: Moment) -> Result<Cost, String> {
    let steps = &STEPS[..played.portraits.len()];
    let mut known = reference.writes.clone();
    known.retain(|write| steps.contains(&write.target.step.as_str()));
    let (is, should) = (effects(&played.writes), effects(&known));
    // What comes late has an effect of its own, and that is undone.
    if moment != Moment::Late && is != should {
        let lines: Vec<_> = is
            .iter()
            .map(|(what, n)| (what, *n, should.get(what).copied().unwrap_or(0)))
            .chain(
                should.iter().filter(|(what, _)| !is.contains_key(*what)).map(|(w, n)| (w, 0, *n)),
            )
            .filter(|(_, is, should)| is != should)
            .map(|(what, is, should)| format!("{what}: {is} times instead of {should}"))
            .collect();
        return Err(format!("other writes:\n{}", lines.join("\n")));
    }
    for write in played.writes.iter().filter(|write| write.effect == Effect::Deleted) {
        let at = STEPS.iter().position(|step| *step == write.target.step).unwrap_or_default();
        let (plural, name) = write.target.what.split_once('/').unwrap_or_default();
        let kind = Kind::ALL.into_iter().find(|kind| kind.plural() == plural);
        let title = kind.map(|kind| format!("{kind}/{name}"));
        if title.is_some_and(|title| reference.portraits[at].contains_key(&title)) {
            return Err(format!("deleted though wanted: {}", write.target));
        }
    }
    let more_idle =
        |retried: bool| idle(&played.writes, retried).saturating_sub(idle(&known, retried));
    let (known, told) = (statuses(&known), statuses(&played.writes));
    let more = told
        .iter()
        .map(|(what, n)| (n.saturating_sub(known.get(what).copied().unwrap_or(0)), *what));
    let (statuses, what) = more.max().unwrap_or_default();
    let cost = Cost { idle: more_idle(false), statuses };
    if cost.idle > MORE_IDLE || more_idle(true) > MORE_RETRIES {
        let (other, retried) = (cost.idle, more_idle(true));
        return Err(format!("{other} idle writes more than without a kill, and {retried} retries"));
    }
    if cost.statuses > MORE_STATUSES {
        return Err(format!("{what} was written {statuses} times more than without a kill"));
    }
    Ok(cost)
}

/// Writes without effect: those that undo a change by hand, or all others.
fn idle(writes: &[Write], retried: bool) -> usize {
    let idle = |effect| matches!(effect, Effect::Nothing | Effect::Refused(_));
    let counted = writes.iter().filter(|write| idle(write.effect));
    counted.filter(|write| (write.target.step == "drift") == retried).count()
}

/// How often what was done to what.
fn effects(writes: &[Write]) -> BTreeMap<String, usize> {
    let mut effects = BTreeMap::new();
    for write in writes.iter().filter(|write| !is_by_chance(&write.target)) {
        let done = match write.effect {
            Effect::Created => "created",
            Effect::Changed if is_exact(&write.target.what) => "changed",
            Effect::Deleted => "deleted",
            Effect::Changed | Effect::Nothing | Effect::Refused(_) => continue,
        };
        let times = effects.entry(format!("{}: {done}", write.target)).or_default();
        // Each pod template has a ConfigMap of its own. How many templates there are between two commits depends on what is seen first.
        *times = if write.target.what.starts_with("configmaps/") { 1 } else { *times + 1 };
    }
    effects
}

fn statuses(writes: &[Write]) -> BTreeMap<&str, usize> {
    let mut statuses = BTreeMap::new();
    for write in writes.iter().filter(|write| write.target.what.contains("/status/")) {
        *statuses.entry(write.target.what.as_str()).or_default() += 1;
    }
    statuses
}
