//! The finalizer of a GitSync. It is there only while the deletion of the GitSync has to delete objects: with
//! `deletionPolicy: Delete`, not suspended, and with objects that carry its mark or are about to.

use crate::api::git_sync::DeletionPolicy;
use crate::api::{GitSync, ObjectId, keys};
use crate::cluster::live::Managed;
use crate::cluster::store::{Entry, Key};
use crate::sync::io::EngineError;
use crate::sync::io::Io;
use crate::sync::io::effect::{Call, Reply};
use crate::sync::live_namespace::{Namespace, is_ours};
use crate::sync::plan::Plan;
use crate::sync::reconcile::engine::Engine;
use crate::sync::subject::Subject;

/// How often the write of the finalizer is tried when the GitSync changed meanwhile.
const FINALIZER_TRIES: usize = 5;

/// Whether the deletion of this GitSync deletes its objects.
pub(super) fn deletes_objects(sync: &GitSync) -> bool {
    sync.spec.deletion_policy == DeletionPolicy::Delete && !sync.spec.suspend
}

/// Whether the GitSync has the finalizer.
pub(super) fn has_finalizer(entry: &Entry<Managed<GitSync>>) -> bool {
    entry.value.facts.finalizers.iter().any(|name| name == keys::FINALIZER)
}

/// What is to become of the finalizer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Finalizer {
    Set,
    Removed,
}

impl Engine {
    /// Sets or removes the finalizer, as far as the spec and the live objects decide it. This needs no commit, so it comes
    /// before all else.
    pub(crate) async fn update_finalizer(&self, subject: &Subject<'_>) -> Result<(), EngineError> {
        let has_finalizer = has_finalizer(subject.entry);
        if !deletes_objects(subject.sync) {
            return if has_finalizer {
                self.remove_finalizer(subject.io, subject.key, &subject.entry.uid).await
            } else {
                Ok(())
            };
        }
        let (sync, space) = (subject.reference(), subject.live(&self.stores));
        let ours = |id: &ObjectId| space.get(id).is_some_and(|live| is_ours(&live, id, &sync));
        if !has_finalizer && space.ids().iter().any(ours) {
            return self.set_finalizer(subject).await;
        }
        Ok(())
    }

    /// Sets the finalizer before the writes of a plan, so that the deletion finds every object; removes it when the plan
    /// writes nothing and there are no objects.
    pub(crate) async fn update_finalizer_for_plan(
        &self,
        subject: &Subject<'_>,
        plan: &Plan,
        blocked: usize,
    ) -> Result<(), EngineError> {
        let writes = !plan.create.is_empty() || !plan.update.is_empty();
        // Refused objects are tried again: without this the finalizer would come and go with each try.
        if blocked > 0 && !writes {
            return Ok(());
        }
        if !deletes_objects(subject.sync) || (!writes && plan.marked > 0) {
            return Ok(());
        }
        if writes {
            self.set_finalizer(subject).await
        } else {
            self.remove_finalizer(subject.io, subject.key, &subject.entry.uid).await
        }
    }

    async fn set_finalizer(&self, subject: &Subject<'_>) -> Result<(), EngineError> {
        let Subject { io, key, entry, .. } = subject;
        self.write_finalizer(io, key, &entry.uid, Finalizer::Set).await
    }

    /// Removes the finalizer of the GitSync with this uid.
    pub(super) async fn remove_finalizer(
        &self,
        io: &Io,
        key: &Key,
        uid: &str,
    ) -> Result<(), EngineError> {
        self.write_finalizer(io, key, uid, Finalizer::Removed).await
    }

    /// Sets or removes the finalizer of the GitSync with this uid. Finalizers of others stay.
    async fn write_finalizer(
        &self,
        io: &Io,
        key: &Key,
        uid: &str,
        wanted: Finalizer,
    ) -> Result<(), EngineError> {
        let store = &self.stores.git_syncs;
        let Some(mut newest) = store.get(key).filter(|newest| newest.uid == uid) else {
            return Ok(());
        };
        let set = wanted == Finalizer::Set;
        for attempt in 1..=FINALIZER_TRIES {
            let mut finalizers = newest.value.facts.finalizers.to_vec();
            if finalizers.iter().any(|name| name == keys::FINALIZER) == set {
                return Ok(());
            }
            finalizers.retain(|name| name != keys::FINALIZER);
            if set {
                finalizers.push(keys::FINALIZER.into());
            }
            let (name, version) = (key.name.clone(), newest.version);
            let reply = match io.ask(None, Call::Finalizers { name, version, finalizers }).await {
                Err(error) if error.is_conflict() && attempt < FINALIZER_TRIES => {
                    io.ask(None, Call::GetSync { name: key.name.clone() }).await
                }
                other => other.inspect(|_| tracing::debug!(object = %key, set, "finalizer")),
            };
            let reply = match reply {
                Err(error) if error.is_gone() => None,
                Ok(Reply::Object(object)) if object.metadata.uid.as_deref() == Some(uid) => {
                    Some(object)
                }
                Ok(_) => None,
                Err(error) => return Err(EngineError::Finalizer(error)),
            };
            let Some(reply) = reply else {
                store.deleted(key, uid);
                return Ok(());
            };
            let (_, seen) = Managed::<GitSync>::answered(*reply);
            let facts = &seen.value.facts;
            if facts.deleting && facts.finalizers.is_empty() {
                // That was the last finalizer: the API server has deleted the GitSync with this write.
                store.deleted(key, uid);
                return Ok(());
            }
            newest = store.wrote(key.clone(), seen);
        }
        Ok(())
    }
}
