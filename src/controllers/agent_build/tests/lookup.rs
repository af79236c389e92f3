use std::convert::Infallible;
use std::sync::atomic::{AtomicUsize, Ordering};

use http::{Request, Response};
use kube::client::Body;
use serde_json::json;

use super::*;
use crate::cluster::client::CALL_DEADLINE;

/// The steps of the template.
const STEPS: usize = 6;

/// A lookup in an API server that has a template, and gives each step after this time. Counts the questions for steps.
fn slow(pause: Duration) -> (Lookup, Arc<AtomicUsize>) {
    let asked = Arc::new(AtomicUsize::new(0));
    let count = asked.clone();
    let service = tower::service_fn(move |request: Request<Body>| {
        let path = request.uri().path().to_owned();
        let count = count.clone();
        async move {
            let (namespace, name) = path.rsplit_once("/configmaps/").expect("a ConfigMap");
            let steps = (0..STEPS)
                .map(|at| json!({"name": format!("s{at}"), "configMap": format!("step-{at}")}));
            let template = json!({"name": "dev", "steps": steps.collect::<Vec<_>>()});
            let data = if name.starts_with("step-") {
                count.fetch_add(1, Ordering::Relaxed);
                tokio::time::sleep(pause).await;
                json!({STEP_KEY: "{}"})
            } else {
                json!({TEMPLATE_KEY: template.to_string()})
            };
            let found = json!({
                "apiVersion": "v1", "kind": "ConfigMap", "data": data,
                "metadata": {"name": name, "labels": {STEP_LABEL: "true"}},
            });
            let missing =
                json!({"kind": "Status", "status": "Failure", "reason": "NotFound", "code": 404});
            let (code, body) =
                if namespace.ends_with("/operator") { (200, found) } else { (404, missing) };
            let response =
                Response::builder().status(code).body(Body::from(body.to_string().into_bytes()));
            Ok::<_, Infallible>(response.expect("a response"))
        }
    });
    let client = Client::new(service, "default");
    let image = OwnImage::new(Some("image".into()));
    (Lookup::new(client, "operator".into(), image, BuildProfile::Baseline), asked)
}

fn spec() -> AgentBuildSpec {
    serde_json::from_value(json!({"source": {"gitSync": {}}, "output": {"image": "team/reviewer"}}))
        .expect("a spec")
}

#[tokio::test(start_paused = true)]
async fn b3_steps_are_read_at_once() {
    let (lookup, asked) = slow(Duration::from_secs(4));
    let began = Instant::now();
    let found = lookup.template("team", &spec()).await;
    // In the namespace of the build, and then in that of the operator.
    assert!(began.elapsed() <= Duration::from_secs(8), "{:?}: {found:?}", began.elapsed());
    assert_eq!(asked.load(Ordering::Relaxed), 2 * STEPS);
    assert!(!matches!(found, Err(LookupError::Call(_))), "{found:?}");
}

#[tokio::test(start_paused = true)]
async fn b3_an_api_server_that_is_silent_costs_all_builds_one_deadline() {
    let (lookup, asked) = slow(Duration::from_secs(3600));
    let (began, spec) = (Instant::now(), spec());
    let all: Vec<_> = (0..5).map(|_| lookup.template("team", &spec)).collect();
    for found in futures::future::join_all(all).await {
        let is_late = matches!(found, Err(LookupError::Call(CallError::Deadline(_))));
        assert!(is_late, "{found:?}");
    }
    assert!(began.elapsed() < CALL_DEADLINE + Duration::from_secs(1), "{:?}", began.elapsed());
    // Who asks later asks the API server.
    let before = asked.load(Ordering::Relaxed);
    assert!(lookup.template("team", &spec).await.is_err());
    assert!(asked.load(Ordering::Relaxed) > before);
}
