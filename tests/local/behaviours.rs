//! The list of behaviours (`docs/behaviours.md`) and the names of the tests agree: each behaviour has a test, and
//! each id in the name of a test is in the list.
#![allow(clippy::expect_used, clippy::panic, clippy::disallowed_types, clippy::disallowed_methods)]

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

const ROOT: &str = env!("CARGO_MANIFEST_DIR");
const LIST: &str = "docs/behaviours.md";

/// Where tests are, below the root of the repository.
const FOLDERS: [&str; 5] = ["core", "src", "tests", "scripts/lib", "runtime/tests"];

/// The letters of behaviours, in the order of the list. Other letters name other catalogues: `s` scenarios,
/// `v` attacks, `u` pains of users, `p` performance.
const LETTERS: &str = "GAMTBWOCD";

/// Where an id belongs in the list. `None` if it is not the id of a behaviour.
fn position(id: &str) -> Option<(usize, u32)> {
    let letter = id.chars().next()?;
    let digits = &id[letter.len_utf8()..];
    let is_plain = digits.chars().all(|c| c.is_ascii_digit()) && !digits.starts_with('0');
    let number = digits.parse::<u32>().ok().filter(|_| is_plain)?;
    Some((LETTERS.find(letter)?, number))
}

/// The behaviours that the name of a test starts with, as in the list: `g12_g22_…` gives `G12` and `G22`.
fn ids(name: &str) -> Vec<String> {
    let is_id = |word: &&str| {
        let digits = word.trim_start_matches(|c: char| c.is_ascii_lowercase());
        word.len() == digits.len() + 1
            && !digits.is_empty()
            && digits.chars().all(|c| c.is_ascii_digit())
    };
    name.split('_')
        .take_while(is_id)
        .map(str::to_ascii_uppercase)
        .filter(|id| id.starts_with(|c: char| LETTERS.contains(c)))
        .collect()
}

/// The names of the tests of a Rust file: the functions with `#[test]` or `#[tokio::test]`.
fn rust_tests(text: &str) -> Vec<&str> {
    let (mut is_test, mut names) = (false, Vec::new());
    for line in text.lines().map(str::trim_start) {
        is_test |= line.starts_with("#[test]") || line.starts_with("#[tokio::test");
        let line = line.strip_prefix("async ").unwrap_or(line);
        if let Some(rest) = line.strip_prefix("fn ") {
            if is_test {
                names.extend(rest.split('(').next());
            }
            is_test = false;
        }
    }
    names
}

/// The names of the tests of a Python file, without `test_` in front.
fn python_tests(text: &str) -> Vec<&str> {
    let tests = text.lines().filter_map(|line| line.trim_start().strip_prefix("def test_"));
    tests.filter_map(|rest| rest.split('(').next()).collect()
}

/// Adds all files below a folder.
fn add_files(folder: &Path, files: &mut Vec<PathBuf>) {
    let entries = std::fs::read_dir(folder)
        .unwrap_or_else(|error| panic!("cannot read {}: {error}", folder.display()));
    for entry in entries {
        let path = entry.expect("entry of a folder").path();
        if path.is_dir() {
            add_files(&path, files);
        } else {
            files.push(path);
        }
    }
}

/// All tests of the repository: file and name.
fn all_tests() -> Vec<(String, String)> {
    let mut files = Vec::new();
    for folder in FOLDERS {
        add_files(&Path::new(ROOT).join(folder), &mut files);
    }
    files.sort();
    let mut tests = Vec::new();
    for path in files {
        let names: fn(&str) -> Vec<&str> = match path.extension().and_then(OsStr::to_str) {
            Some("rs") => rust_tests,
            Some("py") => python_tests,
            _ => continue,
        };
        let file = path.strip_prefix(ROOT).expect("below the root").display().to_string();
        let text = std::fs::read_to_string(&path)
            .unwrap_or_else(|error| panic!("cannot read {file}: {error}"));
        tests.extend(names(&text).into_iter().map(|name| (file.clone(), name.to_owned())));
    }
    tests
}

/// The ids of the list in its order, and what is wrong with its rows.
fn rows(list: &str) -> (Vec<&str>, Vec<String>) {
    let (mut listed, mut wrong) = (Vec::new(), Vec::new());
    let mut last: Option<(usize, u32)> = None;
    for (number, line) in (1_usize..).zip(list.lines()) {
        let Some(row) = line.strip_prefix('|') else { continue };
        let cells: Vec<&str> = row.trim_end_matches('|').split('|').map(str::trim).collect();
        match cells.as_slice() {
            ["id", "behaviour"] | ["---", "---"] => {}
            [id, sentence] if !sentence.is_empty() => {
                let Some(here) = position(id) else {
                    wrong.push(format!(
                        "{LIST}:{number}: `{id}` is not an id. Write one letter of {LETTERS} and a number without leading zeros."
                    ));
                    continue;
                };
                if last.is_some_and(|last| last >= here) {
                    wrong.push(format!(
                        "{LIST}:{number}: {id} is listed twice or is not sorted. Sort by letter ({LETTERS}), then by number."
                    ));
                }
                last = Some(here);
                listed.push(*id);
            }
            _ => wrong.push(format!("{LIST}:{number}: a row needs an id and one sentence.")),
        }
    }
    (listed, wrong)
}

/// Where the list and the tests (file and name) disagree, with what to do.
fn disagreements(list: &str, tests: &[(String, String)]) -> Vec<String> {
    let (listed, mut wrong) = rows(list);
    let mut tested = BTreeSet::new();
    for (file, name) in tests {
        for id in ids(name) {
            if !listed.contains(&id.as_str()) {
                wrong.push(format!(
                    "{file}: the test {name} names {id}, which {LIST} does not list. Add a row for {id}, or rename the test."
                ));
            }
            tested.insert(id);
        }
    }
    for id in listed {
        if !tested.contains(id) {
            wrong.push(format!(
                "{LIST}: no test is named after {id}. Rename the test that checks it to `{}_…`, write one, or remove the row.",
                id.to_ascii_lowercase()
            ));
        }
    }
    wrong
}

#[test]
fn each_behaviour_has_a_test_and_each_id_of_a_test_is_listed() {
    let list = std::fs::read_to_string(Path::new(ROOT).join(LIST)).expect(LIST);
    let tests = all_tests();
    assert!(tests.len() > 500, "only {} tests were found below {FOLDERS:?}", tests.len());
    assert!(rows(&list).0.len() > 40, "only few rows were found in {LIST}");
    let wrong = disagreements(&list, &tests);
    assert!(wrong.is_empty(), "{LIST} and the tests disagree:\n{}", wrong.join("\n"));
}

#[test]
fn a_name_starts_with_the_ids_of_its_behaviours() {
    let is = |name: &str, expected: &[&str]| assert_eq!(ids(name), expected, "{name}");
    is("g12_a_mass_prune_is_held", &["G12"]);
    is("g12_g22_an_object_is_handed_over", &["G12", "G22"]);
    is("a5_a13_what_is_read_counts", &["A5", "A13"]);
    is("a3_u02_what_the_pods_were_told_stays", &["A3"]);
    is("v01_v04_urls_are_refused", &[]);
    is("p11_a_settled_system_makes_no_write", &[]);
    is("nothing_is_known_of_g12_here", &[]);
    is("a_13_b2_is_no_id", &[]);
    is("g_is_a_letter", &[]);
    is("ab1_is_no_id", &[]);
    // Another spelling of an id is not in the list.
    is("g01_has_a_zero", &["G01"]);
}

#[test]
fn tests_are_found_by_their_attribute() {
    let text = "#[test]\nfn g1_a() {}\nfn g2_b() {}\n    #[tokio::test(flavor = \"x\")]\n    #[ignore]\n    async fn g3_c() {\n";
    assert_eq!(rust_tests(text), ["g1_a", "g3_c"]);
    assert_eq!(python_tests("class T:\n    def test_t1_a(self):\n    def b(self):\n"), ["t1_a"]);
}

#[test]
fn what_disagrees_is_named_with_what_to_do() {
    let test = |name: &str| ("src/a.rs".to_owned(), name.to_owned());
    let list = "| id | behaviour |\n|---|---|\n| G1 | One. |\n| G3 | Three. |\n";
    assert!(disagreements(list, &[test("g1_a"), test("g3_s01_b"), test("c")]).is_empty());

    let wrong = disagreements(list, &[test("g1_a"), test("g2_b")]).join("\n");
    assert!(wrong.contains("src/a.rs: the test g2_b names G2"), "{wrong}");
    assert!(wrong.contains("no test is named after G3"), "{wrong}");

    let tests = [test("g1_a"), test("a1_b")];
    for (list, expected) in [
        ("| G1 | One. |\n| G1 | One. |\n| A1 | Two. |\n", ":2: G1 is listed twice"),
        ("| A1 | Two. |\n| G1 | One. |\n", ":2: G1 is listed twice or is not sorted"),
        ("| G1 | One. |\n| A1 | Two. |\n| X1 | Three. |\n", ":3: `X1` is not an id"),
        ("| G1 | One. |\n| A1 | Two. |\n| A02 | Three. |\n", ":3: `A02` is not an id"),
        ("| G1 | One. |\n| A1 | Two. |\n| A2 | |\n", ":3: a row needs"),
        ("| G1 | One. | file |\n| A1 | Two. |\n", ":1: a row needs"),
    ] {
        let wrong = disagreements(list, &tests);
        assert!(wrong.iter().any(|text| text.contains(expected)), "{list}{wrong:?}");
    }
    let sorted = "| G2 | a |\n| G10 | b |\n| A1 | c |\n";
    assert_eq!(rows(sorted), (vec!["G2", "G10", "A1"], Vec::new()));
}

#[test]
fn g18_every_reason_of_a_git_sync_is_explained() {
    use convoke_core::sync::reasons::{EngineReason, SourceReason};
    let page = std::fs::read_to_string(Path::new(ROOT).join("docs/gitsync.md")).expect("the page");
    let engine = EngineReason::ALL.iter().map(|reason| reason.as_str());
    let source = SourceReason::ALL.iter().map(|reason| reason.as_str());
    let is_missing = |reason: &&str| !page.contains(&format!("`{reason}`"));
    let missing: Vec<_> = engine.chain(source).filter(is_missing).collect();
    assert!(missing.is_empty(), "docs/gitsync.md says nothing of {missing:?}");
}
