//! `convoke render build` against the operator: the same repository gives the same PipelineRun.

use std::process::Command;

use kube::api::{Api, DynamicObject, ListParams};
use kube::core::{ApiResource, GroupVersionKind};
use serde_json::{Value, json};

use convoke::api::AgentBuild;

use super::support::team::{ARGS, SOON, Team};
use super::support::{Cluster, eventually, run};
use super::{install_tekton, install_templates};

const BUILD: &str = "apiVersion: convoke.dev/v1alpha1\nkind: AgentBuild\nmetadata:\n  name: reviewer\nspec:\n  source:\n    gitSync: {}\n    subfolder: image\n  output:\n    image: ${NS}/reviewer\n    tag: v1-{short}\n  buildArgs:\n    VERSION: \"1\"\n  trigger:\n    paths: [shared, missing]\n  pipeline:\n    parameters:\n      - {name: buildah-image, value: \"mirror/buildah:1\"}\n    steps:\n      - {name: clone, configMap: convoke-step-clone}\n      - {name: verify, configMap: convoke-step-verify, enabled: false}\n      - {name: build, configMap: convoke-step-build, parameters: [{name: build-args, values: [A=b c]}]}\n      - {name: push, configMap: convoke-step-push}\n";

#[tokio::test(flavor = "multi_thread")]
async fn b3_b4_d3_the_pipeline_run_that_is_printed_is_the_one_that_the_operator_makes() {
    let cluster = Cluster::exclusive().await;
    install_templates(&cluster);
    install_tekton(&cluster);
    let args: Vec<_> = ARGS.iter().copied().chain(["--internal-registry=registry.test"]).collect();
    let operator = cluster.operator(&args).await;
    operator.ready(SOON).await;
    let files = [
        ("team/build.yaml", BUILD),
        ("image/Dockerfile", "FROM scratch\n"),
        ("shared/base.txt", "1\n"),
    ];
    let team = Team::new(&cluster, "rendered", &files).await;
    let variables = json!({"inline": {"NS": team.namespace}});
    team.sync_with(json!({"path": "team", "variables": variables})).await;
    let kind = GroupVersionKind::gvk("tekton.dev", "v1", "PipelineRun");
    let resource = ApiResource::from_gvk_with_plural(&kind, "pipelineruns");
    let api: Api<DynamicObject> =
        Api::namespaced_with(team.client.clone(), &team.namespace, &resource);
    let made = eventually(SOON, "a PipelineRun", || async {
        let mut runs = api.list(&ListParams::default()).await.expect("a list of runs").items;
        runs.pop().ok_or("none yet")
    })
    .await;
    let folder = team.repo.work().join("team");
    let printed = run(Command::new(env!("CARGO_BIN_EXE_convoke"))
        .args(["render", "build", "reviewer", "-o", "json", "--registry", "registry.test"])
        .args(["-n", &team.namespace, "--url", &team.url()])
        .arg(format!("--var=NS={}", team.namespace))
        .arg(folder));
    let mut printed: Value = serde_json::from_str(&printed).expect("JSON");
    let uid = &made.metadata.owner_references.as_ref().expect("an owner")[0].uid;
    printed["metadata"]["ownerReferences"][0]["uid"] = json!(uid);
    let mut meta = serde_json::to_value(&made.metadata).expect("JSON");
    // Only the operator knows the key of this digest.
    let annotations = meta["annotations"].as_object_mut().expect("annotations");
    assert!(annotations.remove("convoke.dev/credentials-digest").is_some());
    for field in ["name", "namespace", "labels", "annotations", "ownerReferences"] {
        assert_eq!(printed["metadata"][field], meta[field], "{field}");
    }
    // Tekton's webhook, which sets defaults, is not here.
    assert_eq!(printed["spec"], made.data["spec"]);

    // A plan knows the key, too.
    let builds: Api<AgentBuild> = Api::namespaced(team.client.clone(), &team.namespace);
    let key =
        |build: &AgentBuild| build.status.as_ref().and_then(|status| status.build_key.clone());
    let told = eventually(SOON, "the status tells the key", || async {
        let build = builds.get("reviewer").await.expect("the AgentBuild");
        key(&build).ok_or("none yet")
    })
    .await;
    assert_eq!(printed["metadata"]["annotations"]["convoke.dev/build-key"], told);
    let plan = || {
        run(Command::new(env!("CARGO_BIN_EXE_convoke"))
            .env("KUBECONFIG", cluster.admin_kubeconfig())
            .args(["plan", "--against", "cluster", "--registry", "registry.test"])
            .args(["-n", &team.namespace])
            .arg(team.repo.work().join("team")))
    };
    assert_eq!(plan(), "no changes (1 object)\n");
    team.repo.change("source", &[("shared/base.txt", "2\n")], &[]);
    insta::assert_snapshot!(plan(), @r"
    builds:
      * AgentBuild/reviewer: shared changes

    0 to create, 0 to change, 0 to delete, 1 to build, 1 unchanged
    ");
    // A template of the namespace's own counts, too, and another definition is a reason of its own.
    let own = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "pipeline-template-own", "namespace": team.namespace},
        "data": {"template.json": "{}"}});
    cluster.apply(&own);
    for (before, after) in [("VERSION: \"1\"", "VERSION: \"2\""), ("buildah:1", "buildah:2")] {
        let changed = BUILD.replace(before, after);
        std::fs::write(team.repo.work().join("team/build.yaml"), changed).expect("written");
        assert!(plan().contains("* AgentBuild/reviewer: its definition changes\n"), "{}", plan());
    }
    let mode = format!("{BUILD}  mode: own\n");
    std::fs::write(team.repo.work().join("team/build.yaml"), mode).expect("written");
    let said = plan();
    assert!(
        said.contains("= AgentBuild/reviewer: it cannot: the template cannot be used: "),
        "{said}"
    );
    assert!(said.contains("pipeline-template-own: template.json: missing field"), "{said}");
}
