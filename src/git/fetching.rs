//! Fetches commits into the store of their repository, and reads them from there.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use gix::ObjectId;

use super::attempt::Control;
use super::generation::Generation;
use super::http::Session;
use super::pack::Bases;
use super::protocol::{self, Link};
use super::snapshot::{self, Snapshot, TreeRequest};
use super::store::Incoming;
use super::wire::Wire;
use super::{Cached, GitError, Inner, Revision, Server, check};

/// Bytes that the sideband's framing and progress messages may add to a pack.
const MAX_FRAMING_BYTES: u64 = 1024 * 1024;

/// A commit, and the annotated tag that has to be fetched with it.
type Wanted = (ObjectId, Option<ObjectId>);

/// A fetched commit.
#[derive(Clone)]
pub(super) struct Fetched {
    /// What has it.
    pub generation: Arc<Generation>,
    /// Whether the server has sent it just now.
    pub is_new: bool,
}

fn left_out() -> GitError {
    GitError::corrupt("the server left out objects of the commit")
}

fn has(now: &Generation, (want, tag): Wanted) -> bool {
    now.holds(&want) && tag.is_none_or(|tag| now.has(&tag))
}

impl Inner {
    /// Whoever fetches the same shares it: the commit, and the annotated tag that has to come with it.
    pub(super) fn fetch_key(&self, revision: &Revision) -> Result<Wanted, GitError> {
        let want = check::commit_id(&revision.commit)?;
        Ok((want, self.trust.tag_of(&want).map(|tag| tag.id)))
    }

    /// The way to the server, for a list of refs.
    pub(super) fn listing(&self, control: &Control) -> (Link, Wire) {
        let limit = protocol::MAX_LISTING_BYTES;
        let too_large = GitError::AnswerTooLarge { limit };
        self.link(Wire::new(control.bounds.clone(), None, limit, too_large).of_list())
    }

    fn link(&self, wire: Wire) -> (Link, Wire) {
        let link = match &self.server {
            Server::Http { client, authorization } => {
                let session = Session::new(client.clone(), authorization.clone(), wire.clone());
                Link::Http(self.url.clone(), Box::new(session))
            }
            Server::Ssh(server) => Link::Ssh(server.clone()),
        };
        (link, wire)
    }

    /// Fetches a commit: on top of the one before if that works, otherwise into a fresh store.
    pub(super) fn fetch(&self, wanted: Wanted, control: &Control) -> Result<Fetched, GitError> {
        let (want, _) = wanted;
        let newest = self.repository.store.current(&control.interrupt)?;
        let current = newest.as_ref().filter(|now| now.kind() == want.kind() && !now.is_damaged());
        let open = match current.map(|now| now.objects()).transpose() {
            Err(GitError::CorruptData { .. }) => None,
            open => open?,
        };
        if let (Some(now), Some(_open)) = (current, &open) {
            if has(now, wanted) {
                return Ok(Fetched { generation: Arc::clone(now), is_new: false });
            }
            if let Some(have) = now.usable_tip() {
                match self.fetch_onto(now, wanted, have, control) {
                    Ok(true) => {
                        return Ok(Fetched { generation: Arc::clone(now), is_new: true });
                    }
                    // There is a newer generation, made for another ref.
                    Ok(false) => {}
                    // A fresh store does not have the damage, and the whole commit may need less memory than what it builds on.
                    Err(GitError::CorruptData { detail } | GitError::PackTooLarge { detail }) => {
                        tracing::warn!(
                            url = self.url,
                            detail,
                            "incremental fetch failed, starting anew"
                        );
                    }
                    Err(error) => return Err(error),
                }
            }
        }
        let generation = self.fetch_anew(newest.as_ref(), wanted, control)?;
        Ok(Fetched { generation, is_new: true })
    }

    /// Fetches the objects of the commit that `have` lacks. `false` when the generation was replaced meanwhile.
    fn fetch_onto(
        &self,
        now: &Arc<Generation>,
        wanted: Wanted,
        have: ObjectId,
        control: &Control,
    ) -> Result<bool, GitError> {
        let store = &self.repository.store;
        let incoming = store.incoming()?;
        self.receive(wanted, Some((have, &**now)), &incoming, control)?;
        let is_added = store.add(now, &incoming, &wanted.0)?;
        self.repository.has_grown();
        if is_added && !has(now, wanted) { Err(left_out()) } else { Ok(is_added) }
    }

    /// Fetches the commit whole, in place of a generation that is of no use.
    fn fetch_anew(
        &self,
        old: Option<&Arc<Generation>>,
        wanted: Wanted,
        control: &Control,
    ) -> Result<Arc<Generation>, GitError> {
        let store = &self.repository.store;
        let incoming = store.incoming()?;
        self.receive(wanted, None, &incoming, control)?;
        let new = store.replace(old, &incoming, &wanted.0)?;
        self.repository.has_grown();
        snapshot::expect_commit(&new.objects()?, &wanted.0)?;
        if has(&new, wanted) {
            return Ok(new);
        }
        new.mark_damaged();
        Err(left_out())
    }

    fn receive(
        &self,
        (want, tag): Wanted,
        onto: Option<(ObjectId, &dyn Bases)>,
        incoming: &Incoming,
        control: &Control,
    ) -> Result<(), GitError> {
        let pack_bytes = self.limits.pack_bytes;
        let too_large = GitError::PackTooLarge {
            detail: format!("its pack is larger than {pack_bytes} bytes"),
        };
        let answer_bytes = pack_bytes.saturating_add(MAX_FRAMING_BYTES);
        let silence = Some(self.silence);
        let wire = Wire::new(control.bounds.clone(), silence, answer_bytes, too_large);
        let (link, wire) = self.link(wire);
        let packs = incoming.packs();
        let staging: &Path = &packs;
        let (limits, bounds, interrupt) = (self.limits, &control.bounds, &control.interrupt);
        let order = protocol::Fetch { want, tag, onto, staging, limits, bounds, interrupt };
        protocol::fetch(link, wire, order)
    }

    pub(super) fn snapshot(
        &self,
        commit: ObjectId,
        path: String,
        control: &Control,
    ) -> Result<Arc<Snapshot>, GitError> {
        let now = self.store_of(&commit, control)?;
        // From now on only this keeps what was fetched, however it ends.
        self.fetched.lock().take_if(|(fetched, _)| *fetched == commit);
        // Each time: a key expires, and another tag may name the same commit.
        let signer = self.verify(&now, &commit)?;
        if let Some(cached) = self.last().as_ref()
            && cached.commit == commit
            && cached.path == path
            && cached.snapshot.is_of(&now)
            && cached.snapshot.commit().signer == signer
            && !now.is_damaged()
        {
            cached.snapshot.open(&now)?;
            return Ok(Arc::clone(&cached.snapshot));
        }
        let before = self.last().as_ref().map(|cached| Arc::clone(&cached.snapshot));
        let request = TreeRequest {
            commit,
            path: &path,
            limits: self.limits,
            interrupt: &control.interrupt,
            before: before.as_deref(),
        };
        let snapshot = Snapshot::take(now, request).map_err(|error| {
            if *control.bounds.stop.borrow() { control.bounds.timed_out() } else { error }
        })?;
        let snapshot = Arc::new(snapshot.signed_by(signer));
        *self.last() = Some(Cached { commit, path, snapshot: Arc::clone(&snapshot) });
        Ok(snapshot)
    }

    pub(super) fn tree_ids(
        &self,
        commit: ObjectId,
        paths: &[String],
        control: &Control,
    ) -> Result<Vec<Option<String>>, GitError> {
        let now = self.store_of(&commit, control)?;
        // From now on only this keeps what was fetched, however it ends.
        self.fetched.lock().take_if(|(fetched, _)| *fetched == commit);
        self.verify(&now, &commit)?;
        let found = snapshot::tree_ids(now.objects()?, &commit, paths, &control.interrupt);
        if matches!(found, Err(GitError::CorruptData { .. })) {
            now.mark_damaged();
        }
        found.map_err(|error| {
            if *control.bounds.stop.borrow() { control.bounds.timed_out() } else { error }
        })
    }

    /// The generation of the store that may have this commit: the one that it was fetched into, or the newest one.
    pub(super) fn store_of(
        &self,
        commit: &ObjectId,
        control: &Control,
    ) -> Result<Arc<Generation>, GitError> {
        if let Some((fetched, generation)) = &*self.fetched.lock()
            && fetched == commit
        {
            return Ok(Arc::clone(generation));
        }
        let current = self.repository.store.current(&control.interrupt)?;
        let current = current.filter(|now| now.kind() == commit.kind());
        current.ok_or_else(|| GitError::CommitGone { commit: commit.to_string() })
    }

    /// Verifies a commit of the store. Damage is noted, so that the next fetch starts anew.
    pub(super) fn verify(
        &self,
        now: &Generation,
        commit: &ObjectId,
    ) -> Result<Option<String>, GitError> {
        self.trust.verify(now, &self.follower.target, commit).inspect_err(|error| {
            if matches!(error, GitError::CorruptData { .. }) {
                now.mark_damaged();
            }
        })
    }

    fn last(&self) -> parking_lot::MutexGuard<'_, Option<Cached>> {
        self.last.lock()
    }

    pub(super) fn distrust_store(&self) {
        if let Ok(Some(now)) = self.repository.store.current(&AtomicBool::new(true)) {
            now.mark_damaged();
        }
        if let Some((_, generation)) = &*self.fetched.lock() {
            generation.mark_damaged();
        }
    }
}
