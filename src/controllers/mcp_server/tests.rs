//! Children of MCPServers.

use serde_json::{Value, json};

use super::*;
use crate::controllers::workload::assert_restricted;

fn defaults() -> Defaults {
    Defaults { pypi_index: Some("https://pypi.internal/simple".into()), ..Defaults::for_tests() }
}

fn server(spec: Value) -> MCPServer {
    let object = json!({"apiVersion": "convoke.dev/v1alpha1", "kind": "MCPServer", "spec": spec,
        "metadata": {"name": "t", "namespace": "team", "uid": "u1"}});
    serde_json::from_value(object).expect("MCPServer")
}

fn pod(spec: Value) -> Value {
    let server = server(spec);
    let image = image(&server, None, &defaults());
    let children = children(&server, image.as_deref(), &defaults());
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
fn t1_npm_packages_run_their_program() {
    let pod = pod(json!({"package": {"registry": "Npm", "name": "@scope/server"}}));
    assert_eq!(pod["containers"][0]["command"], json!(["/packages/node_modules/.bin/server"]));
    assert_eq!(
        pod["initContainers"][0]["command"].as_array().and_then(|c| c.last()),
        Some(&json!("@scope/server"))
    );
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
    let children = children(&server, Some("tools:1"), &defaults());
    let ports = children.service.get().and_then(|s| s.spec.as_ref()?.ports.clone()).expect("ports");
    assert_eq!(ports.iter().map(|p| p.port).collect::<Vec<_>>(), [8000, 80]);
    let pod = serde_json::to_value(children.deployment.get()).expect("json");
    assert_eq!(
        pod["spec"]["template"]["spec"]["containers"][0]["readinessProbe"]["tcpSocket"]["port"],
        8000
    );
}

#[test]
fn t6_a_remote_server_has_no_children() {
    let server = server(json!({"remote": {"url": "https://tools.example/mcp"}}));
    assert_eq!(image(&server, None, &defaults()), None);
    assert_eq!(children(&server, None, &defaults()).deployment, Wanted::Remove);
    assert_eq!(endpoint(&server, &defaults()), "https://tools.example/mcp");
}

#[test]
fn a_build_without_an_image_keeps_what_runs() {
    let server = server(json!({"buildRef": {"name": "b"}}));
    assert_eq!(image(&server, None, &defaults()), None);
    assert_eq!(children(&server, None, &defaults()).deployment, Wanted::Keep);
    assert_eq!(image(&server, Some("r/i@sha256:1"), &defaults()).as_deref(), Some("r/i@sha256:1"));
}

#[test]
fn a_package_that_becomes_a_build_does_not_run_the_bare_python_image() {
    let package = server(json!({"package": {"registry": "PyPI", "name": "x"}}));
    let before = children(&package, Some("python:1"), &defaults());
    assert_eq!(running_image(before.deployment.get().expect("deployment")), None);
    let build = server(json!({"buildRef": {"name": "b"}}));
    let before = children(&build, Some("r/i@sha256:1"), &defaults());
    let kept = running_image(before.deployment.get().expect("deployment"));
    assert_eq!(kept.as_deref(), Some("r/i@sha256:1"));
}
