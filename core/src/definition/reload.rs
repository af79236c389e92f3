//! From one commit to the next: the catalog of the tree before, with what differs.
//!
//! Only where nothing is wrong on either side. Then each identity has one definition, no file holds back another one's,
//! and every problem is a warning about its own file: what a file gives depends on nothing but itself and what it
//! includes. Whatever is not so simple is loaded anew, and so is all that cannot be told for sure.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use super::complain::MOST_PROBLEMS;
use super::diagnostic::sort;
use super::ignore::{Rules, Verdict, is_rules};
use super::load::{Cached, Loader, is_definition_file};
use super::tree::{EntryKind, RepositoryTree, TreeChanges, TreeEntry};
use super::{Catalog, Context};
use crate::api::git_sync::Severity;

/// What a load without errors leaves to the next one.
pub(super) struct Base {
    /// Of which tree.
    tree: u64,
    context: Context,
    rules: Rules,
    catalog: Catalog,
    includes: Included,
    /// What its files cost of [`super::Limits::total_bytes`].
    bytes: u64,
}

/// Which files include which: path of the included one, and paths of those that include it.
#[derive(Default)]
struct Included(HashMap<String, BTreeSet<String>>);

impl Included {
    fn add(&mut self, path: &str, cached: &Cached) {
        for include in &cached.includes {
            self.0.entry(include.path.clone()).or_default().insert(path.to_owned());
        }
    }

    fn remove(&mut self, path: &str, cached: &Cached) {
        for include in &cached.includes {
            if let Some(by) = self.0.get_mut(&include.path) {
                by.remove(path);
                if by.is_empty() {
                    self.0.remove(&include.path);
                }
            }
        }
    }

    /// Whether a file outside of the synced path is included.
    fn reaches_out(&self, synced: &str) -> bool {
        let inside = |path: &String| {
            path.strip_prefix(synced).is_some_and(|rest| synced.is_empty() || rest.starts_with('/'))
        };
        !self.0.keys().all(inside)
    }
}

/// Whether nothing is wrong with a commit.
fn is_clean(catalog: &Catalog) -> bool {
    let Catalog { definitions: _, problems, broken, broken_paths, paths, again, .. } = catalog;
    !again
        && broken.is_empty()
        && broken_paths.is_empty()
        && paths.is_empty()
        && problems.iter().all(|problem| problem.severity == Severity::Warning)
}

impl Loader {
    /// Keeps what a load found, if the next one can build on it.
    pub(super) fn remember(
        &mut self,
        tree: &dyn RepositoryTree,
        context: &Context,
        mut rules: Rules,
        catalog: &Catalog,
        bytes: u64,
    ) {
        self.base = None;
        let Some(number) = tree.number() else { return };
        if !is_clean(catalog) || !tree.problems().is_empty() || !self.has_room(catalog, bytes) {
            return;
        }
        let mut includes = Included::default();
        for (path, cached) in &self.cache {
            includes.add(path, cached);
        }
        rules.settle();
        let (context, catalog) = (context.clone(), catalog.clone());
        self.base = Some(Base { tree: number, context, rules, catalog, includes, bytes });
    }

    /// The catalog of a tree of which it is known how it differs from the last one. `None`: it has to be loaded whole.
    pub(super) fn reload(
        &mut self,
        tree: &dyn RepositoryTree,
        context: &Context,
    ) -> Option<Catalog> {
        // Whatever ends this early also ends what could be built on.
        let mut base = self.base.take()?;
        let number = tree.number()?;
        let changes = tree.changes().filter(|changes| changes.since == base.tree)?;
        if base.context != *context || !tree.problems().is_empty() {
            return None;
        }
        if changes.elsewhere && base.includes.reaches_out(base.rules.base()) {
            return None;
        }
        let files = self.affected(&mut base, changes)?;
        let catalog = &mut base.catalog;

        // First all that was, then all that is: a definition may have moved from one file to another.
        let mut warned = false;
        for path in files.keys() {
            let Some(cached) = self.cache.remove(path) else { continue };
            base.includes.remove(path, &cached);
            let result = &cached.result;
            for definition in &result.definitions {
                let known = catalog.definitions.remove(&definition.id)?;
                if !Arc::ptr_eq(&known, definition) {
                    return None;
                }
            }
            catalog.documents = catalog.documents.checked_sub(result.documents)?;
            base.bytes = base.bytes.checked_sub(result.bytes)?;
            let counted = usize::from(result.documents > 0);
            catalog.files = catalog.files.checked_sub(counted)?;
            warned |= !result.problems.is_empty();
        }
        if warned {
            // A problem says its file, and a file has all its problems from itself.
            catalog.problems.retain(|p| p.path.as_ref().is_none_or(|p| !files.contains_key(p)));
        }
        for (path, entry) in files {
            let Some(entry) = entry else { continue };
            let cached = self.read(tree, &entry);
            base.includes.add(&path, &cached);
            let result = cached.result.clone();
            if !result.again {
                self.cache.insert(path, cached);
            }
            let good = result.problems.iter().all(|p| p.severity == Severity::Warning);
            if !good || result.again || result.unknown || !result.broken.is_empty() {
                return None;
            }
            for definition in &result.definitions {
                let (id, definition) = (definition.id.clone(), definition.clone());
                if catalog.definitions.insert(id, definition).is_some() {
                    return None;
                }
            }
            catalog.documents += result.documents;
            base.bytes = base.bytes.checked_add(result.bytes)?;
            catalog.files += usize::from(result.documents > 0);
            catalog.problems.extend(result.problems.iter().cloned());
        }
        if catalog.documents == 0 || !self.has_room(&base.catalog, base.bytes) {
            return None;
        }
        let catalog = &mut base.catalog;
        sort(&mut catalog.problems);
        base.rules.settle();
        base.tree = number;
        let catalog = base.catalog.clone();
        self.base = Some(base);
        Some(catalog)
    }

    /// Whether nothing comes near a budget of the whole: no file and no problem was left out.
    fn has_room(&self, catalog: &Catalog, bytes: u64) -> bool {
        bytes < self.limits.total_bytes
            && catalog.documents < self.limits.total_documents
            && catalog.problems.len() < MOST_PROBLEMS
    }

    /// The definition files that have to be read again, or are gone. Counts what is ignored.
    fn affected(
        &self,
        base: &mut Base,
        changes: &TreeChanges,
    ) -> Option<BTreeMap<String, Option<TreeEntry>>> {
        let mut files = BTreeMap::new();
        for change in &changes.entries {
            let kinds = [change.old, change.new.as_ref().map(|entry| entry.kind)];
            if kinds.into_iter().flatten().any(|kind| kind != EntryKind::File)
                || is_rules(&change.path)
            {
                return None;
            }
            for path in base.includes.0.get(&change.path).into_iter().flatten() {
                let id = self.cache.get(path)?.id.clone();
                let entry = TreeEntry { path: path.clone(), id, kind: EntryKind::File };
                // Unless it is changed itself.
                files.entry(path.clone()).or_insert(Some(entry));
            }
            match base.rules.entry(&change.path) {
                Verdict::Unknown => return None,
                Verdict::Ignored => {
                    let ignored = base.catalog.ignored.checked_sub(change.old.iter().count())?;
                    base.catalog.ignored = ignored + change.new.iter().count();
                }
                Verdict::Kept if is_definition_file(&change.path) => {
                    if change.old.is_some() && !self.cache.contains_key(&change.path) {
                        return None;
                    }
                    files.insert(change.path.clone(), change.new.clone());
                }
                Verdict::Kept => {}
            }
        }
        Some(files)
    }
}

#[cfg(test)]
#[path = "reload_tests.rs"]
mod tests;
