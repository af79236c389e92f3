//! Step "desired" of an AgentBuild, second half: the PipelineRun of a build key.

use serde_json::Value;

use super::pipeline_run::{self, Build, RunSecrets};
use super::problem::BuildProblem;
use super::reconcile::Subject;
use super::resolve::Resolved;
use convoke_core::sync::commit::source_at::SourceAt;

/// The PipelineRun of a key, as this try of it.
///
/// # Errors
/// When the spec holds a value that cannot be used.
pub fn manifest(
    subject: &Subject<'_>,
    source: &SourceAt,
    resolved: &Resolved,
    attempt: u32,
    secrets: Option<&RunSecrets>,
) -> Result<Value, BuildProblem> {
    let Resolved { registry, template, key, access: _, parameters: _ } = resolved;
    let run = pipeline_run::render(&Build {
        namespace: &subject.key.namespace,
        at: subject.place.elsewhere(),
        name: &subject.key.name,
        uid: &subject.entry.uid,
        spec: &subject.build.spec,
        source,
        registry,
        key,
        attempt,
        template,
        secrets,
    })?;
    Ok(run)
}
