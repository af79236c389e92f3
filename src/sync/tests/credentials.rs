use super::*;
use crate::sync::reasons::SourceReason;

use std::collections::BTreeMap;

const URL: &str = "https://git.example.com/team/a.git";

fn git() -> Bound<'static> {
    bound(Guard::Origins, "spec.secretRef", URL)
}

fn bound(guard: Guard, field: &'static str, url: &'static str) -> Bound<'static> {
    let secret = Named { namespace: "team", name: "git", field, purpose: CREDENTIALS };
    Bound { secret, url, values: "--from-literal=token=...", guard }
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

#[test]
fn b2_v55_a_secret_of_a_build_names_the_repository() {
    let secret = Some(SecretRef { name: "git".into() });
    let mut source = GitSource {
        url: URL.into(),
        reference: None,
        secret_ref: secret.clone(),
        proxy_secret_ref: secret,
        interval: "1m".into(),
        timeout: "60s".into(),
    };
    let access = Access::of_build(&source);
    assert!(access.has_secrets());
    let place = access.place("team", "git");
    place.allow(Some("https://git.example.com/team")).expect("allowed");
    let message =
        "the Secret git of spec.source.git.secretRef is not for https://git.example.com/team/a.git";
    for (annotation, hint) in [
        (
            None,
            "kubectl -n team annotate secret git convoke.dev/repositories=https://git.example.com/team/a.git",
        ),
        (
            Some("https://git.example.com/other"),
            "if builds may read that repository with it, add https://git.example.com/team/a.git to its annotation convoke.dev/repositories, after a comma",
        ),
    ] {
        let error = place.allow(annotation).expect_err("not allowed");
        let expected = (SourceReason::CredentialsNotAllowed, message.to_owned(), hint.to_owned());
        assert_eq!(told(error), expected);
    }
    // Nobody copies a command that allows more than it says, or that a shell would run.
    for odd in [
        "https://git.example.com/,x",
        "https://git.example.com/a;reboot",
        "https://git.example.com/$(x)",
    ] {
        let odd = bound(Guard::Repositories, "spec.source.git.secretRef", odd);
        for annotation in [None, Some("https://git.example.com")] {
            let (_, message, hint) = told(odd.allow(annotation).expect_err("not allowed"));
            assert_eq!(message, "the Secret git of spec.source.git.secretRef is not for that URL");
            assert!(!hint.contains("kubectl"), "{hint}");
        }
        let (_, _, hint) = told(odd.missing());
        assert!(hint.ends_with("annotate secret git convoke.dev/repositories=URL"), "{hint}");
    }
    (source.secret_ref, source.proxy_secret_ref) = (None, None);
    assert!(!Access::of_build(&source).has_secrets());
}
