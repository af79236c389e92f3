//! (pure) The report of osv-scanner, and what of it keeps an image from being built or pushed.
//!
//! What a report says comes from lock files and from images: it is hostile. Names are shown as one short line each, without control characters.
#![deny(clippy::disallowed_types, clippy::disallowed_methods)]

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io::Read;

use clap::ValueEnum;
use serde::Deserialize;

use convoke_core::text::printable;

/// The longest line about a finding, in characters.
const MAX_LINE: usize = 400;
/// The longest name or path in a line, in characters.
const MAX_NAME: usize = 160;
/// The most versions that a line names.
const MAX_VERSIONS: usize = 3;

/// A report. Fields that are not needed are not read.
#[derive(Debug, Deserialize)]
pub struct Report {
    results: Vec<Source>,
}

impl Report {
    /// Reads the JSON of osv-scanner.
    ///
    /// # Errors
    /// It is no such JSON, or cannot be read.
    pub fn read(from: impl Read) -> Result<Self, serde_json::Error> {
        serde_json::from_reader(from)
    }
}

/// A lock file, or what an image has in one place.
#[derive(Debug, Deserialize)]
struct Source {
    source: Place,
    #[serde(default)]
    packages: Vec<Package>,
}

#[derive(Debug, Deserialize)]
struct Place {
    path: String,
}

#[derive(Debug, Deserialize)]
struct Package {
    #[serde(rename = "package")]
    what: Named,
    #[serde(default)]
    vulnerabilities: Vec<Vulnerability>,
    #[serde(default)]
    groups: Vec<Group>,
}

#[derive(Debug, Deserialize)]
struct Named {
    name: String,
    #[serde(default)]
    version: String,
    #[serde(default)]
    ecosystem: String,
}

/// One vulnerability under all of its names.
#[derive(Debug, Clone, Default, Deserialize)]
struct Group {
    ids: Vec<String>,
    #[serde(default)]
    aliases: Vec<String>,
    #[serde(default)]
    experimental_analysis: BTreeMap<String, Analysis>,
    /// A score of CVSS, 0 to 10. Empty when it is not known.
    #[serde(default)]
    max_severity: String,
}

#[derive(Debug, Clone, Deserialize)]
struct Analysis {
    /// Whether the distribution says that it is nothing.
    #[serde(default)]
    unimportant: bool,
}

#[derive(Debug, Deserialize)]
struct Vulnerability {
    id: String,
    #[serde(default)]
    summary: String,
    #[serde(default)]
    affected: Vec<Affected>,
}

#[derive(Debug, Deserialize)]
struct Affected {
    #[serde(default)]
    package: Option<AffectedName>,
    #[serde(default)]
    ranges: Vec<Range>,
}

#[derive(Debug, Deserialize)]
struct AffectedName {
    #[serde(default)]
    name: String,
}

#[derive(Debug, Deserialize)]
struct Range {
    #[serde(default)]
    events: Vec<Event>,
}

#[derive(Debug, Deserialize)]
struct Event {
    #[serde(default)]
    fixed: Option<String>,
}

/// How bad a vulnerability is, in the bands of CVSS 3.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub enum Severity {
    /// Below 4.0.
    Low,
    /// 4.0 to 6.9.
    Medium,
    /// 7.0 to 8.9.
    High,
    /// From 9.0 on.
    Critical,
}

impl Severity {
    /// The band of a score. `None` when it is no score: then nobody knows how bad it is.
    fn of(score: &str) -> Option<Self> {
        let score: f32 = score.parse().ok()?;
        match score {
            score if score >= 9.0 => Some(Self::Critical),
            score if score >= 7.0 => Some(Self::High),
            score if score >= 4.0 => Some(Self::Medium),
            score if score >= 0.0 => Some(Self::Low),
            _ => None,
        }
    }
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Low => "low",
            Self::Medium => "medium",
            Self::High => "high",
            Self::Critical => "critical",
        })
    }
}

/// What counts.
#[derive(Debug)]
pub struct Rules {
    /// What is less bad does not count. What nobody knows the severity of counts.
    pub minimum: Severity,
    /// Whether what has no fixed version is left out.
    pub ignore_unfixed: bool,
    /// Ids and aliases that do not count.
    pub ignored: BTreeSet<String>,
    /// What paths begin with and people need not see.
    pub root: String,
}

/// What counts of a report, the worst first, and what does not.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Judgement {
    /// One line for each finding that counts.
    pub findings: Vec<String>,
    /// Findings that are below the minimum.
    pub below: usize,
    /// Findings that have no fixed version, or that the distribution calls unimportant.
    pub unfixed: usize,
    /// Findings that the template names.
    pub ignored: usize,
}

/// Judges a report.
#[must_use]
pub fn judge(report: &Report, rules: &Rules) -> Judgement {
    let mut judgement = Judgement::default();
    // A layer above may have the same finding again.
    let mut counting = BTreeSet::new();
    for source in &report.results {
        let path = source.source.path.strip_prefix(rules.root.as_str());
        let path = short(path.map_or(&*source.source.path, |path| path.trim_start_matches('/')));
        for package in &source.packages {
            let alone = package.alone();
            for group in package.groups.iter().chain(&alone) {
                let severity = Severity::of(&group.max_severity);
                let fixed = package.fixed(group);
                let mut names = group.ids.iter().chain(&group.aliases);
                let unimportant = |id| {
                    group.experimental_analysis.get(id).is_some_and(|a: &Analysis| a.unimportant)
                };
                if names.any(|name| rules.ignored.contains(name)) {
                    judgement.ignored += 1;
                } else if severity.is_some_and(|severity| severity < rules.minimum) {
                    judgement.below += 1;
                } else if rules.ignore_unfixed && fixed.is_empty()
                    || (!group.ids.is_empty() && group.ids.iter().all(unimportant))
                {
                    judgement.unfixed += 1;
                } else {
                    // The worst first, and what is not known before everything.
                    let rank = severity.map_or(0, |severity| 4 - severity as u8);
                    counting.insert((
                        rank,
                        path.clone(),
                        line(&path, package, group, severity, &fixed),
                    ));
                }
            }
        }
    }
    judgement.findings = counting.into_iter().map(|(_, _, line)| line).collect();
    judgement
}

impl Package {
    /// Vulnerabilities that are in no group, each as one.
    fn alone(&self) -> Vec<Group> {
        let all = self.vulnerabilities.iter().map(|one| &one.id);
        let alone = all.filter(|id| !self.groups.iter().any(|group| group.ids.contains(id)));
        alone.map(|id| Group { ids: vec![id.clone()], ..Group::default() }).collect()
    }

    /// The versions that are said to have it no more.
    fn fixed(&self, group: &Group) -> Vec<&str> {
        let mut versions = Vec::new();
        for vulnerability in self.vulnerabilities.iter().filter(|one| group.ids.contains(&one.id)) {
            let is_this = |affected: &&Affected| {
                affected
                    .package
                    .as_ref()
                    .is_none_or(|package| package.name.is_empty() || package.name == self.what.name)
            };
            for affected in vulnerability.affected.iter().filter(is_this) {
                let events = affected.ranges.iter().flat_map(|range| &range.events);
                for version in events.filter_map(|event| event.fixed.as_deref()) {
                    if !versions.contains(&version) {
                        versions.push(version);
                    }
                }
            }
        }
        versions
    }

    /// What a group is about, in a few words.
    fn summary(&self, group: &Group) -> &str {
        let mut about = self.vulnerabilities.iter().filter(|one| group.ids.contains(&one.id));
        about.find(|one| !one.summary.is_empty()).map_or("", |one| &one.summary)
    }
}

/// `requirements.txt: jinja2 3.1.2 (PyPI) has GHSA-…, critical (9.8), fixed in 3.1.6: what it is about`.
fn line(
    path: &str,
    package: &Package,
    group: &Group,
    severity: Option<Severity>,
    fixed: &[&str],
) -> String {
    let Named { name, version, ecosystem } = &package.what;
    let id = group.ids.first().map_or("a vulnerability without an id", String::as_str);
    let severity = severity.map_or("severity not known".to_owned(), |severity| {
        format!("{severity} ({})", short(&group.max_severity))
    });
    let fixed: Vec<_> = fixed.iter().take(MAX_VERSIONS).map(|version| short(version)).collect();
    let fixed = if fixed.is_empty() {
        "no fixed version".to_owned()
    } else {
        format!("fixed in {}", fixed.join(", "))
    };
    let summary = short(package.summary(group));
    let about = if summary.is_empty() { summary } else { format!(": {summary}") };
    let (name, version, ecosystem, id) = (short(name), short(version), short(ecosystem), short(id));
    cut(
        &format!("{path}: {name} {version} ({ecosystem}) has {id}, {severity}, {fixed}{about}"),
        MAX_LINE,
    )
}

/// A name as one short line.
fn short(text: &str) -> String {
    cut(&printable(text), MAX_NAME)
}

fn cut(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
        None => text.to_owned(),
    }
}

#[cfg(test)]
#[path = "tests/scan_report.rs"]
mod tests;
