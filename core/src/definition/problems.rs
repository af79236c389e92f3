//! Problems that a load reports, and how many of them.

use std::sync::Arc;

use super::diagnostic::code;
use super::places::Place;
use super::tree::{EntryKind, TreeEntry};
use super::{Catalog, Definition, Limits};
use crate::api::ObjectId;
use crate::api::git_sync::{Problem, Severity};
use crate::text::printable;

/// Most problems of one file.
pub(super) const MAX_PROBLEMS_OF_FILE: usize = 1_000;
/// Most problems of one commit.
pub(super) const MAX_PROBLEMS: usize = 20_000;
/// How many other definitions of the same object a problem names.
const MAX_NAMED_DUPLICATES: usize = 3;

/// An error in a file. Message and hint are made printable: they may quote the file.
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

/// The first `max` problems of a file, and one problem that counts the others.
pub(super) fn capped(problems: &[Problem], path: &str, max: usize) -> Vec<Problem> {
    let Some(cut) = problems.get(max..).filter(|cut| !cut.is_empty()) else {
        return problems.to_vec();
    };
    let message = format!("this file has {} more problems", cut.len());
    let mut more = error_at(path, None, code::BUDGET, &message, None);
    more.severity = cut.iter().map(|problem| problem.severity).min().unwrap_or(more.severity);
    problems.iter().take(max).cloned().chain([more]).collect()
}

/// The budget of the repository is used up: these files are not read.
pub(super) fn budget_exceeded(first: &str, files: usize, limits: Limits) -> Problem {
    let message = format!(
        "the definitions below the path are too many: more than {} objects or {} MiB; {files} file(s) from here on are not read",
        limits.total_documents,
        limits.total_bytes >> 20
    );
    let hint = "spread them over several GitSyncs, or ask for larger --git-max-objects and --git-max-total of the operator";
    error_at(first, None, code::BUDGET, &message, Some(hint.into()))
}

/// An entry of the tree is no regular file.
pub(super) fn not_a_file(entry: &TreeEntry) -> Problem {
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

/// Reports that an object is defined more than once, and marks it as broken: it is not known which definition is meant.
pub(super) fn report_duplicate(catalog: &mut Catalog, id: &ObjectId, several: &[Arc<Definition>]) {
    let elsewhere = catalog.broken.get(id).cloned();
    for (number, definition) in several.iter().enumerate() {
        let others = several.iter().enumerate().filter(|(other, _)| *other != number);
        // Thousands of problems that each name thousands of definitions would fill the memory.
        let mut named: Vec<_> = others
            .take(MAX_NAMED_DUPLICATES)
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
