//! The source side of a sync: which commit, and what it wants. Keeps the last good result in memory.

mod before;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::budgets::Budgets;
use super::concurrency::Slots;
use super::local::{Local, state_id};
use super::published::builds::build_sources;
use crate::api::ObjectId;
use crate::api::git_sync::{GitSyncSpec, Stages};
use crate::cluster::store::Key;
use crate::definition::ignore::Patterns;
use crate::definition::variables::Variables;
use crate::definition::{Catalog, Context, Loader};
use crate::git::{CommitInfo, Folder, GitError, Remote, RemoteOptions, Revision, Snapshot};
use crate::net::Dialler;
use crate::sync::commit::loaded::{Coordinates, Loaded, Reading};
use crate::sync::commit::source_error::SourceError;
use crate::sync::order::Seq;

/// How long a server may send nothing while it has a turn to be read from. Git's servers say every five seconds that they are
/// still at work (`uploadpack.keepAlive`).
const SILENCE: Duration = Duration::from_secs(30);
/// How often a ref that moved while its commit was fetched is asked for again at once.
const MOST_TRIES: u32 = 3;
/// How late a change of a folder may be told.
const LATE: Duration = Duration::from_millis(20);

/// One GitSync's view of its repository.
pub struct Source {
    store: PathBuf,
    dialler: Dialler,
    limits: crate::git::Limits,
    coordinates: Option<Coordinates>,
    remote: Option<Remote>,
    loader: Loader,
    /// A folder in place of the repository.
    local: Option<Arc<Local>>,
    slots: Slots,
    /// The newest commit, while an older one is read.
    aside: Option<Arc<Loaded>>,
    /// The commit that was read for what was wanted before the newest one.
    reached: Option<Revision>,
    /// Names that the next commit does not have to remember.
    pub needless: BTreeSet<ObjectId>,
    /// The newest commit that was read whole, if any.
    pub loaded: Option<Arc<Loaded>>,
}

impl Source {
    /// A source that keeps its objects below `store`.
    #[must_use]
    pub fn new(store: PathBuf, dialler: Dialler, budgets: Budgets) -> Self {
        let Budgets { git: limits, definition } = budgets;
        let loader = Loader::new(definition);
        let (coordinates, remote, loaded) = (None, None, None);
        let (local, slots, needless) = (None, Slots::default(), BTreeSet::new());
        let (aside, reached) = (None, None);
        Self {
            store,
            dialler,
            limits,
            coordinates,
            remote,
            loader,
            local,
            slots,
            aside,
            reached,
            needless,
            loaded,
        }
    }

    /// Shares these slots with others.
    #[must_use]
    pub fn taking(mut self, slots: Slots) -> Self {
        self.slots = slots;
        self
    }

    /// Reads this folder instead of the repository.
    #[must_use]
    pub fn in_place_of(mut self, local: Option<Arc<Local>>) -> Self {
        self.local = local;
        self
    }

    /// Asks the remote, and reads the commit if it is new, or if the values of `${NAME}` are. Returns whether something new was read.
    ///
    /// On an error the last good result stays in `loaded`, unless the spec names something else now.
    ///
    /// # Errors
    /// Whatever keeps the newest commit from being read whole.
    pub async fn refresh(
        &mut self,
        spec: &GitSyncSpec,
        key: &Key,
        variables: Option<Variables>,
        stages: &mut Stages,
        attempted: &mut Option<Revision>,
    ) -> Result<bool, SourceError> {
        self.put_back();
        let wanted = Coordinates::of(spec);
        if self.coordinates.as_ref() != Some(&wanted) {
            if !self.coordinates.as_ref().is_some_and(|old| old.same_place(&wanted)) {
                // The old result answers another question.
                (self.loaded, self.reached) = (None, None);
            }
            // Two remotes must not work in one folder.
            self.remote = None;
            self.coordinates = Some(wanted.clone());
        }
        let ignore = Patterns::new(&wanted.ignore).map_err(SourceError::Ignore)?;
        let (namespace, path) = (Some(key.namespace.clone()), wanted.path.clone());
        let context = Context { namespace, path, ignore, variables: variables.clone() };
        if let Some(local) = self.local.clone() {
            // What is being changed is read when it is whole.
            for _ in 0..MOST_TRIES {
                local.quiet().await;
                let before = local.changes();
                let read = self.read_local(&local, &wanted, &context)?;
                // Changes are told a moment after they are made.
                tokio::time::sleep(LATE).await;
                if local.changes() == before {
                    return Ok(self.take_in_local(read, wanted, context, stages, attempted));
                }
            }
            return Err(GitError::Busy.into());
        }
        let remote = self.remote(&wanted)?;

        let (mut tries, mut _reading) = (0, None);
        let (revision, found) = loop {
            let slot = self.slots.ask(&key.namespace).await;
            let start = Instant::now();
            let revision = remote.resolve().await?;
            drop(slot);
            *attempted = Some(revision.clone());
            let found = Seq::next();
            stages.resolve_ms = millis(start);
            // What could not be read for a reason that may pass is read again.
            let known = self.loaded.as_ref().filter(|loaded| !loaded.catalog.again);
            let known = known.filter(|loaded| loaded.variables == variables);
            // Nobody had asked the remote when it was recalled: from now on it counts as found.
            let known = known.filter(|loaded| !loaded.recalled);
            if known.is_some_and(|loaded| loaded.revision.commit == revision.commit) {
                return Ok(false);
            }
            _reading = Some(self.slots.read(&key.namespace).await);
            let start = Instant::now();
            match remote.fetch(&revision).await {
                Ok(()) => {
                    stages.fetch_ms = millis(start);
                    break (revision, found);
                }
                // A forced push between the two.
                Err(GitError::CommitGone { .. }) if tries < MOST_TRIES => {
                    tries += 1;
                    _reading = None;
                }
                Err(error) => return Err(error.into()),
            }
        };

        let start = Instant::now();
        let snapshot = match remote.snapshot(&revision.commit, &wanted.path).await {
            // The store was damaged, which shows only now: fetching makes it anew.
            Err(GitError::CorruptData { detail }) => {
                tracing::warn!(object = %key, detail, "the store is damaged, fetching anew");
                remote.fetch(&revision).await?;
                remote.snapshot(&revision.commit, &wanted.path).await?
            }
            other => other?,
        };
        self.take_in((revision, false), found, &snapshot, wanted, &context, key)?;
        stages.load_ms = millis(start);
        Ok(true)
    }
}

impl Source {
    fn remote(&mut self, wanted: &Coordinates) -> Result<Remote, GitError> {
        if let Some(remote) = &self.remote {
            return Ok(remote.clone());
        }
        let remote = Remote::new(RemoteOptions {
            url: wanted.url.clone(),
            reference: wanted.reference.clone(),
            timeout: wanted.timeout,
            silence: SILENCE,
            dialler: self.dialler.clone(),
            roots: None,
            store: self.store.clone(),
            limits: self.limits,
        })?;
        Ok(self.remote.insert(remote).clone())
    }

    /// Forgets what a panic may have left half done. What was read whole stays.
    pub fn start_anew(&mut self, budgets: Budgets) {
        self.loader = Loader::new(budgets.definition);
        self.remote = None;
    }

    /// Loads what a commit wants.
    fn take_in(
        &mut self,
        (revision, recalled): (Revision, bool),
        found: Seq,
        snapshot: &Snapshot,
        wanted: Coordinates,
        context: &Context,
        key: &Key,
    ) -> Result<(), SourceError> {
        let info = snapshot.commit().clone();
        let catalog = {
            // Parsing is pure and quick (30 ms for 1,000 files), but long enough to leave the executor alone.
            let loader = &mut self.loader;
            tokio::task::block_in_place(|| loader.load(snapshot, context))
        };
        let before = self.loaded.as_deref();
        let desired = Loaded::desired(before, &catalog);
        let builds = build_sources(&desired, snapshot, &key.name, &wanted.url, &revision.commit);
        // All was read. The next commit is compared with the listing, which is in memory.
        snapshot.close();
        let builds = builds?;
        let variables = context.variables.clone();
        let coordinates = wanted;
        let reading =
            Reading { revision, info, catalog, builds, found, recalled, coordinates, variables };
        self.loaded = Some(Arc::new(Loaded::new(before, &self.needless, desired, reading)));
        Ok(())
    }

    /// Reads a folder on disk.
    fn read_local(
        &mut self,
        local: &Local,
        wanted: &Coordinates,
        context: &Context,
    ) -> Result<(Instant, Seq, Catalog), GitError> {
        let (start, found) = (Instant::now(), Seq::next());
        let (loader, limits) = (&mut self.loader, self.limits);
        let read = || {
            let tree = Folder::open(&local.dir, &wanted.path, limits)?;
            Ok(loader.load(&tree, context))
        };
        tokio::task::block_in_place(read).map(|catalog| (start, found, catalog))
    }

    /// Takes in what a folder wants.
    fn take_in_local(
        &mut self,
        (start, found, catalog): (Instant, Seq, Catalog),
        wanted: Coordinates,
        context: Context,
        stages: &mut Stages,
        attempted: &mut Option<Revision>,
    ) -> bool {
        let before = self.loaded.as_deref();
        let desired = Loaded::desired(before, &catalog);
        let revision = Revision { commit: state_id(&desired, &catalog), name: "local".into() };
        stages.load_ms = millis(start);
        *attempted = Some(revision.clone());
        let known = before.filter(|loaded| !loaded.catalog.again);
        if known.is_some_and(|loaded| loaded.revision == revision) {
            return false;
        }
        let info = CommitInfo {
            id: revision.commit.clone(),
            author: String::new(),
            subject: "a folder on disk".into(),
            time_seconds: 0,
        };
        // Tekton cannot clone it: nothing is built from a folder.
        let (builds, variables) = (Vec::new(), context.variables);
        let (recalled, coordinates) = (false, wanted);
        let reading =
            Reading { revision, info, catalog, builds, found, recalled, coordinates, variables };
        // Nothing else holds an earlier state.
        let loaded = Loaded::new(before, &self.needless, desired, reading);
        self.loaded = Some(Arc::new(Loaded { lost: false, ..loaded }));
        true
    }
}

/// Milliseconds since `start`.
#[must_use]
pub fn millis(start: Instant) -> i64 {
    i64::try_from(start.elapsed().as_millis()).unwrap_or(i64::MAX)
}
