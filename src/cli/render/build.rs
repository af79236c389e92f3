//! `convoke render build NAME [PATH]`: prints the PipelineRun that the controller would make of an AgentBuild, by the controller's own
//! code. The definition is that of the folder, committed or not. The source is that of the commit `HEAD`, because a run fetches a commit.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args as ClapArgs;
use serde_json::Value;

use super::{Output, document};
use crate::api::agent_build::AgentBuildSpec;
use crate::api::{Kind, ObjectId};
use crate::cli::context::ContextArgs;
use crate::cli::plan::print_errors;
use crate::cli::validate::{Loaded, load};
use crate::cli::{FOUND, Failure, USAGE, escaped, print};
use crate::controllers::agent_build::key::build_key;
use crate::controllers::agent_build::own_image::PUBLISHED;
use crate::controllers::agent_build::pipeline_run::{Build, render, template_hash};
use crate::controllers::agent_build::resolve_template::{
    BuildArgs, Inputs, ResolvedTemplate, resolve,
};
use crate::controllers::agent_build::template::{
    STEP_KEY, STEP_LABEL, StepSource, TEMPLATE_KEY, VERSION_KEY, config_map_name, parse,
};
use crate::controllers::agent_build::template_error::TemplateError;
use crate::definition::document::{self, Budget};
use crate::definition::{Context, Limits};
use crate::git::{self, GitError, open_local};
use convoke_core::sync::commit::source_at::SourceAt;
use convoke_core::text::nearest;

/// The templates and steps that `deploy/` installs.
const SHIPPED: [(&str, &str); 5] = [
    ("template-dev.yaml", include_str!("../../../deploy/pipelines/template-dev.yaml")),
    ("step-clone.yaml", include_str!("../../../deploy/pipelines/step-clone.yaml")),
    ("step-verify.yaml", include_str!("../../../deploy/pipelines/step-verify.yaml")),
    ("step-build.yaml", include_str!("../../../deploy/pipelines/step-build.yaml")),
    ("step-push.yaml", include_str!("../../../deploy/pipelines/step-push.yaml")),
];
/// What stands for what only a cluster knows.
const UNKNOWN_NAMESPACE: &str = "<namespace>";
const UNKNOWN_UID: &str = "<uid of the AgentBuild>";
const UNKNOWN_URL: &str = "<url of the GitSync>";
/// What stands for the ids of a commit where there is none.
const NO_ID: &str = "0000000000000000000000000000000000000000";
/// The longest file with templates.
const MAX_FILE_BYTES: u64 = 1 << 20;
/// Files with templates.
const MAX_FILES: usize = 200;

/// Print the PipelineRun of an AgentBuild.
#[derive(Debug, ClapArgs)]
pub struct Args {
    /// The AgentBuild
    name: String,
    /// Folder with definitions (what spec.path of the GitSync names)
    #[arg(default_value = ".")]
    path: PathBuf,
    /// Folder with templates and steps of your own: ConfigMaps, which win over the shipped ones
    #[arg(long, value_name = "FOLDER")]
    templates: Option<PathBuf>,
    /// Registry of builds that name none, as --internal-registry of the operator
    #[arg(long, value_name = "HOST")]
    registry: Option<String>,
    /// Image of the operator [default: the published one of this version]
    #[arg(long)]
    image: Option<String>,
    /// URL of the repository, as spec.url of the GitSync
    #[arg(long)]
    url: Option<String>,
    /// Namespace of the AgentBuild
    #[arg(short, long)]
    namespace: Option<String>,
    /// How to print it
    #[arg(short, long, value_enum, default_value_t = Output::Yaml)]
    output: Output,
    #[command(flatten)]
    context: ContextArgs,
}

pub(super) fn run(args: &Args) -> Result<ExitCode, Failure> {
    let loaded = load(&args.path, |path| {
        let context = args.context.resolve(path)?;
        Ok(Context { namespace: args.namespace.clone(), ..context })
    })?;
    if print_errors(&loaded) {
        return Err(Failure::new(FOUND, "the folder has errors, so it has no builds")
            .hint("convoke validate shows warnings too"));
    }
    let run = pipeline_run(args, &loaded)?;
    print(&match args.output {
        Output::Yaml => document(&run)?,
        Output::Json => escaped(&format!("{run:#}\n")),
    })
}

fn pipeline_run(args: &Args, loaded: &Loaded) -> Result<Value, Failure> {
    let spec = spec(loaded, &args.name)?;
    let registry = spec.output.registry.as_ref().or(args.registry.as_ref()).ok_or_else(|| {
        Failure::new(USAGE, "spec.output.registry is not set")
            .hint("name the registry of the operator: --registry HOST")
    })?;
    let image = args.image.as_deref().unwrap_or(PUBLISHED);
    let template = template(&spec, args.templates.as_deref(), image)?;
    let source = source(args, loaded, &spec)?;
    let wrong = |error: String| Failure::new(FOUND, format!("AgentBuild {}: {error}", args.name));
    let key = build_key(&spec, &source, registry, &template_hash(&template, &spec, registry), None)
        .map_err(|error| wrong(error.to_string()).hint("is it committed?"))?;
    let build = Build {
        secrets: None,
        namespace: args.namespace.as_deref().unwrap_or(UNKNOWN_NAMESPACE),
        name: &args.name,
        uid: UNKNOWN_UID,
        spec: &spec,
        source: &source,
        registry,
        key: &key,
        attempt: 1,
        template: &template,
    };
    render(&build).map_err(|error| wrong(error.to_string()))
}

/// The spec of an AgentBuild of the folder.
fn spec(loaded: &Loaded, name: &str) -> Result<AgentBuildSpec, Failure> {
    let definitions = &loaded.catalog.definitions;
    let found = definitions.get(&ObjectId::new(Kind::AgentBuild, name));
    // The definition was validated against the schema that this type gives.
    found.and_then(|found| found.canonical_spec.get::<AgentBuildSpec>()).ok_or_else(|| {
        let builds = definitions.keys().filter(|id| id.kind == Kind::AgentBuild);
        let names: Vec<_> = builds.map(|id| id.name.as_str()).collect();
        let failure = Failure::new(USAGE, format!("the folder has no AgentBuild {name}"));
        match nearest(name, names.iter().copied()) {
            Some(near) => failure.hint(format!("did you mean {near}?")),
            None if names.is_empty() => failure.hint("name the folder behind the AgentBuild"),
            None => failure.hint(format!("it has: {}", names.join(", "))),
        }
    })
}

/// The source at the newest commit. Without a repository, it is one that no commit has.
fn source(args: &Args, loaded: &Loaded, spec: &AgentBuildSpec) -> Result<SourceAt, Failure> {
    let url = args.url.clone().unwrap_or_else(|| UNKNOWN_URL.to_owned());
    let at = |commit: &str, subfolder_tree, paths| SourceAt {
        sync: String::new(),
        url: url.clone(),
        commit: commit.to_owned(),
        subfolder_tree,
        paths,
        applied: None,
    };
    let is_there = loaded.root.join(".git").symlink_metadata().is_ok();
    if !is_there {
        eprintln!("note: this is no Git repository: commit and build key are not those of a build");
        return Ok(at(NO_ID, Some(NO_ID.to_owned()), BTreeMap::new()));
    }
    // The folder of the definitions need not be in the commit: only the source must.
    let unreadable = |error: GitError| Failure::new(USAGE, format!("cannot read HEAD: {error}"));
    let snapshot =
        open_local(&loaded.root, "HEAD", ".", git::Limits::default()).map_err(unreadable)?;
    let tree = |path: &str| snapshot.tree_id(path).map_err(unreadable);
    let mut paths = BTreeMap::new();
    for path in &spec.trigger.paths {
        paths.insert(path.clone(), tree(path)?);
    }
    Ok(at(&snapshot.commit().id, tree(&spec.source.subfolder)?, paths))
}

/// A ConfigMap with a template or a step.
struct ConfigMap {
    template: Option<String>,
    /// Whether declared versions count.
    versions: bool,
    step: StepSource,
}

/// The template of a build, as the controller resolves it.
fn template(
    spec: &AgentBuildSpec,
    own: Option<&Path>,
    image: &str,
) -> Result<ResolvedTemplate, Failure> {
    let mut maps = BTreeMap::new();
    for (name, text) in SHIPPED {
        maps.extend(config_maps(name, text, true)?);
    }
    if let Some(folder) = own {
        maps.extend(read(folder)?);
    }
    let places = match own {
        Some(folder) => format!("{} or the shipped ones", folder.display()),
        None => "the shipped ones".to_owned(),
    };
    let name = config_map_name(&spec.mode);
    let found = maps.get(&name).ok_or_else(|| TemplateError::TemplateNotFound {
        config_map: name.clone(),
        namespaces: places.clone(),
    });
    let parsed = found.and_then(|found| parse(&name, found.template.as_deref()));
    let mut parsed = parsed.map_err(|error| failure(&[error]))?;
    let versions = maps.get(&name).is_some_and(|found| found.versions);
    parsed.version = parsed.version.filter(|_| versions);
    let steps = maps.into_iter().map(|(name, map)| (name, map.step)).collect();
    let build_args = if spec.build_args.is_empty() { BuildArgs::None } else { BuildArgs::Given };
    let inputs = Inputs { build_args, operator_image: image };
    resolve(&parsed, &steps, &places, inputs).map_err(|errors| failure(&errors))
}

fn failure(errors: &[TemplateError]) -> Failure {
    let texts: Vec<_> = errors.iter().map(ToString::to_string).collect();
    Failure::new(FOUND, format!("the template cannot be used: {}", texts.join("; ")))
        .hint("--templates names a folder with templates and steps of your own")
}

/// The ConfigMaps of the YAML and JSON files of a folder.
fn read(folder: &Path) -> Result<BTreeMap<String, ConfigMap>, Failure> {
    let refused = |path: &Path, why: String| {
        Failure::new(USAGE, format!("--templates: cannot read {}: {why}", path.display()))
    };
    let entries = std::fs::read_dir(folder).map_err(|error| refused(folder, error.to_string()))?;
    let is_wanted = |path: &PathBuf| {
        let extension = path.extension().and_then(|extension| extension.to_str());
        extension.is_some_and(|extension| ["yaml", "yml", "json"].contains(&extension))
    };
    let mut files: Vec<_> = entries.flatten().map(|entry| entry.path()).filter(is_wanted).collect();
    files.sort();
    if files.len() > MAX_FILES {
        return Err(refused(folder, format!("it has more than {MAX_FILES} files")));
    }
    let mut maps = BTreeMap::new();
    for path in files {
        let size = path.metadata().map_err(|error| refused(&path, error.to_string()))?.len();
        if size > MAX_FILE_BYTES {
            return Err(refused(&path, format!("it has more than {MAX_FILE_BYTES} bytes")));
        }
        let text =
            std::fs::read_to_string(&path).map_err(|error| refused(&path, error.to_string()))?;
        maps.extend(config_maps(&path.display().to_string(), &text, false)?);
    }
    Ok(maps)
}

/// The ConfigMaps of a text, by name. Other documents are left alone. `versions`: whether declared versions count.
fn config_maps(
    file: &str,
    text: &str,
    versions: bool,
) -> Result<BTreeMap<String, ConfigMap>, Failure> {
    let Limits { documents, depth, nodes, .. } = Limits::default();
    let parsed = document::parse(text, Budget { documents, depth, nodes });
    let faults = parsed.faulty.into_iter().flat_map(|faulty| faulty.faults);
    if let Some(fault) = parsed.faults.into_iter().chain(faults).next() {
        let message = format!("{file}: line {}: {}", fault.place.line, fault.message);
        return Err(Failure::new(USAGE, message));
    }
    let values = parsed.documents.into_iter().map(|document| document.value);
    let maps = values.filter(|value| value["kind"] == "ConfigMap").filter_map(|value| {
        let name = value["metadata"]["name"].as_str()?.to_owned();
        let data = |key: &str| value["data"][key].as_str().map(str::to_owned);
        let labelled = value["metadata"]["labels"][STEP_LABEL] == "true";
        let step = StepSource {
            labelled,
            task_spec: data(STEP_KEY),
            version: data(VERSION_KEY).filter(|_| versions),
        };
        Some((name, ConfigMap { template: data(TEMPLATE_KEY), versions, step }))
    });
    Ok(maps.collect())
}
