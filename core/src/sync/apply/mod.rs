//! Carries out a plan: creates and updates in the order of kinds with bounded concurrency, then deletes.
//!
//! Each request is checked once more when the concurrency limit lets it be sent: the plan may be outdated by then.

pub mod contention;
pub mod drift;
pub mod impersonation;
pub mod memory;
mod outcome;
pub mod problems;
mod prune;
pub mod resume;
pub mod terminating;
mod writer;

pub use outcome::{Failure, Outcome};
pub(crate) use prune::Pruned;
pub use writer::{MAX_WRITES_IN_FLIGHT, Writer};

use std::time::Duration;

use crate::cluster::write::Mode;
use crate::sync::apply::resume::Resume;
use crate::sync::apply::writer::Job;
use crate::sync::commit::desired::DesiredSet;
use crate::sync::plan::{Plan, Settled, Update};

/// How long a plan starts writes. The next plan does the rest. So the status reports progress at least once a minute, and a
/// plan whose writes hang does not keep a GitSync from its next commit.
pub const MAX_APPLY_TIME: Duration = Duration::from_secs(60);

/// The creates and updates of a plan. Kinds that others refer to come first.
fn jobs(desired: &DesiredSet, plan: &Plan) -> Vec<Job> {
    let mut jobs = Vec::new();
    for id in &plan.create {
        if let Some(want) = desired.get(id).cloned() {
            let (mode, id) = (Mode::Create, id.clone());
            jobs.push(Job { id, want, mode, adopted: None, drifted: false });
        }
    }
    for update in &plan.update {
        if let Some(want) = desired.get(&update.id).cloned() {
            let mode = Mode::Update { uid: update.uid.clone(), version: None };
            let Update { id, adopted, claim, drifted, .. } = update.clone();
            jobs.push(Job { id, want, mode, adopted: adopted.then_some(claim), drifted });
        }
    }
    jobs.sort_by_key(|job| job.id.kind);
    jobs
}

/// Carries out a plan, as far as the deadline of the writer allows.
///
/// `settled` is updated with the writes that changed nothing, `resume` with what the next plan has to know of this one.
pub async fn apply(
    writer: &Writer<'_>,
    desired: &DesiredSet,
    plan: &Plan,
    settled: &mut Settled,
    resume: &mut Resume,
) -> Outcome {
    let mut outcome = Outcome::default();
    let mut jobs = jobs(desired, plan);
    resume.begin(writer.commit, writer.io.now());
    resume.order(&mut jobs, |job| &job.id);
    if writer.atomic {
        writer.rehearse(&jobs, resume, &mut outcome).await;
    }
    if !outcome.rehearsed {
        writer.write(&jobs, resume, settled, &mut outcome).await;
        let wanted =
            outcome.failures.is_empty() && outcome.skipped == 0 && plan.terminating.is_empty();
        if wanted && !outcome.stopped && outcome.unstarted == 0 {
            writer.delete(&plan.prune, resume, &mut outcome).await;
        }
    }
    resume.end(&outcome, writer.commit, writer.io.now());
    outcome
}

#[cfg(test)]
#[path = "tests/apply.rs"]
mod tests;
