//! (pure) Packages: how they are installed when a pod starts, and run. All of it is arguments, never a shell's.
#![deny(clippy::disallowed_types, clippy::disallowed_methods)]

use crate::api::mcp_server::{PackageRegistry, PackageSource};
use crate::controllers::defaults::Defaults;

/// Where packages are installed at each start.
pub const FOLDER: &str = "/packages";
/// Where the bridge is. Its dependencies are not those of the package: both may need the same one, in two versions.
const BRIDGE_FOLDER: &str = "/packages/.bridge";
/// What serves over HTTP what a Python program says over stdio. `scripts/lib/images/packages/bridge.in` names the same.
const PYTHON_BRIDGE: &str = "mcp-proxy==0.13.0";
/// Runs that bridge and the program.
const BRIDGE_SCRIPT: &str = include_str!("bridge.py");
/// The same for a program of Node.js. It ends with its program, and starts it without a shell.
/// `scripts/lib/images/packages/npm.json` names the same.
const NODE_BRIDGE: &str = "mcp-proxy@6.7.19";

/// The installer's arguments.
#[must_use]
pub fn install(package: &PackageSource, defaults: &Defaults) -> Vec<String> {
    match package.registry {
        PackageRegistry::PyPI => pip(FOLDER, &wanted(package, "=="), defaults),
        PackageRegistry::Npm => npm(FOLDER, &wanted(package, "@"), defaults),
    }
}

/// The arguments that install the bridge for packages of a registry.
#[must_use]
pub fn install_bridge(registry: PackageRegistry, defaults: &Defaults) -> Vec<String> {
    match registry {
        PackageRegistry::PyPI => pip(BRIDGE_FOLDER, PYTHON_BRIDGE, defaults),
        PackageRegistry::Npm => npm(BRIDGE_FOLDER, NODE_BRIDGE, defaults),
    }
}

/// The program of a package, and its arguments.
#[must_use]
pub fn program(package: &PackageSource) -> Vec<String> {
    let named = package.program.as_deref();
    let name = named.unwrap_or_else(|| package.name.rsplit('/').next().unwrap_or_default());
    let path = match package.registry {
        PackageRegistry::PyPI => format!("{FOLDER}/bin/{name}"),
        PackageRegistry::Npm => format!("{FOLDER}/node_modules/.bin/{name}"),
    };
    std::iter::once(path).chain(package.args.iter().cloned()).collect()
}

/// The arguments that serve the program of a package on a port.
#[must_use]
pub fn bridge(package: &PackageSource, port: i32) -> Vec<String> {
    let port = port.to_string();
    let mut words = match package.registry {
        PackageRegistry::PyPI => {
            // Kubernetes expands `$(NAME)` in arguments.
            let script = BRIDGE_SCRIPT.replace('$', "$$");
            to_words(&["python", "-I", "-c", &script, BRIDGE_FOLDER, &port])
        }
        PackageRegistry::Npm => {
            let bridge = format!("{BRIDGE_FOLDER}/node_modules/.bin/mcp-proxy");
            // Without sessions, as the other bridge: any of several pods may answer.
            let how = ["--server", "stream", "--stateless", "--no-eventStore", "--"];
            let listen = ["node", &bridge, "--host", "0.0.0.0", "--port", &port];
            to_words(&[&listen[..], &how[..]].concat())
        }
    };
    words.extend(program(package));
    words
}

/// Name and version as an installer takes them.
fn wanted(package: &PackageSource, equals: &str) -> String {
    match &package.version {
        Some(version) => format!("{}{equals}{version}", package.name),
        None => package.name.clone(),
    }
}

fn npm(folder: &str, wanted: &str, defaults: &Defaults) -> Vec<String> {
    let mut words = to_words(&["npm", "install", "--prefix", folder, "--cache", "/tmp/npm"]);
    words.extend(to_words(&["--no-fund", "--no-audit"]));
    if let Some(registry) = &defaults.npm_registry {
        words.extend(to_words(&["--registry", registry]));
    }
    words.extend(to_words(&["--", wanted]));
    words
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
