//! A TCP gate before a server: while it is shut, connections are accepted and nothing passes, not on open
//! connections either, as behind a firewall that drops packets. While it is cut, connections end at once, as when the
//! server is gone.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// See the module.
pub struct Gate {
    address: SocketAddr,
    shut: Arc<AtomicBool>,
    cut: Arc<AtomicBool>,
    held: Arc<AtomicBool>,
    passing: Arc<Mutex<Vec<TcpStream>>>,
    ended: Arc<AtomicBool>,
}

impl Gate {
    /// An open gate before this server, on a free port of the same address.
    pub fn before(server: SocketAddr) -> Self {
        let listener = TcpListener::bind((server.ip(), 0)).expect("bind");
        let address = listener.local_addr().expect("address");
        let (shut, ended) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        let (is_shut, has_ended) = (shut.clone(), ended.clone());
        let (cut, passing) = (Arc::new(AtomicBool::new(false)), Arc::default());
        let (is_cut, streams): (_, Arc<Mutex<Vec<TcpStream>>>) =
            (cut.clone(), Arc::clone(&passing));
        let held = Arc::new(AtomicBool::new(false));
        let is_held = held.clone();
        std::thread::spawn(move || {
            let mut waiting = Vec::new();
            for stream in listener.incoming().map_while(Result::ok) {
                if has_ended.load(Ordering::SeqCst) {
                    return;
                }
                if is_cut.load(Ordering::SeqCst) {
                    continue;
                }
                if is_shut.load(Ordering::SeqCst) {
                    waiting.push(stream);
                } else {
                    waiting.clear();
                    streams.lock().expect("streams").extend(stream.try_clone());
                    pass(stream, server, &is_shut, &is_held);
                }
            }
        });
        Self { address, shut, cut, held, passing, ended }
    }

    /// Where the gate is.
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// From now on nothing passes.
    pub fn shut(&self) {
        self.shut.store(true, Ordering::SeqCst);
    }

    /// From now on what comes waits, until [`Self::release`]: a server that is slow.
    pub fn hold(&self) {
        self.held.store(true, Ordering::SeqCst);
    }

    /// What has waited passes.
    pub fn release(&self) {
        self.held.store(false, Ordering::SeqCst);
    }

    /// Ends all connections, and every new one at once, until [`Self::mend`].
    pub fn cut(&self) {
        self.cut.store(true, Ordering::SeqCst);
        for stream in self.passing.lock().expect("streams").drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    /// The server is back.
    pub fn mend(&self) {
        self.cut.store(false, Ordering::SeqCst);
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::SeqCst);
        // The listener sees one more connection, and ends.
        let _ = TcpStream::connect(self.address);
    }
}

fn pass(near: TcpStream, server: SocketAddr, shut: &Arc<AtomicBool>, held: &Arc<AtomicBool>) {
    let Ok(far) = TcpStream::connect(server) else { return };
    for (from, to) in [(&near, &far), (&far, &near)] {
        let (Ok(from), Ok(to)) = (from.try_clone(), to.try_clone()) else { return };
        let _ = from.set_read_timeout(Some(Duration::from_secs(60)));
        let (shut, held) = (shut.clone(), held.clone());
        std::thread::spawn(move || copy(from, to, &shut, &held));
    }
}

fn copy(mut from: TcpStream, mut to: TcpStream, shut: &AtomicBool, held: &AtomicBool) {
    let mut buffer = [0; 16 * 1024];
    while let Ok(n @ 1..) = from.read(&mut buffer) {
        while held.load(Ordering::SeqCst) {
            std::thread::sleep(Duration::from_millis(5));
        }
        if shut.load(Ordering::SeqCst) {
            continue;
        }
        if to.write_all(&buffer[..n]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Write);
}

/// A kubeconfig whose every connection passes a gate, beside this one.
pub fn gated(kubeconfig: &Path) -> (PathBuf, Gate) {
    let text = std::fs::read(kubeconfig).expect("kubeconfig");
    let mut config: serde_json::Value = serde_json::from_slice(&text).expect("JSON");
    let server = config["clusters"][0]["cluster"]["server"].as_str().expect("server").to_owned();
    let gate = Gate::before(server.trim_start_matches("https://").parse().expect("an address"));
    config["clusters"][0]["cluster"]["server"] = format!("https://{}", gate.address()).into();
    let path = kubeconfig.with_extension("gated");
    std::fs::write(&path, config.to_string()).expect("write");
    (path, gate)
}
