//! The loader: files to a catalog, with a cache so that work follows what changed.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use crate::api::git_sync::{Problem, Severity};
use crate::api::{Kind, ObjectId};

use super::diagnostic::{self, Code, Sink};
use super::envelope::{self, Claim};
use super::node::{Node, Position};
use super::normalise::{self, Includes};
use super::schema::Schemas;
use super::tree::{EntryKind, RepositoryTree, TreeEntry, TreeError};
use super::yaml::{self, Document};
use super::{Catalog, Definition, Limits, check, references, rules};

/// Reads trees. Keep one for each `GitSync`: it remembers the files of the last tree, so that the next one
/// costs only what differs. A file is read again when its path, its content, the content of a file that it
/// includes, or the namespace changed.
#[derive(Debug)]
pub struct Loader {
    limits: Limits,
    cache: HashMap<String, Cached>,
    parsed: u64,
}

/// A file of the last tree.
#[derive(Debug)]
struct Cached {
    id: String,
    namespace: Option<String>,
    includes: Vec<(String, Option<TreeEntry>)>,
    outcome: Arc<FileOutcome>,
}

impl Cached {
    fn fits(&self, entry: &TreeEntry, namespace: Option<&str>, tree: &dyn RepositoryTree) -> bool {
        self.id == entry.id
            && self.namespace.as_deref() == namespace
            && self.includes.iter().all(|(path, seen)| tree.lookup(path).as_ref() == Ok(seen))
    }
}

/// What one file says.
#[derive(Debug, Default)]
struct FileOutcome {
    /// Empty when the file has an error.
    definitions: Vec<Arc<Definition>>,
    /// Every identity that could be read, good or bad.
    identities: Vec<(ObjectId, Position)>,
    problems: Vec<Problem>,
    /// Something in it could not be identified.
    unidentified: bool,
    broken: bool,
    documents: usize,
}

impl Loader {
    /// A loader that remembers nothing yet.
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        Self { limits, cache: HashMap::new(), parsed: 0 }
    }

    /// How many files were read and parsed since this loader was made.
    #[must_use]
    pub fn parsed_files(&self) -> u64 {
        self.parsed
    }

    /// Reads a tree. `namespace` is the one that the `GitSync` writes to; `None` (offline) accepts any.
    ///
    /// Never fails: whatever is wrong becomes a problem of the catalog.
    pub fn load(&mut self, tree: &dyn RepositoryTree, namespace: Option<&str>) -> Catalog {
        let mut catalog = Catalog::default();
        walk_problems(tree, &mut catalog);
        let mut last = std::mem::take(&mut self.cache);
        let mut outcomes: Vec<(&str, Arc<FileOutcome>)> = Vec::new();
        for entry in tree.entries() {
            if entry.kind != EntryKind::File {
                refuse_entry(entry, &mut catalog);
                continue;
            }
            if !is_manifest(&entry.path) {
                continue;
            }
            catalog.files += 1;
            let known =
                last.remove(&entry.path).filter(|cached| cached.fits(entry, namespace, tree));
            let cached = if let Some(cached) = known {
                cached
            } else {
                self.parsed += 1;
                let (outcome, includes) = read_file(entry, tree, namespace, &self.limits);
                let outcome = Arc::new(outcome);
                let Some(includes) = includes else {
                    outcomes.push((&entry.path, outcome));
                    continue;
                };
                let namespace = namespace.map(str::to_owned);
                Cached { id: entry.id.clone(), namespace, includes, outcome }
            };
            outcomes.push((&entry.path, Arc::clone(&cached.outcome)));
            self.cache.insert(entry.path.clone(), cached);
        }
        collect(&outcomes, &mut catalog);
        diagnostic::sort(&mut catalog.problems);
        catalog
    }
}

/// Whether a file is read at all. Case does not count: a definition must not be missed for `.YAML`.
fn is_manifest(path: &str) -> bool {
    let name = path.rsplit_once('/').map_or(path, |(_, name)| name);
    name.rsplit_once('.').is_some_and(|(_, ending)| {
        ["yaml", "yml", "json"].iter().any(|known| ending.eq_ignore_ascii_case(known))
    })
}

/// What the walk left out, and a tree without anything.
fn walk_problems(tree: &dyn RepositoryTree, catalog: &mut Catalog) {
    for found in tree.problems() {
        let code = Code::LeftOut;
        let hint = found.hint.clone();
        catalog.problems.push(diagnostic::problem(
            Severity::Error,
            &found.path,
            None,
            code,
            &found.message,
            hint,
        ));
        catalog.broken_paths.insert(found.path.clone());
    }
    if tree.entries().is_empty() && tree.problems().is_empty() {
        let hint = Some(
            "check the path; a folder that is meant to be empty needs a file such as README.md"
                .into(),
        );
        let message = "there is nothing below the synced path";
        let mut problem =
            diagnostic::problem(Severity::Error, "", None, Code::EmptyTree, message, hint);
        problem.path = None;
        catalog.problems.push(problem);
    }
}

/// A link or an odd entry could hide definitions, so each is an error.
fn refuse_entry(entry: &TreeEntry, catalog: &mut Catalog) {
    let (code, message, hint) = match entry.kind {
        EntryKind::File => return,
        EntryKind::Symlink => {
            (Code::Symlink, "symbolic links are not followed", "commit the file itself")
        }
        EntryKind::Submodule => {
            (Code::Submodule, "submodules are not read", "commit the files themselves")
        }
        EntryKind::Odd => (Code::OddEntry, "the entry is neither file nor folder", "remove it"),
    };
    let problem = diagnostic::problem(
        Severity::Error,
        &entry.path,
        None,
        code,
        message,
        Some(hint.to_owned()),
    );
    catalog.problems.push(problem);
    catalog.broken_paths.insert(entry.path.clone());
}

/// Joins the files: quarantine by file, and identities given twice.
fn collect(outcomes: &[(&str, Arc<FileOutcome>)], catalog: &mut Catalog) {
    let mut places: BTreeMap<&ObjectId, Vec<(&str, Position)>> = BTreeMap::new();
    for (path, outcome) in outcomes {
        catalog.documents += outcome.documents;
        catalog.problems.extend(outcome.problems.iter().cloned());
        if outcome.unidentified {
            catalog.broken_paths.insert((*path).to_owned());
        }
        for (id, at) in &outcome.identities {
            places.entry(id).or_default().push((path, *at));
            if outcome.broken {
                catalog.broken.entry(id.clone()).or_insert_with(|| (*path).to_owned());
            }
        }
        for definition in &outcome.definitions {
            catalog.definitions.insert(definition.id.clone(), Arc::clone(definition));
        }
    }
    for (id, found) in places.into_iter().filter(|(_, found)| found.len() > 1) {
        for (index, (path, at)) in found.iter().enumerate() {
            let (other, other_at) = found[usize::from(index == 0)];
            let more = if found.len() > 2 {
                format!(" and in {} more places", found.len() - 2)
            } else {
                String::new()
            };
            let message = format!(
                "{id} is also defined at {other}:{}:{}{more}",
                other_at.line, other_at.column
            );
            let hint = Some("keep one of them".to_owned());
            let mut problem = diagnostic::problem(
                Severity::Error,
                path,
                Some(*at),
                Code::DuplicateObject,
                message,
                hint,
            );
            problem.object = Some(id.to_string());
            catalog.problems.push(problem);
        }
        let first = found.first().map_or("", |(path, _)| path);
        catalog.broken.entry(id.clone()).or_insert_with(|| first.to_owned());
    }
    let Catalog { definitions, broken, .. } = catalog;
    definitions.retain(|id, _| !broken.contains_key(id));
}

/// What was looked up for `…File` fields; `None` when the outcome must not be remembered.
type Seen = Option<Vec<(String, Option<TreeEntry>)>>;

/// Reads one file.
fn read_file(
    entry: &TreeEntry,
    tree: &dyn RepositoryTree,
    namespace: Option<&str>,
    limits: &Limits,
) -> (FileOutcome, Seen) {
    let mut sink = Sink::new(&entry.path, limits.max_problems);
    let mut outcome = FileOutcome::default();
    let content = match tree.read(entry, limits.max_file_bytes) {
        Ok(content) => content,
        Err(error) => {
            let passing = !matches!(error, TreeError::TooLarge { .. });
            if passing {
                sink.file_error(Code::Unreadable, "the file could not be read", None);
            } else {
                let message = format!("the file is larger than {} bytes", limits.max_file_bytes);
                sink.file_error(
                    Code::FileTooLarge,
                    message,
                    Some("split it, or move it elsewhere".to_owned()),
                );
            }
            outcome.unidentified = true;
            return (finish(outcome, sink), (!passing).then(Vec::new));
        }
    };
    let Some(text) = decode(&content, &mut sink) else {
        outcome.unidentified = true;
        return (finish(outcome, sink), Some(Vec::new()));
    };
    let budget = yaml::Budget {
        documents: limits.max_documents,
        depth: limits.max_depth,
        nodes: limits.max_nodes,
        bytes: limits.max_scalar_bytes,
        aliases: limits.max_aliases,
    };
    let (documents, fault) = yaml::parse(text, budget);
    let mut includes = Includes::new(tree, &entry.path, limits);
    for document in documents {
        read_document(document, entry, namespace, &mut includes, &mut sink, &mut outcome);
    }
    sink.object = None;
    if let Some(fault) = fault {
        sink.error(fault.at, fault.code, fault.message, fault.hint);
        outcome.unidentified = true;
    }
    let seen = (!includes.transient).then_some(includes.seen);
    (finish(outcome, sink), seen)
}

/// Quarantine by file: an error anywhere takes all its definitions away.
fn finish(mut outcome: FileOutcome, sink: Sink<'_>) -> FileOutcome {
    outcome.broken = sink.errors() > 0;
    if outcome.broken {
        outcome.definitions.clear();
    }
    outcome.problems = sink.finish();
    outcome
}

/// The text of a file, or an error that says why it has none.
fn decode<'a>(content: &'a [u8], sink: &mut Sink<'_>) -> Option<&'a str> {
    if normalise::is_lfs_pointer(content) {
        let hint = Some("commit the file itself: Git LFS is not supported".to_owned());
        sink.file_error(Code::LfsPointer, "the file is a Git LFS pointer", hint);
        return None;
    }
    if matches!(content, [0xff, 0xfe, ..] | [0xfe, 0xff, ..]) {
        let hint = Some("save it as UTF-8".to_owned());
        sink.error(Position::START, Code::NotUtf8, "the file is UTF-16 or UTF-32", hint);
        return None;
    }
    let text = match std::str::from_utf8(content) {
        Ok(text) => text,
        Err(error) => {
            let valid = content
                .get(..error.valid_up_to())
                .and_then(|bytes| std::str::from_utf8(bytes).ok());
            let at = valid.map_or(Position::START, position_after);
            sink.error(
                at,
                Code::NotUtf8,
                "the file is not UTF-8",
                Some("save it as UTF-8".to_owned()),
            );
            return None;
        }
    };
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    // YAML 1.2.2, section 5.1. A NUL would end the stream for the parser and hide what follows.
    let odd = |c: char| match c {
        '\t' | '\n' | '\r' | '\u{85}' => false,
        '\u{fffe}' | '\u{ffff}' => true,
        c => c.is_control(),
    };
    if let Some((offset, found)) = text.char_indices().find(|(_, c)| odd(*c)) {
        let at = position_after(text.get(..offset).unwrap_or_default());
        let message = format!("the file holds the control character U+{:04X}", u32::from(found));
        sink.error(
            at,
            Code::ControlCharacter,
            message,
            Some("remove it, or escape it in double quotes".to_owned()),
        );
        return None;
    }
    Some(text)
}

/// The place of the character after a text.
fn position_after(text: &str) -> Position {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let line = text.bytes().filter(|byte| *byte == b'\n').count() + 1;
    let column = text.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
    let narrow = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
    Position { line: narrow(line), column: narrow(column) }
}

/// Reads one document into the outcome of its file.
fn read_document(
    document: Document,
    entry: &TreeEntry,
    namespace: Option<&str>,
    includes: &mut Includes<'_>,
    sink: &mut Sink<'_>,
    outcome: &mut FileOutcome,
) {
    sink.object = None;
    let Document { root, broken, faults, root_in_doubt } = document;
    let Some(mut root) = root else {
        outcome.unidentified = true;
        outcome.documents += 1;
        broken
            .into_iter()
            .chain(faults)
            .for_each(|fault| sink.error(fault.at, fault.code, fault.message, fault.hint));
        return;
    };
    let whole = broken.is_none();
    // What broke off may lack its apiVersion for that reason alone: one error is enough.
    let claim = if whole {
        envelope::claim(&root, sink)
    } else {
        envelope::claim(&root, &mut Sink::new("", 0))
    };
    if claim == Claim::Foreign && whole && !root_in_doubt {
        return;
    }
    outcome.documents += 1;
    // Of what was refused the name is held too, when its kind is one of ours: a typo in apiVersion is no delete.
    let kind = match claim {
        Claim::Ours(kind) => Some(kind),
        Claim::Refused => root.get("kind").and_then(Node::as_str).and_then(Kind::parse),
        Claim::Foreign => None,
    };
    let id = kind.zip(envelope::name(&root)).map(|(kind, name)| ObjectId::new(kind, name));
    sink.object = id.as_ref().map(ObjectId::to_string);
    let certain = matches!(claim, Claim::Ours(_)) && id.is_some() && whole && !root_in_doubt;
    outcome.unidentified |= !certain;
    if let Some(id) = &id {
        outcome.identities.push((id.clone(), root.at));
    }
    let sound = whole && faults.is_empty();
    broken
        .into_iter()
        .chain(faults)
        .for_each(|fault| sink.error(fault.at, fault.code, fault.message, fault.hint));
    let Claim::Ours(kind) = claim else { return };
    if whole {
        let definition = validate(kind, &mut root, entry, namespace, sound, includes, sink);
        outcome.definitions.extend(definition.map(Arc::new));
    }
}

/// Validates a whole document of ours. `sound` says that no part of the tree was left out.
fn validate(
    kind: Kind,
    root: &mut Node,
    entry: &TreeEntry,
    namespace: Option<&str>,
    sound: bool,
    includes: &mut Includes<'_>,
    sink: &mut Sink<'_>,
) -> Option<Definition> {
    let schema = Schemas::get().kind(kind)?;
    let before = sink.errors();
    let metadata = envelope::metadata(root, namespace, sink);
    let Some(spec) = root.get_mut("spec") else {
        sink.error(root.at, Code::MissingField, "`spec` is missing", None);
        return None;
    };
    normalise::normalise(kind, spec, includes, sink);
    let field = super::node::Field::Key(&super::node::Field::Root, "spec");
    check::check(&schema.spec, spec, &field, sink);
    // Rules see half a document wrongly: they run only when nothing else is wrong with it.
    if sink.errors() > before || !sound {
        return None;
    }
    let name = metadata.name?;
    let spec = root.get("spec")?;
    let canonical_spec = rules::run(kind, &name, schema, root, spec, sink)?;
    references::advise(kind, spec, sink);
    Some(Definition {
        id: ObjectId::new(kind, name),
        path: entry.path.clone(),
        line: root.at.line,
        column: root.at.column,
        labels: metadata.labels,
        annotations: metadata.annotations,
        spec: spec.to_value(),
        canonical_spec,
        references: references::collect(kind, spec),
    })
}
