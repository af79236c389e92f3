//! (pure) Pods of runs that have ended, and that may still push.
//!
//! Tekton calls a run cancelled, or too late, before its pod has ended: a pod has half a minute to end, and on a node that is cut off it goes
//! on. If the next run pushes the same tag, such a pod could put its older image over the newer one. So the next run waits for the pod's end.
//! Runs with a tag of their own, as with `{short}`, wait for nothing. A pod counts as ended when its steps have: a sidecar that somebody has put into it, a
//! service mesh for example, may go on for ever.
#![deny(clippy::disallowed_types, clippy::disallowed_methods)]

use std::time::Duration;

use k8s_openapi::api::core::v1::{Container, Pod};
use k8s_openapi::jiff::{SignedDuration, Timestamp};

use super::key::BuildKey;
use super::run::{Run, RunOutcome};

/// How long a pod may take to end. Kubernetes gives it 30 s, and then kills it.
const MAX_END: SignedDuration = SignedDuration::from_secs(120);
/// The time after which it is looked again whether a pod has ended.
const RECHECK: Duration = Duration::from_secs(3);
/// The same for one that takes longer than it may.
const LATE_RECHECK: Duration = Duration::from_secs(30);
/// How the containers of a pod of Tekton begin that run its steps.
const STEP: &str = "step-";
/// The most runs whose pods are looked for.
const MAX_RUNS: usize = 20;

/// A pod that may still push the tag of the next run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lingering {
    /// Its run, as [`Run::title`] calls it.
    pub run: String,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub pod: String,
    /// The tag.
    pub tag: String,
    /// Whether it takes longer than a pod may.
    pub is_late: bool,
}

impl Lingering {
    /// When to look again.
    #[must_use]
    pub const fn again(&self) -> Duration {
        if self.is_late { LATE_RECHECK } else { RECHECK }
    }

    /// What is waited for, and what helps if it does not come.
    #[must_use]
    pub fn message(&self) -> String {
        let Self { run, namespace, pod, tag, is_late } = self;
        if *is_late {
            let minutes = MAX_END.as_mins();
            return format!(
                "pod {pod} of PipelineRun {run}, which has ended, goes on for more than {minutes} minutes and could put an older image under the tag {tag}; \
                 its node may be gone: when that is sure, kubectl -n {namespace} delete pod {pod} --force lets this build begin"
            );
        }
        format!(
            "waiting until pod {pod} of PipelineRun {run}, which has ended, is gone: it could still push the tag {tag}"
        )
    }
}

/// What the next run pushes.
#[derive(Debug, Clone, Copy)]
pub struct Pushed<'a> {
    /// UID of its AgentBuild.
    pub uid: &'a str,
    /// Its build key.
    pub key: &'a BuildKey,
    /// Registry and name of the image.
    pub image: &'a str,
    /// The tag.
    pub tag: &'a str,
}

/// The runs of other keys that did not succeed, and push the same tag: the newest ones. One of the same key pushes nothing else.
#[must_use]
pub fn rivals<'a>(runs: &[&'a Run], pushed: &Pushed<'_>) -> Vec<&'a Run> {
    let is = |have: &Option<String>, want: &str| have.as_deref().is_none_or(|have| have == want);
    let mut all: Vec<_> = runs
        .iter()
        .copied()
        .filter(|run| {
            matches!(run.outcome, RunOutcome::Failed { .. })
                && run.owner_uid.as_deref() == Some(pushed.uid)
                && run.key.as_deref() != Some(pushed.key.as_str())
                && is(&run.image, pushed.image)
                && is(&run.tag, pushed.tag)
        })
        .collect();
    all.sort_by_key(|run| std::cmp::Reverse(run.ended));
    all.truncate(MAX_RUNS);
    all
}

/// Whether all steps of a pod have ended, for good. Its sidecars push nothing.
#[must_use]
pub fn has_ended(pod: &Pod) -> bool {
    let Some(spec) = &pod.spec else { return false };
    let statuses = pod.status.as_ref().and_then(|status| status.container_statuses.as_deref());
    let is_over = |step: &Container| {
        let mut of = statuses.into_iter().flatten().filter(|one| one.name == step.name);
        of.any(|one| one.state.as_ref().is_some_and(|state| state.terminated.is_some()))
    };
    let is_never = |policy: &Option<String>| policy.as_deref() == Some("Never");
    // What has ended could begin once more.
    let is_final = |step: &Container| match &step.restart_policy {
        None => is_never(&spec.restart_policy),
        own => is_never(own),
    };
    let steps: Vec<_> = spec.containers.iter().filter(|one| one.name.starts_with(STEP)).collect();
    !steps.is_empty() && steps.into_iter().all(|step| is_final(step) && is_over(step))
}

/// A pod of such a run that has not ended.
#[must_use]
pub fn lingering(
    run: &Run,
    pod: &str,
    pushed: &Pushed<'_>,
    home: &str,
    now: Timestamp,
) -> Lingering {
    let since = run.ended.or(run.began).or(run.created);
    Lingering {
        run: run.title(home),
        namespace: run.namespace.clone(),
        pod: pod.to_owned(),
        tag: pushed.tag.to_owned(),
        is_late: since.is_some_and(|since| now.duration_since(since) >= MAX_END),
    }
}

#[cfg(test)]
#[path = "tests/lingering.rs"]
mod tests;
