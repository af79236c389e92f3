//! What `convoke validate` prints.

use super::*;

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
fn g10_b1_validate_knows_the_rules_of_a_namespace() {
    let build = "apiVersion: convoke.dev/v1alpha1\nkind: AgentBuild\nmetadata:\n  name: b\nspec:\n  source:\n    gitSync: {}\n  output:\n    image: other/b\n";
    let folder = folder(&[("b.yaml", build)]);
    assert_eq!(convoke(&["validate", path(&folder)]).code, 0);
    assert_eq!(convoke(&["validate", "-n", "other", path(&folder)]).code, 0);
    let run = convoke(&["validate", "--namespace", "team", path(&folder)]);
    assert!(run.code == 1 && run.out.contains("b.yaml:9:12: error[CVK0208]"), "{}", run.out);
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
    assert_eq!(rules.as_array().map(Vec::len), Some(28));
    // Checked once by hand against the schema of the standard; a change here is worth doing so again.
    insta::assert_snapshot!(serde_json::to_string_pretty(&rules[19]).expect("JSON"), @r#"
    {
      "defaultConfiguration": {
        "level": "error"
      },
      "helpUri": "https://github.com/convoke-dev/convoke/blob/main/docs/problems.md",
      "id": "CVK0204",
      "shortDescription": {
        "text": "A value that is not allowed, or a NUL character."
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
              "ruleIndex": 24
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
fn g10_sarif_of_an_empty_folder_has_a_place() {
    let repository = repository(&[("team/notes.md", "later\n")]);
    let team = repository.path().join("team");
    let alone = folder(&[]);
    for (folder, uri) in [(team.to_str().expect("UTF-8"), "team"), (path(&alone), ".")] {
        let run = convoke(&["validate", "-o", "sarif", folder]);
        assert_eq!((run.code, run.err.as_str()), (1, ""));
        let log: serde_json::Value = serde_json::from_str(&run.out).expect("JSON");
        let results = log["runs"][0]["results"].as_array().expect("results");
        assert_eq!((results.len(), results[0]["ruleId"].as_str()), (1, Some("CVK0008")));
        // GitHub takes no file with a result that has no location, or no line.
        assert_eq!(
            results[0]["locations"],
            serde_json::json!([{"physicalLocation": {
                "artifactLocation": {"uri": uri, "uriBaseId": "%SRCROOT%"},
                "region": {"startLine": 1, "startColumn": 1},
            }}])
        );
    }
}

#[test]
fn validate_of_the_example_is_clean() {
    let run = convoke(&["validate", "examples-repo/team"]);
    assert_eq!(run.out, "10 objects in 10 files: no problems\n");
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

#[test]
fn a13_a_literal_key_is_refused_with_its_place() {
    for (value, variable) in [("hunter2", "KEY=x"), ("${KEY}", "KEY=hunter2")] {
        let env = format!("  env:\n    - name: OPENAI_API_KEY\n      value: {value}\n");
        let folder =
            folder(&[("writer.yaml", &format!("{AGENT}{env}")), ("prompts/writer.md", PROMPT)]);
        let run = convoke(&["validate", path(&folder), "--var", variable]);
        let place = "writer.yaml:15:14: error[CVK0205]: a literal value under such a name";
        assert_eq!(run.code, 1, "{}", run.out);
        assert!(run.out.contains(place), "{}", run.out);
        // The place is enough: who reads the log of a check should not read the key.
        assert!(!run.out.contains(value), "{}", run.out);
        assert!(!run.out.contains("hunter2"), "{}", run.out);
    }
}
