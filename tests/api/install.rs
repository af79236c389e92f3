//! What is shipped for an installation: one Kustomization, applied to a real API server.
#![allow(clippy::expect_used, clippy::panic, clippy::disallowed_types, clippy::disallowed_methods)]

use crate::support;

use serde_json::Value;
use support::team::SOON;
use support::{Cluster, eventually, run};

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

#[tokio::test(flavor = "multi_thread")]
async fn o5_one_command_installs_everything_and_another_removes_it() {
    let cluster = Cluster::start().await;
    // The harness has installed some of it; an installation begins with nothing.
    cluster.kubectl(&["delete", "-f", &format!("{ROOT}/deploy/rbac.yaml"), "--wait"]);
    let deploy = format!("{ROOT}/deploy");
    let apply = ["apply", "--server-side", "--force-conflicts", "--kustomize", &deploy];
    let applied = cluster.kubectl(&apply);
    for what in ["deployment.apps/convoke", "serviceaccount/convoke", "crd/agents.convoke.dev"] {
        let what = what.replace("crd/", "customresourcedefinition.apiextensions.k8s.io/");
        assert!(applied.contains(&what), "{applied}");
    }
    // A second time changes nothing. What others write into (statuses, labels of Kubernetes, aggregated rules) goes by its
    // generation.
    let versions = || {
        let columns = "custom-columns=NAME:.metadata.name,GENERATION:.metadata.generation";
        let all = cluster.kubectl(&["get", "--kustomize", &deploy, "-o", columns]);
        let kinds = "serviceaccounts,roles,rolebindings,configmaps,clusterrolebindings";
        let columns = "custom-columns=NAME:.metadata.name,VERSION:.metadata.resourceVersion";
        let ours = cluster.kubectl(&["get", kinds, "-n", "convoke-system", "-o", columns]);
        let ours =
            ours.lines().filter(|line| line.contains("convoke") || line.contains("pipeline"));
        all + &ours.collect::<Vec<_>>().join("\n")
    };
    let before = versions();
    cluster.kubectl(&apply);
    assert_eq!(versions(), before);
    // Where its pipelines are looked for, and where Pod Security is enforced as strictly as it can be.
    let of = |kind: &str, name: &str| -> Value {
        let text = cluster.kubectl(&["get", kind, name, "-n", "convoke-system", "-o", "json"]);
        serde_json::from_str(&text).expect("JSON")
    };
    for mode in ["dev", "dev-external", "preprod", "prod"] {
        of("configmap", &format!("pipeline-template-{mode}"));
    }
    let labels = of("namespace", "convoke-system")["metadata"]["labels"].clone();
    assert_eq!(labels["pod-security.kubernetes.io/enforce"], "restricted");
    // The pod is admitted there.
    eventually(SOON, "the operator's pod", || async {
        let pods = cluster.kubectl(&["get", "pods", "-n", "convoke-system", "-o", "name"]);
        if pods.starts_with("pod/convoke-") { Ok(()) } else { Err(of("deployment", "convoke")) }
    })
    .await;

    // As docs/install.md says it: the namespace goes first, and may take the Deployment with it before kubectl asks for that.
    let delete = ["delete", "--ignore-not-found", "--kustomize", &deploy, "--wait"];
    cluster.kubectl(&[&delete[..], &["--timeout=60s"]].concat());
    let left = run(cluster.kubectl_command().args([
        "get",
        "crds,clusterroles,clusterrolebindings,validatingadmissionpolicies,namespaces",
        "-o",
        "name",
    ]));
    let left: Vec<_> = left.lines().filter(|name| name.contains("convoke")).collect();
    // single-tenant.yaml is the harness's own.
    assert!(left.iter().all(|name| name.ends_with("/convoke-single-tenant")), "{left:?}");
}

#[test]
fn o5_the_deployment_runs_this_version_with_arguments_that_it_understands() {
    let text = std::fs::read_to_string(format!("{ROOT}/deploy/operator.yaml")).expect("file");
    let object: Value = serde_saphyr::from_str(&text).expect("YAML");
    let container = &object["spec"]["template"]["spec"]["containers"][0];
    let version = env!("CARGO_PKG_VERSION");
    assert_eq!(container["image"], format!("ghcr.io/convoke-dev/convoke:{version}"));
    let args = container["args"].as_array().expect("args").iter().filter_map(Value::as_str);
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_convoke"));
    // It ends after reading them: there is no cluster.
    let output = command.args(args).env("KUBECONFIG", "/nowhere").output().expect("run");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("cannot connect to the cluster"), "{said}");
}
