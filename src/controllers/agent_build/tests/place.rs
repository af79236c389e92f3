use std::collections::BTreeSet;

use kube::api::DynamicObject;

use super::*;
use crate::controllers::agent_build::pipeline_run::{ATTEMPT, TEKTON_API_VERSION};
use crate::controllers::agent_build::run::RunOutcome;

const UID: &str = "11111111-2222-3333-4444-555555555555";

fn key(digit: char) -> BuildKey {
    BuildKey::parse(&digit.to_string().repeat(64)).expect("a key")
}

fn name(at: Option<&str>, (namespace, name, uid): (&str, &str, &str), attempt: u32) -> String {
    name_of(at, &Owner { namespace, name, uid }, &key('a'), attempt)
}

/// A run in the namespace `builds`, as the operator makes it there for `team/reviewer`; `change` makes it another one.
fn run(change: impl FnOnce(&mut Value)) -> Run {
    let run = name(Some("builds"), ("team", "reviewer", UID), 2);
    let mut object = json!({
        "apiVersion": TEKTON_API_VERSION, "kind": "PipelineRun",
        "metadata": {
            "namespace": "builds", "name": run,
            "labels": {
                keys::OWNER_KIND: OWNER_KIND, keys::OWNER_NAME: "reviewer", keys::OWNER_NAMESPACE: "team", keys::OWNER_UID: UID,
            },
            "annotations": {BUILD_KEY: "a".repeat(64), ATTEMPT: "2"},
        },
    });
    change(&mut object["metadata"]);
    Run::read(&serde_json::from_value::<DynamicObject>(object).expect("an object"))
}

#[test]
fn b5_what_restricted_does_not_admit_is_built_in_another_namespace() {
    let place = |needs, namespace| Place::new("team", needs, namespace);
    let there = place(Level::Baseline, Some("builds"));
    assert_eq!((there.namespace(), there.elsewhere()), ("builds", Some("builds")));
    assert_eq!(place(Level::Privileged, Some("builds")), there);
    for at_home in [
        place(Level::Baseline, None),
        place(Level::Restricted, Some("builds")),
        place(Level::Baseline, Some("team")),
    ] {
        assert_eq!((at_home.namespace(), at_home.elsewhere()), ("team", None));
        let plain = run_name("reviewer", &key('a'), 1);
        assert_eq!(at_home.run_name("reviewer", UID, &key('a'), 1), plain, "as ever");
    }
}

#[test]
fn b5_names_in_the_other_namespace_tell_agent_builds_apart() {
    let there = Some("builds");
    let long = "a".repeat(63);
    let all = [
        name(there, ("team", "reviewer", UID), 1),
        name(there, ("team", "reviewer", UID), 2),
        name(there, ("other", "reviewer", UID), 1),
        // Deleted and made anew.
        name(there, ("team", "reviewer", "another"), 1),
        name(there, ("team", &long, UID), 1),
        name(there, ("team", &long[1..], UID), 1),
        name(None, ("team", "reviewer", UID), 1),
    ];
    assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), all.len(), "{all:?}");
    for name in &all {
        assert!(name.len() <= MAX_NAME && is_dns_label(name), "{name}");
    }
    assert!(all[0].starts_with("reviewer-") && all[0].ends_with("-aaaaaaaaaa-1"), "{}", all[0]);
    assert_eq!(all[0], name(there, ("team", "reviewer", UID), 1), "it follows from the same");
}

#[test]
fn b5_a_run_elsewhere_is_known_by_its_labels_and_its_name() {
    let ours = run(|_| {});
    assert!(ours.is_elsewhere());
    assert_eq!((ours.home.as_str(), ours.namespace.as_str()), ("team", "builds"));
    assert_eq!(
        (ours.owner_name.as_deref(), ours.owner_uid.as_deref()),
        (Some("reviewer"), Some(UID))
    );
    assert_eq!(ours.title("team"), format!("builds/{}", ours.name));
    assert_eq!(ours.title("builds"), ours.name);
    assert_eq!(term(&ours).as_deref(), Some("team/reviewer"));
    let changes: [fn(&mut Value); 7] = [
        |meta| meta["labels"][keys::OWNER_UID] = "another".into(),
        |meta| meta["labels"][keys::OWNER_NAMESPACE] = "other".into(),
        |meta| meta["labels"][keys::OWNER_NAME] = "writer".into(),
        |meta| meta["labels"][keys::OWNER_KIND] = "agent".into(),
        |meta| meta["annotations"][BUILD_KEY] = "b".repeat(64).into(),
        |meta| meta["annotations"][ATTEMPT] = "1".into(),
        |meta| meta["name"] = "reviewer-aaaaaaaaaa-2".into(),
    ];
    for (at, change) in changes.into_iter().enumerate() {
        let forged = run(change);
        assert_eq!((forged.owner_uid, forged.home.as_str()), (None, "builds"), "{at}");
    }
    // A reference counts, and then only in its own namespace.
    let other = json!([{"apiVersion": API_VERSION, "kind": "AgentBuild", "name": "mine", "uid": "u", "controller": true}]);
    let owned = run(|meta| meta["ownerReferences"] = other);
    assert_eq!((owned.owner_uid.as_deref(), owned.home.as_str()), (Some("u"), "builds"));
    // The labels of its own namespace add nothing.
    let at_home = run(|meta| meta["namespace"] = "team".into());
    assert_eq!((at_home.owner_uid, at_home.home.as_str()), (None, "team"));
}

#[test]
fn b5_the_finalizer_names_the_namespace() {
    let all = [
        "foregroundDeletion".to_owned(),
        finalizer("builds"),
        "builds.convoke.dev/".to_owned(),
        "builds.convoke.dev/A/b".to_owned(),
        finalizer("before"),
    ];
    assert_eq!(places(&all).collect::<Vec<_>>(), ["builds", "before"]);
}

#[test]
fn b5_the_status_says_where_its_run_is() {
    let (there, mut at_home) = (run(|_| {}), run(|_| {}));
    at_home.namespace = "team".into();
    let told = |name: &str, at: Option<&str>| AgentBuildStatus {
        pipeline_run: Some(name.into()),
        build_namespace: at.map(str::to_owned),
        ..AgentBuildStatus::default()
    };
    let (new, empty) = (told(&there.name, None), AgentBuildStatus::default());
    assert_eq!(of_status(&new, &empty, [&there]).as_deref(), Some("builds"));
    assert_eq!(of_status(&new, &told(&there.name, Some("builds")), [&at_home]), None);
    // Its run is gone.
    let before = told(&there.name, Some("builds"));
    assert_eq!(of_status(&before, &before, []).as_deref(), Some("builds"));
    assert_eq!(of_status(&told("next", None), &before, []), None);
    assert_eq!(of_status(&empty, &before, [&there]), None);
    assert_eq!(there.outcome, RunOutcome::Running);
}

#[test]
fn b5_a_refused_pod_names_the_choices() {
    let at_home = |needs| Run { needs, namespace: "team".into(), ..run(|_| ()) };
    let of = |run: &Run| pod_refused(run, "violates PodSecurity \"restricted:latest\"");
    let said = of(&at_home(Level::Baseline));
    let begin = "let the namespace team admit Pod Security baseline: kubectl label namespace team \
                 pod-security.kubernetes.io/enforce=baseline --overwrite, and then convoke rebuild build/reviewer -n team; or use";
    assert!(said.starts_with(begin), "{said}");
    assert!(said.contains("--build-namespace") && said.contains("strategy: Append"), "{said}");
    assert!(said.ends_with("the API server said: violates PodSecurity \"restricted:latest\""));
    // Nobody is told to let a namespace of a team admit everything.
    let said = of(&at_home(Level::Privileged));
    assert!(!said.contains("kubectl label") && said.contains("--build-namespace"), "{said}");
    let there = Run { needs: Level::Privileged, ..run(|_| ()) };
    let said = of(&there);
    let command = "kubectl label namespace builds pod-security.kubernetes.io/enforce=privileged";
    assert!(there.is_elsewhere() && said.contains(command), "{said}");
    assert!(said.contains("convoke rebuild build/reviewer -n team;"), "{said}");
    let said = of(&at_home(Level::Restricted));
    assert!(said.contains("set-security-context") && said.contains("admit baseline"), "{said}");
    let long = pod_refused(&there, &"ä".repeat(5_000));
    assert!(long.len() < 2_000 && long.ends_with("ä…"), "{long}");
}

#[test]
fn b5_only_a_run_whose_agent_build_is_proven_to_be_gone_is_an_orphan() {
    let key = Key::new("team", "reviewer");
    let there = |uid: &str| Proven::There(uid.to_owned());
    let ours = run(|_| ());
    assert!(is_of(&ours, &key, UID) && !is_of(&ours, &key, "another"));
    // It lives; it is gone; another one has its name.
    assert!(!is_orphan(&ours, &key, &there(UID)));
    assert!(is_orphan(&ours, &key, &Proven::Gone));
    assert!(is_orphan(&ours, &key, &there("another")));
    let at_home = run(|meta| meta["namespace"] = "team".into());
    let forged = run(|meta| meta["labels"][keys::OWNER_UID] = "another".into());
    let stranger = run(|meta| meta["labels"] = json!({}));
    for (what, run, key) in [
        ("of another AgentBuild", &ours, Key::new("team", "writer")),
        ("of another namespace", &ours, Key::new("other", "reviewer")),
        ("in the namespace of its AgentBuild, where Kubernetes removes it", &at_home, key.clone()),
        ("whose name does not follow from its labels", &forged, key.clone()),
        ("without labels", &stranger, key.clone()),
    ] {
        assert!(!is_orphan(run, &key, &Proven::Gone), "{what}");
        assert!(!is_of(run, &key, UID), "{what}");
    }
}
