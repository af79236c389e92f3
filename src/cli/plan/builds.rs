//! Which AgentBuilds the newest commit of the work tree would build.

use std::collections::BTreeMap;
use std::path::Path;

use k8s_openapi::api::core::v1::ConfigMap as LiveConfigMap;
use kube::api::{Api, ListParams};

use super::report::Build;
use crate::api::agent_build::{AgentBuildSpec, AgentBuildStatus, BuildResult};
use crate::api::build_pipeline::BuildPipeline;
use crate::api::{Kind, ObjectId, keys};
use crate::cli::Failure;
use crate::cli::connection::{Connection, ConnectionArgs};
use crate::cli::templates::{ConfigMap, no_source, shipped, source_at, template};
use crate::cli::validate::Loaded;
use crate::cluster::client::{CallError, call};
use crate::controllers::agent_build::key::{BuildKey, build_key};
use crate::controllers::agent_build::own_image::PUBLISHED;
use crate::controllers::agent_build::pipeline_run::template_hash;
use crate::controllers::agent_build::template::{STEP_KEY, STEP_LABEL, StepSource, TEMPLATE_KEY};
use crate::definition::Catalog;
use crate::git::{GitError, Snapshot, open_local};
use convoke_core::sync::preview::LiveManifest;

/// The commit that is built.
const HEAD: &str = "HEAD";
/// ConfigMaps of the namespace that are read.
const MAX_CONFIG_MAPS: u32 = 500;

/// The AgentBuilds of a set of definitions, by name.
fn builds(catalog: &Catalog) -> impl Iterator<Item = (&ObjectId, AgentBuildSpec)> {
    let all = catalog.definitions.iter().filter(|(id, _)| id.kind == Kind::AgentBuild);
    // A definition was validated against the schema that this type gives.
    all.filter_map(|(id, found)| Some((id, found.canonical_spec.get::<AgentBuildSpec>()?)))
}

/// The tree of a commit, from the root of the repository.
fn open(root: &Path, revision: &str) -> Result<Snapshot, GitError> {
    open_local(root, revision, ".", crate::git::Limits::default())
}

/// The builds that differ between a ref and `HEAD`, by their definitions and sources. Nothing where one of them cannot be read.
pub fn between(root: &Path, reference: &str, old: &Catalog, new: &Catalog) -> Vec<Build> {
    let (Ok(before), Ok(after)) = (open(root, reference), open(root, HEAD)) else {
        return Vec::new();
    };
    let earlier: BTreeMap<_, _> = builds(old).collect();
    let one = |(id, spec): (&ObjectId, AgentBuildSpec)| {
        let why = match earlier.get(id) {
            None => "it is new".to_owned(),
            Some(was) if recipe(was) != recipe(&spec) => "its definition changes".to_owned(),
            // Its source is in another repository.
            Some(_) if spec.source.git.is_some() => return None,
            Some(_) => changed_path(&before, &after, &spec)?,
        };
        Some(built(id, &spec, why))
    };
    builds(new).filter_map(one).collect()
}

/// What of a spec goes into an image: the key that it has with a source that never changes, and its pipeline.
fn recipe(spec: &AgentBuildSpec) -> (Option<BuildKey>, BuildPipeline) {
    let registry = spec.output.registry.as_deref().unwrap_or_default();
    let key = build_key(spec, &no_source(), registry, &spec.mode, None).ok();
    (key, spec.pipeline.as_ref().map(BuildPipeline::canonical).unwrap_or_default())
}

/// Which source of a build two commits have differently.
fn changed_path(before: &Snapshot, after: &Snapshot, spec: &AgentBuildSpec) -> Option<String> {
    let paths = std::iter::once(&spec.source.subfolder).chain(&spec.trigger.paths);
    let differs = |path: &&String| before.tree_id(path).ok() != after.tree_id(path).ok();
    let changed: Vec<_> = paths.filter(differs).map(|path| named(path)).collect();
    let verb = if changed.len() == 1 { "changes" } else { "change" };
    (!changed.is_empty()).then(|| format!("{} {verb}", changed.join(" and ")))
}

fn named(path: &str) -> &str {
    if path == "." { "the repository" } else { path }
}

fn built(id: &ObjectId, spec: &AgentBuildSpec, why: String) -> Build {
    let starts = spec.trigger.on_commit;
    let why = if starts { why } else { format!("{why}, but trigger.onCommit is false") };
    Build { object: id.to_string(), starts, why }
}

/// The builds that the operator would start at `HEAD`, and notes about what is not known.
pub async fn against_cluster(
    args: &ConnectionArgs,
    registry: Option<&str>,
    loaded: &Loaded,
    live: &BTreeMap<ObjectId, LiveManifest>,
) -> Result<(Vec<Build>, Vec<String>), Failure> {
    let (mut found, mut notes) = (Vec::new(), Vec::new());
    if builds(&loaded.catalog).next().is_none() {
        return Ok((found, notes));
    }
    let Ok(head) = open(&loaded.root, HEAD) else {
        notes.push(
            "which images are built is not known: this is no Git repository with a commit".into(),
        );
        return Ok((found, notes));
    };
    let connection = Connection::open(args).await?;
    let mut maps = shipped()?;
    match own(&connection).await {
        Ok(own) => maps.extend(own),
        Err(error) => notes.push(format!(
            "pipeline templates of {} are not known here ({error}): the shipped ones are taken",
            connection.namespace
        )),
    }
    for (id, spec) in builds(&loaded.catalog) {
        let status = live.get(id).map(|live| live.object["status"].clone());
        let status =
            status.and_then(|status| serde_json::from_value::<AgentBuildStatus>(status).ok());
        let rebuild = live.get(id).and_then(|live| live.annotation(keys::REBUILD));
        let Some(status) = status.filter(|status| status.build_key.is_some()) else {
            let why = if live.contains_key(id) { "it was never built" } else { "it is new" };
            found.push(built(id, &spec, why.to_owned()));
            continue;
        };
        if let Some(git) = &spec.source.git {
            notes.push(format!("whether {id} is built is decided by its repository: {}", git.url));
            continue;
        }
        let registry = spec.output.registry.clone().or_else(|| registry.map(str::to_owned));
        let Some(registry) = registry.or_else(|| host(&status, &spec)) else {
            notes.push(format!("whether {id} is built is not known: name the registry of the operator (--registry HOST)"));
            continue;
        };
        let template = match template(&spec, &maps, "the namespace or the shipped ones", PUBLISHED)
        {
            Ok(template) => template,
            Err(error) => {
                notes.push(format!("whether {id} is built is not known: {error}"));
                continue;
            }
        };
        let source = source_at(&head, String::new(), &spec);
        let source = source.map_err(|error| error.to_string());
        let rebuild = rebuild.or(status.last_handled_rebuild.as_deref());
        let hash = template_hash(&template, &spec, &registry);
        let key = source.and_then(|source| {
            build_key(&spec, &source, &registry, &hash, rebuild).map_err(|error| error.to_string())
        });
        let key = match key {
            Ok(key) => key,
            Err(error) => {
                found.push(Build {
                    object: id.to_string(),
                    starts: false,
                    why: format!("it cannot: {error}"),
                });
                continue;
            }
        };
        if status.build_key.as_deref() == Some(key.as_str()) {
            continue;
        }
        if has_image(&status, &key) {
            let why = "its image was built before, and is used again".to_owned();
            found.push(Build { object: id.to_string(), starts: false, why });
            continue;
        }
        let definition = live.get(id).and_then(|live| live.spec.clone());
        let was = definition.and_then(|spec| serde_json::from_value::<AgentBuildSpec>(spec).ok());
        let why = if was.as_ref().is_some_and(|was| recipe(was) != recipe(&spec)) {
            "its definition changes".to_owned()
        } else {
            let before = status.last_attempted_commit.as_deref();
            let before = before.and_then(|commit| open(&loaded.root, commit).ok());
            match before.map(|before| changed_path(&before, &head, &spec)) {
                Some(Some(why)) => why,
                Some(None) => "the pipeline template changes".to_owned(),
                None => "its source or the pipeline template changes".to_owned(),
            }
        };
        found.push(built(id, &spec, why));
    }
    Ok((found, notes))
}

/// Whether the status has an image of a key.
fn has_image(status: &AgentBuildStatus, key: &BuildKey) -> bool {
    let is_good = |result| result == BuildResult::Succeeded;
    status.built_key.as_deref() == Some(key.as_str())
        || status.history.iter().any(|record| {
            record.key == key.as_str() && is_good(record.result) && record.image.is_some()
        })
}

/// The registry of the last image.
fn host(status: &AgentBuildStatus, spec: &AgentBuildSpec) -> Option<String> {
    let image = status.built_image.as_deref()?.split_once('@')?.0;
    let host = image.strip_suffix(spec.output.image.as_str())?.strip_suffix('/')?;
    Some(host.to_owned())
}

/// Templates and steps of the namespace.
async fn own(connection: &Connection) -> Result<BTreeMap<String, ConfigMap>, CallError> {
    let api: Api<LiveConfigMap> = Api::namespaced(connection.client.clone(), &connection.namespace);
    let listed = call(api.list(&ListParams::default().limit(MAX_CONFIG_MAPS))).await?;
    let one = |map: LiveConfigMap| {
        let mut data = map.data.unwrap_or_default();
        let labels = map.metadata.labels.unwrap_or_default();
        let labelled = labels.get(STEP_LABEL).is_some_and(|value| value == "true");
        let (template, task_spec) = (data.remove(TEMPLATE_KEY), data.remove(STEP_KEY));
        if template.is_none() && task_spec.is_none() {
            return None;
        }
        let step = StepSource { labelled, task_spec, ..StepSource::default() };
        Some((map.metadata.name?, ConfigMap { template, versions: false, step }))
    };
    Ok(listed.items.into_iter().filter_map(one).collect())
}
