//! Reads the pipeline templates of the cluster for a plan: ConfigMaps by their names, as the operator does. Where one may not be read, the one
//! that this program ships stands in for it.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::ConfigMap as LiveConfigMap;
use kube::api::Api;

use crate::api::agent_build::AgentBuildSpec;
use crate::cli::Failure;
use crate::cli::connection::Connection;
use crate::cli::templates::{
    ConfigMap, ConfigMaps, Side, TemplateArgs, read, shipped, step_names, template,
};
use crate::cluster::client::{CallError, call};
use crate::controllers::agent_build::own_image::PUBLISHED;
use crate::controllers::agent_build::profile::BuildProfile;
use crate::controllers::agent_build::resolve_template::ResolvedTemplate;
use crate::controllers::agent_build::template::{STEP_LABEL, config_map_name};

/// ConfigMaps that one plan asks the API server for.
const MAX_READS: usize = 1000;
/// ConfigMaps that one note names.
const MAX_NAMED: usize = 3;

/// Reads templates and steps, each once.
pub struct Templates<'a> {
    connection: &'a Connection,
    operator_namespace: &'a str,
    folders: BTreeMap<Side, ConfigMaps>,
    shipped: ConfigMaps,
    kept: BTreeMap<(Side, String), Option<ConfigMap>>,
    unread: BTreeMap<Side, Unread>,
    reads: usize,
}

/// What could not be read of a namespace.
struct Unread {
    names: Vec<String>,
    /// Why the first one could not.
    error: String,
    /// Whether nothing more is asked for.
    given_up: bool,
}

/// The ConfigMaps of one build.
#[derive(Default)]
pub struct Found {
    /// The template and its steps, by name.
    pub maps: ConfigMaps,
    /// Whether one that was not read stands in for another, or may win over one of these.
    pub guessed: bool,
    /// Whether one of them is in neither namespace.
    pub missing: bool,
    places: String,
}

impl Found {
    /// The template, as the operator resolves it.
    ///
    /// # Errors
    /// Why it cannot be used, as one sentence.
    pub fn resolve(&self, spec: &AgentBuildSpec) -> Result<ResolvedTemplate, String> {
        // A profile is not in the key.
        template(spec, &self.maps, &self.places, PUBLISHED, BuildProfile::Baseline)
    }

    /// The same with other ConfigMaps.
    pub fn with(&self, maps: ConfigMaps) -> Self {
        let Self { maps: _, guessed, missing, places } = self;
        Self { maps, guessed: *guessed, missing: *missing, places: places.clone() }
    }
}

impl<'a> Templates<'a> {
    /// Reads nothing of the cluster yet. The folders are read.
    pub fn new(
        connection: &'a Connection,
        operator_namespace: &'a str,
        args: &TemplateArgs,
    ) -> Result<Self, Failure> {
        let TemplateArgs { templates, operator_templates } = args;
        let mut folders = BTreeMap::new();
        for (side, folder) in [(Side::Own, templates), (Side::Operator, operator_templates)] {
            if let Some(folder) = folder {
                folders.insert(side, read(folder, side)?);
            }
        }
        let (kept, unread) = (BTreeMap::new(), BTreeMap::new());
        let shipped = shipped()?;
        Ok(Self { connection, operator_namespace, folders, shipped, kept, unread, reads: 0 })
    }

    /// Those that this program ships.
    pub const fn shipped(&self) -> &ConfigMaps {
        &self.shipped
    }

    /// The template of a build, and its steps.
    pub async fn of(&mut self, spec: &AgentBuildSpec) -> Found {
        let mut found = Found::default();
        self.add(&config_map_name(&spec.mode), &mut found).await;
        for name in step_names(spec, &found.maps) {
            self.add(&name, &mut found).await;
        }
        let places: Vec<_> = self.sides().into_iter().map(|side| self.namespace(side)).collect();
        found.places = match (found.guessed, found.missing) {
            (true, _) => format!("{} or this program", self.connection.namespace),
            // An operator elsewhere has its templates elsewhere.
            (false, true) => {
                format!("{} (--operator-namespace says where the operator is)", places.join(" or "))
            }
            (false, false) => places.join(" or "),
        };
        found
    }

    /// Where the operator looks, in this order.
    fn sides(&self) -> Vec<Side> {
        let is_one = self.connection.namespace == self.operator_namespace;
        if is_one { vec![Side::Operator] } else { vec![Side::Own, Side::Operator] }
    }

    fn namespace(&self, side: Side) -> &'a str {
        match side {
            Side::Own => &self.connection.namespace,
            Side::Operator => self.operator_namespace,
        }
    }

    async fn add(&mut self, name: &str, found: &mut Found) {
        for side in self.sides() {
            match self.get(side, name).await {
                Ok(None) => {}
                Ok(Some(map)) => {
                    found.maps.insert(name.to_owned(), map);
                    return;
                }
                Err(()) => {
                    found.guessed = true;
                    let map = self.shipped.get(name).filter(|_| side == Side::Operator);
                    found.maps.extend(map.map(|map| (name.to_owned(), map.clone())));
                }
            }
        }
        found.missing |= !found.maps.contains_key(name);
    }

    /// A ConfigMap of a namespace. The error is kept.
    async fn get(&mut self, side: Side, name: &str) -> Result<Option<ConfigMap>, ()> {
        if let Some(map) = self.folders.get(&side).and_then(|folder| folder.get(name)) {
            return Ok(Some(map.clone()));
        }
        let key = (side, name.to_owned());
        if let Some(kept) = self.kept.get(&key) {
            return Ok(kept.clone());
        }
        if let Some(unread) = self.unread.get_mut(&side) {
            let is_told = unread.names.iter().any(|told| told == name);
            if is_told || unread.given_up {
                if !is_told {
                    unread.names.push(name.to_owned());
                }
                return Err(());
            }
        }
        let read = if self.reads < MAX_READS {
            self.reads += 1;
            self.ask(side, name).await
        } else {
            Err(CallError::Failed(format!("{MAX_READS} ConfigMaps were read, and no more are")))
        };
        match read {
            Ok(map) => {
                self.kept.insert(key, map.clone());
                Ok(map)
            }
            Err(error) => {
                // A right may be one for some names. A server that does not answer is not asked again.
                let given_up = !error.is_forbidden();
                let unread = self.unread.entry(side).or_insert_with(|| Unread {
                    names: Vec::new(),
                    error: error.to_string(),
                    given_up,
                });
                unread.given_up |= given_up;
                unread.names.push(name.to_owned());
                Err(())
            }
        }
    }

    async fn ask(&self, side: Side, name: &str) -> Result<Option<ConfigMap>, CallError> {
        let client = self.connection.client.clone();
        let api: Api<LiveConfigMap> = Api::namespaced(client, self.namespace(side));
        let found = call(api.get_opt(name)).await?;
        Ok(found.map(|map| {
            let data = map.data.unwrap_or_default();
            let labels = map.metadata.labels.unwrap_or_default();
            let labelled = labels.get(STEP_LABEL).is_some_and(|value| value == "true");
            ConfigMap::new(side, labelled, |key| data.get(key).cloned())
        }))
    }

    /// What could not be read: a note for each namespace.
    pub fn notes(&self) -> Vec<String> {
        let note = |(side, unread): (&Side, &Unread)| {
            let Unread { names, error, given_up: _ } = unread;
            let shown: Vec<_> = names.iter().take(MAX_NAMED).map(String::as_str).collect();
            let more = match names.len().saturating_sub(MAX_NAMED) {
                0 => String::new(),
                more => format!(" and {more} more"),
            };
            let taken = match side {
                Side::Own => "those of the operator",
                Side::Operator => "those of this program",
            };
            format!(
                "pipeline templates of {} are not known here, and {taken} are taken: cannot get the ConfigMaps {}{more}: {error}",
                self.namespace(*side),
                shown.join(", ")
            )
        };
        self.unread.iter().map(note).collect()
    }
}
