use jiff::Timestamp;

use super::*;
use crate::sync::reasons::{EngineReason, SourceReason, unready};

#[test]
fn g4_the_condition_verified_is_there_only_while_signatures_are_wanted() {
    let next = |old: &GitSyncStatus, verified: Verified| {
        let said = unready(EngineReason::Progressing, "");
        let report = Report { verified, ..Report::of(1, said, Timestamp::UNIX_EPOCH) };
        status(Some(old), report)
    };
    let shown = |status: &GitSyncStatus| {
        let found = status.conditions.iter().find(|condition| condition.type_ == "Verified")?;
        Some(format!("{} {} {}", found.status, found.reason, found.message))
    };
    let none = next(&GitSyncStatus::default(), Verified::Unknown);
    assert_eq!(shown(&none), None);
    let yes = next(&none, Verified::Yes("main is signed".into()));
    assert_eq!(shown(&yes).as_deref(), Some("True Verified main is signed"));
    let still = next(&yes, Verified::Unknown);
    assert_eq!(shown(&still), shown(&yes), "nothing new was found");
    let why = Verified::No(SourceReason::SignatureMissing, "no signature".into());
    let no = next(&yes, why);
    assert_eq!(shown(&no).as_deref(), Some("False SignatureMissing no signature"));
    let nothing = next(&yes, Verified::Nothing(SourceReason::ConnectionFailed));
    assert_eq!(
        shown(&nothing).as_deref(),
        Some("Unknown ConnectionFailed no commit was verified with the keys that are known now")
    );
    assert_eq!(shown(&next(&no, Verified::NotWanted)), None);
}
