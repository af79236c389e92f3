use serde_json::{Value, json};

use super::*;

const TYPE: &str = "https://slsa.dev/provenance/v1";

fn of<'a>(envelope: &'a [u8], run: &'a str) -> Attestation<'a> {
    Attestation { envelope, predicate_type: TYPE, run }
}

fn parsed(manifest: &[u8]) -> Value {
    serde_json::from_slice(manifest).expect("JSON")
}

fn digests(manifest: &[u8]) -> Vec<String> {
    envelopes(manifest, TYPE).iter().map(|one| one.digest.to_string()).collect()
}

/// As cosign writes one.
fn foreign(run: Option<&str>) -> Value {
    let digest = Digest::of(b"theirs").to_string();
    let mut annotations =
        json!({SIGNATURE: "", PREDICATE_TYPE: "https://example.com/other", "x": "y"});
    if let Some(run) = run {
        annotations[RUN] = run.into();
    }
    json!({"mediaType": ENVELOPE, "digest": digest, "size": 6, "annotations": annotations})
}

#[test]
fn b12_the_first_attestation_is_as_cosign_keeps_it() {
    let Written { manifest, config } = with(None, &of(b"one", "r")).expect("written");
    let (manifest_of, config_of) = (parsed(&manifest), parsed(&config));
    let digest = Digest::of(b"one").to_string();
    assert_eq!(
        manifest_of["layers"],
        json!([{
            "mediaType": ENVELOPE, "digest": digest, "size": 3,
            "annotations": {"dev.cosignproject.cosign/signature": "", "predicateType": TYPE, "dev.convoke.run": "r"},
        }])
    );
    assert_eq!(manifest_of["config"]["digest"], Digest::of(&config).to_string());
    assert_eq!(config_of["rootfs"]["diff_ids"], json!([digest]));
    assert_eq!(digests(&manifest), [digest]);
    let image: Digest = format!("sha256:{}", "a".repeat(64)).parse().expect("a digest");
    assert_eq!(
        tag(&image).map(|tag| tag.to_string()),
        Some(format!("sha256-{}.att", "a".repeat(64)))
    );
}

#[test]
fn b12_what_others_have_attested_stays_and_the_same_run_is_replaced() {
    let theirs = json!({"schemaVersion": 2, "mediaType": MANIFEST, "config": {"mediaType": "x", "digest": "d", "size": 1},
        "layers": [foreign(None)], "annotations": {"a": "b"}});
    let first = with(Some(theirs.to_string().as_bytes()), &of(b"one", "r")).expect("written");
    let second = with(Some(&first.manifest), &of(b"two", "s")).expect("written");
    let third = with(Some(&second.manifest), &of(b"one again", "r")).expect("written");
    let manifest = parsed(&third.manifest);
    let layers = manifest["layers"].as_array().expect("layers");
    let all: Vec<_> =
        layers.iter().map(|layer| layer["digest"].as_str().expect("a digest")).collect();
    let wanted = [&b"theirs"[..], b"two", b"one again"].map(|text| Digest::of(text).to_string());
    assert_eq!(all, wanted);
    assert_eq!((&layers[0], &manifest["annotations"]), (&foreign(None), &json!({"a": "b"})));
    assert_eq!(parsed(&third.config)["rootfs"]["diff_ids"], json!(wanted));
    assert_eq!(digests(&third.manifest), wanted[1..], "of this type only");
    // Whoever copies our mark loses what has it, and nothing of ours.
    let forged = json!({"layers": [foreign(Some("r"))]}).to_string();
    let mended = with(Some(forged.as_bytes()), &of(b"one", "r")).expect("written");
    assert_eq!(digests(&mended.manifest), [Digest::of(b"one").to_string()]);
}

#[test]
fn b12_what_is_no_manifest_is_replaced_and_what_is_too_much_is_told() {
    let good = with(None, &of(b"one", "r")).expect("written");
    for bad in [
        "",
        "{}",
        "[]",
        "null",
        "{\"manifests\":[]}",
        "{\"layers\":7}",
        "{\"layers\":[{\"digest\":7}]}",
    ] {
        assert_eq!(with(Some(bad.as_bytes()), &of(b"one", "r")), Ok(good.clone()), "{bad}");
        assert_eq!(envelopes(bad.as_bytes(), TYPE), []);
    }
    // A layer whose digest is none cannot stay.
    let odd = json!({"layers": [{"mediaType": ENVELOPE, "digest": "sha256:../x", "size": 1}]})
        .to_string();
    assert_eq!(with(Some(odd.as_bytes()), &of(b"one", "r")), Ok(good));
    assert_eq!(envelopes(odd.as_bytes(), TYPE), []);
    let many = json!({"layers": vec![foreign(None); MAX_LAYERS]}).to_string();
    let error = with(Some(many.as_bytes()), &of(b"one", "r")).expect_err("too many");
    assert_eq!(error, "it has 100 attestations, and the most is 100");
    let one_less = json!({"layers": vec![foreign(None); MAX_LAYERS - 1]}).to_string();
    with(Some(one_less.as_bytes()), &of(b"one", "r")).expect("there is room");
    let mut large = foreign(None);
    large["annotations"]["x"] = "x".repeat(1 << 20).into();
    let large = json!({"layers": [large]}).to_string();
    with(Some(large.as_bytes()), &of(b"one", "r")).expect_err("too large");
    // What is larger than an envelope may be is not read.
    let mut layer = foreign(None);
    layer["annotations"] = json!({});
    layer["size"] = (MAX_ENVELOPE + 1).into();
    assert_eq!(envelopes(json!({"layers": [layer]}).to_string().as_bytes(), TYPE), []);
}

#[test]
fn b12_the_attestation_of_a_run_is_found_by_its_mark() {
    let theirs = json!({"schemaVersion": 2, "mediaType": MANIFEST, "config": {"mediaType": "x", "digest": "d", "size": 1},
        "layers": [foreign(Some("r")), foreign(None)]});
    let found = |manifest: &[u8]| {
        envelope_of(manifest, TYPE, "r").map(|found| (found.digest.to_string(), found.size))
    };
    assert_eq!(found(theirs.to_string().as_bytes()), None, "of another type");
    let other = with(Some(theirs.to_string().as_bytes()), &of(b"one", "s")).expect("written");
    assert_eq!(found(&other.manifest), None, "of another run");
    let both = with(Some(&other.manifest), &of(b"two", "r")).expect("written");
    assert_eq!(found(&both.manifest), Some((Digest::of(b"two").to_string(), 3)));
    for nothing in ["", "{}", "null", "[1]"] {
        assert_eq!(found(nothing.as_bytes()), None, "{nothing}");
    }
}
