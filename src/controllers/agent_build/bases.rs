//! Which image the tag of a base image names, for builds with `trigger.baseImage`.
//!
//! A build that appends is resolved as if its spec named that digest: so it is in the build key, and the step that appends takes exactly this
//! image. The source of a build with a Dockerfile gets the digests of its base images ([`super::base_images`]), with the same effect. A
//! registry is asked once for all builds of a namespace that ask with the same rights, and again after some minutes. While it does not
//! answer, what it has said before holds, and a condition says so; the status keeps it over a restart.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use parking_lot::Mutex;
use tokio::time::Instant;

use super::Controller;
use super::base_images::{self, Followed, follows};
use super::base_pace::Pace;
use super::decide::is_asked;
use super::pipeline_run::repository;
use super::problem::BuildProblem;
use super::questions::{Asked, Questions};
use super::reconcile::Subject;
use super::reuse::{Nothing, SLOW, TOTAL};
use crate::api::AgentBuild;
use crate::api::agent_build::{AgentBuildSpec, AgentBuildStatus, BuildStrategy};
use crate::registry::{BaseError, Digest, Image, Reference, Registry};
use crate::runtime::worker::Next;
use convoke_core::sync::commit::source_at::SourceAt;

/// How long an answer counts.
const LIFETIME: Duration = Duration::from_secs(10 * 60);
/// The same for who asks for a build.
const ASKED_LIFETIME: Duration = Duration::from_secs(10);
/// How long nobody asks again after a question without an answer.
const PAUSE: Duration = Duration::from_secs(60);
/// The condition that says that the tag is not followed. It is there while that is so.
pub const STALE: &str = "BaseImageStale";
/// The most answers that are kept.
const MAX_KEPT: usize = 1000;

/// A question, as builds of one namespace with the same rights ask it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Question {
    registry: Asked,
    base: String,
    /// The Secret, the image of the build, and whether its registry is one over plain HTTP: what the Secret may be used for depends on these.
    credentials: Option<(String, String, bool)>,
}

/// What is known of a tag.
#[derive(Debug, Default)]
struct Known {
    /// What it named, and since when that is known.
    answer: Option<(Instant, Digest)>,
    /// Why the last question had no answer, and since when.
    failure: Option<(Instant, String)>,
    /// How often it is followed.
    pace: Pace,
}

impl Known {
    fn is_newer_than(&self, lifetime: Duration) -> bool {
        self.answer.as_ref().is_some_and(|(since, _)| since.elapsed() < lifetime)
    }

    /// Whether it must be kept: without it the tag would be asked for sooner, or followed sooner, than it may be.
    fn counts(&self) -> bool {
        self.is_newer_than(LIFETIME)
            || self.failed().is_some()
            || self.pace.counts(Timestamp::now())
    }

    /// Why it is not asked again at once.
    fn failed(&self) -> Option<&str> {
        let (since, why) = self.failure.as_ref()?;
        (since.elapsed() < PAUSE).then_some(why)
    }
}

/// Who asks holds it: others wait for that answer.
type Place = Arc<tokio::sync::Mutex<Known>>;

/// What registries have said.
#[derive(Debug, Default)]
pub struct Bases {
    known: Mutex<HashMap<Question, Place>>,
    /// Registries that do not answer. Those of images are not among them.
    silent: Questions,
}

impl Bases {
    fn place(&self, question: &Question) -> Place {
        let mut all = self.known.lock();
        if all.len() >= MAX_KEPT {
            // Those that are held are being asked for.
            all.retain(|_, place| place.try_lock().map_or(true, |known| known.counts()));
        }
        all.entry(question.clone()).or_default().clone()
    }
}

/// What a reconcile knows of base images.
#[derive(Debug, Default)]
pub struct Following {
    /// Why some tags are not followed, or an older answer counts.
    pub stale: Option<String>,
    /// Those of the Dockerfile with their digests, once they are known.
    images: Option<Vec<String>>,
}

impl Following {
    /// Whether it was looked what the base images of a build are. With a Dockerfile that needs its source.
    #[must_use]
    pub fn is_known(&self, spec: &AgentBuildSpec) -> bool {
        !follows(spec) || self.images.is_some()
    }
}

/// A tag that is followed: its digest, and why it is not known whether it still has that.
type Answer = (Digest, Option<String>);

/// The base image of a spec, if its tag is to be followed. One with a digest is none.
fn followed(spec: &AgentBuildSpec) -> Option<&str> {
    let append = spec.append.as_ref().filter(|_| spec.strategy == BuildStrategy::Append)?;
    let base = append.base_image.as_str();
    (spec.trigger.base_image && !base.contains('@')).then_some(base)
}

/// The digest that a status has for the base image of a spec. `None` if there is nothing to follow, or nothing known of it.
fn digest_of(spec: &AgentBuildSpec, status: &AgentBuildStatus) -> Option<Digest> {
    let base = followed(spec)?;
    let (known, digest) = status.base_image.as_deref()?.split_once('@')?;
    digest.parse().ok().filter(|_| known == base)
}

/// The spec with that digest.
#[must_use]
pub fn pinned_by(spec: &AgentBuildSpec, status: &AgentBuildStatus) -> Option<AgentBuildSpec> {
    digest_of(spec, status).map(|digest| with(spec, &digest))
}

fn with(spec: &AgentBuildSpec, digest: &Digest) -> AgentBuildSpec {
    let mut spec = spec.clone();
    if let Some(append) = &mut spec.append {
        append.base_image = format!("{}@{digest}", append.base_image);
    }
    spec
}

/// Notes in the status which images the build has, as it was resolved, and says when to look again.
pub fn note(
    spec: &AgentBuildSpec,
    following: &Following,
    status: &mut AgentBuildStatus,
    next: Next,
) -> Next {
    let append = spec.append.as_ref().filter(|_| !follows(spec));
    if !spec.trigger.base_image {
        (status.base_image, status.base_images) = (None, Vec::new());
        return next;
    }
    match append.map(|append| &append.base_image).filter(|base| base.contains('@')) {
        Some(pinned) => status.base_image = Some(pinned.clone()),
        None if append.is_none() => status.base_image = None,
        None => {}
    }
    match &following.images {
        Some(images) => status.base_images.clone_from(images),
        None if append.is_some() => status.base_images = Vec::new(),
        None => {}
    }
    match next {
        Next::Settled => Next::After(LIFETIME),
        Next::After(wait) => Next::After(wait.min(LIFETIME)),
        Next::Forget => Next::Forget,
    }
}

impl Controller {
    /// The build with a digest for the tag of its base image, and why an older one counts; `None` if that is not followed.
    pub(super) async fn pinned(
        &self,
        subject: &Subject<'_>,
    ) -> Result<Option<(AgentBuild, Option<String>)>, BuildProblem> {
        let spec = &subject.build.spec;
        let (Some(base), Some(registry)) = (followed(spec), self.registry(spec)) else {
            return Ok(None);
        };
        let unknown = |why: &str| BuildProblem::base_image_unknown("spec.append.baseImage", why);
        let reference: Reference = base.parse().map_err(|why: String| unknown(&why))?;
        let before = digest_of(spec, &subject.old);
        let answer = self.digest_of_tag(subject, &registry, base, &reference, before).await;
        let (digest, stale) = answer.map_err(|why| unknown(&why))?;
        let build = AgentBuild { spec: with(spec, &digest), ..subject.build.clone() };
        Ok(Some((build, stale)))
    }

    /// Puts the digests of the base images of a Dockerfile into its source, if they are followed.
    pub(super) async fn pin(
        &self,
        subject: &mut Subject<'_>,
        source: &mut SourceAt,
    ) -> Result<(), BuildProblem> {
        let build = subject.build;
        let spec = &build.spec;
        let Some(registry) = self.registry(spec).filter(|_| follows(spec)) else { return Ok(()) };
        let (followed, mut stale) = base_images::followed(spec, source);
        let ask = async |one: &Followed| {
            let before = base_images::digest_of(&subject.old, &one.reference);
            let base = one.reference.to_string();
            self.digest_of_tag(subject, &registry, &base, &one.reference, before).await
        };
        let answers = futures::future::join_all(followed.iter().map(ask)).await;
        let mut images = BTreeSet::new();
        for (one, answer) in followed.iter().zip(answers) {
            let (digest, older) = answer.map_err(|why| {
                let what = format!("line {} of the Dockerfile ({})", one.line, one.reference);
                BuildProblem::base_image_unknown(&what, &why)
            })?;
            images.insert(format!("{}@{digest}", one.reference));
            source.base_images.insert(one.word.clone(), one.with(&digest));
            stale.extend(older.map(|why| format!("{}: {why}", one.reference)));
        }
        let stale = (!stale.is_empty()).then(|| stale.join("; "));
        subject.bases = Following { stale, images: Some(images.into_iter().collect()) };
        Ok(())
    }

    /// The digest that the tag of an image has. `before` is the one that is known from before.
    ///
    /// # Errors
    /// None is known, and why.
    async fn digest_of_tag(
        &self,
        subject: &Subject<'_>,
        registry: &str,
        base: &str,
        reference: &Reference,
        before: Option<Digest>,
    ) -> Result<Answer, String> {
        let spec = &subject.build.spec;
        let image = repository(spec, registry);
        let is_near = image.parse().is_ok_and(|ours: Image| ours.is_beside(&reference.image));
        let asked = Asked {
            namespace: subject.key.namespace.clone(),
            registry: reference.image.registry().to_owned(),
            plain_http: spec.output.insecure && is_near,
        };
        let secret = spec.output.secret_ref.as_ref();
        let credentials = secret.map(|secret| (secret.name.clone(), image, spec.output.insecure));
        let question = Question { registry: asked.clone(), base: base.to_owned(), credentials };
        let place = self.bases.place(&question);
        let asks = is_asked(&subject.old, subject.asked());
        let of_status = before.clone();
        let follow = |pace: &mut Pace, named: &Digest| {
            let followed = pace.follow(named, of_status.clone(), asks, Timestamp::now());
            let why = followed.why();
            (followed.digest, why)
        };
        // One question at a time, each with a deadline.
        let mut known = place.lock().await;
        // Who asks for a build wants the newest one.
        let lifetime = if asks { ASKED_LIFETIME } else { LIFETIME };
        if let Some((_, digest)) = known.answer.clone().filter(|_| known.is_newer_than(lifetime)) {
            return Ok(follow(&mut known.pace, &digest));
        }
        let before = match &known.answer {
            Some((_, digest)) => Some(digest.clone()),
            None => before,
        };
        let why = if let Some(why) = known.failed() {
            why.to_owned()
        } else if self.bases.silent.is_silent(&asked) {
            "its registry, or several others of this namespace, did not answer a moment ago".into()
        } else {
            let began = Instant::now();
            let asking = self.ask(subject, registry, reference, before.as_ref());
            let answer = tokio::time::timeout(TOTAL, asking).await;
            if began.elapsed() > SLOW {
                self.bases.silent.is_silent_now(asked.clone());
            }
            let why = match answer {
                Ok(Ok(digest)) => {
                    known.answer = Some((Instant::now(), digest.clone()));
                    known.failure = None;
                    return Ok(follow(&mut known.pace, &digest));
                }
                Ok(Err(Nothing::Known(why))) => why,
                Ok(Err(Nothing::Silent(why))) => {
                    self.bases.silent.is_silent_now(asked);
                    why
                }
                Err(_) => "its registry does not answer".to_owned(),
            };
            known.failure = Some((Instant::now(), why.clone()));
            why
        };
        match known.pace.used().cloned().or(before) {
            Some(digest) => Ok((digest, Some(why))),
            None => Err(why),
        }
    }

    /// What the tag names. Another image than before counts only if the registry says so twice: replicas of it may differ.
    async fn ask(
        &self,
        subject: &Subject<'_>,
        registry: &str,
        reference: &Reference,
        before: Option<&Digest>,
    ) -> Result<Digest, Nothing> {
        let client = self.client_of(subject, registry, &reference.image, TOTAL).await?;
        let mut client = client.read_only();
        let first = named(&mut client, reference).await?;
        if before.is_some_and(|before| *before != first)
            && named(&mut client, reference).await? != first
        {
            let why = format!("its registry names another image each time for {reference}");
            return Err(Nothing::Known(why));
        }
        Ok(first)
    }
}

async fn named(client: &mut Registry, reference: &Reference) -> Result<Digest, Nothing> {
    let found = client.digest_of(&reference.version()).await.map_err(|error| match error {
        BaseError::Registry(error) => error.into(),
        error @ BaseError::Invalid { .. } => Nothing::Known(error.to_string()),
    })?;
    found.ok_or_else(|| Nothing::Known(format!("its registry has no {reference}")))
}

#[cfg(test)]
#[path = "tests/bases.rs"]
mod tests;
