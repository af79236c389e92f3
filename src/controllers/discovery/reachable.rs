//! Whether a ModelAPI answers. No model is asked anything, so it costs nothing and takes no key.

use reqwest::{StatusCode, Url};
use serde_json::Value;

use super::ask::{Answer, Asker, Destination, Question};
use super::failure::{Failure, words};
use crate::api::model_api::ModelAPIStatus;
use crate::cluster::conditions::Observed;

/// The condition that says whether it answers.
pub const REACHABLE: &str = "Reachable";

/// Bytes of the largest answer: a list of models.
const MAX_ANSWER_BYTES: usize = 1024 * 1024;
/// Where LiteLLM says whether it is ready.
const PROXY_PATH: &str = "/health/readiness";
/// Where the model proxy says whether its provider can be reached.
const PROVIDER_PATH: &str = "/provider";
/// Where Ollama lists its models.
const HOSTED_PATH: &str = "/api/tags";
/// The tag of a model of Ollama that names none.
const USUAL_TAG: &str = ":latest";

/// What was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reach {
    /// It answers.
    Answers(String),
    /// It answers, and lacks the model.
    ModelMissing(String),
    /// It answers that it does not work.
    ServerError(u16),
    /// It answers, and its provider is of no use.
    Provider(Provider),
    /// It does not answer.
    Failed(Failure),
}

/// Why a provider behind a proxy is of no use. Codes are those of HTTP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Provider {
    /// It does not answer.
    Silent,
    /// It does not take the key.
    KeyRefused(u16),
    /// It answers that it does not work.
    ServerError(u16),
    /// It answers, and the last questions of agents all failed.
    QuestionsFail(u16),
    /// It is not known where it is, or what it says with this code.
    Unknown(Option<u16>),
}

/// Asks the model proxy at this port about its provider, which it asks for a list of models and not for an answer. LiteLLM alone, or
/// an image of one's own, has no such page: it is asked whether it is ready. A page that does not answer says nothing good.
pub async fn proxy(asker: &Asker, to: &Destination<'_>, port: u16) -> Reach {
    let aside;
    let at_port = match to {
        Destination::Pod(pods, pod, url) => {
            aside = pod.at_port(port);
            Destination::Pod(pods, &aside, url)
        }
        Destination::External(url) => Destination::External(url),
    };
    by_page(asker, &at_port, to).await
}

/// Asks the page at this address, and LiteLLM itself if there is no such page.
async fn by_page(asker: &Asker, page: &Destination<'_>, to: &Destination<'_>) -> Reach {
    match asker.ask(page, Question::get(PROVIDER_PATH, MAX_ANSWER_BYTES)).await {
        Ok(answer) if answer.status == StatusCode::OK => match provider(&answer.body) {
            Some(reach) => reach,
            None => readiness(asker, to).await,
        },
        Ok(answer) if answer.status == StatusCode::NOT_FOUND => readiness(asker, to).await,
        Ok(answer) => Reach::ServerError(answer.status.as_u16()),
        Err(Failure::NotListening(_)) => readiness(asker, to).await,
        Err(failure) => Reach::Failed(failure),
    }
}

/// What the model proxy says about its provider. `None`: something else answered.
fn provider(text: &[u8]) -> Option<Reach> {
    let said: Value = serde_json::from_slice(text).ok()?;
    let code = || u16::try_from(said["status"].as_u64()?).ok();
    Some(match said["reason"].as_str()? {
        "Reachable" => Reach::Answers(format!("its provider answers HTTP {}", code()?)),
        "Unreachable" => Reach::Provider(Provider::Silent),
        "KeyRefused" => Reach::Provider(Provider::KeyRefused(code()?)),
        "ProviderError" => Reach::Provider(Provider::ServerError(code()?)),
        "QuestionsFail" => Reach::Provider(Provider::QuestionsFail(code()?)),
        "ProviderUnknown" => Reach::Provider(Provider::Unknown(code())),
        _ => return None,
    })
}

/// Asks LiteLLM whether it is ready.
async fn readiness(asker: &Asker, to: &Destination<'_>) -> Reach {
    match asker.ask(to, Question::get(PROXY_PATH, MAX_ANSWER_BYTES)).await {
        Ok(answer) if answer.status == StatusCode::OK => Reach::Answers("LiteLLM is ready".into()),
        Ok(answer) => Reach::ServerError(answer.status.as_u16()),
        Err(failure) => Reach::Failed(failure),
    }
}

/// Asks Ollama for its models.
pub async fn hosted(asker: &Asker, to: &Destination<'_>, model: &str) -> Reach {
    match asker.ask(to, Question::get(HOSTED_PATH, MAX_ANSWER_BYTES)).await {
        Ok(answer) if answer.status == StatusCode::OK => listed(&answer, model),
        Ok(answer) => Reach::ServerError(answer.status.as_u16()),
        Err(failure) => Reach::Failed(failure),
    }
}

/// Whether the model is among those that Ollama lists.
fn listed(answer: &Answer, model: &str) -> Reach {
    let said: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
    let Some(models) = said["models"].as_array() else {
        return Reach::Failed(Failure::invalid("Ollama does not answer with a list of models"));
    };
    let is_it = |name: &str| name == model || name.strip_suffix(USUAL_TAG) == Some(model);
    let mut names = models.iter().filter_map(|model| model["name"].as_str());
    if names.any(is_it) {
        Reach::Answers("Ollama has the model".into())
    } else {
        Reach::ModelMissing(format!("Ollama does not have the model {}", words(model)))
    }
}

/// Asks an external address for its models, without a key. Whoever refuses that is there as well.
pub async fn external(asker: &Asker, to: &Destination<'_>, url: &Url) -> Reach {
    let path = models_path(url);
    match asker.ask(to, Question::get(&path, MAX_ANSWER_BYTES)).await {
        Ok(answer) if answer.status.is_server_error() => Reach::ServerError(answer.status.as_u16()),
        Ok(answer) => {
            let code = answer.status.as_u16();
            Reach::Answers(format!("it answers HTTP {code} to a request without a key"))
        }
        // An answer that is too large is one.
        Err(Failure::TooLarge(_)) => Reach::Answers("it answers a request without a key".into()),
        Err(failure) => Reach::Failed(failure),
    }
}

/// The path of the list of models. The URL may end in `/v1` or not.
fn models_path(url: &Url) -> String {
    let path = url.path().trim_end_matches('/');
    format!("{}/v1/models", path.strip_suffix("/v1").unwrap_or(path))
}

impl Reach {
    /// Whether another try may soon be better.
    #[must_use]
    pub const fn has_failed(&self) -> bool {
        !matches!(self, Self::Answers(_) | Self::Provider(Provider::Unknown(_)))
    }
}

/// Tells what was found.
pub fn tell(status: &mut ModelAPIStatus, reach: &Reach, at: Observed) {
    let (state, reason, text) = match reach {
        Reach::Answers(text) => ("True", "Answers", text.clone()),
        Reach::ModelMissing(text) => ("False", "ModelMissing", text.clone()),
        Reach::ServerError(code) => ("False", "ServerError", format!("it answers HTTP {code}")),
        Reach::Provider(Provider::Silent) => {
            ("False", "Unreachable", "its provider does not answer".to_owned())
        }
        Reach::Provider(Provider::KeyRefused(code)) => {
            let text = format!("its provider does not take the key: it answers HTTP {code}");
            ("False", "KeyRefused", text)
        }
        Reach::Provider(Provider::ServerError(code)) => {
            ("False", "ServerError", format!("its provider answers HTTP {code}"))
        }
        Reach::Provider(Provider::QuestionsFail(code)) => {
            let text = format!(
                "its provider answers, but an agent's questions for a model fail, and none of anybody was answered since: HTTP {code}"
            );
            ("False", "QuestionsFail", text)
        }
        Reach::Provider(Provider::Unknown(code)) => {
            let text = match code {
                Some(code) => {
                    format!("its provider answers HTTP {code} to the question for its models")
                }
                None => {
                    "its first model and apiBase do not say where its provider is, or cannot be used"
                        .to_owned()
                }
            };
            ("Unknown", "ProviderUnknown", text)
        }
        Reach::Failed(failure @ Failure::NotAllowed(_)) => {
            ("Unknown", "NotAllowed", failure.to_string())
        }
        Reach::Failed(failure @ Failure::Invalid(_)) => ("False", "Invalid", failure.to_string()),
        Reach::Failed(failure) => ("False", "Unreachable", failure.to_string()),
    };
    at.set(&mut status.conditions, REACHABLE, state, reason, &text);
}

/// Why an endpoint is known not to be reachable, as its status says for this generation: reason and message.
#[must_use]
pub fn unreachable(status: &ModelAPIStatus, generation: i64) -> Option<(String, String)> {
    let found = status.conditions.iter().find(|one| one.type_ == REACHABLE)?;
    let is_known = found.status == "False" && found.observed_generation == Some(generation);
    is_known.then(|| (found.reason.clone(), found.message.clone()))
}

#[cfg(test)]
#[path = "tests/reachable.rs"]
mod tests;
