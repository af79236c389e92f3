//! The two requests to a Git server: which commits refs are (`ls-refs`), and the objects of that commit (`fetch`).
//!
//! A fetch asks for exactly the commit that was resolved before, at depth 1. So a ref that moves in between cannot mix two
//! states, and no refs are listed a second time. The protocol is version 2. A server that knows only version 0 or 1 lists its
//! refs unasked.

use std::collections::BTreeSet;
use std::num::NonZeroU32;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use gix::ObjectId;
use gix::progress::Discard;
use gix::protocol::fetch::{self, Arguments, Response, Shallow, Tags, negotiate};
use gix::protocol::handshake::Ref;
use gix::protocol::ls_refs::RefPrefixes;
use gix::protocol::transport::client::blocking_io::{Transport, http};
use gix::protocol::transport::{Protocol, Service};
use gix::protocol::{Handshake, LsRefsCommand};

use super::check::Target;
use super::error::printable;
use super::http::Session;
use super::pack::{self, Bases, Indexing};
use super::refs::{self, Answers, Refs};
use super::ssh;
use super::wire::{Bounds, Wire};
use super::{GitError, Limits};

/// Bytes of the largest listing of refs. A ref takes about 100 bytes.
pub(super) const MAX_LISTING_BYTES: u64 = 16 * 1024 * 1024;

/// How long the answers for others may take that a list of all refs gives. Each compares names.
const MAX_TIME_FOR_OTHERS: Duration = Duration::from_secs(1);

fn agent() -> (&'static str, Option<String>) {
    ("agent", Some(concat!("git/convoke-", env!("CARGO_PKG_VERSION")).to_owned()))
}

/// Reads an answer. gix panics at some that no honest server gives. Nothing on disk is read here, so the store is as good as before.
fn guarded<T>(read: impl FnOnce() -> T) -> Result<T, GitError> {
    catch_unwind(AssertUnwindSafe(read))
        .map_err(|_| GitError::NotAGitServer { detail: "its answer makes no sense".into() })
}

/// What a look asks for.
pub(super) struct Asked<'a> {
    /// What whoever looks follows.
    pub target: &'a Target,
    /// What others follow.
    pub others: &'a [Target],
    /// What others follow that did not exist when they were told of it last.
    pub absent: &'a [Target],
}

/// The way to a server.
pub(super) enum Link {
    /// The URL, and how it is asked.
    Http(String, Box<Session>),
    Ssh(ssh::Server),
}

/// An open conversation with a server, after the handshake.
pub(super) struct Conversation {
    transport: Box<dyn Transport>,
    wire: Wire,
    handshake: Handshake,
}

impl Conversation {
    fn open(link: Link, wire: Wire) -> Result<Self, GitError> {
        let transport: Box<dyn Transport> = match link {
            Link::Http(url, session) => {
                let parsed = gix::url::parse(url.as_str())
                    .map_err(|_| GitError::InvalidUrl { reason: "it cannot be parsed".into() })?;
                Box::new(http::Transport::new_http(*session, parsed, Protocol::V2, false))
            }
            Link::Ssh(server) => server.open(wire.clone())?,
        };
        Self::over(transport, wire)
    }

    /// The same over an open connection.
    pub(super) fn over(mut transport: Box<dyn Transport>, wire: Wire) -> Result<Self, GitError> {
        let handshake = guarded(|| {
            gix::protocol::handshake(
                &mut transport,
                Service::UploadPack,
                |_| Ok(None),
                Vec::new(),
                &mut Discard,
            )
        })?
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

    /// Refs whose names start with one of the prefixes.
    fn list(&mut self, wanted: &BTreeSet<String>) -> Result<Vec<Ref>, GitError> {
        if let Some(refs) = &self.handshake.refs {
            let is_wanted = |one: &&Ref| {
                wanted.iter().any(|prefix| one.unpack().0.starts_with(prefix.as_bytes()))
            };
            return Ok(refs.iter().filter(is_wanted).cloned().collect());
        }
        let mut prefixes = RefPrefixes::new();
        prefixes.extend(wanted.iter().map(|prefix| prefix.as_str().into()));
        let command = LsRefsCommand::new(Some(prefixes), &self.handshake.capabilities, agent());
        guarded(|| command.invoke_blocking(&mut self.transport, &mut Discard, false))?.map_err(
            |error| {
                self.wire
                    .fault()
                    .unwrap_or_else(|| GitError::NotAGitServer { detail: cause(&error) })
            },
        )
    }
}

/// Asks what the target is, and what the others are. An annotated tag leads to its commit. Refs that exist cost one `ls-refs`, all together.
/// If the target does not exist, all refs are listed for the hint. Then the others that do not exist are answered, too. Otherwise
/// nothing is answered of them: whoever follows them pays for that list, which may be long.
pub(super) fn look(link: Link, wire: Wire, asked: &Asked<'_>) -> Result<Answers, GitError> {
    look_in(Conversation::open(link, wire)?, asked)
}

/// The same in an open conversation.
pub(super) fn look_in(
    mut conversation: Conversation,
    asked: &Asked<'_>,
) -> Result<Answers, GitError> {
    let Asked { target, others, absent } = *asked;
    let prefixes = others.iter().chain([target]).map(refs::prefix).collect();
    let found = refs::by_name(&conversation.list(&prefixes)?);
    let known = |one: &Target| Some((one.clone(), Ok(refs::listed(one, &found)?)));
    let mut answers: Answers = others.iter().chain([target]).filter_map(known).collect();
    if answers.contains_key(target) {
        return Ok(answers);
    }
    // A failure of this list is not reported.
    let all = conversation.list(&BTreeSet::from(["refs/".into()])).ok();
    let all = all.map(|all| refs::by_name(&all));
    // Others may read a long list now.
    drop(conversation);
    let answer = |one: &Target, all: Option<&Refs>| {
        let listed = all.and_then(|all| refs::listed(one, all));
        listed.ok_or_else(|| refs::missing(one, all))
    };
    answers.insert(target.clone(), answer(target, all.as_ref()));
    let until = Instant::now() + MAX_TIME_FOR_OTHERS;
    for one in others.iter().chain(absent).take_while(|_| Instant::now() < until) {
        if let (Some(all), false) = (&all, answers.contains_key(one)) {
            answers.insert(one.clone(), answer(one, Some(all)));
        }
    }
    Ok(answers)
}

/// What is fetched, on top of what, and within which limits.
pub(super) struct Fetch<'a> {
    /// The commit to fetch.
    pub want: ObjectId,
    /// The annotated tag of it to fetch, too. Its commit comes with it.
    pub tag: Option<ObjectId>,
    /// A commit whose tree is complete in a store, and that store. The server leaves out objects that the commit has, too.
    pub onto: Option<(ObjectId, &'a dyn Bases)>,
    /// An existing, empty folder.
    pub staging: &'a Path,
    pub limits: Limits,
    pub bounds: &'a Bounds,
    pub interrupt: &'a AtomicBool,
}

/// Fetches one commit with its tree and no history: one pack and its index, in `staging`.
pub(super) fn fetch(link: Link, wire: Wire, order: Fetch<'_>) -> Result<(), GitError> {
    fetch_in(Conversation::open(link, wire)?, order)
}

/// The same in an open conversation.
pub(super) fn fetch_in(mut conversation: Conversation, order: Fetch<'_>) -> Result<(), GitError> {
    let Fetch { want, tag, onto, staging, limits, bounds, interrupt } = order;
    let have = onto.map(|(have, _)| have);
    let shallow_file = staging.join("shallow");
    if let Some(have) = have {
        std::fs::write(&shallow_file, format!("{have}\n"))
            .map_err(|error| GitError::storage("write the shallow boundary", &error))?;
    }
    let mut received = false;
    let asked = tag.unwrap_or_else(|| conversation.listed(want));
    let outcome = gix::protocol::fetch(
        &mut Single { want: asked, have },
        |reader, _, interrupt| {
            pack::receive(reader, staging, interrupt).map_err(gix::Error::from_error)?;
            received = true;
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
        return Err(explain(&error, &conversation.wire, [&want, &asked], bounds));
    }
    // The server is not needed any more.
    drop(conversation);
    if !received {
        return Err(GitError::corrupt("the server sent no pack"));
    }
    let base = onto.map(|(_, base)| base);
    let (folder, kind, stop) = (staging, want.kind(), interrupt);
    pack::index(&Indexing { folder, kind, base, limits, bounds, stop })
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
    if let Some(error) = of_io(error) {
        return error;
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

/// The error, if the disk or the end of the answer is the cause.
pub(super) fn of_io(error: &gix::Error) -> Option<GitError> {
    if let Some(io) = error.iter_errors().find_map(storage_failure) {
        return Some(GitError::storage("write the pack", io));
    }
    let is_end = |one: &(dyn std::error::Error + 'static)| {
        let io = one.downcast_ref::<std::io::Error>();
        io.is_some_and(|io| io.kind() == std::io::ErrorKind::UnexpectedEof)
    };
    let ends = error.iter_errors().any(is_end);
    ends.then(|| GitError::corrupt("the server's answer ends early"))
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
