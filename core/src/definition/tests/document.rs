//! YAML text into documents: one test for each rule.

use serde_json::json;

use super::*;

const BUDGET: Budget = Budget { documents: 5, depth: 10, nodes: 1000 };

fn one(text: &str) -> Document {
    let parsed = parse(text, BUDGET);
    assert_eq!(parsed.faults, [], "{text}");
    assert!(parsed.faulty.is_empty(), "{text}: {:?}", parsed.faulty);
    assert_eq!(parsed.documents.len(), 1, "{text}");
    parsed.documents.into_iter().next().expect("one")
}

fn faults(text: &str) -> Vec<(u32, u32, &'static str)> {
    let parsed = parse(text, BUDGET);
    let own = parsed.faulty.iter().flat_map(|faulty| &faulty.faults);
    parsed.faults.iter().chain(own).map(|f| (f.place.line, f.place.column, f.code)).collect()
}

#[test]
fn values_follow_the_core_schema() {
    let text = "a: yes\nb: true\nc: 12\nd: -1.5\ne: ~\nf: '12'\ng: 1e3\nh: 0x1f\ni: 1.2.3\nj: !!str 5\nk: \"\"\nl: 12:30\nm: 1m\n";
    let expected = json!({"a": "yes", "b": true, "c": 12, "d": -1.5, "e": null, "f": "12", "g": 1000.0, "h": 31,
        "i": "1.2.3", "j": "5", "k": "", "l": "12:30", "m": "1m"});
    assert_eq!(one(text).value, expected);
}

#[test]
fn every_node_has_its_place() {
    let document = one("# comment\na:\n  b:\n    - x: 1\n    - 'y'\n");
    assert_eq!(document.key_place("/a/b"), Place { line: 3, column: 3 });
    assert_eq!(document.place("/a/b/0/x"), Place { line: 4, column: 10 });
    assert_eq!(document.place("/a/b/1"), Place { line: 5, column: 7 });
    assert_eq!(document.place("/a/b/0/missing"), Place { line: 4, column: 7 });
}

#[test]
fn v26_an_alias_bomb_meets_the_budget() {
    let mut text = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
    for n in 1..9 {
        let items = vec![format!("*a{}", n - 1); 10].join(", ");
        text.push_str(&format!("a{n}: &a{n} [{items}]\n"));
    }
    assert_eq!(faults(&text).last().expect("fault").2, code::BUDGET);
    assert_eq!(one("a: &x {b: 1}\nc: *x\n").value, json!({"a": {"b": 1}, "c": {"b": 1}}));
}

#[test]
fn long_texts_and_keys_cost_what_they_hold() {
    let text = "x".repeat(10_000);
    let aliases = "*a, ".repeat(50);
    for anchor in [format!("&a {text:?}"), format!("&a {{? {text:?} : 1}}")] {
        let faults = faults(&format!("a: {anchor}\nb: [{aliases}]\n"));
        assert_eq!(faults.last().map(|f| (f.0, f.2)), Some((2, code::BUDGET)));
    }
    // The key is kept once, not in the place of every item below it.
    let document = one(&format!("? {text:?}\n: [{}]\n", "1, ".repeat(500)));
    assert_eq!(document.places.nodes.len(), 502);
    let kept: usize = document.places.children.keys().map(|(_, key)| key.len()).sum();
    assert!(kept < 2 * text.len());
    assert_eq!(document.place(&format!("/{text}/499")), Place { line: 2, column: 1501 });
}

#[test]
fn an_explicit_null_is_not_an_empty_document() {
    for (text, count) in [("", 0), ("# c\n---\n---\n", 0), ("null\n", 1), ("--- ~\n", 1)] {
        assert_eq!(parse(text, BUDGET).documents.len(), count, "{text:?}");
    }
}

#[test]
fn v27_v28_deep_nesting_and_many_documents_meet_the_budget() {
    assert_eq!(
        faults(&format!("{}{}", "[".repeat(11), "]".repeat(11))).last().expect("fault").2,
        code::BUDGET
    );
    assert!(!faults(&"[".repeat(100_000)).is_empty());
    assert!(!faults(&"a: ".repeat(100_000)).is_empty());
    assert_eq!(faults(&"--- 1\n".repeat(6)).last().expect("fault").2, code::BUDGET);
}

#[test]
fn v29_v30_what_readers_disagree_on_is_refused_with_its_place() {
    assert_eq!(faults("a: 1\nb: 2\na: 3\n"), [(3, 1, code::DUPLICATE_KEY)]);
    assert_eq!(faults("x: &x {a: 1}\ny:\n  <<: *x\n"), [(3, 3, code::YAML)]);
    assert_eq!(faults("a: !include b.yaml\n"), [(1, 13, code::YAML)]);
    assert_eq!(faults("a: .nan\nb: 1e400\nc: 0123\nd: 99999999999999999999\n").len(), 4);
    assert_eq!(faults("? [a]\n: 1\n")[0].2, code::YAML);
    assert_eq!(faults("a: *a\n")[0].0, 1);
}

#[test]
fn a_broken_document_does_not_hide_the_others() {
    let parsed = parse("a: 1\n---\nb: [1\n---\nc: 3\n---\n", BUDGET);
    assert_eq!(parsed.documents.len(), 2);
    assert_eq!(parsed.faults.len(), 1);
    assert_eq!(parsed.faults[0].code, code::SYNTAX);
    assert!((3..=4).contains(&parsed.faults[0].place.line), "{:?}", parsed.faults);
}

#[test]
fn no_truncation_of_a_good_file_panics() {
    let text =
        "\u{feff}a: &x [1, 'two', {three: \"3\"}]\nb: |\n  text\n  é\n---\nc: *x\nd: 1.5e3\n";
    for end in (0..=text.len()).filter(|end| text.is_char_boundary(*end)) {
        let _ = parse(&text[..end], BUDGET);
    }
}
