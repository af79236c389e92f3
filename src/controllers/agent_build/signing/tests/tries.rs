use super::*;

#[tokio::test(start_paused = true)]
async fn b12_what_fails_is_tried_again_after_five_seconds_and_then_ever_later() {
    let tries = Tries::default();
    assert_eq!(tries.wait("a"), None);
    let mut pauses = Vec::new();
    for round in 0..10 {
        let why = if round < 2 { "away" } else { "denied" };
        let (pause, is_new) = tries.failed("a", why);
        assert_eq!(is_new, round == 0 || round == 2);
        assert_eq!(tries.wait("a"), Some((why.to_owned(), pause)));
        assert_eq!(tries.wait("b"), None, "another run");
        tokio::time::advance(pause).await;
        assert_eq!(tries.wait("a"), None, "it is due");
        pauses.push(pause.as_secs_f64());
    }
    for (pause, wanted) in
        pauses.iter().zip([5.0, 10.0, 20.0, 40.0, 80.0, 160.0, 300.0, 300.0, 300.0, 300.0])
    {
        assert!((pause / wanted - 1.0).abs() < 0.11, "{pauses:?}");
    }
    tries.forget("a");
    let (pause, is_new) = tries.failed("a", "denied");
    assert!(pause < Duration::from_secs(6) && is_new);
}

#[tokio::test(start_paused = true)]
async fn b12_runs_that_are_gone_are_forgotten_when_there_are_many() {
    let tries = Tries::default();
    for run in 0..MAX_KEPT {
        tries.failed(&run.to_string(), "away");
    }
    tokio::time::advance(2 * MAX_PAUSE).await;
    tries.failed("new", "away");
    assert_eq!(tries.0.lock().len(), 1);
}
