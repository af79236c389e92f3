//! (pure) Renders the Tekton PipelineRun of one build. The PipelineRun is created once and never changed: Tekton refuses changes.
#![deny(clippy::disallowed_types, clippy::disallowed_methods)]

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

use super::after_build::separated;
use super::appended::{self, BASE_IMAGE, appended};
use super::base_images::{self, BASE_IMAGES};
use super::key::BuildKey;
use super::layer_cache;
use super::place::{Owner, metadata, name_of};
use super::profile;
use super::resolve_template::{Bound, ResolvedStep, ResolvedTemplate, replaced};
use super::run::HELD;
use super::stage::{Stage, parameter_name, parameter_reference};
use super::template::{
    BASE_RESULT, CACHE_RESULT, DIGEST_RESULTS, FROM_SPEC, ParameterType, ParameterValue,
    SBOM_RESULT, URL_RESULT, WORKSPACE_AFTER_BUILD, WORKSPACE_GIT_AUTH, WORKSPACE_PUSH_AUTH,
    WORKSPACE_SOURCE,
};
use crate::api::agent_build::AgentBuildSpec;
use crate::api::keys;
use crate::definition::tag::tag;
use crate::registry::Reference;
use crate::sync::credentials::Access;
use convoke_core::sync::commit::source_at::SourceAt;

/// `apiVersion` of what is rendered.
pub const TEKTON_API_VERSION: &str = "tekton.dev/v1";
/// Value of the label [`keys::OWNER_KIND`] on every PipelineRun of ours.
pub const OWNER_KIND: &str = "agentbuild";
/// Label with the first digits of the build key, and annotation with all of them.
pub const BUILD_KEY: &str = "convoke.dev/build-key";
/// Annotation: which try of this key it is, from 1.
pub const ATTEMPT: &str = "convoke.dev/attempt";
/// Annotation: registry and name of the image.
pub const IMAGE: &str = "convoke.dev/image";
/// Annotation: the id of the source folder's tree in Git.
pub const TREE: &str = "convoke.dev/tree";
/// Annotation on a PipelineRun that was stopped: the build key for which it was.
pub const SUPERSEDED_BY: &str = "convoke.dev/superseded-by";
/// Annotation on such a PipelineRun: the commit that wants that key.
pub const SUPERSEDED_BY_COMMIT: &str = "convoke.dev/superseded-by-commit";

/// The parameter with the registry that the AgentBuild names.
const OUTPUT_REGISTRY: &str = "output-registry";

/// The longest name of a PipelineRun: Tekton puts it into labels.
pub const MAX_NAME: usize = 63;
/// The group that may write to the shared workspace: that of steps that need no root.
const GROUP: i64 = 65532;
/// The most bytes of a PipelineRun. etcd stores 1.5 MiB, and Tekton repeats the pipeline in its status.
const MAX_RUN: usize = 512 << 10;

/// Why an AgentBuild cannot be rendered.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SpecError {
    /// The tag is no tag once `{commit}` and `{short}` are replaced.
    #[error(
        "spec.output.tag: {0:?} is no tag; use letters, digits, '_', '.', '-', {{commit}} and {{short}}"
    )]
    InvalidTag(String),
    /// Zero means no limit to Tekton.
    #[error("spec.timeout: must be longer than zero")]
    InvalidTimeout,
    /// The conditions of the template leave out what pushes the image.
    #[error(
        "no step that runs has the result IMAGE_DIGEST: conditions (when) of the template leave it out"
    )]
    NoDigest,
    /// The base image is none.
    #[error("spec.append.baseImage: {0}")]
    InvalidBaseImage(String),
    /// What the spec asks for, and the parameter that no step takes.
    #[error("{0}, but no step that runs has the parameter {1}")]
    NothingTakes(&'static str, &'static str),
    /// What an earlier commit has left must not be in an image that is attested.
    #[error(
        "spec.layerCache must not be true with provenance (mode {0}): an image that is attested is made of its commit, and not of layers that another one has left"
    )]
    CacheNotAttested(String),
    /// A parameter that the template requires is empty, and a step that runs takes it.
    #[error("step {step} needs a value for parameter {name}, which the template leaves empty")]
    MissingParameter {
        /// The step of the template.
        step: String,
        /// The parameter.
        name: String,
    },
    /// A parameter that the template requires, and that the AgentBuild leaves empty.
    #[error("the template asks for {}, which is empty", field_of(.0))]
    RequiredEmpty(String),
    /// The API server could not store the run.
    #[error(
        "the PipelineRun would have {0} bytes, and the most are {MAX_RUN}; use fewer steps, or fewer and shorter parameters"
    )]
    TooLarge(usize),
    /// A value that Tekton or Kubernetes would change.
    #[error("parameter {0}: the value must not contain \"$(\" or \"$$\"")]
    UnsafeValue(&'static str),
}

impl SpecError {
    /// The reason of the condition.
    #[must_use]
    pub const fn reason(&self) -> &'static str {
        match self {
            Self::InvalidTag(_) => "InvalidTag",
            Self::InvalidTimeout => "InvalidTimeout",
            Self::NoDigest => "NoDigestResult",
            Self::InvalidBaseImage(_) => "InvalidBaseImage",
            Self::NothingTakes(..) | Self::CacheNotAttested(_) => "StrategyNotSupported",
            Self::MissingParameter { .. } | Self::RequiredEmpty(_) => "MissingParameter",
            Self::TooLarge(_) => "PipelineRunTooLarge",
            Self::UnsafeValue(_) => "UnsafeValue",
        }
    }
}

/// The field that gives a parameter its value, for people.
fn field_of(parameter: &str) -> String {
    match parameter {
        OUTPUT_REGISTRY => "spec.output.registry".into(),
        BASE_IMAGE => "spec.append.baseImage".into(),
        "append-command" => "spec.append.command".into(),
        "append-user" => "spec.append.user".into(),
        appended::LOCK_FILE => "spec.append.lockFile".into(),
        appended::PLATFORM => "spec.append.platform".into(),
        "build-args" => "spec.buildArgs".into(),
        _ => format!("the parameter {parameter}"),
    }
}

/// What one PipelineRun is made of.
#[derive(Debug)]
pub struct Build<'a> {
    /// Namespace of the AgentBuild.
    pub namespace: &'a str,
    /// Namespace of the PipelineRun, if it is another one.
    pub at: Option<&'a str>,
    /// Name of the AgentBuild.
    pub name: &'a str,
    /// UID of the AgentBuild.
    pub uid: &'a str,
    /// Its spec.
    pub spec: &'a AgentBuildSpec,
    /// Its source.
    pub source: &'a SourceAt,
    /// Registry host.
    pub registry: &'a str,
    /// The build key.
    pub key: &'a BuildKey,
    /// Which try of this key, from 1.
    pub attempt: u32,
    /// The template.
    pub template: &'a ResolvedTemplate,
    /// The Secrets with its credentials.
    pub secrets: Option<&'a RunSecrets>,
    /// The digest of the cache of layers that it takes.
    pub cache: Option<&'a str>,
}

/// The Secrets of one PipelineRun. It names them before they are there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunSecrets {
    /// The workspaces that have credentials ([`workspaces_with_credentials`]).
    pub workspaces: Vec<&'static str>,
    /// What nobody knows before: so a Secret of the name that is there is not the one.
    pub nonce: String,
}

/// The workspaces with credentials of a build: those that its repository and its spec have, and a step of the template uses.
#[must_use]
pub fn workspaces_with_credentials(
    access: &Access,
    spec: &AgentBuildSpec,
    template: &ResolvedTemplate,
) -> Vec<&'static str> {
    let (git, push) = (access.has_secrets(), spec.output.secret_ref.is_some());
    let steps: Vec<_> = template.steps.iter().map(|step| &step.stage).collect();
    let all = [(git, WORKSPACE_GIT_AUTH), (push, WORKSPACE_PUSH_AUTH)];
    let used = all.into_iter().filter(|(has, name)| *has && uses(&steps, name));
    used.map(|(_, name)| name).collect()
}

/// Name of the Secret of a run for one of its workspaces.
fn secret_name(run: &str, secrets: &RunSecrets, workspace: &str) -> String {
    format!("{run}-{}-{workspace}", secrets.nonce)
}

/// Registry and name of the image, without a tag.
#[must_use]
pub fn repository(spec: &AgentBuildSpec, registry: &str) -> String {
    // Registries are hosts, and clients write those in small letters.
    format!("{}/{}", registry.to_ascii_lowercase(), spec.output.image)
}

/// Registry and name of an image reference.
#[must_use]
pub fn without_tag(image: &str) -> &str {
    let image = image.split_once('@').map_or(image, |(name, _)| name);
    match image.rsplit_once(':') {
        // A colon before the last slash is a port.
        Some((name, tag)) if !tag.contains('/') => name,
        _ => image,
    }
}

/// Name of the PipelineRun in the namespace of its AgentBuild: build, key, attempt. The same build always gets the same name, so that it can't run twice.
#[must_use]
pub fn run_name(build: &str, key: &BuildKey, attempt: u32) -> String {
    let suffix = format!("-{}-{attempt}", key.short());
    if build.len() + suffix.len() <= MAX_NAME {
        return format!("{build}{suffix}");
    }
    // Two long names with the same beginning must not meet.
    let hash = crate::cluster::meta::hex8(&Sha256::digest(build.as_bytes()));
    let room = MAX_NAME - suffix.len() - hash.len() - 1;
    let beginning = build.get(..room).unwrap_or(build).trim_end_matches('-');
    format!("{beginning}-{hash}{suffix}")
}

/// Renders the PipelineRun.
///
/// # Errors
/// When the spec holds a value that can't be used.
pub fn render(build: &Build<'_>) -> Result<Value, SpecError> {
    let Build { namespace, at, name, uid, spec, source, key, attempt, template, .. } = build;
    let Build { registry, secrets, .. } = build;
    let values = values(build)?;
    if !spec.timeout.bytes().any(|digit| (b'1'..=b'9').contains(&digit)) {
        return Err(SpecError::InvalidTimeout);
    }
    let types: BTreeMap<&str, ParameterType> = FROM_SPEC.into_iter().collect();
    let steps: Vec<_> = template.steps.iter().filter(|step| runs(step, &values)).collect();
    let results = results(&steps);
    if !results.iter().any(|result| DIGEST_RESULTS.iter().any(|name| result["name"] == *name)) {
        return Err(SpecError::NoDigest);
    }
    let takes = |name: &str| steps.iter().find(|step| step.parameters.contains_key(name));
    if template.provenance && layer_cache::is_on(spec) {
        return Err(SpecError::CacheNotAttested(spec.mode.clone()));
    }
    let mut asks = appended::asks(spec).chain(layer_cache::asks(spec));
    if let Some((what, name)) = asks.find(|(_, name)| takes(name).is_none()) {
        return Err(SpecError::NothingTakes(what, name));
    }
    let is_empty = |name: &str| values.get(name).is_none_or(ParameterValue::is_empty);
    // As for other parameters: what only steps take that do not run may be empty.
    let is_left_out = |name: &str| {
        let mut all = template.steps.iter();
        takes(name).is_none() && all.any(|step| step.parameters.contains_key(name))
    };
    let mut required = template.from_spec.iter();
    if let Some(name) = required.find(|name| is_empty(name) && !is_left_out(name)) {
        return Err(SpecError::RequiredEmpty(name.clone()));
    }
    let unset = template.unset.iter().find_map(|name| takes(name).map(|step| (step, name)));
    if let Some((step, name)) = unset {
        return Err(SpecError::MissingParameter { step: step.name.clone(), name: name.clone() });
    }
    // All steps are in one pod: folders of its own are enough, and need no storage class.
    let run = name_of(*at, &Owner { namespace, name, uid }, key, *attempt);
    let stages = separated(steps.iter().map(|step| &step.stage));
    let stages: Vec<&Stage> = stages.iter().map(AsRef::as_ref).collect();
    let folders = [WORKSPACE_SOURCE, WORKSPACE_AFTER_BUILD].into_iter();
    let mut workspaces: Vec<_> = folders
        .filter(|name| uses(&stages, name))
        .map(|name| json!({"name": name, "emptyDir": {}}))
        .collect();
    let shared = workspaces.len();
    let with_credentials = secrets.iter().flat_map(|secrets| {
        let used = secrets.workspaces.iter().filter(|name| uses(&stages, name));
        used.map(|name| json!({"name": name, "secret": {"secretName": secret_name(&run, secrets, name)}}))
    });
    workspaces.extend(with_credentials);
    let names: Vec<_> = workspaces.iter().map(|workspace| workspace["name"].clone()).collect();
    // Tekton begins when they are there.
    let status = (names.len() > shared).then_some(HELD);
    let mut annotations = Map::new();
    annotations.insert(BUILD_KEY.into(), key.as_str().into());
    annotations.insert(keys::COMMIT.into(), source.commit.as_str().into());
    if let Some(tree) = &source.subfolder_tree {
        annotations.insert(TREE.into(), tree.as_str().into());
    }
    annotations.insert(ATTEMPT.into(), attempt.to_string().into());
    annotations.insert(IMAGE.into(), repository(spec, registry).into());
    let mut manifest = json!({
        "apiVersion": TEKTON_API_VERSION,
        "kind": "PipelineRun",
        "metadata": metadata(build, &run),
        "spec": {
            "params": values.iter().map(|(name, value)| json!({"name": name, "value": value})).collect::<Vec<_>>(),
            "pipelineSpec": {
                "params": values.keys().map(|name| {
                    let declared = types.get(name).copied().unwrap_or(ParameterType::Text).to_string();
                    json!({"name": name, "type": declared})
                }).collect::<Vec<_>>(),
                "workspaces": names.iter().map(|name| json!({"name": name})).collect::<Vec<_>>(),
                "tasks": [task(&steps, &stages, &types, &names)],
                "results": results,
            },
            "workspaces": workspaces,
            "timeouts": {"pipeline": spec.timeout},
            "taskRunTemplate": {"podTemplate": {
                "automountServiceAccountToken": false,
                "enableServiceLinks": false,
                "securityContext": {"fsGroup": GROUP, "fsGroupChangePolicy": "OnRootMismatch"},
            }},
        },
    });
    profile::to_pod(&steps, &mut manifest["spec"]["taskRunTemplate"]["podTemplate"]);
    manifest["metadata"]["annotations"] = annotations.into();
    if let Some(status) = status {
        manifest["spec"]["status"] = status.into();
    }
    let size = manifest.to_string().len();
    if size > MAX_RUN { Err(SpecError::TooLarge(size)) } else { Ok(manifest) }
}

/// Whether all conditions of a step hold.
#[must_use]
pub fn runs(step: &ResolvedStep, values: &BTreeMap<&'static str, ParameterValue>) -> bool {
    step.when.iter().all(|when| {
        let value = |name: &str| match values.get(name) {
            Some(ParameterValue::Text(text)) => Ok(text.clone()),
            _ => Err(String::new()),
        };
        // Which parameters are there was checked when the template was read.
        replaced(&when.input, value).map_or(true, |input| when.holds(&input))
    })
}

/// Whether one of these steps has a workspace.
fn uses(stages: &[&Stage], workspace: &str) -> bool {
    stages.iter().any(|stage| stage.workspaces.contains_key(workspace))
}

/// Hash of what a template gives to the build of a spec: its steps that run.
#[must_use]
pub fn template_hash(template: &ResolvedTemplate, spec: &AgentBuildSpec, registry: &str) -> String {
    let values = key_values(spec, registry);
    template.hash(&spec.mode, |step| runs(step, &values))
}

/// The values of [`FROM_SPEC`] that conditions may ask for. All of them are part of the build key.
#[must_use]
pub fn key_values(spec: &AgentBuildSpec, registry: &str) -> BTreeMap<&'static str, ParameterValue> {
    let text = |text: &str| ParameterValue::Text(text.to_owned());
    let mut values = BTreeMap::from([
        ("subfolder", text(&spec.source.subfolder)),
        ("dockerfile", text(appended(spec).map_or(spec.dockerfile.as_str(), |_| ""))),
        ("image", text(&repository(spec, registry))),
        ("insecure", text(if spec.output.insecure { "true" } else { "false" })),
    ]);
    values.extend(appended::key_values(spec));
    values.extend([layer_cache::key_value(spec)]);
    values
}

/// The values of [`FROM_SPEC`] that do not follow from the commit.
fn spec_values(spec: &AgentBuildSpec, registry: &str) -> BTreeMap<&'static str, ParameterValue> {
    let text = |text: &str| ParameterValue::Text(text.to_owned());
    let build_args =
        spec.build_args.iter().map(|(name, value)| format!("{name}={value}")).collect();
    let mut values = key_values(spec, registry);
    values.extend(appended::other_values(spec));
    values.extend([
        (OUTPUT_REGISTRY, text(spec.output.registry.as_deref().unwrap_or_default())),
        ("build-args", ParameterValue::List(build_args)),
    ]);
    values
}

/// Hash of the values that the parameters of the steps that run have (B4), in hex. Those that follow from the commit do not count, and the
/// image of the operator neither.
#[must_use]
pub fn parameters_hash(
    template: &ResolvedTemplate,
    spec: &AgentBuildSpec,
    registry: &str,
) -> String {
    let (decides, values) = (key_values(spec, registry), spec_values(spec, registry));
    let mut all = BTreeMap::new();
    for step in template.steps.iter().filter(|step| runs(step, &decides)) {
        // What nothing else sets.
        for parameter in &step.stage.params {
            let name = parameter["name"].as_str().unwrap_or_default();
            all.insert(name.to_owned(), parameter["default"].clone());
        }
        for (name, bound) in &step.parameters {
            let value = match bound {
                Bound::Template(value) | Bound::Build(value) => json!(value),
                Bound::Spec => json!(values.get(name.as_str())),
                Bound::Operator(_) => Value::Null,
            };
            all.insert(parameter_name(&step.name, name), value);
        }
    }
    convoke_core::text::hex(&Sha256::digest(json!(all).to_string().as_bytes()))
}

/// The values of [`FROM_SPEC`].
fn values(build: &Build<'_>) -> Result<BTreeMap<&'static str, ParameterValue>, SpecError> {
    let Build { namespace, name, spec, source, registry, key, cache, .. } = build;
    let text = |text: &str| ParameterValue::Text(text.to_owned());
    if let Some(append) = appended(spec) {
        append.base_image.parse::<Reference>().map_err(SpecError::InvalidBaseImage)?;
    }
    let tag = tag(&spec.output.tag, &source.commit).map_err(SpecError::InvalidTag)?;
    let mut values = spec_values(spec, registry);
    values.extend([
        ("repo-url", text(&source.url)),
        ("revision", text(&source.commit)),
        ("tag", ParameterValue::Text(tag)),
        ("key-tag", ParameterValue::Text(key.tag())),
        (BASE_IMAGES, base_images::value(source)),
    ]);
    values.extend(layer_cache::other_values(spec, namespace, name, *cache));
    match values.iter().find(|(_, value)| !value.is_plain()) {
        Some((name, _)) => Err(SpecError::UnsafeValue(name)),
        None => Ok(values),
    }
}

/// The name of the Task.
const TASK: &str = "build";

/// The Task: the steps of all, one after the other, in one pod. `stages` are what they give to it, and `workspaces` are the names of those that the run has.
fn task(
    steps: &[&ResolvedStep],
    stages: &[&Stage],
    types: &BTreeMap<&str, ParameterType>,
    workspaces: &[Value],
) -> Value {
    let bound_workspaces: Vec<_> =
        workspaces.iter().map(|name| json!({"name": name, "workspace": name})).collect();
    let stages = || stages.iter().copied();
    // A later one has the same under the same name.
    let shared = |of: fn(&Stage) -> &BTreeMap<String, Value>| -> Vec<&Value> {
        stages().flat_map(of).collect::<BTreeMap<_, _>>().into_values().collect()
    };
    let mut task_spec = Map::new();
    let params: Vec<_> = stages().flat_map(|stage| &stage.params).collect();
    let volumes: Vec<_> = stages().flat_map(|stage| &stage.volumes).collect();
    let (workspaces, results) = (shared(|stage| &stage.workspaces), shared(|stage| &stage.results));
    for (key, list) in
        [("params", params), ("workspaces", workspaces), ("results", results), ("volumes", volumes)]
    {
        if !list.is_empty() {
            task_spec.insert(key.into(), json!(list));
        }
    }
    let all: Vec<_> = stages().flat_map(|stage| &stage.steps).collect();
    task_spec.insert("steps".into(), json!(all));
    let mut task = Map::new();
    task.insert("name".into(), TASK.into());
    task.insert("taskSpec".into(), task_spec.into());
    let bound = |step: &&ResolvedStep| -> Vec<Value> {
        let one = |(name, bound): (&String, &Bound)| {
            let value = match (bound, types.get(name.as_str())) {
                (Bound::Template(value) | Bound::Build(value), _) => json!(value),
                (Bound::Operator(value), _) => json!(value),
                (Bound::Spec, Some(ParameterType::List)) => {
                    json!([parameter_reference(name, "[*]")])
                }
                (Bound::Spec, _) => json!(parameter_reference(name, "")),
            };
            json!({"name": parameter_name(&step.name, name), "value": value})
        };
        step.parameters.iter().map(one).collect()
    };
    let params: Vec<_> = steps.iter().flat_map(bound).collect();
    if !params.is_empty() {
        task.insert("params".into(), params.into());
    }
    if !bound_workspaces.is_empty() {
        task.insert("workspaces".into(), bound_workspaces.into());
    }
    task.into()
}

/// The results of the pipeline.
fn results(steps: &[&ResolvedStep]) -> Vec<Value> {
    let has = |result: &&str| steps.iter().any(|step| step.stage.results.contains_key(*result));
    let others = [URL_RESULT, BASE_RESULT, SBOM_RESULT, CACHE_RESULT];
    let names = DIGEST_RESULTS.into_iter().chain(others).filter(has);
    let one = |name: &str| json!({"name": name, "type": "string", "value": format!("$(tasks.{TASK}.results.{name})")});
    names.map(one).collect()
}

#[cfg(test)]
#[path = "tests/pipeline_run.rs"]
mod tests;
