use std::collections::HashMap;
use std::convert::Infallible;

use axum::body::Body;
use http::{Request, Response};
use kube::Client;
use serde_json::{Value, json};
use tower::service_fn;

use super::*;

/// A namespace `team` whose API server has these answers, by path. A text is a log; a number is the code of a refusal.
pub(crate) fn connection(answers: &[(&str, Value)]) -> Connection {
    let owned = |(path, value): &(&str, Value)| ((*path).to_owned(), value.clone());
    let answers: HashMap<String, Value> = answers.iter().map(owned).collect();
    connection_by(move |path| answers.get(path).cloned().unwrap_or_else(|| json!(404)))
}

/// The same, where the answers may change from request to request.
pub(crate) fn connection_by(answer: impl Fn(&str) -> Value + Send + 'static) -> Connection {
    let service = service_fn(move |request: Request<kube::client::Body>| {
        let answer = answer(request.uri().path());
        let code = answer.as_u64().and_then(|code| u16::try_from(code).ok());
        let body = match (code, answer) {
            (Some(code), _) => {
                json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code,
                "message": "no", "reason": "No", "details": {"name": "x"}})
                .to_string()
            }
            (None, Value::String(log)) => log,
            (None, other) => other.to_string(),
        };
        let response = Response::builder().status(code.unwrap_or(200)).body(Body::from(body));
        async move { Ok::<_, Infallible>(response.expect("a response")) }
    });
    Connection { client: Client::new(service, "team"), namespace: "team".into() }
}

/// Metadata of an object that another one controls.
pub(crate) fn owned(name: &str, uid: &str, owner: (&str, &str, &str, &str)) -> Value {
    let (api_version, kind, owner, owner_uid) = owner;
    json!({"name": name, "namespace": "team", "uid": uid, "ownerReferences": [
        {"apiVersion": api_version, "kind": kind, "name": owner, "uid": owner_uid, "controller": true}]})
}

/// A pod of a ReplicaSet.
pub(crate) fn pod(name: &str, set: (&str, &str)) -> Value {
    json!({"metadata": owned(name, name, ("apps/v1", "ReplicaSet", set.0, set.1)),
        "spec": {"containers": [{"name": "agent"}, {"name": "helper"}]},
        "status": {"containerStatuses": [{"name": "agent", "containerID": "c1", "image": "", "imageID": "", "ready": true,
            "restartCount": 0}], "conditions": [{"type": "Ready", "status": "True"}]}})
}

const NAMESPACE: &str = "/apis/apps/v1/namespaces/team";
const AGENT: &str = "/apis/convoke.dev/v1alpha1/namespaces/team/agents/a";
pub(crate) const PODS: &str = "/api/v1/namespaces/team/pods";

/// The answers about Agent `a` with these pods.
pub(crate) fn agent(pods: &[Value]) -> Vec<(&'static str, Value)> {
    let set = |name: &str, uid: &str, owner| json!({"metadata": owned(name, uid, owner)});
    let deployment = |name: &str, uid: &str, owner| json!({"metadata": owned(name, uid, owner)});
    vec![
        (
            AGENT,
            json!({"apiVersion": "convoke.dev/v1alpha1", "kind": "Agent", "metadata": {"name": "a", "uid": "agent"},
                "status": {"phase": "Waiting", "message": "waits for\nModelAPI m"}}),
        ),
        (PODS, json!({"metadata": {}, "items": pods})),
        (
            "/apis/apps/v1/namespaces/team/replicasets/set",
            set("set", "set", ("apps/v1", "Deployment", "agent-a", "deployment")),
        ),
        (
            "/apis/apps/v1/namespaces/team/replicasets/strange",
            set("strange", "strange", ("apps/v1", "Deployment", "other", "other")),
        ),
        (
            "/apis/apps/v1/namespaces/team/replicasets/forged",
            set("forged", "forged", ("apps/v1", "Deployment", "agent-a", "another")),
        ),
        (
            "/apis/apps/v1/namespaces/team/deployments/agent-a",
            deployment("agent-a", "deployment", ("convoke.dev/v1alpha1", "Agent", "a", "agent")),
        ),
        (
            "/apis/apps/v1/namespaces/team/deployments/other",
            deployment(
                "other",
                "other",
                ("convoke.dev/v1alpha1", "Agent", "a", "an earlier agent"),
            ),
        ),
    ]
}

pub(crate) fn workload() -> Workload {
    Workload { kind: Kind::Agent, name: "a".into() }
}

fn names(pods: &[Pod]) -> Vec<&str> {
    pods.iter().filter_map(|pod| pod.metadata.name.as_deref()).collect()
}

#[test]
fn d4_d6_objects_are_named_by_kind_and_name() {
    let parse = |text: &str, default| {
        Workload::parse(text, default)
            .map(|found| (found.kind, found.name))
            .map_err(|failure| failure.code)
    };
    assert_eq!(parse("agent/a", None), Ok((Kind::Agent, "a".into())));
    assert_eq!(parse("ModelAPIs/m.b", None), Ok((Kind::ModelAPI, "m.b".into())));
    assert_eq!(parse("mcpserver/s", Some(Kind::Agent)), Ok((Kind::MCPServer, "s".into())));
    assert_eq!(parse("a", Some(Kind::Agent)), Ok((Kind::Agent, "a".into())));
    for (text, default) in [
        ("a", None),
        ("build/a", None),
        ("agent/", None),
        ("agent/a/b", None),
        ("-", Some(Kind::Agent)),
        ("a\u{1b}", Some(Kind::Agent)),
    ] {
        assert_eq!(parse(text, default), Err(USAGE), "{text:?}");
    }
}

#[tokio::test]
async fn d4_d6_only_pods_that_the_object_controls_are_taken() {
    let mut unowned = pod("unowned", ("set", "set"));
    unowned["metadata"].as_object_mut().expect("an object").remove("ownerReferences");
    let pods = [
        pod("two", ("set", "set")),
        pod("one", ("set", "set")),
        unowned,
        // A ReplicaSet of that name, which is another one; of another Deployment; of a Deployment that is another one; of none.
        pod("replaced", ("set", "an earlier set")),
        pod("strange", ("strange", "strange")),
        pod("forged", ("forged", "forged")),
        pod("lost", ("gone", "gone")),
    ];
    let connection = connection(&agent(&pods));
    let workload = workload();
    let mut found = Pods::of(&connection, &workload).await.expect("an agent");
    let pods = found.list().await.expect("pods");
    assert_eq!(names(&pods), ["one", "two"]);
    assert!(is_ready(&pods[0]));
    let failure = found.none("Ready pod");
    assert_eq!(
        (failure.code, failure.message.as_str()),
        (FOUND, "Agent a in team has no Ready pod: Waiting: waits for ModelAPI m")
    );
}

#[tokio::test]
async fn d4_d6_a_missing_right_names_the_command_that_gives_it() {
    let pods = [pod("one", ("set", "set"))];
    let workload = workload();
    let missing = connection(&[]);
    let failure = Pods::of(&missing, &workload).await.err().expect("no agent");
    assert_eq!((failure.code, failure.message.as_str()), (CLUSTER, "there is no Agent a in team"));
    for path in [
        AGENT,
        PODS,
        &format!("{NAMESPACE}/replicasets/set"),
        &format!("{NAMESPACE}/deployments/agent-a"),
    ] {
        let mut answers = agent(&pods);
        answers
            .iter_mut()
            .filter(|(known, _)| *known == path)
            .for_each(|(_, answer)| *answer = json!(403));
        let connection = connection(&answers);
        let failure = match Pods::of(&connection, &workload).await {
            Err(failure) => failure,
            Ok(mut pods) => pods.list().await.expect_err(path),
        };
        let hint = failure.hint.unwrap_or_default();
        let command =
            "kubectl -n team create rolebinding convoke-ask --role=convoke-ask --user=<you>";
        assert!(hint.ends_with(command), "{path}: {hint}");
    }
}

#[test]
fn d4_a_pod_that_ends_is_not_ready() {
    let ready = |change: Value| {
        let mut object = pod("one", ("set", "set"));
        for (path, value) in change.as_object().expect("an object") {
            *object.pointer_mut(path).expect(path) = value.clone();
        }
        is_ready(&serde_json::from_value(object).expect("a pod"))
    };
    assert!(ready(json!({})));
    assert!(!ready(json!({"/status/conditions/0/status": "False"})));
    assert!(!ready(json!({"/status/conditions": []})));
    let mut ending = pod("one", ("set", "set"));
    ending["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
    assert!(!is_ready(&serde_json::from_value(ending).expect("a pod")));
}

#[test]
fn d4_d6_d8_the_shipped_role_has_the_rights_that_are_needed() {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/deploy/team.yaml");
    let text = std::fs::read_to_string(file).expect(file);
    let mut documents = text.split("---\n");
    let role = documents
        .find(|one| one.contains("kind: Role\n") && one.contains(&format!("name: {ROLE}\n")));
    let role = role.expect("the Role");
    for right in [
        "resources: [agents, modelapis, mcpservers, agentbuilds, gitsyncs]\n  verbs: [get, list, watch]",
        "resources: [pipelineruns, taskruns]\n  verbs: [get]",
        "resources: [deployments, replicasets]\n  verbs: [get]",
        "resources: [pods]\n  verbs: [get, list]",
        "resources: [pods/log]\n  verbs: [get]",
        "resources: [pods/portforward]\n  verbs: [get, create]",
    ] {
        assert!(role.contains(right), "{right}");
    }
}
