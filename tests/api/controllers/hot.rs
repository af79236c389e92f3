//! Agents whose pods read a changed configuration again.

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::ConfigMap;
use serde_json::Value;

use super::support::eventually;
use super::support::team::{SOON, model};
use super::{REMOTE, agent, env, team};

/// The ConfigMap that the pods mount.
fn mounted(deployment: &Deployment) -> String {
    let pod = deployment.spec.as_ref().and_then(|spec| spec.template.spec.as_ref()).expect("pod");
    let volumes = pod.volumes.iter().flatten();
    let mut maps = volumes.filter_map(|volume| volume.config_map.as_ref());
    maps.next().expect("ConfigMap").name.clone()
}

fn data<'a>(map: &'a ConfigMap, file: &str) -> &'a str {
    map.data.as_ref().and_then(|data| data.get(file)).expect("file")
}

fn config(map: &ConfigMap) -> Value {
    serde_json::from_str(data(map, "config.json")).expect("JSON")
}

#[tokio::test(flavor = "multi_thread")]
async fn a5_a_hot_configuration_is_changed_in_place_and_replaces_no_pods() {
    let hot = agent("calm", "    reload: Hot\n");
    let files = [
        ("m.yaml", &*model("gpt")),
        ("s.yaml", REMOTE),
        ("a.yaml", &*hot),
        ("prompt.md", "Be kind."),
    ];
    let team = team("hot", &files).await;
    let name = "agent-calm-config";
    let before = team.deployment("agent-calm").await;
    assert_eq!((mounted(&before).as_str(), env(&before, "AGENT_INSTRUCTIONS")), (name, None));
    let first = team.config_maps().get(name).await.expect("ConfigMap");
    assert_eq!((data(&first, "instructions.md"), first.immutable), ("Be kind.", None));

    let sync = team.push(&[("prompt.md", Some("Be brief."))]).await;
    let second = eventually(SOON, "the new prompt is in the ConfigMap", || async {
        let map = team.config_maps().get(name).await.expect("ConfigMap");
        (data(&map, "instructions.md") == "Be brief.").then_some(map)
    })
    .await;
    assert_eq!(second.metadata.uid, first.metadata.uid);
    let (old, new) = (config(&first), config(&second));
    assert_ne!(old["hash"], new["hash"]);
    let revision = sync.status.and_then(|status| status.last_applied_revision).expect("revision");
    assert!(revision.ends_with(new["commit"].as_str().expect("commit")), "{revision}: {new}");
    let after = team.deployment("agent-calm").await;
    assert_eq!(after.metadata.generation, before.metadata.generation);

    // A change of the way replaces them once.
    let rollout = agent("calm", "");
    team.push(&[("a.yaml", Some(rollout.as_str()))]).await;
    let rolled = eventually(SOON, "the pods have a configuration of their own", || async {
        let deployment = team.deployment("agent-calm").await;
        (mounted(&deployment) != name).then_some(deployment)
    })
    .await;
    assert_eq!(env(&rolled, "AGENT_INSTRUCTIONS").as_deref(), Some("Be brief."));
    assert_eq!(rolled.metadata.generation, before.metadata.generation.map(|before| before + 1));
    let map = team.config_maps().get(&mounted(&rolled)).await.expect("ConfigMap");
    assert_eq!(map.immutable, Some(true));
}
