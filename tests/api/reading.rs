//! Lists and watches as text, against a real API server.
#![allow(clippy::expect_used, clippy::panic, clippy::disallowed_types, clippy::disallowed_methods)]

use crate::support;

use std::collections::BTreeSet;
use std::time::Duration;

use convoke::cluster::read::{Event, MAX_PAGE_OBJECTS, Source};
use kube::Client;
use kube::api::{Api, DeleteParams, Patch, PatchParams};
use serde_json::{Value, json};
use support::cluster;

fn source(client: &Client, namespace: &str, labels: Option<&str>) -> Source {
    Source::new(
        client.clone(),
        &format!("/api/v1/namespaces/{namespace}/configmaps"),
        labels,
        MAX_PAGE_OBJECTS,
    )
}

fn name(text: &str) -> serde_json::Result<String> {
    let object: Value = serde_json::from_str(text)?;
    Ok(object["metadata"]["name"].as_str().unwrap_or_default().to_owned())
}

#[tokio::test]
async fn a_list_of_several_pages_shows_each_object_once_and_the_watch_goes_on_from_there() {
    let cluster = cluster().await;
    let (namespace, client) = (cluster.namespace("pages").await, cluster.client().await);
    let items: Vec<_> = (0..450)
        .map(|i| {
            let labels = json!({"half": if i % 2 == 0 { "even" } else { "odd" }});
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata":
                {"name": format!("c{i:03}"), "namespace": namespace, "labels": labels}})
        })
        .collect();
    cluster.apply(&json!({"apiVersion": "v1", "kind": "List", "items": items}));

    let mut seen = Vec::new();
    let all = source(&client, &namespace, None);
    let listed = all.list(|text| {
        seen.push(name(text)?);
        Ok(())
    });
    let mut version = listed.await.expect("listed");
    seen.retain(|name| name != "kube-root-ca.crt");
    let unique: BTreeSet<_> = seen.iter().collect();
    assert_eq!((seen.len(), unique.len()), (450, 450));

    let mut odd = 0;
    let selected = source(&client, &namespace, Some("half=odd"));
    selected
        .list(|text| {
            assert_eq!(serde_json::from_str::<Value>(text)?["metadata"]["labels"]["half"], "odd");
            odd += 1;
            Ok(())
        })
        .await
        .expect("listed");
    assert_eq!(odd, 225);

    // What happens between the list and the watch is not lost.
    let maps: Api<k8s_openapi::api::core::v1::ConfigMap> = Api::namespaced(client, &namespace);
    let patch = Patch::Merge(json!({"data": {"k": "v"}}));
    maps.patch("c007", &PatchParams::default(), &patch).await.expect("patched");
    maps.delete("c008", &DeleteParams::default()).await.expect("deleted");
    let (tell, mut hear) = tokio::sync::mpsc::unbounded_channel();
    let watching = tokio::spawn(async move {
        let ended = all.watch(&mut version, |event| {
            let what = match event {
                Event::Begun => "begun".to_owned(),
                Event::Applied(text) => format!("applied {}", name(text)?),
                Event::Deleted(object) => format!("deleted {}", object.metadata.name),
            };
            // Nobody may listen any more.
            let _ = tell.send(what);
            Ok(())
        });
        let _ = ended.await;
    });
    let mut heard = Vec::new();
    while heard.len() < 3 {
        let event = tokio::time::timeout(Duration::from_secs(30), hear.recv()).await;
        heard.push(event.expect("in time").expect("watching"));
    }
    assert_eq!(heard, ["begun", "applied c007", "deleted c008"]);
    watching.abort();
}

#[tokio::test]
async fn a_kind_that_is_not_served_is_an_error() {
    let cluster = cluster().await;
    let (namespace, client) = (cluster.namespace("unknown").await, cluster.client().await);
    let url = format!("/apis/example.com/v1/namespaces/{namespace}/things");
    let unknown = Source::new(client, &url, None, MAX_PAGE_OBJECTS)
        .list(|_| Ok(()))
        .await
        .expect_err("unknown");
    assert!(unknown.is_not_found() && !unknown.is_gone(), "{unknown}");
}

#[tokio::test]
async fn an_object_that_cannot_be_read_ends_the_list_with_an_error() {
    let cluster = cluster().await;
    let (namespace, client) = (cluster.namespace("unread").await, cluster.client().await);
    cluster.apply(&json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata":
        {"name": "a", "namespace": namespace}}));
    let all = source(&client, &namespace, None);
    assert!(all.list(|text| serde_json::from_str::<u8>(text).map(|_| ())).await.is_err());
}
