#![allow(clippy::unwrap_used, clippy::panic)]

use std::collections::HashMap;
use std::io::ErrorKind;
use std::net::TcpListener;

use super::*;

/// A name server whose answers change: each name has a list of answers, and keeps the last one. Counts what it is asked.
#[derive(Default)]
struct Names {
    answers: Mutex<HashMap<&'static str, Vec<Vec<&'static str>>>>,
    asked: Mutex<Vec<String>>,
}

impl Names {
    fn new(answers: &[(&'static str, &[&[&'static str]])]) -> Arc<Self> {
        let owned = |list: &[&[&'static str]]| list.iter().map(|one| one.to_vec()).collect();
        let answers = answers.iter().map(|(name, list)| (*name, owned(list))).collect();
        Arc::new(Self { answers: Mutex::new(answers), ..Self::default() })
    }

    fn asked(&self) -> Vec<String> {
        self.asked.lock().clone()
    }
}

impl Resolver for Arc<Names> {
    fn addresses<'a>(&'a self, host: &'a str) -> BoxFuture<'a, io::Result<Vec<IpAddr>>> {
        self.asked.lock().push(host.to_owned());
        let mut answers = self.answers.lock();
        let answer = match answers.get_mut(host) {
            Some(list) if list.len() > 1 => Ok(list.remove(0)),
            Some(list) => Ok(list[0].clone()),
            None => Err(io::Error::other(
                "failed to lookup address information: Name or service not known",
            )),
        };
        let answer = answer.map(|list| list.into_iter().map(|ip| ip.parse().unwrap()).collect());
        Box::pin(std::future::ready(answer))
    }
}

fn dialler(policy: Policy, names: &Arc<Names>) -> Dialler {
    Dialler::with_resolver(policy, Arc::new(Arc::clone(names)))
}

/// A place to connect to where nobody answers: only who comes is seen.
struct Door {
    door: tokio::net::TcpListener,
    /// The same socket, to see at once who has come.
    same: TcpListener,
}

impl Door {
    fn new() -> Self {
        let same = TcpListener::bind("127.0.0.1:0").unwrap();
        same.set_nonblocking(true).unwrap();
        let door = tokio::net::TcpListener::from_std(same.try_clone().unwrap()).unwrap();
        Self { door, same }
    }

    fn url(&self, host: &str) -> Url {
        let port = self.same.local_addr().unwrap().port();
        Url::parse(&format!("http://{host}:{port}/team.git")).unwrap()
    }

    /// Sends one request; gives what went wrong, or `None` as soon as somebody is at the door.
    async fn outcome(
        &self,
        sent: impl Future<Output = Result<Response, NetError>>,
    ) -> Option<NetError> {
        let seen = tokio::time::timeout(Duration::from_secs(20), async {
            tokio::select! {
                sent = sent => Some(sent.unwrap_err()),
                visitor = self.door.accept() => visitor.map(|_| None).unwrap(),
            }
        });
        let seen = seen.await.expect("neither a visitor nor an error");
        if seen.is_some() {
            assert_eq!(self.same.accept().unwrap_err().kind(), ErrorKind::WouldBlock, "{seen:?}");
        }
        seen
    }

    async fn dial(&self, dialler: &Dialler, url: &Url) -> Option<NetError> {
        match dialler.client(url, options()) {
            Ok(client) => self.outcome(client.execute(get(url))).await,
            Err(error) => Some(error),
        }
    }
}

fn get(url: &Url) -> Request {
    Request::new(reqwest::Method::GET, url.clone())
}

fn options() -> ClientOptions<'static> {
    ClientOptions { user_agent: "test/1", roots: None, identity: None, proxy: None }
}

fn insecure() -> Policy {
    Policy { insecure: true, ..Policy::default() }
}

#[tokio::test]
async fn v12_addresses_are_judged_when_a_connection_is_made() {
    let (door, names) = (Door::new(), Names::new(&[("git.test", &[&["127.0.0.1"]])]));
    let url = door.url("git.test");
    let error = door.dial(&dialler(Policy::default(), &names), &url).await;
    assert_eq!(error, Some(NotAllowed::name("git.test").into()));
    assert_eq!(names.asked().len(), 1);
    assert_eq!(door.dial(&dialler(insecure(), &names), &url).await, None);
    assert_eq!(names.asked().len(), 2, "it is resolved once a connection");
}

#[tokio::test]
async fn v12_a_name_that_changes_its_meaning_is_dialled_where_it_was_judged() {
    // Allowed first, then what must not be dialled, and allowed again.
    let answers: &[&[&str]] =
        &[&["127.0.0.1"], &["169.254.169.254"], &["10.0.0.1"], &["127.0.0.1"]];
    let (door, names) = (Door::new(), Names::new(&[("git.test", answers)]));
    let (url, dialler) = (door.url("git.test"), dialler(insecure(), &names));
    let client = dialler.client(&url, options()).unwrap();
    let mut seen = Vec::new();
    for _ in 0..4 {
        seen.push(door.outcome(client.execute(get(&url))).await);
    }
    let refused = || Some(NetError::from(NotAllowed::name("git.test")));
    assert_eq!(seen, [None, refused(), refused(), None]);
    assert_eq!(names.asked().len(), 4, "nothing is resolved again behind the judgement");
}

#[tokio::test]
async fn v12_behind_a_proxy_only_the_proxy_is_resolved_and_judged() {
    let (door, names) = (Door::new(), Names::new(&[("proxy.test", &[&["127.0.0.1"]])]));
    let port = door.url("proxy.test").port().unwrap();
    let proxy = ProxyServer::new(&format!("http://proxy.test:{port}"), None).unwrap();
    let url = Url::parse("http://git.test/a").unwrap();
    let with = || ClientOptions { proxy: Some(&proxy), ..options() };
    let client = dialler(insecure(), &names).client(&url, with()).unwrap();
    assert_eq!(door.outcome(client.execute(get(&url))).await, None);
    assert_eq!(names.asked(), ["proxy.test"]);
    let client = dialler(Policy::default(), &names).client(&url, with()).unwrap();
    let refused = Some(NetError::proxy_refused(&NotAllowed::name("proxy.test")));
    assert_eq!(door.outcome(client.execute(get(&url))).await, refused);
}

#[tokio::test]
async fn o11_an_endpoint_that_the_operator_names_is_reached_and_no_other() {
    let (door, other) = (Door::new(), Door::new());
    let names =
        Names::new(&[("registry.test", &[&["127.0.0.1"]]), ("alias.test", &[&["127.0.0.1"]])]);
    let port = door.url("registry.test").port().unwrap();
    let dialler = dialler(Policy::default(), &names);
    assert!(door.dial(&dialler, &door.url("registry.test")).await.is_some());
    let trusting = dialler.trusting(vec![Endpoint::new("Registry.test.", port)]);
    assert_eq!(door.dial(&trusting, &door.url("registry.test")).await, None);
    // Neither another port of it, nor another name or the address of the same.
    assert!(other.dial(&trusting, &other.url("registry.test")).await.is_some());
    assert!(door.dial(&trusting, &door.url("alias.test")).await.is_some());
    assert!(door.dial(&trusting, &door.url("127.0.0.1")).await.is_some());
    // The one that it was made of reaches no more than before.
    assert!(door.dial(&dialler, &door.url("registry.test")).await.is_some());
}

#[tokio::test]
async fn v10_of_several_addresses_only_those_allowed_are_dialled() {
    let all: &[&[&str]] =
        &[&["10.0.0.1", "fe80::1", "::ffff:169.254.169.254", "127.0.0.1", "100.64.0.1"]];
    let (door, names) = (Door::new(), Names::new(&[("git.test", all)]));
    let dialler = dialler(insecure(), &names);
    let to = Endpoint::new("git.test", 80);
    assert_eq!(dialler.resolve(&to).await, Ok(vec!["127.0.0.1:80".parse().unwrap()]));
    assert_eq!(door.dial(&dialler, &door.url("git.test")).await, None);
}

#[tokio::test]
async fn v10_open_and_closed_ports_behind_what_is_not_allowed_are_one_error() {
    let names = Names::new(&[
        ("inside.test", &[&["127.0.0.1"]]),
        ("metadata.test", &[&["169.254.169.254"]]),
    ]);
    let (door, dialler) = (Door::new(), dialler(Policy::default(), &names));
    for host in ["inside.test", "127.0.0.1", "[::ffff:127.0.0.1]", "localhost"] {
        let open = door.dial(&dialler, &door.url(host)).await;
        assert!(matches!(open, Some(NetError::NotAllowed(_))), "{host}: {open:?}");
        let closed = Door::new().url(host);
        assert_eq!(open, door.dial(&dialler, &closed).await, "{host}");
    }
    // Names tell nothing of what they lead to, nor whether they lead anywhere.
    for host in ["inside.test", "metadata.test", "nowhere.test"] {
        let error = door.dial(&dialler, &door.url(host)).await.unwrap();
        assert_eq!(error.to_string(), format!("{host} has no address that may be dialled"));
    }
}

#[tokio::test]
async fn v10_a_name_of_the_api_server_is_refused_wherever_it_leads_now() {
    let names = Names::new(&[
        ("api.test", &[&["127.0.0.2"], &["127.0.0.3"]]),
        ("alias.test", &[&["127.0.0.3"]]),
        ("other.test", &[&["127.0.0.4"]]),
        ("literal.test", &[&["::ffff:127.0.0.5"]]),
    ]);
    let api_servers = vec![Endpoint::new("API.test.", 6443), Endpoint::new("127.0.0.5", 6443)];
    let dialler = dialler(Policy { api_servers, ..insecure() }, &names);
    let resolve = |host: &'static str, port| {
        let dialler = &dialler;
        async move { dialler.resolve(&Endpoint::new(host, port)).await.map(|found| found.len()) }
    };
    for host in ["api.test", "api.test.", "alias.test", "literal.test"] {
        let name = host.trim_end_matches('.');
        assert_eq!(resolve(host, 6443).await, Err(NotAllowed::name(name).into()), "{host}");
    }
    assert_eq!(resolve("other.test", 6443).await, Ok(1));
    // Another port of it is another server, and asks nobody for the API server.
    let before = names.asked().len();
    assert_eq!(resolve("alias.test", 443).await, Ok(1));
    assert_eq!(names.asked().len(), before + 1);
}

#[tokio::test]
async fn o11_name_servers_that_do_not_answer_are_told_apart() {
    struct Silent(&'static str);
    impl Resolver for Silent {
        fn addresses<'a>(&'a self, _: &'a str) -> BoxFuture<'a, io::Result<Vec<IpAddr>>> {
            Box::pin(std::future::ready(Err(io::Error::other(self.0))))
        }
    }
    for (words, temporary) in [
        ("failed to lookup address information: Temporary failure in name resolution", true),
        ("failed to lookup address information: Try again", true),
        ("failed to lookup address information: Name or service not known", false),
        ("failed to lookup address information: Name does not resolve", false),
        ("failed to lookup address information: No address associated with hostname", false),
    ] {
        let names = Arc::new(Silent(words));
        let dialler = Dialler::with_resolver(Policy::default(), names);
        let error = dialler.resolve(&Endpoint::new("git.test", 443)).await.unwrap_err();
        assert_eq!(matches!(error, NetError::Failed { .. }), temporary, "{words}: {error}");
    }
}

#[tokio::test]
async fn v11_a_client_asks_its_own_origin_only() {
    let (door, other) = (Door::new(), Door::new());
    let dialler = dialler(insecure(), &Names::new(&[]));
    let client = dialler.client(&door.url("127.0.0.1"), options()).unwrap();
    let secure = other.url("127.0.0.1").to_string().replace("http://", "https://");
    for url in [other.url("127.0.0.1"), door.url("127.0.0.2"), secure.parse().unwrap()] {
        let refused = Some(NetError::failed("the request is for another server"));
        assert_eq!(other.outcome(client.execute(get(&url))).await, refused, "{url}");
    }
    assert_eq!(door.outcome(client.execute(get(&door.url("127.0.0.1")))).await, None);
}

#[tokio::test]
async fn v12_the_systems_resolver_is_judged_too() {
    let to = Endpoint::new("localhost", 80);
    assert_eq!(
        Dialler::new(Policy::default()).resolve(&to).await,
        Err(NotAllowed::name("localhost").into())
    );
    let allowed = Dialler::new(insecure()).resolve(&to).await.unwrap();
    assert!(allowed.iter().all(|address| address.ip().is_loopback()));
}

#[test]
fn g1_extra_authorities_must_be_certificates() {
    let dialler = Dialler::new(Policy::default());
    let url = Url::parse("https://git.example.com/team.git").unwrap();
    let garbage = "-----BEGIN CERTIFICATE-----\naGVsbG8=\n-----END CERTIFICATE-----\n";
    for pem in ["", "hello", "-----BEGIN CERTIFICATE-----\n!\n-----END CERTIFICATE-----\n", garbage]
    {
        let roots = Some(pem.as_bytes());
        let error = dialler.client(&url, ClientOptions { roots, ..options() }).expect_err(pem);
        assert!(matches!(error, NetError::InvalidRoots { .. }), "{pem}: {error}");
    }
    assert!(dialler.client(&url, options()).is_ok());
}

#[test]
fn o11_nobody_else_makes_connections() {
    // The API server's client is no concern of this policy.
    let own = ["src/net/", "src/cluster/client.rs"];
    let words = [
        "reqwest::Client",
        "reqwest::get",
        "TcpStream",
        "UdpSocket",
        "lookup_host",
        "ToSocketAddrs",
        "HttpConnector",
    ];
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let (mut folders, mut seen, mut found) = (vec![root.join("src")], 0, Vec::new());
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let name = path.strip_prefix(root).unwrap().to_string_lossy().into_owned();
            if path.extension().is_none_or(|ext| ext != "rs")
                // Tests talk to servers of their own, on loopback.
                || name.contains("/tests/")
                || own.iter().any(|own| name.starts_with(own))
            {
                continue;
            }
            seen += 1;
            let text = std::fs::read_to_string(&path).unwrap();
            found.extend(
                words
                    .iter()
                    .filter(|word| text.contains(**word))
                    .map(|word| format!("{name}: {word}")),
            );
        }
    }
    assert!(seen > 100, "only {seen} files");
    assert!(found.is_empty(), "these dial without the policy: {found:#?}");
}

#[tokio::test]
async fn p14_clients_of_one_origin_are_one_while_it_is_in_use() {
    let dialler = Dialler::new(Policy { insecure: true, ..Policy::default() });
    let client = |url: &str| {
        let options =
            ClientOptions { user_agent: "convoke", roots: None, identity: None, proxy: None };
        dialler.client(&Url::parse(url).unwrap(), options).unwrap().http
    };
    let one = client("https://git.example/team/a.git");
    assert!(Arc::ptr_eq(&one, &client("https://git.example/team/b.git")));
    for other in ["http://git.example/a", "https://git.example:8443/a", "https://other.example/a"] {
        assert!(!Arc::ptr_eq(&one, &client(other)), "{other}");
    }
    drop(one);
    let _other = client("https://third.example/");
    assert_eq!(dialler.shared().len(), 1, "what nobody uses is not kept");
}
