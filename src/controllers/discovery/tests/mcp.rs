//! Tool servers of both eras, and some that are none.

use serde_json::{Value, json};

use crate::controllers::discovery::server::{self, Reply, Seen, asker};

use super::*;

fn tool(name: &str) -> Value {
    json!({"name": name, "description": "Does it.", "inputSchema": {"type": "object"}})
}

fn answer(seen: &Seen, result: &Value) -> Value {
    json!({"jsonrpc": "2.0", "id": seen.body["id"], "result": result})
}

/// A server with sessions, which answers with streams of events, in two pages.
fn with_sessions(seen: &Seen) -> Reply {
    let stream = |result: Value| {
        let ping = json!({"jsonrpc": "2.0", "method": "notifications/message", "params": {}});
        let text = format!("data: {ping}\n\nevent: message\ndata: {}\n\n", answer(seen, &result));
        let headers = vec![
            ("content-type", "text/event-stream".to_owned()),
            ("mcp-session-id", "s1".to_owned()),
        ];
        (200, headers, text)
    };
    let is_in_session = seen.header("mcp-session-id") == "s1"
        && seen.header("mcp-protocol-version") == "2025-06-18";
    match seen.what().as_str() {
        "initialize" => stream(json!({"protocolVersion": seen.body["params"]["protocolVersion"],
            "capabilities": {}, "serverInfo": {"name": "one", "version": "1.30.0"}})),
        "notifications/initialized" if is_in_session => (202, Vec::new(), String::new()),
        "DELETE" if is_in_session => (200, Vec::new(), String::new()),
        "tools/list" if is_in_session => match seen.body["params"]["cursor"].as_str() {
            None => stream(json!({"tools": [tool("b")], "nextCursor": "2"})),
            Some(_) => stream(json!({"tools": [tool("a")]})),
        },
        _ => {
            let error = json!({"code": -32600, "message": "Bad Request: Missing session ID"});
            server::json(400, &json!({"jsonrpc": "2.0", "id": "server-error", "error": error}))
        }
    }
}

/// A server of the new era. `repeats`: whether it says in each answer who it is.
fn stateless(seen: &Seen, repeats: bool) -> Reply {
    let meta = &seen.body["params"]["_meta"];
    let is_whole = seen.header("mcp-protocol-version") == "2026-07-28"
        && meta["io.modelcontextprotocol/protocolVersion"] == "2026-07-28"
        && seen.header("mcp-method") == seen.what();
    let who = json!({"io.modelcontextprotocol/serverInfo": {"name": "two", "version": "9.9"}});
    match seen.what().as_str() {
        "tools/list" if is_whole => {
            let mut result = json!({"tools": [tool("a"), tool("b")], "resultType": "complete"});
            if repeats {
                result["_meta"] = who;
            }
            server::json(200, &answer(seen, &result))
        }
        "server/discover" if is_whole => {
            let result = json!({"supportedVersions": ["2026-07-28"], "_meta": who});
            server::json(200, &answer(seen, &result))
        }
        _ => server::json(
            400,
            &json!({"jsonrpc": "2.0", "id": null, "error": {"code": -32600, "message": "no"}}),
        ),
    }
}

async fn asked(server: &server::Server, first: Era) -> (ToolsRead, Era) {
    list(&asker(), &Destination::External(&server.url), first).await
}

fn names(read: &ToolsRead) -> Vec<&str> {
    let listed = read.as_ref().expect("tools");
    listed.tools.iter().map(|tool| tool.name.as_str()).collect()
}

#[tokio::test]
async fn t5_a_server_with_sessions_is_asked_in_one_that_is_ended() {
    let server = server::Server::new(with_sessions).await;
    let (read, era) = asked(&server, Era::Stateless).await;
    assert_eq!((names(&read), era), (vec!["a", "b"], Era::Session));
    let info = &read.as_ref().expect("tools").server;
    assert_eq!((info.name.as_deref(), info.version.as_deref()), (Some("one"), Some("1.30.0")));
    assert_eq!(info.protocol_version, "2025-06-18");
    let session = ["initialize", "notifications/initialized", "tools/list", "tools/list", "DELETE"];
    assert_eq!(server.asked()[1..], session);
    assert!(server.seen().iter().all(|seen| seen.header("authorization").is_empty()));

    // The next time it is asked like that at once.
    let (read, era) = asked(&server, era).await;
    assert_eq!((names(&read).len(), era), (2, Era::Session));
    assert_eq!(server.asked()[6..], session);
}

#[tokio::test]
async fn t5_a_server_of_the_new_era_is_asked_once() {
    let server = server::Server::new(|seen| stateless(seen, true)).await;
    let (read, era) = asked(&server, Era::Stateless).await;
    assert_eq!((names(&read), era), (vec!["a", "b"], Era::Stateless));
    assert_eq!(server.asked(), ["tools/list"]);
    let info = &read.as_ref().expect("tools").server;
    assert_eq!((info.name.as_deref(), info.protocol_version.as_str()), (Some("two"), "2026-07-28"));

    // A server that was of the old era before.
    let (read, era) = asked(&server, Era::Session).await;
    assert_eq!((names(&read).len(), era), (2, Era::Stateless));
}

#[tokio::test]
async fn t5_a_server_that_does_not_repeat_who_it_is_is_asked_for_it() {
    let server = server::Server::new(|seen| stateless(seen, false)).await;
    let (read, _) = asked(&server, Era::Stateless).await;
    assert_eq!(server.asked(), ["tools/list", "server/discover"]);
    assert_eq!(read.expect("tools").server.name.as_deref(), Some("two"));
}

#[tokio::test]
async fn t5_both_eras_give_the_same_hashes() {
    let old = server::Server::new(with_sessions).await;
    let new = server::Server::new(|seen| stateless(seen, true)).await;
    let (old, _) = asked(&old, Era::Session).await;
    let (new, _) = asked(&new, Era::Stateless).await;
    assert_eq!(old.expect("tools").hash, new.expect("tools").hash);
}

#[tokio::test]
async fn t5_a_web_server_is_not_mcp() {
    let server = server::Server::new(|_| (404, Vec::new(), "<html>".into())).await;
    let (read, _) = asked(&server, Era::Stateless).await;
    let failure = read.expect_err("no tools");
    assert!(matches!(failure, Failure::Invalid(_)), "{failure}");
    assert!(failure.to_string().contains("HTTP 404"), "{failure}");
    assert_eq!(server.asked(), ["tools/list", "initialize"]);
}

#[tokio::test]
async fn t5_a_server_that_is_away_is_unreachable_and_is_asked_once() {
    for status in [429, 502, 503, 504] {
        let server = server::Server::new(move |_| (status, Vec::new(), String::new())).await;
        let (read, era) = asked(&server, Era::Session).await;
        assert_eq!((read, era), (Err(Failure::Refused(status)), Era::Session));
        assert_eq!(server.asked(), ["initialize"]);
    }
    // This may mean the other era; if it does not, nothing is known of what it is.
    let server = server::Server::new(|_| (500, Vec::new(), String::new())).await;
    let (read, era) = asked(&server, Era::Stateless).await;
    assert_eq!((read, era), (Err(Failure::Refused(500)), Era::Stateless));
    assert_eq!(server.asked(), ["tools/list", "initialize"]);
    let old = server::Server::new(|seen| match with_sessions(seen) {
        (400, headers, text) => (500, headers, text),
        good => good,
    })
    .await;
    let (read, era) = asked(&old, Era::Stateless).await;
    assert_eq!((names(&read), era), (vec!["a", "b"], Era::Session));
}

#[tokio::test]
async fn t6_a_server_that_wants_credentials_is_not_asked_twice() {
    let server = server::Server::new(|_| (401, Vec::new(), String::new())).await;
    let (read, _) = asked(&server, Era::Stateless).await;
    assert_eq!(read, Err(Failure::Unauthorized(401)));
    assert_eq!(server.seen().len(), 1);
}

#[tokio::test]
async fn t5_a_list_without_end_is_given_up() {
    let server = server::Server::new(|seen| {
        server::json(200, &answer(seen, &json!({"tools": [], "nextCursor": "again"})))
    })
    .await;
    let (read, _) = asked(&server, Era::Stateless).await;
    assert!(read.is_err());
    // Both eras: the second one is refused at `initialize`, whose answer names no version.
    assert_eq!(server.seen().len(), 65);
}

#[tokio::test]
async fn t5_a_list_has_a_budget_of_bytes() {
    let server = server::Server::new(|seen| {
        let large = json!({"name": "a", "description": "x".repeat(2 * 1024 * 1024)});
        server::json(200, &answer(seen, &json!({"tools": [large]})))
    })
    .await;
    let (read, _) = asked(&server, Era::Stateless).await;
    assert_eq!(read, Err(Failure::TooLarge(MAX_ANSWER_BYTES)));
}
