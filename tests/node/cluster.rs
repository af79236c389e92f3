//! A cluster with a node, for as long as the test process lives: `scripts/cluster up --node` in a temporary folder, the
//! operator with the shipped rights, and one image that plays all parts.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::Namespace;
use kube::api::{Api, Patch, PatchParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use serde_json::{Value, json};
use tokio::sync::OnceCell;

use crate::support::stage::Stage;
use crate::support::team::{ARGS, SOON};
use crate::support::{Operator, eventually, run};

const ROOT: &str = env!("CARGO_MANIFEST_DIR");
/// The image as pods name it.
pub const IMAGE: &str = "registry.convoke-system.svc:5000/agent:1";
/// A pod needs up to 15 s until its probe is asked and a container that died up to 40 s until it starts again.
const PATIENCE: Duration = Duration::from_secs(150);

/// Starts the cluster, says so, and stops it when standard input ends: however the test ends.
const WATCHDOG: &str = r#"trap '' INT
trap '"$0" down 2>/dev/null; rm -rf "$CONVOKE_STATE"' EXIT
"$0" up --node >&2 || exit 1
echo up
while read -r _; do :; done"#;

/// What the containers run: they serve what the probes ask for, unless their role is to die.
const SERVE: &str = r#"#!/bin/sh
case "$ROLE" in
crash) echo "password=hunter2"; exit 3 ;;
grow) text=x; while :; do text=$text$text; done ;;
esac
mkdir -p /tmp/www/health
echo ok | tee /tmp/www/ready /tmp/www/health/liveliness /tmp/www/health/readiness >/tmp/www/health/index.html
exec httpd -f -p 8000 -h /tmp/www
"#;
/// What a tool server runs: the installer, or what was installed.
const PYTHON: &str = r#"#!/bin/sh
case "$*" in
*"pip install"*) mkdir -p /packages/bin && ln -sf /bin/serve /packages/bin/mcp-server-time ;;
*) exec serve ;;
esac
"#;
/// Makes the image of these files and pushes it: registry, folder.
const PUSH: &str = r#"import sys, pathlib, oci
folder = pathlib.Path(sys.argv[2])
files = {"bin/" + name: folder / name for name in ("busybox", "serve", "python")}
applets = ("sh", "httpd", "mkdir", "tee", "ln", "rm", "wget")
oci.Image(files, {"bin/" + name: "busybox" for name in applets}, ["/bin/serve"]).push(sys.argv[1], "agent", "1")"#;

/// The node that all tests of this binary share; its operator runs.
pub async fn node() -> &'static Node {
    static SHARED: OnceCell<Node> = OnceCell::const_new();
    let node = SHARED.get_or_init(Node::start).await;
    node.operator.as_ref().expect("it runs").print_log_on_panic();
    node
}

/// See the module.
pub struct Node {
    state: PathBuf,
    operator: Option<Operator>,
    _watchdog: Child,
}

impl Node {
    async fn start() -> Self {
        let node = tokio::task::spawn_blocking(Self::start_blocking).await.expect("start");
        let kubeconfig = node.operator_kubeconfig();
        let images = ["agent", "proxy", "python"].map(|of| format!("--default-{of}-image={IMAGE}"));
        let args: Vec<_> = ARGS.iter().copied().chain(images.iter().map(String::as_str)).collect();
        let operator = Operator::start(&kubeconfig, &node.state, &args);
        operator.ready(SOON).await;
        Self { operator: Some(operator), ..node }
    }

    fn start_blocking() -> Self {
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let state = tempfile::Builder::new().prefix("convoke-pods-").tempdir().expect("folder");
        let state = state.keep();
        let mut watchdog = Command::new("sh")
            .args(["-c", WATCHDOG, &format!("{ROOT}/scripts/cluster")])
            .env("CONVOKE_STATE", &state)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("start sh");
        let mut line = String::new();
        let stdout = watchdog.stdout.take().expect("piped");
        // `up` has its own deadlines, and says on standard error why it does not come up.
        BufReader::new(stdout).read_line(&mut line).expect("read from the watchdog");
        assert_eq!(line, "up\n", "the cluster does not come up; see above");

        let image = state.join("image");
        std::fs::create_dir(&image).expect("folder");
        let busybox = run(Command::new("which").arg("busybox"));
        std::fs::copy(busybox.trim(), image.join("busybox")).expect("busybox-static");
        std::fs::write(image.join("serve"), SERVE).expect("write");
        std::fs::write(image.join("python"), PYTHON).expect("write");
        let ready = std::fs::read(state.join("cluster/ready")).expect("what the cluster says");
        let ready: Value = serde_json::from_slice(&ready).expect("JSON");
        run(Command::new("python3")
            .args(["-B", "-c", PUSH, ready["registry"].as_str().expect("an address")])
            .arg(&image)
            .current_dir(format!("{ROOT}/scripts/lib")));

        // The operator needs what is applied here.
        let node = Self { operator: None, state, _watchdog: watchdog };
        let crds = node.state.join("crds.json");
        let list = json!({"apiVersion": "v1", "kind": "List", "items": convoke::api::crds()});
        std::fs::write(&crds, list.to_string()).expect("write definitions");
        let shipped = ["rbac.yaml", "single-tenant.yaml", "policies.yaml"];
        let files = shipped.map(|file| Path::new(ROOT).join("deploy").join(file));
        for file in [crds].iter().chain(&files) {
            let file = file.to_string_lossy();
            node.kubectl(&["apply", "--server-side", "--force-conflicts", "-f", &file]);
        }
        node.kubectl(&["wait", "--for=condition=Established", "--timeout=60s", "crd", "--all"]);
        node
    }

    /// The ServiceAccount `convoke` of `deploy/rbac.yaml`.
    fn operator_kubeconfig(&self) -> PathBuf {
        let args = ["-n", "convoke-system", "create", "token", "convoke", "--duration=6h"];
        let token = self.kubectl(&args);
        let admin = self.kubectl(&["config", "view", "--raw", "-o", "json"]);
        let mut config: Value = serde_json::from_str(&admin).expect("JSON");
        config["users"][0]["user"] = json!({"token": token.trim()});
        let path = self.state.join("operator.kubeconfig");
        std::fs::write(&path, config.to_string()).expect("write the kubeconfig");
        path
    }

    /// The process id of the kubelet: the one in the PID namespace of the node.
    pub fn kubelet(&self) -> u32 {
        let first =
            std::fs::read(self.state.join("cluster/node/first")).expect("the first process");
        let first: Value = serde_json::from_slice(&first).expect("JSON");
        let space = |pid: &str| std::fs::read_link(format!("/proc/{pid}/ns/pid")).ok();
        let here = space(&first["pid"].to_string()).expect("its namespace");
        let name = |pid: &str| std::fs::read_to_string(format!("/proc/{pid}/comm"));
        let pids = std::fs::read_dir("/proc").expect("processes").filter_map(|entry| {
            entry.ok()?.file_name().into_string().ok().filter(|name| name.parse::<u32>().is_ok())
        });
        let mut found = pids.filter(|pid| {
            name(pid).is_ok_and(|name| name == "kubelet\n") && space(pid).as_ref() == Some(&here)
        });
        found.next().expect("a kubelet").parse().expect("a number")
    }

    /// A client with all rights, for the runtime of one test.
    pub async fn client(&self) -> Client {
        let config = Kubeconfig::read_from(self.state.join("kubeconfig")).expect("kubeconfig");
        let options = KubeConfigOptions::default();
        let mut config = Config::from_custom_kubeconfig(config, &options).await.expect("config");
        // The node's network is on this machine.
        config.proxy_url = None;
        config.default_retry = false;
        Client::try_from(config).expect("client")
    }

    /// kubectl as admin.
    pub fn kubectl(&self, args: &[&str]) -> String {
        run(Command::new(self.state.join("bin/kubectl"))
            .arg("--kubeconfig")
            .arg(self.state.join("kubeconfig"))
            .env("KUBECACHEDIR", self.state.join("kubectl"))
            .env("NO_PROXY", "10.197.0.0/16")
            .args(args))
    }

    /// Applies an object.
    pub fn apply(&self, object: &Value) {
        let file = tempfile::NamedTempFile::new_in(&self.state).expect("temporary file");
        std::fs::write(file.path(), object.to_string()).expect("write an object");
        self.kubectl(&["apply", "--server-side", "-f", &file.path().to_string_lossy()]);
    }

    /// A namespace where Pod Security `restricted` is enforced.
    pub async fn stage(&self, namespace: &str) -> Stage {
        let client = self.client().await;
        let object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace,
            "labels": {"pod-security.kubernetes.io/enforce": "restricted"}}});
        Api::<Namespace>::all(client.clone())
            .patch(namespace, &PatchParams::apply("tester"), &Patch::Apply(&object))
            .await
            .expect("namespace");
        // Pods need the ServiceAccount that a controller makes.
        let stage = Stage { client, namespace: namespace.to_owned(), patience: PATIENCE };
        eventually(SOON, "a ServiceAccount", || async {
            let accounts: Api<k8s_openapi::api::core::v1::ServiceAccount> =
                Api::namespaced(stage.client.clone(), namespace);
            accounts.get_opt("default").await.ok().flatten()
        })
        .await;
        stage
    }
}

/// Prints how long it took until a status told something, and fails when that is far too long. Five seconds are promised;
/// two cores that others use, too, may need more. So more is marked, for whoever reads, and is no failure.
pub fn told_after(began: Instant, what: &str) {
    let took = began.elapsed();
    let mark = if took > Duration::from_secs(5) { " (more than 5 s)" } else { "" };
    // Not captured: it is wanted of a test that passes.
    let _ = writeln!(std::io::stderr(), "told after {:.1} s{mark}: {what}", took.as_secs_f64());
    assert!(took < Duration::from_secs(30), "{what}: {took:?}");
}
