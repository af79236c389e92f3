//! The environment of agents, from specs as a user writes them.

use serde_json::{Value, json};

use super::super::config::configuration;
use super::super::fixtures::{agent, defaults, header, ready};
use super::*;

fn spec() -> Value {
    json!({"modelAPI": {"name": "m"}, "description": "helps", "config": {"instructions": "Say $(HOME) {{x}}\nbye", "env": [{"name": "A", "value": "config"}, {"name": "B", "value": "config"}]},
        "env": [{"name": "B", "value": "env"}, {"name": "KEY", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}]})
}

/// The environment with the hash `12345678`.
fn of(agent: &Agent, resolved: &Resolved) -> Vec<EnvVar> {
    environment(agent, resolved, Some("12345678"), &defaults())
}

fn shown(env: &[EnvVar]) -> Vec<(String, Option<String>)> {
    env.iter().map(|var| (var.name.clone(), var.value.clone())).collect()
}

fn value<'a>(env: &'a [EnvVar], name: &str) -> Option<&'a str> {
    env.iter().find(|var| var.name == name)?.value.as_deref()
}

/// The Secret and the key that a variable has its value from.
fn secret<'a>(env: &'a [EnvVar], name: &str) -> Option<(&'a str, &'a str)> {
    let from = env.iter().find(|var| var.name == name)?.value_from.as_ref()?;
    let key = from.secret_key_ref.as_ref()?;
    Some((key.name.as_str(), key.key.as_str()))
}

#[test]
fn a2_the_environment_is_complete_sorted_and_overridable() {
    let expected = [
        ("AGENT_NAME", Some("helper")),
        ("AGENT_NAMESPACE", Some("team")),
        ("AGENT_DESCRIPTION", Some("helps")),
        ("AGENT_INSTRUCTIONS", Some("Say $$(HOME) {{x}}\nbye")),
        ("AGENT_INSTRUCTIONS_FILE", Some("/etc/convoke/agent/instructions.md")),
        ("AGENT_CONFIG_FILE", Some("/etc/convoke/agent/config.json")),
        ("AGENT_CONFIG_HASH", Some("12345678")),
        ("HOME", Some("/tmp")),
        ("MODEL_API_URL", Some("https://m.example")),
        ("OPENAI_BASE_URL", Some("https://m.example/v1")),
        ("MODEL_NAME", Some("gpt")),
        ("AGENTIC_LOOP_MAX_STEPS", Some("5")),
        ("AGENTIC_LOOP_ENABLE_TOOLS", Some("true")),
        ("AGENTIC_LOOP_ENABLE_DELEGATION", Some("true")),
        ("MEMORY_ENABLED", Some("true")),
        ("MEMORY_TYPE", Some("local")),
        ("MEMORY_CONTEXT_LIMIT", Some("6")),
        ("MEMORY_MAX_SESSIONS", Some("1000")),
        ("MEMORY_MAX_SESSION_EVENTS", Some("500")),
        ("MCP_SERVERS", Some("web-search")),
        ("MCP_SERVER_WEB_SEARCH_URL", Some("https://s.example/mcp")),
        ("MCP_SERVER_web-search_URL", Some("https://s.example/mcp")),
        ("PEER_AGENTS", Some("writer")),
        ("PEER_AGENT_WRITER_CARD_URL", Some("http://agent-writer.team.svc.cluster.local:8000")),
        ("A", Some("config")),
        ("B", Some("env")),
        ("KEY", None),
    ];
    let expected: Vec<_> =
        expected.iter().map(|(n, v)| ((*n).to_owned(), v.map(str::to_owned))).collect();
    assert_eq!(shown(&of(&agent("helper", spec()), &ready())), expected);
}

#[test]
fn a2_long_instructions_are_only_in_the_file() {
    let long = "x".repeat(MAX_INSTRUCTIONS_IN_ENV + 1);
    let spec = json!({"modelAPI": {"name": "m"}, "config": {"instructions": long}});
    let agent = agent("a", spec);
    assert_eq!(value(&of(&agent, &ready()), "AGENT_INSTRUCTIONS"), None);
    let map = configuration(&agent, &ready(), &defaults()).config_map;
    let length = map.data.expect("data")["instructions.md"].len();
    assert_eq!(length, MAX_INSTRUCTIONS_IN_ENV + 1);
}

#[test]
fn a2_keys_and_headers_come_from_secrets() {
    let spec = json!({"modelAPI": {"name": "m"}, "providerSecretRef": {"name": "openai", "key": "api-key"},
        "config": {"memory": {"type": "Redis", "redis": {"urlFrom": {"secretKeyRef": {"name": "redis", "key": "url"}}}}}});
    let mut resolved = ready();
    resolved.model_headers = vec![header("X-Org", "org"), header("X-Team", "team")];
    resolved.mcp_servers[0].headers = vec![header("Authorization", "bearer")];
    let env = of(&agent("a", spec.clone()), &resolved);
    assert_eq!(secret(&env, "OPENAI_API_KEY"), Some(("openai", "api-key")));
    assert_eq!(secret(&env, "MEMORY_REDIS_URL"), Some(("redis", "url")));
    assert_eq!(value(&env, "MEMORY_TYPE"), Some("redis"));
    assert_eq!(value(&env, "MODEL_API_HEADERS"), Some("X-Org,X-Team"));
    assert_eq!(secret(&env, "MODEL_API_HEADER_0"), Some(("s", "org")));
    assert_eq!(secret(&env, "MODEL_API_HEADER_1"), Some(("s", "team")));
    assert_eq!(value(&env, "MCP_SERVER_WEB_SEARCH_HEADERS"), Some("Authorization"));
    assert_eq!(secret(&env, "MCP_SERVER_WEB_SEARCH_HEADER_0"), Some(("s", "bearer")));

    // Who names a variable in the spec has the last word, where the name is not reserved.
    let mut own = spec;
    own["env"] = json!([{"name": "OPENAI_BASE_URL", "value": "https://own.example/v1"},
        {"name": "OPENAI_API_KEY", "valueFrom": {"secretKeyRef": {"name": "own", "key": "k"}}}]);
    let env = of(&agent("a", own), &resolved);
    assert_eq!(value(&env, "OPENAI_BASE_URL"), Some("https://own.example/v1"));
    assert_eq!(secret(&env, "OPENAI_API_KEY"), Some(("own", "k")));
    assert_eq!(env.iter().filter(|var| var.name == "OPENAI_API_KEY").count(), 1);
}

#[test]
fn a2_debugging_and_traces_are_there_only_when_they_are_asked_for() {
    let names =
        ["AGENT_DEBUG_MEMORY_ENDPOINTS", "OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_SERVICE_NAME"];
    let told = |spec: Value| {
        let env = of(&agent("a", spec), &ready());
        names.map(|name| value(&env, name).map(str::to_owned))
    };
    let api = json!({"name": "m"});
    assert_eq!(told(json!({"modelAPI": api})), [None, None, None]);
    let url = "http://collector:4318";
    let all = json!({"modelAPI": api, "config": {"debugMemoryEndpoints": true}, "telemetry": {"endpoint": url}});
    assert_eq!(told(all), [Some("true".into()), Some(url.into()), Some("a".into())]);
    let off = json!({"modelAPI": api, "telemetry": {"enabled": false, "endpoint": url}});
    assert_eq!(told(off), [None, None, None]);
}

#[test]
fn a2_no_variable_of_a_tool_is_there_without_its_address() {
    let mut resolved = ready();
    resolved.mcp_servers[0].url = None;
    let env = of(&agent("a", json!({"modelAPI": {"name": "m"}})), &resolved);
    assert!(env.iter().all(|var| !var.name.starts_with("MCP_SERVER")), "{env:?}");
}

#[test]
fn a5_what_pods_read_again_is_not_in_the_environment() {
    let hot = |model: Value| {
        let mut spec = spec();
        spec["config"]["reload"] = json!("Hot");
        spec["config"]["debugMemoryEndpoints"] = json!(true);
        spec["model"] = model;
        let env = environment(&agent("helper", spec), &ready(), None, &defaults());
        env.into_iter().map(|var| var.name).collect::<Vec<_>>()
    };
    let expected = [
        "AGENT_NAME",
        "AGENT_NAMESPACE",
        "AGENT_INSTRUCTIONS_FILE",
        "AGENT_CONFIG_FILE",
        "HOME",
        "MODEL_API_URL",
        "OPENAI_BASE_URL",
        "MCP_SERVERS",
        "MCP_SERVER_WEB_SEARCH_URL",
        "MCP_SERVER_web-search_URL",
        "PEER_AGENTS",
        "PEER_AGENT_WRITER_CARD_URL",
        "A",
        "B",
        "KEY",
    ];
    assert_eq!(hot(json!("gpt")), expected);
    // A name that only the ModelAPI gives is remembered while the ModelAPI is away.
    assert!(hot(Value::Null).contains(&"MODEL_NAME".to_owned()));
}

/// What a kubelet makes of a value: `k8s.io/kubernetes/third_party/forked/golang/expansion`, with no variable known.
fn expanded(value: &str) -> String {
    let mut out = String::new();
    let mut rest = value;
    while let Some(at) = rest.find('$') {
        out.push_str(&rest[..at]);
        let after = &rest[at + 1..];
        rest = if let Some(after) = after.strip_prefix('$') {
            out.push('$');
            after
        } else if let Some((name, after)) =
            after.strip_prefix('(').and_then(|text| text.split_once(')'))
        {
            out.push_str(&format!("<value of {name}>"));
            after
        } else {
            out.push('$');
            after
        };
    }
    out + rest
}

#[test]
fn a2_what_git_says_reaches_the_pod_as_it_is() {
    assert_eq!(expanded("$(X) $$(X) $y $"), "<value of X> $(X) $y $");
    for text in ["$(HOME)", "$$(HOME)", "$$$(HOME)", "$$x$$", "costs $5", "$", "$$", "$(", ""] {
        let written = literal("X", text).value.expect("value");
        assert_eq!(expanded(&written), text);
        assert_eq!(crate::controllers::workload::pod_template::unescaped(&written), text);
    }
    let told = agent("a", json!({"modelAPI": {"name": "m"}, "description": "$(MODEL_API_URL)"}));
    let env = of(&told, &ready());
    assert_eq!(value(&env, "AGENT_DESCRIPTION"), Some("$$(MODEL_API_URL)"));
}

#[test]
fn a2_the_model_of_the_spec_wins_over_config_env_and_a_reference_stays_one() {
    let model = |resolved: &Resolved, config: Value| {
        let spec = json!({"modelAPI": {"name": "m"}, "config": {"env": [config]}});
        let env = of(&agent("a", spec), resolved);
        let named = env.iter().filter(|var| var.name == "MODEL_NAME");
        named.map(|var| serde_json::to_value(var).expect("JSON")).collect::<Vec<_>>()
    };
    let literal = json!({"name": "MODEL_NAME", "value": "other"});
    assert_eq!(model(&ready(), literal), [json!({"name": "MODEL_NAME", "value": "gpt"})]);
    let from = json!({"secretKeyRef": {"name": "s", "key": "k"}});
    let unknown = Resolved { model: None, ..ready() };
    let reference = json!({"name": "MODEL_NAME", "valueFrom": from});
    assert_eq!(model(&unknown, reference.clone()), [reference]);
}
