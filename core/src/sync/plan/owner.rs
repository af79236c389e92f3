//! The owner of a live object, and whether the object was changed manually.

use crate::api::{ObjectId, keys};
use crate::cluster::live::Live;
use crate::sync::commit::desired::Desired;
use crate::sync::live_namespace::mark;
use crate::sync::plan::compare::annotation;
use crate::sync::plan::inputs::Inputs;

/// The owner of a live object.
pub(super) enum Owner {
    /// This GitSync.
    Ours,
    /// A GitSync of the same name that does not exist any more.
    Vanished,
    /// Nobody or another GitSync, and the object is handed over to this one.
    HandedOver,
    /// Somebody else: described for messages, and the name if it is a GitSync of the same namespace.
    Other(String, Option<String>),
}

/// The owner of a live object.
pub(super) fn owner(live: &Live, id: &ObjectId, inputs: &Inputs<'_>) -> Owner {
    let Inputs { sync, others, .. } = inputs;
    let mark = mark(live, id, sync);
    let handed_over = annotation(live, keys::ADOPT_BY) == Some(sync.name.as_str());
    match mark {
        Some(mark) if mark.sync_uid == sync.uid => Owner::Ours,
        Some(mark) if mark.sync_namespace == sync.namespace && mark.sync_name == sync.name => {
            Owner::Vanished
        }
        Some(mark) if others.exists(&mark.sync_namespace, &mark.sync_name, &mark.sync_uid) => {
            let text = format!("GitSync {}/{}", mark.sync_namespace, mark.sync_name);
            let peer = (mark.sync_namespace == sync.namespace).then_some(mark.sync_name);
            match peer {
                Some(name) if others.gives(&name, id) => Owner::HandedOver,
                peer => Owner::Other(text, peer),
            }
        }
        _ if handed_over => Owner::HandedOver,
        Some(mark) => {
            let text = format!("the vanished GitSync {}/{}", mark.sync_namespace, mark.sync_name);
            Owner::Other(text, None)
        }
        None => Owner::Other("somebody else (it carries no valid mark)".into(), None),
    }
}

/// Whether an object of this GitSync that differs from Git was applied as it is wanted, and changed since.
///
/// The annotation of the object counts only after a start, while the operator does not know what was applied: anybody can change
/// it.
pub(super) fn is_drift(id: &ObjectId, desired: &Desired, live: &Live, inputs: &Inputs<'_>) -> bool {
    let annotated = || annotation(live, keys::APPLIED) == Some(desired.applied.as_str());
    inputs.index.was_applied(id, desired).unwrap_or_else(annotated)
}
