use super::*;

#[test]
fn a6_a_given_limit_below_the_default_request_stays_valid() {
    let given = Resources {
        limits: BTreeMap::from([("cpu".to_owned(), IntOrString::String("50m".into()))]),
        ..Resources::default()
    };
    let merged = resources(Some(&given), &[("cpu", "100m", "1"), ("memory", "256Mi", "512Mi")]);
    assert!(!merged.requests.as_ref().expect("requests").contains_key("cpu"));
    assert_eq!(merged.limits.expect("limits")["memory"].0, "512Mi");
}

#[test]
fn a6_a_given_request_gets_no_limit() {
    let given = Resources {
        requests: BTreeMap::from([("cpu".to_owned(), IntOrString::Int(2))]),
        ..Resources::default()
    };
    let merged = resources(Some(&given), &[("cpu", "100m", "1")]);
    assert_eq!(merged.requests.expect("requests")["cpu"].0, "2");
    assert_eq!(merged.limits, Some(BTreeMap::new()), "one below the request would be refused");
}

#[test]
fn a4_a_probe_ends_in_time() {
    let timeouts = |given| {
        let over = HealthCheck { timeout_seconds: given, ..HealthCheck::default() };
        let mut container = Container::default();
        http_probes(Some(&over)).watch(&mut container);
        probes(&container).map(|probe| probe.timeout_seconds)
    };
    assert_eq!((timeouts(None), timeouts(Some(9))), ([Some(5); 3], [Some(9); 3]));
    let mut container = Container::default();
    watch_port(&mut container, 8000, 300);
    assert_eq!(probes(&container).map(|probe| probe.timeout_seconds), [Some(3); 3]);
}

fn http_probes(over: Option<&HealthCheck>) -> HttpProbes<'_> {
    HttpProbes { port: 8000, alive: "/health", ready: "/ready", startup_seconds: 120, over }
}

/// Startup, liveness, readiness.
fn probes(container: &Container) -> [&Probe; 3] {
    let Container { startup_probe, liveness_probe, readiness_probe, .. } = container;
    [startup_probe, liveness_probe, readiness_probe]
        .map(|probe| probe.as_ref().expect("all three probes"))
}

/// Path, period and failures that count of the three probes. None of them waits before it begins.
fn shown(container: &Container) -> [(&str, i32, i32); 3] {
    probes(container).map(|probe| {
        assert_eq!(probe.initial_delay_seconds, None);
        let path = probe.http_get.as_ref().and_then(|get| get.path.as_deref());
        let (period, failures) = (probe.period_seconds, probe.failure_threshold);
        (path.unwrap_or("TCP"), period.expect("period"), failures.expect("failures"))
    })
}

#[test]
fn a4_a_start_has_a_budget_and_afterwards_no_probe_waits() {
    let mut container = Container::default();
    http_probes(None).watch(&mut container);
    let expected = [("/health", 1, 120), ("/health", 10, 3), ("/ready", 5, 3)];
    assert_eq!(shown(&container), expected);

    let over = HealthCheck {
        path: Some("/up".into()),
        interval_seconds: Some(7),
        failure_threshold: Some(4),
        startup_seconds: Some(30),
        timeout_seconds: None,
    };
    http_probes(Some(&over)).watch(&mut container);
    assert_eq!(shown(&container), [("/up", 1, 30), ("/up", 7, 4), ("/up", 7, 4)]);

    watch_port(&mut container, 8000, 300);
    assert_eq!(shown(&container), [("TCP", 1, 300), ("TCP", 10, 3), ("TCP", 5, 3)]);
}

#[test]
fn a5_a_pod_that_goes_serves_on_and_then_has_the_usual_time_to_end() {
    let deployment = deployment(DeploymentParts {
        meta: ObjectMeta::default(),
        kind: Kind::MCPServer,
        name: "t".into(),
        replicas: 1,
        init: vec![container("install", "image", Vec::new(), ResourceRequirements::default())],
        container: container("server", "image", Vec::new(), ResourceRequirements::default()),
        volumes: Vec::new(),
    });
    let pod = deployment.spec.and_then(|spec| spec.template.spec).expect("pod");
    assert_eq!(pod.termination_grace_period_seconds, Some(35));
    let serves_on = |container: &Container| {
        let before = container.lifecycle.as_ref()?.pre_stop.as_ref()?;
        assert!(before.exec.is_none() && before.http_get.is_none(), "an image may have no shell");
        before.sleep.as_ref().map(|sleep| sleep.seconds)
    };
    assert_eq!(serves_on(&pod.containers[0]), Some(5));
    let init = pod.init_containers.expect("init");
    assert_eq!(serves_on(&init[0]), None, "Kubernetes refuses it there");
}

#[test]
fn a2_later_variables_win_and_secrets_stay_references() {
    let var = |name: &str, value: &str| common::EnvVar {
        name: name.into(),
        value: Some(value.into()),
        value_from: None,
    };
    let secret = common::EnvVar {
        name: "KEY".into(),
        value: None,
        value_from: Some(common::EnvSource {
            secret_key_ref: Some(common::KeyRef {
                name: "s".into(),
                key: "k".into(),
                optional: None,
            }),
            config_map_key_ref: None,
        }),
    };
    let merged = merge_env(
        vec![literal("A", "1"), literal("B", "1")],
        &[&[var("B", "2"), secret], &[var("B", "3"), var("C", "3")]],
    );
    let shown: Vec<_> = merged.iter().map(|v| (v.name.as_str(), v.value.as_deref())).collect();
    assert_eq!(shown, [("A", Some("1")), ("B", Some("3")), ("KEY", None), ("C", Some("3"))]);
}
