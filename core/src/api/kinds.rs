//! The kinds that may be synced, and the identity of an object.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A kind that a repository may hold, in apply order: kinds that others refer to come first. Deletes run in reverse.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Kind {
    /// A model endpoint.
    ModelAPI,
    /// A tool server.
    MCPServer,
    /// A recipe that turns a source folder into an image.
    AgentBuild,
    /// An agent.
    Agent,
}

impl Kind {
    /// Every kind, in apply order.
    pub const ALL: [Self; 4] = [Self::ModelAPI, Self::MCPServer, Self::AgentBuild, Self::Agent];

    /// The name as written in YAML.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::ModelAPI => "ModelAPI",
            Self::MCPServer => "MCPServer",
            Self::AgentBuild => "AgentBuild",
            Self::Agent => "Agent",
        }
    }

    /// The plural, as in API paths.
    #[must_use]
    pub const fn plural(self) -> &'static str {
        match self {
            Self::ModelAPI => "modelapis",
            Self::MCPServer => "mcpservers",
            Self::AgentBuild => "agentbuilds",
            Self::Agent => "agents",
        }
    }

    /// The kind of that exact name.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == name)
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Identity of a synced object in the namespace of its GitSync. It does not depend on the file that defines the object.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ObjectId {
    /// The kind. It is the first field, so that sorting gives the apply order.
    pub kind: Kind,
    /// `metadata.name`.
    pub name: String,
}

impl ObjectId {
    /// An identity from its two parts.
    pub fn new(kind: Kind, name: impl Into<String>) -> Self {
        Self { kind, name: name.into() }
    }
}

impl fmt::Display for ObjectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.kind, self.name)
    }
}
