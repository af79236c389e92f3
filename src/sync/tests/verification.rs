use super::*;
use crate::sync::reasons::SourceReason;
use crate::sync::secrets::input;

#[test]
fn g4_what_is_missing_is_told_with_the_commands() {
    let secret = named("team", "keys");
    let error = secret.forbidden(&OperatorAccount::new("ops"));
    assert_eq!(error.reason(), SourceReason::VerificationKeysForbidden);
    assert_eq!(error.to_string(), "the operator may not read the Secret keys of spec.verify");
    assert_eq!(
        error.hint().as_deref(),
        Some(
            "kubectl -n team create role convoke-verify-keys --verb=get --resource=secrets --resource-name=keys; \
             kubectl -n team create rolebinding convoke-verify-keys --role=convoke-verify-keys --serviceaccount=ops:convoke"
        )
    );
    let error = missing(secret);
    assert_eq!(error.reason(), SourceReason::VerificationKeysMissing);
    assert!(error.hint().is_some_and(|hint| hint.starts_with("kubectl -n team create secret")));
    let data = BTreeMap::from([("team.asc".to_owned(), b"canary".to_vec())]);
    let error = usable(secret, &data).expect_err("no key");
    assert_eq!(error.reason(), SourceReason::VerificationKeysInvalid);
    assert!(!error.is_terminal(), "it heals by itself");
    let told = error.to_string();
    assert!(
        told.starts_with("the Secret keys of spec.verify cannot be used: team.asc: "),
        "{told}"
    );
    assert!(!told.contains("canary"), "{told}");
}

#[test]
fn g4_keys_are_kept_only_while_the_api_server_does_not_answer() {
    let data = |value: &str| BTreeMap::from([("k.sshpub".to_owned(), value.as_bytes().to_vec())]);
    let key = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIIHl5MfSLh0DZSGHVnjCf0t6WMPDCDpGpsaWz6mE0YVb";
    let secret = named("team", "keys");
    let keys = || usable(secret, &data(key));
    let unreadable = || Err(input(SourceReason::VerificationKeysUnreadable, "x".into(), None));
    let mut known = KnownKeys::default();
    assert!(known.take_in("keys", unreadable()).is_err() && known.keys().is_none());
    for (gone, name) in [
        (Err(missing(secret)), "keys"),
        (Err(secret.forbidden(&OperatorAccount::new("ops"))), "keys"),
        (usable(secret, &data("")), "keys"),
        (unreadable(), "others"),
    ] {
        known.take_in("keys", keys()).unwrap();
        let before = known.keys().cloned().unwrap();
        known.take_in("keys", keys()).unwrap();
        assert!(Arc::ptr_eq(&before, known.keys().unwrap()), "the same keys stay the same ones");
        assert!(known.take_in("keys", unreadable()).is_err());
        assert_eq!(known.keys(), Some(&before));
        assert!(!known.fresh.is_of(&"keys".to_owned()), "the next poll reads them again");
        assert!(known.take_in(name, gone).is_err());
        assert_eq!(known.keys(), None);
    }
}
