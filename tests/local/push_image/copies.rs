//! `convoke copy-image`, the real binary: B3.

use std::os::unix::fs::symlink;

use super::scans::convoke;
use super::*;

fn copy(layout: &Path, into: &Path) -> Run {
    convoke(&["copy-image", "--layout", text(layout), "--into", text(into)])
}

/// All files below a folder, by their paths.
fn below(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() { folders.push(path) } else { files.push(path) }
        }
    }
    files.sort();
    files
}

#[test]
fn b3_a_copy_is_the_image_and_nothing_else() {
    let layout = Layout::usual("copied");
    std::fs::write(layout.path("sbom.spdx.json"), "{}").expect("a file");
    layout.blob(LAYER, b"of another image");
    let folder = tempfile::tempdir().expect("a folder");
    let into = folder.path().join("image");
    let run = copy(layout.dir.path(), &into);
    assert_eq!(run.code, 0, "{run:?}");
    assert_eq!(run.out, format!("copied the image {}, 2 layers\n", layout.digest()));
    // oci-layout, index.json, manifest, configuration, two layers.
    let files = below(&into);
    assert_eq!(files.len(), 6, "{files:?}");
    for layer in [0, 1] {
        let name = layout.layer(layer);
        let bytes = std::fs::read(into.join("blobs/sha256").join(&name["sha256:".len()..]));
        assert_eq!(digest(&bytes.expect("a layer")), name);
    }
    // buildah finds it by this name.
    let index = std::fs::read(into.join("index.json")).expect("index.json");
    let index: Value = serde_json::from_slice(&index).expect("JSON");
    let (entry, name) = (&index["manifests"][0], "org.opencontainers.image.ref.name");
    assert_eq!(
        (&entry["digest"], &entry["annotations"][name]),
        (&json!(layout.digest()), &json!("image"))
    );
    // What is there is not written over.
    let again = copy(layout.dir.path(), &into);
    assert_eq!(again.code, 1, "{again:?}");
    assert_eq!(below(&into), files);
}

#[test]
fn b3_a_hostile_layout_is_not_copied() {
    let folder = tempfile::tempdir().expect("a folder");
    let secret = folder.path().join("secret");
    std::fs::write(&secret, noise("secret", 1000)).expect("a file");
    let spoil: [(&str, &dyn Fn(&Layout)); 5] = [
        ("a link in place of a layer", &|layout| {
            let file = layout.file(&layout.layer(0));
            std::fs::remove_file(&file).expect("removed");
            symlink(&secret, file).expect("a link");
        }),
        ("another content of the same size", &|layout| {
            std::fs::write(layout.file(&layout.layer(0)), noise("other", 1000)).expect("written");
        }),
        ("a layer that grew", &|layout| {
            std::fs::write(layout.file(&layout.layer(0)), noise("copied", 1001)).expect("written");
        }),
        ("a link in place of the blobs", &|layout| {
            let (blobs, elsewhere) = (layout.path("blobs"), layout.path("elsewhere"));
            std::fs::rename(&blobs, &elsewhere).expect("moved");
            symlink(elsewhere, blobs).expect("a link");
        }),
        ("no index", &|layout| {
            std::fs::remove_file(layout.path("index.json")).expect("removed");
        }),
    ];
    for (number, (what, spoil)) in spoil.iter().enumerate() {
        let layout = Layout::usual("copied");
        spoil(&layout);
        let into = folder.path().join(number.to_string());
        let run = copy(layout.dir.path(), &into);
        assert_eq!(run.code, 33, "{what}: {run:?}");
        // What has no index is no layout.
        assert!(!into.join("index.json").exists(), "{what}");
    }
    // A file with a hole of 16 GiB takes no disk until it is copied.
    let layout = Layout::usual("large").changed(|manifest| {
        manifest["layers"][0]["size"] = json!(17_u64 << 30);
    });
    let file =
        std::fs::File::options().write(true).open(layout.file(&layout.layer(0))).expect("it");
    file.set_len(17 << 30).expect("a hole");
    let run = copy(layout.dir.path(), &folder.path().join("large"));
    assert_eq!(run.code, 33, "{run:?}");
    assert!(run.err.contains("the image is larger than 16384 MiB"), "{run:?}");
    let link = folder.path().join("link");
    symlink(folder.path().join("target"), &link).expect("a link");
    assert_eq!(copy(Layout::usual("copied").dir.path(), &link).code, 1);
    assert!(!folder.path().join("target").exists());
}
