//! Creates the PipelineRun of a build key: takes its turn, makes sure that nothing is left of an older one, and lets it begin when its Secrets are there.

use std::sync::Arc;

use serde_json::Value;

use super::Controller;
use super::apply::create;
use super::decide;
use super::pipeline_run::RunSecrets;
use super::problem::BuildProblem;
use super::reconcile::{Subject, queued};
use super::resolve::Resolved;
use super::run::Run;
use crate::cluster::client::CallError;
use crate::cluster::store::{Entry, Key};

impl Controller {
    /// Creates the run of a key, if it is its turn.
    ///
    /// The outer error is a call that failed; the inner one is that the API server refuses it.
    pub(super) async fn create(
        &self,
        subject: &Subject<'_>,
        resolved: &Resolved,
        mut manifest: Value,
        secrets: Option<&RunSecrets>,
    ) -> Result<Result<Option<Arc<Entry<Run>>>, BuildProblem>, CallError> {
        let Some(runs) = subject.tekton.runs() else { return Ok(Ok(None)) };
        self.turns.note(subject.key, queued(&subject.old));
        let Some(starting) = self.turns.take(subject.key, runs) else { return Ok(Ok(None)) };
        if resolved.template.provenance && self.proofs.seals().is_none() {
            return Ok(Err(BuildProblem::no_seal()));
        }
        if !self.shows_last_run(subject).await? {
            return Ok(Ok(None));
        }
        match self.settle(subject).await? {
            Ok(true) => {}
            Ok(false) => return Ok(Ok(None)),
            Err(problem) => return Ok(Err(problem)),
        }
        self.note_credentials(subject, resolved, &mut manifest).await;
        // First, so that no run waits for what is missing.
        let workspaces = secrets.map_or(&[][..], |secrets| &secrets.workspaces);
        let credentials = match self.credentials(subject, resolved, workspaces).await {
            Ok(credentials) => credentials,
            Err(problem) => return Ok(Err(problem)),
        };
        let run = manifest["metadata"]["name"].as_str().unwrap_or_default();
        if let Err(problem) = self.rehearse(subject, run, &credentials).await? {
            return Ok(Err(problem));
        }
        let created = create(&self.client, runs, subject.place.namespace(), manifest).await;
        drop(starting);
        match created {
            Ok((run, made))
                if run.value.held
                    && decide::is_ours(&run.value, &subject.entry.uid, &resolved.key) =>
            {
                if !made {
                    // Somebody else may have made it, to get its Secrets or its seal. Or another operator.
                    self.give_up_left(subject, &run).await?;
                    return Ok(Ok(None));
                }
                let begun = self.begin(subject, &run, &credentials).await?;
                let key = Key::new(run.value.namespace.as_str(), run.value.name.as_str());
                Ok(begun.map(|()| runs.get(&key)))
            }
            Ok((run, _)) => Ok(Ok(Some(run))),
            Err(error)
                if error.is_forbidden()
                    || error.is_invalid()
                    || error.is_denied()
                    || error.is_webhook_failure() =>
            {
                Ok(Err(BuildProblem::run_refused(&error)))
            }
            Err(error) => Err(error),
        }
    }
}
