//! Step "desired" of an AgentBuild, second half: the PipelineRun to create, if [`super::decide`] says so.

use std::sync::Arc;

use serde_json::Value;

use super::decide::Decision;
use super::pipeline_run::{self, Build};
use super::problem::BuildProblem;
use super::reconcile::Subject;
use super::resolve::Resolved;
use super::run::Run;
use crate::cluster::store::{Entry, Key};
use convoke_core::sync::commit::source_at::SourceAt;

/// Each key is tried once: there are no retries yet.
const ATTEMPT: u32 = 1;

/// The PipelineRun of a build key.
pub struct Desired {
    /// Its name.
    pub run_name: String,
    /// The live object of that name.
    pub live: Option<Arc<Entry<Run>>>,
    /// The manifest, if the run is to be created.
    pub create: Option<Value>,
}

/// The PipelineRun of the resolved key.
///
/// # Errors
/// When the spec holds a value that cannot be used. That is told only when the run is to be created.
pub fn desired(
    subject: &Subject<'_>,
    source: &SourceAt,
    resolved: &Resolved,
) -> Result<Desired, BuildProblem> {
    let Resolved { registry, template, key } = resolved;
    let (namespace, name) = (subject.key.namespace.as_str(), subject.key.name.as_str());
    let run_name = pipeline_run::run_name(name, key, ATTEMPT);
    let runs = subject.tekton.runs();
    let live = runs.and_then(|runs| runs.get(&Key::new(namespace, run_name.as_str())));
    let decision = subject.decide(key, live.as_deref());
    let create = if decision == Decision::Create {
        Some(pipeline_run::render(&Build {
            namespace,
            name,
            uid: &subject.entry.uid,
            spec: &subject.build.spec,
            source,
            registry,
            key,
            attempt: ATTEMPT,
            template,
        })?)
    } else {
        None
    };
    Ok(Desired { run_name, live, create })
}
