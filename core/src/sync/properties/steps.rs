//! One step of the world: in Git, by hand in the cluster, of a user, of the operator.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::repository::{FOLDERS, File, Health, NAMES, Tree, id};
use super::world::World;
use crate::api::git_sync::{DriftPolicy, FailurePolicy};
use crate::api::keys;
use crate::sync::order::Seq;

fn owned((key, value): (&String, &String)) -> (String, String) {
    (key.clone(), value.clone())
}

impl World {
    /// Something happens.
    pub fn step(&mut self) {
        match self.dice.roll(10) {
            0..=3 => self.step_in_git(),
            4 | 5 => self.step_by_hand(),
            6 => self.step_of_user(),
            _ => self.step_of_operator(),
        }
    }

    pub fn step_in_git(&mut self) {
        let (folder, number, what) =
            (self.dice.of(&FOLDERS), self.dice.roll(4), self.dice.roll(16));
        let name = self.dice.of(&NAMES);
        let path = format!("{folder}f{}.yaml", self.dice.roll(3));
        let new = format!("{folder}n{}.yaml", self.dice.roll(6));
        let other = self.dice.of(&FOLDERS);
        self.log.push(format!("git {what}: {name} {number} {path} {new} {other}"));
        let (id, mut tree) = (id(name), self.tree());
        let of = |tree: &Tree| tree.file_of(folder, &id).map(|(path, _)| path.clone());
        match what {
            0..=2 => {
                let path = of(&tree).unwrap_or(path);
                tree.put(&path, id, number);
            }
            // Said twice, perhaps.
            3 => tree.put(&path, id, number),
            4 | 5 => tree.remove(&id),
            // Moved to another file, here or over there.
            6 | 7 => {
                let content = tree.content(folder, &id);
                if let Some(content) = content {
                    tree.remove(&id);
                    let path = if number == 0 { new } else { path };
                    tree.put(&path.replace(folder, other), id, content);
                }
            }
            // A file is renamed, and may be broken at the same time.
            8 | 9 => {
                let file = of(&tree).and_then(|path| tree.files.remove(&path));
                if let Some(file) = file.filter(|_| !tree.files.contains_key(&new)) {
                    let health = [Health::Unknown, Health::Named, file.health, file.health][number];
                    tree.files.insert(new, File { health, ..file });
                }
            }
            10 | 11 => {
                let health = if number % 2 == 0 { Health::Unknown } else { Health::Named };
                let path = of(&tree).unwrap_or(path);
                tree.files.entry(path).or_default().health = health;
            }
            12 | 13 => tree.mend(),
            14 => tree.files.retain(|path, _| number > 0 || !path.starts_with(folder)),
            // An earlier state: as a new commit, or by force.
            _ => {
                let earlier = self.dice.roll(self.trees.len());
                if number < 2 {
                    self.head = earlier;
                    return;
                }
                tree = self.trees[earlier].clone();
            }
        }
        if tree != self.trees[self.head] {
            self.commit(tree);
        }
    }

    /// Somebody has `kubectl`.
    fn step_by_hand(&mut self) {
        let (number, what) = (self.dice.roll(4), self.dice.roll(13));
        let (one, two) = (id(self.dice.of(&NAMES)), id(self.dice.of(&NAMES)));
        self.log.push(format!("by hand {what}: {one} {two} {number}"));
        let object = self.cluster.objects.get(&one).cloned();
        match (what, object) {
            (0 | 1, Some(o)) => {
                self.cluster.put(&one, 90 + number, (o.labels, o.annotations));
            }
            (2, Some(o)) => drop(self.cluster.put(&one, o.spec, (BTreeMap::new(), o.annotations))),
            (3, _) => self.cluster.delete(&one),
            (4, _) => {
                self.cluster.hold(&one, true);
                self.cluster.delete(&one);
            }
            (5, _) => self.cluster.hold(&one, number == 0),
            // Copied, mark and all; or made by somebody.
            (6, _) => {
                let copied = self.cluster.objects.get(&two).map(|o| o.annotations.clone());
                self.cluster.make(&one, number, copied.unwrap_or_default());
            }
            // Made by another GitSync: of a namespace far away, that lives or not; or of an earlier one.
            (7, _) => {
                let whose =
                    ["uid-9/far/else", "uid-8/far/gone", "uid-0/team/main", "uid-0/team/lost"];
                let mark = format!("{}/{}/team/{}", whose[number], one.kind, one.name);
                let annotations = BTreeMap::from([(keys::OWNER.to_owned(), mark)]);
                self.cluster.make(&one, number, annotations);
            }
            (8, _) => {
                let whom = [None, Some("main"), Some("other"), Some("nobody")][number];
                self.cluster.annotate(&one, keys::ADOPT_BY, whom);
            }
            (9, object) => {
                let key = [keys::OWNER, keys::APPLIED, keys::SOURCE, "odd"][number];
                self.cluster.annotate(&one, key, None);
                // Or of another object, beside an edit of its own.
                let other = self.cluster.objects.get(&two).cloned();
                if let (true, Some(o), Some(other)) = (number == 1, object, other) {
                    let mut annotations = o.annotations;
                    annotations.extend(other.annotations.get_key_value(keys::APPLIED).map(owned));
                    self.cluster.put(&one, 93, (o.labels, annotations));
                }
            }
            (_, _) => {
                let value = (number > 0).then_some(keys::DISABLED);
                let key = if what == 10 { keys::RECONCILE } else { keys::PRUNE };
                self.cluster.annotate(&one, key, value);
            }
        }
    }

    /// Somebody edits a GitSync.
    fn step_of_user(&mut self) {
        let (at, number, what) = (self.dice.roll(2), self.dice.roll(4), self.dice.roll(10));
        self.log.push(format!("user {what}: sync {at} {number}"));
        let shown = self.ledger.any(&mut self.dice);
        let sync = &mut self.syncs[at];
        match what {
            0..=3 => {
                sync.approval = sync.pending.as_ref().map(|pending| pending.digest.clone());
                sync.said = Seq::next();
                self.ledger.approve(sync.approval.as_deref());
                return;
            }
            // An old digest, or none that ever was.
            4 => {
                sync.approval = Some(shown.filter(|_| number > 0).unwrap_or("nonsense".into()));
                sync.said = Seq::next();
                self.ledger.approve(sync.approval.as_deref());
                return;
            }
            5 => {
                let most = ["30%", "0%", "100%", "60%"][number].to_owned();
                sync.prune.max_deletions =
                    if number == 0 { IntOrString::Int(2) } else { IntOrString::String(most) };
            }
            6 => {
                let report = number == 0;
                sync.drift = if report { DriftPolicy::Report } else { DriftPolicy::default() };
                sync.prune.enabled = number != 1;
            }
            7 => {
                let atomic = number % 2 == 0;
                sync.failure_policy =
                    if atomic { FailurePolicy::Atomic } else { FailurePolicy::default() };
            }
            8 => sync.suspended = number == 0,
            // Deleted without its objects, and made anew.
            _ if number == 0 => {
                let (key, old) = (sync.key(), sync.reference.uid.clone());
                sync.forget();
                sync.reference.uid = format!("{old}+");
                (sync.created, sync.approval, sync.approved) =
                    (300 + self.versions.cast_signed(), None, None);
                (sync.pending, sync.last, sync.base, sync.whole) = (None, None, None, None);
                self.store.removed(&key, &old);
                let _woken = self.siblings.forget(&key);
                self.ledger.given[at].clear();
            }
            _ => {}
        }
        self.edited(at);
    }

    pub fn step_of_operator(&mut self) {
        let (at, what) = (self.dice.roll(2), self.dice.roll(24));
        self.log.push(format!("operator {what}: sync {at}"));
        match what {
            0 => self.restart(),
            1 | 2 => self.poll(at, true),
            3..=7 => self.poll(at, false),
            8 | 9 => self.sync(at, true),
            // Both are asked, as before each delete; else hardly anything would ever be deleted.
            10..=17 => {
                self.poll(0, false);
                self.poll(1, false);
                self.sync(at, what > 15);
            }
            _ => self.sync(at, false),
        }
    }
}
