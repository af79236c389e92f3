//! AgentBuilds that name a repository of their own. B2, B1, V55.

use super::credentials::texts;
use super::*;
use crate::webhook::git_faults::{Fault, GitServer, Repo, Step};

/// What must be in the Secrets, and nowhere else: as it is, and as it is in a header.
const CANARIES: [&str; 2] = ["canary-app", "Y2FuYXJ5LWFwc"];

/// A repository with a folder that is built, and its server.
struct App {
    repo: Repo,
    server: GitServer,
    _root: tempfile::TempDir,
}

impl App {
    async fn new() -> (Self, String) {
        let root = tempfile::tempdir().expect("a folder");
        let repo = Repo::init(root.path(), "app.git");
        let files = [("image/Dockerfile", "FROM scratch"), ("shared/lib", "1"), ("README", "1")];
        let first = repo.commit("main", &files);
        let server = GitServer::start(root.path()).await;
        (Self { repo, server, _root: root }, first)
    }

    fn url(&self) -> String {
        self.server.url("app.git")
    }

    fn commit(&self, path: &str, content: &str) -> String {
        self.repo.change("main").file(path, content).commit("a change")
    }

    /// How often the server was asked for this.
    fn count(&self, step: Step) -> usize {
        self.server.steps().iter().filter(|seen| **seen == step).count()
    }

    /// Waits until the server was asked for this so often.
    async fn asked(&self, step: Step, times: usize) {
        eventually(SOON, "the server is asked", || async {
            let count = self.count(step);
            if count >= times { Ok(()) } else { Err(count) }
        })
        .await;
    }

    /// The source of an AgentBuild, with more in it.
    fn source(&self, more: &Value) -> Value {
        let mut git = json!({"url": self.url(), "interval": "1s"});
        for (key, value) in more.as_object().expect("a map") {
            git[key] = value.clone();
        }
        json!({"source": {"git": git, "subfolder": "image"}})
    }
}

fn param(run: &DynamicObject, name: &str) -> Value {
    let all = run.data["spec"]["params"].as_array().expect("parameters");
    all.iter().find(|one| one["name"] == name).expect(name)["value"].clone()
}

/// Whether this commit of branch main was seen.
fn is_at(status: &AgentBuildStatus, commit: &str) -> bool {
    status.observed_revision.as_ref() == Some(&format!("main@sha1:{commit}"))
}

impl Team<'_> {
    /// An AgentBuild that somebody made with kubectl: no GitSync has it.
    fn apply_own(&self, name: &str, spec: &Value) {
        let mut whole = json!({"output": {"image": self.image()}});
        for (key, value) in spec.as_object().expect("a map") {
            whole[key] = value.clone();
        }
        self.cluster.apply(&json!({
            "apiVersion": "convoke.dev/v1alpha1", "kind": "AgentBuild",
            "metadata": {"name": name, "namespace": self.namespace}, "spec": whole,
        }));
    }

    /// Waits until a build runs from this commit; gives its run.
    async fn builds(&self, name: &str, commit: &str) -> DynamicObject {
        let is = |status: &AgentBuildStatus| {
            status.phase == Some(BuildPhase::Building)
                && status.last_attempted_commit.as_deref() == Some(commit)
        };
        let run = self.until(name, "it builds", is).await.pipeline_run.expect("a run");
        self.runs_api().get(&run).await.expect("the run")
    }

    /// Has a build poll at once.
    fn request(&self, name: &str) {
        let now = format!("{}={}", keys::REQUESTED_AT, jiff::Timestamp::now());
        self.kubectl(&["annotate", "--overwrite", "agentbuild", name, &now]);
    }

    /// Waits until `Ready` has this reason, while it is asked to poll; gives its message.
    async fn told(&self, name: &str, reason: &str) -> String {
        let is = |status: &AgentBuildStatus| {
            self.request(name);
            condition(status, "Ready") == Some(("False", reason))
        };
        self.until(name, reason, is).await.message.expect("a message")
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn b1_b2_another_repository_is_built_when_what_is_built_of_it_changes() {
    let cluster = Cluster::exclusive().await;
    install_templates(&cluster);
    install_tekton(&cluster);
    let team = Team::new(&cluster).await;
    let (app, first) = App::new().await;
    let spec = |more: &Value| {
        let mut spec = app.source(more);
        spec["trigger"] = json!({"paths": ["shared"]});
        spec
    };
    let controller = team.start();
    team.apply_own("app", &spec(&json!({})));
    let run = team.builds("app", &first).await;
    assert_eq!(
        (param(&run, "repo-url"), param(&run, "revision")),
        (json!(app.url()), json!(first))
    );
    assert_eq!(param(&run, "subfolder"), "image");
    assert_eq!(run.annotations()[keys::COMMIT], first);
    assert_eq!(run.data["spec"]["workspaces"].as_array().map(Vec::len), Some(1), "no Secret");
    let status = team.status("app").await;
    assert!(is_at(&status, &first));
    assert_eq!(status.source, None, "no GitSync has it");
    team.end(&run.name_any(), true).await;
    let built = team.until("app", "it is built", |s| s.phase == Some(BuildPhase::Succeeded)).await;

    // A commit that changes something else.
    let second = app.commit("README", "2");
    let seen = team.until("app", "it is seen", |s| is_at(s, &second)).await;
    assert_eq!((&seen.build_key, &seen.conditions), (&built.build_key, &built.conditions));
    assert_eq!(team.runs().await.len(), 1);
    // It is asked for on and on, and nothing is fetched or written.
    let since = cluster.audit_mark();
    app.server.forget();
    app.asked(Step::LsRefs, 3).await;
    assert_eq!((app.count(Step::Fetch), team.writes(since)), (0, Vec::<String>::new()));

    // One that changes a path of the trigger, and one that changes the folder.
    let third = app.commit("shared/lib", "2");
    let run = team.builds("app", &third).await;
    team.end(&run.name_any(), true).await;
    team.until("app", "it is built", |s| s.last_built_commit.as_ref() == Some(&third)).await;
    let fourth = app.commit("image/Dockerfile", "FROM scratch\n");
    let run = team.builds("app", &fourth).await;
    assert_eq!(team.runs().await.len(), 3);
    let ending = cluster.audit_mark();
    team.end(&run.name_any(), true).await;
    team.until("app", "it is built", |s| s.phase == Some(BuildPhase::Succeeded)).await;
    // Its event comes after its status.
    eventually(SOON, "the event is told", || async {
        let writes = team.writes(ending);
        if writes.iter().any(|write| write.ends_with("events/")) { Ok(()) } else { Err(writes) }
    })
    .await;

    // A restart builds nothing, and writes nothing.
    drop(controller);
    app.server.forget();
    let since = cluster.audit_mark();
    let _controller = team.start();
    app.asked(Step::LsRefs, 3).await;
    assert_eq!((team.runs().await.len(), team.writes(since)), (3, Vec::<String>::new()));

    // A tag: of what was built before, the image is taken.
    app.repo.annotated_tag("v1", &first);
    team.apply_own("app", &spec(&json!({"ref": {"tag": "v1"}})));
    let tagged = team
        .until("app", "the tag", |s| s.observed_revision == Some(format!("v1@sha1:{first}")))
        .await;
    assert_eq!(tagged.build_key, built.build_key);
    team.until("app", "its image", |s| s.built_key == built.built_key).await;
    assert_eq!(team.runs().await.len(), 3);

    // What is not there is told, and the image stays.
    team.apply_own("app", &spec(&json!({"ref": {"branch": "mian"}})));
    let wrong = team
        .until("app", "it is told", |s| condition(s, "Ready") == Some(("False", "RefNotFound")))
        .await;
    assert_eq!(
        (&wrong.built_image, wrong.phase),
        (&built.built_image, Some(BuildPhase::Succeeded))
    );
    let said = wrong.message.expect("a message");
    assert!(said.ends_with("hint: did you mean main?"), "{said}");
    team.apply_own("app", &spec(&json!({"ref": {"branch": "main"}})));
    team.until("app", "it heals", |s| condition(s, "Ready") == Some(("True", "Built"))).await;
    assert_eq!(team.runs().await.len(), 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn b2_v55_a_secret_is_used_only_for_the_repositories_that_it_names() {
    let cluster = Cluster::exclusive().await;
    install_templates(&cluster);
    install_tekton(&cluster);
    let team = Team::new(&cluster).await;
    team.apply_policies();
    let (app, first) = App::new().await;
    app.server.inject_always(Step::Advertise, Fault::Status(401));
    let controller = team.start();
    team.apply_own("app", &app.source(&json!({})));
    let said = team.told("app", "AuthenticationFailed").await;
    assert!(
        said.ends_with("name a Secret with credentials in spec.source.git.secretRef"),
        "{said}"
    );

    let own = app.source(&json!({"secretRef": {"name": "app-git"}}));
    team.apply_own("app", &own);
    let said = team.told("app", "CredentialsForbidden").await;
    assert!(said.contains("create role convoke-git-app-git --verb=get"), "{said}");
    let role = ["create", "role", "git", "--verb=get", "--resource=secrets"];
    team.kubectl(&[&role[..], &["--resource-name=app-git"]].concat());
    team.bind("git", "--role=git");
    team.bind("builds", "--clusterrole=convoke-builds");
    let said = team.told("app", "CredentialsMissing").await;
    assert!(said.contains("create secret generic app-git --from-literal=token=..."), "{said}");
    team.kubectl(&["create", "secret", "generic", "app-git", "--from-literal=token=canary-app"]);
    // What is enough for a GitSync, whose URL no commit names, is not enough here. Nor is another repository.
    let address = app.server.url("");
    let address = address.trim_end_matches('/');
    for annotation in [
        format!("{}={address}", keys::GIT_ORIGINS),
        format!("{}={address}/other", keys::REPOSITORIES),
        format!("{}={address}/app", keys::REPOSITORIES),
    ] {
        team.kubectl(&["annotate", "--overwrite", "secret", "app-git", &annotation]);
        let said = team.told("app", "CredentialsNotAllowed").await;
        assert!(said.contains(&app.url()) && !said.contains("other"), "{said}");
    }
    assert!(app.server.requests().iter().all(|asked| asked.authorization.is_none()));
    assert!(team.runs().await.is_empty());

    app.server.heal();
    app.server.forget();
    let ours = format!("{}={address}/other,{}", keys::REPOSITORIES, app.url());
    team.kubectl(&["annotate", "--overwrite", "secret", "app-git", &ours]);
    team.request("app");
    let run = team.begun("app").await;
    assert_eq!(param(&run, "revision"), json!(first));
    let asked = app.server.requests();
    assert!(asked.iter().any(|one| one.step == Step::Fetch));
    for one in asked {
        let sent = one.authorization.unwrap_or_default();
        // "x-access-token:canary-app".
        assert_eq!(sent, "Basic eC1hY2Nlc3MtdG9rZW46Y2FuYXJ5LWFwcA==", "{:?}", one.step);
    }
    let files = texts(&team.mounted(&run, "git-auth").await);
    assert!(files["gitconfig"].contains("eC1hY2Nlc3MtdG9rZW46Y2FuYXJ5LWFwcA=="));
    let shown = team.all_that_is_shown("app").await;
    assert!(CANARIES.iter().all(|canary| !shown.contains(canary)), "{shown}");

    // When it may not be used any more, it is not. The run that has it already is followed to its end.
    team.end(&run.name_any(), true).await;
    team.until("app", "it is built", |s| s.phase == Some(BuildPhase::Succeeded)).await;
    team.kubectl(&["annotate", "secret", "app-git", &format!("{}-", keys::REPOSITORIES)]);
    team.told("app", "CredentialsNotAllowed").await;
    app.server.forget();
    let others = app.source(&json!({"interval": "2s"}));
    team.apply_own("open", &others);
    app.asked(Step::LsRefs, 3).await;
    assert!(app.server.requests().iter().all(|asked| asked.authorization.is_none()));
    drop(controller);
}

#[tokio::test(flavor = "multi_thread")]
async fn b2_builds_of_one_repository_share_its_refs_and_fetches() {
    let cluster = Cluster::exclusive().await;
    install_templates(&cluster);
    let team = Team::new(&cluster).await;
    let (app, first) = App::new().await;
    let names = ["one", "two", "three"];
    let _controller = team.start();
    for name in names {
        // Nothing but the word of another one wakes them.
        team.apply_own(name, &app.source(&json!({"interval": "1h"})));
        team.until(name, "it is seen", |s| is_at(s, &first)).await;
    }
    assert_eq!(app.count(Step::Fetch), 1, "{:?}", app.server.steps());
    app.server.forget();
    let second = app.commit("image/Dockerfile", "FROM scratch\n");
    team.request("one");
    for name in names {
        team.until(name, "it is seen", |s| is_at(s, &second)).await;
    }
    let count = (app.count(Step::LsRefs), app.count(Step::Fetch));
    assert_eq!(count, (1, 1), "{:?}", app.server.steps());
}

#[tokio::test(flavor = "multi_thread")]
async fn b2_a_repository_that_does_not_answer_delays_no_other_build() {
    let cluster = Cluster::exclusive().await;
    install_templates(&cluster);
    install_tekton(&cluster);
    let team = Team::new(&cluster).await;
    let ((hangs, hidden), (app, first)) = (App::new().await, App::new().await);
    hangs.server.inject_always(Step::Advertise, Fault::Silence);
    let _controller = team.start();
    for number in 0..12 {
        team.apply_own(&format!("hangs-{number}"), &hangs.source(&json!({})));
    }
    let source = hangs.source(&json!({"timeout": "2s"}));
    team.apply_own("short", &source);
    hangs.asked(Step::Advertise, 1).await;
    team.apply_own("app", &app.source(&json!({})));
    team.builds("app", &first).await;
    let waits = team.status("hangs-1").await;
    assert_eq!(condition(&waits, "Ready"), Some(("False", "SourcePending")));
    let message = "waiting for the newest commit of the repository of spec.source.git";
    assert_eq!(waits.message.as_deref(), Some(message));
    let late =
        team.until("short", "it is told", |s| condition(s, "Ready") == Some(("False", "Timeout")));
    let said = late.await.message.expect("a message");
    assert!(said.contains("raise spec.source.git.timeout"), "{said}");
    hangs.server.heal();
    team.request("short");
    team.until("short", "it heals", |s| is_at(s, &hidden)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn b2_a_build_from_git_is_built_as_its_newest_commit_wants_it() {
    let cluster = Cluster::exclusive().await;
    install_templates(&cluster);
    install_tekton(&cluster);
    let team = Team::new(&cluster).await;
    let (app, first) = App::new().await;
    let controller = team.start();
    // The definition of the newest commit is not applied yet.
    team.commit_of(&controller, "app", '1', None, Some("new".into()));
    team.apply_build("app", &app.source(&json!({})));
    team.until("app", "it waits", |s| condition(s, "Ready") == Some(("False", "NotApplied"))).await;
    assert!(team.runs().await.is_empty());
    let applied = format!("{}=new", keys::APPLIED);
    team.kubectl(&["annotate", "agentbuild", "app", &applied]);
    let run = team.builds("app", &first).await;
    team.end(&run.name_any(), true).await;
    team.until("app", "it is built", |s| s.phase == Some(BuildPhase::Succeeded)).await;

    // The GitSync's commit is not what is built.
    team.commit_of(&controller, "app", '2', None, Some("new".into()));
    let second = app.commit("image/Dockerfile", "FROM scratch\n");
    let run = team.builds("app", &second).await;
    team.end(&run.name_any(), true).await;
    team.until("app", "it is built", |s| s.phase == Some(BuildPhase::Succeeded)).await;

    // What no commit holds any more is not built.
    let sync = Key::new(team.namespace.as_str(), "team");
    let (url, absence) = (URL, Absence::Proven);
    controller.sources.publish(
        &sync,
        CommitBuilds { uid: SYNC, url, builds: &[], absence },
        Vec::new,
    );
    let third = app.commit("image/Dockerfile", "FROM scratch\n\n");
    team.until("app", "it is seen", |s| is_at(s, &third)).await;
    assert_eq!(team.runs().await.len(), 2);
}
