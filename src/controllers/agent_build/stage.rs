//! (pure) Makes the TaskSpecs of a template's steps fit into one Task, whose steps run in one pod: names get the name of the template's step
//! in front, and what refers to them follows.
#![deny(clippy::disallowed_types, clippy::disallowed_methods)]

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::template::{ParameterType, WORKSPACE_GIT_AUTH, WORKSPACE_PUSH_AUTH};

/// The longest name of a step: Tekton's container is called `step-` and the name.
const MAX_STEP_NAME: usize = 58;
/// The workspaces that no other step may see.
const CREDENTIALS: [&str; 2] = [WORKSPACE_GIT_AUTH, WORKSPACE_PUSH_AUTH];
/// The longest name of a volume.
const MAX_VOLUME_NAME: usize = 63;

/// What a TaskSpec gives to the Task. Names are those of the Task.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Stage {
    /// Its steps, in order.
    pub steps: Vec<Value>,
    /// Its parameters.
    pub params: Vec<Value>,
    /// Its volumes.
    pub volumes: Vec<Value>,
    /// Its results, by name. They keep their names.
    pub results: BTreeMap<String, Value>,
    /// Its workspaces, by name. They keep their names.
    pub workspaces: BTreeMap<String, Value>,
}

/// The name of a parameter in the Task. The name of a template's step has no `_`, so no two are the same.
#[must_use]
pub fn parameter_name(step: &str, parameter: &str) -> String {
    format!("{step}_{parameter}")
}

/// A reference to a parameter. In a name with a dot, dots would be read as something else.
#[must_use]
pub fn parameter_reference(name: &str, rest: &str) -> String {
    if name.contains('.') {
        format!("$(params[\"{name}\"]{rest})")
    } else {
        format!("$(params.{name}{rest})")
    }
}

/// What a TaskSpec gives to the Task, for the template's step of this name. `declared` are the types of its parameters.
///
/// # Errors
/// What cannot be in one Task: each problem as a sentence.
pub fn stage(
    name: &str,
    task_spec: &Value,
    declared: &BTreeMap<String, ParameterType>,
) -> Result<Stage, Vec<String>> {
    let list = |key: &str| task_spec.get(key).and_then(Value::as_array).map_or(&[][..], |all| all);
    let named = |item: &Value| item.get("name").and_then(Value::as_str).map(str::to_owned);
    let (all_steps, mut errors) = (list("steps"), Vec::new());
    let new_name = |at: usize, step: &Value| match (all_steps.len(), named(step)) {
        (1, _) => name.to_owned(),
        (_, Some(step)) => format!("{name}-{step}"),
        (_, None) => format!("{name}-{}", at + 1),
    };
    let steps: BTreeMap<_, _> = all_steps
        .iter()
        .enumerate()
        .filter_map(|(at, step)| Some((named(step)?, new_name(at, step))))
        .collect();
    let volumes: BTreeMap<_, _> = list("volumes")
        .iter()
        .filter_map(named)
        .map(|volume| (volume.clone(), format!("{name}-{volume}")))
        .collect();
    let workspaces: Vec<_> = list("workspaces").iter().filter_map(named).collect();
    let scope = Scope { name, declared, steps: &steps, workspaces: &workspaces };
    let mut stage = Stage::default();
    for (at, step) in all_steps.iter().enumerate() {
        let mut step = scope.rewritten(step, &mut errors);
        let new_name = new_name(at, &step);
        if new_name.len() > MAX_STEP_NAME {
            errors.push(format!(
                "its step {new_name} has a name of more than {MAX_STEP_NAME} characters"
            ));
        }
        step["name"] = new_name.into();
        // Tekton mounts a workspace that steps name in those steps alone.
        let only_here: Vec<_> = CREDENTIALS
            .into_iter()
            .filter(|name| workspaces.iter().any(|own| own == name))
            .map(|name| json!({"name": name}))
            .collect();
        if !only_here.is_empty() {
            step["workspaces"] = only_here.into();
        }
        let mounts = step.get_mut("volumeMounts").and_then(Value::as_array_mut);
        for mount in mounts.into_iter().flatten() {
            match named(mount).as_ref().and_then(|volume| volumes.get(volume)) {
                Some(new) => mount["name"] = new.as_str().into(),
                None => errors.push(format!(
                    "volumeMounts name a volume that is not among its volumes: {}",
                    mount["name"]
                )),
            }
        }
        stage.steps.push(step);
    }
    for before in list("volumes") {
        let mut volume = scope.rewritten(before, &mut errors);
        if let Some(new) = named(before).as_ref().and_then(|volume| volumes.get(volume)) {
            if new.len() > MAX_VOLUME_NAME {
                errors.push(format!(
                    "its volume {new} has a name of more than {MAX_VOLUME_NAME} characters"
                ));
            }
            volume["name"] = new.as_str().into();
        }
        stage.volumes.push(volume);
    }
    for parameter in list("params") {
        let Some(parameter_of) = named(parameter) else { continue };
        let mut new = Map::new();
        new.insert("name".into(), parameter_name(name, &parameter_of).into());
        let type_ = declared.get(&parameter_of).copied().unwrap_or(ParameterType::Text);
        new.insert("type".into(), type_.to_string().into());
        if let Some(default) = parameter.get("default").filter(|default| !default.is_null()) {
            new.insert("default".into(), scope.rewritten(default, &mut errors));
        }
        stage.params.push(new.into());
    }
    for result in list("results") {
        if let Some(of) = named(result) {
            let mut result = scope.rewritten(result, &mut errors);
            without_description(&mut result);
            stage.results.insert(of, result);
        }
    }
    for workspace in list("workspaces") {
        if let Some(of) = named(workspace) {
            if workspace.to_string().contains("$(") {
                errors.push(format!("its workspace {of} must not contain \"$(\""));
            }
            let mut workspace = workspace.clone();
            without_description(&mut workspace);
            stage.workspaces.insert(of, workspace);
        }
    }
    if errors.is_empty() { Ok(stage) } else { Err(errors) }
}

fn without_description(item: &mut Value) {
    if let Some(item) = item.as_object_mut() {
        item.remove("description");
    }
}

/// The names that the strings of a TaskSpec may refer to.
struct Scope<'a> {
    name: &'a str,
    declared: &'a BTreeMap<String, ParameterType>,
    /// New names of its steps.
    steps: &'a BTreeMap<String, String>,
    workspaces: &'a [String],
}

impl Scope<'_> {
    /// A value in which all strings refer to the new names. Keys stay as they are.
    fn rewritten(&self, value: &Value, errors: &mut Vec<String>) -> Value {
        match value {
            Value::String(text) => self.text(text, errors).into(),
            Value::Array(all) => all.iter().map(|one| self.rewritten(one, errors)).collect(),
            Value::Object(map) => {
                let one = |(key, value): (&String, &Value)| {
                    // A script is the text of a program, and holds no reference: the allow-list sees to that.
                    let is_script = key == "script";
                    let new = if is_script { value.clone() } else { self.rewritten(value, errors) };
                    (key.clone(), new)
                };
                Value::Object(map.iter().map(one).collect())
            }
            other => other.clone(),
        }
    }

    fn text(&self, text: &str, errors: &mut Vec<String>) -> String {
        let (mut made, mut rest) = (String::new(), text);
        while let Some((before, after)) = rest.split_once("$(") {
            made += before;
            let Some((inside, behind)) = after.split_once(')') else {
                rest = &rest[before.len()..];
                break;
            };
            // What is inside of another one is what counts.
            if let Some(nested) = inside.rfind("$(") {
                made += "$(";
                made += &inside[..nested];
                rest = &after[nested..];
                continue;
            }
            match self.reference(inside) {
                Ok(new) => made += &new,
                Err(error) => errors.push(error),
            }
            rest = behind;
        }
        made + rest
    }

    /// A reference with the new name, from what stands between `$(` and `)`.
    fn reference(&self, inside: &str) -> Result<String, String> {
        let no = |why: &str| Err(format!("$({inside}): {why}"));
        let same = || Ok(format!("$({inside})"));
        let Some(end) = inside.find(['.', '[']) else { return same() };
        let (head, rest) = inside.split_at(end);
        match head {
            "params" => match parameter(rest) {
                Some((of, rest)) if self.declared.contains_key(of) => {
                    Ok(parameter_reference(&parameter_name(self.name, of), rest))
                }
                Some(_) => no("it declares no such parameter"),
                None => no("write $(params.NAME)"),
            },
            "steps" => {
                let rest = rest.trim_start_matches('.');
                let (of, rest) = rest.split_once('.').unwrap_or((rest, ""));
                // Exit codes go by the name of the container.
                let (prefix, of) = match of.strip_prefix("step-") {
                    Some(of) if rest.starts_with("exitCode") => ("step-", of),
                    _ => ("", of),
                };
                match self.steps.get(of) {
                    Some(_) if prefix.is_empty() && rest.starts_with("exitCode") => {
                        no("write $(steps.step-NAME.exitCode.path)")
                    }
                    Some(new) => Ok(format!("$(steps.{prefix}{new}.{rest})")),
                    None => no("it has no such step"),
                }
            }
            "workspaces" => {
                let of = rest.trim_start_matches('.').split('.').next().unwrap_or_default();
                let is_own = self.workspaces.iter().any(|own| own == of);
                if is_own { same() } else { no("it declares no such workspace") }
            }
            "inputs" => no("write $(params.NAME)"),
            "tasks" | "finally" | "outputs" => no("a step of a build sees no other task"),
            _ => same(),
        }
    }
}

/// The name of a parameter, and what follows it, from what stands behind `params`.
fn parameter(rest: &str) -> Option<(&str, &str)> {
    if let Some(name) = rest.strip_prefix('.') {
        return Some(name.split_at(name.find('[').unwrap_or(name.len())));
    }
    let (quote, rest) = [('"', "[\""), ('\'', "['")]
        .into_iter()
        .find_map(|(quote, start)| Some((quote, rest.strip_prefix(start)?)))?;
    let (name, rest) = rest.split_once(quote)?;
    Some((name, rest.strip_prefix(']')?))
}

#[cfg(test)]
#[path = "tests/stage.rs"]
mod tests;
