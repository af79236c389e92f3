//! What is kept of a GitSync between two reports.

use std::collections::BTreeSet;
use std::time::Instant;

use crate::api::ObjectId;
use crate::sync::reasons::{EventReason, Trigger};
use crate::sync::status::report::SyncRecord;

/// What the next report has to know of the earlier ones.
pub struct ReportMemory {
    /// Syncs whose report could not be written yet.
    pub unreported: Vec<SyncRecord>,
    /// What started the work that is under way.
    pub trigger: Trigger,
    /// When the work that is under way began.
    pub started: Option<Instant>,
    /// An approval that releases nothing, until an event has said so.
    pub outdated_approval: Option<String>,
    /// The objects that cannot be written and that already had an event, each with the event's reason; `None` before they
    /// are read from the status.
    pub announced: Option<BTreeSet<(ObjectId, EventReason)>>,
}

impl Default for ReportMemory {
    fn default() -> Self {
        Self {
            unreported: Vec::new(),
            trigger: Trigger::Start,
            started: None,
            outdated_approval: None,
            announced: None,
        }
    }
}
