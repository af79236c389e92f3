//! `convoke export-image`, `check-scan`, `describe-image` and `check-policy`, the real binary: B3.

use std::io::Read;
use std::os::unix::fs::symlink;

use super::*;

pub(super) fn convoke(arguments: &[&str]) -> Run {
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

#[test]
fn b3_rules_see_what_is_pushed_and_where_it_goes() {
    let layout = Layout::usual("x");
    let folder = tempfile::tempdir().expect("a folder");
    let into = folder.path().join("input.json");
    let describe = |layout: &Layout, into: &Path| {
        let fixed = ["describe-image", "--layout", text(layout.dir.path()), "--into", text(into)];
        let schema = format!("{}.schema", into.display());
        let fixed = [&fixed[..], &["--schema", &schema]].concat();
        let build = ["--image", "registry.example.com/a", "--strategy=Dockerfile", "--base-image="];
        convoke(&[&fixed[..], &build].concat())
    };
    let run = describe(&layout, &into);
    assert_eq!(run.code, 0, "{run:?}");
    assert!(run.out.contains(&layout.digest()), "{run:?}");
    let seen: Value = serde_json::from_slice(&std::fs::read(&into).expect("it")).expect("JSON");
    assert_eq!(seen["image"]["digest"], layout.digest());
    assert_eq!(seen["image"]["manifest"], layout.manifest);
    assert_eq!(seen["image"]["config"]["architecture"], "amd64");
    let config = layout.manifest["config"]["size"].as_u64().expect("a size");
    assert_eq!(seen["image"]["size"], 1000 + LARGE as u64 + config);
    let schema = std::fs::read(folder.path().join("input.json.schema")).expect("it");
    let schema: Value = serde_json::from_slice(&schema).expect("JSON");
    let names =
        |value: &Value| value.as_object().expect("an object").keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(&seen["build"]), names(&schema["properties"]["build"]["properties"]));
    let build = &seen["build"];
    assert_eq!(
        (&build["image"], &build["strategy"], &build["baseImage"], &build["revision"]),
        (&json!("registry.example.com/a"), &json!("Dockerfile"), &json!(""), &json!(""))
    );
    // What is there is not written over, and a link is not followed.
    assert_eq!(describe(&layout, &into).code, 1);
    let (link, target) = (folder.path().join("link"), folder.path().join("target"));
    symlink(&target, &link).expect("a link");
    assert_eq!(describe(&layout, &link).code, 1);
    assert!(!target.exists());
    // Another reading of it is none: a name that Go would read, and a digest that is wrong.
    let hidden = |text: &str| {
        let layout = Layout::usual("y");
        let config = layout.blob("application/vnd.oci.image.config.v1+json", text.as_bytes());
        layout.changed(|manifest| manifest["config"] = config)
    };
    let two = hidden(r#"{"config": {"env": ["API_TOKEN=x"]}}"#);
    let run = describe(&two, &folder.path().join("two"));
    assert!(run.code == 33 && run.err.contains("which some read as Env"), "{run:?}");
    let three = hidden(r#"{"config": {"Env": ["API_TOKEN=x"]}}"#);
    let config = three.file(three.manifest["config"]["digest"].as_str().expect("a digest"));
    std::fs::write(&config, r#"{"config": {"Env": ["ANY_TOKEN=x"]}}"#).expect("the same length");
    let run = describe(&three, &folder.path().join("three"));
    assert!(run.code == 33 && run.err.contains("has another digest"), "{run:?}");
    assert!(!folder.path().join("two").exists() && !folder.path().join("three").exists());
}

#[test]
fn b3_a_broken_rule_and_rules_that_cannot_be_used_refuse() {
    let folder = tempfile::tempdir().expect("a folder");
    let (report, finding) = (folder.path().join("report.json"), folder.path().join("finding"));
    let check = || {
        let fixed = ["check-policy", "--report", text(&report), "--finding-file", text(&finding)];
        convoke(&fixed)
    };
    let answer = |value: &Value| json!({"result": [{"expressions": [{"value": value, "text": "data.convoke.deny"}]}]});
    let run = check();
    assert!(run.code == 43 && run.err.contains("their report cannot be read"), "{run:?}");
    for (text, code, said, found) in [
        (answer(&json!([])), 0, "", None),
        (
            answer(&json!(["it is too large", "the user is root"])),
            44,
            "breaks 2 rules",
            Some("it is too large (and 1 more)".to_owned()),
        ),
        (answer(&json!(["é".repeat(400)])), 44, "breaks 1 rule", Some("é".repeat(150))),
        (
            json!({}),
            43,
            "no rule `deny`",
            Some(
                "the rules cannot be used: there is no rule `deny` in the package `convoke`"
                    .to_owned(),
            ),
        ),
        (
            json!({"errors": [{"message": "var x is unsafe", "location": {"row": 3}}]}),
            43,
            "line 3: var x",
            Some("the rules cannot be used: line 3: var x is unsafe".to_owned()),
        ),
    ] {
        let _ = std::fs::remove_file(&finding);
        std::fs::write(&report, text.to_string()).expect("a report");
        let run = check();
        assert_eq!(run.code, code, "{text}: {run:?}");
        assert!(run.err.contains(said), "{run:?}");
        assert_eq!(std::fs::read_to_string(&finding).ok(), found, "{text}");
    }
}

#[test]
fn b3_a_list_of_packages_goes_on_only_if_it_is_one() {
    let layout = Layout::usual("x");
    let folder = tempfile::tempdir().expect("a folder");
    let at = |name: &str| folder.path().join(name);
    let check = |into: &Path| {
        let fixed = ["check-sbom", "--image", "registry.example.com/team/app", "--layout"];
        let document = at("sbom.json");
        let files = [text(layout.dir.path()), "--document", text(&document), "--into", text(into)];
        convoke(&[&fixed[..], &files, &["--finding-file", text(&at("finding"))]].concat())
    };
    assert_eq!(check(&at("one")).code, 43);
    let document = json!({
        "spdxVersion": "SPDX-2.3",
        "packages": [{"SPDXID": "SPDXRef-Package-main"}, {"SPDXID": "SPDXRef-Package-a", "name": "a"}],
        "relationships": [{"spdxElementId": "SPDXRef-DOCUMENT", "relationshipType": "DESCRIBES", "relatedSpdxElement": "SPDXRef-Package-main"}],
    });
    let half = document.to_string().replace(r#","relationships""#, r#","others""#);
    std::fs::write(at("sbom.json"), half).expect("a list");
    let run = check(&at("one"));
    assert!(run.code == 43 && run.err.contains("it describes nothing"), "{run:?}");
    let said = std::fs::read_to_string(at("finding")).expect("a finding");
    assert_eq!(said, "the packages of the image are not listed: it describes nothing");
    assert!(!at("one").exists());
    std::fs::write(at("sbom.json"), document.to_string()).expect("a list");
    let run = check(&at("one"));
    assert!(run.code == 0 && run.out.ends_with("has 1 package\n"), "{run:?}");
    let list: Value = serde_json::from_slice(&std::fs::read(at("one")).expect("it")).expect("JSON");
    assert_eq!(list["name"], format!("registry.example.com/team/app@{}", layout.digest()));
    // What the build has left in its place is not followed.
    symlink(at("target"), at("link")).expect("a link");
    assert_eq!(check(&at("link")).code, 1);
    assert!(!at("target").exists());
    let large = std::fs::File::create(at("sbom.json")).expect("a file");
    large.set_len((32 << 20) + 1).expect("its length");
    let run = check(&at("two"));
    assert!(run.code == 43 && run.err.contains("more than 32 MiB"), "{run:?}");
}
