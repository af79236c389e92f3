//! Repositories that are far too large. With `CONVOKE_FULL` in the environment they are larger.

use std::io::{BufWriter, Write};
use std::process::{Command, Stdio};

use super::*;

fn size(usual: usize, full: usize) -> usize {
    if std::env::var_os("CONVOKE_FULL").is_some() { full } else { usual }
}

/// Makes a commit on main of what is written: lines of `git fast-import`.
fn import(world: &World, write: impl FnOnce(&mut dyn Write)) {
    let mut child = Command::new("git")
        .arg("-C")
        .arg(&world.repo.dir)
        .args(["fast-import", "--quiet", "--force"])
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    let mut to = BufWriter::new(child.stdin.take().unwrap());
    write!(to, "commit refs/heads/main\ncommitter a <a@example.com> 1700000000 +0000\ndata 1\nx\n")
        .unwrap();
    write(&mut to);
    to.into_inner().unwrap();
    assert!(child.wait().unwrap().success());
}

fn file(to: &mut dyn Write, path: &str) {
    write!(to, "M 100644 inline {path}\ndata 1\nx\n").unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn v22_a_hundred_thousand_files_end_at_the_budget() {
    let (world, count) = (World::new().await, size(100_000, 1_000_000));
    let blob = world.repo.blob(b"x");
    let names: Vec<_> = (0..count).map(|number| format!("f{number:07}.yaml")).collect();
    let many: Vec<_> = names.iter().map(|name| ("100644", name.as_bytes(), &*blob)).collect();
    let many = world.repo.raw_tree(&many);
    let good = world.repo.raw_tree(&[("100644", b"a.yaml", &blob)]);
    let top = world.repo.raw_tree(&[("40000", b"good", &good), ("40000", b"many", &many)]);
    world.repo.commit_tree("main", &top);
    let snapshot = sync(&world.remote(), "").await.unwrap();
    assert!(paths(&snapshot).contains(&"good/a.yaml"));
    assert!(snapshot.entries().len() <= 10_000);
    let told = &snapshot.problems()[0].message;
    let is_told =
        told.contains("there are more than 10000 files") || told.contains("too many entries");
    assert!(is_told, "{told}");
    assert_eq!(paths(&sync(&world.remote(), "good").await.unwrap()), ["good/a.yaml"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn v22_folders_a_thousand_deep_end_at_the_budget() {
    let (world, depth) = (World::new().await, size(1000, 10_000));
    import(&world, |to| {
        file(to, "a.yaml");
        file(to, &format!("{}x.yaml", "d/".repeat(depth)));
    });
    let snapshot = sync(&world.remote(), "").await.unwrap();
    assert_eq!(paths(&snapshot), ["a.yaml"]);
    let problem = &snapshot.problems()[0];
    assert!(problem.message.contains("nested deeper than 32 levels"), "{problem:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn v22_a_file_of_two_hundred_mebibytes_is_refused_and_without_it_the_rest_is_read() {
    let (world, mebibytes) = (World::new().await, size(200, 1024));
    import(&world, |to| {
        file(to, "a.yaml");
        write!(to, "M 100644 inline large.bin\ndata {}\n", mebibytes << 20).unwrap();
        let part = vec![0; 1 << 20];
        for _ in 0..mebibytes {
            to.write_all(&part).unwrap();
        }
        writeln!(to).unwrap();
    });
    let remote = world.remote_with(|options| options.timeout = Duration::from_secs(120));
    let error = sync(&remote, "").await.unwrap_err();
    assert_eq!(error.reason(), "PackTooLarge", "{error}");
    import(&world, |to| file(to, "a.yaml"));
    assert_eq!(paths(&sync(&remote, "").await.unwrap()), ["a.yaml"]);
}
