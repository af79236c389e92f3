//! Pipeline templates for commands: the shipped ones, and those of a folder; and the sources of builds.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::{Failure, USAGE};
use crate::api::agent_build::AgentBuildSpec;
use crate::controllers::agent_build::pipeline;
use crate::controllers::agent_build::resolve_template::{
    BuildArgs, Inputs, ResolvedTemplate, resolve,
};
use crate::controllers::agent_build::template::{
    STEP_KEY, STEP_LABEL, StepSource, TEMPLATE_KEY, VERSION_KEY, config_map_name, parse,
};
use crate::controllers::agent_build::template_error::TemplateError;
use crate::definition::Limits;
use crate::definition::document::{self, Budget};
use crate::git::{GitError, Snapshot};
use convoke_core::sync::commit::source_at::SourceAt;

/// The templates and steps that `deploy/` installs.
const SHIPPED: [(&str, &str); 18] = [
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
    ("step-dependencies.yaml", include_str!("../../deploy/pipelines/step-dependencies.yaml")),
    ("step-append.yaml", include_str!("../../deploy/pipelines/step-append.yaml")),
    ("step-append-layout.yaml", include_str!("../../deploy/pipelines/step-append-layout.yaml")),
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

/// A ConfigMap with a template or a step.
pub struct ConfigMap {
    /// The value of [`TEMPLATE_KEY`].
    pub template: Option<String>,
    /// Whether declared versions count.
    pub versions: bool,
    /// What it has as a step.
    pub step: StepSource,
}

/// The shipped templates and steps, which are in this program, by name.
pub fn shipped() -> Result<BTreeMap<String, ConfigMap>, Failure> {
    let mut maps = BTreeMap::new();
    for (name, text) in SHIPPED {
        maps.extend(config_maps(name, text, true)?);
    }
    Ok(maps)
}

/// The template of a build, as the controller resolves it. `places` says where `maps` are from.
///
/// # Errors
/// Why it cannot be used, as one sentence.
pub fn template(
    spec: &AgentBuildSpec,
    maps: &BTreeMap<String, ConfigMap>,
    places: &str,
    image: &str,
) -> Result<ResolvedTemplate, String> {
    let failure = |errors: &[TemplateError]| {
        let texts: Vec<_> = errors.iter().map(ToString::to_string).collect();
        format!("the template cannot be used: {}", texts.join("; "))
    };
    let name = config_map_name(&spec.mode);
    let found = maps.get(&name).ok_or_else(|| TemplateError::TemplateNotFound {
        config_map: name.clone(),
        namespaces: places.to_owned(),
    });
    let parsed = found.and_then(|found| parse(&name, found.template.as_deref()));
    let mut parsed = parsed.map_err(|error| failure(&[error]))?;
    let versions = maps.get(&name).is_some_and(|found| found.versions);
    parsed.version = parsed.version.filter(|_| versions);
    let steps = maps.iter().map(|(name, map)| (name.clone(), map.step.clone())).collect();
    let overrides = pipeline::apply(&mut parsed, spec.pipeline.as_ref());
    let overrides = overrides.map_err(|errors| failure(&errors))?;
    let build_args = BuildArgs::of(spec);
    let inputs = Inputs { build_args, overrides: &overrides, operator_image: image };
    resolve(&parsed, &steps, places, inputs).map_err(|errors| failure(&errors))
}

/// A source that no commit has.
pub fn no_source() -> SourceAt {
    SourceAt {
        sync: String::new(),
        url: String::new(),
        commit: NO_ID.to_owned(),
        subfolder_tree: Some(NO_ID.to_owned()),
        paths: BTreeMap::new(),
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
    Ok(SourceAt { url, commit: snapshot.commit().id.clone(), subfolder_tree, paths, ..no_source() })
}

/// The ConfigMaps of the YAML and JSON files of a folder.
pub fn read(folder: &Path) -> Result<BTreeMap<String, ConfigMap>, Failure> {
    let refused = |path: &Path, why: String| {
        Failure::new(USAGE, format!("--templates: cannot read {}: {why}", path.display()))
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
        maps.extend(config_maps(&path.display().to_string(), &text, false)?);
    }
    Ok(maps)
}

/// The ConfigMaps of a text, by name. Other documents are left alone. `versions`: whether declared versions count.
fn config_maps(
    file: &str,
    text: &str,
    versions: bool,
) -> Result<BTreeMap<String, ConfigMap>, Failure> {
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
        let step = StepSource {
            labelled,
            task_spec: data(STEP_KEY),
            version: data(VERSION_KEY).filter(|_| versions),
            profile: None,
        };
        Some((name, ConfigMap { template: data(TEMPLATE_KEY), versions, step }))
    });
    Ok(maps.collect())
}
