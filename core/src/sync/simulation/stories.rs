//! What belongs together of what people do, and comes at a bad moment: each single step would hardly ever meet the others.

use std::time::Duration;

use serde_json::{Value, json};

use super::Sim;
use super::operator::{Flying, Orphaned};
use super::server::Name;
use crate::api::{ObjectId, keys};
use crate::sync::io::effect::Call;
use crate::sync::properties::repository::{FOLDERS, NAMES, id};

impl Sim {
    /// Something goes on for a moment.
    fn moment(&mut self) {
        let most = [1, 4, 12, 30][self.dice.roll(4)];
        for _ in 0..most {
            if !self.micro() {
                return;
            }
        }
    }

    /// All that goes on comes to its end.
    fn lull(&mut self) {
        for _ in 0..600 {
            if !self.micro() {
                return;
            }
        }
    }

    /// So much time passes, and all that goes on meanwhile comes to its end.
    fn lasts(&mut self, time: Duration) {
        let until = self.now + time;
        while self.now < until && self.pass_time(until - self.now) {
            self.lull();
        }
    }

    fn spec_of(&mut self, at: usize, change: impl FnOnce(&mut Value)) {
        let name = Name::Sync(self.syncs[at].0.into());
        self.edit(&name, |sync| change(&mut sync["spec"]));
    }

    /// The names that a folder has, in good files.
    fn wanted_in(&self, folder: &str) -> Vec<ObjectId> {
        let tree = &self.trees[self.head];
        NAMES.map(id).into_iter().filter(|id| tree.content(folder, id).is_some()).collect()
    }

    pub(super) fn story(&mut self) {
        let at = self.dice.roll(self.syncs.len());
        let next = (at + 1 + self.dice.roll(self.syncs.len() - 1)) % self.syncs.len();
        let what = self.dice.roll(10);
        self.say(|| format!("story {what}: {at} {next}"));
        let (here, there) = (FOLDERS[at], FOLDERS[next]);
        self.faults = false;
        match what {
            0 => self.moves_late(at, next),
            1 => self.ends_while_moved(at, next),
            2 => self.changes_its_mind(at),
            3 => self.killed_while_it_tells(at),
            4 => self.loses_files(here),
            5 => self.waits(at, next),
            6 => self.silent(at),
            7 => self.takes_back(at),
            8 => self.is_frightened(at),
            _ => self.edits_and_hides(here, there),
        }
    }

    /// Fills a folder, so that there is something to lose, and waits for it.
    fn fill(&mut self, folder: &str) {
        let mut tree = self.trees[self.head].clone();
        tree.mend();
        for name in NAMES {
            let one = id(name);
            let nowhere = FOLDERS.iter().all(|folder| !tree.means(folder, &one));
            if nowhere {
                let path = format!("{folder}f{}.yaml", self.dice.roll(3));
                tree.put(&path, one, self.dice.roll(4));
            }
        }
        if tree != self.trees[self.head] {
            self.push(tree);
        }
        self.ask_all();
        self.lull();
    }

    fn ask_all(&mut self) {
        for (name, _, _) in self.syncs {
            let tick = self.tick;
            self.annotate(
                &Name::Sync((*name).into()),
                keys::REQUESTED_AT,
                Some(&format!("{tick}")),
            );
        }
    }

    /// What leaves one folder comes to the other one with the next commit, while the deletes are under way.
    fn moves_late(&mut self, at: usize, next: usize) {
        let (here, there) = (FOLDERS[at], FOLDERS[next]);
        self.fill(here);
        let going: Vec<_> = self.wanted_in(here).into_iter().take(1 + self.dice.roll(3)).collect();
        let mut tree = self.trees[self.head].clone();
        for id in &going {
            tree.remove(id);
        }
        self.push(tree.clone());
        let name = Name::Sync(self.syncs[at].0.into());
        self.annotate(&name, keys::REQUESTED_AT, Some(&format!("{}", self.tick)));
        for _ in 0..20 + self.dice.roll(60) {
            if !self.micro() {
                break;
            }
        }
        for one in going {
            tree.put(&format!("{there}f0.yaml"), one, self.dice.roll(4));
        }
        self.push(tree);
        let name = Name::Sync(self.syncs[next].0.into());
        self.annotate(&name, keys::REQUESTED_AT, Some(&format!("{}", self.tick)));
        self.moment();
    }

    /// A GitSync is deleted with its objects while a commit gives some of them to another one.
    fn ends_while_moved(&mut self, at: usize, next: usize) {
        let (here, there) = (FOLDERS[at], FOLDERS[next]);
        self.fill(here);
        self.spec_of(at, |spec| spec["deletionPolicy"] = json!("Delete"));
        self.lull();
        let moved: Vec<_> = self.wanted_in(here).into_iter().take(1 + self.dice.roll(4)).collect();
        let mut tree = self.trees[self.head].clone();
        for one in moved {
            let content = tree.content(here, &one).unwrap_or_default();
            tree.remove(&one);
            tree.put(&format!("{there}f1.yaml"), one, content);
        }
        if self.dice.one_in(3) {
            self.crash();
        }
        self.push(tree);
        if self.dice.one_in(2) {
            self.moment();
        }
        self.count("GitSync deleted");
        self.delete(&Name::Sync(self.syncs[at].0.into()));
        self.moment();
    }

    /// Somebody approves what is held just when it changes: the branch goes back to what wants it, and later once more to what does
    /// not; or what was protected for a while comes back to the list.
    fn takes_back(&mut self, at: usize) {
        let here = FOLDERS[at];
        self.fill(here);
        let whole = self.head;
        let mut tree = self.trees[whole].clone();
        let names = self.wanted_in(here);
        for one in &names {
            tree.remove(one);
        }
        tree.keep_company();
        self.push(tree);
        let less = self.head;
        self.ask_all();
        self.lull();
        let name = self.syncs[at].0;
        if self.dice.one_in(2) {
            let Some(one) = names.first() else { return };
            let protects = Name::Object(one.clone());
            self.annotate(&protects, keys::PRUNE, Some(keys::DISABLED));
            self.lull();
            // A change of an object is looked at a moment later.
            self.lasts(Duration::from_secs(1));
            self.annotate(&protects, keys::PRUNE, None);
        } else {
            self.goes_back_to(whole);
        }
        let shown = self.oracle.shown(name);
        if let Some(digest) = shown {
            self.approve(name, &digest);
            if self.dice.one_in(3) {
                self.moment();
                self.annotate(&Name::Sync(name.into()), keys::APPROVE_PRUNE, None);
            }
        }
        self.lull();
        self.goes_back_to(less);
        self.lull();
        if self.dice.one_in(2) {
            self.crash();
        }
        self.ask_all();
        self.lull();
    }

    /// Somebody approves what is held, thinks better of it, protects what was to go, and lets go of some of it later.
    fn is_frightened(&mut self, at: usize) {
        let here = FOLDERS[at];
        self.fill(here);
        let going: Vec<_> = self.wanted_in(here).into_iter().take(2 + self.dice.roll(3)).collect();
        if self.dice.one_in(2) {
            self.spec_of(at, |spec| spec["prune"]["maxDeletions"] = json!(1));
            self.lull();
        }
        let mut tree = self.trees[self.head].clone();
        for id in &going {
            tree.remove(id);
        }
        tree.keep_company();
        self.push(tree);
        self.ask_all();
        self.lull();
        let name = self.syncs[at].0;
        if let Some(digest) = self.oracle.shown(name) {
            self.approve(name, &digest);
            self.moment();
        }
        for id in &going {
            self.annotate(&Name::Object(id.clone()), keys::PRUNE, Some(keys::DISABLED));
        }
        self.annotate(&Name::Sync(name.into()), keys::APPROVE_PRUNE, None);
        match self.dice.roll(3) {
            0 => self.crash(),
            1 => {
                // That cannot always be written down before there is another value.
                self.faults = true;
                self.moment();
                self.faults = false;
                self.annotate(&Name::Sync(name.into()), keys::APPROVE_PRUNE, Some("no"));
            }
            _ => {}
        }
        self.ask_all();
        self.lull();
        for id in &going {
            self.annotate(&Name::Object(id.clone()), keys::PRUNE, None);
            self.lull();
            // A change of an object is looked at a moment later.
            self.lasts(Duration::from_secs(1));
        }
    }

    /// The branch is moved to a commit that it was at before.
    fn goes_back_to(&mut self, head: usize) {
        self.head = head;
        self.observe();
        self.ask_all();
    }

    /// Somebody pushes, and changes the spec while that is carried out.
    fn changes_its_mind(&mut self, at: usize) {
        let here = FOLDERS[at];
        self.fill(here);
        let mut tree = self.trees[self.head].clone();
        let (gone, number) = (self.dice.roll(3), self.dice.roll(4));
        for (at, one) in self.wanted_in(here).into_iter().enumerate() {
            tree.remove(&one);
            if at >= gone {
                tree.put(&format!("{here}f{number}.yaml"), one, number);
            }
        }
        tree.keep_company();
        self.push(tree);
        let name = Name::Sync(self.syncs[at].0.into());
        self.annotate(&name, keys::REQUESTED_AT, Some(&format!("{}", self.tick)));
        for _ in 0..10 + self.dice.roll(50) {
            if !self.micro() {
                break;
            }
        }
        match self.dice.roll(5) {
            0 | 1 => self.spec_of(at, |spec| spec["suspend"] = json!(true)),
            2 => self.spec_of(at, |spec| spec["prune"]["enabled"] = json!(false)),
            3 => self.spec_of(at, |spec| spec["prune"]["maxDeletions"] = json!("0%")),
            _ => self.in_git(),
        }
        self.lull();
    }

    /// What a killed operator has said arrives when the next one has long said something else.
    fn killed_while_it_tells(&mut self, at: usize) {
        let name = self.syncs[at].0;
        self.fill(FOLDERS[at]);
        self.in_git();
        self.ask_all();
        let tells = |flying: &Flying| {
            flying.sync == name
                && flying.reply.is_none()
                && matches!(flying.asked.call, Call::Status { .. })
        };
        for _ in 0..200 {
            if self.operator.flying.iter().any(tells) || !self.micro() {
                break;
            }
        }
        let flying = self.operator.flying.iter().find(|flying| tells(flying));
        let told = flying.map(|Flying { sync, asked, .. }| Orphaned {
            sync: sync.clone(),
            asked: asked.clone(),
        });
        self.crash();
        let mut kept = std::mem::take(&mut self.late);
        if let Some(told) = told {
            kept.retain(|late| !matches!(late.asked.call, Call::Status { .. }));
            kept.push(told);
        }
        self.calm_rights();
        if self.dice.one_in(2) {
            // By then the next one has something else to say.
            self.in_git();
            self.ask_all();
        }
        self.lull();
        self.late = kept;
        self.lull();
        // Whoever was written over before is answered a moment later.
        self.lasts(Duration::from_secs(20));
        let lives = self.operator.entry(name).is_some_and(|entry| !entry.value.facts.deleting);
        if lives && self.is_quiet() {
            let late = self.oracle.is_late(name).then(|| self.status(name));
            self.operator.wake(name, Duration::ZERO);
            self.drain();
            let now = self.status(name);
            let same = late.is_none_or(|late| late == now);
            assert!(same, "what a killed operator said stood for {name}, and not {now:#}");
            self.says_all();
        }
    }

    fn calm_rights(&mut self) {
        if self.server.rights.are_missing() {
            self.server.rights = super::server::Rights::default();
        }
    }

    /// Files are renamed and broken, and the operator that comes then has not seen what they were.
    fn loses_files(&mut self, here: &str) {
        self.fill(here);
        let mut tree = self.trees[self.head].clone();
        let path = format!("{here}f{}.yaml", self.dice.roll(3));
        if let Some(mut file) = tree.files.remove(&path) {
            file.health = crate::sync::properties::repository::Health::Unknown;
            let to = if self.dice.one_in(2) {
                path
            } else {
                format!("{here}n{}.yaml", self.dice.roll(6))
            };
            tree.files.insert(to, file);
        }
        tree.keep_company();
        self.push(tree);
        if self.dice.one_in(2) {
            self.crash();
            // The commit before cannot always be read.
            self.faults = true;
            self.lull();
            self.faults = false;
            let shown: Vec<_> = self
                .syncs
                .iter()
                .filter_map(|(name, _, _)| Some((*name, self.oracle.shown(name)?)))
                .collect();
            for (name, digest) in shown {
                self.approve(name, &digest);
            }
        } else {
            self.ask_all();
            self.lull();
            let one = self.any_of(here);
            let name = Name::Object(one.clone());
            if self.dice.one_in(2) {
                self.delete(&name);
            } else {
                self.edit(&name, |object| {
                    object["spec"] = crate::sync::properties::repository::spec(&one, 95);
                });
            }
        }
        self.lull();
    }

    fn any_of(&mut self, folder: &str) -> ObjectId {
        let tree = &self.trees[self.head];
        let all: Vec<_> = NAMES.map(id).into_iter().filter(|id| tree.means(folder, id)).collect();
        let at = self.dice.roll(all.len().max(1));
        all.get(at).cloned().unwrap_or_else(|| id(NAMES[0]))
    }

    /// One GitSync depends on another, and one commit concerns both.
    fn waits(&mut self, at: usize, next: usize) {
        let (here, there) = (FOLDERS[at], FOLDERS[next]);
        let name = self.syncs[next].0;
        self.spec_of(at, |spec| spec["dependsOn"] = json!([{"name": name}]));
        self.lull();
        let mut tree = self.trees[self.head].clone();
        let (one, two) = (id(self.dice.of(&NAMES)), id(self.dice.of(&NAMES)));
        for (folder, id) in [(here, one), (there, two)] {
            let path = tree.file_of(folder, &id).map(|(path, _)| path.clone());
            let path = path.unwrap_or_else(|| format!("{folder}f2.yaml"));
            tree.put(&path, id, self.dice.roll(4));
        }
        self.push(tree);
        let name = Name::Sync(self.syncs[at].0.into());
        self.annotate(&name, keys::REQUESTED_AT, Some(&format!("{}", self.tick)));
        self.moment();
        if self.dice.one_in(3) {
            self.crash();
        }
    }

    /// A kind is not shown for long, and somebody approves what is held because of that.
    fn silent(&mut self, at: usize) {
        let here = FOLDERS[at];
        self.fill(here);
        let watch = self.dice.roll(3);
        let up = self.operator.watches.iter().all(|watch| !watch.is_down);
        if up {
            self.count("watch fails");
            self.operator.fail(&self.server, watch, true, self.now);
        }
        let mut tree = self.trees[self.head].clone();
        if let Some(one) = self.wanted_in(here).first() {
            tree.remove(one);
        }
        self.push(tree);
        self.now += std::time::Duration::from_secs(61);
        if self.operator.still_fails(self.now) {
            self.count("kind falls silent");
        }
        self.lull();
        let name = self.syncs[at].0;
        if let Some(digest) = self.oracle.shown(name) {
            self.approve(name, &digest);
            self.lull();
        }
    }

    /// Somebody changes objects by hand, with what they say of themselves.
    fn edits_and_hides(&mut self, here: &str, there: &str) {
        self.fill(here);
        let at = FOLDERS.iter().position(|folder| *folder == here).unwrap_or_default();
        let drift = if self.dice.one_in(2) { "Report" } else { "Correct" };
        self.spec_of(at.min(self.syncs.len() - 1), |spec| spec["drift"] = json!(drift));
        self.lull();
        for folder in [here, here, there] {
            let one = self.any_of(folder);
            let number = 90 + self.dice.roll(4);
            self.edit(&Name::Object(one.clone()), |object| {
                object["spec"] = crate::sync::properties::repository::spec(&one, number);
                if number.is_multiple_of(2) {
                    object["metadata"]["annotations"][keys::APPLIED] = json!("touched");
                }
            });
        }
    }
}
