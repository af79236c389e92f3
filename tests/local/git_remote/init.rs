//! What `convoke init` tells of servers with TLS.

use std::collections::BTreeMap;
use std::process::{Command, Stdio};

use rcgen::CertificateParams;

use super::tls::{Authority, Front};
use super::*;

/// What it tells with this data of a Secret, and its exit code.
async fn told(url: &str, data: &BTreeMap<&str, String>) -> String {
    let dir = tempfile::tempdir().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_convoke"));
    command.args(["init", "team", "-n", "team", "--allow-insecure-git", "--url", url]);
    for (key, value) in data {
        let file = dir.path().join(key);
        std::fs::write(&file, value).unwrap();
        command.arg("--from-file").arg(file);
    }
    command.stdin(Stdio::null());
    let output = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
    let told = String::from_utf8(output.stderr).unwrap();
    let port = url.rsplit(':').next().unwrap().split('/').next().unwrap();
    let told = told.replace(port, "PORT");
    if output.status.success() {
        let printed = String::from_utf8(output.stdout).unwrap();
        assert!(printed.contains("kind: GitSync"), "{printed}");
        return told;
    }
    assert!(output.stdout.is_empty());
    format!("{told}exit code {}\n", output.status.code().unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn d7_certificates_that_are_not_trusted_are_told_with_what_to_do() {
    let (ours, clients) = (Authority::new(), Authority::new());
    let world = World::new().await;
    let commit = world.repo.commit("main", &[("a.yaml", "a: 1")]);
    let honest = Front::start(world.address(), ours.sign("localhost", |_| ()), "h2").await;
    let old = |params: &mut CertificateParams| params.not_after = rcgen::date_time_ymd(2020, 1, 1);
    let expired = Front::start(world.address(), ours.sign("localhost", old), "h2").await;
    let certificate = ours.sign("localhost", |_| ());
    let picky =
        Front::start_for(clients.verifier(), world.address(), certificate, "http/1.1").await;
    let data = |of: &Authority| BTreeMap::from([("ca.crt", of.pem().to_owned())]);
    let with = |mut data: BTreeMap<&'static str, String>, key: &'static str, value: String| {
        data.insert(key, value);
        data
    };

    insta::assert_snapshot!(told(&honest.url("localhost"), &BTreeMap::new()).await, @r#"
    error: the server's certificate is not trusted: no authority known here signed it
    hint: give the authority that signed it: --from-file ca.crt=FILE (what was given, if anything, did not sign it; this machine may trust others than the operator's)
    exit code 3
    "#);
    insta::assert_snapshot!(told(&honest.url("localhost"), &data(&clients)).await, @r#"
    error: the server's certificate is not trusted: no authority known here signed it
    hint: give the authority that signed it: --from-file ca.crt=FILE (what was given, if anything, did not sign it; this machine may trust others than the operator's)
    exit code 3
    "#);
    insta::assert_snapshot!(told(&honest.url("127.0.0.1"), &data(&ours)).await, @r#"
    error: the server's certificate is not trusted: it is for another host: localhost
    hint: use a host in the URL that is in it, or let whoever runs the server make it for this one
    exit code 3
    "#);
    insta::assert_snapshot!(told(&expired.url("localhost"), &data(&ours)).await, @r#"
    error: the server's certificate is not trusted: it has expired
    hint: whoever runs the server has to renew it; check the clock here, too
    exit code 3
    "#);
    let no_pem = BTreeMap::from([("ca.crt", "no certificate".to_owned())]);
    insta::assert_snapshot!(told(&honest.url("localhost"), &no_pem).await, @r#"
    error: the credentials cannot be used: ca.crt: there is no certificate in it
    hint: ca.crt of the Secret is PEM: blocks that begin with BEGIN CERTIFICATE
    exit code 2
    "#);
    // What the server says of it is lost when the connection is reset at once.
    let wants =
        ("asks for a client certificate, and breaks the connection", "wants a client certificate");
    let said = told(&picky.url("localhost"), &data(&ours)).await.replace(wants.0, wants.1);
    insta::assert_snapshot!(said, @r#"
    error: the server wants a client certificate
    hint: the client certificate is --from-file tls.crt=FILE --from-file tls.key=FILE
    exit code 3
    "#);
    let (certificate, key) = clients.client();
    let half = with(data(&ours), "tls.crt", certificate.clone());
    insta::assert_snapshot!(told(&picky.url("localhost"), &half).await, @r#"
    error: the credentials cannot be used: it has tls.crt and no tls.key
    hint: add tls.key to it, or leave tls.crt out
    exit code 2
    "#);
    let whole = with(half, "tls.key", key);
    let told = told(&picky.url("localhost"), &whole).await;
    let line =
        format!("https://localhost:PORT/team.git: main is at {commit}: 1 object in 1 file\n");
    assert!(told.starts_with(&line), "{told}");
}
