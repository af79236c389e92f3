use super::super::tests::{load, places, tree};
use super::super::{Context, Limits, Loader};

fn build(metadata: &str, output: &str) -> String {
    format!(
        "apiVersion: convoke.dev/v1alpha1\nkind: AgentBuild\nmetadata:\n  name: b{metadata}\nspec:\n  source:\n    gitSync: {{}}\n  output:\n    {output}\n"
    )
}

#[test]
fn g10_b1_an_image_in_the_shared_registry_begins_with_the_namespace() {
    let found = |output: &str| places(&load(&[("b.yaml", &build("", output))]));
    let nothing: [&str; 0] = [];
    assert_eq!(found("image: team/b"), nothing);
    assert_eq!(found("image: team/sub/b"), nothing);
    for image in ["b", "team", "team2/b", "other/team/b"] {
        assert_eq!(found(&format!("image: {image}")), ["b.yaml:9:12 CVK0208"], "{image}");
    }
    // A registry of one's own has names of one's own.
    assert_eq!(found("registry: registry.example.com\n    image: b"), nothing);
    let catalog = load(&[("b.yaml", &build("", "image: other/b"))]);
    let problem = &catalog.problems[0];
    assert_eq!(problem.message, "the image \"other/b\" does not begin with team/");
    assert!(
        problem.hint.as_deref().is_some_and(|hint| hint.starts_with("write team/b: ")),
        "{problem:?}"
    );
    assert!(catalog.definitions.is_empty() && catalog.broken.len() == 1);
}

#[test]
fn g10_b1_without_a_namespace_nothing_is_said_of_an_image() {
    let found = |metadata: &str| {
        let files = tree(&[("b.yaml", &build(metadata, "image: other/b"))]);
        places(&Loader::new(Limits::default()).load(&files, &Context::default()))
    };
    assert_eq!(found(""), [""; 0]);
    assert_eq!(found("\n  namespace: other"), [""; 0]);
    assert_eq!(found("\n  namespace: team"), ["b.yaml:10:12 CVK0208"]);
}
