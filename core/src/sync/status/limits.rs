//! How long lists, messages and a whole status may be: a status must stay far below etcd's limit for an object.

use crate::api::ObjectId;
use crate::api::git_sync::{GitSyncStatus, Problem};
use crate::text::printable;

/// Problems that a status lists.
pub(super) const MOST_PROBLEMS: usize = 100;
/// Objects in each list of objects.
pub(super) const MOST_LISTED_OBJECTS: usize = 100;
/// Entries of the history.
pub(super) const MOST_HISTORY_ENTRIES: usize = 10;
/// Characters of a message.
pub(super) const MOST_MESSAGE_CHARS: usize = 600;
/// Characters of a path.
pub(super) const MOST_PATH_CHARS: usize = 512;
/// Bytes of a whole status as JSON: etcd takes 1.5 MiB for an object, and every watcher reads the whole object.
const MOST_STATUS_BYTES: usize = 256 * 1024;
/// A status that lists fewer items than this, and no deletes, is always small enough.
const FEW_ITEMS: usize = 20;

/// Shortens the longest lists until the status is small enough. Its counts still say how many items there are.
pub(super) fn fit(status: &mut GitSyncStatus) {
    let bytes = |status: &GitSyncStatus| serde_json::to_vec(status).map_or(0, |json| json.len());
    let lists = [&status.orphans, &status.paused, &status.protected, &status.drifted];
    let lists: usize = lists.map(Vec::len).iter().sum();
    let listed = status.problems.len() + status.quarantined.len() + lists;
    // Most statuses are this short, and need not be serialized to know their size.
    if listed < FEW_ITEMS && status.approved_prune.is_none() && status.pending_prune.is_none() {
        return;
    }
    while bytes(status) > MOST_STATUS_BYTES {
        let GitSyncStatus { problems, quarantined, orphans, paused, protected, drifted, .. } =
            &mut *status;
        let names = [orphans, paused, protected, drifted];
        let longest =
            names.iter().map(|list| list.len()).chain([problems.len(), quarantined.len()]);
        let most = longest.max().unwrap_or_default() / 2;
        if most == 0 {
            return;
        }
        problems.truncate(most);
        quarantined.truncate(most);
        for list in names {
            list.truncate(most);
        }
    }
}

/// The first of these objects, as a status lists them.
pub(super) fn names(ids: &[ObjectId]) -> Vec<String> {
    ids.iter().take(MOST_LISTED_OBJECTS).map(ToString::to_string).collect()
}

/// A problem with path, message and hint short enough for a status.
pub(super) fn shorten_problem(mut problem: Problem) -> Problem {
    problem.path = problem.path.map(|path| shorten(&path, MOST_PATH_CHARS));
    problem.message = shorten(&problem.message, MOST_MESSAGE_CHARS);
    problem.hint = problem.hint.map(|hint| shorten(&hint, MOST_MESSAGE_CHARS));
    problem
}

/// At most `most` characters in one line. API servers quote what users wrote: control characters in it are replaced.
pub(super) fn shorten(text: &str, most: usize) -> String {
    match text.char_indices().nth(most.saturating_sub(1)) {
        Some((end, last)) if end + last.len_utf8() < text.len() => printable(&text[..end]) + "…",
        _ => printable(text),
    }
}

#[cfg(test)]
#[path = "tests/limits.rs"]
mod tests;
