//! `spec.pipeline` of an AgentBuild: what it changes of its pipeline template.

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What an AgentBuild changes of its pipeline template.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct BuildPipeline {
    /// Parameters of every step that declares them. They win over the template's. No secrets: whoever may read the AgentBuild reads them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub parameters: Vec<BuildParameter>,
    /// The steps, in place of all steps of the template. Default: those of the template.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    #[x_kube(validation = Rule::new("self.size() == 0 || self.exists(step, step.enabled)").message("one step at least must be enabled"))]
    pub steps: Vec<PipelineStep>,
}

impl BuildPipeline {
    /// The same without what makes no difference: steps that are left out, and the order of parameters.
    #[must_use]
    pub fn canonical(&self) -> Self {
        let sorted = |parameters: &[BuildParameter]| {
            let mut sorted = parameters.to_vec();
            sorted.sort_by(|a, b| a.name.cmp(&b.name));
            sorted
        };
        let steps = self.steps.iter().filter(|step| step.enabled);
        let steps =
            steps.map(|step| PipelineStep { parameters: sorted(&step.parameters), ..step.clone() });
        Self { parameters: sorted(&self.parameters), steps: steps.collect() }
    }
}

/// A parameter of build steps, and its value: one of `value` and `values`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("has(self.value) != has(self.values)").message("a parameter needs exactly one of value and values"))]
pub struct BuildParameter {
    /// Its name, as the TaskSpec declares it.
    #[schemars(length(min = 1, max = 128), regex(pattern = r"^[A-Za-z_][A-Za-z0-9_.-]*$"))]
    #[x_kube(validation = Rule::new("!(self in ['repo-url', 'revision', 'subfolder', 'image', 'tag', 'key-tag', 'insecure', 'output-registry', 'strategy', 'base-image', 'base-images', 'append-into', 'append-command', 'append-user', 'append-lock-file', 'append-platform', 'layer-cache', 'cache-tag', 'cache-digest'])").message("repo-url, revision, subfolder, image, tag, key-tag, insecure, output-registry, strategy, base-image, base-images, append-into, append-command, append-user, append-lock-file, append-platform, layer-cache, cache-tag and cache-digest are set by Convoke, from spec.source, spec.output, spec.strategy, spec.append, spec.layerCache and spec.trigger"))]
    pub name: String,
    /// The value of a parameter of type string.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 4096))]
    #[x_kube(validation = Rule::new("!self.contains('$(')").message("the value must not contain \"$(\", which Tekton would replace"))]
    pub value: Option<String>,
    /// The values of a parameter of type array.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 32), inner(length(max = 512)))]
    #[x_kube(validation = Rule::new("!self.exists(value, value.contains('$('))").message("values must not contain \"$(\", which Tekton would replace"))]
    pub values: Option<Vec<String>>,
}

/// A step of a pipeline.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct PipelineStep {
    /// Its name.
    #[schemars(length(min = 1, max = 58), regex(pattern = r"^[a-z]([-a-z0-9]*[a-z0-9])?$"))]
    pub name: String,
    /// The ConfigMap with its TaskSpec: in this namespace, or else in the operator's.
    #[schemars(
        length(min = 1, max = 253),
        regex(pattern = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$")
    )]
    pub config_map: String,
    /// Whether it runs. Default true.
    #[serde(default = "yes")]
    pub enabled: bool,
    /// Its own parameters. They win over all others.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub parameters: Vec<BuildParameter>,
    /// It runs only when all of these hold.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub when: Vec<PipelineWhen>,
}

fn yes() -> bool {
    true
}

/// A condition of a step, as in Tekton. It is decided before the build begins.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PipelineWhen {
    /// What is compared. `$(params.NAME)` is replaced.
    #[schemars(length(max = 512))]
    pub input: String,
    /// How it is compared.
    pub operator: WhenOperator,
    /// With what it is compared.
    #[schemars(length(min = 1, max = 32), inner(length(max = 256)))]
    pub values: Vec<String>,
}

/// How a condition compares.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum WhenOperator {
    /// It is one of the values.
    In,
    /// It is none of the values.
    NotIn,
}
