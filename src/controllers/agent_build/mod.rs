//! AgentBuild: makes an image on Tekton whenever a commit changes what goes into it.
//!
//! ```text
//! BuildSources (trees of the newest commit) ─┐
//! ConfigMaps (template, steps) ──────────────┼─► build key ─► decide ─► PipelineRun ─► status
//! live status, live PipelineRuns ────────────┘
//! ```
//!
//! The only state is in custom resources: the name of a run follows from build and key, so a key never runs twice, and
//! the status remembers how a key ended when its run is gone. Queues, retries and a look into the registry before
//! building are not here yet.

pub mod apply;
pub mod key;
pub mod pipeline_run;
pub mod pod_policy;
pub mod resolve;
pub mod run;
pub mod status;
pub mod tekton;
pub mod template;
pub mod template_error;

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use kube::Client;
use tokio::task::JoinSet;
use tokio::time::Instant;

use self::key::{BuildKey, KeyError};
use self::pipeline_run::{Build, SpecError};
use self::resolve::{Lookup, ResolveError};
use self::status::{Builder, Decision, Found};
use self::tekton::{State, Tekton};
use self::template::{Resolved, TemplateError};
use super::build_sources::{BuildSources, SourceAt, Told};
use super::debounce::Debounce;
use super::events::Teller;
use super::queue::Queue;
use super::runtime::{self, Next, Reconciler};
use super::start::own;
use super::turns::Turns;
use crate::api::agent_build::{AgentBuildSpec, AgentBuildStatus};
use crate::api::{AgentBuild, Kind, Mark, keys};
use crate::cluster::client::CallError;
use crate::cluster::live::{Managed, Stores};
use crate::cluster::store::{Entry, Key, Store};

/// Builds that are worked on at once; of one namespace half as many.
const CONCURRENCY: usize = 8;
/// How often something that is missing is looked for, where no watch tells of it.
const LOOK_AGAIN: Duration = Duration::from_secs(60);
/// Longest wait at the start for knowing whether Tekton is there: without it every status would flicker.
const KNOWN_WITHIN: Duration = Duration::from_secs(10);

/// What the controller is told by flags.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Registry of builds that name none: host, with a port when needed.
    pub internal_registry: Option<String>,
    /// Namespace with the shipped templates and steps.
    pub operator_namespace: String,
}

/// Starts the controller: everything it needs runs in `tasks`, none of which ends by itself. The caller watches
/// AgentBuilds into `stores`, and the engine fills `sources`.
pub fn start<E: Send + 'static>(
    tasks: &mut JoinSet<Result<(), E>>,
    client: &Client,
    stores: &Stores,
    sources: Arc<BuildSources>,
    settings: Settings,
    turns: &Arc<Turns>,
) {
    let queue = Queue::behind(turns);
    let builds = stores.agent_builds.clone();
    let tekton = Arc::new(Tekton::default());
    sources.notify(queue.clone());
    own(&builds, &queue);
    let Settings { internal_registry, operator_namespace } = settings;
    let controller = Arc::new(Controller {
        client: client.clone(),
        events: Teller::new(client.clone()),
        builds: builds.clone(),
        sources,
        tekton: tekton.clone(),
        lookup: Lookup::new(client.clone(), operator_namespace),
        internal_registry,
        lags: Debounce::default(),
    });
    {
        let (client, tekton, queue, builds) =
            (client.clone(), tekton.clone(), queue.clone(), builds.clone());
        tasks.spawn(async move {
            let wake = queue.clone();
            let all = move || builds.all().into_iter().for_each(|(key, _)| wake.add(key));
            tekton.follow(client, queue, all).await;
            Ok(())
        });
    }
    tasks.spawn(async move {
        builds.wait_ready().await;
        let _ = tokio::time::timeout(KNOWN_WITHIN, tekton.wait_known()).await;
        runtime::run(controller, queue, CONCURRENCY).await;
        Ok(())
    });
}

struct Controller {
    client: Client,
    events: Arc<Teller>,
    builds: Arc<Store<Managed<AgentBuild>>>,
    sources: Arc<BuildSources>,
    tekton: Arc<Tekton>,
    lookup: Lookup,
    internal_registry: Option<String>,
    /// Builds whose live object is not what their newest commit wants, since a moment ago.
    lags: Debounce,
}

impl Reconciler for Controller {
    type Error = CallError;
    const KIND: &'static str = "AgentBuild";

    async fn reconcile(self: Arc<Self>, key: Key) -> Result<Next, CallError> {
        let Some(entry) = self.builds.get(&key) else {
            self.lags.hold(&key, false, Instant::now());
            return Ok(Next::Forget);
        };
        if entry.value.facts.deleting {
            return Ok(Next::Settled);
        }
        let Some(build) = entry.value.object() else {
            let error = entry.value.parse_error();
            tracing::warn!(object = %key, error, "this AgentBuild does not parse");
            return Ok(Next::Settled);
        };
        let state = self.tekton.state();
        let mark = entry.value.facts.annotations.get(keys::OWNER).and_then(Mark::parse);
        let mark = mark.filter(|m| m.names(Kind::AgentBuild, &key.namespace, &key.name));
        let told = mark.map_or(Told::Nothing, |mark| self.sources.of(&mark));
        let lags = matches!(&told, Told::Source(source) if lags(&entry.value, source));
        if let Some(left) = self.lags.hold(&key, lags, Instant::now()) {
            // The watch brings the applied object in a moment; until then nothing is known that is worth saying.
            return Ok(Next::After(left));
        }
        let source = match told {
            Told::Source(_) if lags => Err(Found::NotApplied),
            Told::Source(source) => Ok(source),
            Told::NotInGit => Err(Found::NotInGit),
            Told::Nothing => Err(Found::SourcePending),
        };
        let source = match source {
            Ok(source) => source,
            Err(found) => return self.idle(&key, &entry, &build, &found, &state).await,
        };
        let wanted = match self.want(&key, &build.spec, &source).await? {
            Ok(wanted) => wanted,
            Err(problem) => {
                return self.say(&key, &entry, &build, &problem.found(), state.builder()).await;
            }
        };
        self.build(&key, &entry, &build, &source, &wanted, &state).await
    }
}

/// What is wanted: everything that a run is made of.
struct Wanted {
    registry: String,
    template: Resolved,
    key: BuildKey,
}

/// Why nothing can be wanted.
struct Problem {
    reason: &'static str,
    message: String,
    waiting: bool,
}

impl Problem {
    fn found(self) -> Found<'static> {
        Found::Broken { reason: self.reason, message: self.message, waiting: self.waiting }
    }
}

/// Whether the live object is not the one of the source's commit. A new spec with an old tree, or the other way round,
/// would be a build that nobody asked for. What is changed by hand and not undone (paused, `drift: Report`) is meant so.
fn lags(live: &Managed<AgentBuild>, source: &SourceAt) -> bool {
    let have = live.facts.annotations.get(keys::APPLIED);
    source.applied.as_ref().is_some_and(|want| have != Some(want.as_str()))
}

impl Controller {
    fn registry(&self, spec: &AgentBuildSpec) -> Option<String> {
        spec.output.registry.clone().or_else(|| self.internal_registry.clone())
    }

    /// The run of this name, if it is of this build and key.
    #[allow(clippy::unused_self)] // as the other steps
    fn run(
        &self,
        key: &Key,
        uid: &str,
        build_key: &BuildKey,
        name: &str,
        state: &State,
    ) -> Option<Arc<Entry<run::Run>>> {
        let State::Available(runs) = state else { return None };
        let run = runs.get(&Key::new(key.namespace.as_str(), name))?;
        status::is_ours(&run.value, uid, build_key).then_some(run)
    }

    /// Steps "resolve" and "validate".
    async fn want(
        &self,
        key: &Key,
        spec: &AgentBuildSpec,
        source: &SourceAt,
    ) -> Result<Result<Wanted, Problem>, CallError> {
        let Some(registry) = self.registry(spec) else {
            let message =
                "spec.output.registry is not set, and the operator has no --internal-registry"
                    .into();
            return Ok(Err(Problem { reason: "RegistryMissing", message, waiting: false }));
        };
        let template =
            self.lookup.template(&key.namespace, &spec.mode, !spec.build_args.is_empty()).await;
        let template = match template {
            Ok(template) => template,
            Err(ResolveError::Template(errors)) => return Ok(Err(template_problem(&errors))),
            Err(ResolveError::Call(error)) if error.is_forbidden() => {
                let message = format!("cannot read the template: {error}");
                return Ok(Err(Problem { reason: "TemplateUnreadable", message, waiting: true }));
            }
            Err(ResolveError::Call(error)) => return Err(error),
        };
        Ok(match key::build_key(spec, source, &registry, &template.hash) {
            Ok(key) => Ok(Wanted { registry, template, key }),
            Err(error @ KeyError::SubfolderMissing { .. }) => Err(Problem {
                reason: "SubfolderMissing",
                message: error.to_string(),
                waiting: false,
            }),
        })
    }

    /// Steps "desired" and "apply".
    async fn build(
        &self,
        key: &Key,
        entry: &Entry<Managed<AgentBuild>>,
        build: &AgentBuild,
        source: &SourceAt,
        wanted: &Wanted,
        state: &State,
    ) -> Result<Next, CallError> {
        let Wanted { registry, template, key: build_key } = wanted;
        let run_name = pipeline_run::run_name(&key.name, build_key, 1);
        let runs = match state {
            State::Available(runs) => Some(runs),
            State::Unknown | State::NotInstalled => None,
        };
        let live =
            runs.and_then(|runs| runs.get(&Key::new(key.namespace.as_str(), run_name.as_str())));
        let old = build.status.clone().unwrap_or_default();
        let on_commit = build.spec.trigger.on_commit;
        let run = live.as_ref().map(|run| &run.value);
        let first =
            status::decide(&old, &key.name, &entry.uid, build_key, run, on_commit, state.builder());
        let mut created = None;
        if let (Decision::Create, Some(runs)) = (first, runs) {
            let made = Build {
                namespace: &key.namespace,
                name: &key.name,
                uid: &entry.uid,
                spec: &build.spec,
                source,
                registry,
                key: build_key,
                attempt: 1,
                template,
            };
            let rendered = match pipeline_run::render(&made) {
                Ok(rendered) => rendered,
                Err(error) => {
                    return self
                        .say(key, entry, build, &spec_problem(&error).found(), state.builder())
                        .await;
                }
            };
            match apply::create(&self.client, runs, &key.namespace, rendered).await {
                Ok(run) => created = Some(run),
                Err(error) if error.is_forbidden() || error.is_invalid() => {
                    let message = format!("the PipelineRun was refused: {error}");
                    let problem = Problem { reason: "PipelineRunRefused", message, waiting: true };
                    return self.say(key, entry, build, &problem.found(), state.builder()).await;
                }
                Err(error) => return Err(error),
            }
        }
        let run = created.as_ref().or(live.as_ref()).map(|run| &run.value);
        let decision =
            status::decide(&old, &key.name, &entry.uid, build_key, run, on_commit, state.builder());
        let repository = pipeline_run::repository(&build.spec, registry);
        let found =
            Found::Key { key: build_key, run_name: &run_name, repository: &repository, decision };
        self.say(key, entry, build, &found, state.builder()).await
    }

    /// Step "status" of a build about which nothing can be decided.
    async fn idle(
        &self,
        key: &Key,
        entry: &Entry<Managed<AgentBuild>>,
        build: &AgentBuild,
        found: &Found<'_>,
        state: &State,
    ) -> Result<Next, CallError> {
        let old = build.status.clone().unwrap_or_default();
        let under_way = status::under_way(&old).and_then(|(build_key, run_name)| {
            let run = self.run(key, &entry.uid, &build_key, run_name, state)?;
            let registry = self.registry(&build.spec)?;
            Some((build_key, run, pipeline_run::repository(&build.spec, &registry)))
        });
        let run = under_way.as_ref().map(|(build_key, run, repository)| Found::Key {
            key: build_key,
            run_name: run.value.name.as_str(),
            repository: repository.as_str(),
            decision: Decision::Show(&run.value),
        });
        let (meta, now) = (&build.metadata, Timestamp::now());
        let new = status::idle(&old, meta, run.as_ref(), found, state.builder(), now);
        self.write(key, entry, &old, &new).await?;
        let goes_on = status::under_way(&new).is_some();
        Ok(next(run.as_ref().filter(|_| goes_on).unwrap_or(found)))
    }

    /// Step "status".
    async fn say(
        &self,
        key: &Key,
        entry: &Entry<Managed<AgentBuild>>,
        build: &AgentBuild,
        found: &Found<'_>,
        builder: Builder,
    ) -> Result<Next, CallError> {
        let old = build.status.clone().unwrap_or_default();
        let now = Timestamp::now();
        let new = status::status(&old, &build.metadata, found, builder, now);
        self.write(key, entry, &old, &new).await?;
        Ok(next(found))
    }

    async fn write(
        &self,
        key: &Key,
        entry: &Entry<Managed<AgentBuild>>,
        old: &AgentBuildStatus,
        new: &AgentBuildStatus,
    ) -> Result<(), CallError> {
        let (events, builds) = (&self.events, self.builds.as_ref());
        apply::status(&self.client, events, builds, key, &entry.uid, old, new).await
    }
}

/// When to look again.
fn next(found: &Found<'_>) -> Next {
    match found {
        // Neither ConfigMaps nor strangers' runs are watched.
        Found::Broken { .. }
        | Found::Key { decision: Decision::Conflict | Decision::Leftover, .. } => {
            Next::After(LOOK_AGAIN)
        }
        // No event tells that Tekton stays silent.
        Found::Key { decision: Decision::Show(run), .. } if !run.started => Next::After(LOOK_AGAIN),
        Found::SourcePending | Found::NotInGit | Found::NotApplied | Found::Key { .. } => {
            Next::Settled
        }
    }
}

/// The first problem gives the reason; the message has them all, up to a length.
fn template_problem(errors: &[TemplateError]) -> Problem {
    const SHOWN: usize = 5;
    let mut message =
        errors.iter().take(SHOWN).map(ToString::to_string).collect::<Vec<_>>().join("; ");
    if errors.len() > SHOWN {
        message = format!("{message}; and {} more", errors.len() - SHOWN);
    }
    let reason = errors.first().map_or("TemplateInvalid", TemplateError::reason);
    // All of these heal when a ConfigMap is added or changed.
    Problem { reason, message, waiting: true }
}

fn spec_problem(error: &SpecError) -> Problem {
    Problem { reason: error.reason(), message: error.to_string(), waiting: false }
}
