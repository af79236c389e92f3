//! Children of MCPServers.

use serde_json::{Value, json};

use super::*;
use crate::controllers::workload::pod_template::assert_restricted;

fn defaults() -> Defaults {
    Defaults { pypi_index: Some("https://pypi.internal/simple".into()), ..Defaults::for_tests() }
}

fn server(spec: Value) -> MCPServer {
    let object = json!({"apiVersion": "convoke.dev/v1alpha1", "kind": "MCPServer", "spec": spec,
        "metadata": {"name": "t", "namespace": "team", "uid": "u1"}});
    serde_json::from_value(object).expect("MCPServer")
}

/// The children with this image.
fn with(server: &MCPServer, image: Option<&str>, defaults: &Defaults) -> Children {
    let resolved = Resolved { image: image.map(str::to_owned), ..Resolved::default() };
    children(server, &resolved, defaults)
}

fn pod(spec: Value) -> Value {
    let server = server(spec);
    let image = image(&server, None, &defaults());
    let children = with(&server, image.as_deref(), &defaults());
    let deployment = children.deployment.get().expect("deployment");
    assert_restricted(deployment);
    serde_json::to_value(deployment).expect("json")["spec"]["template"]["spec"].clone()
}

#[test]
fn t1_a_package_is_an_argument_of_the_installer_never_of_a_shell() {
    let pod = pod(
        json!({"package": {"registry": "PyPI", "name": "mcp-server-time; rm -rf /", "version": "1.0"}}),
    );
    let expected = json!([
        "python",
        "-m",
        "pip",
        "install",
        "--no-cache-dir",
        "--disable-pip-version-check",
        "--target",
        "/packages",
        "--index-url",
        "https://pypi.internal/simple",
        "--",
        "mcp-server-time; rm -rf /==1.0"
    ]);
    assert_eq!(pod["initContainers"][0]["command"], expected);
    assert_eq!(pod["containers"][0]["image"], "python:1");
}

#[test]
fn t1_an_index_without_tls_is_one_that_the_admin_trusts() {
    let server = server(json!({"package": {"registry": "PyPI", "name": "x"}}));
    let trusted = |index: &str| {
        let defaults = Defaults { pypi_index: Some(index.into()), ..Defaults::for_tests() };
        let children = with(&server, Some("python:1"), &defaults);
        let pod = serde_json::to_value(children.deployment.get()).expect("json");
        let command = &pod["spec"]["template"]["spec"]["initContainers"][0]["command"];
        let words: Vec<String> = serde_json::from_value(command.clone()).expect("words");
        let at = words.iter().position(|word| word == "--trusted-host")?;
        Some(words[at + 1].clone())
    };
    let host = "packages.convoke-system.svc";
    assert_eq!(trusted(&format!("http://{host}:8080/simple/")).as_deref(), Some(host));
    assert_eq!(trusted("HTTP://user:pass@pypi.internal/").as_deref(), Some("pypi.internal"));
    assert_eq!(trusted("https://pypi.internal/simple"), None);
    assert_eq!(trusted("/some/folder"), None);
}

#[test]
fn t1_stdio_is_bridged_apart_from_the_package() {
    let package = json!({"registry": "PyPI", "name": "mcp-server-time", "version": "1.0"});
    let env = json!([{"name": "LOCAL_TIMEZONE", "value": "Europe/Berlin"}]);
    let plain = pod(json!({"package": package, "env": env}));
    let stdio = pod(json!({"package": package, "env": env, "transport": "Stdio"}));
    assert_eq!(plain["containers"][0]["command"], json!(["/packages/bin/mcp-server-time"]));
    let command = stdio["containers"][0]["command"].as_array().expect("command");
    assert_eq!(command[..3], json!(["python", "-I", "-c"]).as_array().expect("list")[..]);
    let rest = json!(["/packages/.bridge", "8000", "/packages/bin/mcp-server-time"]);
    assert_eq!(command[4..], rest.as_array().expect("list")[..]);
    let script = command[3].as_str().expect("script");
    assert!(!script.contains('$'), "Kubernetes expands it");

    let installs = stdio["initContainers"].as_array().expect("list");
    assert_eq!(installs[0], plain["initContainers"][0]);
    let words = installs[1]["command"].as_array().expect("command");
    assert!(words.windows(2).any(|pair| pair == [json!("--target"), json!("/packages/.bridge")]));
    let last = words.last().and_then(Value::as_str).expect("word");
    let locked = include_str!("../../../../scripts/lib/images/packages/bridge.in");
    assert_eq!(locked.lines().last(), Some(last), "the lock file of the bridge");
    // Otherwise nothing differs, the environment included: all of it is for the package's program.
    for (name, same) in [("env", true), ("volumeMounts", true), ("command", false)] {
        assert_eq!(stdio["containers"][0][name] == plain["containers"][0][name], same, "{name}");
    }
}

#[test]
fn t1_a_transport_that_is_named_though_it_is_the_default_changes_nothing() {
    for (spec, transport) in [
        (json!({"package": {"registry": "PyPI", "name": "x"}}), "StreamableHTTP"),
        (json!({"image": "tools:1"}), "StreamableHTTP"),
    ] {
        let mut named = spec.clone();
        named["transport"] = json!(transport);
        assert_eq!(pod(named), pod(spec));
    }
}

#[test]
fn t1_t2_what_convoke_sets_wins_in_an_object_that_is_older_than_the_rules() {
    let pypi = json!({"package": {"registry": "PyPI", "name": "x"}});
    let stdio = json!({"package": {"registry": "PyPI", "name": "x"}, "transport": "Stdio"});
    let npm = json!({"package": {"registry": "Npm", "name": "x"}});
    let tools = json!({"toolsString": "def f(): ..."});
    let image = json!({"image": "tools:1"});
    for (spec, name, ours) in [
        (&pypi, "PORT", true),
        (&pypi, "PYTHONPATH", true),
        (&stdio, "PYTHONPATH", true),
        (&npm, "PORT", true),
        (&npm, "PYTHONPATH", false),
        (&tools, "PORT", true),
        (&tools, "MCP_TOOLS_STRING", true),
        (&image, "PORT", true),
        (&image, "MCP_TOOLS_STRING", false),
        (&image, "PYTHONPATH", false),
        (&image, "HOME", false),
    ] {
        let mine = json!({"name": name, "value": "mine"});
        let mut with = spec.clone();
        with["env"] = json!([mine]);
        let pod = pod(with);
        // All containers, so those that install, too.
        assert_eq!(pod == self::pod(spec.clone()), ours, "{name}: {spec}");
        let env = pod["containers"][0]["env"].as_array().expect("env");
        assert_eq!(env.contains(&mine), !ours, "{name}: {spec}");
    }
}

#[test]
fn t1_npm_packages_run_their_program() {
    let pod = pod(json!({"package": {"registry": "Npm", "name": "@scope/server"}}));
    assert_eq!(pod["containers"][0]["command"], json!(["/packages/node_modules/.bin/server"]));
    assert_eq!(
        pod["initContainers"][0]["command"].as_array().and_then(|c| c.last()),
        Some(&json!("@scope/server"))
    );
}

#[test]
fn t1_a_program_of_another_name_gets_its_arguments_as_they_are() {
    let args = json!(["--root", "$(HOME)/x; rm -rf /", ""]);
    let command = |registry: &str, transport: &str| {
        let package = json!({"registry": registry, "name": "@scope/server", "program": "serve", "args": args});
        let pod = pod(json!({"package": package, "transport": transport}));
        let installs = pod["initContainers"].as_array().expect("list").len();
        (pod["containers"][0]["command"].as_array().expect("command").clone(), installs)
    };
    let rest = |program: &str| {
        let words = json!([program, "--root", "$$(HOME)/x; rm -rf /", ""]);
        words.as_array().expect("list").clone()
    };
    let (node, python) = ("/packages/node_modules/.bin/serve", "/packages/bin/serve");
    assert_eq!(command("Npm", "StreamableHTTP"), (rest(node), 1));
    assert_eq!(command("PyPI", "StreamableHTTP"), (rest(python), 1));
    let (bridged, installs) = command("PyPI", "Stdio");
    assert_eq!((&bridged[6..], installs), (&rest(python)[..], 2));
    // The bridge of Node packages is a script: nothing more is installed.
    let (bridged, installs) = command("Npm", "Stdio");
    assert_eq!((&bridged[5..], installs), (&rest(node)[..], 1));
    assert_eq!((&bridged[0], &bridged[1]), (&json!("node"), &json!("-e")));
    assert_eq!((&bridged[3], &bridged[4]), (&json!("--"), &json!("8000")));
    let script = bridged[2].as_str().expect("script");
    assert_eq!(
        script.replace("$$", "$"),
        include_str!("../bridge.js"),
        "Kubernetes expands $(NAME)"
    );
}

#[test]
fn t6_headers_are_those_of_the_spec() {
    let key = json!({"name": "s", "key": "k"});
    let remote = json!({"url": "https://t.example/mcp", "headersFrom": [{"name": "Authorization", "secretKeyRef": key}]});
    let names =
        |server: &MCPServer| headers(server).iter().map(|h| h.name.clone()).collect::<Vec<_>>();
    assert_eq!(names(&server(json!({"remote": remote}))), ["Authorization"]);
    assert_eq!(names(&server(json!({"image": "i"}))), [""; 0]);
}

#[test]
fn t2_tools_are_a_variable_on_the_agent_image() {
    let pod = pod(json!({"toolsString": "def f(): return '$(HOME)'"}));
    assert_eq!(pod["containers"][0]["image"], "agent:1");
    let env = pod["containers"][0]["env"].as_array().expect("env");
    assert!(
        env.contains(&json!({"name": "MCP_TOOLS_STRING", "value": "def f(): return '$$(HOME)'"}))
    );
}

#[test]
fn t3_t4_service_and_readiness_by_connection() {
    let server = server(json!({"image": "tools:1"}));
    let children = with(&server, Some("tools:1"), &defaults());
    let ports = children.service.get().and_then(|s| s.spec.as_ref()?.ports.clone()).expect("ports");
    assert_eq!(ports.iter().map(|p| p.port).collect::<Vec<_>>(), [8000, 80]);
    let pod = serde_json::to_value(children.deployment.get()).expect("json");
    let main = &pod["spec"]["template"]["spec"]["containers"][0];
    assert_eq!(main["readinessProbe"]["tcpSocket"]["port"], 8000);
    assert_eq!(main["startupProbe"]["failureThreshold"], 300);
}

#[test]
fn t6_a_remote_server_has_no_children() {
    let server = server(json!({"remote": {"url": "https://tools.example/mcp"}}));
    assert_eq!(image(&server, None, &defaults()), None);
    assert_eq!(with(&server, None, &defaults()).deployment, Wanted::Remove);
    assert_eq!(endpoint(&server, &defaults()), "https://tools.example/mcp");
}

#[test]
fn a10_a_build_without_an_image_keeps_what_runs() {
    let server = server(json!({"buildRef": {"name": "b"}}));
    assert_eq!(image(&server, None, &defaults()), None);
    assert_eq!(with(&server, None, &defaults()).deployment, Wanted::Keep);
    assert_eq!(image(&server, Some("r/i@sha256:1"), &defaults()).as_deref(), Some("r/i@sha256:1"));
    let (image, build) = (Some("r/i@sha256:1".into()), Some("b".into()));
    let resolved = Resolved { image, image_build: build, ..Resolved::default() };
    let made = children(&server, &resolved, &defaults());
    let meta = &made.deployment.get().expect("a Deployment").metadata;
    let annotations = meta.annotations.as_ref().expect("annotations");
    assert_eq!(annotations.get("convoke.dev/build").map(String::as_str), Some("b"));
}
