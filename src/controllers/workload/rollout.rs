//! (pure) A rollout that fails goes back to the last good revision (A10): the rule, and what follows from it.
//!
//! A revision is an image of an AgentBuild with a spec. The record of the last good one is in the status of the object. Its pod
//! template is in the ReplicaSet that Kubernetes keeps of it.
#![deny(clippy::disallowed_types, clippy::disallowed_methods)]

use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Serialize;
use serde_json::json;

use super::pod_health::pod_phase;
use crate::api::keys;
use crate::api::rollout::{FailedRevision, GoodRevision, RolloutStatus};
use crate::cluster::live::hash_json;
use crate::cluster::meta;
use crate::cluster::pods::newest_replica_set;
use crate::cluster::readiness::{DEADLINE_EXCEEDED, Health, Observed, observe};

/// The label by which the Deployment's controller tells pods of its revisions apart.
const POD_TEMPLATE_HASH: &str = "pod-template-hash";

/// The revision that is wanted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Newest {
    /// Hash of the image and the spec.
    pub revision: String,
    /// The image; empty while there is none.
    pub image: String,
    /// How long its rollout may make no progress, as the spec says it.
    pub deadline: String,
}

impl Newest {
    /// The revision of a spec with this image. How many pods there are is no part of it. The annotation [`keys::RETRY`] is.
    #[must_use]
    pub fn of(
        meta: &ObjectMeta,
        spec: &impl Serialize,
        image: Option<&str>,
        deadline: Option<&str>,
    ) -> Self {
        let mut spec = serde_json::to_value(spec).unwrap_or_default();
        if let Some(spec) = spec.as_object_mut() {
            spec.retain(|field, _| field != "replicas" && field != "suspend");
        }
        let hash = hash_json(&json!([spec, image, annotation(meta, keys::RETRY)]));
        Self {
            revision: format!("{}{}", meta::hex8(&hash), meta::hex8(&hash[4..])),
            image: image.unwrap_or_default().to_owned(),
            deadline: deadline.unwrap_or("10m").to_owned(),
        }
    }
}

/// What is found out about the revision that the Deployment has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Found {
    /// Nothing that decides.
    Nothing,
    /// All its pods are available, and there are some. `revision` is not filled in.
    Available(GoodRevision),
    /// It was not available within the deadline, and there is a way back. `revision` is not filled in.
    Exceeded(FailedRevision),
}

/// **The rule.** What to remember of the rollouts of an object.
///
/// - The newest revision whose pods were all available is the last good one. What failed before it is forgotten.
/// - A revision that was not available within its deadline has failed, if another one is the last good one. Without one there is nothing
///   to go back to. The last good one does not fail: what has changed then is not the image and not the spec.
///   What a Deployment said of the revision that failed before counts once: for a moment after it went back it says that still.
/// - As long as the failed revision is the wanted one, the last good one runs in its place ([`has_failed`]). So it is not tried again until
///   the image, the spec or the annotation [`keys::RETRY`] changes.
#[must_use]
pub fn decide(before: &RolloutStatus, newest: &Newest, found: Found) -> RolloutStatus {
    let mut record = before.clone();
    match (found, &mut record.last_good) {
        (Found::Nothing, _) | (Found::Exceeded(_), None) => {}
        // It is the last good one that is available, maybe with another ReplicaSet.
        (Found::Available(now), Some(good)) if has_failed(before, newest) => {
            good.replica_set = now.replica_set;
        }
        (Found::Available(now), _) => {
            record.last_good = Some(GoodRevision { revision: newest.revision.clone(), ..now });
            record.failed = None;
        }
        (Found::Exceeded(why), Some(good)) => {
            let is_told = before.failed.as_ref().is_some_and(|failed| failed.at == why.at);
            if good.revision != newest.revision && !has_failed(before, newest) && !is_told {
                record.failed = Some(FailedRevision { revision: newest.revision.clone(), ..why });
            }
        }
    }
    record
}

/// Whether the wanted revision has failed, so that the last good one is to run.
#[must_use]
pub fn has_failed(record: &RolloutStatus, newest: &Newest) -> bool {
    record.failed.as_ref().is_some_and(|failed| failed.revision == newest.revision)
}

/// What a Deployment says of its newest ReplicaSet, by name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Says {
    /// Nothing that decides. Without pods nothing is known of a revision.
    Nothing,
    /// All its pods are available.
    Available(String),
    /// It has exceeded its deadline, and since when the Deployment says so.
    Exceeded(String, Option<String>),
}

/// What a Deployment says of its newest ReplicaSet. For a moment after a change it may still say that of the one before.
#[must_use]
pub fn says(live: &Deployment) -> Says {
    let Observed { wanted, health, .. } = observe(live);
    let Some(set) = newest_replica_set(live).filter(|_| wanted > 0) else { return Says::Nothing };
    let status = live.status.as_ref();
    let is_current =
        status.is_some_and(|status| status.observed_generation >= live.metadata.generation);
    let mut conditions = status.into_iter().flat_map(|status| status.conditions.iter().flatten());
    let exceeded = conditions.find(|c| {
        c.type_ == "Progressing"
            && c.status == "False"
            && c.reason.as_deref() == Some(DEADLINE_EXCEEDED)
    });
    match (health, exceeded) {
        (Health::Available, _) => Says::Available(set.to_owned()),
        (_, Some(condition)) if is_current => {
            let at = condition.last_transition_time.as_ref().map(|time| time.0.to_string());
            Says::Exceeded(set.to_owned(), at)
        }
        _ => Says::Nothing,
    }
}

/// Whether a ReplicaSet is the one of the pod template that the Deployment has now.
#[must_use]
pub fn is_of_template(set: &ReplicaSet, live: &Deployment) -> bool {
    let template = without_hash(set).and_then(|set| set.spec?.template);
    template.is_some_and(|template| live.spec.as_ref().is_some_and(|s| s.template == template))
}

/// The ReplicaSet without the label that only its Deployment's controller gives.
fn without_hash(set: &ReplicaSet) -> Option<ReplicaSet> {
    let mut set = set.clone();
    let labels = &mut set.spec.as_mut()?.template.as_mut()?.metadata.as_mut()?.labels;
    labels.as_mut()?.remove(POD_TEMPLATE_HASH);
    Some(set)
}

/// The Deployment with the pod template of the last good revision. `wanted` is the Deployment of the newest one: how many pods there
/// are, and all that is not in the pod template, stays as it is there.
///
/// `None` when the newest revision asks another model proxy, or none: the key that the pods of before read is no longer in their Secret.
#[must_use]
pub fn back(wanted: &Deployment, last_good: &ReplicaSet) -> Option<Deployment> {
    let proxy = |meta: &ObjectMeta| annotation(meta, keys::KEY_PROXY).map(str::to_owned);
    if proxy(&wanted.metadata) != proxy(&last_good.metadata) {
        return None;
    }
    let mut template = without_hash(last_good)?.spec?.template?;
    let mut deployment = wanted.clone();
    let spec = deployment.spec.as_mut()?;
    // A key that was issued anew replaces these pods, too.
    let key = spec.template.metadata.as_ref().and_then(|meta| annotation(meta, keys::KEY_DIGEST));
    if let (Some(key), Some(meta)) = (key, &mut template.metadata)
        && annotation(meta, keys::KEY_DIGEST).is_some()
    {
        let annotations = meta.annotations.get_or_insert_default();
        annotations.insert(keys::KEY_DIGEST.to_owned(), key.to_owned());
    }
    spec.template = template;
    let annotations = deployment.metadata.annotations.get_or_insert_default();
    annotations.remove(keys::BUILD);
    if let Some(build) = annotation(&last_good.metadata, keys::BUILD) {
        annotations.insert(keys::BUILD.to_owned(), build.to_owned());
    }
    Some(meta::with_hash(deployment))
}

fn annotation<'a>(meta: &'a ObjectMeta, name: &str) -> Option<&'a str> {
    meta.annotations.as_ref()?.get(name).map(String::as_str)
}

/// Why a revision did not become available: the reason and one sentence. What its pods say counts; they are gone soon, so what one
/// could ask of them is left out.
#[must_use]
pub fn why(observed: &Observed) -> (String, String) {
    let (_, reason, message) = pod_phase(observed);
    let count = format!("{}; ", observed.progress());
    let message = message.strip_prefix(&count).unwrap_or(&message);
    match &observed.trouble {
        Some(trouble) if trouble.reason == reason => {
            let first = message.split_once("; ").map_or(message, |(first, _)| first);
            (reason.to_owned(), first.to_owned())
        }
        _ if reason == "DeploymentFailed" => {
            (DEADLINE_EXCEEDED.to_owned(), "none of its pods says why".to_owned())
        }
        _ => (reason.to_owned(), message.to_owned()),
    }
}

/// What is told while the wanted revision has failed. `is_back` says whether the Deployment has the last good one by now, and
/// `observed` what it is doing.
#[must_use]
pub fn told(
    record: &RolloutStatus,
    newest: &Newest,
    is_back: bool,
    observed: &Observed,
) -> Option<String> {
    let (failed, good) = (record.failed.as_ref()?, record.last_good.as_ref()?);
    if !has_failed(record, newest) {
        return None;
    }
    let FailedRevision { image, reason, message, .. } = failed;
    let what = if *image == good.image { "the newest spec with" } else { "the newest image" };
    let failure = format!(
        "{what} {image} was not available within {} ({reason}: {message})",
        newest.deadline
    );
    let before = if *image == good.image { "the spec before" } else { good.image.as_str() };
    Some(if is_back {
        let count = observed.progress();
        let trouble = observed.trouble.as_ref().map(|trouble| format!("; {}", trouble.message));
        format!("{failure}; {before} runs again: {count}{}", trouble.unwrap_or_default())
    } else {
        format!("{failure}; going back to {before}")
    })
}

/// A Deployment whose rollouts have this deadline. Without one it stays as it is.
#[must_use]
pub fn with_deadline(mut deployment: Deployment, deadline: Option<&str>) -> Deployment {
    let deadline = deadline.and_then(convoke_core::time::parse_duration);
    let Some(seconds) = deadline.and_then(|deadline| i32::try_from(deadline.as_secs()).ok()) else {
        return deployment;
    };
    if let Some(spec) = &mut deployment.spec {
        spec.progress_deadline_seconds = Some(seconds);
    }
    meta::with_hash(deployment)
}

#[cfg(test)]
#[path = "tests/rollout.rs"]
mod tests;
