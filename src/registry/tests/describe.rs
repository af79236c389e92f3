use super::*;

fn described(config: &str) -> Result<Value, String> {
    let build = [("strategy", "Dockerfile"), ("image", "registry.example.com/team/app")];
    let digest = Digest::of(b"manifest");
    describe(&build, (&digest, 7), b"{\"schemaVersion\": 2}", config.as_bytes())
}

#[test]
fn b3_rules_see_the_image_and_the_build() {
    let config = json!({
        "os": "linux",
        "config": {
            "User": "1000", "Env": ["PATH=/bin", "A=b=c", "ALONE", "A="], "WorkingDir": "/app",
            "ExposedPorts": {"8080/tcp": {}, "53/udp": {}, "99": {}, "90-91/tcp": {}}, "Labels": {"a": "b", "A": "c"},
        },
        "history": [{"created_by": "RUN make"}, {"empty_layer": true}],
    });
    let seen = described(&config.to_string()).expect("a description");
    assert_eq!(
        seen["build"],
        json!({"strategy": "Dockerfile", "image": "registry.example.com/team/app"})
    );
    let image = &seen["image"];
    assert_eq!(
        (&image["digest"], &image["size"], &image["user"]),
        (&json!(Digest::of(b"manifest").to_string()), &json!(7), &json!("1000"))
    );
    // The last one counts, or the first: rules see both.
    let of = |name: &str, value: &str| json!({"name": name, "value": value});
    let env = [of("PATH", "/bin"), of("A", "b=c"), of("ALONE", ""), of("A", "")];
    assert_eq!(image["env"], json!(env));
    let mut ports = image["ports"].as_array().expect("a list").clone();
    ports.sort_by_key(|port| port["port"].as_u64());
    assert_eq!(
        ports,
        [
            json!({"port": 53, "protocol": "udp"}),
            json!({"port": 90, "protocol": "tcp"}),
            json!({"port": 91, "protocol": "tcp"}),
            json!({"port": 99, "protocol": "tcp"}),
            json!({"port": 8080, "protocol": "tcp"}),
        ]
    );
    assert_eq!(image["labels"], json!({"a": "b", "A": "c"}));
    assert_eq!(image["history"], json!(["RUN make", ""]));
    assert_eq!((&image["config"], &image["manifest"]), (&config, &json!({"schemaVersion": 2})));
}

#[test]
fn b3_the_schema_has_what_rules_see_and_nothing_else() {
    let seen = described(r#"{"config": {"Env": ["A=b"], "ExposedPorts": {"80/tcp": {}}}}"#);
    let (seen, schema) = (seen.expect("a description"), schema());
    let names = |value: &Value| -> Vec<String> {
        value.as_object().expect("an object").keys().cloned().collect()
    };
    let of = |path: &str| names(schema.pointer(path).expect(path));
    assert_eq!(names(&seen), of("/properties"));
    let image = "/properties/image/properties";
    assert_eq!(names(&seen["image"]), of(image));
    for (list, name) in [("env", "env"), ("ports", "ports")] {
        let path = format!("{image}/{list}/items/properties");
        assert_eq!(names(&seen["image"][name][0]), of(&path));
    }
}

#[test]
fn b3_an_image_that_says_little_is_described_too() {
    for config in [
        "{}",
        r#"{"config": null, "history": null}"#,
        r#"{"config": {"Env": null, "ExposedPorts": null, "Labels": null, "User": null}}"#,
    ] {
        let image = &described(config).expect(config)["image"];
        assert_eq!(
            [&image["env"], &image["ports"], &image["labels"], &image["history"], &image["user"]],
            [&json!([]), &json!([]), &json!({}), &json!([]), &json!("")],
            "{config}"
        );
    }
}

#[test]
fn b3_what_a_program_could_read_in_another_way_is_refused() {
    for (config, said) in [
        (r#"{"config": {"env": ["TOKEN=x"]}}"#, r#"it has "env", which some read as Env"#),
        (r#"{"Config": {}}"#, r#"it has "Config", which some read as config"#),
        (r#"{"config": {"exposedports": {}}}"#, "which some read as ExposedPorts"),
        // Letters that are not of ASCII, and that Go takes for s and k.
        ("{\"config\": {\"U\u{17f}er\": \"0\"}}", "which some read as User"),
        (r#"{"config": {"Env": ["A=b"]}, "config": {}}"#, r#""config" is there twice"#),
        (r#"{"config": {"Labels": {"a": "b", "a": "c"}}}"#, r#""a" is there twice"#),
        (r#"{"config": []}"#, "config is no object"),
        (r#"{"config": {"Env": "A=b"}}"#, "Env is no list"),
        (r#"{"config": {"Env": [7]}}"#, "Env has something that is no text"),
        (r#"{"config": {"ExposedPorts": ["80/tcp"]}}"#, "ExposedPorts is no object"),
        (r#"{"config": {"ExposedPorts": {"http": {}}}}"#, r#"has "http", which is no port"#),
        (r#"{"config": {"ExposedPorts": {"+80": {}}}}"#, "which is no port"),
        (r#"{"config": {"ExposedPorts": {"70000/tcp": {}}}}"#, "which is no port"),
        (r#"{"config": {"ExposedPorts": {"9-8/tcp": {}}}}"#, "which is no port"),
        (r#"{"config": {"ExposedPorts": {"-8/tcp": {}}}}"#, "which is no port"),
        (r#"{"config": {"ExposedPorts": {"1-65535/tcp": {}}}}"#, "more than 1000 ports"),
        (r#"{"config": {"Labels": {"a": 7}}}"#, "Labels is no object of texts"),
        (r#"{"config": {"User": 0}}"#, "User is no text"),
        (r#"{"history": {}}"#, "history is no list"),
        (r#"{"history": [{"created_by": 7}]}"#, "created_by that is no text"),
        ("[]", "it is no object"),
        ("{", "the configuration: EOF"),
        (&format!("{}{}", "[".repeat(500), "]".repeat(500)), "recursion limit"),
    ] {
        let error = described(config).expect_err(config);
        assert!(error.contains(said), "{config}: {error}");
    }
}
