//! What files mean.

use std::sync::LazyLock;

use serde_json::Value;

use super::super::server::text;
use crate::api::ObjectId;
use crate::sync::properties::repository::{Health, NAMES, Tree, id};

/// The objects that may be wanted, but for one of its own for each folder.
pub static ALL: LazyLock<Vec<ObjectId>> = LazyLock::new(|| NAMES.map(id).to_vec());

/// What the files of a folder say of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Said {
    /// That it is wanted so.
    Wanted(usize),
    /// Something that nobody can read.
    Hidden,
    /// Nothing.
    Nothing,
}

pub fn said(tree: &Tree, folder: &str, id: &ObjectId) -> Said {
    let mut files = tree.below(folder).filter(|(_, file)| file.objects.contains_key(id));
    match (files.next(), files.next()) {
        (None, _) => Said::Nothing,
        (Some((_, file)), None) if file.health == Health::Good => Said::Wanted(file.objects[id]),
        _ => Said::Hidden,
    }
}

/// What anybody can read of an object, whatever else a file may hide that nobody can: its file, and what it is there.
pub fn legible<'a>(tree: &'a Tree, folder: &'a str, id: &ObjectId) -> Option<(&'a str, usize)> {
    let files = tree.below(folder).filter(|(_, file)| file.objects.contains_key(id));
    let mut seen = files.filter(|(_, file)| file.health != Health::Unknown);
    let (path, file) = seen.next().filter(|(_, file)| file.health == Health::Good)?;
    seen.next().is_none().then(|| (path.as_str(), file.objects[id]))
}

/// Whether a folder has something that nobody can read, or that is said twice; or nothing at all.
pub fn has_errors(tree: &Tree, folder: &str) -> bool {
    let mut nothing = true;
    for (_, file) in tree.below(folder) {
        nothing &= file.objects.is_empty();
        if file.health != Health::Good {
            return true;
        }
        if file.objects.keys().any(|id| said(tree, folder, id) == Said::Hidden) {
            return true;
        }
    }
    nothing
}

/// All that a folder means.
pub fn meant(tree: &Tree, folder: &str) -> Vec<(ObjectId, Said)> {
    let mut all: Vec<_> =
        tree.below(folder).flat_map(|(_, file)| file.objects.keys().cloned()).collect();
    all.sort();
    all.dedup();
    all.into_iter().map(|id| (id.clone(), said(tree, folder, &id))).collect()
}

pub fn folder_of(sync: &Value) -> &str {
    text(sync, "/spec/path")
}

/// The whole text of a mark: nothing else makes an object a GitSync's.
pub fn mark_of(uid: &str, name: &str, id: &ObjectId) -> String {
    format!("{uid}/team/{name}/{}/team/{}", id.kind, id.name)
}

/// The part of a uid that statuses name.
pub fn part(uid: &str) -> String {
    uid.chars().filter(|c| *c != '-').take(12).collect()
}
