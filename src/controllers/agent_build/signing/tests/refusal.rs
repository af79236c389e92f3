use super::*;
use crate::controllers::agent_build::needs::Level;
use crate::controllers::agent_build::run::RunOutcome;
use crate::controllers::inputs::digest::MacKey;

const UID: &str = "11111111-2222-3333-4444-555555555555";

fn key(byte: u8) -> SealKey {
    SealKey::of(&MacKey::new(&[byte; 32]))
}

/// A run that has succeeded, and that this operator has sealed.
fn sealed() -> Run {
    let digest = format!("sha256:{}", "a".repeat(64));
    let run = Run { spec: Some("spec".into()), ..Run::sample(RunOutcome::Unattested { digest }) };
    let seal = key(1).seal(&run, UID);
    assert!(seal.is_some());
    Run { seal, ..run }
}

#[test]
fn b12_only_what_waiting_cannot_heal_is_refused_for_good() {
    let (ours, home) = (key(1), Place::at_home("team"));
    let there = Place::new("team", Level::Privileged, Some("builds"));
    let said = |run: &Run, seals: Option<&SealKey>, place: &Place| {
        refusal(run, UID, seals, place).unwrap_or("may be attested")
    };
    assert_eq!(said(&sealed(), Some(&ours), &home), "may be attested");
    let bare = Run { seal: None, ..sealed() };
    assert!(said(&bare, Some(&ours), &home).contains("no seal of this operator"));
    let changed = Run { spec: Some("other".into()), ..sealed() };
    assert!(said(&changed, Some(&ours), &home).contains("changed it"));
    assert!(said(&sealed(), Some(&key(2)), &home).contains("convoke-hmac"));
    // The key comes later, perhaps. A seal that is missing does not.
    assert_eq!(said(&sealed(), None, &home), "may be attested");
    assert!(said(&bare, None, &home).contains("no seal"));
    // The option was set after it ran.
    assert!(said(&sealed(), Some(&ours), &there).contains("--build-namespace"));
    let elsewhere = Run { namespace: "builds".into(), ..sealed() };
    let seal = key(1).seal(&elsewhere, UID);
    assert_eq!(said(&Run { seal, ..elsewhere }, Some(&ours), &there), "may be attested");
}
