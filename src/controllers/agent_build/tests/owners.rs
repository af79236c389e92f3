use serde_json::json;

use super::*;
use crate::cluster::live::Stores;
use crate::cluster::reflector;
use crate::controllers::agent_build::place::finalizer;
use crate::controllers::agent_build::run::RunOutcome;

/// Owners with the AgentBuild `team/reviewer`, which has runs in this namespace, and an operator with this `--build-namespace`.
fn owners(held: Option<&str>, build_namespace: Option<&str>) -> Owners {
    let stores = Stores::new();
    let finalizers: Vec<_> = held.map(finalizer).into_iter().collect();
    let build = json!({
        "apiVersion": "convoke.dev/v1alpha1", "kind": "AgentBuild",
        "metadata": {"name": "reviewer", "namespace": "team", "uid": "u", "resourceVersion": "1", "finalizers": finalizers},
        "spec": {"source": {"gitSync": {}}, "output": {"image": "team/reviewer"}},
    });
    let build = serde_json::from_value(build).expect("an AgentBuild");
    let (key, entry) = reflector::entry::<Managed<AgentBuild>>(build);
    stores.agent_builds.wrote(key, entry);
    Owners::new(stores.agent_builds, build_namespace.map(str::to_owned))
}

/// A run in a namespace that says that it is of `team/reviewer`.
fn run(namespace: &str, uid: &str) -> Run {
    Run {
        name: format!("run-{namespace}-{uid}"),
        namespace: namespace.into(),
        owner_uid: Some(uid.into()),
        key: Some("a".repeat(64)),
        image: None,
        ..Run::sample(RunOutcome::Running)
    }
}

#[test]
fn b5_labels_count_only_where_the_runs_of_an_agent_build_may_be() {
    let team = Key::new("team", "reviewer");
    let cases = [
        (owners(None, None), "builds", false),
        (owners(None, Some("builds")), "builds", true),
        (owners(Some("builds"), None), "builds", true),
        (owners(Some("builds"), Some("next")), "builds", true),
        // Whoever may create runs in a namespace of their own takes nobody's turn, and gives nobody an image.
        (owners(Some("builds"), Some("builds")), "evil", false),
    ];
    for (at, (owners, namespace, counts)) in cases.iter().enumerate() {
        let want = counts.then(|| team.clone());
        assert_eq!(owners.of(&run(namespace, "u")), want, "{at}");
        assert_eq!(owners.of(&run(namespace, "another")), None, "{at}: of one before");
        assert_eq!(owners.of(&run("team", "another")), Some(team.clone()), "{at}: at home");
    }
}

#[test]
fn b5_b7_a_run_of_a_build_that_is_gone_counts_in_the_build_namespace() {
    let team = Key::new("team", "reviewer");
    let with = owners(Some("before"), Some("builds"));
    assert_eq!(with.counts_for(&run("builds", "u")), Some(team.clone()));
    assert_eq!(with.counts_for(&run("builds", "another")), Some(team.clone()), "of one before");
    assert_eq!(with.counts_for(&run("before", "u")), Some(team));
    // Elsewhere everybody could say so.
    assert_eq!(with.counts_for(&run("before", "another")), None);
    assert_eq!(owners(None, None).counts_for(&run("evil", "u")), None);
}

#[test]
fn b5_runs_are_found_in_all_namespaces_where_they_may_be() {
    use crate::controllers::agent_build::place::term;
    let store = Store::<Run>::indexed("PipelineRun", |run| term(run).into_iter().collect());
    for (version, namespace) in (1..).zip(["team", "builds", "before", "evil"]) {
        let run = run(namespace, "u");
        let key = Key::new(namespace, run.name.as_str());
        store.wrote(key, Entry { uid: run.name.clone(), version, value: run });
    }
    let found = |owners: &Owners, held: &[String]| {
        let runs = owners.runs(&store, &Key::new("team", "reviewer"), held);
        runs.iter().map(|run| run.value.namespace.clone()).collect::<Vec<_>>()
    };
    assert_eq!(found(&owners(None, None), &[]), ["team"]);
    let both = [finalizer("before"), finalizer("builds")];
    assert_eq!(found(&owners(None, Some("builds")), &both), ["team", "before", "builds"]);
}

#[test]
fn b5_runs_of_what_is_gone_are_looked_for_in_the_build_namespace_only() {
    use crate::controllers::agent_build::place::term;
    let store = Store::<Run>::indexed("PipelineRun", |run| term(run).into_iter().collect());
    let uids = ["u", "another"];
    let places = ["team", "builds", "before"];
    let all = places.into_iter().flat_map(|at| uids.map(|uid| (at, uid)));
    for (version, (namespace, uid)) in (1..).zip(all) {
        let run = run(namespace, uid);
        let key = Key::new(namespace, run.name.as_str());
        store.wrote(key, Entry { uid: run.name.clone(), version, value: run });
    }
    let found = |owners: &Owners, name: &str| {
        let runs = owners.in_build_namespace(&store, &Key::new("team", name));
        runs.iter().map(|run| run.value.name.clone()).collect::<BTreeSet<_>>()
    };
    let both = BTreeSet::from(["run-builds-u".to_owned(), "run-builds-another".to_owned()]);
    assert_eq!(found(&owners(Some("before"), Some("builds")), "reviewer"), both);
    assert!(found(&owners(None, Some("builds")), "writer").is_empty());
    assert!(found(&owners(Some("builds"), None), "reviewer").is_empty());
    assert!(found(&owners(None, Some("team")), "reviewer").is_empty(), "its own namespace");
}

#[test]
fn b5_runs_wake_the_agent_builds_that_are_gone_too() {
    let store = Store::<Run>::indexed("PipelineRun", |_| Vec::new());
    for (version, (namespace, name)) in
        (1..).zip([("builds", "gone"), ("evil", "other"), ("team", "reviewer"), ("builds", "gone")])
    {
        let run = Run { owner_name: Some(name.into()), ..run(namespace, "u") };
        let key = Key::new(namespace, format!("run-{version}"));
        store.wrote(key, Entry { uid: format!("{version}"), version, value: run });
    }
    let woken = owners(None, Some("builds")).with_runs(&store);
    assert_eq!(woken, HashSet::from(["gone", "reviewer"].map(|name| Key::new("team", name))));
}
