//! Base images that are as they should be.

use std::io::Read;

use flate2::read::GzDecoder;

use super::*;
use crate::git_remote::tls::{Authority, Front};

/// The files of a layer.
fn files(bytes: &[u8]) -> Vec<(String, String)> {
    let mut archive = tar::Archive::new(GzDecoder::new(bytes));
    let one = |entry: std::io::Result<tar::Entry<'_, _>>| {
        let mut entry = entry.expect("an entry");
        let path = entry.path().expect("a path").display().to_string();
        let mut text = String::new();
        entry.read_to_string(&mut text).expect("text");
        (path, text)
    };
    archive.entries().expect("entries").map(one).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn b11_a_folder_is_appended_and_the_base_image_is_mounted() {
    let Some(registry) = Registry::start(&Settings::default()) else { return };
    let store = Store::of(&registry);
    let base = store.base("team/base", "1", OCI).await;
    let base_digest = digest(base.to_string().as_bytes());
    let (image, of_base) =
        (format!("{}/team/app", registry.host()), format!("{}/team/base:1", registry.host()));
    let results = tempfile::tempdir().expect("a folder");
    let at = |name: &str| results.path().join(name);
    let before = registry.requests().len();
    let began = std::time::Instant::now();
    let run = append(
        usual().path(),
        &of_base,
        &image,
        &[
            "--tag=cvk-1",
            "--tag=1.0",
            &format!("--url-file={}", at("url").display()),
            &format!("--digest-file={}", at("digest").display()),
            &format!("--base-digest-file={}", at("base").display()),
            "--",
            "python3",
            "-m",
            "main",
        ],
    );
    // Far from a minute, on any machine: nothing is waited for.
    assert!(began.elapsed().as_secs() < 20, "{:?}", began.elapsed());
    assert_eq!((run.code, run.err.as_str()), (0, ""), "{run:?}\n{}", registry.log());
    let read = |name: &str| std::fs::read_to_string(at(name)).expect("a result");
    assert_eq!((read("url"), read("base")), (format!("{image}:1.0"), base_digest.clone()));
    let digest_of_image = read("digest");
    let said = format!(
        "appended 4 files and folders to {of_base} ({base_digest})\nlayers of the base image: 0 there, 2 mounted, 0 copied\n\
         pushed {image}:cvk-1, {digest_of_image}\npushed {image}:1.0, {digest_of_image}\n"
    );
    assert_eq!(run.out, said);

    let manifest = store.json("team/app/manifests/1.0").await;
    assert_eq!(manifest, store.json("team/app/manifests/cvk-1").await);
    assert_eq!(digest(manifest.to_string().as_bytes()), digest_of_image);
    assert_eq!(manifest["mediaType"], MANIFEST);
    assert_eq!(manifest["annotations"]["org.opencontainers.image.base.name"], of_base);
    assert_eq!(manifest["annotations"]["org.opencontainers.image.base.digest"], base_digest);
    let layers = manifest["layers"].as_array().expect("layers");
    assert_eq!(layers[..2], base["layers"].as_array().expect("layers")[..]);
    let layer = layers[2]["digest"].as_str().expect("a digest");
    let layer = store.get(&format!("team/app/blobs/{layer}")).await.expect("the layer");
    let want = [
        ("app/", ""),
        ("app/lib/", ""),
        ("app/lib/x.py", "X = 1\n"),
        ("app/main.py", "print('hello')\n"),
    ];
    assert_eq!(files(&layer), want.map(|(path, text)| (path.to_owned(), text.to_owned())));
    let mut tar = Vec::new();
    GzDecoder::new(&layer[..]).read_to_end(&mut tar).expect("gzip");
    let config = manifest["config"]["digest"].as_str().expect("a digest");
    let config = store.json(&format!("team/app/blobs/{config}")).await;
    let want = json!({"User": "1000", "Env": ["A=1"], "Entrypoint": ["python3", "-m", "main"], "WorkingDir": "/app"});
    assert_eq!(config["config"], want);
    assert_eq!(config["rootfs"]["diff_ids"], json!([digest(b"1"), digest(b"2"), digest(&tar)]));
    assert_eq!(config["history"].as_array().map(Vec::len), Some(3));
    // The layers of the base image can be pulled from the image, and were not sent.
    for (number, size) in [(0, 1000), (1, 3_000_000)] {
        let layer = layers[number]["digest"].as_str().expect("a digest");
        let layer = store.get(&format!("team/app/blobs/{layer}")).await.expect("a layer");
        assert_eq!(layer.len(), size);
    }
    let requests = registry.requests();
    let ours: Vec<_> = requests[before..].iter().filter(|one| one.contains("team/app")).collect();
    let uploads = ours.iter().filter(|one| one.starts_with("PUT") && one.contains("/uploads/"));
    assert_eq!(uploads.count(), 2, "the layer and the configuration: {ours:#?}");
    let mounts =
        ours.iter().filter(|one| one.contains("mount=") && one.contains("from=team%2Fbase"));
    assert_eq!(mounts.count(), 2, "{ours:#?}");
    let pulled = requests[before..].iter().filter(|one| one.contains("GET /v2/team/base/blobs/"));
    assert_eq!(pulled.count(), 1, "only the configuration is pulled: {requests:#?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn b11_the_same_folder_makes_the_same_image() {
    let Some(registry) = Registry::start(&Settings::default()) else { return };
    let store = Store::of(&registry);
    store.base("team/base", "1", OCI).await;
    let base = format!("{}/team/base:1", registry.host());
    let made = |source: &TempDir, name: &str, more: &[&str]| {
        let image = format!("{}/team/{name}", registry.host());
        let run = append(source.path(), &base, &image, &[&["--tag=a"], more].concat());
        assert_eq!(run.code, 0, "{run:?}");
        let digest = run.out.rsplit("sha256:").next().expect("a digest").trim().to_owned();
        (digest, run.out)
    };
    let first = usual();
    std::thread::sleep(std::time::Duration::from_millis(1100));
    let second = usual();
    let (one, _) = made(&first, "one", &[]);
    assert_eq!(made(&second, "two", &[]).0, one);
    // Again into the same image: everything is there.
    let before = registry.requests().len();
    assert_eq!(made(&second, "one", &[]).0, one);
    let requests = registry.requests();
    let uploads = requests[before..].iter().filter(|request| request.starts_with("PUT"));
    assert_eq!(uploads.count(), 1, "only the manifest: {requests:#?}");
    let others = [
        made(&source(&[("main.py", "other")]), "one", &[]).0,
        made(&first, "one", &["--into=/opt/x"]).0,
        made(&first, "one", &["--user=7"]).0,
        made(&first, "one", &["--", "-c"]).0,
    ];
    let all: std::collections::BTreeSet<_> = others.iter().chain([&one]).collect();
    assert_eq!(all.len(), 5, "{all:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn b11_a_base_image_of_docker_in_an_index_is_taken() {
    let Some(registry) = Registry::start(&Settings::default()) else { return };
    let store = Store::of(&registry);
    let base =
        store.base("team/base", "only", [DOCKER_MANIFEST, DOCKER_CONFIG, DOCKER_LAYER]).await;
    let other = store.base("team/base", "other", OCI).await;
    let mut named = store.manifest("team/base", "only", &base).await;
    named["platform"] = json!({"os": "linux", "architecture": "riscv64"});
    let mut wrong = store.manifest("team/base", "other", &other).await;
    wrong["platform"] = json!({"os": "linux", "architecture": "s390x"});
    let index = json!({"schemaVersion": 2, "mediaType": INDEX, "manifests": [wrong, named]});
    let index = store.manifest("team/base", "all", &index).await;
    let index = index["digest"].as_str().expect("a digest");
    let image = format!("{}/team/app", registry.host());
    for version in [":all".to_owned(), format!("@{index}"), format!(":none@{index}")] {
        let base_image = format!("{}/team/base{version}", registry.host());
        let run =
            append(usual().path(), &base_image, &image, &["--tag=a", "--platform=linux/riscv64"]);
        assert_eq!(run.code, 0, "{run:?}");
        assert!(run.out.contains(&format!("to {base_image} ({index})")), "{run:?}");
        let manifest = store.json("team/app/manifests/a").await;
        for (number, layer) in
            manifest["layers"].as_array().expect("layers")[..2].iter().enumerate()
        {
            assert_eq!(layer["digest"], base["layers"][number]["digest"]);
            assert_eq!(layer["mediaType"], LAYER);
        }
        // Nothing was asked of the image: it runs what the base image runs.
        let config = manifest["config"]["digest"].as_str().expect("a digest");
        let config = store.json(&format!("team/app/blobs/{config}")).await;
        let want =
            json!({"User": "1000", "Env": ["A=1"], "Cmd": ["python3"], "WorkingDir": "/app"});
        assert_eq!(config["config"], want);
    }
    let base_image = format!("{}/team/base:all", registry.host());
    let run = append(usual().path(), &base_image, &image, &["--tag=b", "--platform=linux/arm64"]);
    assert_eq!(run.code, 35, "{run:?}");
    let said = "it has no image for linux/arm64, but for: linux/s390x, linux/riscv64";
    assert!(run.err.contains(said), "{run:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn b11_a_base_image_with_a_password_is_pulled_with_the_credentials_for_it() {
    let Some(registry) = Registry::start(&Settings { password: true, ..Settings::default() })
    else {
        return;
    };
    Store::of(&registry).base("team/base", "1", OCI).await;
    let host = registry.host();
    let (base, image) = (format!("{host}/team/base:1"), format!("{host}/team/app"));
    let with = |place: &str| {
        let folder = password(place);
        append(usual().path(), &base, &image, &["--tag=a", "--auth", text(folder.path())])
    };
    assert_eq!(with(&host).code, 0);
    // Those of the image are not for another one.
    let run = with(&format!("{host}/team/app"));
    assert_eq!(run.code, 34, "{run:?}");
    assert!(run.err.contains("it asks for credentials, and there are none for it"), "{run:?}");
    let run = with(&format!("{host}/team/base"));
    assert_eq!(run.code, 31, "{run:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn b11_a_base_image_in_another_registry_is_copied() {
    let (Some(from), Some(to)) = (
        Registry::start(&Settings { password: true, ..Settings::default() }),
        Registry::start(&Settings::default()),
    ) else {
        return;
    };
    let base = Store::of(&from).base("team/base", "1", OCI).await;
    // It is always asked over TLS.
    let authority = Authority::new();
    let front = Front::start(from.address(), authority.sign("127.0.0.1", |_| ()), "http/1.1").await;
    let host = front.origin("127.0.0.1").replace("https://", "");
    let image = format!("{}/team/app", to.host());
    let folder = password(&format!("{host}/team"));
    std::fs::write(folder.path().join("ca.crt"), authority.pem()).expect("ca.crt");
    let with = |folder: &TempDir| {
        let of_base = format!("{host}/team/base:1");
        append(usual().path(), &of_base, &image, &["--tag=a", "--auth", text(folder.path())])
    };
    let run = with(&folder);
    assert_eq!(run.code, 0, "{run:?}\n{}{}", from.log(), to.log());
    assert!(run.out.contains("0 there, 0 mounted, 2 copied"), "{run:?}");
    let store = Store::of(&to);
    let manifest = store.json("team/app/manifests/a").await;
    for number in [0, 1] {
        let named = &base["layers"][number];
        assert_eq!(manifest["layers"][number], *named);
        let layer = named["digest"].as_str().expect("a digest");
        let bytes = store.get(&format!("team/app/blobs/{layer}")).await.expect("the layer");
        assert_eq!(digest(&bytes), layer);
    }
    let before = from.requests().len();
    let run = with(&folder);
    assert!(run.code == 0 && run.out.contains("2 there, 0 mounted, 0 copied"), "{run:?}");
    let requests = from.requests();
    let layer = base["layers"][1]["digest"].as_str().expect("a digest");
    assert!(!requests[before..].iter().any(|one| one.contains(layer)), "{requests:#?}");
    // The authority of an image's registry is not the one of others: without credentials for it, this one is not trusted.
    let elsewhere = password(&to.host());
    std::fs::write(elsewhere.path().join("ca.crt"), authority.pem()).expect("ca.crt");
    let run = with(&elsewhere);
    assert!(run.code == 39 && run.err.contains("certificate is not trusted"), "{run:?}");
}
