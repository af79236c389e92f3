//! (pure) What is known of one object: what it is asked, who is asked, and what was found and is not told yet.
#![deny(clippy::disallowed_types, clippy::disallowed_methods)]

use std::sync::Arc;

use jiff::Timestamp;
use reqwest::Url;

use super::mcp_message::Era;
use super::read::{Found, Topic};
use super::schedule::Progress;
use super::{card, reachable, tools};
use crate::api::Kind;
use crate::api::agent::AgentStatus;
use crate::api::mcp_server::MCPServerStatus;
use crate::api::model_api::ModelAPIStatus;
use crate::cluster::conditions::Observed;
use crate::cluster::store::Key;
use crate::controllers::pods::{OwnedPod, PodOwner};

/// What an object is asked, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Question {
    /// What is asked.
    pub topic: Topic,
    /// The URL of its Service, or the external one.
    pub url: String,
    /// Its Deployment, whose pods listen on the port of the URL. `None`: the URL is asked.
    pub deployment: Option<String>,
    /// The generation of its spec.
    pub generation: i64,
}

/// What was found, and of what.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Told {
    /// What was found.
    pub found: Found,
    /// The generation of the spec and, with pods, their revision.
    pub revision: String,
    /// The generation of the spec.
    pub generation: i64,
}

/// One object.
pub(super) struct Subject {
    pub(super) kind: Kind,
    pub(super) key: Key,
    pub(super) uid: String,
    pub(super) question: Question,
    pub(super) progress: Progress,
    /// The pod that was asked last.
    pub(super) pod: Option<OwnedPod>,
    pub(super) era: Era,
    /// What was found and is not told yet.
    pub(super) pending: Option<Arc<Told>>,
}

/// A copy of what is needed to ask an object.
pub(super) struct Asked {
    pub(super) kind: Kind,
    pub(super) key: Key,
    pub(super) uid: String,
    pub(super) question: Question,
    pub(super) pod: Option<OwnedPod>,
    pub(super) era: Era,
    pub(super) url: Url,
}

impl Asked {
    /// Whose pods are asked. `None` when an address is.
    pub(super) fn owner(&self) -> Option<PodOwner<'_>> {
        let Self { kind, key, uid, question, url, .. } = self;
        let deployment = question.deployment.as_deref()?;
        let port = url.port_or_known_default()?;
        Some(PodOwner { kind: *kind, key, uid, deployment, port })
    }
}

/// Who is asked.
pub(super) enum Whom {
    Pod(OwnedPod),
    Address,
}

impl Whom {
    /// Names it, so that another one is told from it.
    pub(super) fn name(&self) -> &str {
        match self {
            Self::Pod(pod) => pod.uid(),
            Self::Address => "",
        }
    }

    /// What answers are those of.
    pub(super) fn revision(&self, generation: i64) -> String {
        match self {
            Self::Pod(pod) => format!("{generation}/{}", pod.revision()),
            Self::Address => generation.to_string(),
        }
    }

    pub(super) fn pod(self) -> Option<OwnedPod> {
        match self {
            Self::Pod(pod) => Some(pod),
            Self::Address => None,
        }
    }
}

impl Told {
    fn at(&self, now: Timestamp) -> Observed {
        Observed { generation: self.generation, now }
    }

    /// Tells it in the status of an Agent.
    pub fn tell_card(&self, status: &mut AgentStatus, now: Timestamp) {
        if let Found::Card(read) = &self.found {
            card::tell(status, read, self.at(now));
        }
    }

    /// Tells it in the status of an MCPServer.
    pub fn tell_tools(&self, status: &mut MCPServerStatus, now: Timestamp) {
        if let Found::Tools(read) = &self.found {
            tools::tell(status, read, &self.revision, self.at(now));
        }
    }

    /// Tells it in the status of a ModelAPI.
    pub fn tell_reach(&self, status: &mut ModelAPIStatus, now: Timestamp) {
        if let Found::Reach(reach) = &self.found {
            reachable::tell(status, reach, self.at(now));
        }
    }
}
