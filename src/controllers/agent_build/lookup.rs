//! Looks up the template of a build and the steps of the template: ConfigMaps in the namespace of the AgentBuild, then in the
//! operator's.
//!
//! These ConfigMaps have no label that a watch could select. So they are read when they are needed, and kept for a moment: a
//! commit that wakes a hundred builds reads each ConfigMap once. Who needs one that is being read waits for that answer, and shares the error if
//! there is none. The steps of a template are read eight at a time: an API server that is slow or silent costs one deadline for eight steps.

use parking_lot::Mutex;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Api, Client};
use tokio::time::Instant;

use super::own_image::OwnImage;
use super::pipeline;
use super::profile::{BuildProfile, PROFILES_KEY, StepProfile};
use super::resolve_template::{BuildArgs, Inputs, ResolvedTemplate, resolve};
use super::template::{self, STEP_KEY, STEP_LABEL, StepSource, TEMPLATE_KEY, VERSION_KEY};
use super::template_error::TemplateError;
use crate::api::agent_build::AgentBuildSpec;
use crate::cluster::client::{CallError, call};
use crate::cluster::store::Key;

/// How long a ConfigMap that was read counts.
const ANSWER_LIFETIME: Duration = Duration::from_secs(20);
/// So many steps are looked for in vain. The others are not looked for then.
const MAX_MISSING: usize = 3;
/// So many steps of a template are read at a time; the next ones when all of these are answered.
const CONCURRENT_READS: usize = 8;
/// Above this many kept answers, old ones are dropped.
const MAX_KEPT_ANSWERS: usize = 256;

/// What is kept of a ConfigMap.
#[derive(Debug)]
struct KeptConfigMap {
    template: Option<String>,
    step: StepSource,
    /// Whether declared versions count: it is in the operator's namespace.
    versions: bool,
}

/// A ConfigMap; `None` when there is none of that name.
type Answer = Option<Arc<KeptConfigMap>>;

/// What became of the last question for a ConfigMap.
#[derive(Debug, Default)]
struct Asked {
    /// The answer, and when it was asked for.
    answer: Option<(Instant, Answer)>,
    /// Why there was none, and since when that is known.
    failure: Option<(Instant, CallError)>,
}

impl Asked {
    fn is_new(&self) -> bool {
        self.answer.as_ref().is_some_and(|(since, _)| since.elapsed() < ANSWER_LIFETIME)
    }

    /// The error of a question that failed while somebody waited since then.
    fn failed_since(&self, waited: Instant) -> Option<CallError> {
        let (at, error) = self.failure.as_ref()?;
        (*at > waited).then(|| error.clone())
    }
}

/// The place of an answer. Whoever asks holds it meanwhile.
type Place = Arc<tokio::sync::Mutex<Asked>>;

/// Why there is no template.
#[derive(Debug)]
pub enum LookupError {
    /// The template cannot be used; never an empty list.
    Template(Vec<TemplateError>),
    /// The API server did not answer as it should.
    Call(CallError),
}

impl From<TemplateError> for LookupError {
    fn from(error: TemplateError) -> Self {
        Self::Template(vec![error])
    }
}

impl From<CallError> for LookupError {
    fn from(error: CallError) -> Self {
        Self::Call(error)
    }
}

/// Looks up templates, and keeps the ConfigMaps for a moment.
pub struct Lookup {
    client: Client,
    operator_namespace: String,
    own_image: OwnImage,
    profile: BuildProfile,
    kept: Mutex<HashMap<Key, Place>>,
}

impl Lookup {
    /// Looks into a build's own namespace, then into this one. `profile` is for steps and templates of the latter.
    #[must_use]
    pub fn new(
        client: Client,
        operator_namespace: String,
        own_image: OwnImage,
        profile: BuildProfile,
    ) -> Self {
        Self { client, operator_namespace, own_image, profile, kept: Mutex::default() }
    }

    /// The template of a build, resolved.
    ///
    /// # Errors
    /// Every problem of the template at once, or the first failed call.
    pub async fn template(
        &self,
        namespace: &str,
        spec: &AgentBuildSpec,
    ) -> Result<ResolvedTemplate, LookupError> {
        let namespaces = self.namespaces(namespace).join(" or ");
        let config_map = template::config_map_name(&spec.mode);
        let found = self.find(namespace, &config_map).await?;
        let found = found.ok_or_else(|| TemplateError::TemplateNotFound {
            config_map: config_map.clone(),
            namespaces: namespaces.clone(),
        })?;
        let mut parsed = template::parse(&config_map, found.template.as_deref())?;
        parsed.version = parsed.version.filter(|_| found.versions);
        let overrides = pipeline::apply(&mut parsed, spec.pipeline.as_ref());
        let overrides = overrides.map_err(LookupError::Template)?;
        let operator_image = self.own_image.get(&self.client, &self.operator_namespace).await?;
        let (mut sources, mut of_operator) = (BTreeMap::new(), found.versions);
        let mut missing = Vec::new();
        let steps: Vec<_> = parsed.steps.iter().filter(|step| step.enabled).collect();
        for steps in steps.chunks(CONCURRENT_READS) {
            let reads: Vec<_> =
                steps.iter().map(|step| self.find(namespace, &step.config_map)).collect();
            for (step, read) in steps.iter().zip(join_all(reads).await) {
                if let Some(one) = read? {
                    of_operator &= one.versions;
                    // A template of another namespace names images of its own. They get no privileges.
                    let profile = one.step.profile.clone().filter(|_| found.versions);
                    let source = StepSource { profile, ..one.step.clone() };
                    sources.insert(step.config_map.clone(), source);
                    continue;
                }
                missing.push(TemplateError::StepNotFound {
                    step: step.name.clone(),
                    config_map: step.config_map.clone(),
                    namespaces: namespaces.clone(),
                });
                if missing.len() == MAX_MISSING {
                    return Err(LookupError::Template(missing));
                }
            }
        }
        let build_args = BuildArgs::of(spec);
        let inputs = Inputs { build_args, overrides: &overrides, operator_image };
        let resolved = resolve(&parsed, &sources, &namespaces, inputs);
        let resolved = resolved.map_err(LookupError::Template)?;
        Ok(ResolvedTemplate { of_operator, ..resolved })
    }

    fn namespaces<'a>(&'a self, own: &'a str) -> Vec<&'a str> {
        if own == self.operator_namespace { vec![own] } else { vec![own, &self.operator_namespace] }
    }

    async fn find(&self, namespace: &str, name: &str) -> Result<Answer, CallError> {
        for namespace in self.namespaces(namespace) {
            if let Some(found) = self.get(Key::new(namespace, name)).await? {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    async fn get(&self, key: Key) -> Result<Answer, CallError> {
        let place = self.place(&key);
        // A call has a deadline, and so has each reconcile that waits here.
        let waited = Instant::now();
        let mut kept = place.lock().await;
        if let Some((_, answer)) = kept.answer.as_ref().filter(|_| kept.is_new()) {
            return Ok(answer.clone());
        }
        // Others have asked meanwhile. The next one would wait for another deadline, and so on.
        if let Some(error) = kept.failed_since(waited) {
            return Err(error);
        }
        let now = Instant::now();
        let api: Api<ConfigMap> = Api::namespaced(self.client.clone(), &key.namespace);
        let found = match call(api.get_opt(&key.name)).await {
            Ok(found) => found,
            Err(error) => {
                kept.failure = Some((Instant::now(), error.clone()));
                return Err(error);
            }
        };
        let is_operators = key.namespace == self.operator_namespace;
        let profile = is_operators.then_some(self.profile);
        let answer = found.map(|found| Arc::new(read(found, profile)));
        *kept = Asked { answer: Some((now, answer.clone())), failure: None };
        Ok(answer)
    }

    fn place(&self, key: &Key) -> Place {
        let mut all = self.kept.lock();
        if all.len() >= MAX_KEPT_ANSWERS {
            // Those that are held are being asked for.
            all.retain(|_, place| place.try_lock().map_or(true, |kept| kept.is_new()));
        }
        all.entry(key.clone()).or_default().clone()
    }
}

/// `profile` is none outside of the operator's namespace: declared versions do not count there either.
fn read(config_map: ConfigMap, profile: Option<BuildProfile>) -> KeptConfigMap {
    let versions = profile.is_some();
    let labels = config_map.metadata.labels.unwrap_or_default();
    let mut data = config_map.data.unwrap_or_default();
    let labelled = labels.get(STEP_LABEL).is_some_and(|value| value == "true");
    KeptConfigMap {
        template: data.remove(TEMPLATE_KEY),
        step: StepSource {
            labelled,
            task_spec: data.remove(STEP_KEY),
            version: data.remove(VERSION_KEY).filter(|_| versions),
            profile: StepProfile::new(profile.unwrap_or_default(), data.remove(PROFILES_KEY)),
        },
        versions,
    }
}

#[cfg(test)]
#[path = "tests/lookup.rs"]
mod tests;
