//! The README's tour, walked on a real system: what it shows is what one gets.
//!
//! `CONVOKE_UPDATE_README=1 cargo test --test api readme::` writes the outputs into the README.
#![allow(clippy::expect_used, clippy::panic, clippy::disallowed_types, clippy::disallowed_methods)]

use crate::support;

use std::path::Path;
use std::process::Command;

use convoke::api::GitSync;
use k8s_openapi::api::core::v1::Namespace;
use kube::api::{Api, Patch, PatchParams, PostParams};
use regex::Regex;
use serde_json::json;
use support::git_http::{GitServer, Repo};
use support::team::{ARGS, SOON, condition, ready};
use support::{Cluster, eventually};

const ROOT: &str = env!("CARGO_MANIFEST_DIR");
const REGISTRY: &str = "--internal-registry=registry.convoke-system.svc:5000";
const EVERYTHING: &str = "gitsyncs,agents,modelapis,mcpservers,agentbuilds,deployments,services";

/// The fenced block between `<!-- output: NAME -->` and `<!-- end -->`: its range and content.
fn block(readme: &str, name: &str) -> (std::ops::Range<usize>, String) {
    let start = readme
        .find(&format!("<!-- output: {name} -->"))
        .unwrap_or_else(|| panic!("no block {name}"));
    let from = start + readme[start..].find("```\n").expect("fence") + 4;
    let to = from + readme[from..].find("```\n").expect("end of fence");
    (from..to, readme[from..to].to_owned())
}

/// Without what differs from run to run: ages, addresses, commits, what the provider answered, and
/// the width of columns.
fn normal(text: &str) -> String {
    let replace = |text: String, pattern: &str, by: &str| {
        Regex::new(pattern).expect("pattern").replace_all(&text, by).into_owned()
    };
    let text = replace(text.to_owned(), r"[0-9a-f]{40}", "COMMIT");
    let text = replace(text, r"\b10\.96\.\d+\.\d+\b", "ADDRESS");
    let text = replace(text, r"\b(\d+m)?\d+s\b", "AGE");
    let text = replace(text, r"\b[0-9a-f]{16}\b", "DIGEST");
    let text = replace(text, r"[ \t]+", " ");
    // The operator asks a provider seconds after a ModelAPI is there: the column is empty until then.
    let text = replace(text, r"(/shared-model External Ready True) (True|False|Unknown) ", "$1 ");
    text.lines().map(str::trim_end).collect::<Vec<_>>().join("\n")
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).expect("folder");
    for entry in std::fs::read_dir(from).expect("read a folder") {
        let entry = entry.expect("entry");
        let target = to.join(entry.file_name());
        if entry.file_type().expect("type").is_dir() {
            copy(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), target).expect("copy a file");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_tour_of_the_readme_shows_what_one_gets() {
    let cluster = Cluster::exclusive().await;
    // As scripts/quickstart does.
    cluster.kubectl(&["apply", "-n", "convoke-system", "-f", &format!("{ROOT}/deploy/pipelines")]);
    let operator = cluster.operator(&[ARGS, &[REGISTRY]].concat()).await;
    let client = cluster.client().await;
    let namespace: Namespace =
        serde_json::from_value(json!({"metadata": {"name": "agents"}})).expect("namespace");
    Api::<Namespace>::all(client.clone())
        .create(&PostParams::default(), &namespace)
        .await
        .expect("namespace");
    cluster.grant_keys("agents", &[&operator]);
    let dir = tempfile::tempdir().expect("folder");
    let repo = Repo::init(&dir.path().join("remote.git"));
    copy(&Path::new(ROOT).join("examples-repo"), repo.work());
    repo.change("The example repository", &[], &[]);
    let server = GitServer::start_on(cluster.here, &dir.path().join("remote.git"));

    let syncs: Api<GitSync> = Api::namespaced(client, "agents");
    let sync = json!({"apiVersion": "convoke.dev/v1alpha1", "kind": "GitSync", "metadata": {"name": "team"},
        "spec": {"url": server.url("remote.git"), "path": "./team", "interval": "1s"}});
    operator.ready(SOON).await;
    syncs
        .patch("team", &PatchParams::apply("tour").force(), &Patch::Apply(&sync))
        .await
        .expect("GitSync");
    let kubectl = |args: &[&str]| cluster.kubectl(&[&["-n", "agents"], args].concat());
    // The sync of a commit has been told, and what follows from it has settled.
    let synced = async |commit: String, status: &str| {
        eventually(SOON, "the commit is synced", || async {
            let sync = syncs.get("team").await.expect("GitSync");
            let attempted = sync
                .status
                .as_ref()
                .and_then(|s| s.last_attempted_revision.clone())
                .unwrap_or_default();
            let told = attempted.ends_with(&commit) && ready(&sync).status == status;
            if told { Ok(()) } else { Err(sync.status) }
        })
        .await;
    };

    let mut outputs = Vec::new();
    synced(repo.head(), "True").await;
    eventually(SOON, "every status is there", || async {
        let table = kubectl(&["get", EVERYTHING]);
        let settled = table.matches("Waiting").count() == 2
            && table.matches("Pending").count() >= 5
            && table.matches("deployment.apps/").count() >= 5;
        if settled { Ok(()) } else { Err(table) }
    })
    .await;
    outputs.push(("quickstart", kubectl(&["get", EVERYTHING])));

    let prompt = repo.work().join("team/agents/prompts/researcher.md");
    let text = std::fs::read_to_string(&prompt).expect("prompt")
        + "- Prefer sources from the last two years.\n";
    let commit = repo.change(
        "researcher: prefer recent sources",
        &[("team/agents/prompts/researcher.md", &text)],
        &[],
    );
    synced(commit, "True").await;
    eventually(SOON, "the prompt is in the pods' environment", || async {
        kubectl(&["get", "deploy", "agent-researcher", "-o", "yaml"])
            .contains("last two years")
            .then_some(())
    })
    .await;
    outputs.push((
        "change-prompt",
        kubectl(&["get", "gitsync"])
            + &kubectl(&["get", "configmaps", "-l", "convoke.dev/name=researcher"]),
    ));

    let writer = repo.work().join("team/agents/writer.yaml");
    let good = std::fs::read_to_string(&writer).expect("writer");
    let typo = good.replace("modelAPI:", "modelApi:");
    assert_ne!(good, typo);
    let commit = repo.change("writer: a typo", &[("team/agents/writer.yaml", &typo)], &[]);
    synced(commit, "False").await;
    let yaml = kubectl(&["get", "gitsync", "team", "-o", "yaml"]);
    let problems: Vec<_> = yaml
        .lines()
        .skip_while(|line| *line != "  problems:")
        .take_while(|line| {
            *line == "  problems:" || line.starts_with("  -") || line.starts_with("    ")
        })
        .collect();
    outputs.push(("typo", problems.join("\n") + "\n"));
    let validate = Command::new(env!("CARGO_BIN_EXE_convoke"))
        .args(["validate", "team"])
        .current_dir(repo.work())
        .output()
        .expect("convoke validate");
    assert_eq!(validate.status.code(), Some(1));
    outputs.push(("validate", String::from_utf8(validate.stdout).expect("text")));
    let commit = repo.change("Revert", &[("team/agents/writer.yaml", &good)], &[]);
    synced(commit, "True").await;

    let files = ["team/agents/reviewer.yaml", "team/builds/reviewer.yaml"];
    let commit = repo.change("No reviewer any more", &[], &files);
    synced(commit, "True").await;
    eventually(SOON, "the build is gone", || async {
        (!kubectl(&["get", "agentbuilds"]).contains("reviewer")).then_some(())
    })
    .await;
    outputs.push(("prune", kubectl(&["get", "gitsync"])));

    repo.git(&["rm", "--quiet", "team/*.yaml"]);
    let commit = repo.change("Start over", &[], &[]);
    synced(commit, "False").await;
    let sync = syncs.get("team").await.expect("GitSync");
    assert!(condition(&sync, "PruneHeld").is_some());
    outputs.push(("brake", kubectl(&["get", "gitsync"]) + &kubectl(&["get", "agents"])));

    let path = Path::new(ROOT).join("README.md");
    let mut readme = std::fs::read_to_string(&path).expect("README");
    if std::env::var_os("CONVOKE_UPDATE_README").is_some() {
        for (name, output) in &outputs {
            let (range, _) = block(&readme, name);
            readme.replace_range(range, output);
        }
        std::fs::write(&path, readme).expect("write the README");
        return;
    }
    for (name, output) in &outputs {
        let shown = block(&readme, name).1;
        assert_eq!(
            normal(&shown),
            normal(output),
            "block {name}; to refresh: CONVOKE_UPDATE_README=1 cargo test --test api readme::"
        );
    }
}
