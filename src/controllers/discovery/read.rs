//! Asks one pod or address the one thing that its kind of object is asked.

use reqwest::{StatusCode, Url};

use super::ask::{Asker, Destination, Question};
use super::card::{self, CardRead, ConfigVersion, MAX_CARD_BYTES};
use super::failure::Failure;
use super::mcp;
use super::mcp_message::Era;
use super::reachable::{self, Reach};
use super::tools::ToolsRead;

/// What is asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Topic {
    /// The card of an agent, and the configuration that it is to have loaded. `None`: its pods read their files once, so new pods
    /// bring a new one.
    Card(Option<ConfigVersion>),
    /// The tools of a server.
    Tools,
    /// Whether the model proxy answers, and its provider, at this port of the pod. LiteLLM alone has no such port.
    Proxy(u16),
    /// Whether Ollama has this model.
    Hosted(String),
    /// Whether an address answers like a model endpoint.
    External,
}

/// What was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Found {
    /// The card of an agent.
    Card(CardRead),
    /// The tools of a server.
    Tools(ToolsRead),
    /// Whether a ModelAPI answers.
    Reach(Reach),
}

impl Found {
    /// Whether to ask again soon.
    #[must_use]
    pub const fn has_failed(&self) -> bool {
        match self {
            Self::Card(CardRead::Failed(failure)) | Self::Tools(Err(failure)) => failure.may_pass(),
            Self::Card(CardRead::Behind(..)) => true,
            Self::Card(CardRead::Card(_) | CardRead::NoCard) | Self::Tools(Ok(_)) => false,
            Self::Reach(reach) => reach.has_failed(),
        }
    }

    /// What is found when nothing usable can be read at all.
    #[must_use]
    pub fn failed(topic: &Topic, failure: Failure) -> Self {
        match topic {
            Topic::Card(_) => Self::Card(CardRead::Failed(failure)),
            Topic::Tools => Self::Tools(Err(failure)),
            Topic::Proxy(_) | Topic::Hosted(_) | Topic::External => {
                Self::Reach(Reach::Failed(failure))
            }
        }
    }
}

/// Asks. `era` is what an MCP server took the last time, and becomes what it takes now.
pub async fn read(
    asker: &Asker,
    to: &Destination<'_>,
    topic: &Topic,
    url: &Url,
    era: &mut Era,
) -> Found {
    match topic {
        Topic::Card(wanted) => Found::Card(card(asker, to, wanted.as_ref()).await),
        Topic::Tools => {
            let (tools, now) = mcp::list(asker, to, *era).await;
            *era = now;
            Found::Tools(tools)
        }
        Topic::Proxy(port) => Found::Reach(reachable::proxy(asker, to, *port).await),
        Topic::Hosted(model) => Found::Reach(reachable::hosted(asker, to, model).await),
        Topic::External => Found::Reach(reachable::external(asker, to, url).await),
    }
}

/// Reads a card, from the newer place or the older one.
async fn card(asker: &Asker, to: &Destination<'_>, wanted: Option<&ConfigVersion>) -> CardRead {
    for path in card::PATHS {
        let answer = match asker.ask(to, Question::get(path, MAX_CARD_BYTES)).await {
            Ok(answer) => answer,
            Err(failure) => return CardRead::Failed(failure),
        };
        match answer.status {
            StatusCode::NOT_FOUND => {}
            StatusCode::OK => {
                return match card::parse(&answer.body) {
                    Ok(card) => CardRead::of(card, wanted),
                    Err(failure) => CardRead::Failed(failure),
                };
            }
            other => return CardRead::Failed(Failure::status(other.as_u16())),
        }
    }
    CardRead::NoCard
}

#[cfg(test)]
#[path = "tests/read.rs"]
mod tests;
