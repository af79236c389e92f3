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
use crate::cli::templates::{Side, TemplateArgs, no_source, read, shipped, source_at, template};
use crate::cli::validate::{Loaded, load};
use crate::cli::{FOUND, Failure, USAGE, escaped, print};
use crate::controllers::agent_build::base_images;
use crate::controllers::agent_build::key::build_key;
use crate::controllers::agent_build::own_image::PUBLISHED;
use crate::controllers::agent_build::pipeline_run::{Build, render, template_hash};
use crate::controllers::agent_build::profile::BuildProfile;
use crate::controllers::agent_build::signing::statement::{Asked, PipelineOf, ask, full_ref};
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
    #[command(flatten)]
    templates: TemplateArgs,
    /// Registry of builds that name none, as --internal-registry of the operator
    #[arg(long, value_name = "HOST")]
    registry: Option<String>,
    /// Image of the operator [default: the published one of this version]
    #[arg(long)]
    image: Option<String>,
    /// How steps run that build a Dockerfile or test an image, as --build-profile of the operator
    #[arg(long, value_name = "PROFILE", default_value_t)]
    build_profile: BuildProfile,
    /// URL of the repository, as spec.url of the GitSync
    #[arg(long)]
    url: Option<String>,
    /// Clone of the other repository that is built (spec.source.git): its HEAD is the commit
    #[arg(long, value_name = "FOLDER")]
    source: Option<PathBuf>,
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
    let TemplateArgs { templates, operator_templates } = &args.templates;
    for (folder, side) in [(operator_templates, Side::Operator), (templates, Side::Own)] {
        if let Some(folder) = folder {
            maps.extend(read(folder, side)?);
            places = format!("{} or {places}", folder.display());
        }
    }
    let template = template(&spec, &maps, &places, image, args.build_profile).map_err(|error| {
        let hint = "--templates names a folder with templates and steps of the namespace, and --operator-templates one with those of the operator's";
        Failure::new(FOUND, error).hint(hint)
    })?;
    let source = source(args, loaded, &spec)?;
    for note in not_known(&spec, &source) {
        eprintln!("note: {note}");
    }
    let wrong = |error: String| Failure::new(FOUND, format!("AgentBuild {}: {error}", args.name));
    let key = build_key(&spec, &source, registry, &template_hash(&template, &spec, registry), None)
        .map_err(|error| wrong(error.to_string()).hint("is it committed?"))?;
    let build = Build {
        secrets: None,
        cache: None,
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
    let mut run = render(&build).map_err(|error| wrong(error.to_string()))?;
    if template.provenance {
        let reference = spec.source.git.as_ref();
        let asked = Asked {
            mode: spec.mode.clone(),
            pipeline_of: PipelineOf::of(&template),
            reference: reference
                .and_then(|git| full_ref(&git.reference.clone().unwrap_or_default())),
            tree: source.subfolder_tree.clone(),
        };
        ask(&mut run, &asked);
    }
    Ok(run)
}

/// With `trigger.baseImage`: what only an operator knows, and what it does not follow.
fn not_known(spec: &AgentBuildSpec, source: &SourceAt) -> Vec<String> {
    if !spec.trigger.base_image {
        return Vec::new();
    }
    let (followed, mut notes) = base_images::followed(spec, source);
    let images = followed.iter().map(|one| one.reference.to_string());
    let append = spec.append.iter().map(|append| append.base_image.clone());
    let images: Vec<_> = images.chain(append.filter(|base| !base.contains('@'))).collect();
    if !images.is_empty() {
        notes.push(format!(
            "the operator asks which digest {} has: that is in the build key and in the parameters of a build, and not in these",
            images.join(", ")
        ));
    }
    notes
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
    let name = &args.name;
    let (root, url) = match (&spec.source.git, &args.source) {
        (Some(git), Some(clone)) => (clone, git.url.clone()),
        (Some(git), None) => {
            let message =
                format!("AgentBuild {name} is built from another repository: {}", git.url);
            return Err(Failure::new(USAGE, message).hint("name a clone of it: --source FOLDER"));
        }
        (None, Some(_)) => {
            let message = format!("AgentBuild {name} is built from the repository of its GitSync");
            return Err(Failure::new(USAGE, message)
                .hint("--source is for an AgentBuild with spec.source.git"));
        }
        (None, None) => (&loaded.root, args.url.clone().unwrap_or_else(|| UNKNOWN_URL.to_owned())),
    };
    let is_there = args.source.is_some() || root.join(".git").symlink_metadata().is_ok();
    if !is_there {
        eprintln!("note: this is no Git repository: commit and build key are not those of a build");
        return Ok(SourceAt { url, ..no_source() });
    }
    // The folder of the definitions need not be in the commit: only the source must.
    let unreadable = |error: GitError| {
        let of = args.source.as_ref().map(|clone| format!(" of {}", clone.display()));
        Failure::new(USAGE, format!("cannot read HEAD{}: {error}", of.unwrap_or_default()))
    };
    let snapshot = open_local(root, "HEAD", ".", git::Limits::default()).map_err(unreadable)?;
    source_at(&snapshot, url, spec).map_err(unreadable)
}
