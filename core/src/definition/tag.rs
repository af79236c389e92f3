//! The tag of the image of an AgentBuild, whose placeholders are replaced by the commit.

use serde_json::Value;

use super::diagnostic::code;
use super::finding::Finding;
use crate::text::quote;

/// Where the tag is.
pub(super) const POINTER: &str = "/spec/output/tag";
/// The most characters of a tag.
const MAX: usize = 128;
/// The hex digits of a commit where nothing else is known: those of SHA-1.
const COMMIT: usize = 40;

/// The tag with `{commit}` and `{short}` (7 digits) replaced.
///
/// # Errors
/// The replaced text, if a registry does not take it as a tag.
pub fn tag(pattern: &str, commit: &str) -> Result<String, String> {
    let tag =
        pattern.replace("{commit}", commit).replace("{short}", commit.get(..7).unwrap_or(commit));
    let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let ok = tag.len() <= MAX
        && tag.starts_with(word)
        && tag.chars().all(|c| word(c) || matches!(c, '.' | '-'));
    if ok { Ok(tag) } else { Err(tag) }
}

/// What is wrong with the placeholders of the tag of the spec of an AgentBuild. What its schema refuses is not told again.
pub(super) fn finding(spec: &Value) -> Option<Finding> {
    let pattern = spec["output"]["tag"].as_str()?;
    let tag = tag(pattern, &"0".repeat(COMMIT)).err()?;
    let message = if tag.contains(['{', '}']) {
        format!("the tag {} has placeholders that are not replaced", quote(pattern))
    } else if tag.len() > MAX && pattern.len() <= MAX {
        format!("the tag {} is longer than {MAX} characters with a commit in it", quote(pattern))
    } else {
        return None;
    };
    let hint = "use letters, digits, '_', '.', '-', and the placeholders {commit} and {short}";
    Some(Finding::on_value(POINTER, code::VALUE, message).hint(hint))
}

#[cfg(test)]
#[path = "tests/tag.rs"]
mod tests;
