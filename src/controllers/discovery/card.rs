//! (pure) Cards of agents (A2A): what one says, in the shapes of 0.3 and of 1.0, and how the status of an Agent tells it.
//!
//! A pod writes its card, so each value in it may be anything.
#![deny(clippy::disallowed_types, clippy::disallowed_methods)]

use convoke_core::text::hex;
use serde_json::Value;

use super::failure::{Failure, cut, unconfirmed};
use crate::api::agent::{AgentStatus, CardSkill, CardStatus};
use crate::cluster::conditions::Observed;
use crate::cluster::live::hash_json;

/// Where cards are, the newer place first.
pub const PATHS: [&str; 2] = ["/.well-known/agent-card.json", "/.well-known/agent.json"];
/// Bytes of the largest card.
pub const MAX_CARD_BYTES: usize = 1024 * 1024;
/// The condition that says whether the card was read.
pub const CARD_READ: &str = "CardRead";

/// The extension in which our agents say which configuration they have loaded.
const CONFIGURATION: &str = "https://convoke.dev/a2a/configuration/v1";
/// Skills that are kept.
const MAX_SKILLS: usize = 32;
/// Bytes of names that are kept.
const MAX_NAME_BYTES: usize = 128;
/// Bytes of ids and versions that are kept.
const MAX_ID_BYTES: usize = 64;
/// Bytes of an address that is kept.
const MAX_URL_BYTES: usize = 2048;
/// Hexadecimal digits of a hash or commit that is kept.
const MAX_DIGITS: usize = 64;

/// The configuration that the pods of an agent are to have loaded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigVersion {
    /// Hash of its content.
    pub hash: String,
    /// The commit that brought it. Another commit may bring the same content.
    pub commit: Option<String>,
}

impl ConfigVersion {
    /// Whether a card says that its agent has loaded another content. A card need not say what is loaded.
    fn has_other_content(&self, card: &CardStatus) -> bool {
        card.config_hash.as_ref().is_some_and(|loaded| *loaded != self.hash)
    }

    /// Whether a card says that its agent has loaded another content, or the same of another commit.
    fn is_not_of(&self, card: &CardStatus) -> bool {
        let commits = self.commit.as_ref().zip(card.config_commit.as_ref());
        self.has_other_content(card) || commits.is_some_and(|(wanted, loaded)| wanted != loaded)
    }
}

/// What was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CardRead {
    /// A card.
    Card(Box<CardStatus>),
    /// A card of an agent that has not loaded this configuration yet.
    Behind(Box<CardStatus>, ConfigVersion),
    /// There is none. Images of one's own need none.
    NoCard,
    /// Nothing usable.
    Failed(Failure),
}

impl CardRead {
    /// A card, of an agent that is to have loaded this configuration.
    #[must_use]
    pub fn of(card: CardStatus, wanted: Option<&ConfigVersion>) -> Self {
        match wanted.filter(|wanted| wanted.is_not_of(&card)) {
            Some(wanted) => Self::Behind(Box::new(card), wanted.clone()),
            None => Self::Card(Box::new(card)),
        }
    }
}

/// Reads a card.
///
/// # Errors
/// [`Failure::Invalid`], with the field that is wrong.
pub fn parse(text: &[u8]) -> Result<CardStatus, Failure> {
    let mut card: Value = serde_json::from_slice(text)
        .map_err(|_| Failure::invalid("the card is not JSON, or is nested too deeply"))?;
    if !card.is_object() {
        return Err(Failure::invalid("the card is not a JSON object"));
    }
    let name = card["name"].as_str().map(|name| cut(name, MAX_NAME_BYTES)).unwrap_or_default();
    if name.is_empty() {
        return Err(Failure::invalid("name of the card is missing, or is not a text"));
    }
    let interface = preferred(&card)?;
    let of_interface = |field: &str| interface.map(|interface| &interface[field]);
    let (url, protocol) = match interface {
        Some(_) => (of_interface("url"), of_interface("protocolVersion")),
        None => (Some(&card["url"]), Some(&card["protocolVersion"])),
    };
    let (url, protocol_version) = (url.and_then(address), protocol.and_then(short));
    let version = short(&card["version"]);
    let skills = skills(&card["skills"])?;
    let [config_hash, config_commit] = configuration(&card);
    remove_addresses(&mut card);
    let hash = hex(&hash_json(&card)[..8]);
    Ok(CardStatus {
        name,
        version,
        protocol_version,
        url,
        skills,
        hash,
        config_hash,
        config_commit,
    })
}

/// The interface that a card of 1.0 prefers. `None` for a card of 0.3.
fn preferred(card: &Value) -> Result<Option<&Value>, Failure> {
    match &card["supportedInterfaces"] {
        Value::Array(all) if all.first().is_some_and(Value::is_object) => Ok(all.first()),
        Value::Array(all) if !all.is_empty() => {
            Err(Failure::invalid("supportedInterfaces of the card does not hold objects"))
        }
        Value::Null | Value::Array(_) if card["url"].is_string() => Ok(None),
        Value::Null | Value::Array(_) => {
            Err(Failure::invalid("the card has neither supportedInterfaces nor url"))
        }
        _ => Err(Failure::invalid("supportedInterfaces of the card is not a list")),
    }
}

/// A short text, if it is one.
fn short(value: &Value) -> Option<String> {
    value.as_str().map(|text| cut(text, MAX_ID_BYTES)).filter(|text| !text.is_empty())
}

/// An address, if it is one for HTTP. It is shown and never dialled.
fn address(value: &Value) -> Option<String> {
    let url = value.as_str().filter(|url| url.len() <= MAX_URL_BYTES)?;
    let is_http = url.starts_with("http://") || url.starts_with("https://");
    let is_plain = url.bytes().all(|byte| byte.is_ascii_graphic()) && !url.contains('@');
    (is_http && is_plain).then(|| url.to_owned())
}

/// The skills, in the order of the card.
fn skills(value: &Value) -> Result<Vec<CardSkill>, Failure> {
    let all = match value {
        Value::Null => return Ok(Vec::new()),
        Value::Array(all) => all,
        _ => return Err(Failure::invalid("skills of the card is not a list")),
    };
    let skill = |skill: &Value| {
        let id = short(&skill["id"]).ok_or_else(|| {
            Failure::invalid("a skill of the card has no id, or one that is not a text")
        })?;
        let name = skill["name"].as_str().map(|name| cut(name, MAX_NAME_BYTES));
        let name = name.filter(|name| !name.is_empty()).unwrap_or_else(|| id.clone());
        Ok(CardSkill { id, name })
    };
    all.iter().take(MAX_SKILLS).map(skill).collect()
}

/// Hash and commit of the configuration that the agent has loaded, if it says so.
fn configuration(card: &Value) -> [Option<String>; 2] {
    let extensions = card["capabilities"]["extensions"].as_array();
    let ours = extensions.into_iter().flatten().find(|one| one["uri"] == CONFIGURATION);
    let digits = |field: &str| {
        let text = ours?["params"][field].as_str()?;
        let is_hex = text.bytes().all(|byte| byte.is_ascii_hexdigit());
        (is_hex && !text.is_empty() && text.len() <= MAX_DIGITS).then(|| text.to_owned())
    };
    [digits("hash"), digits("commit")]
}

/// Removes the addresses of the agent itself. They may depend on who asks, and are no change of the card.
fn remove_addresses(card: &mut Value) {
    if let Some(card) = card.as_object_mut() {
        card.remove("url");
    }
    for list in ["supportedInterfaces", "additionalInterfaces"] {
        let interfaces = card.get_mut(list).and_then(Value::as_array_mut);
        for interface in interfaces.into_iter().flatten().filter_map(Value::as_object_mut) {
            interface.remove("url");
        }
    }
}

/// Tells what was read. A card is shown until it is known that there is none any more.
pub fn tell(status: &mut AgentStatus, read: &CardRead, at: Observed) {
    let list = &mut status.conditions;
    match read {
        CardRead::Behind(card, wanted) if wanted.has_other_content(card) => {
            let loaded = card.config_hash.as_deref().unwrap_or_default();
            let text = format!(
                "the pod that was asked has loaded the configuration {loaded}, not {} yet; a changed ConfigMap reaches a pod within two minutes. If this stays, the pod's log says why it does not take the new one",
                wanted.hash
            );
            at.set(list, CARD_READ, "False", "OldConfiguration", &text);
            status.card = Some((**card).clone());
        }
        // The same content of another commit is no other configuration.
        CardRead::Card(card) | CardRead::Behind(card, _) => {
            at.set(list, CARD_READ, "True", "Read", "");
            status.card = Some((**card).clone());
        }
        CardRead::NoCard => {
            let text = "a pod answers HTTP 404 for its card; an image of one's own needs none";
            at.set(list, CARD_READ, "False", "NoCard", text);
            status.card = None;
        }
        CardRead::Failed(failure) => {
            let reason = match failure {
                Failure::TooLarge(_) => "TooLarge",
                Failure::Invalid(_) => "Invalid",
                Failure::NotAllowed(_) => "NotAllowed",
                Failure::Unreachable(_)
                | Failure::NotListening(_)
                | Failure::TooSlow(_)
                | Failure::Refused(_)
                | Failure::Unauthorized(_) => "Unreachable",
            };
            let text = if status.card.is_some() {
                unconfirmed(list, CARD_READ, at, failure)
            } else {
                failure.to_string()
            };
            at.set(list, CARD_READ, "False", reason, &text);
        }
    }
}

#[cfg(test)]
#[path = "tests/card.rs"]
mod tests;
