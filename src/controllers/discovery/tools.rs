//! (pure) The tools of a server (MCP): what its lists say, how the status of an MCPServer tells them, and when they have changed
//! though nobody changed the server.
//!
//! The server writes its lists, so each value in them may be anything.
#![deny(clippy::disallowed_types, clippy::disallowed_methods)]

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::failure::{Failure, cut, unconfirmed};
use crate::api::mcp_server::{MCPServerStatus, ServerInfo, ToolStatus};
use crate::cluster::conditions::{self, Observed};
use crate::cluster::live::hash_json;
use convoke_core::text::{hex, is_invisible};

/// The condition that says whether the tools were listed.
pub const TOOLS_DISCOVERED: &str = "ToolsDiscovered";
/// The condition that says that tools have changed though nobody changed the server.
pub const TOOLS_CHANGED: &str = "ToolsChanged";

/// Tools that the status shows.
const MAX_SHOWN: usize = 256;
/// Tools that a server may have.
const MAX_TOOLS: usize = 4096;
/// Bytes of a description that are shown.
const MAX_DESCRIPTION_BYTES: usize = 256;
/// Bytes of the longest name of a tool.
const MAX_NAME_BYTES: usize = 128;
/// Names in one part of a message.
const MAX_NAMES_IN_MESSAGE: usize = 8;
/// Bytes of what a server says of itself.
const MAX_INFO_BYTES: usize = 128;

/// The fields of a tool that its users rely on.
const HASHED: [&str; 5] = ["description", "inputSchema", "outputSchema", "annotations", "title"];

/// What the status tells of the tools.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    /// The tools that are shown.
    pub tools: Vec<ToolStatus>,
    /// How many there are.
    pub count: usize,
    /// Hash of all names and all hashes.
    pub hash: String,
    /// Tools whose names cannot be shown. They are not among the others.
    pub unnamed: usize,
    /// What the server says of itself.
    pub server: ServerInfo,
}

/// What was read.
pub type ToolsRead = Result<Box<Listed>, Failure>;

/// The tools of the pages that were read so far. Of each tool only what the status shows is kept.
#[derive(Debug, Default)]
pub struct Tools {
    /// By name: the description, and the hash of each definition.
    named: BTreeMap<String, (Option<String>, Vec<String>)>,
    unnamed: usize,
    total: usize,
}

impl Tools {
    /// Adds the tools of one page: the result of `tools/list`. Gives the cursor of the next page.
    ///
    /// # Errors
    /// When it is no list of tools, or when there are too many.
    pub fn add_page(&mut self, result: &Value) -> Result<Option<String>, Failure> {
        let Some(tools) = result["tools"].as_array() else {
            return Err(Failure::invalid("the answer to tools/list has no list of tools"));
        };
        for tool in tools {
            self.total += 1;
            if self.total > MAX_TOOLS {
                return Err(Failure::invalid(format!("it has more than {MAX_TOOLS} tools")));
            }
            self.add(tool)?;
        }
        match &result["nextCursor"] {
            Value::Null => Ok(None),
            Value::String(cursor) if cursor.is_empty() => Ok(None),
            Value::String(cursor) => Ok(Some(cursor.clone())),
            _ => Err(Failure::invalid("nextCursor of tools/list is not a text")),
        }
    }

    fn add(&mut self, tool: &Value) -> Result<(), Failure> {
        if !tool.is_object() {
            return Err(Failure::invalid("a tool of tools/list is not an object"));
        }
        let Some(name) = tool["name"].as_str().filter(|name| is_name(name)) else {
            self.unnamed += 1;
            return Ok(());
        };
        let said = tool["description"].as_str().map(|text| cut(text, MAX_DESCRIPTION_BYTES));
        let said = said.filter(|text| !text.is_empty());
        let entry = self.named.entry(name.to_owned()).or_insert((said, Vec::new()));
        entry.1.push(definition_hash(tool));
        Ok(())
    }

    /// All that was added, as the status shows it.
    #[must_use]
    pub fn listed(self, server: ServerInfo) -> Listed {
        let all = self.named.into_iter().map(|(name, (description, mut hashes))| {
            // A name that is there several times counts once, with all of its definitions.
            let schema_hash = if let [one] = hashes.as_slice() {
                one.clone()
            } else {
                hashes.sort();
                short_hash(&json!(hashes))
            };
            ToolStatus { name, description, schema_hash }
        });
        let mut tools: Vec<_> = all.collect();
        let (count, pairs): (_, Vec<_>) =
            (tools.len(), tools.iter().map(|tool| [&tool.name, &tool.schema_hash]).collect());
        let hash = short_hash(&json!(pairs));
        tools.truncate(MAX_SHOWN);
        Listed { tools, count, hash, unnamed: self.unnamed, server }
    }
}

/// Whether a text can be the name of a tool. A name that looks like another one is none.
fn is_name(name: &str) -> bool {
    let is_plain = |c: char| !c.is_control() && !c.is_whitespace() && !is_invisible(c);
    (1..=MAX_NAME_BYTES).contains(&name.len()) && name.chars().all(is_plain)
}

/// Hash of what the users of a tool rely on. The order of keys does not matter, and a field that is null equals none.
fn definition_hash(tool: &Value) -> String {
    let fields = HASHED.into_iter().filter(|field| !tool[*field].is_null());
    let fields: serde_json::Map<_, _> =
        fields.map(|field| (field.to_owned(), tool[field].clone())).collect();
    short_hash(&Value::Object(fields))
}

fn short_hash(value: &Value) -> String {
    hex(&hash_json(value)[..8])
}

/// What a server says of itself, in the form of `serverInfo`.
#[must_use]
pub fn server_info(info: &Value, protocol_version: &str) -> ServerInfo {
    let text = |field: &str| {
        info[field].as_str().map(|text| cut(text, MAX_INFO_BYTES)).filter(|text| !text.is_empty())
    };
    let protocol_version = cut(protocol_version, MAX_INFO_BYTES);
    ServerInfo { name: text("name"), version: text("version"), protocol_version }
}

/// Tells what was read of this revision of the server. The tools that were read before are shown until others are read.
pub fn tell(status: &mut MCPServerStatus, read: &ToolsRead, revision: &str, at: Observed) {
    let is_same_revision = status.tools_revision.as_deref() == Some(revision);
    if !is_same_revision {
        conditions::remove(&mut status.conditions, TOOLS_CHANGED);
    }
    let listed = match read {
        Ok(listed) => listed,
        Err(failure) => return tell_failure(status, failure, at),
    };
    let is_changed = is_same_revision && status.tools_hash.as_ref() != Some(&listed.hash);
    if is_changed {
        let text = difference(&status.tools, &listed.tools);
        let text = format!("the tools have changed, though nobody changed the server: {text}");
        at.set(&mut status.conditions, TOOLS_CHANGED, "True", "SchemaChanged", &text);
    }
    let text = match listed.unnamed {
        0 => String::new(),
        unnamed => format!("{unnamed} tools have names that cannot be shown: they do not count"),
    };
    at.set(&mut status.conditions, TOOLS_DISCOVERED, "True", "Discovered", &text);
    status.tools.clone_from(&listed.tools);
    status.tool_count = Some(i32::try_from(listed.count).unwrap_or(i32::MAX));
    status.tools_hash = Some(listed.hash.clone());
    status.tools_revision = Some(revision.to_owned());
    status.server_info = Some(listed.server.clone());
}

fn tell_failure(status: &mut MCPServerStatus, failure: &Failure, at: Observed) {
    let (state, reason) = match failure {
        Failure::NotAllowed(_) => ("False", "NotAllowed"),
        Failure::Unreachable(_)
        | Failure::NotListening(_)
        | Failure::TooSlow(_)
        | Failure::Refused(_) => ("False", "Unreachable"),
        Failure::Unauthorized(_) => ("Unknown", "Unauthorized"),
        Failure::TooLarge(_) => ("False", "TooLarge"),
        Failure::Invalid(_) => ("False", "NotMcp"),
    };
    let list = &mut status.conditions;
    let text = if status.tools_revision.is_some() && state == "False" {
        unconfirmed(list, TOOLS_DISCOVERED, at, failure)
    } else {
        failure.to_string()
    };
    at.set(list, TOOLS_DISCOVERED, state, reason, &text);
}

/// Why a server is known not to list its tools, as its status says for this generation: `Unreachable`, `NotMcp` or `TooLarge`. An
/// address that the operator may not dial says nothing of what agents reach.
#[must_use]
pub fn not_listed(status: &MCPServerStatus, generation: i64) -> Option<&str> {
    let found = status.conditions.iter().find(|one| one.type_ == TOOLS_DISCOVERED)?;
    let is_known = found.status == "False" && found.observed_generation == Some(generation);
    (is_known && found.reason != "NotAllowed").then_some(&found.reason)
}

/// What is different between two lists that are sorted by name, for people.
fn difference(old: &[ToolStatus], new: &[ToolStatus]) -> String {
    let find = |list: &[ToolStatus], name: &str| {
        list.binary_search_by(|tool| tool.name.as_str().cmp(name)).ok()
    };
    let only_in = |one: &[ToolStatus], other: &[ToolStatus]| -> Vec<String> {
        let missing = one.iter().filter(|tool| find(other, &tool.name).is_none());
        missing.map(|tool| tool.name.clone()).collect()
    };
    let changed = new.iter().filter(|tool| {
        find(old, &tool.name).is_some_and(|at| old[at].schema_hash != tool.schema_hash)
    });
    let changed: Vec<_> = changed.map(|tool| tool.name.clone()).collect();
    let parts =
        [("added", only_in(new, old)), ("removed", only_in(old, new)), ("changed", changed)];
    let parts: Vec<_> = parts
        .into_iter()
        .filter(|(_, names)| !names.is_empty())
        .map(|(what, names)| format!("{what} {}", some_of(&names)))
        .collect();
    // Only the first tools are kept by name.
    if parts.is_empty() { "some that are not shown".into() } else { parts.join("; ") }
}

/// The first names, and how many more there are.
#[must_use]
pub fn some_of(names: &[String]) -> String {
    let first = names.iter().take(MAX_NAMES_IN_MESSAGE).map(String::as_str);
    let first = first.collect::<Vec<_>>().join(", ");
    match names.len().saturating_sub(MAX_NAMES_IN_MESSAGE) {
        0 => first,
        more => format!("{first} and {more} more"),
    }
}

/// The tools of a server by name, sorted, if all of them are known for this generation of its spec, and are confirmed.
#[must_use]
pub fn known(status: &MCPServerStatus, generation: i64) -> Option<&[ToolStatus]> {
    let is_confirmed = conditions::is_true(&status.conditions, TOOLS_DISCOVERED);
    let revision = status.tools_revision.as_deref()?;
    let of = revision.split('/').next()?.parse::<i64>().ok()?;
    let are_all_shown =
        status.tool_count.and_then(|count| usize::try_from(count).ok()) == Some(status.tools.len());
    (of == generation && is_confirmed && are_all_shown).then_some(status.tools.as_slice())
}

#[cfg(test)]
#[path = "tests/tools.rs"]
mod tests;
