use serde_json::json;

use super::*;

#[test]
fn a13_a_name_that_no_object_can_have_is_told_apart() {
    let is = |name: &str| Reference { source: Source::Secret, name: name.to_owned() }.is_possible();
    assert!(is("a") && is("openai-key.v2") && is("7") && is(&"a".repeat(253)));
    let odd = ["", "..", "../x", "x/y", "x?y", "x; rm -rf", "$(x)", "X", "-x", "x.", "ä"];
    assert!(odd.iter().all(|name| !is(name)) && !is(&"a".repeat(254)));
}

fn shown(template: serde_json::Value, own: Own<'_>) -> Vec<String> {
    let template = serde_json::from_value(template).expect("template");
    let line = |(r, u): (&Reference, &Use)| {
        let keys: Vec<_> = u.keys.iter().map(String::as_str).collect();
        let all = if u.all { " all" } else { "" };
        let required = if u.required { " required" } else { "" };
        format!("{r}:{}{all}{required}", keys.join("+"))
    };
    References::of(&template, own).iter().map(line).collect()
}

#[test]
fn a5_every_way_to_read_an_object_counts_and_ours_does_not() {
    let key = |kind: &str, name: &str, key: &str| json!({kind: {"name": name, "key": key}});
    let template = json!({"spec": {
        "initContainers": [{"name": "i", "env": [{"name": "I", "valueFrom": key("secretKeyRef", "init", "k")}]}],
        "containers": [{"name": "c",
            "env": [
                {"name": "A", "valueFrom": key("secretKeyRef", "keys", "a")},
                {"name": "B", "valueFrom": {"secretKeyRef": {"name": "keys", "key": "b", "optional": true}}},
                {"name": "C", "valueFrom": {"configMapKeyRef": {"name": "maybe", "key": "c", "optional": true}}},
                {"name": "D", "value": "literal"},
                {"name": "E", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
            "envFrom": [{"configMapRef": {"name": "all"}}, {"secretRef": {"name": "every", "optional": true}}]}],
        "volumes": [
            {"name": "config", "configMap": {"name": "agent-a-12345678"}},
            {"name": "files", "configMap": {"name": "files", "items": [{"key": "x", "path": "y"}]}},
            {"name": "tls", "secret": {"secretName": "tls"}},
            {"name": "both", "projected": {"sources": [{"secret": {"name": "token"}}, {"configMap": {"name": "ca", "optional": true}}]}},
            {"name": "tmp", "emptyDir": {}}],
    }});
    let expected = [
        "ConfigMap all: all required",
        "ConfigMap ca: all",
        "ConfigMap files:x required",
        "ConfigMap maybe:c",
        "Secret every: all",
        "Secret init:k required",
        "Secret keys:a+b required",
        "Secret tls: all required",
        "Secret token: all required",
    ];
    let own = Own { config_map: Some("agent-a-12345678"), agent_key: None };
    assert_eq!(shown(template, own), expected);
    assert!(shown(json!({"spec": {"containers": []}}), Own::default()).is_empty());
}

#[test]
fn m5_a13_a_key_that_convoke_made_counts_wherever_a_definition_names_it() {
    let key = |variable: &str, secret: &str| json!({"name": variable, "valueFrom": {"secretKeyRef": {"name": secret, "key": "key"}}});
    let with = |variables: serde_json::Value| json!({"spec": {"containers": [{"name": "c", "env": variables}]}});
    let own = Own { config_map: None, agent_key: Some("agent-a-model-key") };
    let made = key(KEY_VARIABLE, "agent-a-model-key");
    assert!(shown(with(json!([made])), own).is_empty(), "as Convoke puts it");
    let read = ["Secret agent-a-model-key:key required"];
    assert_eq!(shown(with(json!([made, key("MINE", "agent-a-model-key")])), own), read);
    assert_eq!(shown(with(json!([made])), Own::default()), read, "it has no such key");
    let others = ["Secret agent-b-model-key:key required"];
    assert_eq!(shown(with(json!([key(KEY_VARIABLE, "agent-b-model-key")])), own), others);

    // The volumes of a model proxy, and the same Secret as the provider's key.
    let volumes = json!([{"name": KEYS_VOLUME, "secret": {"secretName": "modelapi-m-keys"}},
        {"name": AGENTS_VOLUME, "configMap": {"name": "modelapi-m-agents"}}]);
    let mut proxy = with(json!([]));
    proxy["spec"]["volumes"] = volumes;
    assert!(shown(proxy.clone(), Own::default()).is_empty());
    // LiteLLM sends both of these to the provider.
    for variable in ["PROXY_API_KEY", KEY_VARIABLE] {
        proxy["spec"]["containers"][0]["env"] = json!([key(variable, "modelapi-m-keys")]);
        let read = shown(proxy.clone(), Own::default());
        assert_eq!(read, ["Secret modelapi-m-keys:key required"], "{variable}");
    }
}
