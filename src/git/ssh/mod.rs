//! Git over ssh: one connection for each attempt, and on it `git-upload-pack`.
//!
//! ```text
//! known_hosts (pure) the keys of servers
//! identity    (pure) our own key
//! ```
//! No program is started, and no key is written to disk. The server's key must be in `known_hosts`; nothing is sent before it was checked.

mod identity;
mod known_hosts;

use parking_lot::Mutex;
use std::borrow::Cow;
use std::io::{self, BufRead, Read, Write};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use gix::protocol::transport::Protocol;
use gix::protocol::transport::client::blocking_io::Transport;
use gix::protocol::transport::client::git::{ConnectMode, blocking_io::Connection};
use russh::client::{self, AuthResult, Handle, Msg};
use russh::keys::{HashAlg, PrivateKey, PrivateKeyWithHashAlg, PublicKeyOrCertificate};
use russh::{ChannelMsg, ChannelReadHalf, ChannelWriteHalf, Disconnect, Preferred, compression};

pub(super) use self::identity::parse as identity;
pub use self::known_hosts::HostKeyProblem;
pub(super) use self::known_hosts::{HostKeys, KnownHosts, PORT, listed_name};
use super::GitError;
use super::check::SshUrl;
use super::error::printable;
use super::wire::{MAX_REQUEST_BYTES, Wire};
use crate::net::{Dialler, NetError};

/// How long saying good-bye may take.
const MAX_GOODBYE: Duration = Duration::from_secs(1);
/// Bytes of what a server says on standard error that are kept.
const MAX_SAID_BYTES: usize = 1024;

/// How we show who we are, and how we know the server.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct SshCredentials {
    /// Our private key.
    pub key: Arc<PrivateKey>,
    /// The keys of servers.
    pub known_hosts: KnownHosts,
}

/// A server of repositories over ssh.
#[derive(Clone)]
pub(super) struct Server {
    pub url: SshUrl,
    pub credentials: SshCredentials,
    pub dialler: Dialler,
}

impl Server {
    /// Connects, logs in and starts `git-upload-pack`.
    pub fn open(&self, wire: Wire) -> Result<Box<dyn Transport>, GitError> {
        let opened = wire.wait(self.connect(wire.bounds.timeout));
        let (handle, read, write) = opened.map_err(|error| {
            wire.fault().unwrap_or_else(|| GitError::ConnectionFailed { detail: error.to_string() })
        })?;
        let outgoing = Outgoing::default();
        let incoming = Incoming {
            wire,
            handle: Some(handle),
            read,
            write,
            outgoing: outgoing.clone(),
            chunk: Bytes::new(),
            received: 0,
            said: Vec::new(),
            status: None,
            ended: false,
        };
        let path = self.url.path.as_str();
        let host = None::<(String, Option<u16>)>;
        let mode = ConnectMode::Process;
        Ok(Box::new(Connection::new(incoming, outgoing, Protocol::V2, path, host, mode, false)))
    }

    async fn connect(&self, timeout: Duration) -> Result<Opened, GitError> {
        let SshUrl { user, server, path } = &self.url;
        let keys = self.credentials.known_hosts.of(server);
        let config = client::Config {
            preferred: Preferred {
                key: keys.algorithms().into(),
                // A small answer cannot become a large one.
                compression: Cow::Borrowed(&[compression::NONE]),
                ..Preferred::default()
            },
            inactivity_timeout: Some(timeout),
            ..client::Config::default()
        };
        let stream = self.dialler.connect(server).await?;
        let refused = Arc::default();
        let check = HostKeyCheck { host: listed_name(server), keys, refused: Arc::clone(&refused) };
        let mut handle = client::connect_stream(Arc::new(config), stream, check)
            .await
            .map_err(|error| refused.lock().take().unwrap_or_else(|| failed(&error)))?;
        let key = Arc::clone(&self.credentials.key);
        let hash = if key.algorithm().is_rsa() {
            let best = handle.best_supported_rsa_hash().await.map_err(|error| failed(&error))?;
            // RFC 8332: servers that do not say which ones they take.
            Some(best.flatten().unwrap_or(HashAlg::Sha256))
        } else {
            None
        };
        let key = PrivateKeyWithHashAlg::new(key, hash);
        match handle.authenticate_publickey(user, key).await.map_err(|error| failed(&error))? {
            AuthResult::Success => {}
            AuthResult::Failure { .. } => return Err(GitError::KeyRefused { user: user.clone() }),
        }
        let channel = handle.channel_open_session().await.map_err(|error| failed(&error))?;
        // Many servers do not allow this, and answer in version 0.
        channel
            .set_env(false, "GIT_PROTOCOL", "version=2")
            .await
            .map_err(|error| failed(&error))?;
        // Checked before: the path has no quote.
        let command = format!("git-upload-pack '{path}'");
        channel.exec(true, command).await.map_err(|error| failed(&error))?;
        let (read, write) = channel.split();
        Ok((handle, read, write))
    }
}

type Opened = (Handle<HostKeyCheck>, ChannelReadHalf, ChannelWriteHalf<Msg>);

/// The error of a connection.
fn failed(error: &russh::Error) -> GitError {
    let detail = match error {
        russh::Error::NoCommonAlgo { kind, .. } => {
            format!("the server and Convoke have no {kind:?} algorithm in common")
        }
        other => printable(&other.to_string()),
    };
    GitError::ConnectionFailed { detail: format!("ssh: {detail}") }
}

/// Checks the key of the server.
struct HostKeyCheck {
    host: String,
    keys: HostKeys,
    refused: Arc<Mutex<Option<GitError>>>,
}

impl client::Handler for HostKeyCheck {
    type Error = russh::Error;

    async fn check_server_key(
        &mut self,
        shown: &PublicKeyOrCertificate,
    ) -> Result<bool, russh::Error> {
        // Certificates are not asked for.
        let PublicKeyOrCertificate::PublicKey { key, .. } = shown else { return Ok(false) };
        match self.keys.check(key) {
            Ok(()) => Ok(true),
            Err(problem) => {
                *self.refused.lock() = Some(GitError::HostKeyNotTrusted {
                    host: self.host.clone(),
                    key: format!("{} {}", key.algorithm(), key.fingerprint(HashAlg::Sha256)),
                    problem,
                });
                Ok(false)
            }
        }
    }
}

/// What is to be sent. It is sent when an answer is waited for: gix writes line by line.
#[derive(Clone, Default)]
struct Outgoing(Arc<Mutex<Vec<u8>>>);

impl Write for Outgoing {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut waiting = self.0.lock();
        if waiting.len() + bytes.len() > MAX_REQUEST_BYTES {
            return Err(io::Error::other("the question to the server is too long"));
        }
        waiting.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// What the server sends, counted against the limit. The connection ends with it.
struct Incoming {
    wire: Wire,
    handle: Option<Handle<HostKeyCheck>>,
    read: ChannelReadHalf,
    write: ChannelWriteHalf<Msg>,
    outgoing: Outgoing,
    chunk: Bytes,
    received: u64,
    /// What the server said on standard error.
    said: Vec<u8>,
    /// The exit status of its program.
    status: Option<u32>,
    ended: bool,
}

impl Incoming {
    fn send_what_waits(&self) -> io::Result<()> {
        let waiting = std::mem::take(&mut *self.outgoing.0.lock());
        if waiting.is_empty() {
            return Ok(());
        }
        let write = &self.write;
        self.wire.wait(async { write.data_bytes(waiting).await.map_err(|error| failed(&error)) })
    }

    /// The next message. `None` when there is none any more.
    fn next(&mut self) -> io::Result<Option<ChannelMsg>> {
        let read = &mut self.read;
        self.wire.wait(async { Ok::<_, NetError>(read.wait().await) })
    }

    /// The error of a server that ends without an answer.
    fn end(&mut self) -> io::Result<()> {
        self.ended = true;
        let said = String::from_utf8_lossy(&self.said).into_owned();
        if self.received > 0 {
            if !said.trim().is_empty() {
                self.wire.note_complaint(said.trim());
            }
            return Ok(());
        }
        let said = printable(said.trim());
        let said = match (said.is_empty(), self.status) {
            (false, _) => said,
            (true, Some(status)) => format!("git-upload-pack ended with status {status}"),
            (true, None) => "the server ended the connection".to_owned(),
        };
        Err(self.wire.fail(GitError::RepositoryRefused { said }))
    }
}

impl BufRead for Incoming {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        self.send_what_waits()?;
        while self.chunk.is_empty() && !self.ended {
            match self.next()? {
                Some(ChannelMsg::Data { data }) => {
                    if self.received == 0 {
                        self.wire.note_error_line(&data);
                    }
                    self.received += data.len() as u64;
                    self.wire.check_bytes(self.received)?;
                    self.chunk = data;
                }
                Some(ChannelMsg::ExtendedData { data, .. }) => {
                    let room = MAX_SAID_BYTES.saturating_sub(self.said.len());
                    self.said.extend_from_slice(&data[..data.len().min(room)]);
                }
                Some(ChannelMsg::ExitStatus { exit_status }) => self.status = Some(exit_status),
                Some(ChannelMsg::Failure) => {
                    let detail = "its ssh server starts no git-upload-pack".to_owned();
                    return Err(self.wire.fail(GitError::NotAGitServer { detail }));
                }
                Some(ChannelMsg::Close) | None => self.end()?,
                // The exit status may come after the end of the data.
                Some(_) => {}
            }
        }
        Ok(&self.chunk)
    }

    fn consume(&mut self, amount: usize) {
        let _ = self.chunk.split_to(amount.min(self.chunk.len()));
    }
}

impl Read for Incoming {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let available = self.fill_buf()?;
        let taken = available.len().min(buf.len());
        buf[..taken].copy_from_slice(&available[..taken]);
        self.consume(taken);
        Ok(taken)
    }
}

impl Drop for Incoming {
    fn drop(&mut self) {
        let Some(handle) = self.handle.take() else { return };
        // Its task ends at the latest when the server has been silent for the time of the attempt.
        self.wire.runtime.spawn(async move {
            let goodbye = handle.disconnect(Disconnect::ByApplication, "", "");
            let _ = tokio::time::timeout(MAX_GOODBYE, goodbye).await;
        });
    }
}
