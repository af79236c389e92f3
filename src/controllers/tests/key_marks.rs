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
