//! Flags that stand for fields of a GitSync, such as `spec.ignore` and `spec.variables`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use clap::Args as ClapArgs;
use serde::Deserialize;

use super::{Failure, USAGE};
use crate::definition::document::{self, Budget};
use crate::definition::ignore::Patterns;
use crate::definition::variables::{Variables, is_name};
use crate::definition::{Context, Limits};

/// Flags that stand for fields of a GitSync.
#[derive(Debug, ClapArgs)]
pub struct ContextArgs {
    /// Leave out what matches, as spec.ignore of the GitSync does (may be repeated)
    #[arg(long, value_name = "PATTERN")]
    ignore: Vec<String>,
    /// Set a variable, as spec.variables.inline of the GitSync does (may be repeated)
    #[arg(long, value_name = "NAME=VALUE")]
    var: Vec<String>,
    /// Set the variables of a YAML file: names and texts, or a ConfigMap (may be repeated; later ones win, --var over all)
    #[arg(long, value_name = "FILE")]
    vars_from: Vec<PathBuf>,
}

impl ContextArgs {
    /// The context that a folder of the repository is read with.
    pub(super) fn resolve(&self, path: &str) -> Result<Context, Failure> {
        let ignore = Patterns::new(&self.ignore)
            .map_err(|error| Failure::new(USAGE, format!("--ignore: {error}")))?;
        let variables = self.variables()?;
        Ok(Context { namespace: None, path: path.to_owned(), ignore, variables })
    }

    /// The context when the GitSync is known. A flag that is given replaces the field of the GitSync.
    pub(super) fn resolve_with(
        &self,
        path: &str,
        namespace: String,
        ignore: &[String],
        variables: Option<Variables>,
    ) -> Result<Context, Failure> {
        let mut context = self.resolve(path)?;
        context.namespace = Some(namespace);
        if self.ignore.is_empty() {
            context.ignore = Patterns::new(ignore)
                .map_err(|error| Failure::new(USAGE, format!("spec.ignore: {error}")))?;
        }
        context.variables = context.variables.or(variables);
        Ok(context)
    }

    fn variables(&self) -> Result<Option<Variables>, Failure> {
        let mut values = BTreeMap::new();
        for file in &self.vars_from {
            values.extend(read(file)?);
        }
        for text in &self.var {
            match text.split_once('=') {
                Some((name, value)) if is_name(name) => {
                    values.insert(name.to_owned(), value.to_owned());
                }
                _ => {
                    return Err(Failure::new(USAGE, "--var takes NAME=VALUE")
                        .hint("names are letters, digits and '_', not beginning with a digit"));
                }
            }
        }
        let set = !(self.var.is_empty() && self.vars_from.is_empty());
        Ok(set.then(|| Variables::new(values)))
    }
}

/// Reads a YAML file with names and texts, or with a ConfigMap.
fn read(file: &Path) -> Result<BTreeMap<String, String>, Failure> {
    let refused =
        |why: String| Failure::new(USAGE, format!("--vars-from {}: {why}", file.display()));
    let text = std::fs::read_to_string(file).map_err(|error| refused(error.to_string()))?;
    let Limits { documents, depth, nodes, .. } = Limits::default();
    let mut parsed = document::parse(&text, Budget { documents, depth, nodes });
    let faults = parsed.faulty.into_iter().flat_map(|faulty| faulty.faults);
    if let Some(fault) = parsed.faults.into_iter().chain(faults).next() {
        return Err(refused(format!("line {}: {}", fault.place.line, fault.message)));
    }
    let value = match (parsed.documents.pop(), parsed.documents.is_empty()) {
        (Some(document), true) => document.value,
        _ => return Err(refused("this is not one YAML document".into())),
    };
    let values = if value["kind"] == "ConfigMap" { &value["data"] } else { &value };
    BTreeMap::<String, String>::deserialize(values).map_err(|_| {
        refused("this is neither names and texts nor a ConfigMap".into())
            .hint("quote values that look like numbers")
    })
}
