//! What keeps the API server from taking a PipelineRun (B6, B8).

use std::net::TcpListener;
use std::sync::atomic::{AtomicU16, Ordering};

use axum::Json;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::team::*;
use super::*;
use support::tls::{Authority, Front};

/// Has a webhook asked about the runs of a team, and waits until that is so: before, runs are let through.
async fn install_webhook(team: &Team<'_>, client_config: &Value) {
    team.cluster.apply(&json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": "guard"},
        "webhooks": [{
            "name": "guard.example.com", "clientConfig": client_config, "timeoutSeconds": 2,
            "failurePolicy": "Fail", "sideEffects": "None", "admissionReviewVersions": ["v1"],
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": team.namespace}},
            "rules": [{"apiGroups": ["tekton.dev"], "apiVersions": ["*"], "operations": ["CREATE"], "resources": ["pipelineruns"]}],
        }],
    }));
    eventually(SOON, "the webhook is asked", || async {
        let run = json!({"apiVersion": "tekton.dev/v1", "kind": "PipelineRun", "metadata": {"name": "x"}, "spec": {}});
        let run: DynamicObject = serde_json::from_value(run).expect("an object");
        let rehearsal = PostParams { dry_run: true, ..PostParams::default() };
        let made = team.runs_api().create(&rehearsal, &run).await;
        let said = made.err().map(|error| error.to_string()).unwrap_or_default();
        if said.contains("guard.example.com") { Ok(()) } else { Err(said) }
    })
    .await;
}

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
    install_webhook(&team, &json!({"url": url})).await;

    team.apply_build("reviewer", &json!({}));
    team.commit(&controller, "reviewer", '1', Some('a'));
    let told = |s: &AgentBuildStatus| {
        condition(s, "Ready") == Some(("False", "PipelineRunRefused"))
            && s.message.as_deref().is_some_and(|said| said.contains("guard.example.com"))
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

    cluster.kubectl(&["delete", "validatingwebhookconfiguration", "guard"]);
    // It is tried again after a minute, or with the next commit.
    team.commit(&controller, "reviewer", '2', Some('a'));
    team.until("reviewer", "it heals", |s| s.phase == Some(BuildPhase::Building)).await;
    assert_eq!(team.runs().await.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn b6_b8_a_webhook_that_says_no_is_quoted_whatever_its_code_and_it_heals() {
    let cluster = Cluster::exclusive().await;
    install_tekton(&cluster);
    install_templates(&cluster);
    let team = Team::new(&cluster).await;
    let controller = team.start();
    let code = Arc::new(AtomicU16::new(0));
    let says = code.clone();
    let answer = move |Json(review): Json<Value>| {
        let mut no = json!({"message": "no builds before noon"});
        // Without one the API server takes 400.
        if let code @ 1.. = says.load(Ordering::SeqCst) {
            no["code"] = code.into();
        }
        let response = json!({"uid": review["request"]["uid"], "allowed": false, "status": no});
        let (version, kind) = (&review["apiVersion"], &review["kind"]);
        let whole = json!({"apiVersion": version, "kind": kind, "response": response});
        async move { Json(whole) }
    };
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("bind");
    let plain = listener.local_addr().expect("address");
    let app = axum::Router::new().fallback(answer);
    let mut server = JoinSet::new();
    server.spawn(async move { axum::serve(listener, app).await.expect("serve") });
    let authority = Authority::new();
    let front = Front::start(plain, authority.sign("127.0.0.1", |_| {}), "http/1.1").await;
    let (url, bundle) = (front.origin("127.0.0.1"), STANDARD.encode(authority.pem()));
    install_webhook(&team, &json!({"url": url, "caBundle": bundle})).await;

    // A webhook chooses its code. A conflict is no run of that name.
    for (name, says) in [("plain", 0), ("forbidden", 403), ("conflict", 409)] {
        code.store(says, Ordering::SeqCst);
        team.apply_build(name, &json!({}));
        team.commit(&controller, name, '1', Some('a'));
        let told = |s: &AgentBuildStatus| {
            condition(s, "Ready") == Some(("False", "PipelineRunRefused"))
                && s.message.as_deref().is_some_and(|said| {
                    said.contains("guard.example.com") && said.contains("no builds before noon")
                })
        };
        let status = team.until(name, &format!("{says} is quoted"), told).await;
        assert!(status.queued_at.is_some(), "{name} keeps its place: {status:?}");
        assert_eq!(status.pipeline_run, None, "{name}");
    }
    assert!(team.runs().await.is_empty());

    cluster.kubectl(&["delete", "validatingwebhookconfiguration", "guard"]);
    for name in ["plain", "conflict"] {
        // It is tried again after a minute, or with the next commit.
        team.commit(&controller, name, '2', Some('a'));
        team.until(name, "it heals", |s| s.phase == Some(BuildPhase::Building)).await;
    }
}
