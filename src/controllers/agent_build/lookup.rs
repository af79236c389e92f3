//! Looks up the template of a build and the steps of the template: ConfigMaps in the namespace of the AgentBuild, then in the
//! operator's.
//!
//! These ConfigMaps have no label that a watch could select. So they are read when they are needed, and kept for a moment: a
//! commit that wakes a hundred builds reads each ConfigMap once. Who needs one that is being read waits for that answer.

use parking_lot::Mutex;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

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

/// The place of an answer, with the time of its question. Whoever asks holds it meanwhile.
type Place = Arc<tokio::sync::Mutex<Option<(Instant, Answer)>>>;

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
        for step in parsed.steps.iter().filter(|step| step.enabled) {
            if sources.contains_key(&step.config_map) {
                continue;
            }
            if let Some(one) = self.find(namespace, &step.config_map).await? {
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
        let mut kept = place.lock().await;
        let now = Instant::now();
        if let Some((since, answer)) = &*kept
            && now.duration_since(*since) < ANSWER_LIFETIME
        {
            return Ok(answer.clone());
        }
        let api: Api<ConfigMap> = Api::namespaced(self.client.clone(), &key.namespace);
        let answer = call(api.get_opt(&key.name)).await?.map(|found| {
            let is_operators = key.namespace == self.operator_namespace;
            Arc::new(read(found, is_operators.then_some(self.profile)))
        });
        *kept = Some((now, answer.clone()));
        Ok(answer)
    }

    fn place(&self, key: &Key) -> Place {
        let mut all = self.kept.lock();
        if all.len() >= MAX_KEPT_ANSWERS {
            let is_new = |kept: &Option<(Instant, Answer)>| {
                kept.as_ref().is_some_and(|(since, _)| since.elapsed() < ANSWER_LIFETIME)
            };
            // Those that are held are being asked for.
            all.retain(|_, place| place.try_lock().map_or(true, |kept| is_new(&kept)));
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
