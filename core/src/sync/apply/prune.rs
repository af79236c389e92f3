//! The deletes of a plan. Each names the uid and the version of the object that was judged.

use futures::StreamExt;
use futures::stream;

use crate::api::keys;
use crate::cluster::store::Key;
use crate::cluster::write::Deleted;
use crate::sync::apply::impersonation::{Rejection, Verb};
use crate::sync::apply::outcome::Outcome;
use crate::sync::apply::resume::Resume;
use crate::sync::apply::writer::{MAX_WRITES_IN_FLIGHT, Writer, annotation, version_of};
use crate::sync::io::effect::{Call, Reply};
use crate::sync::plan::Victim;

/// How often a delete is tried while the object keeps changing.
const MAX_DELETE_ATTEMPTS: usize = 5;

/// How one delete ended.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Pruned {
    /// The object does not exist any more.
    Gone,
    /// The object is being deleted, and finalizers keep it.
    Ending,
    /// The object was not deleted: since the plan was made it got another owner, or was protected or paused.
    Skipped,
    /// The delete was not started, because the GitSync has changed.
    Stopped,
    /// The delete was not started, because the deadline has passed.
    Late,
}

impl Writer<'_> {
    /// The deletes of a plan, in the reverse order of kinds.
    pub(super) async fn delete(&self, victims: &[Victim], resume: &Resume, outcome: &mut Outcome) {
        let mut victims = victims.to_vec();
        resume.order(&mut victims, |victim| &victim.id);
        for victims in victims.chunk_by(|a, b| resume.together(&a.id, &b.id)) {
            let mut deletes = stream::iter(victims.to_vec())
                .map(|victim| async move {
                    let pruned = self.prune(&victim).await;
                    (victim, pruned)
                })
                .buffer_unordered(MAX_WRITES_IN_FLIGHT);
            while let Some((victim, result)) = deletes.next().await {
                match result {
                    Ok(Pruned::Gone) => outcome.pruned += 1,
                    Ok(Pruned::Ending) => {
                        outcome.pruned += 1;
                        outcome.ending.push(victim);
                    }
                    Ok(Pruned::Skipped) => outcome.skipped += 1,
                    Ok(Pruned::Stopped) => outcome.stopped = true,
                    Ok(Pruned::Late) => outcome.unstarted += 1,
                    Err(error) => {
                        outcome.undeleted.insert(victim.id, error);
                    }
                }
            }
            if outcome.stopped {
                break;
            }
        }
    }

    /// Deletes one object.
    pub(crate) async fn prune(&self, victim: &Victim) -> Result<Pruned, Rejection> {
        let key = Key::new(&self.sync.namespace, &victim.id.name);
        let store = self.stores.managed(victim.id.kind);
        let mut version = victim.version;
        for _ in 0..MAX_DELETE_ATTEMPTS {
            let permit = self.io.permit().await;
            if !(self.is_current)() || !(self.is_absence_proven)() {
                return Ok(Pruned::Stopped);
            }
            if self.is_late() {
                return Ok(Pruned::Late);
            }
            let (id, uid) = (victim.id.clone(), victim.uid.clone());
            match self.send(permit, Call::Delete { id: id.clone(), uid, version }).await {
                Ok(Reply::Deleted(Deleted::Gone)) => {
                    store.deleted_uid(&key, &victim.uid);
                    return Ok(Pruned::Gone);
                }
                Ok(Reply::Deleted(Deleted::Terminating(object))) => {
                    self.overlay(&id, *object);
                    return Ok(Pruned::Ending);
                }
                Ok(_) => {}
                Err(error) => return Err(self.rejection(&error, Verb::Delete, victim.id.kind)),
            }
            // The object has changed since it was judged. Is it still the same one, ours, and neither protected nor paused?
            let permit = self.io.permit().await;
            let live = match self.object(permit, Call::Get { id }).await {
                Ok(live) => live,
                Err(error) if error.is_gone() => {
                    store.deleted_uid(&key, &victim.uid);
                    return Ok(Pruned::Gone);
                }
                Err(error) => return Err(self.rejection(&error, Verb::Get, victim.id.kind)),
            };
            let disabled = |key| annotation(&live, key) == Some(keys::DISABLED);
            let protected = disabled(keys::PRUNE) || disabled(keys::RECONCILE);
            if !self.is_ours(&live, &victim.id, &victim.uid) || protected {
                return Ok(Pruned::Skipped);
            }
            version = version_of(&live).unwrap_or(0);
        }
        let words = format!("it changed {MAX_DELETE_ATTEMPTS} times while it was being deleted");
        Err(Rejection { words, denial: None })
    }
}
