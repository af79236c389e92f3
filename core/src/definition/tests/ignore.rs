//! Ignored entries: one table for each rule.

use super::super::tests::{Flaky, MODEL, load, places, tree};
use super::super::tree::TreeProblem;
use super::super::{Catalog, Context, Limits, Loader};
use super::*;

fn patterns(patterns: &[&str]) -> Patterns {
    Patterns::new(patterns).expect("patterns")
}

/// The verdict on each path: `+` kept, `-` ignored, `?` unknown.
fn verdicts(files: &[(&str, &str)], own: &Patterns, base: &str, paths: &[&str]) -> String {
    let tree = tree(files);
    let mut rules = Rules::read(&tree, base, own);
    let sign = |verdict| match verdict {
        Verdict::Kept => '+',
        Verdict::Ignored => '-',
        Verdict::Unknown => '?',
    };
    paths.iter().map(|path| sign(rules.entry(path))).collect()
}

#[test]
fn g6_patterns_mean_what_git_takes_them_for() {
    let paths = ["a.yaml", "drafts/a.yaml", "x/drafts/b/a.yaml", "x/keep.yaml", "x/a.yaml"];
    for (lines, expected) in [
        ("", "+++++"),
        ("# a.yaml\n\n", "+++++"),
        ("a.yaml\n", "---+-"),
        ("/a.yaml\r\n", "-++++"),
        ("drafts/\n", "+--++"),
        ("**/drafts/**\n", "+--++"),
        ("/drafts\n", "+-+++"),
        ("x/*.yaml\n!keep.yaml\n", "++++-"),
        ("*.yaml\n!keep.yaml\n", "---+-"),
        // A pattern cannot take a file out of an ignored folder.
        ("x/\n!x/keep.yaml\n", "++---"),
        // A pattern for folders alone does not match a file.
        ("a.yaml/\n", "+++++"),
        ("x/**/a.yaml\n", "++-+-"),
        ("[ab].yaml\n", "---+-"),
        ("\\!a.yaml\n", "+++++"),
        ("?.yaml\n", "---+-"),
    ] {
        let found = verdicts(&[(FILE, lines)], &Patterns::default(), ".", &paths);
        assert_eq!(found, expected, "{lines:?}");
    }
}

#[test]
fn g6_deeper_files_win_and_the_gitsync_wins_over_all() {
    let files = [
        ("team/.convokeignore", "*.tmp.yaml\nold/\n"),
        ("team/a/.convokeignore", "!b.tmp.yaml\n/c.yaml\n"),
        // In an ignored folder, so it is not read, and its invalid pattern is no problem.
        ("team/old/.convokeignore", "[\n"),
        // Outside of the synced path.
        (".convokeignore", "*\n"),
    ];
    let paths = [
        "team/x.tmp.yaml",
        "team/a/x.tmp.yaml",
        "team/a/b.tmp.yaml",
        "team/a/c.yaml",
        "team/c.yaml",
        "team/old/x.yaml",
    ];
    let files = &files[..3];
    assert_eq!(verdicts(files, &Patterns::default(), "./team/", &paths), "--+-+-");
    assert_eq!(verdicts(files, &patterns(&["!c.yaml", "b.*"]), "team", &paths), "---++-");
    assert_eq!(verdicts(files, &patterns(&["/a"]), "team", &paths), "----+-");
    assert_eq!(verdicts(files, &patterns(&["!old/"]), "team", &paths)[5..], *"?");
}

#[test]
fn g6_what_a_faulty_file_says_is_unknown_below_its_folder_only() {
    let paths = ["m.yaml", "a/x.yaml", "a/b/x.yaml", "a/drafts/x.yaml"];
    for (content, code, place) in [
        ("ok\n[z-\n", code::IGNORE, Some(place_at(2, 0))),
        ("{a,b\n", code::IGNORE, Some(place_at(1, 0))),
        ("-> /etc/passwd", code::ENTRY, None),
        ("version https://git-lfs.github.com/spec/v1\n", code::ENTRY, None),
    ] {
        let files = [("a/.convokeignore", content), (FILE, "drafts\n")];
        let tree = tree(&files);
        let own = Patterns::default();
        let rules = Rules::read(&tree, "", &own);
        let fault = &rules.faults[0];
        assert_eq!((fault.path.as_str(), fault.code), ("a/.convokeignore", code), "{content}");
        assert_eq!(fault.place, place, "{content}");
        assert_eq!(rules.faults.len(), 1);
        // The patterns of the file could have included drafts again.
        assert_eq!(verdicts(&files, &own, "", &paths), "+???", "{content}");
        assert_eq!(verdicts(&files, &patterns(&["/a/drafts"]), "", &paths), "+??-", "{content}");
    }
}

#[test]
fn g6_patterns_have_budgets() {
    let large = "x".repeat(70_000);
    let many = "x\n".repeat(MAX_PATTERNS + 1);
    for content in [large, many] {
        let tree = tree(&[(FILE, content.as_str())]);
        let own = Patterns::default();
        let rules = Rules::read(&tree, "", &own);
        assert_eq!(rules.faults.len(), 1);
        assert_eq!(rules.faults[0].code, code::BUDGET);
    }
    // No pattern makes matching slow.
    let evil = format!("{}b", "*a".repeat(300));
    let path = "a".repeat(250);
    assert_eq!(verdicts(&[(FILE, &evil)], &Patterns::default(), "", &[&path]), "+");
}

#[test]
fn g6_a_bad_pattern_of_the_gitsync_is_named() {
    let error = Patterns::new(&["ok", "[a-"]).expect_err("bad");
    assert!(error.contains("\"[a-\" is no pattern"), "{error}");
    assert!(Patterns::new(&["a\nb"]).is_err());
}

fn ids(catalog: &Catalog) -> Vec<String> {
    catalog.definitions.keys().map(ToString::to_string).collect()
}

#[test]
fn g6_what_is_ignored_is_not_in_the_commit() {
    let other = MODEL.replace("name: m", "name: n");
    let files = |lines: &'static str| {
        tree(&[
            (FILE, lines),
            ("m.yaml", MODEL),
            ("drafts/n.yaml", &other),
            ("drafts/broken.yaml", "kind: [unclosed"),
            ("drafts/link", "-> /etc/passwd"),
        ])
    };
    let mut loader = Loader::new(Limits::default());
    let none = loader.load(&files("# nothing\n"), &Context::default());
    assert_eq!(ids(&none), ["ModelAPI/m", "ModelAPI/n"]);
    assert_eq!((places(&none).len(), none.ignored), (2, 0));
    let parsed = loader.parsed();
    let some = loader.load(&files("drafts/\n"), &Context::default());
    assert_eq!(ids(&some), ["ModelAPI/m"]);
    assert_eq!((some.problems.as_slice(), some.ignored), (&[][..], 3));
    assert!(some.broken_paths.is_empty());
    assert_eq!(loader.parsed(), parsed, "nothing is parsed for it");
    // The patterns of the GitSync win. The ignore files are those of this commit.
    let own =
        Context { ignore: patterns(&["!drafts", "*roken.yaml", "link"]), ..Context::default() };
    assert_eq!(ids(&loader.load(&files("drafts/\n"), &own)), ["ModelAPI/m", "ModelAPI/n"]);
    let all = loader.load(&files("*\n"), &Context::default());
    assert_eq!(places(&all), ["?:?:? CVK0008"]);
    assert!(all.problems[0].message.contains("are ignored"), "{}", all.problems[0].message);
}

#[test]
fn g6_a_file_that_is_included_by_name_need_not_be_kept() {
    let agent = "apiVersion: convoke.dev/v1alpha1\nkind: Agent\nmetadata:\n  name: a\nspec:\n  modelAPI: m\n  config:\n    instructionsFile: prompts/a.md\n";
    let files = [(FILE, "prompts/\n"), ("a.yaml", agent), ("prompts/a.md", "p")];
    let catalog = load(&files);
    assert_eq!(catalog.problems, []);
    assert_eq!(ids(&catalog), ["Agent/a"]);
}

#[test]
fn g13_a_faulty_file_of_patterns_holds_what_it_could_be_about() {
    let other = MODEL.replace("name: m", "name: n");
    let files = [
        ("a/.convokeignore", "drafts/\n[z-a]\n"),
        ("a/m.yaml", MODEL),
        ("a/drafts/broken.yaml", "kind: [unclosed"),
        ("n.yaml", &other),
    ];
    let catalog = load(&files);
    assert_eq!(ids(&catalog), ["ModelAPI/n"]);
    assert_eq!(places(&catalog), ["a/.convokeignore:2:1 CVK0009"]);
    assert_eq!(catalog.broken.values().collect::<Vec<_>>(), ["a/m.yaml"]);
    assert!(catalog.broken_paths.contains("a/drafts/broken.yaml"));
}

#[test]
fn g6_a_file_of_patterns_that_cannot_be_read_is_read_again() {
    let mut loader = Loader::new(Limits::default());
    let files = [(FILE, "x\n"), ("m.yaml", MODEL)];
    let catalog = loader.load(&Flaky(tree(&files), FILE), &Context::default());
    assert_eq!(places(&catalog), [".convokeignore:?:? CVK0007"]);
    assert!(catalog.again && catalog.definitions.is_empty());
    let catalog = loader.load(&tree(&files), &Context::default());
    assert_eq!(catalog.problems, []);
    assert_eq!(ids(&catalog), ["ModelAPI/m"]);
}

/// A tree with parts that were left out.
struct Cut(super::super::tests::Memory, Vec<TreeProblem>);

impl RepositoryTree for Cut {
    fn entries(&self) -> &[TreeEntry] {
        self.0.entries()
    }
    fn problems(&self) -> &[TreeProblem] {
        &self.1
    }
    fn lookup(&self, path: &str) -> Result<Option<TreeEntry>, TreeError> {
        self.0.lookup(path)
    }
    fn read(&self, entry: &TreeEntry, max_bytes: u64) -> Result<std::sync::Arc<[u8]>, TreeError> {
        self.0.read(entry, max_bytes)
    }
}

#[test]
fn g6_what_is_left_out_of_an_ignored_folder_is_no_error_and_the_rest_is() {
    let problem =
        |path: &str| TreeProblem { path: path.into(), message: "too deep".into(), hint: None };
    for (path, error) in
        [("drafts/x", false), ("drafts", false), ("x", true), (".", true), ("", true)]
    {
        let files = tree(&[(FILE, "drafts\n.\n*.txt\n"), ("m.yaml", MODEL)]);
        let catalog = Loader::new(Limits::default())
            .load(&Cut(files, vec![problem(path)]), &Context::default());
        assert_eq!(catalog.has_errors(), error, "{path}");
        let all = tree(&[(FILE, "*\n"), ("m.yaml", MODEL)]);
        let catalog = Loader::new(Limits::default())
            .load(&Cut(all, vec![problem(path)]), &Context::default());
        assert!(catalog.has_errors(), "nothing is left: {path}");
    }
}
