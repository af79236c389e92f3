//! (pure) What Pod Security must admit for the pod of a build: the level that its steps need. It decides where the pod runs.
#![deny(clippy::disallowed_types, clippy::disallowed_methods)]

use std::fmt;

use serde_json::Value;

use super::pipeline_run::{key_values, runs};
use super::resolve_template::ResolvedTemplate;
use crate::api::agent_build::AgentBuildSpec;

/// A level of Pod Security.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// No root and no capabilities.
    #[default]
    Restricted,
    /// What container runtimes give by default.
    Baseline,
    /// Everything.
    Privileged,
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Restricted => "restricted",
            Self::Baseline => "baseline",
            Self::Privileged => "privileged",
        })
    }
}

/// The capabilities that the level "baseline" lets a container add.
const BASELINE: [&str; 13] = [
    "AUDIT_WRITE",
    "CHOWN",
    "DAC_OVERRIDE",
    "FOWNER",
    "FSETID",
    "KILL",
    "MKNOD",
    "NET_BIND_SERVICE",
    "SETFCAP",
    "SETGID",
    "SETPCAP",
    "SETUID",
    "SYS_CHROOT",
];

/// The level that the steps of a template need which run for a spec.
#[must_use]
pub fn of_template(template: &ResolvedTemplate, spec: &AgentBuildSpec, registry: &str) -> Level {
    let values = key_values(spec, registry);
    let steps = template.steps.iter().filter(|step| runs(step, &values));
    of_steps(steps.flat_map(|step| &step.stage.steps))
}

/// The level that the spec of a PipelineRun needs.
#[must_use]
pub fn of_run(spec: &Value) -> Level {
    let tasks = spec["pipelineSpec"]["tasks"].as_array().into_iter().flatten();
    of_steps(tasks.filter_map(|task| task["taskSpec"]["steps"].as_array()).flatten())
}

fn of_steps<'a>(steps: impl IntoIterator<Item = &'a Value>) -> Level {
    steps.into_iter().map(|step| of(&step["securityContext"])).max().unwrap_or_default()
}

/// The level that a container with this security context needs. The allow-list of steps has nothing else that Pod Security looks at.
fn of(context: &Value) -> Level {
    let names = |list: &str| {
        let all = context["capabilities"][list].as_array().map(Vec::as_slice).unwrap_or_default();
        all.iter().map(|name| name.as_str().unwrap_or_default()).collect::<Vec<_>>()
    };
    let (added, dropped) = (names("add"), names("drop"));
    let profile = |field: &str| context[field]["type"].as_str();
    let is_unconfined = |field: &str| profile(field) == Some("Unconfined");
    if context["privileged"] == true
        || added.iter().any(|name| !BASELINE.contains(name))
        || is_unconfined("seccompProfile")
        || is_unconfined("appArmorProfile")
    {
        return Level::Privileged;
    }
    let is_restricted = context["runAsNonRoot"] == true
        && context["runAsUser"] != 0
        && context["allowPrivilegeEscalation"] == false
        && dropped.contains(&"ALL")
        && added.iter().all(|name| *name == "NET_BIND_SERVICE")
        && matches!(profile("seccompProfile"), Some("RuntimeDefault" | "Localhost"));
    if is_restricted { Level::Restricted } else { Level::Baseline }
}

#[cfg(test)]
#[path = "tests/needs.rs"]
mod tests;
