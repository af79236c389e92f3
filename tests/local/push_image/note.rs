//! What the operator asks a registry, and the notes that it leaves there.

use std::time::{Duration, Instant};

use convoke::net::{Dialler, Endpoint, Policy};
use convoke::registry::auth::Login;
use convoke::registry::client::Options;
use convoke::registry::{Credentials, Digest, Registry as Client, RegistryError, Tag};

use super::server::{Registry, Settings};
use super::stand_in::StandIn;
use super::*;

/// How long a client may take in all.
const TOTAL: Duration = Duration::from_secs(5);

/// A client as the operator has it: it reaches this host because it is named.
pub(super) fn client(host: &str, login: Login) -> Client {
    let (name, port) = host.rsplit_once(':').expect("a port");
    let trusted = vec![Endpoint::new(name, port.parse().expect("a port"))];
    let dialler = Dialler::new(Policy::default()).trusting(trusted);
    let credentials = Credentials { login, roots: None };
    let options = Options { plain_http: true, credentials, total: TOTAL };
    let image = format!("{host}/team/app").parse().expect("an image");
    Client::new(dialler, image, options).expect("a client")
}

pub(super) fn tag(text: &str) -> Tag {
    text.parse().expect("a tag")
}

/// A manifest that names only the empty blob.
pub(super) fn note(text: &str) -> Vec<u8> {
    let empty = json!({"mediaType": "application/vnd.oci.empty.v1+json", "size": 2, "digest": digest(b"{}")});
    let annotations = json!({"text": text});
    json!({"schemaVersion": 2, "mediaType": MANIFEST, "artifactType": "application/vnd.test",
        "config": empty, "layers": [empty], "annotations": annotations})
    .to_string()
    .into_bytes()
}

fn of(bytes: &[u8]) -> Digest {
    Digest::of(bytes)
}

#[tokio::test(flavor = "multi_thread")]
async fn b1_a_note_is_pushed_and_read_again_and_a_manifest_is_found_by_its_digest() {
    let Some(registry) = Registry::start(&Settings::default()) else { return };
    let mut client = client(&registry.host(), Login::Anonymous);
    let (one, two) = (note("one"), note("two"));
    assert_eq!(client.manifest(&tag("a")).await, Ok(None));
    assert_eq!(client.has_manifest(&of(&one)).await, Ok(false));
    client.push_note(&one, &tag("a")).await.expect("pushed");
    assert_eq!(client.manifest(&tag("a")).await, Ok(Some(one.clone())), "{}", registry.log());
    assert_eq!(client.has_manifest(&of(&one)).await, Ok(true));
    assert_eq!(client.manifest(&tag("b")).await, Ok(None));
    // A tag moves; what it named stays.
    client.push_note(&two, &tag("a")).await.expect("pushed");
    assert_eq!(client.manifest(&tag("a")).await, Ok(Some(two.clone())));
    assert_eq!(
        (client.has_manifest(&of(&one)).await, client.has_manifest(&of(&two)).await),
        (Ok(true), Ok(true))
    );
    let puts: Vec<_> =
        registry.requests().into_iter().filter(|one| one.starts_with("PUT")).collect();
    assert_eq!(
        puts.iter().filter(|one| one.contains("/uploads/")).count(),
        1,
        "the blob is sent once: {puts:?}"
    );
    // An image that was pushed as builds do it is found, too.
    let layout = Layout::usual("x");
    let image = format!("{}/team/app", registry.host());
    let run = push(layout.dir.path(), &image, &["--tag", "cvk-1", "--insecure", "true"]);
    assert_eq!(run.code, 0, "{run:?}");
    let pushed: Digest = layout.digest().parse().expect("a digest");
    assert_eq!(client.has_manifest(&pushed).await, Ok(true));
}

#[tokio::test(flavor = "multi_thread")]
async fn b1_a_registry_with_a_password_is_asked_with_it() {
    let Some(registry) = Registry::start(&Settings { password: true, ..Settings::default() })
    else {
        return;
    };
    let login = |password: &str| Login::Password { user: USER.into(), password: password.into() };
    let mut right = client(&registry.host(), login(PASSWORD));
    right.push_note(&note("x"), &tag("a")).await.expect("pushed");
    assert_eq!(right.manifest(&tag("a")).await, Ok(Some(note("x"))));
    for login in [Login::Anonymous, login("wrong")] {
        let mut wrong = client(&registry.host(), login);
        let error = wrong.manifest(&tag("a")).await.expect_err("no right");
        assert!(matches!(error, RegistryError::Refused { status: 401, .. }), "{error}");
        assert!(!error.may_pass() && wrong.has_manifest(&of(b"x")).await.is_err());
        wrong.push_note(&note("y"), &tag("a")).await.expect_err("no right");
    }
    assert_eq!(right.manifest(&tag("a")).await, Ok(Some(note("x"))), "nobody else has written");
}

#[tokio::test(flavor = "multi_thread")]
async fn b1_a_registry_that_is_slow_or_says_too_much_ends_in_time() {
    // Accepts, and says nothing.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let host = silent.local_addr().expect("an address").to_string();
    let began = Instant::now();
    let error = client(&host, Login::Anonymous).manifest(&tag("a")).await.expect_err("no answer");
    assert!(error.may_pass() && error.to_string().contains("the time is over"), "{error}");
    assert!(began.elapsed() < 3 * TOTAL, "{:?}", began.elapsed());
    let mut pushing = client(&host, Login::Anonymous);
    let began = Instant::now();
    pushing.push_note(&note("x"), &tag("a")).await.expect_err("no answer");
    assert!(began.elapsed() < 3 * TOTAL, "{:?}", began.elapsed());
    // Nobody is there.
    drop(silent);
    let error = client(&host, Login::Anonymous).manifest(&tag("a")).await.expect_err("nobody");
    assert!(error.may_pass(), "{error}");
    // An answer without an end: a part of it is read.
    let server = StandIn::start(|_, _| Some((200, Vec::new(), "x".repeat(9 << 20)))).await;
    let found = client(&server.address.to_string(), Login::Anonymous).manifest(&tag("a")).await;
    assert_eq!(found.map(|body| body.map(|body| body.len())), Ok(Some(1 << 20)));
    // A redirect is not followed.
    let elsewhere = StandIn::start(|_, _| Some((200, Vec::new(), String::new()))).await;
    let place = format!("http://{}/v2/team/app/manifests/a", elsewhere.address);
    let server =
        StandIn::start(move |_, _| Some((307, vec![("location", place.clone())], String::new())))
            .await;
    let mut client = client(&server.address.to_string(), Login::Anonymous);
    client.manifest(&tag("a")).await.expect_err("a redirect");
    assert!(client.has_manifest(&of(b"x")).await.is_err());
    assert!(elsewhere.asked().is_empty());
}

#[tokio::test]
async fn b1_a_registry_inside_the_network_is_asked_only_if_it_is_the_operators_own() {
    let Some(registry) = Registry::start(&Settings::default()) else { return };
    let host = registry.host();
    let options =
        || Options { plain_http: true, credentials: Credentials::default(), total: TOTAL };
    let other = Dialler::new(Policy::default()).trusting(vec![Endpoint::new("127.0.0.1", 1)]);
    for dialler in [Dialler::new(Policy::default()), other] {
        let image = format!("{host}/team/app").parse().expect("an image");
        let error = Client::new(dialler, image, options()).expect_err("not dialled");
        assert!(matches!(error, RegistryError::NotUsed { .. }), "{error}");
    }
    assert!(registry.requests().is_empty());
    assert_eq!(client(&host, Login::Anonymous).manifest(&tag("a")).await, Ok(None));
}
