//! What users of other GitOps tools have lost days to; `docs/from-flux.md` tells each story.
#![allow(clippy::expect_used, clippy::panic, clippy::disallowed_types, clippy::disallowed_methods)]

use crate::support;

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::ffi::OsStrExt;

use convoke::api::{GitSync, Kind};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use serde_json::{Value, json};
use support::gate::{self, Gate};
use support::team::{AGENT, ARGS, SOON, Team, model, model_at, ready, shared_operator};
use support::{Cluster, Operator, cluster, eventually};

const NEW: &str = "https://new.example.com/v1";

/// A team with a running operator; `main` is not created yet.
async fn team(prefix: &str, files: &[(&str, &str)]) -> Team<'static> {
    let cluster = cluster().await;
    shared_operator(cluster).await;
    Team::new(cluster, prefix, files).await
}

async fn url_of(team: &Team<'_>, name: &str) -> Value {
    team.api(Kind::ModelAPI).get(name).await.expect(name).data["spec"]["external"]["url"].clone()
}

async fn gone(team: &Team<'_>, name: &str) {
    eventually(SOON, &format!("GitSync {name} is gone"), || async {
        match team.syncs.get_opt(name).await.expect("get") {
            None => Ok(()),
            Some(sync) => Err(sync.status),
        }
    })
    .await;
}

/// fluxcd/flux2#5601: what waits takes the place of what could work.
#[tokio::test(flavor = "multi_thread")]
async fn g1_sixty_remotes_that_hang_delay_no_other_sync() {
    let hanging = team("hanging", &[]).await;
    let (silence, url) = hanging.gate();
    silence.shut();
    for number in 0..60 {
        let spec = json!({"url": url, "timeout": "10m"});
        hanging.create_sync_named(&format!("s{number}"), spec).await;
    }
    let is_waiting = |sync: &GitSync| {
        ready(sync).reason == "Progressing" && ready(sync).message == "reading the repository"
    };
    let waiting = || async {
        let all = hanging.syncs.list(&ListParams::default()).await.expect("list");
        all.items.iter().filter(|sync| is_waiting(sync)).count()
    };
    eventually(SOON, "all of them are being looked at", || async {
        let count = waiting().await;
        if count == 60 { Ok(()) } else { Err(count) }
    })
    .await;

    let good = team("prompt", &[("a.yaml", &model("a"))]).await;
    good.create_sync(json!({})).await;
    good.wait_ready("True").await;
    good.push(&[("a.yaml", Some(&model_at("a", NEW)))]).await;
    assert_eq!(url_of(&good, "a").await, NEW);
    assert_eq!(waiting().await, 60, "nothing here was decided by a timeout");

    // Nor does the end of one that hangs wait for its remote.
    let params = (DeleteParams::default(), ListParams::default());
    hanging.syncs.delete_collection(&params.0, &params.1).await.expect("delete");
    for number in 0..60 {
        gone(&hanging, &format!("s{number}")).await;
    }
}

/// fluxcd/kustomize-controller#409: what a sync created before it failed was known to nobody.
#[tokio::test(flavor = "multi_thread")]
async fn g12_what_a_failed_sync_created_is_pruned_when_it_leaves_git() {
    let team = team("failed", &[("a.yaml", &model("a")), ("b.yaml", &model("b"))]).await;
    team.create_sync(json!({"prune": {"maxDeletions": "50%"}})).await;
    team.wait_ready("True").await;
    // An object of somebody else's makes the commit fail; the other one is created.
    let api = team.api(Kind::ModelAPI);
    let foreign: Value = as_json(&model("foreign"));
    api.patch("foreign", &PatchParams::apply("somebody"), &Patch::Apply(&foreign))
        .await
        .expect("create");
    let sync =
        team.push(&[("c.yaml", Some(&model("c"))), ("d.yaml", Some(&model("foreign")))]).await;
    assert_eq!(ready(&sync).status, "False", "{:?}", sync.status);
    assert_eq!(team.models().await, ["a", "b", "c", "foreign"]);
    let uid = api.get("foreign").await.expect("foreign").metadata.uid;

    let sync = team.push(&[("c.yaml", None), ("d.yaml", None)]).await;
    assert_eq!(ready(&sync).status, "True", "{:?}", sync.status);
    assert_eq!(team.models().await, ["a", "b", "foreign"]);
    assert_eq!(api.get("foreign").await.expect("foreign").metadata.uid, uid);
}

/// The manifest of an External ModelAPI as JSON.
fn as_json(manifest: &str) -> Value {
    let name = manifest.split("name: ").nth(1).and_then(|rest| rest.lines().next());
    json!({
        "apiVersion": "convoke.dev/v1alpha1", "kind": "ModelAPI", "metadata": {"name": name},
        "spec": {"mode": "External", "external": {"url": "https://models.example.com/v1"}},
    })
}

/// fluxcd/flux2#685: many syncs of one repository wake at once.
#[tokio::test(flavor = "multi_thread")]
async fn g1_many_syncs_of_one_repository_write_only_what_is_theirs() {
    let files: Vec<_> =
        (0..20).map(|n| (format!("t{n}/m.yaml"), model(&format!("m{n}")))).collect();
    let files: Vec<_> = files.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
    let team = team("many", &files).await;
    for number in 0..20 {
        let spec = json!({"path": format!("t{number}")});
        team.create_sync_named(&format!("s{number}"), spec).await;
    }
    for number in 0..20 {
        team.wait_ready_of(&format!("s{number}"), "True").await;
    }
    let mark = team.cluster.audit_mark();
    team.repo.commit("one of them", &[("t7/m.yaml", &model_at("m7", NEW))]);
    let names: Vec<_> = (0..20).map(|number| format!("s{number}")).collect();
    futures::future::join_all(names.iter().map(|name| team.request_of(name))).await;
    assert_eq!(url_of(&team, "m7").await, NEW);
    assert_eq!(team.writes(mark), ["patch modelapis/m7"]);
}

/// argoproj/argo-cd#28432, rancher/fleet#3482, fluxcd/flux2#4261: a status that is too large, an error that outlives its
/// repair, an error without a place.
#[tokio::test(flavor = "multi_thread")]
async fn g18_ten_thousand_problems_fit_into_a_status_stop_nobody_and_leave_nothing_behind() {
    let (a, b) = (model("a"), model("b"));
    let team = team("hostile", &[("a.yaml", &a), ("b.yaml", &b), ("c.yaml", &model("c"))]).await;
    team.create_sync(json!({})).await;
    team.wait_ready("True").await;
    let before = team.objects(Kind::ModelAPI).await;

    // One good change; one broken file of a live object; one live object gone; and everything else that hurts.
    let fields = (0..100)
        .map(|n| format!("\"\\e[2J{n}\\u202e{}\": 1\n", "提".repeat(200)))
        .collect::<Vec<_>>()
        .concat();
    let folder = ["p".repeat(60), "q".repeat(60), "r".repeat(60), "s".repeat(60)].join("/");
    let mut files: BTreeMap<String, String> = (0..100)
        .map(|n| (format!("{folder}/bad{n}.yaml"), model(&format!("bad{n}")) + &fields))
        .collect();
    files.insert("a.yaml".into(), model_at("a", NEW));
    files.insert("b.yaml".into(), b.clone() + &fields);
    files.insert("A.yaml".into(), model("twin"));
    files.insert("Twin.yaml".into(), model("twin"));
    files.insert("nul.yaml".into(), model("nul") + "\0");
    files.insert("long.yaml".into(), model("long") + &"x".repeat(1_000_000));
    let texts: Vec<_> = files.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
    for name in [&b"not\xffutf8.yaml"[..], "\u{202e}lmay.yaml".as_bytes()] {
        let path = team.repo.work().join(std::ffi::OsStr::from_bytes(name));
        std::fs::write(path, &a).expect("write");
    }
    let subject = format!("\u{1b}[31m\u{202e}evil {}", "提".repeat(200));
    team.repo.change(&subject, &texts, &["c.yaml"]);
    let sync = team.request().await;

    let status = sync.status.as_ref().expect("status");
    let text = serde_json::to_string(status).expect("JSON");
    assert!(text.len() <= 256 * 1024, "{}", text.len());
    assert!(status.problem_count.is_some_and(|count| count > 10_000), "{:?}", status.problem_count);
    assert!(!status.problems.is_empty());
    let is_hidden = |c: char| (c.is_control() && c != '\n') || c == '\u{202e}';
    for text in [&text, &ready(&sync).message] {
        assert!(!text.contains(is_hidden), "{text}");
    }
    for problem in &status.problems {
        assert!(problem.path.is_some(), "{problem:?}");
        assert!(problem.line.is_some() || problem.code == "CVK0004" || problem.code == "CVK0006");
    }
    assert_eq!(ready(&sync).reason, "ProblemsFound");
    let held: BTreeSet<_> = status.quarantined.iter().map(|q| q.object.as_str()).collect();
    assert!(held.contains("ModelAPI/b"), "{held:?}");
    // The good change is there, the broken one's object is as it was, and nothing was deleted.
    assert_eq!(url_of(&team, "a").await, NEW);
    assert_eq!(team.objects(Kind::ModelAPI).await, before);
    // It comes after the status.
    eventually(SOON, "the event is told", || async {
        let events = team.cluster.kubectl(&["-n", &team.namespace, "get", "events", "-o", "json"]);
        if events.contains("error(s) at main@sha1:") { Ok(()) } else { Err(events) }
    })
    .await;

    // Repaired, nothing of it is left.
    team.repo.git(&["revert", "--no-edit", "HEAD"]);
    team.repo.git(&["push", "-q", "origin", "HEAD:main"]);
    let sync = team.request().await;
    let status = sync.status.as_ref().expect("status");
    assert_eq!(ready(&sync).status, "True", "{status:?}");
    assert_eq!((status.problem_count, status.problems.len()), (Some(0), 0));
    assert_eq!(status.quarantined.len() + status.pending_prune.iter().count(), 0);
    let told = serde_json::to_string(&status.conditions).expect("JSON");
    assert!(!told.contains("CVK") && !told.contains("error"), "{told}");
    assert_eq!(team.objects(Kind::ModelAPI).await, before);
}

/// carvel-dev/kapp-controller#34 and its like: what a deletion would have to look at is gone.
#[tokio::test(flavor = "multi_thread")]
async fn g15_a_repository_that_is_gone_holds_no_end_up() {
    let team = team("norepo", &[("a.yaml", &model("a")), ("b.yaml", &model("b"))]).await;
    team.create_sync(json!({"deletionPolicy": "Delete"})).await;
    team.wait_ready("True").await;
    std::fs::remove_dir_all(team.repo.work().with_extension("git")).expect("remove the repository");
    team.annotate(&[(convoke::api::keys::REQUESTED_AT, "gone")]).await;
    team.wait_ready("False").await;
    assert_eq!(team.models().await, ["a", "b"], "nothing is deleted because a repository is gone");
    team.syncs.delete("main", &DeleteParams::default()).await.expect("delete");
    gone(&team, "main").await;
    assert_eq!(team.models().await, Vec::<String>::new());
}

/// An operator whose every connection to the API server passes a gate.
async fn gated(cluster: &Cluster) -> (Operator, Gate) {
    let namespace = cluster.namespace("gated").await;
    let path = cluster.operator_kubeconfig(&namespace).await;
    cluster.bind_single_tenant(&namespace);
    let (path, gate) = gate::gated(&path);
    let operator = Operator::start(&path, &cluster.dir(), ARGS);
    operator.ready(SOON).await;
    (operator, gate)
}

/// argoproj/argo-cd#18780: the API server was away for less than a second, and applications were deleted.
#[tokio::test(flavor = "multi_thread")]
async fn g12_an_api_server_that_goes_away_in_the_middle_of_a_sync_deletes_nothing() {
    let cluster = Cluster::exclusive().await;
    let (_operator, gate) = gated(&cluster).await;
    let files: Vec<_> =
        (0..10).map(|n| (format!("keep{n}.yaml"), model(&format!("keep{n}")))).collect();
    let files: Vec<_> = files.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
    let team = Team::new(&cluster, "outage", &files).await;
    team.create_sync(json!({"prune": {"maxDeletions": "50%"}})).await;
    team.wait_ready("True").await;
    let first = team.objects(Kind::ModelAPI).await;
    let mark = cluster.audit_mark();

    for round in 0..3 {
        let new: Vec<_> = (0..100)
            .map(|n| (format!("r{round}/m{n}.yaml"), model(&format!("r{round}-{n}"))))
            .collect();
        let new: Vec<_> = new.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
        let head = team.repo.change("more, and one less", &new, &[&format!("keep{round}.yaml")]);
        team.annotate(&[(convoke::api::keys::REQUESTED_AT, &head)]).await;
        eventually(SOON, "its writes have begun", || async {
            let names = team.models().await;
            names.iter().any(|name| name.starts_with(&format!("r{round}-"))).then_some(())
        })
        .await;
        gate.cut();
        // What was on its way may still arrive; what is kept is there, whatever the moment was.
        let now = team.models().await;
        for number in round + 1..10 {
            assert!(now.contains(&format!("keep{number}")), "{now:?}");
        }
        gate.mend();
        eventually(SOON, "the commit is applied", || async {
            let sync = team.get().await;
            let applied = sync.status.as_ref().and_then(|s| s.last_applied_revision.clone());
            let done = applied.is_some_and(|revision| revision.ends_with(&head));
            if done && ready(&sync).status == "True" { Ok(()) } else { Err(sync.status) }
        })
        .await;
    }
    let live = team.objects(Kind::ModelAPI).await;
    assert_eq!(live.len(), 7 + 300);
    for number in 3..10 {
        let name = format!("keep{number}");
        assert_eq!(live[&name], first[&name], "the same object");
    }
    let deletes: BTreeSet<_> = cluster
        .writes_by(AGENT, mark)
        .into_iter()
        .filter(|r| r.verb == "delete" && r.namespace == team.namespace)
        .map(|r| r.name)
        .collect();
    assert_eq!(deletes, ["keep0", "keep1", "keep2"].map(str::to_owned).into());
}

/// fluxcd/flux2#997: the definitions of the objects were deleted before the syncs.
#[tokio::test(flavor = "multi_thread")]
async fn g15_a_definition_that_is_gone_holds_no_end_up() {
    let cluster = Cluster::exclusive().await;
    let operator = cluster.operator(ARGS).await;
    operator.ready(SOON).await;
    let team = Team::new(&cluster, "nocrd", &[("a.yaml", &model("a"))]).await;
    team.create_sync(json!({"deletionPolicy": "Delete"})).await;
    team.wait_ready("True").await;
    cluster.kubectl(&["delete", "crd", "modelapis.convoke.dev", "agents.convoke.dev"]);
    team.syncs.delete("main", &DeleteParams::default()).await.expect("delete");
    gone(&team, "main").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn g18_an_operator_that_starts_before_its_definitions_says_what_is_missing_and_works_once_they_are_there()
 {
    let cluster = Cluster::start().await;
    let crds = convoke::api::crds();
    let name = |crd: &CustomResourceDefinition| crd.metadata.name.clone().expect("a name");
    let names: Vec<_> = crds.iter().map(name).collect();
    let names: Vec<_> = names.iter().map(String::as_str).collect();
    cluster.kubectl(&[&["delete", "crd", "--wait"][..], &names].concat());
    let operator = cluster.operator(ARGS).await;
    eventually(SOON, "/readyz names the kinds", || async {
        let told = operator.readyz();
        let named = |kind: &str| {
            told.as_ref().is_ok_and(|(_, why)| why.contains(&format!("no complete list of {kind}")))
        };
        if named("GitSync") && named("AgentBuild") { Ok(()) } else { Err(told) }
    })
    .await;

    // All but one: the GitSync says which one is missing, and nothing is synced.
    let late = "agentbuilds.convoke.dev";
    let apply = |wanted: &dyn Fn(&str) -> bool| {
        for crd in crds.iter().filter(|crd| wanted(&name(crd))) {
            cluster.apply(&serde_json::to_value(crd).expect("JSON"));
        }
    };
    apply(&|name| name != late);
    cluster.kubectl(&["wait", "--for=condition=Established", "crd", "gitsyncs.convoke.dev"]);
    let team = Team::new(&cluster, "early", &[("a.yaml", &model("a"))]).await;
    eventually(SOON, "a GitSync can be made", || async {
        let list = team.syncs.list(&ListParams::default()).await;
        list.map(drop).map_err(|error| error.to_string())
    })
    .await;
    team.create_sync(json!({})).await;
    let sync = team.wait_ready("False").await;
    let said = ready(&sync);
    assert_eq!(said.reason, "KindsNotListed");
    assert!(said.message.contains("of kind AgentBuild;"), "{}", said.message);
    let readyz = operator.readyz().expect("an answer");
    assert_eq!(readyz, (503, "no complete list of AgentBuild yet".to_owned()));
    assert!(operator.log().contains("kind=\"AgentBuild\""), "the log names it");

    let began = std::time::Instant::now();
    apply(&|name| name == late);
    team.wait_ready("True").await;
    assert_eq!(team.models().await, ["a"]);
    println!("synced after {:?}", began.elapsed());
    operator.ready(SOON).await;
}

/// Every file of Rust below a folder, one after the other.
fn sources(folder: &std::path::Path) -> String {
    let entries =
        std::fs::read_dir(folder).expect("folder").map(|entry| entry.expect("entry").path());
    entries
        .map(|path| {
            if path.is_dir() {
                sources(&path)
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                std::fs::read_to_string(&path).expect("a source")
            } else {
                String::new()
            }
        })
        .collect()
}

#[test]
fn the_tests_that_the_guide_names_exist() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let read = |file: &str| std::fs::read_to_string(root.join(file)).expect("a page");
    let guide = read("docs/from-flux.md") + &read("docs/git.md");
    let all = ["tests", "src", "core/src"].map(|folder| sources(&root.join(folder))).concat();
    let is_name = |text: &str| {
        text.matches('_').count() > 2
            && text.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
    };
    let named: Vec<_> = guide.split('`').filter(|text| is_name(text)).collect();
    assert!(named.len() > 30, "{named:?}");
    for name in named {
        assert!(all.contains(&format!("fn {name}()")), "there is no test {name}");
    }
}
