use super::*;

const PLACE: Named<'_> =
    Named { namespace: "team", name: "hook", field: FIELD, purpose: CREDENTIALS };

fn told(error: SourceError) -> (SourceReason, String, String) {
    let (reason, hint) = (error.reason(), error.hint().unwrap_or_default());
    (reason, error.to_string(), hint)
}

#[test]
fn g5_what_is_missing_is_told_with_the_commands() {
    let (reason, message, hint) = told(PLACE.missing(NEW_TOKEN, ""));
    assert_eq!(reason, SourceReason::CredentialsMissing);
    assert_eq!(message, "the Secret hook of spec.webhook does not exist");
    assert_eq!(hint, "kubectl -n team create secret generic hook --from-literal=token=...");
    let (reason, message, hint) = told(PLACE.forbidden(&OperatorAccount::new("ops")));
    assert_eq!(reason, SourceReason::CredentialsForbidden);
    assert_eq!(message, "the operator may not read the Secret hook of spec.webhook");
    assert_eq!(
        hint,
        "kubectl -n team create role convoke-git-hook --verb=get --resource=secrets --resource-name=hook; \
         kubectl -n team create rolebinding convoke-git-hook --role=convoke-git-hook --serviceaccount=ops:convoke"
    );
    for (value, problem) in [
        (None, "it has no token"),
        (Some(&b""[..]), "token is empty"),
        (Some(b"canary\n"), "token has a line break"),
    ] {
        let (reason, message, hint) = told(token(PLACE, value).expect_err("no token"));
        assert_eq!(reason, SourceReason::CredentialsInvalid);
        let expected = format!("the Secret hook of spec.webhook cannot be used: {problem}");
        assert_eq!(message, expected);
        assert!(!hint.contains("canary"));
    }
    assert!(token(PLACE, Some(b"t")).is_ok());
}

#[tokio::test(start_paused = true)]
async fn g5_a_secret_is_looked_at_again_when_a_delivery_gives_a_reason_and_not_too_often() {
    let now = Instant::now();
    let known = |state: Option<WebhookState>, doubted, suspended| {
        let (path, secret) = ("/hook/1".to_owned(), "hook".to_owned());
        let uid = "1".to_owned();
        let look = state.map(|state| Look { at: now, state });
        Known { uid, path, secret, suspended, look, since: now, doubted }.due()
    };
    let failed = SourceFailure::from(PLACE.missing(NEW_TOKEN, ""));
    let failed = Some(WebhookState::Unreadable(failed));
    assert_eq!(known(Some(WebhookState::Ready), false, false), None);
    assert_eq!(known(Some(WebhookState::Ready), true, false), Some(now + DOUBT_GAP));
    assert_eq!(known(failed.clone(), true, false), Some(now + DOUBT_GAP));
    assert_eq!(known(failed.clone(), false, false), Some(now + RETRY_AFTER));
    assert_eq!(known(None, false, false), Some(now + DOUBT_GAP));
    assert_eq!(known(failed, true, true), None, "nothing is woken anyway");
}
