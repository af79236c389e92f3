//! A tag that all builds push names the newest image, also after a revert, in a real registry. B1.

use super::registry::{PASSWORD, Settings as Kind, USER};
use super::reuse::Stage;
use super::tokens::TokenService;
use super::*;

/// `output.tag` of the build, which is no pattern.
const TAG: &str = "latest";

impl Stage<'_> {
    fn latest(&self) {
        self.apply("reviewer", "reviewer", &json!({"tag": TAG, "secretRef": {"name": "push"}}));
    }

    /// What the tag names.
    async fn named(&self) -> Option<String> {
        let mut client = self.client("reviewer");
        client.digest_of(TAG).await.expect("an answer").map(|digest| digest.to_string())
    }

    /// Waits until the newest key builds, has it make an image, and gives its key and digest.
    async fn makes(&self, commit: char, text: &str) -> (String, String) {
        let is = |s: &AgentBuildStatus| {
            s.phase == Some(BuildPhase::Building)
                && s.last_attempted_commit == Some(commit.to_string().repeat(40))
        };
        let building = self.team.until("reviewer", "it builds", is).await;
        let digest = self.push("reviewer", text, TAG).await;
        let pushed = (self.repository("reviewer"), digest.clone());
        self.team.end_with(&building.pipeline_run.expect("a run"), Some(pushed)).await;
        let key = building.build_key.expect("a key");
        self.succeeded("reviewer", &key).await;
        (key, digest)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn b1_a_fixed_tag_names_the_image_of_a_revert() {
    let cluster = Cluster::exclusive().await;
    // The registry wants tokens of a token service.
    let service = TokenService::start(USER, PASSWORD).await;
    let kind = Kind { tokens: Some(service.for_registry()), ..Kind::default() };
    let Some(stage) = Stage::of(&cluster, &kind).await else { return };
    let team = &stage.team;
    stage.push_secret();
    let mut controller = stage.start();
    stage.latest();
    team.commit(&controller, "reviewer", '1', Some('a'));
    let (one, first) = stage.makes('1', "one").await;
    team.commit(&controller, "reviewer", '2', Some('b'));
    let (two, second) = stage.makes('2', "two").await;
    assert_eq!(stage.named().await.as_ref(), Some(&second));

    // A revert takes the image of the history, and the tag follows before the status says so.
    team.commit(&controller, "reviewer", '3', Some('a'));
    let reverted = stage.succeeded("reviewer", &one).await;
    assert!(reverted.built_image.as_ref().is_some_and(|image| image.ends_with(&first)));
    assert_eq!(
        (stage.named().await.as_ref(), condition(&reverted, "TagStale")),
        (Some(&first), None)
    );

    let puts = || {
        let put = format!("PUT /v2/{}/manifests/{TAG}", team.image());
        stage.registry.requests().iter().filter(|one| **one == put).count()
    };
    assert_eq!(puts(), 3, "two pushes, and the revert");

    // While the registry does not answer, the status says that the tag names something else.
    stage.registry.signal("STOP");
    team.commit(&controller, "reviewer", '4', Some('b'));
    let stale = stage.succeeded("reviewer", &two).await;
    assert_eq!(condition(&stale, "TagStale"), Some(("True", "TagStale")));
    let said = stale.conditions.iter().find(|one| one.type_ == "TagStale").map(|one| &one.message);
    let begin = format!(
        "the tag {TAG} may name another image than {}/{}@{second}: ",
        stage.registry.host(),
        team.image()
    );
    assert!(said.is_some_and(|said| said.starts_with(&begin)), "{said:?}");
    assert_eq!(condition(&stale, "Ready"), Some(("True", "Built")), "the image is there");
    stage.registry.signal("CONT");
    drop(controller);
    controller = stage.start();
    team.commit(&controller, "reviewer", '4', Some('b'));
    let healed =
        team.until("reviewer", "the tag follows", |s| condition(s, "TagStale").is_none()).await;
    assert_eq!(
        (healed.built_key.as_ref(), stage.named().await),
        (Some(&two), Some(second.clone()))
    );
    assert_eq!(puts(), 4);

    // Another tag in the spec is given to the image that is there.
    let runs = team.runs().await.len();
    stage.apply("reviewer", "reviewer", &json!({"tag": "stable", "secretRef": {"name": "push"}}));
    eventually(SOON, "the other tag names it", || async {
        let mut client = stage.client("reviewer");
        let named = client.digest_of("stable").await.expect("an answer");
        if named.map(|digest| digest.to_string()) == Some(second.clone()) {
            Ok(())
        } else {
            Err(())
        }
    })
    .await;
    assert_eq!(team.runs().await.len(), runs, "nothing was built");
    let asked = service.asked();
    let scope = format!("repository:{}:pull,push", team.image());
    assert!(asked.iter().all(|one| one.is_known && one.scopes == [scope.clone()]), "{asked:?}");
    drop(controller);
}
