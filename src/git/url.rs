//! Which URLs, refs and paths may be used at all.

use super::GitError;
use crate::api::git_sync::GitRef;

/// Checks a repository URL: `https://host/path`, or `http://` when `insecure` is allowed.
pub fn check(url: &str, allow_insecure: bool) -> Result<(), GitError> {
    let bad = |why: &str| Err(GitError::InvalidSource(format!("the URL {why}")));
    if url.len() > 2048 || url.chars().any(|c| c.is_control() || c.is_whitespace() || c == '\\') {
        return bad("is too long or holds control characters, spaces or backslashes");
    }
    let Some((scheme, rest)) = url.split_once("://") else {
        return bad("must begin with https://");
    };
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    if authority.contains('@') {
        return bad("must not hold a user or password");
    }
    let host = match authority.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => authority.split(':').next().unwrap_or_default(),
    };
    if host.is_empty() || host.starts_with('-') || host.contains('%') {
        return bad("has no usable host");
    }
    if rest.contains(['?', '#']) {
        return bad("must not hold a query or fragment");
    }
    match scheme {
        "https" | "http" => {}
        _ => return bad("must begin with https://"),
    }
    let local = host.eq_ignore_ascii_case("localhost")
        || host.to_ascii_lowercase().ends_with(".localhost")
        || host.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback() || ip.is_unspecified())
        || host.starts_with("127.");
    if (scheme == "http" || local) && !allow_insecure {
        let what = if scheme == "http" { "http://" } else { "a loopback address" };
        return Err(GitError::Insecure(what.into()));
    }
    Ok(())
}

/// The full name of a ref, or the commit itself.
pub enum Wanted {
    /// `refs/heads/…` or `refs/tags/…`, and the short name.
    Name(String, String),
    /// A commit id.
    Commit(String),
}

/// Checks a ref by the rules of `git check-ref-format`.
pub fn wanted(reference: &GitRef) -> Result<Wanted, GitError> {
    let name = |kind: &str, short: &str| {
        let full = format!("refs/{kind}/{short}");
        match gix::refs::FullName::try_from(full.as_str()) {
            Ok(_) if !short.starts_with('-') => Ok(Wanted::Name(full, short.to_owned())),
            _ => Err(GitError::InvalidSource(format!(
                "{short:?} is no valid name of a branch or tag"
            ))),
        }
    };
    match (&reference.branch, &reference.tag, &reference.commit) {
        (Some(branch), None, None) => name("heads", branch),
        (None, Some(tag), None) => name("tags", tag),
        (None, None, Some(commit))
            if matches!(commit.len(), 40 | 64) && commit.bytes().all(|b| b.is_ascii_hexdigit()) =>
        {
            Ok(Wanted::Commit(commit.to_ascii_lowercase()))
        }
        _ => Err(GitError::InvalidSource(
            "ref needs exactly one of branch, tag and commit (a full id)".into(),
        )),
    }
}

/// Checks a folder's path and gives it without `./` and trailing slashes; the root is empty.
pub fn clean_path(path: &str) -> Result<String, GitError> {
    let bad = || {
        Err(GitError::InvalidSource(format!(
            "path {path:?} must be relative, without '..' and '.git'"
        )))
    };
    if path.starts_with('/') || path.contains(['\\', '\0']) {
        return bad();
    }
    let parts: Vec<_> = path.split('/').filter(|part| !part.is_empty() && *part != ".").collect();
    if parts.iter().any(|part| *part == ".." || part.eq_ignore_ascii_case(".git")) {
        return bad();
    }
    Ok(parts.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn v01_to_v09_urls_that_are_refused() {
        for url in [
            "--upload-pack=x",
            "-x://host/r",
            "file:///etc",
            "/etc",
            "./x",
            "C:\\x",
            "ext::sh -c id",
            "git://host/r",
            "git@host:r.git",
            "ssh://-oProxyCommand=x/r",
            "https:///r",
            "https://-host/r",
            "https://u:p@host/r",
            "https://host/r\n",
            "https://host/a b",
            "https://host/r?x=1",
            "https://ho%2fst/r",
        ] {
            assert!(matches!(check(url, true), Err(GitError::InvalidSource(_))), "{url}");
        }
        for url in [
            "http://git.example.com/r",
            "https://localhost/r",
            "https://127.0.0.1/r",
            "https://[::1]/r",
        ] {
            assert!(matches!(check(url, false), Err(GitError::Insecure(_))), "{url}");
            assert_eq!(check(url, true), Ok(()), "{url}");
        }
        assert_eq!(check("https://git.example.com:8443/team/r.git", false), Ok(()));
    }

    #[test]
    fn v13_refs_that_are_refused() {
        let branch = |name: &str| GitRef { branch: Some(name.into()), tag: None, commit: None };
        for name in [
            "--upload-pack=x",
            "-x",
            "a..b",
            "HEAD:f",
            "@{-1}",
            "a*b",
            "a b",
            "a\u{7}",
            "x.lock",
            "",
            "a//b",
        ] {
            assert!(wanted(&branch(name)).is_err(), "{name}");
        }
        assert!(wanted(&branch("feature/x-1")).is_ok());
        assert!(wanted(&GitRef { branch: None, tag: None, commit: Some("abc".into()) }).is_err());
    }

    #[test]
    fn v14_paths_that_are_refused() {
        for path in ["..", "a/../b", "/a", ".git", "a/.GIT/b", "a\\b", "a\0"] {
            assert!(clean_path(path).is_err(), "{path}");
        }
        assert_eq!(clean_path("./a//b/").as_deref(), Ok("a/b"));
        assert_eq!(clean_path(".").as_deref(), Ok(""));
    }
}
