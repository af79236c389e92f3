//! Agents that speak no A2A.

use super::*;

#[tokio::test]
async fn d4_an_agent_that_speaks_no_a2a_is_asked_over_chat_completions() {
    let piece =
        |text: &str| format!("data: {}\n\n", json!({"choices": [{"delta": {"content": text}}]}));
    let call = json!({"type": "progress", "step": 1, "action": "tool_call", "target": "count"});
    let pieces =
        [piece(&call.to_string()), piece("Two "), piece("words."), "data: [DONE]\n\n".into()];
    let stream = ("text/event-stream", pieces.concat());
    let whole =
        json!({"choices": [{"message": {"content": "Three."}}], "usage": {"total_tokens": 7}});
    let old = json!({"url": "http://localhost:8000", "capabilities": {"streaming": true}});
    // It refuses the methods of all versions, or has nothing that takes any.
    for (card, has_no_rpc) in [(Some(old), false), (None, false), (None, true)] {
        let agent = Agent::new(card, Vec::new());
        let completions = [stream.clone(), ("application/json", whole.to_string())];
        agent.lock().completions = completions.into();
        agent.lock().has_no_rpc = has_no_rpc;
        let (peer, running) = (agent.peer().await, Running::default());
        let (mut talk, out, err) = talk(&peer, &running, &[], false);
        let turn = talk.turn(Some("first".to_owned()), Ids::default()).await.expect("an answer");
        let tried = agent.lock().versions.len();
        let turn = talk.turn(Some("second".to_owned()), turn.ids).await.expect("an answer");
        assert_eq!(out.text(), "Two words.\nThree.\n");
        assert_eq!(err.text(), format!("{BY_CHAT}\n→ tool count\n"), "said once");
        assert_eq!(
            (turn.state, &turn.json()["usage"]),
            (State::Completed, &json!({"total_tokens": 7}))
        );
        let completed = agent.lock().completed.clone();
        let [(one, first), (other, second)] = completed.as_slice() else { panic!("{completed:?}") };
        assert!(one.len() == 32 && one == other && turn.ids.context.as_ref() == Some(one));
        let question = |text: &str| json!([{"role": "user", "content": text}]);
        assert_eq!((&first["messages"], &first["stream"]), (&question("first"), &json!(true)));
        assert_eq!(second["messages"], question("second"), "the agent knows what was said before");
        assert_eq!(agent.lock().versions.len(), tried, "it is not tried again");
        assert!(running.borrow().is_none());
    }
}

#[tokio::test]
async fn d4_what_goes_wrong_over_chat_completions_is_told() {
    let event = |value: &Value| ("text/event-stream", format!("data: {value}\n\n"));
    let agent = Agent::new(None, Vec::new());
    let cut = event(&json!({"choices": [{"delta": {"content": "Two "}, "finish_reason": null}]}));
    let failed = event(&json!({"error": {"message": "no model"}}));
    agent.lock().completions = [cut, ("application/json", "{}".into()), failed].into();
    let (peer, running) = (agent.peer().await, Running::default());
    let (mut talk, _, _) = talk(&peer, &running, &[], false);
    let (task, context) = (Some("t1".into()), None);
    for (ids, why) in [
        (Ids::default(), "the agent ended its answer without saying so"),
        (Ids::default(), "the agent sent something that is no chat completion"),
        (Ids { context, task }, "the agent speaks no A2A, so no task of it can go on"),
    ] {
        let failure = talk.turn(Some("x".to_owned()), ids).await.expect_err("no answer");
        assert_eq!((failure.code, failure.message.as_str()), (CLUSTER, why));
    }
    let turn = talk.turn(Some("x".to_owned()), Ids::default()).await.expect("a turn");
    let failure = outcome(&turn, "").expect_err("it failed");
    assert_eq!((failure.code, failure.message.as_str()), (FOUND, "the agent failed: no model"));
    let failure = talk.turn(Some("x".to_owned()), Ids::default()).await.expect_err("nothing");
    assert_eq!(failure.message, "the agent speaks neither A2A nor chat completions");
}
