//! Deletes: nothing goes that somebody wants, hides, or was not asked about.

use super::approvals::Approval;
use super::files::{has_errors, part};
use super::{Counts, Looked, Oracle, SYNCS, WATCHES, key};
use crate::api::ObjectId;
use crate::api::git_sync::DeletionPolicy;
use crate::sync::properties::repository::Tree;
use crate::sync::simulation::operator::Operator;

impl Oracle {
    pub(super) fn deletes(
        &self,
        name: &str,
        (id, uid): (&ObjectId, &str),
        operator: &Operator,
        trees: &[Tree],
        counts: &mut Counts,
    ) {
        let Some(sync) = operator.sync(name) else {
            panic!("{name} is not there, or not legible, and deletes {id}")
        };
        if !self.observed.1.iter().any(|(uid, ..)| Some(uid) == sync.metadata.uid.as_ref()) {
            // The GitSync is gone, which this operator has not been shown yet.
            return;
        }
        let looked = self.looked.get(name).cloned().unwrap_or_default();
        let generation = sync.metadata.generation.unwrap_or_default();
        let of = sync.metadata.uid.clone().unwrap_or_default();
        let key = key(looked.found.map(|(head, _)| head), &sync.spec.path, generation);
        let covering: Vec<_> = self.covering((name, &of), &key, uid).collect();
        assert!(!sync.spec.suspend, "{name} is suspended and deletes {id}");
        if sync.metadata.deletion_timestamp.is_some() {
            *counts.entry("delete at the end of a GitSync").or_default() += 1;
            let policy = sync.spec.deletion_policy;
            assert!(policy == DeletionPolicy::Delete, "{name} ends, and lets {id} not stay");
        } else {
            *counts.entry("delete").or_default() += 1;
            assert!(
                looked.answered == generation,
                "{name} deletes {id}, and has not looked since its spec was changed"
            );
            assert!(!looked.failed, "{name} deletes {id}, and its last look has failed");
            assert!(!looked.lost, "{name} deletes {id}, and does not know what was there before");
            let tree = &trees[looked.found.map_or(0, |(head, _)| head)];
            self.own(name, id, (&looked, &covering), tree, counts);
            assert!(sync.spec.prune.enabled, "{id} goes although pruning is off");
            let held = self.held.get(&(of.clone(), key.clone()));
            let of_those = held.is_some_and(|held| held.contains(&part(uid)));
            if of_those {
                *counts.entry("held delete goes after its approval").or_default() += 1;
                assert!(!covering.is_empty(), "{id} was held, and nobody has said yes");
                // It may be wanted again since then.
                let said_before = |it: &&Approval| looked.seen.is_some_and(|seen| it.tick < seen);
                assert!(
                    covering.iter().any(said_before),
                    "{name} deletes {id}, and has not looked since somebody said yes"
                );
            }
            if covering.is_empty() {
                let errors = has_errors(tree, &sync.spec.path);
                assert!(!errors, "{name} deletes {id} by a commit with errors");
                self.brakes(name, (id, uid), trees, counts);
            }
        }
        self.sees((name, id), &covering, operator, counts);
        self.asks_others((name, id), (&looked, &covering), operator, counts);
    }

    /// What the GitSync wants itself, or has in a broken file.
    fn own(
        &self,
        name: &str,
        id: &ObjectId,
        (looked, covering): (&Looked, &[&Approval]),
        tree: &Tree,
        counts: &mut Counts,
    ) {
        let mine = self.wanted.get(&(name.to_owned(), id.clone()));
        let (Some((since, legible)), Some(seen)) = (mine, looked.seen) else { return };
        if *since > seen {
            return;
        }
        // What a broken file hides goes only when somebody has said so of just this object.
        assert!(!legible, "{name} deletes {id}, which it wants itself");
        assert!(!covering.is_empty(), "{name} deletes {id}, which it hides itself");
        let file = self.files.get(&(name.to_owned(), id.clone()));
        let broken = file.and_then(|place| tree.files.get(&place.file));
        let there = broken.is_some_and(|file| file.objects.contains_key(id));
        assert!(!there, "{name} deletes {id}, whose file is broken");
        *counts.entry("delete in spite of errors").or_default() += 1;
    }

    /// What is not seen proves nothing.
    fn sees(
        &self,
        (name, id): (&str, &ObjectId),
        covering: &[&Approval],
        operator: &Operator,
        counts: &mut Counts,
    ) {
        for (kind, watch) in WATCHES.iter().zip(&operator.watches).filter(|(_, w)| w.is_down) {
            let unread = format!("kind {kind}");
            let knew = covering.iter().any(|it| it.unread.contains(&unread));
            assert!(knew, "{name} deletes {id} while nothing is seen of {kind}");
            // The approval was given when it was silent; by now it is, or may be so only for a moment.
            if watch.is_silent {
                *counts.entry("delete in spite of a silent kind").or_default() += 1;
            }
        }
    }

    /// What the other GitSyncs of the namespace want.
    fn asks_others(
        &self,
        (name, id): (&str, &ObjectId),
        (looked, covering): (&Looked, &[&Approval]),
        operator: &Operator,
        counts: &mut Counts,
    ) {
        let since = match self.deleted.get(name) {
            Some(tick) if self.ends(name, operator) => *tick,
            _ => looked.found.map_or(0, |(_, tick)| tick),
        };
        for (other, _, _) in SYNCS.iter().filter(|(other, _, _)| *other != name) {
            let Some(entry) = operator.entry(other).filter(|entry| !entry.value.facts.deleting)
            else {
                continue;
            };
            let (unread, file) = (format!("GitSync {other}"), format!("GitSync {other}: "));
            let knows = |name: &String| *name == unread || name.starts_with(&file);
            let knew = covering.iter().any(|it| it.unread.iter().any(knows));
            let theirs = self.looked.get(*other);
            let wanted = self.wanted.get(&((*other).to_owned(), id.clone()));
            let seen = theirs.and_then(|theirs| theirs.seen);
            let has_read = |since: u64| seen.is_some_and(|seen| since <= seen);
            // Somebody has said yes although the other one could not be read.
            let mut spite = |why: &str| {
                assert!(knew, "{name} deletes {id}, and {other} {why}");
                *counts.entry("delete in spite of somebody unread").or_default() += 1;
            };
            match entry.value.object() {
                None => spite("does not parse"),
                Some(sync) if sync.spec.suspend => {
                    if seen.is_none() || theirs.is_some_and(|theirs| theirs.failed) {
                        spite("is suspended, and could not be asked");
                    }
                }
                Some(_) => {}
            }
            let Some((wanted, legible)) = wanted else { continue };
            if (*wanted > since || entry.value.object().is_none()) && !has_read(*wanted) {
                continue;
            }
            let wants = has_read(*wanted) && *legible;
            assert!(!wants, "{name} deletes {id}, which {other} wants");
            let what = if *legible { "wants it" } else { "hides it" };
            spite(what);
        }
    }

    fn ends(&self, name: &str, operator: &Operator) -> bool {
        operator.entry(name).is_some_and(|entry| entry.value.facts.deleting)
    }
}
