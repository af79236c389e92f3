//! (pure) The builds that ended: which of them the status tells, and whose PipelineRuns are removed.
#![deny(clippy::disallowed_types, clippy::disallowed_methods)]

use std::collections::BTreeMap;

use k8s_openapi::jiff::{SignedDuration, Timestamp};

use super::failure::{SUPERSEDED, failure};
use super::key::BuildKey;
use super::run::{Run, RunOutcome};
use crate::api::agent_build::{AgentBuildStatus, BuildHistory, BuildRecord, BuildResult};

/// How long a build takes as long as none has succeeded.
const UNKNOWN_USUAL_TIME: SignedDuration = SignedDuration::from_secs(120);

/// The builds that ended, the newest first: those that were known before, and those of these runs. As many of each kind as the limits
/// say.
#[must_use]
pub fn records<'a>(
    old: &[BuildRecord],
    runs: impl IntoIterator<Item = &'a Run>,
    limits: &BuildHistory,
) -> Vec<BuildRecord> {
    let ended = runs.into_iter().filter_map(record);
    let all = old.iter().cloned().chain(ended).map(|record| (id(&record), record));
    let mut all: Vec<_> = all.collect::<BTreeMap<_, _>>().into_values().collect();
    all.sort_by(|one, other| {
        began(other).cmp(&began(one)).then_with(|| one.pipeline_run.cmp(&other.pipeline_run))
    });
    let (mut successful, mut failed) = (limits.successful, limits.failed);
    all.retain(|record| {
        let left = if is_good(record) { &mut successful } else { &mut failed };
        let stays = *left > 0;
        *left = left.saturating_sub(1);
        stays
    });
    all
}

/// What tells records apart. A key is found once.
fn id(record: &BuildRecord) -> (Option<String>, Option<String>) {
    let found = record.pipeline_run.is_none().then(|| record.key.clone());
    (record.pipeline_run.clone(), found)
}

/// When a build began.
fn began(record: &BuildRecord) -> Option<Timestamp> {
    record.started_at.as_deref()?.parse().ok()
}

fn is_good(record: &BuildRecord) -> bool {
    record.result == BuildResult::Succeeded
}

/// The record of a run that has ended.
fn record(run: &Run) -> Option<BuildRecord> {
    let result = match &run.outcome {
        // It counts when it is attested.
        RunOutcome::Running | RunOutcome::Unattested { .. } => return None,
        RunOutcome::Built { .. } => BuildResult::Succeeded,
        RunOutcome::Failed { .. } => match failure(run, None)?.reason.as_str() {
            SUPERSEDED => BuildResult::Superseded,
            "Cancelled" => BuildResult::Cancelled,
            _ => BuildResult::Failed,
        },
    };
    let image = match (&run.outcome, &run.image) {
        (RunOutcome::Built { digest }, Some(image)) => Some(format!("{image}@{digest}")),
        _ => None,
    };
    let began = run.began.or(run.created);
    let seconds = began.zip(run.ended).map(|(began, ended)| ended.duration_since(began).as_secs());
    Some(BuildRecord {
        pipeline_run: Some(run.name.clone()),
        key: run.key.clone()?,
        result,
        commit: run.commit.clone(),
        tree: run.tree.clone(),
        superseded_by: run.superseded_by.clone().filter(|_| result == BuildResult::Superseded),
        base_digest: run.base_digest.clone().filter(|_| image.is_some()),
        sbom_digest: run.sbom_digest.clone().filter(|_| image.is_some()),
        image,
        started_at: began.map(|time| time.to_string()),
        seconds,
    })
}

/// The image that an earlier build of this key made.
#[must_use]
pub fn image_of<'a>(history: &'a [BuildRecord], key: &BuildKey) -> Option<&'a BuildRecord> {
    let mut good = history.iter().filter(|record| is_good(record) && record.image.is_some());
    good.find(|record| record.key == key.as_str())
}

/// Takes the image of a build that has just ended, of a key that is no longer the newest one: until that has an image, there is no
/// newer one. Without this, commits that come faster than builds end would keep every image away. It must have begun later than every
/// build that there was when the image of the status was chosen. So what is attested late replaces no newer image, and none that a
/// revert has chosen since. `old` is the status before, and `runs` are those of the build.
pub fn take_what_ended<'a>(
    new: &mut AgentBuildStatus,
    old: &AgentBuildStatus,
    runs: impl IntoIterator<Item = &'a Run>,
) {
    let bound = bound(old);
    if new.built_key.is_some() && new.built_key == new.build_key {
        // Also one that runs: it is stopped, and may have made its image before.
        let newest =
            runs.into_iter().filter_map(|run| run.began.or(run.created)).chain(bound).max();
        new.built_after = newest.map(|time| time.to_string());
        return;
    }
    // Without a history before, nothing says what is new.
    if old.history.is_empty() && old.built_image.is_some() {
        return;
    }
    let is_new = |record: &BuildRecord| !old.history.iter().any(|known| id(known) == id(record));
    let is_taken = |record: &&BuildRecord| {
        is_good(record) && record.image.is_some() && is_new(record) && began(record) > bound
    };
    if let Some(record) = new.history.iter().find(is_taken).cloned() {
        new.built_image = record.image;
        new.base_digest = record.base_digest;
        new.sbom_digest = record.sbom_digest;
        new.built_key = Some(record.key);
        new.last_built_commit = record.commit;
        new.built_after = record.started_at;
    }
}

/// After which time a build must have begun whose image may replace that of a status.
fn bound(status: &AgentBuildStatus) -> Option<Timestamp> {
    let told = status.built_after.as_deref().and_then(|text| text.parse().ok());
    // In a status of an older version it is not there.
    told.or_else(|| {
        let good = status.history.iter().filter(|record| is_good(record));
        good.filter(|record| record.pipeline_run.is_some()).filter_map(began).max()
    })
}

/// The names of the newest runs that wait to be attested: as many as there may be of builds that made an image.
#[must_use]
pub fn unattested<'a>(
    runs: impl IntoIterator<Item = &'a Run>,
    limits: &BuildHistory,
) -> Vec<&'a str> {
    let mut all: Vec<_> = runs.into_iter().filter(|run| run.is_unattested()).collect();
    all.sort_by_key(|run| std::cmp::Reverse(run.began.or(run.created)));
    let most = usize::try_from(limits.successful).unwrap_or(usize::MAX);
    all.into_iter().take(most).map(|run| run.name.as_str()).collect()
}

/// Whether a PipelineRun of this build is one too many. What runs stays, and so do the one that the status tells, and those that
/// [wait](unattested).
#[must_use]
pub fn is_surplus(run: &Run, status: &AgentBuildStatus, waiting: &[&str]) -> bool {
    !run.is_running()
        && !waiting.contains(&run.name.as_str())
        && status.pipeline_run.as_deref() != Some(run.name.as_str())
        && !status.history.iter().any(|record| record.pipeline_run.as_ref() == Some(&run.name))
}

/// Whether a newer key may stop this run: not one that is half done, and not the second one in a row.
#[must_use]
pub fn may_supersede(history: &[BuildRecord], run: &Run, now: Timestamp) -> bool {
    let last = history.first().map(|record| record.result);
    let Some(began) = run.began else { return last != Some(BuildResult::Superseded) };
    last != Some(BuildResult::Superseded) && now.duration_since(began) * 2 < usual_time(history)
}

/// How long a build takes: the median of those that made an image.
fn usual_time(history: &[BuildRecord]) -> SignedDuration {
    let good = history.iter().filter(|record| is_good(record));
    let mut times: Vec<_> = good.filter_map(|record| record.seconds).collect();
    times.sort_unstable();
    let median = times.get(times.len() / 2);
    median.map_or(UNKNOWN_USUAL_TIME, |seconds| SignedDuration::from_secs(*seconds))
}

#[cfg(test)]
#[path = "tests/history.rs"]
mod tests;
