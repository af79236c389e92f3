use serde_json::{Value, json};

use super::*;
use convoke_core::sync::commit::source_at::DockerfileAt;

fn spec(patch: &Value) -> AgentBuildSpec {
    let mut spec = json!({
        "source": {"gitSync": {}, "subfolder": "image"}, "output": {"image": "team/reviewer"}, "trigger": {"baseImage": true},
    });
    for (field, value) in patch.as_object().expect("fields") {
        spec[field] = value.clone();
    }
    serde_json::from_value(spec).expect("a spec")
}

fn source(path: &str, content: Result<&str, &str>) -> SourceAt {
    let content = content.map(str::as_bytes).map_err(str::to_owned);
    SourceAt {
        sync: "team".into(),
        url: String::new(),
        commit: "a".repeat(40),
        subfolder_tree: Some("1".repeat(40)),
        paths: BTreeMap::new(),
        dockerfile: Some(DockerfileAt::new(path.into(), content)),
        base_images: BTreeMap::new(),
        applied: None,
    }
}

/// What is followed as `LINE WORD = IMAGE`, and what is not.
fn look(patch: &Value, source: &SourceAt) -> (Vec<String>, Vec<String>) {
    let (followed, problems) = followed(&spec(patch), source);
    let one = |one: Followed| format!("{} {} = {}", one.line, one.word, one.reference);
    (followed.into_iter().map(one).collect(), problems)
}

const PATH: &str = "image/Dockerfile";

#[test]
fn b1_base_images_are_named_as_docker_names_them() {
    let text = "ARG V\nFROM python AS a\nFROM r.test:5000/base\nFROM python:$V\nFROM a\nFROM Team/x:1\nFROM $X\n";
    let source = source(PATH, Ok(text));
    let (images, problems) = look(&json!({"buildArgs": {"V": "3"}}), &source);
    let want = [
        "2 python = docker.io/library/python:latest",
        "3 r.test:5000/base = r.test:5000/base:latest",
        "4 python:$V = docker.io/library/python:3",
    ];
    assert_eq!(images, want);
    let want = [
        "image/Dockerfile, line 7: $X: X has no value",
        "image/Dockerfile, line 6: Team/x:1: it must look like python:3.13 or registry.example.com/team/name:tag",
    ];
    assert_eq!(problems, want);
}

#[test]
fn b1_what_is_not_followed_is_told() {
    let good = source(PATH, Ok("FROM a:1\n"));
    assert_eq!(look(&json!({}), &good).1, [""; 0]);
    // Nobody asks for it.
    for patch in
        [json!({"trigger": {}}), json!({"strategy": "Append", "append": {"baseImage": "a:1"}})]
    {
        assert_eq!(look(&patch, &good), (vec![], vec![]), "{patch}");
    }
    let parameter = json!([{"name": "build-args", "values": ["A=b"]}]);
    let step = json!([{"name": "build", "configMap": "b", "parameters": [{"name": "dockerfile", "value": "x"}]}]);
    let not_in_git = "no base image is followed: the definition in Git does not ask for it, or names another Dockerfile";
    let bare = SourceAt { dockerfile: None, ..good.clone() };
    let missing = source(PATH, Err("the commit has no file image/Dockerfile"));
    let bytes = SourceAt {
        dockerfile: Some(DockerfileAt::new(PATH.into(), Ok(b"FROM \xff"))),
        ..good.clone()
    };
    for (patch, source, why) in [
        (
            json!({"pipeline": {"parameters": parameter}}),
            &good,
            "spec.pipeline sets build-args: no base image is followed",
        ),
        (
            json!({"pipeline": {"steps": step}}),
            &good,
            "spec.pipeline sets dockerfile: no base image is followed",
        ),
        (json!({"dockerfile": "other"}), &good, not_in_git),
        (json!({}), &bare, not_in_git),
        (json!({}), &missing, "no base image is followed: the commit has no file image/Dockerfile"),
        (json!({}), &bytes, "no base image is followed: image/Dockerfile is not UTF-8"),
    ] {
        assert_eq!(look(&patch, source), (vec![], vec![why.to_owned()]), "{patch}");
    }
}

#[test]
fn b1_what_is_known_of_tags_comes_from_the_status_and_goes_to_buildah() {
    let digest = format!("sha256:{}", "1".repeat(64));
    let at = |image: &str| format!("{image}@{digest}");
    let all =
        [at("docker.io/library/a:1"), at("r.test:5000/b:2"), "docker.io/library/c:1@x".to_owned()];
    let status = AgentBuildStatus { base_images: all.to_vec(), ..AgentBuildStatus::default() };
    let mut source =
        source(PATH, Ok("ARG R=r.test:5000\nFROM a:1\nFROM $R/b:2\nFROM c:1\nFROM d:1\n"));
    source.base_images = pinned_by(&spec(&json!({})), &source, &status);
    let want = [
        format!("$R/b:2=docker-image://r.test:5000/b@{digest}"),
        format!("a:1=docker-image://docker.io/library/a@{digest}"),
    ];
    assert_eq!(value(&source), ParameterValue::List(want.to_vec()));
    assert!(value(&source).is_plain());
}
