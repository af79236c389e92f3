//! How a pass of the engine asks for what it cannot do itself: it says what it wants and waits. Whoever drives it does
//! it, and says what came of it and what time it is.

#[cfg(test)]
pub(in crate::sync) mod drive;
pub mod effect;
pub mod poll;

use parking_lot::{Mutex, MutexGuard};
use std::collections::{BTreeMap, VecDeque};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

use futures::channel::oneshot;
use jiff::Timestamp;

use crate::cluster::account::Account;
use crate::cluster::call_error::CallError;
use crate::cluster::store::Key;
use crate::next::Next;
use crate::sync::io::effect::{Call, Effect, Replied, Request};

/// Called with a GitSync that is to be looked at again, and after which time.
pub type Sink = Arc<dyn Fn(Key, Duration) + Send + Sync>;

/// The time, as a driver says it.
#[derive(Debug, Clone, Copy)]
pub struct Now {
    /// For what lasts.
    pub instant: Instant,
    /// For people, in whole seconds.
    pub time: Timestamp,
}

/// Why a pass has to be tried again as a whole.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// The status could not be written.
    #[error("cannot write the status: {0}")]
    Status(#[source] CallError),
    /// The finalizer could not be set or taken away.
    #[error("cannot write the finalizer: {0}")]
    Finalizer(#[source] CallError),
    /// A pass waits for nothing.
    #[error("internal error: a pass waits for nothing")]
    Stuck,
}

/// How a pass ended: when to begin the next one.
pub type Ended = Result<Next, EngineError>;

struct Inner {
    now: Now,
    /// What is to be done.
    effects: VecDeque<Effect>,
    /// Who waits for a free slot, in their order.
    slots: VecDeque<oneshot::Sender<()>>,
    /// Who waits for the reply to a request.
    replies: BTreeMap<u64, oneshot::Sender<Replied>>,
    /// Who waits for a time.
    timers: BTreeMap<(Instant, u64), oneshot::Sender<()>>,
    last: u64,
    chance: u64,
}

/// See the module. `Clone` shares it.
#[derive(Clone)]
pub struct Io(Arc<Mutex<Inner>>);

/// Leave to send one request now. Dropped unused, it goes to the next one who waits.
#[must_use]
pub struct Permit(());

impl Io {
    /// Nothing is to be done. Requests get numbers after `last`, and `seed` decides how delays are spread.
    #[must_use]
    pub fn new(now: Now, last: u64, seed: u64) -> Self {
        Self(Arc::new(Mutex::new(Inner {
            now,
            effects: VecDeque::new(),
            slots: VecDeque::new(),
            replies: BTreeMap::new(),
            timers: BTreeMap::new(),
            last,
            chance: seed | 1,
        })))
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock()
    }

    /// What time it is.
    #[must_use]
    pub fn now(&self) -> Instant {
        self.lock().now.instant
    }

    /// The same for people.
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

    /// `duration` ±10%, so that many objects do not wake at once.
    #[must_use]
    pub fn jitter(&self, duration: Duration) -> Duration {
        let mut inner = self.lock();
        let mut chance = inner.chance;
        chance ^= chance << 13;
        chance ^= chance >> 7;
        chance ^= chance << 17;
        inner.chance = chance;
        let thousandths = u32::try_from(chance % 201).unwrap_or(100);
        duration.mul_f64(0.9 + f64::from(thousandths) / 1000.0)
    }

    /// Something is to be done that nobody waits for.
    pub fn tell(&self, effect: Effect) {
        self.lock().effects.push_back(effect);
    }

    /// These GitSyncs of the namespace are to be worked on at once.
    pub fn wake(&self, keys: Vec<Key>) {
        for key in keys {
            self.tell(Effect::Wake(key.name, Duration::ZERO));
        }
    }

    /// DependencyState until a request may be sent. What is judged after this and before [`Self::send`] is judged at the moment of sending.
    pub async fn permit(&self) -> Permit {
        let (grant, granted) = oneshot::channel();
        self.lock().slots.push_back(grant);
        // Whoever drops this pass drops both ends.
        let _ = granted.await;
        Permit(())
    }

    /// Sends a request, and waits for its reply.
    ///
    /// # Errors
    /// The server's, or that there is no reply.
    pub async fn send(&self, slot: Permit, account: Option<&Account>, call: Call) -> Replied {
        let Permit(()) = slot;
        self.ask(account, call).await
    }

    /// The same for what needs no slot, because it is small and there is one of it at a time: what is asked before a plan is
    /// carried out, and what is told of it.
    ///
    /// # Errors
    /// Those of [`Self::send`].
    pub async fn ask(&self, account: Option<&Account>, call: Call) -> Replied {
        let replied = {
            let (reply, replied) = oneshot::channel();
            let mut inner = self.lock();
            inner.last += 1;
            let number = inner.last;
            inner.replies.insert(number, reply);
            let request = Request { account: account.cloned(), call };
            inner.effects.push_back(Effect::Request(number, request));
            replied
        };
        replied.await.unwrap_or(Err(CallError::Deadline(Duration::ZERO)))
    }

    /// DependencyState until that time.
    pub async fn sleep_until(&self, at: Instant) {
        let over = {
            let (end, over) = oneshot::channel();
            let mut inner = self.lock();
            inner.last += 1;
            let number = inner.last;
            inner.timers.insert((at, number), end);
            over
        };
        let _ = over.await;
    }

    /// Asks what time it is: while something is computed, [`Self::now`] stays what it was.
    pub async fn tick(&self) {
        self.tell(Effect::Tick);
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

    /// It is that time now.
    fn is(&self, now: Now) {
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

    /// Lets the first one who still waits for a slot go on.
    fn grant(&self) -> bool {
        let mut inner = self.lock();
        while let Some(waits) = inner.slots.pop_front() {
            if waits.send(()).is_ok() {
                return true;
            }
        }
        false
    }

    fn wants(&self) -> usize {
        let mut inner = self.lock();
        inner.slots.retain(|waits| !waits.is_canceled());
        inner.slots.len()
    }

    fn next_timer(&self) -> Option<Instant> {
        let mut inner = self.lock();
        inner.timers.retain(|_, waits| !waits.is_canceled());
        inner.timers.first_key_value().map(|((at, _), _)| *at)
    }

    fn reply(&self, number: u64, reply: Replied) {
        let waits = self.lock().replies.remove(&number);
        if let Some(waits) = waits {
            let _ = waits.send(reply);
        }
    }
}

/// Whether a pass can go on.
struct Flag(AtomicBool);

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// Work that asks for what it cannot do itself.
pub struct Coroutine<'a, T> {
    io: Io,
    work: Pin<Box<dyn Future<Output = T> + Send + 'a>>,
    ready: Arc<Flag>,
    waker: Waker,
    over: Option<T>,
}

/// What is to be done for a pass.
pub enum Step<T> {
    /// This.
    Do(Effect),
    /// Nothing, until there is a reply or it is this time; or a free slot, if it wants some.
    Wait {
        /// When it goes on by itself.
        until: Option<Instant>,
        /// How many requests wait for a slot.
        wants: usize,
    },
    /// The pass has ended.
    Over(T),
}

impl<'a, T> Coroutine<'a, T> {
    /// Work over this.
    pub fn new(io: Io, work: impl Future<Output = T> + Send + 'a) -> Self {
        let ready = Arc::new(Flag(AtomicBool::new(true)));
        let waker = Waker::from(ready.clone());
        Self { io, work: Box::pin(work), ready, waker, over: None }
    }

    /// What is to be done next, when it is this time, and with a slot for one request or without. Once it is over, nothing
    /// is to be asked any more.
    pub fn next(&mut self, now: Now, free: bool) -> Step<T> {
        self.io.is(now);
        loop {
            // What was asked for comes before what follows from it.
            if let Some(effect) = self.io.next_effect() {
                return Step::Do(effect);
            }
            if let Some(over) = self.over.take() {
                return Step::Over(over);
            }
            if self.ready.0.swap(false, Ordering::SeqCst) {
                let mut context = Context::from_waker(&self.waker);
                if let Poll::Ready(over) = self.work.as_mut().poll(&mut context) {
                    self.over = Some(over);
                }
                continue;
            }
            // Whoever gets the slot and sends nothing leaves it to the next one.
            if !(free && self.io.grant()) {
                let (until, wants) = (self.io.next_timer(), self.io.wants());
                return Step::Wait { until, wants };
            }
        }
    }

    /// What came of a request.
    pub fn reply(&mut self, number: u64, reply: Replied) {
        self.io.reply(number, reply);
    }

    /// What is still to be done besides requests, when nobody goes on with it.
    pub(crate) fn left(&mut self) -> Vec<Effect> {
        let mut left = Vec::new();
        while let Some(effect) = self.io.next_effect() {
            if !matches!(effect, Effect::Request(..) | Effect::Writing(_) | Effect::Tick) {
                left.push(effect);
            }
        }
        left
    }
}

#[cfg(test)]
mod tests {
    use futures::StreamExt;

    use super::*;
    use crate::api::{Kind, ObjectId};
    use crate::sync::io::effect::Reply;

    fn now(start: Instant, seconds: u64) -> Now {
        Now { instant: start + Duration::from_secs(seconds), time: Timestamp::UNIX_EPOCH }
    }

    #[test]
    #[allow(clippy::disallowed_methods)] // a point to count from
    fn g8_delays_are_spread_evenly_over_a_fifth() {
        let time = Timestamp::from_second(1_700_000_000).expect("a time");
        let io = Io::new(Now { instant: Instant::now(), time }, 0, 1);
        assert_eq!(io.time(), time);
        let all: Vec<_> =
            (0..2_000).map(|_| io.jitter(Duration::from_secs(1000)).as_secs()).collect();
        let of = |from: u64, to: u64| all.iter().filter(|it| (from..=to).contains(it)).count();
        assert_eq!(of(900, 1100), 2_000);
        for from in (900..1100).step_by(25) {
            // A twelfth to a sixth, where an eighth is expected.
            let count = of(from, from + 24);
            assert!((167..334).contains(&count), "{count} from {from} on");
        }
        // The seed alone decides.
        let again = Io::new(Now { instant: Instant::now(), time }, 0, 1);
        assert_eq!(again.jitter(Duration::from_secs(1000)).as_secs(), all[0]);
    }

    fn get(name: &str) -> Call {
        Call::Get { id: ObjectId::new(Kind::Agent, name) }
    }

    fn asked<T>(step: Step<T>) -> Option<(u64, String)> {
        match step {
            Step::Do(Effect::Request(number, Request { call: Call::Get { id }, .. })) => {
                Some((number, id.name))
            }
            _ => None,
        }
    }

    #[test]
    #[allow(clippy::disallowed_methods)] // a point to count from
    fn g8_a_request_is_judged_when_there_is_a_slot_for_it_and_not_before() {
        let start = Instant::now();
        let io = Io::new(now(start, 0), 0, 1);
        let allowed = AtomicBool::new(true);
        let (io, allowed) = (&io, &allowed);
        let one = async |name: String| {
            let slot = io.permit().await;
            if !allowed.load(Ordering::SeqCst) {
                return false;
            }
            io.send(slot, None, get(&name)).await.is_ok()
        };
        let work = async move {
            let names = ["a", "b", "c"].map(str::to_owned);
            futures::stream::iter(names).map(&one).buffer_unordered(9).collect().await
        };
        let mut pass: Coroutine<'_, Vec<bool>> = Coroutine::new(io.clone(), work);
        let waits = pass.next(now(start, 0), false);
        assert!(matches!(waits, Step::Wait { until: None, wants: 3 }));
        let (first, name) = asked(pass.next(now(start, 0), true)).expect("a request");
        assert_eq!(name, "a");
        let (second, name) = asked(pass.next(now(start, 0), true)).expect("a request");
        assert_eq!(name, "b");
        allowed.store(false, Ordering::SeqCst);
        pass.reply(second, Ok(Reply::Done));
        let waits = pass.next(now(start, 0), true);
        assert!(matches!(waits, Step::Wait { wants: 0, .. }), "c is not sent");
        pass.reply(first, Err(CallError::Deadline(Duration::ZERO)));
        let Step::Over(sent) = pass.next(now(start, 0), true) else { panic!("not over") };
        assert_eq!(sent, [true, false, false], "in the order of the replies, not of the names");
    }

    #[test]
    #[allow(clippy::disallowed_methods)] // a point to count from
    fn g8_a_pass_sleeps_until_it_is_told_that_it_is_time() {
        let start = Instant::now();
        let io = Io::new(now(start, 0), 0, 1);
        let work = async {
            io.sleep_until(start + Duration::from_secs(5)).await;
            io.now()
        };
        let mut pass = Coroutine::new(io.clone(), work);
        for second in [0, 4] {
            let Step::Wait { until: at, .. } = pass.next(now(start, second), true) else {
                panic!("no wait")
            };
            assert_eq!(at, Some(start + Duration::from_secs(5)));
        }
        let Step::Over(at) = pass.next(now(start, 7), true) else { panic!("not over") };
        assert_eq!(at, start + Duration::from_secs(7));
    }

    #[test]
    #[allow(clippy::disallowed_methods)] // a point to count from
    fn g18_a_pass_that_computed_is_told_how_long_that_took() {
        let start = Instant::now();
        let io = Io::new(now(start, 0), 0, 1);
        let work = async {
            let began = io.now();
            io.tick().await;
            io.millis_since(began)
        };
        let mut pass = Coroutine::new(io.clone(), work);
        let Step::Do(Effect::Tick) = pass.next(now(start, 0), true) else { panic!("no tick") };
        let Step::Over(spent) = pass.next(now(start, 3), true) else { panic!("not over") };
        assert_eq!(spent, 3000);
    }

    #[test]
    #[allow(clippy::disallowed_methods)] // a point to count from
    fn g18_what_a_pass_asked_for_before_it_panicked_is_not_lost() {
        let start = Instant::now();
        let io = Io::new(now(start, 0), 0, 1);
        let asks = io.clone();
        let work = async move {
            asks.tell(Effect::Wake("other".into(), Duration::ZERO));
            asks.tell(Effect::Writing(true));
            panic!("on purpose");
        };
        let mut pass: Coroutine<'_, ()> = Coroutine::new(io, work);
        let next = std::panic::AssertUnwindSafe(|| drop(pass.next(now(start, 0), true)));
        assert!(std::panic::catch_unwind(next).is_err());
        let left = pass.left();
        assert!(matches!(left.as_slice(), [Effect::Wake(name, _)] if name == "other"));
    }
}
