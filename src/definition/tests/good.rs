//! Good manifests of every kind.

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::api::agent::AgentSpec;
use crate::api::agent_build::AgentBuildSpec;
use crate::api::mcp_server::MCPServerSpec;
use crate::api::model_api::ModelAPISpec;
use crate::api::{Kind, ObjectId};
use crate::definition::{Catalog, Definition};

use super::*;

const ALL: &str = "\
# A model, a tool server, a build and an agent.
apiVersion: convoke.dev/v1alpha1
kind: ModelAPI
metadata: {name: gpt, labels: {team: a}}
spec:
  mode: Proxy
  proxy:
    models: [gpt-4o]
    provider: openai
    apiKeyFrom: {secretKeyRef: {name: keys, key: openai}}
---
apiVersion: convoke.dev/v1alpha1
kind: MCPServer
metadata: {name: search, annotations: {convoke.dev/prune: disabled, note: hello}}
spec:
  package: {registry: PyPI, name: mcp-search, version: 1.2.3}
  env:
    - name: LIMIT
      value: '5'
---
apiVersion: convoke.dev/v1alpha1
kind: AgentBuild
metadata: {name: helper-image}
spec:
  source: {gitSync: {}, subfolder: src/helper}
  output: {image: helper}
---
  # indented as a whole
  apiVersion: convoke.dev/v1alpha1
  kind: Agent
  metadata:
    name: helper
    namespace: team
  spec:
    buildRef: helper-image
    modelAPI: gpt
    mcpServers: [search, {name: files}]
    agentNetwork:
      access: [planner]
    resources: {limits: {cpu: 2, memory: 1Gi}}
    config:
      instructions: |
        Be brief.
      memory: {}
";

fn definition(catalog: &Catalog, kind: Kind, name: &str) -> Definition {
    (**catalog.definitions.get(&ObjectId::new(kind, name)).expect("definition")).clone()
}

/// What a live object's typed spec looks like: the API server fills defaults, the type reads them.
fn typed<T: Serialize + DeserializeOwned>(defaulted: Value) -> Value {
    serde_json::to_value(serde_json::from_value::<T>(defaulted).expect("typed spec"))
        .expect("value")
}

#[test]
fn g7_good_manifests_of_every_kind_become_definitions() {
    let catalog = load_one(ALL);
    assert_eq!(shown(&catalog), Vec::<String>::new());
    assert_eq!(
        names(&catalog),
        ["ModelAPI/gpt", "MCPServer/search", "AgentBuild/helper-image", "Agent/helper"]
    );
    assert_eq!((catalog.documents, catalog.files), (4, 1));
    assert!(!catalog.has_errors());
    let model = definition(&catalog, Kind::ModelAPI, "gpt");
    assert_eq!((model.path.as_str(), model.line, model.column), ("a.yaml", 2, 1));
    assert_eq!(model.labels.get("team").map(String::as_str), Some("a"));
    let server = definition(&catalog, Kind::MCPServer, "search");
    assert_eq!((server.line, server.column), (12, 1));
    assert_eq!(server.annotations.len(), 2);
    let agent = definition(&catalog, Kind::Agent, "helper");
    assert_eq!((agent.line, agent.column), (29, 3));
}

#[test]
fn the_canonical_spec_is_what_the_type_says() {
    let catalog = load_one(ALL);
    let model = definition(&catalog, Kind::ModelAPI, "gpt");
    assert_eq!(model.canonical_spec, typed::<ModelAPISpec>(model.spec.clone()));
    let server = definition(&catalog, Kind::MCPServer, "search");
    assert_eq!(server.canonical_spec, typed::<MCPServerSpec>(server.spec.clone()));

    let build = definition(&catalog, Kind::AgentBuild, "helper-image");
    let live = json!({
        "source": {"gitSync": {}, "subfolder": "src/helper"},
        "output": {"image": "helper", "tag": "{short}", "insecure": false},
        "dockerfile": "Dockerfile", "mode": "dev", "timeout": "20m", "trigger": {"onCommit": true},
    });
    assert_eq!(build.canonical_spec, typed::<AgentBuildSpec>(live));
    assert_eq!(
        build.spec,
        json!({"source": {"gitSync": {}, "subfolder": "src/helper"}, "output": {"image": "helper"}})
    );

    let agent = definition(&catalog, Kind::Agent, "helper");
    let live = json!({
        "buildRef": {"name": "helper-image"},
        "modelAPI": {"name": "gpt"},
        "mcpServers": [{"name": "search"}, {"name": "files"}],
        "agentNetwork": {"access": ["planner"], "expose": true},
        "resources": {"limits": {"cpu": 2, "memory": "1Gi"}},
        "config": {
            "instructions": "Be brief.\n",
            "memory": {"enabled": true, "type": "Local", "contextLimit": 6, "maxSessions": 1000, "maxSessionEvents": 500},
        },
        "waitForDependencies": true, "suspend": false,
    });
    assert_eq!(agent.canonical_spec, typed::<AgentSpec>(live));
}

#[test]
fn g10_references_carry_their_place() {
    let agent = definition(&load_one(ALL), Kind::Agent, "helper");
    let found: Vec<_> = agent
        .references
        .iter()
        .map(|to| format!("{}/{} {} {}:{}", to.kind, to.name, to.field, to.line, to.column))
        .collect();
    assert_eq!(
        found,
        [
            "ModelAPI/gpt /spec/modelAPI/name 36:15",
            "AgentBuild/helper-image /spec/buildRef/name 35:15",
            "MCPServer/search /spec/mcpServers/0/name 37:18",
            "MCPServer/files /spec/mcpServers/1/name 37:33",
            "Agent/planner /spec/agentNetwork/access/0 39:16",
        ]
    );
}

#[test]
fn a_null_is_as_good_as_no_field_where_a_field_may_be_missing() {
    let with = load_one(&agent("a", "  description:\n  config: ~\n  resources: null\n"));
    let without = load_one(&agent("a", ""));
    assert_eq!(shown(&with), Vec::<String>::new());
    assert_eq!(
        definition(&with, Kind::Agent, "a").spec,
        definition(&without, Kind::Agent, "a").spec
    );
}

#[test]
fn json_is_read_too() {
    let text = "{\n\t\"apiVersion\": \"convoke.dev/v1alpha1\", \"kind\": \"Agent\",\n\t\"metadata\": {\"name\": \"a\"},\n\t\"spec\": {\"modelAPI\": {\"name\": \"g\"}, \"description\": \"\\ud83d\\ude00 \\/ \\u00e4\", \"replicas\": 2}\n}\n";
    let catalog = load(&MemoryTree::new().file("x/a.json", text));
    assert_eq!(shown(&catalog), Vec::<String>::new());
    let spec = definition(&catalog, Kind::Agent, "a").spec;
    assert_eq!(spec, json!({"modelAPI": {"name": "g"}, "description": "😀 / ä", "replicas": 2}));
}

#[test]
fn anchors_work_within_a_document() {
    let text = agent("a", "  env: &env\n  - &one {name: A, value: x}\n  config:\n    env: *env\n");
    let catalog = load_one(&text);
    assert_eq!(shown(&catalog), Vec::<String>::new());
    let spec = definition(&catalog, Kind::Agent, "a").spec;
    assert_eq!(spec["env"], spec["config"]["env"]);
}

#[test]
fn every_prefix_of_a_good_file_is_safe() {
    // Whatever is cut off: no panic, and an object whose kind and name were still there is either defined,
    // or held by name, or its file is known to be in doubt.
    for end in 0..=ALL.len() {
        let text = &ALL[..end];
        let catalog = load_one(text);
        for (kind, name) in [
            ("ModelAPI", "gpt"),
            ("MCPServer", "search"),
            ("AgentBuild", "helper-image"),
            ("Agent", "helper"),
        ] {
            let id = ObjectId::new(Kind::parse(kind).expect("kind"), name);
            let whole = format!("name: {name}");
            let there =
                text.find(&format!("kind: {kind}\n")).is_some_and(|at| text[at..].contains(&whole));
            let accounted = catalog.definitions.contains_key(&id)
                || catalog.broken.contains_key(&id)
                || catalog.broken_paths.contains("a.yaml");
            assert!(!there || accounted, "{kind} lost at byte {end}: {:?}", shown(&catalog));
        }
        // What is defined is never beside an error in its file.
        assert!(catalog.definitions.is_empty() || !catalog.has_errors(), "byte {end}");
    }
}

#[test]
fn every_single_byte_changed_is_safe() {
    let bytes = [
        b'\0', b'\t', b'"', b'{', b'-', b':', b'&', b'*', b'!', b'%', b'\n', b'#', b' ', b'~', 0xff,
    ];
    for at in 0..ALL.len() {
        let byte = bytes[at % bytes.len()];
        let mut content = ALL.as_bytes().to_vec();
        content[at] = byte;
        let catalog = load(&MemoryTree::new().file("a.yaml", &content));
        // A changed name is another object; what must not happen is that one vanishes without a trace.
        assert!(
            catalog.definitions.len() == 4 || catalog.has_errors(),
            "byte {at} as {byte}: {:?}",
            names(&catalog)
        );
    }
}
