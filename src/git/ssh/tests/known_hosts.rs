use super::*;

const ONE: &str =
    "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJdD7y3aLq454yWBdwLWbieU1ebz9/cu7/QEXn9OIeZJ";
const TWO: &str =
    "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIA6rWI3G2sz07DnfFlrouTcysQlj2P+jpNSOEWD9OJ3X";

fn key(text: &str) -> PublicKey {
    text.parse().expect("a public key")
}

fn known(text: &str) -> KnownHosts {
    KnownHosts::parse(text).expect("known_hosts")
}

fn check(text: &str, host: &str, port: u16) -> Result<(), HostKeyProblem> {
    known(text).of(&Endpoint::new(host, port)).check(&key(ONE))
}

#[test]
fn g2_a_key_is_trusted_for_the_hosts_of_its_line() {
    for (hosts, host, port) in [
        ("git.example.com", "git.example.com", 22),
        ("other,git.example.com", "GIT.example.com", 22),
        ("Git.Example.com", "git.example.com", 22),
        ("[git.example.com]:2222", "git.example.com", 2222),
        ("*.example.com", "git.example.com", 22),
        ("git?.example.com", "git1.example.com", 22),
        ("*,!bad.example.com", "git.example.com", 22),
        ("10.1.2.3", "10.1.2.3", 22),
        ("*", "git.example.com", 22),
    ] {
        assert_eq!(check(&format!("{hosts} {ONE} a comment"), host, port), Ok(()), "{hosts}");
    }
    for (hosts, host, port) in [
        ("git.example.com", "git.example.com.evil.example", 22),
        ("git.example.com", "xgit.example.com", 22),
        ("git.example.com", "git.example.com", 2222),
        ("[git.example.com]:2222", "git.example.com", 22),
        ("*,!bad.example.com", "bad.example.com", 22),
        ("!git.example.com", "git.example.com", 22),
        ("*.example.com", "example.com", 22),
        ("git?.example.com", "git.example.com", 22),
        ("@cert-authority *", "git.example.com", 22),
    ] {
        let unknown = Err(HostKeyProblem::Unknown);
        assert_eq!(check(&format!("{hosts} {ONE}"), host, port), unknown, "{hosts}");
    }
}

#[test]
fn g2_hashed_names_are_understood() {
    // Made by `ssh-keygen -H`.
    let hashed = format!("|1|O33ESRMWPVkMYIwJ1Uw+n877jTo=|nuuC5vEqXlEZ/8BXQR7m619W6Ak= {ONE}");
    assert_eq!(check(&hashed, "example.com", 22), Ok(()));
    assert_eq!(check(&hashed, "example.org", 22), Err(HostKeyProblem::Unknown));
}

#[test]
fn g2_another_key_and_a_revoked_one_are_told_apart_from_an_unknown_host() {
    assert_eq!(check(&format!("h {TWO}"), "h", 22), Err(HostKeyProblem::Other));
    assert_eq!(check(&format!("h {TWO}\nh {ONE}"), "h", 22), Ok(()));
    let revoked = format!("h {ONE}\n@revoked * {ONE}");
    assert_eq!(check(&revoked, "h", 22), Err(HostKeyProblem::Revoked));
}

#[test]
fn g2_a_server_is_asked_for_a_kind_of_key_that_is_known() {
    let of = |text: &str| known(text).of(&Endpoint::new("h", 22)).algorithms();
    assert_eq!(of(&format!("h {ONE}")), [Algorithm::Ed25519]);
    assert_eq!(of(&format!("other {ONE}")), ALGORITHMS);
    let nist = "ecdsa-sha2-nistp256 AAAAE2VjZHNhLXNoYTItbmlzdHAyNTYAAAAIbmlzdHAyNTYAAABBBEmKSENjQEezOmxkZMy7opKgwFB9nkt5YRrYMjNuG5N87uRgg6CLrbo5wAdT/y6v0mKV0U2w0WZ2YB/++Tpockg=";
    let both = of(&format!("h {ONE}\nh {nist}"));
    assert_eq!(both, [Algorithm::Ed25519, Algorithm::Ecdsa { curve: EcdsaCurve::NistP256 }]);
}

#[test]
fn g2_a_line_that_is_none_is_told_with_its_number() {
    let error = KnownHosts::parse(&format!("# a comment\n\nh {ONE}\nh canary")).expect_err("bad");
    assert_eq!(error.problem, "line 4 of known_hosts cannot be read");
    for text in ["", "\n", "# h ssh-ed25519 AAAA"] {
        assert_eq!(KnownHosts::parse(text).expect_err("empty").problem, "known_hosts has no key");
    }
    assert!(KnownHosts::parse(&format!("h {ONE}\r\n")).is_ok(), "lines of Windows");
}

#[test]
fn g2_patterns_of_hosts_end_quickly() {
    let stars = "*a".repeat(200);
    let text = format!("{}b", "a".repeat(2000));
    assert!(!matches(stars.as_bytes(), text.as_bytes()));
    assert!(matches(b"*a*b*", b"xxaxxbxx") && matches(b"", b"") && !matches(b"", b"a"));
}
