//! Broken servers, broken connections, broken disks: G1, C9, V11.

use super::*;

#[tokio::test]
async fn g1_answers_that_are_no_git_have_their_own_reasons() {
    let world = World::new().await;
    let id = world.repo.commit("main", &[("a.yaml", "a: 1")]);
    let remote = world.remote();
    sync(&remote, "").await.unwrap();
    for (fault, reason) in [
        (Fault::Status(401), "AuthenticationFailed"),
        (Fault::Status(403), "AuthenticationFailed"),
        (Fault::Status(404), "RepositoryNotFound"),
        (Fault::Status(429), "ServerFailed"),
        (Fault::Status(500), "ServerFailed"),
        (Fault::Html, "NotAGitServer"),
        (Fault::Replace(b"nonsense".to_vec()), "NotAGitServer"),
        (Fault::Replace(Vec::new()), "NotAGitServer"),
        (Fault::Break(10), "ConnectionFailed"),
    ] {
        world.server.inject(Step::Advertise, fault.clone());
        let error = remote.resolve().await.unwrap_err();
        assert_eq!(error.reason(), reason, "{fault:?}: {error}");
        assert!(!error.is_terminal());
    }
    let unknown = world.remote_with(|options| options.url = world.server.url("nowhere.git"));
    assert_eq!(unknown.resolve().await.unwrap_err().reason(), "RepositoryNotFound");
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let closed = world.remote_with(|options| options.url = format!("http://127.0.0.1:{port}/x"));
    assert_eq!(closed.resolve().await.unwrap_err().reason(), "ConnectionFailed");
    // Something that speaks no HTTP.
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let babbler = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        tokio::io::AsyncWriteExt::write_all(&mut stream, b"nonsense\r\n\r\n").await.unwrap();
    });
    let odd = world.remote_with(|options| options.url = format!("http://127.0.0.1:{port}/x"));
    assert_eq!(odd.resolve().await.unwrap_err().reason(), "ConnectionFailed");
    babbler.await.unwrap();
    // TLS with something that speaks no TLS.
    let plain = world.server.url("team.git").replace("http://", "https://");
    let tls = world.remote_with(|options| options.url = plain);
    assert_eq!(tls.resolve().await.unwrap_err().reason(), "ConnectionFailed");
    // Through all of it, the last good commit can be read.
    assert_eq!(content(&remote.snapshot(&id, "").await.unwrap(), "a.yaml"), "a: 1");
}

#[tokio::test]
async fn v11_redirects_are_not_followed() {
    let world = World::new().await;
    world.repo.commit("main", &[("a.yaml", "a: 1")]);
    let other = GitServer::start(&world.dir.path().join("server")).await;
    let to = format!("{}/info/refs?service=git-upload-pack&token=s3cret", other.url("team.git"));
    world.server.inject(Step::Advertise, Fault::Redirect(to));
    let error = world.remote().resolve().await.unwrap_err();
    assert_eq!(error.reason(), "RedirectRefused");
    assert!(!error.to_string().contains("s3cret"), "{error}");
    assert!(other.requests().is_empty());
}

#[tokio::test]
async fn g1_silent_and_slow_servers_end_at_the_deadline() {
    let world = World::new().await;
    let id = world.repo.commit("main", &[("a.yaml", "a: 1")]);
    let timeout = Duration::from_millis(600);
    let remote = world.remote_with(|options| options.timeout = timeout);
    let second = Duration::from_secs(1);
    for (step, fault) in [
        (Step::Advertise, Fault::Silence),
        (Step::Advertise, Fault::Stall(20)),
        (Step::LsRefs, Fault::Silence),
        (Step::Fetch, Fault::Stall(40)),
        (Step::Fetch, Fault::Trickle(second)),
    ] {
        world.server.inject(step, fault.clone());
        let start = Instant::now();
        let error = if step == Step::Fetch {
            remote.fetch(&revision(&id)).await.unwrap_err()
        } else {
            remote.resolve().await.unwrap_err()
        };
        assert_eq!(error.reason(), "Timeout", "{fault:?}: {error}");
        assert!(start.elapsed() < timeout + 5 * second, "{fault:?}: {:?}", start.elapsed());
    }
    let patient = world.remote();
    assert_eq!(content(&sync(&patient, "").await.unwrap(), "a.yaml"), "a: 1");
}

#[tokio::test]
async fn g1_a_server_that_stops_sending_in_the_middle_of_a_fetch_is_given_up_early() {
    let world = World::new().await;
    let id = world.repo.commit("main", &[("a.yaml", "a: 1")]);
    let (silence, timeout) = (Duration::from_millis(500), Duration::from_secs(20));
    let remote =
        world.remote_with(|options| (options.silence, options.timeout) = (silence, timeout));
    for fault in [Fault::Silence, Fault::Stall(0), Fault::Stall(40)] {
        world.server.inject(Step::Fetch, fault.clone());
        let start = Instant::now();
        let error = remote.fetch(&revision(&id)).await.unwrap_err();
        assert_eq!(error.reason(), "ServerSilent", "{fault:?}: {error}");
        assert_eq!(error.to_string(), "fetching the commit: the server has sent nothing for 0.5s");
        assert!(!error.is_terminal() && start.elapsed() < timeout / 2, "{:?}", start.elapsed());
    }
    remote.fetch(&revision(&id)).await.unwrap();

    // One that is slow is not silent, and one that is only asked has its whole time.
    let id = world.repo.commit("main", &[("a.yaml", "a: 2")]);
    let timeout = Duration::from_secs(2);
    let remote =
        world.remote_with(|options| (options.silence, options.timeout) = (silence, timeout));
    world.server.inject(Step::Fetch, Fault::Trickle(silence / 10));
    let error = remote.fetch(&revision(&id)).await.unwrap_err();
    assert_eq!(error.reason(), "Timeout", "{error}");
    world.server.inject(Step::LsRefs, Fault::Silence);
    let error = remote.resolve().await.unwrap_err();
    assert_eq!(error.reason(), "Timeout", "{error}");
}

#[tokio::test]
async fn c9_a_fetch_that_is_given_up_stops_and_the_next_one_works() {
    let world = World::new().await;
    let id = world.repo.commit("main", &[("a.yaml", "a: 1")]);
    let remote = world.remote();
    world.server.inject(Step::Fetch, Fault::Stall(40));
    let wanted = revision(&id);
    let given_up = tokio::time::timeout(Duration::from_millis(300), remote.fetch(&wanted)).await;
    assert!(given_up.is_err());
    let start = Instant::now();
    remote.fetch(&wanted).await.unwrap();
    assert!(start.elapsed() < Duration::from_secs(10), "it waited for the stalled one");
    assert_eq!(content(&remote.snapshot(&id, "").await.unwrap(), "a.yaml"), "a: 1");
}

#[tokio::test]
async fn c9_damaged_packs_are_refused_whole() {
    let world = World::new().await;
    let first =
        world.repo.change("main").file("big.bin", noise(50_000)).file("a.yaml", "a: 1").commit("x");
    let faults = || {
        [
            (Fault::Truncate(20_000), "CorruptData"),
            (Fault::Break(20_000), "ConnectionFailed"),
            (Fault::Flip(20_000), "CorruptData"),
            (Fault::Replace(b"0000".to_vec()), "CorruptData"),
        ]
    };
    let remote = world.remote();
    for (fault, reason) in faults() {
        world.server.inject(Step::Fetch, fault.clone());
        let error = remote.fetch(&revision(&first)).await.unwrap_err();
        assert_eq!(error.reason(), reason, "{fault:?}: {error}");
        assert!(world.packs().is_empty());
    }
    sync(&remote, "").await.unwrap();
    // The same on top of a store: the old commit stays readable, the new one comes with the next attempt.
    for (round, (fault, _)) in faults().into_iter().enumerate() {
        let content_now = format!("a: {}", round + 2);
        let next = world
            .repo
            .change("main")
            .file("big.bin", noise(60_000 + round))
            .file("a.yaml", &content_now)
            .commit("y");
        world.server.inject_always(Step::Fetch, fault.clone());
        remote.fetch(&revision(&next)).await.unwrap_err();
        assert_eq!(content(&remote.snapshot(&first, "").await.unwrap(), "a.yaml"), "a: 1");
        world.server.heal();
        assert_eq!(content(&sync(&remote, "").await.unwrap(), "a.yaml"), content_now);
    }
}

fn files_below(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files_below(&path));
        } else {
            found.push(path);
        }
    }
    found
}

/// Something that happens to a store.
type Harm = fn(&Path);

#[tokio::test]
async fn c9_leftovers_and_garbage_in_the_store_heal() {
    let world = World::new().await;
    let id =
        world.repo.change("main").file("a.yaml", "a: 1").file("big.bin", noise(50_000)).commit("x");
    let harms: [(&str, Harm); 9] = [
        ("nothing", |_| {}),
        ("a killed fetch", |store| {
            let pack = store.join("incoming/pack");
            std::fs::create_dir_all(&pack).unwrap();
            std::fs::write(pack.join("tmp_pack_x"), "half").unwrap();
            std::fs::write(pack.join("shallow.lock"), "").unwrap();
            std::fs::write(store.join("sha1-1/pack/pack-zzz.pack"), "half").unwrap();
            std::fs::write(store.join("sha1-1/shallow.lock"), "").unwrap();
        }),
        ("truncated files", |store| {
            for file in files_below(store) {
                let len = file.metadata().unwrap().len();
                std::fs::File::options().write(true).open(file).unwrap().set_len(len / 2).unwrap();
            }
        }),
        ("empty files", |store| {
            for file in files_below(store) {
                std::fs::write(file, "").unwrap();
            }
        }),
        ("flipped bits", |store| {
            for file in files_below(store) {
                let mut bytes = std::fs::read(&file).unwrap();
                let at = bytes.len() / 2;
                bytes[at] ^= 0x10;
                std::fs::write(file, bytes).unwrap();
            }
        }),
        ("deleted files", |store| {
            for file in files_below(store) {
                std::fs::remove_file(file).unwrap();
            }
        }),
        ("a pack without its index", |store| {
            for file in files_below(store)
                .iter()
                .filter(|file| file.extension().is_some_and(|e| e == "idx"))
            {
                std::fs::remove_file(file).unwrap();
            }
        }),
        ("a file where a folder should be", |store| {
            std::fs::write(store.join("sha1-9"), "x").unwrap();
            std::fs::write(store.join("incoming"), "x").unwrap();
        }),
        ("a tip that is nowhere", |store| {
            for file in files_below(store).iter().filter(|file| file.ends_with("tip")) {
                std::fs::write(file, "ab".repeat(20)).unwrap();
            }
        }),
    ];
    world.remote().fetch(&revision(&id)).await.unwrap();
    for (name, harm) in harms {
        harm(&world.store());
        let restarted = world.remote();
        restarted.fetch(&revision(&id)).await.unwrap_or_else(|error| panic!("{name}: {error}"));
        let snapshot =
            restarted.snapshot(&id, "").await.unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(content(&snapshot, "a.yaml"), "a: 1", "{name}");
        let left = files_below(&world.store());
        let known = |file: &PathBuf| {
            file.file_name().is_some_and(|name| name == "tip")
                || file.extension().is_some_and(|ext| ext == "pack" || ext == "idx")
        };
        assert!(
            left.iter().all(|file| known(file) || file.ends_with("pack/shallow")),
            "{name}: {left:?}"
        );
    }
}

#[tokio::test]
async fn c9_a_store_that_is_damaged_while_in_use_heals_with_the_next_fetch() {
    let world = World::new().await;
    let id = world.repo.commit("main", &[("a.yaml", "a: 1"), ("b.yaml", "b: 1")]);
    world.remote().fetch(&revision(&id)).await.unwrap();
    let remote = world.remote();
    remote.fetch(&revision(&id)).await.unwrap();
    // The folder vanishes below a running process, before anything was read from it.
    for pack in world.packs() {
        std::fs::remove_file(&pack).unwrap();
        std::fs::remove_file(pack.with_extension("idx")).unwrap();
    }
    let mut healed = None;
    for _ in 0..3 {
        let fetched = remote.fetch(&revision(&id)).await;
        match (fetched, remote.snapshot(&id, "").await) {
            (Ok(()), Ok(snapshot)) => {
                healed = Some(snapshot);
                break;
            }
            (_, Err(error)) => assert!(!error.is_terminal(), "{error}"),
            _ => {}
        }
    }
    assert_eq!(content(&healed.expect("healed"), "b.yaml"), "b: 1");
}
