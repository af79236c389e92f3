//! A repository with the folders of a hundred agents, and the operator as it runs.

use std::collections::BTreeMap;
use std::time::Instant;

use futures::future::join_all;
use kube::api::{ListParams, Patch, PatchParams};

use super::registry::{Registry, Settings as Kind};
use super::support::team::{AGENT, ARGS, Team};
use super::support::{AuditRecord, Cluster, eventually};
use super::*;
use crate::webhook::git_faults::{GitServer, Repo, Step};

const COUNT: usize = 100;
const PATIENCE: Duration = Duration::from_secs(90);
/// Seconds for which a template that was read counts.
const LIFETIME: u64 = 20;
/// How long nothing must happen until a commit counts as handled.
const QUIET: Duration = Duration::from_secs(3);
/// How long the operator does not ask a registry that was too slow: a minute.
const SILENCE: Duration = Duration::from_secs(61);

fn name(number: usize) -> String {
    format!("a{number:02}")
}

/// The definition of one AgentBuild.
fn definition(number: usize) -> String {
    let name = name(number);
    let spec = json!({
        "source": {"gitSync": {}, "subfolder": format!("agents/{name}")},
        "output": {"image": format!("${{NS}}/{name}"), "insecure": true},
    });
    json!({"apiVersion": "convoke.dev/v1alpha1", "kind": "AgentBuild", "metadata": {"name": name}, "spec": spec}).to_string()
}

/// The PipelineRuns of the namespace, by the AgentBuild and their own name.
async fn runs(team: &Team<'_>) -> BTreeMap<String, DynamicObject> {
    let api = runs_api(team);
    let all = api.list(&ListParams::default()).await.expect("a list of runs").items;
    all.into_iter().map(|run| (run.name_any(), run)).collect()
}

fn runs_api(team: &Team<'_>) -> Api<DynamicObject> {
    let kind = GroupVersionKind::gvk("tekton.dev", "v1", "PipelineRun");
    let resource = ApiResource::from_gvk_with_plural(&kind, "pipelineruns");
    Api::namespaced_with(team.client.clone(), &team.namespace, &resource)
}

/// What Tekton says at the end of a run, whose image has this digest.
async fn end(team: &Team<'_>, run: &DynamicObject, digit: char) {
    let image = &run.annotations()["convoke.dev/image"];
    let digest = format!("sha256:{}", digit.to_string().repeat(64));
    let patch = json!({"status": {
        "startTime": jiff::Timestamp::now().to_string(),
        "results": [{"name": "IMAGE_URL", "value": format!("{image}:t")}, {"name": "IMAGE_DIGEST", "value": digest}],
        "conditions": [{"type": "Succeeded", "status": "True", "reason": "Succeeded", "message": "Tasks Completed: 1"}],
    }});
    let params = PatchParams::default();
    let ended = runs_api(team).patch_status(&run.name_any(), &params, &Patch::Merge(&patch)).await;
    ended.expect("the run's end");
}

/// The AgentBuilds by name.
async fn builds(team: &Team<'_>) -> BTreeMap<String, AgentBuild> {
    let api: Api<AgentBuild> = Api::namespaced(team.client.clone(), &team.namespace);
    let all = api.list(&ListParams::default()).await.expect("AgentBuilds").items;
    all.into_iter().map(|build| (build.name_any(), build)).collect()
}

/// Waits until each AgentBuild has an image of these commits.
async fn built(team: &Team<'_>, commit: impl Fn(&str) -> String) -> BTreeMap<String, AgentBuild> {
    eventually(PATIENCE, "all are built", || async {
        let all = builds(team).await;
        let waits = |(name, build): (&String, &AgentBuild)| {
            let status = build.status.clone().unwrap_or_default();
            let is = status.phase == Some(BuildPhase::Succeeded)
                && status.last_built_commit == Some(commit(name));
            (!is).then(|| format!("{name}: {:?}", status.message))
        };
        let waiting: Vec<_> = all.iter().filter_map(waits).collect();
        if waiting.is_empty() && all.len() == COUNT { Ok(all) } else { Err(waiting) }
    })
    .await
}

/// How often each of them is there.
fn counted<K: Ord>(all: impl Iterator<Item = K>) -> BTreeMap<K, usize> {
    let mut counts = BTreeMap::new();
    for one in all {
        *counts.entry(one).or_default() += 1;
    }
    counts
}

/// Each ConfigMap is read once, and once more when what was read is old. `began` is when the first of these requests came.
fn templates_are_read_once(requests: &[AuditRecord], began: Instant) {
    let is = |one: &&AuditRecord| one.resource == "configmaps" && one.verb == "get";
    let reads = counted(requests.iter().filter(is).map(|one| (&one.namespace, &one.name)));
    let most = 1 + usize::try_from(began.elapsed().as_secs() / LIFETIME).expect("seconds");
    println!("{} requests, reads of ConfigMaps: {reads:?}", requests.len());
    assert!(reads.values().all(|count| *count <= most), "{most}: {reads:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn b1_b2_a_commit_in_one_of_a_hundred_folders_builds_one_image_with_one_fetch() {
    let Some(registry) = Registry::start(&Kind::default()) else { return };
    let cluster = Cluster::exclusive().await;
    install_templates(&cluster);
    install_tekton(&cluster);
    let internal = format!("--internal-registry={}", registry.host());
    let limits = ["--max-builds=100", "--max-builds-per-namespace=100", &internal];
    let operator = cluster.operator(&[ARGS, &limits[..]].concat()).await;
    operator.ready(PATIENCE).await;
    let root = tempfile::tempdir().expect("a folder");
    let repo = Repo::init(root.path(), "all.git");
    let first = (0..COUNT)
        .fold(repo.change("main"), |change, number| {
            let folder = format!("agents/{}", name(number));
            change
                .file(&format!("team/{}.yaml", name(number)), definition(number))
                .file(&format!("{folder}/Dockerfile"), "FROM scratch\nCOPY note /note\n")
                .file(&format!("{folder}/note"), number.to_string())
        })
        .commit("all");
    let server = GitServer::start(root.path()).await;
    let team = Team::new(&cluster, "hundred", &[]).await;
    let variables = json!({"inline": {"NS": team.namespace}});
    let spec = json!({"url": server.url("all.git"), "path": "team", "variables": variables});
    let (mark, began) = (cluster.audit_mark(), Instant::now());
    team.create_sync(spec).await;
    let all = eventually(PATIENCE, "a run of each", || async {
        let all = runs(&team).await;
        if all.len() >= COUNT { Ok(all) } else { Err(all.len()) }
    })
    .await;
    assert_eq!(all.len(), COUNT);
    println!("{COUNT} runs after {} ms", began.elapsed().as_millis());
    templates_are_read_once(&cluster.requests_by(AGENT, mark), began);
    join_all(all.values().map(|run| end(&team, run, 'a'))).await;
    let before = built(&team, |_| first.clone()).await;
    let count = |step: Step| server.steps().iter().filter(|seen| **seen == step).count();
    assert_eq!(count(Step::Fetch), 1, "{:?}", server.steps());
    println!("{COUNT} builds: {} ms", began.elapsed().as_millis());

    // On a busy machine the registry may have been too slow for a hundred proofs at once. Then it is not asked about the next commit.
    if operator.log().contains("nothing is asked there for a minute") {
        tokio::time::sleep(SILENCE).await;
    }
    server.forget();
    let asked = registry.requests().len();
    let (mark, began) = (cluster.audit_mark(), Instant::now());
    let changed = name(COUNT / 2);
    let second =
        repo.change("main").file(&format!("agents/{changed}/note"), "another").commit("one folder");
    team.request().await;
    let run = eventually(PATIENCE, "another run", || async {
        let new = runs(&team).await.into_iter().find(|(name, _)| !all.contains_key(name));
        new.ok_or("none yet")
    })
    .await
    .1;
    println!("a commit in one folder: {} ms until its run", began.elapsed().as_millis());
    end(&team, &run, 'b').await;
    let commit = |name: &str| if name == changed { &second } else { &first }.clone();
    built(&team, commit).await;
    let requests = || cluster.requests_by(AGENT, mark);
    let mut seen = requests().len();
    // All hundred were woken. What they do is to be seen, too.
    loop {
        tokio::time::sleep(QUIET).await;
        let now = requests().len();
        if std::mem::replace(&mut seen, now) == now {
            break;
        }
    }

    // One run, of that folder, and one fetch.
    assert_eq!(run.labels()["convoke.dev/name"], changed);
    assert_eq!(runs(&team).await.len(), COUNT + 1);
    assert_eq!((count(Step::LsRefs), count(Step::Fetch)), (1, 1), "{:?}", server.steps());
    // No other AgentBuild was touched.
    let after = builds(&team).await;
    let is_touched = |name: &&String| {
        after[*name].metadata.resource_version != before[*name].metadata.resource_version
    };
    assert_eq!(after.keys().filter(is_touched).collect::<Vec<_>>(), [&changed]);
    // What the API server was asked does not grow with the number of builds.
    let requests = requests();
    let of = |resource: &'static str, verbs: &'static [&str]| {
        let is = move |one: &&AuditRecord| {
            one.resource == resource && verbs.contains(&one.verb.as_str())
        };
        requests.iter().filter(is)
    };
    assert_eq!(of("pipelineruns", &["list"]).count(), 0);
    assert_eq!(of("pipelineruns", &["patch", "create"]).count(), 1);
    assert_eq!(of("agentbuilds", &["get", "list"]).count(), 0);
    let statuses = counted(of("agentbuilds", &["patch"]).map(|one| (&one.name, &*one.subresource)));
    println!("{statuses:?}");
    assert!(
        statuses.keys().all(|(name, kind)| **name == changed && *kind == "status"),
        "{statuses:?}"
    );
    assert!(statuses.values().sum::<usize>() <= 4, "{statuses:?}");
    templates_are_read_once(&requests, began);
    let others =
        requests.iter().map(|one| format!("{} {}/{}", one.verb, one.resource, one.subresource));
    let others =
        counted(others.filter(|one| !one.ends_with("configmaps/") && !one.starts_with("watch")));
    println!("{others:?}");
    assert!(others.values().sum::<usize>() < COUNT / 4, "{others:?}");
    // So does the registry: it is asked about that image only.
    let questions = registry.requests().split_off(asked);
    let own = format!("/{}/{changed}/", team.namespace);
    println!("{} requests to the registry", questions.len());
    assert!(!questions.is_empty());
    assert!(
        questions.iter().all(|one| one.contains(&own) || one.ends_with(" /v2/")),
        "{questions:?}"
    );
}
