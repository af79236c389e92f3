//! From a tree to a catalog, file by file, each file's result cached by what it was made from.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use serde_json::Value;

use super::complain::{
    MOST_IN_FILE, MOST_PROBLEMS, duplicate, error_at, odd_entry, told, too_much,
};
use super::diagnostic::{code, sort};
use super::document::{Budget, Document, Fault, Faulty, at, parse};
use super::front_matter::{self, is_agent_file};
use super::identify::{Identity, identify};
use super::ignore::{Rules, Verdict};
use super::include::{Includes, included, still};
use super::nul;
use super::references::references;
use super::reload::Base;
use super::schema::{Finding, Schemas};
use super::tree::{EntryKind, RepositoryTree, TreeEntry, TreeError};
use super::variables::{self, Used, Variables};
use super::{Catalog, Context, Definition, Limits, Offers, family, file_fields};
use crate::api::git_sync::{Problem, Severity};
use crate::api::{API_VERSION, Kind, ObjectId};

/// What one file gave.
pub(super) struct FileResult {
    /// Good definitions: all of the file, or none.
    pub definitions: Vec<Arc<Definition>>,
    pub problems: Vec<Problem>,
    /// Identities of a broken file, as far as they are known.
    pub broken: Vec<ObjectId>,
    /// Whether something in the file could not be identified.
    pub unknown: bool,
    /// Documents of ours.
    pub documents: usize,
    /// Whether something could not be read that may be readable the next time.
    pub again: bool,
    /// What it costs of [`Limits::total_bytes`]: its text, or what that stands for with the files that it names.
    pub bytes: u64,
}

/// A file's result, and what it was made from.
pub(super) struct Cached {
    pub id: String,
    pub includes: Includes,
    variables: Used,
    pub result: Arc<FileResult>,
}

/// Reads trees. Keeps each file's result, so that an unchanged file is not looked at again.
pub struct Loader {
    schemas: &'static Schemas,
    pub(super) limits: Limits,
    pub(super) cache: HashMap<String, Cached>,
    /// What the last load left, while it can be built on.
    pub(super) base: Option<Base>,
    namespace: Option<String>,
    variables: Option<Variables>,
    /// How many files were parsed, ever.
    pub parsed: u64,
    /// How many trees were walked whole, ever.
    pub walked: u64,
}

impl Loader {
    /// A loader with these budgets.
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        Self {
            schemas: Schemas::shared(),
            limits,
            cache: HashMap::new(),
            base: None,
            namespace: None,
            variables: None,
            parsed: 0,
            walked: 0,
        }
    }

    /// Reads everything below the tree's path that is not ignored: of a commit after one that was read before, what
    /// differs. What comes out depends on tree and context alone.
    pub fn load(&mut self, tree: &dyn RepositoryTree, context: &Context) -> Catalog {
        match self.reload(tree, context) {
            Some(catalog) => catalog,
            None => self.load_whole(tree, context),
        }
    }

    /// Reads all of it.
    fn load_whole(&mut self, tree: &dyn RepositoryTree, context: &Context) -> Catalog {
        self.walked += 1;
        // Whether a `$` means anything concerns every file; which value a variable has, only those that use it.
        let meant = self.variables.is_some() == context.variables.is_some();
        if self.namespace != context.namespace || !meant {
            self.cache.clear();
            self.namespace.clone_from(&context.namespace);
        }
        // What may have been meant by a variable that is not there depends on all that are.
        let moved = self.variables != context.variables;
        if moved {
            let refused = |cached: &Cached| !cached.result.problems.is_empty();
            let unset = |cached: &Cached| cached.variables.values().any(Option::is_none);
            self.cache.retain(|_, cached| !(refused(cached) && unset(cached)));
        }
        self.variables.clone_from(&context.variables);
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
            catalog.problems.push(error_at(
                &problem.path,
                None,
                code::BUDGET,
                &problem.message,
                problem.hint.clone(),
            ));
        }
        let mut cache = HashMap::with_capacity(self.cache.len());
        let mut found: BTreeMap<ObjectId, Vec<Arc<Definition>>> = BTreeMap::new();
        let (mut files, mut left_out, mut bytes) = (Vec::new(), Vec::new(), 0);
        for entry in tree.entries() {
            let verdict = rules.entry(&entry.path);
            if verdict == Verdict::Ignored {
                catalog.ignored += 1;
                continue;
            }
            let held = verdict == Verdict::Unknown;
            if entry.kind != EntryKind::File {
                catalog.broken_paths.insert(entry.path.clone());
                // The file of patterns itself has its problem already.
                if !held {
                    catalog.problems.push(odd_entry(entry));
                }
                continue;
            }
            if !is_definition_file(&entry.path) {
                continue;
            }
            files.push(&entry.path);
            if bytes >= self.limits.total_bytes || catalog.documents >= self.limits.total_documents
            {
                catalog.broken_paths.insert(entry.path.clone());
                left_out.push(&entry.path);
                continue;
            }
            let cached = match self.cache.remove(&entry.path) {
                Some(cached)
                    if cached.id == entry.id
                        && still(&cached.includes, tree)
                        && variables::still(&cached.variables, self.variables.as_ref()) =>
                {
                    cached
                }
                _ => self.read(tree, entry),
            };
            let result = cached.result.clone();
            bytes += result.bytes;
            let room = MOST_PROBLEMS.saturating_sub(catalog.problems.len());
            // Thousands of problems of thousands of files are not kept twice.
            if !result.again && result.problems.len() <= room {
                cache.insert(entry.path.clone(), cached);
            }
            catalog.again |= result.again;
            catalog.documents += result.documents;
            catalog.files += usize::from(result.documents > 0);
            if result.unknown {
                catalog.broken_paths.insert(entry.path.clone());
            }
            for id in &result.broken {
                catalog.broken.insert(id.clone(), entry.path.clone());
            }
            if held {
                // Whether it is wanted is not known: what it defines stays as it is, and what is wrong with it may
                // not concern anybody.
                for definition in &result.definitions {
                    catalog.broken.insert(definition.id.clone(), entry.path.clone());
                }
                continue;
            }
            catalog.problems.extend(told(&result.problems, &entry.path, room));
            for definition in &result.definitions {
                found.entry(definition.id.clone()).or_default().push(definition.clone());
            }
        }
        self.cache = cache;
        if let Some(first) = left_out.first() {
            catalog.problems.push(too_much(first, left_out.len(), self.limits));
        }
        if !catalog.broken_paths.is_empty() {
            catalog.paths = files.into_iter().cloned().collect();
        }
        for (id, definitions) in found {
            match definitions.as_slice() {
                // One good copy beside a broken one: which of them is meant is not known.
                [one] if !catalog.broken.contains_key(&id) => {
                    catalog.definitions.insert(id, one.clone());
                }
                several => duplicate(&mut catalog, &id, several),
            }
        }
        if catalog.documents == 0 && catalog.problems.is_empty() {
            let hint = "an empty folder deletes nothing: to remove everything, approve the held prune or delete the objects";
            let message = match catalog.ignored {
                0 => "no definition is below the path of this sync".to_owned(),
                n => format!(
                    "no definition is below the path of this sync, and {n} files are ignored"
                ),
            };
            let mut problem = error_at(".", None, code::EMPTY, &message, Some(hint.into()));
            problem.path = None;
            catalog.problems.push(problem);
        }
        sort(&mut catalog.problems);
        self.remember(tree, context, rules, &catalog, bytes);
        catalog
    }

    /// Reads a file.
    pub(super) fn read(&mut self, tree: &dyn RepositoryTree, entry: &TreeEntry) -> Cached {
        self.parsed += 1;
        let (mut includes, mut used) = (Includes::new(), Used::new());
        let result = Arc::new(self.file(tree, entry, &mut includes, &mut used));
        Cached { id: entry.id.clone(), includes, variables: used, result }
    }

    fn file(
        &self,
        tree: &dyn RepositoryTree,
        entry: &TreeEntry,
        includes: &mut Includes,
        used: &mut Used,
    ) -> FileResult {
        let mut result = FileResult {
            definitions: Vec::new(),
            problems: Vec::new(),
            broken: Vec::new(),
            unknown: false,
            documents: 0,
            again: false,
            bytes: 0,
        };
        let text = match self.text(tree, entry) {
            Ok(text) => text,
            Err(problem) => {
                result.unknown = true;
                result.again = problem.code == code::UNREADABLE;
                result.problems.push(*problem);
                return result;
            }
        };
        result.bytes = text.len() as u64;
        let Limits { documents, depth, nodes, .. } = self.limits;
        let budget = Budget { documents, depth, nodes };
        let parsed = if is_agent_file(&entry.path) {
            front_matter::read(&text, &entry.path, budget, self.limits.include_bytes)
        } else {
            parse(&text, budget)
        };
        let mut faults = parsed.faults;
        let mut faulty = 0;
        for Faulty { document, faults: own, in_head } in parsed.faulty {
            let identity = identify(&document.value, None);
            if identity == Identity::Foreign && !in_head {
                // Another project's object, and how it is written is not our business.
                continue;
            }
            // A document with a fault of its own may still say who it is. But it may say so twice, or have lost a
            // part: whatever came from this file is held too.
            faulty += 1;
            result.unknown = true;
            if let Identity::Ours { id: Some(id), .. } = identity {
                result.broken.push(id);
            }
            faults.extend(own);
        }
        for fault in faults {
            let Fault { place, code, message, hint } = fault;
            result.problems.push(error_at(&entry.path, Some(place), code, &message, hint));
        }
        let hides = |p: &Problem| {
            matches!(p.code.as_str(), code::SYNTAX | code::BUDGET | code::FRONT_MATTER)
        };
        result.unknown |= result.problems.iter().any(hides);
        let mut good = Vec::new();
        for mut document in parsed.documents {
            let unset = self.substitute(&mut document, used);
            match self.document(tree, &entry.path, &document, includes, unset) {
                None => {}
                Some((id, outcome)) => {
                    result.documents += 1;
                    match outcome {
                        Ok((definition, warnings)) => {
                            result.problems.extend(warnings);
                            good.push(Arc::new(definition));
                        }
                        Err(problems) => {
                            result.problems.extend(problems);
                            match id {
                                Some(id) => result.broken.push(id),
                                None => result.unknown = true,
                            }
                        }
                    }
                }
            }
        }
        result.documents += faulty;
        result.again = result.problems.iter().any(|p| p.code == code::UNREADABLE);
        let specs: usize = good.iter().map(|definition| definition.spec.length()).sum();
        result.bytes = result.bytes.max(specs as u64);
        if result.problems.iter().any(|p| p.severity == Severity::Error) {
            result.broken.extend(good.into_iter().map(|d| d.id.clone()));
        } else {
            result.definitions = good;
        }
        result.problems = told(&result.problems, &entry.path, MOST_IN_FILE);
        result
    }

    fn text(&self, tree: &dyn RepositoryTree, entry: &TreeEntry) -> Result<String, Box<Problem>> {
        let refuse = |place, code, message: &str, hint: Option<&str>| {
            Box::new(error_at(&entry.path, place, code, message, hint.map(str::to_owned)))
        };
        let data = tree.read(entry, self.limits.file_bytes).map_err(|error| match error {
            TreeError::TooLarge { limit, .. } => {
                let message = format!("the file is larger than {limit} bytes");
                refuse(None, code::BUDGET, &message, Some("split it"))
            }
            TreeError::Unreadable { reason, .. } => {
                let message = format!("the file cannot be read: {reason}");
                refuse(None, code::UNREADABLE, &message, None)
            }
            TreeError::NotAFile { .. } => {
                refuse(None, code::ENTRY, "this is no regular file", None)
            }
        })?;
        if data.starts_with(b"version https://git-lfs.github.com/spec/") {
            let hint = Some("keep definitions out of Git LFS");
            return Err(refuse(None, code::ENTRY, "the file is a Git LFS pointer", hint));
        }
        match std::str::from_utf8(&data) {
            Ok(text) => Ok(text.to_owned()),
            Err(error) => {
                let good = String::from_utf8_lossy(&data[..error.valid_up_to()]);
                let column = good.rsplit('\n').next().map_or(0, |line| line.chars().count());
                let place = at(good.matches('\n').count() + 1, column);
                let hint = Some("save it as UTF-8");
                Err(refuse(Some(place), code::ENCODING, "the file is not UTF-8", hint))
            }
        }
    }

    /// Puts the GitSync's values into a document of ours. Gives those that are not there.
    fn substitute(&self, document: &mut Document, used: &mut Used) -> Vec<Finding> {
        match &self.variables {
            Some(variables) if document.value["apiVersion"] == API_VERSION => {
                variables::substitute(document, variables, used)
            }
            _ => Vec::new(),
        }
    }

    /// `None`: not ours. Otherwise its identity, and the definition with warnings, or what is wrong.
    #[allow(clippy::type_complexity)]
    fn document(
        &self,
        tree: &dyn RepositoryTree,
        path: &str,
        document: &Document,
        includes: &mut Includes,
        unset: Vec<Finding>,
    ) -> Option<(Option<ObjectId>, Result<(Definition, Vec<Problem>), Vec<Problem>>)> {
        let Identity::Ours { id, labels, annotations, findings } =
            identify(&document.value, self.namespace.as_deref())
        else {
            return None;
        };
        let object = id.as_ref().map(ToString::to_string);
        let problem = |finding: Finding| {
            let place = if finding.on_key {
                document.key_place(&finding.pointer)
            } else {
                document.place(&finding.pointer)
            };
            let mut problem =
                error_at(path, Some(place), finding.code, &finding.message, finding.hint);
            problem.object.clone_from(&object);
            problem
        };
        let unset_at: BTreeSet<_> = unset.iter().map(|finding| finding.pointer.clone()).collect();
        // What a value without its variable is not is no problem of its own.
        let mut findings = findings;
        findings.retain(|finding| !unset_at.contains(&finding.pointer));
        let mut problems: Vec<_> = unset.into_iter().chain(findings).map(problem).collect();
        // The spec is checked even when the name is not known: all errors at once.
        let kind = document.value["kind"].as_str().and_then(Kind::parse);
        let mut spec = document.value["spec"].clone();
        let mut found = Vec::new();
        nul::find(&spec, "/spec", &mut found);
        problems.extend(found.into_iter().map(problem));
        if let Some(kind) = kind.filter(|_| spec.is_object()) {
            self.schemas.expand(kind, &mut spec);
            let found = self.include(tree, path, kind, &mut spec, includes);
            problems.extend(found.into_iter().map(problem));
            let name = id.as_ref().map_or("x", |id| id.name.as_str());
            let mut found = self.schemas.check(kind, name, &spec);
            found.retain(|finding| !unset_at.contains(&finding.pointer));
            problems.extend(found.into_iter().map(problem));
        }
        let Some(id) = id.filter(|_| problems.is_empty()) else {
            let known = object.and_then(|text| {
                let (kind, name) = text.split_once('/')?;
                Some(ObjectId::new(Kind::parse(kind)?, name))
            });
            return Some((known, Err(problems)));
        };
        let canonical_spec = match self.schemas.canonical(id.kind, &spec) {
            Ok(canonical) => canonical,
            Err(message) => {
                let problem =
                    error_at(path, Some(document.place("/spec")), code::TYPE, &message, None);
                return Some((Some(id), Err(vec![problem])));
            }
        };
        let place = document.place("");
        let references = references(&id, &canonical_spec, document);
        let warnings = warnings(&id, path, &canonical_spec, document);
        let definition = Definition {
            id: id.clone(),
            path: path.to_owned(),
            line: place.line,
            column: place.column,
            labels,
            annotations,
            spec: family(id.kind).pack(&spec),
            offers: Offers::of(id.kind, &canonical_spec),
            canonical_spec: family(id.kind).pack(&canonical_spec),
            references,
        };
        Some((Some(id), Ok((definition, warnings))))
    }

    /// Puts the content of files into the fields that name them.
    fn include(
        &self,
        tree: &dyn RepositoryTree,
        path: &str,
        kind: Kind,
        spec: &mut Value,
        includes: &mut Includes,
    ) -> Vec<Finding> {
        let mut findings = Vec::new();
        for (file_field, plain_field) in file_fields(kind) {
            let Some(named) = spec.pointer(file_field).cloned() else { continue };
            let pointer = format!("/spec{file_field}");
            let (parent, field) = file_field.rsplit_once('/').unwrap_or(("", file_field));
            let plain = plain_field.rsplit('/').next().unwrap_or_default();
            let mut say = |code: &'static str, message: String, hint: Option<String>| {
                findings.push(Finding {
                    pointer: pointer.clone(),
                    on_key: false,
                    code,
                    message,
                    hint,
                });
            };
            let content = match named.as_str() {
                None => Err((code::INCLUDE, format!("{field} must be the path of a file"), None)),
                Some(_) if spec.pointer(plain_field).is_some() => Err((
                    code::INCLUDE,
                    format!("{plain} and {field} exclude each other"),
                    Some("keep one of the two".to_owned()),
                )),
                Some(named) => included(tree, path, named, self.limits.include_bytes, includes),
            };
            let content = match content {
                Ok(content) => Some(content),
                Err((code, message, hint)) => {
                    say(code, message, hint);
                    None
                }
            };
            // The shorthand leaves the spec in any case: it is not a field of the plain form.
            if let Some(map) = spec.pointer_mut(parent).and_then(Value::as_object_mut) {
                map.remove(field);
                if let Some(content) = content {
                    map.insert(plain.to_owned(), Value::String(content));
                }
            }
        }
        findings
    }
}

/// Whether definitions are looked for in a file.
pub(super) fn is_definition_file(path: &str) -> bool {
    // In any case: a file that is renamed to X.YAML must not take its objects with it in silence.
    let extension = path.rsplit_once('.').map(|(_, extension)| extension.to_ascii_lowercase());
    matches!(extension.as_deref(), Some("yaml" | "yml" | "json")) || is_agent_file(path)
}

fn warnings(id: &ObjectId, path: &str, spec: &Value, document: &Document) -> Vec<Problem> {
    let package = &spec["package"];
    if id.kind != Kind::MCPServer || !package.is_object() || package["version"].is_string() {
        return Vec::new();
    }
    let hint =
        "add version: the newest is installed at each start, so a restart may change the tools";
    let message = "the package has no version";
    let mut problem = error_at(
        path,
        Some(document.key_place("/spec/package")),
        code::UNPINNED,
        message,
        Some(hint.into()),
    );
    problem.severity = Severity::Warning;
    problem.object = Some(id.to_string());
    vec![problem]
}
