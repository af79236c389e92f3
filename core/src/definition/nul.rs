//! NUL characters. They are refused: no environment variable and no argument can hold one, so a program would see a
//! shorter text, or would not start.

use serde_json::Value;

use super::diagnostic::code;
use super::finding::Finding;
use super::places::{Place, escape, place_of_index};

/// The message for a NUL character.
pub(super) const MESSAGE: &str = "a NUL character is not accepted";
/// The hint for a NUL character.
pub(super) const HINT: &str = "remove it: no environment variable and no argument can hold one";

/// The place of the first NUL character of a text that begins at the first character of a file.
pub(super) fn first(text: &str) -> Option<Place> {
    text.find('\0').map(|index| place_of_index(text, index))
}

/// Findings about all keys and texts at and below `pointer` that hold a NUL character.
pub(super) fn findings(value: &Value, pointer: &str) -> Vec<Finding> {
    match value {
        Value::String(text) if text.contains('\0') => {
            vec![Finding::on_value(pointer, code::VALUE, MESSAGE).hint(HINT)]
        }
        Value::Array(items) => {
            let items = items.iter().enumerate();
            items.flat_map(|(index, item)| findings(item, &format!("{pointer}/{index}"))).collect()
        }
        Value::Object(map) => {
            let below = |key: &str| format!("{pointer}/{}", escape(key));
            let keys = map.keys().filter(|key| key.contains('\0'));
            let keys = keys.map(|key| Finding::on_key(below(key), code::VALUE, MESSAGE).hint(HINT));
            keys.chain(map.iter().flat_map(|(key, value)| findings(value, &below(key)))).collect()
        }
        Value::String(_) | Value::Null | Value::Bool(_) | Value::Number(_) => Vec::new(),
    }
}

#[cfg(test)]
#[path = "tests/nul.rs"]
mod tests;
