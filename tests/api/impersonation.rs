//! With whose rights a GitSync writes. The operator runs with the shipped rights and without `--single-tenant`.
#![allow(clippy::expect_used, clippy::panic, clippy::disallowed_types, clippy::disallowed_methods)]

use crate::support;

use convoke::api::{GitSync, Kind, keys};
use kube::api::{Patch, PatchParams};
use serde_json::json;
use support::cluster::{operator_user, team_manifest};
use support::team::{AGENT, SOON, Team, condition, model, model_at, ready, tenants};
use support::{AuditRecord, Cluster, eventually};

const ACCOUNT: &str = "convoke-sync";

fn is_synced_kind(record: &AuditRecord) -> bool {
    Kind::ALL.iter().any(|kind| kind.plural() == record.resource)
}

async fn wait_reason(team: &Team<'_>, reason: &str) -> GitSync {
    eventually(SOON, &format!("Ready says {reason}"), || async {
        let sync = team.get().await;
        if ready(&sync).reason == reason { Ok(sync) } else { Err(sync.status) }
    })
    .await
}

/// An MCPServer that runs nothing.
fn tool(name: &str) -> String {
    format!(
        "apiVersion: convoke.dev/v1alpha1\nkind: MCPServer\nmetadata:\n  name: {name}\nspec:\n  remote:\n    url: https://tools.example.com/mcp\n"
    )
}

/// A ModelAPI whose spec may have more fields than Git sets.
fn proxy(name: &str) -> String {
    format!(
        "apiVersion: convoke.dev/v1alpha1\nkind: ModelAPI\nmetadata:\n  name: {name}\nspec:\n  mode: Proxy\n  proxy:\n    models: [gpt-4o]\n"
    )
}

/// Runs the commands that a hint names, as a person would paste them.
fn follow(cluster: &Cluster, hint: &str) {
    let commands: Vec<_> = hint.split("; ").filter(|c| c.starts_with("kubectl ")).collect();
    assert!(!commands.is_empty(), "no command in {hint:?}");
    for command in commands {
        cluster.kubectl(&command.split(' ').skip(1).collect::<Vec<_>>());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn g16_what_comes_from_git_is_written_as_the_account_and_the_rest_as_the_operator() {
    let (cluster, operator) = tenants().await;
    let files = [("a.yaml", model("a")), ("b.yaml", proxy("b")), ("c.yaml", model("c"))];
    let files: Vec<_> = files.iter().map(|(path, text)| (*path, text.as_str())).collect();
    let team = Team::new(cluster, "acts", &files).await;
    cluster.grant_sync(&team.namespace, operator);
    let mark = cluster.audit_mark();
    team.create_sync(json!({"serviceAccountName": ACCOUNT, "prune": {"maxDeletions": "50%"}}))
        .await;
    team.wait_ready("True").await;

    // An update, a field of somebody else that only a replaced spec takes away, and a delete.
    team.push(&[("a.yaml", Some(&model_at("a", "https://new.example.com/v1")))]).await;
    let drift = json!({"spec": {"env": [{"name": "LATE", "value": "night"}]}});
    let api = team.api(Kind::ModelAPI);
    api.patch("b", &PatchParams::default(), &Patch::Merge(&drift)).await.expect("an edit");
    eventually(SOON, "drift is undone", || async {
        let spec = api.get("b").await.expect("b").data["spec"].clone();
        if spec.get("env").is_none() { Ok(()) } else { Err(spec) }
    })
    .await;
    team.push(&[("c.yaml", None)]).await;
    eventually(SOON, "c is deleted", || async {
        (team.models().await == ["a", "b"]).then_some(())
    })
    .await;
    team.wait_ready("True").await;

    let user = format!("system:serviceaccount:{}:{ACCOUNT}", team.namespace);
    let groups = [
        "system:authenticated".to_owned(),
        "system:serviceaccounts".to_owned(),
        format!("system:serviceaccounts:{}", team.namespace),
    ];
    let records: Vec<_> = cluster
        .writes_by(AGENT, mark)
        .into_iter()
        .filter(|record| record.namespace == team.namespace)
        .collect();
    let (objects, others): (Vec<_>, Vec<_>) =
        records.iter().partition(|record| is_synced_kind(record) && record.subresource.is_empty());
    assert!(objects.iter().any(|record| record.verb == "delete"), "{objects:#?}");
    for record in &objects {
        assert_eq!(record.user, operator_user(&operator.namespace));
        assert_eq!(record.impersonated.as_ref(), Some(&user), "{record:?}");
        assert_eq!(record.impersonated_groups, groups, "{record:?}");
    }
    for resource in ["gitsyncs", "modelapis", "events"] {
        assert!(others.iter().any(|record| record.resource == resource), "{others:#?}");
    }
    for record in &others {
        assert_eq!(record.impersonated, None, "a status or an event: {record:?}");
    }

    // The operator itself could not have done it.
    let can = |verb: &str| {
        let me = format!("--as={}", operator_user(&operator.namespace));
        let mut command = cluster.kubectl_command();
        command.args(["auth", "can-i", verb, "modelapis.convoke.dev", "-n", &team.namespace, &me]);
        String::from_utf8_lossy(&command.output().expect("kubectl").stdout).trim().to_owned()
    };
    assert_eq!(["get", "create", "patch", "delete"].map(can), ["yes", "no", "no", "no"]);

    // Acting as the account opens no group: the server adds those of the account, and lets nobody name one.
    let kubeconfig = cluster.dir().join(format!("{}-convoke.kubeconfig", operator.namespace));
    for group in ["system:masters", "system:authenticated"] {
        let mut command = cluster.kubectl_command();
        command.arg("--kubeconfig").arg(&kubeconfig).args(["get", "modelapis", "-n"]);
        command.args([&team.namespace, &format!("--as={user}"), &format!("--as-group={group}")]);
        let output = command.output().expect("kubectl");
        let words = String::from_utf8_lossy(&output.stderr);
        assert!(words.contains("cannot impersonate resource \"groups\""), "{words}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn g16_without_an_account_nothing_is_written() {
    let (cluster, operator) = tenants().await;
    let team = Team::new(cluster, "nobody", &[("a.yaml", &model("a"))]).await;
    let sync = team.sync_with(json!({})).await;
    assert_eq!(ready(&sync).reason, "ServiceAccountRequired");
    assert!(condition(&sync, "Stalled").is_some());
    assert_eq!(team.models().await, Vec::<String>::new());

    // The shipped example is accepted whole, its GitSync too.
    let example = std::fs::read_to_string("deploy/team.yaml").expect("team.yaml");
    let file = cluster.dir().join("team.yaml");
    std::fs::write(&file, example.replace("team-a", &team.namespace)).expect("write");
    let file = file.to_string_lossy();
    let told = cluster.kubectl(&["apply", "--dry-run=server", "--server-side", "-f", &file]);
    assert!(told.contains("gitsync.convoke.dev/"), "{told}");

    // It heals with the spec.
    cluster.grant_sync(&team.namespace, operator);
    team.create_sync(json!({"serviceAccountName": ACCOUNT})).await;
    team.wait_ready("True").await;
    assert_eq!(team.models().await, ["a"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn g16_names_that_reach_beyond_the_namespace_are_refused() {
    let (cluster, _) = tenants().await;
    let team = Team::new(cluster, "names", &[("a.yaml", &model("a"))]).await;
    for name in
        ["", "system:masters", "system:serviceaccount:kube-system:default", "a/b", "a.b", "A"]
    {
        let object = json!({
            "apiVersion": "convoke.dev/v1alpha1", "kind": "GitSync", "metadata": {"name": "main"},
            "spec": {"url": team.url(), "serviceAccountName": name},
        });
        let params = PatchParams::apply("tester").force();
        let error = team.syncs.patch("main", &params, &Patch::Apply(&object)).await;
        let error = error.expect_err(name).to_string();
        assert!(error.contains("serviceAccountName"), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn g16_a_missing_account_is_named_and_heals_when_it_appears() {
    let (cluster, operator) = tenants().await;
    let team = Team::new(cluster, "missing", &[("a.yaml", &model("a"))]).await;
    // All bindings are there, and would work: the API server does not ask whether the account exists.
    cluster.grant_sync(&team.namespace, operator);
    let namespace = ["-n", &team.namespace];
    cluster.kubectl(&[&namespace[..], &["delete", "serviceaccount", ACCOUNT]].concat());
    team.create_sync(json!({"serviceAccountName": ACCOUNT})).await;
    let sync = wait_reason(&team, "ServiceAccountNotFound").await;
    assert_eq!(team.models().await, Vec::<String>::new());
    assert!(condition(&sync, "Reconciling").is_some(), "it goes on by itself");
    follow(cluster, ready(&sync).message.split_once("hint: ").expect("a hint").1);
    team.wait_ready("True").await;
    assert_eq!(team.models().await, ["a"]);

    // Gone again: what runs stays, and nothing more is written in its name.
    cluster.kubectl(&[&namespace[..], &["delete", "serviceaccount", ACCOUNT]].concat());
    team.push(&[("b.yaml", Some(&model("b")))]).await;
    wait_reason(&team, "ServiceAccountNotFound").await;
    assert_eq!(team.models().await, ["a"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn g16_a_right_to_act_that_is_missing_is_told_once_with_the_commands_that_give_it() {
    let (cluster, operator) = tenants().await;
    let files: Vec<_> = (0..20).map(|n| (format!("m{n}.yaml"), model(&format!("m{n}")))).collect();
    let files: Vec<_> = files.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
    let team = Team::new(cluster, "noact", &files).await;
    let manifest = team_manifest(&team.namespace, operator);
    let documents = manifest.split("---\n").filter(|d| !d.contains("convoke-act-as-"));
    cluster.apply_text(&documents.collect::<Vec<_>>().join("---\n"));
    // The account may be looked at, but nothing more: the trial says so before any object is sent.
    cluster.apply(&json!({"apiVersion": "v1", "kind": "List", "items": [
        {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role",
         "metadata": {"name": "looks", "namespace": team.namespace},
         "rules": [{"apiGroups": [""], "resources": ["serviceaccounts"], "verbs": ["get"]}]},
        {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
         "metadata": {"name": "looks", "namespace": team.namespace},
         "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "looks"},
         "subjects": [{"kind": "ServiceAccount", "name": "convoke", "namespace": operator.namespace}]},
    ]}));
    let mark = cluster.audit_mark();
    team.create_sync(json!({"serviceAccountName": ACCOUNT})).await;
    let sync = wait_reason(&team, "ImpersonationForbidden").await;
    let status = sync.status.clone().expect("status");
    assert_eq!(status.problem_count, Some(0), "nothing is wrong with the commit: {status:#?}");
    let sent = cluster
        .writes_by(AGENT, mark)
        .into_iter()
        .filter(|record| record.namespace == team.namespace && is_synced_kind(record));
    assert_eq!(sent.collect::<Vec<_>>(), []);

    let message = ready(&sync).message;
    let hint = message.split_once("hint: ").expect("a hint").1;
    follow(cluster, hint.split_once("; the server says").expect("the server's words").0);
    team.wait_ready("True").await;
    assert_eq!(team.models().await.len(), 20);
}

#[tokio::test(flavor = "multi_thread")]
async fn g16_a_right_that_the_account_misses_stops_its_objects_only() {
    let (cluster, operator) = tenants().await;
    let team =
        Team::new(cluster, "rights", &[("a.yaml", &model("a")), ("t.yaml", &tool("t"))]).await;
    cluster.grant_sync(&team.namespace, operator);
    let rules = |resources: &[&str], verbs: &[&str]| {
        cluster.apply(&json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role",
            "metadata": {"name": ACCOUNT, "namespace": team.namespace},
            "rules": [{"apiGroups": ["convoke.dev"], "resources": resources, "verbs": verbs}],
        }));
    };
    rules(&["modelapis"], &["get", "create", "patch"]);
    team.create_sync(json!({"serviceAccountName": ACCOUNT, "prune": {"maxDeletions": "100%"}}))
        .await;
    let sync = wait_reason(&team, "Forbidden").await;
    assert_eq!(team.models().await, ["a"], "the others go on");
    let problems = sync.status.expect("status").problems;
    assert_eq!(support::team::places(&problems), ["t.yaml:1:1 CVK0905"]);
    let account = format!("{}/{ACCOUNT}", team.namespace);
    assert_eq!(
        problems[0].message,
        format!(
            "MCPServer/t could not be written: ServiceAccount {account} may not create or patch mcpservers.convoke.dev"
        )
    );

    // Rights appear without a sound: it is tried again after the retryInterval, here a second.
    rules(&["modelapis", "mcpservers"], &["get", "create", "patch"]);
    team.wait_ready("True").await;
    assert_eq!(team.objects(Kind::MCPServer).await.len(), 1);

    // A delete is a right of its own.
    team.push(&[("t.yaml", None)]).await;
    let sync = wait_reason(&team, "Forbidden").await;
    let problem = sync.status.expect("status").problems[0].clone();
    assert!(problem.message.ends_with("may not delete mcpservers.convoke.dev"), "{problem:?}");
    // The hint makes a Role of the account's name; this one has it already.
    cluster.kubectl(&["-n", &team.namespace, "delete", "role,rolebinding", ACCOUNT]);
    follow(cluster, &problem.hint.expect("a hint"));
    team.wait_ready("True").await;
    assert_eq!(team.objects(Kind::MCPServer).await.len(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn g16_a_default_account_writes_for_those_that_name_none() {
    let cluster = Cluster::exclusive().await;
    let args = ["--allow-insecure-git", "--leader-elect=false", "--single-tenant"];
    let named = [&args[..], &["--default-service-account", ACCOUNT]].concat();
    let operator = cluster.operator(&named).await;
    let team = Team::new(&cluster, "default", &[("a.yaml", &model("a"))]).await;
    cluster.grant_sync(&team.namespace, &operator);
    let mark = cluster.audit_mark();
    team.create_sync(json!({})).await;
    team.wait_ready("True").await;
    let user = |name: &str| format!("system:serviceaccount:{}:{name}", team.namespace);
    let writers = || {
        let mut users: Vec<_> = cluster
            .writes_by(AGENT, mark)
            .into_iter()
            .filter(|record| is_synced_kind(record) && record.subresource.is_empty())
            .map(|record| record.impersonated)
            .collect();
        users.dedup();
        users
    };
    assert_eq!(writers(), [Some(user(ACCOUNT))]);

    // One that names its own is not written by the default, nor by the operator: and that one may not act as it.
    team.create_sync(json!({"serviceAccountName": "other"})).await;
    team.annotate(&[(keys::REQUESTED_AT, "again")]).await;
    wait_reason(&team, "ImpersonationForbidden").await;
    assert_eq!(writers(), [Some(user(ACCOUNT))]);
}
