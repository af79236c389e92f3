//! What the plans of a GitSync leave to the next one. All of it can be made anew.

use std::time::Instant;

use crate::cluster::account::Account;
use crate::sync::apply::contention::Contention;
use crate::sync::apply::problems::Refused;
use crate::sync::apply::resume::Resume;
use crate::sync::plan::Settled;
use crate::sync::plan::refresh::PlanView;

/// What plans keep for the next one.
#[derive(Default)]
pub struct PlanMemory {
    /// Writes that changed nothing.
    pub settled: Settled,
    /// PlanMemory with failed writes, in a row.
    pub attempts: u32,
    /// How far a plan has come that takes several.
    pub pieces: Resume,
    /// What a plan has to look at, and the commit that it was made for; `None` before the first plan.
    pub view: Option<PlanView>,
    /// Content that the server refused: not sent again until it changes, or somebody asks.
    pub refused: Refused,
    /// Objects that somebody changes again and again.
    pub fights: Contention,
    /// When content that was refused for a missing right is sent again.
    pub denied_until: Option<Instant>,
    /// As whom the last plan was written, if that was no trouble.
    pub account: Option<Account>,
}
