//! The two requests to a Git server: which commit a ref is (`ls-refs`), and the objects of that commit (`fetch`).
//!
//! A fetch asks for exactly the commit that was resolved before, at depth 1. So a ref that moves in between cannot mix two
//! states, and no refs are listed a second time. The protocol is version 2. A server that knows only version 0 or 1 lists its
//! refs unasked.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use gix::ObjectId;
use gix::odb::pack;
use gix::progress::Discard;
use gix::protocol::fetch::{self, Arguments, Response, Shallow, Tags, negotiate};
use gix::protocol::handshake::Ref;
use gix::protocol::ls_refs::RefPrefixes;
use gix::protocol::transport::client::blocking_io::{Transport, http};
use gix::protocol::transport::{Protocol, Service};
use gix::protocol::{Handshake, LsRefsCommand};
use semver::VersionReq;

use super::GitError;
use super::check::highest;
use super::error::{nearest, printable};
use super::http::Session;
use super::ssh;
use super::wire::{Bounds, Wire};

/// Bytes of the largest listing of refs. A ref takes about 100 bytes.
pub(super) const MAX_LISTING_BYTES: u64 = 16 * 1024 * 1024;

/// What a ref is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RefKind {
    Branch,
    Tag,
    /// Any other, by its full name.
    Full,
}

impl RefKind {
    /// The folder of such refs.
    const fn folder(self) -> &'static str {
        match self {
            Self::Branch => "refs/heads/",
            Self::Tag => "refs/tags/",
            Self::Full => "",
        }
    }

    /// The word in messages.
    const fn as_str(self) -> &'static str {
        match self {
            Self::Branch => "branch",
            Self::Tag => "tag",
            Self::Full => "ref",
        }
    }
}

fn agent() -> (&'static str, Option<String>) {
    ("agent", Some(concat!("git/convoke-", env!("CARGO_PKG_VERSION")).to_owned()))
}

/// The way to a server.
pub(super) enum Link {
    /// The URL, and how it is asked.
    Http(String, Box<Session>),
    Ssh(ssh::Server),
}

/// An open conversation with a server, after the handshake.
struct Conversation {
    transport: Box<dyn Transport>,
    wire: Wire,
    handshake: Handshake,
}

impl Conversation {
    fn open(link: Link, wire: Wire) -> Result<Self, GitError> {
        let mut transport: Box<dyn Transport> = match link {
            Link::Http(url, session) => {
                let parsed = gix::url::parse(url.as_str())
                    .map_err(|_| GitError::InvalidUrl { reason: "it cannot be parsed".into() })?;
                Box::new(http::Transport::new_http(*session, parsed, Protocol::V2, false))
            }
            Link::Ssh(server) => server.open(wire.clone())?,
        };
        let handshake = gix::protocol::handshake(
            &mut transport,
            Service::UploadPack,
            |_| Ok(None),
            Vec::new(),
            &mut Discard,
        )
        .map_err(|error| match (wire.fault(), wire.complaint()) {
            (Some(fault), _) => fault,
            (None, Some(said)) => GitError::RepositoryRefused { said },
            (None, None) => GitError::NotAGitServer { detail: cause(&error) },
        })?;
        Ok(Self { transport, wire, handshake })
    }

    /// The id to ask for to get a commit. Servers of version 0 and 1 hand out only objects that they list. For an annotated tag
    /// that is the tag object, not its commit.
    fn listed(&self, commit: ObjectId) -> ObjectId {
        let refs = self.handshake.refs.as_deref().unwrap_or_default();
        if refs.iter().any(|one| one.unpack().1.is_some_and(|target| *target == *commit)) {
            return commit;
        }
        let tag = refs.iter().find_map(|one| match one.unpack() {
            (_, Some(tag), Some(peeled)) if *peeled == *commit => Some(tag.to_owned()),
            _ => None,
        });
        tag.unwrap_or(commit)
    }

    /// Refs whose names start with `prefix`.
    fn list(&mut self, prefix: &str) -> Result<Vec<Ref>, GitError> {
        if let Some(refs) = &self.handshake.refs {
            let wanted = |one: &&Ref| one.unpack().0.starts_with(prefix.as_bytes());
            return Ok(refs.iter().filter(wanted).cloned().collect());
        }
        let mut prefixes = RefPrefixes::new();
        prefixes.extend([prefix.into()]);
        LsRefsCommand::new(Some(prefixes), &self.handshake.capabilities, agent())
            .invoke_blocking(&mut self.transport, &mut Discard, false)
            .map_err(|error| {
                self.wire
                    .fault()
                    .unwrap_or_else(|| GitError::NotAGitServer { detail: cause(&error) })
            })
    }
}

/// What a ref is now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Found {
    pub commit: ObjectId,
    /// The annotated tag that the ref names, if it is one.
    pub tag: Option<ObjectId>,
}

impl Found {
    /// What a line of a list of refs says.
    fn of(target: Option<&gix::oid>, peeled: Option<&gix::oid>) -> Option<Self> {
        let commit = peeled.or(target)?.to_owned();
        Some(Self { commit, tag: peeled.and(target).map(ToOwned::to_owned) })
    }
}

/// Asks for the tag with the highest version in a range, and gives its name, too. All tags are listed.
pub(super) fn resolve_versions(
    link: Link,
    wire: Wire,
    range: &VersionReq,
    text: &str,
) -> Result<(Found, String), GitError> {
    let mut conversation = Conversation::open(link, wire)?;
    let folder = RefKind::Tag.folder();
    let listed = conversation.list(folder)?;
    let tags: BTreeMap<String, Found> = listed
        .iter()
        .filter_map(|one| {
            let (full, target, peeled) = one.unpack();
            let name = full.strip_prefix(folder.as_bytes())?;
            Some((String::from_utf8(name.to_vec()).ok()?, Found::of(target, peeled)?))
        })
        .collect();
    if let Some(tag) = highest(range, tags.keys().map(String::as_str)) {
        return Ok((tags[tag], tag.to_owned()));
    }
    if tags.is_empty() && conversation.list("refs/").unwrap_or_default().is_empty() {
        return Err(GitError::EmptyRepository);
    }
    let nearest = highest(&VersionReq::STAR, tags.keys().map(String::as_str));
    let nearest = nearest.into_iter().map(str::to_owned).collect();
    Err(GitError::RefNotFound { kind: "tag with a version in", name: text.to_owned(), nearest })
}

/// Asks for the commit of a branch, a tag or another ref. An annotated tag leads to its commit. A ref that exists costs one `ls-refs`.
pub(super) fn resolve(
    link: Link,
    wire: Wire,
    kind: RefKind,
    name: &str,
) -> Result<Found, GitError> {
    let folder = kind.folder();
    let full = format!("{folder}{name}");
    let mut conversation = Conversation::open(link, wire)?;
    for one in conversation.list(&full)? {
        let (found, target, peeled) = one.unpack();
        if *found == full
            && let Some(found) = Found::of(target, peeled)
        {
            return Ok(found);
        }
    }
    // The ref does not exist. All refs are listed for the hint; a failure of that is not reported.
    let all = conversation.list("refs/").unwrap_or_default();
    if all.is_empty() {
        return Err(GitError::EmptyRepository);
    }
    let names: Vec<String> = all
        .iter()
        .filter_map(|one| one.unpack().0.strip_prefix(folder.as_bytes()))
        .map(|found| String::from_utf8_lossy(found).into_owned())
        .collect();
    let nearest = nearest(name, names.iter().map(String::as_str));
    Err(GitError::RefNotFound { kind: kind.as_str(), name: name.to_owned(), nearest })
}

/// A received pack and its index, still in the staging folder.
pub(super) struct Pack {
    pub data: PathBuf,
    pub index: PathBuf,
}

/// What is fetched, on top of what, and within which limits.
pub(super) struct Fetch<'a, Base> {
    /// The commit to fetch.
    pub want: ObjectId,
    /// The annotated tag of it to fetch, too. Its commit comes with it.
    pub tag: Option<ObjectId>,
    /// A commit whose tree is complete in `base`. The server leaves out objects that it has, too.
    pub have: Option<ObjectId>,
    /// Objects that a thin pack may refer to.
    pub base: Base,
    /// An existing, empty folder.
    pub staging: &'a Path,
    /// Bytes that one object may take in memory.
    pub object_bytes: usize,
    /// Bytes that the pack may have, for the message.
    pub pack_bytes: u64,
    pub bounds: &'a Bounds,
    pub interrupt: &'a AtomicBool,
}

/// Fetches one commit with its tree and no history into `staging`.
pub(super) fn fetch(
    link: Link,
    wire: Wire,
    order: Fetch<'_, impl gix::objs::Find>,
) -> Result<Pack, GitError> {
    let Fetch { want, tag, have, base, staging, object_bytes, pack_bytes, bounds, interrupt } =
        order;
    let mut conversation = Conversation::open(link, wire)?;
    let shallow_file = staging.join("shallow");
    if let Some(have) = have {
        std::fs::write(&shallow_file, format!("{have}\n"))
            .map_err(|error| GitError::storage("write the shallow boundary", &error))?;
    }
    let options = pack::bundle::write::Options {
        thread_limit: Some(2),
        alloc_limit_bytes: Some(object_bytes),
        ..Default::default()
    };
    let mut written = None;
    let asked = tag.unwrap_or_else(|| conversation.listed(want));
    let outcome = gix::protocol::fetch(
        &mut Single { want: asked, have },
        |reader, progress, interrupt| {
            written = Some(pack::Bundle::write_to_directory(
                reader,
                Some(staging),
                progress,
                interrupt,
                Some(base),
                want.kind(),
                options,
            )?);
            Ok(true)
        },
        Discard,
        interrupt,
        fetch::Context {
            handshake: &mut conversation.handshake,
            transport: &mut conversation.transport,
            user_agent: agent(),
            trace_packetlines: false,
        },
        fetch::Options {
            shallow_file,
            shallow: &Shallow::DepthAtRemote(NonZeroU32::MIN),
            tags: Tags::None,
            reject_shallow_remote: false,
        },
    );
    if let Err(error) = outcome {
        return Err(explain(&error, &conversation.wire, [&want, &asked], pack_bytes, bounds));
    }
    match written {
        Some(pack::bundle::write::Outcome {
            data_path: Some(data),
            index_path: Some(index),
            ..
        }) => Ok(Pack { data, index }),
        _ => Err(GitError::corrupt("the server sent an empty pack")),
    }
}

/// A negotiation of a single round: it wants one commit, and has at most one.
struct Single {
    want: ObjectId,
    have: Option<ObjectId>,
}

impl fetch::Negotiate for Single {
    fn mark_complete_and_common_ref(&mut self) -> gix::Result<negotiate::Action> {
        Ok(negotiate::Action::MustNegotiate { remote_ref_target_known: Vec::new() })
    }

    fn add_wants(&mut self, arguments: &mut Arguments, _known: &[bool]) -> bool {
        arguments.want(self.want);
        true
    }

    fn one_round(
        &mut self,
        _state: &mut negotiate::one_round::State,
        arguments: &mut Arguments,
        _previous: Option<&Response>,
    ) -> gix::Result<(negotiate::Round, bool)> {
        if let Some(have) = self.have {
            arguments.have(have);
        }
        let round = negotiate::Round {
            haves_sent: usize::from(self.have.is_some()),
            in_vain: 0,
            haves_to_send: 1,
            previous_response_had_at_least_one_in_common: false,
        };
        Ok((round, true))
    }
}

/// The error of a failed fetch.
fn explain(
    error: &gix::Error,
    wire: &Wire,
    [want, asked]: [&ObjectId; 2],
    pack_bytes: u64,
    bounds: &Bounds,
) -> GitError {
    if let Some(fault) = wire.fault() {
        return fault;
    }
    if *bounds.stop.borrow() || error.is_cancelled() {
        return bounds.timed_out();
    }
    let complaint = wire.complaint();
    let text = complaint.clone().unwrap_or_else(|| all_causes(error)).to_ascii_lowercase();
    if is_refusal(&text, asked) {
        return GitError::CommitGone { commit: want.to_string() };
    }
    if let Some(text) = complaint {
        return GitError::ConnectionFailed { detail: format!("the server says: {text}") };
    }
    if let Some(io) = error.iter_errors().find_map(storage_failure) {
        return GitError::storage("write the pack", io);
    }
    let ended = |one: &(dyn std::error::Error + 'static)| {
        let io = one.downcast_ref::<std::io::Error>();
        io.is_some_and(|io| io.kind() == std::io::ErrorKind::UnexpectedEof)
    };
    if error.iter_errors().any(ended) {
        return GitError::corrupt("the server's answer ends early");
    }
    if error.is_resource_exhausted() {
        let detail = format!(
            "an object in it needs more memory than allowed (pack budget: {pack_bytes} bytes)"
        );
        return GitError::PackTooLarge { detail };
    }
    if !error.is_corrupted() && (error.is_unsupported() || error.is_validation()) {
        return GitError::NotAGitServer { detail: cause(error) };
    }
    GitError::corrupt(cause(error))
}

/// Whether the server says that it does not hand out the commit. Messages of Git: `not our ref <id>`; `git` and GitLab, GitHub:
/// `Server does not allow request for unadvertised object <id>`; `JGit` and Gerrit: `want <id> not valid`.
fn is_refusal(text: &str, want: &ObjectId) -> bool {
    let words = ["not our ref", "unadvertised object", "not valid", "not found"];
    text.contains(&want.to_string()) && words.iter().any(|words| text.contains(words))
}

fn storage_failure<'a>(error: &'a (dyn std::error::Error + 'static)) -> Option<&'a std::io::Error> {
    use std::io::ErrorKind as Kind;
    error.downcast_ref::<std::io::Error>().filter(|io| {
        matches!(
            io.kind(),
            Kind::StorageFull
                | Kind::QuotaExceeded
                | Kind::FileTooLarge
                | Kind::ReadOnlyFilesystem
                | Kind::PermissionDenied
                | Kind::NotFound
        )
    })
}

fn all_causes(error: &gix::Error) -> String {
    let texts: Vec<String> = error.iter_errors().map(ToString::to_string).collect();
    texts.join(": ")
}

/// The innermost cause of an error of gix.
pub(super) fn cause(error: &gix::Error) -> String {
    printable(&error.probable_cause().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_of_several_servers_are_recognised() {
        let want = ObjectId::from_hex("0123456789".repeat(4).as_bytes()).unwrap();
        for text in [
            "upload-pack: not our ref 0123456789012345678901234567890123456789",
            "server does not allow request for unadvertised object 0123456789012345678901234567890123456789",
            "want 0123456789012345678901234567890123456789 not valid",
        ] {
            assert!(is_refusal(text, &want), "{text}");
        }
        assert!(!is_refusal("the pack is not valid", &want));
    }
}
