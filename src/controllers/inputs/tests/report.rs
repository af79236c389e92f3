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

/// Both watches in the same state.
fn both(state: &WatchState) -> WatchStates<'_> {
    WatchStates { config_maps: state, secrets: state }
}

fn told(config_maps: &WatchState, secrets: &WatchState) -> Vec<String> {
    tell(&Decision::default(), config_maps, secrets)
}

fn tell(decision: &Decision, config_maps: &WatchState, secrets: &WatchState) -> Vec<String> {
    let told = Followed::of(
        &references(),
        decision,
        WatchStates { config_maps, secrets },
        "team",
        &OperatorAccount::new("ops"),
    );
    let mut list = Vec::new();
    told.set_conditions(&mut list, 1, Timestamp::UNIX_EPOCH);
    list.iter().map(|c| format!("{}={} {} {}", c.type_, c.status, c.reason, c.message)).collect()
}

#[test]
fn a13_a_missing_right_is_told_with_the_command_that_gives_it() {
    let told = told(&WatchState::Watching, &WatchState::Forbidden).remove(0);
    let command = "kubectl -n team create rolebinding convoke-secrets --clusterrole=convoke-secrets --serviceaccount=ops:convoke";
    let text = "SecretsWatched=False Forbidden changes of Secrets are not seen, and replace no pods; to allow it:";
    assert_eq!(told, format!("{text} {command}"));
}

#[test]
fn a13_what_may_not_be_read_is_named_with_the_label_to_add_and_what_is_missing_is_not_to_be_labelled()
 {
    let all: Vec<_> = references().iter().map(|(r, _)| r.clone()).collect();
    let watching = "SecretsWatched=True Watching ";
    let stay = "until then no other spec is rolled out, and pods of the one before go on";
    let label = "convoke.dev/agents=allow";
    let decision = Decision { unlabelled: all[..2].to_vec(), ..Decision::default() };
    let text = format!(
        "InputsFollowed=False NotAllowed ConfigMap map, Secret keys: not labelled {label}; {stay}; to label: kubectl -n team label configmap/map secret/keys {label} --overwrite"
    );
    assert_eq!(tell(&decision, &WatchState::Watching, &WatchState::Watching), [&*text, watching]);

    let decision = Decision { missing: all[..2].to_vec(), ..Decision::default() };
    let text = format!(
        "InputsFollowed=False Missing ConfigMap map, Secret keys: missing; {stay}; create what is missing, then: kubectl -n team label configmap/map secret/keys {label} --overwrite"
    );
    assert_eq!(tell(&decision, &WatchState::Watching, &WatchState::Watching), [&*text, watching]);

    let (missing, missing_or_unlabelled) = (all[..1].to_vec(), all[1..2].to_vec());
    let decision = Decision {
        missing,
        missing_or_unlabelled,
        unlabelled: all[2..].to_vec(),
        ..Decision::default()
    };
    let text = format!(
        "InputsFollowed=False NotAllowed ConfigMap map: missing; Secret keys: missing, or not labelled {label} (kubectl -n team get secret/keys shows which); Secret maybe: not labelled {label}; {stay}; to label: kubectl -n team label secret/maybe secret/keys {label} --overwrite"
    );
    assert_eq!(tell(&decision, &WatchState::Watching, &WatchState::Watching), [&*text, watching]);
    let forbidden = WatchState::Forbidden;
    assert!(
        tell(&decision, &forbidden, &WatchState::Watching)[0].contains("NotAllowed"),
        "it counts for more than what is not followed"
    );
}

#[test]
fn a13_what_may_not_be_seen_is_told_with_the_right_and_not_with_a_label() {
    let all: Vec<_> = references().iter().map(|(r, _)| r.clone()).collect();
    let unseen = all[1..2].to_vec();
    let decision = Decision { unseen: unseen.clone(), ..Decision::default() };
    let forbidden = WatchState::Forbidden;
    let told = tell(&decision, &WatchState::Watching, &forbidden).remove(0);
    let stay = "until then no other spec is rolled out, and pods of the one before go on";
    let command = "kubectl -n team create rolebinding convoke-secrets --clusterrole=convoke-secrets --serviceaccount=ops:convoke";
    let text = "InputsFollowed=False Forbidden Secret keys: may not be seen, and under a name that Convoke uses only what is seen to be labelled convoke.dev/agents=allow is read";
    assert_eq!(told, format!("{text}; {stay}; to let the operator see it: {command}"));
    let decision = Decision { unseen, unlabelled: all[..1].to_vec(), ..Decision::default() };
    let told = tell(&decision, &WatchState::Watching, &forbidden).remove(0);
    assert!(told.starts_with("InputsFollowed=False NotAllowed ConfigMap map: not labelled"));
    assert!(
        told.contains("kubectl -n team label configmap/map convoke.dev") && told.ends_with(command)
    );
}

#[test]
fn a13_why_nothing_runs_is_told_only_while_it_is_held() {
    let all: Vec<_> = references().iter().map(|(r, _)| r.clone()).collect();
    let decision = Decision { missing: all[..1].to_vec(), ..Decision::default() };
    let watching = &WatchState::Watching;
    let told = Followed::of(
        &references(),
        &decision,
        both(watching),
        "team",
        &OperatorAccount::new("ops"),
    );
    assert_eq!(told.held(), None, "it is to run no pods");
    assert!(told.holding().held().is_some_and(|text| text.starts_with("ConfigMap map: missing")));
    assert_eq!(Followed::unchanged().held(), None);
}

#[test]
fn a13_what_is_beyond_the_budget_is_named_with_what_to_do() {
    let all: Vec<_> = references().iter().map(|(r, _)| r.clone()).collect();
    let decision = Decision { over_budget: all[..1].to_vec(), ..Decision::default() };
    let told = tell(&decision, &WatchState::Watching, &WatchState::Watching);
    let text = "InputsFollowed=False BudgetExceeded ConfigMap map: not followed, so changes replace no pods: what is labelled convoke.dev/agents=allow in namespace team has more keys than the operator follows (--inputs-max-keys); take the label from what no agent reads";
    assert_eq!(told, [text, "SecretsWatched=True Watching "]);
}

#[test]
fn a13_conditions_are_there_only_when_they_apply_and_stand_while_nothing_is_known() {
    assert_eq!(
        told(&WatchState::Watching, &WatchState::Watching),
        ["SecretsWatched=True Watching "]
    );
    let none = Decision::default();
    let (config_maps, secrets) = (&WatchState::Watching, &WatchState::Starting);
    let watches = WatchStates { config_maps, secrets };
    let nothing =
        Followed::of(&References::default(), &none, watches, "t", &OperatorAccount::new("o"));
    assert_eq!(nothing, Followed::nothing());
    let why = WatchState::NoKey("why".into());
    let text = "NoKey changes of ConfigMaps and Secrets replace no pods: why";
    let expected = [format!("InputsFollowed=False {text}"), format!("SecretsWatched=False {text}")];
    assert_eq!(told(&why, &why), expected);

    let mut list = Vec::new();
    let stand = Followed::of(&references(), &none, both(&why), "t", &OperatorAccount::new("o"));
    stand.set_conditions(&mut list, 1, Timestamp::UNIX_EPOCH);
    let before = list.clone();
    let (config_maps, secrets) = (&WatchState::Starting, &WatchState::Failing);
    let watches = WatchStates { config_maps, secrets };
    let starting = Followed::of(&references(), &none, watches, "t", &OperatorAccount::new("o"));
    assert_eq!(starting, Followed::unchanged());
    starting.set_conditions(&mut list, 1, Timestamp::UNIX_EPOCH);
    assert_eq!(list, before);
    Followed::nothing().set_conditions(&mut list, 1, Timestamp::UNIX_EPOCH);
    assert_eq!(list, []);
}

#[test]
fn m5_missing_keys_are_told_with_the_command_and_hold_only_what_is_new() {
    let operator = OperatorAccount::new("ops");
    let shown = |followed: &Followed| {
        let mut list = Vec::new();
        followed.set_conditions(&mut list, 1, Timestamp::UNIX_EPOCH);
        list.iter().map(|c| format!("{}={} {}", c.type_, c.status, c.reason)).collect::<Vec<_>>()
    };
    let forbidden = Followed::nothing().without_right_to_keys("team", &operator);
    assert_eq!(shown(&forbidden), ["KeysWritten=False Forbidden"]);
    assert_eq!(forbidden.held(), None, "what runs as wanted goes on");
    let held = forbidden.holding();
    let command = ": kubectl -n team create rolebinding convoke-keys --clusterrole=convoke-keys --serviceaccount=ops:convoke";
    assert!(held.held().is_some_and(|text| text.ends_with(command)), "{held:?}");
    assert!(held.lacks_keys());
    let keyless = Followed::unchanged().without_operator_key("no Secret").holding();
    assert_eq!(shown(&keyless), ["KeysWritten=False NoKey"]);
    assert!(keyless.held().is_some_and(|text| text.contains("no Secret")));
    let fine = keyless.with_keys();
    assert!(!fine.lacks_keys() && shown(&fine).is_empty());
}
