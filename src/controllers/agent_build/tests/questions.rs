use super::*;

fn key(digit: char) -> BuildKey {
    BuildKey::parse(&digit.to_string().repeat(64)).expect("a key")
}

fn at(namespace: &str, plain_http: bool) -> Asked {
    Asked { namespace: namespace.into(), registry: "registry.test".into(), plain_http }
}

#[test]
fn b1_a_key_is_looked_for_once() {
    let (questions, build) = (Questions::default(), Key::new("team", "reviewer"));
    assert!(!questions.is_answered(&build, "u1", &key('1')));
    questions.answered(&build, "u1", &key('1'));
    assert!(questions.is_answered(&build, "u1", &key('1')));
    // Another key, another build, and one of the same name that was made anew.
    assert!(!questions.is_answered(&build, "u1", &key('2')));
    assert!(!questions.is_answered(&Key::new("team", "writer"), "u1", &key('1')));
    assert!(!questions.is_answered(&build, "u2", &key('1')));
    // As many answers as builds.
    for digit in ['2', '3', '4'] {
        questions.answered(&build, "u1", &key(digit));
    }
    assert_eq!(questions.answered.lock().len(), 1);
    questions.forget(&build);
    assert!(questions.answered.lock().is_empty());
}

#[tokio::test(start_paused = true)]
async fn b1_a_registry_that_is_silent_is_left_alone_for_a_minute() {
    let questions = Questions::default();
    questions.is_silent_now(at("team", false));
    assert!(questions.is_silent(&at("team", false)));
    // What keeps one namespace from it says nothing of another.
    assert!(!questions.is_silent(&at("other", false)) && !questions.is_silent(&at("team", true)));
    tokio::time::advance(SILENCE).await;
    assert!(!questions.is_silent(&at("team", false)));
    // Nor does a namespace ask one silent registry after the other.
    for registry in ["a.test", "b.test", "c.test"] {
        assert!(!questions.is_silent(&at("many", false)), "{registry}");
        questions.is_silent_now(Asked { registry: registry.into(), ..at("many", false) });
    }
    assert!(questions.is_silent(&at("many", false)) && !questions.is_silent(&at("other", false)));
    tokio::time::advance(SILENCE).await;
    assert!(!questions.is_silent(&at("many", false)));
    // However many are silent, what is kept has a bound.
    for number in 0..2 * MAX_SILENT {
        questions.is_silent_now(at(&number.to_string(), false));
    }
    assert_eq!(questions.silent.lock().len(), MAX_SILENT);
}
