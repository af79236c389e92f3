//! Approvals: somebody says yes to what a status shows at that moment, and to nothing else. It counts as long as the status goes
//! on showing that, as held by that digest or as approved; what it does not show any more has to be approved anew. It counts for
//! nothing that begins after the annotation was seen to be gone.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::Value;

use super::files::part;
use super::{Counts, Oracle};
use crate::api::git_sync::GitSyncStatus;
use crate::api::{ObjectId, keys};
use crate::sync::simulation::operator::Operator;
use crate::sync::simulation::server::{Name, Server, text};

/// What somebody has said yes to.
#[derive(Debug, Clone)]
pub struct Approval {
    /// Of which GitSync: its name and uid.
    name: String,
    of: String,
    digest: String,
    /// For which commit and spec it was shown.
    key: String,
    /// The objects that were shown.
    uids: BTreeSet<String>,
    /// In spite of whom.
    pub unread: BTreeSet<String>,
    /// When.
    pub tick: u64,
    /// The version of the server before it was annotated.
    version: u64,
    /// Whether the operator that runs has seen that the annotation was gone.
    is_taken_back: bool,
}

fn status(sync: &Value) -> GitSyncStatus {
    serde_json::from_value(sync["status"].clone()).unwrap_or_default()
}

impl Oracle {
    /// Somebody approves this digest of a GitSync.
    pub fn approve(&mut self, tick: u64, sync: &str, digest: &str, server: &Server) {
        self.statuses(server);
        let Some(live) = server.get(&Name::Sync(sync.to_owned())) else { return };
        let Some(pending) = status(live).pending_prune else { return };
        if pending.digest != digest || pending.count == 0 {
            return;
        }
        // What somebody reads are the names: an object that is not among them is not approved.
        let other = |(id, live): (&ObjectId, &Arc<Value>)| {
            let listed = pending.objects.contains(&id.to_string());
            (!listed).then(|| part(text(live, "/metadata/uid")))
        };
        let others: BTreeSet<_> = server.objects().filter_map(other).collect();
        self.approved.push(Approval {
            name: sync.to_owned(),
            of: text(live, "/metadata/uid").to_owned(),
            digest: digest.to_owned(),
            key: pending.input_key,
            uids: pending.uids.into_iter().filter(|uid| !others.contains(uid)).collect(),
            unread: pending.unread.into_iter().collect(),
            tick,
            version: server.version,
            is_taken_back: false,
        });
    }

    /// A reconcile reads its GitSync: what it sees no annotation of any more is taken back.
    pub(super) fn taken_back(&mut self, name: &str, operator: &Operator, counts: &mut Counts) {
        let Some(entry) = operator.entry(name) else { return };
        let said = entry.value.facts.annotations.get(keys::APPROVE_PRUNE);
        if said.is_some_and(|said| !said.is_empty()) {
            return;
        }
        let mine = |it: &&mut Approval| it.name == name && it.of == entry.uid;
        let all = self.approved.iter_mut().filter(mine);
        for approval in all.filter(|it| it.version < entry.version && !it.is_taken_back) {
            approval.is_taken_back = true;
            *counts.entry("approval taken back").or_default() += 1;
        }
    }

    /// Another operator knows what the status says, and has not seen that an annotation was gone.
    pub(super) fn seen_by_nobody(&mut self) {
        self.approved.iter_mut().for_each(|approval| approval.is_taken_back = false);
    }

    /// Takes note of what the statuses have shown since.
    pub(super) fn statuses(&mut self, server: &Server) {
        let from = std::mem::replace(&mut self.read_log, server.log.len());
        if self.approved.is_empty() {
            return;
        }
        for shown in &server.log[from..] {
            let Name::Sync(name) = &shown.name else { continue };
            let Some(live) = &shown.object else { continue };
            if self.is_late(name) {
                // What somebody who is no more has written over is soon shown again.
                continue;
            }
            self.shows(name, &shown.uid, live);
        }
    }

    fn shows(&mut self, name: &str, uid: &str, live: &Arc<Value>) {
        let mine = |approval: &&mut Approval| approval.name == name && approval.of == uid;
        let mut mine = self.approved.iter_mut().filter(mine).peekable();
        if mine.peek().is_none() {
            return;
        }
        let GitSyncStatus { pending_prune, approved_prune, .. } = status(live);
        let approved: BTreeSet<_> = approved_prune.into_iter().flat_map(|all| all.uids).collect();
        for approval in mine {
            let held = pending_prune.as_ref().filter(|held| held.digest == approval.digest);
            let held: BTreeSet<_> = held.into_iter().flat_map(|held| &held.uids).collect();
            approval.uids.retain(|uid| approved.contains(uid) || held.contains(uid));
        }
        self.approved.retain(|approval| !approval.uids.is_empty());
    }

    /// The approvals of a GitSync, by its name and uid, for these inputs that cover an object.
    pub(super) fn covering<'a>(
        &'a self,
        (name, of): (&'a str, &'a str),
        key: &'a str,
        uid: &'a str,
    ) -> impl Iterator<Item = &'a Approval> + 'a {
        let part = part(uid);
        let counts = self.approved.iter().filter(|it| !it.is_taken_back);
        let mine = counts.filter(move |it| it.name == name && it.of == of);
        mine.filter(move |it| it.key == key && it.uids.contains(&part))
    }
}
