use super::*;

#[path = "schema_builds.rs"]
mod builds;

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
fn t1_stdio_is_for_packages() {
    let refused = [("/spec/transport".to_owned(), code::RULE)];
    let package = |registry: &str| json!({"package": {"registry": registry, "name": "x"}});
    for (mut spec, ok) in [
        (package("PyPI"), true),
        (package("Npm"), true),
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
        ("AGENT_CONFIG_HASH", false),
        ("MODEL_API_URL", false),
        ("MODEL_API_HEADERS", false),
        ("MODEL_API_HEADER_0", false),
        ("MCP_SERVERS", false),
        ("MCP_SERVER_SEARCH_URL", false),
        ("MCP_SERVER_SEARCH_HEADER_0", false),
        ("PEER_AGENTS", false),
        ("PEER_AGENT_WRITER_CARD_URL", false),
        ("AGENT_NAMES", true),
        ("MODEL_NAME", true),
        ("OPENAI_BASE_URL", true),
        ("MEMORY_REDIS_URL", true),
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
        "config": {"reload": "Rollout", "debugMemoryEndpoints": false,
            "agenticLoop": {"maxSteps": 5, "enableTools": true, "enableDelegation": true, "maxSeconds": 300}}});
    assert_eq!(canonical, expected);
    assert_eq!(schemas.canonical(Kind::Agent, &canonical).as_ref(), Ok(&expected));
}

#[test]
fn a_text_stands_for_a_name() {
    let mut spec =
        json!({"modelAPI": "m", "mcpServers": ["a", {"name": "b", "tools": ["t"]}], "image": "i"});
    Schemas::new().expand(Kind::Agent, &mut spec);
    assert_eq!(
        spec,
        json!({"modelAPI": {"name": "m"}, "mcpServers": [{"name": "a"}, {"name": "b", "tools": ["t"]}], "image": "i"})
    );
    // Nothing is added to what says nothing of tool servers, and what is no list of them is left to the schema.
    for spec in [json!({"image": "i"}), json!({"mcpServers": "a"}), json!({"env": ["A"]})] {
        let mut expanded = spec.clone();
        Schemas::new().expand(Kind::Agent, &mut expanded);
        assert_eq!(expanded, spec);
    }
}

#[test]
fn a2_a_number_is_the_same_with_and_without_a_fraction() {
    let schemas = Schemas::new();
    let canonical = |temperature: Value| {
        let spec =
            json!({"modelAPI": {"name": "m"}, "modelParameters": {"temperature": temperature}});
        assert_eq!(findings(Kind::Agent, spec.clone()), []);
        schemas.canonical(Kind::Agent, &spec).expect("canonical")
    };
    assert_eq!(canonical(json!(1)), canonical(json!(1.0)));
    assert_ne!(canonical(json!(1)), canonical(json!(0.2)));
}

#[test]
fn a2_values_of_agents_that_are_not_allowed_are_refused_with_their_place() {
    let skill = |id: &str| json!({"id": id, "name": "N", "description": "D"});
    let redis = json!({"urlFrom": {"secretKeyRef": {"name": "redis", "key": "url"}}});
    for (field, value, at, code) in [
        (
            "modelParameters",
            json!({"temperature": 2.1}),
            "/spec/modelParameters/temperature",
            code::VALUE,
        ),
        ("modelParameters", json!({"topP": -0.1}), "/spec/modelParameters/topP", code::VALUE),
        ("modelParameters", json!({"seed": 0.5}), "/spec/modelParameters/seed", code::TYPE),
        (
            "config",
            json!({"agenticLoop": {"maxSeconds": 3601}}),
            "/spec/config/agenticLoop/maxSeconds",
            code::VALUE,
        ),
        ("config", json!({"reload": "hot"}), "/spec/config/reload", code::VALUE),
        ("config", json!({"memory": {"type": "Redis"}}), "/spec/config/memory", code::RULE),
        ("config", json!({"memory": {"redis": redis}}), "/spec/config/memory", code::RULE),
        ("a2a", json!({"skills": [skill("x"), skill("x")]}), "/spec/a2a/skills/1", code::VALUE),
        (
            "a2a",
            json!({"skills": [{"id": "x", "name": "N"}]}),
            "/spec/a2a/skills/0",
            code::MISSING_FIELD,
        ),
        ("a2a", json!({"iconUrl": "ftp://x.example"}), "/spec/a2a/iconUrl", code::VALUE),
        (
            "telemetry",
            json!({"endpoint": "collector:4318"}),
            "/spec/telemetry/endpoint",
            code::VALUE,
        ),
        (
            "healthCheck",
            json!({"startupSeconds": 0}),
            "/spec/healthCheck/startupSeconds",
            code::VALUE,
        ),
        (
            "mcpServers",
            json!([{"name": "s", "tools": ["a"], "requireApproval": ["b"]}]),
            "/spec/mcpServers/0/requireApproval",
            code::RULE,
        ),
        (
            "mcpServers",
            json!([{"name": "s", "tools": []}]),
            "/spec/mcpServers/0/tools",
            code::VALUE,
        ),
    ] {
        let mut spec = json!({"modelAPI": {"name": "m"}});
        spec[field] = value;
        assert_eq!(findings(Kind::Agent, spec.clone()), [(at.to_owned(), code)], "{spec}");
    }
}

#[test]
fn a2_what_agents_may_say_is_accepted_whole() {
    let spec = json!({
        "modelAPI": {"name": "m"},
        "providerSecretRef": {"name": "openai", "key": "api-key"},
        "modelParameters": {"temperature": 0.2, "topP": 1, "maxTokens": 1024, "presencePenalty": -0.5,
            "frequencyPenalty": 0, "seed": 1, "stopSequences": ["END"], "timeoutSeconds": 60},
        "mcpServers": [{"name": "s", "tools": ["a", "b"], "requireApproval": ["b"]}, {"name": "t", "requireApproval": ["c"]}],
        "config": {"reload": "Hot", "debugMemoryEndpoints": true, "agenticLoop": {"maxSeconds": 60, "maxTokens": 9000},
            "memory": {"type": "Redis", "redis": {"urlFrom": {"secretKeyRef": {"name": "redis", "key": "url"}}}}},
        "a2a": {"version": "1.2.0", "provider": {"organization": "O", "url": "https://o.example"},
            "iconUrl": "https://o.example/i.png", "documentationUrl": "https://o.example/docs",
            "skills": [{"id": "x", "name": "X", "description": "D", "tags": ["a"], "examples": ["e"]}]},
        "telemetry": {"endpoint": "http://collector:4318"},
        "healthCheck": {"startupSeconds": 30},
    });
    assert_eq!(findings(Kind::Agent, spec), []);
}

#[test]
fn m1_m3_t6_configurations_and_headers_are_checked_offline() {
    let header = |name: &str| json!([{"name": name, "secretKeyRef": {"name": "s", "key": "k"}}]);
    let url = "https://x.example";
    for (name, ok) in
        [("Authorization", true), ("x-api-key", true), ("Host", false), ("content-length", false)]
    {
        let external =
            json!({"mode": "External", "external": {"url": url, "headersFrom": header(name)}});
        let remote = json!({"remote": {"url": url, "headersFrom": header(name)}});
        for (kind, spec, block) in
            [(Kind::ModelAPI, external, "external"), (Kind::MCPServer, remote, "remote")]
        {
            let refused = vec![(format!("/spec/{block}/headersFrom/0/name"), code::RULE)];
            let expected = if ok { vec![] } else { refused };
            assert_eq!(findings(kind, spec), expected, "{name}");
        }
    }
    let key = json!({"name": "c", "key": "config.yaml"});
    for (proxy, at) in [
        (json!({"configYaml": {"inline": "model_list: []"}, "models": ["a"]}), None),
        (json!({"configYaml": {"configMapKeyRef": key}}), None),
        (json!({"configYaml": {"secretKeyRef": key}}), None),
        (json!({"configYaml": {}}), Some("/spec/proxy/configYaml")),
        (
            json!({"configYaml": {"inline": "a: b", "secretKeyRef": key}}),
            Some("/spec/proxy/configYaml"),
        ),
        (
            json!({"configYaml": {"inline": "a: b"}, "provider": "openai"}),
            Some("/spec/proxy/provider"),
        ),
        (json!({"apiKeyFrom": {"secretKeyRef": key}, "provider": "openai"}), None),
        (json!({"apiKeyFrom": {"secretKeyRef": key}, "apiBase": "https://x.example"}), None),
        (json!({"apiKeyFrom": {"secretKeyRef": key}, "configYaml": {"inline": "a: b"}}), None),
        (json!({"apiKeyFrom": {"secretKeyRef": key}, "models": ["gpt-5", "openai/*"]}), None),
        // An agent's model would say who gets the key.
        (json!({"apiKeyFrom": {"secretKeyRef": key}}), Some("/spec/proxy/apiKeyFrom")),
        (
            json!({"apiKeyFrom": {"secretKeyRef": key}, "models": ["gpt-5", "*"]}),
            Some("/spec/proxy/apiKeyFrom"),
        ),
        (
            json!({"apiKeyFrom": {"secretKeyRef": key}, "models": ["open*/gpt-5"]}),
            Some("/spec/proxy/apiKeyFrom"),
        ),
    ] {
        let spec = json!({"mode": "Proxy", "proxy": proxy});
        let expected: Vec<_> = at.map(|at| (at.to_owned(), code::RULE)).into_iter().collect();
        assert_eq!(findings(Kind::ModelAPI, spec.clone()), expected, "{spec}");
    }
}
