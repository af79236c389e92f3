//! Token services, servers that want credentials elsewhere, and servers that are busy. The servers are stand-ins that follow the
//! protocol's documentation: Debian's registry brings no token service.

use super::stand_in::{Answer, Asked, StandIn};
use super::*;

const TOKEN: &str = "canary-token-0815";

/// The answer that asks for a token of a service.
fn challenge(realm: &str) -> Answer {
    let value = format!(
        "Bearer realm=\"{realm}\",service=\"the registry\",scope=\"repository:other:pull\""
    );
    let body = r#"{"errors":[{"code":"UNAUTHORIZED","message":"authentication required"}]}"#;
    (401, vec![("www-authenticate", value)], body.into())
}

/// A registry that takes the token, and names this token service.
async fn registry(realm: String) -> StandIn {
    StandIn::start(move |asked, _| {
        (asked.authorization != format!("Bearer {TOKEN}")).then(|| challenge(&realm))
    })
    .await
}

/// A token service: for the right password it gives the token, for a wrong one HTTP 401.
async fn tokens() -> StandIn {
    StandIn::start(|asked, _| {
        let is_refresh = asked.line.starts_with("POST")
            && String::from_utf8_lossy(&asked.body).contains("refresh_token=identity-canary");
        let good = asked.authorization == format!("Basic {}", basic(PASSWORD)) || is_refresh;
        // Some servers repeat what they were sent.
        let encoded = asked.authorization.trim_start_matches("Basic ");
        let decoded = STANDARD.decode(encoded).unwrap_or_default();
        let said = format!("not you: {encoded} {}", String::from_utf8_lossy(&decoded));
        Some(if good {
            (200, vec![], json!({"token": TOKEN, "expires_in": 300}).to_string())
        } else {
            (
                401,
                vec![],
                json!({"errors": [{"code": "UNAUTHORIZED", "message": said}]}).to_string(),
            )
        })
    })
    .await
}

/// Pushes to a stand-in.
async fn pushed(registry: &StandIn, folder: Option<&TempDir>) -> Run {
    let image = format!("{}/team/app", registry.address);
    let folder = folder.map(|folder| text(folder.path()).to_owned()).unwrap_or_default();
    let pushing = move || {
        let layout = Layout::usual("x");
        let run = push(
            layout.dir.path(),
            &image,
            &["--tag", "a", "--insecure", "true", "--auth", &folder],
        );
        assert!(!run.said().contains(TOKEN) && !run.said().contains("identity-canary"), "{run:?}");
        run
    };
    tokio::task::spawn_blocking(pushing).await.expect("a run")
}

fn has_credentials(asked: &Asked) -> bool {
    let all =
        format!("{} {} {}", asked.line, asked.authorization, String::from_utf8_lossy(&asked.body));
    [PASSWORD, &basic(PASSWORD), "identity-canary"].iter().any(|secret| all.contains(secret))
}

#[tokio::test(flavor = "multi_thread")]
async fn b5_a_token_service_gives_the_token_for_the_registry() {
    let service = tokens().await;
    let registry = registry(format!("http://{}/token?account=x", service.address)).await;
    let host = registry.address.to_string();
    let run = pushed(&registry, Some(&password(&host, PASSWORD))).await;
    assert_eq!(run.code, 0, "{run:?}");
    // One token does for all requests, and it is for this image only.
    let asked = service.asked();
    assert_eq!(asked.len(), 1, "{asked:?}");
    assert_eq!(
        asked[0].line,
        "GET /token?account=x&service=the+registry&scope=repository%3Ateam%2Fapp%3Apull%2Cpush"
    );
    assert!(has_credentials(&asked[0]));
    let asked = registry.asked();
    assert!(
        asked.len() > 9 && !asked.iter().any(has_credentials),
        "the registry gets the token only"
    );
    let layer = asked.iter().find(|one| one.body.len() == LARGE).expect("the large layer");
    assert!(
        layer.whole && layer.line.contains("upload?state=1&digest=sha256%3A"),
        "{}",
        layer.line
    );

    let token = auth(
        &host,
        &json!({"auth": STANDARD.encode("<token>:"), "identitytoken": "identity-canary"}),
    );
    let run = pushed(&registry, Some(&token)).await;
    assert_eq!(run.code, 0, "{run:?}");
    let asked = service.asked();
    let form = String::from_utf8_lossy(&asked[1].body).into_owned();
    assert_eq!(asked[1].line, "POST /token?account=x");
    assert!(
        form.contains("grant_type=refresh_token") && form.contains("service=the+registry"),
        "{form}"
    );

    let wrong = format!("{PASSWORD}-wrong");
    let run = pushed(&registry, Some(&password(&host, &wrong))).await;
    assert_eq!(run.code, 31, "{run:?}");
    assert!(run.err.contains("cannot get a token") && run.err.contains("HTTP 401"), "{run:?}");
    let repeated = format!("not you: (not shown) {USER}:(not shown) (");
    assert!(run.err.contains(&repeated), "{run:?}");
    let run = pushed(&registry, None).await;
    assert!(run.code == 31 && run.err.contains("there are none for it"), "{run:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn b5_a_token_service_on_another_host_over_plain_http_gets_nothing() {
    let service = tokens().await;
    for (realm, is_asked) in [
        (format!("http://localhost:{}/token", service.address.port()), false),
        (format!("http://{}/token", service.address), true),
    ] {
        let registry = registry(realm).await;
        let run = pushed(&registry, Some(&password(&registry.address.to_string(), PASSWORD))).await;
        assert_eq!(!service.asked().is_empty(), is_asked);
        if is_asked {
            // The canary is sent where it may be.
            assert!(run.code == 0 && has_credentials(&service.asked()[0]), "{run:?}");
        } else {
            assert_eq!(run.code, 31, "{run:?}");
            assert!(run.err.contains("credentials are not sent there over plain http"), "{run:?}");
            assert!(!registry.asked().iter().any(has_credentials));
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn b5_credentials_follow_no_redirect_and_no_upload_elsewhere() {
    let elsewhere = StandIn::start(|_, _| None).await;
    for (method, status) in
        [("HEAD", 301), ("HEAD", 308), ("POST", 307), ("POST", 202), ("PUT", 307)]
    {
        let to =
            format!("http://localhost:{}/v2/team/app/blobs/uploads/x", elsewhere.address.port());
        let registry = StandIn::start(move |asked, _| {
            if asked.authorization.is_empty() {
                return Some((
                    401,
                    vec![("www-authenticate", "Basic realm=\"x\"".into())],
                    String::new(),
                ));
            }
            asked
                .line
                .starts_with(method)
                .then(|| (status, vec![("location", to.clone())], String::new()))
        })
        .await;
        let run = pushed(&registry, Some(&password(&registry.address.to_string(), PASSWORD))).await;
        assert_eq!(run.code, 31, "{method} {status}: {run:?}");
        assert!(run.err.contains("http://localhost:"), "{method} {status}: {run:?}");
        assert!(registry.asked().iter().any(has_credentials), "the canary is used");
        assert_eq!(elsewhere.asked().len(), 0, "{method} {status}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn b5_a_blob_that_a_registry_redirects_is_there() {
    let registry = StandIn::start(|asked, _| {
        asked
            .line
            .starts_with("HEAD")
            .then(|| (307, vec![("location", "https://storage.example/x".into())], String::new()))
    })
    .await;
    let run = pushed(&registry, None).await;
    assert!(run.code == 0 && run.out.contains("2 of 2 layers were there"), "{run:?}");
    assert!(!registry.asked().iter().any(|asked| asked.line.contains("uploads")));
}

#[tokio::test(flavor = "multi_thread")]
async fn b5_what_a_registry_refuses_is_told_and_what_may_pass_is_tried_again() {
    let busy = |status: u16| {
        move |asked: &Asked, before: usize| {
            let is_first = before == 0 && !asked.line.starts_with("GET");
            is_first.then(|| (status, vec![("retry-after", "0".into())], String::new()))
        }
    };
    for status in [429, 503] {
        let registry = StandIn::start(busy(status)).await;
        let run = pushed(&registry, None).await;
        assert_eq!(run.code, 0, "{status}: {run:?}");
    }
    let always = StandIn::start(|_, _| Some((502, vec![], "<html>bad</html>".into()))).await;
    let run = pushed(&always, None).await;
    assert!(run.code == 32 && run.err.contains("HTTP 502"), "{run:?}");
    assert_eq!(always.asked().len(), 4, "a few tries");
    let denied = StandIn::start(|asked, _| {
        let body = format!(
            "{{\"errors\":[{{\"code\":\"DENIED\",\"message\":\"no \\u001b[2J{}\"}}]}}",
            "x".repeat(5000)
        );
        asked.line.contains("manifests").then(|| (403, vec![], body))
    })
    .await;
    let run = pushed(&denied, None).await;
    assert!(run.code == 31 && run.err.contains("HTTP 403: DENIED: no [2Jxxx"), "{run:?}");
    assert!(run.err.contains("/team/app:a: ") && run.err.len() < 600, "{run:?}");
    let other = StandIn::start(|asked, _| {
        let wrong = format!("sha256:{}", "0".repeat(64));
        asked
            .line
            .contains("manifests")
            .then(|| (201, vec![("docker-content-digest", wrong)], String::new()))
    })
    .await;
    let run = pushed(&other, None).await;
    assert!(run.code == 31 && run.err.contains("has stored sha256:0000"), "{run:?}");
}

/// The last bytes of a blob leave only when all of it is right.
#[tokio::test(flavor = "multi_thread")]
async fn b5_a_registry_never_gets_the_whole_of_a_wrong_blob() {
    for number in [0, 1] {
        let registry = StandIn::start(|_, _| None).await;
        let layout = Layout::usual("x");
        let file = layout.file(&layout.layer(number));
        let mut bytes = std::fs::read(&file).expect("a blob");
        bytes[0] ^= 1;
        std::fs::write(&file, &bytes).expect("a blob");
        let image = format!("{}/team/app", registry.address);
        let run = tokio::task::spawn_blocking(move || {
            push(layout.dir.path(), &image, &["--tag", "a", "--insecure", "true"])
        });
        let run = run.await.expect("a run");
        assert_eq!(run.code, 33, "{run:?}");
        let asked = registry.asked();
        let whole = asked.iter().filter(|one| one.line.starts_with("PUT") && one.whole).count();
        // The small one is known to be wrong before it is sent. The large one comes after it.
        assert_eq!(whole, number, "{asked:?}");
    }
}
