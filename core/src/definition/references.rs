//! References from definitions to other objects. A reference to an object that is missing gives only a warning: the object
//! may come later, or be in the cluster.

use serde_json::Value;

use super::diagnostic::{code, sort};
use super::document::Document;
use super::places::Place;
use super::{Catalog, Definition};
use crate::api::git_sync::{Problem, Severity};
use crate::api::{Kind, ObjectId};
use crate::text::{nearest, quote};

/// A reference from a definition to an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reference {
    /// The object.
    pub to: ObjectId,
    /// The field, as `modelAPI` or `mcpServers`.
    pub field: &'static str,
    /// Line of the name.
    pub line: u32,
    /// Its column.
    pub column: u32,
    /// The model that is used of a ModelAPI.
    pub model: Option<UsedModel>,
}

/// A model that a definition uses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UsedModel {
    /// Its name.
    pub name: String,
    /// Where the definition names it.
    pub place: Place,
}

/// What is known of an object that a reference names.
#[derive(Debug, Clone, Copy)]
pub enum Target<'a> {
    /// The commit has this valid definition of it.
    Wanted(&'a Definition),
    /// It exists, but its spec is not known here: its definition has errors, or only the cluster has it.
    There,
    /// Neither the commit nor the cluster has it.
    Missing,
}

/// The objects that a definition may refer to. Its warnings depend on the targets of its references. Their hints also
/// depend on the names of other objects.
pub trait Known {
    /// What is known of an object.
    fn target(&self, id: &ObjectId) -> Target<'_>;
    /// The names of all objects of a kind that the commit defines, to suggest one.
    fn names(&self, kind: Kind) -> Box<dyn Iterator<Item = &str> + '_>;
}

/// A commit, and the objects of a namespace.
struct CommitIn<'a> {
    catalog: &'a Catalog,
    exists: &'a dyn Fn(&ObjectId) -> bool,
}

impl Known for CommitIn<'_> {
    fn target(&self, id: &ObjectId) -> Target<'_> {
        match self.catalog.definitions.get(id) {
            Some(definition) => Target::Wanted(definition),
            None if self.catalog.broken.contains_key(id) || (self.exists)(id) => Target::There,
            None => Target::Missing,
        }
    }

    fn names(&self, kind: Kind) -> Box<dyn Iterator<Item = &str> + '_> {
        let ids = self.catalog.definitions.keys();
        Box::new(ids.filter(move |id| id.kind == kind).map(|id| id.name.as_str()))
    }
}

/// Warnings about the references of all definitions of a commit. `exists` tells whether the cluster has an object.
#[must_use]
pub fn check_references(catalog: &Catalog, exists: &dyn Fn(&ObjectId) -> bool) -> Vec<Problem> {
    let definitions = catalog.definitions.values();
    let mut problems: Vec<_> =
        definitions.flat_map(|one| check_definition(one, catalog, exists)).collect();
    sort(&mut problems);
    problems
}

/// Warnings about the references of one definition of a commit. They depend on the definitions of the objects that it
/// refers to, not only on whether these exist.
#[must_use]
pub fn check_definition(
    definition: &Definition,
    catalog: &Catalog,
    exists: &dyn Fn(&ObjectId) -> bool,
) -> Vec<Problem> {
    check_around(definition, &CommitIn { catalog, exists })
}

/// Warnings about the references of a definition, from what is known of other objects.
#[must_use]
pub fn check_around(definition: &Definition, known: &dyn Known) -> Vec<Problem> {
    let mut problems = Vec::new();
    let mut warn = |place: Place, code: &str, message: String, hint: String| {
        problems.push(Problem {
            severity: Severity::Warning,
            path: Some(definition.path.clone()),
            line: Some(place.line.into()),
            column: Some(place.column.into()),
            code: code.into(),
            message,
            hint: Some(hint),
            object: Some(definition.id.to_string()),
        });
    };
    for Reference { to, field, line, column, model } in &definition.references {
        match known.target(to) {
            Target::There => {}
            Target::Missing => {
                let hint = match nearest(&to.name, known.names(to.kind)) {
                    Some(near) => format!("did you mean {near}?"),
                    None => format!(
                        "add the {} to the repository, or create it in the namespace",
                        to.kind
                    ),
                };
                let message = format!("{field}: {} {:?} is not in this commit", to.kind, to.name);
                warn(Place { line: *line, column: *column }, code::REFERENCE, message, hint);
            }
            Target::Wanted(api) => {
                let Some(model) = model else { continue };
                let served = &api.offers.models;
                if served.is_empty() || served.iter().any(|one| fits(one, &model.name)) {
                    continue;
                }
                let hint = match nearest(&model.name, served.iter().map(String::as_str)) {
                    Some(near) => format!("did you mean {near}?"),
                    None => format!("it serves {}", shown(served)),
                };
                let message = format!("{to} does not serve the model {}", quote(&model.name));
                warn(model.place, code::MODEL, message, hint);
            }
        }
    }
    problems
}

/// The first five of some names.
fn shown(names: &[String]) -> String {
    let mut text = names[..names.len().min(5)].join(", ");
    if names.len() > 5 {
        text.push_str(", …");
    }
    text
}

/// Whether a name matches a pattern in which `*` stands for any text.
fn fits(pattern: &str, name: &str) -> bool {
    let mut parts = pattern.split('*');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = name.strip_prefix(first) else { return false };
    let Some(last) = parts.next_back() else { return rest.is_empty() };
    // Each part is matched as early as possible: this leaves the longest rest for the parts after it.
    for part in parts {
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    rest.ends_with(last)
}

/// The references of a definition.
pub(super) fn references(id: &ObjectId, spec: &Value, document: &Document) -> Vec<Reference> {
    // Most have one or two, and there are as many definitions as objects.
    let mut references = Vec::with_capacity(1);
    let mut one = |kind: Kind, field: &'static str, pointer: String, name: &Value| {
        if let Some(name) = name.as_str() {
            let place = document.place(&pointer);
            let model = spec["model"].as_str().filter(|_| kind == Kind::ModelAPI);
            references.push(Reference {
                to: ObjectId::new(kind, name),
                field,
                line: place.line,
                column: place.column,
                model: model.map(|name| UsedModel {
                    name: name.to_owned(),
                    place: document.place("/spec/model"),
                }),
            });
        }
    };
    if id.kind == Kind::Agent {
        one(Kind::ModelAPI, "modelAPI", "/spec/modelAPI/name".into(), &spec["modelAPI"]["name"]);
        for (n, server) in spec["mcpServers"].as_array().into_iter().flatten().enumerate() {
            let pointer = format!("/spec/mcpServers/{n}/name");
            one(Kind::MCPServer, "mcpServers", pointer, &server["name"]);
        }
        for (n, peer) in spec["agentNetwork"]["access"].as_array().into_iter().flatten().enumerate()
        {
            one(Kind::Agent, "agentNetwork.access", format!("/spec/agentNetwork/access/{n}"), peer);
        }
    }
    if matches!(id.kind, Kind::Agent | Kind::MCPServer) {
        one(Kind::AgentBuild, "buildRef", "/spec/buildRef/name".into(), &spec["buildRef"]["name"]);
    }
    references.shrink_to_fit();
    references
}

#[cfg(test)]
#[path = "tests/references.rs"]
mod tests;
