//! Imports run one way: the folders of `core/src` and `src` import each other without a circle, and in the order that
//! `docs/architecture.md` states. The tables of that page have a row for each behaviour, and name only paths that exist.
//!
//! An import is a path from `crate::` or `super::` on, in a `use` or in the code. Comments and tests do not count.
#![allow(clippy::expect_used, clippy::panic, clippy::disallowed_types, clippy::disallowed_methods)]

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

const ROOT: &str = env!("CARGO_MANIFEST_DIR");
const PAGE: &str = "docs/architecture.md";
const BEHAVIOURS: &str = "docs/behaviours.md";

/// The folders whose order the page states, each in a block that begins with "```text FOLDER".
const ORDERED: [&str; 4] = ["core/src", "core/src/sync", "src", "src/controllers"];

/// What a path in a table of the page may start with.
const TOP: [&str; 7] = ["benches", "core", "deploy", "docs", "runtime", "scripts", "src"];

/// From each folder (or single file) to those that it imports, with the places: `file: path`.
type Graph = BTreeMap<String, BTreeMap<String, BTreeSet<String>>>;

/// A module that only tests have: its name, and its file if the module names one.
type TestModule = (String, Option<String>);

fn read(path: &Path) -> String {
    std::fs::read_to_string(path)
        .unwrap_or_else(|error| panic!("cannot read {}: {error}", path.display()))
}

/// Adds all Rust files below a folder.
fn add_files(folder: &Path, files: &mut Vec<PathBuf>) {
    let entries = std::fs::read_dir(folder)
        .unwrap_or_else(|error| panic!("cannot read {}: {error}", folder.display()));
    for entry in entries {
        let path = entry.expect("entry of a folder").path();
        if path.is_dir() {
            add_files(&path, files);
        } else if path.extension() == Some(OsStr::new("rs")) {
            files.push(path);
        }
    }
}

/// The code of a file without comments and tests, and the test modules that it declares.
fn without_tests(text: &str) -> (String, Vec<TestModule>) {
    let mut lines = text.lines().filter(|line| !line.trim_start().starts_with("//"));
    let (mut code, mut tests) = (String::new(), Vec::new());
    while let Some(line) = lines.next() {
        if line.trim() == "#[cfg(test)]" {
            let indent = line.len() - line.trim_start().len();
            tests.extend(skip_item(&mut lines, indent));
        } else {
            code.push_str(line);
            code.push('\n');
        }
    }
    (code, tests)
}

/// Passes over the item behind `#[cfg(test)]`, as rustfmt writes it. Returns the module if the item declares one.
fn skip_item<'a>(lines: &mut impl Iterator<Item = &'a str>, indent: usize) -> Option<TestModule> {
    let end = format!("{}}}", " ".repeat(indent));
    let (mut file, mut in_attribute, mut in_item) = (None, false, false);
    for line in lines {
        let words = line.trim();
        if in_item {
            if line.starts_with(&end) {
                return None;
            }
        } else if in_attribute || words.starts_with("#[") {
            in_attribute = !words.ends_with(']');
            if let Some(rest) = words.strip_prefix("#[path = \"") {
                file = rest.split('"').next().map(str::to_owned);
            }
        } else if let Some(name) = words.split("mod ").nth(1).and_then(|m| m.strip_suffix(';')) {
            return Some((name.to_owned(), file));
        } else if words.ends_with([';', ',', '}']) {
            return None;
        } else {
            in_item = true;
        }
    }
    None
}

/// The paths that code names from `crate::` or `super::` on, each from the root of the crate.
fn imports(code: &str, module: &[String]) -> BTreeSet<Vec<String>> {
    let mut found = BTreeSet::new();
    for start in ["crate::", "super::"] {
        for (at, _) in code.match_indices(start) {
            let before = code[..at].chars().next_back();
            if before.is_some_and(|c| c.is_alphanumeric() || c == '_' || c == ':') {
                continue;
            }
            let mut base = module.to_vec();
            if start == "crate::" {
                base.clear();
            } else {
                base.pop();
            }
            let mut rest = &code[at + start.len()..];
            while let Some(tail) = rest.strip_prefix("super::") {
                base.pop();
                rest = tail;
            }
            add_paths(rest, &base, &mut found);
        }
    }
    found
}

/// Adds the paths of an import (`a::{b, c::d}` has two) and returns the code behind it.
fn add_paths<'a>(code: &'a str, base: &[String], found: &mut BTreeSet<Vec<String>>) -> &'a str {
    if let Some(mut rest) = code.strip_prefix('{') {
        loop {
            rest = rest.trim_start_matches(|c: char| c == ',' || c == '*' || c.is_whitespace());
            if let Some(tail) = rest.strip_prefix('}') {
                return tail;
            }
            let tail = add_paths(rest, base, found);
            if tail.len() == rest.len() {
                return tail;
            }
            rest = tail;
        }
    }
    let end = code.find(|c: char| c != '_' && !c.is_alphanumeric()).unwrap_or(code.len());
    let (name, rest) = code.split_at(end);
    if name.is_empty() {
        return code;
    }
    let mut path = base.to_vec();
    path.push(name.to_owned());
    if let Some(tail) = rest.strip_prefix("::") {
        let behind = add_paths(tail, &path, found);
        if behind.len() == tail.len() {
            found.insert(path);
        }
        return behind;
    }
    found.insert(path);
    rest
}

/// The parts of a file's path below a folder, without the ending `.rs`.
fn parts(file: &Path, folder: &Path) -> Vec<String> {
    let below = file.strip_prefix(folder).expect("below the folder").with_extension("");
    below.iter().map(|part| part.to_string_lossy().into_owned()).collect()
}

/// The code of all files below a folder that are no tests.
fn sources(folder: &Path) -> Vec<(PathBuf, String)> {
    let (mut files, mut sources, mut tests) = (Vec::new(), Vec::new(), Vec::new());
    add_files(folder, &mut files);
    files.sort();
    for file in files {
        let (code, modules) = without_tests(&read(&file));
        let beside = file.parent().expect("a file is in a folder").to_owned();
        let is_folder =
            ["lib", "main", "mod"].map(OsStr::new).map(Some).contains(&file.file_stem());
        let inside = if is_folder { beside.clone() } else { file.with_extension("") };
        for (name, own) in modules {
            match own {
                Some(own) => tests.push(beside.join(own)),
                None => tests.extend([inside.join(&name), inside.join(name + ".rs")]),
            }
        }
        sources.push((file, code));
    }
    sources.retain(|(file, _)| {
        let named = |part: &String| part == "tests" || part.ends_with("_tests");
        !tests.iter().any(|test| file.starts_with(test)) && !parts(file, folder).iter().any(named)
    });
    sources
}

/// What is in a folder (folders and single files), and who of them imports whom.
fn graph(folder: &str) -> (BTreeSet<String>, Graph) {
    let here = Path::new(ROOT).join(folder);
    let sources = sources(&here);
    let first = |file: &Path| parts(file, &here).swap_remove(0);
    let mut nodes: BTreeSet<String> = sources.iter().map(|(file, _)| first(file)).collect();
    nodes.retain(|name| !["lib", "main", "mod"].contains(&name.as_str()));

    let module: Vec<String> =
        folder.split('/').skip_while(|part| *part != "src").skip(1).map(str::to_owned).collect();
    let mut graph = Graph::new();
    for (file, code) in &sources {
        let from = first(file);
        let mut own = module.clone();
        own.extend(parts(file, &here));
        if own.last().is_some_and(|part| part == "mod") {
            own.pop();
        }
        let place = file.strip_prefix(ROOT).expect("below the root").display();
        for path in imports(code, &own) {
            let Some(to) = path.strip_prefix(module.as_slice()).and_then(<[String]>::first) else {
                continue;
            };
            if nodes.contains(&from) && nodes.contains(to) && *to != from {
                let places = graph.entry(from.clone()).or_default().entry(to.clone()).or_default();
                places.insert(format!("{place}: crate::{}", path.join("::")));
            }
        }
    }
    (nodes, graph)
}

/// The shortest circle of imports, from one folder back to itself.
fn circle(graph: &Graph) -> Option<Vec<&str>> {
    graph.keys().filter_map(|start| way_back(graph, start)).min_by_key(Vec::len)
}

/// The shortest way from a folder over its imports back to itself.
fn way_back<'a>(graph: &'a Graph, start: &'a str) -> Option<Vec<&'a str>> {
    let mut before: BTreeMap<&str, &str> = BTreeMap::new();
    let mut queue = VecDeque::from([start]);
    while let Some(here) = queue.pop_front() {
        for next in graph.get(here).into_iter().flat_map(BTreeMap::keys) {
            if next == start {
                let (mut way, mut at) = (vec![start], here);
                while at != start {
                    way.push(at);
                    at = before.get(at).copied()?;
                }
                way.push(start);
                way.reverse();
                return Some(way);
            }
            if let Entry::Vacant(vacant) = before.entry(next.as_str()) {
                vacant.insert(here);
                queue.push_back(next.as_str());
            }
        }
    }
    None
}

/// A circle with the imports that make it, for people.
fn explain(graph: &Graph, circle: &[&str]) -> String {
    let mut text = format!("imports run in a circle: {}", circle.join(" -> "));
    for pair in circle.windows(2) {
        let places = graph.get(pair[0]).and_then(|imports| imports.get(pair[1]));
        for place in places.into_iter().flatten() {
            text.push_str("\n  ");
            text.push_str(place);
        }
    }
    text
}

/// The order of a folder in the page, from top to bottom.
fn order(page: &str, folder: &str) -> Vec<Vec<String>> {
    let fence = format!("```text {folder}");
    let block = page.lines().skip_while(|line| **line != fence).skip(1);
    block
        .take_while(|line| !line.starts_with("```"))
        .map(|line| line.split(',').map(|name| name.trim().to_owned()).collect())
        .collect()
}

/// Where a folder and its order in the page disagree, with what to do.
fn disagreements(
    folder: &str,
    order: &[Vec<String>],
    nodes: &BTreeSet<String>,
    graph: &Graph,
) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut line_of: BTreeMap<&str, usize> = BTreeMap::new();
    for (line, names) in order.iter().enumerate() {
        for name in names {
            if !nodes.contains(name) {
                wrong.push(format!(
                    "{PAGE}: the order of {folder} names `{name}`, which is not there. Remove it."
                ));
            }
            line_of.insert(name, line);
        }
    }
    for name in nodes.iter().filter(|name| !line_of.contains_key(name.as_str())) {
        wrong.push(format!(
            "{PAGE}: the order of {folder} lacks `{name}`. Add it above all that it imports."
        ));
    }
    for (from, imports) in graph {
        for (to, places) in imports {
            let lines = (line_of.get(from.as_str()), line_of.get(to.as_str()));
            if let (Some(above), Some(below)) = lines
                && above >= below
            {
                let places = places.iter().map(String::as_str).collect::<Vec<_>>().join("\n  ");
                wrong.push(format!(
                    "{folder}: `{from}` imports `{to}`, which is not below it in {PAGE}. Move the code, or change the order.\n  {places}"
                ));
            }
        }
    }
    wrong
}

/// The rows of all tables of a page, as cells.
fn rows(page: &str) -> Vec<Vec<&str>> {
    let rows = page.lines().filter_map(|line| line.strip_prefix('|'));
    rows.map(|row| row.trim_end_matches('|').split('|').map(str::trim).collect()).collect()
}

/// The paths in a cell: what stands between backticks and begins with a folder of the repository.
fn paths(cell: &str) -> impl Iterator<Item = &str> {
    let words = cell.split('`').skip(1).step_by(2);
    words.filter(|word| word.split_once('/').is_some_and(|(top, _)| TOP.contains(&top)))
}

/// The ids of behaviours in the first cells of tables.
fn ids<'a>(rows: &[Vec<&'a str>]) -> BTreeSet<&'a str> {
    let is_id = |cell: &&str| {
        let number = cell.trim_start_matches(|c: char| c.is_ascii_uppercase());
        number.len() + 1 == cell.len() && number.parse::<u32>().is_ok()
    };
    rows.iter().filter_map(|row| row.first().copied()).filter(is_id).collect()
}

#[test]
fn imports_have_no_circle_and_follow_the_order() {
    let page = read(&Path::new(ROOT).join(PAGE));
    let mut wrong = Vec::new();
    for folder in ORDERED {
        let (nodes, graph) = graph(folder);
        assert!(nodes.len() > 5 && graph.len() > 2, "few imports in {folder}: {nodes:?}");
        let order = order(&page, folder);
        assert!(order.len() > 2, "{PAGE} has no block that begins with \"```text {folder}\"");
        wrong.extend(circle(&graph).map(|circle| explain(&graph, &circle)));
        wrong.extend(disagreements(folder, &order, &nodes, &graph));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_tables_name_each_behaviour_and_paths_that_exist() {
    let page = read(&Path::new(ROOT).join(PAGE));
    let list = read(&Path::new(ROOT).join(BEHAVIOURS));
    let (rows, listed) = (rows(&page), rows(&list));
    let (placed, promised) = (ids(&rows), ids(&listed));
    assert!(promised.len() > 40, "only few rows were found in {BEHAVIOURS}");
    let mut wrong = Vec::new();
    for id in promised.symmetric_difference(&placed) {
        wrong.push(format!("{PAGE} and {BEHAVIOURS}: one has a row for {id}, the other has none."));
    }
    for row in &rows {
        let named: Vec<&str> = row.iter().flat_map(|cell| paths(cell)).collect();
        let first = row.first().copied().unwrap_or_default();
        if placed.contains(first) && named.is_empty() {
            wrong.push(format!("{PAGE}: the row of {first} names no path."));
        }
        let missing = named.into_iter().filter(|path| !Path::new(ROOT).join(path).exists());
        wrong.extend(
            missing.map(|path| {
                format!("{PAGE}: the row of {first} names {path}, which does not exist.")
            }),
        );
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn o11_pods_are_asked_by_their_watch_only() {
    let mut files = Vec::new();
    add_files(&Path::new(ROOT).join("src"), &mut files);
    let is_own = |file: &Path| {
        let place = file.strip_prefix(ROOT).expect("below the root");
        place.starts_with("src/net") || place == Path::new("src/controllers/pods.rs")
    };
    let (own, others): (Vec<_>, Vec<_>) = files.iter().partition(|file| is_own(file));
    let names_it = |file: &&PathBuf| read(file).contains("PodClient");
    assert!(own.into_iter().filter(names_it).count() >= 3, "the client of pods has another name");
    let others: Vec<_> = others.into_iter().filter(names_it).collect();
    assert!(others.is_empty(), "only the watch of pods knows whose pod one is: {others:?}");
}

/// A graph of these imports.
fn made_up(imports: &[(&str, &str)]) -> Graph {
    let mut graph = Graph::new();
    for (from, to) in imports {
        let places = graph.entry((*from).to_owned()).or_default();
        places.entry((*to).to_owned()).or_default().insert(format!("{from}.rs: crate::{to}"));
    }
    graph
}

#[test]
fn the_shortest_circle_is_found_and_explained() {
    let straight = [("a", "b"), ("a", "c"), ("b", "c"), ("c", "d")];
    assert_eq!(circle(&made_up(&straight)), None);
    let graph = made_up(&[("a", "b"), ("b", "c"), ("c", "a"), ("c", "d"), ("d", "c"), ("e", "a")]);
    let found = circle(&graph).expect("a circle");
    assert_eq!(found, ["c", "d", "c"]);
    let text = explain(&graph, &found);
    assert_eq!(text, "imports run in a circle: c -> d -> c\n  c.rs: crate::d\n  d.rs: crate::c");
    let long = made_up(&[("x", "a"), ("a", "b"), ("b", "c"), ("c", "a")]);
    assert_eq!(circle(&long).expect("a circle").len(), 4);
}

#[test]
fn an_import_from_above_and_an_incomplete_order_are_errors() {
    let page = "text\n```text here\ntop\nleft, right\nbottom\n```\nmore\n";
    let order = order(page, "here");
    assert_eq!(order, [vec!["top"], vec!["left", "right"], vec!["bottom"]]);
    let nodes = |names: &[&str]| -> BTreeSet<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    };
    let all = nodes(&["top", "left", "right", "bottom"]);
    let good = made_up(&[("top", "bottom"), ("top", "left"), ("left", "bottom")]);
    assert_eq!(disagreements("here", &order, &all, &good), Vec::<String>::new());
    let bad = made_up(&[("left", "right"), ("bottom", "top")]);
    let wrong = disagreements("here", &order, &all, &bad);
    assert_eq!(wrong.len(), 2, "{wrong:?}");
    assert!(wrong[0].contains("bottom.rs: crate::top"), "{wrong:?}");
    let others = nodes(&["top", "left", "right", "new"]);
    let wrong = disagreements("here", &order, &others, &Graph::new()).join("\n");
    assert!(wrong.contains("names `bottom`") && wrong.contains("lacks `new`"), "{wrong}");
}

#[test]
fn comments_and_tests_are_no_imports() {
    let text = r#"
//! [`crate::comment`]
use crate::sync::{self, plan::{Plan, brake::*}, apply as carry};
use super::super::api::Kind;
#[cfg(test)]
use crate::only::test;
#[cfg(test)]
#[path = "elsewhere.rs"]
pub(crate) mod checks;
fn inline() -> crate::next::Next {
    // crate::another_comment::x
    my_crate::not_ours();
    super::beside::call()
}
#[cfg(test)]
mod tests {
    use crate::only::tests;
}
"#;
    let (code, tests) = without_tests(text);
    assert_eq!(tests, [("checks".to_owned(), Some("elsewhere.rs".to_owned()))]);
    let module = ["sync", "io", "effect"].map(str::to_owned);
    let found: Vec<String> =
        imports(&code, &module).into_iter().map(|path| path.join("::")).collect();
    for path in ["sync::plan::Plan", "sync::plan::brake", "sync::apply", "sync::api::Kind"] {
        assert!(found.iter().any(|found| found == path), "{path}: {found:?}");
    }
    for path in ["next::Next", "sync::io::beside::call"] {
        assert!(found.iter().any(|found| found == path), "{path}: {found:?}");
    }
    let wrong = |path: &&String| path.contains("only") || path.contains("comment");
    assert_eq!(found.iter().find(wrong), None);
}
