//! `convoke plan --against cluster` with the pipeline templates that the operator has: which builds a commit starts, which an upgrade starts, and
//! what is said to those who may not read templates.

use std::path::{Path, PathBuf};
use std::process::Command;

use convoke::api::AgentBuild;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::Api;
use serde_json::{Value, json};

use super::support::team::{ARGS, SOON, Team};
use super::support::{Cluster, eventually, run};
use super::{ROOT, install_tekton, install_templates};

const BUILD: &str = "apiVersion: convoke.dev/v1alpha1\nkind: AgentBuild\nmetadata:\n  name: NAME\nspec:\n  mode: MODE\n  source:\n    gitSync: {}\n    subfolder: image\n  output:\n    image: ${NS}/NAME\n";

/// An AgentBuild of a mode, with the same name.
fn build(mode: &str) -> String {
    BUILD.replace("NAME", mode).replace("MODE", mode)
}

/// Changes a ConfigMap of the operator's namespace. What it was stays where it is not changed.
async fn change(cluster: &Cluster, name: &str, change: impl Fn(&mut Value)) {
    let maps: Api<ConfigMap> = Api::namespaced(cluster.client().await, "convoke-system");
    let mut map = serde_json::to_value(maps.get(name).await.expect(name)).expect("JSON");
    let metadata =
        json!({"name": name, "namespace": "convoke-system", "labels": map["metadata"]["labels"]});
    change(&mut map["data"]);
    let object =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": map["data"]});
    cluster.apply(&object);
}

/// A person who may read what a plan needs in the namespace, and nothing of the operator's.
async fn person(cluster: &Cluster, namespace: &str) -> PathBuf {
    let group = "rbac.authorization.k8s.io";
    let subjects = json!([{"kind": "ServiceAccount", "name": "reader", "namespace": namespace}]);
    let metadata = json!({"name": "reader", "namespace": namespace});
    cluster.apply(&json!({"apiVersion": "v1", "kind": "List", "items": [
        {"apiVersion": format!("{group}/v1"), "kind": "Role", "metadata": metadata, "rules": [
            {"apiGroups": ["convoke.dev"], "verbs": ["get", "list"],
                "resources": ["gitsyncs", "agents", "modelapis", "mcpservers", "agentbuilds"]},
            {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"]},
        ]},
        {"apiVersion": format!("{group}/v1"), "kind": "RoleBinding", "metadata": metadata,
            "roleRef": {"apiGroup": group, "kind": "Role", "name": "reader"}, "subjects": subjects},
    ]}));
    cluster.user_kubeconfig(namespace, "reader").await
}

#[tokio::test(flavor = "multi_thread")]
async fn b1_d2_a_plan_says_what_the_pipelines_of_the_operator_build_and_what_an_upgrade_builds() {
    let cluster = Cluster::exclusive().await;
    install_templates(&cluster);
    install_tekton(&cluster);
    // The operator has an older step than this program. Whoever runs it has named a database, and has a mode of his own.
    change(&cluster, "convoke-step-build", |data| data["version"] = "1".into()).await;
    let database = "registry.test/vulnerabilities:daily";
    change(&cluster, "pipeline-template-preprod", |data| {
        let text = data["template.json"].as_str().expect("a template");
        let mut template: Value = serde_json::from_str(text).expect("JSON");
        let parameters = template["globalParameters"].as_array_mut().expect("a list");
        let mut named =
            parameters.iter_mut().filter(|one| one["name"] == "vulnerability-database-image");
        named.next().expect("the parameter")["value"] = database.into();
        data["template.json"] = template.to_string().into();
    })
    .await;
    let ours = json!({"name": "ours", "version": "1-ours",
        "globalParameters": [{"name": "git-image", "value": "git:1"}, {"name": "buildah-image", "value": "buildah:1"}], "steps": [
        {"name": "clone", "configMap": "convoke-step-clone"}, {"name": "build", "configMap": "convoke-step-build"},
        {"name": "push", "configMap": "convoke-step-push"}]});
    cluster.apply(&json!({"apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "pipeline-template-ours", "namespace": "convoke-system"},
        "data": {"template.json": ours.to_string()}}));

    let args: Vec<_> = ARGS.iter().copied().chain(["--internal-registry=registry.test"]).collect();
    let mut operator = cluster.operator(&args).await;
    operator.ready(SOON).await;
    let files = ["dev", "preprod", "ours"].map(|mode| (format!("team/{mode}.yaml"), build(mode)));
    let mut all: Vec<_> = files.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
    all.push(("image/Dockerfile", "FROM scratch\n"));
    let team = Team::new(&cluster, "planned", &all).await;
    let variables = json!({"inline": {"NS": team.namespace}});
    team.sync_with(json!({"path": "team", "variables": variables})).await;
    let builds: Api<AgentBuild> = Api::namespaced(team.client.clone(), &team.namespace);
    for mode in ["dev", "preprod", "ours"] {
        eventually(SOON, "the build has begun", || async {
            let build = builds.get(mode).await.expect("the AgentBuild");
            let begun = build.status.clone().and_then(|status| status.last_attempted_commit);
            begun.ok_or(build.status)
        })
        .await;
    }
    // From here on nobody looks at templates but plans.
    operator.terminate(SOON).await;

    let plan_as = |kubeconfig: &Path, more: &[&str]| {
        run(Command::new(env!("CARGO_BIN_EXE_convoke"))
            .env("KUBECONFIG", kubeconfig)
            .args(["plan", "--against", "cluster", "--registry", "registry.test"])
            .args(["-n", &team.namespace])
            .args(more)
            .arg(team.repo.work().join("team")))
    };
    let admin = cluster.admin_kubeconfig();
    let plan = || plan_as(&admin, &[]);
    let shown = |plan: &str| {
        plan.replace(&team.namespace, "TEAM").replace(env!("CARGO_PKG_VERSION"), "VERSION")
    };
    let upgrade = plan();
    insta::assert_snapshot!(shown(&upgrade), @r#"
    an upgrade to Convoke VERSION builds:
      * AgentBuild/dev: the pipeline template changes: step build 1 → 2
      * AgentBuild/ours: the pipeline template changes: step build 1 → 2
      * AgentBuild/preprod: the pipeline template changes: step build 1 → 2

    no changes (3 objects)
    "#);
    // Without a right in the operator's namespace the older step is not known, and nothing is said that is not.
    let reader = person(&cluster, &team.namespace).await;
    let blind = plan_as(&reader, &[]);
    insta::assert_snapshot!(shown(&blind), @r#"
    no changes (3 objects)
    note: whether AgentBuild/dev is built is not known: it was built with other templates than those of this program
    note: whether AgentBuild/ours is built is not known: the template cannot be used: no ConfigMap pipeline-template-ours in TEAM or this program
    note: whether AgentBuild/preprod is built is not known: the template cannot be used: template preprod needs a value for parameter vulnerability-database-image
    note: pipeline templates of convoke-system are not known here, and those of this program are taken: cannot get the ConfigMaps pipeline-template-dev, convoke-step-clone, convoke-step-verify and 13 more: configmaps "pipeline-template-dev" is forbidden: User "system:serviceaccount:TEAM:reader" cannot get resource "configmaps" in API group "" in the namespace "convoke-system"
    "#);
    // The shipped right opens the shipped ones.
    cluster.kubectl(&[
        "apply",
        "--server-side",
        "--force-conflicts",
        "-f",
        &format!("{ROOT}/deploy/rbac.yaml"),
    ]);
    let group = format!("--group=system:serviceaccounts:{}", team.namespace);
    let bind = [
        "-n",
        "convoke-system",
        "create",
        "rolebinding",
        "convoke-templates",
        "--role=convoke-templates",
    ];
    cluster.kubectl(&[&bind[..], &[&group]].concat());
    let sees = eventually(SOON, "the right counts", || async {
        let said = plan_as(&reader, &[]);
        if said.contains("pipeline-template-dev") { Err(said) } else { Ok(said) }
    })
    .await;
    insta::assert_snapshot!(shown(&sees), @r#"
    an upgrade to Convoke VERSION builds:
      * AgentBuild/dev: the pipeline template changes: step build 1 → 2
      * AgentBuild/preprod: the pipeline template changes: step build 1 → 2

    no changes (3 objects)
    note: whether AgentBuild/ours is built is not known: the template cannot be used: no ConfigMap pipeline-template-ours in TEAM or this program
    note: pipeline templates of convoke-system are not known here, and those of this program are taken: cannot get the ConfigMaps pipeline-template-ours: configmaps "pipeline-template-ours" is forbidden: User "system:serviceaccount:TEAM:reader" cannot get resource "configmaps" in API group "" in the namespace "convoke-system"
    "#);

    // The same version with another text.
    change(&cluster, "convoke-step-build", |data| {
        let text = data["task-spec.yaml"].as_str().expect("a TaskSpec");
        data["task-spec.yaml"] = format!("# another text\n{text}").into();
    })
    .await;
    assert_eq!(plan(), upgrade);
    // Files in place of what the operator has, as an upgrade would bring them.
    let shipped = format!("{ROOT}/deploy/pipelines");
    let said = plan_as(&admin, &["--operator-templates", &shipped]);
    assert!(said.contains("* AgentBuild/dev: the pipeline template changes\n"), "{said}");
    assert!(said.contains("= AgentBuild/preprod: it cannot: "), "{said}");
    assert!(!said.contains("an upgrade to"), "{said}");
    // Files in place of what the namespace has count by their text.
    let own = tempfile::tempdir().expect("a folder");
    std::fs::copy(format!("{shipped}/step-build.yaml"), own.path().join("build.yaml"))
        .expect("copied");
    let said = plan_as(&admin, &["--templates", own.path().to_str().expect("UTF-8")]);
    assert!(said.contains("3 to build") && !said.contains("an upgrade to"), "{said}");
    // An operator elsewhere.
    let said = plan_as(&admin, &["--operator-namespace", "default"]);
    let missing = format!(
        "no ConfigMap pipeline-template-dev in {} or default (--operator-namespace",
        team.namespace
    );
    assert!(said.contains(&missing) && said.contains("is built is not known: "), "{said}");

    // The upgrade is there, and the operator has not looked yet.
    change(&cluster, "convoke-step-build", |data| data["version"] = "2".into()).await;
    let said = plan();
    for mode in ["dev", "preprod", "ours"] {
        let line = format!("* AgentBuild/{mode}: the pipeline template changes\n");
        assert!(said.contains(&line) && !said.contains("an upgrade to"), "{said}");
    }
    // What a commit changes is known without any right.
    team.repo.change("source", &[("image/Dockerfile", "FROM busybox\n")], &[]);
    cluster.kubectl(&["-n", "convoke-system", "delete", "rolebinding", "convoke-templates"]);
    let said = eventually(SOON, "the right is gone", || async {
        let said = plan_as(&reader, &[]);
        if said.contains("pipeline-template-dev") { Ok(said) } else { Err(said) }
    })
    .await;
    for mode in ["dev", "preprod", "ours"] {
        assert!(said.contains(&format!("* AgentBuild/{mode}: image changes\n")), "{said}");
    }
    assert!(!said.contains("is not known: "), "{said}");
}
