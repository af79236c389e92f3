//! An operator in a pod of a test's cluster with a node, as users run it: in-cluster configuration, restricted.
//!
//! The node is in namespaces of this machine (docs/decisions/0012), so that a process in a pod is a process here, and can be
//! killed as one.

use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::operator::is_alive;
use super::run;

/// How long a pod may take to run, an image pull included.
const RUN_SECONDS: &str = "90s";

/// What is needed to run pods in a cluster.
#[derive(Debug, Clone)]
pub struct Pods {
    /// The image of the operator.
    pub image: String,
    /// kubectl as admin.
    pub kubectl: Vec<String>,
    /// The folder in which the kubelet writes the logs of all pods.
    pub logs: PathBuf,
}

/// A pod that runs, or ran.
#[derive(Debug)]
pub struct Pod {
    /// `metadata.name`.
    pub name: String,
    /// The process of its container, as this machine numbers it.
    pub pid: u32,
    /// The container's id.
    container: String,
}

impl Pods {
    fn kubectl(&self, namespace: &str, args: &[&str]) -> String {
        run(Command::new(&self.kubectl[0])
            .args(&self.kubectl[1..])
            .args(["--namespace", namespace])
            .args(args))
    }

    /// Runs `convoke operator ARGS` as ServiceAccount `convoke`; returns when its process runs.
    pub fn start(&self, namespace: &str, name: String, args: &[String]) -> Pod {
        let mut arguments = vec!["operator".to_owned()];
        arguments.extend_from_slice(args);
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": namespace},
            "spec": {
                "serviceAccountName": "convoke", "restartPolicy": "Never", "enableServiceLinks": false,
                "terminationGracePeriodSeconds": 5,
                // The node takes no other pods: no test expects them to run.
                "tolerations": [{"operator": "Exists"}],
                "securityContext": {
                    "runAsNonRoot": true, "runAsUser": 65532, "runAsGroup": 65532, "fsGroup": 65532,
                    "seccompProfile": {"type": "RuntimeDefault"},
                },
                "containers": [{
                    "name": "convoke", "image": self.image, "args": arguments,
                    "securityContext": {
                        "allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true,
                        "capabilities": {"drop": ["ALL"]},
                    },
                    "volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}],
                }],
                "volumes": [{"name": "tmp", "emptyDir": {}}],
            },
        });
        let file = tempfile::NamedTempFile::new().expect("temporary file");
        std::fs::write(file.path(), pod.to_string()).expect("write a pod");
        self.kubectl(namespace, &["create", "-f", &file.path().to_string_lossy()]);
        self.kubectl(
            namespace,
            &[
                "wait",
                "--for=jsonpath={.status.containerStatuses[0].started}=true",
                "--timeout",
                RUN_SECONDS,
                "pod",
                &name,
            ],
        );
        let live: Value =
            serde_json::from_str(&self.kubectl(namespace, &["get", "pod", &name, "-o", "json"]))
                .expect("JSON");
        let id = live["status"]["containerStatuses"][0]["containerID"].as_str().unwrap_or_default();
        let id = id.trim_start_matches("containerd://");
        // For a moment it is still the runtime's.
        let began = Instant::now();
        let pid = loop {
            match process_of(id) {
                Some(pid) => break pid,
                None if began.elapsed() > Duration::from_secs(10) => {
                    panic!("no process of container {id:?}:\n{live:#}")
                }
                None => std::thread::sleep(Duration::from_millis(20)),
            }
        };
        Pod { name, pid, container: id.to_owned() }
    }

    /// SIGKILL to its process; takes the pod away. Gives what it logged.
    pub fn kill9(&self, namespace: &str, pod: &Pod) -> String {
        // A pid may be somebody else's by now.
        let lives = || is_alive(pod.pid) && is_in(pod.pid, &pod.container);
        if lives() {
            run(Command::new("kill").args(["-KILL", &pod.pid.to_string()]));
        }
        let began = Instant::now();
        while lives() {
            assert!(began.elapsed() < Duration::from_secs(20), "process {} does not end", pod.pid);
            std::thread::sleep(Duration::from_millis(2));
        }
        let log = self.log(namespace, &pod.name);
        self.kubectl(
            namespace,
            &["delete", "pod", &pod.name, "--grace-period=0", "--force", "--wait=false"],
        );
        log
    }

    /// What the pod of that name has logged so far.
    pub fn log(&self, namespace: &str, name: &str) -> String {
        let prefix = format!("{namespace}_{name}_");
        let folders = std::fs::read_dir(&self.logs).into_iter().flatten().flatten();
        let folder = folders.map(|entry| entry.path()).find(|path| {
            path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(&prefix))
        });
        let text =
            folder.and_then(|folder| std::fs::read_to_string(folder.join("convoke/0.log")).ok());
        // Each line begins with its time, its stream and whether it is whole.
        let lines = text.iter().flat_map(|text| text.lines());
        lines.map(|line| line.splitn(4, ' ').nth(3).unwrap_or(line).to_owned() + "\n").collect()
    }
}

/// The process of a container: the one in its cgroup that runs our binary.
fn process_of(container: &str) -> Option<u32> {
    let pids = std::fs::read_dir("/proc").ok()?.flatten();
    let pids = pids.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let mut mine = pids.filter(|&pid| {
        is_in(pid, container)
            && std::fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|s| s == "convoke\n")
    });
    mine.next()
}

/// Whether a process is in the cgroup of a container.
fn is_in(pid: u32, container: &str) -> bool {
    let groups = std::fs::read_to_string(format!("/proc/{pid}/cgroup"));
    !container.is_empty() && groups.is_ok_and(|groups| groups.contains(container))
}

/// GET from loopback of a process's network: the whole reply.
pub fn get(pid: u32, port: u16, path: &str) -> std::io::Result<String> {
    const SCRIPT: &str = r#"exec 3<>"/dev/tcp/127.0.0.1/$0" && printf 'GET %s HTTP/1.0\r\nHost: localhost\r\n\r\n' "$1" >&3 && cat <&3"#;
    let output = Command::new("nsenter")
        .args(["--net", "--target", &pid.to_string(), "timeout", "3", "bash", "-c", SCRIPT])
        .args([&port.to_string(), path])
        .output()?;
    if !output.status.success() {
        return Err(std::io::Error::other(String::from_utf8_lossy(&output.stderr).into_owned()));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
