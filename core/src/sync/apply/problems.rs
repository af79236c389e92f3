//! Failed writes as problems of the status, each at the place of its definition.

use std::collections::{BTreeMap, HashSet};

use crate::api::git_sync::{Problem, Severity};
use crate::api::{ObjectId, keys};
use crate::cluster::store::Key;
use crate::sync::apply::contention::Contended;
use crate::sync::apply::impersonation::Rejection;
use crate::sync::apply::outcome::{Failure, Outcome};
use crate::sync::commit::desired::DesiredSet;
use crate::sync::plan::{Conflict, Plan};

/// Content that the API server refused: the applied hash of the content, and the answer.
pub type Refused = BTreeMap<ObjectId, (String, Rejection)>;

/// The object exists and belongs to somebody else.
pub const CONFLICT: &str = "CVK0901";

/// The API server refused the content.
pub const REFUSED: &str = "CVK0902";

/// A write failed, and may succeed later.
pub const FAILED: &str = "CVK0903";

/// A delete failed.
const DELETE_FAILED: &str = "CVK0904";

/// A right is missing.
pub const FORBIDDEN: &str = "CVK0905";

/// A younger GitSync wants the same object.
const CONTESTED: &str = "CVK0906";

/// Another writer changes the object again and again.
const CONTENDED: &str = "CVK0907";

/// What a plan became, as far as problems are made of it.
pub struct Written<'a> {
    /// The plan.
    pub plan: &'a Plan,
    /// Its outcome.
    pub outcome: &'a Outcome,
    /// Content that the API server refused, now or earlier.
    pub refused: &'a Refused,
    /// Objects whose revert waits.
    pub contended: &'a [Contended],
}

/// Conflicts, refusals and failed writes as problems.
#[must_use]
pub fn write_problems(key: &Key, desired: &DesiredSet, written: &Written<'_>) -> Vec<Problem> {
    let Written { plan, outcome, refused, contended } = written;
    let place = Place { key, desired };
    let mut problems: Vec<_> =
        plan.conflicts.iter().map(|conflict| place.conflict(conflict)).collect();
    problems.extend(plan.contested.iter().map(|(id, other)| place.contested(id, other)));
    let failures = outcome.failures.iter();
    problems.extend(failures.filter_map(|(id, failure)| place.failure(id, failure)));
    problems.extend(contended.iter().map(|contended| place.contended(contended)));
    problems.extend(refused.iter().map(|(id, (_, rejection))| place.refused(id, rejection)));
    let undeleted = outcome.undeleted.iter();
    problems.extend(undeleted.map(|(id, rejection)| place.undeleted(id, rejection)));
    problems
}

/// Where the definitions of the objects are.
struct Place<'a> {
    /// The GitSync.
    key: &'a Key,
    desired: &'a DesiredSet,
}

impl Place<'_> {
    fn problem(&self, id: &ObjectId, code: &str, message: String, hint: Option<String>) -> Problem {
        let definition = self.desired.get(id).map(|want| &want.definition);
        Problem {
            severity: Severity::Error,
            path: definition.map(|d| d.path.clone()),
            line: definition.map(|d| i64::from(d.line)),
            column: definition.map(|d| i64::from(d.column)),
            code: code.into(),
            message,
            hint,
            object: Some(id.to_string()),
        }
    }

    fn conflict(&self, Conflict { id, owner, peer }: &Conflict) -> Problem {
        let hint = match peer {
            // As long as that GitSync exists, only a change in Git takes the object away from it.
            Some(name) => format!(
                "take the definition out of one of the two folders: it is handed over as soon as a commit of GitSync {name} without errors does not want it any more; if the live object says {}: {}, remove that first",
                keys::RECONCILE,
                keys::DISABLED
            ),
            None => format!(
                "delete or rename one of the two; to hand the live object over: kubectl -n {} annotate {} {} {}={}",
                self.key.namespace,
                id.kind.plural(),
                id.name,
                keys::ADOPT_BY,
                self.key.name
            ),
        };
        self.problem(id, CONFLICT, format!("{id} exists and belongs to {owner}"), Some(hint))
    }

    fn contested(&self, id: &ObjectId, other: &str) -> Problem {
        let message = format!("{id} is also wanted by GitSync {other}, which is younger and waits");
        let hint = "take the definition out of one of the two".to_owned();
        let warning = self.problem(id, CONTESTED, message, Some(hint));
        Problem { severity: Severity::Warning, ..warning }
    }

    /// `None` for a refusal: all refusals are listed separately, with those of earlier plans.
    fn failure(&self, id: &ObjectId, failure: &Failure) -> Option<Problem> {
        let (code, message) = match failure {
            Failure::Conflict => (CONFLICT, format!("{id} exists and is not ours")),
            Failure::Transient(message) => {
                (FAILED, format!("{id} could not be written: {message}"))
            }
            Failure::Refused(_) => return None,
        };
        Some(self.problem(id, code, message, None))
    }

    fn contended(&self, Contended { id, who, wait: _ }: &Contended) -> Problem {
        let hint = format!(
            "stop the other writer, or pause the object: kubectl -n {} annotate {} {} {}={}",
            self.key.namespace,
            id.kind.plural(),
            id.name,
            keys::RECONCILE,
            keys::DISABLED
        );
        let message =
            format!("{id} is changed again and again ({who}); it is brought back ever less often");
        self.problem(id, CONTENDED, message, Some(hint))
    }

    fn refused(&self, id: &ObjectId, rejection: &Rejection) -> Problem {
        let Rejection { words, .. } = rejection;
        self.forbidden(id, rejection, "written").unwrap_or_else(|| {
            self.problem(id, REFUSED, format!("the API server refused {id}: {words}"), None)
        })
    }

    fn undeleted(&self, id: &ObjectId, rejection: &Rejection) -> Problem {
        let Rejection { words, .. } = rejection;
        self.forbidden(id, rejection, "deleted").unwrap_or_else(|| {
            self.problem(id, DELETE_FAILED, format!("{id} could not be deleted: {words}"), None)
        })
    }

    /// The problem of a missing right, if that is the reason.
    fn forbidden(&self, id: &ObjectId, rejection: &Rejection, verb: &str) -> Option<Problem> {
        let denial = rejection.denial.as_ref()?;
        let message = format!("{id} could not be {verb}: {}", denial.sentence());
        Some(self.problem(id, FORBIDDEN, message, denial.hint()))
    }
}

/// Removes the writes from a plan that the API server refused before. Returns how many. Forgets refusals that the plan does not
/// repeat.
pub fn leave_refused(plan: &mut Plan, desired: &DesiredSet, refused: &mut Refused) -> usize {
    if refused.is_empty() {
        return 0;
    }
    let updates = plan.update.iter().map(|update| &update.id);
    let planned: HashSet<_> = plan.create.iter().chain(updates).collect();
    refused.retain(|id, (applied, _)| {
        planned.contains(id) && desired.get(id).is_some_and(|want| want.applied == *applied)
    });
    plan.create.retain(|id| !refused.contains_key(id));
    plan.update.retain(|update| !refused.contains_key(&update.id));
    refused.len()
}
