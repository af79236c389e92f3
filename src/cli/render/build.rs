//! `convoke render build NAME [PATH]`: prints the PipelineRun that the controller would make of an AgentBuild, by the controller's own
//! code. The definition is that of the folder, committed or not. The source is that of the commit `HEAD`, because a run fetches a commit.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args as ClapArgs;
use serde_json::Value;

use super::{Output, document};
use crate::api::agent_build::AgentBuildSpec;
use crate::api::{Kind, ObjectId};
use crate::cli::context::ContextArgs;
use crate::cli::plan::print_errors;
use crate::cli::templates::{no_source, read, shipped, source_at, template};
use crate::cli::validate::{Loaded, load};
use crate::cli::{FOUND, Failure, USAGE, escaped, print};
use crate::controllers::agent_build::key::build_key;
use crate::controllers::agent_build::own_image::PUBLISHED;
use crate::controllers::agent_build::pipeline_run::{Build, render, template_hash};
use crate::definition::Context;
use crate::git::{self, GitError, open_local};
use convoke_core::sync::commit::source_at::SourceAt;
use convoke_core::text::nearest;

/// What stands for what only a cluster knows.
const UNKNOWN_NAMESPACE: &str = "<namespace>";
const UNKNOWN_UID: &str = "<uid of the AgentBuild>";
const UNKNOWN_URL: &str = "<url of the GitSync>";

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
    let mut maps = shipped()?;
    let mut places = "the shipped ones".to_owned();
    if let Some(folder) = &args.templates {
        maps.extend(read(folder)?);
        places = format!("{} or {places}", folder.display());
    }
    let template = template(&spec, &maps, &places, image).map_err(|error| {
        let hint = "--templates names a folder with templates and steps of your own";
        Failure::new(FOUND, error).hint(hint)
    })?;
    let source = source(args, loaded, &spec)?;
    let wrong = |error: String| Failure::new(FOUND, format!("AgentBuild {}: {error}", args.name));
    let key = build_key(&spec, &source, registry, &template_hash(&template, &spec, registry), None)
        .map_err(|error| wrong(error.to_string()).hint("is it committed?"))?;
    let build = Build {
        secrets: None,
        namespace: args.namespace.as_deref().unwrap_or(UNKNOWN_NAMESPACE),
        at: None,
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
    if let Some(git) = &spec.source.git {
        let message =
            format!("AgentBuild {} is built from another repository: {}", args.name, git.url);
        return Err(Failure::new(USAGE, message)
            .hint("this command reads the folder only; the status of the AgentBuild says what is built of it"));
    }
    let url = args.url.clone().unwrap_or_else(|| UNKNOWN_URL.to_owned());
    let is_there = loaded.root.join(".git").symlink_metadata().is_ok();
    if !is_there {
        eprintln!("note: this is no Git repository: commit and build key are not those of a build");
        return Ok(SourceAt { url, ..no_source() });
    }
    // The folder of the definitions need not be in the commit: only the source must.
    let unreadable = |error: GitError| Failure::new(USAGE, format!("cannot read HEAD: {error}"));
    let snapshot =
        open_local(&loaded.root, "HEAD", ".", git::Limits::default()).map_err(unreadable)?;
    source_at(&snapshot, url, spec).map_err(unreadable)
}
