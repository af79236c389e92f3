use std::sync::atomic::{AtomicU32, Ordering};

use super::*;

#[test]
fn backoff_doubles_to_a_minute() {
    assert!(backoff(0) < Duration::from_secs(1));
    assert!(backoff(3) > Duration::from_secs(3));
    assert!(backoff(40) <= Duration::from_secs(66));
}

struct Flaky(AtomicU32);

impl Reconciler for Flaky {
    type Error = String;
    const KIND: &'static str = "Flaky";
    async fn reconcile(self: Arc<Self>, key: Key) -> Result<Next, String> {
        let n = self.0.fetch_add(1, Ordering::SeqCst);
        match (key.name.as_str(), n) {
            ("panics", _) => panic!("on purpose"),
            (_, n) if n < 3 => Err("not yet".into()),
            _ => Ok(Next::Forget),
        }
    }
}

/// Keys of the namespace `hangs` take for ever, others ten milliseconds.
#[derive(Default)]
struct Uneven(std::sync::Mutex<Vec<(Key, tokio::time::Instant)>>);

impl Uneven {
    fn ended(&self) -> Vec<(Key, tokio::time::Instant)> {
        self.0.lock().expect("lock").clone()
    }
}

impl Reconciler for Uneven {
    type Error = String;
    const KIND: &'static str = "Uneven";
    const DEADLINE: Duration = Duration::from_secs(60);
    async fn reconcile(self: Arc<Self>, key: Key) -> Result<Next, String> {
        if key.namespace.starts_with("hangs") {
            std::future::pending::<()>().await;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
        self.0.lock().expect("lock").push((key, tokio::time::Instant::now()));
        Ok(Next::Forget)
    }
}

#[tokio::test(start_paused = true)]
async fn c15_namespaces_whose_work_hangs_leave_slots_to_the_others() {
    for hanging in [1, 3] {
        let (reconciler, queue) = (Arc::new(Uneven::default()), Queue::new());
        for number in 0..100 * hanging {
            queue.add(Key::new(format!("hangs{}", number % hanging), format!("{number}")));
        }
        let running = tokio::spawn(run(reconciler.clone(), queue.clone(), 8));
        tokio::time::sleep(Duration::from_secs(1)).await;
        for number in 0..20 {
            queue.add(Key::new("calm", format!("{number}")));
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(reconciler.ended().len(), 20, "beside {hanging}");
        running.abort();
    }
}

#[tokio::test(start_paused = true)]
async fn c15_who_has_one_key_does_not_wait_for_ten_thousand_of_another_namespace() {
    let (reconciler, queue) = (Arc::new(Uneven::default()), Queue::new());
    for number in 0..10_000 {
        queue.add(Key::new("large", format!("{number}")));
    }
    queue.add(Key::new("small", "one"));
    let began = tokio::time::Instant::now();
    let running = tokio::spawn(run(reconciler.clone(), queue.clone(), 8));
    tokio::time::sleep(Duration::from_secs(60)).await;
    let ended = reconciler.ended();
    assert_eq!(ended.len(), 10_001, "all of them");
    let small = ended.iter().find(|(key, _)| key.namespace == "small").expect("the small one");
    assert_eq!(small.1 - began, Duration::from_millis(10));
    running.abort();
}

#[tokio::test(start_paused = true)]
async fn c15_a_panic_or_an_error_backs_off_and_the_rest_goes_on() {
    let reconciler = Arc::new(Flaky(AtomicU32::new(0)));
    let queue = Queue::new();
    queue.add(Key::new("ns", "panics"));
    queue.add(Key::new("ns", "works"));
    let running = tokio::spawn(run(reconciler.clone(), queue.clone(), 2));
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert!(reconciler.0.load(Ordering::SeqCst) >= 5);
    assert!(!running.is_finished());
    running.abort();
}
