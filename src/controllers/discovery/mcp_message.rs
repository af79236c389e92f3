//! (pure) The messages of MCP that list the tools of a server, in both eras: since 2026-07-28 each request stands alone and says
//! which version it is; before, a session begins with `initialize`.
#![deny(clippy::disallowed_types, clippy::disallowed_methods)]

use serde_json::{Value, json};

use super::failure::{Failure, words};

/// The version in which requests stand alone.
pub const STATELESS: &str = "2026-07-28";
/// The version that is offered to servers with sessions. They may choose an earlier one.
pub const WITH_SESSION: &str = "2025-06-18";

/// Which requests a server takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Era {
    /// Each request stands alone.
    Stateless,
    /// The requests belong to a session.
    Session,
}

impl Era {
    /// The other one.
    #[must_use]
    pub const fn other(self) -> Self {
        match self {
            Self::Stateless => Self::Session,
            Self::Session => Self::Stateless,
        }
    }
}

fn client() -> Value {
    json!({"name": "convoke", "version": env!("CARGO_PKG_VERSION")})
}

/// A request of a session.
#[must_use]
pub fn request(id: u64, method: &str, params: &Value) -> String {
    json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}).to_string()
}

/// The parameters of a request that stands alone.
#[must_use]
pub fn alone(mut params: Value) -> Value {
    params["_meta"] = json!({
        "io.modelcontextprotocol/protocolVersion": STATELESS,
        "io.modelcontextprotocol/clientCapabilities": {},
        "io.modelcontextprotocol/clientInfo": client(),
    });
    params
}

/// The first request of a session.
#[must_use]
pub fn initialize(id: u64) -> String {
    let params =
        json!({"protocolVersion": WITH_SESSION, "capabilities": {}, "clientInfo": client()});
    request(id, "initialize", &params)
}

/// The message that a session needs before anything is asked in it.
#[must_use]
pub fn initialized() -> String {
    json!({"jsonrpc": "2.0", "method": "notifications/initialized"}).to_string()
}

/// The parameters of `tools/list`.
#[must_use]
pub fn page(cursor: Option<&str>) -> Value {
    cursor.map_or_else(|| json!({}), |cursor| json!({"cursor": cursor}))
}

/// Whether a message is the answer to the request with this id.
#[must_use]
pub fn answers(text: &[u8], id: u64) -> bool {
    serde_json::from_slice::<Value>(text)
        .is_ok_and(|message| message["id"] == id && message.get("method").is_none())
}

/// The result in an answer.
///
/// # Errors
/// [`Failure::Invalid`] when the server answers with an error, or with something else.
pub fn result(text: &[u8], id: u64) -> Result<Value, Failure> {
    let mut message: Value = serde_json::from_slice(text)
        .map_err(|_| Failure::invalid("it does not answer with a message of MCP"))?;
    if message["jsonrpc"] != "2.0" || message["id"] != id {
        return Err(Failure::invalid(
            "it does not answer with the message of MCP that was asked for",
        ));
    }
    if let Some(error) = message.get("error").filter(|error| !error.is_null()) {
        let code = error["code"].as_i64().unwrap_or_default();
        let said = words(error["message"].as_str().unwrap_or_default());
        return Err(Failure::invalid(format!("it answers with error {code}: {said}")));
    }
    match message.get_mut("result") {
        Some(result) if result.is_object() => Ok(result.take()),
        _ => Err(Failure::invalid("its answer holds no result")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn t5_only_a_result_of_the_same_request_is_one() {
        let good = br#"{"jsonrpc":"2.0","id":2,"result":{"tools":[]}}"#;
        assert_eq!(result(good, 2), Ok(json!({"tools": []})));
        for (wrong, why) in [
            ("<html>", "message of MCP"),
            (r#"{"jsonrpc":"2.0","id":3,"result":{}}"#, "asked for"),
            (r#"{"jsonrpc":"1.0","id":2,"result":{}}"#, "asked for"),
            (r#"{"jsonrpc":"2.0","id":2,"result":[]}"#, "no result"),
            (r#"{"jsonrpc":"2.0","id":2}"#, "no result"),
            (r#"[{"jsonrpc":"2.0","id":2,"result":{}}]"#, "asked for"),
            (
                r#"{"jsonrpc":"2.0","id":2,"error":{"code":-32601,"message":"no\u001b[2J"}}"#,
                "error -32601: no [2J",
            ),
        ] {
            let error = result(wrong.as_bytes(), 2).expect_err(wrong).to_string();
            assert!(error.contains(why), "{wrong}: {error}");
        }
        assert!(answers(good, 2) && !answers(good, 1));
        assert!(!answers(br#"{"jsonrpc":"2.0","id":2,"method":"ping"}"#, 2), "a request");
        assert!(!answers(b"data", 2));
    }

    #[test]
    fn t5_a_request_that_stands_alone_says_its_version() {
        let params = alone(page(Some("c")));
        assert_eq!(params["cursor"], "c");
        assert_eq!(params["_meta"]["io.modelcontextprotocol/protocolVersion"], STATELESS);
        assert!(params["_meta"]["io.modelcontextprotocol/clientCapabilities"].is_object());
        assert_eq!(page(None), json!({}));
    }
}
