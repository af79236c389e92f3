//! Tokens of a GitHub App: G2.

use std::collections::BTreeMap;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use convoke::git::GitHubApp;

use super::github::{GitHub, key};
use super::*;

fn app(pem: &str, id: &str, installation: &str, api: &str) -> Credentials {
    let data = [
        ("githubAppID", id),
        ("githubAppInstallationID", installation),
        ("githubAppPrivateKey", pem),
        ("githubAppBaseURL", api),
    ];
    let data = data.map(|(key, value)| (key.to_owned(), value.as_bytes().to_vec()));
    Credentials::of(&BTreeMap::from(data), "https://h/a").unwrap()
}

#[tokio::test]
async fn g2_a_github_app_asks_for_a_token_and_logs_in_with_it() {
    let (world, (key, pem)) = (World::new().await, key());
    let github = GitHub::start(&key, 3600).await;
    world.repo.commit("main", &[("a.yaml", "a: 1")]);
    let credentials = app(&pem, "1234", "77", &github.url);
    let of: &GitHubApp = credentials.app().unwrap();
    let token = of.token(&loopback(), &credentials).await.unwrap();
    assert!(token.is_fresh());
    assert!(!format!("{token:?} {credentials:?} {of:?}").contains("canary"));
    let with = credentials.clone().with_token(&token);
    assert_ne!(with, credentials);
    let remote = world.remote_with(|options| options.credentials = with);
    sync(&remote, "").await.unwrap();
    let header = format!("Basic {}", STANDARD.encode("x-access-token:ghs_canary1"));
    let asked = world.server.requests();
    assert!(asked.iter().all(|one| one.authorization.as_deref() == Some(&header)), "{asked:?}");
    assert_eq!(*github.given.lock().unwrap(), 1);
    // One that ends in five minutes is replaced now.
    let short = GitHub::start(&key, 299).await;
    let credentials = app(&pem, "1234", "77", &short.url);
    let token = credentials.app().unwrap().token(&loopback(), &credentials).await.unwrap();
    assert!(!token.is_fresh());
}

#[tokio::test]
async fn g2_a_github_app_that_gets_no_token_is_told_why() {
    let ((key, pem), (_, other)) = (key(), key());
    let github = GitHub::start(&key, 3600).await;
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let nobody = format!("http://{nobody}");
    for (pem, id, installation, api, message, hint) in [
        (&other, "1234", "77", &github.url, "(HTTP 401): A JSON web token", "githubAppPrivateKey"),
        (&pem, "1235", "77", &github.url, "(HTTP 401)", "githubAppID"),
        (&pem, "1234", "78", &github.url, "(HTTP 404): Not Found", "githubAppInstallationID"),
        (&pem, "1234", "77", &nobody, "cannot be asked", ""),
    ] {
        let credentials = app(pem, id, installation, api);
        let error = credentials.app().unwrap().token(&loopback(), &credentials).await.unwrap_err();
        assert!(error.to_string().contains(message), "{error}: {message}");
        assert!(error.hint().unwrap_or_default().contains(hint), "{error:?}: {hint}");
    }
    assert_eq!(*github.given.lock().unwrap(), 0);
    // Nothing is asked over plain http, and nothing at an address that may not be dialled.
    let strict = Dialler::new(Policy::default());
    for api in [github.url.clone(), "https://169.254.169.254/api/v3".into()] {
        let credentials = app(&pem, "1234", "77", &api);
        credentials.app().unwrap().token(&strict, &credentials).await.unwrap_err();
    }
}

#[test]
fn g2_values_of_a_github_app_that_cannot_be_used_are_told() {
    let (_, pem) = key();
    for (id, installation, key, api, problem) in [
        ("canary", "77", pem.as_str(), "https://h", "githubAppID is no number"),
        ("1234", "canary", &pem, "https://h", "githubAppInstallationID is no number"),
        ("1234", "../1", &pem, "https://h", "githubAppInstallationID is no number"),
        ("1234", "77", "canary", "https://h", "githubAppPrivateKey is no RSA key in PEM"),
        ("1234", "77", &pem, "ftp://h", "githubAppBaseURL is no URL"),
        ("1234", "77", &pem, "https://u:canary@h", "githubAppBaseURL is no URL"),
    ] {
        let error = GitHubApp::new(id, installation, key.as_bytes(), Some(api)).unwrap_err();
        assert!(error.problem.contains(problem), "{error}");
        assert!(error.hint.is_some() && !format!("{error:?}").contains("canary"), "{error:?}");
    }
    assert!(GitHubApp::new("Iv1.0123456789abcdef", "77", pem.as_bytes(), None).is_ok());
}
