//! (pure) The errors of pushing and appending. Foreign texts are made printable, and cut. None of them holds a credential.
#![deny(clippy::disallowed_types, clippy::disallowed_methods)]

use serde_json::Value;

use convoke_core::text::printable;

/// Characters of a foreign text that are kept.
const MAX_TEXT_CHARS: usize = 300;
/// Errors of one answer that are kept.
const MAX_ERRORS: usize = 3;

/// What is wrong with an OCI image layout.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LayoutError {
    /// A file or folder cannot be opened or read.
    #[error("{path} cannot be read: {why}")]
    NotRead {
        /// Below the layout.
        path: String,
        /// Why.
        why: String,
    },
    /// It is something else than a file or a folder. Symbolic links are not followed.
    #[error("{path} is {what}")]
    NotPlain {
        /// Below the layout.
        path: String,
        /// What it is.
        what: &'static str,
    },
    /// A file is larger than its budget.
    #[error("{path} is larger than {limit} MiB")]
    TooLarge {
        /// Below the layout.
        path: String,
        /// The budget.
        limit: u64,
    },
    /// A file has another size than its descriptor says.
    #[error("{path} has {found} bytes, and its descriptor says {wanted}")]
    WrongSize {
        /// Below the layout.
        path: String,
        /// Bytes of the file.
        found: u64,
        /// Bytes that the descriptor says.
        wanted: u64,
    },
    /// A file has another digest than its name says.
    #[error("{path} has another digest: sha256:{found}")]
    WrongDigest {
        /// Below the layout.
        path: String,
        /// The digest of the file.
        found: String,
    },
    /// A file says something that is not pushed.
    #[error("{path}: {why}")]
    Invalid {
        /// Below the layout.
        path: String,
        /// Why.
        why: String,
    },
}

/// Why a registry has not done what it was asked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RegistryError {
    /// It has answered with a status that means no.
    #[error("{what}: the server answers HTTP {status}{said}")]
    Refused {
        /// What was asked.
        what: String,
        /// The status.
        status: u16,
        /// What the registry says, and what to do.
        said: String,
    },
    /// It is not used, as it is: its address, its answer, where it wants the credentials.
    #[error("{what}: {why}")]
    NotUsed {
        /// What was asked.
        what: String,
        /// Why.
        why: String,
    },
    /// There is no connection over TLS with it: it speaks plain HTTP, or its certificate is not trusted.
    #[error("{what}: {why}")]
    NoTls {
        /// What was asked.
        what: String,
        /// Why.
        why: String,
    },
    /// It cannot be reached, is busy, or breaks off.
    #[error("{what}: {why}")]
    Unreachable {
        /// What was asked.
        what: String,
        /// What happened.
        why: String,
        /// Seconds after which it wants to be asked again.
        after: Option<u64>,
    },
    /// The credentials cannot be read.
    #[error("the credentials cannot be used: {why}")]
    Credentials {
        /// Why, without any of them.
        why: String,
    },
}

impl RegistryError {
    /// Whether another try may be better.
    #[must_use]
    pub const fn may_pass(&self) -> bool {
        matches!(self, Self::Unreachable { .. })
    }
}

/// Why a folder becomes no layer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FolderError {
    /// Something cannot be opened or read.
    #[error("{path} cannot be read: {why}")]
    NotRead {
        /// The path in the image.
        path: String,
        /// Why.
        why: String,
    },
    /// Something that no layer takes.
    #[error("{path} is {why}")]
    NotTaken {
        /// The path in the image.
        path: String,
        /// What it is.
        why: String,
    },
    /// All of it is too much.
    #[error("the folder has more than {limit}")]
    TooLarge {
        /// The budget, with its unit.
        limit: String,
    },
    /// The packages become no layer.
    #[error("the packages of the lock file: {0}")]
    Packages(Box<Self>),
    /// The layer cannot be written.
    #[error("the layer cannot be written: {why}")]
    Scratch {
        /// Why.
        why: String,
    },
}

/// Why nothing was appended to a base image.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BaseError {
    /// Its registry does not give it.
    #[error("the base image cannot be pulled: {0}")]
    Registry(RegistryError),
    /// It is not what a base image is.
    #[error("nothing can be appended to {image}: {why}")]
    Invalid {
        /// The base image.
        image: String,
        /// Why.
        why: String,
    },
}

/// Why an image was not pushed, or not written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PushError {
    /// The layout is not what it should be.
    #[error("the image is refused: {0}")]
    Layout(#[from] LayoutError),
    /// The folder becomes no layer.
    #[error("the folder is refused: {0}")]
    Folder(#[from] FolderError),
    /// A file that is to be attached is not what it should be.
    #[error("the attachment is refused: {0}")]
    Attachment(LayoutError),
    /// Something is wrong with the base image.
    #[error(transparent)]
    Base(#[from] BaseError),
    /// A layout cannot be written.
    #[error("the image cannot be written: {path}: {why}")]
    NotWritten {
        /// Below the layout.
        path: String,
        /// Why.
        why: String,
    },
    /// The registry has not taken it.
    #[error(transparent)]
    Registry(#[from] RegistryError),
}

/// A foreign text for a message.
#[must_use]
pub fn shown(text: &str) -> String {
    let short: String = printable(text).chars().take(MAX_TEXT_CHARS).collect();
    short.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// What the body of an answer says went wrong: `: CODE: message`, or nothing. `hide` takes out what must not be shown, before the text
/// is cut.
#[must_use]
pub fn told(body: &[u8], is_text: bool, hide: impl FnOnce(String) -> String) -> String {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let said = match serde_json::from_slice::<Value>(body) {
        Ok(json) => {
            let listed = json["errors"].as_array().map(Vec::as_slice).unwrap_or_default();
            let mut errors: Vec<_> = listed
                .iter()
                .take(MAX_ERRORS)
                .map(|one| {
                    let parts = [text(&one["code"]), text(&one["message"])];
                    parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(": ")
                })
                .collect();
            // As token services say it.
            errors.extend(["error_description", "details", "message"].map(|key| text(&json[key])));
            errors.retain(|one| !one.is_empty());
            errors.join("; ")
        }
        Err(_) if is_text => String::from_utf8_lossy(body).into_owned(),
        Err(_) => String::new(),
    };
    let said = shown(&hide(said));
    if said.is_empty() { said } else { format!(": {said}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(body: &[u8], is_text: bool) -> String {
        super::told(body, is_text, |text| text)
    }

    #[test]
    fn b5_what_a_registry_says_is_short_and_printable() {
        let body = br#"{"errors":[{"code":"DENIED","message":"no\u001b[2J\nway","detail":{"x":1}},{"code":"UNKNOWN"}]}"#;
        assert_eq!(told(body, false), ": DENIED: no [2J way; UNKNOWN");
        assert_eq!(told(br#"{"details":"incorrect username"}"#, false), ": incorrect username");
        assert_eq!(told(b"<html>busy</html>", false), "");
        assert_eq!(told(b"Client sent\tan HTTP request\n", true), ": Client sent an HTTP request");
        for body in ["[]", "{\"errors\":{}}", "{\"errors\":[1,null,{}]}", "", "7"] {
            assert_eq!(told(body.as_bytes(), false), "", "{body}");
        }
        let long = format!("{{\"errors\":[{{\"message\":\"{}\"}}]}}", "x".repeat(9000));
        assert_eq!(told(long.as_bytes(), false).chars().count(), MAX_TEXT_CHARS + 2);
    }
}
