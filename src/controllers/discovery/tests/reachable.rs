//! What endpoints of models answer.

use jiff::Timestamp;
use serde_json::json;

use crate::controllers::discovery::server::{self, Server, asker};

use super::*;

/// The condition that is told: status and reason.
fn told(reach: &Reach) -> (String, String) {
    let mut status = ModelAPIStatus::default();
    tell(&mut status, reach, Observed { generation: 1, now: Timestamp::UNIX_EPOCH });
    let condition = status.conditions.remove(0);
    assert_eq!(condition.type_, REACHABLE);
    (condition.status, condition.reason)
}

fn pair(status: &str, reason: &str) -> (String, String) {
    (status.into(), reason.into())
}

#[tokio::test]
async fn m3_an_external_endpoint_is_reachable_whatever_it_says_without_a_key() {
    for (status, expected) in [
        (200, pair("True", "Answers")),
        (401, pair("True", "Answers")),
        (404, pair("True", "Answers")),
        (307, pair("True", "Answers")),
        (502, pair("False", "ServerError")),
    ] {
        let server = Server::new(move |_| (status, Vec::new(), String::new())).await;
        let url = server.url.join("/openai/v1").expect("a URL");
        let reach = external(&asker(), &Destination::External(&url), &url).await;
        assert_eq!(told(&reach), expected, "{status}");
        let seen = &server.seen()[0];
        assert_eq!(seen.path, "/openai/v1/models");
        assert_eq!(seen.header("authorization"), "");
    }
}

#[test]
fn m3_the_list_of_models_is_asked_for_once_below_v1() {
    for (url, path) in [
        ("https://m.example", "/v1/models"),
        ("https://m.example/", "/v1/models"),
        ("https://m.example/v1", "/v1/models"),
        ("https://m.example/v1/", "/v1/models"),
        ("https://m.example/openai", "/openai/v1/models"),
    ] {
        assert_eq!(models_path(&Url::parse(url).expect(url)), path, "{url}");
    }
}

#[tokio::test]
async fn m1_m3_a_model_proxy_says_whether_its_provider_can_be_used() {
    for (reason, status, expected) in [
        ("Reachable", json!(404), pair("True", "Answers")),
        ("Unreachable", json!(null), pair("False", "Unreachable")),
        ("KeyRefused", json!(401), pair("False", "KeyRefused")),
        ("ProviderError", json!(503), pair("False", "ServerError")),
        ("QuestionsFail", json!(500), pair("False", "QuestionsFail")),
        ("ProviderUnknown", json!(null), pair("Unknown", "ProviderUnknown")),
        ("ProviderUnknown", json!(400), pair("Unknown", "ProviderUnknown")),
    ] {
        let said = json!({"reachable": null, "reason": reason, "status": status});
        let server = Server::new(move |_| server::json(200, &said)).await;
        let reach = proxy(&asker(), &Destination::External(&server.url), 9000).await;
        assert_eq!(told(&reach), expected, "{reason}");
        let again = !["Reachable", "ProviderUnknown"].contains(&reason);
        assert_eq!(reach.has_failed(), again, "{reason}");
        let paths: Vec<_> = server.seen().into_iter().map(|seen| seen.path).collect();
        assert_eq!(paths, ["/provider"]);
    }
}

#[tokio::test]
async fn m1_litellm_alone_is_asked_for_its_readiness_and_for_no_model() {
    for other in [(404, "not found"), (200, "<html>"), (200, r#"{"reason": "KeyRefused"}"#)] {
        let server = Server::new(move |seen| match seen.path.as_str() {
            "/health/readiness" => server::json(200, &json!({"status": "healthy"})),
            _ => (other.0, Vec::new(), other.1.to_owned()),
        })
        .await;
        let reach = proxy(&asker(), &Destination::External(&server.url), 9000).await;
        assert_eq!(told(&reach), pair("True", "Answers"));
        assert_eq!(server.seen().len(), 2);
    }
    // Nothing listens at the port of the page.
    let server = Server::new(|_| server::json(200, &json!({"status": "healthy"}))).await;
    let closed = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = closed.local_addr().expect("an address");
    drop(closed);
    let page = Url::parse(&format!("http://{address}/")).expect("a URL");
    let (page, to) = (Destination::External(&page), Destination::External(&server.url));
    assert_eq!(told(&by_page(&asker(), &page, &to).await), pair("True", "Answers"));
    let broken = Server::new(|_| (503, Vec::new(), String::new())).await;
    let reach = proxy(&asker(), &Destination::External(&broken.url), 9000).await;
    assert_eq!(told(&reach), pair("False", "ServerError"));
}

#[tokio::test]
async fn m1_m3_a_page_that_gives_no_answer_says_nothing_good() {
    // It takes connections, and ends them at once, as when too many are open.
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let port = listener.local_addr().expect("an address").port();
    tokio::spawn(async move { while listener.accept().await.is_ok() {} });
    let url = Url::parse(&format!("http://127.0.0.1:{port}/")).expect("a URL");
    let reach = proxy(&asker(), &Destination::External(&url), 9000).await;
    assert_eq!(told(&reach), pair("False", "Unreachable"));
    assert!(matches!(reach, Reach::Failed(Failure::Unreachable(_))), "{reach:?}");
    let broken = Server::new(|seen| match seen.path.as_str() {
        "/health/readiness" => server::json(200, &json!({"status": "healthy"})),
        _ => (500, Vec::new(), String::new()),
    })
    .await;
    let reach = proxy(&asker(), &Destination::External(&broken.url), 9000).await;
    assert_eq!((told(&reach), reach.has_failed()), (pair("False", "ServerError"), true));
}

#[tokio::test(start_paused = true)]
async fn m3_a_model_proxy_that_does_not_say_it_in_time_is_not_reachable() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let port = listener.local_addr().expect("an address").port();
    let url = Url::parse(&format!("http://127.0.0.1:{port}/")).expect("a URL");
    let reach = proxy(&asker(), &Destination::External(&url), 9000).await;
    assert_eq!(told(&reach), pair("False", "Unreachable"));
    assert!(matches!(reach, Reach::Failed(Failure::TooSlow(10))), "{reach:?}");
}

#[tokio::test]
async fn m2_a_hosted_model_is_in_the_list() {
    let server = Server::new(|_| {
        server::json(
            200,
            &json!({"models": [{"name": "smollm2:135m"}, {"name": "llama3:latest"}, {"name": 7}]}),
        )
    })
    .await;
    let of = async |model: &str| {
        told(&hosted(&asker(), &Destination::External(&server.url), model).await)
    };
    assert_eq!(of("smollm2:135m").await, pair("True", "Answers"));
    assert_eq!(of("llama3").await, pair("True", "Answers"));
    assert_eq!(of("smollm2").await, pair("False", "ModelMissing"));
    assert_eq!(server.seen()[0].path, "/api/tags");
    let other = Server::new(|_| (200, Vec::new(), "Ollama is running".into())).await;
    let reach = hosted(&asker(), &Destination::External(&other.url), "m").await;
    assert_eq!(told(&reach), pair("False", "Invalid"));
}

#[test]
fn m3_an_address_that_the_operator_may_not_dial_is_unknown() {
    let refused = Reach::Failed(Failure::NotAllowed("no".into()));
    assert_eq!(told(&refused), pair("Unknown", "NotAllowed"));
    for silent in [Failure::TooSlow(10), Failure::Unreachable("no route to host".into())] {
        assert_eq!(told(&Reach::Failed(silent)), pair("False", "Unreachable"));
    }
}
