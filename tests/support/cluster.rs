//! A real Kubernetes control plane that lives exactly as long as the test process.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::{Namespace, ServiceAccount};
use kube::api::{Api, ObjectMeta, Patch, PatchParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tokio::sync::OnceCell;

use super::pod::Pods;
use super::{AuditMark, AuditRecord, Operator, audit, run};

/// The repository of the test.
const ROOT: &str = env!("CARGO_MANIFEST_DIR");

/// The control plane that tests share, with our definitions and the shipped rights installed. Its only operator is
/// [`super::team::shared_operator`].
pub async fn cluster() -> &'static Cluster {
    cluster_for("all").await
}

/// The control plane that some tests share, started when the first of them asks. An operator watches all namespaces, so
/// tests whose operators have other arguments, or die, need another one than the rest.
pub async fn cluster_for(tests: &'static str) -> &'static Cluster {
    static SHARED: Mutex<BTreeMap<&str, &OnceCell<Cluster>>> = Mutex::new(BTreeMap::new());
    let cell =
        *SHARED.lock().expect("lock").entry(tests).or_insert_with(|| Box::leak(Box::default()));
    cell.get_or_init(Cluster::start).await
}

/// A control plane: API server, etcd and controllers, but no node, so no pod ever runs.
///
/// With `CONVOKE_IN_CLUSTER=1` in the environment there is a node, and operators are pods on it; it takes no others.
#[derive(Debug)]
pub struct Cluster {
    /// The address of this machine for operators: what a test serves on it, they reach.
    pub here: IpAddr,
    pub(super) pods: Option<Pods>,
    state: PathBuf,
    tools: PathBuf,
    supervisor: Child,
    answers: Mutex<BufReader<ChildStdout>>,
    /// The supervisor stops everything when this closes, so it closes with the process at the latest.
    alive: Option<ChildStdin>,
}

impl Cluster {
    /// Starts a control plane (4 s): for tests that damage it.
    ///
    /// # Panics
    /// When it doesn't start.
    pub async fn start() -> Self {
        let cluster = tokio::task::spawn_blocking(Self::start_blocking)
            .await
            .expect("start the control plane");
        let files = ["rbac.yaml", "single-tenant.yaml", "policies.yaml"];
        let files = files.map(|file| format!("--filename={ROOT}/deploy/{file}"));
        cluster.kubectl(&["apply", "--server-side", &files[0], &files[1], &files[2]]);
        cluster
    }

    fn start_blocking() -> Self {
        // Two TLS providers may be linked; the product installs this one, too.
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let tools = find_tools();
        let state = tempfile::Builder::new()
            .prefix("convoke-test-")
            .tempdir()
            .expect("temporary folder")
            .keep();
        let files = state.join("files");
        std::fs::create_dir(&files).expect("folder for files");
        let crds = files.join("crds.json");
        std::fs::write(&crds, serde_json::to_vec(&convoke::api::crds()).expect("JSON"))
            .expect("write definitions");
        let inside = std::env::var_os("CONVOKE_IN_CLUSTER").is_some_and(|value| value == "1");
        let script = if inside { "node.py" } else { "control_plane.py" };
        let mut supervisor = Command::new("python3")
            .arg("-B")
            .arg(Path::new(ROOT).join("scripts/lib").join(script))
            .arg("--bin")
            .arg(&tools)
            .arg("--state")
            .arg(&state)
            .arg("--crds")
            .arg(&crds)
            .args(["--audit", "--until-stdin-closes"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("start python3");
        let alive = supervisor.stdin.take();
        let mut ready = String::new();
        let mut stdout = BufReader::new(supervisor.stdout.take().expect("piped"));
        // The supervisor has its own deadline, after which it ends and says why on standard error.
        stdout.read_line(&mut ready).expect("read from the supervisor");
        assert!(!ready.is_empty(), "the control plane did not start; see above");
        let (here, answers) = (Ipv4Addr::LOCALHOST.into(), Mutex::new(stdout));
        let mut cluster = Self { here, pods: None, state, tools, supervisor, answers, alive };
        if inside {
            cluster.prepare_pods(&ready);
        }
        cluster
    }

    /// Gives the node the image of the operator, and keeps all other pods away from it: no test expects them to run.
    fn prepare_pods(&mut self, ready: &str) {
        let ready: Value = serde_json::from_str(ready).expect("JSON from the supervisor");
        let text = |name: &str| ready[name].as_str().expect("a text").to_owned();
        self.here = text("machine").parse().expect("an address");
        let script = Path::new(ROOT).join("scripts/lib/operator_image.py");
        let image = run(Command::new("python3")
            .arg("-B")
            .arg(script)
            .args([env!("CARGO_BIN_EXE_convoke"), &text("registry")]));
        self.kubectl(&["taint", "nodes", "--all", "convoke.dev/tests=operators:NoSchedule"]);
        let kubectl = self.kubectl_command();
        let words = std::iter::once(kubectl.get_program()).chain(kubectl.get_args());
        self.pods = Some(Pods {
            image: image.trim().to_owned(),
            kubectl: words.map(|word| word.to_string_lossy().into_owned()).collect(),
            logs: self.state.join("node/log/pods"),
        });
    }

    /// A client with all rights. Take a new one in each test: a client dies with the runtime that made it.
    pub async fn client(&self) -> Client {
        self.client_of(&self.admin_kubeconfig()).await
    }

    /// A client of a kubeconfig, for example of [`Self::operator_kubeconfig`].
    pub async fn client_of(&self, kubeconfig: &Path) -> Client {
        let config = Kubeconfig::read_from(kubeconfig).expect("read the kubeconfig");
        let mut config = Config::from_custom_kubeconfig(config, &KubeConfigOptions::default())
            .await
            .expect("kubeconfig");
        config.proxy_url = None;
        config.default_retry = false;
        Client::try_from(config).expect("client")
    }

    /// The kubeconfig with all rights.
    pub fn admin_kubeconfig(&self) -> PathBuf {
        self.state.join("kubeconfig")
    }

    /// A folder for files of tests (logs, kubeconfigs); it goes with the cluster.
    pub fn dir(&self) -> PathBuf {
        self.state.join("files")
    }

    /// Keeps a backup of everything.
    pub fn save(&self) {
        self.order("save");
    }

    /// Brings everything back to what it was at [`Self::save`]: the control plane is stopped and starts from the backup.
    pub fn restore(&self) {
        self.order("restore");
    }

    pub(super) fn order(&self, what: &str) {
        let mut answers = self.answers.lock().expect("lock");
        let mut orders = self.alive.as_ref().expect("it runs");
        orders.write_all(format!("{what}\n").as_bytes()).expect("tell the supervisor");
        let mut answer = String::new();
        answers.read_line(&mut answer).expect("read from the supervisor");
        assert_eq!(answer, "done\n", "the supervisor failed at {what}; see above");
    }

    /// The process that holds the cluster.
    pub fn supervisor_pid(&self) -> u32 {
        self.supervisor.id()
    }

    /// A fresh namespace `<prefix>-<number>`.
    pub async fn namespace(&self, prefix: &str) -> String {
        static NEXT: AtomicUsize = AtomicUsize::new(1);
        let name = format!("{prefix}-{}", NEXT.fetch_add(1, Ordering::Relaxed));
        let namespace = Namespace {
            metadata: ObjectMeta { name: Some(name.clone()), ..ObjectMeta::default() },
            ..Namespace::default()
        };
        let api: Api<Namespace> = Api::all(self.client().await);
        api.create(&PostParams::default(), &namespace).await.expect("create a namespace");
        name
    }

    /// A kubeconfig of ServiceAccount `convoke` in that namespace, with exactly the shipped rights (`deploy/rbac.yaml`).
    ///
    /// Its audit name is [`operator_user`].
    pub async fn operator_kubeconfig(&self, namespace: &str) -> PathBuf {
        let kubeconfig = self.user_kubeconfig(namespace, "convoke").await;
        self.bind(namespace);
        kubeconfig
    }

    /// A kubeconfig of a ServiceAccount that is made for it and has no rights of its own.
    pub async fn user_kubeconfig(&self, namespace: &str, name: &str) -> PathBuf {
        let client = self.client().await;
        let accounts: Api<ServiceAccount> = Api::namespaced(client, namespace);
        let account = ServiceAccount {
            metadata: ObjectMeta { name: Some(name.into()), ..ObjectMeta::default() },
            ..ServiceAccount::default()
        };
        let params = PatchParams::apply("convoke-tests");
        accounts
            .patch(name, &params, &Patch::Apply(&account))
            .await
            .expect("create the ServiceAccount");
        let request = TokenRequest {
            spec: TokenRequestSpec {
                expiration_seconds: Some(6 * 3600),
                ..TokenRequestSpec::default()
            },
            ..TokenRequest::default()
        };
        let granted = accounts
            .create_token_request(name, &PostParams::default(), &request)
            .await
            .expect("mint a token");
        let token = granted.status.expect("a token").token;
        let admin = std::fs::read(self.admin_kubeconfig()).expect("admin's kubeconfig");
        let mut config: Value = serde_json::from_slice(&admin).expect("JSON");
        config["users"][0]["user"] = json!({ "token": token });
        let path = self.dir().join(format!("{namespace}-{name}.kubeconfig"));
        std::fs::write(&path, config.to_string()).expect("write the kubeconfig");
        path
    }

    /// Binds the shipped roles as `deploy/rbac.yaml` does, but to the ServiceAccount of that namespace. The key stays
    /// where the operator looks for it by default.
    fn bind(&self, namespace: &str) {
        let subjects =
            json!([{"kind": "ServiceAccount", "name": "convoke", "namespace": namespace}]);
        let reference = |role: &str| json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role});
        let mut items: Vec<_> = ["convoke", "convoke-cluster"]
            .map(|role| {
                json!({
                    "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
                    "metadata": {"name": format!("{role}-{namespace}")},
                    "roleRef": reference(role), "subjects": subjects,
                })
            })
            .into();
        items.extend(["convoke-hmac", "convoke-signing"].map(|role| {
            json!({
                "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
                "metadata": {"name": format!("{role}-{namespace}"), "namespace": "convoke-system"},
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": role},
                "subjects": subjects,
            })
        }));
        self.apply(&json!({"apiVersion": "v1", "kind": "List", "items": items}));
    }

    /// Lets the operator of that namespace write what comes from Git with its own rights.
    pub fn bind_single_tenant(&self, namespace: &str) {
        self.apply(&json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
            "metadata": {"name": format!("convoke-single-tenant-{namespace}")},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "convoke-single-tenant"},
            "subjects": [{"kind": "ServiceAccount", "name": "convoke", "namespace": namespace}],
        }));
    }

    /// Applies the shipped `deploy/team.yaml` to a namespace, without its GitSync: ServiceAccount `convoke-sync`, what it
    /// may write, and that the operator may act as it.
    pub fn grant_sync(&self, namespace: &str, operator: &Operator) {
        self.apply_text(&team_manifest(namespace, operator));
    }

    /// Lets operators see the Secrets of a namespace, as its owner would.
    pub fn grant_secrets(&self, namespace: &str, operators: &[&Operator]) {
        self.grant(namespace, "convoke-secrets", operators);
    }

    /// Lets operators write the keys for model proxies in a namespace, as its owner would.
    pub fn grant_keys(&self, namespace: &str, operators: &[&Operator]) {
        self.grant(namespace, "convoke-keys", operators);
    }

    /// Makes a namespace in which an operator may keep its own key.
    pub fn let_keep_key(&self, namespace: &str, operator: &Operator) {
        let meta = json!({"name": "convoke-hmac", "namespace": namespace});
        let rules =
            json!([{"apiGroups": [""], "resources": ["secrets"], "verbs": ["get", "create"]}]);
        let subjects =
            json!([{"kind": "ServiceAccount", "name": "convoke", "namespace": operator.namespace}]);
        let role = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "convoke-hmac"});
        self.apply(&json!({"apiVersion": "v1", "kind": "List", "items": [
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}},
            {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": meta, "rules": rules},
            {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": meta, "roleRef": role, "subjects": subjects},
        ]}));
    }

    /// Gives operators a ClusterRole in a namespace.
    fn grant(&self, namespace: &str, role: &str, operators: &[&Operator]) {
        let subjects: Vec<_> = operators
            .iter()
            .map(|o| json!({"kind": "ServiceAccount", "name": "convoke", "namespace": o.namespace}))
            .collect();
        self.apply(&json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
            "metadata": {"name": role, "namespace": namespace},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
            "subjects": subjects,
        }));
    }

    /// Applies one object or a `List` of any kinds with `kubectl apply --server-side`.
    pub fn apply(&self, object: &Value) {
        self.apply_text(&object.to_string());
    }

    /// The same with YAML or JSON.
    pub fn apply_text(&self, text: &str) {
        let file = tempfile::NamedTempFile::new_in(self.dir()).expect("temporary file");
        std::fs::write(file.path(), text).expect("write an object");
        self.kubectl(&["apply", "--server-side", "-f", &file.path().to_string_lossy()]);
    }

    /// Starts an operator with the shipped rights (those of `--single-tenant` too, if that is given), in a fresh namespace `convoke-<number>` of its own.
    pub async fn operator(&self, args: &[&str]) -> Operator {
        let namespace = self.namespace("convoke").await;
        let kubeconfig = self.operator_kubeconfig(&namespace).await;
        if args.contains(&"--single-tenant") {
            self.bind_single_tenant(&namespace);
        }
        if let Some(pods) = &self.pods {
            // What tests serve is on a private address here, not on loopback.
            let here = format!("--allow-addresses={}", self.here);
            let args = [args, &[&here]].concat();
            return Operator::start_inside(pods.clone(), &namespace, &self.dir(), &args);
        }
        let mut operator = Operator::start(&kubeconfig, &self.dir(), args);
        operator.namespace = namespace;
        operator
    }

    /// Runs kubectl as admin and gives its output; panics when it fails.
    pub fn kubectl(&self, args: &[&str]) -> String {
        run(self.kubectl_command().args(args))
    }

    /// kubectl as admin, for tests that expect a failure.
    pub fn kubectl_command(&self) -> Command {
        let mut command = Command::new(self.tools.join("kubectl"));
        // Its discovery cache knows servers by address, and ports come back.
        command
            .arg("--kubeconfig")
            .arg(self.admin_kubeconfig())
            .env("KUBECACHEDIR", self.dir().join("kubectl"));
        command
    }

    /// The end of the audit log, now.
    pub fn audit_mark(&self) -> AuditMark {
        audit::end(&self.audit_log())
    }

    /// Every request (reads too) of a user or User-Agent since then; see [`AuditRecord::is_by`].
    pub fn requests_by(&self, who: &str, since: AuditMark) -> Vec<AuditRecord> {
        let mut records = audit::read(&self.audit_log(), since);
        records.retain(|record| record.is_by(who));
        records
    }

    /// Every write, refused ones included, of a user or User-Agent since then.
    pub fn writes_by(&self, who: &str, since: AuditMark) -> Vec<AuditRecord> {
        let mut records = self.requests_by(who, since);
        records.retain(AuditRecord::is_write);
        records
    }

    fn audit_log(&self) -> PathBuf {
        self.state.join("audit.log")
    }

    /// Writes of all users since the start, controllers included, by (verb, resource, subresource), from the API
    /// server's metrics. It names no user: see [`Self::writes_by`] for who did it.
    pub fn api_writes(&self) -> BTreeMap<(String, String, String), u64> {
        let mut counts = BTreeMap::new();
        for line in self.kubectl(&["get", "--raw", "/metrics"]).lines() {
            let Some((labels, count)) = line
                .strip_prefix("apiserver_request_total{")
                .and_then(|rest| rest.rsplit_once("} "))
            else {
                continue;
            };
            let label = |name: &str| {
                let from = labels.split_once(&format!("{name}=\"")).map_or("", |(_, rest)| rest);
                from.split('"').next().unwrap_or_default().to_owned()
            };
            let verb = label("verb");
            if matches!(verb.as_str(), "GET" | "LIST" | "WATCH" | "CONNECT") {
                continue;
            }
            let count: f64 = count.parse().expect("a number");
            // The metric is a whole number written as a float.
            *counts.entry((verb, label("resource"), label("subresource"))).or_default() +=
                count as u64;
        }
        counts
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        drop(self.alive.take());
        let _ = self.supervisor.wait();
    }
}

/// The audit name of the operator of [`Cluster::operator_kubeconfig`].
pub fn operator_user(namespace: &str) -> String {
    format!("system:serviceaccount:{namespace}:convoke")
}

/// `deploy/team.yaml` for a namespace and an operator, without its GitSync.
pub fn team_manifest(namespace: &str, operator: &Operator) -> String {
    let text = std::fs::read_to_string(format!("{ROOT}/deploy/team.yaml")).expect("team.yaml");
    let documents = text.split("---\n").filter(|document| !document.contains("kind: GitSync"));
    documents
        .collect::<Vec<_>>()
        .join("---\n")
        .replace("team-a", namespace)
        .replace("namespace: convoke-system", &format!("namespace: {}", operator.namespace))
}

/// The folder of etcd, kube-apiserver, kube-controller-manager and kubectl: `$CONVOKE_ASSETS`, this checkout's
/// `.convoke/bin`, or what `scripts/cluster` built for any checkout.
fn find_tools() -> PathBuf {
    let complete = |dir: &PathBuf| {
        ["etcd", "kube-apiserver", "kube-controller-manager", "kubectl"]
            .iter()
            .all(|tool| dir.join(tool).exists())
    };
    if let Some(dir) = std::env::var_os("CONVOKE_ASSETS") {
        let dir = PathBuf::from(dir);
        assert!(
            complete(&dir),
            "CONVOKE_ASSETS={} lacks binaries; run scripts/test",
            dir.display()
        );
        return dir;
    }
    let places = [Some(Path::new(ROOT).join(".convoke/bin")), built_tools()];
    let found = places.into_iter().flatten().find(complete);
    found.unwrap_or_else(|| {
        panic!("no cluster binaries: run scripts/test, or once `scripts/cluster tools`")
    })
}

/// Where `scripts/cluster` puts what it builds: the key is the version and a hash of the tools module.
fn built_tools() -> Option<PathBuf> {
    let module = Path::new(ROOT).join("scripts/lib/tools");
    let go_mod = std::fs::read_to_string(module.join("go.mod")).ok()?;
    let go_sum = std::fs::read(module.join("go.sum")).ok()?;
    let version = go_mod.lines().find_map(|line| line.trim().strip_prefix("k8s.io/kubernetes "))?;
    let digest = Sha256::new().chain_update(&go_mod).chain_update(&go_sum).finalize();
    let hash: String = digest.iter().take(6).map(|byte| format!("{byte:02x}")).collect();
    let cache = std::env::var_os("XDG_CACHE_HOME")
        .map(PathBuf::from)
        .or_else(|| Some(Path::new(&std::env::var_os("HOME")?).join(".cache")))?;
    Some(cache.join(format!("convoke/bin/{version}-{hash}")))
}
