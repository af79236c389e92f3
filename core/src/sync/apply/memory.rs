//! What the engine remembers of a GitSync from one plan to the next. After a restart all of it is built again.

use std::time::{Duration, Instant};

use crate::cluster::account::Account;
use crate::sync::apply::contention::Contention;
use crate::sync::apply::impersonation::Denial;
use crate::sync::apply::problems::Refused;
use crate::sync::apply::resume::Resume;
use crate::sync::plan::Settled;
use crate::sync::plan::refresh::PlanView;

/// What the engine remembers of a GitSync from one plan to the next.
#[derive(Default)]
pub struct PlanMemory {
    /// Objects that an apply did not make as wanted, and how it left them.
    pub settled: Settled,
    /// The number of plans in a row with failed writes.
    pub attempts: u32,
    /// How far a plan got that did not finish in time.
    pub resume: Resume,
    /// The work index, and the commit that it was made for; `None` before the first plan.
    pub view: Option<PlanView>,
    /// Content that the API server refused. It is not sent again until it changes, or a user requests a sync.
    pub refused: Refused,
    /// Objects that another writer changes again and again.
    pub contention: Contention,
    /// When content is sent again that was refused for a missing right.
    pub denied_until: Option<Instant>,
    /// The account that the last plan was written with, if it could be used.
    pub account: Option<Account>,
}

impl PlanMemory {
    /// Forgets content that was refused for a missing right, once it is time to retry.
    pub(crate) fn try_denied_again(&mut self, after: Duration, now: Instant) {
        if self.denied_until.is_some_and(|until| until <= now) {
            self.denied_until = None;
            self.refused.retain(|_, (_, rejection)| rejection.denial.is_none());
        }
        let denials =
            || self.refused.values().filter_map(|(_, rejection)| rejection.denial.as_ref());
        let denied = denials().next().is_some();
        if denials().any(Denial::is_about_impersonation) {
            self.account = None;
        }
        match (denied, self.denied_until) {
            (true, None) => self.denied_until = Some(now + after),
            (false, Some(_)) => self.denied_until = None,
            _ => {}
        }
    }
}
