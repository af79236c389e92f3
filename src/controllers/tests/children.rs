//! In which order children are written, and when none is.

use serde_json::json;

use super::*;
use crate::cluster::fake::Fake;

fn map(name: &str) -> ConfigMap {
    let map = json!({"metadata": {"name": name, "namespace": "team"}});
    serde_json::from_value(map).expect("a ConfigMap")
}

#[tokio::test]
async fn m5_the_list_of_agents_is_written_before_the_configuration() {
    let fake = Fake::default();
    let metadata = json!({"name": "m", "namespace": "team", "uid": "c", "resourceVersion": "1"});
    fake.reply(json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}));
    let children = Children {
        agents: Wanted::Bring(map("list")),
        config_map: Wanted::Bring(map("config")),
        ..Children::kept()
    };
    let (key, child) = (Key::new("team", "m"), Key::new("team", "modelapi-m"));
    let owner = Owner { kind: Kind::ModelAPI, key: &key, uid: "u", child };
    let writer = ChildWriter::new(fake.client());
    bring(&writer, &ChildStores::new(), &owner, &children, None).await.expect("both are written");
    let sent = fake.lists();
    assert_eq!(sent.len(), 2, "{sent:?}");
    assert!(sent[0].contains("/configmaps/list?"), "{sent:?}");
    assert!(sent[1].contains("/configmaps/config?"), "{sent:?}");
}

#[tokio::test]
async fn a13_a_deployment_that_went_while_it_was_judged_is_not_made_anew() {
    let fake = Fake::default();
    let wanted = json!({"metadata": {"name": "agent-a", "namespace": "team"}});
    let deployment: Deployment = serde_json::from_value(wanted).expect("a Deployment");
    let children = Children { deployment: Wanted::Bring(deployment.clone()), ..Children::kept() };
    let (key, child) = (Key::new("team", "a"), Key::new("team", "agent-a"));
    let owner = Owner { kind: Kind::Agent, key: &key, uid: "u", child };
    let writer = ChildWriter::new(fake.client());
    let brought = bring(&writer, &ChildStores::new(), &owner, &children, Some(&deployment)).await;
    assert!(brought.expect("no write fails").is_none());
    assert!(fake.lists().is_empty(), "{:?}", fake.lists());
}
