//! Git over https, with certificates of an authority of our own: G1.

use std::collections::BTreeMap;

use convoke::git::Remote;
use rcgen::CertificateParams;

use super::tls::{Authority, Front, self_signed};
use super::*;

fn remote(front: &Front, world: &World, host: &str, roots: Option<&str>) -> Remote {
    world.remote_with(|options| {
        options.url = front.url(host);
        options.credentials =
            roots.map(|pem| Credentials::trusting(pem.as_bytes().to_vec())).unwrap_or_default();
    })
}

#[tokio::test]
async fn g1_https_with_an_authority_of_ones_own() {
    let authority = Authority::new();
    // Like a file that somebody put together: a comment, and more than one authority.
    let bundle = format!("# ours\n{}\n{}", Authority::new().pem(), authority.pem());
    for protocol in ["http/1.1", "h2"] {
        let world = World::new().await;
        world.repo.change("main").file("big.bin", noise(300_000)).commit("big");
        for host in ["localhost", "127.0.0.1"] {
            let front = Front::start(world.address(), authority.sign(host, |_| ()), protocol).await;
            let remote = remote(&front, &world, host, Some(&bundle));
            for round in 0..3 {
                let text = format!("a: {protocol} {host} {round}");
                world.repo.commit("main", &[("a.yaml", &text)]);
                world.server.forget();
                let snapshot = sync(&remote, "").await.unwrap();
                assert_eq!(content(&snapshot, "a.yaml"), text);
                assert!(
                    world.server.requests().iter().all(|asked| asked.http2 == (protocol == "h2"))
                );
            }
        }
    }
}

#[tokio::test]
async fn g1_https_with_a_certificate_that_proves_nothing_asks_nothing() {
    let (ours, other) = (Authority::new(), Authority::new());
    let world = World::new().await;
    world.repo.commit("main", &[("a.yaml", "a: 1")]);
    let honest = Front::start(world.address(), ours.sign("localhost", |_| ()), "http/1.1").await;
    let expired =
        |params: &mut CertificateParams| params.not_after = rcgen::date_time_ymd(2020, 1, 1);
    let expired = Front::start(world.address(), ours.sign("localhost", expired), "http/1.1").await;
    for (front, host, roots, why) in [
        (&honest, "localhost", None, "no authority known here signed it"),
        (&honest, "localhost", Some(other.pem()), "no authority known here signed it"),
        (&honest, "127.0.0.1", Some(ours.pem()), "it is for another host: localhost"),
        (&expired, "localhost", Some(ours.pem()), "it has expired"),
    ] {
        let error = remote(front, &world, host, roots).resolve().await.unwrap_err();
        assert_eq!(error, GitError::CertificateNotTrusted { why: why.into() });
        assert_eq!(error.reason(), "CertificateNotTrusted");
        assert!(!error.is_terminal(), "it is mended on the server or on the machine");
    }
    assert!(world.server.requests().is_empty());
    assert_eq!(
        paths(&sync(&remote(&honest, &world, "localhost", Some(ours.pem())), "").await.unwrap()),
        ["a.yaml"]
    );
}

#[tokio::test]
async fn g1_https_with_a_self_signed_certificate_that_is_trusted() {
    let world = World::new().await;
    world.repo.commit("main", &[("a.yaml", "a: 1")]);
    let (pem, certificate) = self_signed("localhost");
    let front = Front::start(world.address(), certificate, "h2").await;
    let snapshot = sync(&remote(&front, &world, "localhost", Some(&pem)), "").await.unwrap();
    assert_eq!(paths(&snapshot), ["a.yaml"]);
    world.server.forget();
    let (other, _) = self_signed("localhost");
    for roots in [None, Some(&*other)] {
        let error = remote(&front, &world, "localhost", roots).resolve().await.unwrap_err();
        assert_eq!(error.reason(), "CertificateNotTrusted");
        assert!(error.to_string().contains("self-signed"), "{error}");
        assert!(error.hint().unwrap().contains("ca.crt"), "{error:?}");
    }
    assert!(world.server.requests().is_empty());
}

#[tokio::test]
async fn g2_a_client_certificate_logs_in_and_another_one_does_not() {
    let (authority, clients) = (Authority::new(), Authority::named("of clients"));
    let world = World::new().await;
    world.repo.commit("main", &[("a.yaml", "a: 1")]);
    for protocol in ["http/1.1", "h2"] {
        let certificate = authority.sign("localhost", |_| ());
        let front =
            Front::start_for(clients.verifier(), world.address(), certificate, protocol).await;
        let asked = |signed_by: Option<&Authority>| {
            let mut data =
                BTreeMap::from([("ca.crt".to_owned(), authority.pem().as_bytes().to_vec())]);
            if let Some(signed_by) = signed_by {
                let (certificate, key) = signed_by.client();
                data.insert("tls.crt".into(), certificate.into_bytes());
                data.insert("tls.key".into(), key.into_bytes());
            }
            let remote = world.remote_with(|options| {
                options.url = front.url("localhost");
                options.credentials = Credentials::of(&data, "https://h/a").unwrap();
            });
            async move { remote.resolve().await }
        };
        asked(Some(&clients)).await.unwrap();
        assert!(!world.server.requests().is_empty());
        world.server.forget();
        for signed_by in [None, Some(&authority)] {
            let error = asked(signed_by).await.unwrap_err();
            assert_eq!(error.reason(), "AuthenticationFailed", "{error}");
            assert!(error.to_string().contains("client certificate"), "{error}");
        }
        assert!(world.server.requests().is_empty());
        world.server.forget();
    }
}
