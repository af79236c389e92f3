use serde_json::{Value, json};

use super::*;

fn package(name: &str, ids: &[&str], severity: &str, fixed: Option<&str>) -> Value {
    let events = fixed.map_or(
        json!([{"introduced": "0"}]),
        |fixed| json!([{"introduced": "0"}, {"fixed": fixed}]),
    );
    let vulnerabilities: Vec<_> = ids
        .iter()
        .map(|id| {
            json!({
                "id": id,
                "summary": "Runs what it\u{1b}[31m is\nasked to",
                "affected": [
                    {"package": {"name": name, "ecosystem": "PyPI"}, "ranges": [{"type": "ECOSYSTEM", "events": events}]},
                    {"package": {"name": "another", "ecosystem": "PyPI"}, "ranges": [{"events": [{"fixed": "9"}]}]},
                ],
            })
        })
        .collect();
    json!({
        "package": {"name": name, "version": "1.0", "ecosystem": "PyPI"},
        "vulnerabilities": vulnerabilities,
        "groups": [{"ids": ids, "aliases": ["CVE-2026-0001"], "max_severity": severity}],
    })
}

fn report(packages: &[Value]) -> Report {
    let text = json!({
        "results": [{"source": {"path": "/workspace/source/repository/a/requirements.txt", "type": "lockfile"}, "packages": packages}],
        "experimental_config": {},
    });
    Report::read(text.to_string().as_bytes()).expect("a report")
}

fn rules() -> Rules {
    Rules {
        minimum: Severity::Low,
        ignore_unfixed: false,
        ignored: BTreeSet::new(),
        root: "/workspace/source/repository".into(),
    }
}

#[test]
fn b3_a_finding_says_which_package_where_and_what_helps() {
    let judged = judge(&report(&[package("bad", &["OSV-1"], "9.8", Some("2.0"))]), &rules());
    assert_eq!(
        judged.findings,
        [
            "a/requirements.txt: bad 1.0 (PyPI) has OSV-1, critical (9.8), fixed in 2.0: Runs what it [31m is asked to"
        ]
    );
    assert_eq!((judged.below, judged.unfixed, judged.ignored), (0, 0, 0));
}

#[test]
fn b3_what_is_less_bad_does_not_count_and_what_nobody_knows_does() {
    let all = [
        package("low", &["OSV-1"], "3.9", Some("2")),
        package("medium", &["OSV-2"], "6.9", Some("2")),
        package("high", &["OSV-3"], "7.0", Some("2")),
        package("critical", &["OSV-4"], "9.0", Some("2")),
        package("unknown", &["OSV-5"], "", Some("2")),
        package("odd", &["OSV-6"], "NaN", Some("2")),
    ];
    let names = |minimum: Severity| -> Vec<String> {
        let judged = judge(&report(&all), &Rules { minimum, ..rules() });
        assert_eq!(judged.findings.len() + judged.below, all.len());
        judged
            .findings
            .iter()
            .filter_map(|line| line.split(' ').nth(1))
            .map(str::to_owned)
            .collect()
    };
    assert_eq!(names(Severity::Low), ["odd", "unknown", "critical", "high", "medium", "low"]);
    assert_eq!(names(Severity::High), ["odd", "unknown", "critical", "high"]);
    assert_eq!(names(Severity::Critical), ["odd", "unknown", "critical"]);
}

#[test]
fn b3_what_has_no_fix_and_what_the_template_names_is_left_out_when_asked() {
    let all =
        [package("stuck", &["OSV-1"], "9.8", None), package("fixed", &["OSV-2"], "9.8", Some("2"))];
    let judged = judge(&report(&all), &rules());
    assert_eq!(judged.findings.len(), 2);
    assert!(judged.findings[1].contains("no fixed version"), "{judged:?}");
    let judged = judge(&report(&all), &Rules { ignore_unfixed: true, ..rules() });
    assert_eq!((judged.findings.len(), judged.unfixed), (1, 1), "{judged:?}");
    for name in ["OSV-2", "CVE-2026-0001"] {
        let judged =
            judge(&report(&all[1..]), &Rules { ignored: [name.to_owned()].into(), ..rules() });
        assert_eq!((judged.findings.len(), judged.ignored), (0, 1), "{judged:?}");
    }
    let mut unimportant = package("minor", &["OSV-3"], "9.8", Some("2"));
    unimportant["groups"][0]["experimental_analysis"] =
        json!({"OSV-3": {"called": true, "unimportant": true}});
    let judged = judge(&report(&[unimportant]), &rules());
    assert_eq!((judged.findings.len(), judged.unfixed), (0, 1), "{judged:?}");
}

#[test]
fn b3_lines_about_findings_are_short_whatever_a_lock_file_says() {
    let long = "é".repeat(10_000);
    let judged = judge(&report(&[package(&long, &["OSV-1"], "9.8", Some(&long))]), &rules());
    assert!(judged.findings[0].chars().count() <= MAX_LINE + 1, "{judged:?}");
    let mut nameless = package("a", &["OSV-1"], "9.8", None);
    nameless["groups"][0]["ids"] = json!([]);
    nameless["vulnerabilities"] = json!([]);
    assert_eq!(judge(&report(&[nameless]), &rules()).findings.len(), 1);
    let mut ungrouped = package("a", &["OSV-1", "OSV-2"], "9.8", None);
    ungrouped["groups"] = json!([]);
    assert_eq!(judge(&report(&[ungrouped]), &rules()).findings.len(), 2);
    for broken in ["", "[]", "{}", "{\"results\": [{}]}", "{\"results\": 1}"] {
        assert!(Report::read(broken.as_bytes()).is_err(), "{broken}");
    }
}
