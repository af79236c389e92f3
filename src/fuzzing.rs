//! What a fuzzer calls: each function takes any bytes, and panics if a rule does not hold. `tests/local/fuzz.rs` and `fuzz/` use them.

use std::collections::BTreeMap;
use std::sync::Arc;

use http::{HeaderMap, HeaderName, HeaderValue};
use sha2::{Digest, Sha256};

use crate::api::git_sync::GitRef;
use crate::controllers::agent_build::key::BuildKey;
use crate::controllers::agent_build::proof::{self, About, ProofKey};
use crate::controllers::inputs::digest::MacKey;
use crate::definition::tree::{EntryKind, RepositoryTree, TreeEntry, TreeError, TreeProblem};
use crate::definition::{Context, Limits, Loader};
use crate::git::fuzzing as git;
use crate::git::{Credentials, Keys, are_for, origin};
use crate::http::webhook::delivery::{Follows, Provider, Token, Told, id, is_genuine, read};
use crate::registry::{Image, auth, manifest};

/// The text before the first NUL byte, and what comes after it.
fn two(data: &[u8]) -> Option<(&str, &[u8])> {
    let at = data.iter().position(|byte| *byte == 0)?;
    Some((std::str::from_utf8(&data[..at]).ok()?, &data[at + 1..]))
}

/// URLs of repositories: what is accepted holds nothing that a URL, a shell or a log line could misread, and is dialled where its origin
/// says.
pub fn url(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let Some((server, path)) = git::url(text) else { return };
    assert!(text.is_ascii() && !text.starts_with('-') && text.len() <= 2048, "{text:?}");
    assert!(!server.host.is_empty() && !server.host.starts_with('-'), "{text:?}");
    assert!(!path.contains(['\n', '\r', '\0', '\u{1b}']), "{text:?}: {path:?}");
    assert!(!text.starts_with("ssh://") || !path.contains('\''), "{text:?}: {path:?}");
    let origin = origin(text).unwrap_or_default();
    assert!(origin.contains(&server.host) || server.host.contains(':'), "{text:?}: {origin}");
    assert!(are_for(&origin, text), "{text:?}: {origin}");
    assert!(!are_for("https://other.example", text) || server.host == "other.example", "{text:?}");
}

/// Annotations with origins: they allow only what they name whole.
pub fn origins(data: &[u8]) {
    let Some((url, annotation)) = two(data) else { return };
    let Ok(annotation) = std::str::from_utf8(annotation) else { return };
    if !are_for(annotation, url) {
        return;
    }
    let wanted = origin(url);
    assert!(wanted.is_some(), "{url:?}");
    let mut named = annotation.split([',', ' ', '\n']);
    assert!(named.any(|one| origin(one) == wanted), "{annotation:?} for {url:?}");
}

/// Names of refs, ranges of versions and ids of commits.
pub fn reference(data: &[u8]) {
    let Some((kind, name)) = data.split_first() else { return };
    let Ok(name) = std::str::from_utf8(name) else { return };
    let field = Some(name.to_owned());
    let reference = match kind % 5 {
        0 => GitRef { branch: field, ..GitRef::default() },
        1 => GitRef { tag: field, ..GitRef::default() },
        2 => GitRef { semver: field, ..GitRef::default() },
        3 => GitRef { name: field, ..GitRef::default() },
        _ => GitRef { commit: field, ..GitRef::default() },
    };
    let accepted = git::reference(&reference);
    if accepted && kind % 5 != 2 {
        assert!(name.len() <= 260 && !name.contains("..") && !name.starts_with(['-', '.', '/']));
        assert!(name.chars().all(|c| c.is_ascii_graphic() && !"~^:?*[\\".contains(c)), "{name:?}");
    }
    let follows = Follows::of(Some(&reference));
    let _ = follows.is_elsewhere(name);
}

/// Paths of a spec, and names in trees.
pub fn path(data: &[u8]) {
    let is_good = git::is_plain_name(data);
    let Ok(text) = std::str::from_utf8(data) else {
        assert!(!is_good, "{data:?}");
        return;
    };
    if is_good {
        assert!(!matches!(text, "" | "." | "..") && !text.contains(['/', '\\', '\0', '\n']));
        assert!(!text.eq_ignore_ascii_case(".git"), "{text:?}");
    }
    let Ok(normal) = crate::git::check_path(text) else { return };
    assert!(!normal.starts_with('/') && !normal.split('/').any(|part| part == ".."), "{text:?}");
    assert_eq!(crate::git::check_path(&normal).as_deref(), Ok(normal.as_str()), "{text:?}");
}

/// Values of Secrets: lines of `KEY=VALUE`, where a NUL byte stands for a line break.
pub fn credentials(data: &[u8]) {
    let mut values = BTreeMap::new();
    for line in data.split(|byte| *byte == b'\n') {
        let Some(at) = line.iter().position(|byte| *byte == b'=') else { continue };
        let Ok(key) = std::str::from_utf8(&line[..at]) else { continue };
        let value: Vec<u8> =
            line[at + 1..].iter().map(|byte| if *byte == 0 { b'\n' } else { *byte }).collect();
        values.insert(key.to_owned(), value);
    }
    // A passphrase costs time, as it should.
    values.remove("password");
    for url in ["https://git.example.com/a", "ssh://git@git.example.com/a"] {
        let shown = match Credentials::of(&values, url) {
            Ok(credentials) => {
                git::check_host_key(&credentials, "git.example.com");
                format!("{credentials:?}")
            }
            Err(error) => format!("{error:?} {error}"),
        };
        let is_told = |value: &Vec<u8>| {
            let text = std::str::from_utf8(value).unwrap_or_default();
            text.len() > 24 && shown.contains(text)
        };
        assert!(!values.values().any(is_told), "{shown}");
    }
    let _ = Credentials::proxy_of(&values);
}

/// A delivery: a byte for the provider, headers as lines, an empty line, and the body.
pub fn webhook(data: &[u8]) {
    let Some((kind, rest)) = data.split_first() else { return };
    let provider = match kind % 4 {
        0 => Provider::GitHub,
        1 => Provider::GitLab,
        2 => Provider::Gitea,
        _ => Provider::GenericHMAC,
    };
    let at = rest.windows(2).position(|two| two == b"\n\n").unwrap_or(rest.len());
    let mut headers = HeaderMap::new();
    for line in rest[..at].split(|byte| *byte == b'\n') {
        let mut parts = line.splitn(2, |byte| *byte == b':');
        let name = parts.next().and_then(|name| HeaderName::from_bytes(name).ok());
        let value = parts.next().and_then(|value| HeaderValue::from_bytes(value).ok());
        if let (Some(name), Some(value)) = (name, value) {
            headers.append(name, value);
        }
    }
    let body = rest.get(at + 2..).unwrap_or_default();
    let Ok(token) = Token::new(b"a token that nobody guesses: 5f0c8c1e") else { return };
    assert!(!is_genuine(Some((provider, &token)), &headers, body), "a forged delivery");
    assert!(!is_genuine(None, &headers, body), "a delivery for nobody");
    assert!(id(provider, &headers).is_none_or(|id| !id.is_empty() && id.len() <= 256));
    if let Ok(Told::Pushed(reference)) = read(provider, &headers, body) {
        assert!(body.len() >= reference.len() / 6, "made of nothing");
    }
}

/// A tree with one file.
struct One {
    entries: [TreeEntry; 1],
    content: Arc<[u8]>,
}

impl RepositoryTree for One {
    fn entries(&self) -> &[TreeEntry] {
        &self.entries
    }
    fn problems(&self) -> &[TreeProblem] {
        &[]
    }
    fn lookup(&self, path: &str) -> Result<Option<TreeEntry>, TreeError> {
        Ok(self.entries.iter().find(|entry| entry.path == path).cloned())
    }
    fn read(&self, entry: &TreeEntry, max_bytes: u64) -> Result<Arc<[u8]>, TreeError> {
        if self.content.len() as u64 > max_bytes {
            return Err(TreeError::TooLarge { path: entry.path.clone(), limit: max_bytes });
        }
        Ok(Arc::clone(&self.content))
    }
}

/// A file of a repository: all that is found has a place in it, and the same file says the same again.
pub fn definition(data: &[u8]) {
    let Some((kind, content)) = data.split_first() else { return };
    let name = ["a.yaml", "a.json", "x/agent.md"][usize::from(kind % 3)];
    let entry = TreeEntry { path: name.into(), id: "1".into(), kind: EntryKind::File };
    let tree = One { entries: [entry], content: content.into() };
    let context = Context { namespace: Some("team".into()), ..Context::default() };
    let limits = Limits::default();
    let mut loader = Loader::new(limits);
    let found = loader.load(&tree, &context);
    let lines = i64::try_from(content.split(|byte| matches!(byte, b'\n' | b'\r')).count());
    let lines = lines.unwrap_or(i64::MAX);
    for problem in &found.problems {
        assert!(problem.code.starts_with("CVK"), "{problem:?}");
        assert!(problem.line.is_none_or(|line| (1..=lines + 1).contains(&line)), "{problem:?}");
        assert!(!problem.message.chars().any(|c| c.is_control() && c != '\n'), "{problem:?}");
    }
    let again = Loader::new(Limits::default()).load(&tree, &context);
    assert_eq!(again.problems, found.problems);
    assert_eq!(again.definitions.len(), found.definitions.len());
}

/// Keys whose private halves nobody has any more, and what they have signed: the digests of two commits and two tags without their
/// signatures.
const TEAM: [(&str, &str); 2] = [
    ("team.asc", include_str!("fuzzing/team.asc")),
    ("team.sshpub", include_str!("fuzzing/team.sshpub")),
];
const SIGNED: [&str; 4] = [
    "8d3f600d35e327d669bdaaecf749d82322e7709cd857507d69353c4c90ed03e4",
    "792947919ebe8c52272ab7567c016a0824affcfcd01daf3a27256d2bd633f98c",
    "1a39327ccd1257f7bfeba4946f3203bc1e48d1d0ff91cef45a047edfbb25b878",
    "d00d62b464abb0ca9a60d4ece0848c3e07d3201ce86c70a395f461ccd793c8dd",
];
/// A day after they were signed.
const NOW: u64 = 1_795_900_000;
/// The commit of the tags.
const TAGGED: &str = "1daa61bd3d66f8b372b2c2af7fb7170456bd433f";

/// An object without its signature, as Git's documentation says.
fn unsigned(object: &[u8], is_tag: bool) -> Vec<u8> {
    let (mut out, mut in_body, mut skipping) = (Vec::new(), false, false);
    for line in object.split_inclusive(|byte| *byte == b'\n') {
        let begins = line.starts_with(b"-----BEGIN PGP SIGNATURE-----")
            || line.starts_with(b"-----BEGIN SSH SIGNATURE-----");
        if is_tag && begins {
            break;
        }
        if !in_body {
            skipping = line.starts_with(b"gpgsig") || (skipping && line.starts_with(b" "));
            in_body = line == b"\n";
        }
        if in_body || !skipping {
            out.extend_from_slice(line);
        }
    }
    out
}

/// A byte that says what it is, and a commit or a tag: only what was signed counts as signed.
pub fn signature(data: &[u8]) {
    let Some((kind, object)) = data.split_first() else { return };
    let data = TEAM.map(|(name, key)| (name.to_owned(), key.as_bytes().to_vec()));
    // With none, nothing is signed, which the test of the seeds finds.
    let keys = Keys::of(&data.into()).unwrap_or_default();
    let tag = match kind % 3 {
        2 => Some(if object.windows(8).any(|part| part == b"\ntag v2\n") {
            ("v2", TAGGED)
        } else {
            ("v1.0.0", TAGGED)
        }),
        _ => None,
    };
    if git::is_signed(object, tag, &keys, (kind % 3 == 1, NOW)) {
        let payload = unsigned(object, tag.is_some());
        let digest = Sha256::digest(&payload);
        let digest = convoke_core::text::hex(&digest);
        assert!(SIGNED.contains(&digest.as_str()), "forged: {payload:?}");
    }
}

/// Whether the fuzzer's own objects are signed at all; otherwise nothing would be found.
#[must_use]
pub fn is_signed(data: &[u8]) -> bool {
    let Some((kind, object)) = data.split_first() else { return false };
    let data = TEAM.map(|(name, key)| (name.to_owned(), key.as_bytes().to_vec()));
    let Ok(keys) = Keys::of(&data.into()) else { return false };
    let tags = [("v1.0.0", TAGGED), ("v2", TAGGED)];
    match kind % 3 {
        2 => tags.into_iter().any(|tag| git::is_signed(object, Some(tag), &keys, (false, NOW))),
        other => git::is_signed(object, None, &keys, (other == 1, NOW)),
    }
}

/// A byte that says which, and a value of the Secret with keys.
pub fn keys(data: &[u8]) {
    let Some((kind, value)) = data.split_first() else { return };
    let name = if kind % 2 == 0 { "a.asc" } else { "a.sshpub" };
    let values = BTreeMap::from([(name.to_owned(), value.to_vec())]);
    match Keys::of(&values) {
        Ok(keys) => assert_ne!(format!("{keys:?}"), "Keys(0)"),
        Err(error) => assert!(!error.problem.chars().any(char::is_control), "{error:?}"),
    }
}

/// A tree object.
pub fn tree(data: &[u8]) {
    let Some((kind, bytes)) = data.split_first() else { return };
    git::tree(bytes, kind % 2 == 1);
}

/// A byte that says which, and what of a registry or an image comes from outside: a manifest, an index, docker's `config.json`,
/// `WWW-Authenticate`, or the proof of a build.
pub fn registry(data: &[u8]) {
    let Some((kind, data)) = data.split_first() else { return };
    let is_shown = |why: &str| assert!(!why.chars().any(char::is_control), "{why:?}");
    let is_good = |found: &manifest::Descriptor, most: u64| {
        let digits = found.digest.hex();
        assert!(digits.len() == 64 && !digits.contains(['/', '.']), "{digits:?}");
        assert!(found.size <= most, "{}", found.size);
    };
    match kind % 5 {
        4 => {
            let key = BuildKey::parse(&"0".repeat(64));
            let image = "r.example/team/a".parse::<Image>();
            let (Some(key), Ok(image)) = (key, image) else { return };
            let about = About { namespace: "team", name: "a", key: &key, image: &image };
            let operator = ProofKey::of(&MacKey::new(&[7; 32]));
            if let Ok((digest, _)) = proof::parse(data) {
                assert!(digest.hex().len() == 64 && !digest.hex().contains(['/', '.']));
            }
            // Of one digest there is a genuine proof among the seeds.
            if let Ok(digest) = operator.digest(about, data) {
                assert_eq!(digest.hex(), "1".repeat(64), "a forged proof");
            }
        }
        0 => match manifest::manifest(data) {
            Ok(found) => {
                is_good(&found.config, manifest::MAX_CONFIG);
                assert!(found.layers.len() <= manifest::MAX_LAYERS);
                found.layers.iter().for_each(|layer| is_good(layer, u64::MAX));
            }
            Err(why) => is_shown(&why),
        },
        1 => match manifest::index(data) {
            Ok(found) => is_good(&found, manifest::MAX_MANIFEST),
            Err(why) => is_shown(&why),
        },
        2 => {
            let Ok(image) = "r.example/team/a".parse::<Image>() else { return };
            match auth::login(data, &image) {
                Ok(login) => assert_eq!(format!("{login:?}"), "Login(not shown)"),
                Err(why) => is_shown(&why),
            }
        }
        _ => {
            let Ok(text) = std::str::from_utf8(data) else { return };
            let Some(auth::Challenge::Bearer { realm, .. }) = auth::challenge(text.lines()) else {
                return;
            };
            for (at, plain) in [("https://r.example/v2/", false), ("http://r.example/v2/", true)] {
                let Ok(at) = at.parse() else { return };
                match auth::token_service(&at, &realm) {
                    Ok(url) => {
                        let is_here = url.host_str() == Some("r.example");
                        assert!(url.scheme() == "https" || (plain && is_here), "{url}");
                    }
                    Err(why) => is_shown(&why),
                }
            }
        }
    }
}

thread_local! {
    /// What code that waits for the network needs.
    static RUNTIME: Option<tokio::runtime::Runtime> =
        tokio::runtime::Builder::new_current_thread().enable_all().build().ok();
}

fn in_runtime(run: impl FnOnce()) {
    RUNTIME.with(|runtime| {
        let _entered = runtime.as_ref().map(tokio::runtime::Runtime::enter);
        run();
    });
}

/// What a server answers to the request for its refs.
pub fn protocol(data: &[u8]) {
    in_runtime(|| git::refs(data));
}

/// The id of a commit, and what a server answers to the request for it.
pub fn pack(data: &[u8]) {
    let Ok(staging) = tempfile::tempdir() else { return };
    in_runtime(|| git::pack(data, staging.path()));
}
