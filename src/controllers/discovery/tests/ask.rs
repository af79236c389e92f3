//! Budgets, deadlines and refusals, on servers that misbehave.

use crate::controllers::discovery::server::{self, Server, asker};
use crate::net::Policy;

use super::*;

fn get() -> Question<'static> {
    Question::get("/x", 1000)
}

#[tokio::test]
async fn a9_an_answer_has_a_budget_of_bytes() {
    let server = Server::new(|_| (200, Vec::new(), "x".repeat(1001))).await;
    let read = asker().ask(&Destination::External(&server.url), get()).await;
    assert_eq!(read.expect_err("too large"), Failure::TooLarge(1000));
    let question = Question { max_bytes: 1001, ..get() };
    let read = asker().ask(&Destination::External(&server.url), question).await;
    assert_eq!(read.expect("an answer").body.len(), 1001);
}

#[tokio::test]
async fn a9_no_redirect_is_followed() {
    let server = Server::new(|seen| match seen.path.as_str() {
        "/x" => (307, vec![("location", "/y".into())], String::new()),
        _ => (200, Vec::new(), "followed".into()),
    })
    .await;
    let read = asker().ask(&Destination::External(&server.url), get()).await;
    assert_eq!(read.expect("an answer").status, StatusCode::TEMPORARY_REDIRECT);
    assert_eq!(server.seen().len(), 1);
}

#[tokio::test]
async fn t6_an_address_that_the_policy_refuses_is_not_asked_and_the_failure_says_what_to_do() {
    let server = Server::new(|_| (200, Vec::new(), String::new())).await;
    let asker = Asker::new(Dialler::new(Policy::default()), Duration::ZERO);
    let refused = asker.ask(&Destination::External(&server.url), get()).await.expect_err("refused");
    assert!(matches!(refused, Failure::NotAllowed(_)), "{refused}");
    assert!(refused.to_string().contains("loopback"), "{refused}");
    assert!(server.seen().is_empty());
}

#[tokio::test]
async fn a9_nobody_there_is_unreachable() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("an address").port();
    drop(listener);
    let url = Url::parse(&format!("http://127.0.0.1:{port}/")).expect("a URL");
    let failure = asker().ask(&Destination::External(&url), get()).await.expect_err("nobody");
    assert!(matches!(failure, Failure::NotListening(_)), "{failure}");
}

#[tokio::test]
async fn t5_a_stream_is_read_up_to_the_event_that_was_waited_for() {
    let server = Server::new(|_| {
        let events = "data: ping\n\ndata: it\n\ndata: later\n\n";
        (200, vec![("content-type", "text/event-stream; charset=utf-8".into())], events.into())
    })
    .await;
    let to = Destination::External(&server.url);
    let read = asker().ask_for(&to, get(), |data| data == b"it").await.expect("an answer");
    assert_eq!(read.body, b"it");
    let read = asker().ask_for(&to, get(), |data| data == b"never").await.expect("an answer");
    assert!(read.body.is_empty(), "the stream has ended without it");
}

#[tokio::test(start_paused = true)]
async fn a9_requests_start_one_after_the_other() {
    let pace = Pace { next: Mutex::new(Instant::now()), pause: PACE };
    let start = Instant::now();
    futures::future::join_all((0..9).map(|_| pace.turn())).await;
    // A timer has whole milliseconds.
    let is_about = |time: Duration, pauses: u32| {
        (0..5).contains(&time.saturating_sub(pauses * PACE).as_millis()) && time >= pauses * PACE
    };
    assert!(is_about(start.elapsed(), 8), "four a second: {:?}", start.elapsed());
    tokio::time::sleep(Duration::from_secs(60)).await;
    let later = Instant::now();
    pace.turn().await;
    pace.turn().await;
    assert!(is_about(later.elapsed(), 1), "nothing is saved up: {:?}", later.elapsed());
}

#[tokio::test]
async fn t5_what_is_asked_arrives() {
    let server = Server::new(|_| server::json(200, &serde_json::Value::Null)).await;
    let question = Question {
        method: Method::POST,
        path: None,
        headers: vec![("mcp-method", HeaderValue::from_static("tools/list"))],
        body: Some("{\"a\":1}".into()),
        max_bytes: 100,
    };
    asker().ask(&Destination::External(&server.url), question).await.expect("an answer");
    let seen = &server.seen()[0];
    assert_eq!((seen.path.as_str(), seen.header("mcp-method")), ("/mcp", "tools/list"));
    assert_eq!(seen.body["a"], 1);
    assert!(seen.header("user-agent").starts_with("convoke/"));
}
