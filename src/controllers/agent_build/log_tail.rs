//! (pure) The end of a log, for the status of an AgentBuild: what looks like a secret is left out of it.
#![deny(clippy::disallowed_types, clippy::disallowed_methods)]

/// The most bytes of the end of a log.
pub const MAX_TAIL: usize = 4096;
/// What stands in place of a secret.
const MASK: &str = "***";
/// Words in the name of a setting whose value is a secret.
const SECRET_NAMES: [&str; 13] = [
    "signature",
    "password",
    "passwd",
    "passphrase",
    "secret",
    "token",
    "credential",
    "apikey",
    "api_key",
    "api-key",
    "access_key",
    "private_key",
    "authorization",
];
/// How values begin that are secrets whatever their name is.
const SECRET_VALUES: [&str; 15] = [
    "ghp_",
    "gho_",
    "ghu_",
    "ghs_",
    "ghr_",
    "github_pat_",
    "glpat-",
    "xoxb-",
    "xoxp-",
    "sk-",
    "AKIA",
    "ASIA",
    "AIza",
    "npm_",
    "pypi-",
];
/// The shortest text behind such a beginning that is taken for a secret.
const MIN_VALUE: usize = 12;

/// The last lines of a log, at most [`MAX_TAIL`] bytes, without control characters and without what looks like a secret.
#[must_use]
pub fn tail(log: &str) -> String {
    let mut in_key = false;
    let mut lines = Vec::new();
    for line in log.lines() {
        let line: String = line.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
        let (begins, ends) = (line.contains("-----BEGIN"), line.contains("-----END"));
        if ends && !begins && !in_key {
            // The beginning of the key was cut off.
            lines.clear();
            lines.push(MASK.to_owned());
            continue;
        }
        if in_key || begins {
            // Nobody needs a certificate or a public key here either.
            if !in_key {
                lines.push(MASK.to_owned());
            }
            in_key = !ends;
            continue;
        }
        lines.push(masked(line.trim_end()));
    }
    let mut kept = Vec::new();
    let mut room = MAX_TAIL;
    for line in lines.iter().rev() {
        let Some(left) = room.checked_sub(line.len() + 1) else {
            // One long line is better than nothing.
            if kept.is_empty() {
                kept.push(end_of(line, MAX_TAIL - 1));
            }
            break;
        };
        room = left;
        kept.push(line.as_str());
    }
    kept.reverse();
    kept.join("\n").trim_matches('\n').to_owned()
}

/// The last bytes of a text, from the beginning of a character on.
fn end_of(text: &str, bytes: usize) -> &str {
    let from = text.len().saturating_sub(bytes);
    let from = (from..=text.len()).find(|at| text.is_char_boundary(*at)).unwrap_or(text.len());
    text.get(from..).unwrap_or_default()
}

/// A line without what looks like a secret.
fn masked(line: &str) -> String {
    let mut made = String::new();
    let mut rest = line;
    while !rest.is_empty() {
        let end = rest.find(is_break).unwrap_or(rest.len());
        let (word, behind) = rest.split_at(end);
        made.push_str(&masked_word(word));
        let gap = behind.find(|c| !is_break(c)).unwrap_or(behind.len());
        let (between, next) = behind.split_at(gap);
        made.push_str(between);
        rest = next;
        // `authorization=Basic x`: what is secret comes behind the word.
        if word.to_ascii_lowercase().starts_with("authorization") && word.contains(['=', ':']) {
            if word.ends_with([':', '=']) {
                made.push_str(MASK);
            }
            return made.trim_end().to_owned();
        }
        // `token = x`, `"token": "x"`, `--password x`.
        let named = is_secret_name(word.trim_end_matches([':', '=']));
        let assigns =
            word.ends_with([':', '=']) || rest.starts_with(['=', ':']) || word.starts_with('-');
        // `password 'x'`: what is quoted behind a password is one.
        let quoted = is_password(word) && between.contains(['"', '\'', '`']);
        // `Bearer x`, without the name of the header.
        let follows = rest.find(is_break).map_or(rest, |end| rest.split_at(end).0);
        let scheme = is_scheme(word) && follows.len() >= MIN_VALUE && !is_plain_word(follows);
        if (named && assigns || quoted || scheme) && !rest.is_empty() {
            made.push_str(MASK);
            return made;
        }
    }
    made
}

/// What separates words.
fn is_break(c: char) -> bool {
    c.is_whitespace()
        || matches!(c, '"' | '\'' | '`' | ',' | ';' | '(' | ')' | '<' | '>' | '{' | '}')
}

fn masked_word(word: &str) -> String {
    // `https://user:password@host`
    if let Some((scheme, rest)) = word.split_once("://") {
        let authority = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let (authority, path) = rest.split_at(authority);
        let host = authority.rsplit_once('@').map(|(_, host)| format!("{MASK}@{host}"));
        // What follows may have another URL in it.
        let (scheme, path) = (pairs(scheme), masked_word(path));
        return format!("{scheme}://{}{path}", host.as_deref().unwrap_or(authority));
    }
    pairs(word)
}

/// A word in which the values of secret names, and values that are secrets themselves, are masked.
fn pairs(word: &str) -> String {
    let mut made = Vec::new();
    for part in word.split('&') {
        let cut = part.find(['=', ':']).filter(|at| at + 1 < part.len());
        made.push(match cut.map(|at| part.split_at(at)) {
            Some((name, value)) if is_secret_name(name) => {
                format!("{name}{}{MASK}", value.get(..1).unwrap_or_default())
            }
            Some((name, value)) => {
                let sign = value.get(..1).unwrap_or_default();
                format!("{name}{sign}{}", value_of(value.get(1..).unwrap_or_default()))
            }
            None => value_of(part).to_owned(),
        });
    }
    made.join("&")
}

fn value_of(value: &str) -> &str {
    let known = SECRET_VALUES
        .iter()
        .any(|start| value.strip_prefix(start).is_some_and(|rest| rest.len() >= MIN_VALUE));
    // A JSON Web Token.
    let token = value.starts_with("eyJ") && value.matches('.').count() == 2;
    if known || token { MASK } else { value }
}

fn is_secret_name(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    // `auth` of docker and `_auth` of npm. `PASS: test_x` is none.
    matches!(name.as_str(), "auth" | "_auth")
        || name.ends_with("_pass")
        || name.ends_with("_pwd")
        || SECRET_NAMES.iter().any(|word| name.contains(word))
}

fn is_password(word: &str) -> bool {
    let word = word.to_ascii_lowercase();
    ["password", "passwd", "passphrase"].iter().any(|name| word.ends_with(name))
}

/// How what authorizes a request begins.
fn is_scheme(word: &str) -> bool {
    word.eq_ignore_ascii_case("bearer") || word.eq_ignore_ascii_case("basic")
}

/// A word of a sentence.
fn is_plain_word(word: &str) -> bool {
    word.chars().all(|c| c.is_ascii_lowercase() || matches!(c, '-' | '.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn b6_what_looks_like_a_secret_is_masked() {
        for (line, want) in [
            (
                "cannot clone https://bob:canary@git.example.com/x.git",
                "cannot clone https://***@git.example.com/x.git",
            ),
            ("> Authorization: Bearer canary", "> Authorization: ***"),
            ("authorization=Basic canary", "authorization=***"),
            ("PIP_PASSWORD=canary pip install", "PIP_PASSWORD=*** pip install"),
            ("{\"token\": \"canary\"}", "{\"token\"***"),
            ("token = canary", "token ***"),
            ("DB_PASS=canary make", "DB_PASS=*** make"),
            ("{\"auth\": \"canary\"}", "{\"auth\"***"),
            ("GET https://h/x?X-Amz-Signature=canary", "GET https://h/x?X-Amz-Signature=***"),
            ("curl --password canary", "curl --password ***"),
            ("login failed with password 'canary'", "login failed with password '***"),
            ("sending Bearer canary0123456789", "sending Bearer ***"),
            ("basic Y2FuYXJ5OmNhbmFyeQ==", "basic ***"),
            ("https://a.example/?to=https://u:canary@b/", "https://a.example/?to=https://***@b/"),
            ("/x?token=canary&to=https://b/", "/x?token=***&to=https://b/"),
            ("GET /x?access_token=canary&a=1", "GET /x?access_token=***&a=1"),
            ("GET https://h/x?api_key=canary", "GET https://h/x?api_key=***"),
            ("using ghp_0123456789abcdefghij", "using ***"),
            ("key=AKIA0123456789ABCDEF", "key=***"),
            ("jwt eyJhbGciOi.eyJzdWIi.c2lnbmF0", "jwt ***"),
        ] {
            let said = tail(line);
            assert!(!said.contains("canary"), "{said}");
            assert_eq!(said, want, "{line}");
        }
        for line in [
            "STEP 2/3: RUN make test",
            "error: no such file: /app/tokens.py",
            "the secret of success",
            "secrets \"registry-login\" not found",
            "basic authentication is not possible",
            "--- PASS: TestReads (0.00s)",
            "fetched 0123456789abcdef0123456789abcdef01234567 from https://git.example.com/x.git",
            "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef",
        ] {
            assert_eq!(tail(line), line);
        }
    }

    #[test]
    fn b6_keys_are_left_out_and_so_is_what_follows_a_beginning_without_an_end() {
        let log = "one\n-----BEGIN OPENSSH PRIVATE KEY-----\ncanary\n-----END OPENSSH PRIVATE KEY-----\ntwo";
        assert_eq!(tail(log), "one\n***\ntwo");
        assert_eq!(tail("one\n-----BEGIN PRIVATE KEY-----\ncanary\ncanary"), "one\n***");
        assert_eq!(tail("canary\n-----END PRIVATE KEY-----\ntwo"), "***\ntwo");
    }

    #[test]
    fn b6_the_last_lines_are_kept_within_a_bound() {
        let log: Vec<_> = (0..1000).map(|n| format!("line {n}")).collect();
        let said = tail(&log.join("\n"));
        assert!(said.len() <= MAX_TAIL && said.len() > MAX_TAIL - 20, "{}", said.len());
        assert!(said.starts_with("line ") && said.ends_with("line 999"));
        let long = "ä".repeat(10_000);
        let said = tail(&long);
        assert!(said.len() < MAX_TAIL && said.len() > MAX_TAIL - 3);
        assert_eq!(tail("a\u{1b}[31mred\u{7}\tb\n\n"), "a [31mred  b");
        assert_eq!(tail(""), "");
    }
}
