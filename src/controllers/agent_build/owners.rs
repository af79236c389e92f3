//! Whose a PipelineRun is. Labels prove nothing by themselves: everybody who may create PipelineRuns in some namespace can write them. So a
//! run in another namespace counts only in that of `--build-namespace`, or where a finalizer of its AgentBuild says that it has runs.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;

use super::needs::Level;
use super::place::{Place, places};
use super::run::Run;
use crate::api::AgentBuild;
use crate::cluster::live::Managed;
use crate::cluster::store::{Entry, Key, Store};

/// The AgentBuilds, and where their runs may be.
pub struct Owners {
    builds: Arc<Store<Managed<AgentBuild>>>,
    build_namespace: Option<String>,
}

impl Owners {
    /// `build_namespace` is `--build-namespace`.
    #[must_use]
    pub fn new(builds: Arc<Store<Managed<AgentBuild>>>, build_namespace: Option<String>) -> Self {
        Self { builds, build_namespace }
    }

    /// Where the next run of an AgentBuild is made whose pod needs this level of Pod Security.
    #[must_use]
    pub fn place(&self, key: &Key, needs: Level) -> Place {
        Place::new(&key.namespace, needs, self.build_namespace.as_deref())
    }

    /// Whether runs of all AgentBuilds may be made in a namespace.
    #[must_use]
    pub fn is_build_namespace(&self, at: &str) -> bool {
        self.build_namespace.as_deref() == Some(at)
    }

    /// The runs in the namespace of `--build-namespace` that name an AgentBuild of another one, whatever its UID is.
    #[must_use]
    pub fn in_build_namespace(&self, store: &Store<Run>, key: &Key) -> Vec<Arc<Entry<Run>>> {
        let Some(at) = self.build_namespace.as_deref() else { return Vec::new() };
        let found = store.found(at, &key.to_string()).into_iter().map(|(_, run)| run);
        found.filter(|run| run.value.is_elsewhere()).collect()
    }

    /// The AgentBuild of a run, if it has one and the run is where its runs may be.
    #[must_use]
    pub fn of(&self, run: &Run) -> Option<Key> {
        let key = Key::new(run.home.as_str(), run.owner_name.clone()?);
        if !run.is_elsewhere() {
            return Some(key);
        }
        let build = self.builds.get(&key)?;
        let is_it = run.owner_uid.as_deref() == Some(&*build.uid);
        let at = run.namespace.as_str();
        (is_it && self.all(&build.value.facts.finalizers).contains(at)).then_some(key)
    }

    /// The AgentBuild for which a run counts. In the namespace of `--build-namespace` that is the one that it names, also when it is gone: a team that
    /// takes the finalizer away does not get more turns.
    #[must_use]
    pub fn counts_for(&self, run: &Run) -> Option<Key> {
        if run.is_elsewhere() && self.is_build_namespace(&run.namespace) {
            return Some(Key::new(run.home.as_str(), run.owner_name.clone()?));
        }
        self.of(run)
    }

    /// The AgentBuilds for which any run counts, also those that are gone.
    #[must_use]
    pub fn with_runs(&self, store: &Store<Run>) -> HashSet<Key> {
        store.all().iter().filter_map(|(_, run)| self.counts_for(&run.value)).collect()
    }

    /// The runs that name an AgentBuild: in its namespace, and where its runs may be. It has these finalizers.
    #[must_use]
    pub fn runs(
        &self,
        store: &Store<Run>,
        key: &Key,
        finalizers: &[String],
    ) -> Vec<Arc<Entry<Run>>> {
        let term = key.to_string();
        let home = store.found(&key.namespace, &key.name);
        let other = self.all(finalizers).into_iter().flat_map(|at| store.found(at, &term));
        home.into_iter().chain(other).map(|(_, run)| run).collect()
    }

    /// The other namespaces in which an AgentBuild with these finalizers may have runs.
    fn all<'a>(&'a self, finalizers: &'a [String]) -> BTreeSet<&'a str> {
        places(finalizers).chain(self.build_namespace.as_deref()).collect()
    }
}

#[cfg(test)]
#[path = "tests/owners.rs"]
mod tests;
