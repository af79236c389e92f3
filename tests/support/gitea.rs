//! A real forge: Gitea on loopback, with one user, whom its API takes with a password.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};

use super::{eventually, free_port, run};

/// The user, and the password.
const USER: &str = "ada";
const PASSWORD: &str = "canary-password";
/// Runs "$@" and kills it when standard input ends: however the test ends, the server ends too.
const WATCHDOG: &str =
    r#"trap '' INT; "$@" & while read -r _; do :; done; kill -9 $! 2>/dev/null; wait"#;

/// The folder with its program, which `scripts/cluster tools --forge` builds.
pub fn folder() -> Option<PathBuf> {
    let folder = std::env::var_os("CONVOKE_FORGE").map(PathBuf::from);
    if folder.is_none() {
        eprintln!(
            "left out: CONVOKE_FORGE is not set (scripts/cluster tools --forge builds Gitea)"
        );
    }
    folder
}

/// Ends when dropped.
pub struct Gitea {
    watchdog: Child,
    dir: tempfile::TempDir,
    port: u16,
    ssh_port: u16,
    client: reqwest::Client,
}

impl Gitea {
    /// Starts it, with nothing but the user.
    pub async fn start(folder: &Path) -> Self {
        let dir = tempfile::tempdir().expect("a folder");
        let (port, ssh_port) = (free_port(), free_port());
        let (work, source) = (dir.path().display(), folder.display());
        let me = run(Command::new("id").arg("-un"));
        let settings = format!(
            "RUN_USER = {}\nRUN_MODE = prod\nWORK_PATH = {work}\nI_AM_BEING_UNSAFE_RUNNING_AS_ROOT = true\n\
             [server]\nHTTP_ADDR = 127.0.0.1\nHTTP_PORT = {port}\nROOT_URL = http://127.0.0.1:{port}/\n\
             STATIC_ROOT_PATH = {source}\nOFFLINE_MODE = true\nSTART_SSH_SERVER = true\nBUILTIN_SSH_SERVER_USER = git\n\
             SSH_DOMAIN = 127.0.0.1\nSSH_LISTEN_HOST = 127.0.0.1\nSSH_PORT = {ssh_port}\nSSH_LISTEN_PORT = {ssh_port}\n\
             [database]\nDB_TYPE = sqlite3\nPATH = {work}/gitea.db\n\
             [security]\nINSTALL_LOCK = true\nSECRET_KEY = {secret}\n\
             [webhook]\nALLOWED_HOST_LIST = loopback\n[indexer]\nISSUE_INDEXER_TYPE = db\n[queue]\nTYPE = channel\n\
             [actions]\nENABLED = false\n[cron]\nENABLED = false\n[log]\nMODE = console\nLEVEL = warn\n",
            me.trim(),
            secret = "0123456789abcdef",
        );
        let config = dir.path().join("app.ini");
        std::fs::write(&config, settings).expect("settings");
        let gitea = || {
            let mut command = Command::new(folder.join("gitea"));
            command.arg("--config").arg(&config).arg("--work-path").arg(dir.path());
            command
        };
        run(gitea().arg("migrate"));
        run(gitea()
            .args(["admin", "user", "create", "--username", USER, "--password", PASSWORD])
            .args(["--email", "ada@example.com", "--must-change-password=false"]));
        let log = std::fs::File::create(dir.path().join("log.txt")).expect("a log");
        let mut command = Command::new("sh");
        command.args(["-c", WATCHDOG, "watchdog"]).arg(folder.join("gitea"));
        let watchdog = command
            .arg("--config")
            .arg(&config)
            .arg("--work-path")
            .arg(dir.path())
            .arg("web")
            .stdin(Stdio::piped())
            .stdout(log.try_clone().expect("a log"))
            .stderr(log)
            .spawn()
            .expect("start sh");
        let gitea = Self { watchdog, dir, port, ssh_port, client: reqwest::Client::new() };
        eventually(Duration::from_secs(60), "Gitea answers", || async {
            let answer =
                gitea.client.get(format!("{}/api/v1/version", gitea.origin())).send().await;
            answer.is_ok_and(|answer| answer.status() == 200).then_some(())
        })
        .await;
        gitea
    }

    pub fn origin(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// Where its server for ssh listens.
    pub fn ssh_origin(&self) -> String {
        format!("ssh://127.0.0.1:{}", self.ssh_port)
    }

    /// The line of `known_hosts` for it.
    pub fn known_hosts(&self) -> String {
        let key = self.dir.path().join("data/ssh/gitea.rsa.pub");
        let key = std::fs::read_to_string(key).expect("the key of its ssh server");
        format!("[127.0.0.1]:{} {key}", self.ssh_port)
    }

    /// Asks its API, and gives the answer.
    pub async fn api(&self, method: &str, path: &str, body: Option<Value>) -> (u16, Value) {
        let method = method.parse().expect("a method");
        let mut request = self
            .client
            .request(method, format!("{}/api/v1{path}", self.origin()))
            .basic_auth(USER, Some(PASSWORD));
        if let Some(body) = body {
            request = request.header("Content-Type", "application/json").body(body.to_string());
        }
        let answer = request.send().await.expect("an answer");
        let status = answer.status().as_u16();
        let text = answer.text().await.expect("text");
        (status, serde_json::from_str(&text).unwrap_or(Value::Null))
    }

    /// Makes something by its API.
    pub async fn make(&self, path: &str, body: Value) -> Value {
        let (status, answer) = self.api("POST", path, Some(body)).await;
        assert_eq!(status, 201, "{path}: {answer}");
        answer
    }

    /// A private repository without a commit. Gives its path.
    pub async fn repository(&self, name: &str) -> String {
        let repository = json!({"name": name, "private": true, "default_branch": "main"});
        self.make("/user/repos", repository).await;
        format!("{USER}/{name}")
    }

    /// A token with these rights.
    pub async fn token(&self, name: &str, scopes: &[&str]) -> String {
        let token = json!({"name": name, "scopes": scopes});
        let token = self.make(&format!("/users/{USER}/tokens"), token).await;
        token["sha1"].as_str().expect("the token").to_owned()
    }

    pub async fn delete_token(&self, name: &str) {
        let (status, answer) =
            self.api("DELETE", &format!("/users/{USER}/tokens/{name}"), None).await;
        assert_eq!(status, 204, "{answer}");
    }

    /// A URL to push to.
    pub fn push_url(&self, repository: &str) -> String {
        format!("http://{USER}:{PASSWORD}@127.0.0.1:{}/{repository}.git", self.port)
    }

    /// What it has logged.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.dir.path().join("log.txt")).unwrap_or_default()
    }
}

impl Drop for Gitea {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let _ = writeln!(std::io::stderr(), "log of Gitea:\n{}", self.log());
        }
        drop(self.watchdog.stdin.take());
        let _ = self.watchdog.wait();
    }
}
