use std::convert::Infallible;
use std::sync::Mutex;

use axum::body::Body;
use bytes::Bytes;
use http::{Request, Response, StatusCode};
use kube::Client;
use kube::core::DeserializeGuard;
use tower::service_fn;

use super::super::live::Managed;
use super::*;
use crate::api::Agent;

/// What the server does with a list, and with a watch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mood {
    Good,
    Broken,
    Mute,
    /// A watch that begins, and ends with an error some seconds later.
    Brittle,
}

type Moods = Arc<Mutex<(Mood, Mood)>>;

fn server(moods: &Moods) -> Client {
    let moods = moods.clone();
    let service = service_fn(move |request: Request<kube::client::Body>| {
        let (list, watch) = *moods.lock().expect("lock");
        let watches = request.uri().query().is_some_and(|query| query.contains("watch=true"));
        async move {
            let text = |code: u16, text: &'static str| {
                let mut response = Response::new(Body::from(text.as_bytes().to_vec()));
                *response.status_mut() = StatusCode::from_u16(code).expect("a code");
                response
            };
            let error =
                r#"{"kind":"Status","status":"Failure","code":500,"message":"cannot decode"}"#;
            Ok::<_, Infallible>(match if watches { watch } else { list } {
                Mood::Broken => text(500, error),
                Mood::Mute => std::future::pending().await,
                _ if !watches => text(200, r#"{"metadata":{"resourceVersion":"7"},"items":[]}"#),
                mood => {
                    let end = async move {
                        if mood == Mood::Good {
                            std::future::pending::<()>().await;
                        }
                        tokio::time::sleep(Duration::from_secs(4)).await;
                        let line = format!("{{\"type\":\"ERROR\",\"object\":{error}}}\n");
                        Ok::<_, Infallible>(Bytes::from(line))
                    };
                    let stream = futures::stream::once(end);
                    Response::new(Body::from_stream(stream))
                }
            })
        }
    });
    Client::new(service, "default")
}

#[tokio::test(start_paused = true)]
async fn g18_what_fails_in_any_way_for_a_minute_is_silent_and_a_quiet_watch_is_not() {
    use Mood::{Brittle, Broken, Good, Mute};
    let moods = Moods::new(Mutex::new((Good, Good)));
    let store = Store::<Managed<Agent>>::new("Agent");
    let api = Api::<DeserializeGuard<Agent>>::all(server(&moods));
    let watching = tokio::spawn(run::<Managed<Agent>>(api, store.clone(), None));
    let minutes = |n: u64| tokio::time::sleep(Duration::from_secs(60 * n));
    store.wait_ready().await;
    // A watch of a quiet kind: it ends every few minutes, and begins again.
    minutes(60).await;
    assert_eq!(store.health.silence(), None);
    for bad in [(Broken, Broken), (Good, Mute), (Mute, Mute), (Good, Brittle), (Broken, Brittle)] {
        *moods.lock().expect("lock") = bad;
        minutes(10).await;
        let silence = store.health.silence().unwrap_or_else(|| panic!("{bad:?}"));
        let why = if bad.1 == Mute { "no answer" } else { "cannot decode" };
        assert!(silence.contains(why), "{bad:?}: {silence}");
        *moods.lock().expect("lock") = (Good, Good);
        minutes(2).await;
        assert_eq!(store.health.silence(), None, "after {bad:?}");
    }
    watching.abort();
}

/// A server at a version, whose watches end after so many seconds; it counts lists and reads of the version.
#[derive(Debug, Clone, Copy)]
struct Versioned {
    version: u64,
    seconds: u64,
    lists: usize,
    version_reads: usize,
}

#[tokio::test(start_paused = true)]
async fn g14_a_server_that_has_gone_back_is_listed_anew_and_one_that_ends_watches_in_time_is_not_asked()
 {
    let start = Versioned { version: 700, seconds: 200, lists: 0, version_reads: 0 };
    let server = Arc::new(Mutex::new(start));
    let shared = server.clone();
    let service = service_fn(move |request: Request<kube::client::Body>| {
        let query = request.uri().query().unwrap_or_default().to_owned();
        let shared = shared.clone();
        async move {
            if query.contains("watch=true") {
                let seconds = shared.lock().expect("lock").seconds;
                let end = async move {
                    tokio::time::sleep(Duration::from_secs(seconds)).await;
                    Ok::<_, Infallible>(Bytes::new())
                };
                let body = Body::from_stream(futures::stream::once(end));
                return Ok::<_, Infallible>(Response::new(body));
            }
            let mut server = shared.lock().expect("lock");
            if query.contains("limit=1&") || query.ends_with("limit=1") {
                server.version_reads += 1;
            } else {
                server.lists += 1;
            }
            let list =
                format!(r#"{{"metadata":{{"resourceVersion":"{}"}},"items":[]}}"#, server.version);
            Ok(Response::new(Body::from(list)))
        }
    });
    let store = Store::<Managed<Agent>>::new("Agent");
    let api = Api::<DeserializeGuard<Agent>>::all(Client::new(service, "default"));
    let watching = tokio::spawn(run::<Managed<Agent>>(api, store.clone(), None));
    let hour = || tokio::time::sleep(Duration::from_secs(3600));
    let seen = || {
        let Versioned { lists, version_reads, .. } = *server.lock().expect("lock");
        (lists, version_reads)
    };
    hour().await;
    assert_eq!(seen(), (1, 0), "watches that end in time cost nothing");
    server.lock().expect("lock").seconds = 30;
    hour().await;
    let (lists, version_reads) = seen();
    assert!(lists == 1 && (100..130).contains(&version_reads), "{:?}", seen());
    server.lock().expect("lock").version = 300;
    hour().await;
    assert_eq!(seen().0, 2, "once");
    server.lock().expect("lock").version = 900;
    hour().await;
    assert_eq!(seen().0, 2);
    server.lock().expect("lock").seconds = 200;
    store.list_again();
    assert_eq!(seen().0, 2, "not at once");
    hour().await;
    assert_eq!(seen().0, 3, "when a watch ends, and once");
    watching.abort();
}

#[test]
fn pauses_double_to_the_cap_and_start_again_after_a_good_event_or_a_quiet_time() {
    let near = |pause: Duration, seconds: f64| {
        let ratio = pause.as_secs_f64() / seconds;
        assert!((0.89..1.11).contains(&ratio), "{pause:?} is not about {seconds} s");
    };
    let (mut pauses, start) = (Pauses::default(), Instant::now());
    for seconds in [0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0] {
        near(pauses.next(start, MAX_PAUSE), seconds);
    }
    near(pauses.next(start, Duration::from_secs(60)), 25.6);
    pauses.reset();
    near(pauses.next(start, MAX_PAUSE), 0.2);
    near(pauses.next(start, MAX_PAUSE), 0.4);
    near(pauses.next(start + Duration::from_secs(30), MAX_PAUSE), 0.2);
}
