//! (pure) Problems of the loader that more than one place tells.
#![deny(clippy::disallowed_types, clippy::disallowed_methods)]

use std::sync::Arc;

use super::diagnostic::code;
use super::document::Place;
use super::tree::{EntryKind, TreeEntry};
use super::{Catalog, Definition};
use crate::api::ObjectId;
use crate::api::git_sync::{Problem, Severity};

/// An error in a file.
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
        message: message.into(),
        hint,
        object: None,
    }
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
    let places: Vec<_> = several.iter().map(|d| format!("{}:{}", d.path, d.line)).collect();
    let elsewhere = catalog.broken.get(id).cloned();
    for definition in several {
        let here = format!("{}:{}", definition.path, definition.line);
        let others: Vec<_> = places
            .iter()
            .filter(|place| **place != here)
            .cloned()
            .chain(elsewhere.clone())
            .collect();
        let others = if others.is_empty() { here } else { others.join(", ") };
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
