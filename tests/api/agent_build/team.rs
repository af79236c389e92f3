//! A team with AgentBuilds, and what the sync engine and Tekton would do for it.

use super::*;
use crate::model_keys::policy::policies_for;

/// UID of GitSync `team`.
pub(super) const SYNC: &str = "1b2c";
pub(super) const URL: &str = "https://git.example.com/team.git";
pub(super) const SOON: Duration = Duration::from_secs(60);
pub(super) const ROOT: &str = env!("CARGO_MANIFEST_DIR");

/// The controller, as the operator starts it. Ends when it is dropped.
pub(super) struct Controller {
    pub(super) sources: Arc<BuildSources>,
    pub(super) stores: Stores,
    _tasks: JoinSet<Result<(), String>>,
    /// What is fetched.
    _folder: tempfile::TempDir,
}

impl Controller {
    pub(super) fn start(client: &Client, limits: Limits, registry: &str) -> Self {
        Self::start_in(client, limits, registry, None)
    }

    /// With this `--build-profile`.
    pub(super) fn start_as(
        client: &Client,
        limits: Limits,
        registry: &str,
        build_profile: BuildProfile,
    ) -> Self {
        Self::start_of(client, limits, registry, (None, build_profile))
    }

    /// The same with `--build-namespace`.
    pub(super) fn start_in(
        client: &Client,
        limits: Limits,
        registry: &str,
        build_namespace: Option<&str>,
    ) -> Self {
        Self::start_of(client, limits, registry, (build_namespace, BuildProfile::Baseline))
    }

    fn start_of(
        client: &Client,
        limits: Limits,
        registry: &str,
        (build_namespace, build_profile): (Option<&str>, BuildProfile),
    ) -> Self {
        let mut tasks = JoinSet::new();
        let stores = Stores::new();
        let sources = BuildSources::new();
        let folder = tempfile::tempdir().expect("a folder");
        let repositories = Repositories::new(folder.path().join("repositories"), 1 << 30);
        let settings = Settings {
            internal_registry: Some(registry.into()),
            operator_namespace: "convoke-system".into(),
            operator_image: Some("registry.test:5000/convoke:1".into()),
            build_profile,
            build_namespace: build_namespace.map(str::to_owned),
            limits,
            operator: OperatorAccount::new("convoke-system"),
            // As with --allow-insecure-git: the Git servers of tests are on loopback.
            dialler: Dialler::new(Policy { insecure: true, ..Policy::default() }),
            repositories: Shares {
                repositories: repositories.expect("a place for what is fetched"),
                limits: convoke::git::Limits::default(),
                concurrency: ConcurrencyLimits::default(),
            },
        };
        let priority = WritePriority::new();
        let shared = Shared { client, stores: &stores, write_priority: &priority };
        agent_build::start(&mut tasks, shared, settings, sources.clone());
        let (api, builds): (Api<_>, _) = (Api::all(client.clone()), stores.agent_builds.clone());
        tasks.spawn(async move {
            reflector::run::<Managed<AgentBuild>>(api, builds, None).await;
            Ok(())
        });
        Self { sources, stores, _tasks: tasks, _folder: folder }
    }
}

pub(super) struct Team<'c> {
    pub(super) cluster: &'c Cluster,
    /// All rights.
    pub(super) client: Client,
    /// The shipped rights of the operator.
    pub(super) operator: Client,
    pub(super) operator_user: String,
    pub(super) namespace: String,
}

impl<'c> Team<'c> {
    pub(super) async fn new(cluster: &'c Cluster) -> Self {
        let installed = cluster.namespace("convoke").await;
        let operator = cluster.client_of(&cluster.operator_kubeconfig(&installed).await).await;
        Self {
            cluster,
            client: cluster.client().await,
            operator,
            operator_user: operator_user(&installed),
            namespace: cluster.namespace("team").await,
        }
    }

    pub(super) fn start(&self) -> Controller {
        self.start_with(Limits { total: 10, namespace: 10 })
    }

    /// The controller with other limits.
    pub(super) fn start_with(&self, limits: Limits) -> Controller {
        Controller::start(&self.operator, limits, "registry.test:5000")
    }

    /// The controller with this build profile.
    pub(super) fn start_under(&self, profile: BuildProfile) -> Controller {
        let limits = Limits { total: 10, namespace: 10 };
        Controller::start_as(&self.operator, limits, "registry.test:5000", profile)
    }

    /// The controller with this internal registry.
    pub(super) fn start_for(&self, registry: &str) -> Controller {
        Controller::start(&self.operator, Limits { total: 100, namespace: 100 }, registry)
    }

    /// Writes of the operator since then, as `verb resource/subresource`, sorted.
    pub(super) fn writes(&self, since: AuditMark) -> Vec<String> {
        let records = self.cluster.writes_by(&self.operator_user, since);
        let mut writes: Vec<_> = records
            .iter()
            .map(|r| format!("{} {}/{}", r.verb, r.resource, r.subresource))
            .collect();
        writes.sort();
        writes
    }

    /// The shipped policies, for the operator.
    pub(super) fn apply_policies(&self) {
        let home = self.operator_user.split(':').nth(2).expect("a namespace");
        self.cluster.apply_text(&policies_for(home));
    }

    pub(super) fn apply_build(&self, name: &str, spec: &Value) {
        let mut whole = json!({
            "source": {"gitSync": {}, "subfolder": "images/reviewer"},
            "output": {"image": self.image()}, "buildArgs": {"A": "1"},
        });
        for (key, value) in spec.as_object().expect("a map") {
            whole[key] = value.clone();
        }
        self.cluster.apply(&json!({
            "apiVersion": "convoke.dev/v1alpha1", "kind": "AgentBuild",
            "metadata": {"name": name, "namespace": self.namespace, "annotations": {keys::OWNER: self.mark(name)}},
            "spec": whole,
        }));
    }

    /// The name of the image.
    pub(super) fn image(&self) -> String {
        format!("{}/reviewer", self.namespace)
    }

    /// Where the image goes.
    pub(super) fn repository(&self) -> String {
        format!("registry.test:5000/{}", self.image())
    }

    /// The mark of GitSync `team` on an AgentBuild.
    pub(super) fn mark(&self, name: &str) -> String {
        let namespace = &self.namespace;
        format!("{SYNC}/{namespace}/team/AgentBuild/{namespace}/{name}")
    }

    /// What the engine says after a commit.
    pub(super) fn commit(
        &self,
        controller: &Controller,
        name: &str,
        commit: char,
        tree: Option<char>,
    ) {
        self.commit_of(controller, name, commit, tree, None);
    }

    /// The same after one whose definition is to be applied first.
    pub(super) fn commit_of(
        &self,
        controller: &Controller,
        name: &str,
        commit: char,
        tree: Option<char>,
        applied: Option<String>,
    ) {
        self.commit_all(controller, &[name.to_owned()], commit, tree, applied);
    }

    /// The same of several AgentBuilds.
    pub(super) fn commit_all(
        &self,
        controller: &Controller,
        names: &[String],
        commit: char,
        tree: Option<char>,
        applied: Option<String>,
    ) {
        let id = |digit: char| digit.to_string().repeat(40);
        let source = SourceAt {
            sync: "team".into(),
            url: URL.into(),
            commit: id(commit),
            subfolder_tree: tree.map(id),
            paths: BTreeMap::new(),
            dockerfile: None,
            base_images: BTreeMap::new(),
            applied,
        };
        self.publish(controller, names, &source);
    }

    /// The engine has read a commit with this source.
    pub(super) fn publish(&self, controller: &Controller, names: &[String], source: &SourceAt) {
        let stores = &controller.stores.git_syncs;
        if stores.get(&Key::new(self.namespace.as_str(), "team")).is_none() {
            self.follow(controller, &json!({}));
        }
        let sync = Key::new(self.namespace.as_str(), "team");
        let builds: Vec<_> = names.iter().map(|name| (name.clone(), source.clone())).collect();
        // With errors: what was published for the other builds stays.
        let absence = Absence::Unproven;
        let commit = CommitBuilds { uid: SYNC, url: URL, builds: &builds, absence };
        controller.sources.publish(&sync, commit, Vec::new);
    }

    /// The GitSync, with more in its spec, as the watch would bring it.
    pub(super) fn follow(&self, controller: &Controller, spec: &Value) {
        let mut whole = json!({"url": URL});
        for (key, value) in spec.as_object().expect("a map") {
            whole[key] = value.clone();
        }
        let version = jiff::Timestamp::now().as_microsecond().to_string();
        let sync = json!({
            "apiVersion": "convoke.dev/v1alpha1", "kind": "GitSync",
            "metadata": {"name": "team", "namespace": self.namespace, "uid": SYNC, "resourceVersion": version}, "spec": whole,
        });
        let sync = serde_json::from_value(sync).expect("a GitSync");
        let (key, entry) = reflector::entry::<Managed<GitSync>>(sync);
        controller.stores.git_syncs.wrote(key, entry);
    }

    pub(super) async fn status(&self, name: &str) -> AgentBuildStatus {
        let api: Api<AgentBuild> = Api::namespaced(self.client.clone(), &self.namespace);
        api.get(name).await.expect("an AgentBuild").status.unwrap_or_default()
    }

    pub(super) async fn until(
        &self,
        name: &str,
        what: &str,
        is: impl Fn(&AgentBuildStatus) -> bool,
    ) -> AgentBuildStatus {
        eventually(3 * SOON, what, || async {
            let status = self.status(name).await;
            if is(&status) { Ok(status) } else { Err(status) }
        })
        .await
    }

    pub(super) fn runs_api(&self) -> Api<DynamicObject> {
        let kind = GroupVersionKind::gvk("tekton.dev", "v1", "PipelineRun");
        let resource = ApiResource::from_gvk_with_plural(&kind, "pipelineruns");
        Api::namespaced_with(self.client.clone(), &self.namespace, &resource)
    }

    pub(super) async fn runs(&self) -> Vec<DynamicObject> {
        self.runs_api().list(&ListParams::default()).await.expect("a list of runs").items
    }

    /// What Tekton's controller says at the end of a run.
    pub(super) async fn end(&self, run: &str, succeeded: bool) {
        let digest = format!("sha256:{}", "a".repeat(64));
        let pushed = (self.repository(), digest);
        self.end_with(run, succeeded.then_some(pushed)).await;
    }

    /// The same, after it has pushed an image with a digest.
    pub(super) async fn end_with(&self, run: &str, pushed: Option<(String, String)>) {
        let (status, reason) =
            if pushed.is_some() { ("True", "Succeeded") } else { ("False", "Failed") };
        let results = pushed.map_or(json!([]), |(image, digest)| {
            json!([
                {"name": "IMAGE_URL", "value": format!("{image}:t")},
                {"name": "IMAGE_DIGEST", "value": digest},
            ])
        });
        let patch = json!({"status": {
            "startTime": jiff::Timestamp::now().to_string(), "results": results,
            "conditions": [{"type": "Succeeded", "status": status, "reason": reason, "message": "Tasks Completed: 3"}],
        }});
        let api = self.runs_api();
        api.patch_status(run, &PatchParams::default(), &Patch::Merge(&patch))
            .await
            .expect("the run's end");
    }
}

pub(super) fn condition<'a>(
    status: &'a AgentBuildStatus,
    type_: &str,
) -> Option<(&'a str, &'a str)> {
    let found = status.conditions.iter().find(|condition| condition.type_ == type_)?;
    Some((&found.status, &found.reason))
}

pub(crate) fn install_templates(cluster: &Cluster) {
    let namespace =
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "convoke-system"}});
    cluster.apply(&namespace);
    let folder = format!("{ROOT}/deploy/pipelines");
    cluster.kubectl(&["apply", "--server-side", "-n", "convoke-system", "-f", &folder]);
}

pub(super) fn tekton_definition() -> String {
    let folder = support::run(&mut Command::new(format!("{ROOT}/scripts/lib/tekton-crds")));
    format!("{}/300-pipelinerun.yaml", folder.trim())
}

pub(crate) fn install_tekton(cluster: &Cluster) {
    cluster.kubectl(&["apply", "--server-side", "-f", &tekton_definition()]);
}

pub(super) async fn remove_tekton(cluster: &Cluster) {
    let api: Api<CustomResourceDefinition> = Api::all(cluster.client().await);
    api.delete("pipelineruns.tekton.dev", &DeleteParams::default()).await.expect("deleted");
}

/// Waits until the definition is gone. What is applied to one that is about to go, goes with it.
pub(super) async fn tekton_is_gone(cluster: &Cluster) {
    let api: Api<CustomResourceDefinition> = Api::all(cluster.client().await);
    eventually(Duration::from_secs(180), "the definition is gone", async || {
        match api.get_opt("pipelineruns.tekton.dev").await.expect("an answer") {
            None => Ok(()),
            Some(left) => Err(left.metadata),
        }
    })
    .await;
}
