//! What could not be written, as problems with the place of the definition.

use std::collections::{BTreeMap, HashSet};

use crate::api::git_sync::{Problem, Severity};
use crate::api::{ObjectId, keys};
use crate::cluster::store::Key;
use crate::sync::apply::contention::Contended;
use crate::sync::apply::impersonation::Rejection;
use crate::sync::apply::{Failure, Outcome};
use crate::sync::commit::desired::DesiredSet;
use crate::sync::plan::Plan;

/// Content that the server refused: object → hash of what was sent, and what the server said.
pub type Refused = BTreeMap<ObjectId, (String, Rejection)>;

/// The code of a problem whose cause is that somebody else has the object.
pub const CONFLICT: &str = "CVK0901";

/// The code of a problem whose cause is that the server says no to the content.
pub const REFUSED: &str = "CVK0902";

/// The code of a problem whose cause is a missing right.
pub const FORBIDDEN: &str = "CVK0905";

/// The code of a problem that may pass by itself.
pub const FAILED: &str = "CVK0903";

/// Conflicts, refusals and failed writes as problems, with the place of the definition.
#[must_use]
pub fn write_problems(
    key: &Key,
    desired: &DesiredSet,
    plan: &Plan,
    outcome: &Outcome,
    refused: &Refused,
    fought: &[Contended],
) -> Vec<Problem> {
    let problem = |id: &ObjectId, code: &str, message: String, hint: Option<String>| {
        let definition = desired.get(id).map(|want| &want.definition);
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
    };
    let mut problems = Vec::new();
    for conflict in &plan.conflicts {
        let hint = match &conflict.peer {
            // As long as that one lives, nothing but Git takes it away from it.
            Some(name) => format!(
                "take the definition out of one of the two folders: it is handed over as soon as a commit of GitSync {name} without errors does not want it any more; if the live object says {}: {}, remove that first",
                keys::RECONCILE,
                keys::DISABLED
            ),
            None => format!(
                "delete or rename one of the two; to hand the live object over: kubectl -n {} annotate {} {} {}={}",
                key.namespace,
                conflict.id.kind.plural(),
                conflict.id.name,
                keys::ADOPT_BY,
                key.name
            ),
        };
        problems.push(problem(
            &conflict.id,
            CONFLICT,
            format!("{} exists and belongs to {}", conflict.id, conflict.owner),
            Some(hint),
        ));
    }
    for (id, other) in &plan.contested {
        let message = format!("{id} is also wanted by GitSync {other}, which is younger and waits");
        let hint = "take the definition out of one of the two".to_owned();
        let warning = problem(id, "CVK0906", message, Some(hint));
        problems.push(Problem { severity: Severity::Warning, ..warning });
    }
    for (id, failure) in &outcome.failures {
        match failure {
            Failure::Conflict => {
                problems.push(problem(id, CONFLICT, format!("{id} exists and is not ours"), None));
            }
            Failure::Transient(message) => {
                problems.push(problem(
                    id,
                    FAILED,
                    format!("{id} could not be written: {message}"),
                    None,
                ));
            }
            // Listed below, with those of earlier plans.
            Failure::Refused(_) => {}
        }
    }
    for Contended { id, who, wait: _ } in fought {
        let hint = format!(
            "stop the other writer, or pause the object: kubectl -n {} annotate {} {} {}={}",
            key.namespace,
            id.kind.plural(),
            id.name,
            keys::RECONCILE,
            keys::DISABLED
        );
        let message =
            format!("{id} is changed again and again ({who}); it is brought back ever less often");
        problems.push(problem(id, "CVK0907", message, Some(hint)));
    }
    let refusals = refused.iter().map(|(id, (_, rejection))| (id, rejection, "written"));
    let undeleted = outcome.undeleted.iter().map(|(id, rejection)| (id, rejection, "deleted"));
    for (id, Rejection { words, denial }, what) in refusals.chain(undeleted) {
        problems.push(if let Some(denial) = denial {
            let text = format!("{id} could not be {what}: {}", denial.sentence());
            problem(id, FORBIDDEN, text, Some(denial.hint(&key.namespace)))
        } else if what == "written" {
            problem(id, REFUSED, format!("the API server refused {id}: {words}"), None)
        } else {
            problem(id, "CVK0904", format!("{id} could not be deleted: {words}"), None)
        });
    }
    problems
}

/// Takes the writes out of a plan that the server refused before, and counts them. What is no longer to be written is
/// forgotten.
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
