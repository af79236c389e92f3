//! (pure) The report of a plan, as text and as JSON.
#![deny(clippy::disallowed_types, clippy::disallowed_methods)]

use std::collections::BTreeSet;
use std::fmt::Write;
use std::sync::Arc;

use serde::Serialize;

use crate::api::ObjectId;
use crate::cli::count;
use crate::definition::difference::{Change, changes, metadata_change, secrets};
use crate::definition::{Catalog, Definition};

/// The report of a plan.
#[derive(Debug, Default, PartialEq, Serialize)]
pub struct Report {
    /// The objects that are not as wanted, in apply order.
    pub objects: Vec<Entry>,
    /// Deletes that wait for an approval.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub held: Option<Held>,
    /// The AgentBuilds whose image changes.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub builds: Vec<Build>,
    /// The AgentBuilds that an upgrade of the operator to this program's version would build, with its templates and steps.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub upgrade: Vec<Build>,
    /// The counts.
    pub summary: Summary,
    /// Other remarks.
    pub notes: Vec<String>,
}

/// An AgentBuild whose image changes.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct Build {
    /// `AgentBuild/name`.
    pub object: String,
    /// Whether a build starts.
    pub starts: bool,
    /// Why, or why not: a sentence.
    pub why: String,
}

/// An object that is not as wanted.
#[derive(Debug, PartialEq, Serialize)]
pub struct Entry {
    /// `Kind/name`.
    pub object: String,
    /// What the operator would do.
    pub action: Action,
    /// File of the definition, relative to the root of the repository.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// Its line.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<u32>,
    /// Why, if the action does not say it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// The differences.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub changes: Vec<ShownChange>,
}

/// A difference, with its text.
#[derive(Debug, PartialEq, Serialize)]
pub struct ShownChange {
    /// One line for people.
    pub text: String,
    /// The same, structured.
    #[serde(flatten)]
    pub change: Change,
}

/// What the operator would do with an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum Action {
    /// It does not exist.
    Create,
    /// It differs.
    Update,
    /// It is not wanted any more.
    Delete,
    /// It exists, and belongs to another owner.
    Conflict,
    /// Its file has errors, so it is kept at its last good definition.
    Quarantine,
    /// Another GitSync wants it, and takes it over.
    HandOver,
    /// It is being deleted and is waited for, or another object of an atomic commit has a problem.
    Wait,
    /// Its annotation says that it stays as it is.
    Pause,
    /// It was changed by hand, which is only reported.
    Drift,
    /// An earlier GitSync of the same name has made it, and no GitSync wants it. It stays.
    Orphan,
}

impl Action {
    const fn sign(self) -> char {
        match self {
            Self::Create => '+',
            Self::Update => '~',
            Self::Delete => '-',
            Self::Conflict => '!',
            Self::Quarantine | Self::Pause | Self::Drift => '=',
            Self::HandOver => '>',
            Self::Wait => '.',
            Self::Orphan => '?',
        }
    }
}

/// Deletes that wait for an approval.
#[derive(Debug, PartialEq, Serialize)]
pub struct Held {
    /// The digest to approve; `None` while no commit holds these definitions.
    pub digest: Option<String>,
    /// Why they are held.
    pub reason: String,
    /// `Kind/name` of each.
    pub objects: Vec<String>,
    /// How to release them.
    pub hint: String,
}

/// The counts of a plan.
#[derive(Debug, Default, PartialEq, Eq, Serialize)]
pub struct Summary {
    /// Objects to create.
    pub create: usize,
    /// Objects to change.
    pub update: usize,
    /// Objects to delete now.
    pub delete: usize,
    /// Objects that are as wanted.
    pub unchanged: usize,
    /// Deletes that wait for an approval.
    pub held: usize,
    /// Objects that belong to another owner.
    pub conflicts: usize,
    /// Objects that stay as they are because their file has errors.
    pub quarantined: usize,
}

impl Entry {
    /// An entry without changes. Its path and line are those of the definition, if there is one.
    pub fn new(id: &ObjectId, action: Action, definition: Option<&Definition>) -> Self {
        Self {
            object: id.to_string(),
            action,
            path: definition.map(|definition| definition.path.clone()),
            line: definition.map(|definition| definition.line),
            note: None,
            changes: Vec::new(),
        }
    }

    /// Adds a note.
    pub fn noted(mut self, note: impl Into<String>) -> Self {
        self.note = Some(note.into());
        self
    }

    /// Adds the differences.
    pub fn changed(mut self, changes: impl IntoIterator<Item = Change>) -> Self {
        let shown = |change: Change| ShownChange { text: change.to_string(), change };
        self.changes = changes.into_iter().map(shown).collect();
        self
    }
}

/// What to show of a new object: the Secrets that it names.
pub fn brings(definition: &Definition) -> Vec<Change> {
    let named = secrets(&definition.canonical_spec.json()).into_iter();
    named.map(|name| Change::new_secret_reference(&name)).collect()
}

/// The differences between two definitions of an object.
fn differences(old: &Definition, new: &Definition) -> Vec<Change> {
    let mut found = changes(new.id.kind, &old.canonical_spec.json(), &new.canonical_spec.json());
    found.extend(metadata_change("labels", &old.labels.to_map(), &new.labels.to_map()));
    found.extend(metadata_change(
        "annotations",
        &old.annotations.to_map(),
        &new.annotations.to_map(),
    ));
    found
}

/// Compares two sets of definitions.
pub fn compare(old: &Catalog, new: &Catalog) -> Report {
    let ids: BTreeSet<&ObjectId> = old.definitions.keys().chain(new.definitions.keys()).collect();
    let mut report = Report::default();
    for id in ids {
        let (before, after) = (old.definitions.get(id), new.definitions.get(id));
        let entry = |action, definition: &Arc<Definition>| Entry::new(id, action, Some(definition));
        let entry = match (before, after) {
            (None, Some(after)) if old.broken.contains_key(id) => {
                entry(Action::Update, after).noted("was broken there, so what changes is not known")
            }
            (None, Some(after)) => entry(Action::Create, after).changed(brings(after)),
            (Some(before), None) => entry(Action::Delete, before),
            (Some(before), Some(after)) => {
                let changes = differences(before, after);
                if changes.is_empty() {
                    report.summary.unchanged += 1;
                    continue;
                }
                entry(Action::Update, after).changed(changes)
            }
            (None, None) => continue,
        };
        report.add(entry);
    }
    report
}

impl Report {
    /// Adds an object, and counts it.
    pub fn add(&mut self, entry: Entry) {
        let Summary { create, update, delete, conflicts, quarantined, .. } = &mut self.summary;
        match entry.action {
            Action::Create => *create += 1,
            Action::Update => *update += 1,
            Action::Delete => *delete += 1,
            Action::Conflict => *conflicts += 1,
            Action::Quarantine => *quarantined += 1,
            Action::HandOver | Action::Wait | Action::Pause | Action::Drift | Action::Orphan => {}
        }
        self.objects.push(entry);
    }

    /// Whether there is anything to do or to decide.
    pub fn has_changes(&self) -> bool {
        let passive = |action| {
            use Action::{Drift, Orphan, Pause, Quarantine};
            matches!(action, Orphan | Quarantine | Pause | Drift)
        };
        self.held.is_some()
            || self.builds.iter().any(|build| build.starts)
            || self.objects.iter().any(|entry| !passive(entry.action))
    }

    /// The report as JSON.
    pub fn json(&self) -> String {
        // Plain data with string keys can always be serialized.
        serde_json::to_string_pretty(self).unwrap_or_default()
    }

    /// The report as text: one line for each object, followed by its differences.
    pub fn text(&self) -> String {
        let mut text = String::new();
        // Writing to a String cannot fail.
        for Entry { object, action, note, changes, .. } in &self.objects {
            let _ = writeln!(text, "{} {object}", action.sign());
            for line in note.iter().chain(changes.iter().map(|shown| &shown.text)) {
                let _ = writeln!(text, "    {line}");
            }
        }
        if let Some(Held { digest, reason, objects, hint }) = &self.held {
            let gap = if text.is_empty() { "" } else { "\n" };
            let _ = writeln!(text, "{gap}held: {reason}");
            for object in objects {
                let _ = writeln!(text, "    - {object}");
            }
            if let Some(digest) = digest {
                let _ = writeln!(text, "    digest {digest}");
            }
            let _ = writeln!(text, "    {hint}");
        }
        let upgrade = concat!("an upgrade to Convoke ", env!("CARGO_PKG_VERSION"), " builds");
        for (title, builds) in [("builds", &self.builds), (upgrade, &self.upgrade)] {
            if builds.is_empty() {
                continue;
            }
            let gap = if text.is_empty() { "" } else { "\n" };
            let _ = writeln!(text, "{gap}{title}:");
            for Build { object, starts, why } in builds {
                let sign = if *starts { '*' } else { '=' };
                let _ = writeln!(text, "  {sign} {object}: {why}");
            }
        }
        let summary = self.summary();
        if text.is_empty() {
            text = summary;
        } else {
            let _ = write!(text, "\n{summary}");
        }
        for note in &self.notes {
            let _ = writeln!(text, "note: {note}");
        }
        text
    }

    fn summary(&self) -> String {
        let Summary { create, update, delete, unchanged, held, conflicts, quarantined } =
            &self.summary;
        let starts = self.builds.iter().filter(|build| build.starts).count();
        if !self.has_changes() && *quarantined == 0 {
            return format!("no changes ({})\n", count(*unchanged, "object"));
        }
        let mut text = format!("{create} to create, {update} to change, {delete} to delete");
        for (number, what) in [(held, "held"), (quarantined, "quarantined"), (&starts, "to build")]
        {
            if *number > 0 {
                let _ = write!(text, ", {number} {what}");
            }
        }
        if *conflicts > 0 {
            let _ = write!(text, ", {}", count(*conflicts, "conflict"));
        }
        text + &format!(", {unchanged} unchanged\n")
    }
}
