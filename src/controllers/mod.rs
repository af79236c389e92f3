//! Controllers: the runtime (queue, backoff, deadlines) and one folder a kind.

pub mod agent_build;
pub mod defaults;
pub mod queue;
pub mod runtime;

use std::collections::BTreeSet;

use kube::Client;
use tokio::task::JoinSet;

use crate::api::Kind;
use crate::cli::Failure;
use crate::cluster::live::Stores;

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
        let known = |word: &str| Kind::ALL.into_iter().find(|kind| kind.as_str().eq_ignore_ascii_case(word));
        text.split(',').map(str::trim).map(|word| known(word).ok_or_else(|| word.to_owned())).collect::<Result<_, _>>().map(Self)
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
