//! (pure) Keeps the steps after a build apart from the steps before them, which run foreign code (B3).
//!
//! A step whose TaskSpec declares the workspace [`WORKSPACE_AFTER_BUILD`] fills it. For the steps after that one it takes the place of
//! [`WORKSPACE_SOURCE`]: their TaskSpecs go on to say `source`. What ran before has the old workspace mounted, and never the new one.
#![deny(clippy::disallowed_types, clippy::disallowed_methods)]

use std::borrow::Cow;
use std::cmp::Ordering;

use serde_json::{Value, json};

use super::stage::Stage;
use super::template::{WORKSPACE_AFTER_BUILD, WORKSPACE_SOURCE};

/// Where the workspace is mounted. Not below `/workspace`: all steps may write to that folder, and who removes the place of a mount there removes
/// the mount from the containers that have it.
const MOUNT: &str = "/after-build";

/// The stages of the steps that run. If one of them fills the workspace, those after it have that one.
#[must_use]
pub fn separated<'s>(stages: impl Iterator<Item = &'s Stage>) -> Vec<Cow<'s, Stage>> {
    let all: Vec<_> = stages.collect();
    let Some(filling) = all.iter().position(|stage| fills(stage)) else {
        return all.into_iter().map(Cow::Borrowed).collect();
    };
    let one = |(at, stage): (usize, &&Stage)| {
        let mut stage = Stage::clone(stage);
        if at > filling {
            redirect_stage(&mut stage);
        }
        if let Some(declared) = stage.workspaces.get_mut(WORKSPACE_AFTER_BUILD) {
            *declared = json!({"name": WORKSPACE_AFTER_BUILD, "mountPath": MOUNT});
        }
        let seen: &[&str] = match at.cmp(&filling) {
            Ordering::Less => &[WORKSPACE_SOURCE],
            Ordering::Equal => &[WORKSPACE_SOURCE, WORKSPACE_AFTER_BUILD],
            Ordering::Greater => &[WORKSPACE_AFTER_BUILD],
        };
        let seen: Vec<_> =
            seen.iter().filter(|name| stage.workspaces.contains_key(**name)).collect();
        for step in &mut stage.steps {
            // Tekton mounts a workspace that steps name in those steps alone.
            let mut named = step["workspaces"].as_array().cloned().unwrap_or_default();
            named.extend(seen.iter().map(|name| json!({"name": name})));
            if !named.is_empty() {
                step["workspaces"] = named.into();
            }
        }
        Cow::Owned(stage)
    };
    all.iter().enumerate().map(one).collect()
}

/// Whether a stage fills the workspace.
#[must_use]
pub fn fills(stage: &Stage) -> bool {
    stage.workspaces.contains_key(WORKSPACE_AFTER_BUILD)
}

/// Gives a stage the new workspace in place of the old one.
fn redirect_stage(stage: &mut Stage) {
    if let Some(declared) = stage.workspaces.remove(WORKSPACE_SOURCE) {
        stage.workspaces.insert(WORKSPACE_AFTER_BUILD.into(), declared);
        let all = [&mut stage.steps, &mut stage.params, &mut stage.volumes];
        all.into_iter().flatten().for_each(redirect);
    }
}

/// Has all texts refer to the new workspace, those of programs, too: Tekton replaces it there.
fn redirect(value: &mut Value) {
    match value {
        Value::String(text) => {
            let (old, new) = (reference(WORKSPACE_SOURCE), reference(WORKSPACE_AFTER_BUILD));
            *text = text.replace(&old, &new);
        }
        Value::Array(all) => all.iter_mut().for_each(redirect),
        Value::Object(map) => map.values_mut().for_each(redirect),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// How a reference to a workspace begins.
fn reference(workspace: &str) -> String {
    format!("$(workspaces.{workspace}.")
}

#[cfg(test)]
#[path = "tests/after_build.rs"]
mod tests;
