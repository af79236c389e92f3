//! Names of commits.

use std::fmt;

/// A commit, and the branch or tag that was resolved to it. Shown as `main@sha1:<hex>`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Revision {
    /// 40 or 64 lower-case hex digits.
    pub commit: String,
    /// Branch or tag. Empty when the GitSync names the commit itself.
    pub name: String,
}

impl Revision {
    /// Parses the form that [`fmt::Display`] writes.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (name, id) = text.rsplit_once('@').unwrap_or(("", text));
        let commit = match id.split_once(':')? {
            ("sha1", hex) if hex.len() == 40 => hex,
            ("sha256", hex) if hex.len() == 64 => hex,
            _ => return None,
        };
        let good = commit.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
        good.then(|| Self { commit: commit.to_owned(), name: name.to_owned() })
    }
}

impl fmt::Display for Revision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.name.is_empty() {
            write!(f, "{}@", self.name)?;
        }
        write!(f, "{}:{}", if self.commit.len() == 64 { "sha256" } else { "sha1" }, self.commit)
    }
}

/// What the status of a GitSync shows of a commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommitInfo {
    /// 40 or 64 hex digits.
    pub id: String,
    /// Name of the author, without address.
    pub author: String,
    /// First line of the message, at most 120 characters.
    pub subject: String,
    /// When it was committed: seconds since 1970.
    pub time_seconds: i64,
    /// The key that signed it, if that was verified.
    pub signer: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_revision_is_read_as_it_is_shown() {
        let id = "a".repeat(40);
        for (name, commit) in [("main", id.clone()), ("", id.clone()), ("a@b", "0".repeat(64))] {
            let revision = Revision { commit, name: name.into() };
            assert_eq!(Revision::parse(&revision.to_string()), Some(revision));
        }
        for text in [
            "",
            "main",
            "main@sha1:abc",
            &format!("main@sha256:{id}"),
            &format!("main@sha1:{}", id.to_uppercase()),
        ] {
            assert_eq!(Revision::parse(text), None, "{text}");
        }
    }

    #[test]
    fn revisions_are_shown_with_their_hash() {
        let show = |commit: &str, name: &str| {
            Revision { commit: commit.into(), name: name.into() }.to_string()
        };
        let (short, long) = ("a".repeat(40), "b".repeat(64));
        assert_eq!(show(&short, "main"), format!("main@sha1:{short}"));
        assert_eq!(show(&long, "v1.2"), format!("v1.2@sha256:{long}"));
        assert_eq!(show(&short, ""), format!("sha1:{short}"));
    }
}
