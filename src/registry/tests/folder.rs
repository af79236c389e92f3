use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};

use flate2::read::GzDecoder;
use tempfile::TempDir;

use super::*;

fn folder(files: &[(&str, &str)]) -> TempDir {
    let dir = tempfile::tempdir().expect("a folder");
    for (name, text) in files {
        let path = dir.path().join(name);
        fs::create_dir_all(path.parent().expect("a folder")).expect("folders");
        fs::write(path, text).expect("a file");
    }
    dir
}

fn made(dir: &TempDir) -> Result<Layer, FolderError> {
    layer(dir.path(), ".", "/opt/app", dir.path().parent().expect("a folder"))
}

/// The bytes of a layer.
fn bytes(layer: &Layer) -> Vec<u8> {
    let mut bytes = Vec::new();
    layer
        .blob
        .read(|piece| {
            bytes.extend_from_slice(&piece);
            true
        })
        .expect("the layer");
    bytes
}

/// What an entry is: kind, mode, owner, time, and its text or target.
type Told = (EntryType, u32, (u64, u64, u64), String);

fn entries(layer: &Layer) -> Vec<(String, Told)> {
    let bytes = bytes(layer);
    let mut archive = tar::Archive::new(GzDecoder::new(&bytes[..]));
    let one = |entry: io::Result<tar::Entry<'_, _>>| {
        let mut entry = entry.expect("an entry");
        let path = String::from_utf8_lossy(&entry.path_bytes()).into_owned();
        let link = entry.link_name().expect("a name").map(|name| name.display().to_string());
        let header = entry.header();
        let owner =
            (header.uid().expect("it"), header.gid().expect("it"), header.mtime().expect("it"));
        let (kind, mode) = (header.entry_type(), header.mode().expect("a mode"));
        let mut text = String::new();
        entry.read_to_string(&mut text).expect("text");
        (path, (kind, mode, owner, link.unwrap_or(text)))
    };
    archive.entries().expect("entries").map(one).collect()
}

#[test]
fn b11_a_layer_has_what_the_folder_has_and_nothing_of_the_machine() {
    let long = format!("a/{}/{}.txt", "d".repeat(120), "f".repeat(120));
    let dir = folder(&[("b.sh", "#!"), ("a/x", "1"), ("a.txt", "2"), (&long, "3"), ("ü", "")]);
    let mode = fs::Permissions::from_mode(0o4700);
    fs::set_permissions(dir.path().join("b.sh"), mode).expect("a mode");
    fs::set_permissions(dir.path().join("a.txt"), fs::Permissions::from_mode(0o606))
        .expect("a mode");
    fs::create_dir(dir.path().join("empty")).expect("a folder");
    symlink("../a.txt", dir.path().join("a/link")).expect("a link");
    let layer = made(&dir).expect("a layer");
    let told = |kind, mode, text: &str| (kind, mode, (0, 0, 0), text.to_owned());
    let (file, directory) = (EntryType::Regular, EntryType::Directory);
    let want = [
        ("opt/app/", told(directory, 0o755, "")),
        ("opt/app/a/", told(directory, 0o755, "")),
        (&format!("opt/app/a/{}/", "d".repeat(120)), told(directory, 0o755, "")),
        (&format!("opt/app/{long}"), told(file, 0o644, "3")),
        ("opt/app/a/link", told(EntryType::Symlink, 0o777, "../a.txt")),
        ("opt/app/a/x", told(file, 0o644, "1")),
        ("opt/app/a.txt", told(file, 0o644, "2")),
        ("opt/app/b.sh", told(file, 0o755, "#!")),
        ("opt/app/empty/", told(directory, 0o755, "")),
        ("opt/app/ü", told(file, 0o644, "")),
    ]
    .map(|(path, told)| (path.to_owned(), told));
    assert_eq!(entries(&layer), want);
    assert_eq!(layer.entries, want.len());
    let mut tar = Vec::new();
    GzDecoder::new(&bytes(&layer)[..]).read_to_end(&mut tar).expect("gzip");
    assert_eq!(Digest::of(&tar), layer.diff_id);
    assert_eq!(
        (Digest::of(&bytes(&layer)), bytes(&layer).len() as u64),
        (layer.blob.digest, layer.blob.size)
    );
}

#[test]
fn b11_the_same_folder_makes_the_same_layer() {
    let files = [("z/1", "one"), ("a", "two"), ("m/n/o", "three")];
    let one = folder(&files);
    let mut other = files;
    other.reverse();
    let other = folder(&other);
    // Times, modes that mean nothing, and more links to a file.
    let old = fs::FileTimes::new().set_modified(std::time::UNIX_EPOCH);
    fs::File::open(other.path().join("a")).expect("a file").set_times(old).expect("a time");
    let tight = |path: &str, mode| {
        fs::set_permissions(other.path().join(path), fs::Permissions::from_mode(mode)).expect("it");
    };
    tight("a", 0o640);
    tight("m", 0o700);
    let elsewhere = tempfile::tempdir().expect("a folder");
    fs::hard_link(other.path().join("a"), elsewhere.path().join("b")).expect("another name");
    let (one, other) = (made(&one).expect("a layer"), made(&other).expect("a layer"));
    assert_eq!(bytes(&one), bytes(&other));
    // The digest is part of what images are compared by: another library or level must not change it unnoticed.
    insta::assert_snapshot!(one.diff_id.to_string(), @"sha256:1d9a95cb1502c397d95f253efaa46dea99fc4f150439558608650a2dc7963f64");
    let changed = folder(&[("z/1", "one"), ("a", "two"), ("m/n/o", "threE")]);
    assert_ne!(made(&changed).expect("a layer").blob.digest, one.blob.digest);
    let runs = folder(&files);
    fs::set_permissions(runs.path().join("a"), fs::Permissions::from_mode(0o744)).expect("a mode");
    assert_ne!(made(&runs).expect("a layer").blob.digest, one.blob.digest);
}

#[test]
fn b11_links_stay_in_the_folder() {
    let refused = |at: &str, target: &str| {
        let dir = folder(&[("a/b/file", "x")]);
        symlink(target, dir.path().join(at)).expect("a link");
        made(&dir).err().map(|error| error.to_string())
    };
    for (at, target) in [
        ("link", "a"),
        ("link", "./a//b/"),
        ("link", "missing"),
        ("a/b/link", "../../a"),
        ("a/link", ".."),
    ] {
        assert_eq!(refused(at, target), None, "{at} {target}");
    }
    for (at, target) in [
        ("link", ".."),
        ("link", "/etc/passwd"),
        ("link", "../outside"),
        ("a/b/link", "../../../x"),
        // What is above a name that may be a link is not known.
        ("link", "a/.."),
        ("a/b/link", "../b/../../.."),
    ] {
        let error = refused(at, target).unwrap_or_else(|| panic!("{at} {target} is taken"));
        let want = format!("opt/app/{at} is a symbolic link out of the folder, to {target}");
        assert_eq!(error, want);
    }
}

#[test]
fn b11_no_link_is_followed_and_nothing_special_is_read() {
    let secret = folder(&[("secret", "canary")]);
    let root = folder(&[("source/file", "x")]);
    symlink(secret.path(), root.path().join("out")).expect("a link");
    symlink(root.path(), secret.path().join("root")).expect("a link");
    let at = |root: &Path, subfolder: &str| {
        layer(root, subfolder, "/app", secret.path()).map(|layer| layer.entries)
    };
    assert_eq!(at(root.path(), "./source/"), Ok(2));
    for (root, subfolder, why) in [
        (root.path().to_owned(), "out", "symbolic links are not followed"),
        (root.path().to_owned(), "out/x", "symbolic links are not followed"),
        (root.path().to_owned(), "source/../out", "a path with \"..\""),
        (root.path().to_owned(), "source/file", "symbolic links are not followed"),
        (root.path().to_owned(), "missing", "cannot be read: No such file"),
        (secret.path().join("root"), "source", "symbolic links are not followed"),
    ] {
        let error = at(&root, subfolder).expect_err(subfolder).to_string();
        assert!(error.contains(why), "{error}");
    }
    let pipe = folder(&[("file", "x")]);
    rustix::fs::mknodat(
        CWD,
        pipe.path().join("pipe"),
        FileType::Fifo,
        Mode::from_raw_mode(0o600),
        0,
    )
    .expect("a pipe");
    let error = made(&pipe).expect_err("a pipe").to_string();
    assert_eq!(error, "opt/app/pipe is a pipe, a socket or a device");
    let socket = folder(&[("file", "x")]);
    let _listener = std::os::unix::net::UnixListener::bind(socket.path().join("s")).expect("it");
    assert!(made(&socket).is_err());
    for name in [".wh.file", ".wh..wh..opq"] {
        let error = made(&folder(&[(name, "")])).expect_err(name).to_string();
        assert!(error.contains("takes as a deleted file"), "{error}");
    }
    let error = layer(root.path(), "source", "/app", &root.path().join("none"));
    assert!(matches!(error, Err(FolderError::Scratch { .. })), "{error:?}");
}

#[test]
fn b11_a_folder_has_budgets() {
    let large = folder(&[("file", "x")]);
    let file = fs::File::create(large.path().join("one")).expect("a file");
    file.set_len(MAX_BYTES + 1).expect("a sparse file");
    let error = made(&large).expect_err("too large").to_string();
    assert_eq!(error, "the folder has more than 1024 MiB");

    let deep = tempfile::tempdir().expect("a folder");
    let mut path = deep.path().to_owned();
    for _ in 0..=MAX_DEPTH {
        path.push("d");
    }
    fs::create_dir_all(&path).expect("folders");
    let error = made(&deep).expect_err("too deep").to_string();
    assert!(error.contains("more than 100 folders deep"), "{error}");

    let name = "n".repeat(250);
    let path: Vec<_> = (0..5).map(|_| name.as_str()).collect();
    let long = folder(&[(&path.join("/"), "")]);
    let error = made(&long).expect_err("too long").to_string();
    assert!(error.contains("a path of more than 1024 bytes"), "{error}");
    // The message does not have all of it.
    assert!(error.len() < 500, "{error}");
}

#[test]
fn b11_a_folder_has_at_most_so_many_files() {
    let many = tempfile::tempdir().expect("a folder");
    for number in 0..=MAX_ENTRIES / 1000 {
        let first = many.path().join(format!("{number}-0"));
        fs::write(&first, "").expect("a file");
        for name in 1..1000 {
            fs::hard_link(&first, many.path().join(format!("{number}-{name}"))).expect("a file");
        }
    }
    let error = made(&many).expect_err("too many").to_string();
    assert_eq!(error, "the folder has more than 100000 files");
}

#[test]
fn b11_of_packages_what_python_has_compiled_is_left_out() {
    let dir = folder(&[
        ("demo/__init__.py", ""),
        ("demo/__pycache__/__init__.cpython-313.pyc", "x"),
        ("demo/a/__pycache__/b.pyc", "x"),
        ("__pycache__", "a file is left out, too"),
        ("demo/__pycache__.py", ""),
    ]);
    let scratch = tempfile::tempdir().expect("a folder");
    let layer = packages(dir.path(), "/opt/app", scratch.path()).expect("a layer");
    let names: Vec<_> = entries(&layer).into_iter().map(|(name, _)| name).collect();
    let want = ["", "demo/", "demo/__init__.py", "demo/__pycache__.py", "demo/a/"];
    assert_eq!(names, want.map(|name| format!("opt/app/{name}")));
    // In a source folder it is like any other.
    assert_eq!(made(&dir).expect("a layer").entries, 10);
}

#[test]
fn b11_a_single_file_is_read_below_its_folder_only() {
    let dir = folder(&[("a/b.txt", "text"), ("other", "secret")]);
    let at = |name: &str| dir.path().join(name);
    let read = |path: &str| {
        let mut text = String::new();
        file(dir.path(), path)
            .map(|mut file| file.read_to_string(&mut text).map(|_| text).expect("text"))
    };
    assert_eq!(read("a/b.txt"), Ok("text".into()));
    assert_eq!(read("./a/b.txt"), Ok("text".into()));
    symlink("../other", at("a/link")).expect("a link");
    symlink("a", at("folder")).expect("a link");
    rustix::fs::mknodat(CWD, at("a/pipe"), FileType::Fifo, Mode::from_raw_mode(0o600), 0)
        .expect("a pipe");
    for path in ["a/link", "folder/b.txt", "a/../other", "a", "a/pipe", "a/none", ""] {
        read(path).expect_err(path);
    }
}
