//! What `convoke plan` tells of two folders or commits.

use super::*;

#[test]
fn d1_plan_tells_what_a_commit_would_change() {
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
fn d1_plan_against_a_folder_and_for_programs() {
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
fn d1_plan_takes_what_git_resolves() {
    let folder = repository(&[("team/shared.yaml", MODEL)]);
    write(folder.path(), &[("team/other.yaml", &MODEL.replace("name: shared", "name: other"))]);
    git(folder.path(), &["add", "-A"]);
    git(folder.path(), &["commit", "-q", "-m", "second"]);
    let team = folder.path().join("team");
    let plan = |against: &str| {
        let run = convoke(&["plan", team.to_str().expect("UTF-8"), "--against", against]);
        (run.code, run.out + &run.err)
    };
    let added = "+ ModelAPI/other\n\n1 to create, 0 to change, 0 to delete, 1 unchanged\n";
    for against in ["HEAD~1", "main^", "@~"] {
        assert_eq!(plan(against), (0, added.to_owned()), "{against}");
    }
    for against in ["HEAD~0", "main^0"] {
        assert_eq!(plan(against), (0, "no changes (2 objects)\n".to_owned()), "{against}");
    }
    for against in ["HEAD~2", "HEAD~1..main"] {
        let (code, said) = plan(against);
        assert_eq!(code, 2, "{said}");
        assert!(said.contains(&format!("cannot read {against}: ")), "{said}");
    }
}

const BUILD: &str = "apiVersion: convoke.dev/v1alpha1\nkind: AgentBuild\nmetadata:\n  name: reviewer\nspec:\n  source:\n    gitSync: {}\n    subfolder: image\n  output:\n    image: team/reviewer\n  trigger:\n    paths: [shared]\n";

#[test]
fn d1_b1_plan_tells_which_images_a_commit_builds() {
    let folder = repository(&[
        ("team/build.yaml", BUILD),
        ("image/Dockerfile", "FROM scratch\n"),
        ("shared/base", "1\n"),
    ]);
    let team = folder.path().join("team");
    let plan = || {
        let run = convoke(&["plan", team.to_str().expect("UTF-8"), "--against", "HEAD~1"]);
        assert_eq!((run.code, run.err.as_str()), (0, ""), "{run:?}");
        run.out
    };
    let commit = |files: &[(&str, &str)]| {
        write(folder.path(), files);
        git(folder.path(), &["add", "--all"]);
        git(folder.path(), &["commit", "--quiet", "--message", "next"]);
    };
    commit(&[("README.md", "Nothing of the image.\n")]);
    assert_eq!(plan(), "no changes (1 object)\n");
    commit(&[("shared/base", "2\n"), ("image/Dockerfile", "FROM base\n")]);
    insta::assert_snapshot!(plan(), @r"
    builds:
      * AgentBuild/reviewer: image and shared change

    0 to create, 0 to change, 0 to delete, 1 to build, 1 unchanged
    ");
    // What goes into no image builds nothing.
    commit(&[("team/build.yaml", &BUILD.replace("spec:\n", "spec:\n  timeout: 5m\n"))]);
    assert!(!plan().contains("builds:"), "{}", plan());
    let by_hand =
        BUILD.replace("  trigger:\n", "  dockerfile: Other\n  trigger:\n    onCommit: false\n");
    commit(&[("team/build.yaml", &by_hand)]);
    let said = plan();
    let why = "its definition changes, but trigger.onCommit is false";
    assert!(said.contains(&format!("  = AgentBuild/reviewer: {why}\n")), "{said}");
    // Parameters of the pipeline do, whatever their order is.
    let pipeline = |first: &str, second: &str| {
        let parameters =
            format!("  pipeline:\n    parameters:\n      - {first}\n      - {second}\n");
        let build = BUILD.replace("spec:\n", &format!("spec:\n{parameters}"));
        commit(&[("team/build.yaml", &build)]);
        plan()
    };
    let image = |tag: &str| format!("{{name: buildah-image, value: 'mirror/buildah:{tag}'}}");
    let other = "{name: dockerfile, value: Other}";
    pipeline(&image("1"), other);
    insta::assert_snapshot!(pipeline(&image("2"), other), @r"
    ~ AgentBuild/reviewer
        pipeline.parameters ~buildah-image

    builds:
      * AgentBuild/reviewer: its definition changes

    0 to create, 1 to change, 0 to delete, 1 to build, 0 unchanged
    ");
    assert!(!pipeline(other, &image("2")).contains("builds:"));
    commit(&[("team/new.yaml", &BUILD.replace("name: reviewer", "name: new"))]);
    assert!(plan().contains("  * AgentBuild/new: it is new\n"), "{}", plan());
}
