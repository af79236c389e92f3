//! OpenSSH's server on loopback, with keys of its own. It runs one program for each connection, as inetd starts it.
#![allow(dead_code, reason = "every test crate uses its own part")]
#![allow(clippy::disallowed_types, clippy::disallowed_methods, reason = "tests start programs")]
#![allow(clippy::expect_used, clippy::panic, clippy::print_stderr)]

use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

const PROGRAM: &str = "/usr/sbin/sshd";

/// Whether there is a server to test with. With `CI=true` there must be one.
pub fn is_there() -> bool {
    let found = Path::new(PROGRAM).exists();
    assert!(found || std::env::var("CI").as_deref() != Ok("true"), "{PROGRAM} is missing");
    if !found {
        eprintln!("left out: {PROGRAM} is missing (apt-get install openssh-server)");
    }
    found
}

/// Runs ssh-keygen in a folder, and gives the files of the new key: the private one, and the text of the public one.
pub fn make_key(dir: &Path, name: &str, arguments: &[&str]) -> (PathBuf, String) {
    let path = dir.join(name);
    let mut command = Command::new("ssh-keygen");
    command.args(["-q", "-C", name, "-f"]).arg(&path).args(arguments);
    if !arguments.contains(&"-N") {
        command.args(["-N", ""]);
    }
    let done = command.output().expect("ssh-keygen");
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let public = std::fs::read_to_string(path.with_extension("pub")).expect("the public key");
    (path, public.trim().to_owned())
}

/// How the server behaves.
#[derive(Default)]
pub struct Settings<'a> {
    /// Kinds of its keys: `ed25519`, `ecdsa`, `rsa`.
    pub host_keys: &'a [&'a str],
    /// More lines of its configuration.
    pub lines: &'a [&'a str],
}

/// A server. It takes no new connections once this is dropped.
pub struct Sshd {
    dir: tempfile::TempDir,
    address: SocketAddr,
    ended: Arc<AtomicBool>,
    open: Arc<AtomicUsize>,
    public: Vec<String>,
}

impl Sshd {
    /// A server on loopback.
    pub fn start(settings: &Settings<'_>) -> Self {
        Self::start_on(Ipv4Addr::LOCALHOST.into(), settings)
    }

    /// The same on another address of this machine, for operators that see another loopback.
    pub fn start_on(address: IpAddr, settings: &Settings<'_>) -> Self {
        let dir = tempfile::tempdir().expect("a folder");
        let at = |name: &str| dir.path().join(name).display().to_string();
        let mut config = format!(
            "AuthorizedKeysFile {}\nStrictModes no\nUsePAM no\nPasswordAuthentication no\nKbdInteractiveAuthentication no\n\
             PermitRootLogin yes\nPidFile none\nLogLevel VERBOSE\n",
            at("authorized"),
        );
        for line in settings.lines {
            config += &format!("{line}\n");
        }
        let mut public = Vec::new();
        for kind in settings.host_keys {
            let (path, text) = make_key(dir.path(), &format!("host_{kind}"), &["-t", kind]);
            config += &format!("HostKey {}\n", path.display());
            public.push(text);
        }
        std::fs::write(at("authorized"), "").expect("authorized keys");
        std::fs::write(at("config"), config).expect("configuration");
        // Its own folder for privileges, which a package of the system makes at boot.
        let _ = std::fs::create_dir_all("/run/sshd");
        let listener = TcpListener::bind((address, 0)).expect("a free port");
        let address = listener.local_addr().expect("an address");
        let (ended, open) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let (stop, count, config, log) = (ended.clone(), open.clone(), at("config"), at("log"));
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                if stop.load(Ordering::SeqCst) {
                    return;
                }
                let socket = OwnedFd::from(stream.expect("a connection"));
                let log = std::fs::OpenOptions::new().create(true).append(true).open(&log);
                let (output, log) = (socket.try_clone().expect("a copy"), log.expect("the log"));
                let mut child = Command::new(PROGRAM)
                    .args(["-i", "-e", "-f", &config])
                    .stdin(socket)
                    .stdout(Stdio::from(output))
                    .stderr(log)
                    .spawn()
                    .expect("sshd");
                let count = count.clone();
                count.fetch_add(1, Ordering::SeqCst);
                std::thread::spawn(move || {
                    let _ = child.wait();
                    count.fetch_sub(1, Ordering::SeqCst);
                });
            }
        });
        Self { dir, address, ended, open, public }
    }

    /// The address, as it stands in `known_hosts`.
    pub fn host(&self) -> String {
        format!("[{}]:{}", self.address.ip(), self.address.port())
    }

    pub fn origin(&self) -> String {
        format!("ssh://{}", self.address)
    }

    /// The URL of a repository for the user that runs the test.
    pub fn url(&self, repo: &Path) -> String {
        let user = Command::new("id").arg("-un").output().expect("id");
        let user = String::from_utf8(user.stdout).expect("text");
        format!("ssh://{}@{}{}", user.trim(), self.address, repo.display())
    }

    /// The lines of `known_hosts` for this server.
    pub fn known_hosts(&self) -> String {
        let line = |key: &String| format!("{} {key}\n", self.host());
        self.public.iter().map(line).collect()
    }

    /// Takes this public key from now on, and no other.
    pub fn authorize(&self, public: &str) {
        std::fs::write(self.dir.path().join("authorized"), format!("{public}\n")).expect("write");
    }

    /// Connections that are open.
    pub fn connections(&self) -> usize {
        self.open.load(Ordering::SeqCst)
    }

    /// What the server has said.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.dir.path().join("log")).unwrap_or_default()
    }
}

impl Drop for Sshd {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::SeqCst);
        // It waits for a connection.
        let _ = std::net::TcpStream::connect(self.address);
    }
}
