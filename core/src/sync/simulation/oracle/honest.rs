//! Honest statuses: what is said to be applied is applied, and what stands there is what was said last.

use serde_json::Value;

use super::files::{Said, folder_of, has_errors, mark_of, meant, part, said};
use super::{Counts, Digest, Oracle, Writer};
use crate::api::git_sync::GitSyncStatus;
use crate::api::{ObjectId, keys};
use crate::sync::io::effect::Call;
use crate::sync::properties::repository::{Tree, labels, spec};
use crate::sync::simulation::operator::{Operator, watch_of};
use crate::sync::simulation::server::{Name, Server, annotation, is_deleting, is_paused, text};

impl Oracle {
    /// The operator is about to say this; whether there is anybody of whom it says it.
    pub(super) fn tells(
        &mut self,
        name: &str,
        (uid, status): (&str, &GitSyncStatus),
        operator: &Operator,
        (server, trees): (&Server, &[Tree]),
        counts: &mut Counts,
    ) -> bool {
        let live = server.get(&Name::Sync(name.to_owned()));
        // What is said of one that is no more comes to nothing.
        let Some(live) = live.filter(|sync| text(sync, "/metadata/uid") == uid) else {
            return false;
        };
        let base = operator.sync(name).and_then(|sync| sync.status.as_ref()?.prune_base);
        self.base_grows(name, base, status, trees);
        let looked = self.looked.get(name);
        let pending = status.pending_prune.as_ref().filter(|pending| pending.count > 0);
        if let (true, Some(pending)) = (looked.is_some_and(|looked| looked.lost), pending) {
            let found = looked.and_then(|looked| looked.found).map_or(0, |(head, _)| head);
            let mine = pending.input_key.starts_with(&super::commit(found));
            let new = operator.sync(name).and_then(|sync| sync.status.clone()?.pending_prune);
            let new = new.is_none_or(|old| old.digest != pending.digest);
            assert!(!mine || !new, "{name} offers to delete what may be in a broken file");
        }
        if status.pending_prune.as_ref().is_some_and(|pending| pending.requires_approval) {
            self.holds(name, trees, counts);
        }
        // What was said before and is only said again was judged before.
        let said = self.said.get(name).map(|request| &request.call);
        let again = matches!(said, Some(Call::Status { status: said, .. }) if **said == *status);
        let ready = status.conditions.iter().find(|c| c.type_ == "Ready");
        let ready = ready.is_some_and(|ready| ready.status == "True");
        if let Some(pending) = pending.filter(|_| !again) {
            // What a person is shown and what the digest stands for are the same objects.
            for (id, live) in server.objects() {
                let shown = pending.objects.contains(&id.to_string()) && !self.is_news(name, id);
                let mine = annotation(live, keys::OWNER) == Some(&*mark_of(uid, name, id));
                let named = pending.uids.contains(&part(text(live, "/metadata/uid")));
                assert!(!shown || !mine || named, "{name} shows {id}, and its digest is of others");
            }
        }
        let suspended = status.conditions.iter().any(|c| c.type_ == "Suspended");
        let revision = status.last_applied_revision.as_deref().unwrap_or_default();
        if ready && !suspended && !again {
            let now = serde_json::to_value(status).expect("a status");
            let same = live["status"]["conditions"] == now["conditions"]
                && live["status"]["lastAppliedRevision"] == now["lastAppliedRevision"];
            if !same {
                let problem = self.lie(name, (revision, &now), server, trees, true);
                assert!(problem.is_none(), "{name} is Ready: {}", problem.unwrap_or_default());
            }
        }
        true
    }

    /// Whether a change of an object cannot have been known to the reconcile that is under way.
    fn is_news(&self, name: &str, id: &ObjectId) -> bool {
        let (Some((at, writer)), Some(pass)) = (self.written.get(id), self.passes.get(name)) else {
            return false;
        };
        let shown = pass.shown[watch_of(&Name::Object(id.clone()))];
        *at > shown && *writer != Writer::Coroutine(pass.number)
    }

    /// What is not so although it is said that this commit is applied. While a reconcile goes on, what has changed since it began is
    /// left out; when nothing goes on, everything counts.
    fn lie(
        &self,
        name: &str,
        (revision, status): (&str, &Value),
        server: &Server,
        trees: &[Tree],
        passing: bool,
    ) -> Option<String> {
        let head = Self::commit_of(revision);
        let Some(tree) = trees.get(head) else { return Some(format!("{revision} never was")) };
        let sync = server.get(&Name::Sync(name.to_owned()))?;
        let (folder, uid) = (folder_of(sync), text(sync, "/metadata/uid"));
        let generation = sync["metadata"]["generation"].as_i64();
        if passing && self.passes.get(name).is_none_or(|pass| pass.generation != generation) {
            // Its spec was changed since.
            return None;
        }
        if has_errors(tree, folder) {
            return Some(format!("commit {head} has errors"));
        }
        let lists = |list: &str, id: &ObjectId| {
            let all = status[list].as_array().into_iter().flatten();
            all.filter_map(Value::as_str).any(|one| one == id.to_string())
        };
        let news = |id: &ObjectId| passing && self.is_news(name, id);
        for (id, says) in meant(tree, folder) {
            let Said::Wanted(content) = says else { continue };
            if news(&id) {
                continue;
            }
            let Some(live) = server.get(&Name::Object(id.clone())) else {
                return Some(format!("{id} is not there"));
            };
            if is_deleting(live) {
                return Some(format!("{id} is being deleted"));
            }
            if is_paused(live) {
                if !lists("paused", &id) {
                    return Some(format!("{id} is paused, and that is not told"));
                }
                continue;
            }
            if annotation(live, keys::OWNER) != Some(&*mark_of(uid, name, &id)) {
                return Some(format!("{id} is somebody else's"));
            }
            let labelled = labels(content).iter().all(|(key, value)| {
                live["metadata"]["labels"].get(key).and_then(Value::as_str) == Some(value)
            });
            if (live["spec"] != spec(&id, content) || !labelled) && !lists("drifted", &id) {
                return Some(format!("{id} is {}", live["spec"]));
            }
        }
        let prunes = sync["spec"]["prune"]["enabled"] != false;
        for (id, live) in server.objects().filter(|_| prunes) {
            let mine = annotation(live, keys::OWNER) == Some(&*mark_of(uid, name, id));
            let disabled = |key| annotation(live, key) == Some(keys::DISABLED);
            let free = !is_paused(live) && !disabled(keys::PRUNE);
            let unwanted = said(tree, folder, id) == Said::Nothing;
            if mine && free && unwanted && !news(id) {
                let going = if is_deleting(live) { ", being deleted" } else { "" };
                return Some(format!("{id} is still there{going}"));
            }
        }
        None
    }

    /// Nothing goes on, and all is shown: what stands in the statuses is true.
    pub fn stands(&self, name: &str, server: &Server, trees: &[Tree]) -> Option<String> {
        let sync = server.get(&Name::Sync(name.to_owned()))?;
        let status = &sync["status"];
        let says = |kind: &str| {
            let mut conditions = status["conditions"].as_array().into_iter().flatten();
            conditions.any(|one| one["type"] == kind && one["status"] == "True")
        };
        if is_deleting(sync) || sync["spec"]["suspend"] == true || !says("Ready") {
            return None;
        }
        if says("Suspended") {
            return Some("it says to be suspended".into());
        }
        let revision = status["lastAppliedRevision"].as_str().unwrap_or_default();
        let uid = text(sync, "/metadata/uid");
        let of = |(id, object): &(&ObjectId, &std::sync::Arc<Value>)| {
            annotation(object, keys::OWNER) == Some(&*mark_of(uid, name, id))
        };
        let total = server.objects().filter(of).count();
        if status["objects"]["total"].as_u64() != Some(total as u64) {
            return Some(format!("it has {total} objects, and says {}", status["objects"]));
        }
        self.lie(name, (revision, status), server, trees, false)
    }

    /// Whether what stands there was said by somebody who is no more.
    pub fn is_late(&self, name: &str) -> bool {
        self.late.contains(name)
    }

    /// What was held for a commit is held no more once another one was planned with. When the branch goes back, it is judged anew.
    fn lets_go(&mut self, name: &str, uid: &str, status: &GitSyncStatus, writer: Writer) {
        let found = self.looked.get(name).and_then(|looked| looked.found);
        let (Writer::Coroutine(_), Some((head, _))) = (writer, found) else { return };
        let (newest, shown) = (super::commit(head), status.pending_prune.as_ref());
        self.held.retain(|(of, key), _| {
            of != uid
                || key.starts_with(&newest)
                || shown.is_some_and(|shown| shown.input_key == *key)
        });
    }

    /// A status has arrived: from now on it is shown.
    pub(super) fn says(
        &mut self,
        (name, uid): (&str, &str),
        status: &GitSyncStatus,
        writer: Writer,
        server: &Server,
        counts: &mut Counts,
    ) {
        if server.get(&Name::Sync(name.to_owned())).is_none() {
            return;
        }
        if writer == Writer::Late {
            self.late.insert(name.to_owned());
        } else {
            self.late.remove(name);
        }
        if !status.quarantined.is_empty() {
            *counts.entry("quarantine").or_default() += 1;
        }
        if !status.drifted.is_empty() {
            *counts.entry("drift is only told").or_default() += 1;
        }
        let ready = status.conditions.iter().find(|c| c.type_ == "Ready");
        if ready.is_some_and(|ready| ready.reason == "DependencyNotReady") {
            *counts.entry("waits for another GitSync (dependsOn)").or_default() += 1;
        }
        if ready.is_some_and(|ready| ready.message.contains("not all that was deleted is gone")) {
            *counts.entry("waits for the end of what it has deleted").or_default() += 1;
        }
        if ready.is_some_and(|ready| ready.reason == "InvalidSpec") {
            *counts.entry("GitSync does not parse").or_default() += 1;
        }
        self.pending.remove(name);
        self.lets_go(name, uid, status, writer);
        let Some(pending) = &status.pending_prune else { return };
        let uids: std::collections::BTreeSet<_> = pending.uids.iter().cloned().collect();
        if pending.requires_approval {
            *counts.entry("held for an approval").or_default() += 1;
            let held = self.held.entry((uid.to_owned(), pending.input_key.clone()));
            held.or_default().extend(uids.iter().cloned());
        } else {
            *counts.entry("held until it is proven").or_default() += 1;
        }
        if pending.count == 0 || pending.digest.is_empty() {
            return;
        }
        self.pending.insert(name.to_owned(), pending.digest.clone());
        let mut digest = Digest {
            of: uid.to_owned(),
            key: pending.input_key.clone(),
            uids,
            unread: pending.unread.iter().cloned().collect(),
            wider: None,
        };
        let known = self.digests.get(&pending.digest);
        let mut fewer = known.is_none_or(|old| digest.uids.is_subset(&old.uids));
        // Whoever has not been shown yet what came late speaks of what was shown before.
        let shown = self.passes.get(name).map_or(0, |pass| pass.shown[0]);
        let wider = known.and_then(|old| old.wider.clone()).filter(|(at, _)| shown < *at);
        fewer |= wider.is_some_and(|(_, wider)| digest.uids.is_subset(&wider));
        if let (Writer::Late, Some(old)) = (writer, known) {
            digest.wider = Some((server.log.len(), old.uids.clone()));
        }
        if writer == Writer::Late && !fewer {
            // It stands for those that it was shown with since.
            return;
        }
        if let Some(old) = self.digests.insert(pending.digest.clone(), digest.clone()) {
            let same = (&old.of, &old.key) == (&digest.of, &digest.key);
            assert!(same && fewer, "{name}: one digest for two sets of deletes");
            assert!(old.unread == digest.unread, "{name}: one digest in spite of others");
        }
    }
}
