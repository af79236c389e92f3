//! What is done to the runs of an AgentBuild that are there.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::Timestamp;
use kube::api::{Api, ListParams};

use super::Controller;
use super::apply::{self, remove, stop};
use super::lingering::{Lingering, Pushed, has_ended, lingering, rivals};
use super::pending::left_alone;
use super::pipeline_run::repository;
use super::reconcile::Subject;
use super::resolve::Resolved;
use super::run::Run;
use super::signing::seal::SEAL;
use crate::api::agent_build::NewerBuild;
use crate::cluster::client::{CallError, call};
use crate::cluster::store::{Entry, Key};
use crate::definition::tag::tag;
use convoke_core::sync::commit::source_at::SourceAt;

/// The label of a pod of Tekton with the name of its PipelineRun.
const RUN_OF_POD: &str = "tekton.dev/pipelineRun";
/// The pods that have not ended.
const NOT_ENDED: &str = "status.phase!=Succeeded,status.phase!=Failed";
/// The most pods that are read.
const MAX_PODS: u32 = 50;

impl Controller {
    /// Forgets a build that is gone.
    pub(super) fn forget(&self, build: &Key) {
        self.asked.forget(build);
        self.looks.forget(build);
        self.tags.forget(build);
    }

    /// Removes runs that were left pending: an operator ended before they had their Secrets. The names of those could be read meanwhile, so
    /// another run names others. Gives the time after which to look again, if another operator may be about to let one begin.
    pub(super) async fn remove_pending(
        &self,
        subject: &Subject<'_>,
    ) -> Result<Option<Duration>, CallError> {
        let ours = |run: &Run| run.owner_uid.as_deref() == Some(&*subject.entry.uid);
        let mut again = None;
        for run in subject.runs() {
            if run.value.held && run.value.is_running() && ours(&run.value) {
                let left = self.give_up_left(subject, &run).await?;
                again = again.into_iter().chain(left).min();
            }
        }
        Ok(again)
    }

    /// Removes a pending run that this reconcile has not made, or says how long it is left alone.
    pub(super) async fn give_up_left(
        &self,
        subject: &Subject<'_>,
        run: &Entry<Run>,
    ) -> Result<Option<Duration>, CallError> {
        let left = left_alone(&run.value, Timestamp::now());
        if left.is_none() {
            self.give_up(subject, run).await?;
        }
        Ok(left)
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

    /// Removes a pending run that this reconcile has made. Another one is made.
    pub(super) async fn give_up(
        &self,
        subject: &Subject<'_>,
        run: &Entry<Run>,
    ) -> Result<(), CallError> {
        let Some(runs) = subject.tekton.runs() else { return Ok(()) };
        remove(&self.client, runs, run).await
    }

    /// Whether the run that the status tells is gone, or the watch shows it. One that is there and that the watch does not show yet would get another one
    /// beside it.
    pub(super) async fn shows_last_run(&self, subject: &Subject<'_>) -> Result<bool, CallError> {
        let (Some(runs), Some(name)) = (subject.tekton.runs(), &subject.old.pipeline_run) else {
            return Ok(true);
        };
        let at = subject.old.build_namespace.as_deref().unwrap_or(&subject.key.namespace);
        if runs.get(&Key::new(at, name.as_str())).is_some() {
            return Ok(true);
        }
        apply::find(&self.client, runs, at, name).await.map(|is_there| !is_there)
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
        self.lingering_of(subject, &Pushed { uid, key, image: &image, tag: &tag }, runs).await
    }

    /// A pod that could still push a tag, for another key.
    pub(super) async fn lingering_of(
        &self,
        subject: &Subject<'_>,
        pushed: &Pushed<'_>,
        runs: &[&Run],
    ) -> Result<Option<Lingering>, CallError> {
        let mut by_namespace: BTreeMap<&str, Vec<&Run>> = BTreeMap::new();
        for run in rivals(runs, pushed) {
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
            for pod in &pods {
                let of = pod.metadata.labels.as_ref().and_then(|all| all.get(RUN_OF_POD));
                let run = of.and_then(|of| runs.iter().find(|run| run.name == *of));
                let (Some(run), Some(pod)) = (run, pod.metadata.name.as_deref()) else { continue };
                if may_push(&api, pod).await? {
                    let (home, now) = (subject.key.namespace.as_str(), Timestamp::now());
                    return Ok(Some(lingering(run, pod, pushed, home, now)));
                }
            }
        }
        Ok(None)
    }

    /// Stops a run, for another build or because somebody cancelled it.
    pub(super) async fn stop(
        &self,
        subject: &Subject<'_>,
        entries: &[Arc<Entry<Run>>],
        run: &Run,
        newer: Option<&NewerBuild>,
    ) -> Result<(), CallError> {
        let is_it = |one: &Run| one.name == run.name && one.namespace == run.namespace;
        let entry = entries.iter().find(|entry| is_it(&entry.value));
        let (Some(entry), Some(runs)) = (entry, subject.tekton.runs()) else { return Ok(()) };
        stop(&self.client, runs, entry, newer).await
    }
}

/// Whether a pod is there that may still push. The operator may list pods, and not get them.
async fn may_push(api: &Api<Pod>, name: &str) -> Result<bool, CallError> {
    let fields = format!("metadata.name={name},{NOT_ENDED}");
    let found = call(api.list(&ListParams::default().fields(&fields).limit(1))).await?;
    Ok(found.items.iter().any(|pod| !has_ended(pod)))
}
