//! `strategy: Append`: what the API server and `convoke validate` take, and the pod of the build. B11.

use k8s_openapi::api::core::v1::{Namespace, Pod};
use kube::api::PostParams;

use super::*;

/// A spec that appends, with a change. `null` takes a field away.
fn spec(change: &Value) -> Value {
    let mut spec = json!({
        "source": {"gitSync": {}, "subfolder": "images/reviewer"},
        "output": {"image": "team/reviewer"}, "buildArgs": {}, "strategy": "Append",
        "append": {"baseImage": "python:3.13-slim", "command": ["python", "-m", "reviewer"]},
    });
    json_patch::merge(&mut spec, change);
    spec
}

#[tokio::test(flavor = "multi_thread")]
async fn b11_g10_the_api_server_and_validate_refuse_the_same() {
    let cluster = support::cluster().await;
    let client = cluster.client().await;
    let namespace = cluster.namespace("append").await;
    let api: Api<DynamicObject> = {
        let kind = GroupVersionKind::gvk("convoke.dev", "v1alpha1", "AgentBuild");
        Api::namespaced_with(
            client,
            &namespace,
            &ApiResource::from_gvk_with_plural(&kind, "agentbuilds"),
        )
    };
    let dry = PostParams { dry_run: true, ..PostParams::default() };
    let long = "x".repeat(1025);
    let digest = format!("team/base@sha256:{}", "a".repeat(64));
    for (change, says) in [
        (json!({}), None),
        (
            json!({"append": {"baseImage": "Reg.example:5000/team/base:1", "into": "/opt/my-app", "user": "1000:1000", "command": null}}),
            None,
        ),
        (json!({"append": {"baseImage": digest}}), None),
        (json!({"append": {"baseImage": format!("a:1@{}", &digest[10..])}}), None),
        (json!({"buildArgs": null}), None),
        (json!({"strategy": "Dockerfile", "append": null, "dockerfile": "Other"}), None),
        (json!({"append": null}), Some("append is needed with strategy: Append")),
        (json!({"strategy": "Dockerfile"}), Some("append is needed with strategy: Append")),
        (json!({"strategy": null}), Some("append is needed with strategy: Append")),
        (json!({"dockerfile": "Other"}), Some("dockerfile does not apply with strategy: Append")),
        (json!({"layerCache": true}), Some("layerCache does not apply with strategy: Append")),
        (json!({"buildArgs": {"A": "1"}}), Some("buildArgs do not apply with strategy: Append")),
        (json!({"append": {"baseImage": "python"}}), Some("baseImage needs a tag or a digest")),
        (
            json!({"append": {"baseImage": "reg.example:5000/python"}}),
            Some("baseImage needs a tag or a digest"),
        ),
        (json!({"append": {"baseImage": "https://reg.example/a b:1"}}), Some("baseImage")),
        (json!({"append": {"baseImage": "a@sha256:1"}}), Some("baseImage")),
        (json!({"append": {"baseImage": null}}), Some("baseImage")),
        (json!({"trigger": {"baseImage": true}}), None),
        (json!({"trigger": {"baseImage": false}, "strategy": "Dockerfile", "append": null}), None),
        (json!({"trigger": {"baseImage": true}, "strategy": "Dockerfile", "append": null}), None),
        (json!({"append": {"into": "app"}}), Some("into")),
        (json!({"append": {"into": "/"}}), Some("into")),
        (json!({"append": {"into": "/a/../b"}}), Some("into")),
        (json!({"append": {"into": "/proc/x"}}), Some("into must not be in /dev")),
        (json!({"append": {"into": "/tmp"}}), Some("into must not be in /dev")),
        (json!({"append": {"into": "/var/tmp"}}), Some("into must not be in /dev")),
        (json!({"append": {"into": "/tmpfiles"}}), None),
        (json!({"append": {"command": [long]}}), Some("1024")),
        (json!({"append": {"user": "a b"}}), Some("user")),
        (json!({"append": {"lockFile": "requirements.txt"}}), None),
        (json!({"append": {"lockFile": "sub/.lock/my-requirements.lock.txt"}}), None),
        (json!({"append": {"lockFile": "uv.lock"}}), Some("the name of lockFile must have")),
        (json!({"append": {"lockFile": "requirements/a.txt"}}), Some("the name of lockFile must")),
        (json!({"append": {"lockFile": "../requirements.txt"}}), Some("lockFile")),
        (json!({"append": {"lockFile": "/requirements.txt"}}), Some("lockFile")),
        (json!({"append": {"lockFile": "-requirements.txt"}}), Some("lockFile")),
        (json!({"append": {"platform": "linux/arm64"}}), None),
        (json!({"append": {"platform": "linux/arm/v7"}}), None),
        (json!({"append": {"platform": "windows/amd64"}}), Some("platform")),
        (
            json!({"append": {"platform": "linux/arm64", "lockFile": "requirements.txt"}}),
            Some("lockFile and platform do not go together"),
        ),
        (json!({"strategy": "Buildpacks"}), Some("strategy")),
    ] {
        let object = json!({"apiVersion": "convoke.dev/v1alpha1", "kind": "AgentBuild", "metadata": {"name": "b"}, "spec": spec(&change)});
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::write(folder.path().join("b.json"), object.to_string()).expect("a file");
        let offline =
            Command::new(env!("CARGO_BIN_EXE_convoke")).arg("validate").arg(folder.path()).output();
        let offline = offline.expect("convoke");
        let said = format!(
            "{}{}",
            String::from_utf8_lossy(&offline.stdout),
            String::from_utf8_lossy(&offline.stderr)
        );
        let asked = api.create(&dry, &serde_json::from_value(object).expect("an object")).await;
        match says {
            None => {
                assert!(offline.status.success(), "{change}: {said}");
                asked.unwrap_or_else(|error| panic!("{change}: {error}"));
            }
            Some(says) => {
                assert_eq!(offline.status.code(), Some(1), "{change}: {said}");
                assert!(said.contains(says) && said.contains("b.json:1:"), "{change}: {said}");
                let error = asked.err().unwrap_or_else(|| panic!("{change} is taken")).to_string();
                assert!(error.contains(says), "{change}: {error}");
            }
        }
    }
}

/// A pod with the steps of a run, as far as Pod Security looks at it.
fn pod_of(run: &DynamicObject) -> (Vec<String>, Value) {
    let task = &run.data["spec"]["pipelineSpec"]["tasks"][0]["taskSpec"];
    let steps = task["steps"].as_array().expect("steps");
    let names =
        steps.iter().map(|step| step["name"].as_str().expect("a name").to_owned()).collect();
    let containers: Vec<_> = steps
        .iter()
        .map(|step| json!({"name": step["name"], "image": "x", "securityContext": step["securityContext"]}))
        .collect();
    let template = &run.data["spec"]["taskRunTemplate"]["podTemplate"];
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "pod"}, "spec": {
        "containers": containers, "volumes": task.get("volumes").cloned().unwrap_or(json!([])),
        "securityContext": template["securityContext"],
    }});
    (names, pod)
}

#[tokio::test]
async fn b11_the_pod_of_a_build_that_appends_is_admitted_under_restricted() {
    let cluster = Cluster::exclusive().await;
    install_templates(&cluster);
    install_tekton(&cluster);
    let team = Team::new(&cluster).await;
    let label =
        json!({"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "restricted"}}});
    let namespaces: Api<Namespace> = Api::all(team.client.clone());
    let patch = Patch::Merge(&label);
    namespaces.patch(&team.namespace, &PatchParams::default(), &patch).await.expect("a label");
    let controller = team.start();
    team.apply_build("appended", &spec(&json!({"output": {"image": team.image()}})));
    team.apply_build("built", &json!({}));
    let names = ["appended".to_owned(), "built".to_owned()];
    team.commit_all(&controller, &names, 'a', Some('1'), None);
    let pods: Api<Pod> = Api::namespaced(team.client.clone(), &team.namespace);
    let dry = PostParams { dry_run: true, ..PostParams::default() };
    for (name, steps, is_admitted) in [
        ("built", &["clone", "verify", "build", "push"][..], false),
        ("appended", &["clone", "verify", "append"], true),
    ] {
        let building = |status: &AgentBuildStatus| status.phase == Some(BuildPhase::Building);
        let status = team.until(name, "it builds", building).await;
        let run = team.runs_api().get(&status.pipeline_run.expect("a run")).await.expect("a run");
        let (have, pod) = pod_of(&run);
        assert_eq!(have, steps, "{name}");
        let pod: Pod = serde_json::from_value(pod).expect("a pod");
        // The namespace's label takes a moment.
        eventually(SOON, "Pod Security decides", || async {
            let asked = pods.create(&dry, &pod).await;
            match (&asked, is_admitted) {
                (Ok(_), true) => Ok(()),
                (Err(error), false) if error.to_string().contains("violates PodSecurity") => Ok(()),
                _ => Err(format!("{name}: {asked:?}")),
            }
        })
        .await;
    }
    // What the step tells of the base image is in the status, and in the history.
    let run = team.status("appended").await.pipeline_run.expect("a run");
    let base = format!("sha256:{}", "b".repeat(64));
    let sbom = format!("sha256:{}", "c".repeat(64));
    let status = json!({"status": {
        "startTime": jiff::Timestamp::now().to_string(),
        "results": [
            {"name": "IMAGE_DIGEST", "value": format!("sha256:{}", "a".repeat(64))},
            {"name": "BASE_DIGEST", "value": base},
            {"name": "SBOM_DIGEST", "value": sbom},
        ],
        "conditions": [{"type": "Succeeded", "status": "True", "reason": "Succeeded", "message": ""}],
    }});
    let patch = Patch::Merge(&status);
    team.runs_api().patch_status(&run, &PatchParams::default(), &patch).await.expect("its end");
    let done = |status: &AgentBuildStatus| status.phase == Some(BuildPhase::Succeeded);
    let status = team.until("appended", "it was built", done).await;
    assert_eq!(status.base_digest.as_deref(), Some(&*base));
    assert_eq!(status.history[0].base_digest.as_deref(), Some(&*base));
    assert_eq!(status.sbom_digest.as_deref(), Some(&*sbom));
    assert_eq!(status.history[0].sbom_digest.as_deref(), Some(&*sbom));
    assert_eq!(status.history[0].result, BuildResult::Succeeded);
}
