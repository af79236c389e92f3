//! Input that is meant to hurt: bombs, depth, size.

#![allow(clippy::format_collect)] // Inputs are built once.

use std::fmt::Write as _;

use crate::definition::tree::{EntryKind, TreeProblem};

use super::*;

#[test]
fn v26_alias_bombs_end_at_the_budget() {
    let mut text =
        agent("one", "").replace("spec:", "bomb:\n  a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n");
    for level in 1..30 {
        let inner = vec![format!("*a{}", level - 1); 10].join(", ");
        let _ = writeln!(text, "  a{level}: &a{level} [{inner}]");
    }
    let catalog = load_one(&text);
    assert!(catalog.definitions.is_empty());
    assert!(places(&catalog)[0].ends_with("CVK0106"), "{:?}", shown(&catalog));

    // One long string, many times.
    let long = "y".repeat(100_000);
    let aliases = vec!["*s"; 400].join(", ");
    let catalog = load_one(&format!("a: &s {long}\nb: [{aliases}]\n"));
    assert!(places(&catalog)[0].ends_with("CVK0106"), "{:?}", shown(&catalog));

    let aliases = vec!["*s"; 501].join(", ");
    let catalog = load_one(&format!("a: &s x\nb: [{aliases}]\n"));
    assert!(places(&catalog)[0].ends_with("CVK0106"), "{:?}", shown(&catalog));
}

#[test]
fn v27_depth_ends_at_the_budget() {
    for text in [
        "[".repeat(100_000),
        "{a: ".repeat(100_000),
        "- ".repeat(100_000),
        (0..2_000).map(|depth| format!("{}a:\n", " ".repeat(depth))).collect(),
        "? ".repeat(100_000),
        "{? ".repeat(100_000),
    ] {
        let catalog = load_one(&text);
        assert!(catalog.has_errors());
        assert!(catalog.broken_paths.contains("a.yaml"));
    }
    // Depth by aliases counts too.
    let mut text = "a0: &a0 [x]\n".to_owned();
    for level in 1..100 {
        let _ = writeln!(text, "a{level}: &a{level} [*a{}]", level - 1);
    }
    assert!(places(&load_one(&text))[0].ends_with("CVK0106"));
}

#[test]
fn v28_many_documents_and_large_files_end_at_the_budget() {
    let many: String =
        (0..100).map(|index| format!("---\n{}", agent(&format!("a{index}"), ""))).collect();
    assert_eq!(load_one(&many).definitions.len(), 100);
    let catalog = load_one(&format!("{many}---\n{}", agent("more", "")));
    assert_eq!(places(&catalog), ["701:1 CVK0010"]);
    assert_eq!((catalog.definitions.len(), catalog.broken.len()), (0, 100));
    assert!(catalog.broken_paths.contains("a.yaml"));

    let catalog = load_one(&"---\n".repeat(250_000));
    assert_eq!(places(&catalog), ["101:1 CVK0010"]);
    let catalog = load_one(&"}\n---\n".repeat(150_000));
    assert!(catalog.has_errors());

    let catalog = load_one(&agent("one", &format!("  description: {}\n", "x".repeat(1024 * 1024))));
    assert_eq!(places(&catalog), ["0:0 CVK0001"]);
    let wide: String = (0..30_000).map(|index| format!("k{index}: 1\n")).collect();
    assert!(places(&load_one(&wide))[0].ends_with("CVK0106"));
}

#[test]
fn a_file_with_many_problems_lists_some_and_counts_the_rest() {
    let more: String = (0..5_000).map(|index| format!("  x{index}: 1\n")).collect();
    let catalog = load_one(&agent("one", &more));
    assert_eq!(catalog.problems.len(), 101);
    let last = catalog.problems.iter().find(|problem| problem.code == "CVK0012").expect("count");
    assert_eq!(last.message, "4900 more problems in this file are not listed");
}

#[test]
fn g6_links_submodules_and_odd_entries_are_errors() {
    let tree = MemoryTree::new()
        .file("a.yaml", agent("one", ""))
        .entry("b.yaml", EntryKind::Symlink)
        .entry("docs", EntryKind::Symlink)
        .entry("vendor", EntryKind::Submodule)
        .entry("z.md", EntryKind::Odd)
        .file("big.yaml", "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n")
        .problem(TreeProblem { path: "deep/x".into(), message: "too deep".into(), hint: None });
    let catalog = load(&tree);
    let found: Vec<_> =
        shown(&catalog).iter().map(|line| line[..line.len().min(22)].to_owned()).collect();
    assert_eq!(
        found,
        [
            "b.yaml:- CVK0005 symbo",
            "big.yaml:- CVK0008 the",
            "deep/x:- CVK0009 too d",
            "docs:- CVK0005 symboli",
            "vendor:- CVK0006 submo",
            "z.md:- CVK0007 the ent",
        ]
    );
    assert_eq!(catalog.broken_paths.len(), 6);
    // The rest of the commit is as good as before.
    assert_eq!(names(&catalog), ["Agent/one"]);
}

#[test]
fn an_empty_tree_is_an_error() {
    let catalog = load(&MemoryTree::new());
    assert_eq!(shown(&catalog), ["-:- CVK0011 there is nothing below the synced path"]);
    assert_eq!(shown(&load(&MemoryTree::new().file("README.md", ""))), Vec::<String>::new());
}

#[test]
fn v54_problems_never_quote_what_could_be_a_secret() {
    let secret = "hunter2-hunter2-hunter2";
    for text in [
        agent("one", &format!("  env: [{{name: A, value: [{secret}]}}]\n")),
        agent("one", &format!("  image: \"a {secret}\"\n")),
        agent("one", &format!("  replicas: {secret}\n")),
        agent("one", &format!("  description: \"{secret}\n")),
        agent("one", &format!("  env:\n  - {secret}\n")),
        agent("one", &format!("  env: {{name: A\n  value: {secret}: x\n")),
        format!(
            "apiVersion: convoke.dev/v1alpha1\nkind: ModelAPI\nmetadata: {{name: m}}\nspec: {{mode: External, external: {{url: 'https://u:{secret}@host'}}}}\n"
        ),
    ] {
        let catalog = load_one(&text);
        assert!(catalog.has_errors(), "{text}");
        assert!(!format!("{:?}", catalog.problems).contains(secret), "{:?}", catalog.problems);
    }
    let long = "n".repeat(5_000);
    for text in [
        agent(&long, ""),
        agent("one", &format!("  {long}: 1\n")),
        format!("apiVersion: convoke.dev/v1alpha1\nkind: {long}\n"),
        format!("apiVersion: convoke.dev/{long}\nkind: Agent\n"),
        agent("one", &format!("  config: {{instructionsFile: {}}}\n", &long[..3000])),
    ] {
        let catalog = load_one(&text);
        assert!(catalog.has_errors());
        for problem in &catalog.problems {
            assert!(problem.message.chars().count() < 250, "{}", problem.message);
        }
    }
}
