//! `convoke operator`: runs the sync engine and the controllers in one process.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use clap::{ArgAction, Args as ClapArgs};
use kube::Client;
use prometheus_client::registry::Registry;
use tempfile::TempDir;
use tokio::task::JoinSet;

use super::{CLUSTER, Failure, USAGE};
use crate::api::Kind;
use crate::cluster::client::connect;
use crate::cluster::identity::is_dns_label;
use crate::cluster::live::{Managed, Stores};
use crate::cluster::own_user;
use crate::cluster::reflector;
use crate::cluster::writes::Writes;
use crate::controllers::agent_build;
use crate::controllers::agent_build::profile::BuildProfile;
use crate::controllers::{self, ControllerSet};
use crate::git::Repositories;
use crate::http::{admin, webhook};
use crate::net::{AddressRange, Dialler, Endpoint, Policy};
use crate::runtime::queue::Queue;
use crate::runtime::worker;
use crate::runtime::write_priority::WritePriority;
use crate::sync::abandoned;
use crate::sync::commit_status::{self, CommitStatuses};
use crate::sync::driver::{Driver, Parts, Settings};
use crate::sync::local::{LocalArg, LocalFolders};
use crate::sync::newest::Shares;
use crate::sync::published::build_sources::BuildSources;
use crate::sync::variables;
use crate::sync::webhooks::{self, Webhooks};
use convoke_core::cluster::account::OperatorAccount;
use convoke_core::sync::apply::impersonation::Rules;
use convoke_core::sync::published::wanted_agents::WantedAgents;

/// GitSyncs that are reconciled at the same time; of one namespace half as many. Most of the time they wait for the network,
/// behind a slow admission webhook even for minutes. Fetching and reading commits costs memory, and has a limit of its own.
const MAX_CONCURRENT_SYNCS: usize = 64;

/// The folder below `--data-dir` for the stores of fetched objects.
const STORES: &str = "repositories";

/// Run the operator.
#[derive(Debug, ClapArgs)]
pub struct Args {
    /// Controllers to run: all, none, or kinds separated by commas
    #[arg(long, default_value = "all")]
    controllers: String,
    /// Allow http:// and loopback addresses for repositories
    #[arg(long)]
    allow_insecure_git: bool,
    /// Ranges of addresses that may be dialled for repositories though they are private: 10.20.0.0/16,100.64.1.2
    #[arg(long, value_name = "CIDR", value_delimiter = ',')]
    allow_addresses: Vec<AddressRange>,
    /// Write with the operator's own rights where no ServiceAccount is named, and allow repositories at private addresses
    /// (RFC 1918): everybody who may create a GitSync shares both
    #[arg(long)]
    single_tenant: bool,
    /// ServiceAccount, in the namespace of each GitSync, that writes for those that name none
    #[arg(long, value_name = "NAME", value_parser = label)]
    default_service_account: Option<String>,
    /// Wait for the lease before writing (not built yet: only one replica may run)
    #[arg(long, default_value_t = false, action = ArgAction::Set)]
    leader_elect: bool,
    /// Address of /healthz and /readyz
    #[arg(long, default_value = "0.0.0.0:8081")]
    health_addr: SocketAddr,
    /// Address of /metrics
    #[arg(long, default_value = "0.0.0.0:8080")]
    metrics_addr: SocketAddr,
    /// Address of the webhooks of GitSyncs, 0.0.0.0:9292 for example [default: none]
    #[arg(long)]
    webhook_addr: Option<SocketAddr>,
    /// Sync this folder in place of the GitSync's repository, as it is saved (for development; may be repeated)
    #[arg(long, value_name = "NAMESPACE/NAME=DIR")]
    local: Vec<LocalArg>,
    /// Folder for fetched objects; everything in it can be made anew [default: a temporary folder]
    #[arg(long, env = "CONVOKE_DATA_DIR")]
    data_dir: Option<PathBuf>,
    /// Registry of builds that name none
    #[arg(long)]
    internal_registry: Option<String>,
    /// Namespace of builds that Pod Security restricted does not admit [default: that of each AgentBuild]
    #[arg(long, value_name = "NAME", value_parser = label)]
    build_namespace: Option<String>,
    /// Image of Convoke, with which builds push [default: that of its own pod]
    #[arg(long, env = "CONVOKE_IMAGE")]
    image: Option<String>,
    /// How steps run that build a Dockerfile or test an image: baseline, userns, rootless or privileged
    #[arg(long, value_name = "PROFILE", default_value_t)]
    build_profile: BuildProfile,
    /// Builds that run at once
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=1000))]
    max_builds: u32,
    /// Builds of one namespace that run at once
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=1000))]
    max_builds_per_namespace: u32,
    /// Namespace of the operator: where its key and the shipped pipeline templates are
    #[arg(long, env = "POD_NAMESPACE", default_value = "convoke-system")]
    operator_namespace: String,
    /// Labelled ConfigMaps and their keys that are followed in each namespace, and as many Secrets and keys of those
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    inputs_max_keys: u32,
    #[command(flatten)]
    budgets: crate::sync::budgets::BudgetArgs,
    #[command(flatten)]
    defaults: controllers::defaults::DefaultArgs,
}

/// Parses the name of a ServiceAccount or of a namespace.
fn label(text: &str) -> Result<String, String> {
    let valid = is_dns_label(text);
    if valid { Ok(text.to_owned()) } else { Err("it must be a DNS label".into()) }
}

pub fn run(args: Args) -> Result<ExitCode, Failure> {
    tracing_subscriber::fmt()
        .with_env_filter(tracing_subscriber::EnvFilter::try_from_default_env().unwrap_or_else(
            |_| "info,kube_client=warn,kube_runtime=error,rustls_platform_verifier=off".into(),
        ))
        .with_writer(std::io::stderr)
        .with_ansi(std::io::IsTerminal::is_terminal(&std::io::stderr()))
        .init();
    let set = ControllerSet::parse(&args.controllers).map_err(|unknown| {
        Failure::new(USAGE, format!("unknown controller {unknown:?}"))
            .hint(format!("use all, none, or some of {}", ControllerSet::names()))
    })?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::new(CLUSTER, format!("cannot start: {error}")))?;
    let result = runtime.block_on(operate(args, set));
    // Blocking fetches may still hang on a remote. They are not waited for.
    runtime.shutdown_background();
    result
}

type Tasks = JoinSet<Result<(), Failure>>;

fn spawn(tasks: &mut Tasks, work: impl Future<Output = ()> + Send + 'static) {
    tasks.spawn(async move {
        work.await;
        Ok(())
    });
}

/// What the sync engine and the controllers share.
struct Common {
    client: Client,
    writes: Arc<Writes>,
    stores: Stores,
    /// GitSyncs that have something to do.
    queue: Arc<Queue>,
    builds: Arc<BuildSources>,
    wanted: Arc<WantedAgents>,
    write_priority: Arc<WritePriority>,
    /// The operator's own account.
    operator: OperatorAccount,
}

impl Common {
    fn new(client: Client, operator_namespace: &str) -> Self {
        Self {
            client,
            writes: Writes::new(),
            stores: Stores::new(),
            queue: Queue::new(),
            builds: BuildSources::new(),
            wanted: WantedAgents::new(),
            write_priority: WritePriority::new(),
            operator: OperatorAccount::new(operator_namespace),
        }
    }

    /// `served`: whether the operator listens for webhooks.
    fn webhooks(&self, served: bool, repositories: Repositories) -> Arc<Webhooks> {
        let (client, operator) = (self.client.clone(), self.operator.clone());
        // There is one replica only, see `warn_about_unbuilt`.
        let (queue, leads) = (self.queue.clone(), Arc::new(|| true));
        let parts = webhooks::Parts { client, operator, repositories, queue, leads, served };
        Webhooks::new(parts, &self.stores.git_syncs)
    }

    fn driver(&self, settings: Settings, webhooks: Arc<Webhooks>) -> Arc<Driver> {
        Driver::new(Parts {
            client: self.client.clone(),
            writes: self.writes.clone(),
            stores: self.stores.clone(),
            settings,
            builds: self.builds.clone(),
            wanted: self.wanted.clone(),
            write_priority: self.write_priority.clone(),
            queue: self.queue.clone(),
            webhooks,
        })
    }
}

async fn operate(mut args: Args, set: ControllerSet) -> Result<ExitCode, Failure> {
    if args.build_namespace.as_ref() == Some(&args.operator_namespace) {
        let message = "--build-namespace must not be the namespace of the operator";
        return Err(Failure::new(USAGE, message)
            .hint("builds of all teams run there: name one with nothing else in it"));
    }
    warn_about_unbuilt(&args);
    let (client, api_servers) = connect().await.map_err(|error| {
        Failure::new(CLUSTER, format!("cannot connect to the cluster: {error}"))
            .hint("set KUBECONFIG")
    })?;
    // A temporary folder is deleted when this ends.
    let (data_dir, _temporary) = data_dir(args.data_dir.take())?;

    let mut tasks = Tasks::new();
    let common = Common::new(client, &args.operator_namespace);
    let repositories = Repositories::new(data_dir.join(STORES), args.budgets.disk_bytes())
        .map_err(|error| {
            let (dir, hint) =
                (data_dir.display(), "--data-dir is a folder that the operator may write");
            Failure::new(CLUSTER, format!("cannot keep fetched objects in {dir}: {error}"))
                .hint(hint)
        })?;
    tokio::spawn(abandoned::remove(data_dir, repositories.clone()));
    let local = LocalFolders::new(std::mem::take(&mut args.local));
    own_user::learn(common.client.clone(), common.operator.clone()).await;
    let operator = common.operator.clone();
    let dialler = Dialler::new(policy(&args, api_servers));
    let webhooks = common.webhooks(args.webhook_addr.is_some(), repositories.clone());
    let git = repositories.clone();
    let settings = sync_settings(&args, dialler.clone(), git, local.clone(), operator);
    let limits = settings.budgets.git;
    let engine = common.driver(settings, webhooks.clone());
    let concurrency = engine.concurrency();
    let shares = Shares { repositories, limits, concurrency };
    let (health, metrics) = (args.health_addr, args.metrics_addr);
    let registry = serve_webhooks(&mut tasks, webhooks, args.webhook_addr);
    tell_forges(&mut tasks, &common, dialler.clone());
    let watched = start_controllers(&mut tasks, &common, args, set, (dialler, shares));
    start_engine(&mut tasks, &common, engine, local);
    watch_own_kinds(&mut tasks, &common);
    let readiness = readiness(common.stores.clone(), watched);
    serve(&mut tasks, readiness, health, (metrics, registry));

    tracing::info!(version = env!("CARGO_PKG_VERSION"), "operator started");
    run_until_stopped(tasks).await
}

fn warn_about_unbuilt(args: &Args) {
    if args.leader_elect {
        tracing::warn!("--leader-elect is not built yet: run one replica only");
    }
}

/// The folder for fetched objects. Objects of an earlier run are of no use, so by default it is a temporary one.
fn data_dir(given: Option<PathBuf>) -> Result<(PathBuf, Option<TempDir>), Failure> {
    if let Some(dir) = given {
        return Ok((dir, None));
    }
    let temporary = tempfile::Builder::new().prefix("convoke-").tempdir().map_err(|error| {
        Failure::new(CLUSTER, format!("cannot make a temporary folder: {error}"))
    })?;
    Ok((temporary.path().to_owned(), Some(temporary)))
}

/// Which addresses may be dialled.
fn policy(args: &Args, api_servers: Vec<Endpoint>) -> Policy {
    Policy {
        explains: false,
        insecure: args.allow_insecure_git,
        single_tenant: args.single_tenant,
        ranges: args.allow_addresses.clone(),
        api_servers,
        trusted: Vec::new(),
    }
}

fn sync_settings(
    args: &Args,
    dialler: Dialler,
    repositories: Repositories,
    local: LocalFolders,
    operator: OperatorAccount,
) -> Settings {
    let rules = Rules {
        single_tenant: args.single_tenant,
        default_service_account: args.default_service_account.clone(),
        operator,
    };
    Settings { dialler, rules, local, repositories, budgets: args.budgets.clone().resolve() }
}

/// Starts the controllers. Returns what they watch besides our own kinds.
fn start_controllers(
    tasks: &mut Tasks,
    common: &Common,
    args: Args,
    set: ControllerSet,
    (dialler, shares): (Dialler, Shares),
) -> Option<controllers::Watched> {
    let Common { client, writes, stores, builds, wanted, write_priority, .. } = common;
    // The writes of controllers wait for their share by themselves. The sync engine waits for it before it decides on a write.
    let client = writes.client(client.clone());
    let shared = controllers::Shared { client: &client, stores, write_priority };
    let has_builds = set.has(Kind::AgentBuild);
    let (operator, build_dialler) = (common.operator.clone(), dialler.clone());
    let settings = controllers::Settings {
        set,
        defaults: args.defaults.resolve(),
        operator_namespace: args.operator_namespace.clone(),
        operator: common.operator.clone(),
        inputs_max_keys: usize::try_from(args.inputs_max_keys).unwrap_or(usize::MAX),
        dialler,
    };
    let watched = controllers::start(tasks, shared, settings, wanted.clone());
    if has_builds {
        let settings = agent_build::Settings {
            internal_registry: args.internal_registry,
            operator_image: args.image,
            build_namespace: args.build_namespace,
            operator_namespace: args.operator_namespace,
            build_profile: args.build_profile,
            limits: agent_build::Limits {
                total: usize::try_from(args.max_builds).unwrap_or(usize::MAX),
                namespace: usize::try_from(args.max_builds_per_namespace).unwrap_or(usize::MAX),
            },
            operator,
            dialler: build_dialler,
            repositories: shares,
        };
        agent_build::start(tasks, shared, settings, builds.clone());
    }
    watched
}

/// Starts the sync engine, and what wakes GitSyncs besides changes of our own kinds.
fn start_engine(tasks: &mut Tasks, common: &Common, engine: Arc<Driver>, local: LocalFolders) {
    let Common { client, stores, queue, .. } = common;
    let (syncs, changed) = (stores.git_syncs.clone(), engine.variables.clone());
    spawn(tasks, variables::follow(client.clone(), syncs, changed, queue.clone()));
    let changes = queue.clone();
    tasks.spawn(async move {
        local.watch(changes).await.map_err(|error| {
            Failure::new(USAGE, format!("cannot watch the folder of --local: {error}"))
        })
    });
    spawn(tasks, worker::run(engine, queue.clone(), MAX_CONCURRENT_SYNCS));
}

/// Tells forges what became of commits.
fn tell_forges(tasks: &mut Tasks, common: &Common, dialler: Dialler) {
    let Common { client, stores, operator, .. } = common;
    let (queue, syncs) = (Queue::new(), stores.git_syncs.clone());
    let teller = CommitStatuses::new(client.clone(), dialler, operator.clone(), syncs, &queue);
    spawn(tasks, worker::run(teller, queue, commit_status::MAX_AT_ONCE));
}

/// Watches our own kinds into their stores.
fn watch_own_kinds(tasks: &mut Tasks, common: &Common) {
    let Common { client, stores, .. } = common;
    macro_rules! watch {
        ($($store:ident),*) => {$(
            let (api, store) = (kube::Api::all(client.clone()), stores.$store.clone());
            spawn(tasks, reflector::run::<Managed<_>>(api, store, None));
        )*};
    }
    watch!(git_syncs, model_apis, mcp_servers, agent_builds, agents);
}

/// Names the kinds whose first list is not complete yet.
fn readiness(stores: Stores, watched: Option<controllers::Watched>) -> admin::Readiness {
    Arc::new(move || {
        let watched = watched.iter().flat_map(controllers::Watched::pending);
        stores
            .pending()
            .into_iter()
            .chain(watched)
            .map(|kind| format!("no complete list of {kind} yet"))
            .collect()
    })
}

fn cannot_serve(what: &'static str, address: SocketAddr) -> impl Fn(std::io::Error) -> Failure {
    move |error| Failure::new(USAGE, format!("cannot serve {what} on {address}: {error}"))
}

/// Serves health, readiness and metrics.
fn serve(
    tasks: &mut Tasks,
    readiness: admin::Readiness,
    health: SocketAddr,
    (metrics, registry): (SocketAddr, Registry),
) {
    let failed = cannot_serve("health", health);
    tasks.spawn(async move { admin::serve_health(health, readiness).await.map_err(failed) });
    let failed = cannot_serve("metrics", metrics);
    let registry = Arc::new(registry);
    tasks.spawn(async move { admin::serve_metrics(metrics, registry).await.map_err(failed) });
}

/// Serves the webhooks of GitSyncs, if there is an address for them. Returns the metrics.
fn serve_webhooks(
    tasks: &mut Tasks,
    webhooks: Arc<Webhooks>,
    address: Option<SocketAddr>,
) -> Registry {
    let mut registry = Registry::with_prefix("convoke");
    if let (Some(address), Some(hooks)) = (address, webhooks.hooks().cloned()) {
        hooks.register(&mut registry);
        let failed = cannot_serve("webhooks", address);
        tasks.spawn(async move { webhook::server::serve(address, hooks).await.map_err(failed) });
        spawn(tasks, webhooks.follow_secrets());
    }
    registry
}

/// Runs until a signal arrives, or until a part of the operator ends, which is a failure.
async fn run_until_stopped(mut tasks: Tasks) -> Result<ExitCode, Failure> {
    let mut terminate = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())
        .map_err(|error| {
        Failure::new(CLUSTER, format!("cannot listen for signals: {error}"))
    })?;
    tokio::select! {
        _ = terminate.recv() => tracing::info!("terminated"),
        _ = tokio::signal::ctrl_c() => tracing::info!("interrupted"),
        Some(ended) = tasks.join_next() => match ended {
            Ok(Ok(())) => return Err(Failure::new(CLUSTER, "a part of the operator ended")),
            Ok(Err(failure)) => return Err(failure),
            Err(error) => return Err(Failure::new(CLUSTER, format!("a part of the operator failed: {error}"))),
        },
    }
    Ok(ExitCode::SUCCESS)
}
