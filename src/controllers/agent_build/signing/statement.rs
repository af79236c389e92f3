//! (pure) What is attested of a build: an in-toto statement with SLSA's provenance, made of its PipelineRun.
//!
//! All of it is from the spec and the status of the PipelineRun. Tekton lets nobody change that spec, and nothing that has run in the pod of the
//! build is asked, but for the digests, which Tekton tells as results.
#![deny(clippy::disallowed_types, clippy::disallowed_methods)]

use std::collections::BTreeMap;

use k8s_openapi::jiff::Timestamp;
use kube::api::DynamicObject;
use reqwest::Url;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::api::git_sync::GitRef;
use crate::controllers::agent_build::base_images::{self, BASE_IMAGES};
use crate::controllers::agent_build::resolve_template::ResolvedTemplate;
use crate::registry::{Digest, Image, Reference};

/// The type of the statement.
pub const STATEMENT: &str = "https://in-toto.io/Statement/v1";
/// The type of its predicate.
pub const PREDICATE: &str = "https://slsa.dev/provenance/v1";
/// What the parameters of the predicate mean.
pub const BUILD_TYPE: &str =
    "https://github.com/convoke-dev/convoke/blob/main/docs/agent-builds.md#build-type-v1";
/// Who says it. Whose operator it is, the key says.
pub const BUILDER: &str = "https://convoke.dev/operator";
/// The parameter of a PipelineRun by which it is to be attested, and what of it no other parameter has.
pub const PARAMETER: &str = "provenance";
/// Parameters whose values are left out of the list of those of steps: they are told in their own places.
const REFERENCE: &str = "$(params";

/// What a PipelineRun says of its source and its template that its other parameters do not say.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Asked {
    /// The mode of the AgentBuild.
    pub mode: String,
    /// Whose pipeline it is.
    pub pipeline_of: PipelineOf,
    /// The ref that was followed: `refs/heads/main`.
    #[serde(rename = "ref", default, skip_serializing_if = "Option::is_none")]
    pub reference: Option<String>,
    /// The id of the tree of the source folder.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tree: Option<String>,
}

/// Whose pipeline has built an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum PipelineOf {
    /// Template and steps are those of the operator's namespace.
    Operator,
    /// The template, or a step, is of the namespace of the AgentBuild.
    Namespace,
    /// The AgentBuild names its steps (`spec.pipeline.steps`).
    AgentBuild,
}

impl PipelineOf {
    /// Of a template. `of_operator`: all its ConfigMaps are in the operator's namespace.
    #[must_use]
    pub const fn of(template: &ResolvedTemplate) -> Self {
        match (template.own_steps, template.of_operator) {
            (true, _) => Self::AgentBuild,
            (false, true) => Self::Operator,
            (false, false) => Self::Namespace,
        }
    }
}

/// The full name of a ref. `None` for a range of versions and for a commit: they are none.
#[must_use]
pub fn full_ref(reference: &GitRef) -> Option<String> {
    let GitRef { branch, tag, semver, name, commit } = reference;
    match (branch, tag, name) {
        (Some(branch), _, _) => Some(format!("refs/heads/{branch}")),
        (_, Some(tag), _) => Some(format!("refs/tags/{tag}")),
        (_, _, Some(name)) => Some(name.clone()),
        _ if semver.is_some() || commit.is_some() => None,
        _ => Some("refs/heads/main".into()),
    }
}

/// Has a PipelineRun that is rendered attested.
pub fn ask(run: &mut Value, asked: &Asked) {
    let mut asked = asked.clone();
    // Tekton would replace it.
    asked.reference = asked.reference.filter(|reference| !reference.contains('$'));
    let value = json!(asked).to_string();
    if let Some(params) = run["spec"]["params"].as_array_mut() {
        params.push(json!({"name": PARAMETER, "value": value}));
    }
    if let Some(params) = run["spec"]["pipelineSpec"]["params"].as_array_mut() {
        params.push(json!({"name": PARAMETER, "type": "string"}));
    }
}

/// Whether the spec of a PipelineRun asks for an attestation.
#[must_use]
pub fn is_asked(spec: &Value) -> bool {
    spec["params"].as_array().is_some_and(|all| all.iter().any(|one| one["name"] == PARAMETER))
}

/// The name of a run in statements.
#[must_use]
pub fn invocation(run: &DynamicObject) -> String {
    let meta = &run.metadata;
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    format!("{}/{}/{}", text(&meta.namespace), text(&meta.name), text(&meta.uid))
}

/// The statement about a run that has made this image.
///
/// # Errors
/// What is missing in the run.
pub fn statement(
    run: &DynamicObject,
    image: &Image,
    digest: &Digest,
    base_digest: Option<&str>,
) -> Result<Value, String> {
    let (spec, status) = (&run.data["spec"], &run.data["status"]);
    let params = Params::of(spec);
    let asked = params.text(PARAMETER)?;
    let asked: Asked = serde_json::from_str(asked)
        .map_err(|_| format!("the PipelineRun has no parameter {PARAMETER} of this version"))?;
    let Asked { mode, pipeline_of, reference, tree } = asked;
    let (repository, commit) = (without_user(params.text("repo-url")?), params.text("revision")?);
    let subfolder = params.text("subfolder")?;
    let strategy = params.text("strategy")?;

    let mut external = Map::new();
    external.insert("repository".into(), json!(repository));
    if let Some(reference) = &reference {
        external.insert("ref".into(), json!(reference));
    }
    external.insert("subfolder".into(), json!(subfolder));
    external.insert("mode".into(), json!(mode));
    external.insert("strategy".into(), json!(strategy));
    let appends = strategy == "Append";
    if appends {
        let mut append = json!({
            "baseImage": params.text("base-image")?, "into": params.text("append-into")?,
            "command": params.list("append-command"), "user": params.text("append-user")?,
        });
        for (field, parameter) in
            [("lockFile", "append-lock-file"), ("platform", "append-platform")]
        {
            if let Some(text) = params.text(parameter).ok().filter(|text| !text.is_empty()) {
                append[field] = json!(text);
            }
        }
        external.insert("append".into(), append);
    } else {
        external.insert("dockerfile".into(), json!(params.text("dockerfile")?));
        let arguments = params.list("build-args");
        let arguments: BTreeMap<_, _> =
            arguments.into_iter().filter_map(|one| one.split_once('=')).collect();
        external.insert("buildArgs".into(), json!(arguments));
    }

    let at = reference.map(|reference| format!("@{reference}")).unwrap_or_default();
    let uri = format!("git+{repository}{at}");
    let mut resolved = vec![json!({"uri": uri, "digest": {"gitCommit": commit}})];
    if let Some(tree) = tree {
        resolved.push(json!({"name": subfolder, "uri": uri, "digest": {"gitTree": tree}}));
    }
    if let (true, Some(digest)) = (appends, base_digest) {
        let base: Reference = params.text("base-image")?.parse()?;
        let digest: Digest = digest.parse()?;
        let uri = format!("oci://{}", base.image);
        resolved.push(json!({"uri": uri, "digest": {"sha256": digest.hex()}}));
    }

    for image in base_images::of_value(&params.list(BASE_IMAGES))? {
        let digest = image.digest().map(Digest::hex);
        let uri = format!("oci://{}", image.image);
        resolved.push(json!({"uri": uri, "digest": {"sha256": digest}}));
    }

    let key = params.text("key-tag")?.trim_start_matches("cvk-");
    let internal =
        json!({"buildKey": key, "pipelineOf": pipeline_of, "parameters": of_steps(spec)});
    let mut metadata = Map::new();
    metadata.insert("invocationId".into(), invocation(run).into());
    for (name, from) in [("startedOn", "startTime"), ("finishedOn", "completionTime")] {
        let time = status[from].as_str().filter(|time| time.parse::<Timestamp>().is_ok());
        if let Some(time) = time {
            metadata.insert(name.into(), time.into());
        }
    }
    Ok(json!({
        "_type": STATEMENT,
        "subject": [{"name": image.to_string(), "digest": {"sha256": digest.hex()}}],
        "predicateType": PREDICATE,
        "predicate": {
            "buildDefinition": {
                "buildType": BUILD_TYPE,
                "externalParameters": external,
                "internalParameters": internal,
                "resolvedDependencies": resolved,
            },
            "runDetails": {
                "builder": {"id": BUILDER, "version": {"convoke": env!("CARGO_PKG_VERSION")}},
                "metadata": metadata,
            },
        },
    }))
}

/// A URL without a user and a password.
fn without_user(url: &str) -> String {
    let Ok(mut parsed) = Url::parse(url) else { return url.to_owned() };
    if parsed.username().is_empty() && parsed.password().is_none() {
        return url.to_owned();
    }
    let _ = parsed.set_password(None);
    let _ = parsed.set_username("");
    parsed.into()
}

/// The parameters of the steps that have values of their own, by their names in the Task: `build_buildah-image`.
fn of_steps(spec: &Value) -> BTreeMap<String, Value> {
    let tasks = spec["pipelineSpec"]["tasks"].as_array().map(Vec::as_slice).unwrap_or_default();
    let params = tasks.iter().filter_map(|task| task["params"].as_array()).flatten();
    let own = params.filter(|param| !param["value"].to_string().contains(REFERENCE));
    own.filter_map(|param| Some((param["name"].as_str()?.to_owned(), param["value"].clone())))
        .collect()
}

/// The parameters of a PipelineRun.
struct Params<'a>(BTreeMap<&'a str, &'a Value>);

impl<'a> Params<'a> {
    fn of(spec: &'a Value) -> Self {
        let all = spec["params"].as_array().map(Vec::as_slice).unwrap_or_default();
        Self(all.iter().filter_map(|one| Some((one["name"].as_str()?, &one["value"]))).collect())
    }

    fn text(&self, name: &str) -> Result<&'a str, String> {
        let value = self.0.get(name).and_then(|value| value.as_str());
        value.ok_or_else(|| format!("the PipelineRun has no parameter {name}"))
    }

    fn list(&self, name: &str) -> Vec<&'a str> {
        let list = self.0.get(name).and_then(|value| value.as_array());
        list.into_iter().flatten().filter_map(Value::as_str).collect()
    }
}

#[cfg(test)]
#[path = "tests/statement.rs"]
mod tests;
