use rcgen::{BasicConstraints, CertificateParams, IsCa, KeyPair};

use super::*;

/// A certificate that signs itself, as `openssl req -x509` makes it: it says that it is an authority.
fn self_signed(host: &str, change: impl FnOnce(&mut CertificateParams)) -> rcgen::Certificate {
    let mut params = CertificateParams::new(vec![host.to_owned()]).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    change(&mut params);
    params.self_signed(&KeyPair::generate().unwrap()).unwrap()
}

/// What is wrong with a server's certificate, for clients with these roots.
fn problem(server: &rcgen::Certificate, roots: &str, host: &str) -> Option<String> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let verifier = Verifier::new(Some(roots.as_bytes()), &provider).unwrap();
    let name = ServerName::try_from(host).unwrap();
    match verifier.verify_server_cert(server.der(), &[], &name, &[], UnixTime::now()) {
        Ok(_) => None,
        Err(Error::InvalidCertificate(problem)) => Some(certificate_problem(&problem)),
        Err(other) => panic!("{other}"),
    }
}

#[test]
fn g1_a_self_signed_certificate_is_trusted_if_it_is_given_itself() {
    let other = self_signed("git.example", |_| ());
    let plain = self_signed("git.example", |params| params.is_ca = IsCa::NoCa);
    let server = self_signed("git.example", |_| ());
    let both = format!("{}\n{}", other.pem(), server.pem());
    assert_eq!(problem(&server, &both, "git.example"), None);
    assert_eq!(problem(&plain, &plain.pem(), "git.example"), None);
    // One of the same name is another one.
    let why = problem(&server, &other.pem(), "git.example");
    let unknown = "it is self-signed, or that of an authority, and not known here";
    assert_eq!(why.as_deref(), Some(unknown));
    let why = problem(&plain, &other.pem(), "git.example");
    assert_eq!(why.as_deref(), Some("no authority known here signed it"));
}

#[test]
fn g1_a_certificate_that_is_given_itself_is_still_trusted_because_of_its_authority() {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = params.self_signed(&key).unwrap().pem();
    let issuer = rcgen::Issuer::new(params, key);
    let params = CertificateParams::new(vec!["git.example".to_owned()]).unwrap();
    let server = params.signed_by(&KeyPair::generate().unwrap(), &issuer).unwrap();
    let both = format!("{authority}\n{}", server.pem());
    assert_eq!(problem(&server, &both, "git.example"), None);
    let why = problem(&server, &server.pem(), "git.example");
    assert_eq!(why.as_deref(), Some("no authority known here signed it"));
}

#[test]
fn v12_a_self_signed_certificate_is_trusted_for_its_names_and_its_time_only() {
    let date = rcgen::date_time_ymd;
    let server = self_signed("git.example", |_| ());
    let old = self_signed("git.example", |params| params.not_after = date(2020, 1, 1));
    let young = self_signed("git.example", |params| {
        (params.not_before, params.not_after) = (date(4000, 1, 1), date(4001, 1, 1));
    });
    for (server, host, why) in [
        (&server, "other.example", "it is for another host: git.example"),
        (&server, "127.0.0.1", "it is for another host: git.example"),
        (&old, "git.example", "it has expired"),
        (&young, "git.example", "it is not valid yet"),
    ] {
        assert_eq!(problem(server, &server.pem(), host).as_deref(), Some(why), "{host}");
    }
}

#[test]
fn g2_a_key_must_be_that_of_its_certificate() {
    let (one, other) = (KeyPair::generate().unwrap(), KeyPair::generate().unwrap());
    let params = CertificateParams::new(vec!["client".to_owned()]).unwrap();
    let certificate = params.self_signed(&one).unwrap().pem();
    let pair = |key: &str| format!("{certificate}\n{key}");
    let good = pair(&one.serialize_pem());
    assert_eq!(check(None, Some(good.as_bytes())), Ok(()));
    assert!(config(Some(certificate.as_bytes()), Some(good.as_bytes())).is_ok());
    let locked = "-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----";
    for bad in [&other.serialize_pem(), locked, "canary"] {
        let error = check(None, Some(pair(bad).as_bytes())).expect_err(bad);
        let NetError::InvalidIdentity { reason } = &error else { panic!("{error}") };
        assert!(!reason.contains("canary"), "{reason}");
        let roots = Some(certificate.as_bytes());
        assert!(config(roots, Some(pair(bad).as_bytes())).is_err());
    }
}
