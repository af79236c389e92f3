#![allow(clippy::expect_used, clippy::panic)]

use super::*;

/// What is different from the usual.
struct Change {
    namespace: &'static str,
    service_account: Option<&'static str>,
    operator: (&'static str, &'static str),
    secret: &'static [(&'static str, &'static str)],
    proxy: &'static [(&'static str, &'static str)],
    model_keys: bool,
    builds: bool,
}

const USUAL: Change = Change {
    namespace: "newsroom",
    service_account: Some("convoke-sync"),
    operator: ("convoke-system", "convoke"),
    secret: &[],
    proxy: &[],
    model_keys: false,
    builds: false,
};

fn rendered(change: &Change) -> String {
    try_render(change).unwrap_or_else(|failure| panic!("{failure:?}"))
}

fn try_render(change: &Change) -> Result<String, Failure> {
    let (namespace, name) = change.operator;
    let data = |values: &[(&str, &str)]| {
        values.iter().map(|(key, value)| ((*key).to_owned(), (*value).into())).collect()
    };
    let given = Given {
        name: "news",
        namespace: change.namespace,
        url: "https://git.example.com:8443/newsroom/agents.git",
        reference: &GitRef::default(),
        path: ".",
        service_account: change.service_account,
        operator: &Account { namespace: namespace.into(), name: name.into() },
        secret: &data(change.secret),
        proxy: &data(change.proxy),
        model_keys: change.model_keys,
        builds: change.builds,
    };
    render(&given)
}

/// Kind and name of each object.
fn objects(text: &str) -> Vec<String> {
    let documents = text.split("---\n").filter(|document| !document.trim().is_empty());
    let name = |document: &str| {
        let value: Value = serde_saphyr::from_str(document).expect("YAML");
        assert_eq!(value["metadata"]["namespace"], "newsroom", "{document}");
        format!("{}/{}", value["kind"], value["metadata"]["name"]).replace('"', "")
    };
    documents.map(name).collect()
}

#[test]
fn d7_a_public_repository_needs_no_secret() {
    let text = rendered(&USUAL);
    insta::assert_snapshot!(text);
    assert!(!text.contains("team-a"));
}

#[test]
fn d7_a_private_repository_gets_a_secret_and_the_right_to_read_it() {
    let text = rendered(&Change { secret: &[("token", "s3cret")], ..USUAL });
    let all = objects(&text);
    for wanted in
        ["Role/convoke-git-news-git", "RoleBinding/convoke-git-news-git", "Secret/news-git"]
    {
        assert!(all.iter().any(|name| name == wanted), "{wanted}: {all:?}");
    }
    assert!(text.contains("convoke.dev/git-origins: https://git.example.com:8443\n"), "{text}");
    assert!(!text.contains("s3cret"));
}

#[test]
fn d7_a_proxy_gets_a_secret_of_its_own() {
    let text = rendered(&Change { proxy: &[("address", "http://proxy:3128")], ..USUAL });
    let all = objects(&text);
    assert!(all.contains(&"Secret/news-proxy".to_owned()), "{all:?}");
    assert!(all.contains(&"Role/convoke-git-news-proxy".to_owned()), "{all:?}");
    assert!(!text.contains("news-git"));
}

#[test]
fn d7_an_operator_that_writes_with_its_own_rights_needs_no_account() {
    let all = objects(&rendered(&Change { service_account: None, ..USUAL }));
    assert_eq!(all, ["Role/convoke-ask", "GitSync/news"]);
}

#[test]
fn d7_secrets_are_opened_to_the_operator_only_for_model_keys() {
    let keys = "RoleBinding/convoke-keys".to_owned();
    assert!(!objects(&rendered(&USUAL)).contains(&keys));
    assert!(objects(&rendered(&Change { model_keys: true, ..USUAL })).contains(&keys));
}

#[test]
fn d7_credentials_are_copied_and_logs_are_read_only_for_builds() {
    let without = objects(&rendered(&USUAL));
    let with = objects(&rendered(&Change { builds: true, ..USUAL }));
    for name in ["convoke-builds", "convoke-build-logs"] {
        let binding = format!("RoleBinding/{name}");
        assert!(!without.contains(&binding) && with.contains(&binding), "{without:?} {with:?}");
    }
}

#[test]
fn d7_other_names_are_used_everywhere() {
    let (operator, service_account) = (("tools", "team-a"), Some("writer"));
    let text = rendered(&Change { service_account, operator, ..USUAL });
    let all = objects(&text);
    assert!(all.contains(&"Role/convoke-act-as-writer".to_owned()), "{all:?}");
    assert!(text.contains("name: team-a, namespace: tools"), "{text}");
    assert!(!text.contains("convoke-sync") && !text.contains("convoke-system"), "{text}");
}

#[test]
fn d7_names_that_yaml_reads_as_something_else_are_quoted() {
    for namespace in ["no", "123", "null", "1e3", "2026-11-28"] {
        let (service_account, operator) = (Some("on"), ("off", "0x1f"));
        let text = rendered(&Change { namespace, service_account, operator, ..USUAL });
        for document in text.split("---\n").filter(|document| !document.trim().is_empty()) {
            let value: Value = serde_saphyr::from_str(document).expect("YAML");
            assert_eq!(value["metadata"]["namespace"], namespace, "{document}");
        }
        for wanted in [
            format!("  namespace: \"{namespace}\"\n"),
            "resourceNames: [\"on\"]\n".to_owned(),
            "name: convoke-act-as-on\n".to_owned(),
            format!("kind: ServiceAccount, name: \"on\", namespace: \"{namespace}\"}}"),
            "name: \"0x1f\", namespace: \"off\"}".to_owned(),
        ] {
            assert!(text.contains(&wanted), "{wanted}: {text}");
        }
    }
}

#[test]
fn d7_no_two_objects_have_one_name() {
    for name in [
        "convoke-ask",
        "convoke-keys",
        "convoke-builds",
        "convoke-git-news-git",
        "convoke-git-news-proxy",
    ] {
        let failure = try_render(&Change { service_account: Some(name), ..USUAL }).expect_err(name);
        assert!(failure.message.contains(name), "{failure:?}");
    }
    let secret: &[_] = &[("token", "x")];
    let mut all = objects(&rendered(&Change { secret, proxy: &[("address", "x")], ..USUAL }));
    let count = all.len();
    all.sort();
    all.dedup();
    assert_eq!(all.len(), count, "{all:?}");
}
