use serde_json::json;

use super::super::a2a::update;
use super::*;

/// A status of 1.0 with the parts of its message.
fn status(state: &str, parts: &Value) -> Value {
    json!({"statusUpdate": {"taskId": "t", "contextId": "c",
        "status": {"state": format!("TASK_STATE_{state}"), "message": {"parts": parts}}}})
}

fn piece(id: &str, text: &str, append: bool) -> Value {
    json!({"artifactUpdate": {"artifact": {"artifactId": id, "parts": [{"text": text}]}, "append": append}})
}

fn task(state: &str, texts: &[(&str, &str)]) -> Value {
    let artifacts: Vec<_> = texts
        .iter()
        .map(|(id, text)| json!({"artifactId": id, "parts": [{"text": text}]}))
        .collect();
    json!({"task": {"id": "t", "contextId": "c", "status": {"state": state}, "artifacts": artifacts}})
}

/// Takes results, and gives what was shown as one text: `|` for a break, notes in brackets.
fn shown(turn: &mut Turn, results: &[Value]) -> String {
    let mut text = String::new();
    for result in results {
        for one in turn.take(update(result).expect("an update")).expect("small") {
            match one {
                Shown::Text(piece) => text.push_str(&piece),
                Shown::Break => text.push('|'),
                Shown::Note(note) => text.push_str(&format!("[{note}]")),
            }
        }
    }
    text
}

#[test]
fn d4_pieces_make_one_answer_and_each_is_shown_once() {
    let mut turn = Turn::default();
    let all = [
        task("TASK_STATE_SUBMITTED", &[]),
        status("WORKING", &json!([])),
        piece("a", "Let me ", false),
        piece("a", "see.", true),
        piece("a", "Two ", false),
        piece("a", "words", true),
        piece("a", "", true),
        piece("b", "!", true),
        task("completed", &[("a", "Two words"), ("b", "!!")]),
    ];
    assert_eq!(shown(&mut turn, &all), "Let me see.|Two words|!!");
    assert_eq!((turn.answer().as_str(), turn.state), ("Two words\n!!", State::Completed));
    assert!(turn.is_over());
}

#[test]
fn d4_an_answer_is_found_where_agents_put_it() {
    let history = json!({"task": {"id": "t", "status": {"state": "TASK_STATE_COMPLETED"},
        "history": [{"role": "ROLE_AGENT", "parts": [{"text": "answer"}]}]}});
    let message = json!({"message": {"contextId": "c", "parts": [{"text": "answer"}]}});
    for all in [
        &[task("completed", &[("a", "answer")])][..],
        &[status("COMPLETED", &json!([{"text": "answer"}]))],
        &[message],
        &[history],
        &[piece("a", "answer", false), status("COMPLETED", &json!([{"text": "done"}]))],
    ] {
        let mut turn = Turn::default();
        assert_eq!(shown(&mut turn, all), "answer", "{all:?}");
        assert_eq!((turn.answer().as_str(), turn.state), ("answer", State::Completed), "{all:?}");
    }
}

#[test]
fn d4_calls_of_tools_and_agents_are_noted_as_they_happen() {
    let event = |event: Value| status("WORKING", &json!([{"data": {"event": event}}]));
    let mut turn = Turn::default();
    let in_metadata = json!({"statusUpdate": {"status": {"state": "TASK_STATE_WORKING"},
        "metadata": {"event": {"type": "peer", "name": "writer", "phase": "start"}}}});
    let all = [
        event(
            json!({"type": "tool", "server": "text-tools", "name": "count_words", "phase": "start"}),
        ),
        event(
            json!({"type": "tool", "server": "text-tools", "name": "count_words", "phase": "end", "ok": true}),
        ),
        in_metadata,
        event(
            json!({"type": "peer", "name": "writer", "phase": "end", "ok": false, "more": "left out"}),
        ),
        event(json!({"name": "no type"})),
        status("WORKING", &json!([{"text": "thinking"}])),
    ];
    assert_eq!(
        shown(&mut turn, &all),
        "[→ tool text-tools/count_words][→ agent writer][✗ agent writer failed][… thinking]"
    );
    let json = turn.json();
    let events = json["events"].as_array().expect("events");
    assert_eq!(events.len(), 4);
    assert_eq!(events[3], json!({"type": "peer", "name": "writer", "phase": "end", "ok": false}));
    assert_eq!((json["state"].as_str(), json.get("usage")), (Some("working"), None));
}

#[test]
fn d5_an_approval_is_found_and_its_token_is_not_told_to_programs() {
    let asks = |token: &str| {
        let approval = json!({"token": token, "server": "text-tools", "tool": "delete", "arguments": {"n": 1}});
        status("INPUT_REQUIRED", &json!([{"text": "May I?"}, {"data": {"approval": approval}}]))
    };
    let mut turn = Turn::default();
    shown(&mut turn, &[piece("a", "I will delete.", false), asks("one")]);
    assert!(turn.is_over());
    let approval = turn.approval().expect("an approval");
    assert_eq!(approval.decision(false), json!({"approval": {"token": "one", "decision": "deny"}}));
    assert_eq!(
        turn.json()["approval"],
        json!({"server": "text-tools", "tool": "delete", "arguments": {"n": 1}})
    );
    assert!(!turn.json().to_string().contains("one"));
    // The first event after the answer has the state of before, without a message.
    turn.goes_on();
    let again = task("TASK_STATE_INPUT_REQUIRED", &[("a", "I will delete.")]);
    assert_eq!(shown(&mut turn, &[again]), "");
    assert!(!turn.is_over() && turn.approval().is_none());
    // A second one may follow.
    shown(&mut turn, &[status("WORKING", &json!([])), asks("two")]);
    assert_eq!(turn.approval().expect("an approval").token, "two");
}

#[test]
fn d4_answers_and_calls_have_a_limit() {
    let mut turn = Turn::default();
    let mib = update(&piece("a", &"x".repeat(1 << 20), true)).expect("an update");
    for _ in 0..MAX_ANSWER_BYTES >> 20 {
        turn.take(mib.clone()).expect("fits");
    }
    assert_eq!(turn.take(mib), Err("the answer is longer than 10 MiB".into()));
    let event = json!({"data": {"event": {"type": "tool", "name": "x"}}});
    let many = vec![event; MAX_EVENTS];
    let mut turn = Turn::default();
    turn.take(update(&status("WORKING", &json!(many))).expect("an update")).expect("fits");
    let one = update(&status("WORKING", &json!([many[0]]))).expect("an update");
    assert_eq!(turn.take(one), Err("the agent reports more than 10000 calls".into()));
}
