//! Texts that come from outside: made fit to be shown, compared and checked.

use std::fmt::Write;

/// Longest text that [`quote`] shows whole, in characters.
const MAX_QUOTED_CHARS: usize = 80;

/// Whether a character changes how the text around it looks: bidirectional marks, zero width, separators of lines, tags
/// (UTS #55). Control characters are not among these.
#[must_use]
pub fn is_invisible(c: char) -> bool {
    matches!(c,
        '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

/// The same number of characters in one line, without any that would move the cursor, change colours, or make the text
/// look like another one.
#[must_use]
pub fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() || is_invisible(c) { ' ' } else { c }).collect()
}

/// At most 80 characters of what a user wrote, in quotes.
#[must_use]
pub fn quote(text: &str) -> String {
    let short = printable(&text.chars().take(MAX_QUOTED_CHARS).collect::<String>());
    let ellipsis = if text.chars().nth(MAX_QUOTED_CHARS).is_some() { "…" } else { "" };
    format!("\"{short}{ellipsis}\"")
}

/// A text as one word of a command for a shell (POSIX): what was printed can be copied, and nothing in it is run.
#[must_use]
pub fn shell_word(text: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-' | '/' | ':');
    if !text.is_empty() && text.chars().all(is_plain) {
        return text.to_owned();
    }
    format!("'{}'", text.replace('\'', r"'\''"))
}

/// The name that is most like `wrong`, if it is near enough to be what was meant.
#[must_use]
pub fn nearest<'a>(wrong: &str, names: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let length = wrong.chars().count();
    let near = (length / 3).clamp(1, 3);
    names
        // The distance costs the product of both lengths, and is at least their difference.
        .filter(|name| length.abs_diff(name.chars().count()) <= near)
        .map(|name| {
            (strsim::damerau_levenshtein(&name.to_lowercase(), &wrong.to_lowercase()), name)
        })
        .filter(|(distance, _)| *distance <= near)
        .min()
        .map(|(_, name)| name)
}

/// Lower-case hexadecimal digits.
#[must_use]
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        // Writing to a String cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// The 32 bytes that 64 hex digits stand for.
#[must_use]
pub fn unhex(digits: &[u8]) -> Option<[u8; 32]> {
    let mut bytes = [0; 32];
    if digits.len() != 2 * bytes.len() {
        return None;
    }
    let value =
        |digit: u8| char::from(digit).to_digit(16).and_then(|value| u8::try_from(value).ok());
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = value(pair[0])? << 4 | value(pair[1])?;
    }
    Some(bytes)
}

/// Whether a text is a DNS label (RFC 1123).
#[must_use]
pub fn is_dns_label(text: &str) -> bool {
    let inside = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'-';
    (1..=63).contains(&text.len())
        && text.bytes().all(inside)
        && !text.starts_with('-')
        && !text.ends_with('-')
}
