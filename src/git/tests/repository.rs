use super::super::refs::{Found, Listed};
use super::*;
use crate::order::Seq;

const URL: &str = "https://git.example.com/team.git";

fn all(folder: &Path) -> Repositories {
    Repositories::new(folder.to_owned(), u64::MAX).unwrap()
}

fn open(all: &Repositories, url: &str, credentials: &[u8]) -> Arc<Repository> {
    all.open((url, credentials), &Limits::default(), || Ok(None)).unwrap()
}

#[test]
fn g3_the_same_url_and_credentials_are_one_repository_also_after_a_start() {
    let dir = tempfile::tempdir().unwrap();
    let one = all(dir.path());
    let team = open(&one, URL, b"token");
    assert!(Arc::ptr_eq(&team, &open(&one, URL, b"token")));
    for (url, credentials) in
        [(URL, &b"other"[..]), (URL, b""), ("https://git.example.com/team", b"token")]
    {
        assert_ne!(open(&one, url, credentials).id, team.id);
    }
    // Where one part ends and the next begins counts.
    assert_ne!(open(&one, "ab", b"c").id, open(&one, "a", b"bc").id);
    assert_eq!(open(&all(dir.path()), URL, b"token").id, team.id, "after a start");
    let other = tempfile::tempdir().unwrap();
    assert_ne!(open(&all(other.path()), URL, b"token").id, team.id, "nobody can compute the name");
    let mode = std::os::unix::fs::MetadataExt::mode(&fs::metadata(dir.path().join(KEY)).unwrap());
    assert_eq!(mode & 0o777, 0o600);
}

#[test]
fn g15_stores_are_removed_when_nobody_uses_them_and_nothing_else_is() {
    let dir = tempfile::tempdir().unwrap();
    let one = all(dir.path());
    let (used, unused) = (open(&one, URL, b"a"), open(&one, URL, b"b"));
    let folders = [&used.id, &unused.id].map(|id| dir.path().join(id));
    let left_behind = dir.path().join(format!("{DELETED}{}", used.id));
    let mine = dir.path().join("mine");
    for folder in folders.iter().chain([&left_behind, &mine]) {
        fs::create_dir_all(folder.join("pack")).unwrap();
    }
    let link = dir.path().join("0".repeat(64));
    std::os::unix::fs::symlink(&mine, &link).unwrap();
    let id = unused.id.clone();
    drop(unused);
    one.sweep(Duration::from_secs(3600)).unwrap();
    assert!(folders.iter().all(|folder| folder.is_dir()), "it was in use a moment ago");
    assert!(!left_behind.exists());
    one.sweep(Duration::ZERO).unwrap();
    assert_eq!(folders.each_ref().map(|folder| folder.is_dir()), [true, false]);
    assert!(mine.join("pack").is_dir() && link.is_symlink());
    // At once, if it is known that it is not needed.
    one.remove_unused(&used.id).unwrap();
    assert!(folders[0].is_dir(), "it is in use");
    let id_of_used = used.id.clone();
    drop(used);
    one.remove_unused(&id_of_used).unwrap();
    one.remove_unused(&id).unwrap();
    assert!(!folders[0].exists());
    // Folders of an earlier run count as used at the start.
    fs::create_dir_all(&folders[0]).unwrap();
    all(dir.path()).sweep(Duration::from_secs(3600)).unwrap();
    assert!(folders[0].is_dir());
    all(dir.path()).sweep(Duration::ZERO).unwrap();
    assert!(!folders[0].exists());
    // So are they for others, when somebody goes who used them.
    fs::create_dir_all(&folders[0]).unwrap();
    let two = all(dir.path());
    drop(open(&two, URL, b"a"));
    two.remove_unused(&id_of_used).unwrap();
    assert!(folders[0].is_dir(), "others may not have asked yet");
    two.sweep(Duration::ZERO).unwrap();
    fs::create_dir_all(&folders[0]).unwrap();
    two.remove_unused(&id_of_used).unwrap();
    assert!(!folders[0].exists(), "by now they have");
}

#[tokio::test(start_paused = true)]
async fn g1_those_whose_ref_has_moved_are_woken_once_and_one_after_the_other() {
    let dir = tempfile::tempdir().unwrap();
    let repository = open(&all(dir.path()), URL, b"");
    let woken = Arc::new(Mutex::new(Vec::new()));
    let follow = |name: &str, told: Option<u8>| {
        let (woken, name) = (Arc::clone(&woken), name.to_owned());
        let target = Target::Branch(name.clone());
        let wake = Wake(Arc::new(move |after| woken.lock().push((name.clone(), after))));
        let follower = Arc::new(Follower::new(String::new(), target, Some(wake)));
        if let Some(told) = told {
            tell(&follower, told);
        }
        repository.follow(&follower);
        follower
    };
    let behind = [follow("a", Some(1)), follow("b", Some(1))];
    let failed = follow("c", Some(1));
    failed.tell(&Err(GitError::Busy), Seq::next());
    let (_current, _new, asking) = (follow("d", Some(2)), follow("e", None), follow("f", Some(1)));
    drop(follow("gone", Some(1)));
    let _question = asking.asks();
    let look = look(&repository, 2).await;
    repository.wake_others(&look);
    let first = std::mem::take(&mut *woken.lock());
    let names: Vec<_> = first.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["a", "b", "c"], "those that were told something else and do not ask now");
    assert!(first.is_sorted_by_key(|(_, after)| *after) && first[0].1 == FIRST_WAKE);
    repository.wake_others(&look);
    assert_eq!(*woken.lock(), [], "once");
    // What is new until then changes nothing about when they wake.
    let next = self::look(&repository, 3).await;
    repository.wake_others(&next);
    let names = |woken: &[(String, Duration)]| -> Vec<_> {
        woken.iter().map(|(name, _)| name.clone()).collect()
    };
    let second = std::mem::take(&mut *woken.lock());
    assert_eq!(names(&second), ["a", "b", "c", "d"]);
    assert_eq!(second[..3], first[..], "at the same times");
    // In a busy repository each is woken every ten seconds.
    tokio::time::advance(Duration::from_secs(1)).await;
    tell(&behind[0], 3);
    let newest = self::look(&repository, 4).await;
    repository.wake_others(&newest);
    let third = std::mem::take(&mut *woken.lock());
    assert_eq!(names(&third), ["a", "b", "c", "d"]);
    let late = Duration::from_secs(9);
    assert!(third.iter().all(|(_, after)| (late..late + Duration::from_secs(2)).contains(after)));
    // Back to what it was woken for before.
    tokio::time::advance(Duration::from_secs(60)).await;
    tell(&behind[0], 5);
    repository.wake_others(&newest);
    assert_eq!(names(&woken.lock()), ["a"]);
}

/// Tells it of a commit.
fn tell(follower: &Follower, number: u8) {
    let found = Found { commit: commit(number), tag: None };
    follower.tell(&Ok(Listed { found, name: String::new() }), Seq::next());
}

#[tokio::test]
async fn g1_what_does_not_exist_is_asked_for_by_its_followers_only() {
    let dir = tempfile::tempdir().unwrap();
    let repository = open(&all(dir.path()), URL, b"");
    let follow = |name: &str| {
        let follower =
            Arc::new(Follower::new(String::new(), Target::Branch(name.to_owned()), None));
        repository.follow(&follower);
        follower
    };
    let (main, new, missing) = (follow("main"), follow("new"), follow("m"));
    tell(&main, 1);
    let kind = "branch";
    let name = "m".to_owned();
    let error =
        GitError::RefNotFound { kind, name, nearest: Vec::new(), there: Vec::new(), other: None };
    missing.tell(&Err(error), Seq::next());
    let sorted = |targets: &[Target]| -> Vec<_> {
        let mut names: Vec<_> = targets.iter().map(|one| format!("{one:?}")).collect();
        names.sort();
        names
    };
    let of = |all: &[&Arc<Follower>]| -> Vec<_> {
        all.iter().map(|one| format!("{:?}", one.target)).collect()
    };
    let targets = || {
        let Followed { there, absent } = repository.targets();
        (sorted(&there), sorted(&absent))
    };
    assert_eq!(targets(), (of(&[&main, &new]), of(&[&missing])));
    tell(&missing, 1);
    assert_eq!(targets(), (of(&[&missing, &main, &new]), of(&[])));
    repository.look_alone();
    assert_eq!(targets(), (of(&[]), of(&[])));
}

fn commit(number: u8) -> ObjectId {
    ObjectId::from_hex(format!("{number:040x}").as_bytes()).unwrap()
}

/// A look that shows this commit for all refs.
async fn look(repository: &Repository, number: u8) -> Arc<Look> {
    let mine = Target::Branch("mine".to_owned());
    let (told, timeout) = (Seq::default(), Duration::from_secs(1));
    let wish = super::super::looks::Wish { target: &mine, max_age: None, told, timeout };
    let found = Found { commit: commit(number), tag: None };
    let listed = || Ok(Listed { found, name: String::new() });
    let targets = repository.targets().there;
    let answers =
        || targets.iter().chain([&mine]).map(|target| (target.clone(), listed())).collect();
    repository.looks.get(wish, |_| async { Ok(answers()) }).await.unwrap().0
}

#[test]
fn g5_v12_a_push_matters_to_those_who_share_the_repository_and_to_nobody_else() {
    let dir = tempfile::tempdir().unwrap();
    let all = all(dir.path());
    let follow = |owner: &str, credentials: &[u8], target: Target| {
        let repository = open(&all, URL, credentials);
        all.note_use(owner, &repository);
        let follower = Arc::new(Follower::new(owner.into(), target, None));
        repository.follow(&follower);
        (repository, follower)
    };
    let branch = |name: &str| Target::Branch(name.into());
    let range = semver::VersionReq::parse("^1.2").unwrap();
    let one = follow("one", b"token", branch("main"));
    let stranger = follow("stranger", b"", branch("main"));
    let _versions = follow("versions", b"token", Target::Versions(range, "^1.2".into()));
    let two = follow("two", b"token", branch("next"));
    for pushed in ["refs/heads/next", "refs/tags/v1.3.0"] {
        assert!(all.others_follow("one", pushed), "{pushed}");
        assert!(!all.others_follow("stranger", pushed), "{pushed}");
    }
    for pushed in ["refs/heads/main", "refs/heads/x", "refs/tags/v2.0.0", "refs/tags/next", "x"] {
        assert!(!all.others_follow("one", pushed), "{pushed}");
    }
    assert!(all.others_follow("two", "refs/heads/main"));
    assert!(!all.others_follow("nobody", "refs/heads/main"));
    drop(two);
    assert!(!all.others_follow("one", "refs/heads/next"), "it follows nothing any more");
    drop((one, stranger));
}
