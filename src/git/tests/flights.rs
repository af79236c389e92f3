use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use super::*;

const LONG: Duration = Duration::from_secs(60);

fn late() -> Instant {
    Instant::now() + LONG
}

#[tokio::test(start_paused = true)]
async fn g3_work_is_done_once_for_all_who_wait_for_it() {
    let (flights, done) = (Arc::new(Flights::<u8, usize>::default()), AtomicUsize::new(0));
    let work = || async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        Ok(done.fetch_add(1, Ordering::SeqCst))
    };
    let all = (0..100).map(|_| flights.join(&1, late(), work));
    let other = flights.join(&2, late(), work);
    let (all, other) = futures::join!(futures::future::join_all(all), other);
    assert!(all.iter().all(|one| *one == all[0]), "all have the result of one");
    assert!(other.is_ok() && done.load(Ordering::SeqCst) == 2, "another key is other work");
    // What has ended is not handed out later.
    assert_eq!(flights.join(&1, late(), work).await, Ok(2));
    assert!(flights.0.lock().is_empty(), "nothing is left behind");
}

#[tokio::test(start_paused = true)]
async fn g3_whoever_is_left_alone_does_the_work_itself() {
    let flights = Flights::<u8, u8>::default();
    let hangs = || async { std::future::pending().await };
    // The first one is dropped while the second waits for it.
    let first = tokio::time::timeout(Duration::from_secs(1), flights.join(&1, late(), hangs));
    let second = async {
        tokio::task::yield_now().await;
        flights.join(&1, late(), || async { Ok(7) }).await
    };
    let (first, second) = futures::join!(first, second);
    assert!(first.is_err());
    assert_eq!(second, Ok(7));
    // The same when its time is over: the other one may have more.
    let timeout = || async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        Err(GitError::Timeout { what: "fetching", after: Duration::from_secs(1) })
    };
    let first = flights.join(&1, late(), timeout);
    let second = async {
        tokio::task::yield_now().await;
        flights.join(&1, late(), || async { Ok(8) }).await
    };
    let (first, second) = futures::join!(first, second);
    assert!(matches!(first, Err(GitError::Timeout { .. })));
    assert_eq!(second, Ok(8));
}

#[tokio::test(start_paused = true)]
async fn g3_an_error_is_the_error_of_all_and_nobody_waits_longer_than_it_may() {
    let flights = Flights::<u8, u8>::default();
    let done = AtomicUsize::new(0);
    let fails = || async {
        done.fetch_add(1, Ordering::SeqCst);
        tokio::time::sleep(Duration::from_secs(10)).await;
        Err(GitError::EmptyRepository)
    };
    let all = futures::future::join_all((0..10).map(|_| flights.join(&1, late(), fails)));
    let soon = Instant::now() + Duration::from_secs(1);
    let hurried = async {
        tokio::task::yield_now().await;
        let result = flights.join(&1, soon, fails).await;
        (result, Instant::now())
    };
    let (all, (hurried, at)) = futures::join!(all, hurried);
    assert!(all.iter().all(|one| *one == Err(GitError::EmptyRepository)));
    assert_eq!(done.load(Ordering::SeqCst), 1);
    assert_eq!((hurried, at), (Err(GitError::Busy), soon));
}
