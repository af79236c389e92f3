use serde_json::{Value, json};

use super::*;

const CANARY: &str = "canary-password";

fn image(text: &str) -> Image {
    text.parse().expect("an image")
}

fn read(auths: &Value, at: &str) -> Result<Login, String> {
    login(json!({"auths": auths, "credsStore": "x"}).to_string().as_bytes(), &image(at))
}

fn password(user: &str, password: &str) -> Login {
    Login::Password { user: user.into(), password: password.into() }
}

#[test]
fn b5_each_form_of_credentials_is_read() {
    let entry = |entry: Value| read(&json!({"r.example": entry}), "r.example/a").expect("a login");
    assert_eq!(entry(json!({"auth": STANDARD.encode("u:p:q")})), password("u", "p:q"));
    assert_eq!(entry(json!({"username": "u", "password": "p"})), password("u", "p"));
    assert_eq!(
        entry(json!({"auth": "", "username": "u", "password": "p", "email": "x"})),
        password("u", "p")
    );
    let token = json!({"auth": STANDARD.encode("<token>:"), "identitytoken": "t"});
    assert_eq!(entry(token), Login::IdentityToken("t".into()));
    assert!(entry(json!({})).is_anonymous());
    assert!(login(b"{}", &image("r.example/a")).expect("none").is_anonymous());
    let value = password("user", "pass").basic().expect("a header");
    assert_eq!(value.to_str().ok(), Some("Basic dXNlcjpwYXNz"));
    assert!(value.is_sensitive() && Login::IdentityToken("t".into()).basic().is_none());
}

#[test]
fn b5_credentials_are_for_the_registry_of_their_key() {
    for (key, at, is_for) in [
        ("r.example", "r.example/a", true),
        ("https://r.example", "r.example/a", true),
        ("https://r.example/v2/", "r.example/a", true),
        ("R.Example", "r.example/a", true),
        ("r.example:5000", "r.example:5000/a", true),
        ("r.example/team", "r.example/team/a", true),
        ("r.example/team/a", "r.example/team/a", true),
        ("https://index.docker.io/v1/", "docker.io/team/a", true),
        ("r.example", "r.example:5000/a", false),
        ("r.example:5000", "r.example/a", false),
        ("r.example", "x.r.example/a", false),
        ("r.example", "r.example.evil/a", false),
        ("r.example/team", "r.example/teams/a", false),
        ("r.example/team/a", "r.example/team", false),
        ("https://index.docker.io/v1/", "r.example/a", false),
        ("", "r.example/a", false),
    ] {
        let found = read(&json!({key: {"username": "u", "password": "p"}}), at).expect("readable");
        assert_eq!(!found.is_anonymous(), is_for, "{key} for {at}");
    }
    let both = json!({
        "r.example": {"username": "all", "password": "p"},
        "r.example/team": {"username": "team", "password": "p"},
    });
    assert_eq!(read(&both, "r.example/team/a"), Ok(password("team", "p")));
    assert_eq!(read(&both, "r.example/other"), Ok(password("all", "p")));
}

#[test]
fn b5_no_error_and_no_debug_output_has_a_credential() {
    let bad = [
        json!({"auths": {"r.example": CANARY}}).to_string(),
        json!({"auths": {"r.example": {"auth": [CANARY]}}}).to_string(),
        json!({"auths": {"r.example": {"auth": CANARY}}}).to_string(),
        json!({"auths": {"r.example": {"auth": STANDARD.encode(CANARY)}}}).to_string(),
        json!({"auths": CANARY}).to_string(),
        format!("{CANARY} {{"),
    ];
    for config in bad {
        let said = login(config.as_bytes(), &image("r.example/a")).expect_err(&config);
        assert!(said.starts_with("config.json") && !said.contains(CANARY), "{said}");
        assert!(!said.contains(&STANDARD.encode(CANARY)), "{said}");
    }
    let login = password("user", CANARY);
    let whole = Credentials { login: login.clone(), roots: None };
    let printed = format!("{login:?} {whole:?} {:?}", login.basic());
    assert!(!printed.contains(CANARY) && !printed.contains("Basic"), "{printed}");
    let told = format!("you sent {CANARY} and {}", STANDARD.encode(format!("user:{CANARY}")));
    assert_eq!(login.hidden(told), "you sent (not shown) and (not shown)");
    assert_eq!(Login::IdentityToken(CANARY.into()).hidden(CANARY.into()), HIDDEN);
}

#[test]
fn b5_what_a_registry_asks_for_is_read() {
    let ask = |values: &[&str]| challenge(values.iter().copied());
    let bearer = |realm: &str, service: Option<&str>| {
        Some(Challenge::Bearer { realm: realm.into(), service: service.map(str::to_owned) })
    };
    assert_eq!(
        ask(&[r#"Bearer realm="https://a/t?x=1,2",service="s \"q\"",scope="repository:x:pull""#]),
        bearer("https://a/t?x=1,2", Some("s \"q\""))
    );
    assert_eq!(ask(&["bearer REALM=\"https://a/\""]), bearer("https://a/", None));
    assert_eq!(ask(&["Basic realm=\"x\""]), Some(Challenge::Basic));
    assert_eq!(
        ask(&["Basic realm=\"x\", Bearer realm=\"https://a/\""]),
        bearer("https://a/", None)
    );
    assert_eq!(ask(&["Negotiate", "Basic realm=\"x\""]), Some(Challenge::Basic));
    for value in
        ["", "Bearer", "Bearer service=\"s\"", "Digest realm=\"x\"", "Bearer realm=\"x", "é"]
    {
        assert_eq!(ask(&[value]), None, "{value}");
    }
}

#[test]
fn b5_credentials_go_to_a_token_service_over_https_only() {
    let at =
        |registry: &str, realm: &str| token_service(&Url::parse(registry).expect("a URL"), realm);
    let (https, http) = ("https://r.example/v2/", "http://r.example:5000/v2/");
    for (registry, realm) in [
        (https, "https://auth.example/token?x=1"),
        (https, "https://r.example/token"),
        (http, "https://auth.example/token"),
        (http, "http://r.example:5001/token"),
    ] {
        assert_eq!(at(registry, realm).map(String::from), Ok(realm.to_owned()));
    }
    for (registry, realm) in [
        (https, "http://r.example/token"),
        (https, "http://auth.example/token"),
        (http, "http://auth.example/token"),
        (http, "http://r.example.evil/token"),
        (https, "ftp://auth.example/"),
        (https, "file:///etc/passwd"),
        (https, "/token"),
        (https, "https://user@auth.example/"),
        (https, ""),
    ] {
        at(registry, realm).expect_err(realm);
    }
    let said = at(http, "http://auth.example/token").expect_err("plain http elsewhere");
    assert_eq!(
        said,
        "the token service is at http://auth.example: credentials are not sent there over plain http"
    );
}

#[test]
fn b5_a_token_is_read_under_both_names() {
    let read = |answer: &str| {
        token(answer.as_bytes()).and_then(|value| Some(value.to_str().ok()?.to_owned()))
    };
    assert_eq!(
        read(r#"{"token":"a","access_token":"b","expires_in":60}"#).as_deref(),
        Some("Bearer a")
    );
    assert_eq!(read(r#"{"access_token":"b"}"#).as_deref(), Some("Bearer b"));
    for answer in ["{}", r#"{"token":""}"#, r#"{"token":"a\nb"}"#, r#"{"token":1}"#, "", "[]"] {
        assert_eq!(read(answer), None, "{answer}");
    }
}
