use super::*;

fn image() -> Image {
    "registry.test:5000/team/reviewer".parse().expect("an image")
}

fn digest() -> Digest {
    Digest::of(b"image")
}

/// A PipelineRun that has succeeded, as Tekton leaves it.
fn run(change: impl FnOnce(&mut Value)) -> DynamicObject {
    let mut object = json!({
        "apiVersion": "tekton.dev/v1", "kind": "PipelineRun",
        "metadata": {"namespace": "team", "name": "reviewer-0123456789-1", "uid": "11-22"},
        "spec": {
            "params": [
                {"name": "append-command", "value": []},
                {"name": "append-into", "value": ""},
                {"name": "append-user", "value": ""},
                {"name": "base-image", "value": ""},
                {"name": "build-args", "value": ["LEVEL=strict", "URL=a=b", "EMPTY="]},
                {"name": "dockerfile", "value": "Dockerfile"},
                {"name": "key-tag", "value": "cvk-abc"},
                {"name": "repo-url", "value": "https://git.example.com/team.git"},
                {"name": "revision", "value": "c".repeat(40)},
                {"name": "strategy", "value": "Dockerfile"},
                {"name": "subfolder", "value": "images/reviewer"},
            ],
            "pipelineSpec": {"params": [], "tasks": [{"name": "build", "params": [
                {"name": "build_buildah-image", "value": "quay.io/buildah/stable:v1"},
                {"name": "build_build-args", "value": ["$(params.build-args[*])"]},
                {"name": "clone_repo-url", "value": "$(params.repo-url)"},
                {"name": "scan_ignored", "value": ["CVE-1"]},
            ]}]},
        },
        "status": {"startTime": "2026-11-29T12:00:00Z", "completionTime": "2026-11-29T12:01:00Z"},
    });
    let asked = Asked {
        mode: "prod".into(),
        pipeline_of: PipelineOf::Operator,
        reference: Some("refs/heads/main".into()),
        tree: Some("d".repeat(40)),
    };
    ask(&mut object, &asked);
    change(&mut object);
    serde_json::from_value(object).expect("an object")
}

/// Sets a parameter.
fn set(object: &mut Value, name: &str, value: &Value) {
    let params = object["spec"]["params"].as_array_mut().expect("params");
    params.retain(|one| one["name"] != name);
    if !value.is_null() {
        params.push(json!({"name": name, "value": value}));
    }
}

/// A statement, whatever the version of the operator is.
fn shown(statement: &Value) -> String {
    let mut shown = statement.clone();
    shown["predicate"]["runDetails"]["builder"]["version"]["convoke"] = "(version)".into();
    format!("{shown:#}")
}

#[test]
fn b12_a_statement_says_what_was_built_of_which_commit() {
    let statement = statement(&run(|_| ()), &image(), &digest(), None).expect("a statement");
    insta::assert_snapshot!(shown(&statement));
}

#[test]
fn b12_a_statement_about_what_was_appended_names_the_base_image() {
    let base = Digest::of(b"base").to_string();
    let run = run(|object| {
        set(object, "strategy", &json!("Append"));
        set(object, "base-image", &json!("python:3.13"));
        set(object, "append-into", &json!("/app"));
        set(object, "append-command", &json!(["python", "-m", "x"]));
        set(object, "repo-url", &json!("https://user:canary@git.example.com/team.git"));
        let asked = json!({"mode": "dev", "pipelineOf": "agentBuild"}).to_string();
        set(object, PARAMETER, &json!(asked));
        object["status"]["startTime"] = json!("yesterday");
    });
    let statement = statement(&run, &image(), &digest(), Some(&base)).expect("a statement");
    insta::assert_snapshot!(shown(&statement));
    assert!(!statement.to_string().contains("canary"));
}

#[test]
fn b12_a_statement_names_the_base_images_that_a_dockerfile_was_given() {
    let base = Digest::of(b"base");
    let given = |list: Value| {
        let run = run(|object| set(object, "base-images", &list));
        statement(&run, &image(), &digest(), Some("sha256:none"))
    };
    let image = format!("docker-image://r.test:5000/base@{base}");
    let two = given(json!([format!("${{X:-a}}={image}"), format!("r.test:5000/base:1={image}")]));
    let two = two.expect("a statement");
    let all =
        two["predicate"]["buildDefinition"]["resolvedDependencies"].as_array().expect("a list");
    assert_eq!(all.len(), 3, "{all:?}");
    assert_eq!(all[2], json!({"uri": "oci://r.test:5000/base", "digest": {"sha256": base.hex()}}));
    assert_eq!(given(json!([])), statement(&run(|_| ()), &self::image(), &digest(), None));
    for other in ["a", "a=b", "a=docker-image://b@sha256:1"] {
        given(json!([other])).expect_err(other);
    }
}

#[test]
fn b12_a_statement_names_the_lock_file_and_the_platform_of_what_was_appended() {
    let append = |change: &dyn Fn(&mut Value)| {
        let run = run(|object| {
            for (name, value) in [("strategy", "Append"), ("base-image", "python:3.13")] {
                set(object, name, &json!(value));
            }
            for name in ["append-into", "append-user"] {
                set(object, name, &json!(""));
            }
            set(object, "append-command", &json!([]));
            change(object);
        });
        let statement = statement(&run, &image(), &digest(), None).expect("a statement");
        statement["predicate"]["buildDefinition"]["externalParameters"]["append"].clone()
    };
    let with = append(&|object| {
        set(object, "append-lock-file", &json!("requirements.txt"));
        set(object, "append-platform", &json!("linux/arm64"));
    });
    assert_eq!([&with["lockFile"], &with["platform"]], ["requirements.txt", "linux/arm64"]);
    let without = append(&|object| set(object, "append-lock-file", &json!("")));
    assert_eq!((without.get("lockFile"), without.get("platform")), (None, None));
}

#[test]
fn b12_a_run_that_lacks_something_gets_no_statement() {
    for name in
        ["repo-url", "revision", "subfolder", "strategy", "dockerfile", "key-tag", PARAMETER]
    {
        for value in [json!(null), json!(7)] {
            let run = run(|object| set(object, name, &value));
            let error = statement(&run, &image(), &digest(), None).expect_err(name);
            assert!(error.contains(name), "{error}");
        }
    }
    for asked in ["", "{}", "{\"mode\":\"x\",\"pipelineOf\":\"other\"}"] {
        let run = run(|object| set(object, PARAMETER, &json!(asked)));
        statement(&run, &image(), &digest(), None).expect_err(asked);
    }
}

#[test]
fn b12_what_is_asked_holds_nothing_that_tekton_would_replace() {
    let mut object = json!({"spec": {"params": [], "pipelineSpec": {"params": []}}});
    assert!(!is_asked(&object["spec"]) && !is_asked(&Value::Null));
    let asked = Asked {
        mode: "dev".into(),
        pipeline_of: PipelineOf::Namespace,
        reference: Some("refs/heads/$(params.x)".into()),
        tree: None,
    };
    ask(&mut object, &asked);
    assert!(is_asked(&object["spec"]));
    assert_eq!(
        object["spec"]["params"],
        json!([{"name": "provenance", "value": "{\"mode\":\"dev\",\"pipelineOf\":\"namespace\"}"}])
    );
    assert_eq!(
        object["spec"]["pipelineSpec"]["params"],
        json!([{"name": "provenance", "type": "string"}])
    );
}

#[test]
fn b12_a_ref_has_its_full_name() {
    let of = |reference: Value| full_ref(&serde_json::from_value(reference).expect("a ref"));
    assert_eq!(of(json!({"branch": "dev/x"})).as_deref(), Some("refs/heads/dev/x"));
    assert_eq!(of(json!({"tag": "v1"})).as_deref(), Some("refs/tags/v1"));
    assert_eq!(of(json!({"name": "refs/pull/1/head"})).as_deref(), Some("refs/pull/1/head"));
    assert_eq!(of(json!({"semver": ">=1"})), None);
    assert_eq!(of(json!({"commit": "c".repeat(40)})), None);
    assert_eq!(full_ref(&GitRef::default()).as_deref(), Some("refs/heads/main"));
}
