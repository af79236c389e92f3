//! An HTTP proxy (tinyproxy) that makes connections for clients.
#![allow(clippy::unwrap_used, clippy::disallowed_types, clippy::disallowed_methods)]

use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Where connections of the proxy to servers on loopback come from.
pub const FROM: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 9);

/// A proxy that wants a user and a password. Ends when dropped.
pub struct HttpProxy {
    child: Child,
    address: SocketAddr,
    dir: tempfile::TempDir,
}

impl HttpProxy {
    /// `None` without the program. With `CI=true` it must be there.
    pub fn start() -> Option<Self> {
        Self::start_on(Ipv4Addr::LOCALHOST.into())
    }

    /// The same at this address of the machine.
    pub fn start_on(here: IpAddr) -> Option<Self> {
        let dir = tempfile::tempdir().unwrap();
        let free = TcpListener::bind((here, 0)).unwrap();
        let port = free.local_addr().unwrap().port();
        drop(free);
        let log = dir.path().join("log");
        // What comes from the proxy comes from an address that nobody else uses.
        let bind = if here.is_loopback() { format!("Bind {FROM}\n") } else { String::new() };
        let config = format!(
            "{bind}Port {port}\nListen {here}\nTimeout 60\nMaxClients 20\nLogFile \"{}\"\nLogLevel Connect\nBasicAuth user canary\n",
            log.display()
        );
        let path = dir.path().join("config");
        std::fs::write(&path, config).unwrap();
        let child = Command::new("tinyproxy")
            .args(["-d", "-c"])
            .arg(&path)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        let Ok(child) = child else {
            assert!(std::env::var("CI").as_deref() != Ok("true"), "tinyproxy is missing");
            eprintln!("left out: tinyproxy is missing (apt-get install tinyproxy-bin)");
            return None;
        };
        let end = Instant::now() + Duration::from_secs(20);
        while TcpStream::connect((here, port)).is_err() {
            assert!(Instant::now() < end, "the proxy does not listen");
            std::thread::sleep(Duration::from_millis(10));
        }
        Some(Self { child, address: (here, port).into(), dir })
    }

    /// Its address. The user is `user`, the password `canary`.
    pub fn address(&self) -> String {
        format!("http://{}", self.address)
    }

    pub fn log(&self) -> String {
        std::fs::read_to_string(self.dir.path().join("log")).unwrap_or_default()
    }
}

impl Drop for HttpProxy {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
