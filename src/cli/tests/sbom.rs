use super::*;

const MAIN: &str = "SPDXRef-Package-main-1";

fn image() -> (Image, Digest) {
    ("registry.example.com:5000/team/app".parse().expect("an image"), Digest::of(b"manifest"))
}

/// As osv-scanner 2.5.1 writes it.
fn document() -> Value {
    let relation = |from: &str, kind: &str, to: &str| json!({"spdxElementId": from, "relatedSpdxElement": to, "relationshipType": kind});
    json!({
        "spdxVersion": "SPDX-2.3",
        "SPDXID": "SPDXRef-DOCUMENT",
        "name": "SCALIBR-generated SPDX",
        "documentNamespace": "https://spdx.google/1",
        "packages": [
            {"name": "main", "SPDXID": MAIN, "versionInfo": "0", "filesAnalyzed": false},
            {"name": "jinja2", "SPDXID": "SPDXRef-Package-jinja2-1", "versionInfo": "3.1.6"},
        ],
        "files": [{"fileName": "METADATA", "SPDXID": "SPDXRef-File-METADATA-1", "checksums": [{"algorithm": "SHA256", "checksumValue": "e3b0"}]}],
        "relationships": [
            relation("SPDXRef-DOCUMENT", "DESCRIBES", MAIN),
            relation(MAIN, "CONTAINS", "SPDXRef-Package-jinja2-1"),
            relation("SPDXRef-File-METADATA-1", "DEPENDENCY_MANIFEST_OF", "SPDXRef-Package-jinja2-1"),
        ],
    })
}

fn made(document: &Value) -> Result<(Value, usize), String> {
    let (image, digest) = image();
    let (bytes, count) = of_image(document.to_string().as_bytes(), &image, &digest)?;
    Ok((serde_json::from_slice(&bytes).expect("JSON"), count))
}

#[test]
fn b3_a_list_of_packages_names_the_image_and_no_checksums_of_files() {
    let (_, digest) = image();
    let (list, count) = made(&document()).expect("a list");
    assert_eq!(count, 1);
    assert_eq!(list["name"], format!("registry.example.com:5000/team/app@{digest}"));
    assert_ne!(list["documentNamespace"], document()["documentNamespace"]);
    let main = &list["packages"][0];
    assert_eq!(
        (&main["name"], &main["versionInfo"], &main["SPDXID"]),
        (&json!("registry.example.com:5000/team/app"), &json!(digest.to_string()), &json!(MAIN))
    );
    let purl = main["externalRefs"][0]["referenceLocator"].as_str().expect("a purl");
    let hex = digest.hex();
    assert_eq!(
        purl,
        format!("pkg:oci/app@sha256%3A{hex}?repository_url=registry.example.com:5000/team/app")
    );
    assert_eq!(list["packages"][1], document()["packages"][1]);
    assert!(!list.to_string().contains("SPDXRef-File") && list["files"].is_null(), "{list}");
    assert_eq!(list["relationships"].as_array().map(Vec::len), Some(2));
}

#[test]
fn b3_what_is_no_list_of_packages_is_refused() {
    let changed = |change: &dyn Fn(&mut Value)| {
        let mut document = document();
        change(&mut document);
        document
    };
    for (document, said) in [
        (json!({}), "no SPDX 2.3"),
        (json!([]), "no SPDX 2.3"),
        (changed(&|all| all["spdxVersion"] = json!("SPDX-3.0")), "no SPDX 2.3"),
        (changed(&|all| all["relationships"] = json!([])), "describes nothing"),
        (changed(&|all| all["relationships"] = json!(7)), "describes nothing"),
        (changed(&|all| all["packages"] = json!({})), "no packages"),
        (changed(&|all| all["packages"] = json!([])), "describes nothing"),
        (changed(&|all| all["packages"] = json!([all["packages"][0]])), "can name"),
        (changed(&|all| all["packages"] = json!([all["packages"][1]])), "describes nothing"),
    ] {
        let error = made(&document).expect_err(said);
        assert!(error.contains(said), "{error}");
    }
    let (image, digest) = image();
    assert!(of_image(b"{", &image, &digest).expect_err("half").contains("no JSON"));
}
