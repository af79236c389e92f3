use serde_json::{Value, json};

use super::*;

fn problem(path: Option<&str>, place: Option<(i64, i64)>) -> Problem {
    Problem {
        severity: Severity::Warning,
        path: path.map(str::to_owned),
        line: place.map(|p| p.0),
        column: place.map(|p| p.1),
        code: "CVK0301".into(),
        message: "no such thing".into(),
        hint: Some("make it".into()),
        object: Some("Agent/writer".into()),
    }
}

fn results(problems: &[Problem]) -> Value {
    let log: Value = serde_json::from_str(&render(problems, "my team")).expect("JSON");
    log["runs"][0]["results"].clone()
}

#[test]
fn a_result_has_rule_level_text_and_place() {
    let index = RULES.iter().position(|rule| rule.code == "CVK0301").expect("a rule");
    assert_eq!(
        results(&[problem(Some("team/große agents#1.yaml"), Some((3, 7)))]),
        json!([{
            "ruleId": "CVK0301", "ruleIndex": index, "level": "warning",
            "message": {"text": "no such thing\nHint: make it"},
            "locations": [{
                "physicalLocation": {
                    "artifactLocation": {"uri": "team/gro%C3%9Fe%20agents%231.yaml", "uriBaseId": "%SRCROOT%"},
                    "region": {"startLine": 3, "startColumn": 7},
                },
                "logicalLocations": [{"fullyQualifiedName": "Agent/writer", "kind": "object"}],
            }],
        }])
    );
}

#[test]
fn g10_what_has_no_place_is_told_of_the_first_line_and_of_the_folder() {
    for (path, uri) in [(None, "my%20team"), (Some("a.yaml"), "a.yaml")] {
        let found = results(&[problem(path, None)]);
        let place = json!({
            "artifactLocation": {"uri": uri, "uriBaseId": "%SRCROOT%"},
            "region": {"startLine": 1, "startColumn": 1},
        });
        assert_eq!(found[0]["locations"][0]["physicalLocation"], place);
    }
    assert_eq!(results(&[]), json!([]), "an empty list, not a missing one: nothing was found");
}
