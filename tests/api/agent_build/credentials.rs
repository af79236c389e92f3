//! Credentials of builds: from the Secrets that a GitSync and an AgentBuild name to Secrets of one run. B5, V55.

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::api::events::v1::Event;
use kube::api::PostParams;

use super::*;

/// What must be in the Secrets, and nowhere else. In the header it is encoded.
const CANARIES: [&str; 4] = ["canary-git", "canary-push", "Y2FuYXJ5LWdpd", "OmNhbmFyeS1wdXNo"];

pub(super) fn texts(secret: &Secret) -> BTreeMap<String, String> {
    let text = |(name, value): (&String, &ByteString)| {
        (name.clone(), String::from_utf8(value.0.clone()).expect("text"))
    };
    secret.data.iter().flatten().map(text).collect()
}

impl Team<'_> {
    pub(super) fn kubectl(&self, arguments: &[&str]) {
        self.cluster.kubectl(&[&["-n", &self.namespace], arguments].concat());
    }

    /// Lets the operator do what a role says.
    pub(super) fn bind(&self, name: &str, role: &str) {
        let account = self.operator_user.trim_start_matches("system:serviceaccount:");
        let account = format!("--serviceaccount={account}");
        self.kubectl(&["create", "rolebinding", name, role, &account]);
    }

    /// Has an AgentBuild looked at: neither Secrets nor rights are watched.
    pub(super) fn touch(&self, build: &str) {
        let now = format!("convoke.dev/touched={}", jiff::Timestamp::now());
        self.kubectl(&["annotate", "--overwrite", "agentbuild", build, &now]);
    }

    /// Waits until `Ready` has this reason, and gives its message.
    pub(super) async fn reason(&self, build: &str, reason: &str) -> String {
        let is = |status: &AgentBuildStatus| {
            self.touch(build);
            condition(status, "Ready") == Some(("False", reason))
        };
        self.until(build, reason, is).await.message.expect("a message")
    }

    /// Waits until a run has begun.
    pub(super) async fn begun(&self, build: &str) -> DynamicObject {
        eventually(3 * SOON, "the run begins", || async {
            self.touch(build);
            match &self.runs().await[..] {
                [run] if run.data["spec"]["status"].is_null() => Ok(run.clone()),
                other => Err(other.to_vec()),
            }
        })
        .await
    }

    /// The Secret that a run mounts as this workspace.
    pub(super) async fn mounted(&self, run: &DynamicObject, workspace: &str) -> Secret {
        let all = run.data["spec"]["workspaces"].as_array().expect("workspaces");
        let found = all.iter().find(|one| one["name"] == workspace).expect(workspace);
        let name = found["secret"]["secretName"].as_str().expect("a Secret");
        let api: Api<Secret> = Api::namespaced(self.client.clone(), &self.namespace);
        let secret = api.get(name).await.expect("the Secret");
        let owner = &secret.metadata.owner_references.as_ref().expect("an owner")[0];
        assert_eq!((&*owner.kind, &owner.uid), ("PipelineRun", &run.uid().expect("a UID")));
        assert_eq!(secret.immutable, Some(true));
        secret
    }

    /// Everything that people and controllers read: no Secret.
    pub(super) async fn all_that_is_shown(&self, build: &str) -> String {
        let api: Api<AgentBuild> = Api::namespaced(self.client.clone(), &self.namespace);
        let events: Api<Event> = Api::namespaced(self.client.clone(), &self.namespace);
        let shown = json!({
            "build": api.get(build).await.expect("the build"), "runs": self.runs().await,
            "events": events.list(&ListParams::default()).await.expect("events").items,
        });
        shown.to_string()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn b5_v55_a_run_gets_the_credentials_of_its_git_sync_and_nobody_sees_them() {
    let cluster = Cluster::exclusive().await;
    install_templates(&cluster);
    install_tekton(&cluster);
    let team = Team::new(&cluster).await;
    team.apply_policies();
    team.apply_build("reviewer", &json!({}));
    let mut controller = team.start();
    team.follow(&controller, &json!({"secretRef": {"name": "team-git"}}));
    team.commit(&controller, "reviewer", '1', Some('a'));

    // Each thing that is missing is named with the command that gives it, and no run waits for it.
    let said = team.reason("reviewer", "CredentialsForbidden").await;
    assert!(said.contains("create role convoke-git-team-git --verb=get"), "{said}");
    let role = ["create", "role", "git", "--verb=get", "--resource=secrets"];
    team.kubectl(&[&role[..], &["--resource-name=team-git", "--resource-name=team-push"]].concat());
    team.bind("git", "--role=git");
    let said = team.reason("reviewer", "CredentialsMissing").await;
    assert!(said.contains("create secret generic team-git"), "{said}");
    let token = "--from-literal=token=canary-git";
    team.kubectl(&["create", "secret", "generic", "team-git", token]);
    let said = team.reason("reviewer", "CredentialsNotAllowed").await;
    assert!(said.contains("convoke.dev/git-origins=https://git.example.com"), "{said}");
    assert!(team.runs().await.is_empty());
    let origin = "convoke.dev/git-origins=https://git.example.com";
    team.kubectl(&["annotate", "secret", "team-git", origin]);

    // So is the right to create Secrets. No run waits for it, and takes the turn of another one.
    eventually(3 * SOON, "the missing right is told", || async {
        team.touch("reviewer");
        let said = team.status("reviewer").await.message.unwrap_or_default();
        if said.contains("--clusterrole=convoke-builds") { Ok(()) } else { Err(said) }
    })
    .await;
    assert!(team.runs().await.is_empty());
    let secrets: Api<Secret> = Api::namespaced(team.client.clone(), &team.namespace);
    let count = async || secrets.list(&ListParams::default()).await.expect("Secrets").items.len();
    assert_eq!(count().await, 1);
    team.bind("builds", "--clusterrole=convoke-builds");
    let run = team.begun("reviewer").await;
    let secret = team.mounted(&run, "git-auth").await;
    let files = texts(&secret);
    assert_eq!(files.keys().collect::<Vec<_>>(), ["gitconfig"]);
    let config = &files["gitconfig"];
    assert!(config.contains("[http \"https://git.example.com\"]"), "{config}");
    // eC1hY2Nlc3MtdG9rZW46 is "x-access-token:".
    assert!(config.contains("Basic eC1hY2Nlc3MtdG9rZW46Y2FuYXJ5LWdpdA=="), "{config}");
    let shown = team.all_that_is_shown("reviewer").await;
    for canary in CANARIES {
        assert!(!shown.contains(canary), "{canary}");
    }
    assert!(shown.contains(&secret.name_any()), "the run names its Secret");

    // What an operator left pending that ended before it could begin is removed: who has read the name of its Secret waits in vain.
    team.end(&run.name_any(), true).await;
    drop(controller);
    let mut left = run.clone();
    left.metadata.name = Some("reviewer-left-1".into());
    (left.metadata.uid, left.metadata.resource_version) = (None, None);
    (left.metadata.managed_fields, left.data["status"]) = (None, Value::Null);
    left.data["spec"]["status"] = "PipelineRunPending".into();
    let left = team.runs_api().create(&PostParams::default(), &left).await.expect("a run");
    let made = std::time::Instant::now();
    controller = team.start();
    eventually(3 * SOON, "the pending run is removed", || async {
        match team.runs_api().get_opt(&left.name_any()).await.expect("an answer") {
            None => Ok(()),
            Some(run) => Err(run),
        }
    })
    .await;
    // Another operator may be about to let it begin: a young one is left alone.
    assert!(made.elapsed() > Duration::from_secs(28), "{:?}", made.elapsed());
    assert_eq!(count().await, 2, "it got no Secret");

    // A GitSync that needs none gets none.
    team.follow(&controller, &json!({}));
    team.commit(&controller, "reviewer", '2', Some('b'));
    eventually(3 * SOON, "the next run", || async {
        match &team.runs().await[..] {
            [one, two] => Ok([one.clone(), two.clone()]),
            other => Err(other.len()),
        }
    })
    .await
    .into_iter()
    .filter(|one| one.uid() != run.uid())
    .for_each(|run| assert_eq!(run.data["spec"]["workspaces"].as_array().map(Vec::len), Some(1)));
}

#[tokio::test(flavor = "multi_thread")]
async fn b5_v55_a_run_gets_the_credentials_of_one_registry() {
    let cluster = Cluster::exclusive().await;
    install_templates(&cluster);
    install_tekton(&cluster);
    let team = Team::new(&cluster).await;
    let output = json!({"image": team.image(), "secretRef": {"name": "team-push"}});
    team.apply_build("reviewer", &json!({ "output": output }));
    let role = ["create", "role", "push", "--verb=get", "--resource=secrets"];
    team.kubectl(&[&role[..], &["--resource-name=team-push"]].concat());
    team.bind("push", "--role=push");
    team.bind("builds", "--clusterrole=convoke-builds");
    let controller = team.start();
    team.commit(&controller, "reviewer", '1', Some('a'));
    let said = team.reason("reviewer", "CredentialsMissing").await;
    assert!(said.contains("create secret docker-registry team-push"), "{said}");
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/dockerconfigjson",
        "metadata": {"name": "team-push", "namespace": team.namespace},
        "stringData": {".dockerconfigjson": json!({"auths": {
            "ghcr.io": {"auth": "b3RoZXI="}, "registry.test:5000": {"username": "u", "password": "canary-push"},
        }}).to_string()},
    });
    cluster.apply(&secret);
    let said = team.reason("reviewer", "CredentialsNotAllowed").await;
    let wanted = format!("convoke.dev/registries={}", team.repository());
    assert!(said.contains(&wanted), "{said}");
    let other = "convoke.dev/registries=registry.test:5000/other";
    team.kubectl(&["annotate", "secret", "team-push", other]);
    let said = team.reason("reviewer", "CredentialsNotAllowed").await;
    assert!(!said.contains("registry.test:5000/other"), "what it is for is not told: {said}");
    assert!(team.runs().await.is_empty());
    let ours = format!(
        "convoke.dev/registries=registry.test:5000/other,registry.test:5000/{}",
        team.namespace
    );
    team.kubectl(&["annotate", "--overwrite", "secret", "team-push", &ours]);
    let run = team.begun("reviewer").await;
    let files = texts(&team.mounted(&run, "push-auth").await);
    assert_eq!(files.keys().collect::<Vec<_>>(), ["config.json"]);
    let config: Value = serde_json::from_str(&files["config.json"]).expect("JSON");
    // "u:canary-push".
    let want = json!({"registry.test:5000": {"auth": "dTpjYW5hcnktcHVzaA=="}});
    assert_eq!(config, json!({ "auths": want }));
    let shown = team.all_that_is_shown("reviewer").await;
    assert!(CANARIES.iter().all(|canary| !shown.contains(canary)), "{shown}");
    drop(controller);
}

#[tokio::test(flavor = "multi_thread")]
async fn b5_a_refused_secret_is_told_once_and_no_run_waits_for_it() {
    let cluster = Cluster::exclusive().await;
    install_templates(&cluster);
    install_tekton(&cluster);
    let team = Team::new(&cluster).await;
    team.apply_build("reviewer", &json!({}));
    team.kubectl(&["create", "secret", "generic", "team-git", "--from-literal=token=t"]);
    let origin = "convoke.dev/git-origins=https://git.example.com";
    team.kubectl(&["annotate", "secret", "team-git", origin]);
    let role = ["create", "role", "git", "--verb=get", "--resource=secrets"];
    team.kubectl(&[&role[..], &["--resource-name=team-git"]].concat());
    team.bind("git", "--role=git");
    team.bind("builds", "--clusterrole=convoke-builds");
    team.kubectl(&["create", "quota", "secrets", "--hard=count/secrets=1"]);
    let controller = team.start();
    team.follow(&controller, &json!({"secretRef": {"name": "team-git"}}));
    team.commit(&controller, "reviewer", '1', Some('a'));
    let said = eventually(3 * SOON, "the quota is told", || async {
        team.touch("reviewer");
        let status = team.status("reviewer").await;
        match status.message.as_deref() {
            Some(said) if said.contains("exceeded quota") => Ok(said.to_owned()),
            _ => Err(status),
        }
    })
    .await;
    let is_told = |status: &AgentBuildStatus| {
        condition(status, "Ready") == Some(("False", "CredentialsRefused"))
    };
    team.until("reviewer", "it is a refusal", is_told).await;
    // However often it is tried again, nothing is written.
    let since = cluster.audit_mark();
    let writes = eventually(SOON, "it is tried again", || async {
        team.touch("reviewer");
        let (tries, writes): (Vec<_>, Vec<_>) =
            team.writes(since).into_iter().partition(|write| write == "create secrets/");
        if tries.len() >= 2 { Ok(writes) } else { Err(writes) }
    })
    .await;
    assert_eq!(writes, Vec::<String>::new(), "{said}");
    assert!(team.runs().await.is_empty());
    team.kubectl(&["delete", "quota", "secrets"]);
    let run = team.begun("reviewer").await;
    assert!(texts(&team.mounted(&run, "git-auth").await)["gitconfig"].contains("extraHeader"));
    drop(controller);
}

#[tokio::test(flavor = "multi_thread")]
async fn b7_two_operators_at_once_remove_no_run_of_each_other() {
    let cluster = Cluster::exclusive().await;
    install_templates(&cluster);
    install_tekton(&cluster);
    let team = Team::new(&cluster).await;
    let names: Vec<_> = (0..6).map(|at| format!("b{at}")).collect();
    for name in &names {
        team.apply_build(name, &json!({}));
    }
    // With credentials each run is pending for a moment.
    team.kubectl(&["create", "secret", "generic", "team-git", "--from-literal=token=t"]);
    let origin = "convoke.dev/git-origins=https://git.example.com";
    team.kubectl(&["annotate", "secret", "team-git", origin]);
    let role = ["create", "role", "git", "--verb=get", "--resource=secrets"];
    team.kubectl(&[&role[..], &["--resource-name=team-git"]].concat());
    team.bind("git", "--role=git");
    team.bind("builds", "--clusterrole=convoke-builds");
    let since = cluster.audit_mark();
    let both = [team.start(), team.start()];
    for controller in &both {
        team.follow(controller, &json!({"secretRef": {"name": "team-git"}}));
    }
    for (digit, tree) in [('1', 'a'), ('2', 'b'), ('3', 'c')] {
        for controller in &both {
            team.commit_all(controller, &names, digit, Some(tree), None);
        }
        let commit = digit.to_string().repeat(40);
        for name in &names {
            let is_of = |s: &AgentBuildStatus| {
                s.phase == Some(BuildPhase::Building)
                    && s.last_attempted_commit.as_ref() == Some(&commit)
            };
            let run = team.until(name, "it builds", is_of).await.pipeline_run.expect("a run");
            eventually(SOON, "it begins", || async {
                let run = team.runs_api().get(&run).await.map_err(|error| error.to_string())?;
                let word = run.data["spec"]["status"].clone();
                if word.is_null() { Ok(()) } else { Err(word.to_string()) }
            })
            .await;
            team.end(&run, true).await;
        }
        for name in &names {
            let is_built = |s: &AgentBuildStatus| {
                s.phase == Some(BuildPhase::Succeeded)
                    && s.last_built_commit.as_ref() == Some(&commit)
            };
            team.until(name, "it is built", is_built).await;
        }
    }
    let writes = team.writes(since);
    let removed = writes.iter().filter(|write| write.starts_with("delete pipelineruns")).count();
    assert_eq!((removed, team.runs().await.len()), (0, 18), "{writes:?}");
    drop(both);
}
