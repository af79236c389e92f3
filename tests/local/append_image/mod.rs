//! `convoke append-image`, the real binary, with a real registry: B11.
#![allow(clippy::expect_used, clippy::panic, clippy::disallowed_types, clippy::disallowed_methods)]

mod bases;
mod dependencies;
mod layouts;
mod refused;

use std::path::Path;
use std::process::Command;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tempfile::TempDir;

use crate::push_image::server::{PASSWORD, Registry, Settings, USER};

const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const INDEX: &str = "application/vnd.oci.image.index.v1+json";
const CONFIG: &str = "application/vnd.oci.image.config.v1+json";
const LAYER: &str = "application/vnd.oci.image.layer.v1.tar+gzip";
const DOCKER_MANIFEST: &str = "application/vnd.docker.distribution.manifest.v2+json";
const DOCKER_CONFIG: &str = "application/vnd.docker.container.image.v1+json";
const DOCKER_LAYER: &str = "application/vnd.docker.image.rootfs.diff.tar.gzip";
/// Seconds after which the program counts as one that hangs.
const HANGS: &str = "60";

/// What a run gave.
#[derive(Debug)]
struct Run {
    code: i32,
    out: String,
    err: String,
}

fn digest(bytes: &[u8]) -> String {
    Sha256::digest(bytes)
        .iter()
        .fold("sha256:".to_owned(), |text, byte| text + &format!("{byte:02x}"))
}

/// Bytes that look like no others.
fn noise(seed: &str, length: usize) -> Vec<u8> {
    let blocks = (0_u64..).flat_map(|number| Sha256::digest(format!("{seed} {number}")).to_vec());
    blocks.take(length).collect()
}

/// A folder of a repository with the folder `image`.
fn source(files: &[(&str, &str)]) -> TempDir {
    let dir = tempfile::tempdir().expect("a folder");
    for (name, text) in files {
        let path = dir.path().join("image").join(name);
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("folders");
        std::fs::write(path, text).expect("a file");
    }
    dir
}

fn usual() -> TempDir {
    source(&[("main.py", "print('hello')\n"), ("lib/x.py", "X = 1\n")])
}

/// Appends the folder `image` of a source, and pushes the image.
fn append(source: &Path, base: &str, image: &str, more: &[&str]) -> Run {
    ask(source, base, &[&["--image", image, "--insecure=true"], more].concat())
}

/// Runs the command. What is said never has the password.
fn ask(source: &Path, base: &str, more: &[&str]) -> Run {
    let mut command = Command::new("timeout");
    command.args(["-k", "1", HANGS, env!("CARGO_BIN_EXE_convoke"), "append-image"]);
    command.args(["--subfolder=image", "--base", base]);
    command.arg("--root").arg(source).args(more).env("RUST_LOG", "trace");
    let output = command.output().expect("convoke");
    let run = Run {
        code: output.status.code().expect("an exit code, not a signal"),
        out: String::from_utf8(output.stdout).expect("UTF-8"),
        err: String::from_utf8(output.stderr).expect("UTF-8"),
    };
    let said = format!("{}{}", run.out, run.err);
    assert_ne!(run.code, 124, "it hangs: {said}");
    let encoded = STANDARD.encode(format!("{USER}:{PASSWORD}"));
    assert!(!said.contains(PASSWORD) && !said.contains(&encoded), "{said}");
    run
}

/// A folder with user and password for what begins so.
fn password(place: &str) -> TempDir {
    let dir = tempfile::tempdir().expect("a folder");
    let config = json!({"auths": {place: {"auth": STANDARD.encode(format!("{USER}:{PASSWORD}"))}}});
    std::fs::write(dir.path().join("config.json"), config.to_string()).expect("config.json");
    dir
}

fn text(path: &Path) -> &str {
    path.to_str().expect("a path in UTF-8")
}

/// What a registry has, as a client with the password sees it.
struct Store<'a> {
    registry: &'a Registry,
    client: reqwest::Client,
}

impl<'a> Store<'a> {
    fn of(registry: &'a Registry) -> Self {
        let client = reqwest::Client::builder().no_proxy().build().expect("a client");
        Self { registry, client }
    }

    fn url(&self, path: &str) -> String {
        format!("http://{}/v2/{path}", self.registry.host())
    }

    async fn get(&self, path: &str) -> Option<Vec<u8>> {
        let asked = self.client.get(self.url(path)).basic_auth(USER, Some(PASSWORD));
        let asked = asked.header("accept", format!("{MANIFEST}, {INDEX}, {DOCKER_MANIFEST}"));
        let answer = asked.send().await.expect("an answer");
        let found = answer.status().is_success();
        let bytes = answer.bytes().await.expect("a body").to_vec();
        found.then_some(bytes)
    }

    async fn json(&self, path: &str) -> Value {
        let bytes = self.get(path).await.unwrap_or_else(|| panic!("{path} is not there"));
        serde_json::from_slice(&bytes).expect("JSON")
    }

    /// Puts a blob. Gives its descriptor.
    async fn blob(&self, name: &str, media_type: &str, bytes: &[u8]) -> Value {
        let begin = self.client.post(self.url(&format!("{name}/blobs/uploads/")));
        let begun = begin.basic_auth(USER, Some(PASSWORD)).send().await.expect("begun");
        let place = begun.headers()["location"].to_str().expect("a place").to_owned();
        // The place has a query already.
        let put = self.client.put(format!("{place}&digest={}", digest(bytes)));
        let put = put.body(bytes.to_vec());
        let done = put.basic_auth(USER, Some(PASSWORD)).send().await.expect("an answer");
        assert!(done.status().is_success(), "{}", done.status());
        json!({"mediaType": media_type, "digest": digest(bytes), "size": bytes.len()})
    }

    /// Puts a manifest. Gives its descriptor.
    async fn manifest(&self, name: &str, tag: &str, manifest: &Value) -> Value {
        let media_type = manifest["mediaType"].as_str().expect("a type").to_owned();
        let bytes = manifest.to_string().into_bytes();
        let put = self.client.put(self.url(&format!("{name}/manifests/{tag}")));
        let put = put.header("content-type", &media_type).body(bytes.clone());
        let done = put.basic_auth(USER, Some(PASSWORD)).send().await.expect("an answer");
        assert!(done.status().is_success(), "{}", done.status());
        json!({"mediaType": media_type, "digest": digest(&bytes), "size": bytes.len()})
    }

    /// Puts a base image with two layers. Gives its manifest.
    async fn base(&self, name: &str, tag: &str, types: [&str; 3]) -> Value {
        let [manifest, config, layer] = types;
        let (one, two) = (noise("one", 1000), noise("two", 3_000_000));
        let configuration = json!({
            "architecture": "amd64", "os": "linux", "created": "2026-01-01T00:00:00Z",
            "config": {"User": "1000", "Env": ["A=1"], "Cmd": ["python3"]},
            "rootfs": {"type": "layers", "diff_ids": [digest(b"1"), digest(b"2")]},
            "history": [{"created_by": "a"}, {"created_by": "b"}],
        });
        let config = self.blob(name, config, configuration.to_string().as_bytes()).await;
        let layers = [self.blob(name, layer, &one).await, self.blob(name, layer, &two).await];
        let written =
            json!({"schemaVersion": 2, "mediaType": manifest, "config": config, "layers": layers});
        self.manifest(name, tag, &written).await;
        written
    }
}

const OCI: [&str; 3] = [MANIFEST, CONFIG, LAYER];
