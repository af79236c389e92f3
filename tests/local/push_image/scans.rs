//! `convoke export-image` and `convoke check-scan`, the real binary: B3.

use std::io::Read;
use std::os::unix::fs::symlink;

use super::*;

fn convoke(arguments: &[&str]) -> Run {
    let output = Command::new("timeout")
        .args(["-k", "1", HANGS, env!("CARGO_BIN_EXE_convoke")])
        .args(arguments)
        .output()
        .expect("convoke");
    Run {
        code: output.status.code().expect("an exit code, not a signal"),
        out: String::from_utf8(output.stdout).expect("UTF-8"),
        err: String::from_utf8(output.stderr).expect("UTF-8"),
    }
}

fn export(layout: &Layout, archive: &Path) -> Run {
    convoke(&["export-image", "--layout", text(layout.dir.path()), "--archive", text(archive)])
}

/// The files of an archive.
fn files(archive: &Path) -> Vec<(String, Vec<u8>)> {
    let mut tar = tar::Archive::new(std::fs::File::open(archive).expect("an archive"));
    let entries = tar.entries().expect("entries");
    entries
        .map(|entry| {
            let mut entry = entry.expect("an entry");
            let mut bytes = Vec::new();
            entry.read_to_end(&mut bytes).expect("its bytes");
            (entry.path().expect("a path").display().to_string(), bytes)
        })
        .collect()
}

#[test]
fn b3_what_a_scanner_reads_is_what_is_pushed() {
    let large = noise("large", LARGE);
    let layout = Layout::new(&[noise("a", 1000), large.clone(), noise("a", 1000)]);
    let folder = tempfile::tempdir().expect("a folder");
    let archive = folder.path().join("image.tar");
    let run = export(&layout, &archive);
    assert_eq!(run.code, 0, "{run:?}");
    assert!(run.out.contains(&layout.digest()), "{run:?}");
    let files = files(&archive);
    let (name, manifest) = files.last().expect("a manifest");
    assert_eq!(name, "manifest.json");
    let manifest: Value = serde_json::from_slice(manifest).expect("JSON");
    let bytes = |path: &Value| {
        let found = files.iter().find(|(name, _)| path == name);
        found.map(|(_, bytes)| bytes.clone()).expect("it is in the archive")
    };
    let layers = manifest[0]["Layers"].as_array().expect("a list");
    assert_eq!(layers.len(), 3);
    assert_eq!(bytes(&layers[1]), large);
    assert_eq!(layers[0], layers[2]);
    assert_eq!(files.len(), 4, "a layer that is there twice is written once");
    for layer in layers.iter().chain([&manifest[0]["Config"]]) {
        let named = layer.as_str().expect("a path").replace("blobs/sha256/", "sha256:");
        assert_eq!(digest(&bytes(layer)), named);
    }
    // What is there is not written over, and a link is not followed.
    assert_eq!(export(&layout, &archive).code, 1);
    let (link, target) = (folder.path().join("link"), folder.path().join("target"));
    symlink(&target, &link).expect("a link");
    assert_eq!(export(&layout, &link).code, 1);
    assert!(!target.exists());
}

#[test]
fn b3_a_lowest_layer_without_compression_is_put_into_gzip_where_others_have_one() {
    let plain = noise("plain", LARGE);
    let gzip = [&[0x1f, 0x8b][..], &noise("gzip", 1000)].concat();
    let layout = Layout::new(&[plain.clone(), gzip.clone()]);
    let folder = tempfile::tempdir().expect("a folder");
    let archive = folder.path().join("image.tar");
    let run = export(&layout, &archive);
    assert_eq!(run.code, 0, "{run:?}");
    let files = files(&archive);
    let bytes = |layer: usize| {
        let path = layout.layer(layer).replace("sha256:", "blobs/sha256/");
        files.iter().find(|(name, _)| *name == path).expect("it is in the archive").1.clone()
    };
    let mut read = Vec::new();
    flate2::read::GzDecoder::new(&bytes(0)[..]).read_to_end(&mut read).expect("gzip");
    assert_eq!(read, plain);
    assert_eq!(bytes(1), gzip);
    // One that is not what the layout says is refused in this way, too.
    std::fs::write(layout.file(&layout.layer(0)), noise("other", LARGE)).expect("a layer");
    let run = export(&layout, &folder.path().join("other.tar"));
    assert_eq!(run.code, 33, "{run:?}");
}

#[test]
fn b3_an_image_that_would_not_be_pushed_is_not_scanned() {
    let folder = tempfile::tempdir().expect("a folder");
    let changed = Layout::usual("changed");
    let mut bytes = std::fs::read(changed.file(&changed.layer(1))).expect("a layer");
    bytes[LARGE - 1] ^= 1;
    std::fs::write(changed.file(&changed.layer(1)), bytes).expect("a layer");
    let linked = Layout::usual("linked");
    let layer = linked.file(&linked.layer(0));
    std::fs::rename(&layer, linked.path("layer")).expect("renamed");
    symlink(linked.path("layer"), &layer).expect("a link");
    let missing = Layout::usual("missing");
    std::fs::remove_file(missing.file(&missing.layer(0))).expect("removed");
    for (name, layout) in [("changed", changed), ("linked", linked), ("missing", missing)] {
        let run = export(&layout, &folder.path().join(name));
        assert_eq!(run.code, 33, "{name}: {run:?}");
    }
}

/// A report with this many packages, each with one vulnerability.
fn report(packages: usize) -> String {
    let package = |number: usize| {
        json!({
            "package": {"name": format!("p{number:03}"), "version": "1.0", "ecosystem": "PyPI"},
            "vulnerabilities": [{"id": format!("OSV-{number}"), "summary": "é".repeat(1000)}],
            "groups": [{"ids": [format!("OSV-{number}")], "max_severity": "7.5"}],
        })
    };
    let packages: Vec<_> = (0..packages).map(package).collect();
    json!({"results": [{"source": {"path": "/repo/uv.lock"}, "packages": packages}]}).to_string()
}

#[test]
fn b3_a_report_is_judged_and_only_a_whole_one() {
    let folder = tempfile::tempdir().expect("a folder");
    let (file, finding) = (folder.path().join("report.json"), folder.path().join("finding"));
    let check = |what: &str, more: &[&str]| {
        let fixed = ["check-scan", "--what", what, "--root", "/repo", "--report", text(&file)];
        convoke(&[&fixed[..], &["--finding-file", text(&finding)], more].concat())
    };
    // The scanner has written nothing, or not all of it.
    assert_eq!(check("image", &[]).code, 43);
    let whole = report(60);
    std::fs::write(&file, &whole[..whole.len() - 1]).expect("a report");
    let run = check("image", &[]);
    assert!(run.code == 43 && run.err.contains("cannot be read"), "{run:?}");
    assert!(!finding.exists());

    std::fs::write(&file, &whole).expect("a report");
    for (what, code) in [("dependencies", 41), ("image", 42)] {
        let run = check(what, &[]);
        assert_eq!(run.code, code, "{run:?}");
        assert!(run.err.contains("60 known vulnerabilities"), "{run:?}");
        assert!(run.out.ends_with("\nand 10 more\n"), "{run:?}");
        assert_eq!(run.out.lines().count(), 51);
        assert!(run.out.len() < 51 * 1000, "a line is short");
    }
    let said = std::fs::read_to_string(&finding).expect("a finding");
    assert!(said.starts_with("uv.lock: p000 1.0 (PyPI) has OSV-0, high (7.5), no fixed version"));
    assert!(said.ends_with(" (and 59 more)") && said.len() < 350, "{said}");

    // What is found refuses also where nobody can be told of it.
    let unwritable = text(folder.path());
    let fixed = ["check-scan", "--what", "image", "--report", text(&file)];
    let run = convoke(&[&fixed[..], &["--finding-file", unwritable]].concat());
    assert_eq!(run.code, 42, "{run:?}");

    for (more, left_out) in [
        (&["--minimum-severity", "critical"][..], "60 less bad"),
        (&["--ignore-unfixed", "true"], "60 without a fix"),
    ] {
        let run = check("image", more);
        assert_eq!(run.code, 0, "{run:?}");
        assert!(run.out.contains(left_out), "{run:?}");
    }
    std::fs::write(&file, report(1)).expect("a report");
    // Data, also when it looks like an option.
    assert_eq!(check("dependencies", &["--", "--what", "OSV-0"]).code, 0);
    assert_eq!(check("dependencies", &["--", "OSV-1"]).code, 41);
    std::fs::write(&file, "{\"results\": []}").expect("a report");
    assert_eq!(check("dependencies", &[]).code, 0);
}
