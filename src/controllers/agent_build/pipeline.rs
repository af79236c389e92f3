//! (pure) `spec.pipeline` of an AgentBuild: steps in place of the template's (B3), and parameters over the template's (B4).
//!
//! It is written by whoever writes the commit. So it must neither choose what a step with credentials runs or sends, nor what the image is
//! called, nor which source it is made of ([decision 37](../../../docs/decisions/0037-pipeline-of-a-build.md)).
#![deny(clippy::disallowed_types, clippy::disallowed_methods)]

use std::collections::{BTreeMap, BTreeSet};

use super::template::{
    FROM_SPEC, Operator, Parameter, ParameterValue, Template, TemplateStep, WORKSPACE_GIT_AUTH,
    WORKSPACE_PUSH_AUTH, When, steps_problem,
};
use super::template_error::TemplateError;
use crate::api::build_pipeline::{
    BuildParameter, BuildPipeline, PipelineStep, PipelineWhen, WhenOperator,
};

/// The parameters from the spec that it may set: two steps may build two Dockerfiles. All others of [`FROM_SPEC`] say which build it is.
const OVERRIDABLE: [&str; 2] = [DOCKERFILE, "build-args"];
/// The command that tests an image.
const TEST_COMMAND: &str = "test-command";
/// The path of a Dockerfile.
const DOCKERFILE: &str = "dockerfile";
/// The workspaces with credentials.
const CREDENTIALS: [&str; 2] = [WORKSPACE_GIT_AUTH, WORKSPACE_PUSH_AUTH];

/// What an AgentBuild changes of a template.
#[derive(Debug, Clone, PartialEq)]
pub struct Overrides {
    /// Parameters of every step that declares them.
    pub parameters: BTreeMap<String, ParameterValue>,
    /// Whether the steps are those of the AgentBuild.
    pub own_steps: bool,
    /// What the template fixes.
    fixed: BTreeSet<String>,
}

/// Replaces the steps of a template by those of the AgentBuild, if it has some.
///
/// # Errors
/// What it must not change, each by name; never an empty list.
pub fn apply(
    template: &mut Template,
    pipeline: Option<&BuildPipeline>,
) -> Result<Overrides, Vec<TemplateError>> {
    let Some(pipeline) = pipeline else { return Ok(Overrides::NONE) };
    let BuildPipeline { parameters, steps } = pipeline;
    let mut errors = Vec::new();
    let lists = std::iter::once(("spec.pipeline.parameters".to_owned(), parameters)).chain(
        steps.iter().map(|step| (format!("step {} of spec.pipeline", step.name), &step.parameters)),
    );
    for (place, list) in lists {
        for parameter in list {
            if let Some(why) = refused(template, parameter) {
                let (place, name) = (place.clone(), parameter.name.clone());
                errors.push(TemplateError::ParameterNotAllowed { place, name, why });
            }
        }
    }
    if !steps.is_empty() {
        if template.fixed_steps {
            errors.push(TemplateError::StepsNotAllowed { template: template.name.clone() });
        }
        let own: Vec<_> = steps.iter().map(step).collect();
        if let Some(message) = steps_problem(&own) {
            errors.push(TemplateError::PipelineInvalid { message });
        }
        template.steps = own;
    }
    if !errors.is_empty() {
        return Err(errors);
    }
    Ok(Overrides {
        parameters: parameters.iter().map(|p| (p.name.clone(), value(p))).collect(),
        own_steps: !steps.is_empty(),
        fixed: template.fixed_parameters.iter().cloned().collect(),
    })
}

/// Why an AgentBuild may not set a parameter of a template.
fn refused(template: &Template, parameter: &BuildParameter) -> Option<String> {
    let name = parameter.name.as_str();
    if is_set_by_convoke(name) {
        return Some(
            "it is set by Convoke, from spec.source, spec.output, spec.strategy, spec.append or spec.layerCache"
                .into(),
        );
    }
    // The build key has the source folder, and nothing outside of it.
    if name == DOCKERFILE && !parameter.value.as_deref().is_none_or(is_inside) {
        return Some("it must be a path inside of the source folder, without \"..\"".into());
    }
    let is_fixed = template.fixed_parameters.iter().any(|fixed| fixed == name);
    is_fixed.then(|| format!("template {} fixes it", template.name))
}

/// Whether a relative path stays where it begins, links aside.
fn is_inside(path: &str) -> bool {
    path.split('/').all(|part| !matches!(part, "" | "." | ".."))
}

fn is_set_by_convoke(name: &str) -> bool {
    FROM_SPEC.iter().any(|(known, _)| *known == name) && !may_set(name)
}

/// Whether a parameter from the spec may be set by its name, too.
#[must_use]
pub fn may_set(name: &str) -> bool {
    OVERRIDABLE.contains(&name)
}

/// Whether a parameter says what a step runs of the source or of the image, and not which program runs it. An AgentBuild may set it where the
/// operator's build profile gives the step privileges.
#[must_use]
pub fn says_what_runs(name: &str) -> bool {
    may_set(name) || name == TEST_COMMAND
}

/// The workspace with credentials of a step, by the names of its workspaces.
#[must_use]
pub fn credentials<'n>(mut workspaces: impl Iterator<Item = &'n str>) -> Option<&'static str> {
    workspaces.find_map(|name| CREDENTIALS.into_iter().find(|known| *known == name))
}

impl Overrides {
    /// Nothing is changed.
    pub const NONE: Self =
        Self { parameters: BTreeMap::new(), own_steps: false, fixed: BTreeSet::new() };

    /// The value that the AgentBuild gives to a parameter of a step.
    #[must_use]
    pub fn value<'a>(&'a self, step: &'a TemplateStep, name: &str) -> Option<&'a ParameterValue> {
        let own = step.parameters.iter().filter(|_| self.own_steps).find(|p| p.name == name);
        own.map(|p| &p.value).or_else(|| self.parameters.get(name))
    }

    /// Parameters that no step declares. `declared` are those of all steps, `reserved` those of steps with credentials.
    #[must_use]
    pub fn unknown(
        &self,
        declared: &BTreeSet<String>,
        reserved: &BTreeSet<String>,
    ) -> Vec<TemplateError> {
        let unknown = self.parameters.keys().filter(|name| !declared.contains(*name));
        let known = self.settable(declared.difference(reserved).map(String::as_str));
        let one = |name: &String| TemplateError::UnknownOverride {
            place: "spec.pipeline.parameters: the pipeline".into(),
            name: name.clone(),
            known: known.clone(),
        };
        unknown.map(one).collect()
    }

    /// Which of these parameters an AgentBuild may set, as a sentence.
    #[must_use]
    pub fn settable<'n>(&self, names: impl Iterator<Item = &'n str>) -> String {
        let may = names.filter(|name| !is_set_by_convoke(name) && !self.fixed.contains(*name));
        let may: Vec<_> = may.collect();
        if may.is_empty() {
            "there is none to set".into()
        } else {
            format!("those to set are {}", may.join(", "))
        }
    }
}

/// The first step with credentials for Git that comes after one without. `steps` are names of steps, each with its workspace with credentials.
///
/// A step without credentials may run what the commit holds, and shares a folder with all that come after it.
#[must_use]
pub fn late_clone<'n>(
    steps: impl Iterator<Item = (&'n str, Option<&'static str>)>,
) -> Option<TemplateError> {
    let mut late = steps.skip_while(|(_, credentials)| *credentials == Some(WORKSPACE_GIT_AUTH));
    let found = late.find(|(_, credentials)| *credentials == Some(WORKSPACE_GIT_AUTH));
    found.map(|(step, _)| TemplateError::StepOrderNotAllowed { step: step.to_owned() })
}

fn step(step: &PipelineStep) -> TemplateStep {
    let PipelineStep { name, config_map, enabled, parameters, when } = step;
    TemplateStep {
        name: name.clone(),
        config_map: config_map.clone(),
        enabled: *enabled,
        description: String::new(),
        parameters: parameters.iter().map(parameter).collect(),
        when: when.iter().map(condition).collect(),
    }
}

fn parameter(parameter: &BuildParameter) -> Parameter {
    let name = parameter.name.clone();
    Parameter { name, value: value(parameter), description: String::new() }
}

fn value(parameter: &BuildParameter) -> ParameterValue {
    let BuildParameter { name: _, value, values } = parameter;
    match values {
        Some(values) => ParameterValue::List(values.clone()),
        None => ParameterValue::Text(value.clone().unwrap_or_default()),
    }
}

fn condition(when: &PipelineWhen) -> When {
    let PipelineWhen { input, operator, values } = when;
    let operator = match operator {
        WhenOperator::In => Operator::In,
        WhenOperator::NotIn => Operator::NotIn,
    };
    When { input: input.clone(), operator, values: values.clone() }
}

#[cfg(test)]
#[path = "tests/pipeline.rs"]
mod tests;
