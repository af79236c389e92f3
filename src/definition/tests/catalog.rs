//! What files say together: quarantine, duplicates, references.

use crate::api::{Kind, ObjectId};
use crate::definition::check_references;

use super::*;

#[test]
fn g13_the_file_is_the_unit_of_quarantine() {
    let tree = MemoryTree::new()
        .file("bad.yaml", format!("{}---\n{}", agent("one", ""), agent("two", "  replicas: x\n")))
        .file("good.yaml", agent("three", ""));
    let catalog = load(&tree);
    assert_eq!(names(&catalog), ["Agent/three"]);
    assert_eq!(broken(&catalog), ["Agent/one", "Agent/two"]);
    assert_eq!(catalog.broken[&ObjectId::new(Kind::Agent, "one")], "bad.yaml");
    // Every identity is known, so nothing in the file is in doubt.
    assert!(catalog.broken_paths.is_empty());
    assert_eq!(catalog.documents, 3);
    // A document without a name puts the file in doubt.
    let text = format!("{}---\n{}", agent("one", ""), agent("''", ""));
    let catalog = load_one(&text);
    assert_eq!(broken(&catalog), ["Agent/one"]);
    assert!(catalog.broken_paths.contains("a.yaml"));
}

#[test]
fn g10_a_duplicate_quarantines_only_that_identity() {
    let tree = MemoryTree::new()
        .file("a.yaml", format!("{}---\n{}", agent("one", ""), agent("two", "")))
        .file("b/c.yaml", format!("# x\n{}", agent("one", "")));
    let catalog = load(&tree);
    assert_eq!(
        shown(&catalog),
        [
            "a.yaml:1:1 CVK0216 Agent/one is also defined at b/c.yaml:2:1",
            "b/c.yaml:2:1 CVK0216 Agent/one is also defined at a.yaml:1:1",
        ]
    );
    assert_eq!(names(&catalog), ["Agent/two"]);
    assert_eq!(broken(&catalog), ["Agent/one"]);
    // The same name of another kind is another identity.
    let build = "apiVersion: convoke.dev/v1alpha1\nkind: AgentBuild\nmetadata: {name: one}\nspec: {source: {gitSync: {}}, output: {image: x}}\n";
    let catalog = load(&MemoryTree::new().file("a.yaml", agent("one", "")).file("b.yml", build));
    assert_eq!(names(&catalog), ["AgentBuild/one", "Agent/one"]);
}

#[test]
fn g10_a_duplicate_of_a_broken_object_counts() {
    let tree =
        MemoryTree::new().file("a.yaml", agent("one", "")).file("b.yaml", agent("one", "  x: 1\n"));
    let catalog = load(&tree);
    assert_eq!(names(&catalog), Vec::<String>::new());
    assert_eq!(broken(&catalog), ["Agent/one"]);
    assert_eq!(places(&catalog), ["1:1 CVK0216", "1:1 CVK0216", "7:3 CVK0302"]);
    let thrice = format!("{0}---\n{0}---\n{0}", agent("one", ""));
    assert_eq!(
        shown(&load_one(&thrice))[0],
        "a.yaml:1:1 CVK0216 Agent/one is also defined at a.yaml:8:1 and in 1 more places"
    );
}

#[test]
fn g10_unresolved_references_are_warnings() {
    let model = "apiVersion: convoke.dev/v1alpha1\nkind: ModelAPI\nmetadata: {name: gtp}\nspec: {mode: External, external: {url: 'https://x'}}\n";
    let tree = MemoryTree::new()
        .file(
            "a.yaml",
            agent("one", "  mcpServers: [held, live]\n  agentNetwork: {access: [one, two]}\n"),
        )
        .file("m.yaml", model)
        .file(
            "x.yaml",
            "apiVersion: convoke.dev/v1alpha1\nkind: MCPServer\nmetadata: {name: held}\nspec: {}\n",
        );
    let catalog = load(&tree);
    let problems = check_references(&catalog, &|id| id.to_string() == "MCPServer/live");
    let found = Catalog { problems, ..Catalog::default() };
    assert_eq!(
        shown(&found),
        [
            "a.yaml:6:13 CVK0501 ModelAPI/gpt is neither in this commit nor in the cluster",
            "a.yaml:8:32 CVK0501 Agent/two is neither in this commit nor in the cluster",
        ]
    );
    assert_eq!(found.problems[0].hint.as_deref(), Some("did you mean `gtp`?"));
    assert_eq!(found.problems[0].object.as_deref(), Some("Agent/one"));
    assert!(!found.has_errors());
}

#[test]
fn g18_errors_come_first_then_path_line_column() {
    let tree = MemoryTree::new()
        .file("a.yaml", "apiVersion: convoke.dev/v1alpha1\nkind: MCPServer\nmetadata: {name: w}\nspec: {package: {registry: PyPI, name: p}}\n")
        .file("b.yaml", agent("two", "  z: 1\n  y: 1\n"))
        .file("c.yaml", "a: [\n");
    let found: Vec<_> = shown(&load(&tree))
        .iter()
        .map(|line| line.split(' ').take(2).collect::<Vec<_>>().join(" "))
        .collect();
    assert_eq!(
        found,
        ["b.yaml:7:3 CVK0302", "b.yaml:8:3 CVK0302", "c.yaml:1:4 CVK0101", "a.yaml:4:40 CVK0502"]
    );
}

#[test]
fn g7_only_yaml_and_json_files_are_read() {
    let tree = MemoryTree::new()
        .file("a.YAML", agent("one", ""))
        .file("b.yml", agent("two", ""))
        .file("c.txt", "{{{")
        .file("yaml", "{{{")
        .file("d.yaml.md", "{{{");
    let catalog = load(&tree);
    assert_eq!(shown(&catalog), Vec::<String>::new());
    assert_eq!((names(&catalog).len(), catalog.files), (2, 2));
}
