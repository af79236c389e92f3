//! What is refused, registries that are away, and base images from elsewhere.

use super::*;
use crate::push_image::stand_in::{Answer, StandIn};

#[tokio::test(flavor = "multi_thread")]
async fn b11_what_stops_an_append_has_an_exit_code_of_its_own() {
    let Some(registry) = Registry::start(&Settings::default()) else { return };
    Store::of(&registry).base("team/base", "1", OCI).await;
    let host = registry.host();
    let (base, image) = (format!("{host}/team/base:1"), format!("{host}/team/app"));
    let before = registry.requests().len();
    let hostile = |change: &dyn Fn(&Path)| {
        let dir = usual();
        change(&dir.path().join("image"));
        append(dir.path(), &base, &image, &["--tag=a"])
    };
    let link = |target: &'static str| {
        hostile(&move |folder| std::os::unix::fs::symlink(target, folder.join("link")).expect("it"))
    };
    for (run, said) in [
        (link("/etc/shadow"), "app/link is a symbolic link out of the folder, to /etc/shadow"),
        (link("../../x"), "app/link is a symbolic link out of the folder, to ../../x"),
        (
            hostile(&|folder| {
                let made = Command::new("mkfifo").arg(folder.join("pipe")).status();
                assert!(made.expect("mkfifo").success());
            }),
            "app/pipe is a pipe, a socket or a device",
        ),
        (
            hostile(&|folder| std::fs::write(folder.join(".wh.main.py"), "").expect("a file")),
            "app/.wh.main.py is a name that a layer takes as a deleted file",
        ),
        (
            hostile(&|folder| {
                std::fs::rename(folder, folder.with_file_name("elsewhere")).expect("moved");
                std::os::unix::fs::symlink("elsewhere", folder).expect("a link");
            }),
            "image is no folder or regular file (symbolic links are not followed)",
        ),
        (
            hostile(&|folder| std::fs::remove_dir_all(folder).expect("removed")),
            "image cannot be read: No such file",
        ),
    ] {
        assert_eq!(run.code, 23, "{said}: {run:?}");
        assert!(run.err.contains(said), "{said}: {run:?}");
    }
    let writes = |requests: &[String]| requests.iter().any(|one| !one.starts_with("GET"));
    assert!(!writes(&registry.requests()[before..]), "nothing is pushed of what is refused");

    let fails = |base: &str, code: i32, said: &str| {
        let run = append(usual().path(), base, &image, &["--tag=a"]);
        assert_eq!(run.code, code, "{said}: {run:?}");
        assert!(run.err.contains(said), "{said}: {run:?}");
    };
    fails(&format!("{host}/team/base:none"), 34, "the base image cannot be pulled: cannot pull");
    fails(&format!("{host}/team/none:1"), 34, "HTTP 404");
    fails(&format!("{host}/team/base@sha256:{}", "0".repeat(64)), 34, "HTTP 404");
    // Nobody listens there. A base image elsewhere is never asked over plain HTTP.
    fails("localhost:1/team/base:1", 32, "cannot pull localhost:1/team/base 1: ");
    let other = host.replace("127.0.0.1", "localhost");
    fails(&format!("{other}/team/base:1"), 39, "does it speak plain http?");
    let run = append(usual().path(), &base, &image, &["--tag=a", "--scratch=/nowhere"]);
    assert!(run.code == 1 && run.err.contains("the layer cannot be written"), "{run:?}");
    // And the same goes well, if nothing is wrong.
    let run = append(usual().path(), &base, &image, &["--tag=a"]);
    assert_eq!(run.code, 0, "{run:?}");
}

/// A registry with one base image, that mounts nothing and may send on to where blobs are.
pub struct Base {
    pub manifest: String,
    config: String,
    pub layer: String,
}

impl Base {
    pub fn new() -> Self {
        // What a stand-in can give is text.
        let layer =
            (0..14_000).map(|number: u32| digest(&number.to_be_bytes())).collect::<String>();
        let config =
            json!({"os": "linux", "rootfs": {"type": "layers", "diff_ids": [digest(b"1")]}})
                .to_string();
        let described = |kind: &str, bytes: &[u8]| json!({"mediaType": kind, "digest": digest(bytes), "size": bytes.len()});
        let manifest = json!({
            "schemaVersion": 2, "mediaType": MANIFEST, "config": described(CONFIG, config.as_bytes()),
            "layers": [described(LAYER, layer.as_bytes())],
        });
        Self { manifest: manifest.to_string(), config, layer }
    }

    /// What is answered to a request for the base image.
    pub fn answer(&self, line: &str) -> Option<Answer> {
        let body = if line.ends_with("/base/manifests/1") {
            self.manifest.clone()
        } else if line.ends_with(&digest(self.config.as_bytes())) {
            self.config.clone()
        } else {
            return None;
        };
        line.starts_with("GET").then(|| (200, Vec::new(), body))
    }
}

/// Appends to a base image of a stand-in, whose layer it answers so.
async fn from(answer: impl Fn(&Base, usize) -> Answer + Send + Sync + 'static) -> (Run, StandIn) {
    let base = Base::new();
    let layer = digest(base.layer.as_bytes());
    let registry = StandIn::start(move |asked, before| {
        let is_layer = asked.line.starts_with("GET") && asked.line.ends_with(&layer);
        is_layer.then(|| answer(&base, before)).or_else(|| base.answer(&asked.line))
    })
    .await;
    let host = registry.address;
    let run = tokio::task::spawn_blocking(move || {
        let image = format!("{host}/team/app");
        append(usual().path(), &format!("{host}/team/base:1"), &image, &["--tag=a"])
    });
    (run.await.expect("a run"), registry)
}

#[tokio::test(flavor = "multi_thread")]
async fn b11_a_wrong_layer_of_a_base_image_never_arrives_whole() {
    for (change, code, said) in [
        (0_usize, 35, "its registry gives something else"),
        (1, 35, "its registry gives something else"),
        (2, 32, "it breaks off after"),
    ] {
        let (run, registry) = from(move |base, _| {
            let mut text = base.layer.clone();
            match change {
                0 => text.replace_range(500_000..500_001, "x"),
                1 => text.push('x'),
                _ => text.truncate(600_000),
            }
            (200, Vec::new(), text)
        })
        .await;
        assert_eq!(run.code, code, "{run:?}");
        assert!(run.err.contains(said), "{run:?}");
        let asked = registry.asked();
        let puts: Vec<_> = asked.iter().filter(|one| one.line.starts_with("PUT")).collect();
        // What breaks off may do so before anything is sent.
        assert!(change == 2 || !puts.is_empty(), "it was never sent on");
        assert!(!puts.iter().any(|one| one.whole), "{change}: {}", puts.len());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn b11_a_layer_is_followed_to_where_a_registry_keeps_it_without_credentials() {
    let layer = Base::new().layer;
    let storage = StandIn::start(move |_, _| Some((200, Vec::new(), layer.clone()))).await;
    let place = format!("http://{}/storage?signature=x", storage.address);
    let (run, registry) =
        from(move |_, _| (307, vec![("location", place.clone())], String::new())).await;
    assert!(run.code == 0 && run.out.contains("0 there, 0 mounted, 1 copied"), "{run:?}");
    let sent = registry.asked().into_iter().find(|one| one.body == Base::new().layer.as_bytes());
    assert!(sent.is_some_and(|sent| sent.whole && sent.line.starts_with("PUT")));
    let asked = storage.asked();
    assert_eq!(asked[0].line, "GET /storage?signature=x");
    assert!(asked.iter().all(|one| one.authorization.is_empty()));
    let (run, _) = from(|_, _| (307, vec![("location", "ftp://x/y".into())], String::new())).await;
    assert!(run.code == 34 && run.err.contains("sends the client on to"), "{run:?}");
    let (run, _) = from(|_, _| (307, Vec::new(), String::new())).await;
    assert!(run.code == 34 && run.err.contains("names no place for it"), "{run:?}");
    let (run, _) = from(|_, _| (404, Vec::new(), String::new())).await;
    assert!(run.code == 34 && run.err.contains("HTTP 404"), "{run:?}");
    let (run, registry) = from(|_, _| (503, Vec::new(), String::new())).await;
    assert!(run.code == 32 && run.err.contains("HTTP 503"), "{run:?}");
    let layer = digest(Base::new().layer.as_bytes());
    let asked = registry.asked();
    let tries =
        asked.iter().filter(|one| one.line.starts_with("GET") && one.line.ends_with(&layer));
    assert_eq!(tries.count(), 4, "a few tries");
}

#[tokio::test(flavor = "multi_thread")]
async fn b11_a_push_that_is_denied_says_so() {
    for (status, code) in [(403, 31), (502, 32)] {
        let base = Base::new();
        let layer = digest(base.layer.as_bytes());
        let registry = StandIn::start(move |asked, _| {
            // It mounts nothing, and has the layer.
            if asked.line.starts_with("HEAD") && asked.line.ends_with(&layer) {
                return Some((200, Vec::new(), String::new()));
            }
            let said = r#"{"errors":[{"code":"DENIED","message":"not yours"}]}"#;
            let denied = asked.line.starts_with("PUT /v2/team/app/manifests");
            denied.then(|| (status, Vec::new(), said.into())).or_else(|| base.answer(&asked.line))
        })
        .await;
        let host = registry.address;
        let run = tokio::task::spawn_blocking(move || {
            let image = format!("{host}/team/app");
            append(usual().path(), &format!("{host}/team/base:1"), &image, &["--tag=a"])
        });
        let run = run.await.expect("a run");
        assert_eq!(run.code, code, "{run:?}");
        assert!(run.err.contains(&format!("HTTP {status}: DENIED: not yours")), "{run:?}");
        assert!(run.out.contains("1 there, 0 mounted, 0 copied"), "{run:?}");
    }
}
