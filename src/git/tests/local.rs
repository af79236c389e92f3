use super::*;

fn example() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir_all(dir.path().join(".git")).unwrap();
    fs::create_dir_all(dir.path().join("prod/sub")).unwrap();
    fs::write(dir.path().join("prod/a.yaml"), "a: 1\n").unwrap();
    fs::write(dir.path().join("prod/sub/b.yaml"), "b: 1\n").unwrap();
    fs::write(dir.path().join("outside.md"), "text").unwrap();
    dir
}

#[test]
fn g6_a_folder_is_listed_like_a_commit() {
    let dir = example();
    let tree = Folder::open(dir.path(), "./prod", Limits::default()).unwrap();
    let paths: Vec<&str> = tree.entries().iter().map(|entry| entry.path.as_str()).collect();
    assert_eq!(paths, ["prod/a.yaml", "prod/sub/b.yaml"]);
    assert_eq!(&*tree.read(&tree.entries()[0], 100).unwrap(), b"a: 1\n");
    assert_eq!(tree.entries()[0].id.len(), 64);
    let outside = tree.lookup("outside.md").unwrap().unwrap();
    assert_eq!(&*tree.read(&outside, 100).unwrap(), b"text");
    assert_eq!(tree.lookup("prod").unwrap(), None);
    assert_eq!(tree.lookup("../x").unwrap(), None);
    assert_eq!(tree.lookup("prod/a.yaml/x").unwrap(), None);
    let error = tree.read(&outside, 3).unwrap_err();
    assert_eq!(error, TreeError::TooLarge { path: "outside.md".into(), limit: 3 });
}

#[cfg(unix)]
#[test]
fn v19_links_are_listed_but_never_followed() {
    let dir = example();
    let secret = dir.path().join("secret");
    fs::write(&secret, "s3cret").unwrap();
    std::os::unix::fs::symlink(&secret, dir.path().join("prod/link.yaml")).unwrap();
    std::os::unix::fs::symlink(dir.path(), dir.path().join("prod/loop")).unwrap();
    let tree = Folder::open(dir.path(), "prod", Limits::default()).unwrap();
    let links: Vec<_> =
        tree.entries().iter().filter(|entry| entry.kind == EntryKind::Symlink).collect();
    assert_eq!(links.len(), 2);
    for link in links {
        assert!(matches!(tree.read(link, 100), Err(TreeError::NotAFile { .. })));
    }
    let through = tree.lookup("prod/loop/secret").unwrap().unwrap();
    assert_eq!(through.kind, EntryKind::Symlink);
    let forged = TreeEntry { kind: EntryKind::File, ..through };
    assert!(matches!(tree.read(&forged, 100), Err(TreeError::Unreadable { .. })));
    let error = Folder::open(dir.path(), "prod/loop", Limits::default()).unwrap_err();
    assert_eq!(error.reason(), "PathNotAFolder");
}

#[test]
fn g6_budgets_become_problems() {
    let dir = example();
    let one = Limits { files: 1, ..Limits::default() };
    let tree = Folder::open(dir.path(), "", one).unwrap();
    assert_eq!((tree.entries().len(), tree.problems().len()), (1, 1));
    let flat = Limits { depth: 1, ..Limits::default() };
    let tree = Folder::open(dir.path(), "", flat).unwrap();
    assert_eq!(tree.problems()[0].path, "prod/sub");
    let small = Limits { file_bytes: 2, ..Limits::default() };
    let tree = Folder::open(dir.path(), "prod", small).unwrap();
    assert!(matches!(tree.read(&tree.entries()[0], 100), Err(TreeError::TooLarge { .. })));
}

#[test]
fn the_work_tree_around_a_folder_is_found() {
    let dir = example();
    let top = dir.path().canonicalize().unwrap();
    assert_eq!(repository_root(&dir.path().join("prod/sub")), top);
    let tree = Folder::containing(&dir.path().join("prod/sub"), Limits::default()).unwrap();
    assert_eq!(tree.entries()[0].path, "prod/sub/b.yaml");
    let missing = Folder::open(&top, "nowhere", Limits::default()).unwrap_err();
    assert_eq!(missing.reason(), "PathMissing");
}
