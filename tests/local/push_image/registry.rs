//! Images that are as they should be.

use std::io::Read;
use std::process::Stdio;
use std::time::{Duration, Instant};

use convoke::net::{Dialler, Policy};
use convoke::registry::client::Options;
use convoke::registry::{Credentials, Layout as OpenLayout, Registry as Client};

use super::server::{Registry, Settings};
use super::*;
use crate::git_remote::tls::{Authority, Front};

/// What a registry gives for a path below the image, with its type.
async fn get(registry: &Registry, path: &str) -> Option<(String, Vec<u8>)> {
    let client = reqwest::Client::builder().no_proxy().build().expect("a client");
    let url = format!("http://{}/v2/team/app/{path}", registry.host());
    let answer = client.get(url).header("accept", MANIFEST).send().await.expect("an answer");
    if !answer.status().is_success() {
        return None;
    }
    let kind = answer.headers().get("content-type").and_then(|value| value.to_str().ok());
    let kind = kind.unwrap_or_default().to_owned();
    Some((kind, answer.bytes().await.expect("a body").to_vec()))
}

#[tokio::test(flavor = "multi_thread")]
async fn b5_an_image_is_pushed_under_each_tag() {
    let Some(registry) = Registry::start(&Settings::default()) else { return };
    let layout =
        Layout::new(&[noise("a", 1000), noise("b", 3_000_000), noise("a", 1000), Vec::new()]);
    let image = format!("{}/team/app", registry.host());
    let results = tempfile::tempdir().expect("a folder");
    let (url, digest_file) = (results.path().join("url"), results.path().join("digest"));
    std::fs::write(&url, "what was there before is longer than what comes").expect("a file");
    let run = push(
        layout.dir.path(),
        &image,
        &[
            "--tag",
            "cvk-1",
            "--tag",
            "1.0",
            "--insecure",
            "true",
            "--url-file",
            text(&url),
            "--digest-file",
            text(&digest_file),
        ],
    );
    let digest = layout.digest();
    assert_eq!((run.code, run.err.as_str()), (0, ""), "{run:?}\n{}", registry.log());
    assert_eq!(
        run.out,
        format!(
            "pushed {image}:cvk-1, {digest}, 1 of 4 layers were there\npushed {image}:1.0, {digest}, 1 of 4 layers were there\n"
        )
    );
    assert_eq!(std::fs::read_to_string(url).expect("the image"), format!("{image}:1.0"));
    assert_eq!(std::fs::read_to_string(digest_file).expect("the digest"), digest);
    let written = layout.manifest.to_string().into_bytes();
    for tag in ["cvk-1", "1.0", &digest] {
        let found = get(&registry, &format!("manifests/{tag}")).await;
        assert_eq!(found, Some((MANIFEST.to_owned(), written.clone())), "{tag}");
    }
    for number in 0..4 {
        let layer = layout.layer(number);
        let (_, bytes) = get(&registry, &format!("blobs/{layer}")).await.expect("a layer");
        assert_eq!(super::digest(&bytes), layer);
    }
}

#[test]
fn b5_what_is_there_is_not_sent_again() {
    let Some(registry) = Registry::start(&Settings::default()) else { return };
    let image = format!("{}/team/app", registry.host());
    let arguments = ["--tag", "a", "--insecure", "true"];
    let first = Layout::usual("first");
    let uploads = |requests: &[String]| {
        requests.iter().filter(|one| one.starts_with("PUT") && one.contains("/uploads/")).count()
    };
    assert_eq!(push(first.dir.path(), &image, &arguments).code, 0);
    let before = registry.requests();
    assert_eq!(uploads(&before), 3, "{before:#?}");
    let run = push(first.dir.path(), &image, &arguments);
    assert!(run.code == 0 && run.out.contains("2 of 2 layers were there"), "{run:?}");
    let after = registry.requests();
    assert_eq!(uploads(&after), 3, "{after:#?}");
    assert!(after.len() > before.len());
    // One layer of two is another one.
    let second = Layout::new(&[noise("first", 1000), noise("other", 1000)]);
    let run = push(second.dir.path(), &image, &arguments);
    assert!(run.code == 0 && run.out.contains("1 of 2 layers were there"), "{run:?}");
    assert_eq!(uploads(&registry.requests()), 4);
}

#[test]
fn b5_a_registry_with_a_password_takes_the_right_one() {
    let Some(registry) = Registry::start(&Settings { password: true, ..Settings::default() })
    else {
        return;
    };
    let image = format!("{}/team/app", registry.host());
    let layout = Layout::usual("x");
    let with = |folder: &str| {
        push(layout.dir.path(), &image, &["--tag", "a", "--insecure", "true", "--auth", folder])
    };
    // The canary is what opens it, and only that.
    let right = password(&registry.host(), PASSWORD);
    let run = with(text(right.path()));
    assert_eq!(run.code, 0, "{run:?}");
    let plain = auth(&registry.host(), &json!({"username": USER, "password": PASSWORD}));
    assert_eq!(with(text(plain.path())).code, 0);
    let before = registry.requests().len();
    for (folder, said) in [
        (password(&registry.host(), &format!("{PASSWORD}-not")), "does not take these credentials"),
        (password("other.example", PASSWORD), "there are none for it"),
    ] {
        let run = with(text(folder.path()));
        assert_eq!(run.code, 31, "{run:?}");
        assert!(run.err.contains("HTTP 401") && run.err.contains(said), "{run:?}");
    }
    let run = with("");
    assert!(run.code == 31 && run.err.contains("there are none for it"), "{run:?}");
    assert!(registry.requests().len() > before, "it was not asked");
    for file in ["config.json", "other"] {
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::write(folder.path().join(file), format!("{{\"auths\": \"{PASSWORD}\"}}"))
            .expect("a file");
        let run = with(text(folder.path()));
        assert!(run.code == 31 && run.err.contains("config.json"), "{run:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn b5_a_registry_with_a_certificate_of_ones_own() {
    let ours = Authority::new();
    let (certificate, key) = ours.sign("127.0.0.1", |_| ());
    let pem = |name: &str, der: &[u8]| {
        format!("-----BEGIN {name}-----\n{}\n-----END {name}-----\n", STANDARD.encode(der))
    };
    let (certificate, key) =
        (pem("CERTIFICATE", &certificate), pem("PRIVATE KEY", key.secret_der()));
    let Some(registry) = Registry::start(&Settings {
        tls: Some((&certificate, &key)),
        password: true,
        tokens: None,
    }) else {
        return;
    };
    let layout = Layout::usual("x");
    // TLS may also be taken off in front of a registry that knows nothing of it.
    let Some(plain) = Registry::start(&Settings { password: true, ..Settings::default() }) else {
        return;
    };
    let front = Front::start(plain.address(), ours.sign("127.0.0.1", |_| ()), "http/1.1").await;
    let front = front.origin("127.0.0.1").replace("https://", "");
    let other = Authority::new();
    for host in [registry.host(), front] {
        let image = format!("{host}/team/app");
        let folder = password(&host, PASSWORD);
        let with = || {
            push(
                layout.dir.path(),
                &image,
                &["--tag", "a", "--insecure", "false", "--auth", text(folder.path())],
            )
        };
        let run = with();
        assert_eq!(run.code, 39, "{run:?}");
        assert!(
            run.err.contains("certificate is not trusted: no authority known here signed it"),
            "{run:?}"
        );
        let write = |pem: &str| std::fs::write(folder.path().join("ca.crt"), pem).expect("ca.crt");
        write(other.pem());
        assert_eq!(with().code, 39);
        write("no certificate");
        let run = with();
        assert!(run.code == 31 && run.err.contains("ca.crt"), "{run:?}");
        write(ours.pem());
        let run = with();
        assert_eq!(run.code, 0, "{run:?}\n{}{}", registry.log(), plain.log());
    }
    // One that asks for nothing needs no config.json.
    let open = Settings { tls: Some((&certificate, &key)), password: false, tokens: None };
    let Some(open) = Registry::start(&open) else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let image = format!("{}/team/app", open.host());
    let anonymous =
        || push(layout.dir.path(), &image, &["--tag", "a", "--auth", text(folder.path())]);
    let run = anonymous();
    assert!(run.code == 31 && run.err.contains("no config.json and no ca.crt"), "{run:?}");
    std::fs::write(folder.path().join("ca.crt"), ours.pem()).expect("ca.crt");
    let run = anonymous();
    assert_eq!(run.code, 0, "{run:?}");
    // Over plain http, nothing of the credentials is sent to somebody who speaks TLS.
    let folder = password(&registry.host(), PASSWORD);
    let image = format!("{}/team/app", registry.host());
    let run = push(
        layout.dir.path(),
        &image,
        &["--tag", "a", "--insecure", "true", "--auth", text(folder.path())],
    );
    assert!(run.code == 31 && run.err.contains("HTTP 400"), "{run:?}");
    let image = format!("{}/team/app", plain.host());
    let run = push(layout.dir.path(), &image, &["--tag", "a"]);
    assert!(run.code == 39 && run.err.contains("does it speak plain http?"), "{run:?}");
}

#[test]
fn b5_a_registry_that_is_away_may_come_back() {
    let layout = Layout::usual("x");
    let began = Instant::now();
    let socket = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let image = format!("{}/team/app", socket.local_addr().expect("an address"));
    drop(socket);
    let run = push(layout.dir.path(), &image, &["--tag", "a", "--insecure", "true"]);
    assert_eq!(run.code, 32, "{run:?}");
    assert!(run.err.contains("Connection refused"), "{run:?}");
    assert!(began.elapsed().as_secs() >= 3, "it was not tried again");
    let never =
        push(layout.dir.path(), "169.254.169.254/team/app", &["--tag", "a", "--insecure", "true"]);
    assert!(never.code == 31 && never.err.contains("may not be dialled"), "{never:?}");
}

#[test]
fn b5_a_registry_that_breaks_off_may_come_back() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let image = format!("{}/team/app", listener.local_addr().expect("an address"));
    let met = std::thread::spawn(move || {
        // It reads the beginning of a request, and hangs up.
        let streams = listener.incoming().take(4);
        streams.filter_map(|stream| stream.ok()?.read(&mut [0; 16]).ok()).count()
    });
    let layout = Layout::usual("x");
    let run = push(layout.dir.path(), &image, &["--tag", "a", "--insecure", "true"]);
    assert_eq!(run.code, 32, "{run:?}");
    assert_eq!(met.join().expect("the server"), 4, "it is tried four times");
}

#[tokio::test(flavor = "multi_thread")]
async fn b5_a_push_has_a_deadline() {
    // It takes connections, and never answers.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let image = format!("{}/team/app", listener.local_addr().expect("an address"));
    let policy = Policy { insecure: true, ..Policy::default() };
    let total = Duration::from_secs(1);
    let options = Options { plain_http: true, credentials: Credentials::default(), total };
    let image = image.parse().expect("an image");
    let mut client = Client::new(Dialler::new(policy), image, options).expect("a client");
    let layout = Layout::usual("x");
    let opened = OpenLayout::open(layout.dir.path()).expect("a layout");
    let began = Instant::now();
    let error = client.push_blobs(&opened).await.expect_err("no answer");
    assert!(error.to_string().contains("the time is over"), "{error}");
    assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
}

#[test]
fn b5_wrong_usage_is_told_and_the_command_is_not_listed() {
    let layout = Layout::usual("x");
    for (image, more) in [
        ("127.0.0.1:1/Team", vec!["--tag", "a"]),
        ("127.0.0.1:1/team:tag", vec!["--tag", "a"]),
        ("127.0.0.1:1/team", vec![]),
        ("127.0.0.1:1/team", vec!["--tag", "a/b"]),
        ("127.0.0.1:1/team", vec!["--tag", "a", "--insecure", "perhaps"]),
    ] {
        let run = push(layout.dir.path(), image, &more);
        assert_eq!(run.code, 2, "{image} {more:?}: {run:?}");
    }
    let help = Command::new(env!("CARGO_BIN_EXE_convoke")).arg("--help").output().expect("convoke");
    assert!(!String::from_utf8_lossy(&help.stdout).contains("push"));
}

/// Blobs are streamed: a large layer does not go through the memory of the process.
#[test]
fn b5_a_large_layer_takes_little_memory() {
    let Some(registry) = Registry::start(&Settings::default()) else { return };
    let size = 300_u64 << 20;
    let layout = Layout::new(&[]);
    let file = layout.path("large");
    std::fs::File::create(&file).expect("a file").set_len(size).expect("its length");
    let mut hash = Sha256::new();
    let mut reader = std::fs::File::open(&file).expect("the file");
    let mut buffer = vec![0; 1 << 20];
    while let Ok(read @ 1..) = reader.read(&mut buffer) {
        hash.update(&buffer[..read]);
    }
    let digest = hash
        .finalize()
        .iter()
        .fold("sha256:".to_owned(), |text, byte| text + &format!("{byte:02x}"));
    std::fs::rename(&file, layout.file(&digest)).expect("renamed");
    let layout = layout.changed(|manifest| {
        manifest["layers"] = json!([{"mediaType": LAYER, "digest": digest, "size": size}]);
    });
    let image = format!("{}/team/app", registry.host());
    let mut child = Command::new(env!("CARGO_BIN_EXE_convoke"))
        .args(["push-image", "--insecure", "true", "--tag", "a", "--image", &image, "--layout"])
        .arg(layout.dir.path())
        .stdout(Stdio::null())
        .spawn()
        .expect("convoke");
    let status = format!("/proc/{}/status", child.id());
    let mut peak = 0_u64;
    let code = loop {
        // In KiB: the most that it has had so far.
        let now = std::fs::read_to_string(&status).unwrap_or_default();
        let now = now.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let now = now.and_then(|line| line.trim().trim_end_matches(" kB").parse().ok());
        peak = peak.max(now.unwrap_or(0));
        if let Some(code) = child.try_wait().expect("its end") {
            break code;
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    assert!(code.success());
    assert!((1 << 10..150 << 10).contains(&peak), "{peak} KiB");
}
