//! What one namespace does makes no other one wait.
#![allow(clippy::expect_used, clippy::panic, clippy::disallowed_types, clippy::disallowed_methods)]

use crate::support;

use std::net::TcpListener;
use std::time::Duration;

use convoke::api::Kind;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use serde_json::json;
use support::team::{ARGS, SOON, Team, model, ready};
use support::{Cluster, eventually};

/// GitSyncs of the namespace whose writes hang.
const SYNCS: usize = 8;
/// Objects of each.
const OBJECTS: usize = 100;
/// How long each of those writes takes: as long as a webhook may. Whoever has to wait for some rounds of them is late.
const HANGS: Duration = Duration::from_secs(30);

#[tokio::test(flavor = "multi_thread")]
async fn c15_eight_git_syncs_behind_a_webhook_that_hangs_delay_no_other_namespace() {
    let cluster = Cluster::exclusive().await;
    let operator = cluster.operator(ARGS).await;
    operator.print_log_on_panic();
    operator.ready(SOON).await;
    let calm: Vec<_> = (0..3).map(|n| (format!("a{n}.yaml"), model(&format!("a{n}")))).collect();
    let calm: Vec<_> = calm.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
    let calm = Team::new(&cluster, "calm", &calm).await;
    calm.create_sync(json!({})).await;
    calm.wait_ready("True").await;

    let files: Vec<_> = (0..SYNCS * OBJECTS)
        .map(|n| (format!("t{}/{n}.yaml", n % SYNCS), model(&format!("m{n}"))))
        .collect();
    let files: Vec<_> = files.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
    let slow = Team::new(&cluster, "slow", &files).await;
    // It swallows what it is sent: each write takes its whole time and fails.
    let hole = TcpListener::bind("127.0.0.1:0").expect("bind");
    let url = format!("https://{}/", hole.local_addr().expect("address"));
    cluster.apply(&json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": "hole"},
        "webhooks": [{
            "name": "hole.example.com", "clientConfig": {"url": url}, "timeoutSeconds": HANGS.as_secs(),
            "failurePolicy": "Fail", "sideEffects": "None", "admissionReviewVersions": ["v1"],
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": slow.namespace}},
            "rules": [{"apiGroups": ["convoke.dev"], "apiVersions": ["*"], "operations": ["CREATE"], "resources": ["modelapis"]}],
        }],
    }));
    for number in 0..SYNCS {
        slow.create_sync_named(&format!("s{number}"), json!({"path": format!("t{number}")})).await;
    }
    eventually(3 * SOON, "half of them write, or try again", || async {
        let all = slow.syncs.list(&ListParams::default()).await.expect("list");
        let said: Vec<_> = all.items.iter().map(|sync| ready(sync).message).collect();
        let is_at_it = |said: &&String| said.contains("writing or") || said.contains("try");
        let count = said.iter().filter(is_at_it).count();
        if count >= SYNCS / 2 { Ok(()) } else { Err(said) }
    })
    .await;

    let api = calm.api(Kind::ModelAPI);
    for name in ["a0", "a1", "a2"] {
        api.delete(name, &DeleteParams::default()).await.expect("delete");
        eventually(HANGS, "what was deleted by hand is back", || async {
            let found = api.get_opt(name).await.expect("get");
            found.filter(|a| a.metadata.deletion_timestamp.is_none()).ok_or("gone")
        })
        .await;
        let by_hand = json!({"spec": {"external": {"url": "https://by.hand.example.com/v1"}}});
        api.patch(name, &PatchParams::default(), &Patch::Merge(&by_hand)).await.expect("patch");
        eventually(HANGS, "what was changed by hand is undone", || async {
            let url = api.get(name).await.expect("get").data["spec"]["external"]["url"].clone();
            if url == "https://models.example.com/v1" { Ok(()) } else { Err(url) }
        })
        .await;
    }
    assert_eq!(slow.models().await, Vec::<String>::new(), "nothing has passed the webhook");
}
