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
    let all: Vec<_> = (0..2_000).map(|_| io.jitter(Duration::from_secs(1000)).as_secs()).collect();
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
        let permit = io.permit().await;
        if !allowed.load(Ordering::SeqCst) {
            return false;
        }
        io.send(permit, None, get(&name)).await.is_ok()
    };
    let work = async move {
        let names = ["a", "b", "c"].map(str::to_owned);
        futures::stream::iter(names).map(&one).buffer_unordered(9).collect().await
    };
    let mut coroutine: Coroutine<'_, Vec<bool>> = Coroutine::new(io.clone(), work);
    let step = coroutine.next(now(start, 0), Limit::Reached);
    assert!(matches!(step, Step::Wait { until: None, requests: 3 }));
    let (first, name) = asked(coroutine.next(now(start, 0), Limit::Free)).expect("a request");
    assert_eq!(name, "a");
    let (second, name) = asked(coroutine.next(now(start, 0), Limit::Free)).expect("a request");
    assert_eq!(name, "b");
    allowed.store(false, Ordering::SeqCst);
    coroutine.reply(second, Ok(Reply::Done));
    let step = coroutine.next(now(start, 0), Limit::Free);
    assert!(matches!(step, Step::Wait { requests: 0, .. }), "c is not sent");
    coroutine.reply(first, Err(CallError::Deadline(Duration::ZERO)));
    let Step::Over(sent) = coroutine.next(now(start, 0), Limit::Free) else { panic!("not over") };
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
    let mut coroutine = Coroutine::new(io.clone(), work);
    for second in [0, 4] {
        let Step::Wait { until: at, .. } = coroutine.next(now(start, second), Limit::Free) else {
            panic!("no wait")
        };
        assert_eq!(at, Some(start + Duration::from_secs(5)));
    }
    let Step::Over(at) = coroutine.next(now(start, 7), Limit::Free) else { panic!("not over") };
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
    let mut coroutine = Coroutine::new(io.clone(), work);
    let Step::Do(Effect::Tick) = coroutine.next(now(start, 0), Limit::Free) else {
        panic!("no tick")
    };
    let Step::Over(spent) = coroutine.next(now(start, 3), Limit::Free) else { panic!("not over") };
    assert_eq!(spent, 3000);
}

#[test]
#[allow(clippy::disallowed_methods)] // a point to count from
fn g18_what_a_pass_asked_for_before_it_panicked_is_not_lost() {
    let start = Instant::now();
    let io = Io::new(now(start, 0), 0, 1);
    let asks = io.clone();
    let work = async move {
        asks.emit(Effect::Wake("other".into(), Duration::ZERO));
        asks.emit(Effect::Writing(true));
        panic!("on purpose");
    };
    let mut coroutine: Coroutine<'_, ()> = Coroutine::new(io, work);
    let next = std::panic::AssertUnwindSafe(|| drop(coroutine.next(now(start, 0), Limit::Free)));
    assert!(std::panic::catch_unwind(next).is_err());
    let effects = coroutine.take_effects();
    assert!(matches!(effects.as_slice(), [Effect::Wake(name, _)] if name == "other"));
}
