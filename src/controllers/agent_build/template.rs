//! (pure) Pipeline templates (B3) and their parameters (B4).
//!
//! A template is ConfigMap `pipeline-template-<mode>` with the key `template.json`; each of its steps names a ConfigMap
//! with the key `task-spec.yaml`, a complete Tekton TaskSpec. Parameters, low to high: default of the TaskSpec, template
//! (its step before its globals), from the spec ([`FROM_SPEC`]).
#![deny(clippy::disallowed_types, clippy::disallowed_methods)]

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::key::Encoding;
use super::pod_policy;
pub use super::template_error::TemplateError;

/// Key of the template in its ConfigMap.
pub const TEMPLATE_KEY: &str = "template.json";
/// Key of the TaskSpec in a step's ConfigMap.
pub const STEP_KEY: &str = "task-spec.yaml";
/// Label with the value `true` on every ConfigMap that may be used as a step.
pub const STEP_LABEL: &str = "convoke.dev/step";
/// Most steps of a template.
const MAX_STEPS: usize = 32;

/// The workspace that all steps share.
pub const WORKSPACE_SOURCE: &str = "source";
/// The workspace with what Git asks for: only for the step that clones.
pub const WORKSPACE_GIT_AUTH: &str = "git-auth";
/// The workspace with what the registry asks for: only for the step that pushes.
pub const WORKSPACE_PUSH_AUTH: &str = "push-auth";

/// Results that name the digest of the image, best first.
pub const DIGEST_RESULTS: [&str; 2] = ["IMAGE_DIGEST", "digest"];
/// Result that names the image.
pub const URL_RESULT: &str = "IMAGE_URL";

/// Parameters whose values come from the AgentBuild and its commit. A TaskSpec gets those that it declares.
pub const FROM_SPEC: [(&str, Type); 9] = [
    ("repo-url", Type::Text),
    ("revision", Type::Text),
    ("subfolder", Type::Text),
    ("dockerfile", Type::Text),
    ("image", Type::Text),
    ("tag", Type::Text),
    ("key-tag", Type::Text),
    ("insecure", Type::Text),
    ("build-args", Type::List),
];

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

impl ParameterValue {
    fn type_(&self) -> Type {
        match self {
            Self::Text(_) => Type::Text,
            Self::List(_) => Type::List,
        }
    }

    fn is_empty(&self) -> bool {
        match self {
            Self::Text(text) => text.is_empty(),
            Self::List(list) => list.is_empty(),
        }
    }

    /// `$(` is refused: Tekton and then Kubernetes would replace what follows, and neither has an escape for both.
    #[must_use]
    pub fn is_plain(&self) -> bool {
        match self {
            Self::Text(text) => !text.contains("$("),
            Self::List(list) => list.iter().all(|text| !text.contains("$(")),
        }
    }
}

/// Type of a parameter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Type {
    /// Tekton's `string`.
    Text,
    /// Tekton's `array`.
    List,
}

impl fmt::Display for Type {
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
    /// What is compared; may hold `$(params.x)` and `$(tasks.x.results.y)`.
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
}

/// A template whose steps and parameters are known. What is left are the values from the spec.
#[derive(Debug, Clone, PartialEq)]
pub struct Resolved {
    /// The steps that run, in order.
    pub steps: Vec<ResolvedStep>,
    /// Hash over all of it, in hex.
    pub hash: String,
}

/// One step of a [`Resolved`] template.
#[derive(Debug, Clone, PartialEq)]
pub struct ResolvedStep {
    /// Name of the task.
    pub name: String,
    /// The TaskSpec, as it is.
    pub task_spec: Value,
    /// Values of its parameters; a parameter that is left to its default is not here.
    pub parameters: BTreeMap<String, Bound>,
    /// Conditions.
    pub when: Vec<When>,
    /// Names of the workspaces that it uses and that are there.
    pub workspaces: Vec<String>,
    /// Names of its results.
    pub results: Vec<String>,
}

/// Where the value of a parameter comes from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub enum Bound {
    /// From the AgentBuild and its commit: one of [`FROM_SPEC`].
    Spec,
    /// From the template.
    Template(ParameterValue),
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
    if !template.steps.iter().any(|step| step.enabled) {
        return Err(invalid("no step is enabled".into()));
    }
    if template.steps.len() > MAX_STEPS {
        return Err(invalid(format!("more than {MAX_STEPS} steps")));
    }
    if let Some(name) = doubled(template.steps.iter().map(|step| step.name.as_str())) {
        return Err(invalid(format!("two steps are called {name}")));
    }
    if let Some(step) = template.steps.iter().find(|step| !is_dns_label(&step.name)) {
        return Err(invalid(format!("step name {:?} is no DNS label", step.name)));
    }
    let mut config_maps = template.steps.iter().map(|step| &step.config_map);
    if let Some(name) = config_maps.find(|name| !is_dns_subdomain(name)) {
        return Err(invalid(format!("{name:?} is no name of a ConfigMap")));
    }
    let lists =
        template.steps.iter().map(|step| &step.parameters).chain([&template.global_parameters]);
    for list in lists {
        if let Some(name) = doubled(list.iter().map(|parameter| parameter.name.as_str())) {
            return Err(invalid(format!("parameter {name} is set twice in one place")));
        }
    }
    Ok(template)
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

/// Resolves a template with the ConfigMaps of its steps, by name. `build_args` says whether the AgentBuild has any:
/// then a step must take them.
///
/// # Errors
/// Every problem at once; never an empty list.
pub fn resolve(
    template: &Template,
    sources: &BTreeMap<String, StepSource>,
    namespaces: &str,
    build_args: bool,
) -> Result<Resolved, Vec<TemplateError>> {
    let mut errors = Vec::new();
    let mut steps = Vec::new();
    let mut declared_anywhere = BTreeSet::new();
    let mut set_anywhere: BTreeSet<&str> = FROM_SPEC.iter().map(|(name, _)| *name).collect();
    let globals: BTreeMap<_, _> =
        template.global_parameters.iter().map(|p| (p.name.as_str(), &p.value)).collect();
    set_anywhere
        .extend(globals.iter().filter(|(_, value)| !value.is_empty()).map(|(name, _)| *name));
    for step in template.steps.iter().filter(|step| step.enabled) {
        set_anywhere.extend(
            step.parameters.iter().filter(|p| !p.value.is_empty()).map(|p| p.name.as_str()),
        );
        match resolve_step(template, step, &globals, sources.get(&step.config_map), namespaces) {
            Ok((resolved, declared)) => {
                declared_anywhere.extend(declared);
                steps.push(resolved);
            }
            Err(more) => errors.extend(more),
        }
    }
    // Which parameters nobody declares is known only when every step could be read.
    if errors.is_empty() {
        let unknown = globals.keys().filter(|name| !declared_anywhere.contains(**name));
        errors.extend(unknown.map(|name| TemplateError::UnknownParameter {
            place: format!("no step of template {}", template.name),
            name: (*name).to_owned(),
        }));
        if build_args && !declared_anywhere.contains("build-args") {
            let place = format!("spec.buildArgs is set, but template {}", template.name);
            errors.push(TemplateError::UnknownParameter { place, name: "build-args".into() });
        }
        let results = || steps.iter().flat_map(|step| &step.results);
        if !results().any(|result| DIGEST_RESULTS.contains(&result.as_str())) {
            errors.push(TemplateError::NoDigestResult);
        }
    }
    let required = template.required_parameters.iter();
    errors.extend(required.filter(|name| !set_anywhere.contains(name.as_str())).map(|name| {
        TemplateError::MissingParameter {
            place: format!("template {}", template.name),
            name: name.clone(),
        }
    }));
    if !errors.is_empty() {
        return Err(errors);
    }
    let hash = hash(&steps);
    Ok(Resolved { steps, hash })
}

type StepAndDeclared = (ResolvedStep, Vec<String>);

fn resolve_step(
    template: &Template,
    step: &TemplateStep,
    globals: &BTreeMap<&str, &ParameterValue>,
    source: Option<&StepSource>,
    namespaces: &str,
) -> Result<StepAndDeclared, Vec<TemplateError>> {
    let name = || step.name.clone();
    let config_map = || step.config_map.clone();
    let place = || format!("step {}", step.name);
    let source = source.ok_or_else(|| {
        vec![TemplateError::StepNotFound {
            step: name(),
            config_map: config_map(),
            namespaces: namespaces.into(),
        }]
    })?;
    if !source.labelled {
        return Err(vec![TemplateError::StepNotAllowed { step: name(), config_map: config_map() }]);
    }
    let invalid = |message: String| vec![TemplateError::StepInvalid { step: name(), message }];
    let task_spec = parse_task_spec(source.task_spec.as_deref()).map_err(invalid)?;
    let mut errors: Vec<_> = pod_policy::refused(&task_spec)
        .into_iter()
        .map(|refused| TemplateError::PodNotAllowed { step: name(), refused: refused.to_string() })
        .collect();
    let declared = declared(&task_spec).map_err(invalid)?;
    let own: BTreeMap<_, _> = step.parameters.iter().map(|p| (p.name.as_str(), &p.value)).collect();
    errors.extend(
        own.keys().filter(|name| !declared.contains_key(**name)).map(|name| {
            TemplateError::UnknownParameter { place: place(), name: (*name).to_owned() }
        }),
    );
    let mut parameters = BTreeMap::new();
    for (name, declared) in &declared {
        let from_spec = FROM_SPEC.iter().find(|(known, _)| known == name);
        let from_template = own.get(name.as_str()).or_else(|| globals.get(name.as_str()));
        let (have, bound) = match (from_spec, from_template) {
            (Some((_, type_)), _) => (*type_, Bound::Spec),
            (None, Some(value)) => (value.type_(), Bound::Template((*value).clone())),
            (None, None) if declared.has_default => continue,
            (None, None) => {
                errors.push(TemplateError::MissingParameter { place: place(), name: name.clone() });
                continue;
            }
        };
        if have != declared.type_ {
            let want = declared.type_;
            errors.push(TemplateError::WrongParameterType {
                place: place(),
                name: name.clone(),
                want,
            });
        }
        if from_template.is_some_and(|value| !value.is_plain()) {
            errors.push(TemplateError::UnsafeValue { place: place(), name: name.clone() });
        }
        parameters.insert(name.clone(), bound);
    }
    let workspaces = workspaces(step, &task_spec, &mut errors);
    if !errors.is_empty() {
        return Err(errors);
    }
    let results = names(&task_spec, "results");
    let when = template.when.iter().chain(&step.when).cloned().collect();
    let resolved = ResolvedStep { name: name(), task_spec, parameters, when, workspaces, results };
    Ok((resolved, declared.into_keys().collect()))
}

/// Reads a TaskSpec. YAML's old spellings of booleans (`yes`, `on`) stay texts.
fn parse_task_spec(text: Option<&str>) -> Result<Value, String> {
    let text = text.ok_or_else(|| format!("its ConfigMap has no key {STEP_KEY}"))?;
    let options = serde_saphyr::options! { strict_booleans: true };
    let value: Value = serde_saphyr::from_str_with_options(text, options)
        .map_err(|error| format!("{STEP_KEY}: {error}"))?;
    match value.get("steps").and_then(Value::as_array) {
        Some(steps) if !steps.is_empty() => Ok(value),
        _ => Err(format!("{STEP_KEY} is no TaskSpec: it has no steps")),
    }
}

struct Declared {
    type_: Type,
    has_default: bool,
}

/// The parameters that a TaskSpec declares.
fn declared(task_spec: &Value) -> Result<BTreeMap<String, Declared>, String> {
    let list = match task_spec.get("params") {
        None | Some(Value::Null) => return Ok(BTreeMap::new()),
        Some(Value::Array(list)) => list,
        Some(_) => return Err("params must be a list".into()),
    };
    let mut declared = BTreeMap::new();
    for parameter in list {
        let name =
            parameter.get("name").and_then(Value::as_str).ok_or("a parameter without a name")?;
        let default = parameter.get("default").filter(|default| !default.is_null());
        let type_ = match (parameter.get("type").and_then(Value::as_str), default) {
            (Some("string"), _) => Type::Text,
            (Some("array"), _) => Type::List,
            (Some(other), _) => {
                return Err(format!("parameter {name}: type {other} is not supported"));
            }
            (None, Some(Value::Array(_))) => Type::List,
            (None, _) => Type::Text,
        };
        let declaration = Declared { type_, has_default: default.is_some() };
        if declared.insert(name.to_owned(), declaration).is_some() {
            return Err(format!("parameter {name} is declared twice"));
        }
    }
    Ok(declared)
}

fn names(task_spec: &Value, list: &str) -> Vec<String> {
    let items =
        task_spec.get(list).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    items.iter().filter_map(|item| item.get("name")?.as_str()).map(str::to_owned).collect()
}

/// The workspaces of a step that are there (B5): the source. Credentials are not yet.
fn workspaces(
    step: &TemplateStep,
    task_spec: &Value,
    errors: &mut Vec<TemplateError>,
) -> Vec<String> {
    let wanted = task_spec
        .get("workspaces")
        .and_then(Value::as_array)
        .map(Vec::as_slice)
        .unwrap_or_default();
    let mut there = Vec::new();
    for workspace in wanted {
        let name = workspace.get("name").and_then(Value::as_str).unwrap_or_default();
        if name == WORKSPACE_SOURCE {
            there.push(name.to_owned());
        } else if workspace.get("optional") != Some(&Value::Bool(true)) {
            errors.push(TemplateError::MissingWorkspace {
                step: step.name.clone(),
                name: name.to_owned(),
            });
        }
    }
    let all = names(task_spec, "workspaces");
    if [WORKSPACE_GIT_AUTH, WORKSPACE_PUSH_AUTH]
        .iter()
        .all(|name| all.iter().any(|have| have == name))
    {
        errors.push(TemplateError::WorkspacesNotIsolated { step: step.name.clone() });
    }
    there
}

fn hash(steps: &[ResolvedStep]) -> String {
    let mut encoding = Encoding::new();
    encoding.list("steps", steps.len());
    for ResolvedStep { name, task_spec, parameters, when, workspaces: _, results: _ } in steps {
        encoding.text("name", name);
        // Maps of serde_json are sorted.
        encoding.text("task", &task_spec.to_string());
        encoding.text("parameters", &json!(parameters).to_string());
        encoding.text("when", &json!(when).to_string());
    }
    encoding.finish()
}

#[cfg(test)]
#[path = "template_tests.rs"]
mod tests;
