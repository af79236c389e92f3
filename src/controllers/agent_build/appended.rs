//! (pure) What `spec.append` gives to the parameters of build steps (B11).
#![deny(clippy::disallowed_types, clippy::disallowed_methods)]

use super::base_images::{BASE_IMAGES, follows};
use super::template::ParameterValue;
use crate::api::agent_build::{AgentBuildSpec, BuildAppend, BuildStrategy};

/// The parameter with the base image.
pub const BASE_IMAGE: &str = "base-image";
/// The parameter with the lock file. Empty: no packages are installed.
pub const LOCK_FILE: &str = "append-lock-file";
/// The parameter with the platform. Empty: that of the node.
pub const PLATFORM: &str = "append-platform";

/// To what the folder is appended; `None` with another strategy.
#[must_use]
pub fn appended(spec: &AgentBuildSpec) -> Option<&BuildAppend> {
    spec.append.as_ref().filter(|_| spec.strategy == BuildStrategy::Append)
}

/// The values that conditions may ask for. All of them are part of the build key.
#[must_use]
pub fn key_values(spec: &AgentBuildSpec) -> [(&'static str, ParameterValue); 3] {
    let append = appended(spec);
    [
        ("strategy", text(append.map(|_| "Append").or(Some("Dockerfile")))),
        (BASE_IMAGE, text(append.map(|append| append.base_image.as_str()))),
        (LOCK_FILE, text(append.and_then(|append| append.lock_file.as_deref()))),
    ]
}

/// The other values.
#[must_use]
pub fn other_values(spec: &AgentBuildSpec) -> [(&'static str, ParameterValue); 4] {
    let append = appended(spec);
    let command = append.map(|append| append.command.clone()).unwrap_or_default();
    [
        ("append-into", text(append.map(|append| append.into.as_str()))),
        ("append-command", ParameterValue::List(command)),
        ("append-user", text(append.and_then(|append| append.user.as_deref()))),
        (PLATFORM, text(append.and_then(|append| append.platform.as_deref()))),
    ]
}

/// What a spec asks for, in words, and the parameter that a step must have for it.
pub fn asks(spec: &AgentBuildSpec) -> impl Iterator<Item = (&'static str, &'static str)> {
    let append = appended(spec);
    let has = |of: fn(&BuildAppend) -> bool| append.is_some_and(of);
    [
        (append.is_some(), "spec.strategy is Append", BASE_IMAGE),
        (has(|append| append.lock_file.is_some()), "spec.append.lockFile is set", LOCK_FILE),
        (follows(spec), "spec.trigger.baseImage is true", BASE_IMAGES),
        (has(|append| append.platform.is_some()), "spec.append.platform is set", PLATFORM),
    ]
    .into_iter()
    .filter(|(asked, ..)| *asked)
    .map(|(_, what, name)| (what, name))
}

fn text(text: Option<&str>) -> ParameterValue {
    ParameterValue::Text(text.unwrap_or_default().to_owned())
}
