//! What a plan says when it cannot look at the cluster.

use std::path::Path;

use serde_json::{Value, json};

use super::support::team::{Team, model};
use super::support::{cluster, free_port};
use super::{Run, convoke, path, person, reader};

#[tokio::test(flavor = "multi_thread")]
async fn d2_plan_says_what_it_lacks() {
    let cluster = cluster().await;
    let team = Team::new(cluster, "lacks", &[("a.yaml", &model("a"))]).await;
    let reads = person(cluster, &team.namespace, "reader", reader(), &[]).await;
    let blind = person(cluster, &team.namespace, "blind", json!([]), &[]).await;
    let folder = path(&team);
    let plan = |kubeconfig: &Path, more: &[&str]| {
        let arguments = ["plan", &folder, "--against", "cluster", "-n", &team.namespace];
        convoke(kubeconfig, &[&arguments, more].concat())
    };
    let nowhere = cluster.dir().join("nowhere.kubeconfig");
    let check = |run: Run, code: i32, parts: &[&str]| {
        assert_eq!((run.code, run.out.as_str()), (code, ""), "{run:?}");
        assert!(parts.iter().all(|part| run.err.contains(part)), "{parts:?}: {}", run.err);
    };
    check(plan(&reads, &[]), 3, &["there is no GitSync in", "hint: name its namespace with -n"]);
    check(
        plan(&blind, &[]),
        3,
        &["cannot list gitsyncs", "hint: ask for that right: kubectl auth can-i"],
    );
    check(plan(&nowhere, &[]), 3, &["cannot connect to the cluster", "hint: set KUBECONFIG"]);
    // A server that is not there, and one that does not take the token.
    let admin = std::fs::read(cluster.admin_kubeconfig()).expect("kubeconfig");
    let admin: Value = serde_json::from_slice(&admin).expect("JSON");
    let changed = |name: &str, pointer: &str, value: Value| {
        let mut config = admin.clone();
        *config.pointer_mut(pointer).expect(pointer) = value;
        let path = cluster.dir().join(format!("{name}.kubeconfig"));
        std::fs::write(&path, config.to_string()).expect("write");
        path
    };
    let server = json!(format!("https://127.0.0.1:{}", free_port()));
    let gone = changed("gone", "/clusters/0/cluster/server", server);
    let refused =
        ["cannot list gitsyncs", ": Connection refused", "hint: is the cluster of this context"];
    check(plan(&gone, &[]), 3, &refused);
    let stranger = changed("stranger", "/users/0/user", json!({"token": "nobody-s"}));
    let unknown = [
        "cannot list gitsyncs",
        ": Unauthorized",
        "hint: the server does not take the credentials",
    ];
    check(plan(&stranger, &[]), 3, &unknown);
    check(plan(&reads, &["--context", "none"]), 3, &["cannot connect to the cluster", "none"]);
    for name in ["one", "two"] {
        team.create_sync_named(name, json!({"suspend": true})).await;
    }
    check(plan(&reads, &[]), 2, &["several GitSyncs", "one, two", "hint: name one with --sync"]);
    check(plan(&reads, &["--sync", "three"]), 3, &["no GitSync three", "there: one, two"]);
    let run = plan(&reads, &["--sync", "two"]);
    assert_eq!(run.code, 0, "{run:?}");
    assert!(run.out.contains("+ ModelAPI/a\n"), "{run:?}");
    assert!(run.out.contains("note: GitSync two is suspended"), "{run:?}");
}
