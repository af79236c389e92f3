//! Hostile repositories: they try to use up the memory, or to change how problems look.

use super::diagnostic::{code, render_text};
use super::tests::{MODEL, load, places, tree};
use super::*;
use crate::text::printable;

fn named(name: &str) -> String {
    MODEL.replace("name: m", &format!("name: {name}"))
}

fn load_with(limits: Limits, files: &[(String, String)]) -> Catalog {
    let files: Vec<_> = files.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
    Loader::new(limits).load(&tree(&files), &Context::default())
}

/// Length of all texts of the problems.
fn weight(catalog: &Catalog) -> usize {
    serde_json::to_vec(&catalog.problems).expect("JSON").len()
}

#[test]
fn g10_thousands_of_twins_name_a_few_of_each_other() {
    let same = vec![MODEL; 100].join("---\n");
    let files: Vec<_> = (0..20).map(|n| (format!("f{n:02}.yaml"), same.clone())).collect();
    let catalog = load_with(Limits::default(), &files);
    assert_eq!(catalog.problems.len(), 2_000);
    assert_eq!(catalog.broken.len(), 1);
    let text = &catalog.problems[0].message;
    assert!(text.ends_with("f00.yaml:19, f00.yaml:28, and 1996 more"), "{text}");
    assert!(weight(&catalog) < 1 << 20, "{}", weight(&catalog));
}

#[test]
fn g10_problems_beyond_what_anybody_reads_are_counted() {
    let fields = (0..5_000).map(|n| format!("f{n}: 1\n")).collect::<Vec<_>>().concat();
    let files: Vec<_> =
        (0..40).map(|n| (format!("f{n:02}.yaml"), named(&format!("m{n}")) + &fields)).collect();
    let mut loader = Loader::new(Limits::default());
    let texts: Vec<_> = files.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
    let hostile = tree(&texts);
    let catalog = loader.load(&hostile, &Context::default());
    let first = &catalog.problems[0];
    assert_eq!(first.message, "this file has 4000 more problems");
    assert_eq!((first.path.as_deref(), first.severity), (Some("f00.yaml"), Severity::Error));
    assert!(catalog.problems.len() < 21_000, "{}", catalog.problems.len());
    // Every file has a problem, all of its objects are held, and a second load gives the same.
    assert_eq!(catalog.broken.len(), 40);
    let last = catalog.problems.last().expect("problems");
    assert_eq!(
        (last.path.as_deref(), last.message.as_str()),
        (Some("f39.yaml"), "this file has 1001 more problems")
    );
    assert_eq!(loader.load(&hostile, &Context::default()).problems, catalog.problems);
}

#[test]
fn g6_all_files_together_have_a_budget_and_what_is_not_read_is_held() {
    let files: Vec<_> = (0..9).map(|n| (format!("f{n}.yaml"), named(&format!("m{n}")))).collect();
    let objects = Limits { total_documents: 4, ..Limits::default() };
    let bytes = Limits { total_bytes: 4 * files[0].1.len() as u64, ..Limits::default() };
    for limits in [objects, bytes] {
        let catalog = load_with(limits, &files);
        assert_eq!(places(&catalog), ["f4.yaml:?:? CVK0004"]);
        assert!(catalog.problems[0].message.contains("5 file(s)"), "{:?}", catalog.problems);
        assert_eq!(catalog.definitions.len(), 4);
        assert_eq!(catalog.broken_paths.len(), 5);
        assert!(catalog.has_errors());
    }
    // An included file counts each time that it is included.
    let prompt = "x".repeat(10_000);
    let mut files: Vec<_> = (0..9)
        .map(|n| {
            let head =
                format!("apiVersion: convoke.dev/v1alpha1\nkind: Agent\nmetadata:\n  name: a{n}\n");
            (
                format!("a{n}.yaml"),
                head + "spec:\n  modelAPI: m\n  config:\n    instructionsFile: p.md\n",
            )
        })
        .collect();
    files.push(("p.md".into(), prompt));
    let limits = Limits { total_bytes: 25_000, ..Limits::default() };
    let catalog = load_with(limits, &files);
    assert_eq!(catalog.definitions.len(), 3, "{:?}", catalog.problems);
}

#[test]
fn g10_what_is_told_never_looks_like_something_else() {
    // CVE-2021-42574 and UTS 55: texts that are shown in another order than they are read.
    let bad = ["\u{202e}", "\u{2066}", "\u{200b}", "\u{61c}", "\u{2028}", "\u{feff}", "\u{e0041}"];
    for hidden in bad {
        assert_eq!(printable(&format!("a{hidden}b")), "a b", "{hidden:?}");
        let text = MODEL
            .replace("mode:", &format!("mo{hidden}de:"))
            .replace("name: m", &format!("name: \"m{hidden}\""));
        let files = tree(&[("f.yaml", &text)]);
        let catalog = Loader::new(Limits::default()).load(&files, &Context::default());
        assert!(!catalog.problems.is_empty());
        let text = render_text(&catalog.problems, Some(&files));
        let told = serde_json::to_string(&catalog.problems).expect("JSON") + &text;
        assert!(!told.contains(hidden), "{hidden:?} in {told}");
    }
    // Other scripts are left alone.
    assert_eq!(printable("Grüße, 提示, שלום 🔥"), "Grüße, 提示, שלום 🔥");
}

#[test]
fn g7_annotations_that_the_api_server_would_refuse_are_refused_before() {
    let annotated = |bytes: usize| {
        MODEL.replace("spec:", &format!("  annotations:\n    note: {}\nspec:", "x".repeat(bytes)))
    };
    let catalog = load(&[("f.yaml", &annotated(241 << 10))]);
    assert_eq!(places(&catalog), ["f.yaml:5:3 CVK0105"]);
    assert_eq!(catalog.problems[0].code, code::METADATA);
    assert_eq!(load(&[("f.yaml", &annotated(239 << 10))]).problems, []);
}

#[test]
fn v54_errors_quote_no_value() {
    let agent = |field: &str| {
        format!(
            "apiVersion: convoke.dev/v1alpha1\nkind: Agent\nmetadata:\n  name: a\nspec:\n  modelAPI: m\n  model: x\n{field}\n"
        )
    };
    let model = |external: &str| {
        format!(
            "apiVersion: convoke.dev/v1alpha1\nkind: ModelAPI\nmetadata:\n  name: a\nspec:\n{external}\n"
        )
    };
    let env = |value: &str| agent(&format!("  env:\n    - name: A\n      value: {value}"));
    let broken = [
        "password: canary\n\tx: canary\n".to_owned(),
        "a: 'canary\n".to_owned(),
        "a: \"canary\\q\"\n".to_owned(),
        "a: [canary, {b: canary\n".to_owned(),
        "a: canary: canary\n".to_owned(),
        "%canary canary\n---\na: 1\n".to_owned(),
        "a: *canary\n".to_owned(),
        "a: &canary\n  canary\n b\n".to_owned(),
        "a: @canary\n".to_owned(),
        "a: `canary`\n".to_owned(),
        "- canary\nb: canary\n".to_owned(),
        "a: |9x\n canary\n".to_owned(),
        "a: |\n   canary\n canary\n".to_owned(),
        "canary\na: canary\n".to_owned(),
        "{\"a\": \"canary\",, \"b\": 1}\n".to_owned(),
        env("{x: canary}"),
        env("[canary]"),
        env("0815"),
        env("99999999999999999999815"),
        env("1e999815"),
        env("!secret canary"),
        env("<<: canary"),
        agent("  replicas: canary"),
        agent("  config: canary"),
        agent("  podSpec: canary"),
        model("  mode: External\n  external: {url: 'https://u:canary@example.com/v1'}"),
        model("  mode: External\n  external: {url: 'canary canary'}"),
    ];
    for text in broken {
        for name in ["a.yaml", "agent.md"] {
            let text =
                if name == "agent.md" { format!("---\n{text}---\nx\n") } else { text.clone() };
            let catalog = load(&[(name, &text)]);
            assert!(name == "agent.md" || catalog.has_errors(), "{text}");
            for problem in &catalog.problems {
                let told = format!("{} {:?}", problem.message, problem.hint);
                assert!(!told.contains("canary") && !told.contains("815"), "{told}\n{text}");
            }
        }
    }
}
