use std::os::unix::fs::{PermissionsExt, symlink};

use super::*;
use crate::registry::folder::spooled;

fn layer(seed: &str, size: u64) -> (&'static str, Descriptor) {
    ("any", Descriptor { digest: Digest::of(seed.as_bytes()), size })
}

/// An image whose only layer is its own configuration.
fn image(scratch: &Path) -> Layout {
    let config = spooled(br#"{"os":"linux"}"#, scratch).expect("a blob");
    let described = |media_type: &str| json!({"mediaType": media_type, "digest": config.digest.to_string(), "size": config.size});
    let manifest = json!({
        "schemaVersion": 2, "mediaType": MANIFEST,
        "config": described("application/vnd.oci.image.config.v1+json"),
        "layers": [described("application/vnd.oci.image.layer.v1.tar")],
    });
    let manifest = manifest.to_string().into_bytes();
    let digest = Digest::of(&manifest);
    Layout { manifest: manifest.into(), digest, layers: vec![config.clone()], config }
}

#[test]
fn b11_a_layout_that_is_written_is_one_that_is_read() {
    let dir = tempfile::tempdir().expect("a folder");
    let folder = dir.path().join("image");
    let image = image(dir.path());
    let new = NewLayout::create(&folder).expect("created");
    // What broke off is no layout.
    Layout::open(&folder).expect_err("no layout yet");
    new.finish(&image).expect("written");
    let read = Layout::open(&folder).expect("a layout");
    assert_eq!((&read.digest, &read.manifest), (&image.digest, &image.manifest));
    for blob in read.layers.iter().chain([&read.config]) {
        blob.read(|_| true).expect("its digest is right");
    }
    // Other users read it.
    let mode = |name: &str| {
        let found = std::fs::symlink_metadata(folder.join(name)).expect(name);
        found.permissions().mode() & 0o7777
    };
    let config = format!("blobs/sha256/{}", image.config.digest.hex());
    for (name, want) in [
        ("", 0o755),
        ("blobs", 0o755),
        ("blobs/sha256", 0o755),
        ("index.json", 0o644),
        ("oci-layout", 0o644),
        (config.as_str(), 0o644),
    ] {
        assert_eq!(mode(name), want, "{name}");
    }
}

#[test]
fn b11_a_layout_is_written_over_nothing() {
    let dir = tempfile::tempdir().expect("a folder");
    let at = |name: &str| dir.path().join(name);
    std::fs::create_dir(at("folder")).expect("a folder");
    std::fs::write(at("file"), "kept").expect("a file");
    symlink(at("target"), at("link")).expect("a link");
    for name in ["folder", "file", "link"] {
        let error = NewLayout::create(&at(name)).expect_err(name).to_string();
        assert!(error.contains("nothing is written over"), "{name}: {error}");
    }
    assert!(!at("target").exists(), "a link is not followed");
    assert_eq!(std::fs::read_to_string(at("file")).expect("the file"), "kept");
    let error = NewLayout::create(&at("none/image")).expect_err("no parent").to_string();
    assert!(error.contains("No such file"), "{error}");
    // Something in the place of a file.
    let new = NewLayout::create(&at("image")).expect("created");
    symlink(at("target"), at("image/index.json")).expect("a link");
    new.finish(&image(dir.path())).expect_err("index.json is there");
    assert!(!at("target").exists());
}

#[test]
fn b11_layers_that_are_too_much_are_refused_before_they_are_pulled() {
    let half = MAX_BYTES / 2;
    assert_eq!(check(&[layer("a", half), layer("b", half)]), Ok(()));
    // The same twice is there once.
    assert_eq!(check(&[layer("a", half), layer("b", half), layer("a", half)]), Ok(()));
    let error = check(&[layer("a", half), layer("b", half), layer("c", 1)]).expect_err("too much");
    assert!(error.contains("the most that are brought here are 17179869184"), "{error}");
    assert!(check(&[layer("a", u64::MAX), layer("b", u64::MAX)]).is_err(), "no overflow");
    let error = check(&[layer("a", 1), layer("a", 2)]).expect_err("two sizes");
    assert!(error.contains("twice, with two sizes"), "{error}");
}
