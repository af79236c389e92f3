//! What one reconcile has to say about a GitSync: the input of its new status.

use std::collections::BTreeMap;

use jiff::Timestamp;

use crate::api::Kind;
use crate::api::git_sync::{ApprovedPrune, PendingPrune, Problem, Stages};
use crate::sync::plan::Plan;
use crate::sync::plan::work_index::Count;
use crate::sync::poll::remote::Remote;
use crate::sync::reasons::{SourceReason, SyncOutcome, Trigger, Verdict};
use crate::sync::status::webhook::WebhookReport;
use crate::sync::subject::Subject;

/// What a sync did, for the history.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SyncRecord {
    /// `main@sha1:<hex>`.
    pub revision: String,
    /// Author of the commit.
    pub author: String,
    /// Subject of the commit.
    pub subject: String,
    /// How the sync ended.
    pub outcome: SyncOutcome,
    /// Objects created, changed, deleted.
    pub counts: (usize, usize, usize),
    /// Milliseconds.
    pub duration_ms: i64,
    /// What started the sync.
    pub trigger: Trigger,
}

/// What is known of the signature of the newest commit.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Verified {
    /// The spec wants no verification.
    NotWanted,
    /// Nothing new: what the status says stays.
    #[default]
    Unknown,
    /// The commit, and the key that signed it.
    Yes(String),
    /// Why it does not count as signed: reason and message.
    No(SourceReason, String),
    /// Why nothing was verified with the keys that are known now.
    Nothing(SourceReason),
}

impl Verified {
    /// What the last poll has found.
    pub(crate) fn of(subject: &Subject<'_>, remote: &Remote) -> Self {
        if subject.sync.spec.verify.is_none() {
            return Self::NotWanted;
        }
        if remote.generation != subject.generation {
            return Self::Unknown;
        }
        // A commit of another place says nothing of this one.
        let loaded = remote.loaded.as_ref().filter(|loaded| loaded.answers(&subject.sync.spec));
        match (&remote.source_error, loaded) {
            (Some(failure), _) if failure.reason.is_of_verification() => {
                Self::No(failure.reason, failure.message.clone())
            }
            (_, Some(loaded)) => loaded.info.signer.as_ref().map_or(Self::Unknown, |signer| {
                Self::Yes(format!("{} is signed by {signer}", loaded.revision))
            }),
            (Some(failure), None) => Self::Nothing(failure.reason),
            (None, None) => Self::Unknown,
        }
    }
}

/// Deletes that are approved.
#[derive(Debug, Clone)]
pub struct Approved {
    /// The approval as the status keeps it.
    pub prune: ApprovedPrune,
    /// Whether some of these deletes are still to be made. If not, the objects that are left are protected or paused.
    pub is_due: bool,
}

/// Everything that a new status is made of.
pub struct Report<'a> {
    /// `metadata.generation`.
    pub generation: i64,
    /// Reason and message of `Ready`.
    pub verdict: Verdict,
    /// The newest commit that was tried.
    pub attempted: Option<String>,
    /// The commit that was planned for; `None` while no commit could be read.
    pub revision: Option<String>,
    /// The value of `requestedAt` that was handled.
    pub handled: Option<String>,
    /// All problems, sorted; `None` when no commit could be read.
    pub problems: Option<&'a [Problem]>,
    /// The plan, when there is one.
    pub plan: Option<&'a Plan>,
    /// Live objects with the mark of this GitSync, counted after the writes.
    pub counts: Option<&'a BTreeMap<Kind, Count>>,
    /// Whether no delete is due any more.
    pub no_delete_due: bool,
    /// How many objects could not be written.
    pub failed: usize,
    /// Approved deletes, while some of their objects are there.
    pub approved: Option<Approved>,
    /// The approval in the annotation, once it was acted on.
    pub handled_approval: Option<String>,
    /// The deletes that are held now, and those that were held for this commit before.
    pub pending: Option<PendingPrune>,
    /// Whether this is the plan of a commit that was applied before. Such a plan deletes nothing, so what the status says
    /// about deletes stays.
    pub recalled: bool,
    /// Syncs for the history, oldest first.
    pub done: Vec<SyncRecord>,
    /// Timings of the newest of these syncs.
    pub stages: Option<Stages>,
    /// Whether the GitSync is suspended.
    pub suspended: bool,
    /// Whether no commit is known, so that changes by hand are not undone.
    pub blind: bool,
    /// The kinds that the API server has not shown for long, if any: changes by hand of their objects are not seen.
    pub silent: Option<String>,
    /// What is known of the signature of the newest commit.
    pub verified: Verified,
    /// What is known of the webhook; `None`: the status stays as it is in that.
    pub webhook: Option<WebhookReport>,
    /// The time of the report.
    pub now: Timestamp,
}

impl Report<'_> {
    /// A report with a verdict and nothing else.
    #[must_use]
    pub const fn of(generation: i64, verdict: Verdict, now: Timestamp) -> Self {
        Self {
            generation,
            verdict,
            attempted: None,
            revision: None,
            handled: None,
            problems: None,
            plan: None,
            counts: None,
            no_delete_due: false,
            failed: 0,
            approved: None,
            handled_approval: None,
            pending: None,
            recalled: false,
            done: Vec::new(),
            stages: None,
            suspended: false,
            blind: false,
            silent: None,
            verified: Verified::Unknown,
            webhook: None,
            now,
        }
    }
}

impl Report<'static> {
    /// A report with a verdict, and with what was found by the last poll of the remote.
    pub(crate) fn blank(subject: &Subject<'_>, verdict: Verdict, remote: &Remote) -> Self {
        Self {
            attempted: remote.attempted.as_ref().map(ToString::to_string),
            handled: remote.request.clone(),
            verified: Verified::of(subject, remote),
            webhook: Some(WebhookReport::of(subject, remote)),
            ..Report::of(subject.generation, verdict, subject.io.time())
        }
    }
}
