//! What breaks, and how people mend it.

use std::time::Duration;

use serde_json::{Value, json};

use super::operator::WATCHES;
use super::oracle::mark_of;
use super::server::{Name, Rights, annotation, is_deleting, text};
use super::{Sim, sync};
use crate::api::keys;
use crate::sync::properties::repository::{FOLDERS, NAMES, id};

impl Sim {
    /// Something breaks.
    pub(super) fn fault(&mut self) {
        let (what, watch) = (self.dice.roll(11), self.dice.roll(WATCHES.len()));
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
            5 => {
                let up = (0..WATCHES.len()).all(|watch| !self.operator.watches[watch].is_down);
                if up {
                    self.count("watch fails");
                    self.operator.fail(&self.server, watch, true, self.now);
                }
                // Longer than a minute.
                self.now += Duration::from_secs(90);
                if self.operator.still_fails(self.now) {
                    self.count("kind falls silent");
                }
            }
            6 | 7 => {
                let active: Vec<_> = self.operator.active.keys().cloned().collect();
                if let Some(name) = active.get(self.dice.roll(active.len().max(1))) {
                    self.drop_pass(name);
                }
            }
            8 | 9 => {
                let all = [(false, false, None), (true, false, None), (false, true, None)];
                let verb = self.dice.of(&["patch", "delete", "get"]);
                let (no_account, no_acting, no_verb) = match self.dice.roll(4) {
                    3 => (false, false, Some(verb)),
                    number => all[number],
                };
                self.server.rights = Rights { no_account, no_acting, no_verb };
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
        self.server.rights = Rights::default();
        for watch in 0..WATCHES.len() {
            if self.operator.watches[watch].is_down {
                self.operator.fail(&self.server, watch, false, self.now);
            }
        }
        let mut tree = self.trees[self.head].clone();
        tree.mend();
        // What several folders want is one of the first's.
        for name in NAMES {
            let one = id(name);
            let mut wanted = false;
            for folder in FOLDERS {
                let means = tree.means(folder, &one);
                let files = tree.files.iter_mut().filter(|(path, _)| path.starts_with(folder));
                for (_, file) in files.filter(|_| means && wanted) {
                    file.objects.remove(&one);
                }
                wanted |= means;
            }
        }
        tree.mend();
        self.push(tree);
        for (name, path, created) in self.syncs {
            let name = Name::Sync((*name).into());
            let Name::Sync(text) = &name else { continue };
            let fresh = sync(text, path, created);
            match self.server.get(&name) {
                Some(old) if is_deleting(old) => {
                    // It comes to its end first.
                    self.edit(&name, |sync| sync["spec"]["deletionPolicy"] = json!("Orphan"));
                }
                Some(old) => {
                    let mut spec = fresh["spec"].clone();
                    // Who waits for whom stays, as far as it leads in one direction only.
                    let later = self.syncs.iter().skip_while(|(name, _, _)| *name != text).skip(1);
                    let later: Vec<_> = later.map(|(name, _, _)| *name).collect();
                    let on = old["spec"]["dependsOn"].as_array().into_iter().flatten();
                    let on = on.filter(|on| later.iter().any(|name| on["name"] == *name));
                    spec["dependsOn"] = on.cloned().collect();
                    self.edit(&name, |sync| sync["spec"] = spec);
                }
                None => {}
            }
        }
        self.drain();
        for (name, path, created) in self.syncs {
            let name = Name::Sync((*name).into());
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
                self.syncs.iter().any(|(sync, _, _)| {
                    let live = self.server.get(&Name::Sync((*sync).into()));
                    let uid = live.map(|live| text(live, "/metadata/uid")).unwrap_or_default();
                    annotation(object, keys::OWNER) == Some(&*mark_of(uid, sync, &one))
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

    /// Whoever drives the machine gives a reconcile up in the middle: it has taken too long.
    fn drop_pass(&mut self, name: &str) {
        self.count("pass dropped");
        self.say(|| format!("the pass of {name} is dropped"));
        self.hungry.retain(|hungry| hungry != name);
        for orphaned in self.operator.drop_pass(name) {
            if self.dice.one_in(2) {
                self.late.push(orphaned);
            }
        }
    }
}
