//! (pure) Puts a template and the TaskSpecs of its steps together: their parameters (B4) and workspaces (B5).
#![deny(clippy::disallowed_types, clippy::disallowed_methods)]

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use serde_json::{Value, json};

use super::key::Encoding;
use super::pod_policy;
use super::stage::{Stage, stage};
use super::template::{
    CONVOKE_IMAGE, DIGEST_RESULTS, FROM_SPEC, ParameterType, ParameterValue, STEP_KEY, StepSource,
    Template, TemplateStep, VERSION_KEY, WORKSPACE_GIT_AUTH, WORKSPACE_PUSH_AUTH, WORKSPACE_SOURCE,
    When, is_version,
};
use super::template_error::TemplateError;

/// A template whose steps and parameters are known. Only the values from the spec are missing.
#[derive(Debug, Clone, PartialEq)]
pub struct ResolvedTemplate {
    /// The steps that are enabled, in order.
    pub steps: Vec<ResolvedStep>,
    /// Required parameters that are empty, and that only steps with conditions take. They are missing when one of those runs.
    pub unset: Vec<String>,
    /// Required parameters that an AgentBuild gives, and must not leave empty.
    pub from_spec: Vec<String>,
    /// Its declared version.
    pub version: Option<String>,
}

impl ResolvedTemplate {
    /// Hash over everything of the steps for which `runs` is true that goes into an image, in hex. What has a declared version counts by that, and not by
    /// its text. The image of the operator does not count: an operator upgrade must rebuild nothing.
    ///
    /// A version belongs to a ConfigMap: `mode` is the one of the template.
    pub fn hash(&self, mode: &str, runs: impl Fn(&ResolvedStep) -> bool) -> String {
        let mut encoding = Encoding::new();
        encoding.option("version", self.version.as_deref());
        if self.version.is_some() {
            encoding.text("mode", mode);
        }
        let steps: Vec<_> = self.steps.iter().filter(|step| runs(step)).collect();
        encoding.list("steps", steps.len());
        for step in steps {
            let ResolvedStep { name, config_map, version, task_spec, parameters, when, stage: _ } =
                step;
            encoding.text("name", name);
            encoding.option("step version", version.as_deref());
            if version.is_some() {
                encoding.text("config map", config_map);
            } else {
                // Maps of serde_json are sorted.
                encoding.text("task", &task_spec.to_string());
            }
            // They are the template's.
            if self.version.is_none() {
                let counts = |(_, bound): &(&String, &Bound)| !matches!(bound, Bound::Operator(_));
                let parameters: BTreeMap<_, _> = parameters.iter().filter(counts).collect();
                encoding.text("parameters", &json!(parameters).to_string());
                encoding.text("when", &json!(when).to_string());
            }
        }
        encoding.finish()
    }
}

/// One step of a [`ResolvedTemplate`].
#[derive(Debug, Clone, PartialEq)]
pub struct ResolvedStep {
    /// Name of the task.
    pub name: String,
    /// Name of the ConfigMap with its TaskSpec.
    pub config_map: String,
    /// Its declared version.
    pub version: Option<String>,
    /// The TaskSpec, as it is.
    pub task_spec: Value,
    /// Values of its parameters; a parameter that is left to its default is not here.
    pub parameters: BTreeMap<String, Bound>,
    /// Conditions. In their inputs, `$(params.x)` is one of [`FROM_SPEC`].
    pub when: Vec<When>,
    /// What it gives to the Task of the build.
    pub stage: Stage,
}

/// Where the value of a parameter comes from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub enum Bound {
    /// From the AgentBuild and its commit: one of [`FROM_SPEC`].
    Spec,
    /// From the template.
    Template(ParameterValue),
    /// From the operator.
    Operator(String),
}

/// What a template is resolved for, besides its own ConfigMaps.
#[derive(Debug, Clone, Copy)]
pub struct Inputs<'a> {
    /// Whether the AgentBuild has build arguments.
    pub build_args: BuildArgs,
    /// The image of the operator: the value of [`CONVOKE_IMAGE`] when the template sets none.
    pub operator_image: &'a str,
}

/// Whether the AgentBuild has build arguments. If it has, a step must take them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BuildArgs {
    /// It has some.
    Given,
    /// It has none.
    None,
}

/// Resolves a template. `sources` are the ConfigMaps of its steps, by name; `namespaces` says where they were looked for.
///
/// # Errors
/// Every problem at once; never an empty list.
pub fn resolve(
    template: &Template,
    sources: &BTreeMap<String, StepSource>,
    namespaces: &str,
    inputs: Inputs<'_>,
) -> Result<ResolvedTemplate, Vec<TemplateError>> {
    let mut errors = Vec::new();
    let mut steps = Vec::new();
    let mut declared_anywhere = BTreeSet::new();
    let mut set_anywhere: BTreeSet<&str> = FROM_SPEC.iter().map(|(name, _)| *name).collect();
    let globals: BTreeMap<_, _> =
        template.global_parameters.iter().map(|p| (p.name.as_str(), &p.value)).collect();
    set_anywhere.insert(CONVOKE_IMAGE);
    set_anywhere
        .extend(globals.iter().filter(|(_, value)| !value.is_empty()).map(|(name, _)| *name));
    for step in template.steps.iter().filter(|step| step.enabled) {
        set_anywhere.extend(
            step.parameters.iter().filter(|p| !p.value.is_empty()).map(|p| p.name.as_str()),
        );
        let source = sources.get(&step.config_map);
        match resolve_step(template, step, &globals, inputs, source, namespaces) {
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
        if inputs.build_args == BuildArgs::Given && !declared_anywhere.contains("build-args") {
            let place = format!("spec.buildArgs is set, but template {}", template.name);
            errors.push(TemplateError::UnknownParameter { place, name: "build-args".into() });
        }
        let mut results = steps.iter().flat_map(|step| step.stage.results.keys());
        if !results.any(|result| DIGEST_RESULTS.contains(&result.as_str())) {
            errors.push(TemplateError::NoDigestResult);
        }
        errors.extend(disagreements(&steps));
    }
    let required = template.required_parameters.iter();
    let empty = required.filter(|name| !set_anywhere.contains(name.as_str())).cloned();
    let (unset, missing): (Vec<_>, Vec<_>) = empty.partition(|name| is_conditional(&steps, name));
    errors.extend(missing.into_iter().map(|name| {
        let place = format!("template {}", template.name);
        TemplateError::MissingParameter { place, name }
    }));
    if !errors.is_empty() {
        return Err(errors);
    }
    let is_from_spec = |name: &&String| FROM_SPEC.iter().any(|(known, _)| known == name);
    let from_spec = template.required_parameters.iter().filter(is_from_spec).cloned().collect();
    Ok(ResolvedTemplate { steps, unset, from_spec, version: template.version.clone() })
}

/// Whether only steps with conditions take a parameter.
fn is_conditional(steps: &[ResolvedStep], name: &str) -> bool {
    let mut takes = steps.iter().filter(|step| step.parameters.contains_key(name)).peekable();
    takes.peek().is_some() && takes.all(|step| !step.when.is_empty())
}

/// A step, and the names of the parameters that its TaskSpec declares.
type StepAndDeclared = (ResolvedStep, Vec<String>);

fn resolve_step(
    template: &Template,
    step: &TemplateStep,
    globals: &BTreeMap<&str, &ParameterValue>,
    inputs: Inputs<'_>,
    source: Option<&StepSource>,
    namespaces: &str,
) -> Result<StepAndDeclared, Vec<TemplateError>> {
    let name = || step.name.clone();
    let config_map = || step.config_map.clone();
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
    if source.version.as_ref().is_some_and(|version| !is_version(version)) {
        return Err(invalid(format!("{VERSION_KEY} is too long, empty, or not visible ASCII")));
    }
    let task_spec = parse_task_spec(source.task_spec.as_deref()).map_err(invalid)?;
    let mut errors: Vec<_> = pod_policy::refused(&task_spec)
        .into_iter()
        .map(|refused| TemplateError::PodNotAllowed { step: name(), refused: refused.to_string() })
        .collect();
    let declared = declared(&task_spec).map_err(invalid)?;
    let (parameters, problems) = parameters(step, globals, inputs, &declared);
    errors.extend(problems);
    errors.extend(workspace_problems(step, &task_spec));
    if !errors.is_empty() {
        return Err(errors);
    }
    let types = declared.iter().map(|(name, declared)| (name.clone(), declared.type_)).collect();
    let stage = stage(&step.name, &task_spec, &types).map_err(|problems| {
        let one = |message| TemplateError::StepInvalid { step: name(), message };
        problems.into_iter().map(one).collect::<Vec<_>>()
    })?;
    let conditions = template.when.iter().chain(&step.when).map(|when| condition(when, globals));
    let when = conditions.collect::<Result<_, _>>();
    let when =
        when.map_err(|message| vec![TemplateError::WhenInvalid { step: name(), message }])?;
    let version = source.version.clone();
    let resolved = ResolvedStep {
        name: name(),
        config_map: config_map(),
        version,
        task_spec,
        parameters,
        when,
        stage,
    };
    Ok((resolved, declared.into_keys().collect()))
}

/// Parameters from the AgentBuild that conditions may ask for: those that are part of the build key. What is built once for the same key must
/// not depend on anything else, such as the commit.
const CONDITIONAL: [&str; 6] =
    ["subfolder", "dockerfile", "image", "insecure", "strategy", "base-image"];

/// A condition in which the template's own parameters have their values.
fn condition(when: &When, globals: &BTreeMap<&str, &ParameterValue>) -> Result<When, String> {
    if when.values.iter().any(|value| value.contains("$(")) {
        return Err("values are compared as they are: they must not contain \"$(\"".into());
    }
    if when.input.contains("$$") {
        return Err("input must not contain \"$$\"".into());
    }
    let input = replaced(&when.input, |name| match globals.get(name) {
        _ if CONDITIONAL.contains(&name) => Ok(format!("$(params.{name})")),
        // It is looked at again with the values of the AgentBuild.
        Some(ParameterValue::Text(text)) if !text.contains(['$', '(']) => Ok(text.clone()),
        Some(_) => Err(format!("the parameter {name} is no text, or has \"$\" or \"(\" in it")),
        None => Err(format!(
            "input can ask for {}, and the global parameters of the template; not for {name}",
            CONDITIONAL.join(", ")
        )),
    })?;
    Ok(When { input, ..when.clone() })
}

/// A text in which each `$(params.NAME)` is what `value` gives for it.
///
/// # Errors
/// Those of `value`, and when it holds another reference.
pub fn replaced(
    text: &str,
    value: impl Fn(&str) -> Result<String, String>,
) -> Result<String, String> {
    let (mut made, mut rest) = (String::new(), text);
    while let Some((before, after)) = rest.split_once("$(") {
        made += before;
        let (inside, behind) = after.split_once(')').unwrap_or((after, ""));
        let name = inside.strip_prefix("params.").ok_or_else(|| {
            format!("input can hold $(params.NAME), and not $({inside}): it is known before the build begins")
        })?;
        made += &value(name)?;
        rest = behind;
    }
    Ok(made + rest)
}

/// What two steps have under one name, and differently.
fn disagreements(steps: &[ResolvedStep]) -> Vec<TemplateError> {
    let mut errors = Vec::new();
    let mut seen: BTreeMap<(&str, &str), (&str, Option<&Value>)> = BTreeMap::new();
    for step in steps {
        let Stage { steps, params: _, volumes, results, workspaces } = &step.stage;
        let shared = results
            .iter()
            .map(|(name, item)| ("result", name.as_str(), item))
            .chain(workspaces.iter().map(|(name, item)| ("workspace", name.as_str(), item)));
        for (kind, name, item) in shared {
            let before = *seen.entry((kind, name)).or_insert((&step.name, Some(item)));
            if before.1 != Some(item) {
                errors.push(disagreement(before.0, &step.name, kind, name));
            }
        }
        for (kind, all) in [("step", steps), ("volume", volumes)] {
            for name in all.iter().filter_map(|item| item["name"].as_str()) {
                if let Some((before, _)) = seen.insert((kind, name), (&step.name, None)) {
                    errors.push(disagreement(before, &step.name, kind, name));
                }
            }
        }
    }
    errors
}

fn disagreement(one: &str, other: &str, kind: &str, name: &str) -> TemplateError {
    let what = format!("each has a {kind} {name} of its own");
    TemplateError::StepsDisagree { one: one.to_owned(), other: other.to_owned(), what }
}

/// The values of the parameters of a step, and what is wrong with them. From low to high: default of the TaskSpec, the operator, globals of the
/// template, parameters of the step, [`FROM_SPEC`].
fn parameters(
    step: &TemplateStep,
    globals: &BTreeMap<&str, &ParameterValue>,
    inputs: Inputs<'_>,
    declared: &BTreeMap<String, Declared>,
) -> (BTreeMap<String, Bound>, Vec<TemplateError>) {
    let place = || format!("step {}", step.name);
    let own: BTreeMap<_, _> = step.parameters.iter().map(|p| (p.name.as_str(), &p.value)).collect();
    let unknown = own.keys().filter(|name| !declared.contains_key(**name));
    let unknown = unknown
        .map(|name| TemplateError::UnknownParameter { place: place(), name: (*name).to_owned() });
    let mut errors: Vec<_> = unknown.collect();
    let mut parameters = BTreeMap::new();
    for (name, declared) in declared {
        let from_spec = FROM_SPEC.iter().find(|(known, _)| known == name);
        let from_template = own.get(name.as_str()).or_else(|| globals.get(name.as_str()));
        let from_operator = (name == CONVOKE_IMAGE).then_some(inputs.operator_image);
        let (have, bound) = match (from_spec, from_template, from_operator) {
            (Some((_, type_)), _, _) => (*type_, Bound::Spec),
            (None, Some(value), _) => (value.type_(), Bound::Template((*value).clone())),
            (None, None, Some(image)) => (ParameterType::Text, Bound::Operator(image.to_owned())),
            (None, None, None) if declared.has_default => continue,
            (None, None, None) => {
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
    (parameters, errors)
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

/// A parameter that a TaskSpec declares.
struct Declared {
    type_: ParameterType,
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
            (Some("string"), _) => ParameterType::Text,
            (Some("array"), _) => ParameterType::List,
            (Some(other), _) => {
                return Err(format!("parameter {name}: type {other} is not supported"));
            }
            (None, Some(Value::Array(_))) => ParameterType::List,
            (None, _) => ParameterType::Text,
        };
        let declaration = Declared { type_, has_default: default.is_some() };
        if declared.insert(name.to_owned(), declaration).is_some() {
            return Err(format!("parameter {name} is declared twice"));
        }
    }
    Ok(declared)
}

/// The names of the items of a list of a TaskSpec.
fn names(task_spec: &Value, list: &str) -> Vec<String> {
    let items =
        task_spec.get(list).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    items.iter().filter_map(|item| item.get("name")?.as_str()).map(str::to_owned).collect()
}

/// What is wrong with the workspaces of a step (B5). The source is always there. Credentials are there for some builds: they must be optional.
fn workspace_problems(step: &TemplateStep, task_spec: &Value) -> Vec<TemplateError> {
    let wanted = task_spec
        .get("workspaces")
        .and_then(Value::as_array)
        .map(Vec::as_slice)
        .unwrap_or_default();
    let mut errors = Vec::new();
    for workspace in wanted {
        let name = workspace.get("name").and_then(Value::as_str).unwrap_or_default();
        if name != WORKSPACE_SOURCE && workspace.get("optional") != Some(&Value::Bool(true)) {
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
    errors
}

#[cfg(test)]
#[path = "tests/resolve_template.rs"]
mod tests;
