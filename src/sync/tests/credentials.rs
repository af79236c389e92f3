use super::*;
use crate::sync::reasons::SourceReason;

use std::collections::BTreeMap;

const URL: &str = "https://git.example.com/team/a.git";

fn git() -> Bound<'static> {
    place("team", "git", URL)
}

/// The reason, the message and the hint of an error.
fn told(error: SourceError) -> (SourceReason, String, String) {
    let (reason, hint) = (error.reason(), error.hint().unwrap_or_default());
    assert!(!error.is_terminal(), "it heals by itself");
    (reason, error.to_string(), hint)
}

fn data(token: &str) -> BTreeMap<String, Vec<u8>> {
    BTreeMap::from([("token".to_owned(), token.as_bytes().to_vec())])
}

#[tokio::test(flavor = "multi_thread")]
async fn g2_v12_a_secret_is_used_only_where_its_annotation_says_so() {
    let ours = Some("https://git.example.com");
    git().allow(ours).expect("allowed");
    let message = "the Secret git of spec.secretRef is not for https://git.example.com";
    for (annotation, hint) in [
        (
            None,
            "kubectl -n team annotate secret git convoke.dev/git-origins=https://git.example.com",
        ),
        (
            Some("https://other.example"),
            "if the server may get it, add https://git.example.com to its annotation convoke.dev/git-origins, after a comma",
        ),
    ] {
        let error = git().allow(annotation).expect_err("not allowed");
        let expected = (SourceReason::CredentialsNotAllowed, message.to_owned(), hint.to_owned());
        assert_eq!(told(error), expected);
    }
    let error = of(git(), &data("canary\n")).expect_err("no header");
    let (reason, message, hint) = told(error);
    assert_eq!(reason, SourceReason::CredentialsInvalid);
    assert_eq!(message, "the Secret git of spec.secretRef cannot be used: token has a line break");
    assert!(hint.contains("printf"), "{hint}");
}

#[test]
fn g2_what_is_missing_is_told_with_the_commands() {
    let (reason, message, hint) = told(git().missing());
    assert_eq!(reason, SourceReason::CredentialsMissing);
    assert_eq!(message, "the Secret git of spec.secretRef does not exist");
    assert!(hint.starts_with("kubectl -n team create secret generic git --from-literal=token=..."));
    let (reason, message, hint) = told(git().secret.forbidden(&OperatorAccount::new("ops")));
    assert_eq!(reason, SourceReason::CredentialsForbidden);
    assert_eq!(message, "the operator may not read the Secret git of spec.secretRef");
    assert_eq!(
        hint,
        "kubectl -n team create role convoke-git-git --verb=get --resource=secrets --resource-name=git; \
         kubectl -n team create rolebinding convoke-git-git --role=convoke-git-git --serviceaccount=ops:convoke"
    );
}
