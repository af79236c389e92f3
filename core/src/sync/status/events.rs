//! What is told by events: whether a GitSync is Ready, and what becomes of single objects.
//!
//! An event is of a change. What stood there already when the operator started makes none, and neither does another message.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::ObjectReference;

use crate::api::git_sync::{GitSyncStatus, Problem};
use crate::api::{API_VERSION, Kind, ObjectId};
use crate::cluster::conditions;
use crate::cluster::live::Stores;
use crate::cluster::store::Key;
use crate::sync::apply::problems::{CONFLICT, FORBIDDEN, REFUSED};
use crate::sync::io::effect::{Effect, Event, EventType};
use crate::sync::reasons::EngineReason;
use crate::sync::status::history::ReportMemory;
use crate::sync::status::plan_result::PlanResult;
use crate::sync::status::verdict::place_and_message;
use crate::sync::subject::Subject;

/// Most objects that one pass tells of by events of their own: a policy may refuse ten thousand. One event of the GitSync tells of
/// the others.
const MOST_OBJECTS: usize = 10;

/// What people want to hear of when it changes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Standing {
    suspended: bool,
    /// Status and reason of `Ready`.
    ready: Option<(String, String)>,
}

/// What has changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Turn {
    /// The status or the reason of `Ready`.
    Ready,
    /// It is suspended.
    Suspended,
    /// It is not suspended any more, and nothing else is new yet.
    Resumed,
}

impl Standing {
    pub fn of(status: Option<&GitSyncStatus>) -> Self {
        let all = status.map(|status| status.conditions.as_slice()).unwrap_or_default();
        let ready = all.iter().find(|condition| condition.type_ == "Ready");
        Self {
            suspended: conditions::is_true(all, "Suspended"),
            ready: ready.map(|ready| (ready.status.clone(), ready.reason.clone())),
        }
    }

    /// What is to be told when it is so `now`. That counts as told then.
    pub fn turn(&mut self, now: Self) -> Option<Turn> {
        if now.suspended && !self.suspended {
            // What it says besides is what was true when it last acted.
            self.suspended = true;
            return Some(Turn::Suspended);
        }
        // While that is being found out, what was told last stands.
        let is_known = now.ready.as_ref().is_some_and(|(status, _)| status != "Unknown");
        if is_known && now.ready != self.ready {
            *self = now;
            return Some(Turn::Ready);
        }
        let resumed = self.suspended && !now.suspended;
        self.suspended = now.suspended;
        resumed.then_some(Turn::Resumed)
    }
}

/// Whether it is as it was meant. Work that goes on is nothing bad, and neither is an end that is awaited. (pure)
pub(crate) fn is_good(ready: bool, reason: &str) -> bool {
    let goes_on = [
        EngineReason::Progressing,
        EngineReason::HandingOver,
        EngineReason::Terminating,
        EngineReason::Deleting,
    ];
    ready || goes_on.iter().any(|said| said.as_str() == reason)
}

/// A GitSync as what an event is about. (pure)
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

/// The event of what has changed in a status. (pure)
pub(crate) fn turned(turn: Turn, about: ObjectReference, status: &GitSyncStatus) -> Option<Event> {
    let type_ = match turn {
        Turn::Ready => "Ready",
        Turn::Suspended => "Suspended",
        Turn::Resumed => {
            let (reason, note) = ("Resumed", "spec.suspend is false: the repository is looked at");
            let type_ = EventType::Normal;
            return Some(Event { about, type_, reason: reason.into(), note: note.into() });
        }
    };
    let said = status.conditions.iter().find(|condition| condition.type_ == type_)?;
    let type_ = EventType::normal_if(is_good(said.status == "True", &said.reason));
    Some(Event { about, type_, reason: said.reason.clone(), note: said.message.clone() })
}

/// What there is to tell of an object.
struct OfObject {
    id: ObjectId,
    type_: EventType,
    reason: &'static str,
    note: String,
}

/// Which object cannot be written, and the reason of the event that tells of it.
type Trouble = (ObjectId, &'static str);

/// The same of a problem, if it is one that the object itself is to tell of. (pure)
fn trouble(problem: &Problem) -> Option<Trouble> {
    let reason = match problem.code.as_str() {
        CONFLICT => "Conflict",
        REFUSED => "Refused",
        FORBIDDEN => "Forbidden",
        _ => return None,
    };
    let (kind, name) = problem.object.as_deref()?.split_once('/')?;
    Some((ObjectId::new(Kind::parse(kind)?, name), reason))
}

/// What an operator before this one has told: the status lists it. If it does not list all of it, all that there is `now` counts
/// as told. (pure)
fn told_before(
    status: Option<&GitSyncStatus>,
    now: &BTreeMap<Trouble, &Problem>,
) -> BTreeSet<Trouble> {
    let Some(status) = status else { return BTreeSet::new() };
    let all = status.problem_count.and_then(|count| usize::try_from(count).ok());
    if all.is_some_and(|all| all > status.problems.len()) {
        return now.keys().cloned().collect();
    }
    status.problems.iter().filter_map(trouble).collect()
}

/// Whether all was tried that was to be written: what is no problem now is none any more. (pure)
fn is_whole(carry: &PlanResult) -> bool {
    let PlanResult { outcome, carried, .. } = carry;
    !outcome.stopped && carried.left + carried.transient == 0 && carried.refusal.is_none()
}

/// The objects that cannot be written, and of which no event has told yet.
fn refusals(
    telling: &mut ReportMemory,
    subject: &Subject<'_>,
    carry: &PlanResult,
) -> Vec<OfObject> {
    let all = carry.problems.iter();
    let now: BTreeMap<Trouble, &Problem> =
        all.filter_map(|problem| Some((trouble(problem)?, problem))).collect();
    let told = telling.told.get_or_insert_with(|| told_before(subject.status(), &now));
    let mut new = Vec::new();
    for (trouble, problem) in &now {
        if told.contains(trouble) {
            continue;
        }
        let (id, reason) = trouble.clone();
        let mut note = format!("GitSync {}: {}", subject.key.name, place_and_message(problem));
        if let Some(hint) = &problem.hint {
            note.push_str(&format!("; hint: {hint}"));
        }
        new.push(OfObject { id, type_: EventType::Warning, reason, note });
    }
    if is_whole(carry) {
        told.clear();
    }
    told.extend(now.into_keys());
    new
}

impl Subject<'_> {
    /// The GitSync as what an event is about.
    pub(crate) fn about(&self) -> ObjectReference {
        of_sync(self.key, &self.entry.uid)
    }
}

/// Tells of objects, by events about them: which of them cannot be written, and what was changed by hand and is undone.
pub(crate) fn tell_objects(
    stores: &Stores,
    telling: &mut ReportMemory,
    subject: &Subject<'_>,
    carry: &PlanResult,
) {
    let (io, namespace) = (subject.io, &subject.key.namespace);
    let mut all = refusals(telling, subject, carry);
    for (id, drift) in &carry.outcome.drifts {
        tracing::info!(namespace, %id, %drift, "undone");
        let (id, note) = (id.clone(), format!("{id}: {drift}; undone"));
        let type_ = EventType::Normal;
        all.push(OfObject { id, type_, reason: "DriftCorrected", note });
    }
    let rest = all.split_off(all.len().min(MOST_OBJECTS));
    for OfObject { id, type_, reason, note } in all {
        let key = Key::new(namespace, &id.name);
        // What could not be made has none.
        let live = stores.managed(id.kind).live(&key);
        let about = reference(id.kind.as_str(), &key, live.as_ref().map(|live| live.uid()));
        let reason = reason.to_owned();
        io.tell(Effect::Event(Box::new(Event { about, type_, reason, note })));
    }
    let Some(OfObject { reason, note: first, .. }) = rest.first() else { return };
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for one in &rest {
        *counts.entry(one.reason).or_default() += 1;
    }
    let counts: Vec<_> = counts.iter().map(|(reason, count)| format!("{count} {reason}")).collect();
    let all_normal = rest.iter().all(|one| one.type_ == EventType::Normal);
    let (about, type_) = (subject.about(), EventType::normal_if(all_normal));
    let (counts, reason) = (counts.join(", "), (*reason).to_owned());
    let note = format!(
        "{} more object(s) have no event of their own ({counts}); first: {first}",
        rest.len()
    );
    io.tell(Effect::Event(Box::new(Event { about, type_, reason, note })));
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;

    fn standing(ready: &str, reason: &str, suspended: bool) -> Standing {
        let (mut status, now) = (GitSyncStatus::default(), Timestamp::UNIX_EPOCH);
        let all = &mut status.conditions;
        conditions::set(all, "Ready", ready, reason, "whatever", 1, now);
        if suspended {
            conditions::set(all, "Suspended", "True", "Suspended", "", 1, now);
        }
        Standing::of(Some(&status))
    }

    #[test]
    fn g18_a_turn_is_told_once_and_what_is_being_found_out_is_none() {
        let mut told = Standing::of(None);
        for (ready, reason, suspended, turn) in [
            ("Unknown", "Progressing", false, None),
            ("False", "Timeout", false, Some(Turn::Ready)),
            ("False", "Timeout", false, None),
            ("Unknown", "Progressing", false, None),
            ("False", "Timeout", false, None),
            ("False", "PathMissing", false, Some(Turn::Ready)),
            ("True", "Succeeded", false, Some(Turn::Ready)),
            ("True", "Succeeded", true, Some(Turn::Suspended)),
            ("True", "Succeeded", true, None),
            ("Unknown", "Progressing", false, Some(Turn::Resumed)),
            ("True", "Succeeded", false, None),
            ("True", "Succeeded", true, Some(Turn::Suspended)),
            // One event tells both.
            ("False", "Timeout", false, Some(Turn::Ready)),
            ("False", "Timeout", false, None),
        ] {
            let now = standing(ready, reason, suspended);
            assert_eq!(told.turn(now), turn, "{ready} {reason} {suspended}");
        }
    }

    #[test]
    fn g18_work_that_goes_on_is_no_warning() {
        for reason in ["Progressing", "HandingOver", "Terminating", "Deleting"] {
            assert!(is_good(false, reason), "{reason}");
        }
        assert!(is_good(true, "Succeeded"));
        for reason in ["Timeout", "PruneHeld", "DependencyNotReady", "ProblemsFound"] {
            assert!(!is_good(false, reason), "{reason}");
        }
    }

    #[test]
    fn g18_what_a_status_does_not_list_counts_as_told() {
        let problem = |name: &str, code: &str| Problem {
            severity: crate::api::git_sync::Severity::Error,
            path: None,
            line: None,
            column: None,
            code: code.into(),
            message: String::new(),
            hint: None,
            object: Some(format!("ModelAPI/{name}")),
        };
        let listed = [problem("a", CONFLICT), problem("b", "CVK0201")];
        let all = [problem("a", CONFLICT), problem("c", REFUSED), problem("d", FORBIDDEN)];
        let now = all.iter().filter_map(|problem| Some((trouble(problem)?, problem))).collect();
        let names = |status: Option<&GitSyncStatus>| -> Vec<String> {
            told_before(status, &now).into_iter().map(|(id, _)| id.name).collect()
        };
        let mut status = GitSyncStatus { problems: listed.to_vec(), ..GitSyncStatus::default() };
        status.problem_count = Some(2);
        assert_eq!(names(Some(&status)), ["a"]);
        status.problem_count = Some(3);
        assert_eq!(names(Some(&status)), ["a", "c", "d"]);
        assert!(names(None).is_empty());
    }
}
