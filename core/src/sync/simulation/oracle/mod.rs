//! What users may rely on, judged by the truth: what the files at the remote mean, what the API server holds, what a person was
//! shown and has said yes to. It shares no code with the machine; of the operator it sees what its stores show.
//!
//! [`deletes`] and [`brake`] judge deletes, [`writes`] all other writes, [`honest`] what is said, [`rest`] how it ends.

mod approvals;
mod brake;
mod deletes;
mod files;
mod honest;
mod rest;
mod writes;

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use self::approvals::Approval;
use self::brake::{Moment, Shown};
pub use self::files::mark_of;
use self::files::{ALL, Said, folder_of, legible, said};
use super::operator::{Operator, WATCHES};
use super::server::{Name, Server, is_deleting, text};
use super::{Counts, SYNCS, commit};
use crate::api::ObjectId;
use crate::sync::io::effect::{Call, Request};
use crate::sync::properties::repository::{Health, Tree};
use crate::test_rng::TestRng;

/// A digest that was shown.
#[derive(Debug, Clone)]
struct Digest {
    /// By which GitSync: its uid.
    of: String,
    /// What it was shown for.
    key: String,
    /// Of which objects.
    uids: BTreeSet<String>,
    /// In spite of whom.
    unread: BTreeSet<String>,
    /// What it stood for until a killed operator showed fewer with it, and where that stands in the log of the server.
    wider: Option<(usize, BTreeSet<String>)>,
}

/// What a poll that is under way has seen: the commit, when, and of which spec and folder.
#[derive(Debug, Clone)]
struct Sees {
    head: usize,
    tick: u64,
    generation: i64,
    folder: String,
}

/// What an operator's polls of the remote have told it of a GitSync.
#[derive(Debug, Clone, Default)]
struct Looked {
    sees: Option<Sees>,
    /// The commit that was read last, and when the remote first showed it.
    found: Option<(usize, u64)>,
    /// In which folder.
    folder: String,
    /// When the remote showed what the last good poll has read.
    seen: Option<u64>,
    /// How many polls had ended when that one had.
    ended: u64,
    /// For which spec the last poll was, whether or not it failed.
    answered: i64,
    /// Whether the last poll failed.
    failed: bool,
    /// Whether the commit has errors, and what was wanted before it could not be read.
    lost: bool,
}

/// Where an object was read last.
#[derive(Debug)]
struct Place {
    /// In which file.
    file: String,
    /// What it was there.
    content: usize,
    /// Whether no file of a later commit may hide it: then it is not in one that breaks after that.
    is_past: bool,
}

/// A reconcile of a GitSync.
#[derive(Default)]
struct Coroutine {
    number: u64,
    /// Of which spec.
    generation: Option<i64>,
    /// Whether it has read its GitSync.
    has_read: bool,
    /// How much each watch had shown when it began.
    shown: [usize; WATCHES.len()],
    /// What the stores have shown meanwhile, each time that something had changed.
    moments: Vec<Moment>,
    /// The objects that were deleted, by uid.
    deleted: BTreeSet<String>,
}

/// Who has written an object last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Writer {
    /// This reconcile of the operator.
    Coroutine(u64),
    /// A reconcile that nobody goes on with.
    Late,
    /// A person.
    Person,
}

/// What users may rely on, held against all that happens.
#[derive(Default)]
pub struct Oracle {
    /// Since when a GitSync has wanted an object all the time, or hidden it: by its name.
    wanted: BTreeMap<(String, ObjectId), (u64, bool)>,
    /// What decides about that.
    observed: (usize, Vec<(String, i64, bool)>),
    /// The GitSyncs that there were, by uid: their names, and where their end stands in the log of the server.
    gone: BTreeMap<String, (String, usize)>,
    /// When a GitSync was deleted.
    deleted: BTreeMap<String, u64>,
    looked: BTreeMap<String, Looked>,
    /// The earlier commit that this operator has read of a GitSync whose newest one was broken when it began.
    earlier: BTreeMap<String, usize>,
    /// How many polls have ended.
    news: u64,
    /// How many had when a GitSync asked for the last write of an object.
    knowing: BTreeMap<(String, ObjectId), u64>,
    /// Where this operator has read an object last.
    files: BTreeMap<(String, ObjectId), Place>,
    digests: BTreeMap<String, Digest>,
    /// What is shown of each GitSync now.
    pending: BTreeMap<String, String>,
    /// What was approved and is shown so, or still held.
    approved: Vec<Approval>,
    /// How much of the server's log was looked at for that.
    read_log: usize,
    /// What was held and needs an approval: by uid of the GitSync and what it was held for.
    held: BTreeMap<(String, String), BTreeSet<String>>,
    /// What was changed by hand since the operator wrote it.
    by_hand: BTreeSet<ObjectId>,
    /// What this operator has applied last of an object: for whom, and what says what it was.
    applied: BTreeMap<ObjectId, (String, String)>,
    /// What the server has told this operator to be applied.
    answered: BTreeMap<ObjectId, (String, String)>,
    /// What is applied, as far as all operators know it together.
    applied_ever: BTreeMap<ObjectId, (String, String)>,
    /// Who has written each object last, and where that stands in the log of the server.
    written: BTreeMap<ObjectId, (usize, Writer)>,
    /// What the stores showed last, and what may be wanted; and of what state that is.
    shown_last: Option<(u64, Shown)>,
    others_last: Option<(u64, Rc<BTreeSet<(usize, ObjectId)>>)>,
    /// The reconcile of each GitSync that is under way, or was the last one.
    passes: BTreeMap<String, Coroutine>,
    /// What this operator has said last of each GitSync.
    said: BTreeMap<String, Rc<Request>>,
    /// The GitSyncs whose status was written last by somebody who is no more.
    late: BTreeSet<String>,
    /// The commits that a GitSync with dependsOn may apply: by uid and commit.
    released: BTreeSet<(String, usize)>,
}

/// What a GitSync is held for and approved for, when this commit was found of it.
fn key(found: Option<usize>, folder: &str, generation: i64) -> String {
    format!("{} {folder} {generation}", commit(found.unwrap_or_default()))
}

/// A request in a few words.
pub fn short(call: &Call) -> String {
    match call {
        Call::Rehearse { id, .. } => format!("rehearse {id}"),
        Call::Apply { id, mode, manifest } => {
            let spec = manifest["spec"].to_string();
            format!("apply {id} {mode:?} {}", spec.get(..60).unwrap_or(&spec))
        }
        Call::ReplaceSpec { id, version, .. } => format!("replace the spec of {id} at {version}"),
        Call::Get { id } => format!("get {id}"),
        Call::Delete { id, version, .. } => format!("delete {id} at {version}"),
        Call::GetSync { .. } => "get itself".into(),
        Call::Status { status, .. } => {
            let ready = status.conditions.iter().find(|c| c.type_ == "Ready");
            let said = ready.map(|c| format!("{} {}: {}", c.status, c.reason, c.message));
            let pending =
                status.pending_prune.as_ref().map(|p| (&p.digest, &p.objects, &p.input_key));
            let base = status.prune_base;
            format!("status {} {pending:?} base {base:?}", said.unwrap_or_default())
        }
        Call::Finalizers { finalizers, .. } => format!("finalizers {finalizers:?}"),
        other => format!("{other:?}"),
    }
}

impl Oracle {
    /// The truth is now this.
    pub fn observe(&mut self, tick: u64, server: &Server, (head, tree): (usize, &Tree)) {
        let state = |(name, _, _): &(&str, &str, &str)| {
            let sync = server.get(&Name::Sync((*name).into()));
            sync.map_or_else(Default::default, |sync| {
                let generation = sync["metadata"]["generation"].as_i64().unwrap_or_default();
                (text(sync, "/metadata/uid").to_owned(), generation, is_deleting(sync))
            })
        };
        let observed = (head, SYNCS.iter().map(state).collect::<Vec<_>>());
        if self.observed == observed {
            return;
        }
        self.news += 1;
        for ((name, _, _), (was, is)) in SYNCS.iter().zip(self.observed.1.iter().zip(&observed.1)) {
            if was.0 != is.0 {
                // Another one of the same name: nothing is known of it.
                self.gone.insert(was.0.clone(), ((*name).to_owned(), server.log.len()));
                self.looked.remove(*name);
                self.files.retain(|(whose, _), _| whose != name);
                self.pending.remove(*name);
                self.applied.retain(|_, (whose, _)| whose != name);
                self.applied_ever.retain(|_, (whose, _)| whose != name);
                self.answered.retain(|_, (whose, _)| whose != name);
            }
        }
        self.observed = observed;
        for (name, _, _) in SYNCS {
            let sync = server.get(&Name::Sync(name.into()));
            let alive = sync.filter(|sync| !is_deleting(sync));
            match sync {
                Some(sync) if is_deleting(sync) => {
                    self.deleted.entry(name.into()).or_insert(tick);
                }
                _ => drop(self.deleted.remove(name)),
            }
            for object in ALL.iter() {
                let says = alive.map_or(Said::Nothing, |sync| said(tree, folder_of(sync), object));
                let key = (name.to_owned(), object.clone());
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
        self.answered.clear();
        self.looked.clear();
        self.earlier.clear();
        self.knowing.clear();
        self.passes.clear();
        (self.shown_last, self.others_last) = (None, None);
        self.said.clear();
        self.seen_by_nobody();
    }

    /// Somebody has changed an object; so much stands in the log of the server now.
    pub fn by_hand(&mut self, id: &ObjectId, log: usize) {
        self.by_hand.insert(id.clone());
        self.written.insert(id.clone(), (log, Writer::Person));
    }

    /// A reconcile begins.
    pub fn begins(&mut self, name: &str, operator: &Operator) {
        let shown = [0, 1, 2].map(|watch: usize| operator.watches[watch].cursor);
        let number = operator.active.get(name).copied().unwrap_or_default();
        let generation = operator.entry(name).and_then(|entry| entry.value.facts.generation);
        let pass = Coroutine { number, generation, shown, ..Coroutine::default() };
        self.passes.insert(name.to_owned(), pass);
    }

    /// A reconcile goes on. At first it reads its GitSync.
    pub fn reads(&mut self, name: &str, operator: &Operator, counts: &mut Counts) {
        let Some(pass) = self.passes.get_mut(name) else { return };
        if !std::mem::replace(&mut pass.has_read, true) {
            self.taken_back(name, operator, counts);
        }
    }

    /// A remote has shown a commit to a poll.
    pub fn looks(&mut self, name: &str, (head, tick): (usize, u64), of: (i64, String)) {
        let (generation, folder) = of;
        let looked = self.looked.entry(name.to_owned()).or_default();
        looked.sees = Some(Sees { head, tick, generation, folder });
    }

    /// What the commit before a broken one wanted is known.
    pub fn read_earlier(&mut self, name: &str, commit: usize) {
        self.earlier.insert(name.to_owned(), commit);
    }

    /// That poll has ended: whether nothing is known of what was before it; or in vain.
    pub fn polled(&mut self, name: &str, ended: Option<bool>, trees: &[Tree]) {
        let looked = self.looked.entry(name.to_owned()).or_default();
        let Some(Sees { head, tick, generation, folder }) = looked.sees.take() else { return };
        self.news += 1;
        looked.answered = generation;
        looked.failed = ended.is_none();
        let Some(lost) = ended else { return };
        looked.seen = Some(tick);
        looked.ended = self.news;
        looked.folder.clone_from(&folder);
        looked.lost = lost;
        for object in ALL.iter() {
            let key = (name.to_owned(), object.clone());
            if let Some((path, content)) = legible(&trees[head], &folder, object) {
                let file = path.to_owned();
                self.files.insert(key, Place { file, content, is_past: false });
            } else if said(&trees[head], &folder, object) == Said::Nothing {
                let tree = &trees[head];
                let Some(place) = self.files.get_mut(&key) else { continue };
                place.is_past |= tree.below(&folder).all(|(_, file)| file.health == Health::Good);
                // It was taken out of a file that can be read.
                if tree.files.get(&place.file).is_some_and(|file| file.health == Health::Good) {
                    self.files.remove(&key);
                }
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

    pub fn any_digest(&self, dice: &mut TestRng) -> Option<String> {
        let all: Vec<_> = self.digests.keys().collect();
        (!all.is_empty()).then(|| all[dice.roll(all.len())].clone())
    }

    /// The operator asks for this.
    pub fn asked(
        &mut self,
        name: &str,
        request: &Rc<Request>,
        operator: &Operator,
        truth: (&Server, &[Tree]),
        counts: &mut Counts,
    ) {
        self.statuses(truth.0);
        self.as_whom(name, request, operator);
        match &request.call {
            Call::Delete { id, uid, .. } => {
                self.deletes(name, (id, uid), operator, truth.1, counts);
                if let Some(pass) = self.passes.get_mut(name) {
                    pass.deleted.insert(uid.clone());
                }
            }
            Call::Apply { id, manifest, .. } => {
                self.knowing.insert((name.to_owned(), id.clone()), self.news);
                self.applies(name, (id, manifest), operator, truth, counts);
            }
            Call::ReplaceSpec { id, .. } | Call::Rehearse { id, .. } => {
                let suspended = operator.sync(name).is_some_and(|sync| sync.spec.suspend);
                assert!(!suspended, "{name} is suspended and writes {id}");
            }
            Call::Status { uid, status, .. } => {
                let told = self.tells(name, (uid, status), operator, truth, counts);
                if told {
                    self.said.insert(name.to_owned(), request.clone());
                }
            }
            _ => {}
        }
    }
}
