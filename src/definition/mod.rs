//! (pure) The repository format: a tree of files becomes definitions and problems with a place.
//!
//! ```text
//! tree ─► load ─► yaml (text → documents) ─► envelope (whose? metadata) ─► normalise (shorthands, files)
//!                                         ─► check (schema) ─► rules (CEL, typed form) ─► Definition
//! ```
//! A file is the unit of quarantine: an error anywhere in it keeps all its objects at their last good state.
//! Nothing here knows a cluster, a clock or a file system; see [`tree::RepositoryTree`] for what is read.
#![deny(clippy::disallowed_types, clippy::disallowed_methods)]

mod check;
pub mod diagnostic;
mod envelope;
mod load;
mod node;
mod normalise;
mod references;
mod rules;
mod scalar;
mod schema;
pub mod tree;
mod yaml;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::Value;

use crate::api::git_sync::{Problem, Severity};
use crate::api::{Kind, ObjectId};

pub use diagnostic::Code;
pub use load::Loader;
pub use node::Position;
pub use references::check_references;

/// A document that parsed and validated as one of our kinds.
#[derive(Debug, Clone, PartialEq)]
pub struct Definition {
    /// Kind and name.
    pub id: ObjectId,
    /// File, relative to the root of the repository.
    pub path: String,
    /// Line of the document's first node, from 1.
    pub line: u32,
    /// Column of the document's first node, from 1.
    pub column: u32,
    /// Labels from Git.
    pub labels: BTreeMap<String, String>,
    /// Annotations from Git; of ours only those in [`crate::api::keys::FROM_GIT`].
    pub annotations: BTreeMap<String, String>,
    /// The spec as Git says it, in plain form: shorthands resolved, no defaults.
    pub spec: Value,
    /// The spec with the schema's defaults, sent through the kind's type: equal to a live typed spec's
    /// `serde_json::to_value` exactly when nothing differs.
    pub canonical_spec: Value,
    /// What it refers to.
    pub references: Vec<Reference>,
}

/// A reference to another object of the namespace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reference {
    /// Kind of the other object.
    pub kind: Kind,
    /// Its name.
    pub name: String,
    /// JSON pointer of the name in the plain form (`/spec/modelAPI/name`).
    pub field: String,
    /// Line of the name, from 1.
    pub line: u32,
    /// Column of the name, from 1.
    pub column: u32,
}

/// What a tree holds.
#[derive(Debug, Clone, Default)]
pub struct Catalog {
    /// What may be applied.
    pub definitions: BTreeMap<ObjectId, Arc<Definition>>,
    /// Every problem, in the order of [`diagnostic::sort`].
    pub problems: Vec<Problem>,
    /// Identities in a broken file or given twice, with the file: they must be held, and are not in `definitions`.
    pub broken: BTreeMap<ObjectId, String>,
    /// Files in which something could not be identified, also links, odd entries and what a budget left out
    /// (then perhaps a folder). What came from them must be held.
    pub broken_paths: BTreeSet<String>,
    /// Documents of ours, good or bad.
    pub documents: usize,
    /// YAML and JSON files below the synced path.
    pub files: usize,
}

impl Catalog {
    /// Whether any problem is an error. A commit with one deletes nothing.
    #[must_use]
    pub fn has_errors(&self) -> bool {
        self.problems.iter().any(|problem| problem.severity == Severity::Error)
    }
}

/// Budgets of the loader. Those of the walk (files, bytes in all, depth of folders) are the tree's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of a YAML or JSON file. Default 1 MiB.
    pub max_file_bytes: u64,
    /// Documents in a file. Default 100.
    pub max_documents: usize,
    /// Bytes of an included file. Default 256 KiB.
    pub max_include_bytes: u64,
    /// Collections within collections. Default 64.
    pub max_depth: usize,
    /// Nodes of a document with its aliases expanded. Default 20,000.
    pub max_nodes: usize,
    /// Bytes of a document's scalars with its aliases expanded. Default 4 MiB.
    pub max_scalar_bytes: usize,
    /// Aliases in a document. Default 500.
    pub max_aliases: usize,
    /// Problems listed of a file; the rest is counted. Default 100.
    pub max_problems: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_file_bytes: 1024 * 1024,
            max_documents: 100,
            max_include_bytes: 256 * 1024,
            max_depth: 64,
            max_nodes: 20_000,
            max_scalar_bytes: 4 * 1024 * 1024,
            max_aliases: 500,
            max_problems: 100,
        }
    }
}
