//! The step of a build that clones, run as its pod runs it: with the program `git`, and with the credentials of a GitSync as files. B5.

use std::collections::BTreeMap;
use std::process::Command;

use convoke::git::Files;
use serde_json::Value;

use super::http_proxy::HttpProxy;
use super::sshd::{self, Settings, Sshd, make_key};
use super::tls::{Authority, Front};
use super::*;

/// The script of the shipped step.
fn script() -> String {
    let read = |text: &str| serde_saphyr::from_str::<Value>(text).unwrap();
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/deploy/pipelines/step-clone.yaml");
    let config_map = read(&std::fs::read_to_string(path).unwrap());
    let task = read(config_map["data"]["task-spec.yaml"].as_str().unwrap());
    task["steps"][0]["script"].as_str().unwrap().to_owned()
}

/// What became of a step.
#[derive(Debug)]
struct Done {
    code: Option<i32>,
    said: String,
    /// The shared folder.
    source: tempfile::TempDir,
}

impl Done {
    fn has(&self, file: &str) -> bool {
        self.source.path().join("repository").join(file).is_file()
    }
}

/// Runs the step for a commit of a URL, with or without credentials.
async fn clone(url: String, commit: String, credentials: Option<Credentials>) -> Done {
    let files = credentials.map(|credentials| credentials.files(&url).unwrap());
    clone_with(url, commit, files).await
}

/// The same with these files.
async fn clone_with(url: String, commit: String, files: Option<Files>) -> Done {
    tokio::task::spawn_blocking(move || {
        let (source, auth) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        for (name, text) in files.iter().flatten() {
            std::fs::write(auth.path().join(name), text.get()).unwrap();
        }
        let auth_dir = if files.is_some() { auth.path().to_str().unwrap() } else { "" };
        let done = Command::new("sh")
            .args(["-c", &script()])
            .env_clear()
            .env("PATH", std::env::var("PATH").unwrap())
            .env("SOURCE_DIR", source.path())
            .env("AUTH_DIR", auth_dir)
            .env("REPO_URL", &url)
            .env("REVISION", &commit)
            .env("RESULT_COMMIT", source.path().join("result"))
            .env("GIT_ALLOW_PROTOCOL", "https:http:ssh")
            .env("GIT_TERMINAL_PROMPT", "0")
            .env("LC_ALL", "C")
            .output()
            .unwrap();
        let said = [done.stdout, done.stderr].concat();
        Done { code: done.status.code(), said: String::from_utf8(said).unwrap(), source }
    })
    .await
    .unwrap()
}

fn credentials(data: &[(&str, &str)], url: &str) -> Credentials {
    let data = data.iter().map(|(key, value)| ((*key).to_owned(), value.as_bytes().to_vec()));
    Credentials::of(&data.collect::<BTreeMap<_, _>>(), url).unwrap()
}

/// A file that the step must not leave behind, with the canary in it.
fn left_over(done: &Done, canary: &str) -> Option<PathBuf> {
    let mut folders = vec![done.source.path().to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if String::from_utf8_lossy(&std::fs::read(&path).unwrap()).contains(canary) {
                return Some(path);
            }
        }
    }
    None
}

#[tokio::test]
async fn b5_the_clone_step_logs_in_as_the_git_sync_does() {
    let world = World::new().await;
    let commit = world.repo.commit("main", &[("a.yaml", "a: 1")]);
    let url = world.server.url("team.git");
    let done = clone(url.clone(), commit.clone(), None).await;
    assert!(done.code == Some(0) && done.has("a.yaml"), "{done:?}");
    assert!(world.server.requests().iter().all(|asked| asked.authorization.is_none()));
    for (data, header) in [
        (&[("username", "u"), ("password", "canary")][..], "Basic dTpjYW5hcnk="),
        (&[("token", "t\"\\")], "Basic eC1hY2Nlc3MtdG9rZW46dCJc"),
        (&[("bearerToken", "b")], "Bearer b"),
    ] {
        world.server.forget();
        let given = Some(credentials(data, &url));
        let done = clone(url.clone(), commit.clone(), given).await;
        assert!(done.code == Some(0) && done.has("a.yaml"), "{done:?}");
        let asked = world.server.requests();
        assert!(asked.len() >= 2, "{asked:?}");
        assert!(
            asked.iter().all(|asked| asked.authorization.as_deref() == Some(header)),
            "{asked:?}"
        );
        assert_eq!(left_over(&done, header), None);
    }
}

#[tokio::test]
async fn b5_v12_the_clone_step_gives_the_credentials_to_nobody_else() {
    let (world, other) = (World::new().await, World::new().await);
    let commit = world.repo.commit("main", &[("a.yaml", "a: 1")]);
    let theirs = other.repo.commit("main", &[("b.yaml", "b: 1")]);
    let url = world.server.url("team.git");
    let given = || Some(credentials(&[("token", "canary")], &url));
    // A redirect to another server.
    let path = "/team.git/info/refs?service=git-upload-pack";
    world
        .server
        .inject(Step::Advertise, Fault::Redirect(format!("{}{path}", other.server.url(""))));
    let done = clone(url.clone(), commit.clone(), given()).await;
    assert!(done.code == Some(10) && !done.said.contains("canary"), "{done:?}");
    assert!(other.server.requests().is_empty());
    // Files that are for one server, used for another one.
    let files = given().map(|given| given.files(&url).unwrap());
    let done = clone_with(other.server.url("team.git"), theirs, files).await;
    assert!(done.code == Some(0) && done.has("b.yaml"), "{done:?}");
    let asked = other.server.requests();
    assert!(
        !asked.is_empty() && asked.iter().all(|asked| asked.authorization.is_none()),
        "{asked:?}"
    );
}

#[tokio::test]
async fn b5_a_refusal_of_the_git_server_is_told_as_such() {
    let world = World::new().await;
    let commit = world.repo.commit("main", &[("a.yaml", "a: 1")]);
    let url = world.server.url("team.git");
    for (status, code) in [(401, 13), (403, 13), (404, 10), (503, 12)] {
        world.server.inject(Step::Advertise, Fault::Status(status));
        let given = Some(credentials(&[("token", "canary")], &url));
        let done = clone(url.clone(), commit.clone(), given).await;
        assert_eq!(done.code, Some(code), "{status}: {done:?}");
        assert!(!done.said.contains("canary"), "{done:?}");
    }
}

#[tokio::test]
async fn b5_the_clone_step_trusts_and_shows_certificates() {
    let (ours, clients) = (Authority::new(), Authority::named("clients"));
    let world = World::new().await;
    let commit = world.repo.commit("main", &[("a.yaml", "a: 1")]);
    let certificate = ours.sign("localhost", |_| ());
    let front =
        Front::start_for(clients.verifier(), world.address(), certificate, "http/1.1").await;
    let url = front.url("localhost");
    let (pem, key) = clients.client();
    let whole = [("ca.crt", ours.pem()), ("tls.crt", &pem), ("tls.key", &key)];
    let done = clone(url.clone(), commit.clone(), Some(credentials(&whole, &url))).await;
    assert!(done.code == Some(0) && done.has("a.yaml"), "{done:?}");
    for part in [&whole[..1], &whole[1..]] {
        let done = clone(url.clone(), commit.clone(), Some(credentials(part, &url))).await;
        assert!(done.code == Some(10) && !done.has("a.yaml"), "{done:?}");
    }
}

#[tokio::test]
async fn b5_the_clone_step_goes_through_the_proxy() {
    let Some(server) = HttpProxy::start() else { return };
    let (world, authority) = (World::new().await, Authority::new());
    let commit = world.repo.commit("main", &[("a.yaml", "a: 1")]);
    let front =
        Front::start(world.address(), authority.sign("localhost", |_| {}), "http/1.1").await;
    let url = front.url("localhost");
    let through = |password: &str| {
        let data = [
            ("address", server.address()),
            ("username", "user".into()),
            ("password", password.into()),
        ];
        let data = data.map(|(key, value)| (key.to_owned(), value.into_bytes()));
        let proxy = Credentials::proxy_of(&BTreeMap::from(data)).unwrap();
        Credentials::trusting(authority.pem().into()).with_proxy(proxy, &url).unwrap()
    };
    let done = clone(url.clone(), commit.clone(), Some(through("canary"))).await;
    assert!(done.code == Some(0) && done.has("a.yaml"), "{done:?}");
    assert!(server.log().contains("CONNECT localhost:"), "{}", server.log());
    let done = clone(url.clone(), commit.clone(), Some(through("canary2"))).await;
    assert!(done.code != Some(0) && !done.said.contains("canary"), "{done:?}");
}

#[tokio::test]
async fn b5_the_clone_step_goes_over_ssh_to_a_known_host_only() {
    if !sshd::is_there() {
        return;
    }
    let world = World::new().await;
    let commit = world.repo.commit("main", &[("a.yaml", "a: 1")]);
    let server =
        Sshd::start(&Settings { host_keys: &["ed25519"], lines: &["AcceptEnv GIT_PROTOCOL"] });
    let (path, public) = make_key(world.dir.path(), "key", &["-t", "ed25519", "-N", "canary"]);
    server.authorize(&public);
    let key = std::fs::read_to_string(path).unwrap();
    let url = server.url(&world.dir.path().join("server/team.git"));
    let given = |known_hosts: &str| {
        let data = [("identity", &*key), ("known_hosts", known_hosts), ("password", "canary")];
        Some(credentials(&data, &url))
    };
    let done = clone(url.clone(), commit.clone(), given(&server.known_hosts())).await;
    assert!(done.code == Some(0) && done.has("a.yaml"), "{done:?}\n{}", server.log());
    assert_eq!(left_over(&done, "PRIVATE KEY"), None);
    let (_, stranger) = make_key(world.dir.path(), "other", &["-t", "ed25519"]);
    let wrong = format!("{} {stranger}\n", server.host());
    let done = clone(url.clone(), commit.clone(), given(&wrong)).await;
    assert!(
        done.code == Some(10) && done.said.contains("Host key verification failed"),
        "{done:?}"
    );
    server.authorize(&stranger);
    let done = clone(url.clone(), commit.clone(), given(&server.known_hosts())).await;
    assert!(done.code == Some(13) && done.said.contains("Permission denied"), "{done:?}");
}
