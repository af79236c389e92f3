//! `convoke validate [PATH]`: checks the definitions of a folder, without a cluster.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args as ClapArgs, ValueEnum};

use super::context::ContextArgs;
use super::{FOUND, Failure, USAGE, count, escaped, print};
use crate::api::git_sync::Severity;
use crate::definition::{Catalog, Context, Limits, Loader, check_references, diagnostic, sarif};
use crate::git::{Folder, repository_root};

/// Check the definitions of a folder.
#[derive(Debug, ClapArgs)]
pub struct Args {
    /// Folder with definitions (what spec.path of the GitSync names)
    #[arg(default_value = ".")]
    path: PathBuf,
    /// Namespace that the GitSync applies to, for rules that need it
    #[arg(short, long, value_name = "NAME")]
    namespace: Option<String>,
    #[command(flatten)]
    context: ContextArgs,
    /// How to print problems
    #[arg(short, long, value_enum, default_value_t = Output::Text)]
    output: Output,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Output {
    /// For people
    Text,
    /// For programs
    Json,
    /// For code scanning of forges and for editors (SARIF 2.1.0)
    Sarif,
}

/// A folder of the work tree, with its definitions.
pub(super) struct Loaded {
    /// Its files.
    pub folder: Folder,
    /// Its definitions and problems. References to missing objects are not among the problems: the objects may be in the cluster.
    pub catalog: Catalog,
    /// The top of the work tree, or the folder itself if there is none.
    pub root: PathBuf,
    /// The path of the folder below `root`; `.` for `root` itself.
    pub below: String,
    /// The context that it was read with.
    pub context: Context,
}

impl Loaded {
    /// The context for another folder that is compared with this one.
    pub fn at(&self, path: &str) -> Context {
        Context { path: path.to_owned(), ..self.context.clone() }
    }
}

/// Loads a folder of the work tree. `context` makes the context from the path of the folder in the repository.
pub(super) fn load(
    path: &std::path::Path,
    context: impl FnOnce(&str) -> Result<Context, Failure>,
) -> Result<Loaded, Failure> {
    let path = path
        .canonicalize()
        .map_err(|error| Failure::new(USAGE, format!("cannot read {}: {error}", path.display())))?;
    if !path.is_dir() {
        return Err(Failure::new(USAGE, format!("{} is not a folder", path.display()))
            .hint("name the folder that spec.path of the GitSync names"));
    }
    let root = repository_root(&path);
    let below = path.strip_prefix(&root).unwrap_or(&path).to_string_lossy().into_owned();
    let below = if below.is_empty() { ".".to_owned() } else { below };
    let folder = Folder::open(&root, &below, crate::git::Limits::default())
        .map_err(|error| Failure::new(USAGE, error.to_string()))?;
    let context = context(&below)?;
    let catalog = Loader::new(Limits::default()).load(&folder, &context);
    Ok(Loaded { folder, catalog, root, below, context })
}

pub fn run(args: &Args) -> Result<ExitCode, Failure> {
    let context = |path: &str| {
        let namespace = args.namespace.clone();
        Ok(Context { namespace, ..args.context.resolve(path)? })
    };
    let Loaded { folder, mut catalog, below, .. } = load(&args.path, context)?;
    // A missing object may be in the cluster, so it is only a warning.
    let references = check_references(&catalog, &|_| false);
    catalog.problems.extend(references);
    let errors = catalog.problems.iter().filter(|p| p.severity == Severity::Error).count();
    match args.output {
        Output::Text => {
            let mut text = diagnostic::render_text(&catalog.problems, Some(&folder));
            if !text.is_empty() {
                text.push('\n');
            }
            let warnings = catalog.problems.len() - errors;
            let found = match (errors, warnings) {
                (0, 0) => "no problems".to_owned(),
                (errors, 0) => count(errors, "error"),
                (0, warnings) => count(warnings, "warning"),
                (errors, warnings) => {
                    format!("{}, {}", count(errors, "error"), count(warnings, "warning"))
                }
            };
            let ignored = match catalog.ignored {
                0 => String::new(),
                n => format!(" ({n} ignored)"),
            };
            text.push_str(&format!(
                "{} in {}{ignored}: {found}\n",
                count(catalog.documents, "object"),
                count(catalog.files, "file")
            ));
            print(&text)?;
        }
        Output::Json => {
            let json = diagnostic::render_json(&catalog.problems);
            print(&format!("{}\n", escaped(&json)))?;
        }
        Output::Sarif => {
            print(&format!("{}\n", escaped(&sarif::render(&catalog.problems, &below))))?;
        }
    }
    Ok(if errors > 0 { ExitCode::from(FOUND) } else { ExitCode::SUCCESS })
}
