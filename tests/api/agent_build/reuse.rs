//! An image that was built before is found again, in a real registry. Tekton's controller is not here: the tests push what a build would.

use std::net::TcpListener;
use std::sync::atomic::{AtomicUsize, Ordering};

use convoke::api::agent_build::BuildRecord;
use convoke::registry::client::Options;
use convoke::registry::{Credentials, Digest, Registry as Client, Tag, auth};

use super::registry::{PASSWORD, Registry, Settings as Kind, USER};
use super::*;

const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";

/// A team that pushes into a registry.
pub(super) struct Stage<'c> {
    pub(super) team: Team<'c>,
    pub(super) registry: Registry,
    login: auth::Login,
    /// The questions about proofs that this test has asked itself.
    own: AtomicUsize,
}

impl<'c> Stage<'c> {
    /// `None` without a registry.
    pub(super) async fn new(cluster: &'c Cluster, password: bool) -> Option<Self> {
        Self::of(cluster, &Kind { password, ..Kind::default() }).await
    }

    /// The same with a registry of this kind.
    pub(super) async fn of(cluster: &'c Cluster, kind: &Kind<'_>) -> Option<Self> {
        let registry = Registry::start(kind)?;
        let password = kind.password || kind.tokens.is_some();
        install_tekton(cluster);
        install_templates(cluster);
        let login = if password {
            auth::Login::Password { user: USER.into(), password: PASSWORD.into() }
        } else {
            auth::Login::Anonymous
        };
        let own = AtomicUsize::new(0);
        Some(Self { team: Team::new(cluster).await, registry, login, own })
    }

    pub(super) fn start(&self) -> Controller {
        self.team.start_for(&self.registry.host())
    }

    /// An AgentBuild with this image, below the namespace.
    pub(super) fn apply(&self, name: &str, image: &str, more: &Value) {
        let mut output =
            json!({"image": format!("{}/{image}", self.team.namespace), "insecure": true});
        for (key, value) in more.as_object().expect("a map") {
            output[key] = value.clone();
        }
        self.team.apply_build(name, &json!({ "output": output }));
    }

    /// The Secret `push` with user and password for the registry, and the rights that a build with it needs.
    pub(super) fn push_secret(&self) {
        let team = &self.team;
        let user = format!("--from-literal=username={USER}");
        let password = format!("--from-literal=password={PASSWORD}");
        team.kubectl(&["create", "secret", "generic", "push", &user, &password]);
        let ours = format!("http://{}/{}", self.registry.host(), team.namespace);
        let ours = format!("convoke.dev/registries={ours}");
        team.kubectl(&["annotate", "secret", "push", &ours]);
        let role = ["create", "role", "push", "--verb=get", "--resource=secrets"];
        team.kubectl(&[&role[..], &["--resource-name=push"]].concat());
        team.bind("push", "--role=push");
        team.bind("builds", "--clusterrole=convoke-builds");
    }

    pub(super) fn repository(&self, image: &str) -> String {
        format!("{}/{}/{image}", self.registry.host(), self.team.namespace)
    }

    /// What anybody who may push to a repository can do.
    pub(super) fn client(&self, image: &str) -> Client {
        let dialler = Dialler::new(Policy { insecure: true, ..Policy::default() });
        let credentials = Credentials { login: self.login.clone(), roots: None };
        let options = Options { plain_http: true, credentials, total: SOON };
        let image = self.repository(image).parse().expect("an image");
        Client::new(dialler, image, options).expect("a client")
    }

    /// Pushes an image, as a build does. Gives its digest.
    pub(super) async fn push(&self, image: &str, text: &str, tag: &str) -> String {
        let empty = json!({"mediaType": "application/vnd.oci.empty.v1+json", "size": 2,
            "digest": Digest::of(b"{}").to_string()});
        let manifest = json!({"schemaVersion": 2, "mediaType": MANIFEST, "config": empty, "layers": [empty],
            "annotations": {"text": text}});
        let bytes = manifest.to_string().into_bytes();
        self.client(image).push_note(&bytes, &tag_of(tag)).await.expect("pushed");
        Digest::of(&bytes).to_string()
    }

    /// What is in place of the proof of a key.
    async fn proof(&self, image: &str, key: &str) -> Option<Vec<u8>> {
        self.own.fetch_add(1, Ordering::Relaxed);
        self.client(image).manifest(&proof_of(key)).await.expect("an answer")
    }

    /// The requests of the operator about the proofs of an image.
    fn asked(&self, image: &str) -> usize {
        let path = format!("/{image}/manifests/cvk-");
        let is =
            |one: &&String| one.starts_with("GET") && one.contains(&path) && one.contains(".proof");
        self.registry.requests().iter().filter(is).count() - self.own.load(Ordering::Relaxed)
    }

    pub(super) async fn building(&self, name: &str) -> AgentBuildStatus {
        self.team.until(name, "it builds", |s| s.phase == Some(BuildPhase::Building)).await
    }

    /// Builds the newest key, which makes an image. Gives the status.
    async fn build(&self, name: &str, image: &str, text: &str) -> AgentBuildStatus {
        let building = self.building(name).await;
        let key = building.build_key.expect("a key");
        let digest = self.push(image, text, &format!("cvk-{key}")).await;
        let pushed = (self.repository(image), digest);
        self.team.end_with(&building.pipeline_run.expect("a run"), Some(pushed)).await;
        self.succeeded(name, &key).await
    }

    pub(super) async fn succeeded(&self, name: &str, key: &str) -> AgentBuildStatus {
        let is = |s: &AgentBuildStatus| {
            s.phase == Some(BuildPhase::Succeeded) && s.build_key.as_deref() == Some(key)
        };
        self.team.until(name, "it has its image", is).await
    }

    /// Deletes an AgentBuild and its runs.
    pub(super) async fn delete(&self, name: &str) {
        self.team.kubectl(&["delete", "agentbuild", name, "--cascade=foreground"]);
        eventually(SOON, "its runs are gone", || async {
            let runs = self.team.runs().await;
            let left = runs.iter().filter(|run| run.labels()["convoke.dev/name"] == name).count();
            if left == 0 { Ok(()) } else { Err(left) }
        })
        .await;
    }

    /// Has the reviewer looked at, at a commit that touches other files, and waits until the controller has done all that came before.
    async fn barrier(&self, controller: &Controller, name: &str, commit: char) {
        self.apply(name, name, &json!({}));
        let both = ["reviewer".to_owned(), name.to_owned()];
        self.team.commit_all(controller, &both, commit, Some('a'), None);
        self.team.touch("reviewer");
        self.building(name).await;
    }
}

fn tag_of(text: &str) -> Tag {
    text.parse().expect("a tag")
}

fn proof_of(key: &str) -> Tag {
    tag_of(&format!("cvk-{key}.proof"))
}

/// What is found of a build.
fn image_of(status: &AgentBuildStatus) -> (Option<&str>, Option<&str>) {
    (status.built_image.as_deref(), status.built_key.as_deref())
}

#[tokio::test(flavor = "multi_thread")]
async fn b1_a_build_that_is_made_anew_finds_its_image_in_the_registry() {
    let cluster = Cluster::exclusive().await;
    let Some(stage) = Stage::new(&cluster, false).await else { return };
    let team = &stage.team;
    let mut controller = stage.start();
    stage.apply("reviewer", "reviewer", &json!({}));
    team.commit(&controller, "reviewer", '1', Some('a'));
    let built = stage.build("reviewer", "reviewer", "one").await;
    let key = built.build_key.clone().expect("a key");
    let proof = stage.proof("reviewer", &key).await.expect("a proof, before the status");
    let image = built.built_image.clone().expect("an image");
    let digest = image.rsplit_once('@').expect("a digest").1.to_owned();
    assert!(String::from_utf8_lossy(&proof).contains(&digest));
    assert_eq!(stage.asked("reviewer"), 1, "once, before it was built");

    // The same object again, with nothing that remembers it.
    stage.delete("reviewer").await;
    stage.apply("reviewer", "reviewer", &json!({}));
    let found = stage.succeeded("reviewer", &key).await;
    assert_eq!(image_of(&found), image_of(&built));
    assert_eq!(condition(&found, "Ready"), Some(("True", "Built")));
    let said = format!("found {image} in the registry, where an earlier build has left it");
    assert_eq!((found.message.as_deref(), &found.pipeline_run), (Some(said.as_str()), &None));
    let [
        BuildRecord {
            pipeline_run: None, result: BuildResult::Succeeded, image: Some(kept), ..
        },
    ] = &found.history[..]
    else {
        panic!("{:?}", found.history);
    };
    assert_eq!(*kept, image);
    assert!(team.runs().await.is_empty());
    assert_eq!(stage.asked("reviewer"), 2);

    // At rest nothing is asked, nor after a restart with another commit.
    for (name, commit) in [("barrier-1", '2'), ("barrier-2", '3')] {
        stage.barrier(&controller, name, commit).await;
        assert_eq!((stage.asked("reviewer"), team.status("reviewer").await), (2, found.clone()));
        drop(controller);
        controller = stage.start();
    }

    // Another key is built, and a revert to what was found needs no registry.
    team.commit(&controller, "reviewer", '4', Some('b'));
    let second = stage.build("reviewer", "reviewer", "two").await;
    assert_ne!(second.built_image, found.built_image);
    assert_eq!(stage.asked("reviewer"), 3, "the new key");
    team.commit(&controller, "reviewer", '5', Some('a'));
    assert_eq!(image_of(&stage.succeeded("reviewer", &key).await), image_of(&built));
    assert_eq!(stage.asked("reviewer"), 3);

    // What was built before is not used again when somebody asks for that.
    team.kubectl(&["annotate", "agentbuild", "reviewer", "convoke.dev/rebuild=now"]);
    let again = stage.build("reviewer", "reviewer", "again").await;
    assert_ne!(again.build_key.as_ref(), Some(&key));
    assert_ne!(again.built_image, built.built_image);

    // Made anew, it knows nothing of that, and takes nothing from before it.
    stage.delete("reviewer").await;
    stage.apply("reviewer", "reviewer", &json!({}));
    assert_eq!(stage.building("reviewer").await.build_key, Some(key));
    drop(controller);
}

#[tokio::test(flavor = "multi_thread")]
async fn b1_a_found_image_needs_neither_a_trigger_nor_tekton() {
    let cluster = Cluster::exclusive().await;
    let Some(stage) = Stage::new(&cluster, true).await else { return };
    let team = &stage.team;
    // The registry asks for a password.
    stage.push_secret();
    let controller = stage.start();
    let secret = json!({"secretRef": {"name": "push"}});
    stage.apply("reviewer", "reviewer", &secret);
    team.commit(&controller, "reviewer", '1', Some('a'));
    let built = stage.build("reviewer", "reviewer", "one").await;
    let key = built.build_key.clone().expect("a key");
    stage.delete("reviewer").await;
    remove_tekton(&cluster).await;
    tekton_is_gone(&cluster).await;
    let image = format!("{}/reviewer", team.namespace);
    let output = json!({"image": image, "insecure": true, "secretRef": {"name": "push"}});
    team.apply_build("reviewer", &json!({"output": output, "trigger": {"onCommit": false}}));
    let found = stage.succeeded("reviewer", &key).await;
    assert_eq!(image_of(&found), image_of(&built));
    assert!(!format!("{found:?}").contains(PASSWORD));
    drop(controller);
}

#[tokio::test(flavor = "multi_thread")]
async fn b1_what_somebody_else_has_pushed_first_is_not_used() {
    let cluster = Cluster::exclusive().await;
    let Some(stage) = Stage::new(&cluster, false).await else { return };
    let team = &stage.team;
    let controller = stage.start();
    // Of another build with the same key: both are made of the same.
    stage.apply("writer", "shared", &json!({}));
    team.commit(&controller, "writer", '1', Some('a'));
    let writer = stage.build("writer", "shared", "of the writer").await;
    let key = writer.build_key.clone().expect("a key");
    let proof = stage.proof("shared", &key).await.expect("a proof");
    let mut round = 0;
    let mut is_built = async |what: &str| {
        round += 1;
        stage.apply("reviewer", "shared", &json!({}));
        team.commit(&controller, "reviewer", '1', Some('a'));
        let building = stage.building("reviewer").await;
        assert_eq!(building.build_key.as_ref(), Some(&key), "{what}");
        assert_eq!(building.built_image, None, "{what}");
        assert_eq!(stage.asked("shared") - 1, round, "{what}: it was asked");
        stage.delete("reviewer").await;
    };
    is_built("the proof of another build").await;
    // An image under the tag of the key, and no proof or one that somebody has made.
    let evil = stage.push("shared", "evil", &format!("cvk-{key}")).await;
    let mut client = stage.client("shared");
    let text = String::from_utf8(proof.clone()).expect("text");
    let good =
        writer.built_image.as_deref().and_then(|image| image.rsplit_once('@')).expect("a digest").1;
    let swapped = text.replace(good, &evil);
    assert_ne!(swapped, text);
    for (what, manifest) in [
        ("another digest under the same MAC", swapped.as_bytes()),
        ("no MAC", text.replace("dev.convoke.mac", "dev.convoke.other").as_bytes()),
    ] {
        client.push_note(manifest, &proof_of(&key)).await.expect("pushed");
        is_built(what).await;
    }
    stage.push("shared", "an image", proof_of(&key).as_str()).await;
    is_built("an image in place of the proof").await;
    // It is the build's own, and was not lost: the writer finds it when it is made anew.
    client.push_note(&proof, &proof_of(&key)).await.expect("pushed");
    stage.delete("writer").await;
    stage.apply("writer", "shared", &json!({}));
    team.commit(&controller, "writer", '1', Some('a'));
    assert_eq!(image_of(&stage.succeeded("writer", &key).await), image_of(&writer));
    drop(controller);
}

#[tokio::test(flavor = "multi_thread")]
async fn b1_an_image_that_is_gone_from_the_registry_is_built_again() {
    let cluster = Cluster::exclusive().await;
    let Some(stage) = Stage::new(&cluster, false).await else { return };
    let team = &stage.team;
    let controller = stage.start();
    stage.apply("reviewer", "reviewer", &json!({}));
    team.commit(&controller, "reviewer", '1', Some('a'));
    let building = stage.building("reviewer").await;
    // The registry never had this one.
    let digest = format!("sha256:{}", "d".repeat(64));
    let pushed = (stage.repository("reviewer"), digest);
    team.end_with(&building.pipeline_run.expect("a run"), Some(pushed)).await;
    let key = building.build_key.expect("a key");
    stage.succeeded("reviewer", &key).await;
    stage.proof("reviewer", &key).await.expect("a proof");
    stage.delete("reviewer").await;
    stage.apply("reviewer", "reviewer", &json!({}));
    let again = stage.building("reviewer").await;
    assert_eq!((again.build_key.as_ref(), &again.built_image), (Some(&key), &None));
    drop(controller);
}

#[tokio::test(flavor = "multi_thread")]
async fn b1_a_registry_that_does_not_answer_is_waited_for_once_and_not_for_each_build() {
    let cluster = Cluster::exclusive().await;
    install_tekton(&cluster);
    install_templates(&cluster);
    let team = Team::new(&cluster).await;
    // Whoever connects gets no answer.
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    listener.set_nonblocking(true).expect("not blocking");
    let controller = team.start_for(&listener.local_addr().expect("an address").to_string());
    let names: Vec<_> = (0..24).map(|n| format!("build-{n}")).collect();
    for name in &names {
        let output = json!({"image": format!("{}/{name}", team.namespace), "insecure": true});
        team.apply_build(name, &json!({ "output": output }));
    }
    team.commit_all(&controller, &names, '1', Some('a'), None);
    for name in &names {
        let building =
            team.until(name, "it builds", |s| s.phase == Some(BuildPhase::Building)).await;
        assert_eq!(building.attempt, Some(1));
    }
    let mut came = Vec::new();
    while let Ok(connection) = listener.accept() {
        came.push(connection);
    }
    // As many as are reconciled at once of one namespace.
    assert!((1..=4).contains(&came.len()), "{} of {} have asked", came.len(), names.len());
    drop(controller);
}

#[tokio::test(flavor = "multi_thread")]
async fn b1_v47_in_the_operators_registry_an_image_begins_with_the_namespace() {
    let cluster = Cluster::exclusive().await;
    let Some(stage) = Stage::new(&cluster, false).await else { return };
    let team = &stage.team;
    let controller = stage.start();
    let registry = stage.registry.host();
    for (name, output) in [
        ("none", json!({"image": "other/reviewer", "insecure": true})),
        ("same", json!({"registry": registry, "image": "reviewer", "insecure": true})),
        ("near", json!({"image": format!("{}x/reviewer", team.namespace), "insecure": true})),
    ] {
        team.apply_build(name, &json!({ "output": output }));
        team.commit(&controller, name, '1', Some('a'));
        let said = team.reason(name, "ImagePathNotAllowed").await;
        assert!(said.contains(&format!("does not begin with {}/", team.namespace)), "{said}");
        let status = team.status(name).await;
        assert_eq!(
            (status.phase, condition(&status, "Stalled")),
            (Some(BuildPhase::Failed), Some(("True", "ImagePathNotAllowed")))
        );
    }
    // Elsewhere it may have any name. Nobody is there.
    let output = json!({"registry": "127.0.0.1:1", "image": "reviewer", "insecure": true});
    team.apply_build("elsewhere", &json!({ "output": output }));
    team.commit(&controller, "elsewhere", '1', Some('a'));
    stage.building("elsewhere").await;
    assert_eq!((team.runs().await.len(), stage.registry.requests()), (1, Vec::new()));
    drop(controller);
}
