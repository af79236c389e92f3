//! Lists and watches, with a server that gives prepared replies.

use std::sync::{Arc, Mutex};

use http::{Response, StatusCode};
use kube::client::Body;
use tower::service_fn;

use super::*;

/// A server that gives these replies one after the other, and records the requests.
fn server(replies: &[(u16, &str)]) -> (Source, Arc<Mutex<Vec<String>>>) {
    let asked = Arc::new(Mutex::new(Vec::new()));
    let mut replies: Vec<_> =
        replies.iter().rev().map(|(code, text)| (*code, (*text).to_owned())).collect();
    let kept = asked.clone();
    let service = service_fn(move |request: http::Request<Body>| {
        kept.lock().expect("lock").push(request.uri().to_string());
        let (code, text) = replies.pop().expect("not asked so often");
        let mut response = Response::new(Body::from(text.into_bytes()));
        *response.status_mut() = StatusCode::from_u16(code).expect("a code");
        async move { Ok::<_, std::convert::Infallible>(response) }
    });
    (Source::new(Client::new(service, "default"), "/api/v1/things", None, MAX_PAGE_OBJECTS), asked)
}

async fn list(replies: &[(u16, &str)]) -> (Result<String, CallError>, Vec<String>, Vec<String>) {
    let (source, asked) = server(replies);
    let mut seen = Vec::new();
    let listed = source.list(|text| {
        seen.push(text.to_owned());
        Ok(())
    });
    let version = listed.await;
    let asked = asked.lock().expect("lock").clone();
    (version, seen, asked)
}

#[tokio::test]
async fn pages_are_asked_for_until_the_last() {
    let first =
        r#"{"metadata":{"resourceVersion":"7","continue":"a b"},"items":[{"n":1},{"n":2}]}"#;
    let last = r#"{"metadata":{"resourceVersion":"7"},"items":[{"n":3}]}"#;
    let (version, seen, asked) = list(&[(200, first), (200, last)]).await;
    assert_eq!(version.expect("a version"), "7");
    assert_eq!(seen, [r#"{"n":1}"#, r#"{"n":2}"#, r#"{"n":3}"#]);
    assert_eq!(asked, ["/api/v1/things?&limit=200", "/api/v1/things?&limit=200&continue=a+b"]);
    let (version, seen, _) =
        list(&[(200, r#"{"metadata":{"resourceVersion":"7"},"items":null}"#)]).await;
    assert_eq!((version.expect("a version"), seen.len()), ("7".to_owned(), 0));
}

#[tokio::test]
async fn a_page_with_too_many_bytes_is_asked_for_again_with_fewer_objects() {
    let page = |token: &str, items: &str| {
        format!(
            r#"{{"metadata":{{"resourceVersion":"7","continue":"{token}"}},"items":[{items}]}}"#
        )
    };
    let object = |n: usize, bytes: usize| format!(r#"{{"n":{n},"t":"{}"}}"#, "x".repeat(bytes));
    let long = page("", &object(0, MAX_PAGE_BYTES));
    let (first, second) = (page("t", &object(1, 10)), page("u", &object(2, MAX_PAGE_BYTES / 2)));
    // More than a page may have, and less than an object may.
    let large = page("v", &object(3, 2 * MAX_PAGE_BYTES));
    let last = page("", &object(4, 10));
    let replies: Vec<_> = [&long, &first, &long, &second, &long, &long, &large, &last]
        .iter()
        .map(|text| (200, text.as_str()))
        .collect();
    let (version, seen, asked) = list(&replies).await;
    assert_eq!(version.expect("a version"), "7");
    let numbers: Vec<_> = seen.iter().map(|text| &text[..6]).collect();
    assert_eq!(numbers, [r#"{"n":1"#, r#"{"n":2"#, r#"{"n":3"#, r#"{"n":4"#]);
    let asked: Vec<_> =
        asked.iter().map(|url| url.trim_start_matches("/api/v1/things?&limit=")).collect();
    let expected = [
        "200",
        "50",
        "100&continue=t",
        "25&continue=t",
        "25&continue=u",
        "6&continue=u",
        "1&continue=u",
        "1&continue=v",
    ];
    assert_eq!(asked, expected);
}

#[tokio::test]
async fn half_a_list_is_an_error() {
    let first = r#"{"metadata":{"resourceVersion":"7","continue":"t"},"items":[{"n":1}]}"#;
    let gone =
        r#"{"kind":"Status","status":"Failure","code":410,"reason":"Expired","message":"too old"}"#;
    let (version, ..) = list(&[(200, first), (410, gone)]).await;
    assert!(version.expect_err("expired").is_expired());
    let no_list = r#"{"kind":"Agent","metadata":{"name":"a","resourceVersion":"7"}}"#;
    let no_version = r#"{"metadata":{},"items":[]}"#;
    for broken in ["", "{", no_version, no_list, r#"{"items":[]}"#, "[]", "<html>"] {
        let (version, ..) = list(&[(200, broken)]).await;
        assert!(version.is_err(), "{broken}");
    }
    let (version, ..) = list(&[(502, "bad gateway")]).await;
    assert!(version.expect_err("not a list").words().contains("bad gateway"));
}

#[test]
fn managed_fields_are_left_out_and_nothing_else() {
    let spec = r#""spec":{"managedFields":[1],"s":"\"managedFields\":[2]"}"#;
    let whole = format!(
        r#"{{"metadata":{{"annotations":{{"managedFields":"x"}},"managedFields":[{{"f:a":{{}}}}],"name":"ü"}},{spec}}}"#
    );
    let slim = |text: &str| {
        serde_json::from_str::<Fields<'_>>(text).expect("object").without_managed_fields()
    };
    let expected =
        format!(r#"{{"metadata":{{"annotations":{{"managedFields":"x"}},"name":"ü"}},{spec}}}"#);
    assert_eq!(slim(&whole), expected);
    for other in [r#"{"metadata":{"name":"a"},"k\"":[{}]}"#, r#"{"n":1,"metadata":7}"#, "{}"] {
        assert_eq!(slim(other), other);
    }
}

async fn watch(text: &str) -> (Result<(), CallError>, String, Vec<String>) {
    let (source, _) = server(&[(200, text)]);
    let (mut version, mut seen) = ("7".to_owned(), Vec::new());
    let watched = source.watch(&mut version, |event| {
        match event {
            Event::Begun => {}
            Event::Applied(text) => seen.push(text.to_owned()),
            Event::Deleted(object) => seen.push(format!("-{}", object.metadata.uid)),
        }
        Ok(())
    });
    let ended = watched.await;
    (ended, version, seen)
}

#[tokio::test]
async fn a_watch_moves_its_version_with_each_event_and_with_bookmarks() {
    let added = r#"{"type":"ADDED","object":{"metadata":{"name":"a","resourceVersion":"8"}}}"#;
    let bookmark = r#"{"object":{"metadata":{"resourceVersion":"12"}},"type":"BOOKMARK"}"#;
    let deleted = r#"{"type":"DELETED","object":{"metadata":{"uid":"u","resourceVersion":"9"}}}"#;
    let (ended, version, seen) = watch(&format!("{added}\n{deleted}\n")).await;
    assert!(ended.is_ok(), "the server may end it");
    assert_eq!(version, "9");
    assert_eq!(seen, [r#"{"metadata":{"name":"a","resourceVersion":"8"}}"#, "-u"]);
    let (_, version, seen) = watch(&format!("{bookmark}\n")).await;
    assert_eq!((version.as_str(), seen.len()), ("12", 0));
    // What is cut off has not happened, yet.
    let (ended, version, seen) = watch(&format!("{added}\n{}", &deleted[..40])).await;
    assert!(ended.is_ok());
    assert_eq!((version.as_str(), seen.len()), ("8", 1));
}

#[tokio::test]
async fn what_a_watch_cannot_go_on_from_is_said() {
    let gone = r#"{"type":"ERROR","object":{"kind":"Status","status":"Failure","code":410,"reason":"Expired","message":"too old"}}"#;
    let (ended, version, _) = watch(&format!("{gone}\n")).await;
    assert!(ended.expect_err("expired").is_expired());
    assert_eq!(version, "7");
    let nowhere = r#"{"type":"ADDED","object":{"metadata":{"name":"a"}}}"#;
    for broken in ["{}", "null", nowhere] {
        let (ended, version, seen) = watch(&format!("{broken}\n")).await;
        assert!(ended.is_err(), "{broken}");
        assert_eq!((version.as_str(), seen.len()), ("7", 0));
    }
}
