//! Cards as agents write them, and as nobody should.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::*;

/// A card for clients of 1.0, as the agent image writes it.
fn new_card(host: &str) -> Value {
    json!({
        "name": "writer", "description": "Writes.", "version": "1.2.0",
        "supportedInterfaces": [
            {"url": format!("http://{host}:8000"), "protocolBinding": "JSONRPC", "protocolVersion": "1.0"},
            {"url": format!("http://{host}:8000"), "protocolBinding": "JSONRPC", "protocolVersion": "0.3"},
        ],
        "url": format!("http://{host}:8000"), "protocolVersion": "0.3.0",
        "capabilities": {"streaming": true, "extensions": [
            {"uri": "https://elsewhere.example/v1", "params": {"hash": "ffff"}},
            {"uri": CONFIGURATION, "params": {"hash": "0a1b2c3d", "commit": "c0ffee", "tools": {"s": 2}}},
        ]},
        "skills": [{"id": "write", "name": "Write", "description": "…", "tags": []}, {"id": "read"}],
    })
}

fn parsed(card: &Value) -> Result<CardStatus, Failure> {
    parse(card.to_string().as_bytes())
}

fn wrong(card: &Value) -> String {
    parsed(card).expect_err("a wrong card").to_string()
}

fn at(seconds: i64) -> Observed {
    Observed { generation: 3, now: Timestamp::from_second(seconds).expect("time") }
}

fn told(status: &AgentStatus) -> (&str, &str, &str) {
    let c = status.conditions.iter().find(|c| c.type_ == CARD_READ).expect("the condition");
    (c.status.as_str(), c.reason.as_str(), c.message.as_str())
}

#[test]
fn a9_a_card_of_1_0_is_read_by_its_preferred_interface() {
    let card = parsed(&new_card("agent-writer.team")).expect("a card");
    assert_eq!((card.name.as_str(), card.version.as_deref()), ("writer", Some("1.2.0")));
    assert_eq!(card.protocol_version.as_deref(), Some("1.0"));
    assert_eq!(card.url.as_deref(), Some("http://agent-writer.team:8000"));
    let skills: Vec<_> = card.skills.iter().map(|s| (s.id.as_str(), s.name.as_str())).collect();
    assert_eq!(skills, [("write", "Write"), ("read", "read")]);
    assert_eq!(card.config_hash.as_deref(), Some("0a1b2c3d"));
    assert_eq!(card.config_commit.as_deref(), Some("c0ffee"));
}

#[test]
fn a9_a_card_of_0_3_is_read() {
    let card = json!({"name": "old", "url": "https://old.example/a2a", "protocolVersion": "0.3.0",
        "version": "7", "preferredTransport": "JSONRPC", "skills": []});
    let card = parsed(&card).expect("a card");
    assert_eq!(card.url.as_deref(), Some("https://old.example/a2a"));
    assert_eq!(card.protocol_version.as_deref(), Some("0.3.0"));
    assert_eq!((card.config_hash, card.config_commit, card.skills.len()), (None, None, 0));
}

#[test]
fn a9_the_hash_depends_neither_on_the_order_of_keys_nor_on_the_host() {
    let hash = |card: &[u8]| parse(card).expect("a card").hash;
    let one =
        hash(br#"{"name":"a","url":"http://h","skills":[{"id":"x","name":"X"}],"version":"1"}"#);
    let two = hash(
        br#"{"version":"1","skills":[{"name":"X","id":"x"}],"url":"http://other","name":"a"}"#,
    );
    assert_eq!(one, two);
    assert_eq!(one.len(), 16);
    let (here, there) = (new_card("10.0.0.1"), new_card("agent-writer.team"));
    assert_eq!(parsed(&here).expect("a card").hash, parsed(&there).expect("a card").hash);
    let mut changed = new_card("10.0.0.1");
    changed["skills"][0]["description"] = json!("Writes more.");
    assert_ne!(parsed(&changed).expect("a card").hash, parsed(&here).expect("a card").hash);
}

#[test]
fn a9_a_card_with_wrong_types_says_which_field_is_wrong() {
    assert!(parse(b"<html>").expect_err("HTML").to_string().contains("not JSON"));
    assert!(wrong(&json!([])).contains("not a JSON object"));
    assert!(wrong(&json!({"name": 5, "url": "http://h"})).contains("name"));
    assert!(wrong(&json!({"name": "a"})).contains("neither"));
    assert!(wrong(&json!({"name": "a", "supportedInterfaces": "x"})).contains("not a list"));
    assert!(wrong(&json!({"name": "a", "supportedInterfaces": [1]})).contains("objects"));
    assert!(wrong(&json!({"name": "a", "url": "http://h", "skills": {}})).contains("skills"));
    assert!(
        wrong(&json!({"name": "a", "url": "http://h", "skills": [{"id": 1}]})).contains("skill")
    );
    // Nesting is bounded before anything is built from it.
    let deep = format!(
        "{{\"name\":\"a\",\"url\":\"http://h\",\"x\":{}1{}}}",
        "[".repeat(5000),
        "]".repeat(5000)
    );
    assert!(parse(deep.as_bytes()).is_err());
}

#[test]
fn a9_a_hostile_card_is_cut_and_made_printable() {
    let long = "é".repeat(5000);
    let skills: Vec<_> = (0..500).map(|n| json!({"id": format!("s{n}"), "name": long})).collect();
    let card = json!({"name": format!("a\u{1b}[31m\u{202e}{long}"), "version": "1\n2", "skills": skills,
        "url": "javascript:alert(1)", "protocolVersion": ["0.3"],
        "capabilities": {"extensions": [{"uri": CONFIGURATION, "params": {"hash": "zz; rm", "commit": "a".repeat(65)}}]}});
    let card = parsed(&card).expect("a card");
    assert!(
        card.name.len() <= 128 && !card.name.contains('\u{1b}') && !card.name.contains('\u{202e}')
    );
    assert_eq!(card.version.as_deref(), Some("1 2"));
    assert_eq!(card.skills.len(), 32);
    assert!(card.skills.iter().all(|skill| skill.name.len() <= 128));
    assert_eq!((card.url, card.protocol_version), (None, None));
    assert_eq!((card.config_hash, card.config_commit), (None, None));
}

#[test]
fn a9_a5_a_card_of_an_earlier_configuration_confirms_no_newer_one() {
    let card = parsed(&new_card("h")).expect("a card");
    let version =
        |hash: &str, commit: &str| ConfigVersion { hash: hash.into(), commit: Some(commit.into()) };
    let read = |wanted: &ConfigVersion| CardRead::of(card.clone(), Some(wanted));
    let mut status = AgentStatus::default();
    let old = read(&version("99887766", "c0ffee"));
    assert!(matches!(old, CardRead::Behind(..)));
    tell(&mut status, &old, at(0));
    let (state, reason, text) = told(&status);
    assert_eq!((state, reason), ("False", "OldConfiguration"));
    assert!(text.contains("0a1b2c3d, not 99887766"), "{text}");
    assert_eq!(status.card.as_ref(), Some(&card), "what is loaded is shown");

    assert_eq!(read(&version("0a1b2c3d", "c0ffee")), CardRead::Card(Box::new(card.clone())));
    // The same content of a later commit is confirmed, and asked for again.
    let same = read(&version("0a1b2c3d", "d1ce"));
    assert!(matches!(same, CardRead::Behind(..)));
    tell(&mut status, &same, at(60));
    assert_eq!(told(&status), ("True", "Read", ""));

    // Who does not say what is loaded is not blamed for it.
    let silent = CardStatus { config_hash: None, config_commit: None, ..card };
    let wanted = version("99887766", "d1ce");
    let told = CardRead::of(silent.clone(), Some(&wanted));
    assert_eq!(told, CardRead::Card(Box::new(silent)));
}

#[test]
fn a9_a_card_stays_while_its_pod_does_not_answer_and_goes_when_there_is_none() {
    let mut status = AgentStatus::default();
    let card = parsed(&new_card("h")).expect("a card");
    tell(&mut status, &CardRead::Card(Box::new(card.clone())), at(0));
    assert_eq!(told(&status), ("True", "Read", ""));

    let silent = CardRead::Failed(Failure::Unreachable("no answer within 10 s".into()));
    tell(&mut status, &silent, at(60));
    let text = "not confirmed since 1970-01-01T00:01:00Z: no answer within 10 s";
    assert_eq!(told(&status), ("False", "Unreachable", text));
    assert_eq!(status.card.as_ref(), Some(&card));
    let before = status.clone();
    tell(&mut status, &silent, at(120));
    assert_eq!(status, before, "the same failure is no news");

    tell(&mut status, &CardRead::NoCard, at(180));
    assert_eq!((told(&status).1, &status.card), ("NoCard", &None));
    tell(&mut status, &CardRead::Failed(Failure::TooLarge(MAX_CARD_BYTES)), at(240));
    assert_eq!(told(&status), ("False", "TooLarge", "the answer has more than 1048576 bytes"));
}
