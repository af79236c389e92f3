use super::*;

fn refused(text: &str) -> GitError {
    url(text, Schemes::HttpToo).expect_err(text)
}

#[test]
fn v01_v04_v05_v06_v07_urls_of_other_kinds_are_refused() {
    for text in [
        "--upload-pack=x",
        "-x",
        "",
        "file:///etc",
        "/etc",
        "./x",
        "../x",
        r"C:\x",
        "C:/x",
        "ext::sh -c id",
        "ext::sh",
        "fd::17",
        "foo::bar",
        "git://h/r",
        "git@example.com:team/repo.git",
        "example.com:repo",
        "repo",
        "ftp://h/r",
        "HTTPS//h/r",
    ] {
        assert_eq!(refused(text).reason(), "InvalidURL", "{text}");
        assert!(refused(text).is_terminal());
    }
    let scp = refused("git@example.com:team/repo.git").to_string();
    assert!(scp.contains("scp form"), "{scp}");
    assert_eq!(
        url("http://h/r", Schemes::HttpsOnly).unwrap_err().reason(),
        "InsecureConnectionsDisallowed"
    );
    assert!(url("http://h/r", Schemes::HttpToo).is_ok());
    assert!(url("https://git.example.com/team/agents.git", Schemes::HttpsOnly).is_ok());
    assert!(url("https://git.example.com:8443/agents", Schemes::HttpsOnly).is_ok());
}

#[test]
fn v02_v03_dashes_in_host_and_user_are_refused() {
    for text in [
        "https://-oProxyCommand=x/r",
        "https://-oProxyCommand=x@h/r",
        "ssh://-oProxyCommand=x/r",
        "ssh://-oProxyCommand=x@h/r",
    ] {
        assert_eq!(refused(text).reason(), "InvalidURL", "{text}");
    }
}

#[test]
fn v25_ssh_urls_hold_nothing_that_a_shell_could_misread() {
    let of = |text: &str| match url(text, Schemes::HttpsOnly) {
        Ok(Location::Ssh(SshUrl { user, server, path })) => {
            Some(format!("{user} {}:{} {path}", server.host, server.port))
        }
        _ => None,
    };
    for (good, parts) in [
        ("ssh://git@git.example.com/team/a.git", "git git.example.com:22 /team/a.git"),
        ("ssh://git.example.com/a", "git git.example.com:22 /a"),
        ("ssh://Deploy_1@GIT.example.com:2222/a", "Deploy_1 git.example.com:2222 /a"),
        ("ssh://git@h:443/a", "git h:443 /a"),
        ("ssh://git@h/~me/a%20b.git", "git h:22 ~me/a b.git"),
        ("ssh://git@[::1]:22/a", "git ::1:22 /a"),
        ("ssh://git@0x7f000001/a", "git 127.0.0.1:22 /a"),
    ] {
        assert_eq!(of(good).as_deref(), Some(parts), "{good}");
    }
    for bad in [
        "ssh://git:secret@h/r",
        "ssh://-x@h/r",
        "ssh://.x@h/r",
        "ssh://a%40b@h/r",
        "ssh://a;b@h/r",
        "ssh://a@b@h/r",
        "ssh://git@-h/r",
        "ssh://git@h",
        "ssh://git@h/",
        "ssh:///r",
        "ssh://git@/r",
        "ssh://git@h/a'b",
        "ssh://git@h/a%27b",
        "ssh://git@h/a%22b",
        "ssh://git@h/a`b",
        "ssh://git@h/a$(id)",
        "ssh://git@h/a!b",
        "ssh://git@h/a%5cb",
        "ssh://git@h/a%E2%80%AEb",
        "ssh://git@h/a%ffb",
        "ssh://git@h/a%4",
        "ssh://git@h;id/r",
        "ssh://git@h%20x/r",
    ] {
        assert_eq!(of(bad), None, "{bad}");
        assert_eq!(refused(bad).reason(), "InvalidURL", "{bad}");
    }
}

#[test]
fn v08_hosts_are_names_or_addresses() {
    for bad in [
        "https://.../r",
        "https://.h/r",
        "https://h..x/r",
        "https://,h/r",
        "https://h;x/r",
        "ssh://git@.../r",
    ] {
        assert_eq!(refused(bad).reason(), "InvalidURL", "{bad}");
    }
    assert!(url("https://h./r", Schemes::HttpsOnly).is_ok());
}

#[test]
fn v08_control_characters_and_empty_hosts_are_refused() {
    for text in [
        "https://h/r\r\nx",
        "https://h/\0",
        "https://h/\t",
        "https://h/ r",
        "https://h/%0a",
        "https://h/%0D%0Ax",
        "https://h/%7f",
        "https:///h/r",
        "https://",
        "https://h",
        "https://h/",
        r"https:\\h\r",
        r"https://h\@x/r",
        "https://h/r?a=b",
        "https://h/r#x",
        "https://hé/r",
    ] {
        assert_eq!(refused(text).reason(), "InvalidURL", "{text:?}");
    }
}

#[test]
fn v09_credentials_in_the_url_are_refused_and_never_repeated() {
    let error = refused("https://user:s3cret@h/r");
    assert_eq!(error.reason(), "InvalidURL");
    assert!(!format!("{error} {error:?} {:?}", error.hint()).contains("s3cret"));
    assert_eq!(refused("https://token@h/r").reason(), "InvalidURL");
}

#[test]
fn v13_refs_that_git_or_a_shell_could_misread_are_refused() {
    let long = "a".repeat(10_000);
    for name in [
        "",
        "--upload-pack=x",
        "-x",
        "a..b",
        "HEAD:f",
        "@{-1}",
        "@",
        "a*",
        "a?",
        "a[",
        "a b",
        "a~1",
        "a^",
        "a\\b",
        "a\nb",
        "a\0",
        ".a",
        "a/.b",
        "a.lock",
        "a/b.LOCK/c",
        "a//b",
        "/a",
        "a/",
        "a.",
        "refs/heads/main",
        &long,
        "ä",
    ] {
        assert_eq!(ref_name(name).expect_err(name).reason(), "InvalidRef", "{name:?}");
    }
    for name in ["main", "feature/x-1", "v1.2.3", "release_1+a#b", "_x"] {
        assert_eq!(ref_name(name), Ok(()), "{name}");
    }
    for id in ["", "abc", &"A".repeat(40), &"g".repeat(40), &"a".repeat(41)] {
        assert_eq!(commit_id(id).expect_err(id).reason(), "InvalidRef", "{id:?}");
    }
    assert!(commit_id(&"a".repeat(40)).is_ok());
    assert!(commit_id(&"0".repeat(64)).is_ok());
}

#[test]
fn g3_exactly_one_target_and_main_by_default() {
    let none = GitRef::default();
    assert_eq!(target(&none), Ok(Target::Branch("main".into())));
    let two = GitRef { branch: Some("a".into()), tag: Some("b".into()), ..GitRef::default() };
    assert_eq!(target(&two).unwrap_err().reason(), "InvalidRef");
}

#[test]
fn g3_the_highest_version_in_a_range_is_followed() {
    let tags =
        ["v1.0.0", "1.2.3", "v1.2.10", "v1.3.0-rc.1", "v2.0.0", "nightly", "v1", "release-3.0.0"];
    for (range, tag) in [
        ("^1", Some("v1.2.10")),
        ("~1.2", Some("v1.2.10")),
        ("1.2.x", Some("v1.2.10")),
        (">=1.0.0 <1.2.10", Some("1.2.3")),
        (">= 1.0, < 2", Some("v1.2.10")),
        ("=1.0.0", Some("v1.0.0")),
        ("*", Some("v2.0.0")),
        (">1.3.0-rc.0, <2", Some("v1.3.0-rc.1")),
        (">=3", None),
    ] {
        let parsed = versions(range).expect(range);
        let Target::Versions(parsed, text) = parsed else { panic!("{range}") };
        assert_eq!((highest(&parsed, tags.into_iter()), &*text), (tag, range));
    }
    // The same version twice.
    let Ok(Target::Versions(any, _)) = versions("*") else { panic!("any") };
    assert_eq!(highest(&any, ["v1.0.0", "1.0.0"].into_iter()), Some("1.0.0"));
    for bad in ["", "1.2", "1.2.3", "main", ">=1 || >=2", "^", "=1.2.3.4", ">=a", "1.2, <2"] {
        let error = versions(bad).expect_err(bad);
        assert_eq!(error.reason(), "InvalidRef", "{bad}");
    }
}

#[test]
fn g3_a_full_name_is_one() {
    for name in ["refs/heads/main", "refs/pull/420/head", "refs/tags/v1"] {
        let reference = GitRef { name: Some(name.into()), ..GitRef::default() };
        assert_eq!(target(&reference), Ok(Target::Ref(name.into())));
    }
    for name in ["main", "refs/", "refs/../x", "refs/heads/a b", "HEAD", "refs/refs/x", "-refs/x"] {
        let reference = GitRef { name: Some(name.into()), ..GitRef::default() };
        assert_eq!(target(&reference).expect_err(name).reason(), "InvalidRef", "{name}");
    }
}

#[test]
fn v14_paths_outside_of_the_tree_are_refused() {
    for bad in [
        "..",
        "a/../b",
        "/etc",
        "/",
        ".git",
        "a/.git/hooks",
        ".GIT",
        "a\\b",
        "a\0b",
        "a\nb",
        "git~1",
        ".git ",
        ".git.",
        ".git::$INDEX_ALLOCATION",
        "a/\u{202e}b",
        &"a/".repeat(600),
    ] {
        assert_eq!(path(bad).expect_err(bad).reason(), "InvalidPath", "{bad:?}");
    }
    for (given, wanted) in [
        (".", ""),
        ("", ""),
        ("./prod", "prod"),
        ("prod/", "prod"),
        ("a//./b", "a/b"),
        (".github", ".github"),
    ] {
        assert_eq!(path(given).as_deref(), Ok(wanted));
    }
}
