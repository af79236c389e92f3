//! `--layout`: the image is written, and not pushed.

use std::os::unix::fs::PermissionsExt;

use super::refused::Base;
use super::*;
use crate::push_image::stand_in::StandIn;

/// Appends into a layout.
fn write(source: &Path, base: &str, layout: &Path, more: &[&str]) -> Run {
    ask(source, base, &[&["--layout", text(layout)], more].concat())
}

/// Runs another command of the program.
fn convoke(arguments: &[&str]) -> std::process::Output {
    let mut command = Command::new("timeout");
    command.args(["-k", "1", HANGS, env!("CARGO_BIN_EXE_convoke")]).args(arguments);
    command.output().expect("convoke")
}

/// The exit code of `push-image`.
fn pushed(layout: &Path, image: &str) -> std::process::Output {
    let place = ["push-image", "--layout", text(layout), "--image", image];
    convoke(&[&place[..], &["--tag=b", "--insecure=true"]].concat())
}

#[tokio::test(flavor = "multi_thread")]
async fn b11_an_image_in_a_layout_is_the_one_that_is_pushed() {
    let Some(registry) = Registry::start(&Settings::default()) else { return };
    let store = Store::of(&registry);
    // Base images of docker are written in OCI's words.
    store.base("team/base", "1", [DOCKER_MANIFEST, DOCKER_CONFIG, DOCKER_LAYER]).await;
    let host = registry.host();
    let (base, image) = (format!("{host}/team/base:1"), format!("{host}/team/app"));
    let command = ["--", "python3", "-m", "main"];
    let run = append(usual().path(), &base, &image, &[&["--tag=a"][..], &command].concat());
    assert_eq!(run.code, 0, "{run:?}");
    let manifest = store.get("team/app/manifests/a").await.expect("the image");

    let (dir, before) = (tempfile::tempdir().expect("a folder"), registry.requests().len());
    let at = |name: &str| dir.path().join(name);
    let layout = at("image");
    let of_image = format!("--digest-file={}", text(&at("digest")));
    let of_base = format!("--base-digest-file={}", text(&at("base")));
    let more = ["--image", &image, "--insecure=true", &of_image, &of_base];
    let run = write(usual().path(), &base, &layout, &[&more[..], &command].concat());
    assert_eq!((run.code, run.err.as_str()), (0, ""), "{run:?}");
    let read = |name: &str| std::fs::read_to_string(at(name)).expect("a result");
    assert_eq!(read("digest"), digest(&manifest));
    let base_digest = digest(&store.get("team/base/manifests/1").await.expect("the base image"));
    assert_eq!(read("base"), base_digest);
    let (folder, of_image) = (layout.display(), digest(&manifest));
    let said = format!(
        "appended 4 files and folders to {base} ({base_digest})\nwrote {folder}, {of_image}, 3 layers\n"
    );
    assert_eq!(run.out, said);
    let requests = registry.requests();
    let ours = requests[before..].iter().filter(|one| one.contains("team/app/"));
    assert_eq!(ours.count(), 0, "the registry of the image is not asked: {requests:#?}");

    // The same bytes, and no others.
    let blob = |digest: &str| {
        std::fs::read(layout.join("blobs/sha256").join(digest.trim_start_matches("sha256:")))
    };
    assert_eq!(blob(&of_image).expect("the manifest"), manifest);
    let parsed: Value = serde_json::from_slice(&manifest).expect("JSON");
    let named = parsed["layers"].as_array().expect("layers").iter().chain([&parsed["config"]]);
    let mut names = vec![of_image.clone()];
    for one in named {
        let name = one["digest"].as_str().expect("a digest").to_owned();
        assert_eq!(digest(&blob(&name).expect("a blob")), name);
        names.push(name);
    }
    let blobs = std::fs::read_dir(layout.join("blobs/sha256")).expect("the blobs");
    assert_eq!(blobs.count(), names.len());
    for name in ["index.json", "oci-layout", "blobs/sha256"] {
        let mode = std::fs::metadata(layout.join(name)).expect(name).permissions().mode();
        assert_eq!(mode & 0o044, 0o044, "{name}: others read it");
    }

    // It is pushed and exported as it is.
    let other = format!("{host}/team/other");
    let output = pushed(&layout, &other);
    assert!(output.status.success(), "{output:?}");
    assert_eq!(store.get("team/other/manifests/b").await, Some(manifest));
    let archive = at("image.tar");
    let output = convoke(&["export-image", "--layout", text(&layout), "--archive", text(&archive)]);
    assert!(output.status.success() && archive.exists(), "{output:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn b11_an_image_that_is_appended_to_itself_has_each_blob_once() {
    let Some(registry) = Registry::start(&Settings::default()) else { return };
    let store = Store::of(&registry);
    store.base("team/base", "1", OCI).await;
    let host = registry.host();
    let image = format!("{host}/team/app");
    assert_eq!(
        append(usual().path(), &format!("{host}/team/base:1"), &image, &["--tag=a"]).code,
        0
    );
    let dir = tempfile::tempdir().expect("a folder");
    let layout = dir.path().join("image");
    let more = ["--image", &image, "--insecure=true"];
    let run = write(usual().path(), &format!("{image}:a"), &layout, &more);
    assert!(run.code == 0 && run.out.ends_with("4 layers\n"), "{run:?}");
    let output = pushed(&layout, &image);
    assert!(output.status.success(), "{output:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn b11_a_layout_is_written_over_nothing_and_only_where_it_may() {
    let Some(registry) = Registry::start(&Settings::default()) else { return };
    Store::of(&registry).base("team/base", "1", OCI).await;
    let host = registry.host();
    let (base, image) = (format!("{host}/team/base:1"), format!("{host}/team/app"));
    let dir = tempfile::tempdir().expect("a folder");
    let at = |name: &str| dir.path().join(name);
    let more = ["--image", &image, "--insecure=true"];
    std::fs::create_dir(at("there")).expect("a folder");
    std::os::unix::fs::symlink(at("target"), at("link")).expect("a link");
    for (name, said) in [
        ("there", "nothing is written over"),
        ("link", "nothing is written over"),
        ("none/image", "No such file"),
    ] {
        let run = write(usual().path(), &base, &at(name), &more);
        assert!(run.code == 1 && run.err.contains(said), "{name}: {run:?}");
    }
    assert!(!at("target").exists(), "a link is not followed");
    // Nobody, not even root, makes a folder there.
    let run = write(usual().path(), &base, Path::new("/proc/image"), &more);
    assert!(run.code == 1 && run.err.contains("the image cannot be written"), "{run:?}");
    // What goes to a registry does not go with what goes into a folder.
    for (wrong, said) in [
        (&["--tag=a"][..], "cannot be used with"),
        (&["--url-file=x"], "cannot be used with"),
        (&["--insecure=true"], "--insecure true needs --image"),
    ] {
        let run = write(usual().path(), &base, &at("image"), wrong);
        assert!(run.code == 2 && run.err.contains(said), "{wrong:?}: {run:?}");
    }
    for (wrong, said) in [(&[][..], "--image"), (&["--image", &image], "--tag")] {
        let run = ask(usual().path(), &base, wrong);
        assert!(run.code == 2 && run.err.contains(said), "{wrong:?}: {run:?}");
    }
    assert!(!at("image").exists());
    // And the same goes well, if nothing is wrong.
    assert_eq!(write(usual().path(), &base, &at("image"), &more).code, 0);
}

/// Appends into a layout what a stand-in answers with these requests for the layer of its base image.
async fn from(
    manifest: impl Fn(&Base) -> String + Send + Sync + 'static,
    answer: impl Fn(&Base, usize) -> String + Send + Sync + 'static,
) -> (Run, StandIn, TempDir) {
    let base = Base::new();
    let layer = digest(base.layer.as_bytes());
    let registry = StandIn::start(move |asked, before| {
        if asked.line.ends_with("/base/manifests/1") {
            return Some((200, Vec::new(), manifest(&base)));
        }
        let is_layer = asked.line.ends_with(&layer);
        let found = is_layer.then(|| (200, Vec::new(), answer(&base, before)));
        found.or_else(|| base.answer(&asked.line))
    })
    .await;
    let (host, dir) = (registry.address, tempfile::tempdir().expect("a folder"));
    let layout = dir.path().join("image");
    let done = tokio::task::spawn_blocking(move || {
        let image = format!("{host}/team/app");
        let more = ["--image", &image, "--insecure=true"];
        write(usual().path(), &format!("{host}/team/base:1"), &layout, &more)
    });
    (done.await.expect("a run"), registry, dir)
}

#[tokio::test(flavor = "multi_thread")]
async fn b11_a_base_image_that_lies_makes_no_layout() {
    for (change, code, said) in [
        (0_usize, 35, "its registry gives something else"),
        (1, 35, "its registry gives something else"),
        (2, 32, "it breaks off after"),
    ] {
        let (run, _, dir) = from(
            |base| base.manifest.clone(),
            move |base, _| {
                let mut text = base.layer.clone();
                match change {
                    0 => text.replace_range(500_000..500_001, "x"),
                    1 => text.push('x'),
                    _ => text.truncate(600_000),
                }
                text
            },
        )
        .await;
        assert!(run.code == code && run.err.contains(said), "{change}: {run:?}");
        assert!(!dir.path().join("image/index.json").exists());
        let output = pushed(&dir.path().join("image"), "localhost:1/a");
        assert_eq!(output.status.code(), Some(33), "it is none: {output:?}");
    }
    // What is more than the budget is not asked for.
    let (run, registry, dir) = from(
        |base| {
            let mut manifest: Value = serde_json::from_str(&base.manifest).expect("JSON");
            manifest["layers"][0]["size"] = json!((16_u64 << 30) + 1);
            manifest.to_string()
        },
        |base, _| base.layer.clone(),
    )
    .await;
    assert!(run.code == 35 && run.err.contains("the most that are brought here"), "{run:?}");
    let layer = digest(Base::new().layer.as_bytes());
    assert!(!registry.asked().iter().any(|one| one.line.ends_with(&layer)));
    assert!(!dir.path().join("image/index.json").exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn b11_a_layer_that_broke_off_is_written_anew() {
    let (run, registry, dir) = from(
        |base| base.manifest.clone(),
        |base, before| {
            let end = if before == 0 { 600_000 } else { base.layer.len() };
            base.layer[..end].to_owned()
        },
    )
    .await;
    assert_eq!(run.code, 0, "{run:?}");
    let base = Base::new();
    let name = digest(base.layer.as_bytes());
    let file = dir.path().join("image/blobs/sha256").join(name.trim_start_matches("sha256:"));
    assert_eq!(std::fs::read_to_string(file).expect("the layer"), base.layer);
    let tries = registry.asked().iter().filter(|one| one.line.ends_with(&name)).count();
    assert_eq!(tries, 2);
}
