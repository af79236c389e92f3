use super::*;

fn of(data: &[(&str, &str)]) -> Result<Credentials, NoCredentials> {
    let data = data.iter().map(|(key, value)| ((*key).to_owned(), value.as_bytes().to_vec()));
    Credentials::of(&data.collect(), "https://git.example.com/a.git")
}

/// The header that these data make.
fn sent(data: &[(&str, &str)]) -> Option<String> {
    let made = of(data).expect("credentials").authorization?;
    assert!(made.is_sensitive());
    Some(made.to_str().expect("text").to_owned())
}

#[test]
fn g2_each_way_to_log_in_becomes_one_header() {
    let basic = |text: &str| Some(format!("Basic {}", STANDARD.encode(text)));
    assert_eq!(sent(&[("username", "u"), ("password", "p:w ö")]), basic("u:p:w ö"));
    assert_eq!(sent(&[("token", "t-1")]), basic("x-access-token:t-1"));
    assert_eq!(sent(&[("bearerToken", "b.c-d")]), Some("Bearer b.c-d".into()));
    let key = rcgen::KeyPair::generate().expect("a key");
    let params = rcgen::CertificateParams::new(vec!["client".to_owned()]).expect("a name");
    let certificate = params.self_signed(&key).expect("a certificate").pem();
    let trusting = of(&[("ca.crt", &certificate)]).expect("only an authority");
    assert_eq!(trusting, Credentials::trusting(certificate.clone().into_bytes()));
    let old = of(&[("caFile", &certificate), ("token", "t")]).expect("as Flux called it");
    assert_eq!(old.roots.as_deref(), Some(certificate.as_bytes()));
    let key = key.serialize_pem();
    let identity =
        of(&[("tls.crt", &certificate), ("tls.key", &key)]).expect("a client certificate").identity;
    assert_eq!(identity, Some(format!("{certificate}\n{key}").into_bytes()));
}

#[test]
fn g2_what_is_no_credential_is_told_and_not_quoted() {
    for (data, problem) in [
        (&[("username", "canary")][..], "it has username and no password"),
        (&[("password", "canary")], "it has password and no username"),
        (&[("username", ""), ("password", "canary")], "username is empty"),
        (&[("username", "a:b"), ("password", "canary")], "username has a colon"),
        (&[("token", "canary\n")], "token has a line break"),
        (&[("bearerToken", "canary\u{1}")], "bearerToken has characters that HTTP cannot send"),
        (&[("token", "canary"), ("bearerToken", "canary")], "more than one of"),
        (&[("ca.crt", "canary")], "ca.crt: there is no certificate in it"),
        (
            &[("tls.crt", "canary"), ("tls.key", "canary")],
            "tls.crt and tls.key: there is no certificate in it",
        ),
        (&[("tls.crt", "canary")], "it has tls.crt and no tls.key"),
        (&[("tls.key", "canary")], "it has tls.key and no tls.crt"),
        (&[("identity", "canary"), ("known_hosts", "h")], "for ssh, and the URL is https://"),
        (&[("githubAppID", "canary")], "a GitHub App without githubAppInstallationID"),
        (&[("token", "canary"), ("githubAppID", "1")], "more than one of"),
        (&[("Password", "canary")], "it has no credentials"),
        (&[], "it has no credentials"),
    ] {
        let error = of(data).expect_err(problem);
        assert!(error.problem.contains(problem), "{error}: {problem}");
        assert!(!format!("{error:?}").contains("canary"), "{error:?}");
    }
    let bytes = BTreeMap::from([("token".to_owned(), vec![0xff])]);
    let error = Credentials::of(&bytes, "https://h/a.git").expect_err("no text");
    assert_eq!(error.problem, "token is no text");
    assert_eq!(format!("{:?}", of(&[("token", "canary")])), "Ok(Credentials(not shown))");
}

#[test]
fn g2_what_is_no_credential_for_ssh_is_told_and_not_quoted() {
    let host = "h ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJdD7y3aLq454yWBdwLWbieU1ebz9/cu7/QEXn9OIeZJ";
    for (data, problem) in [
        (&[("identity", "canary")][..], "it has identity and no known_hosts"),
        (&[("known_hosts", "canary")], "it has known_hosts and no identity"),
        (&[("identity", "canary"), ("known_hosts", "canary")], "line 1 of known_hosts"),
        (&[("identity", "canary"), ("known_hosts", host)], "identity is no private key"),
        (&[("token", "canary")], "for https, and the URL is ssh://"),
        (&[("githubAppID", "canary")], "for https, and the URL is ssh://"),
        (&[], "it has no credentials"),
    ] {
        let data = data.iter().map(|(key, value)| ((*key).to_owned(), value.as_bytes().to_vec()));
        let error = Credentials::of(&data.collect(), "ssh://git@h/a.git").expect_err(problem);
        assert!(error.problem.contains(problem), "{error}: {problem}");
        assert!(!format!("{error:?}").contains("canary"), "{error:?}");
    }
}

#[test]
fn g2_v12_credentials_are_for_the_origins_that_are_named() {
    let url = "https://git.example.com/team/a.git";
    for good in [
        "https://git.example.com",
        "https://GIT.example.com:443/",
        "https://other.example.com, https://git.example.com",
        "ssh://x:22,https://git.example.com",
    ] {
        assert!(are_for(good, url), "{good}");
    }
    for bad in [
        "",
        "git.example.com",
        "https://git.example.com.evil.example",
        "https://example.com",
        "https://*.example.com",
        "*",
        "http://git.example.com",
        "https://git.example.com:8443",
        "https://git.example.com/team",
        "https://git.example.com?x",
        "https://u@git.example.com",
        "https://evil.example https://git.example.co",
    ] {
        assert!(!are_for(bad, url), "{bad}");
    }
    assert!(are_for("https://git.example.com:8443", "https://git.example.com:8443/a.git"));
    for odd in ["", "nothing", "file:///etc/passwd", "data:x"] {
        assert!(!are_for(odd, odd), "{odd}");
    }
    let ssh = "ssh://git@git.example.com:22/team/a.git";
    assert!(are_for("ssh://git.example.com", ssh) && are_for("ssh://GIT.example.com:22", ssh));
    for bad in
        ["https://git.example.com", "ssh://git.example.com:2222", "ssh://git@git.example.com"]
    {
        assert!(!are_for(bad, ssh), "{bad}");
    }
    assert!(!are_for("ssh://git.example.com", url));
    assert_eq!(origin("ssh://git@H:2222/a").as_deref(), Some("ssh://h:2222"));
    // What is dialled, however it is written.
    assert_eq!(origin("ssh://git@0x7f000001/a").as_deref(), Some("ssh://127.0.0.1"));
    assert!(are_for("ssh://127.0.0.1", "ssh://git@0x7f000001/a"));
    assert_eq!(origin(url).as_deref(), Some("https://git.example.com"));
    assert_eq!(origin("https://h:8443/x").as_deref(), Some("https://h:8443"));
}
