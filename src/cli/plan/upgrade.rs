//! What an upgrade of the operator changes of a build: the templates and steps that this program ships, in place of older ones.

use serde_json::Value;

use super::templates::Found;
use crate::api::agent_build::AgentBuildSpec;
use crate::cli::templates::{ConfigMap, ConfigMaps, Side};
use crate::controllers::agent_build::pipeline_run::{key_values, runs, template_hash};
use crate::controllers::agent_build::resolve_template::{ResolvedStep, ResolvedTemplate};

/// What of the pipeline of a build is another one after an upgrade, if that builds its image anew; an error if it cannot be built then. Nothing of
/// a build whose pipeline cannot be used before.
pub fn upgrade(
    spec: &AgentBuildSpec,
    found: &Found,
    shipped: &ConfigMaps,
    registry: &str,
) -> Option<Result<String, String>> {
    let before = found.resolve(spec).ok()?;
    let maps = upgraded(&found.maps, shipped);
    let after = match found.with(maps).resolve(spec) {
        Ok(after) => after,
        Err(error) => return Some(Err(error)),
    };
    let hash = |template| template_hash(template, spec, registry);
    (hash(&before) != hash(&after)).then(|| Ok(difference(&before, &after, spec, registry)))
}

/// The ConfigMaps of a build once those of this program are installed. What is the namespace's own stays.
fn upgraded(live: &ConfigMaps, shipped: &ConfigMaps) -> ConfigMaps {
    let mut maps = shipped.clone();
    for (name, map) in live {
        let new = shipped.get(name).filter(|_| map.side == Side::Operator);
        let map = new.map_or_else(|| map.clone(), |new| newer(map, new));
        maps.insert(name.clone(), map);
    }
    maps
}

/// A ConfigMap of the operator's namespace, or the shipped one if that is newer.
fn newer(live: &ConfigMap, new: &ConfigMap) -> ConfigMap {
    if let (Some(have), Some(text)) = (&live.template, &new.template) {
        let (Some(have), Some(mut text)) = (parse(have), parse(text)) else { return live.clone() };
        let version = |template: &Value| template["version"].as_str().map(str::to_owned);
        if !is_older(version(&have).as_deref(), version(&text).as_deref()) {
            return live.clone();
        }
        keep_values(&have, &mut text);
        return ConfigMap { template: Some(text.to_string()), ..new.clone() };
    }
    let older = is_older(live.step.version.as_deref(), new.step.version.as_deref());
    if older { new.clone() } else { live.clone() }
}

fn parse(text: &str) -> Option<Value> {
    serde_json::from_str(text).ok()
}

/// Whether a shipped version takes the place of this one. Shipped ones are numbers. Any other one is somebody's own.
fn is_older(live: Option<&str>, shipped: Option<&str>) -> bool {
    let number = |text: &str| text.parse::<u64>().ok();
    match (live, shipped) {
        (_, None) => false,
        (None, Some(_)) => true,
        (Some(live), Some(shipped)) => match (number(live), number(shipped)) {
            (Some(live), Some(shipped)) => live < shipped,
            _ => false,
        },
    }
}

/// Gives a template the global parameters of another one: whoever installs it gives it the same ones.
fn keep_values(old: &Value, new: &mut Value) {
    let list = |template: &Value| template["globalParameters"].as_array().cloned();
    let (values, shipped) = (list(old).unwrap_or_default(), list(new).unwrap_or_default());
    let is_kept = |one: &Value| !values.iter().any(|value| value["name"] == one["name"]);
    let mut all: Vec<_> = shipped.into_iter().filter(is_kept).collect();
    all.extend(values);
    new["globalParameters"] = all.into();
}

/// What two templates of a build have differently, as far as it runs.
fn difference(
    before: &ResolvedTemplate,
    after: &ResolvedTemplate,
    spec: &AgentBuildSpec,
    registry: &str,
) -> String {
    let values = key_values(spec, registry);
    let running = |template: &'_ ResolvedTemplate| -> Vec<ResolvedStep> {
        template.steps.iter().filter(|step| runs(step, &values)).cloned().collect()
    };
    let (old, new) = (running(before), running(after));
    let mut parts = Vec::new();
    let shown = |version: &Option<String>| version.clone().unwrap_or_else(|| "none".to_owned());
    if before.version != after.version {
        parts.push(format!(
            "template {} {} → {}",
            spec.mode,
            shown(&before.version),
            shown(&after.version)
        ));
    }
    for step in &new {
        match old.iter().find(|was| was.name == step.name) {
            None => parts.push(format!("step {} is new", step.name)),
            Some(was) if was.version != step.version => parts.push(format!(
                "step {} {} → {}",
                step.name,
                shown(&was.version),
                shown(&step.version)
            )),
            Some(_) => {}
        }
    }
    let gone = old.iter().filter(|was| !new.iter().any(|step| step.name == was.name));
    parts.extend(gone.map(|was| format!("without step {}", was.name)));
    if parts.is_empty() {
        return "the pipeline template changes".to_owned();
    }
    format!("the pipeline template changes: {}", parts.join(", "))
}

#[cfg(test)]
#[path = "tests/upgrade.rs"]
mod tests;
