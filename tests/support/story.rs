//! A scenario with every kind of write, played with an operator that may be killed at one [`Point`].
//!
//! Each play has a namespace, a branch, an operator and a proxy of its own; control plane and repository are shared.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use convoke::api::{GitSync, Kind, keys};
use kube::Client;
use kube::api::{Api, DeleteParams, DynamicObject, Patch, PatchParams};
use serde_json::{Value, json};

use super::Cluster;
use super::actor::{Actor, Acts, Theatre};
use super::git_http::{GitServer, Repo};
use super::portrait::{Portrait, difference, portrait};
use super::proxy::{Point, Write};
use super::team::{model, model_at, ready};

/// How long nothing is written before a step of the reference has ended: longer than anything is put off.
const REST: Duration = Duration::from_millis(2500);
/// The same after a kill, when the step looks as it did in the reference.
const SHORT_REST: Duration = Duration::from_millis(1200);

/// The steps, in order.
pub const STEPS: [&str; 7] = ["create", "change", "drift", "hand-over", "hold", "approve", "end"];

/// What every play shares.
pub struct Stage {
    theatre: Arc<Theatre>,
    repo: Repo,
    server: GitServer,
    /// The commits by step.
    commits: BTreeMap<&'static str, String>,
    _dir: tempfile::TempDir,
}

/// What came of a play.
pub struct Played {
    /// The namespace at the end of each step that was played.
    pub portraits: Vec<Portrait>,
    /// All writes.
    pub writes: Vec<Write>,
    /// Whether the operator was killed.
    pub killed: bool,
}

impl Stage {
    /// A stage for operators with these arguments.
    pub async fn new(cluster: &'static Cluster, args: &[&str]) -> Self {
        let dir = tempfile::tempdir().expect("temporary folder");
        let repo = Repo::init(&dir.path().join("team.git"));
        let server = GitServer::start(&dir.path().join("team.git"));
        let commits = commits(&repo);
        let theatre = Theatre::new(cluster, args).await;
        Self { theatre, repo, server, commits, _dir: dir }
    }

    /// Plays all steps, or up to the one after the kill. With a `reference` each step must end as it did there; without,
    /// it ends when nothing is written any more.
    ///
    /// # Errors
    /// What went wrong, for people.
    pub async fn play(
        &self,
        point: Option<Point>,
        reference: Option<&Played>,
    ) -> Result<Played, String> {
        let namespace = self.theatre.cluster.namespace("play").await;
        let actor = Actor::start(&self.theatre, namespace.clone(), STEPS[0], point).await;
        let client = actor.client.clone();
        let syncs = Api::namespaced(client.clone(), &namespace);
        let mut play = Play { stage: self, syncs, client, namespace, actor };
        let mut portraits = Vec::new();
        for (at, step) in STEPS.into_iter().enumerate() {
            play.actor.begin(step);
            let was_late = play.actor.is_late();
            let ended = async {
                play.step(step).await?;
                play.actor.answered().await;
                let Some(reference) = reference else { return play.settle(REST).await };
                play.looks_like(&reference.portraits[at]).await?;
                if play.actor.killed == Some(step) {
                    play.settle(SHORT_REST).await?;
                }
                if was_late || at + 1 == STEPS.len() {
                    play.let_go(&reference.portraits[at]).await?;
                }
                Ok(())
            };
            ended
                .await
                .map_err(|seen| format!("step {step}: {seen}\n{}", play.actor.end_of_log()))?;
            portraits.push(portrait(&play.client, &play.namespace).await);
            if play.actor.killed.is_some_and(|killed| killed != step) {
                break;
            }
        }
        let Actor { journal, killed, .. } = play.actor;
        Ok(Played { portraits, writes: journal.writes(), killed: killed.is_some() })
    }
}

struct Play<'a> {
    stage: &'a Stage,
    namespace: String,
    client: Client,
    syncs: Api<GitSync>,
    actor: Actor,
}

impl Acts for Play<'_> {
    fn actor(&mut self) -> &mut Actor {
        &mut self.actor
    }
}

impl Play<'_> {
    async fn looks_like(&mut self, should: &Portrait) -> Result<(), String> {
        self.until("the namespace looks as it did without a kill", async |play| {
            let is = portrait(&play.client, &play.namespace).await;
            let lines = difference(&is, should);
            if lines.is_empty() {
                return Ok(());
            }
            // A portrait is no small thing to ask for.
            tokio::time::sleep(Duration::from_millis(100)).await;
            Err(lines.join("\n"))
        })
        .await
    }

    /// Lets a late request go, and waits until that is undone.
    async fn let_go(&mut self, should: &Portrait) -> Result<(), String> {
        if !self.actor.is_late() {
            return Ok(());
        }
        self.actor.let_go().await;
        self.settle(SHORT_REST).await?;
        self.looks_like(should).await
    }

    fn api(&self, kind: Kind) -> Api<DynamicObject> {
        convoke::cluster::ssa::api_of_kind(&self.client, &self.namespace, kind)
    }

    async fn step(&mut self, step: &'static str) -> Result<(), String> {
        if let Some(commit) = self.stage.commits.get(step) {
            self.stage.repo.set_branch(&self.namespace, commit);
        }
        match step {
            "create" => {
                for name in ["main", "side"] {
                    self.create_sync(name).await;
                }
                self.both_at(step).await
            }
            "change" | "hand-over" => {
                self.ask(step).await;
                self.both_at(step).await
            }
            "drift" => self.drift().await,
            "hold" => {
                self.ask(step).await;
                self.until("the prune is held", async |play| {
                    let status = play.sync("main").await.status;
                    let held = status.as_ref().is_some_and(|s| s.pending_prune.is_some());
                    if held { Ok(()) } else { Err(format!("{status:?}")) }
                })
                .await
            }
            "approve" => {
                // Also when an operator was just started, and asks the other GitSync.
                let status = self.sync("main").await.status.unwrap_or_default();
                let digest = status.pending_prune.ok_or("the held prune is not shown")?.digest;
                let patch = json!({"metadata": {"annotations": {keys::APPROVE_PRUNE: digest}}});
                self.patch_sync("main", &patch).await;
                self.both_at("hold").await
            }
            "end" => {
                for name in ["side", "main"] {
                    self.syncs.delete(name, &DeleteParams::default()).await.expect("delete");
                    self.until("the GitSync is gone", async |play| {
                        match play.syncs.get_opt(name).await.expect("get") {
                            None => Ok(()),
                            Some(sync) => Err(format!("{:?}", sync.status)),
                        }
                    })
                    .await?;
                }
                Ok(())
            }
            other => Err(format!("no step {other}")),
        }
    }

    async fn create_sync(&self, name: &str) {
        let object = json!({
            "apiVersion": "convoke.dev/v1alpha1", "kind": "GitSync", "metadata": {"name": name},
            "spec": {
                "url": self.stage.server.url("team.git"), "ref": {"branch": self.namespace},
                "path": name, "interval": "1h", "retryInterval": "1s", "deletionPolicy": "Delete",
            },
        });
        let params = PatchParams::apply("tester").force();
        self.syncs.patch(name, &params, &Patch::Apply(&object)).await.expect("GitSync");
    }

    async fn sync(&self, name: &str) -> GitSync {
        self.syncs.get(name).await.expect("GitSync")
    }

    async fn patch_sync(&self, name: &str, patch: &Value) {
        let patch = Patch::Merge(patch);
        self.syncs.patch(name, &PatchParams::default(), &patch).await.expect("patch a GitSync");
    }

    /// Asks both GitSyncs to look at the remote.
    async fn ask(&self, value: &str) {
        for name in ["main", "side"] {
            let patch = json!({"metadata": {"annotations": {keys::REQUESTED_AT: value}}});
            self.patch_sync(name, &patch).await;
        }
    }

    /// Waits until both GitSyncs have applied the commit of that step.
    async fn both_at(&mut self, step: &str) -> Result<(), String> {
        let revision = format!("{}@sha1:{}", self.namespace, self.stage.commits[step]);
        for name in ["main", "side"] {
            self.until(&format!("{name} has applied {revision}"), async |play| {
                let sync = play.sync(name).await;
                let status = sync.status.clone().unwrap_or_default();
                let applied = status.last_applied_revision.as_deref() == Some(&revision);
                if applied && ready(&sync).status == "True" {
                    Ok(())
                } else {
                    Err(format!("{status:?}"))
                }
            })
            .await?;
        }
        Ok(())
    }

    /// Somebody changes a field, adds one, and deletes an object; one after the other.
    async fn drift(&mut self) -> Result<(), String> {
        let changed = json!({"spec": {"external": {"url": "https://elsewhere.example.com/v1"}}});
        let added = json!({"spec": {"healthCheck": {"intervalSeconds": 7}}});
        for (kind, name, patch) in [(Kind::ModelAPI, "m0", changed), (Kind::Agent, "a0", added)] {
            let before = self.api(kind).get(name).await.expect("get").data["spec"].clone();
            let patch = Patch::Merge(&patch);
            self.api(kind).patch(name, &PatchParams::default(), &patch).await.expect("patch");
            self.until(&format!("{name} is as before"), async |play| {
                let spec = play.api(kind).get(name).await.expect("get").data["spec"].clone();
                if spec == before { Ok(()) } else { Err(spec.to_string()) }
            })
            .await?;
        }
        self.api(Kind::ModelAPI).delete("m4", &DeleteParams::default()).await.expect("delete");
        self.until("m4 is there again", async |play| {
            let found = play.api(Kind::ModelAPI).get_opt("m4").await.expect("get");
            found.map(drop).ok_or("nothing".to_owned())
        })
        .await
    }
}

/// The repository's commits, by the step that applies them.
fn commits(repo: &Repo) -> BTreeMap<&'static str, String> {
    let agent = |name: &str, extra: &str| {
        format!(
            "apiVersion: convoke.dev/v1alpha1\nkind: Agent\nmetadata:\n  name: {name}\nspec:\n  modelAPI: m0\n  mcpServers: [t0]\n  config:\n    instructionsFile: prompt.md\n{extra}"
        )
    };
    let server = |name: &str, spec: &str| {
        format!(
            "apiVersion: convoke.dev/v1alpha1\nkind: MCPServer\nmetadata:\n  name: {name}\nspec:\n{spec}"
        )
    };
    let tools =
        |text: &str| server("t1", &format!("  toolsString: |\n    # {text}\n    def f(): pass\n"));
    let build = "apiVersion: convoke.dev/v1alpha1\nkind: AgentBuild\nmetadata:\n  name: b0\nspec:\n  source:\n    gitSync: {}\n    subfolder: images\n  output:\n    registry: registry.example.com\n    image: team/b0\n";
    let mut files: Vec<(String, String)> =
        (0..6).map(|n| (format!("main/m{n}.yaml"), model(&format!("m{n}")))).collect();
    files.extend([
        (
            "main/t0.yaml".into(),
            server("t0", "  remote:\n    url: https://tools.example.com/mcp\n"),
        ),
        ("main/t1.yaml".into(), tools("one")),
        ("main/a0.yaml".into(), agent("a0", "")),
        ("main/a1.yaml".into(), agent("a1", "  agentNetwork:\n    access: [a0]\n")),
        ("main/prompt.md".into(), "Be kind.".into()),
        ("main/b0.yaml".into(), build.into()),
        ("images/Dockerfile".into(), "FROM scratch\n".into()),
        ("side/s0.yaml".into(), model("s0")),
        ("side/s1.yaml".into(), model("s1")),
        ("side/s2.yaml".into(), model("s2")),
    ]);
    let files: Vec<_> = files.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
    let mut commits = BTreeMap::new();
    commits.insert("create", repo.commit("one", &files));
    let changed = [
        ("main/m0.yaml", model_at("m0", "https://two.example.com/v1")),
        ("main/moved/m1.yaml", model("m1")),
        ("main/prompt.md", "Be brief.".into()),
        ("main/t1.yaml", tools("two")),
        ("main/m6.yaml", model("m6")),
        ("main/m7.yaml", model("m7")),
        ("side/s3.yaml", model("s3")),
    ];
    let changed: Vec<_> = changed.iter().map(|(path, text)| (*path, text.as_str())).collect();
    let gone = ["main/m1.yaml", "main/m2.yaml", "main/m5.yaml", "main/b0.yaml", "side/s2.yaml"];
    commits.insert("change", repo.change("two", &changed, &gone));
    let moved = [("side/m3.yaml", model("m3")), ("main/s1.yaml", model("s1"))];
    let moved: Vec<_> = moved.iter().map(|(path, text)| (*path, text.as_str())).collect();
    let gone = ["main/m3.yaml", "side/s1.yaml"];
    commits.insert("hand-over", repo.change("three", &moved, &gone));
    let gone = ["m4", "m6", "m7", "a1", "t1"].map(|name| format!("main/{name}.yaml"));
    let gone: Vec<_> = gone.iter().map(String::as_str).collect();
    commits.insert("hold", repo.change("four", &[], &gone));
    commits
}
