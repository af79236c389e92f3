//! Variables: `${NAME}` in definitions. They are replaced after parsing, so no value can change the structure of a
//! document.
//!
//! Variables are replaced in `spec`, labels and annotations. They are not replaced in keys, `apiVersion`, `kind`, the name,
//! the content of included files, or the text of an `agent.md`. Variables in values are not replaced.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;
use sha2::{Digest, Sha256};

use super::diagnostic::code;
use super::document::Document;
use super::finding::Finding;
use super::front_matter::BODY;
use super::nul;
use super::places::escape;
use super::scalar::resolve;
use crate::text::{hex, nearest, quote};

/// Most bytes of all texts with variables of one document, after the variables are replaced.
const MAX_SUBSTITUTED_BYTES: usize = 1 << 20;

/// The variables of a GitSync.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Variables(BTreeMap<String, Arc<str>>);

impl Variables {
    /// Variables with these names and values. Names that cannot be used in `${…}` are left out.
    #[must_use]
    pub fn new(values: impl IntoIterator<Item = (String, String)>) -> Self {
        let values = values.into_iter().filter(|(name, _)| is_name(name));
        Self(values.map(|(name, value)| (name, value.into())).collect())
    }

    /// A hash of all names and values, in lower-case hexadecimal digits.
    #[must_use]
    pub fn digest(&self) -> String {
        let mut hash = Sha256::new();
        for text in self.0.iter().flat_map(|(name, value)| [name.as_str(), value]) {
            // With their lengths, so that different variables never give the same bytes.
            hash.update((text.len() as u64).to_be_bytes());
            hash.update(text);
        }
        hex(&hash.finalize()[..16])
    }
}

/// The variables that a file uses, with their values. `None`: not set.
pub(super) type Used = BTreeMap<String, Option<Arc<str>>>;

/// Whether a file that uses these variables gives the same now.
pub(super) fn are_unchanged(used: &Used, variables: Option<&Variables>) -> bool {
    let now = |name: &String| variables.and_then(|variables| variables.0.get(name));
    used.iter().all(|(name, value)| value.as_ref() == now(name))
}

/// Whether a text can be the name of a variable. The names are those of shell variables.
#[must_use]
pub fn is_name(name: &str) -> bool {
    let inner = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
    name.len() <= 128
        && name.bytes().all(inner)
        && name.bytes().next().is_some_and(|b| !b.is_ascii_digit())
}

/// Replaces the variables in a document. Returns what is wrong, and the variables that the document uses.
pub(super) fn substitute(document: &mut Document, variables: &Variables) -> (Vec<Finding>, Used) {
    let mut value = std::mem::take(&mut document.value);
    let mut substitution = Substitution {
        document,
        variables,
        used: Used::new(),
        findings: Vec::new(),
        bytes_left: MAX_SUBSTITUTED_BYTES,
    };
    for pointer in ["/metadata/labels", "/metadata/annotations", "/spec"] {
        if let Some(value) = value.pointer_mut(pointer) {
            substitution.walk(value, pointer);
        }
    }
    let Substitution { used, findings, .. } = substitution;
    document.value = value;
    (findings, used)
}

struct Substitution<'a> {
    document: &'a Document,
    variables: &'a Variables,
    used: Used,
    findings: Vec<Finding>,
    /// What is left of [`MAX_SUBSTITUTED_BYTES`].
    bytes_left: usize,
}

/// A text in which the variables have been replaced.
struct Substituted {
    text: String,
    /// Whether the original is one variable and nothing else.
    is_one_variable: bool,
}

/// Why the variables of a text cannot be replaced: code, message, hint.
type Refusal = (&'static str, String, String);

impl Substitution<'_> {
    fn walk(&mut self, value: &mut Value, pointer: &str) {
        match value {
            Value::Object(map) => {
                for (key, value) in map {
                    self.walk(value, &format!("{pointer}/{}", escape(key)));
                }
            }
            Value::Array(items) => {
                for (index, value) in items.iter_mut().enumerate() {
                    self.walk(value, &format!("{pointer}/{index}"));
                }
            }
            Value::String(text) if text.contains("${") => {
                if pointer == BODY && self.document.has_body {
                    return;
                }
                match self.scalar(text, pointer) {
                    Ok(new) => *value = new,
                    Err((code, message, hint)) => {
                        self.findings.push(Finding::on_value(pointer, code, message).hint(hint));
                    }
                }
            }
            _ => {}
        }
    }

    /// The value at a pointer, whose text is this.
    fn scalar(&mut self, text: &str, pointer: &str) -> Result<Value, Refusal> {
        let Substituted { text, is_one_variable } = self.text(text)?;
        self.bytes_left = self.bytes_left.checked_sub(text.len()).ok_or_else(|| {
            let message =
                format!("the values in this document have more than {MAX_SUBSTITUTED_BYTES} bytes");
            (code::BUDGET, message, "use shorter values".to_owned())
        })?;
        // As if the value had been written there: a 3 without quotes is a number.
        if is_one_variable && self.document.places.is_plain(pointer) {
            return resolve(&text).map_err(|(message, _)| {
                (code::VARIABLE, message.to_owned(), "quote the variable if it is a text".into())
            });
        }
        Ok(Value::String(text))
    }

    /// Replaces the variables of a text.
    fn text(&mut self, text: &str) -> Result<Substituted, Refusal> {
        let (mut made, mut rest) = (String::with_capacity(text.len()), text);
        while let Some(at) = rest.find('$') {
            made.push_str(&rest[..at]);
            rest = &rest[at..];
            if let Some(after) = rest.strip_prefix("$${") {
                made.push_str("${");
                rest = after;
            } else if let Some(after) = rest.strip_prefix("${") {
                let Some((inner, after)) = after.split_once('}') else {
                    return Err(malformed(rest));
                };
                let (name, default) = match inner.split_once(":-") {
                    Some((name, default)) => (name, Some(default)),
                    None => (inner, None),
                };
                if !is_name(name) {
                    return Err(malformed(&rest[..inner.len() + 3]));
                }
                made.push_str(&self.value(name, default)?);
                if made.len() > MAX_SUBSTITUTED_BYTES {
                    // The caller reports this.
                    return Ok(Substituted { text: made, is_one_variable: false });
                }
                rest = after;
            } else {
                made.push('$');
                rest = &rest[1..];
            }
        }
        made.push_str(rest);
        let is_one_variable = text.starts_with("${") && text.find('}') == Some(text.len() - 1);
        Ok(Substituted { text: made, is_one_variable })
    }

    /// The value of a variable, or its default.
    fn value(&mut self, name: &str, default: Option<&str>) -> Result<Arc<str>, Refusal> {
        let value = self.variables.0.get(name).cloned();
        self.used.insert(name.to_owned(), value.clone());
        if value.as_ref().is_some_and(|value| value.contains('\0')) {
            let message = format!("the value of {name} holds a NUL character");
            return Err((code::VARIABLE, message, nul::HINT.into()));
        }
        match (value, default) {
            // As in a shell, the default also replaces an empty value.
            (Some(value), default) if !(value.is_empty() && default.is_some()) => Ok(value),
            (_, Some(default)) => Ok(default.into()),
            (_, None) => Err(self.missing(name)),
        }
    }

    fn missing(&self, name: &str) -> Refusal {
        let hint = match nearest(name, self.variables.0.keys().map(String::as_str)) {
            Some(near) => format!("did you mean {near}?"),
            None => format!(
                "add it to spec.variables of the GitSync, give a default (${{{name}:-…}}), or write $${{{name}}} for the text itself"
            ),
        };
        (code::VARIABLE, format!("there is no variable {name}"), hint)
    }
}

fn malformed(text: &str) -> Refusal {
    let message = format!("{} is no variable", quote(text));
    let hint = "write ${NAME} or ${NAME:-default}; for the text itself begin with $${";
    (code::VARIABLE, message, hint.into())
}

#[cfg(test)]
#[path = "tests/variables.rs"]
mod tests;
