//! `dependsOn`: a commit is applied once the GitSyncs that it builds on are there.
//!
//! It orders applies and nothing else: what was applied stays, its drift is undone, and a dependency that is lost later
//! changes nothing until there is something new to apply. Whoever waits is woken by what it waits for.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use crate::api::{GitSync, keys};
use crate::cluster::live::{Managed, Stores};
use crate::cluster::store::{Entry, Key};
use crate::sync::commit::desired::{Desired, DesiredSet};
use crate::sync::commit::loaded::Loaded;
use crate::sync::commit::source_at::SourceAt;
use crate::sync::io::Sink;
use crate::sync::io::effect::{Effect, Published};
use crate::sync::live_namespace::LiveNamespace;
use crate::sync::live_namespace::Namespace;
use crate::sync::order::Seq;
use crate::sync::peers::hand_over::Peers;
use crate::sync::reasons::{EngineReason, Verdict, stalled, unready};
use crate::sync::subject::Subject;

/// Whether a commit waits for other GitSyncs (`dependsOn`), and what is brought about meanwhile.
#[derive(Default)]
pub struct DependencyState {
    /// The newest commit that did not have to wait.
    pub released: Option<Arc<Loaded>>,
    /// For which generation of the spec it did not.
    pub released_for: i64,
    /// What an operator that ran before this one has applied, while nothing is released.
    pub recalled: Option<Arc<Loaded>>,
    /// Whether the newest commit waits.
    pub waiting: bool,
}

/// What a plan is made of.
pub(crate) struct Allowed {
    /// The commit to bring about; `None` when nothing may be written.
    pub loaded: Option<Arc<Loaded>>,
    /// Why that is not the newest one.
    pub waits: Option<Verdict>,
}

/// What decides whether a commit waits for other GitSyncs.
pub(crate) struct Dependencies<'a> {
    pub subject: &'a Subject<'a>,
    pub stores: &'a Stores,
    pub peers: &'a Peers,
}

impl Dependencies<'_> {
    /// Which commit a GitSync may bring about now, when this is the newest one.
    pub(crate) fn turn(&self, memory: &mut DependencyState, newest: Arc<Loaded>) -> Allowed {
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
            let answers = |old: &Option<Arc<Loaded>>| old.clone().filter(|old| old.answers(spec));
            let before = answers(&memory.released).or_else(|| answers(&memory.recalled));
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

    /// Whether an operator that ran before this one has applied the commit whole for this spec.
    fn is_applied(&self, newest: &Loaded) -> bool {
        let subject = self.subject;
        let applied = subject.status().and_then(|status| status.last_applied_revision.as_deref());
        if !subject.entry.value.is_ready() || applied != Some(&*newest.revision.to_string()) {
            return false;
        }
        // The same commit means something else when a variable has another value now: only the objects can tell.
        let space = LiveNamespace { stores: self.stores, namespace: &subject.key.namespace };
        subject.sync.spec.variables.is_none() || is_there(&newest.desired, &space)
    }

    fn cycle(&self) -> Option<Verdict> {
        let Key { namespace, name } = self.subject.key;
        let found = circle(name, |name| {
            let entry = self.stores.git_syncs.get(&Key::new(namespace, name));
            entry.map(|entry| names(&entry)).unwrap_or_default()
        })?;
        let message = format!("dependsOn goes in a circle: {}", found.join(" → "));
        Some(stalled(EngineReason::DependencyCycle, &message))
    }

    /// What has to be waited for before a new commit is applied.
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

    /// What another GitSync lacks so that one that depends on it may go on.
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
        let asked = Seq::next();
        // One push may concern both: it must have looked at its remote after this commit was found.
        let told = self.peers.told(other).filter(|told| {
            told.uid == entry.uid
                && Some(told.generation) == live.facts.generation
                && told.polled > newest.found
        });
        let Some(told) = told else {
            let whom = std::slice::from_ref(other);
            self.peers.ask_to_poll(io, whom, newest.found);
            self.peers.wait_for(io, me, whom, asked);
            return Some("has not looked at its remote since");
        };
        let wanted = told.loaded.map(|loaded| loaded.revision.to_string());
        let stale = done(&sync, handing) != wanted.as_deref();
        (told.failed || stale).then_some("is not Ready with its newest commit")
    }

    /// Whether all to whom a GitSync hands objects over wait for that one themselves: then nobody may wait until they have taken
    /// them. `me` is woken when that may have changed.
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

/// Whether this commit was let through for this spec, or wants just what that one wanted: in a repository of many, most
/// commits are about other folders.
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

/// Whether the old commit knows all that the new one does about objects that may be in broken files: what a commit between the two
/// said of them was perhaps never let through, and that they are gone is news. (pure)
fn knows_all(old: &Loaded, new: &Loaded) -> bool {
    let mut all = true;
    old.measure.differences(&new.measure, |_, was, is| {
        // One of which others may lie in between is not applied because of this commit.
        let is_certain = |is: &Desired| is.kept.as_ref().is_some_and(|kept| kept.certain);
        all &= match (was, is) {
            (was, Some(is)) if is_certain(is) => was.is_some_and(|was| was.applied == is.applied),
            (Some(was), None) => was.kept.is_none() || new.catalog.has_errors(),
            _ => true,
        };
    });
    all
}

/// Whether each object says that just what is wanted was applied to it. (pure)
fn is_there(desired: &DesiredSet, live: &dyn Namespace) -> bool {
    desired.iter().all(|(id, want)| {
        let live = live.get(id);
        live.is_some_and(|l| l.facts().annotations.get(keys::APPLIED) == Some(&want.applied))
    })
}

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

/// Whether there is a way along `edges` from each of these to `goal`. Each name is looked at once. (pure)
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

/// Whether a GitSync is not Ready with its spec for no other reason than that others have to take what it leaves to them.
fn is_handing_over(sync: &GitSync) -> bool {
    let mut conditions = sync.status.iter().flat_map(|status| &status.conditions);
    let ready = conditions.find(|condition| condition.type_ == "Ready");
    ready.is_some_and(|ready| {
        ready.reason == EngineReason::HandingOver.as_str()
            && ready.observed_generation == sync.metadata.generation
    })
}

/// The commit of which nothing is left to be done, or nothing but to hand objects over.
fn done(sync: &GitSync, handing: bool) -> Option<&str> {
    let status = sync.status.as_ref()?;
    let applied = &status.last_applied_revision;
    // It was the newest one when the status was written, and what was to be written for it is.
    if handing { &status.last_attempted_revision } else { applied }.as_deref()
}

/// What others may wait for in a GitSync.
fn news(entry: &Entry<Managed<GitSync>>) -> impl PartialEq + use<> {
    let sync = entry.value.object();
    let ends = entry.value.facts.deleting;
    let suspended = sync.as_ref().is_some_and(|s| s.spec.suspend);
    let handing = sync.as_ref().is_some_and(|sync| is_handing_over(sync));
    let done = sync.as_ref().and_then(|sync| done(sync, handing).map(str::to_owned));
    let ready = (entry.value.is_ready(), handing);
    (entry.uid.clone(), ready, done, names(entry), ends, suspended)
}

/// Wakes those of a namespace that depend on others when one of them changes.
pub fn listen(stores: &Stores, sink: &Sink) {
    // The store keeps what listens to it.
    let (sink, syncs) = (sink.clone(), Arc::downgrade(&stores.git_syncs));
    stores.git_syncs.on_change(move |change| {
        if let (Some(old), Some(new)) = (change.old, change.new)
            && news(old) == news(new)
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
mod tests {
    use super::*;
    use crate::api::{Kind, ObjectId};
    use crate::cluster::live::{Facts, Live, LiveObject};
    use crate::definition::Catalog;
    use crate::packed::Pairs;
    use crate::sync::live_namespace::LiveSet;
    use crate::sync::properties::definition;
    use crate::sync::properties::repository::wrong;

    fn loaded(contents: &[(&str, usize)]) -> Loaded {
        let mut catalog = Catalog::default();
        for (name, content) in contents {
            let id = ObjectId::new(Kind::ModelAPI, *name);
            catalog.definitions.insert(id.clone(), definition(&id, *content));
        }
        let spec = serde_json::from_value(serde_json::json!({"url": "https://git.example"}));
        Loaded::of(&spec.expect("a spec"), "c", catalog, None)
    }

    fn source(commit: &str, tree: &str, path: &str) -> (String, SourceAt) {
        let paths = [("shared".to_owned(), Some(path.to_owned()))];
        let source = SourceAt {
            sync: "main".into(),
            url: "https://git.example".into(),
            commit: commit.into(),
            subfolder_tree: Some(tree.into()),
            paths: paths.into_iter().collect(),
            applied: None,
        };
        ("image".into(), source)
    }

    #[test]
    fn g11_a_commit_that_changes_what_an_image_is_made_of_is_another_one() {
        let of = |contents: &[(&str, usize)], builds| {
            let mut loaded = loaded(contents);
            loaded.builds = builds;
            loaded
        };
        let with = |builds| of(&[("a", 1)], builds);
        let old = with(vec![source("1", "t", "p")]);
        assert!(wants_the_same(&old, &with(vec![source("2", "t", "p")])), "another folder");
        for other in [vec![source("2", "u", "p")], vec![source("2", "t", "q")], Vec::new()] {
            assert!(!wants_the_same(&old, &with(other)));
        }
        for contents in [vec![("a", 2)], vec![("b", 1)], vec![("a", 1), ("b", 1)], vec![]] {
            let builds = vec![source("1", "t", "p")];
            assert!(!wants_the_same(&old, &of(&contents, builds)));
        }
    }

    #[test]
    fn g11_g13_what_a_broken_file_said_while_its_commit_waited_waits_too() {
        let of = |contents: &[(&str, usize)], broken: &[&str], before: Option<&Loaded>| {
            let Loaded { catalog, coordinates, .. } = loaded(contents);
            let mut catalog = catalog;
            for name in broken {
                catalog.broken.insert(ObjectId::new(Kind::ModelAPI, *name), "a.yaml".into());
                catalog.problems.push(wrong());
            }
            let spec = serde_json::json!({"url": coordinates.url});
            Loaded::of(&serde_json::from_value(spec).expect("a spec"), "c", catalog, before)
        };
        let let_through = of(&[("a", 1), ("b", 1)], &[], None);
        let broken = of(&[("b", 1)], &["a"], Some(&let_through));
        let waits = of(&[("a", 2), ("b", 1)], &[], Some(&broken));
        let again = of(&[("b", 1)], &["a"], Some(&waits));
        assert!(!wants_the_same(&broken, &again), "a is what the commit said that waits");
        let waits = of(&[("a", 1), ("b", 1)], &[], Some(&broken));
        let again = of(&[("b", 1)], &["a"], Some(&waits));
        assert!(wants_the_same(&broken, &again));
        assert!(!wants_the_same(&broken, &of(&[("b", 1)], &[], Some(&broken))), "a is gone");
        // The branch goes back to the commit that was let through.
        let waits = of(&[("a", 2), ("b", 1)], &[], Some(&broken));
        let back = of(&[("b", 1)], &["a"], Some(&waits));
        assert_eq!(back.input_key, broken.input_key);
        let memory = DependencyState {
            released: Some(Arc::new(broken.clone())),
            ..DependencyState::default()
        };
        assert!(is_released(&memory, 0, &broken) && !is_released(&memory, 0, &back));
        // What was read of a commit of before this operator started says nothing new.
        let recalled = Loaded { recalled: true, ..waits };
        assert!(is_released(&memory, 0, &of(&[("b", 1)], &["a"], Some(&recalled))));
    }

    struct Object(Facts);

    impl LiveObject for Object {
        fn uid(&self) -> &'static str {
            "uid"
        }
        fn version(&self) -> u64 {
            1
        }
        fn facts(&self) -> &Facts {
            &self.0
        }
    }

    #[test]
    fn g11_g21_a_commit_that_was_applied_with_other_values_is_not_applied() {
        let applied = loaded(&[("a", 1), ("b", 1)]);
        let live: LiveSet = applied
            .desired
            .iter()
            .map(|(id, want)| {
                let said = (keys::APPLIED.to_owned(), want.applied.clone());
                let annotations = Pairs::of(Some(&[said].into()));
                let facts = Facts { annotations, ..Facts::default() };
                (id.clone(), Arc::new(Object(facts)) as Live)
            })
            .collect();
        assert!(is_there(&applied.desired, &live));
        for contents in [vec![("a", 1), ("b", 2)], vec![("a", 1), ("c", 1)]] {
            assert!(!is_there(&loaded(&contents).desired, &live));
        }
    }

    #[test]
    fn g11_g22_whoever_takes_something_waits_for_the_giver_or_does_not() {
        use std::cell::RefCell;

        let looked = RefCell::new(Vec::new());
        let edges = |name: &str| {
            looked.borrow_mut().push(name.to_owned());
            let next: &[&str] = match name {
                "a" | "b" => &["giver"],
                "c" => &["x", "b"],
                "x" => &["y"],
                "y" => &["x"],
                "giver" => panic!("that one is enough"),
                _ => &[],
            };
            next.iter().map(|&name| name.to_owned()).collect()
        };
        let lead = |starts: &[&str]| {
            let starts = starts.iter().map(|&name| name.to_owned()).collect();
            all_lead_to(&starts, "giver", edges)
        };
        for starts in [&["a"] as &[_], &["a", "b"], &["c"], &["a", "b", "c", "giver"]] {
            assert!(lead(starts), "{starts:?}");
        }
        for starts in [&["x"] as &[_], &["a", "free"], &["c", "y"]] {
            assert!(!lead(starts), "{starts:?}");
        }
        looked.take();
        lead(&["a", "b", "c", "x", "y"]);
        looked.borrow_mut().sort();
        assert_eq!(looked.take(), ["a", "b", "c", "x", "y"]);
    }

    #[test]
    fn g11_a_circle_is_found_by_its_members_only() {
        let edges = |name: &str| {
            let next: &[&str] = match name {
                "a" => &["x", "b"],
                "b" => &["c"],
                "c" => &["a"],
                "outside" => &["a"],
                "self" => &["self"],
                "diamond" => &["x", "y"],
                "x" | "y" => &["z"],
                _ => &[],
            };
            next.iter().map(|&name| name.to_owned()).collect()
        };
        assert_eq!(circle("a", edges).expect("a circle"), ["a", "b", "c", "a"]);
        assert_eq!(circle("c", edges).expect("a circle"), ["c", "a", "b", "c"]);
        assert_eq!(circle("self", edges).expect("a circle"), ["self", "self"]);
        for name in ["outside", "diamond", "z", "missing"] {
            assert_eq!(circle(name, edges), None, "{name}");
        }
    }
}
