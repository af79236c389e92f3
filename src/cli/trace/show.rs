//! (pure) A trace as text: one row a stage, then the verdict.
#![deny(clippy::disallowed_types, clippy::disallowed_methods)]

use k8s_openapi::jiff::Timestamp;

use super::facts::{BuildFacts, DeploymentFacts, PodFacts, Ready, Seen, SyncFacts, Trace, digest};
use super::verdict::{Verdict, image_text, short, short_digest};
use crate::cli::count;
use convoke_core::text::printable;

/// The names of the columns.
const HEADER: [&str; 5] = ["STAGE", "NAME", "COMMIT", "STATE", "DETAILS"];

/// A row: stage, name, commit, state, details.
type Row = [String; 5];

/// The trace and the verdict for people.
pub fn text(trace: &Trace, verdict: &Verdict, now: Timestamp) -> String {
    let mut rows = vec![HEADER.map(str::to_owned)];
    rows.extend(trace.git_sync.iter().map(|sync| of_sync(sync, now)));
    if trace.is_of_build() {
        rows.extend(of_build(trace));
    } else {
        rows.push(of_object(trace));
        rows.extend(of_build(trace));
        rows.push(of_deployment(trace));
        rows.extend(of_pods(trace));
    }
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max();
    let widths: Vec<_> = (0..4).map(|column| width(column).unwrap_or_default()).collect();
    let mut text = String::new();
    for row in &rows {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}  "));
        let line = cells.collect::<String>() + &row[4];
        text.push_str(printable(&line).trim_end());
        text.push('\n');
    }
    let next = verdict.next.as_ref().map(|next| format!("; next: {next}")).unwrap_or_default();
    text + "\n" + &printable(&format!("{}{next}", verdict.message)) + "\n"
}

fn row(stage: &str, name: &str, commit: Option<&str>, state: String, details: String) -> Row {
    let commit = commit.map_or("-", short);
    [stage.to_owned(), name.to_owned(), commit.to_owned(), state, details]
}

/// A row without a stage that is known.
fn unknown<T>(stage: &str, name: &str, seen: &Seen<T>) -> Row {
    let (state, details) = match seen {
        Seen::Refused { missing_right } => ("not readable", format!("no right to {missing_right}")),
        Seen::Missing { missing } => ("missing", missing.clone()),
        Seen::Known(_) => ("", String::new()),
    };
    row(stage, name, None, state.to_owned(), details)
}

/// The state by the condition `Ready`.
fn state(ready: &Ready) -> String {
    match (ready.status.as_str(), ready.reason.as_str()) {
        ("", _) => "not told yet".to_owned(),
        ("True", reason) => format!("Ready ({reason})"),
        (_, reason) => format!("not Ready ({reason})"),
    }
}

/// The details, and why it is not ready.
fn with_message(mut details: Vec<String>, ready: &Ready) -> String {
    if !ready.is_true() && !ready.message.is_empty() {
        details.push(ready.message.clone());
    }
    details.join("; ")
}

fn of_sync(seen: &Seen<SyncFacts>, now: Timestamp) -> Row {
    let Seen::Known(sync) = seen else { return unknown("GitSync", "-", seen) };
    let SyncFacts { name, follows, attempted, applied, applied_at, ready, .. } = sync;
    let since =
        applied_at.as_ref().map(|at| format!(" {} ago", age(at.0, now))).unwrap_or_default();
    let mut details = vec![follows.clone()];
    match applied {
        None => details.push("nothing was applied yet".to_owned()),
        Some(applied) if Some(applied) == attempted.as_ref() => {
            details.push(format!("applied{since}"));
        }
        Some(applied) => details.push(format!("applied {}{since}", short(applied))),
    }
    if sync.suspended {
        details.push("suspended".to_owned());
    }
    let commit = attempted.as_deref().or(applied.as_deref());
    row("GitSync", name, commit, state(ready), with_message(details, ready))
}

fn of_object(trace: &Trace) -> Row {
    let object = &trace.object;
    let source = object.source.clone().unwrap_or_else(|| "not from Git".to_owned());
    let mut details = vec![source];
    if !object.is_observed {
        details.push("the operator has not looked at it yet".to_owned());
    }
    let details = with_message(details, &object.ready);
    let kind = object.kind.as_str();
    row(kind, &object.name, object.commit.as_deref(), state(&object.ready), details)
}

/// The rows of the build and of its image.
fn of_build(trace: &Trace) -> Vec<Row> {
    let name = trace.object.build.as_deref().unwrap_or("-");
    let Some(seen) = &trace.build else { return Vec::new() };
    let Seen::Known(build) = seen else { return vec![unknown("AgentBuild", name, seen)] };
    let BuildFacts { name, phase, ready, key, pipeline_run, .. } = build;
    // Otherwise the row of the object has the file.
    let source = trace.object.source.clone().filter(|_| trace.is_of_build());
    let key = key.as_ref().map(|key| format!("key {key}"));
    let mut details: Vec<_> = source.into_iter().chain(key).collect();
    details.extend(pipeline_run.iter().map(|run| {
        let state = run.state.as_deref().unwrap_or("may not be read");
        let at = run.namespace.as_ref().map(|at| format!("{at}/")).unwrap_or_default();
        format!("PipelineRun {at}{} {state}", run.name)
    }));
    if !build.is_observed {
        details.push("the operator has not looked at it yet".to_owned());
    }
    let state = match ready.reason.as_str() {
        "" => phase.clone(),
        reason if reason == phase => phase.clone(),
        reason => format!("{phase} ({reason})"),
    };
    // The message of `Ready` names the run and the commit again.
    let told = Ready { message: build.failure.clone().unwrap_or_default(), ..ready.clone() };
    let details = with_message(details, if build.failure.is_some() { &told } else { ready });
    let mut rows = vec![row("AgentBuild", name, build.attempted_commit.as_deref(), state, details)];
    rows.push(match &build.image {
        None => row("image", "-", None, "missing".to_owned(), "nothing was built yet".to_owned()),
        Some(image) => {
            let (name, _) = image.split_once('@').unwrap_or((image, ""));
            let state = if ready.is_true() { "built" } else { "of an earlier build" };
            let details = digest(image).map(short_digest).unwrap_or_default();
            row("image", name, build.built_commit.as_deref(), state.to_owned(), details)
        }
    });
    rows
}

fn of_deployment(trace: &Trace) -> Row {
    let seen = &trace.deployment;
    let Seen::Known(deployment) = seen else { return unknown("Deployment", "-", seen) };
    let DeploymentFacts { name, image, generation, observed_generation, .. } = deployment;
    let state = format!("{}/{} available", deployment.available, deployment.wanted);
    let image = image.as_deref().map_or_else(|| "no image".to_owned(), image_text);
    let mut details = vec![image];
    details.push(if observed_generation >= generation {
        format!("generation {generation} observed")
    } else {
        format!("generation {generation}, observed {observed_generation}")
    });
    if let Some((reason, message)) = &deployment.failure {
        details.push(format!("{reason}: {message}"));
    }
    row("Deployment", name, None, state, details.join("; "))
}

fn of_pods(trace: &Trace) -> Vec<Row> {
    let seen = &trace.pods;
    match seen {
        Seen::Known(pods) => pods.iter().map(of_pod).collect(),
        _ => vec![unknown("pods", "-", seen)],
    }
}

fn of_pod(pod: &PodFacts) -> Row {
    let state = match (pod.is_ready, &pod.reason) {
        (true, _) => "ready".to_owned(),
        (false, Some(reason)) => format!("not ready ({reason})"),
        (false, None) => "not ready".to_owned(),
    };
    let digest = pod.digest.as_deref().map_or_else(|| "no image yet".to_owned(), short_digest);
    let mut details = vec![digest, count(to_usize(pod.restarts), "restart")];
    if !pod.is_newest {
        details.push("of an earlier revision".to_owned());
    }
    row("pod", &pod.name, None, state, details.join("; "))
}

fn to_usize(number: i32) -> usize {
    usize::try_from(number).unwrap_or_default()
}

/// How long ago something was, in its largest unit: `5s`, `3m`, `2h`, `4d`.
fn age(then: Timestamp, now: Timestamp) -> String {
    let seconds = now.duration_since(then).as_secs().max(0);
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3600 => format!("{}m", seconds / 60),
        3600..86_400 => format!("{}h", seconds / 3600),
        _ => format!("{}d", seconds / 86_400),
    }
}

#[cfg(test)]
#[path = "tests/show.rs"]
mod tests;
