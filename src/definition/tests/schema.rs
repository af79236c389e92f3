//! Structure and rules of the specs.

use super::*;

fn document(kind: &str, spec: &str) -> String {
    format!(
        "apiVersion: convoke.dev/v1alpha1\nkind: {kind}\nmetadata: {{name: x}}\nspec: {{{spec}}}\n"
    )
}

#[test]
fn g10_wrong_values_stand_at_their_place() {
    // `§` marks the place of the problem; it is no part of the document.
    for (kind, spec, expected) in [
        ("Agent", "§", "CVK0303 `spec.modelAPI` is missing"),
        ("Agent", "modelAPI§: ", "CVK0309 `spec.modelAPI` has no value"),
        ("Agent", "modelAPI: §~", "CVK0309 `spec.modelAPI` has no value"),
        (
            "Agent",
            "modelAPI: §5",
            "CVK0301 `spec.modelAPI` must be a name or an object with a name, not an integer",
        ),
        (
            "Agent",
            "modelAPI: §A_B",
            "CVK0307 `spec.modelAPI.name` must be a DNS label: lower-case letters, digits and '-'",
        ),
        (
            "Agent",
            "modelAPI: {name: a, §namespace: b}",
            "CVK0302 unknown field `namespace` in `spec.modelAPI`",
        ),
        (
            "Agent",
            "modelAPI: a, replicas: §1001",
            "CVK0305 `spec.replicas` must be between 0 and 1000, not 1001",
        ),
        (
            "Agent",
            "modelAPI: a, replicas: §-1",
            "CVK0305 `spec.replicas` must be between 0 and 1000, not -1",
        ),
        (
            "Agent",
            "modelAPI: a, replicas: §4294967297",
            "CVK0305 `spec.replicas` must be between -2147483648 and 2147483647",
        ),
        ("Agent", "modelAPI: a, suspend: §null", "CVK0309 `spec.suspend` has no value"),
        ("Agent", "modelAPI: a, image: §''", "CVK0306 `spec.image` must not be empty"),
        ("Agent", "modelAPI: a, image: §'x y'", "CVK0307 `spec.image` does not match ^\\S+$"),
        (
            "Agent",
            "modelAPI: a, mcpServers: [b, §b]",
            "CVK0308 `spec.mcpServers` has two items with name `b`",
        ),
        (
            "Agent",
            "modelAPI: a, env: [{name: A}, {name: §A}]",
            "CVK0308 `spec.env` has two items with name `A`",
        ),
        (
            "Agent",
            "modelAPI: a, agentNetwork: {access: [b, §b]}",
            "CVK0308 an item of `spec.agentNetwork.access` is given twice",
        ),
        (
            "Agent",
            "modelAPI: a, config: {memory: {type: §local}}",
            "CVK0304 `spec.config.memory.type` must be one of Local, not `local`",
        ),
        (
            "Agent",
            "modelAPI: a, resources: {limits: {cpu: §0.5}}",
            "CVK0301 `spec.resources.limits.cpu` must be an integer or a string, not a number with a fraction or exponent",
        ),
        (
            "Agent",
            "modelAPI: a, resources: {limits: {cpu: §3000000000}}",
            "CVK0305 `spec.resources.limits.cpu` must be between -2147483648 and 2147483647",
        ),
        (
            "Agent",
            "modelAPI: a, resources: {limits: {cpu: §~}}",
            "CVK0309 `spec.resources.limits.cpu` has no value",
        ),
        ("Agent", "modelAPI: a, env: §{A: b}", "CVK0301 `spec.env` must be a list, not an object"),
        (
            "Agent",
            "§modelAPI: a, image: x, buildRef: b",
            "CVK0310 image and buildRef exclude each other",
        ),
        (
            "Agent",
            "modelAPI: a, env: [{name: A}, §{name: B, value: x, valueFrom: {secretKeyRef: {name: s, key: k}}}]",
            "CVK0310 value and valueFrom exclude each other",
        ),
        (
            "AgentBuild",
            "source: {gitSync: {§url: x}}, output: {image: x}",
            "CVK0302 unknown field `url` in `spec.source.gitSync`",
        ),
        (
            "AgentBuild",
            "source: §{gitSync: {}, subfolder: ../x}, output: {image: x}",
            "CVK0310 subfolder must be relative, without '..' and '.git'",
        ),
        (
            "AgentBuild",
            "source: {gitSync: {}}, output: {image: x}, timeout: §5 minutes",
            "CVK0307 `spec.timeout` does not match ^([0-9]+(ms|s|m|h))+$",
        ),
        (
            "AgentBuild",
            "source: {gitSync: {}}, output: {image: x}, buildArgs: {A: §1}",
            "CVK0301 `spec.buildArgs.A` must be a string, not an integer",
        ),
        (
            "ModelAPI",
            "mode: §Proxi",
            "CVK0304 `spec.mode` must be one of Proxy, Hosted, External, not `Proxi`",
        ),
        (
            "ModelAPI",
            "§mode: Hosted",
            "CVK0310 mode Hosted needs the block hosted, and only that mode has it",
        ),
        (
            "ModelAPI",
            "§mode: Proxy, proxy: ~",
            "CVK0310 mode Proxy needs the block proxy, and only that mode has it",
        ),
        (
            "MCPServer",
            "§",
            "CVK0310 exactly one of package, toolsString, image, buildRef and remote is needed",
        ),
        (
            "MCPServer",
            "§image: a, remote: {url: 'https://x'}",
            "CVK0310 exactly one of package, toolsString, image, buildRef and remote is needed",
        ),
        (
            "MCPServer",
            "§remote: {url: 'https://x'}, replicas: 1",
            "CVK0310 a remote server runs no pods: replicas, resources and env do not apply",
        ),
    ] {
        let marked = document(kind, spec);
        let (before, _) = marked.split_once('§').expect("mark");
        let line = before.lines().count();
        let mut column = before.lines().last().expect("line").chars().count() + 1;
        if matches!(&expected[..7], "CVK0310" | "CVK0303") && before.ends_with("spec: {") {
            // The spec itself, which starts at its brace.
            column -= 1;
        }
        let catalog = load_one(&marked.replace('§', ""));
        assert_eq!(
            shown(&catalog),
            [format!("a.yaml:{line}:{column} {expected}")],
            "{kind} {spec}"
        );
        assert_eq!(broken(&catalog), [format!("{kind}/x")]);
        assert_eq!(catalog.problems[0].object, Some(format!("{kind}/x")));
    }
}

#[test]
fn every_source_of_an_mcp_server_passes_its_rule() {
    for spec in [
        "package: {registry: PyPI, name: a, version: 1.0.0}",
        "toolsString: 'def f(): pass'",
        "image: a",
        "buildRef: a",
        "remote: {url: 'https://x'}",
    ] {
        assert_eq!(shown(&load_one(&document("MCPServer", spec))), Vec::<String>::new(), "{spec}");
    }
}

#[test]
fn all_errors_come_at_once() {
    let catalog = load_one(&document(
        "Agent",
        "modelAPI: {}, image: 5, config: {agenticLoop: {maxSteps: 0}, xyz: 1}",
    ));
    assert_eq!(places(&catalog), ["4:18 CVK0303", "4:29 CVK0301", "4:65 CVK0305", "4:69 CVK0302"]);
    let hints: Vec<_> = catalog.problems.iter().map(|problem| problem.hint.as_deref()).collect();
    assert_eq!(hints[1], Some("put the value in quotes"));
    assert_eq!(
        hints[3],
        Some("its fields are agenticLoop, env, instructions, memory, instructionsFile")
    );
}

#[test]
fn an_error_in_an_aliased_value_stands_where_it_was_written() {
    let catalog =
        load_one(&agent("one", "  env: &e\n  - {name: A, value: 5}\n  config:\n    env: *e\n"));
    let found = shown(&catalog);
    assert_eq!(
        found,
        [
            "a.yaml:8:22 CVK0301 `spec.config.env[0].value` must be a string, not an integer",
            "a.yaml:8:22 CVK0301 `spec.env[0].value` must be a string, not an integer",
        ]
    );
}

#[test]
fn g10_an_unpinned_package_is_a_warning() {
    let catalog = load_one(&document("MCPServer", "package: {registry: Npm, name: '@a/b'}"));
    assert_eq!(places(&catalog), ["4:39 CVK0502"]);
    assert!(!catalog.has_errors());
    assert_eq!(names(&catalog), ["MCPServer/x"]);
}
