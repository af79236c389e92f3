//! Which AgentBuilds the newest commit of the work tree would build.

use std::collections::BTreeMap;
use std::path::Path;

use super::report::Build;
use super::templates::{Found as FoundTemplates, Templates};
use super::upgrade::upgrade;
use crate::api::agent_build::{AgentBuildSpec, AgentBuildStatus, BuildResult};
use crate::api::build_pipeline::BuildPipeline;
use crate::api::{Kind, ObjectId, keys};
use crate::cli::Failure;
use crate::cli::connection::{Connection, ConnectionArgs};
use crate::cli::templates::{TemplateArgs, no_source, source_at};
use crate::cli::validate::Loaded;
use crate::controllers::agent_build::base_images;
use crate::controllers::agent_build::bases::pinned_by;
use crate::controllers::agent_build::key::{BuildKey, build_key};
use crate::controllers::agent_build::pipeline_run::template_hash;
use crate::controllers::agent_build::resolve_template::ResolvedTemplate;
use crate::definition::Catalog;
use crate::git::{GitError, Snapshot, open_local};
use convoke_core::sync::commit::source_at::SourceAt;
use convoke_core::sync::preview::LiveManifest;

/// The commit that is built.
const HEAD: &str = "HEAD";

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

/// What is asked of the cluster.
pub struct Options<'a> {
    /// The cluster, and the namespace of the AgentBuilds.
    pub connection: &'a ConnectionArgs,
    /// The registry of builds that name none.
    pub registry: Option<&'a str>,
    /// The operator's namespace.
    pub operator_namespace: &'a str,
    /// Folders with templates.
    pub templates: &'a TemplateArgs,
}

/// What a plan says of builds.
#[derive(Default)]
pub struct Found {
    /// The builds that the operator would start at `HEAD`.
    pub builds: Vec<Build>,
    /// Those that an upgrade of the operator would start.
    pub upgrade: Vec<Build>,
    /// What is not known.
    pub notes: Vec<String>,
}

/// Says which builds the operator would start at `HEAD`, and at an upgrade.
pub async fn against_cluster(
    options: &Options<'_>,
    loaded: &Loaded,
    live: &BTreeMap<ObjectId, LiveManifest>,
) -> Result<Found, Failure> {
    let mut found = Found::default();
    if builds(&loaded.catalog).next().is_none() {
        return Ok(found);
    }
    let Ok(head) = open(&loaded.root, HEAD) else {
        found.notes.push(
            "which images are built is not known: this is no Git repository with a commit".into(),
        );
        return Ok(found);
    };
    let connection = Connection::open(options.connection).await?;
    let mut templates = Templates::new(&connection, options.operator_namespace, options.templates)?;
    for (id, spec) in builds(&loaded.catalog) {
        let live = live.get(id);
        let Some(subject) = Subject::new(id, &spec, live) else {
            let why = if live.is_some() { "it was never built" } else { "it is new" };
            found.builds.push(built(id, &spec, why.to_owned()));
            continue;
        };
        let registry = spec.output.registry.clone().or_else(|| options.registry.map(str::to_owned));
        let registry = registry.or_else(|| host(&subject.status, &spec));
        let maps = templates.of(&spec).await;
        if let Some(git) = &spec.source.git {
            found
                .notes
                .push(format!("whether {id} is built is decided by its repository: {}", git.url));
        } else if let Some(registry) = &registry {
            subject.decide(loaded, &head, registry, &maps, &mut found);
        } else {
            found.notes.push(format!("whether {id} is built is not known: name the registry of the operator (--registry HOST)"));
        }
        if let Some(registry) = registry.filter(|_| !maps.guessed) {
            let why = upgrade(&spec, &maps, templates.shipped(), &registry);
            found.upgrade.extend(why.map(|why| match why {
                Ok(why) => built(id, &spec, why),
                Err(error) => cannot(id, &error),
            }));
        }
    }
    found.notes.extend(templates.notes());
    Ok(found)
}

fn cannot(id: &ObjectId, error: &str) -> Build {
    Build { object: id.to_string(), starts: false, why: format!("it cannot: {error}") }
}

/// An AgentBuild for which there was a build.
struct Subject<'a> {
    id: &'a ObjectId,
    spec: &'a AgentBuildSpec,
    /// The definition in the cluster, if it can be read.
    was: Option<AgentBuildSpec>,
    status: AgentBuildStatus,
    rebuild: Option<String>,
}

impl<'a> Subject<'a> {
    fn new(
        id: &'a ObjectId,
        spec: &'a AgentBuildSpec,
        live: Option<&LiveManifest>,
    ) -> Option<Self> {
        let live = live?;
        let status = serde_json::from_value::<AgentBuildStatus>(live.object["status"].clone());
        let status = status.ok().filter(|status| status.build_key.is_some())?;
        let rebuild = live.annotation(keys::REBUILD).map(str::to_owned);
        let rebuild = rebuild.or_else(|| status.last_handled_rebuild.clone());
        let was = live.spec.clone().and_then(|spec| serde_json::from_value(spec).ok());
        Some(Self { id, spec, was, status, rebuild })
    }

    /// Says whether it is built. What is not known is a note.
    fn decide(
        &self,
        loaded: &Loaded,
        head: &Snapshot,
        registry: &str,
        maps: &FoundTemplates,
        found: &mut Found,
    ) {
        let Self { id, spec, status, rebuild, .. } = self;
        // What the tags of base images name, the operator has written there.
        let source = source_at(head, String::new(), spec).map_err(|error| error.to_string());
        let source = source.map(|source| SourceAt {
            base_images: base_images::pinned_by(spec, &source, status),
            ..source
        });
        let template = maps.resolve(spec);
        let pinned = pinned_by(spec, status);
        let as_built = pinned.as_ref().unwrap_or(spec);
        let key = |template: &ResolvedTemplate| {
            let hash = template_hash(template, as_built, registry);
            let key = build_key(as_built, source.as_ref()?, registry, &hash, rebuild.as_deref());
            key.map_err(|error| error.to_string())
        };
        match template.as_ref().map(key) {
            Ok(Ok(key)) if status.build_key.as_deref() == Some(key.as_str()) => {}
            Ok(Ok(key)) if has_image(status, &key) => {
                let why = "its image was built before, and is used again".to_owned();
                found.builds.push(Build { object: id.to_string(), starts: false, why });
            }
            Ok(Err(error)) => found.builds.push(cannot(id, &error)),
            Err(error) if !maps.guessed && !maps.missing => found.builds.push(cannot(id, error)),
            // The key may be another one because other templates are taken than the operator has.
            other => {
                let why = match (self.change(loaded, head), other) {
                    (_, Err(error)) if !maps.guessed => Err(error.clone()),
                    (Change::Of(why), _) => Ok(why),
                    (_, Err(error)) => Err(error.clone()),
                    (_, _) if maps.guessed => {
                        Err("it was built with other templates than those of this program".into())
                    }
                    (Change::Unknown, _) => {
                        Ok("its source or the pipeline template changes".into())
                    }
                    (Change::Nothing, _) => Ok("the pipeline template changes".into()),
                };
                match why {
                    Ok(why) => found.builds.push(built(id, spec, why)),
                    Err(error) => {
                        found.notes.push(format!("whether {id} is built is not known: {error}"));
                    }
                }
            }
        }
    }

    /// What of it was changed since it was built last, besides its template.
    fn change(&self, loaded: &Loaded, head: &Snapshot) -> Change {
        if self.was.as_ref().is_some_and(|was| recipe(was) != recipe(self.spec)) {
            return Change::Of("its definition changes".to_owned());
        }
        let before = self.status.last_attempted_commit.as_deref();
        let before = before.and_then(|commit| open(&loaded.root, commit).ok());
        match before.map(|before| changed_path(&before, head, self.spec)) {
            Some(Some(why)) => Change::Of(why),
            Some(None) => Change::Nothing,
            None => Change::Unknown,
        }
    }
}

/// What was changed since a build.
enum Change {
    /// This.
    Of(String),
    /// Neither the definition nor the source.
    Nothing,
    /// Not the definition. The commit of the build is not here.
    Unknown,
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
