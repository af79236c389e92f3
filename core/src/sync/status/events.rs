//! Events: about a GitSync, when `Ready` or `Suspended` changes, and about single objects.
//!
//! An event is about a change. What a status said before the operator started makes no event, and neither does a new
//! message with the same reason.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::ObjectReference;

use crate::api::git_sync::{GitSyncStatus, Problem};
use crate::api::{API_VERSION, Kind, ObjectId};
use crate::cluster::conditions;
use crate::cluster::live::Stores;
use crate::cluster::store::Key;
use crate::sync::apply::problems::{CONFLICT, FORBIDDEN, REFUSED};
use crate::sync::io::effect::{Effect, Event, EventType};
use crate::sync::reasons::{EngineReason, EventReason};
use crate::sync::status::memory::ReportMemory;
use crate::sync::status::plan_result::PlanResult;
use crate::sync::status::verdict::place_and_message;
use crate::sync::subject::Subject;

/// Most objects that get events of their own in one reconcile: a policy may refuse ten thousand. One event about the GitSync
/// counts the others.
const MOST_OBJECT_EVENTS: usize = 10;

/// What of a status makes an event when it changes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct AnnouncedState {
    suspended: bool,
    /// Status and reason of `Ready`.
    ready: Option<(String, String)>,
}

/// A change of a status that makes an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StateChange {
    /// The status or the reason of `Ready`.
    Ready,
    /// The GitSync was suspended.
    Suspended,
    /// The GitSync was resumed, and `Ready` has not changed yet.
    Resumed,
}

impl AnnouncedState {
    /// What this status says.
    pub fn of(status: Option<&GitSyncStatus>) -> Self {
        let all = status.map(|status| status.conditions.as_slice()).unwrap_or_default();
        let ready = all.iter().find(|condition| condition.type_ == "Ready");
        Self {
            suspended: conditions::is_true(all, "Suspended"),
            ready: ready.map(|ready| (ready.status.clone(), ready.reason.clone())),
        }
    }

    /// The change from what was announced last to what the status says `now`. It counts as announced from then on.
    pub fn change_to(&mut self, now: Self) -> Option<StateChange> {
        if now.suspended && !self.suspended {
            // `Ready` still says what was true before the suspension.
            self.suspended = true;
            return Some(StateChange::Suspended);
        }
        // While `Ready` is Unknown, the last announcement stays valid.
        let is_known = now.ready.as_ref().is_some_and(|(status, _)| status != "Unknown");
        if is_known && now.ready != self.ready {
            *self = now;
            return Some(StateChange::Ready);
        }
        let resumed = self.suspended && !now.suspended;
        self.suspended = now.suspended;
        resumed.then_some(StateChange::Resumed)
    }
}

/// Whether an event with this reason is Normal. Work in progress and a deletion that goes on are no Warning. (pure)
pub(crate) fn is_good(ready: bool, reason: Option<EngineReason>) -> bool {
    let goes_on = matches!(
        reason,
        Some(
            EngineReason::Progressing
                | EngineReason::HandingOver
                | EngineReason::Terminating
                | EngineReason::Deleting
        )
    );
    ready || goes_on
}

/// The reference to a GitSync in an event. (pure)
pub(crate) fn of_sync(key: &Key, uid: &str) -> ObjectReference {
    reference("GitSync", key, Some(uid))
}

fn reference(kind: &str, key: &Key, uid: Option<&str>) -> ObjectReference {
    ObjectReference {
        api_version: Some(API_VERSION.to_owned()),
        kind: Some(kind.to_owned()),
        namespace: Some(key.namespace.clone()),
        name: Some(key.name.clone()),
        uid: uid.map(str::to_owned),
        ..ObjectReference::default()
    }
}

/// The event for a change of a status. (pure)
pub(crate) fn event_of_change(
    change: StateChange,
    about: ObjectReference,
    status: &GitSyncStatus,
) -> Option<Event> {
    let type_ = match change {
        StateChange::Ready => "Ready",
        StateChange::Suspended => "Suspended",
        StateChange::Resumed => {
            let reason = EventReason::Resumed.to_string();
            let note = "spec.suspend is false: the repository is looked at".into();
            return Some(Event { about, type_: EventType::Normal, reason, note });
        }
    };
    let shown = status.conditions.iter().find(|condition| condition.type_ == type_)?;
    let good = is_good(shown.status == "True", EngineReason::parse(&shown.reason));
    let type_ = EventType::normal_if(good);
    Some(Event { about, type_, reason: shown.reason.clone(), note: shown.message.clone() })
}

/// An event about one object of a GitSync.
struct ObjectEvent {
    id: ObjectId,
    type_: EventType,
    reason: EventReason,
    note: String,
}

/// An object that cannot be written, and the reason of its event.
type Refused = (ObjectId, EventReason);

/// The object of a problem, if the problem makes an event about the object. (pure)
fn refused(problem: &Problem) -> Option<Refused> {
    let reason = match problem.code.as_str() {
        CONFLICT => EventReason::Conflict,
        REFUSED => EventReason::Refused,
        FORBIDDEN => EventReason::Forbidden,
        _ => return None,
    };
    let (kind, name) = problem.object.as_deref()?.split_once('/')?;
    Some((ObjectId::new(Kind::parse(kind)?, name), reason))
}

/// The objects that had their events before this operator started: those with a problem in the status. If the status does
/// not list all of its problems, all objects that are refused `now` count as announced. (pure)
fn announced_before(
    status: Option<&GitSyncStatus>,
    now: &BTreeMap<Refused, &Problem>,
) -> BTreeSet<Refused> {
    let Some(status) = status else { return BTreeSet::new() };
    let all = status.problem_count.and_then(|count| usize::try_from(count).ok());
    if all.is_some_and(|all| all > status.problems.len()) {
        return now.keys().cloned().collect();
    }
    status.problems.iter().filter_map(refused).collect()
}

/// Whether every write of the plan was tried: then an object without a problem has none any more. (pure)
fn tried_all(result: &PlanResult) -> bool {
    let PlanResult { outcome, remaining, .. } = result;
    !outcome.stopped && remaining.left + remaining.transient == 0 && remaining.refusal.is_none()
}

/// Events about the objects that cannot be written and that had no event yet.
fn new_refusals(
    reports: &mut ReportMemory,
    subject: &Subject<'_>,
    result: &PlanResult,
) -> Vec<ObjectEvent> {
    let all = result.problems.iter();
    let now: BTreeMap<Refused, &Problem> =
        all.filter_map(|problem| Some((refused(problem)?, problem))).collect();
    let announced =
        reports.announced.get_or_insert_with(|| announced_before(subject.status(), &now));
    let mut new = Vec::new();
    for (refused, problem) in &now {
        if announced.contains(refused) {
            continue;
        }
        let (id, reason) = refused.clone();
        let mut note = format!("GitSync {}: {}", subject.key.name, place_and_message(problem));
        if let Some(hint) = &problem.hint {
            note.push_str(&format!("; hint: {hint}"));
        }
        new.push(ObjectEvent { id, type_: EventType::Warning, reason, note });
    }
    if tried_all(result) {
        announced.clear();
    }
    announced.extend(now.into_keys());
    new
}

impl Subject<'_> {
    /// The reference to the GitSync in an event.
    pub(crate) fn about(&self) -> ObjectReference {
        of_sync(self.key, &self.entry.uid)
    }
}

/// Sends events about single objects: those that cannot be written, and those whose changes by hand were undone.
pub(crate) fn announce_objects(
    stores: &Stores,
    reports: &mut ReportMemory,
    subject: &Subject<'_>,
    result: &PlanResult,
) {
    let (io, namespace) = (subject.io, &subject.key.namespace);
    let mut all = new_refusals(reports, subject, result);
    for (id, drift) in &result.outcome.drifts {
        tracing::info!(namespace, %id, %drift, "undone");
        let (id, note) = (id.clone(), format!("{id}: {drift}; undone"));
        all.push(ObjectEvent {
            id,
            type_: EventType::Normal,
            reason: EventReason::DriftCorrected,
            note,
        });
    }
    let rest = all.split_off(all.len().min(MOST_OBJECT_EVENTS));
    for ObjectEvent { id, type_, reason, note } in all {
        let key = Key::new(namespace, &id.name);
        // An object that could not be created has no uid.
        let live = stores.managed(id.kind).live(&key);
        let about = reference(id.kind.as_str(), &key, live.as_ref().map(|live| live.uid()));
        let reason = reason.to_string();
        io.emit(Effect::Event(Box::new(Event { about, type_, reason, note })));
    }
    if let Some(event) = event_of_rest(subject, &rest) {
        io.emit(Effect::Event(Box::new(event)));
    }
}

/// The event about the GitSync that counts the objects without an event of their own.
fn event_of_rest(subject: &Subject<'_>, rest: &[ObjectEvent]) -> Option<Event> {
    let ObjectEvent { reason, note: first, .. } = rest.first()?;
    let mut counts: BTreeMap<EventReason, usize> = BTreeMap::new();
    for one in rest {
        *counts.entry(one.reason).or_default() += 1;
    }
    let counts: Vec<_> = counts.iter().map(|(reason, count)| format!("{count} {reason}")).collect();
    let note = format!(
        "{} more object(s) have no event of their own ({}); first: {first}",
        rest.len(),
        counts.join(", ")
    );
    let all_normal = rest.iter().all(|one| one.type_ == EventType::Normal);
    let (about, type_) = (subject.about(), EventType::normal_if(all_normal));
    Some(Event { about, type_, reason: reason.to_string(), note })
}

#[cfg(test)]
#[path = "tests/events.rs"]
mod tests;
