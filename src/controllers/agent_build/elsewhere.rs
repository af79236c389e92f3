//! AgentBuilds whose runs are in another namespace: their finalizer, and what becomes of the runs when an AgentBuild is deleted.
//!
//! The finalizer is written before the first run is made, and removed when none is left. So no crash leaves a run that nobody removes.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use k8s_openapi::jiff::Timestamp;
use kube::Api;
use kube::api::{DynamicObject, ListParams};
use serde_json::Value;

use super::Controller;
use super::apply::runs_of;
use super::decide::Builder;
use super::pipeline_run::OWNER_KIND;
use super::place::{finalizer, is_of, places};
use super::problem::BuildProblem;
use super::reconcile::Subject;
use super::run::Run;
use super::tekton::DEFINITION;
use crate::api::{AgentBuild, keys};
use crate::cluster::client::{CallError, call};
use crate::cluster::conditions;
use crate::cluster::live::Managed;
use crate::cluster::reflector::identity;
use crate::cluster::ssa;
use crate::cluster::status::Target;
use crate::cluster::store::{Entry, Key};
use crate::controllers;
use crate::runtime::worker::Next;

/// How often the write of a finalizer is tried when the AgentBuild changed meanwhile.
const MAX_TRIES: usize = 5;
/// The most namespaces in which runs are looked for at once. An AgentBuild has one, or two after the option was changed.
const MAX_PLACES: usize = 8;
/// The most runs of a namespace that are looked at at once. The history keeps at most 100.
const MAX_RUNS: u32 = 250;
/// The time after which it is tried again to look after runs elsewhere.
const RETRY: Duration = Duration::from_secs(30);
/// The time after which it is looked again whether runs are gone. Usually the watch tells it.
const RECHECK: Duration = Duration::from_secs(10);

impl Controller {
    /// Prepares the other namespace for a run of an AgentBuild, if it is made there: the finalizer first. `false` if the AgentBuild is
    /// about to go.
    ///
    /// The outer error is a call that failed; the inner one is why no run can be made there.
    pub(super) async fn settle(
        &self,
        subject: &Subject<'_>,
    ) -> Result<Result<bool, BuildProblem>, CallError> {
        let Some(at) = subject.place.elsewhere() else { return Ok(Ok(true)) };
        let namespaces: Api<Namespace> = Api::all(self.client.clone());
        let found = call(namespaces.get_opt(at)).await?;
        let is_ending = |one: &Namespace| one.metadata.deletion_timestamp.is_some();
        if found.as_ref().is_none_or(is_ending) {
            return Ok(Err(BuildProblem::build_namespace_missing(at, found.is_some())));
        }
        match self.hold(subject.key, &subject.entry.uid, at).await {
            Ok(held) => Ok(Ok(held)),
            Err(error) if error.is_missing_right() => {
                Ok(Err(BuildProblem::build_namespace_forbidden(&error, &self.operator)))
            }
            Err(error)
                if error.is_forbidden() || error.is_invalid() || error.is_webhook_failure() =>
            {
                Ok(Err(BuildProblem::finalizer_refused(&error)))
            }
            Err(error) => Err(error),
        }
    }

    /// Gives an AgentBuild the finalizer of a namespace. `false` if it is about to go.
    async fn hold(&self, key: &Key, uid: &str, at: &str) -> Result<bool, CallError> {
        let name = finalizer(at);
        let held = self.change_finalizers(key, uid, |all| {
            if !all.contains(&name) {
                all.push(name.clone());
            }
        });
        Ok(held.await?.is_some_and(|entry| !entry.value.facts.deleting))
    }

    /// Changes the finalizers of the AgentBuild with this UID, and gives it as it is then. Nothing is written if nothing changes. `None` if it
    /// is gone, or about to go and must not get another one.
    async fn change_finalizers(
        &self,
        key: &Key,
        uid: &str,
        change: impl Fn(&mut Vec<String>),
    ) -> Result<Option<Arc<Entry<Managed<AgentBuild>>>>, CallError> {
        let api = ssa::api_of::<AgentBuild>(&self.client, &key.namespace);
        let Some(mut newest) = self.builds.get(key).filter(|newest| newest.uid == uid) else {
            return Ok(None);
        };
        for attempt in 1..=MAX_TRIES {
            let old = &newest.value.facts.finalizers;
            let mut new = old.to_vec();
            change(&mut new);
            if new[..] == old[..] {
                break;
            }
            if newest.value.facts.deleting && new.len() > old.len() {
                return Ok(None);
            }
            let written = ssa::set_finalizers(&api, &key.name, newest.version, &new).await;
            let object = match written {
                Err(error) if error.is_conflict() && attempt < MAX_TRIES => {
                    call(api.get(&key.name)).await
                }
                written => written.inspect(|_| tracing::debug!(object = %key, ?new, "finalizers")),
            };
            let object = match object {
                Ok(object) if object.metadata.uid.as_deref() == Some(uid) => object,
                Ok(_) => return Ok(None),
                Err(error) if error.is_gone() => {
                    self.builds.deleted(key, uid);
                    return Ok(None);
                }
                Err(error) => return Err(error),
            };
            let (_, seen) = Managed::<AgentBuild>::answered(object);
            if seen.value.facts.deleting && seen.value.facts.finalizers.is_empty() {
                // That was the last one: the API server has deleted the AgentBuild with this write.
                self.builds.deleted(key, uid);
                return Ok(None);
            }
            newest = self.builds.wrote(key.clone(), seen);
        }
        Ok(Some(newest))
    }

    /// Removes the finalizer of a namespace in which an AgentBuild has no runs any more, and makes none. And gives it back one that
    /// somebody has removed. Nothing waits for any of it.
    pub(super) async fn tidy(&self, subject: &Subject<'_>) -> Tidied {
        let (key, uid) = (subject.key, subject.entry.uid.as_str());
        let finalizers = &subject.entry.value.facts.finalizers;
        let ours = |run: &&Arc<Entry<Run>>| run.value.owner_uid.as_deref() == Some(uid);
        let runs = subject.runs();
        let used: Vec<_> =
            runs.iter().filter(ours).filter(|run| run.value.is_elsewhere()).collect();
        let is_held = |at: &str| places(finalizers).any(|place| place == at);
        let mut tidied = Tidied::default();
        if let Some(run) = used.iter().find(|run| !is_held(&run.value.namespace)) {
            let at = run.value.namespace.as_str();
            if let Err(error) = self.hold(key, uid, at).await {
                tidied.failed(format!("it has PipelineRuns in the namespace {at}, and the finalizer that names it cannot be written: {error}"));
            }
        }
        let is_used = |at: &str| used.iter().any(|run| run.value.namespace == at);
        // The one of the option stays: there the next run may be made.
        let unused = places(finalizers).filter(|at| !self.owners.is_build_namespace(at));
        let unused: Vec<_> = unused.filter(|at| !is_used(at)).collect();
        match self.looks.turn(key, &unused) {
            Ok(Some(at)) => {
                let done = self.let_go(at, key, uid).await;
                let why = done.err().map(|error| {
                    format!("it cannot be told whether PipelineRuns are left in the namespace {at} of a finalizer, or that cannot be removed: {error}")
                });
                if unused.len() > 1 || why.is_some() {
                    tidied.again = Some(RECHECK);
                }
                self.looks.note(key, at, why);
            }
            Ok(None) => {}
            Err(left) => tidied.again = Some(left),
        }
        if let Some(why) = self.looks.failed(key) {
            tidied.failed(why);
        }
        match self.sweep(key, Some(uid)).await {
            Ok(again) => tidied.again = tidied.again.into_iter().chain(again).min(),
            Err(error) => tidied.failed(format!(
                "PipelineRuns of an AgentBuild of this name that is gone cannot be removed: {error}"
            )),
        }
        tidied
    }

    /// Removes the finalizer of a namespace, if no runs are left there.
    async fn let_go(&self, at: &str, key: &Key, uid: &str) -> Result<(), CallError> {
        // The store may be behind.
        let left = self.runs_in(at, key, uid).await?;
        if left.is_some_and(|runs| runs.is_empty()) {
            self.release(key, uid, &[finalizer(at)]).await?;
        }
        Ok(())
    }

    /// Removes finalizers of ours from an AgentBuild.
    async fn release(&self, key: &Key, uid: &str, all: &[String]) -> Result<(), CallError> {
        let without = |have: &mut Vec<String>| have.retain(|one| !all.contains(one));
        self.change_finalizers(key, uid, without).await.map(drop)
    }

    /// The runs in another namespace of the AgentBuild with this name and UID, as the API server has them. `None` if that cannot be known now.
    async fn runs_in(
        &self,
        at: &str,
        key: &Key,
        uid: &str,
    ) -> Result<Option<Vec<DynamicObject>>, CallError> {
        match self.tekton.state().builder() {
            Builder::Unknown => return Ok(None),
            // They went with their definition, if that is gone. One that is not served may have some.
            Builder::NotInstalled => {
                let definitions: Api<CustomResourceDefinition> = Api::all(self.client.clone());
                let found = call(definitions.get_metadata_opt(DEFINITION)).await?;
                return Ok(found.is_none().then(Vec::new));
            }
            Builder::Available => {}
        }
        let labels = format!("{}={OWNER_KIND},{}={uid}", keys::OWNER_KIND, keys::OWNER_UID);
        let params = ListParams::default().labels(&labels).limit(MAX_RUNS);
        let list = call(runs_of(&self.client, at).list_metadata(&params)).await?;
        let object = |metadata| DynamicObject { types: None, metadata, data: Value::Null };
        let all = list.items.into_iter().map(|one| object(one.metadata));
        let runs: Vec<_> = all.filter(|one| is_of(&Run::read(one), key, uid)).collect();
        let has_more = list.metadata.continue_.is_some_and(|token| !token.is_empty());
        Ok(if runs.is_empty() && has_more { None } else { Some(runs) })
    }

    /// What an AgentBuild that is being deleted has left in other namespaces: its runs are removed there with all that they own, and then
    /// its finalizers.
    pub(super) async fn part(
        &self,
        key: &Key,
        entry: &Entry<Managed<AgentBuild>>,
    ) -> Result<Next, CallError> {
        let (uid, finalizers) = (entry.uid.as_str(), &entry.value.facts.finalizers);
        let (mut over, mut refused) = (Vec::new(), None);
        for at in places(finalizers).take(MAX_PLACES) {
            match self.clear(at, key, uid).await {
                Ok(true) => over.push(at),
                Ok(false) => {}
                Err(error) if error.is_forbidden() => refused = Some((at, error)),
                Err(error) => return Err(error),
            }
        }
        let names: Vec<_> = over.iter().map(|at| finalizer(at)).collect();
        match self.release(key, uid, &names).await {
            Err(error) if error.is_forbidden() => {
                refused = over.first().map(|at| (*at, error));
            }
            released => released?,
        }
        if let Some((at, error)) = &refused {
            self.tell_left(key, entry, at, error).await?;
        }
        let is_over = refused.is_none() && over.len() == places(finalizers).count();
        Ok(if is_over { Next::Settled } else { Next::After(RECHECK) })
    }

    /// Removes the runs of an AgentBuild in another namespace. `true` once none is left.
    async fn clear(&self, at: &str, key: &Key, uid: &str) -> Result<bool, CallError> {
        let Some(runs) = self.runs_in(at, key, uid).await? else { return Ok(false) };
        let api = runs_of(&self.client, at);
        for run in &runs {
            let (of_run, run_uid, version) = identity(&run.metadata);
            if run.metadata.deletion_timestamp.is_some() {
                continue;
            }
            tracing::info!(object = %key, run = %of_run, "a PipelineRun of what is deleted is removed");
            // What comes of it is seen the next time.
            ssa::delete_after_dependents(&api, &of_run.name, &run_uid, version).await?;
        }
        Ok(runs.is_empty())
    }

    /// Says in the status of an AgentBuild that is being deleted why it stays.
    async fn tell_left(
        &self,
        key: &Key,
        entry: &Entry<Managed<AgentBuild>>,
        at: &str,
        error: &CallError,
    ) -> Result<(), CallError> {
        let problem = BuildProblem::runs_left(at, error, &self.operator);
        tracing::warn!(object = %key, message = problem.message, "an AgentBuild cannot go");
        let Some(build) = entry.value.object() else { return Ok(()) };
        let old = build.status.clone().unwrap_or_default();
        let mut new = old.clone();
        let (generation, now) = (build.metadata.generation.unwrap_or_default(), Timestamp::now());
        let observed = conditions::Observed { generation, now };
        let message = &problem.message;
        observed.set(&mut new.conditions, "Ready", "False", problem.reason, message);
        new.message = Some(problem.message);
        let (client, store) = (&self.client, self.builds.as_ref());
        let target = Target { client, store, key, uid: &entry.uid };
        controllers::status::write::<AgentBuild, _>(&self.events, &target, Some(&old), &new).await
    }
}

/// What came of looking after runs in other namespaces.
#[derive(Debug, Default)]
pub struct Tidied {
    /// Why some of it came to nothing.
    pub trouble: Option<String>,
    /// When to look again.
    pub again: Option<Duration>,
}

impl Tidied {
    fn failed(&mut self, why: String) {
        self.trouble.get_or_insert(why);
        self.again = Some(self.again.map_or(RETRY, |again| again.min(RETRY)));
    }
}

/// The condition that says what cannot be removed. It is there while that is so.
pub(super) const CLEANUP_FAILED: &str = "CleanupFailed";

/// (pure) Sets a condition that is there while something is wrong, or removes it.
pub(super) fn tell_trouble(
    conditions: &mut Vec<Condition>,
    kind: &'static str,
    trouble: Option<&str>,
    observed: conditions::Observed,
) {
    match trouble {
        Some(message) => observed.set(conditions, kind, "True", kind, message),
        None => conditions::remove(conditions, kind),
    }
}
