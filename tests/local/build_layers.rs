//! The script of `convoke-step-build` with a cache of layers (B13), as a shell runs it, with the real buildah and a real registry.
//!
//! It needs root, as the step does. Each case is a way in which a cache could give another image than a build without one.
#![allow(clippy::expect_used, clippy::panic, clippy::print_stderr)]
#![allow(clippy::disallowed_types, clippy::disallowed_methods, reason = "tests start programs")]

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use crate::push_image::server::{Registry, Settings};

const STEP: &str =
    include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/deploy/pipelines/step-build.yaml"));
const PROGRAMS: [&str; 5] = ["sh", "od", "head", "cat", "sleep"];
/// Runs the script with limits that no root has to raise.
const LIMITED: &str = r#"ulimit -n 1024; ulimit -u 32768; exec sh -c "$0" build "$@""#;
/// A command whose result says when it ran.
const STAMP: &str = "head -c 16 /dev/urandom | od";

/// A folder with everything, and the registry.
struct Place {
    dir: TempDir,
    registry: Registry,
    script: String,
}

/// What a build has made.
#[derive(Debug, PartialEq, Eq)]
struct Built {
    digest: String,
    /// The digest of the base image, as the step tells it.
    base: String,
    log: String,
}

impl Place {
    /// `None` without the programs. With `CI=true` they must be there.
    fn new() -> Option<Self> {
        let missing = |what: &str| {
            assert!(std::env::var("CI").as_deref() != Ok("true"), "{what} is missing");
            eprintln!("left out: {what} is missing");
        };
        let id = Command::new("id").arg("-u").output().expect("id");
        if id.stdout != b"0\n" {
            eprintln!("left out: this needs root");
            return None;
        }
        if Command::new("buildah").arg("--version").output().is_err() {
            missing("buildah");
            return None;
        }
        if !Path::new("/bin/busybox").exists() {
            missing("busybox (apt-get install busybox-static)");
            return None;
        }
        let registry = Registry::start(&Settings::default())?;
        let dir = tempfile::tempdir().expect("a folder");
        let (_, script) = STEP.split_once("script: |\n").expect("a script");
        let script: Vec<_> = script.lines().map(|line| line.get(10..).unwrap_or("")).collect();
        // The storage of this machine. All else is as it is.
        let script = script.join("\n").replace("/var/lib/containers/storage", "$STORAGE");
        let place = Self { dir, registry, script };
        fs::create_dir_all(place.path("base/bin")).expect("a folder");
        fs::copy("/bin/busybox", place.path("base/bin/busybox")).expect("busybox");
        for program in PROGRAMS {
            symlink("busybox", place.path("base/bin").join(program)).expect("a link");
        }
        place.write("app.txt", "one");
        Some(place)
    }

    fn path(&self, below: &str) -> PathBuf {
        self.dir.path().join(below)
    }

    /// Writes a file of the source folder.
    fn write(&self, name: &str, text: &str) {
        let folder = self.path("repository/app");
        fs::create_dir_all(&folder).expect("a folder");
        fs::write(folder.join(name), text).expect("a file");
    }

    fn image(&self, name: &str) -> String {
        format!("{}/team/{name}", self.registry.host())
    }

    /// Makes and pushes the base image, with an `ENV` that is not in its history. Gives its digest.
    fn base(&self, env: &str) -> String {
        let run = |args: &[&str]| {
            let mut command = Command::new("buildah");
            command
                .arg("--root")
                .arg(self.path("base-storage"))
                .arg("--runroot")
                .arg(self.path("run"));
            let done = command.args(["--storage-driver", "vfs"]).args(args).output();
            let done = done.expect("buildah");
            assert!(done.status.success(), "{args:?}: {}", String::from_utf8_lossy(&done.stderr));
            String::from_utf8(done.stdout).expect("UTF-8").trim().to_owned()
        };
        let _ = fs::remove_dir_all(self.path("base-storage"));
        let bin = self.path("base/bin").display().to_string();
        let container = run(&["from", "scratch"]);
        run(&["copy", "--quiet", &container, &bin, "/bin"]);
        run(&["config", "--env", env, &container]);
        run(&["commit", "--quiet", "--timestamp", "0", &container, "base"]);
        let file = self.path("base-digest").display().to_string();
        let to = format!("docker://{}:1", self.image("base"));
        run(&["push", "--quiet", "--tls-verify=false", "--digestfile", &file, "base", &to]);
        fs::read_to_string(file).expect("a digest").trim().to_owned()
    }

    fn dockerfile(&self, rest: &str) {
        self.write("Dockerfile", &format!("FROM {}:1\n{rest}", self.image("base")));
    }

    /// Builds as the steps do: fetches, builds, keeps. `kept` is the digest of the build before; gives the one for the next.
    fn build(&self, args: &[&str], kept: &mut String) -> Built {
        for folder in ["layers", "layers-before", "image", "storage"] {
            let _ = fs::remove_dir_all(self.path(folder));
        }
        let image = self.image("app");
        let at = |folder: &str| self.path(folder).display().to_string();
        let common = ["--image", image.as_str(), "--insecure=true"];
        convoke(
            &[&["fetch-layers", "--layers", &at("layers-before"), "--digest", kept][..], &common]
                .concat(),
        );
        let done = Command::new("bash")
            .args(["-c", LIMITED, &self.script])
            // What comes before is a base image.
            .arg("--")
            .args(args)
            .env("SOURCE_DIR", self.dir.path())
            .env("SUBFOLDER", "app")
            .env("DOCKERFILE", "Dockerfile")
            .env("IMAGE", &image)
            .env("INSECURE", "true")
            .env("LAYER_CACHE", "true")
            .env("BUILDAH_ISOLATION", "chroot")
            .env("STORAGE", self.path("storage"))
            .env("RESULT_BASE_DIGEST", self.path("base-of-it"))
            .output()
            .expect("sh");
        let log = String::from_utf8_lossy(&[done.stdout, done.stderr].concat()).into_owned();
        assert!(done.status.success(), "{log}");
        let file = self.path("digest");
        let _ = fs::remove_file(&file);
        convoke(
            &[
                &["push-layers", "--layers", &at("layers"), "--layout", &at("image")][..],
                &["--tag", "cvk-cache-1", "--digest-file", &file.display().to_string()],
                &common,
            ]
            .concat(),
        );
        *kept = fs::read_to_string(&file).expect("a digest").replace("none", "");
        let index = fs::read_to_string(self.path("image/index.json")).expect("a layout");
        let index: serde_json::Value = serde_json::from_str(&index).expect("JSON");
        let digest = index["manifests"][0]["digest"].as_str().expect("a digest").to_owned();
        let base = fs::read_to_string(self.path("base-of-it")).expect("a result");
        Built { digest, base, log }
    }

    /// The configuration of the image that was built last.
    fn config(&self) -> serde_json::Value {
        let json = |name: &str| -> serde_json::Value {
            let path = self.path("image").join(name);
            serde_json::from_slice(&fs::read(path).expect("a file")).expect("JSON")
        };
        let blob = |digest: &serde_json::Value| {
            format!("blobs/sha256/{}", &digest.as_str().expect("a digest")[7..])
        };
        let manifest = json(&blob(&json("index.json")["manifests"][0]["digest"]));
        json(&blob(&manifest["config"]["digest"]))
    }

    /// Changes what is built, and builds it with what was kept before and without. Both must make the same image.
    fn same(&self, what: &str, args: &[&str], kept: &mut String) -> Built {
        let cached = self.build(args, kept);
        let fresh = self.build(args, &mut String::new());
        let both = format!("{what}:\n{}\n---\n{}", cached.log, fresh.log);
        assert_eq!((&cached.digest, &cached.base), (&fresh.digest, &fresh.base), "{both}");
        cached
    }
}

fn convoke(args: &[&str]) {
    let done = Command::new(env!("CARGO_BIN_EXE_convoke")).args(args).output().expect("convoke");
    assert!(done.status.success(), "{args:?}: {}", String::from_utf8_lossy(&done.stderr));
}

fn uses(built: &Built) -> usize {
    built.log.matches("--> Using cache ").count()
}

#[test]
fn b13_what_did_not_change_is_not_run_again() {
    let Some(place) = Place::new() else { return };
    let base = place.base("BASE=1");
    let stages = format!(
        "RUN {STAMP} >/stamp\nFROM {}:1\nRUN {STAMP} >/other\nCOPY --from=0 /stamp /stamp\nCOPY app.txt /app.txt\n",
        place.image("base")
    );
    place.dockerfile(&stages);
    let mut kept = String::new();
    let first = place.build(&[], &mut kept);
    let mut again = kept.clone();
    let second = place.build(&[], &mut again);
    assert_eq!(second.digest, first.digest, "{}\n---\n{}", first.log, second.log);
    // Each command has an image of its own, and that of the last one is built on another of them.
    assert_eq!([&first.base, &second.base], [&base, &base], "{}\n---\n{}", first.log, second.log);
    assert_eq!(again, kept, "what is kept is the same");
    // Only the last command has something else to copy: both stamps stay.
    let layers =
        |place: &Place| place.config()["rootfs"]["diff_ids"].as_array().expect("a list").clone();
    let before = layers(&place);
    place.write("app.txt", "two");
    let third = place.build(&[], &mut again);
    assert_ne!(third.digest, first.digest);
    assert_eq!(layers(&place)[..3], before[..3], "{}", third.log);
    // Without what was kept both are new.
    place.build(&[], &mut String::new());
    assert_ne!(layers(&place)[1], before[1]);
}

#[test]
fn b13_what_was_kept_makes_no_other_image() {
    let Some(place) = Place::new() else { return };
    place.base("BASE=1");
    let kept = &mut String::new();
    let run = "RUN cat /app.txt >/copy; echo \"$X\" >>/copy\n";
    let usual = format!("ARG X=1\nCOPY app.txt /app.txt\n{run}ENV A=$X\nENV LAST=1\n");
    place.dockerfile(&usual);
    place.build(&[], kept);
    assert!(uses(&place.same("nothing changed", &[], kept)) > 0);

    place.dockerfile(&usual.replace("ENV LAST=1\n", ""));
    let built = place.same("the last ENV is gone", &[], kept);
    assert!(
        uses(&built) > 0 && !place.config()["config"]["Env"].to_string().contains("LAST"),
        "{}",
        built.log
    );

    place.write("app.txt", "two");
    place.same("a file is another one", &[], kept);
    let file = place.path("repository/app/app.txt");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).expect("mode");
    place.same("a file has another mode", &[], kept);

    let built = place.same("a build argument", &["X=2"], kept);
    assert_eq!(uses(&built), 0, "{}", built.log);
    assert!(place.config()["config"]["Env"].to_string().contains("A=2"));
    place.same("the same build argument", &["X=2"], kept);
    place.dockerfile(&usual.replace("ARG X=1", "ARG X=3"));
    place.same("the default of an argument", &[], kept);
    assert!(place.config()["config"]["Env"].to_string().contains("A=3"), "{}", place.config());
    place.dockerfile(&usual.replace("ARG X=1", "ARG W=0 \\\n  X=4"));
    place.same("a default in another line", &[], kept);
    place.dockerfile(&usual.replace("ARG X=1", "ARG W=0 \\\n  X=5"));
    place.same("another default in another line", &[], kept);
    assert!(place.config()["config"]["Env"].to_string().contains("A=5"), "{}", place.config());

    // The same layers and the same history, and another configuration.
    place.base("BASE=2");
    let built = place.same("another base image", &[], kept);
    assert!(built.log.contains("a base image is another one"), "{}", built.log);
    assert!(place.config()["config"]["Env"].to_string().contains("BASE=2"));

    place.dockerfile("RUN --mount=type=bind,source=app.txt,target=/x cat /x >/y\n");
    let built = place.same("a mount", &[], kept);
    assert!(kept.is_empty() && built.log.contains("no layers are taken or kept"), "{}", built.log);
}
