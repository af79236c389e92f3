//! (pure) Checks URLs, refs, paths and names in trees, before any connection is made and anything is read.
#![deny(clippy::disallowed_types, clippy::disallowed_methods)]

use reqwest::Url;
use semver::{Version, VersionReq};

use super::GitError;
use super::error::printable;
use super::ssh;
use crate::api::git_sync::GitRef;
use crate::net::Endpoint;
use convoke_core::text::is_invisible;

/// Characters of the longest URL.
const MAX_URL: usize = 2048;
/// Who logs in over ssh if the URL does not say it: what all forges take.
const DEFAULT_SSH_USER: &str = "git";
/// Characters of the longest name of a ref.
const MAX_REF: usize = 255;
/// Characters of the longest path.
const MAX_PATH: usize = 1024;

/// The ref to follow, checked.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Target {
    Branch(String),
    Tag(String),
    /// The tag with the highest version in a range, and the range as it was written.
    Versions(VersionReq, String),
    Commit(gix::ObjectId),
    /// A full name.
    Ref(String),
}

/// The schemes that repository URLs may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Schemes {
    /// `https://` and `ssh://`.
    HttpsOnly,
    /// `http://`, too.
    HttpToo,
}

/// A checked URL of a repository.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Location {
    /// `https://…` or `http://…`.
    Http(Url),
    /// `ssh://…`.
    Ssh(SshUrl),
}

/// A repository on an ssh server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SshUrl {
    pub user: String,
    pub server: Endpoint,
    /// As the server's shell gets it between single quotes: it has none, and no control characters.
    pub path: String,
}

/// Parses and checks a repository URL. Whether its host may be dialled is checked by [`net`](crate::net). No error repeats the
/// URL, because it may hold a password.
pub(super) fn url(text: &str, schemes: Schemes) -> Result<Location, GitError> {
    let refuse = |reason: &str| Err(GitError::InvalidUrl { reason: reason.to_owned() });
    if text.is_empty() || text.len() > MAX_URL {
        return refuse("it is empty or longer than 2048 characters");
    }
    if text.starts_with('-') {
        return refuse("it starts with a dash");
    }
    if !text.chars().all(|c| c.is_ascii_graphic()) {
        return refuse("it holds a space, a control character or a character outside of ASCII");
    }
    if has_encoded_control(text) {
        return refuse("it holds an encoded control character");
    }
    let Some((scheme, rest)) = text.split_once("://") else {
        return refuse(if text.contains("::") {
            "remote helpers (ext::, fd::, …) are not supported"
        } else if text.starts_with(['/', '.']) || text.as_bytes().get(1) == Some(&b':') {
            "local paths are not supported"
        } else if text.contains(':') {
            "the scp form (user@host:path) is not supported; write ssh://user@host/path"
        } else {
            "it has no scheme"
        });
    };
    match scheme {
        "https" => {}
        "http" if schemes == Schemes::HttpToo => {}
        "http" => return Err(GitError::InsecureConnection { what: "plain http".into() }),
        "ssh" => {}
        _ => return refuse("only https and ssh are supported"),
    }
    if rest.contains('\\') {
        return refuse("it holds a backslash");
    }
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    if authority.is_empty() {
        return refuse("it has no host");
    }
    let (user, host) = authority.split_once('@').unwrap_or(("", authority));
    if scheme == "ssh" && user.contains(':') {
        return refuse("it holds a password");
    }
    if scheme != "ssh" && authority.contains('@') {
        return refuse("it holds a user name or password");
    }
    if host.starts_with('-') {
        return refuse("its host starts with a dash");
    }
    if rest.contains(['?', '#']) {
        return refuse("it holds a query or fragment");
    }
    let Ok(url) = Url::parse(text) else { return refuse("it cannot be parsed") };
    if url.host_str().is_none_or(str::is_empty) {
        return refuse("it has no host");
    }
    if matches!(url.path(), "" | "/") {
        return refuse("it names no repository");
    }
    if scheme == "ssh" {
        return ssh_url(&url).map(Location::Ssh);
    }
    // Not what the parser lets through besides, such as a comma.
    if !url.host_str().is_some_and(is_host) {
        return refuse("its host is none");
    }
    Ok(Location::Http(url))
}

/// Checks the parts of a URL that begins with `ssh://`.
fn ssh_url(url: &Url) -> Result<SshUrl, GitError> {
    let refuse = |reason: &str| Err(GitError::InvalidUrl { reason: reason.to_owned() });
    let user = if url.username().is_empty() { DEFAULT_SSH_USER } else { url.username() };
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-._".contains(c);
    if !user.chars().all(is_plain) || user.starts_with(['-', '.']) {
        return refuse("its user has other characters than letters, digits and - . _");
    }
    let Some(host) = ssh_host(url) else { return refuse("its host is none") };
    let Some(path) = decoded(url.path()) else {
        return refuse("its path has characters that are not allowed over ssh");
    };
    // As Git does: a path in the home folder of a user.
    let path = if path.starts_with("/~") { path[1..].to_owned() } else { path };
    let server = Endpoint::new(&host, url.port().unwrap_or(ssh::PORT));
    Ok(SshUrl { user: user.to_owned(), server, path })
}

/// The host of an ssh URL as one of https would have it: in lower case, and an address in its usual form. Hosts of other schemes are not
/// normalized, and an address can be written in many ways.
pub(super) fn ssh_host(url: &Url) -> Option<String> {
    let alike = Url::parse(&format!("https://{}/", url.host_str()?)).ok()?;
    alike.host_str().filter(|host| is_host(host)).map(str::to_owned)
}

/// Whether a text can be the name or the address of a host. A name may end with one dot.
fn is_host(host: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-._:[]".contains(c);
    host.chars().all(is_plain) && !host.starts_with(['.', '-']) && !host.contains("..")
}

/// A path without its percent signs. `None` when a shell or a terminal could misread it.
fn decoded(path: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(path.len());
    let mut rest = path.as_bytes();
    while let [first, after @ ..] = rest {
        rest = after;
        if *first == b'%' {
            let (hex, after) = rest.split_at_checked(2)?;
            bytes.push(u8::from_str_radix(std::str::from_utf8(hex).ok()?, 16).ok()?);
            rest = after;
        } else {
            bytes.push(*first);
        }
    }
    let text = String::from_utf8(bytes).ok()?;
    let is_odd = |c: char| c.is_control() || is_invisible(c) || "'\"\\!`$".contains(c);
    (!text.contains(is_odd)).then_some(text)
}

fn has_encoded_control(text: &str) -> bool {
    let bytes = text.as_bytes();
    bytes.windows(3).any(|window| {
        window[0] == b'%'
            && std::str::from_utf8(&window[1..])
                .ok()
                .and_then(|hex| u8::from_str_radix(hex, 16).ok())
                .is_some_and(|byte| byte < 0x20 || byte == 0x7f)
    })
}

/// The ref of a spec, which names at most one of them. None means branch `main`.
pub(super) fn target(reference: &GitRef) -> Result<Target, GitError> {
    let GitRef { branch, tag, semver, commit, name } = reference;
    let branch = branch.iter().map(|name| ref_name(name).map(|()| Target::Branch(name.clone())));
    let tag = tag.iter().map(|name| ref_name(name).map(|()| Target::Tag(name.clone())));
    let semver = semver.iter().map(|range| versions(range));
    let commit = commit.iter().map(|id| commit_id(id).map(Target::Commit));
    let name = name.iter().map(|name| full_name(name).map(|()| Target::Ref(name.clone())));
    let mut all = branch.chain(tag).chain(semver).chain(commit).chain(name);
    match (all.next(), all.next()) {
        (None, _) => Ok(Target::Branch("main".into())),
        (Some(one), None) => one,
        (Some(_), Some(_)) => Err(GitError::InvalidRef {
            name: String::new(),
            reason: "exactly one of branch, tag, semver, commit and name may be set".into(),
        }),
    }
}

/// Parses a range of versions.
fn versions(range: &str) -> Result<Target, GitError> {
    let refuse = |reason: String| GitError::InvalidRef { name: printable(range), reason };
    let listed = with_commas(range);
    // Some tools read a plain 1.2 as 1.2.x, others as anything below 2.
    let is_plain = |one: &str| {
        let one = one.trim();
        one.starts_with(|c: char| c.is_ascii_digit()) && !one.contains(['x', 'X', '*'])
    };
    if listed.split(',').any(is_plain) {
        return Err(refuse("a version needs an operator: = ~ ^ > >= < or <=".into()));
    }
    let parsed = VersionReq::parse(&listed).map_err(|error| {
        refuse(format!("it is no range of versions: {}", printable(&error.to_string())))
    })?;
    Ok(Target::Versions(parsed, range.to_owned()))
}

/// A range with commas between its parts: many tools take spaces.
fn with_commas(range: &str) -> String {
    let mut made = String::new();
    for word in range.split_whitespace() {
        let begins = word.starts_with(['=', '<', '>', '^', '~']);
        if begins && made.ends_with(|c: char| c.is_ascii_alphanumeric() || c == '*') {
            made.push(',');
        }
        made.push_str(word);
    }
    made
}

/// Checks the full name of a ref.
fn full_name(name: &str) -> Result<(), GitError> {
    let Some(rest) = name.strip_prefix("refs/") else {
        let reason = "it is no full name, such as refs/heads/main".into();
        return Err(GitError::InvalidRef { name: printable(name), reason });
    };
    ref_name(rest).map_err(|error| match error {
        GitError::InvalidRef { reason, .. } => {
            GitError::InvalidRef { name: printable(name), reason }
        }
        other => other,
    })
}

/// The version that the name of a tag is, with or without a `v` before it.
pub(super) fn version(tag: &str) -> Option<Version> {
    Version::parse(tag.strip_prefix('v').unwrap_or(tag)).ok()
}

/// The name among these with the highest version in the range. Of two with the same version it is the first one by name.
pub(super) fn highest<'a>(
    range: &VersionReq,
    tags: impl Iterator<Item = &'a str>,
) -> Option<&'a str> {
    let versions = tags.filter_map(|tag| Some((version(tag)?, tag)));
    let within = versions.filter(|(version, _)| range.matches(version));
    within
        .max_by(|(a, x), (b, y)| a.cmp_precedence(b).then(a.cmp(b)).then(y.cmp(x)))
        .map(|(_, tag)| tag)
}

/// Parses a full commit id: 40 or 64 lower-case hex digits.
pub(super) fn commit_id(id: &str) -> Result<gix::ObjectId, GitError> {
    let lower_hex = id.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
    if !lower_hex || !matches!(id.len(), 40 | 64) {
        return Err(GitError::InvalidRef {
            name: printable(id),
            reason: "a commit id has 40 or 64 lower-case hex digits".into(),
        });
    }
    gix::ObjectId::from_hex(id.as_bytes()).map_err(|_| GitError::InvalidRef {
        name: id.to_owned(),
        reason: "it is no commit id".into(),
    })
}

/// Checks the name of a ref. It is stricter than `git check-ref-format`: only characters that no shell, URL or log line can
/// misread.
pub(super) fn ref_name(name: &str) -> Result<(), GitError> {
    let reason = if name.is_empty() || name.len() > MAX_REF {
        "it is empty or longer than 255 characters"
    } else if !name.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_') {
        "it must start with a letter, a digit or an underscore"
    } else if !name.chars().all(|c| c.is_ascii_alphanumeric() || "-._/+#".contains(c)) {
        "only letters, digits and - . _ / + # are allowed"
    } else if name.starts_with("refs/") {
        "it is a full ref name; leave out refs/heads/ or refs/tags/"
    } else if name.contains("..") || name.ends_with('.') {
        "it holds .. or ends with a dot"
    } else if name.split('/').any(|part| {
        part.is_empty() || part.starts_with('.') || part.to_ascii_lowercase().ends_with(".lock")
    }) {
        "a part of it is empty, starts with a dot or ends with .lock"
    } else {
        return Ok(());
    };
    Err(GitError::InvalidRef { name: printable(name), reason: reason.into() })
}

/// Checks a path inside the repository, and normalizes it: `./prod/` becomes `prod`, and `.` becomes the empty string.
///
/// # Errors
/// [`GitError::InvalidPath`] for absolute paths, `..`, `.git` in every spelling, backslashes and control characters.
pub fn path(path: &str) -> Result<String, GitError> {
    let refuse = |reason: &str| {
        Err(GitError::InvalidPath { path: printable(path), reason: reason.to_owned() })
    };
    if path.len() > MAX_PATH {
        return refuse("it is longer than 1024 characters");
    }
    if path.starts_with('/') {
        return refuse("it is absolute");
    }
    let mut parts = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            _ => match name_problem(part.as_bytes()) {
                Some(problem) => return refuse(problem),
                None => parts.push(part),
            },
        }
    }
    Ok(parts.join("/"))
}

/// What is wrong with the name of a tree entry, if anything. Git writes no such names. They are attacks on programs that check
/// out trees, on terminals, and on people.
pub(super) fn name_problem(name: &[u8]) -> Option<&'static str> {
    // Most names are plain, and need no further check.
    let plain = |byte: &u8| matches!(byte, b' '..=b'~') && !matches!(byte, b'/' | b'\\');
    if name.first().is_some_and(|first| !matches!(first, b'.' | b'g' | b'G'))
        && name.iter().all(plain)
    {
        return None;
    }
    let Ok(text) = std::str::from_utf8(name) else { return Some("a name is not UTF-8") };
    if text.is_empty() || text == "." || text == ".." {
        return Some("a name is empty, . or ..");
    }
    if text.contains(['/', '\\']) {
        return Some("a name holds a slash or backslash");
    }
    if text.chars().any(|c| c.is_control() || is_invisible(c)) {
        return Some("a name holds control or invisible characters");
    }
    // NTFS ignores trailing dots and spaces, and has short names.
    let plain = text.trim_end_matches(['.', ' ']).to_ascii_lowercase();
    if plain == ".git" || plain == "git~1" || plain.starts_with(".git:") {
        return Some("a name is .git");
    }
    None
}

#[cfg(test)]
#[path = "tests/check.rs"]
mod tests;
