//! A scenario of builds, played with an operator that may be killed at one [`Point`]. The story plays Tekton, too: it writes what Tekton
//! would write into the status of PipelineRuns.
//!
//! Each play has a namespace, a branch, an operator and a proxy of its own; control plane and repository are shared.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use convoke::api::agent_build::{AgentBuildStatus, BuildPhase};
use convoke::api::{AgentBuild, GitSync, keys};
use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, DynamicObject, ListParams, Patch, PatchParams};
use serde_json::{Value, json};

use super::Cluster;
use super::actor::{Actor, Acts, Theatre};
use super::build_watch::{RunWatch, runs_of};
use super::git_http::{GitServer, Repo};
use super::portrait::{Portrait, difference};
use super::proxy::{Point, Write};

/// How long nothing is written before a step of the reference has ended: longer than anything is put off.
const REST: Duration = Duration::from_millis(1800);
/// The same after a kill, when the step looks as it did in the reference.
const SHORT_REST: Duration = Duration::from_millis(1000);
/// The pause before a try that the cluster is to blame for, in seconds.
const PAUSE: i64 = 15;

/// Whose a Secret is of which the run is gone.
const NOBODY: &str = "nobody";

/// The steps, in order.
pub const STEPS: [&str; 7] = ["first", "supersede", "retry", "rebuild", "cancel", "queue", "end"];

/// What every play shares.
pub struct BuildStage {
    theatre: Arc<Theatre>,
    repo: Repo,
    server: GitServer,
    commits: BTreeMap<&'static str, String>,
    _dir: tempfile::TempDir,
}

/// What came of a play.
pub struct BuildPlayed {
    /// The namespace at the end of each step that was played.
    pub portraits: Vec<Portrait>,
    /// All writes.
    pub writes: Vec<Write>,
    /// The tries that Tekton could begin with: of which build, of which key, and which try of it.
    pub begun: BTreeSet<(String, String, u32)>,
    /// Whether the operator was killed.
    pub killed: bool,
}

impl BuildStage {
    /// A stage for operators with these arguments, on a cluster with Tekton's definitions and the shipped templates.
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
        reference: Option<&BuildPlayed>,
    ) -> Result<BuildPlayed, String> {
        let namespace = self.theatre.cluster.namespace("builds").await;
        self.prepare(&namespace);
        let client = self.theatre.cluster.client().await;
        let watch = RunWatch::start(client, &namespace);
        let actor = Actor::start(&self.theatre, namespace, STEPS[0], point).await;
        let mut play = Play { stage: self, actor, watch };
        let mut portraits = Vec::new();
        for (at, step) in STEPS.into_iter().enumerate() {
            play.actor.begin(step);
            let was_late = play.actor.is_late();
            let ended = async {
                play.step(step).await?;
                play.actor.answered().await;
                match reference {
                    None => {
                        play.settle(REST).await?;
                        play.collected().await?;
                    }
                    Some(reference) => {
                        play.looks_like(&reference.portraits[at]).await?;
                        if play.actor.killed == Some(step) {
                            play.settle(SHORT_REST).await?;
                        }
                        if was_late || (play.actor.is_late() && at + 1 == STEPS.len()) {
                            play.actor.let_go().await;
                            play.settle(SHORT_REST).await?;
                            play.looks_like(&reference.portraits[at]).await?;
                        }
                    }
                }
                play.watch.verdict()
            };
            let ended = ended.await;
            ended.map_err(|seen| format!("step {step}: {seen}\n{}", play.actor.end_of_log()))?;
            portraits.push(play.portrait().await);
            if play.actor.killed.is_some_and(|killed| killed != step) {
                break;
            }
        }
        let begun = play.watch.begun();
        let Actor { journal, killed, .. } = play.actor;
        Ok(BuildPlayed { portraits, writes: journal.writes(), begun, killed: killed.is_some() })
    }

    /// The Secret for the registry, and what lets the operator copy it.
    fn prepare(&self, namespace: &str) {
        let subject =
            json!([{"kind": "ServiceAccount", "name": "convoke", "namespace": self.theatre.home}]);
        let rbac = "rbac.authorization.k8s.io";
        let meta = |name: &str| json!({"name": name, "namespace": namespace});
        let binding = |name: &str, kind: &str, role: &str| {
            json!({
                "apiVersion": format!("{rbac}/v1"), "kind": "RoleBinding", "metadata": meta(name), "subjects": subject,
                "roleRef": {"apiGroup": rbac, "kind": kind, "name": role},
            })
        };
        let mut secret = meta("push");
        secret["annotations"] = json!({keys::REGISTRIES: "http://127.0.0.1:1/team"});
        self.theatre.cluster.apply(&json!({"apiVersion": "v1", "kind": "List", "items": [
            {"apiVersion": "v1", "kind": "Secret", "metadata": secret, "stringData": {"username": "u", "password": "p"}},
            {
                "apiVersion": format!("{rbac}/v1"), "kind": "Role", "metadata": meta("push"),
                "rules": [{"apiGroups": [""], "resources": ["secrets"], "resourceNames": ["push"], "verbs": ["get"]}],
            },
            binding("push", "Role", "push"),
            binding("builds", "ClusterRole", "convoke-builds"),
        ]}));
    }
}

struct Play<'a> {
    stage: &'a BuildStage,
    actor: Actor,
    watch: RunWatch,
}

impl Acts for Play<'_> {
    fn actor(&mut self) -> &mut Actor {
        &mut self.actor
    }
}

impl Play<'_> {
    fn builds(&self) -> Api<AgentBuild> {
        Api::namespaced(self.actor.client.clone(), &self.actor.namespace)
    }

    fn runs(&self) -> Api<DynamicObject> {
        runs_of(&self.actor.client, &self.actor.namespace)
    }

    fn syncs(&self) -> Api<GitSync> {
        Api::namespaced(self.actor.client.clone(), &self.actor.namespace)
    }

    fn secrets(&self) -> Api<Secret> {
        Api::namespaced(self.actor.client.clone(), &self.actor.namespace)
    }

    async fn step(&mut self, step: &'static str) -> Result<(), String> {
        match step {
            "first" => {
                self.at("one").await?;
                let run = self.begun("b0").await?;
                // So the usual time of a build is ten minutes.
                self.end(&run, [-900, -300], Ok('a')).await;
                self.is("b0", "built", |s| s.phase == Some(BuildPhase::Succeeded)).await?;
            }
            "supersede" => {
                self.at("two").await?;
                let run = self.begun("b0").await?;
                self.write(&run, &json!({"startTime": time(-60)})).await;
                self.at("three").await?;
                self.is_told_to_stop(&run).await?;
                self.end(&run, [-60, 0], Err("Cancelled")).await;
                self.begun("b0").await?;
            }
            "retry" => {
                let run = self.begun("b0").await?;
                self.end(&run, [-20, 2 - PAUSE], Err("CreateRunFailed")).await;
                let again = self.begun("b0").await?;
                if again == run {
                    return Err(format!("{run} has ended"));
                }
                self.end(&again, [0, 0], Ok('b')).await;
                self.is("b0", "built", |s| s.phase == Some(BuildPhase::Succeeded)).await?;
            }
            "rebuild" => {
                self.annotate("b0", keys::REBUILD, "once").await;
                self.begun("b0").await?;
                self.is("b0", "it builds", |s| s.phase == Some(BuildPhase::Building)).await?;
            }
            "cancel" => {
                let run = self.begun("b0").await?;
                let key = self.status("b0").await.build_key.ok_or("no key")?;
                self.annotate("b0", keys::CANCEL, &key).await;
                self.is_told_to_stop(&run).await?;
                self.end(&run, [0, 0], Err("Cancelled")).await;
                self.is("b0", "cancelled", |s| s.phase == Some(BuildPhase::Failed)).await?;
            }
            "queue" => self.queue().await?,
            "end" => {
                self.syncs().delete("main", &DeleteParams::default()).await.expect("delete");
                self.until("nothing is left", async |play| {
                    let left = play.portrait().await;
                    let secrets = play.secrets().list(&ListParams::default()).await.expect("list");
                    let gone = play.syncs().get_opt("main").await.expect("get").is_none();
                    if gone && left.is_empty() && secrets.items.len() == 1 {
                        Ok(())
                    } else {
                        let left: Vec<_> = left.keys().collect();
                        Err(format!("{left:?}, {} Secrets", secrets.items.len()))
                    }
                })
                .await?;
            }
            other => return Err(format!("no step {other}")),
        }
        Ok(())
    }

    /// Three builds, and one may run at a time: the first one runs, the second and the third wait, in this order.
    async fn queue(&mut self) -> Result<(), String> {
        self.at("four").await?;
        let mut run = self.begun("b0").await?;
        let mut since = Vec::new();
        for (commit, build) in [("five", "b1"), ("six", "b2")] {
            self.at(commit).await?;
            self.is(build, "it waits", |s| s.queued_at.is_some()).await?;
            since.push(self.status(build).await.queued_at);
        }
        for next in ["b1", "b2"] {
            self.end(&run, [0, 0], Ok('c')).await;
            run = self.begun(next).await?;
            if next == "b1" && self.status("b2").await.queued_at != since[1] {
                return Err("b2 has lost its place".into());
            }
        }
        self.end(&run, [0, 0], Ok('d')).await;
        for build in ["b0", "b1", "b2"] {
            self.is(build, "built", |s| s.phase == Some(BuildPhase::Succeeded)).await?;
        }
        Ok(())
    }

    /// Moves the branch to a commit, and waits until it is applied.
    async fn at(&mut self, commit: &'static str) -> Result<(), String> {
        let (id, namespace) = (self.stage.commits[commit].clone(), self.actor.namespace.clone());
        self.stage.repo.set_branch(&namespace, &id);
        let object = json!({
            "apiVersion": "convoke.dev/v1alpha1", "kind": "GitSync",
            "metadata": {"name": "main", "annotations": {keys::REQUESTED_AT: commit}},
            "spec": {
                "url": self.stage.server.url("team.git"), "ref": {"branch": namespace}, "path": "main", "interval": "1h",
                "retryInterval": "1s", "deletionPolicy": "Delete",
            },
        });
        let params = PatchParams::apply("tester").force();
        self.syncs().patch("main", &params, &Patch::Apply(&object)).await.expect("GitSync");
        let revision = format!("{namespace}@sha1:{id}");
        self.until(&format!("{commit} is applied"), async |play| {
            let status = play.syncs().get("main").await.expect("GitSync").status;
            let applied = status.as_ref().and_then(|s| s.last_applied_revision.clone());
            if applied.as_deref() == Some(&revision) { Ok(()) } else { Err(format!("{status:?}")) }
        })
        .await
    }

    /// Waits until Tekton may begin with a run of a build that has not ended, and gives its name. Its Secrets must be there.
    async fn begun(&mut self, build: &str) -> Result<String, String> {
        let run = self
            .until(&format!("a run of {build} begins"), async |play| {
                let runs = play.runs().list(&ListParams::default()).await.expect("runs").items;
                let found = runs.iter().find(|run| {
                    run.labels().get(keys::OWNER_NAME).is_some_and(|name| name == build)
                        && run.data["status"]["conditions"][0]["status"].is_null()
                        && run.data["spec"]["status"].is_null()
                        && run.metadata.deletion_timestamp.is_none()
                });
                found.cloned().ok_or_else(|| {
                    format!("{:?}", runs.iter().map(ResourceExt::name_any).collect::<Vec<_>>())
                })
            })
            .await?;
        let workspaces = run.data["spec"]["workspaces"].as_array().cloned().unwrap_or_default();
        let named = workspaces.iter().filter_map(|one| one["secret"]["secretName"].as_str());
        let named: Vec<_> = named.collect();
        if named.is_empty() && build != "b2" {
            return Err(format!("{} has no Secret", run.name_any()));
        }
        for name in named {
            if self.secrets().get_opt(name).await.expect("get").is_none() {
                return Err(format!("{} begins without its Secret", run.name_any()));
            }
        }
        Ok(run.name_any())
    }

    async fn is_told_to_stop(&mut self, name: &str) -> Result<(), String> {
        self.until("it is told to stop", async |play| {
            let run = play.runs().get(name).await.map_err(|error| error.to_string())?;
            let told = run.data["spec"]["status"].clone();
            if told == "Cancelled" { Ok(()) } else { Err(told.to_string()) }
        })
        .await
    }

    /// What Tekton writes into the status of a run.
    async fn write(&self, run: &str, status: &Value) {
        let patch = json!({ "status": status });
        let params = PatchParams::default();
        self.runs().patch_status(run, &params, &Patch::Merge(&patch)).await.expect("a status");
    }

    /// The same at its end: with an image, or for this reason. It began and ended so many seconds from now.
    async fn end(&self, run: &str, [began, ended]: [i64; 2], result: Result<char, &str>) {
        let image =
            self.runs().get(run).await.expect("a run").annotations()["convoke.dev/image"].clone();
        let (status, reason) = result.map_or_else(|why| ("False", why), |_| ("True", "Succeeded"));
        let results = result.map_or(json!([]), |digit| {
            json!([
                {"name": "IMAGE_URL", "value": format!("{image}:t")},
                {"name": "IMAGE_DIGEST", "value": format!("sha256:{}", digit.to_string().repeat(64))},
            ])
        });
        self.write(
            run,
            &json!({
                "startTime": time(began), "completionTime": time(ended), "results": results,
                "conditions": [{"type": "Succeeded", "status": status, "reason": reason, "message": "said by Tekton"}],
            }),
        )
        .await;
    }

    async fn annotate(&self, build: &str, key: &str, value: &str) {
        let patch = json!({"metadata": {"annotations": {key: value}}});
        let params = PatchParams::default();
        self.builds().patch(build, &params, &Patch::Merge(&patch)).await.expect("annotate");
    }

    async fn status(&self, build: &str) -> AgentBuildStatus {
        let found = self.builds().get_opt(build).await.expect("get");
        found.and_then(|build| build.status).unwrap_or_default()
    }

    async fn is(
        &mut self,
        build: &str,
        what: &str,
        is: impl Fn(&AgentBuildStatus) -> bool,
    ) -> Result<(), String> {
        self.until(&format!("{build}: {what}"), async |play| {
            let status = play.status(build).await;
            if is(&status) { Ok(()) } else { Err(format!("{status:?}")) }
        })
        .await
    }

    /// Waits until the garbage collector has removed what belongs to nobody.
    async fn collected(&mut self) -> Result<(), String> {
        self.until("no Secret is left of a run that is gone", async |play| {
            let is_left = play.portrait().await.contains_key(&format!("Secret of {NOBODY}"));
            if is_left { Err("there is one".into()) } else { Ok(()) }
        })
        .await
    }

    async fn looks_like(&mut self, should: &Portrait) -> Result<(), String> {
        self.until("the namespace looks as it did without a kill", async |play| {
            let lines = difference(&play.portrait().await, should);
            if lines.is_empty() { Ok(()) } else { Err(lines.join("\n")) }
        })
        .await
    }

    /// The builds, their runs, and the Secrets of these, without what differs between two plays.
    async fn portrait(&self) -> Portrait {
        let list = ListParams::default();
        let mut portrait = Portrait::new();
        for build in self.builds().list(&list).await.expect("list") {
            let mut status = serde_json::to_value(&build.status).expect("JSON");
            without_times(&mut status);
            // No registry answers, so after a restart it is not known what the tag names.
            if let Some(conditions) = status["conditions"].as_array_mut() {
                conditions.retain(|condition| condition["type"] != "TagStale");
            }
            let about = json!({"status": status, "finalizers": build.finalizers()});
            portrait.insert(format!("AgentBuild/{}", build.name_any()), about);
        }
        for run in self.runs().list(&list).await.expect("list") {
            let owners = run.owner_references().iter();
            let owners: Vec<_> = owners.map(|owner| (&owner.kind, &owner.name)).collect();
            let mut annotations = run.annotations().clone();
            // Each operator has a key of its own.
            if let Some(digest) = annotations.get_mut("convoke.dev/credentials-digest") {
                *digest = "of its Secrets".into();
            }
            let about = json!({
                "owners": owners, "annotations": annotations, "told": run.data["spec"]["status"],
                "going": run.metadata.deletion_timestamp.is_some(),
            });
            portrait.insert(format!("PipelineRun/{}", run.name_any()), about);
        }
        for secret in self.secrets().list(&list).await.expect("list") {
            for owner in secret.owner_references() {
                let is_there = portrait.contains_key(&format!("PipelineRun/{}", owner.name));
                // The garbage collector takes a moment.
                let title = if is_there { owner.name.as_str() } else { NOBODY };
                let title = format!("Secret of {title}");
                let count = portrait.get(&title).and_then(Value::as_u64).unwrap_or_default();
                portrait.insert(title, json!(count + 1));
            }
        }
        portrait
    }
}

/// A time so many seconds from now.
fn time(seconds: i64) -> String {
    let now = jiff::Timestamp::now();
    jiff::Timestamp::from_second(now.as_second() + seconds).expect("a time").to_string()
}

/// Takes away when something was, and how long it took.
fn without_times(value: &mut Value) {
    match value {
        Value::Array(list) => list.iter_mut().for_each(without_times),
        Value::Object(map) => {
            for key in
                ["lastTransitionTime", "queuedAt", "builtAfter", "startedAt", "seconds", "at"]
            {
                map.remove(key);
            }
            map.values_mut().for_each(without_times);
        }
        _ => {}
    }
}

/// The repository's commits, in order.
fn commits(repo: &Repo) -> BTreeMap<&'static str, String> {
    // The last one needs no Secret.
    let build = |name: &str| {
        let secret = if name == "b2" { "" } else { "    secretRef:\n      name: push\n" };
        format!(
            "apiVersion: convoke.dev/v1alpha1\nkind: AgentBuild\nmetadata:\n  name: {name}\nspec:\n  source:\n    gitSync: {{}}\n    subfolder: images/{name}\n  output:\n    registry: 127.0.0.1:1\n    image: team/{name}\n    tag: latest\n    insecure: true\n{secret}  history:\n    successful: 1\n    failed: 1\n"
        )
    };
    let first = build("b0");
    let dockerfile = "images/b0/Dockerfile";
    let mut commits = BTreeMap::new();
    let files = [("main/b0.yaml", first.as_str()), (dockerfile, "FROM scratch\n")];
    commits.insert("one", repo.commit("one", &files));
    for name in ["two", "three", "four"] {
        let text = format!("FROM scratch\nLABEL is={name}\n");
        commits.insert(name, repo.change(name, &[(dockerfile, &text)], &[]));
    }
    for (name, other) in [("five", "b1"), ("six", "b2")] {
        let (file, folder) = (format!("main/{other}.yaml"), format!("images/{other}/Dockerfile"));
        let files = [(file.as_str(), &*build(other)), (folder.as_str(), "FROM scratch\n")];
        commits.insert(name, repo.change(name, &files, &[]));
    }
    commits
}
