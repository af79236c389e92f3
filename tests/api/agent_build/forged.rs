//! What is attested and what is not (B12): runs that somebody else has made or changed, marks that are refused, specs that are broken.

use super::attest::{apply, asked, envelopes, install_attested};
use super::reuse::Stage;
use super::*;

/// A policy that refuses updates in one namespace, until it is dropped.
pub(super) struct Refusal<'a> {
    team: &'a Team<'a>,
    name: String,
}

impl<'a> Refusal<'a> {
    /// Refuses updates of this kind that break a rule. `probe` is a merge patch that breaks it: this returns when that is refused.
    pub(super) async fn of(
        team: &'a Team<'a>,
        api: &Api<DynamicObject>,
        resource: (&str, &str),
        rule: &str,
        (name, probe): (&str, Value),
    ) -> Self {
        let (group, plural) = resource;
        let policy = format!("{}-{plural}", team.namespace);
        let labels = json!({"kubernetes.io/metadata.name": team.namespace});
        team.cluster.apply(&json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy",
            "metadata": {"name": policy},
            "spec": {
                "failurePolicy": "Fail",
                "matchConstraints": {"resourceRules": [{
                    "apiGroups": [group], "apiVersions": ["*"], "operations": ["UPDATE"], "resources": [plural],
                }]},
                "validations": [{"expression": rule, "message": "the house says no"}],
            },
        }));
        team.cluster.apply(&json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding",
            "metadata": {"name": policy},
            "spec": {
                "policyName": policy, "validationActions": ["Deny"],
                "matchResources": {"namespaceSelector": {"matchLabels": labels}},
            },
        }));
        eventually(SOON, "the policy is in force", || async {
            let params = PatchParams { dry_run: true, ..PatchParams::default() };
            let tried = api.patch(name, &params, &Patch::Merge(&probe)).await;
            let said = tried.err().map(|error| error.to_string()).unwrap_or_default();
            if said.contains("the house says no") { Ok(()) } else { Err(said) }
        })
        .await;
        Self { team, name: policy }
    }
}

impl Drop for Refusal<'_> {
    fn drop(&mut self) {
        for kind in ["validatingadmissionpolicybinding", "validatingadmissionpolicy"] {
            self.team.cluster.kubectl(&["delete", kind, &self.name]);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn b12_only_what_the_operator_has_made_is_attested() {
    let cluster = Cluster::exclusive().await;
    let Some(stage) = Stage::new(&cluster, false).await else { return };
    install_attested(&cluster);
    let team = &stage.team;
    let controller = stage.start();
    apply(&stage, "reviewer");
    team.commit(&controller, "reviewer", '1', Some('a'));
    let run = team.begun("reviewer").await;
    assert!(run.annotations().contains_key("convoke.dev/seal"), "{:?}", run.annotations());

    // Somebody makes the next try, with all that the first one has, and other programs in it. Tekton runs it to a good end.
    let name = run.name_any();
    let next = format!("{}-2", name.strip_suffix("-1").expect("the first try"));
    let mut forged = run.clone();
    forged.metadata = kube::api::ObjectMeta {
        name: Some(next.clone()),
        labels: run.metadata.labels.clone(),
        annotations: run.metadata.annotations.clone(),
        owner_references: run.metadata.owner_references.clone(),
        ..kube::api::ObjectMeta::default()
    };
    forged.annotations_mut().insert("convoke.dev/attempt".into(), "2".into());
    forged.data["spec"]["pipelineSpec"]["tasks"][0]["taskSpec"]["steps"][0]["image"] =
        "evil:1".into();
    forged.data["status"] = Value::Null;
    team.runs_api().create(&PostParams::default(), &forged).await.expect("a run");
    let evil = stage.push("reviewer", "evil", "evil").await;
    team.end_with(&next, Some((stage.repository("reviewer"), evil.clone()))).await;
    // Nobody waits for what does not come.
    let said = team.reason("reviewer", "ProvenanceRefused").await;
    assert!(said.contains(&next) && said.contains("its seal is wrong"), "{said}");
    let rebuild = format!("convoke rebuild build/reviewer -n {}", team.namespace);
    assert!(said.contains(&rebuild), "{said}");
    let told = team.status("reviewer").await;
    assert_eq!(condition(&told, "Stalled"), Some(("True", "ProvenanceRefused")));
    assert_eq!((condition(&told, "Reconciling"), told.phase), (None, Some(BuildPhase::Failed)));
    assert!(envelopes(&stage, "reviewer", &evil).await.is_empty());
    assert_eq!(team.status("reviewer").await.built_image, None);
    team.runs_api().delete(&next, &DeleteParams::default()).await.expect("deleted");

    // Its own is attested, unless somebody has changed what it does. Tekton would refuse that, and is not here.
    let good = stage.push("reviewer", "one", "one").await;
    let change = |image: &str| {
        json!([{
            "op": "replace", "path": "/spec/pipelineSpec/tasks/0/taskSpec/steps/0/image", "value": image,
        }])
    };
    let patch = async |image: &str| {
        let patch: json_patch::Patch = serde_json::from_value(change(image)).expect("a patch");
        let patch = Patch::<()>::Json(patch);
        team.runs_api().patch(&name, &PatchParams::default(), &patch).await.expect("patched");
    };
    let image = &run.data["spec"]["pipelineSpec"]["tasks"][0]["taskSpec"]["steps"][0]["image"];
    patch("evil:1").await;
    team.end_with(&name, Some((stage.repository("reviewer"), good.clone()))).await;
    let is_told = async |words: &str| {
        eventually(SOON, "the change is told", || async {
            let said = team.reason("reviewer", "ProvenanceRefused").await;
            if said.contains(&name) && said.contains(words) { Ok(()) } else { Err(said) }
        })
        .await;
    };
    is_told("its seal is wrong").await;
    let seal = async |seal: Option<&str>| {
        let patch = json!({"metadata": {"annotations": {"convoke.dev/seal": seal}}});
        let patch = Patch::Merge(&patch);
        team.runs_api().patch(&name, &PatchParams::default(), &patch).await.expect("patched");
    };
    seal(None).await;
    patch(image.as_str().expect("an image")).await;
    is_told("it has no seal of this operator").await;
    assert!(envelopes(&stage, "reviewer", &good).await.is_empty());
    seal(Some(&run.annotations()["convoke.dev/seal"])).await;
    let key = team.status("reviewer").await.build_key.expect("a key");
    stage.succeeded("reviewer", &key).await;
    assert_eq!(envelopes(&stage, "reviewer", &good).await.len(), 1);
    drop(controller);
}

#[tokio::test(flavor = "multi_thread")]
async fn b12_a_mark_that_is_refused_leaves_one_attestation() {
    let cluster = Cluster::exclusive().await;
    let Some(stage) = Stage::new(&cluster, false).await else { return };
    install_attested(&cluster);
    let team = &stage.team;
    let mut controller = stage.start();
    apply(&stage, "reviewer");
    team.commit(&controller, "reviewer", '1', Some('a'));
    let run = team.begun("reviewer").await.name_any();
    let mark = json!({"metadata": {"annotations": {"convoke.dev/provenance": "x"}}});
    let rule = "!('convoke.dev/provenance' in object.metadata.annotations)";
    let api = team.runs_api();
    let refusal = Refusal::of(team, &api, ("tekton.dev", "pipelineruns"), rule, (&run, mark)).await;
    let digest = stage.push("reviewer", "one", "one").await;
    team.end_with(&run, Some((stage.repository("reviewer"), digest.clone()))).await;
    let refused = || async {
        let said = team.reason("reviewer", "ProvenancePending").await;
        if said.contains("cannot be marked") { Ok(()) } else { Err(said) }
    };
    eventually(3 * SOON, "the refusal is told", refused).await;
    let first = envelopes(&stage, "reviewer", &digest).await;
    assert_eq!(first.len(), 1);
    let written = || {
        let all = stage.registry.requests();
        all.iter().filter(|one| one.starts_with("PUT") && one.contains(".att")).count()
    };
    let before = (written(), asked(&stage));

    // It is tried again, by an operator that remembers nothing, too.
    drop(controller);
    controller = stage.start();
    team.commit(&controller, "reviewer", '1', Some('a'));
    eventually(3 * SOON, "it is tried again", || async {
        if asked(&stage) > before.1 { Ok(()) } else { Err(asked(&stage)) }
    })
    .await;
    eventually(3 * SOON, "the refusal is told", refused).await;
    assert_eq!(written(), before.0, "what is there is not written again");
    drop(refusal);
    let key = team.status("reviewer").await.build_key.expect("a key");
    stage.succeeded("reviewer", &key).await;
    assert_eq!(envelopes(&stage, "reviewer", &digest).await, first);
    assert_eq!(written(), before.0);
    drop(controller);
}

#[tokio::test(flavor = "multi_thread")]
async fn b12_what_was_built_in_good_order_is_attested_while_the_spec_is_broken() {
    let cluster = Cluster::exclusive().await;
    let Some(stage) = Stage::new(&cluster, false).await else { return };
    install_attested(&cluster);
    let team = &stage.team;
    let controller = stage.start();
    apply(&stage, "reviewer");
    team.commit(&controller, "reviewer", '1', Some('a'));
    let run = team.begun("reviewer").await.name_any();
    let mode = json!({"spec": {"mode": "there-is-none"}}).to_string();
    team.kubectl(&["patch", "agentbuild", "reviewer", "--type=merge", "-p", &mode]);
    team.reason("reviewer", "TemplateNotFound").await;
    let digest = stage.push("reviewer", "one", "one").await;
    team.end_with(&run, Some((stage.repository("reviewer"), digest.clone()))).await;
    let has_it = |s: &AgentBuildStatus| s.built_image.is_some();
    let status = team.until("reviewer", "the image counts", has_it).await;
    let image = format!("{}@{digest}", stage.repository("reviewer"));
    assert_eq!(status.built_image, Some(image));
    assert_eq!(condition(&status, "Ready"), Some(("False", "TemplateNotFound")));
    assert_eq!(envelopes(&stage, "reviewer", &digest).await.len(), 1);
    drop(controller);
}
