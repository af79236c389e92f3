//! (pure) Which ConfigMaps and Secrets the pods of a template read.
#![deny(clippy::disallowed_types, clippy::disallowed_methods)]

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use k8s_openapi::api::core::v1::{Container, KeyToPath, PodTemplateSpec};

/// What is read.
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

/// One object of the pods' namespace.
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
    /// Whether an object can have that name. If not, there is none, and the name belongs into no address and no command:
    /// whoever writes a definition chooses it.
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

/// What is read of one object.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Use {
    /// The keys that are named.
    pub keys: BTreeSet<String>,
    /// Whether all keys are read, besides.
    pub all: bool,
    /// Whether no pod starts without it.
    pub required: bool,
}

/// Everything that the pods of a template read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct References(BTreeMap<Reference, Use>);

impl References {
    /// All that `template` reads, without the ConfigMap `own`: a child of ours has its own way to replace pods.
    #[must_use]
    pub fn of(template: &PodTemplateSpec, own: Option<&str>) -> Self {
        let mut all = Self::default();
        let Some(pod) = &template.spec else { return all };
        for container in pod.init_containers.iter().flatten().chain(&pod.containers) {
            all.add_container(container);
        }
        for volume in pod.volumes.iter().flatten() {
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
        if let Some(own) = own {
            let own = Reference { source: Source::ConfigMap, name: own.to_owned() };
            all.0.remove(&own);
        }
        all
    }

    fn add_container(&mut self, container: &Container) {
        for source in container.env.iter().flatten().filter_map(|var| var.value_from.as_ref()) {
            if let Some(r) = &source.config_map_key_ref {
                self.add(Source::ConfigMap, &r.name, [r.key.clone()], false, r.optional);
            }
            if let Some(r) = &source.secret_key_ref {
                self.add(Source::Secret, &r.name, [r.key.clone()], false, r.optional);
            }
        }
        for source in container.env_from.iter().flatten() {
            if let Some(r) = &source.config_map_ref {
                self.add(Source::ConfigMap, &r.name, [], true, r.optional);
            }
            if let Some(r) = &source.secret_ref {
                self.add(Source::Secret, &r.name, [], true, r.optional);
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
        let keys = items.iter().map(|item| item.key.clone());
        self.add(source, name, keys, items.is_empty(), optional);
    }

    fn add(
        &mut self,
        source: Source,
        name: &str,
        keys: impl IntoIterator<Item = String>,
        all: bool,
        optional: Option<bool>,
    ) {
        let used = self.0.entry(Reference { source, name: name.to_owned() }).or_default();
        used.keys.extend(keys);
        used.all |= all;
        used.required |= optional != Some(true);
    }

    /// Whether nothing is read.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Every object, sorted, with what is read of it.
    pub fn iter(&self) -> impl Iterator<Item = (&Reference, &Use)> {
        self.0.iter()
    }

    /// Whether that object is read.
    #[must_use]
    pub fn has(&self, reference: &Reference) -> bool {
        self.0.contains_key(reference)
    }

    /// Whether any object of that kind is read.
    #[must_use]
    pub fn any(&self, source: Source) -> bool {
        self.0.keys().any(|reference| reference.source == source)
    }
}

#[cfg(test)]
#[path = "tests/references.rs"]
mod tests;
