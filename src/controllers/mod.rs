//! Controllers: the runtime (queue, backoff, deadlines) and one folder a kind.

pub mod agent;
pub mod agent_build;
pub mod build_sources;
pub mod children;
pub mod context;
mod debounce;
pub mod defaults;
pub mod events;
pub mod inputs;
pub mod mcp_server;
pub mod model_api;
pub mod pods;
pub mod queue;
pub mod runtime;
pub mod serving;
pub mod stale;
mod start;
pub mod turns;
pub mod verdict;
pub use convoke_core::sync::published::wanted_agents;
pub mod workload;

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
