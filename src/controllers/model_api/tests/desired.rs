//! Children of ModelAPIs.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)] // a test of a script needs a file and a shell

use serde_json::Value;

use super::*;
use crate::controllers::workload::pod_template::assert_restricted;

fn defaults() -> Defaults {
    Defaults::for_tests()
}

fn api(spec: Value) -> ModelAPI {
    let object = json!({"apiVersion": "convoke.dev/v1alpha1", "kind": "ModelAPI", "spec": spec,
        "metadata": {"name": "m", "namespace": "team", "uid": "u1"}});
    serde_json::from_value(object).expect("ModelAPI")
}

/// The children of a ModelAPI of whose keys nothing is known.
fn children(api: &ModelAPI, defaults: &Defaults) -> Children {
    super::children(api, &Resolved::default(), defaults)
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
fn m1_a_configuration_of_its_own_is_mounted_as_it_is() {
    let key = json!({"name": "litellm", "key": "prod.yaml"});
    let of = |config: Value| {
        let proxy = json!({"models": ["gpt"], "configYaml": config,
            "apiKeyFrom": {"secretKeyRef": {"name": "s", "key": "k"}}});
        let api = api(json!({"mode": "Proxy", "proxy": proxy}));
        let children = children(&api, &defaults());
        assert_restricted(children.deployment.get().expect("deployment"));
        let pod = serde_json::to_value(children.deployment.get()).expect("JSON");
        let pod = pod["spec"]["template"]["spec"].clone();
        let env = pod["containers"][0]["env"].as_array().expect("env");
        assert!(env.iter().any(|var| var["name"] == "PROXY_API_KEY"), "the file may name it");
        assert_eq!(models(&api), ["gpt"], "still what is served");
        (children.config_map, pod["volumes"][1].clone())
    };
    let text = "# $(HOME)\nmodel_list: []\n";
    let (map, volume) = of(json!({"inline": text}));
    let map = map.get().expect("ConfigMap");
    assert_eq!(map.data.as_ref().expect("data")["config.yaml"], text);
    assert_eq!(volume["configMap"]["name"].as_str(), map.metadata.name.as_deref());

    let items = json!([{"key": "prod.yaml", "path": "config.yaml"}]);
    let (map, volume) = of(json!({"configMapKeyRef": key}));
    assert_eq!(map, Wanted::Remove);
    assert_eq!(volume["configMap"], json!({"name": "litellm", "items": items}));
    let (map, volume) = of(json!({"secretKeyRef": key}));
    assert_eq!(map, Wanted::Remove);
    assert_eq!(volume["secret"], json!({"secretName": "litellm", "items": items}));
}

#[test]
fn m1_m4_what_a_configuration_of_its_own_serves_is_not_known_unless_it_is_said() {
    let served = |proxy: Value| models(&api(json!({"mode": "Proxy", "proxy": proxy})));
    assert_eq!(served(json!({})), ["*"]);
    assert_eq!(served(json!({"configYaml": {"inline": "model_list: []"}})), [""; 0]);
}

#[test]
fn a4_m1_m2_servers_have_time_to_start() {
    let budget = |spec: Value| {
        let children = children(&api(spec), &defaults());
        let pod = serde_json::to_value(children.deployment.get()).expect("JSON");
        let main = &pod["spec"]["template"]["spec"]["containers"][0];
        let [startup, liveness] = [&main["startupProbe"], &main["livenessProbe"]];
        assert_eq!(
            (&startup["periodSeconds"], &liveness["periodSeconds"]),
            (&json!(1), &json!(10))
        );
        assert_eq!(startup["httpGet"], liveness["httpGet"]);
        (startup["httpGet"]["path"].clone(), startup["failureThreshold"].clone())
    };
    let proxy = json!({"mode": "Proxy", "proxy": {}});
    assert_eq!(budget(proxy), (json!("/health/liveliness"), json!(300)));
    let hosted = json!({"mode": "Hosted", "hosted": {"model": "m"}});
    assert_eq!(budget(hosted), (json!("/"), json!(120)));
}

#[test]
fn a4_m1_a_proxy_is_ready_when_it_says_so_and_tells_its_metrics_at_a_port_of_its_own() {
    let children = children(&api(json!({"mode": "Proxy", "proxy": {}})), &defaults());
    let pod = serde_json::to_value(children.deployment.get()).expect("JSON");
    let main = &pod["spec"]["template"]["spec"]["containers"][0];
    let ready = json!({"path": "/health/readiness", "port": 8000});
    assert_eq!(main["readinessProbe"]["httpGet"], ready);
    let metrics = json!({"name": "metrics", "containerPort": 9000, "protocol": "TCP"});
    assert_eq!(main["ports"][1], metrics);
    let service = serde_json::to_value(children.service.get()).expect("JSON");
    let ports = service["spec"]["ports"].as_array().expect("ports");
    assert_eq!((ports.len(), &ports[0]["port"]), (1, &json!(8000)), "agents see no metrics");
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
fn m1_m2_what_convoke_sets_wins_in_an_object_that_is_older_than_the_rules() {
    let key = json!({"secretKeyRef": {"name": "s", "key": "k"}});
    let proxy =
        json!({"mode": "Proxy", "proxy": {"apiBase": "https://p.example", "apiKeyFrom": key}});
    let hosted = json!({"mode": "Hosted", "hosted": {"model": "m"}});
    for (spec, name, ours) in [
        (&proxy, "PROXY_API_BASE", true),
        (&proxy, "PROXY_API_KEY", true),
        (&proxy, "LITELLM_LOG", false),
        (&proxy, "OLLAMA_HOST", false),
        (&hosted, "OLLAMA_HOST", true),
        (&hosted, "OLLAMA_MODELS", true),
        (&hosted, "HOME", false),
        (&hosted, "PROXY_API_KEY", false),
    ] {
        let mut with = spec.clone();
        with["env"] = json!([{"name": name, "value": "mine"}]);
        let same = children(&api(with), &defaults()) == children(&api(spec.clone()), &defaults());
        assert_eq!(same, ours, "{name}: {spec}");
    }
}

#[test]
fn m3_an_external_api_has_no_children() {
    let api = api(json!({"mode": "External", "external": {"url": "https://m.example/v1"}}));
    assert_eq!(children(&api, &defaults()), Children::removed());
    assert_eq!(endpoint(&api, &defaults()).as_deref(), Some("https://m.example/v1"));
}

/// Runs the script as the pod does, with a stand-in for `ollama`, and gives the exit code.
fn pull(stand_in: &str) -> Option<i32> {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().expect("folder");
    let program = folder.path().join("ollama");
    std::fs::write(&program, format!("#!/bin/sh\n{stand_in}\n")).expect("stand-in");
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).expect("mode");
    let path = format!("{}:/usr/bin:/bin", folder.path().display());
    let mut script = std::process::Command::new("/bin/sh");
    script.args(["-ec", PULL_SCRIPT, "pull", "the model"]).env("PATH", path);
    script.stderr(std::process::Stdio::null()).status().expect("sh").code()
}

#[test]
fn m2_the_pull_ends_well_however_the_server_ends_and_fails_with_the_pull() {
    // A server that dies of the signal, and one that ends by itself.
    let dies = "case $1 in serve) exec sleep 60;; pull) [ \"$2\" = 'the model' ];; esac";
    assert_eq!(pull(dies), Some(0));
    let ends = "case $1 in serve) trap 'exit 0' TERM; while :; do sleep 0.1; done;; esac";
    assert_eq!(pull(ends), Some(0));
    assert_eq!(pull("case $1 in serve) exec sleep 1;; pull) exit 7;; esac"), Some(7));
    // A server that does not start is not waited for.
    assert_eq!(pull("exit 1"), Some(1));
}

#[test]
fn m5_a_proxy_mounts_its_keys_and_its_list_and_stays_admitted() {
    use super::super::keys::ProxyKeys;
    use super::super::list::AgentList;
    use crate::controllers::inputs::digest::MacKey;

    let api = api(json!({"mode": "Proxy", "proxy": {"configYaml": {"inline": "model_list: []"}}}));
    let operator = std::sync::Arc::new(MacKey::new(&[7; 32]));
    let keys = Some(Ok(std::sync::Arc::new(ProxyKeys::new(operator, &api))));
    let agents = AgentList::of("team", Vec::new());
    let resolved = Resolved { keys, agents, ..Resolved::default() };
    let children = super::children(&api, &resolved, &defaults());
    let run = children.deployment.get().expect("a Deployment");
    assert_restricted(run);
    let Keys::Bring(secret) = &children.keys else { panic!("a Secret") };
    let pods = serde_json::to_value(run).expect("JSON")["spec"]["template"]["metadata"].clone();
    assert_eq!(pods["annotations"]["convoke.dev/key-digest"], json!(secret.digest));
    let pod = serde_json::to_value(run).expect("JSON")["spec"]["template"]["spec"].clone();
    let volume = |name: &str| {
        let volumes = pod["volumes"].as_array().expect("volumes");
        volumes.iter().find(|volume| volume["name"] == name).cloned().unwrap_or_default()
    };
    let mounted = |name: &str| {
        let mounts = pod["containers"][0]["volumeMounts"].as_array().expect("mounts");
        let mount = mounts.iter().find(|mount| mount["name"] == name).expect("a mount");
        assert_eq!((&mount["readOnly"], &mount["subPath"]), (&json!(true), &Value::Null));
        mount["mountPath"].as_str().expect("a path").to_owned()
    };
    let secret = json!({"secretName": "modelapi-m-keys", "defaultMode": 0o440});
    assert_eq!((mounted("keys"), &volume("keys")["secret"]), (KEYS_FOLDER.to_owned(), &secret));
    let list = json!({"name": "modelapi-m-agents"});
    assert_eq!(
        (mounted("agents"), &volume("agents")["configMap"]),
        (AGENTS_FOLDER.to_owned(), &list)
    );
    let map = children.agents.get().expect("a list");
    assert_eq!(map.metadata.name.as_deref(), Some("modelapi-m-agents"));
    assert_eq!(map.immutable, None, "it is changed in place");
    let text = &map.data.as_ref().expect("data")["agents.json"];
    assert_eq!(text, r#"{"agents":[],"namespace":"team"}"#);
    // No value of a key is anywhere but in the Secret.
    let shown = format!("{pod} {map:?} {children:?}");
    assert!(secret_values(&children).iter().all(|value| !shown.contains(value)));
}

fn secret_values(children: &Children) -> Vec<String> {
    let Keys::Bring(secret) = &children.keys else { panic!("a Secret") };
    secret.data.values().map(|value| value.get().clone()).collect()
}

#[test]
fn m5_only_a_proxy_has_keys_and_a_list() {
    let hosted = api(json!({"mode": "Hosted", "hosted": {"model": "m"}}));
    let children = children(&hosted, &defaults());
    assert_eq!((children.keys, children.agents), (Keys::None, Wanted::Remove));
    let proxy = api(json!({"mode": "Proxy", "proxy": {}}));
    let resolved = Resolved { keys: Some(Err("no Secret".into())), ..Resolved::default() };
    let children = super::children(&proxy, &resolved, &defaults());
    let expected = Keys::Unknown { secret: "modelapi-m-keys".into(), why: "no Secret".into() };
    assert_eq!((children.keys, children.agents), (expected, Wanted::Keep));
}
