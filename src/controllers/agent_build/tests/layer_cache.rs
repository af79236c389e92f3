use serde_json::{Value, json};

use super::*;

fn spec(patch: &Value) -> AgentBuildSpec {
    let mut spec = json!({"source": {"gitSync": {}}, "output": {"image": "team/reviewer"}, "layerCache": true});
    for (key, value) in patch.as_object().expect("an object") {
        spec[key] = value.clone();
    }
    serde_json::from_value(spec).expect("a spec")
}

fn text(text: &str) -> ParameterValue {
    ParameterValue::Text(text.into())
}

#[test]
fn b13_each_agent_build_has_a_tag_of_its_own() {
    let of = |namespace: &str, name: &str| {
        let [(_, ParameterValue::Text(tag)), _] =
            other_values(&spec(&json!({})), namespace, name, None)
        else {
            panic!("a text")
        };
        tag
    };
    let tag = of("team", "reviewer");
    assert!(tag.starts_with("cvk-cache-") && tag.len() == 42, "{tag}");
    assert_eq!(tag, of("team", "reviewer"));
    for (namespace, name) in [("team", "other"), ("other", "reviewer"), ("team-r", "eviewer")] {
        assert_ne!(tag, of(namespace, name));
    }
}

#[test]
fn b13_without_it_every_parameter_says_so() {
    for patch in [
        json!({"layerCache": false}),
        json!({"strategy": "Append", "append": {"baseImage": "python:3.13"}}),
    ] {
        let spec = spec(&patch);
        assert_eq!(key_value(&spec), (LAYER_CACHE, text("false")));
        let values = other_values(&spec, "team", "reviewer", Some("sha256:1"));
        assert_eq!(values, [(CACHE_TAG, text("")), (CACHE_DIGEST, text(""))]);
        assert_eq!(asks(&spec).count(), 0);
    }
    let on = spec(&json!({}));
    assert_eq!(key_value(&on), (LAYER_CACHE, text("true")));
    assert_eq!(other_values(&on, "a", "b", Some("sha256:1"))[1].1, text("sha256:1"));
    assert_eq!(other_values(&on, "a", "b", None)[1].1, text(""));
}

#[test]
fn b13_a_rebuild_takes_nothing_that_was_kept_before() {
    let mut status = AgentBuildStatus { cache_digest: Some("d".into()), ..Default::default() };
    assert_eq!(usable(&status, None, 1), Some("d"));
    assert_eq!(usable(&status, None, 2), None, "the cache may be why the first try failed");
    // Its own run, before the status says anything of it.
    assert_eq!(usable(&status, Some("1"), 1), None);
    handle_rebuild(&mut status, Some("1"));
    assert_eq!((&status.cache_digest, usable(&status, Some("1"), 1)), (&None, None));
    assert_eq!(status.last_handled_rebuild.as_deref(), Some("1"));
    // What it has kept counts.
    status.cache_digest = Some("e".into());
    handle_rebuild(&mut status, Some("1"));
    assert_eq!(usable(&status, Some("1"), 1), Some("e"));
}

mod of_runs {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
    use k8s_openapi::jiff::Timestamp;

    use crate::api::agent_build::AgentBuildStatus;
    use crate::controllers::agent_build::decide::{Builder, Decision};
    use crate::controllers::agent_build::key::BuildKey;
    use crate::controllers::agent_build::run::{Run, RunOutcome};
    use crate::controllers::agent_build::signing::Unattested;
    use crate::controllers::agent_build::status::{Finding, KeyFinding, status};
    use crate::controllers::agent_build::turns::Limits;

    fn digest(letter: &str) -> String {
        format!("sha256:{}", letter.repeat(64))
    }

    /// The status after a run that has kept this.
    fn after(
        old: &AgentBuildStatus,
        outcome: RunOutcome,
        kept: Option<&str>,
        rebuild: Option<&str>,
    ) -> AgentBuildStatus {
        let key = BuildKey::parse(&"1".repeat(64)).expect("a key");
        let run = Run { cache_digest: kept.map(digest), ..Run::sample(outcome) };
        let finding = Finding::Key(KeyFinding {
            key: &key,
            home: "team",
            name: "reviewer",
            parameters: None,
            repository: "r/i",
            decision: Decision::Show(&run),
            failure: None,
            steps: &[],
            held_up: None,
            unattested: &Unattested::default(),
            rebuild,
            limits: Limits { total: 1, namespace: 1 },
        });
        status(old, &ObjectMeta::default(), &finding, Builder::Available, Timestamp::UNIX_EPOCH)
    }

    #[test]
    fn b13_the_status_has_what_the_last_good_build_has_kept() {
        let built = || RunOutcome::Built { digest: digest("f") };
        let failed = || RunOutcome::Failed { reason: "r".into(), message: "m".into() };
        let kept = |status: &AgentBuildStatus| status.cache_digest.clone();
        let first = after(&AgentBuildStatus::default(), built(), Some("a"), None);
        assert_eq!(kept(&first), Some(digest("a")));
        // One that runs or fails changes nothing.
        for outcome in [RunOutcome::Running, failed()] {
            assert_eq!(kept(&after(&first, outcome, Some("b"), None)), Some(digest("a")));
        }
        assert_eq!(kept(&after(&first, built(), Some("b"), None)), Some(digest("b")));
        // Nothing was kept, or the cache is off.
        assert_eq!(kept(&after(&first, built(), None, None)), None);
        // A rebuild forgets it as soon as it begins, and also when it fails.
        for outcome in [RunOutcome::Running, failed()] {
            let rebuilt = after(&first, outcome, None, Some("1"));
            assert_eq!(kept(&rebuilt), None);
            assert_eq!(kept(&after(&rebuilt, built(), Some("c"), Some("1"))), Some(digest("c")));
        }
    }
}
