//! The engine in the process of the test, over a client whose requests the test may hold or refuse.

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::http::{Request, Response, StatusCode};
use convoke::cluster::live::{Managed, Stores};
use convoke::cluster::reflector;
use convoke::cluster::writes::Writes;
use convoke::git::Repositories;
use convoke::net::{Dialler, Policy};
use convoke::runtime::queue::Queue;
use convoke::runtime::worker;
use convoke::runtime::write_priority::WritePriority;
use convoke::sync::apply::impersonation::Rules;
use convoke::sync::budgets::Budgets;
use convoke::sync::driver::{Driver, Parts, Settings};
use convoke::sync::local::LocalFolders;
use convoke::sync::published::build_sources::BuildSources;
use convoke::sync::published::wanted_agents::WantedAgents;
use convoke::sync::webhooks::{self, Webhooks};
use convoke_core::cluster::account::OperatorAccount;
use kube::Client;
use kube::client::Body;
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::{Cluster, eventually};

/// The engine of an operator, which calls a kind silent after two seconds.
pub fn operate(client: &Client, data: &Path) -> JoinSet<()> {
    let (stores, queue) = (Stores::silent_after(Duration::from_secs(2)), Queue::new());
    let settings = Settings {
        dialler: Dialler::new(Policy { insecure: true, ..Policy::default() }),
        rules: Rules {
            single_tenant: true,
            default_service_account: None,
            operator: OperatorAccount::new("convoke-system"),
        },
        local: LocalFolders::new(Vec::new()),
        repositories: Repositories::new(data.to_owned(), u64::MAX)
            .expect("a folder for fetched objects"),
        budgets: Budgets::default(),
    };
    let webhooks = webhooks::Parts {
        client: client.clone(),
        operator: OperatorAccount::new("convoke-system"),
        repositories: settings.repositories.clone(),
        queue: queue.clone(),
        leads: Arc::new(|| true),
        served: false,
    };
    let webhooks = Webhooks::new(webhooks, &stores.git_syncs);
    let engine = Driver::new(Parts {
        client: client.clone(),
        writes: Writes::new(),
        stores: stores.clone(),
        settings,
        builds: BuildSources::new(),
        wanted: WantedAgents::new(),
        write_priority: WritePriority::new(),
        queue: queue.clone(),
        webhooks,
    });
    let mut tasks = JoinSet::new();
    tasks.spawn(worker::run(engine, queue, 8));
    macro_rules! watch {
        ($($store:ident),*) => {$(
            let (api, store) = (kube::Api::all(client.clone()), stores.$store.clone());
            tasks.spawn(reflector::run::<Managed<_>>(api, store, None));
        )*};
    }
    watch!(git_syncs, model_apis, mcp_servers, agent_builds, agents);
    tasks
}

/// An engine over requests that the test may hold or refuse, with the rights of an operator that writes as itself. It ends with
/// this.
pub struct InterceptedEngine {
    pub requests: Intercepted,
    _data: tempfile::TempDir,
    _tasks: JoinSet<()>,
}

impl InterceptedEngine {
    pub async fn start(cluster: &Cluster) -> Self {
        let namespace = cluster.namespace("operator").await;
        let kubeconfig = cluster.operator_kubeconfig(&namespace).await;
        cluster.bind_single_tenant(&namespace);
        let requests = Intercepted::new(cluster.client_of(&kubeconfig).await);
        let data = tempfile::tempdir().expect("temporary folder");
        let tasks = operate(&requests.client(), data.path());
        Self { requests, _data: data, _tasks: tasks }
    }
}

/// What becomes of some requests.
#[derive(Clone, Default)]
enum Rule {
    #[default]
    None,
    /// They wait.
    Hold(String, String),
    /// They fail, as at a server that is overloaded.
    Refuse(String, String),
}

/// A client whose requests can be held and refused by method and by a part of the path with the query.
#[derive(Clone)]
pub struct Intercepted {
    inner: Client,
    rule: Arc<Mutex<Rule>>,
    met: Arc<AtomicUsize>,
    released: watch::Sender<()>,
}

impl Intercepted {
    pub fn new(inner: Client) -> Self {
        let (rule, met) = (Arc::default(), Arc::default());
        Self { inner, rule, met, released: watch::Sender::new(()) }
    }

    /// The client to give away.
    pub fn client(&self) -> Client {
        let shared = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let shared = shared.clone();
            async move { shared.pass(request).await }
        });
        Client::new(service, "default")
    }

    async fn pass(&self, request: Request<Body>) -> Result<Response<Body>, kube::Error> {
        let target = request.uri().path_and_query().map(ToString::to_string).unwrap_or_default();
        let method = request.method().to_string();
        let is = |verb: &str, part: &str| method == verb && target.contains(part);
        let mut released = self.released.subscribe();
        let rule = self.rule.lock().expect("lock").clone();
        match rule {
            Rule::Hold(method, part) if is(&method, &part) => {
                self.met.fetch_add(1, Ordering::SeqCst);
                released.changed().await.expect("the test goes on");
            }
            Rule::Refuse(method, part) if is(&method, &part) => {
                self.met.fetch_add(1, Ordering::SeqCst);
                let response = Response::builder().status(StatusCode::SERVICE_UNAVAILABLE);
                return Ok(response.body(Body::empty()).expect("a response"));
            }
            _ => {}
        }
        self.inner.send(request).await
    }

    fn rule(&self, rule: Rule) {
        *self.rule.lock().expect("lock") = rule;
        self.met.store(0, Ordering::SeqCst);
    }

    /// From now on these requests wait until [`Self::release`].
    pub fn hold(&self, method: &str, part: &str) {
        self.rule(Rule::Hold(method.into(), part.into()));
    }

    /// From now on these requests fail until [`Self::release`].
    pub fn refuse(&self, method: &str, part: &str) {
        self.rule(Rule::Refuse(method.into(), part.into()));
    }

    /// All requests pass, those that wait among them.
    pub fn release(&self) {
        self.rule(Rule::None);
        self.released.send_replace(());
    }

    /// Waits until a request is held.
    pub async fn holds(&self, within: Duration) {
        self.met(within, "a request is held").await;
    }

    /// Waits until a request was refused.
    pub async fn refused(&self, within: Duration) {
        self.met(within, "a request is refused").await;
    }

    async fn met(&self, within: Duration, what: &str) {
        eventually(within, what, || async { (self.met.load(Ordering::SeqCst) > 0).then_some(()) })
            .await;
    }
}
