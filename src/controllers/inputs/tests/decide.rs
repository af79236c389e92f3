use serde_json::json;

use super::*;

fn references() -> References {
    let key = |kind: &str, name: &str, optional: bool| json!({"name": name, "valueFrom": {kind: {"name": name, "key": "k", "optional": optional}}});
    let env = [
        key("configMapKeyRef", "map", false),
        key("secretKeyRef", "keys", false),
        key("secretKeyRef", "maybe", true),
    ];
    let template = json!({"spec": {"containers": [{"name": "c", "env": env}]}});
    References::of(&serde_json::from_value(template).expect("template"), None)
}

fn digest(of: char) -> String {
    std::iter::repeat_n(of, 32).collect()
}

/// What is found, by name.
fn decided(live: &str, found: &[(&str, Found)]) -> (String, Vec<String>) {
    let look = |reference: &Reference| {
        let found = found.iter().find(|(name, _)| *name == reference.name);
        found.map_or(Found::Unknown, |(_, found)| found.clone())
    };
    let decision = decide(&references(), &Components::parse(live), look);
    let Decision { components, unlabelled, missing, absent, beyond } = &decision;
    let refused: Vec<_> = unlabelled.iter().chain(missing).chain(absent).collect();
    assert_eq!(decision.refuses(), !refused.is_empty());
    assert!(refused.iter().all(|one| !beyond.contains(one)));
    (components.text().unwrap_or_default(), refused.iter().map(ToString::to_string).collect())
}

#[test]
fn a5_what_is_not_known_replaces_no_pods() {
    let live = format!("ConfigMap/map={},Secret/keys={}", digest('1'), digest('2'));
    assert_eq!(decided(&live, &[]), (live.clone(), vec![]));
    assert_eq!(decided("", &[]), (String::new(), vec![]));
    let (changed, _) = decided(&live, &[("map", Found::Holds(digest('9')))]);
    assert_eq!(changed, live.replace(&digest('1'), &digest('9')), "the others stay");
    let (rest, _) = decided(&format!("{live},Secret/unread={}", digest('3')), &[]);
    assert_eq!(rest, live, "what is no longer read goes");
}

#[test]
fn a5_what_is_away_replaces_no_pods_unless_they_can_do_without() {
    let live = format!("Secret/keys={},Secret/maybe={}", digest('2'), digest('3'));
    let refused = vec!["Secret keys".to_owned(), "Secret maybe".to_owned()];
    for state in [Found::Absent, Found::Unlabelled, Found::Missing] {
        let found = [("keys", state.clone()), ("maybe", state)];
        assert_eq!(decided(&live, &found), (live.clone(), refused.clone()));
    }
    let found = [("keys", Found::Beyond), ("maybe", Found::Beyond)];
    assert_eq!(decided(&live, &found), (live.clone(), vec![]));
    let found = [("keys", Found::Absent), ("maybe", Found::Gone)];
    let without = format!("Secret/keys={}", digest('2'));
    assert_eq!(decided(&live, &found), (without, refused[..1].to_vec()), "nothing is wrong");
}

fn told(config_maps: &State, secrets: &State) -> Vec<String> {
    tell(&Decision::default(), config_maps, secrets)
}

fn tell(decision: &Decision, config_maps: &State, secrets: &State) -> Vec<String> {
    let told = Followed::of(&references(), decision, config_maps, secrets, "team", "ops");
    let mut list = Vec::new();
    told.tell(&mut list, 1, Timestamp::UNIX_EPOCH);
    list.iter().map(|c| format!("{}={} {} {}", c.type_, c.status, c.reason, c.message)).collect()
}

#[test]
fn a13_a_missing_right_is_told_with_the_command_that_gives_it() {
    let said = r#"secrets is forbidden: User "system:serviceaccount:ops-1:convoke" cannot list resource "secrets" in API group "" in the namespace "team""#;
    let told_of = |said: &str| told(&State::Watching, &State::forbidden(said)).remove(0);
    let command =
        "kubectl -n team create rolebinding convoke-secrets --clusterrole=convoke-secrets";
    let text = "SecretsWatched=False Forbidden changes of Secrets are not seen, and replace no pods; to allow it:";
    assert_eq!(told_of(said), format!("{text} {command} --serviceaccount=ops-1:convoke"));
    assert_eq!(told_of(r#"User "jo@x.org" cannot"#), format!("{text} {command} --user=jo@x.org"));
    let fallback = format!("{text} {command} --serviceaccount=ops:convoke");
    assert_eq!(told_of("no"), fallback);
    assert_eq!(told_of(r#"User "a; rm" cannot"#), fallback, "nothing odd in a command");
}

#[test]
fn a13_what_may_not_be_read_is_named_with_the_label_to_add_and_what_is_missing_is_not_to_be_labelled()
 {
    let all: Vec<_> = references().iter().map(|(r, _)| r.clone()).collect();
    let watching = "SecretsWatched=True Watching ";
    let stay = "until then no new pods are made, and those that run stay as they are";
    let label = "convoke.dev/agents=allow";
    let decision = Decision { unlabelled: all[..2].to_vec(), ..Decision::default() };
    let text = format!(
        "InputsFollowed=False NotAllowed ConfigMap map, Secret keys: not labelled {label}; {stay}; to label: kubectl -n team label configmap/map secret/keys {label}"
    );
    assert_eq!(tell(&decision, &State::Watching, &State::Watching), [&*text, watching]);

    let decision = Decision { missing: all[..2].to_vec(), ..Decision::default() };
    let text = format!(
        "InputsFollowed=False Missing ConfigMap map, Secret keys: missing; to be created with the label {label}; {stay}"
    );
    assert_eq!(tell(&decision, &State::Watching, &State::Watching), [&*text, watching]);

    let (missing, absent) = (all[..1].to_vec(), all[1..2].to_vec());
    let decision =
        Decision { missing, absent, unlabelled: all[2..].to_vec(), ..Decision::default() };
    let text = format!(
        "InputsFollowed=False NotAllowed ConfigMap map: missing; to be created with the label {label}; Secret keys: missing, or not labelled {label} (kubectl -n team get secret/keys shows which); Secret maybe: not labelled {label}; {stay}; to label: kubectl -n team label secret/maybe secret/keys {label}"
    );
    assert_eq!(tell(&decision, &State::Watching, &State::Watching), [&*text, watching]);
    let forbidden = State::forbidden("no");
    assert!(
        tell(&decision, &forbidden, &State::Watching)[0].contains("NotAllowed"),
        "it counts for more than what is not followed"
    );
}

#[test]
fn a13_why_nothing_runs_is_told_only_while_it_is_held() {
    let all: Vec<_> = references().iter().map(|(r, _)| r.clone()).collect();
    let decision = Decision { missing: all[..1].to_vec(), ..Decision::default() };
    let watching = &State::Watching;
    let told = Followed::of(&references(), &decision, watching, watching, "team", "ops");
    assert_eq!(told.held(), None, "it is to run no pods");
    assert!(told.holding().held().is_some_and(|text| text.starts_with("ConfigMap map: missing")));
    assert_eq!(Followed::unchanged().held(), None);
}

#[test]
fn a13_what_is_beyond_the_budget_is_named_with_what_to_do() {
    let all: Vec<_> = references().iter().map(|(r, _)| r.clone()).collect();
    let decision = Decision { beyond: all[..1].to_vec(), ..Decision::default() };
    let told = tell(&decision, &State::Watching, &State::Watching);
    let text = "InputsFollowed=False BudgetExceeded ConfigMap map: not followed, so changes replace no pods: what is labelled convoke.dev/agents=allow in namespace team has more keys than the operator follows (--inputs-max-keys); take the label from what no agent reads";
    assert_eq!(told, [text, "SecretsWatched=True Watching "]);
}

#[test]
fn a13_conditions_are_there_only_when_they_apply_and_stand_while_nothing_is_known() {
    assert_eq!(told(&State::Watching, &State::Watching), ["SecretsWatched=True Watching "]);
    let none = Decision::default();
    let nothing =
        Followed::of(&References::default(), &none, &State::Watching, &State::Starting, "t", "o");
    assert_eq!(nothing, Followed::nothing());
    let why = State::NoKey("why".into());
    let text = "NoKey changes of ConfigMaps and Secrets replace no pods: why";
    let expected = [format!("InputsFollowed=False {text}"), format!("SecretsWatched=False {text}")];
    assert_eq!(told(&why, &why), expected);

    let mut list = Vec::new();
    let stand = Followed::of(&references(), &none, &why, &why, "t", "o");
    stand.tell(&mut list, 1, Timestamp::UNIX_EPOCH);
    let before = list.clone();
    let starting = Followed::of(&references(), &none, &State::Starting, &State::Failing, "t", "o");
    assert_eq!(starting, Followed::unchanged());
    starting.tell(&mut list, 1, Timestamp::UNIX_EPOCH);
    assert_eq!(list, before);
    Followed::nothing().tell(&mut list, 1, Timestamp::UNIX_EPOCH);
    assert_eq!(list, []);
}
