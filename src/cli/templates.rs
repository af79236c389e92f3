//! Pipeline templates for commands: the shipped ones, and those of folders; and the sources of builds.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use clap::Args as ClapArgs;

use super::{Failure, USAGE};
use crate::api::agent_build::AgentBuildSpec;
use crate::controllers::agent_build::pipeline::{self, Overrides};
use crate::controllers::agent_build::profile::{BuildProfile, PROFILES_KEY, StepProfile};
use crate::controllers::agent_build::resolve_template::{
    BuildArgs, Inputs, ResolvedStep, ResolvedTemplate, resolve,
};
use crate::controllers::agent_build::template::{
    STEP_KEY, STEP_LABEL, StepSource, TEMPLATE_KEY, Template, VERSION_KEY, config_map_name, parse,
};
use crate::controllers::agent_build::template_error::TemplateError;
use crate::definition::Limits;
use crate::definition::document::{self, Budget};
use crate::git::{GitError, Snapshot};
use crate::sync::published::builds::dockerfile_of;
use convoke_core::sync::commit::source_at::SourceAt;

/// The templates and steps that `deploy/` installs.
const SHIPPED: [(&str, &str); 21] = [
    ("template-dev.yaml", include_str!("../../deploy/pipelines/template-dev.yaml")),
    (
        "template-dev-external.yaml",
        include_str!("../../deploy/pipelines/template-dev-external.yaml"),
    ),
    ("template-preprod.yaml", include_str!("../../deploy/pipelines/template-preprod.yaml")),
    ("template-prod.yaml", include_str!("../../deploy/pipelines/template-prod.yaml")),
    ("step-clone.yaml", include_str!("../../deploy/pipelines/step-clone.yaml")),
    ("step-verify.yaml", include_str!("../../deploy/pipelines/step-verify.yaml")),
    ("step-build.yaml", include_str!("../../deploy/pipelines/step-build.yaml")),
    ("step-push.yaml", include_str!("../../deploy/pipelines/step-push.yaml")),
    ("step-fetch-layers.yaml", include_str!("../../deploy/pipelines/step-fetch-layers.yaml")),
    ("step-push-layers.yaml", include_str!("../../deploy/pipelines/step-push-layers.yaml")),
    ("step-dependencies.yaml", include_str!("../../deploy/pipelines/step-dependencies.yaml")),
    ("step-append.yaml", include_str!("../../deploy/pipelines/step-append.yaml")),
    ("step-append-layout.yaml", include_str!("../../deploy/pipelines/step-append-layout.yaml")),
    ("step-copy.yaml", include_str!("../../deploy/pipelines/step-copy.yaml")),
    ("step-test.yaml", include_str!("../../deploy/pipelines/step-test.yaml")),
    ("step-scan-secrets.yaml", include_str!("../../deploy/pipelines/step-scan-secrets.yaml")),
    (
        "step-scan-dependencies.yaml",
        include_str!("../../deploy/pipelines/step-scan-dependencies.yaml"),
    ),
    ("step-scan-image.yaml", include_str!("../../deploy/pipelines/step-scan-image.yaml")),
    ("step-policy.yaml", include_str!("../../deploy/pipelines/step-policy.yaml")),
    ("step-sbom.yaml", include_str!("../../deploy/pipelines/step-sbom.yaml")),
    ("step-push-sbom.yaml", include_str!("../../deploy/pipelines/step-push-sbom.yaml")),
];
/// What stands for the ids of a commit where there is none.
const NO_ID: &str = "0000000000000000000000000000000000000000";
/// The longest file with templates.
const MAX_FILE_BYTES: u64 = 1 << 20;
/// Files with templates.
const MAX_FILES: usize = 200;

/// Folders with templates and steps.
#[derive(Debug, ClapArgs)]
pub struct TemplateArgs {
    /// Folder with templates and steps of the AgentBuild's namespace: ConfigMaps, which win over all others
    #[arg(long, value_name = "FOLDER")]
    pub templates: Option<PathBuf>,
    /// Folder with templates and steps of the operator's namespace: ConfigMaps, which win over the shipped ones
    #[arg(long, value_name = "FOLDER")]
    pub operator_templates: Option<PathBuf>,
}

/// Whose a ConfigMap is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Side {
    /// It is in the namespace of the AgentBuild. Declared versions do not count.
    Own,
    /// It is in the operator's namespace.
    Operator,
}

/// A ConfigMap with a template or a step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigMap {
    /// Whose it is.
    pub side: Side,
    /// The value of [`TEMPLATE_KEY`].
    pub template: Option<String>,
    /// What it has as a step, without a profile.
    pub step: StepSource,
    /// The value of [`PROFILES_KEY`], if it counts.
    pub profiles: Option<String>,
}

impl ConfigMap {
    /// Of a ConfigMap with these values. `labelled`: whether it carries [`STEP_LABEL`].
    pub fn new(side: Side, labelled: bool, data: impl Fn(&str) -> Option<String>) -> Self {
        let of_operator = |key: &str| data(key).filter(|_| side == Side::Operator);
        let version = of_operator(VERSION_KEY);
        let step = StepSource { labelled, task_spec: data(STEP_KEY), version, profile: None };
        Self { side, template: data(TEMPLATE_KEY), step, profiles: of_operator(PROFILES_KEY) }
    }
}

/// ConfigMaps by name.
pub type ConfigMaps = BTreeMap<String, ConfigMap>;

/// The shipped templates and steps, which are in this program, by name.
pub fn shipped() -> Result<ConfigMaps, Failure> {
    let mut maps = BTreeMap::new();
    for (name, text) in SHIPPED {
        maps.extend(config_maps(name, text, Side::Operator)?);
    }
    Ok(maps)
}

/// The template of a mode, with what an AgentBuild changes of it.
///
/// # Errors
/// Never an empty list.
fn parsed(
    spec: &AgentBuildSpec,
    maps: &ConfigMaps,
    places: &str,
) -> Result<(Template, Overrides, Side), Vec<TemplateError>> {
    let name = config_map_name(&spec.mode);
    let found = maps.get(&name).ok_or_else(|| {
        let namespaces = places.to_owned();
        vec![TemplateError::TemplateNotFound { config_map: name.clone(), namespaces }]
    })?;
    let mut template = parse(&name, found.template.as_deref()).map_err(|error| vec![error])?;
    template.version = template.version.filter(|_| found.side == Side::Operator);
    let overrides = pipeline::apply(&mut template, spec.pipeline.as_ref())?;
    Ok((template, overrides, found.side))
}

/// The names of the ConfigMaps of the steps that the template of a build has. None if it cannot be used.
pub fn step_names(spec: &AgentBuildSpec, maps: &ConfigMaps) -> Vec<String> {
    let steps = parsed(spec, maps, "").map(|(template, ..)| template.steps).unwrap_or_default();
    steps.into_iter().filter(|step| step.enabled).map(|step| step.config_map).collect()
}

/// The template of a build, as the controller resolves it. `places` says where `maps` are from. `profile` is the operator's.
///
/// # Errors
/// Why it cannot be used, as one sentence.
pub fn template(
    spec: &AgentBuildSpec,
    maps: &ConfigMaps,
    places: &str,
    image: &str,
    profile: BuildProfile,
) -> Result<ResolvedTemplate, String> {
    let failure = |errors: Vec<TemplateError>| {
        let texts: Vec<_> = errors.iter().map(ToString::to_string).collect();
        format!("the template cannot be used: {}", texts.join("; "))
    };
    let (parsed, overrides, side) = parsed(spec, maps, places).map_err(failure)?;
    let source = |(name, map): (&String, &ConfigMap)| {
        // A template of another namespace names images of its own. They get no privileges.
        let changes = map.profiles.clone().filter(|_| side == Side::Operator);
        let profile = StepProfile::new(profile, changes);
        (name.clone(), StepSource { profile, ..map.step.clone() })
    };
    let sources = maps.iter().map(source).collect();
    let build_args = BuildArgs::of(spec);
    let inputs = Inputs { build_args, overrides: &overrides, operator_image: image };
    let resolved = resolve(&parsed, &sources, places, inputs).map_err(failure)?;
    let is_operators = |step: &ResolvedStep| {
        maps.get(&step.config_map).is_some_and(|map| map.side == Side::Operator)
    };
    let of_operator = side == Side::Operator && resolved.steps.iter().all(is_operators);
    Ok(ResolvedTemplate { of_operator, ..resolved })
}

/// A source that no commit has.
pub fn no_source() -> SourceAt {
    SourceAt {
        sync: String::new(),
        url: String::new(),
        commit: NO_ID.to_owned(),
        subfolder_tree: Some(NO_ID.to_owned()),
        paths: BTreeMap::new(),
        dockerfile: None,
        base_images: BTreeMap::new(),
        applied: None,
    }
}

/// The source of a build at a commit.
///
/// # Errors
/// Those of [`Snapshot::tree_id`].
pub fn source_at(
    snapshot: &Snapshot,
    url: String,
    spec: &AgentBuildSpec,
) -> Result<SourceAt, GitError> {
    let mut paths = BTreeMap::new();
    for path in &spec.trigger.paths {
        paths.insert(path.clone(), snapshot.tree_id(path)?);
    }
    let subfolder_tree = snapshot.tree_id(&spec.source.subfolder)?;
    let dockerfile = dockerfile_of(snapshot, spec);
    let commit = snapshot.commit().id.clone();
    Ok(SourceAt { url, commit, subfolder_tree, paths, dockerfile, ..no_source() })
}

/// The ConfigMaps of the YAML and JSON files of a folder, by name.
pub fn read(folder: &Path, side: Side) -> Result<ConfigMaps, Failure> {
    let option = if side == Side::Own { "--templates" } else { "--operator-templates" };
    let refused = |path: &Path, why: String| {
        Failure::new(USAGE, format!("{option}: cannot read {}: {why}", path.display()))
    };
    let entries = std::fs::read_dir(folder).map_err(|error| refused(folder, error.to_string()))?;
    let is_wanted = |path: &PathBuf| {
        let extension = path.extension().and_then(|extension| extension.to_str());
        extension.is_some_and(|extension| ["yaml", "yml", "json"].contains(&extension))
    };
    let mut files: Vec<_> = entries.flatten().map(|entry| entry.path()).filter(is_wanted).collect();
    files.sort();
    if files.len() > MAX_FILES {
        return Err(refused(folder, format!("it has more than {MAX_FILES} files")));
    }
    let mut maps = BTreeMap::new();
    for path in files {
        let size = path.metadata().map_err(|error| refused(&path, error.to_string()))?.len();
        if size > MAX_FILE_BYTES {
            return Err(refused(&path, format!("it has more than {MAX_FILE_BYTES} bytes")));
        }
        let text =
            std::fs::read_to_string(&path).map_err(|error| refused(&path, error.to_string()))?;
        maps.extend(config_maps(&path.display().to_string(), &text, side)?);
    }
    Ok(maps)
}

/// The ConfigMaps of a text, by name. Other documents are left alone.
fn config_maps(file: &str, text: &str, side: Side) -> Result<ConfigMaps, Failure> {
    let Limits { documents, depth, nodes, .. } = Limits::default();
    let parsed = document::parse(text, Budget { documents, depth, nodes });
    let faults = parsed.faulty.into_iter().flat_map(|faulty| faulty.faults);
    if let Some(fault) = parsed.faults.into_iter().chain(faults).next() {
        let message = format!("{file}: line {}: {}", fault.place.line, fault.message);
        return Err(Failure::new(USAGE, message));
    }
    let values = parsed.documents.into_iter().map(|document| document.value);
    let maps = values.filter(|value| value["kind"] == "ConfigMap").filter_map(|value| {
        let name = value["metadata"]["name"].as_str()?.to_owned();
        let data = |key: &str| value["data"][key].as_str().map(str::to_owned);
        let labelled = value["metadata"]["labels"][STEP_LABEL] == "true";
        Some((name, ConfigMap::new(side, labelled, data)))
    });
    Ok(maps.collect())
}

#[cfg(test)]
#[path = "tests/templates.rs"]
mod tests;
