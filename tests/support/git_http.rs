//! A bare repository and its server: the real Git, over real smart HTTP.

use std::io::{BufRead, BufReader};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// Runs "$@" and kills it when standard input ends: however the test ends, the server ends too.
const WATCHDOG: &str =
    r#"trap '' INT; "$@" & while read -r _; do :; done; kill -9 $! 2>/dev/null; wait"#;

/// A server for one repository. It ends when this is dropped.
pub struct GitServer {
    watchdog: Child,
    address: SocketAddr,
}

impl GitServer {
    /// Serves the bare repository at `path` on loopback.
    pub fn start(path: &Path) -> Self {
        Self::start_on(Ipv4Addr::LOCALHOST.into(), path)
    }

    /// The same on another address of this machine, for operators that see another loopback.
    pub fn start_on(address: IpAddr, path: &Path) -> Self {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts/lib/git_http.py");
        let mut watchdog = Command::new("sh")
            .args(["-c", WATCHDOG, "watchdog", "python3"])
            .arg(script)
            .arg(path)
            .args(["--address", &address.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("start sh");
        let mut line = String::new();
        BufReader::new(watchdog.stdout.take().expect("piped"))
            .read_line(&mut line)
            .expect("the server's port");
        let port = line.trim().parse().unwrap_or_else(|_| panic!("no port but {line:?}"));
        Self { watchdog, address: SocketAddr::new(address, port) }
    }

    /// The URL of a repository by its folder's name.
    pub fn url(&self, name: &str) -> String {
        format!("http://{}/{name}", self.address)
    }

    /// Where it listens.
    pub const fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for GitServer {
    fn drop(&mut self) {
        drop(self.watchdog.stdin.take());
        let _ = self.watchdog.wait();
    }
}

/// A bare repository with a work tree beside it.
pub struct Repo {
    bare: PathBuf,
    work: PathBuf,
}

impl Repo {
    /// An empty bare repository at `bare`, whose branch is main.
    pub fn init(bare: &Path) -> Self {
        let work = bare.with_extension("work");
        let repo = Self { bare: bare.to_owned(), work };
        super::run(git().args(["init", "-q", "--bare", "-b", "main"]).arg(&repo.bare));
        super::run(git().args(["init", "-q", "-b", "main"]).arg(&repo.work));
        repo.git(&["remote", "add", "origin", &repo.bare.display().to_string()]);
        repo
    }

    /// Runs git in the work tree.
    pub fn git(&self, args: &[&str]) -> String {
        super::run(git().arg("-C").arg(&self.work).args(args)).trim().to_owned()
    }

    /// Commits these files and pushes main; gives the commit.
    pub fn commit(&self, message: &str, files: &[(&str, &str)]) -> String {
        self.change(message, files, &[])
    }

    /// Writes and deletes files, commits, and pushes main; gives the commit.
    pub fn change(&self, message: &str, write: &[(&str, &str)], delete: &[&str]) -> String {
        for path in delete {
            std::fs::remove_file(self.work.join(path)).expect("delete a file");
        }
        for (path, content) in write {
            let path = self.work.join(path);
            std::fs::create_dir_all(path.parent().expect("parent")).expect("folder");
            std::fs::write(path, content).expect("write a file");
        }
        self.push(message)
    }

    /// Puts a symbolic link at `path`, commits, and pushes.
    pub fn symlink(&self, message: &str, path: &str, target: &str) -> String {
        let path = self.work.join(path);
        let _ = std::fs::remove_file(&path);
        std::os::unix::fs::symlink(target, path).expect("link");
        self.push(message)
    }

    fn push(&self, message: &str) -> String {
        self.git(&["add", "-A"]);
        self.git(&["commit", "-q", "--allow-empty", "-m", message]);
        self.git(&["push", "-q", "--force", "origin", "HEAD:main"]);
        self.head()
    }

    /// The commit of the work tree.
    pub fn head(&self) -> String {
        self.git(&["rev-parse", "HEAD"])
    }

    /// Makes a branch of the bare repository point at a commit.
    pub fn set_branch(&self, name: &str, commit: &str) {
        super::run(git().arg("-C").arg(&self.bare).args([
            "update-ref",
            &format!("refs/heads/{name}"),
            commit,
        ]));
    }

    /// Deletes a branch of the bare repository.
    pub fn delete_branch(&self, name: &str) {
        super::run(git().arg("-C").arg(&self.bare).args([
            "update-ref",
            "-d",
            &format!("refs/heads/{name}"),
        ]));
    }

    /// The bare repository.
    pub fn bare(&self) -> &Path {
        &self.bare
    }

    /// The work tree.
    pub fn work(&self) -> &Path {
        &self.work
    }
}

/// git, without anybody's configuration.
fn git() -> Command {
    let mut command = Command::new("git");
    command
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_AUTHOR_NAME", "Ada Tester")
        .env("GIT_AUTHOR_EMAIL", "ada@example.com")
        .env("GIT_COMMITTER_NAME", "Ada Tester")
        .env("GIT_COMMITTER_EMAIL", "ada@example.com")
        .env_remove("GIT_DIR")
        .env_remove("GIT_WORK_TREE");
    command
}
