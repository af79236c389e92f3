use serde_json::json;

use super::*;

const V1_STREAM: Way = Way { version: Version::V1, stream: true };
const V03_STREAM: Way = Way { version: Version::V03, stream: true };

#[test]
fn d4_a_card_says_the_version_and_the_path_and_nothing_of_the_host() {
    let of = |card: Value| interface(&card).map(|found| (found.path, found.way));
    let both = json!({"capabilities": {"streaming": true}, "url": "http://old.example/", "supportedInterfaces": [
        {"url": "http://h/grpc", "protocolBinding": "GRPC", "protocolVersion": "1.0"},
        {"url": "http://h/v03", "protocolBinding": "JSONRPC", "protocolVersion": "0.3"},
        {"url": "http://evil.example:1/a2a?x=1", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}]});
    assert_eq!(of(both), Some(("/a2a?x=1".into(), V1_STREAM)));
    let old = json!({"capabilities": {"streaming": true}, "url": "http://h:8000/rpc", "protocolVersion": "0.3.0"});
    assert_eq!(of(old), Some(("/rpc".into(), V03_STREAM)));
    let other = json!({"url": "http://h/grpc", "preferredTransport": "GRPC", "additionalInterfaces": [
        {"url": "http://h", "transport": "JSONRPC"}]});
    assert_eq!(of(other), Some(("/".into(), Way { version: Version::V03, stream: false })));
    assert_eq!(of(json!({"url": "http://h/grpc", "preferredTransport": "GRPC"})), None);
    assert_eq!(of(json!([])), None);
}

#[test]
fn d4_an_older_way_is_tried_only_where_a_code_says_so() {
    let methods = |codes: &[i64]| {
        let ways = codes.iter().try_fold(V1_STREAM, |way, &code| way.after(code));
        ways.map(Way::method)
    };
    assert_eq!(methods(&[]), Some("SendStreamingMessage"));
    assert_eq!(methods(&[-32009]), Some("message/stream"));
    assert_eq!(methods(&[-32601, -32601]), Some("message/send"));
    assert_eq!(methods(&[-32004]), Some("SendMessage"));
    assert_eq!(methods(&[-32004, -32601]), Some("message/send"));
    assert_eq!(methods(&[-32602]), None);
    assert_eq!(methods(&[-32601, -32004, -32601]), None);
}

#[test]
fn d4_messages_have_the_shape_of_their_version() {
    let message = Message {
        content: Content::Text("hello".into()),
        context_id: Some("c".into()),
        task_id: None,
    };
    assert_eq!(
        message.params(Version::V1, "m"),
        json!({"message": {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "hello"}], "contextId": "c"}})
    );
    let content = Content::Data(json!({"a": 1}));
    let message = Message { content, context_id: None, task_id: Some("t".into()) };
    assert_eq!(
        message.params(Version::V03, "m"),
        json!({"message": {"kind": "message", "messageId": "m", "role": "user", "taskId": "t",
            "parts": [{"kind": "data", "data": {"a": 1}}]}})
    );
}

#[test]
fn d4_both_versions_are_read_as_the_same() {
    let pairs = [
        (
            json!({"statusUpdate": {"taskId": "t", "contextId": "c", "status": {"state": "TASK_STATE_INPUT_REQUIRED",
                "message": {"role": "ROLE_AGENT", "parts": [{"text": "May I?"}, {"data": {"approval": {"token": "x"}}}]}}}}),
            json!({"kind": "status-update", "taskId": "t", "contextId": "c", "final": true, "status": {"state": "input-required",
                "message": {"role": "agent", "parts": [{"kind": "text", "text": "May I?"},
                    {"kind": "data", "data": {"approval": {"token": "x"}}}]}}}),
        ),
        (
            json!({"artifactUpdate": {"taskId": "t", "artifact": {"artifactId": "a", "parts": [{"text": "1"}, {"text": "2"}]}, "append": true}}),
            json!({"kind": "artifact-update", "taskId": "t", "append": true,
                "artifact": {"artifactId": "a", "parts": [{"kind": "text", "text": "12"}]}}),
        ),
        (
            json!({"task": {"id": "t", "contextId": "c", "status": {"state": "TASK_STATE_COMPLETED"},
                "artifacts": [{"artifactId": "a", "parts": [{"data": {"n": 1}}]}],
                "history": [{"role": "ROLE_AGENT", "parts": [{"text": "said"}]}, {"role": "ROLE_USER", "parts": [{"text": "asked"}]}]}}),
            json!({"kind": "task", "id": "t", "contextId": "c", "status": {"state": "completed"},
                "artifacts": [{"artifactId": "a", "parts": [{"kind": "data", "data": {"n": 1}}]}],
                "history": [{"role": "agent", "parts": [{"text": "said"}]}]}),
        ),
        (
            json!({"message": {"contextId": "c", "parts": [{"text": "hi"}, {"url": "http://x/f"}]}}),
            json!({"kind": "message", "contextId": "c", "parts": [{"kind": "text", "text": "hi"}]}),
        ),
    ];
    for (new, old) in pairs {
        let found = update(&new);
        assert!(found.is_some(), "{new}");
        assert_eq!(found, update(&old), "{new}");
    }
    for other in [json!({}), json!({"kind": "x"}), json!({"task": 1}), json!([1])] {
        assert_eq!(update(&other), None, "{other}");
    }
}

#[test]
fn d4_what_belongs_to_a_task_is_read_whole() {
    let json = json!({"id": "t", "contextId": "c", "status": {"state": "working"}, "artifacts": [
        {"artifactId": "a", "parts": [{"data": {"n": 1}}]}]});
    let Update::Task { ids, status, artifacts, said } = task(&json) else { panic!("a task") };
    assert_eq!((ids.task.as_deref(), ids.context.as_deref()), (Some("t"), Some("c")));
    assert_eq!((status.state, said), (State::Working, None));
    assert_eq!(artifacts, [Artifact { id: "a".into(), text: r#"{"n":1}"#.into() }]);
}

#[test]
fn d4_errors_are_told_in_words() {
    let words = |text: &str| result(text).expect_err("an error").map(|error| error.words());
    let new = r#"{"jsonrpc": "2.0", "id": 1, "error": {"code": -32603, "message": "too many requests",
        "data": [{"@type": "type.googleapis.com/google.rpc.ErrorInfo", "metadata": {"reason": "overloaded"}}]}}"#;
    assert_eq!(
        words(new).as_deref(),
        Some("the agent refused: too many requests (overloaded, -32603)")
    );
    let old =
        r#"{"error": {"code": -32001, "message": "Task not found", "data": {"reason": "x"}}}"#;
    assert_eq!(
        words(old).as_deref(),
        Some("the agent does not know the task: Task not found (x, -32001)")
    );
    assert_eq!(
        words(r#"{"error": {}}"#).as_deref(),
        Some("the agent refused: it gives no reason (0)")
    );
    for text in ["", "<html>", "[]", r#"{"result": 1}"#] {
        assert_eq!(words(text), None, "{text}");
    }
    assert_eq!(result(r#"{"result": {"a": 1}}"#), Ok(json!({"a": 1})));
}
