//! `convoke plan [PATH] --against REF`: what a folder changes against a Git ref, without a cluster.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args as ClapArgs;
use serde_json::Value;

use super::context::ContextArgs;
use super::validate::Read;
use super::{FOUND, Failure, USAGE, count, print, validate};
use crate::api::ObjectId;
use crate::api::git_sync::Severity;
use crate::definition::{Catalog, Limits, Loader, diagnostic};
use crate::git::{GitError, open_local, repository_root};

/// Show what a folder changes.
#[derive(Debug, ClapArgs)]
pub struct Args {
    /// Folder with definitions (what spec.path of the GitSync names)
    #[arg(default_value = ".")]
    path: PathBuf,
    /// Branch, tag or commit to compare with
    #[arg(long, default_value = "HEAD")]
    against: String,
    #[command(flatten)]
    context: ContextArgs,
}

pub fn run(args: &Args) -> Result<ExitCode, Failure> {
    let Read { folder, catalog: new, context } = validate::load(&args.path, &args.context)?;
    if new.problems.iter().any(|p| p.severity == Severity::Error) {
        let errors: Vec<_> =
            new.problems.iter().filter(|p| p.severity == Severity::Error).cloned().collect();
        eprintln!("{}", diagnostic::render_text(&errors, Some(&folder)));
        return Err(Failure::new(FOUND, "the folder has errors, so there is no plan")
            .hint("convoke validate shows warnings too"));
    }
    let path = args.path.canonicalize().map_err(|error| Failure::new(USAGE, error.to_string()))?;
    let root = repository_root(&path);
    let below = path.strip_prefix(&root).unwrap_or(&path).to_string_lossy().into_owned();
    let below = if below.is_empty() { ".".to_owned() } else { below };
    let old = match open_local(&root, &args.against, &below, crate::git::Limits::default()) {
        Ok(tree) => Loader::new(Limits::default()).load(&tree, &context),
        // The folder is new: everything in it is.
        Err(GitError::PathMissing { .. }) => Catalog::default(),
        Err(error) => {
            return Err(Failure::new(USAGE, format!("cannot read {}: {error}", args.against)));
        }
    };
    print(&render(&old, &new))
}

/// One line an object, then its changed fields.
fn render(old: &Catalog, new: &Catalog) -> String {
    let ids: BTreeSet<&ObjectId> = old.definitions.keys().chain(new.definitions.keys()).collect();
    let mut text = String::new();
    let (mut created, mut updated, mut pruned) = (0, 0, 0);
    for id in ids {
        match (old.definitions.get(id), new.definitions.get(id)) {
            (None, Some(_)) if old.broken.contains_key(id) => {
                updated += 1;
                text.push_str(&format!(
                    "~ {id}\n    was broken there, so what changes is not known\n"
                ));
            }
            (None, Some(_)) => {
                created += 1;
                text.push_str(&format!("+ {id}\n"));
            }
            (Some(_), None) => {
                pruned += 1;
                text.push_str(&format!("- {id}\n"));
            }
            (Some(before), Some(after)) => {
                let mut changes = Vec::new();
                diff("", &before.canonical_spec, &after.canonical_spec, &mut changes);
                if before.labels != after.labels || before.annotations != after.annotations {
                    changes.push("labels or annotations changed".into());
                }
                if !changes.is_empty() {
                    updated += 1;
                    text.push_str(&format!("~ {id}\n"));
                    for change in changes {
                        text.push_str(&format!("    {change}\n"));
                    }
                }
            }
            (None, None) => {}
        }
    }
    let objects = count(new.definitions.len(), "object");
    if text.is_empty() {
        return format!("no changes ({objects})\n");
    }
    text.push_str(&format!(
        "\n{created} to create, {updated} to change, {pruned} to delete ({objects} afterwards)\n"
    ));
    text
}

/// Changed leaves, in the words of the spec.
fn diff(path: &str, old: &Value, new: &Value, out: &mut Vec<String>) {
    if old == new {
        return;
    }
    if let (Value::Object(a), Value::Object(b)) = (old, new) {
        for key in a.keys().chain(b.keys()).collect::<BTreeSet<_>>() {
            let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
            diff(
                &path,
                a.get(key).unwrap_or(&Value::Null),
                b.get(key).unwrap_or(&Value::Null),
                out,
            );
        }
        return;
    }
    if let (Some(a), Some(b)) = (names(old), names(new)) {
        let join = |sign: char, only: Vec<&String>| {
            only.iter().map(|n| format!("{sign}{n}")).collect::<Vec<_>>()
        };
        let mut parts = join('+', b.iter().filter(|n| !a.contains(n)).collect());
        parts.extend(join('-', a.iter().filter(|n| !b.contains(n)).collect()));
        if parts.is_empty() {
            parts.push("changed".into());
        }
        out.push(format!("{path}: {}", parts.join(" ")));
        return;
    }
    out.push(match (old, new) {
        (Value::String(a), Value::String(b)) if a.contains('\n') || b.contains('\n') => {
            let lines = |text: &str| text.lines().map(str::to_owned).collect::<BTreeSet<_>>();
            let (a, b) = (lines(a), lines(b));
            format!(
                "{path}: {} added, {} removed",
                count(b.difference(&a).count(), "line"),
                a.difference(&b).count()
            )
        }
        (Value::Null, new) => format!("{path}: set to {}", short(new)),
        (old, Value::Null) => format!("{path}: removed (was {})", short(old)),
        (old, new) => format!("{path}: {} -> {}", short(old), short(new)),
    });
}

/// The names of a list of names, or of a list of things with a name.
fn names(value: &Value) -> Option<Vec<String>> {
    let list = match value {
        Value::Null => return Some(Vec::new()),
        Value::Array(list) => list,
        _ => return None,
    };
    list.iter()
        .map(|item| item.as_str().or_else(|| item.get("name")?.as_str()).map(str::to_owned))
        .collect()
}

/// A value in at most 60 characters.
fn short(value: &Value) -> String {
    let text = match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    if text.chars().count() > 60 { text.chars().take(59).chain(['…']).collect() } else { text }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn changes(old: Value, new: Value) -> Vec<String> {
        let mut out = Vec::new();
        diff("", &old, &new, &mut out);
        out
    }

    #[test]
    fn changes_are_told_by_field_list_and_line() {
        let old = json!({"model": "a", "config": {"instructions": "x\ny\n"}, "mcpServers": [{"name": "s"}], "replicas": 2});
        let new = json!({"model": "b", "config": {"instructions": "x\nz\n"}, "mcpServers": [{"name": "t"}]});
        assert_eq!(
            changes(old, new),
            [
                "config.instructions: 1 line added, 1 removed",
                "mcpServers: +t -s",
                "model: a -> b",
                "replicas: removed (was 2)"
            ]
        );
    }
}
