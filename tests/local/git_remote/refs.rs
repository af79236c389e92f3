//! Which commit, and what is transferred for it: G1, G3.

use super::*;

#[tokio::test]
async fn g1_poll_is_one_ls_refs_of_one_ref() {
    let world = World::new().await;
    let id = world.repo.commit("main", &[("a.yaml", "a: 1")]);
    world.repo.branch("mainline", &id);
    world.repo.branch("other", &id);
    let remote = world.remote();
    for _ in 0..2 {
        world.server.forget();
        let found = remote.resolve().await.unwrap();
        assert_eq!(found.to_string(), format!("main@sha1:{id}"));
        assert_eq!(world.server.steps(), [Step::Advertise, Step::LsRefs]);
        let asked = &world.server.requests()[1];
        assert!(asked.body.contains("ref-prefix refs/heads/main\n"), "{}", asked.body);
        assert_eq!(asked.body.matches("ref-prefix").count(), 1, "{}", asked.body);
        assert!(asked.answered < 300, "the answer holds refs that nobody asked for");
    }
    assert!(!world.store().exists(), "a poll writes nothing");
}

#[tokio::test]
async fn g1_fetch_is_shallow_and_of_this_ref_only() {
    let world = World::new().await;
    let first = world.repo.commit("main", &[("a.yaml", "a: 1"), ("old.bin", "gone")]);
    let second =
        world.repo.change("main").delete("old.bin").file("a.yaml", "a: 2").commit("second");
    let other = world.repo.change("other").file("big.bin", noise(200_000)).commit("other");
    let remote = world.remote();
    let snapshot = sync(&remote, ".").await.unwrap();
    assert_eq!(snapshot.commit().id, second);
    assert_eq!(paths(&snapshot), ["a.yaml"]);
    assert_eq!(content(&snapshot, "a.yaml"), "a: 2");
    for absent in [first, other] {
        let error = remote.snapshot(&absent, ".").await.unwrap_err();
        assert_eq!(error, GitError::CommitGone { commit: absent });
    }
    let bytes: u64 = world.packs().iter().map(|pack| pack.metadata().unwrap().len()).sum();
    assert!(bytes < 10_000, "{bytes}");
}

#[tokio::test]
async fn g1_what_is_there_is_not_fetched_again_not_even_after_a_restart() {
    let world = World::new().await;
    let id = world.repo.commit("main", &[("a.yaml", "a: 1")]);
    world.remote().fetch(&revision(&id)).await.unwrap();
    world.server.forget();
    let restarted = world.remote();
    restarted.fetch(&revision(&id)).await.unwrap();
    let snapshot = restarted.snapshot(&id, "").await.unwrap();
    assert_eq!(content(&snapshot, "a.yaml"), "a: 1");
    assert!(world.server.steps().is_empty());
    let again = restarted.snapshot(&id, "./").await.unwrap();
    assert!(std::sync::Arc::ptr_eq(&snapshot, &again), "the same listing is kept");
}

#[tokio::test]
async fn g1_the_second_fetch_transfers_only_what_changed() {
    let world = World::new().await;
    world.repo.change("main").file("big.bin", noise(300_000)).file("a.yaml", "a: 1").commit("one");
    let remote = world.remote();
    let first = sync(&remote, "").await.unwrap();
    let unchanged = first.tree_id("big.bin").unwrap();
    world.repo.commit("main", &[("a.yaml", "a: 2"), ("b.yaml", "b: 1")]);
    world.server.forget();
    let second = sync(&remote, "").await.unwrap();
    let fetch = world.server.requests().pop().unwrap();
    assert_eq!(fetch.step, Step::Fetch);
    assert!(fetch.body.contains(&format!("have {}", first.commit().id)), "{}", fetch.body);
    assert!(fetch.answered < 5_000, "{}", fetch.answered);
    assert_eq!(paths(&second), ["a.yaml", "b.yaml", "big.bin"]);
    assert_eq!(second.tree_id("big.bin").unwrap(), unchanged);
    assert_eq!(content(&second, "a.yaml"), "a: 2");
    assert_eq!(content(&first, "a.yaml"), "a: 1", "older snapshots stay readable");
    let big = second.lookup("big.bin").unwrap().unwrap();
    assert_eq!(second.read(&big, 1 << 20).unwrap().len(), 300_000);
}

#[tokio::test]
async fn g1_many_fetches_start_a_new_store_and_old_snapshots_stay_readable() {
    let world = World::new().await;
    let remote = world.remote();
    let mut snapshots = Vec::new();
    for round in 0..25 {
        world
            .repo
            .commit("main", &[("a.yaml", &format!("a: {round}")), (&format!("f{round}"), "x")]);
        snapshots.push(sync(&remote, "").await.unwrap());
        assert!(world.packs().len() <= 21 + 5, "packs pile up");
    }
    for (round, snapshot) in snapshots.iter().enumerate() {
        assert_eq!(content(snapshot, "a.yaml"), format!("a: {round}"));
    }
    drop(snapshots);
    // The listing that the remote keeps is of the newest store.
    assert!(
        world.packs().len() <= 5,
        "the old store is deleted with its last reader: {:?}",
        world.packs()
    );
}

#[tokio::test]
async fn g3_tags_are_peeled_to_commits() {
    let world = World::new().await;
    let first = world.repo.commit("main", &[("a.yaml", "a: 1")]);
    world.repo.tag("light", &first);
    let object = world.repo.annotated_tag("v1.0", &first);
    world.repo.git(&["tag", "-a", "-m", "nested", "v1.0-nested", "v1.0"]);
    world.repo.commit("main", &[("a.yaml", "a: 2")]);
    assert_ne!(object, first);
    for name in ["light", "v1.0", "v1.0-nested"] {
        let remote = Remote::new(world.options(tag(name))).unwrap();
        let found = remote.resolve().await.unwrap();
        assert_eq!(found, Revision { commit: first.clone(), name: name.into() });
        remote.fetch(&found).await.unwrap();
        assert_eq!(content(&remote.snapshot(&first, ".").await.unwrap(), "a.yaml"), "a: 1");
    }
    let second = world.repo.id("main");
    world.repo.annotated_tag("v1.0", &second);
    let moved = Remote::new(world.options(tag("v1.0"))).unwrap().resolve().await.unwrap();
    assert_eq!(moved.commit, second, "a moved tag is seen");
}

#[tokio::test]
async fn g3_a_tag_of_something_else_is_no_commit() {
    let world = World::new().await;
    world.repo.commit("main", &[("a.yaml", "a: 1")]);
    let blob = world.repo.blob(b"just text");
    world.repo.tag("blob", &blob);
    let error = sync(&Remote::new(world.options(tag("blob"))).unwrap(), "").await.unwrap_err();
    assert_eq!(error, GitError::NotACommit { id: blob, kind: "blob".into() });
}

#[tokio::test]
async fn g3_a_pinned_commit_asks_for_no_refs() {
    let world = World::new().await;
    let first = world.repo.commit("main", &[("a.yaml", "a: 1")]);
    world.repo.commit("main", &[("a.yaml", "a: 2")]);
    let remote = Remote::new(world.options(commit(&first))).unwrap();
    let snapshot = sync(&remote, ".").await.unwrap();
    assert_eq!(content(&snapshot, "a.yaml"), "a: 1");
    assert_eq!(world.server.steps(), [Step::Advertise, Step::Fetch]);
    let unknown = "1234567890".repeat(4);
    let error =
        sync(&Remote::new(world.options(commit(&unknown))).unwrap(), ".").await.unwrap_err();
    assert_eq!(error, GitError::CommitRefused { commit: unknown });
    assert!(error.hint().is_some_and(|hint| hint.contains("allowAnySHA1InWant")));
}

#[tokio::test]
async fn g3_a_forced_push_is_followed_and_back_again() {
    let world = World::new().await;
    let a = world.repo.commit("main", &[("a.yaml", "a: 1")]);
    let remote = world.remote();
    sync(&remote, "").await.unwrap();
    let b = world.repo.change("main").orphan().file("b.yaml", "b: 1").commit("unrelated");
    world.repo.collect_garbage();
    let snapshot = sync(&remote, "").await.unwrap();
    assert_eq!((snapshot.commit().id.as_str(), paths(&snapshot)), (b.as_str(), vec!["b.yaml"]));
    // Back to exactly the first state.
    let again = world.repo.change("main").orphan().file("a.yaml", "a: 1").commit("change");
    assert_eq!(again, a);
    let snapshot = sync(&remote, "").await.unwrap();
    assert_eq!((snapshot.commit().id.as_str(), paths(&snapshot)), (a.as_str(), vec!["a.yaml"]));
}

#[tokio::test]
async fn g3_missing_refs_name_what_is_near() {
    let world = World::new().await;
    let error = world.remote().resolve().await.unwrap_err();
    assert_eq!(error, GitError::EmptyRepository);
    let id = world.repo.commit("main", &[("a.yaml", "a: 1")]);
    world.repo.branch("release", &id);
    world.repo.tag("v1.0", &id);
    let error = Remote::new(world.options(branch("mian"))).unwrap().resolve().await.unwrap_err();
    assert_eq!(error.reason(), "RefNotFound");
    assert_eq!(error.hint().as_deref(), Some("did you mean main?"));
    let error = Remote::new(world.options(tag("v1.O"))).unwrap().resolve().await.unwrap_err();
    assert_eq!(error.hint().as_deref(), Some("did you mean v1.0?"));
    // A prefix of another name is not that name.
    let error = Remote::new(world.options(branch("mai"))).unwrap().resolve().await.unwrap_err();
    assert_eq!(error.reason(), "RefNotFound");
    assert!(!error.is_terminal());
    // A deleted branch.
    let remote = world.remote();
    sync(&remote, "").await.unwrap();
    world.repo.delete_branch("main");
    let error = remote.resolve().await.unwrap_err();
    assert_eq!(error.reason(), "RefNotFound");
    assert_eq!(error.hint().as_deref(), Some("there is release"));
}

#[tokio::test]
async fn g3_a_ref_that_moves_between_resolve_and_fetch_mixes_nothing() {
    let world = World::new().await;
    let first = world.repo.commit("main", &[("a.yaml", "a: 1")]);
    let remote = world.remote();
    let resolved = remote.resolve().await.unwrap();
    world.repo.commit("main", &[("a.yaml", "a: 2")]);
    remote.fetch(&resolved).await.unwrap();
    assert_eq!(content(&remote.snapshot(&first, "").await.unwrap(), "a.yaml"), "a: 1");
    // And when the commit is really gone, it says so.
    let resolved = remote.resolve().await.unwrap();
    world.repo.change("main").orphan().file("b.yaml", "b: 1").commit("unrelated");
    world.repo.collect_garbage();
    let error = remote.fetch(&resolved).await.unwrap_err();
    assert_eq!(error, GitError::CommitGone { commit: resolved.commit });
    assert_eq!(paths(&sync(&remote, "").await.unwrap()), ["b.yaml"]);
}

#[tokio::test]
async fn g3_servers_of_protocol_version_0_work() {
    let world = World::new().await;
    world.server.only_version_0();
    let first = world.repo.commit("main", &[("a.yaml", "a: 1")]);
    world.repo.annotated_tag("v1", &first);
    let remote = world.remote();
    assert_eq!(content(&sync(&remote, "").await.unwrap(), "a.yaml"), "a: 1");
    world.repo.commit("main", &[("a.yaml", "a: 2")]);
    assert_eq!(content(&sync(&remote, "").await.unwrap(), "a.yaml"), "a: 2");
    let tagged = Remote::new(world.options(tag("v1"))).unwrap().resolve().await.unwrap();
    assert_eq!(tagged.commit, first);
    let missing = Remote::new(world.options(branch("mian"))).unwrap().resolve().await.unwrap_err();
    assert_eq!(missing.hint().as_deref(), Some("did you mean main?"));
}

#[tokio::test]
async fn g3_servers_of_protocol_version_0_hand_out_tagged_commits() {
    let world = World::new().await;
    world.server.only_version_0();
    let first = world.repo.commit("main", &[("a.yaml", "a: 1")]);
    world.repo.annotated_tag("v1", &first);
    world.repo.git(&["tag", "-a", "-m", "nested", "v1-nested", "v1"]);
    let second = world.repo.commit("main", &[("a.yaml", "a: 2")]);
    world.repo.annotated_tag("v2", &second);
    let third = world.repo.commit("main", &[("a.yaml", "a: 3")]);
    world.repo.tag("light", &third);
    // No branch ends at what v1 and v2 tag, and such a server hands out only what it lists.
    for (name, commit, text) in [
        ("v1", &first, "a: 1"),
        ("v1-nested", &first, "a: 1"),
        ("v2", &second, "a: 2"),
        ("light", &third, "a: 3"),
    ] {
        let fresh = world.remote_with(|options| {
            options.reference = tag(name);
            options.repositories =
                Repositories::new(world.dir.path().join(name), u64::MAX).unwrap();
        });
        // Alone, and on top of what another tag brought.
        for remote in [fresh, Remote::new(world.options(tag(name))).unwrap()] {
            let snapshot = sync(&remote, "").await.unwrap_or_else(|e| panic!("{name}: {e}"));
            assert_eq!(snapshot.commit().id, *commit, "{name}");
            assert_eq!(content(&snapshot, "a.yaml"), text, "{name}");
        }
    }
    // What it does not list, it does not hand out.
    let fourth = world.repo.commit("main", &[("a.yaml", "a: 4")]);
    world.repo.commit("main", &[("a.yaml", "a: 5")]);
    let error = sync(&Remote::new(world.options(commit(&fourth))).unwrap(), "").await.unwrap_err();
    assert_eq!(error, GitError::CommitRefused { commit: fourth });
}

#[tokio::test]
async fn g3_sha256_repositories_work() {
    let world = World::with_hash("sha256").await;
    let id = world.repo.commit("main", &[("a.yaml", "a: 1")]);
    let remote = world.remote();
    let found = remote.resolve().await.unwrap();
    assert_eq!(found.to_string(), format!("main@sha256:{id}"));
    assert_eq!(content(&sync(&remote, "").await.unwrap(), "a.yaml"), "a: 1");
    world.repo.commit("main", &[("a.yaml", "a: 2")]);
    assert_eq!(content(&sync(&remote, "").await.unwrap(), "a.yaml"), "a: 2");
}

#[tokio::test]
async fn g3_the_tag_with_the_highest_version_is_followed_and_a_newer_one_as_soon_as_it_is_there() {
    let world = World::new().await;
    let first = world.repo.commit("main", &[("a.yaml", "a: 1")]);
    world.repo.annotated_tag("v1.2.0", &first);
    world.repo.tag("v1.1.0", &first);
    let second = world.repo.commit("main", &[("a.yaml", "a: 2")]);
    world.repo.tag("v2.0.0", &second);
    let range = |range: &str| {
        let reference = GitRef { semver: Some(range.into()), ..GitRef::default() };
        Remote::new(world.options(reference)).unwrap()
    };
    let remote = range("^1.1");
    let found = remote.resolve().await.unwrap();
    assert_eq!(found, Revision { commit: first, name: "v1.2.0".into() });
    world.server.forget();
    world.repo.tag("v1.10.0", &second);
    let found = remote.resolve().await.unwrap();
    assert_eq!(found, Revision { commit: second.clone(), name: "v1.10.0".into() });
    assert_eq!(world.server.steps(), [Step::Advertise, Step::LsRefs], "only tags are listed");
    assert!(world.server.requests()[1].body.contains("ref-prefix refs/tags/\n"));
    remote.fetch(&found).await.unwrap();
    assert_eq!(content(&remote.snapshot(&second, ".").await.unwrap(), "a.yaml"), "a: 2");
    let error = range(">=3").resolve().await.unwrap_err();
    assert_eq!(error.to_string(), "the repository has no tag with a version in \">=3\"");
    assert_eq!(error.hint().as_deref(), Some("the highest version there is v2.0.0"));
}

#[tokio::test]
async fn g3_a_ref_by_its_full_name_is_followed() {
    let world = World::new().await;
    let id = world.repo.commit("main", &[("a.yaml", "a: 1")]);
    world.repo.git(&["update-ref", "refs/pull/7/head", &id]);
    let full = |name: &str| {
        let reference = GitRef { name: Some(name.into()), ..GitRef::default() };
        Remote::new(world.options(reference)).unwrap()
    };
    for name in ["refs/pull/7/head", "refs/heads/main"] {
        let remote = full(name);
        let found = remote.resolve().await.unwrap();
        assert_eq!(found, Revision { commit: id.clone(), name: name.into() });
        assert_eq!(Revision::parse(&found.to_string()), Some(found.clone()));
        sync(&remote, "").await.unwrap();
    }
    let error = full("refs/pull/8/head").resolve().await.unwrap_err();
    assert_eq!(error.to_string(), "the repository has no ref \"refs/pull/8/head\"");
    assert_eq!(error.hint().as_deref(), Some("did you mean refs/pull/7/head?"));
}
