//! The way to the newest commit of a ref, for one GitSync or one AgentBuild: the remote, what it is asked with, and the fetch. All of them share
//! lists of refs, fetches, stores and limits.

use std::time::{Duration, Instant};

use super::concurrency::{ConcurrencyLimits, Permit};
use crate::api::git_sync::GitRef;
use crate::git::{
    Answered, Credentials, GitError, Limits, Remote, RemoteOptions, Repositories, Revision,
    Verification, Wake,
};
use crate::net::Dialler;
use crate::order::Seq;

/// How long a server may send nothing while a commit is fetched from it. Git's servers send a sign of life every five seconds
/// (`uploadpack.keepAlive`).
const MAX_SERVER_SILENCE: Duration = Duration::from_secs(30);
/// How often a commit that disappeared while it was fetched is looked for again at once.
const MAX_RETRIES_OF_MOVED: u32 = 3;

/// What is shared with others.
#[derive(Debug, Clone)]
pub struct Shares {
    /// Where fetched objects are kept.
    pub repositories: Repositories,
    /// How large one repository may be.
    pub limits: Limits,
    /// How many remotes are asked and read at once.
    pub concurrency: ConcurrencyLimits,
}

/// A ref of a repository.
#[derive(Debug, Clone)]
pub struct Wanted<'a> {
    /// The URL of the repository.
    pub url: &'a str,
    /// The ref.
    pub reference: &'a GitRef,
    /// How long one answer may take.
    pub timeout: Duration,
    /// How a commit is verified before anything of it is read.
    pub verification: Option<Verification>,
}

/// What was asked and found, also when it failed later.
#[derive(Debug, Default)]
pub struct Trace {
    /// The newest commit that the remote named.
    pub revision: Option<Revision>,
    /// When the remote was asked, and how long before this poll that was.
    pub asked: Option<(Seq, Duration)>,
    /// How many milliseconds the answer took.
    pub resolve_ms: i64,
    /// How many milliseconds the fetch took once it might begin.
    pub fetch_ms: i64,
}

/// A commit that was found and fetched.
pub struct Fetched {
    /// The commit, and the name that led to it.
    pub revision: Revision,
    /// When it was found.
    pub found: Seq,
    /// The permit to read. It must be kept until the commit is read.
    pub permit: Permit,
}

/// What is kept between two polls.
pub struct Newest {
    /// The UID of the object that polls.
    owner: String,
    shares: Shares,
    dialler: Dialler,
    wake: Option<Wake>,
    /// What the remote asks with.
    credentials: Credentials,
    remote: Option<Remote>,
    /// The store that it used last.
    store: Option<String>,
}

impl Newest {
    /// For the object with this UID.
    #[must_use]
    pub fn new(owner: String, shares: Shares, dialler: Dialler) -> Self {
        let (wake, credentials) = (None, Credentials::default());
        Self { owner, shares, dialler, wake, credentials, remote: None, store: None }
    }

    /// Calls this when somebody else finds that the ref has moved.
    pub fn wake_with(&mut self, wake: Wake) {
        self.wake = Some(wake);
    }

    /// Uses these limits, which others share.
    pub fn limit_by(&mut self, concurrency: ConcurrencyLimits) {
        self.shares.concurrency = concurrency;
    }

    /// What is shared with others.
    #[must_use]
    pub const fn shares(&self) -> &Shares {
        &self.shares
    }

    /// Asks with these credentials. Returns whether they are others than before.
    pub fn ask_with(&mut self, credentials: &Credentials) -> bool {
        let are_other = self.credentials != *credentials;
        if are_other {
            self.credentials = credentials.clone();
            self.remote = None;
        }
        are_other
    }

    /// Makes the remote anew the next time: another ref is wanted, or it is verified otherwise.
    pub fn start_anew(&mut self) {
        self.remote = None;
    }

    /// Gives up the repository. Returns the name of its store.
    pub fn close(&mut self) -> Option<String> {
        self.remote = None;
        self.store.take()
    }

    /// The remote. It is the one of before until [`Self::start_anew`] is called or the credentials change.
    ///
    /// # Errors
    /// What [`Remote::new`] finds wrong with the URL or the ref.
    pub async fn remote(&mut self, wanted: Wanted<'_>) -> Result<Remote, GitError> {
        if let Some(remote) = &self.remote {
            return Ok(remote.clone());
        }
        let Shares { repositories, limits, .. } = &self.shares;
        let remote = Remote::new(RemoteOptions {
            url: wanted.url.to_owned(),
            reference: wanted.reference.clone(),
            timeout: wanted.timeout,
            silence: MAX_SERVER_SILENCE,
            dialler: self.dialler.clone(),
            credentials: self.credentials.clone(),
            verification: wanted.verification,
            owner: self.owner.clone(),
            repositories: repositories.clone(),
            wake: self.wake.clone(),
            limits: *limits,
        })?;
        self.remote = Some(remote.clone());
        let store = remote.repository().to_owned();
        if let Some(old) = self.store.replace(store.clone()).filter(|old| *old != store) {
            // With another URL or other credentials nothing of it is used any more.
            remove_unused(repositories.clone(), old).await;
        }
        Ok(remote)
    }

    /// Asks the remote for its newest commit, and fetches it. An answer that the remote has given to somebody else may be `max_age` old;
    /// `None`: it is asked. `None` is returned for a commit that `is_known`. `trace` tells what was tried, also after an error.
    ///
    /// # Errors
    /// As [`Remote::resolve_within`] and [`Remote::fetch`].
    pub async fn fetch_newest(
        &self,
        remote: &Remote,
        namespace: &str,
        mut max_age: Option<Duration>,
        is_known: impl Fn(&Revision) -> bool,
        trace: &mut Trace,
    ) -> Result<Option<Fetched>, GitError> {
        let mut retries = 0;
        loop {
            let permit = self.shares.concurrency.poll(namespace).await;
            let start = Instant::now();
            let Answered { asked, age, told: found, revision } =
                remote.resolve_within(max_age).await;
            drop(permit);
            trace.asked = Some((asked, age));
            let revision = revision?;
            trace.revision = Some(revision.clone());
            trace.resolve_ms = millis(start);
            if is_known(&revision) {
                return Ok(None);
            }
            let (permit, fetched) = self.fetch(remote, &revision, namespace).await;
            match fetched {
                Ok(took) => {
                    trace.fetch_ms = took;
                    return Ok(Some(Fetched { revision, found, permit }));
                }
                // A forced push moved the ref between the two requests.
                Err(GitError::CommitGone { .. }) if retries < MAX_RETRIES_OF_MOVED => {
                    (retries, max_age) = (retries + 1, None);
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Fetches a commit. Returns how many milliseconds it took once it might begin. The permit to read must be kept until the commit is read.
    pub async fn fetch(
        &self,
        remote: &Remote,
        revision: &Revision,
        namespace: &str,
    ) -> (Permit, Result<i64, GitError>) {
        let limits = &self.shares.concurrency;
        let mut permit = limits.read(namespace).await;
        let start = Instant::now();
        let mut fetched = None;
        if let Some(other) = remote.fetch_of_another(revision) {
            // Whoever waits for it takes no place from those who read another repository.
            drop(permit);
            fetched = other.await;
            permit = limits.read(namespace).await;
        }
        let fetched = match fetched {
            Some(fetched) => fetched,
            None => remote.fetch(revision).await,
        };
        (permit, fetched.map(|()| millis(start)))
    }
}

/// Removes the store of a repository, if nobody uses it.
pub async fn remove_unused(repositories: Repositories, store: String) {
    let remove = move || {
        if let Err(error) = repositories.remove_unused(&store) {
            tracing::warn!(%error, "cannot remove fetched objects");
        }
    };
    // It fails only when the operator ends.
    let _ = tokio::task::spawn_blocking(remove).await;
}

/// Milliseconds since `start`.
#[must_use]
pub fn millis(start: Instant) -> i64 {
    i64::try_from(start.elapsed().as_millis()).unwrap_or(i64::MAX)
}
