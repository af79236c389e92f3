//! What the operator asked of the API server, exactly: the server's own audit log.
//!
//! The server records a request when it receives it and once more when it is done. Others may see what a request did before the
//! second record is written, so a reader waits for it. What counts since a mark was received by the server after it. Only
//! requests of ServiceAccounts outside kube-system are recorded: fixture operators, not the harness itself.

use std::collections::BTreeSet;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use serde_json::Value;

/// A place in the audit log; see [`super::Cluster::audit_mark`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct AuditMark {
    /// Where the log ended.
    at: u64,
    /// When that was.
    time: Timestamp,
}

impl AuditMark {
    /// Before everything.
    pub const START: Self = Self { at: 0, time: Timestamp::UNIX_EPOCH };
}

/// One request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditRecord {
    /// `system:serviceaccount:<namespace>:<name>`.
    pub user: String,
    /// On whose behalf, when impersonated.
    pub impersonated: Option<String>,
    /// In which groups that one was taken to be, sorted.
    pub impersonated_groups: Vec<String>,
    /// The client's User-Agent.
    pub user_agent: String,
    /// In lower case: get, list, watch, create, update, patch, delete, deletecollection.
    pub verb: String,
    /// Plural; empty for paths like /version.
    pub resource: String,
    /// `status`, `scale`, …; empty for the object itself.
    pub subresource: String,
    /// Empty for cluster-wide requests.
    pub namespace: String,
    /// Empty for lists, and for creates that name the object only in their body.
    pub name: String,
    /// HTTP status of the reply.
    pub code: u16,
    /// When the server received it.
    received: Timestamp,
}

impl AuditRecord {
    /// Whether it could have changed something. A review of who asks is created and not stored.
    pub fn is_write(&self) -> bool {
        let writes = ["create", "update", "patch", "delete", "deletecollection"];
        writes.contains(&self.verb.as_str()) && self.resource != "selfsubjectreviews"
    }

    /// Whether it was made by that user, for that user, or by a client whose User-Agent begins so.
    pub fn is_by(&self, who: &str) -> bool {
        self.user == who
            || self.impersonated.as_deref() == Some(who)
            || self.user_agent.starts_with(who)
    }

    /// A line of the log: which request, at which stage.
    fn parse(line: &str) -> Option<(String, String, Self)> {
        let event: Value = serde_json::from_str(line).ok()?;
        let text = |pointer: &str| {
            event.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned()
        };
        let record = Self {
            user: text("/user/username"),
            impersonated: Some(text("/impersonatedUser/username")).filter(|name| !name.is_empty()),
            impersonated_groups: event
                .pointer("/impersonatedUser/groups")
                .and_then(|groups| serde_json::from_value(groups.clone()).ok())
                .map(|mut groups: Vec<String>| {
                    groups.sort();
                    groups
                })
                .unwrap_or_default(),
            user_agent: text("/userAgent"),
            verb: text("/verb"),
            resource: text("/objectRef/resource"),
            subresource: text("/objectRef/subresource"),
            namespace: text("/objectRef/namespace"),
            name: text("/objectRef/name"),
            code: event
                .pointer("/responseStatus/code")
                .and_then(Value::as_u64)
                .and_then(|code| u16::try_from(code).ok())
                .unwrap_or(0),
            received: text("/requestReceivedTimestamp").parse().ok()?,
        };
        Some((text("/auditID"), text("/stage"), record))
    }
}

/// The end of the log, now. The file appears with the first record.
pub(super) fn end(log: &Path) -> AuditMark {
    let at = std::fs::metadata(log).map_or(0, |meta| meta.len());
    AuditMark { at, time: Timestamp::now() }
}

/// Longest wait for requests that are received and not done: some hang for minutes, behind a webhook for example.
const PATIENCE: Duration = Duration::from_secs(2);

/// All requests that the server received after `since` and that are done. Waits for those that are under way now.
pub(super) fn read(log: &Path, since: AuditMark) -> Vec<AuditRecord> {
    let until = Instant::now() + PATIENCE;
    let (mut done, awaited) = records(log, since);
    let mut pending = awaited.clone();
    while !awaited.is_disjoint(&pending) && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(5));
        (done, pending) = records(log, since);
    }
    done
}

/// The requests that are done, in the order in which they were, and those that are not, by their ids.
fn records(log: &Path, since: AuditMark) -> (Vec<AuditRecord>, BTreeSet<String>) {
    let Ok(mut file) = std::fs::File::open(log) else { return Default::default() };
    let mut bytes = Vec::new();
    file.seek(SeekFrom::Start(since.at.saturating_sub(1))).expect("seek in the audit log");
    file.read_to_end(&mut bytes).expect("read the audit log");
    if since.at > 0 {
        // Half of a record may have been written by then. Its request is an earlier one.
        let whole = bytes.iter().position(|byte| *byte == b'\n').map_or(bytes.len(), |at| at + 1);
        bytes.drain(..whole);
    }
    let text = String::from_utf8_lossy(&bytes);
    let (mut done, mut pending) = (Vec::new(), BTreeSet::new());
    for line in text.split_inclusive('\n').filter(|line| line.ends_with('\n')) {
        let (id, stage, record) =
            AuditRecord::parse(line).unwrap_or_else(|| panic!("no audit record: {line}"));
        if record.received < since.time {
            continue;
        }
        if stage == "RequestReceived" {
            // A watch is done when it ends.
            if record.verb != "watch" {
                pending.insert(id);
            }
        } else {
            pending.remove(&id);
            done.push(record);
        }
    }
    (done, pending)
}
