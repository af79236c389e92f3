//! Runs in the namespace of `--build-namespace` whose AgentBuild is gone: a team has taken its finalizer away. They would count for its limits
//! for ever, and nothing else removes them.

use std::time::Duration;

use super::Controller;
use super::apply::runs_of;
use super::place::{Proven, is_orphan};
use crate::api::AgentBuild;
use crate::cluster::client::{CallError, call};
use crate::cluster::ssa::{self, Deleted};
use crate::cluster::store::Key;

/// The time after which a run is removed again that changed meanwhile.
const RECHECK: Duration = Duration::from_secs(10);

impl Controller {
    /// Removes the runs that name an AgentBuild of this name and another UID than its own, which is `None` if it is gone. Says when to look
    /// again, if some are left.
    ///
    /// The API server has to say that the AgentBuild is gone, or is another one: what is in memory may be old. A run counts as one of ours only
    /// if its name follows from its labels and its build key ([`super::place::owner_elsewhere`]).
    pub(super) async fn sweep(
        &self,
        key: &Key,
        uid: Option<&str>,
    ) -> Result<Option<Duration>, CallError> {
        let tekton = self.tekton.state();
        let Some(store) = tekton.runs() else { return Ok(None) };
        // Before the API server is asked. What is in memory decides only whether it is asked.
        let known = uid.map_or(Proven::Gone, |uid| Proven::There(uid.to_owned()));
        let mut runs = self.owners.in_build_namespace(store, key);
        runs.retain(|run| is_orphan(&run.value, key, &known));
        if runs.is_empty() {
            return Ok(None);
        }
        let builds = ssa::api_of::<AgentBuild>(&self.client, &key.namespace);
        let proven = match call(builds.get_metadata(&key.name)).await {
            Ok(object) => match object.metadata.uid {
                Some(uid) => Proven::There(uid),
                None => return Ok(Some(RECHECK)),
            },
            Err(error) if error.is_gone() => Proven::Gone,
            Err(error) => return Err(error),
        };
        let mut again = None;
        for run in runs.iter().filter(|run| is_orphan(&run.value, key, &proven)) {
            let (namespace, name) = (run.value.namespace.as_str(), run.value.name.as_str());
            let api = runs_of(&self.client, namespace);
            match ssa::delete_after_dependents(&api, name, &run.uid, run.version).await? {
                Deleted::Gone => {
                    tracing::info!(object = %key, namespace, run = name, "a PipelineRun of an AgentBuild that is gone was removed");
                    store.deleted(&Key::new(namespace, name), &run.uid);
                }
                Deleted::Changed | Deleted::Terminating(_) => again = Some(RECHECK),
            }
        }
        Ok(again)
    }
}
