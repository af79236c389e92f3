//! YAML as such: places, several documents, what is refused.

use super::*;

#[test]
fn g10_problems_stand_at_the_right_character() {
    let catalog = load_one(&agent(
        "ä",
        "  # comment\n  replicas: \"two\"\n  modle: x\n  mcpServers:\n  - name: a\n  -   nam: b\n",
    ));
    assert_eq!(
        shown(&catalog),
        [
            "a.yaml:4:9 CVK0209 `ä` is no valid name",
            "a.yaml:8:13 CVK0301 `spec.replicas` must be an integer, not a string",
            "a.yaml:9:3 CVK0302 unknown field `modle` in `spec`",
            "a.yaml:12:7 CVK0302 unknown field `nam` in `spec.mcpServers[1]`",
            "a.yaml:12:7 CVK0303 `spec.mcpServers[1].name` is missing",
        ]
    );
    assert_eq!(catalog.problems[2].hint.as_deref(), Some("did you mean `model`?"));
    assert_eq!(catalog.problems[3].hint.as_deref(), Some("did you mean `name`?"));
}

#[test]
fn columns_count_characters_and_survive_bom_and_crlf() {
    let text = agent("a", "  description: {ä😀: 1, b: 2}\n");
    let expected = ["7:16 CVK0301"];
    assert_eq!(places(&load_one(&text)), expected);
    assert_eq!(places(&load_one(&format!("\u{feff}{text}"))), expected);
    assert_eq!(places(&load_one(&text.replace('\n', "\r\n"))), expected);
    let text = agent("a", "  env: [{name: ä😀, value: 7}]\n");
    assert_eq!(places(&load_one(&text)), ["7:16 CVK0307", "7:27 CVK0301"]);
    // The BOM hides nothing on the first line either.
    assert_eq!(places(&load_one("\u{feff}kind: Agent\n")), ["1:1 CVK0202"]);
}

#[test]
fn a_broken_document_hides_no_other() {
    let text = format!(
        "{}---\nkind: [Agent\n---\n{}---\n{}",
        agent("one", ""),
        agent("two", "  unknown: 1\n"),
        agent("three", "")
    );
    let catalog = load_one(&text);
    assert_eq!(places(&catalog), ["8:7 CVK0101", "16:3 CVK0302"]);
    assert_eq!(names(&catalog), Vec::<String>::new());
    assert_eq!(broken(&catalog), ["Agent/one", "Agent/three", "Agent/two"]);
    assert!(catalog.broken_paths.contains("a.yaml"));
}

#[test]
fn a_document_that_breaks_off_is_still_known_by_name() {
    let catalog = load_one(&agent("one", "  description: \"never closed\n"));
    assert_eq!(broken(&catalog), ["Agent/one"]);
    assert!(catalog.broken_paths.contains("a.yaml"));
    assert_eq!(catalog.problems.len(), 1);
    assert_eq!(catalog.problems[0].object.as_deref(), Some("Agent/one"));
}

#[test]
fn empty_documents_and_comments_are_nothing() {
    for text in [
        "",
        "\n",
        "# only a comment\n",
        "---\n---\n...\n---\n",
        "~\n",
        "null\n---\n# x\n",
        "\u{feff}",
    ] {
        let catalog = load_one(text);
        assert_eq!(shown(&catalog), Vec::<String>::new(), "{text:?}");
        assert_eq!(catalog.documents, 0, "{text:?}");
    }
    let text =
        format!("---\n# first\n---\n{}...\n---\n---\n{}---\n", agent("one", ""), agent("two", ""));
    let catalog = load_one(&text);
    assert_eq!(shown(&catalog), Vec::<String>::new());
    assert_eq!(names(&catalog), ["Agent/one", "Agent/two"]);
}

#[test]
fn v29_what_two_readers_would_read_differently_is_refused() {
    for (more, expected) in [
        ("  suspend: true\n  suspend: false\n", "8:3 CVK0102"),
        ("  \"modelAPI\": x\n", "7:3 CVK0102"),
        ("  <<: {suspend: true}\n", "7:3 CVK0103"),
        ("  model: !include secret.yaml\n", "7:19 CVK0104"),
        ("  model: !!binary aGk=\n", "7:19 CVK0104"),
        ("  config: !ours {}\n", "7:17 CVK0104"),
        ("  mcpServers: !!set [a]\n", "7:21 CVK0104"),
        ("  replicas: !!int x\n", "7:19 CVK0104"),
        ("  model: *nowhere\n", "7:10 CVK0105"),
        ("  config: &c {memory: *c}\n", "7:23 CVK0105"),
        ("  ? [a]\n  : b\n", "7:5 CVK0108"),
        ("  model: &m x\n  *m : y\n", "8:3 CVK0108"),
        ("  replicas: 017\n", "7:13 CVK0107"),
        ("  replicas: .nan\n", "7:13 CVK0107"),
        ("  replicas: 1e400\n", "7:13 CVK0107"),
        ("  replicas: 99999999999999999999\n", "7:13 CVK0107"),
        ("  suspend: no\n", "7:12 CVK0301"),
        ("  replicas: 1.0\n", "7:13 CVK0301"),
        ("\tmodel: x\n", "6:13 CVK0101"),
    ] {
        let catalog = load_one(&agent("one", more));
        assert_eq!(places(&catalog), [expected], "{more}: {:?}", shown(&catalog));
        assert_eq!(broken(&catalog), ["Agent/one"], "{more}");
    }
    let catalog = load_one(&agent("one", "  model: !!str 017\n  description: no\n"));
    assert_eq!(shown(&catalog), Vec::<String>::new());
}

#[test]
fn v30_encodings_are_utf_8_or_an_error() {
    let good = agent("one", "");
    let utf16 = |big: bool| -> Vec<u8> {
        let units = std::iter::once(0xfeff).chain(good.encode_utf16());
        units.flat_map(|unit| if big { unit.to_be_bytes() } else { unit.to_le_bytes() }).collect()
    };
    let mut latin = good.clone().into_bytes();
    latin.extend(b"  description: \"\xe4\"\n");
    for (content, expected) in [
        (utf16(true), "1:1 CVK0003"),
        (utf16(false), "1:1 CVK0003"),
        (utf16(true)[2..].to_vec(), "1:1 CVK0004"),
        (latin, "7:17 CVK0003"),
        (format!("{good}\0---\n").into_bytes(), "7:1 CVK0004"),
        (format!("{good}  model: a\u{7}b\n").into_bytes(), "7:11 CVK0004"),
        (format!("{good}---\n\u{feff}kind: x\n").into_bytes(), "8:1 CVK0101"),
    ] {
        let catalog = load(&MemoryTree::new().file("a.yaml", &content));
        assert_eq!(places(&catalog)[0], expected);
        assert!(catalog.definitions.is_empty());
        assert!(catalog.broken_paths.contains("a.yaml"));
    }
}
