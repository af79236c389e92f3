//! `convoke render [PATH]`: prints the plain form of a folder's definitions. It is what the operator would apply, without the
//! metadata that the operator adds. Included files and short forms are resolved. Defaults of the schema are not set.
//! `convoke render build NAME [PATH]`: prints the PipelineRun of an AgentBuild.

mod build;

use std::process::ExitCode;

use clap::{Args as ClapArgs, Subcommand, ValueEnum};
use serde_json::{Value, json};

use super::context::ContextArgs;
use super::plan::print_errors;
use super::validate::load;
use super::{FOUND, Failure, escaped, print};
use crate::api::API_VERSION;
use crate::definition::Definition;

/// Print the plain form of a folder's definitions.
#[derive(Debug, ClapArgs)]
#[command(args_conflicts_with_subcommands = true)]
pub struct Args {
    #[command(subcommand)]
    what: Option<What>,
    /// Folder with definitions (what spec.path of the GitSync names)
    #[arg(default_value = ".")]
    path: std::path::PathBuf,
    /// How to print them
    #[arg(short, long, value_enum, default_value_t = Output::Yaml)]
    output: Output,
    #[command(flatten)]
    context: ContextArgs,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Print the PipelineRun that the newest commit makes of an AgentBuild
    Build(build::Args),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Output {
    /// A stream of documents
    Yaml,
    /// One List
    Json,
}

pub fn run(args: &Args) -> Result<ExitCode, Failure> {
    if let Some(What::Build(args)) = &args.what {
        return build::run(args);
    }
    let loaded = load(&args.path, |path| args.context.resolve(path))?;
    if print_errors(&loaded) {
        return Err(Failure::new(FOUND, "the folder has errors, so it has no plain form")
            .hint("convoke validate shows warnings too"));
    }
    // In apply order.
    let manifests = loaded.catalog.definitions.values().map(|definition| manifest(definition));
    match args.output {
        Output::Yaml => print(&manifests.map(|m| document(&m)).collect::<Result<String, _>>()?),
        Output::Json => {
            let items: Vec<_> = manifests.collect();
            let list = json!({"apiVersion": "v1", "kind": "List", "items": items});
            print(&escaped(&format!("{list:#}\n")))
        }
    }
}

fn manifest(definition: &Definition) -> Value {
    let Definition { id, labels, annotations, spec, .. } = definition;
    let mut metadata = json!({"name": id.name});
    for (field, map) in [("labels", labels), ("annotations", annotations)] {
        if !map.is_empty() {
            metadata[field] = json!(map);
        }
    }
    json!({"apiVersion": API_VERSION, "kind": id.kind.as_str(), "metadata": metadata, "spec": spec.json()})
}

fn document(manifest: &Value) -> Result<String, Failure> {
    let text = serde_saphyr::to_string(manifest).map_err(|e| Failure::new(FOUND, e.to_string()))?;
    let end = if text.ends_with('\n') { "" } else { "\n" };
    Ok(format!("---\n{text}{end}"))
}
