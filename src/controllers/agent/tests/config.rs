//! The files of agents, from specs as a user writes them.

use super::super::fixtures::{agent, defaults, header, ready};
use super::*;

fn of(spec: Value, resolved: &Resolved) -> Configuration {
    configuration(&agent("helper", spec), resolved, &defaults())
}

fn name(configuration: &Configuration) -> &str {
    configuration.config_map.metadata.name.as_deref().expect("name")
}

fn config(configuration: &Configuration) -> Value {
    let data = configuration.config_map.data.as_ref().expect("data");
    serde_json::from_str(&data["config.json"]).expect("JSON")
}

fn whole_spec() -> Value {
    json!({
        "modelAPI": {"name": "m"}, "description": "helps",
        "modelParameters": {"temperature": 0.2, "stopSequences": ["END"]},
        "config": {"instructions": "Be kind.", "agenticLoop": {"maxSeconds": 60, "maxTokens": 9000},
            "memory": {"type": "Redis", "redis": {"urlFrom": {"secretKeyRef": {"name": "redis", "key": "url"}}}}},
        "mcpServers": [{"name": "web-search", "tools": ["a", "b"], "requireApproval": ["b"]}],
        "a2a": {"version": "1.2.0", "skills": [{"id": "x", "name": "X", "description": "D", "tags": ["t"]}]},
        "telemetry": {"endpoint": "http://collector:4318"},
        "providerSecretRef": {"name": "openai", "key": "api-key"},
    })
}

#[test]
fn a2_the_file_has_the_whole_configuration_and_no_secret() {
    let mut resolved = ready();
    resolved.model_headers = vec![header("X-Org", "org")];
    let mut trace = header("X-Trace", "trace");
    trace.secret_key_ref.optional = Some(true);
    resolved.mcp_servers[0].headers = vec![header("Authorization", "bearer"), trace];
    let found = of(whole_spec(), &resolved);
    let expected = json!({
        "name": "helper", "description": "helps", "reload": "Rollout",
        "model": "gpt", "modelAPI": "m", "modelUrl": "https://m.example",
        "modelParameters": {"temperature": 0.2, "stopSequences": ["END"]},
        "modelHeaders": [{"name": "X-Org", "env": "MODEL_API_HEADER_0"}],
        "agenticLoop": {"maxSteps": 5, "enableTools": true, "enableDelegation": true, "maxSeconds": 60, "maxTokens": 9000},
        "memory": {"enabled": true, "type": "Redis", "contextLimit": 6, "maxSessions": 1000, "maxSessionEvents": 500},
        "mcpServers": [{"name": "web-search", "url": "https://s.example/mcp", "tools": ["a", "b"], "requireApproval": ["b"],
            "headers": [{"name": "Authorization", "env": "MCP_SERVER_WEB_SEARCH_HEADER_0"},
                {"name": "X-Trace", "env": "MCP_SERVER_WEB_SEARCH_HEADER_1", "optional": true}]}],
        "peers": [{"name": "writer", "url": "http://agent-writer.team.svc.cluster.local:8000"}],
        "a2a": {"version": "1.2.0", "skills": [{"id": "x", "name": "X", "description": "D", "tags": ["t"]}]},
        "debugMemoryEndpoints": false,
        "telemetry": {"enabled": true, "endpoint": "http://collector:4318"},
    });
    assert_eq!(config(&found), expected);
    let data = found.config_map.data.as_ref().expect("data");
    assert_eq!(data["instructions.md"], "Be kind.");
    let text = serde_json::to_string(data).expect("JSON");
    for secret in ["openai", "api-key", "bearer", "urlFrom"] {
        assert!(!text.contains(secret), "{secret}");
    }
}

#[test]
fn a2_what_is_not_known_is_not_in_the_file() {
    let found = config(&of(json!({"modelAPI": {"name": "m"}}), &Resolved::default()));
    let expected = json!({
        "name": "helper", "reload": "Rollout", "modelAPI": "m", "modelHeaders": [], "mcpServers": [], "peers": [],
        "agenticLoop": {"maxSteps": 5, "enableTools": true, "enableDelegation": true, "maxSeconds": 300},
        "memory": {"enabled": true, "type": "Local", "contextLimit": 6, "maxSessions": 1000, "maxSessionEvents": 500},
        "debugMemoryEndpoints": false,
    });
    assert_eq!(found, expected);
    let mut resolved = ready();
    resolved.mcp_servers[0].url = None;
    let found = config(&of(whole_spec(), &resolved));
    assert_eq!(found["mcpServers"], json!([]), "its address is not known");
}

#[test]
fn a5_each_content_has_a_config_map_of_its_own() {
    let one = of(whole_spec(), &ready());
    let hash = one.hash.as_deref().expect("hash");
    assert_eq!(name(&one), format!("agent-helper-{hash}"));
    assert_eq!(one.config_map.immutable, Some(true));
    let mut other = whole_spec();
    other["config"]["instructions"] = json!("Be brief.");
    assert_ne!(of(other, &ready()).hash, one.hash);
    let mut other = whole_spec();
    other["a2a"]["version"] = json!("1.2.1");
    assert_ne!(of(other, &ready()).hash, one.hash);
}

#[test]
fn a5_one_that_pods_read_again_is_changed_in_place_and_says_its_commit() {
    let hot = |instructions: &str| {
        let mut spec = whole_spec();
        spec["config"]["reload"] = json!("Hot");
        spec["config"]["instructions"] = json!(instructions);
        spec
    };
    let (one, other) = (of(hot("one"), &ready()), of(hot("other"), &ready()));
    assert_eq!((name(&one), &one.hash), ("agent-helper-config", &None));
    assert_eq!((name(&other), one.config_map.immutable), (name(&one), None));
    let (one, other) = (config(&one), config(&other));
    assert_eq!((&one["commit"], &one["reload"]), (&json!("abc"), &json!("Hot")));
    let hash = |config: &Value| config["hash"].as_str().expect("hash").to_owned();
    assert_eq!(hash(&one).len(), 8);
    assert_ne!(hash(&one), hash(&other), "of the prompt, too");
    let wanted = ConfigVersion { hash: hash(&one), commit: Some("abc".into()) };
    assert_eq!(version(&of(hot("one"), &ready()).config_map), Some(wanted));
    assert_eq!(version(&of(whole_spec(), &ready()).config_map), None, "its pods read it once");

    // The hash is that of the content, whichever commit brought it.
    let mut later = agent("helper", hot("one"));
    let annotations = later.metadata.annotations.get_or_insert_default();
    annotations.insert(keys::COMMIT.to_owned(), "def".to_owned());
    let later = config(&configuration(&later, &ready(), &defaults()));
    assert_eq!((&later["commit"], hash(&later)), (&json!("def"), hash(&one)));
}

#[test]
fn a5_names_of_the_two_ways_never_meet() {
    let long = "x".repeat(63);
    let spec = json!({"modelAPI": {"name": "m"}, "config": {"reload": "Hot"}});
    let hot = configuration(&agent(&long, spec), &ready(), &defaults());
    assert!(name(&hot).len() <= 63 && name(&hot).ends_with("-config"));
    let rollout = of(json!({"modelAPI": {"name": "m"}}), &ready());
    let end = name(&rollout).rsplit('-').next().expect("end");
    assert!(end.len() == 8 && end.bytes().all(|byte| byte.is_ascii_hexdigit()));
}
