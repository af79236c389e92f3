use std::fmt::Write;

use http::{HeaderName, HeaderValue};

use super::*;

const ALL: [Provider; 4] =
    [Provider::GitHub, Provider::GitLab, Provider::Gitea, Provider::GenericHMAC];

pub fn headers(pairs: &[(&str, &str)]) -> HeaderMap {
    let pair = |(name, value): &(&str, &str)| {
        let name = HeaderName::from_bytes(name.as_bytes()).expect("a name");
        (name, HeaderValue::from_str(value).expect("a value"))
    };
    pairs.iter().map(pair).collect()
}

pub fn hex(key: &[u8], body: &[u8]) -> String {
    let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), body);
    tag.as_ref().iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// The headers with which a provider proves that it has the token.
pub fn signed(provider: Provider, token: &str, body: &[u8]) -> HeaderMap {
    let hex = hex(token.as_bytes(), body);
    let prefixed = format!("sha256={hex}");
    match provider {
        Provider::GitHub => headers(&[("X-Hub-Signature-256", &prefixed)]),
        Provider::GitLab => headers(&[("X-Gitlab-Token", token)]),
        Provider::Gitea => headers(&[("X-Gitea-Signature", &hex)]),
        Provider::GenericHMAC => headers(&[("X-Signature", &prefixed)]),
    }
}

#[test]
fn g5_a_delivery_with_the_signature_of_its_provider_is_genuine() {
    let token = Token::new(b"It's a Secret to Everybody").expect("a token");
    let body = b"Hello, World!";
    // The example of GitHub's documentation.
    let of_github = "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17";
    let of_github = headers(&[("X-Hub-Signature-256", of_github)]);
    for provider in [Provider::GitHub, Provider::Gitea] {
        assert!(is_genuine(Some((provider, &token)), &of_github, body));
    }
    for provider in ALL {
        let given = signed(provider, "It's a Secret to Everybody", body);
        assert!(is_genuine(Some((provider, &token)), &given, body), "{provider:?}");
        assert!(!is_genuine(None, &given, body), "a path that is nobody's");
        // That of nobody signs nothing.
        assert!(!is_genuine(None, &signed(provider, "nobody", body), body));
    }
}

#[test]
fn v57_a_wrong_missing_doubled_or_sha1_signature_is_refused() {
    let token = Token::new(b"right").expect("a token");
    let body = b"{}";
    for provider in ALL {
        let is =
            |headers: &HeaderMap, body: &[u8]| is_genuine(Some((provider, &token)), headers, body);
        assert!(!is(&HeaderMap::new(), body), "none");
        for other in ["wrong", "", "right2", "Right"] {
            assert!(!is(&signed(provider, other, body), body), "{provider:?} {other:?}");
        }
        for elsewhere in ALL.into_iter().filter(|other| *other != provider) {
            let given = signed(elsewhere, "right", body);
            let shared = provider == Provider::Gitea && elsewhere == Provider::GitHub;
            assert_eq!(is(&given, body), shared, "{provider:?}, signed as {elsewhere:?}");
        }
        let mut twice = signed(provider, "right", body);
        let (name, value) = twice.iter().next().map(|(n, v)| (n.clone(), v.clone())).expect("one");
        twice.append(name, value);
        assert!(!is(&twice, body), "two signatures");
        if provider != Provider::GitLab {
            assert!(!is(&signed(provider, "right", body), b"{} "), "another body");
        }
    }
    let sha1 = "sha1=b84d5a4d3ac1ba5ff5ba1cd9ee3d8e0f9a0b1b0e";
    for name in ["X-Hub-Signature", "X-Hub-Signature-256", "X-Signature", "X-Gitea-Signature"] {
        for provider in ALL {
            assert!(!is_genuine(Some((provider, &token)), &headers(&[(name, sha1)]), body));
        }
    }
    for odd in ["sha256=", "sha256", "", "sha256=zz", &format!("sha256={}", "0".repeat(63))] {
        let given = headers(&[("X-Hub-Signature-256", odd)]);
        assert!(!is_genuine(Some((Provider::GitHub, &token)), &given, body), "{odd:?}");
    }
    let no = |value: &[u8]| Token::new(value).expect_err("no token").problem;
    assert_eq!(no(b""), "token is empty");
    assert_eq!(no(b"right\n"), "token has a line break");
}

#[test]
fn v58_values_of_equal_and_of_other_length_are_refused_and_no_token_is_printed() {
    let secret = "a-canary-of-20-bytes";
    let token = Token::new(secret.as_bytes()).expect("a token");
    let is = |sent: &str| {
        is_genuine(Some((Provider::GitLab, &token)), &headers(&[("X-Gitlab-Token", sent)]), b"")
    };
    assert!(is(secret));
    for position in 0..secret.len() {
        let mut other = secret.as_bytes().to_vec();
        other[position] ^= 1;
        assert!(!is(std::str::from_utf8(&other).expect("text")), "the same length");
        assert!(!is(&secret[..position]), "shorter");
    }
    assert!(!is(&format!("{secret}x")) && !is(&secret.repeat(100)), "longer");
    // The signature, too.
    let right = hex(secret.as_bytes(), b"body");
    for position in 0..right.len() {
        let mut other = right.clone().into_bytes();
        other[position] = if other[position] == b'0' { b'1' } else { b'0' };
        let other = String::from_utf8(other).expect("text");
        for other in [&*other, &right[..position]] {
            let given = headers(&[("X-Hub-Signature-256", &format!("sha256={other}"))]);
            assert!(!is_genuine(Some((Provider::GitHub, &token)), &given, b"body"));
        }
    }
    assert_eq!(format!("{token:?}"), "Token(not shown)");
}

#[test]
fn v60_a_body_that_is_no_json_object_is_malformed_and_never_a_panic() {
    let push = br#"{"ref": "refs/heads/main", "after": "0", "commits": [{"id": "1", "message": "\u00e4\"}{"}]}"#;
    let deep = |levels: usize| format!("{{\"a\":{}{}}}", "[".repeat(levels), "]".repeat(levels));
    for provider in ALL {
        let read = |body: &[u8]| read(provider, &HeaderMap::new(), body);
        assert_eq!(read(push), Ok(Told::Pushed("refs/heads/main".into())));
        assert_eq!(read(b" {}"), Ok(Told::Something));
        assert_eq!(read(br#"{"ref": null}"#), Ok(Told::Something));
        assert_eq!(read(deep(MOST_LEVELS - 1).as_bytes()), Ok(Told::Something));
        for length in 0..push.len() {
            assert_eq!(read(&push[..length]), Err(Malformed), "cut after {length} bytes");
        }
        for odd in [
            &b"[]"[..],
            b"null",
            b"7",
            b"\"{}\"",
            b"[\"refs/heads/main\"]",
            br#"{"ref": 7}"#,
            br#"{"ref": {"a": 1}}"#,
            br#"{"ref": "a", "ref": "b"}"#,
            b"{\"ref\": \"\xff\"}",
            b"{} {}",
            b"payload=%7B%7D",
            b"\x1f\x8b\x08\x00",
            b"{\"a\": NaN}",
            b"{\0}",
        ] {
            assert_eq!(read(odd), Err(Malformed), "{}", String::from_utf8_lossy(odd));
        }
        assert_eq!(read(deep(MOST_LEVELS).as_bytes()), Err(Malformed));
        assert_eq!(read(deep(500_000).as_bytes()), Err(Malformed));
        assert_eq!(read("[{".repeat(500_000).as_bytes()), Err(Malformed));
        assert_eq!(
            read(format!("{{\"a\": \"{}\"}}", "[".repeat(999)).as_bytes()),
            Ok(Told::Something)
        );
    }
}

#[test]
fn g5_pings_are_told_by_a_header_and_ids_by_those_of_the_provider() {
    let told = |provider, name| read(provider, &headers(&[(name, "ping")]), b"{}");
    assert_eq!(told(Provider::GitHub, "X-GitHub-Event"), Ok(Told::Ping));
    assert_eq!(told(Provider::Gitea, "X-Gitea-Event"), Ok(Told::Ping));
    assert_eq!(told(Provider::GenericHMAC, "X-GitHub-Event"), Ok(Told::Something));
    for (provider, name) in [
        (Provider::GitHub, "X-GitHub-Delivery"),
        (Provider::Gitea, "X-Gitea-Delivery"),
        (Provider::GitLab, "X-Gitlab-Event-UUID"),
        (Provider::GitLab, "Idempotency-Key"),
        (Provider::GenericHMAC, "Idempotency-Key"),
    ] {
        assert_eq!(id(provider, &headers(&[(name, "1")])), Some(&b"1"[..]), "{name}");
        assert_eq!(id(provider, &headers(&[(name, "")])), None, "{name}");
        assert_eq!(id(provider, &headers(&[(name, &"1".repeat(257))])), None, "{name}");
    }
    assert_eq!(id(Provider::GitLab, &headers(&[("X-Gitlab-Webhook-UUID", "1")])), None);
}

#[test]
fn g5_only_a_push_that_is_clearly_elsewhere_wakes_nothing() {
    let of = |field: &str, value: &str| -> Follows {
        let spec: GitRef =
            serde_json::from_value(serde_json::json!({ field: value })).expect("a ref");
        Follows::of(Some(&spec))
    };
    let (main, v1) = ("refs/heads/main", "refs/tags/v1");
    for (follows, elsewhere) in [
        (Follows::of(None), &["refs/heads/mainline", "refs/heads/Main", v1][..]),
        (of("branch", "main"), &["refs/heads/x/main", v1]),
        (of("tag", "v1"), &[main, "refs/tags/v10", "refs/heads/v1"]),
        (of("name", main), &["refs/heads/other", v1]),
        (of("semver", "^1"), &[main]),
        (of("name", "refs/pull/420/head"), &[]),
        (of("commit", &"0".repeat(40)), &[]),
    ] {
        for other in elsewhere {
            assert!(follows.is_elsewhere(other), "{follows:?} {other}");
        }
        for unclear in ["main", "", "refs/pull/420/head", "heads/main"] {
            assert!(!follows.is_elsewhere(unclear), "{follows:?} {unclear}");
        }
    }
    for (follows, pushed) in [
        (Follows::of(None), main),
        (of("branch", "a/b#1"), "refs/heads/a/b#1"),
        (of("tag", "v1"), v1),
        (of("semver", "^1"), v1),
        (of("name", "refs/pull/420/head"), "refs/heads/feature"),
        (of("commit", &"0".repeat(40)), main),
    ] {
        assert!(!follows.is_elsewhere(pushed), "{follows:?} {pushed}");
    }
}
