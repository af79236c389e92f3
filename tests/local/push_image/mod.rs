//! `convoke push-image`, the real binary, with a real registry: B5.
#![allow(clippy::expect_used, clippy::panic, clippy::disallowed_types, clippy::disallowed_methods)]

mod attach;
mod copies;
mod hostile;
mod layers;
mod note;
mod registry;
mod scans;
mod sign_in;
pub(crate) mod stand_in;
mod tokens;

#[path = "../../support/registry.rs"]
pub(crate) mod server;
#[path = "../../support/tokens.rs"]
mod token_service;

use std::path::{Path, PathBuf};
use std::process::Command;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tempfile::TempDir;

use server::{PASSWORD, USER};

const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const LAYER: &str = "application/vnd.oci.image.layer.v1.tar+gzip";
/// Bytes of a layer that is sent in several pieces.
const LARGE: usize = 700_000;
/// Seconds after which the program counts as one that hangs.
const HANGS: &str = "60";

/// What a run gave.
#[derive(Debug)]
struct Run {
    code: i32,
    out: String,
    err: String,
}

impl Run {
    /// All that was printed.
    fn said(&self) -> String {
        format!("{}{}", self.out, self.err)
    }
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

/// An OCI image layout in a folder.
struct Layout {
    dir: TempDir,
    manifest: Value,
}

impl Layout {
    /// An image with these layers.
    fn new(layers: &[Vec<u8>]) -> Self {
        let dir = tempfile::tempdir().expect("a folder");
        let layout = Self { dir, manifest: Value::Null };
        std::fs::create_dir_all(layout.path("blobs/sha256")).expect("blobs");
        std::fs::write(layout.path("oci-layout"), r#"{"imageLayoutVersion":"1.0.0"}"#)
            .expect("oci-layout");
        let config = json!({"architecture": "amd64", "os": "linux", "rootfs": {"type": "layers", "diff_ids": []}}).to_string();
        let config = layout.blob("application/vnd.oci.image.config.v1+json", config.as_bytes());
        let layers: Vec<_> = layers.iter().map(|layer| layout.blob(LAYER, layer)).collect();
        let manifest =
            json!({"schemaVersion": 2, "mediaType": MANIFEST, "config": config, "layers": layers});
        Self { manifest, ..layout }.indexed()
    }

    /// An image with a small and a large layer.
    fn usual(seed: &str) -> Self {
        Self::new(&[noise(seed, 1000), noise(&format!("{seed} large"), LARGE)])
    }

    fn path(&self, below: &str) -> PathBuf {
        self.dir.path().join(below)
    }

    /// The file of a blob with this digest.
    fn file(&self, digest: &str) -> PathBuf {
        self.path("blobs/sha256").join(digest.trim_start_matches("sha256:"))
    }

    /// Writes a blob. Returns its descriptor.
    fn blob(&self, kind: &str, bytes: &[u8]) -> Value {
        std::fs::write(self.file(&digest(bytes)), bytes).expect("a blob");
        json!({"mediaType": kind, "digest": digest(bytes), "size": bytes.len()})
    }

    /// Writes the manifest as it is now, and the index.
    fn indexed(self) -> Self {
        let manifest = self.blob(MANIFEST, self.manifest.to_string().as_bytes());
        let index = json!({"schemaVersion": 2, "manifests": [manifest]});
        std::fs::write(self.path("index.json"), index.to_string()).expect("index.json");
        self
    }

    /// The same with another manifest.
    fn changed(mut self, change: impl FnOnce(&mut Value)) -> Self {
        change(&mut self.manifest);
        self.indexed()
    }

    /// The digest of the manifest.
    fn digest(&self) -> String {
        digest(self.manifest.to_string().as_bytes())
    }

    /// The digest of a layer.
    fn layer(&self, number: usize) -> String {
        self.manifest["layers"][number]["digest"].as_str().expect("a digest").to_owned()
    }
}

/// Pushes a layout. What is said never has the password.
fn push(layout: &Path, image: &str, more: &[&str]) -> Run {
    let mut command = Command::new("timeout");
    command.args([
        "-k",
        "1",
        HANGS,
        env!("CARGO_BIN_EXE_convoke"),
        "push-image",
        "--image",
        image,
        "--layout",
    ]);
    command
        .arg(layout)
        .args(more)
        .env("RUST_LOG", "trace")
        .env("https_proxy", "http://127.0.0.1:1");
    let output = command.output().expect("convoke");
    let run = Run {
        code: output.status.code().expect("an exit code, not a signal"),
        out: String::from_utf8(output.stdout).expect("UTF-8"),
        err: String::from_utf8(output.stderr).expect("UTF-8"),
    };
    let said = run.said();
    assert_ne!(run.code, 124, "it hangs: {said}");
    for secret in [PASSWORD.to_owned(), basic(PASSWORD)] {
        assert!(!said.contains(&secret), "{said}");
    }
    run
}

/// What HTTP basic authentication sends for the user and a password.
fn basic(password: &str) -> String {
    STANDARD.encode(format!("{USER}:{password}"))
}

/// A folder with credentials for a registry.
fn auth(host: &str, entry: &Value) -> TempDir {
    let dir = tempfile::tempdir().expect("a folder");
    let config = json!({"auths": {host: entry}}).to_string();
    std::fs::write(dir.path().join("config.json"), config).expect("config.json");
    dir
}

/// A folder with user and password.
fn password(host: &str, password: &str) -> TempDir {
    auth(host, &json!({"auth": basic(password)}))
}

fn text(path: &Path) -> &str {
    path.to_str().expect("a path in UTF-8")
}
