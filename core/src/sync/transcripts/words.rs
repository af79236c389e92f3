//! What an operator does, in words: one line for each request, status, event and poll.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::core::v1::ObjectReference;
use serde_json::Value;

use crate::api::keys;
use crate::cluster::write::{Deleted, Mode};
use crate::next::Next;
use crate::sync::io::Ended;
use crate::sync::io::Step;
use crate::sync::io::effect::{Call, Effect, PollRequest, Replied, Reply, Request};
use crate::sync::simulation::server::Name;

/// `ModelAPI/a`, or `GitSync/one`.
pub fn name(name: &Name) -> String {
    match name {
        Name::Object(id) => id.to_string(),
        Name::Sync(name) => format!("GitSync/{name}"),
    }
}

/// Commits are told by their numbers.
fn short(text: &str) -> String {
    let mut text = text.to_owned();
    while let Some(at) = text.find(&"0".repeat(30)) {
        let zeros = text[at..].bytes().take_while(|byte| *byte == b'0').count();
        text.replace_range(at..at + zeros, "");
    }
    text.replace("sha1:", "")
}

/// How long, roughly: delays are spread.
fn roughly(after: Duration) -> &'static str {
    match after.as_millis() {
        0 => "at once",
        1..=700 => "in half a second",
        701..=2_900 => "in a second or two",
        2_901..=14_000 => "in some seconds",
        14_001..=70_000 => "in a minute",
        70_001..=1_300_000 => "in some minutes",
        1_300_001..=7_000_000 => "in an hour",
        _ => "in hours",
    }
}

fn is_noise(key: &str) -> bool {
    matches!(key, "lastTransitionTime" | "time" | "type")
}

/// Every value with its path; conditions by their types, and of the history the newest entry only.
fn leaves(path: &str, value: &Value, found: &mut BTreeMap<String, String>) {
    match value {
        Value::Object(fields) => {
            // Time stands still, and a condition is named by its type.
            for (key, value) in fields.iter().filter(|(key, _)| !is_noise(key)) {
                leaves(&format!("{path}.{key}"), value, found);
            }
        }
        Value::Array(items) if path == ".history" => {
            found.insert(".history".into(), format!("{} entries", items.len()));
            leaves(".history[0]", &items[0], found);
        }
        Value::Array(items) => {
            for (at, item) in items.iter().enumerate() {
                let key = item["type"].as_str().map_or_else(|| at.to_string(), str::to_owned);
                leaves(&format!("{path}[{key}]"), item, found);
            }
        }
        value => {
            let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            found.insert(path.to_owned(), short(&text));
        }
    }
}

/// Where two statuses differ.
fn differences(old: &Value, new: &Value) -> Vec<String> {
    let (mut was, mut is) = (BTreeMap::new(), BTreeMap::new());
    leaves("", old, &mut was);
    leaves("", new, &mut is);
    let gone = was.keys().filter(|path| !is.contains_key(*path));
    let mut lines: Vec<_> = gone.map(|path| format!("    - {path}")).collect();
    let new = is.iter().filter(|(path, value)| was.get(*path) != Some(value));
    lines.extend(new.map(|(path, value)| format!("    {path}: {value}")));
    lines
}

/// A request, and what the server said to it.
pub fn of(sync: &str, asked: &Request, reply: &Replied, before: Option<&Value>) -> Vec<String> {
    let mut more = Vec::new();
    let mode = |mode: &Mode| if matches!(mode, Mode::Create) { "create" } else { "update" };
    let what = match &asked.call {
        Call::Rehearse { id, mode: how, .. } => format!("dry run: {} {id}", mode(how)),
        Call::Apply { id, manifest, mode: how } => {
            let applied = &manifest["metadata"]["annotations"][keys::APPLIED];
            assert!(applied.is_string(), "{manifest}");
            format!("{} {id} {}", mode(how), manifest["spec"])
        }
        Call::ReplaceSpec { id, spec, .. } => format!("replace the spec of {id} by {spec}"),
        Call::Get { id } => format!("get {id}"),
        Call::Delete { id, .. } => format!("delete {id}"),
        Call::GetSync { name } => format!("get GitSync/{name}"),
        Call::Status { status, .. } => {
            let nothing = Value::Null;
            let old = before.map_or(&nothing, |before| &before["status"]);
            let new = serde_json::to_value(status).expect("a status");
            more = differences(old, &new);
            "status".to_owned()
        }
        Call::ClearStatus { fields, .. } => format!("clear the status of {fields:?}"),
        Call::Finalizers { finalizers, .. } => format!("finalizers {finalizers:?}"),
        Call::FindAccount(account) => format!("find {account}"),
        Call::TryAccount => "who am I?".to_owned(),
        Call::FindNamespace => "find the namespace".to_owned(),
    };
    let account = asked.account.as_ref().map(|account| format!(" as {account}"));
    let said = match reply {
        Ok(Reply::Object(_) | Reply::Done) => String::new(),
        Ok(Reply::Deleted(Deleted::Terminating(_))) => ": Terminating".to_owned(),
        Ok(Reply::Deleted(how)) => format!(": {how:?}"),
        Ok(Reply::Found { deleting }) => format!(": there, deleting: {deleting}"),
        Err(error) => format!(": FAILS: {error}"),
    };
    more.insert(0, format!("{sync}: {what}{}{said}", account.unwrap_or_default()));
    more
}

fn of_look(look: &PollRequest) -> String {
    let PollRequest { sync, question, anew, needless, before, has_objects, applied, last } = look;
    let mut words = format!("looks at {} ({})", sync.spec.path, question.trigger);
    if let Some(request) = &question.request {
        words.push_str(&format!(", asked {request}"));
    }
    for (what, is) in [("anew", *anew), ("has objects", *has_objects)] {
        if is {
            words.push_str(&format!(", {what}"));
        }
    }
    for (what, revision) in [("before", before), ("applied", applied), ("last", last)] {
        if let Some(revision) = revision {
            words.push_str(&format!(", {what} {}", short(&revision.to_string())));
        }
    }
    if !needless.is_empty() {
        let all: Vec<_> = needless.iter().map(ToString::to_string).collect();
        words.push_str(&format!(", needless {}", all.join(" ")));
    }
    words
}

/// What an event is about, if that is not the GitSync itself.
fn about(sync: &str, about: &ObjectReference) -> String {
    let ObjectReference { kind, name, uid, .. } = about;
    let (kind, name) = (kind.as_deref().unwrap_or("?"), name.as_deref().unwrap_or("?"));
    if (kind, name) == ("GitSync", sync) {
        return String::new();
    }
    let lives = if uid.is_some() { "" } else { ", which is not there" };
    format!(" of {kind}/{name}{lives}")
}

/// What a reconcile wants besides requests, or how it ended.
pub fn of_step(sync: &str, step: &Step<Ended>) -> Option<String> {
    let words = match step {
        Step::Do(Effect::Request(..) | Effect::Tick) | Step::Wait { .. } => return None,
        Step::Do(Effect::Poll(look)) => of_look(look),
        Step::Do(Effect::StopPolling) => "gives up its look".to_owned(),
        Step::Do(Effect::Wake(other, after)) => format!("wakes {other} {}", roughly(*after)),
        Step::Do(Effect::Event(event)) => {
            let kind = event.type_.as_str();
            let about = about(sync, &event.about);
            format!("event {kind} {}{about}: {}", event.reason, short(&event.note))
        }
        Step::Do(Effect::Publish(published)) => {
            let before = published.before.as_ref().map(|loaded| loaded.revision.to_string());
            let before = before.unwrap_or_else(|| "nothing".into());
            format!("publishes {} after {}", published.loaded.revision, before)
        }
        Step::Do(Effect::Writing(begins)) => format!("writing: {begins}"),
        Step::Do(Effect::Forget) => "is forgotten".to_owned(),
        Step::Over(Ok(Next::Settled)) => "is settled".to_owned(),
        Step::Over(Ok(Next::Forget)) => "is over".to_owned(),
        Step::Over(Ok(Next::After(after))) => format!("comes back {}", roughly(*after)),
        Step::Over(Err(error)) => format!("pass FAILS: {error}"),
    };
    Some(format!("{sync}: {}", short(&words)))
}
