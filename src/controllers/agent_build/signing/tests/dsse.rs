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
