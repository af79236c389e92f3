//! `convoke push-layers` and `convoke fetch-layers`: B13.

use std::io::Write;
use std::os::unix::fs::symlink;

use super::server::{Registry, Settings};
use super::stand_in::StandIn;
use super::*;

const TAG: &str = "cvk-cache-0123";
const ABOUT: &str = "inputs\nsha256:1 base";

/// An image with a base and what two commands made, and what a build has left beside it.
struct Build {
    image: Layout,
    dir: TempDir,
}

/// The content of a layer.
fn content(layer: &str) -> Vec<u8> {
    noise(layer, if layer == "run" { LARGE } else { 1000 })
}

/// The same as it is in a registry.
fn packed(layer: &str) -> Vec<u8> {
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(&content(layer)).expect("packed");
    gzip.finish().expect("packed")
}

fn config(layers: &[&str], env: &str) -> Vec<u8> {
    let ids: Vec<_> = layers.iter().map(|layer| digest(&content(layer))).collect();
    let config = json!({"os": "linux", "config": {"Env": [env]}, "rootfs": {"type": "layers", "diff_ids": ids}});
    config.to_string().into_bytes()
}

/// The manifest of an image as buildah has it.
fn plain(config: &[u8], layers: &[&str]) -> Value {
    let described = |kind: &str, bytes: &[u8]| json!({"mediaType": format!("application/vnd.oci.image.{kind}"), "digest": digest(bytes), "size": bytes.len()});
    let layers: Vec<_> =
        layers.iter().map(|layer| described("layer.v1.tar", &content(layer))).collect();
    json!({"schemaVersion": 2, "config": described("config.v1+json", config), "layers": layers, "annotations": {"a": "b"}})
}

/// A layout whose image has these layers.
fn layout(layers: &[&str]) -> Layout {
    let image = Layout::new(&layers.iter().map(|layer| packed(layer)).collect::<Vec<_>>());
    let own = config(layers, "LAST=1");
    let own = image.blob("application/vnd.oci.image.config.v1+json", &own);
    image.changed(|manifest| manifest["config"] = own)
}

impl Build {
    /// What is left of images with these layers and this variable.
    fn new(images: &[(&[&str], &str)]) -> Self {
        let build = Self {
            image: layout(&["base", "run", "copy"]),
            dir: tempfile::tempdir().expect("a folder"),
        };
        for folder in ["configs", "manifests"] {
            std::fs::create_dir_all(build.path(folder)).expect("a folder");
        }
        std::fs::write(build.path("about"), ABOUT).expect("a file");
        for (number, (layers, env)) in images.iter().enumerate() {
            let config = config(layers, env);
            let manifest = plain(&config, layers).to_string();
            std::fs::write(build.path(&format!("configs/{number}")), config).expect("a file");
            std::fs::write(build.path(&format!("manifests/{number}")), manifest).expect("a file");
        }
        build
    }

    fn usual() -> Self {
        Self::new(&[(&["base"], "FIRST=1"), (&["base", "run"], "FIRST=1")])
    }

    fn path(&self, below: &str) -> PathBuf {
        self.dir.path().join(below)
    }

    /// Keeps what it has left. Gives what was said, and the result.
    fn push(&self, host: &str, more: &[&str]) -> (Run, String) {
        let file = self.path("digest");
        let (layers, layout) = (text(self.dir.path()), text(self.image.dir.path()));
        let image = format!("{host}/team/app");
        let all = [
            &["push-layers", "--layers", layers, "--layout", layout, "--image", &image][..],
            &["--tag", TAG, "--insecure=true", "--digest-file", text(&file)],
            more,
        ];
        let run = convoke(&all.concat());
        (run, std::fs::read_to_string(&file).unwrap_or_default())
    }
}

fn fetch(host: &str, digest: &str, into: &Path, more: &[&str]) -> Run {
    let image = format!("{host}/team/app");
    let all = ["fetch-layers", "--image", &image, "--insecure=true", "--layers", text(into)];
    convoke(&[&all[..], &["--digest", digest], more].concat())
}

fn convoke(args: &[&str]) -> Run {
    let output = Command::new("timeout")
        .args(["-k", "1", HANGS, env!("CARGO_BIN_EXE_convoke")])
        .args(args)
        .output()
        .expect("convoke");
    let run = Run {
        code: output.status.code().expect("an exit code, not a signal"),
        out: String::from_utf8(output.stdout).expect("UTF-8"),
        err: String::from_utf8(output.stderr).expect("UTF-8"),
    };
    assert!(!run.said().contains(PASSWORD), "{run:?}");
    run
}

fn json_in(path: &Path) -> Value {
    serde_json::from_slice(&std::fs::read(path).expect("a file")).expect("JSON")
}

#[test]
fn b13_what_is_fetched_is_what_was_kept() {
    let Some(registry) = Registry::start(&Settings { password: true, ..Settings::default() })
    else {
        return;
    };
    let host = registry.host();
    let folder = password(&host, PASSWORD);
    let auth = ["--auth", text(folder.path())];
    let build = Build::usual();
    let (run, kept) = build.push(&host, &auth);
    assert_eq!(run.code, 0, "{run:?}\n{}", registry.log());
    assert_eq!(kept.len(), 71, "{run:?}");
    assert!(run.out.contains(&format!("kept {host}/team/app:{TAG}, {kept}, 2 images")), "{run:?}");

    let into = build.path("before");
    let run = fetch(&host, &kept, &into, &auth);
    assert_eq!((run.code, run.err.as_str()), (0, ""), "{run:?}");
    assert_eq!(std::fs::read_to_string(into.join("about")).expect("a file"), ABOUT);
    let index = json_in(&into.join("index.json"));
    let blob = |digest: &Value| {
        let digest = digest.as_str().expect("a digest").trim_start_matches("sha256:").to_owned();
        std::fs::read(into.join("blobs/sha256").join(digest)).expect("a blob")
    };
    let images = index["manifests"].as_array().expect("a list");
    assert_eq!(images.len(), 2);
    for (number, (image, layers)) in
        images.iter().zip([&["base"][..], &["base", "run"]]).enumerate()
    {
        let name = &image["annotations"]["org.opencontainers.image.ref.name"];
        assert_eq!(*name, number.to_string());
        // Each has its own configuration, and is what it was.
        let left = |folder: &str| {
            std::fs::read(build.path(&format!("{folder}/{number}"))).expect("a file")
        };
        assert_eq!(blob(&image["digest"]), left("manifests"));
        let manifest: Value = serde_json::from_slice(&left("manifests")).expect("JSON");
        assert_eq!(blob(&manifest["config"]["digest"]), left("configs"));
        let found = manifest["layers"].as_array().expect("a list");
        let found: Vec<_> = found.iter().map(|layer| blob(&layer["digest"])).collect();
        assert_eq!(found, layers.iter().map(|layer| content(layer)).collect::<Vec<_>>());
    }
    // The same again has the same digest, and takes the place of what is there.
    assert_eq!(build.push(&host, &auth).1, kept);
    let other = Build::new(&[(&["base"], "OTHER=1")]);
    let (_, newer) = other.push(&host, &auth);
    assert_ne!(newer, kept);
    let at_tag = registry.requests();
    let puts =
        at_tag.iter().filter(|one| one.starts_with(&format!("PUT /v2/team/app/manifests/{TAG}")));
    assert_eq!(puts.count(), 3);
}

#[test]
fn b13_layers_of_other_stages_are_kept_and_others_are_left_out() {
    let Some(registry) = Registry::start(&Settings::default()) else { return };
    let build = Build::new(&[(&["base", "compile"], ""), (&["base", "unknown"], "")]);
    let stage = layout(&["base", "compile"]);
    let mut copy = Command::new("cp");
    let copied = copy.arg("-r").arg(stage.dir.path()).arg(build.path("stages")).status();
    assert!(copied.expect("cp").success());
    let (run, kept) = build.push(&registry.host(), &[]);
    assert!(run.out.contains(", 1 image, 0 MiB; 1 image left out"), "{run:?}");
    let into = build.path("before");
    assert_eq!(fetch(&registry.host(), &kept, &into, &[]).code, 0);
    let name = digest(&content("compile")).replace("sha256:", "");
    let compiled = std::fs::read(into.join("blobs/sha256").join(name)).expect("a blob");
    assert_eq!(compiled, content("compile"));
}

#[test]
fn b13_a_layer_that_is_not_what_its_image_says_is_not_taken() {
    let Some(registry) = Registry::start(&Settings::default()) else { return };
    // Packed it is something else than its configuration says: longer, shorter, and nothing that is packed.
    let longer = [packed("run"), packed("run")].concat();
    for bytes in [longer, packed("base"), noise("other", LARGE)] {
        let build = Build::usual();
        let layer = build.image.blob(LAYER, &bytes);
        let image = build.image.changed(|manifest| manifest["layers"][1] = layer);
        let build = Build { image, ..build };
        let (_, kept) = build.push(&registry.host(), &[]);
        let into = build.path("before");
        let run = fetch(&registry.host(), &kept, &into, &[]);
        assert_eq!(run.code, 0, "{run:?}");
        assert!(run.out.starts_with("no layers are taken: "), "{run:?}");
        assert!(!into.join("index.json").exists(), "{run:?}");
    }
}

#[test]
fn b13_a_cache_that_is_not_there_or_not_whole_fails_nothing() {
    let Some(registry) = Registry::start(&Settings::default()) else { return };
    let host = registry.host();
    let folder = tempfile::tempdir().expect("a folder");
    let into = folder.path().join("before");
    let run = fetch(&host, "", &into, &[]);
    assert_eq!((run.code, run.out.as_str()), (0, "no build has kept layers for this one\n"));
    assert_eq!(registry.requests(), Vec::<String>::new(), "nobody was asked");
    let run = fetch(&host, &digest(b"gone"), &into, &[]);
    assert_eq!(run.code, 0, "{run:?}");
    assert!(run.out.starts_with("no layers are taken: ") && !into.exists(), "{run:?}");
    assert_eq!(fetch(&host, "latest", &into, &[]).code, 2, "a tag is no digest");

    let build = Build::usual();
    let (_, kept) = build.push(&host, &[]);
    // A folder that somebody has made before is not written into.
    std::fs::create_dir(&into).expect("a folder");
    let run = fetch(&host, &kept, &into, &[]);
    assert_eq!(run.code, 0, "{run:?}");
    assert!(run.out.contains("nothing is written over"), "{run:?}");
    // What the image has, and not what was kept.
    let run = fetch(&host, &build.image.layer(1), &folder.path().join("x"), &[]);
    assert_eq!(run.code, 0, "{run:?}");
    assert!(run.out.starts_with("no layers are taken: "), "{run:?}");
    // Nobody listens.
    let run = fetch("127.0.0.1:1", &kept, &folder.path().join("y"), &[]);
    assert_eq!(run.code, 0, "{run:?}");
    let (run, digest) = Build::usual().push("127.0.0.1:1", &[]);
    assert_eq!((run.code, digest.as_str()), (0, "none"), "{run:?}");
    assert!(run.out.starts_with("no layers are kept: "), "{run:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn b13_a_registry_that_gives_something_else_for_the_digest_gives_no_layers() {
    let index = json!({"schemaVersion": 2, "manifests": []}).to_string();
    let stand_in = StandIn::start(move |asked, _| {
        asked.line.starts_with("GET").then(|| (200, Vec::new(), index.clone()))
    })
    .await;
    let host = stand_in.address.to_string();
    let fetching = tokio::task::spawn_blocking(move || {
        let folder = tempfile::tempdir().expect("a folder");
        let into = folder.path().join("before");
        let run = fetch(&host, &digest(b"what the operator knows"), &into, &[]);
        assert!(!into.exists(), "{run:?}");
        run
    });
    let run = fetching.await.expect("a run");
    assert_eq!(run.code, 0, "{run:?}");
    assert!(run.out.contains("its registry gives sha256:"), "{run:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn b13_an_image_that_is_larger_than_its_index_says_is_not_taken() {
    let image = plain(&config(&["base"], "A=1"), &["base"]).to_string();
    let entry = json!({"mediaType": "application/vnd.oci.image.manifest.v1+json", "digest": digest(image.as_bytes()), "size": 1});
    let index = json!({"schemaVersion": 2, "manifests": [entry]}).to_string();
    let kept = digest(index.as_bytes());
    let of_index = kept.clone();
    let stand_in = StandIn::start(move |asked, _| {
        let body = if asked.line.contains(&of_index) { &index } else { &image };
        asked.line.starts_with("GET").then(|| (200, Vec::new(), body.clone()))
    })
    .await;
    let host = stand_in.address.to_string();
    let fetching = tokio::task::spawn_blocking(move || {
        let folder = tempfile::tempdir().expect("a folder");
        fetch(&host, &kept, &folder.path().join("before"), &[])
    });
    let run = fetching.await.expect("a run");
    assert_eq!(run.code, 0, "{run:?}");
    assert!(run.out.contains("has another size than it should"), "{run:?}");
}

#[test]
fn b13_manifests_that_are_too_large_together_are_not_kept() {
    let Some(registry) = Registry::start(&Settings::default()) else { return };
    let build = Build::new(&[(&["base"][..], "A=1"); 6]);
    for number in 0..6 {
        let mut manifest = plain(&config(&["base"], "A=1"), &["base"]);
        manifest["annotations"] = json!({"a": "b".repeat(3 << 20)});
        std::fs::write(build.path(&format!("manifests/{number}")), manifest.to_string())
            .expect("a file");
    }
    let (run, digest) = build.push(&registry.host(), &[]);
    assert_eq!((run.code, digest.as_str()), (0, "none"), "{run:?}");
    assert!(run.out.contains("the manifests are larger than 16 MiB"), "{run:?}");
    assert_eq!(registry.requests(), Vec::<String>::new(), "nobody was asked");
}

#[test]
fn b13_what_a_hostile_build_leaves_is_not_kept() {
    let Some(registry) = Registry::start(&Settings::default()) else { return };
    let secret = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(secret.path(), config(&["base"], "SECRET=1")).expect("a file");
    let replaced = |name: &str, with: &dyn Fn(&Path)| {
        let build = Build::usual();
        let path = build.path(name);
        if path.is_dir() {
            std::fs::remove_dir_all(&path).expect("removed");
        } else {
            std::fs::remove_file(&path).expect("removed");
        }
        with(&path);
        build.push(&registry.host(), &[])
    };
    let link = |path: &Path| symlink(secret.path(), path).expect("a link");
    let pipe = |path: &Path| {
        assert!(Command::new("mkfifo").arg(path).status().expect("mkfifo").success());
    };
    let large = |path: &Path| {
        let file = std::fs::File::create(path).expect("a file");
        file.set_len((8 << 20) + 1).expect("its length");
    };
    let elsewhere = |path: &Path| {
        symlink(secret.path().parent().expect("a folder"), path).expect("a link");
    };
    let cases: [(&str, &dyn Fn(&Path), &str); 7] = [
        ("configs/0", &link, "configs/0 is a symbolic link"),
        ("configs/0", &pipe, "configs/0 is no regular file"),
        ("configs/0", &large, "configs/0 is larger than 8 MiB"),
        ("manifests/1", &link, "manifests/1 is a symbolic link"),
        ("configs", &elsewhere, "configs is no folder (symbolic links are not followed)"),
        ("about", &link, "about is a symbolic link"),
        ("about", &large, "about is larger than 1 MiB"),
    ];
    for (name, with, said) in cases {
        let (run, digest) = replaced(name, with);
        assert_eq!((run.code, digest.as_str()), (0, "none"), "{name}: {run:?}");
        assert!(run.out.contains(said), "{name}: {run:?}");
    }
    assert_eq!(registry.requests(), Vec::<String>::new(), "nobody was asked");
    assert!(!registry.has_kept("SECRET"));
}
