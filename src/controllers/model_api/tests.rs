//! Children of ModelAPIs.

use serde_json::Value;

use super::*;
use crate::controllers::workload::assert_restricted;

fn defaults() -> Defaults {
    Defaults {
        agent_image: "agent:1".into(),
        proxy_image: "litellm:1".into(),
        hosted_image: "ollama:1".into(),
        python_image: "python:1".into(),
        node_image: "node:1".into(),
        pypi_index: None,
        npm_registry: None,
        cluster_domain: "cluster.local".into(),
    }
}

fn api(spec: Value) -> ModelAPI {
    let object = json!({"apiVersion": "convoke.dev/v1alpha1", "kind": "ModelAPI", "spec": spec,
        "metadata": {"name": "m", "namespace": "team", "uid": "u1"}});
    serde_json::from_value(object).expect("ModelAPI")
}

fn config(children: &Children) -> Value {
    let data = children.config_map.get().and_then(|map| map.data.clone()).expect("data");
    serde_json::from_str(&data["config.yaml"]).expect("JSON is YAML")
}

#[test]
fn m1_a_proxy_without_models_serves_all() {
    let api = api(
        json!({"mode": "Proxy", "proxy": {"provider": "openai", "apiKeyFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}}),
    );
    let children = children(&api, &defaults());
    let expected = json!([{"model_name": "*", "litellm_params": {"model": "openai/*", "api_key": "os.environ/PROXY_API_KEY"}}]);
    assert_eq!(config(&children)["model_list"], expected);
    assert_eq!(models(&api), ["*"]);
    let deployment = children.deployment.get().expect("deployment");
    assert_restricted(deployment);
    let text = serde_json::to_string(deployment).expect("json");
    assert!(text.contains(r#""secretKeyRef":{"key":"k","name":"s"}"#), "{text}");
    assert!(text.contains("/health/liveliness"));
}

#[test]
fn m1_values_are_quoted_by_the_serializer() {
    let api = api(
        json!({"mode": "Proxy", "proxy": {"models": ["a: b\n- c", "x"], "apiBase": "https://p.example"}}),
    );
    let list = &config(&children(&api, &defaults()))["model_list"];
    assert_eq!(list[0]["model_name"], "a: b\n- c");
    assert_eq!(list[1]["litellm_params"]["api_base"], "os.environ/PROXY_API_BASE");
}

#[test]
fn m2_a_hosted_model_is_pulled_before_the_server_starts_and_is_no_part_of_a_script() {
    let api = api(
        json!({"mode": "Hosted", "hosted": {"model": "smollm2:135m", "storage": {"claimName": "weights"}}}),
    );
    let children = children(&api, &defaults());
    let deployment = children.deployment.get().expect("deployment");
    assert_restricted(deployment);
    let value = serde_json::to_value(deployment).expect("json");
    let pod = &value["spec"]["template"]["spec"];
    let command = pod["initContainers"][0]["command"].as_array().expect("command");
    assert_eq!(command.last().expect("last"), "smollm2:135m");
    assert!(!command[2].as_str().expect("script").contains("smollm2"));
    assert_eq!(pod["volumes"][1]["persistentVolumeClaim"]["claimName"], "weights");
    assert_eq!(
        endpoint(&api, &defaults()).as_deref(),
        Some("http://modelapi-m.team.svc.cluster.local:11434")
    );
    assert_eq!(children.config_map, Wanted::Remove);
}

#[test]
fn m3_an_external_api_has_no_children() {
    let api = api(json!({"mode": "External", "external": {"url": "https://m.example/v1"}}));
    let expected = Children {
        config_map: Wanted::Remove,
        service: Wanted::Remove,
        deployment: Wanted::Remove,
    };
    assert_eq!(children(&api, &defaults()), expected);
    assert_eq!(endpoint(&api, &defaults()).as_deref(), Some("https://m.example/v1"));
}
