//! `${NAME}` in definitions: values of the GitSync, put into scalars after parsing, so that no value can change
//! what a document is made of.
//!
//! Values are put into `spec`, labels and annotations; never into keys, `apiVersion`, `kind`, the name, the content of
//! files or the text of an `agent.md`. What is put in is not looked at again.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Arc;

use serde_json::Value;
use sha2::{Digest, Sha256};

use super::diagnostic::{code, nearest, quote};
use super::document::{Document, escape};
use super::front_matter::BODY;
use super::nul;
use super::scalar::resolve;
use super::schema::Finding;

/// Bytes that all values put into one document may have.
const MOST_BYTES: usize = 1 << 20;

/// The values that a GitSync gives.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Variables(BTreeMap<String, Arc<str>>);

impl Variables {
    /// Takes values by name; names that can stand in no `${…}` are left out.
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
            // With their lengths, so that no two sets look alike.
            hash.update((text.len() as u64).to_be_bytes());
            hash.update(text);
        }
        hash.finalize()[..16].iter().fold(String::new(), |mut text, byte| {
            // Writing to a String cannot fail.
            let _ = write!(text, "{byte:02x}");
            text
        })
    }
}

/// The variables that a file asked for, and what they were.
pub(super) type Used = BTreeMap<String, Option<Arc<str>>>;

/// Whether a file that used these gives the same now.
pub(super) fn still(used: &Used, variables: Option<&Variables>) -> bool {
    let now = |name: &String| variables.and_then(|variables| variables.0.get(name));
    used.iter().all(|(name, value)| value.as_ref() == now(name))
}

/// Whether a text can be the name of a variable: those of the shell.
#[must_use]
pub fn is_name(name: &str) -> bool {
    let inner = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
    name.len() <= 128
        && name.bytes().all(inner)
        && name.bytes().next().is_some_and(|b| !b.is_ascii_digit())
}

/// Puts values into a document. Notes in `used` what was asked for.
pub(super) fn substitute(
    document: &mut Document,
    variables: &Variables,
    used: &mut Used,
) -> Vec<Finding> {
    let mut value = std::mem::take(&mut document.value);
    let mut work = Work { document, variables, used, findings: Vec::new(), left: MOST_BYTES };
    for pointer in ["/metadata/labels", "/metadata/annotations", "/spec"] {
        if let Some(value) = value.pointer_mut(pointer) {
            work.walk(value, pointer);
        }
    }
    let findings = work.findings;
    document.value = value;
    findings
}

struct Work<'a> {
    document: &'a Document,
    variables: &'a Variables,
    used: &'a mut Used,
    findings: Vec<Finding>,
    left: usize,
}

/// Why a text cannot be made.
type Refusal = (&'static str, String, String);

impl Work<'_> {
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
                let plain = self.document.places.is_plain(pointer);
                match self.scalar(text, plain) {
                    Ok(new) => *value = new,
                    Err((code, message, hint)) => self.findings.push(Finding {
                        pointer: pointer.to_owned(),
                        on_key: false,
                        code,
                        message,
                        hint: Some(hint),
                    }),
                }
            }
            _ => {}
        }
    }

    fn scalar(&mut self, text: &str, plain: bool) -> Result<Value, Refusal> {
        let (made, one) = self.text(text)?;
        self.left = self.left.checked_sub(made.len()).ok_or_else(|| {
            let message = format!("the values in this document have more than {MOST_BYTES} bytes");
            (code::BUDGET, message, "use shorter values".to_owned())
        })?;
        // As if the value had been written there: an unquoted 3 is a number.
        if plain && one {
            return resolve(&made).map_err(|(message, _)| {
                (code::VARIABLE, message, "quote the variable if it is a text".into())
            });
        }
        Ok(Value::String(made))
    }

    /// The text with values in it, and whether it is one variable and nothing else.
    fn text(&mut self, text: &str) -> Result<(String, bool), Refusal> {
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
                let value = self.variables.0.get(name).cloned();
                self.used.insert(name.to_owned(), value.clone());
                if value.as_ref().is_some_and(|value| value.contains('\0')) {
                    let message = format!("the value of {name} holds a NUL character");
                    return Err((code::VARIABLE, message, nul::HINT.into()));
                }
                match (value, default) {
                    // As in a shell: an empty value is as good as none.
                    (Some(value), default) if !(value.is_empty() && default.is_some()) => {
                        made.push_str(&value);
                    }
                    (_, Some(default)) => made.push_str(default),
                    (_, None) => return Err(self.missing(name)),
                }
                if made.len() > MOST_BYTES {
                    // Told by the caller.
                    return Ok((made, false));
                }
                rest = after;
            } else {
                made.push('$');
                rest = &rest[1..];
            }
        }
        made.push_str(rest);
        let one = text.starts_with("${") && text.find('}') == Some(text.len() - 1);
        Ok((made, one))
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
#[path = "variables_tests.rs"]
mod tests;
