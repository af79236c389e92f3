use super::super::tests::{MODEL, load, places, tree};
use super::super::variables::Variables;
use super::super::{Catalog, Context, Limits, Loader};

const HEAD: &str = "apiVersion: convoke.dev/v1alpha1\nkind: Agent\nmetadata:\n  name: a\n";

/// The places and hints of what is wrong.
fn told(catalog: &Catalog) -> Vec<String> {
    assert!(catalog.problems.iter().all(|p| p.hint.is_some()), "{:?}", catalog.problems);
    places(catalog)
}

#[test]
fn g7_a_nul_character_is_an_error_at_its_place() {
    let config = "spec:\n  modelAPI: m\n  config:\n    instructions: \"be\\0fore\"\n";
    let env = "spec:\n  modelAPI: m\n  env:\n    - {name: A, value: fine}\n    - {name: B, value: \"\\x00\"}\n";
    let list = "spec:\n  modelAPI: m\n  mcpServers: [search, \"s\\u0000\"]\n";
    for (text, at) in [
        (format!("{HEAD}{config}"), "f.yaml:8:19 CVK0204"),
        (format!("{HEAD}{env}"), "f.yaml:9:24 CVK0204"),
        (format!("{HEAD}{list}"), "f.yaml:7:24 CVK0204"),
        (
            format!("{HEAD}  annotations: {{a: \"x\\0y\"}}\nspec: {{modelAPI: m}}\n"),
            "f.yaml:5:20 CVK0204",
        ),
        (
            format!("{HEAD}  labels: {{a: \"x\\0y\"}}\nspec: {{modelAPI: m}}\n"),
            "f.yaml:5:15 CVK0105",
        ),
    ] {
        let catalog = load(&[("f.yaml", &text), ("m.yaml", MODEL)]);
        assert!(told(&catalog).iter().any(|told| told == at), "{text}: {:?}", told(&catalog));
        assert_eq!(catalog.definitions.len(), 1, "{text}: only the model is good");
    }
}

#[test]
fn g7_a_nul_character_in_json_and_in_a_key_is_an_error_at_its_place() {
    let text = r#"{"apiVersion": "convoke.dev/v1alpha1", "kind": "MCPServer", "metadata": {"name": "s"},
 "spec": {"image": "i:1", "env": [{"name": "A",
   "value": "\u0000"}]}}"#;
    assert_eq!(told(&load(&[("s.json", text)])), ["s.json:3:13 CVK0204"]);
    let text = "apiVersion: convoke.dev/v1alpha1\nkind: AgentBuild\nmetadata: {name: b}\nspec:\n  source: {gitSync: {}}\n  output: {image: team/i}\n  buildArgs:\n    \"A\\0\": x\n";
    assert_eq!(told(&load(&[("b.yaml", text)])), ["b.yaml:8:5 CVK0204"]);
}

#[test]
fn g8_g9_a_nul_character_in_a_file_that_becomes_a_field_is_an_error() {
    let text = format!("{HEAD}spec:\n  modelAPI: m\n  config:\n    instructionsFile: p.md\n");
    let catalog = load(&[("f.yaml", &text), ("p.md", "# One\nx\0y\n"), ("m.yaml", MODEL)]);
    assert_eq!(told(&catalog), ["f.yaml:8:23 CVK0206"]);
    assert!(catalog.problems[0].message.contains("p.md:2:2"), "{:?}", catalog.problems);
    let agent = "---\nmodelAPI: m\n---\n\n# One\n\nab\0c\n";
    let catalog = load(&[("w/agent.md", agent), ("m.yaml", MODEL)]);
    assert_eq!(told(&catalog), ["w/agent.md:7:3 CVK0204"]);
    // In the front matter it is a YAML error.
    let agent = "---\nmodelAPI: m\0\n---\nText.\n";
    let catalog = load(&[("w/agent.md", agent), ("m.yaml", MODEL)]);
    assert_eq!(places(&catalog), ["w/agent.md:2:12 CVK0001"]);
}

#[test]
fn g21_a_nul_character_in_a_value_is_an_error_where_it_is_used() {
    let variables = Variables::new([("V".to_owned(), "a\0b".to_owned())]);
    let context = Context { variables: Some(variables), ..Context::default() };
    let text = format!(
        "{HEAD}  annotations: {{a: \"${{V}}\"}}\nspec:\n  modelAPI: m\n  description: see ${{V}}\n"
    );
    let files = [("f.yaml", text.as_str()), ("m.yaml", MODEL)];
    let catalog = Loader::new(Limits::default()).load(&tree(&files), &context);
    assert_eq!(told(&catalog), ["f.yaml:5:20 CVK0207", "f.yaml:8:16 CVK0207"]);
    assert!(catalog.problems[0].message.contains("the value of V"), "{:?}", catalog.problems);
}
