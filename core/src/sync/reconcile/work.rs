//! A plan on its way from being made to being applied.

use std::sync::Arc;

use crate::sync::apply::contention::Contended;
use crate::sync::commit::desired::SyncRef;
use crate::sync::commit::loaded::Loaded;
use crate::sync::live_namespace::LiveNamespace;
use crate::sync::peers::view::PeerView;
use crate::sync::plan::{Plan, Unproven};
use crate::sync::status::verdict::Remaining;

/// A plan, what it was made from, and what is found while it is applied.
pub(super) struct Work<'a> {
    pub loaded: &'a Arc<Loaded>,
    pub sync: SyncRef,
    pub live: LiveNamespace<'a>,
    pub others: PeerView<'a>,
    /// The version of the peers, read before `others`.
    pub peers_version: u64,
    pub unproven: Unproven,
    pub latch_key: String,
    /// Whether this commit was planned before: an object that is missing now was deleted, or could not be created.
    pub again: bool,
    pub plan: Plan,
    /// Whether this is the plan of a commit that was applied before. Such a plan deletes nothing.
    pub recalled: bool,
    /// Writes that the API server refused before and that are not sent again.
    pub blocked: usize,
    pub remaining: Remaining,
    /// Objects in contention, which are left alone for now.
    pub contended: Vec<Contended>,
}
