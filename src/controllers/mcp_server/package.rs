//! (pure) Packages: how a pod installs them when it starts, and runs them. Names and versions are arguments, never part of a
//! shell script.
#![deny(clippy::disallowed_types, clippy::disallowed_methods)]

use crate::api::mcp_server::{PackageRegistry, PackageSource};
use crate::controllers::defaults::Defaults;

/// The folder where packages are installed at each start.
pub const FOLDER: &str = "/packages";
/// The folder of the bridge of Python packages. The bridge and the package may need two versions of the same dependency.
const BRIDGE_FOLDER: &str = "/packages/.bridge";
/// The bridge of Python packages: it serves over HTTP what a program says over stdio. `scripts/lib/images/packages/bridge.in`
/// names the same.
const BRIDGE: &str = "mcp-proxy==0.13.0";
/// The script that runs the bridge and the program.
const BRIDGE_SCRIPT: &str = include_str!("bridge.py");
/// The bridge of Node packages. It needs nothing but Node.js.
const NODE_BRIDGE: &str = include_str!("bridge.js");

/// The installer's arguments.
#[must_use]
pub fn install(package: &PackageSource, defaults: &Defaults) -> Vec<String> {
    match package.registry {
        PackageRegistry::PyPI => pip(FOLDER, &wanted(package, "=="), defaults),
        PackageRegistry::Npm => {
            let mut words =
                to_words(&["npm", "install", "--prefix", FOLDER, "--cache", "/tmp/npm"]);
            words.extend(to_words(&["--no-fund", "--no-audit"]));
            if let Some(registry) = &defaults.npm_registry {
                words.extend(to_words(&["--registry", registry]));
            }
            words.extend(to_words(&["--", &wanted(package, "@")]));
            words
        }
    }
}

/// The arguments that install the bridge, if it must be installed.
#[must_use]
pub fn install_bridge(package: &PackageSource, defaults: &Defaults) -> Option<Vec<String>> {
    match package.registry {
        PackageRegistry::PyPI => Some(pip(BRIDGE_FOLDER, BRIDGE, defaults)),
        PackageRegistry::Npm => None,
    }
}

/// The program of a package, with its arguments. Kubernetes expands none of them.
#[must_use]
pub fn run(package: &PackageSource) -> Vec<String> {
    let own_name = || package.name.rsplit('/').next().unwrap_or_default();
    let name = package.program.as_deref().unwrap_or_else(own_name);
    let program = match package.registry {
        PackageRegistry::PyPI => format!("{FOLDER}/bin/{name}"),
        PackageRegistry::Npm => format!("{FOLDER}/node_modules/.bin/{name}"),
    };
    std::iter::once(program).chain(package.args.iter().map(|arg| verbatim(arg))).collect()
}

/// The arguments that serve the program of a package on a port.
#[must_use]
pub fn bridge(package: &PackageSource, port: i32) -> Vec<String> {
    let port = port.to_string();
    let mut words = match package.registry {
        PackageRegistry::PyPI => {
            let script = verbatim(BRIDGE_SCRIPT);
            to_words(&["python", "-I", "-c", &script, BRIDGE_FOLDER, &port])
        }
        PackageRegistry::Npm => to_words(&["node", "-e", &verbatim(NODE_BRIDGE), "--", &port]),
    };
    words.extend(run(package));
    words
}

/// An argument that reaches the container as it is: Kubernetes expands `$(NAME)`.
fn verbatim(arg: &str) -> String {
    arg.replace('$', "$$")
}

/// Name and version as an installer takes them.
fn wanted(package: &PackageSource, equals: &str) -> String {
    match &package.version {
        Some(version) => format!("{}{equals}{version}", package.name),
        None => package.name.clone(),
    }
}

fn pip(folder: &str, wanted: &str, defaults: &Defaults) -> Vec<String> {
    let mut words = to_words(&["python", "-m", "pip", "install", "--no-cache-dir"]);
    words.extend(to_words(&["--disable-pip-version-check", "--target", folder]));
    if let Some(index) = &defaults.pypi_index {
        words.extend(to_words(&["--index-url", index]));
        if let Some(host) = plain_http_host(index) {
            words.extend(to_words(&["--trusted-host", &host]));
        }
    }
    words.extend(to_words(&["--", wanted]));
    words
}

/// The host of a URL without TLS. pip ignores such an index unless it is told that the host is trusted; who set the
/// operator's flag has decided that.
fn plain_http_host(index: &str) -> Option<String> {
    let url: http::Uri = index.parse().ok()?;
    (url.scheme() == Some(&http::uri::Scheme::HTTP)).then(|| url.host().map(str::to_owned))?
}

fn to_words(parts: &[&str]) -> Vec<String> {
    parts.iter().map(|&part| part.to_owned()).collect()
}
