//! Reads one definition file: its text, its documents, and the files that these include.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use serde_json::Value;

use super::diagnostic::code;
use super::document::{Budget, Document, Fault, Faulty, Parsed, parse};
use super::finding::Finding;
use super::front_matter::{self, is_agent_file};
use super::identify::{Identity, identify};
use super::image;
use super::include::Includes;
use super::nul;
use super::places::place_at;
use super::problems::{MAX_PROBLEMS_OF_FILE, capped, error_at};
use super::references::references;
use super::schema::Schemas;
use super::tag;
use super::tree::{RepositoryTree, TreeEntry, TreeError};
use super::variables::{self, Used, Variables};
use super::{Definition, Limits, Offers, family, file_fields};
use crate::api::git_sync::{Problem, Severity};
use crate::api::{API_VERSION, Kind, ObjectId};
use crate::packed::Pairs;

/// The content of one file.
#[derive(Default)]
pub(super) struct FileResult {
    /// The definitions of the file. None when any of its documents has an error.
    pub definitions: Vec<Arc<Definition>>,
    pub problems: Vec<Problem>,
    /// The objects of a file with errors, as far as they are known.
    pub broken: Vec<ObjectId>,
    /// Whether some object of the file could not be identified.
    pub unknown: bool,
    /// How many documents are of our API group.
    pub documents: usize,
    /// Whether something could not be read that may be readable the next time.
    pub again: bool,
    /// What the file counts of [`Limits::total_bytes`]: its text, or its specs with the files that they include.
    pub bytes: u64,
}

/// A file's result, and what it depends on.
pub(super) struct Cached {
    /// Content id of the file.
    pub id: String,
    pub includes: Includes,
    variables: Used,
    pub result: Arc<FileResult>,
}

impl Cached {
    /// Whether the file uses a variable that is not set.
    pub fn misses_a_variable(&self) -> bool {
        self.variables.values().any(Option::is_none)
    }
}

/// Results of files, by path.
pub(super) type Cache = HashMap<String, Cached>;

/// Whether a file at this path is read for definitions.
pub(super) fn is_definition_file(path: &str) -> bool {
    // In any case: the objects of a file that is renamed to X.YAML must not vanish in silence.
    let extension = path.rsplit_once('.').map(|(_, extension)| extension.to_ascii_lowercase());
    matches!(extension.as_deref(), Some("yaml" | "yml" | "json")) || is_agent_file(path)
}

/// Reads definition files.
pub(super) struct FileReader {
    schemas: &'static Schemas,
    pub limits: Limits,
    /// The namespace of the GitSync, when it is known.
    pub namespace: Option<String>,
    /// The variables of the GitSync, when it has any.
    pub variables: Option<Variables>,
    /// How many files were parsed, ever.
    pub parsed: u64,
}

impl FileReader {
    pub fn new(limits: Limits) -> Self {
        Self { schemas: Schemas::shared(), limits, namespace: None, variables: None, parsed: 0 }
    }

    /// Reads a file.
    pub fn read(&mut self, tree: &dyn RepositoryTree, entry: &TreeEntry) -> Cached {
        self.parsed += 1;
        let (includes, used) = (Includes::default(), Used::new());
        let mut reading = Reading { reader: &*self, tree, path: &entry.path, includes, used };
        let result = Arc::new(reading.file(entry));
        let Reading { includes, used, .. } = reading;
        Cached { id: entry.id.clone(), includes, variables: used, result }
    }

    /// Whether reading the file again would give the cached result.
    pub fn is_current(
        &self,
        cached: &Cached,
        tree: &dyn RepositoryTree,
        entry: &TreeEntry,
    ) -> bool {
        cached.id == entry.id
            && cached.includes.are_unchanged(tree)
            && variables::are_unchanged(&cached.variables, self.variables.as_ref())
    }
}

/// A document of our API group that gives no definition.
struct Refused {
    /// The object, when it is known.
    id: Option<ObjectId>,
    problems: Vec<Problem>,
}

/// A definition and its warnings, or what is wrong.
type Outcome = Result<(Definition, Vec<Problem>), Refused>;

/// A file that is being read.
struct Reading<'a> {
    reader: &'a FileReader,
    tree: &'a dyn RepositoryTree,
    path: &'a str,
    /// The files that it includes.
    includes: Includes,
    /// The variables that it uses.
    used: Used,
}

impl Reading<'_> {
    fn file(&mut self, entry: &TreeEntry) -> FileResult {
        let mut result = FileResult::default();
        let text = match self.text(entry) {
            Ok(text) => text,
            Err(problem) => {
                result.unknown = true;
                result.again = problem.code == code::UNREADABLE;
                result.problems.push(*problem);
                return result;
            }
        };
        result.bytes = text.len() as u64;
        let Parsed { documents, faults, faulty } = self.parsed(&text);
        self.add_faults(faults, faulty, &mut result);
        let definitions = self.add_documents(documents, &mut result);
        result.again = result.problems.iter().any(|p| p.code == code::UNREADABLE);
        let specs: usize = definitions.iter().map(|definition| definition.spec.length()).sum();
        result.bytes = result.bytes.max(specs as u64);
        if result.problems.iter().any(|p| p.severity == Severity::Error) {
            result.broken.extend(definitions.into_iter().map(|d| d.id.clone()));
        } else {
            result.definitions = definitions;
        }
        result.problems = capped(&result.problems, self.path, MAX_PROBLEMS_OF_FILE);
        result
    }

    fn text(&self, entry: &TreeEntry) -> Result<String, Box<Problem>> {
        let refuse = |place, code, message: &str, hint: Option<&str>| {
            Box::new(error_at(self.path, place, code, message, hint.map(str::to_owned)))
        };
        let limit = self.reader.limits.file_bytes;
        let data = self.tree.read(entry, limit).map_err(|error| match error {
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
                let place = place_at(good.matches('\n').count() + 1, column);
                let hint = Some("save it as UTF-8");
                Err(refuse(Some(place), code::ENCODING, "the file is not UTF-8", hint))
            }
        }
    }

    fn parsed(&self, text: &str) -> Parsed {
        let Limits { documents, depth, nodes, include_bytes, .. } = self.reader.limits;
        let budget = Budget { documents, depth, nodes };
        if is_agent_file(self.path) {
            front_matter::read(text, self.path, budget, include_bytes)
        } else {
            parse(text, budget)
        }
    }

    /// Adds the faults of the file and of its documents.
    fn add_faults(&self, mut faults: Vec<Fault>, faulty: Vec<Faulty>, result: &mut FileResult) {
        for Faulty { document, faults: own, in_head } in faulty {
            let identity = identify(&document.value, None);
            if identity == Identity::Foreign && !in_head {
                // An object of another project. How it is written does not matter here.
                continue;
            }
            // A document with a fault may still name its object. But it may name two, or have lost a part: all objects
            // that came from this file are held as well.
            result.documents += 1;
            result.unknown = true;
            if let Identity::Ours { id: Some(id), .. } = identity {
                result.broken.push(id);
            }
            faults.extend(own);
        }
        for Fault { place, code, message, hint } in faults {
            result.problems.push(error_at(self.path, Some(place), code, &message, hint));
        }
        // A file with one of these may hold documents that could not be read.
        let hides = |p: &Problem| {
            matches!(p.code.as_str(), code::SYNTAX | code::BUDGET | code::FRONT_MATTER)
        };
        result.unknown |= result.problems.iter().any(hides);
    }

    /// Adds the problems of the documents. Returns their definitions.
    fn add_documents(
        &mut self,
        documents: Vec<Document>,
        result: &mut FileResult,
    ) -> Vec<Arc<Definition>> {
        let mut definitions = Vec::new();
        for mut document in documents {
            let unset = self.substitute(&mut document);
            let Some(outcome) = self.document(&document, unset) else { continue };
            result.documents += 1;
            match outcome {
                Ok((definition, warnings)) => {
                    result.problems.extend(warnings);
                    definitions.push(Arc::new(definition));
                }
                Err(Refused { id, problems }) => {
                    result.problems.extend(problems);
                    match id {
                        Some(id) => result.broken.push(id),
                        None => result.unknown = true,
                    }
                }
            }
        }
        definitions
    }

    /// Replaces the variables in a document of our API group. Returns the references to variables that are not set, and
    /// those that are written wrongly.
    fn substitute(&mut self, document: &mut Document) -> Vec<Finding> {
        match &self.reader.variables {
            Some(variables) if document.value["apiVersion"] == API_VERSION => {
                let (findings, used) = variables::substitute(document, variables);
                self.used.extend(used);
                findings
            }
            _ => Vec::new(),
        }
    }

    /// The definition of a document. `None`: it is not of our API group.
    fn document(&mut self, document: &Document, unset: Vec<Finding>) -> Option<Outcome> {
        let Identity::Ours { id, labels, annotations, mut findings } =
            identify(&document.value, self.reader.namespace.as_deref())
        else {
            return None;
        };
        let unset_at: BTreeSet<_> = unset.iter().map(|finding| finding.pointer.clone()).collect();
        // A value whose variable is not set has this one problem and no other.
        findings.retain(|finding| !unset_at.contains(&finding.pointer));
        let (spec, found) = self.spec(document, id.as_ref(), &unset_at);
        let findings = unset.into_iter().chain(findings).chain(found);
        let problems: Vec<_> =
            findings.map(|finding| self.problem(finding, document, id.as_ref())).collect();
        Some(match id {
            Some(id) if problems.is_empty() => {
                self.definition(id, labels, annotations, &spec, document)
            }
            id => Err(Refused { id, problems }),
        })
    }

    /// A finding as a problem at its place in the file.
    fn problem(&self, finding: Finding, document: &Document, id: Option<&ObjectId>) -> Problem {
        let Finding { pointer, on_key, code, message, hint } = finding;
        let place = if on_key { document.key_place(&pointer) } else { document.place(&pointer) };
        let mut problem = error_at(self.path, Some(place), code, &message, hint);
        problem.object = id.map(ToString::to_string);
        problem
    }

    /// The spec in plain form, and everything that is wrong with it. It is checked even when the object's name is not
    /// known, so that all errors are reported at once.
    fn spec(
        &mut self,
        document: &Document,
        id: Option<&ObjectId>,
        unset_at: &BTreeSet<String>,
    ) -> (Value, Vec<Finding>) {
        let schemas = self.reader.schemas;
        let kind = document.value["kind"].as_str().and_then(Kind::parse);
        let mut spec = document.value["spec"].clone();
        let mut findings = nul::findings(&spec, "/spec");
        if let Some(kind) = kind.filter(|_| spec.is_object()) {
            schemas.expand(kind, &mut spec);
            findings.extend(self.include(kind, &mut spec));
            let name = id.map_or("x", |id| id.name.as_str());
            let found = schemas.check(kind, name, &spec).into_iter();
            findings.extend(found.filter(|finding| !unset_at.contains(&finding.pointer)));
            if kind == Kind::AgentBuild && !unset_at.contains(image::POINTER) {
                let said = document.value["metadata"]["namespace"].as_str();
                findings.extend(image::finding(&spec, self.reader.namespace.as_deref().or(said)));
            }
            if kind == Kind::AgentBuild && !unset_at.contains(tag::POINTER) {
                findings.extend(tag::finding(&spec));
            }
        }
        (spec, findings)
    }

    /// Puts the content of files into the fields of a spec that name them. Returns what is wrong with these fields.
    fn include(&mut self, kind: Kind, spec: &mut Value) -> Vec<Finding> {
        let mut findings = Vec::new();
        for (file_field, plain_field) in file_fields(kind) {
            let Some(named) = spec.pointer(file_field).cloned() else { continue };
            let (parent, field) = file_field.rsplit_once('/').unwrap_or(("", file_field));
            let plain = plain_field.rsplit('/').next().unwrap_or_default();
            let content = match named.as_str() {
                None => Err((code::INCLUDE, format!("{field} must be the path of a file"), None)),
                Some(_) if spec.pointer(plain_field).is_some() => Err((
                    code::INCLUDE,
                    format!("{plain} and {field} exclude each other"),
                    Some("keep one of the two".to_owned()),
                )),
                Some(named) => {
                    let max_bytes = self.reader.limits.include_bytes;
                    self.includes.read(self.tree, self.path, named, max_bytes)
                }
            };
            let content = content.map_err(|(code, message, hint)| {
                let pointer = format!("/spec{file_field}");
                findings.push(Finding { pointer, on_key: false, code, message, hint });
            });
            // The field is a shorthand that the plain form does not have: it leaves the spec in any case.
            if let Some(map) = spec.pointer_mut(parent).and_then(Value::as_object_mut) {
                map.remove(field);
                if let Ok(content) = content {
                    map.insert(plain.to_owned(), Value::String(content));
                }
            }
        }
        findings
    }

    /// The definition of a document without problems.
    fn definition(
        &self,
        id: ObjectId,
        labels: BTreeMap<String, String>,
        annotations: BTreeMap<String, String>,
        spec: &Value,
        document: &Document,
    ) -> Outcome {
        let canonical_spec = match self.reader.schemas.canonical(id.kind, spec) {
            Ok(canonical) => canonical,
            Err(message) => {
                let place = Some(document.place("/spec"));
                let problem = error_at(self.path, place, code::TYPE, &message, None);
                return Err(Refused { id: Some(id), problems: vec![problem] });
            }
        };
        let place = document.place("");
        let warnings = self.warnings(&id, &canonical_spec, document);
        let family = family(id.kind);
        let definition = Definition {
            path: self.path.to_owned(),
            line: place.line,
            column: place.column,
            labels: Pairs::of(Some(&labels)),
            annotations: Pairs::of(Some(&annotations)),
            spec: family.pack(spec),
            offers: Offers::of(id.kind, &canonical_spec),
            references: references(&id, &canonical_spec, document),
            canonical_spec: family.pack(&canonical_spec),
            id,
        };
        Ok((definition, warnings))
    }

    fn warnings(&self, id: &ObjectId, spec: &Value, document: &Document) -> Vec<Problem> {
        let warning = |pointer: &str, code: &str, message: &str, hint: &str| {
            let place = Some(document.key_place(pointer));
            let mut problem = error_at(self.path, place, code, message, Some(hint.to_owned()));
            problem.severity = Severity::Warning;
            problem.object = Some(id.to_string());
            problem
        };
        let package = &spec["package"];
        if id.kind == Kind::MCPServer && package.is_object() && !package["version"].is_string() {
            let hint = "add version: the newest is installed at each start, so a restart may change the tools";
            let message = "the package has no version";
            return vec![warning("/spec/package", code::UNPINNED, message, hint)];
        }
        if id.kind != Kind::Agent {
            return Vec::new();
        }
        let hint = "an image that is built on Convoke's agent image keeps it; another one may call any tool unasked, and read no file";
        let message = |pointer: &str| {
            let field = pointer.rsplit('/').next().unwrap_or_default();
            format!("{field} is left to the agent's own image")
        };
        let left = left_to_image(spec);
        left.iter()
            .map(|pointer| warning(pointer, code::LEFT_TO_IMAGE, &message(pointer), hint))
            .collect()
    }
}

/// The fields of an Agent that only its image can keep, if it has one of its own.
fn left_to_image(spec: &Value) -> Vec<String> {
    if !spec["image"].is_string() && !spec["buildRef"].is_object() {
        return Vec::new();
    }
    let mut pointers = Vec::new();
    for (n, server) in spec["mcpServers"].as_array().into_iter().flatten().enumerate() {
        for field in ["tools", "requireApproval"] {
            if server[field].as_array().is_some_and(|tools| !tools.is_empty()) {
                pointers.push(format!("/spec/mcpServers/{n}/{field}"));
            }
        }
    }
    if spec["config"]["reload"] == "Hot" {
        pointers.push("/spec/config/reload".to_owned());
    }
    pointers
}
