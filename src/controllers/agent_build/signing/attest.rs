//! Attests runs that have succeeded: says in the registry what they have built, and marks them.

use std::collections::BTreeMap;
use std::time::Duration;

use kube::api::{Api, DynamicObject};
use tokio::time::Instant;

use super::dsse;
use super::refusal::refusal;
use super::secret;
use super::statement::{self, Asked, PREDICATE, PipelineOf};
use super::tries::Tries;
use crate::cluster::client::call;
use crate::cluster::reflector;
use crate::cluster::ssa;
use crate::cluster::store::Entry;
use crate::controllers::agent_build::Controller;
use crate::controllers::agent_build::internal;
use crate::controllers::agent_build::pipeline_run::repository;
use crate::controllers::agent_build::questions::Asked as Registry;
use crate::controllers::agent_build::reconcile::Subject;
use crate::controllers::agent_build::resolve::Resolved;
use crate::controllers::agent_build::reuse::Nothing;
use crate::controllers::agent_build::run::{PROVENANCE, Run, RunOutcome};
use crate::controllers::agent_build::tekton::resource;
use crate::registry::Digest;
use crate::registry::attestations::Attestation;
use convoke_core::sync::commit::source_at::SourceAt;

/// How long all requests about one attestation may take together.
const TOTAL: Duration = Duration::from_secs(15);
/// A registry that takes longer is left alone for as long as one that does not answer: reconciles wait for it.
const SLOW: Duration = Duration::from_secs(5);
/// The pause before the next run of the same build.
const NEXT: Duration = Duration::from_millis(100);

/// What attestations need besides the controller's own parts.
#[derive(Debug)]
pub struct Signing {
    /// The namespace with the key.
    operator_namespace: String,
    tries: Tries,
}

impl Signing {
    /// With the key of this namespace.
    #[must_use]
    pub fn new(operator_namespace: String) -> Self {
        Self { operator_namespace, tries: Tries::default() }
    }
}

/// The runs of a build that are not attested yet.
#[derive(Debug, Default)]
pub struct Unattested {
    /// Why each of them is not, that may be attested later.
    pub why: BTreeMap<String, String>,
    /// Why each of the others never is.
    pub refused: BTreeMap<String, &'static str>,
    /// When the next one is tried again.
    pub again: Option<Duration>,
}

impl Unattested {
    /// What is said of a run that is not attested.
    #[must_use]
    pub fn message(&self, run: &Run, home: &str) -> String {
        let why = self.why.get(&run.name).map_or("it is tried at once", String::as_str);
        let run = run.title(home);
        format!(
            "PipelineRun {run} has built the image, and its provenance is not in the registry yet: {why}"
        )
    }

    /// The same of one that is never attested, with what helps. `None` for others.
    #[must_use]
    pub fn refusal(&self, run: &Run, home: &str) -> Option<String> {
        let why = self.refused.get(&run.name)?;
        let build = run.owner_name.as_deref().unwrap_or_default();
        let run = run.title(home);
        Some(format!(
            "PipelineRun {run} has built an image that does not count, because it gets no provenance: {why}; hint: convoke rebuild build/{build} -n {home} builds it anew"
        ))
    }

    fn note(&mut self, run: &Run, why: String, left: Option<Duration>) {
        self.why.insert(run.name.clone(), why);
        self.again = [self.again, left].into_iter().flatten().min();
    }
}

impl Controller {
    /// Attests the runs of a build that have succeeded, the newest first. Those that failed are tried again later.
    pub(in super::super) async fn attest(&self, subject: &Subject<'_>) -> Unattested {
        let mut left = Unattested::default();
        let mut runs = subject.runs();
        let is_ours = |run: &Run| run.owner_uid.as_deref() == Some(&*subject.entry.uid);
        runs.retain(|run| {
            is_ours(&run.value) && matches!(run.value.outcome, RunOutcome::Unattested { .. })
        });
        runs.sort_by_key(|run| std::cmp::Reverse(run.value.created));
        let mut asked = false;
        let seals = self.proofs.seals();
        for run in runs {
            let place = self.owners.place(subject.key, run.value.needs);
            // As it was seen last: when it changes, this is asked again.
            if let Some(why) = refusal(&run.value, &run.uid, seals.as_deref(), &place) {
                self.signing.tries.forget(&run.uid);
                left.refused.insert(run.value.name.clone(), why);
                continue;
            }
            if let Some((why, pause)) = self.signing.tries.wait(&run.uid) {
                left.note(&run.value, why, Some(pause));
                continue;
            }
            // One at a time: other builds wait for this reconcile.
            if asked {
                left.note(&run.value, "others come first".into(), Some(NEXT));
                continue;
            }
            asked = true;
            match self.attest_run(subject, &run).await {
                Ok(()) => self.signing.tries.forget(&run.uid),
                Err(why) => {
                    let (pause, is_new) = self.signing.tries.failed(&run.uid, &why);
                    if is_new {
                        let run = &run.value.name;
                        tracing::warn!(object = %subject.key, run, why, "the image has no provenance yet");
                    }
                    left.note(&run.value, why, Some(pause));
                }
            }
        }
        left
    }

    /// Attests one run, and marks it.
    ///
    /// # Errors
    /// Why it is not attested.
    async fn attest_run(&self, subject: &Subject<'_>, run: &Entry<Run>) -> Result<(), String> {
        let spec = &subject.build.spec;
        let registry = Registry {
            namespace: subject.key.namespace.clone(),
            registry: self.registry(spec).ok_or("there is no registry")?,
            plain_http: spec.output.insecure,
        };
        if self.asked.is_silent(&registry) {
            return Err("its registry did not answer a moment ago".into());
        }
        let began = Instant::now();
        let done = tokio::time::timeout(TOTAL, self.attest_now(subject, run)).await;
        if began.elapsed() > SLOW {
            self.asked.is_silent_now(registry);
        }
        done.map_err(|_| "it takes too long".to_owned())?
    }

    async fn attest_now(&self, subject: &Subject<'_>, entry: &Entry<Run>) -> Result<(), String> {
        let (run, spec) = (&entry.value, &subject.build.spec);
        let RunOutcome::Unattested { digest } = &run.outcome else { return Ok(()) };
        let digest: Digest = digest.parse()?;
        let namespace = &subject.key.namespace;
        let registry = self.registry(spec).ok_or("there is no registry")?;
        // The credentials are those of the spec.
        if run.image.as_deref() != Some(repository(spec, &registry).as_str()) {
            return Err("spec.output asks for another image by now".into());
        }
        let allowed = self
            .internal_registry
            .as_deref()
            .is_none_or(|internal| internal::allows(internal, &registry, spec, namespace));
        if !allowed {
            return Err("spec.output.image does not begin with the namespace".into());
        }
        let api: Api<DynamicObject> =
            Api::namespaced_with(self.client.clone(), &run.namespace, &resource());
        let object = call(api.get(&run.name)).await.map_err(|error| error.to_string())?;
        if object.metadata.uid.as_deref() != Some(entry.uid.as_str()) {
            return Err("it was made anew meanwhile".into());
        }
        let seals = self.proofs.seals().ok_or("the Secret convoke-hmac cannot be read")?;
        if !seals.is_right(&Run::read(&object), &entry.uid) {
            return Err("it has changed meanwhile, and its seal is wrong".into());
        }
        let key = secret::obtain(&self.client, &self.signing.operator_namespace).await;
        let key = key.map_err(|error| error.to_string())?;

        let (image, mut client) =
            self.registry_of(subject, &registry, TOTAL).await.map_err(Nothing::why)?;
        if !client.has_manifest(&digest).await.map_err(|error| error.to_string())? {
            return Err(format!("the registry has no {image}@{digest}"));
        }
        let base = run.base_digest.as_deref();
        let statement = statement::statement(&object, &image, &digest, base)?.to_string();
        let by = statement::invocation(&object);
        let there = client.attestation_of(&digest, PREDICATE, &by).await;
        let there = there.map_err(|error| error.to_string())?;
        // The mark may have been refused, or an operator ended before it.
        let there = there.filter(|one| dsse::is_of(one, statement.as_bytes(), &key.public()));
        let envelope = if let Some(envelope) = there {
            envelope
        } else {
            let signed = dsse::pre_authentication_encoding(dsse::IN_TOTO, statement.as_bytes());
            let signature = key.sign(&signed).ok_or("the system gives no random bytes")?;
            let envelope = dsse::envelope(statement.as_bytes(), &signature);
            let attestation =
                Attestation { envelope: &envelope, predicate_type: PREDICATE, run: &by };
            client.attest(&digest, &attestation).await.map_err(|error| error.to_string())?;
            envelope
        };

        // If this fails, the next try finds what is there.
        let mark = Digest::of(&envelope).to_string();
        let marks = [(PROVENANCE, mark.as_str())];
        let marked = ssa::annotate(&api, &run.name, &entry.uid, &marks).await;
        let marked =
            marked.map_err(|error| format!("the PipelineRun cannot be marked: {error}"))?;
        tracing::info!(object = %subject.key, run = run.name, %digest, "the provenance of the image is in the registry");
        if let Some(store) = subject.tekton.runs() {
            let (key, entry) = reflector::entry::<Run>(marked);
            store.wrote(key, entry);
        }
        Ok(())
    }
}

/// What a run is to say of its source and its template. `None` if it is not to be attested.
pub(in super::super) fn asks_for_provenance(
    subject: &Subject<'_>,
    source: &SourceAt,
    resolved: &Resolved,
) -> Option<Asked> {
    resolved.template.provenance.then(|| Asked {
        mode: subject.build.spec.mode.clone(),
        pipeline_of: PipelineOf::of(&resolved.template),
        reference: reference(subject),
        tree: source.subfolder_tree.clone(),
    })
}

/// The full name of the ref that is followed. A commit of a GitSync may have been read when it followed another one: nothing is claimed of it.
fn reference(subject: &Subject<'_>) -> Option<String> {
    let git = subject.build.spec.source.git.as_ref()?;
    statement::full_ref(&git.reference.clone().unwrap_or_default())
}
