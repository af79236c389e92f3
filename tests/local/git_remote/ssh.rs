//! Git over ssh, from OpenSSH's server: G2, G3.

use std::collections::BTreeMap;

use super::sshd::{self, Settings, Sshd, make_key};
use super::*;

/// Both versions of the protocol: a server that lets the client choose, as forges do, and one with OpenSSH's defaults.
pub const VERSIONS: [(&str, &[&str]); 2] = [("2", &["AcceptEnv GIT_PROTOCOL"]), ("0", &[])];

fn credentials(key: &str, known_hosts: &str, passphrase: Option<&str>) -> Credentials {
    let mut data = BTreeMap::from([
        ("identity".to_owned(), key.as_bytes().to_vec()),
        ("known_hosts".to_owned(), known_hosts.as_bytes().to_vec()),
    ]);
    data.extend(passphrase.map(|text| ("password".to_owned(), text.as_bytes().to_vec())));
    Credentials::of(&data, "ssh://git@h/a").unwrap()
}

/// A server, and a key that it takes.
pub struct Ssh {
    pub world: World,
    sshd: Sshd,
    key: String,
}

impl Ssh {
    pub async fn new(settings: &Settings<'_>) -> Self {
        let (world, sshd) = (World::new().await, Sshd::start(settings));
        let (path, public) = make_key(world.dir.path(), "key", &["-t", "ed25519"]);
        sshd.authorize(&public);
        Self { world, sshd, key: std::fs::read_to_string(path).unwrap() }
    }

    async fn plain() -> Self {
        Self::new(&Settings { host_keys: &["ed25519"], lines: VERSIONS[0].1 }).await
    }

    fn repo(&self) -> PathBuf {
        self.world.dir.path().join("server/team.git")
    }

    pub fn remote_with(&self, change: impl FnOnce(&mut RemoteOptions)) -> Remote {
        self.world.remote_with(|options| {
            options.url = self.sshd.url(&self.repo());
            options.credentials = credentials(&self.key, &self.sshd.known_hosts(), None);
            change(options);
        })
    }

    fn remote(&self) -> Remote {
        self.remote_with(|_| {})
    }

    /// The error for a server that shows something else than what is known.
    async fn distrusted(&self, known_hosts: &str) -> GitError {
        let known = credentials(&self.key, known_hosts, None);
        self.remote_with(|options| options.credentials = known).resolve().await.unwrap_err()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn g2_g3_commits_are_found_and_fetched_over_ssh_in_both_versions_of_the_protocol() {
    if !sshd::is_there() {
        return;
    }
    for (version, lines) in VERSIONS {
        let ssh = Ssh::new(&Settings { host_keys: &["ed25519"], lines }).await;
        let first = ssh.world.repo.commit("main", &[("a.yaml", "a: 1"), ("sub/b.yaml", "b: 1")]);
        ssh.world.repo.git(&["tag", "v1.0.0", "main"]);
        let remote = ssh.remote();
        let snapshot = sync(&remote, "").await.unwrap();
        assert_eq!(snapshot.commit().id, first, "version {version}");
        assert_eq!(content(&snapshot, "sub/b.yaml"), "b: 1");
        // On top of what is there.
        let second = ssh.world.repo.commit("main", &[("a.yaml", "a: 2")]);
        let snapshot = sync(&remote, "").await.unwrap();
        assert_eq!(snapshot.commit().id, second, "version {version}");
        assert_eq!(
            (content(&snapshot, "a.yaml"), content(&snapshot, "sub/b.yaml")),
            ("a: 2".into(), "b: 1".into())
        );
        for reference in [
            tag("v1.0.0"),
            GitRef { semver: Some(">=1".into()), ..GitRef::default() },
            GitRef { name: Some("refs/tags/v1.0.0".into()), ..GitRef::default() },
        ] {
            let remote = ssh.remote_with(|options| options.reference = reference);
            assert_eq!(remote.resolve().await.unwrap().commit, first, "version {version}");
        }
        let missing = ssh.remote_with(|options| options.reference = branch("mian"));
        let error = missing.resolve().await.unwrap_err();
        assert_eq!(
            error.hint().as_deref(),
            Some("did you mean main?"),
            "version {version}: {error}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn g2_every_kind_of_our_keys_logs_in() {
    if !sshd::is_there() {
        return;
    }
    let ssh = Ssh::plain().await;
    ssh.world.repo.commit("main", &[("a.yaml", "a: 1")]);
    for (at, arguments) in [
        &["-t", "ed25519"][..],
        &["-t", "ecdsa", "-b", "256"],
        &["-t", "ecdsa", "-b", "384"],
        &["-t", "ecdsa", "-b", "521"],
        &["-t", "rsa", "-b", "3072"],
        &["-t", "rsa", "-b", "2048", "-m", "PEM"],
        &["-t", "ed25519", "-N", "canary"],
    ]
    .into_iter()
    .enumerate()
    {
        let (path, public) = make_key(ssh.world.dir.path(), &format!("key{at}"), arguments);
        let text = std::fs::read_to_string(path).unwrap();
        let passphrase = arguments.contains(&"-N").then_some("canary");
        let with = credentials(&text, &ssh.sshd.known_hosts(), passphrase);
        let remote = ssh.remote_with(|options| options.credentials = with);
        let error = remote.resolve().await.unwrap_err();
        assert_eq!(error.reason(), "AuthenticationFailed", "{arguments:?}: {error}");
        assert!(error.hint().unwrap().contains("ssh-keygen -y -f"), "{error}");
        ssh.sshd.authorize(&public);
        remote
            .resolve()
            .await
            .unwrap_or_else(|error| panic!("{arguments:?}: {error}\n{}", ssh.sshd.log()));
        assert!(!format!("{remote:?} {error:?}").contains("canary"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn g2_the_key_of_the_server_must_be_known() {
    if !sshd::is_there() {
        return;
    }
    let all = &["ed25519", "ecdsa", "rsa"];
    let ssh = Ssh::new(&Settings { host_keys: all, lines: &[] }).await;
    ssh.world.repo.commit("main", &[("a.yaml", "a: 1")]);
    // Any one of them is enough, whichever the server would choose.
    let (known, host) = (ssh.sshd.known_hosts(), ssh.sshd.host());
    for line in known.lines() {
        let with = credentials(&ssh.key, line, None);
        let remote = ssh.remote_with(|options| options.credentials = with);
        remote.resolve().await.unwrap_or_else(|error| panic!("{line}: {error}"));
    }
    let key = known.lines().next().unwrap().split_once(' ').unwrap().1;
    let error = ssh.distrusted(&format!("other.example {key}")).await;
    assert_eq!(error.reason(), "HostKeyNotTrusted");
    let shown = error.to_string();
    assert!(shown.contains(&format!("the key of {host} is not trusted")), "{shown}");
    assert!(
        shown.contains("known_hosts has no key of it; it shows ssh-ed25519 SHA256:"),
        "{shown}"
    );
    assert!(error.hint().unwrap().contains("ssh-keyscan"), "{error:?}");
    let (_, another) = make_key(ssh.world.dir.path(), "another", &["-t", "ed25519"]);
    let error = ssh.distrusted(&format!("{host} {another}")).await;
    assert!(error.to_string().contains("known_hosts has another one"), "{error}");
    assert!(error.hint().unwrap().contains("somebody may stand between"), "{error:?}");
    let error = ssh.distrusted(&format!("{known}@revoked * {key}")).await;
    assert!(error.to_string().contains("is revoked"), "{error}");
    // Only the kind of the other key is asked for: the key was not changed for one of another kind.
    let other = Ssh::new(&Settings { host_keys: &["rsa"], lines: &[] }).await;
    let error = other.distrusted(&format!("{} {another}", other.sshd.host())).await;
    assert!(error.to_string().contains("no Key algorithm in common"), "{error}");
    // Nobody was logged in.
    assert!(!other.sshd.log().contains("Accepted"), "{}", other.sshd.log());
}

#[tokio::test(flavor = "multi_thread")]
async fn g2_what_a_server_refuses_is_told_in_its_words() {
    if !sshd::is_there() {
        return;
    }
    let ssh = Ssh::plain().await;
    ssh.world.repo.commit("main", &[("a.yaml", "a: 1")]);
    let absent = ssh.remote_with(|options| options.url = ssh.sshd.url(Path::new("/nowhere/x.git")));
    let error = absent.resolve().await.unwrap_err();
    assert_eq!(error.reason(), "RepositoryNotFound");
    assert!(
        error.to_string().contains("'/nowhere/x.git' does not appear to be a git repository"),
        "{error}"
    );
    assert!(error.hint().unwrap().contains("check the path"), "{error:?}");
    for (command, reason, said) in [
        ("echo canary to everybody", "NotAGitServer", "there is no Git server at that URL"),
        ("true", "RepositoryNotFound", "git-upload-pack ended with status 0"),
        ("echo no such project >&2; exit 1", "RepositoryNotFound", "no such project"),
        ("printf '0010ERR go away\\n'", "RepositoryNotFound", "go away"),
    ] {
        let line = format!("ForceCommand {command}");
        let lines: &[&str] = &[&line];
        let other = Ssh::new(&Settings { host_keys: &["ed25519"], lines }).await;
        let error = other.remote().resolve().await.unwrap_err();
        assert_eq!(error.reason(), reason, "{command}: {error}");
        assert!(error.to_string().contains(said), "{command}: {error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn g2_ssh_needs_credentials_and_an_address_that_may_be_dialled() {
    let world = World::new().await;
    let mut options = world.options(branch("main"));
    options.url = "ssh://git@127.0.0.1:22/a.git".into();
    let error = Remote::new(options).unwrap_err();
    assert_eq!((error.reason(), error.is_terminal()), ("CredentialsMissing", true));
    let dir = tempfile::tempdir().unwrap();
    let (path, public) = make_key(dir.path(), "key", &["-t", "ed25519"]);
    let key = std::fs::read_to_string(path).unwrap();
    for host in ["127.0.0.1", "0x7f000001", "[::1]", "localhost", "169.254.169.254"] {
        let mut options = world.options(branch("main"));
        options.url = format!("ssh://git@{host}/a.git");
        options.credentials = credentials(&key, &format!("* {public}"), None);
        options.dialler = Dialler::new(Policy::default());
        assert_eq!(Remote::new(options).unwrap_err().reason(), "AddressRefused", "{host}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn g3_a_server_that_hangs_ends_at_the_timeout_and_no_connection_is_left() {
    if !sshd::is_there() {
        return;
    }
    let ssh = Ssh::plain().await;
    ssh.world.repo.commit("main", &[("a.yaml", "a: 1")]);
    sync(&ssh.remote(), "").await.unwrap();
    // One that says nothing at all, and one that hangs once it has taken the key.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = silent.local_addr().unwrap().port();
    let hangs =
        Ssh::new(&Settings { host_keys: &["ed25519"], lines: &["ForceCommand sleep 600"] }).await;
    for (ssh, url) in [(&ssh, Some(format!("ssh://git@127.0.0.1:{port}/a"))), (&hangs, None)] {
        let remote = ssh.remote_with(|options| {
            options.timeout = Duration::from_secs(2);
            options.url = url.unwrap_or_else(|| options.url.clone());
        });
        let error = remote.resolve().await.unwrap_err();
        assert_eq!(error.reason(), "Timeout", "{error}");
    }
    for sshd in [&ssh.sshd, &hangs.sshd] {
        let end = Instant::now() + Duration::from_secs(20);
        while sshd.connections() > 0 {
            assert!(Instant::now() < end, "connections stay open\n{}", sshd.log());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn g3_an_answer_that_is_no_ssh_at_all_is_an_error() {
    let world = World::new().await;
    let dir = tempfile::tempdir().unwrap();
    let (path, public) = make_key(dir.path(), "key", &["-t", "ed25519"]);
    let key = std::fs::read_to_string(path).unwrap();
    for answer in [
        "HTTP/1.1 400 Bad Request\r\n\r\n",
        "SSH-1.5-old\r\n",
        "SSH-2.0-x\r\ngarbage garbage garbage",
        "",
    ] {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let task = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let _ = tokio::io::AsyncWriteExt::write_all(&mut stream, answer.as_bytes()).await;
            let _ = tokio::io::AsyncWriteExt::shutdown(&mut stream).await;
        });
        let remote = world.remote_with(|options| {
            options.url = format!("ssh://git@127.0.0.1:{port}/a.git");
            options.credentials = credentials(&key, &format!("* {public}"), None);
        });
        let error = remote.resolve().await.unwrap_err();
        assert_eq!(error.reason(), "ConnectionFailed", "{answer:?}: {error}");
        task.await.unwrap();
    }
}
