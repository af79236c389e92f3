use serde_json::json;

use super::*;
use crate::controllers::agent_build::signing::key::SigningKey;

fn keys() -> (SigningKey, PublicKey) {
    let pem = SigningKey::generate().expect("a key");
    let key = SigningKey::from_pem(pem.get().as_bytes()).expect("a key");
    let public = PublicKey::from_pem(key.public_pem().as_bytes()).expect("a key");
    (key, public)
}

fn signed(key: &SigningKey, statement: &Value) -> Vec<u8> {
    let payload = statement.to_string();
    let message = dsse::pre_authentication_encoding(dsse::IN_TOTO, payload.as_bytes());
    dsse::envelope(payload.as_bytes(), &key.sign(&message).expect("a signature"))
}

#[test]
fn b12_only_what_the_key_has_signed_about_the_digest_counts() {
    let ((key, public), (other, _)) = (keys(), keys());
    let digest = Digest::of(b"image");
    let good = json!({"_type": STATEMENT, "predicateType": PREDICATE,
        "subject": [{"name": "r/i", "digest": {"sha256": digest.hex()}}], "predicate": {}});
    assert_eq!(verified(&signed(&key, &good), &public, &digest), Some(good.clone()));
    assert_eq!(verified(&signed(&other, &good), &public, &digest), None, "another key");
    assert_eq!(verified(&signed(&key, &good), &public, &Digest::of(b"other")), None);
    for (at, value) in [
        ("_type", json!("other")),
        ("predicateType", json!("other")),
        ("subject", json!([])),
        ("subject", json!(7)),
    ] {
        let mut bad = good.clone();
        bad[at] = value;
        assert_eq!(verified(&signed(&key, &bad), &public, &digest), None, "{bad}");
    }
    // Another payload under the same signature.
    let envelope = String::from_utf8(signed(&key, &good)).expect("text");
    let mut swapped: Value = serde_json::from_str(&envelope).expect("JSON");
    let opened: Value = serde_json::from_slice(&dsse::envelope(
        good.to_string().replace("r/i", "r/j").as_bytes(),
        b"",
    ))
    .expect("JSON");
    swapped["payload"] = opened["payload"].clone();
    assert_eq!(verified(swapped.to_string().as_bytes(), &public, &digest), None);
    assert_eq!(verified(b"{}", &public, &digest), None);
}

#[test]
fn b12_what_a_statement_says_is_shown_in_printable_lines() {
    let statement = json!({"predicate": {
        "buildDefinition": {
            "externalParameters": {"repository": "https://git.example.com/team.git", "ref": "refs/heads/main", "subfolder": "a\u{1b}[2Jb\nrun x"},
            "resolvedDependencies": [{"digest": {"gitCommit": "c0ffee"}}, 7],
        },
        "runDetails": {"builder": {"id": "https://convoke.dev/operator", "version": {"convoke": "1"}}},
    }});
    let told = facts(&statement);
    assert!(told.starts_with("  repository  https://git.example.com/team.git\n  ref         refs/heads/main\n  commit      c0ffee\n"));
    assert!(told.ends_with("  builder     https://convoke.dev/operator 1\n"), "{told}");
    assert_eq!(told.lines().count(), 5, "{told}");
    assert!(!told.contains('\u{1b}'));
    assert_eq!(facts(&json!(7)), "");
}
