//! (pure) Step "desired" of an MCPServer: the children that run a package, a string of Python or an image, or none.
#![deny(clippy::disallowed_types, clippy::disallowed_methods)]

use k8s_openapi::api::core::v1::{Container, EnvVar};

use super::resolve::Resolved;
use crate::api::common::HeaderFrom;
use crate::api::mcp_server::{PackageRegistry, RESERVED_ENV, Transport};
use crate::api::{Kind, MCPServer};
use crate::cluster::meta;
use crate::controllers::children::{Children, Wanted};
use crate::controllers::defaults::Defaults;
use crate::controllers::mcp_server::package;
use crate::controllers::workload::built_image::with_build;
use crate::controllers::workload::pod_template::{
    DeploymentParts, container, deployment, literal, merge_unreserved_env, mount, port, resources,
    scratch, service, watch_port,
};
use crate::controllers::workload::rollout::with_deadline;

/// The port of every tool server.
const PORT: i32 = 8000;
/// Seconds that a start may take. Some servers install packages or load data when they start.
const STARTUP_SECONDS: i32 = 300;

/// Name of Deployment and Service.
#[must_use]
pub fn child_name(name: &str) -> String {
    meta::child_name("mcpserver", name, 0)
}

/// The address at which agents reach it.
#[must_use]
pub fn endpoint(server: &MCPServer, defaults: &Defaults) -> String {
    if let Some(remote) = &server.spec.remote {
        return remote.url.clone();
    }
    let name = child_name(server.metadata.name.as_deref().unwrap_or_default());
    let namespace = server.metadata.namespace.as_deref().unwrap_or_default();
    format!("http://{name}.{namespace}.svc.{}:{PORT}/mcp", defaults.cluster_domain)
}

/// The headers that agents send with each request.
#[must_use]
pub fn headers(server: &MCPServer) -> &[HeaderFrom] {
    server.spec.remote.as_ref().map(|remote| remote.headers_from.as_slice()).unwrap_or_default()
}

/// The image to run. `built` is what the AgentBuild made.
#[must_use]
pub fn image(server: &MCPServer, built: Option<&str>, defaults: &Defaults) -> Option<String> {
    let spec = &server.spec;
    if spec.remote.is_some() {
        return None;
    }
    match (&spec.image, &spec.build_ref, &spec.package) {
        (Some(image), _, _) => Some(image.clone()),
        (None, Some(_), _) => built.map(str::to_owned),
        (None, None, Some(package)) => Some(match package.registry {
            PackageRegistry::PyPI => defaults.python_image.clone(),
            PackageRegistry::Npm => defaults.node_image.clone(),
        }),
        (None, None, None) => Some(defaults.agent_image.clone()),
    }
}

/// All children of an MCPServer.
#[must_use]
pub fn children(server: &MCPServer, resolved: &Resolved, defaults: &Defaults) -> Children {
    let name = server.metadata.name.clone().unwrap_or_default();
    if server.spec.remote.is_some() {
        return Children::removed();
    }
    let meta = meta::child_meta(server, Kind::MCPServer, child_name(&name));
    let ports = [("http", PORT, PORT), ("http-80", 80, PORT)];
    Children {
        service: Wanted::Bring(service(meta, Kind::MCPServer, &name, &ports)),
        deployment: match &resolved.image {
            Some(image) => {
                let mut parts = parts(server, &name, image, defaults);
                parts.meta = with_build(parts.meta, resolved.image_build.as_deref());
                let deadline = server.spec.progress_deadline.as_deref();
                Wanted::Bring(with_deadline(deployment(parts), deadline))
            }
            None => Wanted::Keep,
        },
        ..Children::removed()
    }
}

fn parts(server: &MCPServer, name: &str, image: &str, defaults: &Defaults) -> DeploymentParts {
    let spec = &server.spec;
    let limits = resources(
        spec.resources.as_ref(),
        &[("cpu", "100m", "500m"), ("memory", "128Mi", "512Mi")],
    );
    let mut env = vec![literal("HOME", "/tmp"), literal("PORT", PORT.to_string())];
    let mut init = Vec::new();
    let mut volumes = Vec::new();
    let mut command = None;
    if let Some(package) = &spec.package {
        volumes.push(scratch("packages"));
        if package.registry == PackageRegistry::PyPI {
            env.push(literal("PYTHONPATH", package::FOLDER));
        }
        let mut install = |name: &str, command| {
            let env = merge_unreserved_env(env.clone(), &spec.env, RESERVED_ENV);
            let mut install = container(name, image, env, limits.clone());
            install.command = Some(command);
            add_packages(&mut install);
            init.push(install);
        };
        install("install", package::install(package, defaults));
        command = Some(package::run(package));
        if spec.transport == Some(Transport::Stdio) {
            if let Some(command) = package::install_bridge(package, defaults) {
                install("install-bridge", command);
            }
            command = Some(package::bridge(package, PORT));
        }
    } else if let Some(tools) = &spec.tools_string {
        env.push(literal("MCP_TOOLS_STRING", tools));
        command = Some(["python", "-m", "mcptools.server"].map(str::to_owned).to_vec());
    }
    let env: Vec<EnvVar> = merge_unreserved_env(env, &spec.env, RESERVED_ENV);
    let mut main = container("mcpserver", image, env, limits);
    main.command = command;
    main.ports = Some(vec![port("http", PORT)]);
    // GET /mcp may be refused by a healthy server: only the connection counts.
    watch_port(&mut main, PORT, STARTUP_SECONDS);
    if spec.package.is_some() {
        add_packages(&mut main);
    }
    DeploymentParts {
        meta: meta::child_meta(server, Kind::MCPServer, child_name(name)),
        kind: Kind::MCPServer,
        name: name.to_owned(),
        replicas: spec.replicas.unwrap_or(1),
        init,
        container: main,
        volumes,
    }
}

fn add_packages(container: &mut Container) {
    if let Some(mounts) = &mut container.volume_mounts {
        mounts.push(mount("packages", package::FOLDER, false));
    }
}

#[cfg(test)]
#[path = "tests/desired.rs"]
mod tests;
