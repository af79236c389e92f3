//! The shipped modes besides `dev`: what they ask for is told, and they run once they have it.

use super::team::*;
use super::*;

#[tokio::test]
async fn b3_b4_what_a_shipped_mode_asks_for_is_told_and_heals() {
    let cluster = Cluster::exclusive().await;
    install_tekton(&cluster);
    install_templates(&cluster);
    let team = Team::new(&cluster).await;
    let controller = team.start();

    let mut spec = json!({"mode": "dev-external"});
    team.apply_build("external", &spec);
    team.commit(&controller, "external", '1', Some('a'));
    let asked = ("False", "MissingParameter");
    let missing =
        team.until("external", "it is told", |s| condition(s, "Ready") == Some(asked)).await;
    let message = missing.message.expect("a message");
    assert!(message.contains("spec.output.registry"), "{message}");
    spec["output"] = json!({"image": team.image(), "registry": "registry.example.com"});
    team.apply_build("external", &spec);
    team.until("external", "it heals", |s| s.phase == Some(BuildPhase::Building)).await;

    // As its page says. A template that was looked at is not read again at once.
    let maps: Api<k8s_openapi::api::core::v1::ConfigMap> =
        Api::namespaced(cluster.client().await, "convoke-system");
    let name = "pipeline-template-preprod";
    let map = maps.get(name).await.expect("the template");
    let text = &map.data.expect("data")["template.json"];
    let mut template: Value = serde_json::from_str(text).expect("JSON");
    for parameter in template["globalParameters"].as_array_mut().expect("a list") {
        if parameter["name"] == "vulnerability-database-image" {
            parameter["value"] = "registry.example.com/vulnerabilities:daily".into();
        }
    }
    cluster.apply(&json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": "convoke-system"},
        "data": {"template.json": template.to_string()},
    }));
    team.apply_build("scanned", &json!({"mode": "preprod"}));
    team.commit(&controller, "scanned", '2', Some('b'));
    team.until("scanned", "it is built", |s| s.phase == Some(BuildPhase::Building)).await;
    let runs = team.runs().await;
    let steps = |run: &DynamicObject| run.data["spec"]["pipelineSpec"].to_string();
    assert!(runs.iter().any(|run| steps(run).contains("scan-secrets")), "{runs:?}");
}
