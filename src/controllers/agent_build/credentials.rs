//! The credentials of a build: read from the Secrets that its GitSync or its spec names, and copied into Secrets that its run owns.
//!
//! A run that has some is created as pending, its Secrets follow, and then it begins. That they may be created is asked before. A pending run
//! that is left, after a crash or a refusal, is removed: it would keep its turn, and somebody could wait for a Secret whose name it tells.
//! No Secret is read that definitions name but for these, and none is read back.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt;
use serde_json::{Value, json};

use super::Controller;
use super::pipeline_run::{
    OWNER_KIND, RunSecrets, TEKTON_API_VERSION, repository, workspaces_with_credentials,
};
use super::problem::BuildProblem;
use super::reconcile::Subject;
use super::registry_auth::{self, BaseImage};
use super::resolve::Resolved;
use super::run::Run;
use super::template::WORKSPACE_GIT_AUTH;
use crate::api::keys;
use crate::cluster::client::CallError;
use crate::cluster::ssa;
use crate::cluster::store::Entry;
use crate::git::Files;
use crate::registry::Image;
use crate::sync::commit::source_error::SourceError;
use crate::sync::credentials;
use crate::sync::reasons::SourceReason;
use crate::sync::secrets::{Named, REGISTRY, input};

/// The files of each workspace with credentials.
type Credentials = BTreeMap<&'static str, Files>;

/// The Secrets of the next run of a build, under names that nobody can know before. `None` if it needs none.
///
/// # Errors
/// When the machine gives no random numbers.
pub fn wanted(
    subject: &Subject<'_>,
    resolved: &Resolved,
) -> Result<Option<RunSecrets>, BuildProblem> {
    let Resolved { access, template, .. } = resolved;
    let workspaces = workspaces_with_credentials(access, &subject.build.spec, template);
    if workspaces.is_empty() {
        return Ok(None);
    }
    let mut nonce = [0; 8];
    aws_lc_rs::rand::fill(&mut nonce).map_err(|_| BuildProblem::no_random_numbers())?;
    Ok(Some(RunSecrets { workspaces, nonce: convoke_core::text::hex(&nonce) }))
}

impl Controller {
    /// Reads the credentials of these workspaces.
    ///
    /// # Errors
    /// Why there are none, with the command that helps.
    pub(super) async fn credentials(
        &self,
        subject: &Subject<'_>,
        resolved: &Resolved,
        workspaces: &[&'static str],
    ) -> Result<Credentials, BuildProblem> {
        let mut all = Credentials::new();
        for workspace in workspaces {
            let files = if *workspace == WORKSPACE_GIT_AUTH {
                self.of_git(subject, resolved).await
            } else {
                self.of_registry(subject, &resolved.registry, None).await
            };
            all.insert(*workspace, files.map_err(|error| BuildProblem::of_credentials(&error))?);
        }
        Ok(all)
    }

    async fn of_git(
        &self,
        subject: &Subject<'_>,
        resolved: &Resolved,
    ) -> Result<Files, SourceError> {
        let (namespace, access) = (&subject.key.namespace, &resolved.access);
        credentials::files(&self.client, namespace, access, &self.operator, &self.dialler).await
    }

    /// The credentials for the registry of a build, and for a base image where the Secret allows it: that of its spec, or the one that is asked for.
    pub(super) async fn of_registry(
        &self,
        subject: &Subject<'_>,
        registry: &str,
        asked: Option<&Image>,
    ) -> Result<Files, SourceError> {
        let (namespace, spec) = (subject.key.namespace.as_str(), &subject.build.spec);
        let name = spec.output.secret_ref.as_ref().map_or("", |secret| secret.name.as_str());
        let secret = Named { namespace, name, field: "spec.output.secretRef", purpose: REGISTRY };
        let image = repository(spec, registry);
        let insecure = spec.output.insecure;
        let entry = if insecure { format!("http://{image}") } else { image.clone() };
        let allow = format!(
            "kubectl -n {namespace} annotate secret {name} {}={entry} --overwrite",
            keys::REGISTRIES
        );
        let missing = || {
            let message = format!("the Secret {name} of spec.output.secretRef does not exist");
            let hint = format!(
                "kubectl -n {namespace} create secret docker-registry {name} --docker-server={registry} \
                 --docker-username=... --docker-password=...; {allow}"
            );
            input(SourceReason::CredentialsMissing, message, Some(hint))
        };
        let read: Secret = secret.read(&self.client, &self.operator, missing).await?;
        let annotation = read.annotations().get(keys::REGISTRIES).map(String::as_str);
        if !annotation.is_some_and(|allowed| registry_auth::is_for(allowed, &image, insecure)) {
            let message = format!("the Secret {name} of spec.output.secretRef is not for {entry}");
            // What it is for already stays, and is not quoted.
            let hint = match annotation {
                None => allow,
                Some(_) => format!(
                    "if this image may be pushed with it, add {entry} to its annotation {}, after a comma",
                    keys::REGISTRIES
                ),
            };
            return Err(input(SourceReason::CredentialsNotAllowed, message, Some(hint)));
        }
        let allowed = annotation.unwrap_or_default().to_owned();
        let data = read.data.unwrap_or_default().into_iter();
        let data = data.map(|(key, value)| (key, value.0)).collect();
        let base = match asked {
            Some(asked) => Some(BaseImage::named(asked.clone(), spec, &allowed, &image)),
            None => BaseImage::of(spec, &allowed, &image),
        };
        registry_auth::files(&data, &image, base.as_ref())
            .map_err(|problem| secret.invalid(&problem, None))
    }

    /// Asks whether the Secrets of a run could be created, before there is a run.
    ///
    /// The outer error is a call that failed; the inner one is why they cannot.
    pub(super) async fn rehearse(
        &self,
        subject: &Subject<'_>,
        run: &str,
        credentials: &Credentials,
    ) -> Result<Result<(), BuildProblem>, CallError> {
        let api = ssa::api_of::<Secret>(&self.client, subject.place.namespace());
        for (workspace, files) in credentials {
            // Not the name that it will have: nobody knows that before.
            let name = format!("{run}-{workspace}");
            let owner = (run, subject.entry.uid.as_str());
            let namespace = subject.place.namespace();
            let asked =
                ssa::rehearse_create(&api, manifest(subject, namespace, owner, &name, files)).await;
            match asked.map_err(|error| self.refusal(namespace, error, &name)) {
                Ok(()) | Err(Refusal::Taken) => {}
                Err(Refusal::Told(problem)) => return Ok(Err(problem)),
                Err(Refusal::Call(error)) => return Err(error),
            }
        }
        Ok(Ok(()))
    }

    /// Creates the Secrets of a pending run, and lets it begin. If they are refused, the run is removed.
    ///
    /// The outer error is a call that failed; the inner one is why it cannot have them.
    pub(super) async fn begin(
        &self,
        subject: &Subject<'_>,
        run: &Entry<Run>,
        credentials: &Credentials,
    ) -> Result<Result<(), BuildProblem>, CallError> {
        let namespace = run.value.namespace.as_str();
        let api = ssa::api_of::<Secret>(&self.client, namespace);
        for (workspace, name) in &run.value.secrets {
            let Some(files) = credentials.get(workspace.as_str()) else { continue };
            let owner = (run.value.name.as_str(), run.uid.as_str());
            let secret = manifest(subject, namespace, owner, name, files);
            let Err(error) = ssa::create(&api, secret).await else { continue };
            self.give_up(subject, run).await?;
            return match self.refusal(namespace, error, name) {
                Refusal::Told(problem) => Ok(Err(problem)),
                // Whose it is nobody knows: the operator may not read it. The next run names another one.
                Refusal::Taken => Ok(Err(BuildProblem::secret_refused("its name is taken"))),
                Refusal::Call(error) => Err(error),
            };
        }
        self.let_begin(subject, run).await.map(Ok)
    }

    /// What a failed create of a Secret means.
    fn refusal(&self, namespace: &str, error: CallError, name: &str) -> Refusal {
        if error.is_missing_right() {
            Refusal::Told(BuildProblem::secrets_forbidden(namespace, &self.operator))
        } else if error.is_forbidden() || error.is_invalid() {
            // Each run has another name, and the status must not change with it.
            let said = error.to_string().replace(&format!("\"{name}\" "), "");
            Refusal::Told(BuildProblem::secret_refused(&said))
        } else if error.is_conflict() {
            Refusal::Taken
        } else {
            Refusal::Call(error)
        }
    }
}

/// Why a Secret was not created.
enum Refusal {
    /// The API server refuses it.
    Told(BuildProblem),
    /// Another one has its name.
    Taken,
    /// The call failed.
    Call(CallError),
}

/// A Secret that goes with the run, in its namespace.
fn manifest(
    subject: &Subject<'_>,
    namespace: &str,
    (run, uid): (&str, &str),
    name: &str,
    files: &Files,
) -> Value {
    let data: BTreeMap<_, _> = files.iter().map(|(name, text)| (*name, text.get())).collect();
    let mut secret = json!({
        "apiVersion": "v1", "kind": "Secret", "type": "Opaque", "immutable": true,
        "metadata": {
            "namespace": namespace, "name": name,
            "labels": {
                "app.kubernetes.io/managed-by": "convoke",
                keys::OWNER_KIND: OWNER_KIND,
                keys::OWNER_NAME: subject.key.name,
            },
            "ownerReferences": [{
                "apiVersion": TEKTON_API_VERSION, "kind": "PipelineRun", "name": run, "uid": uid,
                "controller": true,
            }],
        },
        "stringData": data,
    });
    if namespace != subject.key.namespace {
        let meta = &mut secret["metadata"];
        meta["labels"][keys::OWNER_NAMESPACE] = subject.key.namespace.as_str().into();
        meta["labels"][keys::OWNER_UID] = subject.entry.uid.as_str().into();
        // The AgentBuild waits for the end of the run, and the run for that of its Secrets.
        meta["ownerReferences"][0]["blockOwnerDeletion"] = true.into();
    }
    secret
}
