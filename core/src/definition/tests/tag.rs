use super::super::tests::{load, places};
use super::tag;

fn build(tag: &str) -> String {
    format!(
        "apiVersion: convoke.dev/v1alpha1\nkind: AgentBuild\nmetadata:\n  name: b\nspec:\n  source:\n    gitSync: {{}}\n  output:\n    image: team/b\n    tag: {tag}\n"
    )
}

#[test]
fn g10_b1_placeholders_of_a_tag_are_known_before_the_first_write() {
    for good in ["'{short}'", "'{commit}'", "'v1-{short}'", "v1.2", "\"{commit}-{short}\""] {
        assert_eq!(places(&load(&[("b.yaml", &build(good))])), [""; 0], "{good}");
    }
    for bad in ["'{branch}'", "'{short'", "'v{sha}-1'", "'{commit}{commit}{commit}{commit}'"] {
        assert_eq!(places(&load(&[("b.yaml", &build(bad))])), ["b.yaml:10:10 CVK0204"], "{bad}");
    }
    let catalog = load(&[("b.yaml", &build("'{branch}'"))]);
    let problem = &catalog.problems[0];
    let said = "the tag \"{branch}\" has placeholders that are not replaced";
    assert_eq!(problem.message, said);
    assert!(problem.hint.as_deref().is_some_and(|hint| hint.contains("{short}")), "{problem:?}");
    // The schema says once what it refuses.
    assert_eq!(load(&[("b.yaml", &build("'-x'"))]).problems.len(), 1);
}

#[test]
fn b1_tags_are_checked_after_replacement() {
    let commit = "0123456789".repeat(4);
    assert_eq!(tag("{short}", &commit).as_deref(), Ok("0123456"));
    assert_eq!(tag("v1-{commit}", &commit), Ok(format!("v1-{commit}")));
    for bad in ["{branch}", "{short", "-x", "", "a b"] {
        assert!(tag(bad, &commit).is_err(), "{bad}");
    }
    assert!(tag(&"{commit}".repeat(4), &commit).is_err(), "too long");
}
