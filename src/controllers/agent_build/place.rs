//! (pure) Where the PipelineRuns of an AgentBuild are: in its namespace, or in that of `--build-namespace`.
//!
//! A run in another namespace has no owner reference: Kubernetes knows none across namespaces. Its labels say whose it is, and its name
//! follows from them and from the build key. A finalizer on the AgentBuild names that namespace, for as long as runs may be there.
#![deny(clippy::disallowed_types, clippy::disallowed_methods)]

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

use super::key::BuildKey;
use super::needs::Level;
use super::pipeline_run::{BUILD_KEY, Build, MAX_NAME, OWNER_KIND, run_name};
use super::run::Run;
use crate::api::agent_build::AgentBuildStatus;
use crate::api::{API_VERSION, keys};
use crate::cluster::meta::hex8;
use crate::cluster::store::Key;
use convoke_core::text::is_dns_label;

/// How the finalizer of an AgentBuild begins that has runs in another namespace. The name of that namespace follows.
const FINALIZER: &str = "builds.convoke.dev/";
/// The most characters of what the API server said of a pod that a message tells.
const MAX_SAID: usize = 400;

/// Where the next run of an AgentBuild is made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    home: String,
    at: Option<String>,
}

impl Place {
    /// The place of builds whose pods need this level of Pod Security, of an AgentBuild in the namespace `home`. `build_namespace` is
    /// `--build-namespace`. What passes "restricted" stays at home.
    #[must_use]
    pub fn new(home: &str, needs: Level, build_namespace: Option<&str>) -> Self {
        let at = build_namespace.filter(|at| needs > Level::Restricted && *at != home);
        Self { home: home.to_owned(), at: at.map(str::to_owned) }
    }

    /// The namespace of the AgentBuild.
    #[must_use]
    pub fn at_home(home: &str) -> Self {
        Self { home: home.to_owned(), at: None }
    }

    /// The namespace.
    #[must_use]
    pub fn namespace(&self) -> &str {
        self.elsewhere().unwrap_or(&self.home)
    }

    /// The namespace, if it is not that of the AgentBuild.
    #[must_use]
    pub fn elsewhere(&self) -> Option<&str> {
        self.at.as_deref()
    }

    /// The name of a run there.
    #[must_use]
    pub fn run_name(&self, name: &str, uid: &str, key: &BuildKey, attempt: u32) -> String {
        name_of(self.elsewhere(), &Owner { namespace: &self.home, name, uid }, key, attempt)
    }
}

/// An AgentBuild, as the labels of a run name it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Owner<'a> {
    /// Namespace.
    pub namespace: &'a str,
    /// Name.
    pub name: &'a str,
    /// UID.
    pub uid: &'a str,
}

/// The name of a run, `at` another namespace than that of its AgentBuild, or at home.
#[must_use]
pub fn name_of(at: Option<&str>, owner: &Owner<'_>, key: &BuildKey, attempt: u32) -> String {
    let Owner { namespace, name, uid } = owner;
    if at.is_none() {
        return run_name(name, key, attempt);
    }
    // AgentBuilds of all namespaces meet there, and those that were deleted and made anew.
    let hash = hex8(&Sha256::digest(format!("{namespace}/{name}/{uid}")));
    let suffix = format!("-{hash}-{}-{attempt}", key.short());
    let room = MAX_NAME.saturating_sub(suffix.len());
    let beginning = name.get(..room).unwrap_or(name).trim_end_matches('-');
    format!("{beginning}{suffix}")
}

/// The AgentBuild in another namespace that a run names by its labels, if the name of the run follows from them.
#[must_use]
pub fn owner_elsewhere<'a>(
    meta: &'a ObjectMeta,
    key: Option<&str>,
    attempt: u32,
) -> Option<Owner<'a>> {
    let label = |key: &str| meta.labels.as_ref()?.get(key).map(String::as_str);
    let (namespace, name) = (label(keys::OWNER_NAMESPACE)?, label(keys::OWNER_NAME)?);
    let owner = Owner { namespace, name, uid: label(keys::OWNER_UID)? };
    let at = meta.namespace.as_deref().filter(|at| *at != namespace)?;
    let wanted = name_of(Some(at), &owner, &BuildKey::parse(key?)?, attempt);
    let is_ours = label(keys::OWNER_KIND) == Some(OWNER_KIND) && meta.name == Some(wanted);
    is_ours.then_some(owner)
}

/// `metadata` of a run of this name, without annotations.
#[must_use]
pub fn metadata(build: &Build<'_>, run: &str) -> Value {
    let Build { namespace, name, uid, key, at, .. } = build;
    let mut labels = Map::new();
    labels.insert("app.kubernetes.io/managed-by".into(), "convoke".into());
    labels.insert(keys::OWNER_KIND.into(), OWNER_KIND.into());
    labels.insert(keys::OWNER_NAME.into(), (*name).into());
    labels.insert(BUILD_KEY.into(), key.label().into());
    let Some(at) = at else {
        return json!({
            "namespace": namespace,
            "name": run,
            "labels": labels,
            "ownerReferences": [{
                "apiVersion": API_VERSION, "kind": "AgentBuild", "name": name, "uid": uid,
                "controller": true, "blockOwnerDeletion": true,
            }],
        });
    };
    labels.insert(keys::OWNER_NAMESPACE.into(), (*namespace).into());
    labels.insert(keys::OWNER_UID.into(), (*uid).into());
    json!({"namespace": at, "name": run, "labels": labels})
}

/// The finalizer of an AgentBuild that has runs in this namespace.
#[must_use]
pub fn finalizer(namespace: &str) -> String {
    format!("{FINALIZER}{namespace}")
}

/// The other namespaces in which an AgentBuild may have runs, from its finalizers.
pub fn places(finalizers: &[String]) -> impl Iterator<Item = &str> {
    let namespace = |one: &'_ String| one.strip_prefix(FINALIZER).is_some_and(is_dns_label);
    finalizers
        .iter()
        .filter(move |one| namespace(one))
        .filter_map(|one| one.strip_prefix(FINALIZER))
}

/// The term by which the runs of an AgentBuild are found in a namespace.
#[must_use]
pub fn term(run: &Run) -> Option<String> {
    let name = run.owner_name.as_deref()?;
    // No name has a slash.
    Some(if run.is_elsewhere() { format!("{}/{name}", run.home) } else { name.to_owned() })
}

/// The namespace of the run that a status tells, if it is not that of its AgentBuild. `runs` are those of the AgentBuild, and `old` is the
/// status before.
#[must_use]
pub fn of_status<'a>(
    new: &AgentBuildStatus,
    old: &AgentBuildStatus,
    runs: impl IntoIterator<Item = &'a Run>,
) -> Option<String> {
    let name = new.pipeline_run.as_ref()?;
    match runs.into_iter().find(|run| run.name == *name) {
        Some(run) => run.is_elsewhere().then(|| run.namespace.clone()),
        // It is gone.
        None => old.build_namespace.clone().filter(|_| old.pipeline_run.as_ref() == Some(name)),
    }
}

/// The message of a run whose pod Pod Security refuses: what helps, and then what the API server said.
#[must_use]
pub fn pod_refused(run: &Run, said: &str) -> String {
    let mut said: String = said.chars().take(MAX_SAID + 1).collect();
    if said.chars().count() > MAX_SAID {
        said.pop();
        said.push('…');
    }
    format!("{}; the API server said: {said}", way_out(run))
}

/// What helps when Pod Security refuses the pod of a run.
fn way_out(run: &Run) -> String {
    let Run { needs, namespace, home, .. } = run;
    let name = run.owner_name.as_deref().unwrap_or("NAME");
    let admit = format!(
        "let the namespace {namespace} admit Pod Security {needs}: kubectl label namespace {namespace} pod-security.kubernetes.io/enforce={needs} \
         --overwrite, and then convoke rebuild build/{name} -n {home}"
    );
    let others = "a namespace for builds with --build-namespace of the operator, or strategy: Append without a step that runs as root, such as \
                  one that tests the image";
    match (needs, run.is_elsewhere()) {
        (Level::Restricted, _) => format!(
            "Pod Security restricted admits its steps, and the containers of Tekton with set-security-context: \"true\" in its ConfigMap \
             feature-flags; otherwise the namespace {home} must admit baseline"
        ),
        (Level::Baseline, false) => format!("{admit}; or use {others}"),
        // No namespace of a team should admit all.
        (Level::Privileged, false) => {
            format!("its steps need a namespace that admits Pod Security {needs}: use {others}")
        }
        (_, true) => format!("it is the namespace of --build-namespace: {admit}"),
    }
}

/// What the API server has said of the AgentBuild of a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Proven {
    /// There is none.
    Gone,
    /// There is one, with this UID.
    There(String),
}

/// Whether a run in another namespace is of the AgentBuild with this name and UID.
#[must_use]
pub fn is_of(run: &Run, key: &Key, uid: &str) -> bool {
    names(run, key) && run.owner_uid.as_deref() == Some(uid)
}

/// Whether a run in another namespace is to be removed because its AgentBuild is gone, or another one has its name. The run must have been
/// known before the API server was asked: otherwise its AgentBuild may be younger than the answer.
#[must_use]
pub fn is_orphan(run: &Run, key: &Key, proven: &Proven) -> bool {
    let Some(uid) = &run.owner_uid else { return false };
    names(run, key)
        && match proven {
            Proven::Gone => true,
            Proven::There(there) => there != uid,
        }
}

/// Whether a run in another namespace names the AgentBuild of this name.
fn names(run: &Run, key: &Key) -> bool {
    run.is_elsewhere() && run.home == key.namespace && run.owner_name.as_deref() == Some(&*key.name)
}

#[cfg(test)]
#[path = "tests/place.rs"]
mod tests;
