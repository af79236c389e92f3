//! What is done to the runs of an AgentBuild that are there.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::Timestamp;
use kube::api::{Api, ListParams};

use super::Controller;
use super::apply::{self, remove, stop};
use super::key::BuildKey;
use super::lingering::{Lingering, Pushed, lingering, rivals};
use super::pipeline_run::{repository, tag};
use super::reconcile::Subject;
use super::resolve::Resolved;
use super::run::Run;
use super::signing::seal::SEAL;
use crate::cluster::client::{CallError, call};
use crate::cluster::store::Entry;
use convoke_core::sync::commit::source_at::SourceAt;

/// The label of a pod of Tekton with the name of its PipelineRun.
const RUN_OF_POD: &str = "tekton.dev/pipelineRun";
/// The pods that have not ended.
const NOT_ENDED: &str = "status.phase!=Succeeded,status.phase!=Failed";
/// The most pods that are read.
const MAX_PODS: u32 = 50;

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

    /// Lets Tekton begin with a pending run that this process has just made. One that is to be attested gets its seal.
    pub(super) async fn let_begin(
        &self,
        subject: &Subject<'_>,
        run: &Entry<Run>,
    ) -> Result<(), CallError> {
        let Some(runs) = subject.tekton.runs() else { return Ok(()) };
        let seal = self.proofs.seals().and_then(|seals| seals.seal(&run.value, &run.uid));
        let annotations: Vec<_> = seal.as_deref().map(|seal| (SEAL, seal)).into_iter().collect();
        apply::begin(&self.client, runs, run, &annotations).await
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

    /// A pod that could put an older image under the tag of the next run. Without the right to list pods none is known.
    pub(super) async fn lingering(
        &self,
        subject: &Subject<'_>,
        source: &SourceAt,
        resolved: &Resolved,
        runs: &[&Run],
    ) -> Result<Option<Lingering>, CallError> {
        let spec = &subject.build.spec;
        // What is no tag is told when the run is rendered.
        let Ok(tag) = tag(&spec.output.tag, &source.commit) else { return Ok(None) };
        let image = repository(spec, &resolved.registry);
        let (uid, key) = (subject.entry.uid.as_str(), &resolved.key);
        let pushed = Pushed { uid, key, image: &image, tag: &tag };
        let mut by_namespace: BTreeMap<&str, Vec<&Run>> = BTreeMap::new();
        for run in rivals(runs, &pushed) {
            by_namespace.entry(&run.namespace).or_default().push(run);
        }
        for (namespace, runs) in by_namespace {
            let names: Vec<_> = runs.iter().map(|run| run.name.as_str()).collect();
            let labels = format!("tekton.dev/taskRun,{RUN_OF_POD} in ({})", names.join(","));
            let params = ListParams::default().labels(&labels).fields(NOT_ENDED).limit(MAX_PODS);
            let api: Api<Pod> = Api::namespaced(self.client.clone(), namespace);
            let pods = match call(api.list_metadata(&params)).await {
                Ok(pods) => pods.items,
                Err(error) if error.is_forbidden() => continue,
                Err(error) => return Err(error),
            };
            let found = pods.iter().find_map(|pod| {
                let of = pod.metadata.labels.as_ref()?.get(RUN_OF_POD)?;
                let run = runs.iter().find(|run| run.name == *of)?;
                let (pod, home) = (pod.metadata.name.as_deref()?, subject.key.namespace.as_str());
                Some(lingering(run, pod, &pushed, home, Timestamp::now()))
            });
            if found.is_some() {
                return Ok(found);
            }
        }
        Ok(None)
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
