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
        dockerfile: None,
        base_images: BTreeMap::new(),
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

/// A commit without errors that holds these builds.
fn whole<'a>(uid: &'a str, builds: &'a [(String, SourceAt)]) -> CommitBuilds<'a> {
    CommitBuilds { uid, url: URL, builds, absence: Absence::Proven }
}

/// A commit with errors in which these builds can be read.
fn broken<'a>(uid: &'a str, builds: &'a [(String, SourceAt)]) -> CommitBuilds<'a> {
    CommitBuilds { absence: Absence::Unproven, ..whole(uid, builds) }
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
    sources.publish(&other, whole("2", &[source("b")]), none);
    assert_eq!(commit(&sources, &ours), "nothing", "that is not its owner");
    sources.publish(&main, whole("1", &[source("a")]), none);
    sources.publish(&other, whole("2", &[source("c")]), none);
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
    sources.publish(&main, whole("1", &[source("a")]), none);
    sources.publish(&main, broken("2", &[]), none);
    assert_eq!(commit(&sources, &mark("1", "main")), "nothing");
    assert_eq!(commit(&sources, &mark("2", "main")), "not in Git", "nothing is inherited");
    sources.publish(&main, whole("2", &[source("b")]), none);
    assert_eq!(commit(&sources, &mark("1", "main")), "nothing");
    assert_eq!(commit(&sources, &mark("2", "main")), "b");
}

#[test]
fn b1_what_is_no_longer_wanted_is_forgotten_unless_the_commit_has_errors() {
    let (sources, main) = (BuildSources::new(), Key::new("team", "main"));
    sources.publish(&main, whole("1", &[source("a")]), none);
    sources.publish(&main, broken("1", &[]), || vec![Key::new("team", "reviewer")]);
    assert_eq!(commit(&sources, &mark("1", "main")), "a", "its file may be the broken one");
    sources.publish(&main, whole("1", &[]), none);
    assert_eq!(commit(&sources, &mark("1", "main")), "not in Git");
}

#[test]
fn b1_renamed_builds_do_not_pile_up_while_commits_have_errors() {
    let (sources, main) = (BuildSources::new(), Key::new("team", "main"));
    let live = || vec![Key::new("team", "n0"), Key::new("team", "n99")];
    for number in 0..100 {
        let (_, source) = source("a");
        sources.publish(&main, broken("1", &[(format!("n{number}"), source)]), live);
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
    sources.publish(&main, whole("1", &[source("a")]), live);
    let (_, mut other) = source("b");
    other.url = "https://other.example".into();
    sources.publish(
        &main,
        CommitBuilds { url: "https://other.example", ..broken("1", &[("writer".into(), other)]) },
        live,
    );
    assert_eq!(commit(&sources, &mark("1", "main")), "not in Git");
    // Nor when that one holds no build that can be read.
    sources.publish(&main, whole("1", &[source("a")]), live);
    sources.publish(&main, CommitBuilds { url: "https://other.example", ..broken("1", &[]) }, live);
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
    sources.publish(&main, whole("1", &[source("a")]), left);
    assert_eq!(heard().await, ["reviewer", "other"]);
    sources.publish(&main, whole("1", &[source("a")]), left);
    assert_eq!(heard().await, [""; 0]);
    sources.publish(&main, whole("1", &[source("b")]), left);
    assert_eq!(heard().await, ["reviewer"]);
    sources.publish(&main, whole("1", &[]), left);
    assert_eq!(heard().await, ["reviewer"]);
    sources.publish(&main, whole("2", &[source("b")]), left);
    assert_eq!(heard().await, ["reviewer", "other"]);
    sources.forget(&main);
    assert_eq!(heard().await, ["reviewer"]);
}
