//! What the operator asked of the API server, exactly: the server's own audit log.
//!
//! The server writes a record before its client has the reply, so a count taken after a call holds that call. Others may see
//! what a request did before its record is written: what counts since a mark was received by the server after it. Only
//! requests of ServiceAccounts outside kube-system are recorded: fixture operators, not the harness itself.

use std::io::{Read, Seek, SeekFrom};
use std::path::Path;

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
    /// Whether it could have changed something.
    pub fn is_write(&self) -> bool {
        matches!(self.verb.as_str(), "create" | "update" | "patch" | "delete" | "deletecollection")
    }

    /// Whether it was made by that user, for that user, or by a client whose User-Agent begins so.
    pub fn is_by(&self, who: &str) -> bool {
        self.user == who
            || self.impersonated.as_deref() == Some(who)
            || self.user_agent.starts_with(who)
    }

    fn parse(line: &str) -> Option<Self> {
        let event: Value = serde_json::from_str(line).ok()?;
        let text = |pointer: &str| {
            event.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned()
        };
        Some(Self {
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
        })
    }
}

/// The end of the log, now. The file appears with the first record.
pub(super) fn end(log: &Path) -> AuditMark {
    let at = std::fs::metadata(log).map_or(0, |meta| meta.len());
    AuditMark { at, time: Timestamp::now() }
}

/// All whole records of requests that the server received after `since`.
pub(super) fn read(log: &Path, since: AuditMark) -> Vec<AuditRecord> {
    let Ok(mut file) = std::fs::File::open(log) else { return Vec::new() };
    let mut text = String::new();
    file.seek(SeekFrom::Start(since.at)).expect("seek in the audit log");
    file.read_to_string(&mut text).expect("read the audit log");
    text.split_inclusive('\n')
        .filter(|line| line.ends_with('\n'))
        .map(|line| AuditRecord::parse(line).unwrap_or_else(|| panic!("no audit record: {line}")))
        .filter(|record| record.received >= since.time)
        .collect()
}
