//! The status of a build whose image is not attested.

use super::*;

#[test]
fn b12_the_status_says_why_an_image_that_is_built_does_not_count_yet() {
    let one = key("1");
    let waits = run(&one, RunOutcome::Unattested { digest: format!("sha256:{}", "a".repeat(64)) });
    let why = BTreeMap::from([(waits.name.clone(), "denied".to_owned())]);
    let again = Some(Duration::from_secs(7));
    let unattested = Unattested { why, again, ..Unattested::default() };
    let Finding::Key(about) = about(&one, Decision::Show(&waits), None) else { panic!("a key") };
    let found = Finding::Key(KeyFinding { unattested: &unattested, ..about });
    let old =
        AgentBuildStatus { built_image: Some("before".into()), ..AgentBuildStatus::default() };
    let pending = status(&old, &meta(), &found, Builder::Available, at(1));
    for (type_, is) in [("Ready", "False"), ("Reconciling", "True")] {
        assert_eq!(condition(&pending, type_), Some((is, "ProvenancePending")));
    }
    assert_eq!(
        (pending.phase, pending.built_image.as_deref()),
        (Some(BuildPhase::Building), Some("before"))
    );
    let message = pending.message.clone().expect("a message");
    assert!(
        message.ends_with(
            "has built the image, and its provenance is not in the registry yet: denied"
        ),
        "{message}"
    );
    assert_eq!(status(&pending, &meta(), &found, Builder::Available, at(9)), pending);
    assert!(
        matches!(again::next(&found, at(9)), Next::After(pause) if pause == Duration::from_secs(7))
    );
    // No commit holds it any more, and its run is gone.
    let gone = status(&pending, &meta(), &Finding::NotInGit, Builder::Available, at(10));
    assert_eq!(condition(&gone, "Ready"), Some(("False", "NotInGit")));
    let done = next(&pending, &one, Some(&run(&one, built())), Builder::Available, 11);
    assert_eq!(condition(&done, "Ready"), Some(("True", "Built")));
    assert_ne!(done.built_image, pending.built_image);
}

#[test]
fn b12_an_image_that_never_counts_is_told_as_final_with_what_helps() {
    let one = key("1");
    let bare = run(&one, RunOutcome::Unattested { digest: format!("sha256:{}", "a".repeat(64)) });
    let refused = BTreeMap::from([(bare.name.clone(), "it has no seal")]);
    let unattested = Unattested { refused, ..Unattested::default() };
    let Finding::Key(about) = about(&one, Decision::Show(&bare), None) else { panic!("a key") };
    let found = Finding::Key(KeyFinding { unattested: &unattested, ..about });
    let old =
        AgentBuildStatus { built_image: Some("before".into()), ..AgentBuildStatus::default() };
    let told = status(&old, &meta(), &found, Builder::Available, at(1));
    assert_eq!(condition(&told, "Ready"), Some(("False", "ProvenanceRefused")));
    assert_eq!(condition(&told, "Stalled"), Some(("True", "ProvenanceRefused")));
    assert_eq!(condition(&told, "Reconciling"), None, "nobody waits for it");
    let image = told.built_image.as_deref();
    assert_eq!((told.phase, image), (Some(BuildPhase::Failed), Some("before")));
    let message = told.message.clone().expect("a message");
    assert!(message.contains("it has no seal"), "{message}");
    assert!(message.contains("convoke rebuild build/reviewer -n team"), "{message}");
    assert!(matches!(again::next(&found, at(9)), Next::Settled));
    assert_eq!(status(&told, &meta(), &found, Builder::Available, at(9)), told);
    // Its run is gone: nothing is built by itself, and the reason stays.
    let gone = next(&told, &one, None, Builder::Available, 10);
    assert_eq!(condition(&gone, "Ready"), Some(("False", "ProvenanceRefused")));
    assert_eq!(gone.phase, Some(BuildPhase::Failed));
    // Somebody has put the spec of the run back.
    let done = next(&told, &one, Some(&run(&one, built())), Builder::Available, 11);
    assert_eq!(condition(&done, "Ready"), Some(("True", "Built")));
}
