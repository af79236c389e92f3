use jiff::Timestamp;

use super::*;
use crate::sync::commit::source_error::SourceError;
use crate::sync::reasons::{EngineReason, SourceReason, unready};
use crate::sync::status::build::status;
use crate::sync::status::report::Report;

fn report(path: Option<&str>, state: Option<WebhookState>) -> Report<'static> {
    let webhook = WebhookReport { path: path.map(str::to_owned), secret: "hook".into(), state };
    let verdict = unready(EngineReason::Progressing, "");
    Report { webhook: Some(webhook), ..Report::of(1, verdict, Timestamp::UNIX_EPOCH) }
}

#[test]
fn g5_a_status_tells_the_path_and_whether_deliveries_can_be_checked_while_there_is_a_webhook() {
    let failure = SourceError::Input {
        reason: SourceReason::CredentialsMissing,
        message: "the Secret hook of spec.webhook does not exist".into(),
        hint: Some("kubectl create".into()),
    };
    let mut last = None;
    for (state, expected) in [
        (None, None),
        (
            Some(WebhookState::Unreadable(failure.into())),
            Some((
                "False",
                "CredentialsMissing",
                "the Secret hook of spec.webhook does not exist; hint: kubectl create",
            )),
        ),
        (
            Some(WebhookState::Ready),
            Some((
                "True",
                "Listening",
                "deliveries at /hook/1 are checked with the token of the Secret hook",
            )),
        ),
        // What was found last stays until another poll has ended.
        (
            None,
            Some((
                "True",
                "Listening",
                "deliveries at /hook/1 are checked with the token of the Secret hook",
            )),
        ),
    ] {
        let new = status(last.as_ref(), report(Some("/hook/1"), state));
        assert_eq!(new.webhook_path.as_deref(), Some("/hook/1"));
        let shown = new.conditions.iter().find(|c| c.type_ == WEBHOOK_READY);
        let shown = shown.map(|c| (&*c.status, &*c.reason, &*c.message));
        assert_eq!(shown, expected);
        last = Some(new);
    }
    let off = status(last.as_ref(), report(Some("/hook/1"), Some(WebhookState::NotServed)));
    let told = off.conditions.iter().find(|c| c.type_ == WEBHOOK_READY).expect("a condition");
    assert!(told.reason == "NotServed" && told.message.contains("--webhook-addr="), "{told:?}");
    let without = status(Some(&off), report(None, None));
    assert_eq!(without.webhook_path, None);
    assert!(without.conditions.iter().all(|c| c.type_ != WEBHOOK_READY));
}
