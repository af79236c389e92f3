//! What a YAML scalar means: the core schema of YAML 1.2.2 (section 10.3.2), without what is ambiguous.

use serde_json::Number;

use super::diagnostic::Code;
use super::node::Data;

/// Why a scalar has no meaning: code, message, hint.
pub(super) type Refusal = (Code, &'static str, &'static str);

/// A tag of the core schema that a scalar may carry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CoreTag {
    Str,
    Int,
    Float,
    Bool,
    Null,
}

/// The meaning of a plain (unquoted) scalar with an optional tag. Quoted ones are strings.
pub(super) fn resolve(text: &str, tag: Option<CoreTag>) -> Result<Data, Refusal> {
    if tag == Some(CoreTag::Str) {
        return Ok(Data::String(text.to_owned()));
    }
    let data = resolve_plain(text)?;
    let fits = match tag {
        None | Some(CoreTag::Str) => true,
        Some(CoreTag::Int) => matches!(&data, Data::Number(number) if !number.is_f64()),
        Some(CoreTag::Float) => matches!(&data, Data::Number(_)),
        Some(CoreTag::Bool) => matches!(&data, Data::Bool(_)),
        Some(CoreTag::Null) => matches!(&data, Data::Null),
    };
    if fits {
        Ok(data)
    } else {
        Err((Code::Tag, "the tag does not fit the value", "remove the tag"))
    }
}

fn resolve_plain(text: &str) -> Result<Data, Refusal> {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return Ok(Data::Null),
        "true" | "True" | "TRUE" => return Ok(Data::Bool(true)),
        "false" | "False" | "FALSE" => return Ok(Data::Bool(false)),
        _ => {}
    }
    let (negative, digits) = match text.as_bytes()[0] {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    if matches!(digits, ".inf" | ".Inf" | ".INF") || matches!(text, ".nan" | ".NaN" | ".NAN") {
        return Err((
            Code::Number,
            "numbers must be finite",
            "put it in quotes if it is meant as text",
        ));
    }
    if !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit()) {
        if digits.len() > 1 && digits.starts_with('0') {
            return Err((
                Code::Number,
                "a number with leading zeros is octal to some YAML readers and decimal to others",
                "put it in quotes, or drop the zeros",
            ));
        }
        return integer(negative, digits, 10);
    }
    let digits_after = |prefix: &str, is_digit: fn(&u8) -> bool| {
        text.strip_prefix(prefix)
            .filter(|rest| !rest.is_empty() && rest.as_bytes().iter().all(is_digit))
    };
    if let Some(hex) = digits_after("0x", u8::is_ascii_hexdigit) {
        return integer(false, hex, 16);
    }
    if let Some(octal) = digits_after("0o", |byte| (b'0'..=b'7').contains(byte)) {
        return integer(false, octal, 8);
    }
    if is_float(digits) {
        let number = text.parse::<f64>().ok().and_then(Number::from_f64);
        return number.map(Data::Number).ok_or(TOO_LARGE);
    }
    Ok(Data::String(text.to_owned()))
}

const TOO_LARGE: Refusal =
    (Code::Number, "the number is too large", "put it in quotes if it is meant as text");

fn integer(negative: bool, digits: &str, radix: u32) -> Result<Data, Refusal> {
    let magnitude = u64::from_str_radix(digits, radix).map_err(|_| TOO_LARGE)?;
    let number = if negative {
        Number::from(0_i64.checked_sub_unsigned(magnitude).ok_or(TOO_LARGE)?)
    } else {
        Number::from(magnitude)
    };
    Ok(Data::Number(number))
}

/// `( \. [0-9]+ | [0-9]+ ( \. [0-9]* )? ) ( [eE] [-+]? [0-9]+ )?`, the sign already taken off.
fn is_float(text: &str) -> bool {
    let (mantissa, exponent) = match text.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, Some(exponent)),
        None => (text, None),
    };
    let all_digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
    let mantissa_ok = match mantissa.split_once('.') {
        Some(("", fraction)) => !fraction.is_empty() && all_digits(fraction),
        Some((whole, fraction)) => all_digits(whole) && all_digits(fraction),
        None => !mantissa.is_empty() && all_digits(mantissa),
    };
    mantissa_ok
        && exponent.is_none_or(|exponent| {
            let digits = exponent.strip_prefix(['-', '+']).unwrap_or(exponent);
            !digits.is_empty() && all_digits(digits)
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn v30_plain_scalars_mean_what_yaml_1_2_says() {
        for text in ["", "~", "null", "Null", "NULL"] {
            assert_eq!(resolve(text, None), Ok(Data::Null), "{text}");
        }
        for text in [
            "no",
            "yes",
            "on",
            "off",
            "y",
            "n",
            "nULL",
            "-",
            "+",
            ".",
            "1_000",
            "0b1",
            "12:30",
            "0x",
            "0o8",
            "e5",
            "1e",
            "-.",
            "+-1",
            "1.2.3",
            "0xg",
            "2026-01-01",
        ] {
            assert_eq!(resolve(text, None), Ok(Data::String(text.into())), "{text}");
        }
        for (text, number) in [
            ("0", 0_i64),
            ("-0", 0),
            ("+7", 7),
            ("-12", -12),
            ("0x1F", 31),
            ("0o17", 15),
            ("-9223372036854775808", i64::MIN),
        ] {
            assert_eq!(resolve(text, None), Ok(Data::Number(number.into())), "{text}");
        }
        assert_eq!(resolve("18446744073709551615", None), Ok(Data::Number(u64::MAX.into())));
        for (text, number) in
            [("1.5", 1.5), (".5", 0.5), ("5.", 5.0), ("-1e3", -1000.0), ("1.5E-2", 0.015)]
        {
            assert_eq!(
                resolve(text, None),
                Ok(Data::Number(Number::from_f64(number).expect("finite"))),
                "{text}"
            );
        }
        for text in [
            ".nan",
            ".NaN",
            ".inf",
            "-.INF",
            "1e400",
            "-1e999",
            "18446744073709551616",
            "-9223372036854775809",
            "017",
            "-01",
            "00",
            "0xfffffffffffffffff",
        ] {
            assert!(matches!(resolve(text, None), Err((Code::Number, ..))), "{text}");
        }
    }

    #[test]
    fn v29_a_core_tag_must_fit() {
        assert_eq!(resolve("017", Some(CoreTag::Str)), Ok(Data::String("017".into())));
        assert_eq!(resolve("5", Some(CoreTag::Int)), Ok(Data::Number(5.into())));
        assert!(resolve("5.5", Some(CoreTag::Int)).is_err());
        assert!(resolve("yes", Some(CoreTag::Bool)).is_err());
        assert!(resolve("x", Some(CoreTag::Null)).is_err());
    }
}
