//! Warnings about references.

use super::super::tests::{load, places};
use super::*;

fn catalog(api: &str, agent: &str) -> Catalog {
    let api = format!(
        "apiVersion: convoke.dev/v1alpha1\nkind: ModelAPI\nmetadata:\n  name: m\nspec: {{{api}}}\n"
    );
    let agent = format!(
        "apiVersion: convoke.dev/v1alpha1\nkind: Agent\nmetadata:\n  name: a\nspec:\n  modelAPI: m\n{agent}"
    );
    let catalog = load(&[("m.yaml", &api), ("a.yaml", &agent)]);
    assert_eq!(catalog.problems, []);
    catalog
}

fn warnings(catalog: &Catalog) -> Catalog {
    Catalog { problems: check_references(catalog, &|_| false), ..Catalog::default() }
}

#[test]
fn g10_the_model_must_be_one_that_the_model_api_serves() {
    for (api, model, ok) in [
        ("mode: Proxy, proxy: {models: [gpt-5, gpt-5-mini]}", "gpt-5", true),
        ("mode: Proxy, proxy: {models: [gpt-5, gpt-5-mini]}", "gpt-6", false),
        ("mode: Proxy, proxy: {}", "anything", true),
        ("mode: Proxy, proxy: {models: ['*']}", "anything", true),
        ("mode: Proxy, proxy: {models: ['openai/*']}", "openai/gpt-5", true),
        ("mode: Proxy, proxy: {models: ['openai/*']}", "anthropic/opus", false),
        ("mode: Hosted, hosted: {model: 'smollm2:135m'}", "smollm2:135m", true),
        ("mode: Hosted, hosted: {model: 'smollm2:135m'}", "smollm2", false),
        ("mode: External, external: {url: 'https://m.example/v1'}", "anything", true),
    ] {
        let found = warnings(&catalog(api, &format!("  model: {model:?}\n")));
        let expected: &[&str] = if ok { &[] } else { &["a.yaml:7:10 CVK0303"] };
        assert_eq!(places(&found), expected, "{api}: {model}");
        assert!(!found.has_errors(), "a warning");
    }
    let api = "mode: Proxy, proxy: {models: [gpt-5-mini, opus]}";
    let found = warnings(&catalog(api, "  model: gtp-5-mini\n"));
    assert_eq!(found.problems[0].hint.as_deref(), Some("did you mean gpt-5-mini?"));
    let found = warnings(&catalog(api, "  model: llama\n"));
    assert_eq!(found.problems[0].hint.as_deref(), Some("it serves gpt-5-mini, opus"));
    assert_eq!(warnings(&catalog(api, "")).problems, [], "no model is named");
}

#[test]
fn g10_of_an_object_that_is_only_in_the_cluster_nothing_but_its_name_is_known() {
    let mut catalog = catalog("mode: Hosted, hosted: {model: x}", "  model: y\n  buildRef: b\n");
    assert_eq!(places(&warnings(&catalog)), ["a.yaml:7:10 CVK0303", "a.yaml:8:13 CVK0301"]);
    catalog.definitions.remove(&ObjectId::new(Kind::ModelAPI, "m"));
    assert_eq!(check_references(&catalog, &|_| true), []);
    // There is no warning about an object whose definition has errors.
    catalog.broken.insert(ObjectId::new(Kind::ModelAPI, "m"), "m.yaml".into());
    assert_eq!(places(&warnings(&catalog)), ["a.yaml:8:13 CVK0301"]);
}

#[test]
fn g10_one_definition_is_checked_by_its_own_references() {
    let catalog = catalog("mode: Hosted, hosted: {model: x}", "  model: y\n  buildRef: b\n");
    let agent = &catalog.definitions[&ObjectId::new(Kind::Agent, "a")];
    let exists = |_: &ObjectId| false;
    assert_eq!(check_definition(agent, &catalog, &exists), check_references(&catalog, &exists));
}

#[test]
fn a_star_stands_for_any_text() {
    for (pattern, name, fit) in [
        ("a", "a", true),
        ("a", "ab", false),
        ("*", "", true),
        ("a*", "a", true),
        ("a*b", "ab", true),
        ("a*b", "axxb", true),
        ("ab*ba", "aba", false),
        ("*a*a", "a", false),
        ("*a*a", "ba-a", true),
        ("a*b*c", "a-b-b-c", true),
        ("größe*", "größer", true),
        ("", "a", false),
    ] {
        assert_eq!(fits(pattern, name), fit, "{pattern} {name}");
    }
}

#[test]
fn a3_an_agent_that_hides_offers_nothing_to_its_peers() {
    let offers = |kind, spec: serde_json::Value| super::super::Offers::of(kind, &spec);
    let hidden = serde_json::json!({"agentNetwork": {"expose": false}});
    assert!(!offers(Kind::Agent, hidden).exposed);
    assert!(offers(Kind::Agent, serde_json::json!({})).exposed);
    let proxy = serde_json::json!({"proxy": {"models": ["a", "b-*"]}});
    assert_eq!(*offers(Kind::ModelAPI, proxy).models, ["a", "b-*"]);
}
