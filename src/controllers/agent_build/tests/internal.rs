use serde_json::json;

use super::*;

fn spec(image: &str, insecure: bool) -> AgentBuildSpec {
    let output = json!({"image": image, "insecure": insecure});
    serde_json::from_value(json!({"source": {"gitSync": {}}, "output": output})).expect("a spec")
}

#[test]
fn b1_v47_in_the_shared_registry_an_image_begins_with_its_namespace() {
    let internal = "registry.convoke-system.svc:5000";
    let is_allowed =
        |registry: &str, image: &str| allows(internal, registry, &spec(image, true), "team");
    assert!(is_allowed(internal, "team/reviewer") && is_allowed(internal, "team/a/b"));
    for image in ["reviewer", "team", "team2/reviewer", "other/team/reviewer", "team-reviewer"] {
        assert!(!is_allowed(internal, image), "{image}");
        // It is nobody's but the team's elsewhere.
        assert!(is_allowed("registry.example.com:5000", image), "{image}");
        assert!(is_allowed("registry.convoke-system.svc:5001", image), "{image}");
    }
    // Other spellings are the same registry.
    for spelled in ["REGISTRY.convoke-system.SVC:5000", "registry.convoke-system.svc.:5000"] {
        assert!(!is_allowed(spelled, "other/reviewer"), "{spelled}");
    }
    // A port that is not written is the one of the protocol.
    for (insecure, port) in [(true, 80), (false, 443)] {
        let spec = spec("other/reviewer", insecure);
        let with_port = format!("registry.test:{port}");
        assert!(!allows("registry.test", &with_port, &spec, "team"), "{port}");
        assert!(!allows(&with_port, "registry.test", &spec, "team"), "{port}");
    }
}

#[test]
fn b1_a_registry_is_dialled_at_its_port() {
    let at =
        |registry: &str| endpoints(registry).iter().map(Endpoint::to_string).collect::<Vec<_>>();
    assert_eq!(at("Registry.test:5000"), ["registry.test:5000"]);
    assert_eq!(at("registry.test"), ["registry.test:443", "registry.test:80"]);
    assert_eq!(at("[::1]:5000"), ["[::1]:5000"]);
    assert_eq!(at("[::1]"), ["[::1]:443", "[::1]:80"]);
}
