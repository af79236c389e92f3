//! A real registry with a token service. The service is a script of the tests, as its specification says; the registry checks what it signs.

use std::time::{Duration, Instant};

use convoke::net::{Dialler, Policy};
use convoke::registry::auth::Login;
use convoke::registry::client::Options;
use convoke::registry::{Credentials, Digest, Registry as Client, RegistryError};

use super::note::{client as trusting, note, tag};
use super::server::{Registry, Settings};
use super::token_service::{Asked, SERVICE, TokenService};
use super::*;

/// A registry that takes the tokens of a service. `None` without a registry.
async fn start() -> Option<(Registry, TokenService)> {
    let service = TokenService::start(USER, PASSWORD).await;
    let settings = Settings { tokens: Some(service.for_registry()), ..Settings::default() };
    let registry = Registry::start(&settings)?;
    Some((registry, service))
}

/// A client of `team/app` that knows the user.
fn user(registry: &Registry, password: &str) -> Client {
    // The token service is on loopback, too.
    let dialler = Dialler::new(Policy { insecure: true, ..Policy::default() });
    let credentials = Credentials { login: login(password), roots: None };
    let options = Options { plain_http: true, credentials, total: Duration::from_secs(20) };
    let image = format!("{}/team/app", registry.host()).parse().expect("an image");
    Client::new(dialler, image, options).expect("a client")
}

fn login(password: &str) -> Login {
    Login::Password { user: USER.into(), password: password.into() }
}

fn asked(scope: &str) -> Asked {
    let scopes = vec![format!("repository:team/app:{scope}")];
    Asked { service: SERVICE.into(), scopes, is_known: true }
}

#[tokio::test(flavor = "multi_thread")]
async fn b1_b5_a_registry_with_a_token_service_is_asked_and_written_with_one_token() {
    let Some((registry, service)) = start().await else { return };
    let mut client = user(&registry, PASSWORD);
    let (one, two) = (note("one"), note("two"));
    assert_eq!(client.manifest(&tag("a")).await, Ok(None), "{}", registry.log());
    client.push_note(&one, &tag("a")).await.expect("pushed");
    client.push_note(&two, &tag("b")).await.expect("pushed");
    assert_eq!(client.manifest(&tag("a")).await, Ok(Some(one.clone())));
    let (first, second) = (Digest::of(&one), Digest::of(&two));
    assert_eq!(client.has_manifest(&first).await, Ok(true));
    assert_eq!(client.digest_of("b").await, Ok(Some(second.clone())));
    // A tag moves, once.
    assert_eq!(client.retag(&tag("b"), &first).await, Ok(true));
    assert_eq!(client.retag(&tag("b"), &first).await, Ok(false));
    assert_eq!(client.digest_of("b").await, Ok(Some(first)));
    assert_eq!(client.has_manifest(&second).await, Ok(true), "what it named stays");
    let missing = Digest::of(b"nothing");
    let error = client.retag(&tag("b"), &missing).await.expect_err("it is not there");
    assert!(matches!(error, RegistryError::Refused { status: 404, .. }), "{error}");
    assert_eq!(service.asked(), [asked("pull,push")]);
}

#[tokio::test(flavor = "multi_thread")]
async fn b1_b5_a_token_is_for_what_a_client_does_and_for_no_more() {
    let Some((registry, service)) = start().await else { return };
    user(&registry, PASSWORD).push_note(&note("one"), &tag("a")).await.expect("pushed");
    // One that only reads asks for nothing else, and can do nothing else.
    let mut reader = user(&registry, PASSWORD).read_only();
    assert_eq!(reader.manifest(&tag("a")).await, Ok(Some(note("one"))));
    assert_eq!(service.asked()[1..], [asked("pull")]);
    let refused = |error: RegistryError| {
        let said = error.to_string();
        assert!(matches!(error, RegistryError::Refused { status: 401, .. }), "{said}");
        assert!(!said.contains(PASSWORD) && !said.contains(&basic(PASSWORD)), "{said}");
    };
    refused(reader.push_note(&note("two"), &tag("b")).await.expect_err("it may not push"));
    assert_eq!(service.asked().len(), 3, "it has signed in once more, and not again and again");
    // A user who may only read gets no more, whatever is asked.
    service.let_push(false);
    let mut other = user(&registry, PASSWORD);
    assert_eq!(other.manifest(&tag("a")).await, Ok(Some(note("one"))));
    refused(other.push_note(&note("two"), &tag("b")).await.expect_err("no right"));
    let before = service.asked().len();
    refused(user(&registry, "wrong").manifest(&tag("a")).await.expect_err("a wrong password"));
    assert_eq!(service.asked().len(), before + 1);
    assert_eq!(other.manifest(&tag("b")).await, Ok(None), "nothing was pushed");
}

#[tokio::test(flavor = "multi_thread")]
async fn b1_b5_a_token_that_has_ended_is_renewed() {
    let Some((registry, service)) = start().await else { return };
    service.let_live(1);
    let mut client = user(&registry, PASSWORD);
    client.push_note(&note("one"), &tag("a")).await.expect("pushed");
    let ends = Instant::now() + Duration::from_secs(20);
    let before = service.asked().len();
    // Nothing tells that a token has ended but an answer of the registry.
    while service.asked().len() == before {
        assert!(Instant::now() < ends, "{}", registry.log());
        assert_eq!(client.manifest(&tag("a")).await, Ok(Some(note("one"))));
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert_eq!(service.asked().last(), Some(&asked("pull,push")));
    client.push_note(&note("two"), &tag("b")).await.expect("pushed with the next one");
}

#[tokio::test(flavor = "multi_thread")]
async fn b5_an_image_is_pushed_with_a_token() {
    let Some((registry, service)) = start().await else { return };
    let (host, layout) = (registry.host(), Layout::usual("tokens"));
    let credentials = password(&host, PASSWORD);
    let image = format!("{host}/team/app");
    let more = ["--tag", "1", "--insecure", "true", "--auth", text(credentials.path())];
    let run = push(layout.dir.path(), &image, &more);
    assert_eq!(run.code, 0, "{run:?}\n{}", registry.log());
    let mut client = user(&registry, PASSWORD);
    let there = client.digest_of("1").await.expect("an answer").map(|digest| digest.to_string());
    assert_eq!(there, Some(layout.digest()));
    assert_eq!(service.asked()[0], asked("pull,push"));
}

#[tokio::test(flavor = "multi_thread")]
async fn b5_a_token_service_at_an_address_that_may_not_be_dialled_gets_no_credentials() {
    let Some((registry, service)) = start().await else { return };
    // It trusts the registry, and not whom the registry names.
    let mut client = trusting(&registry.host(), login(PASSWORD));
    let error = client.manifest(&tag("a")).await.expect_err("its address is private");
    let said = error.to_string();
    assert!(
        matches!(error, RegistryError::NotUsed { .. }) && said.contains("may not be dialled"),
        "{said}"
    );
    assert_eq!(service.asked(), []);
}
