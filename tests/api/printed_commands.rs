//! The kubectl commands that the documentation and the quickstart print: kubectl takes each as it stands there.
#![allow(clippy::expect_used, clippy::panic, clippy::disallowed_types, clippy::disallowed_methods)]

use crate::support;

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::{Value, json};
use support::Cluster;

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

/// Why a command is printed and not run here, and which.
const LEFT_OUT: [(&str, &[&str]); 4] = [
    (
        "needs files",
        &[
            "kubectl -n convoke-system create secret generic convoke-signing --from-file=key.pem",
            "kubectl create secret generic newsroom-signers --from-file=team.asc --from-file=team.sshpub",
            "kubectl create secret generic newsroom-git --from-file=identity=newsroom --from-file=known_hosts",
        ],
    ),
    (
        "needs a node",
        &[
            "kubectl -n convoke-system logs deployment/convoke",
            "kubectl -n convoke-system rollout restart deployment/convoke",
            "kubectl -n convoke-system rollout status deployment/convoke",
        ],
    ),
    (
        "needs Tekton",
        &[
            "kubectl -n convoke-builds get pipelineruns -l convoke.dev/namespace=team-a,convoke.dev/name=reviewer",
        ],
    ),
    (
        "names a command, without what it is for",
        &[
            "kubectl annotate",
            "kubectl apply --server-side",
            "kubectl apply --server-side --prune --applyset",
            "kubectl convoke",
            "kubectl describe pod",
            "kubectl get -o yaml",
            "kubectl logs",
            "kubectl port-forward",
            "kubectl rollout undo",
            "kubectl scale",
        ],
    ),
];

/// The commands of a Markdown text: lines of its blocks, and what stands between backticks.
fn commands(text: &str) -> Vec<String> {
    let (mut in_block, mut found, mut prose) = (false, Vec::new(), String::new());
    for line in text.lines().map(str::trim) {
        if line.starts_with("```") {
            in_block = !in_block;
            prose.push('\n');
        } else if in_block {
            found.push(line.to_owned());
        } else if line.is_empty() {
            prose.push('\n');
        } else {
            prose.push(' ');
            prose.push_str(line);
        }
    }
    // By paragraph: a backtick too many spoils no more than that.
    let spans = prose.lines().flat_map(|paragraph| paragraph.split('`').skip(1).step_by(2));
    found.extend(spans.map(str::to_owned));
    found.retain(|line| line.starts_with("kubectl "));
    for line in &mut found {
        // What is said of it stands some spaces to the right.
        if let Some(end) = line.find("  ") {
            line.truncate(end);
        }
    }
    found
}

/// Each command that is printed, with the first file that prints it.
fn printed() -> BTreeMap<String, String> {
    let read = |file: &str| {
        std::fs::read_to_string(Path::new(ROOT).join(file))
            .unwrap_or_else(|error| panic!("{file}: {error}"))
    };
    let named = ["README.md", "examples-repo/README.md", "deploy/pipelines/README.md"];
    let mut files: Vec<_> = named.map(str::to_owned).into();
    for entry in std::fs::read_dir(Path::new(ROOT).join("docs")).expect("docs") {
        let name = entry.expect("entry").file_name().into_string().expect("UTF-8");
        if Path::new(&name).extension().is_some_and(|ext| ext == "md") {
            files.push(format!("docs/{name}"));
        }
    }
    let mut texts: Vec<(String, String)> =
        files.into_iter().map(|file| (file.clone(), read(&file))).collect();
    for file in ["scripts/quickstart", "scripts/lib/in_cluster.sh"] {
        let script = read(file);
        let (_, shown) = script.split_once("<<NEXT\n").expect("what the quickstart shows");
        let (shown, _) = shown.split_once("\nNEXT\n").expect("its end");
        texts.push((file.to_owned(), format!("```\n{shown}\n```\n")));
    }
    let mut all = BTreeMap::new();
    for (file, text) in texts {
        for command in commands(&text) {
            all.entry(command).or_insert_with(|| file.clone());
        }
    }
    all
}

/// `get` of `kubectl -n agents get`.
fn verb(command: &str) -> &str {
    let mut words = command.split(' ').skip(1);
    match words.next() {
        Some("-n") => words.nth(1).unwrap_or_default(),
        first => first.unwrap_or_default(),
    }
}

/// Runs a command as a reader's shell does; gives why it failed. What would write is only tried.
fn failure(cluster: &Cluster, kubeconfig: &Path, command: &str) -> Option<String> {
    let tried = match verb(command) {
        "describe" | "get" | "wait" => "",
        "annotate" | "apply" | "create" | "delete" | "label" | "patch" | "scale" => {
            "--dry-run=server"
        }
        _ => return Some("it is neither run nor left out".to_owned()),
    };
    let names = [("<namespace>", "agents"), ("<name>", "newsroom"), ("=NAME", "=newsroom")];
    let line = names.iter().fold(command.to_owned(), |line, &(from, to)| line.replace(from, to));
    // The function becomes kubectl, so that ending it is ending kubectl.
    let script = format!("kubectl() {{ exec \"$0\" \"$@\" {tried}; }}\n{line}");
    let mut child = Command::new("sh")
        .args(["-c", &script])
        .arg(cluster.kubectl_command().get_program())
        .env("KUBECONFIG", kubeconfig)
        .env("KUBECACHEDIR", cluster.dir().join("kubectl"))
        .current_dir(ROOT)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("sh");
    let watches = line.split(' ').any(|word| ["-w", "--watch"].contains(&word));
    if watches {
        // It shows at once what is there, and then goes on until somebody ends it.
        let mut first = String::new();
        let mut shown = BufReader::new(child.stdout.take().expect("piped"));
        shown.read_line(&mut first).expect("text");
        if !first.is_empty() {
            child.kill().expect("end kubectl");
            child.wait().expect("its end");
            return None;
        }
    }
    let output = child.wait_with_output().expect("kubectl");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    // Other commands speak of what this one creates, so it is there. The API server checks that last.
    let exists = verb(command) == "create" && said.trim_end().ends_with("already exists");
    (watches || !(exists || output.status.success())).then_some(said)
}

/// What the commands speak of. No operator runs: kubectl asks the API server.
fn prepare(cluster: &Cluster) -> PathBuf {
    let deploy = format!("{ROOT}/deploy");
    cluster.kubectl(&["apply", "--server-side", "--force-conflicts", "--kustomize", &deploy]);
    let namespace =
        |name: &str| json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
    let ours = |kind: &str, name: &str, spec: Value| {
        json!({"apiVersion": "convoke.dev/v1alpha1", "kind": kind,
            "metadata": {"name": name, "namespace": "agents"}, "spec": spec})
    };
    let url = json!({"url": "https://git.example.com/newsroom/agents.git"});
    let outside = json!({"mode": "External", "external": {"url": "https://llm.example.com"}});
    let clock = json!({"remote": {"url": "https://tools.example.com/mcp"}});
    let writer = json!({"modelAPI": {"name": "shared"}, "model": "small"});
    let image = json!({"source": {"gitSync": {}}, "output": {"image": "agents/reviewer"}});
    cluster.apply(&json!({"apiVersion": "v1", "kind": "List", "items": [
        namespace("agents"), namespace("newsroom"), namespace("convoke-builds"),
        ours("GitSync", "team", url.clone()), ours("GitSync", "newsroom", url),
        ours("AgentBuild", "reviewer", image), ours("Agent", "writer", writer), ours("ModelAPI", "openai", outside), ours("MCPServer", "clock", clock),
        json!({"apiVersion": "v1", "kind": "Secret",
            "metadata": {"name": "openai-key", "namespace": "agents"}}),
        json!({"apiVersion": "v1", "kind": "Secret",
            "metadata": {"name": "newsroom-forge", "namespace": "agents"}}),
        json!({"apiVersion": "v1", "kind": "Secret",
            "metadata": {"name": "newsroom-proxy", "namespace": "agents"}}),
        json!({"apiVersion": "v1", "kind": "Secret",
            "metadata": {"name": "newsroom-git", "namespace": "agents"}}),
        json!({"apiVersion": "v1", "kind": "Secret",
            "metadata": {"name": "newsroom-registry", "namespace": "agents"}}),
        json!({"apiVersion": "v1", "kind": "Secret",
            "metadata": {"name": "reviewer-git", "namespace": "agents"}}),
    ]}));
    let ready = json!({"type": "Ready", "status": "True", "reason": "Synced", "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z"});
    let status = json!({"status": {"conditions": [ready]}}).to_string();
    let patch = ["patch", "gitsync", "newsroom", "--namespace=agents", "--subresource=status"];
    cluster.kubectl(&[&patch[..], &["--type=merge", "--patch", &status]].concat());
    // As scripts/quickstart does: `kubectl` alone is in the namespace of the example.
    let admin = std::fs::read(cluster.admin_kubeconfig()).expect("kubeconfig");
    let mut config: Value = serde_json::from_slice(&admin).expect("JSON");
    config["contexts"][0]["context"]["namespace"] = "agents".into();
    let path = cluster.dir().join("reader.kubeconfig");
    std::fs::write(&path, config.to_string()).expect("write the kubeconfig");
    path
}

#[tokio::test(flavor = "multi_thread")]
async fn every_kubectl_command_that_is_printed_is_taken() {
    let mut printed = printed();
    for command in LEFT_OUT.iter().flat_map(|(_, commands)| commands.iter()) {
        assert!(printed.remove(*command).is_some(), "nothing prints {command:?} any more");
    }
    let cluster = Cluster::exclusive().await;
    let kubeconfig = prepare(&cluster);
    let failures: Vec<String> = printed
        .iter()
        .filter_map(|(command, file)| {
            let why = failure(&cluster, &kubeconfig, command)?;
            Some(format!("{file}: {command}\n{why}"))
        })
        .collect();
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}
