//! The input and output of a reconcile: it emits [effects](effect::Effect), and waits for replies, permits and times.
//!
//! The driver of a reconcile carries out the effects, hands the replies back, and supplies the time. So a reconcile
//! itself uses no socket, clock or executor.

#[cfg(test)]
pub(in crate::sync) mod drive;
pub mod effect;
pub mod poll;

use std::collections::{BTreeMap, VecDeque};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

use futures::channel::oneshot;
use jiff::Timestamp;
use parking_lot::{Mutex, MutexGuard};

use crate::cluster::account::Account;
use crate::cluster::call_error::CallError;
use crate::cluster::store::Key;
use crate::next::Next;
use crate::sync::io::effect::{Call, Effect, Replied, Request};

/// Called with a GitSync that is to be reconciled, and after which delay.
pub type Sink = Arc<dyn Fn(Key, Duration) + Send + Sync>;

/// The time, as the driver supplies it.
#[derive(Debug, Clone, Copy)]
pub struct Now {
    /// To measure durations.
    pub instant: Instant,
    /// The date and time for statuses and events, in whole seconds.
    pub time: Timestamp,
}

/// Why a reconcile failed and has to be retried as a whole.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// The status could not be written.
    #[error("cannot write the status: {0}")]
    Status(#[source] CallError),
    /// The finalizer could not be added or removed.
    #[error("cannot write the finalizer: {0}")]
    Finalizer(#[source] CallError),
    /// The reconcile waits, but for no reply and no time. That is a bug.
    #[error("internal error: a pass waits for nothing")]
    Stuck,
}

/// The result of a reconcile: when to begin the next one.
pub type Ended = Result<Next, EngineError>;

struct Inner {
    now: Now,
    /// Effects that the driver has not taken yet.
    effects: VecDeque<Effect>,
    /// Requests that wait for a permit, in their order.
    permits: VecDeque<oneshot::Sender<()>>,
    /// Requests that wait for their reply, by number.
    replies: BTreeMap<u64, oneshot::Sender<Replied>>,
    /// Sleepers, by the time at which they go on, and by number.
    timers: BTreeMap<(Instant, u64), oneshot::Sender<()>>,
    /// The last number of a request or a sleeper.
    last_number: u64,
    /// The state of the random numbers for jitter.
    random: u64,
}

/// A handle to the input and output of one reconcile. Clones share it.
#[derive(Clone)]
pub struct Io(Arc<Mutex<Inner>>);

/// The permission to send one request within the concurrency limit. Dropped unused, it goes to the next request.
#[must_use]
pub struct Permit(());

impl Io {
    /// Without effects. Requests get numbers after `last_number`. `seed` determines the jitter.
    #[must_use]
    pub fn new(now: Now, last_number: u64, seed: u64) -> Self {
        Self(Arc::new(Mutex::new(Inner {
            now,
            effects: VecDeque::new(),
            permits: VecDeque::new(),
            replies: BTreeMap::new(),
            timers: BTreeMap::new(),
            last_number,
            random: seed | 1,
        })))
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock()
    }

    /// The current time, to measure durations.
    #[must_use]
    pub fn now(&self) -> Instant {
        self.lock().now.instant
    }

    /// The current date and time, for statuses and events.
    #[must_use]
    pub fn time(&self) -> Timestamp {
        self.lock().now.time
    }

    /// Milliseconds since `start`.
    #[must_use]
    pub fn millis_since(&self, start: Instant) -> i64 {
        let spent = self.now().saturating_duration_since(start);
        i64::try_from(spent.as_millis()).unwrap_or(i64::MAX)
    }

    /// `duration` ±10%, so that the GitSyncs are not all reconciled at the same moment.
    #[must_use]
    pub fn jitter(&self, duration: Duration) -> Duration {
        let mut inner = self.lock();
        let mut random = inner.random;
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        inner.random = random;
        let thousandths = u32::try_from(random % 201).unwrap_or(100);
        duration.mul_f64(0.9 + f64::from(thousandths) / 1000.0)
    }

    /// Hands an effect to the driver. The reconcile does not wait for it.
    pub fn emit(&self, effect: Effect) {
        self.lock().effects.push_back(effect);
    }

    /// Starts a reconcile of these GitSyncs of the namespace at once.
    pub fn wake(&self, keys: Vec<Key>) {
        for key in keys {
            self.emit(Effect::Wake(key.name, Duration::ZERO));
        }
    }

    /// Waits until the concurrency limit allows a request. Checks between this call and [`Self::send`] are made at the moment of
    /// sending.
    pub async fn permit(&self) -> Permit {
        let (grant, granted) = oneshot::channel();
        self.lock().permits.push_back(grant);
        // No error is possible: both ends are dropped with the reconcile.
        let _ = granted.await;
        Permit(())
    }

    /// Sends a request that counts toward the concurrency limit, and waits for its reply.
    ///
    /// # Errors
    /// The error of the API server, or why there is no reply.
    pub async fn send(&self, permit: Permit, account: Option<&Account>, call: Call) -> Replied {
        let Permit(()) = permit;
        self.ask(account, call).await
    }

    /// Sends a request that does not count toward the concurrency limit, and waits for its reply. Such requests are small, and
    /// a reconcile sends one at a time: checks before the writes, and the status after them.
    ///
    /// # Errors
    /// Those of [`Self::send`].
    pub async fn ask(&self, account: Option<&Account>, call: Call) -> Replied {
        let replied = {
            let (reply, replied) = oneshot::channel();
            let mut inner = self.lock();
            inner.last_number += 1;
            let number = inner.last_number;
            inner.replies.insert(number, reply);
            let request = Request { account: account.cloned(), call };
            inner.effects.push_back(Effect::Request(number, request));
            replied
        };
        replied.await.unwrap_or(Err(CallError::Deadline(Duration::ZERO)))
    }

    /// Waits until that time.
    pub async fn sleep_until(&self, at: Instant) {
        let over = {
            let (end, over) = oneshot::channel();
            let mut inner = self.lock();
            inner.last_number += 1;
            let number = inner.last_number;
            inner.timers.insert((at, number), end);
            over
        };
        let _ = over.await;
    }

    /// Asks the driver for the time. Without that, [`Self::now`] stays the same while the reconcile computes.
    pub async fn tick(&self) {
        self.emit(Effect::Tick);
        let mut asked = false;
        std::future::poll_fn(|context| {
            if std::mem::replace(&mut asked, true) {
                return Poll::Ready(());
            }
            context.waker().wake_by_ref();
            Poll::Pending
        })
        .await;
    }

    /// Sets the time, and ends the sleep of those whose time has come.
    fn set_now(&self, now: Now) {
        let mut inner = self.lock();
        inner.now = now;
        while let Some(first) = inner.timers.first_entry() {
            if first.key().0 > now.instant {
                break;
            }
            let _ = first.remove().send(());
        }
    }

    fn next_effect(&self) -> Option<Effect> {
        self.lock().effects.pop_front()
    }

    /// Gives a permit to the first request that still waits for one. `false` when none waits.
    fn grant_permit(&self) -> bool {
        let mut inner = self.lock();
        while let Some(waiting) = inner.permits.pop_front() {
            if waiting.send(()).is_ok() {
                return true;
            }
        }
        false
    }

    fn waiting_requests(&self) -> usize {
        let mut inner = self.lock();
        inner.permits.retain(|waiting| !waiting.is_canceled());
        inner.permits.len()
    }

    fn next_timer(&self) -> Option<Instant> {
        let mut inner = self.lock();
        inner.timers.retain(|_, sleeper| !sleeper.is_canceled());
        inner.timers.first_key_value().map(|((at, _), _)| *at)
    }

    fn reply(&self, number: u64, reply: Replied) {
        let waiting = self.lock().replies.remove(&number);
        if let Some(waiting) = waiting {
            let _ = waiting.send(reply);
        }
    }
}

/// Whether a coroutine can go on.
struct ReadyFlag(AtomicBool);

impl Wake for ReadyFlag {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// An asynchronous function that a driver runs step by step, such as a reconcile.
pub struct Coroutine<'a, T> {
    io: Io,
    work: Pin<Box<dyn Future<Output = T> + Send + 'a>>,
    ready: Arc<ReadyFlag>,
    waker: Waker,
    result: Option<T>,
}

/// What the driver of a coroutine has to do next.
pub enum Step<T> {
    /// Carry out this effect.
    Do(Effect),
    /// Wait: for a reply, for a time, or until the concurrency limit allows another request.
    Wait {
        /// When the coroutine goes on without a reply.
        until: Option<Instant>,
        /// How many requests wait for a permit.
        requests: usize,
    },
    /// The coroutine has ended with this result.
    Over(T),
}

/// Whether the concurrency limit allows one more request now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Limit {
    /// One more request may be sent.
    Free,
    /// No request may be sent now.
    Reached,
}

impl<'a, T> Coroutine<'a, T> {
    /// Runs `work`, whose input and output is `io`.
    pub fn new(io: Io, work: impl Future<Output = T> + Send + 'a) -> Self {
        let ready = Arc::new(ReadyFlag(AtomicBool::new(true)));
        let waker = Waker::from(ready.clone());
        Self { io, work: Box::pin(work), ready, waker, result: None }
    }

    /// Runs the coroutine as far as it gets, and returns what the driver has to do next. Not to be called again after
    /// [`Step::Over`].
    pub fn next(&mut self, now: Now, limit: Limit) -> Step<T> {
        self.io.set_now(now);
        loop {
            // Effects come before the steps that follow from them.
            if let Some(effect) = self.io.next_effect() {
                return Step::Do(effect);
            }
            if let Some(result) = self.result.take() {
                return Step::Over(result);
            }
            if self.ready.0.swap(false, Ordering::SeqCst) {
                let mut context = Context::from_waker(&self.waker);
                if let Poll::Ready(result) = self.work.as_mut().poll(&mut context) {
                    self.result = Some(result);
                }
                continue;
            }
            // A request that is not sent after all drops its permit, and the loop gives it to the next one.
            let granted = limit == Limit::Free && self.io.grant_permit();
            if !granted {
                let (until, requests) = (self.io.next_timer(), self.io.waiting_requests());
                return Step::Wait { until, requests };
            }
        }
    }

    /// Hands over the reply to a request.
    pub fn reply(&mut self, number: u64, reply: Replied) {
        self.io.reply(number, reply);
    }

    /// Takes the effects of a coroutine that does not go on, such as one that panicked. Without requests.
    pub(crate) fn take_effects(&mut self) -> Vec<Effect> {
        let mut effects = Vec::new();
        while let Some(effect) = self.io.next_effect() {
            if !matches!(effect, Effect::Request(..) | Effect::Writing(_) | Effect::Tick) {
                effects.push(effect);
            }
        }
        effects
    }
}

#[cfg(test)]
#[path = "tests/io.rs"]
mod tests;
