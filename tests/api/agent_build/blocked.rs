//! What keeps the API server from taking a PipelineRun (B6, B8).

use std::net::TcpListener;

use super::team::*;
use super::*;

#[tokio::test]
async fn b6_b8_a_webhook_that_does_not_answer_is_told_and_delays_no_other_namespace() {
    let cluster = Cluster::exclusive().await;
    install_tekton(&cluster);
    install_templates(&cluster);
    let (team, other) = (Team::new(&cluster).await, Team::new(&cluster).await);
    let controller = team.start_with(Limits { total: 1, namespace: 1 });
    // It accepts connections, and says nothing.
    let hole = TcpListener::bind("127.0.0.1:0").expect("bind");
    let url = format!("https://{}/", hole.local_addr().expect("address"));
    cluster.apply(&json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": "hole"},
        "webhooks": [{
            "name": "hole.example.com", "clientConfig": {"url": url}, "timeoutSeconds": 2,
            "failurePolicy": "Fail", "sideEffects": "None", "admissionReviewVersions": ["v1"],
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": team.namespace}},
            "rules": [{"apiGroups": ["tekton.dev"], "apiVersions": ["*"], "operations": ["CREATE"], "resources": ["pipelineruns"]}],
        }],
    }));
    // Until the webhook is asked, runs are let through.
    eventually(SOON, "the webhook is asked", || async {
        let run = json!({"apiVersion": "tekton.dev/v1", "kind": "PipelineRun", "metadata": {"name": "x"}, "spec": {}});
        let run: DynamicObject = serde_json::from_value(run).expect("an object");
        let rehearsal = PostParams { dry_run: true, ..PostParams::default() };
        let made = team.runs_api().create(&rehearsal, &run).await;
        let said = made.err().map(|error| error.to_string()).unwrap_or_default();
        if said.contains("hole.example.com") { Ok(()) } else { Err(said) }
    })
    .await;

    team.apply_build("reviewer", &json!({}));
    team.commit(&controller, "reviewer", '1', Some('a'));
    let told = |s: &AgentBuildStatus| {
        condition(s, "Ready") == Some(("False", "PipelineRunRefused"))
            && s.message.as_deref().is_some_and(|said| said.contains("hole.example.com"))
    };
    let status = team.until("reviewer", "the webhook is named", told).await;
    assert!(status.pipeline_run.is_none(), "{status:?}");

    // The only turn is free.
    other.apply_build("reviewer", &json!({}));
    other.commit(&controller, "reviewer", '1', Some('a'));
    other.until("reviewer", "it builds", |s| s.phase == Some(BuildPhase::Building)).await;
    let run = other.runs().await.remove(0).name_any();
    other.end(&run, true).await;
    other.until("reviewer", "it is built", |s| s.phase == Some(BuildPhase::Succeeded)).await;

    cluster.kubectl(&["delete", "validatingwebhookconfiguration", "hole"]);
    // It is tried again after a minute, or with the next commit.
    team.commit(&controller, "reviewer", '2', Some('a'));
    team.until("reviewer", "it heals", |s| s.phase == Some(BuildPhase::Building)).await;
    assert_eq!(team.runs().await.len(), 1);
}
