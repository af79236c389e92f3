//! Deleted objects that still exist, because finalizers keep them.

use std::collections::BTreeMap;

use crate::api::ObjectId;
use crate::cluster::live::Live;
use crate::sync::live_namespace::Namespace;
use crate::sync::plan::Victim;

/// The finalizers of an object, for messages.
pub(crate) fn finalizers(live: &Live) -> String {
    live.facts().finalizers.join(", ")
}

/// The deleted objects that still exist in the stores, each with its finalizers. The watch starts a reconcile when one of them
/// is gone.
pub(crate) fn still_there<'a>(
    ending: impl IntoIterator<Item = &'a Victim>,
    live: &dyn Namespace,
) -> Vec<(ObjectId, String)> {
    let there = ending.into_iter().filter_map(|Victim { id, uid, .. }| {
        let live = live.get(id).filter(|live| live.uid() == uid)?;
        Some((id.clone(), finalizers(&live)))
    });
    there.collect::<BTreeMap<_, _>>().into_iter().collect()
}

/// A message about deleted objects that still exist.
pub(crate) fn keepers(ending: &[(ObjectId, String)]) -> String {
    let first = ending.first().map(|(id, finalizers)| format!("{id} ({finalizers})"));
    let count = ending.len();
    format!("finalizers keep {count} object(s); first: {}", first.unwrap_or_default())
}
