//! A small API server: objects as JSON with uid, version, managed fields of ours, finalizers and a log of what watches show. It
//! answers each request on its own terms, as kube-apiserver does, and knows nothing of who asks.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::core::Status;
use kube::core::response::{StatusCause, StatusDetails, StatusSummary};
use kube::core::{DynamicObject, TypeMeta};
use serde::Deserialize;
use serde_json::{Value, json};

use super::NAMESPACE;
use crate::api::{ObjectId, keys};
use crate::cluster::account::Account;
use crate::cluster::call_error::CallError;
use crate::cluster::write::{Deleted, Mode};
use crate::sync::io::effect::{Call, Replied, Reply};

/// What an object is called.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Name {
    /// An object of one of the synced kinds.
    Object(ObjectId),
    /// A GitSync.
    Sync(String),
}

/// What a watch shows.
#[derive(Debug, Clone)]
pub struct Shown {
    pub name: Name,
    /// The object, or `None` at its end.
    pub object: Option<Arc<Value>>,
    pub uid: String,
}

/// What a ServiceAccount misses.
#[derive(Default)]
pub struct Rights {
    /// It does not exist.
    pub no_account: bool,
    /// The operator may not act as it.
    pub no_acting: bool,
    /// It may not do this.
    pub no_verb: Option<&'static str>,
}

impl Rights {
    pub fn are_missing(&self) -> bool {
        self.no_account || self.no_acting || self.no_verb.is_some()
    }
}

/// The API server of a scenario.
#[derive(Default)]
pub struct Server {
    objects: BTreeMap<Name, Arc<Value>>,
    /// Labels and annotations that were applied from Git, by uid.
    applied: BTreeMap<String, BTreeSet<(bool, String)>>,
    /// Grows with each write that changes something.
    pub version: u64,
    /// What watches show, in its order.
    pub log: Vec<Shown>,
    /// Content that the server refuses: part of a URL.
    pub refuses: Option<String>,
    /// What those miss who act as the ServiceAccount.
    pub rights: Rights,
    uids: u64,
}

pub fn text<'a>(object: &'a Value, path: &str) -> &'a str {
    object.pointer(path).and_then(Value::as_str).unwrap_or_default()
}

pub fn annotation<'a>(object: &'a Value, key: &str) -> Option<&'a str> {
    object["metadata"]["annotations"].get(key).and_then(Value::as_str)
}

pub fn is_deleting(object: &Value) -> bool {
    !object["metadata"]["deletionTimestamp"].is_null()
}

fn failure(code: u16, message: &str, uid: bool) -> CallError {
    failure_of("", code, message, uid)
}

fn failure_of(kind: &str, code: u16, message: &str, uid: bool) -> CallError {
    let (reason, empty) = (String::new(), String::new());
    let cause = StatusCause { reason, message: empty, field: "metadata.uid".into() };
    let details = StatusDetails {
        name: "some".into(),
        group: String::new(),
        kind: kind.to_owned(),
        uid: String::new(),
        causes: if uid { vec![cause] } else { Vec::new() },
        retry_after_seconds: 0,
    };
    let status = Status {
        status: Some(StatusSummary::Failure),
        code,
        message: message.to_owned(),
        reason: String::new(),
        details: Some(details),
        metadata: None,
    };
    CallError::Refused(Box::new(status))
}

/// The server is overloaded, and has done nothing.
pub fn overloaded() -> CallError {
    failure(503, "overloaded", false)
}

/// Many writes change the count of a quota at once, and this one was not the first.
pub fn quota_in_conflict() -> CallError {
    failure_of("resourcequotas", 409, "the quota has been modified", false)
}

/// The quota is used up.
pub fn quota_exceeded() -> CallError {
    failure(
        403,
        "objects is forbidden: exceeded quota: most, requested: 1, used: 9, limited: 9",
        false,
    )
}

/// The verb of a request that needs the rights of the account.
fn verb(call: &Call) -> Option<&'static str> {
    match call {
        Call::Rehearse { .. } | Call::Apply { .. } | Call::ReplaceSpec { .. } => Some("patch"),
        Call::Delete { .. } => Some("delete"),
        Call::Get { .. } => Some("get"),
        Call::TryAccount => Some("create"),
        _ => None,
    }
}

#[allow(clippy::unnecessary_wraps)] // as all answers
fn object(value: &Value) -> Replied {
    Ok(Reply::Object(Box::new(as_object(value))))
}

fn as_object(value: &Value) -> DynamicObject {
    // As it would be parsed, without doing so: that takes long.
    let metadata = ObjectMeta::deserialize(&value["metadata"]).expect("metadata");
    let types = TypeMeta {
        api_version: text(value, "/apiVersion").to_owned(),
        kind: text(value, "/kind").to_owned(),
    };
    let rest = |(key, _): &(&String, _)| !matches!(&***key, "apiVersion" | "kind" | "metadata");
    let rest = value.as_object().into_iter().flatten().filter(rest);
    let data = rest.map(|(key, value)| (key.clone(), value.clone())).collect();
    DynamicObject { types: Some(types), metadata, data }
}

/// An object with another value of that field.
fn with(object: &Value, field: &str, value: Value) -> Value {
    let others = object.as_object().into_iter().flatten().filter(|(key, _)| *key != field);
    let others = others.map(|(key, value)| (key.clone(), value.clone()));
    others.chain([(field.to_owned(), value)]).collect()
}

impl Server {
    pub fn get(&self, name: &Name) -> Option<&Arc<Value>> {
        self.objects.get(name)
    }

    pub fn objects(&self) -> impl Iterator<Item = (&ObjectId, &Arc<Value>)> {
        self.objects.iter().filter_map(|(name, value)| match name {
            Name::Object(id) => Some((id, value)),
            Name::Sync(_) => None,
        })
    }

    pub fn all(&self) -> impl Iterator<Item = (&Name, &Arc<Value>)> {
        self.objects.iter()
    }

    fn show(&mut self, name: &Name, object: Option<Arc<Value>>, uid: &str) {
        self.log.push(Shown { name: name.clone(), object, uid: uid.to_owned() });
    }

    /// Stores an object, if anything of it is new.
    fn store(&mut self, name: &Name, mut new: Value) -> Arc<Value> {
        let old = self.objects.get(name);
        if let Some(old) = old {
            new["metadata"]["resourceVersion"] = old["metadata"]["resourceVersion"].clone();
            if **old == new {
                return old.clone();
            }
            if old["spec"] != new["spec"] || is_deleting(old) != is_deleting(&new) {
                let generation = old["metadata"]["generation"].as_i64().unwrap_or(0);
                new["metadata"]["generation"] = json!(generation + 1);
            }
        }
        self.version += 1;
        new["metadata"]["resourceVersion"] = json!(self.version.to_string());
        let uid = text(&new, "/metadata/uid").to_owned();
        let finalizers =
            new["metadata"]["finalizers"].as_array().is_some_and(|all| !all.is_empty());
        let new = Arc::new(new);
        if is_deleting(&new) && !finalizers {
            self.objects.remove(name);
            self.show(name, None, &uid);
        } else {
            self.objects.insert(name.clone(), new.clone());
            self.show(name, Some(new.clone()), &uid);
        }
        new
    }

    /// Makes an object, with a uid of its own.
    pub fn make(&mut self, name: &Name, mut new: Value) {
        if self.objects.contains_key(name) {
            return;
        }
        self.uids += 1;
        // The first twelve digits tell them apart, as those of random uids do.
        let number = self.uids.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let uid = format!(
            "{:08x}-{:04x}-4000-8000-{:012x}",
            number >> 32,
            number >> 16 & 0xffff,
            self.uids
        );
        new["metadata"]["uid"] = json!(uid);
        new["metadata"]["namespace"] = json!(NAMESPACE);
        new["metadata"]["generation"] = json!(1);
        self.store(name, new);
    }

    /// Somebody changes an object by hand.
    pub fn edit(&mut self, name: &Name, change: impl FnOnce(&mut Value)) {
        let Some(old) = self.objects.get(name) else { return };
        let mut new = Value::clone(old);
        change(&mut new);
        self.store(name, new);
    }

    /// Somebody deletes an object.
    pub fn delete(&mut self, name: &Name) {
        self.edit(name, |object| {
            if !is_deleting(object) {
                object["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
            }
        });
    }

    /// Whether somebody may ask that.
    pub fn allows(&self, account: Option<&Account>, call: &Call) -> bool {
        self.permits(account, call).is_ok()
    }

    fn permits(&self, account: Option<&Account>, call: &Call) -> Result<(), CallError> {
        let (Some(account), Some(verb)) = (account, verb(call)) else { return Ok(()) };
        let Account { namespace, name, .. } = account;
        let message = |who: &str, verb: &str, what: &str, group: &str| {
            format!(
                "{what} is forbidden: User \"system:serviceaccount:{who}\" cannot {verb} resource \"{what}\" in API group \"{group}\" in the namespace \"{namespace}\""
            )
        };
        if self.rights.no_acting {
            let message = message("convoke-system:convoke", "impersonate", "serviceaccounts", "");
            return Err(failure_of("serviceaccounts", 403, &message, false));
        }
        if self.rights.no_verb == Some(verb) {
            let who = format!("{namespace}:{name}");
            return Err(failure(403, &message(&who, verb, "agents", "convoke.dev"), false));
        }
        Ok(())
    }

    /// What the server answers to a request, and does.
    pub fn answer(&mut self, account: Option<&Account>, call: &Call) -> Replied {
        self.permits(account, call)?;
        match call {
            Call::Rehearse { id, manifest, mode } => {
                self.judged(id, manifest, mode).map(|_| Reply::Done)
            }
            Call::Apply { id, manifest, mode } => {
                let old = self.judged(id, manifest, mode)?;
                object(&self.apply(id, manifest, old))
            }
            Call::ReplaceSpec { id, version, spec } => {
                let name = Name::Object(id.clone());
                let new = with(&*self.at(&name, *version)?, "spec", spec.clone());
                object(&self.store(&name, new))
            }
            Call::Get { id } => self.read(&Name::Object(id.clone())),
            Call::GetSync { name } => self.read(&Name::Sync(name.clone())),
            Call::Delete { id, uid, version } => {
                let name = Name::Object(id.clone());
                let Some(old) = self.objects.get(&name).cloned() else {
                    return Ok(Reply::Deleted(Deleted::Gone));
                };
                let same = text(&old, "/metadata/uid") == uid
                    && text(&old, "/metadata/resourceVersion") == version.to_string();
                if !same {
                    return Ok(Reply::Deleted(Deleted::Changed));
                }
                self.delete(&name);
                let Some(kept) = self.objects.get(&name) else {
                    return Ok(Reply::Deleted(Deleted::Gone));
                };
                Ok(Reply::Deleted(Deleted::Terminating(Box::new(as_object(kept)))))
            }
            Call::ClearStatus { name, version, fields } => {
                let name = Name::Sync(name.clone());
                let mut status = self.at(&name, *version)?["status"].clone();
                for field in fields {
                    status.as_object_mut().and_then(|status| status.remove(*field));
                }
                let old = self.objects[&name].clone();
                object(&self.store(&name, with(&old, "status", status)))
            }
            Call::Status { name, uid, status } => {
                let name = Name::Sync(name.clone());
                let old = self.objects.get(&name).cloned();
                let old = old.ok_or_else(|| failure(404, "not found", false))?;
                if text(&old, "/metadata/uid") != uid {
                    return Err(failure(409, "another uid", true));
                }
                let status = serde_json::to_value(status).expect("a status");
                object(&self.store(&name, with(&old, "status", status)))
            }
            Call::Finalizers { name, version, finalizers } => {
                let name = Name::Sync(name.clone());
                let old = self.at(&name, *version)?;
                let mut new = Value::clone(&old);
                if is_deleting(&old) {
                    // None may be added any more.
                    let had = old["metadata"]["finalizers"].as_array().cloned().unwrap_or_default();
                    if finalizers.iter().any(|one| !had.contains(&json!(one))) {
                        return Err(failure(422, "no new finalizers", false));
                    }
                }
                new["metadata"]["finalizers"] = json!(finalizers);
                object(&self.store(&name, new))
            }
            Call::FindAccount(_) if self.rights.no_account => Err(failure(404, "not found", false)),
            Call::FindAccount(_) | Call::FindNamespace => Ok(Reply::Found { deleting: false }),
            Call::TryAccount => Ok(Reply::Done),
        }
    }

    fn read(&self, name: &Name) -> Replied {
        let found = self.objects.get(name).ok_or_else(|| failure(404, "not found", false))?;
        object(found)
    }

    /// The object, if it is still at this version.
    fn at(&self, name: &Name, version: u64) -> Result<Arc<Value>, CallError> {
        let old = self.objects.get(name).ok_or_else(|| failure(404, "not found", false))?;
        if text(old, "/metadata/resourceVersion") == version.to_string() {
            Ok(old.clone())
        } else {
            Err(failure(409, "it has changed", false))
        }
    }

    /// What an apply meets, if the server lets it through.
    fn judged(
        &self,
        id: &ObjectId,
        manifest: &Value,
        mode: &Mode,
    ) -> Result<Option<Arc<Value>>, CallError> {
        let old = self.objects.get(&Name::Object(id.clone())).cloned();
        match (mode, &old) {
            (Mode::Create, Some(_)) => return Err(failure(409, "it exists", false)),
            (Mode::Create, None) => {}
            (Mode::Update { .. }, None) => return Err(failure(409, "it is gone", true)),
            (Mode::Update { uid, version }, Some(old)) => {
                if text(old, "/metadata/uid") != uid {
                    return Err(failure(409, "another uid", true));
                }
                let is = text(old, "/metadata/resourceVersion");
                if version.is_some_and(|version| version.to_string() != is) {
                    return Err(failure(409, "it has changed", false));
                }
            }
        }
        if let Some(refused) = &self.refuses
            && manifest["spec"].to_string().contains(refused)
        {
            return Err(failure(422, "admission webhook denied the request: no", false));
        }
        Ok(old)
    }

    /// A forced server-side apply: what was applied before and is not any more goes, what others have added stays.
    fn apply(&mut self, id: &ObjectId, manifest: &Value, old: Option<Arc<Value>>) -> Arc<Value> {
        let name = Name::Object(id.clone());
        let Some(old) = old else {
            self.make(&name, manifest.clone());
            let made = self.objects[&name].clone();
            self.own(text(&made, "/metadata/uid").to_owned(), manifest);
            return made;
        };
        let uid = text(&old, "/metadata/uid").to_owned();
        let mut new = Value::clone(&old);
        for (labels, field) in [(true, "labels"), (false, "annotations")] {
            for (_, key) in
                self.applied.get(&uid).into_iter().flatten().filter(|(l, _)| *l == labels)
            {
                if let Some(all) = new["metadata"][field].as_object_mut() {
                    all.remove(key);
                }
            }
            for (key, value) in manifest["metadata"][field].as_object().into_iter().flatten() {
                new["metadata"][field][key] = value.clone();
            }
        }
        merge(&mut new["spec"], &manifest["spec"]);
        self.own(uid, manifest);
        self.store(&name, new)
    }

    fn own(&mut self, uid: String, manifest: &Value) {
        let keys = |labels: bool, field: &str| {
            let all = manifest["metadata"][field].as_object();
            let all = all.into_iter().flatten().map(move |(key, _)| (labels, key.clone()));
            all.collect::<Vec<_>>()
        };
        let all = keys(true, "labels").into_iter().chain(keys(false, "annotations"));
        self.applied.insert(uid, all.collect());
    }
}

fn merge(live: &mut Value, applied: &Value) {
    match (live, applied) {
        (Value::Object(live), Value::Object(applied)) => {
            for (key, value) in applied {
                merge(live.entry(key.clone()).or_insert(Value::Null), value);
            }
        }
        (live, applied) => *live = applied.clone(),
    }
}

/// Whether somebody has said that the operator leaves the object alone.
pub fn is_paused(object: &Value) -> bool {
    annotation(object, keys::RECONCILE) == Some(keys::DISABLED)
}
