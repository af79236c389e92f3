use super::*;

const LONG: Duration = Duration::from_secs(60);

#[tokio::test]
async fn c9_at_most_one_attempt_hangs() {
    let owner = "owner-1";
    let turn = Turn::of(owner);
    let (release, held) = std::sync::mpsc::channel::<()>();
    let hangs = move |_: &Control| held.recv().map_err(|_| GitError::Busy);
    let hung = turn.run("hanging", (Duration::from_millis(20), LONG), hangs, || ());
    assert_eq!(hung.await.unwrap_err().reason(), "Timeout");
    // Also for another remote of the same owner, but not for one of another owner.
    for same in [Arc::clone(&turn), Turn::of(owner)] {
        let started = Instant::now();
        assert_eq!(same.run("next", (LONG, LONG), |_| Ok(()), || ()).await, Err(GitError::Busy));
        assert!(started.elapsed() < MAX_TIME_TO_STOP, "it waited for the hanging one");
    }
    let other = Turn::of("other");
    assert_eq!(other.run("elsewhere", (LONG, LONG), |_| Ok(1), || ()).await, Ok(1));
    release.send(()).unwrap();
    while turn.abandoned.load(Ordering::Acquire) {
        tokio::task::yield_now().await;
    }
    assert_eq!(turn.run("last", (LONG, LONG), |_| Ok(7), || ()).await, Ok(7));
}

#[tokio::test]
async fn c9_an_attempt_that_was_given_up_is_waited_for() {
    let owner = "owner-2";
    let ended = Arc::new(AtomicBool::new(false));
    let (began, beginning) = tokio::sync::oneshot::channel::<()>();
    let (turn, flag) = (Turn::of(owner), Arc::clone(&ended));
    let given_up = tokio::spawn(async move {
        let work = move |control: &Control| {
            began.send(()).unwrap();
            while !control.interrupt.load(Ordering::Relaxed) {
                std::thread::yield_now();
            }
            flag.store(true, Ordering::SeqCst);
            Ok(())
        };
        turn.run("first", (LONG, LONG), work, || ()).await
    });
    beginning.await.unwrap();
    let (turn, flag) = (Turn::of(owner), Arc::clone(&ended));
    given_up.abort();
    let after = turn.run("second", (LONG, LONG), move |_| Ok(flag.load(Ordering::SeqCst)), || ());
    assert_eq!(after.await, Ok(true), "two worked in one folder");
}

#[tokio::test]
async fn c9_a_panic_is_told_and_ends_the_turn() {
    let owner = "owner-3";
    let turn = Turn::of(owner);
    let told = AtomicBool::new(false);
    let worst = turn
        .run(
            "worst",
            (LONG, LONG),
            |_| -> Result<(), _> { panic!("on purpose") },
            || {
                told.store(true, Ordering::SeqCst);
            },
        )
        .await;
    assert_eq!(worst.unwrap_err().reason(), "CorruptData");
    assert!(told.load(Ordering::SeqCst));
    assert_eq!(turn.run("after", (LONG, LONG), |_| Ok(8), || ()).await, Ok(8));
}
