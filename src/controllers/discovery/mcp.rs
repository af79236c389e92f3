//! Lists the tools of a server (MCP), in both eras.
//!
//! A server of the new era answers `tools/list` at once. One of the old era refuses that (HTTP 400, or an error), and is asked in a
//! session, which is ended afterwards. What it took is remembered, and is tried first the next time.

use reqwest::Method;
use reqwest::header::HeaderValue;
use serde_json::{Value, json};

use super::ask::{Answer, Asker, Destination, Header, Question};
use super::failure::Failure;
use super::mcp_message::{
    Era, STATELESS, WITH_SESSION, alone, answers, initialize, initialized, page, request, result,
};
use super::tools::{Listed, Tools, ToolsRead, server_info};

/// Bytes of the largest answer.
const MAX_ANSWER_BYTES: usize = 1024 * 1024;
/// Bytes of all pages of one list.
const MAX_LIST_BYTES: usize = 4 * 1024 * 1024;
/// Pages of one list.
const MAX_PAGES: u64 = 64;
/// Bytes of the longest id of a session.
const MAX_SESSION_BYTES: usize = 512;

/// Bytes of the longest name of a version.
const MAX_VERSION_BYTES: usize = 32;

const VERSION: &str = "mcp-protocol-version";
const METHOD: &str = "mcp-method";
const SESSION: &str = "mcp-session-id";
/// Where an answer of the new era says who the server is.
const SERVER_INFO: &str = "io.modelcontextprotocol/serverInfo";

/// Lists the tools of a server. Gives the era that it took as well.
pub async fn list(asker: &Asker, to: &Destination<'_>, first: Era) -> (ToolsRead, Era) {
    let server = Server { asker, to };
    let refused = match server.list(first).await {
        Ok(listed) => return (Ok(Box::new(listed)), first),
        // The other era is tried the next time: a request that it does not know may make a server silent.
        Err(failure @ (Failure::Unreachable(_) | Failure::TooSlow(_))) => {
            return (Err(failure), first.other());
        }
        // Some servers of the old era answer that to what they do not know.
        Err(failure @ (Failure::Invalid(_) | Failure::Refused(500 | 501))) => failure,
        // The other era would not change that.
        Err(failure) => return (Err(failure), first),
    };
    match server.list(first.other()).await {
        Ok(listed) => (Ok(Box::new(listed)), first.other()),
        // Of two refusals, that of the era that the server took before says more.
        Err(failure) => {
            let told = if first == Era::Session { refused } else { failure };
            (Err(told), first)
        }
    }
}

/// A server that is asked.
struct Server<'a> {
    asker: &'a Asker,
    to: &'a Destination<'a>,
}

/// What the answer to `initialize` says.
struct Session {
    id: Option<HeaderValue>,
    version: HeaderValue,
    info: Value,
}

impl Server<'_> {
    async fn list(&self, era: Era) -> Result<Listed, Failure> {
        match era {
            Era::Stateless => self.list_stateless().await,
            Era::Session => self.list_in_session().await,
        }
    }

    async fn list_stateless(&self) -> Result<Listed, Failure> {
        let headers = [(VERSION, HeaderValue::from_static(STATELESS))];
        let (tools, mut meta) = self.pages(Era::Stateless, &headers).await?;
        // Not each server repeats who it is.
        let info = match meta.get_mut(SERVER_INFO) {
            Some(info) => info.take(),
            None => self.discover().await,
        };
        Ok(tools.listed(server_info(&info, STATELESS)))
    }

    /// Who a server of the new era is; null if it does not say.
    async fn discover(&self) -> Value {
        let headers = vec![
            (VERSION, HeaderValue::from_static(STATELESS)),
            (METHOD, HeaderValue::from_static("server/discover")),
        ];
        let body = request(1, "server/discover", &alone(json!({})));
        let answer = self.post(body, headers, 1, MAX_ANSWER_BYTES).await;
        let said = answer.ok().and_then(|answer| result(&answer.body, 1).ok());
        said.map(|said| said["_meta"][SERVER_INFO].clone()).unwrap_or_default()
    }

    async fn list_in_session(&self) -> Result<Listed, Failure> {
        let session = self.initialize().await?;
        let mut headers = vec![(VERSION, session.version.clone())];
        headers.extend(session.id.clone().map(|id| (SESSION, id)));
        let tools = self.list_after_initialize(&headers).await;
        if session.id.is_some() {
            let end = Question {
                method: Method::DELETE,
                path: None,
                headers,
                body: None,
                max_bytes: MAX_ANSWER_BYTES,
            };
            // A server need not allow that; then it ends the session by itself.
            let _ = self.asker.ask(self.to, end).await;
        }
        let version = session.version.to_str().unwrap_or(WITH_SESSION);
        Ok(tools?.listed(server_info(&session.info, version)))
    }

    async fn list_after_initialize(&self, headers: &[Header]) -> Result<Tools, Failure> {
        let answer = self.post(initialized(), headers.to_vec(), 0, MAX_ANSWER_BYTES).await?;
        if !answer.status.is_success() {
            return Err(refusal(&answer));
        }
        let (tools, _) = self.pages(Era::Session, headers).await?;
        Ok(tools)
    }

    async fn initialize(&self) -> Result<Session, Failure> {
        let answer = self.post(initialize(1), Vec::new(), 1, MAX_ANSWER_BYTES).await?;
        if !answer.status.is_success() {
            return Err(refusal(&answer));
        }
        let mut said = result(&answer.body, 1)?;
        let version = said["protocolVersion"].as_str().unwrap_or_default();
        let is_version = !version.is_empty() && version.len() <= MAX_VERSION_BYTES;
        let version = HeaderValue::from_str(version).ok().filter(|_| is_version);
        let version = version
            .ok_or_else(|| Failure::invalid("protocolVersion of its answer is not a version"))?;
        let id = answer.headers.get(SESSION).cloned();
        let id = id.filter(|id| id.len() <= MAX_SESSION_BYTES);
        Ok(Session { id, version, info: said["serverInfo"].take() })
    }

    /// Reads all pages of the list of tools. Gives the tools, and the `_meta` of the first page.
    async fn pages(&self, era: Era, headers: &[Header]) -> Result<(Tools, Value), Failure> {
        let (mut tools, mut meta) = (Tools::default(), None);
        let (mut cursor, mut left): (Option<String>, _) = (None, MAX_LIST_BYTES);
        for id in 2..2 + MAX_PAGES {
            let (mut params, mut headers) = (page(cursor.as_deref()), headers.to_vec());
            if era == Era::Stateless {
                params = alone(params);
                headers.push((METHOD, HeaderValue::from_static("tools/list")));
            }
            let body = request(id, "tools/list", &params);
            let answer = self.post(body, headers, id, left.min(MAX_ANSWER_BYTES)).await?;
            if !answer.status.is_success() {
                return Err(refusal(&answer));
            }
            left = left.saturating_sub(answer.body.len());
            let mut said = result(&answer.body, id)?;
            cursor = tools.add_page(&said)?;
            if meta.is_none() {
                meta = Some(said["_meta"].take());
            }
            if cursor.is_none() {
                return Ok((tools, meta.unwrap_or_default()));
            }
        }
        Err(Failure::invalid(format!("its list of tools has more than {MAX_PAGES} pages")))
    }

    /// Sends a message. A stream is read until the answer to the request with this id.
    async fn post(
        &self,
        body: String,
        mut headers: Vec<Header>,
        id: u64,
        max_bytes: usize,
    ) -> Result<Answer, Failure> {
        headers.push(("content-type", HeaderValue::from_static("application/json")));
        let accepted = HeaderValue::from_static("application/json, text/event-stream");
        headers.push(("accept", accepted));
        let question =
            Question { method: Method::POST, path: None, headers, body: Some(body), max_bytes };
        self.asker.ask_for(self.to, question, |data| answers(data, id)).await
    }
}

/// What a refusal means. A server of the other era refuses with many kinds of errors; one that is not there now, or wants no more
/// requests, may well be a tool server.
fn refusal(answer: &Answer) -> Failure {
    let code = answer.status.as_u16();
    match code {
        401 | 403 | 429 | 500.. => Failure::status(code),
        _ => Failure::invalid(format!("it answers HTTP {code} to a message of MCP")),
    }
}

#[cfg(test)]
#[path = "tests/mcp.rs"]
mod tests;
