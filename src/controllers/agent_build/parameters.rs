//! (pure) The values of the parameters of build steps (B4), from low to high: default of the TaskSpec, the operator, globals of the template,
//! parameters of the template's step, [`FROM_SPEC`], `spec.pipeline.parameters`, and parameters of the AgentBuild's own step.
#![deny(clippy::disallowed_types, clippy::disallowed_methods)]

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::pipeline::{Overrides, says_what_runs};
use super::profile::BuildProfile;
use super::resolve_template::{Bound, Inputs};
use super::template::{
    CONVOKE_IMAGE, FROM_SPEC, ParameterType, ParameterValue, Template, TemplateStep,
};
use super::template_error::TemplateError;

/// A parameter that a TaskSpec declares.
pub struct Declared {
    /// Its type.
    pub type_: ParameterType,
    /// Whether it has a default.
    pub has_default: bool,
}

/// The parameters that a TaskSpec declares.
///
/// # Errors
/// What is wrong with them, as one sentence.
pub fn declared(task_spec: &Value) -> Result<BTreeMap<String, Declared>, String> {
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

/// The levels at which parameters have values.
pub struct Levels<'a> {
    globals: BTreeMap<&'a str, &'a ParameterValue>,
    required: BTreeSet<&'a str>,
    overrides: &'a Overrides,
    operator_image: &'a str,
}

impl<'a> Levels<'a> {
    /// The levels of a template.
    #[must_use]
    pub fn new(template: &'a Template, inputs: Inputs<'a>) -> Self {
        let Inputs { build_args: _, overrides, operator_image } = inputs;
        let globals = template.global_parameters.iter();
        Self {
            globals: globals.map(|p| (p.name.as_str(), &p.value)).collect(),
            required: template.required_parameters.iter().map(String::as_str).collect(),
            overrides,
            operator_image,
        }
    }

    /// The names of the parameters that have a value for all steps.
    #[must_use]
    pub fn set_for_all(&self) -> BTreeSet<&'a str> {
        let globals = self.globals.iter().filter(|(_, value)| !value.is_empty());
        FROM_SPEC
            .iter()
            .map(|(name, _)| *name)
            .chain([CONVOKE_IMAGE])
            .chain(globals.map(|(name, _)| *name))
            .chain(self.overrides.parameters.keys().map(String::as_str))
            .collect()
    }

    /// The value that a parameter has for all steps. Of one that comes from the spec (`of_spec`), only what goes over that.
    #[must_use]
    pub fn of_all_steps(&self, name: &str, of_spec: bool) -> Option<&'a ParameterValue> {
        let global = || self.globals.get(name).copied().filter(|_| !of_spec);
        self.overrides.parameters.get(name).or_else(global)
    }

    /// The values of the parameters of a step, and what is wrong with them. `credentials` is its workspace with credentials.
    #[must_use]
    pub fn bound(
        &self,
        step: &TemplateStep,
        declared: &BTreeMap<String, Declared>,
        credentials: Option<&str>,
        profile: BuildProfile,
    ) -> (BTreeMap<String, Bound>, Vec<TemplateError>) {
        let place = || format!("step {}", step.name);
        let mut errors = self.unknown(step, declared, credentials);
        let mut parameters = BTreeMap::new();
        for (name, Declared { type_, has_default }) in declared {
            let from_build = self.overrides.value(step, name);
            let from_spec = FROM_SPEC.iter().find(|(known, _)| known == name);
            let from_template = self.of_template(step, name);
            let from_operator = (name == CONVOKE_IMAGE).then_some(self.operator_image);
            let (have, bound) = match (from_build, from_spec, from_template, from_operator) {
                (Some(value), _, _, _) => (value.type_(), Bound::Build(value.clone())),
                (None, Some((_, type_)), _, _) => (*type_, Bound::Spec),
                (None, None, Some(value), _) => (value.type_(), Bound::Template(value.clone())),
                (None, None, None, Some(image)) => {
                    (ParameterType::Text, Bound::Operator(image.to_owned()))
                }
                (None, None, None, None) if *has_default => continue,
                (None, None, None, None) => {
                    errors.push(TemplateError::MissingParameter {
                        place: place(),
                        name: name.clone(),
                    });
                    continue;
                }
            };
            if have != *type_ {
                let (want, name) = (*type_, name.clone());
                errors.push(TemplateError::WrongParameterType { place: place(), name, want });
            }
            let all = [from_build, from_template];
            if all.into_iter().flatten().any(|value| !value.is_plain()) {
                errors.push(TemplateError::UnsafeValue { place: place(), name: name.clone() });
            }
            if let Some(value) = from_build {
                let name = name.clone();
                if let Some(workspace) = credentials {
                    let why = format!(
                        "the step has credentials (workspace {workspace}), so only the template sets its parameters"
                    );
                    errors.push(TemplateError::ParameterNotAllowed { place: place(), name, why });
                } else if profile != BuildProfile::Baseline && !says_what_runs(&name) {
                    let why = format!(
                        "the step runs with the operator's --build-profile={profile}, so only the template sets it"
                    );
                    errors.push(TemplateError::ParameterNotAllowed { place: place(), name, why });
                } else if value.is_empty() && self.required.contains(name.as_str()) {
                    errors.push(TemplateError::MissingParameter { place: place(), name });
                }
            }
            parameters.insert(name.clone(), bound);
        }
        (parameters, errors)
    }

    /// The value that the template gives.
    fn of_template<'s>(&'s self, step: &'s TemplateStep, name: &str) -> Option<&'s ParameterValue> {
        let own = step.parameters.iter().filter(|_| !self.overrides.own_steps);
        let own = own.filter(|p| p.name == name).map(|p| &p.value).next();
        own.or_else(|| self.globals.get(name).copied())
    }

    /// Parameters of a step that its TaskSpec does not declare.
    fn unknown(
        &self,
        step: &TemplateStep,
        declared: &BTreeMap<String, Declared>,
        credentials: Option<&str>,
    ) -> Vec<TemplateError> {
        let (place, own_steps) = (format!("step {}", step.name), self.overrides.own_steps);
        let unknown = step.parameters.iter().filter(|p| !declared.contains_key(&p.name));
        let unknown = unknown.map(|p| p.name.clone());
        if !own_steps {
            let one = |name| TemplateError::UnknownParameter { place: place.clone(), name };
            return unknown.map(one).collect();
        }
        let names = declared.keys().map(String::as_str).filter(|_| credentials.is_none());
        let known = self.overrides.settable(names);
        let one = |name| TemplateError::UnknownOverride {
            place: place.clone(),
            name,
            known: known.clone(),
        };
        unknown.map(one).collect()
    }
}

#[cfg(test)]
#[path = "tests/parameters.rs"]
mod tests;
