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
        let (mut contention, start) = (Contention::default(), Instant::now());
        let ((desired, applied), at) = (wants(1), |s| start + Duration::from_secs(s));
        for second in [0, 10, 20] {
            assert!(contention.hold(&mut plan(), &desired, at(second)).is_empty());
            contention.reverted(&id(), &applied, "somebody".into(), at(second));
        }
        let mut made = plan();
        let held = contention.hold(&mut made, &desired, at(30));
        assert!(made.is_settled());
        let wait = Duration::from_secs(50);
        assert_eq!(held, [Contended { id: id(), who: "somebody".into(), wait }]);
        // A new definition is no revert, and is written.
        assert!(contention.hold(&mut changed(false), &desired, at(30)).is_empty());
        assert!(contention.hold(&mut gone(), &wants(2).0, at(30)).is_empty());
        // At this very moment it is reverted.
        assert!(contention.hold(&mut plan(), &desired, at(79)).len() == 1);
        assert!(contention.hold(&mut plan(), &desired, at(80)).is_empty());
        // The next pauses double.
        assert!(contention.hold(&mut plan(), &desired, at(81)).is_empty());
        contention.reverted(&id(), &applied, "somebody".into(), at(81));
        let held = contention.hold(&mut plan(), &desired, at(82));
        assert_eq!(held[0].wait, Duration::from_secs(119));
        // Quiet for long enough: as if nothing had been.
        assert!(contention.hold(&mut plan(), &desired, at(82 + 238)).is_empty());
        assert_eq!(contention.ids().count(), 1);
        assert!(contention.hold(&mut plan(), &desired, at(81 + 240)).is_empty());
        assert_eq!(contention.ids().count(), 0);
        assert!(contention.hold(&mut plan(), &desired, at(82 + 240)).is_empty());
        contention.reverted(&id(), &applied, "somebody".into(), at(322));
        assert!(contention.hold(&mut plan(), &desired, at(323)).is_empty());
    }
}

#[test]
#[allow(clippy::disallowed_methods)] // a point to count from
fn g14_slow_changes_and_another_definition_are_no_fight() {
    let (mut contention, start) = (Contention::default(), Instant::now());
    let at = |s| start + Duration::from_secs(s);
    let ((one, first), (other, second)) = (wants(1), wants(2));
    for moment in [0, 40, 80, 119] {
        assert!(contention.hold(&mut changed(true), &one, at(moment)).is_empty(), "{moment}");
        contention.reverted(&id(), &first, String::new(), at(moment));
    }
    for moment in [120, 121] {
        contention.reverted(&id(), &second, String::new(), at(moment));
    }
    assert!(contention.hold(&mut changed(true), &other, at(122)).is_empty());
    contention.reverted(&id(), &second, String::new(), at(122));
    assert_eq!(contention.hold(&mut changed(true), &other, at(123)).len(), 1);
    contention.forget();
    assert!(contention.hold(&mut changed(true), &other, at(124)).is_empty());
}
