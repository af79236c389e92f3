//! Reads the repository of one GitSync: finds the newest commit, fetches it, and loads its definitions. The last good result
//! stays in memory.

mod before;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::budgets::Budgets;
use super::concurrency::ConcurrencyLimits;
use super::credentials::Cached;
use super::local::{Local, state_id};
use super::newest::{Fetched, Newest, Shares, Trace, Wanted, millis};
use super::published::builds::build_sources;
use super::verification::KnownKeys;
use crate::api::ObjectId;
use crate::api::git_sync::{GitSyncSpec, Stages, VerifyMode};
use crate::cluster::store::Key;
use crate::definition::ignore::Patterns;
use crate::definition::variables::Variables;
use crate::definition::{Catalog, Context, Loader};
use crate::git::{
    CommitInfo, Folder, GitError, Keys, Remote, Repositories, Revision, SignedPart, Snapshot,
    Verification, Wake,
};
use crate::net::Dialler;
use crate::order::Seq;
use crate::sync::commit::loaded::{Coordinates, Loaded, Reading};
use crate::sync::commit::source_error::SourceError;
use crate::sync::reasons::SourceReason;
use crate::sync::secrets::input;

/// How often a folder that changed while it was read is read again at once.
const MAX_RETRIES_OF_CHANGED: u32 = 3;
/// How late the system may report a change of a folder.
const MAX_CHANGE_DELAY: Duration = Duration::from_millis(20);

/// What one poll tried, also when it failed.
#[derive(Debug, Default)]
pub struct Attempt {
    /// The newest commit that the remote named.
    pub revision: Option<Revision>,
    /// When the remote was asked, and how long before this poll that was.
    pub asked: Option<(Seq, Duration)>,
    /// How long the stages took.
    pub stages: Stages,
}

/// One GitSync's view of its repository.
pub struct Source {
    newest: Newest,
    coordinates: Option<Coordinates>,
    /// The credentials of the Secret, as they were read last.
    pub known_credentials: Cached,
    /// The keys of `spec.verify` that the remote verifies with.
    keys: Option<Arc<Keys>>,
    /// Those of the Secret, as they were read last.
    pub known_keys: KnownKeys,
    /// When they became known.
    keys_since: Option<Seq>,
    loader: Loader,
    /// The folder that takes the place of the repository, if any.
    local: Option<Arc<Local>>,
    /// The newest commit, while an older one is read.
    aside: Option<Arc<Loaded>>,
    /// The older commit that was read to learn what was wanted before the newest one.
    reached: Option<Revision>,
    /// What the last poll tried. The caller resets it before each poll.
    pub attempt: Attempt,
    /// How old an answer of the remote may be that it has given to another GitSync before this poll. `None`: the remote is asked.
    pub max_age: Option<Duration>,
    /// Objects of earlier commits that the next commit does not have to remember.
    pub needless: BTreeSet<ObjectId>,
    /// The newest commit that was read completely, if any.
    pub loaded: Option<Arc<Loaded>>,
}

/// A commit, or the state of a folder, that is about to be loaded.
struct Incoming {
    revision: Revision,
    /// When it was found.
    found: Seq,
    /// Whether it was read again by its id, and not found at the remote.
    recalled: bool,
    /// The part of the spec that it answers.
    coordinates: Coordinates,
    /// The settings that its definitions are read with.
    context: Context,
}

/// The definitions of a folder on disk.
struct FolderRead {
    start: Instant,
    found: Seq,
    catalog: Catalog,
}

impl Source {
    /// The source of the GitSync with this UID.
    #[must_use]
    pub fn new(
        owner: String,
        repositories: Repositories,
        dialler: Dialler,
        budgets: Budgets,
    ) -> Self {
        let Budgets { git: limits, definition } = budgets;
        let shares = Shares { repositories, limits, concurrency: ConcurrencyLimits::default() };
        Self {
            newest: Newest::new(owner, shares, dialler),
            coordinates: None,
            known_credentials: Cached::default(),
            keys: None,
            known_keys: KnownKeys::default(),
            keys_since: None,
            loader: Loader::new(definition),
            local: None,
            aside: None,
            reached: None,
            attempt: Attempt::default(),
            max_age: None,
            needless: BTreeSet::new(),
            loaded: None,
        }
    }

    /// Calls this when somebody else finds that the ref has moved.
    #[must_use]
    pub fn woken_by(mut self, wake: Wake) -> Self {
        self.newest.wake_with(wake);
        self
    }

    /// Gives up the repository. Returns the name of its store.
    pub fn close(&mut self) -> Option<String> {
        self.loaded = None;
        self.aside = None;
        self.newest.close()
    }

    /// Uses these limits, which other sources share.
    #[must_use]
    pub fn limited_by(mut self, concurrency: ConcurrencyLimits) -> Self {
        self.newest.limit_by(concurrency);
        self
    }

    /// Reads this folder instead of the repository.
    #[must_use]
    pub fn in_place_of(mut self, local: Option<Arc<Local>>) -> Self {
        self.local = local;
        self
    }

    /// Whether a folder is read instead of the repository.
    #[must_use]
    pub const fn is_local(&self) -> bool {
        self.local.is_some()
    }

    /// Asks with the credentials, and verifies with the keys, that are known now. With other keys nothing counts that was read before:
    /// it is read again, and verified.
    pub fn ask_as_known(&mut self) {
        self.newest.ask_with(self.known_credentials.credentials());
        if self.keys.as_ref() != self.known_keys.keys() {
            self.keys = self.known_keys.keys().cloned();
            self.keys_since = self.keys.is_some().then(Seq::next);
            self.newest.start_anew();
            // With what was remembered of earlier commits, each of which another key may have signed.
            (self.loaded, self.aside, self.reached) = (None, None, None);
        }
    }

    /// Polls the remote, and reads the commit if the commit or the values of `${NAME}` are new. Returns whether something new
    /// was read. [`Source::attempt`] tells what was tried, also after an error.
    ///
    /// After an error the last good result stays in `loaded`, unless the spec names another place now.
    ///
    /// # Errors
    /// The reason why the newest commit cannot be read completely.
    pub async fn refresh(
        &mut self,
        spec: &GitSyncSpec,
        key: &Key,
        variables: Option<Variables>,
    ) -> Result<bool, SourceError> {
        self.put_back();
        let coordinates = self.follow(spec);
        let ignore = Patterns::new(&coordinates.ignore).map_err(SourceError::Ignore)?;
        let (namespace, path) = (Some(key.namespace.clone()), coordinates.path.clone());
        let context = Context { namespace, path, ignore, variables };
        match self.local.clone() {
            Some(local) => self.refresh_folder(&local, key, coordinates, context).await,
            None => self.refresh_commit(key, coordinates, context).await,
        }
    }

    /// Takes over what the spec names now. A result for another place is dropped.
    fn follow(&mut self, spec: &GitSyncSpec) -> Coordinates {
        let wanted = Coordinates::of(spec);
        if self.coordinates.as_ref() != Some(&wanted) {
            if !self.coordinates.as_ref().is_some_and(|old| old.same_place(&wanted)) {
                (self.loaded, self.reached) = (None, None);
            }
            self.newest.start_anew();
            self.coordinates = Some(wanted.clone());
        }
        wanted
    }

    async fn refresh_folder(
        &mut self,
        local: &Local,
        key: &Key,
        coordinates: Coordinates,
        context: Context,
    ) -> Result<bool, SourceError> {
        for _ in 0..MAX_RETRIES_OF_CHANGED {
            local.quiet().await;
            let before = local.changes();
            let read = self.read_folder(local, &coordinates, &context)?;
            tokio::time::sleep(MAX_CHANGE_DELAY).await;
            // Without a change in between, what was read belongs together.
            if local.changes() == before {
                return self.take_in_folder(read, &key.name, coordinates, context);
            }
        }
        Err(GitError::Busy.into())
    }

    async fn refresh_commit(
        &mut self,
        key: &Key,
        coordinates: Coordinates,
        context: Context,
    ) -> Result<bool, SourceError> {
        let remote = self.remote(&coordinates).await?;
        let mut trace = Trace::default();
        let fetched = {
            let is_known = |revision: &_| self.is_loaded(revision, context.variables.as_ref());
            let (namespace, max_age) = (&key.namespace, self.max_age);
            self.newest.fetch_newest(&remote, namespace, max_age, is_known, &mut trace).await
        };
        let Trace { revision, asked, resolve_ms, fetch_ms } = trace;
        self.attempt.revision = revision.or(self.attempt.revision.take());
        self.attempt.asked = asked;
        (self.attempt.stages.resolve_ms, self.attempt.stages.fetch_ms) = (resolve_ms, fetch_ms);
        let Some(Fetched { revision, found, permit: _permit }) = fetched? else {
            return Ok(false);
        };
        let start = Instant::now();
        let snapshot = match remote.snapshot(&revision.commit, &coordinates.path).await {
            // The store was damaged, which shows only now. A fetch makes the store anew.
            Err(GitError::CorruptData { detail }) => {
                tracing::warn!(object = %key, detail, "the store is damaged, fetching anew");
                remote.fetch(&revision).await?;
                remote.snapshot(&revision.commit, &coordinates.path).await?
            }
            other => other?,
        };
        let incoming = Incoming { revision, found, recalled: false, coordinates, context };
        self.take_in(incoming, &snapshot, key)?;
        self.attempt.stages.load_ms = millis(start);
        Ok(true)
    }

    /// Whether this commit was loaded with these variables, and need not be read again.
    fn is_loaded(&self, revision: &Revision, variables: Option<&Variables>) -> bool {
        self.loaded.as_ref().is_some_and(|loaded| {
            // A file that could not be read for a reason that may pass is read again.
            !loaded.catalog.again
                && loaded.variables.as_ref() == variables
                // The remote was not asked for a recalled commit. From now on it counts as found there.
                && !loaded.recalled
                // With its name: another tag of the same commit may be unsigned.
                && loaded.revision == *revision
        })
    }
}

impl Source {
    /// The remote. Without the keys of `spec.verify` there is none, so nothing is read unverified.
    async fn remote(&mut self, wanted: &Coordinates) -> Result<Remote, SourceError> {
        let verification = match (&wanted.verify, &self.keys) {
            (None, _) => None,
            (Some(verify), Some(keys)) => {
                let part = match verify.mode {
                    VerifyMode::Head => SignedPart::Commit,
                    VerifyMode::Tag => SignedPart::Tag,
                };
                Some(Verification { part, keys: keys.clone() })
            }
            (Some(_), None) => {
                let message = "the keys of spec.verify are not known".to_owned();
                return Err(input(SourceReason::VerificationKeysUnreadable, message, None));
            }
        };
        let Coordinates { url, reference, timeout, .. } = wanted;
        let wanted = Wanted { url, reference, timeout: *timeout, verification };
        Ok(self.newest.remote(wanted).await?)
    }

    /// Drops the loader and the remote, which a panic may have left in a bad state. The last good result stays.
    pub fn start_anew(&mut self, budgets: Budgets) {
        self.loader = Loader::new(budgets.definition);
        self.newest.start_anew();
    }

    /// Loads the definitions of a fetched commit.
    fn take_in(
        &mut self,
        incoming: Incoming,
        snapshot: &Snapshot,
        key: &Key,
    ) -> Result<(), SourceError> {
        let Incoming { revision, found, recalled, coordinates, context } = incoming;
        let info = snapshot.commit().clone();
        let catalog = {
            // Parsing takes 30 ms for 1,000 files: long enough to leave the async threads alone.
            let loader = &mut self.loader;
            tokio::task::block_in_place(|| loader.load(snapshot, &context))
        };
        let before = self.loaded.as_deref();
        let desired = Loaded::desired(before, &catalog);
        let url = &coordinates.url;
        let builds = build_sources(&desired, Some(snapshot), &key.name, url, &revision.commit);
        // Everything was read. The next commit is compared with the listing, which is in memory.
        snapshot.close();
        let (builds, variables, keys_since) = (builds?, context.variables, self.keys_since);
        let reading = Reading {
            revision,
            info,
            catalog,
            builds,
            found,
            recalled,
            coordinates,
            variables,
            keys_since,
        };
        self.loaded = Some(Arc::new(Loaded::new(before, &self.needless, desired, reading)));
        Ok(())
    }

    fn read_folder(
        &mut self,
        local: &Local,
        wanted: &Coordinates,
        context: &Context,
    ) -> Result<FolderRead, GitError> {
        let (start, found) = (Instant::now(), Seq::next());
        let (loader, limits) = (&mut self.loader, self.newest.shares().limits);
        let read = || {
            let tree = Folder::open(&local.dir, &wanted.path, limits)?;
            Ok(loader.load(&tree, context))
        };
        tokio::task::block_in_place(read).map(|catalog| FolderRead { start, found, catalog })
    }

    /// Makes the state of a folder the newest result. Returns whether it differs from the one before.
    fn take_in_folder(
        &mut self,
        read: FolderRead,
        sync: &str,
        coordinates: Coordinates,
        context: Context,
    ) -> Result<bool, SourceError> {
        let FolderRead { start, found, catalog } = read;
        let before = self.loaded.as_deref();
        let desired = Loaded::desired(before, &catalog);
        let revision = Revision { commit: state_id(&desired, &catalog), name: "local".into() };
        self.attempt.stages.load_ms = millis(start);
        self.attempt.revision = Some(revision.clone());
        let known = before.filter(|loaded| !loaded.catalog.again);
        if known.is_some_and(|loaded| loaded.revision == revision) {
            return Ok(false);
        }
        let info = CommitInfo {
            id: revision.commit.clone(),
            author: String::new(),
            subject: "a folder on disk".into(),
            time_seconds: 0,
            signer: None,
        };
        // Tekton cannot clone a folder, so nothing is built from it: only from other repositories.
        let url = &coordinates.url;
        let builds = build_sources(&desired, None, sync, url, &revision.commit)?;
        let variables = context.variables;
        let recalled = false;
        let reading = Reading {
            revision,
            info,
            catalog,
            builds,
            found,
            recalled,
            coordinates,
            variables,
            keys_since: None,
        };
        // No earlier state of a folder can be read again.
        let loaded = Loaded::new(before, &self.needless, desired, reading);
        self.loaded = Some(Arc::new(Loaded { lost: false, ..loaded }));
        Ok(true)
    }
}
