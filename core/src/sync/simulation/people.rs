//! What people do: in Git, by hand in the cluster, with GitSyncs.

use serde_json::{Value, json};

use super::server::{Name, annotation};
use super::{Sim, sync};
use crate::api::{ObjectId, keys};
use crate::sync::poll::Moved;
use crate::sync::properties::repository::{FOLDERS, File, Health, NAMES, Tree, id, spec};

impl Sim {
    fn any(&mut self) -> ObjectId {
        id(self.dice.of(&NAMES))
    }

    /// Somebody pushes.
    pub(super) fn in_git(&mut self) {
        let folders = &FOLDERS[..self.syncs.len()];
        let (folder, number, what) = (self.dice.of(folders), self.dice.roll(4), self.dice.roll(18));
        let path = format!("{folder}f{}.yaml", self.dice.roll(3));
        let new = format!("{folder}n{}.yaml", self.dice.roll(6));
        let other = self.dice.of(folders);
        let (id, mut tree) = (self.any(), self.trees[self.head].clone());
        self.say(|| format!("git {what}: {id} {number} {path} {new} {other}"));
        let of = |tree: &Tree| tree.file_of(folder, &id).map(|(path, _)| path.clone());
        match what {
            0..=2 => {
                let path = of(&tree).unwrap_or(path);
                tree.put(&path, id, number);
            }
            // Said twice, perhaps.
            3 => tree.put(&path, id, number),
            4 | 5 => tree.remove(&id),
            // Moved to another file, here or over there; perhaps into one that is broken.
            6..=8 => {
                if let Some(content) = tree.content(folder, &id) {
                    tree.remove(&id);
                    let path = if number == 0 { new } else { path };
                    let path = path.replace(folder, other);
                    tree.put(&path, id, content);
                    if what == 8 {
                        tree.files.entry(path).or_default().health = Health::Unknown;
                    }
                }
            }
            // A file is renamed, and may be broken at the same time.
            9 | 10 => {
                let file = of(&tree).and_then(|path| tree.files.remove(&path));
                if let Some(file) = file.filter(|_| !tree.files.contains_key(&new)) {
                    let health = [Health::Unknown, Health::Named, file.health, file.health][number];
                    tree.files.insert(new, File { health, ..file });
                }
            }
            11 | 12 => {
                let health = if number % 2 == 0 { Health::Unknown } else { Health::Named };
                let path = of(&tree).unwrap_or(path);
                tree.files.entry(path).or_default().health = health;
            }
            13 | 14 => tree.mend(),
            15 => tree.files.retain(|path, _| number > 0 || !path.starts_with(folder)),
            // Many at once.
            16 => {
                for name in NAMES {
                    let path = format!("{}f{}.yaml", self.dice.of(folders), self.dice.roll(3));
                    let one = super::people::id(name);
                    tree.remove(&one);
                    tree.put(&path, one, number);
                }
            }
            // An earlier state, by force.
            _ => {
                self.head = self.dice.roll(self.trees.len());
                self.observe();
                return;
            }
        }
        if tree != self.trees[self.head] {
            self.push(tree);
        }
    }

    pub(super) fn edit(&mut self, name: &Name, change: impl FnOnce(&mut Value)) {
        let before = self.server.version;
        self.server.edit(name, change);
        self.touched(name, before);
    }

    /// Somebody has done something to an object, if that has changed it.
    fn touched(&mut self, name: &Name, before: u64) {
        if let Name::Object(id) = name
            && self.server.version != before
        {
            self.oracle.by_hand(id, self.server.log.len());
        }
        self.observe();
    }

    pub(super) fn annotate(&mut self, name: &Name, key: &str, value: Option<&str>) {
        self.edit(name, |object| {
            if let Some(value) = value {
                object["metadata"]["annotations"][key] = json!(value);
            } else if let Some(all) = object["metadata"]["annotations"].as_object_mut() {
                all.remove(key);
            }
        });
    }

    pub(super) fn delete(&mut self, name: &Name) {
        let before = self.server.version;
        self.server.delete(name);
        self.touched(name, before);
    }

    /// Somebody has `kubectl`.
    pub(super) fn by_hand(&mut self) {
        let (number, what) = (self.dice.roll(4), self.dice.roll(13));
        let (one, two) = (self.any(), self.any());
        self.say(|| format!("by hand {what}: {one} {two} {number}"));
        let name = Name::Object(one.clone());
        match what {
            0 | 1 => self.edit(&name, |object| {
                object["spec"] = spec(&one, 90 + number);
                if number == 0 {
                    // With what says what was applied.
                    object["metadata"]["annotations"][keys::APPLIED] = json!("touched");
                }
            }),
            2 => self.edit(&name, |object| object["metadata"]["labels"] = json!({"mine": "yes"})),
            3 => self.delete(&name),
            4 => {
                self.edit(&name, |object| {
                    object["metadata"]["finalizers"] = json!(["example.com/hold"]);
                });
                self.delete(&name);
            }
            5 => self.edit(&name, |object| {
                let held = if number == 0 { json!(["example.com/hold"]) } else { json!([]) };
                object["metadata"]["finalizers"] = held;
            }),
            // Made by somebody; copied, mark and all; or of a GitSync far away, or of one that is no more.
            6 | 7 => {
                let whose = ["uid-8/far/main", "uid-0/team/main", "uid-0/team/lost", ""][number];
                let copied = self
                    .server
                    .get(&Name::Object(two))
                    .and_then(|object| annotation(object, keys::OWNER).map(str::to_owned));
                let mark = format!("{whose}/{}/team/{}", one.kind, one.name);
                let mark = if whose.is_empty() { copied } else { Some(mark) };
                let mut annotations = json!({});
                if let Some(mark) = mark.filter(|_| what == 7) {
                    annotations[keys::OWNER] = json!(mark);
                }
                let before = self.server.version;
                self.server.make(
                    &name,
                    json!({
                        "apiVersion": "convoke.dev/v1alpha1", "kind": one.kind.as_str(),
                        "metadata": {"name": one.name, "annotations": annotations},
                        "spec": spec(&one, number),
                    }),
                );
                self.touched(&name, before);
            }
            8 => {
                let whom = [None, Some("main"), Some("other"), Some("third")][number];
                self.annotate(&name, keys::ADOPT_BY, whom);
            }
            9 => {
                let key = [keys::OWNER, keys::APPLIED, keys::SOURCE, "odd"][number];
                self.annotate(&name, key, None);
            }
            _ => {
                let value = (number > 0).then_some(keys::DISABLED);
                let key = if what == 10 { keys::RECONCILE } else { keys::PRUNE };
                self.annotate(&name, key, value);
            }
        }
    }

    /// Somebody edits a GitSync.
    pub(super) fn user(&mut self) {
        let (at, number, what) =
            (self.dice.roll(self.syncs.len()), self.dice.roll(4), self.dice.roll(26));
        let (sync_name, path, created) = self.syncs[at];
        let (next, _, _) = self.syncs[(at + 1) % self.syncs.len()];
        self.say(|| format!("user {what}: {sync_name} {number}"));
        let name = Name::Sync(sync_name.into());
        match what {
            0..=3 => {
                let digest = self.oracle.shown(sync_name);
                let old = self.oracle.any_digest(&mut self.dice);
                let digest = if what == 3 { old } else { digest };
                if let Some(digest) = digest {
                    self.approve(sync_name, &digest);
                }
            }
            4 => {
                let most = [json!(2), json!("0%"), json!("100%"), json!("30%")][number].clone();
                self.edit(&name, |sync| sync["spec"]["prune"]["maxDeletions"] = most);
            }
            5 => {
                let drift = if number == 0 { "Report" } else { "Correct" };
                self.edit(&name, |sync| {
                    sync["spec"]["drift"] = json!(drift);
                    sync["spec"]["prune"]["enabled"] = json!(number != 1);
                });
            }
            6 => {
                let policy = if number % 2 == 0 { "Atomic" } else { "Isolate" };
                self.edit(&name, |sync| sync["spec"]["failurePolicy"] = json!(policy));
            }
            7 | 8 => self.edit(&name, |sync| sync["spec"]["suspend"] = json!(number == 0)),
            9 => self.annotate(&name, keys::REQUESTED_AT, Some(&format!("at {number}"))),
            10 => {
                let policy = if number % 2 == 0 { "Delete" } else { "Orphan" };
                self.edit(&name, |sync| sync["spec"]["deletionPolicy"] = json!(policy));
            }
            11 | 12 => {
                let on = if number == 0 { json!([]) } else { json!([{"name": next}]) };
                self.edit(&name, |sync| sync["spec"]["dependsOn"] = on);
            }
            13 | 14 => {
                let account = if number == 0 { json!(null) } else { json!("robot") };
                self.edit(&name, |sync| sync["spec"]["serviceAccountName"] = account);
            }
            // It does not parse any more, or does again.
            15 | 16 => {
                let interval = if number < 2 { json!(5) } else { json!("1m") };
                self.edit(&name, |sync| sync["spec"]["interval"] = interval);
            }
            17 => {
                let path = if number < 2 { path } else { self.dice.of(&FOLDERS) };
                self.edit(&name, |sync| sync["spec"]["path"] = json!(path));
            }
            18 => {
                let what = if number < 2 { Moved::Variables } else { Moved::Folder };
                self.count("folder or variables change");
                self.operator.moved(sync_name, what);
            }
            19 => {
                let drift = if number < 3 { "Report" } else { "Correct" };
                self.edit(&name, |sync| sync["spec"]["drift"] = json!(drift));
            }
            20 | 21 => self.annotate(&name, keys::APPROVE_PRUNE, None),
            // Deleted, or made anew.
            _ => {
                if self.server.get(&name).is_none() {
                    self.server.make(&name, sync(sync_name, path, created));
                    self.observe();
                } else if number < 2 {
                    self.count("GitSync deleted");
                    self.delete(&name);
                }
            }
        }
    }

    pub(super) fn approve(&mut self, sync: &str, digest: &str) {
        self.count("approval");
        self.say(|| format!("approves {digest} of {sync}"));
        self.tick += 1;
        self.oracle.approve(self.tick, sync, digest, &self.server);
        self.annotate(&Name::Sync(sync.into()), keys::APPROVE_PRUNE, Some(digest));
    }

    /// Approves all that is held; whether there was something new.
    pub(super) fn approve_all(&mut self) -> bool {
        let mut some = false;
        for (name, _, _) in self.syncs {
            let Some(digest) = self.oracle.shown(name) else { continue };
            let sync = self.server.get(&Name::Sync((*name).into()));
            let said = sync.and_then(|sync| annotation(sync, keys::APPROVE_PRUNE)) == Some(&digest);
            if !said {
                self.approve(name, &digest);
                some = true;
            }
        }
        some
    }
}
