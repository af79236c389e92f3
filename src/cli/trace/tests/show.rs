use super::super::facts::{RunFacts, TroubleFacts};
use super::super::verdict::tests::{OLD, build, runs};
use super::super::verdict::verdict;
use super::*;

fn shown(trace: &Trace) -> String {
    let now = "2026-01-02T00:00:00Z".parse().expect("a time");
    text(trace, &verdict(trace), now)
}

#[test]
fn d8_one_row_a_stage_and_one_sentence() {
    let mut trace = runs();
    if let Some(Seen::Known(sync)) = &mut trace.git_sync {
        let at: Timestamp = "2026-01-01T23:57:30Z".parse().expect("a time");
        sync.applied_at = Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(at));
    }
    insta::assert_snapshot!(shown(&trace), @r"
    STAGE       NAME                    COMMIT   STATE              DETAILS
    GitSync     main                    1a2b3c4  Ready (Synced)     branch main; applied 2m ago
    Agent       reviewer                0f1e2d3  Ready (Available)  team/reviewer.yaml:3
    AgentBuild  reviewer                1a2b3c4  Succeeded (Built)  key 0123456789; PipelineRun reviewer-0123456789-1 succeeded
    image       reg.test/team/reviewer  1a2b3c4  built              sha256:111111111111
    Deployment  agent-reviewer          -        1/1 available      sha256:111111111111; generation 2 observed
    pod         agent-reviewer-1        -        ready              sha256:111111111111; 0 restarts

    commit 1a2b3c4 runs: 1 of 1 pods ready with sha256:111111111111
    ");

    // The build failed, and an earlier image runs.
    let failed = build(&mut trace);
    failed.phase = "Failed".into();
    failed.ready = Ready {
        status: "False".into(),
        reason: "DockerfileMissing".into(),
        message: "PipelineRun reviewer-0123456789-1 of commit 1a2b3c4d5e6f failed: the folder has no such Dockerfile".into(),
    };
    failed.failure = Some("the folder has no such Dockerfile".into());
    failed.built_commit = Some(OLD.into());
    let name = "reviewer-0123456789-1".into();
    failed.pipeline_run =
        Some(RunFacts { name, namespace: None, state: Some("failed (Failed)".into()) });
    insta::assert_snapshot!(shown(&trace), @r"
    STAGE       NAME                    COMMIT   STATE                       DETAILS
    GitSync     main                    1a2b3c4  Ready (Synced)              branch main; applied 2m ago
    Agent       reviewer                0f1e2d3  Ready (Available)           team/reviewer.yaml:3
    AgentBuild  reviewer                1a2b3c4  Failed (DockerfileMissing)  key 0123456789; PipelineRun reviewer-0123456789-1 failed (Failed); the folder has no such Dockerfile
    image       reg.test/team/reviewer  0f1e2d3  of an earlier build         sha256:111111111111
    Deployment  agent-reviewer          -        1/1 available               sha256:111111111111; generation 2 observed
    pod         agent-reviewer-1        -        ready                       sha256:111111111111; 0 restarts

    commit 1a2b3c4 does not run yet: AgentBuild reviewer failed (DockerfileMissing): the folder has no such Dockerfile; next: convoke logs build/reviewer -n team
    ");
}

#[test]
fn d8_what_may_not_be_read_and_what_a_cluster_says_is_shown_safely() {
    let mut trace = runs();
    let right = |right: &str| right.to_owned();
    trace.git_sync = Some(Seen::Refused { missing_right: right("get gitsyncs.convoke.dev") });
    trace.build = Some(Seen::Refused { missing_right: right("get agentbuilds.convoke.dev") });
    trace.pods = Seen::Refused { missing_right: right("list pods") };
    trace.object.ready.status = "False".into();
    trace.object.ready.reason = "Conflict".into();
    trace.object.ready.message = "one\ntwo\u{1b}[2J".into();
    trace.trouble = None;
    insta::assert_snapshot!(shown(&trace), @r"
    STAGE       NAME            COMMIT   STATE                 DETAILS
    GitSync     -               -        not readable          no right to get gitsyncs.convoke.dev
    Agent       reviewer        0f1e2d3  not Ready (Conflict)  team/reviewer.yaml:3; one two [2J
    AgentBuild  reviewer        -        not readable          no right to get agentbuilds.convoke.dev
    Deployment  agent-reviewer  -        1/1 available         sha256:111111111111; generation 2 observed
    pods        -               -        not readable          no right to list pods

    commit 0f1e2d3 does not run yet: Agent reviewer is not ready (Conflict): one two [2J; next: kubectl -n team describe agent reviewer
    ");
    let json = serde_json::to_value(&trace).expect("JSON");
    assert_eq!(json["pods"]["missingRight"], "list pods");
    assert_eq!(json["object"]["isObserved"], true);
}

#[test]
fn d8_the_command_in_a_trouble_is_taken_apart() {
    let of = |message: &str| {
        let TroubleFacts { message, next, .. } = TroubleFacts::of("R", message);
        (message, next)
    };
    assert_eq!(of("pod x: ends"), ("pod x: ends".into(), None));
    assert_eq!(
        of("pod x: ends; its log: kubectl logs x"),
        ("pod x: ends".into(), Some("kubectl logs x".into()))
    );
}

#[test]
fn d8_ages_are_in_their_largest_unit() {
    let of = |seconds: i64| age(Timestamp::UNIX_EPOCH, Timestamp::new(seconds, 0).expect("a time"));
    assert_eq!([0, 59, 60, 3599, 3600, 86_400 * 3].map(of), ["0s", "59s", "1m", "59m", "1h", "3d"]);
}

#[test]
fn d8_a_build_alone_has_no_rows_of_pods() {
    let mut trace = runs();
    trace.object.kind = crate::api::Kind::AgentBuild;
    let text = shown(&trace);
    let stages: Vec<_> = text.lines().take_while(|line| !line.is_empty()).collect();
    let stages: Vec<_> = stages.iter().filter_map(|line| line.split(' ').next()).collect();
    assert_eq!(stages, ["STAGE", "GitSync", "AgentBuild", "image"]);
    assert!(text.contains("team/reviewer.yaml:3; key 0123456789; PipelineRun"), "{text}");
}
