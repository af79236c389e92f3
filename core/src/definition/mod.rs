//! The repository format: files into definitions and problems, every problem with its place.
//!
//! ```text
//! tree ──► ignore ──► document (values, places) ──► variables ──► identify ──► include files ──► schema (structure, defaults, CEL) ──► Catalog
//! ```
//! The unit of quarantine is the file: when any of its documents has an error, none of its objects is applied, and
//! all that can be identified are held.

pub mod diagnostic;
pub mod difference;
mod difference_text;
pub mod document;
mod file;
pub mod finding;
mod front_matter;
mod identify;
pub mod ignore;
mod image;
mod include;
mod load;
mod nul;
mod places;
mod problems;
pub mod references;
mod reload;
pub mod rules;
pub mod sarif;
mod scalar;
pub mod schema;
mod structure;
pub mod tag;
pub mod tree;
pub mod variables;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::Value;

use crate::api::git_sync::{Problem, Severity};
use crate::api::{Kind, ObjectId};
use crate::packed::{Family, Packed, Pairs};
use crate::shared_map::SharedMap;
use references::Reference;

pub use load::Loader;
pub use places::Place;
pub use references::{check_definition, check_references};

/// Limits on what is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of one definition file.
    pub file_bytes: u64,
    /// Bytes of one file that a `*File` field names.
    pub include_bytes: u64,
    /// Documents in one file.
    pub documents: usize,
    /// Collections nested in each other.
    pub depth: usize,
    /// Values in one document.
    pub nodes: usize,
    /// Bytes of all definition files, with the files that they include. A file is read when those before it have fewer
    /// bytes.
    pub total_bytes: u64,
    /// Documents of our API group in all files. A file is read when those before it have fewer documents.
    pub total_documents: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            file_bytes: 1 << 20,
            include_bytes: 256 << 10,
            documents: 100,
            depth: 64,
            nodes: 50_000,
            total_bytes: 64 << 20,
            total_documents: 20_000,
        }
    }
}

/// What the catalog of a tree depends on, besides the tree.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Context {
    /// Namespace that the objects go into, when it is known.
    pub namespace: Option<String>,
    /// The synced path, as in the spec of the GitSync.
    pub path: String,
    /// The ignore patterns of the GitSync.
    pub ignore: ignore::Patterns,
    /// Values for `${NAME}`. `None`: nothing is replaced.
    pub variables: Option<variables::Variables>,
}

/// A valid document of one of our kinds.
#[derive(Debug, Clone, PartialEq)]
pub struct Definition {
    /// Kind and name.
    pub id: ObjectId,
    /// File, relative to the root of the repository.
    pub path: String,
    /// Line of the document's first value, from 1.
    pub line: u32,
    /// Its column, from 1.
    pub column: u32,
    /// Labels from Git.
    pub labels: Pairs,
    /// Annotations from Git.
    pub annotations: Pairs,
    /// The spec in plain form, without the schema's defaults.
    pub spec: Packed,
    /// The spec with the schema's defaults, as the typed struct writes it.
    pub canonical_spec: Packed,
    /// What other definitions need to know of it.
    pub offers: Offers,
    /// The objects that it refers to.
    pub references: Vec<Reference>,
}

/// What other definitions need to know of a definition, kept beside its packed spec.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Offers {
    /// The models that a ModelAPI serves, with patterns that hold `*`. Empty: not known.
    pub models: Box<[String]>,
    /// Whether other Agents can call this Agent.
    pub exposed: bool,
}

impl Offers {
    /// Reads a spec with the schema's defaults. A proxy with a configuration of its own and without `models` does not say what
    /// it serves.
    fn of(kind: Kind, spec: &Value) -> Self {
        let proxy = spec["proxy"]["models"].as_array().into_iter().flatten();
        let models = proxy.chain([&spec["hosted"]["model"]]).filter_map(Value::as_str);
        let hidden = spec.pointer("/agentNetwork/expose") == Some(&Value::Bool(false));
        match kind {
            Kind::ModelAPI => Self { models: models.map(str::to_owned).collect(), exposed: false },
            Kind::Agent => Self { models: Box::default(), exposed: !hidden },
            Kind::MCPServer | Kind::AgentBuild => Self::default(),
        }
    }
}

/// All definitions of one commit, and all problems.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Catalog {
    /// The valid definitions.
    pub definitions: SharedMap<ObjectId, Arc<Definition>>,
    /// All errors and warnings, sorted.
    pub problems: Vec<Problem>,
    /// The objects whose definitions have errors, with their files. They are held at their last good state.
    pub broken: BTreeMap<ObjectId, String>,
    /// Files with objects that could not be identified. All objects that came from these files are held.
    pub broken_paths: BTreeSet<String>,
    /// The definition files of the commit. Empty when `broken_paths` is empty.
    pub paths: BTreeSet<String>,
    /// Whether something could not be read that may be readable the next time: the same commit is to be loaded again.
    pub again: bool,
    /// How many documents are of our API group.
    pub documents: usize,
    /// How many files have such documents.
    pub files: usize,
    /// How many entries are ignored.
    pub ignored: usize,
}

impl Catalog {
    /// Whether there is an error. Then an object that has no definition may still be wanted.
    #[must_use]
    pub fn has_errors(&self) -> bool {
        self.problems.iter().any(|problem| problem.severity == Severity::Error)
    }
}

/// The sample that specs of a kind are packed with.
fn family(kind: Kind) -> &'static Family {
    static AGENTS: Family = Family::new();
    static MODEL_APIS: Family = Family::new();
    static MCP_SERVERS: Family = Family::new();
    static AGENT_BUILDS: Family = Family::new();
    match kind {
        Kind::Agent => &AGENTS,
        Kind::ModelAPI => &MODEL_APIS,
        Kind::MCPServer => &MCP_SERVERS,
        Kind::AgentBuild => &AGENT_BUILDS,
    }
}

/// The fields of a kind that take the content of a file: pointer of the `*File` field, pointer of the plain one.
const fn file_fields(kind: Kind) -> &'static [(&'static str, &'static str)] {
    match kind {
        Kind::Agent => &[("/config/instructionsFile", "/config/instructions")],
        Kind::MCPServer => &[("/toolsStringFile", "/toolsString")],
        Kind::ModelAPI | Kind::AgentBuild => &[],
    }
}

#[cfg(test)]
#[path = "tests/hostile.rs"]
mod hostile_tests;
#[cfg(test)]
#[path = "tests/mistakes.rs"]
mod mistake_tests;
#[cfg(test)]
#[path = "tests/definition.rs"]
pub(crate) mod tests;
