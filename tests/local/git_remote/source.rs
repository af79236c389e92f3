//! What a GitSync reads over time: the last good commit is kept, what moved is followed: G1, G3.

use std::collections::BTreeMap;

use convoke::api::git_sync::GitSyncSpec;
use convoke::cluster::store::Key;
use convoke::sync::budgets::Budgets;
use convoke::sync::commit::source_at::SourceAt;
use convoke::sync::commit::source_error::SourceError;
use convoke::sync::local::LocalFolders;
use convoke::sync::source::Source;
use convoke::sync::verification::KnownKeys;

use super::*;

/// The source of one GitSync, as the operator keeps it.
pub struct Reader {
    pub spec: GitSyncSpec,
    source: Source,
}

fn source(world: &World, budgets: Budgets) -> Source {
    let owner = world.dir.path().display().to_string();
    Source::new(owner, world.repositories.clone(), loopback(), budgets)
}

impl Reader {
    pub fn new(world: &World) -> Self {
        let spec = serde_json::json!({"url": world.server.url("team.git"), "timeout": "20s"});
        Self {
            spec: serde_json::from_value(spec).unwrap(),
            source: source(world, Budgets::default()),
        }
    }

    pub async fn refresh(&mut self) -> Result<bool, SourceError> {
        let key = Key::new("team", "main");
        self.source.refresh(&self.spec, &key, None).await
    }

    /// Verifies with these keys from now on.
    pub fn verify_with(&mut self, keys: Option<&std::sync::Arc<convoke::git::Keys>>) {
        self.source.known_keys = keys.cloned().map_or_else(KnownKeys::default, KnownKeys::of);
        self.source.ask_as_known();
    }

    /// Reads a commit that was applied before.
    pub async fn recall(&mut self, commit: &str) -> Result<(), SourceError> {
        let (key, applied) = (Key::new("team", "main"), revision(commit));
        self.source.recall(&self.spec, &key, applied).await
    }

    /// Learns what was wanted before from a commit that was applied.
    pub async fn reach_back(&mut self, commit: &str) -> Result<bool, SourceError> {
        let (key, applied) = (Key::new("team", "main"), revision(commit));
        self.source.reach_back(&self.spec, &key, (Some(applied), true), None).await
    }

    /// Whether nothing is known that may be applied.
    pub fn is_blind(&self) -> bool {
        self.source.loaded.is_none()
    }

    /// Whether it is not known what was wanted before.
    pub fn is_lost(&self) -> bool {
        self.source.loaded.as_ref().is_some_and(|loaded| loaded.lost)
    }

    /// Names that the commit wants.
    pub fn objects(&self) -> Vec<&str> {
        let loaded = self.source.loaded.as_ref().expect("something is loaded");
        loaded.desired.keys().map(|id| &*id.name).collect()
    }

    /// Names of which definitions of earlier commits are kept.
    pub fn kept(&self) -> Vec<&str> {
        let loaded = self.source.loaded.as_ref().expect("something is loaded");
        let is_kept = |id: &&convoke::api::ObjectId| !loaded.desired.contains_key(*id);
        loaded.measure.keys().filter(is_kept).map(|id| &*id.name).collect()
    }

    /// The name of each AgentBuild with its source, and the ids of its trees.
    fn builds(&self) -> Vec<(&str, &SourceAt)> {
        let loaded = self.source.loaded.as_ref().expect("something is loaded");
        loaded.builds.iter().map(|(name, source)| (name.as_str(), source)).collect()
    }

    pub fn has_errors(&self) -> bool {
        self.source.loaded.as_ref().is_some_and(|loaded| loaded.catalog.has_errors())
    }
}

pub fn model(name: &str) -> String {
    format!(
        "apiVersion: convoke.dev/v1alpha1\nkind: ModelAPI\nmetadata:\n  name: {name}\nspec:\n  mode: External\n  external:\n    url: https://models.example.com/v1\n"
    )
}

/// What a server says when it no longer has what it listed.
fn not_our_ref(id: &str) -> Fault {
    let line = format!("ERR upload-pack: not our ref {id}");
    Fault::Replace(format!("{:04x}{line}", line.len() + 4).into_bytes())
}

fn count(world: &World, step: Step) -> usize {
    world.server.steps().into_iter().filter(|one| *one == step).count()
}

#[tokio::test(flavor = "multi_thread")]
async fn g3_a_ref_that_moves_while_it_is_fetched_is_asked_for_again_at_once() {
    let world = World::new().await;
    let id = world.repo.commit("main", &[("a.yaml", &model("a"))]);
    let mut reader = Reader::new(&world);
    for _ in 0..3 {
        world.server.inject(Step::Fetch, not_our_ref(&id));
    }
    assert_eq!(reader.refresh().await, Ok(true));
    assert_eq!((count(&world, Step::LsRefs), count(&world, Step::Fetch)), (4, 4));
    assert_eq!(reader.objects(), ["a"]);

    // But not for ever, and what was read stays.
    let id = world.repo.commit("main", &[("b.yaml", &model("b"))]);
    world.server.inject_always(Step::Fetch, not_our_ref(&id));
    world.server.forget();
    assert_eq!(reader.refresh().await, Err(GitError::CommitGone { commit: id }.into()));
    assert_eq!((count(&world, Step::LsRefs), count(&world, Step::Fetch)), (4, 4));
    assert_eq!(reader.objects(), ["a"]);
    world.server.heal();
    assert_eq!(reader.refresh().await, Ok(true));
    assert_eq!(reader.objects(), ["a", "b"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn g22_a_commit_that_was_recalled_counts_as_found_once_the_remote_shows_it() {
    let world = World::new().await;
    let id = world.repo.commit("main", &[("a.yaml", &model("a"))]);
    assert_eq!(Reader::new(&world).refresh().await, Ok(true));
    // Another operator, whose first look fails.
    let mut reader = Reader::new(&world);
    world.server.inject(Step::LsRefs, Fault::Status(500));
    assert!(reader.refresh().await.is_err());
    let (key, applied) = (Key::new("team", "main"), Revision { commit: id, name: "main".into() });
    reader.source.recall(&reader.spec, &key, applied).await.unwrap();
    let read = |reader: &Reader| {
        let loaded = reader.source.loaded.clone().unwrap();
        (loaded.recalled, loaded.found)
    };
    let (recalled, at) = read(&reader);
    assert!(recalled);
    assert_eq!(reader.refresh().await, Ok(true));
    let (recalled, found) = read(&reader);
    assert!(!recalled && found > at, "nobody had asked the remote until then");
    assert_eq!(reader.refresh().await, Ok(false));
    assert_eq!(read(&reader), (false, found));
}

#[tokio::test(flavor = "multi_thread")]
async fn c15_a_commit_of_an_earlier_run_is_fetched_only_from_a_server_that_answers() {
    let world = World::new().await;
    let id = world.repo.commit("main", &[("a.yaml", &model("a"))]);
    let mut reader = Reader::new(&world);
    world.server.inject(Step::LsRefs, Fault::Status(503));
    assert!(reader.recall(&id).await.is_err());
    assert_eq!(count(&world, Step::Fetch), 0);
    world.server.forget();
    // Whoever asks again at once gets the same answer, and one that began to follow it later asks. The branch is gone meanwhile.
    world.repo.git(&["branch", "-m", "main", "other"]);
    assert!(reader.recall(&id).await.is_err());
    assert!(world.server.steps().is_empty());
    let mut reader = Reader::new(&world);
    reader.recall(&id).await.unwrap();
    assert_eq!(reader.objects(), ["a"]);
    let steps = world.server.steps();
    assert_eq!(steps.last(), Some(&Step::Fetch), "{steps:?}");
    assert!(steps.contains(&Step::LsRefs), "{steps:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn g1_other_coordinates_read_the_same_store_anew() {
    let world = World::new().await;
    world.repo.commit("main", &[("a.yaml", &model("a")), ("sub/s.yaml", &model("s"))]);
    world.repo.change("next").orphan().file("n.yaml", model("n")).commit("next");
    let other = Repo::init(&world.dir.path().join("server"), "other.git");
    other.commit("main", &[("o.yaml", &model("o"))]);
    let mut reader = Reader::new(&world);
    let first = reader.spec.clone();
    for _ in 0..2 {
        reader.spec = first.clone();
        assert_eq!(reader.refresh().await, Ok(true));
        assert_eq!(reader.objects(), ["a", "s"]);
        reader.spec.path = "sub".into();
        assert_eq!(reader.refresh().await, Ok(true));
        assert_eq!(reader.objects(), ["s"]);
        reader.spec.reference = Some(branch("next"));
        reader.spec.path = ".".into();
        assert_eq!(reader.refresh().await, Ok(true));
        assert_eq!(reader.objects(), ["n"]);
        reader.spec = GitSyncSpec { url: world.server.url("other.git"), ..first.clone() };
        assert_eq!(reader.refresh().await, Ok(true));
        assert_eq!(reader.objects(), ["o"]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn c9_a_refresh_that_is_given_up_does_not_disturb_the_next_coordinates() {
    let world = World::new().await;
    world.repo.commit("main", &[("a.yaml", &model("a"))]);
    world.repo.change("next").orphan().file("n.yaml", model("n")).commit("next");
    let mut reader = Reader::new(&world);
    world.server.inject(Step::Fetch, Fault::Stall(40));
    let given_up = tokio::time::timeout(Duration::from_millis(300), reader.refresh()).await;
    assert!(given_up.is_err());
    reader.spec.reference = Some(branch("next"));
    assert_eq!(reader.refresh().await, Ok(true));
    assert_eq!(reader.objects(), ["n"]);
}

/// Files of the world's store that are mapped into this process.
fn mapped(world: &World) -> Vec<String> {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let store = world.store().to_string_lossy().into_owned();
    maps.lines().filter(|line| line.contains(&store)).map(str::to_owned).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn p14_a_store_is_open_only_while_it_is_read() {
    let world = World::new().await;
    let mut reader = Reader::new(&world);
    for name in ["a", "b"] {
        world.repo.commit("main", &[(&format!("{name}.yaml"), &model(name))]);
        assert_eq!(reader.refresh().await, Ok(true));
        assert_eq!(mapped(&world), <[String; 0]>::default());
    }
    assert_eq!(reader.objects(), ["a", "b"]);

    let snapshot = sync(&world.remote(), "").await.unwrap();
    assert_eq!(content(&snapshot, "a.yaml"), model("a"));
    assert_ne!(mapped(&world), <[String; 0]>::default());
    snapshot.close();
    assert_eq!(mapped(&world), <[String; 0]>::default());
    assert_eq!(content(&snapshot, "b.yaml"), model("b"), "it opens again");
}

#[tokio::test(flavor = "multi_thread")]
async fn g6_the_operators_budgets_hold() {
    let world = World::new().await;
    let two = format!("{}---\n{}", model("b"), model("c"));
    world.repo.commit("main", &[("a.yaml", &model("a")), ("two.yaml", &two)]);
    let refresh = async |change: &dyn Fn(&mut Budgets)| {
        let mut budgets = Budgets::default();
        change(&mut budgets);
        let mut reader = Reader::new(&world);
        reader.source = source(&world, budgets);
        let read = reader.refresh().await;
        let problems = reader.source.loaded.map_or(Vec::new(), |loaded| {
            loaded.catalog.problems.iter().map(|problem| problem.code.clone()).collect()
        });
        read.map(|_| problems)
    };
    let nothing: Vec<String> = Vec::new();
    assert_eq!(refresh(&|_| ()).await, Ok(nothing));
    let budget = Ok(vec!["CVK0004".to_owned()]);
    assert_eq!(refresh(&|budgets| budgets.definition.documents = 1).await, budget);
    assert_eq!(refresh(&|budgets| budgets.git.files = 1).await, budget);
    assert_eq!(refresh(&|budgets| budgets.git.file_bytes = model("a").len() as u64).await, budget);
    let error = {
        world.repo.change("main").file("big.bin", noise(300_000)).commit("big");
        refresh(&|budgets| budgets.git.pack_bytes = 1000).await.unwrap_err()
    };
    assert_eq!(error.reason().as_str(), "PackTooLarge");
}

#[tokio::test(flavor = "multi_thread")]
async fn b2_of_a_build_from_another_repository_only_the_definition_is_told() {
    let world = World::new().await;
    let build = |name: &str, source: &str| {
        format!(
            "apiVersion: convoke.dev/v1alpha1\nkind: AgentBuild\nmetadata:\n  name: {name}\nspec:\n  source:\n    {source}\n    subfolder: image\n  output:\n    registry: registry.example.com\n    image: i\n  trigger:\n    paths: [lib]\n"
        )
    };
    let (own, other) =
        (build("own", "gitSync: {}"), build("other", "git: {url: 'https://git.example.com/a'}"));
    let files =
        [("own.yaml", &*own), ("other.yaml", &*other), ("image/Dockerfile", "x"), ("lib", "x")];
    let commit = world.repo.commit("main", &files);
    let mut reader = Reader::new(&world);
    reader.refresh().await.unwrap();
    let builds = reader.builds();
    let [("other", other_source), ("own", own_source)] = builds[..] else { panic!("{builds:?}") };
    assert_eq!((&other_source.commit, &own_source.commit), (&commit, &commit));
    assert_eq!((&other_source.subfolder_tree, other_source.paths.len()), (&None, 0));
    assert!(own_source.subfolder_tree.is_some() && own_source.paths["lib"].is_some());
    assert!(other_source.applied.is_some(), "whether it is applied counts");

    // In a folder on disk there is nothing that can be cloned. Another repository is somewhere else.
    let dir = tempfile::tempdir().unwrap();
    for (name, text) in [("own.yaml", own), ("other.yaml", other)] {
        std::fs::write(dir.path().join(name), text).unwrap();
    }
    let local = format!("team/main={}", dir.path().display()).parse().unwrap();
    let local = LocalFolders::new(vec![local]);
    let key = Key::new("team", "main");
    let source = source(&world, Budgets::default()).in_place_of(local.of(&key));
    let mut reader = Reader { source, ..reader };
    reader.refresh().await.unwrap();
    let builds = reader.builds();
    let [("other", other_source)] = builds[..] else { panic!("{builds:?}") };
    assert_eq!((&other_source.subfolder_tree, other_source.applied.is_some()), (&None, true));
}

#[tokio::test(flavor = "multi_thread")]
async fn b1_b2_the_dockerfile_of_a_commit_is_read_if_its_base_images_are_followed() {
    let world = World::new().await;
    let build = |name: &str, follows: bool, dockerfile: &str| {
        format!(
            "apiVersion: convoke.dev/v1alpha1\nkind: AgentBuild\nmetadata:\n  name: {name}\nspec:\n  source:\n    gitSync: {{}}\n    subfolder: image\n  output:\n    registry: registry.example.com\n    image: i\n  dockerfile: {dockerfile}\n  trigger:\n    baseImage: {follows}\n"
        )
    };
    let large = "#".repeat(300_000);
    let all = [
        ("a.yaml", build("follows", true, "Dockerfile")),
        ("b.yaml", build("not", false, "Dockerfile")),
        ("c.yaml", build("missing", true, "none")),
        ("d.yaml", build("large", true, "large")),
        ("image/Dockerfile", "FROM python:3.13\n".to_owned()),
        ("image/large", large),
    ];
    let files: Vec<_> = all.iter().map(|(path, text)| (*path, text.as_str())).collect();
    let commit = world.repo.commit("main", &files);
    let mut reader = Reader::new(&world);
    reader.refresh().await.unwrap();
    let builds = reader.builds();
    let of = |name: &str| {
        let (_, source) = builds.iter().find(|(of, _)| *of == name).expect("a build");
        source.dockerfile.clone()
    };
    let follows = of("follows").expect("a Dockerfile");
    assert_eq!(follows.path, "image/Dockerfile");
    let bases = follows.read.expect("it is read").bases(&BTreeMap::new());
    assert_eq!((bases.images.len(), &*bases.images[0].image), (1, "python:3.13"));
    assert_eq!(of("not"), None);
    let why = |name: &str| of(name).expect("an answer").read.expect_err("a reason");
    assert_eq!(why("missing"), "the commit has no file image/none");
    assert_eq!(why("large"), "image/large is larger than 262144 bytes");

    // Of a repository of its own, nothing but that file is read.
    let remote = world.remote();
    let found = async |path: &str| remote.file(&commit, path.to_owned(), 1000).await.unwrap();
    assert_eq!(found("image/Dockerfile").await.as_deref(), Ok(&b"FROM python:3.13\n"[..]));
    for (path, why) in [
        ("image/none", "the commit has no file image/none"),
        ("image/large", "image/large is larger than 1000 bytes"),
        ("image", "image is no regular file"),
        ("../image", "the commit has no file ../image"),
    ] {
        assert_eq!(found(path).await, Err(why.to_owned()), "{path}");
    }
}
