//! Step "resolve" of an AgentBuild: its source from Git, then registry, template and build key. What is found is validated at once.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::Controller;
use super::internal;
use super::key::{self, BuildKey};
use super::lookup::LookupError;
use super::pipeline_run::{parameters_hash, template_hash};
use super::problem::BuildProblem;
use super::profile::in_user_namespace;
use super::reconcile::Subject;
use super::repository::Poll;
use super::resolve_template::{ResolvedStep, ResolvedTemplate};
use super::status::Finding;
use super::template::WORKSPACE_PUSH_AUTH;
use crate::api::agent_build::AgentBuildSpec;
use crate::api::{AgentBuild, GitSync, Kind, Mark, keys};
use crate::cluster::client::CallError;
use crate::cluster::live::Managed;
use crate::cluster::store::{Entry, Key};
use crate::sync::credentials::Access;
use crate::sync::published::build_sources::KnownSource;
use convoke_core::sync::commit::source_at::SourceAt;

/// What is known of the source of a build.
pub enum Source {
    /// The source at the newest commit, and how its repository is read.
    Known(Box<SourceAt>, Access),
    /// The live object is not the one of that commit, for a moment already. The watch brings the applied object within this
    /// time; until then nothing is told.
    Lagging(Duration),
    /// The source is not known, and why.
    Unknown(Finding<'static>),
}

/// Everything that a run is made of.
pub struct Resolved {
    /// The registry host.
    pub registry: String,
    /// The template.
    pub template: ResolvedTemplate,
    /// How the repository is read that is built.
    pub access: Access,
    /// The build key.
    pub key: BuildKey,
    /// Hash of the values of its parameters.
    pub parameters: String,
}

/// Whether the live object is not the one of the source's commit. A new spec with an old tree, or the other way round, would be a
/// build that nobody asked for. A change by hand that is not undone (paused, `drift: Report`) counts as well: it is meant.
fn lags(live: &Managed<AgentBuild>, source: &SourceAt) -> bool {
    let have = live.facts.annotations.get(keys::APPLIED);
    source.applied.as_ref().is_some_and(|want| have != Some(want.as_str()))
}

/// The object of an entry; `None` when it does not parse.
pub(super) fn live_object(
    key: &Key,
    entry: &Entry<Managed<AgentBuild>>,
) -> Option<Arc<AgentBuild>> {
    let object = entry.value.object();
    if object.is_none() {
        let error = entry.value.parse_error();
        tracing::warn!(object = %key, error, "this AgentBuild does not parse");
    }
    object
}

impl Controller {
    /// The source of a build: what the engine has told, or what its own repository has.
    pub(super) fn resolve_source(&self, subject: &Subject<'_>) -> Source {
        let Subject { key, entry, .. } = subject;
        let mark = entry.value.facts.annotations.get(keys::OWNER).and_then(Mark::parse);
        let mark = mark.filter(|mark| mark.names(Kind::AgentBuild, &key.namespace, &key.name));
        let known = mark.as_ref().map_or(KnownSource::Nothing, |mark| self.sources.of(mark));
        let sync = || mark.as_ref().and_then(|mark| self.git_sync(mark));
        let lags = matches!(&known, KnownSource::Source(source) if lags(&entry.value, source));
        if let Some(left) = self.lags.hold(key, lags, Instant::now()) {
            return Source::Lagging(left);
        }
        match known {
            KnownSource::Source(_) if lags => Source::Unknown(Finding::NotApplied),
            KnownSource::NotInGit => Source::Unknown(Finding::NotInGit),
            // Without a GitSync that has read its commit, too: the object says all there is to know.
            _ if subject.build.spec.source.git.is_some() => self.of_repository(subject),
            KnownSource::Source(source) => match sync() {
                Some(sync) if sync.spec.url == source.url => {
                    Source::Known(source, Access::of_sync(&sync.spec))
                }
                // The next commit that is read brings both together.
                _ => Source::Unknown(Finding::SourcePending),
            },
            KnownSource::Nothing => Source::Unknown(Finding::SourcePending),
        }
    }

    /// The source of a build from a repository of its own.
    fn of_repository(&self, subject: &Subject<'_>) -> Source {
        let Some(poll) = Poll::of(&subject.build.spec) else {
            return Source::Unknown(Finding::SourcePending);
        };
        match self.polls.of(subject.key, &subject.entry.uid, &poll.place) {
            Some(Ok(source)) => Source::Known(Box::new(source), poll.place.access()),
            Some(Err(problem)) => Source::Unknown(Finding::Unreadable(problem)),
            None => Source::Unknown(Finding::NotPolled),
        }
    }

    /// The GitSync of a mark.
    pub(super) fn git_sync(&self, mark: &Mark) -> Option<Arc<GitSync>> {
        let found = self.git_syncs.get(&Key::new(&*mark.sync_namespace, &*mark.sync_name))?;
        if found.uid == mark.sync_uid { found.value.object() } else { None }
    }

    /// The registry host of a build.
    pub(super) fn registry(&self, spec: &AgentBuildSpec) -> Option<String> {
        spec.output.registry.clone().or_else(|| self.internal_registry.clone())
    }

    /// Registry, template and build key.
    ///
    /// The outer error is a call that failed; the inner one is what is wrong with the build.
    pub(super) async fn resolve(
        &self,
        subject: &Subject<'_>,
        source: &SourceAt,
        access: Access,
    ) -> Result<Result<Resolved, BuildProblem>, CallError> {
        let spec = &subject.build.spec;
        let Some(registry) = self.registry(spec) else {
            return Ok(Err(BuildProblem::no_registry()));
        };
        if let Some(internal) = self.internal_registry.as_deref()
            && !internal::allows(internal, &registry, spec, &subject.key.namespace)
        {
            return Ok(Err(BuildProblem::image_path(&subject.key.namespace, &spec.output.image)));
        }
        let found = self.lookup.template(&subject.key.namespace, spec).await;
        let template = match found {
            Ok(template) => template,
            Err(LookupError::Template(errors)) => {
                return Ok(Err(BuildProblem::of_template(&errors)));
            }
            Err(LookupError::Call(error)) if error.is_forbidden() => {
                return Ok(Err(BuildProblem::template_unreadable(&error)));
            }
            Err(LookupError::Call(error)) => return Err(error),
        };
        let has_push =
            |step: &ResolvedStep| step.stage.workspaces.contains_key(WORKSPACE_PUSH_AUTH);
        if spec.output.secret_ref.is_some() && !template.steps.iter().any(has_push) {
            return Ok(Err(BuildProblem::push_auth_unused(&spec.mode)));
        }
        // It would be left out, and root would have more rights on the node than anybody wants.
        let is_nested = in_user_namespace(&template, spec, &registry);
        if is_nested && subject.tekton.runs().is_some() && !self.tekton.knows_user_namespaces() {
            return Ok(Err(BuildProblem::no_user_namespaces()));
        }
        let rebuild = subject.rebuild();
        let hash = template_hash(&template, spec, &registry);
        Ok(match key::build_key(spec, source, &registry, &hash, rebuild) {
            Ok(key) => {
                let parameters = parameters_hash(&template, spec, &registry);
                Ok(Resolved { registry, template, access, key, parameters })
            }
            Err(error) => Err(error.into()),
        })
    }
}
