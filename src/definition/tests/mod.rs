//! The repository format from the outside: small trees in, definitions and problems with places out.

mod cache;
mod catalog;
mod good;
mod hostile;
mod includes;
mod metadata;
mod schema;
mod show;
mod yaml;

use super::tree::MemoryTree;
use super::{Catalog, Limits, Loader};

/// The namespace that test trees are written to.
const NAMESPACE: &str = "team";

fn load(tree: &MemoryTree) -> Catalog {
    Loader::new(Limits::default()).load(tree, Some(NAMESPACE))
}

/// A tree of one file.
fn load_one(text: &str) -> Catalog {
    load(&MemoryTree::new().file("a.yaml", text))
}

/// Problems as `path:line:column CODE message`.
fn shown(catalog: &Catalog) -> Vec<String> {
    catalog
        .problems
        .iter()
        .map(|problem| {
            let path = problem.path.as_deref().unwrap_or("-");
            let place = match (problem.line, problem.column) {
                (Some(line), Some(column)) => format!("{line}:{column}"),
                _ => "-".to_owned(),
            };
            format!("{path}:{place} {} {}", problem.code, problem.message)
        })
        .collect()
}

/// `line:column CODE` of each problem.
fn places(catalog: &Catalog) -> Vec<String> {
    catalog
        .problems
        .iter()
        .map(|problem| {
            format!(
                "{}:{} {}",
                problem.line.unwrap_or(0),
                problem.column.unwrap_or(0),
                problem.code
            )
        })
        .collect()
}

fn names(catalog: &Catalog) -> Vec<String> {
    catalog.definitions.keys().map(ToString::to_string).collect()
}

fn broken(catalog: &Catalog) -> Vec<String> {
    catalog.broken.keys().map(ToString::to_string).collect()
}

/// A good agent with that name and more lines of spec, each indented by two.
fn agent(name: &str, more: &str) -> String {
    format!(
        "apiVersion: convoke.dev/v1alpha1\nkind: Agent\nmetadata:\n  name: {name}\nspec:\n  modelAPI: gpt\n{more}"
    )
}
