//! Objects that are deleted and still there, because finalizers of others keep them.

use std::collections::BTreeMap;

use crate::api::ObjectId;
use crate::cluster::live::Live;
use crate::sync::live_namespace::Namespace;
use crate::sync::plan::Victim;

/// The finalizers of an object, for people.
pub(crate) fn finalizers(live: &Live) -> String {
    live.facts().finalizers.join(", ")
}

/// Those of these that are still there, each with the finalizers that keep it. What the store shows counts: the watch tells
/// when one of them is gone, and then there is nothing left to wait for.
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

/// The objects that others keep, for people. (pure)
pub(crate) fn keepers(ending: &[(ObjectId, String)]) -> String {
    let first = ending.first().map(|(id, finalizers)| format!("{id} ({finalizers})"));
    let count = ending.len();
    format!("finalizers keep {count} object(s); first: {}", first.unwrap_or_default())
}
