//! The repository format: files into definitions and problems, every problem with its place.
//!
//! ```text
//! tree ──► ignore ──► document (values, places) ──► variables ──► identify ──► include files ──► schema (structure, defaults, CEL) ──► Catalog
//! ```
//! The unit of quarantine is the file: when any of its documents has an error, none of its objects is applied, and
//! all that can be identified are held.

mod complain;
pub mod diagnostic;
pub mod difference;
pub mod document;
mod front_matter;
mod identify;
pub mod ignore;
mod include;
mod load;
mod nul;
mod places;
pub mod references;
mod reload;
pub mod rules;
pub mod sarif;
mod scalar;
pub mod schema;
pub mod tree;
pub mod variables;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::Value;

use crate::api::git_sync::{Problem, Severity};
use crate::api::{Kind, ObjectId};
use crate::packed::{Family, Packed};
use crate::shared_map::SharedMap;
use references::Reference;

pub use load::Loader;
pub use references::{check_definition, check_references};

/// Budgets on what is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of one definition file.
    pub file_bytes: u64,
    /// Bytes of one file that a `*File` field names.
    pub include_bytes: u64,
    /// Documents in one file.
    pub documents: usize,
    /// Collections in collections.
    pub depth: usize,
    /// Values in one document.
    pub nodes: usize,
    /// Bytes of all definition files, with the files that they name. The last one that begins below it is read.
    pub total_bytes: u64,
    /// Documents of ours in all files; the same.
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

/// What decides, besides the files, what a tree means.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Context {
    /// Namespace that the objects go into, when it is known.
    pub namespace: Option<String>,
    /// The synced path, as the GitSync says it.
    pub path: String,
    /// The GitSync's own patterns of what is ignored.
    pub ignore: ignore::Patterns,
    /// Values for `${NAME}`; without any set, a `$` means nothing.
    pub variables: Option<variables::Variables>,
}

/// A document that parsed and validated as one of our kinds.
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
    pub labels: BTreeMap<String, String>,
    /// Annotations from Git.
    pub annotations: BTreeMap<String, String>,
    /// The spec in plain form, without the schema's defaults.
    pub spec: Packed,
    /// The spec with the schema's defaults, as the typed struct writes it.
    pub canonical_spec: Packed,
    /// What others ask about it.
    pub offers: Offers,
    /// Objects that it names.
    pub references: Vec<Reference>,
}

/// What others ask about a definition, kept beside its packed spec.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Offers {
    /// The models that a ModelAPI serves, patterns with `*` among them; empty when it does not say.
    pub models: Box<[String]>,
    /// Whether an Agent can be called by others.
    pub exposed: bool,
}

impl Offers {
    /// Reads a spec with the schema's defaults.
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
    /// What the commit wants.
    pub definitions: SharedMap<ObjectId, Arc<Definition>>,
    /// Everything that is wrong, sorted.
    pub problems: Vec<Problem>,
    /// Identities that are known to be broken, with their file: to be held.
    pub broken: BTreeMap<ObjectId, String>,
    /// Files of which something could not be identified: what came from them is to be held.
    pub broken_paths: BTreeSet<String>,
    /// The definition files of the commit; filled only while `broken_paths` is not empty.
    pub paths: BTreeSet<String>,
    /// Whether something could not be read for a reason that may pass: the same commit is worth another try.
    pub again: bool,
    /// Documents of ours.
    pub documents: usize,
    /// Files with documents of ours.
    pub files: usize,
    /// Entries that patterns left out.
    pub ignored: usize,
}

impl Catalog {
    /// Whether anything is wrong enough that nothing proves absence.
    #[must_use]
    pub fn has_errors(&self) -> bool {
        self.problems.iter().any(|problem| problem.severity == Severity::Error)
    }
}

/// What the specs of a kind look like, with defaults and without.
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
mod hostile_tests;
#[cfg(test)]
pub(crate) mod tests;
