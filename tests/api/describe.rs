//! What `kubectl describe gitsync` shows of common mistakes, whole: each names the cause, the place and what to do next.
//!
//! `INSTA_UPDATE=always cargo test --test api describe::` writes the files in `tests/api/snapshots` anew.

use k8s_openapi::api::core::v1::Secret;
use kube::api::{Api, Patch, PatchParams};
use regex::Regex;
use serde_json::{Value, json};

use crate::support::forge::ForgeServer;
use crate::support::github::{self, GitHub};
use crate::support::signing::{Signing, signed};
use crate::support::sshd::{self, Settings, Sshd, make_key};
use crate::support::team::{SOON, Team, model, ready, shared_operator};
use crate::support::{Operator, cluster, eventually};

/// A GitSync that fails, with its Secret if it has one.
pub(super) struct Case {
    pub(super) name: &'static str,
    pub(super) spec: Value,
    /// The values of the Secret of the same name, and its annotation with origins.
    pub(super) secret: Option<(Value, Option<String>)>,
    /// Whether the operator may read the Secret.
    granted: bool,
}

impl Case {
    fn new(name: &'static str, spec: Value) -> Self {
        Self { name, spec, secret: None, granted: true }
    }

    fn with(name: &'static str, mut spec: Value, values: Value, origins: &str) -> Self {
        spec["secretRef"] = json!({"name": name});
        Self { name, spec, secret: Some((values, Some(origins.to_owned()))), granted: true }
    }
}

/// The output without what differs from run to run.
pub(super) fn normal(text: &str, namespace: &str, replace: &[(&str, &str)]) -> String {
    let mut text = text.replace(namespace, "NAMESPACE");
    for (from, to) in replace {
        text = text.replace(from, to);
    }
    for (pattern, by) in [
        (r"[0-9a-f]{40}", "COMMIT"),
        (r"\b[0-9A-F]{40}\b", "KEY"),
        (r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", "TIME"),
        (r"SHA256:[A-Za-z0-9+/]{43}", "SHA256:FINGERPRINT"),
        (r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", "UID"),
        (r"(Resource Version: +)\d+", "${1}VERSION"),
        (r"((?:Apply|Fetch|Load|Plan|Resolve) Ms|Duration Ms): +\d+", "$1: MS"),
        (r"\b\d+s( \(x\d+ over \d+s\))?  +", "AGE  "),
        (r"127\.0\.0\.1:\d+", "HOST"),
        (r"\[127\.0\.0\.1\]:\d+", "[HOST]:PORT"),
        (r"[ \t]+\n", "\n"),
        (r"--serviceaccount=\S+", "--serviceaccount=OPERATOR"),
    ] {
        text = Regex::new(pattern).expect("a pattern").replace_all(&text, by).into_owned();
    }
    let lines = text.lines().filter(|line| !line.trim_start().starts_with("Manager:"));
    // The columns of events are as wide as the longest one.
    let spaces = Regex::new(r" {2,}").expect("a pattern");
    let narrow = |line: &str| {
        let body = line.trim_start();
        let indent = &line[..line.len() - body.len()];
        format!("{indent}{}", spaces.replace_all(body, "  "))
    };
    lines.map(narrow).collect::<Vec<_>>().join("\n")
}

/// Makes all of them at once, and compares what is shown of each.
async fn show(team: &Team<'_>, operator: &Operator, cases: &[Case], replace: &[(&str, &str)]) {
    let granted: Vec<_> = cases.iter().filter(|case| case.granted).map(|case| case.name).collect();
    team.grant_secrets(&granted, operator);
    let secrets: Api<Secret> = Api::namespaced(team.client.clone(), &team.namespace);
    for Case { name, secret, .. } in cases {
        let Some((values, origins)) = secret else { continue };
        let annotations =
            origins.as_ref().map(|origins| json!({"convoke.dev/git-origins": origins}));
        let object = json!({"apiVersion": "v1", "kind": "Secret",
            "metadata": {"name": name, "annotations": annotations}, "stringData": values});
        let params = PatchParams::apply("tester").force();
        secrets.patch(name, &params, &Patch::Apply(&object)).await.expect("Secret");
    }
    for case in cases {
        team.create_sync_named(case.name, case.spec.clone()).await;
    }
    let mut shown = Vec::new();
    for Case { name, .. } in cases {
        eventually(SOON, name, || async {
            let sync = team.syncs.get(name).await.expect("GitSync");
            let told =
                sync.status.as_ref().is_some_and(|status| status.observed_generation.is_some());
            let settled =
                told && ready(&sync).status == "False" && ready(&sync).reason != "Progressing";
            if settled { Ok(()) } else { Err(sync.status) }
        })
        .await;
        let describe =
            || team.cluster.kubectl(&["-n", &team.namespace, "describe", "gitsync", name]);
        // Its event comes right after its status.
        let text = eventually(SOON, "an event", || async {
            let text = describe();
            if text.contains("Warning") { Ok(text) } else { Err(text) }
        })
        .await;
        shown.push((*name, normal(&text, &team.namespace, replace)));
    }
    // They would be tried again each second, as long as other tests run.
    team.cluster.kubectl(&["-n", &team.namespace, "delete", "gitsyncs", "--all", "--wait=false"]);
    for (name, text) in shown {
        insta::assert_snapshot!(name, text);
    }
}

impl Team<'_> {
    /// Lets the operator read these Secrets.
    fn grant_secrets(&self, names: &[&str], operator: &Operator) {
        let api = "rbac.authorization.k8s.io/v1";
        let meta = json!({"name": "convoke-git", "namespace": self.namespace});
        let rules = json!([{"apiGroups": [""], "resources": ["secrets"], "resourceNames": names, "verbs": ["get"]}]);
        let role =
            json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "convoke-git"});
        let who =
            json!([{"kind": "ServiceAccount", "name": "convoke", "namespace": operator.namespace}]);
        self.cluster.apply(&json!({"apiVersion": "v1", "kind": "List", "items": [
            {"apiVersion": api, "kind": "Role", "metadata": meta, "rules": rules},
            {"apiVersion": api, "kind": "RoleBinding", "metadata": meta, "roleRef": role, "subjects": who},
        ]}));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn g2_g18_every_credential_that_fails_is_described_with_what_to_do() {
    if !sshd::is_there() {
        return;
    }
    let cluster = cluster().await;
    let operator = shared_operator(cluster).await;
    let team = Team::new(cluster, "failing", &[("m.yaml", &model("a"))]).await;
    team.want_authorization("Basic dTpw");
    let dir = tempfile::tempdir().expect("a folder");
    let (key, public) = make_key(dir.path(), "key", &["-t", "ed25519"]);
    let (locked, _) = make_key(dir.path(), "locked", &["-t", "ed25519", "-N", "secret"]);
    let (_, another) = make_key(dir.path(), "another", &["-t", "ed25519"]);
    let read = |path: &std::path::Path| std::fs::read_to_string(path).expect("a key");
    let (key, locked) = (read(&key), read(&locked));
    let server = Sshd::start_on(cluster.here, &Settings { host_keys: &["ed25519"], lines: &[] });
    let (rsa, pem) = github::key();
    let github = GitHub::start_on(cluster.here, &rsa, 3600).await;
    let (_, other_pem) = github::key();
    let nobody = std::net::TcpListener::bind((cluster.here, 0))
        .expect("a port")
        .local_addr()
        .expect("an address");
    let origin = team.url().rsplit_once('/').expect("a path").0.to_owned();
    let user = |password: &str| json!({"username": "u", "password": password});
    let plain = || json!({});
    let ssh = || json!({"url": server.url(&team.bare())});
    let at = server.origin();
    let host = server.known_hosts();
    let app = |pem: &str, installation: &str| {
        json!({"githubAppID": "1234", "githubAppInstallationID": installation,
            "githubAppPrivateKey": pem, "githubAppBaseURL": github.url})
    };
    let mut unknown_server = Case::with("annotation-missing", plain(), user("p"), "");
    unknown_server.secret.as_mut().expect("a Secret").1 = None;
    let mut no_right = Case::with("right-missing", plain(), user("p"), &origin);
    no_right.granted = false;
    let no_secret = Case::new("secret-missing", json!({"secretRef": {"name": "secret-missing"}}));
    let mut away =
        Case::with("proxy-away", plain(), json!({"address": format!("http://{nobody}")}), &origin);
    away.spec = json!({"proxySecretRef": {"name": "proxy-away"}});
    let cases = [
        Case::new("no-credentials", plain()),
        no_secret,
        no_right,
        unknown_server,
        Case::with("annotation-other", plain(), user("p"), "https://git.example.com"),
        Case::with("password-wrong", plain(), user("wrong"), &origin),
        Case::with("password-with-line-break", plain(), user("p\n"), &origin),
        Case::with("keys-unknown", plain(), json!({"Password": "p"}), &origin),
        Case::with("app-key-wrong", plain(), app(&other_pem, "77"), &origin),
        Case::with("app-installation-wrong", plain(), app(&pem, "78"), &origin),
        away,
        Case::new("ssh-no-credentials", ssh()),
        Case::with("ssh-https-credentials", ssh(), user("p"), &at),
        Case::with("ssh-no-known-hosts", ssh(), json!({"identity": key}), &at),
        Case::with("ssh-public-key", ssh(), json!({"identity": public, "known_hosts": host}), &at),
        Case::with("ssh-passphrase", ssh(), json!({"identity": locked, "known_hosts": host}), &at),
        Case::with(
            "ssh-host-unknown",
            ssh(),
            json!({"identity": key, "known_hosts": host.replace(&server.host(), "github.com")}),
            &at,
        ),
        Case::with(
            "ssh-host-key-other",
            ssh(),
            json!({"identity": key, "known_hosts": format!("{} {another}", server.host())}),
            &at,
        ),
        Case::with("ssh-key-refused", ssh(), json!({"identity": key, "known_hosts": host}), &at),
    ];
    let bare = team.bare().display().to_string();
    let who = server.url(&team.bare());
    let who = who.trim_start_matches("ssh://").split_once('@').expect("a user").0.to_owned();
    let (ssh_user, of_user) = (format!("ssh://{who}@"), format!("key of {who}"));
    let replace = [
        (bare.as_str(), "/REPOSITORY"),
        (ssh_user.as_str(), "ssh://USER@"),
        (&of_user, "key of USER"),
    ];
    show(&team, operator, &cases, &replace).await;
    // These three are of Secrets that exist, and init makes them: without a line break at the end, and with the annotation.
    let mended = [
        "secret-missing",
        "right-missing",
        "annotation-missing",
        "annotation-other",
        "password-with-line-break",
    ];
    let tried = cases.iter().filter(|case| !mended.contains(&case.name));
    super::init::tell(&team, tried, &replace);
}

#[tokio::test(flavor = "multi_thread")]
async fn g18_common_mistakes_are_described_with_their_place_and_what_to_do() {
    let cluster = cluster().await;
    let operator = shared_operator(cluster).await;
    let agent = |spec: &str| {
        format!(
            "apiVersion: convoke.dev/v1alpha1\nkind: Agent\nmetadata: {{name: NAME}}\nspec:\n{spec}"
        )
    };
    let good = model("a");
    let typo = agent("  modelAPI: shared\n  modell: small\n").replace("NAME", "typo");
    let tab = "apiVersion: convoke.dev/v1alpha1\nkind: ModelAPI\nmetadata:\n\tname: tab\n";
    let unknown = "apiVersion: convoke.dev/v1alpha1\nkind: ModelApi\nmetadata: {name: x}\n";
    let foreign = good.replace("  name: a\n", "  name: f\n  namespace: other\n");
    let missing =
        agent("  modelAPI: nowhere\n  model: small\n  config: {instructionsFile: no.md}\n");
    let missing = missing.replace("NAME", "missing");
    let team = Team::new(
        cluster,
        "mistakes",
        &[
            ("good/a.yaml", &good),
            ("field/agent.yaml", &typo),
            ("tab/model.yaml", tab),
            ("kind/model.yaml", unknown),
            ("twice/one.yaml", &good.replace("name: a", "name: twice")),
            ("twice/two.yaml", &good.replace("name: a", "name: twice")),
            ("foreign/model.yaml", &foreign),
            ("missing/agent.yaml", &missing),
        ],
    )
    .await;
    let forge = ForgeServer::start(cluster.here, team.git_address(), "t").await;
    let path = |path: &str| json!({"path": path});
    let cases = [
        Case::new("branch-misspelt", json!({"ref": {"branch": "mian"}})),
        Case::new("no-version-in-range", json!({"ref": {"semver": ">=2"}})),
        Case::new("folder-missing", path("./godo")),
        Case::new("folder-is-a-file", path("./good/a.yaml")),
        Case::new(
            "repository-missing",
            json!({"url": format!("{}/team/agent.git", forge.origin())}),
        ),
        Case::new("field-misspelt", path("./field")),
        Case::new("tab-in-yaml", path("./tab")),
        Case::new("kind-misspelt", path("./kind")),
        Case::new("defined-twice", path("./twice")),
        Case::new("foreign-namespace", path("./foreign")),
        Case::new("file-missing", path("./missing")),
        Case::new(
            "dependency-missing",
            json!({"path": "./good", "dependsOn": [{"name": "platform"}]}),
        ),
    ];
    show(&team, operator, &cases, &[]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn g4_g18_signatures_that_do_not_count_are_described_with_what_to_do() {
    let cluster = cluster().await;
    let operator = shared_operator(cluster).await;
    let team = Team::new(cluster, "signatures", &[("m.yaml", &model("a"))]).await;
    let signing = Signing::new();
    let make = |name| signing.key(name, "ed25519", "sign", "never");
    let (ours, other, revoked) = (make("ours"), make("other"), make("revoked"));
    let git = |arguments: &[&str]| team.repo.git(arguments);
    let push = |name: &str| git(&["push", "-q", "origin", &format!("HEAD:refs/heads/{name}")]);
    for (name, key) in [("other", &other), ("revoked", &revoked), ("forged", &ours)] {
        let amend = ["commit", "-q", "--amend", "--no-edit", "-S"];
        git(&signed(&signing.openpgp(key), &amend));
        push(name);
    }
    // Somebody changes the signed commit.
    let object = git(&["cat-file", "commit", "HEAD"]).replace("Ada Tester", "Eve Tester");
    let file = team.repo.work().join("forged");
    std::fs::write(&file, object).expect("a file");
    let forged = git(&["hash-object", "-t", "commit", "-w", "forged"]);
    git(&["push", "-q", "--force", "origin", &format!("{forged}:refs/heads/forged")]);
    git(&["tag", "light"]);
    git(&["push", "-q", "origin", "light"]);
    signing.revoke(&revoked);
    let keys = signing.export(&ours) + &signing.export(&revoked);

    let case = |name, reference: Value, mode: &str, keys: Option<&str>| {
        let verify = json!({"mode": mode, "secretRef": {"name": name}});
        let mut case = Case::new(name, json!({"ref": reference, "verify": verify}));
        case.secret = keys.map(|keys| (json!({"team.asc": keys}), None));
        case
    };
    let branch = |name: &str| json!({"branch": name});
    let keys = Some(keys.as_str());
    let cases = [
        case("signature-keys-missing", branch("main"), "HEAD", None),
        case("signature-keys-unreadable", branch("main"), "HEAD", Some("no key")),
        case("signature-missing", branch("main"), "HEAD", keys),
        case("signature-key-unknown", branch("other"), "HEAD", keys),
        case("signature-key-revoked", branch("revoked"), "HEAD", keys),
        case("signature-forged", branch("forged"), "HEAD", keys),
        case("signature-tag-without-one", json!({"tag": "light"}), "Tag", keys),
    ];
    show(&team, operator, &cases, &[]).await;
}
