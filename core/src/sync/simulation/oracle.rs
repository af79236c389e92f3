//! What users may rely on, judged by the truth: what the files at the remote mean, what the API server holds, what a person was
//! shown and has said yes to. It shares no code with the machine.

#![allow(clippy::unused_self)] // its rules read alike

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::Value;

use super::operator::{Operator, WATCHES};
use super::server::{Name, Server, annotation, is_deleting, is_paused, text};
use super::{Counts, SYNCS, commit, number};
use crate::api::git_sync::DriftPolicy;
use crate::api::{ObjectId, keys};
use crate::dice::Dice;
use crate::sync::machine::effect::Call;
use crate::sync::properties::repository::{Health, NAMES, Tree, id, spec};

/// What the files of a folder say of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Said {
    /// That it is wanted so.
    Wanted(usize),
    /// Something that nobody can read.
    Hidden,
    /// Nothing.
    Nothing,
}

fn said(tree: &Tree, folder: &str, id: &ObjectId) -> Said {
    let files: Vec<_> = tree.below(folder).filter(|(_, f)| f.objects.contains_key(id)).collect();
    match files.as_slice() {
        [] => Said::Nothing,
        [(_, file)] if file.health == Health::Good => Said::Wanted(file.objects[id]),
        _ => Said::Hidden,
    }
}

fn folder_of(sync: &Value) -> &str {
    text(sync, "/spec/path")
}

/// The part of a uid that statuses name.
fn part(uid: &str) -> String {
    uid.chars().filter(|c| *c != '-').take(12).collect()
}

/// A digest that was shown.
#[derive(Debug, Clone)]
struct Digest {
    /// What it was shown for.
    key: String,
    /// Of which objects.
    uids: BTreeSet<String>,
    /// In spite of whom.
    unread: BTreeSet<String>,
}

/// What an operator's looks at the remote have told it of a GitSync.
#[derive(Debug, Clone, Copy, Default)]
struct Looked {
    /// What the look that is under way has seen, and when.
    sees: Option<(usize, u64)>,
    /// The commit that was read last, and when the remote first showed it.
    found: Option<(usize, u64)>,
    /// When the remote showed what the last good look has read.
    seen: Option<u64>,
}

/// See the module.
#[derive(Default)]
pub struct Oracle {
    /// Since when a GitSync has wanted an object all the time, or hidden it: by its name.
    wanted: BTreeMap<(String, ObjectId), (u64, bool)>,
    /// When a GitSync was deleted.
    deleted: BTreeMap<String, u64>,
    looked: BTreeMap<String, Looked>,
    /// In which file this operator has read an object last, and what it was there.
    files: BTreeMap<(String, ObjectId), (String, usize)>,
    digests: BTreeMap<String, Digest>,
    /// What is shown of each GitSync now.
    pending: BTreeMap<String, String>,
    /// What was approved, and when.
    approved: BTreeMap<(String, String), u64>,
    /// What was held and needs an approval: by uid of the GitSync and what it was held for.
    held: BTreeMap<(String, String), BTreeSet<String>>,
    /// What was changed by hand since the operator wrote it.
    by_hand: BTreeSet<ObjectId>,
    /// What this operator has applied last of an object: for whom, and what says what it was.
    applied: BTreeMap<ObjectId, (String, String)>,
}

/// A request in a few words.
pub fn short(call: &Call) -> String {
    match call {
        Call::Rehearse { id, .. } => format!("rehearse {id}"),
        Call::Apply { id, mode, .. } => format!("apply {id} {mode:?}"),
        Call::ReplaceSpec { id, version, .. } => format!("replace the spec of {id} at {version}"),
        Call::Get { id } => format!("get {id}"),
        Call::Delete { id, version, .. } => format!("delete {id} at {version}"),
        Call::GetSync { .. } => "get itself".into(),
        Call::Status { status, .. } => {
            let ready = status.conditions.iter().find(|c| c.type_ == "Ready");
            let said = ready.map(|c| format!("{} {}: {}", c.status, c.reason, c.message));
            let pending = status.pending_prune.as_ref().map(|p| (&p.digest, &p.objects));
            format!("status {} {pending:?}", said.unwrap_or_default())
        }
        Call::Finalizers { finalizers, .. } => format!("finalizers {finalizers:?}"),
        other => format!("{other:?}"),
    }
}

impl Oracle {
    /// The truth is now this.
    pub fn observe(&mut self, tick: u64, server: &Server, tree: &Tree) {
        for (name, _, _) in SYNCS {
            let sync = server.get(&Name::Sync(name.into()));
            let alive = sync.filter(|sync| !is_deleting(sync));
            match sync {
                Some(sync) if is_deleting(sync) => {
                    self.deleted.entry(name.into()).or_insert(tick);
                }
                _ => drop(self.deleted.remove(name)),
            }
            for object in NAMES.map(id) {
                let says = alive.map_or(Said::Nothing, |sync| said(tree, folder_of(sync), &object));
                let key = (name.to_owned(), object);
                if says == Said::Nothing {
                    self.wanted.remove(&key);
                } else {
                    let legible = matches!(says, Said::Wanted(_));
                    let known = self.wanted.entry(key).or_insert((tick, legible));
                    // Legible all the time, or hidden for a while.
                    known.1 &= legible;
                }
            }
        }
    }

    /// Another operator knows nothing.
    pub fn restarted(&mut self) {
        self.files.clear();
        self.applied.clear();
        self.looked.clear();
    }

    pub fn by_hand(&mut self, id: &ObjectId) {
        self.by_hand.insert(id.clone());
    }

    /// A remote has shown a commit to a look.
    pub fn looks(&mut self, name: &str, head: usize, tick: u64) {
        self.looked.entry(name.to_owned()).or_default().sees = Some((head, tick));
    }

    /// That look has ended.
    pub fn looked(&mut self, name: &str, fails: bool, folder: &str, trees: &[Tree]) {
        let looked = self.looked.entry(name.to_owned()).or_default();
        let Some((head, tick)) = looked.sees.take() else { return };
        if fails {
            return;
        }
        looked.seen = Some(tick);
        for object in NAMES.map(id) {
            let good = trees[head].below(folder).find(|(_, file)| {
                file.health == Health::Good && file.objects.contains_key(&object)
            });
            if let Some((path, file)) = good {
                let content = file.objects[&object];
                self.files.insert((name.to_owned(), object), (path.clone(), content));
            }
        }
        if looked.found.is_none_or(|(old, _)| old != head) {
            looked.found = Some((head, tick));
        }
    }

    /// What a person can approve of a GitSync now.
    pub fn shown(&self, sync: &str) -> Option<String> {
        self.pending.get(sync).cloned()
    }

    pub fn any_digest(&self, dice: &mut Dice) -> Option<String> {
        let all: Vec<_> = self.digests.keys().collect();
        (!all.is_empty()).then(|| all[dice.roll(all.len())].clone())
    }

    pub fn approve(&mut self, tick: u64, sync: &str, digest: &str) {
        self.approved.insert((sync.to_owned(), digest.to_owned()), tick);
    }

    /// The approvals of a GitSync for these inputs that cover an object.
    fn covering<'a>(
        &'a self,
        sync: &'a str,
        key: &'a str,
        uid: &'a str,
    ) -> impl Iterator<Item = &'a Digest> + 'a {
        let mine = self.approved.keys().filter(move |(whose, _)| whose == sync);
        let digests = mine.filter_map(|(_, digest)| self.digests.get(digest));
        digests.filter(move |digest| digest.key == key && digest.uids.contains(&part(uid)))
    }

    /// The operator asks for this.
    pub fn asked(
        &mut self,
        name: &str,
        call: &Call,
        operator: &Operator,
        (server, trees): (&Server, &[Tree]),
        counts: &mut Counts,
    ) {
        match call {
            Call::Delete { id, uid, .. } => {
                let found = self.looked.get(name).and_then(|looked| looked.found);
                let tree = &trees[found.map_or(0, |(head, _)| head)];
                self.deletes(name, (id, uid), operator, tree, counts);
            }
            Call::Apply { id, manifest, .. } => {
                let live = server.get(&Name::Object(id.clone()));
                let Some((sync, live)) = operator.sync(name).zip(live) else { return };
                // The definition is the one that was applied: only somebody else can have changed the object.
                let said = manifest["metadata"]["annotations"].get(keys::APPLIED);
                let said = said.and_then(Value::as_str).unwrap_or_default();
                let same =
                    self.applied.get(id).is_some_and(|(who, was)| who == name && was == said);
                let uid = sync.metadata.uid.clone().unwrap_or_default();
                let mark = format!("{uid}/team/{name}/{}/team/{}", id.kind, id.name);
                let ours = annotation(live, keys::OWNER) == Some(&*mark);
                if same && ours && self.by_hand.contains(id) {
                    *counts.entry("change by hand undone").or_default() += 1;
                    let report = sync.spec.drift == DriftPolicy::Report;
                    assert!(!report, "{name} undoes a change of {id}, which is only to be told");
                }
            }
            // What is said of one that is no more comes to nothing.
            Call::Status { uid, .. }
                if server
                    .get(&Name::Sync(name.to_owned()))
                    .is_none_or(|sync| text(sync, "/metadata/uid") != uid) => {}
            Call::Status { status, .. } => {
                let ready = status.conditions.iter().find(|c| c.type_ == "Ready");
                let ready = ready.is_some_and(|ready| ready.status == "True");
                let suspended = status.conditions.iter().any(|c| c.type_ == "Suspended");
                let revision = status.last_applied_revision.as_deref().unwrap_or_default();
                if ready && !suspended {
                    self.is_honest(name, revision, server, trees);
                }
            }
            _ => {}
        }
    }

    /// No delete of what somebody wants, hides, or was not asked about.
    fn deletes(
        &self,
        name: &str,
        (id, uid): (&ObjectId, &str),
        operator: &Operator,
        tree: &Tree,
        counts: &mut Counts,
    ) {
        let Some(sync) = operator.sync(name) else {
            panic!("{name} is not there and deletes {id}")
        };
        let looked = self.looked.get(name).copied().unwrap_or_default();
        let generation = sync.metadata.generation.unwrap_or_default();
        let ends = sync.metadata.deletion_timestamp.is_some();
        let found = looked.found.map_or(0, |(head, _)| head);
        let key = format!("{} {} {generation}", commit(found), sync.spec.path);
        let covering: Vec<_> = self.covering(name, &key, uid).collect();
        if ends {
            *counts.entry("delete at the end of a GitSync").or_default() += 1;
        } else {
            *counts.entry("delete").or_default() += 1;
            let mine = self.wanted.get(&(name.to_owned(), id.clone()));
            if let (Some((since, legible)), Some(seen)) = (mine, looked.seen)
                && *since <= seen
            {
                // What a broken file hides goes only when somebody has said so of just this object.
                assert!(!legible, "{name} deletes {id}, which it wants itself");
                assert!(!covering.is_empty(), "{name} deletes {id}, which it hides itself");
                let file = self.files.get(&(name.to_owned(), id.clone()));
                let broken = file.and_then(|(file, _)| tree.files.get(file));
                let there = broken.is_some_and(|file| file.objects.contains_key(id));
                assert!(!there, "{name} deletes {id}, whose file is broken");
                *counts.entry("delete in spite of errors").or_default() += 1;
            }
            let none = "0%";
            let most = serde_json::to_value(&sync.spec.prune.max_deletions).unwrap_or_default();
            assert!(most != none || !covering.is_empty(), "{id} goes and nobody has said yes");
            assert!(sync.spec.prune.enabled, "{id} goes although pruning is off");
            let sync_uid = sync.metadata.uid.clone().unwrap_or_default();
            let held = self.held.get(&(sync_uid, key.clone()));
            if held.is_some_and(|held| held.contains(&part(uid))) {
                *counts.entry("held delete goes after its approval").or_default() += 1;
                assert!(!covering.is_empty(), "{id} was held, and nobody has said yes");
            }
        }
        assert!(!sync.spec.suspend, "{name} is suspended and deletes {id}");
        for (kind, watch) in WATCHES.iter().zip(&operator.watches) {
            let unread = format!("kind {kind}");
            let knew = covering.iter().any(|digest| digest.unread.contains(&unread));
            assert!(!watch.is_down || knew, "{name} deletes {id} while nothing is seen of {kind}");
        }
        let since = match self.deleted.get(name) {
            Some(tick) if ends => *tick,
            _ => looked.found.map_or(0, |(_, tick)| tick),
        };
        for (other, _, _) in SYNCS.iter().filter(|(other, _, _)| *other != name) {
            let Some((wanted, legible)) = self.wanted.get(&((*other).to_owned(), id.clone()))
            else {
                continue;
            };
            let known = operator.sync(other);
            let reads = known.as_ref().is_some_and(|other| {
                !other.spec.suspend && other.metadata.deletion_timestamp.is_none()
            });
            let seen = self.looked.get(*other).and_then(|looked| looked.seen);
            let has_read = seen.is_some_and(|seen| *wanted <= seen);
            if (*wanted > since && !has_read) || !reads {
                continue;
            }
            // Somebody has said yes although the other one could not be read.
            let (unread, file) = (format!("GitSync {other}"), format!("GitSync {other}: "));
            let knows = |name: &String| *name == unread || name.starts_with(&file);
            let knew = covering.iter().any(|digest| digest.unread.iter().any(knows));
            if knew && !(has_read && *legible) {
                *counts.entry("delete in spite of somebody unread").or_default() += 1;
                continue;
            }
            panic!(
                "{name} deletes {id}, which {other} {}",
                if *legible { "wants" } else { "hides" }
            );
        }
    }

    /// All of the commit that a GitSync says to have applied is there as it says, but for what somebody has just changed.
    fn is_honest(&self, name: &str, revision: &str, server: &Server, trees: &[Tree]) {
        let hex = revision.rsplit(':').next().unwrap_or_default();
        let tree = trees.get(number(hex)).unwrap_or_else(|| panic!("{revision} never was"));
        let Some(sync) = server.get(&Name::Sync(name.to_owned())) else { return };
        let (folder, uid) = (folder_of(sync), text(sync, "/metadata/uid"));
        for id in NAMES.map(id) {
            let says = said(tree, folder, &id);
            assert!(says != Said::Hidden, "{name} is Ready and cannot read {id}");
            let Said::Wanted(content) = says else { continue };
            if self.by_hand.contains(&id) {
                continue;
            }
            let live = server.get(&Name::Object(id.clone()));
            let Some(live) = live else { panic!("{name} is Ready and {id} is not there") };
            if is_paused(live) {
                continue;
            }
            let mark = format!("{uid}/team/{name}/{}/team/{}", id.kind, id.name);
            assert_eq!(annotation(live, keys::OWNER), Some(&*mark), "{name} is Ready, {id}");
            assert_eq!(live["spec"], spec(&id, content), "{name} is Ready, {id}");
        }
    }

    /// A request arrives, and is about to be carried out.
    pub fn arrives(&mut self, sync: &str, call: &Call, server: &Server, counts: &mut Counts) {
        let (Call::Apply { id, .. } | Call::ReplaceSpec { id, .. } | Call::Delete { id, .. }) =
            call
        else {
            return;
        };
        let Some(live) = server.get(&Name::Object(id.clone())) else { return };
        // Only if the server lets it through: what it says of uid and version decides.
        let through = match call {
            Call::Apply { mode, .. } => match mode {
                crate::cluster::write::Mode::Create => false,
                crate::cluster::write::Mode::Update { uid, version } => {
                    text(live, "/metadata/uid") == uid
                        && version.is_none_or(|v| {
                            text(live, "/metadata/resourceVersion") == v.to_string()
                        })
                }
            },
            Call::ReplaceSpec { version, .. } => {
                text(live, "/metadata/resourceVersion") == version.to_string()
            }
            Call::Delete { uid, version, .. } => {
                text(live, "/metadata/uid") == uid
                    && text(live, "/metadata/resourceVersion") == version.to_string()
            }
            _ => false,
        };
        if !through {
            return;
        }
        assert!(!is_paused(live), "{sync} writes {id}, which is paused");
        let mark = annotation(live, keys::OWNER).unwrap_or_default();
        let me = server.get(&Name::Sync(sync.to_owned()));
        let uid = me.map(|me| text(me, "/metadata/uid")).unwrap_or_default();
        let tail = format!("team/{sync}/{}/team/{}", id.kind, id.name);
        let mine = mark == format!("{uid}/{tail}");
        if matches!(call, Call::Delete { .. }) {
            assert!(mine || me.is_none(), "{sync} deletes {id}, which is marked {mark:?}");
            let protected = annotation(live, keys::PRUNE) == Some(keys::DISABLED);
            assert!(!protected, "{sync} deletes {id}, which is protected");
            return;
        }
        if mine || mark.split_once('/').is_some_and(|(_, rest)| rest == tail) {
            return;
        }
        if annotation(live, keys::ADOPT_BY) == Some(sync) {
            *counts.entry("adopted by annotation").or_default() += 1;
            return;
        }
        let from = SYNCS.iter().find(|(other, _, _)| {
            let other_uid = server.get(&Name::Sync((*other).into()));
            let other_uid = other_uid.map(|other| text(other, "/metadata/uid")).unwrap_or_default();
            mark == format!("{other_uid}/team/{other}/{}/team/{}", id.kind, id.name)
        });
        assert!(from.is_some() || me.is_none(), "{sync} writes {id}, which is marked {mark:?}");
        *counts.entry("handed over").or_default() += 1;
    }

    /// A request was carried out and has changed something.
    pub fn arrived(
        &mut self,
        (sync, late): (&str, bool),
        call: &Call,
        server: &Server,
        counts: &mut Counts,
    ) {
        if let (Call::Apply { id, manifest, .. }, false) = (call, late) {
            let said = manifest["metadata"]["annotations"].get(keys::APPLIED);
            let said = said.and_then(Value::as_str).unwrap_or_default().to_owned();
            self.applied.insert(id.clone(), (sync.to_owned(), said));
        }
        match call {
            Call::Apply { id, .. } | Call::ReplaceSpec { id, .. } | Call::Delete { id, .. } => {
                self.by_hand.remove(id);
            }
            Call::Status { name, uid, status, .. } => {
                if server.get(&Name::Sync(name.clone())).is_none() {
                    return;
                }
                if !status.quarantined.is_empty() {
                    *counts.entry("quarantine").or_default() += 1;
                }
                self.pending.remove(name);
                let Some(pending) = &status.pending_prune else { return };
                let uids: BTreeSet<_> = pending.uids.iter().cloned().collect();
                if pending.requires_approval {
                    *counts.entry("held for an approval").or_default() += 1;
                    let held = self.held.entry((uid.clone(), pending.input_key.clone()));
                    held.or_default().extend(uids.iter().cloned());
                } else {
                    *counts.entry("held until it is proven").or_default() += 1;
                }
                if pending.count == 0 || pending.digest.is_empty() {
                    return;
                }
                self.pending.insert(name.clone(), pending.digest.clone());
                let digest = Digest {
                    key: pending.input_key.clone(),
                    uids,
                    unread: pending.unread.iter().cloned().collect(),
                };
                self.digests.insert(pending.digest.clone(), digest);
            }
            _ => {}
        }
    }

    /// What is broken and known heals: an object whose file cannot be read any more is as it was applied last, whatever
    /// somebody has done to it.
    pub fn heals(&self, server: &Server, tree: &Tree, counts: &mut Counts) {
        for ((name, id), (file, content)) in &self.files {
            let Some(sync) = server.get(&Name::Sync(name.clone())) else { continue };
            let plain = !is_deleting(sync)
                && sync["spec"]["suspend"] != true
                && sync["spec"]["drift"] != "Report";
            let broken = tree.files.get(file).filter(|file| file.health != Health::Good);
            let hides = broken.is_some_and(|file| file.objects.contains_key(id));
            let folder = folder_of(sync);
            let elsewhere = tree.files.iter().filter(|(path, _)| *path != file);
            let elsewhere = elsewhere.filter(|(_, file)| file.objects.contains_key(id)).count() > 0;
            if !plain || !hides || elsewhere || !file.starts_with(folder) {
                continue;
            }
            if self.applied.get(id).is_none_or(|(who, _)| who != name) {
                continue;
            }
            let live = server.get(&Name::Object(id.clone()));
            let uid = text(sync, "/metadata/uid");
            let mark = format!("{uid}/team/{name}/{}/team/{}", id.kind, id.name);
            if live.is_some_and(|live| {
                is_paused(live)
                    || is_deleting(live)
                    || annotation(live, keys::OWNER) != Some(&*mark)
            }) {
                continue;
            }
            *counts.entry("quarantined object looked at").or_default() += 1;
            let good = spec(id, *content);
            let found = live.map(|live| &live["spec"]);
            assert_eq!(found, Some(&good), "{id} of {name} does not heal");
        }
    }

    /// What is not yet as it is at rest: the cluster is as Git says, and the statuses say so.
    pub fn unrest(&self, server: &Server, trees: &[Tree], head: usize) -> Option<String> {
        let tree = &trees[head];
        let mut wanted = BTreeMap::new();
        for (name, _, _) in SYNCS {
            let Some(sync) = server.get(&Name::Sync(name.into())) else {
                return Some(format!("{name} is not there"));
            };
            let status = &sync["status"];
            let conditions = status["conditions"].as_array().into_iter().flatten();
            let mut ready = conditions.filter(|condition| condition["type"] == "Ready");
            let revision = status["lastAppliedRevision"].as_str().unwrap_or_default();
            if ready.next().is_none_or(|ready| ready["status"] != "True")
                || !revision.ends_with(&commit(head))
                || status["history"][0]["outcome"] != "Applied"
                || status["observedGeneration"] != sync["metadata"]["generation"]
            {
                return Some(format!("{name}: {status:#}"));
            }
            let uid = text(sync, "/metadata/uid");
            for (id, content) in tree.below(folder_of(sync)).flat_map(|(_, file)| &file.objects) {
                let mark = format!("{uid}/team/{name}/{}/team/{}", id.kind, id.name);
                wanted.insert(id.clone(), (mark, spec(id, *content)));
            }
            let total = wanted.values().filter(|(mark, _)| mark.starts_with(uid)).count();
            if status["objects"]["total"].as_u64() != Some(total as u64) {
                return Some(format!("{name} has {total} objects: {}", status["objects"]));
            }
        }
        let live: BTreeMap<_, _> = server
            .objects()
            .map(|(id, object): (&ObjectId, &Arc<Value>)| {
                let mark = annotation(object, keys::OWNER).unwrap_or_default().to_owned();
                (id.clone(), (mark, object["spec"].clone()))
            })
            .collect();
        let differs = wanted.iter().find(|(id, want)| live.get(id) != Some(want));
        let left = live.iter().find(|(id, _)| !wanted.contains_key(id));
        differs
            .or(left)
            .map(|(id, _)| format!("{id}: {:?}, and not {:?}", live.get(id), wanted.get(id)))
    }
}
