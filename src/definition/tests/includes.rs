//! `…File` fields.

use crate::api::{Kind, ObjectId};
use crate::definition::tree::EntryKind;

use super::*;

fn spec(catalog: &Catalog, kind: Kind, name: &str) -> serde_json::Value {
    catalog.definitions.get(&ObjectId::new(kind, name)).expect("definition").spec.clone()
}

fn with_file(path: &str) -> String {
    agent("one", &format!("  config:\n    instructionsFile: {path}\n"))
}

#[test]
fn g8_files_are_read_into_their_field() {
    let tree = MemoryTree::new()
        .file("prod/agents/one.yaml", with_file("prompts/one.md"))
        .file("prod/agents/prompts/one.md", "\u{feff}Be brief.\nno: yaml: here\n")
        .file("prod/tools.yaml", "apiVersion: convoke.dev/v1alpha1\nkind: MCPServer\nmetadata: {name: t}\nspec: {toolsStringFile: /lib/tools.py}\n")
        .outside("lib/tools.py", "def f():\n    pass\n");
    let catalog = load(&tree);
    assert_eq!(shown(&catalog), Vec::<String>::new());
    assert_eq!(
        spec(&catalog, Kind::Agent, "one")["config"],
        serde_json::json!({"instructions": "Be brief.\nno: yaml: here\n"})
    );
    assert_eq!(
        spec(&catalog, Kind::MCPServer, "t"),
        serde_json::json!({"toolsString": "def f():\n    pass\n"})
    );
    // It comes out the same as when it had been written in place.
    let inline = load_one(
        "apiVersion: convoke.dev/v1alpha1\nkind: MCPServer\nmetadata: {name: t}\nspec: {toolsString: \"def f():\\n    pass\\n\"}\n",
    );
    assert_eq!(spec(&catalog, Kind::MCPServer, "t"), spec(&inline, Kind::MCPServer, "t"));
}

#[test]
fn g8_what_cannot_be_included_is_an_error_at_the_field() {
    let secret = "hunter2-hunter2";
    for (written, expected) in [
        ("missing.md", "CVK0402"),
        ("../../x.md", "CVK0403"),
        ("/../x.md", "CVK0403"),
        ("''", "CVK0403"),
        ("/.git/config", "CVK0403"),
        ("link.md", "CVK0404"),
        ("sub", "CVK0404"),
        ("odd", "CVK0404"),
        ("link.md/x", "CVK0402"),
        ("large.md", "CVK0405"),
        ("binary.md", "CVK0406"),
        ("nul.md", "CVK0406"),
        ("lfs.md", "CVK0406"),
        ("7", "CVK0301"),
        ("[a]", "CVK0301"),
    ] {
        let tree = MemoryTree::new()
            .file("p/one.yaml", with_file(written))
            .entry("p/link.md", EntryKind::Symlink)
            .entry("p/sub", EntryKind::Submodule)
            .entry("p/odd", EntryKind::Odd)
            .file("p/large.md", vec![b'x'; 256 * 1024 + 1])
            .file("p/binary.md", [secret.as_bytes(), b"\xff"].concat())
            .file("p/nul.md", [secret.as_bytes(), b"\0"].concat())
            .file("p/lfs.md", format!("version https://git-lfs.github.com/spec/v1\n{secret}"));
        let catalog = load(&tree);
        let found: Vec<_> =
            shown(&catalog).into_iter().filter(|line| line.starts_with("p/one.yaml")).collect();
        assert_eq!(found.len(), 1, "{written}: {found:?}");
        assert!(
            found[0].starts_with(&format!("p/one.yaml:8:23 {expected} ")),
            "{written}: {found:?}"
        );
        assert!(!format!("{:?}", catalog.problems).contains(secret), "{written}");
        assert_eq!(broken(&catalog), ["Agent/one"], "{written}");
    }
}

#[test]
fn g8_a_near_name_is_proposed() {
    let tree = MemoryTree::new()
        .file("p/one.yaml", with_file("promts/one.md"))
        .file("p/promts/on.md", "x")
        .file("p/prompts/one.md", "x");
    assert_eq!(load(&tree).problems[0].hint.as_deref(), Some("did you mean on.md?"));
}

#[test]
fn g8_both_forms_exclude_each_other_and_lengths_hold() {
    let text = agent("one", "  config:\n    instructions: x\n    instructionsFile: y.md\n");
    assert_eq!(places(&load_one(&text)), ["9:5 CVK0401"]);
    let tools = "apiVersion: convoke.dev/v1alpha1\nkind: MCPServer\nmetadata: {name: t}\nspec: {toolsStringFile: t.py}\n";
    let catalog = load(&MemoryTree::new().file("a.yaml", tools).file("t.py", "x".repeat(65_537)));
    assert_eq!(
        shown(&catalog),
        ["a.yaml:4:25 CVK0306 `spec.toolsString` must have at most 65536 characters, not 65537"]
    );
    // Elsewhere the name means nothing.
    assert_eq!(places(&load_one(&agent("one", "  instructionsFile: y.md\n"))), ["7:3 CVK0302"]);
}
