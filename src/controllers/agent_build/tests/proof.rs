use serde_json::Value;

use super::*;

fn proof_key(byte: u8) -> ProofKey {
    ProofKey::of(&MacKey::new(&[byte; 32]))
}

fn key(digit: char) -> BuildKey {
    BuildKey::parse(&digit.to_string().repeat(64)).expect("a key")
}

fn image(text: &str) -> Image {
    text.parse().expect("an image")
}

fn digest(digit: char) -> Digest {
    format!("sha256:{}", digit.to_string().repeat(64)).parse().expect("a digest")
}

#[test]
fn b1_a_proof_is_of_one_image_of_one_build_and_of_one_operator() {
    let (operator, one, two) = (proof_key(7), key('1'), key('2'));
    let (here, there) =
        (image("registry.test:5000/team/reviewer"), image("registry.test/team/reviewer"));
    let about = About { namespace: "team", name: "reviewer", key: &one, image: &here };
    let proof = operator.proof(about, &digest('a'));
    assert_eq!(operator.digest(about, &proof), Ok(digest('a')));
    for other in [
        About { namespace: "team2", ..about },
        About { name: "writer", ..about },
        About { key: &two, ..about },
        About { image: &there, ..about },
        // The same characters in other places.
        About { namespace: "teamr", name: "eviewer", ..about },
    ] {
        assert_eq!(operator.digest(other, &proof), Err(NoProof::Forged), "{other:?}");
    }
    assert_eq!(proof_key(8).digest(about, &proof), Err(NoProof::Forged), "of another operator");
    // Another image under the MAC of this one.
    let text = String::from_utf8(proof).expect("text");
    let swapped = text.replace(&digest('a').to_string(), &digest('b').to_string());
    assert_ne!(swapped, text);
    assert_eq!(operator.digest(about, swapped.as_bytes()), Err(NoProof::Forged));
}

#[test]
fn b1_a_proof_is_an_artifact_that_names_only_the_empty_blob() {
    let (operator, one, image) = (proof_key(7), key('1'), image("registry.test/team/reviewer"));
    let about = About { namespace: "team", name: "reviewer", key: &one, image: &image };
    let proof = operator.proof(about, &digest('a'));
    assert!(proof.len() < MAX_BYTES / 2);
    let value: Value = serde_json::from_slice(&proof).expect("JSON");
    assert_eq!((&value["artifactType"], &value["mediaType"]), (&TYPE.into(), &MANIFEST.into()));
    // As the specification of OCI images has it.
    let empty = json!({
        "mediaType": "application/vnd.oci.empty.v1+json", "size": 2,
        "digest": "sha256:44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a",
    });
    assert_eq!((&value["config"], &value["layers"]), (&empty, &json!([empty])));
    // The same again, so that nothing is written twice.
    assert_eq!(operator.proof(about, &digest('a')), proof);
    assert_eq!(tag(&one).expect("a tag").as_str(), format!("cvk-{}.proof", "1".repeat(64)));
    assert_eq!(format!("{operator:?}"), "ProofKey(…)");
}

#[test]
fn b1_what_is_no_proof_proves_nothing() {
    let (operator, one, image) = (proof_key(7), key('1'), image("registry.test/team/reviewer"));
    let about = About { namespace: "team", name: "reviewer", key: &one, image: &image };
    let good = operator.proof(about, &digest('a'));
    let value: Value = serde_json::from_slice(&good).expect("JSON");
    let with = |change: fn(&mut Value)| {
        let mut changed = value.clone();
        change(&mut changed);
        operator.digest(about, changed.to_string().as_bytes())
    };
    for (change, found) in [
        ((|it| it["artifactType"] = "application/other".into()) as fn(&mut Value), NoProof::Other),
        (|it| it["artifactType"] = Value::Null, NoProof::Other),
        (|it| it["annotations"] = json!({}), NoProof::Other),
        (|it| it["annotations"][MAC] = "".into(), NoProof::Forged),
        (|it| it["annotations"][MAC] = "AAAA".into(), NoProof::Forged),
        (|it| it["annotations"][MAC] = "no base64!".into(), NoProof::Other),
        (|it| it["annotations"][MAC] = json!(["a"]), NoProof::Other),
        (|it| it["annotations"][DIGEST] = "sha256:short".into(), NoProof::Other),
        (|it| it["annotations"][DIGEST] = "../../other".into(), NoProof::Other),
        (|it| it["more"] = "x".repeat(MAX_BYTES).into(), NoProof::Other),
    ] {
        assert_eq!(with(change), Err(found));
    }
    for bytes in [&b""[..], b"{}", b"[]", b"null", &good[..good.len() - 1], &[0xff; 20]] {
        assert_eq!(operator.digest(about, bytes), Err(NoProof::Other));
    }
}

#[test]
fn b1_a_proof_that_another_program_has_computed_is_one() {
    let (operator, zero, image) = (proof_key(7), key('0'), image("r.example/team/a"));
    let about = About { namespace: "team", name: "a", key: &zero, image: &image };
    let seed = include_bytes!("../../../../fuzz/corpus/registry/seed-5");
    assert_eq!(operator.digest(about, &seed[1..]), Ok(digest('1')));
}

#[test]
fn b1_a_note_tells_of_another_rebuild_unless_it_is_the_one_that_is_known() {
    let note = rebuilt("monday");
    assert!(!is_of_another_rebuild(&note, Some("monday")));
    assert!(is_of_another_rebuild(&note, None) && is_of_another_rebuild(&note, Some("tuesday")));
    assert!(!String::from_utf8_lossy(&note).contains("monday"), "whoever may pull reads it");
    // Whatever else is there: an image is built rather than taken.
    for odd in
        [&b""[..], b"{}", b"[", &[b' '; 5000], br#"{"annotations":{"dev.convoke.rebuild":7}}"#]
    {
        assert!(is_of_another_rebuild(odd, None) && is_of_another_rebuild(odd, Some("monday")));
    }
    let tag = |namespace, name| rebuilt_tag(namespace, name).expect("a tag").to_string();
    assert_ne!(tag("team", "reviewer"), tag("teamr", "eviewer"));
    assert!(tag("team", "reviewer").starts_with("cvk-"), "no build may push it");
}
