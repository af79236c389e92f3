use super::*;

const REGISTRY: &str = "registry.example.com:5000";

fn of(data: &[(&str, &str)]) -> Result<BTreeMap<&'static str, String>, String> {
    let data = data.iter().map(|(key, value)| ((*key).to_owned(), value.as_bytes().to_vec()));
    of_base(data.collect(), None)
}

/// The same with a base image.
fn with_base(
    data: &[(&str, &str)],
    base: &str,
    annotation: &str,
) -> Result<BTreeMap<&'static str, String>, String> {
    let spec: AgentBuildSpec = serde_json::from_value(json!({
        "source": {"gitSync": {}}, "output": {"image": "team-b/reviewer", "insecure": true},
        "strategy": "Append", "append": {"baseImage": base},
    }))
    .expect("a spec");
    let base = BaseImage::of(&spec, annotation, &format!("{REGISTRY}/team-b/reviewer"));
    let data = data.iter().map(|(key, value)| ((*key).to_owned(), value.as_bytes().to_vec()));
    of_base(data.collect(), base.as_ref())
}

fn of_base(
    data: BTreeMap<String, Vec<u8>>,
    base: Option<&BaseImage>,
) -> Result<BTreeMap<&'static str, String>, String> {
    let files = files(&data, &format!("{REGISTRY}/team-b/reviewer"), base)?;
    assert!(!format!("{files:?}").contains("canary"), "{files:?}");
    Ok(files.iter().map(|(name, value)| (*name, value.get().clone())).collect())
}

fn docker(auths: &Value) -> String {
    json!({ "auths": auths }).to_string()
}

#[test]
fn b5_credentials_of_one_registry_reach_the_push_and_no_others() {
    let ours = json!({"auth": "dTpjYW5hcnk=", "email": "not needed"});
    let other = json!({"auth": "b3RoZXI="});
    let config = docker(&json!({"ghcr.io": other, "https://registry.example.com:5000/v2/": ours}));
    let files = of(&[(DOCKER_CONFIG, &config)]).expect("files");
    let want = json!({"auths": {REGISTRY: {"auth": "dTpjYW5hcnk="}}}).to_string();
    assert_eq!(files, BTreeMap::from([("config.json", want)]));
    let files = of(&[("username", "u"), ("password", "p"), ("ca.crt", "PEM\n")]).expect("files");
    let want = json!({"auths": {REGISTRY: {"auth": "dTpw"}}}).to_string();
    assert_eq!(files, BTreeMap::from([("config.json", want), ("ca.crt", "PEM\n".into())]));
    assert!(of(&[("ca.crt", "PEM\n")]).expect("only an authority").contains_key("ca.crt"));
}

#[test]
fn b5_b11_a_base_image_is_pulled_with_the_credentials_that_the_annotation_gives() {
    let auths = |files: BTreeMap<&'static str, String>| -> BTreeMap<String, String> {
        let config: Value = serde_json::from_str(&files["config.json"]).expect("JSON");
        let auths = config["auths"].as_object().expect("a map").iter();
        auths
            .map(|(key, entry)| (key.clone(), entry["auth"].as_str().expect("it").into()))
            .collect()
    };
    let (ours, theirs) = (STANDARD.encode("u:p"), STANDARD.encode("v:q"));
    let output = (format!("{REGISTRY}/team-b/reviewer"), ours.clone());
    let near = format!("{REGISTRY}/team-a/base");
    let of = |data: &[(&str, &str)], base: &str, allowed: &str| {
        auths(with_base(data, base, allowed).expect("files"))
    };
    let password = [("username", "u"), ("password", "p")];
    let docker = docker(&json!({REGISTRY: {"auth": ours}, "other.example": {"auth": theirs}}));
    let docker = [(DOCKER_CONFIG, docker.as_str())];
    let far = "other.example/base";
    for (data, base, allowed, want) in [
        // The registry is the same, and over plain HTTP, as the entry has to say.
        (&password[..], &near, format!("http://{REGISTRY}"), Some((near.clone(), ours.clone()))),
        (&docker, &near, format!("http://{REGISTRY}/team-a"), Some((near.clone(), ours.clone()))),
        (&password, &near, format!("http://{REGISTRY}/team-b"), None),
        (&password, &near, format!("{REGISTRY}/team-a"), None),
        // Another one: over TLS, and user and password are not for it.
        (&docker, &far.to_owned(), far.to_owned(), Some((far.to_owned(), theirs.clone()))),
        (&docker, &far.to_owned(), format!("http://{far}"), None),
        (&docker, &far.to_owned(), String::new(), None),
        (&password, &far.to_owned(), far.to_owned(), None),
        (&docker, &"nowhere.example/base".to_owned(), "nowhere.example".to_owned(), None),
    ] {
        let want: BTreeMap<_, _> = [output.clone()].into_iter().chain(want).collect();
        assert_eq!(of(data, &format!("{base}:1"), &allowed), want, "{base} {allowed}");
    }
    assert!(with_base(&[("ca.crt", "PEM\n")], "python:3.13", "").is_ok());
}

#[test]
fn b5_what_a_dockerfile_names_is_asked_for_with_the_credentials_that_the_annotation_gives() {
    let spec: AgentBuildSpec = serde_json::from_value(json!({
        "source": {"gitSync": {}}, "output": {"image": "team-b/reviewer", "insecure": true},
    }))
    .expect("a spec");
    let ours = format!("{REGISTRY}/team-b/reviewer");
    for (asked, annotation, is_allowed) in [
        ("team-b/base", format!("http://{REGISTRY}/team-b"), true),
        // The login may read it; the annotation says for what it is used.
        ("team-a/private", format!("http://{REGISTRY}/team-b"), false),
        ("team-a/private", format!("http://{REGISTRY}/team-b, http://{REGISTRY}/team-a"), true),
    ] {
        let image: Image = format!("{REGISTRY}/{asked}").parse().expect("an image");
        let base = BaseImage::named(image.clone(), &spec, &annotation, &ours);
        let data = [("username", "u"), ("password", "p")];
        let data = data.map(|(key, value)| (key.to_owned(), value.as_bytes().to_vec()));
        let files = of_base(data.into(), Some(&base)).expect("files");
        let config = files["config.json"].as_bytes();
        let login = crate::registry::auth::login(config, &image).expect("a login");
        assert_eq!(!login.is_anonymous(), is_allowed, "{asked} {annotation}");
    }
}

#[test]
fn b5_what_is_no_credential_for_a_registry_is_told_and_not_quoted() {
    let elsewhere = docker(&json!({"registry.example.com": {"auth": "canary"}}));
    let odd = docker(&json!({REGISTRY: {"auth": "canary"}}));
    let empty = docker(&json!({REGISTRY: {"auth": ""}}));
    for (data, problem) in [
        (&[("username", "canary")][..], "it has no password"),
        (&[("password", "canary")], "it has no username"),
        (&[("username", "a:canary"), ("password", "canary")], "username has a colon"),
        (&[("username", "u"), ("password", "canary\n")], "password has a line break"),
        (&[("username", "u"), ("password", "")], "password is empty"),
        (&[(DOCKER_CONFIG, "canary")], ".dockerconfigjson is not as docker writes it"),
        (&[(DOCKER_CONFIG, "{}")], "has no user and no token"),
        (&[(DOCKER_CONFIG, &elsewhere)], "has no user and no token for registry.example.com:5000"),
        (&[(DOCKER_CONFIG, &empty)], "has no user and no token"),
        (&[(DOCKER_CONFIG, &odd)], "is not the base64 of user:password"),
        (&[("token", "canary")], "it has no credentials"),
        (&[], "it has no credentials"),
    ] {
        let error = of(data).expect_err(problem);
        assert!(error.contains(problem) && !error.contains("canary"), "{error}: {problem}");
    }
}

#[test]
fn b5_a_secret_is_for_the_images_that_its_annotation_names() {
    let image = "registry.example.com:5000/team-a/reviewer";
    for allowed in [
        "registry.example.com:5000",
        "registry.example.com:5000/",
        "ghcr.io, registry.example.com:5000/team-a",
        "registry.example.com:5000/team-a/",
        "registry.example.com:5000/team-a/reviewer",
    ] {
        assert!(is_for(allowed, image, false), "{allowed}");
    }
    for refused in [
        "",
        "registry.example.com",
        "registry.example.com:50",
        "registry.example.com:5000/team",
        "registry.example.com:5000/team-a/rev",
        "https://registry.example.com:5000",
        "*",
    ] {
        assert!(!is_for(refused, image, false), "{refused}");
    }
    assert!(!is_for("registry.example.com:5000", image, true), "it was meant for TLS");
    assert!(is_for("registry.example.com:5000, http://registry.example.com:5000", image, true));
    assert!(!is_for("http://registry.example.com:5000", image, false));
}

#[test]
fn b5_the_entry_that_names_most_of_the_image_counts() {
    let entry = |name: &str| basic("u", name);
    let config = docker(&json!({
        REGISTRY: entry("all"), "registry.example.com:5000/team-a": entry("a"),
        "registry.example.com:5000/team-b": entry("b"), "registry.example.com:5000/team": entry("t"),
    }));
    let files = of(&[(DOCKER_CONFIG, &config)]).expect("files");
    assert_eq!(files["config.json"], json!({"auths": {REGISTRY: basic("u", "b")}}).to_string());
    let token = docker(&json!({REGISTRY: {"identitytoken": "t"}}));
    let files = of(&[(DOCKER_CONFIG, &token)]).expect("files");
    assert_eq!(files["config.json"], token);
    let others = docker(&json!({"registry.example.com:5000/team-a": entry("canary")}));
    assert!(of(&[(DOCKER_CONFIG, &others)]).is_err());
}
