//! Loads a tree into a catalog, file by file. Each file's result is cached by what it depends on.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::diagnostic::{code, sort};
use super::file::{Cache, Cached, FileReader, is_definition_file};
use super::ignore::{Rules, Verdict};
use super::problems::{
    MAX_PROBLEMS, budget_exceeded, capped, error_at, not_a_file, report_duplicate,
};
use super::reload::{Base, Loaded};
use super::tree::{EntryKind, RepositoryTree, TreeEntry};
use super::{Catalog, Context, Definition, Limits};
use crate::api::ObjectId;

/// Loads trees. Keeps each file's result, so that a file that did not change is not read again.
pub struct Loader {
    pub(super) files: FileReader,
    pub(super) cache: Cache,
    /// The last load, if the next one can build on it.
    pub(super) base: Option<Base>,
    /// How many trees were walked whole, ever.
    pub walked: u64,
}

impl Loader {
    /// A loader with these budgets.
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        Self { files: FileReader::new(limits), cache: Cache::new(), base: None, walked: 0 }
    }

    /// How many files were parsed, ever.
    #[must_use]
    pub const fn parsed(&self) -> u64 {
        self.files.parsed
    }

    /// Loads everything below the tree's path that is not ignored. When it is known how the tree differs from the one that
    /// was loaded last, only the changed files are read. The catalog is the same either way.
    pub fn load(&mut self, tree: &dyn RepositoryTree, context: &Context) -> Catalog {
        // A base that cannot be built on is dropped.
        if let Some(base) = self.base.take()
            && let Some(base) = base.rebuilt(tree, context, &mut self.files, &mut self.cache)
        {
            let catalog = base.catalog().clone();
            self.base = Some(base);
            return catalog;
        }
        self.load_whole(tree, context)
    }

    fn load_whole(&mut self, tree: &dyn RepositoryTree, context: &Context) -> Catalog {
        self.walked += 1;
        self.set_context(context);
        let mut walk = Walk::new(tree, context);
        for entry in tree.entries() {
            walk.entry(tree, entry, &mut self.files, &mut self.cache);
        }
        walk.finish(self.files.limits, &context.path);
        let Walk { catalog, rules, cache, bytes, .. } = walk;
        self.cache = cache;
        let loaded = Loaded { rules, catalog: &catalog, bytes };
        self.base = Base::new(tree, context, loaded, &self.cache, self.files.limits);
        catalog
    }

    /// Takes over namespace and variables. Forgets the results that may be others with these.
    fn set_context(&mut self, context: &Context) {
        let files = &mut self.files;
        // Whether there are variables at all concerns every file. The value of one concerns the files that use it.
        let same_syntax = files.variables.is_some() == context.variables.is_some();
        if files.namespace != context.namespace || !same_syntax {
            self.cache.clear();
            files.namespace.clone_from(&context.namespace);
        }
        // The hint of a variable that is not set depends on the names of all others.
        if files.variables != context.variables {
            self.cache.retain(|_, cached| {
                cached.result.problems.is_empty() || !cached.misses_a_variable()
            });
        }
        files.variables.clone_from(&context.variables);
    }
}

/// The load of a whole tree, while it goes on.
struct Walk<'t> {
    catalog: Catalog,
    rules: Rules,
    /// The results of this load, for the next one.
    cache: Cache,
    /// The definitions of each object. More than one is an error.
    found: BTreeMap<ObjectId, Vec<Arc<Definition>>>,
    /// All definition files.
    paths: Vec<&'t str>,
    /// Definition files that are beyond the budget of the repository.
    left_out: Vec<&'t str>,
    /// What the files that were read count of [`Limits::total_bytes`].
    bytes: u64,
}

impl<'t> Walk<'t> {
    /// Reads the ignore files of a tree, and takes over the problems of the tree.
    fn new(tree: &dyn RepositoryTree, context: &Context) -> Self {
        let mut catalog = Catalog::default();
        let mut rules = Rules::read(tree, &context.path, &context.ignore);
        for fault in std::mem::take(&mut rules.faults) {
            catalog.again |= fault.code == code::UNREADABLE;
            let problem =
                error_at(&fault.path, fault.place, fault.code, &fault.message, fault.hint);
            catalog.problems.push(problem);
        }
        for problem in tree.problems() {
            if rules.folder(&problem.path) == Verdict::Ignored {
                continue;
            }
            catalog.broken_paths.insert(problem.path.clone());
            let (message, hint) = (&problem.message, problem.hint.clone());
            let problem = error_at(&problem.path, None, code::BUDGET, message, hint);
            catalog.problems.push(problem);
        }
        Self {
            catalog,
            rules,
            cache: Cache::new(),
            found: BTreeMap::new(),
            paths: Vec::new(),
            left_out: Vec::new(),
            bytes: 0,
        }
    }

    /// Adds an entry of the tree. Takes its result from the cache of the load before, if it is still current.
    fn entry(
        &mut self,
        tree: &dyn RepositoryTree,
        entry: &'t TreeEntry,
        files: &mut FileReader,
        before: &mut Cache,
    ) {
        let verdict = self.rules.entry(&entry.path);
        if verdict == Verdict::Ignored {
            self.catalog.ignored += 1;
            return;
        }
        if entry.kind != EntryKind::File {
            self.catalog.broken_paths.insert(entry.path.clone());
            // An ignore file that is no regular file has its problem already: its own verdict is unknown.
            if verdict != Verdict::Unknown {
                self.catalog.problems.push(not_a_file(entry));
            }
            return;
        }
        if !is_definition_file(&entry.path) {
            return;
        }
        self.paths.push(&entry.path);
        let Limits { total_bytes, total_documents, .. } = files.limits;
        if self.bytes >= total_bytes || self.catalog.documents >= total_documents {
            self.catalog.broken_paths.insert(entry.path.clone());
            self.left_out.push(&entry.path);
            return;
        }
        let cached = match before.remove(&entry.path) {
            Some(cached) if files.is_current(&cached, tree, entry) => cached,
            _ => files.read(tree, entry),
        };
        self.add(&entry.path, cached, verdict);
    }

    /// Adds the result of a file.
    fn add(&mut self, path: &str, cached: Cached, verdict: Verdict) {
        let result = cached.result.clone();
        let catalog = &mut self.catalog;
        let room = MAX_PROBLEMS.saturating_sub(catalog.problems.len());
        // Thousands of problems of thousands of files are not kept twice.
        if !result.again && result.problems.len() <= room {
            self.cache.insert(path.to_owned(), cached);
        }
        self.bytes += result.bytes;
        catalog.again |= result.again;
        catalog.documents += result.documents;
        catalog.files += usize::from(result.documents > 0);
        if result.unknown {
            catalog.broken_paths.insert(path.to_owned());
        }
        for id in &result.broken {
            catalog.broken.insert(id.clone(), path.to_owned());
        }
        if verdict == Verdict::Unknown {
            // It is not known whether the file is ignored. Its objects stay as they are, and its problems are not reported.
            for definition in &result.definitions {
                catalog.broken.insert(definition.id.clone(), path.to_owned());
            }
            return;
        }
        catalog.problems.extend(capped(&result.problems, path, room));
        for definition in &result.definitions {
            self.found.entry(definition.id.clone()).or_default().push(definition.clone());
        }
    }

    /// Completes the catalog after the last entry.
    fn finish(&mut self, limits: Limits, path: &str) {
        let catalog = &mut self.catalog;
        if let Some(first) = self.left_out.first() {
            catalog.problems.push(budget_exceeded(first, self.left_out.len(), limits));
        }
        if !catalog.broken_paths.is_empty() {
            catalog.paths = self.paths.iter().map(|path| (*path).to_owned()).collect();
        }
        for (id, definitions) in std::mem::take(&mut self.found) {
            match definitions.as_slice() {
                // Beside a broken definition of the same object it is not known which one is meant.
                [one] if !catalog.broken.contains_key(&id) => {
                    catalog.definitions.insert(id, one.clone());
                }
                several => report_duplicate(catalog, &id, several),
            }
        }
        if catalog.documents == 0 && catalog.problems.is_empty() {
            let hint = "an empty folder deletes nothing: to remove everything, approve the held prune or delete the objects";
            let path = if path.is_empty() { "." } else { path };
            let message = match catalog.ignored {
                0 => format!("no definition is below the path {path}"),
                n => format!("no definition is below the path {path}, and {n} files are ignored"),
            };
            let mut problem = error_at(".", None, code::EMPTY, &message, Some(hint.into()));
            problem.path = None;
            catalog.problems.push(problem);
        }
        sort(&mut catalog.problems);
    }
}
