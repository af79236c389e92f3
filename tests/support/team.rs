//! A team: a namespace, a repository served over smart HTTP, and a GitSync between them.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use convoke::api::git_sync::{GitSyncStatus, Problem};
use convoke::api::{GitSync, Kind, keys};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::Client;
use kube::api::{Api, DynamicObject, Patch, PatchParams};
use kube::core::{ApiResource, GroupVersionKind};
use serde_json::{Value, json};
use tokio::sync::OnceCell;

use super::cluster::cluster_for;
use super::gate::Gate;
use super::git_http::{GitServer, Repo};
use super::{AuditMark, Cluster, Operator, eventually};

/// How long anything may take that should take a moment: generous, because two cores are shared.
pub const SOON: Duration = Duration::from_secs(40);

/// The operator's User-Agent begins so.
pub const AGENT: &str = "convoke/";

/// The arguments of every fixture operator.
pub const ARGS: &[&str] = &["--allow-insecure-git", "--single-tenant", "--leader-elect=false"];

/// The same without rights of its own on what comes from Git.
pub const TENANTS: &[&str] = &["--allow-insecure-git", "--leader-elect=false"];

/// See the module.
pub struct Team<'a> {
    pub cluster: &'a Cluster,
    pub client: Client,
    pub namespace: String,
    pub repo: Repo,
    pub syncs: Api<GitSync>,
    requests: AtomicU32,
    server: GitServer,
    dir: tempfile::TempDir,
}

impl<'a> Team<'a> {
    /// A namespace and a repository with these files on main, served; no GitSync yet.
    pub async fn new(cluster: &'a Cluster, prefix: &str, files: &[(&str, &str)]) -> Self {
        let namespace = cluster.namespace(prefix).await;
        let dir = tempfile::tempdir().expect("temporary folder");
        let repo = Repo::init(&dir.path().join("team.git"));
        repo.commit("first", files);
        let server = GitServer::start_on(cluster.here, &dir.path().join("team.git"));
        let client = cluster.client().await;
        let syncs = Api::namespaced(client.clone(), &namespace);
        Self { cluster, client, namespace, repo, syncs, requests: AtomicU32::new(0), server, dir }
    }

    /// The URL of the repository.
    pub fn url(&self) -> String {
        self.server.url("team.git")
    }

    /// Where its Git server listens.
    pub const fn git_address(&self) -> std::net::SocketAddr {
        self.server.address()
    }

    /// The folder of the bare repository.
    pub fn bare(&self) -> std::path::PathBuf {
        self.dir.path().join("team.git")
    }

    /// From now on the server of the repository wants this header `Authorization`.
    pub fn want_authorization(&self, value: &str) {
        let wanted = self.dir.path().join("team.git.authorization");
        let new = wanted.with_extension("new");
        std::fs::write(&new, value).expect("write a file");
        std::fs::rename(&new, &wanted).expect("rename a file");
    }

    /// A gate before the repository, and the URL that leads through it.
    pub fn gate(&self) -> (Gate, String) {
        let gate = Gate::before(self.server.address());
        let url =
            self.url().replace(&self.server.address().to_string(), &gate.address().to_string());
        (gate, url)
    }

    /// Creates the GitSync `main` with these extra fields of its spec, and waits until its first sync is told.
    pub async fn sync_with(&self, extra: Value) -> GitSync {
        self.create_sync(extra).await;
        eventually(SOON, "the first sync is told", || async {
            let sync = self.get().await;
            let told = sync.status.as_ref().is_some_and(|s| {
                s.observed_generation.is_some()
                    && (!s.history.is_empty() || ready(&sync).status == "False")
            });
            if told { Ok(sync) } else { Err(sync.status) }
        })
        .await
    }

    /// Creates the GitSync `main` and waits for nothing.
    pub async fn create_sync(&self, extra: Value) {
        self.create_sync_named("main", extra).await;
    }

    /// The same under another name.
    pub async fn create_sync_named(&self, name: &str, extra: Value) {
        // Polls are far apart: tests ask for a sync, so that each does just what it says.
        let mut spec = json!({"url": self.url(), "interval": "1h", "retryInterval": "1s"});
        if let (Some(spec), Value::Object(extra)) = (spec.as_object_mut(), extra) {
            spec.extend(extra);
        }
        let object = json!({"apiVersion": "convoke.dev/v1alpha1", "kind": "GitSync", "metadata": {"name": name}, "spec": spec});
        let params = PatchParams::apply("tester").force();
        self.syncs.patch(name, &params, &Patch::Apply(&object)).await.expect("GitSync");
    }

    /// Whether the API server would take a GitSync with this spec, and if not, what it says.
    pub async fn try_sync(&self, spec: Value) -> Result<(), String> {
        let object = json!({"apiVersion": "convoke.dev/v1alpha1", "kind": "GitSync", "metadata": {"name": "tried"}, "spec": spec});
        let params = PatchParams { dry_run: true, ..PatchParams::apply("tester").force() };
        let tried = self.syncs.patch("tried", &params, &Patch::Apply(&object)).await;
        tried.map(|_| ()).map_err(|error| error.to_string())
    }

    /// The GitSync.
    pub async fn get(&self) -> GitSync {
        self.syncs.get("main").await.expect("GitSync main")
    }

    /// The Deployments of the namespace.
    pub fn deployments(&self) -> Api<Deployment> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// A Deployment, once it is there.
    pub async fn deployment(&self, name: &str) -> Deployment {
        eventually(SOON, &format!("Deployment {name}"), || async {
            self.deployments().get_opt(name).await.expect("get")
        })
        .await
    }

    /// Its status.
    pub async fn status(&self) -> GitSyncStatus {
        self.get().await.status.expect("a status")
    }

    /// Commits (`Some` writes a file, `None` deletes it), asks for a sync, and waits until it has been handled.
    pub async fn push(&self, files: &[(&str, Option<&str>)]) -> GitSync {
        let (mut written, mut deleted) = (Vec::new(), Vec::new());
        for (path, content) in files {
            match content {
                Some(content) => written.push((*path, *content)),
                None => deleted.push(*path),
            }
        }
        self.repo.change("change", &written, &deleted);
        self.request().await
    }

    /// Asks for a sync and waits until it has been handled whole.
    pub async fn request(&self) -> GitSync {
        self.request_of("main").await
    }

    /// The same of another GitSync.
    pub async fn request_of(&self, name: &str) -> GitSync {
        let value = format!("request-{}", self.requests.fetch_add(1, Ordering::SeqCst));
        let patch = json!({"metadata": {"annotations": {keys::REQUESTED_AT: value}}});
        self.syncs.patch(name, &PatchParams::default(), &Patch::Merge(&patch)).await.expect("ask");
        eventually(SOON, "the request is handled", || async {
            let sync = self.syncs.get(name).await.expect("GitSync");
            let handled = sync.status.as_ref().and_then(|s| s.last_handled_reconcile_at.clone());
            if handled.as_deref() == Some(value.as_str()) { Ok(sync) } else { Err(sync.status) }
        })
        .await
    }

    /// Annotates the GitSync.
    pub async fn annotate(&self, annotations: &[(&str, &str)]) {
        let annotations: BTreeMap<_, _> = annotations.iter().copied().collect();
        let patch = json!({"metadata": {"annotations": annotations}});
        self.syncs
            .patch("main", &PatchParams::default(), &Patch::Merge(&patch))
            .await
            .expect("annotate");
    }

    /// Waits until Ready has this status, and gives the GitSync.
    pub async fn wait_ready(&self, status: &str) -> GitSync {
        self.wait_ready_of("main", status).await
    }

    /// The same of another GitSync.
    pub async fn wait_ready_of(&self, name: &str, status: &str) -> GitSync {
        eventually(SOON, &format!("{name}: Ready={status}"), || async {
            let sync = self.syncs.get(name).await.expect("GitSync");
            let fresh = sync.status.as_ref().and_then(|s| s.observed_generation)
                == sync.metadata.generation;
            if fresh && ready(&sync).status == status { Ok(sync) } else { Err(sync.status) }
        })
        .await
    }

    /// The GitSyncs as the API server has them, whether or not they parse.
    pub fn git_syncs_raw(&self) -> Api<DynamicObject> {
        let gvk = GroupVersionKind::gvk("convoke.dev", "v1alpha1", "GitSync");
        let resource = ApiResource::from_gvk_with_plural(&gvk, "gitsyncs");
        Api::namespaced_with(self.client.clone(), &self.namespace, &resource)
    }

    /// Waits until an object's condition is as `is` wants it.
    pub async fn condition(
        &self,
        kind: Kind,
        name: &str,
        type_: &str,
        is: impl Fn(&Value) -> bool,
    ) -> Value {
        eventually(SOON, &format!("{type_} of {name}"), || async {
            let object = self.api(kind).get(name).await.map_err(|e| json!(e.to_string()))?;
            let list = object.data["status"]["conditions"].as_array().cloned().unwrap_or_default();
            let found = list.iter().find(|c| c["type"] == type_).cloned().unwrap_or(Value::Null);
            let fresh =
                object.data["status"]["observedGeneration"] == json!(object.metadata.generation);
            if fresh && is(&found) { Ok(found) } else { Err(json!(list)) }
        })
        .await
    }

    /// The API of a synced kind.
    pub fn api(&self, kind: Kind) -> Api<DynamicObject> {
        let gvk = GroupVersionKind::gvk("convoke.dev", "v1alpha1", kind.as_str());
        let resource = ApiResource::from_gvk_with_plural(&gvk, kind.plural());
        Api::namespaced_with(self.client.clone(), &self.namespace, &resource)
    }

    /// The objects of a kind by name, with their uid.
    pub async fn objects(&self, kind: Kind) -> BTreeMap<String, String> {
        let list = self.api(kind).list(&kube::api::ListParams::default()).await.expect("list");
        list.items
            .into_iter()
            .map(|o| (o.metadata.name.unwrap_or_default(), o.metadata.uid.unwrap_or_default()))
            .collect()
    }

    /// The names of the ModelAPIs, the kind that most tests use: an External one needs nothing else.
    pub async fn models(&self) -> Vec<String> {
        self.objects(Kind::ModelAPI).await.into_keys().collect()
    }

    /// Writes of fixture operators to synced kinds of this namespace since the mark: `verb resource/name`, statuses left out.
    pub fn writes(&self, since: AuditMark) -> Vec<String> {
        let mut writes: Vec<_> = self
            .cluster
            .writes_by(AGENT, since)
            .into_iter()
            .filter(|r| r.namespace == self.namespace && r.code < 300)
            .filter(|r| {
                r.subresource.is_empty() && Kind::ALL.iter().any(|kind| kind.plural() == r.resource)
            })
            .map(|r| format!("{} {}/{}", r.verb, r.resource, r.name))
            .collect();
        writes.sort();
        writes
    }
}

/// The condition Ready.
pub fn ready(sync: &GitSync) -> Condition {
    condition(sync, "Ready").unwrap_or_else(|| Condition {
        type_: "Ready".into(),
        status: "missing".into(),
        reason: String::new(),
        message: String::new(),
        observed_generation: None,
        last_transition_time: k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(
            jiff::Timestamp::UNIX_EPOCH,
        ),
    })
}

/// A condition by type.
pub fn condition(sync: &GitSync, type_: &str) -> Option<Condition> {
    sync.status.as_ref()?.conditions.iter().find(|c| c.type_ == type_).cloned()
}

/// The problems as `path:line:column code`.
pub fn places(problems: &[Problem]) -> Vec<String> {
    problems
        .iter()
        .map(|p| {
            let number = |n: Option<i64>| n.map_or("?".to_owned(), |n| n.to_string());
            format!(
                "{}:{}:{} {}",
                p.path.as_deref().unwrap_or("?"),
                number(p.line),
                number(p.column),
                p.code
            )
        })
        .collect()
}

/// The manifest of an External ModelAPI.
pub fn model(name: &str) -> String {
    model_at(name, "https://models.example.com/v1")
}

/// The same with a URL.
pub fn model_at(name: &str, url: &str) -> String {
    format!(
        "apiVersion: convoke.dev/v1alpha1\nkind: ModelAPI\nmetadata:\n  name: {name}\nspec:\n  mode: External\n  external:\n    url: {url}\n"
    )
}

/// The operator of the cluster that tests share, [`super::cluster`], with the shipped Role.
pub async fn shared_operator(cluster: &'static Cluster) -> &'static Operator {
    static OPERATOR: OnceCell<Operator> = OnceCell::const_new();
    started(&OPERATOR, cluster, ARGS).await
}

/// A cluster whose operator has no rights of its own on what comes from Git: each GitSync names an account.
pub async fn tenants() -> (&'static Cluster, &'static Operator) {
    static OPERATOR: OnceCell<Operator> = OnceCell::const_new();
    let cluster = cluster_for("tenants").await;
    (cluster, started(&OPERATOR, cluster, TENANTS).await)
}

async fn started(
    operator: &'static OnceCell<Operator>,
    cluster: &Cluster,
    args: &[&str],
) -> &'static Operator {
    let operator = operator
        .get_or_init(|| async {
            let operator = cluster.operator(args).await;
            operator.ready(SOON).await;
            operator
        })
        .await;
    operator.print_log_on_panic();
    operator
}
