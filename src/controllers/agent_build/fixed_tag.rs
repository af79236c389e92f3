//! A tag that all builds of an AgentBuild push, as `output.tag: latest`, is to name the newest image also when that was not built last: after a
//! revert, an image of the history is taken, and the tag still names a newer one.
//!
//! The registry is asked what the tag names once for each such image, and again after a restart. Nothing here fails a build. Why the tag does
//! not name the image is told by a condition.

use std::collections::HashMap;
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use parking_lot::Mutex;
use tokio::time::Instant;

use super::Controller;
use super::again::sooner;
use super::decide::Decision;
use super::elsewhere::tell_trouble;
use super::lingering::Pushed;
use super::questions::Asked;
use super::reconcile::Subject;
use super::reuse::{Nothing, SLOW, TOTAL};
use super::run::{Run, RunOutcome};
use super::status::{Finding, KeyFinding};
use crate::api::agent_build::AgentBuildStatus;
use crate::cluster::client::CallError;
use crate::cluster::conditions::{self, Observed};
use crate::cluster::store::Key;
use crate::registry::{Digest, Tag};
use crate::runtime::worker::Next;

/// The condition that says why the tag does not name the image. It is there while that is so.
pub const STALE: &str = "TagStale";
/// The pause after a try that came to nothing.
const PAUSE: Duration = Duration::from_secs(300);
/// The time after which it is looked again whether a run or its pod has ended.
const RECHECK: Duration = Duration::from_secs(10);

/// What a tag is to name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted {
    uid: String,
    tag: String,
    /// `registry/name@sha256:…`
    image: String,
    /// The newest run that may have pushed the tag for another key.
    after: Option<String>,
}

/// What became of the tags of all builds. All of it is in memory: a restart begins anew.
#[derive(Debug, Default)]
pub struct FixedTags(Mutex<HashMap<Key, (Wanted, Done)>>);

/// What became of a tag.
#[derive(Debug, Clone)]
enum Done {
    /// It names the image.
    Named,
    /// That is not known, for this reason if it is told, and it is tried again then.
    Failed(Option<String>, Instant),
}

impl FixedTags {
    fn known(&self, build: &Key, wanted: &Wanted) -> Option<Done> {
        let all = self.0.lock();
        let (_, done) = all.get(build).filter(|(of, _)| of == wanted)?;
        match done {
            Done::Failed(_, again) if *again <= Instant::now() => None,
            done => Some(done.clone()),
        }
    }

    /// Whether the tag was to name another image before.
    fn has_other(&self, build: &Key, wanted: &Wanted) -> bool {
        let all = self.0.lock();
        all.get(build).is_some_and(|(of, _)| of.uid == wanted.uid && of.image != wanted.image)
    }

    fn note(&self, build: &Key, wanted: Wanted, done: Done) {
        self.0.lock().insert(build.clone(), (wanted, done));
    }

    /// Forgets a build that is gone.
    pub fn forget(&self, build: &Key) {
        self.0.lock().remove(build);
    }
}

/// (pure) The tag, if it is the same for all commits.
#[must_use]
pub fn fixed(tag: &str) -> Option<&str> {
    (!tag.contains("{commit}") && !tag.contains("{short}")).then_some(tag)
}

/// (pure) What the tag is to name, if it may name something else, and whether that is likely: then it is told if the registry cannot be asked.
/// `new` is the status, and `runs` are those of the build. `is_changed` says whether the spec is another one than before: its tag may be.
#[must_use]
pub fn wanted(
    about: &KeyFinding<'_>,
    new: &AgentBuildStatus,
    (uid, tag): (&str, &str),
    runs: &[&Run],
    is_changed: bool,
) -> Option<(Wanted, bool)> {
    if new.built_key.as_deref() != Some(about.key.as_str()) {
        return None;
    }
    let image = new.built_image.clone()?;
    if image.split_once('@').map(|(name, _)| name) != Some(about.repository) {
        return None;
    }
    // Of any tag: the spec may have had this one meanwhile.
    let other = others(about, uid, runs).max_by_key(|run| run.created);
    let has_image = match about.decision {
        Decision::Reuse(_) | Decision::Found(_) | Decision::Keep => true,
        Decision::Show(run) => matches!(run.outcome, RunOutcome::Built { .. }),
        _ => false,
    };
    let is_chosen = matches!(about.decision, Decision::Reuse(_) | Decision::Found(_));
    let is_told = new.conditions.iter().any(|condition| condition.type_ == STALE);
    let is_older = match about.decision {
        // Times are whole seconds.
        Decision::Show(run) => {
            let mut newer = rivals(about, (uid, tag), runs);
            newer.any(|other| other.created >= run.created)
        }
        _ => false,
    };
    // The tag is not in the key: nothing is built for another one. What a run has pushed that is gone is not known.
    let may_be_another = match about.decision {
        Decision::Show(run) => run.tag.as_deref().is_some_and(|pushed| pushed != tag),
        _ => true,
    };
    // Also where its own run is the newest one: the operator may have had the tag name an older image since.
    let may_differ = has_image && (may_be_another || other.is_some() || is_told);
    let after = other.map(|run| run.name.clone());
    let wanted = Wanted { uid: uid.to_owned(), tag: tag.to_owned(), image, after };
    let is_likely = is_chosen || is_told || is_older || (may_be_another && is_changed);
    may_differ.then_some((wanted, is_likely))
}

/// Whether something of a run is this, as far as the run tells it.
fn is(have: Option<&str>, want: &str) -> bool {
    have.is_none_or(|have| have == want)
}

/// The runs of other keys that push the same image.
fn others<'a>(
    about: &KeyFinding<'_>,
    uid: &str,
    runs: &[&'a Run],
) -> impl Iterator<Item = &'a Run> {
    runs.iter().copied().filter(move |run| {
        run.owner_uid.as_deref() == Some(uid)
            && run.key.as_deref() != Some(about.key.as_str())
            && is(run.image.as_deref(), about.repository)
    })
}

/// Those of them that push the same tag.
fn rivals<'a>(
    about: &KeyFinding<'_>,
    (uid, tag): (&str, &str),
    runs: &[&'a Run],
) -> impl Iterator<Item = &'a Run> {
    others(about, uid, runs).filter(move |run| is(run.tag.as_deref(), tag))
}

impl Controller {
    /// Has a tag that is the same for all commits name the newest image, and says in the new status why it does not.
    pub(super) async fn follow_tag(
        &self,
        subject: &Subject<'_>,
        finding: &Finding<'_>,
        new: &mut AgentBuildStatus,
        next: Next,
    ) -> Next {
        let Finding::Key(about) = finding else { return next };
        let Some(tag) = fixed(&subject.build.spec.output.tag) else {
            conditions::remove(&mut new.conditions, STALE);
            return next;
        };
        let (uid, entries) = (subject.entry.uid.as_str(), subject.runs());
        let runs: Vec<_> = entries.iter().map(|entry| &entry.value).collect();
        let is_changed = subject.old.observed_generation != new.observed_generation;
        let Some((wanted, is_likely)) = wanted(about, new, (uid, tag), &runs, is_changed) else {
            return next;
        };
        let has_changed = subject.old.built_image.as_ref().is_some_and(|old| *old != wanted.image);
        let is_likely = is_likely || has_changed || self.tags.has_other(subject.key, &wanted);
        let known = self.tags.known(subject.key, &wanted);
        let (trouble, again) = match known {
            Some(Done::Named) => (None, None),
            Some(Done::Failed(why, at)) => (why, Some(at.duration_since(Instant::now()))),
            None => match self.in_the_way(subject, about, tag, &runs).await {
                // The status is written all the same, and says what it said of the tag.
                Err(_) => return sooner(next, Some(RECHECK)),
                Ok(Some(why)) => (Some(why), Some(RECHECK)),
                Ok(None) => match self.name(subject, &wanted).await {
                    Ok(()) => {
                        self.tags.note(subject.key, wanted, Done::Named);
                        (None, None)
                    }
                    Err(why) => {
                        let image = &wanted.image;
                        let why =
                            format!("the tag {tag} may name another image than {image}: {why}");
                        let why = Some(why).filter(|_| is_likely);
                        let done = Done::Failed(why.clone(), Instant::now() + PAUSE);
                        self.tags.note(subject.key, wanted, done);
                        (why, Some(PAUSE))
                    }
                },
            },
        };
        let generation = subject.build.metadata.generation.unwrap_or_default();
        let observed = Observed { generation, now: Timestamp::now() };
        tell_trouble(&mut new.conditions, STALE, trouble.as_deref(), observed);
        sooner(next, again)
    }

    /// What may still push the tag.
    async fn in_the_way(
        &self,
        subject: &Subject<'_>,
        about: &KeyFinding<'_>,
        tag: &str,
        runs: &[&Run],
    ) -> Result<Option<String>, CallError> {
        let uid = subject.entry.uid.as_str();
        if let Some(run) = rivals(about, (uid, tag), runs).find(|run| run.is_running()) {
            let name = run.title(&subject.key.namespace);
            return Ok(Some(format!(
                "waiting until PipelineRun {name} ends, which pushes the tag {tag}"
            )));
        }
        let pushed = Pushed { uid, key: about.key, image: about.repository, tag };
        let pod = self.lingering_of(subject, &pushed, runs).await?;
        Ok(pod.map(|pod| pod.message()))
    }

    /// Has the tag name the image.
    async fn name(&self, subject: &Subject<'_>, wanted: &Wanted) -> Result<(), String> {
        let spec = &subject.build.spec;
        let registry = self.registry(spec).ok_or("there is no registry")?;
        let asked = Asked {
            namespace: subject.key.namespace.clone(),
            registry: registry.clone(),
            plain_http: spec.output.insecure,
        };
        if self.asked.is_silent(&asked) {
            return Err(
                "its registry, or several others of this namespace, did not answer a moment ago"
                    .into(),
            );
        }
        let began = Instant::now();
        let naming = self.name_now(subject, &registry, wanted);
        let done = tokio::time::timeout(TOTAL, naming).await;
        if began.elapsed() > SLOW {
            self.asked.is_silent_now(asked.clone());
        }
        match done.unwrap_or_else(|_| Err(Nothing::Silent("its registry does not answer".into()))) {
            Ok(()) => Ok(()),
            Err(Nothing::Known(why)) => Err(why),
            Err(Nothing::Silent(why)) => {
                self.asked.is_silent_now(asked);
                Err(why)
            }
        }
    }

    async fn name_now(
        &self,
        subject: &Subject<'_>,
        registry: &str,
        wanted: &Wanted,
    ) -> Result<(), Nothing> {
        let digest = wanted.image.split_once('@').map(|(_, digest)| digest).unwrap_or_default();
        let digest: Digest = digest.parse().map_err(Nothing::Known)?;
        let tag: Tag = wanted.tag.parse().map_err(Nothing::Known)?;
        let (_, mut client) = self.registry_of(subject, registry, TOTAL).await?;
        if client.retag(&tag, &digest).await? {
            let (image, tag) = (&wanted.image, &wanted.tag);
            tracing::info!(object = %subject.key, image, tag, "the tag names the image again");
        }
        Ok(())
    }
}

#[cfg(test)]
#[path = "tests/fixed_tag.rs"]
mod tests;
