//! The plan that the operator would make, from objects that the command line has read.
//!
//! A preview writes nothing and remembers nothing. The settled objects, which the operator remembers from one plan to the
//! next, are computed from the live objects.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::api::git_sync::GitSyncStatus;
use crate::api::{Agent, AgentBuild, GitSync, Kind, MCPServer, ModelAPI, ObjectId, keys};
use crate::cluster::live::{Live, Ours, Stores, hash_json};
use crate::cluster::store::Key;
use crate::definition::Catalog;
use crate::sync::commit::desired::{Desired, DesiredSet, SyncRef, latch_key};
use crate::sync::plan::approvals::is_gone;
use crate::sync::plan::work_index::WorkIndex;
use crate::sync::plan::{Inputs, Others, Plan, Settled, Settling, Unproven, brake, plan};

/// A live object, as read by the command line.
#[derive(Debug, Clone, PartialEq)]
pub struct LiveManifest {
    /// The object as the API server returns it.
    pub object: Value,
    /// The spec in canonical form; `None` when it does not parse.
    pub spec: Option<Value>,
}

impl LiveManifest {
    /// Reads an object of a kind.
    #[must_use]
    pub fn new(kind: Kind, object: Value) -> Self {
        let spec = match kind {
            Kind::ModelAPI => spec::<ModelAPI>(&object),
            Kind::MCPServer => spec::<MCPServer>(&object),
            Kind::AgentBuild => spec::<AgentBuild>(&object),
            Kind::Agent => spec::<Agent>(&object),
        };
        Self { object, spec }
    }

    /// The labels or annotations of the object, by the name of the field.
    #[must_use]
    pub fn metadata(&self, field: &str) -> BTreeMap<String, String> {
        let map = self.object["metadata"][field].as_object().into_iter().flatten();
        map.filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned()))).collect()
    }

    /// The value of an annotation.
    #[must_use]
    pub fn annotation(&self, key: &str) -> Option<&str> {
        self.object["metadata"]["annotations"][key].as_str()
    }
}

fn spec<K: Ours>(object: &Value) -> Option<Value> {
    serde_json::from_value::<K>(object.clone()).ok().map(|object| object.spec_json())
}

/// The spec after an apply. Where Git sets no replicas, those of the live object stay: autoscalers and `kubectl scale` set them.
#[must_use]
pub fn spec_after(desired: &Desired, live: Option<&Value>) -> Value {
    let mut spec = desired.definition.canonical_spec.json();
    let replicas = live.and_then(|live| live.get("replicas"));
    if let (Some(spec), Some(replicas)) = (spec.as_object_mut(), replicas) {
        spec.entry("replicas").or_insert_with(|| replicas.clone());
    }
    spec
}

/// Everything that a previewed plan depends on.
pub struct Preview<'a> {
    /// The GitSync.
    pub sync: &'a GitSync,
    /// The commit of the definitions. `None` for definitions that are not committed: then the digest of held deletes has no meaning.
    pub commit: Option<&'a str>,
    /// The definitions and their problems.
    pub catalog: &'a Catalog,
    /// The desired set.
    pub desired: &'a DesiredSet,
    /// If the definitions have errors: the objects that the commit before wanted and these do not, each with its file.
    pub last_paths: &'a BTreeMap<ObjectId, String>,
    /// The live objects in the namespace of the GitSync.
    pub live: &'a BTreeMap<ObjectId, LiveManifest>,
    /// The other GitSyncs of the namespace.
    pub others: &'a dyn Others,
}

impl Preview<'_> {
    /// Makes the plan, with the function that the operator uses.
    #[must_use]
    pub fn plan(&self) -> Plan {
        let Self { sync, commit, catalog, desired, last_paths, live, others } = self;
        let meta = &sync.metadata;
        let namespace = meta.namespace.clone().unwrap_or_default();
        let generation = meta.generation.unwrap_or_default();
        let latch_key = latch_key(commit.unwrap_or("none"), &sync.spec.path, generation);
        let set = live_set(&namespace, live);
        let approval = meta.annotations.as_ref();
        let approval = approval.and_then(|all| all.get(keys::APPROVE_PRUNE)).map(String::as_str);
        let status = sync.status.as_ref();
        let handled = status.and_then(|status| status.last_handled_approval.as_deref());
        let mut approved = status.and_then(|status| status.approved_prune.as_ref());
        let mut pending = status.and_then(|status| status.pending_prune.clone());
        if let Some(unapproved) = approved.take_if(|_| is_gone(approval)) {
            // The operator does the same before it plans.
            pending = Some(brake::taken_back(pending.as_ref(), unapproved, handled));
        }
        let settled = settled(desired, live);
        let reference = SyncRef {
            uid: meta.uid.clone().unwrap_or_default(),
            namespace,
            name: meta.name.clone().unwrap_or_default(),
            generation,
        };
        plan(&Inputs {
            sync: &reference,
            latch_key: &latch_key,
            desired,
            live: &set,
            index: &WorkIndex::new(&reference, desired, &set, &settled),
            has_errors: catalog.has_errors(),
            broken: &catalog.broken,
            broken_paths: &catalog.broken_paths,
            paths: &catalog.paths,
            last_paths,
            lost: false,
            prune: &sync.spec.prune,
            drift: sync.spec.drift,
            failure_policy: sync.spec.failure_policy,
            approval,
            handled,
            last_digest: status.and_then(|status| status.last_prune_digest.as_deref()),
            approved,
            pending: pending.as_ref(),
            // Only the operator asks the other GitSyncs before it deletes.
            unproven: &Unproven::default(),
            prune_base: status.and_then(GitSyncStatus::prune_base),
            others: *others,
            settled: &settled,
        })
    }
}

/// The live objects as the engine has them, read by the same stores.
fn live_set(namespace: &str, live: &BTreeMap<ObjectId, LiveManifest>) -> BTreeMap<ObjectId, Live> {
    let stores = Stores::new();
    live.iter()
        .filter_map(|(id, live)| {
            let store = stores.managed(id.kind);
            store.answered(serde_json::from_value(live.object.clone()).ok()?);
            Some((id.clone(), store.live(&Key::new(namespace, &id.name))?))
        })
        .collect()
}

/// The objects that differ from Git, but that an apply would not change.
fn settled(desired: &DesiredSet, live: &BTreeMap<ObjectId, LiveManifest>) -> Settled {
    desired
        .iter()
        .filter_map(|(id, want)| {
            let spec = live.get(id)?.spec.as_ref()?;
            let stays = spec_after(want, Some(spec)) == *spec;
            let settling = Settling {
                applied: want.applied.clone(),
                spec_hash: Some(hash_json(spec)),
                version: 0,
            };
            stays.then(|| (id.clone(), settling))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn d2_a_live_object_is_read_as_the_operator_reads_it() {
        let live = json!({
            "apiVersion": "convoke.dev/v1alpha1", "kind": "ModelAPI",
            "metadata": {"name": "m", "labels": {"team": "news"}, "annotations": {"who": "ann"}},
            "spec": {"mode": "External", "external": {"url": "https://m.example"}},
        });
        let live = LiveManifest::new(Kind::ModelAPI, live);
        let spec = live.spec.as_ref().expect("it parses");
        assert_eq!(spec["external"]["url"], "https://m.example");
        assert_eq!(live.metadata("labels"), [("team".to_owned(), "news".to_owned())].into());
        assert_eq!(live.metadata("annotations"), [("who".to_owned(), "ann".to_owned())].into());
        assert_eq!((live.annotation("who"), live.annotation("what")), (Some("ann"), None));
        let wrong = LiveManifest::new(Kind::ModelAPI, json!({"metadata": {}, "spec": 7}));
        assert_eq!((wrong.spec, wrong.object["metadata"].clone()), (None, json!({})));
    }
}
