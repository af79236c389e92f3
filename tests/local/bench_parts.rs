//! The pure parts of the benchmark: its arguments, its numbers and its table. What it measures is not tested.
#![allow(dead_code)]

#[path = "../../benches/convoke/managed_fields.rs"]
mod managed_fields;
#[path = "../../benches/convoke/numbers.rs"]
mod numbers;
#[path = "../../benches/convoke/options.rs"]
mod options;
#[path = "../../benches/convoke/report.rs"]
mod report;

use managed_fields::applied_by;
use numbers::{
    most_mib, most_mib_with_syncs, peak_mib, process_ticks, quantile, ratio, resident_mib,
    thread_nanos, writes, writes_in_flight,
};
use options::{Controllers, MEASUREMENTS, Options, Run};
use report::{Goal, Key, Report};
use serde_json::{Value, json};

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
    let status = "Name:\tconvoke\nVmPeak:\t  99999 kB\nVmHWM:\t   51200 kB\nVmRSS:\t 1024 kB\n";
    assert!(near(peak_mib(status), 50.0) && near(resident_mib(status), 1.0));
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
    assert!(options.plan(true).contains(&Run::Agents(1000, Controllers::None)));
    assert!(parse("P99").expect_err("refused").contains("P1, P1b, P2"));
    assert!(parse("--sizes 0").is_err() && parse("--runs").is_err() && parse("--what").is_err());
}

#[test]
fn p1_is_small_and_p1b_large() {
    let plan = |text| parse(text).expect("options").plan(true);
    let [none, all] = [Controllers::None, Controllers::All];
    assert_eq!(plan("P1b"), [Run::Agents(5000, none), Run::Agents(5000, all)]);
    assert_eq!(plan("P9 --sizes 1000"), [Run::Agents(1000, all)]);
}

#[test]
fn children_are_measured_with_all_controllers_and_up_to_1000_agents() {
    let plan = |text| parse(text).expect("options").plan(false);
    assert_eq!(plan("P8"), [Run::Children(1000)]);
    assert!(plan("P8 --sizes 1001").is_empty() && plan("P8 --controllers none").is_empty());
}

#[test]
fn many_gitsyncs_are_measured_once_with_each_set_of_controllers() {
    let options = parse("P14 --syncs 20").expect("options");
    let [none, all] = [Controllers::None, Controllers::All];
    assert_eq!(options.plan(true), [Run::Syncs(20, none), Run::Syncs(20, all)]);
    assert!(options.plan(false).is_empty());
    let everything = parse("").expect("options").plan(true);
    assert!(everything.contains(&Run::Syncs(1000, all)), "{everything:?}");
    assert_eq!(parse("P14 --repositories 100").expect("options").repositories, 100);
    assert!(parse("P14 --syncs 20 --repositories 21").is_err());
}

#[test]
fn the_memory_of_many_gitsyncs_is_that_of_their_agents_and_50_kib_each() {
    assert!(near(most_mib(1000), 50.0) && near(most_mib(1001), 90.0));
    assert!(near(most_mib(10_000), 150.0) && most_mib(10_001).is_none());
    assert!(near(most_mib_with_syncs(1024, 10_000, true), 200.0));
    assert!(near(most_mib_with_syncs(1000, 10_000, false), 120.0));
    assert!(most_mib_with_syncs(1001, 10_010, false).is_none());
}

/// A Deployment as the API server gives it back.
fn deployment() -> Value {
    let container = json!({
        "name": "agent", "image": "a:1", "terminationMessagePath": "/dev/termination-log",
        "args": ["--one", "--two"],
        "ports": [{"containerPort": 8000, "protocol": "TCP"}, {"containerPort": 9000, "protocol": "TCP"}],
    });
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {
            "name": "agent-a", "namespace": "team", "uid": "u", "resourceVersion": "7", "generation": 1,
            "labels": {"convoke.dev/kind": "agent"},
            "annotations": {"deployment.kubernetes.io/revision": "1", "convoke.dev/source": "a.yaml:1"},
            "ownerReferences": [{"kind": "Agent", "name": "a", "uid": "o", "controller": true}],
            "finalizers": ["theirs", "ours"],
            "managedFields": [
                {"manager": "kube-controller-manager", "operation": "Update", "fieldsV1": {"f:metadata": {}}},
                {"manager": "convoke", "operation": "Apply", "subresource": "status", "fieldsV1": {"f:status": {}}},
                {"manager": "convoke", "operation": "Apply", "fieldsV1": {
                    "f:metadata": {
                        "f:labels": {"f:convoke.dev/kind": {}},
                        "f:annotations": {"f:convoke.dev/source": {}},
                        "f:ownerReferences": {"k:{\"uid\":\"o\"}": {}},
                        "f:finalizers": {"v:\"ours\"": {}},
                    },
                    "f:spec": {
                        "f:strategy": {},
                        "f:template": {"f:spec": {"f:containers": {"k:{\"name\":\"agent\"}": {
                            ".": {}, "f:name": {}, "f:image": {}, "f:args": {},
                            "f:ports": {"k:{\"containerPort\":8000,\"protocol\":\"TCP\"}": {".": {}, "f:containerPort": {}}},
                        }}, "f:volumes": {"k:{\"name\":\"gone\"}": {}}}},
                    },
                }},
            ],
        },
        "spec": {
            "replicas": 1, "strategy": {"type": "Recreate"},
            "template": {"spec": {"containers": [container, {"name": "sidecar"}], "dnsPolicy": "ClusterFirst"}},
        },
        "status": {"replicas": 1},
    })
}

#[test]
fn what_a_manager_applied_is_the_object_without_defaults_and_what_others_wrote() {
    let container = json!({
        "name": "agent", "image": "a:1", "args": ["--one", "--two"], "ports": [{"containerPort": 8000}],
    });
    let sent = json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {
            "name": "agent-a", "labels": {"convoke.dev/kind": "agent"},
            "annotations": {"convoke.dev/source": "a.yaml:1"},
            "ownerReferences": [{"kind": "Agent", "name": "a", "uid": "o", "controller": true}],
            "finalizers": ["ours"],
        },
        "spec": {"strategy": {"type": "Recreate"}, "template": {"spec": {"containers": [container]}}},
    });
    assert_eq!(applied_by("convoke", &deployment()), Some(sent));
    assert_eq!(applied_by("somebody", &deployment()), None);
    assert_eq!(applied_by("kube-controller-manager", &deployment()), None, "it applied nothing");
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
