//! Problems of the loader that more than one place tells.

use std::sync::Arc;

use super::diagnostic::{code, printable};
use super::document::Place;
use super::tree::{EntryKind, TreeEntry};
use super::{Catalog, Definition, Limits};
use crate::api::ObjectId;
use crate::api::git_sync::{Problem, Severity};

/// Problems of a file that are told one by one.
pub(super) const MOST_IN_FILE: usize = 1_000;
/// Problems of a commit that are told one by one.
pub(super) const MOST_PROBLEMS: usize = 20_000;
/// How many of the other definitions of an identity a problem names.
const MOST_TWINS: usize = 3;

/// An error in a file. What the text quotes cannot change how it looks.
pub(super) fn error_at(
    path: &str,
    place: Option<Place>,
    code: &str,
    message: &str,
    hint: Option<String>,
) -> Problem {
    Problem {
        severity: Severity::Error,
        path: Some(path.to_owned()),
        line: place.map(|place| place.line.into()),
        column: place.map(|place| place.column.into()),
        code: code.into(),
        message: printable(message),
        hint: hint.as_deref().map(printable),
        object: None,
    }
}

/// At most `most` problems of a file, and how many more it has.
pub(super) fn told(problems: &[Problem], path: &str, most: usize) -> Vec<Problem> {
    let Some(cut) = problems.get(most..).filter(|cut| !cut.is_empty()) else {
        return problems.to_vec();
    };
    let message = format!("this file has {} more problems", cut.len());
    let mut more = error_at(path, None, code::BUDGET, &message, None);
    more.severity = cut.iter().map(|problem| problem.severity).min().unwrap_or(more.severity);
    problems.iter().take(most).cloned().chain([more]).collect()
}

/// Files that are not read, because all before them have used up what a repository may cost.
pub(super) fn too_much(first: &str, files: usize, limits: Limits) -> Problem {
    let message = format!(
        "the definitions below the path are too many: more than {} objects or {} MiB; {files} file(s) from here on are not read",
        limits.total_documents,
        limits.total_bytes >> 20
    );
    let hint = "spread them over several GitSyncs, or ask for larger --git-max-objects and --git-max-total of the operator";
    error_at(first, None, code::BUDGET, &message, Some(hint.into()))
}

/// An entry that is no file.
pub(super) fn odd_entry(entry: &TreeEntry) -> Problem {
    let (message, hint) = match entry.kind {
        EntryKind::Symlink => {
            ("this is a symbolic link, and links are never followed", "put the file itself here")
        }
        EntryKind::Submodule => (
            "this is a submodule, and submodules are never read",
            "sync the other repository with a GitSync of its own",
        ),
        EntryKind::Odd | EntryKind::File => {
            ("this entry has a name or mode that no honest tree has", "remove it")
        }
    };
    error_at(&entry.path, None, code::ENTRY, message, Some(hint.into()))
}

/// An identity that several files have: which of them is meant is not known.
pub(super) fn duplicate(catalog: &mut Catalog, id: &ObjectId, several: &[Arc<Definition>]) {
    let elsewhere = catalog.broken.get(id).cloned();
    for (number, definition) in several.iter().enumerate() {
        let others = several.iter().enumerate().filter(|(other, _)| *other != number);
        // A few of them: each of thousands naming all the others would fill the memory.
        let mut named: Vec<_> = others
            .take(MOST_TWINS)
            .map(|(_, other)| format!("{}:{}", other.path, other.line))
            .chain(elsewhere.clone())
            .collect();
        let all = several.len() - 1 + usize::from(elsewhere.is_some());
        if all > named.len() {
            named.push(format!("and {} more", all - named.len()));
        }
        let others = named.join(", ");
        let place = Place { line: definition.line, column: definition.column };
        let mut problem = error_at(
            &definition.path,
            Some(place),
            code::DUPLICATE_OBJECT,
            &format!("{id} is defined twice, also at {others}"),
            Some("remove or rename one of the two".into()),
        );
        problem.object = Some(id.to_string());
        catalog.problems.push(problem);
        catalog.broken.insert(id.clone(), definition.path.clone());
    }
}
