//! Scripts of the shipped build steps, as a shell runs them.

use std::fs;
use std::os::unix::fs::symlink;
use std::process::Command;

const VERIFY: &str =
    include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/deploy/pipelines/step-verify.yaml"));

#[test]
fn b1_b5_a_dockerfile_outside_of_the_source_folder_is_not_there() {
    let (_, script) = VERIFY.split_once("script: |\n").expect("a script");
    let script: Vec<_> = script.lines().map(str::trim_start).collect();
    let folder = tempfile::tempdir().expect("a folder");
    let root = folder.path().join("repository");
    for file in ["app/Dockerfile", "app/sub/Dockerfile", "shared/Dockerfile"] {
        fs::create_dir_all(root.join(file).parent().expect("a folder")).expect("a folder");
        fs::write(root.join(file), "FROM scratch").expect("a file");
    }
    symlink("../shared", root.join("app/link")).expect("a link");
    for (dockerfile, code) in [
        ("Dockerfile", 0),
        ("sub/Dockerfile", 0),
        ("link/Dockerfile", 22),
        ("../shared/Dockerfile", 22),
        ("none/Dockerfile", 22),
    ] {
        let run = Command::new("sh")
            .args(["-c", &script.join("\n")])
            .env("SOURCE_DIR", folder.path())
            .env("SUBFOLDER", "app")
            .env("DOCKERFILE", dockerfile)
            .env("STRATEGY", "Dockerfile")
            .output()
            .expect("sh");
        assert_eq!(run.status.code(), Some(code), "{dockerfile}: {run:?}");
    }
}
