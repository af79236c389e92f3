//! What a plan says of the Secrets and ConfigMaps that definitions name.

use std::path::Path;

use serde_json::json;

use super::support::cluster;
use super::support::team::{Team, model};
use super::{AGENT, convoke, path, person, reader};

#[tokio::test(flavor = "multi_thread")]
async fn a13_a_plan_names_what_pods_may_not_read() {
    let cluster = cluster().await;
    let var = |kind: &str, name: &str, more: &str| {
        format!(
            "    - {{name: {}, valueFrom: {{{kind}KeyRef: {{name: {name}, key: k{more}}}}}}}\n",
            name.to_uppercase()
        )
    };
    let secret = var("secret", "keys", "");
    let (none, maybe) =
        (var("configMap", "none", ""), var("configMap", "maybe", ", optional: true"));
    let agent = format!("{AGENT}  env:\n{secret}{none}{maybe}");
    let files = [("a.yaml", model("a")), ("agent.yaml", agent)];
    let files = files.each_ref().map(|(path, text)| (*path, text.as_str()));
    let team = Team::new(cluster, "named", &files).await;
    team.create_sync(json!({"suspend": true})).await;
    let namespace = team.namespace.as_str();
    let create = ["create", "secret", "generic", "keys", "--from-literal=k=canary"];
    cluster.kubectl(&[&["-n", namespace][..], &create].concat());

    let blind = person(cluster, namespace, "reader", reader(), &[]).await;
    let mut rules = reader();
    let names =
        json!({"apiGroups": [""], "resources": ["secrets", "configmaps"], "verbs": ["get"]});
    rules.as_array_mut().expect("rules").push(names);
    let sees = person(cluster, namespace, "sees", rules, &[]).await;
    let folder = path(&team);
    let plan = |kubeconfig: &Path| {
        let run = convoke(kubeconfig, &["plan", &folder, "--against", "cluster", "-n", namespace]);
        assert_eq!((run.code, run.err.as_str()), (0, ""), "{run:?}");
        assert!(!run.out.contains("canary"), "{run:?}");
        let about = ["convoke.dev/agents=allow", "cannot be read here"];
        let notes = run.out.lines().filter(|line| about.iter().any(|text| line.contains(text)));
        notes.map(|line| line.replace(namespace, "NAMESPACE")).collect::<Vec<_>>().join("\n")
    };
    let blind = plan(&blind);
    let begin = |line: &str| line.split(" is not known: ").next().map(str::to_owned);
    assert_eq!(
        blind.lines().filter_map(begin).collect::<Vec<_>>(),
        [
            "note: ConfigMaps are named, and cannot be read here, so whether pods may read them",
            "note: Secrets are named, and cannot be read here, so whether pods may read them",
        ]
    );
    insta::assert_snapshot!(plan(&sees), @r#"
    note: ConfigMap none, which agent.yaml:1 names, does not exist in NAMESPACE; create it, then: kubectl -n NAMESPACE label configmap/none convoke.dev/agents=allow
    note: Secret keys, which agent.yaml:1 names, is not labelled convoke.dev/agents=allow, so pods may not read it, and the API server refuses what begins to name it; to label: kubectl -n NAMESPACE label secret/keys convoke.dev/agents=allow --overwrite
    "#);
    cluster.kubectl(&["-n", namespace, "label", "secret/keys", "convoke.dev/agents=allow"]);
    assert!(!plan(&sees).contains("Secret keys"));
}
