//! (pure) Which ConfigMaps and Secrets the pods of a template read.
#![deny(clippy::disallowed_types, clippy::disallowed_methods)]

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use k8s_openapi::api::core::v1::{Container, EnvVar, KeyToPath, PodTemplateSpec};

use crate::controllers::names::{AGENTS_VOLUME, KEY_VARIABLE, KEYS_VOLUME, is_key_secret};

/// The kind of an object that pods read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Source {
    /// A ConfigMap.
    ConfigMap,
    /// A Secret.
    Secret,
}

impl Source {
    /// The kind, as written in YAML.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::ConfigMap => "ConfigMap",
            Self::Secret => "Secret",
        }
    }
}

/// An object in the namespace of the pods.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Reference {
    /// Its kind.
    pub source: Source,
    /// Its name.
    pub name: String,
}

impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.source.as_str(), self.name)
    }
}

impl Reference {
    /// Whether it may be a Secret with keys that Convoke has made.
    #[must_use]
    pub fn is_made(&self) -> bool {
        self.source == Source::Secret && is_key_secret(&self.name)
    }

    /// Whether an object can have this name. If not, the object does not exist, and the name must not appear in a URL or a
    /// command, because the author of a definition chooses it freely.
    #[must_use]
    pub fn is_possible(&self) -> bool {
        let inner =
            |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '-' | '.');
        let outer = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
        let name = self.name.as_str();
        name.len() <= 253
            && name.chars().all(inner)
            && name.starts_with(outer)
            && name.ends_with(outer)
    }
}

/// What pods read of one object.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Use {
    /// The keys that pods name.
    pub keys: BTreeSet<String>,
    /// Whether pods read all keys.
    pub all: bool,
    /// Whether no pod starts without the object.
    pub required: bool,
}

impl Use {
    /// Some keys of an object.
    fn of_keys(keys: impl IntoIterator<Item = String>, optional: Option<bool>) -> Self {
        let keys = keys.into_iter().collect();
        Self { keys, all: false, required: optional != Some(true) }
    }

    /// All keys of an object.
    fn of_all(optional: Option<bool>) -> Self {
        Self { keys: BTreeSet::new(), all: true, required: optional != Some(true) }
    }
}

/// What Convoke makes itself for the pods of an object. They read it without a label, at the places where Convoke puts it. Where
/// a definition names it, it is an object like any other.
#[derive(Debug, Clone, Copy, Default)]
pub struct Own<'a> {
    /// The ConfigMap with the configuration.
    pub config_map: Option<&'a str>,
    /// The Secret with the key of an agent.
    pub agent_key: Option<&'a str>,
}

impl Own<'_> {
    /// Whether a variable is the one with the key of the pods.
    fn has_key(self, variable: &EnvVar) -> bool {
        let from = variable.value_from.as_ref().and_then(|from| from.secret_key_ref.as_ref());
        let is_own = from.is_some_and(|from| Some(from.name.as_str()) == self.agent_key);
        variable.name == KEY_VARIABLE && is_own
    }
}

/// All objects that the pods of a template read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct References(BTreeMap<Reference, Use>);

impl References {
    /// The objects that `template` reads, without what is its `own`: changes of that replace pods in another way.
    #[must_use]
    pub fn of(template: &PodTemplateSpec, own: Own<'_>) -> Self {
        let mut all = Self::default();
        let Some(pod) = &template.spec else { return all };
        for container in pod.init_containers.iter().flatten().chain(&pod.containers) {
            all.add_container(container, own);
        }
        let is_own = |name: &str| [KEYS_VOLUME, AGENTS_VOLUME].contains(&name);
        for volume in pod.volumes.iter().flatten().filter(|volume| !is_own(&volume.name)) {
            if let Some(map) = &volume.config_map {
                all.add_files(Source::ConfigMap, &map.name, map.items.as_deref(), map.optional);
            }
            if let Some(secret) = &volume.secret {
                let name = secret.secret_name.as_deref().unwrap_or_default();
                all.add_files(Source::Secret, name, secret.items.as_deref(), secret.optional);
            }
            let projected = volume.projected.as_ref().and_then(|p| p.sources.as_ref());
            for part in projected.into_iter().flatten() {
                if let Some(map) = &part.config_map {
                    all.add_files(Source::ConfigMap, &map.name, map.items.as_deref(), map.optional);
                }
                if let Some(secret) = &part.secret {
                    let (name, items) = (&secret.name, secret.items.as_deref());
                    all.add_files(Source::Secret, name, items, secret.optional);
                }
            }
        }
        if let Some(own) = own.config_map {
            let own = Reference { source: Source::ConfigMap, name: own.to_owned() };
            all.0.remove(&own);
        }
        all
    }

    fn add_container(&mut self, container: &Container, own: Own<'_>) {
        let variables = container.env.iter().flatten().filter(|variable| !own.has_key(variable));
        for source in variables.filter_map(|variable| variable.value_from.as_ref()) {
            if let Some(r) = &source.config_map_key_ref {
                self.add(Source::ConfigMap, &r.name, Use::of_keys([r.key.clone()], r.optional));
            }
            if let Some(r) = &source.secret_key_ref {
                self.add(Source::Secret, &r.name, Use::of_keys([r.key.clone()], r.optional));
            }
        }
        for source in container.env_from.iter().flatten() {
            if let Some(r) = &source.config_map_ref {
                self.add(Source::ConfigMap, &r.name, Use::of_all(r.optional));
            }
            if let Some(r) = &source.secret_ref {
                self.add(Source::Secret, &r.name, Use::of_all(r.optional));
            }
        }
    }

    fn add_files(
        &mut self,
        source: Source,
        name: &str,
        items: Option<&[KeyToPath]>,
        optional: Option<bool>,
    ) {
        let items = items.unwrap_or_default();
        let part = if items.is_empty() {
            Use::of_all(optional)
        } else {
            Use::of_keys(items.iter().map(|item| item.key.clone()), optional)
        };
        self.add(source, name, part);
    }

    fn add(&mut self, source: Source, name: &str, part: Use) {
        let used = self.0.entry(Reference { source, name: name.to_owned() }).or_default();
        used.keys.extend(part.keys);
        used.all |= part.all;
        used.required |= part.required;
    }

    /// Whether nothing is read.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// All objects, sorted, with what is read of each.
    pub fn iter(&self) -> impl Iterator<Item = (&Reference, &Use)> {
        self.0.iter()
    }

    /// Whether pods read this object.
    #[must_use]
    pub fn has(&self, reference: &Reference) -> bool {
        self.0.contains_key(reference)
    }

    /// Whether pods read any object of this kind.
    #[must_use]
    pub fn any(&self, source: Source) -> bool {
        self.0.keys().any(|reference| reference.source == source)
    }
}

#[cfg(test)]
#[path = "tests/references.rs"]
mod tests;
