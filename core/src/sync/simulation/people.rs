//! What people do: in Git, by hand in the cluster, with GitSyncs; and what breaks.

use serde_json::{Value, json};

use super::operator::WATCHES;
use super::server::{Name, annotation, is_deleting};
use super::{SYNCS, Sim, sync};
use crate::api::{ObjectId, keys};
use crate::sync::properties::repository::{FOLDERS, File, Health, NAMES, Tree, id, spec};

impl Sim {
    fn any(&mut self) -> ObjectId {
        id(self.dice.of(&NAMES))
    }

    /// Somebody pushes.
    pub(super) fn in_git(&mut self) {
        let (folder, number, what) =
            (self.dice.of(&FOLDERS), self.dice.roll(4), self.dice.roll(18));
        let path = format!("{folder}f{}.yaml", self.dice.roll(3));
        let new = format!("{folder}n{}.yaml", self.dice.roll(6));
        let other = self.dice.of(&FOLDERS);
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
                    let path = format!("{}f{}.yaml", self.dice.of(&FOLDERS), self.dice.roll(3));
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

    fn edit(&mut self, name: &Name, change: impl FnOnce(&mut Value)) {
        self.server.edit(name, change);
        if let Name::Object(id) = name {
            self.oracle.by_hand(id);
        }
        self.observe();
    }

    fn annotate(&mut self, name: &Name, key: &str, value: Option<&str>) {
        self.edit(name, |object| {
            if let Some(value) = value {
                object["metadata"]["annotations"][key] = json!(value);
            } else if let Some(all) = object["metadata"]["annotations"].as_object_mut() {
                all.remove(key);
            }
        });
    }

    fn delete(&mut self, name: &Name) {
        self.server.delete(name);
        if let Name::Object(id) = name {
            self.oracle.by_hand(id);
        }
        self.observe();
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
                let whose = ["uid-8/far/gone", "uid-0/team/main", "uid-0/team/lost", ""][number];
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
                self.server.make(
                    &name,
                    json!({
                        "apiVersion": "convoke.dev/v1alpha1", "kind": one.kind.as_str(),
                        "metadata": {"name": one.name, "annotations": annotations},
                        "spec": spec(&one, number),
                    }),
                );
                self.oracle.by_hand(&one);
                self.observe();
            }
            8 => {
                let whom = [None, Some("main"), Some("other"), Some("nobody")][number];
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
            (self.dice.roll(SYNCS.len()), self.dice.roll(4), self.dice.roll(14));
        let (sync_name, path, created) = SYNCS[at];
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

    fn approve(&mut self, sync: &str, digest: &str) {
        self.count("approval");
        self.say(|| format!("approves {digest} of {sync}"));
        self.tick += 1;
        self.oracle.approve(self.tick, sync, digest);
        self.annotate(&Name::Sync(sync.into()), keys::APPROVE_PRUNE, Some(digest));
    }

    /// Approves all that is held; whether there was something new.
    pub(super) fn approve_all(&mut self) -> bool {
        let mut some = false;
        for (name, _, _) in SYNCS {
            let Some(digest) = self.oracle.shown(name) else { continue };
            let sync = self.server.get(&Name::Sync(name.into()));
            let said = sync.and_then(|sync| annotation(sync, keys::APPROVE_PRUNE)) == Some(&digest);
            if !said {
                self.approve(name, &digest);
                some = true;
            }
        }
        some
    }

    /// Something breaks.
    pub(super) fn fault(&mut self) {
        let (what, watch) = (self.dice.roll(6), self.dice.roll(WATCHES.len()));
        self.say(|| format!("fault {what} {watch}"));
        match what {
            0 | 1 => self.crash(),
            2 | 3 => {
                let down = !self.operator.watches[watch].is_down;
                self.count(if down { "watch fails" } else { "watch works again" });
                self.operator.fail(&self.server, watch, down, self.now);
            }
            4 => {
                self.count("watch lost its place");
                self.operator.relist(&self.server, watch);
            }
            _ => {
                let refuses = self.server.refuses.is_none();
                self.server.refuses = refuses.then(|| "https://2.example".to_owned());
            }
        }
    }

    /// People mend what is broken and let go of what they hold up.
    pub(super) fn calm(&mut self) {
        self.say(|| "calm".into());
        self.server.refuses = None;
        for watch in 0..WATCHES.len() {
            if self.operator.watches[watch].is_down {
                self.operator.fail(&self.server, watch, false, self.now);
            }
        }
        let mut tree = self.trees[self.head].clone();
        tree.mend();
        // What both folders want is one of the two's.
        for name in NAMES {
            let one = id(name);
            if tree.means(FOLDERS[0], &one) && tree.means(FOLDERS[1], &one) {
                for (path, file) in &mut tree.files {
                    if path.starts_with(FOLDERS[1]) {
                        file.objects.remove(&one);
                    }
                }
            }
        }
        tree.mend();
        self.push(tree);
        for (name, path, created) in SYNCS {
            let name = Name::Sync(name.into());
            let Name::Sync(text) = &name else { continue };
            let fresh = sync(text, path, created);
            match self.server.get(&name) {
                Some(old) if is_deleting(old) => {
                    // It comes to its end first.
                    self.edit(&name, |sync| sync["spec"]["deletionPolicy"] = json!("Orphan"));
                }
                Some(_) => {
                    let spec = fresh["spec"].clone();
                    self.edit(&name, |sync| sync["spec"] = spec);
                }
                None => {}
            }
        }
        self.drain();
        for (name, path, created) in SYNCS {
            let name = Name::Sync(name.into());
            if self.server.get(&name).is_none() {
                let Name::Sync(text) = &name else { continue };
                self.server.make(&name, sync(text, path, created));
                self.observe();
            }
        }
        let live: Vec<_> = self.server.objects().map(|(id, _)| id.clone()).collect();
        for one in live {
            let name = Name::Object(one.clone());
            let ours = |object: &Value| {
                SYNCS.iter().any(|(sync, _, _)| {
                    let live = self.server.get(&Name::Sync((*sync).into()));
                    let uid = live.map(|live| live["metadata"]["uid"].as_str().unwrap_or_default());
                    let uid = uid.unwrap_or_default();
                    let mark = format!("{uid}/team/{sync}/{}/team/{}", one.kind, one.name);
                    annotation(object, keys::OWNER) == Some(&*mark)
                })
            };
            let strange = self.server.get(&name).is_some_and(|object| !ours(object));
            self.edit(&name, |object| {
                object["metadata"]["finalizers"] = json!([]);
                if let Some(all) = object["metadata"]["annotations"].as_object_mut() {
                    for key in [keys::RECONCILE, keys::PRUNE, keys::ADOPT_BY] {
                        all.remove(key);
                    }
                }
            });
            if strange {
                self.delete(&name);
            }
        }
    }
}
