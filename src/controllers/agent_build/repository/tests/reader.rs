use std::path::Path;

use serde_json::{Value, json};

use super::*;
use crate::api::agent_build::AgentBuildSpec;
use crate::git::{Limits, Repositories};
use crate::net::{Dialler, Policy};
use crate::sync::concurrency::ConcurrencyLimits;
use crate::sync::newest::Shares;

const SECOND: Duration = Duration::from_secs(1);

fn poll(git: Value) -> Poll {
    let mut all = json!({"url": "https://git.example.com/app.git"});
    all.as_object_mut().expect("a map").extend(git.as_object().cloned().expect("a map"));
    let spec = json!({"source": {"git": all}, "output": {"image": "app"}});
    let spec: AgentBuildSpec = serde_json::from_value(spec).expect("a spec");
    Poll::of(&spec).expect("a repository")
}

fn newest(folder: &Path) -> Newest {
    let repositories = Repositories::new(folder.to_owned(), u64::MAX).expect("stores");
    let (limits, concurrency) = (Limits::default(), ConcurrencyLimits::default());
    let shares = Shares { repositories, limits, concurrency };
    Newest::new("uid".into(), shares, Dialler::new(Policy::default()))
}

#[test]
fn b2_only_a_build_with_a_repository_of_its_own_is_polled() {
    let spec = json!({"source": {"gitSync": {}}, "output": {"image": "app"}});
    let spec: AgentBuildSpec = serde_json::from_value(spec).expect("a spec");
    assert_eq!(Poll::of(&spec), None);
    let poll = poll(json!({}));
    assert_eq!((poll.interval, poll.timeout), (60 * SECOND, 60 * SECOND));
    assert_eq!(poll.place.subfolder, ".");
}

#[test]
fn b2_a_repository_is_polled_at_its_interval_and_at_once_when_somebody_asks() {
    let (now, minute) = (Instant::now(), poll(json!({})));
    let folder = tempfile::tempdir().expect("a folder");
    let mut reader = Reader::new("uid".into(), newest(folder.path()), Some("1".into()));
    let due = |reader: &Reader, poll: &Poll, request: &str, moved| {
        reader.due(poll, Some(request), moved, now)
    };
    // Nobody else's answer counts for the first poll.
    assert_eq!(due(&reader, &minute, "1", false), Ok(None));
    reader.ended(&minute, Some("1".into()), now + 40 * SECOND);
    assert_eq!(due(&reader, &minute, "1", false), Err(40 * SECOND));
    // Another one has seen that the ref has moved: its answer is good enough.
    assert_eq!(due(&reader, &minute, "1", true), Ok(Some(30 * SECOND)));
    assert_eq!(due(&reader, &minute, "2", false), Ok(None), "somebody asks");
    for other in [
        json!({"ref": {"tag": "v1"}}),
        json!({"secretRef": {"name": "s"}}),
        json!({"url": "https://git.example.com/b.git"}),
    ] {
        assert_eq!(due(&reader, &poll(other), "1", false), Ok(None), "another place");
    }
    // A shorter interval counts from the last poll on.
    assert_eq!(due(&reader, &poll(json!({"interval": "30s"})), "1", false), Err(10 * SECOND));
    let short = poll(json!({"interval": "10s"}));
    assert_eq!(due(&reader, &short, "1", false), Ok(Some(5 * SECOND)));
    // What failed is tried again after its own time.
    reader.failed = true;
    assert_eq!(due(&reader, &short, "1", false), Err(40 * SECOND));
    reader.ended(&short, Some("1".into()), now);
    assert_eq!(due(&reader, &short, "1", false), Ok(Some(15 * SECOND)));
}

#[test]
fn b2_an_interval_longer_than_a_failure_is_not_waited_for() {
    let slow = poll(json!({"interval": "1h"}));
    assert_eq!((slow.pause(true), slow.pause(false)), (30 * SECOND, 3600 * SECOND));
}
