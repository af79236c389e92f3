use super::*;

#[test]
fn b12_the_bytes_that_are_signed_are_those_of_the_specification() {
    let signed = pre_authentication_encoding("http://example.com/HelloWorld", b"hello world");
    assert_eq!(signed, b"DSSEv1 29 http://example.com/HelloWorld 11 hello world");
    // Lengths are of bytes.
    let signed = pre_authentication_encoding("t", "ä".as_bytes());
    assert_eq!(signed, "DSSEv1 1 t 2 ä".as_bytes());
    assert_eq!(pre_authentication_encoding("", b""), b"DSSEv1 0  0 ");
}

#[test]
fn b12_an_envelope_is_read_as_it_was_written() {
    let (payload, signature) = (&b"{\"a\":\"\xff\"}?>"[..], &b"\xfb\xff\xfe"[..]);
    let written = envelope(payload, signature);
    let opened = open(&written).expect("an envelope");
    assert_eq!(opened, Opened { payload: payload.into(), signatures: vec![signature.into()] });
    let text = String::from_utf8(written).expect("text");
    // The other alphabet, and without padding.
    let other =
        text.replace('/', "_").replace('+', "-").replace("application_vnd.in-toto-json", IN_TOTO);
    assert_ne!(other, text);
    assert_eq!(open(other.as_bytes()), Some(opened.clone()));
    assert_eq!(open(text.replace('=', "").as_bytes()), Some(opened));
}

#[test]
fn b12_what_is_no_envelope_is_none() {
    let good = String::from_utf8(envelope(b"{}", b"s")).expect("text");
    assert!(open(good.as_bytes()).is_some());
    let many =
        json!({"payloadType": IN_TOTO, "payload": "", "signatures": vec![json!({"sig": ""}); 17]});
    for bad in [
        "",
        "{}",
        "[]",
        "null",
        "{\"payloadType\":1}",
        &good.replace(IN_TOTO, "text/plain"),
        &good.replace("\"sig\":\"", "\"sig\":\"!"),
        &good.replace("\"payload\":\"", "\"payload\":\"!"),
        &good.replace("\"signatures\":[", "\"signatures\":[7,"),
        &many.to_string(),
    ] {
        assert_eq!(open(bad.as_bytes()), None, "{bad}");
    }
}

#[test]
fn b12_an_envelope_is_known_by_its_payload_and_by_who_has_signed_it() {
    use crate::controllers::agent_build::signing::key::SigningKey;
    let made = || {
        let pem = SigningKey::generate().expect("a key");
        SigningKey::from_pem(pem.get().as_bytes()).expect("a key")
    };
    let (ours, theirs) = (made(), made());
    let by = |key: &SigningKey| {
        let signed = pre_authentication_encoding(IN_TOTO, b"{}");
        envelope(b"{}", &key.sign(&signed).expect("a signature"))
    };
    let key = ours.public();
    assert_eq!(
        Ok(&key),
        crate::controllers::agent_build::signing::key::PublicKey::from_pem(
            ours.public_pem().as_bytes()
        )
        .as_ref()
    );
    assert!(is_of(&by(&ours), b"{}", &key));
    assert!(!is_of(&by(&ours), b"{\"a\":1}", &key), "of something else");
    assert!(!is_of(&by(&theirs), b"{}", &key), "of somebody else");
    assert!(!is_of(&envelope(b"{}", b"s"), b"{}", &key));
    assert!(!is_of(b"", b"", &key));
}
