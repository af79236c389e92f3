//! The examples of the pages about builds: what they show is what the program takes.
#![allow(clippy::expect_used, clippy::panic, clippy::disallowed_types, clippy::disallowed_methods)]

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use convoke::registry::describe::schema;
use serde_json::{Value, json};
use tempfile::TempDir;

const ROOT: &str = env!("CARGO_MANIFEST_DIR");
const BUILDS: &str = "docs/agent-builds.md";
const PIPELINES: &str = "deploy/pipelines/README.md";

fn page(name: &str) -> String {
    fs::read_to_string(Path::new(ROOT).join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// The blocks of a page that are in a language, each with its place.
fn blocks(name: &str, language: &str) -> Vec<(String, String)> {
    let (page, mut found, mut open) = (page(name), Vec::new(), None);
    for (number, line) in page.lines().enumerate() {
        match (line.strip_prefix("```"), open.take()) {
            (Some(tag), None) => open = Some((tag.to_owned(), number + 2, String::new())),
            (Some(_), Some((tag, first, text))) if tag == language => {
                found.push((format!("{name}:{first}"), text));
            }
            (None, Some((tag, first, text))) => open = Some((tag, first, text + line + "\n")),
            _ => {}
        }
    }
    assert!(open.is_none(), "{name}: a block has no end");
    found
}

fn parse(place: &str, text: &str) -> Value {
    serde_saphyr::from_str(text).unwrap_or_else(|error| panic!("{place}: {error}"))
}

/// The objects of a page. A part of an AgentBuild stands for the example before it, with these fields of its spec.
fn objects(name: &str) -> Vec<(String, Value)> {
    let mut found: Vec<(String, Value)> = Vec::new();
    for (place, text) in blocks(name, "yaml") {
        if text.starts_with("apiVersion: ") {
            let object = parse(&place, &text);
            found.push((place, object));
            continue;
        }
        let part = parse(&place, &format!("spec:\n{text}"));
        // What is for the quick start alone has a namespace.
        let is_whole = |object: &Value| {
            object["kind"] == "AgentBuild" && object["metadata"]["namespace"].is_null()
        };
        let before = found.iter().rev().find(|(_, object)| is_whole(object));
        let mut object = before.unwrap_or_else(|| panic!("{place}: a part of what?")).1.clone();
        let fields = part["spec"].as_object().unwrap_or_else(|| panic!("{place}: no fields"));
        for (field, value) in fields {
            object["spec"][field] = value.clone();
        }
        found.push((place, object));
    }
    assert!(!found.is_empty(), "{name} has no examples");
    found
}

fn run(program: &str, args: &[&str], folder: &Path) -> Output {
    let mut command = Command::new(program);
    command
        .args(args)
        .current_dir(folder)
        .output()
        .unwrap_or_else(|error| panic!("{program}: {error}"))
}

fn git(folder: &Path, args: &[&str]) {
    let person =
        ["-c", "user.name=t", "-c", "user.email=t@example.com", "-c", "commit.gpgsign=false"];
    let output = run("git", &[&person[..], args].concat(), folder);
    assert!(output.status.success(), "{args:?}: {output:?}");
}

/// A repository with one AgentBuild and its source.
fn repository(build: &Value) -> TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    let write = |path: &str, text: &str| {
        let path = folder.path().join(path);
        fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        fs::write(path, text).expect("a file");
    };
    let subfolder = build["spec"]["source"]["subfolder"].as_str().expect("a subfolder");
    write(&format!("{subfolder}/Dockerfile"), "FROM scratch\n");
    write("team/build.json", &build.to_string());
    git(folder.path(), &["init", "-q", "-b", "main"]);
    git(folder.path(), &["add", "-A"]);
    git(folder.path(), &["commit", "-q", "-m", "first"]);
    folder
}

/// The templates of an operator whose administrator has named an image with the database of vulnerabilities.
fn with_a_database() -> TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    for mode in ["preprod", "prod"] {
        let name = format!("deploy/pipelines/template-{mode}.yaml");
        let mut map = parse(&name, &page(&name));
        let text = map["data"]["template.json"].as_str().expect("a template");
        let mut template: Value = serde_json::from_str(text).expect("JSON");
        let parameters = template["globalParameters"].as_array_mut().expect("parameters");
        let is_it = |one: &&mut Value| one["name"] == "vulnerability-database-image";
        parameters.iter_mut().find(is_it).expect("the parameter")["value"] =
            "registry.example.com/osv:daily".into();
        map["data"]["template.json"] = template.to_string().into();
        fs::write(folder.path().join(format!("{mode}.json")), map.to_string()).expect("a file");
    }
    folder
}

/// The namespace of an example.
fn namespace(object: &Value) -> &str {
    object["metadata"]["namespace"].as_str().unwrap_or("newsroom")
}

/// The objects of a page of one kind.
fn of_kind(name: &str, kind: &str) -> Vec<(String, Value)> {
    objects(name).into_iter().filter(|(_, object)| object["kind"] == kind).collect()
}

/// The PipelineRun of an AgentBuild, which must be valid as it stands there.
fn rendered(place: &str, build: &Value, more: &[&str]) -> Value {
    let repository = repository(build);
    let convoke = |args: &[&str]| {
        let output = run(env!("CARGO_BIN_EXE_convoke"), args, repository.path());
        let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
        let (out, err) = (text(output.stdout), text(output.stderr));
        assert!(output.status.success(), "{place}: {args:?}: {out}{err}");
        (out, err)
    };
    let namespace = namespace(build);
    let (out, err) = convoke(&["validate", "team", "-n", namespace]);
    assert!(!out.contains("warning") && !err.contains("warning"), "{place}: {out}{err}");
    let name = build["metadata"]["name"].as_str().expect("a name");
    let mut args = vec!["render", "build", name, "team", "-o", "json", "-n", namespace];
    args.extend(["--registry", "registry.example.com"]);
    if build["spec"]["source"]["git"].is_object() {
        args.extend(["--source", "."]);
    }
    args.extend(more);
    serde_json::from_str(&convoke(&args).0).expect("JSON")
}

/// The names of the steps of a run.
fn steps(run: &Value) -> Vec<String> {
    let tasks = run["spec"]["pipelineSpec"]["tasks"].as_array().into_iter().flatten();
    let steps = tasks.flat_map(|task| task["taskSpec"]["steps"].as_array().into_iter().flatten());
    steps.map(|step| step["name"].as_str().expect("a name").to_owned()).collect()
}

#[test]
fn b3_d3_each_example_of_an_agent_build_is_valid_and_has_the_run_that_it_says() {
    let operator = with_a_database();
    let operator = operator.path().to_str().expect("UTF-8");
    let mut modes = Vec::new();
    for (place, object) in objects(BUILDS) {
        let is_known = object["kind"] == "AgentBuild" || object["kind"] == "Agent";
        assert!(is_known, "{place}: {object}");
    }
    for (place, build) in of_kind(BUILDS, "AgentBuild") {
        let run = rendered(&place, &build, &["--operator-templates", operator]);
        let (text, spec) = (run.to_string(), &build["spec"]);
        let image = spec["output"]["image"].as_str().expect("an image");
        assert!(text.contains(&format!("registry.example.com/{image}")), "{place}: {run}");
        let own = spec["pipeline"]["parameters"].as_array().into_iter().flatten();
        for value in
            own.flat_map(|one| [&one["value"], &one["values"]]).filter(|one| !one.is_null())
        {
            assert!(text.contains(&value.to_string()), "{place}: {value} is in no parameter");
        }
        let names = steps(&run);
        for step in spec["pipeline"]["steps"].as_array().into_iter().flatten() {
            let name = step["name"].as_str().expect("a name");
            assert!(names.iter().any(|one| one.starts_with(name)), "{place}: {name}: {names:?}");
        }
        // A template of the operator's with a value that is not the shipped one is still the operator's.
        if spec["mode"] == "prod" {
            assert!(text.contains("\\\"pipelineOf\\\":\\\"operator\\\""), "{place}: {run}");
            assert!(text.contains("registry.example.com/osv:daily"), "{place}: {run}");
        }
        if let Some(url) = spec["source"]["git"]["url"].as_str() {
            assert!(text.contains(url), "{place}: {run}");
        }
        modes.push(spec["mode"].as_str().unwrap_or("dev").to_owned());
    }
    assert!(modes.contains(&"prod".to_owned()) && modes.contains(&"dev".to_owned()), "{modes:?}");
}

#[test]
fn a10_b3_the_first_build_can_be_copied_into_the_example_repository() {
    let all = objects(BUILDS);
    let in_quick_start: Vec<_> = all.iter().filter(|(_, one)| namespace(one) == "agents").collect();
    let kinds: Vec<_> = in_quick_start.iter().map(|(_, one)| one["kind"].as_str()).collect();
    assert_eq!(kinds, [Some("AgentBuild"), Some("Agent")]);
    let folder = tempfile::tempdir().expect("a folder");
    let example = Path::new(ROOT).join("examples-repo");
    let copied = run("cp", &["-R", ".", folder.path().to_str().expect("UTF-8")], &example);
    assert!(copied.status.success(), "{copied:?}");
    for (number, (_, object)) in in_quick_start.iter().enumerate() {
        let path = folder.path().join(format!("team/hello-{number}.json"));
        fs::write(path, object.to_string()).expect("a file");
    }
    let args = ["validate", "team", "-n", "agents"];
    let output = run(env!("CARGO_BIN_EXE_convoke"), &args, folder.path());
    let out = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success() && !out.contains("hello"), "{out}{output:?}");
    // The Dockerfile copies what the commands copy there.
    let (_, dockerfile) = blocks(BUILDS, "dockerfile").swap_remove(0);
    let copies = dockerfile.lines().find_map(|line| line.strip_prefix("COPY ")).expect("COPY");
    let files: Vec<_> = copies.split(' ').filter(|word| *word != "./").collect();
    assert_eq!(files, ["agent.py", "rules.md"]);
    let (_, commands) = blocks(BUILDS, "")
        .into_iter()
        .find(|(_, text)| text.contains("images/hello/"))
        .expect("the commands");
    for file in files {
        assert!(example.join("images/reviewer").join(file).is_file(), "{file}");
        assert!(commands.contains(&format!("images/reviewer/{file}")), "{file}");
    }
}

#[test]
fn b3_d3_each_example_of_a_step_runs_between_the_steps_that_its_page_names() {
    let (_, build) = objects(BUILDS).swap_remove(0);
    for (place, step) in objects(PIPELINES) {
        assert_eq!(step["kind"], "ConfigMap", "{place}");
        let own = tempfile::tempdir().expect("a folder");
        fs::write(own.path().join("step.json"), step.to_string()).expect("a file");
        let name = step["metadata"]["name"].as_str().expect("a name");
        let one = |name: &str, map: &str| json!({"name": name, "configMap": map});
        let mut build = build.clone();
        build["spec"]["pipeline"] = json!({"steps": [
            one("clone", "convoke-step-clone"), one("verify", "convoke-step-verify"), one("own", name),
            one("build", "convoke-step-build"), one("push", "convoke-step-push"),
        ]});
        let run = rendered(&place, &build, &["--templates", own.path().to_str().expect("UTF-8")]);
        assert_eq!(steps(&run), ["clone", "verify", "own", "build", "push"], "{place}");
    }
}

/// Whether a rule may ask for a name of `input`, as `image.labels`.
fn is_known(path: &str) -> bool {
    let schema = schema();
    let mut at = &schema;
    for part in path.split('.') {
        // Without properties it may have any.
        let Some(properties) = at["properties"].as_object() else { return at["type"].is_null() };
        let Some(below) = properties.get(part) else { return false };
        at = below;
    }
    true
}

#[test]
fn b3_the_rules_that_are_shown_ask_for_what_there_is() {
    let is_rego = |(_, text): &(String, String)| text.starts_with("package convoke\n");
    let all: Vec<_> = blocks(PIPELINES, "").into_iter().filter(is_rego).collect();
    assert!(!all.is_empty(), "no rules are shown");
    let mut asked = 0;
    for (place, text) in &all {
        for after in text.split("input.").skip(1) {
            let is_end = |c: char| !(c.is_ascii_alphanumeric() || c == '.');
            let path = after.split(is_end).next().unwrap_or_default();
            assert!(is_known(path), "{place}: input.{path} is not there");
            asked += 1;
        }
    }
    assert!(asked > 0, "the rules ask for nothing");
    // The table of names, too.
    let page = page(PIPELINES);
    let (_, table) = page.split_once("| `input` | what it is |\n").expect("the table");
    let rows = table.lines().skip(1).take_while(|line| line.starts_with('|'));
    for row in rows {
        let names = row.split('|').nth(1).expect("a cell");
        for name in names.split('`').skip(1).step_by(2) {
            assert!(is_known(name), "{name} is not there");
        }
    }
    // Open Policy Agent itself, where it is installed.
    let found = Command::new("opa").arg("version").output();
    if !found.is_ok_and(|output| output.status.success()) {
        eprintln!("there is no opa here: the rules of the page were not compiled");
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    for (place, text) in &all {
        fs::write(folder.path().join("rules.rego"), text).expect("a file");
        let checked = run("opa", &["check", "--strict", "rules.rego"], folder.path());
        assert!(checked.status.success(), "{place}: {checked:?}");
    }
}
