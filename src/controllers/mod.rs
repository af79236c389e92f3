//! Controllers: they make the children of Convoke's own objects, and write what those do into the statuses.
//!
//! Each kind has a folder. Every reconcile has the same steps under the same names:
//!
//! | step | what it does |
//! |---|---|
//! | resolve | looks up what the object refers to |
//! | validate | checks what the schema does not check |
//! | desired | says what the children are to be like, or goes back to what they were like |
//! | inputs | adds the digests of the ConfigMaps and Secrets that pods read |
//! | keys | writes the Secret with the keys that Convoke makes for pods |
//! | apply | writes the other children |
//! | status | writes what the children do into the status, and tells events |
//! | retain | deletes ConfigMaps of earlier revisions, and keys that no pods need |
//!
//! What pods and addresses say themselves is asked beside that, in `discovery`. Step "resolve" looks up what was found, and step
//! "status" tells it.
//!
//! Imports run one way, from top to bottom:
//!
//! ```text
//! start
//! agent, agent_build
//! model_api, mcp_server
//! workload       the reconcile of all kinds that run pods
//! context, wake, status
//! discovery
//! inputs, pods, events
//! children, debounce, defaults, names, reason
//! ```

pub mod agent;
pub mod agent_build;
pub mod children;
pub mod context;
mod debounce;
pub mod defaults;
pub mod discovery;
pub mod events;
pub mod inputs;
mod key_marks;
pub mod mcp_server;
pub mod model_api;
mod names;
pub mod pods;
pub mod reason;
mod start;
pub mod status;
mod wake;
pub mod workload;

pub use context::Shared;
pub use start::{Settings, Watched, start};

use std::collections::BTreeSet;

use crate::api::Kind;

/// Which controllers run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ControllerSet(BTreeSet<Kind>);

impl ControllerSet {
    /// Reads `all`, `none`, or kinds separated by commas (case does not matter).
    ///
    /// # Errors
    /// The first word that names no controller.
    pub fn parse(text: &str) -> Result<Self, String> {
        match text {
            "all" => return Ok(Self(Kind::ALL.into())),
            "none" | "" => return Ok(Self(BTreeSet::new())),
            _ => {}
        }
        let known = |word: &str| {
            Kind::ALL.into_iter().find(|kind| kind.as_str().eq_ignore_ascii_case(word))
        };
        text.split(',')
            .map(str::trim)
            .map(|word| known(word).ok_or_else(|| word.to_owned()))
            .collect::<Result<_, _>>()
            .map(Self)
    }

    /// Every name, for messages.
    #[must_use]
    pub fn names() -> String {
        Kind::ALL.map(Kind::as_str).join(", ")
    }

    /// Whether a kind's controller runs.
    #[must_use]
    pub fn has(&self, kind: Kind) -> bool {
        self.0.contains(&kind)
    }
}
