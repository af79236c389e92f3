//! What the engine tells the AgentBuild controller: the source of each build at the newest synced commit.
//!
//! Each GitSync tells its own, also of builds that it wants and another one owns. Whoever builds asks with the mark of
//! the live object, and gets what its owner has told and nothing else.
//!
//! Kept in memory only: after a restart the engine fills it again from the commit that it reads first.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, OnceLock, PoisonError, RwLock};

use super::queue::Queue;
use crate::api::Mark;
use crate::cluster::store::Key;
pub use convoke_core::sync::commit::source_at::SourceAt;

/// What is known of the source of a build.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Told {
    /// The engine has not read a commit of the owner since it started, or there is no owner.
    Nothing,
    /// The commit that it has read does not hold the build.
    NotInGit,
    /// It is made of this.
    Source(Box<SourceAt>),
}

/// What one GitSync has told.
struct Sync {
    uid: String,
    builds: HashMap<String, SourceAt>,
}

/// See the module.
#[derive(Default)]
pub struct BuildSources {
    syncs: RwLock<HashMap<Key, Sync>>,
    queue: OnceLock<Arc<Queue>>,
}

impl BuildSources {
    /// An empty registry.
    #[must_use]
    pub fn new() -> Arc<Self> {
        Arc::new(Self::default())
    }

    /// Builds whose source changes go on this queue. Only the first call counts.
    pub fn notify(&self, queue: Arc<Queue>) {
        let _ = self.queue.set(queue);
    }

    /// The source of the build that carries this mark. A mark that names another object is no mark; see
    /// [`Mark::names`].
    #[must_use]
    pub fn of(&self, mark: &Mark) -> Told {
        // A GitSync writes into its own namespace only.
        if mark.sync_namespace != mark.namespace {
            return Told::Nothing;
        }
        let syncs = self.syncs.read().unwrap_or_else(PoisonError::into_inner);
        let sync = syncs.get(&Key::new(&*mark.sync_namespace, &*mark.sync_name));
        match sync.filter(|sync| sync.uid == mark.sync_uid) {
            None => Told::Nothing,
            Some(sync) => match sync.builds.get(&mark.name) {
                None => Told::NotInGit,
                Some(source) => Told::Source(Box::new(source.clone())),
            },
        }
    }

    /// The engine has read a commit of this repository for the GitSync of that name and uid, which wants these builds. With `errors` the
    /// commit proves no absence, and what it does not hold stays as it was told before: as long as there is such a build
    /// among those that are `live`, and it came from the same repository. That is so on purpose for all of them: only the plan,
    /// which knows where each was before, can tell which ones a broken file may hold. The others are not deleted either until
    /// a commit without errors comes, and whoever was taken for gone by mistake would not be built.
    ///
    /// At the first commit all that are live hear that it has none for them.
    pub fn tell(
        &self,
        sync: &Key,
        uid: &str,
        url: &str,
        builds: &[(String, SourceAt)],
        errors: bool,
        live: impl FnOnce() -> Vec<Key>,
    ) {
        let mut new: HashMap<_, _> = builds.iter().cloned().collect();
        let mut syncs = self.write();
        let old = syncs.remove(sync).filter(|old| old.uid == uid);
        let first = old.is_none();
        let old = old.map(|old| old.builds).unwrap_or_default();
        let mut changed: Vec<_> = new
            .iter()
            .filter(|(name, source)| old.get(*name) != Some(source))
            .map(|(name, _)| name.clone())
            .collect();
        let mut live = Some(live);
        let gone: Vec<_> = old.into_iter().filter(|(name, _)| !new.contains_key(name)).collect();
        let lives: HashSet<_> = match live.take_if(|_| errors && !gone.is_empty()) {
            Some(live) => live().into_iter().map(|key| key.name).collect(),
            None => HashSet::new(),
        };
        for (name, source) in gone {
            if url == source.url && lives.contains(&name) {
                new.insert(name, source);
            } else {
                changed.push(name);
            }
        }
        // In the order of their names, whatever the map says.
        changed.sort_unstable();
        syncs.insert(sync.clone(), Sync { uid: uid.to_owned(), builds: new });
        drop(syncs);
        self.wake(sync, changed);
        if first && let (Some(queue), Some(live)) = (self.queue.get(), live) {
            for build in live() {
                queue.add(build);
            }
        }
    }

    /// The GitSync is gone, and nothing is made of what it told.
    pub fn forget(&self, sync: &Key) {
        let old = self.write().remove(sync);
        self.wake(sync, old.into_iter().flat_map(|old| old.builds.into_keys()));
    }

    fn write(&self) -> std::sync::RwLockWriteGuard<'_, HashMap<Key, Sync>> {
        self.syncs.write().unwrap_or_else(PoisonError::into_inner)
    }

    fn wake(&self, sync: &Key, builds: impl IntoIterator<Item = String>) {
        let Some(queue) = self.queue.get() else { return };
        for build in builds {
            queue.add(Key::new(&*sync.namespace, build));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::api::Kind;

    const URL: &str = "https://git.example";

    fn source(commit: &str) -> (String, SourceAt) {
        let source = SourceAt {
            sync: "main".into(),
            url: URL.into(),
            commit: commit.into(),
            subfolder_tree: None,
            paths: BTreeMap::new(),
            applied: None,
        };
        ("reviewer".into(), source)
    }

    fn mark(uid: &str, sync: &str) -> Mark {
        let text = format!("{uid}/team/{sync}/AgentBuild/team/reviewer");
        let mark = Mark::parse(&text).expect("a mark");
        assert!(mark.names(Kind::AgentBuild, "team", "reviewer"));
        mark
    }

    /// The commit that a build with this mark is made of.
    fn commit(sources: &BuildSources, mark: &Mark) -> String {
        match sources.of(mark) {
            Told::Nothing => "nothing".into(),
            Told::NotInGit => "not in Git".into(),
            Told::Source(source) => source.commit,
        }
    }

    fn none() -> Vec<Key> {
        Vec::new()
    }

    #[test]
    fn b1_an_image_is_made_of_what_the_owner_told_whoever_else_tells_something() {
        let sources = BuildSources::new();
        let (main, other) = (Key::new("team", "main"), Key::new("team", "other"));
        let (ours, theirs) = (mark("1", "main"), mark("2", "other"));
        assert_eq!(commit(&sources, &ours), "nothing");
        sources.tell(&other, "2", URL, &[source("b")], false, none);
        assert_eq!(commit(&sources, &ours), "nothing", "that is not its owner");
        sources.tell(&main, "1", URL, &[source("a")], false, none);
        sources.tell(&other, "2", URL, &[source("c")], false, none);
        assert_eq!(commit(&sources, &ours), "a");
        assert_eq!(commit(&sources, &theirs), "c", "as soon as the mark says so");
        let far = Mark { sync_namespace: "far".into(), ..ours.clone() };
        assert_eq!(commit(&sources, &far), "nothing", "from another namespace");
        sources.forget(&main);
        assert_eq!(commit(&sources, &ours), "nothing");
        assert_eq!(commit(&sources, &theirs), "c");
    }

    #[test]
    fn b1_a_git_sync_that_was_made_anew_is_another_one() {
        let (sources, main) = (BuildSources::new(), Key::new("team", "main"));
        sources.tell(&main, "1", URL, &[source("a")], false, none);
        sources.tell(&main, "2", URL, &[], true, none);
        assert_eq!(commit(&sources, &mark("1", "main")), "nothing");
        assert_eq!(commit(&sources, &mark("2", "main")), "not in Git", "nothing is inherited");
        sources.tell(&main, "2", URL, &[source("b")], false, none);
        assert_eq!(commit(&sources, &mark("1", "main")), "nothing");
        assert_eq!(commit(&sources, &mark("2", "main")), "b");
    }

    #[test]
    fn b1_what_is_no_longer_wanted_is_forgotten_unless_the_commit_has_errors() {
        let (sources, main) = (BuildSources::new(), Key::new("team", "main"));
        sources.tell(&main, "1", URL, &[source("a")], false, none);
        sources.tell(&main, "1", URL, &[], true, || vec![Key::new("team", "reviewer")]);
        assert_eq!(commit(&sources, &mark("1", "main")), "a", "its file may be the broken one");
        sources.tell(&main, "1", URL, &[], false, none);
        assert_eq!(commit(&sources, &mark("1", "main")), "not in Git");
    }

    #[test]
    fn b1_renamed_builds_do_not_pile_up_while_commits_have_errors() {
        let (sources, main) = (BuildSources::new(), Key::new("team", "main"));
        let live = || vec![Key::new("team", "n0"), Key::new("team", "n99")];
        for number in 0..100 {
            let (_, source) = source("a");
            sources.tell(&main, "1", URL, &[(format!("n{number}"), source)], true, live);
        }
        let kept = sources.write();
        let mut names: Vec<_> = kept[&main].builds.keys().cloned().collect();
        names.sort();
        assert_eq!(names, ["n0", "n99"], "what is wanted, and what is live");
    }

    #[test]
    fn b1_what_came_from_another_repository_does_not_stay() {
        let (sources, main) = (BuildSources::new(), Key::new("team", "main"));
        let live = || vec![Key::new("team", "reviewer")];
        sources.tell(&main, "1", URL, &[source("a")], false, live);
        let (_, mut other) = source("b");
        other.url = "https://other.example".into();
        sources.tell(&main, "1", "https://other.example", &[("writer".into(), other)], true, live);
        assert_eq!(commit(&sources, &mark("1", "main")), "not in Git");
        // Nor when that one holds no build that can be read.
        sources.tell(&main, "1", URL, &[source("a")], false, live);
        sources.tell(&main, "1", "https://other.example", &[], true, live);
        assert_eq!(commit(&sources, &mark("1", "main")), "not in Git");
    }

    #[tokio::test]
    async fn b1_builds_hear_of_what_changes_and_at_first_of_what_is_not_there() {
        let (sources, queue) = (BuildSources::new(), Queue::new());
        sources.notify(queue.clone());
        let main = Key::new("team", "main");
        let left = || vec![Key::new("team", "other")];
        let heard = async || {
            let mut names = Vec::new();
            while !queue.is_empty() {
                let key = queue.next().await;
                queue.done(&key);
                names.push(key.name);
            }
            names
        };
        sources.tell(&main, "1", URL, &[source("a")], false, left);
        assert_eq!(heard().await, ["reviewer", "other"]);
        sources.tell(&main, "1", URL, &[source("a")], false, left);
        assert_eq!(heard().await, [""; 0]);
        sources.tell(&main, "1", URL, &[source("b")], false, left);
        assert_eq!(heard().await, ["reviewer"]);
        sources.tell(&main, "1", URL, &[], false, left);
        assert_eq!(heard().await, ["reviewer"]);
        sources.tell(&main, "2", URL, &[source("b")], false, left);
        assert_eq!(heard().await, ["reviewer", "other"]);
        sources.forget(&main);
        assert_eq!(heard().await, ["reviewer"]);
    }
}
