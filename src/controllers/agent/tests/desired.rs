//! Children of agents, from specs as a user writes them.

use serde_json::{Value, json};

use super::super::fixtures::{agent, defaults, ready};
use super::*;
use crate::controllers::workload::pod_template::assert_restricted;

fn spec() -> Value {
    json!({"modelAPI": {"name": "m"}, "description": "helps", "config": {"instructions": "Say $(HOME) {{x}}\nbye", "env": [{"name": "A", "value": "config"}, {"name": "B", "value": "config"}]},
        "env": [{"name": "B", "value": "env"}, {"name": "KEY", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}]})
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
fn a3_only_the_first_deployment_waits_and_its_configuration_with_it() {
    let mut resolved = ready();
    resolved.waiting_for = vec!["ModelAPI m (not ready)".into()];
    let waiting = agent("a", json!({"modelAPI": {"name": "m"}}));
    let first = children(&waiting, &resolved, &defaults());
    assert_eq!((&first.config_map, &first.deployment), (&Wanted::Keep, &Wanted::Keep));
    assert!(first.service.get().is_some());
    let are_both_there = |agent: &Agent, resolved: &Resolved| {
        let children = children(agent, resolved, &defaults());
        children.config_map.get().is_some() && children.deployment.get().is_some()
    };
    resolved.deployment_exists = true;
    assert!(are_both_there(&waiting, &resolved));
    resolved.deployment_exists = false;
    let eager = agent("a", json!({"modelAPI": {"name": "m"}, "waitForDependencies": false}));
    assert!(are_both_there(&eager, &resolved));
    // So does one whose image is not built yet.
    let unbuilt = Resolved { image: None, ..ready() };
    let first = children(&eager, &unbuilt, &defaults());
    assert_eq!((&first.config_map, &first.deployment), (&Wanted::Keep, &Wanted::Keep));
}

#[test]
fn a4_probes_and_their_overrides() {
    let probes = |health: Value| {
        let spec = json!({"modelAPI": {"name": "m"}, "healthCheck": health});
        let children = children(&agent("a", spec), &ready(), &defaults());
        let deployment = serde_json::to_value(children.deployment.get()).expect("json");
        let main = deployment["spec"]["template"]["spec"]["containers"][0].clone();
        ["startupProbe", "livenessProbe", "readinessProbe"].map(|probe| {
            let probe = &main[probe];
            assert_eq!(probe["initialDelaySeconds"], Value::Null);
            format!(
                "{} {} {}",
                probe["httpGet"]["path"], probe["periodSeconds"], probe["failureThreshold"]
            )
        })
    };
    let usual = ["\"/health\" 1 120", "\"/health\" 10 3", "\"/ready\" 5 3"];
    assert_eq!(probes(json!({})), usual);
    let over = json!({"path": "/alive", "intervalSeconds": 7, "startupSeconds": 30});
    assert_eq!(probes(over), ["\"/alive\" 1 30", "\"/alive\" 7 3", "\"/alive\" 7 3"]);
}

#[test]
fn a8_pods_that_remember_apart_get_their_clients_by_address() {
    let affinity = |memory: Value, replicas: Value| {
        let spec =
            json!({"modelAPI": {"name": "m"}, "replicas": replicas, "config": {"memory": memory}});
        let agent = agent("a", spec);
        let children = children(&agent, &ready(), &defaults());
        let service =
            children.service.get().and_then(|service| service.spec.clone()).expect("spec");
        (separate_memories(&agent), service.session_affinity)
    };
    let redis = json!({"type": "Redis", "redis": {"urlFrom": {"secretKeyRef": {"name": "r", "key": "url"}}}});
    assert_eq!(affinity(json!({}), json!(2)), (Some(2), Some("ClientIP".into())));
    assert_eq!(affinity(json!({}), json!(1)), (None, None));
    assert_eq!(affinity(json!({"enabled": false}), json!(2)), (None, None));
    assert_eq!(affinity(redis, json!(2)), (None, None));
    let with_hash = |replicas: i32| {
        let spec = json!({"modelAPI": {"name": "m"}, "replicas": replicas});
        let service = children(&agent("a", spec), &ready(), &defaults()).service;
        service.get().and_then(|service| service.metadata.annotations.clone()).expect("annotations")
    };
    assert_ne!(with_hash(1), with_hash(2), "so that it is written");
    let suspended = json!({"modelAPI": {"name": "m"}, "replicas": 2, "suspend": true});
    assert_eq!(separate_memories(&agent("a", suspended)), None);
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
