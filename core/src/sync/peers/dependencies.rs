//! `dependsOn`: a commit is applied once the GitSyncs that it depends on are Ready with their newest commits.
//!
//! It orders applies and nothing else. What was applied stays and its drift is undone; a dependency that is lost later only
//! delays the next commit. A GitSync that waits is woken by a change of its dependencies.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use crate::api::{GitSync, keys};
use crate::cluster::live::{Managed, Stores};
use crate::cluster::store::{Entry, Key};
use crate::order::Seq;
use crate::sync::commit::desired::{Desired, DesiredSet};
use crate::sync::commit::loaded::Loaded;
use crate::sync::commit::source_at::SourceAt;
use crate::sync::io::Sink;
use crate::sync::io::effect::{Effect, Published};
use crate::sync::live_namespace::LiveNamespace;
use crate::sync::live_namespace::Namespace;
use crate::sync::peers::hand_over::Peers;
use crate::sync::reasons::{EngineReason, Verdict, stalled, unready};
use crate::sync::subject::Subject;

/// Whether the newest commit waits for other GitSyncs (`dependsOn`), and which commit is applied meanwhile.
#[derive(Default)]
pub struct DependencyState {
    /// The newest commit that did not have to wait.
    pub released: Option<Arc<Loaded>>,
    /// The generation of the spec that it was released for.
    pub released_for: i64,
    /// The commit that was applied before this operator started, while no commit is released.
    pub recalled: Option<Arc<Loaded>>,
    /// Whether the newest commit waits.
    pub waiting: bool,
}

/// Which commit may be applied.
pub(crate) struct Allowed {
    /// The commit to apply; `None` when nothing may be written.
    pub loaded: Option<Arc<Loaded>>,
    /// Why that is not the newest one.
    pub waits: Option<Verdict>,
}

/// Decides whether a commit waits for other GitSyncs.
pub(crate) struct Dependencies<'a> {
    pub subject: &'a Subject<'a>,
    pub stores: &'a Stores,
    pub peers: &'a Peers,
}

impl DependencyState {
    /// Whether an earlier commit is known that can stay applied while this one waits.
    pub(crate) fn knows_before(&self, newest: Option<&Loaded>) -> bool {
        let counts = |old: &Arc<Loaded>| newest.is_none_or(|newest| old.is_as_trusted_as(newest));
        self.released.iter().chain(&self.recalled).any(counts)
    }
}

impl Dependencies<'_> {
    /// Which commit may be applied now, when this is the newest one.
    pub(crate) fn allowed(&self, memory: &mut DependencyState, newest: Arc<Loaded>) -> Allowed {
        let subject = self.subject;
        let waits = if subject.sync.spec.depends_on.is_empty() {
            None
        } else {
            self.cycle().or_else(|| {
                let known =
                    is_released(memory, subject.generation, &newest) || self.is_applied(&newest);
                if known { None } else { self.unmet(&newest) }
            })
        };
        memory.waiting = waits.is_some();
        if waits.is_some() {
            let spec = &subject.sync.spec;
            let counts = |old: &Arc<Loaded>| old.answers(spec) && old.is_as_trusted_as(&newest);
            let mut before = memory.released.iter().chain(&memory.recalled);
            let before = before.find(|old| counts(old)).cloned();
            return Allowed { loaded: before, waits };
        }
        if !memory.released.as_ref().is_some_and(|old| Arc::ptr_eq(old, &newest)) {
            let (uid, before) = (subject.entry.uid.clone(), memory.released.clone());
            let published = Published { uid, before, loaded: newest.clone() };
            subject.io.emit(Effect::Publish(Box::new(published)));
            memory.released = Some(newest.clone());
        }
        memory.released_for = subject.generation;
        memory.recalled = None;
        Allowed { loaded: Some(newest), waits: None }
    }

    /// Whether the commit was applied whole for this spec before this operator started.
    fn is_applied(&self, newest: &Loaded) -> bool {
        let subject = self.subject;
        let applied = subject.status().and_then(|status| status.last_applied_revision.as_deref());
        if !subject.entry.value.is_ready() || applied != Some(&*newest.revision.to_string()) {
            return false;
        }
        // With other values of its variables the same commit wants other objects: only the live objects show what was
        // applied.
        let space = LiveNamespace { stores: self.stores, namespace: &subject.key.namespace };
        subject.sync.spec.variables.is_none() || is_there(&newest.desired, &space)
    }

    /// Whether the dependencies go in a circle.
    fn cycle(&self) -> Option<Verdict> {
        let Key { namespace, name } = self.subject.key;
        let found = circle(name, |name| {
            let entry = self.stores.git_syncs.get(&Key::new(namespace, name));
            entry.map(|entry| names(&entry)).unwrap_or_default()
        })?;
        let message = format!("dependsOn goes in a circle: {}", found.join(" → "));
        Some(stalled(EngineReason::DependencyCycle, &message))
    }

    /// Which dependencies have to be waited for before a new commit is applied.
    fn unmet(&self, newest: &Loaded) -> Option<Verdict> {
        let why: Vec<_> = self
            .subject
            .sync
            .spec
            .depends_on
            .iter()
            .filter_map(|other| {
                let key = Key::new(&self.subject.key.namespace, &other.name);
                let why = self.lack(&key, newest)?;
                Some(format!("GitSync {} {why}", other.name))
            })
            .collect();
        if why.is_empty() {
            return None;
        }
        let message = format!("{} waits: {}", newest.revision, why.join("; "));
        let mut waits = unready(EngineReason::DependencyNotReady, &message);
        waits.reconciling = true;
        Some(waits)
    }

    /// Why a dependency has to be waited for, if it has.
    fn lack(&self, other: &Key, newest: &Loaded) -> Option<&'static str> {
        let Subject { io, key: me, .. } = self.subject;
        let Some(entry) = self.stores.git_syncs.get(other) else { return Some("does not exist") };
        let live = &entry.value;
        let Some(sync) = live.object() else { return Some("does not parse") };
        if live.facts.deleting {
            return Some("is being deleted");
        }
        if sync.spec.suspend {
            return Some("is suspended");
        }
        let handing = !live.is_ready() && is_handing_over(&sync);
        let ready = live.is_ready() || (handing && self.gives_to_waiters(me, other));
        if !ready {
            return Some("is not Ready");
        }
        let seen = Seq::next();
        // One push may change both: the dependency must have polled after this commit was found.
        let announced = self.peers.announced(other).filter(|announced| {
            announced.uid == entry.uid
                && Some(announced.generation) == live.facts.generation
                && announced.polled > newest.found
        });
        let Some(announced) = announced else {
            let whom = std::slice::from_ref(other);
            self.peers.ask_to_poll(io, whom, newest.found);
            self.peers.wait_for(io, me, whom, seen);
            return Some("has not looked at its remote since");
        };
        let wanted = announced.loaded.map(|loaded| loaded.revision.to_string());
        let stale = done(&sync, handing) != wanted.as_deref();
        (announced.failed || stale).then_some("is not Ready with its newest commit")
    }

    /// Whether all peers to which a GitSync hands objects over wait for that GitSync themselves: then waiting until
    /// they have taken the objects would never end. `me` is woken when that may have changed.
    fn gives_to_waiters(&self, me: &Key, giver: &Key) -> bool {
        self.peers.wait_for_takers(me);
        let takers = self.peers.takers(giver);
        let waits_for = |name: &str| {
            let key = Key::new(&giver.namespace, name);
            let Some(entry) = self.stores.git_syncs.get(&key) else { return Vec::new() };
            let mut all = names(&entry);
            let hands_over = || entry.value.object().is_some_and(|sync| is_handing_over(&sync));
            if entry.value.facts.deleting || hands_over() {
                all.extend(self.peers.takers(&key));
            }
            all
        };
        !takers.is_empty() && all_lead_to(&takers, &giver.name, waits_for)
    }
}

/// Whether this commit was released for this spec, or wants the same as the released one: in a repository that many GitSyncs
/// share, most commits change other folders.
fn is_released(memory: &DependencyState, generation: i64, newest: &Loaded) -> bool {
    let same = |old: &Arc<Loaded>| {
        (old.input_key == newest.input_key && knows_all(old, newest)) || wants_the_same(old, newest)
    };
    memory.released_for == generation && memory.released.as_ref().is_some_and(same)
}

/// Whether two commits want the same objects, and images of the same sources. (pure)
fn wants_the_same(old: &Loaded, new: &Loaded) -> bool {
    // The commit itself is in no image.
    let sources = |loaded: &Loaded| -> Vec<_> {
        let source = |(name, source): &(String, SourceAt)| {
            (name.clone(), source.subfolder_tree.clone(), source.paths.clone())
        };
        loaded.builds.iter().map(source).collect()
    };
    let mut same = sources(old) == sources(new);
    old.desired.differences(&new.desired, |_, was, is| {
        same &= was.map(|want| &want.applied) == is.map(|want| &want.applied);
    });
    same && knows_all(old, new)
}

/// Whether the old commit knows as much as the new one about objects that may be in broken files. A commit between the
/// two may have changed them without being released, and an object that is gone is a change, too. (pure)
fn knows_all(old: &Loaded, new: &Loaded) -> bool {
    let mut all = true;
    old.measure.differences(&new.measure, |_, was, is| {
        // An object whose definition is not certain is not applied for this commit.
        let is_certain = |is: &Desired| is.kept.as_ref().is_some_and(|kept| kept.certain);
        all &= match (was, is) {
            (was, Some(is)) if is_certain(is) => was.is_some_and(|was| was.applied == is.applied),
            (Some(was), None) => was.kept.is_none() || new.catalog.has_errors(),
            _ => true,
        };
    });
    all
}

/// Whether each live object carries the hash of what is wanted. (pure)
fn is_there(desired: &DesiredSet, live: &dyn Namespace) -> bool {
    desired.iter().all(|(id, want)| {
        let live = live.get(id);
        live.is_some_and(|l| l.facts().annotations.get(keys::APPLIED) == Some(&want.applied))
    })
}

/// The names of the GitSyncs that this one depends on.
fn names(entry: &Entry<Managed<GitSync>>) -> Vec<String> {
    let sync = entry.value.object().filter(|_| !entry.value.facts.deleting);
    sync.iter().flat_map(|s| &s.spec.depends_on).map(|other| other.name.clone()).collect()
}

/// The shortest way from `start` along `edges` back to it, both ends included. (pure)
fn circle(start: &str, edges: impl Fn(&str) -> Vec<String>) -> Option<Vec<String>> {
    let mut seen = HashSet::new();
    let mut ways = vec![vec![start.to_owned()]];
    while !ways.is_empty() {
        let mut longer = Vec::new();
        for way in ways {
            let last = way.last().map_or(start, String::as_str);
            for next in edges(last) {
                let mut way = way.clone();
                way.push(next.clone());
                if next == start {
                    return Some(way);
                }
                if seen.insert(next) {
                    longer.push(way);
                }
            }
        }
        ways = longer;
    }
    None
}

/// Whether there is a way along `edges` from each of these to `goal`. Calls `edges` once for each name. (pure)
fn all_lead_to(starts: &BTreeSet<String>, goal: &str, edges: impl Fn(&str) -> Vec<String>) -> bool {
    let mut next: Vec<_> = starts.iter().cloned().collect();
    let mut seen: HashSet<_> = next.iter().cloned().collect();
    let mut back: HashMap<String, Vec<String>> = HashMap::new();
    while let Some(name) = next.pop() {
        for to in if name == goal { Vec::new() } else { edges(&name) } {
            if seen.insert(to.clone()) {
                next.push(to.clone());
            }
            back.entry(to).or_default().push(name.clone());
        }
    }
    let (mut lead, mut next) = (HashSet::from([goal]), vec![goal]);
    while let Some(name) = next.pop() {
        let from = back.get(name).into_iter().flatten();
        next.extend(from.map(String::as_str).filter(|from| lead.insert(from)));
    }
    starts.iter().all(|start| lead.contains(&**start))
}

/// Whether a GitSync is not Ready with its spec only because peers have to take objects over.
fn is_handing_over(sync: &GitSync) -> bool {
    let mut conditions = sync.status.iter().flat_map(|status| &status.conditions);
    let ready = conditions.find(|condition| condition.type_ == "Ready");
    ready.is_some_and(|ready| {
        ready.reason == EngineReason::HandingOver.as_str()
            && ready.observed_generation == sync.metadata.generation
    })
}

/// The commit that is applied, apart from objects that are still handed over.
fn done(sync: &GitSync, handing: bool) -> Option<&str> {
    let status = sync.status.as_ref()?;
    let applied = &status.last_applied_revision;
    // With `HandingOver` all writes for the newest commit are done.
    if handing { &status.last_attempted_revision } else { applied }.as_deref()
}

/// What of a GitSync the GitSyncs that depend on it wait for.
fn awaited(entry: &Entry<Managed<GitSync>>) -> impl PartialEq + use<> {
    let sync = entry.value.object();
    let ends = entry.value.facts.deleting;
    let suspended = sync.as_ref().is_some_and(|s| s.spec.suspend);
    let handing = sync.as_ref().is_some_and(|sync| is_handing_over(sync));
    let done = sync.as_ref().and_then(|sync| done(sync, handing).map(str::to_owned));
    let ready = (entry.value.is_ready(), handing);
    (entry.uid.clone(), ready, done, names(entry), ends, suspended)
}

/// Wakes the GitSyncs of a namespace that depend on others when a GitSync changes.
pub fn listen(stores: &Stores, sink: &Sink) {
    // The store keeps what listens to it.
    let (sink, syncs) = (sink.clone(), Arc::downgrade(&stores.git_syncs));
    stores.git_syncs.on_change(move |change| {
        if let (Some(old), Some(new)) = (change.old, change.new)
            && awaited(old) == awaited(new)
        {
            return;
        }
        let Some(syncs) = syncs.upgrade() else { return };
        for (key, entry) in syncs.list(&change.key.namespace) {
            if key != *change.key && !names(&entry).is_empty() {
                sink(key, Duration::ZERO);
            }
        }
    });
}

#[cfg(test)]
#[path = "tests/dependencies.rs"]
mod tests;
