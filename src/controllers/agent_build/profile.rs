//! (pure) Build profiles (B3): how steps that build run on the nodes of this cluster. The operator's option names one.
//!
//! A profile is for steps that ask for it: their ConfigMap has [`PROFILES_KEY`] beside the TaskSpec, and is in the operator's namespace, as the
//! template is. It changes how a Dockerfile is run, and nothing of what is built: so it is not in the build key.
#![deny(clippy::disallowed_types, clippy::disallowed_methods)]

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use serde::Deserialize;
use serde_json::{Value, json};

use super::pipeline_run::{key_values, runs};
use super::pod_policy;
use super::resolve_template::{ResolvedStep, ResolvedTemplate};
use crate::api::agent_build::AgentBuildSpec;

/// Key in a step's ConfigMap: for each profile, what it changes of the steps of the TaskSpec.
pub const PROFILES_KEY: &str = "profiles.yaml";

/// How steps that build run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum BuildProfile {
    /// As their TaskSpec says.
    #[default]
    Baseline,
    /// As root in a user namespace of their pod, with `SYS_ADMIN` in there.
    Userns,
    /// As a user, without seccomp and AppArmor.
    Rootless,
    /// As root, with everything.
    Privileged,
}

/// All profiles, by name.
const NAMES: [(BuildProfile, &str); 4] = [
    (BuildProfile::Baseline, "baseline"),
    (BuildProfile::Userns, "userns"),
    (BuildProfile::Rootless, "rootless"),
    (BuildProfile::Privileged, "privileged"),
];

impl fmt::Display for BuildProfile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = NAMES.iter().find(|(profile, _)| profile == self);
        f.write_str(name.map_or("", |(_, name)| name))
    }
}

impl FromStr for BuildProfile {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = NAMES.iter().find(|(_, name)| *name == text);
        found.map(|(profile, _)| *profile).ok_or_else(|| {
            let names = NAMES.map(|(_, name)| name).join(", ");
            format!("must be one of {names}")
        })
    }
}

/// What a step's ConfigMap says of profiles, for the profile that counts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StepProfile {
    /// The profile: never [`BuildProfile::Baseline`].
    pub profile: BuildProfile,
    /// The value of [`PROFILES_KEY`].
    pub changes: String,
}

impl StepProfile {
    /// That of a ConfigMap with this value of [`PROFILES_KEY`]. Nothing changes a step without one, nor [`BuildProfile::Baseline`].
    #[must_use]
    pub fn new(profile: BuildProfile, changes: Option<String>) -> Option<Self> {
        let changes = changes.filter(|_| profile != BuildProfile::Baseline)?;
        Some(Self { profile, changes })
    }

    /// The TaskSpec with what the profile changes.
    ///
    /// # Errors
    /// Each problem as a sentence: the text is not what it should be, or asks for more than the profile allows.
    pub fn applied(&self, task_spec: &Value) -> Result<Value, Vec<String>> {
        let options = serde_saphyr::options! { strict_booleans: true };
        let parsed: Result<BTreeMap<BuildProfile, Vec<Change>>, _> =
            serde_saphyr::from_str_with_options(&self.changes, options);
        let mut all = parsed.map_err(|error| vec![format!("{PROFILES_KEY}: {error}")])?;
        let changes = all
            .remove(&self.profile)
            .ok_or_else(|| vec![format!("{PROFILES_KEY} has no profile {}", self.profile)])?;
        let (mut changed, mut problems) = (task_spec.clone(), Vec::new());
        for Change { name, security_context, env } in changes {
            let path = format!("{PROFILES_KEY}: {}: {name}.securityContext", self.profile);
            let refused = pod_policy::refused_in_profile(self.profile, &security_context, &path);
            problems.extend(refused.iter().map(ToString::to_string));
            let steps = changed.get_mut("steps").and_then(Value::as_array_mut);
            let step = steps.into_iter().flatten().find(|step| step["name"] == name.as_str());
            let Some(Value::Object(step)) = step else {
                problems.push(format!("{PROFILES_KEY}: {}: no step {name}", self.profile));
                continue;
            };
            step.insert("securityContext".into(), security_context);
            let have = step.get("env").and_then(Value::as_array).cloned().unwrap_or_default();
            let is_kept = |one: &Value| !env.iter().any(|new| one["name"] == new.name.as_str());
            let mut variables: Vec<_> = have.into_iter().filter(is_kept).collect();
            variables.extend(env.iter().map(|new| json!({"name": new.name, "value": new.value})));
            if !variables.is_empty() {
                step.insert("env".into(), variables.into());
            }
        }
        if problems.is_empty() { Ok(changed) } else { Err(problems) }
    }
}

/// What a profile changes of a step.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Change {
    /// Name of the step in the TaskSpec.
    name: String,
    /// In place of the step's.
    security_context: Value,
    /// Besides those of the step, and in place of those of the same name.
    #[serde(default)]
    env: Vec<Variable>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Variable {
    name: String,
    value: String,
}

/// Gives the pod of a run what its steps need: a user namespace of its own.
pub fn to_pod(steps: &[&ResolvedStep], pod_template: &mut Value) {
    if steps.iter().any(|step| step.profile == BuildProfile::Userns) {
        pod_template["hostUsers"] = false.into();
    }
}

/// Whether the pod of a build has a user namespace of its own.
#[must_use]
pub fn in_user_namespace(
    template: &ResolvedTemplate,
    spec: &AgentBuildSpec,
    registry: &str,
) -> bool {
    let values = key_values(spec, registry);
    let mut steps = template.steps.iter().filter(|step| runs(step, &values));
    steps.any(|step| step.profile == BuildProfile::Userns)
}

#[cfg(test)]
#[path = "tests/profile.rs"]
mod tests;
