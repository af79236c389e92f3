//! What forges are told of commits: G19.

use k8s_openapi::api::core::v1::{Event, Secret};
use kube::api::ListParams;
use kube::api::{Api, Patch, PatchParams};
use serde_json::{Value, json};

use crate::support::forge::{ForgeServer, Set};
use crate::support::http_proxy::{self, HttpProxy};
use crate::support::team::{SOON, Team, model, shared_operator};
use crate::support::tls::{Authority, Front, self_signed};
use crate::support::{cluster, eventually};

impl Team<'_> {
    async fn put_forge_token(&self, token: &str, origin: &str) {
        let object = json!({"apiVersion": "v1", "kind": "Secret",
            "metadata": {"name": "forge", "annotations": {"convoke.dev/git-origins": origin}},
            "stringData": {"token": token}});
        let secrets: Api<Secret> = Api::namespaced(self.client.clone(), &self.namespace);
        let params = PatchParams::apply("tester").force();
        secrets.patch("forge", &params, &Patch::Apply(&object)).await.expect("Secret");
    }

    /// The note of the newest event of that reason.
    async fn event(&self, text: &str) -> String {
        let events: Api<Event> = Api::namespaced(self.client.clone(), &self.namespace);
        eventually(SOON, text, || async {
            let all = events.list(&ListParams::default()).await.expect("events");
            let notes = all
                .items
                .into_iter()
                .filter(|event| event.reason.as_deref() == Some("CommitStatusFailed"));
            let notes: Vec<_> = notes.filter_map(|event| event.message).collect();
            notes.iter().find(|note| note.contains(text)).cloned().ok_or(notes)
        })
        .await
    }
}

async fn told(forge: &ForgeServer, count: usize) -> Set {
    eventually(SOON, "the forge is told", || async {
        let set = forge.set();
        if set.len() == count { Ok(set[count - 1].clone()) } else { Err(set) }
    })
    .await
}

fn spec(forge: &ForgeServer, provider: &str) -> Value {
    json!({"url": forge.url(), "commitStatus": {"provider": provider, "secretRef": {"name": "forge"}}})
}

#[tokio::test(flavor = "multi_thread")]
async fn g19_each_forge_is_told_what_became_of_a_commit() {
    let cluster = cluster().await;
    let operator = shared_operator(cluster).await;
    for (provider, failure) in [("GitHub", "failure"), ("GitLab", "failed"), ("Gitea", "failure")] {
        let team = Team::new(cluster, "forge", &[("m.yaml", &model("a"))]).await;
        let forge = ForgeServer::start(cluster.here, team.git_address(), "canary-token").await;
        team.create_sync(spec(&forge, provider)).await;
        team.wait_ready("True").await;
        // What is missing is told, and the sync goes on without.
        let note =
            team.event("the operator may not read the Secret forge of spec.commitStatus").await;
        team.run_commands(&note);
        team.put_forge_token("canary-other", &forge.origin()).await;
        team.request().await;
        let note = team.event("refuses the token (HTTP 401): Bad credentials").await;
        assert!(note.contains("the token is wrong or has expired"), "{note}");
        team.put_forge_token("canary-token", &forge.origin()).await;
        forge.be_busy(2);
        team.request().await;
        let context = format!("convoke/{}/main", team.namespace);
        let first = told(&forge, 1).await;
        assert_eq!(forge.busy(), 0, "it waits as the forge wants");
        let description = "applied: 1 object".to_owned();
        let (forge_, commit, state) = (first.forge, team.repo.head(), "success".to_owned());
        assert_eq!(
            first,
            Set { forge: forge_, commit, state, context: context.clone(), description }
        );
        assert_eq!(first.forge, provider);

        team.push(&[("n.yaml", Some("apiVersion: convoke.dev/v1alpha1\nkind: ModelApi\n"))]).await;
        let second = told(&forge, 2).await;
        assert_eq!((second.commit, second.state), (team.repo.head(), failure.to_owned()));
        assert!(second.description.contains("problem"), "{}", second.description);
        assert!(second.description.contains("n.yaml:"), "{}", second.description);
        team.push(&[("n.yaml", None)]).await;
        let third = told(&forge, 3).await;
        assert_eq!((third.commit, third.state.as_str()), (team.repo.head(), "success"));
        // Nothing new, nothing told.
        team.request().await;
        team.request().await;
        assert_eq!(forge.set().len(), 3, "{:?}", forge.set());
        let kinds = "gitsyncs,events,modelapis";
        let all = cluster.kubectl(&["-n", &team.namespace, "get", kinds, "-o", "yaml"]);
        for token in ["canary-token", "canary-other"] {
            assert!(!all.contains(token) && !operator.log().contains(token), "{token}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn g19_a_forge_is_reached_as_its_repository_is() {
    let cluster = cluster().await;
    let operator = shared_operator(cluster).await;
    let team = Team::new(cluster, "forge", &[("m.yaml", &model("a"))]).await;
    let forge = ForgeServer::start(cluster.here, team.git_address(), "canary-token").await;
    // As many are in a house: a certificate that signs itself, and clients need one, too.
    let clients = Authority::new();
    let host = cluster.here.to_string();
    let (root, certificate) = self_signed(&host);
    let front =
        Front::start_for(clients.verifier(), forge.address(), certificate, "http/1.1").await;
    let Some(proxy) = HttpProxy::start_on(cluster.here) else { return };
    let url = front.origin(&host) + "/team/agents.git";
    let (certificate, key) = clients.client();
    let secret = |name: &str, data: Value| {
        json!({"apiVersion": "v1", "kind": "Secret",
            "metadata": {"name": name, "namespace": team.namespace, "annotations": {"convoke.dev/git-origins": front.origin(&host)}},
            "stringData": data})
    };
    cluster.apply(&json!({"apiVersion": "v1", "kind": "List", "items": [
        secret("git", json!({"ca.crt": root, "tls.crt": certificate, "tls.key": key})),
        secret("proxy", json!({"address": proxy.address(), "username": "user", "password": "canary"})),
        secret("forge", json!({"token": "canary-token"})),
    ]}));
    cluster.grant_secrets(&team.namespace, &[operator]);

    let spec = json!({"url": url, "secretRef": {"name": "git"}, "proxySecretRef": {"name": "proxy"},
        "commitStatus": {"provider": "Gitea", "secretRef": {"name": "forge"}}});
    team.create_sync(spec).await;
    team.wait_ready("True").await;
    let first = told(&forge, 1).await;
    assert_eq!((first.commit, first.state), (team.repo.head(), "success".to_owned()));
    if cluster.here.is_loopback() {
        assert_eq!(
            front.peers(),
            [http_proxy::FROM.into()].into(),
            "the proxy makes all connections"
        );
    }
    assert!(proxy.log().contains("CONNECT "), "{}", proxy.log());
}

#[tokio::test(flavor = "multi_thread")]
async fn g19_v12_a_token_goes_to_the_servers_of_its_annotation_only() {
    let cluster = cluster().await;
    let _operator = shared_operator(cluster).await;
    let team = Team::new(cluster, "forge", &[("m.yaml", &model("a"))]).await;
    let forge = ForgeServer::start(cluster.here, team.git_address(), "canary-token").await;
    team.put_forge_token("canary-token", "https://github.com").await;
    team.create_sync(spec(&forge, "Gitea")).await;
    team.wait_ready("True").await;
    let note = team.event("the operator may not read the Secret forge").await;
    team.run_commands(&note);
    team.request().await;
    let note = team.event("the Secret forge of spec.commitStatus is not for").await;
    assert!(!note.contains("github.com"), "{note}");
    assert!(forge.set().is_empty());
}
