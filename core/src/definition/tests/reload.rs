//! Random changes between two commits: a catalog that is built on the commit before equals that of a whole load.
//! A failing case prints its seed; `case` runs it again.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use super::super::tests::tree;
use super::super::tree::{
    EntryChange, EntryKind, RepositoryTree, TreeChanges, TreeEntry, TreeError, TreeProblem,
};
use super::super::variables::Variables;
use super::super::{Context, Limits, Loader};
use crate::definition::ignore::Patterns;
use crate::test_rng::TestRng;

const CASES: u64 = 36;
const STEPS: usize = 30;

type Files = BTreeMap<String, String>;

/// A commit with its differences from the one before.
struct Commit {
    files: Files,
    entries: Vec<TreeEntry>,
    number: u64,
    changes: Option<TreeChanges>,
    problems: Vec<TreeProblem>,
}

fn entry(path: &str, content: &str) -> TreeEntry {
    let kind = if content.starts_with("-> ") { EntryKind::Symlink } else { EntryKind::File };
    TreeEntry { path: path.into(), id: content.into(), kind }
}

impl Commit {
    fn new(files: &Files, path: &str, number: u64, before: Option<&Self>) -> Self {
        let below = |(at, _): &(&String, &String)| path.is_empty() || at.starts_with("prod/");
        let entries: Vec<_> = files.iter().filter(below).map(|(p, c)| entry(p, c)).collect();
        let changes = before.map(|before| {
            let of = |entries: &[TreeEntry]| -> BTreeMap<String, TreeEntry> {
                entries.iter().map(|entry| (entry.path.clone(), entry.clone())).collect()
            };
            let (old, new) = (of(&before.entries), of(&entries));
            let mut paths: Vec<_> = old.keys().chain(new.keys()).collect();
            paths.sort();
            paths.dedup();
            let differ = paths.into_iter().filter(|path| old.get(*path) != new.get(*path));
            let change = |path: &String| EntryChange {
                path: path.clone(),
                old: old.get(path).map(|entry| entry.kind),
                new: new.get(path).cloned(),
            };
            let outside = |files: &Files| -> Files {
                let outside = files.iter().filter(|file| !below(file));
                outside.map(|(path, content)| (path.clone(), content.clone())).collect()
            };
            let elsewhere = outside(&before.files) != outside(files);
            TreeChanges { since: before.number, entries: differ.map(change).collect(), elsewhere }
        });
        Self { files: files.clone(), entries, number, changes, problems: Vec::new() }
    }
}

impl RepositoryTree for Commit {
    fn number(&self) -> Option<u64> {
        Some(self.number)
    }
    fn changes(&self) -> Option<&TreeChanges> {
        self.changes.as_ref()
    }
    fn entries(&self) -> &[TreeEntry] {
        &self.entries
    }
    fn problems(&self) -> &[TreeProblem] {
        &self.problems
    }
    fn lookup(&self, path: &str) -> Result<Option<TreeEntry>, TreeError> {
        Ok(self.files.get(path).map(|content| entry(path, content)))
    }
    fn read(&self, entry: &TreeEntry, _: u64) -> Result<Arc<[u8]>, TreeError> {
        Ok(self.files[&entry.path].as_bytes().into())
    }
}

const HEAD: &str = "apiVersion: convoke.dev/v1alpha1\n";
const FOLDERS: [&str; 5] = ["", "prod/", "prod/a/", "prod/a/b/", "prod/c/"];
const NAMES: [&str; 12] = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l"];

/// A random document. A few have an error, or the name of another document.
fn document(rng: &mut TestRng, path: &str) -> String {
    let own = path.replace(['/', '.'], "-");
    let name = if rng.one_in(20) { rng.of(&NAMES) } else { &own };
    let number = rng.roll(5);
    match rng.roll(60) {
        0 => format!("{HEAD}kind: Agent\nmetadata: {{name: {name}}}\nspec: {{nonsense: 1}}\n"),
        1 => format!("{HEAD}kind: Agent\nmetadata: {{name: [{name}\n"),
        2 => "kind: ConfigMap\napiVersion: v1\nmetadata: {name: theirs}\n".into(),
        3..=14 => {
            let folder = rng.of(&["", "/prod/", "/prod/c/", "/shared/", "/prod/a/../"]);
            let file = format!("{folder}{}.md", rng.of(&NAMES[..3]));
            format!(
                "{HEAD}kind: Agent\nmetadata: {{name: {name}}}\nspec:\n  modelAPI: m\n  model: x\n  config: {{instructionsFile: {file}}}\n"
            )
        }
        15..=20 => format!(
            "{HEAD}kind: MCPServer\nmetadata: {{name: {name}}}\nspec: {{package: {{registry: Npm, name: p{number}}}}}\n"
        ),
        21..=24 => format!(
            "{HEAD}kind: ModelAPI\nmetadata: {{name: {name}}}\nspec:\n  mode: External\n  external: {{url: 'https://${{HOST}}.example'}}\n"
        ),
        _ => format!(
            "{HEAD}kind: ModelAPI\nmetadata: {{name: {name}}}\nspec:\n  mode: External\n  external: {{url: 'https://m{number}.example'}}\n"
        ),
    }
}

fn edit(files: &mut Files, rng: &mut TestRng) {
    let folder = rng.of(&FOLDERS);
    match rng.roll(30) {
        0 if rng.one_in(3) => {
            let patterns = rng.of(&["b.yaml\n", "*.md\n", "a/\n", "[\n", "# none\n"]);
            files.insert(format!("{folder}.convokeignore"), patterns.into());
        }
        1 if rng.one_in(3) => {
            files.insert(format!("{folder}{}.yaml", rng.of(&NAMES)), "-> x".into());
        }
        2..=7 => {
            let folder = if rng.one_in(3) { "shared/" } else { folder };
            let text = format!("prompt {}\n", rng.roll(4));
            files.insert(format!("{folder}{}.md", rng.of(&NAMES[..3])), text);
        }
        8 if rng.one_in(2) => {
            let text = format!("---\nmodelAPI: m\nmodel: x\n---\nText {}\n", rng.roll(3));
            files.insert(format!("{folder}{}/agent.md", rng.of(&NAMES)), text);
        }
        9..=18 => {
            let at = rng.roll(files.len().max(1));
            let path = files.keys().nth(at).cloned();
            // Most of them are needed.
            if let Some(path) =
                path.filter(|path| path.strip_suffix(".md").is_none() || rng.one_in(8))
            {
                let content = files.remove(&path).unwrap_or_default();
                if rng.one_in(3) {
                    files.insert(format!("{folder}{}.yaml", rng.of(&NAMES)), content);
                }
            }
        }
        _ => {
            let path = format!("{folder}{}.yaml", rng.of(&NAMES));
            let mut text = document(rng, &path);
            if rng.one_in(5) {
                text = format!("{text}---\n{}", document(rng, &format!("{path}-two")));
            }
            files.insert(path, text);
        }
    }
}

fn context(path: &str, hosts: usize, ignore: &[&str]) -> Context {
    let value = |n: usize| ("HOST".to_owned(), format!("h{n}"));
    let namespace = Some("team".into());
    let variables = (hosts > 0).then(|| Variables::new((hosts > 1).then(|| value(hosts))));
    let ignore = Patterns::new(ignore).expect("good patterns");
    Context { namespace, path: path.into(), ignore, variables }
}

/// Runs one case. Returns how many commits were built on the one before, and how many were loaded. `fresh` loads every tree
/// whole, sometimes without its cache. It is shared, because a new loader takes longer.
fn case(seed: u64, fresh: &mut Loader) -> (u64, u64) {
    let mut rng = TestRng::new(seed);
    let path = rng.of(&["", "prod"]);
    let (mut hosts, mut ignore) = (2, &[][..]);
    let mut files = Files::new();
    for folder in FOLDERS.iter().chain(&["shared/"]) {
        for name in &NAMES[..3] {
            files.insert(format!("{folder}{name}.md"), "prompt\n".into());
        }
    }
    for name in &NAMES[..4] {
        let url = format!("'https://{name}.example'");
        let text = format!(
            "{HEAD}kind: ModelAPI\nmetadata: {{name: {name}0}}\nspec: {{mode: External, external: {{url: {url}}}}}\n"
        );
        files.insert(format!("prod/{name}0.yaml"), text);
    }
    let mut limits = Limits::default();
    match rng.roll(3) {
        // The budgets of the whole are reached now and then.
        0 => limits.total_documents = 5 + rng.roll(9),
        1 => limits.total_bytes = 600 + 100 * rng.roll(12) as u64,
        _ => {}
    }
    fresh.files.limits = limits;
    let mut loader = Loader::new(limits);
    let mut before: Option<Commit> = None;
    let mut loads = 0;
    for number in 0..STEPS {
        let last = files.clone();
        for _ in 0..=rng.roll(3) {
            edit(&mut files, &mut rng);
        }
        if rng.one_in(20) {
            hosts = if rng.one_in(5) { rng.roll(4) } else { 2 + rng.roll(2) };
            ignore = rng.of(&[&[][..], &["b.yaml"], &["c/"]]);
        }
        let mut commit = Commit::new(&files, path, number as u64, before.as_ref());
        if rng.one_in(20) {
            let (message, hint) = ("too deep".to_owned(), None);
            let problem = TreeProblem { path: "prod/c/x".into(), message, hint };
            (commit.problems, commit.changes) = (vec![problem], None);
        }
        // One in ten commits is fetched, but not loaded.
        if !rng.one_in(10) {
            let context = context(path, hosts, ignore);
            let found = loader.load(&commit, &context);
            fresh.base = None;
            if rng.one_in(4) {
                fresh.cache = HashMap::new();
            }
            let anew = fresh.load(&commit, &context);
            assert_eq!(found, anew, "seed {seed}, step {number}: {last:#?} to {files:#?}");
            loads += 1;
            if anew.has_errors() && !rng.one_in(4) {
                // The change is reverted.
                files = last;
            }
        }
        let problems = !commit.problems.is_empty();
        before = (!problems).then_some(commit);
    }
    (loads - loader.walked, loads)
}

#[test]
fn g7_what_is_built_on_the_commit_before_is_what_a_load_anew_gives() {
    let (mut built, mut loads) = (0, 0);
    let mut fresh = Loader::new(Limits::default());
    for seed in 1..=CASES {
        let (some, all) = case(seed, &mut fresh);
        (built, loads) = (built + some, loads + all);
    }
    // The test would be void if no commit was built on the one before.
    assert!(built * 8 > loads, "{built} of {loads} were built on the commit before");
}

#[test]
fn g7_one_changed_file_is_all_that_is_looked_at() {
    let mut files: Files = (0..300)
        .map(|n| {
            let spec =
                format!("spec: {{mode: External, external: {{url: 'https://m{n}.example'}}}}");
            let text = format!("{HEAD}kind: ModelAPI\nmetadata: {{name: m{n}}}\n{spec}\n");
            (format!("f{}/m{n}.yaml", n / 100), text)
        })
        .collect();
    let mut loader = Loader::new(Limits::default());
    let first = Commit::new(&files, "", 1, None);
    let before = loader.load(&first, &Context::default());
    assert_eq!((loader.walked, loader.parsed(), before.problems.len()), (1, 300, 0));
    let text = files["f1/m100.yaml"].replace("m100.example", "other.example");
    files.insert("f1/m100.yaml".into(), text);
    let second = Commit::new(&files, "", 2, Some(&first));
    let after = loader.load(&second, &Context::default());
    assert_eq!((loader.walked, loader.parsed(), after.documents), (1, 301, 300));
    let mut looked = Vec::new();
    before.definitions.differences(&after.definitions, |id, was, is| {
        if was != is {
            looked.push(id.to_string());
        }
    });
    assert_eq!(looked, ["ModelAPI/m100"]);
}

#[test]
fn g7_a_folder_on_disk_is_always_walked() {
    let files = tree(&[("m.yaml", "kind: ConfigMap\napiVersion: v1\n")]);
    let mut loader = Loader::new(Limits::default());
    for walked in 1..4 {
        let _ = loader.load(&files, &Context::default());
        assert_eq!(loader.walked, walked);
    }
}
