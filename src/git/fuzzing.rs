//! Private parts that a fuzzer calls.

use std::io::Cursor;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use gix::hash::Kind;
use gix::protocol::transport::Protocol;
use gix::protocol::transport::client::blocking_io::Transport;
use gix::protocol::transport::client::git::{ConnectMode, blocking_io::Connection};
use tokio::sync::watch;
use tokio::time::Instant;

use super::check::{self, Location, Schemes, Target};
use super::protocol::{self, Asked, Conversation, Fetch, MAX_LISTING_BYTES};
use super::table::{Table, What};
use super::verify::{self, Rules};
use super::wire::{Bounds, Wire};
use super::{Credentials, GitError, GitRef, Keys, Limits};
use crate::net::Endpoint;

/// The server and the path of a URL that is accepted.
pub(crate) fn url(text: &str) -> Option<(Endpoint, String)> {
    match check::url(text, Schemes::HttpToo).ok()? {
        Location::Http(url) => {
            let port = url.port_or_known_default()?;
            let open = url.username().is_empty() && url.password().is_none();
            assert!(open && url.query().is_none() && url.fragment().is_none(), "{text:?}");
            Some((Endpoint::new(url.host_str()?, port), url.path().to_owned()))
        }
        Location::Ssh(url) => {
            let is_plain = |c: char| c.is_ascii_alphanumeric() || "-._".contains(c);
            assert!(url.user.chars().all(is_plain) && !url.user.starts_with('-'), "{text:?}");
            Some((url.server, url.path))
        }
    }
}

/// Whether a ref is accepted.
pub(crate) fn reference(reference: &GitRef) -> bool {
    match check::target(reference) {
        Ok(Target::Versions(range, _)) => {
            let tags = ["v1.0.0", "2.0.0-rc.1", "x", "v", "1.2", "99999999999999999999.0.0"];
            let _ = check::highest(&range, tags.into_iter());
            true
        }
        other => other.is_ok(),
    }
}

/// Whether the name of an entry of a tree is accepted.
pub(crate) fn is_plain_name(name: &[u8]) -> bool {
    check::name_problem(name).is_none()
}

/// Looks for the keys of a host.
pub(crate) fn check_host_key(credentials: &Credentials, host: &str) {
    if let Some(ssh) = &credentials.ssh {
        let keys = ssh.known_hosts.of(&Endpoint::new(host, 22));
        assert!(keys.check(ssh.key.public_key()).is_err() || !keys.algorithms().is_empty());
    }
}

/// Whether a commit, or else a tag of this name and commit, is signed by one of the keys, at this time.
pub(crate) fn is_signed(
    object: &[u8],
    tag: Option<(&str, &str)>,
    keys: &Keys,
    (is_sha256, now): (bool, u64),
) -> bool {
    let hash = if is_sha256 { Kind::Sha256 } else { Kind::Sha1 };
    let rules = Rules { keys, now, hash };
    let verified = match tag {
        Some(tag) => verify::tag(object, tag, rules),
        None => verify::commit(object, rules),
    };
    if let Err(why) = &verified {
        let told = why.to_string();
        assert!(told.len() < 600 && !told.chars().any(char::is_control), "{told:?}");
    }
    verified.is_ok()
}

/// A tree that parses: each name finds its entry, and what is listed as a folder or a file has a good name that is there once.
pub(crate) fn tree(bytes: &[u8], is_sha256: bool) {
    let hash = if is_sha256 { Kind::Sha256 } else { Kind::Sha1 };
    let Some(table) = Table::parse(bytes.to_vec(), hash) else { return };
    let items: Vec<_> = table.items().collect();
    for item in &items {
        let same = items.iter().filter(|other| other.name == item.name).count();
        let is_odd = item.kind() == Some(crate::definition::tree::EntryKind::Odd);
        assert!(is_odd || (same == 1 && is_plain_name(item.name)), "{:?}", item.name);
        assert_eq!(item.object().as_slice().len(), hash.len_in_bytes());
        if same == 1 {
            let found = table.find(item.name).map(|found| (found.id, found.what));
            assert_eq!(found, Some((item.id, item.what)), "{:?}", item.name);
        }
    }
    let folders = items.iter().filter(|item| item.what == What::Folder).count();
    assert!(folders <= items.len() && bytes.len() >= items.len() * hash.len_in_bytes());
    if table.is_sorted() {
        assert!(items.windows(2).all(|pair| pair[0].order(&pair[1]).is_lt()));
    }
}

/// A conversation in which the server says this, whatever it is asked.
fn answered(answer: &[u8]) -> Result<(Conversation, Wire), GitError> {
    let (_, stop) = watch::channel(false);
    let timeout = Duration::from_secs(60);
    let bounds = Bounds { deadline: Instant::now() + timeout, timeout, stop, what: "reading" };
    let limit = MAX_LISTING_BYTES;
    let wire = Wire::new(bounds, None, limit, GitError::AnswerTooLarge { limit });
    let host = None::<(String, Option<u16>)>;
    let (reader, writer) = (Cursor::new(answer.to_vec()), std::io::sink());
    let mode = ConnectMode::Process;
    let connection = Connection::new(reader, writer, Protocol::V2, "/a.git", host, mode, false);
    let transport: Box<dyn Transport> = Box::new(connection);
    Ok((Conversation::over(transport, wire.clone())?, wire))
}

fn check_error(error: &GitError) {
    let told = error.to_string();
    assert!(told.len() < 2000 && !told.chars().any(char::is_control), "{told:?}");
}

/// A list of refs: what is found was in it. It needs a runtime.
pub(crate) fn refs(answer: &[u8]) {
    let (target, others, absent) = (
        Target::Branch("main".into()),
        [Target::Tag("v1.0.0".into()), Target::Ref("refs/heads/x".into())],
        [Target::Branch("y".into())],
    );
    let asked = Asked { target: &target, others: &others, absent: &absent };
    let looked =
        answered(answer).and_then(|(conversation, _)| protocol::look_in(conversation, &asked));
    match looked {
        Ok(found) => {
            for listed in found.into_values() {
                match listed {
                    Ok(listed) => {
                        let id = listed.found.commit.to_string();
                        let has = answer
                            .windows(id.len())
                            .any(|part| part.eq_ignore_ascii_case(id.as_bytes()));
                        assert!(has, "{id} was made up");
                    }
                    Err(error) => check_error(&error),
                }
            }
        }
        Err(error) => check_error(&error),
    }
}

/// The id of a commit, and the answer to the request for it. Nothing but a pack and its index is written. It needs a runtime.
pub(crate) fn pack(data: &[u8], staging: &Path) {
    let Some((id, answer)) = data.split_at_checked(40) else { return };
    let Ok(want) = gix::ObjectId::from_hex(id) else { return };
    let fetched = answered(answer).and_then(|(conversation, wire)| {
        let order = Fetch {
            want,
            tag: None,
            onto: None,
            staging,
            limits: Limits { pack_bytes: 1 << 19, ..Limits::default() },
            bounds: &wire.bounds.clone(),
            interrupt: &AtomicBool::new(false),
        };
        protocol::fetch_in(conversation, order)
    });
    if let Err(error) = fetched {
        check_error(&error);
    }
}
