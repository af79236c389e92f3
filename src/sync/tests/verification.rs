use super::*;
use crate::sync::reasons::SourceReason;

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
