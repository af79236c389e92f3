//! Runs reconciles: bounded concurrency with a share for each namespace, a deadline on each, a backoff per object that
//! resets on success, and a periodic requeue always (a watch may lose an event).

use std::collections::HashMap;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::{Id, JoinSet};

use super::queue::Queue;
pub use convoke_core::next::{Next, delay};

pub use crate::cluster::client::jitter;
use crate::cluster::store::Key;

/// Longest time for one reconcile, unless its reconciler says another one.
pub const RECONCILE_DEADLINE: Duration = Duration::from_secs(120);
/// Every object is looked at again after this time (±10%), whatever the watch says.
pub const RESYNC: Duration = Duration::from_secs(600);

/// One controller.
pub trait Reconciler: Send + Sync + 'static {
    /// What can go wrong; told to the log and answered with a backoff.
    type Error: std::fmt::Display + Send;
    /// Kind, for logs.
    const KIND: &'static str;
    /// Longest time for one reconcile. What is dropped then is known to nobody, so whoever works long ends in time by
    /// itself, and tells.
    const DEADLINE: Duration = RECONCILE_DEADLINE;
    /// Brings one object where it should be. Must be safe to stop between any two writes.
    fn reconcile(
        self: Arc<Self>,
        key: Key,
    ) -> impl Future<Output = Result<Next, Self::Error>> + Send;
}

/// [`delay`] ±10%.
#[must_use]
pub fn backoff(attempt: u32) -> Duration {
    jitter(delay(attempt))
}

/// Works on the queue until the task is dropped, on so many keys at once; alone, a namespace gets half of them.
pub async fn run<R: Reconciler>(reconciler: Arc<R>, queue: Arc<Queue>, concurrency: usize) {
    let mut tasks: JoinSet<Result<Next, String>> = JoinSet::new();
    let mut keys: HashMap<Id, Key> = HashMap::new();
    let mut failures: HashMap<Key, u32> = HashMap::new();
    queue.limit(concurrency);
    loop {
        tokio::select! {
            key = queue.next(), if tasks.len() < concurrency => {
                let reconciler = reconciler.clone();
                let work = key.clone();
                let handle = tasks.spawn(async move {
                    match tokio::time::timeout(R::DEADLINE, reconciler.reconcile(work)).await {
                        Ok(result) => result.map_err(|e| e.to_string()),
                        Err(_) => Err(format!("not finished within {} s", R::DEADLINE.as_secs())),
                    }
                });
                keys.insert(handle.id(), key);
            }
            Some(ended) = tasks.join_next_with_id(), if !tasks.is_empty() => {
                let (id, result) = match ended {
                    Ok((id, result)) => (id, result),
                    // A panic in one reconcile must not stop the others.
                    Err(error) => (error.id(), Err(format!("internal error: {error}"))),
                };
                let Some(key) = keys.remove(&id) else { continue };
                match result {
                    Ok(Next::Forget) => { failures.remove(&key); }
                    Ok(next) => {
                        failures.remove(&key);
                        let delay = match next { Next::After(delay) => delay, _ => jitter(RESYNC) };
                        queue.add_after(key.clone(), delay);
                    }
                    Err(error) => {
                        let attempt = failures.entry(key.clone()).or_default();
                        let delay = backoff(*attempt);
                        *attempt = attempt.saturating_add(1);
                        tracing::warn!(kind = R::KIND, object = %key, %error, retry_in = ?delay, "reconcile failed");
                        queue.add_after(key.clone(), delay);
                    }
                }
                queue.done(&key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
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
}
