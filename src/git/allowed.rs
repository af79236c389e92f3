//! (pure) Which repositories the credentials of a Secret are for, as its annotation says.
#![deny(clippy::disallowed_types, clippy::disallowed_methods)]

use reqwest::Url;

use super::origin;

/// The beginning of ssh URLs.
const SSH: &str = "ssh://";

/// An origin, and the parts of a path.
type Place = (String, Vec<String>);

/// A repository as an annotation names it: its URL without a user, in its usual form. `None` when its path has other characters than letters,
/// digits and `- . _ ~ +`: servers read those in different ways.
#[must_use]
pub fn repository_place(url: &str) -> Option<String> {
    let (origin, parts) = place(url).filter(|(_, parts)| !parts.is_empty())?;
    Some(format!("{origin}/{}", parts.join("/")))
}

/// Whether the annotation of a Secret allows that its credentials are used for a repository. The annotation has URLs of repositories, or
/// beginnings of them: whole parts of a path, or an origin alone. The scheme counts.
#[must_use]
pub fn are_for_repository(annotation: &str, url: &str) -> bool {
    let Some((origin, path)) = place(url).filter(|(_, path)| !path.is_empty()) else {
        return false;
    };
    let mut allowed = annotation.split([',', ' ', '\n']).filter_map(place);
    allowed.any(|(of, beginning)| of == origin && path.starts_with(&beginning))
}

/// The origin and the path of a URL. `None` for one that could mean something else to a server.
fn place(url: &str) -> Option<Place> {
    let origin = origin(url)?;
    let parsed = Url::parse(url).ok()?;
    let has_user = !parsed.username().is_empty() && !url.starts_with(SSH);
    if has_user || parsed.password().is_some() || parsed.query().is_some() {
        return None;
    }
    if parsed.fragment().is_some() {
        return None;
    }
    // As it was written: parsing takes `..` away, and servers do that in other ways.
    let (_, rest) = url.split_once("://")?;
    let path = rest.split_once('/').map_or("", |(_, path)| path).trim_end_matches('/');
    if path != parsed.path().trim_start_matches('/').trim_end_matches('/') {
        return None;
    }
    if path.is_empty() {
        return Some((origin, Vec::new()));
    }
    let parts: Vec<_> = path.split('/').map(str::to_owned).collect();
    parts.iter().all(|part| is_plain(part)).then_some((origin, parts))
}

fn is_plain(part: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-._~+".contains(c);
    !matches!(part, "" | "." | "..") && part.chars().all(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn b2_v55_a_secret_is_for_the_repositories_that_its_annotation_names() {
        let url = "https://git.example.com/team/app.git";
        for good in [
            "https://git.example.com",
            "https://git.example.com/",
            "https://GIT.example.com:443/team",
            "https://git.example.com/team/",
            "https://git.example.com/team/app.git",
            "https://other.example, https://git.example.com/other\nhttps://git.example.com/team",
        ] {
            assert!(are_for_repository(good, url), "{good}");
        }
        for bad in [
            "",
            "git.example.com/team",
            "http://git.example.com/team",
            "ssh://git.example.com/team",
            "https://git.example.com:8443/team",
            "https://git.example.com/te",
            "https://git.example.com/team/app",
            "https://git.example.com/team/app.git/x",
            "https://git.example.com/Team",
            "https://git.example.com/other/../team",
            "https://git.example.com/*",
            "https://git.example.com/team?x",
            "https://git.example.com/team#x",
            "https://u@git.example.com/team",
            "https://*.example.com/team",
            "https://git.example.com.evil.example/team",
        ] {
            assert!(!are_for_repository(bad, url), "{bad}");
        }
        let ssh = "ssh://git@git.example.com:22/team/app.git";
        assert!(are_for_repository("ssh://git@git.example.com/team", ssh));
        assert!(are_for_repository("ssh://git.example.com/team", ssh));
        assert!(!are_for_repository("https://git.example.com/team", ssh));
    }

    #[test]
    fn b2_v55_a_path_that_servers_may_read_in_two_ways_gets_no_credentials() {
        let all = "https://git.example.com, https://git.example.com/team, ssh://git.example.com";
        for odd in [
            "https://git.example.com",
            "https://git.example.com/",
            "https://git.example.com/team/../other/app",
            "https://git.example.com/team/%2e%2e/other/app",
            "https://git.example.com/team/..%2fother/app",
            "https://git.example.com/team//app",
            "https://git.example.com/team/./app",
            "https://git.example.com/team;x/app",
            "https://git.example.com/team\\..\\app",
            "https://git.example.com/,evil",
            "https://git.example.com\\team/app",
            "https:///git.example.com/team/app",
            "https:git.example.com/team/app",
            "https://git.example.com/te\tam/app",
            "ssh://git@git.example.com/team/%2E%2E%2Fother",
            "ssh://git:secret@git.example.com/team/app",
            "https://u:p@git.example.com/team/app",
        ] {
            assert!(!are_for_repository(all, odd), "{odd}");
            assert_eq!(repository_place(odd), None, "{odd}");
        }
        assert!(are_for_repository(all, "https://git.example.com/~user/c++"));
    }

    #[test]
    fn b2_a_repository_is_named_without_its_user_and_the_usual_port() {
        let named = |url: &str| repository_place(url).expect("a repository");
        assert_eq!(named("https://H.example:443/a/b.git/"), "https://h.example/a/b.git");
        assert_eq!(named("ssh://git@h.example:22/a"), "ssh://h.example/a");
        assert_eq!(named("ssh://git@h.example:2222/a"), "ssh://h.example:2222/a");
    }
}
