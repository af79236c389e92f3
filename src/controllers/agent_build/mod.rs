//! AgentBuilds: an AgentBuild makes an image on Tekton whenever a commit changes what goes into it.
//!
//! ```text
//! resolve: source (trees of the newest commit) ─┐    from the engine, or from polls of another repository
//!          template and steps (ConfigMaps) ─────┴─► build key ─┐
//! live status, live PipelineRuns ──────────────────────────────┴─► desired ─► apply ─► status
//! ```
//!
//! The only state is in custom resources. The name of a run follows from build, key and attempt, so no attempt runs twice. The status
//! remembers how a key ended when its run is gone, which images earlier keys have, and since when a build waits for its turn. What a build of
//! this name has made before is found in the registry, by a proof that only the operator can write (`proof`).
//!
//! Its reconcile is not that of the kinds that run pods; [`super::workload::Workload`] says why.

mod after_build;
mod again;
pub mod appended;
mod apply;
pub mod base_images;
pub mod base_pace;
pub mod bases;
pub mod builder;
mod create;
mod credentials;
pub mod decide;
mod desired;
mod diagnose;
mod elsewhere;
pub mod failure;
pub mod fixed_tag;
pub mod history;
pub mod internal;
pub mod key;
mod layer_cache;
pub mod lingering;
mod log_tail;
mod looks;
pub mod lookup;
pub mod needs;
mod orphans;
pub mod own_image;
pub mod owners;
pub mod parameters;
pub mod pending;
pub mod pipeline;
pub mod pipeline_run;
pub mod place;
pub mod pod_policy;
pub mod problem;
pub mod profile;
pub mod proof;
mod questions;
mod reconcile;
mod registry_auth;
mod renewed;
pub mod repository;
mod resolve;
pub mod resolve_template;
mod reuse;
mod rollouts;
pub mod run;
mod runs;
pub mod signing;
mod stage;
pub mod status;
mod summary;
pub mod tekton;
pub mod template;
pub mod template_error;
pub mod turns;

use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use tokio::task::JoinSet;

use self::bases::Bases;
use self::fixed_tag::FixedTags;
use self::looks::Looks;
use self::lookup::Lookup;
use self::own_image::OwnImage;
use self::owners::Owners;
use self::profile::BuildProfile;
use self::questions::Questions;
use self::repository::Polls;
use self::reuse::Proofs;
use self::rollouts::Rollouts;
use self::signing::Signing;
use self::tekton::Tekton;
pub use self::turns::Limits;
use self::turns::Turns;
use super::context::Shared;
use super::debounce::Debounce;
use super::events::Teller;
use super::wake::on_own_changes;
use crate::api::{AgentBuild, GitSync};
use crate::cluster::live::Managed;
use crate::cluster::store::Store;
use crate::net::Dialler;
use crate::runtime::queue::Queue;
use crate::runtime::worker;
use crate::sync::newest::Shares;
use crate::sync::published::build_sources::BuildSources;
use convoke_core::cluster::account::OperatorAccount;

/// The builds that are reconciled at once; of one namespace half as many.
const CONCURRENT_RECONCILES: usize = 8;
/// The longest wait at the start until it is known whether Tekton is there. Without it every status would flicker.
const MAX_TEKTON_WAIT: Duration = Duration::from_secs(10);

/// What the operator's options say about builds.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The registry of builds that name none: host, with a port when needed.
    pub internal_registry: Option<String>,
    /// The namespace with the shipped templates and steps.
    pub operator_namespace: String,
    /// The operator's image, if an option says it.
    pub operator_image: Option<String>,
    /// How steps that build run.
    pub build_profile: BuildProfile,
    /// The namespace of builds that Pod Security restricted does not admit, if an option says it.
    pub build_namespace: Option<String>,
    /// How many builds run at once.
    pub limits: Limits,
    /// The operator's own account, for commands that give it rights.
    pub operator: OperatorAccount,
    /// The dialler with the address policy: repositories are polled, and a GitHub App asks for tokens.
    pub dialler: Dialler,
    /// What polls of other repositories share with those of GitSyncs.
    pub repositories: Shares,
}

/// Starts the controller. Everything it needs runs in `tasks`, none of which ends by itself. The caller watches AgentBuilds into
/// the stores, and the sync engine fills `sources`.
pub fn start<E: Send + 'static>(
    tasks: &mut JoinSet<Result<(), E>>,
    shared: Shared<'_>,
    settings: Settings,
    sources: Arc<BuildSources>,
) {
    let Shared { client, stores, write_priority } = shared;
    let Settings { internal_registry, operator_namespace, operator_image, limits, .. } = settings;
    let Settings { operator, dialler, repositories, build_namespace, build_profile, .. } = settings;
    let queue = Queue::behind_syncs(write_priority);
    let builds = stores.agent_builds.clone();
    let owners = Arc::new(Owners::new(builds.clone(), build_namespace));
    let turns = Turns::new(limits, owners.clone());
    let tekton = Arc::new(Tekton::default());
    let proofs = Proofs::new(client.clone(), operator_namespace.clone());
    let signing = Signing::new(operator_namespace.clone());
    let endpoints = internal_registry.as_deref().map(internal::endpoints).unwrap_or_default();
    let to_registries = dialler.trusting(endpoints);
    sources.notify(queue.clone());
    on_own_changes(&builds, &queue);
    let (polls, due) = Polls::new(repository::Parts {
        client: client.clone(),
        operator: operator.clone(),
        dialler: dialler.clone(),
        builds: builds.clone(),
        wakes: queue.clone(),
        shares: repositories,
    });
    on_own_changes(&builds, &due);
    let poller = polls.clone();
    tasks.spawn(async move {
        worker::run(poller, due, repository::CONCURRENT_POLLS).await;
        Ok(())
    });
    let controller = Arc::new(Controller {
        client: client.clone(),
        events: Teller::new(client.clone()),
        builds: builds.clone(),
        git_syncs: stores.git_syncs.clone(),
        sources,
        polls,
        tekton: tekton.clone(),
        turns: turns.clone(),
        owners: owners.clone(),
        lookup: Lookup::new(
            client.clone(),
            operator_namespace,
            OwnImage::new(operator_image),
            build_profile,
        ),
        internal_registry,
        operator,
        dialler,
        to_registries,
        proofs: proofs.clone(),
        signing,
        asked: Questions::default(),
        bases: Bases::default(),
        tags: FixedTags::default(),
        looks: Looks::default(),
        lags: Debounce::default(),
        rollouts: Rollouts::new(&stores.agents, &stores.mcp_servers, &queue),
    });
    {
        let proofs = proofs.clone();
        tasks.spawn(async move {
            proofs.obtain_key().await;
            std::future::pending().await
        });
    }
    {
        let (client, tekton, queue, builds) =
            (client.clone(), tekton.clone(), queue.clone(), builds.clone());
        let turns = turns.clone();
        tasks.spawn(async move {
            let wake = queue.clone();
            let all = move || builds.all().into_iter().for_each(|(key, _)| wake.add(key));
            tekton.follow(client, queue, (turns, owners), all).await;
            Ok(())
        });
    }
    tasks.spawn(async move {
        builds.wait_ready().await;
        // Who waited before this process began, waits on.
        for (key, build) in builds.all() {
            let status = build.value.object().and_then(|build| build.status.clone());
            turns.note(&key, status.as_ref().and_then(reconcile::queued));
        }
        let _ = tokio::time::timeout(MAX_TEKTON_WAIT, tekton.wait_known()).await;
        proofs.key_settled().await;
        let now = tokio::time::Instant::now();
        builds.all().iter().for_each(|(key, _)| turns.doubt(key, now));
        worker::run(controller, queue, CONCURRENT_RECONCILES).await;
        Ok(())
    });
}

/// The reconciler of AgentBuilds.
struct Controller {
    client: Client,
    events: Arc<Teller>,
    builds: Arc<Store<Managed<AgentBuild>>>,
    git_syncs: Arc<Store<Managed<GitSync>>>,
    sources: Arc<BuildSources>,
    polls: Arc<Polls>,
    tekton: Arc<Tekton>,
    turns: Arc<Turns>,
    owners: Arc<Owners>,
    lookup: Lookup,
    internal_registry: Option<String>,
    operator: OperatorAccount,
    dialler: Dialler,
    /// The dialler for registries. It also reaches the operator's own one.
    to_registries: Dialler,
    proofs: Arc<Proofs>,
    signing: Signing,
    /// What registries were asked.
    asked: Questions,
    /// What became of tags that all builds of an AgentBuild push.
    tags: FixedTags,
    /// What the tags of base images name.
    bases: Bases,
    /// When it is looked whether runs are left elsewhere.
    looks: Looks,
    /// Builds whose live object is not the one of their newest commit, and since when.
    lags: Debounce,
    /// What runs the images.
    rollouts: Rollouts,
}
