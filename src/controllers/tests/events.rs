use std::convert::Infallible;
use std::sync::Mutex;
use std::time::Duration;

use http::{Request, Response};
use jiff::Timestamp;
use kube::client::Body;

use super::*;
use crate::api::Agent;
use crate::cluster::conditions;

/// The status of an agent with this phase, and this condition `Ready` if there is any.
fn agent(phase: Phase, ready: Option<(&str, &str)>) -> AgentStatus {
    let mut status = AgentStatus { phase: Some(phase), ..AgentStatus::default() };
    if let Some((state, reason)) = ready {
        let (list, now) = (&mut status.conditions, Timestamp::UNIX_EPOCH);
        conditions::Observed { generation: 1, now }.set(list, "Ready", state, reason, "why");
    }
    status
}

#[test]
fn a8_a_failure_and_its_end_are_news_and_nothing_else_is() {
    let rolling = || agent(Phase::Pending, Some(("False", "RollingOut")));
    let available = || agent(Phase::Ready, Some(("True", "Available")));
    let conflict = || agent(Phase::Failed, Some(("False", "Conflict")));
    let waiting = || agent(Phase::Waiting, Some(("False", "WaitingForDependencies")));
    let refused = || agent(Phase::Pending, Some(("False", "ApplyFailed")));
    let none = || agent(Phase::Pending, None);
    let cases = vec![
        (none(), rolling(), None),
        (none(), available(), None),
        (none(), conflict(), Some(false)),
        (rolling(), available(), Some(true)),
        (waiting(), rolling(), None),
        (rolling(), waiting(), None),
        (available(), rolling(), None),
        (available(), conflict(), Some(false)),
        (conflict(), rolling(), None),
        (conflict(), available(), Some(true)),
        (available(), agent(Phase::Ready, Some(("True", "External"))), None),
        // It may heal by itself, and has not.
        (rolling(), refused(), Some(false)),
        (refused(), conflict(), Some(false)),
        (refused(), available(), Some(true)),
        // Somebody else's word for a failure.
        (rolling(), agent(Phase::Failed, Some(("False", "Stopped"))), Some(false)),
        (agent(Phase::Pending, Some(("False", "NotApplied"))), available(), None),
    ];
    for (old, new, expected) in cases {
        assert_eq!(news(Some(&old), &new).map(is_true), expected, "{old:?} → {new:?}");
        assert_eq!(news(Some(&new), &new), None, "{new:?}");
    }
    assert_eq!(news(None, &conflict()).map(is_true), Some(false));
    assert_eq!(news(None, &available()), None);
}

#[test]
fn a8_what_is_still_to_be_said_is_the_same_although_the_words_change() {
    let mut later = agent(Phase::Failed, Some(("False", "CrashLoopBackOff")));
    let old = later.clone();
    later.conditions[0].message = "0 of 2 replicas available".into();
    assert_eq!(news(Some(&old), &later), None);
}

#[tokio::test(start_paused = true)]
async fn a8_events_that_nobody_takes_hold_nobody_up_and_are_not_kept() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let sink = seen.clone();
    let service = tower::service_fn(move |request: Request<Body>| {
        let path = request.uri().path().to_owned();
        let hangs = path.contains("/hangs/");
        sink.lock().expect("lock").push(path);
        async move {
            if hangs {
                std::future::pending::<()>().await;
            }
            Ok::<_, Infallible>(Response::new(Body::empty()))
        }
    });
    let teller = Teller::new(Client::new(service, "default"));
    let (old, new) = (
        agent(Phase::Ready, Some(("True", "Available"))),
        agent(Phase::Failed, Some(("False", "Conflict"))),
    );
    let tell = |namespace: &str, number: usize| {
        let (key, uid) = (Key::new(namespace, format!("a{number}")), format!("u{number}"));
        teller.status::<Agent, _>(&key, &uid, Some(&old), &new);
    };
    let asked = |namespace: &str| {
        let path = format!("/apis/events.k8s.io/v1/namespaces/{namespace}/events");
        seen.lock().expect("lock").iter().filter(|seen| **seen == path).count()
    };
    (0..MAX_WAITING_EVENTS / 2).for_each(|number| tell("hangs", number));
    tell("calm", 0);
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!((asked("hangs"), asked("calm")), (EVENTS_IN_FLIGHT / 2, 1));
    // More than there is place for.
    (0..2 * MAX_WAITING_EVENTS).for_each(|number| tell("hangs", number));
    assert_eq!(teller.places.available_permits(), 0);
    // Each is given up in its time, and then there is place again.
    tokio::time::sleep(Duration::from_secs(24 * 60 * 60)).await;
    assert_eq!(
        (asked("hangs"), teller.places.available_permits()),
        (MAX_WAITING_EVENTS, MAX_WAITING_EVENTS)
    );
}
