//! What definitions refer to, and what they had better say.

use std::collections::BTreeSet;

use crate::api::git_sync::{Problem, Severity};
use crate::api::{Kind, ObjectId};

use super::diagnostic::{self, Code, Sink, nearest};
use super::node::{Field, Node, Position};
use super::{Catalog, Reference};

/// The references of a normalised spec, in document order of their fields.
pub(super) fn collect(kind: Kind, spec: &Node) -> Vec<Reference> {
    let mut out = Vec::new();
    let root = Field::Key(&Field::Root, "spec");
    let mut push = |kind: Kind, node: &Node, field: &Field<'_>| {
        if let Some(name) = node.as_str() {
            let Position { line, column } = node.at;
            out.push(Reference {
                kind,
                name: name.to_owned(),
                field: field.pointer(),
                line,
                column,
            });
        }
    };
    let mut single = |key: &str, to: Kind| {
        if let Some(name) = spec.at_path(&[key, "name"]) {
            push(to, name, &Field::Key(&Field::Key(&root, key), "name"));
        }
    };
    match kind {
        Kind::Agent => {
            single("modelAPI", Kind::ModelAPI);
            single("buildRef", Kind::AgentBuild);
            let servers = Field::Key(&root, "mcpServers");
            for (index, item) in list(spec, &["mcpServers"]).iter().enumerate() {
                if let Some(name) = item.get("name") {
                    push(
                        Kind::MCPServer,
                        name,
                        &Field::Key(&Field::Index(&servers, index), "name"),
                    );
                }
            }
            let network = Field::Key(&root, "agentNetwork");
            let access = Field::Key(&network, "access");
            for (index, peer) in list(spec, &["agentNetwork", "access"]).iter().enumerate() {
                push(Kind::Agent, peer, &Field::Index(&access, index));
            }
        }
        Kind::MCPServer => single("buildRef", Kind::AgentBuild),
        Kind::ModelAPI | Kind::AgentBuild => {}
    }
    out
}

fn list<'a>(spec: &'a Node, path: &[&str]) -> &'a [Node] {
    spec.at_path(path).and_then(Node::as_list).unwrap_or_default()
}

/// What is allowed but unwise.
pub(super) fn advise(kind: Kind, spec: &Node, sink: &mut Sink<'_>) {
    if kind != Kind::MCPServer {
        return;
    }
    if let Some(package) = spec.get("package").filter(|package| package.get("version").is_none()) {
        let at = package.get("name").map_or(package.at, |name| name.at);
        let hint = "pin it: add `version` with the exact version";
        let message = "the package has no version, so each start may run another one";
        sink.warning(at, Code::UnpinnedPackage, message, Some(hint.to_owned()));
    }
}

/// Warnings for references that neither the commit nor the cluster resolves, sorted.
///
/// An object whose file is broken counts as being there: it is held at its last good state.
/// `exists_in_cluster` tells whether the namespace has a live object of that identity.
#[must_use]
pub fn check_references(
    catalog: &Catalog,
    exists_in_cluster: &dyn Fn(&ObjectId) -> bool,
) -> Vec<Problem> {
    let mut problems = Vec::new();
    for definition in catalog.definitions.values() {
        for reference in &definition.references {
            let id = ObjectId::new(reference.kind, reference.name.clone());
            let known = catalog.definitions.contains_key(&id) || catalog.broken.contains_key(&id);
            if known || exists_in_cluster(&id) {
                continue;
            }
            let at = Position { line: reference.line, column: reference.column };
            let names: BTreeSet<&str> = catalog
                .definitions
                .keys()
                .chain(catalog.broken.keys())
                .filter(|other| other.kind == id.kind && *other != &definition.id)
                .map(|other| other.name.as_str())
                .collect();
            let hint = nearest(&id.name, names).map(|name| format!("did you mean `{name}`?"));
            let message = format!("{id} is neither in this commit nor in the cluster");
            problems.push(Problem {
                object: Some(definition.id.to_string()),
                ..diagnostic::problem(
                    Severity::Warning,
                    &definition.path,
                    Some(at),
                    Code::UnresolvedReference,
                    message,
                    hint,
                )
            });
        }
    }
    diagnostic::sort(&mut problems);
    problems
}
