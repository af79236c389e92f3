//! (pure) Which configurations of earlier revisions may go.
#![deny(clippy::disallowed_types, clippy::disallowed_methods)]

use jiff::Timestamp;

use crate::cluster::readiness::{Health, Observed};

/// Configurations kept beside the current one while a rollout is under way: pods of several earlier revisions may run
/// (a Deployment keeps three), and one that is moved to another node mounts its configuration again.
const UNDER_WAY: usize = 8;

/// How many configurations to keep beside the current one: one for pods of the revision before, more while pods may need them, and
/// none when there is to be no configuration.
#[must_use]
pub fn kept(has_current: bool, observed: Option<&Observed>) -> usize {
    let settled = observed.is_none_or(|o| o.health == Health::Available || o.wanted == 0);
    match (settled, has_current) {
        (true, true) => 1,
        (true, false) => 0,
        (false, _) => UNDER_WAY,
    }
}

/// ConfigMaps that may go: all but the current one and the newest `keep` before it. `existing` is `(name, created)`.
#[must_use]
pub fn stale(
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
        assert_eq!(stale(existing(), Some("now"), kept(true, None)), ["b", "a"]);
        // Back to an older one: the newest before it stays.
        assert_eq!(stale(existing(), Some("a"), kept(true, None)), ["c", "b"]);
    }

    #[test]
    fn a5_while_a_rollout_hangs_the_pods_that_serve_keep_their_configuration() {
        let hangs = Observed { wanted: 1, ..Observed::default() };
        assert!(stale(existing(), Some("now"), kept(true, Some(&hangs))).is_empty());
        let done = Observed { wanted: 1, health: Health::Available, ..Observed::default() };
        assert_eq!(stale(existing(), Some("now"), kept(true, Some(&done))), ["b", "a"]);
    }

    #[test]
    fn a1_without_a_configuration_none_is_left() {
        assert_eq!(stale(existing(), None, kept(false, None)), ["now", "c", "b", "a"]);
    }
}
