//! The credentials of a GitSync, with the shipped rights of the operator.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use convoke::api::GitSync;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Api, Patch, PatchParams};
use serde_json::{Value, json};

use crate::support::github::{self, GitHub};
use crate::support::http_proxy::HttpProxy;
use crate::support::sshd::{self, Settings, Sshd, make_key};
use crate::support::team::{SOON, Team, model, ready, shared_operator};
use crate::support::tls::{Front, self_signed};
use crate::support::{cluster, eventually};

/// `u:canary-one` and `u:canary-two`.
const ONE: &str = "Basic dTpjYW5hcnktb25l";
const TWO: &str = "Basic dTpjYW5hcnktdHdv";

impl Team<'_> {
    async fn put_credentials(&self, password: &str, annotations: Value) {
        self.put(json!({"username": "u", "password": password}), annotations).await;
    }

    /// The Secret `git` with these values.
    async fn put(&self, values: Value, annotations: Value) {
        self.put_named("git", values, annotations).await;
    }

    async fn put_named(&self, name: &str, values: Value, annotations: Value) {
        let object = json!({"apiVersion": "v1", "kind": "Secret",
            "metadata": {"name": name, "annotations": annotations}, "stringData": values});
        let secrets: Api<Secret> = Api::namespaced(self.client.clone(), &self.namespace);
        let params = PatchParams::apply("tester").force();
        secrets.patch(name, &params, &Patch::Apply(&object)).await.expect("Secret");
    }

    pub async fn reason(&self, reason: &str) -> GitSync {
        eventually(SOON, reason, || async {
            let sync = self.get().await;
            if ready(&sync).reason == reason { Ok(sync) } else { Err(sync.status) }
        })
        .await
    }

    /// Runs the commands of the hint of `Ready`.
    pub fn do_as_told(&self, sync: &GitSync) {
        self.run_commands(&ready(sync).message);
    }

    /// Runs the commands of the hint of a message.
    pub fn run_commands(&self, message: &str) {
        let (_, commands) =
            message.split_once("; hint: kubectl ").unwrap_or_else(|| panic!("{message}"));
        for command in commands.split("; kubectl ") {
            self.cluster.kubectl(&command.split(' ').collect::<Vec<_>>());
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn g2_a_password_that_was_changed_before_the_old_one_ended_is_used_within_the_poll() {
    let cluster = cluster().await;
    let operator = shared_operator(cluster).await;
    let team = Team::new(cluster, "rotated", &[("m.yaml", &model("a"))]).await;
    cluster.grant_secrets(&team.namespace, &[operator]);
    team.want_authorization(ONE);
    let origin = json!({"convoke.dev/git-origins": team.url().replace("/team.git", "")});
    team.put_credentials("canary-one", origin.clone()).await;
    // Whoever waits for a retry waits too long here.
    let spec = json!({"secretRef": {"name": "git"}, "interval": "2s", "retryInterval": "10m"});
    team.create_sync(spec).await;
    team.wait_ready("True").await;
    team.put_credentials("canary-two", origin).await;
    team.want_authorization(TWO);
    // Nobody asks for a sync, which would read the Secret first.
    team.repo.commit("second", &[("n.yaml", &model("b"))]);
    eventually(SOON, "the new password is used", || async {
        let models = team.models().await;
        if models == ["a", "b"] { Ok(()) } else { Err(models) }
    })
    .await;
    let events = cluster.kubectl(&["-n", &team.namespace, "get", "events", "-o", "yaml"]);
    assert!(!events.contains("AuthenticationFailed"), "{events}");
}

#[tokio::test(flavor = "multi_thread")]
async fn g2_authorities_and_proxies_that_are_mended_are_used_at_the_next_try() {
    let cluster = cluster().await;
    let operator = shared_operator(cluster).await;
    let Some(proxy) = HttpProxy::start_on(cluster.here) else { return };
    let team = Team::new(cluster, "mended", &[("m.yaml", &model("a"))]).await;
    let host = cluster.here.to_string();
    let ((root, certificate), (other, _)) = (self_signed(&host), self_signed(&host));
    let front = Front::start(team.git_address(), certificate, "http/1.1").await;
    let origin = json!({"convoke.dev/git-origins": front.origin(&host)});
    cluster.grant_secrets(&team.namespace, &[operator]);
    team.put(json!({"ca.crt": "mend-canary"}), origin.clone()).await;
    team.create_sync(json!({"url": front.url(&host), "secretRef": {"name": "git"}})).await;
    let told = ready(&team.reason("CredentialsInvalid").await).message;
    let said = "the Secret git of spec.secretRef cannot be used: ca.crt: there is no certificate in it; hint: ca.crt of the Secret is PEM";
    assert!(told.starts_with(said), "{told}");
    // No sync is asked for: each try reads the Secret again.
    team.put(json!({"ca.crt": other}), origin.clone()).await;
    let told = ready(&team.reason("CertificateNotTrusted").await).message;
    assert!(
        told.contains("it is self-signed, or that of an authority, and not known here"),
        "{told}"
    );
    team.put(json!({"ca.crt": root}), origin.clone()).await;
    team.wait_ready("True").await;

    let through = |password: &str| {
        let values = json!({"address": proxy.address(), "username": "user", "password": password});
        team.put_named("proxy", values, origin.clone())
    };
    through("mend-canary").await;
    let spec = json!({"url": front.url(&host), "secretRef": {"name": "git"}, "proxySecretRef": {"name": "proxy"}});
    team.create_sync(spec).await;
    let told = ready(&team.reason("ProxyFailed").await).message;
    assert!(
        told.contains("the proxy is that of the Secret of spec.proxySecretRef: check the host in the URL, and address, username and password"),
        "{told}"
    );
    through("canary").await;
    team.wait_ready("True").await;
    let all = cluster.kubectl(&["-n", &team.namespace, "get", "gitsyncs,events", "-o", "yaml"]);
    assert!(!all.contains("mend-canary") && !operator.log().contains("mend-canary"));
}

#[tokio::test(flavor = "multi_thread")]
async fn g2_a_private_repository_is_read_with_a_secret_once_everything_that_is_told_is_done() {
    let cluster = cluster().await;
    let operator = shared_operator(cluster).await;
    let team = Team::new(cluster, "private", &[("m.yaml", &model("a"))]).await;
    team.want_authorization(ONE);
    team.create_sync(json!({})).await;
    let told = ready(&team.reason("AuthenticationFailed").await).message;
    assert!(told.contains("name a Secret with credentials in spec.secretRef"), "{told}");

    // The right to read this one Secret.
    team.create_sync(json!({"secretRef": {"name": "git"}})).await;
    let sync = team.reason("CredentialsForbidden").await;
    team.do_as_told(&sync);
    team.request().await;
    team.reason("CredentialsMissing").await;
    // For which server it is.
    team.put_credentials("canary-one", json!({})).await;
    team.request().await;
    let sync = team.reason("CredentialsNotAllowed").await;
    team.do_as_told(&sync);
    team.request().await;
    team.wait_ready("True").await;
    assert_eq!(team.models().await, ["a"]);

    // Another password: the old one is refused, and the new one is read at once.
    team.want_authorization(TWO);
    team.request().await;
    team.reason("AuthenticationFailed").await;
    let origin = team.url().rsplit_once('/').map(|(origin, _)| origin.to_owned());
    let annotations = json!({"convoke.dev/git-origins": origin});
    team.put_credentials("canary-two", annotations.clone()).await;
    team.wait_ready("True").await;

    // What is for another server goes to none.
    team.put_credentials("canary-two", json!({"convoke.dev/git-origins": "https://other.example"}))
        .await;
    team.request().await;
    let sync = team.reason("CredentialsNotAllowed").await;
    assert!(!ready(&sync).message.contains("other.example"), "{sync:?}");
    assert_eq!(team.models().await, ["a"], "what was applied stays");
    team.put_credentials("canary-two", annotations).await;
    team.request().await;
    team.wait_ready("True").await;

    // No value of it is anywhere.
    let kinds = "gitsyncs,agents,modelapis,configmaps,deployments,events";
    let mut all = cluster.kubectl(&["-n", &team.namespace, "get", kinds, "-o", "yaml"]);
    assert!(all.contains("kind: GitSync"));
    all += &operator.log();
    for canary in ["canary-one", "canary-two", ONE, TWO] {
        assert!(!all.contains(canary), "{canary}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn g2_a_repository_is_read_over_ssh_once_the_server_is_known() {
    if !sshd::is_there() {
        return;
    }
    let cluster = cluster().await;
    let operator = shared_operator(cluster).await;
    let team = Team::new(cluster, "ssh", &[("m.yaml", &model("a"))]).await;
    let lines = &["AcceptEnv GIT_PROTOCOL"];
    let server = Sshd::start_on(cluster.here, &Settings { host_keys: &["ed25519"], lines });
    let dir = tempfile::tempdir().expect("a folder");
    let (key, public) = make_key(dir.path(), "key", &["-t", "ed25519"]);
    let key = std::fs::read_to_string(key).expect("the key");
    let url = server.url(&team.bare());
    team.create_sync(json!({"url": url})).await;
    let told = ready(&team.reason("CredentialsMissing").await).message;
    assert!(told.contains("a Secret with identity and known_hosts in spec.secretRef"), "{told}");

    team.create_sync(json!({"url": url, "secretRef": {"name": "git"}})).await;
    let sync = team.reason("CredentialsForbidden").await;
    team.do_as_told(&sync);
    team.request().await;
    let told = ready(&team.reason("CredentialsMissing").await).message;
    assert!(told.contains("--from-file=known_hosts"), "{told}");
    let annotations = json!({"convoke.dev/git-origins": server.origin()});
    // A server that nobody knows gets nothing, and neither does one that has another key than before.
    let other = format!("github.com {}", server.known_hosts().split_once(' ').expect("a line").1);
    team.put(json!({"identity": key, "known_hosts": other}), annotations.clone()).await;
    team.request().await;
    let told = ready(&team.reason("HostKeyNotTrusted").await).message;
    assert!(told.contains("it shows ssh-ed25519 SHA256:"), "{told}");
    let known = json!({"identity": key, "known_hosts": server.known_hosts()});
    team.put(known, annotations).await;
    team.request().await;
    let told = ready(&team.reason("AuthenticationFailed").await).message;
    assert!(told.contains("the server refused the ssh key of"), "{told}");
    server.authorize(&public);
    team.wait_ready("True").await;
    assert_eq!(team.models().await, ["a"]);
    team.push(&[("n.yaml", Some(&model("b")))]).await;
    assert_eq!(team.models().await, ["a", "b"]);

    let kinds = "gitsyncs,agents,modelapis,configmaps,deployments,events";
    let mut all = cluster.kubectl(&["-n", &team.namespace, "get", kinds, "-o", "yaml"]);
    all += &operator.log();
    for line in key.lines().filter(|line| !line.starts_with("-----")) {
        assert!(!all.contains(line), "a line of the key");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn g2_a_github_app_gets_one_token_until_it_is_refused() {
    let cluster = cluster().await;
    let operator = shared_operator(cluster).await;
    let team = Team::new(cluster, "app", &[("m.yaml", &model("a"))]).await;
    let (key, pem) = github::key();
    let github = GitHub::start_on(cluster.here, &key, 3600).await;
    let header = |token: &str| {
        let user = STANDARD.encode(format!("x-access-token:{token}"));
        format!("Basic {user}")
    };
    team.want_authorization(&header("ghs_canary1"));
    let spec = json!({"secretRef": {"name": "git"}, "interval": "3s", "retryInterval": "10m"});
    team.create_sync(spec).await;
    let sync = team.reason("CredentialsForbidden").await;
    team.do_as_told(&sync);
    let origin = team.url().rsplit_once('/').map(|(origin, _)| origin.to_owned());
    let annotations = json!({"convoke.dev/git-origins": origin});
    let values = |installation: &str| {
        json!({"githubAppID": "1234", "githubAppInstallationID": installation, "githubAppPrivateKey": pem,
            "githubAppBaseURL": github.url})
    };
    team.put(values("78"), annotations.clone()).await;
    team.request().await;
    let told = ready(&team.reason("AuthenticationFailed").await).message;
    assert!(told.contains("gives the GitHub App no token (HTTP 404)"), "{told}");
    team.put(values("77"), annotations).await;
    team.request().await;
    team.wait_ready("True").await;
    // Many polls, one token.
    for _ in 0..3 {
        team.request().await;
    }
    assert_eq!(*github.given.lock().expect("lock"), 1);
    // It was revoked: another one is asked for within the poll.
    team.want_authorization(&header("ghs_canary2"));
    team.repo.commit("second", &[("n.yaml", &model("b"))]);
    eventually(SOON, "the new token is used", || async {
        let models = team.models().await;
        if models == ["a", "b"] { Ok(()) } else { Err(models) }
    })
    .await;
    assert_eq!(*github.given.lock().expect("lock"), 2);
    let kinds = "gitsyncs,agents,modelapis,configmaps,deployments,events";
    let mut all = cluster.kubectl(&["-n", &team.namespace, "get", kinds, "-o", "yaml"]);
    all += &operator.log();
    assert!(!all.contains("ghs_canary") && !all.contains(&pem[40..80]));
}

#[tokio::test(flavor = "multi_thread")]
async fn v56_metrics_and_health_have_nothing_of_users_and_there_is_no_profiler() {
    let cluster = cluster().await;
    let operator = shared_operator(cluster).await;
    let team = Team::new(cluster, "canary-team", &[("canary.yaml", &model("canary-model"))]).await;
    team.create_sync(json!({})).await;
    team.wait_ready("True").await;
    let told = ["/healthz", "/readyz", "/", "/debug/pprof", "/debug/pprof/heap", "/canary"];
    let mut all = operator.metrics();
    for path in told {
        let (status, text) = operator.health(path);
        assert_eq!(status, if path.ends_with('z') { 200 } else { 404 }, "{path}: {text}");
        all += &text;
    }
    for canary in ["canary", &team.namespace, &team.url()] {
        assert!(!all.contains(canary), "{canary}: {all}");
    }
}
