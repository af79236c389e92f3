//! `convoke operator`: the syncer and the controllers in one process.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use clap::{ArgAction, Args as ClapArgs};
use prometheus_client::registry::Registry;
use tokio::task::JoinSet;

use super::{CLUSTER, Failure, USAGE};
use crate::api::Kind;
use crate::cluster::client::connect;
use crate::cluster::identity::is_dns_label;
use crate::cluster::live::{Managed, Stores};
use crate::cluster::reflector;
use crate::cluster::writes::Writes;
use crate::controllers::agent_build;
use crate::controllers::{self, ControllerSet};
use crate::http::admin;
use crate::net::{AddressRange, Dialler, Policy};
use crate::runtime::queue::Queue;
use crate::runtime::worker;
use crate::runtime::write_priority::WritePriority;
use crate::sync::abandoned;
use crate::sync::driver::{Driver, Settings};
use crate::sync::local::{LocalArg, LocalFolders};
use crate::sync::published::build_sources::BuildSources;
use crate::sync::variables;
use convoke_core::sync::apply::impersonation::Rules;
use convoke_core::sync::published::wanted_agents::WantedAgents;

/// Syncs that are worked on at once; of one namespace half as many. Most of their time they wait for the network, for minutes
/// behind a slow admission webhook. What costs memory, fetching and reading commits, has slots of its own.
const SYNCS: usize = 64;

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
    #[arg(long, value_name = "NAME", value_parser = account_name)]
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
    /// Address of the Git webhooks (not built yet)
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

fn account_name(text: &str) -> Result<String, String> {
    let valid = is_dns_label(text);
    if valid { Ok(text.to_owned()) } else { Err("it must be a DNS label".into()) }
}

pub fn run(args: Args) -> Result<ExitCode, Failure> {
    tracing_subscriber::fmt()
        .with_env_filter(
            tracing_subscriber::EnvFilter::try_from_default_env()
                .unwrap_or_else(|_| "info,kube_client=warn,kube_runtime=error".into()),
        )
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
    // Blocking fetches may still hang on a remote: do not wait for them.
    runtime.shutdown_background();
    result
}

async fn operate(args: Args, set: ControllerSet) -> Result<ExitCode, Failure> {
    if args.leader_elect {
        tracing::warn!("--leader-elect is not built yet: run one replica only");
    }
    if args.webhook_addr.is_some() {
        tracing::warn!("--webhook-addr is not built yet: repositories are polled");
    }
    let (client, api_servers) = connect().await.map_err(|error| {
        Failure::new(CLUSTER, format!("cannot connect to the cluster: {error}"))
            .hint("set KUBECONFIG")
    })?;
    // The folder of an earlier run is of no use, so a temporary one is the default. It goes when this ends.
    let temporary;
    let data_dir = if let Some(dir) = args.data_dir {
        dir
    } else {
        temporary = tempfile::Builder::new().prefix("convoke-").tempdir().map_err(|error| {
            Failure::new(CLUSTER, format!("cannot make a temporary folder: {error}"))
        })?;
        temporary.path().to_owned()
    };

    let mut tasks: JoinSet<Result<(), Failure>> = JoinSet::new();
    let stores = Stores::new();
    // It ends by itself, so it is none of the tasks.
    let _cleaning = tokio::spawn(abandoned::remove(data_dir.clone(), stores.git_syncs.clone()));
    let queue = Queue::new();
    let local = LocalFolders::new(args.local);
    let dialler = Dialler::new(Policy {
        insecure: args.allow_insecure_git,
        single_tenant: args.single_tenant,
        ranges: args.allow_addresses,
        api_servers,
    });
    let settings = Settings {
        dialler,
        rules: Rules {
            single_tenant: args.single_tenant,
            default_service_account: args.default_service_account,
            operator_namespace: args.operator_namespace.clone(),
        },
        local: local.clone(),
        data_dir,
        budgets: args.budgets.resolve(),
    };
    let builds = BuildSources::new();
    let wanted = WantedAgents::new();
    let write_priority = WritePriority::new();
    // The engine waits for its slots by itself: nothing that it has decided on queues behind anything.
    let writes = Writes::new();
    let shared = writes.client(client.clone());
    let engine = Driver::new(
        client.clone(),
        &writes,
        stores.clone(),
        settings,
        builds.clone(),
        wanted.clone(),
        write_priority.clone(),
        &queue,
    );
    let builds_too = set.has(Kind::AgentBuild);
    let about = controllers::Settings {
        set,
        defaults: args.defaults.resolve(),
        operator_namespace: args.operator_namespace.clone(),
        inputs_max_keys: usize::try_from(args.inputs_max_keys).unwrap_or(usize::MAX),
    };
    let operated =
        controllers::Shared { client: &shared, stores: &stores, write_priority: &write_priority };
    let watched = controllers::start(&mut tasks, operated, about, wanted);
    if builds_too {
        let settings = agent_build::Settings {
            internal_registry: args.internal_registry,
            operator_namespace: args.operator_namespace,
        };
        agent_build::start(&mut tasks, operated, settings, builds);
    }
    let changed = engine.variables.clone();
    let (syncs, sink) = (stores.git_syncs.clone(), queue.clone());
    let follow = variables::follow(client.clone(), syncs, changed, sink);
    tasks.spawn(async move {
        follow.await;
        Ok(())
    });
    let changes = queue.clone();
    tasks.spawn(async move {
        local.watch(changes).await.map_err(|error| {
            Failure::new(USAGE, format!("cannot watch the folder of --local: {error}"))
        })
    });
    tasks.spawn(async move {
        worker::run(engine, queue, SYNCS).await;
        Ok(())
    });

    macro_rules! watch {
        ($store:expr) => {{
            let (api, store) = (kube::Api::all(client.clone()), $store.clone());
            tasks.spawn(async move {
                reflector::run::<Managed<_>>(api, store, None).await;
                Ok(())
            });
        }};
    }
    watch!(stores.git_syncs);
    watch!(stores.model_apis);
    watch!(stores.mcp_servers);
    watch!(stores.agent_builds);
    watch!(stores.agents);

    let waiting = stores.clone();
    let readiness: admin::Readiness = Arc::new(move || {
        let watched = watched.iter().flat_map(controllers::Watched::pending);
        waiting
            .pending()
            .into_iter()
            .chain(watched)
            .map(|kind| format!("no complete list of {kind} yet"))
            .collect()
    });
    let bind = |what: &'static str, address: SocketAddr| {
        move |error: std::io::Error| {
            Failure::new(USAGE, format!("cannot serve {what} on {address}: {error}"))
        }
    };
    tasks.spawn(async move {
        admin::serve_health(args.health_addr, readiness)
            .await
            .map_err(bind("health", args.health_addr))
    });
    let registry = Arc::new(Registry::with_prefix("convoke"));
    tasks.spawn(async move {
        admin::serve_metrics(args.metrics_addr, registry)
            .await
            .map_err(bind("metrics", args.metrics_addr))
    });

    tracing::info!(version = env!("CARGO_PKG_VERSION"), "operator started");
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
