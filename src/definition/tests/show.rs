//! How problems are shown.

use std::collections::BTreeSet;

use crate::definition::Code;
use crate::definition::diagnostic::{render_json, render_line, render_text};

use super::*;

#[test]
fn text_shows_place_line_and_hint() {
    let text = agent("one", "  modle: x\n");
    let tree = MemoryTree::new().file("prod/a.yaml", &text).file("w.yaml", "apiVersion: convoke.dev/v1alpha1\nkind: MCPServer\nmetadata: {name: w}\nspec: {package: {registry: PyPI, name: p}}\n");
    let problems = load(&tree).problems;
    let out = render_text(&problems, Some(&tree.without("w.yaml")));
    assert_eq!(
        out,
        "\
prod/a.yaml:7:3: error[CVK0302]: unknown field `modle` in `spec`
  |
7 |   modle: x
  |   ^
  hint: did you mean `model`?

w.yaml:4:40: warning[CVK0502]: the package has no version, so each start may run another one
  hint: pin it: add `version` with the exact version
"
    );
    assert_eq!(
        render_line(&problems[0]),
        "prod/a.yaml:7:3: error[CVK0302]: unknown field `modle` in `spec`"
    );
}

#[test]
fn text_without_a_place_or_source_still_reads() {
    let problems = load(&MemoryTree::new()).problems;
    let out = render_text(&problems, None);
    assert!(out.starts_with("error[CVK0011]: there is nothing"), "{out}");
}

#[test]
fn long_lines_are_cut_around_the_place() {
    let text = agent("one", &format!("  description: {}: x\n", "ä".repeat(500)));
    let tree = MemoryTree::new().file("a.yaml", &text);
    let out = render_text(&load(&tree).problems, Some(&tree));
    let lines: Vec<_> = out.lines().collect();
    assert!(lines[2].chars().count() < 110, "{out}");
    assert!(lines[3].ends_with('^') && lines[3].chars().count() < 110, "{out}");
}

#[test]
fn a_file_cannot_write_on_the_readers_terminal() {
    let tree =
        MemoryTree::new().file("a\x1b[2J\n.yaml", agent("one", "  \"x\\e[31m\\u202e\": 1\n"));
    let problems = load(&tree).problems;
    let shown = tree.file("a\x1b[2J\n.yaml", agent("one", "  \x1b[2J: 1\n"));
    let out = render_text(&problems, Some(&shown));
    assert!(!out.contains(['\x1b', '\u{202e}']), "{out:?}");
    assert_eq!(out.lines().count(), 4 + usize::from(problems[0].hint.is_some()), "{out:?}");
}

#[test]
fn json_is_the_status_form() {
    let problems = load_one(&agent("one", "  x: 1\n")).problems;
    let value: serde_json::Value = serde_json::from_str(&render_json(&problems)).expect("JSON");
    assert_eq!(value[0]["severity"], "Error");
    assert_eq!(value[0]["line"], 7);
    assert_eq!(value[0]["code"], "CVK0302");
    assert_eq!(value[0]["object"], "Agent/one");
}

#[test]
fn codes_are_unique_and_well_formed() {
    let texts: BTreeSet<_> = Code::ALL.iter().map(|code| code.as_str()).collect();
    assert_eq!(texts.len(), Code::ALL.len());
    assert!(texts.iter().all(|text| text.len() == 7 && text.starts_with("CVK")));
}
