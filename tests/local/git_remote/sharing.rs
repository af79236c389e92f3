//! What remotes of the same repository share: lists of refs, fetches and the store: G3.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use convoke::git::Wake;
use futures::future::join_all;

use super::*;

/// A remote of somebody else.
fn remote_of(world: &World, owner: &str, change: impl FnOnce(&mut RemoteOptions)) -> Remote {
    world.remote_with(|options| {
        options.owner = format!("{}-{owner}", world.dir.path().display());
        change(options);
    })
}

fn count(world: &World, step: Step) -> usize {
    world.server.steps().iter().filter(|seen| **seen == step).count()
}

#[tokio::test(flavor = "multi_thread")]
async fn g3_all_of_a_repository_are_served_by_one_list_of_refs_one_fetch_and_one_store() {
    let world = World::new().await;
    let folders: Vec<_> = (0..100).map(|number| format!("team-{number}/a.yaml")).collect();
    let change = folders.iter().fold(world.repo.change("main"), |all, path| all.file(path, path));
    let id = change.commit("all");
    let remotes: Vec<_> =
        (0..100).map(|number| remote_of(&world, &number.to_string(), |_| {})).collect();
    let read = async |remote: &Remote, path: &str| {
        let folder = path.split('/').next().unwrap();
        let snapshot = sync(remote, folder).await.unwrap();
        assert_eq!((&*snapshot.commit().id, content(&snapshot, path)), (&*id, path.to_owned()));
    };
    join_all(remotes.iter().zip(&folders).map(|(remote, path)| read(remote, path))).await;
    assert!(count(&world, Step::LsRefs) <= 2, "{:?}", world.server.steps());
    assert_eq!(count(&world, Step::Fetch), 1);
    assert_eq!(world.packs().len(), 1);
    // A recent answer is enough for whoever says so.
    world.server.forget();
    let within = |remote: &Remote| {
        let remote = remote.clone();
        async move { remote.resolve_within(Some(Duration::from_secs(60))).await.revision.unwrap() }
    };
    let all = join_all(remotes.iter().map(within)).await;
    assert!(all.iter().all(|revision| revision.commit == id));
    assert!(world.server.steps().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn v12_who_asks_as_somebody_else_shares_nothing() {
    let world = World::new().await;
    world.repo.commit("main", &[("a.yaml", "a: 1")]);
    let token = |token: &str| {
        let data = BTreeMap::from([("token".to_owned(), token.as_bytes().to_vec())]);
        Credentials::of(&data, &world.server.url("team.git")).unwrap()
    };
    let one = remote_of(&world, "one", |options| options.credentials = token("one"));
    let same = remote_of(&world, "same", |options| options.credentials = token("one"));
    let other = remote_of(&world, "other", |options| options.credentials = token("other"));
    let nobody = remote_of(&world, "nobody", |_| {});
    let age = Some(Duration::from_secs(60));
    for remote in [&one, &same, &other, &nobody] {
        let revision = remote.resolve_within(age).await.revision.unwrap();
        remote.fetch(&revision).await.unwrap();
    }
    // Each of the three asks and fetches by itself, with its own credentials.
    let asked = world.server.requests();
    for step in [Step::LsRefs, Step::Fetch] {
        let mut by: Vec<_> = asked.iter().filter(|asked| asked.step == step).collect();
        by.sort_by_key(|asked| asked.authorization.clone());
        by.dedup_by_key(|asked| asked.authorization.clone());
        assert_eq!(by.len(), 3, "{step:?}");
    }
    assert_eq!(asked.iter().filter(|asked| asked.step == Step::Fetch).count(), 3);
    let ids = [&one, &other, &nobody].map(Remote::repository);
    assert!(ids[0] != ids[1] && ids[1] != ids[2] && same.repository() == ids[0]);
    // Whoever is refused learns nothing, although the commit is there.
    world.server.inject_always(Step::Advertise, Fault::Status(401));
    let late = remote_of(&world, "late", |options| options.credentials = token("one"));
    assert_eq!(late.resolve().await.unwrap_err().reason(), "AuthenticationFailed");
}

#[tokio::test(flavor = "multi_thread")]
async fn v12_a_pinned_commit_of_the_store_is_read_only_while_the_server_lets_us_in() {
    let world = World::new().await;
    let id = world.repo.commit("main", &[("a.yaml", "a: 1")]);
    sync(&world.remote(), "").await.unwrap();
    let pinned = || remote_of(&world, "pinned", |options| options.reference = commit(&id));
    world.server.inject_always(Step::Advertise, Fault::Status(403));
    // As after another start: no earlier answer counts.
    let error = sync(&pinned(), "").await.unwrap_err();
    assert_eq!(error.reason(), "AuthenticationFailed");
    world.server.heal();
    assert_eq!(content(&sync(&pinned(), "").await.unwrap(), "a.yaml"), "a: 1");
    assert_eq!(count(&world, Step::Fetch), 1, "it was there");
}

#[tokio::test(flavor = "multi_thread")]
async fn g3_refs_of_one_repository_are_fetched_beside_each_other_and_none_is_lost() {
    let world = World::new().await;
    let names: Vec<_> = (0..30).map(|number| format!("team-{number}")).collect();
    for name in &names {
        world.repo.change(name).orphan().file("a.yaml", format!("{name}: 0")).commit("first");
    }
    let remotes: Vec<_> = names
        .iter()
        .map(|name| remote_of(&world, name, |options| options.reference = branch(name)))
        .collect();
    for round in 0..4 {
        if round > 0 {
            for name in &names {
                world.repo.commit(name, &[("a.yaml", &format!("{name}: {round}"))]);
            }
        }
        let read = async |remote: &Remote, name: &str| {
            let snapshot = sync(remote, "").await.unwrap_or_else(|error| panic!("{name}: {error}"));
            assert_eq!(content(&snapshot, "a.yaml"), format!("{name}: {round}"));
        };
        world.server.forget();
        join_all(remotes.iter().zip(&names).map(|(remote, name)| read(remote, name))).await;
        assert!(count(&world, Step::LsRefs) <= 2, "all refs are asked for together");
        assert!(count(&world, Step::Fetch) <= names.len() + 5, "{}", count(&world, Step::Fetch));
    }
    // What nobody reads any more is gone: at most the packs of one store, and those that snapshots still use.
    drop(remotes);
    sync(&world.remote_with(|options| options.reference = branch("team-0")), "").await.unwrap();
    assert!(world.packs().len() <= 64, "{}", world.packs().len());
}

#[tokio::test(flavor = "multi_thread")]
async fn g3_a_fetch_that_fails_fails_once_for_all_who_wait_and_one_that_hangs_delays_no_other_ref()
{
    let world = World::new().await;
    world.repo.commit("main", &[("a.yaml", "a: 1")]);
    world.repo.change("next").orphan().file("n.yaml", "n: 1").commit("next");
    let remotes: Vec<_> =
        (0..20).map(|number| remote_of(&world, &number.to_string(), |_| {})).collect();
    let next = remote_of(&world, "next", |options| options.reference = branch("next"));
    let revision = remotes[0].resolve().await.unwrap();
    let of_next = next.resolve().await.unwrap();
    world.server.inject(Step::Fetch, Fault::Stall(100));
    let hanging = remote_of(&world, "hangs", |options| {
        options.silence = Duration::from_secs(3);
    });
    let hangs = hanging.fetch(&revision);
    let others = async {
        while count(&world, Step::Fetch) == 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        next.fetch(&of_next).await.unwrap();
        assert_eq!(content(&next.snapshot(&of_next.commit, "").await.unwrap(), "n.yaml"), "n: 1");
        assert!(next.fetch_of_another(&of_next).is_none(), "nobody does");
        let waits = remotes[0].fetch_of_another(&revision).expect("somebody fetches it");
        futures::join!(waits, join_all(remotes.iter().map(|remote| remote.fetch(&revision))))
    };
    let (hung, (shared, others)) = futures::join!(hangs, others);
    assert_eq!(hung.unwrap_err().reason(), "ServerSilent");
    assert_eq!(shared.unwrap().unwrap_err().reason(), "ServerSilent");
    assert!(others.iter().all(Result::is_err), "they shared it");
    assert_eq!(count(&world, Step::Fetch), 2);
    // The next try works, for all.
    let again = join_all(remotes.iter().map(|remote| remote.fetch(&revision))).await;
    assert!(again.iter().all(Result::is_ok));
    assert_eq!(count(&world, Step::Fetch), 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn g1_who_sees_that_a_ref_has_moved_wakes_the_others() {
    let world = World::new().await;
    world.repo.commit("main", &[("a.yaml", "a: 1")]);
    world.repo.branch("still", &world.repo.id("main"));
    let woken = Arc::new(AtomicUsize::new(0));
    let wake = || {
        let woken = Arc::clone(&woken);
        Some(Wake(Arc::new(move |_| {
            woken.fetch_add(1, Ordering::SeqCst);
        })))
    };
    let follow = |owner: &str, name: &str| {
        remote_of(&world, owner, |options| {
            (options.wake, options.reference) = (wake(), branch(name));
        })
    };
    let (one, other, still) = (follow("one", "main"), follow("two", "main"), follow("s", "still"));
    for remote in [&one, &other, &still] {
        remote.resolve().await.unwrap();
    }
    assert_eq!(woken.load(Ordering::SeqCst), 0);
    let newest = world.repo.commit("main", &[("a.yaml", "a: 2")]);
    // A look for the ref that has not moved shows it, too.
    still.resolve().await.unwrap();
    assert_eq!(woken.load(Ordering::SeqCst), 2);
    world.server.forget();
    let found = other.resolve_within(Some(Duration::from_secs(60))).await.revision.unwrap();
    assert_eq!((found.commit, world.server.steps()), (newest, Vec::new()));
    // Once for each commit.
    still.resolve().await.unwrap();
    assert_eq!(woken.load(Ordering::SeqCst), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn g3_a_ref_that_is_missing_costs_only_those_who_follow_it() {
    let world = World::new().await;
    world.repo.commit("main", &[("a.yaml", "a: 1")]);
    let good = remote_of(&world, "good", |_| {});
    let lost = remote_of(&world, "lost", |options| options.reference = branch("mian"));
    good.resolve().await.unwrap();
    assert_eq!(count(&world, Step::LsRefs), 1, "not all refs are listed for the other one");
    world.server.forget();
    let age = Some(Duration::from_secs(60));
    let error = lost.resolve_within(age).await.revision.unwrap_err();
    assert!(
        error.to_string().contains("main") || format!("{error:?}").contains("main"),
        "{error:?}"
    );
    assert_eq!(count(&world, Step::LsRefs), 2, "the ref, and then all for the hint");
}

#[tokio::test(flavor = "multi_thread")]
async fn g3_many_refs_that_are_missing_cost_one_list_of_all_refs() {
    let world = World::new().await;
    world.repo.commit("main", &[("a.yaml", "a: 1")]);
    let lost: Vec<_> = (0..60)
        .map(|number| {
            let owner = format!("lost-{number}");
            let name = format!("main-{number:02}");
            remote_of(&world, &owner, |options| options.reference = branch(&name))
        })
        .collect();
    for round in 0..2 {
        world.server.forget();
        for answer in join_all(lost.iter().map(Remote::resolve)).await {
            assert_eq!(answer.unwrap_err().hint().as_deref(), Some("did you mean main?"));
        }
        // One look for whoever came first, and one for all others. Each lists what is asked for, and then everything.
        let lists = count(&world, Step::LsRefs);
        assert!(lists <= 4, "round {round}: {lists}");
    }
    // One of them appears. All learn that from the next look that needs all refs.
    let id = world.repo.commit("main-07", &[("a.yaml", "a: 7")]);
    let told = join_all(lost.iter().map(Remote::resolve)).await;
    let found: Vec<_> = told.into_iter().flatten().map(|revision| revision.commit).collect();
    assert_eq!(found, [id]);
}

#[tokio::test(flavor = "multi_thread")]
async fn c9_what_somebody_else_follows_makes_nobodys_list_of_refs_too_long() {
    let world = World::new().await;
    let id = world.repo.commit("main", &[("a.yaml", "a: 1")]);
    // 20 MiB of refs below refs/pull, and one that is followed.
    let mut refs = "# pack-refs with: peeled fully-peeled sorted \n".to_owned();
    for number in 0..200_000 {
        refs += &format!("{id} refs/pull/{number:06}/a-name-that-is-not-short-at-all/head\n");
    }
    std::fs::write(world.repo.dir.join("packed-refs"), refs).unwrap();
    world.repo.git(&["update-ref", "refs/pul", &id]);
    let by_name = |name: &str| GitRef { name: Some(name.into()), ..GitRef::default() };
    let stranger = remote_of(&world, "stranger", |options| options.reference = by_name("refs/pul"));
    let error = stranger.resolve().await.unwrap_err();
    assert_eq!(error.reason(), "AnswerTooLarge");
    // Whoever looks now asks for that, too, and then without it.
    let victim = remote_of(&world, "victim", |_| {});
    world.server.forget();
    assert_eq!(victim.resolve().await.unwrap().commit, id);
    assert_eq!(count(&world, Step::LsRefs), 2);
    world.server.forget();
    assert_eq!(victim.resolve().await.unwrap().commit, id);
    assert_eq!(count(&world, Step::LsRefs), 1, "for some minutes everybody asks alone");
    // What does not exist is in no list of others at all.
    let other = World::new().await;
    let id = other.repo.commit("main", &[("a.yaml", "a: 1")]);
    let missing = remote_of(&other, "stranger", |options| options.reference = by_name("refs/h"));
    assert_eq!(missing.resolve().await.unwrap_err().reason(), "RefNotFound");
    let victim = remote_of(&other, "victim", |_| {});
    other.server.forget();
    assert_eq!(victim.resolve().await.unwrap().commit, id);
    let asked = other.server.requests();
    let lists: Vec<_> = asked.iter().filter(|asked| asked.step == Step::LsRefs).collect();
    assert!(lists.iter().all(|asked| !asked.body.contains("ref-prefix refs/h\n")), "{lists:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn g15_the_store_of_a_url_that_is_not_followed_any_more_is_removed() {
    let world = World::new().await;
    world.repo.commit("main", &[("a.yaml", &super::source::model("a"))]);
    let stores = || {
        let all = std::fs::read_dir(world.dir.path().join("stores")).unwrap();
        all.filter(|entry| entry.as_ref().unwrap().path().is_dir()).count()
    };
    let (mut one, mut two) =
        (super::source::Reader::new(&world), super::source::Reader::new(&world));
    for reader in [&mut one, &mut two] {
        assert_eq!(reader.refresh().await, Ok(true));
    }
    assert_eq!(stores(), 1);
    let other = world.server.url("other.git");
    one.spec.url.clone_from(&other);
    assert!(one.refresh().await.is_err());
    assert_eq!(stores(), 1, "somebody else still uses it");
    two.spec.url = other;
    assert!(two.refresh().await.is_err());
    assert_eq!(stores(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn c9_long_lists_of_refs_are_read_two_at_a_time_and_none_takes_for_ever() {
    let long = async || {
        let world = World::new().await;
        let id = world.repo.commit("main", &[("a.yaml", "a: 1")]);
        let mut refs = "# pack-refs with: peeled fully-peeled sorted \n".to_owned();
        for number in 0..50_000 {
            refs += &format!("{id} refs/tags/v1.0.{number}\n");
        }
        std::fs::write(world.repo.dir.join("packed-refs"), refs).unwrap();
        world
    };
    let semver = |world: &World| {
        world.remote_with(|options| {
            options.reference = GitRef { semver: Some("^1".into()), ..GitRef::default() };
            options.timeout = Duration::from_secs(120);
        })
    };
    let worlds = [long().await, long().await, long().await, long().await];
    let remotes: Vec<_> = worlds.iter().map(semver).collect();
    // Two that send the rest never.
    for world in &worlds[..2] {
        world.server.inject(Step::LsRefs, Fault::Stall(2 << 20));
    }
    let start = Instant::now();
    let all = join_all(remotes.iter().map(Remote::resolve)).await;
    let names: Vec<_> = all.iter().map(|one| one.as_ref().map(|one| &*one.name)).collect();
    assert!(names[..2].iter().all(|one| one.as_ref().is_err_and(|e| e.reason() == "Timeout")));
    assert_eq!(names[2..], [Ok("v1.0.49999"), Ok("v1.0.49999")], "{names:?}");
    assert!(start.elapsed() < Duration::from_secs(90), "{:?}", start.elapsed());
}
