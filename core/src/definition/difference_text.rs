//! Differences between specs as sentences.

use std::fmt;

use serde_json::Value;

use super::difference::{Change, What, short};

/// Most names that one line lists. The JSON form has all names.
const MAX_LISTED_NAMES: usize = 10;

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let field = short(&self.field);
        let label = match (self.label, self.field.as_str()) {
            ("", "") => "spec",
            ("", _) => field.as_str(),
            (label, _) => label,
        };
        match &self.what {
            What::Value { old: Some(old), new: Some(new) } => {
                write!(f, "{label} {} → {}", plain(old), plain(new))
            }
            What::Value { old: None, new: Some(new) } => {
                write!(f, "{label} set to {}", plain(new))
            }
            What::Value { old: Some(old), new: None } => {
                write!(f, "{label} removed (was {})", plain(old))
            }
            What::Value { old: None, new: None } => write!(f, "{label} changed"),
            What::Hidden { .. } => write!(f, "{label} {} (value not shown)", self.what.verb()),
            What::Text { was, is, added, removed } => {
                let lines = added + removed;
                let lines = format!("{lines} line{}", if lines == 1 { "" } else { "s" });
                match (was, is) {
                    (true, true) => write!(f, "{label}: {lines} changed (+{added} −{removed})"),
                    _ => write!(f, "{label} {} ({lines})", self.what.verb()),
                }
            }
            What::Names { added, removed, changed, reordered } => {
                let names = Names { added, removed, changed };
                write!(f, "{label}{names}{}", if *reordered { " in another order" } else { "" })
            }
            What::SecretReference { name, new: true } => {
                write!(f, "new Secret reference {}", short(name))
            }
            What::SecretReference { name, new: false } => {
                write!(f, "no more Secret reference {}", short(name))
            }
        }
    }
}

impl What {
    /// The change in one word.
    fn verb(&self) -> &'static str {
        match self {
            Self::Hidden { was: false, is: true } | Self::Text { was: false, is: true, .. } => {
                "set"
            }
            Self::Hidden { was: true, is: false } | Self::Text { was: true, is: false, .. } => {
                "removed"
            }
            _ => "changed",
        }
    }
}

/// A text without quotes, anything else as JSON.
fn plain(value: &Value) -> String {
    match value {
        Value::String(text) if text.is_empty() => "\"\"".into(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// The names of [`What::Names`]: all of them when there is one, otherwise their numbers and the first ones.
struct Names<'a> {
    added: &'a [String],
    removed: &'a [String],
    changed: &'a [String],
}

impl fmt::Display for Names<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { added, removed, changed } = *self;
        let parts = [('+', "added", added), ('−', "removed", removed), ('~', "changed", changed)];
        let parts: Vec<_> = parts.into_iter().filter(|(_, _, names)| !names.is_empty()).collect();
        if let [(sign, _, [only])] = parts.as_slice() {
            return write!(f, " {sign}{}", short(only));
        }
        if parts.is_empty() {
            return Ok(());
        }
        let mut lists = Vec::new();
        for (sign, word, names) in parts {
            write!(f, " {sign}{}", names.len())?;
            let listed: Vec<_> =
                names.iter().take(MAX_LISTED_NAMES).map(|name| short(name)).collect();
            let more = match names.len().saturating_sub(MAX_LISTED_NAMES) {
                0 => String::new(),
                more => format!(" and {more} more"),
            };
            lists.push(format!("{word}: {}{more}", listed.join(", ")));
        }
        write!(f, " ({})", lists.join("; "))
    }
}
