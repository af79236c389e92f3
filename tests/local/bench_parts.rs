//! The pure parts of the benchmark: its arguments, its numbers and its table. What it measures is not tested.
#![allow(dead_code)]

#[path = "../../benches/convoke/numbers.rs"]
mod numbers;
#[path = "../../benches/convoke/options.rs"]
mod options;
#[path = "../../benches/convoke/report.rs"]
mod report;

use numbers::{peak_mib, process_ticks, quantile, ratio, thread_nanos, writes, writes_in_flight};
use options::{Controllers, MEASUREMENTS, Options};
use report::{Goal, Key, Report};
use serde_json::Value;

fn near(a: Option<f64>, b: f64) -> bool {
    a.is_some_and(|a| (a - b).abs() < 1e-9)
}

#[test]
fn quantiles_are_samples_and_the_median_of_two_is_their_mean() {
    assert!(quantile(&[], 0.5).is_none());
    assert!(near(quantile(&[3.0, 1.0, 2.0], 0.5), 2.0));
    assert!(near(quantile(&[4.0, 1.0], 0.5), 2.5));
    let hundred: Vec<_> = (1..=100).map(f64::from).collect();
    assert!(near(quantile(&hundred, 0.99), 99.0));
    assert!(near(quantile(&hundred, 1.0), 100.0));
    assert!(near(quantile(&[7.0], 0.99), 7.0));
}

#[test]
fn a_ratio_compares_what_was_measured_side_by_side() {
    // Medians alone (20 / 10) would say 2: each run was 1.5 times its own limit.
    assert!(near(ratio(&[15.0, 30.0, 20.0], &[10.0, 20.0, 10.0]), 1.5));
    assert!(ratio(&[1.0], &[]).is_none());
    assert!(ratio(&[1.0], &[0.0]).is_none());
}

#[test]
fn the_kernels_numbers_are_read() {
    let status = "Name:\tconvoke\nVmPeak:\t  99999 kB\nVmHWM:\t   51200 kB\nVmRSS:\t 1 kB\n";
    assert!(near(peak_mib(status), 50.0));
    assert!(peak_mib("Name:\tconvoke\n").is_none());
    assert_eq!(thread_nanos("123456789 42 7\n"), Some(123_456_789));
    assert_eq!(thread_nanos(""), None);
    let stat = "77 (a) b (c) S 1 77 77 0 -1 4194304 1 2 3 4 250 31 0 0 20 0 9 0 5 6 7";
    assert_eq!(process_ticks(stat), Some(281));
}

#[test]
fn only_lasting_writes_count() {
    let metrics = "\
# HELP apiserver_request_total Counter
apiserver_request_total{code=\"200\",resource=\"agents\",subresource=\"\",verb=\"APPLY\"} 1000
apiserver_request_total{code=\"200\",resource=\"agents\",subresource=\"status\",verb=\"PATCH\"} 1.5e+03
apiserver_request_total{code=\"200\",resource=\"agents\",subresource=\"\",verb=\"WATCH\"} 9
apiserver_request_total{code=\"200\",resource=\"leases\",subresource=\"\",verb=\"PUT\"} 5
apiserver_request_total{code=\"201\",resource=\"subjectaccessreviews\",subresource=\"\",verb=\"POST\"} 7
apiserver_other_total{verb=\"PUT\"} 3
apiserver_current_inflight_requests{request_kind=\"mutating\"} 2
apiserver_current_inflight_requests{request_kind=\"readOnly\"} 5
";
    assert!((writes_in_flight(metrics) - 2.0).abs() < 1e-9);
    assert!(writes_in_flight("").abs() < 1e-9);
    assert!((writes(metrics) - 2500.0).abs() < 1e-9);
}

fn parse(text: &str) -> Result<Options, String> {
    Options::parse(text.split_whitespace().map(str::to_owned))
}

#[test]
fn without_ids_everything_is_measured() {
    let options = parse("--json --sizes 1000,10000 --runs 3").expect("options");
    assert!(options.json && options.runs == 3 && options.sizes == [1000, 10_000]);
    assert_eq!(options.ids.len(), MEASUREMENTS.len());
}

#[test]
fn ids_select_and_unknown_ones_are_refused_with_the_list() {
    let options = parse("P2 P9").expect("options");
    assert!(options.wants(&["P9"]) && !options.wants(&["P1", "P1b"]));
    assert!(options.applies(1000, Controllers::None));
    assert!(parse("P8").expect_err("refused").contains("P1, P1b, P2"));
    assert!(parse("--sizes 0").is_err() && parse("--runs").is_err() && parse("--what").is_err());
}

#[test]
fn p1_is_small_and_p1b_large() {
    let options = parse("P1b").expect("options");
    assert!(!options.applies(1000, Controllers::All));
    assert!(options.applies(5000, Controllers::All));
    assert!(!parse("P9").expect("options").applies(1000, Controllers::None));
}

fn key(id: &'static str, objects: usize) -> Key {
    Key { id, what: "new agents".into(), objects, controllers: Controllers::None }
}

#[test]
fn samples_of_one_key_are_one_row_with_its_ratio_and_goal() {
    let mut report = Report::default();
    report.add(key("P2", 1000), "ms", 50.0, None);
    for (sample, limit) in [(1200.0, 1000.0), (1500.0, 1000.0), (1250.0, 1000.0)] {
        report.add(key("P1", 1000), "ms", sample, Some(limit)).goal = Goal::Ratio(1.3);
    }
    let rows = report.sorted();
    assert_eq!(rows.iter().map(|row| row.key.id).collect::<Vec<_>>(), ["P1", "P2"]);
    assert_eq!((rows[0].reached(), rows[1].reached()), (Some(true), None));
    let table = report.table();
    assert!(table.contains("1.25x") && table.contains("<= 1.3x"), "{table}");
    let json = report.json(Value::Null);
    assert_eq!(json["rows"][0]["samples"].as_array().map(Vec::len), Some(3));
}

#[test]
fn numbers_are_shown_with_three_digits() {
    let mut report = Report::default();
    for (id, value) in [("P5", 0.0), ("P2", 12.345), ("P3", 97_123.0)] {
        report.add(key(id, 1000), "ms", value, None);
    }
    let table = report.table();
    for shown in [" 0 ms ", " 12.3 ms ", " 97.1 s "] {
        assert!(table.contains(shown), "{shown}: {table}");
    }
}
