//! Small mistakes in files: none of them loses an object in silence.

use super::tests::{MODEL, ids, load, places, team, tree};
use super::*;

#[test]
fn no_truncation_of_a_good_file_loses_its_object_silently() {
    let mut loader = Loader::new(Limits::default());
    for end in 0..MODEL.len() {
        let text = &MODEL[..end];
        let catalog = loader.load(&tree(&[("f.yaml", text)]), &team());
        let silent = catalog.problems.is_empty()
            && !catalog.definitions.contains_key(&ObjectId::new(Kind::ModelAPI, "m"));
        assert!(!silent, "cut after {end} bytes: {text:?} gives {:?}", ids(&catalog));
    }
}

#[test]
fn g7_no_small_mistake_loses_an_object_silently() {
    let two = format!("{MODEL}---\n{}", MODEL.replace("name: m", "name: n"));
    let other = MODEL.replace("name: m", "name: o");
    let mut loader = Loader::new(Limits::default());
    let mut check = |text: &str| {
        let catalog = loader.load(&tree(&[("f.yaml", text), ("o.yaml", &other)]), &team());
        for name in ["m", "n"] {
            let id = ObjectId::new(Kind::ModelAPI, name);
            let held = catalog.broken.contains_key(&id) || catalog.broken_paths.contains("f.yaml");
            assert!(catalog.definitions.contains_key(&id) || held, "{name} is gone: {text:?}");
        }
    };
    let insertions = [
        "\0",
        "#",
        "\n",
        "\r",
        "\t",
        "'",
        "|\n",
        "{",
        "]",
        "&a ",
        "!x ",
        "? ",
        ": ",
        "- ",
        "--- ",
        "...\n",
        "%YAML 1.2\n",
        "\u{feff}",
        "\u{2028}",
        "<<: ",
        "\n--- |\n",
        "%",
    ];
    for (at, insertion) in (0..=two.len()).flat_map(|at| insertions.map(|text| (at, text))) {
        // Not every mistake at every place: each place gets one of five.
        if (at + insertion.len()) % 5 == 0 {
            check(&format!("{}{insertion}{}", &two[..at], &two[at..]));
        }
    }
    for (at, length) in (0..two.len()).flat_map(|at| [1, 4].map(|length| (at, length))) {
        if at + length <= two.len() {
            check(&format!("{}{}", &two[..at], &two[at + length..]));
        }
    }
}

#[test]
fn g13_a_document_that_says_twice_who_it_is_holds_the_whole_file() {
    let catalog = load(&[("f.yaml", &MODEL.replace("  name: m", "  name: x\n  name: m"))]);
    assert_eq!(places(&catalog), ["f.yaml:5:3 CVK0002"]);
    assert!(catalog.broken_paths.contains("f.yaml"));
}

#[test]
fn v36_labels_that_the_api_server_refuses_are_refused_here() {
    let long = "x".repeat(64);
    for (field, key, value, ok) in [
        ("labels", "app.kubernetes.io/part-of", "a_b.C-1", true),
        ("labels", "team", "''", true),
        ("labels", "team", "-a", false),
        ("labels", "team", "a b", false),
        ("labels", "team", long.as_str(), false),
        ("labels", long.as_str(), "x", false),
        ("labels", "a/b/c", "x", false),
        ("labels", "Upper.example/b", "x", false),
        ("labels", "''", "x", false),
        ("annotations", "example.com/note", "any text: of, any kind", true),
        ("annotations", "ex ample", "x", false),
    ] {
        let value = if value.contains(' ') { format!("{value:?}") } else { value.to_owned() };
        let text = MODEL.replace("name: m", &format!("name: m\n  {field}:\n    {key}: {value}"));
        let catalog = load(&[("f.yaml", &text)]);
        assert_eq!(!catalog.has_errors(), ok, "{field} {key} {value}: {:?}", catalog.problems);
        assert!(ok || places(&catalog)[0].starts_with("f.yaml:6:"));
    }
}

#[test]
fn g7_the_case_of_an_extension_does_not_matter() {
    let catalog = load(&[("M.YAML", MODEL), ("n.Json", "{\n\t\"apiVersion\":\t1\n}\n")]);
    assert_eq!(ids(&catalog), ["ModelAPI/m"]);
    assert_eq!(places(&catalog)[0], "n.Json:1:1 CVK0101");
}

#[test]
fn places_count_characters_from_1_with_crlf_and_bom_and_tabs() {
    let text = "\u{feff}# größer\r\napiVersion: convoke.dev/v1alpha1\r\nkind: ModelAPI\r\nmetadata:\r\n  name: m\r\n  annotations: {größe: 'é', x: 5}\r\nspec:\r\n  mode:\tExternl\r\n";
    assert_eq!(
        places(&load(&[("f.yaml", text)])),
        ["f.yaml:6:17 CVK0105", "f.yaml:6:32 CVK0203", "f.yaml:8:9 CVK0204"]
    );
}

#[test]
fn g7_a_flood_of_mistakes_stays_short() {
    let many = MODEL.replace("  mode", &format!("{}  mode", unknown_fields(2000)));
    let long = MODEL.replace("name: m", &format!("labels: {{? {:?} : 1}}", "k".repeat(500_000)));
    for text in [many, long] {
        let catalog = load(&[("f.yaml", &text)]);
        assert!(catalog.has_errors());
        assert!(catalog.problems.len() <= 101, "{}", catalog.problems.len());
        assert!(catalog.problems.iter().all(|p| p.message.len() < 300));
    }
}

fn unknown_fields(count: usize) -> String {
    (0..count).fold(String::new(), |text, n| format!("{text}  unknown{n}: 1\n"))
}
