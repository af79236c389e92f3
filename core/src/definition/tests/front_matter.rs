//! Agents in Markdown.

use super::super::tests::{MODEL, load, places, tree};
use super::super::{Catalog, Context, Definition, Limits, Loader};
use crate::api::ObjectId;

const HEAD: &str = "---\ndescription: Writes.\nmodelAPI: m\nmcpServers: [search]\nconfig:\n  memory: {contextLimit: 9}\n---\n";

fn one(path: &str, text: &str) -> Catalog {
    load(&[(path, text), ("m.yaml", MODEL)])
}

fn agent<'a>(catalog: &'a Catalog, name: &str) -> &'a Definition {
    let id = ObjectId::new(super::Kind::Agent, name);
    catalog.definitions.get(&id).unwrap_or_else(|| panic!("{:?}", catalog.problems))
}

#[test]
fn g9_front_matter_is_the_spec_and_the_body_the_instructions() {
    let text = format!("{HEAD}\n\n# Writer\n\nBe ${{KIND}}.\n---\nNot YAML: [\n\n\n");
    let catalog = one("team/writer/agent.md", &text);
    assert_eq!(catalog.problems, []);
    let found = agent(&catalog, "writer");
    assert_eq!((found.path.as_str(), found.line, found.column), ("team/writer/agent.md", 2, 1));
    let expected = serde_json::json!({
        "description": "Writes.", "modelAPI": {"name": "m"}, "mcpServers": [{"name": "search"}],
        "config": {"memory": {"contextLimit": 9}, "instructions": "# Writer\n\nBe ${KIND}.\n---\nNot YAML: [\n"},
    });
    assert_eq!(found.spec.json(), expected);
    assert_eq!((found.references[1].line, found.references[1].column), (4, 14));
    assert_eq!((catalog.documents, catalog.files), (2, 2));
}

#[test]
fn g9_name_labels_and_annotations_are_metadata() {
    let text = "---\nname: editor\nlabels: {team: news}\nannotations:\n  example.com/a: b\nmodelAPI: m\nconfig:\n  instructionsFile: prompt.md\n---\n";
    let files = [("writer/agent.md", text), ("writer/prompt.md", "Edit.\n")];
    let catalog = load(&files);
    assert_eq!(catalog.problems, []);
    let found = agent(&catalog, "editor");
    assert_eq!(found.labels.get("team"), Some("news"));
    assert_eq!(found.annotations.get("example.com/a"), Some("b"));
    assert_eq!(found.spec.json()["config"]["instructions"], "Edit.\n");
    // Without a body; with CRLF; with a byte order mark.
    let catalog = one("x/AGENT.md", "\u{feff}---\r\nmodelAPI: m\r\n---\r\n");
    assert_eq!(agent(&catalog, "x").spec.json(), serde_json::json!({"modelAPI": {"name": "m"}}));
}

#[test]
fn g9_what_is_wrong_has_its_place_in_the_file() {
    let body = "\nBe kind.\n";
    for (head, place) in [
        ("modelApi: m\n", "w/agent.md:2:1 CVK0201"),
        ("modelAPI: m\nreplicas: many\n", "w/agent.md:3:11 CVK0203"),
        ("modelAPI: m\nname: Big\n", "w/agent.md:3:7 CVK0104"),
        ("modelAPI: m\nlabels:\n  a: 5\n", "w/agent.md:4:6 CVK0203"),
        ("modelAPI: m\nmodelAPI: n\n", "w/agent.md:3:1 CVK0002"),
        ("modelAPI: [m\n", "CVK0001"),
        ("kind: Agent\nmodelAPI: m\n", "w/agent.md:2:1 CVK0010"),
        ("metadata: {name: a}\nspec: {modelAPI: m}\n", "w/agent.md:2:1 CVK0010"),
        ("namespace: x\nmodelAPI: m\n", "w/agent.md:2:1 CVK0201"),
        ("modelAPI: m\nconfig:\n  instructions: x\n", "w/agent.md:4:3 CVK0010"),
        ("modelAPI: m\nconfig:\n  instructionsFile: x.md\n", "w/agent.md:4:3 CVK0010"),
        ("modelAPI: m\nconfig: 5\n", "w/agent.md:3:9 CVK0203"),
        ("- a\n", "w/agent.md:2:1 CVK0010"),
        ("just text\n", "w/agent.md:2:1 CVK0010"),
        ("", "w/agent.md:1:1 CVK0010"),
        ("# nothing\n", "w/agent.md:1:1 CVK0010"),
        ("a: 1\n--- # another\nb: 1\n", "w/agent.md:1:1 CVK0010"),
    ] {
        let catalog = one("w/agent.md", &format!("---\n{head}---\n{body}"));
        assert!(catalog.has_errors(), "{head}");
        let found = places(&catalog);
        assert!(found.iter().any(|p| p.ends_with(place)), "{head}: {found:?}");
        let id = ObjectId::new(super::Kind::Agent, "w");
        let held = catalog.broken.contains_key(&id) || catalog.broken_paths.contains("w/agent.md");
        assert!(held, "{head}");
        assert_eq!(catalog.definitions.len(), 1, "{head}");
    }
    for (path, text, place) in [
        ("w/agent.md", "# About this agent\n", "w/agent.md:1:1 CVK0010"),
        ("w/agent.md", "", "w/agent.md:1:1 CVK0010"),
        ("w/agent.md", "---\nmodelAPI: m\n", "w/agent.md:1:1 CVK0010"),
        ("agent.md", "---\nmodelAPI: m\n---\n", "agent.md:1:1 CVK0104"),
        ("My Agent/agent.md", "---\nmodelAPI: m\n---\n", "My Agent/agent.md:2:1 CVK0104"),
    ] {
        let catalog = one(path, text);
        assert_eq!(places(&catalog), [place], "{path} {text:?}");
        assert!(catalog.broken_paths.contains(path) || catalog.broken.is_empty());
        assert!(catalog.problems[0].hint.is_some(), "{path} {text:?}");
    }
}

#[test]
fn g9_the_body_has_the_budget_of_an_included_file() {
    let fits = format!("{HEAD}{}\n", "x".repeat((256 << 10) - 1));
    assert_eq!(one("w/agent.md", &fits).problems, []);
    let large = format!("{HEAD}\n{}\n", "x".repeat((256 << 10) + 1));
    let catalog = one("w/agent.md", &large);
    assert_eq!(places(&catalog), ["w/agent.md:9:1 CVK0004"]);
    assert!(catalog.broken.contains_key(&ObjectId::new(super::Kind::Agent, "w")));
}

#[test]
fn g9_other_markdown_is_never_a_definition() {
    let catalog = load(&[
        ("m.yaml", MODEL),
        ("README.md", HEAD),
        ("AGENTS.md", HEAD),
        ("writer.agent.md", HEAD),
        ("x/my-agent.md", HEAD),
        ("agent.md/notes.txt", HEAD),
    ]);
    assert_eq!(catalog.problems, []);
    assert_eq!(catalog.definitions.len(), 1);
}

#[test]
fn g9_the_same_agent_in_both_forms_is_there_twice() {
    let yaml =
        "apiVersion: convoke.dev/v1alpha1\nkind: Agent\nmetadata: {name: w}\nspec: {modelAPI: m}\n";
    let catalog = load(&[("w/agent.md", HEAD), ("w.yaml", yaml)]);
    assert_eq!(places(&catalog), ["w.yaml:1:1 CVK0106", "w/agent.md:2:1 CVK0106"]);
}

#[test]
fn g9_no_truncation_loses_an_agent_silently() {
    let text = format!("{HEAD}\nBe kind.\n");
    let mut loader = Loader::new(Limits::default());
    for end in 0..text.len() {
        let catalog = loader.load(&tree(&[("w/agent.md", &text[..end])]), &Context::default());
        let there = catalog.definitions.keys().any(|id| id.name == "w");
        let held = catalog.broken.keys().any(|id| id.name == "w")
            || catalog.broken_paths.contains("w/agent.md");
        assert!(there || held, "cut after {end} bytes: {:?}", catalog.problems);
    }
}
