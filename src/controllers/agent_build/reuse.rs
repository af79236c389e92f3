//! Finds the image of a build key in its registry, and writes the proof by which it is found.
//!
//! Nothing here fails a build. Whatever goes wrong, the image is built; without a proof, it is built again some day.

use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use tokio::sync::watch;
use tokio::time::Instant;

use super::Controller;
use super::decide::Found;
use super::internal;
use super::pipeline_run::repository;
use super::proof::{self, About, ProofKey};
use super::questions::Asked;
use super::reconcile::Subject;
use super::registry_auth::{AUTHORITIES, CONFIG};
use super::resolve::Resolved;
use super::run::{Run, RunOutcome};
use super::signing::seal::SealKey;
use crate::cluster::client::jitter;
use crate::controllers::inputs::key;
use crate::registry::client::Options;
use crate::registry::{Credentials, Digest, Image, Registry, RegistryError, auth};
use convoke_core::sync::commit::source_at::SourceAt;

/// How long all questions about one image may take together, and all that is written about it.
pub(super) const TOTAL: Duration = Duration::from_secs(5);
/// A registry that takes longer is left alone for as long as one that does not answer: reconciles wait for it.
pub(super) const SLOW: Duration = Duration::from_secs(2);
/// How long a start waits until it is known whether there is a key.
const MAX_WAIT_FOR_KEY: Duration = Duration::from_secs(5);
/// The pause between two tries to get the key.
const KEY_PAUSE: Duration = Duration::from_secs(60);

/// The operator's keys of proofs and seals.
pub struct Proofs {
    client: Client,
    operator_namespace: String,
    key: watch::Sender<KeyState>,
}

#[derive(Debug, Clone)]
enum KeyState {
    /// It was not asked for yet.
    Starting,
    /// It cannot be read now.
    None,
    Known(Arc<ProofKey>, Arc<SealKey>),
}

impl Proofs {
    pub(super) fn new(client: Client, operator_namespace: String) -> Arc<Self> {
        Arc::new(Self { client, operator_namespace, key: watch::Sender::new(KeyState::Starting) })
    }

    /// Tries until there is a key.
    pub(super) async fn obtain_key(&self) {
        let mut told = String::new();
        loop {
            match key::obtain(&self.client, &self.operator_namespace).await {
                Ok(key) => {
                    let (proofs, seals) = (ProofKey::of(&key), SealKey::of(&key));
                    self.key.send_replace(KeyState::Known(Arc::new(proofs), Arc::new(seals)));
                    return;
                }
                Err(error) => {
                    self.key.send_replace(KeyState::None);
                    let error = error.to_string();
                    if told != error {
                        tracing::warn!(error, "no image is looked for in a registry");
                        told = error;
                    }
                }
            }
            tokio::time::sleep(jitter(KEY_PAUSE)).await;
        }
    }

    /// Waits a moment until it is known whether there is a key.
    pub(super) async fn key_settled(&self) {
        let mut keys = self.key.subscribe();
        let settled = keys.wait_for(|state| !matches!(state, KeyState::Starting));
        let _ = tokio::time::timeout(MAX_WAIT_FOR_KEY, settled).await;
    }

    fn key(&self) -> Option<Arc<ProofKey>> {
        match &*self.key.borrow() {
            KeyState::Known(key, _) => Some(key.clone()),
            KeyState::Starting | KeyState::None => None,
        }
    }

    /// The key of seals, once it is known.
    pub(super) fn seals(&self) -> Option<Arc<SealKey>> {
        match &*self.key.borrow() {
            KeyState::Known(_, key) => Some(key.clone()),
            KeyState::Starting | KeyState::None => None,
        }
    }
}

/// Why there is nothing to use.
pub enum Nothing {
    /// The registry does not answer, for this reason. It may later.
    Silent(String),
    /// This will not change by itself.
    Known(String),
}

impl Nothing {
    /// The reason.
    #[must_use]
    pub fn why(self) -> String {
        match self {
            Self::Silent(why) | Self::Known(why) => why,
        }
    }
}

impl From<RegistryError> for Nothing {
    fn from(error: RegistryError) -> Self {
        if error.may_pass() {
            Self::Silent(error.to_string())
        } else {
            Self::Known(error.to_string())
        }
    }
}

impl Controller {
    /// The image of a key that its registry has, made by an earlier build of this AgentBuild.
    pub(super) async fn find_image(
        &self,
        subject: &Subject<'_>,
        source: &SourceAt,
        resolved: &Resolved,
    ) -> Option<Found> {
        let (build, uid, key) = (subject.key, subject.entry.uid.as_str(), &resolved.key);
        let registry = asked(subject, resolved);
        if self.asked.is_answered(build, uid, key) || self.asked.is_silent(&registry) {
            return None;
        }
        let proofs = self.proofs.key()?;
        let looking = self.look(subject, resolved, &proofs);
        let began = Instant::now();
        let found = tokio::time::timeout(TOTAL, looking).await;
        if began.elapsed() > SLOW {
            self.asked.is_silent_now(registry.clone());
        }
        match found.unwrap_or_else(|_| Err(Nothing::Silent("it does not answer".into()))) {
            Ok(Some((image, digest))) => {
                let image = format!("{image}@{digest}");
                tracing::info!(object = %build, image, "the image was found in the registry");
                return Some(Found { image, commit: source.commit.clone() });
            }
            Ok(None) => self.asked.answered(build, uid, key),
            Err(Nothing::Known(why)) => {
                tracing::info!(object = %build, why, "the image cannot be looked for");
                self.asked.answered(build, uid, key);
            }
            Err(Nothing::Silent(why)) => {
                tracing::info!(object = %build, why, "the registry cannot be asked");
                self.asked.is_silent_now(registry);
            }
        }
        None
    }

    async fn look(
        &self,
        subject: &Subject<'_>,
        resolved: &Resolved,
        proofs: &ProofKey,
    ) -> Result<Option<(Image, Digest)>, Nothing> {
        let (image, mut registry) = self.registry_of(subject, &resolved.registry, TOTAL).await?;
        let Some(tag) = proof::tag(&resolved.key) else { return Ok(None) };
        let Some(found) = registry.manifest(&tag).await? else { return Ok(None) };
        let digest = match proofs.digest(about(subject, resolved, &image), &found) {
            Ok(digest) => digest,
            Err(why) => {
                tracing::warn!(object = %subject.key, tag = %tag, %why, "this is no proof of the build");
                return Ok(None);
            }
        };
        let (namespace, name) = (&subject.key.namespace, &subject.key.name);
        let Some(tag) = proof::rebuilt_tag(namespace, name) else { return Ok(None) };
        if let Some(note) = registry.manifest(&tag).await?
            && proof::is_of_another_rebuild(&note, subject.rebuild())
        {
            tracing::info!(object = %subject.key, "the image in the registry may be from before a rebuild");
            return Ok(None);
        }
        // It may be gone.
        Ok(registry.has_manifest(&digest).await?.then_some((image, digest)))
    }

    /// Writes the proof that a run has made its image.
    pub(super) async fn prove(&self, subject: &Subject<'_>, resolved: &Resolved, run: &Run) {
        let RunOutcome::Built { digest } = &run.outcome else { return };
        let wanted = repository(&subject.build.spec, &resolved.registry);
        let is_there = run.image.as_ref().is_none_or(|image| *image == wanted);
        let (Some(proofs), Ok(digest), true) = (self.proofs.key(), digest.parse(), is_there) else {
            return;
        };
        let registry = asked(subject, resolved);
        if self.asked.is_silent(&registry) {
            return;
        }
        let writing = self.write_proof(subject, resolved, &proofs, &digest);
        let began = Instant::now();
        let written = tokio::time::timeout(TOTAL, writing).await;
        if began.elapsed() > SLOW {
            self.asked.is_silent_now(registry.clone());
        }
        let why =
            match written.unwrap_or_else(|_| Err(Nothing::Silent("it does not answer".into()))) {
                Ok(()) => return,
                Err(Nothing::Known(why)) => why,
                Err(Nothing::Silent(why)) => {
                    self.asked.is_silent_now(registry);
                    why
                }
            };
        tracing::info!(object = %subject.key, why, "the image will not be found again: its registry has no proof of it");
    }

    async fn write_proof(
        &self,
        subject: &Subject<'_>,
        resolved: &Resolved,
        proofs: &ProofKey,
        digest: &Digest,
    ) -> Result<(), Nothing> {
        let (image, mut registry) = self.registry_of(subject, &resolved.registry, TOTAL).await?;
        if let Some(value) = subject.rebuild() {
            let Some(tag) = proof::rebuilt_tag(&subject.key.namespace, &subject.key.name) else {
                return Ok(());
            };
            registry.push_note(&proof::rebuilt(value), &tag).await?;
        }
        let Some(tag) = proof::tag(&resolved.key) else { return Ok(()) };
        let proof = proofs.proof(about(subject, resolved, &image), digest);
        Ok(registry.push_note(&proof, &tag).await?)
    }

    /// The image of a build, and the client of its registry. All requests together may take so long.
    pub(super) async fn registry_of(
        &self,
        subject: &Subject<'_>,
        registry: &str,
        total: Duration,
    ) -> Result<(Image, Registry), Nothing> {
        let image = repository(&subject.build.spec, registry);
        let image: Image = image.parse().map_err(Nothing::Known)?;
        let client = self.client_of(subject, registry, &image, total).await?;
        Ok((image, client))
    }

    /// The client of the registry of an image: that of a build, or its base image. `registry` is that of the build.
    pub(super) async fn client_of(
        &self,
        subject: &Subject<'_>,
        registry: &str,
        image: &Image,
        total: Duration,
    ) -> Result<Registry, Nothing> {
        let output = &subject.build.spec.output;
        let ours: Image =
            repository(&subject.build.spec, registry).parse().map_err(Nothing::Known)?;
        let is_near = ours.is_beside(image);
        let mut credentials = Credentials::default();
        if output.secret_ref.is_some() {
            // What the annotation of the Secret allows for the build's own image is not allowed for others.
            let other = (*image != ours).then_some(image);
            let files = self.of_registry(subject, registry, other).await;
            let files = files.map_err(|error| Nothing::Known(error.to_string()))?;
            if let Some(config) = files.get(CONFIG) {
                credentials.login =
                    auth::login(config.get().as_bytes(), image).map_err(Nothing::Known)?;
            }
            // An authority is for the registries that the credentials are for.
            if is_near || !credentials.login.is_anonymous() {
                let authorities = files.get(AUTHORITIES);
                credentials.roots = authorities.map(|pem| pem.get().clone().into_bytes());
            }
        }
        let plain_http = output.insecure && is_near;
        let options = Options { plain_http, credentials, total };
        // Only for the internal one the policy of addresses has an exception.
        let internal = self.internal_registry.as_deref();
        let is_internal = internal
            .is_some_and(|internal| internal::is_same(internal, image.registry(), plain_http));
        let dialler = if is_internal { &self.to_registries } else { &self.dialler };
        Ok(Registry::new(dialler.clone(), image.clone(), options)?)
    }
}

/// The registry of a build.
fn asked(subject: &Subject<'_>, resolved: &Resolved) -> Asked {
    Asked {
        namespace: subject.key.namespace.clone(),
        registry: resolved.registry.clone(),
        plain_http: subject.build.spec.output.insecure,
    }
}

/// What a proof is about.
fn about<'a>(subject: &'a Subject<'_>, resolved: &'a Resolved, image: &'a Image) -> About<'a> {
    let (namespace, name) = (&subject.key.namespace, &subject.key.name);
    About { namespace, name, key: &resolved.key, image }
}
