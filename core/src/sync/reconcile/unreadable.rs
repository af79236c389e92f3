//! GitSyncs that cannot be synced: they do not parse, or the API server does not list all kinds of objects.

use crate::api::GitSync;
use crate::cluster::live::Managed;
use crate::cluster::store::{Entry, Key};
use crate::next::Next;
use crate::sync::io::Ended;
use crate::sync::io::EngineError;
use crate::sync::io::Io;
use crate::sync::io::effect::{Call, Reply};
use crate::sync::reasons::EngineReason;
use crate::sync::reasons::{stalled, unready};
use crate::sync::reconcile::engine::{Engine, RECHECK_INTERVAL};
use crate::sync::status::build::status;
use crate::sync::status::report::Report;
use crate::sync::subject::Subject;

impl Engine {
    /// Reports the kinds that are not completely listed. Without complete lists nothing proves that an object is absent, so
    /// nothing is done.
    pub(super) async fn report_unlisted_kinds(&self, io: &Io, key: &Key) -> Ended {
        let kinds = self.stores.pending().join(", ");
        let entry = self.stores.git_syncs.get(key).filter(|entry| !entry.value.facts.deleting);
        let sync = entry.as_ref().and_then(|entry| entry.value.object());
        if let (Some(entry), Some(sync)) = (&entry, sync.filter(|sync| !sync.spec.suspend)) {
            tracing::debug!(object = %key, kinds, "waiting for complete lists");
            let message = format!(
                "nothing is synced until the cluster lists its objects of kind {kinds}; is all of deploy/crds.yaml applied?"
            );
            let generation = sync.metadata.generation.unwrap_or(0);
            let subject = Subject { io, key, entry, sync: &sync, generation, own: None };
            let mut verdict = unready(EngineReason::KindsNotListed, &message);
            verdict.reconciling = true;
            let report = Report::of(generation, verdict, io.time());
            self.status().report(&subject, report).await?;
        }
        Ok(Next::After(RECHECK_INTERVAL))
    }

    /// Reports that a GitSync does not parse. Nothing is done for it.
    pub(super) async fn report_unreadable(
        &self,
        io: &Io,
        key: &Key,
        entry: &Entry<Managed<GitSync>>,
    ) -> Ended {
        let error = entry.value.parse_error().unwrap_or_default();
        tracing::warn!(object = %key, error, "this GitSync does not parse");
        let live = match io.ask(None, Call::GetSync { name: key.name.clone() }).await {
            Ok(Reply::Object(live)) => live,
            Err(error) if error.is_gone() => return Ok(Next::Settled),
            Err(error) => return Err(EngineError::Status(error)),
            Ok(_) => return Ok(Next::Settled),
        };
        let raw = live.data.get("status").cloned().unwrap_or_default();
        // The status itself may be the part that does not parse.
        let old = serde_json::from_value(raw.clone()).unwrap_or_default();
        let message = format!(
            "this GitSync cannot be read by this version of Convoke: {error}; nothing is done for it until its spec is changed"
        );
        let generation = live.metadata.generation.unwrap_or_default();
        let verdict = stalled(EngineReason::InvalidSpec, &message);
        let new = status(Some(&old), Report::of(generation, verdict, io.time()));
        let written = if serde_json::to_value(&new).ok() == Some(raw) {
            Some(new)
        } else {
            self.status().send(io, (key, &entry.uid), new, Some(&old)).await?
        };
        if let Some(written) = written {
            self.status().announce(io, (key, &entry.uid), &written, None);
        }
        Ok(Next::Settled)
    }
}
