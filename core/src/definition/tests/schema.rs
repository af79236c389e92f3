use super::*;

fn findings(kind: Kind, spec: Value) -> Vec<(String, &'static str)> {
    Schemas::shared().check(kind, "x", &spec).into_iter().map(|f| (f.pointer, f.code)).collect()
}

#[test]
fn every_pattern_and_rule_of_our_crds_compiles() {
    let schemas = Schemas::new();
    assert_eq!(schemas.kinds.len(), Kind::ALL.len());
    for (kind, schema) in &schemas.kinds {
        assert!(
            schema.compiled.compilation_errors().is_empty(),
            "{kind}: {:?}",
            schema.compiled.compilation_errors()
        );
        let mut patterns = HashMap::new();
        collect_patterns(&schema.spec, &mut patterns);
        let count = schema.spec.to_string().matches("\"pattern\":").count();
        assert!(patterns.len() <= count && (count == 0 || !patterns.is_empty()));
    }
}

#[test]
fn g10_all_structural_errors_at_once() {
    let spec = json!({"modelApi": {"name": "m"}, "replicas": -1, "mcpServers": [{"name": "a"}, {"name": "a"}, {"nam": "b"}],
        "config": {"agenticLoop": {"maxSteps": 21, "enableTools": "yes"}}, "description": 5});
    let mut found = findings(Kind::Agent, spec);
    found.sort();
    assert_eq!(
        found,
        [
            ("/spec/config/agenticLoop/enableTools".to_owned(), code::TYPE),
            ("/spec/config/agenticLoop/maxSteps".to_owned(), code::VALUE),
            ("/spec/description".to_owned(), code::TYPE),
            ("/spec/mcpServers/1".to_owned(), code::VALUE),
            ("/spec/mcpServers/2/nam".to_owned(), code::UNKNOWN_FIELD),
            ("/spec/modelApi".to_owned(), code::UNKNOWN_FIELD),
            ("/spec/replicas".to_owned(), code::VALUE),
        ]
    );
}

#[test]
fn g10_rules_over_fields_are_checked_offline() {
    let spec = json!({"mode": "External", "proxy": {}, "external": {"url": "https://x.example"}});
    assert_eq!(findings(Kind::ModelAPI, spec), [("/spec".to_owned(), code::RULE)]);
    let spec = json!({"modelAPI": {"name": "m"}, "image": "a", "buildRef": {"name": "b"}});
    assert_eq!(findings(Kind::Agent, spec), [("/spec".to_owned(), code::RULE)]);
    let spec = json!({"modelAPI": {"name": "m"}, "env": [{"name": "A", "value": "x", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}]});
    assert_eq!(findings(Kind::Agent, spec), [("/spec/env/0".to_owned(), code::RULE)]);
}

#[test]
fn t1_stdio_is_for_packages_from_pypi() {
    let refused = [("/spec/transport".to_owned(), code::RULE)];
    let package = |registry: &str| json!({"package": {"registry": registry, "name": "x"}});
    for (mut spec, ok) in [
        (package("PyPI"), true),
        (package("Npm"), false),
        (json!({"toolsString": "def f(): ..."}), false),
        (json!({"image": "tools:1"}), false),
        (json!({"buildRef": {"name": "b"}}), false),
        (json!({"remote": {"url": "https://tools.example/mcp"}}), false),
    ] {
        spec["transport"] = json!("StreamableHTTP");
        assert_eq!(findings(Kind::MCPServer, spec.clone()), []);
        spec["transport"] = json!("Stdio");
        let expected = if ok { &refused[..0] } else { &refused };
        assert_eq!(findings(Kind::MCPServer, spec), expected);
    }
    let sse = json!({"image": "tools:1", "transport": "SSE"});
    assert_eq!(findings(Kind::MCPServer, sse), [("/spec/transport".to_owned(), code::VALUE)]);
}

#[test]
fn t2_tools_are_counted_in_bytes() {
    let refused = |code| vec![("/spec/toolsString".to_owned(), code)];
    for (text, expected) in [
        ("x".repeat(65_536), vec![]),
        ("x".repeat(65_537), refused(code::VALUE)),
        ("ä".repeat(32_768), vec![]),
        ("ä".repeat(32_768) + "x", refused(code::RULE)),
        ("\u{1f600}".repeat(65_536), refused(code::RULE)),
    ] {
        let (bytes, spec) = (text.len(), json!({"toolsString": text}));
        assert_eq!(findings(Kind::MCPServer, spec), expected, "{bytes} bytes");
    }
}

#[test]
fn names_that_convoke_sets_are_refused_offline() {
    for (name, ok) in [
        ("AGENT_NAME", false),
        ("AGENT_INSTRUCTIONS", false),
        ("AGENT_INSTRUCTIONS_FILE", false),
        ("AGENT_CONFIG_FILE", false),
        ("MODEL_API_URL", false),
        ("MCP_SERVERS", false),
        ("MCP_SERVER_SEARCH_URL", false),
        ("PEER_AGENTS", false),
        ("PEER_AGENT_WRITER_CARD_URL", false),
        ("AGENT_NAMES", true),
        ("MODEL_NAME", true),
        ("LOG_LEVEL", true),
    ] {
        let env = json!([{"name": "A", "value": "x"}, {"name": name, "value": "x"}]);
        for (spec, at) in [
            (json!({"modelAPI": {"name": "m"}, "env": env}), "/spec/env"),
            (json!({"modelAPI": {"name": "m"}, "config": {"env": env}}), "/spec/config/env"),
        ] {
            let expected = if ok { vec![] } else { vec![(at.to_owned(), code::RULE)] };
            assert_eq!(findings(Kind::Agent, spec), expected, "{name}");
        }
    }
}

#[test]
fn m1_m2_t1_t2_names_that_convoke_sets_in_servers_are_refused_offline() {
    let package = |registry: &str| json!({"package": {"registry": registry, "name": "x"}});
    let (pypi, npm) = (package("PyPI"), package("Npm"));
    let tools = json!({"toolsString": "def f(): ..."});
    let (image, build) = (json!({"image": "tools:1"}), json!({"buildRef": {"name": "b"}}));
    let proxy = json!({"mode": "Proxy", "proxy": {}});
    let hosted = json!({"mode": "Hosted", "hosted": {"model": "m"}});
    for (kind, spec, name, ok) in [
        (Kind::MCPServer, &pypi, "PORT", false),
        (Kind::MCPServer, &pypi, "PYTHONPATH", false),
        (Kind::MCPServer, &pypi, "MCP_TOOLS_STRING", true),
        (Kind::MCPServer, &npm, "PORT", false),
        (Kind::MCPServer, &npm, "PYTHONPATH", true),
        (Kind::MCPServer, &tools, "PORT", false),
        (Kind::MCPServer, &tools, "MCP_TOOLS_STRING", false),
        (Kind::MCPServer, &tools, "PYTHONPATH", true),
        (Kind::MCPServer, &image, "PORT", false),
        (Kind::MCPServer, &image, "PYTHONPATH", true),
        (Kind::MCPServer, &build, "PORT", false),
        (Kind::MCPServer, &image, "HOME", true),
        (Kind::MCPServer, &image, "REPORT", true),
        (Kind::ModelAPI, &proxy, "PROXY_API_BASE", false),
        (Kind::ModelAPI, &proxy, "PROXY_API_KEY", false),
        (Kind::ModelAPI, &proxy, "OLLAMA_HOST", true),
        (Kind::ModelAPI, &proxy, "LITELLM_LOG", true),
        (Kind::ModelAPI, &hosted, "OLLAMA_HOST", false),
        (Kind::ModelAPI, &hosted, "OLLAMA_MODELS", false),
        (Kind::ModelAPI, &hosted, "PROXY_API_BASE", true),
        (Kind::ModelAPI, &hosted, "OLLAMA_KEEP_ALIVE", true),
    ] {
        let mut spec = spec.clone();
        spec["env"] = json!([{"name": "A", "value": "x"}, {"name": name}]);
        let expected = if ok { vec![] } else { vec![("/spec/env".to_owned(), code::RULE)] };
        assert_eq!(findings(kind, spec.clone()), expected, "{name}: {spec}");
    }
}

#[test]
fn a13_a_literal_key_is_refused_with_its_place() {
    for (name, ok) in [
        ("OPENAI_API_KEY", false),
        ("github_token", false),
        ("Db_Password", false),
        ("_SECRET", false),
        ("TOKEN", false),
        ("MONKEY", true),
        ("MAX_TOKENS", true),
        ("API_KEY_FILE", true),
        ("KEYBOARD", true),
    ] {
        let env = json!([{"name": "A", "value": "x"}, {"name": name, "value": "x"}]);
        for (kind, spec, at) in [
            (Kind::Agent, json!({"modelAPI": {"name": "m"}, "env": env}), "/spec/env"),
            (
                Kind::Agent,
                json!({"modelAPI": {"name": "m"}, "config": {"env": env}}),
                "/spec/config/env",
            ),
            (Kind::MCPServer, json!({"image": "tools:1", "env": env}), "/spec/env"),
            (Kind::ModelAPI, json!({"mode": "Proxy", "proxy": {}, "env": env}), "/spec/env"),
        ] {
            let refused = vec![(format!("{at}/1/value"), code::RULE)];
            let expected = if ok { vec![] } else { refused };
            assert_eq!(findings(kind, spec), expected, "{name}");
        }
    }
    // Neither an empty value nor a reference to a value is a secret.
    let from =
        |source: &str| json!({"name": "API_KEY", "valueFrom": {source: {"name": "a", "key": "k"}}});
    for variable in [
        json!({"name": "API_KEY"}),
        json!({"name": "API_KEY", "value": ""}),
        from("secretKeyRef"),
        from("configMapKeyRef"),
    ] {
        assert_eq!(findings(Kind::MCPServer, json!({"image": "i", "env": [variable]})), []);
    }
}

#[test]
fn defaults_are_those_of_the_schema_and_of_the_type() {
    let schemas = Schemas::new();
    let spec = json!({"modelAPI": {"name": "m"}, "config": {"agenticLoop": {}}});
    let canonical = schemas.canonical(Kind::Agent, &spec).expect("canonical");
    let expected = json!({"modelAPI": {"name": "m"}, "waitForDependencies": true, "suspend": false,
        "config": {"agenticLoop": {"maxSteps": 5, "enableTools": true, "enableDelegation": true}}});
    assert_eq!(canonical, expected);
    assert_eq!(schemas.canonical(Kind::Agent, &canonical).as_ref(), Ok(&expected));
}

#[test]
fn a_text_stands_for_a_name() {
    let mut spec = json!({"modelAPI": "m", "mcpServers": ["a", {"name": "b"}], "image": "i"});
    Schemas::new().expand(Kind::Agent, &mut spec);
    assert_eq!(
        spec,
        json!({"modelAPI": {"name": "m"}, "mcpServers": [{"name": "a"}, {"name": "b"}], "image": "i"})
    );
}
