//! What `convoke render` prints.

use super::*;

#[test]
fn d3_render_gives_the_plain_form() {
    let folder = folder(&[
        ("writer.yaml", AGENT),
        ("prompts/writer.md", PROMPT),
        ("models.yaml", &format!("{MODEL}---\n{}", MODEL.replace("shared", "other"))),
    ]);
    let run = convoke(&["render", path(&folder)]);
    insta::assert_snapshot!(run.out, @r#"
    ---
    apiVersion: convoke.dev/v1alpha1
    kind: ModelAPI
    metadata:
      name: other
    spec:
      external:
        url: https://models.example.com/v1
      mode: External
    ---
    apiVersion: convoke.dev/v1alpha1
    kind: ModelAPI
    metadata:
      name: shared
    spec:
      external:
        url: https://models.example.com/v1
      mode: External
    ---
    apiVersion: convoke.dev/v1alpha1
    kind: Agent
    metadata:
      name: writer
    spec:
      config:
        instructions: |
          You write.
          Be brief.
          Be kind.
      mcpServers:
      - name: search
      - name: clock
      model: small
      modelAPI:
        name: shared
    "#);
    assert_eq!((run.code, run.err.as_str()), (0, ""));
    let run = convoke(&["render", path(&folder), "-o", "json"]);
    let list: serde_json::Value = serde_json::from_str(&run.out).expect("JSON");
    assert_eq!(list["items"][2]["spec"]["config"]["instructions"], PROMPT);

    write(folder.path(), &[("writer.yaml", &AGENT.replace("model:", "modle:"))]);
    let run = convoke(&["render", path(&folder)]);
    assert_eq!((run.code, run.out.as_str()), (1, ""));
    assert!(run.err.contains("error: the folder has errors"), "{}", run.err);
}

#[test]
fn d3_what_is_rendered_reads_as_what_it_was() {
    // Texts that careless writers turn into something else.
    let awkward = [
        "no",
        "on",
        "null",
        "~",
        "012",
        "1e3",
        "1_000",
        "0x1f",
        ".inf",
        "12:30:00",
        "2020-01-01",
        "=",
        "<<",
        " lead",
        "trail ",
        "\ttab",
        "a: b",
        "a #b",
        "- a",
        "? a",
        "{a",
        "[a",
        "*a",
        "&a",
        "!a",
        "%a",
        "@a",
        "`a",
        "'",
        "\"",
        "\n",
        "\n\n",
        "a\n",
        "a\n\n",
        " a\n b\n",
        "a\r\nb",
        "---",
        "...",
        "a\n---\nb\n",
        "\u{1f600}",
        "ö",
        "\\",
        "\u{feff}a",
    ];
    let long = "word ".repeat(100);
    let files: Vec<_> = awkward
        .iter()
        .copied()
        .chain([long.as_str()])
        .enumerate()
        .map(|(number, text)| {
            let json = serde_json::json!({
                "apiVersion": "convoke.dev/v1alpha1", "kind": "Agent", "metadata": {"name": format!("a{number}")},
                "spec": {"modelAPI": {"name": "shared"}, "description": text, "config": {"instructions": text}},
            });
            (format!("a{number}.json"), json.to_string())
        })
        .collect();
    let files: Vec<_> = files.iter().map(|(p, t)| (p.as_str(), t.as_str())).collect();
    let hostile = folder(&files);
    for source in [path(&hostile), "examples-repo/team"] {
        let rendered = convoke(&["render", source]);
        assert_eq!(rendered.code, 0, "{}", rendered.err);
        let again = folder(&[("all.yaml", rendered.out.as_str())]);
        let plan = convoke(&["plan", path(&again), "--against", &format!("{}/", full(source))]);
        assert!(plan.out.starts_with("no changes ("), "{}{}", plan.out, plan.err);
    }
}

const BUILD: &str = "\
apiVersion: convoke.dev/v1alpha1
kind: AgentBuild
metadata:
  name: reviewer
spec:
  source:
    gitSync: {}
    subfolder: images/reviewer
  output:
    registry: registry.example.com
    image: newsroom/reviewer
  buildArgs:
    VERSION: \"1\"
";

/// A template of one's own that leaves the check out.
const FAST: &str = "\
apiVersion: v1
kind: ConfigMap
metadata:
  name: pipeline-template-fast
data:
  template.json: |
    {\"name\": \"fast\", \"globalParameters\": [{\"name\": \"git-image\", \"value\": \"git:1\"}, {\"name\": \"buildah-image\", \"value\": \"buildah:1\"},
      {\"name\": \"convoke-image\", \"value\": \"convoke:1\"}],
     \"steps\": [{\"name\": \"clone\", \"configMap\": \"convoke-step-clone\"}, {\"name\": \"build\", \"configMap\": \"convoke-step-build\"},
      {\"name\": \"push\", \"configMap\": \"convoke-step-push\"}]}
";

#[test]
fn b3_d3_the_pipeline_run_of_a_build_is_printed() {
    let folder = repository(&[
        ("team/build.yaml", BUILD),
        ("images/reviewer/Dockerfile", "FROM scratch\n"),
        ("README.md", "one"),
    ]);
    let team = folder.path().join("team");
    let team = team.to_str().expect("UTF-8");
    let url = "https://git.example.com/newsroom/agents.git";
    let render = |more: &[&str]| convoke(&[&["render", "build", "reviewer", team], more].concat());
    let head = || {
        let mut head = Command::new("git");
        let head = head.args(["rev-parse", "HEAD"]).current_dir(folder.path());
        let head = head.output().expect("git").stdout;
        String::from_utf8(head).expect("UTF-8").trim().to_owned()
    };
    let run = render(&["--url", url, "-n", "newsroom"]);
    let short = &head()[..7];
    // YAML quotes those that look like a number.
    let shown = run
        .out
        .replace(&head(), "COMMIT")
        .replace(&format!("'{short}'"), short)
        .replace(short, "SHORT");
    insta::assert_snapshot!("pipeline_run", shown);
    assert_eq!((run.code, run.err.as_str()), (0, ""));

    let name = || -> String {
        let run = render(&["-o", "json"]);
        let run: serde_json::Value = serde_json::from_str(&run.out).expect("JSON");
        run["metadata"]["name"].as_str().expect("a name").to_owned()
    };
    // Another file builds nothing. What is not committed is not built.
    let before = name();
    write(folder.path(), &[("README.md", "two")]);
    git(folder.path(), &["commit", "-q", "-a", "-m", "second"]);
    write(folder.path(), &[("images/reviewer/Dockerfile", "FROM busybox\n")]);
    assert_eq!(name(), before);
    git(folder.path(), &["commit", "-q", "-a", "-m", "third"]);
    assert_ne!(name(), before);

    // Templates of one's own win over the shipped ones, which stay.
    let own = self::folder(&[("fast.yaml", FAST), ("notes.txt", "no YAML: [")]);
    let fast = BUILD.replace("spec:\n", "spec:\n  mode: fast\n");
    write(folder.path(), &[("team/build.yaml", &fast)]);
    let run = render(&["--templates", path(&own)]);
    assert!(run.out.contains("image: git:1") || run.out.contains("value: git:1"), "{run:?}");
    assert!(!run.out.contains("name: verify\n"), "{run:?}");
    let run = render(&[]);
    let error = "error: the template cannot be used: no ConfigMap pipeline-template-fast in the shipped ones";
    assert!(run.err.starts_with(error) && run.code == 1, "{run:?}");
}

/// A step of a team's own.
const LINT: &str = "
apiVersion: v1
kind: ConfigMap
metadata:
  name: lint
  labels: {convoke.dev/step: 'true'}
data:
  task-spec.yaml: |
    params: [{name: level, default: low}]
    steps: [{name: lint, image: 'lint:1', env: [{name: LEVEL, value: $(params.level)}], script: lint}]
";
const OWN_STEPS: &str = "spec:
  pipeline:
    parameters:
      - {name: buildah-image, value: 'mirror/buildah:1'}
    steps:
      - {name: clone, configMap: convoke-step-clone}
      - {name: verify, configMap: convoke-step-verify, enabled: false}
      - {name: lint, configMap: lint, parameters: [{name: level, value: \"high'; id\"}]}
      - {name: build, configMap: convoke-step-build}
      - {name: push, configMap: convoke-step-push}
";

#[test]
fn b3_b4_d3_steps_and_parameters_of_an_agent_build_are_printed() {
    let templates = folder(&[("lint.yaml", LINT)]);
    let own = BUILD.replace("spec:\n", OWN_STEPS);
    let folder = folder(&[("build.yaml", &own)]);
    let render = |build: &str, more: &[&str]| {
        write(folder.path(), &[("build.yaml", build)]);
        convoke(&[&["render", "build", "reviewer", path(&folder), "-o", "json"], more].concat())
    };
    let run = render(&own, &["--templates", path(&templates)]);
    assert_eq!(run.code, 0, "{run:?}");
    let run: serde_json::Value = serde_json::from_str(&run.out).expect("JSON");
    let task = &run["spec"]["pipelineSpec"]["tasks"][0];
    let steps = task["taskSpec"]["steps"].as_array().expect("a list");
    let names: Vec<_> = steps.iter().filter_map(|step| step["name"].as_str()).collect();
    assert_eq!(names, ["clone", "lint", "build", "push"]);
    let set = |name: &str, value: &str| {
        let set = serde_json::json!({"name": name, "value": value});
        assert!(task["params"].as_array().expect("a list").contains(&set), "{task:#}");
    };
    set("lint_level", "high'; id");
    set("build_buildah-image", "mirror/buildah:1");
    let run = render(&own, &[]);
    let error =
        "error: the template cannot be used: step lint: no ConfigMap lint in the shipped ones\n";
    assert!(run.err.contains(error) && run.code == 1, "{run:?}");
    // In Git, too, what Convoke sets is not for others to set.
    let wrong = own.replace("name: buildah-image", "name: image");
    let run = render(&wrong, &[]);
    assert!(run.err.contains("build.yaml:8:16") && run.code == 1, "{run:?}");
    let wrong = own.replace("name: buildah-image", "name: git-image");
    let run = render(&wrong, &["--templates", path(&templates)]);
    let error = "step clone: parameter git-image must not be set: the step has credentials";
    assert!(run.err.contains(error) && run.code == 1, "{run:?}");
}

#[test]
fn b3_d3_what_keeps_a_pipeline_run_from_being_printed_is_told() {
    let folder = folder(&[("build.yaml", BUILD), ("build/models.yaml", MODEL)]);
    let render = |args: &[&str]| convoke(&[&["render", "build"], args].concat());
    let run = render(&["reviewer", path(&folder)]);
    assert!(run.err.starts_with("note: this is no Git repository: "), "{run:?}");
    assert!(run.code == 0 && run.out.contains("namespace: <namespace>"), "{run:?}");
    let run = render(&["reviewr", path(&folder)]);
    let expected = "error: the folder has no AgentBuild reviewr\nhint: did you mean reviewer?\n";
    assert_eq!((run.code, run.err.as_str()), (2, expected));
    let without = BUILD.replace("    registry: registry.example.com\n", "");
    write(folder.path(), &[("build.yaml", &without)]);
    let run = render(&["reviewer", path(&folder)]);
    let expected = "error: spec.output.registry is not set\nhint: name the registry of the operator: --registry HOST\n";
    assert_eq!((run.code, run.err.as_str()), (2, expected));
    let run = render(&["reviewer", path(&folder), "--registry", "other:5000"]);
    assert!(run.out.contains("other:5000/newsroom/reviewer"), "{run:?}");
    // There each namespace has names of its own.
    let run = render(&["reviewer", path(&folder), "--registry", "other:5000", "-n", "newsroom"]);
    assert_eq!(run.code, 0, "{run:?}");
    let run = render(&["reviewer", path(&folder), "--registry", "other:5000", "-n", "other"]);
    assert_eq!((run.code, run.out.as_str()), (1, ""), "{run:?}");
    assert!(
        run.err.contains("error[CVK0208]: the image \"newsroom/reviewer\" does not"),
        "{run:?}"
    );
    for option in ["--templates", "--operator-templates"] {
        let run = render(&["reviewer", path(&folder), "--registry", "r", option, "/nowhere"]);
        let error = format!("error: {option}: cannot read /nowhere: ");
        assert!(run.err.contains(&error) && run.code == 2, "{run:?}");
    }

    git(folder.path(), &["init", "-q", "-b", "main"]);
    let run = render(&["reviewer", path(&folder), "--registry", "r"]);
    assert!(run.err.contains("error: cannot read HEAD: ") && run.code == 2, "{run:?}");
    git(folder.path(), &["add", "-A"]);
    git(folder.path(), &["commit", "-q", "-m", "first"]);
    let run = render(&["reviewer", path(&folder), "--registry", "r"]);
    assert!(
        run.err.contains(" has no folder images/reviewer\nhint: is it committed?\n"),
        "{run:?}"
    );

    let run = render(&["reviewer", path(&folder), "--registry", "r", "--source", path(&folder)]);
    let error = "error: AgentBuild reviewer is built from the repository of its GitSync\nhint: ";
    assert!(run.err.starts_with(error) && run.code == 2, "{run:?}");
    let elsewhere =
        BUILD.replace("    gitSync: {}\n", "    git: {url: 'https://git.example.com/app.git'}\n");
    write(folder.path(), &[("build.yaml", &elsewhere)]);
    let run = render(&["reviewer", path(&folder), "--registry", "r"]);
    let error = "error: AgentBuild reviewer is built from another repository: https://git.example.com/app.git\nhint: name a clone of it: --source FOLDER\n";
    assert!(run.err == error && run.code == 2, "{run:?}");
    let run = render(&["reviewer", path(&folder), "--registry", "r", "--source", "/nowhere"]);
    let error = "error: cannot read HEAD of /nowhere: ";
    assert!(run.err.starts_with(error) && run.code == 2, "{run:?}");

    // A folder of that name is still a folder.
    let run = convoke(&["render", &format!("{}/build", path(&folder))]);
    assert!(run.code == 0 && run.out.contains("kind: ModelAPI"), "{run:?}");
}

/// A shipped ConfigMap, changed.
fn shipped(file: &str, from: &str, to: &str) -> String {
    let text = std::fs::read_to_string(format!("deploy/pipelines/{file}")).expect("a file");
    assert!(text.contains(from), "{file}: {text}");
    text.replace(from, to)
}

#[test]
fn b3_b12_d3_templates_of_the_operator_are_its_own_and_those_of_a_namespace_are_not() {
    let mode = |mode: &str| BUILD.replace("spec:\n", &format!("spec:\n  mode: {mode}\n"));
    let folder = repository(&[
        ("team/build.yaml", &mode("preprod")),
        ("images/reviewer/Dockerfile", "FROM scratch\n"),
    ]);
    let team = folder.path().join("team");
    let team = team.to_str().expect("UTF-8");
    let render = |more: &[&str]| {
        let run = convoke(&[&["render", "build", "reviewer", team, "-o", "json"], more].concat());
        serde_json::from_str::<serde_json::Value>(&run.out).map_err(|_| run)
    };
    let key =
        |run: &serde_json::Value| run["metadata"]["annotations"]["convoke.dev/build-key"].clone();
    let error = render(&[]).expect_err("no database");
    let message = "template preprod needs a value for parameter vulnerability-database-image";
    assert!(error.err.contains(message) && error.code == 1, "{error:?}");

    // Whoever runs the operator names the image. The version stands for what the template has.
    let unset = "\"vulnerability-database-image\",\n          \"value\": \"\"";
    let set = "\"vulnerability-database-image\",\n          \"value\": \"registry.example.com/osv:daily\"";
    let preprod = shipped("template-preprod.yaml", unset, set);
    let templates = self::folder(&[
        ("preprod.yaml", &preprod),
        ("prod.yaml", &shipped("template-prod.yaml", unset, set)),
    ]);
    let of_operator = render(&["--operator-templates", path(&templates)]).expect("a run");
    assert!(of_operator.to_string().contains("registry.example.com/osv:daily"), "{of_operator}");
    let other = self::folder(&[("preprod.yaml", &preprod.replace("osv:daily", "osv:weekly"))]);
    let again = render(&["--operator-templates", path(&other)]).expect("a run");
    assert_eq!(key(&again), key(&of_operator));
    // In the namespace the text counts.
    let of_namespace = render(&["--templates", path(&templates)]).expect("a run");
    assert_ne!(key(&of_namespace), key(&of_operator));
    let both = ["--templates", path(&templates), "--operator-templates", path(&other)];
    assert_eq!(render(&both).expect("a run"), of_namespace);

    // Whose it is, as the provenance says it.
    write(
        folder.path(),
        &[(
            "team/build.yaml",
            &(mode("prod")
                + "  pipeline:\n    parameters:\n      - {name: test-command, values: [\"true\"]}\n"),
        )],
    );
    let whose = |option: &str| {
        let run = render(&[option, path(&templates)]).expect("a run");
        let params = run["spec"]["params"].as_array().expect("parameters").clone();
        let one =
            params.iter().find(|one| one["name"] == "provenance").expect("provenance").clone();
        serde_json::from_str::<serde_json::Value>(one["value"].as_str().expect("text"))
            .expect("JSON")
    };
    assert_eq!(whose("--operator-templates")["pipelineOf"], "operator");
    assert_eq!(whose("--templates")["pipelineOf"], "namespace");

    // A profile is for the operator's steps, and is not in the key.
    write(folder.path(), &[("team/build.yaml", BUILD)]);
    let baseline = render(&[]).expect("a run");
    let privileged = render(&["--build-profile", "privileged"]).expect("a run");
    assert_eq!(key(&baseline), key(&privileged));
    let is_privileged = |run: &serde_json::Value| run.to_string().contains("\"privileged\":true");
    assert!(is_privileged(&privileged) && !is_privileged(&baseline));
    let userns = render(&["--build-profile", "userns"]).expect("a run");
    assert_eq!(userns["spec"]["taskRunTemplate"]["podTemplate"]["hostUsers"], false);
    let own = self::folder(&[("build.yaml", &shipped("step-build.yaml", "set -eu", "set -eu"))]);
    let own = render(&["--templates", path(&own), "--build-profile", "privileged"]).expect("a run");
    assert!(!is_privileged(&own), "{own}");
    let error = render(&["--build-profile", "none"]).expect_err("no such profile");
    assert!(error.code == 2 && error.err.contains("must be one of baseline, userns"), "{error:?}");

    // Another repository, by a clone of it.
    let clone = repository(&[("images/reviewer/Dockerfile", "FROM busybox\n")]);
    let git = "    git: {url: 'https://git.example.com/app.git', ref: {tag: v1}}\n";
    let elsewhere = mode("prod").replace("    gitSync: {}\n", git);
    write(
        folder.path(),
        &[(
            "team/build.yaml",
            &(elsewhere
                + "  pipeline:\n    parameters:\n      - {name: test-command, values: [\"true\"]}\n"),
        )],
    );
    let run = render(&["--source", path(&clone), "--operator-templates", path(&templates)])
        .expect("a run");
    let text = run.to_string();
    let head = std::fs::read_to_string(clone.path().join(".git/refs/heads/main")).expect("HEAD");
    assert!(
        text.contains(head.trim()) && text.contains("https://git.example.com/app.git"),
        "{text}"
    );
    assert!(text.contains("refs/tags/v1"), "{text}");
}

#[test]
fn b1_d3_render_build_names_the_base_images_that_only_the_operator_knows() {
    let build = "apiVersion: convoke.dev/v1alpha1\nkind: AgentBuild\nmetadata:\n  name: reviewer\nspec:\n  source:\n    gitSync: {}\n    subfolder: image\n  output:\n    registry: registry.example.com\n    image: i\n  trigger:\n    baseImage: true\n";
    let text = "FROM python:3.13 AS one\nFROM $NOBODY\nFROM one\n";
    let folder = repository(&[("build.yaml", build), ("image/Dockerfile", text)]);
    let run = convoke(&["render", "build", "reviewer", path(&folder), "-o", "json"]);
    assert_eq!(run.code, 0, "{}", run.err);
    let want = "note: image/Dockerfile, line 2: $NOBODY: NOBODY has no value\n\
        note: the operator asks which digest docker.io/library/python:3.13 has: that is in the build key and in the parameters of a build, and not in these\n";
    assert_eq!(run.err, want);
    let made: serde_json::Value = serde_json::from_str(&run.out).expect("JSON");
    let params = made["spec"]["params"].as_array().expect("params");
    let bases = params.iter().find(|one| one["name"] == "base-images").expect("the parameter");
    assert_eq!(bases["value"], serde_json::json!([]));

    // Without the trigger nobody asks.
    write(folder.path(), &[("build.yaml", &build.replace("baseImage: true", "baseImage: false"))]);
    let run = convoke(&["render", "build", "reviewer", path(&folder)]);
    assert_eq!((run.code, run.err.as_str()), (0, ""));
}
