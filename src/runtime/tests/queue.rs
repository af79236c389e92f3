use super::*;

fn key(name: &str) -> Key {
    Key::new("ns", name)
}

#[tokio::test(start_paused = true)]
async fn g14_a_key_that_is_held_is_not_handed_out_before_its_time_whoever_adds_it() {
    let queue = Queue::new();
    queue.add(key("a"));
    queue.hold(key("a"), Duration::from_secs(1));
    queue.add(key("a"));
    queue.add(key("b"));
    let began = Instant::now();
    assert_eq!(queue.next().await, key("b"), "others are not held");
    tokio::time::sleep(Duration::from_millis(500)).await;
    queue.hold(key("a"), Duration::from_secs(1));
    assert_eq!(queue.next().await, key("a"));
    assert_eq!(began.elapsed(), Duration::from_secs(1));
    // Once, and not for ever.
    queue.done(&key("a"));
    queue.add(key("a"));
    assert_eq!(queue.next().await, key("a"));
    assert_eq!(began.elapsed(), Duration::from_secs(1));
}

#[tokio::test(start_paused = true)]
async fn keys_coalesce_and_the_shortest_delay_wins() {
    let queue = Queue::new();
    queue.add_after(key("a"), Duration::from_secs(60));
    queue.add_after(key("a"), Duration::from_secs(1));
    queue.add(key("a"));
    queue.add(key("a"));
    assert_eq!(queue.next().await, key("a"));
    queue.done(&key("a"));
    assert!(queue.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_key_is_never_worked_on_twice_at_once() {
    let queue = Queue::new();
    queue.add(key("a"));
    assert_eq!(queue.next().await, key("a"));
    queue.add(key("a"));
    let second = tokio::time::timeout(Duration::from_secs(5), queue.next()).await;
    assert!(second.is_err(), "handed out while running");
    queue.done(&key("a"));
    assert_eq!(queue.next().await, key("a"));
}

#[tokio::test(start_paused = true)]
async fn c15_a_queue_behind_hands_out_nothing_while_a_sync_writes() {
    let priority = WritePriority::new();
    let queue = Queue::behind_syncs(&priority);
    let sync = priority.sync_writes("ns");
    queue.add(key("a"));
    let early = tokio::time::timeout(Duration::from_secs(1), queue.next()).await;
    assert!(early.is_err(), "handed out beside a sync");
    drop(sync);
    assert_eq!(queue.next().await, key("a"));
}

#[tokio::test(start_paused = true)]
async fn c15_a_sync_holds_back_its_own_namespace_and_no_other() {
    let priority = WritePriority::new();
    let queue = Queue::behind_syncs(&priority);
    let _sync = priority.sync_writes("ns");
    queue.add(key("a"));
    queue.add(Key::new("other", "b"));
    let next = tokio::time::timeout(Duration::from_secs(1), queue.next()).await;
    assert_eq!(next, Ok(Key::new("other", "b")));
}

#[tokio::test(start_paused = true)]
async fn c15_beside_a_long_sync_controllers_go_on_at_full_speed() {
    let priority = WritePriority::new();
    let queue = Queue::behind_syncs(&priority);
    let (_sync, began) = (priority.sync_writes("ns"), Instant::now());
    for number in 0..100 {
        queue.add(key(&number.to_string()));
    }
    for _ in 0..100 {
        queue.next().await;
    }
    assert_eq!(began.elapsed(), Duration::from_secs(3));
}

#[tokio::test(start_paused = true)]
async fn delayed_keys_come_in_order() {
    let queue = Queue::new();
    queue.add_after(key("late"), Duration::from_secs(9));
    queue.add_after(key("soon"), Duration::from_secs(2));
    assert_eq!(queue.next().await, key("soon"));
    assert_eq!(queue.next().await, key("late"));
}

#[tokio::test(start_paused = true)]
async fn c15_a_namespace_that_is_held_goes_on_when_its_sync_ends() {
    let priority = WritePriority::new();
    let queue = Queue::behind_syncs(&priority);
    let (first, began) = (priority.sync_writes("ns"), Instant::now());
    queue.add(key("a"));
    let waiting = tokio::spawn({
        let queue = queue.clone();
        async move { queue.next().await }
    });
    tokio::time::sleep(Duration::from_secs(1)).await;
    // What comes while it is held waits, too; another sync of it does not begin the wait anew.
    queue.add(key("b"));
    let second = priority.sync_writes("ns");
    drop(first);
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(!waiting.is_finished());
    drop(second);
    assert_eq!(waiting.await.ok(), Some(key("a")));
    assert_eq!(queue.next().await, key("b"));
    assert_eq!(began.elapsed(), Duration::from_secs(2));
}

#[tokio::test(start_paused = true)]
async fn a_key_that_is_asked_for_again_and_again_takes_one_place() {
    let queue = Queue::new();
    for _ in 0..1000 {
        queue.add_after(key("a"), Duration::from_secs(600));
        queue.add(key("a"));
        assert_eq!(queue.next().await, key("a"));
        queue.add_after(key("a"), Duration::from_secs(600));
        queue.done(&key("a"));
    }
    let state = queue.lock();
    assert_eq!((state.waiting.len(), state.later.len(), state.running.len()), (1, 1, 0));
}

#[tokio::test(start_paused = true)]
async fn c15_ten_thousand_keys_of_a_thousand_namespaces_cost_little_each() {
    let queue = Queue::new();
    queue.limit(64);
    let began = std::time::Instant::now();
    for number in 0..10_000 {
        let delay = Duration::from_millis(number % 7);
        queue.add_after(Key::new(format!("n{}", number % 1000), format!("{number}")), delay);
    }
    tokio::time::sleep(Duration::from_millis(7)).await;
    let mut turns = Vec::new();
    for _ in 0..10_000 {
        let key = queue.next().await;
        queue.done(&key);
        turns.push(key.namespace);
    }
    let first: HashSet<_> = turns[..1000].iter().collect();
    assert_eq!((first.len(), queue.len()), (1000, 0), "each has a turn before one has two");
    // Some microseconds each, in a debug build on a busy machine; what looks at all of them each time takes minutes.
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
}
