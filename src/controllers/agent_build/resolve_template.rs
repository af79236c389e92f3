//! (pure) Puts a template and the TaskSpecs of its steps together: their parameters (B4) and workspaces (B5).
#![deny(clippy::disallowed_types, clippy::disallowed_methods)]

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use serde_json::{Value, json};

use super::after_build;
use super::appended::{BASE_IMAGE, LOCK_FILE};
use super::base_images::BASE_IMAGES;
use super::key::Encoding;
use super::layer_cache::LAYER_CACHE;
use super::parameters::{Levels, declared};
use super::pipeline::{self, Overrides};
use super::pod_policy;
use super::profile::BuildProfile;
use super::stage::{Stage, stage};
use super::template::{
    DIGEST_RESULTS, FROM_SPEC, ParameterValue, STEP_KEY, StepSource, Template, TemplateStep,
    VERSION_KEY, WORKSPACE_AFTER_BUILD, WORKSPACE_GIT_AUTH, WORKSPACE_PUSH_AUTH, WORKSPACE_SOURCE,
    When, is_version,
};
use super::template_error::TemplateError;
use crate::api::agent_build::AgentBuildSpec;

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
    /// Whether the steps are those of the AgentBuild.
    pub own_steps: bool,
    /// Whether what is built is attested before it counts.
    pub provenance: bool,
    /// Whether the template and all its steps are in the operator's namespace, as far as is known.
    pub of_operator: bool,
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
            if self.own_steps {
                // The version stands for more than they have: what the template sets for its own steps.
                encoding.text("steps of", "the build");
            }
        }
        let steps: Vec<_> = self.steps.iter().filter(|step| runs(step)).collect();
        if self.provenance {
            encoding.text("provenance", "true");
        }
        encoding.list("steps", steps.len());
        for step in steps {
            let ResolvedStep {
                name,
                config_map,
                version,
                task_spec,
                parameters,
                when,
                stage: _,
                profile: _,
            } = step;
            encoding.text("name", name);
            encoding.option("step version", version.as_deref());
            if version.is_some() {
                encoding.text("config map", config_map);
            } else {
                // Maps of serde_json are sorted.
                encoding.text("task", &task_spec.to_string());
            }
            // Those of the template have its version.
            let of_build = |(_, bound): &(&String, &Bound)| matches!(bound, Bound::Build(_));
            let of_build: BTreeMap<_, _> = parameters.iter().filter(of_build).collect();
            if self.version.is_some() && !of_build.is_empty() {
                encoding.text("parameters of the build", &json!(of_build).to_string());
            }
            if self.version.is_none() {
                // What the base images are is in the key by itself, and in that of builds that follow them only.
                let counts = |(name, bound): &(&String, &Bound)| {
                    !matches!(bound, Bound::Operator(_)) && name.as_str() != BASE_IMAGES
                };
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
    /// The profile that `stage` has, and that the key does not have.
    pub profile: BuildProfile,
}

impl ResolvedStep {
    /// Its workspace with credentials.
    fn credentials(&self) -> Option<&'static str> {
        pipeline::credentials(self.stage.workspaces.keys().map(String::as_str))
    }
}

/// Where the value of a parameter comes from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub enum Bound {
    /// From `spec.pipeline` of the AgentBuild.
    Build(ParameterValue),
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
    /// What the AgentBuild changes of the template.
    pub overrides: &'a Overrides,
    /// The image of the operator: the value of [`CONVOKE_IMAGE`] when the template sets none.
    pub operator_image: &'a str,
}

impl BuildArgs {
    /// Those of a spec.
    #[must_use]
    pub fn of(spec: &AgentBuildSpec) -> Self {
        if spec.build_args.is_empty() { Self::None } else { Self::Given }
    }
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
    let mut reserved = BTreeSet::new();
    let levels = Levels::new(template, inputs);
    let mut set_anywhere = levels.set_for_all();
    for step in template.steps.iter().filter(|step| step.enabled) {
        set_anywhere.extend(
            step.parameters.iter().filter(|p| !p.value.is_empty()).map(|p| p.name.as_str()),
        );
        let source = sources.get(&step.config_map);
        match resolve_step(template, step, &levels, source, namespaces) {
            Ok((resolved, declared)) => {
                if resolved.credentials().is_some() || resolved.profile != BuildProfile::Baseline {
                    reserved.extend(declared.iter().cloned());
                }
                declared_anywhere.extend(declared);
                steps.push(resolved);
            }
            Err(more) => errors.extend(more),
        }
    }
    // Which parameters nobody declares is known only when every step could be read.
    if errors.is_empty() {
        errors.extend(inputs.overrides.unknown(&declared_anywhere, &reserved));
        let named = template.global_parameters.iter().map(|p| &p.name);
        let named = named.chain(&template.fixed_parameters);
        // Steps of an AgentBuild need not take all that the template's take.
        let named = named.filter(|_| !inputs.overrides.own_steps);
        let unknown = named.filter(|name| !declared_anywhere.contains(*name));
        errors.extend(unknown.map(|name| TemplateError::UnknownParameter {
            place: format!("template {}", template.name),
            name: name.clone(),
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
        if inputs.overrides.own_steps {
            let all = steps.iter().map(|step| (step.name.as_str(), step.credentials()));
            errors.extend(pipeline::late_clone(all));
        }
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
    Ok(ResolvedTemplate {
        steps,
        unset,
        from_spec,
        version: template.version.clone(),
        own_steps: inputs.overrides.own_steps,
        provenance: template.provenance,
        of_operator: false,
    })
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
    levels: &Levels<'_>,
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
    let credentials =
        pipeline::credentials(names(&task_spec, "workspaces").iter().map(String::as_str));
    let profile = source.profile.as_ref().map(|own| own.profile).unwrap_or_default();
    let (parameters, problems) = levels.bound(step, &declared, credentials, profile);
    errors.extend(problems);
    errors.extend(workspace_problems(step, &task_spec));
    if !errors.is_empty() {
        return Err(errors);
    }
    let types = declared.iter().map(|(name, declared)| (name.clone(), declared.type_)).collect();
    let all_invalid = |problems: Vec<String>| {
        let one = |message| TemplateError::StepInvalid { step: name(), message };
        problems.into_iter().map(one).collect::<Vec<_>>()
    };
    let profiled = source.profile.as_ref().map(|own| own.applied(&task_spec)).transpose();
    let profiled = profiled.map_err(all_invalid)?;
    let stage = stage(&step.name, profiled.as_ref().unwrap_or(&task_spec), &types);
    let stage = stage.map_err(all_invalid)?;
    let conditions = template.when.iter().chain(&step.when).map(|when| condition(when, levels));
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
        profile,
    };
    Ok((resolved, declared.into_keys().collect()))
}

/// Parameters from the AgentBuild that conditions may ask for: those that are part of the build key. What is built once for the same key must
/// not depend on anything else, such as the commit.
const CONDITIONAL: [&str; 8] = [
    "subfolder",
    "dockerfile",
    "image",
    "insecure",
    "strategy",
    BASE_IMAGE,
    LOCK_FILE,
    LAYER_CACHE,
];

/// A condition in which parameters that are not from the spec have their values.
fn condition(when: &When, levels: &Levels<'_>) -> Result<When, String> {
    if when.values.iter().any(|value| value.contains("$(")) {
        return Err("values are compared as they are: they must not contain \"$(\"".into());
    }
    if when.input.contains("$$") {
        return Err("input must not contain \"$$\"".into());
    }
    let of_spec = |name: &str| CONDITIONAL.contains(&name);
    let input = replaced(&when.input, |name| match levels.of_all_steps(name, of_spec(name)) {
        None if of_spec(name) => Ok(format!("$(params.{name})")),
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
            if !before.1.is_some_and(|before| agree(before, item)) {
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
    let mut filling = steps.iter().filter(|step| after_build::fills(&step.stage));
    if let (Some(one), Some(other)) = (filling.next(), filling.next()) {
        errors.push(disagreement(&one.name, &other.name, "workspace", WORKSPACE_AFTER_BUILD));
    }
    errors
}

/// Whether two declarations of one name fit together. Each may say which step gives the value of a result: the last one counts.
fn agree(one: &Value, other: &Value) -> bool {
    let of = |item: &Value| {
        let mut item = item.clone();
        item.as_object_mut().and_then(|item| item.remove("value"));
        item
    };
    of(one) == of(other)
}

fn disagreement(one: &str, other: &str, kind: &str, name: &str) -> TemplateError {
    let what = format!("each has a {kind} {name} of its own");
    TemplateError::StepsDisagree { one: one.to_owned(), other: other.to_owned(), what }
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
        let is_there = [WORKSPACE_SOURCE, WORKSPACE_AFTER_BUILD].contains(&name);
        if !is_there && workspace.get("optional") != Some(&Value::Bool(true)) {
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
