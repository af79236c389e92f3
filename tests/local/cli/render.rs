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
