//! Credentials for a server, and to whom they go: G2, V12.

use std::collections::BTreeMap;

use super::*;

fn credentials(data: &[(&str, &str)]) -> Credentials {
    let data = data.iter().map(|(key, value)| ((*key).to_owned(), value.as_bytes().to_vec()));
    Credentials::of(&data.collect::<BTreeMap<_, _>>(), "https://h/a").unwrap()
}

#[tokio::test]
async fn g2_every_request_carries_the_credentials_and_without_any_none_does() {
    let world = World::new().await;
    world.repo.commit("main", &[("a.yaml", "a: 1")]);
    sync(&world.remote(), "").await.unwrap();
    assert!(world.server.requests().iter().all(|asked| asked.authorization.is_none()));
    for (data, header) in [
        (&[("username", "u"), ("password", "p")][..], "Basic dTpw"),
        (&[("token", "t")], "Basic eC1hY2Nlc3MtdG9rZW46dA=="),
        (&[("bearerToken", "b")], "Bearer b"),
    ] {
        world.server.forget();
        world.repo.commit("main", &[("a.yaml", header)]);
        let remote = world.remote_with(|options| options.credentials = credentials(data));
        sync(&remote, "").await.unwrap();
        let asked = world.server.requests();
        // Two conversations, each with its handshake.
        assert_eq!(asked.len(), 4, "{asked:?}");
        assert!(asked.iter().all(|asked| asked.authorization.as_deref() == Some(header)));
    }
}

#[tokio::test]
async fn g2_a_refusal_says_whether_there_were_credentials() {
    let world = World::new().await;
    world.repo.commit("main", &[("a.yaml", "a: 1")]);
    let given = credentials(&[("token", "canary")]);
    for (credentials, status, message, hint) in [
        (Credentials::default(), 401, "the server refused access (HTTP 401)", "name a Secret"),
        (given.clone(), 401, "the server refused the credentials (HTTP 401)", "wrong or expired"),
        (given, 403, "the server refused the credentials (HTTP 403)", "may not read this"),
    ] {
        let remote = world.remote_with(|options| options.credentials = credentials);
        world.server.inject(Step::Advertise, Fault::Status(status));
        let error = remote.resolve().await.unwrap_err();
        assert_eq!((error.reason(), error.to_string()), ("AuthenticationFailed", message.into()));
        assert!(error.hint().unwrap().contains(hint), "{error:?}");
        assert!(!format!("{error:?} {remote:?}").contains("canary"));
    }
}

#[tokio::test]
async fn g2_v12_a_redirect_takes_no_credentials_along() {
    let (world, other) = (World::new().await, World::new().await);
    for one in [&world, &other] {
        one.repo.commit("main", &[("a.yaml", "a: 1")]);
    }
    let remote =
        world.remote_with(|options| options.credentials = credentials(&[("token", "canary")]));
    let path = "/team.git/info/refs?service=git-upload-pack";
    for to in [format!("{}{path}", other.server.url("")), world.server.url("other.git")] {
        world.server.inject(Step::Advertise, Fault::Redirect(to));
        assert_eq!(remote.resolve().await.unwrap_err().reason(), "RedirectRefused");
    }
    assert!(other.server.requests().is_empty());
}

#[tokio::test]
async fn v55_credentials_are_in_no_file_and_no_argument() {
    use std::os::unix::fs::PermissionsExt;

    let world = World::new().await;
    world.repo.commit("main", &[("a.yaml", "a: 1")]);
    let remote = world.remote_with(|options| {
        options.credentials = credentials(&[("username", "u"), ("password", "canary-password")]);
    });
    sync(&remote, "").await.unwrap();
    assert!(world.server.requests().iter().all(|asked| asked.authorization.is_some()));
    // As it is, and as it is sent.
    let canaries = [&b"canary-password"[..], b"dTpjYW5hcnktcGFzc3dvcmQ"];
    let has = |bytes: &[u8]| {
        canaries.iter().any(|canary| bytes.windows(canary.len()).any(|part| part == *canary))
    };
    let (mut folders, mut files) = (vec![world.dir.path().join("stores")], 0);
    let mode = folders[0].metadata().unwrap().permissions().mode();
    assert_eq!(mode & 0o077, 0, "{mode:o}");
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else {
                files += 1;
                assert!(!has(&std::fs::read(&path).unwrap()), "{}", path.display());
                assert!(path.file_name().is_none_or(|name| name != "config"), "{}", path.display());
            }
        }
    }
    assert!(files >= 3, "a key, a pack and its index");
    assert!(!has(&std::fs::read("/proc/self/cmdline").unwrap()));
    // No program was started for it: the servers of tests are children, and know nothing of it.
    let children = std::fs::read_to_string("/proc/thread-self/children").unwrap_or_default();
    for child in children.split_whitespace() {
        let arguments = std::fs::read(format!("/proc/{child}/cmdline")).unwrap_or_default();
        assert!(!has(&arguments), "{child}");
    }
}
