//! Where variables are replaced, and where not.

use serde_json::json;

use super::super::tests::{MODEL, places, tree};
use super::super::{Catalog, Context, Limits, Loader};
use super::*;
use crate::api::{Kind, ObjectId};

fn variables(values: &[(&str, &str)]) -> Variables {
    Variables::new(values.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())))
}

fn context(values: &[(&str, &str)]) -> Context {
    Context { variables: Some(variables(values)), ..Context::default() }
}

fn load_with(values: &[(&str, &str)], files: &[(&str, &str)]) -> Catalog {
    Loader::new(Limits::default()).load(&tree(files), &context(values))
}

/// An agent with these lines added to its spec.
fn agent(lines: &str) -> String {
    format!(
        "apiVersion: convoke.dev/v1alpha1\nkind: Agent\nmetadata:\n  name: a\nspec:\n  modelAPI: m\n{lines}"
    )
}

fn spec(catalog: &Catalog) -> Value {
    let id = ObjectId::new(Kind::Agent, "a");
    let found = catalog.definitions.get(&id);
    found.unwrap_or_else(|| panic!("{:?}", catalog.problems)).spec.json()
}

const VALUES: &[(&str, &str)] = &[
    ("ENV", "prod"),
    ("N", "3"),
    ("YES", "true"),
    ("EMPTY", ""),
    ("NESTED", "${ENV} $${ENV}"),
    ("EVIL", "x\n  suspend: true"),
    ("OCTAL", "007"),
];

#[test]
fn g21_values_are_put_into_texts() {
    for (text, expected) in [
        ("${ENV}", "prod"),
        ("a-${ENV}-b-${N}", "a-prod-b-3"),
        ("$ENV $(ENV) $$ 5$", "$ENV $(ENV) $$ 5$"),
        ("$${ENV}", "${ENV}"),
        ("$${ENV:-${ENV}}", "${ENV:-prod}"),
        ("$$${ENV}", "$${ENV}"),
        ("${OTHER:-x y}", "x y"),
        ("${OTHER:-}", ""),
        ("${EMPTY:-x}", "x"),
        ("-${EMPTY}-", "--"),
        ("${ENV:-x}", "prod"),
        ("${OTHER:-a:-b}", "a:-b"),
        // Variables in values are not replaced, and a value cannot add a field.
        ("${NESTED}", "${ENV} $${ENV}"),
        ("${EVIL}", "x\n  suspend: true"),
        ("größe ${ENV} 漢", "größe prod 漢"),
    ] {
        let yaml = agent(&format!("  description: {text:?}\n"));
        let catalog = load_with(VALUES, &[("a.yaml", &yaml)]);
        assert_eq!(spec(&catalog)["description"], expected, "{text}");
        assert_eq!(spec(&catalog).get("suspend"), None);
    }
}

#[test]
fn g21_an_unquoted_scalar_that_is_one_variable_takes_the_type_of_its_value() {
    let text = agent(
        "  replicas: ${N}\n  suspend: ${YES}\n  description: '${N}'\n  config:\n    agenticLoop: {maxSteps: \"${N}\"}\n",
    );
    let catalog = load_with(VALUES, &[("a.yaml", &text)]);
    assert_eq!(places(&catalog), ["a.yaml:11:29 CVK0203"], "a quoted one stays a text");
    let text = agent(
        "  replicas: ${MORE:-5}\n  suspend: ${YES}\n  description: '${N}'\n  env:\n  - {name: A, value: &n \"${N}\"}\n  - {name: B, value: \"${N}${N}\"}\n  - {name: C, value: *n}\n",
    );
    let catalog = load_with(VALUES, &[("a.yaml", &text)]);
    let expected = json!({"modelAPI": {"name": "m"}, "replicas": 5, "suspend": true, "description": "3",
        "env": [{"name": "A", "value": "3"}, {"name": "B", "value": "33"}, {"name": "C", "value": "3"}]});
    assert_eq!(spec(&catalog), expected);
    // Through aliases of scalars and of collections.
    let text = agent(
        "  replicas: &n ${N}\n  config:\n    agenticLoop: {maxSteps: *n}\n  healthCheck: &h\n    intervalSeconds: ${N}\n",
    );
    let catalog = load_with(VALUES, &[("a.yaml", &text)]);
    assert_eq!(spec(&catalog)["config"]["agenticLoop"]["maxSteps"], 3);
    assert_eq!(spec(&catalog)["healthCheck"]["intervalSeconds"], 3);
    let resources = "  resources:\n    requests: &r\n      cpu: ${N}\n    limits: *r\n";
    let catalog = load_with(VALUES, &[("a.yaml", &agent(resources))]);
    let both = places(&catalog);
    let quoted = agent(&resources.replace("${N}", "3"));
    assert_eq!(both, places(&load_with(VALUES, &[("a.yaml", &quoted)])));
}

#[test]
fn g21_a_missing_variable_is_an_error_at_its_place() {
    for (line, place, hint) in [
        ("  description: for ${ENW}\n", "a.yaml:7:16 CVK0207", "did you mean ENV?"),
        ("  replicas: ${COUNT}\n", "a.yaml:7:13 CVK0207", "add it to spec.variables"),
        ("  replicas: ${OCTAL}\n", "a.yaml:7:13 CVK0207", "quote the variable"),
        ("  description: ${ENV\n", "a.yaml:7:16 CVK0207", "write ${NAME}"),
        ("  description: '${1}'\n", "a.yaml:7:16 CVK0207", "write ${NAME}"),
        ("  description: '${a b}'\n", "a.yaml:7:16 CVK0207", "write ${NAME}"),
        ("  description: '${}'\n", "a.yaml:7:16 CVK0207", "write ${NAME}"),
    ] {
        let catalog = load_with(VALUES, &[("a.yaml", &agent(line)), ("m.yaml", MODEL)]);
        assert_eq!(places(&catalog), [place], "{line}");
        let found = catalog.problems[0].hint.as_deref().unwrap_or_default();
        assert!(found.starts_with(hint), "{line}: {found}");
        assert_eq!(catalog.problems[0].object.as_deref(), Some("Agent/a"));
        assert!(catalog.broken.contains_key(&ObjectId::new(Kind::Agent, "a")));
        assert_eq!(catalog.definitions.len(), 1, "the other file is not touched by it");
    }
}

#[test]
fn g21_keys_kinds_names_files_and_other_projects_are_left_alone() {
    let named = MODEL.replace("name: m", "name: m${N}");
    assert_eq!(places(&load_with(VALUES, &[("m.yaml", &named)])), ["m.yaml:4:9 CVK0104"]);
    let kind = MODEL.replace("kind: ModelAPI", "kind: ${KIND:-ModelAPI}");
    assert_eq!(places(&load_with(VALUES, &[("m.yaml", &kind)])), ["m.yaml:2:7 CVK0103"]);
    let key = MODEL.replace("  name: m\n", "  name: m\n  annotations: {\"${ENV}\": x}\n");
    assert_eq!(places(&load_with(VALUES, &[("m.yaml", &key)])), ["m.yaml:5:17 CVK0105"]);
    let alias = MODEL.replace("  name: m\n", "  labels: {a: &x \"${ENV}\"}\n  name: *x\n");
    assert_eq!(places(&load_with(VALUES, &[("m.yaml", &alias)])), ["m.yaml:5:9 CVK0104"]);
    let foreign =
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: x}\ndata: {a: \"${NOBODY}\"}\n";
    let file = agent("  config:\n    instructionsFile: ${ENV}.md\n");
    let markdown = "---\nmodelAPI: m\ndescription: ${ENV}\n---\nSay ${ENV} and ${NOBODY}.\n";
    let catalog = load_with(
        VALUES,
        &[
            ("a.yaml", &file),
            ("b/agent.md", markdown),
            ("f.yaml", foreign),
            ("m.yaml", MODEL),
            ("prod.md", "Print ${HOME} and ${ENV}.\n"),
        ],
    );
    assert_eq!(places(&catalog), Vec::<String>::new());
    assert_eq!(spec(&catalog)["config"]["instructions"], "Print ${HOME} and ${ENV}.\n");
    let markdown = &catalog.definitions[&ObjectId::new(Kind::Agent, "b")].spec;
    assert_eq!(markdown.json()["description"], "prod");
    assert_eq!(markdown.json()["config"]["instructions"], "Say ${ENV} and ${NOBODY}.\n");
}

#[test]
fn g21_labels_and_annotations_are_judged_with_their_values() {
    let text = MODEL.replace(
        "  name: m\n",
        "  name: m\n  labels: {env: \"${ENV}\", bad: \"${EVIL}\"}\n  annotations: {a: \"in ${ENV}\"}\n",
    );
    assert_eq!(places(&load_with(VALUES, &[("m.yaml", &text)])), ["m.yaml:5:32 CVK0105"]);
    let catalog = load_with(VALUES, &[("m.yaml", &text.replace("${EVIL}", "${N}"))]);
    let found = &catalog.definitions[&ObjectId::new(Kind::ModelAPI, "m")];
    assert_eq!(
        (found.labels.get("env"), found.annotations.get("a")),
        (Some("prod"), Some("in prod"))
    );
}

#[test]
fn g21_without_variables_a_dollar_is_a_dollar() {
    let text = agent("  description: ${ENV} $${ENV} ${\n");
    let catalog =
        Loader::new(Limits::default()).load(&tree(&[("a.yaml", &text)]), &Context::default());
    assert_eq!(spec(&catalog)["description"], "${ENV} $${ENV} ${");
    let text = agent("  replicas: ${N}\n");
    let catalog =
        Loader::new(Limits::default()).load(&tree(&[("a.yaml", &text)]), &Context::default());
    assert_eq!(places(&catalog), ["a.yaml:7:13 CVK0203"]);
    let hint = catalog.problems[0].hint.as_deref().unwrap_or_default();
    assert!(hint.contains("--var NAME=VALUE"), "{hint}");
}

#[test]
fn g21_a_changed_value_reads_again_only_what_uses_it() {
    let one = agent("  description: ${ENV}\n");
    let two = agent("  description: ${N} ${NEW:-x}\n").replace("name: a", "name: b");
    let files = [("a.yaml", one.as_str()), ("b.yaml", two.as_str()), ("m.yaml", MODEL)];
    let mut loader = Loader::new(Limits::default());
    let mut parsed = |values: &[(&str, &str)]| {
        let before = loader.parsed();
        let catalog = loader.load(&tree(&files), &context(values));
        assert_eq!(catalog.problems, [], "{values:?}");
        loader.parsed() - before
    };
    assert_eq!(parsed(&[("ENV", "a"), ("N", "1")]), 3);
    assert_eq!(parsed(&[("ENV", "a"), ("N", "1"), ("OTHER", "x")]), 0);
    assert_eq!(parsed(&[("ENV", "b"), ("N", "1")]), 1);
    assert_eq!(parsed(&[("ENV", "b"), ("N", "1"), ("NEW", "y")]), 1);
    // Whether variables are replaced at all concerns every file.
    let all = loader.parsed();
    loader.load(&tree(&files), &Context::default());
    assert_eq!(loader.parsed() - all, 3);
}

#[test]
fn g21_values_have_a_budget() {
    let large = "x".repeat(100_000);
    let text = agent(&format!(
        "  env:\n{}",
        (0..20).fold(String::new(), |text, n| {
            format!("{text}  - {{name: A{n}, value: \"${{LARGE}}\"}}\n")
        })
    ));
    let catalog = load_with(&[("LARGE", &large)], &[("a.yaml", &text)]);
    assert!(places(&catalog).iter().any(|p| p.ends_with("CVK0004")), "{:?}", places(&catalog));
}

#[test]
fn g21_a_digest_tells_sets_apart() {
    let sets: &[&[(&str, &str)]] =
        &[&[], &[("A", "")], &[("A", "B")], &[("A", ""), ("B", "")], &[("AB", "")]];
    let digests: std::collections::BTreeSet<_> =
        sets.iter().map(|values| variables(values).digest()).collect();
    assert_eq!(digests.len(), sets.len());
    // A key of a ConfigMap that cannot be the name of a variable is left out.
    assert_eq!(variables(&[("a.b", "x"), ("A", "")]), variables(&[("A", "")]));
}
