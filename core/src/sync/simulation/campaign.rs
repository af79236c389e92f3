//! Many scenarios, what has to occur in them, and the shortest way to a failure.

use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use super::{Counts, STEPS, scenario};

/// What has to happen at least once in thousands of scenarios.
const MUST: &[&str] = &[
    "GitSync deleted",
    "GitSync does not parse",
    "account is missing (404)",
    "adopted by annotation",
    "all were to go, and wait",
    "approval",
    "approval taken back",
    "came late",
    "change by hand undone",
    "conflict (409)",
    "crash",
    "delete",
    "delete at the end of a GitSync",
    "delete in spite of a silent kind",
    "delete in spite of errors",
    "delete in spite of somebody unread",
    "drift is only told",
    "earlier commit not read",
    "earlier commit read",
    "few enough to go at once",
    "folder or variables change",
    "handed over",
    "hanging look given up",
    "held delete goes after its approval",
    "held for an approval",
    "held until it is proven",
    "kind falls silent",
    "let through by dependsOn",
    "look failed",
    "look hangs",
    "look panicked",
    "more than may go at once, and wait",
    "nothing needless is kept",
    "nothing to do when woken",
    "objects are only looked at when they change",
    "operator may not act as the account (403)",
    "pass dropped",
    "quarantine",
    "quarantined object looked at",
    "quota exceeded (403)",
    "quota in conflict (409)",
    "refused (422)",
    "reply lost",
    "request late",
    "request lost",
    "right is missing (403)",
    "server overloaded",
    "state is as rebuilt",
    "three GitSyncs",
    "waits for another GitSync (dependsOn)",
    "waits for the end of what it has deleted",
    "watch fails",
    "watch lost its place",
    "watch works again",
];

/// Leaves out as many steps as may be left out while it still fails.
fn shrink(seed: u64) -> (Vec<usize>, String) {
    let mut without = Vec::new();
    // A step that could not be left out at first may be later.
    for number in (0..STEPS).chain(0..STEPS) {
        let mut fewer = without.clone();
        fewer.push(number);
        if !without.contains(&number) && scenario(seed, &fewer, false).is_err() {
            without = fewer;
        }
    }
    let why = scenario(seed, &without, true).err().unwrap_or_default();
    (without, why)
}

/// Runs these scenarios on all processors; gives what happened, and those that failed: the first, or all of them.
fn campaign(first: u64, count: u64, all: bool) -> (Counts, BTreeMap<u64, String>) {
    let next = AtomicUsize::new(0);
    let failed = Mutex::new(BTreeMap::new());
    let total = Mutex::new(Counts::new());
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(2, usize::from) {
            scope.spawn(|| {
                let mut mine = Counts::new();
                loop {
                    let at = next.fetch_add(1, Ordering::SeqCst) as u64;
                    if at >= count || (!all && !failed.lock().is_empty()) {
                        break;
                    }
                    if at > 0 && at.is_multiple_of(10_000) {
                        // Where to go on after a break.
                        println!("so far: {at} scenarios from {first}");
                    }
                    match scenario(first + at, &[], false) {
                        Ok(sim) => {
                            for (what, number) in sim.counts {
                                *mine.entry(what).or_default() += number;
                            }
                        }
                        Err(why) => {
                            let why = why.lines().next().unwrap_or_default().to_owned();
                            failed.lock().insert(first + at, why);
                        }
                    }
                }
                let mut total = total.lock();
                for (what, number) in mine {
                    *total.entry(what).or_default() += number;
                }
            });
        }
    });
    (total.into_inner(), failed.into_inner())
}

/// Scenarios fail by panics, which are told once and in short: nobody prints them meanwhile.
pub fn quietly<T>(work: impl FnOnce() -> T) -> T {
    // One at a time: the hook is everybody's.
    static ONE: Mutex<()> = Mutex::new(());
    let _alone = ONE.lock();
    let quiet = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let done = work();
    std::panic::set_hook(quiet);
    done
}

/// A number from the environment.
#[allow(clippy::disallowed_methods)] // said in the message of a failure
fn given(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

#[test]
#[allow(clippy::disallowed_methods)] // for people
fn g12_g22_no_scenario_deletes_without_proof_and_all_come_to_rest_as_git_says() {
    let (first, count) = (given("SIMULATION_SEED"), given("SIMULATION_COUNT"));
    // Without optimization; `scripts/test` runs more.
    let count = count.unwrap_or(if first.is_some() { 1 } else { 1500 });
    let first = first.unwrap_or(1);
    let began = Instant::now();
    let (counts, failed) = quietly(|| campaign(first, count, given("SIMULATION_ALL").is_some()));
    let spent = began.elapsed().as_secs_f64();
    if failed.len() > 1 {
        for (seed, why) in &failed {
            println!("{seed}: {}", why.get(..300).unwrap_or(why));
        }
    }
    if let Some((&seed, _)) = failed.first_key_value() {
        println!("failed after {} scenarios", seed + 1 - first);
        let (without, why) = quietly(|| shrink(seed));
        panic!(
            "scenario {seed} fails without the steps {without:?}; to repeat it: SIMULATION_SEED={seed} cargo test --lib simulation\n{why}"
        );
    }
    // What never happens proves nothing. Some of it happens once in a thousand scenarios.
    if count >= 5_000 {
        let never: Vec<_> = MUST.iter().filter(|what| !counts.contains_key(**what)).collect();
        assert!(never.is_empty(), "in {count} scenarios there was no {never:?}");
    }
    let mut table = String::new();
    for (what, number) in &counts {
        let _ = write!(table, "\n  {number:>9} {what}");
    }
    println!("{count} scenarios in {spent:.1} s:{table}");
}
