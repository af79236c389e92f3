//! A real Git server for tests: `git http-backend` behind a loopback port, repositories built with `git fast-import`,
//! and faults on demand.
//!
//! ```ignore
//! let root = tempfile::tempdir()?;
//! let repo = Repo::init(root.path(), "team.git");
//! let first = repo.change("main").file("prod/a.yaml", "kind: Agent").commit("add a");
//! let server = GitServer::start(root.path()).await;
//! server.url("team.git");                                // http://127.0.0.1:<port>/team.git
//! server.inject(Step::Fetch, Fault::Truncate(100));      // once
//! server.requests();                                     // what clients asked
//! ```
//! Needs `git` with `http-backend` (any distribution's git package).
#![allow(dead_code, reason = "every test crate uses its own part")]

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::body::{Body, Bytes, to_bytes};
use axum::extract::{Request, State};
use axum::http::{Response, StatusCode};
use futures::StreamExt;

/// Parts of the conversation with a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// `GET info/refs`.
    Advertise,
    /// `POST git-upload-pack` with `command=ls-refs`.
    LsRefs,
    /// `POST git-upload-pack` with `command=fetch` (or any request of protocol version 0).
    Fetch,
}

/// What goes wrong.
#[derive(Debug, Clone)]
pub enum Fault {
    /// Nothing is ever answered.
    Silence,
    /// The first bytes are sent, then nothing more.
    Stall(usize),
    /// One byte per interval.
    Trickle(Duration),
    /// The answer ends properly, but after these bytes.
    Truncate(usize),
    /// The connection breaks after these bytes.
    Break(usize),
    /// This byte of the answer is inverted.
    Flip(usize),
    /// An HTTP status.
    Status(u16),
    /// A redirect.
    Redirect(String),
    /// Status 200 and a web page.
    Html,
    /// This answer instead, with the right content type.
    Replace(Vec<u8>),
}

/// What a client asked.
#[derive(Debug, Clone)]
pub struct Asked {
    /// Which part of the conversation.
    pub step: Step,
    /// `/team.git/info/refs`.
    pub path: String,
    /// The body, as text.
    pub body: String,
    /// The value of `Authorization`, if any.
    pub authorization: Option<String>,
    /// Whether it came over HTTP/2.
    pub http2: bool,
    /// Bytes of the answer before any fault.
    pub answered: usize,
}

#[derive(Default)]
struct Shared {
    root: PathBuf,
    asked: Mutex<Vec<Asked>>,
    faults: Mutex<Vec<(Step, Fault, bool)>>,
    only_version_0: Mutex<bool>,
}

/// A server for all repositories below a folder. Stops when dropped.
pub struct GitServer {
    address: std::net::SocketAddr,
    shared: Arc<Shared>,
    task: tokio::task::JoinHandle<()>,
}

impl GitServer {
    /// Serves the bare repositories in `root` on a free loopback port.
    pub async fn start(root: &Path) -> Self {
        let shared = Arc::new(Shared { root: root.to_owned(), ..Shared::default() });
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("an address");
        let router = axum::Router::new().fallback(answer).with_state(Arc::clone(&shared));
        let task = tokio::spawn(async move {
            axum::serve(listener, router).await.expect("the server runs");
        });
        Self { address, shared, task }
    }

    /// URL of a repository, given its folder's name.
    pub fn url(&self, repo: &str) -> String {
        format!("http://{}/{repo}", self.address)
    }

    /// Everything that was asked since the start or the last [`GitServer::forget`].
    pub fn requests(&self) -> Vec<Asked> {
        self.shared.asked.lock().unwrap().clone()
    }

    /// The same, only which steps.
    pub fn steps(&self) -> Vec<Step> {
        self.requests().iter().map(|asked| asked.step).collect()
    }

    /// Forgets what was asked.
    pub fn forget(&self) {
        self.shared.asked.lock().unwrap().clear();
    }

    /// Spoils the next answer at this step.
    pub fn inject(&self, step: Step, fault: Fault) {
        self.shared.faults.lock().unwrap().push((step, fault, true));
    }

    /// Spoils every answer at this step until [`GitServer::heal`].
    pub fn inject_always(&self, step: Step, fault: Fault) {
        self.shared.faults.lock().unwrap().push((step, fault, false));
    }

    /// Takes all faults back.
    pub fn heal(&self) {
        self.shared.faults.lock().unwrap().clear();
    }

    /// Behaves like an old server that knows only version 0 of the protocol, and hands out only what it lists.
    pub fn only_version_0(&self) {
        *self.shared.only_version_0.lock().unwrap() = true;
    }
}

impl Drop for GitServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn answer(State(shared): State<Arc<Shared>>, request: Request) -> Response<Body> {
    let (parts, body) = request.into_parts();
    let body = to_bytes(body, 16 << 20).await.expect("a body");
    let header = |name: &str| {
        parts.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned()
    };
    let text = String::from_utf8_lossy(&body).into_owned();
    let step = if parts.method == "GET" {
        Step::Advertise
    } else if text.contains("command=ls-refs") {
        Step::LsRefs
    } else {
        Step::Fetch
    };
    let fault = take_fault(&shared, step);
    let version =
        if *shared.only_version_0.lock().unwrap() { String::new() } else { header("git-protocol") };
    let cgi = [
        ("GIT_PROJECT_ROOT", shared.root.display().to_string()),
        ("GIT_HTTP_EXPORT_ALL", "1".to_owned()),
        ("REQUEST_METHOD", parts.method.to_string()),
        ("PATH_INFO", parts.uri.path().to_owned()),
        ("QUERY_STRING", parts.uri.query().unwrap_or_default().to_owned()),
        ("CONTENT_TYPE", header("content-type")),
        ("CONTENT_LENGTH", body.len().to_string()),
        ("GIT_PROTOCOL", version),
        ("REMOTE_ADDR", "127.0.0.1".to_owned()),
    ];
    let output = tokio::task::spawn_blocking(move || backend(&cgi, &body)).await.expect("git runs");
    let (status, kind, mut content) = parse_cgi(&output);
    if *shared.only_version_0.lock().unwrap()
        && let Some(id) = unlisted(&shared.root, parts.uri.path(), &text)
    {
        let line = format!("ERR upload-pack: not our ref {id}");
        content = format!("{:04x}{line}", line.len() + 4).into_bytes();
    }
    let authorization = Some(header("authorization")).filter(|value| !value.is_empty());
    let path = parts.uri.path().to_owned();
    let http2 = parts.version == axum::http::Version::HTTP_2;
    let asked = Asked { step, path, body: text, authorization, http2, answered: content.len() };
    shared.asked.lock().unwrap().push(asked);
    respond(status, &kind, content, fault).await
}

/// The first wanted object that no ref names.
fn unlisted(root: &Path, path: &str, body: &str) -> Option<String> {
    let repo = Repo { dir: root.join(path.trim_start_matches('/').split('/').next()?) };
    let wants = body.split("want ").skip(1).filter_map(|rest| rest.split_whitespace().next());
    let listed = repo.git(&["for-each-ref", "--format=%(objectname)"]);
    wants.map(str::to_owned).find(|id| !listed.lines().any(|one| one == id))
}

fn take_fault(shared: &Shared, step: Step) -> Option<Fault> {
    let mut faults = shared.faults.lock().unwrap();
    let index = faults.iter().position(|(at, ..)| *at == step)?;
    let (_, fault, once) = faults[index].clone();
    if once {
        faults.remove(index);
    }
    Some(fault)
}

fn backend(cgi: &[(&str, String)], body: &[u8]) -> Vec<u8> {
    let mut command = git();
    command.arg("http-backend").stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    command.envs(cgi.iter().map(|(name, value)| (*name, value)));
    let mut child = command.spawn().expect("git http-backend starts");
    let mut stdin = child.stdin.take().expect("stdin");
    // It may exit without reading.
    let _ = stdin.write_all(body);
    drop(stdin);
    child.wait_with_output().expect("git http-backend ends").stdout
}

fn parse_cgi(output: &[u8]) -> (u16, String, Vec<u8>) {
    let end = output.windows(4).position(|window| window == b"\r\n\r\n").expect("CGI headers");
    let head = String::from_utf8_lossy(&output[..end]).into_owned();
    let field = |name: &str| {
        head.lines().find_map(|line| line.strip_prefix(name)).map(|value| value.trim().to_owned())
    };
    let status = field("Status:").and_then(|value| value[..3].parse().ok()).unwrap_or(200);
    (status, field("Content-Type:").unwrap_or_default(), output[end + 4..].to_vec())
}

async fn respond(
    status: u16,
    kind: &str,
    content: Vec<u8>,
    fault: Option<Fault>,
) -> Response<Body> {
    let mut answer = Response::builder().status(status).header("content-type", kind);
    let whole = |content: Vec<u8>| Body::from(content);
    let cut = |bytes: usize| Bytes::from(content[..bytes.min(content.len())].to_vec());
    let body = match fault {
        None => whole(content),
        Some(Fault::Silence) => std::future::pending().await,
        Some(Fault::Stall(bytes)) => {
            let head = futures::stream::iter([Ok::<_, std::io::Error>(cut(bytes))]);
            Body::from_stream(head.chain(futures::stream::pending()))
        }
        Some(Fault::Trickle(interval)) => {
            Body::from_stream(futures::stream::iter(content).then(move |byte| async move {
                tokio::time::sleep(interval).await;
                Ok::<_, std::io::Error>(Bytes::from(vec![byte]))
            }))
        }
        Some(Fault::Truncate(bytes)) => Body::from(cut(bytes)),
        Some(Fault::Break(bytes)) => {
            let broken = Err(std::io::Error::other("broken on purpose"));
            Body::from_stream(futures::stream::iter([Ok(cut(bytes)), broken]))
        }
        Some(Fault::Flip(at)) => {
            let mut content = content;
            let at = at.min(content.len().saturating_sub(1));
            content[at] ^= 0xff;
            whole(content)
        }
        Some(Fault::Status(code)) => {
            answer = Response::builder().status(code);
            Body::from("no")
        }
        Some(Fault::Redirect(to)) => {
            answer = Response::builder().status(StatusCode::FOUND).header("location", to);
            Body::empty()
        }
        Some(Fault::Html) => {
            answer = Response::builder().status(200).header("content-type", "text/html");
            Body::from("<html><body>Sign in</body></html>")
        }
        Some(Fault::Replace(content)) => whole(content),
    };
    answer.body(body).expect("a response")
}

/// `git` without any configuration of the machine, with fixed names and dates.
fn git() -> Command {
    let mut command = Command::new("git");
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("GIT_") {
            command.env_remove(name);
        }
    }
    command
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("HOME", "/nonexistent")
        .env("GIT_AUTHOR_NAME", "Ada Author")
        .env("GIT_AUTHOR_EMAIL", "ada@example.com")
        .env("GIT_AUTHOR_DATE", "1700000000 +0000")
        .env("GIT_COMMITTER_NAME", "Carl Committer")
        .env("GIT_COMMITTER_EMAIL", "carl@example.com")
        .env("GIT_COMMITTER_DATE", "1700000000 +0000");
    command
}

/// A bare repository.
#[derive(Debug, Clone)]
pub struct Repo {
    /// Its folder.
    pub dir: PathBuf,
}

impl Repo {
    /// A new, empty repository `root/name` with default branch `main`.
    pub fn init(root: &Path, name: &str) -> Self {
        Self::init_with(root, name, "sha1")
    }

    /// The same with another hash (`sha256`).
    pub fn init_with(root: &Path, name: &str, hash: &str) -> Self {
        let dir = root.join(name);
        let format = format!("--object-format={hash}");
        let mut command = git();
        command.args(["init", "--quiet", "--bare", "--initial-branch=main", &format]).arg(&dir);
        run(&mut command, b"");
        Self { dir }
    }

    /// Runs `git` in the repository; gives back what it printed, trimmed.
    pub fn git(&self, args: &[&str]) -> String {
        self.git_with(args, b"")
    }

    /// The same with something on standard input.
    pub fn git_with(&self, args: &[&str], input: &[u8]) -> String {
        run(git().arg("--git-dir").arg(&self.dir).args(args), input)
    }

    /// Starts a commit on a branch (made when missing).
    pub fn change(&self, branch: &str) -> Change<'_> {
        Change { repo: self, branch: branch.to_owned(), orphan: false, stream: Vec::new() }
    }

    /// Commits some files in one go.
    pub fn commit(&self, branch: &str, files: &[(&str, &str)]) -> String {
        let change = self.change(branch);
        files
            .iter()
            .fold(change, |change, (path, content)| change.file(path, content))
            .commit("change")
    }

    /// The commit of a branch, tag or other revision.
    pub fn id(&self, rev: &str) -> String {
        self.git(&["rev-parse", "--verify", &format!("{rev}^{{commit}}")])
    }

    /// Sets a branch, forwards or not: what a forced push does.
    pub fn branch(&self, name: &str, id: &str) {
        self.git(&["update-ref", &format!("refs/heads/{name}"), id]);
    }

    /// Deletes a branch.
    pub fn delete_branch(&self, name: &str) {
        self.git(&["update-ref", "-d", &format!("refs/heads/{name}")]);
    }

    /// Sets a lightweight tag.
    pub fn tag(&self, name: &str, id: &str) {
        self.git(&["update-ref", &format!("refs/tags/{name}"), id]);
    }

    /// Makes an annotated tag; gives back the tag object's id.
    pub fn annotated_tag(&self, name: &str, id: &str) -> String {
        self.git(&["tag", "--force", "--annotate", "--message", "tagged", name, id]);
        self.git(&["rev-parse", "--verify", &format!("refs/tags/{name}")])
    }

    /// Writes a tree object as it is, honest or not: entries of (mode, name, id).
    pub fn raw_tree(&self, entries: &[(&str, &[u8], &str)]) -> String {
        let mut bytes = Vec::new();
        for (mode, name, id) in entries {
            bytes.extend_from_slice(mode.as_bytes());
            bytes.push(b' ');
            bytes.extend_from_slice(name);
            bytes.push(0);
            bytes.extend(
                (0..id.len())
                    .step_by(2)
                    .map(|at| u8::from_str_radix(&id[at..at + 2], 16).expect("hex")),
            );
        }
        self.git_with(&["hash-object", "-t", "tree", "-w", "--literally", "--stdin"], &bytes)
    }

    /// Writes a blob; gives back its id.
    pub fn blob(&self, content: &[u8]) -> String {
        self.git_with(&["hash-object", "-w", "--stdin"], content)
    }

    /// Commits a tree object without parents and sets a branch to it.
    pub fn commit_tree(&self, branch: &str, tree: &str) -> String {
        let id = self.git(&["commit-tree", "-m", "raw", tree]);
        self.branch(branch, &id);
        id
    }

    /// Deletes everything that no ref leads to.
    pub fn collect_garbage(&self) {
        self.git(&["reflog", "expire", "--expire=now", "--all"]);
        self.git(&["gc", "--quiet", "--prune=now"]);
    }
}

/// A commit in the making.
pub struct Change<'a> {
    repo: &'a Repo,
    branch: String,
    orphan: bool,
    stream: Vec<u8>,
}

impl Change<'_> {
    /// Adds or replaces a file.
    pub fn file(self, path: &str, content: impl AsRef<[u8]>) -> Self {
        self.entry("100644", path, content.as_ref())
    }

    /// Adds or replaces a symbolic link.
    pub fn symlink(self, path: &str, target: &str) -> Self {
        self.entry("120000", path, target.as_bytes())
    }

    /// Adds or replaces a submodule at a commit.
    pub fn submodule(mut self, path: &str, id: &str) -> Self {
        self.stream.extend_from_slice(format!("M 160000 {id} {path}\n").as_bytes());
        self
    }

    /// Deletes a file or folder.
    pub fn delete(mut self, path: &str) -> Self {
        self.stream.extend_from_slice(format!("D {path}\n").as_bytes());
        self
    }

    /// Starts a new history instead of following the branch.
    pub fn orphan(mut self) -> Self {
        self.orphan = true;
        self
    }

    fn entry(mut self, mode: &str, path: &str, content: &[u8]) -> Self {
        let head = format!("M {mode} inline {path}\ndata {}\n", content.len());
        self.stream.extend_from_slice(head.as_bytes());
        self.stream.extend_from_slice(content);
        self.stream.push(b'\n');
        self
    }

    /// Makes the commit; gives back its id.
    pub fn commit(self, message: &str) -> String {
        let full = format!("refs/heads/{}", self.branch);
        let known = self.repo.git(&["for-each-ref", "--format=%(objectname)", &full]);
        let mut stream = format!(
            "commit {full}\nauthor Ada Author <ada@example.com> 1700000000 +0000\n\
             committer Carl Committer <carl@example.com> 1700000000 +0000\ndata {}\n{message}\n",
            message.len()
        )
        .into_bytes();
        if !known.is_empty() && !self.orphan {
            stream.extend_from_slice(format!("from {known}\n").as_bytes());
        }
        stream.extend_from_slice(&self.stream);
        self.repo.git_with(&["fast-import", "--quiet", "--force"], &stream);
        self.repo.id(&full)
    }
}

fn run(command: &mut Command, input: &[u8]) -> String {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("git is installed");
    let mut stdin = child.stdin.take().expect("stdin");
    let input = input.to_vec();
    let writer = std::thread::spawn(move || drop(stdin.write_all(&input)));
    let output = child.wait_with_output().expect("git ends");
    writer.join().expect("the writer ends");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {errors}");
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}
