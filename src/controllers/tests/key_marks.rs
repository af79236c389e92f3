use k8s_openapi::api::core::v1::ResourceRequirements;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::*;
use crate::api::Kind;
use crate::cluster::reflector;
use crate::controllers::workload::pod_template::{DeploymentParts, container, deployment};

#[test]
fn m5_a_deployment_is_marked_and_another_key_changes_what_it_is_made_from() {
    let parts = || DeploymentParts {
        meta: ObjectMeta { name: Some("agent-a".into()), ..ObjectMeta::default() },
        kind: Kind::Agent,
        name: "a".into(),
        replicas: 1,
        init: Vec::new(),
        container: container("agent", "agent:1", Vec::new(), ResourceRequirements::default()),
        volumes: Vec::new(),
    };
    let marks = |digest: &str| KeyMarks {
        digest: digest.into(),
        issued: Some(100),
        proxy: Some("m".into()),
    };
    let plain = deployment(parts());
    let one = marks("d1").put(deployment(parts()));
    let annotation = |meta: &ObjectMeta, name: &str| meta.annotations.as_ref()?.get(name).cloned();
    let hash = |deployment: &Deployment| annotation(&deployment.metadata, keys::CHILD_HASH);
    let pods = one.spec.as_ref().and_then(|spec| spec.template.metadata.clone()).expect("pods");
    for meta in [&one.metadata, &pods] {
        assert_eq!(annotation(meta, keys::KEY_DIGEST).as_deref(), Some("d1"));
    }
    assert_eq!(annotation(&one.metadata, keys::KEY_ISSUED).as_deref(), Some("100"));
    assert_eq!(annotation(&pods, keys::KEY_ISSUED), None, "a time alone replaces no pods");
    assert_eq!(annotation(&one.metadata, keys::KEY_PROXY).as_deref(), Some("m"));
    assert_eq!(annotation(&pods, keys::KEY_PROXY), None, "nor does a name");
    let two = marks("d2").put(deployment(parts()));
    assert!(hash(&plain) != hash(&one) && hash(&one) != hash(&two));
    assert_eq!(hash(&one), hash(&marks("d1").put(one.clone())), "marked once more");
    let (_, entry) = reflector::entry::<Child<Deployment>>(one);
    assert_eq!(KeyMarks::of(&entry.value), Some(marks("d1")), "a live one tells them");
    let (_, entry) = reflector::entry::<Child<Deployment>>(plain);
    assert_eq!(KeyMarks::of(&entry.value), None);
}

/// A Deployment with these annotations, as its store keeps it.
fn live(annotations: &[(&str, &str)]) -> Child<Deployment> {
    let annotations = annotations.iter().map(|(name, text)| ((*name).into(), (*text).into()));
    let annotations = Some(annotations.collect());
    let metadata =
        ObjectMeta { name: Some("agent-a".into()), annotations, ..ObjectMeta::default() };
    let deployment = Deployment { metadata, ..Deployment::default() };
    reflector::entry::<Child<Deployment>>(deployment).1.value
}

#[test]
fn m5_proxies_take_the_keys_of_pods_that_are_not_replaced_yet() {
    let own = [(keys::KEY_PROXY, "m"), (keys::KEY_ISSUED, "100")];
    let moved = [own[0], own[1], (keys::KEY_BEFORE, "l.50")];
    let before = |annotations: &[(&str, &str)], wanted, is_settled| {
        let found = KeyBefore::of(&live(annotations), wanted, || is_settled);
        let texts = found.iter().map(|one| format!("{}.{}", one.proxy, one.issued));
        texts.collect::<Vec<_>>().join(",")
    };
    for is_settled in [true, false] {
        assert_eq!(before(&[], Some("m"), is_settled), "", "there was none");
        assert_eq!(before(&own, Some("m"), is_settled), "", "it has not moved");
        assert_eq!(before(&own, Some("n"), is_settled), "m.100", "to another proxy");
        assert_eq!(before(&own, None, is_settled), "m.100", "to a model that needs no key");
    }
    // While pods are being replaced.
    assert_eq!(before(&moved, Some("m"), false), "l.50");
    assert_eq!(before(&moved, Some("n"), false), "l.50,m.100");
    assert_eq!(before(&moved, None, false), "l.50,m.100");
    assert_eq!(before(&moved, Some("l"), false), "m.100", "and back");
    let back = [(keys::KEY_PROXY, "l"), (keys::KEY_ISSUED, "50"), (keys::KEY_BEFORE, "m.100")];
    assert_eq!(before(&back, None, false), "m.100,l.50", "and on");
    let many = [own[0], own[1], (keys::KEY_BEFORE, "a.1,b.2,m.3,c.4")];
    assert_eq!(before(&many, Some("n"), false), "a.1,b.2,m.3");
    // When they have been replaced.
    assert_eq!(before(&moved, Some("m"), true), "");
    assert_eq!(before(&moved, Some("n"), true), "m.100");
    let left = [(keys::KEY_BEFORE, "l.50")];
    assert_eq!(before(&left, None, false), "l.50");
    assert_eq!(before(&left, None, true), "");
    for odd in ["l", "l.", "l.x", ".", "l.0", "l.-1", "l.1000000000000", ",,"] {
        assert_eq!(before(&[(keys::KEY_BEFORE, odd)], None, false), "", "{odd:?}");
    }
    let long = |letter: &str| KeyBefore { proxy: letter.repeat(63), issued: 999_999_999_999 };
    let all: Vec<_> = ["a", "b", "c"].map(long).into();
    let meta = KeyBefore::mark(&all, ObjectMeta::default());
    let text = meta.annotations.unwrap_or_default()[keys::KEY_BEFORE].clone();
    assert_eq!(KeyBefore::of(&live(&[(keys::KEY_BEFORE, &text)]), None, || false), all);
}
