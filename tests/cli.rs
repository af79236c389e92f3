//! The real binary: what it prints, and its exit codes.
#![allow(clippy::expect_used, clippy::panic, clippy::disallowed_types, clippy::disallowed_methods)]

use std::io::Read;
use std::path::Path;
use std::process::{Command, Stdio};

use tempfile::TempDir;

const AGENT: &str = "\
apiVersion: convoke.dev/v1alpha1
kind: Agent
metadata:
  name: writer
spec:
  modelAPI: shared
  model: small
  mcpServers:
    - search
    - clock
  config:
    instructionsFile: prompts/writer.md
";
const MODEL: &str = "\
apiVersion: convoke.dev/v1alpha1
kind: ModelAPI
metadata:
  name: shared
spec:
  mode: External
  external:
    url: https://models.example.com/v1
";
const PROMPT: &str = "You write.\nBe brief.\nBe kind.\n";

/// What a run gave.
struct Run {
    code: i32,
    out: String,
    err: String,
}

fn convoke(args: &[&str]) -> Run {
    let output = Command::new(env!("CARGO_BIN_EXE_convoke")).args(args).output().expect("convoke");
    Run {
        code: output.status.code().expect("an exit code, not a signal"),
        out: String::from_utf8(output.stdout).expect("UTF-8"),
        err: String::from_utf8(output.stderr).expect("UTF-8"),
    }
}

/// A folder with these files.
fn folder(files: &[(&str, &str)]) -> TempDir {
    let folder = tempfile::tempdir().expect("folder");
    write(folder.path(), files);
    folder
}

fn write(folder: &Path, files: &[(&str, &str)]) {
    for (path, content) in files {
        let path = folder.join(path);
        std::fs::create_dir_all(path.parent().expect("parent")).expect("folder");
        std::fs::write(path, content).expect("file");
    }
}

fn git(folder: &Path, args: &[&str]) {
    let output = Command::new("git")
        .args(["-c", "user.name=t", "-c", "user.email=t@example.com", "-c", "commit.gpgsign=false"])
        .args(args)
        .current_dir(folder)
        .output()
        .expect("git");
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// A repository whose only commit holds these files.
fn repository(files: &[(&str, &str)]) -> TempDir {
    let folder = folder(files);
    git(folder.path(), &["init", "-q", "-b", "main"]);
    git(folder.path(), &["add", "-A"]);
    git(folder.path(), &["commit", "-q", "-m", "first"]);
    folder
}

/// The absolute form of a path.
fn full(path: &str) -> String {
    Path::new(path).canonicalize().expect("a path").to_str().expect("UTF-8").to_owned()
}

fn path(folder: &TempDir) -> &str {
    folder.path().to_str().expect("UTF-8")
}

#[test]
fn validate_shows_where_a_file_is_not_utf8() {
    let folder = folder(&[("models/shared.yaml", MODEL)]);
    let latin1 = b"apiVersion: convoke.dev/v1alpha1\nkind: Mod\xe9l\n";
    std::fs::write(folder.path().join("latin1.yaml"), latin1).expect("write");
    let run = convoke(&["validate", path(&folder)]);
    assert!(
        run.out.contains("latin1.yaml:2:10: error[CVK0005]: the file is not UTF-8"),
        "{}",
        run.out
    );
}

#[test]
fn validate_shows_place_line_and_hint_of_every_problem() {
    let agent = AGENT.replace("  model: small", "  modl: small").replace("clock", "clok");
    let clock = "apiVersion: convoke.dev/v1alpha1\nkind: MCPServer\nmetadata:\n  name: clock\nspec:\n  remote:\n    url: https://c.example/mcp\n";
    let broken = "apiVersion: convoke.dev/v1alpha1\nkind: ModelAPI\nmetadata: {name: größer, labels: {x: 5}}\nspec: {}\n";
    let folder = folder(&[
        ("agents/writer.yaml", &agent),
        ("agents/prompts/writer.md", PROMPT),
        ("models/shared.yaml", MODEL),
        ("models/größer.yaml", broken),
        ("tools/clock.yaml", clock),
    ]);
    let run = convoke(&["validate", path(&folder)]);
    insta::assert_snapshot!(run.out, @r#"
    agents/writer.yaml:7:3: error[CVK0201]: unknown field "modl"
        7 |   modl: small
          |   ^
          = hint: did you mean model?
    models/größer.yaml:3:18: error[CVK0104]: "größer" is no valid name
        3 | metadata: {name: größer, labels: {x: 5}}
          |                  ^
          = hint: use lower-case letters, digits and '-', at most 63, beginning and ending with a letter or digit
    models/größer.yaml:3:38: error[CVK0203]: "x" must be a text
        3 | metadata: {name: größer, labels: {x: 5}}
          |                                      ^
          = hint: quote it
    models/größer.yaml:4:1: error[CVK0202]: required field mode is missing
        4 | spec: {}
          | ^

    4 objects in 4 files: 4 errors
    "#);
    assert_eq!((run.code, run.err.as_str()), (1, ""));
}

#[test]
fn validate_warns_about_references_and_succeeds() {
    let folder = folder(&[("writer.yaml", AGENT), ("prompts/writer.md", PROMPT)]);
    let run = convoke(&["validate", path(&folder)]);
    insta::assert_snapshot!(run.out, @r#"
    writer.yaml:6:13: warning[CVK0301]: modelAPI: ModelAPI "shared" is not in this commit
        6 |   modelAPI: shared
          |             ^
          = hint: add the ModelAPI to the repository, or create it in the namespace
    writer.yaml:9:7: warning[CVK0301]: mcpServers: MCPServer "search" is not in this commit
        9 |     - search
          |       ^
          = hint: add the MCPServer to the repository, or create it in the namespace
    writer.yaml:10:7: warning[CVK0301]: mcpServers: MCPServer "clock" is not in this commit
       10 |     - clock
          |       ^
          = hint: add the MCPServer to the repository, or create it in the namespace

    1 object in 1 file: 3 warnings
    "#);
    assert_eq!((run.code, run.err.as_str()), (0, ""));
}

#[test]
fn validate_prints_json_for_programs() {
    let folder = folder(&[("m.yaml", &MODEL.replace("mode: External", "mode: Externl"))]);
    let run = convoke(&["validate", "--output", "json", path(&folder)]);
    let problems: serde_json::Value = serde_json::from_str(&run.out).expect("JSON");
    assert_eq!(
        problems,
        serde_json::json!([{
            "severity": "Error", "path": "m.yaml", "line": 6, "column": 9, "code": "CVK0204",
            "message": "\"Externl\" is no value of mode", "hint": "did you mean External?", "object": "ModelAPI/shared"
        }])
    );
    assert_eq!(run.code, 1);

    let run = convoke(&["validate", "-o", "json", "examples-repo/team"]);
    assert_eq!((run.out.as_str(), run.code), ("[]\n", 0));
}

#[test]
fn g10_validate_prints_sarif_for_code_scanning() {
    let folder = repository(&[
        ("team/models/shared model.yaml", &MODEL.replace("mode: External", "mode: Externl")),
        ("team/writer.yaml", AGENT),
        ("team/prompts/writer.md", PROMPT),
    ]);
    let team = folder.path().join("team");
    let run = convoke(&["validate", "-o", "sarif", team.to_str().expect("UTF-8")]);
    assert_eq!((run.code, run.err.as_str()), (1, ""));
    let mut log: serde_json::Value = serde_json::from_str(&run.out).expect("JSON");
    let rules = log["runs"][0]["tool"]["driver"]["rules"].take();
    assert_eq!(rules.as_array().map(Vec::len), Some(26));
    // Checked once by hand against the schema of the standard; a change here is worth doing so again.
    insta::assert_snapshot!(serde_json::to_string_pretty(&rules[19]).expect("JSON"), @r#"
    {
      "defaultConfiguration": {
        "level": "error"
      },
      "helpUri": "https://github.com/convoke-dev/convoke/blob/main/docs/problems.md",
      "id": "CVK0204",
      "shortDescription": {
        "text": "A value that is not allowed."
      }
    }
    "#);
    log["runs"][0]["results"].as_array_mut().expect("results").truncate(2);
    let version = format!("\"semanticVersion\": {:?}", env!("CARGO_PKG_VERSION"));
    let text = serde_json::to_string_pretty(&log).expect("JSON");
    insta::assert_snapshot!(text.replace(&version, "\"semanticVersion\": VERSION"), @r#"
    {
      "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
      "runs": [
        {
          "columnKind": "unicodeCodePoints",
          "originalUriBaseIds": {
            "%SRCROOT%": {
              "description": {
                "text": "The root of the repository."
              }
            }
          },
          "results": [
            {
              "level": "error",
              "locations": [
                {
                  "logicalLocations": [
                    {
                      "fullyQualifiedName": "ModelAPI/shared",
                      "kind": "object"
                    }
                  ],
                  "physicalLocation": {
                    "artifactLocation": {
                      "uri": "team/models/shared%20model.yaml",
                      "uriBaseId": "%SRCROOT%"
                    },
                    "region": {
                      "startColumn": 9,
                      "startLine": 6
                    }
                  }
                }
              ],
              "message": {
                "text": "\"Externl\" is no value of mode\nHint: did you mean External?"
              },
              "ruleId": "CVK0204",
              "ruleIndex": 19
            },
            {
              "level": "warning",
              "locations": [
                {
                  "logicalLocations": [
                    {
                      "fullyQualifiedName": "Agent/writer",
                      "kind": "object"
                    }
                  ],
                  "physicalLocation": {
                    "artifactLocation": {
                      "uri": "team/writer.yaml",
                      "uriBaseId": "%SRCROOT%"
                    },
                    "region": {
                      "startColumn": 7,
                      "startLine": 9
                    }
                  }
                }
              ],
              "message": {
                "text": "mcpServers: MCPServer \"search\" is not in this commit\nHint: add the MCPServer to the repository, or create it in the namespace"
              },
              "ruleId": "CVK0301",
              "ruleIndex": 23
            }
          ],
          "tool": {
            "driver": {
              "informationUri": "https://github.com/convoke-dev/convoke",
              "name": "convoke",
              "rules": null,
              "semanticVersion": VERSION
            }
          }
        }
      ],
      "version": "2.1.0"
    }
    "#);
}

#[test]
fn validate_of_the_example_is_clean() {
    let run = convoke(&["validate", "examples-repo/team"]);
    assert_eq!(run.out, "9 objects in 9 files: no problems\n");
    assert_eq!((run.code, run.err.as_str()), (0, ""));
}

#[test]
fn validate_of_a_hostile_file_prints_no_control_characters() {
    let name = "\u{1b}[31m.yaml";
    let folder =
        folder(&[(name, "apiVersion: x # \u{9b}31m\nkind: \"\\e[2J\\u0007\"\nmetadata: \t\n")]);
    let run = convoke(&["validate", path(&folder)]);
    assert_eq!(run.code, 1, "{}", run.out);
    assert!(!run.out.contains(|c: char| c.is_control() && c != '\n'), "{:?}", run.out);
}

#[test]
fn wrong_usage_is_exit_code_2_with_what_to_do() {
    for (args, error) in [
        (&["validate", "/nowhere"][..], "error: cannot read /nowhere: "),
        (&["validate", "Cargo.toml"], "is not a folder"),
        (&["validate", "--colour"], "unexpected argument '--colour'"),
        (&["plan", "examples-repo/team", "--against", "no-such-ref"], "cannot read no-such-ref"),
        (&["plan", "examples-repo/team", "--sync", "a"], "--sync needs --against cluster"),
        (&["frobnicate"], "unrecognized subcommand 'frobnicate'"),
    ] {
        let run = convoke(args);
        assert_eq!(run.code, 2, "{args:?}: {}", run.err);
        assert!(run.err.contains(error), "{args:?}: {}", run.err);
        assert_eq!(run.out, "", "{args:?}");
    }
}

#[test]
fn plan_tells_what_a_commit_would_change() {
    let old = MODEL.replace("name: shared", "name: old");
    let folder = repository(&[
        ("team/writer.yaml", AGENT),
        ("team/prompts/writer.md", PROMPT),
        ("team/shared.yaml", MODEL),
        ("team/old.yaml", &old),
    ]);
    let team = folder.path().join("team");
    let team = team.to_str().expect("UTF-8");
    let run = convoke(&["plan", team]);
    insta::assert_snapshot!(run.out, @r#"
    no changes (3 objects)
    "#);
    assert_eq!((run.code, run.err.as_str()), (0, ""));

    let agent = AGENT.replace("model: small", "model: large").replace("- clock", "- calendar");
    write(
        folder.path(),
        &[
            ("team/writer.yaml", &agent),
            ("team/prompts/writer.md", "You write.\nBe brief.\nBe bold.\nCite.\n"),
            ("team/new.yaml", &MODEL.replace("name: shared", "name: new")),
        ],
    );
    std::fs::remove_file(folder.path().join("team/old.yaml")).expect("remove");
    let run = convoke(&["plan", team, "--against", "main"]);
    insta::assert_snapshot!(run.out, @r#"
    + ModelAPI/new
    - ModelAPI/old
    ~ Agent/writer
        prompt: 3 lines changed (+2 −1)
        tools +1 −1 (added: calendar; removed: clock)
        model small → large

    1 to create, 1 to change, 1 to delete, 1 unchanged
    "#);
    assert_eq!((run.code, run.err.as_str()), (0, ""));
}

#[test]
fn plan_against_a_commit_without_the_folder_or_with_broken_files() {
    let folder = repository(&[("one/shared.yaml", &MODEL.replace("mode: External", "mode: Ext"))]);
    write(folder.path(), &[("one/shared.yaml", MODEL), ("two/shared.yaml", MODEL)]);
    let plan = |name: &str| {
        let run = convoke(&["plan", folder.path().join(name).to_str().expect("UTF-8")]);
        assert_eq!((run.code, run.err.as_str()), (0, ""), "{name}");
        run.out
    };
    insta::assert_snapshot!(plan("one"), @r#"
    ~ ModelAPI/shared
        was broken there, so what changes is not known

    0 to create, 1 to change, 0 to delete, 0 unchanged
    "#);
    insta::assert_snapshot!(plan("two"), @r#"
    + ModelAPI/shared

    1 to create, 0 to change, 0 to delete, 0 unchanged
    "#);
}

#[test]
fn plan_of_a_broken_folder_is_no_plan() {
    let folder = repository(&[("shared.yaml", MODEL)]);
    write(folder.path(), &[("shared.yaml", &MODEL.replace("external:", "externl:"))]);
    let run = convoke(&["plan", path(&folder)]);
    assert_eq!((run.code, run.out.as_str()), (1, ""));
    insta::assert_snapshot!(run.err, @r#"
    shared.yaml:7:3: error[CVK0201]: unknown field "externl"
        7 |   externl:
          |   ^
          = hint: did you mean external?

    error: the folder has errors, so there is no plan
    hint: convoke validate shows warnings too
    "#);
}

#[test]
fn plan_against_a_folder_and_for_programs() {
    let old = folder(&[("shared.yaml", MODEL), ("gone.yaml", &MODEL.replace("shared", "gone"))]);
    let env = "  env:\n    - {name: LOG_LEVEL, value: canary-hunter2}\n    - {name: API_KEY, valueFrom: {secretKeyRef: {name: openai, key: key}}}\n";
    let agent = AGENT.replace("  config:\n    instructionsFile: prompts/writer.md\n", env);
    let new = folder(&[
        ("shared.yaml", &MODEL.replace("https://models", "https://other")),
        ("writer.yaml", &agent),
    ]);
    let run = convoke(&["plan", path(&new), "--against", path(&old)]);
    insta::assert_snapshot!(run.out, @r#"
    - ModelAPI/gone
    ~ ModelAPI/shared
        url https://models.example.com/v1 → https://other.example.com/v1
    + Agent/writer
        new Secret reference openai

    1 to create, 1 to change, 1 to delete, 0 unchanged
    "#);
    assert_eq!((run.code, run.err.as_str()), (0, ""));

    let run = convoke(&["plan", path(&new), "--against", path(&old), "-o", "json"]);
    assert_eq!(run.code, 0);
    assert!(!run.out.contains("hunter2"));
    insta::assert_snapshot!(run.out, @r#"
    {
      "objects": [
        {
          "object": "ModelAPI/gone",
          "action": "Delete",
          "path": "gone.yaml",
          "line": 1
        },
        {
          "object": "ModelAPI/shared",
          "action": "Update",
          "path": "shared.yaml",
          "line": 1,
          "changes": [
            {
              "text": "url https://models.example.com/v1 → https://other.example.com/v1",
              "field": "external.url",
              "type": "Value",
              "old": "https://models.example.com/v1",
              "new": "https://other.example.com/v1"
            }
          ]
        },
        {
          "object": "Agent/writer",
          "action": "Create",
          "path": "writer.yaml",
          "line": 1,
          "changes": [
            {
              "text": "new Secret reference openai",
              "field": "",
              "type": "SecretReference",
              "name": "openai",
              "new": true
            }
          ]
        }
      ],
      "summary": {
        "create": 1,
        "update": 1,
        "delete": 1,
        "unchanged": 0,
        "held": 0,
        "conflicts": 0,
        "quarantined": 0
      },
      "notes": []
    }
    "#);

    // In CI: 4 says that there is something to do.
    let code = |against: &str| {
        convoke(&["plan", path(&new), "--against", against, "--exit-code", "-o", "json"]).code
    };
    assert_eq!((code(path(&old)), code(path(&new))), (4, 0));
}

#[test]
fn plan_takes_a_ref_before_a_folder_of_that_name() {
    let folder = repository(&[("team/shared.yaml", MODEL)]);
    let base = MODEL.replace("name: shared", "name: base");
    write(folder.path(), &[("main/base.yaml", &base), ("other/base.yaml", &base)]);
    let plan = |against: &str| {
        let output = Command::new(env!("CARGO_BIN_EXE_convoke"))
            .args(["plan", "team", "--against", against])
            .current_dir(folder.path())
            .output()
            .expect("convoke");
        String::from_utf8(output.stdout).expect("UTF-8")
    };
    assert_eq!(plan("main"), "no changes (1 object)\n");
    let folder_named = "+ ModelAPI/shared\n- ModelAPI/base\n\n1 to create, 0 to change, 1 to delete, 0 unchanged\n";
    let sorted = |text: String| {
        let mut lines: Vec<_> = text.lines().map(str::to_owned).collect();
        lines.sort();
        lines
    };
    for against in ["./main", "other"] {
        assert_eq!(sorted(plan(against)), sorted(folder_named.to_owned()), "{against}");
    }
}

#[test]
fn render_gives_the_plain_form() {
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
fn what_is_rendered_reads_as_what_it_was() {
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

#[test]
fn completions_are_scripts_that_know_the_commands() {
    for shell in ["bash", "zsh", "fish"] {
        let run = convoke(&["completions", shell]);
        assert_eq!((run.code, run.err.as_str()), (0, ""), "{shell}");
        assert!(run.out.contains("validate") && run.out.contains("approve"), "{shell}");
    }
    let script = folder(&[("c.bash", &convoke(&["completions", "bash"]).out)]);
    let script = script.path().join("c.bash");
    let checked = Command::new("bash").arg("-n").arg(&script).status().expect("bash");
    assert!(checked.success());
}

#[test]
fn crds_are_five_documents_of_yaml() {
    let run = convoke(&["crds"]);
    assert_eq!((run.code, run.err.as_str()), (0, ""));
    let names: Vec<_> = run.out.lines().filter(|l| l.starts_with("  name: ")).collect();
    assert_eq!(names.len(), 5, "{names:?}");
    assert_eq!(run.out.lines().filter(|line| *line == "---").count(), 5);
    assert_eq!(run.out.matches("kind: CustomResourceDefinition\n").count(), 5);
}

#[test]
fn generated_files_are_fresh() {
    let file = std::fs::read_to_string("deploy/crds.yaml").unwrap_or_default();
    assert!(
        file == convoke(&["crds"]).out,
        "deploy/crds.yaml is stale: run `cargo run -- crds > deploy/crds.yaml`"
    );
}

#[test]
fn version_is_that_of_the_package() {
    let expected = format!("convoke {}\n", env!("CARGO_PKG_VERSION"));
    assert_eq!(convoke(&["version"]).out, expected);
    assert_eq!(convoke(&["--version"]).out, expected);
}

#[test]
fn a_reader_that_goes_away_is_no_error() {
    let mut child = Command::new(env!("CARGO_BIN_EXE_convoke"))
        .arg("crds")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("convoke");
    // More than a pipe holds is to be written, so closing it is noticed.
    drop(child.stdout.take());
    let mut err = String::new();
    child.stderr.take().expect("stderr").read_to_string(&mut err).expect("UTF-8");
    assert_eq!((child.wait().expect("exit").code(), err.as_str()), (Some(0), ""));
}

#[test]
fn g16_the_operator_is_nobody_else_and_writes_as_nobody_outside_a_namespace() {
    for name in ["", "system:masters", "a/b"] {
        let run = convoke(&["operator", "--default-service-account", name]);
        assert_eq!(run.code, 2, "{name:?}: {}", run.err);
    }
    // kube would put the kubeconfig's own `as` over the ServiceAccount of a GitSync.
    let config = r#"{"apiVersion": "v1", "kind": "Config", "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:1"}}],
        "users": [{"name": "u", "user": {"token": "t", "as": "admin"}}]}"#;
    let dir = folder(&[("config", config)]);
    let output = Command::new(env!("CARGO_BIN_EXE_convoke"))
        .args(["operator", "--health-addr=127.0.0.1:0", "--metrics-addr=127.0.0.1:0"])
        .env("KUBECONFIG", dir.path().join("config"))
        .output()
        .expect("convoke");
    let err = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{err}");
    assert!(err.contains("acts as somebody else"), "{err}");
}

#[test]
fn g21_validate_and_plan_take_what_the_gitsync_says() {
    let agent = AGENT.replace("modelAPI: shared", "modelAPI: ${API}\n  replicas: ${N}");
    let folder = repository(&[
        ("team/writer.yaml", &agent),
        ("team/prompts/writer.md", PROMPT),
        ("team/shared.yaml", MODEL),
        ("team/drafts/broken.yaml", "kind: [unclosed"),
    ]);
    let team = folder.path().join("team");
    let team = team.to_str().expect("UTF-8");
    let map = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: x}\ndata: {API: shared, N: '1'}\n";
    write(
        folder.path(),
        &[("values.yaml", map), ("plain.yaml", "N: '2'\n"), ("bad.yaml", "N: 2\n")],
    );
    let file = |name: &str| folder.path().join(name).to_str().expect("UTF-8").to_owned();
    let (map, plain, bad) = (file("values.yaml"), file("plain.yaml"), file("bad.yaml"));

    let run = convoke(&["validate", team, "--ignore", "drafts", "--var", "API=shard"]);
    assert_eq!(run.code, 1);
    assert!(run.out.contains("error[CVK0207]: there is no variable N"), "{}", run.out);
    let given = [team, "--ignore", "drafts", "--vars-from", &map, "--vars-from", &plain];
    let run = convoke(&[&["validate"][..], &given[..]].concat());
    assert_eq!(run.code, 0, "{}", run.out);
    assert!(run.out.ends_with("2 objects in 2 files (1 ignored): 2 warnings\n"), "{}", run.out);
    let run = convoke(&[&["plan"][..], &given[..], &["--var", "N=3"][..]].concat());
    assert_eq!((run.out.as_str(), run.code), ("no changes (2 objects)\n", 0), "{}", run.err);

    for (args, error) in [
        (["--ignore", "[z-a]"], "--ignore: \"[z-a]\" is no pattern"),
        (["--var", "1=x"], "--var takes NAME=VALUE"),
        (["--vars-from", bad.as_str()], "quote values that look like numbers"),
        (["--vars-from", "/nowhere"], "--vars-from /nowhere: "),
    ] {
        let run = convoke(&[&["validate", team][..], &args[..]].concat());
        assert_eq!(run.code, 2, "{args:?}");
        assert!(run.err.contains(error), "{args:?}: {}", run.err);
    }
}
