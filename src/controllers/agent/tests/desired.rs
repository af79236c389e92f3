//! Children of agents, from specs as a user writes them.

use serde_json::{Value, json};

use super::*;
use crate::controllers::workload::pod_template::assert_restricted;

fn defaults() -> Defaults {
    Defaults::for_tests()
}

fn agent(name: &str, spec: Value) -> Agent {
    let object = json!({"apiVersion": "convoke.dev/v1alpha1", "kind": "Agent", "spec": spec,
        "metadata": {"name": name, "namespace": "team", "uid": "u1", "annotations": {"convoke.dev/commit": "abc", "convoke.dev/source": "a.yaml:3"}}});
    serde_json::from_value(object).expect("agent")
}

fn ready() -> Resolved {
    Resolved {
        model_url: Some("https://m.example/v1".into()),
        model: Some("gpt".into()),
        mcp_servers: vec![("web-search".into(), Some("https://s.example/mcp".into()))],
        peers: vec![("missing".into(), false), ("writer".into(), true)],
        wired: vec!["writer".into()],
        image: Some("agent:1".into()),
        ..Resolved::default()
    }
}

fn spec() -> Value {
    json!({"modelAPI": {"name": "m"}, "description": "helps", "config": {"instructions": "Say $(HOME) {{x}}\nbye", "env": [{"name": "A", "value": "config"}, {"name": "B", "value": "config"}]},
        "env": [{"name": "B", "value": "env"}, {"name": "KEY", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}]})
}

fn env(children: &Children) -> Vec<(String, Option<String>)> {
    let deployment = children.deployment.get().expect("deployment");
    let pod = deployment.spec.as_ref().and_then(|s| s.template.spec.as_ref()).expect("pod");
    pod.containers[0].env.iter().flatten().map(|v| (v.name.clone(), v.value.clone())).collect()
}

#[test]
fn a2_the_environment_is_complete_sorted_and_overridable() {
    let children = children(&agent("helper", spec()), &ready(), &defaults());
    let expected = [
        ("AGENT_NAME", Some("helper")),
        ("AGENT_DESCRIPTION", Some("helps")),
        ("AGENT_INSTRUCTIONS", Some("Say $$(HOME) {{x}}\nbye")),
        ("AGENT_INSTRUCTIONS_FILE", Some("/etc/convoke/agent/instructions.md")),
        ("AGENT_CONFIG_FILE", Some("/etc/convoke/agent/config.json")),
        ("HOME", Some("/tmp")),
        ("MODEL_API_URL", Some("https://m.example/v1")),
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
        ("PEER_AGENTS", Some("writer")),
        (
            "PEER_AGENT_WRITER_CARD_URL",
            Some("http://agent-writer.team.svc.cluster.local:8000/.well-known/agent-card.json"),
        ),
        ("A", Some("config")),
        ("B", Some("env")),
        ("KEY", None),
    ];
    let expected: Vec<_> =
        expected.iter().map(|(n, v)| ((*n).to_owned(), v.map(str::to_owned))).collect();
    assert_eq!(env(&children), expected);
}

#[test]
fn a2_long_instructions_are_only_in_the_file() {
    let long = "x".repeat(MAX_INSTRUCTIONS_IN_ENV + 1);
    let spec = json!({"modelAPI": {"name": "m"}, "config": {"instructions": long}});
    let children = children(&agent("a", spec), &ready(), &defaults());
    assert!(!env(&children).iter().any(|(name, _)| name == "AGENT_INSTRUCTIONS"));
    let map = children.config_map.get().expect("map");
    assert_eq!(
        map.data.as_ref().expect("data")["instructions.md"].len(),
        MAX_INSTRUCTIONS_IN_ENV + 1
    );
}

#[test]
fn a1_a6_a_minimal_agent_has_locked_down_children() {
    let children = children(&agent("a", json!({"modelAPI": {"name": "m"}})), &ready(), &defaults());
    let deployment = children.deployment.get().expect("deployment");
    assert_restricted(deployment);
    assert_eq!(deployment.metadata.name.as_deref(), Some("agent-a"));
    let owner = &deployment.metadata.owner_references.as_ref().expect("owner")[0];
    assert_eq!(
        (owner.kind.as_str(), owner.uid.as_str(), owner.controller),
        ("Agent", "u1", Some(true))
    );
    let template = &deployment.spec.as_ref().expect("spec").template;
    assert_eq!(
        template.metadata.as_ref().and_then(|m| m.annotations.clone()),
        None,
        "nothing that moves with HEAD"
    );
    let ports: Vec<_> =
        children.service.get().and_then(|s| s.spec.as_ref()?.ports.clone()).expect("ports");
    assert_eq!(ports.iter().map(|p| p.port).collect::<Vec<_>>(), [8000, 80]);
}

#[test]
fn a1_expose_false_removes_the_service() {
    let spec = json!({"modelAPI": {"name": "m"}, "agentNetwork": {"expose": false}});
    assert_eq!(children(&agent("a", spec), &ready(), &defaults()).service, Wanted::Remove);
}

#[test]
fn a3_only_the_first_deployment_waits() {
    let mut resolved = ready();
    resolved.waiting_for = vec!["ModelAPI m (not ready)".into()];
    let waiting = agent("a", json!({"modelAPI": {"name": "m"}}));
    let first = children(&waiting, &resolved, &defaults());
    assert_eq!(first.deployment, Wanted::Keep);
    assert!(first.service.get().is_some() && first.config_map.get().is_some());
    resolved.deployment_exists = true;
    assert!(children(&waiting, &resolved, &defaults()).deployment.get().is_some());
    resolved.deployment_exists = false;
    let eager = agent("a", json!({"modelAPI": {"name": "m"}, "waitForDependencies": false}));
    assert!(children(&eager, &resolved, &defaults()).deployment.get().is_some());
}

#[test]
fn a4_probes_and_their_overrides() {
    let spec =
        json!({"modelAPI": {"name": "m"}, "healthCheck": {"path": "/alive", "intervalSeconds": 7}});
    let children = children(&agent("a", spec), &ready(), &defaults());
    let deployment =
        serde_json::to_value(children.deployment.get().expect("deployment")).expect("json");
    let main = &deployment["spec"]["template"]["spec"]["containers"][0];
    assert_eq!(main["livenessProbe"]["httpGet"], json!({"path": "/alive", "port": 8000}));
    assert_eq!(main["readinessProbe"]["periodSeconds"], 7);
    assert_eq!(
        (
            &main["livenessProbe"]["initialDelaySeconds"],
            &main["readinessProbe"]["initialDelaySeconds"]
        ),
        (&json!(30), &json!(10))
    );
}

#[test]
fn a5_a_prompt_rolls_out_and_a_new_commit_does_not() {
    let hash = |agent: &Agent| {
        let children = children(agent, &ready(), &defaults());
        let deployment = children.deployment.get().expect("deployment").clone();
        let hash = deployment.metadata.annotations.as_ref().expect("annotations")["convoke.dev/child-hash"].clone();
        (hash, children.config_map.get().and_then(|m| m.metadata.name.clone()).expect("name"))
    };
    let one = agent("a", spec());
    let mut moved = one.clone();
    let annotations = moved.metadata.annotations.as_mut().expect("annotations");
    annotations.insert("convoke.dev/commit".into(), "def".into());
    assert_eq!(hash(&one), hash(&moved));
    let mut prompt = one.clone();
    prompt.spec.config.as_mut().expect("config").instructions = Some("another".into());
    assert_ne!(hash(&one).0, hash(&prompt).0);
    assert_ne!(hash(&one).1, hash(&prompt).1);
}

#[test]
fn suspend_means_no_pods() {
    let children = children(
        &agent("a", json!({"modelAPI": {"name": "m"}, "suspend": true, "replicas": 3})),
        &ready(),
        &defaults(),
    );
    assert_eq!(children.deployment.get().and_then(|d| d.spec.as_ref()?.replicas), Some(0));
}

#[test]
fn m4_a_model_that_is_not_served_is_told() {
    use super::super::status::status;
    use crate::controllers::workload::outcome::Applied;
    let agent = agent("a", json!({"modelAPI": {"name": "m"}, "model": "gpt-6"}));
    let told = |models: &[&str]| {
        let models = models.iter().map(|m| (*m).to_owned()).collect();
        let resolved = Resolved { model: Some("gpt-6".into()), models, ..ready() };
        let now = jiff::Timestamp::from_second(1).expect("time");
        let status = status(&agent, &resolved, &Applied::for_tests(), &defaults(), now);
        status.conditions.iter().find(|c| c.type_ == "ModelServed").map(|c| c.message.clone())
    };
    assert_eq!(
        told(&["gpt-5", "llama"]).as_deref(),
        Some("ModelAPI m serves gpt-5, llama, not gpt-6")
    );
    for served in [&["gpt-6"][..], &["*"], &["gpt-*"], &[]] {
        assert_eq!(told(served), None, "{served:?}");
    }
}

#[test]
fn a1_the_deployment_of_a_minimal_agent() {
    let children = children(&agent("a", json!({"modelAPI": {"name": "m"}})), &ready(), &defaults());
    let deployment = children.deployment.get().expect("deployment");
    insta::assert_snapshot!(serde_json::to_string_pretty(deployment).expect("JSON"));
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
    let env = env(&children(&told, &ready(), &defaults()));
    let description = env.iter().find(|(name, _)| name == "AGENT_DESCRIPTION").expect("variable");
    assert_eq!(description.1.as_deref(), Some("$$(MODEL_API_URL)"));
}

#[test]
fn a2_the_model_of_the_spec_wins_over_config_env_and_a_reference_stays_one() {
    let of = |resolved: &Resolved, config: Value| {
        let spec = json!({"modelAPI": {"name": "m"}, "config": {"env": [config]}});
        let children = children(&agent("a", spec), resolved, &defaults());
        let deployment = serde_json::to_value(children.deployment.get()).expect("JSON");
        let env = &deployment["spec"]["template"]["spec"]["containers"][0]["env"];
        let named = env.as_array().expect("env").iter().filter(|v| v["name"] == "MODEL_NAME");
        named.cloned().collect::<Vec<_>>()
    };
    let literal = json!({"name": "MODEL_NAME", "value": "other"});
    assert_eq!(of(&ready(), literal), [json!({"name": "MODEL_NAME", "value": "gpt"})]);
    let from = json!({"secretKeyRef": {"name": "s", "key": "k"}});
    let unknown = Resolved { model: None, ..ready() };
    let reference = json!({"name": "MODEL_NAME", "valueFrom": from});
    assert_eq!(of(&unknown, reference.clone()), [reference]);
}

#[test]
fn a1_the_longest_names_give_valid_children() {
    let name = "x".repeat(63);
    let children = children(&agent(&name, spec()), &ready(), &defaults());
    let names = [
        children.deployment.get().and_then(|d| d.metadata.name.clone()),
        children.service.get().and_then(|s| s.metadata.name.clone()),
        children.config_map.get().and_then(|m| m.metadata.name.clone()),
    ];
    for name in names {
        let name = name.expect("name");
        assert!(name.len() <= 63 && name.starts_with("agent-xxx") && !name.ends_with('-'));
    }
    assert!(endpoint(&name, "team", &defaults()).starts_with("http://agent-xxx"));
}
