//! P8: agents are pushed; how long until each of them has its Deployment, Service and ConfigMap?

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use convoke::api::keys;
use futures::StreamExt;
use kube::Client;
use kube::api::{Api, DynamicObject};
use kube::core::{ApiResource, GroupVersionKind};
use kube::runtime::watcher::Event;
use kube::runtime::{WatchStreamExt, watcher};
use serde_json::Value;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::limit::{Call, WORKERS};
use crate::managed_fields::applied_by;
use crate::options::{Controllers, Options};
use crate::report::{Goal, Report};
use crate::repository::Fleet;
use crate::stage::{Outcome, Running, Stage, applied, millis};
use crate::support::{AuditMark, AuditRecord};
use crate::whole::stages;

/// How often the limit is measured; the best counts.
const TRIES: usize = 2;
/// Convoke's field manager of children.
const MANAGER: &str = "convoke";
/// Children of other kinds of ours are not counted.
const OF_AGENTS: &str = "convoke.dev/kind=agent";

/// A kind of child.
struct ChildKind {
    group: &'static str,
    kind: &'static str,
    plural: &'static str,
}

/// In the order in which Convoke writes them.
const KINDS: [ChildKind; 3] = [
    ChildKind { group: "", kind: "ConfigMap", plural: "configmaps" },
    ChildKind { group: "", kind: "Service", plural: "services" },
    ChildKind { group: "apps", kind: "Deployment", plural: "deployments" },
];

impl ChildKind {
    fn version(&self) -> &'static str {
        if self.group.is_empty() { "v1" } else { "apps/v1" }
    }

    /// The path of all of them in a namespace.
    fn collection(&self, namespace: &str) -> String {
        let root = if self.group.is_empty() { "api" } else { "apis" };
        format!("/{root}/{}/namespaces/{namespace}/{}", self.version(), self.plural)
    }
}

/// One run on a control plane of its own. The limit comes last: it writes what the operator made.
pub async fn scenario(
    options: &Options,
    size: usize,
    report: &mut Report,
    step: &dyn Fn(&str),
) -> Outcome<()> {
    let stage = Stage::start(options, Fleet::new(size, options), Controllers::All).await?;
    step("the operator");
    let mut run = stage.begin().await?;
    let born = Births::watch(&run.stage.client, &run.stage.namespace);
    let mark = run.stage.cluster.audit_mark();
    let fleet = run.stage.fleet;
    let files: Vec<_> = (0..size).map(|i| (fleet.path(i), fleet.document(i, 1))).collect();
    let commit = run.stage.commit("all agents", &files, &[]);
    let (began, _) = run.wake().await?;
    let all = born.wait(size, &run).await?;
    let (_, sync) = run.wait(|sync| applied(sync) == Some(commit.as_str())).await?;
    run.quiet().await?;
    count(&run, mark, report);
    step("the limit");
    run.operator.kill();
    let limit = limit(&run.stage).await?;
    let key = run.stage.key("P8", "new agents with all their children");
    let row = report.add(key, "ms", millis(all - began), Some(limit));
    row.goal = Goal::Ratio(1.33);
    stages(row, &sync);
    Ok(())
}

/// Adds what the operator has written since then, by agent. Events are apart.
fn count(run: &Running<'_>, mark: AuditMark, report: &mut Report) {
    let writes = run.stage.cluster.writes_by(run.stage.user(), mark);
    let of = |which: &dyn Fn(&AuditRecord) -> bool| {
        // Some ten thousand.
        #[allow(clippy::cast_precision_loss)]
        let share = writes.iter().filter(|w| which(w)).count() as f64 / run.stage.fleet.size as f64;
        share
    };
    let is_child = |write: &AuditRecord| KINDS.iter().any(|kind| kind.plural == write.resource);
    let is_status =
        |write: &AuditRecord| write.resource == "agents" && write.subresource == "status";
    let rows: [(_, f64, _); 3] = [
        ("child writes an agent", of(&is_child), Goal::Value(4.0)),
        ("status writes an agent", of(&is_status), Goal::Value(2.0)),
        ("events an agent", of(&|write| write.resource == "events"), Goal::Nothing),
    ];
    for (what, value, goal) in rows {
        report.add(run.stage.key("P8", what), "", value, None).goal = goal;
    }
    let mut kinds = BTreeMap::<_, usize>::new();
    for AuditRecord { verb, resource, subresource, code, .. } in &writes {
        let refused = if *code < 300 { String::new() } else { format!(" refused ({code})") };
        let what = format!("{verb} {resource} {subresource}");
        *kinds.entry(format!("{}{refused}", what.trim_end())).or_default() += 1;
    }
    report.note(format!("P8, {} agents: all writes: {kinds:?}", run.stage.fleet.size));
}

/// The limit: the children that the operator made are read, deleted, and applied again, with the same owners. Nobody
/// else but the controller-manager is there, as before. Milliseconds.
async fn limit(stage: &Stage<'_>) -> Outcome<f64> {
    let mut best = f64::MAX;
    let made = children(stage).await?;
    if made.len() != KINDS.len() * stage.fleet.size {
        return Err(format!("{} agents have {} children", stage.fleet.size, made.len()));
    }
    for _ in 0..TRIES {
        let delete = made.iter().map(|((kind, name), _)| {
            Call::delete_from(&KINDS[*kind].collection(&stage.namespace), name)
        });
        stage.limit.run(delete.collect(), WORKERS).await?;
        stage.api.quiet(None).await?;
        let mut apply: Vec<_> = made.iter().collect();
        // Agent after agent, as the operator does it.
        apply.sort_by_key(|((kind, _), object)| (owner(object).to_owned(), *kind));
        let apply = apply.into_iter().map(|((kind, _), object)| {
            let collection = KINDS[*kind].collection(&stage.namespace);
            Call::apply_to(&collection, MANAGER, object.clone(), true)
        });
        best = best.min(millis(stage.limit.run(apply.collect(), WORKERS).await?));
        stage.api.quiet(None).await?;
        // Compared on the server: the limit writes what Convoke writes.
        let again = children(stage).await?;
        if let Some((id, object)) = made.iter().find(|(id, object)| again.get(*id) != Some(*object))
        {
            let theirs = again.get(id);
            return Err(format!(
                "the limit wrote something else than Convoke:\n{theirs:?}\n{object}"
            ));
        }
    }
    Ok(best)
}

/// All children of agents as Convoke sent them, by the place in [`KINDS`] and the name.
async fn children(stage: &Stage<'_>) -> Outcome<BTreeMap<(usize, String), Value>> {
    let mut found = BTreeMap::new();
    for (place, kind) in KINDS.iter().enumerate() {
        let path = format!(
            "{}?labelSelector={}",
            kind.collection(&stage.namespace),
            OF_AGENTS.replace('=', "%3D")
        );
        let request = http::Request::get(&path).body(Vec::new()).map_err(|e| e.to_string())?;
        let mut list: Value =
            stage.client.request(request).await.map_err(|e| format!("{path}: {e}"))?;
        for mut object in list["items"].as_array_mut().map(std::mem::take).unwrap_or_default() {
            // The items of a list do not say it.
            object["apiVersion"] = kind.version().into();
            object["kind"] = kind.kind.into();
            let sent = applied_by(MANAGER, &object)
                .ok_or_else(|| format!("{path}: not applied by {MANAGER}: {object}"))?;
            let name = sent["metadata"]["name"].as_str().unwrap_or_default().to_owned();
            found.insert((place, name), sent);
        }
    }
    Ok(found)
}

/// The agent whose child it is.
fn owner(child: &Value) -> &str {
    child["metadata"]["labels"][keys::OWNER_NAME].as_str().unwrap_or_default()
}

/// Which agents have which children, as watches show it. They run beside the limit, too.
struct Births {
    complete: watch::Receiver<(Instant, usize)>,
    _watches: JoinSet<()>,
}

impl Births {
    /// Looks on from now on.
    fn watch(client: &Client, namespace: &str) -> Self {
        let (tell, complete) = watch::channel((Instant::now(), 0));
        // Places in `KINDS`, as bits, by agent; and how many have all.
        let seen = Arc::new(Mutex::new((HashMap::<String, u8>::new(), 0)));
        let (tell, mut watches) = (Arc::new(tell), JoinSet::new());
        for (place, kind) in KINDS.iter().enumerate() {
            let gvk = GroupVersionKind::gvk(kind.group, "v1", kind.kind);
            let resource = ApiResource::from_gvk_with_plural(&gvk, kind.plural);
            let api = Api::<DynamicObject>::namespaced_with(client.clone(), namespace, &resource);
            let (seen, tell) = (seen.clone(), tell.clone());
            watches.spawn(async move {
                let config = watcher::Config::default().labels(OF_AGENTS);
                let mut events = std::pin::pin!(watcher(api, config).default_backoff());
                while let Some(event) = events.next().await {
                    let Ok(Event::Apply(child) | Event::InitApply(child)) = event else { continue };
                    let labels = child.metadata.labels.unwrap_or_default();
                    let Some(agent) = labels.get(keys::OWNER_NAME) else { continue };
                    let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
                    let (agents, complete) = &mut *seen;
                    let kinds = agents.entry(agent.clone()).or_default();
                    let before = kinds.count_ones();
                    *kinds |= 1 << place;
                    if before == 2 && kinds.count_ones() == 3 {
                        *complete += 1;
                        tell.send_replace((Instant::now(), *complete));
                    }
                }
            });
        }
        Self { complete, _watches: watches }
    }

    /// Waits until so many agents have all their children; says when that was.
    async fn wait(&self, agents: usize, run: &Running<'_>) -> Outcome<Instant> {
        let patience = Duration::from_millis(300_000 + 1000 * agents as u64);
        let mut complete = self.complete.clone();
        let all = tokio::time::timeout(patience, complete.wait_for(|(_, n)| *n >= agents)).await;
        match all {
            Ok(Ok(found)) => return Ok(found.0),
            Ok(Err(_)) => return Err("the watches of children ended".into()),
            Err(_) => run.operator.check()?,
        }
        let (_, complete) = *self.complete.borrow();
        Err(format!("{complete} of {agents} agents have all their children after {patience:?}"))
    }
}
