//! Builds the catalog of a commit on the one of the commit before, by reading only the files that differ.
//!
//! This is done only when neither commit has an error. Then each object has one definition, no file holds back the objects
//! of another one, and every problem is a warning about its own file. So the result of a file depends only on the file and
//! on what it includes. In all other cases, and whenever a difference is not certain, the commit is loaded whole.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use super::diagnostic::sort;
use super::file::{Cache, Cached, FileReader, is_definition_file};
use super::ignore::{Rules, Verdict, is_rules};
use super::problems::MAX_PROBLEMS;
use super::tree::{EntryKind, RepositoryTree, TreeChanges, TreeEntry};
use super::{Catalog, Context, Limits};
use crate::api::git_sync::Severity;

/// What a load of a whole tree gave.
pub(super) struct Loaded<'a> {
    pub rules: Rules,
    pub catalog: &'a Catalog,
    /// What its files count of [`Limits::total_bytes`].
    pub bytes: u64,
}

/// A load without errors, which the next load can build on.
pub(super) struct Base {
    /// Number of the tree.
    tree: u64,
    context: Context,
    rules: Rules,
    catalog: Catalog,
    includers: Includers,
    /// What its files count of [`Limits::total_bytes`].
    bytes: u64,
}

/// Definition files that have to be read again, by path. `None`: the file is gone.
type ChangedFiles = BTreeMap<String, Option<TreeEntry>>;

/// The paths of included files, each with the paths of the definition files that include it.
#[derive(Default)]
struct Includers(HashMap<String, BTreeSet<String>>);

impl Includers {
    fn add(&mut self, path: &str, cached: &Cached) {
        for included in cached.includes.paths() {
            self.0.entry(included.to_owned()).or_default().insert(path.to_owned());
        }
    }

    fn remove(&mut self, path: &str, cached: &Cached) {
        for included in cached.includes.paths() {
            if let Some(by) = self.0.get_mut(included) {
                by.remove(path);
                if by.is_empty() {
                    self.0.remove(included);
                }
            }
        }
    }

    /// Whether a file outside of the synced path is included.
    fn reach_out(&self, synced: &str) -> bool {
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

/// Whether no budget of the whole repository is reached: then no file and no problem was left out.
fn has_room(catalog: &Catalog, bytes: u64, limits: Limits) -> bool {
    bytes < limits.total_bytes
        && catalog.documents < limits.total_documents
        && catalog.problems.len() < MAX_PROBLEMS
}

impl Base {
    /// Keeps a load. `None`: the next load cannot build on it.
    pub fn new(
        tree: &dyn RepositoryTree,
        context: &Context,
        loaded: Loaded<'_>,
        cache: &Cache,
        limits: Limits,
    ) -> Option<Self> {
        let number = tree.number()?;
        let Loaded { mut rules, catalog, bytes } = loaded;
        let complete = tree.problems().is_empty() && has_room(catalog, bytes, limits);
        if !complete || !is_clean(catalog) {
            return None;
        }
        let mut includers = Includers::default();
        for (path, cached) in cache {
            includers.add(path, cached);
        }
        rules.forget_verdicts();
        let (context, catalog) = (context.clone(), catalog.clone());
        Some(Self { tree: number, context, rules, catalog, includers, bytes })
    }

    pub fn catalog(&self) -> &Catalog {
        &self.catalog
    }

    /// The base with the files of another tree that differ. `None`: the tree has to be loaded whole.
    pub fn rebuilt(
        mut self,
        tree: &dyn RepositoryTree,
        context: &Context,
        reader: &mut FileReader,
        cache: &mut Cache,
    ) -> Option<Self> {
        let number = tree.number()?;
        let changes = tree.changes().filter(|changes| changes.since == self.tree)?;
        if self.context != *context || !tree.problems().is_empty() {
            return None;
        }
        if changes.elsewhere && self.includers.reach_out(self.rules.base()) {
            return None;
        }
        let files = self.changed_files(changes, cache)?;
        // First all old results are removed, then all new ones added: a definition may have moved to another file.
        self.remove(&files, cache)?;
        for (path, entry) in files {
            if let Some(entry) = entry {
                self.add(path, reader.read(tree, &entry), cache)?;
            }
        }
        if self.catalog.documents == 0 || !has_room(&self.catalog, self.bytes, reader.limits) {
            return None;
        }
        sort(&mut self.catalog.problems);
        self.rules.forget_verdicts();
        self.tree = number;
        Some(self)
    }

    /// Removes the results of these files from the catalog and from the cache.
    fn remove(&mut self, files: &ChangedFiles, cache: &mut Cache) -> Option<()> {
        let catalog = &mut self.catalog;
        let mut warned = false;
        for path in files.keys() {
            let Some(cached) = cache.remove(path) else { continue };
            self.includers.remove(path, &cached);
            let result = &cached.result;
            for definition in &result.definitions {
                let known = catalog.definitions.remove(&definition.id)?;
                if !Arc::ptr_eq(&known, definition) {
                    return None;
                }
            }
            catalog.documents = catalog.documents.checked_sub(result.documents)?;
            self.bytes = self.bytes.checked_sub(result.bytes)?;
            let counted = usize::from(result.documents > 0);
            catalog.files = catalog.files.checked_sub(counted)?;
            warned |= !result.problems.is_empty();
        }
        if warned {
            // All problems with the path of a file come from the result of that file.
            catalog.problems.retain(|p| p.path.as_ref().is_none_or(|p| !files.contains_key(p)));
        }
        Some(())
    }

    /// Adds the new result of a file. `None`: something is wrong with the file.
    fn add(&mut self, path: String, cached: Cached, cache: &mut Cache) -> Option<()> {
        self.includers.add(&path, &cached);
        let result = cached.result.clone();
        if !result.again {
            cache.insert(path, cached);
        }
        let good = result.problems.iter().all(|p| p.severity == Severity::Warning);
        if !good || result.again || result.unknown || !result.broken.is_empty() {
            return None;
        }
        let catalog = &mut self.catalog;
        for definition in &result.definitions {
            let (id, definition) = (definition.id.clone(), definition.clone());
            if catalog.definitions.insert(id, definition).is_some() {
                return None;
            }
        }
        catalog.documents += result.documents;
        self.bytes = self.bytes.checked_add(result.bytes)?;
        catalog.files += usize::from(result.documents > 0);
        catalog.problems.extend(result.problems.iter().cloned());
        Some(())
    }

    /// The definition files that have to be read again, or are gone. Counts the ignored files anew.
    fn changed_files(&mut self, changes: &TreeChanges, cache: &Cache) -> Option<ChangedFiles> {
        let mut files = ChangedFiles::new();
        for change in &changes.entries {
            let kinds = [change.old, change.new.as_ref().map(|entry| entry.kind)];
            if kinds.into_iter().flatten().any(|kind| kind != EntryKind::File)
                || is_rules(&change.path)
            {
                return None;
            }
            for path in self.includers.0.get(&change.path).into_iter().flatten() {
                let id = cache.get(path)?.id.clone();
                let entry = TreeEntry { path: path.clone(), id, kind: EntryKind::File };
                // A change of the file itself counts more than one of a file that it includes.
                files.entry(path.clone()).or_insert(Some(entry));
            }
            match self.rules.entry(&change.path) {
                Verdict::Unknown => return None,
                Verdict::Ignored => {
                    let ignored = self.catalog.ignored.checked_sub(change.old.iter().count())?;
                    self.catalog.ignored = ignored + change.new.iter().count();
                }
                Verdict::Kept if is_definition_file(&change.path) => {
                    if change.old.is_some() && !cache.contains_key(&change.path) {
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
#[path = "tests/reload.rs"]
mod tests;
