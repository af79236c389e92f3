//! Looks at remotes, and what the operator can know after them.

use std::sync::Arc;

use super::kept::is_hidden;
use super::repository::Tree;
use super::world::{Sync, World};
use crate::api::ObjectId;
use crate::sync::loaded::Loaded;
use crate::sync::order::Seq;
use crate::sync::siblings::Told;

/// How an object was last wanted.
#[derive(Debug, Clone)]
pub struct Last {
    /// In which file.
    pub path: String,
    /// With which content.
    pub content: usize,
    /// By which commit.
    pub head: usize,
    /// Whether each commit since then hides it where it was.
    pub hidden: bool,
    /// Whether each commit since then is known.
    pub certain: bool,
}

/// What the operator can know once it has read this commit.
fn remember(sync: &mut Sync, loaded: &Loaded, (head, tree): (usize, &Tree)) {
    if !loaded.catalog.has_errors() {
        sync.remembered.clear();
    }
    for (id, last) in &mut sync.remembered {
        last.hidden &= is_hidden(tree, sync.folder, id, &last.path);
    }
    let wanted = loaded.desired.iter().map(|(id, want)| {
        let content = tree.content(sync.folder, id).expect("wanted");
        let path = want.definition.path.clone();
        (id.clone(), Last { path, content, head, hidden: true, certain: true })
    });
    sync.remembered.extend(wanted);
}

impl World {
    /// A look at a remote.
    pub fn poll(&mut self, at: usize, fails: bool) {
        let sync = &mut self.syncs[at];
        if sync.suspended {
            return;
        }
        let polled = Seq::next();
        sync.polled = Some(polled);
        sync.answered = sync.reference.generation;
        sync.failed = fails;
        let lost = sync.loaded.as_ref().is_some_and(|loaded| loaded.lost);
        if !fails && (sync.loaded.is_none() || sync.head != self.head || lost) {
            let catalog = self.definitions.catalog(&self.trees[self.head], sync.folder);
            let (spec, commit) = (sync.object(0).spec, format!("{:040x}", self.head));
            let (board, live) = (sync.view.as_ref().map(|view| &view.0), self.cluster.live());
            let needless = sync.loaded.as_ref().map(|loaded| loaded.needless(board, &live));
            let needless = needless.unwrap_or_default();
            let previous = sync.loaded.as_deref();
            let loaded = Loaded::of_without(&spec, &commit, catalog, previous, &needless);
            if let Some(previous) = previous {
                let alive = |id: &ObjectId| self.cluster.objects.contains_key(id);
                let comes_back = |id: &ObjectId| {
                    previous.measure.contains_key(id) && sync.applied.contains_key(id)
                };
                let wanted = |id: &ObjectId| previous.desired.contains_key(id);
                sync.remembered.retain(|id, _| wanted(id) || alive(id) || comes_back(id));
                let most = sync.remembered.len();
                assert!(loaded.last_paths.len() <= most, "more is remembered than may matter");
            }
            let known = previous.is_some_and(|previous| !previous.lost);
            let loaded = match sync.whole.filter(|_| !known && loaded.catalog.has_errors()) {
                // The operator has started: what was applied before can be read, or cannot.
                Some(whole) if self.dice.roll(4) > 0 => {
                    let tree = &self.trees[whole];
                    let catalog = self.definitions.catalog(tree, sync.folder);
                    let before = Loaded::of(&spec, &format!("{whole:040x}"), catalog, None);
                    let since = std::mem::take(&mut sync.remembered);
                    remember(sync, &before, (whole, tree));
                    sync.remembered.values_mut().for_each(|last| last.certain = false);
                    sync.remembered.extend(since);
                    loaded.started_after(Some(&before))
                }
                Some(_) => loaded.started_after(None),
                None => loaded,
            };
            remember(sync, &loaded, (self.head, &self.trees[self.head]));
            sync.loaded = Some(Arc::new(loaded));
            sync.head = self.head;
        }
        let told = Told {
            uid: sync.reference.uid.clone(),
            generation: sync.reference.generation,
            polled,
            loaded: sync.loaded.clone(),
            failed: fails,
        };
        // Everybody plans at random here: nobody has to be woken.
        let _woken = self.siblings.tell(&sync.key(), told);
    }
}
