//! The command line against a real API server, with the rights of people: `plan --against cluster` and `approve`.
#![allow(clippy::expect_used, clippy::panic, clippy::disallowed_types, clippy::disallowed_methods)]

mod inputs;
mod lacks;
mod trace;
mod trace_build;
use crate::support;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use convoke::api::{GitSync, Kind, keys};
use kube::api::{Api, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use support::team::{SOON, Team, model, model_at, shared_operator};
use support::{AuditMark, Cluster, cluster, eventually};

/// What a run gave.
#[derive(Debug)]
struct Run {
    code: i32,
    out: String,
    err: String,
}

fn convoke(kubeconfig: &Path, args: &[&str]) -> Run {
    let output = Command::new(env!("CARGO_BIN_EXE_convoke"))
        .args(args)
        .env("KUBECONFIG", kubeconfig)
        .stdin(Stdio::null())
        .output()
        .expect("convoke");
    Run {
        code: output.status.code().expect("an exit code"),
        out: String::from_utf8(output.stdout).expect("UTF-8"),
        err: String::from_utf8(output.stderr).expect("UTF-8"),
    }
}

/// The same on a terminal, with somebody who types this.
fn convoke_on_a_terminal(kubeconfig: &Path, args: &[&str], typed: &str) -> Run {
    const TERMINAL: &str =
        "import os, pty, sys; sys.exit(os.waitstatus_to_exitcode(pty.spawn(sys.argv[1:])))";
    let mut child = Command::new("python3")
        .args(["-c", TERMINAL, env!("CARGO_BIN_EXE_convoke")])
        .args(args)
        .env("KUBECONFIG", kubeconfig)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("python3");
    let mut keyboard = child.stdin.take().expect("stdin");
    keyboard.write_all(typed.as_bytes()).expect("type");
    let output = child.wait_with_output().expect("convoke");
    Run {
        code: output.status.code().expect("an exit code"),
        out: String::from_utf8(output.stdout).expect("UTF-8"),
        err: String::new(),
    }
}

/// A person: a ServiceAccount with these rules in the namespace, and these ClusterRoles bound there.
async fn person(
    cluster: &Cluster,
    namespace: &str,
    name: &str,
    rules: Value,
    roles: &[&str],
) -> PathBuf {
    let subjects = json!([{"kind": "ServiceAccount", "name": name, "namespace": namespace}]);
    let group = "rbac.authorization.k8s.io";
    let version = "rbac.authorization.k8s.io/v1";
    let mut items = vec![
        json!({"apiVersion": version, "kind": "Role", "metadata": {"name": name, "namespace": namespace}, "rules": rules}),
        json!({
            "apiVersion": version, "kind": "RoleBinding", "metadata": {"name": name, "namespace": namespace},
            "roleRef": {"apiGroup": group, "kind": "Role", "name": name}, "subjects": subjects,
        }),
    ];
    items.extend(roles.iter().map(|role| {
        json!({
            "apiVersion": version, "kind": "RoleBinding",
            "metadata": {"name": format!("{name}-{role}"), "namespace": namespace},
            "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": role}, "subjects": subjects,
        })
    }));
    cluster.apply(&json!({"apiVersion": "v1", "kind": "List", "items": items}));
    cluster.user_kubeconfig(namespace, name).await
}

/// May read what a plan needs, and nothing else.
fn reader() -> Value {
    json!([{
        "apiGroups": ["convoke.dev"], "verbs": ["get", "list"],
        "resources": ["gitsyncs", "agents", "modelapis", "mcpservers", "agentbuilds"],
    }])
}

/// May edit GitSyncs, without the verb `approve`.
fn editor() -> Value {
    json!([{
        "apiGroups": ["convoke.dev"], "resources": ["gitsyncs", "gitsyncs/status"],
        "verbs": ["get", "list", "create", "update", "patch", "delete"],
    }])
}

/// Policies are compiled a moment after they are made: waits until a dry run without the verb is refused.
async fn in_force(team: &Team<'_>, kubeconfig: &Path) {
    let client = team.cluster.client_of(kubeconfig).await;
    let api: Api<GitSync> = Api::namespaced(client, &team.namespace);
    let patch = Patch::Merge(json!({"metadata": {"annotations": {keys::APPROVE_PRUNE: "x"}}}));
    eventually(SOON, "the policy is in force", || async {
        match api.patch("main", &PatchParams::default().dry_run(), &patch).await {
            Err(kube::Error::Api(status)) if status.message.contains("needs the verb") => Ok(()),
            other => Err(other.map(drop)),
        }
    })
    .await;
}

fn path(team: &Team<'_>) -> String {
    team.repo.work().to_str().expect("UTF-8").to_owned()
}

/// What a plan says of each object: `Update Agent/writer`.
fn actions(report: &Value) -> Vec<String> {
    let objects = report["objects"].as_array().expect("objects");
    let text = |entry: &Value, key: &str| entry[key].as_str().expect("text").to_owned();
    objects.iter().map(|e| format!("{} {}", text(e, "action"), text(e, "object"))).collect()
}

const AGENT: &str = "apiVersion: convoke.dev/v1alpha1\nkind: Agent\nmetadata:\n  name: helper\nspec:\n  modelAPI: a\n  model: small\n";

#[tokio::test(flavor = "multi_thread")]
async fn d2_plan_against_the_cluster_is_what_the_operator_then_does() {
    let cluster = cluster().await;
    shared_operator(cluster).await;
    let names = ["a", "b", "c", "d", "e", "f"];
    let files: Vec<_> = names.iter().map(|name| (format!("{name}.yaml"), model(name))).collect();
    let mut files: Vec<_> = files.iter().map(|(p, t)| (p.as_str(), t.as_str())).collect();
    files.push(("agent.yaml", AGENT));
    let team = Team::new(cluster, "plan", &files).await;
    team.create_sync(json!({})).await;
    team.wait_ready("True").await;
    let kubeconfig = person(cluster, &team.namespace, "reader", reader(), &[]).await;
    let folder = path(&team);
    let arguments = ["plan", &folder, "--against", "cluster", "-n", &team.namespace];
    let plan = |more: &[&str]| convoke(&kubeconfig, &[&arguments, more].concat());
    let report = |more: &[&str]| -> (i32, Value) {
        let run = plan(&[&["-o", "json"], more].concat());
        (run.code, serde_json::from_str(&run.out).unwrap_or_else(|e| panic!("{e}: {run:?}")))
    };

    // Nothing to do, also when somebody scaled what Git does not scale.
    let scale = json!({"spec": {"replicas": 3}});
    let agents = team.api(Kind::Agent);
    agents
        .patch_scale("helper", &PatchParams::default(), &Patch::Merge(&scale))
        .await
        .expect("scale");
    let run = plan(&["--exit-code"]);
    assert_eq!((run.out.as_str(), run.code), ("no changes (7 objects)\n", 0), "{run:?}");

    // A hot fix that somebody protects, until the protection goes.
    let models = team.api(Kind::ModelAPI);
    let protect = |value: Value, url: &str| {
        let metadata = json!({"annotations": {keys::RECONCILE: value}});
        Patch::Merge(json!({"metadata": metadata, "spec": {"external": {"url": url}}}))
    };
    let fix = protect(json!(keys::DISABLED), "https://fix.example.com/v1");
    models.patch("c", &PatchParams::default(), &fix).await.expect("fix");
    assert_eq!(actions(&report(&[]).1), ["Pause ModelAPI/c"]);
    let end = protect(Value::Null, "https://models.example.com/v1");
    models.patch("c", &PatchParams::default(), &end).await.expect("end of the fix");
    eventually(SOON, "all is as it was", || async {
        let run = plan(&[]);
        if run.out == "no changes (7 objects)\n" { Ok(()) } else { Err(run) }
    })
    .await;

    // Work that no commit holds yet.
    let work = team.repo.work().to_owned();
    let write = |name: &str, text: &str| std::fs::write(work.join(name), text).expect("write");
    write("agent.yaml", &AGENT.replace("small", "large"));
    write("b.yaml", &model_at("b", "https://other.example.com/v1"));
    write("new.yaml", &model("new"));
    std::fs::remove_file(work.join("f.yaml")).expect("remove");
    let run = plan(&["--exit-code"]);
    insta::assert_snapshot!(run.out, @r#"
    ~ ModelAPI/b
        url https://models.example.com/v1 → https://other.example.com/v1
    + ModelAPI/new
    ~ Agent/helper
        model small → large
    - ModelAPI/f

    1 to create, 2 to change, 1 to delete, 4 unchanged
    "#);
    assert_eq!((run.code, run.err.as_str()), (4, ""));
    let (_, before) = report(&[]);

    // The operator does just that.
    team.repo.git(&["add", "--all"]);
    let sync = team.push(&[]).await;
    team.wait_ready("True").await;
    let done = &sync.status.expect("status").history[0];
    let number = |key: &str| before["summary"][key].as_i64().expect("a number");
    assert_eq!(
        (done.created, done.updated, done.pruned),
        (number("create"), number("update"), number("delete"))
    );
    assert_eq!(plan(&[]).out, "no changes (7 objects)\n");

    // Too much at once: the digest is the one that the operator then shows.
    for name in ["b", "c", "d", "e"] {
        std::fs::remove_file(work.join(format!("{name}.yaml"))).expect("remove");
    }
    let (_, uncommitted) = report(&[]);
    assert_eq!(uncommitted["held"]["digest"], Value::Null, "{uncommitted}");
    team.repo.git(&["add", "--all"]);
    team.repo.change("less", &[], &[]);
    let (code, held) = report(&["--exit-code"]);
    assert_eq!((code, actions(&held)), (4, Vec::new()));
    team.request().await;
    let pending = team.status().await.pending_prune.expect("held");
    assert_eq!(held["held"]["digest"], json!(pending.digest));
    assert_eq!(held["held"]["objects"], json!(pending.objects));
    assert_eq!(held["held"]["reason"], json!(pending.reason));

    // Conflicts and broken files: exit code 1, and the rest of the plan.
    let foreign = json!({"apiVersion": "convoke.dev/v1alpha1", "kind": "ModelAPI", "metadata": {"name": "foreign"},
        "spec": {"mode": "External", "external": {"url": "https://x.example.com"}}});
    let foreign = serde_json::from_value(foreign).expect("object");
    team.api(Kind::ModelAPI).create(&PostParams::default(), &foreign).await.expect("create");
    write("foreign.yaml", &model("foreign"));
    write("agent.yaml", &AGENT.replace("model:", "modle:"));
    let run = plan(&[]);
    assert!(run.err.contains("agent.yaml:7:3: error[CVK0201]"), "{run:?}");
    let (code, broken) = report(&[]);
    assert_eq!(code, 1);
    assert_eq!(actions(&broken), ["Conflict ModelAPI/foreign", "Quarantine Agent/helper"]);
    let sync = team.push(&[("foreign.yaml", Some(&model("foreign")))]).await;
    let status = sync.status.expect("status");
    assert_eq!(status.quarantined[0].object, "Agent/helper");
    assert!(status.problems.iter().any(|p| p.code == "CVK0901"), "{:?}", status.problems);

    // A file that moved before it broke still says which object is its own.
    let helper = AGENT.to_owned();
    let files = [("foreign.yaml", None), ("agent.yaml", None), ("deep/agent.yaml", Some(&*helper))];
    team.push(&files).await;
    write("deep/agent.yaml", "kind: [unclosed");
    let (code, moved) = report(&[]);
    assert_eq!((code, actions(&moved)), (1, vec!["Quarantine Agent/helper".to_owned()]));
    assert_eq!(
        moved["objects"][0]["note"],
        "is kept at its last good definition: deep/agent.yaml is broken"
    );

    // A plan reads, and that is all.
    let who = format!("system:serviceaccount:{}:reader", team.namespace);
    assert_eq!(cluster.writes_by(&who, AuditMark::START), []);
    assert!(!cluster.requests_by(&who, AuditMark::START).is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn g22_a_plan_knows_the_other_sync_of_the_repository() {
    let cluster = cluster().await;
    shared_operator(cluster).await;
    let (one, two, three, four) = (model("one"), model("two"), model("three"), model("four"));
    let files = [("a/one.yaml", &*one), ("a/two.yaml", &*two), ("b/three.yaml", &*three)];
    let team = Team::new(cluster, "siblings", &files).await;
    team.create_sync(json!({"path": "a"})).await;
    team.create_sync_named("other", json!({"path": "./b"})).await;
    team.wait_ready("True").await;
    team.wait_ready_of("other", "True").await;
    let kubeconfig = person(cluster, &team.namespace, "reader", reader(), &[]).await;
    let plan = |sync: &str, folder: &str| {
        let folder = team.repo.work().join(folder);
        let folder = folder.to_str().expect("UTF-8");
        let arguments = ["plan", folder, "--against", "cluster", "-n", &team.namespace];
        convoke(&kubeconfig, &[&arguments[..], &["--sync", sync]].concat())
    };
    let moved = team.repo.work().join("b/one.yaml");
    std::fs::rename(team.repo.work().join("a/one.yaml"), moved).expect("move");
    let gives = plan("main", "a");
    insta::assert_snapshot!(gives.out, @r#"
    > ModelAPI/one
        is left to GitSync other

    0 to create, 0 to change, 0 to delete, 1 unchanged
    "#);
    let takes = plan("other", "b");
    insta::assert_snapshot!(takes.out, @r#"
    ~ ModelAPI/one
        is taken over

    0 to create, 1 to change, 0 to delete, 1 unchanged
    "#);
    let wrong = plan("other", "a");
    assert!(
        wrong.out.contains("note: GitSync other reads ./b, and this folder is a of"),
        "{wrong:?}"
    );

    // Of another repository nothing is known here, and that is said.
    team.create_sync_named(
        "elsewhere",
        json!({"url": "https://example.com/x.git", "suspend": true}),
    )
    .await;
    std::fs::write(team.repo.work().join("b/three.yaml"), &four).expect("write");
    let run = plan("other", "b");
    let note = "note: what 1 other GitSync of NAMESPACE wants (elsewhere) is not known here";
    assert!(run.out.replace(&team.namespace, "NAMESPACE").contains(note), "{run:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn g23_approving_needs_the_verb_and_nothing_else_does() {
    let cluster = cluster().await;
    let team = Team::new(cluster, "verb", &[("a.yaml", &model("a"))]).await;
    let namespace = &team.namespace;
    let api = async |kubeconfig: PathBuf| -> Api<GitSync> {
        Api::namespaced(cluster.client_of(&kubeconfig).await, namespace)
    };
    let may_not_kubeconfig = person(cluster, namespace, "editor", editor(), &[]).await;
    let may_not = api(may_not_kubeconfig.clone()).await;
    let may =
        api(person(cluster, namespace, "approver", json!([]), &["convoke-approver"]).await).await;
    team.create_sync(json!({"suspend": true})).await;
    let annotate = |value: Value| {
        Patch::Merge(json!({"metadata": {"annotations": {keys::APPROVE_PRUNE: value}}}))
    };
    let refused = |result: Result<GitSync, kube::Error>| match result {
        Err(kube::Error::Api(status)) => {
            assert_eq!(status.code, 403, "{status:?}");
            assert!(status.message.contains("needs the verb approve on GitSync"), "{status:?}");
        }
        other => panic!("not refused: {other:?}"),
    };
    let plain = PatchParams::default();
    in_force(&team, &may_not_kubeconfig).await;
    eventually(SOON, "the role is collected", || async {
        may.patch("main", &plain.clone().dry_run(), &annotate(json!("x"))).await.map(drop)
    })
    .await;

    refused(may_not.patch("main", &plain, &annotate(json!("aaaa"))).await);
    may.patch("main", &plain, &annotate(json!("aaaa"))).await.expect("may approve");
    // It stands: other edits are free, changing it is not.
    let edit = Patch::Merge(
        json!({"spec": {"interval": "2h"}, "metadata": {"annotations": {keys::REQUESTED_AT: "x"}}}),
    );
    may_not.patch("main", &plain, &edit).await.expect("other edits are free");
    refused(may_not.patch("main", &plain, &annotate(json!("bbbb"))).await);
    let apply = json!({"apiVersion": "convoke.dev/v1alpha1", "kind": "GitSync",
        "metadata": {"name": "main", "annotations": {keys::APPROVE_PRUNE: "cccc"}}});
    refused(
        may_not.patch("main", &PatchParams::apply("editor").force(), &Patch::Apply(&apply)).await,
    );
    // The status is no way in: what it carries of metadata is dropped.
    may_not.patch_status("main", &plain, &annotate(json!("dddd"))).await.expect("a status");
    let annotations = team.get().await.metadata.annotations.expect("annotations");
    assert_eq!(annotations[keys::APPROVE_PRUNE], "aaaa");
    // Taking an approval back needs nothing.
    may_not.patch("main", &plain, &annotate(Value::Null)).await.expect("removing is free");

    let sync = |name: &str, approval: Option<&str>| -> GitSync {
        let annotations = approval.map(|a| json!({keys::APPROVE_PRUNE: a}));
        serde_json::from_value(json!({
            "apiVersion": "convoke.dev/v1alpha1", "kind": "GitSync",
            "metadata": {"name": name, "annotations": annotations},
            "spec": {"url": team.url(), "suspend": true},
        }))
        .expect("a GitSync")
    };
    refused(may_not.create(&PostParams::default(), &sync("born-approved", Some("dddd"))).await);
    may_not.create(&PostParams::default(), &sync("plain", None)).await.expect("creating is free");
    may_not.delete("plain", &kube::api::DeleteParams::default()).await.expect("deleting is free");
    // The verb is asked for on the object: the right to one GitSync is not the right to another.
    let one = json!([
        {"apiGroups": ["convoke.dev"], "resources": ["gitsyncs"], "verbs": ["get", "patch"]},
        {"apiGroups": ["convoke.dev"], "resources": ["gitsyncs"], "resourceNames": ["main"], "verbs": ["approve"]},
    ]);
    let of_one = api(person(cluster, namespace, "one", one, &[]).await).await;
    team.create_sync_named("other", json!({"suspend": true})).await;
    eventually(SOON, "the right to one is known", || async {
        of_one.patch("main", &plain, &annotate(json!("aaaa"))).await.map(drop)
    })
    .await;
    refused(of_one.patch("other", &plain, &annotate(json!("aaaa"))).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn g23_convoke_approve_releases_what_it_showed() {
    let cluster = cluster().await;
    shared_operator(cluster).await;
    let names = ["a", "b", "c", "d"];
    let files: Vec<_> = names.iter().map(|name| (format!("{name}.yaml"), model(name))).collect();
    let files: Vec<_> = files.iter().map(|(p, t)| (p.as_str(), t.as_str())).collect();
    let team = Team::new(cluster, "approve", &files).await;
    team.create_sync(json!({})).await;
    team.wait_ready("True").await;
    let may_not = person(cluster, &team.namespace, "editor", editor(), &[]).await;
    let may = person(cluster, &team.namespace, "approver", json!([]), &["convoke-approver"]).await;
    let approve = |kubeconfig: &Path, name: &str, more: &[&str]| {
        convoke(kubeconfig, &[&["approve", name, "-n", &team.namespace], more].concat())
    };
    let check = |run: &Run, code: i32, part: &str| {
        assert_eq!(run.code, code, "{run:?}");
        assert!(run.err.contains(part), "{part}: {}", run.err);
    };
    check(&approve(&may_not, "main", &["--yes"]), 1, "holds no deletes");
    check(&approve(&may_not, "none", &["--yes"]), 3, "there is no GitSync none");

    let sync = team.push(&[("b.yaml", None), ("c.yaml", None), ("d.yaml", None)]).await;
    let digest = sync.status.expect("status").pending_prune.expect("held").digest;
    check(&approve(&may_not, "main", &["--yes", "--digest", "0000"]), 1, "not 0000");
    check(&approve(&may_not, "main", &[]), 2, "there is no terminal to ask on");
    in_force(&team, &may_not).await;
    let run = approve(&may_not, "main", &["--yes"]);
    check(&run, 3, "needs the verb approve on GitSync main");
    check(&run, 3, "hint: it takes the verbs approve and patch");
    assert_eq!(team.models().await, names, "nothing was released");
    eventually(SOON, "the role is collected", || async {
        let run = approve(&may, "main", &["--yes", "--digest", "0000"]);
        if run.code == 1 { Ok(()) } else { Err(run) }
    })
    .await;
    let arguments = ["approve", "main", "-n", &team.namespace];
    for typed in ["no\n", "\n", "y\n"] {
        let run = convoke_on_a_terminal(&may, &arguments, typed);
        assert_eq!(run.code, 1, "{run:?}");
        assert!(run.out.contains("Delete these? [yes/no]"), "{run:?}");
        assert!(run.out.contains("nothing was approved"), "{run:?}");
    }
    let run = convoke_on_a_terminal(&may_not, &arguments, "yes\n");
    assert_eq!(run.code, 3, "{run:?}");
    let run = approve(&may, "main", &["--yes", "--digest", &digest]);
    check(&run, 0, "");
    let shown = run.out.replace(&digest, "DIGEST").replace(&team.namespace, "NAMESPACE");
    insta::assert_snapshot!(shown, @r#"
    GitSync NAMESPACE/main holds 3 deletes: 3 of 4 objects would be deleted, more than the allowed 1
        - ModelAPI/d
        - ModelAPI/c
        - ModelAPI/b
        digest DIGEST
    approved: the operator deletes these once it has looked at the remote again, and nothing else
    "#);
    // The operator has no such verb, and goes on.
    team.wait_ready("True").await;
    assert_eq!(team.models().await, ["a"]);
    check(&approve(&may, "main", &["--yes"]), 1, "holds no deletes");
    let suspend = Patch::Merge(json!({"spec": {"suspend": true}}));
    team.syncs.patch("main", &PatchParams::default(), &suspend).await.expect("suspend");
    check(&approve(&may, "main", &["--yes"]), 1, "is suspended, and deletes nothing");
}

#[tokio::test(flavor = "multi_thread")]
async fn d3_what_is_rendered_is_what_the_api_server_takes() {
    let cluster = cluster().await;
    let namespace = cluster.namespace("render").await;
    let run = convoke(&cluster.admin_kubeconfig(), &["render", "examples-repo/team"]);
    assert_eq!((run.code, run.err.as_str()), (0, ""));
    let file = tempfile::NamedTempFile::new_in(cluster.dir()).expect("temporary file");
    std::fs::write(file.path(), run.out).expect("write");
    let file = file.path().to_str().expect("UTF-8");
    let taken = cluster.kubectl(&["-n", &namespace, "create", "-f", file, "--validate=strict"]);
    assert_eq!(taken.lines().filter(|line| line.ends_with(" created")).count(), 10, "{taken}");
}
