//! `--build-namespace`: Dockerfiles of all namespaces are built in one. B5.

use k8s_openapi::api::core::v1::Secret;
use kube::api::PostParams;

use super::*;

const LIMITS: Limits = Limits { total: 10, namespace: 1 };

impl<'c> Team<'c> {
    /// Another team of the same operator; or what is seen of this one in another namespace.
    pub(super) fn in_namespace(&self, namespace: &str) -> Team<'c> {
        Team {
            cluster: self.cluster,
            client: self.client.clone(),
            operator: self.operator.clone(),
            operator_user: self.operator_user.clone(),
            namespace: namespace.to_owned(),
        }
    }

    /// The controller with `--build-namespace`.
    pub(super) fn start_in(&self, build_namespace: Option<&str>) -> Controller {
        Controller::start_in(&self.operator, LIMITS, "registry.test:5000", build_namespace)
    }

    /// Lets the operator set finalizers, as `deploy/build-namespace.yaml` does.
    pub(super) fn let_hold(&self) {
        let account = self.operator_user.trim_start_matches("system:serviceaccount:");
        let name = format!("build-namespace-{}", self.namespace);
        self.cluster.kubectl(&[
            "create",
            "clusterrolebinding",
            &name,
            "--clusterrole=convoke-build-namespace",
            &format!("--serviceaccount={account}"),
        ]);
    }

    /// Waits until a build has a run that goes on; gives its status and the run, wherever that is.
    pub(super) async fn runs_elsewhere(
        &self,
        build: &str,
        at: &Team<'_>,
    ) -> (AgentBuildStatus, DynamicObject) {
        let status = self
            .until(build, "it builds elsewhere", |s| {
                self.touch(build);
                s.phase == Some(BuildPhase::Building)
                    && s.build_namespace.as_deref() == Some(&*at.namespace)
            })
            .await;
        let run = status.pipeline_run.clone().expect("a run");
        let run = at.runs_api().get(&run).await.expect("the run");
        (status, run)
    }

    /// What Tekton says at the end of a run in this namespace, which has pushed the image of a team.
    pub(super) async fn push(&self, run: &str, team: &Team<'_>, digit: char) {
        let digest = format!("sha256:{}", digit.to_string().repeat(64));
        self.end_with(run, Some((team.repository(), digest))).await;
    }

    pub(super) async fn finalizers(&self, build: &str) -> Vec<String> {
        let api: Api<AgentBuild> = Api::namespaced(self.client.clone(), &self.namespace);
        api.get(build).await.expect("an AgentBuild").finalizers().to_vec()
    }

    /// Deletes an AgentBuild, and waits for nothing.
    pub(super) async fn delete(&self, build: &str) {
        let api: Api<AgentBuild> = Api::namespaced(self.client.clone(), &self.namespace);
        api.delete(build, &DeleteParams::default()).await.expect("deleted");
    }

    pub(super) async fn is_gone(&self, build: &str) {
        let api: Api<AgentBuild> = Api::namespaced(self.client.clone(), &self.namespace);
        eventually(3 * SOON, "the AgentBuild is gone", || async {
            match api.get_opt(build).await.expect("an answer") {
                None => Ok(()),
                Some(left) => Err((left.metadata.finalizers, left.status)),
            }
        })
        .await;
    }

    async fn secrets(&self) -> Vec<String> {
        let api: Api<Secret> = Api::namespaced(self.client.clone(), &self.namespace);
        let all = api.list(&ListParams::default()).await.expect("Secrets").items;
        all.iter().map(ResourceExt::name_any).collect()
    }
}

pub(super) fn finalizer(namespace: &str) -> String {
    format!("builds.convoke.dev/{namespace}")
}

#[tokio::test(flavor = "multi_thread")]
async fn b5_v55_a_dockerfile_is_built_in_the_build_namespace_and_nothing_is_left_there() {
    let cluster = Cluster::exclusive().await;
    install_templates(&cluster);
    install_tekton(&cluster);
    let team = Team::new(&cluster).await;
    team.apply_policies();
    let there = team.in_namespace(&cluster.namespace("builds").await);
    team.apply_build("reviewer", &json!({}));
    team.kubectl(&["create", "secret", "generic", "team-git", "--from-literal=token=canary-git"]);
    let origin = "convoke.dev/git-origins=https://git.example.com";
    team.kubectl(&["annotate", "secret", "team-git", origin]);
    let controller = team.start_in(Some(&there.namespace));
    team.follow(&controller, &json!({"secretRef": {"name": "team-git"}}));
    team.commit(&controller, "reviewer", '1', Some('a'));

    // What is missing is told with the command that gives it.
    let said = team.reason("reviewer", "BuildNamespaceForbidden").await;
    assert!(said.contains("--clusterrole=convoke-build-namespace"), "{said}");
    team.let_hold();
    // To read a Secret is for its own namespace to allow, wherever it is built.
    let said = team.reason("reviewer", "CredentialsForbidden").await;
    assert!(
        said.contains(&format!("-n {} create role convoke-git-team-git", team.namespace)),
        "{said}"
    );
    let role = ["create", "role", "git", "--verb=get", "--resource=secrets"];
    team.kubectl(&[&role[..], &["--resource-name=team-git"]].concat());
    team.bind("git", "--role=git");
    let right = format!("-n {} create rolebinding convoke-builds", there.namespace);
    eventually(3 * SOON, "the right in the build namespace is told", || async {
        team.touch("reviewer");
        let said = team.status("reviewer").await.message.unwrap_or_default();
        if said.contains(&right) { Ok(()) } else { Err(said) }
    })
    .await;
    assert!(there.runs().await.is_empty());
    there.bind("builds", "--clusterrole=convoke-builds");

    let (status, run) = team.runs_elsewhere("reviewer", &there).await;
    let labels = run.labels();
    let (namespace, uid) = (&labels["convoke.dev/namespace"], &labels["convoke.dev/uid"]);
    assert_eq!((&labels["convoke.dev/name"], namespace), (&"reviewer".to_owned(), &team.namespace));
    assert!(run.owner_references().is_empty(), "{:?}", run.owner_references());
    assert!(team.runs().await.is_empty());
    assert_eq!(team.finalizers("reviewer").await, [finalizer(&there.namespace)]);
    let secret = there.mounted(&run, "git-auth").await;
    assert!(credentials::texts(&secret)["gitconfig"].contains("extraHeader"));
    assert_eq!(&secret.labels()["convoke.dev/uid"], uid);
    assert_eq!(secret.owner_references()[0].block_owner_deletion, Some(true));
    assert_eq!(team.secrets().await, ["team-git"]);
    let message = status.message.expect("a message");
    assert!(message.contains(&format!("{}/{}", there.namespace, run.name_any())), "{message}");

    // Somebody forges runs: in the build namespace under another name, and in a namespace of their own under the right one.
    let evil = team.in_namespace(&cluster.namespace("evil").await);
    let forge = async |at: &Team<'_>, name: &str| {
        let mut forged = run.clone();
        forged.metadata = kube::api::ObjectMeta {
            name: Some(name.to_owned()),
            labels: run.metadata.labels.clone(),
            annotations: run.metadata.annotations.clone(),
            ..kube::api::ObjectMeta::default()
        };
        forged.data["status"] = Value::Null;
        at.runs_api().create(&PostParams::default(), &forged).await.expect("a run");
        at.push(name, &team, 'e').await;
    };
    forge(&there, "forged").await;
    forge(&evil, &run.name_any()).await;
    there.push(&run.name_any(), &team, 'a').await;
    let built =
        team.until("reviewer", "it is built", |s| s.phase == Some(BuildPhase::Succeeded)).await;
    assert!(built.built_image.expect("an image").ends_with(&"a".repeat(64)));
    assert_eq!(built.history.len(), 1, "{:?}", built.history);
    assert_eq!(built.build_namespace.as_ref(), Some(&there.namespace));

    // While another one is built, it is deleted. All of it goes before it does, and nothing else.
    team.commit(&controller, "reviewer", '2', Some('b'));
    let (_, second) = team.runs_elsewhere("reviewer", &there).await;
    assert_ne!(second.name_any(), run.name_any());
    team.delete("reviewer").await;
    team.is_gone("reviewer").await;
    let left: Vec<_> = there.runs().await.iter().map(ResourceExt::name_any).collect();
    assert_eq!(left, ["forged"], "what is not provably its own stays");
    assert_eq!(there.secrets().await, [""; 0]);
    assert_eq!(evil.runs().await.len(), 1);
}

#[tokio::test]
async fn b5_b7_builds_of_one_name_in_two_namespaces_do_not_meet() {
    let cluster = Cluster::exclusive().await;
    install_templates(&cluster);
    install_tekton(&cluster);
    let one = Team::new(&cluster).await;
    let two = one.in_namespace(&cluster.namespace("team").await);
    let there = one.in_namespace(&cluster.namespace("builds").await);
    one.let_hold();
    let controller = one.start_in(Some(&there.namespace));
    let names = ["reviewer".to_owned(), "writer".to_owned()];
    for team in [&one, &two] {
        team.apply_build("reviewer", &json!({}));
        team.commit_all(&controller, &names, '1', Some('a'), None);
    }
    // One of each namespace: the limit is that of the AgentBuild's namespace.
    let (_, run) = one.runs_elsewhere("reviewer", &there).await;
    let (_, other) = two.runs_elsewhere("reviewer", &there).await;
    assert_ne!(run.name_any(), other.name_any());
    one.apply_build("writer", &json!({}));
    let waits = |s: &AgentBuildStatus| condition(s, "Ready") == Some(("False", "Queued"));
    one.until("writer", "it waits for its turn", waits).await;
    // What needs no privileges stays at home, and waits as well.
    let append = json!({"baseImage": "registry.test:5000/python:3"});
    let spec = json!({"strategy": "Append", "append": append, "buildArgs": {}, "output": {"image": two.image()}});
    two.apply_build("writer", &spec);
    two.until("writer", "it waits for its turn", waits).await;

    // The end of one tells nothing of the other.
    there.push(&other.name_any(), &two, 'b').await;
    let built =
        two.until("reviewer", "it is built", |s| s.phase == Some(BuildPhase::Succeeded)).await;
    assert!(built.built_image.expect("an image").starts_with(&two.repository()));
    assert_eq!(one.status("reviewer").await.phase, Some(BuildPhase::Building));
    let home = two.until("writer", "its turn", |s| s.phase == Some(BuildPhase::Building)).await;
    assert_eq!((two.runs().await.len(), home.build_namespace), (1, None));
    assert!(two.finalizers("writer").await.is_empty());
    // A cancel reaches the run where it is.
    let key = one.status("reviewer").await.build_key.expect("a key");
    one.kubectl(&["annotate", "agentbuild", "reviewer", &format!("convoke.dev/cancel={key}")]);
    eventually(SOON, "it is told to stop", || async {
        let run = there.runs_api().get(&run.name_any()).await.expect("the run");
        let word = run.data["spec"]["status"].clone();
        if word == "Cancelled" { Ok(()) } else { Err(word) }
    })
    .await;

    // One of them goes, and takes its own runs only.
    one.delete("reviewer").await;
    one.is_gone("reviewer").await;
    let left = eventually(SOON, "the next one builds", || async {
        let mut left: Vec<_> = there.runs().await;
        left.retain(|one| one.labels()["convoke.dev/name"] == "reviewer");
        if left.len() == 1 { Ok(left) } else { Err(left.len()) }
    })
    .await;
    assert_eq!(left[0].name_any(), other.name_any());
    // Made anew it is another one, with another run.
    one.apply_build("reviewer", &json!({"buildArgs": {"A": "2"}}));
    let writer = one.runs_elsewhere("writer", &there).await.1;
    there.push(&writer.name_any(), &one, 'c').await;
    let (_, anew) = one.runs_elsewhere("reviewer", &there).await;
    assert_ne!(anew.labels()["convoke.dev/uid"], run.labels()["convoke.dev/uid"]);
}

#[tokio::test]
async fn b5_runs_are_followed_and_removed_after_the_option_was_changed() {
    let cluster = Cluster::exclusive().await;
    install_templates(&cluster);
    install_tekton(&cluster);
    let team = Team::new(&cluster).await;
    let there = team.in_namespace(&cluster.namespace("builds").await);
    team.let_hold();
    let history = json!({"history": {"successful": 1, "failed": 1}});
    team.apply_build("reviewer", &history);
    let mut controller = team.start_in(Some(&there.namespace));
    team.commit(&controller, "reviewer", '1', Some('a'));
    let (_, first) = team.runs_elsewhere("reviewer", &there).await;
    let first = first.name_any();

    // Switched off while it runs: no second one begins, and its end is told.
    drop(controller);
    controller = team.start_in(None);
    team.commit(&controller, "reviewer", '1', Some('a'));
    team.apply_build("barrier", &json!({}));
    team.until("barrier", "the controller works", |s| s.phase.is_some()).await;
    there.push(&first, &team, 'a').await;
    let built =
        team.until("reviewer", "it is built", |s| s.phase == Some(BuildPhase::Succeeded)).await;
    assert_eq!(built.pipeline_run.as_ref(), Some(&first));
    assert!(team.runs().await.is_empty());

    // The next one is at home. Then the history forgets the one elsewhere, and nothing holds the AgentBuild any more.
    team.commit(&controller, "reviewer", '2', Some('b'));
    let second = team
        .until("reviewer", "it builds at home", |s| s.last_attempted_commit == Some("2".repeat(40)))
        .await;
    assert_eq!(second.build_namespace, None);
    assert_eq!(team.finalizers("reviewer").await, [finalizer(&there.namespace)]);
    let second = second.pipeline_run.expect("a run");
    team.end(&second, true).await;
    eventually(3 * SOON, "the run elsewhere is removed, and the finalizer with it", || async {
        team.touch("reviewer");
        let (runs, finalizers) = (there.runs().await.len(), team.finalizers("reviewer").await);
        if runs == 0 && finalizers.is_empty() { Ok(()) } else { Err((runs, finalizers)) }
    })
    .await;

    // Switched on again. Deleted while no operator is there, and by one without the option.
    drop(controller);
    controller = team.start_in(Some(&there.namespace));
    team.commit(&controller, "reviewer", '3', Some('c'));
    team.runs_elsewhere("reviewer", &there).await;
    assert_eq!(team.runs().await.len(), 1, "the one at home stays in the history");
    drop(controller);
    team.delete("reviewer").await;
    assert_eq!(there.runs().await.len(), 1);
    controller = team.start_in(None);
    team.is_gone("reviewer").await;
    assert!(there.runs().await.is_empty());
    drop(controller);
}

#[tokio::test]
async fn b5_a_build_namespace_that_is_missing_is_told_and_holds_nothing() {
    let cluster = Cluster::exclusive().await;
    install_templates(&cluster);
    install_tekton(&cluster);
    let team = Team::new(&cluster).await;
    let there = team.in_namespace(&format!("{}-builds", team.namespace));
    let controller = team.start_in(Some(&there.namespace));
    team.apply_build("reviewer", &json!({}));
    team.commit(&controller, "reviewer", '1', Some('a'));
    let said = team.reason("reviewer", "BuildNamespaceMissing").await;
    assert!(said.contains("kubectl apply -f deploy/build-namespace.yaml"), "{said}");
    assert!(team.finalizers("reviewer").await.is_empty());
    assert!(team.status("reviewer").await.queued_at.is_some(), "it keeps its place");

    // An AgentBuild that has lost the namespace of its runs goes, once the operator may let it go.
    let lost = json!({"metadata": {"finalizers": [finalizer(&there.namespace)]}});
    let api: Api<AgentBuild> = Api::namespaced(team.client.clone(), &team.namespace);
    api.patch("reviewer", &PatchParams::default(), &Patch::Merge(&lost)).await.expect("patched");
    team.delete("reviewer").await;
    let said = team
        .until("reviewer", "the missing right is told", |s| {
            condition(s, "Ready") == Some(("False", "PipelineRunsLeft"))
        })
        .await
        .message
        .expect("a message");
    assert!(said.contains("--clusterrole=convoke-build-namespace"), "{said}");
    team.let_hold();
    team.is_gone("reviewer").await;
    drop(controller);
}
