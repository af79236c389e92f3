//! A container registry (Debian's docker-registry) on loopback.
#![allow(dead_code, reason = "every test crate uses its own part")]
#![allow(clippy::disallowed_types, clippy::disallowed_methods, reason = "tests start programs")]
#![allow(clippy::expect_used, clippy::panic, clippy::print_stderr)]

use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const PROGRAM: &str = "docker-registry";
/// The user that a registry with a password knows.
pub const USER: &str = "pusher";
/// The password of the user.
pub const PASSWORD: &str = "canary-4711-password";
/// The same, as htpasswd keeps it.
const HASH: &str = "$2b$04$zzTuydb3nHpg2htzqPXvOeQzTihWelMR6vTt5pfqmmrYYGqgUnKKe";

/// How the registry behaves. The default takes everything from everybody, over plain http.
#[derive(Default)]
pub struct Settings<'a> {
    /// Whether it wants user and password.
    pub password: bool,
    /// It wants a token of this service: the URL, and the certificate of its key in PEM.
    pub tokens: Option<(&'a str, &'a str)>,
    /// Certificate and key, in PEM: it speaks TLS.
    pub tls: Option<(&'a str, &'a str)>,
}

/// A registry. Ends when dropped.
pub struct Registry {
    child: Child,
    dir: tempfile::TempDir,
    port: u16,
}

impl Registry {
    /// `None` without the program. With `CI=true` it must be there.
    pub fn start(settings: &Settings<'_>) -> Option<Self> {
        let dir = tempfile::tempdir().expect("a folder");
        let free = TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
        let port = free.local_addr().expect("an address").port();
        drop(free);
        let at = |name: &str| dir.path().join(name).display().to_string();
        let mut config = format!(
            "version: 0.1\nlog: {{level: info, accesslog: {{disabled: false}}}}\nstorage: {{filesystem: {{rootdirectory: {}}}}}\n\
             http:\n  addr: 127.0.0.1:{port}\n",
            at("data"),
        );
        if let Some((certificate, key)) = settings.tls {
            std::fs::write(at("crt"), certificate).expect("certificate");
            std::fs::write(at("key"), key).expect("key");
            config += &format!("  tls: {{certificate: {}, key: {}}}\n", at("crt"), at("key"));
        }
        if settings.password {
            std::fs::write(at("htpasswd"), format!("{USER}:{HASH}\n")).expect("htpasswd");
            config += &format!("auth: {{htpasswd: {{realm: test, path: {}}}}}\n", at("htpasswd"));
        }
        if let Some((realm, certificate)) = settings.tokens {
            std::fs::write(at("tokens.pem"), certificate).expect("the certificate");
            // It is called so by the token service of the tests, too.
            let (service, roots) = ("registry.test", at("tokens.pem"));
            config += &format!(
                "auth: {{token: {{realm: '{realm}', service: {service}, issuer: {service}, rootcertbundle: {roots}}}}}\n"
            );
        }
        std::fs::write(at("config.yml"), config).expect("configuration");
        let log = std::fs::File::create(at("log")).expect("the log");
        let child = Command::new(PROGRAM)
            .args(["serve", &at("config.yml")])
            .env_clear()
            .env("OTEL_TRACES_EXPORTER", "none")
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("a copy"))
            .stderr(log)
            .spawn();
        let Ok(child) = child else {
            assert!(std::env::var("CI").as_deref() != Ok("true"), "{PROGRAM} is missing");
            eprintln!("left out: {PROGRAM} is missing (apt-get install docker-registry)");
            return None;
        };
        let registry = Self { child, dir, port };
        let end = Instant::now() + Duration::from_secs(20);
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            assert!(Instant::now() < end, "the registry does not listen:\n{}", registry.log());
            std::thread::sleep(Duration::from_millis(10));
        }
        Some(registry)
    }

    /// Its host and port.
    pub fn host(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    pub fn address(&self) -> std::net::SocketAddr {
        ([127, 0, 0, 1], self.port).into()
    }

    /// What it has said.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.dir.path().join("log")).unwrap_or_default()
    }

    /// The requests that it has answered: `PUT /v2/…`.
    pub fn requests(&self) -> Vec<String> {
        let log = self.log();
        let lines = log.lines().filter(|line| line.starts_with("127.0.0.1 - "));
        let quoted = lines.filter_map(|line| line.split('"').nth(1));
        quoted
            .map(|request| {
                request.trim_end_matches(" HTTP/1.1").trim_end_matches(" HTTP/2.0").to_owned()
            })
            .collect()
    }

    /// Sends it a signal: `STOP`, and it answers nobody; `CONT`, and it goes on.
    pub fn signal(&self, name: &str) {
        let signal = format!("-{name}");
        let sent = Command::new("kill").args([signal, self.child.id().to_string()]).status();
        assert!(sent.expect("kill").success(), "{name}");
    }

    /// Whether something that it has kept has this text.
    pub fn has_kept(&self, text: &str) -> bool {
        let found =
            Command::new("grep").args(["-rqsF", text]).arg(self.dir.path().join("data")).status();
        found.expect("grep").success()
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
