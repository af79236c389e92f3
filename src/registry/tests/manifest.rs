use serde_json::json;

use super::*;

fn digest(digit: char) -> String {
    format!("sha256:{}", digit.to_string().repeat(64))
}

fn layer(kind: &str) -> Value {
    json!({"mediaType": kind, "digest": digest('b'), "size": 7})
}

fn image() -> Value {
    json!({
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "config": {"mediaType": CONFIGS[0], "digest": digest('a'), "size": 3},
        "layers": [layer(LAYERS[1])],
        "annotations": {"org.opencontainers.image.base.name": "x"},
    })
}

fn read(value: &Value) -> Result<Manifest, String> {
    manifest(value.to_string().as_bytes())
}

/// The error for an image that was changed so.
fn wrong(change: impl FnOnce(&mut Value)) -> String {
    let mut changed = image();
    change(&mut changed);
    read(&changed).expect_err("a changed image")
}

#[test]
fn b5_the_blobs_of_a_manifest_are_read() {
    let found = read(&image()).expect("an image");
    assert_eq!((found.config.size, found.layers.len(), found.layers[0].size), (3, 1, 7));
    assert_eq!(found.layers[0].digest.to_string(), digest('b'));
    for kind in LAYERS {
        let mut changed = image();
        changed["layers"] = json!([layer(kind), layer(kind)]);
        assert_eq!(read(&changed).map(|found| found.layers.len()), Ok(2), "{kind}");
    }
}

#[test]
fn b5_what_a_manifest_must_not_say_is_refused_by_name() {
    let urls = wrong(|image| image["layers"][0]["urls"] = json!(["https://elsewhere"]));
    assert!(urls.starts_with("layer 1 has `urls`"), "{urls}");
    let urls = wrong(|image| image["config"]["urls"] = json!([]));
    assert!(urls.starts_with("the configuration has `urls`"), "{urls}");
    let data = wrong(|image| image["layers"][0]["data"] = json!("e30="));
    assert!(data.starts_with("layer 1 has `data`"), "{data}");
    let subject = wrong(|image| image["subject"] = layer(LAYERS[0]));
    assert!(subject.contains("`subject`"), "{subject}");
    for kind in [
        "application/vnd.oci.image.layer.nondistributable.v1.tar+gzip",
        "application/vnd.docker.image.rootfs.foreign.diff.tar.gzip",
    ] {
        let foreign = wrong(|image| image["layers"][0]["mediaType"] = json!(kind));
        assert!(foreign.contains("layer 1 is a foreign layer"), "{foreign}");
    }
    let kind = wrong(|image| image["layers"][0]["mediaType"] = json!("text/plain\u{1b}[2J"));
    assert_eq!(kind, "layer 1 is of type \"text/plain [2J\", which is none of a layer");
    let kind = wrong(|image| image["config"]["mediaType"] = json!("application/x"));
    assert!(kind.starts_with("the configuration is of type"), "{kind}");
    let kind = wrong(|image| image["mediaType"] = json!("application/vnd.oci.image.index.v1+json"));
    assert!(kind.starts_with("it says that it is of type"), "{kind}");
    assert!(wrong(|image| image["schemaVersion"] = json!(1)).contains("schemaVersion"));
}

#[test]
fn b5_a_field_that_a_registry_could_read_otherwise_is_refused() {
    // Registries in Go take `Layers` for `layers`.
    for name in ["Layers", "LAYERS", "URLs", "other"] {
        let said = wrong(|image| image[name] = json!([]));
        assert!(said.contains(&format!("unknown field `{name}`")), "{said}");
        let said = wrong(|image| image["layers"][0][name] = json!([]));
        assert!(said.contains(&format!("unknown field `{name}`")), "{said}");
    }
    let twice = image().to_string().replacen('{', "{\"layers\":[],", 1);
    let said = manifest(twice.as_bytes()).expect_err("two fields of one name");
    assert!(said.contains("duplicate field `layers`"), "{said}");
}

#[test]
fn b5_digests_are_lower_case_sha256() {
    let good = digest('a');
    assert_eq!(good.parse::<Digest>().map(|found| found.to_string()), Ok(good.clone()));
    assert_eq!(
        Digest::of(b"").hex(),
        "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    );
    let upper = digest('A');
    let other = format!("sha512:{}", "a".repeat(128));
    let path = format!("sha256:../../{}", "a".repeat(58));
    for text in [
        "",
        "sha256:",
        &good[..70],
        &format!("{good}a"),
        &upper,
        &other,
        &path,
        &good[7..],
        &format!(" {good}"),
    ] {
        let said = wrong(|image| image["layers"][0]["digest"] = json!(text));
        assert!(
            said.starts_with("layer 1: the digest") && said.contains("64 lower-case"),
            "{said}"
        );
    }
}

#[test]
fn b5_budgets_are_named() {
    let large = wrong(|image| image["layers"][0]["size"] = json!(MAX_LAYER + 1));
    assert_eq!(large, "layer 1 is larger than 32 GiB");
    let many = wrong(|image| image["layers"] = vec![layer(LAYERS[0]); MAX_LAYERS + 1].into());
    assert_eq!(many, "it has 513 layers, and the most is 512");
    let large = wrong(|image| image["config"]["size"] = json!(MAX_CONFIG + 1));
    assert_eq!(large, "the configuration is larger than 8 MiB");
    for size in [json!(-1), json!(1.5), json!("7"), json!(null)] {
        wrong(|image| image["layers"][0]["size"] = size);
    }
    // Texts only: nothing in it is nested without an end.
    let said = wrong(|image| image["annotations"] = json!({"a": [[[]]]}));
    assert!(said.contains("invalid type"), "{said}");
    let deep = "[".repeat(100_000);
    let layer = format!("{{\"layers\":[{{\"platform\":{{\"os\":{deep}");
    assert!(manifest(layer.as_bytes()).expect_err("deep").contains("recursion limit"));
}

#[test]
fn b5_an_index_names_one_image() {
    let one =
        |kind: &str, size: u64| json!({"mediaType": kind, "digest": digest('c'), "size": size});
    let read = |manifests: Value| {
        index(
            json!({"schemaVersion": 2, "manifests": manifests, "annotations": {}})
                .to_string()
                .as_bytes(),
        )
    };
    assert_eq!(read(json!([one(MANIFEST, 9)])).map(|found| found.size), Ok(9));
    for (manifests, said) in [
        (json!([]), "it names 0 manifests, and must name one"),
        (json!([one(MANIFEST, 9), one(MANIFEST, 9)]), "it names 2 manifests, and must name one"),
        (json!([one(MANIFEST, MAX_MANIFEST + 1)]), "the manifest is larger than 4 MiB"),
    ] {
        assert_eq!(read(manifests), Err(said.to_owned()));
    }
    let nested =
        read(json!([one("application/vnd.oci.image.index.v1+json", 9)])).expect_err("nested");
    assert!(nested.contains("is of type"), "{nested}");
    index(br#"{"schemaVersion":1,"manifests":[]}"#).expect_err("another version");
    assert_eq!(layout_version(br#"{"imageLayoutVersion":"1.0.0"}"#), Ok(()));
    assert!(layout_version(br#"{"imageLayoutVersion":"2"}"#).expect_err("other").contains("\"2\""));
    layout_version(b"{}").expect_err("none");
}
