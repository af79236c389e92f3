//! The limit for everything that was fetched and is kept: G3.

use super::*;

/// Bytes of the file of each repository.
const LARGE: [usize; 3] = [300_000, 400_000, 500_000];
/// Two of them fit.
const LIMIT: u64 = 1_000_000;

struct Stores {
    world: World,
    ids: Vec<String>,
}

impl Stores {
    async fn new() -> Self {
        let mut world = World::new().await;
        let ids = LARGE.iter().enumerate().map(|(number, bytes)| {
            let repo = Repo::init(&world.dir.path().join("server"), &format!("{number}.git"));
            repo.change("main").file("a.yaml", noise(*bytes)).commit("a large file")
        });
        let ids = ids.collect();
        world.repositories = Self::open(&world);
        Self { world, ids }
    }

    fn open(world: &World) -> Repositories {
        Repositories::new(world.dir.path().join("stores"), LIMIT).unwrap()
    }

    fn remote(&self, number: usize) -> Remote {
        self.world.remote_with(|options| {
            options.url = self.world.server.url(&format!("{number}.git"));
            options.owner = format!("{}-{number}", options.owner);
        })
    }

    /// Polls, fetches and reads; then the files of the store are closed.
    async fn read(&self, remote: &Remote, number: usize) {
        let snapshot = sync(remote, "").await.unwrap();
        assert_eq!(snapshot.commit().id, self.ids[number]);
        assert_eq!(bytes(&snapshot), noise(LARGE[number]));
        snapshot.close();
    }

    /// Bytes on the disk.
    fn kept(&self) -> u64 {
        let packs = self.world.dir.path().join("stores");
        let out = std::process::Command::new("du").args(["-sb"]).arg(packs).output().unwrap();
        String::from_utf8(out.stdout).unwrap().split('\t').next().unwrap().parse().unwrap()
    }
}

fn bytes(snapshot: &Snapshot) -> Vec<u8> {
    let entry = snapshot.lookup("a.yaml").unwrap().unwrap();
    snapshot.read(&entry, 1 << 20).unwrap().to_vec()
}

#[tokio::test(flavor = "multi_thread")]
async fn g3_all_that_was_fetched_together_has_a_limit_and_whoever_needs_it_again_fetches_it_again()
{
    let stores = Stores::new().await;
    let remotes: Vec<_> = (0..3).map(|number| stores.remote(number)).collect();
    for _ in 0..3 {
        for (number, remote) in remotes.iter().enumerate() {
            stores.read(remote, number).await;
            assert!(stores.kept() < LIMIT + 100_000, "{} bytes", stores.kept());
        }
    }
    // The largest had to go twice, and the smallest never.
    let fetches = |number: usize| {
        let path = format!("/{number}.git/");
        let requests = stores.world.server.requests();
        let is_one =
            |asked: &&git_faults::Asked| asked.step == Step::Fetch && asked.path.starts_with(&path);
        requests.iter().filter(is_one).count()
    };
    assert_eq!([fetches(0), fetches(1), fetches(2)], [1, 3, 3]);
}

#[tokio::test(flavor = "multi_thread")]
async fn g3_nothing_is_removed_that_somebody_reads_and_what_an_earlier_run_kept_counts() {
    let mut stores = Stores::new().await;
    let remotes: Vec<_> = (0..3).map(|number| stores.remote(number)).collect();
    let mut reading = Vec::new();
    for remote in &remotes {
        reading.push(sync(remote, "").await.unwrap());
    }
    assert!(stores.kept() > LARGE.iter().sum::<usize>() as u64, "{} bytes", stores.kept());
    for (snapshot, len) in reading.iter().zip(LARGE) {
        assert_eq!(bytes(snapshot), noise(len));
    }
    drop((reading, remotes));
    // After a start nobody uses them yet.
    stores.world.repositories = Stores::open(&stores.world);
    let used = stores.remote(2);
    let repo = Repo::init(&stores.world.dir.path().join("server"), "small.git");
    repo.commit("main", &[("a.yaml", "a: 1")]);
    let small = stores.world.remote_with(|options| {
        options.url = stores.world.server.url("small.git");
    });
    sync(&small, "").await.unwrap();
    assert!(stores.kept() < LIMIT, "{} bytes", stores.kept());
    // Those that nobody has asked for yet are spared before those that somebody can fetch again.
    stores.world.server.forget();
    stores.read(&stores.remote(0), 0).await;
    stores.read(&stores.remote(1), 1).await;
    assert!(!stores.world.server.steps().contains(&Step::Fetch));
    stores.read(&used, 2).await;
    assert!(stores.world.server.steps().contains(&Step::Fetch));
}

#[tokio::test(flavor = "multi_thread")]
async fn g3_whoever_fetches_and_cannot_read_keeps_nothing_from_being_removed() {
    let stores = Stores::new().await;
    let remotes: Vec<_> = (0..3).map(|number| stores.remote(number)).collect();
    for remote in &remotes {
        let error = sync(remote, "nowhere").await.unwrap_err();
        assert_eq!(error.reason(), "PathMissing");
        assert!(stores.kept() < LIMIT + 100_000, "{} bytes", stores.kept());
    }
    // Once more with a snapshot that is known already.
    for (number, remote) in remotes.iter().enumerate() {
        stores.read(remote, number).await;
        sync(remote, "").await.unwrap().close();
    }
    assert!(stores.kept() < LIMIT + 100_000, "{} bytes", stores.kept());
}
