//! Objects that somebody changes or deletes again and again: after three reverts in a minute, each further one waits longer.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use crate::api::ObjectId;
use crate::sync::commit::desired::DesiredSet;
use crate::sync::plan::Plan;

/// Reverts in [`WINDOW`] that make a fight.
const MOST: usize = 3;
const WINDOW: Duration = Duration::from_secs(60);
const LONGEST: Duration = Duration::from_secs(15 * 60);

#[derive(Debug)]
struct Fight {
    /// What was applied: another definition ends the fight.
    applied: String,
    /// The newest reverts, oldest first; at most [`MOST`].
    reverts: Vec<Instant>,
    /// Who and what, for people.
    who: String,
    /// How long the next revert waits after the last one.
    pause: Duration,
}

impl Fight {
    /// When the next revert may be.
    fn until(&self) -> Option<Instant> {
        let (first, last) = (self.reverts.first()?, self.reverts.last()?);
        let hot = self.reverts.len() >= MOST && last.duration_since(*first) <= WINDOW;
        (hot || self.pause > Duration::ZERO).then(|| *last + self.pause.max(WINDOW))
    }
}

/// See the module.
#[derive(Debug, Default)]
pub struct Contention(HashMap<ObjectId, Fight>);

/// An object that is not brought back for now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Contended {
    /// Which object.
    pub id: ObjectId,
    /// Who changes what, for people.
    pub who: String,
    /// Time to the next revert.
    pub wait: Duration,
}

impl Contention {
    /// Takes the reverts out of a plan that have to wait: of changes by hand, and of deletes.
    pub fn hold(&mut self, plan: &mut Plan, desired: &DesiredSet, now: Instant) -> Vec<Contended> {
        // Nobody has changed it for long: it is over.
        self.0.retain(|_, fight| {
            let quiet = fight.pause.max(WINDOW) * 2;
            fight.reverts.last().is_some_and(|last| now.duration_since(*last) < quiet)
        });
        if self.0.is_empty() {
            return Vec::new();
        }
        let mut held = Vec::new();
        let mut may = |id: &ObjectId| {
            // Another definition is no revert.
            let same = |fight: &&Fight| desired.get(id).is_some_and(|w| w.applied == fight.applied);
            let fight = self.0.get(id).filter(same);
            let until = fight.and_then(Fight::until).filter(|until| *until > now);
            if let (Some(fight), Some(until)) = (fight, until) {
                let wait = until.duration_since(now);
                held.push(Contended { id: id.clone(), who: fight.who.clone(), wait });
            }
            until.is_none()
        };
        plan.update.retain(|update| !update.drifted || may(&update.id));
        plan.create.retain(|id| may(id));
        held
    }

    /// An object was brought back.
    pub fn reverted(&mut self, id: &ObjectId, applied: &str, who: String, now: Instant) {
        let fight = self.0.entry(id.clone()).or_insert_with(|| Fight {
            applied: applied.to_owned(),
            reverts: Vec::new(),
            who: String::new(),
            pause: Duration::ZERO,
        });
        if fight.applied != applied {
            *fight = Fight {
                applied: applied.to_owned(),
                reverts: Vec::new(),
                who: String::new(),
                pause: Duration::ZERO,
            };
        }
        if fight.until().is_some() {
            fight.pause = (fight.pause.max(WINDOW) * 2).min(LONGEST);
        }
        fight.reverts.push(now);
        if fight.reverts.len() > MOST {
            fight.reverts.remove(0);
        }
        fight.who = who;
    }

    /// The objects that are fought over, for tests.
    #[cfg(test)]
    pub fn ids(&self) -> impl Iterator<Item = &ObjectId> {
        self.0.keys()
    }

    /// Somebody asks for a sync: everything is tried again at once.
    pub fn forget(&mut self) {
        self.0.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::Kind;
    use crate::sync::commit::desired::Desired;
    use crate::sync::plan::Update;
    use crate::sync::properties::definition;

    fn id() -> ObjectId {
        ObjectId::new(Kind::ModelAPI, "a")
    }

    /// What Git wants, and its hash.
    fn wants(content: usize) -> (DesiredSet, String) {
        let desired = Desired::new(definition(&id(), content));
        let applied = desired.applied.clone();
        (std::iter::once((id(), desired)).collect(), applied)
    }

    fn changed(drifted: bool) -> Plan {
        let (claim, uid) = ([None, None], "u".into());
        let update = Update { id: id(), uid, version: 1, adopted: false, claim, drifted };
        Plan { update: vec![update], ..Plan::default() }
    }

    fn gone() -> Plan {
        Plan { create: vec![id()], ..Plan::default() }
    }

    #[test]
    #[allow(clippy::disallowed_methods)] // a point to count from
    fn g14_three_reverts_in_a_minute_are_a_fight_that_backs_off_and_ends() {
        for plan in [|| changed(true), gone] {
            let (mut fights, start) = (Contention::default(), Instant::now());
            let ((desired, applied), at) = (wants(1), |s| start + Duration::from_secs(s));
            for second in [0, 10, 20] {
                assert!(fights.hold(&mut plan(), &desired, at(second)).is_empty());
                fights.reverted(&id(), &applied, "somebody".into(), at(second));
            }
            let mut made = plan();
            let held = fights.hold(&mut made, &desired, at(30));
            assert!(made.is_settled());
            let wait = Duration::from_secs(50);
            assert_eq!(held, [Contended { id: id(), who: "somebody".into(), wait }]);
            // A new definition is no revert, and is written.
            assert!(fights.hold(&mut changed(false), &desired, at(30)).is_empty());
            assert!(fights.hold(&mut gone(), &wants(2).0, at(30)).is_empty());
            // At the very moment it is brought back.
            assert!(fights.hold(&mut plan(), &desired, at(79)).len() == 1);
            assert!(fights.hold(&mut plan(), &desired, at(80)).is_empty());
            // The next pauses double.
            assert!(fights.hold(&mut plan(), &desired, at(81)).is_empty());
            fights.reverted(&id(), &applied, "somebody".into(), at(81));
            let held = fights.hold(&mut plan(), &desired, at(82));
            assert_eq!(held[0].wait, Duration::from_secs(119));
            // Quiet for long enough: as if nothing had been.
            assert!(fights.hold(&mut plan(), &desired, at(82 + 238)).is_empty());
            assert_eq!(fights.ids().count(), 1);
            assert!(fights.hold(&mut plan(), &desired, at(81 + 240)).is_empty());
            assert_eq!(fights.ids().count(), 0);
            assert!(fights.hold(&mut plan(), &desired, at(82 + 240)).is_empty());
            fights.reverted(&id(), &applied, "somebody".into(), at(322));
            assert!(fights.hold(&mut plan(), &desired, at(323)).is_empty());
        }
    }

    #[test]
    #[allow(clippy::disallowed_methods)] // a point to count from
    fn g14_slow_changes_and_another_definition_are_no_fight() {
        let (mut fights, start) = (Contention::default(), Instant::now());
        let at = |s| start + Duration::from_secs(s);
        let ((one, first), (other, second)) = (wants(1), wants(2));
        for moment in [0, 40, 80, 119] {
            assert!(fights.hold(&mut changed(true), &one, at(moment)).is_empty(), "{moment}");
            fights.reverted(&id(), &first, String::new(), at(moment));
        }
        for moment in [120, 121] {
            fights.reverted(&id(), &second, String::new(), at(moment));
        }
        assert!(fights.hold(&mut changed(true), &other, at(122)).is_empty());
        fights.reverted(&id(), &second, String::new(), at(122));
        assert_eq!(fights.hold(&mut changed(true), &other, at(123)).len(), 1);
        fights.forget();
        assert!(fights.hold(&mut changed(true), &other, at(124)).is_empty());
    }
}
