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
        http_probe("/health", 8000, 0, 10, Some(&over)).timeout_seconds
    };
    assert_eq!((timeouts(None), timeouts(Some(9))), (Some(5), Some(9)));
    assert_eq!(tcp_probe(8000, 5, 5).timeout_seconds, Some(3));
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
