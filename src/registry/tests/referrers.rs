use super::*;

fn descriptor(text: &str) -> Descriptor {
    Descriptor { digest: Digest::of(text.as_bytes()), size: text.len() as u64 }
}

fn spdx() -> MediaType {
    "application/spdx+json".parse().expect("a type")
}

fn parsed(bytes: &[u8]) -> Value {
    serde_json::from_slice(bytes).expect("JSON")
}

#[test]
fn b5_a_media_type_is_two_names() {
    assert_eq!(spdx().to_string(), "application/spdx+json");
    for text in [
        "",
        "/",
        "a/",
        "/a",
        "application",
        "a/b/c",
        "a/b;q=1",
        "a/ b",
        "a/b\n",
        "+a/b",
        "a/é",
        &format!("a/{}", "x".repeat(MAX_PART + 1)),
    ] {
        assert!(text.parse::<MediaType>().is_err(), "{text:?}");
    }
}

#[test]
fn b5_an_artifact_names_the_image_and_its_file() {
    let (file, subject) = (descriptor("{\"spdxVersion\": 1}"), descriptor("the manifest"));
    let bytes = artifact(&spdx(), "sbom.spdx.json", &file, &subject);
    assert_eq!(bytes, artifact(&spdx(), "sbom.spdx.json", &file, &subject), "the same again");
    let manifest = parsed(&bytes);
    assert_eq!(
        manifest["subject"],
        json!({"mediaType": MANIFEST, "digest": subject.digest.to_string(), "size": subject.size})
    );
    assert_eq!(manifest["artifactType"], "application/spdx+json");
    assert_eq!(manifest["layers"][0]["digest"], file.digest.to_string());
    assert_eq!(
        manifest["layers"][0]["annotations"]["org.opencontainers.image.title"],
        "sbom.spdx.json"
    );
    assert_eq!(manifest["config"]["digest"], Digest::of(b"{}").to_string());
}

#[test]
fn b5_a_list_of_artifacts_keeps_what_others_have_written() {
    let (one, two) = (descriptor("one"), descriptor("the second"));
    let first = listed(None, &spdx(), &one).expect("a list").expect("a new one");
    assert_eq!(
        parsed(&first),
        json!({"schemaVersion": 2, "mediaType": INDEX, "manifests": [
            {"mediaType": MANIFEST, "digest": one.digest.to_string(), "size": 3, "artifactType": "application/spdx+json"},
        ]})
    );
    assert_eq!(listed(Some(&first), &spdx(), &one), Ok(None), "it is there");
    // Somebody else has written more than is known here.
    let mut theirs = parsed(&first);
    theirs["annotations"] = json!({"by": "somebody"});
    theirs["manifests"][0]["annotations"] = json!({"a": "b"});
    let second = listed(Some(theirs.to_string().as_bytes()), &spdx(), &two).expect("a list");
    let second = parsed(&second.expect("a longer one"));
    assert_eq!(second["annotations"], theirs["annotations"]);
    assert_eq!(second["manifests"][0], theirs["manifests"][0]);
    assert_eq!(second["manifests"][1]["digest"], two.digest.to_string());
    assert_eq!(second["manifests"].as_array().map(Vec::len), Some(2));
    // As old registries give it.
    let plain = json!({"schemaVersion": 2, "manifests": []}).to_string();
    assert!(listed(Some(plain.as_bytes()), &spdx(), &one).is_ok_and(|list| list.is_some()));
}

#[test]
fn b5_what_is_no_list_of_artifacts_is_not_replaced() {
    let image = artifact(&spdx(), "x", &descriptor("x"), &descriptor("y"));
    let entry = json!({"schemaVersion": 2, "manifests": [{"digest": 7}]}).to_string();
    let long = "x".repeat(MAX_LIST);
    for (bytes, said) in [
        (image.as_slice(), "no image index"),
        (b"{}", "no image index"),
        (b"[]", "no image index"),
        (b"\"\"", "no image index"),
        (b"{\"schemaVersion\": 2, \"mediaType\": \"x\", \"manifests\": []}", "no image index"),
        (b"{\"schemaVersion\": 2, \"manifests\": [], \"layers\": []}", "no image index"),
        (b"{\"schemaVersion\": 2, \"manifests\": 7}", "no image index"),
        (b"not JSON", "no JSON"),
        (entry.as_bytes(), "is none of an index"),
        (long.as_bytes(), "no more is read"),
    ] {
        let error = listed(Some(bytes), &spdx(), &descriptor("one")).expect_err(said);
        assert!(error.contains(said) && error.len() < 500, "{error}");
    }
    // One more makes it too long.
    let annotation = "x".repeat(MAX_LIST - 100);
    let full = json!({"schemaVersion": 2, "manifests": [], "annotations": {"a": annotation}});
    let error = listed(Some(full.to_string().as_bytes()), &spdx(), &descriptor("one"));
    assert!(error.expect_err("full").contains("no more is"));
}

#[test]
fn b5_the_tag_of_the_list_follows_from_the_digest() {
    let digest = Digest::of(b"x");
    let tag = list_tag(&digest).map(|tag| tag.to_string());
    assert_eq!(tag, Some(digest.to_string().replace(':', "-")));
}
