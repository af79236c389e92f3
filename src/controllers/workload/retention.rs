//! Step "retain": which ConfigMaps of earlier revisions stay. The others are deleted, and keys that no pods need.

use jiff::Timestamp;

use crate::cluster::client::CallError;
use crate::cluster::readiness::Observed;
use crate::cluster::store::Key;
use crate::controllers::children::{Children, Keys, Owner, Wanted};
use crate::controllers::context::Context;
use crate::controllers::names::agents_map;

/// ConfigMaps that stay beside the current one while a rollout is under way. Pods of several earlier revisions may run (a
/// Deployment keeps three), and a pod that is moved to another node mounts its ConfigMap again.
const KEPT_WHILE_ROLLING_OUT: usize = 8;

/// Deletes the ConfigMaps of earlier revisions that no pods may still need. `last_good` is that of the last good revision.
///
/// # Errors
/// The delete's error.
pub async fn remove_unneeded(
    context: &Context,
    owner: &Owner<'_>,
    children: &Children,
    observed: Option<&Observed>,
    last_good: Option<&str>,
) -> Result<(), CallError> {
    let (current, which) = match &children.config_map {
        Wanted::Bring(map) if map.immutable == Some(true) => {
            (map.metadata.name.as_deref(), Current::OneOfMany)
        }
        Wanted::Bring(map) => (map.metadata.name.as_deref(), Current::TheOnly),
        Wanted::Remove => (None, Current::None),
        Wanted::Keep => return Ok(()),
    };
    let (store, namespace) = (&context.children.config_maps, &owner.key.namespace);
    let kind = owner.kind.as_str().to_lowercase();
    // The list of agents is none of the revisions.
    let list = agents_map(&owner.key.name);
    let has_list = children.agents != Wanted::Remove;
    let existing = store.found(namespace, owner.uid).into_iter().filter(|(key, entry)| {
        let map = &entry.value;
        map.owner_uid() == Some(owner.uid)
            && map.kind_label() == Some(kind.as_str())
            && !(has_list && key.name == list)
            && Some(key.name.as_str()) != last_good
    });
    let existing = existing.map(|(key, entry)| (key.name, entry.value.created)).collect();
    for name in removable(existing, current, kept(which, observed)) {
        context.writer.remove(store, owner.uid, &Key::new(namespace, name)).await?;
    }
    Ok(())
}

/// Deletes the Secret with keys when no pods need it any more.
///
/// # Errors
/// The delete's error.
pub async fn remove_keys(
    context: &Context,
    owner: &Owner<'_>,
    children: &Children,
    observed: Option<&Observed>,
    secret: String,
) -> Result<(), CallError> {
    if are_unneeded(children, observed) {
        context.writer.remove_secret(owner.uid, &Key::new(&owner.key.namespace, secret)).await?;
    }
    Ok(())
}

/// Whether no pods read keys. A Deployment that is held reads what it read before, and so do the pods of an earlier revision.
fn are_unneeded(children: &Children, observed: Option<&Observed>) -> bool {
    let is_held = children.deployment == Wanted::Keep && observed.is_some();
    children.keys == Keys::None && !is_held && is_settled(observed)
}

/// Whether no pods of an earlier revision run.
fn is_settled(observed: Option<&Observed>) -> bool {
    observed.is_none_or(Observed::is_settled)
}

/// The ConfigMap that is wanted.
#[derive(Clone, Copy)]
enum Current {
    /// It is never changed: each content has one of its own.
    OneOfMany,
    /// It is changed in place.
    TheOnly,
    /// There is to be none.
    None,
}

/// How many ConfigMaps stay beside the current one: one for pods of the revision before, more while a rollout is under way,
/// and none when later contents need none of their own.
fn kept(current: Current, observed: Option<&Observed>) -> usize {
    match (is_settled(observed), current) {
        (true, Current::OneOfMany) => 1,
        (true, Current::TheOnly | Current::None) => 0,
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
    use k8s_openapi::api::apps::v1::Deployment;

    use super::*;
    use crate::cluster::readiness::Health;

    fn existing() -> Vec<(String, Option<Timestamp>)> {
        let at = |s| Some(Timestamp::from_second(s).expect("time"));
        vec![("a".into(), at(1)), ("b".into(), at(2)), ("c".into(), at(3)), ("now".into(), at(4))]
    }

    #[test]
    fn a5_two_configurations_are_kept() {
        assert_eq!(removable(existing(), Some("now"), kept(Current::OneOfMany, None)), ["b", "a"]);
        // Back to an older one: the newest before it stays.
        assert_eq!(removable(existing(), Some("a"), kept(Current::OneOfMany, None)), ["c", "b"]);
    }

    #[test]
    fn a5_while_a_rollout_hangs_the_pods_that_serve_keep_their_configuration() {
        let hangs = Observed { wanted: 1, ..Observed::default() };
        assert!(
            removable(existing(), Some("now"), kept(Current::OneOfMany, Some(&hangs))).is_empty()
        );
        let done = Observed { wanted: 1, health: Health::Available, ..Observed::default() };
        assert_eq!(
            removable(existing(), Some("now"), kept(Current::OneOfMany, Some(&done))),
            ["b", "a"]
        );
    }

    #[test]
    fn a5_one_that_is_changed_in_place_stays_and_goes_when_it_is_no_longer_wanted() {
        let config = "config".to_owned();
        let with = |at: i64| {
            let mut all = existing();
            all.push((config.clone(), Some(Timestamp::from_second(at).expect("time"))));
            all
        };
        // While its pods come, those of the revision before keep theirs; afterwards only it is left.
        let hangs = Observed { wanted: 1, ..Observed::default() };
        let rolling = kept(Current::TheOnly, Some(&hangs));
        assert!(removable(with(5), Some("config"), rolling).is_empty());
        let settled = kept(Current::TheOnly, None);
        assert_eq!(removable(with(0), Some("config"), settled), ["now", "c", "b", "a"]);
        // It is the one before, and goes with the next.
        let many = kept(Current::OneOfMany, None);
        assert_eq!(removable(with(0), Some("now"), many), ["b", "a", "config"]);
        let one_more = vec![("config".into(), None), ("now".into(), None)];
        assert!(removable(one_more, Some("now"), many).is_empty());
    }

    #[test]
    fn m5_a3_keys_go_only_when_no_pods_read_them() {
        let done = Observed { wanted: 1, health: Health::Available, ..Observed::default() };
        let rolling = Observed { wanted: 1, ..Observed::default() };
        let without = |deployment| Children { deployment, ..Children::removed() };
        let moved = without(Wanted::Bring(Deployment::default()));
        assert!(are_unneeded(&moved, Some(&done)));
        assert!(!are_unneeded(&moved, Some(&rolling)), "pods of before have them");
        let held = without(Wanted::Keep);
        assert!(!are_unneeded(&held, Some(&done)), "what is held reads them");
        assert!(are_unneeded(&held, None), "nothing runs");
        let kept = Children { keys: Keys::Keep(None), ..moved };
        assert!(!are_unneeded(&kept, Some(&done)));
    }

    #[test]
    fn a1_without_a_configuration_none_is_left() {
        assert_eq!(removable(existing(), None, kept(Current::None, None)), ["now", "c", "b", "a"]);
    }
}
