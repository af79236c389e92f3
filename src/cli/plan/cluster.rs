//! Compares a folder with the cluster: shows what the operator would decide if these files were the newest commit.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use clap::Args as ClapArgs;

use super::report::{Action, Entry, Held, Report, brings};
use super::{builds, inputs, print_errors};
use crate::api::git_sync::GitSyncSpec;
use crate::api::{GitSync, Mark, ObjectId, keys};
use crate::cli::connection::{Connection, ConnectionArgs, block_on};
use crate::cli::context::ContextArgs;
use crate::cli::templates::TemplateArgs;
use crate::cli::validate::{self, Loaded};
use crate::cli::{CLUSTER, Failure, USAGE, count};
use crate::cluster::client::call;
use crate::definition::difference::{Change, changes, metadata_change};
use crate::definition::ignore::Patterns;
use crate::definition::variables::Variables;
use crate::definition::{Catalog, Context, Definition, Limits, Loader};
use crate::git::open_local;
use crate::sync::plan::{Held as HeldDeletes, Others, Plan};
use crate::sync::variables;
use convoke_core::sync::commit::desired::{Desired, DesiredSet, desired_set};
use convoke_core::sync::preview::{LiveManifest, Preview, spec_after};

/// Options of `--against cluster`.
#[derive(Debug, ClapArgs)]
#[command(next_help_heading = "With --against cluster")]
pub struct ClusterArgs {
    #[command(flatten)]
    connection: ConnectionArgs,
    /// Name of the GitSync [default: the only one of the namespace]
    #[arg(long)]
    sync: Option<String>,
    /// Registry of builds that name none, as --internal-registry of the operator [default: that of the last image]
    #[arg(long, value_name = "HOST")]
    registry: Option<String>,
    /// Namespace of the operator: where its pipeline templates are [default: convoke-system]
    #[arg(long, value_name = "NAME")]
    operator_namespace: Option<String>,
    #[command(flatten)]
    templates: TemplateArgs,
}

/// The namespace of the operator, if no option says another.
const OPERATOR_NAMESPACE: &str = "convoke-system";

impl ClusterArgs {
    /// Refuses these options when they would have no effect.
    pub fn refuse(&self) -> Result<(), Failure> {
        let Self { connection, sync, registry, operator_namespace, templates } = self;
        let ConnectionArgs { namespace, context } = connection;
        let TemplateArgs { templates, operator_templates } = templates;
        let all = [
            ("--namespace", namespace.is_some()),
            ("--context", context.is_some()),
            ("--sync", sync.is_some()),
            ("--registry", registry.is_some()),
            ("--operator-namespace", operator_namespace.is_some()),
            ("--templates", templates.is_some()),
            ("--operator-templates", operator_templates.is_some()),
        ];
        match all.into_iter().find(|(_, given)| *given) {
            Some((name, _)) => Err(Failure::new(USAGE, format!("{name} needs --against cluster"))),
            None => Ok(()),
        }
    }
}

/// Everything that was read from the cluster.
struct Cluster {
    namespace: String,
    sync: GitSync,
    /// The other GitSyncs of the namespace, by name.
    others: BTreeMap<String, GitSync>,
    live: BTreeMap<ObjectId, LiveManifest>,
    /// The values of the GitSync's variables.
    variables: Option<Variables>,
    /// GitSyncs of other namespaces that owner marks of live objects name and that do not exist: namespace, name, UID.
    vanished: BTreeSet<(String, String, String)>,
}

/// Makes the plan. Returns it, and whether the folder has errors.
pub fn plan(
    path: &Path,
    context: &ContextArgs,
    args: &ClusterArgs,
) -> Result<(Report, bool), Failure> {
    // Wrong arguments are reported before any request is sent.
    validate::load(path, |path| context.resolve(path))?;
    let mut cluster = block_on(read(args))?;
    let values = cluster.variables.take();
    let loaded = validate::load(path, |path| {
        let namespace = cluster.namespace.clone();
        context.resolve_with(path, namespace, &cluster.sync.spec.ignore, values)
    })?;
    let broken = print_errors(&loaded);
    let mut report = decide(&loaded, &cluster);
    let options = builds::Options {
        connection: &args.connection,
        registry: args.registry.as_deref(),
        operator_namespace: args.operator_namespace.as_deref().unwrap_or(OPERATOR_NAMESPACE),
        templates: &args.templates,
    };
    let found = block_on(builds::against_cluster(&options, &loaded, &cluster.live))?;
    report.builds = found.builds;
    report.upgrade = found.upgrade;
    report.notes.extend(found.notes);
    report.notes.extend(block_on(inputs::notes(&args.connection, &loaded.catalog))?);
    Ok((report, broken))
}

async fn read(args: &ClusterArgs) -> Result<Cluster, Failure> {
    let connection = Connection::open(&args.connection).await?;
    let mut others = connection.git_syncs().await?;
    let sync = connection.choose(&mut others, args.sync.as_deref())?;
    let live = connection.live().await?;
    let mut vanished = BTreeSet::new();
    for mark in live.values().filter_map(mark) {
        let (namespace, name) = (mark.sync_namespace, mark.sync_name);
        if namespace == connection.namespace {
            continue;
        }
        // Convoke writes no marks for other namespaces. If the GitSync may not be read, it is assumed to exist.
        let api = kube::Api::<GitSync>::namespaced(connection.client.clone(), &namespace);
        let gone = match call(api.get(&name)).await {
            Ok(found) => found.metadata.uid.as_deref() != Some(mark.sync_uid.as_str()),
            Err(error) => error.is_not_found(),
        };
        if gone {
            vanished.insert((namespace, name, mark.sync_uid));
        }
    }
    let variables = variables::read(&connection.client, &connection.namespace, &sync.spec).await;
    let variables = variables.map_err(|error| {
        let failure = Failure::new(CLUSTER, error.to_string());
        match error.hint() {
            Some(hint) => failure.hint(hint),
            None => failure,
        }
    })?;
    Ok(Cluster { namespace: connection.namespace, sync, others, live, variables, vanished })
}

fn mark(live: &LiveManifest) -> Option<Mark> {
    live.annotation(keys::OWNER).and_then(Mark::parse)
}

/// The other GitSyncs of the namespace, as far as the work tree shows what they want. For a GitSync that follows the same
/// branch of the same repository it does. Nothing is known of the others.
struct Peers<'a> {
    cluster: &'a Cluster,
    known: BTreeMap<&'a str, (Catalog, DesiredSet)>,
    unknown: Vec<&'a str>,
}

impl<'a> Peers<'a> {
    fn new(cluster: &'a Cluster, root: &Path) -> Self {
        let reference = |spec: &GitSyncSpec| {
            spec.reference.clone().filter(|r| r.branch.as_deref() != Some("main"))
        };
        let spec = &cluster.sync.spec;
        let mut peers = Self { cluster, known: BTreeMap::new(), unknown: Vec::new() };
        for (name, other) in &cluster.others {
            if other.metadata.deletion_timestamp.is_some() {
                continue;
            }
            let same = other.spec.url == spec.url && reference(&other.spec) == reference(spec);
            let loaded = (same && !other.spec.suspend)
                .then(|| {
                    let below = root.join(&other.spec.path);
                    let context = |path: &str| context_of(path, &cluster.namespace, &other.spec);
                    validate::load(&below, context).ok()
                })
                .flatten();
            match loaded {
                Some(Loaded { catalog, .. }) => {
                    let desired = desired_set(&catalog);
                    peers.known.insert(name, (catalog, desired));
                }
                None => peers.unknown.push(name),
            }
        }
        peers
    }
}

/// The context that another GitSync reads its folder with. It is not known if variables come from ConfigMaps.
fn context_of(path: &str, namespace: &str, spec: &GitSyncSpec) -> Result<Context, Failure> {
    let unknown = |why: String| Failure::new(USAGE, why);
    let variables = match &spec.variables {
        Some(variables) if !variables.from.is_empty() => {
            return Err(unknown("its variables are not known".into()));
        }
        other => other.as_ref().map(|variables| Variables::new(variables.inline.clone())),
    };
    let ignore = Patterns::new(&spec.ignore).map_err(unknown)?;
    Ok(Context { namespace: Some(namespace.to_owned()), path: path.to_owned(), ignore, variables })
}

impl Others for Peers<'_> {
    fn exists(&self, namespace: &str, name: &str, uid: &str) -> bool {
        if namespace != self.cluster.namespace {
            let key = (namespace.to_owned(), name.to_owned(), uid.to_owned());
            return !self.cluster.vanished.contains(&key);
        }
        let known = self.cluster.others.get(name).map(|sync| &sync.metadata);
        let own = &self.cluster.sync.metadata;
        known
            .or((own.name.as_deref() == Some(name)).then_some(own))
            .is_some_and(|meta| meta.uid.as_deref() == Some(uid))
    }

    fn wanted_by(&self, id: &ObjectId) -> Option<String> {
        let wants = |(catalog, desired): &(Catalog, DesiredSet)| {
            desired.contains_key(id) || catalog.broken.contains_key(id)
        };
        let found = self.known.iter().find(|(_, other)| wants(other));
        found.map(|(name, _)| (*name).to_owned())
    }

    /// A GitSync gives an object away when its folder has no errors and does not hold the object.
    fn gives(&self, name: &str, id: &ObjectId) -> bool {
        self.known
            .get(name)
            .is_some_and(|(catalog, desired)| !catalog.has_errors() && !desired.contains_key(id))
    }
}

/// The newest commit of the work tree.
struct Head {
    /// Its id, if it holds the same definitions as the folder.
    commit: Option<String>,
    /// The file of each object that it defines.
    paths: BTreeMap<ObjectId, String>,
}

impl Head {
    fn new(loaded: &Loaded, desired: &DesiredSet) -> Self {
        let Loaded { root, below, catalog, .. } = loaded;
        let Ok(head) = open_local(root, "HEAD", below, crate::git::Limits::default()) else {
            return Self { commit: None, paths: BTreeMap::new() };
        };
        let there = Loader::new(Limits::default()).load(&head, &loaded.context);
        let wanted = |set: &DesiredSet| -> Vec<_> {
            set.iter().map(|(id, want)| (id.clone(), want.applied.clone())).collect()
        };
        let same =
            wanted(&desired_set(&there)) == wanted(desired) && there.problems == catalog.problems;
        let path = |(id, d): (&ObjectId, &Arc<Definition>)| (id.clone(), d.path.clone());
        Self {
            commit: same.then(|| head.commit().id.clone()),
            paths: there.definitions.iter().map(path).collect(),
        }
    }
}

fn decide(loaded: &Loaded, cluster: &Cluster) -> Report {
    let catalog = &loaded.catalog;
    let desired = desired_set(catalog);
    let peers = Peers::new(cluster, &loaded.root);
    let Head { commit, paths: mut last_paths } = Head::new(loaded, &desired);
    last_paths.retain(|id, _| catalog.has_errors() && !desired.contains_key(id));
    let plan = Preview {
        sync: &cluster.sync,
        commit: commit.as_deref(),
        catalog,
        desired: &desired,
        last_paths: &last_paths,
        live: &cluster.live,
        others: &peers,
    }
    .plan();
    let notes = notes(loaded, cluster, &peers, &plan);
    let committed = if commit.is_some() { Committed::Yes } else { Committed::No };
    let mut report = describe(&plan, &desired, cluster, committed);
    report.notes = notes;
    report
}

/// Whether a commit of the work tree holds exactly the definitions of the folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Committed {
    Yes,
    No,
}

/// A plan as a report.
fn describe(plan: &Plan, desired: &DesiredSet, cluster: &Cluster, committed: Committed) -> Report {
    let mut entries = writes(plan, desired, cluster);
    entries.extend(passive(plan, desired));
    // By kind and name. Deletes come last, in the order in which they happen.
    entries.sort_by_key(|(id, _)| *id);
    let mut report = Report::default();
    for (_, entry) in entries {
        report.add(entry);
    }
    for victim in &plan.prune {
        report.add(entry(desired, &victim.id, Action::Delete));
    }
    report.summary.unchanged = plan.unchanged;
    if let Some(held) = &plan.held {
        report.summary.held = held.victims.len();
        report.held = Some(describe_held(held, cluster, committed));
    }
    report
}

/// The entry of an object, with the place of its definition if it has one.
fn entry(desired: &DesiredSet, id: &ObjectId, action: Action) -> Entry {
    Entry::new(id, action, desired.get(id).map(|want| want.definition.as_ref()))
}

/// The objects that the operator would create or change.
fn writes<'a>(
    plan: &'a Plan,
    desired: &DesiredSet,
    cluster: &Cluster,
) -> Vec<(&'a ObjectId, Entry)> {
    let mut entries = Vec::new();
    for id in &plan.create {
        let secrets = desired.get(id).map(|want| brings(&want.definition)).unwrap_or_default();
        entries.push((id, entry(desired, id, Action::Create).changed(secrets)));
    }
    for update in &plan.update {
        let id = &update.id;
        let mut line = entry(desired, id, Action::Update);
        if let (Some(want), Some(live)) = (desired.get(id), cluster.live.get(id)) {
            line = line.changed(differences(want, live));
        }
        if update.adopted {
            line = line.noted("is taken over");
        } else if update.drifted {
            line = line.noted("was changed by hand, and is brought back");
        } else if cluster.live.get(id).is_some_and(|live| live.spec.is_none()) {
            line = line.noted("is not valid as it is, so what changes is not known");
        } else if line.changes.is_empty() {
            // The spec is as wanted, but not the commit in the annotations, or the way in which it was written.
            line = line.noted("what Convoke keeps about it is brought up to date");
        }
        entries.push((id, line));
    }
    entries
}

/// The objects that the operator would leave as they are, with the reason.
fn passive<'a>(plan: &'a Plan, desired: &DesiredSet) -> Vec<(&'a ObjectId, Entry)> {
    let noted = |id: &'a ObjectId, action: Action, note: String| {
        (id, entry(desired, id, action).noted(note))
    };
    let mut entries = Vec::new();
    entries.extend(plan.terminating.iter().map(|id| {
        noted(id, Action::Wait, "is being deleted by somebody; made anew afterwards".into())
    }));
    entries.extend(plan.ending.iter().map(|victim| {
        let note = "is not wanted any more and is being deleted; finalizers keep it";
        noted(&victim.id, Action::Wait, note.into())
    }));
    entries.extend(plan.protected.iter().map(|id| {
        let note =
            format!("is not wanted any more, and stays: {} is {}", keys::PRUNE, keys::DISABLED);
        noted(id, Action::Pause, note)
    }));
    entries.extend(plan.waiting.iter().map(|id| {
        let note = "waits: something of this commit is wrong, and failurePolicy is Atomic";
        noted(id, Action::Wait, note.into())
    }));
    entries.extend(plan.paused.iter().map(|id| {
        let note = format!("stays as it is: {} is {}", keys::RECONCILE, keys::DISABLED);
        noted(id, Action::Pause, note)
    }));
    entries.extend(plan.drifted.iter().map(|id| {
        let note = "was changed by hand, and stays so: spec.drift is Report";
        noted(id, Action::Drift, note.into())
    }));
    entries.extend(plan.conflicts.iter().map(|conflict| {
        let note = format!("exists and belongs to {}", conflict.owner);
        noted(&conflict.id, Action::Conflict, note)
    }));
    entries.extend(plan.quarantined.iter().map(|(id, file)| {
        let note = match file {
            Some(file) => format!("is kept at its last good definition: {file} is broken"),
            None => "is kept at its last good definition: it may come from a broken file".into(),
        };
        noted(id, Action::Quarantine, note)
    }));
    entries.extend(
        plan.given
            .iter()
            .map(|(id, to)| noted(id, Action::HandOver, format!("is left to GitSync {to}"))),
    );
    entries.extend(
        plan.orphans.iter().map(|id| {
            noted(id, Action::Orphan, "of a vanished GitSync of this name; stays".into())
        }),
    );
    entries
}

/// The held deletes, and how to release them.
fn describe_held(held: &HeldDeletes, cluster: &Cluster, committed: Committed) -> Held {
    let name = cluster.sync.metadata.name.as_deref().unwrap_or_default();
    let (digest, hint) = match committed {
        Committed::Yes => {
            let hint = format!(
                "to release exactly these once they wait: convoke approve {name} -n {} --digest {}",
                cluster.namespace, held.digest
            );
            (Some(held.digest.clone()), hint)
        }
        Committed::No => {
            let hint = "their digest depends on the commit, and no commit holds these files yet";
            (None, hint.to_owned())
        }
    };
    Held {
        digest,
        reason: held.reason.clone(),
        objects: held.victims.iter().map(|victim| victim.id.to_string()).collect(),
        hint,
    }
}

/// The changes of a live object that an apply would make.
fn differences(want: &Desired, live: &LiveManifest) -> Vec<Change> {
    let Definition { id, labels, annotations, .. } = want.definition.as_ref();
    let mut found = Vec::new();
    if let Some(spec) = &live.spec {
        found = changes(id.kind, spec, &spec_after(want, Some(spec)));
    }
    for (field, wanted) in [("labels", labels), ("annotations", annotations)] {
        // Keys that Git does not set stay as they are.
        let mut have = live.metadata(field);
        have.retain(|key, _| wanted.get(key).is_some());
        found.extend(metadata_change(field, &have, &wanted.to_map()));
    }
    found
}

/// Remarks about the GitSync and about what is not known here.
fn notes(loaded: &Loaded, cluster: &Cluster, peers: &Peers<'_>, plan: &Plan) -> Vec<String> {
    let mut notes = Vec::new();
    let Cluster { sync, namespace, .. } = cluster;
    let name = sync.metadata.name.as_deref().unwrap_or_default();
    let plain = |path: &str| path.trim_start_matches("./").trim_end_matches('/').to_owned();
    let (theirs, ours) = (plain(&sync.spec.path), plain(&loaded.below));
    if theirs != ours && !(theirs == "." && ours.is_empty()) {
        notes.push(format!(
            "GitSync {name} reads {}, and this folder is {} of its repository",
            sync.spec.path, loaded.below
        ));
    }
    if sync.spec.suspend {
        notes.push(format!("GitSync {name} is suspended: nothing happens until it is resumed"));
    }
    if sync.metadata.deletion_timestamp.is_some() {
        notes.push(format!("GitSync {name} is being deleted: nothing happens any more"));
    }
    if !sync.spec.prune.enabled {
        notes.push("spec.prune.enabled is false: nothing is deleted".into());
    }
    let contested = plan.conflicts.iter().any(|conflict| conflict.peer.is_some());
    if !peers.unknown.is_empty() && (!plan.prune.is_empty() || plan.held.is_some() || contested) {
        notes.push(format!(
            "what {} of {namespace} {} ({}) is not known here: before it deletes or complains, the operator asks, and hands over what is wanted there; deletes wait for one that is suspended",
            count(peers.unknown.len(), "other GitSync"),
            if peers.unknown.len() == 1 { "wants" } else { "want" },
            peers.unknown.join(", ")
        ));
    }
    notes
}
