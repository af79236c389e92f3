//! What is done to the runs of an AgentBuild that are there.

use std::sync::Arc;

use super::Controller;
use super::apply::{self, remove, stop};
use super::key::BuildKey;
use super::reconcile::Subject;
use super::run::Run;
use crate::cluster::client::CallError;
use crate::cluster::store::Entry;

impl Controller {
    /// Removes runs that were left pending: an operator ended before they had their Secrets. The names of those could be read meanwhile, so
    /// another run names others.
    pub(super) async fn remove_pending(&self, subject: &Subject<'_>) -> Result<(), CallError> {
        let ours = |run: &Run| run.owner_uid.as_deref() == Some(&*subject.entry.uid);
        for run in subject.runs() {
            if run.value.held && run.value.is_running() && ours(&run.value) {
                self.give_up(subject, &run).await?;
            }
        }
        Ok(())
    }

    /// Lets Tekton begin with a pending run.
    pub(super) async fn let_begin(
        &self,
        subject: &Subject<'_>,
        run: &Entry<Run>,
    ) -> Result<(), CallError> {
        let Some(runs) = subject.tekton.runs() else { return Ok(()) };
        apply::begin(&self.client, runs, run).await
    }

    /// Removes a pending run. Another one is made.
    pub(super) async fn give_up(
        &self,
        subject: &Subject<'_>,
        run: &Entry<Run>,
    ) -> Result<(), CallError> {
        let Some(runs) = subject.tekton.runs() else { return Ok(()) };
        remove(&self.client, runs, run).await
    }

    /// Stops a run, for another key or because somebody cancelled it.
    pub(super) async fn stop(
        &self,
        subject: &Subject<'_>,
        entries: &[Arc<Entry<Run>>],
        run: &Run,
        for_key: Option<&BuildKey>,
    ) -> Result<(), CallError> {
        let is_it = |one: &Run| one.name == run.name && one.namespace == run.namespace;
        let entry = entries.iter().find(|entry| is_it(&entry.value));
        let (Some(entry), Some(runs)) = (entry, subject.tekton.runs()) else { return Ok(()) };
        stop(&self.client, runs, entry, for_key.map(BuildKey::as_str)).await
    }
}
