use super::super::delivery::tests::{headers, signed};
use super::*;

const PATH: &str = "/hook/1";
const PUSH: &[u8] = br#"{"ref": "refs/heads/main"}"#;

fn hook(suspended: bool) -> Hook {
    let (key, provider, follows) = (Key::new("team", "main"), Provider::GitHub, Follows::of(None));
    Hook { key, provider, follows, suspended }
}

/// A webhook with a token, and the signals that it gave.
fn with_token() -> (Hooks, Arc<Mutex<Vec<Signal>>>) {
    let signals: Arc<Mutex<Vec<Signal>>> = Arc::default();
    let heard = signals.clone();
    let hooks = Hooks::new(Arc::new(move |_, signal| heard.lock().push(signal.clone())));
    hooks.put(PATH, hook(false));
    assert!(hooks.set_token(PATH, Some(Token::new(b"right").expect("a token"))));
    (hooks, signals)
}

fn delivery(token: &str, body: &[u8], more: &[(&str, &str)]) -> HeaderMap {
    let mut all = signed(Provider::GitHub, token, body);
    all.extend(headers(more));
    all
}

#[test]
fn g5_a_delivery_wakes_unless_it_is_a_ping_elsewhere_or_suspended() {
    let (hooks, signals) = with_token();
    let sent = |body: &[u8], more: &[(&str, &str)]| {
        hooks.receive(PATH, &delivery("right", body, more), body)
    };
    assert_eq!(sent(PUSH, &[]), Outcome::Woken);
    assert_eq!(sent(b"{}", &[]), Outcome::Woken, "something that is not known");
    assert_eq!(sent(b"{}", &[("X-GitHub-Event", "ping")]), Outcome::Ping);
    let other = br#"{"ref": "refs/heads/other"}"#;
    for outcome in [Outcome::OtherRef, Outcome::Repeated] {
        assert_eq!(sent(other, &[("X-GitHub-Delivery", "2")]), outcome);
    }
    let elsewhere = Signal::Elsewhere("refs/heads/other".into());
    assert_eq!(signals.lock().iter().filter(|signal| **signal == elsewhere).count(), 1);
    assert_eq!(sent(b"{", &[]), Outcome::Malformed);
    hooks.put(PATH, hook(true));
    assert_eq!(sent(PUSH, &[("X-GitHub-Delivery", "1")]), Outcome::Suspended);
    hooks.put(PATH, hook(false));
    assert_eq!(sent(PUSH, &[("X-GitHub-Delivery", "1")]), Outcome::Woken, "it was not taken");
    let woken = signals.lock().iter().filter(|signal| **signal == Signal::Wake).count();
    assert_eq!(woken, 3);
}

#[test]
fn v62_a_delivery_that_is_sent_again_wakes_nothing() {
    let (hooks, signals) = with_token();
    let sent = delivery("right", PUSH, &[("X-GitHub-Delivery", "1")]);
    assert_eq!(hooks.receive(PATH, &sent, PUSH), Outcome::Woken);
    for _ in 0..10_000 {
        assert_eq!(hooks.receive(PATH, &sent, PUSH), Outcome::Repeated);
    }
    let woken = signals.lock().iter().filter(|signal| **signal == Signal::Wake).count();
    assert_eq!(woken, 1);
}

#[test]
fn v57_v64_an_unknown_path_and_a_wrong_signature_have_one_answer_and_only_a_known_path_is_doubted()
{
    let (hooks, signals) = with_token();
    let (wrong, right) = (delivery("wrong", PUSH, &[]), delivery("right", PUSH, &[]));
    let wrong_here = hooks.receive(PATH, &wrong, PUSH);
    assert_eq!(*signals.lock(), [Signal::Doubt]);
    let elsewhere = hooks.receive("/hook/2", &right, PUSH);
    assert_eq!((wrong_here, elsewhere), (Outcome::Refused, Outcome::Refused));
    assert_eq!(wrong_here.answer(), elsewhere.answer());
    // What it is signed with matters before what is in it.
    assert_eq!(hooks.receive(PATH, &delivery("wrong", b"{", &[]), b"{"), Outcome::Refused);
    // Without a token nothing is genuine, whatever it is signed with.
    hooks.set_token(PATH, None);
    for key in ["right", "", "nobody"] {
        assert_eq!(hooks.receive(PATH, &delivery(key, PUSH, &[]), PUSH), Outcome::Refused);
    }
    assert_eq!(signals.lock().len(), 5);
}

#[test]
fn g5_a_webhook_keeps_its_token_when_its_spec_changes_and_none_when_it_is_gone() {
    let (hooks, _) = with_token();
    let sent = delivery("right", PUSH, &[]);
    assert!(!hooks.set_token(PATH, Some(Token::new(b"right").expect("a token"))), "the same");
    hooks.put(PATH, hook(false));
    assert_eq!(hooks.receive(PATH, &sent, PUSH), Outcome::Woken);
    hooks.remove(PATH);
    hooks.put(PATH, hook(false));
    assert_eq!(hooks.receive(PATH, &sent, PUSH), Outcome::Refused);
}

#[test]
fn g5_requests_are_counted_by_provider_and_outcome() {
    let (hooks, _) = with_token();
    let mut registry = Registry::with_prefix("convoke");
    hooks.register(&mut registry);
    hooks.count(PATH, Outcome::Woken);
    hooks.count("/hook/other", Outcome::Refused);
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &registry).expect("text");
    for line in [
        r#"convoke_webhook_requests_total{provider="GitHub",outcome="woken"} 1"#,
        r#"convoke_webhook_requests_total{provider="unknown",outcome="refused"} 1"#,
    ] {
        assert!(text.contains(line), "{text}");
    }
}
