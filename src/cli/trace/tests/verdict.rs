use super::super::facts::{PodFacts, Ready, RunFacts, TroubleFacts};
use super::*;
use crate::api::Kind;

pub(in crate::cli::trace) const NEW: &str = "1a2b3c4d5e6f1a2b3c4d5e6f1a2b3c4d5e6f1a2b";
pub(in crate::cli::trace) const OLD: &str = "0f1e2d3c4b5a0f1e2d3c4b5a0f1e2d3c4b5a0f1e";
const BUILT: &str = "reg.test/team/reviewer@sha256:1111111111111111111111111111111111111111111111111111111111111111";
const OTHER: &str = "reg.test/team/reviewer@sha256:2222222222222222222222222222222222222222222222222222222222222222";

fn ready(status: &str, reason: &str, message: &str) -> Ready {
    Ready { status: status.into(), reason: reason.into(), message: message.into() }
}

fn pod(name: &str, reason: Option<&str>) -> PodFacts {
    PodFacts {
        name: name.into(),
        is_newest: true,
        digest: digest(BUILT).map(str::to_owned),
        is_ready: reason.is_none(),
        restarts: 0,
        reason: reason.map(str::to_owned),
    }
}

/// Agent `reviewer`, which runs the image of its build at the newest commit.
pub(in crate::cli::trace) fn runs() -> Trace {
    let sync = SyncFacts {
        name: "main".into(),
        follows: "branch main".into(),
        attempted: Some(NEW.into()),
        applied: Some(NEW.into()),
        ready: ready("True", "Synced", ""),
        ..SyncFacts::default()
    };
    let object = ObjectFacts {
        kind: Kind::Agent,
        name: "reviewer".into(),
        commit: Some(OLD.into()),
        source: Some("team/reviewer.yaml:3".into()),
        is_observed: true,
        phase: "Ready".into(),
        ready: ready("True", "Available", "1 of 1 replicas available"),
        named_image: None,
        build: Some("reviewer".into()),
    };
    let build = BuildFacts {
        name: "reviewer".into(),
        is_observed: true,
        phase: "Succeeded".into(),
        ready: ready("True", "Built", "built it"),
        key: Some("0123456789".into()),
        attempted_commit: Some(NEW.into()),
        pipeline_run: Some(RunFacts {
            name: "reviewer-0123456789-1".into(),
            namespace: None,
            state: Some("succeeded".into()),
        }),
        image: Some(BUILT.into()),
        built_commit: Some(NEW.into()),
        ..BuildFacts::default()
    };
    let deployment = DeploymentFacts {
        name: "agent-reviewer".into(),
        image: Some(BUILT.into()),
        generation: 2,
        observed_generation: 2,
        wanted: 1,
        available: 1,
        is_settled: true,
        failure: None,
        progress: "1 of 1 replicas available".into(),
    };
    Trace {
        namespace: "team".into(),
        git_sync: Some(Seen::Known(sync)),
        object,
        build: Some(Seen::Known(build)),
        deployment: Seen::Known(deployment),
        pods: Seen::Known(vec![pod("agent-reviewer-1", None)]),
        trouble: None,
    }
}

fn known<T>(seen: &mut Seen<T>) -> &mut T {
    match seen {
        Seen::Known(known) => known,
        _ => panic!("not known"),
    }
}

fn sync(trace: &mut Trace) -> &mut SyncFacts {
    known(trace.git_sync.as_mut().expect("a GitSync"))
}

pub(in crate::cli::trace) fn build(trace: &mut Trace) -> &mut BuildFacts {
    known(trace.build.as_mut().expect("a build"))
}

fn deployment(trace: &mut Trace) -> &mut DeploymentFacts {
    known(&mut trace.deployment)
}

fn refused<T>(right: &str) -> Seen<T> {
    Seen::Refused { missing_right: right.into() }
}

/// What one change to a trace that runs gives: the stage, the sentence and the command.
fn after(change: impl FnOnce(&mut Trace)) -> (Option<Stage>, String) {
    let mut trace = runs();
    change(&mut trace);
    let Verdict { runs, stuck_at, message, next, .. } = verdict(&trace);
    assert_eq!(runs == Some(false), stuck_at.is_some(), "{message}");
    let known = if runs.is_none() { "? " } else { "" };
    let next = next.map(|next| format!(" => {next}")).unwrap_or_default();
    (stuck_at, format!("{known}{message}{next}"))
}

fn check(cases: &[(&str, Option<Stage>, &str, &dyn Fn(&mut Trace))]) {
    for (what, stage, text, change) in cases {
        assert_eq!(after(change), (*stage, (*text).to_owned()), "{what}");
    }
}

#[test]
fn d8_what_runs_is_told_with_what_keeps_newer_commits_away() {
    check(&[
        (
            "it runs",
            None,
            "commit 1a2b3c4 runs: 1 of 1 pods ready with sha256:111111111111",
            &|_| {},
        ),
        (
            "an old pod that ends does not count",
            None,
            "commit 1a2b3c4 runs: 1 of 1 pods ready with sha256:111111111111",
            &|trace| {
                let old = PodFacts { is_newest: false, ..pod("old", None) };
                known(&mut trace.pods).push(old);
            },
        ),
        (
            "no build",
            None,
            "commit 1a2b3c4 runs: 1 of 1 pods ready with reg.test/agent:1",
            &|trace| {
                (trace.build, trace.object.build) = (None, None);
                deployment(trace).image = Some("reg.test/agent:1".into());
            },
        ),
        (
            "only deletes wait",
            None,
            "commit 1a2b3c4 runs: 1 of 1 pods ready with sha256:111111111111; but GitSync main is not ready (PruneHeld): 3 deletes wait",
            &|trace| {
                let sync = sync(trace);
                sync.applied = Some(OLD.into());
                sync.only_deletes_wait = true;
                sync.ready = ready("False", "PruneHeld", "3 deletes wait");
            },
        ),
        (
            "an error of another object",
            None,
            "commit 1a2b3c4 runs: 1 of 1 pods ready with sha256:111111111111; but GitSync main is not ready (Invalid): 1 error",
            &|trace| {
                let sync = sync(trace);
                (sync.applied, sync.faulty) = (Some(OLD.into()), vec!["Agent/other".into()]);
                sync.ready = ready("False", "Invalid", "1 error");
            },
        ),
        (
            "the remote is away",
            None,
            "commit 1a2b3c4 runs: 1 of 1 pods ready with sha256:111111111111; but GitSync main is not ready (FetchFailed)",
            &|trace| sync(trace).ready = ready("False", "FetchFailed", ""),
        ),
        (
            "suspended",
            None,
            "commit 1a2b3c4 runs: 1 of 1 pods ready with sha256:111111111111; GitSync main is suspended, so no newer commit comes",
            &|trace| sync(trace).suspended = true,
        ),
        (
            "paused",
            None,
            "commit 1a2b3c4 runs: 1 of 1 pods ready with sha256:111111111111; Agent/reviewer is paused, so Git does not change it",
            &|trace| sync(trace).paused = vec!["Agent/reviewer".into()],
        ),
        (
            "by hand",
            None,
            "Agent reviewer runs: 1 of 1 pods ready with sha256:111111111111; it does not come from Git",
            &|trace| (trace.git_sync, trace.object.commit) = (None, None),
        ),
        (
            "the GitSync is gone",
            None,
            "commit 0f1e2d3 runs: 1 of 1 pods ready with sha256:111111111111; GitSync main in team is gone, so no newer commit comes",
            &|trace| {
                let missing = "GitSync main in team is gone".into();
                trace.git_sync = Some(Seen::Missing { missing });
            },
        ),
    ]);
}

#[test]
fn d8_the_first_stage_that_holds_the_newest_commit_is_told() {
    use Stage::{AgentBuild, Deployment, GitSync, Object, Pods};
    check(&[
        (
            "a commit with an error of this object",
            Some(GitSync),
            "commit 1a2b3c4 does not run yet: GitSync main has not applied it (Invalid): 1 error => kubectl -n team describe gitsync main",
            &|trace| {
                let sync = sync(trace);
                sync.faulty = vec!["Agent/other".into(), "AgentBuild/reviewer".into()];
                sync.applied = Some(OLD.into());
                sync.ready = ready("False", "Invalid", "1 error");
            },
        ),
        (
            "an error of another object, and all or nothing",
            Some(GitSync),
            "commit 1a2b3c4 does not run yet: GitSync main has not applied it (Invalid): 1 error => kubectl -n team describe gitsync main",
            &|trace| {
                let sync = sync(trace);
                (sync.applied, sync.faulty) = (Some(OLD.into()), vec!["Agent/other".into()]);
                sync.is_atomic = true;
                sync.ready = ready("False", "Invalid", "1 error");
            },
        ),
        (
            "the build is not seen",
            Some(AgentBuild),
            "commit 1a2b3c4 does not run yet: the operator has not looked at the newest AgentBuild reviewer yet => kubectl -n team describe agentbuild reviewer",
            &|trace| build(trace).is_observed = false,
        ),
        (
            "the build failed, and the agent is in trouble too",
            Some(AgentBuild),
            "commit 1a2b3c4 does not run yet: AgentBuild reviewer failed (DockerfileMissing): the folder has no such Dockerfile => convoke logs build/reviewer -n team",
            &|trace| {
                let build = build(trace);
                build.phase = "Failed".into();
                build.ready = ready("False", "DockerfileMissing", "PipelineRun r failed");
                build.failure = Some("the folder has no such Dockerfile".into());
                trace.trouble = Some(TroubleFacts::of("CrashLoopBackOff", "pod x: ends"));
                trace.object.ready = ready("False", "CrashLoopBackOff", "pod x: ends");
            },
        ),
        (
            "no run could be made",
            Some(AgentBuild),
            "commit 1a2b3c4 does not run yet: AgentBuild reviewer failed (TemplateNotFound): no template => kubectl -n team describe agentbuild reviewer",
            &|trace| {
                let build = build(trace);
                (build.phase, build.pipeline_run) = ("Failed".into(), None);
                build.ready = ready("False", "TemplateNotFound", "no template");
            },
        ),
        (
            "cancelled",
            Some(AgentBuild),
            "commit 1a2b3c4 does not run yet: AgentBuild reviewer failed (Cancelled): somebody stopped it => convoke rebuild build/reviewer -n team",
            &|trace| {
                let build = build(trace);
                (build.phase, build.is_cancelled) = ("Failed".into(), true);
                build.ready = ready("False", "Cancelled", "somebody stopped it");
            },
        ),
        (
            "it is being built",
            Some(AgentBuild),
            "commit 1a2b3c4 does not run yet: AgentBuild reviewer is under way (Building): building commit 1a2b3c4 => convoke logs build/reviewer -n team -f",
            &|trace| {
                let build = build(trace);
                build.phase = "Building".into();
                build.ready = ready("False", "Building", "building commit 1a2b3c4");
            },
        ),
        (
            "Tekton does nothing",
            Some(AgentBuild),
            "commit 1a2b3c4 does not run yet: AgentBuild reviewer waits (TektonNotResponding): gone => kubectl -n tekton-pipelines get pods",
            &|trace| {
                let build = build(trace);
                build.phase = "Building".into();
                build.ready = ready("False", "TektonNotResponding", "gone");
            },
        ),
        (
            "its provenance is missing",
            Some(AgentBuild),
            "commit 1a2b3c4 does not run yet: AgentBuild reviewer waits (ProvenancePending): denied => kubectl -n team describe agentbuild reviewer",
            &|trace| {
                let build = build(trace);
                build.phase = "Building".into();
                build.ready = ready("False", "ProvenancePending", "denied");
            },
        ),
        (
            "its provenance is refused",
            Some(AgentBuild),
            "commit 1a2b3c4 does not run yet: AgentBuild reviewer failed (ProvenanceRefused): no seal => convoke rebuild build/reviewer -n team",
            &|trace| {
                let build = build(trace);
                build.phase = "Failed".into();
                build.ready = ready("False", "ProvenanceRefused", "no seal");
            },
        ),
        (
            "it waits",
            Some(AgentBuild),
            "commit 1a2b3c4 does not run yet: AgentBuild reviewer waits (Queued): others are built => kubectl -n team describe agentbuild reviewer",
            &|trace| {
                let build = build(trace);
                build.phase = "Pending".into();
                build.ready = ready("False", "Queued", "others are built");
            },
        ),
        (
            "no commit starts it",
            Some(AgentBuild),
            "commit 1a2b3c4 does not run yet: AgentBuild reviewer waits (TriggerOff): nothing is built => convoke rebuild build/reviewer -n team",
            &|trace| {
                let build = build(trace);
                build.phase = "Pending".into();
                build.ready = ready("False", "TriggerOff", "nothing is built");
            },
        ),
        (
            "there is no build",
            Some(AgentBuild),
            "commit 1a2b3c4 does not run yet: there is no AgentBuild reviewer => kubectl -n team get agentbuilds",
            &|trace| {
                let missing = "there is no AgentBuild reviewer".into();
                trace.build = Some(Seen::Missing { missing });
            },
        ),
        (
            "the agent is not seen",
            Some(Object),
            "commit 1a2b3c4 does not run yet: the operator has not looked at the newest Agent reviewer yet => kubectl -n team describe agent reviewer",
            &|trace| trace.object.is_observed = false,
        ),
        (
            "stopped",
            Some(Object),
            "commit 1a2b3c4 does not run yet: Agent reviewer is stopped (Suspended): spec.suspend is true => kubectl -n team describe agent reviewer",
            &|trace| {
                trace.object.phase = "Stopped".into();
                trace.object.ready = ready("False", "Suspended", "spec.suspend is true");
            },
        ),
        (
            "it waits for its first pods",
            Some(Object),
            "commit 1a2b3c4 does not run yet: Agent reviewer has no pods yet (WaitingForDependencies): ModelAPI gpt => kubectl -n team describe agent reviewer",
            &|trace| {
                trace.object.ready = ready("False", "WaitingForDependencies", "ModelAPI gpt");
                trace.deployment = Seen::Missing { missing: "there is none".into() };
                trace.pods = Seen::Known(Vec::new());
            },
        ),
        (
            "another image",
            Some(Object),
            "commit 1a2b3c4 does not run yet: Deployment agent-reviewer still asks for sha256:222222222222 instead of sha256:111111111111 => kubectl -n team describe agent reviewer",
            &|trace| deployment(trace).image = Some(OTHER.into()),
        ),
        (
            "pods crash",
            Some(Pods),
            "commit 1a2b3c4 does not run yet: 0 of 1 pods ready (CrashLoopBackOff): pod x: container agent ends with exit code 7 => convoke logs agent/reviewer -n team --previous",
            &|trace| {
                let message = "pod x: container agent ends with exit code 7; its log: kubectl -n team logs x -c agent --previous";
                trace.trouble = Some(TroubleFacts::of("CrashLoopBackOff", message));
                trace.pods = Seen::Known(vec![pod("x", Some("CrashLoopBackOff"))]);
                deployment(trace).is_settled = false;
            },
        ),
        (
            "no image",
            Some(Pods),
            "commit 1a2b3c4 does not run yet: 0 of 1 pods ready (ImagePullBackOff): pod x: no image => kubectl -n team describe pod x",
            &|trace| {
                let message = "pod x: no image; more: kubectl -n team describe pod x";
                trace.trouble = Some(TroubleFacts::of("ImagePullBackOff", message));
                trace.pods = Seen::Known(vec![pod("x", Some("ImagePullBackOff"))]);
            },
        ),
        (
            "the spec is not seen",
            Some(Deployment),
            "commit 1a2b3c4 does not run yet: the controller of Deployment agent-reviewer has not seen its newest spec yet => kubectl -n team describe deployment agent-reviewer",
            &|trace| deployment(trace).observed_generation = 1,
        ),
        (
            "a quota",
            Some(Deployment),
            "commit 1a2b3c4 does not run yet: Deployment agent-reviewer cannot go on (FailedCreate): exceeded quota => kubectl -n team describe deployment agent-reviewer",
            &|trace| {
                let failure = ("FailedCreate".into(), "exceeded quota".into());
                deployment(trace).failure = Some(failure);
            },
        ),
        (
            "a pod starts",
            Some(Pods),
            "commit 1a2b3c4 does not run yet: 0 of 1 replicas available; pod x is not ready (ContainerCreating) => kubectl -n team describe pod x",
            &|trace| {
                let deployment = deployment(trace);
                deployment.is_settled = false;
                deployment.progress = "0 of 1 replicas available".into();
                trace.pods = Seen::Known(vec![pod("x", Some("ContainerCreating"))]);
            },
        ),
        (
            "another reason",
            Some(Object),
            "commit 1a2b3c4 does not run yet: Agent reviewer is not ready (Conflict): Service agent-reviewer => kubectl -n team describe agent reviewer",
            &|trace| {
                trace.object.ready = ready("False", "Conflict", "Service agent-reviewer");
            },
        ),
    ]);
}

#[test]
fn d8_what_may_not_be_read_holds_nothing_and_is_told_when_it_matters() {
    check(&[
        (
            "no pods",
            None,
            "commit 1a2b3c4 runs: 1 of 1 pods available with sha256:111111111111",
            &|trace| trace.pods = refused("get pods"),
        ),
        (
            "no pods, and not all are available",
            Some(Stage::Deployment),
            "commit 1a2b3c4 does not run yet: Deployment agent-reviewer: 0 of 1 replicas available => kubectl -n team describe deployment agent-reviewer",
            &|trace| {
                trace.pods = refused("list pods");
                let deployment = deployment(trace);
                deployment.is_settled = false;
                deployment.progress = "0 of 1 replicas available".into();
            },
        ),
        ("no Deployment", None, "commit 1a2b3c4 runs: 1 of 1 replicas available", &|trace| {
            (trace.deployment, trace.pods) = (refused("get deployments"), refused("get pods"));
        }),
        (
            "no GitSync",
            None,
            "? Agent reviewer runs, but it is not known whether with the newest commit: you have no right to get gitsyncs.convoke.dev",
            &|trace| trace.git_sync = Some(refused("get gitsyncs.convoke.dev")),
        ),
        (
            "no AgentBuild",
            None,
            "? Agent reviewer runs, but it is not known whether with the newest commit: you have no right to get agentbuilds.convoke.dev",
            &|trace| trace.build = Some(refused("get agentbuilds.convoke.dev")),
        ),
        (
            "no GitSync, and a later stage holds it",
            Some(Stage::Object),
            "commit 0f1e2d3 does not run yet: Agent reviewer is not ready (Conflict) => kubectl -n team describe agent reviewer",
            &|trace| {
                trace.git_sync = Some(refused("get gitsyncs.convoke.dev"));
                trace.object.ready = ready("False", "Conflict", "");
            },
        ),
    ]);
}

#[test]
fn d8_of_a_build_alone_the_commit_and_the_build_are_judged() {
    let told = |change: &dyn Fn(&mut Trace)| {
        let mut trace = runs();
        (trace.object.kind, trace.deployment) =
            (Kind::AgentBuild, Seen::Missing { missing: String::new() });
        change(&mut trace);
        let verdict = verdict(&trace);
        (verdict.runs, verdict.stuck_at, verdict.message)
    };
    let (is_built, stuck_at, text) = told(&|_| ());
    assert_eq!((is_built, stuck_at), (Some(true), None));
    assert_eq!(text, "commit 1a2b3c4 is built: sha256:111111111111");
    let (is_built, stuck_at, text) = told(&|trace| {
        let Some(Seen::Known(build)) = &mut trace.build else { panic!("a build") };
        build.phase = "Pending".into();
        build.ready = ready("False", "UnknownParameter", "p");
    });
    assert_eq!((is_built, stuck_at), (Some(false), Some(Stage::AgentBuild)));
    let why = "AgentBuild reviewer waits (UnknownParameter): p";
    assert_eq!(text, format!("commit 1a2b3c4 is not built yet: {why}"));
}
