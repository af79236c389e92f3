//! Layouts that are not as they should be. The credentials beside them stay where they are.

use std::os::unix::fs::symlink;

use super::server::{Registry, Settings};
use super::*;

/// Pushes a layout with credentials in a folder, and expects that it is refused, in these words.
fn refused(layout: &Path, registry: &Registry, folder: &Path, said: &str) {
    let image = format!("{}/team/app", registry.host());
    let run = push(layout, &image, &["--tag", "a", "--insecure", "true", "--auth", text(folder)]);
    assert_eq!(run.code, 33, "{said}: {run:?}");
    assert!(run.err.contains(said), "{said}: {run:?}");
    assert_eq!(run.out, "");
}

fn pipe(path: &Path) {
    let made = Command::new("mkfifo").arg(path).status().expect("mkfifo");
    assert!(made.success());
}

/// What is refused before anything is sent.
#[test]
fn b5_a_hostile_layout_is_refused_before_anything_is_sent() {
    let Some(registry) = Registry::start(&Settings { password: true, ..Settings::default() })
    else {
        return;
    };
    let folder = password(&registry.host(), PASSWORD);
    let refused =
        |layout: &Layout, said: &str| refused(layout.dir.path(), &registry, folder.path(), said);
    let usual = || Layout::usual("x");
    let change = |change: &dyn Fn(&mut Value)| usual().changed(|manifest| change(manifest));

    let layout = usual();
    std::fs::remove_file(layout.path("oci-layout")).expect("removed");
    refused(&layout, "oci-layout cannot be read");

    let layout = usual();
    std::fs::write(layout.path("index.json"), "{}").expect("index.json");
    refused(&layout, "index.json: missing field");

    let layout = usual();
    let manifest = layout.blob(MANIFEST, layout.manifest.to_string().as_bytes());
    let index = json!({"schemaVersion": 2, "manifests": [manifest, manifest]});
    std::fs::write(layout.path("index.json"), index.to_string()).expect("index.json");
    refused(&layout, "index.json: it names 2 manifests, and must name one");

    let layout = usual();
    let index = std::fs::File::create(layout.path("index.json")).expect("index.json");
    index.set_len(20 << 30).expect("a sparse file");
    refused(&layout, "index.json is larger than 4 MiB");

    let layout = usual();
    let file = layout.file(&layout.digest());
    std::fs::write(&file, std::fs::read_to_string(&file).expect("it").replace("amd64", "x") + " ")
        .expect("it");
    refused(&layout, "its descriptor says");

    let layout = usual();
    let file = layout.file(&layout.digest());
    std::fs::write(&file, std::fs::read_to_string(&file).expect("it").replace("gzip", "zstd"))
        .expect("it");
    refused(&layout, "has another digest");

    let layout = change(&|manifest| manifest["layers"][0]["size"] = json!(999));
    refused(&layout, "has 1000 bytes, and its descriptor says 999");

    let layout =
        change(&|manifest| manifest["layers"][0]["urls"] = json!(["http://127.0.0.1:1/x"]));
    refused(&layout, "layer 1 has `urls`");

    let kind = "application/vnd.oci.image.layer.nondistributable.v1.tar+gzip";
    let layout = change(&|manifest| manifest["layers"][1]["mediaType"] = json!(kind));
    refused(&layout, "layer 2 is a foreign layer");

    let layout = change(&|manifest| manifest["Layers"] = json!([]));
    refused(&layout, "unknown field `Layers`");

    let layout = usual();
    let upper = layout.layer(0).to_uppercase().replace("SHA256", "sha256");
    std::fs::copy(layout.file(&layout.layer(0)), layout.file(&upper)).expect("a copy");
    let layout = layout.changed(|manifest| manifest["layers"][0]["digest"] = json!(upper));
    refused(&layout, "64 lower-case hex digits");

    let layout =
        change(&|manifest| manifest["layers"][0]["digest"] = json!("sha256:../../oci-layout"));
    refused(&layout, "layer 1: the digest \"sha256:../../oci-layout\" is not");

    let layout = usual();
    std::fs::remove_file(layout.file(&layout.layer(0))).expect("removed");
    refused(&layout, "cannot be read: there is no such thing");

    for (name, wanted) in [
        ("index.json", "index.json is no regular file"),
        ("oci-layout", "oci-layout is no regular file"),
    ] {
        let layout = usual();
        std::fs::remove_file(layout.path(name)).expect("removed");
        pipe(&layout.path(name));
        refused(&layout, wanted);
    }

    let layout = usual();
    std::fs::remove_file(layout.file(&layout.layer(0))).expect("removed");
    pipe(&layout.file(&layout.layer(0)));
    refused(&layout, "is no regular file");

    let layout = usual();
    std::fs::remove_file(layout.file(&layout.layer(0))).expect("removed");
    std::fs::create_dir(layout.file(&layout.layer(0))).expect("a folder");
    refused(&layout, "is no regular file");

    let many: Vec<_> = (0..513).map(|_| Vec::new()).collect();
    refused(&Layout::new(&many), "it has 513 layers, and the most is 512");

    assert_eq!(registry.requests(), Vec::<String>::new(), "nobody was asked");
    // And the same registry takes the same image, if nothing is wrong with it.
    let image = format!("{}/team/app", registry.host());
    let run = push(
        usual().dir.path(),
        &image,
        &["--tag", "a", "--insecure", "true", "--auth", text(folder.path())],
    );
    assert!(run.code == 0 && !registry.requests().is_empty(), "{run:?}");
}

/// A layout whose layer is the file of the credentials, with its true size and digest.
fn with_the_credentials(folder: &Path) -> Layout {
    let secret = std::fs::read(folder.join("config.json")).expect("config.json");
    Layout::new(&[secret])
}

#[test]
fn b5_a_symlinked_blob_is_refused() {
    let Some(registry) = Registry::start(&Settings::default()) else { return };
    let folder = password(&registry.host(), PASSWORD);
    let secret = basic(PASSWORD);
    let layout = with_the_credentials(folder.path());
    let blob = layout.file(&layout.layer(0));
    std::fs::remove_file(&blob).expect("removed");
    symlink(folder.path().join("config.json"), &blob).expect("a link");
    refused(layout.dir.path(), &registry, folder.path(), "a symbolic link, and none is followed");
    assert_eq!(registry.requests(), Vec::<String>::new());
    assert!(!registry.has_kept(&secret));
    // The search finds what a registry has taken: here the same as a regular file.
    let layout = with_the_credentials(folder.path());
    let image = format!("{}/team/app", registry.host());
    assert_eq!(push(layout.dir.path(), &image, &["--tag", "a", "--insecure", "true"]).code, 0);
    assert!(registry.has_kept(&secret));
}

#[test]
fn b5_no_symbolic_link_of_a_layout_is_followed() {
    let Some(registry) = Registry::start(&Settings::default()) else { return };
    let folder = password(&registry.host(), PASSWORD);
    for (name, said) in [
        ("blobs", "blobs is no folder"),
        ("blobs/sha256", "blobs/sha256 is no folder"),
        ("index.json", "index.json is a symbolic link"),
        ("oci-layout", "oci-layout is a symbolic link"),
    ] {
        let layout = with_the_credentials(folder.path());
        let elsewhere = tempfile::tempdir().expect("a folder");
        let to = elsewhere.path().join("it");
        std::fs::rename(layout.path(name), &to).expect("moved");
        symlink(&to, layout.path(name)).expect("a link");
        refused(layout.dir.path(), &registry, folder.path(), said);
    }
    let layout = with_the_credentials(folder.path());
    let elsewhere = tempfile::tempdir().expect("a folder");
    let link = elsewhere.path().join("layout");
    symlink(layout.dir.path(), &link).expect("a link");
    refused(&link, &registry, folder.path(), "the layout is no folder");
    assert_eq!(registry.requests(), Vec::<String>::new());
}

/// What shows only when a blob is read: it does not become a blob of the registry.
#[test]
fn b5_a_blob_with_a_wrong_digest_is_not_committed() {
    let Some(registry) = Registry::start(&Settings::default()) else { return };
    let folder = password(&registry.host(), PASSWORD);
    // The large one has begun to be sent when its digest is known.
    for number in [0, 1] {
        let layout = Layout::usual("x");
        let file = layout.file(&layout.layer(number));
        let mut bytes = std::fs::read(&file).expect("a blob");
        *bytes.last_mut().expect("a byte") ^= 1;
        std::fs::write(&file, &bytes).expect("a blob");
        refused(layout.dir.path(), &registry, folder.path(), "has another digest: sha256:");
        let asked = registry.requests();
        assert!(!asked.iter().any(|one| one.contains("manifests")), "{asked:#?}");
        assert!(!registry.has_kept(&layout.layer(number)[7..]));
    }
    // Also when the registry has a blob of that digest, which the layout does not have.
    let layout = Layout::usual("x");
    let image = format!("{}/team/app", registry.host());
    assert_eq!(push(layout.dir.path(), &image, &["--tag", "a", "--insecure", "true"]).code, 0);
    let file = layout.file(&layout.layer(0));
    std::fs::write(&file, noise("other", 1000)).expect("a blob");
    refused(layout.dir.path(), &registry, folder.path(), "has another digest: sha256:");
}
