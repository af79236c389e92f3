//! Step "desired" of an AgentBuild, second half: the PipelineRun of a build key.

use serde_json::Value;

use super::layer_cache;
use super::pipeline_run::{self, Build, RunSecrets};
use super::problem::BuildProblem;
use super::reconcile::Subject;
use super::resolve::Resolved;
use super::run::HELD;
use super::signing::statement::{Asked, ask};
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
    provenance: Option<&Asked>,
) -> Result<Value, BuildProblem> {
    let Resolved { registry, template, key, access: _, parameters: _ } = resolved;
    let mut run = pipeline_run::render(&Build {
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
        cache: layer_cache::usable(&subject.old, subject.rebuild(), attempt),
    })?;
    if let Some(asked) = provenance {
        ask(&mut run, asked);
        // It begins with its seal.
        run["spec"]["status"] = HELD.into();
    }
    Ok(run)
}
