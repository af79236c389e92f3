use serde_json::json;

use super::*;
use crate::controllers::inputs::references::Own;

fn references() -> References {
    let key = |kind: &str, name: &str, optional: bool| json!({"name": name, "valueFrom": {kind: {"name": name, "key": "k", "optional": optional}}});
    let env = [
        key("configMapKeyRef", "map", false),
        key("secretKeyRef", "keys", false),
        key("secretKeyRef", "maybe", true),
    ];
    let template = json!({"spec": {"containers": [{"name": "c", "env": env}]}});
    let template = serde_json::from_value(template).expect("template");
    References::of(&template, Own::default())
}

fn digest(of: char) -> String {
    std::iter::repeat_n(of, 32).collect()
}

/// Decides with these states of objects, by name. Returns the annotation and the objects that pods may not read or cannot have.
fn decided(live: &str, found: &[(&str, InputState)]) -> (String, Vec<String>) {
    let state_of = |reference: &Reference| {
        let found = found.iter().find(|(name, _)| *name == reference.name);
        found.map_or(InputState::Unknown, |(_, found)| found.clone())
    };
    let decision = decide(&references(), &Components::parse(live), state_of);
    let Decision { components, unlabelled, unseen, missing, missing_or_unlabelled, over_budget } =
        &decision;
    let refused: Vec<_> =
        [unlabelled, unseen, missing, missing_or_unlabelled].into_iter().flatten().collect();
    assert_eq!(decision.refuses(), !refused.is_empty());
    assert!(refused.iter().all(|one| !over_budget.contains(one)));
    (components.text().unwrap_or_default(), refused.iter().map(ToString::to_string).collect())
}

#[test]
fn a5_what_is_not_known_replaces_no_pods() {
    let live = format!("ConfigMap/map={},Secret/keys={}", digest('1'), digest('2'));
    assert_eq!(decided(&live, &[]), (live.clone(), vec![]));
    assert_eq!(decided("", &[]), (String::new(), vec![]));
    let (changed, _) = decided(&live, &[("map", InputState::Digest(digest('9')))]);
    assert_eq!(changed, live.replace(&digest('1'), &digest('9')), "the others stay");
    let (rest, _) = decided(&format!("{live},Secret/unread={}", digest('3')), &[]);
    assert_eq!(rest, live, "what is no longer read goes");
}

#[test]
fn a5_what_is_away_replaces_no_pods_unless_they_can_do_without() {
    let live = format!("Secret/keys={},Secret/maybe={}", digest('2'), digest('3'));
    let refused = vec!["Secret keys".to_owned(), "Secret maybe".to_owned()];
    for state in [
        InputState::MissingOrUnlabelled,
        InputState::Unlabelled,
        InputState::Unseen,
        InputState::Missing,
    ] {
        let found = [("keys", state.clone()), ("maybe", state)];
        assert_eq!(decided(&live, &found), (live.clone(), refused.clone()));
    }
    let found = [("keys", InputState::OverBudget), ("maybe", InputState::OverBudget)];
    assert_eq!(decided(&live, &found), (live.clone(), vec![]));
    let found = [("keys", InputState::MissingOrUnlabelled), ("maybe", InputState::OptionalMissing)];
    let without = format!("Secret/keys={}", digest('2'));
    assert_eq!(decided(&live, &found), (without, refused[..1].to_vec()), "nothing is wrong");
}
