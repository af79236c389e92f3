//! The reconcile of AgentBuilds. It has the steps of all reconciles, in the same order.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use serde_json::Value;
use tokio::time::Instant;

use super::Controller;
use super::apply::create;
use super::decide::{self, Candidate, Decision, Trigger};
use super::desired::{Desired, desired};
use super::key::BuildKey;
use super::pipeline_run::repository;
use super::problem::BuildProblem;
use super::resolve::Source;
use super::run::Run;
use super::status::{self, Finding, KeyFinding, UnknownSource};
use super::tekton::TektonState;
use crate::api::AgentBuild;
use crate::api::agent_build::AgentBuildStatus;
use crate::cluster::client::CallError;
use crate::cluster::live::Managed;
use crate::cluster::status::Target;
use crate::cluster::store::{Entry, Key};
use crate::controllers;
use crate::runtime::worker::{Next, Reconciler};

/// The time after which a build is reconciled again that waits for something that no watch shows.
const UNWATCHED_RECHECK: Duration = Duration::from_secs(60);

/// The AgentBuild of one reconcile.
pub struct Subject<'a> {
    /// Namespace and name.
    pub key: &'a Key,
    /// The entry of the store.
    pub entry: &'a Entry<Managed<AgentBuild>>,
    /// The object.
    pub build: &'a AgentBuild,
    /// The status that it has now.
    pub old: AgentBuildStatus,
    /// What is known of Tekton now.
    pub tekton: TektonState,
}

impl Subject<'_> {
    /// What to do about a build key. `run` is the live object with the name of the key's run.
    pub fn decide<'a>(&'a self, key: &'a BuildKey, run: Option<&'a Entry<Run>>) -> Decision<'a> {
        let candidate = Candidate {
            name: &self.key.name,
            uid: &self.entry.uid,
            key,
            run: run.map(|run| &run.value),
            trigger: Trigger::of(&self.build.spec.trigger),
            builder: self.tekton.builder(),
        };
        decide::decide(&self.old, &candidate)
    }

    /// The run that the status calls under way, and its key.
    fn under_way(&self) -> Option<(BuildKey, Arc<Entry<Run>>)> {
        let (key, name) = decide::under_way(&self.old)?;
        let runs = self.tekton.runs()?;
        let run = runs.get(&Key::new(self.key.namespace.as_str(), name))?;
        decide::is_ours(&run.value, &self.entry.uid, &key).then_some((key, run))
    }
}

impl Reconciler for Controller {
    type Error = CallError;
    const KIND: &'static str = "AgentBuild";

    async fn reconcile(self: Arc<Self>, key: Key) -> Result<Next, CallError> {
        let Some(entry) = self.builds.get(&key) else {
            self.lags.hold(&key, false, Instant::now());
            return Ok(Next::Forget);
        };
        let Some(build) = live_object(&key, &entry) else { return Ok(Next::Settled) };
        let old = build.status.clone().unwrap_or_default();
        let tekton = self.tekton.state();
        let subject = Subject { key: &key, entry: &entry, build: &build, old, tekton };

        // Resolve, and validate what is found.
        let source = match self.resolve_source(&subject) {
            Source::Known(source) => source,
            Source::Lagging(left) => return Ok(Next::After(left)),
            Source::Unknown(finding) => return self.idle(&subject, &finding).await,
        };
        let resolved = match self.resolve(&subject, &source).await? {
            Ok(resolved) => resolved,
            Err(problem) => return self.tell(&subject, &Finding::Broken(problem)).await,
        };

        // Desired.
        let Desired { run_name, live, create } = match desired(&subject, &source, &resolved) {
            Ok(desired) => desired,
            Err(problem) => return self.tell(&subject, &Finding::Broken(problem)).await,
        };

        // Apply.
        let run = match self.apply(&subject, create).await? {
            Ok(created) => created.or(live),
            Err(problem) => return self.tell(&subject, &Finding::Broken(problem)).await,
        };

        // Status.
        let image = repository(&build.spec, &resolved.registry);
        let finding = Finding::Key(KeyFinding {
            key: &resolved.key,
            run_name: &run_name,
            repository: &image,
            decision: subject.decide(&resolved.key, run.as_deref()),
        });
        self.tell(&subject, &finding).await
    }
}

impl Controller {
    /// Step "apply": creates the run. `None` when there is nothing to create.
    ///
    /// The outer error is a call that failed; the inner one is that the API server refuses the run.
    async fn apply(
        &self,
        subject: &Subject<'_>,
        manifest: Option<Value>,
    ) -> Result<Result<Option<Arc<Entry<Run>>>, BuildProblem>, CallError> {
        let (Some(manifest), Some(runs)) = (manifest, subject.tekton.runs()) else {
            return Ok(Ok(None));
        };
        match create(&self.client, runs, &subject.key.namespace, manifest).await {
            Ok(run) => Ok(Ok(Some(run))),
            Err(error) if error.is_forbidden() || error.is_invalid() => {
                Ok(Err(BuildProblem::run_refused(&error)))
            }
            Err(error) => Err(error),
        }
    }

    /// Step "status".
    async fn tell(&self, subject: &Subject<'_>, finding: &Finding<'_>) -> Result<Next, CallError> {
        let (meta, builder) = (&subject.build.metadata, subject.tekton.builder());
        let new = status::status(&subject.old, meta, finding, builder, Timestamp::now());
        self.write(subject, &new).await?;
        Ok(next(finding))
    }

    /// Step "status" of a build whose source is not known. A run that is under way is followed to its end.
    async fn idle(&self, subject: &Subject<'_>, finding: &Finding<'_>) -> Result<Next, CallError> {
        let spec = &subject.build.spec;
        let under_way = subject.under_way().and_then(|(key, run)| {
            let registry = self.registry(spec)?;
            Some((key, run, repository(spec, &registry)))
        });
        let shown = under_way.as_ref().map(|(key, run, repository)| {
            Finding::Key(KeyFinding {
                key,
                run_name: &run.value.name,
                repository,
                decision: Decision::Show(&run.value),
            })
        });
        let unknown = UnknownSource { under_way: shown.as_ref(), finding };
        let (meta, builder) = (&subject.build.metadata, subject.tekton.builder());
        let new = status::idle(&subject.old, meta, unknown, builder, Timestamp::now());
        self.write(subject, &new).await?;
        let goes_on = decide::under_way(&new).is_some();
        Ok(next(shown.as_ref().filter(|_| goes_on).unwrap_or(finding)))
    }

    async fn write(&self, subject: &Subject<'_>, new: &AgentBuildStatus) -> Result<(), CallError> {
        let Subject { key, entry, old, .. } = subject;
        let store = self.builds.as_ref();
        let target = Target { client: &self.client, store, key, uid: &entry.uid };
        let old = Some(old);
        controllers::status::write::<AgentBuild, _>(&self.events, &target, old, new).await
    }
}

/// The object of an entry; `None` when it is being deleted or does not parse.
fn live_object(key: &Key, entry: &Entry<Managed<AgentBuild>>) -> Option<Arc<AgentBuild>> {
    if entry.value.facts.deleting {
        return None;
    }
    let object = entry.value.object();
    if object.is_none() {
        let error = entry.value.parse_error();
        tracing::warn!(object = %key, error, "this AgentBuild does not parse");
    }
    object
}

/// When to reconcile a build again.
fn next(finding: &Finding<'_>) -> Next {
    match finding {
        // Neither ConfigMaps nor the runs of strangers are watched.
        Finding::Broken(_)
        | Finding::Key(KeyFinding { decision: Decision::Conflict | Decision::Leftover, .. }) => {
            Next::After(UNWATCHED_RECHECK)
        }
        // No event tells that Tekton stays silent.
        Finding::Key(KeyFinding { decision: Decision::Show(run), .. }) if !run.started => {
            Next::After(UNWATCHED_RECHECK)
        }
        Finding::SourcePending | Finding::NotInGit | Finding::NotApplied | Finding::Key(_) => {
            Next::Settled
        }
    }
}
