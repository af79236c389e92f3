//! Which crash points a campaign tries, and what it says.

use std::io::Write as _;

use super::proxy::{Effect, Moment, Point, Write};

/// What they are drawn by without `CONVOKE_SEED`.
const DEFAULT_SEED: u64 = 2171;

/// Before and after each of these writes that the server did not refuse; and the request that comes late, where that says something.
pub fn around<'w>(
    writes: impl Iterator<Item = &'w Write>,
    may_be_late: impl Fn(&str) -> bool,
) -> Vec<Point> {
    let mut points: Vec<_> = writes
        .filter(|write| !matches!(write.effect, Effect::Refused(_)))
        .flat_map(|write| {
            let late = may_be_late(&write.target.what).then_some(Moment::Late);
            [Moment::Before, Moment::After].into_iter().chain(late).map(|moment| Point {
                target: write.target.clone(),
                nth: write.nth,
                moment,
            })
        })
        .collect();
    points.sort();
    points
}

/// The points to try, and how they were chosen: all of them with `CONVOKE_FULL`, and otherwise as many as are to be drawn.
pub fn chosen(mut points: Vec<Point>, drawn: usize) -> (Vec<Point>, String) {
    if let Ok(text) = std::env::var("CONVOKE_POINTS") {
        let named: Vec<_> =
            points.iter().filter(|point| point.to_string().contains(&text)).cloned().collect();
        // A point that this run's reference has not: it may be reached all the same.
        let named = if named.is_empty() { text.parse().into_iter().collect() } else { named };
        return (named, format!("CONVOKE_POINTS={text}"));
    }
    if std::env::var_os("CONVOKE_FULL").is_some() {
        return (points, "all".to_owned());
    }
    // The same ones each time, so that a check of a change says something about the change.
    let seed = std::env::var("CONVOKE_SEED")
        .map_or(DEFAULT_SEED, |text| text.parse().expect("CONVOKE_SEED is a number"));
    let mut state = seed;
    let mut next = move |below: usize| {
        // Knuth's MMIX: all that is asked of it is the same numbers again.
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(state >> 33).expect("64 bits") % below
    };
    for at in 0..drawn.min(points.len()) {
        let other = at + next(points.len() - at);
        points.swap(at, other);
    }
    points.truncate(drawn);
    (points, format!("CONVOKE_SEED={seed}"))
}

/// Also where the output of tests is kept back.
pub fn say(line: &str) {
    let _ = writeln!(std::io::stderr(), "{line}");
}
