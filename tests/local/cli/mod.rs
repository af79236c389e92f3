//! The real binary: what it prints, and its exit codes.
#![allow(clippy::expect_used, clippy::panic, clippy::disallowed_types, clippy::disallowed_methods)]

mod init;
mod plan;
mod render;
mod validate;

use std::io::Read;
use std::path::Path;
use std::process::{Command, Stdio};

use tempfile::TempDir;

const AGENT: &str = "\
apiVersion: convoke.dev/v1alpha1
kind: Agent
metadata:
  name: writer
spec:
  modelAPI: shared
  model: small
  mcpServers:
    - search
    - clock
  config:
    instructionsFile: prompts/writer.md
";
const MODEL: &str = "\
apiVersion: convoke.dev/v1alpha1
kind: ModelAPI
metadata:
  name: shared
spec:
  mode: External
  external:
    url: https://models.example.com/v1
";
const PROMPT: &str = "You write.\nBe brief.\nBe kind.\n";

/// What a run gave.
#[derive(Debug)]
struct Run {
    code: i32,
    out: String,
    err: String,
}

fn convoke(args: &[&str]) -> Run {
    let output = Command::new(env!("CARGO_BIN_EXE_convoke")).args(args).output().expect("convoke");
    Run {
        code: output.status.code().expect("an exit code, not a signal"),
        out: String::from_utf8(output.stdout).expect("UTF-8"),
        err: String::from_utf8(output.stderr).expect("UTF-8"),
    }
}

/// A folder with these files.
fn folder(files: &[(&str, &str)]) -> TempDir {
    let folder = tempfile::tempdir().expect("folder");
    write(folder.path(), files);
    folder
}

fn write(folder: &Path, files: &[(&str, &str)]) {
    for (path, content) in files {
        let path = folder.join(path);
        std::fs::create_dir_all(path.parent().expect("parent")).expect("folder");
        std::fs::write(path, content).expect("file");
    }
}

fn git(folder: &Path, args: &[&str]) {
    let output = Command::new("git")
        .args(["-c", "user.name=t", "-c", "user.email=t@example.com", "-c", "commit.gpgsign=false"])
        .args(args)
        // The same files are the same commits in each run.
        .envs([("GIT_AUTHOR_DATE", "1700000000 +0000"), ("GIT_COMMITTER_DATE", "1700000000 +0000")])
        .current_dir(folder)
        .output()
        .expect("git");
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// A repository whose only commit holds these files.
fn repository(files: &[(&str, &str)]) -> TempDir {
    let folder = folder(files);
    git(folder.path(), &["init", "-q", "-b", "main"]);
    git(folder.path(), &["add", "-A"]);
    git(folder.path(), &["commit", "-q", "-m", "first"]);
    folder
}

/// The absolute form of a path.
fn full(path: &str) -> String {
    Path::new(path).canonicalize().expect("a path").to_str().expect("UTF-8").to_owned()
}

fn path(folder: &TempDir) -> &str {
    folder.path().to_str().expect("UTF-8")
}

#[test]
fn wrong_usage_is_exit_code_2_with_what_to_do() {
    for (args, error) in [
        (&["validate", "/nowhere"][..], "error: cannot read /nowhere: "),
        (&["validate", "Cargo.toml"], "is not a folder"),
        (&["validate", "--colour"], "unexpected argument '--colour'"),
        (&["plan", "examples-repo/team", "--against", "no-such-ref"], "cannot read no-such-ref"),
        (&["plan", "examples-repo/team", "--sync", "a"], "--sync needs --against cluster"),
        (
            &["plan", "examples-repo/team", "--operator-templates", "a"],
            "--operator-templates needs --against cluster",
        ),
        (
            &["operator", "--build-namespace=a", "--operator-namespace=a"],
            "--build-namespace must not be the namespace of the operator",
        ),
        (&["frobnicate"], "unrecognized subcommand 'frobnicate'"),
    ] {
        let run = convoke(args);
        assert_eq!(run.code, 2, "{args:?}: {}", run.err);
        assert!(run.err.contains(error), "{args:?}: {}", run.err);
        assert_eq!(run.out, "", "{args:?}");
    }
}

#[test]
fn completions_are_scripts_that_know_the_commands() {
    for shell in ["bash", "zsh", "fish"] {
        let run = convoke(&["completions", shell]);
        assert_eq!((run.code, run.err.as_str()), (0, ""), "{shell}");
        assert!(run.out.contains("validate") && run.out.contains("approve"), "{shell}");
    }
    let script = folder(&[("c.bash", &convoke(&["completions", "bash"]).out)]);
    let script = script.path().join("c.bash");
    let checked = Command::new("bash").arg("-n").arg(&script).status().expect("bash");
    assert!(checked.success());
}

#[test]
fn crds_are_five_documents_of_yaml() {
    let run = convoke(&["crds"]);
    assert_eq!((run.code, run.err.as_str()), (0, ""));
    let names: Vec<_> = run.out.lines().filter(|l| l.starts_with("  name: ")).collect();
    assert_eq!(names.len(), 5, "{names:?}");
    assert_eq!(run.out.lines().filter(|line| *line == "---").count(), 5);
    assert_eq!(run.out.matches("kind: CustomResourceDefinition\n").count(), 5);
}

#[test]
fn generated_files_are_fresh() {
    let file = std::fs::read_to_string("deploy/crds.yaml").unwrap_or_default();
    assert!(
        file == convoke(&["crds"]).out,
        "deploy/crds.yaml is stale: run `cargo run -- crds > deploy/crds.yaml`"
    );
}

#[test]
fn version_is_that_of_the_package() {
    let expected = format!("convoke {}\n", env!("CARGO_PKG_VERSION"));
    assert_eq!(convoke(&["version"]).out, expected);
    assert_eq!(convoke(&["--version"]).out, expected);
}

#[test]
fn a_reader_that_goes_away_is_no_error() {
    let mut child = Command::new(env!("CARGO_BIN_EXE_convoke"))
        .arg("crds")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("convoke");
    // More than a pipe holds is to be written, so closing it is noticed.
    drop(child.stdout.take());
    let mut err = String::new();
    child.stderr.take().expect("stderr").read_to_string(&mut err).expect("UTF-8");
    assert_eq!((child.wait().expect("exit").code(), err.as_str()), (Some(0), ""));
}

#[test]
fn g16_the_operator_is_nobody_else_and_writes_as_nobody_outside_a_namespace() {
    for name in ["", "system:masters", "a/b"] {
        let run = convoke(&["operator", "--default-service-account", name]);
        assert_eq!(run.code, 2, "{name:?}: {}", run.err);
    }
    // kube would put the kubeconfig's own `as` over the ServiceAccount of a GitSync.
    let config = r#"{"apiVersion": "v1", "kind": "Config", "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:1"}}],
        "users": [{"name": "u", "user": {"token": "t", "as": "admin"}}]}"#;
    let dir = folder(&[("config", config)]);
    let output = Command::new(env!("CARGO_BIN_EXE_convoke"))
        .args(["operator", "--health-addr=127.0.0.1:0", "--metrics-addr=127.0.0.1:0"])
        .env("KUBECONFIG", dir.path().join("config"))
        .output()
        .expect("convoke");
    let err = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{err}");
    assert!(err.contains("acts as somebody else"), "{err}");
}
