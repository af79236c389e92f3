//! Everything that a forge does for a GitSync, with a real one: Gitea.
#![allow(clippy::expect_used, clippy::panic, clippy::disallowed_types, clippy::disallowed_methods)]

use k8s_openapi::api::core::v1::Secret;
use kube::api::{Api, Patch, PatchParams};
use serde_json::{Value, json};

use crate::support::eventually;
use crate::support::gitea::{self, Gitea};
use crate::support::sshd::make_key;
use crate::support::team::{SOON, Team, condition, model, ready};
use crate::webhook::served;

impl Team<'_> {
    /// Makes a Secret that is for this server, and lets the operator read it.
    async fn put_bound_secret(&self, name: &str, origin: &str, values: Value) {
        let object = json!({"apiVersion": "v1", "kind": "Secret",
            "metadata": {"name": name, "annotations": {"convoke.dev/git-origins": origin}},
            "stringData": values});
        let secrets: Api<Secret> = Api::namespaced(self.client.clone(), &self.namespace);
        let params = PatchParams::apply("tester").force();
        secrets.patch(name, &params, &Patch::Apply(&object)).await.expect("Secret");
    }

    /// Writes a file, and pushes it to the forge. Gives the commit.
    fn push_to(&self, url: &str, path: &str, content: &str) -> String {
        let commit = self.repo.commit(path, &[(path, content)]);
        self.repo.git(&["push", "-q", url, "HEAD:main"]);
        commit
    }
}

/// The newest status of a commit in the forge: its state, and its description.
async fn status(gitea: &Gitea, repository: &str, commit: &str, context: &str) -> (String, String) {
    eventually(SOON, "the forge shows the status of the commit", || async {
        let path = format!("/repos/{repository}/commits/{commit}/statuses");
        let (_, all) = gitea.api("GET", &path, None).await;
        let of = all.as_array().and_then(|all| all.iter().find(|one| one["context"] == context));
        let text = |key: &str| of.and_then(|one| one[key].as_str().map(str::to_owned));
        text("status").zip(text("description")).ok_or(all)
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn g2_g5_g19_gitea_lets_in_tells_of_pushes_and_is_told_of_commits() {
    let Some(folder) = gitea::folder() else { return };
    let (cluster, operator, port) = served().await;
    let gitea = Gitea::start(&folder).await;
    let team = Team::new(cluster, "gitea", &[]).await;
    let repository = gitea.repository("agents").await;
    let (push, url) = (gitea.push_url(&repository), format!("{}/{repository}.git", gitea.origin()));
    let first = team.push_to(&push, "m.yaml", &model("a"));

    // A private repository is read with a token that may read, once everything that is told is done.
    let read = gitea.token("read", &["read:repository"]).await;
    let write = gitea.token("status", &["write:repository"]).await;
    let spec = json!({
        "url": url,
        "secretRef": {"name": "read"},
        "webhook": {"provider": "Gitea", "secretRef": {"name": "hook"}},
        "commitStatus": {"provider": "Gitea", "secretRef": {"name": "status"}},
    });
    team.put_bound_secret("read", &gitea.origin(), json!({"token": read})).await;
    team.put_bound_secret("hook", &gitea.origin(), json!({"token": "canary-hook"})).await;
    team.put_bound_secret("status", &gitea.origin(), json!({"token": write})).await;
    for name in ["read", "hook", "status"] {
        team.grant_secret(name, operator);
    }
    team.create_sync(spec).await;
    team.wait_ready("True").await;
    assert_eq!(team.models().await, ["a"]);
    let context = format!("convoke/{}/main", team.namespace);
    let shown = status(&gitea, &repository, &first, &context).await;
    assert_eq!(shown, ("success".to_owned(), "applied: 1 object".to_owned()));

    // A push wakes the GitSync, whose interval is an hour. A broken one is told with its place.
    let path = team.status().await.webhook_path.expect("the path of the webhook");
    let hook = json!({"type": "gitea", "active": true, "events": ["push"], "config": {
        "url": format!("http://127.0.0.1:{port}{path}"), "content_type": "json", "secret": "canary-hook"}});
    gitea.make(&format!("/repos/{repository}/hooks"), hook).await;
    let second = team.push_to(&push, "n.yaml", &model("b"));
    let told = team.applied(&second).await;
    assert_eq!(told.history[0].trigger, "Webhook");
    assert_eq!(team.models().await, ["a", "b"]);
    assert_eq!(status(&gitea, &repository, &second, &context).await.0, "success");
    let broken =
        team.push_to(&push, "o.yaml", "apiVersion: convoke.dev/v1alpha1\nkind: ModelApi\n");
    let (state, description) = status(&gitea, &repository, &broken, &context).await;
    assert_eq!(state, "failure");
    assert!(description.contains("the first in o.yaml:1:1"), "{description}");
    let third = team.push_to(&push, "o.yaml", &model("c"));
    team.applied(&third).await;

    // The token is taken back: that is told, what runs stays, and a new one is taken over.
    gitea.delete_token("read").await;
    let sync = team.request().await;
    let told = ready(&sync);
    assert_eq!((told.status.as_str(), told.reason.as_str()), ("False", "AuthenticationFailed"));
    assert!(told.message.contains("wrong or expired password or token"), "{}", told.message);
    assert_eq!(team.models().await, ["a", "b", "c"]);
    let read = gitea.token("again", &["read:repository"]).await;
    team.put_bound_secret("read", &gitea.origin(), json!({"token": read})).await;
    team.request().await;
    team.wait_ready("True").await;
    assert!(condition(&team.get().await, "Stalled").is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn g2_d7_gitea_takes_deploy_keys_and_passwords() {
    let Some(folder) = gitea::folder() else { return };
    let (cluster, operator, _) = served().await;
    let gitea = Gitea::start(&folder).await;
    let team = Team::new(cluster, "deploy-key", &[]).await;
    let repository = gitea.repository("agents").await;
    let commit = team.push_to(&gitea.push_url(&repository), "m.yaml", &model("a"));
    let dir = tempfile::tempdir().expect("a folder");
    for (number, kind) in ["ed25519", "ecdsa", "rsa"].into_iter().enumerate() {
        let (private, public) = make_key(dir.path(), kind, &["-t", kind]);
        let private = std::fs::read_to_string(private).expect("the key");
        let values = json!({"identity": private, "known_hosts": gitea.known_hosts()});
        let url =
            format!("{}/{repository}.git", gitea.ssh_origin().replace("ssh://", "ssh://git@"));
        let run = crate::init::init(&team, &url, Some(&values), false, &[]);
        assert_eq!((run.code, run.out.as_str()), (3, ""));
        let refused = "error: the server refused the ssh key of git\nhint: let the account";
        assert!(run.err.starts_with(refused), "{}", run.err);

        let key = json!({"title": kind, "key": public, "read_only": true});
        gitea.make(&format!("/repos/{repository}/keys"), key).await;
        let run = crate::init::init(&team, &url, Some(&values), false, &[]);
        assert_eq!(run.code, 0, "{}", run.err);
        assert!(run.err.contains(&format!("main is at {commit}: 1 object")), "{}", run.err);
        if number == 0 {
            team.put_bound_secret("key", &gitea.ssh_origin(), values).await;
            team.grant_secret("key", operator);
            team.create_sync(json!({"url": url, "secretRef": {"name": "key"}})).await;
            team.wait_ready("True").await;
            assert_eq!(team.models().await, ["a"]);
        }
    }
    // Without credentials, and with a wrong password.
    let url = format!("{}/{repository}.git", gitea.origin());
    let run = crate::init::init(&team, &url, None, false, &[]);
    assert!(run.err.starts_with("error: the server refused access (HTTP 401)"), "{}", run.err);
    let values = json!({"username": "ada", "password": "wrong"});
    let run = crate::init::init(&team, &url, Some(&values), false, &[]);
    assert!(run.err.starts_with("error: the server refused the credentials"), "{}", run.err);
    let values = json!({"username": "ada", "password": "canary-password"});
    let run = crate::init::init(&team, &url, Some(&values), false, &[]);
    assert_eq!(run.code, 0, "{}", run.err);
    let other = url.replace("agents", "nothing");
    let run = crate::init::init(&team, &other, Some(&values), false, &[]);
    assert!(run.err.starts_with("error: the server has no such repository"), "{}", run.err);
}
