//! The command line on folders that want to break it, or the terminal that shows what it prints.
#![allow(clippy::expect_used, clippy::panic, clippy::disallowed_types, clippy::disallowed_methods)]

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::Command;

/// What a run gave: exit code, standard output, standard error.
fn convoke(args: &[&str]) -> (i32, String, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_convoke")).args(args).output().expect("convoke");
    let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
    let code = output.status.code().expect("an exit code, not a signal");
    (code, text(output.stdout), text(output.stderr))
}

fn model(name: &str) -> String {
    format!(
        "apiVersion: convoke.dev/v1alpha1\nkind: ModelAPI\nmetadata:\n  name: {name}\nspec:\n  mode: External\n  external:\n    url: https://m.example.com/v1\n"
    )
}

fn write(folder: &Path, name: &[u8], content: &[u8]) {
    let path = folder.join(OsStr::from_bytes(name));
    std::fs::create_dir_all(path.parent().expect("parent")).expect("folder");
    std::fs::write(path, content).expect("file");
}

/// What moves a cursor, changes colours, or makes a text look like another one.
fn is_hostile(c: char) -> bool {
    (c.is_control() && c != '\n')
        || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}')
}

#[test]
fn g10_a_hostile_folder_is_told_whole_and_harms_no_terminal() {
    let dir = tempfile::tempdir().expect("folder");
    let folder = dir.path();
    let deep = vec!["p".repeat(60); 5].join("/");
    let utf16: Vec<u8> = model("utf16").encode_utf16().flat_map(u16::to_le_bytes).collect();
    let laughs = ('b'..='j')
        .zip('a'..)
        .map(|(new, old)| format!("{new}: &{new} [{}]\n", vec![format!("*{old}"); 9].join(",")))
        .collect::<Vec<_>>()
        .concat();
    // A file, what it holds, and the code of its problem; none when it is good.
    let files: &[(&[u8], Vec<u8>, &str)] = &[
        (b"bom.yaml", ("\u{feff}".to_owned() + &model("bom")).into(), ""),
        (b"crlf.yaml", model("crlf").replace('\n', "\r\n").into(), ""),
        (b"cr.yaml", model("cr").replace('\n', "\r").into(), ""),
        (b"utf16.yaml", [b"\xff\xfe".to_vec(), utf16].concat(), "CVK0005"),
        (b"nul.yaml", (model("nul") + "\0").into(), "CVK0001"),
        (b"escape.yaml", (model("escape") + "\"\u{1b}[2J\": 1\n").into(), "CVK0001"),
        (b"key.yaml", (model("key") + "\"\\e[2J\\u009b31m\\u202e\\u2028\": 1\n").into(), "CVK0201"),
        (b"name.yaml", model("\"a\u{202e}\u{200b}b\"").into(), "CVK0104"),
        (b"line.yaml", (model("line") + "\u{202e}\u{2066}x: 1\n").into(), "CVK0201"),
        (b"tab.yaml", model("tab").replace("  name", "\tname").into(), "CVK0001"),
        (b"twice.yaml", (model("twice") + "spec: {}\n").into(), "CVK0002"),
        (b"merge.yaml", model("merge").replace("  mode", "  <<: {a: 1}\n  mode").into(), "CVK0003"),
        (b"self.yaml", (model("self") + "x: &x [*x]\n").into(), "CVK0003"),
        (
            b"laughs.yaml",
            (model("laughs") + "a: &a [x,x,x,x,x,x,x,x,x]\n" + &laughs).into(),
            "CVK0004",
        ),
        (b"nested.yaml", (model("nested") + "x: " + &"[".repeat(5000)).into(), "CVK0001"),
        (b"long.yaml", (model("long") + &"x".repeat(1_000_000) + ": 1\n").into(), "CVK0001"),
        (
            b"value.yaml",
            model("value").replace("m.example", &"x".repeat(900_000)).into(),
            "CVK0204",
        ),
        (b"longname.yaml", model(&"n".repeat(300)).into(), "CVK0104"),
        (b"large.yaml", vec![b'#'; (1 << 20) + 1], "CVK0004"),
        (b"docs.yaml", vec![model("docs"); 101].join("---\n").into(), "CVK0004"),
        (b"case.yaml", model("case").into(), "CVK0106"),
        (b"CASE.yaml", model("case").into(), "CVK0106"),
        (b"not\xffutf8.yaml", model("bytes").into(), "CVK0006"),
        (b"\x1b[31mred.yaml", model("red").into(), "CVK0006"),
        ("\u{202e}lmay.yaml".as_bytes(), model("rtl").into(), "CVK0006"),
    ];
    for (name, content, _) in files {
        write(folder, name, content);
    }
    write(folder, format!("{deep}/x.yaml").as_bytes(), model("deep").as_bytes());
    let path = folder.to_str().expect("UTF-8");

    let (code, out, err) = convoke(&["validate", path]);
    assert_eq!((code, err.as_str()), (1, ""));
    assert!(!out.contains(is_hostile), "{out:?}");
    let (code, json, _) = convoke(&["validate", path, "-o", "json"]);
    assert_eq!(code, 1);
    let problems: Vec<serde_json::Value> = serde_json::from_str(&json).expect("JSON");
    let codes = |path: &str| -> Vec<_> {
        problems.iter().filter(|p| p["path"] == path).filter_map(|p| p["code"].as_str()).collect()
    };
    for (name, _, wanted) in files {
        let shown: String = String::from_utf8_lossy(name)
            .chars()
            .map(|c| if is_hostile(c) { ' ' } else { c })
            .collect();
        let found = codes(&shown);
        assert!(
            if wanted.is_empty() { found.is_empty() } else { found.contains(wanted) },
            "{shown}: {found:?}"
        );
    }
    assert_eq!(codes(&format!("{deep}/x.yaml")), Vec::<&str>::new());
    let (_, sarif, _) = convoke(&["validate", path, "-o", "sarif"]);
    for text in [&json, &sarif] {
        assert!(!text.contains(is_hostile), "{text:?}");
    }
    // A folder with errors has no plan and no plain form; why not is told as harmlessly.
    for command in ["plan", "render"] {
        let (code, out, err) = convoke(&[command, path]);
        assert!(code != 0 && out.is_empty(), "{command}: {out}");
        assert!(!err.contains(is_hostile), "{err:?}");
    }
}

#[test]
fn g10_values_that_would_harm_a_terminal_are_escaped_in_what_programs_read() {
    let dir = tempfile::tempdir().expect("folder");
    let text = "apiVersion: convoke.dev/v1alpha1\nkind: Agent\nmetadata:\n  name: a\nspec:\n  description: \"x\\e[31m\\u009b\\u202e\\U000E0041y\"\n  modelAPI: m\n";
    write(dir.path(), b"a.yaml", text.as_bytes());
    let (code, json, _) = convoke(&["render", dir.path().to_str().expect("UTF-8"), "-o", "json"]);
    assert_eq!(code, 0);
    assert!(!json.contains(is_hostile), "{json:?}");
    let list: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!(list["items"][0]["spec"]["description"], "x\u{1b}[31m\u{9b}\u{202e}\u{e0041}y");
}
