use super::*;

#[tokio::test(start_paused = true)]
async fn b5_finalizers_that_somebody_writes_cost_one_look_in_a_while() {
    let (looks, build) = (Looks::default(), Key::new("team", "reviewer"));
    let all = ["evil-2", "evil-1", "evil-3"];
    assert_eq!(looks.turn(&build, &[]), Ok(None));
    assert_eq!(looks.turn(&build, &all), Ok(Some("evil-1")));
    assert_eq!(looks.turn(&build, &all), Err(PAUSE), "whatever is written meanwhile");
    assert_eq!(looks.turn(&Key::new("team", "writer"), &all), Ok(Some("evil-1")));
    // None of them keeps the others from being looked at.
    let mut seen = Vec::new();
    for _ in 0..3 {
        tokio::time::advance(PAUSE).await;
        seen.extend(looks.turn(&build, &all).expect("a turn"));
    }
    assert_eq!(seen, ["evil-2", "evil-3", "evil-1"]);
    looks.forget(&build);
    assert_eq!(looks.turn(&build, &all), Ok(Some("evil-1")));
}

#[tokio::test(start_paused = true)]
async fn b5_why_a_look_came_to_nothing_is_told_until_one_succeeds() {
    let (looks, build) = (Looks::default(), Key::new("team", "reviewer"));
    assert_eq!(looks.turn(&build, &["one"]), Ok(Some("one")));
    looks.note(&build, "one", Some("no answer".into()));
    assert_eq!(looks.turn(&build, &["one"]), Err(PAUSE));
    assert_eq!(looks.failed(&build).as_deref(), Some("no answer"), "it was not looked again");
    tokio::time::advance(PAUSE).await;
    assert_eq!(looks.turn(&build, &["one"]), Ok(Some("one")));
    looks.note(&build, "one", None);
    assert_eq!(looks.failed(&build), None);
    looks.note(&build, "one", Some("no answer".into()));
    assert_eq!(looks.turn(&build, &["two"]), Err(PAUSE));
    assert_eq!(looks.failed(&build), None, "the finalizer of it is gone");
}
