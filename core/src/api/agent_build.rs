//! `AgentBuild`: makes an image from a source folder whenever a commit changes it.

use std::collections::BTreeMap;

use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::build_pipeline::BuildPipeline;
pub use super::build_record::{
    BuildFailure, BuildRecord, BuildResult, BuildStep, FailureClass, NewerBuild,
};
use super::common::{Condition, Source};
use super::git_sync::{GitRef, SecretRef};

/// A recipe that turns a folder of the synced repository into an image, on Tekton.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, CustomResource, KubeSchema)]
#[kube(
    group = "convoke.dev", version = "v1alpha1", kind = "AgentBuild", plural = "agentbuilds", shortname = "ab",
    category = "convoke", namespaced, status = "AgentBuildStatus", derive = "PartialEq",
    validation = Rule::new("self.metadata.name.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$') && self.metadata.name.size() <= 63").message("the name must be a DNS label of at most 63 characters"),
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase"),
    printcolumn(name = "Ready", type_ = "string", json_path = ".status.conditions[?(@.type=='Ready')].status"),
    printcolumn(name = "Image", type_ = "string", json_path = ".status.builtImage"),
    printcolumn(name = "Commit", type_ = "string", json_path = ".status.lastBuiltCommit"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(name = "Message", type_ = "string", json_path = ".status.message", priority = 1)
)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("(self.strategy == 'Append') == has(self.append)").message("append is needed with strategy: Append, and is for that only"))]
#[x_kube(validation = Rule::new("self.strategy != 'Append' || self.dockerfile == 'Dockerfile'").message("dockerfile does not apply with strategy: Append, which reads no Dockerfile").field_path(".dockerfile"))]
#[x_kube(validation = Rule::new("self.strategy != 'Append' || !has(self.buildArgs) || self.buildArgs.size() == 0").message("buildArgs do not apply with strategy: Append, which reads no Dockerfile").field_path(".buildArgs"))]
#[x_kube(validation = Rule::new("self.strategy != 'Append' || !has(self.layerCache) || !self.layerCache").message("layerCache does not apply with strategy: Append, which runs no commands").field_path(".layerCache"))]
pub struct AgentBuildSpec {
    /// Where the source is.
    pub source: BuildSource,
    /// Where the image goes.
    pub output: BuildOutput,
    /// How the image is made: by a Dockerfile, or by appending the folder to a base image (Append), which needs no privileges. Default Dockerfile.
    #[serde(default)]
    pub strategy: BuildStrategy,
    /// To what the folder is appended, and how. With `strategy: Append`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub append: Option<BuildAppend>,
    /// The Dockerfile, relative to the subfolder and inside of it. Default Dockerfile.
    #[serde(default = "default_dockerfile")]
    #[schemars(
        length(min = 1, max = 256),
        regex(pattern = r"^[A-Za-z0-9_][A-Za-z0-9._-]*(/\.?[A-Za-z0-9_][A-Za-z0-9._-]*)*$")
    )]
    pub dockerfile: String,
    /// Names the pipeline template: ConfigMap `pipeline-template-<mode>`. Default dev.
    #[serde(default = "default_mode")]
    #[schemars(length(min = 1, max = 40), regex(pattern = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"))]
    pub mode: String,
    /// What is different from the template: parameters, and steps.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pipeline: Option<BuildPipeline>,
    /// Build arguments; they are part of the build key. No secrets: they end up in the image's history.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 64))]
    pub build_args: BTreeMap<String, String>,
    /// Keep the layers that a build makes in the registry, for the next build. The image then has a layer for each command. Default false.
    #[serde(default, skip_serializing_if = "is_false")]
    pub layer_cache: bool,
    /// How long a build may take. Default 20m.
    #[serde(default = "default_timeout")]
    #[schemars(length(max = 32), regex(pattern = r"^([0-9]+(ms|s|m|h))+$"))]
    pub timeout: String,
    /// What starts a build.
    #[serde(default)]
    pub trigger: BuildTrigger,
    /// How often a build is tried again that failed because of the cluster, and not because of what is built. Default 2.
    #[serde(default = "default_retry_limit")]
    #[schemars(range(max = 10))]
    pub retry_limit: u32,
    /// How many builds that ended are kept.
    #[serde(default)]
    pub history: BuildHistory,
}

/// How the image is made.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum BuildStrategy {
    /// By the commands of a Dockerfile.
    #[default]
    Dockerfile,
    /// By appending the folder to a base image, as one layer.
    Append,
}

/// To what the folder is appended, and how.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("!has(self.platform) || !has(self.lockFile)").message("lockFile and platform do not go together: packages are installed for the node that builds"))]
pub struct BuildAppend {
    /// The base image, with a tag or a digest. Without a registry it is one of Docker Hub.
    #[schemars(
        length(min = 1, max = 512),
        regex(pattern = r"^[A-Za-z0-9]([A-Za-z0-9.:/_-]*[A-Za-z0-9_])?(@sha256:[a-f0-9]{64})?$")
    )]
    #[x_kube(validation = Rule::new("self.contains('@') || self.split('/')[self.split('/').size() - 1].contains(':')").message("baseImage needs a tag or a digest: NAME:TAG or NAME@sha256:..."))]
    pub base_image: String,
    /// Where the folder is in the image. It is the working directory, too. Default /app.
    #[serde(default = "default_into")]
    #[schemars(length(min = 2, max = 256), regex(pattern = r"^(/[A-Za-z0-9_][A-Za-z0-9._-]*)+$"))]
    #[x_kube(validation = Rule::new("!['bin', 'dev', 'lib', 'lib32', 'lib64', 'libx32', 'proc', 'run', 'sbin', 'sys', 'tmp'].exists(p, p == self.split('/')[1]) && !(self + '/').startsWith('/var/tmp/')").message("into must not be in /dev, /proc, /run, /sys, /tmp, /var/tmp, /bin, /sbin or /lib"))]
    pub into: String,
    /// What the image runs: the program and its arguments. Default: what the base image runs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), inner(length(max = 1024)))]
    pub command: Vec<String>,
    /// The user as whom it runs: name or number, perhaps with a group (`1000:1000`). Default: the one of the base image.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(
        length(min = 1, max = 64),
        regex(pattern = r"^[A-Za-z0-9_][A-Za-z0-9_.-]*(:[A-Za-z0-9_][A-Za-z0-9_.-]*)?$")
    )]
    pub user: Option<String>,
    /// A requirements file of pip with a hash for each package, relative to the subfolder and inside of it. Its packages are
    /// a layer of their own, below that of the folder. Default: none are installed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(
        length(min = 1, max = 256),
        regex(pattern = r"^[A-Za-z0-9_][A-Za-z0-9._-]*(/\.?[A-Za-z0-9_][A-Za-z0-9._-]*)*$")
    )]
    #[x_kube(validation = Rule::new("self.matches('requirements[^/]*[.]txt$')").message("the name of lockFile must have requirements in it, and end in .txt: by that scanners know it"))]
    pub lock_file: Option<String>,
    /// The platform of the image: `linux/ARCHITECTURE`. Default: that of the node that builds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64), regex(pattern = r"^linux/[a-z0-9]+(/[a-z0-9]+)?$"))]
    pub platform: Option<String>,
}

/// How many builds that ended are kept: in the status, and as PipelineRuns with their pods.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BuildHistory {
    /// Builds that made an image. A revert to one of them needs no build. Default 5.
    #[serde(default = "default_successful")]
    #[schemars(range(min = 1, max = 50))]
    pub successful: u32,
    /// Other builds. Default 3.
    #[serde(default = "default_failed")]
    #[schemars(range(min = 1, max = 50))]
    pub failed: u32,
}

impl Default for BuildHistory {
    fn default() -> Self {
        Self { successful: default_successful(), failed: default_failed() }
    }
}

/// Where the source is: in the repository that this object was synced from, or in another one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("has(self.gitSync) != has(self.git)").message("source needs exactly one of gitSync and git"),
    validation = Rule::new("!self.subfolder.startsWith('/') && !self.subfolder.split('/').exists(p, p == '..' || p == '.git')").message("subfolder must be relative, without '..' and '.git'")
)]
pub struct BuildSource {
    /// The repository that this object was synced from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub git_sync: Option<GitSyncSource>,
    /// Another repository.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub git: Option<GitSource>,
    /// Folder to build, relative to the root of the repository. Default: the root.
    #[serde(default = "default_subfolder")]
    #[schemars(length(min = 1, max = 1024))]
    pub subfolder: String,
}

/// The repository that this object was synced from. Has no fields: write `gitSync: {}`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct GitSyncSource {}

/// A repository that is polled for builds. Nothing of it is applied.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct GitSource {
    /// `https://…` without a user, or `ssh://git@…`; `http://` only when the operator runs with `--allow-insecure-git`.
    #[schemars(length(min = 1, max = 2048))]
    #[x_kube(
        validation = Rule::new("self.matches('^(https?|ssh)://.')").message("url must begin with https:// or ssh://; the form user@host:path is ssh://user@host/path"),
        validation = Rule::new("self.matches('^[!-~]*$')").message("url must have printable ASCII characters only, and no space"),
        validation = Rule::new("!self.matches('^https?://[^/?#]*@')").message("url must hold no user name, password or token: name a Secret in secretRef"),
        validation = Rule::new("!self.startsWith('ssh://') || self.matches('^ssh://([A-Za-z0-9_][A-Za-z0-9._-]*@)?[^/@]*(/|$)')").message("the user in url must have letters, digits and - . _ only, and no password: name a Secret in secretRef")
    )]
    pub url: String,
    /// What to follow: exactly one of branch, tag, semver, commit, name. Default: branch main.
    #[serde(default, rename = "ref", skip_serializing_if = "Option::is_none")]
    pub reference: Option<GitRef>,
    /// Secret of this namespace with the credentials for the server, with the keys of that of a GitSync. It is used only for the
    /// repositories in its annotation `convoke.dev/repositories`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<SecretRef>,
    /// Secret of this namespace with an HTTP proxy for an https URL: `address`, and `username` with `password`. It is used only for the
    /// repositories in its annotation `convoke.dev/repositories`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proxy_secret_ref: Option<SecretRef>,
    /// How often the remote is asked for its newest commit (±10%). Default 1m.
    #[serde(default = "default_interval")]
    #[schemars(length(max = 32), regex(pattern = r"^([0-9]+(ms|s|m|h))+$"))]
    #[x_kube(validation = Rule::new("duration(self) >= duration('1s')").message("interval must be at least 1s"))]
    pub interval: String,
    /// How long one fetch may take, up to `1h`. Default 60s.
    #[serde(default = "default_fetch_timeout")]
    #[schemars(length(max = 32), regex(pattern = r"^([0-9]+(ms|s|m|h))+$"))]
    #[x_kube(validation = Rule::new("duration(self) >= duration('1s') && duration(self) <= duration('1h')").message("timeout must be at least 1s and at most 1h"))]
    pub timeout: String,
}

/// Where the image goes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct BuildOutput {
    /// Registry host, with a port when needed. Default: the operator's `--internal-registry`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253), regex(pattern = r"^[A-Za-z0-9][A-Za-z0-9.:-]*$"))]
    pub registry: Option<String>,
    /// Name of the image in the registry.
    #[schemars(length(min = 1, max = 200), regex(pattern = r"^[a-z0-9]+([._/-][a-z0-9]+)*$"))]
    pub image: String,
    /// Tag; `{commit}` and `{short}` are replaced. Not `cvk-…`: these name images by what they are made of. Default `{short}`.
    #[serde(default = "default_tag")]
    #[schemars(length(min = 1, max = 128), regex(pattern = r"^[A-Za-z0-9_{][A-Za-z0-9_.{}-]*$"))]
    #[x_kube(validation = Rule::new("!self.startsWith('cvk-')").message("tag must not begin with cvk-, by which images are found by what they are made of"))]
    pub tag: String,
    /// Push over plain HTTP. Default false.
    #[serde(default)]
    pub insecure: bool,
    /// The Secret with the credentials for pushing. Its annotation `convoke.dev/registries` names the registries that it is for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<SecretRef>,
}

/// What starts a build.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("!has(self.paths) || self.paths.all(path, !path.startsWith('/') && !path.split('/').exists(p, p == '..' || p == '.git'))").message("paths must be relative, without '..' and '.git'"))]
pub struct BuildTrigger {
    /// Build when a commit changes the source. Default true.
    #[serde(default = "yes")]
    pub on_commit: bool,
    /// More files or folders of the repository whose change starts a build.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32), inner(length(min = 1, max = 1024)))]
    pub paths: Vec<String>,
    /// Build when the tag of a base image names another image than before: that of `append.baseImage`, or those of the Dockerfile. Default false.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub base_image: bool,
}

impl Default for BuildTrigger {
    fn default() -> Self {
        Self { on_commit: true, paths: Vec::new(), base_image: false }
    }
}

fn yes() -> bool {
    true
}
#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde gives a reference")]
const fn is_false(value: &bool) -> bool {
    !*value
}
fn default_interval() -> String {
    "1m".into()
}
fn default_fetch_timeout() -> String {
    "60s".into()
}
fn default_dockerfile() -> String {
    "Dockerfile".into()
}
fn default_into() -> String {
    "/app".into()
}
fn default_mode() -> String {
    "dev".into()
}
fn default_timeout() -> String {
    "20m".into()
}
const fn default_retry_limit() -> u32 {
    2
}
const fn default_successful() -> u32 {
    5
}
const fn default_failed() -> u32 {
    3
}
fn default_subfolder() -> String {
    ".".into()
}
fn default_tag() -> String {
    "{short}".into()
}

/// What a build is doing, in one word.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum BuildPhase {
    /// Nothing was built yet.
    #[default]
    Pending,
    /// A PipelineRun is running.
    Building,
    /// The newest build key has its image.
    Succeeded,
    /// The newest build failed.
    Failed,
    /// A build was stopped for a newer build key, and the build of that key has not begun to wait for its turn.
    Superseded,
}

/// What the build is doing.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AgentBuildStatus {
    /// Generation of the spec that this status is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// One word for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<BuildPhase>,
    /// Ready, BuilderAvailable; Reconciling and Stalled while they are true.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// `registry/name@sha256:…` of the last good build.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub built_image: Option<String>,
    /// `append.baseImage` with the digest that its tag has, as the newest build key has it. With `trigger.baseImage`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base_image: Option<String>,
    /// The base images of the Dockerfile with the digests that their tags have, as the newest build key has them. With `trigger.baseImage`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub base_images: Vec<String>,
    /// The digest that the base image of `builtImage` had, if the build tells it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base_digest: Option<String>,
    /// The digest of the list of packages (SBOM) that the build attached to `builtImage`, if it tells it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sbom_digest: Option<String>,
    /// The digest of the layers in the registry that the next build takes. With `layerCache`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache_digest: Option<String>,
    /// The key that `builtImage` was built for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub built_key: Option<String>,
    /// When the newest build began that there was when `builtImage` was chosen (RFC 3339). The image of an older one does not replace it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub built_after: Option<String>,
    /// The key of the newest wanted build.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub build_key: Option<String>,
    /// Hash of the values that the parameters of its steps have, besides those that follow from the commit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parameters_hash: Option<String>,
    /// With `source.git`: the newest commit of that repository, as `BRANCH@sha1:COMMIT`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_revision: Option<String>,
    /// Commit of the newest attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_attempted_commit: Option<String>,
    /// Commit of the last good build.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_built_commit: Option<String>,
    /// The PipelineRun of the newest attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pipeline_run: Option<String>,
    /// The namespace of that PipelineRun, if it is another one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub build_namespace: Option<String>,
    /// Which try of the build key the PipelineRun is, from 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempt: Option<u32>,
    /// Since when the build waits for its turn, in RFC 3339.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queued_at: Option<String>,
    /// Why the newest attempt failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<BuildFailure>,
    /// How long the steps of the newest attempt took, once it has ended.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub steps: Vec<BuildStep>,
    /// The builds that ended, the newest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub history: Vec<BuildRecord>,
    /// The value of the annotation `convoke.dev/rebuild` for which a build was started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_handled_rebuild: Option<String>,
    /// Where it came from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<Source>,
    /// One sentence for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}
