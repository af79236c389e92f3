//! Step "retain": which ConfigMaps of earlier revisions stay. The others are deleted.

use jiff::Timestamp;

use crate::cluster::client::CallError;
use crate::cluster::readiness::{Health, Observed};
use crate::cluster::store::Key;
use crate::controllers::children::{Children, Owner, Wanted};
use crate::controllers::context::Context;

/// ConfigMaps that stay beside the current one while a rollout is under way. Pods of several earlier revisions may run (a
/// Deployment keeps three), and a pod that is moved to another node mounts its ConfigMap again.
const KEPT_WHILE_ROLLING_OUT: usize = 8;

/// Deletes the ConfigMaps of earlier revisions that no pods may still need.
///
/// # Errors
/// The delete's error.
pub async fn remove_unneeded(
    context: &Context,
    owner: &Owner<'_>,
    children: &Children,
    observed: Option<&Observed>,
) -> Result<(), CallError> {
    let current = match &children.config_map {
        Wanted::Bring(map) => map.metadata.name.as_deref(),
        Wanted::Remove => None,
        Wanted::Keep => return Ok(()),
    };
    let (store, namespace) = (&context.children.config_maps, &owner.key.namespace);
    let kind = owner.kind.as_str().to_lowercase();
    let existing = store.found(namespace, owner.uid).into_iter().filter(|(_, entry)| {
        let map = &entry.value;
        map.owner_uid() == Some(owner.uid) && map.kind_label() == Some(kind.as_str())
    });
    let existing = existing.map(|(key, entry)| (key.name, entry.value.created)).collect();
    for name in removable(existing, current, kept(current.is_some(), observed)) {
        context.writer.remove(store, owner.uid, &Key::new(namespace, name)).await?;
    }
    Ok(())
}

/// How many ConfigMaps stay beside the current one: one for pods of the revision before, more while a rollout is under way,
/// and none when there is to be no ConfigMap.
fn kept(has_current: bool, observed: Option<&Observed>) -> usize {
    let settled = observed.is_none_or(|o| o.health == Health::Available || o.wanted == 0);
    match (settled, has_current) {
        (true, true) => 1,
        (true, false) => 0,
        (false, _) => KEPT_WHILE_ROLLING_OUT,
    }
}

/// The ConfigMaps that may go: all but the current one and the newest `keep` before it. `existing` is `(name, created)`.
fn removable(
    mut existing: Vec<(String, Option<Timestamp>)>,
    current: Option<&str>,
    keep: usize,
) -> Vec<String> {
    existing.retain(|(name, _)| Some(name.as_str()) != current);
    existing.sort_by(|a, b| (b.1, &b.0).cmp(&(a.1, &a.0)));
    existing.into_iter().skip(keep).map(|(name, _)| name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn existing() -> Vec<(String, Option<Timestamp>)> {
        let at = |s| Some(Timestamp::from_second(s).expect("time"));
        vec![("a".into(), at(1)), ("b".into(), at(2)), ("c".into(), at(3)), ("now".into(), at(4))]
    }

    #[test]
    fn a5_two_configurations_are_kept() {
        assert_eq!(removable(existing(), Some("now"), kept(true, None)), ["b", "a"]);
        // Back to an older one: the newest before it stays.
        assert_eq!(removable(existing(), Some("a"), kept(true, None)), ["c", "b"]);
    }

    #[test]
    fn a5_while_a_rollout_hangs_the_pods_that_serve_keep_their_configuration() {
        let hangs = Observed { wanted: 1, ..Observed::default() };
        assert!(removable(existing(), Some("now"), kept(true, Some(&hangs))).is_empty());
        let done = Observed { wanted: 1, health: Health::Available, ..Observed::default() };
        assert_eq!(removable(existing(), Some("now"), kept(true, Some(&done))), ["b", "a"]);
    }

    #[test]
    fn a1_without_a_configuration_none_is_left() {
        assert_eq!(removable(existing(), None, kept(false, None)), ["now", "c", "b", "a"]);
    }
}
