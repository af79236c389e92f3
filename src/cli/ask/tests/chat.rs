use serde_json::json;

use super::*;

fn chunk(delta: &Value, finish: &Value) -> String {
    json!({"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}).to_string()
}

/// What an update says: its state, its text, its data.
fn shown(update: Option<Update>) -> Option<(State, String, Vec<Value>)> {
    let ids = Ids { context: Some("c".into()), task: None };
    match update? {
        Update::Status { ids: of, status } => {
            assert_eq!(of, ids);
            let Parts { text, data } = status.message.unwrap_or_default();
            Some((status.state, text, data))
        }
        Update::Artifact { ids: of, artifact, append } => {
            assert!(append && of == ids);
            Some((State::Working, artifact.text, Vec::new()))
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn d4_a_chat_completion_is_read_in_pieces() {
    let mut reader = Reader::new("c".into());
    let mut read = |text: &str| shown(reader.read(text).expect("a completion"));
    let says = |state: State, text: &str| Some((state, text.to_owned(), Vec::new()));
    assert_eq!(read(&chunk(&json!({"role": "assistant"}), &Value::Null)), None);
    assert_eq!(
        read(&chunk(&json!({"content": "Two "}), &Value::Null)),
        says(State::Working, "Two ")
    );
    // What only looks like a report is text.
    for text in [
        "{",
        "{}",
        r#"{"type": "progress"}"#,
        r#"{"type": "other", "action": "delegate", "target": "x"}"#,
    ] {
        assert_eq!(
            read(&chunk(&json!({"content": text}), &Value::Null)),
            says(State::Working, text)
        );
    }
    let progress = r#"{"type": "progress", "step": 1, "max_steps": 5, "action": "delegate", "target": "writer"}"#;
    let event = json!({"event": {"type": "peer", "name": "writer", "phase": "start"}});
    assert_eq!(
        read(&chunk(&json!({"content": progress}), &Value::Null)),
        Some((State::Working, String::new(), vec![event]))
    );
    assert_eq!(read(&chunk(&json!({}), &json!("stop"))), None);
    assert_eq!(read(r#"{"choices": [], "usage": {"total_tokens": 7}}"#), None);
    assert_eq!(read("[DONE]"), says(State::Completed, ""));
    let Some(Update::Status { status, .. }) = reader.end() else { panic!("it has finished") };
    assert_eq!(
        (status.state, &status.metadata["usage"]["total_tokens"]),
        (State::Completed, &json!(7))
    );
}

#[test]
fn d4_a_chat_completion_that_comes_whole_or_fails_or_is_none() {
    let read = |text: &str| Reader::new("c".into()).read(text).map(shown);
    let whole = json!({"choices": [{"message": {"role": "assistant", "content": "all of it"}}]});
    let says = |state: State, text: &str| Ok(Some((state, text.to_owned(), Vec::new())));
    assert_eq!(read(&whole.to_string()), says(State::Completed, "all of it"));
    assert_eq!(read(r#"{"error": {"message": "no model"}}"#), says(State::Failed, "no model"));
    assert_eq!(read(r#"{"error": "no model"}"#), says(State::Failed, "no model"));
    for text in ["", "{", "[]", "7", r#"{"jsonrpc": "2.0"}"#, r#"{"choices": 7}"#] {
        assert_eq!(read(text), Err(Unreadable), "{text}");
    }
    assert!(Reader::new("c".into()).end().is_none(), "nothing said that this was all");
    assert_eq!(reason("<html>"), None);
}

#[test]
fn d5_over_chat_completions_only_a_question_is_sent() {
    let message = |content: Content, task: Option<&str>| Message {
        content,
        context_id: Some("c".into()),
        task_id: task.map(ToOwned::to_owned),
    };
    assert_eq!(question(&message(Content::Text("hi".into()), None)), Some("hi"));
    assert_eq!(question(&message(Content::Text("hi".into()), Some("t"))), None);
    assert_eq!(question(&message(Content::Data(json!({"approval": {}})), None)), None);
    assert_eq!(
        request("hi", true),
        json!({"model": "agent", "messages": [{"role": "user", "content": "hi"}], "stream": true})
    );
}
