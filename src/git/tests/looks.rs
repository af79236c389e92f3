use std::sync::atomic::{AtomicUsize, Ordering};

use futures::future::join_all;

use std::collections::HashMap;

use super::super::refs::{Found, Listed};
use super::*;

const LONG: Duration = Duration::from_secs(60);
const SECOND: Duration = Duration::from_secs(1);

fn target(name: &str) -> Target {
    Target::Branch(name.to_owned())
}

fn wish(target: &Target, max_age: Option<Duration>) -> Wish<'_> {
    Wish { target, max_age, told: Seq::default(), timeout: LONG }
}

/// A server whose branch `main` has a commit with a number that grows with each look, which takes a second.
#[derive(Default)]
struct Server {
    looks: AtomicUsize,
}

impl Server {
    async fn answer(&self) -> Said {
        let number = self.looks.fetch_add(1, Ordering::SeqCst) + 1;
        tokio::time::sleep(SECOND).await;
        let commit = format!("{number:040x}");
        let commit = gix::ObjectId::from_hex(commit.as_bytes()).unwrap();
        let listed = Listed { found: Found { commit, tag: None }, name: "main".to_owned() };
        Ok(HashMap::from([(target("main"), Ok(listed))]))
    }

    fn looks(&self) -> usize {
        self.looks.load(Ordering::SeqCst)
    }
}

#[tokio::test(start_paused = true)]
async fn g1_a_burst_of_questions_is_two_looks_and_each_answer_is_newer_than_its_question() {
    let (looks, server, main) = (Looks::default(), Server::default(), target("main"));
    // One asks first; the others come while that look runs, so it may have missed a push that they know of.
    let first = async { (Seq::next(), looks.get(wish(&main, None), |_| server.answer()).await) };
    let others = async {
        tokio::time::sleep(SECOND / 2).await;
        let one = || async {
            let asked = Seq::next();
            (asked, looks.get(wish(&main, None), |_| server.answer()).await)
        };
        join_all((0..1000).map(|_| one())).await
    };
    let (first, others) = futures::join!(first, others);
    assert_eq!(server.looks(), 2);
    for (asked, answer) in others.into_iter().chain([first]) {
        let (look, _) = answer.unwrap();
        assert!(look.began > asked && look.ended > look.began);
    }
}

#[tokio::test(start_paused = true)]
async fn g1_an_old_answer_is_taken_only_by_whoever_says_so_and_only_while_it_is_recent() {
    let (looks, server, main) = (Looks::default(), Server::default(), target("main"));
    let ask = async |max_age| {
        looks
            .get(wish(&main, max_age), |_| server.answer())
            .await
            .map(|(look, mine)| (look.began, mine))
    };
    let (first, _) = ask(None).await.unwrap();
    assert_eq!(ask(Some(30 * SECOND)).await.unwrap(), (first, false));
    assert!(ask(None).await.unwrap().1, "a new question is asked");
    // Its age counts from its begin.
    tokio::time::sleep(29 * SECOND).await;
    assert!(ask(Some(30 * SECOND)).await.unwrap().1);
    assert_eq!(server.looks(), 3);
    // It says nothing of a target that it did not ask for.
    let other = target("other");
    let (_, mine) = looks.get(wish(&other, Some(LONG)), |_| server.answer()).await.unwrap();
    assert!(mine);
}

#[tokio::test(start_paused = true)]
async fn c9_a_look_that_hangs_delays_others_for_seconds_and_three_hang_at_most() {
    let (looks, server, main) = (Looks::default(), Server::default(), target("main"));
    let running = AtomicUsize::new(0);
    let hangs = |time: Duration| {
        running.fetch_add(1, Ordering::SeqCst);
        async move {
            tokio::time::sleep(time).await;
            Err(GitError::Timeout { what: "asking", after: time })
        }
    };
    let hour = 3600 * SECOND;
    let hanging = looks.get(Wish { timeout: hour, ..wish(&main, None) }, hangs);
    let began = Instant::now();
    let good = async {
        tokio::task::yield_now().await;
        let (look, _) = looks.get(wish(&main, None), |_| server.answer()).await.unwrap();
        assert!(look.of(&main).unwrap().is_ok());
        began.elapsed()
    };
    tokio::select! {
        took = good => assert!(took <= PATIENCE + 2 * SECOND, "{took:?}"),
        _ = hanging => panic!("it hangs"),
    }
    // All hang: each ends at its own time, and few of them occupy the server.
    let all = join_all((0..100).map(|_| looks.get(wish(&main, None), hangs)));
    running.store(0, Ordering::SeqCst);
    let began = Instant::now();
    let all = all.await;
    assert!(began.elapsed() <= LONG + SECOND);
    // Three in half a minute, for a minute.
    assert!(running.load(Ordering::SeqCst) <= 2 * MAX_RUNNING + 1, "{running:?}");
    let is_over_time = |one: &Result<(Arc<Look>, bool), GitError>| match one {
        Ok((look, _)) => look.is_over_time(),
        Err(error) => matches!(error, GitError::Timeout { .. }),
    };
    assert!(all.iter().all(is_over_time));
    assert!(looks.0.lock().running.is_empty(), "nothing is left behind");
}

#[tokio::test(start_paused = true)]
async fn c9_a_look_that_is_given_up_is_done_by_somebody_else() {
    let (looks, server, main) = (Looks::default(), Server::default(), target("main"));
    let pending = |_| std::future::pending::<Said>();
    let given_up = tokio::time::timeout(SECOND, looks.get(wish(&main, None), pending));
    let other = async {
        tokio::task::yield_now().await;
        looks.get(wish(&main, None), |_| server.answer()).await
    };
    let (given_up, other) = futures::join!(given_up, other);
    assert!(given_up.is_err() && other.is_ok_and(|(_, mine)| mine));
}

#[tokio::test(start_paused = true)]
async fn g1_an_error_of_the_server_is_the_answer_of_all_who_waited() {
    let (looks, main) = (Looks::default(), target("main"));
    let asked = AtomicUsize::new(0);
    let fails = |_| {
        asked.fetch_add(1, Ordering::SeqCst);
        async {
            tokio::time::sleep(SECOND).await;
            Err(GitError::EmptyRepository)
        }
    };
    let all = join_all((0..100).map(|_| looks.get(wish(&main, None), fails))).await;
    assert!(
        all.into_iter().all(|one| one.unwrap().0.of(&main) == Some(Err(GitError::EmptyRepository)))
    );
    assert!(asked.load(Ordering::SeqCst) <= 2);
}

#[tokio::test(start_paused = true)]
async fn g1_of_two_looks_at_the_same_time_neither_takes_the_place_of_the_other() {
    let (looks, server, main) = (Looks::default(), Server::default(), target("main"));
    // One asks, and its answer comes late. Meanwhile somebody else asks and has an answer.
    let late = looks.get(wish(&main, None), |_| async {
        tokio::time::sleep(10 * SECOND).await;
        server.answer().await
    });
    let other = async {
        tokio::task::yield_now().await;
        looks.get(wish(&main, None), |_| server.answer()).await
    };
    let (late, other) = futures::join!(late, other);
    let (late, other) = (late.unwrap().0, other.unwrap().0);
    assert!(other.began > late.began && other.ended < late.ended);
    assert!(Arc::ptr_eq(&looks.newest().unwrap(), &other));
    let again = async |told| {
        let wish = Wish { told, ..wish(&main, Some(LONG)) };
        looks.get(wish, |_| server.answer()).await.unwrap()
    };
    // Whoever was told by the late one would go back. Whoever was told by the other one hears the same.
    let (same, mine) = again(other.ended).await;
    assert!(Arc::ptr_eq(&same, &other) && !mine);
    let (newer, mine) = again(late.ended).await;
    assert!(newer.began > late.ended && mine);
    let (same, mine) = again(late.ended).await;
    assert!(Arc::ptr_eq(&same, &newer) && !mine, "which began later");
}

#[tokio::test(start_paused = true)]
async fn c9_whoever_waits_for_hanging_looks_sees_that_another_one_has_ended() {
    let (looks, server, main) = (Looks::default(), Server::default(), target("main"));
    let hour = 3600 * SECOND;
    let hangs =
        || looks.get(Wish { timeout: hour, ..wish(&main, None) }, |_| std::future::pending());
    let all = join_all((0..MAX_RUNNING).map(|_| hangs()));
    let began = Instant::now();
    let good = async {
        tokio::time::sleep(20 * SECOND).await;
        looks.get(wish(&main, None), |_| server.answer()).await.unwrap();
        began.elapsed()
    };
    tokio::select! {
        took = good => assert!(took <= MAX_PATIENCE + 2 * PATIENCE, "{took:?}"),
        _ = all => panic!("they hang"),
    }
}
