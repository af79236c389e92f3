//! (pure) A lock file: what of a requirements file of pip is taken, so that pip installs exactly that.
//!
//! The file is hostile. pip would take options out of it: another index, another folder, a package that is built by its own code. So each
//! entry is a name with one version and its hashes, perhaps with a marker, and is written anew for pip.
#![deny(clippy::disallowed_types, clippy::disallowed_methods)]

use std::fmt;

use convoke_core::text::quote;

/// The most packages.
const MAX_PACKAGES: usize = 5000;
/// The most hashes of a package: one for each wheel and source archive of a version.
const MAX_HASHES: usize = 500;
/// The longest marker, in bytes.
const MAX_MARKER: usize = 1024;
/// Algorithms that pip takes, with the hex digits of their hashes.
const ALGORITHMS: [(&str, usize); 3] = [("sha256", 64), ("sha384", 96), ("sha512", 128)];

/// What is not taken, and why.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LockError {
    /// Something in an entry.
    #[error("line {line}: {why}")]
    Line {
        /// The line in which the entry begins, from 1.
        line: usize,
        /// Why.
        why: String,
    },
    /// The whole file.
    #[error("{0}")]
    File(String),
}

/// One package.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Package {
    /// Its name, perhaps with extras: `httpx[http2]`.
    name: String,
    version: String,
    marker: Option<String>,
    /// `sha256:…`, one at least.
    hashes: Vec<String>,
}

impl fmt::Display for Package {
    /// As pip reads it, in one line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, version, marker, hashes } = self;
        write!(f, "{name}=={version}")?;
        if let Some(marker) = marker {
            write!(f, " ; {marker}")?;
        }
        hashes.iter().try_for_each(|hash| write!(f, " --hash={hash}"))
    }
}

/// The packages of a lock file.
///
/// # Errors
/// What pip must not get.
pub fn read(text: &str) -> Result<Vec<Package>, LockError> {
    let mut packages = Vec::new();
    let mut entry: Option<(usize, String)> = None;
    for (line, text) in (1..).zip(text.trim_start_matches('\u{feff}').lines()) {
        let text = without_comment(text).trim();
        let (text, goes_on) = text.strip_suffix('\\').map_or((text, false), |text| (text, true));
        let (_, all) = entry.get_or_insert_with(|| (line, String::new()));
        all.push(' ');
        all.push_str(text);
        if !goes_on {
            packages.extend(ended(entry.take())?);
        }
        if packages.len() > MAX_PACKAGES {
            return Err(LockError::File(format!("it has more than {MAX_PACKAGES} packages")));
        }
    }
    packages.extend(ended(entry)?);
    if packages.is_empty() {
        return Err(LockError::File("it names no package".into()));
    }
    Ok(packages)
}

/// The package of an entry, if it is not blank.
fn ended(entry: Option<(usize, String)>) -> Result<Option<Package>, LockError> {
    match entry {
        Some((line, text)) if !text.trim().is_empty() => {
            package(text.trim()).map(Some).map_err(|why| LockError::Line { line, why })
        }
        _ => Ok(None),
    }
}

/// A comment begins with `#`, at the beginning or behind a space.
fn without_comment(line: &str) -> &str {
    let is_begin = |at: usize| {
        at == 0 || line.get(..at).is_some_and(|before| before.ends_with(char::is_whitespace))
    };
    let end = line.match_indices('#').map(|(at, _)| at).find(|at| is_begin(*at));
    end.and_then(|end| line.get(..end)).unwrap_or(line)
}

fn package(entry: &str) -> Result<Package, String> {
    if entry.starts_with('-') {
        let option = entry.split([' ', '=']).next().unwrap_or_default();
        return Err(format!(
            "the option {} is not taken: an entry is NAME==VERSION --hash=sha256:...",
            quote(option)
        ));
    }
    let (what, options) = entry.find(" --").map_or((entry, ""), |at| entry.split_at(at));
    let (what, marker) = match what.split_once(';') {
        Some((what, marker)) => (what, Some(checked_marker(marker.trim())?)),
        None => (what, None),
    };
    let shown = quote(what.trim());
    if what.contains('@') || what.contains("://") {
        return Err(format!("{shown} names an address: packages come from the index"));
    }
    let (name, version) = what
        .split_once("==")
        .ok_or_else(|| format!("{shown} has no version: write NAME==VERSION"))?;
    let (name, version) = (name.trim(), version.trim());
    if !is_name(name) {
        return Err(format!("{} is no name of a package", quote(name)));
    }
    let in_version = |b: u8| b.is_ascii_alphanumeric() || b".+!_-".contains(&b);
    if !version.starts_with(|c: char| c.is_ascii_alphanumeric()) || !version.bytes().all(in_version)
    {
        return Err(format!("{} is not one version", quote(version)));
    }
    let hashes = options.split_whitespace().map(hash).collect::<Result<Vec<_>, _>>()?;
    if hashes.is_empty() {
        return Err(format!("{shown} has no --hash: each package needs its hashes"));
    }
    if hashes.len() > MAX_HASHES {
        return Err(format!("{shown} has more than {MAX_HASHES} hashes"));
    }
    Ok(Package { name: name.to_owned(), version: version.to_owned(), marker, hashes })
}

fn checked_marker(marker: &str) -> Result<String, String> {
    let is_plain = |b: u8| b.is_ascii_alphanumeric() || b" '\"._-+<>=!~(),".contains(&b);
    if marker.is_empty() || marker.len() > MAX_MARKER || !marker.bytes().all(is_plain) {
        return Err(format!("{} is no marker", quote(marker)));
    }
    Ok(marker.to_owned())
}

/// A name, perhaps with extras.
fn is_name(text: &str) -> bool {
    let is_word = |text: &str| {
        let ends = |c: char| c.is_ascii_alphanumeric();
        text.starts_with(ends)
            && text.ends_with(ends)
            && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b))
    };
    match text.split_once('[') {
        None => is_word(text),
        Some((name, extras)) => {
            let extras = extras.strip_suffix(']');
            is_word(name.trim_end())
                && extras.is_some_and(|all| all.split(',').all(|one| is_word(one.trim())))
        }
    }
}

fn hash(option: &str) -> Result<String, String> {
    let hash = option
        .strip_prefix("--hash=")
        .ok_or_else(|| format!("{} is not taken: only --hash=sha256:... is", quote(option)))?;
    let (algorithm, digits) = hash.split_once(':').unwrap_or((hash, ""));
    let known = ALGORITHMS.iter().find(|(name, _)| *name == algorithm);
    match known {
        Some((_, length))
            if digits.len() == *length && digits.bytes().all(|b| b.is_ascii_hexdigit()) =>
        {
            Ok(format!("{algorithm}:{}", digits.to_ascii_lowercase()))
        }
        _ => Err(format!("{} is no hash of sha256, sha384 or sha512", quote(hash))),
    }
}

#[cfg(test)]
#[path = "tests/lock_file.rs"]
mod tests;
