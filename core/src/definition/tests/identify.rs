use serde_json::json;

use super::*;

/// What is wrong with an object that has this label or annotation.
fn findings(field: &str, key: &str) -> Vec<(String, &'static str)> {
    let value = if key == keys::PRUNE { "disabled" } else { "x" };
    let object = json!({
        "apiVersion": API_VERSION, "kind": "ModelAPI", "spec": {},
        "metadata": {"name": "m", field: {key: value}},
    });
    let Identity::Ours { labels, annotations, findings, .. } = identify(&object, None) else {
        panic!("it is ours: {object}");
    };
    let taken = labels.contains_key(key) || annotations.contains_key(key);
    assert_eq!(taken, findings.is_empty(), "{key}");
    assert!(findings.iter().all(|finding| finding.on_key), "{key}");
    findings.into_iter().map(|finding| (finding.message, finding.code)).collect()
}

#[test]
fn g7_labels_and_annotations_of_ours_and_of_kubernetes_may_not_come_from_git() {
    for (key, whose) in [
        ("convoke.dev/kind", "Convoke"),
        ("convoke.dev/anything", "Convoke"),
        ("a.convoke.dev/x", "Convoke"),
        ("a.b.convoke.dev/x", "Convoke"),
        ("kubernetes.io/x", "Kubernetes"),
        ("k8s.io/x", "Kubernetes"),
        ("kubectl.kubernetes.io/restartedAt", "Kubernetes"),
        ("a.b.k8s.io/x", "Kubernetes"),
        ("team.app.kubernetes.io/x", "Kubernetes"),
    ] {
        for field in ["labels", "annotations"] {
            let found = findings(field, key);
            let message = format!("{} belongs to {whose} and may not come from Git", quote(key));
            assert_eq!(found, [(message, code::METADATA)], "{field}");
        }
    }
    for key in [
        "app.kubernetes.io/name",
        "team",
        "k8s.io",
        "convoke.dev",
        "notkubernetes.io/x",
        "notconvoke.dev/x",
        "example.com/k8s.io",
    ] {
        for field in ["labels", "annotations"] {
            assert_eq!(findings(field, key), [], "{field}: {key}");
        }
    }
    assert_eq!(findings("annotations", keys::PRUNE), []);
    assert_eq!(findings("labels", keys::PRUNE).len(), 1, "as a label it means nothing");
}
