//! The rules of plans, one test a rule. Here are the helpers of all of them.

mod approvals;
mod atomic;
mod brake;
mod drift;
mod quarantine;
mod rules;
mod unproven;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::json;

use super::*;
use crate::api::Kind;
use crate::api::git_sync::{ApprovedPrune, DriftPolicy, PendingPrune, Prune};
use crate::cluster::live::{Facts, LiveObject, hash_json};
use crate::definition::{Definition, Offers};
use crate::packed::{Family, Pairs};
use crate::sync::commit::desired::{DesiredSet, SyncRef};
use crate::sync::plan::work_index::WorkIndex;

const NAMESPACE: &str = "team";

fn sync() -> SyncRef {
    SyncRef { uid: "uid-1".into(), namespace: NAMESPACE.into(), name: "main".into(), generation: 3 }
}

fn id(name: &str) -> ObjectId {
    ObjectId::new(Kind::ModelAPI, name)
}

fn want(name: &str) -> (ObjectId, Desired) {
    let spec = json!({"mode": "External", "external": {"url": format!("https://{name}.example")}});
    let definition = Definition {
        id: id(name),
        path: format!("{name}.yaml"),
        line: 1,
        column: 1,
        labels: Pairs::default(),
        annotations: Pairs::default(),
        canonical_spec: Family::new().pack(&spec),
        spec: Family::new().pack(&spec),
        offers: Offers::default(),
        references: Vec::new(),
    };
    (id(name), Desired::new(Arc::new(definition)))
}

/// A live object.
#[derive(Debug, Clone)]
struct Object {
    uid: String,
    version: u64,
    facts: Facts,
    annotations: BTreeMap<String, String>,
}

impl LiveObject for Object {
    fn uid(&self) -> &str {
        &self.uid
    }
    fn version(&self) -> u64 {
        self.version
    }
    fn facts(&self) -> &Facts {
        &self.facts
    }
}

/// The live object as an apply of `want(name)` leaves it.
fn live(name: &str, mark: Option<&str>) -> (ObjectId, Object) {
    let (id, want) = want(name);
    let facts = Facts { spec_hash: Some(want.spec_hash), ready: true, ..Facts::default() };
    let (uid, annotations) = (format!("uid-of-{name}"), BTreeMap::new());
    let mut object = Object { uid, version: 7, facts, annotations };
    annotate(&mut object, keys::APPLIED, &want.applied);
    annotate(&mut object, keys::SOURCE, &format!("{name}.yaml:1"));
    if let Some(mark) = mark {
        annotate(&mut object, keys::OWNER, mark);
    }
    (id, object)
}

fn ours(name: &str) -> (ObjectId, Object) {
    live(name, Some(&sync().mark(&id(name)).to_string()))
}

fn annotate(object: &mut Object, key: &str, value: &str) {
    object.annotations.insert(key.into(), value.into());
    object.facts.annotations = Pairs::of(Some(&object.annotations));
}

/// One other GitSync, `other`.
#[derive(Default)]
struct Neighbours {
    wants: BTreeSet<ObjectId>,
    gives: BTreeSet<ObjectId>,
    /// What this one wants, too, and whether the other one is the older.
    contested: BTreeMap<ObjectId, bool>,
}

impl Others for Neighbours {
    fn exists(&self, namespace: &str, name: &str, uid: &str) -> bool {
        (namespace, name, uid) == (NAMESPACE, "other", "uid-2")
    }
    fn wanted_by(&self, id: &ObjectId) -> Option<String> {
        self.wants.contains(id).then(|| "other".to_owned())
    }
    fn gives(&self, name: &str, id: &ObjectId) -> bool {
        name == "other" && self.gives.contains(id)
    }
    fn contested(&self) -> BTreeMap<ObjectId, Rival> {
        let rival = |older: &bool| Rival { name: "other".into(), older: *older };
        self.contested.iter().map(|(id, older)| (id.clone(), rival(older))).collect()
    }
}

struct World {
    input_key: &'static str,
    desired: DesiredSet,
    live: BTreeMap<ObjectId, Object>,
    has_errors: bool,
    broken: BTreeMap<ObjectId, String>,
    broken_paths: BTreeSet<String>,
    paths: BTreeSet<String>,
    last_paths: BTreeMap<ObjectId, String>,
    lost: bool,
    others: Neighbours,
    prune: Prune,
    drift: DriftPolicy,
    failure_policy: FailurePolicy,
    approval: Option<String>,
    handled: Option<String>,
    last_digest: Option<String>,
    pending: Option<PendingPrune>,
    unproven: Unproven,
    approved: Option<ApprovedPrune>,
    prune_base: Option<usize>,
    settled: Settled,
}

fn world(desired: &[&str], live: &[&str]) -> World {
    World {
        input_key: "abc .",
        desired: desired.iter().map(|name| want(name)).collect(),
        live: live.iter().map(|name| ours(name)).collect(),
        has_errors: false,
        broken: BTreeMap::new(),
        broken_paths: BTreeSet::new(),
        paths: desired.iter().map(|name| format!("{name}.yaml")).collect(),
        last_paths: BTreeMap::new(),
        lost: false,
        others: Neighbours::default(),
        prune: Prune::default(),
        drift: DriftPolicy::default(),
        failure_policy: FailurePolicy::default(),
        approval: None,
        handled: None,
        last_digest: None,
        pending: None,
        unproven: Unproven::default(),
        approved: None,
        prune_base: None,
        settled: Settled::new(),
    }
}

impl World {
    fn live(&self) -> BTreeMap<ObjectId, Live> {
        self.live.iter().map(|(id, o)| (id.clone(), Arc::new(o.clone()) as Live)).collect()
    }

    /// The work index of an operator that has just started.
    fn index(&self) -> WorkIndex {
        WorkIndex::new(&sync(), &self.desired, &self.live(), &self.settled)
    }

    /// Updates an object in the index.
    fn update(&self, index: &mut WorkIndex, name: &str) {
        index.update(&id(name), &sync(), &self.desired, &self.live(), &self.settled);
    }

    fn plan(&self) -> Plan {
        self.plan_on(&self.index())
    }

    fn plan_on(&self, index: &WorkIndex) -> Plan {
        let (live, sync) = (self.live(), sync());
        plan(&Inputs {
            sync: &sync,
            latch_key: self.input_key,
            desired: &self.desired,
            live: &live,
            index,
            has_errors: self.has_errors,
            broken: &self.broken,
            broken_paths: &self.broken_paths,
            paths: &self.paths,
            last_paths: &self.last_paths,
            lost: self.lost,
            prune: &self.prune,
            drift: self.drift,
            failure_policy: self.failure_policy,
            approval: self.approval.as_deref(),
            handled: self.handled.as_deref(),
            last_digest: self.last_digest.as_deref(),
            approved: self.approved.as_ref(),
            pending: self.pending.as_ref(),
            unproven: &self.unproven,
            prune_base: self.prune_base,
            others: &self.others,
            settled: &self.settled,
        })
    }
}

fn pruned(plan: &Plan) -> Vec<&str> {
    plan.prune.iter().map(|v| v.id.name.as_str()).collect()
}

fn names(ids: &[ObjectId]) -> Vec<&str> {
    ids.iter().map(|id| id.name.as_str()).collect()
}
