//! (pure) Pipeline templates (B3): what `template.json` says, and what a template may use.
//!
//! A template is the ConfigMap `pipeline-template-<mode>` with the key `template.json`. Each of its steps names a ConfigMap with
//! the key `task-spec.yaml`: a complete Tekton TaskSpec. `resolve_template.rs` puts them together.
#![deny(clippy::disallowed_types, clippy::disallowed_methods)]

use std::collections::BTreeSet;
use std::fmt;

use serde::{Deserialize, Serialize};

use super::profile::StepProfile;
use super::template_error::TemplateError;

/// Key of the template in its ConfigMap.
pub const TEMPLATE_KEY: &str = "template.json";
/// Key of the TaskSpec in a step's ConfigMap.
pub const STEP_KEY: &str = "task-spec.yaml";
/// Key of the declared version of a step in its ConfigMap.
pub const VERSION_KEY: &str = "version";
/// Label with the value `true` on every ConfigMap that may be used as a step.
pub const STEP_LABEL: &str = "convoke.dev/step";
/// The most steps of a template.
const MAX_STEPS: usize = 32;

/// The workspace that all steps share.
pub const WORKSPACE_SOURCE: &str = "source";
/// The workspace that only the step that fills it and the steps after it see. For those after it, it takes the place of [`WORKSPACE_SOURCE`].
pub const WORKSPACE_AFTER_BUILD: &str = "after-build";
/// The workspace with the credentials for Git: only for the step that clones.
pub const WORKSPACE_GIT_AUTH: &str = "git-auth";
/// The workspace with the credentials for the registry: only for the step that pushes.
pub const WORKSPACE_PUSH_AUTH: &str = "push-auth";

/// The results that may name the digest of the image. The first that is there counts.
pub const DIGEST_RESULTS: [&str; 2] = ["IMAGE_DIGEST", "digest"];
/// The result that names the image.
pub const URL_RESULT: &str = "IMAGE_URL";
/// The result that names the digest of the base image.
pub const BASE_RESULT: &str = "BASE_DIGEST";
/// The result that names the digest of the list of packages that is attached to the image.
pub const SBOM_RESULT: &str = "SBOM_DIGEST";
/// The result that names the digest of the layers that were kept.
pub const CACHE_RESULT: &str = "CACHE_DIGEST";

/// The result in which a step tells why it refuses an image, as one line.
pub const FINDING_RESULT: &str = "FINDING";

/// Parameters whose values come from the AgentBuild and its commit. A TaskSpec gets those that it declares.
pub const FROM_SPEC: [(&str, ParameterType); 21] = [
    ("repo-url", ParameterType::Text),
    ("revision", ParameterType::Text),
    ("subfolder", ParameterType::Text),
    ("dockerfile", ParameterType::Text),
    ("image", ParameterType::Text),
    ("tag", ParameterType::Text),
    ("key-tag", ParameterType::Text),
    ("insecure", ParameterType::Text),
    ("output-registry", ParameterType::Text),
    ("build-args", ParameterType::List),
    ("strategy", ParameterType::Text),
    ("base-image", ParameterType::Text),
    ("base-images", ParameterType::List),
    ("append-into", ParameterType::Text),
    ("append-command", ParameterType::List),
    ("append-user", ParameterType::Text),
    ("append-lock-file", ParameterType::Text),
    ("append-platform", ParameterType::Text),
    ("layer-cache", ParameterType::Text),
    ("cache-tag", ParameterType::Text),
    ("cache-digest", ParameterType::Text),
];

/// The parameter for Convoke's own image. Unless the template sets it, it is the image of the operator.
pub const CONVOKE_IMAGE: &str = "convoke-image";
/// The longest declared version.
const MAX_VERSION: usize = 64;

/// Name of the ConfigMap of a mode's template.
#[must_use]
pub fn config_map_name(mode: &str) -> String {
    format!("pipeline-template-{mode}")
}

/// `template.json`.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Template {
    /// Name, for people.
    pub name: String,
    /// What it is for.
    #[serde(default)]
    pub description: String,
    /// Its declared version. It counts in the operator's namespace only: the build key then has it in place of the template's text.
    #[serde(default)]
    pub version: Option<String>,
    /// The steps, in the order in which they run.
    pub steps: Vec<TemplateStep>,
    /// Parameters that must have a value which is not empty.
    #[serde(default)]
    pub required_parameters: Vec<String>,
    /// Parameters of every step that declares them.
    #[serde(default)]
    pub global_parameters: Vec<Parameter>,
    /// Conditions of every step.
    #[serde(default)]
    pub when: Vec<When>,
    /// Whether an AgentBuild may not name steps of its own.
    #[serde(default)]
    pub fixed_steps: bool,
    /// Parameters that an AgentBuild may not set.
    #[serde(default)]
    pub fixed_parameters: Vec<String>,
    /// Whether images are attested before they count.
    #[serde(default)]
    pub provenance: bool,
}

/// One step of a template.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TemplateStep {
    /// Name of the task in the pipeline.
    pub name: String,
    /// Name of the ConfigMap with its TaskSpec.
    pub config_map: String,
    /// Whether it runs. Default true.
    #[serde(default = "yes")]
    pub enabled: bool,
    /// What it does.
    #[serde(default)]
    pub description: String,
    /// Its parameters; they win over the template's globals.
    #[serde(default)]
    pub parameters: Vec<Parameter>,
    /// It runs only when all of these hold.
    #[serde(default)]
    pub when: Vec<When>,
}

fn yes() -> bool {
    true
}

/// A parameter and its value.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Parameter {
    /// Name, as the TaskSpec declares it.
    pub name: String,
    /// Value.
    pub value: ParameterValue,
    /// What it is for.
    #[serde(default)]
    pub description: String,
}

/// A value: a text, or a list of texts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum ParameterValue {
    /// A text.
    Text(String),
    /// A list of texts.
    List(Vec<String>),
}

impl When {
    /// Whether it holds for what `input` is.
    #[must_use]
    pub fn holds(&self, input: &str) -> bool {
        let is_in = self.values.iter().any(|value| value == input);
        match self.operator {
            Operator::In => is_in,
            Operator::NotIn => !is_in,
        }
    }
}

impl ParameterValue {
    /// Its type.
    #[must_use]
    pub const fn type_(&self) -> ParameterType {
        match self {
            Self::Text(_) => ParameterType::Text,
            Self::List(_) => ParameterType::List,
        }
    }

    /// Whether it is an empty text or an empty list.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        match self {
            Self::Text(text) => text.is_empty(),
            Self::List(list) => list.is_empty(),
        }
    }

    /// Whether it is free of `$(` and `$$`. Tekton and Kubernetes would replace what follows the one, Kubernetes makes one `$` of the other, and no escape
    /// works for both.
    #[must_use]
    pub fn is_plain(&self) -> bool {
        match self {
            Self::Text(text) => is_kept(text),
            Self::List(list) => list.iter().all(|text| is_kept(text)),
        }
    }
}

/// Whether a step gets a text as it is written.
fn is_kept(text: &str) -> bool {
    !text.contains("$(") && !text.contains("$$")
}

/// The type of a parameter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ParameterType {
    /// Tekton's `string`.
    Text,
    /// Tekton's `array`.
    List,
}

impl fmt::Display for ParameterType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Text => "string",
            Self::List => "array",
        })
    }
}

/// A condition of a step, as in Tekton.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct When {
    /// What is compared. It may hold `$(params.x)` of the template's globals, and of those from the AgentBuild that are part of the build key.
    pub input: String,
    /// `in` or `notin`.
    pub operator: Operator,
    /// What it is compared with.
    pub values: Vec<String>,
}

/// How a condition compares.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Operator {
    /// One of the values.
    In,
    /// None of the values.
    NotIn,
}

/// A step's ConfigMap, as far as it matters here.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StepSource {
    /// Whether it carries [`STEP_LABEL`].
    pub labelled: bool,
    /// The value of [`STEP_KEY`].
    pub task_spec: Option<String>,
    /// The value of [`VERSION_KEY`], if it counts: the build key then has it in place of the TaskSpec.
    pub version: Option<String>,
    /// The profile that counts for it.
    pub profile: Option<StepProfile>,
}

/// Whether a text is a declared version: 1 to 64 visible ASCII characters.
#[must_use]
pub fn is_version(text: &str) -> bool {
    (1..=MAX_VERSION).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic())
}

/// Reads `template.json`. Unknown fields, doubled names and too many steps are errors.
///
/// # Errors
/// [`TemplateError::TemplateInvalid`].
pub fn parse(config_map: &str, text: Option<&str>) -> Result<Template, TemplateError> {
    let invalid =
        |message: String| TemplateError::TemplateInvalid { config_map: config_map.into(), message };
    let text = text.ok_or_else(|| invalid(format!("no key {TEMPLATE_KEY}")))?;
    let template: Template =
        serde_json::from_str(text).map_err(|error| invalid(format!("{TEMPLATE_KEY}: {error}")))?;
    if let Some(message) = steps_problem(&template.steps) {
        return Err(invalid(message));
    }
    if template.version.as_ref().is_some_and(|version| !is_version(version)) {
        return Err(invalid(format!(
            "version must be 1 to {MAX_VERSION} visible ASCII characters"
        )));
    }
    if let Some(name) = doubled(template.global_parameters.iter().map(|p| p.name.as_str())) {
        return Err(invalid(set_twice(name)));
    }
    Ok(template)
}

/// What is wrong with a list of steps, as one sentence.
#[must_use]
pub fn steps_problem(steps: &[TemplateStep]) -> Option<String> {
    if !steps.iter().any(|step| step.enabled) {
        return Some("no step is enabled".into());
    }
    if steps.len() > MAX_STEPS {
        return Some(format!("more than {MAX_STEPS} steps"));
    }
    if let Some(name) = doubled(steps.iter().map(|step| step.name.as_str())) {
        return Some(format!("two steps are called {name}"));
    }
    // It begins the names of parameters, and those begin with a letter.
    let is_name =
        |name: &str| is_dns_label(name) && name.starts_with(|c: char| c.is_ascii_lowercase());
    if let Some(step) = steps.iter().find(|step| !is_name(&step.name)) {
        return Some(format!(
            "step name {:?} is no DNS label that begins with a letter",
            step.name
        ));
    }
    if let Some(step) = steps.iter().find(|step| !is_dns_subdomain(&step.config_map)) {
        return Some(format!("{:?} is no name of a ConfigMap", step.config_map));
    }
    let mut lists = steps.iter().map(|step| step.parameters.iter().map(|p| p.name.as_str()));
    lists.find_map(doubled).map(set_twice)
}

fn set_twice(name: &str) -> String {
    format!("parameter {name} is set twice in one place")
}

fn doubled<'n>(names: impl Iterator<Item = &'n str>) -> Option<&'n str> {
    let mut seen = BTreeSet::new();
    names.into_iter().find(|name| !seen.insert(*name))
}

fn is_dns_label(name: &str) -> bool {
    let inside = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    (1..=63).contains(&name.len())
        && name.bytes().all(inside)
        && !name.starts_with('-')
        && !name.ends_with('-')
}

fn is_dns_subdomain(name: &str) -> bool {
    name.len() <= 253 && name.split('.').all(is_dns_label)
}

#[cfg(test)]
#[path = "tests/template.rs"]
mod tests;
