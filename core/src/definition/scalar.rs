//! Values of plain YAML scalars, by the core schema.

use serde_json::{Number, Value};

/// The value of a plain scalar.
///
/// # Errors
/// Message and hint, when YAML readers disagree on the value, or it cannot be kept exactly. They do not quote it, because it may be a
/// secret.
pub(super) fn resolve(text: &str) -> Result<Value, (&'static str, &'static str)> {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return Ok(Value::Null),
        "true" | "True" | "TRUE" => return Ok(Value::Bool(true)),
        "false" | "False" | "FALSE" => return Ok(Value::Bool(false)),
        _ => {}
    }
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    if !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit()) {
        if digits.len() > 1 && digits.starts_with('0') {
            return Err(("the number begins with 0", "quote it if it is a text"));
        }
        let number = text.strip_prefix('+').unwrap_or(text);
        if let Ok(number) = number.parse::<i64>() {
            return Ok(Value::Number(number.into()));
        }
        return Err(("the number is too large", "quote it if it is a text"));
    }
    let based = [("0x", 16), ("0o", 8)].into_iter().find_map(|(prefix, base)| {
        let digits = text.strip_prefix(prefix)?;
        i64::from_str_radix(digits, base).ok().filter(|_| !digits.starts_with(['+', '-']))
    });
    if let Some(number) = based {
        return Ok(Value::Number(number.into()));
    }
    let lower = digits.to_ascii_lowercase();
    if matches!(lower.as_str(), ".inf" | ".nan") {
        return Err(("this is no usable number", "write a finite number"));
    }
    let numeric = lower.starts_with(|c: char| c.is_ascii_digit() || c == '.')
        && lower.bytes().any(|b| b.is_ascii_digit())
        && lower.bytes().all(|b| b.is_ascii_digit() || matches!(b, b'.' | b'e' | b'+' | b'-'));
    if numeric && let Ok(number) = text.parse::<f64>() {
        if let Some(number) = Number::from_f64(number) {
            return Ok(Value::Number(number));
        }
        return Err(("the number is too large", "write a finite number"));
    }
    Ok(Value::String(text.to_owned()))
}
