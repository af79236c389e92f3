//! The client against a server on the loopback that speaks both versions of A2A.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard};

use axum::Router;
use axum::body::Body;
use axum::extract::State as Shared;
use axum::routing::{get, post};
use bytes::Bytes;
use futures::{FutureExt, StreamExt};
use http::{HeaderMap, Response};
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};

use super::super::super::terminal::tests::{PROMPT, Written, input, screen};
use super::super::a2a::update;
use super::super::http::Dialled;
use super::*;

/// What is answered to a request.
enum Answer {
    /// A stream of these results.
    Stream(Vec<Value>),
    /// A stream of these results that does not end.
    Endless(Vec<Value>),
    /// One result.
    One(Value),
    /// An error.
    Refusal(i64),
}

#[derive(Default)]
struct Script {
    card: Option<Value>,
    /// What comes next: the method, and the answer. Another method is not known.
    next: VecDeque<(&'static str, Answer)>,
    /// All requests for which there was an answer.
    asked: Vec<Value>,
    /// The version in the header of each request.
    versions: Vec<String>,
    /// Nothing takes A2A.
    has_no_rpc: bool,
    /// What comes next over chat completions: the media type and the body.
    completions: VecDeque<(&'static str, String)>,
    /// What was asked there: the conversation, and the body.
    completed: Vec<(String, Value)>,
}

/// An agent that answers what it is told to. A clone shares it.
#[derive(Clone, Default)]
struct Agent(Arc<Mutex<Script>>);

impl Agent {
    fn new(card: Option<Value>, next: Vec<(&'static str, Answer)>) -> Self {
        Self(Arc::new(Mutex::new(Script { card, next: next.into(), ..Script::default() })))
    }

    fn lock(&self) -> MutexGuard<'_, Script> {
        self.0.lock().expect("lock")
    }

    /// Serves it, and gives a client of it.
    async fn peer(&self) -> Peer<Loopback> {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let router = Router::new()
            .route("/.well-known/agent-card.json", get(Self::card))
            .route("/rpc", post(Self::rpc))
            .route("/", post(Self::rpc))
            .route("/v1/chat/completions", post(Self::complete))
            .with_state(self.clone());
        tokio::spawn(async move { axum::serve(listener, router).await });
        Peer::find(Loopback(address)).await.expect("a peer")
    }

    #[allow(clippy::unused_async)] // as axum takes it
    async fn card(Shared(agent): Shared<Self>) -> Response<Body> {
        let card = agent.lock().card.clone();
        let status: u16 = if card.is_some() { 200 } else { 404 };
        let body = Body::from(card.unwrap_or_default().to_string());
        Response::builder().status(status).body(body).expect("a response")
    }

    #[allow(clippy::unused_async)] // as axum takes it
    async fn rpc(Shared(agent): Shared<Self>, headers: HeaderMap, body: String) -> Response<Body> {
        let request: Value = serde_json::from_str(&body).expect("JSON");
        let mut script = agent.lock();
        if script.has_no_rpc {
            return Response::builder().status(405).body(Body::empty()).expect("a response");
        }
        let version = headers.get("a2a-version").map_or("", |v| v.to_str().expect("text"));
        script.versions.push(version.to_owned());
        let known = script.next.front().is_some_and(|(method, _)| request["method"] == *method);
        let answer = if known { script.next.pop_front() } else { None };
        let result =
            |result: Value| json!({"jsonrpc": "2.0", "id": request["id"], "result": result});
        let event = |value: Value| Bytes::from(format!("data: {}\r\n\r\n", result(value)));
        let error = |code: i64| json!({"jsonrpc": "2.0", "id": request["id"], "error": {"code": code, "message": "no"}});
        let (kind, body) = match answer.map(|(_, answer)| answer) {
            Some(Answer::Stream(values)) => {
                let events: Vec<_> = values.into_iter().map(event).collect();
                ("text/event-stream; charset=utf-8", Body::from(events.concat()))
            }
            Some(Answer::Endless(values)) => {
                let events: Vec<_> =
                    values.into_iter().map(event).map(Ok::<_, std::io::Error>).collect();
                let stream = futures::stream::iter(events).chain(futures::stream::pending());
                ("text/event-stream", Body::from_stream(stream))
            }
            Some(Answer::One(value)) => ("application/json", Body::from(result(value).to_string())),
            Some(Answer::Refusal(code)) => {
                ("application/json", Body::from(error(code).to_string()))
            }
            None => ("application/json", Body::from(error(-32601).to_string())),
        };
        if known {
            script.asked.push(request);
        }
        Response::builder().header("content-type", kind).body(body).expect("a response")
    }

    #[allow(clippy::unused_async)] // as axum takes it
    async fn complete(
        Shared(agent): Shared<Self>,
        headers: HeaderMap,
        body: String,
    ) -> Response<Body> {
        let mut script = agent.lock();
        let session = headers.get("x-session-id").map_or("", |v| v.to_str().expect("text"));
        script.completed.push((session.to_owned(), serde_json::from_str(&body).expect("JSON")));
        let (status, kind, body) = match script.completions.pop_front() {
            Some((kind, body)) => (200_u16, kind, body),
            None => (404, "text/plain", String::new()),
        };
        let response = Response::builder().status(status).header("content-type", kind);
        response.body(Body::from(body)).expect("a response")
    }

    /// The messages that were sent.
    fn messages(&self) -> Vec<Value> {
        let mut messages: Vec<_> =
            self.lock().asked.iter().map(|request| request["params"]["message"].clone()).collect();
        for message in &mut messages {
            // It is another one each time.
            assert_eq!(message["messageId"].as_str().map(str::len), Some(32));
            message.as_object_mut().expect("an object").remove("messageId");
        }
        messages
    }
}

struct Loopback(SocketAddr);

impl Dial for Loopback {
    type Io = TcpStream;

    async fn dial(&self) -> Result<Dialled<TcpStream>, Failure> {
        let io = TcpStream::connect(self.0).await.expect("the server listens");
        Ok(Dialled { io, refusal: futures::future::ready(None).boxed() })
    }
}

/// A conversation on a terminal or without one, and what it shows.
fn talk<'a>(
    peer: &'a Peer<Loopback>,
    running: &'a Running,
    typed: &[&str],
    is_terminal: bool,
) -> (Talk<'a, Loopback>, Written, Written) {
    let (screen, out, err) = screen(is_terminal);
    let input = input(typed, is_terminal);
    let command = "convoke ask -n team agent/a".into();
    let options = Options { quiet: false, deny: false, timeout: Duration::from_secs(20), command };
    (Talk { peer, running, screen, input, options }, out, err)
}

fn card(version: &str, streaming: bool) -> Value {
    json!({"capabilities": {"streaming": streaming}, "supportedInterfaces": [
        {"url": "http://elsewhere.example/rpc", "protocolBinding": "JSONRPC", "protocolVersion": version}]})
}

fn task(state: &str) -> Value {
    json!({"task": {"id": "t1", "contextId": "c1", "status": {"state": state}}})
}

fn piece(text: &str, append: bool) -> Value {
    json!({"artifactUpdate": {"taskId": "t1", "contextId": "c1", "append": append,
        "artifact": {"artifactId": "answer", "parts": [{"text": text}]}}})
}

fn status(state: &str, parts: &Value) -> Value {
    json!({"statusUpdate": {"taskId": "t1", "contextId": "c1",
        "status": {"state": state, "message": {"role": "ROLE_AGENT", "parts": parts}}}})
}

/// The state in which a task asks for an approval.
fn asks(token: &str, tool: &str) -> Value {
    let approval = json!({"token": token, "server": "text-tools", "tool": tool, "arguments": {"path": "/\u{1b}[2J\nx"}});
    status(
        "TASK_STATE_INPUT_REQUIRED",
        &json!([{"text": "May I?"}, {"data": {"approval": approval}}]),
    )
}

fn completed() -> Value {
    status("TASK_STATE_COMPLETED", &json!([]))
}

#[tokio::test]
async fn d4_an_answer_is_streamed_and_what_happens_stands_beside_it() {
    let event = json!([{"data": {"event": {"type": "tool", "server": "text-tools", "name": "count\u{1b}[1m", "phase": "start"}}}]);
    let stream = vec![
        task("TASK_STATE_SUBMITTED"),
        status("TASK_STATE_WORKING", &event),
        piece("Two ", false),
        piece("words.", true),
        completed(),
    ];
    let agent =
        Agent::new(Some(card("1.0", true)), vec![("SendStreamingMessage", Answer::Stream(stream))]);
    let (peer, running) = (agent.peer().await, Running::default());
    let (mut talk, out, err) = talk(&peer, &running, &[], false);
    let turn = talk.turn(Some("how many?".to_owned()), Ids::default()).await.expect("an answer");
    assert_eq!(out.text(), "Two words.\n");
    assert_eq!(err.text(), "→ tool text-tools/count [1m\n");
    let json = turn.json();
    assert_eq!(
        (&json["answer"], &json["taskId"], &json["contextId"], &json["state"]),
        (&json!("Two words."), &json!("t1"), &json!("c1"), &json!("completed"))
    );
    assert_eq!(agent.messages(), [json!({"role": "ROLE_USER", "parts": [{"text": "how many?"}]})]);
    assert_eq!(agent.lock().versions, ["1.0"]);
    assert!(outcome(&turn, "").is_ok() && running.borrow().is_none());
}

#[tokio::test]
async fn d4_an_agent_of_0_3_is_asked_in_its_version_and_at_once_the_next_time() {
    let old = |text: &str| {
        vec![
            json!({"kind": "task", "id": "t1", "contextId": "c1", "status": {"state": "submitted"}}),
            json!({"kind": "artifact-update", "taskId": "t1", "contextId": "c1",
                "artifact": {"artifactId": "a", "parts": [{"kind": "text", "text": text}]}}),
            json!({"kind": "status-update", "taskId": "t1", "contextId": "c1", "final": true, "status": {"state": "completed"}}),
        ]
    };
    // Without a card, the newest version is tried first.
    for (card, tried) in [
        (None, vec!["1.0", "", ""]),
        (Some(json!({"url": "http://h/", "capabilities": {"streaming": true}})), vec!["", ""]),
    ] {
        let next = vec![
            ("message/stream", Answer::Stream(old("one"))),
            ("message/stream", Answer::Stream(old("two"))),
        ];
        let agent = Agent::new(card, next);
        let (peer, running) = (agent.peer().await, Running::default());
        let (mut talk, out, _) =
            talk(&peer, &running, &["first", "", "second", "/quit", "third"], false);
        talk.converse(Ids::default()).await.expect("an end");
        assert_eq!(out.text(), "one\ntwo\n");
        assert_eq!(agent.lock().versions, tried);
        let part = |text: &str| json!([{"kind": "text", "text": text}]);
        assert_eq!(
            agent.messages(),
            [
                json!({"kind": "message", "role": "user", "parts": part("first")}),
                json!({"kind": "message", "role": "user", "parts": part("second"), "contextId": "c1"}),
            ]
        );
    }
}

#[tokio::test]
async fn d4_an_agent_that_does_not_stream_is_asked_for_all_at_once() {
    let done = json!({"task": {"id": "t1", "contextId": "c1", "status": {"state": "TASK_STATE_COMPLETED"},
        "artifacts": [{"artifactId": "a", "parts": [{"text": "all of it"}]}]}});
    for (streaming, next) in [
        (false, vec![("SendMessage", Answer::One(done.clone()))]),
        (
            true,
            vec![
                ("SendStreamingMessage", Answer::Refusal(-32004)),
                ("SendMessage", Answer::One(done.clone())),
            ],
        ),
    ] {
        let agent = Agent::new(Some(card("1.0", streaming)), next);
        let (peer, running) = (agent.peer().await, Running::default());
        let (mut talk, out, _) = talk(&peer, &running, &[], false);
        talk.turn(Some("x".to_owned()), Ids::default()).await.expect("an answer");
        assert_eq!(out.text(), "all of it\n");
    }
}

#[tokio::test]
async fn d4_a_stream_that_ends_early_is_followed_by_looks_at_the_task() {
    let done = json!({"id": "t1", "contextId": "c1", "status": {"state": "TASK_STATE_COMPLETED"},
        "artifacts": [{"artifactId": "answer", "parts": [{"text": "Two words."}]}]});
    let stream = vec![task("TASK_STATE_WORKING"), piece("Two ", false)];
    let next =
        vec![("SendStreamingMessage", Answer::Stream(stream)), ("GetTask", Answer::One(done))];
    let agent = Agent::new(Some(card("1.0", true)), next);
    let (peer, running) = (agent.peer().await, Running::default());
    let (mut talk, out, _) = talk(&peer, &running, &[], false);
    let turn = talk.turn(Some("x".to_owned()), Ids::default()).await.expect("an answer");
    // Nothing is shown twice.
    assert_eq!((out.text().as_str(), turn.answer().as_str()), ("Two words.\n", "Two words."));
}

#[tokio::test]
async fn d5_a_tool_is_called_only_after_a_yes_to_what_is_shown() {
    let again = |then: Vec<Value>| {
        // The first event still has the state in which the task waited.
        [vec![task("TASK_STATE_INPUT_REQUIRED"), status("TASK_STATE_WORKING", &json!([]))], then]
            .concat()
    };
    let next = vec![
        (
            "SendStreamingMessage",
            Answer::Stream(vec![task("TASK_STATE_SUBMITTED"), asks("one", "write")]),
        ),
        ("SendStreamingMessage", Answer::Stream(again(vec![asks("two", "delete")]))),
        ("SendStreamingMessage", Answer::Stream(again(vec![piece("done", false), completed()]))),
    ];
    let agent = Agent::new(Some(card("1.0", true)), next);
    let (peer, running) = (agent.peer().await, Running::default());
    // Each prompt has its answer; what was typed ahead is none.
    let typed = ["y", PROMPT, "y", "y", PROMPT, ""];
    let (mut talk, out, err) = talk(&peer, &running, &typed, true);
    let turn = talk.turn(Some("x".to_owned()), Ids::default()).await.expect("an answer");
    assert_eq!((turn.state, out.text().as_str()), (State::Completed, "done\n"));
    let shown = "The agent asks to call a tool:\n    server: text-tools\n    tool: write\n    arguments: {\n      \"path\": \"/\\u001b[2J\\nx\"\n    }\napprove? [y/N] ";
    assert_eq!(err.text(), [shown, &shown.replace("write", "delete")].concat());
    let answer = |token: &str, decision: &str| {
        json!({"role": "ROLE_USER", "taskId": "t1", "contextId": "c1",
            "parts": [{"data": {"approval": {"token": token, "decision": decision}}}]})
    };
    assert_eq!(agent.messages()[1..], [answer("one", "approve"), answer("two", "deny")]);
}

#[tokio::test]
async fn d5_without_a_terminal_the_task_waits_and_can_be_decided_later() {
    let waits = || {
        vec![(
            "SendStreamingMessage",
            Answer::Stream(vec![task("TASK_STATE_SUBMITTED"), asks("one", "write")]),
        )]
    };
    let agent = Agent::new(Some(card("1.0", true)), waits());
    let (peer, running) = (agent.peer().await, Running::default());
    let (mut talk, _, err) = talk(&peer, &running, &["y"], false);
    let turn = talk.turn(Some("x".to_owned()), Ids::default()).await.expect("a turn");
    let failure = outcome(&turn, &talk.options.command).expect_err("it waits");
    assert_eq!((failure.code, err.text().as_str()), (WAITS, ""));
    assert_eq!(
        failure.hint.as_deref(),
        Some(
            "decide on a terminal: convoke ask -n team agent/a --task t1; or refuse it: convoke ask -n team agent/a --task t1 --deny"
        )
    );
    assert_eq!(agent.messages().len(), 1);

    // Another command looks at the task, and refuses.
    let found = asks("one", "write")["statusUpdate"]["status"].clone();
    let found = json!({"id": "t1", "contextId": "c1", "status": found});
    let denied =
        Answer::Stream(vec![task("TASK_STATE_WORKING"), piece("then not", false), completed()]);
    agent.lock().next =
        vec![("GetTask", Answer::One(found)), ("SendStreamingMessage", denied)].into();
    talk.options.deny = true;
    let ids = Ids { context: None, task: Some("t1".into()) };
    let turn = talk.turn(None, ids).await.expect("an answer");
    assert_eq!((turn.answer().as_str(), turn.state), ("then not", State::Completed));
    assert_eq!(err.text(), "✗ tool text-tools/write is denied\n");
    let sent = agent.lock().asked.last().expect("a request").clone();
    assert_eq!(
        sent["params"]["message"]["parts"][0]["data"]["approval"],
        json!({"token": "one", "decision": "deny"})
    );
}

#[test]
fn d5_a_printed_command_runs_nothing_that_the_agent_chose() {
    let mut turn = Turn::default();
    let mut asked = asks("one", "write");
    asked["statusUpdate"]["taskId"] = json!("x'\n; touch y #");
    turn.take(update(&asked).expect("an update")).expect("small");
    let failure = outcome(&turn, "convoke ask -n team agent/a").expect_err("it waits");
    assert_eq!(
        failure.hint.as_deref(),
        Some(
            r"decide on a terminal: convoke ask -n team agent/a --task 'x'\'' ; touch y #'; or refuse it: convoke ask -n team agent/a --task 'x'\'' ; touch y #' --deny"
        )
    );
    // What a shell makes of it.
    for text in ["", "t1", "a b", "x; exit 3", "$(exit 3)", "`exit 3`", "it's", "a\\b", "~", "é\n#"]
    {
        let script = format!("printf %s {}", shell_word(text));
        let shell = std::process::Command::new("sh").args(["-c", &script]).output();
        let shell = shell.expect("a shell");
        assert_eq!((shell.status.success(), shell.stdout.as_slice()), (true, text.as_bytes()));
    }
}

#[tokio::test]
async fn d4_a_question_of_the_agent_is_answered_in_its_task() {
    let ask = status("TASK_STATE_INPUT_REQUIRED", &json!([{"text": "Which one?"}]));
    let next = vec![
        ("SendStreamingMessage", Answer::Stream(vec![task("TASK_STATE_SUBMITTED"), ask])),
        (
            "SendStreamingMessage",
            Answer::Stream(vec![task("TASK_STATE_WORKING"), piece("ok", false), completed()]),
        ),
    ];
    let agent = Agent::new(Some(card("1.0", true)), next);
    let (peer, running) = (agent.peer().await, Running::default());
    let (mut talk, out, err) = talk(&peer, &running, &["delete it", "the second"], true);
    talk.converse(Ids::default()).await.expect("an end");
    assert_eq!((out.text().as_str(), err.text().as_str()), ("ok\n", "> Which one?\n> > "));
    assert_eq!(agent.messages()[1]["taskId"], "t1");
}

#[tokio::test]
async fn d4_a_question_that_takes_too_long_is_cancelled() {
    let next = vec![
        ("SendStreamingMessage", Answer::Endless(vec![task("TASK_STATE_WORKING")])),
        ("CancelTask", Answer::Refusal(-32002)),
    ];
    let agent = Agent::new(Some(card("1.0", true)), next);
    let (peer, running) = (agent.peer().await, Running::default());
    let (mut talk, _, _) = talk(&peer, &running, &[], false);
    talk.options.timeout = Duration::from_secs(1);
    let failure = talk.turn(Some("x".to_owned()), Ids::default()).await.expect_err("too late");
    assert_eq!(
        (failure.code, failure.message.as_str()),
        (CLUSTER, "the agent did not answer within 1 s")
    );
    assert_eq!(agent.lock().asked[1]["params"], json!({"id": "t1"}));
}

#[tokio::test]
async fn d4_what_goes_wrong_is_told_in_words() {
    let failed = status("TASK_STATE_FAILED", &json!([{"text": "the model is not there"}]));
    let next = vec![
        ("SendStreamingMessage", Answer::Stream(vec![task("TASK_STATE_WORKING"), failed])),
        ("SendStreamingMessage", Answer::Refusal(-32001)),
    ];
    let agent = Agent::new(Some(card("1.0", true)), next);
    let (peer, running) = (agent.peer().await, Running::default());
    let (mut talk, _, _) = talk(&peer, &running, &[], false);
    let turn = talk.turn(Some("x".to_owned()), Ids::default()).await.expect("a turn");
    let failure = outcome(&turn, "").expect_err("it failed");
    assert_eq!(
        (failure.code, failure.message.as_str()),
        (FOUND, "the agent failed: the model is not there")
    );
    assert_eq!(turn.json()["message"], "the model is not there");
    let failure = talk.turn(Some("x".to_owned()), Ids::default()).await.expect_err("refused");
    assert_eq!(
        (failure.code, failure.message.as_str()),
        (CLUSTER, "the agent does not know the task: no (-32001)")
    );
}

#[path = "talk_by_chat.rs"]
mod by_chat;
