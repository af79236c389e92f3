//! What people do to an AgentBuild: `convoke rebuild build/NAME`, `convoke cancel build/NAME`, and the logs of its newest run.

use std::process::ExitCode;

use clap::Args as ClapArgs;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::Timestamp;
use kube::Api;
use kube::api::{
    ApiResource, DynamicObject, GroupVersionKind, ListParams, LogParams, Patch, PatchParams,
};
use serde_json::json;

use super::connection::{Connection, ConnectionArgs, block_on};
use super::logs::{self, Lines};
use super::pods::{MAX_PODS, controller, refused};
use super::terminal::Screen;
use super::{CLUSTER, FOUND, Failure, USAGE, print};
use crate::api::agent_build::{AgentBuildStatus, BuildPhase};
use crate::api::{AgentBuild, GROUP, keys};
use crate::cluster::client::{CallError, call};
use crate::controllers::agent_build::run::Run;
use crate::controllers::reason::Reason;
use convoke_core::text::{is_dns_label, printable, quote};

/// Field manager of the annotations.
const MANAGER: &str = "convoke-cli";
/// Words that name the kind.
const KINDS: [&str; 4] = ["build", "builds", "agentbuild", "agentbuilds"];
/// What Tekton puts before the name of a step to name its container.
const STEP_PREFIX: &str = "step-";

/// Build once more, or stop a build.
#[derive(Debug, ClapArgs)]
pub struct Args {
    /// The AgentBuild: build/NAME
    object: String,
    #[command(flatten)]
    connection: ConnectionArgs,
}

/// The name in `build/NAME`; `None` when this is another kind.
pub(super) fn name_of(text: &str) -> Option<Result<&str, Failure>> {
    let (kind, name) = text.split_once('/')?;
    KINDS.contains(&kind.to_ascii_lowercase().as_str()).then(|| {
        let wrong = || Failure::new(USAGE, format!("{}: this is no name", quote(text)));
        if is_dns_label(name) { Ok(name) } else { Err(wrong()) }
    })
}

/// The same where nothing else has a meaning. Without a kind it is a name.
fn parse(text: &str) -> Result<&str, Failure> {
    match name_of(text) {
        Some(name) => name,
        None if is_dns_label(text) => Ok(text),
        None => Err(Failure::new(USAGE, format!("{}: this is no AgentBuild", quote(text)))
            .hint("name it: build/NAME")),
    }
}

fn api_of(connection: &Connection) -> Api<AgentBuild> {
    Api::namespaced(connection.client.clone(), &connection.namespace)
}

async fn get(connection: &Connection, name: &str) -> Result<AgentBuild, Failure> {
    call(api_of(connection).get(name)).await.map_err(|error| {
        if error.is_gone() {
            let namespace = &connection.namespace;
            Failure::new(CLUSTER, format!("there is no AgentBuild {name} in {namespace}"))
                .hint("name its namespace with -n")
        } else {
            connection.failure("get", "agentbuilds", &error)
        }
    })
}

async fn annotate(
    connection: &Connection,
    name: &str,
    key: &str,
    value: &str,
) -> Result<(), Failure> {
    let patch = json!({"metadata": {"annotations": {key: value}}});
    let params = PatchParams { field_manager: Some(MANAGER.to_owned()), ..PatchParams::default() };
    let written = call(api_of(connection).patch(name, &params, &Patch::Merge(&patch))).await;
    written.map(drop).map_err(|error| connection.failure("patch", "agentbuilds", &error))
}

/// `convoke rebuild build/NAME`.
pub fn rebuild(args: &Args) -> Result<ExitCode, Failure> {
    block_on(async {
        let name = parse(&args.object)?;
        let connection = Connection::open(&args.connection).await?;
        let build = get(&connection, name).await?;
        annotate(&connection, name, keys::REBUILD, &Timestamp::now().to_string()).await?;
        let namespace = &connection.namespace;
        let but = held(&build).map(|why| format!("; but it is held: {why}")).unwrap_or_default();
        print(&format!(
            "a build of AgentBuild {name} is asked for{but}\nfollow it: convoke logs build/{name} -n {namespace} -f\n"
        ))
    })
}

/// `convoke cancel build/NAME`.
pub fn cancel(args: &Args) -> Result<ExitCode, Failure> {
    block_on(async {
        let name = parse(&args.object)?;
        let connection = Connection::open(&args.connection).await?;
        let status = get(&connection, name).await?.status.unwrap_or_default();
        let key = under_way(&status).ok_or_else(|| {
            let phase = status.phase.map(|phase| format!(" ({phase:?})")).unwrap_or_default();
            let namespace = &connection.namespace;
            let message = format!("AgentBuild {name} in {namespace} builds nothing now{phase}");
            Failure::new(FOUND, message)
        })?;
        annotate(&connection, name, keys::CANCEL, key).await?;
        print(&format!(
            "the build of AgentBuild {name} stops; build it again with: convoke rebuild build/{name} -n {}\n",
            connection.namespace
        ))
    })
}

/// Why no build begins although one is asked for: reason and message of `Ready`. `None`: nothing is known that holds it.
fn held(build: &AgentBuild) -> Option<String> {
    let status = build.status.as_ref()?;
    let ready = status.conditions.iter().find(|one| one.type_ == "Ready")?;
    let is_held = status.phase.unwrap_or_default() == BuildPhase::Pending
        || (status.phase == Some(BuildPhase::Failed) && status.build_key.is_none());
    // A build that was asked for is not held by the trigger.
    let begins = status.queued_at.is_some() || ready.reason == Reason::TriggerOff.as_str();
    let why = || printable(&format!("{}: {}", ready.reason, ready.message));
    (is_held && !begins && ready.status != "True").then(why)
}

/// What is waited for, for people: the message of `Ready`, and before it that a build was asked for.
fn awaited(build: &AgentBuild) -> String {
    let status = build.status.as_ref();
    let says = status.and_then(|status| status.message.as_deref()).unwrap_or_default();
    let what = match (is_asked(build), says) {
        (false, "") => return "waiting for the operator to look at it".to_owned(),
        (false, says) => return printable(says),
        (true, _) => "waiting for the build that was asked for",
    };
    held(build).map_or_else(|| what.to_owned(), |why| format!("{what}: {why}"))
}

/// The key that is being built, or waits.
fn under_way(status: &AgentBuildStatus) -> Option<&str> {
    let waits =
        status.conditions.iter().any(|one| one.type_ == "Reconciling" && one.status == "True");
    let goes_on = status.phase == Some(BuildPhase::Building) || status.queued_at.is_some() || waits;
    status.build_key.as_deref().filter(|_| goes_on)
}

/// What is wanted of the logs of a build.
pub(super) struct Wanted<'a> {
    pub(super) name: &'a str,
    /// The step of the template; all, if none is named.
    pub(super) step: Option<&'a str>,
    pub(super) params: LogParams,
}

/// Writes the logs of the newest run of a build, one step after the other.
pub(super) async fn show_logs(
    connection: &Connection,
    wanted: &Wanted<'_>,
    screen: &mut Screen,
) -> Result<ExitCode, Failure> {
    let mut told = None;
    let pod = loop {
        let build = get(connection, wanted.name).await?;
        let waits = wanted.params.follow && is_to_come(&build);
        // The run of before is not the one that was asked for.
        let is_due = wanted.params.follow && is_asked(&build);
        let found = if is_due { None } else { pod_of(connection, &build).await? };
        match found {
            Some(pod) => break pod,
            None if waits => {
                let says = awaited(&build);
                if told.as_ref() != Some(&says) {
                    screen.note(&says)?;
                    told = Some(says);
                }
                tokio::time::sleep(logs::LOOK).await;
            }
            None => return Err(no_pod(connection, &build)),
        }
        if screen.is_unread() {
            return Ok(ExitCode::SUCCESS);
        }
    };
    let connection = &connection.of_namespace(pod.metadata.namespace.as_deref());
    let name = pod.metadata.name.as_deref().unwrap_or_default();
    let all = pod.spec.iter().flat_map(|spec| &spec.containers);
    let steps: Vec<_> = all.filter_map(|one| one.name.strip_prefix(STEP_PREFIX)).collect();
    if let Some(step) = wanted.step
        && !steps.contains(&step)
    {
        let message = format!("the build has no step {}", quote(step));
        return Err(Failure::new(FOUND, message).hint(format!("its steps: {}", steps.join(", "))));
    }
    for step in steps.iter().filter(|step| wanted.step.is_none_or(|want| want == **step)) {
        let label = wanted.step.is_none().then_some(*step);
        copy(connection, name, step, &wanted.params, label, screen).await?;
        if screen.is_unread() {
            break;
        }
    }
    screen.end_line()?;
    Ok(ExitCode::SUCCESS)
}

/// Writes the log of a step to its end.
async fn copy(
    connection: &Connection,
    pod: &str,
    step: &str,
    params: &LogParams,
    label: Option<&str>,
    screen: &mut Screen,
) -> Result<(), Failure> {
    let api: Api<Pod> = Api::namespaced(connection.client.clone(), &connection.namespace);
    let params = LogParams { container: Some(format!("{STEP_PREFIX}{step}")), ..params.clone() };
    let log = loop {
        match call(api.log_stream(pod, &params)).await {
            Ok(log) => break log,
            // The containers of the pod have not begun, and still may.
            Err(CallError::Refused(status))
                if status.code == 400
                    && params.follow
                    && !screen.is_unread()
                    && may_begin(&api, pod).await =>
            {
                tokio::time::sleep(logs::LOOK).await;
            }
            Err(error) => return Err(logs::failure(connection, pod, &error)),
        }
    };
    let mut lines = Lines::new(log);
    while let Some(line) = lines.next().await.map_err(|why| logs::broken(pod, &why))? {
        logs::write(screen, label, &line)?;
        if screen.is_unread() {
            return Ok(());
        }
    }
    screen.end_line()
}

/// Whether the containers of a pod may still begin.
async fn may_begin(api: &Api<Pod>, name: &str) -> bool {
    let phase = call(api.get(name)).await.ok().and_then(|pod| pod.status?.phase);
    phase.is_some_and(|phase| phase == "Pending" || phase == "Running")
}

/// Whether somebody has asked for a build that the operator has not started yet.
fn is_asked(build: &AgentBuild) -> bool {
    let asked = build.metadata.annotations.as_ref().and_then(|all| all.get(keys::REBUILD));
    let handled = build.status.as_ref().and_then(|status| status.last_handled_rebuild.as_ref());
    asked.is_some() && asked != handled
}

/// Whether a build comes by itself.
fn is_to_come(build: &AgentBuild) -> bool {
    let status = build.status.as_ref();
    is_asked(build) || status.is_none_or(|status| under_way(status).is_some())
}

/// The pod of the newest run of a build, if it is there. A pod is found by who controls it: everybody may give one any labels.
async fn pod_of(connection: &Connection, build: &AgentBuild) -> Result<Option<Pod>, Failure> {
    let Some(run) = build.status.as_ref().and_then(|status| status.pipeline_run.as_deref()) else {
        return Ok(None);
    };
    let status = build.status.as_ref();
    let elsewhere = status.and_then(|status| status.build_namespace.as_deref());
    let connection = &connection.of_namespace(elsewhere);
    let found = pod_of_run(connection, run, build).await;
    found.map_err(|failure| match (elsewhere, &failure.lacks) {
        (Some(at), Some(_)) => failure.hint(of_build_namespace(at)),
        _ => failure,
    })
}

/// Who may look into the namespace of `--build-namespace`.
pub(super) fn of_build_namespace(namespace: &str) -> String {
    format!(
        "builds of all teams run in the namespace {namespace}: ask whoever runs the cluster; if the operator may read logs there, status.failure.log has the end of one that failed"
    )
}

/// The pod of a run in the namespace of the connection, if the run is of this AgentBuild.
async fn pod_of_run(
    connection: &Connection,
    run: &str,
    build: &AgentBuild,
) -> Result<Option<Pod>, Failure> {
    let api: Api<Pod> = Api::namespaced(connection.client.clone(), &connection.namespace);
    let params =
        ListParams::default().labels(&format!("tekton.dev/pipelineRun={run}")).limit(MAX_PODS);
    let pods = call(api.list(&params))
        .await
        .map_err(|error| refused(connection, "list", "pods", &error))?;
    for pod in pods.items {
        let Some(task) = controller(&pod.metadata, "tekton.dev", "TaskRun") else { continue };
        let Some(task) = tekton(connection, "TaskRun", "taskruns", &task.name, &task.uid).await?
        else {
            continue;
        };
        let Some(owner) = controller(&task.metadata, "tekton.dev", "PipelineRun") else { continue };
        let Some(owner) =
            tekton(connection, "PipelineRun", "pipelineruns", &owner.name, &owner.uid).await?
        else {
            continue;
        };
        let by_reference = controller(&owner.metadata, GROUP, "AgentBuild").map(|one| &one.uid);
        let by_labels = Some(Run::read(&owner)).filter(Run::is_elsewhere);
        let by_labels = by_labels.as_ref().and_then(|run| run.owner_uid.as_ref());
        let uid = by_reference.or(by_labels);
        if uid.is_some() && uid == build.metadata.uid.as_ref() {
            return Ok(Some(pod));
        }
    }
    Ok(None)
}

/// An object of Tekton, if it is the one with this UID.
async fn tekton(
    connection: &Connection,
    kind: &str,
    plural: &str,
    name: &str,
    uid: &str,
) -> Result<Option<DynamicObject>, Failure> {
    let found = tekton_of_name(connection, kind, plural, name).await?;
    Ok(found.filter(|object| object.metadata.uid.as_deref() == Some(uid)))
}

/// An object of Tekton, whoever made it.
pub(super) async fn tekton_of_name(
    connection: &Connection,
    kind: &str,
    plural: &str,
    name: &str,
) -> Result<Option<DynamicObject>, Failure> {
    let resource = GroupVersionKind::gvk("tekton.dev", "v1", kind);
    let resource = ApiResource::from_gvk_with_plural(&resource, plural);
    let api: Api<DynamicObject> =
        Api::namespaced_with(connection.client.clone(), &connection.namespace, &resource);
    match call(api.get(name)).await {
        Ok(object) => Ok(Some(object)),
        Err(error) if error.is_not_found() => Ok(None),
        Err(error) => Err(refused(connection, "get", plural, &error)),
    }
}

fn no_pod(connection: &Connection, build: &AgentBuild) -> Failure {
    let name = build.metadata.name.as_deref().unwrap_or_default();
    let status = build.status.as_ref();
    let says = status.and_then(|status| status.message.as_deref());
    let says = says.map(|says| format!(": {says}")).unwrap_or_default();
    let namespace = &connection.namespace;
    let message = format!("AgentBuild {name} in {namespace} has no pod of a build{says}");
    let failure = Failure::new(FOUND, message);
    match status.and_then(|status| status.failure.as_ref()?.log.as_ref()) {
        // The pod is gone, or none was made.
        Some(_) => failure.hint(format!(
            "the end of the log of its last failure: kubectl -n {namespace} get agentbuild {name} -o jsonpath='{{.status.failure.log}}'"
        )),
        None if held(build).is_some() => {
            failure.hint("mend what the message says; then the build begins by itself")
        }
        None if is_to_come(build) => failure
            .hint(format!("wait for the next one: convoke logs build/{name} -n {namespace} -f")),
        None => failure.hint(format!(
            "no pod was made, or it went with its PipelineRun; once its cause is mended: convoke rebuild build/{name} -n {namespace}"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn d7_a_build_is_named_with_or_without_its_kind() {
        for text in ["build/reviewer", "AgentBuild/reviewer", "agentbuilds/reviewer", "reviewer"] {
            assert_eq!(parse(text).expect(text), "reviewer");
        }
        for text in ["agent/reviewer", "build/", "build/a/b", "Reviewer", ""] {
            assert_eq!(parse(text).map_err(|failure| failure.code), Err(USAGE), "{text}");
        }
        assert!(name_of("agent/reviewer").is_none() && name_of("reviewer").is_none());
    }

    #[test]
    fn b8_what_was_asked_for_and_did_not_begin_is_waited_for() {
        let build = |asked: Option<&str>, handled: Option<&str>| {
            let mut build: AgentBuild = serde_json::from_value(json!({
                "metadata": {"name": "b"}, "spec": {"source": {"gitSync": {}}, "output": {"image": "i"}},
            }))
            .expect("a build");
            build.metadata.annotations =
                asked.map(|value| [(keys::REBUILD.to_owned(), value.to_owned())].into());
            build.status = Some(AgentBuildStatus {
                phase: Some(BuildPhase::Succeeded),
                last_handled_rebuild: handled.map(str::to_owned),
                ..AgentBuildStatus::default()
            });
            (is_asked(&build), is_to_come(&build))
        };
        assert_eq!(build(None, None), (false, false));
        assert_eq!(build(Some("2"), Some("1")), (true, true));
        assert_eq!(build(Some("2"), Some("2")), (false, false));
    }

    fn build(status: serde_json::Value) -> AgentBuild {
        serde_json::from_value(json!({
            "metadata": {"name": "b", "annotations": {keys::REBUILD: "2"}},
            "spec": {"source": {"gitSync": {}}, "output": {"image": "i"}}, "status": status,
        }))
        .expect("a build")
    }

    fn says(phase: &str, reason: &str, message: &str) -> serde_json::Value {
        let ready = json!({"type": "Ready", "status": "False", "reason": reason, "message": message,
            "lastTransitionTime": "2026-01-01T00:00:00Z"});
        json!({"phase": phase, "message": message, "conditions": [ready]})
    }

    #[test]
    fn b8_a_build_that_is_asked_for_and_held_says_what_holds_it() {
        let parameter = "the template has no parameter insecur";
        let broken = build(says("Pending", "UnknownParameter", parameter));
        let why = format!("UnknownParameter: {parameter}");
        assert_eq!(held(&broken), Some(why.clone()));
        assert_eq!(awaited(&broken), format!("waiting for the build that was asked for: {why}"));
        // The spec is wrong, so there is no key.
        let failed = build(says("Failed", "InvalidTimeout", "t"));
        assert_eq!(held(&failed).as_deref(), Some("InvalidTimeout: t"));
        let mut failed = says("Failed", "BuildFailed", "t");
        failed["buildKey"] = "k".into();
        assert_eq!(held(&build(failed)), None, "it is built again");
        assert_eq!(
            held(&build(says("Pending", "TriggerOff", "t"))),
            None,
            "what is asked for begins"
        );
        let mut queued = says("Pending", "Queued", "its turn");
        queued["queuedAt"] = "2026-01-01T00:00:00Z".into();
        let mut queued = build(queued);
        assert_eq!(held(&queued), None);
        assert_eq!(awaited(&queued), "waiting for the build that was asked for");
        queued.metadata.annotations = None;
        assert_eq!(awaited(&queued), "its turn");
    }

    #[tokio::test]
    async fn d6_a_build_without_a_pod_gets_one_hint_that_helps() {
        let connection = crate::cli::pods::tests::connection(&[]);
        let hint = |build: &AgentBuild| no_pod(&connection, build).hint.expect("a hint");
        let says_of_key = |phase: &str, reason: &str| {
            let mut status = says(phase, reason, "t");
            status["buildKey"] = "k".into();
            status
        };
        let mut ended = build(says_of_key("Failed", "BuildFailed"));
        ended.metadata.annotations = None;
        assert!(hint(&ended).ends_with("convoke rebuild build/b -n team"));
        assert!(hint(&build(json!({}))).ends_with("convoke logs build/b -n team -f"));
        assert!(hint(&build(says("Pending", "UnknownParameter", "t"))).starts_with("mend what"));
        let mut failed = says_of_key("Failed", "BuildFailed");
        failed["failure"] = json!({"pipelineRun": "r", "class": "Build", "reason": "BuildFailed", "message": "t", "log": "E: no",
            "at": "2026-01-01T00:00:00Z"});
        assert!(hint(&build(failed)).contains("{.status.failure.log}"));
    }

    #[test]
    fn b8_what_ended_is_not_cancelled() {
        let status = |phase, queued: bool| AgentBuildStatus {
            phase: Some(phase),
            build_key: Some("k".into()),
            queued_at: queued.then(|| "2026-01-01T00:00:00Z".into()),
            ..AgentBuildStatus::default()
        };
        assert_eq!(under_way(&status(BuildPhase::Building, false)), Some("k"));
        assert_eq!(under_way(&status(BuildPhase::Pending, true)), Some("k"));
        assert_eq!(under_way(&status(BuildPhase::Pending, false)), None);
        assert_eq!(under_way(&status(BuildPhase::Succeeded, false)), None);
        assert_eq!(under_way(&AgentBuildStatus::default()), None);
    }
}
