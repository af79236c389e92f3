//! `convoke init` against real servers: what it prints fills a namespace, and each credential that fails is told before anything is made.
#![allow(clippy::expect_used, clippy::panic, clippy::disallowed_types, clippy::disallowed_methods)]

use std::process::{Command, Stdio};

use serde_json::Value;

use crate::describe::{Case, normal};
use crate::support::team::{Team, model, tenants};

/// What a run gave.
pub(super) struct Run {
    pub(super) code: i32,
    pub(super) out: String,
    pub(super) err: String,
}

/// Runs `convoke init main` for the namespace of the team, with a Secret of these values.
pub(super) fn init(
    team: &Team<'_>,
    url: &str,
    values: Option<&Value>,
    proxy: bool,
    more: &[&str],
) -> Run {
    let dir = tempfile::tempdir().expect("a folder");
    let mut command = Command::new(env!("CARGO_BIN_EXE_convoke"));
    command.args(["init", "main", "-n", &team.namespace, "--url", url, "--allow-insecure-git"]);
    let here = team.cluster.here;
    if !here.is_loopback() {
        command.args(["--allow-addresses", &here.to_string()]);
    }
    for (key, value) in values.and_then(Value::as_object).into_iter().flatten() {
        let file = dir.path().join(key);
        std::fs::write(&file, value.as_str().expect("text")).expect("written");
        command.arg(if proxy { "--proxy-from-file" } else { "--from-file" }).arg(file);
    }
    let output = command.args(more).stdin(Stdio::null()).output().expect("convoke");
    let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
    let code = output.status.code().expect("an exit code");
    Run { code, out: text(output.stdout), err: text(output.stderr) }
}

/// Compares what is told of each that fails.
pub(super) fn tell<'a>(
    team: &Team<'_>,
    cases: impl Iterator<Item = &'a Case>,
    replace: &[(&str, &str)],
) {
    let mut told = 0;
    for Case { name, spec, secret, .. } in cases {
        let values = secret.as_ref().map(|(values, _)| values);
        let own = team.url();
        let url = spec["url"].as_str().unwrap_or(&own);
        let is_proxy = spec.get("proxySecretRef").is_some();
        let Run { code, out, err } = init(team, url, values, is_proxy, &[]);
        assert_eq!(out, "", "{name}");
        let text = format!("{err}exit code {code}\n");
        insta::assert_snapshot!(*name, normal(&text, &team.namespace, replace));
        told += 1;
    }
    assert!(told >= 12, "{told}");
}

#[tokio::test(flavor = "multi_thread")]
async fn d7_what_is_printed_fills_a_namespace_from_a_private_repository() {
    let (cluster, operator) = tenants().await;
    let files = [("team/a.yaml", &*model("a")), ("team/b.yaml", &model("b"))];
    let team = Team::new(cluster, "init", &files).await;
    team.want_authorization("Basic dTpw");
    let account = format!("{}/convoke", operator.namespace);
    let values = serde_json::json!({"username": "u", "password": "p\n"});
    let more = ["--operator", &account, "--path", "team"];
    let Run { code, out, err } = init(&team, &team.url(), Some(&values), false, &more);
    assert_eq!(code, 0, "{err}");
    let commit = team.repo.head();
    let line = format!("{}: main is at {commit}: 2 objects in 2 files\n", team.url());
    assert_eq!(err, line);
    cluster.apply_text(&out);
    team.wait_ready("True").await;
    assert_eq!(team.models().await, ["a", "b"]);
    // Again it is the same, so it can be kept beside other manifests.
    assert_eq!(init(&team, &team.url(), Some(&values), false, &more).out, out);
}
