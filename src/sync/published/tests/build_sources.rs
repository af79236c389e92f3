use std::collections::BTreeMap;

use super::*;
use crate::api::Kind;

const URL: &str = "https://git.example";

fn source(commit: &str) -> (String, SourceAt) {
    let source = SourceAt {
        sync: "main".into(),
        url: URL.into(),
        commit: commit.into(),
        subfolder_tree: None,
        paths: BTreeMap::new(),
        applied: None,
    };
    ("reviewer".into(), source)
}

fn mark(uid: &str, sync: &str) -> Mark {
    let text = format!("{uid}/team/{sync}/AgentBuild/team/reviewer");
    let mark = Mark::parse(&text).expect("a mark");
    assert!(mark.names(Kind::AgentBuild, "team", "reviewer"));
    mark
}

/// The commit that a build with this mark is made of.
fn commit(sources: &BuildSources, mark: &Mark) -> String {
    match sources.of(mark) {
        KnownSource::Nothing => "nothing".into(),
        KnownSource::NotInGit => "not in Git".into(),
        KnownSource::Source(source) => source.commit,
    }
}

fn none() -> Vec<Key> {
    Vec::new()
}

#[test]
fn b1_an_image_is_made_of_what_the_owner_told_whoever_else_tells_something() {
    let sources = BuildSources::new();
    let (main, other) = (Key::new("team", "main"), Key::new("team", "other"));
    let (ours, theirs) = (mark("1", "main"), mark("2", "other"));
    assert_eq!(commit(&sources, &ours), "nothing");
    sources.tell(&other, "2", URL, &[source("b")], false, none);
    assert_eq!(commit(&sources, &ours), "nothing", "that is not its owner");
    sources.tell(&main, "1", URL, &[source("a")], false, none);
    sources.tell(&other, "2", URL, &[source("c")], false, none);
    assert_eq!(commit(&sources, &ours), "a");
    assert_eq!(commit(&sources, &theirs), "c", "as soon as the mark says so");
    let far = Mark { sync_namespace: "far".into(), ..ours.clone() };
    assert_eq!(commit(&sources, &far), "nothing", "from another namespace");
    sources.forget(&main);
    assert_eq!(commit(&sources, &ours), "nothing");
    assert_eq!(commit(&sources, &theirs), "c");
}

#[test]
fn b1_a_git_sync_that_was_made_anew_is_another_one() {
    let (sources, main) = (BuildSources::new(), Key::new("team", "main"));
    sources.tell(&main, "1", URL, &[source("a")], false, none);
    sources.tell(&main, "2", URL, &[], true, none);
    assert_eq!(commit(&sources, &mark("1", "main")), "nothing");
    assert_eq!(commit(&sources, &mark("2", "main")), "not in Git", "nothing is inherited");
    sources.tell(&main, "2", URL, &[source("b")], false, none);
    assert_eq!(commit(&sources, &mark("1", "main")), "nothing");
    assert_eq!(commit(&sources, &mark("2", "main")), "b");
}

#[test]
fn b1_what_is_no_longer_wanted_is_forgotten_unless_the_commit_has_errors() {
    let (sources, main) = (BuildSources::new(), Key::new("team", "main"));
    sources.tell(&main, "1", URL, &[source("a")], false, none);
    sources.tell(&main, "1", URL, &[], true, || vec![Key::new("team", "reviewer")]);
    assert_eq!(commit(&sources, &mark("1", "main")), "a", "its file may be the broken one");
    sources.tell(&main, "1", URL, &[], false, none);
    assert_eq!(commit(&sources, &mark("1", "main")), "not in Git");
}

#[test]
fn b1_renamed_builds_do_not_pile_up_while_commits_have_errors() {
    let (sources, main) = (BuildSources::new(), Key::new("team", "main"));
    let live = || vec![Key::new("team", "n0"), Key::new("team", "n99")];
    for number in 0..100 {
        let (_, source) = source("a");
        sources.tell(&main, "1", URL, &[(format!("n{number}"), source)], true, live);
    }
    let kept = sources.write();
    let mut names: Vec<_> = kept[&main].builds.keys().cloned().collect();
    names.sort();
    assert_eq!(names, ["n0", "n99"], "what is wanted, and what is live");
}

#[test]
fn b1_what_came_from_another_repository_does_not_stay() {
    let (sources, main) = (BuildSources::new(), Key::new("team", "main"));
    let live = || vec![Key::new("team", "reviewer")];
    sources.tell(&main, "1", URL, &[source("a")], false, live);
    let (_, mut other) = source("b");
    other.url = "https://other.example".into();
    sources.tell(&main, "1", "https://other.example", &[("writer".into(), other)], true, live);
    assert_eq!(commit(&sources, &mark("1", "main")), "not in Git");
    // Nor when that one holds no build that can be read.
    sources.tell(&main, "1", URL, &[source("a")], false, live);
    sources.tell(&main, "1", "https://other.example", &[], true, live);
    assert_eq!(commit(&sources, &mark("1", "main")), "not in Git");
}

#[tokio::test]
async fn b1_builds_hear_of_what_changes_and_at_first_of_what_is_not_there() {
    let (sources, queue) = (BuildSources::new(), Queue::new());
    sources.notify(queue.clone());
    let main = Key::new("team", "main");
    let left = || vec![Key::new("team", "other")];
    let heard = async || {
        let mut names = Vec::new();
        while !queue.is_empty() {
            let key = queue.next().await;
            queue.done(&key);
            names.push(key.name);
        }
        names
    };
    sources.tell(&main, "1", URL, &[source("a")], false, left);
    assert_eq!(heard().await, ["reviewer", "other"]);
    sources.tell(&main, "1", URL, &[source("a")], false, left);
    assert_eq!(heard().await, [""; 0]);
    sources.tell(&main, "1", URL, &[source("b")], false, left);
    assert_eq!(heard().await, ["reviewer"]);
    sources.tell(&main, "1", URL, &[], false, left);
    assert_eq!(heard().await, ["reviewer"]);
    sources.tell(&main, "2", URL, &[source("b")], false, left);
    assert_eq!(heard().await, ["reviewer", "other"]);
    sources.forget(&main);
    assert_eq!(heard().await, ["reviewer"]);
}
