use serde_json::json;

use super::*;

fn spec(strategy: &str, base: &str, follows: bool) -> AgentBuildSpec {
    serde_json::from_value(json!({
        "source": {"gitSync": {}}, "output": {"image": "team/reviewer"}, "strategy": strategy,
        "append": {"baseImage": base}, "trigger": {"baseImage": follows},
    }))
    .expect("a spec")
}

fn status(base_image: Option<&str>) -> AgentBuildStatus {
    AgentBuildStatus { base_image: base_image.map(str::to_owned), ..AgentBuildStatus::default() }
}

fn digest(digit: char) -> String {
    format!("sha256:{}", digit.to_string().repeat(64))
}

#[test]
fn b1_what_a_tag_named_last_is_known_from_the_status() {
    let known = format!("python:3.13@{}", digest('1'));
    let pinned = |spec: &AgentBuildSpec, known: Option<&str>| {
        pinned_by(spec, &status(known)).map(|spec| spec.append.expect("a base").base_image)
    };
    let follows = spec("Append", "python:3.13", true);
    assert_eq!(pinned(&follows, Some(&known)).as_ref(), Some(&known));
    // Nothing is known, it is of another tag, or no digest.
    for other in
        [None, Some("python:3.13"), Some("python:3.13@x"), Some(&*format!("a:1@{}", digest('1')))]
    {
        assert_eq!(pinned(&follows, other), None, "{other:?}");
    }
    // A digest does not move, and who does not ask for it gets nothing.
    for other in [
        spec("Append", &known, true),
        spec("Append", "python:3.13", false),
        spec("Dockerfile", "python:3.13", true),
    ] {
        assert_eq!(pinned(&other, Some(&known)), None, "{other:?}");
    }
}

#[test]
fn b1_a_tag_is_looked_at_again_and_again() {
    let known = format!("python:3.13@{}", digest('1'));
    let (soon, nothing) = (Duration::from_secs(7), Following::default());
    for (next, want) in [
        (Next::Settled, Next::After(LIFETIME)),
        (Next::After(soon), Next::After(soon)),
        (Next::After(LIFETIME * 2), Next::After(LIFETIME)),
    ] {
        let mut new = status(Some("old"));
        assert_eq!(note(&spec("Append", &known, true), &nothing, &mut new, next), want);
        assert_eq!(new.base_image.as_ref(), Some(&known));
    }
    // Before it is resolved, what is known stays. Then it goes with the field.
    let mut new = status(Some(&known));
    note(&spec("Append", "python:3.13", true), &nothing, &mut new, Next::Settled);
    assert_eq!(new.base_image.as_ref(), Some(&known));
    let off = spec("Append", "python:3.13", false);
    assert_eq!(note(&off, &nothing, &mut new, Next::Settled), Next::Settled);
    assert_eq!(new.base_image, None);
}

#[test]
fn b1_the_status_has_the_base_images_of_a_dockerfile_as_they_were_resolved() {
    let (dockerfile, append) = (spec("Dockerfile", "a:1", true), spec("Append", "a:1", true));
    let resolved = |all: &[&str]| Following {
        images: Some(all.iter().map(|&one| one.to_owned()).collect()),
        ..Following::default()
    };
    let mut new = status(Some("of another strategy"));
    let next = note(&dockerfile, &resolved(&["a:1@x", "b:1@y"]), &mut new, Next::Settled);
    assert_eq!(next, Next::After(LIFETIME));
    assert_eq!(
        (new.base_image.as_deref(), &*new.base_images),
        (None, &["a:1@x", "b:1@y"].map(str::to_owned)[..])
    );
    // Before it is resolved, what is known stays.
    note(&dockerfile, &Following::default(), &mut new, Next::Settled);
    assert_eq!(new.base_images.len(), 2);
    note(&dockerfile, &resolved(&[]), &mut new, Next::Settled);
    assert!(new.base_images.is_empty());
    for other in [append, spec("Dockerfile", "a:1", false)] {
        new.base_images = vec!["a:1@x".to_owned()];
        note(&other, &Following::default(), &mut new, Next::Settled);
        assert!(new.base_images.is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn b1_an_answer_counts_for_some_minutes() {
    let question = |namespace: &str| Question {
        registry: Asked {
            namespace: namespace.into(),
            registry: "r.test".into(),
            plain_http: false,
        },
        base: "r.test/base:1".into(),
        credentials: None,
    };
    let bases = Bases::default();
    let digest: Digest = digest('1').parse().expect("a digest");
    assert!(!bases.place(&question("a")).lock().await.is_newer_than(LIFETIME));
    bases.place(&question("a")).lock().await.answer = Some((Instant::now(), digest));
    assert!(bases.place(&question("a")).lock().await.is_newer_than(LIFETIME));
    // What one namespace is told is for it alone.
    assert!(bases.place(&question("b")).lock().await.answer.is_none());
    tokio::time::advance(LIFETIME).await;
    let place = bases.place(&question("a"));
    let mut known = place.lock().await;
    assert!(!known.is_newer_than(LIFETIME) && known.answer.is_some(), "better than nothing");
    // A question without an answer is not asked again at once.
    known.failure = Some((Instant::now(), "why".into()));
    assert_eq!(known.failed(), Some("why"));
    assert!(known.counts(), "it is kept for that");
    tokio::time::advance(PAUSE).await;
    assert_eq!(known.failed(), None);
    assert!(!known.counts());
    // A tag that has just moved is kept, whoever asks for how many others: otherwise it would be followed at once the next time.
    for number in ['1', '2'] {
        let named: Digest = super::tests::digest(number).parse().expect("a digest");
        known.pace.follow(&named, None, false, Timestamp::now());
    }
    assert!(known.counts());
}
